//! `bandsaw mkdir`: new folders in a volume.

use std::ffi::OsString;
use std::sync::Arc;

use bandsaw::fs::{FileKind, FileSystemMut, NewKind, NewNode};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::mode;

/// Make folders in a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw mkdir Docs.sparsebundle:/Letters
  bandsaw mkdir -p Docs.sparsebundle:/Letters/2026/May     with parent folders")]
pub(crate) struct Mkdir {
    /// The folders to make, in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Make parent folders, and accept existing folders
    #[arg(long, short)]
    parents: bool,
    /// Set the permissions of the folder, in octal
    #[arg(long, short, value_name = "MODE", value_parser = mode, default_value = "755")]
    mode: u16,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Mkdir {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        change::report(&address, &self.opening, output, |fs| {
            let mut made = Vec::new();
            paths
                .iter()
                .try_for_each(|path| self.make(fs, path, &mut made))?;
            Ok(made)
        })
    }

    fn make(&self, fs: &Arc<dyn FileSystemMut>, path: &str, made: &mut Vec<ChangeItem>) -> Outcome {
        if self.parents {
            for (end, _) in path.match_indices('/').skip(1) {
                self.make_one(fs, &path[..end], 0o755, made)?;
            }
        }
        self.make_one(fs, path, self.mode, made)
    }

    fn make_one(
        &self,
        fs: &Arc<dyn FileSystemMut>,
        path: &str,
        mode: u16,
        made: &mut Vec<ChangeItem>,
    ) -> Outcome {
        if self.parents
            && change::try_resolve(fs, path)?.is_some_and(|found| found.kind == FileKind::Folder)
        {
            return Ok(());
        }
        let (folder, name) = change::parent(fs, path).map_err(|failure| {
            failure.hint_if_missing(|| "use -p to create parent folders".to_owned())
        })?;
        fs.create(
            folder,
            &name,
            &NewNode {
                mode,
                ..NewNode::new(NewKind::Folder)
            },
        )
        .map_err(|error| error.named(path))?;
        made.push(ChangeItem::new(Action::Created, path));
        Ok(())
    }
}
