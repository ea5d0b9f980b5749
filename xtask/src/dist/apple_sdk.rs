//! A folder in the form of Apple's SDK, for linking without a Mac.
//!
//! zig has a list of the names in `libSystem`. Of frameworks the linker needs the names too: they are
//! those that the crates declare which call the frameworks. A name that macOS does not have would be
//! found only when the command starts there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The frameworks, and the crates that declare their functions.
const FRAMEWORKS: [(&str, &str); 2] = [
    ("CoreFoundation", "core-foundation-sys"),
    ("Security", "security-framework-sys"),
];

/// Functions of libiconv. The crate `libc` asks for the library, and nothing calls it: the linker drops it.
const ICONV: [&str; 3] = ["iconv", "iconv_close", "iconv_open"];

/// Makes the SDK in `folder`. `zig` is the folder of Python's module `ziglang`, and `sources` returns
/// the folder of a crate.
pub(super) fn make(
    folder: &Path,
    zig: &Path,
    sources: impl Fn(&str) -> Result<PathBuf>,
) -> Result<()> {
    let libraries = folder.join("usr/lib");
    fs::create_dir_all(&libraries)?;
    let system = zig.join("lib/libc/darwin/libSystem.tbd");
    let names = fs::read_to_string(&system).with_context(|| system.display().to_string())?;
    let names = with_known_targets(&names);
    for name in ["libSystem", "libc", "libm"] {
        fs::write(libraries.join(format!("{name}.tbd")), &names)?;
    }
    let iconv = ICONV.map(str::to_owned).into();
    fs::write(
        libraries.join("libiconv.tbd"),
        stub("/usr/lib/libiconv.2.dylib", &iconv),
    )?;
    for (framework, krate) in FRAMEWORKS {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(sources(krate)?.join("src"))? {
            names.extend(declared(&fs::read_to_string(entry?.path())?));
        }
        let place = folder.join(format!("System/Library/Frameworks/{framework}.framework"));
        fs::create_dir_all(&place)?;
        fs::write(
            place.join(format!("{framework}.tbd")),
            stub(&install_name(framework), &names),
        )?;
    }
    Ok(())
}

/// Returns the path by which a command loads a framework.
pub(super) fn install_name(framework: &str) -> String {
    format!("/System/Library/Frameworks/{framework}.framework/Versions/A/{framework}")
}

/// Returns the paths of all that a command may load.
pub(super) fn loadable() -> Vec<String> {
    let frameworks = FRAMEWORKS.iter().map(|(name, _)| install_name(name));
    frameworks
        .chain(["/usr/lib/libSystem.B.dylib".to_owned()])
        .collect()
}

/// Returns a stub library for x86-64 and ARM64 alone. The original has variants of ARM64 that Rust's
/// linker does not know, and sometimes only these.
fn with_known_targets(stub: &str) -> String {
    const KEY: &str = "targets:";
    let mut parts = stub.split(KEY);
    let mut known = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (list, rest) = part.split_once(']').unwrap_or(("", part));
        let has = |processor: &str| {
            let mut targets = list.split(['[', ',', '\n']).map(str::trim);
            targets.any(|target| target.starts_with(processor) && target.ends_with("-macos"))
        };
        let targets: Vec<_> = ["x86_64", "arm64"]
            .into_iter()
            .filter(|processor| has(processor))
            .map(|processor| format!("{processor}-macos"))
            .collect();
        known += &format!("{KEY} [ {} ]{rest}", targets.join(", "));
    }
    known
}

/// Returns the names of the public functions and variables in a Rust source, and those that the linker
/// knows them by.
fn declared(source: &str) -> BTreeSet<String> {
    let names = source.lines().filter_map(|line| {
        let line = line.trim_start();
        if let Some((_, rest)) = line.split_once("link_name = \"") {
            return rest.split_once('"').map(|(name, _)| name.to_owned());
        }
        let rest = line
            .strip_prefix("pub fn ")
            .or_else(|| line.strip_prefix("pub static "))?;
        let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))?;
        Some(rest[..end].to_owned())
    });
    names.collect()
}

/// Returns a text-based stub library, as linkers read it.
fn stub(install_name: &str, names: &BTreeSet<String>) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("'_{name}'")).collect();
    format!(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ x86_64-macos, arm64-macos ]\n\
         install-name: '{install_name}'\ncurrent-version: 1\ncompatibility-version: 1\nexports:\n\
         \x20 - targets: [ x86_64-macos, arm64-macos ]\n    symbols: [ {} ]\n...\n",
        names.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_the_linker_does_not_know_are_replaced() {
        let original = "tbd-version: 4\ntargets:   [ x86_64-macos, x86_64-maccatalyst, arm64e-macos, \n   \
                        arm64e.x1-macos ]\nexports:\n  - targets: [ x86_64-maccatalyst ]\n    \
                        symbols: [ _a, _b ]\n";
        let expected = "tbd-version: 4\ntargets: [ x86_64-macos, arm64-macos ]\nexports:\n  - targets: [  ]\n    \
                        symbols: [ _a, _b ]\n";
        assert_eq!(with_known_targets(original), expected);
    }

    #[test]
    fn a_stub_has_the_names_that_a_crate_declares() {
        let source = "extern \"C\" {\n    pub fn SecCopy(a: u32) -> u32;\n    \
                      #[cfg_attr(x, link_name = \"SecCopy$OLD\")]\n    \
                      pub static kSecClass: CFStringRef;\n    fn hidden();\n}\n";
        let names = declared(source);
        assert_eq!(
            Vec::from_iter(&names),
            ["SecCopy", "SecCopy$OLD", "kSecClass"]
        );
        let stub = stub(&install_name("Security"), &names);
        assert!(
            stub.contains("symbols: [ '_SecCopy', '_SecCopy$OLD', '_kSecClass' ]\n"),
            "{stub}"
        );
        assert!(stub.contains("Frameworks/Security.framework/Versions/A/Security'\n"));
        assert_eq!(loadable().len(), 3);
    }
}
