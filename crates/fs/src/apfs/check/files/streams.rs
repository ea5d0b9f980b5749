//! Data streams: their users, and the consistency of their extents (§8.2, §8.5).

use super::{Files, LAYER};
use crate::apfs::check::report::{Report, numbered, wrong};
use crate::apfs::layout::{DataStreamRaw, inode_flags};

/// The state gathered for a stream.
#[derive(Debug, Default)]
pub(super) struct StreamSeen {
    /// The object that uses it first; 0 if none was seen.
    owner: u64,
    /// Reference count in its own record.
    pub(super) recorded: Option<u32>,
    /// Number of inodes that use it.
    inodes: u32,
    attributes: u32,
    size: u64,
    allocated: u64,
    sparse: u64,
    /// True if its users disagree about its size.
    differs: bool,
    uncloned: bool,
    /// End of its extents, their total length, and the length of holes in it, in bytes.
    pub(super) end: u64,
    pub(super) sum: u64,
    pub(super) holes: u64,
    /// True if an extent does not begin at the end of the one before.
    pub(super) gap: bool,
}

impl StreamSeen {
    /// Records the use by the inode `id`.
    pub(super) fn use_by_inode(
        &mut self,
        id: u64,
        stream: &DataStreamRaw,
        sparse: u64,
        flags: u64,
    ) {
        self.differs |= self.inodes > 0 && self.sparse != sparse;
        self.record_use(id, stream);
        (self.sparse, self.inodes) = (sparse, self.inodes.saturating_add(1));
        self.uncloned |= flags & (inode_flags::WAS_CLONED | inode_flags::WAS_EVER_CLONED) == 0;
    }

    /// Records the use by an attribute of object `id`.
    pub(super) fn use_by_attribute(&mut self, id: u64, stream: &DataStreamRaw) {
        self.record_use(id, stream);
        self.attributes = self.attributes.saturating_add(1);
    }

    fn record_use(&mut self, id: u64, stream: &DataStreamRaw) {
        if self.owner == 0 {
            self.owner = id;
        }
        let (size, allocated) = (stream.size.get(), stream.allocated.get());
        let used = self.inodes > 0 || self.attributes > 0;
        self.differs |= used && (self.size, self.allocated) != (size, allocated);
        (self.size, self.allocated) = (size, allocated);
    }

    /// Returns the first damage, and the first deviation that readers tolerate.
    fn problems(&self) -> (Option<String>, Option<String>) {
        let Self {
            size,
            allocated,
            end,
            sum,
            holes,
            inodes,
            attributes,
            recorded,
            ..
        } = self;
        let damage = match () {
            () if self.gap || sum != end => Some("its extents overlap or leave a gap".to_owned()),
            () if end < size => Some(format!(
                "has {size} bytes of contents, but its extents have only {end}"
            )),
            () if *inodes > 0 && *attributes > 0 => Some(
                "is used by an inode and by an attribute, expected only one of them".to_owned(),
            ),
            () if *attributes > 1 => {
                Some(format!("is used by {attributes} attributes, expected one"))
            }
            () if recorded.is_some_and(|recorded| recorded < *inodes) => Some(format!(
                "has a reference count of {}, but {inodes} inodes use it",
                recorded.unwrap_or(0)
            )),
            () => None,
        };
        let warning = match () {
            () if end != allocated => Some(format!(
                "has extents for {end} bytes, but records {allocated}"
            )),
            () if *inodes > 0 && recorded.is_none() => Some("has no reference count".to_owned()),
            () if recorded.is_some_and(|recorded| recorded > *inodes) => Some(format!(
                "has a reference count of {}, but {inodes} inodes use it",
                recorded.unwrap_or(0)
            )),
            () if *inodes > 0 && *holes != self.sparse => Some(format!(
                "has {holes} bytes of holes, but records {}",
                self.sparse
            )),
            () if *inodes > 1 && self.uncloned => {
                Some("is shared by several inodes, but one of them has no clone flag".to_owned())
            }
            () if self.differs => Some("its inodes record different sizes".to_owned()),
            () => None,
        };
        (damage, warning)
    }
}

impl Files {
    /// Returns the object that uses a stream, or the stream's number if none was seen.
    pub(super) fn owner_of(&self, stream: u64) -> u64 {
        let owner = self.streams.get(&stream).map_or(0, |stream| stream.owner);
        if owner == 0 { stream } else { owner }
    }

    pub(super) fn check_streams(&mut self, report: &mut Report<'_>) {
        let streams = std::mem::take(&mut self.streams);
        let mut ids: Vec<_> = streams.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(stream) = streams.get(&id) else {
                continue;
            };
            if stream.inodes == 0 && stream.attributes == 0 {
                report.warning(wrong(LAYER, format!("stream {id:#x} is not used")));
                continue;
            }
            let (damage, warning) = stream.problems();
            if let Some(message) = damage {
                report.damage(
                    wrong(LAYER, format!("stream {id:#x} {message}")).about(numbered(stream.owner)),
                );
            }
            if let Some(message) = warning {
                report.warning(
                    wrong(LAYER, format!("stream {id:#x} {message}")).about(numbered(stream.owner)),
                );
            }
        }
    }
}
