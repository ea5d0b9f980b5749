//! `bandsaw ln`: hard links and symbolic links.

use std::ffi::OsString;

use bandsaw::Kind;
use bandsaw::fs::{NewKind, NewNode};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;

/// Make a hard link or symbolic link in a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw ln Docs.sparsebundle:/a.txt Docs.sparsebundle:/b.txt     a hard link
  bandsaw ln -s ../a.txt Docs.sparsebundle:/Letters/a.txt          a symbolic link")]
pub(crate) struct Ln {
    /// The file to link to: IMAGE[:VOLUME]:/PATH
    ///
    /// With -s this is the text of the link.
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    target: OsString,
    /// The new name, in the same volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Make a symbolic link
    #[arg(long, short)]
    symbolic: bool,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Ln {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        if self.symbolic {
            let (address, paths) = change::addresses([self.address.as_os_str()])?;
            let target = self
                .target
                .to_str()
                .ok_or_else(|| Failure::usage("TARGET", "is not UTF-8"))?;
            return change::report(&address, &self.opening, output, |fs| {
                let (folder, name) = change::parent(fs, &paths[0])?;
                fs.create(
                    folder,
                    &name,
                    &NewNode::new(NewKind::Symlink(target.to_owned())),
                )?;
                Ok(vec![ChangeItem {
                    target: Some(target.to_owned()),
                    ..ChangeItem::new(Action::Created, &paths[0])
                }])
            });
        }
        let (address, paths) =
            change::addresses([self.target.as_os_str(), self.address.as_os_str()])?;
        change::report(&address, &self.opening, output, |fs| {
            let found = change::resolve(fs, &paths[0])?;
            let (folder, name) = change::parent(fs, &paths[1])?;
            fs.link(found.id, folder, &name)
                .advise(Kind::Unsupported, || {
                    "use -s to create a symbolic link".to_owned()
                })?;
            Ok(vec![ChangeItem {
                source_path: Some(paths[0].clone()),
                ..ChangeItem::new(Action::Linked, &paths[1])
            }])
        })
    }
}
