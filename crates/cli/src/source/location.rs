//! The arguments of verbs that name an image, or a volume or an object in it.

use std::ffi::OsStr;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::address::{Address, ImagePath};
use bandsaw::fs::{Attributes, FileSystem, FileSystemExt};
use bandsaw::open::Image;
use bandsaw::store::FileMode;

use super::OpenArgs;
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;

/// A volume of an opened image, and an object in it.
#[derive(Debug)]
pub(crate) struct ImageLocation {
    /// The volume.
    pub(crate) fs: Arc<dyn FileSystem>,
    /// Absolute in the volume, without a slash at the end; empty for the root.
    pub(crate) path: String,
    /// The attributes of the object.
    pub(crate) attributes: Attributes,
    /// The mode of a copy of it.
    pub(crate) mode: FileMode,
}

impl ImageLocation {
    /// Opens what an address names.
    pub(crate) fn open(address: &Address, opening: &OpenArgs, output: &Output) -> Outcome<Self> {
        let image = opening.read(&address.image, output)?;
        Self::of(&image, address, opening)
    }

    /// Opens what an address names in an open image.
    pub(crate) fn of(image: &Image, address: &Address, opening: &OpenArgs) -> Outcome<Self> {
        let fs = opening.volume(image, address)?;
        let path = normal(address.path.as_deref().unwrap_or_default());
        let found = fs
            .resolve(&path)
            .map_err(|error| error.in_file(&address.image));
        let attributes = found.advise(Kind::NotFound, || {
            format!(
                "run `bandsaw ls {}` to list the contents",
                Address {
                    path: None,
                    ..address.clone()
                }
            )
        })?;
        Ok(Self {
            fs,
            path,
            attributes,
            mode: image.mode_of_copy().mode(),
        })
    }

    /// The last part of the path; empty for the root.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The path as it is shown: `/` for the root.
    pub(crate) fn shown_path(&self) -> &str {
        if self.path.is_empty() {
            "/"
        } else {
            &self.path
        }
    }
}

/// Reads `IMAGE[:VOLUME][:/PATH]`.
pub(crate) fn address(text: &OsStr) -> Outcome<Address> {
    Ok(Address::parse_on_host(text)?)
}

/// Reads an address that names an image or a volume of it, as a whole.
pub(crate) fn image_or_volume(text: &OsStr) -> Outcome<Address> {
    let address = address(text)?;
    let part = match (&address.path, &address.snapshot) {
        (Some(_), _) => "in a volume",
        (None, Some(_)) => "a snapshot",
        (None, None) => return Ok(address),
    };
    Err(Failure::usage(
        "address",
        format!("{address} is {part}; expected a whole image or volume"),
    ))
}

/// Reads an address that must name an image as a whole.
pub(crate) fn image(text: &OsStr) -> Outcome<ImagePath> {
    let address = address(text)?;
    match address.is_bare() {
        true => Ok(address.image),
        false => Err(Failure::usage(
            "address",
            "expected a whole image, not a volume or path in it",
        )
        .hint(format!("run `bandsaw ls {address}` to list the contents"))),
    }
}

/// Returns true if an address names an image, or all of a volume of it.
pub(crate) fn is_whole(address: &Address) -> bool {
    normal(address.path.as_deref().unwrap_or_default()).is_empty()
}

/// Returns the path in normal form: `/a/b` for `//a/./b/`, as [`FileSystemExt::resolve`] reads it.
pub(crate) fn normal(path: &str) -> String {
    path.split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .fold(String::new(), |path, part| path + "/" + part)
}
