//! New images, which get their name when they are finished and not before.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::place::Place;
use super::{Found, Image, LAYER, Layer, OpenOptions, open};
use crate::container::asif::{self, Asif};
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle};
use crate::container::sparseimage::{self, SparseImage};
use crate::container::{Format, SECTOR};
use crate::device::{Access, BlockDevice};
use crate::store::{Local, LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

/// What a new image is to be. The default is a raw image without a length, which has to be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Its container.
    pub format: Format,
    /// Bytes of the disk: whole sectors.
    pub len: u64,
    /// Bytes of a band, of formats that have bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Bytes of a sector, of formats that have a choice: 512 or 4096. `None`: 512.
    pub sector_size: Option<u32>,
    /// Whether an image that exists is to be replaced.
    pub overwrite: bool,
}

impl CreateOptions {
    /// Refuses what the format does not have, whatever the length.
    pub(crate) fn check(&self) -> Result<()> {
        let format = self.format;
        if !format.can_write() {
            return Err(Error::unsupported(LAYER, format!("{} ({format}) is not written yet", format.description())));
        }
        if self.band_size.is_some() && !format.has_bands() {
            return Err(Error::new(Kind::Invalid, LAYER, format!("{format} ({}) has no bands", format.description())));
        }
        match (self.sector_size.unwrap_or(SECTOR as u32), format) {
            (512, _) | (4096, Format::Asif) => Ok(()),
            (size, Format::Asif) => {
                Err(Error::new(Kind::Invalid, LAYER, format!("sectors of {size} bytes, but {format} has 512 or 4096")))
            }
            (size, _) => Err(Error::new(Kind::Invalid, LAYER, format!("sectors of {size} bytes, but {format} has {SECTOR}"))),
        }
    }
}

/// Makes a blank image at `path`, durably, and opens it for writing.
pub fn create(path: &Path, options: &CreateOptions) -> Result<Image> {
    Draft::new(path, options)?.finish()
}

/// A new image under a name of its own beside its place. [`finish`](Self::finish) puts it there; dropped before that it
/// is removed, and what it was to replace is as it was.
#[derive(Debug)]
pub struct Draft {
    /// `None` once it is closed.
    image: Option<Image>,
    place: Place,
}

impl Draft {
    /// A blank image that is to be at `path`.
    ///
    /// [`Kind::Conflict`] if something is there, unless it is an image that nobody uses and `overwrite` is set. Only
    /// files and sparse bundles are ever replaced, no other folders and no symbolic links.
    pub fn new(path: &Path, options: &CreateOptions) -> Result<Self> {
        let made = || {
            options.check()?;
            let place = Place::claim(path, options.overwrite)?;
            let mut draft = Self { image: None, place };
            draft.image = Some(make(draft.place.aside(), options)?);
            Ok(draft)
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// The image, open for writing.
    pub fn image(&self) -> &Image {
        match &self.image {
            Some(image) => image,
            None => unreachable!("only `finish` closes the image, and takes the draft with it"),
        }
    }

    /// Makes everything written durable, puts the image in its place, and opens it there for writing. Whoever still
    /// holds its disk keeps it locked, which the opening then finds in use.
    pub fn finish(mut self) -> Result<Image> {
        let path = self.place.target().to_owned();
        let (format, mut warnings) = (self.image().format(), self.image().warnings().to_vec());
        self.image().disk().flush().map_err(|error| error.in_file(&path))?;
        self.image = None;
        self.place.take().map_err(|error| error.in_file(&path))?;
        let mut image =
            open(&path, &OpenOptions { access: Access::ReadWrite, image_format: Some(format), ..OpenOptions::default() })?;
        // What was said of the choices made here is not said again when the image is opened later.
        warnings.append(&mut image.warnings);
        image.warnings = warnings;
        Ok(image)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Closed before its files go.
        self.image = None;
    }
}

/// A new file under a name of its own beside its place, for formats that are written from front to back rather than
/// changed in place. [`finish`](Self::finish) puts it there; dropped before that it is removed, and what it was to
/// replace is as it was.
#[derive(Debug)]
pub struct FileDraft {
    /// `None` once it is closed.
    file: Option<Arc<LocalFile>>,
    place: Place,
}

impl FileDraft {
    /// An empty file that is to be at `path`. Refuses what [`Draft::new`] refuses.
    pub fn new(path: &Path, overwrite: bool) -> Result<Self> {
        let made = || {
            let place = Place::claim(path, overwrite)?;
            let mut draft = Self { file: None, place };
            draft.file = Some(new_file(draft.place.aside())?);
            Ok(draft)
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// The file, to be filled.
    pub fn file(&self) -> &Arc<LocalFile> {
        match &self.file {
            Some(file) => file,
            None => unreachable!("only `finish` closes the file, and takes the draft with it"),
        }
    }

    /// Makes the file durable, puts it in its place, and opens it there.
    pub fn finish(self, options: &OpenOptions<'_>) -> Result<Image> {
        open(&self.settle()?, options)
    }

    /// Makes the file durable and puts it in its place, which is returned: for a file that is no image by itself.
    pub fn settle(mut self) -> Result<PathBuf> {
        let path = self.place.target().to_owned();
        self.file().flush().map_err(|error| error.in_file(&path))?;
        self.file = None;
        self.place.take().map_err(|error| error.in_file(&path))?;
        Ok(path)
    }

    /// Lets the file be read and written by the same users as the one that it replaces.
    pub(super) fn keep_mode(&self) -> Result<()> {
        let failed = |source| Error::io(LAYER, "take over who may read it", source);
        let mode = fs::metadata(self.place.target()).map_err(failed)?.permissions();
        fs::set_permissions(self.place.aside(), mode).map_err(failed)
    }

    /// Makes the file durable and puts it in its place.
    pub(super) fn close(mut self) -> Result<()> {
        self.file().flush()?;
        self.file = None;
        self.place.take()
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        // Closed before it goes.
        self.file = None;
    }
}

fn new_file(aside: &Path) -> Result<Arc<LocalFile>> {
    let file = LocalFile::open(aside, Open::CreateNew)?.ok_or_else(|| Error::new(Kind::Conflict, LAYER, "is taken"))?;
    file.lock(Lock::Exclusive)?;
    Ok(Arc::new(file))
}

/// Makes the container. What a failure leaves is for [`Place`] to remove.
pub(super) fn make(aside: &Path, options: &CreateOptions) -> Result<Image> {
    let mut layers = Vec::new();
    let made = match options.format {
        Format::Udsb => make_folder(aside, options, &mut layers)?,
        _ => {
            let file = new_file(aside)?;
            layers.push(Layer::File(file.clone()));
            make_in(file, options, &mut layers)?
        }
    };
    Ok(made.into_image(aside, layers))
}

fn make_folder(aside: &Path, options: &CreateOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    let wanted = sparsebundle::CreateOptions { len: options.len, band_size: options.band_size };
    let bundle = Arc::new(Bundle::create(Arc::new(Local::new(aside)), &wanted)?);
    layers.push(Layer::Bundle(bundle.clone()));
    Ok(Found { format: options.format, warnings: bundle.warnings().to_vec(), disk: bundle })
}

/// Makes `file`, new and empty, the container asked for.
fn make_in(file: Arc<dyn BlockDevice>, options: &CreateOptions, layers: &mut Vec<Layer>) -> Result<Found> {
    let CreateOptions { format, len, band_size, sector_size, .. } = *options;
    let disk: Arc<dyn BlockDevice> = match format {
        Format::Udsp => {
            let image = Arc::new(SparseImage::create(file, &sparseimage::CreateOptions { len, band_size })?);
            layers.push(Layer::SparseImage(image.clone()));
            image
        }
        Format::Asif => {
            let block = sector_size.unwrap_or(SECTOR as u32);
            let kind = asif::LayerKind::Disk;
            let image = Arc::new(Asif::create(file, &asif::CreateOptions { len, block, kind })?);
            layers.push(Layer::Asif(image.clone()));
            image
        }
        _ => {
            let raw = Arc::new(Raw::blank(file, len)?);
            layers.push(Layer::Raw(raw.clone()));
            raw
        }
    };
    Ok(Found { format, disk, warnings: Vec::new() })
}
