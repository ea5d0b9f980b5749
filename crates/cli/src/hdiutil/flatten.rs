//! `hdiutil flatten` and `unflatten`, between which scripts add a license by `Rez`.

use bandsaw::Error;

use super::call::Call;
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::failure::Outcome;

const SAYS: &str = "Without effect: the resources of an image are always in its own list, to which \
                    `Rez` of `bandsaw shims` adds; removed in macOS 11";

pub(super) const FLATTEN: Verb = Verb {
    names: &["flatten"],
    operands: "*image*",
    count: (1, 1),
    says: SAYS,
    options: &[COMMON, PLIST, OPENING, KEYS],
    run: Some(run),
};

pub(super) const UNFLATTEN: Verb = Verb {
    names: &["unflatten"],
    operands: "*image*",
    count: (1, 1),
    says: SAYS,
    options: &[COMMON, PLIST, OPENING, KEYS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    match image.udif() {
        Some(_) => Ok(()),
        None => Err(Error::unsupported(
            "image",
            "only compressed and read-only images have resources",
        )
        .in_file(call.image())
        .into()),
    }
}
