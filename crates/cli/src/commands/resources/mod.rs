//! `bandsaw resources`: data beside the disk of a compressed image.

pub(crate) mod add;
mod extract;
mod list;
mod remove;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::container::udif::Resource;
use bandsaw::device::Access;
use bandsaw::ops::resources::{EditOptions, edit};
use bandsaw::{Error, Kind, Reason, Result, open};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use super::segment::RewriteArgs;
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Show and change resources of an image, such as a license
///
/// UDIF images (UDRO, UDZO and so on) contain resources in the manner of classic Mac OS, each with
/// a kind of four characters and a number. LPic, STR#, TEXT or RTF, and styl form the license that
/// macOS shows before it opens an image; blkx are the block tables, which are never changed. Old
/// images with a binary resource fork can be read, and are written with an XML list.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw resources list App.dmg
  bandsaw resources add App.dmg --license LICENSE.txt
  bandsaw resources extract App.dmg -o license.xml     like hdiutil udifderez -xml
  bandsaw resources add New.dmg --xml license.xml      like hdiutil udifrez -xml
  bandsaw resources remove App.dmg --license")]
pub(crate) struct Resources {
    #[command(subcommand)]
    verb: ResourcesVerb,
}

#[derive(Debug, Subcommand)]
enum ResourcesVerb {
    List(list::List),
    Extract(extract::Extract),
    Add(add::Add),
    Remove(remove::Remove),
}

impl Resources {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self.verb {
            ResourcesVerb::List(verb) => verb.run(output),
            ResourcesVerb::Extract(verb) => verb.run(output),
            ResourcesVerb::Add(verb) => verb.run(output),
            ResourcesVerb::Remove(verb) => verb.run(output),
        }
    }
}

/// Replaces resources of the image by those of the list `xml`, or all if `all` is true. A signed image
/// is refused.
pub(crate) fn put(
    image: &str,
    xml: &str,
    all: bool,
    opening: OpenArgs,
    output: &Output,
) -> Outcome {
    let rewriting = RewriteArgs::default();
    add::Add {
        from: ImageArgs {
            image: image.into(),
            opening,
        },
        xml: Some(xml.into()),
        replace: !all,
        replace_all: all,
        to: OutputArgs {
            rewriting,
            ..OutputArgs::default()
        },
        ..add::Add::default()
    }
    .run(output)
}

/// Prints all resources of the image as a list.
pub(crate) fn print(image: &str, opening: OpenArgs, output: &Output) -> Outcome {
    extract::Extract {
        from: ImageArgs {
            image: image.into(),
            opening,
        },
        all: true,
        ..extract::Extract::default()
    }
    .run(output)
}

/// The image and the options for opening it.
#[derive(Debug, Default, Args)]
struct ImageArgs {
    /// The image; of a segmented one its first file
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    image: OsString,
    #[command(flatten)]
    opening: OpenArgs,
}

impl ImageArgs {
    /// Returns the resources of the image.
    fn read(&self, output: &Output) -> Outcome<Vec<Resource>> {
        let path = source::image(&self.image)?;
        let image = self.opening.read(&path, output)?;
        let udif = image.udif().ok_or_else(|| {
            let message = format!(
                "is a {}, which has no resources",
                image.format().description()
            );
            Error::unsupported("image", message).in_file(&path)
        })?;
        Ok(udif.resources().to_vec())
    }
}

/// The destination of a changed image.
#[derive(Debug, Default, Args)]
struct OutputArgs {
    /// Write the changed image here, and keep the old one
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    rewriting: RewriteArgs,
}

/// The output of `--json` for a change.
#[derive(Serialize)]
struct ResourceChangeReport {
    path: String,
    resources: Vec<ResourceInfo>,
}

/// A resource in the output of `--json`.
#[derive(Serialize)]
struct ResourceInfo {
    resource_type: String,
    id: String,
    name: String,
    attributes: String,
    size: u64,
}

impl ResourceInfo {
    fn new(resource: &Resource) -> Self {
        let Resource {
            kind,
            id,
            name,
            attributes,
            data,
            ..
        } = resource.clone();
        Self {
            resource_type: kind,
            id,
            name,
            attributes,
            size: data.len() as u64,
        }
    }
}

/// Changes the resources of an image, and prints the new list.
fn change(
    from: &ImageArgs,
    to: &OutputArgs,
    output: &Output,
    change: impl FnOnce(&mut Vec<Resource>) -> Result<()>,
) -> Outcome {
    let path = source::image(&from.image)?;
    let RewriteArgs {
        overwrite,
        remove_signature,
    } = to.rewriting;
    let options = EditOptions {
        target: to.output.as_deref(),
        overwrite,
        remove_signature,
    };
    let bar = Bar::new(output);
    let opening: open::OpenOptions<'_> = from.opening.options(Access::ReadWrite);
    let (mut after, mut exists) = (Vec::new(), false);
    let changed = edit(Path::new(&path), &options, &opening, &bar, |resources| {
        change(resources).inspect_err(|error| exists = error.reason() == Some(Reason::Exists))?;
        after = resources
            .iter()
            .filter(|resource| resource.kind != "blkx")
            .map(ResourceInfo::new)
            .collect();
        Ok(())
    });
    drop(bar);
    match changed {
        Err(error) if exists => {
            Err(error).advise(Kind::Conflict, || "use --replace to replace it".into())
        }
        Err(error) => Err(to.rewriting.advise(error)),
        Ok(()) => {
            let image = to
                .output
                .as_ref()
                .map_or_else(|| path.to_string(), bandsaw::address::shown);
            let changed = ResourceChangeReport {
                path: image,
                resources: after,
            };
            output.done(&changed, |out| list::write(&changed.resources, output, out))
        }
    }
}
