//! `hdiutil erasekeys`.

use super::call::Call;
use super::table::{COMMON, PLIST, Verb};
use crate::commands::erase_keys::EraseKeys;
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["erasekeys"],
    operands: "*image*",
    count: (1, 1),
    says: "Destroys the keys of an encrypted image without confirmation; it cannot be opened \
           afterwards",
    options: &[COMMON, PLIST],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let image = call.image().into();
    EraseKeys { image, yes: 2 }.run(&call.output)
}
