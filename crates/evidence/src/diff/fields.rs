//! Comparison of two objects.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use bandsaw::Result;
use bandsaw::device::{BlockDevice, ExtentKind};
use bandsaw::fs::{Attributes, FileKind, Fork, RESOURCE_FORK};

use super::{ComparedFolder, Field, Walk};
use crate::hashing::PIECE;

impl Walk<'_> {
    /// Returns the parts in which two objects differ. What cannot be read is a problem.
    pub(super) fn compare(
        &mut self,
        path: &str,
        old: &Attributes,
        new: &Attributes,
    ) -> Result<Vec<Field>> {
        let mut fields: Vec<_> = metadata(old, new).collect();
        let is_trusted = self.options.quick
            && (old.size, old.resource_size, old.modified)
                == (new.size, new.resource_size, new.modified);
        if old.kind == new.kind {
            if old.kind == FileKind::File && !is_trusted {
                let done = self.fork(Fork::Data, old, new);
                self.add_difference(done, Field::Contents, path, &mut fields)?;
                if old.resource_size > 0 || new.resource_size > 0 {
                    let done = self.fork(Fork::Resource, old, new);
                    self.add_difference(done, Field::ResourceFork, path, &mut fields)?;
                }
            }
            if old.kind == FileKind::Symlink {
                let target = |of: ComparedFolder<'_>, node: &Attributes| of.fs.read_link(node.id);
                let done =
                    target(self.old, old).and_then(|a| target(self.new, new).map(|b| a == b));
                self.add_difference(done, Field::Target, path, &mut fields)?;
            }
            if !self.options.ignored.contains(&Field::Xattrs) {
                let done = self.xattrs(old, new);
                self.add_difference(done, Field::Xattrs, path, &mut fields)?;
            }
        }
        fields.retain(|field| !self.options.ignored.contains(field));
        fields.sort_unstable();
        Ok(fields)
    }

    /// Adds a part that is not the same, or a problem.
    fn add_difference(
        &mut self,
        same: Result<bool>,
        field: Field,
        path: &str,
        fields: &mut Vec<Field>,
    ) -> Result<()> {
        match same {
            Ok(true) => Ok(()),
            Ok(false) => {
                fields.push(field);
                Ok(())
            }
            Err(error) => self.problem(error, path),
        }
    }

    fn fork(&self, fork: Fork, old: &Attributes, new: &Attributes) -> Result<bool> {
        let sizes = |of: &Attributes| match fork {
            Fork::Data => of.size,
            Fork::Resource => of.resource_size,
        };
        if sizes(old) != sizes(new) {
            return Ok(false);
        }
        let a = self.old.fs.open(old.id, fork)?;
        let b = self.new.fs.open(new.id, fork)?;
        self.same_bytes(&a, &b)
    }

    fn xattrs(&self, old: &Attributes, new: &Attributes) -> Result<bool> {
        let names = |of: ComparedFolder<'_>, node: &Attributes| -> Result<Vec<String>> {
            let mut names = of.fs.xattrs(node.id)?;
            // It is compared as a fork.
            names.retain(|name| name != RESOURCE_FORK);
            names.sort_unstable();
            Ok(names)
        };
        let (a, b) = (names(self.old, old)?, names(self.new, new)?);
        if a != b {
            return Ok(false);
        }
        for name in a {
            let a = self.old.fs.xattr(old.id, &name)?;
            let b = self.new.fs.xattr(new.id, &name)?;
            let is_same = match (a, b) {
                (Some(a), Some(b)) => self.same_bytes(&a, &b)?,
                (a, b) => a.is_none() && b.is_none(),
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares all bytes. Ranges that are stored in the same place of the same file, or nowhere, are not read.
    fn same_bytes(&self, a: &Arc<dyn BlockDevice>, b: &Arc<dyn BlockDevice>) -> Result<bool> {
        let len = a.info().len;
        if len != b.info().len {
            return Ok(false);
        }
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < len {
            self.progress.check()?;
            let skipped = match unread(&**a, &**b, at, len)? {
                0 => {
                    let length = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
                    x.resize(length, 0);
                    y.resize(length, 0);
                    a.read_at(at, &mut x)?;
                    b.read_at(at, &mut y)?;
                    if x != y {
                        return Ok(false);
                    }
                    length as u64
                }
                same => same,
            };
            self.progress.advance(skipped);
            at += skipped;
        }
        Ok(true)
    }
}

/// Returns the number of bytes at `at` that are certainly the same in both; 0 if they must be read.
fn unread(a: &dyn BlockDevice, b: &dyn BlockDevice, at: u64, len: u64) -> Result<u64> {
    let zeros = |of: &dyn BlockDevice| -> Result<u64> {
        let extent = of.extent_at(at..len)?;
        Ok(match extent.kind {
            ExtentKind::Hole | ExtentKind::Zero => extent.len,
            ExtentKind::Data => 0,
        })
    };
    let empty = zeros(a)?;
    let empty = if empty == 0 { 0 } else { empty.min(zeros(b)?) };
    if empty > 0 {
        return Ok(empty);
    }
    // The first range is returned before the second is asked for: both may be in one band.
    let place = |of: &dyn BlockDevice| -> Result<Option<(u64, u64, u64, u64)>> {
        let Some(range) = of.file_range(at..len)? else {
            return Ok(None);
        };
        let found = range.file.metadata();
        Ok(found
            .ok()
            .map(|file| (file.dev(), file.ino(), range.offset, range.len)))
    };
    let Some(first) = place(a)? else {
        return Ok(0);
    };
    Ok(match place(b)? {
        Some(second) if (first.0, first.1, first.2) == (second.0, second.1, second.2) => {
            first.3.min(second.3)
        }
        _ => 0,
    })
}

/// Returns the attributes that differ.
fn metadata(old: &Attributes, new: &Attributes) -> impl Iterator<Item = Field> + use<> {
    let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
    [
        (old.mode != new.mode, Field::Mode),
        (old.uid != new.uid, Field::Owner),
        (old.gid != new.gid, Field::Group),
        (old.flags != new.flags, Field::Flags),
        (is_device && old.device != new.device, Field::Device),
        (old.created != new.created, Field::Created),
        (old.modified != new.modified, Field::Modified),
        (old.changed != new.changed, Field::Changed),
        (old.accessed != new.accessed, Field::Accessed),
        (old.backed_up != new.backed_up, Field::BackedUp),
    ]
    .into_iter()
    .filter_map(|(differs, field)| differs.then_some(field))
}
