//! A volume from its formatting on: batches of operations, after each of which it is checked,
//! unmounted or reopened.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Tally;
use super::crash::Story;
use super::files::Handle;
use super::nature::{Habit, Nature};
use super::world::World;
use crate::device::{BlockDevice, Memory};
use crate::fs::hfsplus::{HfsPlus, HfsPlusMut, check};
use crate::fs::{
    Change, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, NewKind, NewNode,
};
use crate::problem::Problem;
use crate::progress::Silent;
use crate::testing::Random;
use crate::{Kind, Result};

/// Maximum number of names on the volume of a crowded folder, and on others.
const MAX_OBJECTS: [usize; 2] = [5000, 300];

/// An operation on a volume and its model.
type Operation = fn(&mut Life);

/// A volume, its model, and its history.
pub(super) struct Life {
    seed: u64,
    pub(super) nature: Nature,
    pub(super) random: Random,
    pub(super) device: Arc<Memory>,
    volume: Option<HfsPlusMut>,
    pub(super) world: World,
    pub(super) handles: Vec<Handle>,
    /// Present if a power failure is to come.
    pub(super) story: Option<Story>,
    pub(super) tally: Tally,
    /// An operation was refused for lack of room since the last check.
    cramped: bool,
}

impl Life {
    pub(super) fn begin(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nature = Nature::of(&mut random);
        let device = nature.format(&mut random);
        let volume = nature.open(device.clone()).expect("a new volume opens");
        if nature.journaled {
            volume
                .enable_journal(None)
                .expect("a new volume has room for a journal");
        }
        fill(&volume, &nature, &mut random).expect("a volume can be filled");
        let world = World::read(&volume, nature.case_sensitive);
        let (handles, tally) = (Vec::new(), Tally::default());
        Self {
            seed,
            nature,
            random,
            device,
            volume: Some(volume),
            world,
            handles,
            story: None,
            tally,
            cramped: false,
        }
    }

    pub(super) fn fs(&self) -> &HfsPlusMut {
        self.volume
            .as_ref()
            .expect("the volume is open between operations")
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random.within(0..end)
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.world.len() > MAX_OBJECTS[usize::from(self.nature.habit != Habit::Crowded)]
    }

    /// Runs some operations, then compares everything. Panics name the place.
    pub(super) fn batch(&mut self) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            if self.random.one_in(4) {
                self.cut()
            } else {
                self.live()
            }
        }));
        if let Err(panic) = done {
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| {
                panic
                    .downcast_ref::<&str>()
                    .map(|message| (*message).to_owned())
            });
            let (seed, count, nature) = (self.seed, self.tally.operations, self.nature);
            panic!(
                "life {seed}, operation {count}, {nature:?}: {}",
                message.unwrap_or_default()
            );
        }
        self.tally.batches += 1;
    }

    fn live(&mut self) {
        for _ in 0..20 + self.below(400) {
            self.operation();
        }
        self.compare();
        match self.below(8) {
            0 => {
                // The mount stays usable.
                self.fs().unmount().expect("an unmount");
                self.check();
            }
            1 => self.turn_journal(),
            2 if self.handles.is_empty() => {
                // Dropping a volume unmounts it.
                self.volume = None;
                self.reopen();
            }
            _ => {
                self.handles.clear();
                self.close_unlinked();
                self.fs().unmount().expect("an unmount");
                self.reopen();
            }
        }
    }

    /// Runs one operation.
    pub(super) fn operation(&mut self) {
        self.tally.operations += 1;
        let habit = self.nature.habit;
        let of = |usual: u64, common: Habit| if habit == common { 6 * usual } else { usual };
        let crowded = if self.is_crowded() { 0 } else { 1 };
        let table: [(u64, Operation); 14] = [
            (of(4, Habit::Crowded) * crowded, Self::create),
            (
                if habit == Habit::Crowded && crowded == 1 {
                    4
                } else {
                    4 + of(1, Habit::Names)
                },
                Self::remove,
            ),
            (of(3, Habit::Names), Self::rename),
            (of(2, Habit::Names), Self::link),
            (of(4, Habit::Contents), Self::write),
            (of(2, Habit::Contents), Self::resize),
            (1, Self::punch),
            (of(3, Habit::Attributes), Self::set_xattr),
            (of(2, Habit::Attributes), Self::remove_xattr),
            (of(1, Habit::Attributes), Self::resource_fork),
            (1, Self::set_attributes),
            (2, Self::lookup_name),
            (2, Self::open_or_close),
            (1, Self::sync),
        ];
        let mut pick = self.below(table.iter().map(|(weight, _)| weight).sum());
        for (weight, operation) in table {
            if pick < weight {
                return operation(self);
            }
            pick -= weight;
        }
    }

    fn sync(&mut self) {
        match self.handles.iter().find(|handle| handle.writable) {
            Some(handle) => handle.device.flush(),
            None => self.fs().sync(),
        }
        .expect("a sync");
        self.durable();
    }

    /// Returns the value of an operation, after checking the expected result. Any operation may
    /// find the volume full.
    pub(super) fn done<T>(&mut self, result: Result<T>, expected: Option<Kind>) -> Option<T> {
        match (result, expected) {
            (Ok(done), None) => Some(done),
            (Err(error), _) if error.kind() == Kind::Limit => {
                let volume = self.fs().volume();
                let roomy = self.nature.free == 1000
                    && !self.nature.fragmented
                    && volume.free > volume.total / 2;
                assert!(
                    !roomy,
                    "with {} of {} bytes free: {error}",
                    volume.free, volume.total
                );
                self.tally.full += 1;
                self.cramped = true;
                None
            }
            (Err(error), Some(kind)) if error.kind() == kind => None,
            (result, expected) => {
                let found = result.map_or_else(
                    |error| format!("{error} ({:?})", error.kind()),
                    |_| "success".to_owned(),
                );
                panic!("{expected:?} expected, {found}");
            }
        }
    }

    /// Compares the volume with the model.
    pub(super) fn compare(&self) {
        let found = World::read(self.fs(), self.nature.case_sensitive);
        if let Some(difference) = self.world.difference(&found, &BTreeSet::new()) {
            panic!("{difference}");
        }
        self.handles
            .iter()
            .for_each(|handle| handle.compare(&self.world));
    }

    fn check(&mut self) {
        let problems = self.problems();
        assert!(problems.is_empty(), "{problems:#?}");
        let found = World::read(
            &HfsPlus::open(self.device.clone()).expect("a clean volume"),
            self.nature.case_sensitive,
        );
        self.cramped = false;
        // Files that are open and unlinked are still in the model.
        if let Some(difference) = self.world.difference(&found, &BTreeSet::new()) {
            panic!("after unmounting: {difference}");
        }
    }

    /// Returns the unexpected findings of a check of the unmounted volume.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = check(self.device.clone(), &Silent).expect("a check");
        let is_left = |problem: &Problem| {
            problem
                .error
                .to_string()
                .contains("was deleted while it was open")
        };
        // Open files may be unlinked; and without room for a journal they could not be removed.
        let may_be_left = || {
            self.cramped
                || self
                    .handles
                    .iter()
                    .any(|handle| handle.is_nameless(&self.world))
        };
        if problems.iter().any(is_left) && (may_be_left() || !self.can_change()) {
            problems.retain(|problem| !is_left(problem));
        }
        problems
    }

    /// Returns true if the unmounted volume has room for the journal that changes need.
    fn can_change(&self) -> bool {
        let copy = self
            .nature
            .open(Arc::new(Memory::from(self.device.to_vec())))
            .expect("a clean volume opens");
        match copy.set_attributes(
            copy.root(),
            &Change {
                mode: Some(0o700),
                ..Change::default()
            },
        ) {
            Ok(()) => true,
            Err(error) if error.kind() == Kind::Limit => false,
            Err(error) => panic!("changing the root folder: {error}"),
        }
    }

    /// Checks the volume, which is unmounted, and reopens it.
    fn reopen(&mut self) {
        self.volume = None;
        self.check();
        self.volume = Some(
            self.nature
                .open(self.device.clone())
                .expect("a clean volume opens"),
        );
    }

    fn turn_journal(&mut self) {
        let turned = if self.fs().volume().journaled {
            self.fs().disable_journal()
        } else {
            self.fs().enable_journal(None)
        };
        self.done(turned, None);
        self.fs().unmount().expect("an unmount");
        self.check();
    }

    /// Continues with another device, after closing all open files.
    pub(super) fn change_device(&mut self, device: Arc<dyn BlockDevice>) {
        self.handles.clear();
        self.close_unlinked();
        self.volume = None;
        self.volume = Some(self.nature.open(device).expect("a volume opens"));
    }

    /// Unmounts the volume at the end.
    pub(super) fn end(mut self) -> Tally {
        self.handles.clear();
        self.volume = None;
        let problems = self.problems();
        assert!(
            problems.is_empty(),
            "life {}, at its end: {problems:#?}",
            self.seed
        );
        self.tally
    }
}

/// Fills space as the profile requires, contiguously or with files of which every second one is
/// removed.
fn fill(volume: &HfsPlusMut, nature: &Nature, random: &mut Random) -> Result<()> {
    let block = u64::from(nature.block_size);
    let wanted = nature.len * nature.free / 1000;
    let dir = volume.create(volume.root(), "filling", &NewNode::new(NewKind::Folder))?;
    let file = |name: &str, len: u64, random: &mut Random| -> Result<()> {
        let id = volume.create(dir, name, &NewNode::new(NewKind::File))?;
        volume.write_all(id, &random.bytes(len as usize))
    };
    if nature.fragmented {
        let count = (volume.volume().free / 3 / (2 * block)).min(400);
        for number in 0..count {
            file(
                &format!("piece {number}"),
                block * (1 + random.within(0..3)),
                random,
            )?;
        }
        let large = volume.volume().free.saturating_sub(wanted / 2) / 2;
        let _ = file("large", large, random);
        for number in (0..count).step_by(2) {
            volume.remove(dir, &format!("piece {number}"))?;
        }
    } else if nature.free < 1000 {
        let large = volume.volume().free.saturating_sub(wanted);
        let _ = file("large", large, random);
    }
    let entries = volume.entries(dir)?.len();
    if entries == 0 {
        volume.remove(volume.root(), "filling")?;
    }
    volume.sync()
}
