//! The parts of FAT and of exFAT that differ when a volume is changed.

use std::collections::HashSet;
use std::fmt;
use std::ops::{ControlFlow, Range};

use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Result};

use crate::clusters::{ClusterSpace, DirectoryPlace, ENTRY_LEN};
use crate::{Attributes, Change, NewNode, Timestamp, VolumeInfo};

/// The bytes of an entry of a directory.
pub(crate) type EntryBytes = [u8; ENTRY_LEN];

/// The clusters and the length of an object, as its entry has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// First cluster; 0: none.
    pub(crate) first: u32,
    /// Length in bytes; 0 for folders of FAT.
    pub(crate) len: u64,
    /// Bytes that are stored; those after them read as zeros.
    pub(crate) valid: u64,
    /// True if the clusters are contiguous and not linked by the table.
    pub(crate) is_contiguous: bool,
}

/// The entries of an object in its folder.
#[derive(Debug, Clone)]
pub(crate) struct FoundSet<R> {
    pub(crate) name: String,
    /// Offset of the [main entry](WriteFormat::main_entry) on the volume, in bytes.
    pub(crate) main: u64,
    /// Numbers of its entries within the folder.
    pub(crate) slots: Range<u64>,
    pub(crate) raw: R,
}

/// Calls for each object of a folder.
pub(crate) type EachSet<'a, R> = &'a mut dyn FnMut(FoundSet<R>) -> Result<ControlFlow<()>>;

/// A format whose files are chains of clusters.
pub(crate) trait WriteFormat: fmt::Debug + Send + Sync + 'static {
    /// The fixed part of an object's entries: everything but its name.
    type Raw: Copy + fmt::Debug + Send + Sync + 'static;

    /// The layer in errors.
    const LAYER: &'static str;
    /// Maximum length of a file in bytes.
    const MAX_FILE: u64;
    /// Maximum length of a folder in bytes.
    const MAX_FOLDER: u64;
    /// True if clusters can be contiguous without links in the table, and folders have lengths.
    const HAS_CONTIGUOUS: bool;

    /// Returns the clusters of the volume. Its device is the buffer with the changes.
    fn space(&self) -> &ClusterSpace;

    /// Returns the name of the format for users.
    fn name(&self) -> &'static str;

    /// Returns the properties of the volume that do not change.
    fn info(&self) -> VolumeInfo;

    /// Returns the place of the root folder.
    fn root(&self) -> DirectoryPlace;

    /// Returns true if a byte of the volume belongs to the table or the bitmap.
    fn is_allocation(&self, offset: u64) -> bool;

    /// Stores entries of the table, from that of cluster `first` on, in all of its copies.
    fn store_links(&self, first: u64, entries: &[u32]) -> Result<()>;

    /// Forgets what is known of the table.
    fn forget_links(&self);

    /// Marks clusters as used, apart from their links.
    fn claim(&self, clusters: Range<u64>) -> Result<()>;

    /// Marks clusters as free.
    fn release(&self, clusters: Range<u64>) -> Result<()>;

    /// Writes the marks of a volume that is being changed, by `device`, before anything else is written.
    fn mark_dirty(&self, device: &dyn BlockDevice) -> Result<()>;

    /// Writes the marks of a clean volume with this number of free clusters, the next search of which begins
    /// at `next`. Flushes in between.
    fn mark_clean(&self, device: &dyn BlockDevice, free: u64, next: u64) -> Result<()>;

    /// Calls `each` for the objects of a folder. Fails if entries cannot be read.
    fn scan(&self, place: &DirectoryPlace, each: EachSet<'_, Self::Raw>) -> Result<()>;

    /// Returns the object whose main entry begins at a byte of the volume, and the offsets of its entries,
    /// as far as they hold more than the name. `None`: there is none.
    fn locate(&self, main: u64) -> Result<Option<(Self::Raw, Vec<u64>)>>;

    /// Returns the number of the entry among `count` that identifies an object.
    fn main_entry(&self, count: usize) -> usize;

    /// Returns the place of a folder.
    fn folder_place(&self, raw: &Self::Raw) -> Result<DirectoryPlace>;

    /// Returns true for a folder.
    fn is_folder(&self, raw: &Self::Raw) -> bool;

    /// Returns the clusters and the length.
    fn stream(&self, raw: &Self::Raw) -> Stream;

    /// Sets the clusters and the length.
    fn set_stream(&self, raw: &mut Self::Raw, stream: Stream);

    /// Returns the attributes of an object, without its number and sizes.
    fn attributes(&self, raw: &Self::Raw) -> Attributes;

    /// Returns a new object without clusters.
    fn new_raw(&self, new: &NewNode, is_folder: bool, now: Timestamp) -> Self::Raw;

    /// Changes dates and flags.
    fn apply(&self, raw: &mut Self::Raw, change: &Change);

    /// Records a change of the contents.
    fn touch(&self, raw: &mut Self::Raw, now: Timestamp);

    /// Returns the short name, on volumes that have them besides the long ones.
    fn short_name(&self, raw: &Self::Raw) -> Option<[u8; 11]>;

    /// Returns a form of a name that is equal for names that are the same on the volume.
    fn key(&self, name: &str) -> Vec<u16>;

    /// Returns the entries of an object with a name. `short_names` are those of its folder.
    fn new_entries(
        &self,
        raw: &Self::Raw,
        name: &str,
        short_names: HashSet<[u8; 11]>,
    ) -> Result<Vec<EntryBytes>>;

    /// Changes the entries at [`locate`](Self::locate)'s offsets to those of a changed object, whose name
    /// stays.
    fn update_entries(&self, raw: &Self::Raw, entries: &mut [EntryBytes]);

    /// Returns the beginning of a new folder, which is zero otherwise.
    fn new_folder(&self, raw: &Self::Raw, parent: u32) -> Vec<EntryBytes>;

    /// Returns the entry of a folder that names its parent, with that of a new parent, and the entry's
    /// offset on the volume.
    fn parent_entry(&self, raw: &Self::Raw, parent: u32) -> Result<Option<(u64, EntryBytes)>>;

    /// Returns an entry as it is when it is deleted. One that ends the folder does not end it any more.
    fn deleted(&self, entry: EntryBytes) -> EntryBytes;

    /// Returns true for an entry that can be overwritten.
    fn is_free(&self, entry: &EntryBytes) -> bool;
}

/// Fails for names that Windows gives to devices in every folder.
pub(crate) fn check_device_name(name: &str, layer: &'static str, format: &str) -> Result<()> {
    let base = name.split_once('.').map_or(name, |(base, _)| base);
    let base = base.trim_end_matches(' ').to_ascii_uppercase();
    let is_port = |port: &str| {
        base.strip_prefix(port)
            .is_some_and(|number| matches!(number.as_bytes(), [b'1'..=b'9']))
    };
    if matches!(&*base, "AUX" | "CON" | "NUL" | "PRN") || is_port("COM") || is_port("LPT") {
        let message = format!("{format} does not allow the name of a device, such as {base}");
        return Err(Error::unsupported(layer, message).named(name));
    }
    Ok(())
}
