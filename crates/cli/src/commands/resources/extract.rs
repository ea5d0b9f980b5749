//! `bandsaw resources extract`: resources written to a file.

use std::io::Write;
use std::path::PathBuf;

use bandsaw::Error;
use bandsaw::container::udif::{Resource, bare_list};
use bandsaw::ops::resources::{OWN, Selector};
use clap::Args;

use super::ImageArgs;
use crate::failure::{Failure, Outcome};
use crate::new_file::NewFile;
use crate::output::Output;

/// Write resources to a file or to standard output
///
/// The output is an XML list, as `hdiutil udifderez -xml` prints and `udifrez -xml` reads. The
/// default is all resources but the block tables (blkx) and the partition list (plst), which belong
/// to their image. --raw writes the bytes of one resource.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw resources extract App.dmg > license.xml
  bandsaw resources extract App.dmg LPic STR# TEXT -o license.xml
  bandsaw resources extract App.dmg TEXT:5000 --raw -o license.txt
  bandsaw resources extract App.dmg --all -o everything.xml")]
pub(crate) struct Extract {
    #[command(flatten)]
    pub(super) from: ImageArgs,
    /// Kinds to extract, or resources such as TEXT:5000
    #[arg(value_name = "KIND[:ID]")]
    pub(super) which: Vec<Selector>,
    /// Extract all resources, including block tables
    #[arg(long, conflicts_with_all = ["which", "raw"])]
    pub(super) all: bool,
    /// Write the bytes of one resource
    #[arg(long, requires = "which")]
    pub(super) raw: bool,
    /// Write to this file
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, visible_alias = "ov")]
    pub(super) overwrite: bool,
}

impl Extract {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        output.refuse_json("resources extract")?;
        let mut resources = self.from.read(output)?;
        if let Some(missing) = self
            .which
            .iter()
            .find(|which| !resources.iter().any(|resource| which.selects(resource)))
        {
            let id = missing.id.map_or_else(String::new, |id| format!(":{id}"));
            let image = std::path::Path::new(&self.from.image);
            let error = Error::not_found("resource", format!("{}{id}", missing.kind));
            let hint = format!(
                "run `bandsaw resources list {}` to list them",
                image.display()
            );
            return Err(Failure::from(error.in_file(image)).hint(hint));
        }
        resources.retain(|resource| match self.which.as_slice() {
            [] => self.all || !OWN.contains(&resource.kind.as_str()),
            which => which.iter().any(|which| which.selects(resource)),
        });
        let bytes = if self.raw {
            raw(resources)?
        } else {
            bare_list(&resources)?
        };
        match self.output {
            Some(path) => {
                let mut file = NewFile::create(&path, self.overwrite)?;
                file.write_all(&bytes)
                    .map_err(|error| Error::io("target", "write", error).in_file(&path))?;
                file.finish()?;
            }
            None => {
                let mut out = output.stdout();
                out.write_all(&bytes)?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

fn raw(resources: Vec<Resource>) -> Outcome<Vec<u8>> {
    let count = resources.len();
    match resources.into_iter().next() {
        Some(resource) if count == 1 => Ok(resource.data),
        _ => {
            let error = Error::invalid(
                "--raw",
                format!("--raw writes one resource, but {count} are selected"),
            );
            Err(Failure::from(error).hint("choose one by its number, as in TEXT:5000"))
        }
    }
}
