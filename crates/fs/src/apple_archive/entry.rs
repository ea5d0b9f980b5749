//! The header of an entry: fields with a key, a type and a value. The blobs that it announces follow it
//! in the order of their fields.

use std::ops::Range;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Reason, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{EntryHeadRaw, FieldRaw, MAGICS, TimeRaw};
use crate::Timestamp;

/// Maximum number of fields of an entry. Apple defines 33.
const MAX_FIELDS: usize = 256;

/// A range of the stream: the value of a field that is not in the header.
pub(super) type Blob = Range<u64>;

/// The SHA-2 of the contents of a file, by its length, and its place in the stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredHash {
    pub(super) at: u64,
    pub(super) len: usize,
}

/// The fields of an entry that are used.
#[derive(Debug, Default)]
pub(super) struct EntryFields {
    /// `TYP`.
    pub(super) kind: Option<u8>,
    /// `PAT`, without a leading slash; empty for the root.
    pub(super) path: Option<String>,
    /// `LNK`.
    pub(super) link: Option<String>,
    /// `MOD`.
    pub(super) mode: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    /// `FLG`.
    pub(super) flags: Option<u64>,
    /// `DEV`.
    pub(super) device: Option<u64>,
    /// `SIZ`: the length of the contents in bytes.
    pub(super) size: Option<u64>,
    /// `CTM`.
    pub(super) created: Option<Timestamp>,
    /// `MTM`.
    pub(super) modified: Option<Timestamp>,
    /// `BTM`.
    pub(super) backed_up: Option<Timestamp>,
    /// `HLC`: the same for all names of a file.
    pub(super) hard_links: Option<u64>,
    /// `SLC`: the same for all files with the same contents.
    pub(super) same_data: Option<u64>,
    /// `DAT`.
    pub(super) data: Option<Blob>,
    /// `XAT`.
    pub(super) xattrs: Option<Blob>,
    /// `SH2`, `SH3` or `SH5`.
    pub(super) hash: Option<StoredHash>,
    /// True if the entry is an instruction of an update (`YOP`).
    pub(super) is_instruction: bool,
    /// The end of the entry with its blobs in the stream.
    pub(super) end: u64,
}

/// The value of a field.
enum FieldValue<'a> {
    Flag,
    Number(u64),
    Text(&'a [u8]),
    /// Its length in bytes.
    Hash(usize),
    Time(Timestamp),
    /// Its length in bytes.
    Blob(u64),
}

impl EntryFields {
    /// Reads the entry at a byte of the stream. [`Kind::Unsupported`](bandsaw_core::Kind::Unsupported) for a field
    /// of an unknown type, whose length is unknown.
    pub(super) fn read(stream: &dyn BlockDevice, at: u64) -> Result<Self> {
        let len = stream.info().len;
        let cut = || {
            let message = "the archive is truncated within an entry";
            Error::corrupt(LAYER, at, message).because(Reason::Truncated)
        };
        let head_len = size_of::<EntryHeadRaw>();
        if len - at < head_len as u64 {
            return Err(cut());
        }
        let bytes = stream.read_vec(at, head_len)?;
        let head = EntryHeadRaw::read_from_bytes(&bytes).map_err(|_| cut())?;
        if !MAGICS.contains(&head.magic) {
            return Err(Error::corrupt(LAYER, at, "expected an entry (AA01)"));
        }
        let header_len = usize::from(head.length.get());
        let Some(fields_len) = header_len.checked_sub(head_len) else {
            let message = format!("the header of an entry has {header_len} bytes");
            return Err(Error::corrupt(LAYER, at, message));
        };
        if len - at < header_len as u64 {
            return Err(cut());
        }
        let fields_at = at + head_len as u64;
        let fields = stream.read_vec(fields_at, fields_len)?;
        let mut entry = Self {
            end: at + header_len as u64,
            ..Self::default()
        };
        entry.parse(&fields, fields_at)?;
        match entry.end <= len {
            true => Ok(entry),
            false => Err(cut()),
        }
    }

    fn parse(&mut self, mut rest: &[u8], start: u64) -> Result<()> {
        let whole = rest.len();
        let mut seen = Vec::new();
        while !rest.is_empty() {
            let at = start + (whole - rest.len()) as u64;
            let damaged = |message: &'static str| Error::corrupt(LAYER, at, message);
            let (field, after) = FieldRaw::read_from_prefix(rest)
                .map_err(|_| damaged("a field exceeds the header of its entry"))?;
            let (value, len) = value_of(&field, after, at)?;
            if seen.contains(&field.key) {
                return Err(damaged("an entry has a field twice"));
            }
            if seen.len() == MAX_FIELDS {
                let message = format!("an entry has more than {MAX_FIELDS} fields");
                return Err(Error::limit(LAYER, message).at(at));
            }
            seen.push(field.key);
            self.set(&field.key, value, at + size_of::<FieldRaw>() as u64)?;
            rest = &after[len..];
        }
        Ok(())
    }

    /// Takes over the value of a field at a byte of the stream.
    fn set(&mut self, key: &[u8; 3], value: FieldValue<'_>, at: u64) -> Result<()> {
        let blob = match value {
            FieldValue::Blob(len) => {
                let start = self.end;
                self.end = start.checked_add(len).ok_or_else(|| {
                    Error::corrupt(LAYER, at, "the blobs of an entry are too long")
                })?;
                Some(start..self.end)
            }
            _ => None,
        };
        let number = match value {
            FieldValue::Number(number) => Some(number),
            _ => None,
        };
        let time = match value {
            FieldValue::Time(time) => Some(time),
            _ => None,
        };
        let is_expected = match key {
            b"TYP" => {
                self.kind = number.and_then(|number| u8::try_from(number).ok());
                self.kind.is_some()
            }
            b"PAT" => {
                self.path = text(&value, at)?;
                self.path.is_some()
            }
            b"LNK" => {
                self.link = text(&value, at)?;
                self.link.is_some()
            }
            b"MOD" => take(&mut self.mode, number),
            b"UID" => take(&mut self.uid, number),
            b"GID" => take(&mut self.gid, number),
            b"FLG" => take(&mut self.flags, number),
            b"DEV" => take(&mut self.device, number),
            b"SIZ" => take(&mut self.size, number),
            b"HLC" => take(&mut self.hard_links, number),
            b"SLC" => take(&mut self.same_data, number),
            b"CTM" => take(&mut self.created, time),
            b"MTM" => take(&mut self.modified, time),
            b"BTM" => take(&mut self.backed_up, time),
            b"DAT" => take(&mut self.data, blob),
            b"XAT" => take(&mut self.xattrs, blob),
            b"SH2" | b"SH3" | b"SH5" => {
                if let FieldValue::Hash(len @ 32..) = value {
                    self.hash = Some(StoredHash { at, len });
                }
                matches!(value, FieldValue::Hash(32..))
            }
            b"YOP" => {
                self.is_instruction = true;
                true
            }
            _ => true,
        };
        match is_expected {
            true => Ok(()),
            false => {
                let key = String::from_utf8_lossy(key);
                let message = format!("the field {key} has a value of another type");
                Err(Error::corrupt(LAYER, at, message))
            }
        }
    }
}

/// Sets a field, and returns true if there is a value.
fn take<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    *field = value;
    field.is_some()
}

/// Returns a text without the zero bytes at its end.
fn text(value: &FieldValue<'_>, at: u64) -> Result<Option<String>> {
    let FieldValue::Text(bytes) = value else {
        return Ok(None);
    };
    let end = bytes.iter().rposition(|byte| *byte != 0);
    let bytes = &bytes[..end.map_or(0, |last| last + 1)];
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Some(text.to_owned())),
        _ => Err(Error::corrupt(LAYER, at, "a path is not UTF-8")),
    }
}

/// Returns the value of a field, and its length in the header.
fn value_of<'a>(field: &FieldRaw, after: &'a [u8], at: u64) -> Result<(FieldValue<'a>, usize)> {
    let short = || Error::corrupt(LAYER, at, "a field exceeds the header of its entry");
    let number = |len: usize| {
        let bytes = after.get(..len).ok_or_else(short)?;
        let mut padded = [0; 8];
        padded[..len].copy_from_slice(bytes);
        Ok::<_, Error>(u64::from_le_bytes(padded))
    };
    let len = match field.subtype {
        b'*' => 0,
        b'1' => 1,
        b'2' | b'P' | b'A' => 2,
        b'4' | b'F' | b'B' => 4,
        b'8' | b'S' | b'C' => 8,
        b'T' => size_of::<TimeRaw>(),
        b'G' => 20,
        b'H' => 32,
        b'I' => 48,
        b'J' => 64,
        other => {
            let message = format!(
                "the field {} has an unknown type {:?}",
                String::from_utf8_lossy(&field.key),
                char::from(other)
            );
            return Err(Error::unsupported(LAYER, message).at(at));
        }
    };
    if after.len() < len {
        return Err(short());
    }
    Ok(match field.subtype {
        b'*' => (FieldValue::Flag, 0),
        b'1' | b'2' | b'4' | b'8' => (FieldValue::Number(number(len)?), len),
        b'A' | b'B' | b'C' => (FieldValue::Blob(number(len)?), len),
        b'P' => {
            let of_text = to_usize(number(len)?);
            let bytes = after.get(len..len + of_text).ok_or_else(short)?;
            (FieldValue::Text(bytes), len + of_text)
        }
        b'S' | b'T' => (FieldValue::Time(time(&after[..len], at)?), len),
        _ => (FieldValue::Hash(len), len),
    })
}

/// Returns the time in a value of 8 or 12 bytes.
fn time(bytes: &[u8], at: u64) -> Result<Timestamp> {
    let mut padded = [0; size_of::<TimeRaw>()];
    padded[..bytes.len()].copy_from_slice(bytes);
    let raw: TimeRaw = zerocopy::transmute!(padded);
    let time = Timestamp {
        seconds: raw.seconds.get(),
        nanos: raw.nanos.get(),
    };
    match time.nanos < 1_000_000_000 {
        true => Ok(time),
        false => Err(Error::corrupt(LAYER, at, "a time has too many nanoseconds")),
    }
}
