//! `hdiutil verify`.

use std::fmt::Write as _;

use bandsaw::ops::verify::verify;
use bandsaw::{Error, Kind};
use plist::Value as Plist;

use super::call::Call;
use super::plist_values::{dictionary, text};
use super::table::{COMMON, KEYS, OPENING, PLIST, PUPPET, Verb};
use crate::failure::Outcome;
use crate::progress::Bar;

pub(super) const VERB: Verb = Verb {
    names: &["verify"],
    operands: "*image*",
    count: (1, 1),
    says: "Verifies the checksums of a compressed or read-only image",
    options: &[COMMON, PLIST, PUPPET, OPENING, KEYS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    let bar = Bar::new(&call.output);
    let verdicts = verify(&image, &bar)?;
    drop(bar);
    let path = call.image();
    if verdicts.is_empty() {
        return Err(Error::invalid("verify", format!("\"{path}\" stores no checksums")).into());
    }
    if verdicts
        .iter()
        .any(|verdict| verdict.agrees() == Some(false))
    {
        let message = format!("checksum of \"{path}\" is INVALID");
        return Err(Error::new(Kind::Corrupt, "verify", message).into());
    }
    // The areas, and then all together.
    let (mut lines, mut all, mut sums) = (String::new(), String::new(), Vec::new());
    for verdict in &verdicts {
        let (algorithm, Some(sum)) = (verdict.algorithm, &verdict.stored) else {
            continue;
        };
        let (kind, upper) = (algorithm.to_uppercase(), sum.to_uppercase());
        sums.push(dictionary([
            ("checksum-value", text(sum.as_str())),
            ("name", text(&*verdict.of)),
        ]));
        if verdict.is_of_area {
            let name = call.output.name(&verdict.of);
            let _ = writeln!(lines, "Checksumming {name}…");
            let _ = writeln!(lines, "{name:>36.36}: verified {kind} ${upper}");
        } else if verdict.of == "tables" {
            let _ = writeln!(all, "verified {kind} ${upper}");
        }
    }
    lines += &all;
    if call.has("plist") {
        call.plist(dictionary([
            ("checksum-type", text("CRC32")),
            ("checksums", Plist::Array(sums)),
        ]))?;
    } else {
        call.print(&lines)?;
    }
    if !call.has("quiet") {
        eprintln!("hdiutil: verify: checksum of \"{path}\" is VALID");
    }
    Ok(())
}
