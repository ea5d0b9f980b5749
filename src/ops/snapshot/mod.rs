//! States of a sparse bundle that are kept under names. `bandsaw snapshot`.
//!
//! In a bucket a snapshot is a list of objects, which stay while the bundle goes on ([`Remote`]).
//! On this host it is a bundle of its own inside the bundle (`folder.rs`).

mod folder;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use self::folder::Folder;
use crate::device::Access;
use crate::open::{NetworkOptions, remote};
use crate::progress::Progress;
use crate::store::{Remote, Snapshot, check_name};
use crate::{Error, Kind, Result};

const LAYER: &str = "snapshot";
/// Bytes that a name of a file may have on every host.
const LONGEST_NAME: usize = 255;

/// Who keeps the snapshots of a bundle.
enum Keeper {
    Bucket(Arc<Remote>),
    Folder(Folder),
}

impl Keeper {
    /// Of the bundle at `image`. [`Kind::Unsupported`] if that is none.
    fn of(image: &Path, access: Access, network: NetworkOptions) -> Result<Self> {
        match remote::bundle(image, access, network)? {
            Some(bundle) => Ok(Self::Bucket(bundle)),
            None => Folder::open(image).map(Self::Folder),
        }
    }
}

/// The snapshots of the bundle at `image`, the oldest first.
pub fn list(image: &Path, network: NetworkOptions) -> Result<Vec<Snapshot>> {
    let listed = Keeper::of(image, Access::ReadOnly, network).and_then(|keeper| match keeper {
        Keeper::Bucket(bundle) => Ok(bundle.snapshots()),
        Keeper::Folder(folder) => folder.list(),
    });
    let mut snapshots = listed.map_err(|error| error.in_file(image))?;
    snapshots.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(snapshots)
}

/// Keeps the bundle at `image`, which nobody else may write meanwhile, as it is. [`Kind::Conflict`]
/// if there is a snapshot of this name. Whatever goes wrong, or if `progress` says stop, nothing of
/// a new one is left.
pub fn create(
    image: &Path,
    name: &str,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let made = check(name).and_then(|()| match Keeper::of(image, Access::ReadWrite, network)? {
        Keeper::Bucket(bundle) => bundle.create_snapshot(name).and_then(|()| bundle.close()),
        Keeper::Folder(folder) => folder.create(name, progress),
    });
    made.map_err(|error| error.in_file(image))
}

/// Makes the bundle at `image`, which nobody else may use meanwhile, what it was when the snapshot
/// was made: what it is now is lost, unless it is kept by another one. It is done in one step, or
/// not at all.
pub fn restore(
    image: &Path,
    name: &str,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let done = check(name).and_then(|()| match Keeper::of(image, Access::ReadWrite, network)? {
        Keeper::Bucket(bundle) => bundle.restore_snapshot(name).and_then(|()| bundle.close()),
        Keeper::Folder(folder) => folder.restore(name, progress),
    });
    done.map_err(|error| error.in_file(image))
}

/// Forgets a snapshot, and gives back what only that one took.
pub fn delete(image: &Path, name: &str, network: NetworkOptions) -> Result<()> {
    let done = check(name).and_then(|()| match Keeper::of(image, Access::ReadWrite, network)? {
        Keeper::Bucket(bundle) => bundle.delete_snapshot(name).and_then(|()| bundle.close()),
        Keeper::Folder(folder) => folder.delete(name),
    });
    done.map_err(|error| error.in_file(image))
}

/// Names are those of a file that is not hidden.
fn check(name: &str) -> Result<()> {
    if check_name(name).is_ok()
        && !name.contains('/')
        && !name.starts_with('.')
        && name.len() <= LONGEST_NAME
    {
        return Ok(());
    }
    let message = format!(
        "expected a name of a snapshot without / in it or . in front, of at most {LONGEST_NAME} bytes"
    );
    Err(Error::new(Kind::Invalid, LAYER, message).named(name))
}

fn no_snapshot(name: &str) -> Error {
    Error::new(Kind::NotFound, LAYER, "is no snapshot of this bundle").named(name)
}
