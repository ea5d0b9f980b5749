//! Extended headers of a member: pax records of POSIX, GNU tar and libarchive.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, PAD};
use base64::engine::{DecodePaddingMode, Engine};

use super::{CREATION_TIME, FILE_FLAGS, FLAG_NAMES, LIBARCHIVE_XATTR, SCHILY_XATTR};
use crate::address::percent_decoded;
use crate::fs::Timestamp;

/// The error is the reason why a record is invalid.
type Result<T> = std::result::Result<T, &'static str>;

/// The value of an extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Bytes(Vec<u8>),
    /// A long value: its offset in the archive, and its length in bytes.
    At(u64, u64),
}

/// Longest value read into memory, in bytes. Longer values stay in the archive.
const MAX_IN_HAND: usize = 4096;
/// Properties of the next member from extended headers.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtendedHeaders {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) len: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Option<Timestamp>,
    pub(super) accessed: Option<Timestamp>,
    pub(super) changed: Option<Timestamp>,
    pub(super) created: Option<Timestamp>,
    pub(super) flags: u32,
    pub(super) xattrs: Vec<(String, Value)>,
    pub(super) sparse: PaxSparse,
}

/// GNU tar's sparse files in pax archives, of which there are three versions.
#[derive(Debug, Clone, Default)]
pub(super) struct PaxSparse {
    pub(super) is_sparse: bool,
    /// Version 1.0: the map is at the beginning of the contents.
    pub(super) map_in_contents: bool,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_len: Option<u64>,
    /// Versions 0.0 and 0.1: offset and length in turn.
    pub(super) map: Vec<u64>,
}

impl ExtendedHeaders {
    /// Applies one pax record, whose value is at offset `place` of the archive.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], place: u64) -> Result<()> {
        let Ok(key) = std::str::from_utf8(key) else {
            return Ok(());
        };
        let number = || {
            std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let id = || {
            number()
                .and_then(|number| u32::try_from(number).ok())
                .ok_or("expected a number")
        };
        let size = || number().ok_or("expected a number");
        let date = || parse_date(value).ok_or("expected a date");
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.len = Some(size()?),
            "uid" => self.uid = Some(id()?),
            "gid" => self.gid = Some(id()?),
            "mtime" => self.modified = Some(date()?),
            "atime" => self.accessed = Some(date()?),
            "ctime" => self.changed = Some(date()?),
            CREATION_TIME => self.created = Some(date()?),
            FILE_FLAGS => self.flags = parse_flags(value),
            "GNU.sparse.major"
            | "GNU.sparse.size"
            | "GNU.sparse.map"
            | "GNU.sparse.realsize"
            | "GNU.sparse.name"
            | "GNU.sparse.offset"
            | "GNU.sparse.numbytes" => self.sparse.set(key, value, size)?,
            _ => self.set_xattr(key, value, place)?,
        }
        Ok(())
    }

    fn set_xattr(&mut self, key: &str, value: &[u8], place: u64) -> Result<()> {
        if let Some(name) = key.strip_prefix(SCHILY_XATTR) {
            // GNU tar's escape of a `=` in a key.
            let name = name.replace("%3D", "=").replace("%25", "%");
            let value = match value.len() {
                0..=MAX_IN_HAND => Value::Bytes(value.to_vec()),
                len => Value::At(place, len as u64),
            };
            self.put_xattr(name, value);
        } else if let Some(name) = key.strip_prefix(LIBARCHIVE_XATTR) {
            let name = percent_decoded(name).ok_or("expected a percent-encoded name")?;
            let value = decode_base64(value).ok_or("expected base64")?;
            // libarchive writes both forms of each attribute.
            if self.xattrs.iter().all(|(known, _)| *known != name) {
                self.put_xattr(name, Value::Bytes(value));
            }
        }
        Ok(())
    }

    fn put_xattr(&mut self, name: String, value: Value) {
        self.xattrs.retain(|(known, _)| *known != name);
        self.xattrs.push((name, value));
    }
}

impl PaxSparse {
    fn set(&mut self, key: &str, value: &[u8], size: impl Fn() -> Result<u64>) -> Result<()> {
        self.is_sparse = true;
        match key {
            "GNU.sparse.major" => self.map_in_contents = size()? == 1,
            "GNU.sparse.size" | "GNU.sparse.realsize" => self.real_len = Some(size()?),
            "GNU.sparse.name" => self.name = Some(value.to_vec()),
            "GNU.sparse.map" => {
                let numbers = value
                    .split(|byte| *byte == b',')
                    .filter(|digits| !digits.is_empty());
                let numbers = numbers.map(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
                self.map = numbers
                    .collect::<Option<_>>()
                    .ok_or("expected a list of numbers")?;
            }
            _ => self.map.push(size()?),
        }
        Ok(())
    }
}

/// Parses seconds with an optional fraction, possibly negative.
fn parse_date(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits = fraction.get(..fraction.len().min(9))?;
    let nanos: u32 = if digits.is_empty() {
        0
    } else {
        format!("{digits:0<9}").parse().ok()?
    };
    // Half a second before the epoch is -0.5: whole seconds rounded down, and positive nanoseconds.
    if whole.starts_with('-') && nanos > 0 {
        return Some(Timestamp {
            seconds: seconds.checked_sub(1)?,
            nanos: 1_000_000_000 - nanos,
        });
    }
    Some(Timestamp { seconds, nanos })
}

fn parse_flags(value: &[u8]) -> u32 {
    let names = value.split(|byte| *byte == b',');
    let known = |name: &[u8]| {
        FLAG_NAMES
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map_or(0, |(_, flag)| *flag)
    };
    names.fold(0, |flags, name| flags | known(name))
}

/// Decodes base 64 with or without the `=` at the end, which libarchive omits.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = PAD
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet::STANDARD, LENIENT)
        .decode(text)
        .ok()
}
