//! New images, which are moved to their final name only when they are finished.

use std::path::Path;
use std::sync::Arc;

use super::create_options::CreateOptions;
use super::gate::OpenedContainer;
use super::new_image::NewImage;
use super::opening::Opening;
use super::place::ImagePlace;
use super::resume_note::ResumeNote;
use super::{FoundDisk, Image, Layer, OpenOptions, open};
use crate::container::asif::{self, Asif};
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle};
use crate::container::sparseimage::{self, SparseImage};
use crate::container::{ContainerKind, SECTOR};
use crate::crypt::{self, Description, Protection};
use crate::device::{Access, AfterDiscard, BlockDevice};
use crate::progress::{Progress, Silent};
use crate::size::{narrow, to_usize};
use crate::store::Store;
use crate::{Error, Result};

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
            let moved = match place.publish(progress) {
                Ok(()) => image.moved(&place),
                Err(error) if place.may_be_open(&error) => {
                    image.moved_closed(&mut place, &options, progress)
                }
                Err(error) => Err(error),
            };
            moved.inspect_err(|_| {
                if !place.is_published() {
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
        place.publish(progress)?;
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

impl NewImage {
    /// Creates the container.
    fn make(&self, options: &CreateOptions, progress: &dyn Progress) -> Result<Image> {
        match self {
            Self::Host(place) => make(place, options, progress),
            Self::Bucket { url, bundle } => {
                make_folder(bundle.clone(), url, options, options.protection()?)
            }
        }
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
