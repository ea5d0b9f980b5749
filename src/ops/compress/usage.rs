//! The size of files with their compression and extended attributes, as afsctool reports it
//! (`docs/formats/decmpfs.md` §8).

use std::cmp::Reverse;
use std::collections::HashSet;

use super::in_place::attribute;
use crate::Result;
use crate::decmpfs::{self, Compression, Place};
use crate::fs::source::Stream;
use crate::fs::{
    Attributes, FileKind, FileSystem, FileSystemExt, NodeId, RESOURCE_FORK, UF_COMPRESSED,
};
use crate::progress::Progress;

/// Size of a record of a file in the catalog of HFS+, in bytes.
const FILE_RECORD: u64 = 248;
/// Size of the key of an extended attribute of HFS+, in bytes.
const ATTRIBUTE_KEY: u64 = 268;
/// Length in bytes of the header of the attribute that describes compression.
const HEADER: u64 = 16;

/// Sizes of a file, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileUsage {
    /// Its compression; `None` if it is not compressed.
    pub compression: Option<Compression>,
    /// Length of its contents.
    pub size: u64,
    /// Length of its contents as they are stored: of a compressed file without the header of the
    /// attribute.
    pub stored: u64,
    /// Length of the header and other parts of the attribute that describes the compression, which
    /// are not contents.
    pub header: u64,
    /// Length of the resource fork, if it does not have the compressed contents.
    pub resource_fork: u64,
    /// Number of extended attributes, without that of the compression and the resource fork.
    pub xattrs: u64,
    /// Total length of their values.
    pub xattr_size: u64,
    /// Storage on the volume: whole blocks, and the attribute of the compression.
    pub allocated: u64,
}

impl FileUsage {
    /// Returns the sizes of a file.
    pub fn of(fs: &dyn FileSystem, file: &Attributes) -> Result<Self> {
        let len = |name: &str| -> Result<Option<u64>> {
            Ok(fs.xattr(file.id, name)?.map(|value| value.info().len))
        };
        let mut usage = Self {
            size: file.size,
            stored: file.size,
            resource_fork: file.resource_size,
            allocated: file.allocated,
            ..Self::default()
        };
        let value = match file.flags & UF_COMPRESSED {
            0 => None,
            _ => attribute(fs, file.id)?,
        };
        if let Some(value) = value {
            let fork = len(RESOURCE_FORK)?.unwrap_or(0);
            usage.compressed(&value, fork);
            usage.allocated += value.len() as u64;
        }
        for name in fs.xattrs(file.id)? {
            if name != RESOURCE_FORK {
                usage.xattrs += 1;
                usage.xattr_size += len(&name)?.unwrap_or(0);
            }
        }
        Ok(usage)
    }

    /// Returns the sizes of a file of the host with `xattrs`, a length of `size` and `allocated`
    /// bytes of storage.
    pub fn of_host(xattrs: &[(Box<str>, Stream)], size: u64, allocated: u64) -> Self {
        let find = |name: &str| {
            let found = xattrs.iter().find(|(known, _)| &**known == name);
            found.map(|(_, stream)| stream)
        };
        let fork = find(RESOURCE_FORK).map_or(0, Stream::len);
        let mut usage = Self {
            size,
            stored: size,
            resource_fork: fork,
            allocated,
            ..Self::default()
        };
        // Only an empty file can have its contents elsewhere.
        if let (0, Some(Stream::Bytes(value))) = (size, find(decmpfs::ATTRIBUTE)) {
            usage.compressed(value, fork);
        }
        for (name, stream) in xattrs {
            let of_compression = usage.compression.is_some() && &**name == decmpfs::ATTRIBUTE;
            if &**name != RESOURCE_FORK && !of_compression {
                usage.xattrs += 1;
                usage.xattr_size += stream.len();
            }
        }
        usage
    }

    /// Takes the sizes from `value`, the attribute of the compression, and the length of the fork.
    fn compressed(&mut self, value: &[u8], fork: u64) {
        let Some(compression) = Compression::parse(value) else {
            return;
        };
        let len = value.len() as u64;
        self.compression = Some(compression);
        self.size = compression.size;
        (self.stored, self.header, self.resource_fork) = match compression.method() {
            Some((_, Place::Fork)) => (fork, len, 0),
            _ => (len.saturating_sub(HEADER), len.min(HEADER), fork),
        };
    }

    /// Returns the share of the contents' length that compression saves, in percent.
    pub fn saving_percent(&self) -> f64 {
        if self.compression.is_none() || self.size == 0 {
            return 0.0;
        }
        100.0 * (1.0 - (self.stored + self.header) as f64 / self.size as f64)
    }

    /// Returns the bytes that compression saves; 0 if it costs some.
    pub fn saved(&self) -> u64 {
        self.size.saturating_sub(self.stored + self.header)
    }

    /// Returns the approximate bytes of the keys of all attributes in the volume's tree.
    pub fn overhead(&self) -> u64 {
        (self.xattrs + u64::from(self.compression.is_some())) * ATTRIBUTE_KEY
    }

    /// Returns the approximate bytes of the file with all attributes and its record.
    pub fn total(&self) -> u64 {
        let data = self.stored + self.header + self.resource_fork;
        data + self.xattr_size + self.overhead() + FILE_RECORD
    }
}

/// Total sizes of the files in a folder and those below it, in bytes. A file with several names
/// counts once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderUsage {
    /// Number of files.
    pub files: u64,
    /// Number of compressed files.
    pub compressed: u64,
    /// Number of folders below this one.
    pub folders: u64,
    /// Length of all contents.
    pub size: u64,
    /// Length of all contents as they are stored, with the attributes of compressed files.
    pub stored: u64,
    /// Length of the contents of compressed files.
    pub compressed_size: u64,
    /// The same as they are stored.
    pub compressed_stored: u64,
    /// Storage on the volume.
    pub allocated: u64,
    /// Approximate bytes of all files with their attributes and records.
    pub total: u64,
    /// Paths of the compressed files that save most, with their sizes, the largest saving first.
    pub largest: Vec<(String, FileUsage)>,
}

impl FolderUsage {
    /// Returns the total of the folder at `path`, with the `most` largest savings.
    pub fn of(
        fs: &dyn FileSystem,
        path: &str,
        folder: NodeId,
        most: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut total = Self::default();
        let mut seen = HashSet::from([folder]);
        let mut ahead = vec![(path.to_owned(), folder)];
        while let Some((path, folder)) = ahead.pop() {
            for entry in fs.entries(folder)? {
                progress.check()?;
                let file = &entry.attributes;
                // A folder that contains itself, and further names of a file.
                if !seen.insert(file.id) {
                    continue;
                }
                let path = format!("{path}/{}", entry.name);
                match file.kind {
                    FileKind::Folder => {
                        total.folders += 1;
                        ahead.push((path, file.id));
                    }
                    FileKind::File => {
                        let usage = FileUsage::of(fs, file);
                        let usage = usage.map_err(|error| error.named(&*path))?;
                        total.add(path, usage, most);
                    }
                    _ => {}
                }
            }
        }
        Ok(total)
    }

    /// Returns the total of one file.
    pub fn of_file(file: &FileUsage) -> Self {
        let mut total = Self::default();
        total.add(String::new(), *file, 0);
        total
    }

    fn add(&mut self, path: String, usage: FileUsage, most: usize) {
        let stored = usage.stored + usage.header;
        self.files += 1;
        self.size += usage.size;
        self.stored += stored;
        self.allocated += usage.allocated;
        self.total += usage.total();
        if usage.compression.is_none() {
            return;
        }
        self.compressed += 1;
        self.compressed_size += usage.size;
        self.compressed_stored += stored;
        let place = self
            .largest
            .partition_point(|(_, known)| Reverse(known.saved()) <= Reverse(usage.saved()));
        if place < most {
            self.largest.insert(place, (path, usage));
            self.largest.truncate(most);
        }
    }

    /// Returns the share of the length of compressed files' contents that is saved, in percent.
    pub fn saving_percent(&self) -> f64 {
        if self.compressed_size == 0 {
            return 0.0;
        }
        100.0 * (1.0 - self.compressed_stored as f64 / self.compressed_size as f64)
    }
}

/// Returns the uniform type identifier of a file, by its name and, without a known extension, by the
/// first bytes of its contents.
pub fn content_type(name: &str, head: &[u8]) -> &'static str {
    let extension = name
        .rsplit_once('.')
        .map(|(_, extension)| extension.to_lowercase());
    let known = |extension: &str| TYPES.iter().find(|(of, _)| of.contains(&extension));
    if let Some((_, found)) = extension.as_deref().and_then(known) {
        return found;
    }
    let found = HEADS.iter().find(|(start, _)| head.starts_with(start));
    found.map_or("public.data", |(_, found)| found)
}

/// Extensions and types.
const TYPES: &[(&[&str], &str)] = &[
    (&["txt", "text", "log"], "public.plain-text"),
    (&["pdf"], "com.adobe.pdf"),
    (&["htm", "html"], "public.html"),
    (&["xml"], "public.xml"),
    (&["json"], "public.json"),
    (&["csv"], "public.comma-separated-values-text"),
    (&["plist"], "com.apple.property-list"),
    (&["rtf"], "public.rtf"),
    (&["c"], "public.c-source"),
    (&["h"], "public.c-header"),
    (&["m"], "public.objective-c-source"),
    (&["swift"], "public.swift-source"),
    (&["py"], "public.python-script"),
    (&["sh"], "public.shell-script"),
    (&["jpg", "jpeg"], "public.jpeg"),
    (&["png"], "public.png"),
    (&["tif", "tiff"], "public.tiff"),
    (&["gif"], "com.compuserve.gif"),
    (&["heic"], "public.heic"),
    (&["icns"], "com.apple.icns"),
    (&["mp3"], "public.mp3"),
    (&["m4a"], "com.apple.m4a-audio"),
    (&["mp4"], "public.mpeg-4"),
    (&["mov"], "com.apple.quicktime-movie"),
    (&["zip"], "public.zip-archive"),
    (&["gz"], "org.gnu.gnu-zip-archive"),
    (&["tar"], "public.tar-archive"),
    (&["dmg"], "com.apple.disk-image-udif"),
    (&["dylib"], "com.apple.mach-o-dylib"),
];

/// Beginnings of contents and their types.
const HEADS: &[(&[u8], &str)] = &[
    (b"%PDF-", "com.adobe.pdf"),
    (b"\x89PNG", "public.png"),
    (b"\xFF\xD8\xFF", "public.jpeg"),
    (b"PK\x03\x04", "public.zip-archive"),
    (b"\x1F\x8B", "org.gnu.gnu-zip-archive"),
    (b"#!", "public.shell-script"),
    (b"bplist", "com.apple.property-list"),
    (b"<?xml", "public.xml"),
    (b"\xCA\xFE\xBA\xBE", "public.unix-executable"),
    (b"\xCF\xFA\xED\xFE", "public.unix-executable"),
    (b"\xCE\xFA\xED\xFE", "public.unix-executable"),
    (b"\x7FELF", "public.unix-executable"),
];
