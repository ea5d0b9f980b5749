//! Requirements and prohibitions for each Rust file.

use super::{Fault, Text};

/// The only places that may contain unsafe code, documented block by block: instructions for AES and
/// SHA-1, system calls of macOS, and the memory of Python objects.
const MAY_BE_UNSAFE: [&str; 3] = [
    "crates/cpu/src/",
    "crates/darwin/src/",
    "crates/python/src/buffer.rs",
];

/// The crates of the library.
const LIBRARY: [&str; 3] = ["src/", "crates/core/src/", "crates/fs/src/"];

/// Returns the faults of one file.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !file.text.trim_start().starts_with("//!") {
        faults.push(file.fault(1, "a file begins with `//!` and what it is for"));
    }
    let library = LIBRARY.iter().any(|folder| file.path.starts_with(folder));
    let layout = library && (file.path.ends_with("/layout.rs") || file.path.contains("/layout/"));
    for (number, line) in file.code() {
        if lifts_unsafe(&line)
            && !MAY_BE_UNSAFE
                .iter()
                .any(|place| file.path.starts_with(place))
        {
            faults.push(file.fault(number, "unsafe code is not allowed here"));
        }
        if library
            && ["print!(", "println!(", "dbg!("]
                .iter()
                .any(|word| line.contains(word))
        {
            faults.push(file.fault(number, "the library does not print"));
        }
        if ["const MOST:", "const LONGEST:"]
            .iter()
            .any(|name| line.contains(name))
        {
            faults.push(file.fault(number, "a limit is named MAX_ and what it limits"));
        }
        if layout
            && ["BlockDevice", "Store", "std::fs", "std::io"]
                .iter()
                .any(|word| has_word(&line, word))
        {
            faults.push(file.fault(number, "a layout does no I/O"));
        }
    }
    if library {
        faults.extend(without_source(file));
    }
    faults.extend(former_names(file));
    faults
}

/// Returns a fault for each `Debug` that prints another name than its type's.
fn former_names(file: &Text) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut of = None;
    for (number, line) in (1..).zip(file.text.lines()) {
        if let Some((_, name)) = line.split_once("Debug for ") {
            of = name.split(['<', ' ']).next();
        }
        let printed = line
            .split_once("debug_struct(\"")
            .and_then(|(_, rest)| rest.split('"').next());
        if let (Some(name), Some(printed)) = (of, printed)
            && name != printed
        {
            faults.push(file.fault(number, format!("{name} prints itself as {printed}")));
        }
    }
    faults
}

/// Returns a fault for each module `x.rs` beside a folder `x`: its file is `x/mod.rs`.
pub(super) fn check_places(files: &[Text]) -> Vec<Fault> {
    let has_modules = |folder: &str| {
        let is_module = |path: &str| path.starts_with(folder) && path.ends_with(".rs");
        files.iter().any(|file| is_module(&file.path))
    };
    let sources = files.iter().filter(|file| file.path.contains("src/"));
    sources
        .filter(|file| {
            let module = file.path.strip_suffix(".rs");
            module.is_some_and(|module| has_modules(&format!("{module}/")))
        })
        .map(|file| file.fault(1, "a module with a folder is `mod.rs` in it"))
        .collect()
}

/// Returns a fault for each on-disk structure, a type with `repr(C)`, whose documentation has no line
/// `Source: ...`: Apple's header with its revision, a real image, or the description by another
/// project.
fn without_source(file: &Text) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut has_source, mut is_structure) = (false, false);
    for (number, line) in (1..).zip(file.text.lines()) {
        let line = line.trim_start();
        if let Some(doc) = line.strip_prefix("///") {
            has_source |= doc
                .trim()
                .strip_prefix("Source: ")
                .is_some_and(|source| !source.is_empty());
        } else if line.starts_with("#[repr(C") {
            is_structure = true;
        } else if line.is_empty() || line.ends_with([';', '}']) || line.ends_with('{') {
            let name = line.split_once("struct ").map_or(line, |(_, rest)| rest);
            let name = name
                .split(['<', '(', '{', ';', ' '])
                .next()
                .unwrap_or_default();
            if is_structure && !has_source {
                faults.push(file.fault(number, format!("{name} has no line `/// Source: ...`")));
            }
            (has_source, is_structure) = (false, false);
        }
    }
    faults
}

/// Returns true if a line has an unsafe block, or allows unsafe code.
fn lifts_unsafe(line: &str) -> bool {
    let level = ["allow(", "expect(", "warn("]
        .iter()
        .any(|level| line.contains(level));
    let begins = ["{", "fn ", "impl ", "trait ", "extern ", "("];
    let mut words = words(line, "unsafe");
    words.any(|end| {
        begins
            .iter()
            .any(|begin| line[end..].trim_start().starts_with(begin))
    }) || (level && has_word(line, "unsafe_code"))
}

fn has_word(line: &str, word: &str) -> bool {
    words(line, word).next().is_some()
}

/// Returns the end of each `word` that stands alone.
fn words(line: &str, word: &str) -> impl Iterator<Item = usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let places = line
        .match_indices(word)
        .map(|(at, _)| (at, at + word.len()));
    places
        .filter(move |&(at, end)| {
            !line[..at].ends_with(is_word) && !line[end..].starts_with(is_word)
        })
        .map(|(_, end)| end)
}

#[cfg(test)]
mod tests {
    use super::super::{shown, text};
    use super::*;

    fn faults(path: &str, code: &str) -> Vec<String> {
        shown(check(&text(path, code)))
    }

    #[test]
    fn permitted_texts() {
        for (path, code) in [
            (
                "src/device/mod.rs",
                "//! Devices.\n#![deny(unsafe_code)]\n// unsafe {\nfn unsafely() -> &str { \"cache=unsafe\" }\n",
            ),
            (
                "crates/cpu/src/lib.rs",
                "//! AES.\n#![allow(unsafe_code)]\nunsafe { x() }\n",
            ),
            ("crates/cli/src/main.rs", "//! Main.\nprintln!(\"x\");\n"),
            ("src/udif/layout.rs", "//! Layout.\nstruct StoreRaw;\n"),
            (
                "src/udif/layout.rs",
                "//! L.\n\n/// A.\n///\n/// Source: b, c_t.\n#[derive(\n    Debug,\n)]\n#[repr(C)]\nstruct ARaw {\n",
            ),
            (
                "crates/nbd/src/layout.rs",
                "//! On the wire.\n#[repr(C)]\nstruct ARaw {\n",
            ),
        ] {
            assert_eq!(faults(path, code), [""; 0], "{path}");
        }
    }

    #[test]
    fn refused_texts() {
        for (path, code, expected) in [
            (
                "src/a.rs",
                "use x;\n",
                "src/a.rs:1: a file begins with `//!` and what it is for",
            ),
            (
                "src/a.rs",
                "//! A.\n#![allow(unsafe_code)]\n",
                "src/a.rs:2: unsafe code is not allowed here",
            ),
            (
                "tests/a.rs",
                "//! A.\nlet x = unsafe { y() };\n",
                "tests/a.rs:2: unsafe code is not allowed here",
            ),
            (
                "src/a.rs",
                "//! A.\n\neprintln!(\"x\");\n",
                "src/a.rs:3: the library does not print",
            ),
            (
                "src/fs/x/layout/a.rs",
                "//! A.\nuse crate::device::BlockDevice;\n",
                "src/fs/x/layout/a.rs:2: a layout does no I/O",
            ),
            (
                "src/a.rs",
                "//! Source: x.\n\n/// A.\n#[repr(C)]\npub(crate) struct ARaw {\n",
                "src/a.rs:5: ARaw has no line `/// Source: ...`",
            ),
            (
                "src/a.rs",
                "//! A.\n/// Source: x.\nstruct B;\n/// A.\n/// Source: \n#[repr(C, packed)]\nstruct ARaw(u8);\n",
                "src/a.rs:7: ARaw has no line `/// Source: ...`",
            ),
            (
                "src/a.rs",
                "//! A.\nconst MOST: u32 = 1;\n",
                "src/a.rs:2: a limit is named MAX_ and what it limits",
            ),
            (
                "src/a.rs",
                "//! A.\nimpl fmt::Debug for New<'_> {\n    f.debug_struct(\"Old\")\n",
                "src/a.rs:3: New prints itself as Old",
            ),
        ] {
            assert_eq!(faults(path, code), [expected]);
        }
    }

    #[test]
    fn a_module_with_a_folder_is_in_it() {
        let files = ["src/a/mod.rs", "src/a/b.rs", "src/b.rs", "src/b/c.rs"];
        let files = files.map(|path| text(path, "//! A.\n"));
        let faults = shown(check_places(&files));
        assert_eq!(
            faults,
            ["src/b.rs:1: a module with a folder is `mod.rs` in it"]
        );
    }
}
