//! `hdiutil compact`.

use super::call::Call;
use super::table::{COMMON, KEYS, OPENING, PLIST, PUPPET, Verb};
use crate::commands::compact::Compact;
use crate::failure::Outcome;

const OPTIONS: &str = "
-batteryallowed | done | runs on battery power too
-sleepallowed | done | sleep is never prevented
";

pub(super) const VERB: Verb = Verb {
    names: &["compact"],
    operands: "*image*",
    count: (1, 1),
    says: "Releases unused storage of a sparse image or bundle and prints how much",
    options: &[COMMON, PLIST, PUPPET, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let compact = Compact {
        image: call.image().into(),
        battery_allowed: call.has("batteryallowed"),
        sleep_allowed: call.has("sleepallowed"),
        opening: call.opening(),
        ..Compact::default()
    };
    if call.has("plist") {
        compact.run(&call.output)?;
        return call.created(&[call.image().into()]);
    }
    compact.run(&call.aloud())
}
