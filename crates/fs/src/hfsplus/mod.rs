//! HFS+ and HFSX volumes: reading in place by any number of threads, creation, and modification.
//!
//! [`HfsPlus::open`] reads the volume header (§1, §2), the pending transactions of the journal
//! (§14) and the headers of the trees; nodes are read and checked on demand. Sections of
//! `docs/formats/hfsplus.md` are cited as §n throughout.

mod attributes;
mod btree;
pub mod build;
mod catalog;
mod check;
mod extents;
mod file_system;
mod free;
mod header;
mod journal;
pub(crate) mod layout;
mod links;
mod overflow;
mod recover;
mod repair;
mod stat;
mod trusted;
pub(crate) mod unicode;
mod write;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use self::attributes::AttributesTree;
use self::btree::{Tree, TreeKind};
use self::catalog::{Catalog, LocatedObject, Object};
use self::extents::{ForkSpace, Owner};
use self::layout::{Cnid, FileRaw, ForkRaw, VolumeHeader};
use self::layout::{fork_type, timestamp, volume_attributes};
use self::links::{Link, Links};
use self::overflow::Overflow;
use self::unicode::decode_name;
use super::{Attributes, Entry, FileKind, NodeId, UF_COMPRESSED};
use bandsaw_core::decision::CopyChoice;
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

#[cfg(feature = "testing")]
pub use self::btree::read_node;
pub use self::check::check;
pub use self::check::check_within;
#[cfg(feature = "testing")]
pub use self::check::corruptions::damaged;
pub use self::free::HfsPlusFree;
pub use self::header::{FoundHeader as Probed, probe, probe_copy, probe_front, signature_at};
pub use self::header::{last_change, move_alternate, stated_len, volume_around};
#[cfg(feature = "testing")]
pub use self::journal::{add_journal, reseal_journal, sample_journals};
pub use self::layout::mac_date;
pub use self::recover::HfsPlusRecovery;
pub use self::repair::Repair;
pub use self::unicode::composed;
pub use self::write::{HfsPlusMut, WriteOptions};

/// `lastMountedVersion` that is written to a volume without a journal.
const MADE_BY: [u8; 4] = *b"bsaw";

const LAYER: &str = "hfs+";
/// Default size of the cache for tree nodes of a volume, in bytes.
pub const DEFAULT_CACHE: usize = 16 << 20;

/// An open HFS+ or HFSX volume, read-only.
#[derive(Debug)]
pub struct HfsPlus {
    space: ForkSpace,
    /// Offset of the volume on its device in bytes; not 0 inside a wrapper.
    start: u64,
    header: VolumeHeader,
    catalog: Catalog,
    overflow: Overflow,
    attributes: AttributesTree,
    links: Links,
    label: String,
    created: Option<super::Timestamp>,
    clean: bool,
    problems: Vec<Error>,
}

impl HfsPlus {
    /// Opens the volume that begins at the first byte of `device` and ends with its last.
    ///
    /// An HFS wrapper is unwrapped, and a damaged volume header replaced by its alternate (see
    /// [`problems`](Self::problems)). Pending transactions of the journal are replayed in memory;
    /// the device is not modified. Fails with [`Kind::Unsupported`] for plain HFS.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        Self::open_with(device, DEFAULT_CACHE)
    }

    /// Opens a volume like [`open`](Self::open), with a cache of at most `cache` bytes for tree
    /// nodes, half of it for the catalog. A few nodes of each tree are always cached.
    pub fn open_with(device: Arc<dyn BlockDevice>, cache: usize) -> Result<Self> {
        let mut volume = Self::open_any(device)?;
        volume.catalog.tree_mut().bound_cache(cache / 2);
        for tree in [volume.overflow.tree_mut(), volume.attributes.tree_mut()]
            .into_iter()
            .flatten()
        {
            tree.bound_cache(cache / 4);
        }
        Ok(volume)
    }

    /// Lists the files of the volume's journal and finds them by name if `shown`. By default they
    /// are hidden, as on macOS.
    #[must_use]
    pub fn system_files(mut self, shown: bool) -> Self {
        self.links.set_system_files(shown);
        self
    }

    /// Returns the size of the tree nodes that are cached at present, in bytes.
    pub fn cached(&self) -> usize {
        [
            Some(self.catalog.tree()),
            self.overflow.tree(),
            self.attributes.tree(),
        ]
        .into_iter()
        .flatten()
        .map(Tree::cached)
        .sum()
    }

    fn open_any(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut located = header::locate(device)?;
        let clean = replay(&mut located)?;
        let header::LocatedHeader {
            device,
            start,
            header,
            problems,
        } = located;
        let space = ForkSpace {
            device,
            block_size: header.block_size,
            total_blocks: header.total_blocks,
        };
        let raw = &header.raw;

        let overflow = Overflow::open(&space, &raw.extents_file)?;
        let file = |fork, name, id| {
            space.fork(fork, &Owner::Special(name), &mut |block| {
                overflow.get(id, fork_type::DATA, block)
            })
        };
        let catalog = file(&raw.catalog_file, "catalog file", Cnid::CATALOG)?;
        let catalog = Catalog::new(Tree::open(catalog, TreeKind::Catalog(header.variant))?);
        let attributes = match raw.attributes_file.total_blocks.get() {
            0 => None,
            _ => {
                let file = file(&raw.attributes_file, "attributes file", Cnid::ATTRIBUTES)?;
                Some(Tree::open(file, TreeKind::Attributes)?)
            }
        };
        let Some(LocatedObject {
            name,
            object: Object::Folder(root),
            ..
        }) = catalog.by_id(Cnid::ROOT)?
        else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "the catalog has no root folder",
            ));
        };
        let mut links = Links::find(&catalog, root.dates.create.get())?;
        if journal::is_transient(&*space.device, &header) {
            links.hide_journal_files(&catalog)?;
        } else if header.has(volume_attributes::JOURNALED) {
            links.keep_journal_files(&catalog)?;
        }
        let created = formatted_at(&header, root.dates.create.get());
        let (attributes, label) = (AttributesTree::new(attributes), decode_name(&name));
        Ok(Self {
            space,
            start,
            header,
            catalog,
            overflow,
            attributes,
            links,
            label,
            created,
            clean,
            problems,
        })
    }

    /// Returns the problems that did not prevent opening the volume: a damaged volume header, an
    /// unreadable journal.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Returns the object with a number, with hard links resolved.
    fn object(&self, node: NodeId) -> Result<Resolved> {
        let missing = || Error::not_found(LAYER, format!("object {}", node.0));
        let id = u32::try_from(node.0).map(Cnid).map_err(|_| missing())?;
        let found = self.catalog.by_id(id)?.ok_or_else(missing)?;
        self.follow(found.parent, found.object)
    }

    /// Resolves `object`, found in folder `parent`, if it is a hard link.
    fn follow(&self, parent: Cnid, object: Object) -> Result<Resolved> {
        let Object::File(file) = &object else {
            return Ok(Resolved {
                object,
                links: 1,
                broken: None,
            });
        };
        match self.links.follow(&self.catalog, file)? {
            Link::No if self.links.holds_files(parent) => Ok(Resolved::indirect(object)),
            Link::No => Ok(Resolved {
                object,
                links: 1,
                broken: None,
            }),
            Link::To(target) => Ok(Resolved::indirect(*target)),
            Link::Broken(name) => Ok(Resolved {
                object,
                links: 1,
                broken: Some(name),
            }),
        }
    }

    fn attributes_of(&self, resolved: &Resolved) -> Result<Attributes> {
        let mut attributes =
            stat::attributes(&resolved.object, self.space.block_size, resolved.links);
        if resolved.object.id() == Cnid::ROOT {
            attributes.size = attributes
                .size
                .saturating_sub(self.links.hidden_count().into());
        }
        if let Some(value) = self.compression(&resolved.object)?
            && let Some(compression) = Compression::parse(&value)
        {
            (attributes.size, attributes.resource_size) = (compression.size, 0);
            // Hide the attribute that describes the compression.
            attributes.has_xattrs = self
                .attributes
                .names(resolved.object.id())?
                .iter()
                .any(|name| name != decmpfs::ATTRIBUTE);
        }
        Ok(attributes)
    }

    /// Returns the attribute that describes the compression of a file's contents, `None` if they
    /// are not compressed. Flag and attribute must agree.
    fn compression(&self, object: &Object) -> Result<Option<Vec<u8>>> {
        let Object::File(file) = object else {
            return Ok(None);
        };
        if u32::from(file.bsd.owner_flags) & UF_COMPRESSED == 0
            || stat::file_kind(file) != FileKind::File
        {
            return Ok(None);
        }
        let value = self.attributes.inline(object.id(), decmpfs::ATTRIBUTE)?;
        Ok(value.filter(|value| Compression::parse(value).is_some()))
    }

    /// Returns the compression attribute of the object with a number, with hard links resolved.
    fn compression_of(&self, node: NodeId) -> Result<Option<Vec<u8>>> {
        self.compression(&self.object(node)?.object)
    }

    /// Fails if the object has no readable contents: a broken hard link, or not a file.
    fn check_readable(&self, node: NodeId) -> Result<()> {
        self.object(node)?.file().map(drop)
    }

    fn fork_device(
        &self,
        fork: &ForkRaw,
        owner: &Owner,
        id: Cnid,
        kind: u8,
    ) -> Result<Arc<dyn BlockDevice>> {
        let device = self
            .space
            .fork(fork, owner, &mut |block| self.overflow.get(id, kind, block))?;
        Ok(Arc::new(device))
    }

    fn resource_fork(&self, file: &FileRaw) -> Result<Arc<dyn BlockDevice>> {
        let id = Cnid(file.file_id.get());
        self.fork_device(
            &file.resource_fork,
            &Owner::Resource(id),
            id,
            fork_type::RESOURCE,
        )
    }

    /// Returns an entry of folder `dir` for a listing; `None` if it is hidden.
    fn entry(&self, dir: Cnid, name: &[U16], object: Object) -> Result<Option<Entry>> {
        if dir == Cnid::ROOT && self.links.is_hidden(object.id()) {
            return Ok(None);
        }
        if matches!(object, Object::Folder(_)) {
            self.check_thread(dir, &object)?;
        }
        let attributes = self.attributes_of(&self.follow(dir, object)?)?;
        Ok(Some(Entry {
            name: decode_name(name),
            attributes,
        }))
    }

    /// Returns at most `most` entries of folder `dir` after the name `after`, and the name to
    /// continue after if there may be more.
    fn list_after(
        &self,
        dir: NodeId,
        after: Option<&[U16]>,
        most: usize,
    ) -> Result<(Vec<Entry>, Option<Vec<U16>>)> {
        let missing = |_| Error::not_found(LAYER, format!("folder {}", dir.0));
        let dir = u32::try_from(dir.0).map(Cnid).map_err(missing)?;
        let (mut entries, mut last) = (Vec::new(), None);
        self.catalog.children(dir, after, |name, object| {
            entries.extend(self.entry(dir, name, object)?);
            if entries.len() < most {
                return Ok(ControlFlow::Continue(()));
            }
            last = Some(name.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok((entries, last))
    }

    /// Fails if the thread of a folder does not refer to the folder in which it was found, because
    /// following it could lead into a cycle.
    fn check_thread(&self, parent: Cnid, folder: &Object) -> Result<()> {
        match self.catalog.by_id(folder.id())? {
            Some(found) if found.parent == parent => Ok(()),
            _ => {
                let message = format!(
                    "folder {} is in folder {parent}, but its thread points elsewhere",
                    folder.id()
                );
                Err(Error::new(Kind::Corrupt, "hfs+ catalog", message))
            }
        }
    }
}

/// An object with the result of resolving hard links.
#[derive(Debug)]
struct Resolved {
    object: Object,
    /// Number of names.
    links: u32,
    /// Set for a hard link to an object that does not exist: the name of that object in the private
    /// folder.
    broken: Option<String>,
}

impl Resolved {
    /// Creates the value for the target of hard links, which stores the number of its links.
    fn indirect(object: Object) -> Self {
        let links = match &object {
            Object::File(file) if stat::file_kind(file) == FileKind::File => {
                file.bsd.special.get().max(1)
            }
            _ => 1,
        };
        Self {
            object,
            links,
            broken: None,
        }
    }

    /// Returns the file record, for reading its forks.
    fn file(&self) -> Result<&FileRaw> {
        let refused = |kind, message: String| {
            Err(Error::new(kind, LAYER, message).named(format!("object {}", self.object.id())))
        };
        match (&self.object, &self.broken) {
            (_, Some(name)) => refused(
                Kind::Corrupt,
                format!("is a hard link to {name}, which does not exist"),
            ),
            (Object::Folder(_), None) => {
                refused(Kind::Invalid, "is a folder, expected a file".to_owned())
            }
            (Object::File(file), None) => Ok(file),
        }
    }
}

/// Reads a structure at `offset`.
fn read_structure<T: FromBytes + IntoBytes>(device: &dyn BlockDevice, offset: u64) -> Result<T> {
    let mut structure = T::new_zeroed();
    device.read_at(offset, structure.as_mut_bytes())?;
    Ok(structure)
}

/// Compares the two headers of the volume on `device`, after its journal was replayed in memory.
/// `None`: they agree, one of them is invalid, or the alternate is an older state of the primary.
/// Otherwise returns the header that the volume agrees with; [`CopyChoice::Alternate`] if that is so for
/// one field at least. Fails with [`Kind::Undecided`] if the volume agrees with both or neither.
pub fn compare_headers(
    device: Arc<dyn BlockDevice>,
    progress: &dyn Progress,
) -> Result<Option<CopyChoice>> {
    let mut located = header::locate(device)?;
    replay(&mut located)?;
    repair::compare_headers(&located.device, progress)
}

/// Replays the journal in memory; returns true if the volume was unmounted cleanly. An unreadable
/// journal is added to the problems and counts as not clean.
fn replay(located: &mut header::LocatedHeader) -> Result<bool> {
    let header = &located.header;
    let unmounted = header.is_clean();
    if !header.has(volume_attributes::JOURNALED) {
        return Ok(unmounted);
    }
    match journal::pending(&located.device, header) {
        Ok(None) => Ok(unmounted),
        Ok(Some(journal::PendingJournal { device, problem })) => {
            located.problems.extend(problem);
            let (start, problems) = (located.start, std::mem::take(&mut located.problems));
            *located = header::LocatedHeader {
                start,
                ..header::unwrapped(device)?
            };
            located.problems.splice(..0, problems);
            Ok(false)
        }
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(error) => {
            located.problems.push(error);
            Ok(false)
        }
    }
}

/// Returns the date on which the volume was formatted. The header stores it in local time, the root
/// folder in UTC, but the root's date may have been changed since.
fn formatted_at(header: &VolumeHeader, root_created: u32) -> Option<super::Timestamp> {
    const DAY: u32 = 24 * 60 * 60;
    let local = header.raw.create_date.get();
    let date = if local.abs_diff(root_created) <= DAY {
        root_created
    } else {
        local
    };
    timestamp(date, header.has(volume_attributes::EXPANDED_TIMES))
}
