//! The objects that exist on a volume and in its snapshots.

use crate::apfs::btree::{Key, Tree};
use crate::apfs::layout::{InodeRaw, KeyRest, RecordKey, XattrValue, record_type};
use bandsaw_core::Result;
use bandsaw_core::progress::Progress;

/// The numbers of all objects and streams.
#[derive(Debug, Default)]
pub(super) struct LiveObjects {
    /// In ascending order after [`sort`](Self::sort).
    inodes: Vec<u64>,
    /// Streams whose number is not that of their object, in ascending order.
    streams: Vec<u64>,
}

impl LiveObjects {
    /// Adds all objects of a tree.
    pub(super) fn add(&mut self, tree: &Tree, progress: &dyn Progress) -> Result<()> {
        let mut cursor = tree.first()?;
        let mut count = 0_u64;
        while let Some(record) = cursor.next()? {
            count += 1;
            if count.is_multiple_of(4096) {
                progress.check()?;
            }
            let Key::Record(RecordKey { id, kind, rest }) = record.key else {
                continue;
            };
            match (kind, rest) {
                (record_type::INODE, _) => {
                    self.inodes.push(id.0);
                    if let Some((inode, _)) = InodeRaw::parse(record.value)
                        && inode.private_id.get() != id.0
                    {
                        self.streams.push(inode.private_id.get());
                    }
                }
                (record_type::XATTR, KeyRest::Name(_)) => {
                    if let Some(XattrValue::Stream(stream)) = XattrValue::parse(record.value) {
                        self.streams.push(stream.stream_id.get());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn sort(&mut self) {
        for all in [&mut self.inodes, &mut self.streams] {
            all.sort_unstable();
            all.dedup();
            all.shrink_to_fit();
        }
    }

    /// Returns true if the object exists.
    pub(super) fn has(&self, id: u64) -> bool {
        self.inodes.binary_search(&id).is_ok()
    }

    /// Returns true if the stream belongs to an object that exists.
    pub(super) fn has_stream(&self, id: u64) -> bool {
        self.has(id) || self.streams.binary_search(&id).is_ok()
    }
}
