//! Copies of single objects from one volume to another, and their comparison.

use bandsaw::decmpfs::{self, Compression};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::fs::{
    Attributes, Change, ExistingTarget, FileKind, FileSystem, FileSystemMut, Fork, NewKind,
    NewNode, NodeId, RESOURCE_FORK, Stored, Timestamp, UF_COMPRESSED, UnlinkedFile,
};
use bandsaw::progress::Progress;
use bandsaw::size::to_usize;
use bandsaw::{Error, Kind, Result};

use super::LAYER;

/// Number of bytes that are copied or compared at a time.
const PIECE: u64 = 1 << 20;

/// Maximum length of an extended attribute's name on APFS, in bytes.
const MAX_XATTR_NAME: usize = 127;
/// The attribute in which APFS stores the target of a symbolic link.
const SYMLINK_TARGET: &str = "com.apple.fs.symlink";

/// The side on which an operation failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The object cannot be read: it is named, and left out.
    Source(Error),
    /// The target cannot be changed: the conversion ends.
    Target(Error),
}

/// The result of an operation on both sides.
pub(super) type Copied<T> = std::result::Result<T, Failed>;

/// Both volumes.
#[derive(Clone, Copy)]
pub(super) struct Copier<'a> {
    pub(super) from: &'a dyn FileSystem,
    pub(super) to: &'a dyn FileSystemMut,
    pub(super) progress: &'a dyn Progress,
}

/// A new object without a name.
pub(super) struct NewObject<'a> {
    pub(super) id: NodeId,
    pub(super) unlinked: UnlinkedFile<'a>,
    /// Attributes that the target cannot have, with the reasons.
    pub(super) lost: Vec<Error>,
}

impl<'a> Copier<'a> {
    /// Copies an object that is no folder.
    pub(super) fn copy(&self, found: &Attributes) -> Copied<NewObject<'a>> {
        let kind = match found.kind {
            FileKind::Symlink => {
                NewKind::Symlink(self.from.read_link(found.id).map_err(Failed::Source)?)
            }
            FileKind::File => NewKind::File,
            kind => NewKind::Special(kind, found.device),
        };
        let (unlinked, id) =
            UnlinkedFile::new(self.to, &new_node(found, kind)).map_err(Failed::Target)?;
        if found.kind == FileKind::File && !self.pack(found, id)? {
            let contents = self.from.open(found.id, Fork::Data);
            self.write(&*contents.map_err(Failed::Source)?, id)?;
        }
        let lost = self.set_xattrs(found, id)?;
        self.set_attributes(found, id)?;
        Ok(NewObject { id, unlinked, lost })
    }

    /// Writes the contents of a new file.
    fn write(&self, contents: &dyn BlockDevice, id: NodeId) -> Copied<()> {
        let len = contents.info().len;
        if len == 0 {
            return Ok(());
        }
        let to = self.to.open_mut(id, Fork::Data).map_err(Failed::Target)?;
        to.set_len(len, AfterDiscard::Any).map_err(Failed::Target)?;
        let mut at = 0;
        while at < len {
            self.progress.check().map_err(Failed::Target)?;
            let piece = contents.read_vec(at, to_usize(PIECE.min(len - at)));
            let piece = piece.map_err(Failed::Source)?;
            to.write_at(at, &piece).map_err(Failed::Target)?;
            at += piece.len() as u64;
            self.progress.advance(piece.len() as u64);
        }
        Ok(())
    }

    /// Copies the contents of a compressed file as they are stored. Returns false if it is not
    /// compressed, or has a form that the target cannot store.
    fn pack(&self, found: &Attributes, id: NodeId) -> Copied<bool> {
        if found.flags & UF_COMPRESSED == 0 {
            return Ok(false);
        }
        let Some(attribute) = self.attribute(found.id, decmpfs::ATTRIBUTE)? else {
            return Ok(false);
        };
        if Compression::parse(&attribute).is_none() {
            return Ok(false);
        }
        let (_unlinked, contents) =
            UnlinkedFile::new(self.to, &NewNode::new(NewKind::File)).map_err(Failed::Target)?;
        let fork = self.from.xattr(found.id, RESOURCE_FORK);
        if let Some(fork) = fork.map_err(Failed::Source)? {
            self.write(&*fork, contents)?;
        }
        let stored = Stored::Packed {
            attribute: &attribute,
            contents,
        };
        match self.to.store(id, &stored) {
            Err(error) if error.kind() == Kind::Limit => Ok(false),
            done => done.map(|()| true).map_err(Failed::Target),
        }
    }

    /// Returns the value of a short attribute.
    fn attribute(&self, id: NodeId, name: &str) -> Copied<Option<Vec<u8>>> {
        let Some(value) = self.from.xattr(id, name).map_err(Failed::Source)? else {
            return Ok(None);
        };
        let len = value.info().len;
        if len > PIECE {
            return Ok(None);
        }
        value
            .read_vec(0, to_usize(len))
            .map(Some)
            .map_err(Failed::Source)
    }

    /// Sets the extended attributes to those of an object, and removes others. Returns those that the
    /// target cannot have.
    pub(super) fn set_xattrs(&self, found: &Attributes, id: NodeId) -> Copied<Vec<Error>> {
        let mut lost = Vec::new();
        let names = self.from.xattrs(found.id).map_err(Failed::Source)?;
        for old in self.to.xattrs(id).map_err(Failed::Target)? {
            if !names.contains(&old) {
                self.to.remove_xattr(id, &old).map_err(Failed::Target)?;
            }
        }
        for name in names {
            let value = self.from.xattr(found.id, &name).map_err(Failed::Source)?;
            let Some(value) = value else { continue };
            if !is_storable(found, &name) {
                let message = format!("APFS cannot store the extended attribute \"{name}\"");
                lost.push(Error::unsupported(LAYER, message));
                continue;
            }
            // So that an error below is one of the target.
            read_all(&*value, self.progress).map_err(Failed::Source)?;
            let set = self
                .to
                .set_xattr(id, &name, &*value, ExistingTarget::Replace);
            set.map_err(Failed::Target)?;
        }
        Ok(lost)
    }

    /// Sets permissions, owners, flags and dates to those of an object.
    pub(super) fn set_attributes(&self, found: &Attributes, id: NodeId) -> Copied<()> {
        let change = Change {
            mode: Some(found.mode),
            uid: Some(found.uid),
            gid: Some(found.gid),
            flags: Some(found.flags),
            created: found.created,
            modified: found.modified,
            changed: found.changed,
            accessed: found.accessed,
            backed_up: None,
        };
        self.to.set_attributes(id, &change).map_err(Failed::Target)
    }

    /// Returns true if two objects that are no folders are equal in everything but their numbers and
    /// names.
    pub(super) fn is_equal(&self, found: &Attributes, other: &Attributes) -> Copied<bool> {
        let target: &dyn FileSystem = self.to;
        equal((self.from, found), (target, other), self.progress)
    }
}

/// Reads everything of a device.
pub(super) fn read_all(device: &dyn BlockDevice, progress: &dyn Progress) -> Result<()> {
    let (mut at, len) = (0, device.info().len);
    while at < len {
        progress.check()?;
        at += device.read_vec(at, to_usize(PIECE.min(len - at)))?.len() as u64;
    }
    Ok(())
}

/// Returns true if APFS can store an extended attribute of this name for an object.
fn is_storable(found: &Attributes, name: &str) -> bool {
    let is_possible = name != SYMLINK_TARGET && (1..=MAX_XATTR_NAME).contains(&name.len());
    is_possible && (name != RESOURCE_FORK || found.kind == FileKind::File)
}

/// An object of a volume.
type Object<'a> = (&'a dyn FileSystem, &'a Attributes);

/// Compares two objects of two volumes, in everything but their numbers and names; of folders not
/// what is in them.
pub(super) fn equal(from: Object<'_>, to: Object<'_>, progress: &dyn Progress) -> Copied<bool> {
    Ok(has_equal_attributes(from.1, to.1)
        && has_equal_contents(from, to, progress)?
        && has_equal_xattrs(from, to, progress)?)
}

fn has_equal_attributes(found: &Attributes, other: &Attributes) -> bool {
    let is_folder = found.kind == FileKind::Folder;
    let facts = |of: &Attributes| {
        let size = if is_folder { 0 } else { of.size };
        let flags = of.flags & !UF_COMPRESSED;
        (of.kind, size, of.mode, of.uid, of.gid, flags, of.device)
    };
    // HFS+ may record no date.
    let differs = |one: Option<Timestamp>, other| one.is_some() && one != other;
    facts(found) == facts(other)
        && !differs(found.created, other.created)
        && !differs(found.modified, other.modified)
}

/// Compares the data forks of files and the targets of symbolic links.
fn has_equal_contents(
    (from, found): Object<'_>,
    (to, other): Object<'_>,
    progress: &dyn Progress,
) -> Copied<bool> {
    match found.kind {
        FileKind::Symlink => {
            let target = from.read_link(found.id).map_err(Failed::Source)?;
            Ok(target == to.read_link(other.id).map_err(Failed::Target)?)
        }
        FileKind::File => {
            let a = from.open(found.id, Fork::Data).map_err(Failed::Source);
            let b = to.open(other.id, Fork::Data).map_err(Failed::Target);
            match (a, b) {
                // Both have the same unsupported form: the stored bytes are in attributes.
                (Err(Failed::Source(a)), Err(Failed::Target(b))) if a.kind() == b.kind() => {
                    Ok(true)
                }
                (a, b) => same_bytes(&*a?, &*b?, progress),
            }
        }
        _ => Ok(true),
    }
}

fn has_equal_xattrs(
    (from, found): Object<'_>,
    (to, other): Object<'_>,
    progress: &dyn Progress,
) -> Copied<bool> {
    let mut names = from.xattrs(found.id).map_err(Failed::Source)?;
    let mut others = to.xattrs(other.id).map_err(Failed::Target)?;
    names.retain(|name| is_storable(found, name));
    names.sort();
    others.sort();
    if names != others {
        return Ok(false);
    }
    for name in names {
        let a = from.xattr(found.id, &name).map_err(Failed::Source)?;
        let b = to.xattr(other.id, &name).map_err(Failed::Target)?;
        let is_same = match (a, b) {
            (Some(a), Some(b)) => same_bytes(&*a, &*b, progress)?,
            (a, b) => a.is_none() == b.is_none(),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_bytes(a: &dyn BlockDevice, b: &dyn BlockDevice, progress: &dyn Progress) -> Copied<bool> {
    let len = a.info().len;
    if b.info().len != len {
        return Ok(false);
    }
    let mut at = 0;
    while at < len {
        progress.check().map_err(Failed::Target)?;
        let now = to_usize(PIECE.min(len - at));
        let one = a.read_vec(at, now).map_err(Failed::Source)?;
        if one != b.read_vec(at, now).map_err(Failed::Target)? {
            return Ok(false);
        }
        at += now as u64;
    }
    Ok(true)
}

/// Returns a new object with the attributes of another.
pub(super) fn new_node(found: &Attributes, kind: NewKind) -> NewNode {
    NewNode {
        kind,
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        flags: found.flags & !UF_COMPRESSED,
        created: found.created,
    }
}
