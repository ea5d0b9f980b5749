//! The comparison of every file of every date with its source.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw::fs::apfs::Container;
use bandsaw::fs::{Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use super::objects::{Failed, equal, read_all};
use super::{BackupSource, Conversion, LAYER, SUFFIX, either, no_key};

/// Compares all dates. An object that cannot be read in the source may be absent in the target.
pub(super) fn verify(
    source: &BackupSource<'_>,
    target: &Arc<Container>,
    report: &mut Conversion,
    progress: &dyn Progress,
) -> Result<()> {
    progress.stage("verify", 0);
    // Files and folders are compared once: a file of the target is never changed in place, and a
    // folder of the source is the same as long as it has the same number.
    let mut compared = HashSet::new();
    for date in &source.dates {
        let snapshot = target.open_volume(1, Some(&date.snapshot()), &no_key)?;
        let folder = snapshot.resolve(&format!("/{}{SUFFIX}", date.date()))?;
        let comparison = SnapshotComparison {
            from: &*source.fs,
            to: &snapshot,
            progress,
            compared: &mut compared,
            report: &mut *report,
        };
        comparison.run(date.path, date.folder, folder)?;
    }
    Ok(())
}

struct SnapshotComparison<'a> {
    from: &'a dyn FileSystem,
    to: &'a dyn FileSystem,
    progress: &'a dyn Progress,
    compared: &'a mut HashSet<(NodeId, NodeId)>,
    report: &'a mut Conversion,
}

impl SnapshotComparison<'_> {
    fn run(mut self, path: &str, folder: NodeId, target: Attributes) -> Result<()> {
        let mut ancestors = Ancestors::default();
        let mut ahead = vec![(path.to_owned(), folder, target, 0)];
        while let Some((path, folder, target, depth)) = ahead.pop() {
            self.progress.check()?;
            if ancestors.enter(folder, depth).is_err() {
                continue;
            }
            // Problems of reading the source were reported by the conversion.
            let Ok(found) = self.from.attributes(folder) else {
                continue;
            };
            self.object(&path, &found, Some(&target))?;
            let mut there = HashMap::new();
            self.to.list(target.id, &mut |entry| {
                there.insert(entry.name, entry.attributes);
                Ok(ControlFlow::Continue(()))
            })?;
            let mut entries = Vec::new();
            let listed = self.from.list(folder, &mut |entry| {
                entries.push(entry);
                Ok(ControlFlow::Continue(()))
            });
            for entry in entries {
                let (name, found) = (entry.name, entry.attributes);
                let other = there.remove(&name);
                let path = format!("{path}/{name}");
                match (found.kind, other) {
                    (FileKind::Folder, Some(other)) if other.kind == FileKind::Folder => {
                        if self.compared.insert((found.id, other.id)) {
                            ahead.push((path, found.id, other, depth + 1));
                        }
                    }
                    (_, other) => self.object(&path, &found, other.as_ref())?,
                }
            }
            match listed {
                Err(error) if error.kind() == Kind::Cancelled => return Err(error),
                // The rest of the folder cannot be read.
                Err(_) => {}
                Ok(()) => {
                    if let Some(name) = there.into_keys().next() {
                        return Err(differs("has one object more", format!("{path}/{name}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads an object of the source.
    fn check_readable(&self, found: &Attributes) -> Result<()> {
        match found.kind {
            FileKind::Symlink => drop(self.from.read_link(found.id)?),
            FileKind::File => read_all(&*self.from.open(found.id, Fork::Data)?, self.progress)?,
            _ => {}
        }
        for name in self.from.xattrs(found.id)? {
            if let Some(value) = self.from.xattr(found.id, &name)? {
                read_all(&*value, self.progress)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, path: &str, found: &Attributes, other: Option<&Attributes>) -> Result<()> {
        let is_file = found.kind != FileKind::Folder;
        let Some(other) = other else {
            // It was left out if it cannot be read.
            return match self.check_readable(found) {
                Ok(()) => Err(differs("lacks an object", path.to_owned())),
                Err(error) if error.kind() == Kind::Cancelled => Err(error),
                Err(_) => Ok(()),
            };
        };
        if is_file && !self.compared.insert((found.id, other.id)) {
            return Ok(());
        }
        self.report.compared += u64::from(is_file);
        match equal((self.from, found), (self.to, other), self.progress) {
            Ok(true) => Ok(()),
            Ok(false) => Err(differs("differs from its source", path.to_owned())),
            Err(Failed::Source(error)) if error.kind() != Kind::Cancelled => Ok(()),
            Err(failed) => Err(either(failed, path)),
        }
    }
}

fn differs(message: &'static str, path: String) -> Error {
    Error::new(
        Kind::Corrupt,
        LAYER,
        format!("the converted volume {message}"),
    )
    .named(path)
}
