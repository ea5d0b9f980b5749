//! Opens, checks and creates images: recognizes their layers and stacks them.
//!
//! [`open`] stacks the layers of an image, [`create`] creates a blank image, and a [`Draft`] is an
//! image that is moved to its final name only when it is finished.
//!
//! | topic | files |
//! | --- | --- |
//! | opening, layer by layer | `opening`, `container`, `read_only_image`, `virtual_disk`, `disk`, `overlays`, `section`, `archive`, `split_files`, `asif_directories` |
//! | recognition, contents | `detect`, `contents`, `volume_format`, `volume`, `driver`, `apfs`, `hfsplus`, `core_storage`, `logical_disk` |
//! | the gate before changes: comparison of sources | `gate` |
//! | keys | `unlock`, `key_cache`, `key_file` |
//! | new images | `create`, `create_options`, `new_image`, `file_draft`, `place`, `resumable`, `resume_note`, `staged_image` |
//! | checks, free space | `examine`, `free` |
//! | results | `image`, `layer`, `layer_metadata` |
//! | other places | `remote`, `snapshot` |
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod apfs;
mod archive;
mod archive_member;
mod asif_directories;
mod container;
mod contents;
mod core_storage;
mod create;
mod create_options;
mod detect;
mod disk;
mod driver;
mod examine;
mod file_draft;
mod free;
pub(crate) mod gate;
mod hfsplus;
mod image;
pub(crate) mod key_cache;
mod key_file;
mod layer;
pub(crate) mod layer_metadata;
mod logical_disk;
mod new_image;
mod opening;
pub mod overlays;
pub(crate) mod place;
mod read_only_image;
pub(crate) mod remote;
mod resumable;
mod resume_note;
mod section;
pub(crate) mod snapshot;
mod split_files;
pub(crate) mod staged_image;
mod unlock;
#[cfg(feature = "foreign")]
mod virtual_disk;
mod volume;
mod volume_format;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::container::Format;
use crate::crypt;
use crate::decision::Assumptions;
use crate::device::{Access, BlockDevice};
use crate::fs::Timestamp;
use crate::fs::hfsplus::DEFAULT_CACHE;
use crate::store::{Local, Store};
use crate::{Error, Kind, Reason, Result};

pub(crate) use self::gate::{FoundDisk, compare_lists, geometry, interrupted, leftovers, unstored};
use self::gate::{band_size, guarded, quick_check, resolve_lists};
use self::opening::Opening;
use self::remote::RemoteTarget;
use self::staged_image::StagedImage;

pub use apfs::VolumeQuery;
pub use archive::archive;
pub(crate) use archive::is_archive;
pub(crate) use container::detect_container;
pub(crate) use container::lock_file;
pub(crate) use container::open_bundle;
pub(crate) use container::stands_alone;
pub use contents::Contents;
pub(crate) use contents::{find as find_contents, find_with as find_contents_with, is_blank};
pub use create::{Draft, create};
pub use create_options::CreateOptions;
pub use examine::{
    CheckedLayer, Conclusion, Examination, LayerVerdict, examine, examine_contents, examine_device,
};
pub(crate) use examine::{Scope, examine_stored};
pub use file_draft::FileDraft;
pub use image::Image;
pub use key_file::KeyFile;
pub use layer::{ArchiveLayer, Layer};
pub use place::NewMode;
pub use remote::{LocalCache, NetworkOptions, bucket_folder, bundle_files};
pub use section::Section;
pub use unlock::{Keys, archive_passphrase, volume_key};
pub use volume::Volume;
pub(crate) use volume::find as find_volumes;
pub use volume_format::VolumeFormat;

const LAYER: &str = "image";

/// The message of the error about a file of unknown format. A caller that knows the format sets it
/// in [`OpenOptions`].
const UNKNOWN: &str = "unknown format: no signature of an image, no partition map and no file \
                       system was found, and the file is not blank";

/// Options of opening an image.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions<'a> {
    /// The access mode. Read-only opens change nothing, not even a lock file.
    pub access: Access,
    /// The format, overriding detection; of an encrypted image, the format inside. `None`: detect
    /// it.
    pub image_format: Option<Format>,
    /// The source of passphrases and keys for an encrypted image, archive or volume. `None`: it
    /// stays locked.
    pub keys: Option<&'a dyn Keys>,
    /// Layers, or shadow files, over the image, from the bottom. The image itself is then opened
    /// read-only, even if `access` is read-write: writes go to the last layer, which is created if
    /// it is missing.
    pub shadows: &'a [PathBuf],
    /// The transaction number of an older checkpoint of an APFS container to read. `None`: the
    /// newest valid one.
    pub checkpoint: Option<u64>,
    /// The sectors of the disk to use as the whole disk.
    pub section: Option<Section>,
    /// The name or UUID of a logical volume of Core Storage to use as the whole disk, decrypted.
    pub logical_volume: Option<&'a str>,
    /// Other images with physical volumes of the same Core Storage group.
    pub physical_volumes: &'a [PathBuf],
    /// Bytes of memory for cached B-tree nodes of each open HFS+ volume, and as many again for
    /// pending changes.
    pub cache: usize,
    /// Lists the files that hold the journal of an HFS+ volume, which macOS hides, and finds them
    /// by name.
    pub system_files: bool,
    /// The date recorded for changes of volumes. `None`: that of the clock.
    pub now: Option<Timestamp>,
    /// Options for images that are not on this host.
    pub network: NetworkOptions<'a>,
    /// Opens volumes for changes even if the preceding quick check, the full check up to a bounded
    /// number of reads, finds them damaged.
    pub change_damaged: bool,
    /// The numbers with which a sparse bundle is read, if its own are in doubt: `size` and
    /// `band-size`. For changes, [`repair`](crate::ops::repair) has to make its lists agree first.
    pub assume: Option<&'a Assumptions>,
}

impl OpenOptions<'_> {
    /// Returns true if no option changes how an image is read: as a whole, in its last state.
    pub fn reads_whole_image(&self) -> bool {
        let are_sources_trusted = |assume: &Assumptions| *assume == Assumptions::default();
        self.image_format.is_none()
            && self.shadows.is_empty()
            && self.checkpoint.is_none()
            && self.section.is_none()
            && self.logical_volume.is_none()
            && self.physical_volumes.is_empty()
            && self.assume.is_none_or(are_sources_trusted)
    }
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self {
            access: Access::ReadOnly,
            image_format: None,
            keys: None,
            shadows: &[],
            checkpoint: None,
            section: None,
            logical_volume: None,
            physical_volumes: &[],
            cache: DEFAULT_CACHE,
            system_files: false,
            now: None,
            network: NetworkOptions::default(),
            change_damaged: false,
            assume: None,
        }
    }
}

impl OpenOptions<'_> {
    /// Returns the options for reading the same image.
    pub(crate) fn reading(&self) -> Self {
        Self {
            access: Access::ReadOnly,
            ..*self
        }
    }
}

/// Opens the image at `path`. Errors name the path.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Image> {
    let mut opening = Opening::new(path, options);
    let found = opening.open().map_err(|error| error.in_file(path))?;
    Ok(opening.into_image(found))
}

/// Opens the image in `device` for reading. `name` stands for it in errors.
///
/// The other parts of an image in several files are looked for beside `name`. Layers over the image
/// are not supported ([`Kind::Unsupported`]), and neither are changes ([`Kind::ReadOnly`]).
pub fn open_device(
    device: Arc<dyn BlockDevice>,
    name: &Path,
    options: &OpenOptions,
) -> Result<Image> {
    let mut opening = Opening::new(name, options);
    let found = opening
        .open_device(device)
        .map_err(|error| error.in_file(name))?;
    Ok(opening.into_image(found))
}

/// Returns the layers of the image at `path` from the bottom, as far as they can be determined, and
/// the error that stopped the opening. The image is opened read-only even if `options` say
/// otherwise.
pub fn trace(path: &Path, options: &OpenOptions) -> (Vec<Layer>, Option<Error>) {
    let mut opening = Opening::new(path, &options.reading());
    let stopped = opening.open().err();
    (opening.layers, stopped.map(|error| error.in_file(path)))
}

/// The stored bytes of an image, below encryption and container.
#[derive(Debug, Clone)]
pub(crate) enum StoredImage {
    /// The files of a sparse bundle.
    Folder(Arc<dyn Store>),
    /// A file.
    File(Arc<dyn BlockDevice>),
}

/// Opens the stored bytes of the image at `path`. A file is locked, a bundle is not.
pub(crate) fn stored(path: &Path, options: &OpenOptions<'_>) -> Result<StoredImage> {
    Ok(match remote::find(path, options)? {
        Some(RemoteTarget::Folder(store, _) | RemoteTarget::Snapshot(store)) => {
            StoredImage::Folder(store)
        }
        Some(RemoteTarget::File(file)) => StoredImage::File(file),
        None if look_at(path)?.is_dir() => StoredImage::Folder(Arc::new(Local::new(path))),
        None => StoredImage::File(container::lock_file(path, options.access)?),
    })
}

/// Opens the disk of an image with these stored bytes for reading. If layers are given, the bytes
/// are those of the topmost; the images below are opened by path.
pub(crate) fn disk_of(
    path: &Path,
    stored: StoredImage,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    let opened = Opening::new(path, &options.reading()).container(stored)?;
    Ok(opened.disk)
}

/// Opens the disk of an image in a staged view, like [`disk_of`], but with the access of `options`.
pub(crate) fn staged_disk(
    path: &Path,
    staged: &StagedImage,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    let opened = Opening::new(path, options).container(staged.bytes())?;
    Ok(opened.disk)
}

/// Returns the plain bytes: the stored bytes themselves, or their decrypted contents.
pub(crate) fn plain_of(
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    unlocked(file, options).map(|plain| plain.device)
}

/// The plain bytes of a file.
pub(crate) struct PlainFile {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The same, if the file is encrypted.
    pub(crate) decrypted: Option<Arc<crypt::Device>>,
}

/// Opens the plain bytes like [`plain_of`].
pub(crate) fn unlocked(file: Arc<dyn BlockDevice>, options: &OpenOptions<'_>) -> Result<PlainFile> {
    let mut opening = Opening::new(Path::new(""), options);
    Ok(PlainFile {
        device: opening.unlock(file)?,
        decrypted: opening.decrypted,
    })
}

/// Returns the damage of a local sparse bundle whose band size the contents contradict, so that it is
/// not opened for changes.
pub fn wrong_band_size(path: &Path, options: &OpenOptions<'_>) -> Result<Option<Error>> {
    if remote::url(path).is_some() || !look_at(path)?.is_dir() {
        return Ok(None);
    }
    let store: Arc<dyn Store> = Arc::new(Local::new(path));
    band_size::wrong_band_size(path, &store, options, geometry::Depth::Quick)
}

/// Returns the host's metadata of the file or folder at `path`.
pub(crate) fn look_at(path: &Path) -> Result<fs::Metadata> {
    // A URL would otherwise be reported as a missing file.
    remote::must_be_here(path)?;
    fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            let missing = Error::new(Kind::NotFound, LAYER, "does not exist");
            missing.because(Reason::NoSuchImage).in_file(path)
        }
        _ => Error::io(LAYER, "read metadata", source).in_file(path),
    })
}
