//! The log of commits: its newest entry defines the state of the bundle. Source:
//! docs/formats/object-store.md §4.
//!
//! An entry is put under the number after the last known one, on condition that the key is absent.
//! So of all writers that know the same state exactly one succeeds, and the others can no longer
//! commit. Nothing else orders writers, no clock and no lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::LAYER;
use super::layout::{
    Document, EntryPurpose, FileState, MANIFESTS, Name, ROOT, Role, check_len, log_key,
    manifest_key,
};
use crate::size::to_usize;
use crate::store::Put;
use crate::store::objects::{Objects, ObjectsExt};
use crate::{Error, Kind, Result};

/// Maximum number of attempts to put an entry whose fate is unknown.
const TRIES: usize = 4;
/// Maximum number of attempts to read a log that is compacted concurrently.
const LOADS: usize = 16;
/// Bytes of the first read of a document of unknown length.
const FIRST_READ: usize = 64 << 10;
/// Minimum number of entries after the newest manifest before the next one is written, if they are
/// as long as the manifest was.
const FEW: u64 = 32;
/// Number of entries after which the next manifest is written in any case.
const MAX_ENTRIES: u64 = 256;

/// The state that the log defines, and data of the log itself.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) state: Document,
    /// Number of the newest manifest, and its length in bytes.
    manifest: (u64, u64),
    /// Number of the previous manifest, if it is not ours: the entries after it were not read.
    before: Option<u64>,
    /// The purposes of the entries after the previous manifest, by number.
    entries: BTreeMap<u64, EntryPurpose>,
    /// Length in bytes of the entries after the newest manifest.
    bytes: u64,
}

/// The result of appending an entry.
#[derive(Debug)]
pub(super) enum Appended {
    /// It is the newest one.
    Done,
    /// Another writer's entry has the number.
    Overtaken(Box<Document>),
}

/// Reads a whole object. `None`: it does not exist.
pub(super) fn read_all(objects: &dyn Objects, key: &str) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; FIRST_READ];
    let Some(n) = objects.read_at(key, 0, &mut bytes)? else {
        return Ok(None);
    };
    if n < bytes.len() {
        bytes.truncate(n);
        return Ok(Some(bytes));
    }
    let Some(meta) = objects.stat(key)? else {
        return Ok(None);
    };
    check_len(key, meta.len)?;
    bytes.resize(to_usize(meta.len), 0);
    let Some(n) = objects.read_at(key, 0, &mut bytes)? else {
        return Ok(None);
    };
    if n as u64 != meta.len {
        return Err(Error::corrupt(
            LAYER,
            n as u64,
            format!("expected {} bytes, found {n}", meta.len),
        )
        .in_part(key));
    }
    Ok(Some(bytes))
}

/// The newest numbers of manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Manifests {
    /// `None`: there is no log.
    newest: Option<u64>,
    before: Option<u64>,
}

fn manifests(objects: &dyn Objects) -> Result<Manifests> {
    let mut found = Manifests::default();
    objects.list(MANIFESTS, &mut |key, _| {
        let digits = key.strip_prefix(MANIFESTS).unwrap_or_default();
        let number = u64::from_str_radix(digits, 16)
            .ok()
            .filter(|number| manifest_key(*number) == key);
        // The listing is in the order of numbers.
        if number > found.newest {
            found = Manifests {
                newest: number,
                before: found.newest,
            };
        }
        Ok(())
    })?;
    Ok(found)
}

impl Log {
    /// Reads the newest manifest and the entries after it. `None`: there is no log.
    pub(super) fn load(objects: &dyn Objects) -> Result<Option<Self>> {
        let mut odd = None;
        let mut known = manifests(objects)?;
        for _ in 0..LOADS {
            let Some(number) = known.newest else {
                return Ok(None);
            };
            let read = Self::read_from(objects, number);
            // During the read its entries may have been replaced by a manifest, and that manifest
            // by another.
            let now = manifests(objects)?;
            match read {
                Ok(Some(log)) if now == known => {
                    return Ok(Some(Self {
                        before: known.before,
                        ..log
                    }));
                }
                Err(error) if now == known => return Err(error),
                Err(error) => odd = Some(error),
                Ok(_) => {}
            }
            known = now;
        }
        let busy = || Error::conflict(LAYER, "the log changes too fast to be read; try again");
        Err(odd.unwrap_or_else(busy))
    }

    fn read_from(objects: &dyn Objects, number: u64) -> Result<Option<Self>> {
        let key = manifest_key(number);
        let Some(bytes) = read_all(objects, &key)? else {
            return Ok(None);
        };
        let state = Document::parse(&key, &bytes, Role::Manifest)?;
        if state.number != number {
            let message = format!(
                "expected the manifest of entry {number:x}, found that of {:x}",
                state.number
            );
            return Err(Error::corrupt(LAYER, 0, message).in_part(&key));
        }
        let mut log = Self {
            manifest: (number, bytes.len() as u64),
            ..Self::of(state)
        };
        while let Some(next) = log.state.number.checked_add(1) {
            let key = log_key(next);
            let Some(bytes) = read_all(objects, &key)? else {
                break;
            };
            let entry = Document::parse(&key, &bytes, Role::Entry)?;
            log.check_follows(&entry)
                .map_err(|error| error.in_part(&key))?;
            log.apply(entry, bytes.len() as u64);
        }
        Ok(Some(log))
    }

    /// Creates a log with this state and no entries after it.
    pub(super) fn of(state: Document) -> Self {
        Self {
            state,
            manifest: (0, 0),
            before: None,
            entries: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Begins a log if there is none: its first manifest lists the existing names.
    pub(super) fn begin(objects: &dyn Objects, part: u64) -> Result<()> {
        let (mut names, mut bytes) = (BTreeMap::new(), 0);
        objects.list("", &mut |key, meta| {
            if !key.starts_with(ROOT) && crate::store::check_name(key).is_ok() {
                // Checked early, before the names fill the memory: the manifest would be too long.
                bytes += key.len() as u64;
                check_len(&manifest_key(0), bytes)?;
                names.insert(
                    key.to_owned(),
                    Name::File(Arc::new(FileState::of_plain(meta))),
                );
            }
            Ok(())
        })?;
        let first = Document {
            number: 0,
            id: random()?,
            parent: 0,
            generation: 0,
            what: EntryPurpose::Release,
            part,
            settled: true,
            holder: Default::default(),
            names,
            snapshots: BTreeMap::new(),
        };
        // A manifest put by another writer is equivalent.
        objects
            .put(
                &manifest_key(0),
                &first.encode(Role::Manifest),
                Put::IfAbsent,
            )
            .map(drop)
    }

    fn check_follows(&self, entry: &Document) -> Result<()> {
        let state = &self.state;
        let generation = match entry.what {
            EntryPurpose::Take => state.generation.checked_add(1),
            EntryPurpose::Change | EntryPurpose::Release => Some(state.generation),
        };
        let follows = Some(entry.number) == state.number.checked_add(1)
            && entry.parent == state.id
            && Some(entry.generation) == generation
            && entry.part == state.part
            && (entry.what == EntryPurpose::Take || state.what != EntryPurpose::Release);
        if follows {
            return Ok(());
        }
        let expected = format!(
            "expected an entry that follows {:x} of generation {:x}",
            state.number, state.generation
        );
        Err(Error::corrupt(LAYER, 0, expected))
    }

    /// Applies an entry that follows the state.
    fn apply(&mut self, entry: Document, bytes: u64) {
        self.entries.insert(entry.number, entry.what);
        self.bytes += bytes;
        let Document {
            number,
            id,
            parent,
            generation,
            what,
            part: _,
            settled,
            holder,
            names,
            snapshots,
        } = entry;
        let state = &mut self.state;
        (
            state.number,
            state.id,
            state.parent,
            state.generation,
            state.what,
        ) = (number, id, parent, generation, what);
        (state.settled, state.holder) = (settled, holder);
        for (name, known) in names {
            if known == Name::Done {
                state.names.remove(&name);
            } else {
                state.names.insert(name, known);
            }
        }
        for (name, snapshot) in snapshots {
            if snapshot.is_some() {
                state.snapshots.insert(name, snapshot);
            } else {
                state.snapshots.remove(&name);
            }
        }
    }

    /// Returns an empty entry that would follow.
    pub(super) fn next(&self, what: EntryPurpose) -> Result<Document> {
        let state = &self.state;
        let next = |number: u64| {
            number
                .checked_add(1)
                .ok_or_else(|| Error::limit(LAYER, "the log has the maximum of 2^64 - 1 entries"))
        };
        Ok(Document {
            number: next(state.number)?,
            id: random()?,
            parent: state.id,
            generation: if what == EntryPurpose::Take {
                next(state.generation)?
            } else {
                state.generation
            },
            what,
            part: state.part,
            settled: state.settled,
            holder: state.holder.clone(),
            names: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        })
    }

    /// Puts an entry that [`next`](Self::next) created. After an error it is unknown if it exists,
    /// or will exist.
    pub(super) fn append(&mut self, objects: &dyn Objects, entry: Document) -> Result<Appended> {
        let key = log_key(entry.number);
        let bytes = entry.encode(Role::Entry);
        check_len(&key, bytes.len() as u64)?;
        let mut failed = None;
        for _ in 0..TRIES {
            // The same bytes each time: an earlier attempt may still arrive.
            match objects.put(&key, &bytes, Put::IfAbsent) {
                Ok(true) => {
                    self.apply(entry, bytes.len() as u64);
                    return Ok(Appended::Done);
                }
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            match read_all(objects, &key) {
                Ok(Some(found)) if found == bytes => {
                    self.apply(entry, bytes.len() as u64);
                    return Ok(Appended::Done);
                }
                Ok(Some(found)) => {
                    return Ok(Appended::Overtaken(Box::new(Document::parse(
                        &key,
                        &found,
                        Role::Entry,
                    )?)));
                }
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(
                Kind::Io,
                LAYER,
                "an entry of the log is missing in the bucket",
            )
            .in_part(&key)
        }))
    }

    /// Returns true if the newest entry, just put by this writer, has a number that a manifest
    /// already covers: compaction had removed another entry of that number. It is then invalid.
    pub(super) fn is_void(&self, objects: &dyn Objects) -> Result<bool> {
        Ok(manifests(objects)?
            .newest
            .is_some_and(|number| number >= self.state.number))
    }

    /// Returns true if too few entries follow the newest manifest to justify a new one.
    pub(super) fn is_short(&self) -> bool {
        self.state.number - self.manifest.0 < FEW
    }

    /// Writes a manifest if many entries follow the last one, and removes entries and manifests up
    /// to the previous one, which new readers do not need. Entries by which a writer took over are
    /// kept: they stop the writer before, even if it resumes much later.
    pub(super) fn compact(&mut self, objects: &dyn Objects, now: bool) -> Result<()> {
        let since = self.state.number - self.manifest.0;
        let due = since >= MAX_ENTRIES || (since >= FEW && self.bytes >= self.manifest.1);
        if since == 0 || !(due || now) {
            return Ok(());
        }
        let (number, before) = (self.state.number, self.manifest.0);
        let bytes = self.state.encode(Role::Manifest);
        check_len(&manifest_key(number), bytes.len() as u64)?;
        objects.put(&manifest_key(number), &bytes, Put::Replace)?;
        (self.manifest, self.bytes) = ((number, bytes.len() as u64), 0);
        self.find_entries_before(objects, before)?;
        let old: Vec<u64> = self
            .entries
            .range(..=before)
            .map(|(number, _)| *number)
            .collect();
        for number in old {
            if self.entries.remove(&number) != Some(EntryPurpose::Take) {
                objects.remove(&log_key(number))?;
            }
        }
        let mut manifests = Vec::new();
        objects.list(MANIFESTS, &mut |key, _| {
            manifests.extend((key < manifest_key(before).as_str()).then(|| key.to_owned()));
            Ok(())
        })?;
        manifests
            .iter()
            .try_for_each(|key| objects.remove(key).map(drop))
    }

    /// Reads the purposes of the entries that an earlier writer left between its last two
    /// manifests.
    fn find_entries_before(&mut self, objects: &dyn Objects, newest: u64) -> Result<()> {
        let Some(before) = self.before.take() else {
            return Ok(());
        };
        for number in (before + 1..=newest).rev().take(to_usize(2 * MAX_ENTRIES)) {
            let key = log_key(number);
            if let Some(bytes) = read_all(objects, &key)? {
                self.entries
                    .insert(number, Document::parse(&key, &bytes, Role::Entry)?.what);
            }
        }
        Ok(())
    }
}

/// Returns a unique random number.
pub(super) fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| {
        Error::new(Kind::Io, LAYER, "cannot generate random numbers").caused_by(error)
    })
}
