//! Image formats.
//!
//! A container is a device over stored bytes: [`raw`], [`sparseimage`], [`asif`] and [`udif`] over
//! one file, [`sparsebundle`] over a folder. Formats of other programs are only read: [`mapped`] is the
//! device over the maps of [`disk_copy`], [`dart`] and [`ndif`], of [`qcow2`], [`vhd`], [`vhdx`], [`vmdk`]
//! and [`ewf`], and over the stream of an [`apple_archive`]. Unsupported formats are recognized by their magic
//! ([`foreign`]) and refused, so that they are never read as a raw disk.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod apple_archive;
pub mod asif;
mod checksum;
pub mod dart;
pub mod disk_copy;
pub mod ewf;
pub mod foreign;
pub mod fork_file;
mod format;
pub mod mapped;
pub mod ndif;
pub mod overlay;
pub mod property_list;
pub mod qcow2;
pub mod raw;
mod sector_number;
pub mod sparsebundle;
pub mod sparseimage;
pub mod stack;
pub mod udif;
pub mod vhd;
pub mod vhdx;
pub mod vmdk;

pub use checksum::StoredChecksum;
pub use format::{ContainerKind, Format};
pub use property_list::property_list_xml;

use self::checksum::disk_copy_sum;
use self::sector_number::SectorNumber;
use crate::error::Place;
use crate::{Error, Reason, Result};

/// Size of a sector in bytes; the part of a file after the last whole sector is not part of the
/// disk.
pub const SECTOR: u64 = 512;

/// Location of the start of a disk range in the file of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMapping {
    /// File offset of the start of the range, in bytes; for an encrypted file, without the header
    /// of the encryption. `None`: it is not stored.
    pub at: Option<u64>,
    /// Length of the run in bytes, at least 1.
    pub len: u64,
}

/// Data that an image stores and that no part of its disk refers to: left by an interrupted change,
/// or hidden by damage to the index. All zeros are no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// A noun phrase: "slot 6, which has no band".
    pub what: String,
    /// File offset, or the name of a file of its own.
    pub place: Place,
    /// Length in bytes.
    pub len: u64,
    /// True if it has a place on the disk, past its end, and is removed before the disk grows.
    pub is_past_end: bool,
}

/// The treatment of the [`Orphan`]s of an image by a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// They stay in place.
    Keep,
    /// They are removed.
    Remove,
}

/// The valid band sizes of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandSizes {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Unit of band sizes in bytes; `least` and `most` are multiples of it.
    pub(crate) unit: u64,
}

impl BandSizes {
    /// Fails for an invalid size; the error suggests the nearest valid ones.
    pub(crate) fn check(self, layer: &'static str, size: u64) -> Result<()> {
        let Self { least, most, unit } = self;
        let (below, above) = self.around(size);
        if below == size {
            return Ok(());
        }
        let nearest = if below == above {
            format!("the nearest is {below}")
        } else {
            format!("the nearest are {below} and {above}")
        };
        let message = format!(
            "invalid band size {size}: expected a multiple of {unit} from {least} to {most} \
             bytes; {nearest}"
        );
        Err(Error::invalid(layer, message).because(Reason::BandSize))
    }

    /// Returns the valid size nearest to `size`.
    pub(crate) fn nearest(self, size: u64) -> u64 {
        let (below, above) = self.around(size);
        if size.saturating_sub(below) <= above.saturating_sub(size) {
            below
        } else {
            above
        }
    }

    /// Returns the largest valid size not above `size`, and the smallest not below.
    fn around(self, size: u64) -> (u64, u64) {
        let Self { least, most, unit } = self;
        let size = size.clamp(least, most);
        let below = size - size % unit;
        (below, if below == size { size } else { below + unit })
    }
}

/// Fails if `len` is not a valid length of a disk.
pub(crate) fn check_len(layer: &'static str, len: u64) -> Result<()> {
    if len == 0 || !len.is_multiple_of(SECTOR) {
        return Err(Error::invalid(
            layer,
            format!("{len} bytes are not a whole number of {SECTOR}-byte sectors"),
        ));
    }
    // hdiutil's limit, and that of file offsets.
    if len > i64::MAX as u64 {
        return Err(Error::limit(
            layer,
            format!("{len} bytes are more than 2^63 - {SECTOR}"),
        ));
    }
    Ok(())
}
