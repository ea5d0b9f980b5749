//! The devices of an attached image, as `attach`, `info` and `diskutil` list them.

use std::path::Path;

use bandsaw_registry::{Entry, Mount};
use plist::Value as Plist;

use super::plist_values::{dictionary, disk_hint, is_volume, text, volume_hint, yes};

/// The type of an APFS container on the disk that macOS makes for it.
pub(super) const CONTAINER: &str = "EF57347C-0000-11AA-AA11-00306543ECAC";
/// The type of a volume in an APFS container.
pub(super) const APFS_VOLUME: &str = "41504653-0000-11AA-AA11-00306543ECAC";

/// A device: the disk, a partition, an APFS container or a volume in one.
#[derive(Debug)]
pub(super) struct Entity<'a> {
    pub(super) device: &'a str,
    pub(super) hint: String,
    /// The type in the terms of the map.
    pub(super) unmapped: String,
    /// The volume that is mounted.
    pub(super) mount: Option<&'a Mount>,
}

/// Returns the devices of an image in the order of the disk, as macOS 27 lists them: after a
/// partition the volumes of its container, then the container.
pub(super) fn entities(entry: &Entry) -> Vec<Entity<'_>> {
    let whole = mounted(entry, &entry.device);
    let hint = match (whole, entry.scheme.as_deref()) {
        (Some(mount), None) => volume_hint(&mount.format),
        (_, scheme) => disk_hint(scheme),
    };
    let mut all = vec![Entity {
        device: &entry.device,
        hint: hint.to_owned(),
        unmapped: hint.to_owned(),
        mount: whole,
    }];
    all.extend(containers(entry, &entry.device));
    for part in &entry.partitions {
        all.push(Entity {
            device: &part.device,
            hint: part.kind.clone(),
            unmapped: part.type_id.clone(),
            mount: mounted(entry, &part.device),
        });
        all.extend(containers(entry, &part.device));
    }
    all
}

/// Returns the volume that is mounted from this device.
fn mounted<'a>(entry: &'a Entry, device: &str) -> Option<&'a Mount> {
    entry
        .mounts
        .iter()
        .find(|mount| mount.device == device && is_volume(&mount.format))
}

/// Returns the mounted volumes of the container in a device, and the container.
fn containers<'a>(entry: &'a Entry, store: &str) -> Vec<Entity<'a>> {
    let volumes = entry
        .mounts
        .iter()
        .filter(|mount| mount.container.is_some() && mount.store.as_deref() == Some(store));
    let mut all = Vec::new();
    let mut container = None;
    for mount in volumes {
        container = mount.container.as_deref();
        all.push(Entity {
            device: &mount.device,
            hint: APFS_VOLUME.to_owned(),
            unmapped: APFS_VOLUME.to_owned(),
            mount: Some(mount),
        });
    }
    all.extend(container.map(|device| Entity {
        device,
        hint: CONTAINER.to_owned(),
        unmapped: CONTAINER.to_owned(),
        mount: None,
    }));
    all
}

impl Entity<'_> {
    /// Returns the entry of `system-entities`.
    pub(super) fn plist(&self) -> Plist {
        let mut facts = vec![
            ("content-hint", text(self.hint.as_str())),
            ("dev-entry", text(format!("/dev/{}", self.device))),
            ("potentially-mountable", yes(self.mount.is_some())),
            ("unmapped-content-hint", text(self.unmapped.as_str())),
        ];
        if let Some(mount) = self.mount {
            facts.push(("mount-point", text(mount.folder.to_string_lossy())));
            facts.push(("volume-kind", text(kind(mount))));
        }
        dictionary(facts)
    }
}

impl<'a> Entity<'a> {
    /// Returns the mount point, if there is one.
    pub(super) fn place(&self) -> Option<&'a Path> {
        self.mount.map(|mount| &*mount.folder)
    }
}

/// Returns macOS's name of the file system of a volume.
pub(super) fn kind(mount: &Mount) -> &'static str {
    if mount.format.starts_with("HFS") {
        "hfs"
    } else if mount.format == "ISO 9660" {
        "cd9660"
    } else if mount.format == "UDF" {
        "udf"
    } else if mount.format.starts_with("FAT") {
        "msdos"
    } else if mount.format == "exFAT" {
        "exfat"
    } else if mount.format.starts_with("APFS") {
        "apfs"
    } else {
        "unknown"
    }
}
