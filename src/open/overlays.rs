//! Layers over an image: those of a stack, and shadow files, which have the same format. No layer
//! is ever opened because a file names it; the caller names all of them. Source:
//! docs/formats/stack.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::FileDraft;
use super::gate::{self, OpenedContainer};
use super::layer_metadata::{self, ParentNote};
use super::opening::Opening;
use super::place::NewMode;
use super::{FoundDisk, LAYER, Layer, OpenOptions, interrupted};
use crate::address::redacted;
use crate::container::SECTOR;
use crate::container::asif::{self, Asif, LayerKind};
use crate::container::overlay::Overlay;
use crate::container::sparsebundle::Bundle;
use crate::container::stack::{ChainLink, Identity, Role, Stack, check_chain};
use crate::device::{Access, BlockDevice, BlockDeviceExt};
use crate::size::narrow;
use crate::store::{FileMode, LocalFile, Lock, Open};
use crate::{Error, Kind, Result, platform};

pub use super::layer_metadata::LayerFile;

/// Bytes at the front of a file that identify its container.
const HEAD: usize = 16;

/// Maximum number of files of a folder that are examined to find the image below a layer.
const MAX_LOOKED_AT: usize = 10_000;

/// Options of a new layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerOptions {
    /// The role: to hold writes, or copies of the data below.
    pub role: Role,
    /// Length of the disk in bytes; `None`: that of the disk below, which is required for a cache.
    pub len: Option<u64>,
    /// Bytes of a block: 512 or 4096. `None`: the sector size of the disk below.
    pub block: Option<u32>,
    /// Replaces an existing layer or other image.
    pub overwrite: bool,
}

/// The disk below a layer, with the properties that the layer must match.
pub(crate) struct LowerDisk {
    pub(crate) disk: Arc<dyn BlockDevice>,
    /// All images of it from the bottom.
    pub(crate) links: Vec<ChainLink>,
    /// The layers of its image.
    pub(crate) layers: Vec<Layer>,
    /// The sparse bundle, if it is one without layers over it.
    pub(crate) bundle: Option<Arc<Bundle>>,
    /// The topmost image of it, if that is ASIF.
    pub(crate) top: Option<Arc<Asif>>,
    /// The record to store in a layer over it, if it has no UUID.
    pub(crate) note: Option<ParentNote>,
    /// The mode of a layer over it, which is not encrypted and holds data of the disk.
    pub(crate) mode: NewMode,
}

/// Opens the disk of an image and layers over it, with any contents: for a writer, or for another
/// layer over it.
pub(crate) fn below(path: &Path, options: &OpenOptions<'_>) -> Result<LowerDisk> {
    if let Some(missing) = options.shadows.iter().find(|shadow| is_missing(shadow)) {
        return Err(Error::new(Kind::NotFound, LAYER, "does not exist").in_file(missing));
    }
    let mut opening = Opening::new(path, options);
    let opened = if options.shadows.is_empty() {
        opening
            .disk()
            .map(|found| LowerDisk::base(path, &found, &opening.layers))
    } else {
        opening.stack(None).and_then(|(opened, below)| {
            let found = gate::pass(opened, &mut opening)?;
            Ok(LowerDisk {
                disk: found.disk,
                ..below
            })
        })
    };
    let layers = opening.layers;
    opened
        .map(|below| LowerDisk { layers, ..below })
        .map_err(|error| error.in_file(path))
}

impl Opening<'_> {
    /// Opens the image and stacks the layers of the options over it; `top` are the stored bytes of
    /// the topmost layer, if they are not those at its path.
    pub(super) fn stack(
        &mut self,
        mut top: Option<Arc<dyn BlockDevice>>,
    ) -> Result<(OpenedContainer, LowerDisk)> {
        let (path, options) = (self.path, self.options);
        refuse_twice(path, options.shadows)?;
        let base = OpenOptions {
            access: Access::ReadOnly,
            shadows: &[],
            ..options
        };
        let mut opening = Opening::new(path, &base);
        let found = opening.disk();
        self.layers.append(&mut opening.layers);
        self.warnings.append(&mut opening.warnings);
        let found = found?;
        let mut below = LowerDisk::base(path, &found, &self.layers);
        if options.access == Access::ReadWrite && self.is_secret() {
            let warning = "the image is encrypted, but its shadow file is not";
            self.warnings.push(warning.to_owned());
        }
        let mut files = Vec::new();
        for (number, shadow) in (1..).zip(options.shadows) {
            let is_top = number == options.shadows.len();
            let file = match top.take_if(|_| is_top) {
                Some(top) => layer_of(shadow, options.shadows.len(), top, options.access),
                None => layer(shadow, is_top, &options, &below),
            };
            let file = file.map_err(|error| error.in_file(shadow))?;
            self.layers.push(Layer::Overlay(file.clone()));
            self.warnings.extend(below.add(&file)?);
            files.push(file);
        }
        let overlays = files
            .into_iter()
            .map(|file| -> (Role, Arc<dyn Overlay>) { (file.role, file.image) });
        let stack = Arc::new(Stack::new(found.disk, overlays.collect(), options.access)?);
        self.layers.push(Layer::Stack(stack.clone()));
        let opened = OpenedContainer {
            format: found.format,
            disk: stack,
            store: None,
        };
        Ok((opened, below))
    }
}

impl LowerDisk {
    /// Describes the image at the bottom of a stack.
    fn base(path: &Path, found: &FoundDisk, layers: &[Layer]) -> Self {
        let top = layers.iter().find_map(Layer::asif).cloned();
        let bundle = layers.iter().find_map(Layer::bundle).cloned();
        let uuid = top.as_ref().map_or_else(Uuid::nil, |image| image.uuid());
        let link = ChainLink {
            name: redacted(&path.display().to_string()).into_owned(),
            identity: Identity {
                uuid,
                ..Identity::default()
            },
        };
        let note = top
            .is_none()
            .then(|| ParentNote::of(path, found.disk.info().len));
        let is_secret = layers.iter().any(Layer::is_secret);
        let mode =
            NewMode::AtMost(FileMode::of(path).unwrap_or(FileMode::ANY)).of_secret(is_secret);
        Self {
            disk: found.disk.clone(),
            links: vec![link],
            layers: Vec::new(),
            bundle,
            top,
            note,
            mode,
        }
    }

    /// Refuses a layer that was created over another image; returns a warning about lesser
    /// differences.
    pub(crate) fn check(&self, file: &LayerFile) -> Result<Option<String>> {
        let mut links = self.links.clone();
        links.push(file.link());
        check_chain(&links)?;
        let metadata = file.image.metadata();
        match (&self.note, layer_metadata::below(&metadata)) {
            // An interrupted commit: half of the layer is in it already, and its length may be.
            (Some(now), Some(_))
                if layer_metadata::commit(&metadata).is_some()
                    && now.size == file.image.info().len =>
            {
                Ok(None)
            }
            (Some(now), Some(then)) => now
                .compare(&then)
                .map_err(|error| error.in_file(&file.path)),
            _ => Ok(None),
        }
    }

    /// Adds a layer. A cache does not change the contents, nor the record for layers above.
    fn add(&mut self, file: &LayerFile) -> Result<Option<String>> {
        let odd = self.check(file)?;
        self.links.push(file.link());
        self.disk = file.image.clone();
        self.bundle = None;
        self.top = Some(file.image.clone());
        self.note = self.note.take().filter(|_| file.role == Role::Cache);
        Ok(odd)
    }

    /// Returns the UUID by which layers refer to it; nil if it has none.
    fn uuid(&self) -> Uuid {
        self.links
            .last()
            .map_or(Uuid::nil(), |link| link.identity.uuid)
    }

    /// Returns true if a layer over it would be directly over a cache.
    pub(crate) fn ends_with_cache(&self) -> bool {
        self.links.last().is_some_and(|link| link.identity.is_cache)
    }
}

/// Opens the layer at `path`, one of those of `options`; a missing one is created if it is to be
/// written.
fn layer(
    path: &Path,
    is_top: bool,
    options: &OpenOptions<'_>,
    below: &LowerDisk,
) -> Result<LayerFile> {
    let is_written = is_top && options.access == Access::ReadWrite;
    if is_written && is_missing(path) {
        make(
            path,
            &LayerOptions {
                role: Role::Overlay,
                len: None,
                block: None,
                overwrite: false,
            },
            below,
            None,
        )?;
    }
    let open = |access| open_one_of(options.shadows.len(), path, access);
    let file = open(if is_written {
        Access::ReadWrite
    } else {
        Access::ReadOnly
    })?;
    if file.role == Role::Overlay || is_written || options.access == Access::ReadOnly {
        return Ok(file);
    }
    drop(file);
    match open(Access::ReadWrite) {
        // A cache that cannot be written is used read-only.
        Err(error) if is_refused(&error) => open(Access::ReadOnly),
        opened => opened,
    }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn is_refused(error: &Error) -> bool {
    matches!(
        error.io_kind(),
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    )
}

/// Opens a layer without checking the image below.
pub fn open_layer(path: &Path, access: Access) -> Result<LayerFile> {
    open_one_of(1, path, access)
}

/// Opens one of several layers, which share one memory budget.
fn open_one_of(images: usize, path: &Path, access: Access) -> Result<LayerFile> {
    let (mode, lock) = match access {
        Access::ReadOnly => (Open::Read, Lock::Shared),
        Access::ReadWrite => (Open::Write, Lock::Exclusive),
    };
    let file = LocalFile::open_locked(path, mode, lock)?;
    let file = file.ok_or_else(|| Error::new(Kind::NotFound, LAYER, "does not exist"))?;
    layer_of(path, images, Arc::new(file), access)
}

/// Returns the layer in an open file.
fn layer_of(
    path: &Path,
    images: usize,
    file: Arc<dyn BlockDevice>,
    access: Access,
) -> Result<LayerFile> {
    let head = file.read_vec(
        0,
        HEAD.min(usize::try_from(file.info().len).unwrap_or(HEAD)),
    )?;
    if !asif::probe(&head) {
        return Err(Error::unsupported(
            LAYER,
            "not a layer or shadow file: expected an Apple sparse image (ASIF)",
        ));
    }
    let image = Arc::new(Asif::open(file)?.overlaid().sharing_memory(images));
    if let Some(why) = image.read_only().filter(|_| access == Access::ReadWrite) {
        return Err(Error::new(
            Kind::ReadOnly,
            LAYER,
            format!("read-only: {why}"),
        ));
    }
    let role = if image.layer().is_cache {
        Role::Cache
    } else {
        Role::Overlay
    };
    Ok(LayerFile {
        path: path.to_owned(),
        role,
        image,
    })
}

/// Creates a layer at `path` over the image at `below` and the layers of `over`, durably. Nothing
/// else is changed.
pub fn create_layer(
    path: &Path,
    below: &Path,
    over: &OpenOptions<'_>,
    options: &LayerOptions,
) -> Result<()> {
    // The end of the repair would change the disk below the layer.
    interrupted::refuse_or_warn(below, Access::ReadWrite)?;
    let below = self::below(
        below,
        &OpenOptions {
            access: Access::ReadOnly,
            ..*over
        },
    )?;
    if options.role == Role::Cache && below.links.iter().any(|link| link.identity.is_cache) {
        return Err(Error::invalid(LAYER, "the stack already has a cache").in_file(path));
    }
    make(path, options, &below, None).map_err(|error| error.in_file(path))
}

/// Creates the last of the layers of `options` over the image at `path` if it is missing, as
/// opening for writing does.
pub(crate) fn make_missing(path: &Path, options: &OpenOptions<'_>) -> Result<()> {
    let Some((last, shadows)) = options
        .shadows
        .split_last()
        .filter(|(last, _)| is_missing(last))
    else {
        return Ok(());
    };
    interrupted::refuse_or_warn(path, Access::ReadWrite)?;
    let below = self::below(
        path,
        &OpenOptions {
            access: Access::ReadOnly,
            shadows,
            ..*options
        },
    )?;
    let wanted = LayerOptions {
        role: Role::Overlay,
        len: None,
        block: None,
        overwrite: false,
    };
    make(last, &wanted, &below, None).map_err(|error| error.in_file(last))
}

/// Creates a layer that matches `below`, in place of one that must still have the UUID `old`.
pub(crate) fn make(
    path: &Path,
    options: &LayerOptions,
    below: &LowerDisk,
    old: Option<Uuid>,
) -> Result<()> {
    let info = below.disk.info();
    let len = match (options.len, options.role) {
        (Some(len), Role::Cache) if len != info.len => {
            let message = format!(
                "invalid cache size {len}: expected {}, the size of the image below",
                info.len
            );
            return Err(Error::invalid(LAYER, message));
        }
        (len, _) => len.unwrap_or(info.len),
    };
    let sectors = if info.block == 4096 && len.is_multiple_of(4096) {
        4096
    } else {
        narrow(SECTOR)
    };
    let kind = match options.role {
        Role::Overlay => LayerKind::Overlay(below.uuid()),
        Role::Cache => LayerKind::Cache(below.uuid()),
    };
    let draft = FileDraft::new(path, options.overwrite, below.mode)?;
    if let Some(old) = old {
        let file = LocalFile::open(path, Open::Read)?
            .ok_or_else(|| Error::new(Kind::NotFound, LAYER, "does not exist"))?;
        if Asif::open(Arc::new(file))?.uuid() != old {
            return Err(Error::conflict(
                LAYER,
                "another program replaced the layer meanwhile; it was not overwritten",
            ));
        }
        draft.keep_mode()?;
    }
    let wanted = asif::AsifOptions {
        len,
        block: options.block.unwrap_or(sectors),
        kind,
    };
    let image = Asif::create(draft.file().clone(), &wanted)?;
    if let Some(note) = &below.note {
        image.set_user_metadata(note.to_dictionary())?;
    }
    image.flush()?;
    drop(image);
    draft.close()
}

/// Returns the images in the folder of the layer at `path` that it may have been created over: with
/// the UUID or the file name that it records. `None`: `path` is no layer. For messages only; none
/// of them is used automatically.
pub fn candidates_below(path: &Path) -> Result<Option<Vec<PathBuf>>> {
    let layer = open_layer(path, Access::ReadOnly)?.image;
    let (parent, remembered) = (
        layer.layer().parent,
        layer_metadata::below(&layer.metadata()).map(|note| note.below),
    );
    if parent.is_nil() && remembered.is_none() {
        return Ok(None);
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let failed = |source| Error::io(LAYER, "find the image below it", source).in_file(folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)?.take(MAX_LOOKED_AT) {
        let entry = entry.map_err(failed)?;
        let is_named = remembered
            .as_ref()
            .is_some_and(|name| entry.file_name().to_str() == Some(name));
        if is_named
            || (!parent.is_nil() && uuid_of(&entry.path()).is_some_and(|uuid| uuid == parent))
        {
            let is_itself = entry.file_name() == path.file_name().unwrap_or_default();
            found.extend((!is_itself).then(|| folder.join(entry.file_name())));
        }
    }
    found.sort();
    Ok(Some(found))
}

/// Returns the UUID of the Apple sparse image at `path`, if there is a readable one.
fn uuid_of(path: &Path) -> Option<Uuid> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    asif::peek_uuid(&LocalFile::open(path, Open::Read).ok()??).ok()?
}

/// Refuses a file that is named twice: it would conflict with its own lock, or hide its own data.
fn refuse_twice(base: &Path, shadows: &[PathBuf]) -> Result<()> {
    let mut seen = Vec::new();
    for path in std::iter::once(base).chain(shadows.iter().map(PathBuf::as_path)) {
        let Ok(file) = platform::file_id(path) else {
            continue;
        }; // told when it is opened
        if seen.contains(&file) {
            return Err(Error::invalid(LAYER, "the same file is given twice").in_file(path));
        }
        seen.push(file);
    }
    Ok(())
}
