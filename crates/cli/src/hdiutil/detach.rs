//! `hdiutil detach` and `unmount`.

use super::call::Call;
use super::plist_values::{dictionary, text};
use super::table::{COMMON, Verb};
use crate::attach;
use crate::failure::Outcome;

const OPTIONS: &str = "
-force | done | detaches even if programs use it; they get errors
";

pub(super) const VERB: Verb = Verb {
    names: &["detach", "eject"],
    operands: "*device or mount point*",
    count: (1, 1),
    says: "Detaches an image: unmounts its volumes and stops its server; the exit code is 16 if a \
           program uses it",
    options: &[COMMON, OPTIONS],
    run: Some(run),
};

pub(super) const UNMOUNT: Verb = Verb {
    names: &["unmount"],
    operands: "*device or mount point*",
    count: (1, 1),
    says: "The same as detach: an image without a mounted volume is not kept attached",
    options: &[COMMON, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    end(call, call.image(), call.has("force"))
}

/// Detaches an image by its device name or mount point.
pub(super) fn end(call: &Call, what: &str, force: bool) -> Outcome {
    let detached = attach::detach(what.as_ref(), force)?;
    if call.has("plist") {
        return call.plist(dictionary([("DeviceIdentifier", text(detached.device))]));
    }
    call.print(&format!("\"{}\" ejected.\n", detached.device))
}
