//! The backups that a verb reads: arguments, dates and problems.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use bandsaw::address::Address;
use bandsaw::fs::Timestamp;
use bandsaw::open::Image;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::{Error, Kind};
use bandsaw_backups::{Backup, BackupVolume, Backups, OpenBackup, host_volume, volumes_of};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{self, Failure, Outcome};
use crate::output::Output;
use crate::source::{self, OpenArgs};
use crate::text::rfc3339;

/// Number of problems that are shown to people.
const MAX_SHOWN: usize = 10;

/// An image with backups.
#[derive(Debug, Args)]
pub(super) struct BackupsArgs {
    /// The image or disk with the backups: IMAGE[:VOLUME]
    ///
    /// A folder is read, too: that of a mounted backup volume, or of files that were copied from one,
    /// with Backups.backupdb in it.
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Use the backups of this machine
    #[arg(long, value_name = "NAME")]
    pub(super) machine: Option<String>,
    #[command(flatten)]
    pub(super) opening: OpenArgs,
}

/// Backups, and the image that has them.
pub(super) struct ReadBackups {
    /// Keeps the image locked. `None`: the backups are in a folder of the host.
    pub(super) image: Option<Image>,
    pub(super) address: Address,
    pub(super) backups: Backups,
}

/// A backup in the output of `--json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct BackupJson {
    machine: String,
    /// The name of its folder or snapshot.
    name: String,
    /// The reading of the Mac's clock in the name.
    date: String,
    /// `complete`, `in_progress` or `interrupted`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copied_size: Option<u64>,
}

impl BackupJson {
    pub(super) fn new(backup: &Backup) -> Self {
        Self {
            machine: backup.machine.clone(),
            name: backup.name.clone(),
            date: backup.date.to_string(),
            state: backup.state.name(),
            started: backup.started.map(rfc3339),
            completed: backup.completed.map(rfc3339),
            copied_size: backup.copied,
        }
    }
}

impl BackupsArgs {
    /// Returns the address of the image. A path belongs to a backup, not to it.
    pub(super) fn address(&self) -> Outcome<Address> {
        let address = source::address(&self.image)?;
        if address.path.is_some() || address.snapshot.is_some() {
            let message = "expected a whole image or volume, not a path or snapshot in it";
            let hint = "name the path after the date: DATE:/PATH";
            return Err(Failure::usage("address", message).hint(hint));
        }
        check_folder(Path::new(&address.image))?;
        Ok(address)
    }

    /// Opens the image and finds its backups. What cannot be read is shown to people, unless the
    /// caller shows it.
    pub(super) fn read(&self, shown: bool, output: &Output) -> Outcome<ReadBackups> {
        let address = self.address()?;
        let (image, volumes) = match host_folder(&address)? {
            Some(volume) => (None, vec![volume]),
            None => {
                let image = self.opening.read(&address.image, output)?;
                let keys = Some(self.opening.keys());
                let volumes = volumes_of(&image, address.volume.as_ref(), keys);
                let advise =
                    |error: Error| source::advise(error.in_file(&address.image), &address.image);
                (Some(image), volumes.map_err(advise)?)
            }
        };
        let mut backups = Backups::read(volumes);
        let failed = |error: Error| error.in_file(&address.image);
        backups.check_any().map_err(failed)?;
        if let Some(machine) = &self.machine {
            backups.keep_machine(machine).map_err(failed)?;
        }
        if shown && !output.json() {
            show(backups.problems().iter().map(Error::to_string), output);
        }
        Ok(ReadBackups {
            image,
            address,
            backups,
        })
    }

    /// Like [`read`](Self::read), for a verb that needs the backups of one machine.
    pub(super) fn read_one_machine(&self, output: &Output) -> Outcome<ReadBackups> {
        let read = self.read(true, output)?;
        match read.backups.check_one_machine() {
            Ok(()) => Ok(read),
            Err(error) => Err(read.advised(error)),
        }
    }
}

impl ReadBackups {
    /// Returns the number of the backup of a date, and opens it.
    pub(super) fn open(&self, date: &str) -> Outcome<(usize, OpenBackup)> {
        let number = self
            .backups
            .select(date, Timestamp::now_in_seconds())
            .map_err(|error| self.advised(error))?;
        let open = self.backups.open(number);
        Ok((
            number,
            open.map_err(|error| error.in_file(&self.address.image))?,
        ))
    }

    /// Describes the backup with this number among all, from 0.
    pub(super) fn json(&self, number: usize) -> Outcome<BackupJson> {
        let backup = self.backups.all().get(number);
        let missing = || Error::not_found("backups", number.to_string());
        Ok(BackupJson::new(backup.ok_or_else(missing)?))
    }

    /// Returns the date of a backup, for people.
    pub(super) fn date(&self, number: usize) -> String {
        let backup = self.backups.all().get(number);
        backup.map_or_else(String::new, |backup| backup.date.to_string())
    }

    fn advised(&self, error: Error) -> Failure {
        let several = self.backups.machines().len() > 1;
        let is_choice = matches!(error.kind(), Kind::Invalid | Kind::NotFound);
        let failure = Failure::from(error.in_file(&self.address.image));
        match (is_choice, several) {
            (true, true) => failure.hint("choose a machine with `--machine NAME`"),
            (true, false) => failure.hint(format!(
                "run `bandsaw tm list {}` to see all dates",
                self.address.image
            )),
            _ => failure,
        }
    }
}

/// Splits `DATE[:/PATH]`.
pub(super) fn date_and_path(text: &OsStr) -> Outcome<(&str, Option<&str>)> {
    let message = "expected DATE or DATE:/PATH in UTF-8";
    let text = text
        .to_str()
        .ok_or_else(|| Failure::usage("date", message))?;
    Ok(match text.find(":/") {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    })
}

/// Prints the first problems for people.
pub(super) fn show(all: impl ExactSizeIterator<Item = String>, output: &Output) {
    let more = all.len().saturating_sub(MAX_SHOWN);
    all.take(MAX_SHOWN)
        .for_each(|one| output.warn_of_loss(&one));
    if more > 0 {
        output.warn_of_loss(&format!("and {more} more like these"));
    }
}

/// Fails if there are problems, which were shown, with the exit code of the first.
pub(super) fn conclude(problems: &[&Error]) -> Outcome {
    match problems.first() {
        None => Ok(()),
        Some(first) => {
            let message = match problems.len() {
                1 => "a part of the backups cannot be read".to_owned(),
                count => format!("{count} parts of the backups cannot be read"),
            };
            Err(Error::new(first.kind(), "backups", message).into())
        }
    }
}

/// Returns errors for the JSON output.
pub(super) fn described<'a>(all: impl IntoIterator<Item = &'a Error>) -> Vec<ErrorInfo> {
    all.into_iter().map(failure::described).collect()
}

/// Returns the volume in a folder of the host with backups. `None` for images and bundles.
pub(crate) fn host_folder(address: &Address) -> Outcome<Option<BackupVolume>> {
    let path = Path::new(&address.image);
    let is_bundle = path.join("bands").is_dir() || path.join("Info.plist").exists();
    match address.volume.is_none() && !is_bundle {
        true => Ok(host_volume(path)?),
        false => Ok(None),
    }
}

/// Refuses a folder of bundles, with their names.
fn check_folder(path: &Path) -> Outcome {
    if !path.is_dir() || path.join("bands").is_dir() || path.join("Info.plist").exists() {
        return Ok(());
    }
    let is_bundle = |name: &String| {
        let extension = Path::new(name).extension().and_then(OsStr::to_str);
        matches!(extension, Some("sparsebundle" | "backupbundle"))
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(is_bundle).collect();
    names.sort();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!("a folder, expected an image; it has {}", names.join(", "));
    Err(Error::invalid("backups", message).in_file(path).into())
}
