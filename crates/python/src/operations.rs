//! Operations on whole images. Those that open the image themselves require that it is released.

use std::path::{Path, PathBuf};

use bandsaw::address::VolumeSelector;
use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, Secret};
use bandsaw::decision::Assumptions;
use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::open;
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::compact;
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::describe::{
    CheckInfo, ChecksumInfo, OrphanInfo, RepairInfo, ResizeStepInfo, SignatureInfo,
    SkippedVolumeInfo,
};
use bandsaw::ops::repair::{self, Mode, Undone};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, limits, resize};
use bandsaw::ops::snapshot;
use bandsaw::ops::verify::verify;
use bandsaw::{Error, Kind, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Outcome;
use crate::image::{ImageSource, NativeImage, read_only};
use crate::options::{named, network};
use crate::progress;
use crate::value::{Value, map};

#[pymethods]
impl NativeImage {
    /// Computes a checksum of the whole disk.
    fn checksum(
        &self,
        py: Python<'_>,
        algorithm: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<String> {
        let image = self.image()?;
        let algorithm: Algorithm = algorithm.parse()?;
        progress::run(py, progress, |progress| {
            checksum(&**image.disk(), algorithm, progress)
                .map_err(|error| error.in_file(image.path()))
        })
    }

    /// Compares the checksums that the image stores.
    fn verify(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> Outcome<Value> {
        let image = self.image()?;
        let (found, signature) = progress::run(py, progress, |progress| {
            let found = verify(&image, progress)?;
            let signature = image
                .udif()
                .and_then(|udif| Some((udif, SignatureInfo::of(udif)?)));
            let Some((udif, (info, known))) = signature else {
                return Ok((found, None));
            };
            let compared = known.map(|known| udif.verify_signature(&known, progress));
            Ok((found, Some((info, compared.transpose()?))))
        })?;
        let is_intact = |signature: &(_, Option<bool>)| signature.1 != Some(false);
        Ok(map! {
            "format": image.format().code(),
            "intact": found.iter().all(|sum| sum.agrees() != Some(false))
                && signature.as_ref().is_none_or(is_intact),
            "checksums": found.iter().map(ChecksumInfo::new).collect::<Vec<_>>(),
            "signature": signature.map(|(info, intact)| Value::of(&info).with(map! {
                "verified": intact.is_some(),
                "intact": intact,
            })),
        })
    }

    /// Checks every layer.
    fn check(
        &self,
        py: Python<'_>,
        contents: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let found = progress::run(py, progress, |progress| {
            let options = self.options().opening();
            match self.source() {
                ImageSource::Path(path) if contents => {
                    open::examine_contents(path, &options, progress)
                }
                ImageSource::Path(path) => open::examine(path, &options, progress),
                ImageSource::Device(device, name) => {
                    open::examine_device(device.clone(), name, &options, progress)
                }
            }
        })?;
        let path = bandsaw::error::shown(self.source().path());
        Ok(Value::of(&CheckInfo::new(path, &found)))
    }

    /// Creates an image with the same disk.
    #[pyo3(signature = (target, *, format, band_size, level, overwrite, skip_free, passphrase, verify, remove_signature, progress))]
    #[expect(clippy::too_many_arguments, reason = "the options of the verb")]
    fn convert(
        &self,
        py: Python<'_>,
        target: PathBuf,
        format: Option<&str>,
        band_size: Option<u64>,
        level: Option<u8>,
        overwrite: bool,
        skip_free: bool,
        passphrase: Option<Vec<u8>>,
        verify: bool,
        remove_signature: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let image = self.image()?;
        let options = ConvertOptions {
            format: format_of(format, &target)?,
            band_size,
            level: level.map(Level::new).transpose()?,
            overwrite,
            skip_free,
            encryption: passphrase.map(|bytes| Encryption::new(Secret::new(bytes))),
            remove_signature,
            no_verify: !verify,
            network: network(),
            ..ConvertOptions::default()
        };
        let done = progress::run(py, progress, |progress| {
            convert(&image, &target, &options, progress)
        })?;
        let (read, written) = (done.copied.read, done.copied.written);
        py.detach(|| drop(done));
        Ok(map! { "read_size": read, "written_size": written })
    }

    /// Frees storage that the volumes do not use.
    fn compact(
        &self,
        py: Python<'_>,
        zeros: Option<bool>,
        battery_allowed: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let image = self.image()?;
        if !self.options().writable {
            return Err(read_only(&image).into());
        }
        let options = compact::Options {
            zeros,
            battery_allowed,
        };
        let done = progress::run(py, progress, |progress| {
            compact::compact(&image, &options, Some(&self.options().keys), progress)
                .map_err(|error| error.in_file(image.path()))
        })?;
        Ok(map! {
            "allocated_before": done.before,
            "allocated": done.after,
            "reclaimed": done.before.saturating_sub(done.after),
            "zeros": done.zeros,
            "holes": done.can_punch,
            "orphans": OrphanInfo::new(&done.orphans),
            "refused": SkippedVolumeInfo::all(&done.refused),
        })
    }

    /// Returns the limits of the size of the disk.
    fn limits(&self, py: Python<'_>, partition: Option<u32>) -> Outcome<Value> {
        let (image, which) = (self.image()?, partition.map(selector));
        let found = py.detach(|| limits(&image, which.as_ref()))?;
        Ok(map! { "min_size": found.min, "size": found.current, "max_size": found.max })
    }

    /// Resizes disk, partition and volume. `size` is `None` for the smallest. The image must be opened again afterwards.
    fn resize(
        &self,
        py: Python<'_>,
        size: Option<u64>,
        parts: &str,
        partition: Option<u32>,
        dry_run: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let (image, which) = (self.image()?, partition.map(selector));
        if !dry_run && !self.options().writable {
            return Err(read_only(&image).into());
        }
        let parts = match parts {
            "all" => Parts::All,
            "image" => Parts::Image,
            "partition" => Parts::Partition,
            _ => {
                let message = "expected the parts \"all\", \"image\" or \"partition\"";
                return Err(PyValueError::new_err(message).into());
            }
        };
        let options = ResizeOptions {
            size: size.map_or(Size::Min, Size::Bytes),
            parts,
            volume: which.as_ref(),
            dry_run,
        };
        let done = progress::run(py, progress, |progress| resize(&image, &options, progress))?;
        Ok(map! {
            "dry_run": dry_run,
            "size_before": done.from,
            "size": done.to,
            "steps": done.steps.into_iter().map(ResizeStepInfo::new).collect::<Vec<_>>(),
        })
    }

    /// Repairs the image, which must be released.
    #[expect(clippy::too_many_arguments, reason = "the options of the verb")]
    fn repair(
        &self,
        py: Python<'_>,
        dry_run: bool,
        accept_loss: bool,
        assume: Vec<String>,
        undo_dir: Option<PathBuf>,
        temporary: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let path = self.host_path()?;
        let mut assumed = Assumptions::default();
        assume.iter().try_for_each(|text| assumed.add(text))?;
        let done = progress::run(py, progress, |progress| {
            let options = open::OpenOptions {
                access: Access::ReadOnly,
                ..self.options().opening()
            };
            // Made in the thread that uses them: they can hold a callback.
            let chosen = repair::Options {
                mode: match dry_run {
                    true => Mode::DryRun,
                    false => Mode::Apply,
                },
                assume: assumed,
                accept_loss,
                undo_dir: undo_dir.as_deref(),
                temporary,
                ..repair::Options::default()
            };
            repair::repair(path, &options, &chosen, progress)
        })?;
        let path = bandsaw::error::shown(path);
        Ok(Value::of(&RepairInfo::new(path, &done, dry_run)))
    }

    /// Undoes repairs of the image, or removes their undo data. The image must be released.
    fn finish_repair(
        &self,
        py: Python<'_>,
        undo: bool,
        undo_dir: Option<PathBuf>,
        temporary: PathBuf,
    ) -> Outcome<Value> {
        let path = self.host_path()?;
        let Undone {
            repairs,
            files,
            bytes,
            kept,
            kept_because,
        } = py.detach(|| {
            let options = open::OpenOptions {
                access: Access::ReadWrite,
                ..self.options().opening()
            };
            let chosen = repair::Options {
                undo_dir: undo_dir.as_deref(),
                temporary,
                ..repair::Options::default()
            };
            match undo {
                true => repair::undo(path, &options, &chosen),
                false => repair::commit(path, &options, &chosen),
            }
        })?;
        Ok(map! {
            "repairs": repairs,
            "files": files,
            "size": bytes,
            "kept": kept,
            "kept_because": kept_because,
        })
    }

    /// Returns names and creation times of the snapshots of a sparse bundle.
    fn snapshots(&self, py: Python<'_>) -> Outcome<Value> {
        let path = self.host_path()?;
        let found = py.detach(|| snapshot::list(path, network()))?;
        let all = found.into_iter().map(|one| {
            let created = i64::try_from(one.created).unwrap_or(i64::MAX);
            map! { "name": one.name, "created": Timestamp::from_seconds(created).to_string() }
        });
        Ok(Value::of(&all.collect::<Vec<_>>()))
    }

    /// Creates, restores or deletes a snapshot of a sparse bundle. The image must be released.
    fn change_snapshot(
        &self,
        py: Python<'_>,
        action: &str,
        name: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome {
        let path = self.host_path()?;
        progress::run(py, progress, |progress| match action {
            "create" => snapshot::create(path, name, network(), progress),
            "restore" => snapshot::restore(path, name, network(), progress),
            _ => snapshot::delete(path, name, network()),
        })
    }
}

/// Returns the format that a name states, or else that of the extension of a path.
pub(crate) fn format_of(name: Option<&str>, target: &Path) -> Result<Format> {
    if let Some(format) = named(name)? {
        return Ok(format);
    }
    Format::from_extension(target).ok_or_else(|| {
        let message = "the format does not follow from the name: state the format";
        Error::new(Kind::Invalid, "format", message).in_file(target)
    })
}

fn selector(partition: u32) -> VolumeSelector {
    VolumeSelector::Number {
        partition,
        volume: None,
    }
}
