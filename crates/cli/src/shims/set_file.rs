//! `SetFile` and `GetFileInfo`: the Finder's attributes of files and folders.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use bandsaw::Error;
use bandsaw::fs::Timestamp;
use bandsaw::ops::finder::FinderInfo;
use bandsaw::platform::nodes::{self, HostTime};

use super::{finder_info, refused, unknown, value};
use crate::failure::Outcome;

/// The letters of attributes in the order of `GetFileInfo`, and their flags; 0 for those that are
/// not stored in the Finder info.
const ATTRIBUTES: [(char, u16); 13] = [
    ('a', 0x8000), // alias
    ('v', 0x4000), // invisible
    ('b', 0x2000), // bundle
    ('s', 0x1000), // name locked
    ('t', 0x0800), // stationery
    ('c', 0x0400), // custom icon
    ('l', 0),      // locked
    ('i', 0x0100), // inited
    ('n', 0x0080), // no INIT resource
    ('m', 0x0040), // shared
    ('e', FinderInfo::EXTENSION_HIDDEN),
    ('d', 0x0001), // on the desktop
    ('z', 0),      // busy
];

pub(super) fn set(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut words = words.iter().map(String::as_str);
    let (mut flags, mut kind, mut creator) = (Vec::new(), None, None);
    let mut files = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-a" => {
                for letter in value(word, &mut words)?.chars() {
                    flags.push((flag(letter)?, letter.is_ascii_uppercase()));
                }
            }
            "-t" => kind = Some(code(value(word, &mut words)?)?),
            "-c" => creator = Some(code(value(word, &mut words)?)?),
            "-d" | "-m" => {
                return Err(refused(format!(
                    "{word}: dates are not supported; use `touch` for the modification date"
                )));
            }
            word if word.starts_with('-') => return Err(unknown(word)),
            file => files.push(Path::new(file)),
        }
    }
    if files.is_empty() {
        return Err(refused("a file is required"));
    }
    for file in files {
        let mut info = finder_info::read(file)?;
        if file.is_dir() && (kind.is_some() || creator.is_some()) {
            return Err(refused("a folder has no type and no creator").in_file(file));
        }
        if let Some(kind) = kind {
            info.set_kind(kind);
        }
        if let Some(creator) = creator {
            info.set_creator(creator);
        }
        for (flag, on) in &flags {
            info.set_flag(*flag, *on);
        }
        finder_info::write(&info, file)?;
    }
    Ok(())
}

/// Returns the flag of a letter: upper case sets it, lower case clears it.
fn flag(letter: char) -> Outcome<u16> {
    let known = ATTRIBUTES
        .iter()
        .find(|(known, _)| *known == letter.to_ascii_lowercase());
    match known {
        None => Err(refused(format!("-a: unknown attribute {letter}"))),
        Some((_, 0)) if letter.is_ascii_uppercase() => Err(refused(format!(
            "-a: attribute {letter} cannot be set here"
        ))),
        Some((_, flag)) => Ok(*flag),
    }
}

/// Parses four characters; none clears them.
fn code(text: &str) -> Outcome<[u8; 4]> {
    if text.is_empty() {
        return Ok([0; 4]);
    }
    text.as_bytes()
        .try_into()
        .ok()
        .filter(|code: &[u8; 4]| code.is_ascii())
        .ok_or_else(|| refused(format!("{text}: expected four ASCII characters")))
}

pub(super) fn get(words: &[String], out: &mut Vec<u8>) -> Outcome {
    let mut wanted = None;
    let mut files = Vec::new();
    for word in words {
        match word.as_str() {
            "-c" | "-t" | "-d" | "-m" | "-a" => wanted = Some(word.as_str()),
            option if option.starts_with("-a") && option.chars().count() == 3 => {
                wanted = Some(option);
            }
            word if word.starts_with('-') => return Err(unknown(word)),
            file => files.push(Path::new(file)),
        }
    }
    if files.is_empty() {
        return Err(refused("a file is required"));
    }
    for file in files {
        describe(file, wanted, out)?;
    }
    Ok(())
}

/// Prints one property of a file, or all.
fn describe(path: &Path, wanted: Option<&str>, out: &mut Vec<u8>) -> Outcome {
    let info = finder_info::read(path)?;
    let failed = |error| Error::io("file", "read metadata", error).in_file(path);
    let file = File::open(path).map_err(failed)?;
    let node = nodes::node_of(&file).map_err(failed)?;
    let (created, modified) = (
        date(node.created.unwrap_or(node.modified)),
        date(node.modified),
    );
    let (kind, creator) = (quoted(info.kind()), quoted(info.creator()));
    let letters: String = ATTRIBUTES
        .iter()
        .map(|(letter, flag)| match info.flags() & flag {
            0 => *letter,
            _ => letter.to_ascii_uppercase(),
        })
        .collect();
    match wanted {
        Some("-t") => writeln!(out, "{kind}")?,
        Some("-c") => writeln!(out, "{creator}")?,
        Some("-d") => writeln!(out, "{created}")?,
        Some("-m") => writeln!(out, "{modified}")?,
        Some("-a") => writeln!(out, "{letters}")?,
        Some(option) => {
            let letter = option.chars().last().unwrap_or_default();
            let is_set = info.flags() & flag(letter.to_ascii_lowercase())? != 0;
            writeln!(out, "{}", u8::from(is_set))?;
        }
        None => {
            let is_folder = path.is_dir();
            let what = if is_folder { "directory" } else { "file" };
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            writeln!(out, "{what}: \"{}\"", absolute.display())?;
            if !is_folder {
                writeln!(out, "type: {kind}\ncreator: {creator}")?;
            }
            writeln!(out, "attributes: {letters}")?;
            writeln!(out, "created: {created}\nmodified: {modified}")?;
        }
    }
    Ok(())
}

fn quoted(code: [u8; 4]) -> String {
    let text: String = code
        .iter()
        .filter(|byte| **byte != 0)
        .map(|byte| char::from(*byte))
        .collect();
    format!("\"{text}\"")
}

/// Returns a date as the program prints it, in UTC.
fn date((seconds, _): HostTime) -> String {
    let at = Timestamp::from_seconds(seconds).date_time();
    format!(
        "{:02}/{:02}/{:04} {:02}:{:02}:{:02}",
        at.month, at.day, at.year, at.hour, at.minute, at.second
    )
}
