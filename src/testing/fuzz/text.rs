//! Text typed by users.

use std::path::Path;

use crate::address::Address;
use crate::{Kind, size};

/// Takes any text: it is a size or refused as [`Kind::Invalid`]; an exactly formatted size parses
/// to the same value.
pub fn size(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match size::parse(text) {
        Ok(bytes) => {
            assert_eq!(size::parse(&bytes.to_string()).ok(), Some(bytes));
            assert!(!size::display(bytes).to_string().is_empty());
        }
        Err(error) => assert_eq!(error.kind(), Kind::Invalid),
    }
}

/// Takes any text: it is an address or refused as [`Kind::Invalid`], for any existing paths on the
/// host; a formatted address parses to the same value, and its image is a prefix of the text, or of
/// the path of a `file://`.
pub fn address(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // Existence depends on the length of the path here: any answer must do, as long as it stays the
    // same.
    let some_exist = |path: &Path| path.as_os_str().len() % 3 == 1;
    let none_exists = |_: &Path| false;
    for exists in [&some_exist as &dyn Fn(&Path) -> bool, &none_exists] {
        match Address::parse(text, exists) {
            Ok(address) => {
                assert!(
                    text.starts_with(&address.image.to_string())
                        || text.starts_with("file:///")
                        || text.starts_with("file://localhost/")
                );
                assert!(
                    address
                        .path
                        .as_deref()
                        .is_none_or(|path| path.starts_with('/'))
                );
                assert!(address.volume.is_some() || address.snapshot.is_none());
                let image_exists = |path: &Path| path == address.image.as_path();
                assert_eq!(
                    Address::parse(&address.to_string(), &image_exists)
                        .ok()
                        .as_ref(),
                    Some(&address)
                );
            }
            Err(error) => assert_eq!(error.kind(), Kind::Invalid),
        }
    }
}

pub(super) fn size_seeds() -> Vec<Vec<u8>> {
    [
        "0",
        "4096",
        "4096b",
        "16384s",
        "8m",
        "8 MiB",
        "8MB",
        "1.5g",
        "18446744073709551615",
        "16e",
    ]
    .map(Vec::from)
    .into()
}

pub(super) fn address_seeds() -> Vec<Vec<u8>> {
    [
        "disk.dmg",
        "disk.dmg:/Docs/a b",
        "/tmp/disk.dmg:Macintosh HD@before:/x",
        "disk.dmg:#2.3@s:/",
        r"disk.dmg:\#2\@home:/x",
        "./disk.dmg:x",
        "https://me:pw@host:8080/k.dmg:#1:/x",
        "a:b:c:/d:e",
        "file:///tmp/a%3Ab.dmg:/x",
        "a:b:///c",
    ]
    .map(Vec::from)
    .into()
}
