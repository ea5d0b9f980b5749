//! `hdiutil segment`.

use std::ffi::OsString;

use super::call::{Call, usage};
use super::size;
use super::table::Effect::{Done, Ignored};
use super::table::Takes::{Nothing, Value};
use super::table::{COMMON, OPENING, OVERWRITE, Opt, PLIST, PUPPET, Verb, opt};
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(&["o"], Value("file"), Done("the first of the parts")),
    opt(&["segmentCount"], Value("number"), Done("how many parts")),
    opt(&["segmentSize"], Value("size"), Done("the size of a part")),
    opt(&["firstSegmentSize"], Value("size"), Done("the size of the first")),
    opt(&["restricted"], Nothing, Ignored("it limited the parts to what old versions opened")),
];

pub(super) const VERB: Verb = Verb {
    names: &["segment"],
    operands: "*image*",
    count: (1, 1),
    says: "Cuts a compressed or read-only image into parts",
    options: &[COMMON, PLIST, PUPPET, OVERWRITE, OPENING, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let output = call.value("o").ok_or_else(|| usage("-o is missing".to_owned()))?;
    let mut words: Vec<OsString> = vec!["segment".into(), call.image().into(), "--output".into(), output.into()];
    if let Some(count) = call.value("segmentCount") {
        words.extend(["--count".into(), count.into()]);
    }
    for (option, own) in [("segmentSize", "--size"), ("firstSegmentSize", "--first-size")] {
        if let Some(text) = call.value(option) {
            words.extend([own.into(), size::parse(text)?.to_string().into()]);
        }
    }
    if call.has("ov") {
        words.push("--overwrite".into());
    }
    words.push("--remove-signature".into());
    words.extend(call.opening());
    call.own(words)?;
    call.created(&[output.into()])
}
