//! Snapshots: manifests whose objects are kept. Source: docs/formats/object-store.md §8.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use super::LAYER;
use super::Remote;
use super::layout::{Document, EntryPurpose, FileState, Name, Role, SnapshotRef};
use super::log::{Log, read_all};
use super::names::NameState;
use super::remote_state::RemoteState;
use crate::store::{Put, check_name};
use crate::{Error, Kind, Result};

/// A snapshot of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The time of its creation, in seconds of Unix time by the creator's clock.
    pub created: u64,
}

impl Remote {
    /// Returns the snapshots, by name.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let log = self.shared().log();
        let snapshots = log.iter().flat_map(|log| &log.state.snapshots);
        snapshots
            .filter_map(|(name, at)| {
                Some(Snapshot {
                    name: name.clone(),
                    created: (*at)?.created,
                })
            })
            .collect()
    }

    /// Creates a snapshot of the current state under an unused name. Nothing is copied: later
    /// changes are stored as new objects.
    pub fn create_snapshot(&self, name: &str) -> Result<()> {
        check_name(name)?;
        if name.contains('/') {
            return Err(
                Error::invalid(LAYER, "expected the name of a snapshot without /").named(name),
            );
        }
        let shared = self.shared();
        // A snapshot is of a committed state.
        shared.commit()?;
        shared.change_snapshots(|shared, log| {
            if log.state.snapshots.contains_key(name) {
                return Err(Error::conflict(LAYER, "the snapshot already exists").named(name));
            }
            let kept = shared.put_snapshot(&Document {
                snapshots: BTreeMap::new(),
                ..log.state.clone()
            })?;
            let created = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs());
            Ok(BTreeMap::from([(
                name.to_owned(),
                Some(SnapshotRef { created, ..kept }),
            )]))
        })
    }

    /// Deletes a snapshot, and removes the objects that only it referenced.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let shared = self.shared();
        shared.commit()?;
        shared.change_snapshots(|_, log| {
            find(log, name)?;
            Ok(BTreeMap::from([(name.to_owned(), None)]))
        })?;
        // After the commit: an interruption before it must leave the snapshot whole.
        shared
            .log()
            .as_mut()
            .map_or(Ok(0), |log| shared.clear(log))
            .map(drop)
    }

    /// Restores the bundle to the state of the snapshot, in one commit. None of its files may be
    /// open.
    pub fn restore_snapshot(&self, name: &str) -> Result<()> {
        let shared = self.shared();
        shared.commit()?;
        shared.readers.wait_for_all();
        shared.writers.wait_for_all();
        let mut log = shared.log();
        let Some(log) = log.as_mut() else {
            return Err(no_snapshot(name));
        };
        shared.check_changeable()?;
        // Two references are our own: that of the names, and that of the list made here.
        if shared
            .names
            .open_files()
            .iter()
            .any(|file| Arc::strong_count(file) > 2)
        {
            return Err(Error::conflict(
                LAYER,
                "in use; a snapshot cannot be restored while the image is open",
            ));
        }
        let kept = shared.snapshot(&find(log, name)?)?.names;
        let gone = log
            .state
            .names
            .keys()
            .filter(|name| !kept.contains_key(*name))
            .map(|name| (name.clone(), Name::Gone));
        let changed = kept
            .iter()
            .filter(|(name, file)| log.state.names.get(*name) != Some(*file));
        let names: BTreeMap<_, _> = gone
            .chain(changed.map(|(name, file)| (name.clone(), file.clone())))
            .collect();
        let entry = Document {
            names,
            ..log.next(EntryPurpose::Change)?
        };
        shared
            .append(log, entry)
            .map_err(|error| shared.lose(error))?;
        shared.show(&log.state.names);
        Ok(())
    }
}

fn no_snapshot(name: &str) -> Error {
    Error::new(
        Kind::NotFound,
        LAYER,
        "the bundle does not have this snapshot",
    )
    .named(name)
}

fn find(log: &Log, name: &str) -> Result<SnapshotRef> {
    log.state
        .snapshots
        .get(name)
        .copied()
        .flatten()
        .ok_or_else(|| no_snapshot(name))
}

impl RemoteState {
    /// Commits a change of snapshots.
    fn change_snapshots(
        &self,
        change: impl FnOnce(&Self, &Log) -> Result<BTreeMap<String, Option<SnapshotRef>>>,
    ) -> Result<()> {
        self.check_changeable()?;
        let mut log = self.log();
        let Some(log) = log.as_mut() else {
            return Err(Error::read_only(LAYER));
        };
        let snapshots = change(self, log)?;
        let entry = Document {
            snapshots,
            ..log.next(EntryPurpose::Change)?
        };
        self.append(log, entry).map_err(|error| self.lose(error))
    }

    fn put_snapshot(&self, manifest: &Document) -> Result<SnapshotRef> {
        let object = self.new_object();
        let bytes = manifest.encode(Role::Manifest).into();
        self.objects
            .put_gathered(&object.key(), vec![bytes], Put::Replace)?;
        Ok(SnapshotRef {
            manifest: object,
            created: 0,
        })
    }

    /// Reads the manifest of a snapshot.
    pub(super) fn snapshot(&self, at: &SnapshotRef) -> Result<Document> {
        let key = at.manifest.key();
        let bytes =
            read_all(&*self.objects, &key)?.ok_or_else(|| self.missing_object(&key, 0, None))?;
        let manifest = Document::parse(&key, &bytes, Role::Manifest)?;
        if manifest.part != self.part {
            return Err(Error::corrupt(
                LAYER,
                0,
                "the snapshot has another size of objects than the bundle",
            )
            .in_part(&key));
        }
        Ok(manifest)
    }

    /// Replaces the visible state by that of a snapshot.
    pub(super) fn show_snapshot(&self, name: &str) -> Result<()> {
        let log = self.log();
        let at = find(log.as_ref().ok_or_else(|| no_snapshot(name))?, name)?;
        let kept = self.snapshot(&at)?;
        self.show(&kept.names);
        Ok(())
    }

    fn show(&self, names: &BTreeMap<String, Name>) {
        let files = names.iter().filter_map(|(name, known)| match known {
            Name::File(file) => Some((name.clone(), NameState::Known(file.clone()))),
            Name::Gone | Name::Done => None,
        });
        *self.names.live() = files.collect();
    }

    /// Copies the plain objects that snapshots reference, before they are replaced or removed.
    pub(super) fn keep_for_snapshots<'a>(
        &self,
        log: &mut Log,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        if log.state.snapshots.is_empty() {
            return Ok(());
        }
        let names: Vec<&String> = names.collect();
        let mut copied: HashMap<(&String, Arc<FileState>), Arc<FileState>> = HashMap::new();
        let mut snapshots = BTreeMap::new();
        for (snapshot, at) in &log.state.snapshots {
            let Some(at) = at else { continue };
            let mut kept = self.snapshot(at)?;
            let mut changed = false;
            for name in &names {
                let Some(Name::File(file)) = kept.names.get_mut(*name) else {
                    continue;
                };
                // Other objects are never overwritten.
                if file.plain.is_none() {
                    continue;
                }
                *file = match copied.get(&(*name, file.clone())) {
                    Some(copy) => copy.clone(),
                    None => {
                        let copy = Arc::new(self.without_plain(name, (**file).clone())?);
                        copied.insert((*name, file.clone()), copy.clone());
                        copy
                    }
                };
                changed = true;
            }
            if changed {
                let kept = self.put_snapshot(&kept)?;
                snapshots.insert(
                    snapshot.clone(),
                    Some(SnapshotRef {
                        created: at.created,
                        ..kept
                    }),
                );
            }
        }
        if snapshots.is_empty() {
            return Ok(());
        }
        let entry = Document {
            snapshots,
            ..log.next(EntryPurpose::Change)?
        };
        self.append(log, entry).map_err(|error| self.lose(error))
    }
}
