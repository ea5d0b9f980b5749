//! `hdiutil segment`, and the same option of other verbs.

use std::fs;
use std::path::Path;

use super::call::{Call, usage};
use super::size;
use super::table::{COMMON, KEYS, OPENING, OVERWRITE, PLIST, PUPPET, Verb};
use crate::commands::segment::{RewriteArgs, Segment};
use crate::encryption_args::DecryptArgs;
use crate::failure::Outcome;

const OPTIONS: &str = "
-o *file* | done | the first of the parts
-segmentCount *number* | done | the number of parts
-segmentSize *size* | done | the size of a part
-firstSegmentSize *size* | done | the size of the first
-restricted | ignored | obsolete limit of the size of parts
";

/// The option of verbs that make an image.
pub(super) const SIZE: &str =
    "-segmentSize *size* | done | splits a compressed or read-only image into parts of this size";

pub(super) const VERB: Verb = Verb {
    names: &["segment"],
    operands: "*image*",
    count: (1, 1),
    says: "Splits a compressed or read-only image into parts",
    options: &[COMMON, PLIST, PUPPET, OVERWRITE, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let output = call
        .value("o")
        .ok_or_else(|| usage("-o is required".to_owned()))?;
    call.check_pairs(&[["segmentCount", "segmentSize"]])?;
    let number = |option| call.value(option).map(size::parse).transpose();
    let count = call.value("segmentCount").map(str::parse).transpose();
    Segment {
        image: call.image().into(),
        output: output.into(),
        size: number("segmentSize")?,
        count: count.map_err(|_| usage("-segmentCount requires a number".to_owned()))?,
        first_size: number("firstSegmentSize")?,
        rewriting: RewriteArgs {
            overwrite: call.has("ov"),
            remove_signature: true,
        },
        decrypting: DecryptArgs {
            decrypt: Call::is_encrypted_at(call.image())?,
        },
        opening: call.opening(),
    }
    .run(&call.output)?;
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
    let size = size::parse(size)?;
    let whole = path.with_file_name(bandsaw::platform::hidden_name(
        path.file_name().unwrap_or_default(),
        &format!(".whole-{}.dmg", std::process::id()),
    ));
    let segment = Segment {
        image: whole.clone().into(),
        output: path.into(),
        size: Some(size),
        rewriting: RewriteArgs {
            overwrite: call.has("ov"),
            ..RewriteArgs::default()
        },
        ..Segment::default()
    };
    let made = make(&whole).and_then(|()| segment.run(&call.output));
    // The error of the operation is more important.
    let _ = fs::remove_file(&whole);
    made
}
