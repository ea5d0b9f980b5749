//! `hdiutil chpass`.

use super::call::Call;
use super::table::{COMMON, Verb};
use crate::commands::passwd;
use crate::failure::Outcome;

const OPTIONS: &str = "
-oldstdinpass | done | reads the old passphrase from standard input, up to a NUL
-newstdinpass | done | reads the new passphrase from standard input after the old one, up to a NUL
-recover *keychain* | refused | keychains are not supported; use `bandsaw passwd --private-key FILE`
-srcimagekey -imagekey *key=value* | done | not required
";

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
