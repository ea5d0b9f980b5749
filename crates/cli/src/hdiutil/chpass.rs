//! `hdiutil chpass`.

use super::call::Call;
use super::table::Effect::{Done, Refused};
use super::table::OptionValue::{Nothing, Value};
use super::table::{COMMON, Opt, Verb, opt};
use crate::commands::passwd;
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(
        &["oldstdinpass"],
        Nothing,
        Done("reads the old passphrase from standard input, up to a NUL"),
    ),
    opt(
        &["newstdinpass"],
        Nothing,
        Done("reads the new passphrase from standard input after the old one, up to a NUL"),
    ),
    opt(
        &["recover"],
        Value("keychain"),
        Refused("keychains are not supported; use `bandsaw passwd --private-key FILE`"),
    ),
    opt(
        &["srcimagekey", "imagekey"],
        Value("key=value"),
        Done("not required"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["chpass"],
    operands: "*image*",
    count: (1, 1),
    says: "Changes the passphrase of an encrypted image",
    options: &[COMMON, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (old, new) = (call.has("oldstdinpass"), call.has("newstdinpass"));
    passwd::change_passphrase(call.image(), old, new, &call.output)
}
