//! `bandsaw cp`: copies between images and the host, in the manner of `cp`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use std::sync::Arc;

use bandsaw::address::{Address, ImagePath, shown};
use bandsaw::fs::source::Tree;
use bandsaw::fs::{FileKind, FileSystem, FileSystemMut};
use bandsaw::ops::export::{FolderOptions, to_folder};
use bandsaw::ops::import;
use bandsaw::ops::put::{PutOptions, PutReport, put};
use bandsaw::ops::rename;
use bandsaw::{Error, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::extract;
use crate::change::{self, ChangeArgs};
use crate::checksum_args::{self, VerifyArgs};
use crate::compression_args::LevelCompressionArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, ImageLocation, normal};
use crate::text::counted;

/// Copy files out of an image, into one, or between two
///
/// As with cp, the copy keeps its name if TARGET is an existing folder, and otherwise becomes
/// TARGET. Permissions, owners, dates, extended attributes, and hard links among the copied files
/// are kept. A file in an image is replaced in one step: after an interruption it is either the old
/// or the new one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw cp Docs.sparsebundle:/Letters/a.txt .          extract a file
  bandsaw cp Docs.sparsebundle:/Letters/a.txt b.txt      extract a file under another name
  bandsaw cp -R Docs.sparsebundle:Docs:/Letters old      a folder with its contents
  bandsaw cp -R Letters Docs.sparsebundle:/              copy a folder into an image
  bandsaw cp --overwrite a.txt disk.img:/Letters/a.txt   replace an existing file
  bandsaw cp -R old.img:/Letters new.img:/               copy between images
  bandsaw cp -R --compress zlib Letters disk.img:/       store the files compressed")]
pub(crate) struct Cp {
    /// IMAGE[:VOLUME]:/PATH, or a file or folder of the host
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    source: OsString,
    /// IMAGE[:VOLUME]:/PATH, or a file or folder of the host
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    target: OsString,
    /// Copy folders and their contents
    #[arg(long, short = 'R', short_aliases = ['r', 'a'])]
    recursive: bool,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    compressing: LevelCompressionArgs,
    #[command(flatten)]
    verifying: VerifyArgs,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Cp {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (from_image, into_image) = (is_in_image(&self.source)?, is_in_image(&self.target)?);
        if into_image {
            return self.copy_in(from_image, output);
        }
        if self.compressing.is_wanted() {
            return Err(Failure::usage(
                "--compress",
                "requires a target in an image",
            ));
        }
        if !from_image {
            return Err(
                Failure::usage("cp", "neither source nor target is in an image")
                    .hint("write IMAGE:/PATH to name an object in an image"),
            );
        }
        let source = source::address(&self.source)?;
        let image = self.opening.read(&source.image, output)?;
        let whole = source::is_whole(&source);
        let verification = self.verifying.begin(&image, whole, output);
        let place = ImageLocation::of(&image, &source, &self.opening)?;
        let is_folder = place.attributes.kind == FileKind::Folder;
        if is_folder {
            self.check_recursive(&source.to_string())?;
        }
        let (folder, name) = destination(Path::new(&self.target), place.name(), is_folder)?;
        let options = FolderOptions {
            overwrite: self.overwrite,
            name,
            ..FolderOptions::default()
        };
        let bar = Bar::new(output);
        let mut done = to_folder(&*place.fs, &place.path, &folder, &options, &bar)
            .map_err(|error| extract::of_target(error, &folder))?;
        drop(bar);
        extract::note_unverified(&self.verifying, &image, whole, &mut done, output);
        let problems = done.problems.into_iter();
        done.problems = problems
            .map(|problem| problem.in_file(&self.target))
            // The copy may have another name than the object in the image.
            .map(|problem| match is_folder {
                true => problem,
                false => problem.named(&*place.path),
            })
            .collect();
        let image = source.image.to_string();
        extract::report(&image, done, verification, self.overwrite, output)
    }

    fn check_recursive(&self, source: &str) -> Outcome {
        match self.recursive {
            true => Ok(()),
            false => Err(Failure::usage("cp", format!("{source} is a folder"))
                .hint("use -R to copy folders")),
        }
    }

    fn copy_in(&self, from_image: bool, output: &Output) -> Outcome {
        let target = change::address(&self.target)?;
        let bar = Bar::new(output);
        let mut verified = Ok(());
        let done = if from_image {
            let source = change::address(&self.source)?;
            if is_same_file(&source.image, &target.image) {
                change::change(&target, &self.opening, output, |fs| {
                    let from: Arc<dyn FileSystem> = match source.volume == target.volume {
                        true => fs.clone(),
                        false => {
                            return Err(Failure::usage(
                                "cp",
                                "cannot copy between volumes of one image",
                            )
                            .hint("copy to the host first"));
                        }
                    };
                    let found = self.in_volume(&from, &source, &bar)?;
                    self.put(fs, &target, found, &bar)
                })?
            } else {
                let image = self.opening.read(&source.image, output)?;
                let whole = source::is_whole(&source);
                let verification = self.verifying.begin(&image, whole, output);
                let place = ImageLocation::of(&image, &source, &self.opening)?;
                let found = self.in_volume(&place.fs, &source, &bar)?;
                let done = change::change(&target, &self.opening, output, |fs| {
                    self.put(fs, &target, found, &bar)
                })?;
                verified = verification.map_or(Ok(()), |sums| checksum_args::finish(sums, output));
                done
            }
        } else {
            let found = self.on_host(&target, &bar)?;
            change::change(&target, &self.opening, output, |fs| {
                self.put(fs, &target, found, &bar)
            })?
        };
        drop(bar);
        report(&target, done, output)?;
        verified
    }

    fn on_host(&self, target: &Address, bar: &Bar) -> Outcome<CopySource> {
        let path = Path::new(&self.source);
        let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if is_folder {
            self.check_recursive(&shown(path))?;
        }
        let whole = if is_folder {
            path.canonicalize().ok()
        } else {
            None
        };
        let name = whole
            .as_deref()
            .unwrap_or(path)
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default()
            .to_owned();
        let tree = if is_folder {
            // The image may lie in the folder that is copied into it.
            import::folder(
                path,
                &import::FolderOptions {
                    leave_out: vec![target.image.as_path().to_owned()],
                },
                bar,
            )?
        } else {
            import::single(path)?
        };
        Ok(CopySource {
            tree,
            name,
            is_folder,
        })
    }

    fn in_volume(
        &self,
        fs: &Arc<dyn FileSystem>,
        address: &Address,
        bar: &Bar,
    ) -> Outcome<CopySource> {
        let path = normal(address.path.as_deref().unwrap_or_default());
        let is_folder = bandsaw::fs::FileSystemExt::resolve(&**fs, &path)?.kind == FileKind::Folder;
        if is_folder {
            self.check_recursive(&address.to_string())?;
        }
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(CopySource {
            tree: import::volume(fs.clone(), &path, bar)?,
            name,
            is_folder,
        })
    }

    fn put(
        &self,
        fs: &Arc<dyn FileSystemMut>,
        target: &Address,
        found: CopySource,
        bar: &Bar,
    ) -> Outcome<PutReport> {
        let path = normal(target.path.as_deref().unwrap_or_default());
        let there = change::try_resolve(fs, &path)?;
        let into = there.is_some_and(|there| there.kind == FileKind::Folder);
        let (folder, name) = match (found.is_folder, into) {
            // The root has no name of its own: its contents are copied into the target.
            (true, true) if found.name.is_empty() => (path, None),
            (true, true) => (format!("{path}/{}", found.name), None),
            (true, false) => (path, None),
            (false, true) => (path, None),
            (false, false) if change::names_folder(&self.target) => {
                return Err(rename::not_a_folder("cp", &path).into());
            }
            (false, false) => {
                change::parent(fs, &path)?;
                let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
                (folder.to_owned(), Some(name.to_owned()))
            }
        };
        let options = PutOptions {
            overwrite: self.overwrite,
            name,
            compress: self.compressing.options()?,
        };
        put(&found.tree, &**fs, &folder, &options, bar)
            .map_err(|error| Failure::from(error).hint_if_exists(self.overwrite))
    }
}

/// A source to copy into an image.
struct CopySource {
    tree: Tree,
    /// The name of the source itself.
    name: String,
    is_folder: bool,
}

fn is_same_file(a: &ImagePath, b: &ImagePath) -> bool {
    let real = |path: &ImagePath| path.as_path().canonicalize().ok();
    a == b || real(a).is_some_and(|a| Some(a) == real(b))
}

/// The output of `--json` for a copy into an image.
#[derive(Serialize)]
struct CopyReport {
    path: String,
    files: u64,
    folders: u64,
    symlinks: u64,
    size: u64,
    compressed_files: u64,
}

fn report(target: &Address, done: PutReport, output: &Output) -> Outcome {
    let PutReport {
        files,
        folders,
        symlinks,
        bytes,
        compressed,
    } = done;
    output.done(
        &CopyReport {
            path: target.image.to_string(),
            files,
            folders,
            symlinks,
            size: bytes,
            compressed_files: compressed,
        },
        |out| {
            let parts = [
                (folders, "folder", "folders"),
                (files, "file", "files"),
                (symlinks, "symbolic link", "symbolic links"),
            ];
            for (count, one, many) in parts.into_iter().filter(|(count, ..)| *count > 0) {
                write!(out, "{}, ", counted(count, one, many))?;
            }
            let compressed = if compressed > 0 {
                format!(", {} compressed", counted(compressed, "file", "files"))
            } else {
                String::new()
            };
            writeln!(out, "{:#}{compressed}", size::display(bytes))
        },
    )
}

/// Returns true if an operand names an object in an image.
fn is_in_image(operand: &OsStr) -> Outcome<bool> {
    match Address::parse_on_host(operand) {
        Ok(address) => Ok(!address.is_bare()),
        // A name that is not UTF-8 may be any host path.
        Err(_) if operand.to_str().is_none() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the folder to fill, and the name of the file in it if that differs from its own.
fn destination(target: &Path, name: &str, is_folder: bool) -> Outcome<(PathBuf, Option<String>)> {
    if target.is_dir() {
        return Ok((
            if is_folder {
                target.join(name)
            } else {
                target.to_owned()
            },
            None,
        ));
    }
    if is_folder {
        return Ok((target.to_owned(), None));
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(Error::not_found("cp", parent.display().to_string()).into());
    }
    match target.file_name().and_then(OsStr::to_str) {
        Some(name) if !target.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Ok((parent.to_owned(), Some(name.to_owned())))
        }
        None if target.file_name().is_some() => Err(Failure::usage(
            "TARGET",
            "the new name of a file must be UTF-8; copy into a folder, then rename the file",
        )),
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
        assert_eq!(
            to("", false),
            Some((here.join(""), None)),
            "a file into a folder"
        );
        assert_eq!(
            to("new", false),
            Some((here.to_owned(), Some("new".into()))),
            "a file under a new name"
        );
        assert_eq!(
            to("", true),
            Some((here.join("it"), None)),
            "a folder into a folder"
        );
        assert_eq!(
            to("new", true),
            Some((here.join("new"), None)),
            "a folder under a new name"
        );
        assert_eq!(to("missing/new", false), None);
        assert_eq!(to("new/", false), None, "a file cannot become a folder");
    }
}
