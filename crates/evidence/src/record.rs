//! The lines of a manifest.

use serde::{Deserialize, Serialize};

/// Number of this vocabulary.
pub(crate) const VERSION: u32 = 1;

/// A line of a manifest: a JSON object, whose member `record` names its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Line {
    Manifest(Header),
    Volume(VolumeRecord),
    File(Box<FileRecord>),
    End(End),
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// The program, with its version.
    pub(crate) tool: String,
    /// The image, as it was named.
    pub(crate) path: String,
    /// Format of the image, as hdiutil names it.
    pub(crate) format: String,
    /// Bytes of the disk in the image.
    pub(crate) disk_size: u64,
}

/// A volume, or a snapshot of one. Its files follow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VolumeRecord {
    /// Number of this line among those of volumes, from 1; files refer to it.
    pub(crate) volume: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition: Option<u32>,
    /// Number in its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u32>,
    pub(crate) file_system: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// Transaction of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transaction: Option<u64>,
    /// Time of formatting, or at which the snapshot was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    /// First byte on the disk.
    pub(crate) disk_offset: u64,
    /// Bytes of the partition, or of the disk without one.
    pub(crate) size: u64,
    /// False if the volume has a format that is not read.
    pub(crate) supported: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A file, folder or other object of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) volume: u32,
    pub(crate) path: String,
    pub(crate) kind: String,
    pub(crate) id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) resource_fork_size: u64,
    pub(crate) allocated: u64,
    /// Permissions in octal digits.
    pub(crate) mode: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    pub(crate) flags: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accessed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backed_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) md5: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) extents: Vec<ExtentRecord>,
    /// True if there are more extents than are listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) more_extents: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) xattrs: Vec<XattrRecord>,
    /// True for a folder whose contents are listed under another path.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) repeated: bool,
    /// Reasons why parts of the object could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
}

/// A range of the data fork that is stored in one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExtentRecord {
    /// Offset in the file in bytes.
    pub(crate) offset: u64,
    /// Offset on the disk of the image in bytes.
    pub(crate) disk_offset: u64,
    /// Length in bytes.
    pub(crate) size: u64,
}

/// An extended attribute. The resource fork is among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct XattrRecord {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// The last line: it proves that the manifest is whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) volumes: u64,
    pub(crate) files: u64,
    /// Number of errors in all records.
    pub(crate) problems: u64,
    /// SHA-256 of all bytes before this line.
    pub(crate) sha256: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !*value
}
