//! The only file that knows all layers: probe, wrap, probe again.
//!
//! [`open`] lays the layers of an image over each other, [`create`] makes a blank one, and a
//! [`Draft`] is an image that gets its name only when it is finished.

mod alter;
mod apfs;
mod container;
mod create;
mod examine;
mod free;
mod image;
pub(crate) mod interrupted;
mod key_file;
mod new_image;
pub(crate) mod note;
mod old_numbering;
mod parts;
pub(crate) mod place;
mod quick;
mod recognise;
pub(crate) mod remote;
mod resumable;
mod section;
pub(crate) mod snapshot;
pub mod stack;
mod survey;
mod unlock;
mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::container::Format;
use crate::device::{Access, BlockDevice};
use crate::fs::hfsplus::DEFAULT_CACHE;
use crate::store::{Local, LocalFile, Store};
use crate::{Error, Kind, Result};

use self::remote::Elsewhere;

pub use apfs::VolumeQuery;
pub(crate) use container::lock_file;
pub(crate) use container::open_bundle;
pub(crate) use container::recognise;
pub(crate) use container::stands_alone;
pub use create::{CreateOptions, Draft, FileDraft, create};
pub(crate) use examine::examine_outside;
pub use examine::{Examination, Judged, Verdict, examine, examine_contents};
pub use image::{Image, Layer};
pub use key_file::KeyFile;
pub(crate) use old_numbering::refuse as refuse_old_numbering;
pub use place::NewMode;
pub use remote::{LocalCache, NetworkOptions};
pub use resumable::ResumableImage;
pub use section::Section;
pub(crate) use survey::is_blank;
use survey::survey_disk;
pub use unlock::{Keys, volume_key};
pub(crate) use volume::find as find_volumes;
pub use volume::{Volume, VolumeFormat};

const LAYER: &str = "image";

/// The message of the error about a file that could be anything. Whoever knows better says so in
/// [`OpenOptions`].
const UNKNOWN: &str = "is no image that is known: it has no container's magic, no partition map, no file system, and is not \
                           blank; taken for UDRW it opens as plain bytes";

/// How to open an image.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions<'a> {
    /// Whether it may be changed. Read-only opens change nothing, not even a lock file.
    pub access: Access,
    /// Take it for this format, whatever it looks like; where it is encrypted, what is inside.
    /// `None`: find out.
    pub image_format: Option<Format>,
    /// Whom to ask for a passphrase or private key if the image is encrypted, or a volume in it.
    /// `None`: it stays locked.
    pub keys: Option<&'a dyn Keys>,
    /// Layers, or shadow files, that lie over the image, from the bottom. The image itself is
    /// opened read-only then, whatever `access` says: what is written goes to the last of them,
    /// which is made if it is missing.
    pub shadows: &'a [PathBuf],
    /// Of an APFS container the transaction of an older checkpoint, which is then read. `None`: the
    /// newest that is whole.
    pub checkpoint: Option<u64>,
    /// Take these sectors of the disk for all of it.
    pub section: Option<Section>,
    /// Bytes of memory for nodes of the trees of each HFS+ volume that is opened, and as many again
    /// for changes that wait to be made.
    pub cache: usize,
    /// Lists the files in which the journal of an HFS+ volume lies, which macOS hides, and finds
    /// them by name.
    pub system_files: bool,
    /// How images are reached that are not on this host.
    pub network: NetworkOptions<'a>,
    /// Only what the image is, and what is in it, is to be told. Of a compressed image no more is
    /// decoded than that takes, so that what is told was not compared with the sums of its chunks;
    /// nothing that is read then is to be relied upon.
    pub glance: bool,
    /// Volumes are opened for changes although the quick check that comes first finds them damaged:
    /// the full check as far as it comes with a bounded number of reads.
    pub change_damaged: bool,
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
            cache: DEFAULT_CACHE,
            system_files: false,
            network: NetworkOptions::default(),
            glance: false,
            change_damaged: false,
        }
    }
}

/// Opens the image at `path`. Errors name it.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Image> {
    let mut layers = Vec::new();
    build(path, options, &mut layers)
        .map_err(|error| error.in_file(path))
        .map(|found| found.into_image(path, layers))
}

/// The layers of the image at `path` from the bottom, as far as they can be told, and what stopped
/// it from going on.
pub fn trace(path: &Path, options: &OpenOptions) -> (Vec<Layer>, Option<Error>) {
    let mut layers = Vec::new();
    let stopped = build(path, options, &mut layers)
        .err()
        .map(|error| error.in_file(path));
    (layers, stopped)
}

/// The stored bytes of an image, below encryption and container.
#[derive(Debug, Clone)]
pub(crate) enum StoredImage {
    /// The files of a sparse bundle.
    Folder(Arc<dyn Store>),
    /// A file.
    File(Arc<dyn BlockDevice>),
}

/// The stored bytes of the image at `path`. A file is locked, a bundle is not.
pub(crate) fn stored(path: &Path, options: &OpenOptions<'_>) -> Result<StoredImage> {
    Ok(match remote::find(path, options)? {
        Some(Elsewhere::Folder(store, _) | Elsewhere::Snapshot(store)) => {
            StoredImage::Folder(store)
        }
        Some(Elsewhere::File(file)) => StoredImage::File(file),
        None if look_at(path)?.is_dir() => StoredImage::Folder(Arc::new(Local::new(path))),
        None => StoredImage::File(container::lock_file(path, options.access)?),
    })
}

/// The disk of an image of these stored bytes. With layers over it they are those of the topmost;
/// what lies below is opened by its path.
pub(crate) fn disk_of(
    path: &Path,
    stored: StoredImage,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let found = match stored {
        StoredImage::File(file) if !options.shadows.is_empty() => {
            stack::open_with(path, file, options, layers)
        }
        StoredImage::Folder(store) => container::open_store(store, options, layers),
        StoredImage::File(file) => container::open_bytes(path, file, options, layers),
    };
    found.map(|found| found.disk)
}

/// The plain bytes of stored ones: themselves, or what their encryption hides.
pub(crate) fn plain_of(
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    unlock::unlock(file, options, &mut Vec::new())
}

/// The plain bytes of an open image file: its own, or what its encryption hides.
pub(crate) fn plain(file: Arc<LocalFile>, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    unlock::unlock(file, options, &mut Vec::new())
}

/// What is known of an image besides its layers.
pub(crate) struct Found {
    format: Format,
    pub(crate) disk: Arc<dyn BlockDevice>,
    warnings: Vec<String>,
}

impl Found {
    fn into_image(self, path: &Path, layers: Vec<Layer>) -> Image {
        Image {
            path: path.to_owned(),
            format: self.format,
            layers,
            disk: self.disk,
            warnings: self.warnings,
        }
    }
}

/// Opens layer after layer and keeps them in `layers`.
fn build(path: &Path, options: &OpenOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    let mut found = open_disk(path, options, layers)?;
    if let Some(section) = options.section {
        found.disk = section.of(found.disk)?;
    }
    survey_disk(&mut found, options, layers)?;
    Ok(found)
}

/// The disk of an image, whatever is on it, with the layers over it that `options` name.
pub(crate) fn open_disk(
    path: &Path,
    options: &OpenOptions,
    layers: &mut Vec<Layer>,
) -> Result<Found> {
    if !options.shadows.is_empty() {
        return stack::open(path, options, layers);
    }
    if let Some(format) = options.image_format.filter(|format| !format.can_read()) {
        return Err(Error::unsupported(
            LAYER,
            format!("{} ({format}) is not read yet", format.description()),
        ));
    }
    let mut found = match remote::find(path, options)? {
        Some(Elsewhere::Folder(store, status)) => {
            layers.push(Layer::Bucket(status));
            container::open_store(store, options, layers)?
        }
        Some(Elsewhere::Snapshot(store)) => container::open_store(store, options, layers)?,
        Some(Elsewhere::File(file)) => {
            layers.push(Layer::Remote(file.clone()));
            container::open_bytes(path, file, options, layers)?
        }
        None if look_at(path)?.is_dir() => container::open_folder(path, options, layers)?,
        None => container::open_file(path, options, layers)?,
    };
    found
        .warnings
        .extend(interrupted::check(path, options.access)?);
    if options.image_format.is_none() {
        found
            .warnings
            .extend(container::misnamed(path, found.format));
    }
    Ok(found)
}

/// What the host knows of the file or folder at `path`.
pub(crate) fn look_at(path: &Path) -> Result<fs::Metadata> {
    remote::must_be_here(path)?;
    fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, LAYER, "does not exist").in_file(path)
        }
        _ => Error::io(LAYER, "look at", source).in_file(path),
    })
}
