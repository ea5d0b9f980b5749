//! Operations on contents: writes anywhere, length changes, zeroing, through files that stay open;
//! attributes.

use std::sync::Arc;

use super::life::Life;
use super::world::{Body, Object, World, all_of};
use crate::Kind;
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use crate::fs::{ExistingTarget, FileSystem, FileSystemMut, FileSystemMutExt, Fork, NodeId};

const RESOURCE_FORK: &str = "com.apple.ResourceFork";
const FINDER_INFO: &str = "com.apple.FinderInfo";
/// Maximum number of open files.
const MAX_OPEN: usize = 6;

/// An open fork.
pub(super) struct Handle {
    id: u64,
    fork: usize,
    pub(super) writable: bool,
    pub(super) device: Arc<dyn BlockDevice>,
}

impl Handle {
    /// Returns true if the file exists only because it is open.
    pub(super) fn is_nameless(&self, world: &World) -> bool {
        world.get(self.id).places.is_empty()
    }

    /// Compares its contents with the model, even if the file is unlinked.
    pub(super) fn compare(&self, world: &World) {
        let Body::File(forks) = &world.get(self.id).body else {
            panic!("object {} is open and no file", self.id)
        };
        assert!(
            all_of(&*self.device) == *forks[self.fork],
            "fork {} of {}, which is open",
            self.fork,
            self.id
        );
    }
}

fn which(fork: usize) -> Fork {
    if fork == 0 {
        Fork::Data
    } else {
        Fork::Resource
    }
}

impl Life {
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.handles.iter().any(|handle| handle.id == id)
    }

    /// Drops files that were open and unlinked from the model.
    pub(super) fn close_unlinked(&mut self) {
        let world = &mut self.world;
        while let Some(id) = world.some(0, |object| object.is_file() && object.places.is_empty()) {
            world.forget_if_nameless(id);
        }
    }

    pub(super) fn open_or_close(&mut self) {
        if self.handles.len() < MAX_OPEN && !self.random.one_in(3) {
            let Some(id) = self.some(|object| object.is_file() && !object.places.is_empty()) else {
                return;
            };
            let fork = usize::from(self.random.one_in(4));
            let writable = self.random.one_in(2);
            let device = if writable {
                self.fs().open_mut(NodeId(id), which(fork))
            } else {
                self.fs().open(NodeId(id), which(fork))
            };
            self.handles.push(Handle {
                id,
                fork,
                writable,
                device: device.expect("a file opens"),
            });
        } else if !self.handles.is_empty() {
            let nth = self.below(self.handles.len() as u64) as usize;
            let handle = self.handles.swap_remove(nth);
            handle.compare(&self.world);
            drop(handle.device);
            if !self.is_open(handle.id) {
                self.world.forget_if_nameless(handle.id);
            }
        }
    }

    /// Returns a fork to be written, already open or not.
    fn writable(&mut self) -> Option<(u64, usize, Arc<dyn BlockDevice>)> {
        if self.random.one_in(3) && !self.handles.is_empty() {
            let nth = self.below(self.handles.len() as u64) as usize;
            let (id, fork) = (self.handles[nth].id, self.handles[nth].fork);
            return Some((
                id,
                fork,
                self.fs()
                    .open_mut(NodeId(id), which(fork))
                    .expect("an open file opens"),
            ));
        }
        let id = self.some(|object| object.is_file() && !object.places.is_empty())?;
        let fork = usize::from(self.random.one_in(6));
        Some((
            id,
            fork,
            self.fs()
                .open_mut(NodeId(id), which(fork))
                .expect("a file opens"),
        ))
    }

    fn contents(&mut self, id: u64, fork: usize) -> &mut Vec<u8> {
        match &mut self.world.get_mut(id).body {
            Body::File(forks) => Arc::make_mut(&mut forks[fork]),
            body => panic!("{body:?} is no file"),
        }
    }

    /// Returns a length of contents: mostly a few blocks, sometimes a fraction of the volume.
    fn length(&mut self) -> u64 {
        let block = u64::from(self.nature.block_size);
        match self.below(10) {
            0 => 0,
            1..=4 => self.below(2 * block),
            5..=8 => self.below((20 * block).min(self.nature.len / 16)),
            _ => self.below(self.nature.len / 12),
        }
    }

    pub(super) fn write(&mut self) {
        let Some((id, fork, device)) = self.writable() else {
            return;
        };
        let old = device.info().len;
        let (at, len) = (
            if self.random.one_in(2) {
                old
            } else {
                self.length()
            },
            self.length(),
        );
        // Limits the growth of files.
        let at = at.min(self.nature.len / 6);
        let end = at + len;
        if end > old {
            // A range that is overwritten next need not be zeroed.
            let leave = if at <= old {
                AfterDiscard::Any
            } else {
                AfterDiscard::Zeros
            };
            let grown = device.set_len(end, leave);
            let grown = self.done(grown, None).is_some();
            if grown {
                self.contents(id, fork).resize(end as usize, 0);
            }
            self.did(Some(id));
            if !grown {
                return;
            }
        }
        let bytes = self.random.bytes(len as usize);
        device
            .write_at(at, &bytes)
            .expect("a write within the file");
        self.contents(id, fork)[at as usize..end as usize].copy_from_slice(&bytes);
        self.did(Some(id));
    }

    pub(super) fn resize(&mut self) {
        let Some((id, fork, device)) = self.writable() else {
            return;
        };
        let (old, len) = (device.info().len, self.length());
        let resized = device.set_len(len, AfterDiscard::Zeros);
        if self.done(resized, None).is_some() {
            self.contents(id, fork).resize(len as usize, 0);
        }
        // Growing zeros the rest of the last block, which may have belonged to a longer file.
        self.did((len > old).then_some(id));
    }

    pub(super) fn punch(&mut self) {
        let Some((id, fork, device)) = self.writable() else {
            return;
        };
        let len = device.info().len;
        let start = self.below(len + 1);
        let end = start + self.below(len - start + 1);
        device
            .discard(start..end, AfterDiscard::Zeros)
            .expect("a discard within the file");
        self.contents(id, fork)[start as usize..end as usize].fill(0);
        self.did(Some(id));
        if self.random.one_in(2) && len > 0 {
            let at = self.below(len);
            let expected = self.contents(id, fork)[at as usize];
            assert_eq!(device.read_array::<1>(at).expect("a read"), [expected]);
        }
    }

    fn xattr_name(&mut self) -> String {
        match self.below(12) {
            0 => "com.apple.system.Security".to_owned(),
            1 => format!("{}é", "long ".repeat(20)),
            number => format!("user.{}", number % 5),
        }
    }

    pub(super) fn set_xattr(&mut self) {
        let Some(id) = self.some(|_| true) else {
            return;
        };
        if self.random.one_in(6) {
            return self.set_finder_info();
        }
        let name = self.xattr_name();
        let len = match self.below(8) {
            0 => 0,
            1..=3 => self.below(100),
            4 => [3801, 3802, 3803, 3804, 3805][self.below(5) as usize],
            5 => self.below(8000),
            6 => self.below(40_000),
            _ => self.length().min(self.nature.len / 24),
        };
        let value = self.random.bytes(len as usize);
        let there = self.world.get(id).xattrs.contains_key(&name);
        let existing = if self.random.one_in(6) {
            ExistingTarget::Error
        } else {
            ExistingTarget::Replace
        };
        let refused = (there && existing == ExistingTarget::Error).then_some(Kind::Conflict);
        let set = self.fs().set_xattr(
            NodeId(id),
            &name,
            &Memory::read_only(value.clone()),
            existing,
        );
        if self.done(set, refused).is_some() {
            self.world.get_mut(id).xattrs.insert(name, Arc::new(value));
        }
        self.did(None);
    }

    fn set_finder_info(&mut self) {
        let Some(id) = self.some(|object| object.is_file() || object.is_folder()) else {
            return;
        };
        let mut value = self.random.bytes(32);
        // Flags, and fields that the volume manages itself.
        value[8..10].fill(0);
        value[16..24].fill(0);
        value[28..].fill(0);
        let set = self.fs().set_xattr_bytes(NodeId(id), FINDER_INFO, &value);
        if self.done(set, None).is_some() {
            self.world
                .get_mut(id)
                .xattrs
                .insert(FINDER_INFO.to_owned(), Arc::new(value));
        }
        self.did(None);
    }

    pub(super) fn remove_xattr(&mut self) {
        let wanted = |object: &Object| !object.xattrs.is_empty();
        let Some(id) = (if self.random.one_in(8) {
            self.some(|_| true)
        } else {
            self.some(wanted)
        }) else {
            return;
        };
        let first = self.world.get(id).xattrs.keys().next().cloned();
        let name = if self.random.one_in(4) {
            self.xattr_name()
        } else {
            first.unwrap_or_else(|| "none".to_owned())
        };
        let missing = (!self.world.get(id).xattrs.contains_key(&name)).then_some(Kind::NotFound);
        let removed = self.fs().remove_xattr(NodeId(id), &name);
        if self.done(removed, missing).is_some() {
            self.world.get_mut(id).xattrs.remove(&name);
        }
        self.did(None);
    }

    /// Operates on the resource fork as an attribute.
    pub(super) fn resource_fork(&mut self) {
        let Some(id) = self.some(Object::is_file) else {
            return;
        };
        let old = self.contents(id, 1).len();
        if self.random.one_in(3) {
            let missing = (old == 0).then_some(Kind::NotFound);
            let removed = self.fs().remove_xattr(NodeId(id), RESOURCE_FORK);
            if self.done(removed, missing).is_some() {
                self.contents(id, 1).clear();
            }
            return self.did(None);
        }
        let len = self.length();
        let value = self.random.bytes(len as usize);
        let set = self.fs().set_xattr_bytes(NodeId(id), RESOURCE_FORK, &value);
        if self.done(set, None).is_some() {
            *self.contents(id, 1) = value;
        }
        self.did(Some(id));
    }
}
