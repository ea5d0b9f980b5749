//! Resources that make macOS show a license before an image is attached.
//!
//! `LPic` lists the languages and their resources, `STR#` holds the texts of the dialog, and `TEXT`
//! with `styl`, or `RTF `, the license. Source: docs/formats/udif.md §12.

use super::mac_roman;
use super::resources::Resource;
use crate::size::narrow;
use crate::{Error, Kind, Result};

/// Types of the resources of a license.
pub const LICENSE_KINDS: [&str; 5] = ["LPic", "STR#", "TEXT", "RTF ", "styl"];

/// Number of the resources of the first language.
const FIRST: &str = "5000";
/// Maximum length of a license in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Texts of the dialog: the language, the four buttons, and their explanation.
const WORDS: [&str; 6] = [
    "English",
    "Agree",
    "Disagree",
    "Print",
    "Save…",
    "Read the license. \"Agree\" opens the disk image and means that you accept it; \"Disagree\" leaves the image closed.",
];

/// Returns the resources of a license in English. `text` is RTF, or UTF-8, which is converted to
/// RTF if Mac Roman cannot represent it.
///
/// [`Kind::Invalid`] for other encodings and for an empty text, [`Kind::Limit`] above 16 MiB.
pub fn license(text: &[u8]) -> Result<Vec<Resource>> {
    let refused = |kind, message: &'static str| Err(Error::new(kind, "license", message));
    if text.len() > MAX_BYTES {
        return refused(Kind::Limit, "the license is longer than 16 MiB");
    }
    let (kind, data) = match std::str::from_utf8(text) {
        _ if text.starts_with(b"{\\rtf") => ("RTF ", text.to_vec()),
        Ok(text) => {
            let text = text.trim_start_matches('\u{feff}');
            if text.trim().is_empty() {
                return refused(Kind::Invalid, "the license is empty");
            }
            mac_roman::encode(text).map_or_else(|| ("RTF ", rtf(text)), |text| ("TEXT", text))
        }
        Err(_) => return refused(Kind::Invalid, "the license is neither RTF nor UTF-8 text"),
    };
    let mut resources = vec![
        resource("LPic", languages()),
        resource("STR#", words()?),
        resource(kind, data),
    ];
    if kind == "TEXT" {
        resources.push(resource("styl", style()));
    }
    Ok(resources)
}

fn resource(kind: &str, data: Vec<u8>) -> Resource {
    let name = if kind == "LPic" { "" } else { WORDS[0] };
    Resource {
        kind: kind.into(),
        id: FIRST.into(),
        name: name.into(),
        attributes: "0x0000".into(),
        data,
        cf_name: None,
    }
}

/// Returns `LPic`: the default language, the number of languages, and for each its code, its number
/// relative to 5000, and whether its characters have two bytes.
fn languages() -> Vec<u8> {
    let (us_english, count, number, two_bytes) = (0u16, 1u16, 0u16, 0u16);
    [us_english, count, us_english, number, two_bytes]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

/// Returns `STR#`: a count, and strings with their lengths before them.
fn words() -> Result<Vec<u8>> {
    let mut list = narrow::<u16>(WORDS.len()).to_be_bytes().to_vec();
    for word in WORDS {
        let word = mac_roman::encode(word).filter(|word| word.len() < 256);
        let word = word
            .ok_or_else(|| Error::invalid("license", "the texts of the dialog exceed 255 bytes"))?;
        list.push(narrow(word.len()));
        list.extend(word);
    }
    Ok(list)
}

/// Returns `styl`: one style from the first character on, with lines of 14 points, an ascent of 11;
/// Helvetica, plain, 12 points, black.
fn style() -> Vec<u8> {
    let (count, helvetica) = (1u16, 21u16);
    let mut style = count.to_be_bytes().to_vec();
    style.extend([0; 4]);
    for word in [14, 11, helvetica, 0, 12, 0, 0, 0u16] {
        style.extend(word.to_be_bytes());
    }
    style
}

fn rtf(text: &str) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut rtf = String::from("{\\rtf1\\ansi\\deff0{\\fonttbl{\\f0 Helvetica;}}\\f0\\fs24 ");
    for c in text.chars() {
        match c {
            '\\' | '{' | '}' => rtf.extend(['\\', c]),
            '\n' => rtf.push_str("\\par\n"),
            '\r' => {}
            '\t' => rtf.push_str("\\tab "),
            c if c.is_ascii() => rtf.push(c),
            // UTF-16 as signed numbers, each with a substitute for readers without Unicode.
            c => {
                for &mut unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(rtf, "\\u{}?", unit.cast_signed());
                }
            }
        }
    }
    rtf.push('}');
    rtf.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(resources: &[Resource]) -> Vec<&str> {
        resources
            .iter()
            .map(|resource| resource.kind.as_str())
            .collect()
    }

    #[test]
    fn text_becomes_what_classic_mac_os_reads() {
        let made = license("Caf\u{e9} \u{2014} all rights reserved\n".as_bytes()).unwrap();
        assert_eq!(kinds(&made), ["LPic", "STR#", "TEXT", "styl"]);
        assert_eq!(made[0].data, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(
            made[1]
                .data
                .starts_with(b"\0\x06\x07English\x05Agree\x08Disagree\x05Print\x05Save\xc9")
        );
        assert_eq!(made[2].data, b"Caf\x8e \xd1 all rights reserved\n");
        assert_eq!(made[3].data.len(), 22, "a count and an entry of 20 bytes");
    }

    #[test]
    fn other_scripts_become_rtf_and_rtf_stays() {
        let made = license("許 {a}\n😀".as_bytes()).unwrap();
        assert_eq!(kinds(&made), ["LPic", "STR#", "RTF "]);
        let text = String::from_utf8(made[2].data.clone()).unwrap();
        assert!(
            text.contains("\\u-30159? \\{a\\}\\par\n\\u-10179?\\u-8704?}"),
            "{text}"
        );
        let rtf = b"{\\rtf1 plain \xe9}";
        assert_eq!(license(rtf).unwrap()[2].data, rtf);
    }

    #[test]
    fn licenses_must_be_text() {
        for bytes in [&b""[..], b" \n", b"\xff\xfe\x00"] {
            assert_eq!(license(bytes).unwrap_err().kind(), Kind::Invalid);
        }
        assert_eq!(
            license(&vec![b'a'; MAX_BYTES + 1]).unwrap_err().kind(),
            Kind::Limit
        );
    }
}
