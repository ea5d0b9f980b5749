//! `xattr`: extended attributes by their names on macOS.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bandsaw::platform::nodes;
use bandsaw::{Error, Kind};

use super::{refused, unknown};
use crate::failure::Outcome;

/// The letters of one call.
#[derive(Debug, Default)]
struct Letters(String);

impl Letters {
    fn has(&self, letter: char) -> bool {
        self.0.contains(letter)
    }
}

pub(super) fn run(words: &[String], out: &mut Vec<u8>) -> Outcome {
    let mut letters = Letters::default();
    let mut rest = words.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next_if(|word| word.starts_with('-') && word.len() > 1) {
        for letter in word.chars().skip(1) {
            if !"lpwdcrsvx".contains(letter) {
                return Err(unknown(&format!("-{letter}")));
            }
            letters.0.push(letter);
        }
    }
    let verbs: Vec<char> = "lpwdc".chars().filter(|verb| letters.has(*verb)).collect();
    let verb = match verbs[..] {
        [] => None,
        [verb] => Some(verb),
        _ => return Err(refused("only one of -l, -p, -w, -d and -c is possible")),
    };
    let mut operand = |what: &str| {
        rest.next()
            .ok_or_else(|| refused(format!("{what} is required")))
    };
    let name = match verb {
        Some('p' | 'w' | 'd') => operand("the name of an attribute")?,
        _ => "",
    };
    let new = match verb {
        Some('w') => bytes(operand("a value")?, letters.has('x'))?,
        _ => Vec::new(),
    };
    let files: Vec<&str> = rest.collect();
    if files.is_empty() {
        return Err(refused("a file is required"));
    }
    let paths = files.iter().map(|file| Path::new(file).to_owned());
    let paths: Vec<PathBuf> = match letters.has('r') {
        true => below(paths.collect())?,
        false => paths.collect(),
    };
    // A symbolic link has no attributes of its own here.
    let has_some = |path: &&PathBuf| !(letters.has('s') && path.is_symlink());
    for path in paths.iter().filter(has_some) {
        let failed = |error| Error::io("attributes", "open", error).in_file(path);
        let file = File::open(path).map_err(failed)?;
        let prefix = match files.len() > 1 || letters.has('r') || letters.has('v') {
            true => format!("{}: ", path.display()),
            false => String::new(),
        };
        let failed = |error| Error::io("attributes", "read", error).in_file(path);
        let all = nodes::xattrs(file.as_fd()).map_err(failed)?;
        let found = all.iter().find(|(known, _)| known == name);
        match (verb, found) {
            (None, _) => {
                for (name, _) in &all {
                    writeln!(out, "{prefix}{name}")?;
                }
            }
            (Some('l'), _) => {
                for (name, value) in &all {
                    write!(out, "{prefix}{name}: ")?;
                    show(value, letters.has('x'), out)?;
                }
            }
            (Some('c'), _) => {
                for (name, _) in &all {
                    remove(&file, name, path)?;
                }
            }
            (Some('w'), _) => {
                let failed = |error| Error::io("attributes", "set", error).in_file(path);
                nodes::set_xattr(file.as_fd(), name, &new).map_err(failed)?;
            }
            (Some('d'), Some((name, _))) => remove(&file, name, path)?,
            (Some('p'), Some((_, value))) => {
                write!(out, "{prefix}")?;
                show(value, letters.has('x'), out)?;
            }
            // Most files of a folder have no such attribute.
            _ if letters.has('r') => {}
            _ => {
                let message = format!("No such xattr: {name}");
                return Err(Error::new(Kind::NotFound, "attributes", message)
                    .in_file(path)
                    .into());
            }
        }
    }
    Ok(())
}

fn remove(file: &File, name: &str, path: &Path) -> Outcome {
    let host_name = nodes::xattr_from_mac(name);
    rustix::fs::fremovexattr(file, &*host_name)
        .map_err(|error| Error::io("attributes", "remove", error).in_file(path))?;
    Ok(())
}

/// Prints a value: as text, or in hexadecimal, 16 bytes a line.
fn show(value: &[u8], hex: bool, out: &mut Vec<u8>) -> Outcome {
    match std::str::from_utf8(value) {
        Ok(text) if !hex && !text.contains('\0') => writeln!(out, "{text}")?,
        _ => {
            if hex {
                writeln!(out)?;
            }
            for line in value.chunks(16) {
                let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02X}")).collect();
                writeln!(out, "{}", bytes.join(" "))?;
            }
        }
    }
    Ok(())
}

/// Returns the bytes of a value on the command line.
fn bytes(text: &str, hex: bool) -> Outcome<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let wrong = || refused(format!("{text}: expected hexadecimal digits"));
    let digits: Vec<u8> = text
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    match digits.len() % 2 {
        0 => Ok(digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()),
        _ => Err(wrong()),
    }
}

/// Returns these paths and everything below them, without symbolic links.
fn below(mut waiting: Vec<PathBuf>) -> Outcome<Vec<PathBuf>> {
    let mut all = Vec::new();
    waiting.reverse();
    while let Some(path) = waiting.pop() {
        let failed = |error| Error::io("attributes", "list", error).in_file(&path);
        let meta = path.symlink_metadata().map_err(failed)?;
        if meta.is_symlink() {
            continue;
        }
        if meta.is_dir() {
            let mut inside = std::fs::read_dir(&path)
                .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
                .map_err(failed)?;
            inside.sort_by_key(std::fs::DirEntry::file_name);
            waiting.extend(inside.iter().rev().map(std::fs::DirEntry::path));
        }
        if meta.is_dir() || meta.is_file() {
            all.push(path);
        }
    }
    Ok(all)
}
