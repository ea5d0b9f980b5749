//! Named snapshots of a sparse bundle. `bandsaw snapshot`.
//!
//! In a bucket a snapshot is a list of objects, which are kept while the bundle changes
//! ([`Remote`]). On this host it is a bundle of its own inside the bundle (`folder.rs`).

mod folder;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use self::folder::Folder;
use crate::device::Access;
use crate::open::{NetworkOptions, interrupted, remote};
use crate::progress::Progress;
use crate::store::{Remote, Snapshot, check_name};
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "snapshot";
/// Largest length of a file name on every host, in bytes.
const LONGEST_NAME: usize = 255;

/// The storage of a bundle's snapshots.
enum SnapshotStore {
    Bucket(Arc<Remote>),
    Folder(Box<Folder>),
}

impl SnapshotStore {
    /// Returns the snapshots of the bundle at `image`. [`Kind::Unsupported`] if it is not a bundle.
    fn of(image: &Path, access: Access, network: NetworkOptions) -> Result<Self> {
        match remote::bundle(image, access, network)? {
            Some(bundle) => Ok(Self::Bucket(bundle)),
            None => {
                let folder = Folder::open(image)?;
                interrupted::refuse_or_warn(image, access)?;
                Ok(Self::Folder(Box::new(folder)))
            }
        }
    }
}

/// Returns the snapshots of the bundle at `image`, the oldest first.
pub fn list(image: &Path, network: NetworkOptions) -> Result<Vec<Snapshot>> {
    let listed =
        SnapshotStore::of(image, Access::ReadOnly, network).and_then(|store| match store {
            SnapshotStore::Bucket(bundle) => Ok(bundle.snapshots()),
            SnapshotStore::Folder(folder) => folder.list(),
        });
    let mut snapshots = listed.map_err(|error| error.in_file(image))?;
    snapshots.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(snapshots)
}

/// Creates a snapshot of the bundle at `image`, to which no other process may write meanwhile.
/// [`Kind::Conflict`] if there is a snapshot of this name. After an error, or if `progress`
/// cancels, the new snapshot is removed.
pub fn create(
    image: &Path,
    name: &str,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let made = check_snapshot_name(name).and_then(|()| {
        match SnapshotStore::of(image, Access::ReadWrite, network)? {
            SnapshotStore::Bucket(bundle) => {
                bundle.create_snapshot(name).and_then(|()| bundle.close())
            }
            SnapshotStore::Folder(folder) => folder.create(name, progress),
        }
    });
    made.map_err(|error| error.in_file(image))
}

/// Restores the bundle at `image`, which no other process may use meanwhile, to the state of a
/// snapshot. The present state is lost, unless another snapshot holds it. The change is atomic.
/// [`Kind::Corrupt`] if the snapshot of a bundle on this host is damaged, and the present state is not.
pub fn restore(
    image: &Path,
    name: &str,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let done = check_snapshot_name(name).and_then(|()| {
        match SnapshotStore::of(image, Access::ReadWrite, network)? {
            SnapshotStore::Bucket(bundle) => {
                bundle.restore_snapshot(name).and_then(|()| bundle.close())
            }
            SnapshotStore::Folder(folder) => folder.restore(name, progress),
        }
    });
    done.map_err(|error| error.in_file(image))
}

/// Deletes a snapshot, and frees the storage that only this one used.
pub fn delete(image: &Path, name: &str, network: NetworkOptions) -> Result<()> {
    let done = check_snapshot_name(name).and_then(|()| {
        match SnapshotStore::of(image, Access::ReadWrite, network)? {
            SnapshotStore::Bucket(bundle) => {
                bundle.delete_snapshot(name).and_then(|()| bundle.close())
            }
            SnapshotStore::Folder(folder) => folder.delete(name),
        }
    });
    done.map_err(|error| error.in_file(image))
}

/// Refuses names that are not those of a visible file.
fn check_snapshot_name(name: &str) -> Result<()> {
    if check_name(name).is_ok()
        && !name.contains('/')
        && !name.starts_with('.')
        && name.len() <= LONGEST_NAME
    {
        return Ok(());
    }
    let message = format!(
        "invalid name: expected at most {LONGEST_NAME} bytes, no slash, and no dot at its start"
    );
    Err(Error::invalid(LAYER, message).named(name))
}

fn no_snapshot(name: &str) -> Error {
    Error::new(
        Kind::NotFound,
        LAYER,
        "the bundle does not have this snapshot",
    )
    .because(Reason::NoSuchSnapshot)
    .named(name)
}
