//! `bandsaw list`: images in use.

use std::path::Path;

use bandsaw::fs::Timestamp;
use bandsaw::size;
use bandsaw_registry::{Entry, Registry, Use};
use clap::Args;
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{Output, Style};
use crate::text::minute;

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
    schema: u32,
    devices: Vec<Entry>,
}

impl List {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let facts = DevicesReport {
            schema: 1,
            devices: Registry::of_user()?.entries()?,
        };
        output.facts(&facts, |out| {
            for entry in &facts.devices {
                let shown = |path: &Path| output.name(&path.display().to_string());
                writeln!(out, "{}", output.paint(Style::Bold, &entry.device))?;
                let mut fact = |name: &str, value: &str| {
                    writeln!(
                        out,
                        "  {}{value}",
                        output.paint(Style::Dim, &format!("{name:11}"))
                    )
                };
                fact("image", &shown(&entry.image))?;
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
                let used = match entry.used {
                    Use::Served => "served",
                    Use::Mounted => "mounted",
                    Use::Attached => "attached",
                };
                let since = minute(Timestamp::from_seconds(
                    i64::try_from(entry.since).unwrap_or(i64::MAX),
                ));
                fact(used, &format!("by process {} since {since}", entry.process))?;
                entry
                    .places
                    .iter()
                    .try_for_each(|place| fact("at", &output.name(place)))?;
            }
            Ok(())
        })
    }
}
