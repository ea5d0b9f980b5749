//! `bandsaw resources remove`: resources removed from a finished image.

use bandsaw::container::udif::LICENSE_KINDS;
use bandsaw::ops::resources::{Selector, remove};
use bandsaw::{Error, Result};
use clap::Args;

use super::{ImageArgs, OutputArgs, change};
use crate::failure::Outcome;
use crate::output::Output;

/// Remove resources from a finished image
///
/// Chunks and their checksums are not changed. The changes are made to a copy, which replaces the
/// image when it is complete.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw resources remove App.dmg --license
  bandsaw resources remove App.dmg TEXT:5001 styl:5001
  bandsaw resources remove App.dmg --license -o Free.dmg")]
pub(crate) struct Remove {
    #[command(flatten)]
    from: ImageArgs,
    /// Kinds to remove, or resources such as TEXT:5000
    #[arg(value_name = "KIND[:ID]", required_unless_present = "license")]
    which: Vec<Selector>,
    /// Remove all resources of the license
    #[arg(long, alias = "licence")]
    license: bool,
    #[command(flatten)]
    to: OutputArgs,
}

impl Remove {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        change(&self.from, &self.to, output, |resources| -> Result<()> {
            remove(resources, &self.which)?;
            let before = resources.len();
            resources.retain(|resource| {
                !self.license || !LICENSE_KINDS.contains(&resource.kind.as_str())
            });
            if self.license && resources.len() == before {
                return Err(Error::not_found("resource", "a license"));
            }
            Ok(())
        })
    }
}
