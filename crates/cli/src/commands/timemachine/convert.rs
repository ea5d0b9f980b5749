//! `bandsaw timemachine convert`: backups on HFS+ as snapshots on APFS.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::crypt::Encryption;
use bandsaw::device::Access;
use bandsaw::open::{self, Image, Keys, OpenOptions};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind, platform, size};
use bandsaw_backups::{Conversion, check_convertible, convert, verify_conversion};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::backups::{BackupsArgs, conclude, described, show};
use crate::commands::convert::EncryptionArgs;
use crate::commands::create::epoch;
use crate::container_args::{self, Container};
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::text::counted;

/// Layer name in errors.
const LAYER: &str = "timemachine convert";
/// The beginning of the name of an image that is not complete.
const UNFINISHED: &str = "unfinished-";

/// Convert backups on HFS+ to APFS, as an experiment
///
/// NEW becomes an image with an APFS volume that has a snapshot for each date of the backups, as macOS
/// makes them since version 11. Files that did not change from one date to the next are stored once.
/// At the end every file of every date is compared with its source. OLD is only read.
///
/// This is an experiment: no Mac has confirmed that Time Machine shows such a history or continues it.
/// Keep OLD.
///
/// Until it is complete, the image is called unfinished-NEW. After an interruption run the same command
/// again: it continues with the next date. Backups that are in progress or interrupted are left out, and
/// files that cannot be read are named. Encrypted backups require --re-encrypt, --encrypt or --decrypt.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm convert Old.sparsebundle New.sparsebundle
  bandsaw tm convert /dev/sdb New.sparsebundle --machine \"Anna's Mac\" --size 2t
  bandsaw tm convert --encrypt Old.sparsebundle New.sparsebundle   asks for a passphrase
  bandsaw tm list New.sparsebundle")]
pub(super) struct Convert {
    #[command(flatten)]
    at: BackupsArgs,
    /// The new image, such as New.sparsebundle
    ///
    /// The extension determines the format, which can be one that can be changed: .sparsebundle,
    /// .sparseimage, .asif, .img or .dmg.
    #[arg(value_name = "NEW", value_hint = ValueHint::AnyPath)]
    new: PathBuf,
    /// Set the maximum size of the new volume
    ///
    /// The default is the size of the old volume.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Set the band size of a sparse bundle, 1m to 8g
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    band_size: Option<u64>,
    /// Do not compare the files of all dates at the end
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ConvertReport {
    path: String,
    machine: String,
    /// Number of dates that were converted in this run.
    dates: usize,
    /// Number of dates that an earlier run converted.
    known_dates: usize,
    left_out: Vec<String>,
    files: u64,
    size: u64,
    verified: bool,
    problems: Vec<ErrorInfo>,
    problem_count: u64,
}

impl Convert {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let new = container_args::new_image_path(&self.new)?.into_owned();
        check_absent(&new)?;
        let unfinished = unfinished(&new)?;
        let read = self.at.read_one_machine(output)?;
        let backups = &read.backups;
        check_convertible(backups).map_err(|error| error.in_file(&read.address.image))?;
        let encryption = self.encryption(read.image.as_ref())?;
        let encryption = encryption.as_ref();
        let bar = Bar::new(output);
        if fs::symlink_metadata(&unfinished).is_err() {
            self.create(&unfinished, &read, encryption, (&bar, output))?;
        }
        let in_file = |error: Error| error.in_file(&unfinished);
        let image = open_image(&unfinished, Access::ReadWrite, encryption)?;
        let done = convert(backups, &container(&image)?, &bar);
        let mut done = done.map_err(|error| self.advise(error, &unfinished))?;
        drop(image);
        if !self.no_verify {
            let image = open_image(&unfinished, Access::ReadOnly, encryption)?;
            let verified = verify_conversion(backups, &container(&image)?, &mut done, &bar);
            verified.map_err(in_file)?;
        }
        drop(bar);
        rename(&unfinished, &new)?;
        self.report(
            &new,
            backups.machines().pop().unwrap_or_default(),
            &done,
            output,
        )
    }

    /// Returns the encryption of the new image, after asking for its passphrase. `source` is the old
    /// image, unless the backups are in a folder.
    fn encryption(&self, source: Option<&Image>) -> Outcome<Option<Encryption>> {
        if let Some(source) = source {
            self.encryption.check(source)?;
        }
        let is_secret = source.is_some_and(Image::is_secret);
        let options = [
            ("--re-encrypt", self.encryption.re_encrypt),
            ("--decrypt", self.encryption.decrypting.decrypt),
        ];
        if let Some((option, _)) = options.iter().find(|(_, given)| *given && !is_secret) {
            return Err(Failure::usage(option, "the backups are not encrypted")
                .hint("use --encrypt to encrypt the new image"));
        }
        let old = source.and_then(|source| Some(source.encryption()?.key_bits));
        self.encryption.choose(old, &self.at.opening)
    }

    /// Makes the empty image. It appears under its name when it is complete.
    fn create(
        &self,
        path: &Path,
        read: &super::backups::ReadBackups,
        encryption: Option<&Encryption>,
        (bar, output): (&Bar, &Output),
    ) -> Outcome {
        let container = Container {
            band_size: self.band_size,
            ..Container::default()
        };
        let format = container.format(path)?;
        if encryption.is_some() && format.is_plain() {
            output.warn(
                "an encrypted raw image allocates the whole disk; use .sparsebundle, .sparseimage or .asif \
                 to allocate used space only",
            );
        }
        let machine = read.backups.machines().pop().unwrap_or_default();
        let volumes = read.backups.volumes().iter();
        let totals = volumes.filter_map(|volume| Some(volume.fs.as_ref()?.volume().total));
        let len = self.size.or(totals.max()).unwrap_or(0);
        let options = CreateOptions {
            format,
            len: Some(len.next_multiple_of(1 << 20)),
            band_size: container.band_size,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: format!("Backups of {machine}"),
                format: NewFormat::ApfsCaseSensitive,
                block_size: None,
                source: Source::Empty,
            }),
            epoch: epoch()?,
            encryption: encryption.cloned(),
            ..CreateOptions::default()
        };
        create(path, options, bar)?;
        Ok(())
    }

    fn advise(&self, error: Error, unfinished: &Path) -> Failure {
        let kind = error.kind();
        let failure = Failure::from(error.in_file(unfinished));
        match kind {
            Kind::Cancelled => failure.hint("run the command again to resume"),
            Kind::Limit => failure.hint(format!(
                "run `bandsaw resize {} --size SIZE` to enlarge it, then this command again",
                unfinished.display()
            )),
            Kind::Conflict => failure.hint("remove it, or name another NEW"),
            _ => failure,
        }
    }

    fn report(&self, new: &Path, machine: String, done: &Conversion, output: &Output) -> Outcome {
        let problems: Vec<&Error> = done.problems.iter().collect();
        let report = ConvertReport {
            path: new.display().to_string(),
            machine,
            dates: done.dates,
            known_dates: done.known_dates,
            left_out: done.left_out.clone(),
            files: done.files,
            size: done.bytes,
            verified: !self.no_verify,
            problems: described(problems.iter().copied()),
            problem_count: done.problems.len() as u64 + done.more_problems,
        };
        output.done(&report, |out| {
            writeln!(
                out,
                "converted {} with {}, {:#}",
                counted(report.dates as u64, "date", "dates"),
                counted(report.files, "file", "files"),
                size::display(report.size)
            )
        })?;
        if !output.json() {
            for name in &report.left_out {
                output.note(&format!("{name} is not complete, and was left out"));
            }
            output.note("no Mac has confirmed that Time Machine continues this history: keep the old backups");
            show(problems.iter().map(ToString::to_string), output);
        }
        conclude(&problems)
    }
}

/// Fails if the new image exists.
fn check_absent(new: &Path) -> Outcome {
    match fs::symlink_metadata(new) {
        Ok(_) => {
            let error = Error::conflict(LAYER, "already exists").in_file(new);
            Err(Failure::from(error).hint("name another NEW"))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::io(LAYER, "look for", source).in_file(new).into()),
    }
}

/// Returns the path of the image until it is complete.
fn unfinished(new: &Path) -> Outcome<PathBuf> {
    match new.file_name().and_then(|name| name.to_str()) {
        Some(name) if !new.to_string_lossy().contains("://") => {
            Ok(new.with_file_name(format!("{UNFINISHED}{name}")))
        }
        _ => Err(Failure::usage(
            "NEW",
            "expected the name of a new image on this host",
        )),
    }
}

/// Opens the new image, which must be encrypted if and only if that is wanted.
fn open_image(path: &Path, access: Access, encryption: Option<&Encryption>) -> Outcome<Image> {
    let options = OpenOptions {
        access,
        keys: encryption.map(|encryption| &encryption.passphrase as &dyn Keys),
        ..OpenOptions::default()
    };
    let image = open::open(path, &options).advise(Kind::WrongKey, || {
        "the unfinished image is encrypted: use the same --encrypt or --re-encrypt and its passphrase \
         (--new-passfile FILE)"
            .to_owned()
    })?;
    if encryption.is_some() && image.encryption().is_none() {
        let message = "the unfinished image is not encrypted";
        let error = Error::conflict(LAYER, message).in_file(path);
        return Err(Failure::from(error).hint("remove it, or name another NEW"));
    }
    Ok(image)
}

/// Returns the container of the new image, which has one.
fn container(image: &Image) -> Outcome<std::sync::Arc<bandsaw::fs::apfs::Container>> {
    let missing = || Error::conflict(LAYER, "not an unfinished conversion").in_file(image.path());
    let volume = image.volumes().iter().find(|one| one.format.is_container());
    Ok(volume.ok_or_else(missing)?.container()?)
}

/// Gives the complete image its name.
fn rename(from: &Path, to: &Path) -> Outcome {
    let failed = |source| Error::io(LAYER, "rename", source).in_file(to);
    if !platform::rename_new(from, to).map_err(failed)? {
        check_absent(to)?;
        fs::rename(from, to).map_err(failed)?;
    }
    let folder = match to.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    platform::sync_folder(folder).map_err(failed)?;
    Ok(())
}
