//! The container of an image: detects it by its contents and opens it on the file or folder.

use std::path::Path;
use std::sync::Arc;

use super::gate::{self, Opened};
use super::lists::{self, Settled};
use super::remote::Elsewhere;
use super::{
    LAYER, Layer, OpenOptions, directories, interrupted, layer_metadata, remote, snapshot,
    split_files, unlock,
};
use crate::container::asif::{self, Asif};
use crate::container::raw::Raw;
use crate::container::sparsebundle::{self, Bundle, Choice};
use crate::container::sparseimage::{self, SparseImage};
use crate::container::udif::{self, Udif};
use crate::container::{Format, foreign};
use crate::device::{Access, BlockDevice, BlockDeviceExt};
use crate::progress::Progress;
use crate::store::{Local, LocalFile, Lock, Open, Store};
use crate::{Error, Kind, Reason, Result};

/// Bytes at the front of a file that identify its container.
const HEAD: usize = 16;

pub(super) fn open_folder(
    path: &Path,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    open_settled(path, Arc::new(Local::new(path)), options, layers)
}

/// Opens the bundle in a local or remote folder. If its lists differ, the numbers that the contents
/// confirm are used. In a bucket, only writers compare them.
pub(super) fn open_settled(
    path: &Path,
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    let is_far = layers.iter().any(|layer| matches!(layer, Layer::Bucket(_)));
    let settled = if is_far && options.access == Access::ReadOnly {
        Settled::default()
    } else {
        lists::settle(path, &store, options)?
    };
    let mut opened = open_with(store, options, settled.choice, layers)?;
    opened.warnings.extend(settled.warning);
    Ok(opened)
}

/// Opens the bundle in a local or remote folder by its effective list.
pub(super) fn open_store(
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    open_with(store, options, None, layers)
}

fn open_with(
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    choice: Option<Choice>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    match options.image_format {
        Some(Format::Udsb) => {}
        Some(other) => {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                format!("is a folder, expected a file of format {other}"),
            ));
        }
        None if sparsebundle::is_bundle(&*store)? => {}
        None => {
            let message = "not a sparse bundle: the folder has neither Info.plist nor Info.bckup";
            return Err(Error::unsupported(LAYER, message).because(Reason::NotABundle));
        }
    }
    let bundle = unlock_bundle(store.clone(), options, choice, layers)?;
    layers.push(Layer::Bundle(bundle.clone()));
    Ok(Opened {
        format: Format::Udsb,
        warnings: bundle.warnings().to_vec(),
        disk: bundle,
        store: Some(store),
    })
}

fn unlock_bundle(
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    choice: Option<Choice>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<Bundle>> {
    let Some(header) = sparsebundle::encryption(&*store)? else {
        return Bundle::open_chosen(store, options.access, choice).map(Arc::new);
    };
    let keys = unlock::keys(&header, options, layers)?;
    let bundle = Arc::new(Bundle::open_encrypted_chosen(
        store,
        options.access,
        &header,
        &keys,
        choice,
    )?);
    // A bundle's header does not hold the length of the encrypted data.
    if let Some(Layer::Crypt(description)) = layers.last_mut() {
        description.data_size = bundle.info().len;
    }
    Ok(bundle)
}

/// Opens the sparse bundle at `path` for a change of its bands, without the layers above it, and
/// returns warnings as well. [`Kind::Unsupported`] if it is none; [`Kind::Undecided`] as for
/// [`open`](super::open()), and if bands past the end of the disk are not accounted for.
pub(crate) fn open_bundle(
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<(Bundle, Vec<String>)> {
    match files(path, options)? {
        Some(store) if sparsebundle::is_bundle(&*store)? => {
            interrupted::check(path, options.access)?;
            let settled = lists::settle(path, &store, options)?;
            let bundle = unlock_bundle(store.clone(), options, settled.choice, &mut Vec::new())?;
            let opened = Opened {
                format: Format::Udsb,
                disk: bundle.clone(),
                warnings: settled.warning.into_iter().collect(),
                store: Some(store),
            };
            let found = gate::pass(path, opened, options, &[])?;
            gate::check_leftovers(&bundle, &found.disk, options, progress)?;
            let warnings = found.into_warnings();
            let bundle = Arc::into_inner(bundle).ok_or_else(|| {
                Error::new(
                    Kind::Conflict,
                    LAYER,
                    "the image is still being \
                                                                  examined",
                )
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
        Some(Elsewhere::Folder(store, _) | Elsewhere::Snapshot(store)) => Some(store),
        Some(Elsewhere::File(_)) => None,
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
    file.map(Arc::new)
        .ok_or_else(|| Error::new(Kind::NotFound, LAYER, "does not exist"))
}

pub(super) fn open_file(
    path: &Path,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    let file = lock_file(path, options.access)?;
    layers.push(Layer::File(file.clone()));
    open_bytes(path, file, options, layers)
}

/// Opens the container in a local or remote file.
pub(super) fn open_bytes(
    path: &Path,
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    let file = unlock::unlock(file, options, layers)?;
    let format = match options.image_format {
        Some(format) => format,
        None => detect_container(&*file)?,
    };
    if format.is_udif() {
        let udif = split_files::open(path, file, options, layers)?;
        return open_udif(udif, options.access, layers);
    }
    open_in(file, format, options.access, layers)
}

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
    foreign::recognize(file)?.map_or(Ok(Format::Udrw), |foreign| Err(foreign.refusal()))
}

/// Opens the container in `file`, which may be the decrypted contents of a file.
pub(super) fn open_in(
    file: Arc<dyn BlockDevice>,
    format: Format,
    access: Access,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    match format {
        Format::Udsb => Err(Error::new(
            Kind::Invalid,
            LAYER,
            "is a file, expected a folder (UDSB)",
        )),
        Format::Udrw | Format::Udto => Ok(open_raw(file, format, layers)),
        Format::Udsp => {
            let image = Arc::new(SparseImage::open(file)?);
            layers.push(Layer::SparseImage(image.clone()));
            Ok(Opened {
                format,
                warnings: Vec::new(),
                disk: image,
                store: None,
            })
        }
        Format::Asif => open_asif(file, access, layers),
        Format::Udro | Format::Udco | Format::Udzo | Format::Udbz | Format::Ulfo | Format::Ulmo => {
            open_udif(Udif::open(file)?, access, layers)
        }
    }
}

fn open_raw(file: Arc<dyn BlockDevice>, format: Format, layers: &mut Vec<Layer>) -> Opened {
    let raw = Arc::new(Raw::new(file));
    layers.push(Layer::Raw(raw.clone()));
    let warnings = match raw.trailing() {
        0 => Vec::new(),
        odd => vec![format!(
            "the last {odd} bytes are not a whole sector and are ignored"
        )],
    };
    Opened {
        format,
        warnings,
        disk: raw,
        store: None,
    }
}

fn open_asif(
    file: Arc<dyn BlockDevice>,
    access: Access,
    layers: &mut Vec<Layer>,
) -> Result<Opened> {
    let (mut image, warning) = match Asif::open(file.clone()) {
        Ok(image) => (image, None),
        Err(error) => match directories::that_loads(&file)? {
            Some((other, why)) if access == Access::ReadWrite => {
                return Err(directories::refusal(&other, why));
            }
            Some((other, why)) => (other, Some(why)),
            None => return Err(error),
        },
    };
    if layers.iter().any(|layer| matches!(layer, Layer::Crypt(_))) {
        image = image.encrypted();
    }
    let image = Arc::new(image);
    layers.push(Layer::Asif(image.clone()));
    stands_alone(&image)?;
    match image.read_only() {
        Some(why) if access == Access::ReadWrite => Err(Error::new(
            Kind::ReadOnly,
            LAYER,
            format!("read-only: {why}"),
        )),
        _ => Ok(Opened {
            format: Format::Asif,
            warnings: warning.into_iter().collect(),
            disk: image,
            store: None,
        }),
    }
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
    ))
}

/// The exact UDIF format follows from the chunks, even if another was named.
fn open_udif(udif: Udif, access: Access, layers: &mut Vec<Layer>) -> Result<Opened> {
    let udif = Arc::new(udif);
    let format = udif.format();
    layers.push(Layer::Udif(udif.clone()));
    if access == Access::ReadWrite {
        let message = format!("read-only format: {} ({format})", format.description());
        return Err(Error::new(Kind::ReadOnly, LAYER, message));
    }
    Ok(Opened {
        format,
        warnings: udif.warnings(),
        disk: udif,
        store: None,
    })
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
