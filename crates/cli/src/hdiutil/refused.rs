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

pub(super) const FLATTEN: Verb = refused(
    &["flatten"],
    "it moved an image's description into a resource fork and back, and macOS 11 has dropped it",
);
pub(super) const UNFLATTEN: Verb = refused(
    &["unflatten"],
    "it moved an image's description into a resource fork and back, and macOS 11 has dropped it",
);
pub(super) const BURN: Verb = refused(
    &["burn"],
    "discs are burned by programs that know drives; `xorriso` and `growisofs` take a raw image",
);
pub(super) const INTERNET_ENABLE: Verb = refused(
    &["internet-enable"],
    "browsers no longer unpack images that have this mark, and macOS 10.15 has dropped it",
);
pub(super) const PLUGINS: Verb = refused(
    &["plugins"],
    "there are no plug-ins: every format is part of the program",
);
