//! `hdiutil imageinfo`.

use std::io::IsTerminal;

use bandsaw::Kind;
use bandsaw::address::redacted;
use bandsaw::container::udif::LICENCE_KINDS;
use bandsaw::ops::resize::limits;
use plist::Value as Plist;

use super::call::Call;
use super::facts::{description, dictionary, number, text};
use super::pmap::partitions;
use super::size::SECTOR;
use super::table::Effect::Done;
use super::table::Takes::Nothing;
use super::table::{COMMON, OPENING, Opt, PLIST, Verb, opt};
use crate::failure::{Failure, Outcome};

const OPTIONS: &[Opt] = &[
    opt(
        &["format"],
        Nothing,
        Done("prints only the code of the format"),
    ),
    opt(
        &["checksum"],
        Nothing,
        Done("prints only the type of the stored checksum"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["imageinfo"],
    operands: "*image*",
    count: (1, 1),
    says: "Describes an image",
    options: &[COMMON, PLIST, OPENING, OPTIONS],
    run: Some(run),
};

/// Prints the facts about an encrypted image without a valid key.
fn locked(call: &Call, failure: Failure) -> Outcome {
    let is_bundle = std::path::Path::new(call.image()).is_dir();
    // After a question on the terminal, the passphrase was wrong.
    let is_locked = match failure.kind() {
        Kind::WrongKey => !std::io::stdin().is_terminal() && !call.has("stdinpass"),
        kind => kind == Kind::Unsupported,
    };
    if !is_locked || !Call::is_encrypted_at(call.image()).unwrap_or_default() {
        return Err(failure);
    }
    let format = if is_bundle { "UDSB" } else { "unknown" };
    if call.has("format") {
        return call.tell(&format!("{format}\n"));
    }
    if call.has("plist") {
        let properties = dictionary([("Encrypted", Plist::Boolean(true))]);
        let place = dictionary([("Name", text(call.image()))]);
        return call.plist(dictionary([
            ("Format", text(format)),
            ("Properties", properties),
            ("Backing Store Information", place),
        ]));
    }
    call.tell(&format!("Format: {format}\nEncrypted: true\n"))
}

pub(super) fn run(call: &Call) -> Outcome {
    let image = match call.open() {
        Ok((image, _)) => image,
        Err(failure) => return locked(call, failure),
    };
    let format = image.format();
    let sum = if format.is_udif() { "CRC32" } else { "none" };
    if call.has("format") {
        return call.tell(&format!("{}\n", format.code()));
    }
    if call.has("checksum") {
        return call.tell(&format!("{sum}\n"));
    }
    let is_encrypted = image.encryption().is_some();
    let len = image.disk().info().len;
    let packed = image.udif().map(|udif| udif.usage());
    let licence = image.udif().is_some_and(|udif| {
        udif.resources()
            .iter()
            .any(|resource| LICENCE_KINDS.contains(&resource.kind.as_str()))
    });
    if !call.has("plist") {
        let lines = [
            ("Format", format.code().to_owned()),
            ("Format Description", description(format).to_owned()),
            ("Total Bytes", len.to_string()),
            ("Sector Count", (len / SECTOR).to_string()),
            ("Checksum Type", sum.to_owned()),
            ("Encrypted", is_encrypted.to_string()),
            ("Partitioned", image.partitions().is_some().to_string()),
            ("Software License Agreement", licence.to_string()),
        ];
        return call.tell(
            &lines
                .iter()
                .map(|(what, value)| format!("{what}: {value}\n"))
                .collect::<String>(),
        );
    }
    let mut sizes = vec![
        ("Total Bytes", number(len)),
        ("Sector Count", number(len / SECTOR)),
    ];
    if let Some(usage) = &packed {
        sizes.push(("Compressed Bytes", number(usage.stored)));
        sizes.push((
            "Compressed Ratio",
            Plist::Real(if usage.held == 0 {
                1.0
            } else {
                usage.stored as f64 / usage.held as f64
            }),
        ));
        sizes.push(("Total Non-Empty Bytes", number(usage.held)));
        sizes.push(("Total Empty Bytes", number(len.saturating_sub(usage.held))));
    }
    let properties = dictionary([
        ("Checksummed", Plist::Boolean(format.is_udif())),
        (
            "Compressed",
            Plist::Boolean(format.is_udif() && format.code() != "UDRO"),
        ),
        ("Encrypted", Plist::Boolean(is_encrypted)),
        (
            "Kernel Compatible",
            Plist::Boolean(format.is_plain() && !is_encrypted),
        ),
        ("Partitioned", Plist::Boolean(image.partitions().is_some())),
        ("Software License Agreement", Plist::Boolean(licence)),
    ]);
    let mut entries = vec![
        ("Format", text(format.code())),
        ("Format Description", text(description(format))),
        ("Checksum Type", text(sum)),
        ("Properties", properties),
        ("Size Information", dictionary(sizes)),
        (
            "Backing Store Information",
            dictionary([("Name", text(redacted(&image.path().to_string_lossy())))]),
        ),
        ("partitions", partitions(&image)),
    ];
    if let Some(bundle) = image.bundle() {
        entries.push(("sparse-band-size", number(bundle.band_size() / SECTOR)));
    }
    if let Ok(found) = limits(&image, None) {
        let sizes = [
            ("resize-min", found.min),
            ("resize-cur", found.current),
            ("resize-max", found.max),
        ];
        entries.push((
            "Resize limits",
            dictionary(sizes.map(|(key, bytes)| (key, number(bytes / SECTOR)))),
        ));
    }
    call.plist(dictionary(entries))
}
