//! `bandsaw resources add`: resources added to a finished image.

use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::container::udif::{Resource, from_list, license};
use bandsaw::ops::resources::{OWN, add, add_license};
use clap::{ArgGroup, Args};

use super::{ImageArgs, OutputArgs, change};
use crate::failure::Outcome;
use crate::output::Output;

/// The limit for lists and licenses, which are shorter.
const MAX_BYTES: u64 = 64 << 20;

/// Add resources to a finished image
///
/// Chunks and their checksums are not changed. The changes are made to a copy, which replaces the
/// image when it is complete. Block tables and partition lists in an XML file are skipped: they
/// belong to the image that they came from.
#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["xml", "license"]))]
#[command(after_help = "\
Examples:
  bandsaw resources add App.dmg --license LICENSE.txt
  bandsaw resources add App.dmg --license LICENSE.rtf --replace -o Licensed.dmg
  bandsaw resources add App.dmg --xml license.xml --replace-all
  bandsaw resources add Signed.dmg --license LICENSE.txt --remove-signature")]
pub(crate) struct Add {
    #[command(flatten)]
    pub(super) from: ImageArgs,
    /// Add the resources of this XML list
    ///
    /// `hdiutil udifderez -xml` prints such a list.
    #[arg(long, value_name = "FILE")]
    pub(super) xml: Option<PathBuf>,
    /// Add a license that macOS shows before opening the image
    ///
    /// The file is UTF-8 text or RTF. The dialog is in English.
    #[arg(long, value_name = "FILE", alias = "licence", conflicts_with = "xml")]
    pub(super) license: Option<PathBuf>,
    /// Replace resources of the same kind and number
    ///
    /// A license replaces any other license.
    #[arg(long)]
    pub(super) replace: bool,
    /// Remove all other resources first
    ///
    /// Block tables and the partition list are kept.
    #[arg(long)]
    pub(super) replace_all: bool,
    #[command(flatten)]
    pub(super) to: OutputArgs,
}

impl Add {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let new = self.new_resources()?;
        let is_license = self.license.is_some();
        change(&self.from, &self.to, output, |resources| {
            if self.replace_all {
                resources.retain(|resource| OWN.contains(&resource.kind.as_str()));
            }
            let add = if is_license { add_license } else { add };
            add(resources, new, self.replace)
        })
    }

    fn new_resources(&self) -> Outcome<Vec<Resource>> {
        let (path, is_license) = match (&self.xml, &self.license) {
            (Some(path), _) => (path, false),
            (None, Some(path)) => (path, true),
            (None, None) => return Ok(Vec::new()),
        };
        let bytes = read(path)?;
        let made = if is_license {
            license(&bytes)
        } else {
            from_list(&bytes)
        };
        let made = made.map_err(|error| error.in_file(path))?;
        if made.is_empty() {
            let message = "no resources: expected a list as printed by hdiutil udifderez -xml";
            return Err(Error::invalid("resources", message).in_file(path).into());
        }
        Ok(made)
    }
}

/// Reads a file of the host that is to be a resource, of at most [`MAX_BYTES`].
pub(crate) fn read(path: &Path) -> Outcome<Vec<u8>> {
    let failed = |error| Error::io("resources", "read", error).in_file(path);
    if path.metadata().map_err(failed)?.len() > MAX_BYTES {
        return Err(
            Error::limit("resources", format!("longer than {MAX_BYTES} bytes"))
                .in_file(path)
                .into(),
        );
    }
    Ok(std::fs::read(path).map_err(failed)?)
}
