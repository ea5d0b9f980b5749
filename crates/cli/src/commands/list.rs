//! `bandsaw list`: images in use.

use std::path::{Path, PathBuf};

use bandsaw::fs::Timestamp;
use bandsaw::size;
use bandsaw_registry::{Entry, Registry, Use};
use clap::Args;
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{Output, Style};
use crate::text::rfc3339;

/// List attached, mounted and served images
///
/// Entries of crashed processes are removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw list
  bandsaw list --json        for programs")]
pub(crate) struct List {}

/// The output of `--json`.
#[derive(Serialize)]
struct DevicesReport {
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    device: String,
    #[serde(serialize_with = "bandsaw_registry::as_text")]
    path: PathBuf,
    format: String,
    size: u64,
    /// `served`, `mounted` or `attached`.
    usage: Use,
    read_only: bool,
    encrypted: bool,
    process: u32,
    since: String,
    layers: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<String>,
    /// URIs, folders and kernel devices at which it is available.
    locations: Vec<String>,
    sockets: Vec<PathBuf>,
    mounts: Vec<MountInfo>,
    #[serde(skip)]
    at: Timestamp,
}

#[derive(Serialize)]
struct MountInfo {
    device: String,
    mount_point: PathBuf,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_system: Option<String>,
}

impl Device {
    fn new(entry: Entry) -> Self {
        let at = Timestamp::from_seconds(i64::try_from(entry.since).unwrap_or(i64::MAX));
        let format = entry.format;
        let mounts = entry.mounts.into_iter().map(|mount| MountInfo {
            device: mount.device,
            mount_point: mount.folder,
            name: mount.name,
            // A disk has the format of the image instead.
            file_system: Some(mount.format).filter(|other| *other != format),
        });
        let mounts = mounts.collect();
        Self {
            device: entry.device,
            path: entry.image,
            format,
            size: entry.size,
            usage: entry.used,
            read_only: entry.read_only,
            encrypted: entry.encrypted,
            process: entry.process,
            since: rfc3339(at),
            layers: entry.layers,
            scheme: entry.scheme.map(|scheme| scheme.to_lowercase()),
            locations: entry.places,
            sockets: entry.sockets,
            mounts,
            at,
        }
    }
}

impl List {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let report = DevicesReport {
            devices: Registry::of_user()?
                .entries()?
                .into_iter()
                .map(Device::new)
                .collect(),
        };
        output.result(&report, |out| {
            for entry in &report.devices {
                let shown = |path: &Path| output.name(&path.display().to_string());
                writeln!(out, "{}", output.paint(Style::Bold, &entry.device))?;
                let mut fact = |name: &str, value: &str| {
                    writeln!(
                        out,
                        "  {}{value}",
                        output.paint(Style::Dim, &format!("{name:11}"))
                    )
                };
                fact("image", &shown(&entry.path))?;
                entry
                    .layers
                    .iter()
                    .try_for_each(|layer| fact("layer", &shown(layer)))?;
                let access = if entry.read_only { ", read-only" } else { "" };
                let encrypted = if entry.encrypted { ", encrypted" } else { "" };
                fact(
                    "disk",
                    &format!(
                        "{}, {}{encrypted}{access}",
                        entry.format,
                        size::display(entry.size)
                    ),
                )?;
                let used = match entry.usage {
                    Use::Served => "served",
                    Use::Mounted => "mounted",
                    Use::Attached => "attached",
                };
                let since = entry.at.to_minute();
                fact(used, &format!("by process {} since {since}", entry.process))?;
                entry
                    .locations
                    .iter()
                    .try_for_each(|place| fact("at", &output.name(place)))?;
            }
            Ok(())
        })
    }
}
