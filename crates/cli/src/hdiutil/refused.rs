//! The verbs that are not supported, each with the reason.

use super::table::Verb;

const fn refused(names: &'static [&'static str], says: &'static str) -> Verb {
    Verb {
        names,
        operands: "",
        count: (0, usize::MAX),
        says,
        options: &[],
        run: None,
    }
}

pub(super) const BURN: Verb = refused(
    &["burn"],
    "burning is not supported; use `xorriso` or `growisofs` with a raw image",
);
pub(super) const INTERNET_ENABLE: Verb =
    refused(&["internet-enable"], "obsolete: removed in macOS 10.15");
pub(super) const PLUGINS: Verb = refused(&["plugins"], "plug-ins are not supported");
