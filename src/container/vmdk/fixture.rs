//! VMDK files for tests.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{AT_END, COMPRESSED, ExtentRaw, GrainRaw, MAGIC};
use crate::codec::{Codec, Encoder, Level};
use crate::size::narrow;

/// Bytes of a grain, and entries of a table.
const GRAIN: usize = 64 << 10;
const ENTRIES: usize = 512;

/// A description of a disk in flat files, with an extent that is not stored.
pub const DESCRIPTION: &str = "# Disk DescriptorFile\nversion=1\nCID=123a5678\nparentCID=ffffffff\n\
                               createType=\"custom\"\nRW 200 FLAT \"a-f001.vmdk\" 0\nRW 100 ZERO\n\
                               RW 500 FLAT \"a-f002.vmdk\" 8\n";

/// Returns the file of a disk: `monolithicSparse`, or `streamOptimized` if compressed.
pub fn file(disk: &[u8], compressed: bool) -> Vec<u8> {
    let kind = match compressed {
        true => "streamOptimized",
        false => "monolithicSparse",
    };
    let sectors = disk.len() / 512;
    let description = format!(
        "# Disk DescriptorFile\nversion=1\nCID=123a5678\nparentCID=ffffffff\ncreateType=\"{kind}\"\n\
         RW {sectors} SPARSE \"disk.vmdk\"\n"
    );
    let mut header = ExtentRaw::new_zeroed();
    header.magic = MAGIC;
    header.version = if compressed { 3 } else { 1 }.into();
    header.flags = if compressed {
        3 | COMPRESSED | 1 << 17
    } else {
        3
    }
    .into();
    header.capacity = (sectors as u64).into();
    header.grain_size = (GRAIN as u64 / 512).into();
    header.descriptor_at = 1.into();
    header.descriptor_size = 2.into();
    header.table_entries = narrow::<u32>(ENTRIES).into();
    header.directory_at = AT_END.into();
    header.compression = u16::from(compressed).into();
    let mut file = vec![0; 3 * 512];
    file[512..][..description.len()].copy_from_slice(description.as_bytes());
    let mut encoder = Encoder::new(Codec::Zlib, Level::default());
    let mut table = Vec::new();
    for (number, plain) in disk.chunks(GRAIN).enumerate() {
        if plain.iter().all(|byte| *byte == 0) {
            table.extend([0; 4]);
            continue;
        }
        table.extend(narrow::<u32>(file.len() / 512).to_le_bytes());
        let mut grain = plain.to_vec();
        grain.resize(GRAIN, 0);
        if compressed {
            let mut packed = Vec::new();
            // A stream of random bytes is longer, in one stored block.
            if !encoder.encode(&grain, &mut packed).unwrap_or(false) {
                packed = stored(&grain);
            }
            let marker = GrainRaw {
                sector: ((number * GRAIN / 512) as u64).into(),
                length: narrow::<u32>(packed.len()).into(),
            };
            file.extend(marker.as_bytes());
            file.extend(packed);
        } else {
            file.extend(grain);
        }
        file.resize(file.len().next_multiple_of(512), 0);
    }
    table.resize(ENTRIES * 4, 0);
    let table_at = narrow::<u32>(file.len() / 512);
    file.extend(&table);
    let directory_at = file.len() as u64 / 512;
    file.extend(table_at.to_le_bytes());
    file.resize(file.len().next_multiple_of(512), 0);
    if compressed {
        file[..512].copy_from_slice(header.as_bytes());
        header.directory_at = directory_at.into();
        file.extend(header.as_bytes());
        file.extend([0; 512]);
    } else {
        header.directory_at = directory_at.into();
        file[..512].copy_from_slice(header.as_bytes());
    }
    file
}

/// Returns a zlib stream of stored blocks.
fn stored(plain: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks: Vec<_> = plain.chunks(60_000).collect();
    for (number, block) in blocks.iter().enumerate() {
        stream.push(u8::from(number + 1 == blocks.len()));
        let len = narrow::<u16>(block.len());
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(*block);
    }
    let (one, two) = plain.iter().fold((1_u32, 0_u32), |(one, two), byte| {
        let one = (one + u32::from(*byte)) % 65_521;
        (one, (two + one) % 65_521)
    });
    stream.extend((two << 16 | one).to_be_bytes());
    stream
}
