//! Contents that a volume no longer holds after a repair.

use std::fmt;

use bandsaw_core::size::{counted, grouped};

/// Something that a volume held before a change, and does not hold afterwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Path in the volume, from `/`. `object N` for a file or folder that only its number N is
    /// known of.
    pub path: String,
    /// The kind of loss.
    pub what: Lost,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// The lost part of a file or folder, the gravest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// The whole file.
    File,
    /// The folder. Its entries are listed on their own.
    Folder,
    /// Entries of the folder whose names cannot be read; their number, if it is known.
    Entries(Option<u64>),
    /// All contents; their size in bytes, if it is known.
    Contents(Option<u64>),
    /// Contents past `to` bytes, of a file of `from` bytes.
    End {
        /// Size before, in bytes.
        from: u64,
        /// Size afterwards, in bytes.
        to: u64,
    },
    /// Either these contents or those of another file that states the same blocks.
    Shared,
    /// The resource fork past `to` bytes, of `from` bytes.
    Resource {
        /// Size before, in bytes.
        from: u64,
        /// Size afterwards, in bytes.
        to: u64,
    },
    /// Contents of some file in this many bytes of blocks that are marked used, and that no file
    /// states any more.
    Unowned(u64),
    /// An extended attribute, or a part of its value.
    Attribute(String),
    /// Extended attributes whose names cannot be read.
    Attributes,
    /// At most so many extended attributes of any files: neither these nor the names can be read.
    AnyAttributes(u64),
}

impl Lost {
    /// Returns the stable name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Entries(_) => "entries",
            Self::Contents(_) => "contents",
            Self::End { .. } => "end",
            Self::Shared => "shared",
            Self::Resource { .. } => "resource-fork",
            Self::Unowned(_) => "unowned",
            Self::Attribute(_) | Self::Attributes | Self::AnyAttributes(_) => "attributes",
        }
    }

    /// Returns true if nothing of the file or folder is left.
    const fn is_whole(&self) -> bool {
        matches!(self, Self::File | Self::Folder)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("the file"),
            Self::Folder => f.write_str("the folder"),
            Self::Entries(Some(1)) => f.write_str("one entry, whose name cannot be read"),
            Self::Entries(Some(count)) => {
                write!(f, "{count} entries, whose names cannot be read")
            }
            Self::Entries(None) => f.write_str("entries, whose names cannot be read"),
            Self::Contents(Some(bytes)) => {
                write!(f, "its contents of {}", counted(*bytes, "byte", "bytes"))
            }
            Self::Contents(None) => f.write_str("its contents"),
            Self::End { from, to } => write!(
                f,
                "all but {} of its {}",
                grouped(*to),
                counted(*from, "byte", "bytes")
            ),
            Self::Shared => f.write_str("its contents, or those of a file with the same blocks"),
            Self::Resource { from, to: 0 } => {
                write!(
                    f,
                    "its resource fork of {}",
                    counted(*from, "byte", "bytes")
                )
            }
            Self::Resource { from, to } => {
                let from = counted(*from, "byte", "bytes");
                let to = grouped(*to);
                write!(f, "all but {to} of the {from} of its resource fork")
            }
            Self::Unowned(bytes) => {
                write!(
                    f,
                    "{} of contents, in used blocks that belong to no file",
                    counted(*bytes, "byte", "bytes")
                )
            }
            Self::Attribute(name) => write!(f, "its attribute {name}"),
            Self::Attributes => f.write_str("extended attributes"),
            Self::AnyAttributes(1) => {
                f.write_str("an extended attribute of a file that cannot be read")
            }
            Self::AnyAttributes(count) => {
                write!(
                    f,
                    "up to {count} extended attributes of files that cannot be read"
                )
            }
        }
    }
}

/// The losses of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// Contents that the volume certainly held, by path.
    pub certain: Vec<Loss>,
    /// Possible remains of an older state, by path: records in unused nodes, and records
    /// that newer ones contradict.
    pub possible: Vec<Loss>,
}

impl Losses {
    /// Returns true if there are none, not even possible ones.
    pub fn is_empty(&self) -> bool {
        self.certain.is_empty() && self.possible.is_empty()
    }

    /// Sorts the losses by path, and keeps one for each part of a file.
    pub fn sort(&mut self) {
        for list in [&mut self.certain, &mut self.possible] {
            list.sort_unstable();
            list.dedup_by(|later, first| {
                later.path == first.path && (first.what.is_whole() || later.what == first.what)
            });
        }
        let certain = &self.certain;
        let is_certain = |loss: &Loss| {
            let at = certain.partition_point(|other| other.path < loss.path);
            certain.get(at).is_some_and(|other| other.path == loss.path)
        };
        self.possible.retain(|loss| !is_certain(loss));
    }
}
