//! The Finder info of a file or folder: type, creator and flags.
//!
//! Source: Apple, `Finder.h` (FileInfo, FolderInfo, the flags of the Finder).

use zerocopy::{transmute, transmute_ref};

use super::layout::FinderInfoRaw;

/// The value of the attribute [`NAME`](Self::NAME); all zero if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinderInfo(FinderInfoRaw);

impl FinderInfo {
    /// The name of the extended attribute.
    pub const NAME: &str = "com.apple.FinderInfo";
    /// Its length in bytes.
    pub const LEN: usize = size_of::<FinderInfoRaw>();
    /// The flag of a name that is shown without its extension.
    pub const EXTENSION_HIDDEN: u16 = 0x0010;
    /// The flag of a folder or volume with an icon of its own.
    pub const HAS_CUSTOM_ICON: u16 = 0x0400;
    /// The flag of a name that is not shown.
    pub const INVISIBLE: u16 = 0x4000;

    /// Creates it from the bytes of the attribute.
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(transmute!(bytes))
    }

    /// Returns the bytes of the attribute.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        transmute_ref!(&self.0)
    }

    /// Returns the type of a file, four characters of Mac OS.
    pub fn kind(&self) -> [u8; 4] {
        self.0.kind
    }

    /// Sets the type of a file.
    pub fn set_kind(&mut self, kind: [u8; 4]) {
        self.0.kind = kind;
    }

    /// Returns the creator of a file: four characters that name the program to which it belongs.
    pub fn creator(&self) -> [u8; 4] {
        self.0.creator
    }

    /// Sets the creator of a file.
    pub fn set_creator(&mut self, creator: [u8; 4]) {
        self.0.creator = creator;
    }

    /// Returns the flags.
    pub fn flags(&self) -> u16 {
        self.0.flags.get()
    }

    /// Sets or clears a flag.
    pub fn set_flag(&mut self, flag: u16, on: bool) {
        let flags = if on {
            self.flags() | flag
        } else {
            self.flags() & !flag
        };
        self.0.flags = flags.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_their_offsets() {
        let mut info = FinderInfo::new([0; FinderInfo::LEN]);
        info.set_kind(*b"TEXT");
        info.set_creator(*b"ttxt");
        info.set_flag(FinderInfo::EXTENSION_HIDDEN, true);
        info.set_flag(FinderInfo::INVISIBLE, true);
        info.set_flag(FinderInfo::INVISIBLE, false);
        assert_eq!(&info.as_bytes()[..10], b"TEXTttxt\0\x10");
        assert_eq!(info.as_bytes()[10..], [0; 22]);
        let fields = (info.kind(), info.creator(), info.flags());
        assert_eq!(fields, (*b"TEXT", *b"ttxt", FinderInfo::EXTENSION_HIDDEN));
    }
}
