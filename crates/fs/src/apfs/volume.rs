//! An open volume: its trees, and the records of one object in them.

use std::sync::Arc;

use super::btree::{Addressing, Key, Tree, TreeKind};
use super::cipher::VolumeCipher;
use super::container::Container;
use super::layout::{
    FileId, KeyRest, Oid, Paddr, RecordKey, VolumeRaw, Xid, omap_flags, record_type, storage,
    volume_incompatible,
};
use super::names::NameRules;
use super::object::{Object, Xattr};
use super::omap::{Omap, View};
use super::store::Store;
use super::stream::{Extents, Stream};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs volume";

/// Incompatible features that do not affect reading, or that are supported.
const KNOWN: u64 = volume_incompatible::CASE_INSENSITIVE
    | volume_incompatible::DATALESS_SNAPSHOTS
    | volume_incompatible::ENCRYPTION_ROLLED
    | volume_incompatible::NORMALIZATION_INSENSITIVE
    | volume_incompatible::INCOMPLETE_RESTORE
    | volume_incompatible::SEALED
    | volume_incompatible::PER_FILE_KEYS
    | volume_incompatible::EXTENT_PREALLOCATION
    | volume_incompatible::SECONDARY_ROOT;

/// An open volume of a container, or one of its snapshots, read-only.
#[derive(Debug)]
pub struct Apfs {
    pub(super) container: Arc<Container>,
    /// Superblock of the opened state.
    pub(super) raw: VolumeRaw,
    pub(super) files: Tree,
    /// Extent tree of a sealed volume.
    fext: Option<Tree>,
    pub(super) names: NameRules,
    pub(super) cipher: Option<Arc<VolumeCipher>>,
    /// True if the snapshot does not keep contents of files.
    dataless: bool,
}

/// The state of a volume to open.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenState {
    /// Superblock of that state.
    pub(super) raw: VolumeRaw,
    /// Object map, which is always that of the live volume.
    pub(super) omap: Paddr,
    /// Transaction of that state.
    pub(super) xid: Xid,
    /// True if contents of files are not kept.
    pub(super) dataless: bool,
}

impl Apfs {
    /// Opens a state of a volume. `cipher` is required for an encrypted volume.
    pub(super) fn open(
        container: &Arc<Container>,
        state: &OpenState,
        cipher: Option<Arc<VolumeCipher>>,
    ) -> Result<Self> {
        let (store, raw) = (&container.store, &state.raw);
        check_features(raw)?;
        let omap = Arc::new(Omap::open(store, state.omap)?);
        let changing = omap_flags::ENCRYPTING | omap_flags::DECRYPTING | omap_flags::KEY_ROLLING;
        if raw.encryption_rolling_oid.get() != 0 || omap.raw.flags.get() & changing != 0 {
            let message = "encryption is in progress; let a Mac finish it first";
            return Err(Error::unsupported(LAYER, message).named(raw.label()));
        }
        let names = NameRules::of(raw);
        let physical = raw.root_tree_type.get() & storage::MASK == storage::PHYSICAL;
        let view = View {
            omap,
            xid: state.xid,
        };
        let addressing = if physical {
            Addressing::Physical
        } else {
            Addressing::Virtual(view, cipher.clone())
        };
        let files = Tree::open(
            store,
            TreeKind::Files {
                hashed: names.hashed(),
            },
            addressing,
            raw.root_tree_oid.into(),
        )?;
        let fext = Oid::from(raw.fext_tree_oid);
        let sealed = raw.has(volume_incompatible::SEALED) && fext.is_some();
        let fext = sealed
            .then(|| Tree::open(store, TreeKind::Fext, Addressing::Physical, fext))
            .transpose()?;
        Ok(Self {
            container: container.clone(),
            raw: *raw,
            files,
            fext,
            names,
            cipher,
            dataless: state.dataless,
        })
    }

    /// Opens a snapshot of this volume, which is open in its current state, with the same key.
    /// [`Kind::NotFound`] if there is no snapshot of this name.
    pub fn open_snapshot(&self, name: &str) -> Result<Self> {
        let state = self.container.snapshot(&self.raw, name)?;
        Self::open(&self.container, &state, self.cipher.clone())
    }

    /// Returns the volume with another superblock and another file-system tree.
    pub(super) fn with(self, raw: VolumeRaw, files: Tree) -> Self {
        Self { raw, files, ..self }
    }

    fn store(&self) -> &Store {
        &self.container.store
    }

    /// Returns the object of a number, with its attributes, which follow its inode in the tree.
    pub(super) fn object(&self, id: FileId) -> Result<Object> {
        let mut cursor = self
            .files
            .seek(&Key::Record(RecordKey::single(id, record_type::INODE)))?;
        let found = match cursor.next()? {
            Some(record) if is_about(&record.key, id, record_type::INODE) => {
                Object::parse(id, record.value)
            }
            _ => return Err(Error::not_found(LAYER, format!("object {id:#x}"))),
        };
        let mut object = found.ok_or_else(|| corrupt(id, "malformed inode"))?;
        while let Some(record) = cursor.next()? {
            let Key::Record(RecordKey {
                id: about,
                kind: record_type::XATTR,
                rest: KeyRest::Name(name),
            }) = record.key
            else {
                break;
            };
            if about != id {
                break;
            }
            let xattr = Xattr::parse(name, record.value);
            object
                .xattrs
                .push(xattr.ok_or_else(|| corrupt(id, "malformed attribute record"))?);
        }
        Ok(object)
    }

    /// Opens the first `len` bytes of a stream as a read-only device.
    pub(super) fn stream(&self, id: FileId, len: u64) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(self.runs(id, len)?))
    }

    /// Opens the first `len` bytes of a stream.
    pub(super) fn runs(&self, id: FileId, len: u64) -> Result<Stream> {
        if self.dataless && len > 0 {
            return Err(Error::unsupported(
                LAYER,
                "cannot read the file: the snapshot keeps no contents of files",
            ));
        }
        let extents = match &self.fext {
            Some(tree) => Extents::Sealed(tree),
            None => Extents::Records(&self.files),
        };
        Stream::open(self.store(), self.cipher.as_ref(), extents, id, len)
    }
}

/// Returns true if a key is that of object `id` and type `kind`.
fn is_about(key: &Key<'_>, id: FileId, kind: u8) -> bool {
    matches!(key, Key::Record(record) if (record.id, record.kind) == (id, kind))
}

pub(super) fn corrupt(id: FileId, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message.into()).named(format!("object {id:#x}"))
}

pub(super) fn check_features(raw: &VolumeRaw) -> Result<()> {
    match raw.incompatible_features.get() & !KNOWN {
        0 => Ok(()),
        unknown => {
            let message = format!("unsupported features {unknown:#x}");
            Err(Error::unsupported(LAYER, message).named(raw.label()))
        }
    }
}
