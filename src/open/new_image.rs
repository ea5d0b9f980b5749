//! Where a new image is made: beside its place on this host, or in a bucket, where nobody sees it
//! until it is finished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::{CreateOptions, make, make_folder, open_new, open_new_by};
use super::place::ImagePlace;
use super::{Image, Layer, OpenOptions, container, remote, survey_disk};
use crate::Result;
use crate::container::Format;
use crate::crypt::Secret;
use crate::progress::Progress;
use crate::store::{Remote, Status};

/// See the module. Dropped before the image has its place, what there is of it goes.
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

    /// Makes the container.
    pub(super) fn make(&self, options: &CreateOptions, progress: &dyn Progress) -> Result<Image> {
        match self {
            Self::Host(place) => make(place, options, progress),
            Self::Bucket { url, bundle } => {
                let mut layers = Vec::new();
                let made =
                    make_folder(bundle.clone(), options, options.protection()?, &mut layers)?;
                Ok(made.into_image(url, layers))
            }
        }
    }

    /// Puts the finished image, which is closed, in its place and opens it there for writing.
    pub(super) fn take(
        &mut self,
        format: Format,
        passphrase: Option<&Secret>,
        told: Vec<String>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        match self {
            Self::Host(place) => {
                progress.check()?;
                place.take()?;
                open_new(place.target(), format, passphrase, told)
            }
            Self::Bucket { url, bundle } => {
                bundle.publish(&|| progress.check())?;
                open_new_by(format, passphrase, told, |options| {
                    open_in_bucket(url, bundle, options)
                })
            }
        }
    }
}

fn open_in_bucket(url: &Path, bundle: &Arc<Remote>, options: &OpenOptions<'_>) -> Result<Image> {
    // Its writer is who asks.
    let mut layers = vec![Layer::Bucket(Status {
        holder: None,
        ..bundle.status()
    })];
    let mut found = container::open_store(bundle.clone(), options, &mut layers)?;
    survey_disk(&mut found, options, &mut layers)?;
    Ok(found.into_image(url, layers))
}
