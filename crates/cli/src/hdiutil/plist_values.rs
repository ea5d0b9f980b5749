//! Functions that several verbs share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::partition::Scheme;
use plist::{Dictionary, Value as Plist};

use super::call::{Call, usage};
use super::size::SECTOR;
use crate::encryption_args::Cipher;
use crate::failure::Outcome;

/// Returns the path with the extension that hdiutil gives the format.
pub(super) fn with_extension(path: &Path, format: Format) -> PathBuf {
    let extension = format.extension();
    if path
        .extension()
        .is_some_and(|has| has.eq_ignore_ascii_case(extension))
    {
        return path.to_owned();
    }
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Returns the value of `-imagekey sparse-band-size` in bytes; the option counts sectors.
pub(super) fn band_size(call: &Call, format: Format) -> Outcome<Option<u64>> {
    let Some(text) = call
        .key("imagekey", "sparse-band-size")
        .filter(|_| format.has_bands())
    else {
        return Ok(None);
    };
    let bytes = text
        .parse::<u64>()
        .ok()
        .and_then(|sectors| sectors.checked_mul(SECTOR));
    bytes.map(Some).ok_or_else(|| {
        usage(format!(
            "invalid sparse-band-size={text}: expected a number of \
                                      sectors"
        ))
    })
}

/// Returns the value of `-imagekey zlib-level`.
pub(super) fn level(call: &Call, format: Format) -> Outcome<Option<Level>> {
    let Some(text) = call
        .key("imagekey", "zlib-level")
        .filter(|_| format.has_levels())
    else {
        return Ok(None);
    };
    let level = text
        .parse()
        .map_err(|_| usage(format!("invalid zlib-level={text}: expected 1 to 9")))?;
    Ok(Some(Level::new(level)?))
}

/// Returns the value of `-encryption`, or its default.
pub(super) fn cipher(call: &Call) -> Cipher {
    match call.value("encryption") {
        Some(word) if word.eq_ignore_ascii_case("AES-256") => Cipher::Aes256,
        _ => Cipher::Aes128,
    }
}

/// Returns a dictionary of a property list, its keys in the order of their bytes, as Apple's
/// programs print them.
pub(super) fn dictionary<'a>(entries: impl IntoIterator<Item = (&'a str, Plist)>) -> Plist {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    Plist::Dictionary(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<Dictionary>(),
    )
}

pub(super) fn yes(value: bool) -> Plist {
    Plist::Boolean(value)
}

pub(super) fn number(number: u64) -> Plist {
    Plist::Integer(number.into())
}

pub(super) fn text(text: impl Into<String>) -> Plist {
    Plist::String(text.into())
}

/// Returns the content hint of a disk in lists of devices, from its partition map.
pub(super) fn disk_hint(scheme: Option<&str>) -> &'static str {
    match scheme {
        Some("GPT" | "gpt") => "GUID_partition_scheme",
        Some("APM" | "apm") => "Apple_partition_scheme",
        Some("MBR" | "mbr") => "FDisk_partition_scheme",
        _ => "",
    }
}

/// Returns the `file://` URL of an absolute path.
pub(super) fn url(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut url = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(byte) {
            url.push(char::from(*byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// Returns hdiutil's name of a partition map in `imageinfo`.
pub(super) fn scheme(scheme: Option<Scheme>) -> &'static str {
    match scheme {
        Some(Scheme::Gpt) => "GUID",
        Some(Scheme::Apm) => "Apple",
        Some(Scheme::Mbr) => "fdisk",
        None => "none",
    }
}

/// Returns true for the name of a file system, and false for the format of an image.
pub(super) fn is_volume(format: &str) -> bool {
    format.starts_with("HFS") || ["APFS", "ISO 9660", "UDF"].contains(&format)
}

/// Returns the content hint of a volume: the name of its partition type. ISO 9660 and UDF have none.
pub(super) fn volume_hint(format: &str) -> &'static str {
    if format.starts_with("HFS") {
        "Apple_HFS"
    } else if ["ISO 9660", "UDF"].contains(&format) {
        ""
    } else {
        "Apple_APFS"
    }
}

/// Returns hdiutil's description of a format.
pub(super) fn description(format: Format) -> &'static str {
    match format {
        Format::Udrw => "raw read/write",
        Format::Udto => "CD/DVD master",
        Format::Udsb => "sparse bundle",
        Format::Udsp => "sparse",
        Format::Asif => "Apple sparse image",
        Format::Udro => "UDIF read-only",
        Format::Udco => "UDIF read-only compressed (ADC)",
        Format::Udzo => "UDIF read-only compressed (zlib)",
        Format::Udbz => "UDIF read-only compressed (bzip2)",
        Format::Ulfo => "UDIF read-only compressed (lzfse)",
        Format::Ulmo => "UDIF read-only compressed (lzma)",
        other => other.description(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_no_spaces() {
        let path = Path::new("/a b/\u{e9}#%.dmg");
        assert_eq!(url(path), "file:///a%20b/%C3%A9%23%25.dmg");
    }

    #[test]
    fn names_get_the_extension_of_their_format() {
        for (name, format, full) in [
            ("a", Format::Udzo, "a.dmg"),
            ("a.DMG", Format::Udrw, "a.DMG"),
            ("a.iso", Format::Udto, "a.iso.cdr"),
            ("a.1", Format::Udsb, "a.1.sparsebundle"),
            ("a.dmg", Format::Udsp, "a.dmg.sparseimage"),
        ] {
            assert_eq!(with_extension(Path::new(name), format), Path::new(full));
        }
    }
}
