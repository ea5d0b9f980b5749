//! Creation of images.

use std::path::PathBuf;

use bandsaw::codec::Level;
use bandsaw::crypt::{Encryption, Secret};
use bandsaw::fs::Timestamp;
use bandsaw::ops;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, default_volume_name};
use bandsaw::ops::format::{DefaultFormat, FormatRequirements, NewFormat};
use pyo3::prelude::*;

use crate::failure::Outcome;
use crate::operations::format_of;
use crate::options::{named, network};
use crate::progress;

/// A volume to be created: its name, file system, layout and block size, and the folder or archive with its files.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct VolumeArguments {
    name: Option<String>,
    fs: Option<String>,
    layout: Option<String>,
    block_size: Option<u32>,
    source: Option<PathBuf>,
    others: Vec<String>,
}

impl VolumeArguments {
    fn volume(self, len: Option<u64>, sector_size: Option<u32>) -> bandsaw::Result<NewVolume> {
        let layout = named::<Layout>(self.layout.as_deref())?.unwrap_or_default();
        let format = match self.fs {
            Some(name) => name.parse::<NewFormat>()?,
            None => DefaultFormat::of_image(&FormatRequirements {
                layout,
                sector: sector_size.unwrap_or(512),
                disk_len: len,
                block_size: self.block_size.map(u64::from),
                requires_apfs: !self.others.is_empty(),
            })?
            .format,
        };
        Ok(NewVolume {
            layout,
            name: self
                .name
                .unwrap_or_else(|| default_volume_name(self.source.as_deref())),
            format,
            block_size: self.block_size,
            source: self.source.map_or(Source::Empty, Source::at),
        })
    }
}

/// Creates an image, durably.
#[pyfunction]
#[pyo3(signature = (path, *, format, size, band_size, sector_size, level, overwrite, volume, passphrase, epoch, progress))]
#[expect(clippy::too_many_arguments, reason = "the options of the verb")]
pub(crate) fn create(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    size: Option<u64>,
    band_size: Option<u64>,
    sector_size: Option<u32>,
    level: Option<u8>,
    overwrite: bool,
    volume: Option<VolumeArguments>,
    passphrase: Option<Vec<u8>>,
    epoch: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
) -> Outcome {
    let (volume, more_volumes) = match volume {
        Some(volume) => {
            let others = volume.others.clone();
            (Some(volume.volume(size, sector_size)?), others)
        }
        None => (None, Vec::new()),
    };
    let options = CreateOptions {
        format: format_of(format, &path)?,
        len: size,
        band_size,
        sector_size,
        level: level.map(Level::new).transpose()?,
        overwrite,
        volume,
        more_volumes,
        encryption: passphrase.map(|bytes| Encryption::new(Secret::new(bytes))),
        epoch: epoch.map(Timestamp::from_seconds),
        network: network(),
        ..CreateOptions::default()
    };
    progress::run(py, progress, |progress| {
        ops::create::create(&path, options, progress).map(drop)
    })
}
