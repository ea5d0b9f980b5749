//! Sources of the layouts, which declare the fields that tests damage one by one.

/// The layouts of HFS+ headers, tree nodes and journals.
pub const HFSPLUS: [&str; 4] = [
    include_str!("../btree_node.rs"),
    include_str!("../hfsplus/layout/volume.rs"),
    include_str!("../hfsplus/layout/btree.rs"),
    include_str!("../hfsplus/layout/journal.rs"),
];

/// The layouts of APFS objects.
pub const APFS: [&str; 9] = [
    include_str!("../apfs/layout/mod.rs"),
    include_str!("../apfs/layout/object.rs"),
    include_str!("../apfs/layout/btree.rs"),
    include_str!("../apfs/layout/checkpoint.rs"),
    include_str!("../apfs/layout/container.rs"),
    include_str!("../apfs/layout/omap.rs"),
    include_str!("../apfs/layout/reaper.rs"),
    include_str!("../apfs/layout/spaceman.rs"),
    include_str!("../apfs/layout/volume.rs"),
];
