//! `bandsaw resources add`.

use std::path::{Path, PathBuf};

use bandsaw::container::udif::{Resource, from_list, licence};
use bandsaw::ops::resources::{OWN, add, add_licence};
use bandsaw::{Error, Kind};
use clap::{ArgGroup, Args};

use super::{From, To, change};
use crate::failure::Outcome;
use crate::output::Output;

/// Lists and licences are shorter.
const MOST_BYTES: u64 = 64 << 20;

/// Put resources into a finished image
///
/// Chunks and their checksums stay as they are. The change is made to a copy that takes the place
/// of the image when it is whole. Block tables and lists of partitions in an XML file are passed
/// over: they belong to the image they came from.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["xml", "license"]))]
#[command(after_help = "\
Examples:
  bandsaw resources add App.dmg --license LICENSE.txt
  bandsaw resources add App.dmg --license LICENSE.rtf --replace -o Licensed.dmg
  bandsaw resources add App.dmg --xml licence.xml --replace-all
  bandsaw resources add Signed.dmg --license LICENSE.txt --remove-signature")]
pub(crate) struct Add {
    #[command(flatten)]
    from: From,
    /// The resources of this list, as hdiutil udifderez -xml prints them
    #[arg(long, value_name = "FILE")]
    xml: Option<PathBuf>,
    /// A licence that macOS shows before the image is opened: text in UTF-8, or RTF; the dialog is
    /// in English
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "licence",
        conflicts_with = "xml"
    )]
    license: Option<PathBuf>,
    /// Put them in the place of those of the same kind and number; of a licence, in the place of
    /// any other licence
    #[arg(long)]
    replace: bool,
    /// Remove all others first, but block tables and the list of partitions
    #[arg(long)]
    replace_all: bool,
    #[command(flatten)]
    to: To,
}

impl Add {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let new = self.new_resources()?;
        let is_licence = self.license.is_some();
        change(&self.from, &self.to, output, |resources| {
            if self.replace_all {
                resources.retain(|resource| OWN.contains(&resource.kind.as_str()));
            }
            let add = if is_licence { add_licence } else { add };
            add(resources, new, self.replace)
        })
    }

    fn new_resources(&self) -> Outcome<Vec<Resource>> {
        let (path, is_licence) = match (&self.xml, &self.license) {
            (Some(path), _) => (path, false),
            (None, Some(path)) => (path, true),
            (None, None) => return Ok(Vec::new()),
        };
        let bytes = read(path)?;
        let made = if is_licence {
            licence(&bytes)
        } else {
            from_list(&bytes)
        };
        let made = made.map_err(|error| error.in_file(path))?;
        if made.is_empty() {
            let message =
                "holds no resources: a list as hdiutil udifderez -xml prints it is expected";
            return Err(Error::new(Kind::Invalid, "resources", message)
                .in_file(path)
                .into());
        }
        Ok(made)
    }
}

pub(in crate::commands) fn read(path: &Path) -> Outcome<Vec<u8>> {
    let failed = |error| Error::io("resources", "cannot be read", error).in_file(path);
    if path.metadata().map_err(failed)?.len() > MOST_BYTES {
        return Err(Error::new(
            Kind::Limit,
            "resources",
            format!("is longer than {MOST_BYTES} bytes"),
        )
        .in_file(path)
        .into());
    }
    Ok(std::fs::read(path).map_err(failed)?)
}
