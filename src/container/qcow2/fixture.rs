//! QCOW2 images for tests.

use zerocopy::IntoBytes;

use super::layout::{COMPRESSED, CRYPT_NONE, MAGIC, Qcow2Raw, Qcow2Version3Raw, ZERO, ZLIB};
use crate::codec::{Codec, Encoder, Level};
use crate::size::{narrow, to_usize};

/// Returns the image of a disk in clusters of this size, in bits, compressed where that is shorter. Of two
/// clusters of zeros, one is a hole and one is stated.
pub fn image(disk: &[u8], cluster_bits: u32, compressed: bool) -> Vec<u8> {
    let size = 1_usize << cluster_bits;
    let entries = size / 8;
    let clusters: Vec<_> = disk.chunks(size).collect();
    let tables = clusters.len().div_ceil(entries);
    // The header, the first table, the tables of the second level, the data.
    let l1_at = size.max(512);
    let l2_at = l1_at + (tables * 8).next_multiple_of(size);
    let mut data_at = l2_at + tables * size;
    let (mut l2, mut data) = (vec![0_u64; tables * entries], Vec::new());
    let mut encoder = Encoder::new(Codec::Zlib, Level::default());
    for (number, cluster) in clusters.iter().enumerate() {
        if cluster.iter().all(|byte| *byte == 0) {
            l2[number] = if number % 2 == 0 { 0 } else { ZERO };
            continue;
        }
        let mut plain = cluster.to_vec();
        plain.resize(size, 0);
        let mut packed = Vec::new();
        if compressed && encoder.encode(&plain, &mut packed).unwrap_or(false) && packed.len() > 6 {
            // Raw deflate: without the header and the checksum of zlib.
            let raw = &packed[2..packed.len() - 4];
            let sectors = (data_at % 512 + raw.len()).div_ceil(512) - 1;
            let shift = 62 - (cluster_bits - 8);
            l2[number] = COMPRESSED | (sectors as u64) << shift | data_at as u64;
            data.extend(raw);
            data_at += raw.len();
            continue;
        }
        let aligned = data_at.next_multiple_of(size);
        data.resize(data.len() + aligned - data_at, 0);
        data.extend(&plain);
        l2[number] = 1 << 63 | aligned as u64;
        data_at = aligned + size;
    }
    let l1 = (0..tables).map(|table| (l2_at + table * size) as u64);
    let header = Qcow2Raw {
        magic: MAGIC,
        version: 3.into(),
        backing_file_offset: 0.into(),
        backing_file_size: 0.into(),
        cluster_bits: cluster_bits.into(),
        size: (disk.len() as u64).into(),
        crypt_method: CRYPT_NONE.into(),
        l1_size: narrow::<u32>(tables).into(),
        l1_offset: (l1_at as u64).into(),
        refcount_offset: 0.into(),
        refcount_clusters: 0.into(),
        snapshots: 0.into(),
        snapshots_offset: 0.into(),
    };
    let more = Qcow2Version3Raw {
        incompatible: 0.into(),
        compatible: 0.into(),
        autoclear: 0.into(),
        refcount_order: 4.into(),
        header_length: 112.into(),
        compression: ZLIB,
        padding: [0; 7],
    };
    let mut file = [header.as_bytes(), more.as_bytes()].concat();
    file.resize(l1_at, 0);
    file.extend(l1.flat_map(|offset| (1 << 63 | offset).to_be_bytes()));
    file.resize(l2_at, 0);
    file.extend(l2.iter().flat_map(|entry| entry.to_be_bytes()));
    file.extend(data);
    file.resize(to_usize((file.len() as u64).next_multiple_of(512)), 0);
    file
}
