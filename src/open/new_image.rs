//! The place of an image that is being created, on this host or in a bucket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create_options::CreateOptions;
use super::place::ImagePlace;
use super::{Layer, remote};
use crate::progress::Progress;
use crate::store::{Remote, Status};
use crate::{Error, Result};

/// The place where a new image is created: beside its final path on this host, or in a bucket, where
/// it is hidden until it is finished. If dropped before the image is moved to its place, it is removed.
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

    /// Moves the finished image, which may be open, to its place.
    pub(super) fn publish(&mut self, progress: &dyn Progress) -> Result<()> {
        match self {
            Self::Host(place) => {
                progress.check()?;
                place.publish()
            }
            Self::Bucket { bundle, .. } => bundle.publish(&|| progress.check()),
        }
    }

    /// Returns true if a server may have refused to move the image because its files are open.
    pub(super) fn may_be_open(&self, error: &Error) -> bool {
        let is_refused = matches!(
            error.io_kind(),
            Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy)
        );
        matches!(self, Self::Host(place) if is_refused && !place.is_published())
    }

    /// Closes the files of an image on this host, which nothing else has open.
    pub(super) fn close(&mut self) {
        if let Self::Host(place) = self {
            place.close();
        }
    }

    /// Returns true once the image was moved to its place.
    pub(super) fn is_published(&self) -> bool {
        match self {
            Self::Host(place) => place.is_published(),
            Self::Bucket { .. } => false,
        }
    }

    /// Returns the layer of the bucket that holds the image, if it is in one.
    pub(super) fn bucket(&self) -> Option<Layer> {
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
