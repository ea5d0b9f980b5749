//! `hdiutil udifderez`.

use super::call::Call;
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::commands::resources;
use crate::failure::Outcome;

const OPTIONS: &str = "
-xml | done | prints a list in XML, also without this option
-rez | refused | Rez is a language of classic Mac OS tools; -xml prints the same
";

pub(super) const VERB: Verb = Verb {
    names: &["udifderez"],
    operands: "*image*",
    count: (1, 1),
    says: "Prints the resources of a compressed or read-only image",
    options: &[COMMON, PLIST, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    resources::print(call.image(), call.opening(), &call.aloud())
}
