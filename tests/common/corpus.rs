//! The corpus: disk images made by other software, nearly all by macOS, and a manifest of their
//! contents.
//!
//! It is not part of the repository. `BANDSAW_CORPUS` is its path, by default `../shared/corpus`
//! relative to the root of the repository; without it, tests that need it are skipped with a
//! message.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::skip::skip;

/// An image of the corpus.
#[derive(Debug)]
pub(crate) struct Image {
    folder: PathBuf,
    entry: Value,
}

/// A file system in an image.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Its offset on the disk, in bytes.
    pub(crate) offset: u64,
    /// Its name in the manifest: `HFS+`, `HFSX`, `APFS`, ...
    pub(crate) kind: String,
    /// All entries of the manifest about it.
    pub(crate) facts: Value,
}

/// A regular file in an image, as listed in the manifest.
#[derive(Debug)]
pub(crate) struct KnownFile {
    /// Path from the root of its volume, beginning with `/`.
    pub(crate) path: String,
    /// Length in bytes after decompression, as shown by macOS.
    pub(crate) size: u64,
    /// SHA-256 of its contents.
    pub(crate) sha256: String,
    /// Length of the resource fork in bytes, if the manifest has it.
    pub(crate) resource_fork_size: Option<u64>,
    /// Extended attributes, if the manifest has them: name to size and SHA-256.
    pub(crate) xattrs: BTreeMap<String, (u64, String)>,
    /// Compression type (decmpfs), if it is compressed.
    pub(crate) decmpfs_type: Option<u64>,
}

/// Returns all images; `None`, with a message on stderr that names `test`, if there is no corpus.
pub(crate) fn images(test: &str) -> Option<Vec<Image>> {
    let folder = std::env::var_os("BANDSAW_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
        PathBuf::from,
    );
    let manifest = match fs::read(folder.join("MANIFEST.json")) {
        Ok(manifest) => manifest,
        Err(error) => {
            skip(test, &format!("no corpus in {}: {error}", folder.display()));
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

/// Returns one image by its path in the corpus.
pub(crate) fn image(test: &str, path: &str) -> Option<Image> {
    let found = images(test)?.into_iter().find(|image| image.path() == path);
    if found.is_none() {
        skip(test, &format!("the corpus has no {path}"));
    }
    found
}

impl Image {
    /// Returns its path relative to the corpus's folder, which is its name, too.
    pub(crate) fn path(&self) -> &str {
        self.text("path").expect("every entry has a path")
    }

    /// Returns the path of the file or folder.
    pub(crate) fn location(&self) -> PathBuf {
        self.folder.join(self.path())
    }

    /// Returns the format: `UDIF`, `raw (UDRW)`, `sparsebundle (UDSB)`, ..., `encrypted ...`.
    pub(crate) fn format(&self) -> &str {
        self.text("format").unwrap_or("none")
    }

    /// Returns a string of its entry.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.entry[key].as_str()
    }

    /// Returns a number of its entry.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.entry[key].as_u64()
    }

    /// Returns its entry of the manifest.
    pub(crate) fn entry(&self) -> &Value {
        &self.entry
    }

    /// Returns the image file without the corpus's own compression; `None` if the image is a
    /// folder.
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

    /// Returns the whole disk of a raw image or a plain sparse bundle, assembled here without the
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

    /// Returns the file systems of the image.
    pub(crate) fn file_systems(&self) -> Vec<FileSystem> {
        let all = self.entry["file_systems"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        all.iter()
            .map(|facts| FileSystem {
                offset: facts["partition_offset"].as_u64().unwrap_or_default(),
                // Some entries have only the kind.
                kind: facts["type"]
                    .as_str()
                    .or(facts.as_str())
                    .unwrap_or_default()
                    .to_owned(),
                facts: facts.clone(),
            })
            .collect()
    }

    /// Returns the length of the partition at `offset` of the disk, in bytes.
    pub(crate) fn partition_len(&self, offset: u64) -> Option<u64> {
        let partitions = self.entry["partitions"].as_array()?;
        partitions
            .iter()
            .find(|partition| partition["start"] == offset)?["size"]
            .as_u64()
    }

    /// Returns the known regular files: all of them if there are no more than 200.
    pub(crate) fn files(&self) -> Vec<KnownFile> {
        let all = self.entry["files"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        all.iter().map(known_file).collect()
    }

    /// Returns the known symbolic links and their targets.
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

/// Returns the SHA-256 of `bytes` in the manifest's notation.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    sha256_of_pieces([bytes])
}

/// Returns the SHA-256 of pieces, which need not be in memory together.
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
