//! The search for images and for results of benchmarks below the roots.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bandsaw::container::Format;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{ImageId, Root, Roots, reopened};
use crate::names::visible_bytes;

/// Files and folders that a search for images looks at.
const MAX_SEEN: usize = 50_000;
/// Images that a search returns.
const MAX_FOUND: usize = 2_000;
/// Depth of folders below a root that a search enters.
const MAX_DEPTH: usize = 8;

/// An image that a search found by its name.
#[derive(Debug)]
pub(crate) struct FoundImage {
    pub(crate) id: ImageId,
    /// The path for people: the root, and the path below it.
    pub(crate) shown: String,
    pub(crate) name: String,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) images: Vec<FoundImage>,
    /// True if limits ended the search.
    pub(crate) is_cut: bool,
    /// Folders that could not be read.
    pub(crate) unreadable: Vec<String>,
    seen: usize,
    /// Recognizes the names that are searched for.
    is_wanted: Option<fn(&[u8]) -> bool>,
}

impl Roots {
    /// Looks for images by the extension of their names, below all roots. Links are not followed.
    /// `wanted` is a part of the path, in any case.
    pub(crate) fn search(&self, wanted: &str) -> Search {
        self.search_for(is_image_name, wanted)
    }

    /// Looks for files that may hold results of benchmarks.
    pub(crate) fn search_results(&self) -> Search {
        let is_json = |name: &[u8]| name.to_ascii_lowercase().ends_with(b".json");
        let mut search = self.search_for(is_json, "");
        search.images.retain(|found| {
            let name = found.name.to_ascii_lowercase();
            name.ends_with(".json")
        });
        search
    }

    fn search_for(&self, is_wanted: fn(&[u8]) -> bool, wanted: &str) -> Search {
        let mut search = Search {
            is_wanted: Some(is_wanted),
            ..Search::default()
        };
        let wanted = wanted.to_lowercase();
        for (number, root) in self.list.iter().enumerate() {
            let is_image = !root.is_folder || is_wanted(root.path.as_os_str().as_bytes());
            if is_image {
                let name = root.path.file_name().unwrap_or(root.path.as_os_str());
                search.add(number, root, Vec::new(), name.as_bytes(), &wanted);
            } else if let Ok(folder) = reopened(root.place.as_fd()) {
                search.enter(number, root, folder, &[], 0, &wanted);
            } else {
                search
                    .unreadable
                    .push(visible_bytes(root.path.as_os_str().as_bytes()));
            }
        }
        search.images.sort_by(|a, b| a.shown.cmp(&b.shown));
        search
    }
}

impl Search {
    fn enter(
        &mut self,
        number: usize,
        root: &Root,
        folder: OwnedFd,
        path: &[u8],
        depth: usize,
        wanted: &str,
    ) {
        let shown = || {
            visible_bytes(
                root.path
                    .join(OsStr::from_bytes(path))
                    .as_os_str()
                    .as_bytes(),
            )
        };
        let Ok(entries) = Dir::read_from(&folder) else {
            self.unreadable.push(shown());
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.unreadable.push(shown());
                return;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_SEEN || self.images.len() >= MAX_FOUND {
                self.is_cut = true;
                return;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
                    stat.map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    })
                }
                kind => kind,
            };
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name);
            let is_image = self.is_wanted.is_some_and(|is_wanted| is_wanted(name));
            match kind {
                FileType::RegularFile if is_image => self.add(number, root, below, name, wanted),
                FileType::Directory if is_image => self.add(number, root, below, name, wanted),
                // Bundles hold nothing else.
                FileType::Directory if is_image_name(name) => {}
                FileType::Directory if depth >= MAX_DEPTH => self.is_cut = true,
                FileType::Directory => {
                    let flags =
                        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                        Ok(inner) => self.enter(number, root, inner, &below, depth + 1, wanted),
                        Err(Errno::NOENT) => {}
                        Err(_) => self.unreadable.push(shown()),
                    }
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, number: usize, root: &Root, path: Vec<u8>, name: &[u8], wanted: &str) {
        let full = match path.is_empty() {
            true => root.path.clone(),
            false => root.path.join(OsStr::from_bytes(&path)),
        };
        let shown = visible_bytes(full.as_os_str().as_bytes());
        if shown.to_lowercase().contains(wanted) {
            self.images.push(FoundImage {
                id: ImageId {
                    root: Some(number),
                    path,
                    snapshot: None,
                },
                shown,
                name: visible_bytes(name),
            });
        }
    }
}

/// Returns true if a name has an extension of images.
fn is_image_name(name: &[u8]) -> bool {
    const OTHERS: [&str; 2] = ["img", "iso"];
    let path = Path::new(OsStr::from_bytes(name));
    let other = |extension: &OsStr| {
        OTHERS
            .iter()
            .any(|other| extension.eq_ignore_ascii_case(other))
    };
    Format::from_extension(path).is_some() || path.extension().is_some_and(other)
}
