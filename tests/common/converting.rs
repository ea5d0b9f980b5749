//! Helpers of the conversion suites.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::container::Format;
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::progress::Progress;

/// Opens an image whose format cannot be detected.
pub(crate) fn open_as(path: &Path, format: Format) -> Image {
    open::open(
        path,
        &OpenOptions {
            image_format: Some(format),
            ..OpenOptions::default()
        },
    )
    .unwrap()
}

/// Returns the names in a folder, sorted, without subfolders' contents.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Cancels after a number of bytes.
pub(crate) struct StopAfter {
    pub(crate) left: AtomicU64,
}

impl Progress for StopAfter {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, n: u64) {
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(n))
            });
    }

    fn cancelled(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}
