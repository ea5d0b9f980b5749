//! Files that a scan of a volume finds beyond its live trees: deleted ones, earlier versions, and those
//! of damaged trees.

mod block_set;
mod judge;
mod masked;
pub(crate) mod paths;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use block_set::BlockSet;
pub(crate) use judge::{FileRun, Judge};
pub(crate) use masked::Masked;

use crate::{Attributes, Fork};
use bandsaw_core::Result;
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::device::{BlockDevice, Memory};

/// Receives the files that a scan finds, those with the newest records first.
pub type EachRecovered<'a> = dyn FnMut(RecoveredFile) -> Result<()> + 'a;

/// The folder of the path of a file whose folder is unknown.
pub(crate) const ORPHANS: &str = "Orphans";

/// The degree to which the contents of a file are still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// All blocks are free, and no file with a newer record claims one of them.
    Whole,
    /// In a damaged tree: the blocks are in use, as those of a file that was not deleted, and no newer
    /// record claims one of them.
    Existing,
    /// Some bytes are lost: see [`RecoveredFile::losses`].
    Partial,
    /// No byte is left, or the places of all bytes are unknown.
    NameOnly,
}

impl Certainty {
    /// Returns the stable name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Existing => "existing",
            Self::Partial => "partial",
            Self::NameOnly => "name_only",
        }
    }
}

/// The place of the record that a file was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordSource {
    /// The unused part of a node of the tree.
    NodeSlack,
    /// A node that the tree does not use any more.
    FreeNode,
    /// An old transaction in the journal.
    Journal,
    /// A node of a tree that cannot be read as a whole.
    DamagedTree,
    /// Blocks outside of the trees.
    FreeSpace,
    /// A node of an earlier transaction.
    OldNode,
}

impl RecordSource {
    /// Returns the stable name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeSlack => "node_slack",
            Self::FreeNode => "free_node",
            Self::Journal => "journal",
            Self::DamagedTree => "damaged_tree",
            Self::FreeSpace => "free_space",
            Self::OldNode => "old_node",
        }
    }
}

/// The reason why bytes of a file are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Their blocks are in use now.
    InUse,
    /// A file with a newer record claims their blocks.
    Claimed,
    /// No record of their place was found.
    NoExtent,
    /// Their place is outside of the volume.
    Outside,
    /// The image stores nothing in their place: it was discarded.
    Discarded,
}

impl LossReason {
    /// Returns the stable name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InUse => "in_use",
            Self::Claimed => "claimed",
            Self::NoExtent => "no_extent",
            Self::Outside => "outside",
            Self::Discarded => "discarded",
        }
    }
}

/// Lost bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    /// The fork that they belong to.
    pub fork: Fork,
    /// Their range in the fork as it is stored.
    pub range: Range<u64>,
    /// The reason.
    pub reason: LossReason,
}

/// A run of a file's bytes on the volume's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The fork that it belongs to.
    pub fork: Fork,
    /// Offset in the fork, in bytes.
    pub start: u64,
    /// Its bytes on the device that was scanned.
    pub range: Range<u64>,
}

/// A file that a scan found.
pub struct RecoveredFile {
    /// Attributes by its record. Sizes are those that a reader of the file saw.
    pub attributes: Attributes,
    /// Path from the root of the volume with a leading `/`. It begins with `/Orphans/NUMBER/` if the
    /// folder with that number is unknown.
    pub path: String,
    /// True if a folder of its path is unknown.
    pub is_orphan: bool,
    /// True if its number belongs to a file that exists, of which this is an earlier version.
    pub is_earlier_version: bool,
    /// The place of its record.
    pub source: RecordSource,
    /// Offset of its record, in bytes from the start of the device that was scanned.
    pub record_offset: u64,
    /// Transaction of the node with its record, if the format has such numbers.
    pub transaction: Option<u64>,
    /// The degree to which its contents are still there.
    pub certainty: Certainty,
    /// The lost bytes of both forks as they are stored, in ascending order.
    pub losses: Vec<LostRange>,
    /// The places of its bytes.
    pub runs: Vec<FoundRun>,
    /// Extended attributes whose values were found, without those that describe compression.
    pub xattrs: Vec<(String, Vec<u8>)>,
    pub(crate) contents: FoundContents,
}

/// The contents of a file that was found; lost bytes are zeros.
#[derive(Debug, Clone)]
pub(crate) struct FoundContents {
    /// Data fork as stored.
    pub(crate) data: Arc<dyn BlockDevice>,
    /// Resource fork as stored.
    pub(crate) resource: Arc<dyn BlockDevice>,
    /// The attribute that describes compression.
    pub(crate) compression: Option<Vec<u8>>,
    /// Target of a symbolic link, if the format stores it in a record.
    pub(crate) target: Option<String>,
}

impl FoundContents {
    /// No contents.
    pub(crate) fn none() -> Self {
        let empty: Arc<dyn BlockDevice> = Arc::new(Memory::read_only([]));
        Self {
            data: empty.clone(),
            resource: empty,
            compression: None,
            target: None,
        }
    }
}

impl fmt::Debug for RecoveredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecoveredFile")
            .field("path", &self.path)
            .field("id", &self.attributes.id)
            .field("size", &self.attributes.size)
            .field("source", &self.source)
            .field("certainty", &self.certainty)
            .field("losses", &self.losses)
            .finish_non_exhaustive()
    }
}

/// Maximum length of a symbolic link's target in bytes.
const MAX_TARGET: u64 = 4096;

impl RecoveredFile {
    /// Returns the name, the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Opens the contents of a fork as a read-only device; lost bytes are zeros, and compressed
    /// contents are decompressed.
    pub fn open(&self, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let found = &self.contents;
        match (fork, &found.compression) {
            (Fork::Data, Some(value)) => decmpfs::contents(value, || Ok(found.resource.clone()))
                .map_err(|error| error.named(self.path.clone())),
            (Fork::Data, None) => Ok(found.data.clone()),
            (Fork::Resource, Some(_)) => Ok(Arc::new(Memory::read_only([]))),
            (Fork::Resource, None) => Ok(found.resource.clone()),
        }
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self) -> Result<String> {
        if let Some(target) = &self.contents.target {
            return Ok(target.clone());
        }
        let data = &self.contents.data;
        let len = data.info().len.min(MAX_TARGET);
        let mut bytes = vec![0; bandsaw_core::size::to_usize(len)];
        data.read_at(0, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the number of lost bytes of both forks as they are stored.
    pub fn lost_bytes(&self) -> u64 {
        let len = |lost: &LostRange| lost.range.end - lost.range.start;
        self.losses.iter().map(len).fold(0, u64::saturating_add)
    }
}

/// Sets the sizes of attributes to those of the decompressed contents.
pub(crate) fn apply_compression(attributes: &mut Attributes, value: &[u8]) {
    if let Some(compression) = Compression::parse(value) {
        (attributes.size, attributes.resource_size) = (compression.size, 0);
    }
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct RecoverySummary {
    /// Number of files that were passed on.
    pub files: u64,
    /// Bytes that were searched for records.
    pub searched: u64,
    /// True if the trees of the volume could not be read as a whole, so that existing files are among
    /// those that were found.
    pub is_damaged: bool,
    /// Number of nodes whose volume is unknown, and which were not used.
    pub unassigned_nodes: u64,
    /// Damage, and places that could not be read.
    pub problems: Vec<bandsaw_core::Error>,
}

/// Returns the path `/FOLDER/NAME`; `folder` is empty for the root. Zero bytes of a name are left out,
/// so that every path can be shown and made.
pub(crate) fn join(folder: &str, name: &str) -> String {
    let name: String = name
        .chars()
        .filter(|char| !matches!(char, '\0' | '\u{2400}'))
        .map(|char| if char == '/' { ':' } else { char })
        .collect();
    // Names come from damaged records, and the path may be created on the host: no name may lead elsewhere.
    let name = match &*name {
        "" => "unnamed",
        "." => "dot",
        ".." => "dot dot",
        name => name,
    };
    format!("{folder}/{name}")
}
