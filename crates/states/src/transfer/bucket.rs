//! States in a bucket: a bundle there with a snapshot for each state.
//!
//! New contents are first stored as `incoming/HASH` in the bundle, in several commits, so that an
//! interrupted run is resumed. When all are there and were read again, one commit gives them their
//! names: the bundle is the last complete state at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::progress::Progress;
use bandsaw::store::{Open, Put, Remote, Store};
use bandsaw::{Error, Kind, Reason, Result};
use serde::{Deserialize, Serialize};

use super::send::{StateSource, choose, through_pipe};
use super::{FORMAT, LAYER, PIECE, Received, Sent, have};
use crate::bundle::INFO;
use crate::hash::hash;
use crate::manifest::{Manifest, StateFile};
use crate::sealed::{self, Found};
use crate::shelf::Shelf;

/// The file in the bundle that tells which state it is.
const RECORD: &str = "bandsaw-state.json";
/// Maximum length of that file in bytes.
const MAX_RECORD_LEN: u64 = 1 << 30;
/// Contents that have no name yet.
const INCOMING: &str = "incoming/";
/// Bytes after which contents are committed.
const COMMIT_EVERY: u64 = 1 << 30;

/// Opens the folder of a bundle in a bucket, or a snapshot of the bundle.
pub type OpenBucket<'a> = &'a (dyn Fn(Access, Option<&str>) -> Result<Arc<Remote>> + Sync);

/// The state that a bundle in a bucket, or a snapshot of it, is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    id: String,
    /// False if the files of the state are about to get their names. Then the manifest has only those
    /// that the state before has, too.
    complete: bool,
    manifest: Manifest,
}

impl Record {
    /// Reads the record of a bundle. `None`: it has none.
    fn get(store: &dyn Store) -> Result<Option<Self>> {
        let Some(file) = store.open(RECORD, Open::Read)? else {
            return Ok(None);
        };
        let len = file.info().len;
        let length = usize::try_from(len).ok().filter(|_| len <= MAX_RECORD_LEN);
        let length = length.ok_or_else(|| {
            let message = format!("record of {len} bytes is too long: at most {MAX_RECORD_LEN}");
            Error::limit(LAYER, message).named(RECORD)
        })?;
        match sealed::from_bytes::<Self>(&file.read_vec(0, length)?, FORMAT)? {
            Found::Whole(record) => match Manifest::checked(Found::Whole(record.manifest)) {
                Found::Whole(manifest) => Ok(Some(Self { manifest, ..record })),
                _ => Err(corrupt("a name leads out of the bundle", RECORD)),
            },
            Found::OtherFormat(version) => {
                let message = format!("version {version} of the format is not supported");
                Err(Error::unsupported(LAYER, message).named(RECORD))
            }
            Found::Absent | Found::Damaged => Err(corrupt("its hash does not match", RECORD)),
        }
    }

    fn put(&self, store: &dyn Store) -> Result<()> {
        let bytes = sealed::to_bytes(FORMAT, self)?;
        store.put(RECORD, &bytes, Put::Replace).map(drop)
    }
}

/// The message for a file that is not the one of its manifest.
const CHANGED: &str = "checksum mismatch: the file in the bucket changed after it was sent";

fn corrupt(why: &'static str, name: &str) -> Error {
    Error::new(Kind::Corrupt, LAYER, why).named(name)
}

/// Sends the state `id`, or the newest sound one, to a bundle in a bucket, of which it becomes a
/// snapshot. Only contents that the bundle does not have are sent, and all of these are read again. An
/// interrupted run is resumed.
///
/// [`Kind::Conflict`] if there is another bundle, or another state of the name; [`Kind::Corrupt`] if a
/// file of the state is not as it was made, or is another one in the bucket.
pub fn send_to_bucket(
    shelf: &Shelf,
    id: Option<&str>,
    open: OpenBucket<'_>,
    progress: &dyn Progress,
) -> Result<Sent> {
    let _states = shelf.lock()?;
    let (id, manifest) = choose(shelf, id)?;
    let is_ours = |name: &&String| *name == RECORD || name.starts_with(INCOMING);
    if let Some(name) = manifest.files.keys().find(is_ours) {
        let message = "the bundle has a file with a name that is used in the bucket";
        return Err(Error::unsupported(LAYER, message).named(name));
    }
    let remote = open(Access::ReadWrite, None)?;
    let nothing = Sent {
        id: id.clone(),
        files: 0,
        size: 0,
    };
    if remote.snapshots().iter().any(|one| one.name == id) {
        let there = Record::get(&*open(Access::ReadOnly, Some(&id))?)?;
        return match there.is_some_and(|there| there.manifest.has_same_files(&manifest)) {
            true => Ok(nothing),
            false => Err(Error::conflict(LAYER, "another state has this name").named(id)),
        };
    }
    let there = Record::get(&*remote)?;
    if there.is_none() && remote.stat(INFO)?.is_some() {
        let message = "the bundle in the bucket was not made by `bandsaw send`; name another place";
        return Err(Error::conflict(LAYER, message).because(Reason::Exists));
    }
    let upload = Upload {
        shelf,
        id: &id,
        to: &remote,
        progress,
    };
    let there = there.map(|there| there.manifest.files).unwrap_or_default();
    let has = |(name, file): &(&String, &StateFile)| -> Result<bool> {
        let known = there
            .get(*name)
            .is_some_and(|there| there.hash == file.hash);
        Ok(known
            && remote
                .stat(name)?
                .is_some_and(|found| found.len == file.len))
    };
    let mut new: BTreeMap<&String, &StateFile> = BTreeMap::new();
    for file in &manifest.files {
        if !has(&file)? {
            new.insert(file.0, file.1);
        }
    }
    let sent = upload.contents(&new, nothing)?;
    upload.verify(&new, &*open(Access::ReadOnly, None)?)?;
    upload.publish(&new, &manifest)?;
    // First, so that the snapshot shares the objects that other programs see.
    progress.stage("checkpoint", 0);
    remote.checkpoint(&|bytes| {
        progress.advance(bytes);
        progress.check()
    })?;
    remote.create_snapshot(&id)?;
    remote.close()?;
    Ok(sent)
}

struct Upload<'a> {
    shelf: &'a Shelf,
    id: &'a str,
    to: &'a Remote,
    progress: &'a dyn Progress,
}

/// New files by the names that they are to get.
type NewFiles<'a> = BTreeMap<&'a String, &'a StateFile>;

fn incoming(file: &StateFile) -> String {
    format!("{INCOMING}{}", file.hash)
}

impl Upload<'_> {
    /// Stores the contents of new files, each once.
    fn contents(&self, new: &NewFiles<'_>, mut sent: Sent) -> Result<Sent> {
        let mut known = BTreeSet::new();
        let mut ahead = Vec::new();
        for (name, file) in new {
            let place = incoming(file);
            if known.insert(&file.hash)
                && self
                    .to
                    .stat(&place)?
                    .is_none_or(|found| found.len != file.len)
            {
                ahead.push((*name, *file, place));
            }
        }
        let total = ahead.iter().map(|(_, file, _)| file.len);
        self.progress
            .stage("send", total.fold(0, u64::saturating_add));
        let mut uncommitted = 0_u64;
        for (name, file, place) in ahead {
            self.file(name, file, &place)?;
            sent.files += 1;
            sent.size = sent.size.saturating_add(file.len);
            uncommitted = uncommitted.saturating_add(file.len);
            if uncommitted >= COMMIT_EVERY {
                self.to.sync()?;
                uncommitted = 0;
            }
        }
        self.to.sync()?;
        Ok(sent)
    }

    fn file(&self, name: &str, file: &StateFile, place: &str) -> Result<()> {
        let path = format!("{}/{name}", self.id);
        let damaged = || {
            let message = "the file is not as it was made; nothing more is sent";
            let error = Error::new(Kind::Corrupt, LAYER, message);
            self.shelf.named(error, &path)
        };
        let from = self.shelf.store().open(&path, Open::Read)?;
        let from = from.ok_or_else(damaged)?;
        if from.info().len != file.len {
            return Err(damaged());
        }
        self.to.remove(place)?;
        let to = self.to.open(place, Open::CreateNew)?;
        let to = to.ok_or_else(|| Error::conflict(LAYER, "already exists").named(place))?;
        to.set_len(file.len, AfterDiscard::Zeros)?;
        let copied = self.copy(&*from, &*to, file.len);
        if copied.as_ref().is_ok_and(|found| *found == file.hash) {
            return Ok(());
        }
        // Half a file must not be committed under the name of its hash.
        drop(to);
        self.to.remove(place)?;
        copied.and(Err(damaged()))
    }

    /// Copies contents, and returns their hash.
    fn copy(&self, from: &dyn BlockDevice, to: &dyn BlockDevice, len: u64) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut buf = Vec::new();
        let mut at = 0;
        while at < len {
            self.progress.check()?;
            let piece = PIECE.min(len - at);
            buf.resize(bandsaw::size::to_usize(piece), 0);
            from.read_at(at, &mut buf)?;
            hasher.update(&buf);
            to.write_at(at, &buf)?;
            self.progress.advance(piece);
            at += piece;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Reads all new contents from the bucket.
    fn verify(&self, new: &NewFiles<'_>, from: &dyn Store) -> Result<()> {
        let files: BTreeMap<&String, &StateFile> =
            new.values().map(|file| (&file.hash, *file)).collect();
        let total = files.values().map(|file| file.len);
        self.progress
            .stage("verify", total.fold(0, u64::saturating_add));
        for (expected, file) in files {
            let place = incoming(file);
            let found = hash(from, &place, self.progress)?;
            if found.is_none_or(|(found, _)| found != *expected) {
                self.to.remove(&place)?;
                self.to.sync()?;
                return Err(corrupt(
                    "the bucket returns other contents than were sent",
                    &place,
                ));
            }
        }
        Ok(())
    }

    /// Gives the new files their names, and removes others, in one commit.
    fn publish(&self, new: &NewFiles<'_>, manifest: &Manifest) -> Result<()> {
        let mut uses: BTreeMap<&String, usize> = BTreeMap::new();
        for file in new.values() {
            *uses.entry(&file.hash).or_default() += 1;
        }
        // Replaced below before anything is committed, unless a request fails between: closing the bundle
        // commits what was changed until then.
        let mut record = Record {
            id: self.id.to_owned(),
            complete: false,
            manifest: manifest.clone(),
        };
        record
            .manifest
            .files
            .retain(|name, _| !new.contains_key(name));
        record.put(self.to)?;
        for (name, file) in new {
            let place = incoming(file);
            let left = uses.entry(&file.hash).or_default();
            *left -= 1;
            match *left {
                0 => self.to.rename(&place, name)?,
                _ => self.to.copy(&place, name)?,
            }
        }
        let mut others = Vec::new();
        self.to.list("", &mut |entry| {
            let is_known = manifest.files.contains_key(entry.name) || entry.name == RECORD;
            others.extend((!is_known).then(|| entry.name.to_owned()));
            Ok(())
        })?;
        for name in others {
            self.to.remove(&name)?;
        }
        record.complete = true;
        record.manifest = manifest.clone();
        record.put(self.to)?;
        self.to.sync()
    }
}

/// Receives a state of a bundle in a bucket in a folder of states, as [`receive`](super::receive) does:
/// the state `id`, or the one that was sent last.
///
/// [`Kind::NotFound`] if the bundle has no states, or no state of this name.
pub fn receive_from_bucket(
    open: OpenBucket<'_>,
    id: Option<&str>,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(Sent, Received)> {
    let remote = open(Access::ReadOnly, None)?;
    let mut snapshots = remote.snapshots();
    let current = Record::get(&*remote)?.map(|record| record.id);
    snapshots.sort_by_key(|one| (Some(&one.name) == current.as_ref(), one.created));
    let found = match id {
        Some(id) => snapshots.iter().find(|one| one.name == id),
        None => snapshots.last(),
    };
    let missing = || match id {
        Some(id) => Error::not_found(LAYER, id).because(Reason::NoSuchState),
        None => Error::not_found(LAYER, "a state in the bucket").because(Reason::NoSuchState),
    };
    let name = found.ok_or_else(missing)?.name.clone();
    let snapshot = open(Access::ReadOnly, Some(&name))?;
    let Some(Record {
        id,
        manifest,
        complete: true,
    }) = Record::get(&*snapshot)?
    else {
        let message = "a snapshot that is not a state of `bandsaw send`";
        return Err(Error::unsupported(LAYER, message).named(name));
    };
    let known = have(folder, &manifest.bundle, progress)?;
    let send = |output: &mut dyn std::io::Write| {
        let source = StateSource {
            id: id.clone(),
            manifest: manifest.clone(),
            open: &|name| snapshot.open(name, Open::Read),
            damaged: &|name| corrupt(CHANGED, name),
        };
        source.send(&known, output, progress)
    };
    through_pipe(&send, folder, progress)
}
