//! The verbs of `diskutil` for disks, if they belong to an attached image.

use super::call::{Call, usage};
use super::table::Verb;
use super::{detach, diskinfo, mountvol};
use crate::failure::Outcome;

pub(super) const COMMON: &str = "
-verbose | ignored | messages are always complete
-quiet | done | prints nothing; the exit status is unchanged
-plist | done | prints the result as a property list
";

pub(super) const VERBS: &[&Verb] = &[
    &Verb {
        names: &["list"],
        operands: "*device*",
        count: (0, 1),
        says: "Lists the disks of attached images, their partitions and volumes; without -plist, as `hdiutil info` does",
        options: &[COMMON],
        run: Some(diskinfo::list),
    },
    &Verb {
        names: &["info", "information"],
        operands: "*device, mount point or volume*",
        count: (1, 1),
        says: "Describes a disk, partition or volume of an attached image",
        options: &[COMMON],
        run: Some(diskinfo::run),
    },
    &Verb {
        names: &["eject", "unmount", "unmountDisk"],
        operands: "[force] *device or mount point*",
        count: (1, 2),
        says: "Detaches an image: unmounts its volumes and stops its server; the exit code is 16 \
               if a program uses it",
        options: &[COMMON],
        run: Some(end),
    },
    &Verb {
        names: &["mount", "mountDisk"],
        operands: "*device*",
        count: (1, 1),
        says: "Prints the mount point of a volume of an attached image; attach mounts all volumes",
        options: &[COMMON],
        run: Some(mountvol::run),
    },
    &Verb {
        names: &["verifyVolume", "verifyDisk", "repairVolume", "repairDisk"],
        operands: "",
        count: (0, usize::MAX),
        says: "attached disks cannot be checked; use `bandsaw check` and `bandsaw repair` on an \
               image that is not attached",
        options: &[],
        run: None,
    },
];

fn end(call: &Call) -> Outcome {
    match call.operands() {
        [device] => detach::end(call, device, false),
        [force, device] if force == "force" => detach::end(call, device, true),
        _ => Err(usage(
            "expected [force] and a device or mount point".to_owned(),
        )),
    }
}
