//! Differences between two folders of two volumes.
//!
//! The comparison of backup dates in `bandsaw-backups` trusts sizes and times, and lists a folder that was added as
//! one line; this one compares contents and finds renamed files.

mod fields;
pub(crate) mod page;
mod renames;

use std::collections::HashSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, NodeId};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::walk::{MAX_DEPTH, sorted};

/// Maximum number of pairs of folders: hard links of folders can make a small volume endless.
const MAX_PAIRS: usize = 50_000_000;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// It exists in the second folder only.
    Added,
    /// It exists in the first folder only.
    Removed,
    /// It exists in both, and contents or metadata differ.
    Changed,
    /// It has another path in the second folder.
    Renamed,
}

impl DifferenceKind {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Renamed => "renamed",
        }
    }
}

/// A part of a file that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "their names")]
pub enum Field {
    Contents,
    ResourceFork,
    Target,
    Xattrs,
    Mode,
    Owner,
    Group,
    Flags,
    Device,
    Created,
    Modified,
    Changed,
    Accessed,
    BackedUp,
}

impl Field {
    /// All parts, in the order in which they are named.
    pub const ALL: [Self; 14] = [
        Self::Contents,
        Self::ResourceFork,
        Self::Target,
        Self::Xattrs,
        Self::Mode,
        Self::Owner,
        Self::Group,
        Self::Flags,
        Self::Device,
        Self::Created,
        Self::Modified,
        Self::Changed,
        Self::Accessed,
        Self::BackedUp,
    ];

    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contents => "contents",
            Self::ResourceFork => "resource_fork",
            Self::Target => "target",
            Self::Xattrs => "xattrs",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Group => "group",
            Self::Flags => "flags",
            Self::Device => "device",
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Changed => "changed",
            Self::Accessed => "accessed",
            Self::BackedUp => "backed_up",
        }
    }

    /// Returns true for contents, false for metadata.
    pub const fn is_contents(self) -> bool {
        matches!(self, Self::Contents | Self::ResourceFork | Self::Target)
    }
}

impl std::str::FromStr for Field {
    type Err = Error;

    /// Parses the name for programs, with hyphens or underscores.
    fn from_str(text: &str) -> Result<Self> {
        let name = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|field| field.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid("field", format!("expected one of {known}")).named(text)
        })
    }
}

/// The evidence for the identity of a renamed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameEvidence {
    /// The same number and creation time, in two states of one volume.
    FileNumber,
    /// Equal contents of equal size.
    Contents,
}

impl RenameEvidence {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileNumber => "file_number",
            Self::Contents => "contents",
        }
    }
}

/// A difference between two folders.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its kind.
    pub kind: DifferenceKind,
    /// Path from the compared folder, in the second one unless it was removed. `/` for the folder itself.
    pub path: String,
    /// Path in the first folder of a renamed object.
    pub old_path: Option<String>,
    /// Kind of the object.
    pub node: FileKind,
    /// Parts that differ, of an object that is in both.
    pub fields: Vec<Field>,
    /// Bytes of the data fork in the first folder, of a file.
    pub old_size: Option<u64>,
    /// Bytes of the data fork in the second folder, of a file.
    pub new_size: Option<u64>,
    /// The evidence for a renamed object.
    pub evidence: Option<RenameEvidence>,
}

/// The differences between two folders.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The differences, sorted by path.
    pub differences: Vec<Difference>,
    /// Objects that cannot be read, and were not compared.
    pub problems: Vec<Error>,
    /// Number of objects in both folders that were compared.
    pub compared: u64,
}

/// A folder or file to compare, with everything below it.
#[derive(Debug, Clone, Copy)]
pub struct ComparedFolder<'a> {
    /// Its volume.
    pub fs: &'a dyn FileSystem,
    /// Its attributes.
    pub attributes: &'a Attributes,
}

/// The choices of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Parts that are not compared.
    pub ignored: Vec<Field>,
    /// True to trust equal size and modification time, as rsync does.
    pub quick: bool,
}

/// Compares two objects and everything below them. Folders are compared one by one; memory depends on the
/// size of the largest folders, the number of folders and the number of differences.
///
/// Contents are compared if sizes are equal and the bytes are not in the same place of the same file.
/// Objects that cannot be read are among the problems, and never reported as added or removed.
pub fn diff(
    old: ComparedFolder<'_>,
    new: ComparedFolder<'_>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Comparison> {
    let mut walk = Walk {
        old,
        new,
        options,
        progress,
        removed: Vec::new(),
        added: Vec::new(),
        seen: HashSet::new(),
        result: Comparison::default(),
    };
    let info = new.fs.volume();
    progress.stage("compare", info.total.saturating_sub(info.free));
    walk.both("", 0, old.attributes, new.attributes)?;
    renames::find(&mut walk)?;
    let mut result = walk.result;
    result
        .differences
        .sort_by(|a, b| parts(&a.path).cmp(parts(&b.path)).then(a.kind.cmp(&b.kind)));
    Ok(result)
}

/// Returns the names of a path, which sort it as folders are walked.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// An object that one side has.
#[derive(Debug, Clone)]
struct Single {
    path: String,
    depth: usize,
    of: Attributes,
}

struct Walk<'a> {
    old: ComparedFolder<'a>,
    new: ComparedFolder<'a>,
    options: &'a Options,
    progress: &'a dyn Progress,
    removed: Vec<Single>,
    added: Vec<Single>,
    /// Pairs of folders that were compared.
    seen: HashSet<(NodeId, NodeId)>,
    result: Comparison,
}

/// Two folders that are compared.
struct Level {
    path: String,
    depth: usize,
    old: Peekable<IntoIter<Entry>>,
    new: Peekable<IntoIter<Entry>>,
}

impl Walk<'_> {
    /// Compares two objects of the same path, with everything below them.
    fn both(&mut self, path: &str, depth: usize, old: &Attributes, new: &Attributes) -> Result<()> {
        let mut levels = Vec::new();
        levels.extend(self.pair(path.to_owned(), depth, old, new)?);
        while let Some(level) = levels.last_mut() {
            self.progress.check()?;
            let name =
                |side: &mut Peekable<IntoIter<Entry>>| side.peek().map(|one| one.name.clone());
            let (old, new) = match (name(&mut level.old), name(&mut level.new)) {
                (None, None) => {
                    levels.pop();
                    continue;
                }
                (Some(a), Some(b)) if a == b => (level.old.next(), level.new.next()),
                (Some(a), Some(b)) if a < b => (level.old.next(), None),
                (Some(_), None) => (level.old.next(), None),
                _ => (None, level.new.next()),
            };
            let Some(named) = old.as_ref().or(new.as_ref()) else {
                continue;
            };
            let path = format!("{}/{}", level.path, named.name);
            let depth = level.depth + 1;
            match (old, new) {
                (Some(old), Some(new)) if old.attributes.kind == new.attributes.kind => {
                    let pair = self.pair(path, depth, &old.attributes, &new.attributes)?;
                    levels.extend(pair);
                }
                (old, new) => {
                    let single = |entry: Entry| Single {
                        path: path.clone(),
                        depth,
                        of: entry.attributes,
                    };
                    self.removed.extend(old.map(single));
                    self.added.extend(new.map(single));
                }
            }
        }
        Ok(())
    }

    /// Compares two objects of one kind, and returns the contents of folders.
    fn pair(
        &mut self,
        path: String,
        depth: usize,
        old: &Attributes,
        new: &Attributes,
    ) -> Result<Option<Level>> {
        if depth > MAX_DEPTH {
            return Err(Error::limit(
                LAYER,
                format!("folders are nested more than {MAX_DEPTH} deep"),
            )
            .named(path));
        }
        self.result.compared += 1;
        let shown = if path.is_empty() { "/" } else { &path };
        let fields = self.compare(shown, old, new)?;
        if !fields.is_empty() || old.kind != new.kind {
            let mut found = difference(DifferenceKind::Changed, shown, Some(old), Some(new));
            found.fields = fields;
            self.result.differences.push(found);
        }
        let is_folder = old.kind == FileKind::Folder && new.kind == FileKind::Folder;
        if !is_folder || !self.seen.insert((old.id, new.id)) {
            return Ok(None);
        }
        if self.seen.len() > MAX_PAIRS {
            return Err(
                Error::limit(LAYER, format!("more than {MAX_PAIRS} folders to compare"))
                    .named(path),
            );
        }
        let (old, new) = (sorted(self.old.fs, old.id), sorted(self.new.fs, new.id));
        match (old, new) {
            (Ok(old), Ok(new)) => Ok(Some(Level {
                path,
                depth,
                old: old.into_iter().peekable(),
                new: new.into_iter().peekable(),
            })),
            // The names of one side alone say nothing of what was added or removed.
            (old, new) => {
                for error in [old.err(), new.err()].into_iter().flatten() {
                    self.problem(error, &path)?;
                }
                Ok(None)
            }
        }
    }

    fn problem(&mut self, error: Error, path: &str) -> Result<()> {
        if error.kind() == Kind::Cancelled {
            return Err(error);
        }
        self.result.problems.push(error.named(path));
        Ok(())
    }
}

/// Returns a difference without fields.
fn difference(
    kind: DifferenceKind,
    path: &str,
    old: Option<&Attributes>,
    new: Option<&Attributes>,
) -> Difference {
    let size = |of: Option<&Attributes>| {
        let of = of.filter(|of| of.kind != FileKind::Folder);
        of.map(|of| of.size)
    };
    Difference {
        kind,
        path: path.to_owned(),
        old_path: None,
        node: new.or(old).map_or(FileKind::File, |of| of.kind),
        fields: Vec::new(),
        old_size: size(old),
        new_size: size(new),
        evidence: None,
    }
}
