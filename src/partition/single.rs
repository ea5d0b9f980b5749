//! Creation of maps with one partition that fills the disk: hdiutil's layouts `GPTSPUD`, `SPUD` and
//! `MBRSPUD`.
//!
//! Source: docs/formats/raw.md §2.1 and §2.3. No MBR created by hdiutil was available.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    APM_SIGNATURE, ApmEntryRaw, DRIVER_DESCRIPTOR_SIGNATURE, DriverDescriptorRaw, MBR_SIGNATURE,
    MbrEntryRaw, MbrRaw,
};
use super::{APPLE_HFS, MBR_HFS, Scheme, TypeId, gpt};
use crate::device::BlockDevice;
use crate::size::narrow;
use crate::{Error, Result};

const LAYER: &str = "partition map";
/// Alignment of partitions in bytes.
const ALIGN: u64 = 4096;
/// Blocks before the partition of an Apple map: the driver descriptor and the map.
const APM_HEAD: u64 = 64;
/// Blocks left free after it.
const APM_TAIL: u64 = 10;
/// Status values that Apple's tools write for a map, a volume and free space.
const APM_STATUS: [u32; 3] = [3, 0x4000_0033, 1];
/// Placeholder for first and last cylinder, head and sector, which are obsolete.
const NO_CHS: [u8; 3] = [0xfe, 0xff, 0xff];

/// The type of the partition in each kind of map.
#[derive(Debug, Clone, Copy)]
pub struct SingleType {
    /// The type in a GPT.
    pub guid: Uuid,
    /// Returns the type in an MBR, by the length of the partition in bytes. `None`: an MBR has none.
    pub mbr: Option<fn(u64) -> u8>,
    /// True if an Apple partition map has the type.
    pub apm: bool,
}

impl From<Uuid> for SingleType {
    /// Returns the types of one of Apple's formats.
    fn from(guid: Uuid) -> Self {
        Self {
            guid,
            mbr: (guid == APPLE_HFS).then_some((|_| MBR_HFS) as fn(u64) -> u8),
            apm: true,
        }
    }
}

/// Returns the length in bytes of the smallest disk, in blocks of `block` bytes, whose partition
/// has room for `volume_len` bytes.
pub fn disk_len_for(scheme: Scheme, volume_len: u64, block: u32) -> Result<u64> {
    let (head, tail) = match scheme {
        Scheme::Gpt => return Ok(gpt::MapGeometry::holding(volume_len, block)?.disk_len()),
        Scheme::Apm => (APM_HEAD * u64::from(block), APM_TAIL * u64::from(block)),
        Scheme::Mbr => (ALIGN, 0),
    };
    let len = volume_len
        .max(1)
        .checked_next_multiple_of(ALIGN)
        .and_then(|len| len.checked_add(head + tail));
    let len =
        len.ok_or_else(|| Error::limit(LAYER, "the volume and its partition map exceed 16 EiB"))?;
    blocks(len, block).map(|_| len)
}

/// Writes a map with one partition over the whole of `disk`, which must begin with zeros; returns
/// the partition's byte range.
///
/// Fails with [`Kind::Unsupported`](crate::Kind) if the map has no
/// equivalent of it, with [`Kind::Limit`](crate::Kind) if the disk has more blocks than the map supports, with
/// [`Kind::Invalid`](crate::Kind) if the disk is too small.
pub fn create(
    scheme: Scheme,
    disk: &dyn BlockDevice,
    partition_type: impl Into<SingleType>,
    guids: gpt::Guids,
) -> Result<Range<u64>> {
    let partition_type = partition_type.into();
    let info = disk.info();
    info.check_writable(LAYER)?;
    if info.len < disk_len_for(scheme, 1, info.block)? {
        let message = format!(
            "disk of {} bytes is too small for a map and a partition",
            info.len
        );
        return Err(Error::invalid(LAYER, message));
    }
    match scheme {
        Scheme::Gpt => gpt::create_single(disk, info.block, partition_type.guid, guids),
        Scheme::Apm if !partition_type.apm => {
            Err(no_type("an Apple partition map", partition_type))
        }
        Scheme::Apm => create_apm(disk, partition_type.guid),
        Scheme::Mbr => create_mbr(disk, partition_type),
    }
}

/// Returns the number of blocks of a disk, which must fit in 32 bits except in a GPT.
fn blocks(len: u64, block: u32) -> Result<u32> {
    u32::try_from(len / u64::from(block)).map_err(|_| {
        let most = u64::from(u32::MAX) * u64::from(block);
        Error::limit(
            LAYER,
            format!("the map supports at most {most} bytes; use a GPT"),
        )
    })
}

fn create_apm(disk: &dyn BlockDevice, type_guid: Uuid) -> Result<Range<u64>> {
    let info = disk.info();
    let all = blocks(info.len, info.block)?;
    let block = u64::from(info.block);
    let end = (u64::from(all) - APM_TAIL) * block;
    let range = APM_HEAD * block..end - end % ALIGN;
    let kind = TypeId::Guid(type_guid).kind().into_owned();
    let entries = [
        (block..range.start, "Apple", "Apple_partition_map"),
        (range.clone(), "disk image", kind.as_str()),
        (range.end..u64::from(all) * block, "", "Apple_Free"),
    ];
    for (number, ((range, name, kind), status)) in (1..).zip(entries.iter().zip(APM_STATUS)) {
        // The values fit because the disk's number of blocks does.
        let [first, blocks] =
            [range.start / block, (range.end - range.start) / block].map(narrow::<u32>);
        let mut raw = ApmEntryRaw {
            signature: APM_SIGNATURE,
            entries: narrow::<u32>(entries.len()).into(),
            first: first.into(),
            blocks: blocks.into(),
            data_blocks: blocks.into(),
            status: status.into(),
            ..ApmEntryRaw::new_zeroed()
        };
        for (field, text) in [(&mut raw.name, name), (&mut raw.kind, kind)] {
            field
                .iter_mut()
                .zip(text.bytes())
                .for_each(|(slot, byte)| *slot = byte);
        }
        disk.write_at(block * number, raw.as_bytes())?;
    }
    let block_size = u16::try_from(info.block).map_err(|_| {
        Error::unsupported(
            LAYER,
            "the block size exceeds 65535 bytes, the maximum of the map",
        )
    })?;
    let signature = DRIVER_DESCRIPTOR_SIGNATURE;
    let descriptor = DriverDescriptorRaw {
        signature,
        block_size: block_size.into(),
        block_count: all.into(),
    };
    disk.write_at(0, descriptor.as_bytes())?;
    disk.flush()?;
    Ok(range)
}

fn no_type(map: &str, partition_type: SingleType) -> Error {
    let kind = TypeId::Guid(partition_type.guid).kind().into_owned();
    Error::unsupported(
        LAYER,
        format!("{map} has no partition type for {kind}; use a GPT"),
    )
}

fn create_mbr(disk: &dyn BlockDevice, partition_type: SingleType) -> Result<Range<u64>> {
    let kind = partition_type
        .mbr
        .ok_or_else(|| no_type("an MBR", partition_type))?;
    let info = disk.info();
    let block = u64::from(info.block);
    let range = ALIGN..info.len - info.len % ALIGN;
    let (first, blocks) = (
        narrow::<u32>(range.start / block),
        blocks(range.end - range.start, info.block)?,
    );
    let mut raw = MbrRaw {
        signature: MBR_SIGNATURE,
        ..MbrRaw::new_zeroed()
    };
    raw.entries[0] = MbrEntryRaw {
        status: 0,
        first_chs: NO_CHS,
        kind: kind(range.end - range.start),
        last_chs: NO_CHS,
        first: first.into(),
        blocks: blocks.into(),
    };
    disk.write_at(0, raw.as_bytes())?;
    disk.flush()?;
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::Memory;
    use crate::partition::{APPLE_APFS, probe};

    /// The sample of docs/formats/raw.md §2.3, created by hdiutil.
    #[test]
    fn an_apple_map_is_as_apple_s() {
        let disk = Memory::zeros(2178 * 512);
        let range = create(Scheme::Apm, &disk, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
        assert_eq!(range, 64 * 512..2168 * 512);
        let bytes = disk.to_vec();
        let entry = |number: usize| {
            let entry = &bytes[number * 512..][..92];
            let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
            let text = |at: usize| {
                String::from_utf8(entry[at..at + 32].to_vec())
                    .unwrap()
                    .trim_end_matches('\0')
                    .to_owned()
            };
            (
                &entry[..4] == b"PM\0\0",
                [word(4), word(8), word(12), word(88)],
                text(16),
                text(48),
            )
        };
        assert_eq!(
            entry(1),
            (
                true,
                [3, 1, 63, 3],
                "Apple".into(),
                "Apple_partition_map".into()
            )
        );
        assert_eq!(
            entry(2),
            (
                true,
                [3, 64, 2104, 0x4000_0033],
                "disk image".into(),
                "Apple_HFS".into()
            )
        );
        assert_eq!(
            entry(3),
            (true, [3, 2168, 10, 1], String::new(), "Apple_Free".into())
        );
        assert_eq!(bytes[..8], [b'E', b'R', 2, 0, 0, 0, 8, 0x82]);
    }

    #[test]
    fn every_map_is_found_again_and_holds_what_was_asked_for() {
        for scheme in [Scheme::Gpt, Scheme::Apm, Scheme::Mbr] {
            for volume_len in [1, 4096, 1_000_000] {
                let len = disk_len_for(scheme, volume_len, 512).unwrap();
                for more in [0, 512, 2048] {
                    let disk = Memory::zeros((len + more) as usize);
                    let range = create(scheme, &disk, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
                    let map = probe(&disk).unwrap().unwrap();
                    assert!(
                        map.scheme == scheme && map.problems.is_empty(),
                        "{:?}",
                        map.problems
                    );
                    let volume = map
                        .partitions
                        .iter()
                        .find(|partition| partition.kind == "Apple_HFS")
                        .unwrap();
                    assert_eq!(
                        (&volume.range, range.start % ALIGN, range.end % ALIGN),
                        (&range, 0, 0)
                    );
                    assert!(
                        range.end - range.start >= volume_len && range.end <= len + more,
                        "{scheme}: {range:?}"
                    );
                }
                let small = Memory::zeros((disk_len_for(scheme, 1, 512).unwrap() - 512) as usize);
                let error =
                    create(scheme, &small, APPLE_HFS, gpt::Guids::derived("x")).unwrap_err();
                assert!(
                    error.kind() == Kind::Invalid && small.to_vec().iter().all(|byte| *byte == 0),
                    "{scheme}: {error}"
                );
            }
        }
        for scheme in [Scheme::Apm, Scheme::Mbr] {
            assert_eq!(
                disk_len_for(scheme, 3 << 40, 512).unwrap_err().kind(),
                Kind::Limit
            );
            assert_eq!(
                disk_len_for(scheme, u64::MAX, 512).unwrap_err().kind(),
                Kind::Limit
            );
        }
        let disk = Memory::zeros(1 << 20);
        let error = create(Scheme::Mbr, &disk, APPLE_APFS, gpt::Guids::derived("x")).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
    }
}
