//! The corpus: disk images of other people, nearly all written by macOS, and what is known to be in
//! them.
//!
//! It is not part of the repository. `BANDSAW_CORPUS` says where it is, `../shared/corpus` from the
//! root of the repository if it says nothing; without it, tests that ask for it are skipped and say
//! so.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// An image of the corpus.
#[derive(Debug)]
pub(crate) struct Image {
    folder: PathBuf,
    entry: Value,
}

/// A file system inside an image.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Where it begins on the medium.
    pub(crate) offset: u64,
    /// As the manifest calls it: `HFS+`, `HFSX`, `APFS`, ...
    pub(crate) kind: String,
    /// Everything the manifest says about it.
    pub(crate) facts: Value,
}

/// A regular file known to be in an image.
#[derive(Debug)]
pub(crate) struct KnownFile {
    /// From the root of its volume, beginning with `/`.
    pub(crate) path: String,
    /// Bytes as macOS shows them, compression undone.
    pub(crate) size: u64,
    /// Of these bytes.
    pub(crate) sha256: String,
    /// Bytes of the resource fork, where the manifest says.
    pub(crate) resource_fork_size: Option<u64>,
    /// Extended attributes, where the manifest says: name to size and SHA-256.
    pub(crate) xattrs: BTreeMap<String, (u64, String)>,
    /// How it is compressed, if it is.
    pub(crate) decmpfs_type: Option<u64>,
}

/// All images, or `None` (and a word on stderr, naming `test`) where there is no corpus.
pub(crate) fn images(test: &str) -> Option<Vec<Image>> {
    let folder = std::env::var_os("BANDSAW_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
        PathBuf::from,
    );
    let manifest = match fs::read(folder.join("MANIFEST.json")) {
        Ok(manifest) => manifest,
        Err(error) => {
            eprintln!(
                "skipped: {test}: no corpus in {}: {error}",
                folder.display()
            );
            return None;
        }
    };
    let entries: Vec<Value> = serde_json::from_slice(&manifest).expect("MANIFEST.json is an array");
    Some(
        entries
            .into_iter()
            .map(|entry| Image {
                folder: folder.clone(),
                entry,
            })
            .collect(),
    )
}

/// One image by its path in the corpus.
pub(crate) fn image(test: &str, path: &str) -> Option<Image> {
    let found = images(test)?.into_iter().find(|image| image.path() == path);
    if found.is_none() {
        eprintln!("skipped: {test}: the corpus has no {path}");
    }
    found
}

impl Image {
    /// Its path below the corpus's folder, which is its name too.
    pub(crate) fn path(&self) -> &str {
        self.text("path").expect("every entry has a path")
    }

    /// The file or folder.
    pub(crate) fn location(&self) -> PathBuf {
        self.folder.join(self.path())
    }

    /// `UDIF`, `raw (UDRW)`, `sparsebundle (UDSB)`, ..., `encrypted ...`.
    pub(crate) fn format(&self) -> &str {
        self.text("format").unwrap_or("none")
    }

    /// A text of its entry.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.entry[key].as_str()
    }

    /// A number of its entry.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.entry[key].as_u64()
    }

    /// Everything the manifest says about it.
    pub(crate) fn entry(&self) -> &Value {
        &self.entry
    }

    /// The image file with the corpus's own compression undone; `None` where the image is a folder.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let stored = || fs::read(self.location()).expect("the corpus can be read");
        let mut bytes = Vec::new();
        match self.text("stored_compression") {
            None if self.location().is_dir() => return None,
            None => return Some(stored()),
            Some("gzip") => flate2::read::GzDecoder::new(stored().as_slice())
                .read_to_end(&mut bytes)
                .map(drop),
            Some("xz") => lzma_rust2::XzReader::new(stored().as_slice(), false)
                .read_to_end(&mut bytes)
                .map(drop),
            Some("lzfse") => lzfse_rust::decode_bytes(&stored(), &mut bytes)
                .map(drop)
                .map_err(std::io::Error::from),
            Some(other) => panic!("{}: compressed by {other}", self.path()),
        }
        .expect("the corpus is well compressed");
        let expected = self
            .text("image_sha256")
            .expect("a compressed image has the sum of what is inside");
        assert_eq!(sha256(&bytes), expected, "{}", self.path());
        Some(bytes)
    }

    /// The whole medium of a raw image or a plain sparse bundle, put together here without the
    /// library, so that file systems can be tested without containers. `None` for other formats.
    pub(crate) fn medium(&self) -> Option<Vec<u8>> {
        let medium = match self.format() {
            "raw (UDRW)" => self.bytes()?,
            "sparsebundle (UDSB)" => self.bands()?,
            _ => return None,
        };
        if let Some(expected) = self.text("media_sha256") {
            assert_eq!(sha256(&medium), expected, "{}", self.path());
        }
        Some(medium)
    }

    fn bands(&self) -> Option<Vec<u8>> {
        let mut medium = vec![0; usize::try_from(self.number("media_size")?).ok()?];
        let band_size = usize::try_from(self.number("chunk_size")?).ok()?;
        for band in fs::read_dir(self.location().join("bands")).ok()?.flatten() {
            let index = usize::from_str_radix(band.file_name().to_str()?, 16).ok()?;
            let bytes = fs::read(band.path()).ok()?;
            let start = index * band_size;
            medium
                .get_mut(start..start + bytes.len())?
                .copy_from_slice(&bytes);
        }
        Some(medium)
    }

    /// The file systems inside.
    pub(crate) fn file_systems(&self) -> Vec<FileSystem> {
        let all = self.entry["file_systems"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        all.iter()
            .map(|facts| FileSystem {
                offset: facts["partition_offset"].as_u64().unwrap_or_default(),
                // Of some only the kind is told.
                kind: facts["type"]
                    .as_str()
                    .or(facts.as_str())
                    .unwrap_or_default()
                    .to_owned(),
                facts: facts.clone(),
            })
            .collect()
    }

    /// How long the partition is that begins at `offset` of the medium.
    pub(crate) fn partition_len(&self, offset: u64) -> Option<u64> {
        let partitions = self.entry["partitions"].as_array()?;
        partitions
            .iter()
            .find(|partition| partition["start"] == offset)?["size"]
            .as_u64()
    }

    /// The regular files known to be inside: all of them where they are no more than 200.
    pub(crate) fn files(&self) -> Vec<KnownFile> {
        let all = self.entry["files"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        all.iter().map(known_file).collect()
    }

    /// The symbolic links known to be inside and where they point.
    pub(crate) fn symlinks(&self) -> BTreeMap<String, String> {
        let all = self.entry["symlinks"].as_object();
        let link = |(path, target): (&String, &Value)| {
            (path.clone(), target.as_str().unwrap_or_default().to_owned())
        };
        all.map(|links| links.iter().map(link).collect())
            .unwrap_or_default()
    }
}

fn known_file(file: &Value) -> KnownFile {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let xattrs = file["xattrs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let sized = |xattr: &Value| {
        (
            text(&xattr["name"]),
            (
                xattr["size"].as_u64().unwrap_or_default(),
                text(&xattr["sha256"]),
            ),
        )
    };
    KnownFile {
        path: text(&file["path"]),
        size: file["size"].as_u64().unwrap_or_default(),
        sha256: text(&file["sha256"]),
        resource_fork_size: file["resource_fork_size"].as_u64(),
        xattrs: xattrs.iter().map(sized).collect(),
        decmpfs_type: file["decmpfs_type"].as_u64(),
    }
}

/// The SHA-256 of `bytes` as the manifest writes it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    sha256_of_pieces([bytes])
}

/// The same of pieces that are not in memory together.
pub(crate) fn sha256_of_pieces<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = B>) -> String {
    use std::fmt::Write;
    let sum = pieces
        .into_iter()
        .fold(Sha256::new(), |sum, piece| sum.chain_update(piece));
    sum.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
