//! `bandsaw resources list`: the resources of an image.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use super::{ImageArgs, ResourceInfo};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::Table;

/// List the resources of an image
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw resources list App.dmg
  bandsaw resources list --all --json App.dmg")]
pub(crate) struct List {
    #[command(flatten)]
    from: ImageArgs,
    /// Include the block tables (blkx)
    #[arg(long)]
    all: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ResourcesReport {
    path: String,
    resources: Vec<ResourceInfo>,
}

impl List {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let resources = self.from.read(output)?;
        let shown = resources
            .iter()
            .filter(|resource| self.all || resource.kind != "blkx");
        let listed = ResourcesReport {
            path: self.from.image.to_string_lossy().into_owned(),
            resources: shown.map(ResourceInfo::new).collect(),
        };
        output.result(&listed, |out| write(&listed.resources, output, out))
    }
}

/// Prints a line for each resource: kind, number, size, name.
pub(super) fn write(
    resources: &[ResourceInfo],
    output: &Output,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new([false, true, true, false]);
    for resource in resources {
        let name = output.name(&resource.name);
        table.row([
            output.name(&resource.resource_type),
            resource.id.clone(),
            resource.size.to_string(),
            name,
        ]);
    }
    write!(out, "{}", table.lines(""))
}
