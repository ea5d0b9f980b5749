//! `bandsaw resources remove`.

use bandsaw::container::udif::LICENCE_KINDS;
use bandsaw::ops::resources::{Selector, remove};
use bandsaw::{Error, Result};
use clap::Args;

use super::{From, To, change};
use crate::failure::Outcome;
use crate::output::Output;

/// Remove resources from a finished image
///
/// Chunks and their checksums stay as they are. The change is made to a copy that takes the place
/// of the image when it is whole.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw resources remove App.dmg --license
  bandsaw resources remove App.dmg TEXT:5001 styl:5001
  bandsaw resources remove App.dmg --license -o Free.dmg")]
pub(crate) struct Remove {
    #[command(flatten)]
    from: From,
    /// Which: kinds, or numbers of them as in TEXT:5000
    #[arg(value_name = "KIND[:ID]", required_unless_present = "license")]
    which: Vec<Selector>,
    /// Everything that makes a licence
    #[arg(long, visible_alias = "licence")]
    license: bool,
    #[command(flatten)]
    to: To,
}

impl Remove {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        change(&self.from, &self.to, output, |resources| -> Result<()> {
            remove(resources, &self.which)?;
            let before = resources.len();
            resources.retain(|resource| {
                !self.license || !LICENCE_KINDS.contains(&resource.kind.as_str())
            });
            if self.license && resources.len() == before {
                return Err(Error::not_found("resource", "a licence"));
            }
            Ok(())
        })
    }
}
