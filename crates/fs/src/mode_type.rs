//! The type bits of a mode, which HFS+ (`docs/formats/hfsplus.md` §7.5) and APFS store as POSIX has them.

use crate::FileKind;
use crate::source::{SourceKind, SourceNode};

/// Mask of the type bits.
pub(crate) const MASK: u16 = 0o170_000;
pub(crate) const FIFO: u16 = 0o010_000;
pub(crate) const CHAR: u16 = 0o020_000;
pub(crate) const FOLDER: u16 = 0o040_000;
pub(crate) const BLOCK: u16 = 0o060_000;
pub(crate) const FILE: u16 = 0o100_000;
pub(crate) const SYMLINK: u16 = 0o120_000;
pub(crate) const SOCKET: u16 = 0o140_000;
/// Types of objects other than folders.
pub(crate) const OF_FILES: [u16; 6] = [FIFO, CHAR, BLOCK, FILE, SYMLINK, SOCKET];

/// Returns the type bits of an object of this kind.
pub(crate) fn of(kind: FileKind) -> u16 {
    match kind {
        FileKind::Folder => FOLDER,
        FileKind::File => FILE,
        FileKind::Symlink => SYMLINK,
        FileKind::Fifo => FIFO,
        FileKind::Socket => SOCKET,
        FileKind::CharDevice => CHAR,
        FileKind::BlockDevice => BLOCK,
    }
}

/// Returns the kind of an object with this mode; an invalid type counts as a file.
pub(crate) fn kind_of(mode: u16) -> FileKind {
    match mode & MASK {
        FOLDER => FileKind::Folder,
        SYMLINK => FileKind::Symlink,
        FIFO => FileKind::Fifo,
        SOCKET => FileKind::Socket,
        CHAR => FileKind::CharDevice,
        BLOCK => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

/// Returns the mode of a node, with its type.
pub(crate) fn mode_of(source: &SourceNode) -> u16 {
    let kind = match source.kind {
        SourceKind::Folder => FileKind::Folder,
        SourceKind::File(_) | SourceKind::HardLink(_) => FileKind::File,
        SourceKind::Symlink(_) => FileKind::Symlink,
        SourceKind::Special(FileKind::Folder | FileKind::Symlink, _) => FileKind::File,
        SourceKind::Special(kind, _) => kind,
    };
    of(kind) | source.mode & 0o7777
}
