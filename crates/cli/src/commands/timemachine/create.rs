//! `bandsaw timemachine create`: a new bundle as a destination of backups.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::store::{Local, Put, Store};
use bandsaw::{Error, platform, size};
use clap::{Args, ValueEnum, ValueHint};
use plist::{Dictionary, Value};
use serde::Serialize;

use crate::commands::create::epoch;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;

/// Layer name in errors.
const LAYER: &str = "timemachine create";
/// The list that ties a bundle to a machine. Source: docs/formats/time-machine.md §3.
const LIST: &str = "com.apple.TimeMachine.MachineID.plist";
/// The beginning of the names of hidden folders for bundles that are not complete.
const STAGING: &str = ".bandsaw-destination-";
/// Maximum length of a machine's name in bytes, with room for the extension.
const MAX_NAME_LEN: usize = 200;

/// Create a bundle as a destination of backups
///
/// The bundle is FOLDER/MACHINE.sparsebundle, with an empty volume and the list that ties it to the
/// machine. Macs make their bundle themselves; one that was made before has the band size and the
/// maximum size that you choose. No Mac has confirmed that it accepts such a bundle on APFS. On HFS+
/// public scripts have made them so for macOS before 11. `bandsaw help tm` describes the other
/// verbs.
///
/// On the Mac, `system_profiler SPHardwareDataType` prints the hardware UUID, and `scutil --get
/// ComputerName` the name. Run it as the user that the Mac connects as.
#[derive(Debug, Args)]
#[command(
    override_usage = "bandsaw tm create FOLDER --machine NAME --uuid UUID --size SIZE --fs FS",
    after_help = "\
Examples:
  bandsaw tm create /srv/timemachine --machine 'Anna Mac' --size 2t --fs apfs \\
    --uuid EB3EA526-064B-58FA-807A-5F5144738118
  bandsaw tm create /srv/timemachine --machine Old --size 500g --fs hfs+ --band-size 64m \\
    --uuid EB3EA526-064B-58FA-807A-5F5144738118"
)]
pub(super) struct CreateDestination {
    /// The shared folder
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// The computer name of the Mac
    #[arg(long, value_name = "NAME", value_parser = machine_name)]
    machine: String,
    /// The hardware UUID of the Mac
    #[arg(long, value_name = "UUID", value_parser = hardware_uuid)]
    uuid: String,
    /// The maximum size of all backups
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: u64,
    /// The file system: apfs for macOS 11 and later, or hfs+
    #[arg(long, value_name = "FS", value_enum)]
    fs: DestinationFs,
    /// Set the band size, 1m to 8g
    ///
    /// The default is 8m, or more if a full bundle would have over 65,536 bands.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    band_size: Option<u64>,
    /// The model of the Mac, such as Mac14,2
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
}

/// The file system of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DestinationFs {
    /// Case-sensitive APFS, for macOS 11 and later
    Apfs,
    /// Case-sensitive HFS+ with a journal, before macOS 11
    #[value(name = "hfs+")]
    HfsPlus,
}

/// The output of `--json`.
#[derive(Serialize)]
struct DestinationReport {
    path: String,
    machine: String,
    host_uuid: String,
    volume: String,
    size: u64,
    band_size: u64,
}

impl CreateDestination {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let name = format!("{}.sparsebundle", self.machine);
        let target = self.folder.join(&name);
        match fs::symlink_metadata(&target) {
            Ok(_) => {
                let error = Error::conflict(LAYER, "already exists").in_file(&target);
                return Err(error.into());
            }
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(failed("look for", &target)(source).into());
            }
            Err(_) => {}
        }
        // It has another volume name on each file system, as macOS gives it.
        let (format, volume) = match self.fs {
            DestinationFs::Apfs => (
                NewFormat::ApfsCaseSensitive,
                format!("Backups of {}", self.machine),
            ),
            DestinationFs::HfsPlus => (NewFormat::HfsxJournaled, "Time Machine Backups".to_owned()),
        };
        let options = CreateOptions {
            format: Format::Udsb,
            len: Some(self.size.next_multiple_of(size::SECTOR)),
            band_size: self.band_size,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: volume.clone(),
                format,
                block_size: None,
                source: Source::Empty,
            }),
            epoch: epoch()?,
            ..CreateOptions::default()
        };
        let staging = Staging::new(&self.folder)?;
        let image = staging.0.join(&name);
        let bar = Bar::new(output);
        let made = create(&image, options, &bar)?;
        let band_size = made.image.bundle().map_or(0, |bundle| bundle.band_size());
        drop((made, bar));
        let store = Local::new(&image);
        store.put(LIST, &self.list()?, Put::IfAbsent)?;
        store.sync()?;
        let renamed = platform::rename_new(&image, &target).and_then(|done| match done {
            true => Ok(()),
            // A folder with files is never replaced.
            false => fs::rename(&image, &target),
        });
        renamed.map_err(failed("rename", &target))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed("sync", &self.folder))?;
        let report = DestinationReport {
            path: target.display().to_string(),
            machine: self.machine.clone(),
            host_uuid: self.uuid.clone(),
            volume,
            size: self.size.next_multiple_of(size::SECTOR),
            band_size,
        };
        output.done(&report, |out| {
            writeln!(out, "created {}", output.name(&report.path))
        })
    }

    /// Returns the list of the machine.
    fn list(&self) -> Outcome<Vec<u8>> {
        let mut list = Dictionary::new();
        let mut set = |key: &str, value: &str| {
            list.insert(format!("com.apple.backupd.{key}"), Value::from(value));
        };
        set("HostUUID", &self.uuid);
        self.model.iter().for_each(|model| set("ModelID", model));
        let mut bytes = Vec::new();
        Value::from(list)
            .to_writer_xml(&mut bytes)
            .map_err(|error| Error::unsupported(LAYER, error.to_string()))?;
        Ok(bytes)
    }
}

/// A hidden folder in the shared one, which is removed at the end: a bundle appears under its name
/// only when it is complete.
struct Staging(PathBuf);

impl Staging {
    fn new(folder: &Path) -> Outcome<Self> {
        platform::remove_leftovers(folder, STAGING);
        let path = folder.join(format!("{STAGING}{}", platform::own_suffix()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                Err(Error::not_found(LAYER, folder.display().to_string()).into())
            }
            Err(source) => Err(failed("create", &path)(source).into()),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Best effort: what is left is hidden, and removed by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::io(LAYER, doing, source).in_file(path)
}

/// Parses the name of a machine, which is that of a folder, too.
fn machine_name(text: &str) -> Result<String, String> {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | ':');
    if text.is_empty()
        || text.len() > MAX_NAME_LEN
        || text.starts_with('.')
        || text.contains(is_bad)
    {
        return Err(format!(
            "expected 1 to {MAX_NAME_LEN} bytes without / and :, not beginning with a period"
        ));
    }
    Ok(text.to_owned())
}

/// Parses a UUID as macOS prints it.
fn hardware_uuid(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths = parts.iter().map(|part| part.len());
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !lengths.eq([8, 4, 4, 4, 12]) || !parts.iter().all(is_hex) {
        return Err("expected a UUID such as EB3EA526-064B-58FA-807A-5F5144738118".to_owned());
    }
    Ok(text.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_identifiers_are_checked() {
        assert!(machine_name("Anna's MacBook Pro").is_ok());
        for bad in ["", ".hidden", "..", "a/b", "a:b", "a\nb", &"x".repeat(201)] {
            assert!(machine_name(bad).is_err(), "{bad}");
        }
        let uuid = "eb3ea526-064b-58fa-807a-5f5144738118";
        assert_eq!(hardware_uuid(uuid), Ok(uuid.to_ascii_uppercase()));
        for bad in [
            "",
            "eb3ea526",
            "eb3ea526-064b-58fa-807a-5f514473811g",
            "----",
        ] {
            assert!(hardware_uuid(bad).is_err(), "{bad}");
        }
    }
}
