//! Queries of everything in a volume, even a corrupt one.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::device::BlockDevice;
use crate::fs::{Attributes, Entry, FileKind, FileSystem, Fork, NodeId};
use crate::{Error, Result};

/// The results of a walk.
#[derive(Debug, Default)]
pub struct Walked {
    /// Number of entries of folders, each folder listed once.
    pub objects: u64,
    /// Bytes read of forks and attributes.
    pub bytes: u64,
    /// Number of queries that failed.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<Error>,
}

/// Lists folders, looks names up, reads forks (of long ones the beginning and the end), links and
/// attributes, until `max_objects` objects have been visited. Errors are counted, and the walk
/// continues.
pub fn walk(volume: &dyn FileSystem, max_objects: u64) -> Walked {
    let mut walk = Walk {
        volume,
        max_objects,
        met: Walked::default(),
    };
    let mut seen = HashSet::from([volume.root()]);
    let mut folders = vec![volume.root()];
    while let Some(folder) = folders.pop() {
        for entry in walk.entries(folder) {
            walk.object(folder, &entry);
            if entry.attributes.kind == FileKind::Folder && seen.insert(entry.attributes.id) {
                folders.push(entry.attributes.id);
            }
        }
    }
    walk.met
}

struct Walk<'a> {
    volume: &'a dyn FileSystem,
    max_objects: u64,
    met: Walked,
}

/// Maximum number of bytes read at each end of a stream.
const PIECE: u64 = 64 << 10;

impl Walk<'_> {
    fn count_error<T>(&mut self, answer: Result<T>) -> Option<T> {
        answer
            .map_err(|error| {
                self.met.errors += 1;
                self.met.first_error.get_or_insert(error);
            })
            .ok()
    }

    /// Returns the entries of a folder up to the first unreadable one.
    fn entries(&mut self, folder: NodeId) -> Vec<Entry> {
        let mut room = self.max_objects.saturating_sub(self.met.objects);
        let mut entries = Vec::new();
        let answer = self.volume.list(folder, &mut |entry| {
            if room == 0 {
                return Ok(ControlFlow::Break(()));
            }
            room -= 1;
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        });
        self.count_error(answer);
        self.met.objects += entries.len() as u64;
        entries
    }

    fn object(&mut self, folder: NodeId, entry: &Entry) {
        let Attributes { id, kind, .. } = entry.attributes;
        let found = self.volume.lookup(folder, &entry.name);
        self.count_error(found);
        let attributes = self.volume.attributes(id);
        self.count_error(attributes);
        match kind {
            FileKind::Symlink => {
                let target = self.volume.read_link(id);
                self.count_error(target);
            }
            FileKind::File => [Fork::Data, Fork::Resource].into_iter().for_each(|fork| {
                let stream = self.volume.open(id, fork);
                self.read(stream.map(Some));
            }),
            _ => {}
        }
        let names = self.volume.xattrs(id);
        for name in self.count_error(names).unwrap_or_default() {
            let value = self.volume.xattr(id, &name);
            self.read(value);
        }
    }

    fn read(&mut self, stream: Result<Option<std::sync::Arc<dyn BlockDevice>>>) {
        let Some(Some(stream)) = self.count_error(stream) else {
            return;
        };
        let len = stream.info().len;
        let mut piece = vec![0; len.min(PIECE) as usize];
        for offset in [0, len - piece.len() as u64] {
            let answer = stream.read_at(offset, &mut piece);
            self.count_error(answer);
            self.met.bytes += piece.len() as u64;
        }
        if len > 0 {
            let extent = stream.extent_at(0..len);
            self.count_error(extent);
        }
    }
}
