//! The metadata of an image: a property list in segments. Source: docs/formats/asif.md §5.

use std::fmt::Write;

use plist::{Dictionary, Value};
use uuid::Uuid;
use zerocopy::{IntoBytes, transmute};

use super::geometry::Geometry;
use super::layout::{ChunkEntry, DiskChunk, SEGMENT, Segment, SegmentRaw};
use super::{Asif, MetadataState};
use crate::container::property_list;
use crate::device::regions;
use crate::size::{narrow, to_usize};
use crate::sync::RwLockReadGuard;
use crate::{Error, Kind, Result};

const LAYER: &str = "asif metadata";
/// Maximum length of the list in bytes. macOS writes 351 bytes.
const MAX_BYTES: usize = 4 << 20;
const MAX_SEGMENTS: usize = 64;
const MAX_VALUES: usize = 65_536;
/// Maximum size of its values in memory, in bytes.
const MAX_MEMORY: u64 = 4 * MAX_BYTES as u64;

const INTERNAL: &str = "internal metadata";
const STABLE_UUID: &str = "stable uuid";
const USER: &str = "user metadata";

/// The property list of an image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// An identifier that is constant for the life of the image, unlike the UUID of its header.
    pub stable_uuid: Option<Uuid>,
    /// Properties set by the owner of the image.
    pub user: Dictionary,
    /// All other properties, which are preserved.
    others: Dictionary,
    internal: Dictionary,
}

impl Metadata {
    /// Returns the metadata of a new image.
    pub(super) fn new(stable_uuid: Uuid) -> Self {
        Self {
            stable_uuid: Some(stable_uuid),
            ..Self::default()
        }
    }

    /// Returns the list byte for byte as macOS writes it, which the general XML writer does not.
    pub(super) fn to_xml(&self) -> Result<Vec<u8>> {
        let mut internal = self.internal.clone();
        if let Some(uuid) = self.stable_uuid {
            internal.insert(STABLE_UUID.to_owned(), Value::String(uuid.to_string()));
        }
        let mut all = Dictionary::new();
        all.insert(INTERNAL.to_owned(), Value::Dictionary(internal));
        all.insert(USER.to_owned(), Value::Dictionary(self.user.clone()));
        all.extend(self.others.clone());
        let mut xml = Vec::new();
        let failed = |error: plist::Error| {
            Error::invalid(LAYER, "cannot be written as XML").caused_by(error)
        };
        Value::Dictionary(all)
            .to_writer_xml(&mut xml)
            .map_err(failed)?;
        let text = String::from_utf8_lossy(&xml).replace("<dict />", "<dict/>");
        let mut text = text.trim_end().to_owned();
        let _never = text.write_char('\n');
        Ok(text.into_bytes())
    }

    /// Parses a list, without trailing zeros.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let end = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let text = &bytes[..end];
        let mut others = property_list::parse(LAYER, text, MAX_VALUES, MAX_MEMORY)?;
        let mut take = |key| {
            others
                .remove(key)
                .and_then(Value::into_dictionary)
                .unwrap_or_default()
        };
        let (mut internal, user) = (take(INTERNAL), take(USER));
        let stable_uuid = internal
            .get(STABLE_UUID)
            .and_then(Value::as_string)
            .and_then(|text| Uuid::try_parse(text).ok());
        if stable_uuid.is_some() {
            internal.remove(STABLE_UUID);
        }
        Ok(Self {
            stable_uuid,
            user,
            others,
            internal,
        })
    }
}

/// Reads bytes of a chunk of the disk's address space: chunk, offset within it, buffer.
pub(super) type ReadChunk<'a> = dyn Fn(DiskChunk, u64, &mut [u8]) -> Result<()> + 'a;

/// Reads all segments from `first` on. Returns their chunks and their concatenated data.
pub(super) fn read_segments(
    geometry: &Geometry,
    sectors: u64,
    first: DiskChunk,
    read: &ReadChunk<'_>,
) -> Result<(Vec<DiskChunk>, Vec<u8>)> {
    let (mut chunks, mut data) = (Vec::new(), Vec::new());
    let mut next = Some(first);
    while let Some(chunk) = next {
        let at = check_place(geometry, sectors, chunk)?;
        if chunks.contains(&chunk) || chunks.len() == MAX_SEGMENTS {
            return Err(Error::corrupt(
                LAYER,
                at,
                "the metadata has too many segments, or its segments form a cycle",
            ));
        }
        let mut raw = [0; SEGMENT];
        read(chunk, 0, &mut raw)?;
        let segment = Segment::parse(&transmute!(raw), geometry, at)?;
        check_padding(&segment, chunk, at, read)?;
        let start = data.len();
        if start + segment.data_size as usize > MAX_BYTES {
            return Err(Error::limit(LAYER, format!("metadata exceeds {MAX_BYTES} bytes")).at(at));
        }
        data.resize(start + segment.data_size as usize, 0);
        read(chunk, u64::from(segment.header_size), &mut data[start..])?;
        chunks.push(chunk);
        next = segment.next;
    }
    Ok((chunks, data))
}

/// Checks that a segment is past the end of the disk and addressable. Returns its offset.
fn check_place(geometry: &Geometry, sectors: u64, chunk: DiskChunk) -> Result<u64> {
    let bytes = |sectors: u64| sectors * u64::from(geometry.block);
    match chunk.0.checked_mul(geometry.chunk_bytes()) {
        Some(at)
            if chunk.0 < geometry.disk_chunks()
                && (bytes(sectors)..bytes(geometry.max_sectors)).contains(&at) =>
        {
            Ok(at)
        }
        _ => {
            let expected = format!(
                "segment in chunk {} is not between the disk and the last block",
                chunk.0
            );
            Err(Error::new(Kind::Corrupt, LAYER, expected))
        }
    }
}

/// Checks that the padding is zero, as macOS requires.
fn check_padding(segment: &Segment, chunk: DiskChunk, at: u64, read: &ReadChunk<'_>) -> Result<()> {
    let mut rest = vec![0; segment.header_size as usize - SEGMENT];
    read(chunk, SEGMENT as u64, &mut rest)?;
    match rest.iter().position(|byte| *byte != 0) {
        Some(index) => Err(Error::corrupt(
            LAYER,
            at + (SEGMENT + index) as u64,
            "expected zeros after a segment's header",
        )),
        None => Ok(()),
    }
}

/// Returns the list as one segment: its header, then its data, padded to whole blocks.
pub(super) fn segment(geometry: &Geometry, list: &[u8]) -> Result<Vec<u8>> {
    let header = geometry.header_size();
    let data_size = list.len().next_multiple_of(geometry.block as usize);
    if header + data_size as u64 > geometry.chunk_bytes() {
        let limit = format!(
            "{} bytes of metadata exceed a chunk of {}",
            list.len(),
            geometry.chunk
        );
        return Err(Error::limit(LAYER, limit));
    }
    let head = Segment {
        header_size: narrow(header),
        data_size: narrow(data_size),
        next: None,
    };
    let mut bytes = vec![0; to_usize(header) + data_size];
    let raw: SegmentRaw = head.raw();
    bytes[..SEGMENT].copy_from_slice(raw.as_bytes());
    bytes[to_usize(header)..][..list.len()].copy_from_slice(list);
    Ok(bytes)
}

impl Asif {
    pub(super) fn described(&self) -> RwLockReadGuard<'_, MetadataState> {
        self.described.read()
    }

    /// Returns the metadata of the image.
    pub fn metadata(&self) -> Metadata {
        self.described().metadata.clone()
    }

    pub(super) fn read_metadata(&self, sectors: u64, first: DiskChunk) -> Result<()> {
        let read = |chunk, start, buf: &mut [u8]| self.read_chunk(chunk, start, buf);
        let (chunks, data) = read_segments(&self.geometry, sectors, first, &read)?;
        let metadata = Metadata::parse(&data)?;
        let mut described = self.described.write();
        (described.chunks, described.metadata) = (chunks, metadata);
        Ok(())
    }

    /// Replaces the user metadata, durably and atomically.
    pub fn set_user_metadata(&self, user: Dictionary) -> Result<()> {
        self.check_changeable()?;
        if let Some(why) = &self.described().read_only {
            return Err(Error::new(Kind::ReadOnly, LAYER, why.clone()));
        }
        let _one_at_a_time = self.one_at_a_time()?;
        let metadata = Metadata {
            user,
            ..self.metadata()
        };
        let bytes = segment(&self.geometry, &metadata.to_xml()?)?;
        self.begin_locked()?;
        // The first chunk holds all of the new metadata, and the others only continue the old one: they
        // are removed in a commit of their own, after the new metadata is durable.
        let chunks = self.described().chunks.clone();
        let Some((first, others)) = chunks.split_first() else {
            return Err(Error::unsupported(
                LAYER,
                "the image has no room for metadata",
            ));
        };
        self.failed.record(
            self.replace_chunk(*first, &bytes)
                .and_then(|()| self.drop_chunks(others)),
        )?;
        let mut described = self.described.write();
        (described.chunks, described.metadata) = (vec![*first], metadata);
        Ok(())
    }

    /// Writes a chunk to a newly allocated place. Only one entry changes, so the update is atomic.
    fn replace_chunk(&self, chunk: DiskChunk, bytes: &[u8]) -> Result<()> {
        let place = self.space.allocate()?;
        let at = self.geometry.in_file(place, 0..self.geometry.chunk_bytes());
        regions::blank(&*self.file, at.start + bytes.len() as u64..at.end)?;
        self.file.write_at(at.start, bytes)?;
        // The new place is written before the chunk is locked: no entry refers to it yet.
        let alone = self.units.exclusive(chunk.0);
        let old = self.tables.entry(chunk)?.chunk();
        self.tables
            .set(chunk, ChunkEntry::Full(place), None, &self.space)?;
        old.into_iter().for_each(|old| self.space.release(old));
        drop(alone);
        self.commit(Vec::new())
    }

    /// Removes the segments that are no longer referenced.
    fn drop_chunks(&self, chunks: &[DiskChunk]) -> Result<()> {
        for chunk in chunks {
            let _alone = self.units.exclusive(chunk.0);
            let old = self.tables.entry(*chunk)?.chunk();
            self.tables
                .set(*chunk, ChunkEntry::Uninit, None, &self.space)?;
            old.into_iter().for_each(|old| self.space.release(old));
        }
        if chunks.is_empty() {
            Ok(())
        } else {
            self.commit(Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: docs/formats/asif.md §5, from an image by macOS.
    const BY_MACOS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
        <plist version=\"1.0\">\n<dict>\n\t<key>internal metadata</key>\n\t<dict>\n\t\t<key>stable uuid</key>\n\
        \t\t<string>76433c2b-4294-4c25-a6df-9f690dedf9ff</string>\n\t</dict>\n\t<key>user metadata</key>\n\t<dict/>\n\
        </dict>\n</plist>\n";

    #[test]
    fn a_list_by_macos() {
        let uuid = Uuid::try_parse("76433c2b-4294-4c25-a6df-9f690dedf9ff").unwrap();
        assert_eq!(
            String::from_utf8(Metadata::new(uuid).to_xml().unwrap()).unwrap(),
            BY_MACOS
        );
        assert_eq!(BY_MACOS.len(), 351);
        let padded = [BY_MACOS.as_bytes(), &[0; 161]].concat();
        assert_eq!(Metadata::parse(&padded).unwrap(), Metadata::new(uuid));
    }

    #[test]
    fn unknown_keys_are_kept() {
        let text = BY_MACOS
            .replace(
                "<dict/>",
                "<dict><key>owner</key><string>a &lt;dict /&gt; b</string></dict><key>else</key><integer>3</integer>",
            )
            .replace("\t\t<key>stable", "<key>more</key><true/><key>stable");
        let metadata = Metadata::parse(text.as_bytes()).unwrap();
        assert_eq!(
            metadata.user.get("owner").and_then(Value::as_string),
            Some("a <dict /> b")
        );
        let again = Metadata::parse(&metadata.to_xml().unwrap()).unwrap();
        assert_eq!(again, metadata);
        assert!(
            String::from_utf8(metadata.to_xml().unwrap())
                .unwrap()
                .contains("<key>more</key>")
        );
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Metadata::parse(b"").unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(
            Metadata::parse(b"<plist><array/></plist>")
                .unwrap_err()
                .kind(),
            Kind::Corrupt
        );
        let deep = format!(
            "<plist>{}{}</plist>",
            "<array>".repeat(100_000),
            "</array>".repeat(100_000)
        );
        assert_eq!(
            Metadata::parse(deep.as_bytes()).unwrap_err().kind(),
            Kind::Limit
        );
    }
}
