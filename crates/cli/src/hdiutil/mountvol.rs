//! `hdiutil mountvol`.

use bandsaw::Error;
use bandsaw_registry::Registry;

use super::call::Call;
use super::plist_values::{dictionary, text};
use super::table::{COMMON, PLIST, Verb};
use crate::failure::Outcome;

pub(super) const VERB: Verb = Verb {
    names: &["mountvol"],
    operands: "*device*",
    count: (1, 1),
    says: "Prints the mount point of a volume of an attached image; attach mounts all volumes",
    options: &[COMMON, PLIST],
    run: Some(run),
};

pub(super) fn run(call: &Call) -> Outcome {
    let name = call.image().trim_start_matches("/dev/");
    let entries = Registry::of_user()?.entries()?;
    let mount = entries
        .iter()
        .flat_map(|entry| &entry.mounts)
        .find(|mount| mount.device == name);
    let mount = mount.ok_or_else(|| Error::not_found("mountvol", name))?;
    let folder = mount.folder.to_string_lossy();
    if call.has("plist") {
        let entity = [
            ("dev-entry", text(format!("/dev/{name}"))),
            ("mount-point", text(folder)),
        ];
        return call.plist(dictionary(entity));
    }
    call.print(&format!("/dev/{name}\t{folder}\n"))
}
