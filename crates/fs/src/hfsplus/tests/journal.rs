//! Volumes whose journal contains pending transactions.

use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::super::HfsPlus;
use super::super::layout::{
    BLOCK_LIST_CHECKSUM, BLOCK_LIST_SUMMED, BlockInfoRaw, BlockListHeaderRaw, Cnid, HEADER_OFFSET,
    JOURNAL_ENDIAN, JOURNAL_HEADER_CHECKSUM, JOURNAL_HEADER_SUMMED, JOURNAL_MAGIC, JournalChecksum,
    JournalHeaderRaw, JournalInfoBlockRaw, JournalOrder, KILLED_BLOCK, VolumeHeaderRaw,
    block_list_flags, journal_flags, volume_attributes,
};
use super::fixture::{BLOCK, Drawn, Fixture};
use crate::{FileSystem, FileSystemExt, Fork};
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::{Error, Kind, Result};

const SECTOR: usize = 512;
const LIST: usize = 512;
const RING: usize = 16 * SECTOR;

/// A journal that is being written.
struct Journal {
    order: JournalOrder,
    bytes: Vec<u8>,
    /// Position of the next list.
    at: usize,
}

/// A change of a transaction: sector of the volume (`None` if it was killed) and new bytes.
type SectorChange<'a> = (Option<u64>, &'a [u8]);

impl Journal {
    fn new(order: JournalOrder, at: usize) -> Self {
        Self {
            order,
            bytes: vec![0; SECTOR + RING],
            at,
        }
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.order == JournalOrder::Big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn u64(&self, value: u64) -> [u8; 8] {
        if self.order == JournalOrder::Big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn u16(&self, value: usize) -> [u8; 2] {
        let value = u16::try_from(value).unwrap();
        if self.order == JournalOrder::Big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    /// Writes a block list; returns its position.
    fn list(&mut self, flags: u32, sequence: u32, changes: &[SectorChange<'_>]) -> usize {
        let start = self.at;
        let used = LIST + changes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let mut head = BlockListHeaderRaw::new_zeroed();
        (head.max_blocks, head.num_blocks) = (self.u16(LIST / 16 - 1), self.u16(changes.len() + 1));
        (head.bytes_used, head.flags) = (self.u32(u32::try_from(used).unwrap()), self.u32(flags));
        let mut list = head.as_bytes().to_vec();
        let mut info = BlockInfoRaw::new_zeroed();
        info.checksum = self.u32(sequence);
        list.extend_from_slice(info.as_bytes());
        for (sector, bytes) in changes {
            let mut sum = JournalChecksum::default();
            sum.update(bytes);
            let (number, size) = (
                sector.unwrap_or(KILLED_BLOCK),
                u32::try_from(bytes.len()).unwrap(),
            );
            let info = BlockInfoRaw {
                number: self.u64(number),
                size: self.u32(size),
                checksum: self.u32(sum.finish()),
            };
            list.extend_from_slice(info.as_bytes());
        }
        let sum = JournalChecksum::of_header(&list[..BLOCK_LIST_SUMMED], BLOCK_LIST_CHECKSUM);
        list[BLOCK_LIST_CHECKSUM].copy_from_slice(&self.u32(sum));
        list.resize(LIST, 0);
        self.put(&list);
        changes.iter().for_each(|(_, bytes)| self.put(bytes));
        start
    }

    /// Writes a transaction of one list; returns its position.
    fn transaction(&mut self, sequence: u32, changes: &[SectorChange<'_>]) -> usize {
        self.list(
            block_list_flags::FIRST | block_list_flags::CHECKSUMS,
            sequence,
            changes,
        )
    }

    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.bytes[self.at] = byte;
            self.at = if self.at + 1 == self.bytes.len() {
                SECTOR
            } else {
                self.at + 1
            };
        }
    }

    /// Updates the checksum of the list at `at`.
    fn seal_list(&mut self, at: usize) {
        let sum =
            JournalChecksum::of_header(&self.bytes[at..][..BLOCK_LIST_SUMMED], BLOCK_LIST_CHECKSUM);
        let sum = self.u32(sum);
        self.bytes[at..][BLOCK_LIST_CHECKSUM].copy_from_slice(&sum);
    }

    /// Returns the journal with pending transactions from `start` to `end`.
    fn finish(mut self, start: usize, end: usize) -> Vec<u8> {
        let mut header = JournalHeaderRaw::new_zeroed();
        (header.magic, header.endian) = (self.u32(JOURNAL_MAGIC), self.u32(JOURNAL_ENDIAN));
        (header.start, header.end) = (self.u64(start as u64), self.u64(end as u64));
        header.size = self.u64(self.bytes.len() as u64);
        (header.block_list_size, header.header_size) =
            (self.u32(LIST as u32), self.u32(SECTOR as u32));
        self.bytes[..48].copy_from_slice(header.as_bytes());
        self.sealed()
    }

    /// Returns the journal with a valid header checksum.
    fn sealed(mut self) -> Vec<u8> {
        let sum = JournalChecksum::of_header(
            &self.bytes[..JOURNAL_HEADER_SUMMED],
            JOURNAL_HEADER_CHECKSUM,
        );
        let sum = self.u32(sum);
        self.bytes[JOURNAL_HEADER_CHECKSUM].copy_from_slice(&sum);
        self.bytes
    }
}

/// A journaled volume with one file of two blocks, and the place of its journal.
struct JournaledVolume {
    drawn: Drawn,
    journal: usize,
    /// The first sector of the file.
    file: u64,
}

fn volume(flags: u32) -> JournaledVolume {
    let mut fixture = Fixture::plain();
    let contents = fixture.store(&[b'o'; 2 * BLOCK as usize]);
    fixture.file(Cnid::ROOT, "file", b"", |file| {
        file.data_fork = super::fixture::fork(2 * u64::from(BLOCK), 2, &[contents]);
    });
    let journal = fixture.store(&[0; SECTOR + RING]).start.offset(BLOCK);
    let mut info = JournalInfoBlockRaw::new_zeroed();
    info.flags = flags.into();
    (info.offset, info.size) = (journal.into(), ((SECTOR + RING) as u64).into());
    fixture.header.journal_info_block = fixture.store(info.as_bytes()).start.0.into();
    fixture.header.attributes = volume_attributes::JOURNALED.into();
    JournaledVolume {
        drawn: fixture.draw(),
        journal: journal as usize,
        file: contents.start.0.into(),
    }
}

impl JournaledVolume {
    /// Opens the volume with this journal.
    fn with(self, journal: &[u8]) -> HfsPlus {
        self.try_with(journal).unwrap()
    }

    fn try_with(mut self, journal: &[u8]) -> Result<HfsPlus> {
        self.drawn.bytes[self.journal..][..journal.len()].copy_from_slice(journal);
        self.drawn.open()
    }
}

/// Returns the first bytes of the file's two blocks.
fn blocks(volume: &HfsPlus) -> (u8, u8) {
    let device = volume
        .open(volume.resolve("/file").unwrap().id, Fork::Data)
        .unwrap();
    let bytes = device.read_vec(0, 2 * BLOCK as usize).unwrap();
    assert!(
        bytes
            .chunks(BLOCK as usize)
            .all(|block| block.iter().all(|byte| *byte == block[0]))
    );
    (bytes[0], bytes[BLOCK as usize])
}

#[test]
fn changes_that_wait_are_seen_as_made() {
    for order in [JournalOrder::Little, JournalOrder::Big] {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut journal = Journal::new(order, SECTOR);
        let start = journal.transaction(7, &[(Some(plain.file), &[b'1'; 1024])]);
        journal.transaction(
            8,
            &[(None, &[b'x'; 512]), (Some(plain.file + 1), &[b'2'; 512])],
        );
        let end = journal.at;
        let volume = plain.with(&journal.finish(start, end));
        assert_eq!(blocks(&volume), (b'1', b'2'), "{order:?}");
        assert!(!volume.volume().clean && volume.volume().journaled);
        assert!(volume.problems().is_empty(), "{:?}", volume.problems());
    }
}

#[test]
fn an_empty_journal_and_one_never_used_change_nothing() {
    let waiting = |flags, full: bool| {
        let plain = volume(flags);
        let mut journal = Journal::new(JournalOrder::Little, SECTOR);
        let start = journal.transaction(7, &[(Some(plain.file), &[b'1'; 512])]);
        let end = if full { journal.at } else { start };
        plain.with(&journal.finish(start, end))
    };
    for volume in [
        waiting(journal_flags::IN_VOLUME, false),
        waiting(journal_flags::IN_VOLUME | journal_flags::NEEDS_INIT, true),
    ] {
        assert_eq!(blocks(&volume), (b'o', b'o'));
        assert!(volume.volume().clean);
    }
}

#[test]
fn transactions_wrap_around_the_ring_anywhere() {
    for start in (SECTOR..SECTOR + RING).step_by(SECTOR) {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut journal = Journal::new(JournalOrder::Little, start);
        journal.transaction(
            1,
            &[
                (Some(plain.file), &[b'1'; 1024]),
                (Some(plain.file), &[b'2'; 512]),
            ],
        );
        journal.transaction(2, &[(Some(plain.file + 1), &[b'3'; 512])]);
        let end = journal.at;
        assert_eq!(
            blocks(&plain.with(&journal.finish(start, end))),
            (b'2', b'3'),
            "from {start}"
        );
    }
    // The end of the ring may also be recorded as such.
    let plain = volume(journal_flags::IN_VOLUME);
    let mut journal = Journal::new(JournalOrder::Little, SECTOR);
    journal.transaction(1, &[(Some(plain.file), &[b'1'; 512])]);
    let end = journal.at;
    assert_eq!(
        blocks(&plain.with(&journal.finish(SECTOR + RING, end))),
        (b'1', b'o')
    );
}

#[test]
fn transactions_that_follow_the_end_count() {
    let wait = |next_sequence| {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut journal = Journal::new(JournalOrder::Little, SECTOR);
        let start = journal.transaction(7, &[(Some(plain.file), &[b'1'; 512])]);
        let end = journal.at;
        journal.transaction(next_sequence, &[(Some(plain.file + 1), &[b'2'; 512])]);
        plain.with(&journal.finish(start, end))
    };
    assert_eq!(blocks(&wait(8)), (b'1', b'2'));
    assert_eq!(blocks(&wait(7)), (b'1', b'2'));
    assert_eq!(blocks(&wait(6)), (b'1', b'o'), "left over from before");
    assert!(wait(6).problems().is_empty());
}

#[test]
fn a_damaged_transaction_counts_for_nothing_and_is_a_problem() {
    let second = LIST + 512;
    let damages = [
        (second + 4, (b'o', b'o')), // a list's head: the first transaction may have gone on there
        (second + LIST + 9, (b'1', b'o')), // a block
        (2 * second + 4, (b'1', b'o')), // the second list of a transaction
    ];
    for (at, expected) in damages {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut journal = Journal::new(JournalOrder::Little, SECTOR);
        let start = journal.transaction(1, &[(Some(plain.file), &[b'1'; 512])]);
        journal.transaction(2, &[(Some(plain.file + 1), &[b'2'; 512])]);
        journal.list(
            block_list_flags::CHECKSUMS,
            2,
            &[(Some(plain.file), &[b'3'; 512])],
        );
        let end = journal.at;
        journal.bytes[SECTOR + at] ^= 0x10;
        let volume = plain.with(&journal.finish(start, end));
        assert_eq!(blocks(&volume), expected, "damage at {at}");
        let problems: Vec<String> = volume.problems().iter().map(Error::to_string).collect();
        assert!(
            problems.len() == 1 && problems[0].contains("hfs+ journal: at byte"),
            "{problems:?}"
        );
    }
}

#[test]
fn blocks_beyond_the_volume_are_refused() {
    let plain = volume(journal_flags::IN_VOLUME);
    let mut journal = Journal::new(JournalOrder::Little, SECTOR);
    let start = journal.transaction(1, &[(Some(u64::MAX / 512), &[b'1'; 512])]);
    let end = journal.at;
    let volume = plain.with(&journal.finish(start, end));
    assert!(
        volume.problems()[0]
            .to_string()
            .contains("is past the end of the volume"),
        "{:?}",
        volume.problems()
    );
}

#[test]
fn journal_headers_that_make_no_sense_are_problems() {
    let change: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[0] ^= 1,
        |bytes| bytes[36] ^= 1,
        |bytes| bytes[41] = 0x40,
        |bytes| bytes[9] = 0xF0,
    ];
    for (index, change) in change.into_iter().enumerate() {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut bytes = Journal::new(JournalOrder::Little, SECTOR).finish(SECTOR, SECTOR);
        change(&mut bytes);
        let volume = plain.with(&bytes);
        assert_eq!(
            (volume.problems().len(), volume.volume().clean),
            (1, false),
            "{index}"
        );
        assert_eq!(volume.problems()[0].kind(), Kind::Corrupt);
    }
    let elsewhere = volume(journal_flags::OTHER_DEVICE).with(&[]);
    assert!(!elsewhere.volume().clean && elsewhere.problems()[0].kind() == Kind::Unsupported);
}

#[test]
fn replay_brings_back_what_the_crash_tore() {
    let mut torn = volume(journal_flags::IN_VOLUME);
    let mut journal = Journal::new(JournalOrder::Little, SECTOR);
    let catalog: Vec<u8> =
        torn.drawn.bytes[torn.drawn.catalog..][..torn.drawn.catalog_nodes * 512].to_vec();
    let mut header = VolumeHeaderRaw::new_zeroed();
    header
        .as_mut_bytes()
        .copy_from_slice(&torn.drawn.bytes[HEADER_OFFSET as usize..][..512]);
    header.file_count = 4711.into();
    let start = journal.transaction(
        1,
        &[
            (Some(torn.drawn.catalog as u64 / 512), &catalog),
            (Some(2), header.as_bytes()),
        ],
    );
    let end = journal.at;
    let at = torn.drawn.catalog;
    torn.drawn.bytes[at..at + catalog.len()].fill(0xEE);
    let volume = torn.with(&journal.finish(start, end));
    assert_eq!(blocks(&volume), (b'o', b'o'));
    assert_eq!(volume.volume().files, 4711);
}

proptest! {
    /// Invalid journals with valid checksums must not cause a panic, an endless loop or unbounded
    /// memory use.
    #[test]
    fn lies_with_right_checksums_are_survived(
        header in prop::collection::vec((8_usize..48, any::<u8>()), 0..4),
        list in prop::collection::vec((0_usize..64, any::<u8>()), 0..4),
    ) {
        let plain = volume(journal_flags::IN_VOLUME);
        let mut journal = Journal::new(JournalOrder::Big, SECTOR);
        // Flags 2: blocks have no checksums, which would expose the damage.
        let start = journal.list(block_list_flags::FIRST, 1, &[(Some(plain.file), &[b'1'; 512]), (Some(plain.file), &[b'2'; 512])]);
        journal.list(block_list_flags::FIRST, 2, &[(Some(plain.file + 1), &[b'3'; 512])]);
        for (at, byte) in list {
            journal.bytes[start + at] = byte;
        }
        journal.seal_list(start);
        let end = journal.at;
        let bytes = journal.finish(start, end);
        let mut journal = Journal { order: JournalOrder::Big, bytes, at: 0 };
        for (at, byte) in header {
            journal.bytes[at] = byte;
        }
        // The journal may now contain blocks of the catalog.
        if let Ok(volume) = plain.try_with(&journal.sealed()) {
            let _ = volume.entries(volume.root());
        }
    }
}
