//! `hdiutil resize`.

use std::io::IsTerminal;

use bandsaw::address::{Address, VolumeSelector};
use bandsaw::ops::resize::limits;

use super::call::{Call, usage};
use super::plist_values::{dictionary, number};
use super::size::{self, SECTOR};
use super::table::{COMMON, KEYS, OPENING, PLIST, PUPPET, Verb};
use crate::commands::resize::Resize;
use crate::failure::Outcome;
use crate::source;

const OPTIONS: &str = "
-size *number and b, k, m, g, t, p or e* | done | the new size of the image
-sectors *number or min* | done | the new size in sectors; min: the smallest possible size
-imageonly | done | resizes the disk only, not map and volume
-partitiononly | done | resizes map and volume, not the disk
-partitionID *number* | done | resizes this partition instead of the last
-growonly | done | resizes only if the image grows
-shrinkonly | done | resizes only if the image shrinks
-limits | done | prints the minimum, current and maximum size in sectors
-nofinalgap | ignored | there is never a gap after the last partition
";

pub(super) const VERB: Verb = Verb {
    names: &["resize"],
    operands: "*image*",
    count: (1, 1),
    says: "Resizes disk, map and volume together",
    options: &[COMMON, PLIST, PUPPET, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let asked = ["size", "sectors"].iter().any(|option| call.has(option));
    if call.has("limits") || !asked {
        return print_limits(call);
    }
    call.check_pairs(&[["imageonly", "partitiononly"], ["growonly", "shrinkonly"]])?;
    let volume = match call.value("partitionID") {
        Some(id) => {
            let partition = id.parse().ok().filter(|number| *number > 0);
            Some(VolumeSelector::Number {
                partition: partition
                    .ok_or_else(|| usage("-partitionID requires a number from 1".to_owned()))?,
                volume: None,
            })
        }
        None => None,
    };
    let (size, min) = match (call.value("size"), call.value("sectors")) {
        (Some("min"), _) | (_, Some("min")) => (None, true),
        (Some(text), _) => (Some(size::parse(text)?), false),
        (None, text) => {
            let bytes = text
                .and_then(|text| text.parse::<u64>().ok())
                .and_then(|sectors| sectors.checked_mul(SECTOR));
            let bytes =
                bytes.ok_or_else(|| usage("-sectors requires a number or min".to_owned()))?;
            (Some(bytes), false)
        }
    };
    let address = Address {
        volume,
        ..source::image_or_volume(call.image().as_ref())?
    };
    Resize {
        size,
        min,
        image_only: call.has("imageonly"),
        partition_only: call.has("partitiononly"),
        grow_only: call.has("growonly"),
        shrink_only: call.has("shrinkonly"),
        opening: call.opening(),
        ..Resize::default()
    }
    .resize(&address, &call.output)
}

fn print_limits(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    let found = limits(&image, None)?;
    let sizes = [
        ("min", found.min),
        ("current", found.current),
        ("max", found.max),
    ]
    .map(|(what, bytes)| (what, bytes / SECTOR));
    if call.has("plist") {
        return call.plist(dictionary(
            sizes.map(|(what, sectors)| (what, number(sectors))),
        ));
    }
    let [min, current, max] = sizes.map(|(_, sectors)| sectors);
    // Programs take the first word as the smallest size.
    let head = if std::io::stdout().is_terminal() {
        " min \t cur \t max \n"
    } else {
        ""
    };
    call.print(&format!("{head}{min}\t{current}\t{max}\n"))
}
