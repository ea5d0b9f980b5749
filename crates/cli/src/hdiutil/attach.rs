//! `hdiutil attach`.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::open::Section;
use bandsaw::{Error, Kind, Reason};
use plist::Value as Plist;

use super::call::{Call, usage};
use super::facts::{dictionary, disk_hint, is_volume, text, volume_hint};
use super::table::Effect::{Done, Ignored};
use super::table::Takes::{Nothing, Value};
use super::table::{COMMON, OPENING, Opt, PLIST, PUPPET, Verb, opt};
use crate::attach::{Attached, AttachedVolume, launch};
use crate::failure::Outcome;

const OPTIONS: &[Opt] = &[
    opt(&["readonly"], Nothing, Done("nothing can be changed")),
    opt(
        &["readwrite"],
        Nothing,
        Ignored("images are attached read-write where possible"),
    ),
    opt(
        &["mountpoint"],
        Value("folder"),
        Done("the first volume is mounted here"),
    ),
    opt(
        &["mountroot"],
        Value("folder"),
        Done("volumes are mounted on folders in this one instead of /Volumes"),
    ),
    opt(
        &["mountrandom"],
        Value("folder"),
        Done("the first volume is mounted on a folder with a random name in this one"),
    ),
    opt(
        &["nomount"],
        Nothing,
        Done("no volume is mounted; the disk is shown as one file"),
    ),
    opt(
        &["mount"],
        Value("required, optional or suppressed"),
        Done(
            "suppressed is -nomount; required fails if no volume can be mounted, optional then shows the disk as one file",
        ),
    ),
    opt(
        &["nobrowse"],
        Nothing,
        Ignored("volumes are not announced to a desktop"),
    ),
    opt(
        &["owners"],
        Value("on or off"),
        Ignored("the user who attaches an image owns its files, unless that is root"),
    ),
    opt(
        &["kernel", "nokernel"],
        Nothing,
        Ignored("a process of its own serves each image"),
    ),
    opt(
        &["notremovable"],
        Nothing,
        Ignored("there is no eject button"),
    ),
    opt(
        &["drivekey"],
        Value("key=value"),
        Ignored("there is no registry of devices"),
    ),
    opt(
        &["section"],
        Value("range"),
        Done("these sectors of the disk: START, FIRST-LAST or START,COUNT"),
    ),
    opt(
        &["verify"],
        Nothing,
        Done("the image is compared with the checksums stored in it, even if that was done before"),
    ),
    opt(
        &["noverify"],
        Nothing,
        Done("the image is not compared with the checksums stored in it"),
    ),
    opt(&["ignorebadchecksums"], Nothing, Done("as -noverify")),
    opt(
        &["noignorebadchecksums"],
        Nothing,
        Ignored("an image with a wrong checksum is never attached otherwise"),
    ),
    opt(
        &["autofsck", "noautofsck"],
        Nothing,
        Ignored("a journal is replayed, and a damaged volume is mounted read-only"),
    ),
    opt(
        &[
            "autoopen",
            "noautoopen",
            "autoopenro",
            "noautoopenro",
            "autoopenrw",
            "noautoopenrw",
            "noidme",
            "idme",
        ],
        Nothing,
        Ignored("no window is opened"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["attach", "mount"],
    operands: "*image*",
    count: (1, 1),
    says: "Mounts the volumes of an image, served by a process of its own, and gives it the name of a device",
    options: &[COMMON, PLIST, PUPPET, OPENING, OPTIONS],
    run: Some(run),
};

/// The message of hdiutil for an image without a volume.
pub(super) const NOTHING_TO_MOUNT: &str = "no mountable file systems";

fn run(call: &Call) -> Outcome {
    attach(call, call.image())
}

/// Attaches an image as requested, and prints its mount points.
pub(super) fn attach(call: &Call, image: &str) -> Outcome {
    let mut words: Vec<OsString> = ["--quiet", "attach", "--serving", "--folders", image]
        .map(Into::into)
        .into();
    words.extend(call.opening_for(Call::is_encrypted_at(image)?));
    if call.has("readonly") {
        words.push("--read-only".into());
    }
    if call.has("noverify") || call.has("ignorebadchecksums") {
        words.push("--no-verify".into());
    } else if call.has("verify") {
        words.push("--verify".into());
    }
    if let Some(section) = call.value("section") {
        section.parse::<Section>().map_err(usage)?;
        words.extend(["--section".into(), section.into()]);
    }
    let mounts = match call.value("mount") {
        Some("optional") if !call.has("nomount") => {
            words.push("--or-disk".into());
            true
        }
        None | Some("required" | "optional") => !call.has("nomount"),
        Some("suppressed") => false,
        Some(other) => {
            return Err(usage(format!(
                "-mount {other} is none of required, optional, suppressed"
            )));
        }
    };
    if !mounts {
        words.push("--nomount".into());
    } else if let Some(folder) = call.value("mountpoint") {
        words.extend(["--mountpoint".into(), folder.into()]);
    } else if let Some(folder) = call.value("mountrandom") {
        let name = format!("dmg.{:06x}", std::process::id());
        words.extend(["--mountpoint".into(), Path::new(folder).join(name).into()]);
    } else if let Some(folder) = call.value("mountroot") {
        words.extend(["--mountroot".into(), folder.into()]);
    }
    begin(call, image, &words)
}

/// Starts a server, and returns the mounted volumes.
pub(super) fn begin(call: &Call, image: &str, words: &[OsString]) -> Outcome {
    match launch(words) {
        // The server has reported the problem; its exit code only says that something was not
        // found.
        Err(failure)
            if failure.kind() == Kind::NotFound
                && failure.is_told()
                && Path::new(image).exists() =>
        {
            Err(Error::new(Kind::NotFound, "attach", NOTHING_TO_MOUNT)
                .because(Reason::NoVolumes)
                .in_file(image)
                .into())
        }
        attached => tell(call, &attached?),
    }
}

/// Prints the device and its volumes, in the three columns that programs expect, or as a property
/// list.
fn tell(call: &Call, attached: &Attached) -> Outcome {
    let scheme = disk_hint(attached.scheme.as_deref());
    // Without a partition map the disk itself is the volume, or is shown as a file.
    let (of_disk, volumes): (Vec<_>, Vec<_>) = attached
        .volumes
        .iter()
        .partition(|volume| volume.device == attached.device);
    let whole = of_disk.first().filter(|volume| is_volume(&volume.format));
    if call.has("plist") {
        let blank = || {
            dictionary([
                ("dev-entry", text(format!("/dev/{}", attached.device))),
                ("content-hint", text(scheme)),
                ("unmapped-content-hint", text(scheme)),
                ("potentially-mountable", Plist::Boolean(false)),
            ])
        };
        let disk = whole.map_or_else(blank, |volume| entity(volume));
        let entities = std::iter::once(disk)
            .chain(volumes.into_iter().map(entity))
            .collect();
        return call.plist(dictionary([("system-entities", Plist::Array(entities))]));
    }
    let line = |device: &str, hint: &str, place: &str| {
        format!("{:20}\t{hint:30}\t{place}\n", format!("/dev/{device}"))
    };
    let place = whole.map_or("".into(), |volume| volume.mount_point.to_string_lossy());
    let mut out = line(&attached.device, scheme, &place);
    for volume in volumes {
        out += &line(
            &volume.device,
            volume_hint(&volume.format),
            &volume.mount_point.to_string_lossy(),
        );
    }
    call.tell(&out)
}

fn entity(volume: &AttachedVolume) -> Plist {
    dictionary([
        ("dev-entry", text(format!("/dev/{}", volume.device))),
        ("content-hint", text(volume_hint(&volume.format))),
        ("unmapped-content-hint", text(volume_hint(&volume.format))),
        ("potentially-mountable", Plist::Boolean(true)),
        ("mount-point", text(volume.mount_point.to_string_lossy())),
        (
            "volume-kind",
            text(if volume.format.starts_with("HFS") {
                "hfs"
            } else {
                "apfs"
            }),
        ),
    ])
}
