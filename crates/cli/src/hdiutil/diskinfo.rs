//! `diskutil info` and `diskutil list -plist`, for the devices of attached images.

use std::fmt::Write as _;

use bandsaw::Error;
use bandsaw_registry::{Entry, Mount, Part, Registry};
use plist::Value as Plist;

use super::call::Call;
use super::entities::{APFS_VOLUME, CONTAINER, Entity, entities, kind};
use super::info;
use super::plist_values::{dictionary, number, text, yes};
use super::size::SECTOR;
use crate::failure::Outcome;

/// A key of a property list and its value.
type Fact = (&'static str, Plist);

/// Prints the facts about one device, named by its device, its mount point or the name of a volume.
pub(super) fn run(call: &Call) -> Outcome {
    let what = call.image();
    let entries = Registry::of_user()?.entries()?;
    let name = what.strip_prefix("/dev/").unwrap_or(what);
    let folder = std::fs::canonicalize(what).unwrap_or_else(|_| what.into());
    let found = entries.iter().find_map(|entry| {
        let is_named = |entity: &Entity<'_>| {
            entity.device == name
                || entity
                    .mount
                    .is_some_and(|mount| mount.folder == folder || mount.name == what)
        };
        Some((entry, entities(entry).into_iter().find(is_named)?))
    });
    let (entry, entity) = found.ok_or_else(|| Error::not_found("diskutil info", what))?;
    let facts = facts(entry, &entity);
    if call.has("plist") {
        return call.plist(dictionary(facts));
    }
    let mut out = String::new();
    for (label, key) in LABELS {
        let Some((_, value)) = facts.iter().find(|(name, _)| *name == key) else {
            continue;
        };
        let value = match value {
            Plist::Boolean(true) => "Yes".to_owned(),
            Plist::Boolean(false) => "No".to_owned(),
            Plist::String(text) => text.clone(),
            Plist::Integer(bytes) => format!("{bytes} Bytes"),
            _ => continue,
        };
        let _ = writeln!(out, "   {:26}{value}", format!("{label}:"));
    }
    call.print(&out)
}

/// The lines of the text, and the keys of their values.
const LABELS: [(&str, &str); 14] = [
    ("Device Identifier", "DeviceIdentifier"),
    ("Device Node", "DeviceNode"),
    ("Whole", "WholeDisk"),
    ("Part of Whole", "ParentWholeDisk"),
    ("Volume Name", "VolumeName"),
    ("Mount Point", "MountPoint"),
    ("Partition Type", "Content"),
    ("File System Personality", "FilesystemName"),
    ("Type (Bundle)", "FilesystemType"),
    ("Protocol", "BusProtocol"),
    ("Volume UUID", "VolumeUUID"),
    ("Disk / Partition UUID", "DiskUUID"),
    ("Disk Size", "TotalSize"),
    ("Volume Read-Only", "ReadOnly"),
];

/// Returns the facts about a device.
fn facts(entry: &Entry, entity: &Entity<'_>) -> Vec<Fact> {
    let device = entity.device;
    let part = part(entry, device);
    let container = entry
        .mounts
        .iter()
        .find(|mount| mount.container.as_deref() == Some(device));
    let within = entity.mount.filter(|mount| mount.container.is_some());
    let store = entry
        .mounts
        .iter()
        .find(|mount| mount.container.is_some() && mount.store.as_deref() == Some(device));
    let size = match (part, container.or(entity.mount)) {
        (Some(part), _) => part.size,
        (None, Some(mount)) if within.is_some() || container.is_some() => mount.size,
        _ => entry.size,
    };
    let parent = within
        .and_then(|mount| mount.container.as_deref())
        .or(container.map(|_| device))
        .unwrap_or(&entry.device);
    let is_whole = device == entry.device || container.is_some();
    let is_apfs = within.is_some() || container.is_some();
    let writable = !entry.read_only && entity.mount.is_none_or(|mount| !mount.read_only);
    let mut facts = of_any_image();
    facts.extend([
        ("Bootable", yes(within.is_some() || store.is_some())),
        ("Content", text(entity.hint.as_str())),
        (
            "DeviceBlockSize",
            number(if is_apfs { APFS_BLOCK } else { SECTOR }),
        ),
        ("DeviceIdentifier", text(device)),
        ("DeviceNode", text(format!("/dev/{device}"))),
        ("IOKitSize", number(size)),
        ("MediaName", text(if is_whole { "Disk Image" } else { "" })),
        ("ParentWholeDisk", text(parent)),
        ("PartitionMapPartition", yes(part.is_some())),
        ("Size", number(size)),
        ("TotalSize", number(size)),
        ("WholeDisk", yes(is_whole)),
        ("Writable", yes(writable)),
        ("WritableMedia", yes(!entry.read_only)),
        ("WritableVolume", yes(writable && entity.mount.is_some())),
    ]);
    if let Some(part) = part {
        facts.push(("IORegistryEntryName", text(part.name.as_str())));
        facts.push(("PartitionMapPartitionOffset", number(part.start)));
        facts.extend(part.guid.as_deref().map(|guid| ("DiskUUID", text(guid))));
    }
    if is_whole {
        facts.extend([
            ("LowLevelFormatSupported", yes(false)),
            ("OS9DriversInstalled", yes(false)),
            ("VirtualOrPhysical", text("Virtual")),
            (
                "IORegistryEntryName",
                text(match (container, entry.read_only) {
                    (Some(_), _) => "AppleAPFSMedia",
                    (None, false) => "Apple read/write Media",
                    (None, true) => "Apple read-only Media",
                }),
            ),
        ]);
    }
    match entity.mount {
        Some(mount) => facts.extend(of_volume(mount, size)),
        None => facts.extend([
            ("FreeSpace", number(0)),
            ("GlobalPermissionsEnabled", yes(false)),
            ("MountPoint", text("")),
            ("SupportsGlobalPermissionsDisable", yes(false)),
            ("VolumeName", text("")),
            ("VolumeSize", number(0)),
        ]),
    }
    if let Some(mount) = within.or(container).or(store) {
        facts.push((
            "APFSContainerReference",
            text(mount.container.as_deref().unwrap_or_default()),
        ));
    }
    if let Some(mount) = within.or(container) {
        let store = dictionary([(
            "APFSPhysicalStore",
            text(mount.store.as_deref().unwrap_or_default()),
        )]);
        facts.push(("APFSPhysicalStores", Plist::Array(vec![store])));
    }
    if let Some(mount) = within {
        facts.extend(of_apfs(mount));
    }
    facts
}

/// Returns what every disk image on a Mac has in common.
fn of_any_image() -> Vec<Fact> {
    vec![
        ("BusProtocol", text("Disk Image")),
        ("CanBeMadeBootable", yes(false)),
        ("CanBeMadeBootableRequiresDestroy", yes(false)),
        ("DeviceTreePath", text("IODeviceTree:/")),
        ("Ejectable", yes(true)),
        ("EjectableMediaAutomaticUnderSoftwareControl", yes(true)),
        ("EjectableOnly", yes(true)),
        ("Internal", yes(false)),
        ("MediaType", text("Generic")),
        ("OSInternalMedia", yes(false)),
        ("RAIDMaster", yes(false)),
        ("RAIDSlice", yes(false)),
        ("Removable", yes(true)),
        ("RemovableMedia", yes(true)),
        ("RemovableMediaOrExternalDevice", yes(true)),
        (
            "SMARTDeviceSpecificKeysMayVaryNotGuaranteed",
            dictionary([]),
        ),
        ("SMARTStatus", text("Not Supported")),
        ("SystemImage", yes(false)),
    ]
}

/// The block size of the disk that macOS makes for an APFS container.
const APFS_BLOCK: u64 = 4096;

/// Returns the facts about a mounted volume. macOS gives an APFS volume no size of its own.
fn of_volume(mount: &Mount, size: u64) -> Vec<Fact> {
    let is_apfs = mount.container.is_some();
    let [system, shown] = names(mount);
    let mut facts = vec![
        ("FilesystemName", text(system)),
        ("FilesystemType", text(kind(mount))),
        ("FilesystemUserVisibleName", text(shown)),
        ("FreeSpace", number(if is_apfs { 0 } else { free(mount) })),
        ("GlobalPermissionsEnabled", yes(is_apfs)),
        ("MountPoint", text(mount.folder.to_string_lossy())),
        ("SupportsGlobalPermissionsDisable", yes(true)),
        ("VolumeAllocationBlockSize", number(mount.block_size.into())),
        ("VolumeName", text(mount.name.as_str())),
        ("VolumeSize", number(if is_apfs { 0 } else { size })),
    ];
    facts.extend(mount.uuid.as_deref().map(|uuid| ("VolumeUUID", text(uuid))));
    facts
}

/// Returns the facts about a volume in an APFS container.
fn of_apfs(mount: &Mount) -> Vec<Fact> {
    let free = free(mount);
    let mut facts = vec![
        ("APFSContainerFree", number(free)),
        ("APFSContainerSize", number(mount.size)),
        ("APFSSnapshot", yes(false)),
        ("CapacityInUse", number(mount.size.saturating_sub(free))),
        ("Encryption", yes(mount.encrypted)),
        ("EncryptionThisVolumeProper", yes(mount.encrypted)),
        ("FileVault", yes(mount.encrypted)),
        ("IORegistryEntryName", text(mount.name.as_str())),
        ("Locked", yes(false)),
        ("Sealed", text(if mount.sealed { "Yes" } else { "No" })),
    ];
    facts.extend(mount.uuid.as_deref().map(|uuid| ("DiskUUID", text(uuid))));
    facts
}

/// Returns macOS's names of the file system: for programs, and for people.
fn names(mount: &Mount) -> [&'static str; 2] {
    match &*mount.format {
        "ISO 9660" => return ["ISO 9660"; 2],
        "UDF" => return ["UDF", "Universal Disk Format (UDF)"],
        "HFS" => return ["HFS", "Mac OS Standard"],
        _ => {}
    }
    let is_hfs = mount.format.starts_with("HFS");
    match (is_hfs, mount.case_sensitive, mount.journaled) {
        (false, false, _) => ["APFS", "APFS"],
        (false, true, _) => ["Case-sensitive APFS", "APFS (Case-sensitive)"],
        (true, false, false) => ["HFS+", "Mac OS Extended"],
        (true, false, true) => ["Journaled HFS+", "Mac OS Extended (Journaled)"],
        (true, true, false) => ["Case-sensitive HFS+", "Mac OS Extended (Case-sensitive)"],
        (true, true, true) => [
            "Case-sensitive Journaled HFS+",
            "Mac OS Extended (Case-sensitive, Journaled)",
        ],
    }
}

/// Returns the free space of a mounted volume in bytes; 0 if it has just been unmounted.
#[cfg(target_os = "linux")]
fn free(mount: &Mount) -> u64 {
    rustix::fs::statvfs(&mount.folder).map_or(0, |stat| stat.f_bfree.saturating_mul(stat.f_frsize))
}

/// Images are mounted on Linux only.
#[cfg(not(target_os = "linux"))]
fn free(_mount: &Mount) -> u64 {
    0
}

fn part<'a>(entry: &'a Entry, device: &str) -> Option<&'a Part> {
    entry.partitions.iter().find(|part| part.device == device)
}

/// `diskutil list`.
pub(super) fn list(call: &Call) -> Outcome {
    if !call.has("plist") {
        return info::run(call);
    }
    let what = call.image().trim_start_matches("/dev/");
    let mut entries = Registry::of_user()?.entries()?;
    entries.retain(|entry| what.is_empty() || entry.devices().any(|device| device == what));
    if entries.is_empty() && !what.is_empty() {
        return Err(Error::not_found("diskutil list", what).into());
    }
    let (mut all, mut disks, mut volumes, mut whole) = (vec![], vec![], vec![], vec![]);
    for entry in &entries {
        let mut entities = entities(entry);
        entities.sort_by_key(|entity| numbers(entity.device));
        for entity in entities {
            all.push(text(entity.device));
            volumes.extend(entity.mount.map(|mount| text(mount.name.as_str())));
            if entity.device == entry.device || entity.hint == CONTAINER {
                whole.push(text(entity.device));
                disks.push(disk(entry, &entity));
            }
        }
    }
    call.plist(dictionary([
        ("AllDisks", Plist::Array(all)),
        ("AllDisksAndPartitions", Plist::Array(disks)),
        ("VolumesFromDisks", Plist::Array(volumes)),
        ("WholeDisks", Plist::Array(whole)),
    ]))
}

/// Returns the numbers in a device name, to sort by.
fn numbers(device: &str) -> Vec<u32> {
    let numbers = device.trim_start_matches("disk").split('s');
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Returns the entry of a disk, or of the disk of an APFS container.
fn disk(entry: &Entry, disk: &Entity<'_>) -> Plist {
    let entities = entities(entry);
    let is_container = disk.hint == CONTAINER;
    let within = |mount: &Mount| mount.container.as_deref() == Some(disk.device);
    let inside = entities.iter().filter(|entity| {
        if is_container {
            entity.hint == APFS_VOLUME && entity.mount.is_some_and(within)
        } else {
            part(entry, entity.device).is_some()
        }
    });
    let first = entry.mounts.iter().find(|mount| within(mount));
    let size = first.map_or(entry.size, |mount| mount.size);
    let inside = inside.map(|entity| inner(entry, entity)).collect();
    let mut facts = vec![
        ("Content", text(disk.hint.as_str())),
        ("DeviceIdentifier", text(disk.device)),
        ("OSInternal", yes(false)),
        ("Size", number(size)),
    ];
    if is_container {
        let store = first
            .and_then(|mount| mount.store.as_deref())
            .unwrap_or_default();
        let store = dictionary([("DeviceIdentifier", text(store))]);
        facts.push(("APFSPhysicalStores", Plist::Array(vec![store])));
        facts.push(("APFSVolumes", Plist::Array(inside)));
        facts.push(("Partitions", Plist::Array(Vec::new())));
    } else {
        facts.push(("Partitions", Plist::Array(inside)));
        facts.extend(disk.mount.into_iter().flat_map(named));
    }
    dictionary(facts)
}

/// Returns the entry of a partition or an APFS volume.
fn inner(entry: &Entry, entity: &Entity<'_>) -> Plist {
    let part = part(entry, entity.device);
    let mut facts = vec![("DeviceIdentifier", text(entity.device))];
    if let Some(part) = part {
        facts.push(("Content", text(entity.hint.as_str())));
        facts.push(("Size", number(part.size)));
        facts.extend(part.guid.as_deref().map(|guid| ("DiskUUID", text(guid))));
    } else if let Some(mount) = entity.mount {
        let used = mount.size.saturating_sub(free(mount));
        facts.push(("CapacityInUse", number(used)));
        facts.push(("OSInternal", yes(false)));
        facts.push(("Size", number(mount.size)));
        facts.extend(mount.uuid.as_deref().map(|uuid| ("DiskUUID", text(uuid))));
    }
    facts.extend(entity.mount.into_iter().flat_map(named));
    dictionary(facts)
}

/// Returns the name, the UUID and the mount point of a volume.
fn named(mount: &Mount) -> Vec<Fact> {
    let mut facts = vec![
        ("MountPoint", text(mount.folder.to_string_lossy())),
        ("VolumeName", text(mount.name.as_str())),
    ];
    facts.extend(mount.uuid.as_deref().map(|uuid| ("VolumeUUID", text(uuid))));
    facts
}
