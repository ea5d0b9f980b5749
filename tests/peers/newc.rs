//! The archive format of the Linux kernel's initial RAM file system: cpio's `newc`.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive in progress.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds a file, and its parent folders. A second file of the same name is ignored.
    pub(crate) fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.folders_above(path);
        self.entry(path, FILE | mode, (0, 0), contents);
    }

    /// Returns the finished archive. It contains the console device, without which the first
    /// process could not print.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.folders_above("dev/console");
        self.entry("dev/console", CHARACTER_DEVICE | 0o600, (5, 1), &[]);
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn folders_above(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            self.entry(&path[..end], FOLDER | 0o755, (0, 0), &[]);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        if !self.names.insert(path.into()) {
            return;
        }
        let length = |bytes: usize| u32::try_from(bytes).expect("files of a guest are small");
        let links = 1;
        let fields = [
            length(self.names.len()),
            mode,
            0, // owner
            0, // group
            links,
            0, // modified
            length(contents.len()),
            0, // the device it is on
            0,
            device.0,
            device.1,
            length(path.len() + 1),
            0, // checksum, unused
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
