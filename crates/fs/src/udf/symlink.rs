//! Targets of symbolic links: components of a path, or the path as text.

use zerocopy::FromBytes;

use super::layout::{PathComponentRaw, component};
use super::names;

/// Maximum length of what a link stores in bytes.
pub(super) const MAX_LINK: u64 = 64 << 10;

/// Returns the target in the contents of a link. `None`: they are malformed.
///
/// hdiutil writes the path as text, without components.
pub(super) fn target(bytes: &[u8]) -> Option<String> {
    from_components(bytes).or_else(|| {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
        let is_path = !text.is_empty() && !text.contains(char::is_control);
        is_path.then(|| text.to_owned())
    })
}

fn from_components(mut bytes: &[u8]) -> Option<String> {
    let mut target = String::new();
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (raw, rest) = PathComponentRaw::read_from_prefix(bytes).ok()?;
        let (name, rest) = rest.split_at_checked(raw.name_len.into())?;
        bytes = rest;
        match raw.kind {
            component::AGREED_ROOT | component::ROOT => {
                target = "/".to_owned();
                parts.clear();
            }
            component::PARENT => parts.push("..".to_owned()),
            component::CURRENT => parts.push(".".to_owned()),
            component::NAME => parts.push(names::shown(&names::decode(name))),
            _ => return None,
        }
    }
    target.push_str(&parts.join("/"));
    (!target.is_empty()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_components_or_text() {
        let part = |kind: u8, name: &[u8]| [&[kind, name.len() as u8, 0, 0][..], name].concat();
        let relative = [
            part(3, b""),
            part(5, b"\x08folder"),
            part(4, b""),
            part(5, b"\x10\0\xE9"),
        ];
        assert_eq!(target(&relative.concat()).unwrap(), "../folder/./\u{E9}");
        let absolute = [part(2, b""), part(5, b"\x08etc")];
        assert_eq!(target(&absolute.concat()).unwrap(), "/etc");
        assert_eq!(target(&part(1, b"")).unwrap(), "/");
        // A slash in a name does not leave it.
        assert_eq!(target(&part(5, b"\x08a/b")).unwrap(), "a:b");
        assert_eq!(target(b"../folder/a.txt").unwrap(), "../folder/a.txt");
        for malformed in [&b""[..], b"\x05\x09\0\0\x08a", b"\x09\x01\0\0a", b"\xFFa"] {
            assert_eq!(target(malformed), None, "{malformed:?}");
        }
    }
}
