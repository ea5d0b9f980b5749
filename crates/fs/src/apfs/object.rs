//! Objects of a volume: an inode with its attributes, and their visible properties (§8.1, §8.4).

use zerocopy::little_endian::{U32, U64};

use super::layout::{
    DataStreamRaw, FileId, InodeRaw, XattrValue, inode_field, mode_type, timestamp, until_nul,
    xattr_name,
};
use crate::{Attributes, FileKind, NodeId, UF_COMPRESSED};
use bandsaw_core::decmpfs::Compression;

/// An inode with its stream and its attributes.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: FileId,
    pub(super) inode: InodeRaw,
    /// Data stream; `None` if nothing was ever written.
    pub(super) stream: Option<DataStreamRaw>,
    sparse: u64,
    device: u32,
    pub(super) xattrs: Vec<Xattr>,
}

/// The properties of an attribute, without its value unless that is needed.
#[derive(Debug)]
pub(super) struct Xattr {
    pub(super) name: String,
    size: u64,
    allocated: u64,
    /// Value, if it is embedded and the file system itself interprets it.
    value: Option<Box<[u8]>>,
    /// Number and length of its stream, if it has one.
    pub(super) stream: Option<(FileId, u64)>,
}

impl Xattr {
    /// Parses the record of an attribute; `None` if it is invalid.
    pub(super) fn parse(name: &[u8], record: &[u8]) -> Option<Self> {
        let name = String::from_utf8_lossy(name).into_owned();
        let matters = matches!(
            &*name,
            xattr_name::SYMLINK | xattr_name::DECMPFS | xattr_name::FINDER_INFO
        );
        Some(match XattrValue::parse(record)? {
            XattrValue::Embedded(value) => {
                let kept = matters.then(|| value.into());
                Self {
                    name,
                    size: value.len() as u64,
                    allocated: 0,
                    value: kept,
                    stream: None,
                }
            }
            XattrValue::Stream(at) => {
                let (size, allocated) = (at.stream.size.get(), at.stream.allocated.get());
                Self {
                    name,
                    size,
                    allocated,
                    value: None,
                    stream: Some((at.stream_id.into(), size)),
                }
            }
        })
    }

    /// Returns true if the attribute is not visible to programs: a link target, an empty resource
    /// fork, or Finder info of zeros only.
    pub(super) fn is_hidden(&self) -> bool {
        let blank = || {
            self.value
                .as_ref()
                .is_some_and(|value| value.iter().all(|&byte| byte == 0))
        };
        match &*self.name {
            xattr_name::SYMLINK => true,
            xattr_name::RESOURCE_FORK => self.size == 0,
            xattr_name::FINDER_INFO => blank(),
            _ => false,
        }
    }
}

impl Object {
    /// Parses the record of an inode; `None` if it is invalid.
    pub(super) fn parse(id: FileId, record: &[u8]) -> Option<Self> {
        let (inode, fields) = InodeRaw::parse(record)?;
        let stream = match fields.get(inode_field::DATA_STREAM) {
            None => None,
            Some(_) => Some(fields.read::<DataStreamRaw>(inode_field::DATA_STREAM)?),
        };
        let sparse = fields
            .read::<U64>(inode_field::SPARSE_BYTES)
            .map_or(0, U64::get);
        let device = fields.read::<U32>(inode_field::DEVICE).map_or(0, U32::get);
        Some(Self {
            id,
            inode: *inode,
            stream,
            sparse,
            device,
            xattrs: Vec::new(),
        })
    }

    /// Returns its kind; an invalid type counts as a file.
    pub(super) fn kind(&self) -> FileKind {
        mode_type::kind_of(self.inode.mode.get())
    }

    pub(super) fn xattr(&self, name: &str) -> Option<&Xattr> {
        self.xattrs.iter().find(|xattr| xattr.name == name)
    }

    /// Returns the attribute that describes compressed contents, if they are compressed.
    pub(super) fn compression(&self) -> Option<&Xattr> {
        let compressed =
            self.kind() == FileKind::File && self.inode.bsd_flags.get() & UF_COMPRESSED != 0;
        self.xattr(xattr_name::DECMPFS).filter(|_| compressed)
    }

    /// Returns the target of a symbolic link, if it is embedded as it should be.
    pub(super) fn link_target(&self) -> Option<&[u8]> {
        let target = self.xattr(xattr_name::SYMLINK)?.value.as_deref()?;
        (self.kind() == FileKind::Symlink).then(|| until_nul(target))
    }

    /// Returns the value of [`compression`](Self::compression), if it is embedded.
    pub(super) fn compression_value(&self) -> Option<&[u8]> {
        self.compression()?.value.as_deref()
    }

    /// Returns all attributes, with those that follow from the compression attribute.
    pub(super) fn attributes(&self, compression: Option<Compression>) -> Attributes {
        let (inode, kind) = (&self.inode, self.kind());
        let children_or_links = inode.children_or_links.get();
        let (size, allocated) = self.stream.map_or((0, 0), |stream| {
            let allocated = stream.allocated.get().saturating_sub(self.sparse);
            (stream.size.get(), allocated)
        });
        let size = match kind {
            FileKind::Folder => children_or_links.into(),
            FileKind::Symlink => self.link_target().map_or(0, |target| target.len() as u64),
            _ => compression.map_or(size, |compression| compression.size),
        };
        let resource = self.xattr(xattr_name::RESOURCE_FORK);
        let named = |xattr: &Xattr| {
            matches!(
                &*xattr.name,
                xattr_name::RESOURCE_FORK | xattr_name::FINDER_INFO
            )
        };
        let packed = |xattr: &Xattr| compression.is_some() && xattr.name == xattr_name::DECMPFS;
        Attributes {
            id: NodeId(self.id.0),
            kind,
            size,
            allocated: allocated.saturating_add(resource.map_or(0, |xattr| xattr.allocated)),
            resource_size: resource
                .filter(|_| compression.is_none())
                .map_or(0, |xattr| xattr.size),
            mode: inode.mode.get() & !mode_type::MASK,
            uid: inode.owner.get(),
            gid: inode.group.get(),
            links: if kind == FileKind::Folder {
                1
            } else {
                children_or_links.max(1)
            },
            device: if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
                self.device
            } else {
                0
            },
            flags: inode.bsd_flags.get(),
            created: timestamp(inode.created),
            modified: timestamp(inode.modified),
            changed: timestamp(inode.changed),
            accessed: timestamp(inode.accessed),
            backed_up: None,
            has_xattrs: self
                .xattrs
                .iter()
                .any(|xattr| !xattr.is_hidden() && !named(xattr) && !packed(xattr)),
        }
    }
}
