//! The Finder info of a file: its type, creator and flags.
//!
//! Source: Apple, `Finder.h` (FileInfo, FolderInfo, the flags of the Finder).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use bandsaw::platform::nodes;
use bandsaw::{Error, Kind};

use crate::failure::Outcome;

const NAME: &str = "com.apple.FinderInfo";
const LAYER: &str = "Finder info";
const LEN: usize = 32;

/// The extension of the name is not shown.
pub(super) const EXTENSION_HIDDEN: u16 = 0x0010;

/// The 32 bytes of the attribute; all zero if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FinderInfo([u8; LEN]);

impl FinderInfo {
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let failed = |error| Error::io(LAYER, "read", error).in_file(path);
        let file = File::open(path).map_err(failed)?;
        let all = nodes::xattrs(file.as_fd()).map_err(failed)?;
        let Some((_, value)) = all.into_iter().find(|(name, _)| name == NAME) else {
            return Ok(Self([0; LEN]));
        };
        let bytes = value.try_into().map_err(|_| {
            let message = format!("expected {LEN} bytes");
            Error::new(Kind::Invalid, LAYER, message).in_file(path)
        })?;
        Ok(Self(bytes))
    }

    pub(super) fn write(&self, path: &Path) -> Outcome {
        let failed = |error| Error::io(LAYER, "write", error).in_file(path);
        let file = File::open(path).map_err(failed)?;
        nodes::set_xattr(file.as_fd(), NAME, &self.0).map_err(failed)?;
        Ok(())
    }

    /// The type of a file, four characters of Mac OS.
    pub(super) fn kind(&self) -> [u8; 4] {
        [self.0[0], self.0[1], self.0[2], self.0[3]]
    }

    pub(super) fn set_kind(&mut self, kind: [u8; 4]) {
        self.0[..4].copy_from_slice(&kind);
    }

    /// The program to which a file belongs, likewise.
    pub(super) fn creator(&self) -> [u8; 4] {
        [self.0[4], self.0[5], self.0[6], self.0[7]]
    }

    pub(super) fn set_creator(&mut self, creator: [u8; 4]) {
        self.0[4..8].copy_from_slice(&creator);
    }

    pub(super) fn flags(&self) -> u16 {
        u16::from_be_bytes([self.0[8], self.0[9]])
    }

    pub(super) fn set_flag(&mut self, flag: u16, on: bool) {
        let flags = if on {
            self.flags() | flag
        } else {
            self.flags() & !flag
        };
        self.0[8..10].copy_from_slice(&flags.to_be_bytes());
    }
}
