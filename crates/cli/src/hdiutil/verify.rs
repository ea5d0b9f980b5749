//! `hdiutil verify`.

use bandsaw::ops::verify::verify;
use bandsaw::{Error, Kind};

use super::call::Call;
use super::table::{COMMON, OPENING, PLIST, PUPPET, Verb};
use crate::failure::Outcome;
use crate::progress::Bar;

pub(super) const VERB: Verb = Verb {
    names: &["verify"],
    operands: "*image*",
    count: (1, 1),
    says: "Verifies the checksums of a compressed or read-only image",
    options: &[COMMON, PLIST, PUPPET, OPENING],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    let bar = Bar::new(&call.output);
    let verdicts = verify(&image, &bar)?;
    drop(bar);
    let path = call.image();
    if verdicts.is_empty() {
        return Err(Error::new(
            Kind::Invalid,
            "verify",
            format!("\"{path}\" stores no checksums"),
        )
        .into());
    }
    if verdicts
        .iter()
        .any(|verdict| verdict.agrees() == Some(false))
    {
        let message = format!("checksum of \"{path}\" is INVALID");
        return Err(Error::new(Kind::Corrupt, "verify", message).into());
    }
    call.tell(&format!(
        "hdiutil: verify: checksum of \"{path}\" is VALID\n"
    ))
}
