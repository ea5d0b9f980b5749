//! An open image: what it is made of, and what is on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::apfs::VolumeQuery;
use super::place::NewMode;
use super::stack::LayerFile;
use super::unlock::Keys;
use super::volume::{self, Volume};
use crate::Result;
use crate::address::VolumeSelector;
use crate::container::Format;
use crate::container::asif::Asif;
use crate::container::raw::Raw;
use crate::container::sparsebundle::Bundle;
use crate::container::sparseimage::SparseImage;
use crate::container::stack::Stack;
use crate::container::udif::Udif;
use crate::crypt;
use crate::device::BlockDevice;
use crate::fs::{FileSystem, FileSystemMut};
use crate::partition::Map;
use crate::store::{FileMode, LocalFile, Status};

/// One layer of an image.
#[derive(Debug)]
pub enum Layer {
    /// A file of the host.
    File(Arc<LocalFile>),
    /// A file behind a URL.
    Remote(Arc<dyn BlockDevice>),
    /// A folder in a bucket, and how the bundle in it stood when it was opened.
    Bucket(Status),
    /// Encryption of all that lies above. It is told of locked images too.
    Crypt(crypt::Description),
    /// A raw image: the file's bytes are the disk.
    Raw(Arc<Raw>),
    /// A sparse bundle: a folder that holds the disk.
    Bundle(Arc<Bundle>),
    /// A sparse image: the disk in bands of one file.
    SparseImage(Arc<SparseImage>),
    /// An Apple sparse image: the disk, or a layer of one, in chunks of one file.
    Asif(Arc<Asif>),
    /// A UDIF image: the disk in chunks, mostly compressed.
    Udif(Arc<Udif>),
    /// A layer over the disk below, in a file of its own.
    Overlay(LayerFile),
    /// The disk that an image and the layers over it make up.
    Stack(Arc<Stack>),
    /// The map of the disk.
    Partitions(Map),
    /// What is on the disk, or in its partitions.
    Volumes(Vec<Volume>),
}

impl Layer {
    /// The disk, if it is a container's.
    pub fn disk(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(match self {
            Self::Raw(raw) => raw.clone(),
            Self::Bundle(bundle) => bundle.clone(),
            Self::SparseImage(image) => image.clone(),
            Self::Asif(image) => image.clone(),
            Self::Udif(udif) => udif.clone(),
            Self::Stack(stack) => stack.clone(),
            // Alone a layer is none.
            Self::File(_)
            | Self::Remote(_)
            | Self::Bucket(_)
            | Self::Crypt(_)
            | Self::Overlay(_)
            | Self::Partitions(_)
            | Self::Volumes(_) => return None,
        })
    }
}

/// An open image: its layers, and the disk they make up.
#[derive(Debug)]
pub struct Image {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) layers: Vec<Layer>,
    pub(super) disk: Arc<dyn BlockDevice>,
    pub(super) warnings: Vec<String>,
}

impl Image {
    /// Where it is on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who may read a copy of it: those who may read it, and its owner only if it is encrypted and
    /// the copy may not be.
    pub fn mode_of_copy(&self) -> NewMode {
        NewMode::AtMost(FileMode::of(&self.path).unwrap_or(FileMode::ANY))
            .of_secret(self.encryption().is_some())
    }

    /// The format of its container.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its layers from the bottom.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What is odd about it without keeping it from working.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The disk in it.
    pub fn disk(&self) -> &Arc<dyn BlockDevice> {
        &self.disk
    }

    /// The sparse bundle it is, if it is one.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Bundle(bundle) => Some(&**bundle),
            _ => None,
        })
    }

    /// The sparse image it is, if it is one.
    pub fn sparse_image(&self) -> Option<&SparseImage> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::SparseImage(image) => Some(&**image),
            _ => None,
        })
    }

    /// The ASIF image it is, if it is one.
    pub fn asif(&self) -> Option<&Asif> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Asif(image) => Some(&**image),
            _ => None,
        })
    }

    /// The UDIF image it is, if it is one.
    pub fn udif(&self) -> Option<&Udif> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Udif(udif) => Some(&**udif),
            _ => None,
        })
    }

    /// The layers that lie over it, from the bottom.
    pub fn overlays(&self) -> impl Iterator<Item = &LayerFile> {
        self.layers.iter().filter_map(|layer| match layer {
            Layer::Overlay(file) => Some(file),
            _ => None,
        })
    }

    /// How it is encrypted, if it is.
    pub fn encryption(&self) -> Option<&crypt::Description> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Crypt(description) => Some(description),
            _ => None,
        })
    }

    /// The map of its disk, if that has one.
    pub fn partitions(&self) -> Option<&Map> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Partitions(map) => Some(map),
            _ => None,
        })
    }

    /// The volumes on it, also those that cannot be read.
    pub fn volumes(&self) -> &[Volume] {
        let volumes = self.layers.iter().find_map(|layer| match layer {
            Layer::Volumes(volumes) => Some(volumes.as_slice()),
            _ => None,
        });
        volumes.unwrap_or_default()
    }

    /// The selected volume; without a selector, the first of a format that is read.
    pub fn volume(&self, which: Option<&VolumeSelector>) -> Result<&Volume> {
        let found = match which {
            None => volume::first_known(self.volumes()),
            Some(selector) => volume::selected(self.volumes(), selector).map(|(volume, _)| volume),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the selected volume; without a selector, the first that can be read. An encrypted one
    /// stays locked, see [`file_system_as`](Self::file_system_as).
    pub fn file_system(&self, which: Option<&VolumeSelector>) -> Result<Arc<dyn FileSystem>> {
        self.file_system_as(which, VolumeQuery::default())
    }

    /// The same of a certain state of the volume, with somebody to ask for its key.
    pub fn file_system_as(
        &self,
        which: Option<&VolumeSelector>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        let found = match which {
            None => volume::first_readable(self.volumes(), wanted),
            Some(selector) => volume::select(self.volumes(), selector, wanted),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the selected volume for changes; without a selector, the first that can be changed.
    /// The image must be open for changes too. The volume is left clean by
    /// [`FileSystemMut::unmount`], which is worth calling: only it tells of failures.
    pub fn file_system_mut(
        &self,
        which: Option<&VolumeSelector>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        self.file_system_mut_as(which, None)
    }

    /// The same with somebody to ask for the key of an encrypted volume.
    pub fn file_system_mut_as(
        &self,
        which: Option<&VolumeSelector>,
        keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        let found = match which {
            None => volume::first_writable(self.volumes(), keys),
            Some(selector) => volume::select_mut(self.volumes(), selector, keys),
        };
        found.map_err(|error| error.in_file(&self.path))
    }
}
