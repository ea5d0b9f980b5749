//! The one error of the library: what kind, which layer, where, and what was expected.

mod redact;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

pub use redact::{Secrets, redacted};

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error. Few, and stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The operating system failed a call; the source says how.
    Io,
    /// Bytes on disk are not what the format demands.
    Corrupt,
    /// The format allows it, this library (or the host) does not do it.
    Unsupported,
    /// A passphrase or key does not fit, or is missing.
    WrongKey,
    /// A range reaches past the end of a device.
    OutOfRange,
    /// A change was asked of something opened or stored read-only.
    ReadOnly,
    /// A file, volume, node or attribute does not exist.
    NotFound,
    /// Something exists already, is in use by another, or changed underneath.
    Conflict,
    /// A number is legal but above a bound: of the format, of memory, of what fits.
    Limit,
    /// The caller asked for something that makes no sense (a band size of 3 bytes).
    Invalid,
    /// Sources of an image disagree and the rest of it does not decide: the user has to, see
    /// [`crate::decision`].
    Undecided,
    /// The caller's [`Progress`](crate::progress::Progress) said stop.
    Cancelled,
}

/// The cause of an error, where a caller can act on it: for hints, and for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The file is not a recognized disk image.
    UnknownFormat,
    /// The folder is not a sparse bundle.
    NotABundle,
    /// The end of the image is missing.
    Truncated,
    /// The image is encrypted, and no passphrase was given.
    PassphraseNeeded,
    /// The image is encrypted for certificates alone, and no private key was given.
    PrivateKeyNeeded,
    /// A volume is encrypted, and none of the keys given opens it.
    VolumeLocked,
    /// The image has a code signature, which the change would invalidate.
    Signed,
    /// Another process has the image open.
    InUse,
    /// A check before the first change found damage in the volume.
    DamagedVolume,
    /// A repair of the image was interrupted and has to be undone first.
    RepairInterrupted,
    /// The format cannot have bands of this size; the message names the nearest sizes.
    BandSize,
    /// An unfinished image of another kind is where the unfinished image would be kept.
    PartialExists,
    /// The image holds no volume that can be mounted.
    NoVolumes,
}

impl Reason {
    /// The name for programs, in JSON and elsewhere; it does not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownFormat => "unknown-format",
            Self::NotABundle => "not-a-bundle",
            Self::Truncated => "truncated",
            Self::PassphraseNeeded => "passphrase-needed",
            Self::PrivateKeyNeeded => "private-key-needed",
            Self::VolumeLocked => "volume-locked",
            Self::Signed => "signed",
            Self::InUse => "in-use",
            Self::DamagedVolume => "damaged-volume",
            Self::RepairInterrupted => "repair-interrupted",
            Self::BandSize => "band-size",
            Self::PartialExists => "partial-exists",
            Self::NoVolumes => "no-volumes",
        }
    }
}

/// Where in a layer an error was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular.
    None,
    /// A byte offset within the layer (or within the file, when one is named).
    Offset(u64),
    /// A name: a band, a path in a volume, a key of a plist.
    Name(String),
}

/// An error with its kind, the layer that met it, the place, the file and the cause.
///
/// `Display` is one line for people: `file: layer: at byte N: what was expected: cause`.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    reason: Option<Reason>,
    layer: &'static str,
    place: Place,
    message: Cow<'static, str>,
    file: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of any kind. `layer` names the structure or layer (`"gpt header"`), `message` says
    /// what was expected and what was found, in lower case and without a full stop.
    pub fn new(kind: Kind, layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let (place, message) = (Place::None, message.into());
        Self(Box::new(Inner {
            kind,
            reason: None,
            layer,
            place,
            message,
            file: None,
            source: None,
        }))
    }

    /// Bytes at `offset` of the layer are not what the format demands.
    pub fn corrupt(
        layer: &'static str,
        offset: u64,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Kind::Corrupt, layer, message).at(offset)
    }

    /// The format allows it, we do not do it.
    pub fn unsupported(layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, layer, message)
    }

    /// `offset` plus `length` reaches past `len`, the end of the device.
    pub fn out_of_range(layer: &'static str, offset: u64, length: u64, len: u64) -> Self {
        Self::new(
            Kind::OutOfRange,
            layer,
            format!("{length} bytes reach past the end at {len}"),
        )
        .at(offset)
    }

    /// A change was asked of something read-only.
    pub fn read_only(layer: &'static str) -> Self {
        Self::new(Kind::ReadOnly, layer, "is open read-only")
    }

    /// `name` does not exist.
    pub fn not_found(layer: &'static str, name: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, layer, "does not exist").named(name)
    }

    /// A failed system call; `doing` says what was tried (`"read band"`).
    pub fn io(
        layer: &'static str,
        doing: impl Into<Cow<'static, str>>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::new(Kind::Io, layer, doing).caused_by(source.into())
    }

    /// The same error with a reason that callers can act on.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// The same error, met at this byte offset.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.place = Place::Offset(offset);
        self
    }

    /// The same error, met at this name. Secrets of a URL are left out.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.place = Place::Name(redacted(&name.into()).into_owned());
        self
    }

    /// The same error in this file, unless a lower layer has named one already. Secrets of a URL
    /// are left out.
    #[must_use]
    pub fn in_file(mut self, file: impl AsRef<Path>) -> Self {
        self.0
            .file
            .get_or_insert_with(|| redacted(&file.as_ref().display().to_string()).into_owned());
        self
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error in words once more: its cause is told, and can no longer be told apart.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let Inner {
            kind,
            reason,
            layer,
            place,
            message,
            file,
            source,
        } = &*self.0;
        let source = source.as_ref().map(|source| source.to_string().into());
        let (place, message, file) = (place.clone(), message.clone(), file.clone());
        Self(Box::new(Inner {
            kind: *kind,
            reason: *reason,
            layer,
            place,
            message,
            file,
            source,
        }))
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The cause, where a caller can act on it.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    /// The layer or structure that met it.
    pub fn layer(&self) -> &'static str {
        self.0.layer
    }

    /// Where in that layer.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// The file it was met in, where one is known.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The text without file, layer, place and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The operating system's error at the bottom of this one, if any.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        self.0
            .source
            .as_ref()?
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.0.file {
            write!(f, "{file}: ")?;
        }
        write!(f, "{}: ", self.0.layer)?;
        match &self.0.place {
            Place::None => {}
            Place::Offset(offset) => write!(f, "at byte {offset}: ")?,
            Place::Name(name) => write!(f, "{name}: ")?,
        }
        f.write_str(&self.0.message)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
