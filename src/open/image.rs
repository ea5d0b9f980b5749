//! An open image: its layers and its contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::apfs::VolumeQuery;
use super::contents::Contents;
use super::layer::ArchiveLayer;
use super::layer::Layer;
use super::layer_metadata::LayerFile;
use super::place::NewMode;
use super::unlock::Keys;
use super::volume::{self, Volume};
use crate::Result;
use crate::address::VolumeSelector;
use crate::container::Format;
use crate::container::asif::Asif;
use crate::container::mapped::MappedDisk;
use crate::container::sparsebundle::Bundle;
use crate::container::sparseimage::SparseImage;
use crate::container::udif::Udif;
use crate::crypt;
use crate::device::BlockDevice;
use crate::fs::{FileSystem, FileSystemMut, hfsplus};
use crate::partition::Map;
use crate::store::FileMode;

/// An open image: its layers, and its disk.
#[derive(Debug)]
pub struct Image {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) layers: Vec<Layer>,
    pub(super) disk: Arc<dyn BlockDevice>,
    pub(super) warnings: Vec<String>,
    pub(super) is_unlocked: bool,
}

impl Image {
    /// Returns the path on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file or bundle that changes of its disk are written to: that of the
    /// topmost layer, if there are layers over it.
    pub(crate) fn changed_path(&self) -> &Path {
        self.overlays()
            .last()
            .map_or(&self.path, |layer| &layer.path)
    }

    /// Returns the mode for a copy of it: its own, restricted to the owner if the image is
    /// encrypted, as the copy may not be.
    pub fn mode_of_copy(&self) -> NewMode {
        NewMode::AtMost(FileMode::of(&self.path).unwrap_or(FileMode::ANY))
            .of_secret(self.is_secret())
    }

    /// Returns the format of its container.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns its layers from the bottom.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns warnings about oddities that do not prevent its use.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns true for a warning that contents are missing: a volume is read in an older state.
    pub fn is_of_loss(&self, warning: &str) -> bool {
        self.volumes()
            .iter()
            .any(|volume| volume.warning_of_older_state().as_deref() == Some(warning))
    }

    /// Adds a warning, for example about a repair before it was opened.
    pub fn add_warning(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Returns its disk.
    pub fn disk(&self) -> &Arc<dyn BlockDevice> {
        &self.disk
    }

    /// Returns the sparse bundle, if it is one.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.layers
            .iter()
            .find_map(Layer::bundle)
            .map(|bundle| &**bundle)
    }

    /// Returns the sparse image, if it is one.
    pub fn sparse_image(&self) -> Option<&SparseImage> {
        self.layers
            .iter()
            .find_map(Layer::sparse_image)
            .map(|image| &**image)
    }

    /// Returns the size of a band or chunk in bytes; `None` if the image is not divided.
    pub(crate) fn unit(&self) -> Option<u64> {
        (self.bundle().map(Bundle::band_size))
            .or_else(|| self.sparse_image().map(SparseImage::band_size))
            .or_else(|| self.asif().map(Asif::chunk_size))
    }

    /// Returns the ASIF image, if it is one.
    pub fn asif(&self) -> Option<&Asif> {
        self.layers
            .iter()
            .find_map(Layer::asif)
            .map(|image| &**image)
    }

    /// Returns the UDIF image, if it is one.
    pub fn udif(&self) -> Option<&Udif> {
        self.layers.iter().find_map(Layer::udif).map(|udif| &**udif)
    }

    /// Returns the image of a format that is only read, if it is one.
    pub fn mapped(&self) -> Option<&MappedDisk> {
        self.layers
            .iter()
            .find_map(Layer::mapped)
            .map(|disk| &**disk)
    }

    /// Returns the layers over it, from the bottom.
    pub fn overlays(&self) -> impl Iterator<Item = &LayerFile> {
        self.layers.iter().filter_map(Layer::overlay)
    }

    /// Returns its encryption, if any.
    pub fn encryption(&self) -> Option<&crypt::Description> {
        self.layers.iter().find_map(Layer::encryption)
    }

    /// Returns the encrypted or signed archive that contains it, if any.
    pub fn archive(&self) -> Option<&ArchiveLayer> {
        self.layers.iter().find_map(Layer::archive)
    }

    /// Returns true if a copy of its disk is the plain text of something encrypted: of the image, of the
    /// archive that contains it, or of a logical volume that the options named.
    pub fn is_secret(&self) -> bool {
        self.is_unlocked || self.layers.iter().any(Layer::is_secret)
    }

    /// Returns the partition map of its disk, if that has one.
    pub fn partitions(&self) -> Option<&Map> {
        self.layers.iter().find_map(Layer::partitions)
    }

    /// Returns the volumes on it, including unreadable ones.
    pub fn volumes(&self) -> &[Volume] {
        let volumes = self.layers.iter().find_map(Layer::volumes);
        volumes.unwrap_or_default()
    }

    /// Returns the last transactions of all volumes, as text: as long as it is the same, no system
    /// has changed a volume. `None` if they do not tell: there is no volume, or one is mounted,
    /// damaged, or of a kind without such numbers.
    pub fn last_transactions(&self) -> Option<String> {
        let of_volume = |volume: &Volume| {
            if volume.format.is_container() {
                let container = volume.container().ok()?;
                return Some(format!("apfs {}", container.checkpoints().first()?));
            }
            let (writes, changed) = hfsplus::last_change(&**volume.device()).ok()??;
            Some(format!("hfs+ {writes} {changed}"))
        };
        let found: Vec<_> = self
            .volumes()
            .iter()
            .map(of_volume)
            .collect::<Option<_>>()?;
        (!found.is_empty()).then(|| found.join(", "))
    }

    /// Returns true if a volume is read in an older state, because its newest is damaged.
    pub fn reads_older_state(&self) -> bool {
        self.volumes()
            .iter()
            .any(|volume| volume.older_state().is_some())
    }

    /// Returns the verdict on the contents of its disk.
    pub fn contents(&self) -> Result<Contents> {
        Contents::of(&self.disk, self.partitions(), self.volumes())
    }

    /// Returns the selected volume; without a selector, the first of a supported format.
    pub fn volume(&self, which: Option<&VolumeSelector>) -> Result<&Volume> {
        let found = match which {
            None => volume::first_known(self.volumes()),
            Some(selector) => volume::selected(self.volumes(), selector).map(|(volume, _)| volume),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Returns the selected volume as [`volume`](Self::volume) does, and the number of the selected
    /// volume within it if it is a container and a selector names one.
    pub fn volume_and_number(
        &self,
        which: Option<&VolumeSelector>,
    ) -> Result<(&Volume, Option<u32>)> {
        let found = match which {
            None => volume::first_known(self.volumes()).map(|volume| (volume, None)),
            Some(selector) => volume::selected(self.volumes(), selector),
        };
        found.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the selected volume; without a selector, the first readable one. An encrypted one
    /// stays locked, see [`file_system_as`](Self::file_system_as).
    pub fn file_system(&self, which: Option<&VolumeSelector>) -> Result<Arc<dyn FileSystem>> {
        self.file_system_as(which, VolumeQuery::default())
    }

    /// Opens a certain state of the selected volume, with a source of its key.
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

    /// Opens the selected volume for changes; without a selector, the first writable one. The image
    /// must be open for changes too. Callers should close the volume with
    /// [`FileSystemMut::unmount`]: only it reports failures.
    pub fn file_system_mut(
        &self,
        which: Option<&VolumeSelector>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        self.file_system_mut_as(which, None)
    }

    /// Opens the selected volume for changes, with a source of the key of an encrypted volume.
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
