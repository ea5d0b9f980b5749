//! Kinds of images, and the interfaces through which they are accessed.

use std::fmt;
use std::str::FromStr;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind as ErrorKind};

use crate::report::ImageKind;

/// Interface through which the contents of an image are accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// This library, in the same process.
    #[default]
    Library,
    /// A network block device that another process serves; the file system is in this process.
    Nbd,
    /// A mount that another process serves, as used by ordinary programs.
    Mount,
    /// The kernel's file system on its network block device, which another process serves; HFS+
    /// without a journal only.
    Kernel,
}

impl Via {
    /// Every interface.
    pub const ALL: [Self; 4] = [Self::Library, Self::Nbd, Self::Mount, Self::Kernel];

    /// Returns its name: `library`, `nbd`, `mount` or `kernel`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Nbd => "nbd",
            Self::Mount => "mount",
            Self::Kernel => "kernel",
        }
    }
}

impl FromStr for Via {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|via| via.name() == text);
        found.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "benchmark",
                "unknown access: expected library, nbd, mount or kernel",
            )
        })
    }
}

/// A kind of image, and the interface through which it is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Container format.
    pub format: Format,
    /// Bits of its AES key; 0 if it is not encrypted.
    pub key_bits: u32,
    /// File system of the image.
    pub file_system: NewFormat,
    /// True if its volume is encrypted, as by FileVault; APFS only.
    pub volume_key: bool,
    /// Interface that accesses it.
    pub via: Via,
}

impl Kind {
    /// A virtual machine's disk: encrypted APFS in ASIF over NBD.
    pub const VM: Self = Self {
        format: Format::Asif,
        key_bits: 0,
        file_system: NewFormat::Apfs,
        volume_key: true,
        via: Via::Nbd,
    };

    /// True if its interface can write its file system: Linux changes HFS+ without a journal only.
    pub(super) fn is_possible(&self) -> bool {
        self.via != Via::Kernel || matches!(self.file_system, NewFormat::HfsPlus | NewFormat::Hfsx)
    }

    /// Returns the name of the file system.
    fn inner(&self) -> String {
        format!(
            "{}{}",
            if self.volume_key { "encrypted " } else { "" },
            self.file_system
        )
    }

    /// Returns the description for the report.
    pub(crate) fn described(&self) -> ImageKind {
        ImageKind {
            format: self.format.to_string(),
            key_bits: self.key_bits,
            file_system: self.inner(),
            via: self.via.name().to_owned(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format)?;
        if self.key_bits > 0 {
            write!(f, " AES-{}", self.key_bits)?;
        }
        write!(f, ", {}, {}", self.inner(), self.via.name())
    }
}
