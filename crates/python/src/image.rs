//! An open image as a native object: opening, layers, volumes. `operations.rs` has what is done with it as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::address::VolumeSelector;
use bandsaw::device::BlockDevice;
use bandsaw::open::{self, Image, Layer, OpenOptions, VolumeQuery};
use bandsaw::ops::describe::{ImageInfo, VolumeInfo};
use bandsaw::ops::space::{FreeSpace, SpaceMap};
use bandsaw::sync::RwLock;
use bandsaw::{Error, Kind, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::detached::{Detached, Shared};
use crate::device::Device;
use crate::failure::Outcome;
use crate::file_object;
use crate::options::{ImageOptions, KeyRing, named};
use crate::progress;
use crate::value::{Value, map};
use crate::volume::{NativeVolume, OpenVolume};

/// An image, and how to open it again. All methods may be called by several threads at the same time.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct NativeImage {
    place: ImageSource,
    options: ImageOptions,
    /// `None` while released, and once closed.
    image: RwLock<Option<Shared<Image>>>,
}

/// The place of an image.
#[derive(Debug, Clone)]
pub(crate) enum ImageSource {
    /// A path of the host or a URL.
    Path(PathBuf),
    /// A device, and the name that stands for it.
    Device(Arc<dyn BlockDevice>, PathBuf),
}

impl ImageSource {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Device(_, path) => path,
        }
    }

    fn open(&self, options: &OpenOptions<'_>) -> Result<Image> {
        match self {
            Self::Path(path) => open::open(path, options),
            Self::Device(device, name) => open::open_device(device.clone(), name, options),
        }
    }
}

impl NativeImage {
    pub(crate) fn image(&self) -> Outcome<Shared<Image>> {
        let image = self.image.read().clone();
        Ok(image.ok_or_else(|| PyValueError::new_err("the image is closed"))?)
    }

    pub(crate) fn source(&self) -> &ImageSource {
        &self.place
    }

    pub(crate) fn options(&self) -> &ImageOptions {
        &self.options
    }

    /// Returns the path, for operations that open the image themselves.
    pub(crate) fn host_path(&self) -> Outcome<&Path> {
        match &self.place {
            ImageSource::Path(path) => Ok(path),
            ImageSource::Device(_, name) => {
                let message = "the operation requires an image that is a file";
                Err(Error::unsupported("image", message).in_file(name).into())
            }
        }
    }
}

#[pymethods]
impl NativeImage {
    /// Opens the image at a path or URL, or in an object if `source` is given.
    #[new]
    #[pyo3(signature = (path, source, descriptor, *, writable, format, passphrase, key, signer, shadows, checkpoint, logical_volume, physical_volumes, system_files))]
    #[expect(clippy::too_many_arguments, reason = "the options of opening")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        source: Option<&Bound<'_, PyAny>>,
        descriptor: Option<i32>,
        writable: bool,
        format: Option<&str>,
        passphrase: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        signer: Option<Vec<u8>>,
        shadows: Vec<PathBuf>,
        checkpoint: Option<u64>,
        logical_volume: Option<String>,
        physical_volumes: Vec<PathBuf>,
        system_files: bool,
    ) -> Outcome<Self> {
        let place = match source {
            Some(source) => ImageSource::Device(file_object::device(source, descriptor)?, path),
            None => ImageSource::Path(path),
        };
        let image = Self {
            place,
            options: ImageOptions {
                writable,
                format: named(format)?,
                keys: KeyRing::new(passphrase, key, signer),
                shadows,
                checkpoint,
                logical_volume,
                physical_volumes,
                system_files,
            },
            image: RwLock::new(None),
        };
        image.reopen(py)?;
        Ok(image)
    }

    /// Closes the image, so that an operation can open it.
    fn release(&self) {
        // In a variable, so that it is not dropped while the lock is held: what it drops may call Python.
        let image = self.image.write().take();
        drop(image);
    }

    /// Opens the image as it was opened before.
    fn reopen(&self, py: Python<'_>) -> Outcome {
        let image = py.detach(|| self.place.open(&self.options.opening()))?;
        let before = self.image.write().replace(Detached::shared(image));
        // As in `release`.
        drop(before);
        Ok(())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.image.read().is_none()
    }

    #[getter]
    fn writable(&self) -> bool {
        self.options.writable
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.place.path().to_owned()
    }

    #[getter]
    fn format(&self) -> Outcome<&'static str> {
        Ok(self.image()?.format().code())
    }

    #[getter]
    fn encrypted(&self) -> Outcome<bool> {
        Ok(self.image()?.layers().iter().any(Layer::is_secret))
    }

    #[getter]
    fn warnings(&self) -> Outcome<Vec<String>> {
        Ok(self.image()?.warnings().to_vec())
    }

    /// Returns the kinds of the layers, from the bottom.
    #[getter]
    fn layers(&self) -> Outcome<Vec<&'static str>> {
        let image = self.image()?;
        let name = |layer: &Layer| match (layer, &self.place) {
            (Layer::Remote(_), ImageSource::Device(..)) => "file_object",
            _ => layer.code(),
        };
        Ok(image.layers().iter().map(name).collect())
    }

    /// Returns the disk.
    fn disk(&self) -> Outcome<Device> {
        Ok(Device::new(self.image()?.disk().clone()))
    }

    /// Returns all properties, in the words of the JSON output.
    fn info(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> Outcome<Value> {
        let image = self.image()?;
        progress::run(py, progress, |progress| {
            let mut info = ImageInfo::of(&image, progress)?;
            let damage = info.damage.as_ref().map(ToString::to_string);
            info.warnings.extend(damage);
            Ok(Value::of(&info))
        })
    }

    /// Returns the properties of all volumes.
    fn volumes(&self, py: Python<'_>) -> Outcome<Value> {
        let image = self.image()?;
        Ok(py.detach(|| {
            let volumes = image.volumes().iter().flat_map(VolumeInfo::all);
            Value::of(&volumes.collect::<Vec<_>>())
        }))
    }

    /// Opens a volume by the number of its partition, and by its number in an APFS container.
    fn open_volume(
        &self,
        py: Python<'_>,
        partition: Option<u32>,
        number: Option<u32>,
        snapshot: Option<&str>,
        writable: bool,
    ) -> Outcome<NativeVolume> {
        let image = self.image()?;
        let which = VolumeSelector::Number {
            partition: partition.unwrap_or(1),
            volume: number,
        };
        let opened = py.detach(|| -> Result<OpenVolume> {
            if writable && snapshot.is_none() {
                let changes = image.file_system_mut_as(Some(&which), Some(&self.options.keys))?;
                return Ok(OpenVolume {
                    fs: changes.clone(),
                    changes: Some(changes),
                });
            }
            let query = VolumeQuery {
                snapshot,
                keys: Some(&self.options.keys),
            };
            let fs = image.file_system_as(Some(&which), query)?;
            Ok(OpenVolume { fs, changes: None })
        })?;
        Ok(NativeVolume::new(opened))
    }

    /// Returns the units of the disk that have storage; `None` for formats without such units.
    fn units(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> Outcome<Value> {
        let image = self.image()?;
        let found = progress::run(py, progress, |progress| {
            SpaceMap::of(&image, &FreeSpace::of(&image), progress)
        })?;
        Ok(found.map_or(Value::default(), |found| {
            let units = found.units.iter().map(|unit| {
                map! {
                    "index": unit.index,
                    "allocated": unit.allocated,
                    "free": unit.free,
                    "reclaimable": unit.returns,
                }
            });
            map! {
                "unit": found.kind.words().0,
                "unit_size": found.size,
                "units": found.count(),
                "list": units.collect::<Vec<_>>(),
            }
        }))
    }
}

/// Returns the error about a format that cannot be changed in place.
pub(crate) fn read_only(image: &Image) -> Error {
    Error::new(Kind::ReadOnly, "image", "the image is open read-only").in_file(image.path())
}
