//! `hdiutil fsid`.

use std::fmt::Write as _;

use plist::Value as Plist;

use super::call::Call;
use super::plist_values::{dictionary, number, text};
use super::table::{COMMON, KEYS, OPENING, PLIST, Verb};
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["fsid"],
    operands: "*image*",
    count: (1, 1),
    says: "Lists the file systems in an image",
    options: &[COMMON, PLIST, OPENING, KEYS],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let (image, _) = call.open()?;
    let (mut list, mut out) = (Vec::new(), String::new());
    for volume in image.volumes() {
        let info = volume.open().ok().map(|fs| fs.volume());
        let name = info.as_ref().map_or("", |info| info.name.as_str());
        let format = info
            .as_ref()
            .map_or(volume.format.name(), |info| info.format);
        let _ = writeln!(
            out,
            "{}: {format} {}",
            volume.place(),
            call.output.name(name)
        );
        let mut entry = vec![("filesystem", text(format)), ("volume-name", text(name))];
        if let Some(info) = &info {
            let _ = writeln!(
                out,
                "  {} bytes, {} free, {} files, {} folders",
                info.total, info.free, info.files, info.folders
            );
            entry.extend([
                ("size", number(info.total)),
                ("free", number(info.free)),
                ("journaled", Plist::Boolean(info.journaled)),
            ]);
            if let Some(uuid) = info.uuid {
                entry.push((
                    "volume-uuid",
                    text(uuid.hyphenated().to_string().to_uppercase()),
                ));
            }
        }
        list.push(dictionary(entry));
    }
    if call.has("plist") {
        call.plist(Plist::Array(list))
    } else {
        call.print(&out)
    }
}
