//! `hdiutil udifderez`.

use super::call::Call;
use super::table::Effect::{Done, Refused};
use super::table::OptionValue::Nothing;
use super::table::{COMMON, OPENING, Opt, PLIST, Verb, opt};
use crate::commands::resources;
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(
        &["xml"],
        Nothing,
        Done("prints a list in XML, also without this option"),
    ),
    opt(
        &["rez"],
        Nothing,
        Refused("Rez is a language of classic Mac OS tools; -xml prints the same"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["udifderez"],
    operands: "*image*",
    count: (1, 1),
    says: "Prints the resources of a compressed or read-only image",
    options: &[COMMON, PLIST, OPENING, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    resources::print(call.image(), call.opening(), &call.aloud())
}
