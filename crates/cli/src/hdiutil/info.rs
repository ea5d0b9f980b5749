//! `hdiutil info`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use bandsaw_registry::{Entry, Registry};
use plist::Value as Plist;

use super::call::Call;
use super::entities::{Entity, entities};
use super::plist_values::{dictionary, number, text, yes};
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
        for entity in entities(entry) {
            let place = place(entry, &entity);
            let _ = writeln!(
                out,
                "/dev/{}\t{}\t{}",
                entity.device,
                entity.hint,
                call.output.name(&place)
            );
        }
    }
    call.print(&out)
}

/// Returns the mount point of a device. A served disk is found at its URIs, and a disk shown as a
/// file in its folder.
fn place<'a>(entry: &'a Entry, entity: &Entity<'a>) -> Cow<'a, str> {
    let is_disk = entity.device == entry.device;
    let shown = entry
        .mounts
        .iter()
        .find(|mount| is_disk && mount.device == entry.device)
        .map(|mount| mount.folder.to_string_lossy());
    let served = || entry.places.first().map(|place| place.as_str().into());
    entity
        .place()
        .map(Path::to_string_lossy)
        .or(shown)
        .or_else(|| served().filter(|_| is_disk && entry.mounts.is_empty()))
        .unwrap_or_default()
}

/// Returns macOS's name of the kind of an image.
fn kind(code: &str) -> &str {
    match code {
        "UDSB" => "sparse bundle disk image",
        "UDSP" => "sparse disk image",
        "UDRW" | "UDTO" => "read/write",
        "UDRO" | "UDCO" | "UDZO" | "UDBZ" | "ULFO" | "ULMO" => "read-only disk image",
        other => other,
    }
}

fn image(entry: &Entry) -> Plist {
    let devices = entities(entry)
        .iter()
        .map(|entity| {
            let mut facts = vec![
                ("content-hint", text(entity.hint.as_str())),
                ("dev-entry", text(format!("/dev/{}", entity.device))),
            ];
            let place = place(entry, entity);
            if !place.is_empty() {
                facts.push(("mount-point", text(place)));
            }
            dictionary(facts)
        })
        .collect();
    let mut entries = vec![
        ("blockcount", number(entry.size / SECTOR)),
        ("blocksize", number(SECTOR)),
        ("hdid-pid", number(entry.process.into())),
        ("image-encrypted", yes(entry.encrypted)),
        ("image-path", text(entry.image.to_string_lossy())),
        ("image-type", text(kind(&entry.format))),
        ("system-entities", Plist::Array(devices)),
        ("writeable", yes(!entry.read_only)),
    ];
    if let Some(layer) = entry.layers.last() {
        entries.push(("shadow-path", text(layer.to_string_lossy())));
    }
    dictionary(entries)
}
