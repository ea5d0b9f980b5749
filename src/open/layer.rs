//! The layers of an image.

use std::sync::Arc;

use super::layer_metadata::LayerFile;
use super::volume::Volume;
use crate::container::Format;
use crate::container::asif::Asif;
use crate::container::mapped::MappedDisk;
use crate::container::raw::Raw;
use crate::container::sparsebundle::Bundle;
use crate::container::sparseimage::SparseImage;
use crate::container::stack::Stack;
use crate::container::udif::Udif;
use crate::crypt;
use crate::crypt::aea::{Archive, ArchiveDescription};
use crate::device::BlockDevice;
use crate::partition::Map;
use crate::store::{LocalFile, Status};

/// One layer of an image.
#[derive(Debug)]
pub enum Layer {
    /// A file of the host.
    File(Arc<LocalFile>),
    /// A file behind a URL, or a device of the caller.
    Remote(Arc<dyn BlockDevice>),
    /// A folder in a bucket, and the status of the bundle in it when it was opened.
    Bucket(Status),
    /// An encrypted or signed archive that contains all layers above. Also present for locked ones.
    Archive(ArchiveLayer),
    /// Encryption of all layers above. Also present for locked images.
    Crypt(crypt::Description),
    /// A raw image: the disk, byte for byte.
    Raw(Arc<Raw>),
    /// A sparse bundle: a folder that holds the disk.
    Bundle(Arc<Bundle>),
    /// A sparse image: the disk in bands of one file.
    SparseImage(Arc<SparseImage>),
    /// An Apple sparse image: the disk, or a layer of one, in chunks of one file.
    Asif(Arc<Asif>),
    /// A UDIF image: the disk in chunks, mostly compressed.
    Udif(Arc<Udif>),
    /// An image of another format that is only read.
    Mapped(Arc<MappedDisk>),
    /// An overlay over the disk below, in a file of its own.
    Overlay(LayerFile),
    /// The disk that an image and the layers over it form.
    Stack(Arc<Stack>),
    /// The partition map of the disk.
    Partitions(Map),
    /// The contents of the disk, or of its partitions.
    Volumes(Vec<Volume>),
}

/// An encrypted or signed archive that contains an image.
#[derive(Debug, Clone)]
pub struct ArchiveLayer {
    /// The properties, as far as they are known.
    pub description: ArchiveDescription,
    /// The contents; `None`: the archive is locked.
    pub contents: Option<Arc<Archive>>,
}

impl Layer {
    /// Returns the name of the kind for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Remote(_) => "remote_file",
            Self::Bucket(_) => "bucket",
            Self::Archive(_) => "archive",
            Self::Crypt(_) => "encryption",
            Self::Raw(_) => "raw",
            Self::Bundle(_) => "sparse_bundle",
            Self::SparseImage(_) => "sparse_image",
            Self::Asif(_) => "asif",
            Self::Udif(_) => "udif",
            Self::Mapped(_) => "read_only_image",
            Self::Overlay(_) => "overlay",
            Self::Stack(_) => "stack",
            Self::Partitions(_) => "partition_map",
            Self::Volumes(_) => "volumes",
        }
    }

    /// Returns the disk, if the layer is a container.
    pub fn disk(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(match self {
            Self::Raw(raw) => raw.clone(),
            Self::Bundle(bundle) => bundle.clone(),
            Self::SparseImage(image) => image.clone(),
            Self::Asif(image) => image.clone(),
            Self::Udif(udif) => udif.clone(),
            Self::Mapped(disk) => disk.clone(),
            Self::Stack(stack) => stack.clone(),
            // A layer file is no disk by itself.
            Self::File(_)
            | Self::Remote(_)
            | Self::Bucket(_)
            | Self::Archive(_)
            | Self::Crypt(_)
            | Self::Overlay(_)
            | Self::Partitions(_)
            | Self::Volumes(_) => return None,
        })
    }

    /// Returns the format, if the layer is the container of an image. A raw disk is `UDRW`.
    pub fn format(&self) -> Option<Format> {
        match self {
            Self::Raw(_) => Some(Format::Udrw),
            Self::Bundle(_) => Some(Format::Udsb),
            Self::SparseImage(_) => Some(Format::Udsp),
            Self::Asif(_) => Some(Format::Asif),
            Self::Udif(udif) => Some(udif.format()),
            Self::Mapped(disk) => Some(disk.format()),
            _ => None,
        }
    }

    /// Returns true if the layer is a file, here or elsewhere, or its bytes as a raw disk.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(_) | Self::Remote(_) | Self::Raw(_))
    }

    /// Returns true if the layer is a folder in a bucket.
    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self, Self::Bucket(_))
    }

    /// Returns the file behind a URL, or the device of the caller, if the layer is one.
    pub(crate) fn remote_file(&self) -> Option<&Arc<dyn BlockDevice>> {
        match self {
            Self::Remote(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the encryption, if the layer is one.
    pub fn encryption(&self) -> Option<&crypt::Description> {
        match self {
            Self::Crypt(description) => Some(description),
            _ => None,
        }
    }

    /// Returns the archive, if the layer is one.
    pub fn archive(&self) -> Option<&ArchiveLayer> {
        match self {
            Self::Archive(archive) => Some(archive),
            _ => None,
        }
    }

    /// Returns true if the layer is encryption, or an archive that is encrypted.
    pub fn is_secret(&self) -> bool {
        let archive = self.archive();
        self.encryption().is_some()
            || archive.is_some_and(|archive| archive.description.profile.is_encrypted())
    }

    /// Returns the raw disk, if the layer is one.
    pub fn raw(&self) -> Option<&Arc<Raw>> {
        match self {
            Self::Raw(raw) => Some(raw),
            _ => None,
        }
    }

    /// Returns the sparse bundle, if the layer is one.
    pub fn bundle(&self) -> Option<&Arc<Bundle>> {
        match self {
            Self::Bundle(bundle) => Some(bundle),
            _ => None,
        }
    }

    /// Returns the sparse image, if the layer is one.
    pub fn sparse_image(&self) -> Option<&Arc<SparseImage>> {
        match self {
            Self::SparseImage(image) => Some(image),
            _ => None,
        }
    }

    /// Returns the ASIF image, if the layer is one.
    pub fn asif(&self) -> Option<&Arc<Asif>> {
        match self {
            Self::Asif(image) => Some(image),
            _ => None,
        }
    }

    /// Returns the UDIF image, if the layer is one.
    pub fn udif(&self) -> Option<&Arc<Udif>> {
        match self {
            Self::Udif(udif) => Some(udif),
            _ => None,
        }
    }

    /// Returns the image that is only read, if the layer is one.
    pub fn mapped(&self) -> Option<&Arc<MappedDisk>> {
        match self {
            Self::Mapped(disk) => Some(disk),
            _ => None,
        }
    }

    /// Returns the overlay, if the layer is one.
    pub fn overlay(&self) -> Option<&LayerFile> {
        match self {
            Self::Overlay(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the partition map, if the layer is one.
    pub fn partitions(&self) -> Option<&Map> {
        match self {
            Self::Partitions(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the volumes, if the layer is the contents of the disk.
    pub fn volumes(&self) -> Option<&[Volume]> {
        match self {
            Self::Volumes(volumes) => Some(volumes),
            _ => None,
        }
    }
}
