//! Selection of the files to compress, and the limits of their compressed size.

use super::{CompressOptions, MAX_IN_ATTRIBUTE, SkipReason};
use crate::decmpfs::{Bounds, MAX_LEN};

/// A set of file types, by file name extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileTypes {
    /// Extensions in lower case, without the dot. Empty: the set contains all files.
    extensions: Vec<String>,
    /// True if the set contains all files without these extensions.
    inverted: bool,
}

impl FileTypes {
    /// Returns the set of files with one of these extensions, in any case, with or without a dot.
    pub fn only(extensions: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let plain = |extension: &str| extension.trim_start_matches('.').to_lowercase();
        Self {
            extensions: extensions
                .into_iter()
                .map(|extension| plain(extension.as_ref()))
                .collect(),
            inverted: false,
        }
    }

    /// Returns the set of all files without these extensions.
    pub fn but(extensions: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self {
            inverted: true,
            ..Self::only(extensions)
        }
    }

    /// Returns true if the set contains a file of this name.
    pub fn contain(&self, name: &str) -> bool {
        if self.extensions.is_empty() {
            return true;
        }
        let extension = name
            .rsplit_once('.')
            .map_or_else(String::new, |(_, extension)| extension.to_lowercase());
        self.extensions.contains(&extension) != self.inverted
    }
}

/// Files in the root that the volume itself uses. Drivers access them by their blocks.
const OF_VOLUMES: [&str; 3] = ["/.journal", "/.journal_info_block", "/.hotfiles.btree"];

/// The properties of a file that decide whether it is compressed.
pub(super) struct FileTraits<'a> {
    pub(super) path: &'a str,
    pub(super) size: u64,
    pub(super) compressed: bool,
    pub(super) locked: bool,
}

impl CompressOptions {
    /// Returns the reason to skip a file, as far as these properties give one.
    pub(super) fn leaves(&self, file: &FileTraits<'_>) -> Option<SkipReason> {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if OF_VOLUMES.contains(&file.path) {
            Some(SkipReason::Volume)
        } else if file.compressed {
            Some(SkipReason::Compressed)
        } else if file.size == 0 {
            Some(SkipReason::Empty)
        } else if file.size > self.max_size.min(MAX_LEN) {
            Some(SkipReason::TooLong)
        } else if !self.types.contain(name) {
            Some(SkipReason::Type)
        } else if file.locked {
            Some(SkipReason::Locked)
        } else {
            None
        }
    }

    /// Returns the limits of the compressed form of a file of `size` bytes that takes `allocated`
    /// bytes, in blocks of `block` bytes.
    pub(super) fn bounds(&self, size: u64, allocated: u64, block: u64) -> Bounds {
        // No overflow: files to be compressed are shorter than 4 GiB.
        let most = size - size * u64::from(self.min_saving.min(100)) / 100;
        Bounds {
            attribute: MAX_IN_ATTRIBUTE,
            fork: most.min(allocated.saturating_sub(block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_recognized_by_extensions() {
        let texts = FileTypes::only(["txt", ".HTML"]);
        assert!(texts.contain("a.TXT") && texts.contain("b.c.html"));
        assert!(!texts.contain("a.png") && !texts.contain("txt") && !texts.contain(""));
        let others = FileTypes::but(["png"]);
        assert!(others.contain("a.txt") && others.contain("none") && !others.contain("x.PNG"));
        assert!(FileTypes::default().contain("anything"));
    }
}
