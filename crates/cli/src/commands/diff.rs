//! `bandsaw diff`: differences between two volumes, snapshots or folders.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::address::Address;
use bandsaw::open::Image;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::store::FileMode;
use bandsaw_evidence::{
    ComparedFolder, Comparison, Difference, DifferenceKind, Field, Options, PageTitle, diff, html,
};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome, described};
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, ImageLocation, OpenArgs};

/// Compare files of two images, snapshots or folders
///
/// Each address names a volume, a snapshot, or a folder or file in one; of an image alone, its first
/// readable volume is compared. Contents are compared byte by byte, unless their sizes differ or they are
/// stored in the same place. Renamed files are recognized by their number in two states of one volume,
/// and otherwise by equal contents. The exit code is 11 if there are differences. For backups of a Mac by
/// date, see `bandsaw timemachine diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw diff Old.dmg New.dmg
  bandsaw diff Docs.sparsebundle@monday Docs.sparsebundle
  bandsaw diff disk.img:Data@before disk.img:Data --ignore accessed
  bandsaw diff a.img:/Letters b.img:/Letters --html page.html")]
pub(crate) struct Diff {
    /// The older side: IMAGE[:VOLUME[@SNAPSHOT]][:/PATH]
    #[arg(value_name = "OLD", value_hint = ValueHint::AnyPath)]
    old: OsString,
    /// The newer side, named in the same way
    #[arg(value_name = "NEW", value_hint = ValueHint::AnyPath)]
    new: OsString,
    /// Trust equal sizes and modification times, as rsync does
    #[arg(long)]
    quick: bool,
    /// Do not compare this part of files
    ///
    /// FIELD is contents, resource_fork, target, xattrs, mode, owner, group, flags, device, created,
    /// modified, changed, accessed or backed_up. The option may be given several times.
    #[arg(long, value_name = "FIELD")]
    ignore: Vec<Field>,
    /// Write an HTML page to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "html")]
    overwrite: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct DiffReport {
    old: SideJson,
    new: SideJson,
    compared: u64,
    differences: Vec<DifferenceJson>,
    problems: Vec<ErrorInfo>,
}

#[derive(Serialize)]
struct SideJson {
    path: String,
    volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    volume_path: String,
}

#[derive(Serialize)]
struct DifferenceJson {
    /// `added`, `removed`, `changed` or `renamed`.
    kind: &'static str,
    /// Kind of the object.
    node: &'static str,
    /// From the compared folder.
    relative_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_before: Option<u64>,
}

impl Diff {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (a, b) = (source::address(&self.old)?, source::address(&self.new)?);
        let first = self.opening.read(&a.image, output)?;
        let other = match Path::new(&a.image) == Path::new(&b.image) {
            true => None,
            false => Some(self.opening.read(&b.image, output)?),
        };
        let second = other.as_ref().unwrap_or(&first);
        let old = ImageLocation::of(&first, &a, &self.opening)?;
        let new = ImageLocation::of(second, &b, &self.opening)?;
        Self::note_other_volumes(&first, &a, output);
        Self::note_other_volumes(second, &b, output);
        let options = Options {
            ignored: self.ignore.clone(),
            quick: self.quick,
        };
        let bar = Bar::new(output);
        let done = diff(side(&old), side(&new), &options, &bar)?;
        drop(bar);
        if let Some(path) = &self.html {
            let title = PageTitle {
                old: &a.to_string(),
                new: &b.to_string(),
            };
            let mode = |image: &Image| FileMode::of(image.path()).unwrap_or(FileMode::PRIVATE);
            let mode = mode(&first).and(mode(second));
            let mut page = NewFile::create_as(path, self.overwrite, mode)?;
            page.write_all(html(title, &done).as_bytes())?;
            page.finish()?;
        }
        let report = DiffReport {
            old: SideJson::new(&a, &old),
            new: SideJson::new(&b, &new),
            compared: done.compared,
            differences: done.differences.iter().map(DifferenceJson::new).collect(),
            problems: done.problems.iter().map(described).collect(),
        };
        output.result(&report, |out| {
            for one in &done.differences {
                writeln!(out, "{}", line(one, output))?;
            }
            Ok(())
        })?;
        conclude(&done, output)
    }

    /// Says which volume is compared if there are several.
    fn note_other_volumes(image: &Image, address: &Address, output: &Output) {
        if address.volume.is_some() || address.snapshot.is_some() {
            return;
        }
        let volumes: usize = image
            .volumes()
            .iter()
            .filter(|volume| volume.format.is_supported())
            .map(|volume| match volume.format.is_container() {
                true => volume.container().map_or(1, |found| found.labels().len()),
                false => 1,
            })
            .sum();
        if volumes > 1 {
            output.warn(&format!(
                "{} has {volumes} volumes, and only the first readable one is compared; name \
                 another as {}:VOLUME",
                address.image, address.image
            ));
        }
    }
}

fn side(of: &ImageLocation) -> ComparedFolder<'_> {
    ComparedFolder {
        fs: &*of.fs,
        attributes: &of.attributes,
    }
}

/// Returns the exit code: that of what could not be read, or that of differences.
fn conclude(done: &Comparison, output: &Output) -> Outcome {
    unread(&done.problems, output)?;
    match done.differences.is_empty() {
        true => Ok(()),
        false => Err(Failure::differs()),
    }
}

fn line(of: &Difference, output: &Output) -> String {
    let path = output.name(&of.path);
    let path = match &of.old_path {
        Some(old) => format!("{} -> {path}", output.name(old)),
        None => path,
    };
    let mut words: Vec<String> = Vec::new();
    words.extend(
        of.evidence
            .map(|evidence| format!("by {}", evidence.name().replace('_', " "))),
    );
    words.extend(names(&of.fields, true).map(|name| name.replace('_', " ")));
    let metadata: Vec<_> = names(&of.fields, false)
        .map(|name| name.replace('_', " "))
        .collect();
    if !metadata.is_empty() {
        words.push(format!("metadata: {}", metadata.join(", ")));
    }
    match words.is_empty() {
        true => format!("{:<8} {path}", of.kind.name()),
        false => format!("{:<8} {path}  ({})", of.kind.name(), words.join("; ")),
    }
}

fn names(fields: &[Field], contents: bool) -> impl Iterator<Item = &'static str> + '_ {
    let chosen = move |field: &&Field| field.is_contents() == contents;
    fields.iter().filter(chosen).map(|field| field.name())
}

impl SideJson {
    fn new(address: &Address, place: &ImageLocation) -> Self {
        Self {
            path: address.image.to_string(),
            volume: place.fs.volume().name,
            snapshot: address.snapshot.clone(),
            volume_path: place.shown_path().to_owned(),
        }
    }
}

impl DifferenceJson {
    fn new(of: &Difference) -> Self {
        let both = matches!(of.kind, DifferenceKind::Changed | DifferenceKind::Renamed);
        Self {
            kind: of.kind.name(),
            node: of.node.name(),
            relative_path: of.path.clone(),
            source_path: of.old_path.clone(),
            evidence: of.evidence.map(|evidence| evidence.name()),
            contents: both.then(|| names(&of.fields, true).collect()),
            metadata: both.then(|| names(&of.fields, false).collect()),
            size: of.new_size.or(of.old_size),
            size_before: of.old_size.filter(|_| both),
        }
    }
}

/// Returns the failure about objects that could not be read, after `all` were shown.
pub(super) fn unread(all: &[Error], output: &Output) -> Outcome {
    if !output.json() {
        for error in all.iter().skip(1) {
            output.warn_of_loss(&error.to_string());
        }
    }
    all.first()
        .map_or(Ok(()), |error| Err(error.duplicate().into()))
}
