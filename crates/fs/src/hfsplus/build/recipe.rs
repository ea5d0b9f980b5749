//! Sizes that Apple's formatter chooses (`docs/formats/hfsplus.md` §11).

use bandsaw_core::size::narrow;

/// Minimum volume length in bytes, as for Apple's formatter.
pub(super) const MIN_VOLUME_LEN: u64 = 512 << 10;
/// Node size of the extents-overflow tree.
pub(super) const EXTENTS_NODE_SIZE: u16 = 4096;
/// Node size of the attributes tree. The Linux kernel and the inline limit of macOS depend on this
/// size.
pub(super) const ATTRIBUTES_NODE_SIZE: u16 = 8192;

const GIB: u64 = 1 << 30;
/// Gap after the attributes tree and the catalog, in clumps of the tree.
pub(super) const GAP_CLUMPS: u64 = 10;
/// Minimum length of a volume with gaps, in bytes.
pub(super) const MIN_LEN_FOR_GAPS: u64 = 2 << 20;

/// Returns the default allocation block size of a volume of `len` bytes.
pub(super) fn block_size(len: u64) -> u32 {
    let significant_bits = u64::BITS - len.leading_zeros();
    match significant_bits.saturating_sub(41) {
        0 => 4096,
        // 8 KiB are used for two powers of two, each larger size for one.
        n => 8192 << n.saturating_sub(2).min(18),
    }
}

/// Returns the node size of the catalog.
pub(super) fn catalog_node_size(len: u64, block_size: u32) -> u16 {
    if block_size < 4096 || len < GIB {
        4096
    } else {
        8192
    }
}

/// One of the volume's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedTree {
    Attributes,
    Catalog,
    Extents,
}

/// Clump sizes of the attributes, catalog and extents trees in MiB, by volume size from 1 GiB on;
/// the size doubles from row to row.
const CLUMPS: [(u32, u32, u32); 15] = [
    (4, 4, 4),
    (6, 6, 4),
    (8, 8, 4),
    (11, 11, 5),
    (64, 32, 5),
    (84, 49, 6),
    (111, 74, 7),
    (147, 111, 8),
    (194, 169, 9),
    (256, 256, 11),
    (294, 294, 14),
    (338, 338, 16),
    (388, 388, 20),
    (446, 446, 25),
    (512, 512, 32),
];

/// Returns the initial size and the growth increment of a tree in bytes, a multiple of its node
/// size and of the volume's block size.
pub(super) fn clump(tree: PlannedTree, len: u64, node_size: u16, block_size: u32) -> u32 {
    let wished = if len < GIB {
        // Below 1 GiB this fits in 23 bits.
        narrow::<u32>(len / 512 * 4).max(8 * u32::from(node_size))
    } else {
        let row = (u64::BITS - (len / (2 * GIB)).leading_zeros()).min(14) as usize;
        let (attributes, catalog, extents) = CLUMPS[row];
        let mebibytes = match tree {
            PlannedTree::Attributes => attributes,
            PlannedTree::Catalog => catalog,
            PlannedTree::Extents => extents,
        };
        mebibytes << 20
    };
    let grain = u32::from(node_size).max(block_size);
    (wished / grain).max(1) * grain
}

/// Returns the journal length in bytes for a volume of `len` bytes on a disk with sectors of
/// `sector` bytes: 8 MiB for each 100 GiB or part thereof.
pub(in crate::hfsplus) fn journal_len(len: u64, sector: u32) -> u64 {
    /// Volumes below this length have a small journal.
    const SMALL: u64 = 128 << 20;
    const MAX_JOURNAL_LEN: u64 = 512 << 20;
    let wished = if len < SMALL {
        512 << 10
    } else {
        ((8 << 20) * (1 + len / (100 * GIB))).min(MAX_JOURNAL_LEN)
    };
    wished.max(u64::from(sector) * u64::from(sector) / 16)
}

/// Returns the growth increment of files in bytes.
pub(super) fn file_clump(block_size: u32) -> u32 {
    if block_size <= 4096 {
        16 * block_size
    } else {
        block_size.max(65536)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn blocks_grow_with_the_volume() {
        let sizes = [
            (1, 4096),
            (TIB, 4096),
            (2 * TIB - 1, 4096),
            (2 * TIB, 8192),
            (8 * TIB - 1, 8192),
            (8 * TIB, 16384),
        ];
        for (len, expected) in sizes {
            assert_eq!(block_size(len), expected, "{len}");
        }
        assert_eq!(block_size(16 * TIB), 32768);
        assert_eq!(block_size(1 << 60), 2 << 30);
    }

    #[test]
    fn clumps_are_those_of_volumes_made_by_macos() {
        let mib = 1 << 20;
        assert_eq!(clump(PlannedTree::Extents, mib, 4096, 4096), 32768);
        assert_eq!(clump(PlannedTree::Catalog, mib, 4096, 4096), 32768);
        assert_eq!(clump(PlannedTree::Attributes, mib, 8192, 4096), 65536);
        assert_eq!(clump(PlannedTree::Extents, 5 * mib, 4096, 4096), 40960);
        assert_eq!(clump(PlannedTree::Attributes, 5 * mib, 8192, 4096), 65536);
        assert_eq!(clump(PlannedTree::Catalog, GIB, 8192, 4096), 4 << 20);
        assert_eq!(clump(PlannedTree::Catalog, 2 * GIB, 8192, 4096), 6 << 20);
        assert_eq!(
            clump(PlannedTree::Attributes, 16 * GIB, 8192, 4096),
            64 << 20
        );
        assert_eq!(
            clump(PlannedTree::Extents, 512 * TIB, 4096, 1 << 20),
            32 << 20
        );
    }

    #[test]
    fn journals_grow_with_the_volume() {
        let mib = 1 << 20;
        let sizes = [
            (mib, 512 << 10),
            (128 * mib - 1, 512 << 10),
            (128 * mib, 8 * mib),
            (100 * GIB - 1, 8 * mib),
        ];
        let large = [
            (100 * GIB, 16 * mib),
            (8 * TIB, 512 * mib),
            (16 * TIB, 512 * mib),
        ];
        for (len, expected) in sizes.into_iter().chain(large) {
            assert_eq!(journal_len(len, 512), expected, "{len}");
        }
        assert_eq!(journal_len(mib, 4096), mib);
    }

    #[test]
    fn a_clump_is_whole_in_nodes_and_blocks() {
        assert_eq!(clump(PlannedTree::Extents, 1 << 20, 4096, 65536), 65536);
        assert_eq!(clump(PlannedTree::Catalog, 3_333_333, 4096, 512) % 4096, 0);
    }
}
