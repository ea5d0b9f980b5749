//! The storage of undo data: a folder beside the image or elsewhere on this host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LAYER;
use crate::device::{BlockDevice, BlockDeviceExt, regions};
use crate::open::interrupted::{self, APPLIED, STATE, State};
use crate::size::to_usize;
use crate::store::{Local, Open, PrefixStore, Put, Store};
use crate::{Error, Result};

/// Folder of the files that a repair removed.
pub(super) const FILES: &str = "files/";
/// Name of the file of saved bytes.
pub(super) const DATA: &str = "data";
/// Bytes compared, saved and restored at a time.
pub(super) const PIECE: u64 = 1 << 20;
/// Maximum length of a file that is stored as a whole, in bytes.
pub(super) const MAX_REPLACED: u64 = 64 << 20;

/// The storage of the undo data of an image. Each repair has a folder in it, named by its number.
#[derive(Debug)]
pub(super) struct UndoStore {
    store: Arc<dyn Store>,
    /// The store that holds both the image and the undo data, so that files can be moved between
    /// them. `None`: they are copied.
    shared: Option<Shared>,
    /// The folder on this host.
    folder: Option<PathBuf>,
    /// The sparse bundle on this host whose files are copied here.
    bundle: Option<PathBuf>,
}

#[derive(Debug)]
struct Shared {
    parent: Arc<dyn Store>,
    image: PrefixStore,
    undo: PrefixStore,
}

impl UndoStore {
    /// Uses the folder `undo` beside the image `name` in the same store.
    pub(super) fn beside(parent: Arc<dyn Store>, name: &str, undo: &str) -> Self {
        let shared = Shared {
            image: PrefixStore::new(parent.clone(), name),
            undo: PrefixStore::new(parent.clone(), undo),
            parent,
        };
        Self {
            store: Arc::new(shared.undo.clone()),
            shared: Some(shared),
            folder: None,
            bundle: None,
        }
    }

    /// Uses a store of its own.
    pub(super) fn apart(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            shared: None,
            folder: None,
            bundle: None,
        }
    }

    /// Sets the path of the sparse bundle on this host, so that files which are copied keep their
    /// permissions, owners and extended attributes.
    pub(super) fn of_bundle(self, bundle: Option<PathBuf>) -> Self {
        Self { bundle, ..self }
    }

    /// Sets the path of the folder on this host.
    pub(super) fn at(self, folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
            ..self
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the folder. `None` if it is not on this host.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Fails if something else has the name of the folder, or if the folder for it does not exist.
    /// A symbolic link is not followed: it may lead into other data.
    pub(super) fn check(&self) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let found = match fs::symlink_metadata(folder) {
            Ok(meta) if meta.is_dir() => return interrupted::check_links(folder),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::metadata(interrupted::folder_of(folder)).map(drop)
            }
            Err(error) => Err(error),
        };
        found.map_err(|error| Error::io(LAYER, NO_UNDO, error).in_file(folder))
    }

    /// Adds to an error the reason why nothing is repaired.
    pub(super) fn cannot_save(&self, error: Error) -> Error {
        let message = format!("cannot {NO_UNDO}: {error}");
        let named = Error::new(error.kind(), LAYER, message).caused_by(error);
        match &self.folder {
            Some(folder) => named.in_file(folder),
            None => named,
        }
    }

    /// Returns the numbers of all repairs, and their states.
    pub(super) fn repairs(&self) -> Result<Vec<(u64, Option<State>)>> {
        interrupted::repairs(&*self.store)?
            .into_iter()
            .map(|number| Ok((number, interrupted::state(&*self.store, number)?)))
            .collect()
    }

    /// Records durably that the undo data of a repair is complete. `recorded` is the state of the
    /// image after it.
    pub(super) fn set_prepared(&self, number: u64, recorded: &str) -> Result<()> {
        let text = interrupted::file_of(recorded);
        self.store
            .put(&format!("{number}/{STATE}"), &text, Put::Replace)?;
        self.store.sync()
    }

    /// Records durably that a repair is complete.
    pub(super) fn set_applied(&self, number: u64) -> Result<()> {
        self.store
            .put(&format!("{number}/{APPLIED}"), &[], Put::Replace)?;
        self.store.sync()
    }

    /// Records durably that a repair is being undone. Needs no room, which a full disk does not
    /// have.
    pub(super) fn set_undoing(&self, number: u64) -> Result<()> {
        self.store.remove(&format!("{number}/{APPLIED}"))?;
        self.store.sync()
    }

    /// Moves a file of the image to the undo data.
    pub(super) fn move_in(&self, image: &dyn Store, name: &str, to: &str) -> Result<()> {
        match &self.shared {
            Some(shared) => shared
                .parent
                .rename(&shared.image.full(name), &shared.undo.full(to)),
            None => move_by_copy(
                (image, &self.bundle, name),
                (&*self.store, &self.folder, to),
            ),
        }
    }

    /// Moves a file of the undo data back to the image.
    pub(super) fn restore_file(&self, image: &dyn Store, from: &str, name: &str) -> Result<()> {
        match &self.shared {
            Some(shared) => shared
                .parent
                .rename(&shared.undo.full(from), &shared.image.full(name)),
            None => move_by_copy(
                (&*self.store, &self.folder, from),
                (image, &self.bundle, name),
            ),
        }
    }

    /// Removes the undo data of a repair. Its state is durably removed first: without it the other
    /// files are ignored.
    pub(super) fn clear(&self, number: u64) -> Result<()> {
        if self.store.remove(&format!("{number}/{STATE}"))? {
            self.store.sync()?;
        }
        let mut names = Vec::new();
        self.store.list(&format!("{number}/"), &mut |entry| {
            names.push(entry.name.to_owned());
            Ok(())
        })?;
        for name in &names {
            self.store.remove(name)?;
        }
        self.store.remove_folder(&number.to_string())?;
        self.store.remove_folder("")?;
        self.store.sync()
    }
}

const NO_UNDO: &str = "write undo data; choose another folder with `--undo-dir`";

/// Copies a file to another store durably.
pub(super) fn copy_file(from: &dyn Store, name: &str, to: &dyn Store, target: &str) -> Result<()> {
    let source = from
        .open(name, Open::Read)?
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    let copy = to
        .open(target, Open::Create)?
        .ok_or_else(|| Error::not_found(LAYER, target))?;
    regions::copy_all(&*source, &*copy)?;
    copy.flush()?;
    to.sync()
}

/// A file of a store, with the path of the store on this host, if it has one.
type StoredFile<'a> = (&'a dyn Store, &'a Option<PathBuf>, &'a str);

/// Moves a file to another store. The copy is durable before the original is removed.
fn move_by_copy(
    (from, from_path, name): StoredFile<'_>,
    (to, to_path, target): StoredFile<'_>,
) -> Result<()> {
    let source = from
        .open(name, Open::Read)?
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    // One that was interrupted may be read-only.
    to.remove(target)?;
    let copy = to
        .open(target, Open::Create)?
        .ok_or_else(|| Error::not_found(LAYER, target))?;
    let set_attributes = || match (from_path, to_path) {
        (Some(from), Some(to)) => Local::new(to).set_attributes_like(target, &from.join(name)),
        _ => Ok(()),
    };
    // Before the bytes: after a crash, a file that has all of them is complete.
    set_attributes()?;
    regions::copy_all(&*source, &*copy)?;
    copy.flush()?;
    to.sync()?;
    // The time of the copy is that of the original again; it decides nothing.
    let _ = set_attributes();
    from.remove(name)?;
    from.sync()
}

/// Returns the CRC-32 of a range. `None`: the device ends before it.
pub(super) fn checksum(
    device: &dyn BlockDevice,
    range: std::ops::Range<u64>,
) -> Result<Option<u32>> {
    if range.end > device.info().len {
        return Ok(None);
    }
    let mut sum = crc32fast::Hasher::new();
    let mut at = range.start;
    while at < range.end {
        let bytes = device.read_vec(at, to_usize((range.end - at).min(PIECE)))?;
        sum.update(&bytes);
        at += bytes.len() as u64;
    }
    Ok(Some(sum.finalize()))
}

/// Returns true if a file has this length and checksum.
pub(super) fn is_file(store: &dyn Store, name: &str, len: u64, sum: u32) -> Result<bool> {
    let Some(file) = store.open(name, Open::Read)? else {
        return Ok(false);
    };
    Ok(file.info().len == len && checksum(&*file, 0..len)? == Some(sum))
}
