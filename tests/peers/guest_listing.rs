//! Listings of a mounted tree by a Linux guest.

use std::collections::BTreeMap;

use crate::programs::Program;
use crate::qemu::{Guest, Report};
use crate::tree::{FINDER_INFO, Item, Kind, Listing, is_private};

pub(crate) const GETFATTR: Program = Program::Command(&["getfattr"]);

/// Maximum length of inline attributes in bytes; longer ones have extents, which Linux cannot read.
const LONGEST_INLINE: usize = 3802;

/// Shell functions of the guest: `list NAME` prints all of the current folder, for [`parse`],
/// `list_files NAME` all but attributes. Names that cannot be queried are omitted: Linux shows a
/// character beyond the first 65,536 as question marks, and then does not find it; and querying the
/// attributes of an object without any is an error on this file system.
const LIST: &str = r#"
each() { find . -mindepth 1 "$@" 2>/dev/null || :; }
list() {
    list_files "$1"
    section "$1 attributes"
    each ! -type p -exec getfattr -h -d -m - -e hex {} +
}
list_files() {
    section "$1"
    each -exec stat -c '%f %s %Y %h %n' {} +
    section "$1 sums"
    each -type f -exec sha256sum {} +
    section "$1 targets"
    each -type l -exec sh -c 'for link; do echo "$link"; readlink "$link"; done' sh {} +
}
"#;

/// Returns a guest that runs `script`, which may use `list`.
pub(crate) fn guest(script: &str) -> Guest {
    Guest::new(format!(". /list\n{script}"))
        .file("/list", LIST)
        .program(GETFATTR)
}

/// Parses the output of `list NAME`, without Finder information, of which Linux shows more than
/// macOS does.
pub(crate) fn parse(report: &Report, name: &str) -> Listing {
    let section = |part: &str| report.section(&format!("{name}{part}"));
    let sums: BTreeMap<_, _> = section(" sums")
        .iter()
        .filter_map(|line| line.split_once("  ./"))
        .map(|(sum, path)| (path, sum))
        .collect();
    let targets: BTreeMap<_, _> = section(" targets")
        .chunks_exact(2)
        .map(|pair| (pair[0].trim_start_matches("./"), pair[1].as_str()))
        .collect();
    let mut attributes = attributes(section(" attributes"));
    let mut listing = Listing::new();
    for line in section("") {
        let (facts, path) = line
            .split_once(" ./")
            .unwrap_or_else(|| panic!("no path in {line:?}"));
        let [mode, len, modified, links] = facts.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not four facts: {line:?}")
        };
        let mode = u32::from_str_radix(mode, 16).expect("a mode in hexadecimal");
        let kind = match mode >> 12 {
            0o04 => Kind::Folder,
            0o10 => Kind::File {
                len: len.parse().expect("a length"),
                sha256: sums.get(path).copied().unwrap_or_default().into(),
            },
            0o12 => Kind::Symlink(targets.get(path).copied().unwrap_or_default().into()),
            0o01 => Kind::Fifo,
            other => panic!("kind {other:o}: {line:?}"),
        };
        let links = if kind == Kind::Folder {
            1
        } else {
            links.parse().expect("a count")
        };
        if is_private(path) {
            continue;
        }
        let xattrs = attributes.remove(path).unwrap_or_default();
        listing.insert(
            path.into(),
            Item {
                kind,
                mode: mode & 0o7777,
                modified: modified.parse().expect("a date"),
                links,
                xattrs,
            },
        );
    }
    listing
}

/// Returns the part of a volume that a Linux guest can show: attributes of files and folders only,
/// no long ones, and no characters beyond the first 65,536.
pub(crate) fn visible(files: &Listing) -> Listing {
    let shown = files
        .iter()
        .filter(|(path, _)| path.chars().all(|char| char <= '\u{ffff}'));
    let seen = shown.map(|(path, item)| {
        let mut item = item.clone();
        let has_attributes = matches!(item.kind, Kind::Folder | Kind::File { .. });
        item.xattrs
            .retain(|_, value| has_attributes && value.len() <= LONGEST_INLINE);
        (path.clone(), item)
    });
    seen.collect()
}

/// Parses `# file: PATH`, followed by a line per attribute, NAME=0xVALUE, and an empty line.
fn attributes(lines: &[String]) -> BTreeMap<&str, BTreeMap<String, Vec<u8>>> {
    let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut path = "";
    for line in lines {
        if let Some(next) = line.strip_prefix("# file: ") {
            path = next.trim_start_matches("./");
        } else if let Some((name, value)) = line.split_once('=') {
            // The kernel adds the prefix `osx.` to names outside Linux's own namespaces.
            let name = name.strip_prefix("osx.").unwrap_or(name);
            if name != FINDER_INFO {
                all.entry(path)
                    .or_default()
                    .insert(name.to_owned(), bytes(value));
            }
        }
    }
    all
}

/// Decodes `0x...`.
fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.strip_prefix("0x").unwrap_or_default();
    let pairs = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16));
    pairs
        .collect::<Result<_, _>>()
        .unwrap_or_else(|_| panic!("not hexadecimal: {hexadecimal:?}"))
}
