//! Names: conversion between UTF-8 and the decomposed UTF-16 on disk, and the order of names in
//! trees.
//!
//! The rules are those of macOS and are frozen (`docs/formats/hfsplus.md` §9): neither current NFD
//! nor current case mapping is correct. Most names are ASCII, so all functions have a fast path for
//! that.

mod compose;
mod decompose;
mod fold;
mod tables;

use std::cmp::Ordering;

use zerocopy::big_endian::U16;

pub use self::compose::composed;
pub(crate) use self::decompose::redecomposed;
use super::layout::{MAX_ATTRIBUTE_NAME_UNITS, MAX_NAME_UNITS};
use bandsaw_core::{Error, Reason, Result};

/// Replacement for U+0000 in UTF-8.
const NUL_PICTURE: char = '\u{2400}';

/// Appends the on-disk form of `name`, a file name as programs see it: decomposed, with `/` for `:`
/// and U+0000 for U+2400.
///
/// Refuses an empty name, one with a `/` and one of more than 255 units.
pub(crate) fn encode_name(name: &str, out: &mut Vec<U16>) -> Result<()> {
    const LAYER: &str = "hfs+ file name";
    if name.is_empty() || name.contains('/') {
        return Err(Error::invalid(LAYER, "invalid name: slashes are not allowed").named(name));
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

/// Appends the on-disk form of `name`, the name of an extended attribute: combining marks in
/// canonical order and U+0000 for U+2400, but nothing decomposed and no slashes swapped (macOS
/// stores these names as programs specify them).
///
/// Refuses an empty name and one of more than 127 units.
pub(crate) fn encode_attribute_name(name: &str, out: &mut Vec<U16>) -> Result<()> {
    const LAYER: &str = "hfs+ attribute name";
    if name.is_empty() {
        return Err(Error::invalid(LAYER, "the name is empty"));
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
    let message = format!(
        "the name has {units} UTF-16 units when decomposed: the maximum is \
                           {most}"
    );
    Err(Error::limit(layer, message)
        .because(Reason::NameTooLong)
        .named(name))
}

/// Appends `name` with `:` and U+2400 replaced but without decomposition, as writers other than
/// macOS may have stored it.
pub(crate) fn encode_verbatim(name: &str, out: &mut Vec<U16>) {
    name.chars().for_each(|char| push_units(on_disk(char), out));
}

/// Returns the on-disk form of a character of a file name.
fn on_disk(char: char) -> char {
    match char {
        ':' => '/',
        NUL_PICTURE => '\0',
        char => char,
    }
}

/// Returns the UTF-16 units of one of the volume's own names, in its on-disk form.
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

/// Decodes a file name to the form that programs see: `:` for `/`, U+2400 for U+0000, U+FFFD for a
/// lone surrogate.
pub(crate) fn decode_name(units: &[U16]) -> String {
    decode(units, |char| if char == '/' { ':' } else { char })
}

/// Decodes the name of an extended attribute to the form that programs see: U+2400 for U+0000,
/// U+FFFD for a lone surrogate.
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
    // Names of ASCII, the usual ones, need no decoding.
    let is_ascii = |unit: &&U16| (1..0x80).contains(&unit.get());
    let ascii = units.iter().take_while(is_ascii).count();
    let (ascii, rest) = units.split_at(ascii);
    name.extend(
        ascii
            .iter()
            .map(|unit| swap(char::from(unit.to_bytes()[1]))),
    );
    name.extend(
        char::decode_utf16(rest.iter().map(|unit| unit.get()))
            .map(|char| shown(char.unwrap_or(char::REPLACEMENT_CHARACTER))),
    );
    name
}

/// The order of names in the catalog of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameOrder {
    /// Case-insensitive: `H+`, and `HX` if its catalog says so.
    Folding,
    /// By UTF-16 units: `HX` only.
    Binary,
}

impl NameOrder {
    /// Compares two names; names that compare as equal are the same name on the volume.
    pub(crate) fn compare(self, a: &[U16], b: &[U16]) -> Ordering {
        match self {
            Self::Folding => fold::compare(a, b),
            Self::Binary => compare_binary(a, b),
        }
    }

    /// Appends a byte string with the same order as the name, for sorting many names.
    pub(crate) fn sort_key(self, name: &[U16], out: &mut Vec<u8>) {
        match self {
            Self::Folding => {
                out.extend(fold::folded(name).flat_map(u16::to_be_bytes));
            }
            Self::Binary => out.extend(name.iter().flat_map(|unit| unit.to_bytes())),
        }
    }
}

/// Compares by UTF-16 units; a proper prefix comes first.
pub(crate) fn compare_binary(a: &[U16], b: &[U16]) -> Ordering {
    // Big-endian units compare in the same order as their bytes.
    zerocopy::IntoBytes::as_bytes(a).cmp(zerocopy::IntoBytes::as_bytes(b))
}

#[cfg(test)]
mod tests;
