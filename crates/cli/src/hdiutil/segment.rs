//! `hdiutil segment`, and the same option of other verbs.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::call::{Call, usage};
use super::size;
use super::table::Effect::{Done, Ignored};
use super::table::Takes::{Nothing, Value};
use super::table::{COMMON, OPENING, OVERWRITE, Opt, PLIST, PUPPET, Verb, opt};
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(&["o"], Value("file"), Done("the first of the parts")),
    opt(
        &["segmentCount"],
        Value("number"),
        Done("the number of parts"),
    ),
    opt(&["segmentSize"], Value("size"), Done("the size of a part")),
    opt(
        &["firstSegmentSize"],
        Value("size"),
        Done("the size of the first"),
    ),
    opt(
        &["restricted"],
        Nothing,
        Ignored("obsolete limit of the size of parts"),
    ),
];

/// The option of verbs that make an image.
pub(super) const SIZE: Opt = opt(
    &["segmentSize"],
    Value("size"),
    Done("splits a compressed or read-only image into parts of this size"),
);

pub(super) const VERB: Verb = Verb {
    names: &["segment"],
    operands: "*image*",
    count: (1, 1),
    says: "Splits a compressed or read-only image into parts",
    options: &[COMMON, PLIST, PUPPET, OVERWRITE, OPENING, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let output = call
        .value("o")
        .ok_or_else(|| usage("-o is required".to_owned()))?;
    let mut words: Vec<OsString> = vec![
        "segment".into(),
        call.image().into(),
        "--output".into(),
        output.into(),
    ];
    if let Some(count) = call.value("segmentCount") {
        words.extend(["--count".into(), count.into()]);
    }
    for (option, own) in [
        ("segmentSize", "--size"),
        ("firstSegmentSize", "--first-size"),
    ] {
        if let Some(text) = call.value(option) {
            words.extend([own.into(), size::parse(text)?.to_string().into()]);
        }
    }
    if call.has("ov") {
        words.push("--overwrite".into());
    }
    words.push("--remove-signature".into());
    if Call::is_encrypted_at(call.image())? {
        words.push("--decrypt".into());
    }
    words.extend(call.opening());
    call.own(words)?;
    call.created(&[output.into()])
}

/// Makes an image at `path`. If it is to be segmented, it is made under a temporary name beside it
/// and then split.
pub(super) fn cut(call: &Call, path: &Path, make: impl FnOnce(&Path) -> Outcome) -> Outcome {
    let Some(size) = call.value("segmentSize") else {
        return make(path);
    };
    if call.has("encryption") {
        return Err(usage(
            "-segmentSize: an encrypted image cannot be split".to_owned(),
        ));
    }
    let size = size::parse(size)?.to_string();
    let whole = path.with_file_name(bandsaw::platform::hidden_name(
        path.file_name().unwrap_or_default(),
        &format!(".whole-{}.dmg", std::process::id()),
    ));
    let mut words: Vec<OsString> = vec![
        "segment".into(),
        whole.clone().into(),
        "--output".into(),
        path.into(),
    ];
    words.extend(["--size".into(), size.into()]);
    if call.has("ov") {
        words.push("--overwrite".into());
    }
    let made = make(&whole).and_then(|()| call.own(words));
    // The error of the operation is more important.
    let _ = fs::remove_file(&whole);
    made
}
