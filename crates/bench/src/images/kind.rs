//! Kinds of images, and the ways to them.

use std::fmt;
use std::str::FromStr;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind as ErrorKind};

use crate::report::ImageKind;

/// How a program gets at what is in an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// Through this library, in the same process.
    #[default]
    Library,
    /// Through a network block device that another process serves, the file system in this one.
    Nbd,
    /// Through a folder that another process serves, as any program does.
    Mount,
}

impl Via {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Nbd => "nbd",
            Self::Mount => "mount",
        }
    }
}

impl FromStr for Via {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = [Self::Library, Self::Nbd, Self::Mount]
            .into_iter()
            .find(|via| via.name() == text);
        found.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "benchmark",
                "library, nbd and mount are the ways to an image",
            )
        })
    }
}

/// What is made, and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The container.
    pub format: Format,
    /// Bits of its AES key; 0 for none.
    pub key_bits: u32,
    /// The file system within.
    pub file_system: NewFormat,
    /// True if its volume is encrypted, as FileVault has it; of APFS alone.
    pub volume_key: bool,
    /// How it is reached.
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

    /// The file system in words.
    fn inner(&self) -> String {
        format!(
            "{}{}",
            if self.volume_key { "encrypted " } else { "" },
            self.file_system
        )
    }

    /// As results name it.
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
