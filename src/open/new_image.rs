//! The place where a new image is created: beside its final path on this host, or in a bucket,
//! where it is hidden until it is finished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::{CreateOptions, make, make_folder, open_new, open_new_by};
use super::place::ImagePlace;
use super::{FoundDisk, Image, Layer, OpenOptions, opening::Opening, remote};
use crate::Result;
use crate::container::Format;
use crate::crypt::Secret;
use crate::progress::Progress;
use crate::store::{Remote, Status};

/// See the module. If dropped before the image is moved to its place, it is removed.
#[derive(Debug)]
pub(super) enum NewImage {
    Host(ImagePlace),
    Bucket { url: PathBuf, bundle: Arc<Remote> },
}

impl NewImage {
    /// Claims `target` for a new image.
    pub(super) fn claim(target: &Path, options: &CreateOptions) -> Result<Self> {
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
    pub(super) fn make(&self, options: &CreateOptions, progress: &dyn Progress) -> Result<Image> {
        match self {
            Self::Host(place) => make(place, options, progress),
            Self::Bucket { url, bundle } => {
                make_folder(bundle.clone(), url, options, options.protection()?)
            }
        }
    }

    /// Moves the finished image, which is closed, to its place and opens it there for writing.
    pub(super) fn take(
        &mut self,
        format: Format,
        passphrase: Option<&Secret>,
        warnings: Vec<String>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        match self {
            Self::Host(place) => {
                progress.check()?;
                place.take()?;
                open_new(place.target(), format, passphrase, warnings)
            }
            Self::Bucket { url, bundle } => {
                bundle.publish(&|| progress.check())?;
                open_new_by(format, passphrase, warnings, |options| {
                    open_in_bucket(url, bundle, options)
                })
            }
        }
    }
}

fn open_in_bucket(url: &Path, bundle: &Arc<Remote>, options: &OpenOptions<'_>) -> Result<Image> {
    // The writer is this process.
    let mut opening = Opening::new(url, options);
    opening.layers.push(Layer::Bucket(Status {
        holder: None,
        ..bundle.status()
    }));
    let found = FoundDisk::new_image(opening.bundle(bundle.clone(), None)?);
    opening.survey(&found)?;
    Ok(opening.into_image(found))
}
