//! `bandsaw recover`: deleted files, and files of damaged volumes.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use bandsaw::fs::{Certainty, DateTime, FileKind, RecoveredFile, Timestamp};
use bandsaw::open::Image;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::store::FileMode;
use bandsaw::{Error, Kind, Result, size};
use bandsaw_backups::Glob;
use bandsaw_evidence::{
    Extractor, FileEntry, Recovered, RecoverySink, ReportFormat, ReportWriter, Selection,
    VolumeEntry, recover,
};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome, described};
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Recover deleted files, and files of damaged volumes
///
/// The image is only read. HFS+ volumes are searched for records in unused parts of the catalog and in the
/// journal, APFS containers for nodes of earlier transactions. If a volume is damaged, all files whose
/// records can be read are recovered. A disk without a readable partition map is searched for volumes.
///
/// A file is `whole` if all of its blocks are free and no newer file claims one of them, `partial` if some
/// are not, and `name_only` if nothing of its contents is left. Of a damaged volume, a file whose blocks are
/// in use by nothing else that was found is `existing`. Whole and existing files are written to TARGET with
/// their paths; files whose folder is unknown go below `Orphans`. Existing files are not replaced, and a file
/// that is there with its size and date counts as recovered, so an interrupted run can be repeated. See
/// docs/recover.md for what can and cannot be found.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw recover disk.img --list                     show what can be found
  bandsaw recover disk.img out                        recover whole files of all volumes
  bandsaw recover disk.img:Data out --name '*.jpg'    only pictures of one volume
  bandsaw recover disk.img out --partial --report found.html
  bandsaw recover disk.img --list --after 2026-05-01 --min-size 1m")]
pub(crate) struct Recover {
    /// The image, or one volume of it: IMAGE[:VOLUME]
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// The folder to fill
    #[arg(
        value_name = "TARGET",
        value_hint = ValueHint::DirPath,
        required_unless_present = "list",
        conflicts_with = "list"
    )]
    target: Option<PathBuf>,
    /// List what was found, and write no file
    #[arg(long, short)]
    list: bool,
    /// Recover partly overwritten files, too
    ///
    /// Lost bytes are zeros, and the names end in `.partial`.
    #[arg(long, conflicts_with = "list")]
    partial: bool,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    /// Write a report to this file: .json, .csv or .html
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Recover only files whose name matches a pattern
    ///
    /// `*` stands for any characters, `?` for one. Upper and lower case are the same.
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Recover only files modified at or after this time
    ///
    /// DATE is a day in UTC, such as 2026-05-01, or a time, such as 2026-05-01T14:30:00Z.
    #[arg(long, value_name = "DATE", value_parser = date)]
    after: Option<Timestamp>,
    /// Recover only files modified before this time
    #[arg(long, value_name = "DATE", value_parser = date)]
    before: Option<Timestamp>,
    /// Recover only files of at least this size
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    min_size: Option<u64>,
    /// Recover only objects of this kind
    ///
    /// The option may be given several times.
    #[arg(long, value_name = "KIND")]
    kind: Vec<KindArg>,
    #[command(flatten)]
    opening: OpenArgs,
}

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// Regular files
    File,
    /// Symbolic links
    Symlink,
    /// FIFOs, sockets and device nodes, which are listed only
    Special,
}

impl KindArg {
    fn kinds(self) -> &'static [FileKind] {
        match self {
            Self::File => &[FileKind::File],
            Self::Symlink => &[FileKind::Symlink],
            Self::Special => &[
                FileKind::Fifo,
                FileKind::Socket,
                FileKind::CharDevice,
                FileKind::BlockDevice,
            ],
        }
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct RecoverReport {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report_path: Option<String>,
    volumes: Vec<VolumeEntry>,
    whole: u64,
    existing: u64,
    partial: u64,
    name_only: u64,
    /// The files, with `--list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Vec<FileEntry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<RecoveredJson>,
}

/// The files that were written.
#[derive(Serialize)]
struct RecoveredJson {
    files: u64,
    symlinks: u64,
    size: u64,
    problems: Vec<ErrorInfo>,
    problem_count: u64,
}

/// Numbers of files by their certainty.
#[derive(Default)]
struct Counts {
    whole: u64,
    existing: u64,
    partial: u64,
    name_only: u64,
}

/// Takes what the search finds.
struct Found<'a> {
    output: &'a Output,
    /// True if there are several volumes, and each has a folder.
    has_folders: bool,
    extractor: Option<Extractor<'a>>,
    report: Option<ReportWriter<NewFile>>,
    /// Lines for people.
    lines: Option<Box<dyn Write + 'a>>,
    /// Entries for programs.
    entries: Option<Vec<FileEntry>>,
    volumes: Vec<VolumeEntry>,
    counts: Counts,
}

impl Recover {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.image)?;
        if address.snapshot.is_some() || address.path.is_some() {
            let message = "expected IMAGE or IMAGE:VOLUME, without a snapshot or path";
            return Err(Failure::usage("IMAGE", message));
        }
        let image = self.opening.read_disk(&address.image, output)?;
        let bar = Bar::new(output);
        let shown_path = address.image.to_string();
        let mut found = Found {
            output,
            has_folders: address.volume.is_none() && volumes(&image) != 1,
            extractor: self
                .target
                .as_deref()
                .map(|target| Extractor::new(target, self.overwrite, self.partial, &bar)),
            report: self.report(&image, &shown_path)?,
            lines: (self.list && !output.json())
                .then(|| Box::new(output.stdout()) as Box<dyn Write>),
            entries: (self.list && output.json()).then(Vec::new),
            volumes: Vec::new(),
            counts: Counts::default(),
        };
        let searched = recover(
            &image,
            address.volume.as_ref(),
            Some(self.opening.keys()),
            &self.selection(),
            &mut found,
            &bar,
        );
        let advise = |error: Error| source::advise(error.in_file(&address.image), &address.image);
        searched.map_err(advise)?;
        let done = found.extractor.take().map(Extractor::finish).transpose()?;
        if let Some(report) = found.report.take() {
            report.finish()?.finish()?;
        }
        if let Some(mut lines) = found.lines.take() {
            lines.flush()?;
        }
        let volumes = std::mem::take(&mut found.volumes);
        let counts = std::mem::take(&mut found.counts);
        let entries = found.entries.take();
        drop(found);
        drop(bar);
        let report = RecoverReport {
            path: shown_path,
            target_path: self.target.as_deref().map(shown),
            report_path: self.report.as_deref().map(shown),
            whole: counts.whole,
            existing: counts.existing,
            partial: counts.partial,
            name_only: counts.name_only,
            volumes,
            found: entries,
            recovered: done.as_ref().map(RecoveredJson::new),
        };
        self.conclude(&report, done, output)
    }

    fn selection(&self) -> Selection {
        let glob = self.name.as_deref().map(|name| Glob::new(name, true));
        Selection {
            name: glob.map(|glob| Box::new(move |name: &str| glob.matches(name)) as Box<_>),
            after: self.after,
            before: self.before,
            min_size: self.min_size.unwrap_or(0),
            kinds: self
                .kind
                .iter()
                .flat_map(|kind| kind.kinds())
                .copied()
                .collect(),
        }
    }

    /// Begins the report, whose mode is at most that of the image, as it has names of its files.
    fn report(&self, image: &Image, path: &str) -> Outcome<Option<ReportWriter<NewFile>>> {
        let Some(file) = &self.report else {
            return Ok(None);
        };
        let Some(format) = ReportFormat::of(&file.to_string_lossy()) else {
            let message = "the name must end in .json, .csv or .html";
            return Err(Failure::usage("--report", message));
        };
        let mode = FileMode::of(image.path()).unwrap_or(FileMode::PRIVATE);
        let out = NewFile::create_as(file, self.overwrite, mode)?;
        let tool = concat!("bandsaw ", env!("CARGO_PKG_VERSION"));
        Ok(Some(ReportWriter::begin(format, out, path, tool)?))
    }

    /// Prints the result. Fails if a file could not be written.
    fn conclude(
        &self,
        report: &RecoverReport,
        done: Option<Recovered>,
        output: &Output,
    ) -> Outcome {
        if !output.json() {
            for volume in &report.volumes {
                warn(volume, output);
            }
        }
        let hint = |failure: Failure| match failure.kind() {
            Kind::Conflict if !self.overwrite => {
                failure.hint("use --overwrite to replace existing files")
            }
            _ => failure,
        };
        let mut done = done;
        if let Some(done) = &mut done
            && done.files + done.symlinks == 0
            && done.problem_count == 1
            && done.problems.len() == 1
        {
            // For a single file, its problem is the failure itself.
            return Err(hint(done.problems.remove(0).into()));
        }
        output.done(report, |out| {
            let counts = [
                (report.whole, "whole"),
                (report.existing, "existing"),
                (report.partial, "partly overwritten"),
                (report.name_only, "by name only"),
            ];
            let parts: Vec<_> = counts
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            match parts.is_empty() {
                true => writeln!(out, "no deleted files were found")?,
                false => writeln!(out, "found: {}", parts.join(", "))?,
            }
            if let Some(done) = &report.recovered {
                let files = counted(done.files, "file", "files");
                writeln!(out, "recovered: {files}, {:#}", size::display(done.size))?;
            }
            Ok(())
        })?;
        let Some(done) = done.filter(|done| done.problem_count > 0) else {
            return Ok(());
        };
        if !output.json() {
            for problem in done.problems.iter().take(10) {
                output.warn_of_loss(&problem.to_string());
            }
        }
        let all_exist = done
            .problems
            .iter()
            .all(|problem| problem.kind() == Kind::Conflict);
        let kind = if all_exist { Kind::Conflict } else { Kind::Io };
        let count = counted(done.problem_count, "file was", "files were");
        let message = format!("{count} not recovered, or not completely");
        let failure = Failure::from(Error::new(kind, "recover", message).in_file(&report.path));
        Err(hint(failure))
    }
}

impl RecoveredJson {
    fn new(done: &Recovered) -> Self {
        Self {
            files: done.files,
            symlinks: done.symlinks,
            size: done.bytes,
            problems: done.problems.iter().map(described).collect(),
            problem_count: done.problem_count,
        }
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the number of volumes of an image that are searched.
fn volumes(image: &Image) -> usize {
    let count = |volume: &bandsaw::open::Volume| match volume.format.is_container() {
        true => volume.container().map_or(1, |found| found.labels().len()),
        false => usize::from(volume.format.is_hfs_plus()),
    };
    image.volumes().iter().map(count).sum()
}

fn warn(volume: &VolumeEntry, output: &Output) {
    let place = match &volume.name {
        Some(name) => format!("volume {name}"),
        None => format!("volume {}", volume.volume),
    };
    if volume.damaged {
        output.warn_of_loss(&format!(
            "{place} is damaged: files that exist are among those that were found"
        ));
    }
    for problem in volume.problems.iter().take(10) {
        output.warn(&format!("{place}: {}", problem.message));
    }
    if volume.unassigned_nodes > 0 {
        let nodes = counted(volume.unassigned_nodes, "node was", "nodes were");
        output.warn(&format!(
            "{place}: {nodes} left out, as their volume is unknown"
        ));
    }
}

impl RecoverySink for Found<'_> {
    fn file(
        &mut self,
        volume: &VolumeEntry,
        file: RecoveredFile,
        mut entry: FileEntry,
    ) -> Result<()> {
        match file.certainty {
            Certainty::Whole => self.counts.whole += 1,
            Certainty::Existing => self.counts.existing += 1,
            Certainty::Partial => self.counts.partial += 1,
            Certainty::NameOnly => self.counts.name_only += 1,
        }
        let folder = match (&volume.name, self.has_folders) {
            (_, false) => String::new(),
            (Some(name), true) => format!("/{} {}", volume.volume, name.replace(['/', '\0'], ":")),
            (None, true) => format!("/{}", volume.volume),
        };
        if let Some(lines) = &mut self.lines {
            let line = line(&entry, &folder, self.output);
            writeln!(lines, "{line}").map_err(|error| Error::io("output", "write", error))?;
        }
        if let Some(extractor) = &mut self.extractor {
            let place = extractor.add(&folder, file)?;
            entry.target_path = place.map(|place| place.to_string_lossy().into_owned());
        }
        if let Some(report) = &mut self.report {
            report.file(&entry)?;
        }
        if let Some(entries) = &mut self.entries {
            entries.push(entry);
        }
        Ok(())
    }

    fn volume(&mut self, volume: VolumeEntry) -> Result<()> {
        if let Some(report) = &mut self.report {
            report.volume(&volume);
        }
        self.volumes.push(volume);
        Ok(())
    }
}

fn line(entry: &FileEntry, folder: &str, output: &Output) -> String {
    let mut notes = Vec::new();
    if entry.earlier_version {
        notes.push("earlier version".to_owned());
    }
    if entry.lost_size > 0 {
        let mut reasons: Vec<_> = entry.losses.iter().map(|loss| loss.reason).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let lost = counted(entry.lost_size, "byte", "bytes");
        notes.push(format!(
            "{lost} lost: {}",
            reasons.join(", ").replace('_', " ")
        ));
    }
    let path = output.name(&format!("{folder}{}", entry.volume_path));
    let notes = match notes.is_empty() {
        true => String::new(),
        false => format!("  ({})", notes.join("; ")),
    };
    format!(
        "{:<9} {:>12} {:<20} {path}{notes}",
        entry.certainty.replace('_', " "),
        entry.size,
        entry
            .modified
            .as_deref()
            .unwrap_or("-")
            .get(..19)
            .unwrap_or("-"),
    )
}

/// Parses a day or a time in UTC.
fn date(text: &str) -> std::result::Result<Timestamp, &'static str> {
    const EXPECTED: &str =
        "expected a day or a time in UTC, such as 2026-05-01 or 2026-05-01T14:30:00Z";
    let (day, time) = match text.split_once(['T', ' ']) {
        Some((day, time)) => (day, time.strip_suffix('Z').unwrap_or(time)),
        None => (text, "00:00:00"),
    };
    let numbers = |text: &str, by: char| -> Option<[u32; 3]> {
        let mut parts = text.split(by).map(|part| match part.len() {
            1..=4 => part.parse::<u32>().ok(),
            _ => None,
        });
        let all = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(all)
    };
    let ([year, month, day], [hour, minute, second]) =
        numbers(day, '-').zip(numbers(time, ':')).ok_or(EXPECTED)?;
    let small = |number: u32, range: std::ops::RangeInclusive<u32>| {
        u8::try_from(number)
            .ok()
            .filter(|_| range.contains(&number))
            .ok_or(EXPECTED)
    };
    let wanted = DateTime {
        year: year.into(),
        month: small(month, 1..=12)?,
        day: small(day, 1..=31)?,
        hour: small(hour, 0..=23)?,
        minute: small(minute, 0..=59)?,
        second: small(second, 0..=59)?,
    };
    let stamp = wanted.timestamp();
    // A day that does not exist is another one.
    let same = stamp.date_time();
    match (same.month, same.day) == (wanted.month, wanted.day) {
        true => Ok(stamp),
        false => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_or_times() {
        assert_eq!(date("1970-01-02").unwrap().seconds, 86_400);
        assert_eq!(date("1970-01-01T00:01:00Z").unwrap().seconds, 60);
        for bad in [
            "",
            "2026",
            "2026-02-30",
            "2026-13-01",
            "2026-01-01T25:00:00Z",
            "x-y-z",
        ] {
            assert!(date(bad).is_err(), "{bad}");
        }
    }
}
