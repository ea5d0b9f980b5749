//! The kind of volume of a test run, and the prevailing kind of operations.

use std::sync::Arc;

use crate::device::{BlockDevice, Memory};
use crate::fs::Timestamp;
use crate::fs::hfsplus::build::{Options, Plan};
use crate::fs::hfsplus::{HfsPlusMut, WriteOptions};
use crate::fs::source::Tree;
use crate::progress::Silent;
use crate::testing::Random;

/// The fixed time of every operation.
pub(super) const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);

/// The prevailing kind of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Some of everything.
    Mixed,
    /// Folders of very many entries.
    Crowded,
    /// Attributes of all sizes.
    Attributes,
    /// Several files that grow and shrink alternately.
    Contents,
    /// Hard links, renames, deletions of open files.
    Names,
}

/// A volume and the operations on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nature {
    pub(super) case_sensitive: bool,
    pub(super) block_size: u32,
    pub(super) len: u64,
    pub(super) journaled: bool,
    /// The free space is fragmented into runs of a few blocks.
    pub(super) fragmented: bool,
    /// Blocks that are free at the start, per thousand.
    pub(super) free: u64,
    pub(super) habit: Habit,
    /// Bytes of the cache.
    pub(super) cache: usize,
}

impl Nature {
    pub(super) fn of(random: &mut Random) -> Self {
        let block_size = 512 << random.within(0..8);
        let habits = [
            Habit::Mixed,
            Habit::Mixed,
            Habit::Crowded,
            Habit::Attributes,
            Habit::Contents,
            Habit::Names,
        ];
        let least = plan(false, block_size)
            .minimum_len()
            .expect("an empty volume has a length");
        // A journal takes half a mebibyte and more.
        let room = (1 << 20) + random.within(0..8 << 20) * if random.one_in(4) { 3 } else { 1 };
        Self {
            case_sensitive: random.one_in(2),
            block_size,
            len: (least + room).next_multiple_of(u64::from(block_size))
                + if random.one_in(4) { 512 } else { 0 },
            journaled: random.one_in(2),
            fragmented: random.one_in(3),
            free: [1000, 1000, 1000, 500, 100, 20][random.within(0..6) as usize],
            habit: habits[random.within(0..habits.len() as u64) as usize],
            cache: 64 << 10 << random.within(0..6),
        }
    }

    /// Creates the empty volume.
    pub(super) fn format(&self, random: &mut Random) -> Arc<Memory> {
        let device = Arc::new(Memory::from(random.bytes(self.len as usize)));
        plan(self.case_sensitive, self.block_size)
            .build(&*device, &Silent)
            .expect("the volume can be made");
        device
    }

    /// Opens it for changes.
    pub(super) fn open(&self, device: Arc<dyn BlockDevice>) -> crate::Result<HfsPlusMut> {
        HfsPlusMut::open(
            device,
            WriteOptions {
                cache: self.cache,
                now: Some(NOW),
                system_files: false,
            },
        )
    }
}

fn plan(case_sensitive: bool, block_size: u32) -> Plan {
    let created = Timestamp::from_seconds(1_700_000_000);
    let block_size = Some(block_size);
    let options = Options {
        name: "Torture".into(),
        case_sensitive,
        journaled: false,
        block_size,
        created,
        latest: None,
        opens: false,
        identifier: 7,
    };
    Plan::new(Tree::empty(created), options).expect("an empty volume can be planned")
}
