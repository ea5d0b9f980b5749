//! The record of a file: attributes, hashes, extents and extended attributes.

use std::collections::HashMap;

use bandsaw::device::BlockDevice;
use bandsaw::fs::{FileKind, FileSystem, Fork, NodeId};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use crate::hashing::{self, Hashes};
use crate::record::{ExtentRecord, FileRecord, VolumeRecord, XattrRecord};
use crate::walk::WalkedObject;

/// Maximum number of extents that are listed, so that a record has a limited length.
const MAX_EXTENTS: usize = 100_000;
/// Maximum number of files with several names whose hashes are kept.
const MAX_KEPT: usize = 1_000_000;

/// Describes the files of one volume.
#[derive(Debug)]
pub(crate) struct Describer<'a> {
    fs: &'a dyn FileSystem,
    volume: &'a VolumeRecord,
    /// Hashes of files with several names.
    known: HashMap<NodeId, Hashes>,
}

impl<'a> Describer<'a> {
    pub(crate) fn new(fs: &'a dyn FileSystem, volume: &'a VolumeRecord) -> Self {
        Self {
            fs,
            volume,
            known: HashMap::new(),
        }
    }

    /// Returns the record of an object, and the first reason why it is incomplete.
    pub(crate) fn describe(
        &mut self,
        walked: WalkedObject<'_>,
        progress: &dyn Progress,
    ) -> Result<(FileRecord, Option<Error>)> {
        let of = walked.attributes;
        let is_device = matches!(of.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let time = |time: Option<bandsaw::fs::Timestamp>| time.map(|time| time.to_string());
        let mut record = FileRecord {
            volume: self.volume.volume,
            path: walked.path.to_owned(),
            kind: of.kind.name().to_owned(),
            id: of.id.0,
            size: (of.kind != FileKind::Folder).then_some(of.size),
            resource_fork_size: of.resource_size,
            allocated: of.allocated,
            mode: format!("{:04o}", of.mode),
            uid: of.uid,
            gid: of.gid,
            links: of.links,
            flags: of.flags,
            device: is_device.then_some(of.device),
            created: time(of.created),
            modified: time(of.modified),
            changed: time(of.changed),
            accessed: time(of.accessed),
            backed_up: time(of.backed_up),
            repeated: walked.is_repeated,
            ..FileRecord::default()
        };
        let mut problems = Problems::default();
        problems.extend(walked.unlisted, &mut record)?;
        match of.kind {
            FileKind::File => {
                let done = self.contents(of.id, of.links, &mut record, progress);
                problems.extend(done.err(), &mut record)?;
            }
            FileKind::Symlink => match self.fs.read_link(of.id) {
                Ok(target) => record.target = Some(target),
                Err(error) => problems.extend(Some(error), &mut record)?,
            },
            _ => {}
        }
        let done = self.xattrs(of.id, &mut record, progress);
        problems.extend(done.err(), &mut record)?;
        let path = walked.path;
        Ok((record, problems.0.map(|error| error.named(path))))
    }

    fn contents(
        &mut self,
        id: NodeId,
        links: u32,
        record: &mut FileRecord,
        progress: &dyn Progress,
    ) -> Result<()> {
        let device = self.fs.open(id, Fork::Data)?;
        (record.extents, record.more_extents) = extents(&*device, self.volume.disk_offset)?;
        let hashes = match self.known.get(&id) {
            Some(known) => known.clone(),
            None => hashing::hashes(&*device, progress)?,
        };
        if links > 1 && self.known.len() < MAX_KEPT {
            self.known.insert(id, hashes.clone());
        }
        record.sha256 = Some(hashes.sha256);
        record.md5 = Some(hashes.md5);
        Ok(())
    }

    fn xattrs(&self, id: NodeId, record: &mut FileRecord, progress: &dyn Progress) -> Result<()> {
        let mut names = self.fs.xattrs(id)?;
        names.sort_unstable();
        for name in names {
            let Some(value) = self.fs.xattr(id, &name)? else {
                continue;
            };
            let sum = hashing::sha256(&*value, progress)?;
            record.xattrs.push(XattrRecord {
                name,
                size: value.info().len,
                sha256: hashing::hex(&sum),
            });
        }
        Ok(())
    }
}

/// The first problem of an object; the texts of all are in its record.
#[derive(Debug, Default)]
struct Problems(Option<Error>);

impl Problems {
    fn extend(&mut self, error: Option<Error>, record: &mut FileRecord) -> Result<()> {
        match error {
            Some(error) if error.kind() == Kind::Cancelled => return Err(error),
            Some(error) => {
                record.errors.push(error.to_string());
                self.0.get_or_insert(error);
            }
            None => {}
        }
        Ok(())
    }
}

/// Returns the extents of a file on the disk, as far as its bytes are stored there unchanged, and true
/// if there are more.
fn extents(device: &dyn BlockDevice, volume: u64) -> Result<(Vec<ExtentRecord>, bool)> {
    let len = device.info().len;
    let mut all: Vec<ExtentRecord> = Vec::new();
    let mut at = 0;
    while at < len {
        let Some(range) = device.file_range(at..len)? else {
            // A hole, or bytes that are encrypted or compressed.
            at += device.extent_at(at..len)?.len.max(1);
            continue;
        };
        let (disk_offset, size) = (volume.saturating_add(range.offset), range.len.max(1));
        let is_full = all.len() == MAX_EXTENTS;
        match all.last_mut() {
            Some(last)
                if last.offset + last.size == at && last.disk_offset + last.size == disk_offset =>
            {
                last.size += size;
            }
            _ if is_full => return Ok((all, true)),
            _ => all.push(ExtentRecord {
                offset: at,
                disk_offset,
                size,
            }),
        }
        at += size;
    }
    Ok((all, false))
}
