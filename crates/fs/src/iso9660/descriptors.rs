//! The volume descriptors at the start of a volume.

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{DescriptorRaw, FIRST_DESCRIPTOR, IDENTIFIER, SECTOR, kind};

/// Maximum number of volume descriptors that are read.
const MAX_DESCRIPTORS: u64 = 64;

/// The volume descriptors that are used.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) primary: DescriptorRaw,
    pub(super) joliet: Option<DescriptorRaw>,
}

impl Descriptors {
    /// Offset of the first descriptor in bytes.
    pub(super) const START: u64 = FIRST_DESCRIPTOR * SECTOR;

    /// Reads the descriptors up to the terminator. The first of each kind counts.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Self> {
        let (mut primary, mut joliet) = (None, None);
        let len = device.info().len;
        for number in 0..MAX_DESCRIPTORS {
            let offset = Self::START + number * SECTOR;
            if offset + SECTOR > len {
                break;
            }
            let bytes = device.read_array::<{ size_of::<DescriptorRaw>() }>(offset)?;
            let Ok(raw) = DescriptorRaw::read_from_bytes(&bytes) else {
                break;
            };
            if raw.identifier != IDENTIFIER || raw.kind == kind::TERMINATOR {
                break;
            }
            if raw.kind == kind::PRIMARY {
                primary = primary.or(Some(raw));
            } else if raw.is_joliet() {
                joliet = joliet.or(Some(raw));
            }
        }
        match primary {
            Some(primary) => Ok(Self { primary, joliet }),
            None => {
                let message = "the primary volume descriptor is missing";
                Err(Error::corrupt(LAYER, Self::START, message))
            }
        }
    }
}

/// Returns the length of the volume in bytes by its primary descriptor, which is not checked
/// otherwise. `None`: there is none, or its two numbers differ.
pub fn stated_len(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let primary = match Descriptors::read(device) {
        Ok(found) => found.primary,
        Err(error) if error.kind() == bandsaw_core::Kind::Corrupt => return Ok(None),
        Err(error) => return Err(error),
    };
    let blocks = Some(primary.blocks).filter(|blocks| blocks.agrees());
    Ok(blocks
        .zip(primary.block_size())
        .map(|(blocks, size)| u64::from(blocks.get()) * size))
}
