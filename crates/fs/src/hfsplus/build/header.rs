//! The volume header, primary and alternate.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::geometry::{Geometry, JournalPlace, special_fork};
use super::objects::Objects;
use super::recipe::file_clump;
use crate::hfsplus::layout::{
    Cnid, HEADER_OFFSET, SIGNATURE_HFS_PLUS, SIGNATURE_HFSX, VERSION_HFS_PLUS, VERSION_HFSX,
    VolumeHeaderRaw, volume_attributes,
};
use bandsaw_core::Result;
use bandsaw_core::device::BlockDevice;

/// The fields of a header that are not geometry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    pub(super) hfsx: bool,
    /// The Finder opens the root folder.
    pub(super) opens: bool,
    /// Seconds since 1904.
    pub(super) created: u32,
    pub(super) identifier: u64,
}

/// Returns the header of a clean volume.
pub(super) fn header(
    geometry: &Geometry,
    objects: &Objects,
    identity: Identity,
) -> VolumeHeaderRaw {
    let (signature, version) = if identity.hfsx {
        (SIGNATURE_HFSX, VERSION_HFSX)
    } else {
        (SIGNATURE_HFS_PLUS, VERSION_HFS_PLUS)
    };
    let bitmap_len = u64::from(geometry.bitmap.count) * u64::from(geometry.block_size);
    let clump = file_clump(geometry.block_size);
    let journaled = if geometry.journal == JournalPlace::NONE {
        0
    } else {
        volume_attributes::JOURNALED
    };
    let opened = if identity.opens { Cnid::ROOT } else { Cnid(0) };
    VolumeHeaderRaw {
        signature: signature.into(),
        version: version.into(),
        attributes: (volume_attributes::UNMOUNTED | volume_attributes::UNUSED_NODE_FIX | journaled)
            .into(),
        last_mounted_version: crate::hfsplus::MADE_BY,
        journal_info_block: geometry.journal.info.start.0.into(),
        // On disk this is local time where the volume was made; only UTC is known here.
        create_date: identity.created.into(),
        modify_date: identity.created.into(),
        backup_date: 0.into(),
        checked_date: identity.created.into(),
        file_count: objects.files.into(),
        folder_count: objects.folders.into(),
        block_size: geometry.block_size.into(),
        total_blocks: geometry.total_blocks.into(),
        free_blocks: geometry.free_blocks().into(),
        next_allocation: geometry.next_allocation().into(),
        rsrc_clump_size: clump.into(),
        data_clump_size: clump.into(),
        next_catalog_id: objects.next_cnid.0.into(),
        write_count: 0.into(),
        encodings_bitmap: 1.into(),
        // The third has the folder whose window opens (TN1150, finderInfo).
        finder_info: [0, 0, opened.0, 0, 0, 0].map(U32::new),
        identifier: identity.identifier.into(),
        allocation_file: special_fork(
            geometry.bitmap,
            bitmap_len,
            geometry.bitmap.count * geometry.block_size,
        ),
        extents_file: geometry.extents.fork(),
        catalog_file: geometry.catalog.fork(),
        attributes_file: geometry.attributes.fork(),
        startup_file: Default::default(),
    }
}

/// Writes the header in both places, once everything else is durable. The primary header comes
/// last, because it makes the volume valid.
pub(super) fn write(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    header: &VolumeHeaderRaw,
) -> Result<()> {
    device.flush()?;
    device.write_at(geometry.alternate_offset(), header.as_bytes())?;
    device.flush()?;
    device.write_at(HEADER_OFFSET, header.as_bytes())?;
    device.flush()
}
