//! Division of a disk into areas as listed by hdiutil: the structures of the map, the partitions,
//! and the gaps.

use std::borrow::Cow;
use std::ops::Range;

use super::{Map, Partition, Scheme, TypeId, gpt};
use crate::Result;
use crate::device::BlockDevice;

/// A part of a disk, with hdiutil's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Byte range, never empty.
    pub range: Range<u64>,
    /// Name of the partition, or of a structure (`GPT Header`). Often empty.
    pub name: String,
    /// Type in hdiutil's notation, as the map states it: `Apple_HFS`, `Primary GPT Table`, `Apple_Free`.
    pub kind: String,
}

impl Area {
    fn new(range: Range<u64>, name: &str, kind: impl Into<String>) -> Self {
        Self {
            range,
            name: name.to_owned(),
            kind: kind.into(),
        }
    }

    /// Returns true if the area is free: neither a partition nor a structure.
    pub fn is_free(&self) -> bool {
        self.kind == FREE
    }
}

const FREE: &str = "Apple_Free";

/// Returns the areas of `disk` in order; together they cover it. Without a map, or with one whose
/// partitions overlap each other or its structures, the disk is one area.
pub fn areas(disk: &dyn BlockDevice, map: Option<&Map>) -> Result<(Option<Scheme>, Vec<Area>)> {
    let len = disk.info().len;
    if let Some(map) = map {
        let mut areas = structures(disk, map)?;
        let listed = map
            .partitions
            .iter()
            .filter(|partition| is_area(map.scheme, partition));
        areas.extend(
            listed.map(|partition| {
                Area::new(partition.range.clone(), &partition.name, kind(partition))
            }),
        );
        if let Some(areas) = with_gaps(areas, len) {
            return Ok((Some(map.scheme), areas));
        }
    }
    let whole = Area::new(0..len, "whole disk", "unknown partition");
    Ok((None, vec![whole]))
}

/// Returns the structures of the map itself, except those that have partitions of their own.
fn structures(disk: &dyn BlockDevice, map: &Map) -> Result<Vec<Area>> {
    let first = 0..u64::from(map.block);
    Ok(match map.scheme {
        Scheme::Apm => vec![Area::new(first, "Driver Descriptor Map", "DDM")],
        Scheme::Mbr => vec![Area::new(first, "Master Boot Record", "MBR")],
        Scheme::Gpt => {
            let mut areas = vec![Area::new(first, "Protective Master Boot Record", "MBR")];
            for (copy, which) in gpt::copies(disk, map.block)?
                .into_iter()
                .zip(["Primary", "Backup"])
            {
                let Some(copy) = copy else { continue };
                areas.push(Area::new(
                    copy.header,
                    "GPT Header",
                    format!("{which} GPT Header"),
                ));
                areas.push(Area::new(
                    copy.table,
                    "GPT Partition Data",
                    format!("{which} GPT Table"),
                ));
            }
            areas
        }
    })
}

/// Returns false for logical partitions, which are contained in another partition.
fn is_area(scheme: Scheme, partition: &Partition) -> bool {
    scheme != Scheme::Mbr || partition.number <= 4
}

/// Returns hdiutil's name of a type known to Apple's systems, otherwise the GUID in its notation.
fn kind(partition: &Partition) -> Cow<'_, str> {
    match &partition.type_id {
        TypeId::Guid(guid) if !partition.kind.starts_with("Apple_") => {
            guid.to_string().to_uppercase().into()
        }
        _ => partition.kind.as_str().into(),
    }
}

/// Returns the areas in order with the gaps between them; `None` if they overlap.
fn with_gaps(mut areas: Vec<Area>, len: u64) -> Option<Vec<Area>> {
    areas.sort_by_key(|area| area.range.start);
    let mut all = Vec::with_capacity(2 * areas.len() + 1);
    let mut at = 0;
    for area in areas {
        if area.range.start < at || area.range.end > len || area.range.is_empty() {
            return None;
        }
        if area.range.start > at {
            all.push(Area::new(at..area.range.start, "", FREE));
        }
        at = area.range.end;
        all.push(area);
    }
    if at < len {
        all.push(Area::new(at..len, "", FREE));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::partition::{APPLE_HFS, probe};

    const MIB: usize = 1 << 20;

    fn listed(disk: &Memory) -> (Option<Scheme>, Vec<(u64, u64, String)>) {
        let map = probe(disk).unwrap();
        let (scheme, areas) = areas(disk, map.as_ref()).unwrap();
        let said = |area: Area| {
            (
                area.range.start / 512,
                (area.range.end - area.range.start) / 512,
                format!("{} ({})", area.name, area.kind),
            )
        };
        (scheme, areas.into_iter().map(said).collect())
    }

    #[test]
    fn a_gpt_disk_is_listed_as_hdiutil_does() {
        let disk = Memory::zeros(4 * MIB);
        gpt::create_single(&disk, 512, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
        let (scheme, list) = listed(&disk);
        assert_eq!(scheme, Some(Scheme::Gpt));
        let names: Vec<_> = list.iter().map(|(.., name)| name.as_str()).collect();
        assert_eq!(
            [&names[..4], &names[names.len() - 2..]].concat(),
            [
                "Protective Master Boot Record (MBR)",
                "GPT Header (Primary GPT Header)",
                "GPT Partition Data (Primary GPT Table)",
                " (Apple_Free)",
                "GPT Partition Data (Backup GPT Table)",
                "GPT Header (Backup GPT Header)"
            ]
        );
        assert_eq!((list[0].0, list[1].0, list[2].0, list[3].0), (0, 1, 2, 34));
        assert!(list[4].2.ends_with("(Apple_HFS)"));
        let mut at = 0;
        for (start, len, name) in list {
            assert!(start == at && len > 0, "{name}");
            at = start + len;
        }
        assert_eq!(at, 4 * MIB as u64 / 512);
    }

    #[test]
    fn without_a_usable_map_the_disk_is_one_area() {
        let mut bytes = vec![0; MIB];
        assert_eq!(
            listed(&Memory::from(bytes.clone())),
            (
                None,
                vec![(0, 2048, "whole disk (unknown partition)".into())]
            )
        );
        // An MBR with two partitions, then with the second moved over the first.
        bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
        for (n, first, blocks) in [(0, 128u32, 100u32), (1, 300, 50)] {
            let entry = &mut bytes[446 + 16 * n..][..16];
            entry[4] = 0x0E;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..].copy_from_slice(&blocks.to_le_bytes());
        }
        let expected = [
            (0, 1, "Master Boot Record (MBR)"),
            (1, 127, " (Apple_Free)"),
            (128, 100, " (Windows_FAT_16)"),
            (228, 72, " (Apple_Free)"),
            (300, 50, " (Windows_FAT_16)"),
            (350, 1698, " (Apple_Free)"),
        ];
        let expected = expected
            .map(|(start, len, name)| (start, len, name.to_owned()))
            .to_vec();
        assert_eq!(
            listed(&Memory::from(bytes.clone())),
            (Some(Scheme::Mbr), expected)
        );
        bytes[446 + 16 + 8] = 200;
        bytes[446 + 16 + 9] = 0;
        assert_eq!(listed(&Memory::from(bytes)).1.len(), 1);
    }
}
