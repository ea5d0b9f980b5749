//! `bandsaw mv`: renaming and moving within a volume.

use std::ffi::OsString;

use bandsaw::Error;
use bandsaw::fs::{ExistingTarget, FileKind};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Rename or move files and folders within a volume
///
/// As with mv, the source keeps its name if TARGET is an existing folder, and otherwise becomes
/// TARGET. Each move is atomic.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw mv Docs.sparsebundle:/a.txt Docs.sparsebundle:/b.txt
  bandsaw mv --overwrite disk.img:/new disk.img:/old      replace an existing file
  bandsaw mv disk.img:/a disk.img:/b disk.img:/folder     move several files into a folder")]
pub(crate) struct Mv {
    /// Sources and target, in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true, num_args = 2..)]
    addresses: Vec<OsString>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Mv {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, mut paths) =
            change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let target = paths.pop().unwrap_or_default();
        let must_be_folder = self
            .addresses
            .last()
            .is_some_and(|target| change::names_folder(target));
        let existing = if self.overwrite {
            ExistingTarget::Replace
        } else {
            ExistingTarget::Error
        };
        change::report(&address, &self.opening, output, |fs| {
            let into =
                change::try_resolve(fs, &target)?.filter(|found| found.kind == FileKind::Folder);
            if into.is_none() && paths.len() > 1 {
                let message = "several objects can only be moved to an existing folder";
                return Err(Error::invalid("mv", message).named(target).into());
            }
            let mut changes = Vec::with_capacity(paths.len());
            for path in &paths {
                let (folder, name) = change::parent(fs, path)?;
                let found = change::resolve(fs, path)?;
                if must_be_folder && into.is_none() && found.kind != FileKind::Folder {
                    return Err(change::not_a_folder("mv", &target).into());
                }
                // The folder itself, named in another case, is not a target to move it into.
                let (to, new_path) = match &into {
                    Some(into) if into.id != found.id => {
                        ((into.id, name.clone()), format!("{target}/{name}"))
                    }
                    _ => (change::parent(fs, &target)?, target.clone()),
                };
                fs.rename((folder, &name), (to.0, &to.1), existing)
                    .map_err(|error| {
                        Failure::from(error.named(path)).hint_if_exists(self.overwrite)
                    })?;
                changes.push(ChangeItem {
                    source_path: Some(path.clone()),
                    ..ChangeItem::new(Action::Moved, &new_path)
                });
            }
            Ok(changes)
        })
    }
}
