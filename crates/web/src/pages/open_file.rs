//! The fork of a file that a query names.

use std::sync::Arc;

use bandsaw::device::BlockDevice;
use bandsaw::fs::{Attributes, FileKind, FileSystemExt, Fork};
use bandsaw::{Error, Kind};

use super::{open_volume, refusal_in};
use crate::app::{App, Target};
use crate::open_images::OpenImage;
use crate::reply::Refusal;
use crate::request_checks::Visit;

/// Returns the fork that a query names.
pub(crate) fn fork(visit: &Visit) -> Fork {
    match visit.query.text("fork") {
        Some("resource") => Fork::Resource,
        _ => Fork::Data,
    }
}

/// A fork of a file, in an image that is kept open.
pub(crate) struct OpenFile {
    pub(crate) image: Arc<OpenImage>,
    pub(crate) attributes: Attributes,
    pub(crate) contents: Arc<dyn BlockDevice>,
}

/// Opens the fork of a file that a query names.
pub(crate) fn contents(app: &App, visit: &Visit, target: &Target) -> Result<OpenFile, Refusal> {
    let (image, fs) = open_volume(app, visit, target)?;
    let opened = fs.resolve(&target.path).and_then(|file| {
        if file.kind != FileKind::File {
            let error = Error::new(Kind::NotFound, "path", "not a file");
            return Err(error.named(&*target.path));
        }
        let contents = fs.open(file.id, fork(visit))?;
        Ok((file, contents))
    });
    match opened {
        Ok((attributes, contents)) => Ok(OpenFile {
            image,
            attributes,
            contents,
        }),
        Err(error) => Err(refusal_in(&image, &error)),
    }
}
