//! Permitted dependencies between modules of the library: those of ARCHITECTURE.md.

use super::circles::expand;
use super::{Fault, Text};

/// Names that every module may use: three modules, and a macro, which is at the root like all macros.
const FOR_ALL: [&str; 4] = ["error", "sync", "parallel", "read_only"];

/// Each module with those that it may use, besides itself and those [for all](FOR_ALL).
const MAY_USE: [&str; 22] = [
    "error:",
    "sync:",
    "parallel:",
    "rate:",
    "progress: rate",
    "problem: progress",
    "size:",
    "crc32c:",
    "decision: size",
    "platform: size",
    "address: platform",
    "device: platform size",
    "codec: size",
    "store: address device platform rate size",
    "partition: decision device problem size",
    "crypt: device codec problem progress size",
    "container: crc32c decision device codec crypt store platform problem progress size",
    "decmpfs: device codec progress size",
    "fs: crc32c decision device codec crypt decmpfs platform problem progress size",
    "open: decision device store platform partition crypt container fs address size problem progress",
    "ops: decision device store platform partition codec crypt container decmpfs fs open address size problem progress",
    "testing: decision device store platform partition codec crypt container decmpfs fs open ops address size problem progress",
];

/// Formats in one folder that must not depend on each other.
const FORMATS: [&str; 3] = [
    "container: raw sparsebundle sparseimage asif udif stack fork_file disk_copy dart ndif qcow2 vhd vhdx vmdk ewf apple_archive",
    "fs: hfs hfsplus apfs core_storage exfat fat foreign iso9660 udf apple_archive",
    "partition: gpt apm mbr",
];

/// Returns the names that a table has for `module`, after its name and a colon.
fn row(table: &[&'static str], module: &str) -> Option<Vec<&'static str>> {
    table.iter().find_map(|row| {
        let (name, others) = row.split_once(':')?;
        (name == module).then(|| others.split_whitespace().collect())
    })
}

/// Returns the faults of one file of the library. `lib.rs` may use everything.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    let Some((root, path)) = library(&file.path) else {
        return Vec::new();
    };
    let place = module(root, path);
    if matches!(place[..], [.., "lib"] | [.., "tests"]) {
        return Vec::new();
    }
    let Some(may_use) = row(&MAY_USE, place[0]) else {
        return vec![file.fault(
            1,
            format!(
                "module {} is not in the table of xtask/src/tidy/imports.rs",
                place[0]
            ),
        )];
    };
    let uses = uses(file, root, &place);
    let upwards = uses.iter().filter(|(_, path)| {
        let module = path.first().map_or("", String::as_str);
        module != place[0] && !FOR_ALL.contains(&module) && !may_use.contains(&module)
    });
    let upwards = upwards.map(|(line, path)| {
        file.fault(
            *line,
            format!("{} must not use {}", place[0], path.join("::")),
        )
    });
    let sideways = uses.iter().filter(|(_, path)| is_sideways(&place, path));
    let sideways = sideways.map(|(line, path)| {
        file.fault(
            *line,
            format!("{} must not know {}", place.join("::"), path.join("::")),
        )
    });
    upwards.chain(sideways).collect()
}

fn is_sideways(place: &[&str], path: &[String]) -> bool {
    let &[folder, format, ..] = place else {
        return false;
    };
    let formats = row(&FORMATS, folder).unwrap_or_default();
    let other = path.get(1).map_or("", String::as_str);
    path[0] == folder && formats.contains(&format) && formats.contains(&other) && other != format
}

/// Returns the paths from the root of the library that a file names, each with its line;
/// `crate::{a, b}` is two. Paths through `super::` are not resolved: a file can leave its own
/// format's folder only by naming the neighbor in `use super::`.
fn uses(file: &Text, root: &[&str], place: &[&str]) -> Vec<(usize, Vec<String>)> {
    let code: String = file.code().map(|(_, line)| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for (at, prefix) in starts(&code) {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        let ups = prefix.matches("super::").count();
        let base = match ups {
            0 if prefix == "crate::" => root,
            0 => &[],
            ups if ups <= place.len() => &place[..place.len() - ups],
            _ => continue,
        };
        for path in paths(rest) {
            let path: Vec<_> = base
                .iter()
                .map(|part| (*part).to_owned())
                .chain(path)
                .collect();
            // Types and functions at the root are re-exports of `error`.
            if path
                .first()
                .is_some_and(|first| first.starts_with(|c: char| c.is_lowercase()))
            {
                found.push((line, path));
            }
        }
    }
    found
}

/// Finds each `crate::`, `bandsaw_core::` or run of `super::`, with its text.
fn starts(code: &str) -> Vec<(usize, &str)> {
    let mut found: Vec<_> = code.match_indices("crate::").collect();
    found.extend(code.match_indices("bandsaw_core::"));
    let mut end = 0;
    for (at, _) in code.match_indices("super::") {
        if at < end {
            continue;
        }
        let rest = &code[at..];
        let mut length = 0;
        while rest[length..].starts_with("super::") {
            length += "super::".len();
        }
        end = at + length;
        found.push((at, &rest[..length]));
    }
    found.retain(|(at, _)| !code[..*at].ends_with(|c| is_word(c) || c == ':'));
    found
}

/// Returns the module that a crate of the library is, for those that use all of them through
/// `bandsaw`, and the path of a file in it. `None` for files of other crates.
fn library(path: &str) -> Option<(&'static [&'static str], &str)> {
    let roots: [(&str, &[&str]); 3] = [
        ("src/", &[]),
        ("crates/core/src/", &[]),
        ("crates/fs/src/", &["fs"]),
    ];
    let path = path.strip_suffix(".rs")?;
    roots
        .iter()
        .find_map(|(folder, root)| Some((*root, path.strip_prefix(folder)?)))
}

/// Returns the path of a file's module: each `super::` removes one part.
fn module<'a>(root: &[&'a str], path: &'a str) -> Vec<&'a str> {
    let parts = path.split('/').filter(|part| *part != "mod");
    root.iter().copied().chain(parts).collect()
}

/// Returns the first two names of each path that starts here: of one, or of all within braces.
fn paths(rest: &str) -> Vec<Vec<String>> {
    let mut depth = 0;
    let end = rest.find(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && !(is_word(c) || ":{}".contains(c)) || depth < 0
    });
    let tree = expand(&rest[..end.unwrap_or(rest.len())]);
    tree.into_iter()
        .map(|(path, _)| path.into_iter().take(2).collect())
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::{shown, text};
    use super::*;

    fn faults(path: &str, code: &str) -> Vec<String> {
        shown(check(&text(path, code)))
    }

    #[test]
    fn permitted_uses() {
        for (path, code) in [
            ("src/lib.rs", "pub use crate::ops::x;"),
            (
                "src/container/raw.rs",
                "use crate::device::{BlockDevice, Info};\nuse crate::{Error, Kind, Result};",
            ),
            (
                "src/partition/gpt/create.rs",
                "use crate::partition::kind::X;\nuse super::layout::A;\nuse super::super::layout::B;",
            ),
            (
                "src/container/sparsebundle/mod.rs",
                "use super::Format;\nuse crate::store::{Open, Store};",
            ),
            (
                "crates/core/src/device/mod.rs",
                "/// See [`crate::ops`].\nfn f() {}\n#[cfg(test)]\nmod tests {\n use crate::testing::x;\n}",
            ),
            (
                "crates/fs/src/hfsplus/unicode/tests.rs",
                "use crate::ops::x;",
            ),
            (
                "src/ops/create.rs",
                "use crate::{container, fs::{self, hfsplus::HfsPlus}, open};",
            ),
        ] {
            assert_eq!(faults(path, code), [""; 0], "{path}");
        }
    }

    #[test]
    fn refused_uses() {
        for (path, code, expected) in [
            (
                "crates/core/src/device/mod.rs",
                "use crate::store::Store;",
                "crates/core/src/device/mod.rs:1: device must not use store::Store",
            ),
            (
                "crates/fs/src/free.rs",
                "\nfn f() -> bandsaw_core::store::Open {}",
                "crates/fs/src/free.rs:2: fs must not use store::Open",
            ),
            (
                "crates/fs/src/hfsplus/mod.rs",
                "use crate::{Entry, apfs::Apfs};",
                "crates/fs/src/hfsplus/mod.rs:1: fs::hfsplus must not know fs::apfs::Apfs",
            ),
            (
                "src/partition/mbr.rs",
                "use crate::{Error, container::{raw, Format}};",
                "src/partition/mbr.rs:1: partition must not use container::raw",
            ),
            (
                "src/container/raw.rs",
                "use crate::container::udif;",
                "src/container/raw.rs:1: container::raw must not know container::udif",
            ),
            (
                "src/container/raw.rs",
                "use super::udif::Koly;",
                "src/container/raw.rs:1: container::raw must not know container::udif::Koly",
            ),
            (
                "src/partition/gpt/repair.rs",
                "use super::super::{layout, mbr};",
                "src/partition/gpt/repair.rs:1: partition::gpt::repair must not know partition::mbr",
            ),
            (
                "crates/fs/src/apfs/omap.rs",
                "use super::super::hfsplus::x;",
                "crates/fs/src/apfs/omap.rs:1: fs::apfs::omap must not know fs::hfsplus::x",
            ),
            (
                "crates/fs/src/foreign/fat.rs",
                "use crate::apfs::x;",
                "crates/fs/src/foreign/fat.rs:1: fs::foreign::fat must not know fs::apfs::x",
            ),
            (
                "src/helpers.rs",
                "",
                "src/helpers.rs:1: module helpers is not in the table of xtask/src/tidy/imports.rs",
            ),
        ] {
            assert_eq!(
                faults(path, code).first().map(String::as_str),
                Some(expected),
                "{code}"
            );
        }
    }

    #[test]
    fn the_table_has_no_circle() {
        let names = MAY_USE.map(|row| row.split(':').next().unwrap());
        for (at, module) in names.iter().enumerate() {
            for used in row(&MAY_USE, module).unwrap() {
                let place = names.iter().position(|other| *other == used);
                assert!(
                    place.is_some_and(|place| place < at),
                    "{module} uses {used}"
                );
            }
        }
    }
}
