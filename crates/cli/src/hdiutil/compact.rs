//! `hdiutil compact`.

use super::call::Call;
use super::table::Effect::Done;
use super::table::Takes::Nothing;
use super::table::{COMMON, OPENING, Opt, PLIST, PUPPET, Verb, opt};
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(
        &["batteryallowed"],
        Nothing,
        Done("runs on battery power too"),
    ),
    opt(&["sleepallowed"], Nothing, Done("sleep is never prevented")),
];

pub(super) const VERB: Verb = Verb {
    names: &["compact"],
    operands: "*image*",
    count: (1, 1),
    says: "Releases unused storage of a sparse image or bundle and prints how much",
    options: &[COMMON, PLIST, PUPPET, OPENING, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let mut words = vec!["compact".into(), call.image().into()];
    words.extend(call.opening());
    for (option, own) in [
        ("batteryallowed", "--battery-allowed"),
        ("sleepallowed", "--sleep-allowed"),
    ] {
        if call.has(option) {
            words.push(own.into());
        }
    }
    if call.has("plist") {
        call.own(words)?;
        return call.created(&[call.image().into()]);
    }
    call.own_aloud(words)
}
