//! `bandsaw extract`: files of a volume, into a host folder or a tar archive.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use bandsaw::open::Image;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::ops::export::{Exported, FolderOptions, to_folder, to_tar};
use bandsaw::ops::orphans;
use bandsaw::ops::verify::Verification;
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::checksum_args::{self, VerifyArgs};
use crate::failure::{Failure, Outcome, described};
use crate::missing_contents;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, ImageLocation, OpenArgs};
use crate::text::counted;

/// Extract files of a volume to a folder or tar archive
///
/// The contents of a folder of the volume are put into FOLDER, which is made if necessary; a single
/// file is put there under its own name. Links, modes, dates and extended attributes are kept, and
/// owners if the user may set them. Special files need --special-files, and set-user-ID and
/// set-group-ID bits of files --setuid. Files that cannot be extracted are reported; the others are
/// extracted, and the exit code is 1.
///
/// A local image that stores checksums, such as a compressed one, is compared with them if no path is
/// given. If one differs, everything is extracted, the damaged area is reported, and the exit code is
/// 5.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw extract Docs.sparsebundle out                  extract everything
  bandsaw extract Docs.sparsebundle:/Letters out         extract one folder
  bandsaw extract disk.img:#2:/etc/hosts .               extract a file of partition 2
  bandsaw extract --overwrite Docs.sparsebundle out      replace existing files
  bandsaw extract Docs.sparsebundle --tar docs.tar       write an archive
  bandsaw extract Docs.sparsebundle --tar - | tar t      write to a pipe")]
pub(crate) struct Extract {
    /// The object to extract: IMAGE[:VOLUME][:/PATH]
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// The folder to fill
    #[arg(value_name = "FOLDER", required_unless_present = "tar")]
    folder: Option<PathBuf>,
    /// Write a tar archive to this file; - for standard output
    ///
    /// Creation dates are stored as libarchive does. GNU tar does not know them and prints a warning
    /// for each file, unless it is called with --warning=no-unknown-keyword.
    #[arg(long, value_name = "FILE", conflicts_with = "folder")]
    tar: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    /// Extract device nodes, FIFOs and sockets
    ///
    /// Device nodes need root.
    #[arg(long, conflicts_with = "tar")]
    special_files: bool,
    /// Keep the set-user-ID and set-group-ID bits of files
    #[arg(long, conflicts_with = "tar")]
    setuid: bool,
    #[command(flatten)]
    verifying: VerifyArgs,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ExtractReport<'a> {
    /// The image, or the place of the backups.
    path: &'a str,
    files: u64,
    folders: u64,
    symlinks: u64,
    size: u64,
    /// True if the image was compared with the checksums stored in it, and all agree; absent if
    /// nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    problems: Vec<ErrorInfo>,
    problem_count: u64,
    /// Files and bits that were skipped because no option asks for them.
    notes: Vec<ErrorInfo>,
    note_count: u64,
}

impl Extract {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        let image = self.opening.read(&address.image, output)?;
        let whole = source::is_whole(&address);
        let verification = self.verifying.begin(&image, whole, output);
        let place = ImageLocation::of(&image, &address, &self.opening)?;
        let bar = Bar::new(output);
        let (mut done, output) = match (&self.tar, &self.folder) {
            (Some(file), _) if file.as_os_str() == "-" => {
                (to_stdout(&place, output, &bar)?, &output.aside())
            }
            (Some(file), _) => (self.to_file(&place, file, &bar)?, output),
            (None, folder) => {
                let folder = folder.as_deref().unwrap_or(Path::new("."));
                let options = FolderOptions {
                    overwrite: self.overwrite,
                    special_files: self.special_files,
                    setuid: self.setuid,
                    ..FolderOptions::default()
                };
                (
                    to_folder(&*place.fs, &place.path, folder, &options, &bar)
                        .map_err(|error| of_target(error, folder))?,
                    output,
                )
            }
        };
        drop(bar);
        note_unverified(&self.verifying, &image, whole, &mut done, output);
        let image_path = address.image.to_string();
        report(&image_path, done, verification, self.overwrite, output)?;
        if image.reads_older_state() {
            let what =
                "the newest checkpoint of the volume is damaged: the files are from an older one";
            let error = Error::new(Kind::Corrupt, "extract", what).in_file(&address.image);
            return Err(Failure::from(error).warned());
        }
        match whole {
            true => missing_contents::warn(&image, orphans::doubt(&image, &Silent)?),
            false => Ok(()),
        }
    }

    fn to_file(&self, place: &ImageLocation, path: &Path, bar: &Bar) -> Outcome<Exported> {
        let mut file = NewFile::create_as(path, self.overwrite, place.mode)?;
        let done = to_tar(&*place.fs, &place.path, &mut file, bar)?;
        file.finish()?;
        Ok(done)
    }
}

fn to_stdout(place: &ImageLocation, output: &Output, bar: &Bar) -> Outcome<Exported> {
    if output.terminal() {
        return Err(Failure::usage("--tar", "standard output is a terminal")
            .hint("redirect it to tar, or name a file"));
    }
    let mut out = output.stdout();
    let done = to_tar(&*place.fs, &place.path, &mut out, bar)?;
    out.flush()?;
    Ok(done)
}

/// Names the folder of the host in an error of writing to it.
pub(super) fn of_target(error: Error, folder: &Path) -> Error {
    match error.io_kind() {
        Some(_) => error.in_file(folder),
        None => error,
    }
}

/// The number of problems listed; more are counted.
const MAX_SHOWN: usize = 10;

/// Adds to the document that the image was not compared with its checksums; people were told before.
pub(super) fn note_unverified(
    verifying: &VerifyArgs,
    image: &Image,
    whole: bool,
    done: &mut Exported,
    output: &Output,
) {
    if output.json() && verifying.leaves_out(image, whole) {
        let note = Error::unsupported("extract", checksum_args::NOT_VERIFIED).in_file(image.path());
        done.notes.push(note);
        done.note_count += 1;
    }
}

/// Completes the comparison with the stored checksums and reports the result. Fails if a checksum
/// differs or anything could not be extracted.
pub(super) fn report(
    path: &str,
    done: Exported,
    verification: Option<Verification>,
    overwrite: bool,
    output: &Output,
) -> Outcome {
    let verified = verification.map(|sums| checksum_args::finish(sums, output));
    let agrees = match &verified {
        Some(Err(failure)) if failure.kind() != Kind::Corrupt => None,
        Some(verified) => Some(verified.is_ok()),
        None => None,
    };
    let reported = print(path, done, agrees, output).map_err(|failure| match failure.kind() {
        Kind::Conflict if !overwrite => failure.hint("use --overwrite to replace existing files"),
        _ => failure,
    });
    let Some(Err(damage)) = verified else {
        return reported;
    };
    if let Err(other) = reported {
        output.warn(&other.message());
    }
    Err(damage)
}

/// Prints the result; fails if anything could not be extracted.
fn print(path: &str, mut done: Exported, verified: Option<bool>, output: &Output) -> Outcome {
    let nothing_else = done.files + done.folders + done.symlinks == 0;
    if nothing_else && done.problem_count == 1 && done.problems.len() == 1 {
        // For a single object, its problem is the failure itself.
        return Err(done.problems.remove(0).into());
    }
    let facts = ExtractReport {
        path,
        files: done.files,
        folders: done.folders,
        symlinks: done.symlinks,
        size: done.bytes,
        verified,
        problems: done.problems.iter().map(described).collect(),
        problem_count: done.problem_count,
        notes: done.notes.iter().map(described).collect(),
        note_count: done.note_count,
    };
    output.done(&facts, |out| {
        let parts = [
            (done.folders, "folder", "folders"),
            (done.files, "file", "files"),
            (done.symlinks, "symbolic link", "symbolic links"),
        ];
        for (count, one, many) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            write!(out, "{}, ", counted(count, one, many))?;
        }
        writeln!(out, "{:#}", size::display(done.bytes))
    })?;
    show(&facts.notes, done.note_count, output);
    if done.problem_count == 0 {
        return Ok(());
    }
    show(&facts.problems, done.problem_count, output);
    let all_exist = done
        .problems
        .iter()
        .all(|problem| problem.kind() == Kind::Conflict);
    let kind = if all_exist { Kind::Conflict } else { Kind::Io };
    let count = counted(done.problem_count, "object was", "objects were");
    Err(Error::new(
        kind,
        "extract",
        format!("{count} not extracted, or not completely"),
    )
    .in_file(path)
    .into())
}

/// Prints the first lines of `all` for people; programs find all of them in the JSON output.
fn show(all: &[ErrorInfo], count: u64, output: &Output) {
    if output.json() {
        return;
    }
    all.iter()
        .take(MAX_SHOWN)
        .for_each(|one| output.warn(&one.message));
    let more = count.saturating_sub(MAX_SHOWN as u64);
    if more > 0 {
        output.warn(&format!("and {more} more like these"));
    }
}
