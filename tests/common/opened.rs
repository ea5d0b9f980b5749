//! Images of the corpus, opened as files with their known passphrase.

use std::fs;
use std::path::{Path, PathBuf};

use bandsaw::Result;
use bandsaw::crypt::Secret;
use bandsaw::open::{self, Image, Keys, OpenOptions};

use super::corpus;

/// Formats that can be opened, in the manifest's notation.
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

/// Returns the path of an image, which is decompressed to `scratch` if it is stored compressed.
/// `None` if it cannot be decompressed.
pub(crate) fn place(image: &corpus::Image, scratch: &Path) -> Option<PathBuf> {
    if image.location().is_dir() || image.text("stored_compression").is_none() {
        return Some(image.location());
    }
    let path = scratch.join(image.path().replace('/', "-"));
    fs::write(&path, image.bytes()?).unwrap();
    Some(path)
}

/// Opens an image with its passphrase, if it has one. `None` if it cannot be decompressed.
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
