//! Subjects of a protocol: an image that is created, filled, measured and removed, or the host's
//! folder for comparison.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::device::Access;
use bandsaw::fs::{FileSystem, VolumeEncryption};
use bandsaw::open::{self, Image, Keys, OpenOptions, VolumeQuery};
use bandsaw::ops::compact;
use bandsaw::ops::compress::{CompressOptions, FileReport};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::usage::HostUsage;
use bandsaw::progress::{NestedProgress, Progress, Silent};
use bandsaw::{Error, Result};

use super::kind::Kind;
use crate::place::Caches;
use crate::report::{HOST, Space};

pub(super) const LAYER: &str = "benchmark";
/// Passphrase of encrypted images; they contain no secrets.
const PASSPHRASE: &str = "bandsaw bench";

/// An image, or a folder of the host.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// Kind of image; `None` for the host.
    pub(super) kind: Option<Kind>,
    pub(super) band_size: Option<u64>,
    /// Folder that contains everything of the subject.
    pub(super) folder: PathBuf,
    pub(super) caches: Caches,
    /// Path of the command that serves and mounts.
    pub(super) program: &'a Path,
}

impl Subject<'_> {
    pub(super) fn label(&self) -> String {
        let label = self
            .kind
            .map_or_else(|| HOST.to_owned(), |kind| kind.to_string());
        match self.band_size {
            Some(size) => format!("{label}, bands of {}", crate::units::bytes(size)),
            None => label,
        }
    }

    pub(super) fn image(&self) -> PathBuf {
        let extension = match self.kind.map(|kind| kind.format) {
            Some(Format::Udsb) => "sparsebundle",
            Some(Format::Udsp) => "sparseimage",
            Some(Format::Asif) => "asif",
            _ => "img",
        };
        self.folder.join("image").with_extension(extension)
    }

    /// Creates an image of `len` bytes; for the host, an empty folder. It can be cancelled through
    /// `progress`, but reports none.
    pub(super) fn create(&self, len: u64, progress: &dyn Progress) -> Result<()> {
        self.make_folder()?;
        match self.kind {
            Some(kind) => self
                .make(kind, len, Source::Empty, None, &NestedProgress(progress))
                .map(drop),
            None => Ok(()),
        }
    }

    /// Creates an image of `len` bytes with the files of the folder `from`, compressed if asked
    /// for; for the host, a folder with copies. Returns the results of the compression.
    pub(super) fn fill(
        &self,
        len: u64,
        from: &Path,
        compress: Option<CompressOptions>,
        progress: &dyn Progress,
    ) -> Result<Vec<FileReport>> {
        self.make_folder()?;
        if let Some(kind) = self.kind {
            return self.make(
                kind,
                len,
                Source::Folder(from.to_owned()),
                compress,
                progress,
            );
        }
        let copy = || {
            for entry in std::fs::read_dir(from)? {
                let entry = entry?;
                let to = self.folder.join(entry.file_name());
                std::fs::copy(entry.path(), &to)?;
                std::fs::File::open(to)?.sync_all()?;
            }
            Ok(Vec::new())
        };
        copy().map_err(|source: std::io::Error| {
            Error::io(LAYER, "copy files", source).in_file(&self.folder)
        })
    }

    fn make_folder(&self) -> Result<()> {
        std::fs::create_dir(&self.folder)
            .map_err(|source| Error::io(LAYER, "create", source).in_file(&self.folder))
    }

    fn make(
        &self,
        kind: Kind,
        len: u64,
        source: Source,
        compress: Option<CompressOptions>,
        progress: &dyn Progress,
    ) -> Result<Vec<FileReport>> {
        let file = self.folder.join("passphrase");
        std::fs::write(&file, PASSPHRASE)
            .map_err(|source| Error::io(LAYER, "write", source).in_file(&file))?;
        let volume = NewVolume {
            layout: Layout::Gptspud,
            name: "Benchmark".to_owned(),
            format: kind.file_system,
            block_size: None,
            source,
        };
        let encryption = (kind.key_bits > 0).then(|| Encryption {
            key_bits: kind.key_bits,
            iterations: Some(MIN_ITERATIONS),
            ..Encryption::new(secret())
        });
        let options = CreateOptions {
            format: kind.format,
            len: Some(len.next_multiple_of(1 << 20)),
            volume: Some(volume),
            band_size: self.band_size,
            encryption,
            volume_encryption: kind.volume_key.then(|| VolumeEncryption {
                passphrase: secret(),
                recovery_key: None,
                hint: None,
                iterations: MIN_ITERATIONS,
            }),
            compress,
            ..CreateOptions::default()
        };
        Ok(create(&self.image(), options, progress)?.compressed)
    }

    /// Removes the subject's folder.
    pub(super) fn destroy(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.folder)
            .map_err(|source| Error::io(LAYER, "remove", source).in_file(&self.folder))
    }

    pub(super) fn open(&self, access: Access) -> Result<Image> {
        let secret = secret();
        open::open(
            &self.image(),
            &OpenOptions {
                access,
                keys: Some(&secret as &dyn Keys),
                ..OpenOptions::default()
            },
        )
    }

    /// Returns the image's size on disk; with `inside`, also the bytes in use and free in it, for
    /// which it must be detached. `None` for the host.
    pub(super) fn space(&self, at: &str, inside: bool) -> Result<Option<Space>> {
        let Some(kind) = self.kind else {
            return Ok(None);
        };
        let bands = || {
            std::fs::read_dir(self.image().join("bands"))
                .ok()
                .map(|bands| bands.count() as u64)
        };
        let inside = if inside {
            Some(self.look_inside()?.volume())
        } else {
            None
        };
        Ok(Some(Space {
            at: at.to_owned(),
            on_disk: HostUsage::of(&self.image(), &Silent)?.allocated,
            bands: if kind.format == Format::Udsb {
                bands()
            } else {
                None
            },
            in_use: inside
                .as_ref()
                .map(|volume| volume.total.saturating_sub(volume.free)),
            free: inside.map(|volume| volume.free),
            given_back: None,
        }))
    }

    /// Opens its volume read-only.
    pub(super) fn look_inside(&self) -> Result<Arc<dyn FileSystem>> {
        let secret = secret();
        self.open(Access::ReadOnly)?.file_system_as(
            None,
            VolumeQuery {
                snapshot: None,
                keys: Some(&secret),
            },
        )
    }

    /// Compacts the image; returns the bytes reclaimed, 0 for the host.
    pub(super) fn compact(&self, progress: &dyn Progress) -> Result<u64> {
        if self.kind.is_none() {
            return Ok(0);
        }
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        let done = compact::compact(
            &self.open(Access::ReadWrite)?,
            &options,
            Some(&secret()),
            &NestedProgress(progress),
        )?;
        Ok(done.before.saturating_sub(done.after))
    }
}

/// Returns the folder of a subject.
pub(super) fn folder_of(scratch: &Path, number: usize) -> PathBuf {
    scratch.join(format!("subject-{number}"))
}

pub(super) fn secret() -> Secret {
    Secret::new(PASSPHRASE.as_bytes().to_vec())
}
