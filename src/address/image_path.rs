//! The name of an image: a host path, which is bytes on Unix, or a URL, which is text.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::shown;

/// A host path, or a URL with a scheme other than `file://`.
///
/// `Display` writes it for people: bytes that are not UTF-8 appear as `\xFF`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImagePath(OsString);

impl ImagePath {
    /// Returns the path; a URL is a path too for [`crate::open::open`].
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Returns the name as text; `None` for a host path that is not UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        self.0.to_str()
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl AsRef<OsStr> for ImagePath {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl AsRef<Path> for ImagePath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

impl<T: Into<OsString>> From<T> for ImagePath {
    fn from(name: T) -> Self {
        Self(name.into())
    }
}

impl From<ImagePath> for PathBuf {
    fn from(path: ImagePath) -> Self {
        path.0.into()
    }
}
