//! Fuzz targets: one function for each parser of untrusted bytes, and one for reads and writes.
//!
//! A function panics if its assertions fail. `fuzz/` passes them to libFuzzer;
//! `tests/fuzz_seeds.rs` runs them with the same seeds and corrupted copies of these, so that every
//! test run covers the same ground.

mod apfs;
mod apfs_change;
mod apfs_space;
mod archive;
mod bundle;
mod change;
mod core_storage;
mod crypt;
mod decmpfs;
mod foreign;
mod hfsplus;
mod journal;
mod object_store;
mod partition;
mod sparse;
mod tar;
mod text;
mod udif;
mod udif_set;

pub use apfs::{apfs_container, apfs_keybag, apfs_node, apfs_record, apfs_sample};
pub use apfs_change::apfs_change;
pub use apfs_space::apfs_spaceman;
pub use archive::encrypted_archive;
pub use bundle::{bundle_model, info_plist, rebanding_plist};
pub use change::hfsplus_change;
pub use core_storage::{core_storage, core_storage_list};
pub use crypt::crypt_header;
pub use decmpfs::{decmpfs, decmpfs_pack};
pub use foreign::foreign_free;
pub use hfsplus::{btree_node, hfsplus_volume, sample};
pub use journal::journal;
pub use object_store::object_log;
pub use partition::partition_map;
pub use sparse::{SMALL_CHUNK, asif, small_asif, sparse_image};
pub use tar::tar_import;
pub use text::{address, size};
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

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "address",
        run: address,
        seeds: text::address_seeds,
    },
    Target {
        name: "size",
        run: size,
        seeds: text::size_seeds,
    },
    Target {
        name: "partition_map",
        run: partition_map,
        seeds: partition::seeds,
    },
    Target {
        name: "hfsplus_volume",
        run: hfsplus_volume,
        seeds: hfsplus::volume_seeds,
    },
    Target {
        name: "hfsplus_change",
        run: hfsplus_change,
        seeds: change::seeds,
    },
    Target {
        name: "apfs_change",
        run: apfs_change,
        seeds: apfs_change::seeds,
    },
    Target {
        name: "apfs_spaceman",
        run: apfs_spaceman,
        seeds: apfs_space::seeds,
    },
    Target {
        name: "foreign_free",
        run: foreign_free,
        seeds: foreign::seeds,
    },
    Target {
        name: "core_storage",
        run: core_storage,
        seeds: core_storage::seeds,
    },
    Target {
        name: "core_storage_list",
        run: core_storage_list,
        seeds: core_storage::list_seeds,
    },
    Target {
        name: "journal",
        run: journal,
        seeds: journal::seeds,
    },
    Target {
        name: "btree_node",
        run: btree_node,
        seeds: hfsplus::node_seeds,
    },
    Target {
        name: "apfs_container",
        run: apfs_container,
        seeds: apfs::container_seeds,
    },
    Target {
        name: "apfs_node",
        run: apfs_node,
        seeds: apfs::node_seeds,
    },
    Target {
        name: "apfs_record",
        run: apfs_record,
        seeds: apfs::record_seeds,
    },
    Target {
        name: "apfs_keybag",
        run: apfs_keybag,
        seeds: apfs::keybag_seeds,
    },
    Target {
        name: "tar_import",
        run: tar_import,
        seeds: tar::seeds,
    },
    Target {
        name: "object_log",
        run: object_log,
        seeds: object_store::seeds,
    },
    Target {
        name: "info_plist",
        run: info_plist,
        seeds: bundle::plist_seeds,
    },
    Target {
        name: "rebanding_plist",
        run: rebanding_plist,
        seeds: bundle::rebanding_seeds,
    },
    Target {
        name: "sparse_image",
        run: sparse_image,
        seeds: sparse::sparse_image_seeds,
    },
    Target {
        name: "asif",
        run: asif,
        seeds: sparse::asif_seeds,
    },
    Target {
        name: "udif",
        run: udif,
        seeds: udif::udif_seeds,
    },
    Target {
        name: "udif_resources",
        run: udif_resources,
        seeds: udif_set::resource_seeds,
    },
    Target {
        name: "udif_set",
        run: udif_set,
        seeds: udif_set::set_seeds,
    },
    Target {
        name: "codec",
        run: codec,
        seeds: udif::codec_seeds,
    },
    Target {
        name: "encode",
        run: encode,
        seeds: udif::encode_seeds,
    },
    Target {
        name: "crypt_header",
        run: crypt_header,
        seeds: crypt::seeds,
    },
    Target {
        name: "encrypted_archive",
        run: encrypted_archive,
        seeds: archive::seeds,
    },
    Target {
        name: "decmpfs",
        run: decmpfs,
        seeds: decmpfs::seeds,
    },
    Target {
        name: "decmpfs_pack",
        run: decmpfs_pack,
        seeds: decmpfs::pack_seeds,
    },
    Target {
        name: "bundle_model",
        run: bundle_model,
        seeds: bundle::model_seeds,
    },
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
