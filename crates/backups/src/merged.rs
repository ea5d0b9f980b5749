//! All backups as one read-only volume, with a folder for each date.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw::device::BlockDevice;
use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, Fork, NodeId, Timestamp, VolumeInfo};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::backup::BackupState;
use crate::backups::Backups;
use crate::opened::OpenBackup;

/// The root folder.
const ROOT: u64 = 1;
/// The folder of the first machine.
const FIRST_MACHINE: u64 = 2;
/// Bits of an object's number in its volume; the bits above tell the backup, from 1.
const NUMBER_BITS: u32 = 48;
/// Number of backups that stay open.
const MAX_OPEN: usize = 16;

/// All backups as one read-only volume: `/DATE/VOLUME/...`, or `/MACHINE/DATE/VOLUME/...` if there are
/// several machines. Each object has a number of its own in each backup, since Linux does not support
/// folders with several names.
#[derive(Debug)]
pub struct Merged {
    backups: Backups,
    /// Machines, each with its folders.
    machines: Vec<(String, Vec<DateFolder>)>,
    /// Open backups, the one used last at the end.
    open: Mutex<Vec<(usize, OpenBackup)>>,
}

#[derive(Debug)]
struct DateFolder {
    name: String,
    backup: usize,
}

/// A place in the merged volume.
enum PlaceOf {
    Root,
    Machine(usize),
    /// An object of a backup.
    Within(usize, NodeId),
}

impl Merged {
    /// Merges backups. [`Kind::NotFound`] if there are none; [`Kind::Limit`] for more than 65,534.
    pub fn new(backups: Backups) -> Result<Self> {
        let mut machines: Vec<(String, Vec<DateFolder>)> = backups
            .machines()
            .into_iter()
            .map(|name| (name, Vec::new()))
            .collect();
        if machines.is_empty() {
            return Err(Error::new(Kind::NotFound, LAYER, "there are no backups"));
        }
        if backups.all().len() >= usize::from(u16::MAX) {
            return Err(Error::limit(LAYER, "too many backups"));
        }
        for (number, backup) in backups.all().iter().enumerate() {
            let Some((_, folders)) = machines
                .iter_mut()
                .find(|(name, _)| *name == backup.machine)
            else {
                continue;
            };
            let date = backup.date.to_string().replace(' ', "-").replace(':', "");
            let suffix = match backup.state {
                BackupState::Complete => "",
                BackupState::InProgress => ".inProgress",
                BackupState::Interrupted => ".interrupted",
            };
            let base = format!("{date}{suffix}");
            // A clock that was set back can give two backups the same date.
            let is_taken = |name: &String| folders.iter().any(|one| one.name == *name);
            let mut names =
                std::iter::once(base.clone()).chain((2_usize..).map(|n| format!("{base}-{n}")));
            let name = names.find(|name| !is_taken(name)).unwrap_or(base);
            folders.push(DateFolder {
                name,
                backup: number,
            });
        }
        Ok(Self {
            backups,
            machines,
            open: Mutex::default(),
        })
    }

    fn place(&self, node: NodeId) -> Result<PlaceOf> {
        let missing = || Error::not_found(LAYER, format!("object {:#x}", node.0));
        let backup = node.0 >> NUMBER_BITS;
        if backup > 0 {
            let backup = usize::try_from(backup - 1).map_err(|_| missing())?;
            let within = NodeId(node.0 & ((1 << NUMBER_BITS) - 1));
            return Ok(PlaceOf::Within(backup, within));
        }
        if node.0 == ROOT {
            return Ok(PlaceOf::Root);
        }
        let machine = node.0.checked_sub(FIRST_MACHINE).ok_or_else(missing)?;
        let machine = usize::try_from(machine).map_err(|_| missing())?;
        match machine < self.machines.len() {
            true => Ok(PlaceOf::Machine(machine)),
            false => Err(missing()),
        }
    }

    fn opened(&self, number: usize) -> Result<OpenBackup> {
        let mut open = self.open.lock();
        let known = open.iter().position(|(known, _)| *known == number);
        let backup = match known {
            Some(at) => open.remove(at).1,
            None => self.backups.open(number)?,
        };
        if open.len() >= MAX_OPEN {
            open.remove(0);
        }
        open.push((number, backup.clone()));
        Ok(backup)
    }

    /// Returns attributes with the number in the merged volume.
    fn numbered(number: usize, mut attributes: Attributes) -> Result<Attributes> {
        let id = attributes.id.0;
        if id >> NUMBER_BITS != 0 {
            let message = format!("object {id:#x} has a number of more than {NUMBER_BITS} bits");
            return Err(Error::limit(LAYER, message));
        }
        attributes.id = NodeId((number as u64 + 1) << NUMBER_BITS | id);
        Ok(attributes)
    }

    /// Returns the folder of a backup; one that cannot be read is an empty folder that nobody may
    /// enter.
    fn date_folder(&self, folder: &DateFolder) -> Attributes {
        let opened = self.opened(folder.backup);
        let read = opened.and_then(|open| {
            let attributes = open.fs.attributes(open.root)?;
            Self::numbered(folder.backup, attributes)
        });
        let made = self.backups.all().get(folder.backup);
        let date = made.and_then(|made| made.completed);
        read.unwrap_or_else(|_| Attributes {
            mode: 0,
            ..virtual_folder((folder.backup as u64 + 1) << NUMBER_BITS, 0, date)
        })
    }

    fn machine_folder(&self, machine: usize) -> Attributes {
        let dates = self
            .machines
            .get(machine)
            .map_or(0, |(_, dates)| dates.len());
        let number = FIRST_MACHINE + machine as u64;
        virtual_folder(number, dates as u64, self.newest())
    }

    fn newest(&self) -> Option<Timestamp> {
        let completed = self.backups.all().iter().filter_map(|one| one.completed);
        completed.max()
    }

    /// Returns the dates in the root folder, if there is one machine.
    fn only_machine(&self) -> Option<&[DateFolder]> {
        match self.machines.as_slice() {
            [(_, dates)] => Some(dates),
            _ => None,
        }
    }
}

fn virtual_folder(number: u64, entries: u64, date: Option<Timestamp>) -> Attributes {
    Attributes {
        id: NodeId(number),
        kind: FileKind::Folder,
        size: entries,
        allocated: 0,
        resource_size: 0,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        flags: 0,
        created: date,
        modified: date,
        changed: date,
        accessed: date,
        backed_up: None,
        has_xattrs: false,
    }
}

impl FileSystem for Merged {
    fn volume(&self) -> VolumeInfo {
        let first = self
            .backups
            .volumes()
            .iter()
            .find_map(|one| one.fs.as_ref());
        let name = match self.machines.as_slice() {
            [(name, _)] => format!("Backups of {name}"),
            _ => "Backups".to_owned(),
        };
        match first {
            Some(fs) => VolumeInfo {
                name,
                clean: true,
                ..fs.volume()
            },
            None => VolumeInfo {
                format: "APFS",
                name,
                case_sensitive: true,
                clean: true,
                holes: true,
                block_size: 4096,
                ..VolumeInfo::default()
            },
        }
    }

    fn root(&self) -> NodeId {
        NodeId(ROOT)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let dated = |dates: &[DateFolder]| {
            let found = dates.iter().find(|one| one.name == name);
            found.map(|folder| self.date_folder(folder))
        };
        match self.place(dir)? {
            PlaceOf::Root => Ok(match self.only_machine() {
                Some(dates) => dated(dates),
                None => {
                    let machine = self.machines.iter().position(|(own, _)| own == name);
                    machine.map(|machine| self.machine_folder(machine))
                }
            }),
            PlaceOf::Machine(machine) => {
                let dates = self.machines.get(machine);
                Ok(dates.and_then(|(_, dates)| dated(dates)))
            }
            PlaceOf::Within(number, id) => {
                let found = self.opened(number)?.fs.lookup(id, name)?;
                found.map(|found| Self::numbered(number, found)).transpose()
            }
        }
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        match self.place(node)? {
            PlaceOf::Root => {
                let entries = match self.only_machine() {
                    Some(dates) => dates.len(),
                    None => self.machines.len(),
                };
                Ok(virtual_folder(ROOT, entries as u64, self.newest()))
            }
            PlaceOf::Machine(machine) => Ok(self.machine_folder(machine)),
            PlaceOf::Within(number, id) => {
                let attributes = self.opened(number)?.fs.attributes(id)?;
                Self::numbered(number, attributes)
            }
        }
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let dates = match self.place(dir)? {
            PlaceOf::Within(number, id) => {
                let open = self.opened(number)?;
                return open.fs.list(id, &mut |entry| {
                    each(Entry {
                        name: entry.name,
                        attributes: Self::numbered(number, entry.attributes)?,
                    })
                });
            }
            PlaceOf::Machine(machine) => self.machines.get(machine).map(|(_, dates)| &dates[..]),
            PlaceOf::Root => self.only_machine(),
        };
        let Some(dates) = dates else {
            for (number, (name, _)) in self.machines.iter().enumerate() {
                let entry = Entry {
                    name: name.clone(),
                    attributes: self.machine_folder(number),
                };
                if each(entry)?.is_break() {
                    break;
                }
            }
            return Ok(());
        };
        for folder in dates {
            let entry = Entry {
                name: folder.name.clone(),
                attributes: self.date_folder(folder),
            };
            if each(entry)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        match self.place(node)? {
            PlaceOf::Within(number, id) => self.opened(number)?.fs.open(id, fork),
            PlaceOf::Root | PlaceOf::Machine(_) => {
                Err(Error::invalid(LAYER, "is a folder, expected a file"))
            }
        }
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        match self.place(node)? {
            PlaceOf::Within(number, id) => self.opened(number)?.fs.read_link(id),
            PlaceOf::Root | PlaceOf::Machine(_) => Err(Error::invalid(
                LAYER,
                "is a folder, expected a symbolic link",
            )),
        }
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        match self.place(node)? {
            PlaceOf::Within(number, id) => self.opened(number)?.fs.xattrs(id),
            PlaceOf::Root | PlaceOf::Machine(_) => Ok(Vec::new()),
        }
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        match self.place(node)? {
            PlaceOf::Within(number, id) => self.opened(number)?.fs.xattr(id, name),
            PlaceOf::Root | PlaceOf::Machine(_) => Ok(None),
        }
    }
}
