//! Documents with a hash of their own, so that damage of one is never taken for its contents.

use std::path::Path;

use bandsaw::device::BlockDeviceExt;
use bandsaw::store::{HostStore, Open, Put};
use bandsaw::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::LAYER;

/// Maximum length in bytes: a list of some ten million files.
pub(crate) const MAX_LEN: u64 = 4 << 30;

/// A document that was read.
#[derive(Debug)]
pub enum Found<T> {
    /// There is none.
    Absent,
    /// It has another version of the format.
    OtherFormat(u64),
    /// It is damaged.
    Damaged,
    /// Its contents.
    Whole(T),
}

#[derive(Serialize)]
struct Written<'a, T> {
    format: u64,
    seal: &'a str,
    body: &'a T,
}

#[derive(Deserialize)]
struct Version {
    format: u64,
}

#[derive(Deserialize)]
struct Read<T> {
    seal: String,
    body: T,
}

/// Stores a document atomically. Durable after the next `sync` of the store.
pub(crate) fn put<T: Serialize>(
    store: &dyn HostStore,
    name: &str,
    format: u64,
    body: &T,
) -> Result<()> {
    store
        .put(name, &to_bytes(format, body)?, Put::Replace)
        .map(drop)
}

/// Returns the bytes of a document. `format` is the version of its format.
pub fn to_bytes<T: Serialize>(format: u64, body: &T) -> Result<Vec<u8>> {
    let document = Written {
        format,
        seal: &seal(format, body)?,
        body,
    };
    serde_json::to_vec(&document).map_err(|error| unwritable("list", &error))
}

/// Reads a document.
pub(crate) fn get<T: Serialize + DeserializeOwned>(
    store: &dyn HostStore,
    name: &str,
    format: u64,
) -> Result<Found<T>> {
    let Some(file) = store.open(name, Open::Read)? else {
        return Ok(Found::Absent);
    };
    let len = file.info().len;
    let length = usize::try_from(len).ok().filter(|_| len <= MAX_LEN);
    let length = length.ok_or_else(|| Error::limit(LAYER, "too long for a list").named(name))?;
    from_bytes(&file.read_vec(0, length)?, format)
}

/// Returns the document in these bytes, if it has this version of the format. Never
/// [`Found::Absent`].
pub fn from_bytes<T: Serialize + DeserializeOwned>(bytes: &[u8], format: u64) -> Result<Found<T>> {
    let Ok(version) = serde_json::from_slice::<Version>(bytes) else {
        return Ok(Found::Damaged);
    };
    if version.format != format {
        return Ok(Found::OtherFormat(version.format));
    }
    Ok(match serde_json::from_slice::<Read<T>>(bytes) {
        Ok(read) if seal(format, &read.body)? == read.seal => Found::Whole(read.body),
        _ => Found::Damaged,
    })
}

/// Reads a document that must be whole if it exists.
pub(crate) fn expect<T: Serialize + DeserializeOwned>(
    store: &dyn HostStore,
    name: &str,
    format: u64,
) -> Result<Option<T>> {
    let path = store.host_path(name);
    match get(store, name, format)? {
        Found::Absent => Ok(None),
        Found::Whole(body) => Ok(Some(body)),
        Found::Damaged => Err(damaged(&path)),
        Found::OtherFormat(version) => Err(other_format(version, &path)),
    }
}

pub(crate) fn damaged(path: &Path) -> Error {
    Error::new(
        bandsaw::Kind::Corrupt,
        LAYER,
        "the list is damaged: its hash does not match",
    )
    .in_file(path)
}

pub(crate) fn other_format(version: u64, path: &Path) -> Error {
    let message = format!("version {version} of the format is not supported");
    Error::unsupported(LAYER, message).in_file(path)
}

fn seal<T: Serialize>(format: u64, body: &T) -> Result<String> {
    let bytes = serde_json::to_vec(body).map_err(|error| unwritable("list", &error))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&format.to_le_bytes()).update(&bytes);
    Ok(hasher.finalize().to_hex().to_string())
}

fn unwritable(name: &str, error: &serde_json::Error) -> Error {
    Error::invalid(LAYER, format!("cannot be written as JSON: {error}")).named(name)
}
