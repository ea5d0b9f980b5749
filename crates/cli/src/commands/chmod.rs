//! `bandsaw chmod`: permissions, owner and group.

use std::ffi::OsString;
use std::sync::Arc;

use bandsaw::fs::{Attributes, Change, FileKind, FileSystemExt, FileSystemMut};
use bandsaw::progress::Progress;
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::mode;

/// Change permissions, owner and group
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw chmod 600 Docs.sparsebundle:/secret.txt
  bandsaw chmod -R 644 disk.img:/Letters               change files, but not folders
  bandsaw chmod --uid 501 --gid 20 755 disk.img:/bin")]
pub(crate) struct Chmod {
    /// The permissions, in octal
    #[arg(value_name = "MODE", value_parser = mode)]
    mode: u16,
    /// The objects to change, in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Change all files below folders
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Set the owner, as a number
    #[arg(long, value_name = "NUMBER")]
    uid: Option<u32>,
    /// Set the group, as a number
    #[arg(long, value_name = "NUMBER")]
    gid: Option<u32>,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Chmod {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let bar = Bar::new(output);
        change::report(&address, &self.opening, output, |fs| {
            bar.stage("change", 0);
            let change = |path: &String| {
                let found = change::resolve(fs, path)?;
                let objects = if self.recursive {
                    Some(self.below(fs, found, &bar)?)
                } else {
                    self.one(fs, &found)?;
                    None
                };
                Ok(ChangeItem {
                    objects,
                    ..ChangeItem::new(Action::PermissionsSet, path)
                })
            };
            paths.iter().map(change).collect()
        })
    }

    fn one(&self, fs: &Arc<dyn FileSystemMut>, found: &Attributes) -> Outcome {
        let change = Change {
            mode: Some(self.mode),
            uid: self.uid,
            gid: self.gid,
            ..Change::default()
        };
        Ok(fs.set_attributes(found.id, &change)?)
    }

    /// Changes all files below a folder and returns their number.
    fn below(
        &self,
        fs: &Arc<dyn FileSystemMut>,
        top: Attributes,
        bar: &dyn Progress,
    ) -> Outcome<u64> {
        let (mut ahead, mut changed) = (vec![top], 0);
        while let Some(found) = ahead.pop() {
            bar.check()?;
            match found.kind {
                FileKind::Folder => ahead.extend(
                    fs.entries(found.id)?
                        .into_iter()
                        .map(|entry| entry.attributes),
                ),
                _ => {
                    self.one(fs, &found)?;
                    changed += 1;
                }
            }
        }
        Ok(changed)
    }
}
