//! `Rez` and `DeRez`: resources from text, and text from resources.
//!
//! Resources of a license go into the list of an image, where `hdiutil unflatten` and `flatten` took
//! them; all others, such as icons, into the resource fork of the file.
//!
//! Source: Apple's manual pages Rez(1) and DeRez(1); the license texts of published scripts.

mod language;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bandsaw::container::udif::{
    LICENSE_KINDS, Resource, from_fork, from_mac_roman, probe, read_list, to_fork, to_mac_roman,
};
use bandsaw::open::OpenOptions;
use bandsaw::ops::resources::{EditOptions, OWN, add, edit};
use bandsaw::platform::nodes;
use bandsaw::progress::Silent;
use bandsaw::store::{LocalFile, Open};
use bandsaw::{Error, Kind};

use super::{finder_info, refused, unknown, value};
use crate::failure::Outcome;
use crate::new_file::NewFile;

const LAYER: &str = "resources";
const FORK: &str = "com.apple.ResourceFork";
/// Kinds beside those of a license that accompany it in an image.
const TEMPLATE: &str = "TMPL";

pub(super) fn rez(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut sources = Vec::new();
    let (mut output, mut append, mut data_fork) = (PathBuf::from("Rez.out"), false, false);
    let (mut kind, mut creator) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-a" | "-append" => append = true,
            "-o" => output = value(word, &mut words)?.into(),
            "-useDF" => data_fork = true,
            "-t" | "-type" => kind = Some(code(value(word, &mut words)?)?),
            "-c" | "-creator" => creator = Some(code(value(word, &mut words)?)?),
            // Resources that exist are always replaced.
            "-ov" => {}
            "-F" => match value(word, &mut words)? {
                // Their headers are known, without files.
                "Carbon" | "CoreServices" => {}
                other => return Err(refused(format!("-F {other} is not supported"))),
            },
            word if word.starts_with('-') => return Err(unknown(word)),
            source => sources.push(Path::new(source)),
        }
    }
    if sources.is_empty() {
        return Err(refused("a file with descriptions of resources is required"));
    }
    let mut new = Vec::new();
    for source in sources {
        new.extend(language::read(source)?);
    }
    let of_image = |resource: &Resource| {
        LICENSE_KINDS.contains(&resource.kind.as_str()) || resource.kind == TEMPLATE
    };
    let (license, others): (Vec<_>, Vec<_>) = match is_image(&output)? {
        true => new.into_iter().partition(of_image),
        false => (Vec::new(), new),
    };
    if !license.is_empty() {
        let options = EditOptions::default();
        edit(
            &output,
            &options,
            &OpenOptions::default(),
            &Silent,
            |list| {
                if !append {
                    list.retain(|resource| !of_image(resource));
                }
                add(list, license, true)
            },
        )?;
    }
    if !others.is_empty() {
        let mut all = match append {
            true => of_file(&output, data_fork)?,
            false => Vec::new(),
        };
        add(&mut all, others, true)?;
        write(&output, &to_fork(&all)?, data_fork)?;
    }
    if kind.is_some() || creator.is_some() {
        let mut info = finder_info::read(&output)?;
        if let Some(kind) = kind {
            info.set_kind(kind);
        }
        if let Some(creator) = creator {
            info.set_creator(creator);
        }
        finder_info::write(&info, &output)?;
    }
    Ok(())
}

/// Parses a type or creator of a file, which can be in quotation marks.
fn code(text: &str) -> Outcome<[u8; 4]> {
    let plain = text.trim_matches('\'');
    let code = plain.as_bytes().try_into().ok();
    code.ok_or_else(|| refused(format!("{text}: expected four characters")))
}

pub(super) fn derez(words: &[String], out: &mut Vec<u8>) -> Outcome {
    let (mut only, mut skipped, mut data_fork) = (Vec::new(), Vec::new(), false);
    let mut files = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-only" => only.push(kind(value(word, &mut words)?)),
            "-skip" => skipped.push(kind(value(word, &mut words)?)),
            "-useDF" => data_fork = true,
            word if word.starts_with('-') => return Err(unknown(word)),
            file => files.push(Path::new(file)),
        }
    }
    let [file] = files[..] else {
        return Err(refused(
            "expected one file; declarations of types are not supported",
        ));
    };
    let mut all = of_file(file, data_fork)?;
    if is_image(file)? {
        let (list, _) = read_list(&open(file)?)?;
        let of_others = list
            .into_iter()
            .filter(|resource| !OWN.contains(&resource.kind.as_str()));
        all.extend(of_others);
    }
    if all.is_empty() {
        let message = "there are no resources";
        return Err(Error::new(Kind::NotFound, LAYER, message)
            .in_file(file)
            .into());
    }
    for resource in all {
        let is_wanted = only.is_empty() || only.contains(&resource.kind);
        if is_wanted && !skipped.contains(&resource.kind) {
            print(&resource, out)?;
        }
    }
    Ok(())
}

/// Returns a type from an argument: `icns`, or with a number after it, which is not needed.
fn kind(text: &str) -> String {
    format!("{:4}", text.trim_matches('\''))
}

/// Prints a resource as the language has it.
fn print(resource: &Resource, out: &mut Vec<u8>) -> Outcome {
    write!(out, "data '")?;
    out.extend(to_mac_roman(&resource.kind).unwrap_or_default());
    write!(out, "' ({}", resource.id)?;
    if !resource.name.is_empty() {
        write!(out, ", ")?;
        let name = to_mac_roman(&resource.name);
        let name = name.ok_or_else(|| refused("a name that is not in Mac Roman"))?;
        write!(out, "\"")?;
        for byte in name {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                0x20..=0x7E | 0x80.. => out.push(byte),
                _ => write!(out, "\\0x{byte:02X}")?,
            }
        }
        write!(out, "\"")?;
    }
    match resource.attributes.trim_start_matches(['0', 'x']) {
        "" => {}
        attributes => write!(out, ", ${attributes}")?,
    }
    writeln!(out, ") {{")?;
    for line in resource.data.chunks(16) {
        let words = line.chunks(2).map(|pair| {
            let digits = pair.iter().map(|byte| format!("{byte:02X}"));
            digits.collect::<String>()
        });
        let hex = format!("$\"{}\"", words.collect::<Vec<_>>().join(" "));
        let text = line.iter().map(|byte| match byte {
            // The end of a comment must not occur.
            b'*' => '.',
            0x20..0x7F => char::from(*byte),
            _ => '.',
        });
        writeln!(out, "\t{hex:55}/* {} */", text.collect::<String>())?;
    }
    writeln!(out, "}};\n")?;
    Ok(())
}

fn open(path: &Path) -> Outcome<LocalFile> {
    let file = LocalFile::open(path, Open::Read)?;
    Ok(file.ok_or_else(|| Error::not_found(LAYER, path.to_string_lossy()))?)
}

/// Returns true if there is an image at `path` that has a list of resources.
fn is_image(path: &Path) -> Outcome<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    Ok(probe(&open(path)?).map_err(|error| error.in_file(path))?)
}

/// Returns the resources in the resource fork of a file, or in its data.
fn of_file(path: &Path, data_fork: bool) -> Outcome<Vec<Resource>> {
    let failed = |error| Error::io(LAYER, "read", error).in_file(path);
    let fork = match (data_fork, File::open(path)) {
        (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        (_, Err(error)) => return Err(failed(error).into()),
        (true, Ok(_)) => crate::commands::resources::add::read(path)?,
        (false, Ok(file)) => {
            let all = nodes::xattrs(file.as_fd()).map_err(failed)?;
            let fork = all.into_iter().find(|(name, _)| name == FORK);
            fork.map_or_else(Vec::new, |(_, fork)| fork)
        }
    };
    match fork.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(from_fork(&fork).map_err(|error| error.in_file(path))?),
    }
}

fn write(path: &Path, fork: &[u8], data_fork: bool) -> Outcome {
    let failed = |error| Error::io(LAYER, "write", error).in_file(path);
    if data_fork {
        let mut file = NewFile::create(path, true)?;
        file.write_all(fork).map_err(failed)?;
        return Ok(file.finish()?);
    }
    let is_new = !path.exists();
    let file = File::options().append(true).create(true).open(path);
    let file = file.map_err(failed)?;
    let written = nodes::set_xattr(file.as_fd(), FORK, fork);
    if is_new && written.is_err() {
        let _ = fs::remove_file(path);
    }
    Ok(written.map_err(failed)?)
}

/// Returns text in Mac Roman; bytes that are not UTF-8 are that already.
fn roman(text: &[u8], path: &Path) -> Outcome<Vec<u8>> {
    match std::str::from_utf8(text) {
        Err(_) => Ok(text.to_vec()),
        Ok(text) => to_mac_roman(text).ok_or_else(|| {
            let message = "has characters that Mac Roman lacks: write them as $\"hexadecimal\"";
            Error::invalid(LAYER, message).in_file(path).into()
        }),
    }
}

/// Returns the name of a resource, which is in Mac Roman.
fn name(bytes: &[u8]) -> String {
    from_mac_roman(bytes)
}
