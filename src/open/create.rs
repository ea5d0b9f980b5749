//! New images, which are moved to their final name only when they are finished.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::gate::OpenedContainer;
use super::opening::Opening;
use super::place::{ImagePlace, NewMode};
use super::resumable::ResumeNote;
use super::{FoundDisk, Image, Keys, LAYER, Layer, NetworkOptions, OpenOptions, open, remote};
use crate::container::asif::{self, Asif};
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle};
use crate::container::sparseimage::{self, SparseImage};
use crate::container::{ContainerKind, Format, SECTOR};
use crate::crypt::{self, Description, Encryption, Protection};
use crate::device::{Access, AfterDiscard, BlockDevice};
use crate::progress::{Progress, Silent};
use crate::size::{narrow, to_usize};
use crate::store::{LocalFile, Remote, Status, Store};
use crate::{Error, Result};

/// Options of a new image. The default is a raw image without a length, which must be set.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// The container format.
    pub format: Format,
    /// Length of the disk in bytes: whole sectors.
    pub len: u64,
    /// Bytes of a band, for formats that have bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Bytes of a sector, for formats that support several sizes: 512 or 4096. `None`: 512.
    pub sector_size: Option<u32>,
    /// Replaces an existing image.
    pub overwrite: bool,
    /// Encryption of the image, if any.
    pub encryption: Option<Encryption>,
    /// Leaves holes for unwritten blocks of an encrypted raw image, which read as noise. Otherwise
    /// every block is written, zeros as cipher text.
    pub thin: bool,
    /// Options of the bucket, if the image is to be in one.
    pub network: NetworkOptions<'static>,
    /// The mode of the image. An encrypted image is readable only by its owner, unless the mode is
    /// exact.
    pub mode: NewMode,
    /// Rounds to the nearest band size that the format supports, instead of refusing others.
    pub round_band_size: bool,
    /// The UUID of an Apple sparse image. `None`: a random one.
    pub id: Option<Uuid>,
}

impl CreateOptions {
    /// Refuses options that the format does not support, independent of the length.
    pub(crate) fn check(&self) -> Result<()> {
        let format = self.format;
        if !format.can_create() {
            let message = format!(
                "cannot create a {} ({format}): the format is only read",
                format.description()
            );
            return Err(Error::invalid(LAYER, message));
        }
        if self.band_size.is_some() && !format.has_bands() {
            return Err(Error::invalid(
                LAYER,
                format!("{format} ({}) has no bands", format.description()),
            ));
        }
        self.check_encryption()?;
        let size = self.sector_size.unwrap_or(narrow(SECTOR));
        if format.sector_sizes().contains(&size) {
            return Ok(());
        }
        let sizes: Vec<_> = format.sector_sizes().iter().map(u32::to_string).collect();
        let message = format!(
            "invalid sector size {size}: {format} supports {}",
            sizes.join(" or ")
        );
        Err(Error::invalid(LAYER, message))
    }

    fn check_encryption(&self) -> Result<()> {
        if self.thin && (self.encryption.is_none() || !self.format.is_plain()) {
            return Err(Error::invalid(
                LAYER,
                "thin or full allocation applies to encrypted raw images only",
            ));
        }
        let Some(encryption) = &self.encryption else {
            return Ok(());
        };
        encryption.check()?;
        encryption.block_for(self.max_encrypted()).map(drop)
    }

    /// Returns the number of bytes under one run of block numbers once the disk is full: the disk
    /// and the container's metadata, or a band of a bundle.
    fn max_encrypted(&self) -> u64 {
        match self.format.container() {
            ContainerKind::Bundle => self.len.min(*sparsebundle::BAND_SIZES.end()),
            ContainerKind::SparseImage | ContainerKind::Asif => {
                self.len.saturating_add(self.len / 256 + (64 << 20))
            }
            ContainerKind::Raw | ContainerKind::Udif | ContainerKind::ReadOnly => self.len,
        }
    }

    pub(super) fn new_mode(&self) -> NewMode {
        self.mode.of_secret(self.encryption.is_some())
    }

    /// Returns the options with which the image is opened for writing again.
    pub(crate) fn reopened(&self) -> OpenOptions<'_> {
        let encryption = self.encryption.as_ref();
        OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(self.format),
            keys: encryption.map(|encryption| &encryption.passphrase as &dyn Keys),
            ..OpenOptions::default()
        }
    }

    /// Returns the band size, rounded if requested.
    fn band_size(&self) -> Result<Option<u64>> {
        let Some(size) = self.band_size.filter(|_| self.round_band_size) else {
            return Ok(self.band_size);
        };
        let unit = match &self.encryption {
            Some(encryption) => encryption.block_for(self.max_encrypted())?.into(),
            None => SECTOR,
        };
        Ok(Some(if self.format.is_folder() {
            sparsebundle::band_sizes(unit).nearest(size)
        } else {
            sparseimage::band_sizes().nearest(size)
        }))
    }

    pub(super) fn protection(&self) -> Result<Option<Protection>> {
        self.encryption
            .as_ref()
            .map(|encryption| encryption.protection(self.max_encrypted()))
            .transpose()
    }
}

impl CreateOptions {
    /// Refuses formats that cannot be written: the image would stay blank.
    pub(super) fn check_changeable(&self) -> Result<()> {
        if self.format.can_change() {
            return Ok(());
        }
        let message = format!(
            "cannot create an empty {} ({}): the format is read-only; create it from a source",
            self.format.description(),
            self.format
        );
        Err(Error::invalid(LAYER, message))
    }
}

/// Creates a blank image at `path`, durably, and opens it for writing.
pub fn create(path: &Path, options: &CreateOptions) -> Result<Image> {
    Draft::new(path, options)?.finish()
}

/// A new image under a temporary name beside its place, or hidden in its bucket.
/// [`finish`](Self::finish) moves it to its place; if dropped before, it is removed, or kept if it is
/// [resumable](Self::resumable), and an image that it was to replace is unchanged.
#[derive(Debug)]
pub struct Draft {
    // Closed before its files are removed.
    pub(super) image: Image,
    pub(super) place: NewImage,
    /// The note of a resumable image.
    pub(super) note: Option<ResumeNote>,
    /// The options with which it was created.
    pub(super) options: CreateOptions,
}

impl Draft {
    /// Creates a blank image that is to be at `path`.
    ///
    /// [`Kind::Conflict`](crate::Kind) if `path` exists, unless it is an image that is not in use and
    /// `overwrite` is set. Only files and sparse bundles are ever replaced, no other folders and no
    /// symbolic links.
    pub fn new(path: &Path, options: &CreateOptions) -> Result<Self> {
        Self::watched(path, options, &Silent)
    }

    /// Like [`new`](Self::new), but reports to and polls `progress` while an encrypted raw image is
    /// filled with encrypted zeros.
    pub fn watched(path: &Path, options: &CreateOptions, progress: &dyn Progress) -> Result<Self> {
        let made = || {
            options.check()?;
            options.check_changeable()?;
            let place = NewImage::claim(path, options)?;
            Ok(Self {
                image: place.make(options, progress)?,
                place,
                note: None,
                options: options.clone(),
            })
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// Returns the image, open for writing.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Makes everything written durable, moves the image to its place, and returns it, open for
    /// writing.
    pub fn finish(self) -> Result<Image> {
        self.finish_watched(&Silent)
    }

    /// Like [`finish`](Self::finish), but polls `progress` a last time for cancellation.
    pub(crate) fn finish_watched(self, progress: &dyn Progress) -> Result<Image> {
        let Self {
            image,
            mut place,
            note,
            options,
        } = self;
        let path = place.target().to_owned();
        let moved = image.disk.flush().and_then(|()| {
            // First: after the rename, the old image may be under the name that the note describes.
            note.iter().try_for_each(ResumeNote::remove)?;
            let moved = match place.take(progress) {
                Ok(()) => image.moved(&place),
                Err(error) if place.may_be_open(&error) => {
                    image.moved_closed(&mut place, &options, progress)
                }
                Err(error) => Err(error),
            };
            moved.inspect_err(|_| {
                if !place.is_taken() {
                    let _ = note.iter().try_for_each(ResumeNote::write); // the first error counts
                }
            })
        });
        moved.map_err(|error| error.in_file(&path))
    }
}

impl Image {
    /// Returns a new image that was moved to its place, with what its disk holds, and with warnings
    /// that later opens do not repeat: about a format not confirmed by a Mac.
    fn moved(self, place: &NewImage) -> Result<Self> {
        let options = OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(self.format),
            ..OpenOptions::default()
        };
        let mut opening = Opening::new(place.target(), &options);
        opening.layers.extend(place.bucket());
        opening.layers.extend(self.layers);
        opening.warnings = self.warnings;
        let found = FoundDisk::new_image(OpenedContainer {
            format: self.format,
            disk: self.disk,
            store: None,
        });
        opening.survey(&found)?;
        let mut image = opening.into_image(found);
        let unconfirmed = unconfirmed(&image);
        image.warnings.extend(unconfirmed);
        Ok(image)
    }
}

impl Image {
    /// Closes a new image, moves it to its place and opens it there: SMB servers rename no folder
    /// with open files.
    fn moved_closed(
        self,
        place: &mut NewImage,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let warnings = self.warnings.clone();
        drop(self);
        place.close();
        place.take(progress)?;
        let mut image = open(place.target(), &options.reopened())?;
        let unconfirmed = unconfirmed(&image);
        for warning in warnings.into_iter().chain(unconfirmed) {
            if !image.warnings.contains(&warning) {
                image.warnings.push(warning);
            }
        }
        Ok(image)
    }
}

/// A new file under a temporary name beside its place, for formats that are written sequentially
/// rather than changed in place. [`finish`](Self::finish) moves it to its place; if dropped before,
/// it is removed, and an image that it was to replace is unchanged.
#[derive(Debug)]
pub struct FileDraft {
    // Closed before it is removed.
    file: Arc<LocalFile>,
    place: ImagePlace,
}

impl FileDraft {
    /// Creates an empty file that is to be at `path`. Refuses what [`Draft::new`] refuses.
    pub fn new(path: &Path, overwrite: bool, mode: NewMode) -> Result<Self> {
        let made = || {
            let place = ImagePlace::claim(path, overwrite, mode)?;
            Ok(Self {
                file: place.create_file()?,
                place,
            })
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// Returns the file, to be filled.
    pub fn file(&self) -> &Arc<LocalFile> {
        &self.file
    }

    /// Makes the file durable, moves it to its place, and opens it there.
    pub fn finish(self, options: &OpenOptions<'_>) -> Result<Image> {
        open(&self.persist()?, options)
    }

    /// Makes the file durable, moves it to its place, and returns that path: for a file that is no
    /// image by itself.
    pub fn persist(self) -> Result<PathBuf> {
        let path = self.place.target().to_owned();
        self.close().map_err(|error| error.in_file(&path))?;
        Ok(path)
    }

    /// Makes the file readable and writable by the same users as the one that it replaces.
    pub(super) fn keep_mode(&self) -> Result<()> {
        let failed = |source| Error::io(LAYER, "copy the permissions", source);
        let mode = fs::metadata(self.place.target())
            .map_err(failed)?
            .permissions();
        fs::set_permissions(self.place.aside(), mode).map_err(failed)
    }

    /// Makes the file durable and moves it to its place.
    pub(super) fn close(mut self) -> Result<()> {
        self.file.flush()?;
        self.place.take()
    }
}

/// Creates the container. [`ImagePlace`] removes the remains of a failure.
pub(super) fn make(
    place: &ImagePlace,
    options: &CreateOptions,
    progress: &dyn Progress,
) -> Result<Image> {
    let mut layers = Vec::new();
    let protection = options.protection()?;
    if options.format.is_folder() {
        return make_folder(place.folder(), place.aside(), options, protection);
    }
    let file = place.create_file()?;
    layers.push(Layer::File(file.clone()));
    let plain: Arc<dyn BlockDevice> = match protection {
        None => file,
        Some(protection) => {
            let device = crypt::Device::create(file, &protection)?;
            layers.push(Layer::Crypt(device.description()));
            Arc::new(device)
        }
    };
    let made = make_in(plain, options, &mut layers, progress)?;
    Ok(new_image(made, place.aside(), layers, Vec::new()))
}

fn new_image(
    made: OpenedContainer,
    path: &Path,
    layers: Vec<Layer>,
    warnings: Vec<String>,
) -> Image {
    let mut opening = Opening::new(path, &OpenOptions::default());
    (opening.layers, opening.warnings) = (layers, warnings);
    opening.into_image(FoundDisk::new_image(made))
}

/// Creates a bundle in `store`, which is local at `path` or remote.
pub(super) fn make_folder(
    store: Arc<dyn Store>,
    path: &Path,
    options: &CreateOptions,
    protection: Option<Protection>,
) -> Result<Image> {
    let mut layers = Vec::new();
    let wanted = sparsebundle::BundleOptions {
        len: options.len,
        band_size: options.band_size()?,
    };
    let bundle = Arc::new(match &protection {
        None => Bundle::create(store.clone(), &wanted)?,
        Some(protection) => Bundle::create_encrypted(store.clone(), &wanted, protection)?,
    });
    let header = sparsebundle::encryption(&*store)?;
    layers.extend(header.map(|header| {
        Layer::Crypt(Description {
            data_size: options.len,
            ..header.describe()
        })
    }));
    layers.push(Layer::Bundle(bundle.clone()));
    let warnings = bundle.warnings().to_vec();
    let made = OpenedContainer {
        format: options.format,
        disk: bundle,
        store: Some(store),
    };
    Ok(new_image(made, path, layers, warnings))
}

/// Formats `file`, new and empty, as the requested container.
fn make_in(
    file: Arc<dyn BlockDevice>,
    options: &CreateOptions,
    layers: &mut Vec<Layer>,
    progress: &dyn Progress,
) -> Result<OpenedContainer> {
    let CreateOptions {
        format,
        len,
        sector_size,
        id,
        ..
    } = *options;
    let disk: Arc<dyn BlockDevice> = match format.container() {
        ContainerKind::SparseImage => {
            let image = Arc::new(SparseImage::create(
                file,
                &sparseimage::SparseImageOptions {
                    len,
                    band_size: options.band_size()?,
                },
            )?);
            layers.push(Layer::SparseImage(image.clone()));
            image
        }
        ContainerKind::Asif => {
            let block = sector_size.unwrap_or(narrow(SECTOR));
            let kind = asif::LayerKind::Disk;
            let mut image = Asif::create_as(file, &asif::AsifOptions { len, block, kind }, id)?;
            if options.encryption.is_some() {
                image = image.encrypted();
            }
            let image = Arc::new(image);
            layers.push(Layer::Asif(image.clone()));
            image
        }
        _ => {
            let raw = Arc::new(if options.encryption.is_some() {
                encrypted_raw(file, options, progress)?
            } else {
                Raw::blank(file, len)?
            });
            layers.push(Layer::Raw(raw.clone()));
            raw
        }
    };
    Ok(OpenedContainer {
        format,
        disk,
        store: None,
    })
}

/// Creates a raw disk of cipher text. Holes would read as noise, so every block is written, unless
/// holes are requested.
fn encrypted_raw(
    file: Arc<dyn BlockDevice>,
    options: &CreateOptions,
    progress: &dyn Progress,
) -> Result<Raw> {
    /// Bytes between two checks for cancellation.
    const PIECE: u64 = 16 << 20;
    crate::container::check_len("raw image", options.len)?;
    file.set_len(options.len, AfterDiscard::Any)?;
    if !options.thin {
        progress.stage("encrypt", options.len);
        for start in (0..options.len).step_by(to_usize(PIECE)) {
            progress.check()?;
            let end = start.saturating_add(PIECE).min(options.len);
            file.discard(start..end, AfterDiscard::Zeros)?;
            progress.advance(end - start);
        }
    }
    Ok(Raw::new(file))
}

/// Returns a warning about a new image in a form for which no image made by macOS exists as a
/// reference.
fn unconfirmed(image: &Image) -> Option<String> {
    let what = match image.encryption()? {
        _ if image.asif().is_some() => "encrypted ASIF",
        _ => return None,
    };
    Some(format!(
        "{what} is not confirmed by any image from macOS: test that a Mac reads this image before \
         you depend on it"
    ))
}

/// The place where a new image is created: beside its final path on this host, or in a bucket, where
/// it is hidden until it is finished. If dropped before the image is moved to its place, it is removed.
#[derive(Debug)]
pub(super) enum NewImage {
    Host(ImagePlace),
    Bucket { url: PathBuf, bundle: Arc<Remote> },
}

impl NewImage {
    /// Claims `target` for a new image.
    fn claim(target: &Path, options: &CreateOptions) -> Result<Self> {
        remote::check_holds(target, options.format)?;
        match remote::draft(target, options.overwrite, options.network)? {
            Some(bundle) => Ok(Self::Bucket {
                url: target.to_owned(),
                bundle,
            }),
            None => {
                ImagePlace::claim(target, options.overwrite, options.new_mode()).map(Self::Host)
            }
        }
    }

    pub(super) fn target(&self) -> &Path {
        match self {
            Self::Host(place) => place.target(),
            Self::Bucket { url, .. } => url,
        }
    }

    /// Creates the container.
    fn make(&self, options: &CreateOptions, progress: &dyn Progress) -> Result<Image> {
        match self {
            Self::Host(place) => make(place, options, progress),
            Self::Bucket { url, bundle } => {
                make_folder(bundle.clone(), url, options, options.protection()?)
            }
        }
    }

    /// Moves the finished image, which may be open, to its place.
    fn take(&mut self, progress: &dyn Progress) -> Result<()> {
        match self {
            Self::Host(place) => {
                progress.check()?;
                place.take()
            }
            Self::Bucket { bundle, .. } => bundle.publish(&|| progress.check()),
        }
    }

    /// Returns true if a server may have refused to move the image because its files are open.
    fn may_be_open(&self, error: &Error) -> bool {
        let is_refused = matches!(
            error.io_kind(),
            Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy)
        );
        matches!(self, Self::Host(place) if is_refused && !place.is_taken())
    }

    /// Closes the files of an image on this host, which nothing else has open.
    fn close(&mut self) {
        if let Self::Host(place) = self {
            place.close();
        }
    }

    /// Returns true once the image was moved to its place.
    fn is_taken(&self) -> bool {
        match self {
            Self::Host(place) => place.is_taken(),
            Self::Bucket { .. } => false,
        }
    }

    /// Returns the layer of the bucket that holds the image, if it is in one.
    fn bucket(&self) -> Option<Layer> {
        let Self::Bucket { bundle, .. } = self else {
            return None;
        };
        // The writer is this process.
        Some(Layer::Bucket(Status {
            holder: None,
            ..bundle.status()
        }))
    }
}
