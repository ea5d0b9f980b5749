//! The opening of an image, layer by layer: stored bytes, encryption, container, and what is on its
//! disk.

use std::path::Path;
use std::sync::Arc;

use super::gate::{self, OpenedContainer};
use super::remote::RemoteTarget;
use super::unlock;
use super::{
    FoundDisk, Image, LAYER, Layer, OpenOptions, StoredImage, asif_directories, container,
    interrupted, look_at, remote,
};
use crate::crypt::{Device, KeyMaterial, LockedHeader};
use crate::device::{Access, BlockDevice, ReadOnlyView};
use crate::{Error, Kind, Result};

/// An image that is being opened, with what was found so far. The steps are methods, also of
/// `container.rs`, `overlays.rs` and `disk.rs`.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    pub(super) path: &'a Path,
    pub(super) options: OpenOptions<'a>,
    /// The layers found, from the bottom.
    pub(super) layers: Vec<Layer>,
    pub(super) warnings: Vec<String>,
    /// The contents of the file, if it is encrypted and unlocked.
    pub(super) decrypted: Option<Arc<Device>>,
    /// True if the disk is the decrypted contents of an encrypted logical volume.
    pub(super) is_unlocked: bool,
}

impl<'a> Opening<'a> {
    pub(super) fn new(path: &'a Path, options: &OpenOptions<'a>) -> Self {
        Self {
            path,
            options: *options,
            layers: Vec::new(),
            warnings: Vec::new(),
            decrypted: None,
            is_unlocked: false,
        }
    }

    /// Opens all layers.
    pub(super) fn open(&mut self) -> Result<FoundDisk> {
        let found = self.disk()?;
        self.contents(found)
    }

    /// Opens all layers of the image in `device`.
    pub(super) fn open_device(&mut self, device: Arc<dyn BlockDevice>) -> Result<FoundDisk> {
        if self.options.access == Access::ReadWrite {
            return Err(Error::read_only(LAYER));
        }
        if !self.options.shadows.is_empty() {
            let message = "layers require an image that is a file";
            return Err(Error::unsupported(LAYER, message));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(ReadOnlyView(device));
        self.layers.push(Layer::Remote(device.clone()));
        let opened = self.file(device)?;
        let found = gate::pass(opened, self)?;
        self.contents(found)
    }

    /// Opens what is on a disk.
    fn contents(&mut self, mut found: FoundDisk) -> Result<FoundDisk> {
        if let Some(section) = self.options.section {
            found.disk = section.of(found.disk)?;
        }
        if let Some(name) = self.options.logical_volume {
            self.use_logical_volume(&mut found, name)?;
        }
        self.survey(&found)?;
        let is_empty = self.layers.iter().all(|layer| {
            layer.partitions().is_none() && layer.volumes().is_none_or(<[_]>::is_empty)
        });
        if is_empty
            && self.options.shadows.is_empty()
            && self.options.section.is_none()
            && self.options.logical_volume.is_none()
        {
            self.use_other_directory(&mut found)?;
        }
        Ok(found)
    }

    pub(super) fn into_image(self, found: FoundDisk) -> Image {
        Image {
            path: self.path.to_owned(),
            format: found.format,
            layers: self.layers,
            disk: found.disk,
            warnings: self.warnings,
            is_unlocked: self.is_unlocked,
        }
    }

    /// Opens the disk, with any contents, and the layers over it that the options name. It has
    /// passed the gate.
    pub(super) fn disk(&mut self) -> Result<FoundDisk> {
        if !self.options.shadows.is_empty() {
            let (opened, _) = self.stack(None)?;
            return gate::pass(opened, self);
        }
        let opened = self.stored_container();
        // The undo data of an interrupted repair explains sources that disagree.
        let interrupted = match &opened {
            Err(error) if error.kind() != Kind::Undecided => None,
            _ => interrupted::refuse_or_warn(self.path, self.options.access)?,
        };
        let opened = opened?;
        self.warnings.extend(interrupted);
        if self.options.image_format.is_none() {
            let misnamed = container::misnamed(self.path, opened.format);
            self.warnings.extend(misnamed);
        }
        gate::pass(opened, self)
    }

    /// Opens the container at the path, here or elsewhere.
    fn stored_container(&mut self) -> Result<OpenedContainer> {
        match remote::find(self.path, &self.options)? {
            Some(RemoteTarget::Folder(store, status)) => {
                self.layers.push(Layer::Bucket(status));
                self.resolved_bundle(store)
            }
            Some(RemoteTarget::Snapshot(store)) => self.resolved_bundle(store),
            Some(RemoteTarget::File(file)) => {
                self.layers.push(Layer::Remote(file.clone()));
                self.file(file)
            }
            None if look_at(self.path)?.is_dir() => self.folder(),
            None => self.locked_file(),
        }
    }

    /// Opens the container in these stored bytes. If layers are named, the bytes are those of the
    /// topmost.
    pub(super) fn container(&mut self, stored: StoredImage) -> Result<OpenedContainer> {
        match stored {
            StoredImage::File(file) if !self.options.shadows.is_empty() => {
                self.stack(Some(file)).map(|(opened, _)| opened)
            }
            StoredImage::Folder(store) => self.bundle(store, None),
            StoredImage::File(file) => self.file(file),
        }
    }

    /// Reads an ASIF image with its other directory if nothing is found with the active one. Fails
    /// with [`Kind::Undecided`] if it is to be written.
    fn use_other_directory(&mut self, found: &mut FoundDisk) -> Result<()> {
        let mut layers = self.layers.iter().enumerate();
        let Some((at, image)) = layers.find_map(|(at, layer)| Some((at, layer.asif()?))) else {
            return Ok(());
        };
        let Some((other, why)) = asif_directories::that_opens(image)? else {
            return Ok(());
        };
        if self.options.access == Access::ReadWrite {
            return Err(asif_directories::refusal(&other, why));
        }
        self.layers.truncate(at);
        self.layers.push(Layer::Asif(other.clone()));
        self.warnings.push(why);
        found.disk = other;
        self.survey(found)
    }

    /// Returns true if a layer of the image is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.layers.iter().any(|layer| layer.encryption().is_some())
    }

    /// Returns true if the image is in a bucket.
    pub(super) fn is_far(&self) -> bool {
        self.layers.iter().any(Layer::is_bucket)
    }

    /// Returns the plain bytes of `file`: its own, or its decrypted contents, those of an archive
    /// included.
    pub(super) fn unlock(&mut self, file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let file = self.archive(file)?;
        let Some(locked) = LockedHeader::read(&*file)? else {
            return Ok(file);
        };
        let version = locked.describe().version;
        let keys = self.keys(&locked)?;
        let plain = Arc::new(Device::new(file, locked, &keys)?);
        if self.options.access == Access::ReadWrite && plain.info().access == Access::ReadOnly {
            let message = format!("encryption version {version} is read-only");
            return Err(Error::new(Kind::ReadOnly, "encryption", message));
        }
        self.decrypted = Some(plain.clone());
        Ok(plain)
    }

    /// Returns the keys behind a header. Its layer is recorded even if unlocking fails.
    pub(super) fn keys(&mut self, locked: &LockedHeader) -> Result<KeyMaterial> {
        let description = locked.describe();
        self.layers.push(Layer::Crypt(description.clone()));
        locked.unlock_with(&unlock::key(&description, self.options.keys)?)
    }
}
