//! `bandsaw rm`: removal of files and folders.

use std::ffi::OsString;
use std::sync::Arc;

use bandsaw::fs::{FileKind, FileSystemExt, FileSystemMut};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::OpenArgs;

/// Remove files and folders from a volume
///
/// Of a file with hard links only the given name is removed. Folders that are not empty need
/// --recursive.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw rm Docs.sparsebundle:/Letters/a.txt Docs.sparsebundle:/Letters/b.txt
  bandsaw rm -r Docs.sparsebundle:/Letters     a folder with its contents")]
pub(crate) struct Rm {
    /// The objects to remove, in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Remove folders and their contents
    #[arg(long, short, short_alias = 'R')]
    recursive: bool,
    /// Ignore files that do not exist
    #[arg(long, short)]
    force: bool,
    /// Change a volume even if a quick check finds damage
    #[arg(long)]
    force_damaged: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Rm {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let bar = Bar::new(output);
        let changing = ChangeArgs::new(&self.opening, self.force_damaged);
        change::report(&address, &changing, output, |fs| {
            bar.stage("remove", 0);
            let mut removed = Vec::with_capacity(paths.len());
            for path in &paths {
                removed.extend(self.remove(fs, path, &bar)?);
            }
            Ok(removed)
        })
    }

    /// Removes an object; `None` if it does not exist and that is no error.
    fn remove(
        &self,
        fs: &Arc<dyn FileSystemMut>,
        path: &str,
        bar: &Bar,
    ) -> Outcome<Option<ChangeItem>> {
        let (folder, name) = match change::parent(fs, path) {
            Err(failure) if self.force && failure.kind() == Kind::NotFound => return Ok(None),
            found => found?,
        };
        let Some(found) = fs.lookup(folder, &name)? else {
            return if self.force {
                Ok(None)
            } else {
                Err(Error::not_found("path", path)
                    .because(Reason::NoSuchPath)
                    .into())
            };
        };
        if self.recursive && found.kind == FileKind::Folder {
            let progress: &dyn Progress = bar;
            // The deepest folders go first. Folders are listed again after each step, so that only
            // one path is kept in memory.
            let (mut ahead, mut objects) = (vec![(folder, name, found.id)], 0);
            while let Some((folder, name, id)) = ahead.last().cloned() {
                progress.check()?;
                let mut below = None;
                for entry in fs.entries(id)? {
                    progress.check()?;
                    match entry.attributes.kind {
                        FileKind::Folder => below = Some((id, entry.name, entry.attributes.id)),
                        _ => {
                            fs.remove(id, &entry.name)?;
                            objects += 1;
                        }
                    }
                    if below.is_some() {
                        break;
                    }
                }
                match below {
                    Some(below) => ahead.push(below),
                    None => {
                        fs.remove(folder, &name)?;
                        objects += 1;
                        ahead.pop();
                    }
                }
            }
            return Ok(Some(ChangeItem {
                objects: Some(objects),
                ..ChangeItem::new(Action::Removed, path)
            }));
        }
        let removed = fs.remove(folder, &name).map_err(|error| error.named(path));
        removed.advise(Kind::Conflict, || {
            "use -r to remove folders and their contents".to_owned()
        })?;
        Ok(Some(ChangeItem::new(Action::Removed, path)))
    }
}
