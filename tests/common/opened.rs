//! Images of the corpus, opened as a user would: as files, with the passphrase that is known.

use std::fs;
use std::path::{Path, PathBuf};

use bandsaw::Result;
use bandsaw::crypt::Secret;
use bandsaw::open::{self, Image, Keys, OpenOptions};

use super::corpus;

/// Kinds of image that open, as the manifest calls them.
pub(crate) const KINDS: [&str; 9] = [
    "raw (UDRW)",
    "sparsebundle (UDSB)",
    "sparseimage (UDSP)",
    "ASIF",
    "UDIF",
    "encrypted raw (UDRW)",
    "encrypted sparsebundle (UDSB)",
    "encrypted sparseimage (UDSP)",
    "encrypted UDIF",
];

/// Where an image is, unpacked into `scratch` where it is stored compressed. `None`: it cannot be
/// unpacked.
pub(crate) fn place(image: &corpus::Image, scratch: &Path) -> Option<PathBuf> {
    if image.location().is_dir() || image.text("stored_compression").is_none() {
        return Some(image.location());
    }
    let path = scratch.join(image.path().replace('/', "-"));
    fs::write(&path, image.bytes()?).unwrap();
    Some(path)
}

/// Opens an image with its passphrase, if it has one. `None`: it cannot be unpacked.
pub(crate) fn open(image: &corpus::Image, scratch: &Path) -> Option<Result<Image>> {
    let password = image.entry()["encrypted"]["password"].as_str();
    let secret = password.map(|password| Secret::new(password.into()));
    let keys = secret.as_ref().map(|secret| secret as &dyn Keys);
    Some(open::open(
        &place(image, scratch)?,
        &OpenOptions {
            keys,
            ..OpenOptions::default()
        },
    ))
}
