//! `hdiutil chpass`.

use super::call::Call;
use super::table::{COMMON, Verb};
use crate::commands::passwd::{self, FromStdin};
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
    let from_stdin = FromStdin {
        old: call.has("oldstdinpass"),
        new: call.has("newstdinpass"),
    };
    passwd::change_passphrase(call.image(), from_stdin, &call.output)
}
