//! The objects that exist, and the leaves that hold them.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::btree_node::record_offset;
use crate::hfsplus::HfsPlus;
use crate::hfsplus::layout::{CatalogKey, CatalogRecord, NodeDescriptorRaw};
use bandsaw_core::Result;
use bandsaw_core::progress::Progress;

/// The numbers of all files and folders of a volume, and the leaves of its catalog.
#[derive(Debug, Default)]
pub(super) struct LiveObjects {
    /// In ascending order.
    ids: Vec<u32>,
    /// In ascending order.
    leaves: Vec<u32>,
}

impl LiveObjects {
    /// Reads the catalog as a whole.
    pub(super) fn read(volume: &HfsPlus, progress: &dyn Progress) -> Result<Self> {
        let mut live = Self::default();
        let mut cursor = volume.catalog.tree().first()?;
        while let Some(record) = cursor.next()? {
            let object = CatalogKey::split(record).and_then(|(_, data)| CatalogRecord::parse(data));
            match object {
                Some(CatalogRecord::File(file)) => live.ids.push(file.file_id.get()),
                Some(CatalogRecord::Folder(folder)) => live.ids.push(folder.folder_id.get()),
                _ => {}
            }
            let leaf = cursor.node_number();
            if live.leaves.last() != Some(&leaf) {
                progress.check()?;
                live.leaves.push(leaf);
            }
        }
        live.ids.sort_unstable();
        live.leaves.sort_unstable();
        Ok(live)
    }

    /// Returns true if a file or folder with this number exists.
    pub(super) fn has(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Returns the unused bytes of a node if it is a leaf of the catalog.
    pub(super) fn slack(&self, number: u32, node: &[u8]) -> Option<Range<usize>> {
        self.leaves.binary_search(&number).ok()?;
        let (head, _) = NodeDescriptorRaw::read_from_prefix(node).ok()?;
        let records = head.record_count.get();
        let start = record_offset(node, records)?;
        let end = node.len().checked_sub(2 * (usize::from(records) + 1))?;
        (start <= end).then_some(start..end)
    }
}
