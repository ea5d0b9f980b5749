//! Uploaded files that are written to a volume.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use bandsaw::device::AfterDiscard;
use bandsaw::fs::{
    ExistingTarget, FileKind, FileSystemExt, FileSystemMut, Fork, NewKind, NewNode, UnlinkedFile,
};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Reason, Result};

use super::ChangeWork;
use crate::LAYER;
use crate::open_images::VolumeId;
use crate::text;

/// Bytes that are written to a volume at a time.
const PIECE: usize = 1 << 20;

/// An uploaded file that is to be written to a volume.
#[derive(Debug, Clone)]
pub(crate) struct NewFile {
    pub(crate) volume: VolumeId,
    /// The folder in the volume.
    pub(crate) folder: String,
    pub(crate) name: String,
    /// True to replace an existing file.
    pub(crate) replaces: bool,
    /// The contents: a file without a name.
    pub(crate) contents: Arc<File>,
    /// Their length in bytes.
    pub(crate) len: u64,
}

impl ChangeWork {
    /// Writes a file to a volume. It has its name only when it is complete.
    pub(super) fn put(&self, file: &NewFile, progress: &dyn Progress) -> Result<()> {
        if file.volume.snapshot.is_some() {
            return Err(Error::new(Kind::ReadOnly, LAYER, "snapshots are read-only"));
        }
        let image = self.open_for_change(progress)?;
        let fs = image.file_system_mut_as(Some(&file.volume.selector()), self.keys())?;
        let done = put_in(&*fs, file, progress);
        let unmounted = fs.unmount();
        done?;
        unmounted
    }
}

fn put_in(fs: &dyn FileSystemMut, file: &NewFile, progress: &dyn Progress) -> Result<()> {
    let name = || format!("{}/{}", file.folder.trim_end_matches('/'), file.name);
    let folder = fs.resolve(&file.folder)?;
    if folder.kind != FileKind::Folder {
        return Err(Error::conflict(LAYER, "not a folder").named(file.folder.clone()));
    }
    match fs.lookup(folder.id, &file.name)? {
        Some(found) if found.kind == FileKind::Folder => {
            return Err(Error::conflict(LAYER, "is a folder and cannot be replaced").named(name()));
        }
        Some(_) if !file.replaces => {
            return Err(Error::conflict(LAYER, text::EXISTS)
                .because(Reason::Exists)
                .named(name()));
        }
        _ => {}
    }
    let new = NewNode {
        mode: 0o644,
        ..NewNode::new(NewKind::File)
    };
    let (nameless, id) = UnlinkedFile::new(fs, &new)?;
    let target = fs.open_mut(id, Fork::Data)?;
    let failed = |source: io::Error| Error::io(LAYER, "read an uploaded file", source);
    let mut source = &*file.contents;
    source.seek(SeekFrom::Start(0)).map_err(failed)?;
    progress.stage("write", file.len);
    target.set_len(file.len, AfterDiscard::Any)?;
    let (mut at, mut piece) = (0, vec![0; PIECE]);
    while at < file.len {
        progress.check()?;
        let length = usize::try_from(file.len - at).map_or(PIECE, |left| left.min(PIECE));
        let part = piece.get_mut(..length).unwrap_or_default();
        source.read_exact(part).map_err(failed)?;
        target.write_at(at, part)?;
        at += length as u64;
        progress.advance(length as u64);
    }
    let existing = if file.replaces {
        ExistingTarget::Replace
    } else {
        ExistingTarget::Error
    };
    nameless
        .link_unlinked(folder.id, &file.name, existing)
        .map_err(|error| error.named(name()))
}
