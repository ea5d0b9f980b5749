//! `hdiutil help`.

use super::call::Call;
use super::table::Effect::Done;
use super::table::{COMMON, OptionValue, Verb, opt};
use super::{VERBS, doc};
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["help", "h", "?"],
    operands: "",
    count: (0, 1),
    says: "Lists the verbs",
    options: &[
        COMMON,
        &[opt(&["markdown"], OptionValue::Nothing, Done("this page"))],
    ],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    if call.has("markdown") {
        return call.print(&doc::markdown());
    }
    let verbs = VERBS.iter().filter(|verb| verb.run.is_some());
    let lines = verbs
        .map(|verb| format!("  {:12} {}\n", verb.names[0], verb.says))
        .collect::<String>();
    call.print(&format!(
        "usage: hdiutil <verb> <options>\n{lines}docs/hdiutil.md lists all options \
                        and their support.\n"
    ))
}
