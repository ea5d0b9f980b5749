//! `7zz`: unpacks a volume, through the partition map if there is one. It writes the name of a hard
//! link as an empty file and the contents once, in the volume's private folder; attributes as files
//! beside their owner; a FIFO as a file; `_` for the `/` of a name on disk. It puts the folder it
//! unpacks to before the target of an absolute symbolic link.

use std::ffi::OsString;
use std::path::Path;

use crate::programs::{SEVEN_ZIP, run};
use crate::suite::Suite;
use crate::tree::{Item, Kind, Listing, assert_same, decomposed, is_journal, list, sha256};
use crate::volume;

const PRIVATE_FOLDER: &str = "[HFS+ Private Data]";

/// Mode bits that it sets regardless of the umask.
const UNPACKED_MODE: u32 = 0o755;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("7zz", &[SEVEN_ZIP])
        .test("unpacks_all", unpacks_all);
}

fn unpacks_all() {
    for volume in volume::all() {
        let scratch = crate::scratch();
        let unpacked = scratch.path().join("files");
        unpack(&volume.disk, &unpacked);
        assert_same(
            &as_shown(&volume.files),
            &known(&unpacked, list(&unpacked.join(decomposed(volume::NAME)))),
        );
    }
}

fn unpack(image: &Path, into: &Path) {
    let mut out = OsString::from("-o");
    out.push(into);
    run(SEVEN_ZIP
        .command()
        .args(["x", "-y", "-snld"])
        .arg(out)
        .arg(image));
}

/// Returns the expected output of 7zz for our files.
fn as_shown(files: &Listing) -> Listing {
    let mut shown = Listing::new();
    for (path, item) in files {
        let path = path.replace(':', "_");
        for (name, value) in &item.xattrs {
            let value = Kind::File {
                len: value.len() as u64,
                sha256: sha256(value),
            };
            shown.insert(format!("{path}:{name}"), Item::of(value));
        }
        let empty = Kind::File {
            len: 0,
            sha256: sha256(b""),
        };
        let seen = match &item.kind {
            Kind::File {
                sha256: contents, ..
            } if item.links > 1 => {
                shown.insert(
                    format!("{PRIVATE_FOLDER}/{contents}"),
                    Item::of(item.kind.clone()),
                );
                // The name has a record of its own, with the attributes that macOS uses.
                Item {
                    mode: 0o444,
                    modified: volume::CREATED,
                    ..Item::of(empty)
                }
            }
            Kind::Fifo => Item {
                mode: UNPACKED_MODE & 0o644,
                modified: item.modified,
                ..Item::of(empty)
            },
            kind => Item {
                mode: item.mode & UNPACKED_MODE,
                modified: item.modified,
                ..Item::of(kind.clone())
            },
        };
        shown.insert(path, seen);
    }
    shown
}

/// Returns the actual output of 7zz, without its additions; the contents of hard links are listed
/// under their checksums, since their numbers depend on the builder.
fn known(root: &Path, unpacked: Listing) -> Listing {
    let root = root.to_str().expect("scratch paths are UTF-8");
    let known = |(path, item): (String, Item)| match item.kind {
        Kind::File { ref sha256, .. } if path.starts_with(PRIVATE_FOLDER) => {
            (format!("{PRIVATE_FOLDER}/{sha256}"), Item::of(item.kind))
        }
        _ if path.contains(':') => (path, Item::of(item.kind)),
        Kind::Symlink(target) => {
            let target = target
                .strip_prefix(root)
                .map_or(target.clone(), str::to_owned);
            (
                path,
                Item {
                    kind: Kind::Symlink(target),
                    mode: item.mode & UNPACKED_MODE,
                    ..item
                },
            )
        }
        _ => (
            path,
            Item {
                mode: item.mode & UNPACKED_MODE,
                ..item
            },
        ),
    };
    let all = unpacked
        .into_iter()
        .filter(|(path, _)| path != PRIVATE_FOLDER && !is_journal(path));
    all.map(known).collect()
}
