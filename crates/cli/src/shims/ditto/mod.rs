//! `ditto`: copies of files and folders, and zip archives of them.
//!
//! Source: Apple's manual page ditto(1).

mod compress;
mod copy;
mod zip;

use std::fs;
use std::io;
use std::path::Path;

use bandsaw::Error;

use super::{refused, unknown, value};
use crate::failure::Outcome;

const LAYER: &str = "copy";

/// The result that a call makes from its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Copy,
    Archive,
    Extract,
}

/// Properties of the files that are written.
#[derive(Debug, Clone, Copy)]
struct FileOptions {
    /// With extended attributes, the resource fork and the Finder info among them.
    attributes: bool,
    /// Compressed, where the volume can.
    compressed: bool,
    /// Each is named on standard error.
    named: bool,
}

/// Options of an archive.
#[derive(Debug)]
struct ArchiveOptions {
    /// Names begin with that of the source folder.
    keep_parent: bool,
    /// Attributes are in a folder `__MACOSX`, not beside their files.
    sequester: bool,
    attributes: bool,
    /// Each file is named on standard error.
    named: bool,
    /// The level of zlib, 0 to 9.
    level: Option<i64>,
}

pub(super) fn run(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut work = Work::Copy;
    let mut is_zip = false;
    let mut options = ArchiveOptions {
        keep_parent: false,
        sequester: false,
        attributes: true,
        named: false,
        level: None,
    };
    let (mut compressed, mut verbose) = (false, false);
    let mut paths = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            // Of the options that exclude each other, the last one counts.
            "--rsrc" | "-rsrc" | "--extattr" => options.attributes = true,
            // Always kept, as an attribute.
            "--qtn" => {}
            "--norsrc" | "--noextattr" => options.attributes = false,
            // Access lists are not kept by any file system here, so none are copied.
            "--acl" | "--noacl" => {}
            "--keepParent" => options.keep_parent = true,
            "--sequesterRsrc" => options.sequester = true,
            "--nosequesterRsrc" => options.sequester = false,
            "--zlibCompressionLevel" => {
                let level = value(word, &mut words)?;
                let level = level.parse().ok().filter(|level| (0..=9).contains(level));
                options.level =
                    Some(level.ok_or_else(|| refused(format!("{word}: expected 0 to 9")))?);
            }
            "--hfsCompression" => compressed = true,
            "--nohfsCompression" => compressed = false,
            "-" => return Err(refused("- is not supported: name a file")),
            // Letters without values can be joined: `-ck`.
            word if word.starts_with('-') && !word.starts_with("--") => {
                for letter in word.chars().skip(1) {
                    match letter {
                        'c' => work = Work::Archive,
                        'x' => work = Work::Extract,
                        'k' => is_zip = true,
                        'v' => verbose = true,
                        'V' => (verbose, options.named) = (true, true),
                        'z' | 'j' => return Err(cpio()),
                        _ => return Err(unknown(word)),
                    }
                }
            }
            word if word.starts_with('-') => return Err(unknown(word)),
            path => paths.push(Path::new(path)),
        }
    }
    if work != Work::Copy && !is_zip {
        return Err(cpio());
    }
    let Some((to, from @ [first, ..])) = paths.split_last() else {
        return Err(refused("expected a source and a destination"));
    };
    let files = FileOptions {
        attributes: options.attributes,
        compressed,
        named: options.named,
    };
    if verbose {
        for from in from {
            eprintln!(">>> Copying {}", from.display());
        }
    }
    match work {
        Work::Copy => copy::copy(from, to, files),
        Work::Archive if from.len() > 1 => Err(refused("expected one source and an archive")),
        Work::Archive => zip::archive(first, to, &options),
        Work::Extract => from
            .iter()
            .try_for_each(|archive| zip::extract(archive, to, files)),
    }
}

fn cpio() -> crate::failure::Failure {
    refused("archives of cpio are not supported; use -k for a zip archive")
}

/// Names a file that is copied next.
fn print_copied(path: &Path) {
    eprintln!("copying file {}", path.display());
}

fn make_parents(path: &Path) -> Outcome {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent
        .map_or(Ok(()), fs::create_dir_all)
        .map_err(|error| failed("create", error, path))?;
    Ok(())
}

fn failed(doing: &'static str, error: io::Error, path: &Path) -> Error {
    Error::io(LAYER, doing, error).in_file(path)
}
