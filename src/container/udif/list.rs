//! Writer of resources as a property list, byte for byte as macOS does: tabs, sorted keys, Base64
//! in lines.
//!
//! Source: docs/formats/udif.md §3 and §12.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::resources::Resource;
use crate::{Error, Result};

const LAYER: &str = "udif resources";
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
    <plist version=\"1.0\">\n<dict>\n";
const FOOT: &str = "</dict>\n</plist>\n";
/// Columns of a line, a tab counted as eight.
const LINE: usize = 76;

/// Returns the property list of an image, which is stored between data fork and trailer.
///
/// [`Kind::Invalid`](crate::Kind) for names with characters that XML cannot represent.
pub fn image_list(resources: &[Resource]) -> Result<Vec<u8>> {
    let mut text = format!("{HEAD}\t<key>resource-fork</key>\n");
    if resources.is_empty() {
        text += "\t<dict/>\n";
    } else {
        text += "\t<dict>\n";
        kinds(&mut text, resources, 2)?;
        text += "\t</dict>\n";
    }
    Ok((text + FOOT).into_bytes())
}

/// Returns only the list of resources, in the format of `hdiutil udifderez -xml` and
/// `udifrez -xml`.
///
/// The errors are those of [`image_list`].
pub fn bare_list(resources: &[Resource]) -> Result<Vec<u8>> {
    let mut text = HEAD.to_owned();
    kinds(&mut text, resources, 1)?;
    Ok((text + FOOT).into_bytes())
}

/// Appends the resources grouped by type, in alphabetical order; the order within a type is kept.
fn kinds(text: &mut String, resources: &[Resource], depth: usize) -> Result<()> {
    let mut kinds: BTreeMap<&str, Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        kinds.entry(&resource.kind).or_default().push(resource);
    }
    let tabs = "\t".repeat(depth);
    for (kind, resources) in kinds {
        let _ = writeln!(text, "{tabs}<key>{}</key>\n{tabs}<array>", escaped(kind)?);
        resources
            .into_iter()
            .try_for_each(|resource| entry(text, resource, depth + 1))?;
        let _ = writeln!(text, "{tabs}</array>");
    }
    Ok(())
}

fn entry(text: &mut String, resource: &Resource, depth: usize) -> Result<()> {
    let tabs = "\t".repeat(depth);
    let attributes = if resource.attributes.is_empty() {
        "0x0000"
    } else {
        &resource.attributes
    };
    let string = |text: &mut String, key: &str, value: &str| -> Result<()> {
        let _ = writeln!(
            text,
            "{tabs}\t<key>{key}</key>\n{tabs}\t<string>{}</string>",
            escaped(value)?
        );
        Ok(())
    };
    let _ = writeln!(text, "{tabs}<dict>");
    string(text, "Attributes", attributes)?;
    if let Some(name) = &resource.cf_name {
        string(text, "CFName", name)?;
    }
    let _ = writeln!(text, "{tabs}\t<key>Data</key>\n{tabs}\t<data>");
    let width = (LINE - 8 * (depth + 1)) / 4 * 3;
    for line in resource.data.chunks(width) {
        text.push_str(&tabs);
        text.push('\t');
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
    let _ = writeln!(text, "{tabs}\t</data>");
    string(text, "ID", &resource.id)?;
    string(text, "Name", &resource.name)?;
    let _ = writeln!(text, "{tabs}</dict>");
    Ok(())
}

fn escaped(value: &str) -> Result<String> {
    if let Some(c) = value.chars().find(|&c| {
        c.is_control() && !matches!(c, '\t' | '\n') || matches!(c, '\u{fffe}' | '\u{ffff}')
    }) {
        return Err(
            Error::invalid(LAYER, format!("XML cannot contain the character {c:?}")).named(value),
        );
    }
    Ok(value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;"))
}

#[cfg(test)]
mod tests {
    use super::super::resources;
    use super::*;
    use crate::Kind;

    fn resource(kind: &str, id: &str, name: &str, data: Vec<u8>) -> Resource {
        Resource {
            kind: kind.into(),
            id: id.into(),
            name: name.into(),
            attributes: "0x0050".into(),
            data,
            cf_name: None,
        }
    }

    #[test]
    fn resources_read_back() {
        let mut all = vec![
            resource("TEXT", "5000", "a <b> & \"c\"", (0..=255).collect()),
            resource("blkx", "-1", " (Apple_Free : 3)", vec![]),
            resource("blkx", "0", "größer", vec![1, 2]),
            resource("RTF ", "5001", "", vec![9]),
        ];
        all[1].cf_name = Some(" (Apple_Free : 3)".into());
        let (image, bare) = (image_list(&all).unwrap(), bare_list(&all).unwrap());
        all.sort_by(|one, other| one.kind.cmp(&other.kind));
        assert_eq!(resources::from_plist(&image).unwrap(), all);
        assert_eq!(resources::from_list(&bare).unwrap(), all);
        assert_eq!(resources::from_list(&image).unwrap(), all);
        assert!(
            resources::from_plist(&bare).unwrap().is_empty(),
            "no image has a list like this"
        );
        assert!(
            resources::from_plist(&image_list(&[]).unwrap())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn lines_are_as_long_as_apples() {
        let text =
            String::from_utf8(image_list(&[resource("STR#", "1", "", vec![7; 100])]).unwrap())
                .unwrap();
        let data: Vec<_> = text
            .lines()
            .skip_while(|line| !line.contains("<data>"))
            .skip(1)
            .take(4)
            .map(str::trim)
            .collect();
        assert_eq!(
            data.iter().map(|line| line.len()).collect::<Vec<_>>(),
            [44, 44, 44, 4]
        );
    }

    #[test]
    fn characters_outside_xml_are_refused() {
        assert_eq!(
            image_list(&[resource("TEXT", "1", "a\u{1}b", vec![])])
                .unwrap_err()
                .kind(),
            Kind::Invalid
        );
    }
}
