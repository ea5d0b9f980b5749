//! Names: between UTF-8 and the decomposed UTF-16 of the disk, and the orders in which trees keep
//! them.
//!
//! The rules are macOS's and frozen (`docs/formats/hfsplus.md` §9): neither today's NFD nor today's
//! case mapping is right. Most names are ASCII, so everything here looks for that first.

mod compose;
mod decompose;
mod fold;
mod tables;

use std::cmp::Ordering;

use zerocopy::big_endian::U16;

pub use self::compose::composed;
pub(crate) use self::decompose::redecomposed;
use super::layout::{MAX_ATTRIBUTE_NAME_UNITS, MAX_NAME_UNITS};
use crate::{Error, Kind, Result};

/// Stands for U+0000 in UTF-8.
const NUL_PICTURE: char = '\u{2400}';

/// Appends `name`, a file's name as programs see it, as it lies on disk: decomposed, `/` for `:`,
/// U+0000 for U+2400.
///
/// Refuses an empty name, one with a `/` and one of more than 255 units.
pub(crate) fn encode_name(name: &str, out: &mut Vec<U16>) -> Result<()> {
    const LAYER: &str = "hfs+ file name";
    if name.is_empty() || name.contains('/') {
        return Err(
            Error::new(Kind::Invalid, LAYER, "a name without slashes expected").named(name),
        );
    }
    let start = out.len();
    if name.is_ascii() {
        out.extend(
            name.bytes()
                .map(|byte| U16::new(u16::from(if byte == b':' { b'/' } else { byte }))),
        );
    } else {
        name.chars()
            .for_each(|char| decompose::push(on_disk(char), out));
        decompose::reorder(&mut out[start..]);
    }
    check_units(LAYER, name, out, start, MAX_NAME_UNITS)
}

/// Appends `name`, the name of an extended attribute, as it lies on disk: marks in canonical order
/// and U+0000 for U+2400, but nothing decomposed and no slashes swapped (macOS stores these names
/// as programs give them).
///
/// Refuses an empty name and one of more than 127 units.
pub(crate) fn encode_attribute_name(name: &str, out: &mut Vec<U16>) -> Result<()> {
    const LAYER: &str = "hfs+ attribute name";
    if name.is_empty() {
        return Err(Error::new(
            Kind::Invalid,
            LAYER,
            "a name expected, an empty one found",
        ));
    }
    let start = out.len();
    for char in name.chars() {
        push_units(if char == NUL_PICTURE { '\0' } else { char }, out);
    }
    if !name.is_ascii() {
        decompose::reorder(&mut out[start..]);
    }
    check_units(LAYER, name, out, start, MAX_ATTRIBUTE_NAME_UNITS)
}

fn check_units(
    layer: &'static str,
    name: &str,
    out: &mut Vec<U16>,
    start: usize,
    most: usize,
) -> Result<()> {
    let units = out.len() - start;
    if units <= most {
        return Ok(());
    }
    out.truncate(start);
    let message = format!("{units} UTF-16 units when decomposed, at most {most} possible");
    Err(Error::new(Kind::Limit, layer, message).named(name))
}

/// Appends `name` as it is, `:` and U+2400 swapped but nothing decomposed: what writers other than
/// macOS may have left on disk.
pub(crate) fn encode_verbatim(name: &str, out: &mut Vec<U16>) {
    name.chars().for_each(|char| push_units(on_disk(char), out));
}

/// The character that stands on disk for one of a file's name.
fn on_disk(char: char) -> char {
    match char {
        ':' => '/',
        NUL_PICTURE => '\0',
        char => char,
    }
}

/// The UTF-16 units of one of the volume's own names, as they lie on disk.
pub(crate) fn units(name: &str) -> Vec<U16> {
    name.encode_utf16().map(U16::new).collect()
}

fn push_units(char: char, out: &mut Vec<U16>) {
    out.extend(
        char.encode_utf16(&mut [0; 2])
            .iter()
            .map(|&unit| U16::new(unit)),
    );
}

/// A file's name as programs see it: `:` for `/`, U+2400 for U+0000, U+FFFD for a lone surrogate.
pub(crate) fn decode_name(units: &[U16]) -> String {
    decode(units, |char| if char == '/' { ':' } else { char })
}

/// An extended attribute's name as programs see it: U+2400 for U+0000, U+FFFD for a lone surrogate.
pub(crate) fn decode_attribute_name(units: &[U16]) -> String {
    decode(units, |char| char)
}

fn decode(units: &[U16], swap: impl Fn(char) -> char) -> String {
    let shown = |char| {
        if char == '\0' {
            NUL_PICTURE
        } else {
            swap(char)
        }
    };
    let mut name = String::with_capacity(units.len());
    name.extend(
        char::decode_utf16(units.iter().map(|unit| unit.get()))
            .map(|char| shown(char.unwrap_or(char::REPLACEMENT_CHARACTER))),
    );
    name
}

/// How the catalog of a volume orders names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameOrder {
    /// Without case: `H+`, and `HX` that says so.
    Folding,
    /// By units: `HX` alone.
    Binary,
}

impl NameOrder {
    /// Which of two names comes first; equal names are one name to the volume.
    pub(crate) fn compare(self, a: &[U16], b: &[U16]) -> Ordering {
        match self {
            Self::Folding => fold::compare(a, b),
            Self::Binary => compare_binary(a, b),
        }
    }

    /// Appends a key of plain bytes that orders as the name does, for sorting many names.
    pub(crate) fn sort_key(self, name: &[U16], out: &mut Vec<u8>) {
        match self {
            Self::Folding => {
                out.extend(fold::folded(name).flat_map(u16::to_be_bytes));
            }
            Self::Binary => out.extend(name.iter().flat_map(|unit| unit.to_bytes())),
        }
    }
}

/// By UTF-16 units, a proper prefix first.
pub(crate) fn compare_binary(a: &[U16], b: &[U16]) -> Ordering {
    // Big-endian units compare as their bytes do.
    zerocopy::IntoBytes::as_bytes(a).cmp(zerocopy::IntoBytes::as_bytes(b))
}

#[cfg(test)]
mod tests;
