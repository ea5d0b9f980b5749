//! Tests of the free maps of synthetic volumes, and of errors for invalid ones.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::fixture::{ExtSums, LEN, ext, ntfs, protect_page, seal_ext};
use super::layout::ext::{SuperblockRaw, incompatible, read_only};
use super::layout::ntfs::{RestartAreaRaw, RestartPageRaw, volume_flags};
use super::{BlockFreeMap, Foreign};
use crate::{FreeMap, FreeMapExt};
use bandsaw_core::device::Memory;
use bandsaw_core::{Error, Kind, Result};

const EXT: usize = 1024;

fn open(kind: Foreign, bytes: &[u8]) -> Result<BlockFreeMap> {
    kind.free_map(Arc::new(Memory::from(bytes.to_vec())))
}

fn refused(kind: Foreign, bytes: &[u8]) -> Error {
    open(kind, bytes)
        .and_then(BlockFreeMap::trusted)
        .unwrap_err()
}

fn runs(kind: Foreign, bytes: &[u8]) -> Vec<Range<u64>> {
    let map = open(kind, bytes).unwrap().trusted().unwrap();
    let runs: Vec<_> = map.free_runs(0..u64::MAX).map(Result::unwrap).collect();
    assert_eq!(
        runs.iter().map(|run| run.end - run.start).sum::<u64>(),
        map.free().unwrap()
    );
    runs
}

fn blocks(start: u64, size: u64, blocks: &[Range<u64>]) -> Vec<Range<u64>> {
    blocks
        .iter()
        .map(|run| start + run.start * size..start + run.end * size)
        .collect()
}

#[test]
fn ext_groups_begin_with_their_structures() {
    for sums in [ExtSums::None, ExtSums::Descriptors, ExtSums::All] {
        let bytes = ext(sums, 100..120);
        assert_eq!(
            runs(Foreign::Ext, &bytes),
            blocks(1024, 1024, &[6..100, 120..512, 518..1023]),
            "{sums:?}"
        );
    }
}

fn with_superblock(sums: ExtSums, change: impl FnOnce(&mut SuperblockRaw)) -> Vec<u8> {
    let mut bytes = ext(sums, 100..120);
    let mut raw = SuperblockRaw::read_from_prefix(&bytes[EXT..]).unwrap().0;
    change(&mut raw);
    seal_ext(&mut raw);
    bytes[EXT..2 * EXT].copy_from_slice(raw.as_bytes());
    bytes
}

#[test]
fn unclean_ext_is_refused() {
    let changes: [fn(&mut SuperblockRaw); 5] = [
        |raw| raw.state = 0.into(),
        |raw| raw.state = 3.into(),
        |raw| raw.incompatible |= incompatible::RECOVER,
        |raw| raw.read_only |= read_only::ORPHANS,
        |raw| raw.last_orphan = 12.into(),
    ];
    for change in changes {
        let bytes = with_superblock(ExtSums::None, change);
        assert!(!open(Foreign::Ext, &bytes).unwrap().is_in_order());
        assert_eq!(refused(Foreign::Ext, &bytes).kind(), Kind::Conflict);
    }
}

#[test]
fn ext_that_does_not_add_up_is_refused() {
    let changes: [fn(&mut SuperblockRaw); 8] = [
        |raw| raw.free_low -= 1,
        |raw| raw.blocks_low = u32::MAX.into(),
        |raw| raw.blocks_low = 1.into(),
        |raw| raw.log_block_size = 99.into(),
        |raw| raw.blocks_per_group = 8.into(),
        |raw| raw.first_data_block = 0.into(),
        |raw| raw.inodes_per_group = 0.into(),
        |raw| raw.inode_size = 129.into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let error = refused(Foreign::Ext, &with_superblock(ExtSums::None, change));
        assert_eq!(error.kind(), Kind::Corrupt, "{number}: {error}");
    }
    let unknown: [fn(&mut SuperblockRaw); 2] = [
        |raw| raw.read_only |= read_only::BIGALLOC,
        |raw| raw.incompatible |= 0x8,
    ];
    for change in unknown {
        assert_eq!(
            refused(Foreign::Ext, &with_superblock(ExtSums::None, change)).kind(),
            Kind::Unsupported
        );
    }
}

#[test]
fn ext_sums_are_looked_at() {
    for (sums, at) in [
        (ExtSums::All, EXT + 0x88),
        (ExtSums::All, 2048 + 0x0C),
        (ExtSums::Descriptors, 2048 + 0x0C),
        (ExtSums::All, 3 * EXT + 40),
        // Without checksums the count reveals it.
        (ExtSums::None, 3 * EXT + 40),
    ] {
        let mut bytes = ext(sums, 100..120);
        bytes[at] ^= 1;
        assert_eq!(
            refused(Foreign::Ext, &bytes).kind(),
            Kind::Corrupt,
            "{sums:?} at {at}"
        );
    }
    // The count is correct, but blocks of inodes are free.
    let mut bytes = ext(ExtSums::None, 100..120);
    bytes[3 * EXT] = 0b0101_1111;
    assert!(
        refused(Foreign::Ext, &bytes)
            .message()
            .contains("structure")
    );
}

#[test]
fn ext_that_was_never_initialised_is_used_where_unsure() {
    let bytes = with_superblock(ExtSums::None, |raw| {
        raw.read_only |= read_only::METADATA_SUMS
    });
    assert_eq!(
        refused(Foreign::Ext, &bytes).kind(),
        Kind::Corrupt,
        "no sums where there should be"
    );
    // The flag is ignored without the features that it belongs to.
    let mut bytes = ext(ExtSums::None, 100..120);
    bytes[2048 + 32 + 0x12] = 2;
    assert_eq!(runs(Foreign::Ext, &bytes).len(), 3);
}

#[test]
fn ntfs_is_free_where_bits_are_clear() {
    let expected = blocks(0, 4096, &[1..4, 8..9, 10..20, 30..100, 101..110, 112..255]);
    assert_eq!(runs(Foreign::Ntfs, &ntfs(0, &[])), expected);
    // A log that Windows closed.
    for (client, flags) in [(0xFFFF, 0), (0, 2)] {
        assert_eq!(
            runs(Foreign::Ntfs, &ntfs(0, &log(1, client, flags))),
            expected
        );
    }
}

/// Returns the two restart pages of a log.
fn log(major: u16, client: u16, flags: u16) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let head = RestartPageRaw {
        magic: *b"RSTR",
        fixups: 30.into(),
        fixup_count: 9.into(),
        check_lsn: 0.into(),
        system_page: 4096.into(),
        log_page: 4096.into(),
        area: 48.into(),
        minor: 1.into(),
        major: major.into(),
    };
    let area = RestartAreaRaw {
        lsn: 5.into(),
        clients: 1.into(),
        free_client: 0.into(),
        client_in_use: client.into(),
        flags: flags.into(),
    };
    page[..30].copy_from_slice(head.as_bytes());
    page[48..64].copy_from_slice(area.as_bytes());
    protect_page(&mut page, 30);
    page.repeat(2)
}

#[test]
fn unclean_ntfs_is_refused() {
    let mut torn = log(1, 0xFFFF, 0);
    torn[4096] = 0;
    for bytes in [
        ntfs(volume_flags::DIRTY, &[]),
        ntfs(volume_flags::CHECKING, &[]),
        ntfs(0, &log(1, 0, 0)),
        ntfs(0, &log(2, 0xFFFF, 2)),
        ntfs(0, &torn),
        ntfs(0, b"CHKD"),
    ] {
        assert_eq!(refused(Foreign::Ntfs, &bytes).kind(), Kind::Conflict);
    }
}

#[test]
fn ntfs_with_a_cluster_of_a_file_free_is_refused() {
    // Clusters of the table, the bitmap, the file, the copy of the table, the log.
    for cluster in [0, 5, 9, 25, 100, 111] {
        let mut bytes = ntfs(0, &[]);
        bytes[9 * 4096 + cluster / 8] ^= 1 << (cluster % 8);
        let error = refused(Foreign::Ntfs, &bytes);
        assert!(
            error.kind() == Kind::Corrupt && error.message().contains("is marked as free"),
            "{cluster}: {error}"
        );
    }
    for (at, value) in [
        (0x0B, 1),
        (0x0D, 0x81),
        (0x0D, 3),
        (0x29, 0xFF),
        (0x30, 0xFF),
        (0x38, 99),
        (0x40, 0x7F),
        (0x40, 0x80),
    ] {
        let mut bytes = ntfs(0, &[]);
        bytes[at] = value;
        assert_eq!(
            refused(Foreign::Ntfs, &bytes).kind(),
            Kind::Corrupt,
            "{at:#x}"
        );
    }
}

#[test]
fn short_devices_are_refused() {
    let volumes = [
        (Foreign::Ext, ext(ExtSums::All, 100..120)),
        (Foreign::Ntfs, ntfs(0, &[])),
    ];
    for (kind, bytes) in volumes {
        for len in [
            0,
            1,
            79,
            511,
            512,
            1024,
            2047,
            2048,
            4096,
            16384,
            20480,
            LEN / 2,
            LEN - 513,
        ] {
            assert!(
                open(kind, &bytes[..len]).is_err(),
                "{kind:?} of {len} bytes"
            );
        }
    }
}
