//! What is known of one image in use.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One image in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name while it is in use: `disk1`.
    pub device: String,
    /// What is done with it.
    pub used: Use,
    /// Where it is.
    pub image: PathBuf,
    /// The code of its format: `UDSB`.
    pub format: String,
    /// Layers that lie over it.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// The kind of partition map on it: `GPT`.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Bytes of the disk.
    pub size: u64,
    /// True if it cannot be changed through this.
    pub read_only: bool,
    /// True if it is encrypted.
    pub encrypted: bool,
    /// The process that does it.
    pub process: u32,
    /// Since when, in seconds of Unix time.
    pub since: u64,
    /// Where it can be found: URIs, folders.
    pub places: Vec<String>,
    /// Sockets that are removed when the process is gone.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// What is mounted of it. That is unmounted when the process is gone.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// The kernel's disk that it is. That is taken from the kernel when the process is gone.
    #[serde(default)]
    pub kernel_disk: Option<DiskEntry>,
}

/// A disk of the kernel's, `/dev/nbd0`, as an entry keeps it: on every system, and whatever serves
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskEntry {
    /// Its number: 0 for `/dev/nbd0`.
    pub index: u32,
    /// Who made it, as the kernel tells: the number may be another disk's later.
    pub maker: u32,
}

#[cfg(target_os = "linux")]
impl DiskEntry {
    /// The same for the kernel.
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

/// A folder that shows a volume of an image, or its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The folder.
    pub folder: PathBuf,
    /// The name of the volume as a device: `disk1s2`.
    pub device: String,
    /// The volume's own name.
    pub name: String,
    /// What it is: `HFS+`.
    pub format: String,
    /// True if the folder was made for this, and goes with it.
    pub made: bool,
}

/// What is done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Served as a network block device.
    Served,
    /// A volume of it is shown as a folder.
    Mounted,
    /// It is a disk of the host.
    Attached,
}

impl Entry {
    /// An entry of this moment with nothing else in it.
    pub fn new(used: Use) -> Self {
        Self {
            device: String::new(),
            used,
            image: PathBuf::new(),
            format: String::new(),
            layers: Vec::new(),
            scheme: None,
            size: 0,
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
