//! Property lists: those of a bundle, beside its bands, and that of a backup volume on APFS.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use bandsaw::container::property_list;
use bandsaw::fs::Timestamp;
use bandsaw::{Error, Result};
use plist::{Dictionary, Value};

use crate::LAYER;

/// The list with the dates of all backups.
const HISTORY: &str = "com.apple.TimeMachine.SnapshotHistory.plist";
/// The list about the machine, and the state of verification.
const MACHINE: &str = "com.apple.TimeMachine.MachineID.plist";
/// The list about the backup that ran last.
const RESULTS: &str = "com.apple.TimeMachine.Results.plist";

/// The list of a share of netatalk or macOS Server that limits the size of each bundle.
const QUOTA: &str = ".com.apple.TimeMachine.quota.plist";

/// Maximum length of a list in bytes. An entry of the history has about 200 bytes.
pub(crate) const MAX_LIST_LEN: u64 = 16 << 20;
const MAX_VALUES: usize = 2_000_000;
const MAX_MEMORY: u64 = 128 << 20;

/// The property lists that macOS keeps in a bundle. Lists that do not exist leave their fields
/// empty.
#[derive(Debug, Default)]
pub struct BundleLists {
    /// UUID of the machine's hardware.
    pub host_uuid: Option<String>,
    /// Model of the machine: `MacBookPro18,3`.
    pub model: Option<String>,
    /// State of verification: 0 or 1 if nothing is wrong, 2 if macOS refuses the bundle.
    pub verification_state: Option<i64>,
    /// Time of the last verification.
    pub verified: Option<Timestamp>,
    /// The backups in the history, in its order.
    pub history: Vec<Recorded>,
    /// True if the list of results says that a backup is running.
    pub is_running: Option<bool>,
    /// Lists, or parts of them, that cannot be read.
    pub problems: Vec<Error>,
}

/// A function that takes the values of a list.
pub(crate) type TakeList = fn(&mut BundleLists, &Dictionary) -> Result<()>;

/// A backup in the history of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its name: `2026-11-01-143012.backup`.
    pub name: Option<String>,
    /// The time at which it was finished.
    pub completed: Option<Timestamp>,
}

impl BundleLists {
    /// Reads the lists of the bundle in a folder of this host. Whatever cannot be read is among the
    /// problems.
    pub fn read(bundle: &Path) -> Self {
        let mut lists = Self::default();
        for (name, take) in Self::LISTS {
            let done = dictionary(&bundle.join(name))
                .and_then(|list| list.map_or(Ok(()), |list| take(&mut lists, &list)));
            if let Err(error) = done {
                lists.problems.push(error.in_file(bundle.join(name)));
            }
        }
        lists
    }

    /// The lists, with the functions that take their values.
    pub(crate) const LISTS: [(&'static str, TakeList); 3] = [
        (MACHINE, Self::take_machine),
        (RESULTS, Self::take_results),
        (HISTORY, Self::take_history),
    ];

    fn take_machine(&mut self, list: &Dictionary) -> Result<()> {
        let text = |key: &str| list.get(key).and_then(Value::as_string).map(str::to_owned);
        self.host_uuid = text("com.apple.backupd.HostUUID");
        self.model = text("com.apple.backupd.ModelID");
        self.verification_state = list
            .get("VerificationState")
            .and_then(Value::as_signed_integer);
        self.verified = list.get("VerificationDate").and_then(time);
        Ok(())
    }

    fn take_results(&mut self, list: &Dictionary) -> Result<()> {
        self.is_running = list.get("Running").and_then(|value| {
            let number = value.as_signed_integer().map(|number| number != 0);
            value.as_boolean().or(number)
        });
        Ok(())
    }

    fn take_history(&mut self, list: &Dictionary) -> Result<()> {
        let Some(snapshots) = list.get("Snapshots").and_then(Value::as_array) else {
            return Err(malformed("expected an array of backups under Snapshots"));
        };
        self.history = snapshots.iter().filter_map(recorded).collect();
        match snapshots.len() - self.history.len() {
            0 => Ok(()),
            lost => Err(malformed(format!(
                "{lost} of {} entries have neither a name nor a date",
                snapshots.len()
            ))),
        }
    }

    /// Returns the time at which the last backup of the history was finished.
    pub fn last_backup(&self) -> Option<Timestamp> {
        self.history.iter().filter_map(|one| one.completed).max()
    }
}

/// Returns the limit in bytes that a file of the shared folder sets for each bundle, `None` without
/// such a file.
pub fn quota_of_share(folder: &Path) -> Result<Option<u64>> {
    let path = folder.join(QUOTA);
    let read = dictionary(&path).and_then(|list| list.as_ref().map(quota).transpose());
    read.map_err(|error| error.in_file(path))
}

pub(crate) fn quota(list: &Dictionary) -> Result<u64> {
    let limit = list.get("GlobalQuota").and_then(Value::as_unsigned_integer);
    limit.ok_or_else(|| malformed("expected a number of bytes under GlobalQuota"))
}

fn recorded(value: &Value) -> Option<Recorded> {
    let entry = value.as_dictionary()?;
    let name = entry.get("com.apple.backupd.SnapshotName");
    let completed = entry.get("com.apple.backupd.SnapshotCompletionDate");
    let recorded = Recorded {
        name: name.and_then(Value::as_string).map(str::to_owned),
        completed: completed.and_then(time),
    };
    (recorded.name.is_some() || recorded.completed.is_some()).then_some(recorded)
}

/// Reads the bytes copied for each backup from `backup_manifest.plist` of an APFS volume: an array
/// in which a date and a dictionary alternate.
pub(crate) fn manifest(bytes: &[u8]) -> Result<Vec<(Timestamp, Option<u64>)>> {
    let list = property_list::parse_value(LAYER, bytes, MAX_VALUES, MAX_MEMORY)?;
    let Some(entries) = list.as_array() else {
        return Err(malformed("expected an array of dates and dictionaries"));
    };
    let mut found = Vec::new();
    for pair in entries.chunks(2) {
        let [date, about] = pair else { continue };
        let (Some(date), Some(about)) = (time(date), about.as_dictionary()) else {
            return Err(malformed("expected a date and a dictionary in turn"));
        };
        let inner = |list: &Dictionary, key: &str| list.get(key)?.as_dictionary().cloned();
        let changed = inner(about, "stats").and_then(|stats| inner(&stats, "changed"));
        let size = changed.and_then(|changed| changed.get("physicalSize")?.as_unsigned_integer());
        found.push((date, size));
    }
    Ok(found)
}

/// Reads a list whose root is a dictionary. `None`: there is no such file.
fn dictionary(path: &Path) -> Result<Option<Dictionary>> {
    let file = match fs::metadata(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::io(LAYER, "read metadata", source)),
        // Opening a pipe would wait for its other end.
        Ok(meta) if !meta.is_file() => return Err(malformed("expected a file")),
        Ok(_) => File::open(path).map_err(|source| Error::io(LAYER, "open", source))?,
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_LIST_LEN + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::io(LAYER, "read", source))?;
    if bytes.len() as u64 > MAX_LIST_LEN {
        return Err(Error::limit(LAYER, "too long for a property list"));
    }
    parse(&bytes).map(Some)
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Dictionary> {
    property_list::parse(LAYER, bytes, MAX_VALUES, MAX_MEMORY)
}

fn malformed(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(bandsaw::Kind::Corrupt, LAYER, message)
}

fn time(value: &Value) -> Option<Timestamp> {
    let time: SystemTime = value.as_date()?.into();
    Some(Timestamp::from_seconds(Timestamp::from(time).seconds))
}
