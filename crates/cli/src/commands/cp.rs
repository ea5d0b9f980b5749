//! `bandsaw cp`: files between images and the host, as `cp` copies them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::address::Address;
use bandsaw::fs::FileKind;
use bandsaw::ops::export::{FolderOptions, to_folder};
use clap::{Args, ValueHint};

use super::extract;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, Opening, Place};

/// Copy a file or folder out of an image
///
/// As with cp, the copy is put into TARGET under its own name if TARGET is a folder that exists, and else becomes TARGET.
/// Copying into an image is not possible yet.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw cp Docs.sparsebundle:/Letters/a.txt .          a file, under its own name
  bandsaw cp Docs.sparsebundle:/Letters/a.txt b.txt      a file, under another name
  bandsaw cp -R Docs.sparsebundle:Docs:/Letters old      a folder with all that is in it")]
pub(crate) struct Cp {
    /// What to copy: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    source: OsString,
    /// Where to: a file or folder of the host
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    target: OsString,
    /// Copy folders, with all that is in them
    #[arg(long, short = 'R', short_aliases = ['r', 'a'])]
    recursive: bool,
    /// Replace files that are in the way
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    opening: Opening,
}

impl Cp {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let source = self.check()?;
        let place = Place::open(&source, &self.opening, output)?;
        let is_folder = place.attributes.kind == FileKind::Folder;
        if is_folder && !self.recursive {
            return Err(Failure::usage("cp", format!("{source} is a folder")).hint("-R copies folders"));
        }
        let (folder, name) = destination(Path::new(&self.target), place.name(), is_folder)?;
        let options = FolderOptions { overwrite: self.overwrite, name };
        let bar = Bar::new(output);
        let done = to_folder(&*place.fs, &place.path, &folder, &options, &bar)?;
        drop(bar);
        extract::report(done, output)
    }

    /// The source, which must be in an image, as the target must not.
    fn check(&self) -> Outcome<Address> {
        let into_image = is_in_image(&self.target)?;
        let source = source::address(&self.source)?;
        if into_image {
            return Err(Failure::from(Error::unsupported("cp", "files cannot be put into an image yet"))
                .hint("`bandsaw create IMAGE --from FOLDER` makes a new image from a folder"));
        }
        if source.is_bare() {
            return Err(Failure::usage("cp", "neither source nor target is in an image")
                .hint("write IMAGE:/PATH for what is in an image"));
        }
        Ok(source)
    }
}

/// Whether an operand names something in an image, and not a host file.
fn is_in_image(operand: &OsStr) -> Outcome<bool> {
    // What is not UTF-8 can only be a host path.
    Ok(operand.to_str().map(Address::parse_on_host).transpose()?.is_some_and(|address| !address.is_bare()))
}

/// The folder to fill, and the name that a file gets there if it is not its own.
fn destination(target: &Path, name: &str, is_folder: bool) -> Outcome<(PathBuf, Option<String>)> {
    if target.is_dir() {
        return Ok((if is_folder { target.join(name) } else { target.to_owned() }, None));
    }
    if is_folder {
        return Ok((target.to_owned(), None));
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(Error::not_found("cp", parent.display().to_string()).into());
    }
    match target.file_name().and_then(OsStr::to_str) {
        Some(name) if !target.as_os_str().as_encoded_bytes().ends_with(b"/") => Ok((parent.to_owned(), Some(name.to_owned()))),
        _ => Err(Error::not_found("cp", target.display().to_string()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_land_as_with_cp() {
        let scratch = tempfile::tempdir().unwrap();
        let here = scratch.path();
        let to = |target: &str, is_folder| destination(&here.join(target), "it", is_folder).ok();
        assert_eq!(to("", false), Some((here.join(""), None)), "a file into a folder");
        assert_eq!(to("new", false), Some((here.to_owned(), Some("new".into()))), "a file under a new name");
        assert_eq!(to("", true), Some((here.join("it"), None)), "a folder into a folder");
        assert_eq!(to("new", true), Some((here.join("new"), None)), "a folder under a new name");
        assert_eq!(to("missing/new", false), None);
        assert_eq!(to("new/", false), None, "a file cannot become a folder");
    }
}
