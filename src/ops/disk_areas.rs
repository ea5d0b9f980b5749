//! The areas of a disk in the notation of hdiutil.

use crate::Result;
use crate::device::BlockDevice;
use crate::fs::hfsplus;
use crate::partition::{Area, Map, Scheme, areas};

/// Returns the scheme of the partition map, and the areas that cover the whole disk in order, as
/// [`areas`] does, with the types that hdiutil states by the contents.
pub fn disk_areas(
    disk: &dyn BlockDevice,
    map: Option<&Map>,
) -> Result<(Option<Scheme>, Vec<Area>)> {
    let (scheme, mut found) = areas(disk, map)?;
    for area in &mut found {
        area.kind = kind(disk, scheme, area)?;
    }
    Ok((scheme, found))
}

/// Returns the type of an area in the notation of hdiutil, which looks into areas where the map does
/// not tell HFS+ from HFSX, and into a disk without a map.
fn kind(disk: &dyn BlockDevice, scheme: Option<Scheme>, area: &Area) -> Result<String> {
    let is_ambiguous = match scheme {
        None => true,
        Some(Scheme::Gpt) => area.kind == "Apple_HFS",
        Some(Scheme::Apm | Scheme::Mbr) => false,
    };
    let volume = match is_ambiguous {
        true => hfsplus::signature_at(disk, area.range.start)?,
        false => None,
    };
    Ok(match (scheme, volume) {
        (None, Some(_)) => "Apple_HFS".to_owned(),
        (Some(_), Some(hfsplus::Probed::Hfsx)) => "Apple_HFSX".to_owned(),
        _ => area.kind.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::partition::{self, APPLE_HFS, gpt};

    const MIB: usize = 1 << 20;

    fn kinds(disk: &Memory) -> Vec<String> {
        let map = partition::probe(disk).unwrap_or(None);
        let (_, areas) = disk_areas(disk, map.as_ref()).unwrap();
        areas.into_iter().map(|area| area.kind).collect()
    }

    #[test]
    fn types_are_those_of_hdiutil() {
        let disk = Memory::zeros(MIB);
        assert_eq!(kinds(&disk), ["unknown partition"]);
        for (signature, kind) in [
            (b"H+", "Apple_HFS"),
            (b"HX", "Apple_HFS"),
            (b"BD", "Apple_HFS"),
            (b"BX", "unknown partition"),
        ] {
            disk.write_at(1024, signature).unwrap();
            assert_eq!(kinds(&disk), [kind]);
        }
        assert_eq!(kinds(&Memory::zeros(1025)), ["unknown partition"]);

        let disk = Memory::zeros(4 * MIB);
        gpt::create_single(&disk, 512, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
        let map = partition::probe(&disk).unwrap();
        let (_, found) = disk_areas(&disk, map.as_ref()).unwrap();
        let at = found.iter().position(|area| area.kind == "Apple_HFS");
        let start = found[at.unwrap()].range.start;
        for (signature, kind) in [(b"HX", "Apple_HFSX"), (b"H+", "Apple_HFS")] {
            disk.write_at(start + 1024, signature).unwrap();
            assert_eq!(kinds(&disk)[at.unwrap()], kind);
        }
    }
}
