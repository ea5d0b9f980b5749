//! `bandsaw mv`: renaming and moving within a volume.

use std::ffi::OsString;

use bandsaw::fs::ExistingTarget;
use bandsaw::ops::rename::{MoveTarget, move_all};
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
        let is_folder = self
            .addresses
            .last()
            .is_some_and(|target| change::names_folder(target));
        let target = MoveTarget {
            path: &target,
            is_folder,
            existing: match self.overwrite {
                true => ExistingTarget::Replace,
                false => ExistingTarget::Error,
            },
        };
        change::report(&address, &self.opening, output, |fs| {
            let moved = move_all(&**fs, &paths, &target)
                .map_err(|error| Failure::from(error).hint_if_exists(self.overwrite))?;
            let changes = paths.iter().zip(&moved);
            let changes = changes.map(|(path, new_path)| ChangeItem {
                source_path: Some(path.clone()),
                ..ChangeItem::new(Action::Moved, new_path)
            });
            Ok(changes.collect())
        })
    }
}
