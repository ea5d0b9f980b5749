//! `hdiutil help`.

use super::call::Call;
use super::table::{COMMON, Verb};
use super::{VERBS, doc};
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["help", "h", "?"],
    operands: "",
    count: (0, 1),
    says: "Lists the verbs",
    options: &[COMMON, "-markdown | done | this page"],
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
        "usage: hdiutil <verb> <options>\n{lines}`bandsaw hdiutil help -markdown` \
                        lists all options and their support.\n"
    ))
}
