//! `hdiutil pmap`.

use std::fmt::Write as _;

use bandsaw::open::Image;
use plist::Value as Plist;

use super::call::Call;
use super::facts::{dictionary, number, text};
use super::size::SECTOR;
use super::table::Effect::{Done, Ignored};
use super::table::Takes::Nothing;
use super::table::{COMMON, OPENING, Opt, PLIST, Verb, opt};
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(
        &["uuids"],
        Nothing,
        Done("also prints the identifiers of partitions"),
    ),
    opt(
        &["endoffsets"],
        Nothing,
        Done("also prints the last sector of each"),
    ),
    opt(
        &["simple", "standard", "complete", "diagnostic"],
        Nothing,
        Ignored("all partitions are always listed"),
    ),
    opt(
        &["nofreespace", "shims"],
        Nothing,
        Ignored("free space is never listed"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["pmap"],
    operands: "*image*",
    count: (1, 1),
    says: "Lists the partitions of the disk, in sectors of 512 bytes",
    options: &[COMMON, PLIST, OPENING, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    if call.has("plist") {
        return call.plist(partitions(&image));
    }
    let mut out = String::new();
    let len = image.disk().info().len / SECTOR;
    let scheme = image
        .partitions()
        .map_or_else(|| "none".to_owned(), |map| map.scheme.to_string());
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
    call.tell(&out)
}

/// Returns the entry `partitions` of `imageinfo -plist`.
pub(super) fn partitions(image: &Image) -> Plist {
    let entry = |hint: &str, name: &str, start: u64, end: u64, id: Option<u32>| {
        let mut entry = vec![
            ("partition-hint", text(hint)),
            ("partition-name", text(name)),
            ("partition-start", number(start / SECTOR)),
            ("partition-length", number((end - start) / SECTOR)),
            ("partition-synthesized", Plist::Boolean(false)),
        ];
        if let Some(id) = id {
            entry.push(("partition-number", number(id.into())));
            let found = image
                .volumes()
                .iter()
                .filter(|volume| volume.partition == Some(id));
            let found = found.filter_map(|volume| {
                Some((
                    volume.format.name(),
                    text(volume.open().ok()?.volume().name),
                ))
            });
            entry.push((
                "partition-filesystems",
                dictionary(found.collect::<Vec<_>>()),
            ));
        }
        dictionary(entry)
    };
    let listed = match image.partitions() {
        None => vec![entry("", "whole disk", 0, image.disk().info().len, None)],
        Some(map) => {
            let each = |part: &bandsaw::partition::Partition| {
                entry(
                    &part.kind,
                    &part.name,
                    part.range.start,
                    part.range.end,
                    Some(part.number),
                )
            };
            map.partitions.iter().map(each).collect()
        }
    };
    let scheme = image
        .partitions()
        .map_or_else(|| "none".to_owned(), |map| map.scheme.to_string());
    dictionary([
        ("partition-scheme", text(scheme)),
        (
            "block-size",
            number(image.partitions().map_or(SECTOR, |map| map.block.into())),
        ),
        ("partitions", Plist::Array(listed)),
    ])
}
