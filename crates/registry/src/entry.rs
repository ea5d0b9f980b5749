//! Registry entry of an image in use.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bandsaw::address::shown;
use serde::{Deserialize, Serialize, Serializer};

/// An image in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Device name while it is in use: `disk1`.
    pub device: String,
    /// Kind of use.
    pub used: Use,
    /// Path of the image. In JSON it is text, and bytes that are not UTF-8 are `\xFF`.
    #[serde(serialize_with = "as_text")]
    pub image: PathBuf,
    /// Code of its format: `UDSB`.
    pub format: String,
    /// Paths of the layers on top of it.
    #[serde(default, serialize_with = "as_texts")]
    pub layers: Vec<PathBuf>,
    /// Kind of its partition map: `GPT`.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Partitions of the disk.
    #[serde(default)]
    pub partitions: Vec<Part>,
    /// Size of the disk in bytes.
    pub size: u64,
    /// True if only a section of the disk is in use.
    #[serde(default)]
    pub partial: bool,
    /// True if this use is read-only.
    pub read_only: bool,
    /// True if it is encrypted.
    pub encrypted: bool,
    /// Number of the process that uses it.
    pub process: u32,
    /// Start time, in seconds of Unix time.
    pub since: u64,
    /// Addresses at which it is available: URIs, folders.
    pub places: Vec<String>,
    /// Sockets that are removed after the process has ended.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// Mounts of its volumes, unmounted after the process has ended.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Kernel disk of the image, detached after the process has ended.
    #[serde(default)]
    pub kernel_disk: Option<DiskEntry>,
}

/// Writes a host path as text, which a path that is not UTF-8 cannot be read back from.
pub fn as_text<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&shown(path))
}

/// Writes host paths as text.
fn as_texts<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(shown))
}

/// A kernel disk such as `/dev/nbd0`, as stored in an entry; available on every system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskEntry {
    /// Device number: 0 for `/dev/nbd0`.
    pub index: u32,
    /// Process that attached it, as listed by the kernel; it distinguishes later disks of the same
    /// number.
    pub maker: u32,
}

#[cfg(target_os = "linux")]
impl DiskEntry {
    /// Converts it to the identity of a kernel disk.
    pub fn id(self) -> bandsaw_nbd::kernel::DiskId {
        bandsaw_nbd::kernel::DiskId {
            index: self.index,
            maker: self.maker,
        }
    }
}

#[cfg(target_os = "linux")]
impl From<bandsaw_nbd::kernel::DiskId> for DiskEntry {
    fn from(id: bandsaw_nbd::kernel::DiskId) -> Self {
        Self {
            index: id.index,
            maker: id.maker,
        }
    }
}

/// A partition of an image in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Device name: `disk1s1`.
    pub device: String,
    /// Type by name: `Apple_HFS`.
    pub kind: String,
    /// Type in the terms of the map: a GUID, a name or a number.
    pub type_id: String,
    /// Name; empty if it has none.
    pub name: String,
    /// First byte within the disk.
    pub start: u64,
    /// Length in bytes.
    pub size: u64,
    /// GUID of the partition itself.
    #[serde(default)]
    pub guid: Option<String>,
}

/// A folder on which a volume of an image, or its disk, is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Mount point.
    pub folder: PathBuf,
    /// Device name of the volume: `disk1s2`.
    pub device: String,
    /// Name of the volume.
    pub name: String,
    /// Format of the volume: `HFS+`.
    pub format: String,
    /// True if the folder was created for the mount, and is removed with it.
    pub made: bool,
    /// True if the volume cannot be changed.
    #[serde(default)]
    pub read_only: bool,
    /// Device name of the disk or partition that holds the volume: `disk1s1`. For an APFS volume
    /// it is the store of the container.
    #[serde(default)]
    pub store: Option<String>,
    /// Device name of the APFS container, which has a disk number of its own: `disk2`.
    #[serde(default)]
    pub container: Option<String>,
    /// UUID of the volume.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Time of formatting, in seconds of Unix time.
    #[serde(default)]
    pub created: Option<i64>,
    /// Length of the volume in bytes.
    #[serde(default)]
    pub size: u64,
    /// Allocation block size in bytes.
    #[serde(default)]
    pub block_size: u32,
    /// True if the volume has a journal.
    #[serde(default)]
    pub journaled: bool,
    /// True if names are case-sensitive.
    #[serde(default)]
    pub case_sensitive: bool,
    /// True if the volume itself is encrypted.
    #[serde(default)]
    pub encrypted: bool,
    /// True if the volume is sealed.
    #[serde(default)]
    pub sealed: bool,
}

/// Kinds of use of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Served as a network block device.
    Served,
    /// Mounted as a folder.
    Mounted,
    /// Attached as a disk of the host.
    Attached,
}

impl Entry {
    /// Returns the device names of the disk, its partitions, APFS containers and mounted volumes.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let parts = self.partitions.iter().map(|part| part.device.as_str());
        let mounts = self.mounts.iter().flat_map(|mount| {
            mount
                .container
                .as_deref()
                .into_iter()
                .chain([mount.device.as_str()])
        });
        std::iter::once(self.device.as_str())
            .chain(parts)
            .chain(mounts)
    }

    /// Creates an entry with the current time and otherwise default values.
    pub fn new(used: Use) -> Self {
        Self {
            device: String::new(),
            used,
            image: PathBuf::new(),
            format: String::new(),
            layers: Vec::new(),
            scheme: None,
            partitions: Vec::new(),
            size: 0,
            partial: false,
            read_only: false,
            encrypted: false,
            process: 0,
            since: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            places: Vec::new(),
            sockets: Vec::new(),
            mounts: Vec::new(),
            kernel_disk: None,
        }
    }
}
