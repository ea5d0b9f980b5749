//! `hdiutil info`.

use std::fmt::Write as _;

use bandsaw_registry::{Entry, Registry};
use plist::Value as Plist;

use super::call::Call;
use super::facts::{dictionary, number, text};
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

fn run(call: &Call) -> Outcome {
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
        for place in &entry.places {
            let _ = writeln!(out, "/dev/{}\t\t{}", entry.device, call.output.name(place));
        }
    }
    call.tell(&out)
}

fn image(entry: &Entry) -> Plist {
    let places = entry
        .places
        .iter()
        .map(|place| dictionary([("dev-entry", text(format!("/dev/{}", entry.device))), ("mount-point", text(place.as_str()))]));
    let mut entries = vec![
        ("image-path", text(entry.image.to_string_lossy())),
        ("image-type", text(entry.format.as_str())),
        ("image-encrypted", Plist::Boolean(entry.encrypted)),
        ("writeable", Plist::Boolean(!entry.read_only)),
        ("blockcount", number(entry.size / SECTOR)),
        ("blocksize", number(SECTOR)),
        ("hdid-pid", number(entry.process.into())),
        ("system-entities", Plist::Array(places.collect())),
    ];
    if let Some(layer) = entry.layers.last() {
        entries.push(("shadow-path", text(layer.to_string_lossy())));
    }
    dictionary(entries)
}
