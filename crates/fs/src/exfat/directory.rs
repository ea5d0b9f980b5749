//! The entries of a directory in sets: that of a file, its clusters, and its name.

use bandsaw_core::Result;
use zerocopy::FromBytes;

use super::layout::{EntryRaw, FileRaw, LabelRaw, NameRaw, StreamRaw, entry, set_sum};
use crate::clusters::{ClusterSpace, DirectoryPlace, DirectoryReader, ENTRY_LEN, shown};

/// The entries of a file or folder.
#[derive(Debug, Clone)]
pub(super) struct EntrySet {
    /// Offset of the first entry on the volume, in bytes.
    pub(super) offset: u64,
    /// Number of its first entry within its directory.
    pub(super) slot: u64,
    pub(super) file: FileRaw,
    pub(super) stream: StreamRaw,
    /// Units of the name, as many as the set says.
    pub(super) units: Vec<u16>,
    /// Clusters of extensions by vendors.
    pub(super) others: Vec<StreamRaw>,
    /// The error about a set that can be read nevertheless.
    pub(super) fault: Option<&'static str>,
}

impl EntrySet {
    /// Returns the name as it is shown.
    pub(super) fn name(&self) -> String {
        shown(&String::from_utf16_lossy(&self.units))
    }
}

/// Something in a directory.
#[derive(Debug)]
pub(super) enum DirectoryItem {
    Set(Box<EntrySet>),
    Bitmap(EntryRaw),
    Upcase(EntryRaw),
    Label(LabelRaw),
    /// Entries that cannot be read, at a byte of the volume, and why.
    Unreadable(u64, &'static str),
}

/// A reader of a directory.
#[derive(Debug)]
pub(super) struct Items<'a> {
    reader: DirectoryReader<'a>,
    /// The entry that ended a set before its end.
    pending: Option<(u64, [u8; ENTRY_LEN])>,
}

impl<'a> Items<'a> {
    pub(super) fn new(space: &'a ClusterSpace, place: &DirectoryPlace) -> Result<Self> {
        Ok(Self {
            reader: DirectoryReader::new(space, place)?,
            pending: None,
        })
    }

    /// Returns the next item; `None` at the end of the directory.
    pub(super) fn read_next(&mut self) -> Result<Option<DirectoryItem>> {
        loop {
            let next = match self.pending.take() {
                Some(pending) => Some(pending),
                None => self.reader.read_next()?,
            };
            let Some((offset, bytes)) = next else {
                return Ok(None);
            };
            let item = match bytes[0] {
                entry::END => return Ok(None),
                kind if kind & entry::IN_USE == 0 => continue,
                entry::FILE => self.read_set(offset, &bytes)?,
                entry::BITMAP => EntryRaw::read_from_bytes(&bytes)
                    .ok()
                    .map(DirectoryItem::Bitmap),
                entry::UPCASE => EntryRaw::read_from_bytes(&bytes)
                    .ok()
                    .map(DirectoryItem::Upcase),
                entry::LABEL => LabelRaw::read_from_bytes(&bytes)
                    .ok()
                    .map(DirectoryItem::Label),
                kind if kind & entry::SECONDARY != 0 => Some(DirectoryItem::Unreadable(
                    offset,
                    "an entry belongs to no file",
                )),
                kind if kind & entry::BENIGN != 0 => continue,
                _ => Some(DirectoryItem::Unreadable(
                    offset,
                    "an entry of an unknown kind, which readers must not ignore",
                )),
            };
            if let Some(item) = item {
                return Ok(Some(item));
            }
        }
    }

    /// Reads the rest of a set.
    fn read_set(&mut self, offset: u64, first: &[u8; ENTRY_LEN]) -> Result<Option<DirectoryItem>> {
        let Ok(file) = FileRaw::read_from_bytes(first) else {
            return Ok(None);
        };
        let slot = self.reader.position() - 1;
        let unreadable = |why| Ok(Some(DirectoryItem::Unreadable(offset, why)));
        let (mut stream, mut others, mut units) = (None, Vec::new(), Vec::new());
        let mut sum = set_sum(0, first, true);
        let mut fault = None;
        for number in 0..file.others {
            let Some((at, bytes)) = self.reader.read_next()? else {
                return unreadable("the entries of a file are cut off");
            };
            let kind = bytes[0];
            if kind & (entry::IN_USE | entry::SECONDARY) != entry::IN_USE | entry::SECONDARY {
                // The next set, or the end, begins here.
                self.pending = Some((at, bytes));
                return unreadable("a file has fewer entries than its first one says");
            }
            sum = set_sum(sum, &bytes, false);
            match kind {
                entry::STREAM if number == 0 => stream = StreamRaw::read_from_bytes(&bytes).ok(),
                entry::NAME if stream.is_some() => {
                    if let Ok(part) = NameRaw::read_from_bytes(&bytes) {
                        units.extend(part.units.iter().map(|unit| unit.get()));
                    }
                }
                entry::VENDOR_CLUSTERS => others.extend(StreamRaw::read_from_bytes(&bytes)),
                kind if kind & entry::BENIGN != 0 => {}
                _ => fault = Some("the set has entries in the wrong order, or of an unknown kind"),
            }
        }
        let Some(stream) = stream else {
            return unreadable("a file has no entry for its clusters");
        };
        let name_len = usize::from(stream.name_len);
        if name_len == 0 || units.len() < name_len {
            fault = Some("the name is shorter than it should be");
        }
        units.truncate(name_len);
        if sum != file.sum.get() {
            fault = Some("checksum mismatch of the entries");
        }
        Ok(Some(DirectoryItem::Set(Box::new(EntrySet {
            offset,
            slot,
            file,
            stream,
            units,
            others,
            fault,
        }))))
    }
}
