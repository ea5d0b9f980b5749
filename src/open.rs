//! The only module that knows all layers: probe, wrap, probe again.
//!
//! [`open`] stacks the layers of an image, [`create`] creates a blank image, and a [`Draft`] is an
//! image that is moved to its final name only when it is finished.

mod apfs;
mod container;
mod contents;
mod create;
mod detect;
mod directories;
pub(crate) mod evidence;
mod examine;
mod free;
pub(crate) mod gate;
mod guarded;
mod image;
pub(crate) mod interrupted;
pub(crate) mod key_cache;
mod key_file;
pub(crate) mod layer_metadata;
pub(crate) mod lists;
mod new_image;
pub(crate) mod place;
mod quick_check;
pub(crate) mod remote;
mod resumable;
mod section;
pub(crate) mod snapshot;
mod split_files;
pub mod stack;
mod survey;
mod unlock;
pub(crate) mod unstored;
mod volume;
mod volume_admin;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::container::Format;
use crate::decision::Assumptions;
use crate::device::{Access, BlockDevice};
use crate::fs::hfsplus::DEFAULT_CACHE;
use crate::store::{Local, LocalFile, Store};
use crate::{Error, Kind, Result};

pub(crate) use self::gate::Found;
use self::gate::{Opened, StagedImage};
use self::remote::Elsewhere;

pub use apfs::VolumeQuery;
pub(crate) use container::detect_container;
pub(crate) use container::lock_file;
pub(crate) use container::open_bundle;
pub(crate) use container::stands_alone;
pub use contents::Contents;
pub(crate) use contents::{find as find_contents, find_with as find_contents_with};
pub use create::{CreateOptions, Draft, FileDraft, create};
pub use examine::{Conclusion, Examination, Judged, Verdict, examine, examine_contents};
pub(crate) use examine::{Scope, examine_stored};
pub use image::{Image, Layer};
pub use key_file::KeyFile;
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
    /// The source of passphrases and private keys for an encrypted image or volume. `None`: it
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
    /// Bytes of memory for cached B-tree nodes of each open HFS+ volume, and as many again for
    /// pending changes.
    pub cache: usize,
    /// Lists the files that hold the journal of an HFS+ volume, which macOS hides, and finds them
    /// by name.
    pub system_files: bool,
    /// Options for images that are not on this host.
    pub network: NetworkOptions<'a>,
    /// Opens volumes for changes even if the preceding quick check, the full check up to a bounded
    /// number of reads, finds them damaged.
    pub change_damaged: bool,
    /// The numbers with which a sparse bundle is read, if its own are in doubt: `size` and
    /// `band-size`. For changes, [`repair`](crate::ops::repair) has to make its lists agree first.
    pub assume: Option<&'a Assumptions>,
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
            change_damaged: false,
            assume: None,
        }
    }
}

/// Opens the image at `path`. Errors name the path.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Image> {
    let mut layers = Vec::new();
    build(path, options, &mut layers)
        .map_err(|error| error.in_file(path))
        .map(|found| found.into_image(path, layers))
}

/// Returns the layers of the image at `path` from the bottom, as far as they can be determined, and
/// the error that stopped the opening. The image is opened read-only even if `options` say
/// otherwise.
pub fn trace(path: &Path, options: &OpenOptions) -> (Vec<Layer>, Option<Error>) {
    let mut layers = Vec::new();
    let options = OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    let stopped = build(path, &options, &mut layers)
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

/// Opens the stored bytes of the image at `path`. A file is locked, a bundle is not.
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

/// Opens the disk of an image with these stored bytes for reading. If layers are given, the bytes
/// are those of the topmost; the images below are opened by path.
pub(crate) fn disk_of(
    path: &Path,
    stored: StoredImage,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    opened_in(path, stored, &options, layers).map(|opened| opened.disk)
}

/// Opens the disk of an image in a staged view, like [`disk_of`], but with the access of `options`.
pub(crate) fn staged_disk(
    path: &Path,
    staged: &StagedImage,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    opened_in(path, staged.bytes(), options, &mut Vec::new()).map(|opened| opened.disk)
}

fn opened_in(
    path: &Path,
    stored: StoredImage,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    match stored {
        StoredImage::File(file) if !options.shadows.is_empty() => {
            stack::open_with(path, file, options, layers)
        }
        StoredImage::Folder(store) => container::open_store(store, options, layers),
        StoredImage::File(file) => container::open_bytes(path, file, options, layers),
    }
}

/// Returns the plain bytes: the stored bytes themselves, or their decrypted contents.
pub(crate) fn plain_of(
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    unlock::unlock(file, options, &mut Vec::new())
}

/// Returns the plain bytes of an open image file: its own, or its decrypted contents.
pub(crate) fn plain(file: Arc<LocalFile>, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    unlock::unlock(file, options, &mut Vec::new())
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

/// Opens the layers one by one and appends them to `layers`.
fn build(path: &Path, options: &OpenOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    let mut found = open_disk(path, options, layers)?;
    if let Some(section) = options.section {
        found.disk = section.of(found.disk)?;
    }
    survey_disk(&mut found, options, layers)?;
    let is_empty = layers.iter().all(|layer| match layer {
        Layer::Partitions(_) => false,
        Layer::Volumes(volumes) => volumes.is_empty(),
        _ => true,
    });
    if is_empty && options.shadows.is_empty() && options.section.is_none() {
        use_other_directory(&mut found, options, layers)?;
    }
    Ok(found)
}

/// Reads an ASIF image with its other directory if nothing is found with the active one. Fails with
/// [`Kind::Undecided`] if it is to be written.
fn use_other_directory(
    found: &mut Found,
    options: &OpenOptions,
    layers: &mut Vec<Layer>,
) -> Result<()> {
    let Some(at) = layers
        .iter()
        .position(|layer| matches!(layer, Layer::Asif(_)))
    else {
        return Ok(());
    };
    let Layer::Asif(image) = &layers[at] else {
        return Ok(());
    };
    let Some((other, why)) = directories::that_opens(image)? else {
        return Ok(());
    };
    if options.access == Access::ReadWrite {
        return Err(directories::refusal(&other, why));
    }
    layers.truncate(at);
    layers.push(Layer::Asif(other.clone()));
    found.warnings.push(why);
    found.disk = other;
    survey_disk(found, options, layers)
}

/// Opens the disk of an image, with any contents, and the layers over it that `options` name.
pub(crate) fn open_disk(
    path: &Path,
    options: &OpenOptions,
    layers: &mut Vec<Layer>,
) -> Result<Found> {
    if !options.shadows.is_empty() {
        let opened = stack::open(path, options, layers)?;
        return gate::pass(path, opened, options, layers);
    }
    if let Some(format) = options.image_format.filter(|format| !format.can_read()) {
        return Err(Error::unsupported(
            LAYER,
            format!("unsupported: {} ({format})", format.description()),
        ));
    }
    let opened = match remote::find(path, options)? {
        Some(Elsewhere::Folder(store, status)) => {
            layers.push(Layer::Bucket(status));
            container::open_settled(path, store, options, layers)
        }
        Some(Elsewhere::Snapshot(store)) => container::open_settled(path, store, options, layers),
        Some(Elsewhere::File(file)) => {
            layers.push(Layer::Remote(file.clone()));
            container::open_bytes(path, file, options, layers)
        }
        None if look_at(path)?.is_dir() => container::open_folder(path, options, layers),
        None => container::open_file(path, options, layers),
    };
    // The undo data of an interrupted repair explains sources that disagree.
    let interrupted = match &opened {
        Err(error) if error.kind() != Kind::Undecided => None,
        _ => interrupted::check(path, options.access)?,
    };
    let mut opened = opened?;
    opened.warnings.extend(interrupted);
    if options.image_format.is_none() {
        opened
            .warnings
            .extend(container::misnamed(path, opened.format));
    }
    gate::pass(path, opened, options, layers)
}

/// Returns the host's metadata of the file or folder at `path`.
pub(crate) fn look_at(path: &Path) -> Result<fs::Metadata> {
    remote::must_be_here(path)?;
    fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, LAYER, "does not exist").in_file(path)
        }
        _ => Error::io(LAYER, "read metadata", source).in_file(path),
    })
}
