//! Fuzz targets: one function for each parser of untrusted bytes, and one for reads and writes.
//!
//! A function panics if its assertions fail. `fuzz/` passes them to libFuzzer;
//! `tests/fuzz_seeds.rs` runs them with the same seeds and corrupted copies of these, so that every
//! test run covers the same ground.

mod apfs;
mod apfs_change;
mod apfs_space;
mod apple_archive;
mod archive;
mod bundle;
mod change;
mod core_storage;
mod crypt;
mod decmpfs;
mod fat;
mod foreign;
mod hfs;
mod hfsplus;
mod iso9660;
mod journal;
mod object_store;
mod partition;
mod read_only_image;
mod recover;
mod sparse;
mod tar;
mod text;
mod udf;
mod udif;
mod udif_set;

pub use apfs::{apfs_container, apfs_keybag, apfs_node, apfs_record, apfs_sample};
pub use apfs_change::apfs_change;
pub use apfs_space::apfs_spaceman;
pub use apple_archive::apple_archive;
pub use archive::encrypted_archive;
pub use bundle::{bundle_model, info_plist, rebanding_plist};
pub use change::hfsplus_change;
pub use core_storage::{core_storage, core_storage_list};
pub use crypt::crypt_header;
pub use decmpfs::{decmpfs, decmpfs_pack};
pub use fat::{exfat_volume, fat_volume};
pub use foreign::foreign_free;
pub use hfs::{hfs_sample, hfs_volume};
pub use hfsplus::{btree_node, hfsplus_volume, sample};
pub use iso9660::iso9660;
pub use journal::journal;
pub use object_store::object_log;
pub use partition::partition_map;
pub use read_only_image::{classic_image, virtual_disk};
pub use recover::{lost_volumes, recover};
pub use sparse::{SMALL_CHUNK, asif, small_asif, sparse_image};
pub use tar::tar_import;
pub use text::{address, size};
pub use udf::udf;
pub use udif::{codec, encode, udif};
pub use udif_set::{udif_resources, udif_set};

use crate::device::Memory;

/// A fuzz target with seeds.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the function, and of its file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
    /// Valid inputs, created by the library itself.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("address", address, text::address_seeds),
    target("size", size, text::size_seeds),
    target("partition_map", partition_map, partition::seeds),
    target("hfs_volume", hfs_volume, hfs::seeds),
    target("hfsplus_volume", hfsplus_volume, hfsplus::volume_seeds),
    target("hfsplus_change", hfsplus_change, change::seeds),
    target("apfs_change", apfs_change, apfs_change::seeds),
    target("apfs_spaceman", apfs_spaceman, apfs_space::seeds),
    target("foreign_free", foreign_free, foreign::seeds),
    target("fat_volume", fat_volume, fat::fat_seeds),
    target("exfat_volume", exfat_volume, fat::exfat_seeds),
    target("iso9660", iso9660, iso9660::seeds),
    target("udf", udf, udf::seeds),
    target("core_storage", core_storage, core_storage::seeds),
    target(
        "core_storage_list",
        core_storage_list,
        core_storage::list_seeds,
    ),
    target("journal", journal, journal::seeds),
    target("btree_node", btree_node, hfsplus::node_seeds),
    target("apfs_container", apfs_container, apfs::container_seeds),
    target("apfs_node", apfs_node, apfs::node_seeds),
    target("apfs_record", apfs_record, apfs::record_seeds),
    target("apfs_keybag", apfs_keybag, apfs::keybag_seeds),
    target("tar_import", tar_import, tar::seeds),
    target("recover", recover, recover::seeds),
    target("lost_volumes", lost_volumes, recover::lost_seeds),
    target("object_log", object_log, object_store::seeds),
    target("info_plist", info_plist, bundle::plist_seeds),
    target("rebanding_plist", rebanding_plist, bundle::rebanding_seeds),
    target("sparse_image", sparse_image, sparse::sparse_image_seeds),
    target("asif", asif, sparse::asif_seeds),
    target("udif", udif, udif::udif_seeds),
    target("udif_resources", udif_resources, udif_set::resource_seeds),
    target("udif_set", udif_set, udif_set::set_seeds),
    target(
        "classic_image",
        classic_image,
        read_only_image::classic_image_seeds,
    ),
    target(
        "virtual_disk",
        virtual_disk,
        read_only_image::virtual_disk_seeds,
    ),
    target("codec", codec, udif::codec_seeds),
    target("encode", encode, udif::encode_seeds),
    target("crypt_header", crypt_header, crypt::seeds),
    target("encrypted_archive", encrypted_archive, archive::seeds),
    target("apple_archive", apple_archive, apple_archive::seeds),
    target("decmpfs", decmpfs, decmpfs::seeds),
    target("decmpfs_pack", decmpfs_pack, decmpfs::pack_seeds),
    target("bundle_model", bundle_model, bundle::model_seeds),
];

/// Maximum number of sectors of a disk that an input describes: 4 MiB.
const MAX_SECTORS: u16 = 8192;
const SECTOR: usize = 512;

/// Returns the bytes of the disk that an input describes: its number of sectors (16 bits,
/// little-endian), then repeatedly the number of a sector and its bytes. So a short input makes a
/// long disk, and mutations do not move other data.
pub fn described(input: &[u8]) -> Option<Vec<u8>> {
    disk(input).map(|disk| disk.to_vec())
}

fn disk(input: &[u8]) -> Option<Memory> {
    let (sectors, mut rest) = input.split_first_chunk()?;
    let sectors = u16::from_le_bytes(*sectors) % (MAX_SECTORS + 1);
    let mut bytes = vec![0; usize::from(sectors) * SECTOR];
    while let Some((number, after)) = rest.split_first_chunk() {
        let (sector, after) = after.split_at(after.len().min(SECTOR));
        let start = usize::from(u16::from_le_bytes(*number)) * SECTOR;
        if let Some(place) = bytes.get_mut(start..start + sector.len()) {
            place.copy_from_slice(sector);
        }
        rest = after;
    }
    Some(Memory::from(bytes))
}

/// Returns the input that describes a disk of these bytes, a number of whole sectors.
fn describe(bytes: &[u8]) -> Vec<u8> {
    let sectors = bytes.len() / SECTOR;
    assert!(
        sectors <= usize::from(MAX_SECTORS) && bytes.len().is_multiple_of(SECTOR),
        "{} bytes",
        bytes.len()
    );
    let mut input = (sectors as u16).to_le_bytes().to_vec();
    for (number, sector) in (0_u16..).zip(bytes.chunks(SECTOR)) {
        if sector.iter().any(|&byte| byte != 0) {
            input.extend(number.to_le_bytes());
            input.extend(sector);
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_described_disk_is_that_disk() {
        let mut bytes = vec![0; 100 * SECTOR];
        bytes[700] = 1;
        bytes[99 * SECTOR..].fill(7);
        let input = describe(&bytes);
        assert_eq!(input.len(), 2 + 2 * (2 + SECTOR));
        assert_eq!(disk(&input).unwrap().to_vec(), bytes);
        assert!(disk(&[1]).is_none());
    }
}
