//! The walking thread of an export: it lists the volume, creates the folders, and records the hard
//! links and folder attributes to be set afterwards.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::batch::{BATCH, Batch, ExportShared};
use super::existing::failed;
use super::host_node::{check_name, identity};
use super::{Exported, LAYER, about, check_ancestors, is_fatal};
use crate::fs::{Attributes, Entry, FileKind, NodeId};
use crate::ops::host_folders::{Folders, ParentLookup};
use crate::size::narrow;
use crate::{Error, Result};

/// A folder of the host that was created, or already existed.
#[derive(Debug)]
struct MadeFolder {
    parent: u32,
    name: Box<str>,
    attributes: Attributes,
    /// Path in the volume.
    path: Arc<str>,
    /// True if its attributes are to be set.
    ours: bool,
}

#[derive(Debug)]
struct CreatedNames(Vec<MadeFolder>);

impl ParentLookup for CreatedNames {
    fn place(&self, number: u32) -> (u32, &str) {
        let folder = &self.0[number as usize];
        (folder.parent, &folder.name)
    }
}

/// A name of a file that may have several: the number of its folder, and the name there.
type LinkedName = (u32, Box<str>);

/// State of the walking thread.
pub(super) struct ExportWalk<'a, 'b> {
    shared: &'a ExportShared<'b>,
    open: Folders,
    folders: CreatedNames,
    /// The first name of each file with hard links.
    first_names: HashMap<NodeId, LinkedName>,
    /// Hard links to create: first name and further name.
    links: Vec<(LinkedName, LinkedName)>,
}

impl<'a, 'b> ExportWalk<'a, 'b> {
    /// Returns a walk that begins at `top`, which is at `path` of the volume and exported to
    /// `target`. `made` is true if `target` was just created.
    pub(super) fn new(
        shared: &'a ExportShared<'b>,
        path: &str,
        top: Attributes,
        target: OwnedFd,
        made: bool,
    ) -> Self {
        let ours = (made || shared.maker.resume) && top.kind == FileKind::Folder;
        let top = MadeFolder {
            parent: 0,
            name: Box::default(),
            attributes: top,
            path: path.into(),
            ours,
        };
        let (open, folders) = (Folders::below(target), CreatedNames(vec![top]));
        Self {
            shared,
            open,
            folders,
            first_names: HashMap::new(),
            links: Vec::new(),
        }
    }

    pub(super) fn single(
        &mut self,
        path: &str,
        name: Option<&str>,
        attributes: Attributes,
    ) -> Result<()> {
        let (folder, own_name) = path
            .trim_end_matches('/')
            .rsplit_once('/')
            .unwrap_or(("", path));
        let name = name.unwrap_or(own_name);
        let batch = Batch {
            folder: self
                .open
                .open(0, &self.folders)
                .map_err(|error| Error::io(LAYER, "open folder", error))?,
            path: folder.into(),
            entries: vec![Entry {
                name: name.to_owned(),
                attributes,
            }],
        };
        self.shared.push(batch, &mut Vec::new())
    }

    /// Creates all folders below `top`, which has the number 0, and queues their other entries.
    pub(super) fn walk(&mut self, top: NodeId) -> Result<()> {
        let mut buffer = Vec::new();
        let mut ahead = vec![(0, top)];
        while let Some((number, id)) = ahead.pop() {
            self.shared.queue.check()?;
            let first = ahead.len();
            match self.enter(number, id, &mut ahead, &mut buffer) {
                Ok(()) => {}
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(error, &self.folders.0[number as usize].path, "")),
            }
            ahead[first..].reverse();
        }
        Ok(())
    }

    /// Creates the folders in folder `number`, adds them to `ahead`, and queues its other entries.
    /// If listing fails, entries listed before the error are kept.
    fn enter(
        &mut self,
        number: u32,
        id: NodeId,
        ahead: &mut Vec<(u32, NodeId)>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let here = self
            .open
            .open(number, &self.folders)
            .map_err(|error| Error::io(LAYER, "open folder", error))?;
        let path = self.folders.0[number as usize].path.clone();
        let shared = self.shared;
        let mut batch = Vec::new();
        let listed = shared.maker.fs.list(id, &mut |entry| {
            shared.maker.progress.check()?;
            if entry.attributes.kind == FileKind::Folder {
                let (name, id) = (entry.name.clone(), entry.attributes.id);
                match self.make_folder(number, &here, entry) {
                    Ok(made) => ahead.push((made, id)),
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => self.problem(about(error, &path, &name)),
                }
            } else if !self.is_further_name(number, &entry) {
                batch.push(entry);
            }
            if batch.len() == BATCH {
                let entries = std::mem::take(&mut batch);
                shared.push(
                    Batch {
                        folder: here.clone(),
                        path: path.clone(),
                        entries,
                    },
                    buffer,
                )?;
            }
            Ok(ControlFlow::Continue(()))
        });
        if !batch.is_empty() {
            shared.push(
                Batch {
                    folder: here,
                    path,
                    entries: batch,
                },
                buffer,
            )?;
        }
        listed
    }

    fn make_folder(&mut self, parent: u32, here: &OwnedFd, entry: Entry) -> Result<u32> {
        let Entry { name, attributes } = entry;
        check_name(&name)?;
        check_ancestors(attributes.id, parent as usize, |number| {
            let above = &self.folders.0[number];
            (above.attributes.id, above.parent as usize)
        })?;
        let number = u32::try_from(self.folders.0.len())
            .map_err(|_| Error::limit(LAYER, "too many folders (limit 2^32)"))?;
        let ours = match rustix::fs::mkdirat(here, &*name, Mode::RWXU) {
            Ok(()) => true,
            // The existing entry must be a folder: the later open checks that, and follows no link.
            Err(Errno::EXIST) => {
                self.shared.maker.made_here.check(here.as_fd(), &name)?;
                self.shared.maker.overwrite || self.shared.maker.resume
            }
            Err(errno) => return Err(failed("create folder")(errno)),
        };
        self.shared.maker.made_here.add(here.as_fd(), &name);
        let path = format!(
            "{}/{name}",
            self.folders.0[parent as usize].path.trim_end_matches('/')
        )
        .into();
        self.folders.0.push(MadeFolder {
            parent,
            name: name.into(),
            attributes,
            path,
            ours,
        });
        Ok(number)
    }

    /// Returns true if `entry` is a further name of a file that was already listed. It is recorded
    /// as a hard link.
    fn is_further_name(&mut self, folder: u32, entry: &Entry) -> bool {
        if entry.attributes.links < 2 {
            return false;
        }
        let here = (folder, Box::from(&*entry.name));
        match self.first_names.get(&entry.attributes.id) {
            Some(first) => {
                self.links.push((first.clone(), here));
                true
            }
            None => {
                self.first_names.insert(entry.attributes.id, here);
                false
            }
        }
    }

    /// Creates the hard links, then sets the attributes of the folders.
    pub(super) fn finish(&mut self) -> Result<()> {
        for (first, further) in std::mem::take(&mut self.links) {
            match self.link(&first, &further) {
                Ok(()) => self.shared.report.add(Exported {
                    files: 1,
                    ..Exported::default()
                }),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(
                    error,
                    &self.folders.0[further.0 as usize].path,
                    &further.1,
                )),
            }
        }
        for number in (0..narrow::<u32>(self.folders.0.len())).rev() {
            let folder = &self.folders.0[number as usize];
            let path = folder.path.clone();
            match self.finish_folder(number, folder) {
                Ok(()) => self.shared.report.add(Exported {
                    folders: u64::from(number != 0),
                    ..Exported::default()
                }),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(error, &path, "")),
            }
        }
        Ok(())
    }

    fn link(&self, first: &LinkedName, further: &LinkedName) -> Result<()> {
        check_name(&further.1)?;
        let open = |name: &LinkedName| {
            self.open
                .open(name.0, &self.folders)
                .map_err(|error| Error::io(LAYER, "open folder", error))
        };
        let (from, to) = (open(first)?, open(further)?);
        if self.shared.maker.resume
            && let Some(found) = identity(to.as_fd(), &further.1)
            && identity(from.as_fd(), &first.1) == Some(found)
        {
            return Ok(());
        }
        let link = || rustix::fs::linkat(&from, &*first.1, &to, &*further.1, AtFlags::empty());
        self.shared.maker.create(to.as_fd(), &further.1, link)
    }

    fn finish_folder(&self, number: u32, folder: &MadeFolder) -> Result<()> {
        if !folder.ours {
            return Ok(());
        }
        let open = self
            .open
            .open(number, &self.folders)
            .map_err(|error| Error::io(LAYER, "open folder", error))?;
        let problem = &mut |error: Error| self.problem(about(error, &folder.path, ""));
        self.shared
            .maker
            .finish(open.as_fd(), &folder.attributes, problem)
    }

    fn problem(&self, error: Error) {
        let mut report = Exported::default();
        report.problem(error);
        self.shared.report.add(report);
    }
}
