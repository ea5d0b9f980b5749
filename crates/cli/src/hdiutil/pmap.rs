//! `hdiutil pmap`.

use std::fmt::Write as _;

use bandsaw::open::{Image, VolumeFormat};
use bandsaw::ops::disk_areas::disk_areas;
use bandsaw::partition::TypeId;
use plist::Value as Plist;

use super::call::Call;
use super::plist_values::{dictionary, number, scheme, text, yes};
use super::size::SECTOR;
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::failure::Outcome;

const OPTIONS: &str = "
-uuids | done | also prints the identifiers of partitions
-endoffsets | done | also prints the last sector of each
-simple -standard -complete -diagnostic | ignored | all partitions are always listed
-nofreespace -shims | ignored | free space is never listed
";

pub(super) const VERB: Verb = Verb {
    names: &["pmap"],
    operands: "*image*",
    count: (1, 1),
    says: "Lists the partitions of the disk, in sectors of 512 bytes",
    options: &[COMMON, PLIST, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    if call.has("plist") {
        return call.plist(partitions(&image)?);
    }
    let mut out = String::new();
    let len = image.disk().info().len / SECTOR;
    let scheme = scheme(image.partitions().map(|map| map.scheme));
    let _ = writeln!(out, "partition-scheme: {scheme}, {len} sectors");
    for partition in image.partitions().map_or(&[][..], |map| &map.partitions) {
        let (start, end) = (partition.range.start / SECTOR, partition.range.end / SECTOR);
        let _ = write!(
            out,
            "{:>3} {:>12} {:>12}",
            partition.number,
            start,
            end - start
        );
        if call.has("endoffsets") {
            let _ = write!(out, " {:>12}", end.saturating_sub(1));
        }
        let _ = write!(
            out,
            "  {:24} {}",
            partition.kind,
            call.output.name(&partition.name)
        );
        if let Some(guid) = partition.guid.filter(|_| call.has("uuids")) {
            let _ = write!(out, " {}", guid.hyphenated().to_string().to_uppercase());
        }
        out.push('\n');
    }
    call.print(&out)
}

/// Returns the entry `partitions` of `imageinfo -plist`: every area of the disk. The structures of
/// the map and free space are marked as synthesized.
pub(super) fn partitions(image: &Image) -> Outcome<Plist> {
    let map = image.partitions();
    let block = map.map_or(SECTOR, |map| map.block.into());
    let (found, areas) = disk_areas(&**image.disk(), map)?;
    let listed = areas
        .into_iter()
        .map(|area| {
            let mut entry = vec![
                ("partition-hint", text(area.kind.as_str())),
                ("partition-name", text(area.name.as_str())),
                ("partition-start", number(area.range.start / block)),
                (
                    "partition-length",
                    number((area.range.end - area.range.start) / block),
                ),
            ];
            let partition = map
                .filter(|_| found.is_some())
                .and_then(|map| map.partitions.iter().find(|part| part.range == area.range));
            let systems = file_systems(image, partition.map(|part| part.number));
            match partition {
                Some(partition) => {
                    entry.push(("partition-number", number(partition.number.into())));
                    entry.push(("partition-filesystems", systems));
                    if let Some(guid) = partition.guid {
                        entry.push(("partition-UUID", uuid(&guid)));
                    }
                    if let TypeId::Guid(guid) = &partition.type_id {
                        entry.push(("partition-hint-UUID", uuid(guid)));
                    }
                }
                None if found.is_none() => entry.push(("partition-filesystems", systems)),
                None => entry.push(("partition-synthesized", yes(true))),
            }
            dictionary(entry)
        })
        .collect();
    Ok(dictionary([
        ("partition-scheme", text(scheme(found))),
        ("block-size", number(block)),
        ("burnable", yes(false)),
        ("partitions", Plist::Array(listed)),
    ]))
}

/// Returns the file systems in a partition, or on a disk without one. macOS 27 gives every APFS
/// container the name `Untitled`, and HFS+ volumes none.
fn file_systems(image: &Image, partition: Option<u32>) -> Plist {
    let found = image
        .volumes()
        .iter()
        .filter(|volume| volume.partition == partition);
    let name = |format| match format {
        VolumeFormat::Apfs => "Untitled",
        _ => "",
    };
    let systems: Vec<_> = found
        .map(|volume| (volume.format.name(), text(name(volume.format))))
        .collect();
    dictionary(systems)
}

fn uuid(uuid: &impl ToString) -> Plist {
    text(uuid.to_string().to_uppercase())
}
