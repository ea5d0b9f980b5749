//! The backups on the volumes of an image.

use std::collections::BTreeMap;

use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Timestamp};
use bandsaw::{Error, Kind, Result};

use crate::backup::{Backup, BackupState, Place};
use crate::backup_volume::BackupVolume;
use crate::date::{BackupDate, DateQuery};
use crate::opened::{Instance, OpenBackup};
use crate::reading::Reading;
use crate::{LAYER, folders, snapshots};

/// Maximum number of backups that an error lists.
const MAX_LISTED: usize = 12;

/// The backups on some volumes.
#[derive(Debug)]
pub struct Backups {
    volumes: Vec<BackupVolume>,
    list: Vec<Backup>,
    /// The newest backup of a machine by a link on the volume.
    links: BTreeMap<String, String>,
    /// The parts that cannot be read, with the reasons.
    problems: Vec<Error>,
    /// Oddities that are no damage.
    notes: Vec<String>,
}

impl Backups {
    /// Finds the backups on volumes, from their metadata alone. A volume without backups adds none.
    /// Whatever cannot be read is among the [problems](Self::problems).
    pub fn read(mut volumes: Vec<BackupVolume>) -> Self {
        let mut reading = Reading::default();
        for (number, volume) in volumes.iter_mut().enumerate() {
            if let Some(error) = volume.problem.take() {
                reading.problem(error);
            }
            folders::read(number, volume, &mut reading);
            snapshots::read(number, volume, &mut reading);
        }
        let Reading {
            mut list,
            links,
            problems,
        } = reading;
        list.sort_by(|a, b| (a.date, &a.machine, &a.name).cmp(&(b.date, &b.machine, &b.name)));
        let mut backups = Self {
            volumes,
            list,
            links,
            problems,
            notes: Vec::new(),
        };
        backups.compare_orders();
        backups
    }

    /// Adds a note for each machine whose clock ran backwards between two backups.
    fn compare_orders(&mut self) {
        let mut notes = Vec::new();
        for machine in self.machines() {
            let made = self.list.iter().filter(|one| one.machine == machine);
            let made: Vec<_> = made.filter(|one| one.sequence.is_some()).collect();
            let later = made
                .windows(2)
                .find(|two| two[0].sequence > two[1].sequence);
            if let Some([one, other]) = later {
                notes.push(format!(
                    "the clock of {machine} ran backwards: {} was made after {}",
                    one.name, other.name
                ));
            }
        }
        for (machine, newest) in &self.links {
            let by_date = self.list.iter().rev();
            let mut by_date = by_date.filter(|one| one.machine == *machine && is_complete(one));
            let Some(last) = by_date.next() else { continue };
            let exists = last.name == *newest || by_date.any(|one| one.name == *newest);
            if exists && last.name != *newest {
                notes.push(format!(
                    "the newest backup of {machine} is {newest}, although {} has a later date",
                    last.name
                ));
            }
        }
        self.notes.extend(notes);
    }

    /// Returns all backups, in the order of their dates.
    pub fn all(&self) -> &[Backup] {
        &self.list
    }

    /// Returns the volumes.
    pub fn volumes(&self) -> &[BackupVolume] {
        &self.volumes
    }

    /// Returns what cannot be read, each with its place.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Returns oddities that are no damage, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the names of the machines, sorted.
    pub fn machines(&self) -> Vec<String> {
        let mut names: Vec<_> = self.list.iter().map(|one| one.machine.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Keeps the backups of one machine only. [`Kind::NotFound`] if it has none.
    pub fn keep_machine(&mut self, machine: &str) -> Result<()> {
        if !self.list.iter().any(|one| one.machine == machine) {
            let message = match self.machines().as_slice() {
                [] => "there are no backups".to_owned(),
                names => format!(
                    "no backups of this machine; there are some of {}",
                    names.join(", ")
                ),
            };
            return Err(Error::new(Kind::NotFound, LAYER, message).named(machine));
        }
        self.list.retain(|one| one.machine == machine);
        Ok(())
    }

    /// Fails unless there are backups, all of one machine.
    pub fn check_one_machine(&self) -> Result<()> {
        match self.machines().as_slice() {
            [] => Err(self.none()),
            [_] => Ok(()),
            names => Err(several(names)),
        }
    }

    /// Fails unless there are backups. What cannot be read is never absent: then the error is that of
    /// the first problem.
    pub fn check_any(&self) -> Result<()> {
        match (self.list.is_empty(), self.problems.first()) {
            (false, _) => Ok(()),
            (true, Some(problem)) => Err(problem.duplicate()),
            (true, None) => Err(self.none()),
        }
    }

    fn none(&self) -> Error {
        let names: Vec<_> = self
            .volumes
            .iter()
            .map(|volume| volume.name.as_str())
            .collect();
        let message = match names.as_slice() {
            [] => "no volume has Time Machine backups".to_owned(),
            [name] => format!("the volume \"{name}\" has no Time Machine backups"),
            names => format!(
                "no Time Machine backups on the volumes \"{}\"",
                names.join("\", \"")
            ),
        };
        Error::new(Kind::NotFound, LAYER, message)
    }

    /// Returns the present reading of the Mac's clock at a time, by the newest backup that shows its
    /// difference to UTC; UTC if none does.
    pub fn clock_at(&self, time: Timestamp) -> BackupDate {
        let offset = self.list.iter().rev().find_map(Backup::offset);
        BackupDate(time.seconds.saturating_add(offset.unwrap_or(0)))
    }

    /// Returns the number of the backup that a person means with a date; see [`DateQuery`]. `now` is
    /// the present time.
    ///
    /// [`Kind::NotFound`] if there is none, and [`Kind::Invalid`] if there are several, with a list of
    /// the backups.
    pub fn select(&self, text: &str, now: Timestamp) -> Result<usize> {
        // A name as it is on the volume, also one with a suffix.
        let named = |(_, one): &(usize, &Backup)| one.name == text;
        let mut named = self.list.iter().enumerate().filter(named);
        if let (Some((at, _)), None) = (named.next(), named.next()) {
            return Ok(at);
        }
        let query = DateQuery::parse(text, self.clock_at(now))?;
        if self.list.is_empty() {
            return Err(self.none());
        }
        let range = match query {
            DateQuery::Latest | DateQuery::Oldest => {
                self.check_one_machine()?;
                let found = match query {
                    DateQuery::Oldest => self.list.iter().position(is_complete),
                    _ => self.latest(),
                };
                return found.ok_or_else(|| {
                    let message =
                        format!("no backup is complete; there are {}", self.listed(|_| true));
                    Error::new(Kind::NotFound, LAYER, message).named(text)
                });
            }
            DateQuery::Within(range) => range,
        };
        let within = |one: &Backup| range.contains(&one.date.0);
        let mut found: Vec<_> = (0..self.list.len())
            .filter(|&at| within(&self.list[at]))
            .collect();
        if found.iter().any(|&at| is_complete(&self.list[at])) {
            found.retain(|&at| is_complete(&self.list[at]));
        }
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(self.absent(text, range.start)),
            _ => {
                self.check_one_machine()?;
                let message = format!("several backups have this date: {}", self.listed(within));
                Err(Error::invalid(LAYER, message).named(text))
            }
        }
    }

    /// Returns the number of the newest complete backup. If the clock ran backwards, that is the one
    /// that was made last.
    pub fn latest(&self) -> Option<usize> {
        let by_date = self.complete().next()?;
        let one = &self.list[by_date];
        let by_link = self.links.get(&one.machine).and_then(|name| {
            self.complete().find(|&at| {
                let other = &self.list[at];
                other.machine == one.machine && other.name == *name
            })
        });
        let all_numbered = self.complete().all(|at| self.list[at].sequence.is_some());
        let by_sequence = || self.complete().max_by_key(|&at| self.list[at].sequence);
        match by_link {
            Some(at) => Some(at),
            None if all_numbered => by_sequence(),
            None => Some(by_date),
        }
    }

    /// Returns the numbers of the complete backups, the newest first.
    fn complete(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.list.iter().enumerate().rev();
        all.filter(|(_, one)| is_complete(one)).map(|(at, _)| at)
    }

    fn absent(&self, text: &str, start: i64) -> Error {
        let message = format!("no backup of this date; there are {}", self.near(start));
        Error::new(Kind::NotFound, LAYER, message).named(text)
    }

    /// Lists the backups around a date.
    fn near(&self, start: i64) -> String {
        let after = self.list.partition_point(|one| one.date.0 < start);
        let first = after.saturating_sub(MAX_LISTED / 2);
        let shown = self.list.iter().skip(first).take(MAX_LISTED);
        let shown: Vec<_> = shown.map(|one| one.date.to_string()).collect();
        let all = self.list.len();
        match all - shown.len() {
            0 => shown.join(", "),
            _ => format!("{} (of {all})", shown.join(", ")),
        }
    }

    fn listed(&self, wanted: impl Fn(&Backup) -> bool) -> String {
        let all: Vec<_> = self.list.iter().filter(|one| wanted(one)).collect();
        let shown = all.iter().take(MAX_LISTED);
        let shown: Vec<_> = shown.map(|one| one.date.to_string()).collect();
        match all.len() - shown.len() {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }

    /// Opens a backup by its number in [`all`](Self::all).
    pub fn open(&self, number: usize) -> Result<OpenBackup> {
        let missing = || Error::not_found(LAYER, format!("backup {number}"));
        let backup = self.list.get(number).ok_or_else(missing)?;
        let volume = self.volumes.get(backup.volume).ok_or_else(missing)?;
        match &backup.place {
            Place::Folder(root, path) => Ok(OpenBackup {
                fs: volume.fs.clone().ok_or_else(missing)?,
                root: *root,
                path: path.clone(),
                instance: Instance {
                    volume: backup.volume,
                    snapshot: None,
                },
            }),
            Place::Snapshot(name) => {
                let fs = (volume.open)(name)?;
                let (folder_name, folder) = folder_of(&*fs, backup.date)?.ok_or_else(|| {
                    let message = "the snapshot has no folder of its date";
                    Error::new(Kind::Corrupt, LAYER, message).named(name)
                })?;
                Ok(OpenBackup {
                    fs,
                    root: folder.id,
                    path: format!("/{folder_name}"),
                    instance: Instance {
                        volume: backup.volume,
                        snapshot: Some(number),
                    },
                })
            }
        }
    }
}

/// Returns the folder with the files of a snapshot: `DATE.backup`, or another of this date.
fn folder_of(fs: &dyn FileSystem, date: BackupDate) -> Result<Option<(String, Attributes)>> {
    let mut found: Option<(String, Attributes)> = None;
    for entry in fs.entries(fs.root())? {
        let Some((name, suffix)) = entry.name.split_once('.') else {
            continue;
        };
        let fits = BackupDate::parse(name) == Some(date);
        if !fits || entry.attributes.kind != FileKind::Folder {
            continue;
        }
        let is_best = suffix == "backup";
        if found.is_none() || is_best {
            found = Some((entry.name, entry.attributes));
        }
        if is_best {
            break;
        }
    }
    Ok(found)
}

pub(crate) fn is_complete(backup: &Backup) -> bool {
    backup.state == BackupState::Complete
}

fn several(names: &[String]) -> Error {
    let message = format!(
        "there are backups of several machines: {}",
        names.join(", ")
    );
    Error::invalid(LAYER, message)
}
