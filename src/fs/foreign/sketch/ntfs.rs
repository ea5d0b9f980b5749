//! NTFS: clusters of 4096 bytes, a table of 16 records, an empty log, and one file.

use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::ntfs::{
    AttributeRaw, BootRaw, IN_USE, NonResidentRaw, RecordRaw, ResidentRaw, VolumeInformationRaw,
    attribute, record,
};
use super::{LEN, put};
use crate::fs::bitmap::set_bits;

const CLUSTER: usize = 4096;
const RECORD: usize = 1024;
/// Where things are.
const TABLE: usize = 4;
const BITMAP: usize = 9;
const TABLE_COPY: usize = 100;
const LOG: usize = 110;
/// Where the file's clusters are.
const FILE: std::ops::Range<usize> = 20..30;

/// A volume with the flags of `$Volume`, and the bytes that its log begins with.
pub(crate) fn ntfs(flags: u16, log: &[u8]) -> Vec<u8> {
    let clusters = LEN / CLUSTER - 1;
    let mut raw = BootRaw::new_zeroed();
    (raw.jump, raw.name, raw.sector_size, raw.sectors_per_cluster) =
        ([0xEB, 0x52, 0x90], *b"NTFS    ", 512.into(), 8);
    (raw.sectors, raw.table) = ((LEN as u64 / 512 - 1).into(), (TABLE as u64).into());
    (raw.table_copy, raw.record) = ((TABLE_COPY as u64).into(), 246);
    let mut bytes = vec![0; LEN];
    put(&mut bytes, 0, raw.as_bytes());
    let mut bits = vec![0; 32];
    for run in [
        0..1,
        TABLE..TABLE + 4,
        BITMAP..BITMAP + 1,
        TABLE_COPY..TABLE_COPY + 1,
        LOG..LOG + 2,
        FILE,
    ] {
        set_bits(&mut bits, run);
    }
    set_bits(&mut bits, clusters..256);
    put(&mut bytes, BITMAP * CLUSTER, &bits);
    bytes[LOG * CLUSTER..(LOG + 2) * CLUSTER].fill(0xFF);
    put(&mut bytes, LOG * CLUSTER, log);
    let information = VolumeInformationRaw {
        reserved: 0.into(),
        major: 3,
        minor: 1,
        flags: flags.into(),
    };
    for (number, attribute) in [
        (record::TABLE, clusters_of(TABLE, 4, 16 * RECORD)),
        (record::TABLE_COPY, clusters_of(TABLE_COPY, 1, 4 * RECORD)),
        (record::LOG, clusters_of(LOG, 2, 2 * CLUSTER)),
        (
            record::VOLUME,
            resident(attribute::VOLUME_INFORMATION, information.as_bytes()),
        ),
        (record::BITMAP, clusters_of(BITMAP, 1, bits.len())),
        (
            10,
            clusters_of(FILE.start, FILE.len(), FILE.len() * CLUSTER - 5),
        ),
    ] {
        put(
            &mut bytes,
            TABLE * CLUSTER + number as usize * RECORD,
            &record_of(&attribute),
        );
    }
    bytes
}

/// A record with one attribute.
fn record_of(attribute: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; RECORD];
    let mut head = RecordRaw::new_zeroed();
    (head.magic, head.fixups, head.fixup_count) = (*b"FILE", 48.into(), 3.into());
    (head.attributes, head.flags) = (56.into(), IN_USE.into());
    (head.used, head.allocated) = (
        (56 + attribute.len() as u32 + 8).into(),
        (RECORD as u32).into(),
    );
    put(&mut bytes, 0, head.as_bytes());
    put(&mut bytes, 56, attribute);
    put(
        &mut bytes,
        56 + attribute.len(),
        &attribute::END.to_le_bytes(),
    );
    protect(&mut bytes, 48);
    bytes
}

/// Marks the ends of sectors, whose bytes go into the array at `at`.
pub(crate) fn protect(bytes: &mut [u8], at: usize) {
    put(bytes, at, &[1, 0]);
    for (number, end) in (510..bytes.len()).step_by(512).enumerate() {
        let original = [bytes[end], bytes[end + 1]];
        put(bytes, at + 2 + 2 * number, &original);
        put(bytes, end, &[1, 0]);
    }
}

fn head(kind: u32, len: usize, non_resident: u8) -> AttributeRaw {
    let mut head = AttributeRaw::new_zeroed();
    (head.kind, head.len, head.non_resident) = (kind.into(), (len as u32).into(), non_resident);
    head
}

fn resident(kind: u32, value: &[u8]) -> Vec<u8> {
    let tail = ResidentRaw {
        len: (value.len() as u32).into(),
        at: 24.into(),
        flags: 0.into(),
    };
    let mut bytes = head(kind, (24 + value.len()).next_multiple_of(8), 0)
        .as_bytes()
        .to_vec();
    bytes.extend(tail.as_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Contents in one run, which both have numbers below 128.
fn clusters_of(start: usize, count: usize, len: usize) -> Vec<u8> {
    let mut tail = NonResidentRaw::new_zeroed();
    (tail.last, tail.runs) = ((count as u64 - 1).into(), 64.into());
    tail.allocated = ((count * CLUSTER) as u64).into();
    (tail.len, tail.initialised) = ((len as u64).into(), (len as u64).into());
    let mut bytes = head(attribute::DATA, 72, 1).as_bytes().to_vec();
    bytes.extend(tail.as_bytes());
    bytes.extend([0x11, count as u8, start as u8, 0, 0, 0, 0, 0]);
    bytes
}
