//! `hdiutil udifrez`.

use super::call::{Call, usage};
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::commands::resources;
use crate::failure::Outcome;

const OPTIONS: &str = "
-xml *file* | done | the resources to add, as a list in XML
-replaceall | done | removes all others, except block tables and the list of partitions
";

pub(super) const VERB: Verb = Verb {
    names: &["udifrez"],
    operands: "[*word*] *image*",
    count: (1, 2),
    says: "Puts resources, such as a license, into a compressed or read-only image; a word before \
           it is ignored, as CPack passes one",
    options: &[COMMON, PLIST, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let list = call
        .value("xml")
        .ok_or_else(|| usage("-xml is required: lists in Rez are not supported".to_owned()))?;
    let all = call.has("replaceall");
    let image = call.operands().last().map_or("", String::as_str);
    resources::put(image, list, all, call.opening(), &call.output)
}
