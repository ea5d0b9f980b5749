//! `hdiutil erasekeys`.

use super::call::Call;
use super::table::{COMMON, PLIST, Verb};
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
    call.own(
        ["erase-keys", call.image(), "--yes", "--yes"]
            .map(Into::into)
            .into(),
    )
}
