//! `hdiutil checksum`.

use bandsaw::ops::checksum::{Algorithm, checksum};

use super::call::{Call, usage};
use super::plist_values::{dictionary, text};
use super::table::{COMMON, KEYS, OPENING, PLIST, PUPPET, Verb};
use crate::failure::Outcome;
use crate::progress::Bar;

const OPTIONS: &str = "
-type *name*{CRC32|MD5|SHA|SHA1|SHA256|SHA384|SHA512|UDIF-CRC32|UDIF-MD5} | done | CRC32, MD5, SHA (SHA1), SHA256, SHA384 or SHA512 of the disk; UDIF-CRC32 and UDIF-MD5 give the same values
";

pub(super) const VERB: Verb = Verb {
    names: &["checksum"],
    operands: "*image*",
    count: (1, 1),
    says: "Computes a checksum of the disk",
    options: &[COMMON, PLIST, PUPPET, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let name = call
        .value("type")
        .ok_or_else(|| usage("-type is required".to_owned()))?
        .to_ascii_uppercase();
    let algorithm: Algorithm = name.strip_prefix("UDIF-").unwrap_or(&name).parse()?;
    let (image, _) = call.open()?;
    let bar = Bar::new(&call.output);
    let sum = checksum(&**image.disk(), algorithm, &bar)?;
    drop(bar);
    if call.has("plist") {
        return call.plist(dictionary([
            ("checksum-type", text(name)),
            ("checksum-value", text(sum)),
        ]));
    }
    call.print(&format!("{name}: ${}\n", sum.to_uppercase()))
}
