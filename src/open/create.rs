//! New images, which get their name when they are finished and not before.

use std::path::Path;
use std::sync::Arc;

use super::place::Place;
use super::{Found, Image, LAYER, Layer, OpenOptions, open};
use crate::container::Format;
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle};
use crate::device::{Access, BlockDevice};
use crate::store::{Local, LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

/// What a new image is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Its container.
    pub format: Format,
    /// Bytes of the disk: whole sectors of 512.
    pub len: u64,
    /// Bytes of a band, of formats that have bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Whether an image that exists is to be replaced.
    pub overwrite: bool,
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
        if !options.format.can_write() {
            let message = format!("{} ({}) is not written yet", options.format.description(), options.format);
            return Err(Error::unsupported(LAYER, message).in_file(path));
        }
        if options.band_size.is_some() && options.format != Format::Udsb {
            let message = format!("a {} has no bands", options.format.description());
            return Err(Error::new(Kind::Invalid, LAYER, message).in_file(path));
        }
        let place = Place::claim(path, options.overwrite).map_err(|error| error.in_file(path))?;
        let image = make(place.aside(), options).map_err(|error| error.in_file(path));
        let mut draft = Self { image: None, place };
        draft.image = Some(image?);
        Ok(draft)
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
        let mut image = open(&path, &OpenOptions { access: Access::ReadWrite, image_format: Some(format), keys: None })?;
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

/// Makes the container. What a failure leaves is for [`Place`] to remove.
fn make(aside: &Path, options: &CreateOptions) -> Result<Image> {
    let mut layers = Vec::new();
    let (disk, warnings): (Arc<dyn BlockDevice>, _) = match options.format {
        Format::Udsb => {
            let wanted = sparsebundle::CreateOptions { len: options.len, band_size: options.band_size };
            let bundle = Arc::new(Bundle::create(Arc::new(Local::new(aside)), &wanted)?);
            layers.push(Layer::Bundle(bundle.clone()));
            (bundle.clone(), bundle.warnings().to_vec())
        }
        _ => {
            let file = LocalFile::open(aside, Open::CreateNew)?.ok_or_else(|| Error::new(Kind::Conflict, LAYER, "is taken"))?;
            file.lock(Lock::Exclusive)?;
            let file = Arc::new(file);
            layers.push(Layer::File(file.clone()));
            let raw = Arc::new(Raw::blank(file, options.len)?);
            layers.push(Layer::Raw(raw.clone()));
            (raw, Vec::new())
        }
    };
    Ok(Found { format: options.format, disk, warnings }.into_image(aside, layers))
}
