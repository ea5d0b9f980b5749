//! The container of an image: detects it by its contents and opens it on the file or folder.

use std::path::Path;
use std::sync::Arc;

use super::gate::{self, OpenedContainer};
use super::guarded::Guarded;
use super::opening::Opening;
use super::read_only_image::ForkedFile;
use super::remote::RemoteTarget;
use super::resolve_lists::{self, ResolvedLists};
use super::{
    LAYER, Layer, OpenOptions, asif_directories, interrupted, layer_metadata, leftovers, remote,
    snapshot,
};
use crate::container::asif::{self, Asif};
use crate::container::mapped::MappedDisk;
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle, ChosenGeometry};
use crate::container::sparseimage::{self, SparseImage};
use crate::container::udif;
use crate::container::{
    ContainerKind, Format, apple_archive, dart, disk_copy, ewf, foreign, qcow2, vhd, vhdx, vmdk,
};
use crate::device::{Access, BlockDevice, BlockDeviceExt};
use crate::progress::Progress;
use crate::store::{Local, LocalFile, Lock, Open, Store};
use crate::{Error, Kind, Reason, Result, size};

/// Bytes at the front of a file that identify its container.
const HEAD: usize = 16;

impl Opening<'_> {
    /// Opens the bundle in the folder at the path.
    pub(super) fn folder(&mut self) -> Result<OpenedContainer> {
        self.resolved_bundle(Arc::new(Local::new(self.path)))
    }

    /// Opens the bundle in a local or remote folder. If its lists differ, the numbers that the
    /// contents confirm are used. In a bucket, only writers compare them.
    pub(super) fn resolved_bundle(&mut self, store: Arc<dyn Store>) -> Result<OpenedContainer> {
        let resolved = if self.is_far() && self.options.access == Access::ReadOnly {
            ResolvedLists::default()
        } else {
            resolve_lists::resolve_for_open(self.path, &store, &self.options, self.is_far())?
        };
        let opened = self.bundle(store, resolved.choice)?;
        self.warnings.extend(resolved.warning);
        Ok(opened)
    }

    /// Opens the bundle in a local or remote folder, by the numbers of `choice` or those of its
    /// effective list.
    pub(super) fn bundle(
        &mut self,
        store: Arc<dyn Store>,
        choice: Option<ChosenGeometry>,
    ) -> Result<OpenedContainer> {
        match self.options.image_format {
            Some(format) if format.is_folder() => {}
            Some(other) => {
                return Err(Error::new(
                    Kind::Invalid,
                    LAYER,
                    format!("is a folder, expected a file of format {other}"),
                ));
            }
            None if sparsebundle::is_bundle(&*store)? => {}
            None => {
                let message =
                    "not a sparse bundle: the folder has neither Info.plist nor Info.bckup";
                return Err(Error::unsupported(LAYER, message).because(Reason::NotABundle));
            }
        }
        let bundle = self.unlock_bundle(store.clone(), choice)?;
        self.layers.push(Layer::Bundle(bundle.clone()));
        self.warnings.extend(bundle.warnings().iter().cloned());
        Ok(OpenedContainer {
            format: Format::Udsb,
            disk: bundle,
            store: Some(store),
        })
    }

    fn unlock_bundle(
        &mut self,
        store: Arc<dyn Store>,
        choice: Option<ChosenGeometry>,
    ) -> Result<Arc<Bundle>> {
        let access = self.options.access;
        let Some(header) = sparsebundle::encryption(&*store)? else {
            return Bundle::open_chosen(store, access, choice).map(Arc::new);
        };
        let keys = self.keys(&header)?;
        let bundle = Arc::new(Bundle::open_encrypted_chosen(
            store, access, &header, &keys, choice,
        )?);
        // A bundle's header does not hold the length of the encrypted data.
        if let Some(Layer::Crypt(description)) = self.layers.last_mut() {
            description.data_size = bundle.info().len;
        }
        Ok(bundle)
    }

    /// Locks and opens the file at the path.
    pub(super) fn locked_file(&mut self) -> Result<OpenedContainer> {
        let file = lock_file(self.path, self.options.access)?;
        self.layers.push(Layer::File(file.clone()));
        self.file(file)
    }

    /// Opens the container in a local or remote file.
    pub(super) fn file(&mut self, file: Arc<dyn BlockDevice>) -> Result<OpenedContainer> {
        let plain = self.unlock(file)?;
        let forked = self.forks(plain)?;
        let format = match self.options.image_format {
            Some(format) => format,
            None => self.detect(&forked)?,
        };
        let plain = forked.data.clone();
        let disk: Arc<dyn BlockDevice> = match format.container() {
            ContainerKind::Bundle => {
                let message = "is a file, expected a folder (UDSB)";
                return Err(Error::new(Kind::Invalid, LAYER, message));
            }
            ContainerKind::Raw => self.raw(plain),
            ContainerKind::SparseImage => {
                let image = Arc::new(SparseImage::open(plain)?);
                self.layers.push(Layer::SparseImage(image.clone()));
                image
            }
            ContainerKind::Asif => self.asif(plain)?,
            ContainerKind::Udif => return self.udif(plain),
            ContainerKind::ReadOnly => self.mapped(&forked, format)?,
        };
        Ok(OpenedContainer {
            format,
            disk,
            store: None,
        })
    }

    fn raw(&mut self, file: Arc<dyn BlockDevice>) -> Arc<Raw> {
        let file = match self.decrypted.clone() {
            Some(device) => Arc::new(Guarded::encrypted(device)),
            None => file,
        };
        let raw = Arc::new(Raw::new(file));
        self.layers.push(Layer::Raw(raw.clone()));
        if raw.trailing() > 0 {
            self.warnings.push(format!(
                "{} after the last whole sector: ignored",
                size::counted(raw.trailing(), "byte", "bytes")
            ));
        }
        raw
    }

    fn asif(&mut self, file: Arc<dyn BlockDevice>) -> Result<Arc<Asif>> {
        let access = self.options.access;
        let mut image = match Asif::open(file.clone()) {
            Ok(image) => image,
            Err(error) => match asif_directories::that_loads(&file)? {
                Some((other, why)) if access == Access::ReadWrite => {
                    return Err(asif_directories::refusal(&other, why));
                }
                Some((other, why)) => {
                    self.warnings.push(why);
                    other
                }
                None => return Err(error),
            },
        };
        if self.is_encrypted() {
            image = image.encrypted();
        }
        let image = Arc::new(image);
        self.layers.push(Layer::Asif(image.clone()));
        stands_alone(&image)?;
        match image.read_only() {
            Some(why) if access == Access::ReadWrite => Err(Error::new(
                Kind::ReadOnly,
                LAYER,
                format!("read-only: {why}; convert the image to change it"),
            )),
            _ => Ok(image),
        }
    }

    fn mapped(&mut self, file: &ForkedFile, format: Format) -> Result<Arc<MappedDisk>> {
        let disk = Arc::new(self.read_only_image(file, format)?);
        self.layers.push(Layer::Mapped(disk.clone()));
        if self.options.access == Access::ReadWrite {
            let advice = match format {
                Format::Aar => "extract it to change the files",
                _ => "convert the image to change it",
            };
            let message = format!(
                "read-only format: {} ({format}); {advice}",
                format.description()
            );
            return Err(Error::new(Kind::ReadOnly, LAYER, message));
        }
        Ok(disk)
    }

    /// The exact UDIF format follows from the chunks, even if another was named.
    fn udif(&mut self, file: Arc<dyn BlockDevice>) -> Result<OpenedContainer> {
        let udif = Arc::new(self.udif_set(file)?);
        let format = udif.format();
        self.layers.push(Layer::Udif(udif.clone()));
        if self.options.access == Access::ReadWrite {
            let message = format!(
                "read-only format: {} ({format}); convert the image to change it",
                format.description()
            );
            return Err(Error::new(Kind::ReadOnly, LAYER, message));
        }
        self.warnings.extend(udif.warnings());
        Ok(OpenedContainer {
            format,
            disk: udif,
            store: None,
        })
    }
}

/// Opens the sparse bundle at `path` for a change of its bands, without the layers above it, and
/// returns warnings as well. `check` examines the bundle with its disk after the gate.
/// [`Kind::Unsupported`] if it is none; [`Kind::Undecided`] as for
/// [`open`](super::open()), and if bands past the end of the disk are not accounted for.
pub(crate) fn open_bundle<F>(
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
    check: F,
) -> Result<(Bundle, Vec<String>)>
where
    F: FnOnce(&Bundle, &Arc<dyn BlockDevice>) -> Result<()>,
{
    match files(path, options)? {
        Some(store) if sparsebundle::is_bundle(&*store)? => {
            interrupted::refuse_or_warn(path, options.access)?;
            let resolved = resolve_lists::resolve_for_open(path, &store, options, true)?;
            let bundle =
                Opening::new(path, options).unlock_bundle(store.clone(), resolved.choice)?;
            let opened = OpenedContainer {
                format: Format::Udsb,
                disk: bundle.clone(),
                store: Some(store),
            };
            let mut opening = Opening::new(path, options);
            opening.warnings.extend(resolved.warning);
            let found = gate::pass(opened, &mut opening)?;
            leftovers::check_leftovers(&bundle, &found.disk, options, progress)?;
            check(&bundle, &found.disk)?;
            drop(found);
            let warnings = opening.warnings;
            let bundle = Arc::into_inner(bundle).ok_or_else(|| {
                let message = "the image is still being examined";
                Error::new(Kind::Conflict, LAYER, message)
            })?;
            Ok((bundle, warnings))
        }
        _ => Err(Error::unsupported(
            LAYER,
            "not a sparse bundle: only bundles have band files",
        )),
    }
}

/// Opens the folder at `path`, which may be in a bucket; it need not be a sparse bundle. `None`: it
/// is a file.
pub(crate) fn files(path: &Path, options: &OpenOptions<'_>) -> Result<Option<Arc<dyn Store>>> {
    Ok(match remote::find(path, options)? {
        Some(RemoteTarget::Folder(store, _) | RemoteTarget::Snapshot(store)) => Some(store),
        Some(RemoteTarget::File(_)) => None,
        None if super::look_at(path)?.is_dir() => Some(Arc::new(Local::new(path))),
        None => None,
    })
}

/// Opens a file of the host and locks it: shared for reading, exclusive for writing.
pub(crate) fn lock_file(path: &Path, access: Access) -> Result<Arc<LocalFile>> {
    let (mode, lock) = match access {
        Access::ReadOnly => (Open::Read, Lock::Shared),
        Access::ReadWrite => (Open::Write, Lock::Exclusive),
    };
    let file = LocalFile::open_locked(path, mode, lock)?;
    file.map(Arc::new).ok_or_else(|| {
        Error::new(Kind::NotFound, LAYER, "does not exist").because(Reason::NoSuchImage)
    })
}

/// A function that recognizes a format by its first or last bytes.
type Probe = fn(&dyn BlockDevice) -> Result<bool>;

/// Returns the container format of the bytes of `file`. Bytes without a known signature are a raw
/// image.
pub(crate) fn detect_container(file: &dyn BlockDevice) -> Result<Format> {
    let head = file.read_vec(
        0,
        HEAD.min(usize::try_from(file.info().len).unwrap_or(HEAD)),
    )?;
    // Before the trailer of UDIF: the disk of a sparse image may itself end with a UDIF trailer.
    if sparseimage::probe(&head) {
        return Ok(Format::Udsp);
    }
    if asif::probe(&head) {
        return Ok(Format::Asif);
    }
    if udif::probe(file)? {
        return Ok(Format::Udro); // or another of its kinds, as its chunks tell
    }
    let probes: [(Format, Probe); 8] = [
        (Format::Qcow2, qcow2::probe),
        (Format::Vhdx, vhdx::probe),
        (Format::Vmdk, vmdk::probe),
        (Format::Ewf, |file| Ok(ewf::probe(file)?.is_some())),
        (Format::Vhd, vhd::probe),
        (Format::Dc42, disk_copy::probe),
        (Format::Dart, dart::probe),
        (Format::Aar, apple_archive::probe),
    ];
    for (format, probe) in probes {
        if probe(file)? {
            return Ok(format);
        }
    }
    foreign::recognize(file)?.map_or(Ok(Format::Udrw), |foreign| Err(foreign.refusal()))
}

/// Refuses a layer of a stack: without the images below, it would read as zeros.
pub(crate) fn stands_alone(image: &Asif) -> Result<()> {
    let remembered = layer_metadata::below(&image.metadata()).map(|note| note.below);
    if !image.layer().is_overlaid && remembered.is_none() {
        return Ok(());
    }
    let below =
        remembered.unwrap_or_else(|| format!("the image with UUID {}", image.layer().parent));
    let what = if image.layer().is_cache {
        "a cache of"
    } else {
        "a layer over"
    };
    Err(Error::new(
        Kind::NotFound,
        LAYER,
        format!("not a complete disk: {what} {below}"),
    )
    .because(Reason::LayerAlone))
}

/// Returns a warning if the extension of an image's name belongs to another format. Detection uses
/// the contents only.
pub(super) fn misnamed(path: &Path, format: Format) -> Option<String> {
    // Text after an `@` may be a snapshot's name.
    let is_snapshot = path.to_str().is_some_and(|text| {
        snapshot::cuts(text).any(|(bundle, _)| format.fits_name(Path::new(bundle)))
    });
    let extension = path
        .extension()
        .filter(|_| !format.fits_name(path) && !is_snapshot)?;
    Some(format!(
        "the format is {format} ({}), but the name ends in .{}",
        format.description(),
        extension.display()
    ))
}
