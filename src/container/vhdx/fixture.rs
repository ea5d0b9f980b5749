//! VHDX images for tests.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    BAT, BLOCK_PRESENT, BLOCK_ZERO, DISK_SIZE, FILE_MAGIC, FILE_PARAMETERS, HAS_PARENT,
    HEADER_SIGNATURE, HEADER_SIZE, HEADERS, LOGICAL_SECTOR, LocatorEntryRaw, LocatorRaw, METADATA,
    METADATA_REQUIRED, METADATA_SIGNATURE, MetadataRaw, MetadataTableRaw, PARENT_LOCATOR,
    REGION_SIGNATURE, REGION_TABLES, RegionRaw, RegionTableRaw, TABLE_SIZE, VhdxHeaderRaw,
};
use super::{MIB, checksum};
use crate::size::{narrow, to_usize};

const METADATA_AT: u64 = MIB;
const BAT_AT: u64 = MIB + (512 << 10);
const DATA_AT: u64 = 2 * MIB;

/// Returns the image of a disk in blocks of 1 MiB. The first block of zeros is stated, others are holes.
pub fn image(disk: &[u8]) -> Vec<u8> {
    let mut file = vec![0; to_usize(DATA_AT)];
    file[..8].copy_from_slice(&FILE_MAGIC);
    for (sequence, at) in (1_u64..).zip(HEADERS) {
        let mut header = VhdxHeaderRaw::new_zeroed();
        header.signature = HEADER_SIGNATURE;
        header.sequence = sequence.into();
        header.version = 1.into();
        put(&mut file, at, header.as_bytes());
    }
    let region = |id, offset: u64, length: u32| RegionRaw {
        id,
        offset: offset.into(),
        length: length.into(),
        is_required: 1.into(),
    };
    for at in REGION_TABLES {
        let mut table = RegionTableRaw::new_zeroed();
        table.signature = REGION_SIGNATURE;
        table.entries = 2.into();
        let regions = [
            region(METADATA, METADATA_AT, 128 << 10),
            region(BAT, BAT_AT, 64 << 10),
        ];
        put(
            &mut file,
            at,
            &[table.as_bytes(), regions.as_bytes()].concat(),
        );
    }
    let mut table = MetadataTableRaw::new_zeroed();
    table.signature = METADATA_SIGNATURE;
    table.entries = 3.into();
    let item = |id, offset: u32, length: u32| MetadataRaw {
        id,
        offset: ((64 << 10) + offset).into(),
        length: length.into(),
        flags: METADATA_REQUIRED.into(),
        reserved: 0.into(),
    };
    let items = [
        item(FILE_PARAMETERS, 0, 8),
        item(DISK_SIZE, 8, 8),
        item(LOGICAL_SECTOR, 16, 4),
    ];
    put(
        &mut file,
        METADATA_AT,
        &[table.as_bytes(), items.as_bytes()].concat(),
    );
    let mut values = narrow::<u32>(MIB).to_le_bytes().to_vec();
    values.extend([0; 4]);
    values.extend((disk.len() as u64).to_le_bytes());
    values.extend(512_u32.to_le_bytes());
    put(&mut file, METADATA_AT + (64 << 10), &values);
    let mut is_first = true;
    for (number, block) in disk.chunks(to_usize(MIB)).enumerate() {
        let entry = if block.iter().any(|byte| *byte != 0) {
            let at = file.len() as u64;
            file.extend(block);
            file.resize(file.len().next_multiple_of(to_usize(MIB)), 0);
            at | BLOCK_PRESENT
        } else if std::mem::take(&mut is_first) {
            BLOCK_ZERO
        } else {
            0
        };
        put(&mut file, BAT_AT + 8 * number as u64, &entry.to_le_bytes());
    }
    reseal(&mut file);
    file
}

/// Returns the image of a disk without blocks that is a layer over a parent with this relative path.
pub fn differencing(parent: &str) -> Vec<u8> {
    let mut file = image(&[0; 1 << 20]);
    let utf16 =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let (key, value) = (utf16("relative_path"), utf16(parent));
    let texts = size_of::<LocatorRaw>() + size_of::<LocatorEntryRaw>();
    let mut locator = LocatorRaw::new_zeroed();
    locator.entries = 1.into();
    let entry = LocatorEntryRaw {
        key_at: narrow::<u32>(texts).into(),
        value_at: narrow::<u32>(texts + key.len()).into(),
        key_length: narrow::<u16>(key.len()).into(),
        value_length: narrow::<u16>(value.len()).into(),
    };
    let bytes = [locator.as_bytes(), entry.as_bytes(), &key, &value].concat();
    let offset = (64 << 10) + 32;
    put(&mut file, METADATA_AT + offset, &bytes);
    put(&mut file, METADATA_AT + 10, &4_u16.to_le_bytes());
    let item = MetadataRaw {
        id: PARENT_LOCATOR,
        offset: narrow::<u32>(offset).into(),
        length: narrow::<u32>(bytes.len()).into(),
        flags: METADATA_REQUIRED.into(),
        reserved: 0.into(),
    };
    let table = size_of::<MetadataTableRaw>() + 3 * size_of::<MetadataRaw>();
    put(&mut file, METADATA_AT + table as u64, item.as_bytes());
    // The flags of the file parameters follow the size of a block.
    put(
        &mut file,
        METADATA_AT + (64 << 10) + 4,
        &HAS_PARENT.to_le_bytes(),
    );
    file
}

fn put(file: &mut [u8], at: u64, bytes: &[u8]) {
    file[to_usize(at)..][..bytes.len()].copy_from_slice(bytes);
}

/// Corrects the checksums of headers and region tables.
pub fn reseal(file: &mut [u8]) {
    let places = HEADERS
        .map(|at| (at, HEADER_SIZE))
        .into_iter()
        .chain(REGION_TABLES.map(|at| (at, TABLE_SIZE)));
    for (at, len) in places {
        if let Some(bytes) = file.get_mut(to_usize(at)..to_usize(at) + len) {
            let sum = checksum(bytes);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}
