//! Images made by macOS and other programs pass the gate before the first write.

use std::fs;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::crypt::Secret;
use bandsaw::device::Access;
use bandsaw::open::{OpenOptions, open};

use crate::common::corpus;

/// Longest image that is copied, in bytes.
const MAX_LEN: usize = 64 << 20;

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn no_image_of_the_corpus_is_refused_as_undecided() {
    let Some(images) = corpus::images("no_image_of_the_corpus_is_refused_as_undecided") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let (mut accepted, mut read_only) = (0, 0);
    for image in images {
        let name = Path::new(image.path());
        // The former are fragments, the latter damaged.
        if name.starts_with("decmpfs") || name.starts_with("corrupt") {
            continue;
        }
        let copy = scratch.path().join(name.file_name().unwrap());
        match image.bytes() {
            Some(bytes) if bytes.len() > MAX_LEN => continue,
            Some(bytes) => fs::write(&copy, bytes).unwrap(),
            None => copy_folder(&image.location(), &copy),
        }
        let password = image.entry()["encrypted"]["password"]
            .as_str()
            .unwrap_or_default();
        let keys = Secret::new(password.as_bytes().to_vec());
        let options = OpenOptions {
            access: Access::ReadWrite,
            keys: Some(&keys),
            ..OpenOptions::default()
        };
        match open(&copy, &options) {
            Ok(_) => accepted += 1,
            Err(error) if error.kind() == Kind::Undecided => panic!("{}: {error}", image.path()),
            // Compressed images, parts of disks.
            Err(_) => read_only += 1,
        }
    }
    assert!(accepted >= 40, "{accepted} accepted, {read_only} read-only");
}
