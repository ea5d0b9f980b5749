//! The volume superblock (§7).

use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ObjectRaw, until_nul};

/// Magic number, in [`VolumeRaw::magic`].
pub(crate) const VOLUME_MAGIC: [u8; 4] = *b"APSB";

/// Bits of [`VolumeRaw::features`].
pub(crate) mod volume_features {
    pub(crate) const DEFRAG_PRERELEASE: u64 = 0x1;
    /// Always set: hard links have sibling records.
    pub(crate) const HARD_LINK_RECORDS: u64 = 0x2;
    pub(crate) const DEFRAG: u64 = 0x4;
    pub(crate) const STRICT_ACCESS_TIME: u64 = 0x8;
    /// A member of a volume group.
    pub(crate) const VOLUME_GROUP: u64 = 0x10;
}

/// Bits of [`VolumeRaw::incompatible_features`].
pub(crate) mod volume_incompatible {
    /// Names that differ in case only are equal.
    pub(crate) const CASE_INSENSITIVE: u64 = 0x1;
    /// Some snapshots may lack the contents of files.
    pub(crate) const DATALESS_SNAPSHOTS: u64 = 0x2;
    /// Encryption was changed after the volume was created.
    pub(crate) const ENCRYPTION_ROLLED: u64 = 0x4;
    /// Names that differ in normalization only are equal.
    pub(crate) const NORMALIZATION_INSENSITIVE: u64 = 0x8;
    pub(crate) const INCOMPLETE_RESTORE: u64 = 0x10;
    pub(crate) const SEALED: u64 = 0x20;
    pub(crate) const PER_FILE_KEYS: u64 = 0x40;
    pub(crate) const EXTENT_PREALLOCATION: u64 = 0x80;
    pub(crate) const SECONDARY_ROOT: u64 = 0x100;
    pub(crate) const EXPANDED_RECORDS: u64 = 0x200;
}

/// Bits of [`VolumeRaw::flags`].
pub(crate) mod volume_flags {
    pub(crate) const UNENCRYPTED: u64 = 0x1;
    /// One key for the whole volume.
    pub(crate) const ONE_KEY: u64 = 0x8;
    pub(crate) const SPILLED_OVER: u64 = 0x10;
    pub(crate) const RUN_SPILLOVER_CLEANER: u64 = 0x20;
    pub(crate) const ALWAYS_CHECK_EXTENT_REF: u64 = 0x40;
    pub(crate) const PREVIOUSLY_SEALED: u64 = 0x80;
}

/// The role of a destination of Time Machine's backups.
pub(crate) const BACKUP_ROLE: u16 = 0x180;

/// Bits of [`VolumeRaw::role`], with their names.
pub(crate) const VOLUME_ROLES: [(u16, &str); 14] = [
    (0x1, "System"),
    (0x2, "User"),
    (0x4, "Recovery"),
    (0x8, "VM"),
    (0x10, "Preboot"),
    (0x20, "Installer"),
    (0x40, "Data"),
    (0x80, "Baseband"),
    (0xC0, "Update"),
    (0x100, "xART"),
    (0x140, "Hardware"),
    (BACKUP_ROLE, "Backup"),
    (0x240, "Enterprise"),
    (0x2C0, "Prelogin"),
];

/// The software that changed a volume, and the time.
///
/// Source: Apple File System Reference (2020-06-22), apfs_modified_by_t.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct ModifiedByRaw {
    /*00*/ pub(crate) id: [u8; 32], // text, filled up with NUL
    /*20*/ pub(crate) time: U64,
    /*28*/ pub(crate) last_xid: U64,
}
const _: () = assert!(size_of::<ModifiedByRaw>() == 0x30);

/// The encryption state of metadata.
///
/// Source: Apple File System Reference (2020-06-22), wrapped_meta_crypto_state_t.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct MetaCryptoRaw {
    /*00*/ pub(crate) major_version: U16, // 5
    /*02*/ pub(crate) minor_version: U16, // 0
    /*04*/ pub(crate) flags: U32, // 0
    /*08*/ pub(crate) protection_class: U32, // 6, F
    /*0C*/ pub(crate) key_os_version: U32,
    /*10*/ pub(crate) key_revision: U16, // 1
    /*12*/ pub(crate) unused: U16,
}
const _: () = assert!(size_of::<MetaCryptoRaw>() == 0x14);

/// Number of entries of [`VolumeRaw::modified_by`].
pub(crate) const MODIFIED_BY_ENTRIES: usize = 8;
/// Length of [`VolumeRaw::name`] in bytes.
pub(crate) const VOLUME_NAME_LEN: usize = 256;

/// The volume superblock. The rest of its block is zero.
///
/// Source: Apple File System Reference (2020-06-22), apfs_superblock_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct VolumeRaw {
    /*000*/ pub(crate) object: ObjectRaw, // virtual
    /*020*/ pub(crate) magic: [u8; 4], // VOLUME_MAGIC
    /*024*/ pub(crate) index: U32, // its slot in the container superblock
    /*028*/ pub(crate) features: U64, // volume_features
    /*030*/ pub(crate) readonly_compatible_features: U64,
    /*038*/ pub(crate) incompatible_features: U64, // volume_incompatible
    /*040*/ pub(crate) unmount_time: U64,
    /*048*/ pub(crate) reserve_blocks: U64,
    /*050*/ pub(crate) quota_blocks: U64, // 0 for none
    /*058*/ pub(crate) allocated_blocks: U64,
    /*060*/ pub(crate) meta_crypto: MetaCryptoRaw,
    /*074*/ pub(crate) root_tree_type: U32,
    /*078*/ pub(crate) extent_ref_tree_type: U32,
    /*07C*/ pub(crate) snap_meta_tree_type: U32,
    /*080*/ pub(crate) omap_oid: U64, // physical
    /*088*/ pub(crate) root_tree_oid: U64, // virtual, unless its type says physical
    /*090*/ pub(crate) extent_ref_tree_oid: U64, // physical
    /*098*/ pub(crate) snap_meta_tree_oid: U64, // physical
    /*0A0*/ pub(crate) revert_to_xid: U64,
    /*0A8*/ pub(crate) revert_to_superblock_oid: U64,
    /*0B0*/ pub(crate) next_file_id: U64,
    /*0B8*/ pub(crate) files: U64,
    /*0C0*/ pub(crate) folders: U64, // without the root and private-dir
    /*0C8*/ pub(crate) symlinks: U64,
    /*0D0*/ pub(crate) other_objects: U64,
    /*0D8*/ pub(crate) snapshots: U64,
    /*0E0*/ pub(crate) total_blocks_allocated: U64, // for contents, ever
    /*0E8*/ pub(crate) total_blocks_freed: U64,
    /*0F0*/ pub(crate) uuid: [u8; 16],
    /*100*/ pub(crate) last_modified: U64,
    /*108*/ pub(crate) flags: U64, // volume_flags
    /*110*/ pub(crate) formatted_by: ModifiedByRaw,
    /*140*/
    pub(crate) modified_by: [ModifiedByRaw; MODIFIED_BY_ENTRIES], // newest first
    /*2C0*/ pub(crate) name: [u8; VOLUME_NAME_LEN], // UTF-8, ended by NUL
    /*3C0*/ pub(crate) next_document_id: U32,
    /*3C4*/ pub(crate) role: U16, // VOLUME_ROLES
    /*3C6*/ pub(crate) reserved: U16,
    /*3C8*/ pub(crate) root_to_xid: U64,
    /*3D0*/ pub(crate) encryption_rolling_oid: U64, // not 0 while encryption changes
    /*3D8*/ pub(crate) clone_info_id_epoch: U64,
    /*3E0*/ pub(crate) clone_info_xid: U64,
    /*3E8*/ pub(crate) snap_meta_ext_oid: U64, // virtual
    /*3F0*/ pub(crate) volume_group_id: [u8; 16],
    /*400*/ pub(crate) integrity_oid: U64, // virtual, sealed volumes only
    /*408*/ pub(crate) fext_tree_oid: U64, // sealed volumes only
    /*410*/ pub(crate) fext_tree_type: U32,
    /*414*/ pub(crate) reserved_type: U32,
    /*418*/ pub(crate) reserved_oid: U64,
    /*420*/ pub(crate) document_index_xid: U64,
    /*428*/ pub(crate) document_index_flags: U32,
    /*42C*/ pub(crate) document_tree_type: U32,
    /*430*/ pub(crate) document_tree_oid: U64,
    /*438*/ pub(crate) previous_document_tree_oid: U64,
    /*440*/ pub(crate) document_fixup_cursor: U64,
    /*448*/ pub(crate) secondary_root_oid: U64,
    /*450*/ pub(crate) secondary_root_type: U32,
    /*454*/ pub(crate) clone_group_flags: U32,
    /*458*/ pub(crate) clone_group_tree_oid: U64,
    /*460*/ pub(crate) clone_group_xid: U64,
    /*468*/ pub(crate) fixup_flags: U64,
    /*470*/ pub(crate) clone_group_next_id: U64,
}
const _: () = assert!(size_of::<VolumeRaw>() == 0x478);

/// Numbers of objects of a volume, by kind, without the root, `private-dir`, and files that are
/// deleted while they are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) folders: u64,
    pub(crate) symlinks: u64,
    pub(crate) others: u64,
}

impl VolumeRaw {
    /// Returns the volume's UUID, which is also the key of its keybag.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    /// Returns the name; invalid UTF-8 is replaced by U+FFFD.
    pub(crate) fn label(&self) -> String {
        String::from_utf8_lossy(until_nul(&self.name)).into_owned()
    }

    /// Returns true if a bit of [`volume_incompatible`] is set.
    pub(crate) fn has(&self, feature: u64) -> bool {
        self.incompatible_features.get() & feature != 0
    }

    /// Returns true if files and names are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags.get() & volume_flags::UNENCRYPTED == 0
    }

    /// Returns true if directory entries are sorted by hashes of their names (§8.3).
    pub(crate) fn hashes_names(&self) -> bool {
        self.has(
            volume_incompatible::CASE_INSENSITIVE | volume_incompatible::NORMALIZATION_INSENSITIVE,
        )
    }
}
