//! `hdiutil imageinfo`.

use std::io::IsTerminal;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::address::redacted;
use bandsaw::container::Format;
use bandsaw::container::udif::{Checksum, LICENSE_KINDS, part_path};
use bandsaw::open::{Image, Layer};
use plist::Value as Plist;

use super::call::Call;
use super::plist_values::{description, dictionary, number, text, url, yes};
use super::pmap::partitions;
use super::size::SECTOR;
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::failure::{Failure, Outcome};

const OPTIONS: &str = "
-format | done | prints only the code of the format
-checksum | done | prints only the type of the stored checksum
";

pub(super) const VERB: Verb = Verb {
    names: &["imageinfo"],
    operands: "*image*",
    count: (1, 1),
    says: "Describes an image",
    options: &[COMMON, PLIST, OPENING, KEYS, OPTIONS],
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
        return call.print(&format!("{format}\n"));
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
    call.print(&format!("Format: {format}\nEncrypted: true\n"))
}

pub(super) fn run(call: &Call) -> Outcome {
    match call.open() {
        Ok((image, _)) => describe(call, &image),
        Err(failure) => locked(call, failure),
    }
}

/// `diskutil image info`: the same facts, and the size under the name that its callers read.
pub(super) fn run_of_diskutil(call: &Call) -> Outcome {
    let image = match call.open() {
        Ok((image, _)) => image,
        Err(failure) => return locked(call, failure),
    };
    if !call.has("plist") {
        return describe(call, &image);
    }
    let len = image.disk().info().len;
    let mut entries = facts(call, &image)?;
    entries.push((
        "Size Info",
        dictionary([
            ("Sector Count", number(len / SECTOR)),
            ("Total Bytes", number(len)),
        ]),
    ));
    call.plist(dictionary(entries))
}

fn describe(call: &Call, image: &Image) -> Outcome {
    let format = image.format();
    let sum = sum_kind(image);
    if call.has("format") {
        return call.print(&format!("{}\n", format.code()));
    }
    if call.has("checksum") {
        return call.print(&format!("{sum}\n"));
    }
    if call.has("plist") {
        return call.plist(dictionary(facts(call, image)?));
    }
    let len = image.disk().info().len;
    let lines = [
        ("Format", format.code().to_owned()),
        ("Format Description", description(format).to_owned()),
        ("Total Bytes", len.to_string()),
        ("Sector Count", (len / SECTOR).to_string()),
        ("Checksum Type", sum.to_owned()),
        ("Encrypted", is_encrypted(image).to_string()),
        ("Partitioned", PARTITIONED.to_string()),
        ("Software License Agreement", has_license(image).to_string()),
    ];
    call.print(
        &lines
            .iter()
            .map(|(what, value)| format!("{what}: {value}\n"))
            .collect::<String>(),
    )
}

/// The value of `Partitioned`, which macOS 27 prints for disks with a GUID map too.
const PARTITIONED: bool = false;

fn sum_kind(image: &Image) -> &'static str {
    if image.format().is_udif() {
        "CRC32"
    } else {
        "none"
    }
}

fn has_license(image: &Image) -> bool {
    image.udif().is_some_and(|udif| {
        udif.resources()
            .iter()
            .any(|resource| LICENSE_KINDS.contains(&resource.kind.as_str()))
    })
}

/// Returns a checksum as hdiutil prints it.
fn printed(sum: Checksum) -> Plist {
    match sum {
        Checksum::Crc32(sum) => text(format!("${sum:08X}")),
        _ => text(""),
    }
}

/// Returns true if the image is encrypted, or the archive that contains it.
fn is_encrypted(image: &Image) -> bool {
    image.layers().iter().any(Layer::is_secret)
}

/// Returns the facts of `imageinfo -plist`.
fn facts(call: &Call, image: &Image) -> Outcome<Vec<(&'static str, Plist)>> {
    let format = image.format();
    let is_encrypted = is_encrypted(image);
    let is_packed = format.is_udif() && format.code() != "UDRO";
    let place = ImageLocation::of(image);
    let properties = dictionary([
        ("Checksummed", yes(format.is_udif())),
        (
            "Compressed",
            if format.is_udif() {
                yes(is_packed)
            } else {
                text("no")
            },
        ),
        ("Encrypted", yes(is_encrypted)),
        (
            "Kernel Compatible",
            // Of encrypted images, macOS 27 says so of packed ones with AES-128 only.
            yes(match image.encryption() {
                None => format.is_udif() || format.is_plain(),
                Some(encryption) => format.is_udif() && encryption.key_bits == 128,
            }),
        ),
        ("Partitioned", yes(PARTITIONED)),
        ("Software License Agreement", yes(has_license(image))),
    ]);
    let mut entries = vec![
        ("Backing Store Information", place.stores(image)),
        ("Checksum Type", text(sum_kind(image))),
        (
            "Checksum Value",
            image
                .udif()
                .map_or_else(|| text(""), |udif| printed(udif.stored_sum())),
        ),
        ("Format", text(format.code())),
        ("Format Description", text(description(format))),
        ("Properties", properties),
        ("Segments", Plist::Array(segments(call, image, &place))),
        ("Size Information", sizes(image)),
        ("partitions", partitions(image)?),
    ];
    let class = match format {
        _ if format.is_udif() => Some("CUDIFDiskImage"),
        Format::Udsb => Some("CSparseBundleDiskImage"),
        Format::Udsp => Some("CSparseDiskImage"),
        Format::Udrw | Format::Udto => Some("CRawDiskImage"),
        _ => None,
    };
    entries.extend(class.map(|class| ("Class Name", text(class))));
    if let Some(udif) = image.udif() {
        let areas: Vec<_> = udif
            .areas()
            .map(|(id, name, sum)| {
                let number = id.parse::<i64>().unwrap_or_default();
                let area = dictionary([
                    ("Checksum Type", text("CRC32")),
                    ("Checksum Value", printed(sum)),
                    ("Name", text(name)),
                    ("Partition Number", Plist::Integer(number.into())),
                ]);
                (id, area)
            })
            .collect();
        entries.push(("Partition Information", dictionary(areas)));
        entries.push(("udif-ordered-chunks", yes(udif.is_ordered())));
    }
    if let Some(bundle) = image.bundle() {
        entries.push(("sparse-band-size", number(bundle.band_size() / SECTOR)));
    }
    Ok(entries)
}

/// Returns the sizes. The ratio is one of whole sectors.
fn sizes(image: &Image) -> Plist {
    let len = image.disk().info().len;
    let (stored, held) = image
        .udif()
        .map_or((len, len), |udif| (udif.usage().stored, udif.usage().held));
    let ratio = match (stored / SECTOR, held / SECTOR) {
        (_, 0) => 1.0,
        (stored, held) => stored as f64 / held as f64,
    };
    let mut sizes = vec![
        ("Compressed Bytes", number(stored)),
        ("Compressed Ratio", Plist::Real(ratio)),
        ("Sector Count", number(len / SECTOR)),
        ("Total Bytes", number(len)),
        ("Total Empty Bytes", number(len.saturating_sub(held))),
        ("Total Non-Empty Bytes", number(held)),
    ];
    if image.udif().is_some() {
        sizes.extend([
            ("CUDIFEncoding-bytes-in-use", number(stored)),
            ("CUDIFEncoding-bytes-total", number(stored)),
            ("CUDIFEncoding-bytes-wasted", number(0)),
        ]);
    }
    dictionary(sizes)
}

/// Returns the paths of the files of a disk in parts, or that of the image.
fn segments(call: &Call, image: &Image, place: &ImageLocation) -> Vec<Plist> {
    let count = image.udif().map_or(1, |udif| udif.segment().count.max(1));
    let first = Path::new(call.image());
    let first = first.canonicalize().unwrap_or_else(|_| first.to_owned());
    if count == 1 {
        return vec![text(place.path.clone())];
    }
    (1..=count)
        .map(|number| text(part_path(&first, number).to_string_lossy()))
        .collect()
}

/// The place of an image.
struct ImageLocation {
    path: String,
    name: String,
    url: String,
}

impl ImageLocation {
    fn of(image: &Image) -> Self {
        let shown = redacted(&image.path().to_string_lossy()).to_string();
        if shown.contains("://") {
            let name = shown.rsplit('/').next().unwrap_or_default().to_owned();
            return Self {
                path: shown.clone(),
                name,
                url: shown,
            };
        }
        let path = image
            .path()
            .canonicalize()
            .unwrap_or_else(|_| image.path().to_owned());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            name: name.into_owned(),
            url: url(&path),
            path: path.to_string_lossy().into_owned(),
        }
    }

    /// Returns the layers below the disk, the outermost first.
    fn stores(&self, image: &Image) -> Plist {
        let layer = |class: &str| {
            vec![
                ("Class Name", text(class)),
                ("Name", text(self.name.clone())),
                ("URL", text(self.url.clone())),
            ]
        };
        let class = if image.bundle().is_some() {
            "CBundleBackingStore"
        } else {
            "CBSDBackingStore"
        };
        let mut store = dictionary(layer(class));
        if let Some(encryption) = image.encryption() {
            let mut outer = layer("CEncryptedEncoding");
            outer.push(("Encryption", text(format!("AES-{}", encryption.key_bits))));
            outer.push((BELOW, store));
            store = dictionary(outer);
        }
        if image.udif().is_some() {
            let mut outer = layer("CUDIFEncoding");
            outer.push((BELOW, store));
            store = dictionary(outer);
        }
        store
    }
}

const BELOW: &str = "Backing Store Information";
