//! Export of a folder of a volume as a tar archive: POSIX format, with pax headers for values that
//! do not fit in the old header.
//!
//! Extended attributes are named as in Linux (`user.NAME`), so that `tar --xattrs` restores them
//! there; those of macOS, including FinderInfo and resource forks, are restored when a volume is
//! created from the archive. BSD flags and creation dates are stored as libarchive does.

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{BUFFER, Exported, LAYER, about, is_fatal};
use crate::device::BlockDevice;
use crate::fs::{
    Ancestors, Attributes, Entry, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp,
};
use crate::ops::tar::write::{ArchiveWriter, NewKind, NewMember};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

/// Writes the entry at `path` of a volume to `out`: a folder as `./` with its contents, or a single
/// file under its own name.
///
/// If the contents of a file become unreadable after its header was written, the rest is filled
/// with zeros to match the length in the header, and the report has a problem.
pub fn to_tar(
    fs: &dyn FileSystem,
    path: &str,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<Exported> {
    let top = fs.resolve(path)?;
    let volume = fs.volume();
    progress.stage(
        "extract",
        if top.id == fs.root() {
            volume.total - volume.free
        } else {
            top.size
        },
    );
    let writer = ArchiveWriter::new(out);
    let mut archive = Archive {
        fs,
        progress,
        writer,
        report: Exported::default(),
        names: HashMap::new(),
        buffer: vec![0; BUFFER],
    };
    if top.kind == FileKind::Folder {
        archive.folder(path, top)?;
    } else {
        let path = path.trim_end_matches('/');
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        archive.put(name, path, &top)?;
    }
    archive.writer.finish()?;
    Ok(archive.report)
}

struct Archive<'a> {
    fs: &'a dyn FileSystem,
    progress: &'a dyn Progress,
    writer: ArchiveWriter<'a>,
    report: Exported,
    /// The first name of each file with hard links.
    names: HashMap<NodeId, String>,
    buffer: Vec<u8>,
}

/// A folder to be written, with its contents.
struct PendingFolder {
    attributes: Attributes,
    /// Path in the volume, for messages.
    path: String,
    /// Name in the archive.
    name: String,
    /// Number of folders that contain it.
    depth: usize,
}

impl Archive<'_> {
    /// Returns true if nothing more can be written after `error`.
    fn ends(&self, error: &Error) -> bool {
        is_fatal(error) || self.writer.has_failed()
    }

    fn folder(&mut self, path: &str, top: Attributes) -> Result<()> {
        self.member(".", &top, NewKind::Folder)?;
        let (mut ahead, mut ancestors) = (Vec::new(), Ancestors::default());
        let top = PendingFolder {
            attributes: top,
            path: path.trim_end_matches('/').to_owned(),
            name: ".".to_owned(),
            depth: 0,
        };
        self.contents(top, &mut ancestors, &mut ahead)?;
        while let Some(folder) = ahead.pop() {
            // Write the contents of a folder directly after it: tar programs set its date when the
            // next other entry follows.
            if self.put(&folder.name, &folder.path, &folder.attributes)? {
                self.contents(folder, &mut ancestors, &mut ahead)?;
            }
        }
        Ok(())
    }

    /// Writes the contents of a folder, except for its subfolders, which are added to `ahead`.
    fn contents(
        &mut self,
        folder: PendingFolder,
        ancestors: &mut Ancestors,
        ahead: &mut Vec<PendingFolder>,
    ) -> Result<()> {
        let (fs, first) = (self.fs, ahead.len());
        ancestors.enter(folder.attributes.id, folder.depth)?;
        let listed = fs.list(folder.attributes.id, &mut |Entry { name, attributes }| {
            let (path, name) = (
                format!("{}/{name}", folder.path),
                format!("{}/{name}", folder.name),
            );
            if attributes.kind != FileKind::Folder {
                self.put(&name, &path, &attributes)?;
            } else if let Err(error) = ancestors.check(attributes.id) {
                self.report.problem(about(error, &path, ""));
            } else {
                ahead.push(PendingFolder {
                    attributes,
                    path,
                    name,
                    depth: folder.depth + 1,
                });
            }
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Ok(()) => {}
            Err(error) if self.ends(&error) => return Err(error),
            // Entries listed before the error are kept.
            Err(error) => self.report.problem(about(error, &folder.path, "")),
        }
        ahead[first..].reverse();
        Ok(())
    }

    /// Writes one entry, named `name` in the archive and `path` in the volume. Returns true on
    /// success.
    fn put(&mut self, name: &str, path: &str, attributes: &Attributes) -> Result<bool> {
        self.progress.check()?;
        match self.write(name, attributes) {
            Ok(()) => Ok(true),
            Err(error) if self.ends(&error) => Err(error),
            Err(error) => {
                self.report.problem(about(error, path, ""));
                Ok(false)
            }
        }
    }

    fn write(&mut self, name: &str, attributes: &Attributes) -> Result<()> {
        let device = (attributes.device >> 24, attributes.device & 0xFF_FFFF);
        if attributes.links > 1 && attributes.kind != FileKind::Folder {
            if let Some(first) = self.names.get(&attributes.id).cloned() {
                self.report.files += 1;
                return self.member(name, attributes, NewKind::HardLink(&first));
            }
            self.names.insert(attributes.id, name.to_owned());
        }
        match attributes.kind {
            FileKind::File => return self.file(name, attributes),
            FileKind::Folder => {
                self.member(name, attributes, NewKind::Folder)?;
                self.report.folders += 1;
                return Ok(());
            }
            FileKind::Symlink => {
                let target = self.fs.read_link(attributes.id)?;
                self.member(name, attributes, NewKind::Symlink(&target))?;
                self.report.symlinks += 1;
                return Ok(());
            }
            FileKind::Fifo => self.member(name, attributes, NewKind::Fifo)?,
            FileKind::CharDevice => {
                self.member(name, attributes, NewKind::CharDevice(device.0, device.1))?
            }
            FileKind::BlockDevice => {
                self.member(name, attributes, NewKind::BlockDevice(device.0, device.1))?
            }
            FileKind::Socket => {
                return Err(Error::unsupported(
                    LAYER,
                    "tar archives cannot store sockets",
                ));
            }
        }
        self.report.files += 1;
        Ok(())
    }

    fn file(&mut self, name: &str, attributes: &Attributes) -> Result<()> {
        let contents = self.fs.open(attributes.id, Fork::Data)?;
        let len = contents.info().len;
        self.member(name, attributes, NewKind::File(len))?;
        let mut at = 0;
        let mut unreadable = None;
        while at < len {
            let now = (len - at).min(BUFFER as u64);
            let piece = &mut self.buffer[..to_usize(now)];
            if unreadable.is_none() {
                unreadable = contents.read_at(at, piece).err();
            }
            if unreadable.is_some() {
                piece.fill(0);
            }
            self.writer.append(piece)?;
            self.progress.advance(now);
            at += now;
            if at < len {
                self.progress.check()?;
            }
        }
        self.writer.pad()?;
        self.report.files += 1;
        self.report.bytes += len;
        match unreadable {
            Some(error) => {
                let message = "unreadable contents are replaced by zeros in the archive";
                Err(Error::new(error.kind(), LAYER, message).caused_by(error))
            }
            None => Ok(()),
        }
    }

    fn member(&mut self, name: &str, attributes: &Attributes, kind: NewKind<'_>) -> Result<()> {
        let mut xattrs: Vec<(String, Arc<dyn BlockDevice>)> = Vec::new();
        if !matches!(kind, NewKind::HardLink(_)) {
            for xattr in self.fs.xattrs(attributes.id)? {
                let value = self.fs.xattr(attributes.id, &xattr)?;
                xattrs.extend(value.map(|value| (format!("user.{xattr}"), value)));
            }
        }
        self.writer.member(&NewMember {
            path: name,
            kind,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            flags: attributes.flags,
            modified: attributes.modified.unwrap_or(Timestamp::from_seconds(0)),
            created: attributes.created,
            xattrs,
        })?;
        if let Some(error) = self.writer.take_unreadable() {
            let message = "an unreadable extended attribute is replaced by zeros in the archive";
            self.report.problem(
                Error::new(error.kind(), LAYER, message)
                    .named(name)
                    .caused_by(error),
            );
        }
        Ok(())
    }
}
