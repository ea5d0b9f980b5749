//! `bandsaw timemachine restore`: files of a backup, into a folder.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bandsaw::fs::FileKind;
use bandsaw::ops::export::{Exported, FolderOptions, MAX_PROBLEMS, to_folder};
use bandsaw::platform::sync_folder;
use bandsaw::{Error, Kind, Reason};
use bandsaw_backups::{Located, OpenBackup};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::backups::{BackupsArgs, ReadBackups, date_and_path};
use crate::commands::extract;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;

/// The file in the target that marks a restore that is not finished.
const MARK: &str = ".bandsaw-restore";
const LAYER: &str = "restore";

/// Restore files and folders of a backup
///
/// Each file or folder is put into TARGET under its own name; a date without a path stands for all
/// volumes of the backup. TARGET is made if necessary. Links, modes, dates, extended attributes and
/// resource forks are kept as by `bandsaw extract`. Nothing is overwritten without --overwrite. In a path
/// * stands for any characters of a name, ? for one, and [a-z] for one of several.
///
/// After an interruption run the same command again: files that are complete are kept. Until then
/// TARGET has a file .bandsaw-restore.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm restore Mac.sparsebundle latest:/Users/anna/Documents out
  bandsaw tm restore Mac.sparsebundle 2026-11-01:/Users/anna/a.txt \"3 days ago:/b.txt\" out
  bandsaw tm restore Mac.sparsebundle 'latest:/Users/anna/*.pages' out
  bandsaw tm restore Mac.sparsebundle latest /mnt/everything")]
pub(super) struct Restore {
    #[command(flatten)]
    at: BackupsArgs,
    /// Dates and paths, and the folder to fill
    #[arg(value_names = ["DATE[:/PATH]", "TARGET"], num_args = 2.., required = true)]
    places: Vec<OsString>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    /// Restore device nodes, FIFOs and sockets
    #[arg(long)]
    special_files: bool,
    /// Keep the set-user-ID and set-group-ID bits of files
    #[arg(long)]
    setuid: bool,
}

/// An object to restore.
struct Job {
    open: OpenBackup,
    /// Path in the volume.
    path: String,
    name: String,
    is_folder: bool,
}

impl Restore {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let Some((target, sources)) = self.places.split_last() else {
            return Err(Failure::usage(LAYER, "expected DATE[:/PATH]... TARGET"));
        };
        let target = Path::new(target);
        let read = self.at.read(true, output)?;
        let mut jobs = Vec::new();
        let mut about = format!("{}\n", read.address);
        for source in sources {
            let (date, path) = date_and_path(source)?;
            let (number, open) = read.open(date)?;
            jobs.extend(Self::jobs(&open, path.unwrap_or_default())?);
            about.push_str(&line(&read, number, path));
        }
        check_names(&jobs)?;
        let mark = match self.overwrite {
            true => None,
            false => Some(Mark::begin(target, &about, &jobs)?),
        };
        fs::create_dir_all(target)
            .map_err(|source| Error::io(LAYER, "create", source).in_file(target))?;
        let bar = Bar::new(output);
        let mut done = Exported::default();
        for job in &jobs {
            let options = FolderOptions {
                overwrite: self.overwrite,
                special_files: self.special_files,
                setuid: self.setuid,
                resume: mark.is_some(),
                fresh: mark.as_ref().is_some_and(|mark| mark.is_new),
                ..FolderOptions::default()
            };
            let place = match job.is_folder {
                true => target.join(&job.name),
                false => target.to_owned(),
            };
            let part = to_folder(&*job.open.fs, &job.path, &place, &options, &bar)?;
            add(&mut done, part);
        }
        drop(bar);
        if let Some(mark) = mark {
            mark.end()?;
        }
        let image = read.address.image.to_string();
        extract::report(&image, done, None, self.overwrite, output)
    }

    /// Returns the objects of a path, or all volumes of the backup.
    fn jobs(open: &OpenBackup, path: &str) -> Outcome<Vec<Job>> {
        let found = open.resolve_all(path)?;
        let job = |path: String, is_folder| Job {
            open: open.clone(),
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            path,
            is_folder,
        };
        if found.iter().any(|one| !one.path.is_empty()) {
            let is_folder = |one: &Located| one.attributes.kind == FileKind::Folder;
            let jobs = found.iter();
            return Ok(jobs
                .map(|one| job(open.path_of(one), is_folder(one)))
                .collect());
        }
        let volumes = open.volumes()?;
        let jobs = volumes.iter();
        Ok(jobs
            .map(|volume| job(format!("{}/{}", open.path, volume.name), true))
            .collect())
    }
}

/// Returns the line of the mark for one source.
fn line(read: &ReadBackups, number: usize, path: Option<&str>) -> String {
    let backup = read.backups.all().get(number);
    let name = backup.map_or_else(String::new, |one| format!("{} {}", one.machine, one.name));
    format!("{name}:{:?}\n", path.unwrap_or("/"))
}

/// Refuses two objects with one name, of which the second would be merged into the first.
fn check_names(jobs: &[Job]) -> Outcome {
    let mut names = HashSet::new();
    for job in jobs {
        if !is_component(&job.name) {
            let error = Error::unsupported(LAYER, "the host does not support this name");
            return Err(error.named(&job.name).into());
        }
        if !names.insert(&job.name) {
            let message = "two objects have this name; restore them into different folders";
            return Err(Error::invalid(LAYER, message).named(&job.name).into());
        }
    }
    Ok(())
}

/// Returns true for a name that does not lead out of the target.
fn is_component(name: &str) -> bool {
    !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
}

fn add(done: &mut Exported, part: Exported) {
    done.files += part.files;
    done.folders += part.folders;
    done.symlinks += part.symlinks;
    done.bytes += part.bytes;
    done.problem_count += part.problem_count;
    done.note_count += part.note_count;
    done.problems.extend(part.problems);
    done.notes.extend(part.notes);
    done.problems.truncate(MAX_PROBLEMS);
    done.notes.truncate(MAX_PROBLEMS);
}

/// The file that marks a restore that is not finished, locked while it runs.
struct Mark {
    path: PathBuf,
    target: PathBuf,
    file: File,
    /// True if no earlier run has begun this restore.
    is_new: bool,
}

impl Mark {
    /// Begins a restore, or resumes one of the same objects. Fails if an object exists in the target
    /// that no interrupted restore has put there.
    fn begin(target: &Path, about: &str, jobs: &[Job]) -> Outcome<Self> {
        let path = target.join(MARK);
        let failed = |doing: &'static str| move |source| Error::io(LAYER, doing, source);
        fs::create_dir_all(target).map_err(failed("create"))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("open")(source).in_file(&path))?;
        // A file system without locks does not prevent a restore.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let message = "another restore into this folder is running";
            let error = Error::conflict(LAYER, message).because(Reason::InUse);
            return Err(error.in_file(target).into());
        }
        let mut known = String::new();
        let limited = (&mut file).take(1 << 20).read_to_string(&mut known);
        limited.map_err(|source| failed("read")(source).in_file(&path))?;
        let mark = Self {
            path,
            target: target.to_owned(),
            file,
            is_new: known != about,
        };
        if known == about {
            return Ok(mark);
        }
        // One that was interrupted while it was written has restored nothing.
        if !about.starts_with(&known) {
            let message = "an interrupted restore of other files has to be finished first";
            let error = Error::conflict(LAYER, message).in_file(&mark.path);
            return Err(
                Failure::from(error).hint("run it again, or remove this file to give it up")
            );
        }
        if let Some(there) = jobs.iter().find(|job| exists(&target.join(&job.name))) {
            let _ = fs::remove_file(&mark.path);
            let error = Error::new(Kind::Conflict, LAYER, "already exists")
                .because(Reason::Exists)
                .in_file(target.join(&there.name));
            return Err(Failure::from(error).hint(
                "restore into another folder, or use --overwrite to replace existing files",
            ));
        }
        mark.write(about)
            .map_err(|source| failed("write")(source).in_file(&mark.path))?;
        Ok(mark)
    }

    fn write(&self, about: &str) -> std::io::Result<()> {
        let mut file = &self.file;
        std::io::Seek::rewind(&mut file)?;
        file.set_len(0)?;
        file.write_all(about.as_bytes())?;
        file.sync_all()?;
        sync_folder(&self.target)
    }

    /// Makes everything durable, and removes the mark.
    fn end(self) -> Outcome {
        let failed = |source| Error::io(LAYER, "flush", source).in_file(&self.target);
        sync_all(&self.target).map_err(failed)?;
        fs::remove_file(&self.path)
            .and_then(|()| sync_folder(&self.target))
            .map_err(|source| Error::io(LAYER, "remove", source).in_file(&self.path))?;
        Ok(())
    }
}

/// Makes the file system of a folder durable.
#[cfg(target_os = "linux")]
fn sync_all(folder: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_all(_folder: &Path) -> std::io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
