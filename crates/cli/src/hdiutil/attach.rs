//! `hdiutil attach`.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::open::Section;
use bandsaw::{Error, Kind, Reason};
use bandsaw_registry::{Entry, Registry, Use};
use plist::Value as Plist;

use super::call::{Call, usage};
use super::entities::{Entity, entities};
use super::plist_values::dictionary;
use super::table::{COMMON, KEYS, OPENING, PLIST, PUPPET, Verb};
use crate::attach::{Attached, launch};
use crate::commands::create::epoch;
use crate::failure::Outcome;

const OPTIONS: &str = "
-readonly | done | opens the image read-only
-readwrite | ignored | the default where possible
-mountpoint *folder* | done | mounts the first volume here
-mountroot *folder* | done | mounts volumes in this folder instead of /Volumes
-mountrandom *folder* | done | mounts the first volume on a folder with a random name in this one; /private/tmp is /tmp
-nomount | done | mounts no volume; attaches the disk as one file
-mount *required, optional or suppressed*{required|optional|suppressed} | done | suppressed is -nomount; required fails if no volume can be mounted; optional then attaches the disk as one file
-nobrowse | ignored | volumes are never announced to a desktop
-owners *on or off*{on|off} | ignored | files belong to the user who attaches the image, unless that is root
-kernel -nokernel | ignored | each image has its own server process
-notremovable | ignored | there is no eject button
-drivekey *key=value* | ignored | there is no registry of devices
-section *range* | done | attaches a range of sectors: START, FIRST-LAST or START,COUNT
-verify | done | verifies the checksums of the image, even if it was verified before
-noverify | done | does not verify the checksums of the image
-ignorebadchecksums | done | verifies the checksums of the image, and attaches it with a warning if one differs
-noignorebadchecksums | ignored | an image with a wrong checksum is never attached without this option
-autofsck -noautofsck | ignored | the journal is always replayed, and a damaged volume is mounted read-only
-autoopen -noautoopen -autoopenro -noautoopenro -autoopenrw -noautoopenrw -noidme -idme | ignored | no window is ever opened
";

pub(super) const VERB: Verb = Verb {
    names: &["attach", "mount"],
    operands: "*image*",
    count: (1, 1),
    says: "Attaches an image: mounts its volumes by a server process and assigns a device name",
    options: &[COMMON, PLIST, PUPPET, OPENING, KEYS, OPTIONS],
    run: Some(run),
};

/// The message of hdiutil for an image without a volume.
pub(super) const NOTHING_TO_MOUNT: &str = "no mountable file systems";

fn run(call: &Call) -> Outcome {
    attach(call, call.image())
}

/// Attaches an image as requested, and prints its mount points. An image that is attached already
/// stays as it is.
pub(super) fn attach(call: &Call, image: &str) -> Outcome {
    let is_whole = !call.has("shadow") && !call.has("section");
    if let Some(entry) = attached(image)?.filter(|_| is_whole) {
        return print(call, &entry);
    }
    let mut words: Vec<OsString> = ["attach", "--serving", "--folders", image]
        .map(Into::into)
        .into();
    let ignores_sums = call.has("ignorebadchecksums") && !call.has("noverify");
    // Otherwise the warning would not appear.
    if !ignores_sums || call.has("quiet") {
        words.insert(0, "--quiet".into());
    }
    words.extend(call.server_words(Call::is_encrypted_at(image)?));
    if call.has("readonly") {
        words.push("--read-only".into());
    }
    if call.has("noverify") {
        words.push("--no-verify".into());
    } else if call.has("verify") {
        words.push("--verify".into());
    }
    if ignores_sums {
        words.push("--warn-about-checksums".into());
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
                "invalid -mount {other}: expected required, optional or suppressed"
            )));
        }
    };
    if !mounts {
        words.push("--nomount".into());
    } else if let Some(folder) = call.value("mountpoint") {
        words.extend(["--mountpoint".into(), folder.into()]);
    } else if let Some(folder) = call.value("mountrandom").map(of_host) {
        if !folder.is_dir() {
            return Err(Error::not_found("attach", folder.to_string_lossy()).into());
        }
        let name = format!("dmg.{:06x}", std::process::id());
        words.extend(["--mountpoint".into(), folder.join(name).into()]);
    } else if let Some(folder) = call.value("mountroot").map(of_host) {
        words.extend(["--mountroot".into(), folder.into()]);
    }
    if let Some(epoch) = epoch()?.filter(|_| mounts) {
        words.push(format!("--options=epoch={}", epoch.seconds).into());
    }
    begin(call, image, &words)
}

/// Returns a folder by its name here: `/private/tmp` of a Mac is `/tmp`.
fn of_host(folder: &str) -> &Path {
    let path = Path::new(folder);
    match folder.strip_prefix("/private") {
        Some(rest @ ("/tmp" | "/var/tmp")) if !path.exists() => Path::new(rest),
        _ => path,
    }
}

/// Starts a server, and returns the mounted volumes.
pub(super) fn begin(call: &Call, image: &str, words: &[OsString]) -> Outcome {
    let words = [
        words,
        &["--quiet-if-empty".into(), "--report-as=hdiutil".into()],
    ]
    .concat();
    match launch(&words) {
        // Its exit code only says that something was not found; it has reported all but this.
        Err(failure)
            if failure.kind() == Kind::NotFound
                && failure.is_reported()
                && Path::new(image).exists() =>
        {
            Err(Error::new(Kind::NotFound, "attach", NOTHING_TO_MOUNT)
                .because(Reason::NoVolumes)
                .in_file(image)
                .into())
        }
        attached => {
            let Attached { device, .. } = attached?;
            let mut entries = Registry::of_user()?.entries()?;
            entries.retain(|entry| entry.device == device);
            let entry = entries
                .pop()
                .ok_or_else(|| Error::not_found("attach", device))?;
            print(call, &entry)
        }
    }
}

/// Returns the entry of an image if it is attached without a shadow file.
fn attached(image: &str) -> Outcome<Option<Entry>> {
    let Ok(path) = Path::new(image).canonicalize() else {
        return Ok(None);
    };
    let is_it = |entry: &Entry| {
        entry.used == Use::Attached
            && entry.layers.is_empty()
            && !entry.partial
            && entry.image.canonicalize().is_ok_and(|other| other == path)
    };
    Ok(Registry::of_user()?.entries()?.into_iter().find(is_it))
}

/// Prints the device and its volumes, in the three columns that programs expect, or as a property
/// list.
fn print(call: &Call, entry: &Entry) -> Outcome {
    let entities = entities(entry);
    if call.has("plist") {
        let entities = entities.iter().map(Entity::plist).collect();
        return call.plist(dictionary([("system-entities", Plist::Array(entities))]));
    }
    let line = |entity: &Entity<'_>| {
        let device = format!("/dev/{}", entity.device);
        let place = entity.place().map(Path::to_string_lossy);
        format!(
            "{device:20}\t{:30}\t{}\n",
            entity.hint,
            place.unwrap_or_default()
        )
    };
    call.print(&entities.iter().map(line).collect::<String>())
}
