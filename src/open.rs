//! The only file that knows all layers: probe, wrap, probe again.
//!
//! [`open`] lays the layers of an image over each other, [`create`] makes a blank one, and a [`Draft`] is an image that
//! gets its name only when it is finished.

mod alter;
mod apfs;
mod container;
mod create;
mod examine;
mod free;
mod kept;
mod key_file;
pub(crate) mod note;
mod parts;
pub(crate) mod place;
mod recognise;
pub(crate) mod remote;
mod site;
pub mod stack;
mod unlock;
mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address::VolumeSelector;
use crate::container::Format;
use crate::container::asif::Asif;
use crate::container::raw::Raw;
use crate::container::sparsebundle::Bundle;
use crate::container::sparseimage::SparseImage;
use crate::container::stack::Stack;
use crate::container::udif::Udif;
use crate::crypt;
use crate::device::{Access, BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use crate::error::Place;
use crate::fs::hfsplus::DEFAULT_CACHE;
use crate::fs::{FileSystem, FileSystemMut};
use crate::partition::{self, Map};
use crate::store::{LocalFile, Status};
use crate::{Error, Kind, Result};

use self::remote::Elsewhere;
use self::stack::LayerFile;

pub use apfs::Wanted;
pub(crate) use container::files;
pub(crate) use container::open_bundle;
pub(crate) use container::recognise;
pub(crate) use container::stands_alone;
pub use create::{CreateOptions, Draft, FileDraft, create};
pub use examine::{Examination, Judged, Verdict, examine, examine_contents};
pub use kept::KeptDraft;
pub use key_file::KeyFile;
pub use remote::{LocalCache, Reach};
pub use unlock::{Keys, PASSPHRASE_NEEDED, PRIVATE_KEY_NEEDED, VOLUME_LAYER, VOLUME_PASSPHRASE_NEEDED, volume_key};
pub(crate) use volume::find as find_volumes;
pub use volume::{Volume, VolumeFormat};

const LAYER: &str = "image";

/// The message of the error about a file that could be anything. Whoever knows better says so in [`OpenOptions`].
pub const UNKNOWN: &str = "is no image that is known: it has no container's magic, no partition map, no file system, and is not \
                           blank; taken for UDRW it opens as plain bytes";

/// How the message of the error begins about a disk whose partitions all lie past its end.
pub const CUT_SHORT: &str = "was cut short";

/// The message of the error about a header of encryption and nothing behind it.
const HEADER_ALONE: &str =
    "holds the keys of an encrypted image and no data: is it the token of a sparse bundle? Open the folder it is from";

/// Bytes looked at in one go when a file may be all zeros.
const PIECE: usize = 1 << 20;

/// How to open an image.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions<'a> {
    /// Whether it may be changed. Read-only opens change nothing, not even a lock file.
    pub access: Access,
    /// Take it for this format, whatever it looks like; where it is encrypted, what is inside. `None`: find out.
    pub image_format: Option<Format>,
    /// Whom to ask for a passphrase or private key if the image is encrypted, or a volume in it. `None`: it stays locked.
    pub keys: Option<&'a dyn Keys>,
    /// Layers, or shadow files, that lie over the image, from the bottom. The image itself is opened read-only then, whatever
    /// `access` says: what is written goes to the last of them, which is made if it is missing.
    pub shadows: &'a [PathBuf],
    /// Of an APFS container the transaction of an older checkpoint, which is then read. `None`: the newest that is whole.
    pub checkpoint: Option<u64>,
    /// Bytes of memory for nodes of the trees of each HFS+ volume that is opened, and as many again for changes that wait to be
    /// made.
    pub cache: usize,
    /// How images are reached that are not on this host.
    pub reach: Reach<'a>,
    /// Only what the image is, and what is in it, is to be told. Of a compressed image no more is decoded than that takes, so that
    /// what is told was not compared with the sums of its chunks; nothing that is read then is to be relied upon.
    pub glance: bool,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self {
            access: Access::ReadOnly,
            image_format: None,
            keys: None,
            shadows: &[],
            checkpoint: None,
            cache: DEFAULT_CACHE,
            reach: Reach::default(),
            glance: false,
        }
    }
}

/// One layer of an image.
#[derive(Debug)]
pub enum Layer {
    /// A file of the host.
    File(Arc<LocalFile>),
    /// A file behind a URL.
    Remote(Arc<dyn BlockDevice>),
    /// A folder in a bucket, and how the bundle in it stood when it was opened.
    Bucket(Status),
    /// Encryption of all that lies above. It is told of locked images too.
    Crypt(crypt::Description),
    /// A raw image: the file's bytes are the disk.
    Raw(Arc<Raw>),
    /// A sparse bundle: a folder that holds the disk.
    Bundle(Arc<Bundle>),
    /// A sparse image: the disk in bands of one file.
    SparseImage(Arc<SparseImage>),
    /// An Apple sparse image: the disk, or a layer of one, in chunks of one file.
    Asif(Arc<Asif>),
    /// A UDIF image: the disk in chunks, mostly compressed.
    Udif(Arc<Udif>),
    /// A layer over the disk below, in a file of its own.
    Overlay(LayerFile),
    /// The disk that an image and the layers over it make up.
    Stack(Arc<Stack>),
    /// The map of the disk.
    Partitions(Map),
    /// What is on the disk, or in its partitions.
    Volumes(Vec<Volume>),
}

impl Layer {
    /// The disk, if it is a container's.
    pub fn disk(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(match self {
            Self::Raw(raw) => raw.clone(),
            Self::Bundle(bundle) => bundle.clone(),
            Self::SparseImage(image) => image.clone(),
            Self::Asif(image) => image.clone(),
            Self::Udif(udif) => udif.clone(),
            Self::Stack(stack) => stack.clone(),
            // Alone a layer is none.
            Self::File(_)
            | Self::Remote(_)
            | Self::Bucket(_)
            | Self::Crypt(_)
            | Self::Overlay(_)
            | Self::Partitions(_)
            | Self::Volumes(_) => return None,
        })
    }
}

/// An open image: its layers, and the disk they make up.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    format: Format,
    layers: Vec<Layer>,
    disk: Arc<dyn BlockDevice>,
    warnings: Vec<String>,
}

/// Opens the image at `path`. Errors name it.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Image> {
    let mut layers = Vec::new();
    build(path, options, &mut layers).map_err(|error| error.in_file(path)).map(|found| found.into_image(path, layers))
}

/// The layers of the image at `path` from the bottom, as far as they can be told, and what stopped it from going on.
pub fn trace(path: &Path, options: &OpenOptions) -> (Vec<Layer>, Option<Error>) {
    let mut layers = Vec::new();
    let stopped = build(path, options, &mut layers).err().map(|error| error.in_file(path));
    (layers, stopped)
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
        Image { path: path.to_owned(), format: self.format, layers, disk: self.disk, warnings: self.warnings }
    }
}

/// Opens layer after layer and keeps them in `layers`.
fn build(path: &Path, options: &OpenOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    let mut found = open_disk(path, options, layers)?;
    survey_disk(&mut found, options, layers)?;
    Ok(found)
}

/// The disk of an image, whatever is on it, with the layers over it that `options` name.
pub(crate) fn open_disk(path: &Path, options: &OpenOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    if !options.shadows.is_empty() {
        return stack::open(path, options, layers);
    }
    if let Some(format) = options.image_format.filter(|format| !format.can_read()) {
        return Err(Error::unsupported(LAYER, format!("{} ({format}) is not read yet", format.description())));
    }
    let mut found = match remote::find(path, options)? {
        Some(Elsewhere::Folder(store, status)) => {
            layers.push(Layer::Bucket(status));
            container::open_store(store, options, layers)?
        }
        Some(Elsewhere::File(file)) => {
            layers.push(Layer::Remote(file.clone()));
            container::open_bytes(path, file, options, layers)?
        }
        None if look_at(path)?.is_dir() => container::open_folder(path, options, layers)?,
        None => container::open_file(path, options, layers)?,
    };
    if options.image_format.is_none() {
        found.warnings.extend(container::misnamed(path, found.format));
    }
    Ok(found)
}

/// What the host knows of the file or folder at `path`.
pub(crate) fn look_at(path: &Path) -> Result<fs::Metadata> {
    remote::must_be_here(path)?;
    fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::new(Kind::NotFound, LAYER, "does not exist").in_file(path),
        _ => Error::io(LAYER, "look at", source).in_file(path),
    })
}

/// The bytes of the container at `path`, which is a file: without encryption, whatever the container is.
pub(crate) fn open_plain(path: &Path, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    let file = container::lock_file(path, options.access)?;
    unlock::unlock(file, options, &mut Vec::new())
}

/// Finds partitions and volumes. A raw image must show some, or be blank: nothing else tells it from any other file.
fn survey_disk(found: &mut Found, options: &OpenOptions, layers: &mut Vec<Layer>) -> Result<()> {
    let as_told = options.image_format.is_some();
    let map = match partition::probe(&*found.disk) {
        Ok(map) => map,
        Err(error) if as_told => {
            found.warnings.push(error.to_string());
            None
        }
        Err(error) => return Err(error),
    };
    let mut volumes = volume::find(&found.disk, map.as_ref())?;
    for volume in &mut volumes {
        volume.checkpoint = options.checkpoint;
        volume.cache = options.cache;
    }
    // What is encrypted is an image, whatever is on it.
    let encrypted = layers.iter().any(|layer| matches!(layer, Layer::Crypt(_)));
    let needs_proof = matches!(found.format, Format::Udrw | Format::Udto) && !as_told && !encrypted;
    let proven = !volumes.is_empty() || map.is_some() || !needs_proof || (!has_odd_bytes(layers) && is_blank(&*found.disk)?);
    let cut_off = map.as_ref().filter(|_| volumes.is_empty() && !as_told).and_then(cut_off);
    found.warnings.extend(map.iter().flat_map(|map| &map.problems).map(Error::to_string));
    layers.extend(map.map(Layer::Partitions));
    layers.push(Layer::Volumes(volumes));
    match cut_off {
        Some(error) => Err(error),
        None if encrypted && !as_told && found.disk.info().len == 0 => Err(Error::new(Kind::Corrupt, LAYER, HEADER_ALONE)),
        None if proven => Ok(()),
        None => Err(Error::unsupported(LAYER, UNKNOWN)),
    }
}

/// The error of a map whose partitions all lie past the end of the disk: the image was cut short.
fn cut_off(map: &Map) -> Option<Error> {
    let problem = map.problems.iter().find(|problem| problem.kind() == Kind::OutOfRange)?;
    let error = Error::new(Kind::Corrupt, problem.layer(), format!("{CUT_SHORT}: {}", problem.message()));
    Some(match problem.place() {
        Place::Offset(offset) => error.at(*offset),
        Place::Name(_) | Place::None => error,
    })
}

/// Whether the file has bytes that make no whole sector, as a blank disk never has.
fn has_odd_bytes(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| matches!(layer, Layer::Raw(raw) if raw.trailing() > 0))
}

/// Whether a disk of at least a sector is all zeros. Holes are not read, and anything else ends it at once.
pub(crate) fn is_blank(disk: &dyn BlockDevice) -> Result<bool> {
    let len = disk.info().len;
    if len == 0 {
        return Ok(false);
    }
    // What is no zero is mostly found at the ends.
    let probe = len.min(4096) as usize;
    if !is_zero(&disk.read_vec(0, probe)?) || !is_zero(&disk.read_vec(len - probe as u64, probe)?) {
        return Ok(false);
    }
    let mut buf = Vec::new();
    for extent in disk.extents(0..len) {
        let (range, kind) = extent?;
        let mut at = range.start;
        if kind == ExtentKind::Data {
            buf.resize(PIECE.min(usize::try_from(len).unwrap_or(PIECE)), 0);
        }
        while kind == ExtentKind::Data && at < range.end {
            let piece = buf.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            disk.read_at(at, &mut buf[..piece])?;
            if !is_zero(&buf[..piece]) {
                return Ok(false);
            }
            at += piece as u64;
        }
    }
    Ok(true)
}

impl Image {
    /// Where it is on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format of its container.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its layers from the bottom.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What is odd about it without keeping it from working.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The disk in it.
    pub fn disk(&self) -> &Arc<dyn BlockDevice> {
        &self.disk
    }

    /// The sparse bundle it is, if it is one.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Bundle(bundle) => Some(&**bundle),
            _ => None,
        })
    }

    /// The sparse image it is, if it is one.
    pub fn sparse_image(&self) -> Option<&SparseImage> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::SparseImage(image) => Some(&**image),
            _ => None,
        })
    }

    /// The ASIF image it is, if it is one.
    pub fn asif(&self) -> Option<&Asif> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Asif(image) => Some(&**image),
            _ => None,
        })
    }

    /// The UDIF image it is, if it is one.
    pub fn udif(&self) -> Option<&Udif> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Udif(udif) => Some(&**udif),
            _ => None,
        })
    }

    /// The layers that lie over it, from the bottom.
    pub fn overlays(&self) -> impl Iterator<Item = &LayerFile> {
        self.layers.iter().filter_map(|layer| match layer {
            Layer::Overlay(file) => Some(file),
            _ => None,
        })
    }

    /// How it is encrypted, if it is.
    pub fn encryption(&self) -> Option<&crypt::Description> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Crypt(description) => Some(description),
            _ => None,
        })
    }

    /// The map of its disk, if that has one.
    pub fn partitions(&self) -> Option<&Map> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Partitions(map) => Some(map),
            _ => None,
        })
    }

    /// The volumes on it, also those that cannot be read.
    pub fn volumes(&self) -> &[Volume] {
        let volumes = self.layers.iter().find_map(|layer| match layer {
            Layer::Volumes(volumes) => Some(volumes.as_slice()),
            _ => None,
        });
        volumes.unwrap_or_default()
    }

    /// The selected volume; without a selector, the first of a format that is read.
    pub fn volume(&self, which: Option<&VolumeSelector>) -> Result<&Volume> {
        let found = match which {
            None => volume::first_known(self.volumes()),
            Some(selector) => volume::selected(self.volumes(), selector).map(|(volume, _)| volume),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the selected volume; without a selector, the first that can be read. An encrypted one stays locked, see
    /// [`file_system_as`](Self::file_system_as).
    pub fn file_system(&self, which: Option<&VolumeSelector>) -> Result<Arc<dyn FileSystem>> {
        self.file_system_as(which, Wanted::default())
    }

    /// The same of a certain state of the volume, with somebody to ask for its key.
    pub fn file_system_as(&self, which: Option<&VolumeSelector>, wanted: Wanted<'_>) -> Result<Arc<dyn FileSystem>> {
        let found = match which {
            None => volume::first_readable(self.volumes(), wanted),
            Some(selector) => volume::select(self.volumes(), selector, wanted),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the selected volume for changes; without a selector, the first that can be changed. The image must be open
    /// for changes too. The volume is left clean by [`FileSystemMut::unmount`], which is worth calling: only it tells of
    /// failures.
    pub fn file_system_mut(&self, which: Option<&VolumeSelector>) -> Result<Arc<dyn FileSystemMut>> {
        self.file_system_mut_as(which, None)
    }

    /// The same with somebody to ask for the key of an encrypted volume.
    pub fn file_system_mut_as(&self, which: Option<&VolumeSelector>, keys: Option<&dyn Keys>) -> Result<Arc<dyn FileSystemMut>> {
        let found = match which {
            None => volume::first_writable(self.volumes(), keys),
            Some(selector) => volume::select_mut(self.volumes(), selector, keys),
        };
        found.map_err(|error| error.in_file(&self.path))
    }
}
