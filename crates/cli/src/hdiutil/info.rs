//! `hdiutil info`.

use std::borrow::Cow;
use std::fmt::Write as _;

use bandsaw_registry::{Entry, Registry};
use plist::Value as Plist;

use super::call::Call;
use super::facts::{dictionary, disk_hint, number, text, volume_hint};
use super::size::SECTOR;
use super::table::{COMMON, PLIST, Verb};
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["info"],
    operands: "",
    count: (0, 0),
    says: "Lists the images that are attached, mounted or served",
    options: &[COMMON, PLIST],
    run: Some(run),
};

pub(super) fn run(call: &Call) -> Outcome {
    let entries = Registry::of_user()?.entries()?;
    if call.has("plist") {
        return call.plist(dictionary([
            ("framework", text(env!("CARGO_PKG_VERSION"))),
            ("revision", text(env!("CARGO_PKG_VERSION"))),
            ("vendor", text("bandsaw")),
            ("images", Plist::Array(entries.iter().map(image).collect())),
        ]));
    }
    let mut out = format!("framework       : {}\n", env!("CARGO_PKG_VERSION"));
    for entry in &entries {
        let _ = writeln!(out, "{}", "=".repeat(48));
        let mut fact = |what: &str, value: &str| {
            let _ = writeln!(out, "{what:16}: {}", call.output.name(value));
        };
        fact("image-path", &entry.image.to_string_lossy());
        fact("image-type", &entry.format);
        fact("image-encrypted", &entry.encrypted.to_string());
        fact("writeable", if entry.read_only { "FALSE" } else { "TRUE" });
        fact("blockcount", &(entry.size / SECTOR).to_string());
        fact("blocksize", &SECTOR.to_string());
        fact("process ID", &entry.process.to_string());
        for (device, hint, place) in devices(entry) {
            let _ = writeln!(out, "/dev/{device}\t{hint}\t{}", call.output.name(&place));
        }
    }
    call.tell(&out)
}

/// Returns the disk and its mounted volumes: device names, content hints, and mount points.
fn devices(entry: &Entry) -> Vec<(&str, &'static str, Cow<'_, str>)> {
    let mounts = |of_disk: bool| {
        entry
            .mounts
            .iter()
            .filter(move |mount| (mount.device == entry.device) == of_disk)
    };
    // A served disk is found at its URIs, and a disk shown as a file in its folder.
    let whole = match entry.mounts.is_empty() {
        true => entry.places.first().map_or("".into(), Into::into),
        false => mounts(true)
            .next()
            .map_or("".into(), |mount| mount.folder.to_string_lossy()),
    };
    let disk = (
        entry.device.as_str(),
        disk_hint(entry.scheme.as_deref()),
        whole,
    );
    let volumes = mounts(false).map(|mount| {
        (
            mount.device.as_str(),
            volume_hint(&mount.format),
            mount.folder.to_string_lossy(),
        )
    });
    std::iter::once(disk).chain(volumes).collect()
}

fn image(entry: &Entry) -> Plist {
    let devices = devices(entry).into_iter().map(|(device, hint, place)| {
        let mut facts = vec![
            ("dev-entry", text(format!("/dev/{device}"))),
            ("content-hint", text(hint)),
        ];
        if !place.is_empty() {
            facts.push(("mount-point", text(place)));
        }
        dictionary(facts)
    });
    let mut entries = vec![
        ("image-path", text(entry.image.to_string_lossy())),
        ("image-type", text(entry.format.as_str())),
        ("image-encrypted", Plist::Boolean(entry.encrypted)),
        ("writeable", Plist::Boolean(!entry.read_only)),
        ("blockcount", number(entry.size / SECTOR)),
        ("blocksize", number(SECTOR)),
        ("hdid-pid", number(entry.process.into())),
        ("system-entities", Plist::Array(devices.collect())),
    ];
    if let Some(layer) = entry.layers.last() {
        entries.push(("shadow-path", text(layer.to_string_lossy())));
    }
    dictionary(entries)
}
