//! The error type of the library: its kind, the layer, the place in it, and what was expected.

mod image_part;
mod redact;
mod shown;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

pub use image_part::ImagePart;
pub use redact::{Secrets, redacted};
pub use shown::{is_deceptive, shown};

/// The result of every fallible operation of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error kinds, by how a caller can react. Few, and stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A system call failed; the source holds the operating system's error.
    Io,
    /// Bytes on disk violate the format.
    Corrupt,
    /// Allowed by the format, but not supported by this library or the host.
    Unsupported,
    /// A passphrase or key is wrong or missing.
    WrongKey,
    /// A range exceeds the end of a device.
    OutOfRange,
    /// A change was requested of something opened or stored read-only.
    ReadOnly,
    /// A file, volume, node or attribute does not exist.
    NotFound,
    /// Something exists already, is in use by another process, or was changed concurrently.
    Conflict,
    /// A valid number that exceeds a limit of the format or of memory.
    Limit,
    /// An argument of the caller is invalid (a band size of 3 bytes).
    Invalid,
    /// Sources of an image disagree and the remaining evidence does not decide; the user has to,
    /// see [`crate::decision`].
    Undecided,
    /// The caller's [`Progress`](crate::progress::Progress) requested cancellation.
    Cancelled,
}

impl Kind {
    /// Returns the name for programs, in JSON and elsewhere; it does not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::WrongKey => "wrong_key",
            Self::OutOfRange => "out_of_range",
            Self::ReadOnly => "read_only",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Limit => "limit",
            Self::Invalid => "invalid",
            Self::Undecided => "undecided",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Defines [`Reason`] with a name for each cause, and the list of all.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The cause of an error, if a caller can act on it: for hints, and for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All causes.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name for programs, in JSON and elsewhere; it does not change.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The file is not a recognized disk image.
    UnknownFormat = "unknown-format",
    /// The disk is not blank, and nothing in it is recognized.
    UnknownContents = "unknown-contents",
    /// The folder is not a sparse bundle.
    NotABundle = "not-a-bundle",
    /// The image is truncated: its end is missing.
    Truncated = "truncated",
    /// The image is encrypted, and no passphrase was given.
    PassphraseNeeded = "passphrase-needed",
    /// The image is encrypted for certificates only, and no private key was given.
    PrivateKeyNeeded = "private-key-needed",
    /// The archive is encrypted with a symmetric key, which was not given.
    ArchiveKeyNeeded = "archive-key-needed",
    /// The archive is encrypted for a private key, or its key is wrapped for one, which was not given.
    ArchivePrivateKeyNeeded = "archive-private-key-needed",
    /// The archive is encrypted and signed, and the public key of its signer was not given.
    SignerKeyNeeded = "signer-key-needed",
    /// The key or public key that was given for an encrypted archive is wrong, or its header is
    /// damaged.
    WrongArchiveKey = "wrong-archive-key",
    /// A volume is encrypted, and no key for it was given.
    VolumeLocked = "volume-locked",
    /// The key that was given for an encrypted volume is wrong.
    WrongVolumeKey = "wrong-volume-key",
    /// The image has a code signature, which the change would invalidate.
    Signed = "signed",
    /// Another process has the image open.
    InUse = "in-use",
    /// The check before the first change found damage in the volume.
    DamagedVolume = "damaged-volume",
    /// A repair of the image was interrupted and must be undone first.
    RepairInterrupted = "repair-interrupted",
    /// The format does not support bands of this size; the message names the nearest sizes.
    BandSize = "band-size",
    /// The name for the unfinished image is taken by an unfinished image of another kind.
    PartialExists = "partial-exists",
    /// A change of the key entries of an encrypted image failed after the new ones were written:
    /// they are in force, or may be, as the message says.
    KeysChanged = "keys-changed",
    /// The image holds no volume that can be mounted.
    NoVolumes = "no-volumes",
    /// The names of two sources differ only in case, and the volume ignores case.
    CaseIgnored = "case-ignored",
    /// The names of two sources are the same on the volume.
    SameName = "same-name",
    /// The target exists, and is not to be overwritten.
    Exists = "exists",
    /// The image does not exist.
    NoSuchImage = "no-such-image",
    /// The image is a layer of a stack, and the images below it were not named.
    LayerAlone = "layer-alone",
    /// The image has no such volume.
    NoSuchVolume = "no-such-volume",
    /// The volume has no such path.
    NoSuchPath = "no-such-path",
    /// The bundle or volume has no such snapshot.
    NoSuchSnapshot = "no-such-snapshot",
    /// The bundle has no such state, or none at all.
    NoSuchState = "no-such-state",
    /// The object has no such extended attribute.
    NoSuchAttribute = "no-such-attribute",
    /// A name is longer than the volume allows.
    NameTooLong = "name-too-long",
    /// A layer of a stack was made over another image, or the image below it was changed since.
    LayersChanged = "layers-changed",
    /// The source is neither a folder nor a tar archive.
    NotAnArchive = "not-an-archive",
    /// The computer runs on battery power, which was not permitted.
    OnBattery = "on-battery",
    /// The volume or its container has no room for the change, or for a repair.
    VolumeFull = "volume-full",
}

/// A place in a layer where an error occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// No particular place.
    None,
    /// A byte offset within the layer (or within the file, if one is named).
    Offset(u64),
    /// A name: a band, a path in a volume, a key of a plist.
    Name(String),
}

/// A file or folder of a volume that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Its number: CNID or inode.
    Number(u64),
    /// Number of its folder, and its name.
    Entry(u64, String),
    /// Its path from the root of the volume.
    Path(String),
}

/// An error with its kind, the layer that reported it, the place, the file and the cause.
///
/// `Display` is one line for people: `file: part: layer: path: at byte N: what was expected: cause`.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    reason: Option<Reason>,
    layer: &'static str,
    place: Place,
    subjects: Vec<Subject>,
    message: Cow<'static, str>,
    file: Option<String>,
    /// The file in `file`, if that is a folder.
    part: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error of any kind. `layer` names the structure or layer (`"gpt header"`),
    /// `message` says what was expected and what was found, in lower case and without a full stop.
    pub fn new(kind: Kind, layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let (place, message) = (Place::None, message.into());
        Self(Box::new(Inner {
            kind,
            reason: None,
            layer,
            place,
            subjects: Vec::new(),
            message,
            file: None,
            part: None,
            source: None,
        }))
    }

    /// Creates a [`Kind::Corrupt`] error: bytes at `offset` of the layer violate the format.
    pub fn corrupt(
        layer: &'static str,
        offset: u64,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Kind::Corrupt, layer, message).at(offset)
    }

    /// Creates a [`Kind::Unsupported`] error: allowed by the format, but not supported here.
    pub fn unsupported(layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, layer, message)
    }

    /// Creates a [`Kind::Invalid`] error.
    pub fn invalid(layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, layer, message)
    }

    /// Creates a [`Kind::Limit`] error.
    pub fn limit(layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Limit, layer, message)
    }

    /// Creates a [`Kind::Conflict`] error.
    pub fn conflict(layer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Conflict, layer, message)
    }

    /// Creates a [`Kind::OutOfRange`] error: `offset` plus `length` exceeds `len`, the length of
    /// the device.
    pub fn out_of_range(layer: &'static str, offset: u64, length: u64, len: u64) -> Self {
        Self::new(
            Kind::OutOfRange,
            layer,
            format!("{length} bytes reach past the end at {len}"),
        )
        .at(offset)
    }

    /// Creates a [`Kind::ReadOnly`] error: a change was requested of something read-only.
    pub fn read_only(layer: &'static str) -> Self {
        Self::new(Kind::ReadOnly, layer, "open read-only")
    }

    /// Creates a [`Kind::NotFound`] error for `name`.
    pub fn not_found(layer: &'static str, name: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, layer, "does not exist").named(name)
    }

    /// Creates an error for a failed system call; `doing` is what could not be done, as a verb and
    /// its object (`"read the header"`).
    pub fn io(
        layer: &'static str,
        doing: impl fmt::Display,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::new(Kind::Io, layer, format!("cannot {doing}")).caused_by(source.into())
    }

    /// Replaces the layer: for a program with its own name for the operation.
    #[must_use]
    pub fn of_layer(mut self, layer: &'static str) -> Self {
        self.0.layer = layer;
        self
    }

    /// Sets the reason, which callers can act on.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// Sets the place to this byte offset.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.place = Place::Offset(offset);
        self
    }

    /// Sets the place to this name. Secrets of a URL are removed.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.place = Place::Name(redacted(&name.into()).into_owned());
        self
    }

    /// Adds a file or folder of a volume that the error is about.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        self.0.subjects.push(subject);
        self
    }

    /// Sets the file, unless a lower layer has set one already. If that is a folder, and its part is in
    /// `file`, `file` is named and the rest is its part. A temporary file or folder beside it,
    /// `.NAME.…`, from which it is made, is replaced, in causes too. Secrets of a URL are removed.
    #[must_use]
    pub fn in_file(mut self, file: impl AsRef<Path>) -> Self {
        let file = file.as_ref();
        if let (Some(folder), Some(part)) = (&self.0.file, &self.0.part)
            && let Ok(rest) = Path::new(folder).join(part).strip_prefix(file)
        {
            self.0.part = Some(shown(rest)).filter(|rest| !rest.is_empty());
            self.0.file = Some(shown(file));
        }
        self.0.file = Some(match self.0.file.take() {
            None => redacted(&shown(file)).into_owned(),
            Some(set) => match at_target(Path::new(&set), file) {
                Some(target) => shown(target),
                None => set,
            },
        });
        if let Some(source) = self.0.source.take() {
            self.0.source = Some(match source.downcast::<Self>() {
                Ok(cause) if cause.0.file.is_some() => Box::new(cause.in_file(file)),
                Ok(cause) => cause,
                Err(other) => other,
            });
        }
        self
    }

    /// Sets the file to a folder such as a sparse bundle, and its part to the file `name` in it, unless
    /// a lower layer has set a file already.
    #[must_use]
    pub fn in_folder(self, folder: impl AsRef<Path>, name: &str) -> Self {
        self.in_part(name).in_file(folder)
    }

    /// Sets the part to the file `name` in a folder that a higher layer names, unless a lower layer has
    /// set a part or a file already.
    #[must_use]
    pub fn in_part(mut self, name: &str) -> Self {
        if self.0.file.is_none() && self.0.part.is_none() {
            // Temporary names inside a bundle mean nothing to its user.
            let names = name
                .split('/')
                .take_while(|name| !name.starts_with(".new-"));
            let part = names.collect::<Vec<_>>().join("/");
            let part = part.trim_end_matches('/');
            self.0.part = (!part.is_empty()).then(|| part.to_owned());
        }
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns a copy of the error in which the cause is kept only as text.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let Inner {
            kind,
            reason,
            layer,
            place,
            subjects,
            message,
            file,
            part,
            source,
        } = &*self.0;
        let source = source.as_ref().map(|source| source.to_string().into());
        let (place, message) = (place.clone(), message.clone());
        let (file, part) = (file.clone(), part.clone());
        Self(Box::new(Inner {
            kind: *kind,
            reason: *reason,
            layer,
            place,
            subjects: subjects.clone(),
            message,
            file,
            part,
            source,
        }))
    }

    /// Returns the kind, by which a caller can react.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the cause, if a caller can act on it.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    /// Returns the layer or structure that reported the error.
    pub fn layer(&self) -> &'static str {
        self.0.layer
    }

    /// Returns the part of an image to which that layer belongs.
    pub fn image_part(&self) -> ImagePart {
        ImagePart::of_layer(self.0.layer)
    }

    /// Returns the place in that layer.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Returns the files and folders of a volume that the error is about.
    pub fn subjects(&self) -> &[Subject] {
        &self.0.subjects
    }

    /// Returns the paths of the files and folders of a volume that the error is about, as far as
    /// they are known.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.subjects.iter().filter_map(|subject| match subject {
            Subject::Path(path) => Some(&**path),
            Subject::Number(_) | Subject::Entry(..) => None,
        })
    }

    /// Replaces each subject for which `path` returns a path by that path.
    pub fn resolve_subjects(&mut self, mut path: impl FnMut(&Subject) -> Option<String>) {
        for subject in &mut self.0.subjects {
            if let Some(path) = path(subject) {
                *subject = Subject::Path(path);
            }
        }
    }

    /// Returns the file in which the error occurred, if known.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// Returns the file in [`file`](Self::file), if that is a folder such as a sparse bundle.
    pub fn part(&self) -> Option<&str> {
        self.0.part.as_deref()
    }

    /// Returns the text without file, layer, place and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the kind of the operating system's error that began the chain of causes, if one did.
    pub fn root_io_kind(&self) -> Option<std::io::ErrorKind> {
        let mut found = None;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            found = error.downcast_ref::<std::io::Error>().or(found);
            cause = error.source();
        }
        found.map(std::io::Error::kind)
    }

    /// Returns true if the host had no room: its disk is full, or a quota or the largest length of a file
    /// is reached.
    pub fn is_host_full(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(
            self.root_io_kind(),
            Some(StorageFull | QuotaExceeded | FileTooLarge)
        )
    }

    /// Returns the kind of the operating system's error, if that is the direct cause.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        self.0
            .source
            .as_ref()?
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind)
    }
}

/// Returns the path that `file` will have: `NAME/bands` for `.NAME.new-1/bands`.
fn at_target(file: &Path, target: &Path) -> Option<PathBuf> {
    let within = file.strip_prefix(target.parent()?).ok()?;
    let mut parts = within.components();
    let temporary = parts.next()?.as_os_str().to_str()?;
    let name = target.file_name()?.to_str()?;
    // A temporary file may have one of its own.
    let hidden = temporary.strip_prefix('.')?.trim_start_matches('.');
    hidden.strip_prefix(name)?.strip_prefix('.')?;
    let rest = parts.as_path();
    Some(match rest.as_os_str().is_empty() {
        true => target.to_owned(),
        false => target.join(rest),
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.0.file {
            write!(f, "{file}: ")?;
        }
        if let Some(part) = &self.0.part {
            write!(f, "{part}: ")?;
        }
        // That the host's file or folder failed is evident from its path.
        if self.0.file.is_none() || !["file", "folder"].contains(&self.0.layer) {
            write!(f, "{}: ", self.0.layer)?;
        }
        let paths: Vec<&str> = self.paths().collect();
        if !paths.is_empty() {
            write!(f, "{}: ", paths.join(", "))?;
        }
        match &self.0.place {
            Place::None => {}
            Place::Offset(offset) => write!(f, "at byte {offset}: ")?,
            Place::Name(name) => write!(f, "{name}: ")?,
        }
        f.write_str(&self.0.message)?;
        match &self.0.source {
            Some(source) => write!(f, ": {}", without_number(&source.to_string())),
            None => Ok(()),
        }
    }
}

/// Returns the text of a system error without its number.
fn without_number(text: &str) -> &str {
    let is_number = |number: &str| {
        number
            .strip_suffix(')')
            .is_some_and(|n| n.parse::<i32>().is_ok())
    };
    match text.rsplit_once(" (os error ") {
        Some((before, number)) if is_number(number) => before,
        _ => text,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_error_is_its_text() {
        let source = std::io::Error::from_raw_os_error(2);
        let error = Error::io("file", "open", source).in_file("a");
        assert_eq!(
            error.to_string(),
            "a: cannot open: No such file or directory"
        );
        assert_eq!(without_number("a (os error b)"), "a (os error b)");
    }

    #[test]
    fn subjects_are_named_once_they_have_a_path() {
        let mut error = Error::corrupt("catalog", 7, "odd")
            .about(Subject::Number(3))
            .about(Subject::Entry(2, "b".to_owned()));
        assert_eq!(error.to_string(), "catalog: at byte 7: odd");
        error.resolve_subjects(|subject| match subject {
            Subject::Entry(_, name) => Some(format!("/{name}")),
            _ => None,
        });
        assert_eq!(error.to_string(), "catalog: /b: at byte 7: odd");
        error.resolve_subjects(|subject| match subject {
            Subject::Number(_) => Some("/a".to_owned()),
            _ => None,
        });
        let copy = error.duplicate();
        assert_eq!(copy.to_string(), "catalog: /a, /b: at byte 7: odd");
        assert!(copy.paths().eq(["/a", "/b"]));
    }

    #[test]
    fn temporary_names_are_replaced_by_the_target() {
        let error = |file: &str| {
            let inner = Error::new(Kind::Io, "folder", "make").in_file(file);
            let outer = Error::new(Kind::Io, "create", "failed").in_file(file);
            outer.caused_by(inner).in_file("to/n.sparsebundle")
        };
        assert_eq!(
            error("to/.n.sparsebundle.new-7/bands").to_string(),
            "to/n.sparsebundle/bands: create: failed: to/n.sparsebundle/bands: make"
        );
        assert_eq!(
            error("to/..n.sparsebundle.volume.new-7").file(),
            Some("to/n.sparsebundle")
        );
        for other in [
            "to/.n.sparse",
            "from/.n.sparsebundle.new-7",
            "to/n.sparsebundle",
        ] {
            assert_eq!(error(other).file(), Some(other));
        }
    }

    #[test]
    fn a_bundle_is_named_before_its_part() {
        let error = |name: &str| {
            let error = Error::io("folder", "open", std::io::Error::from_raw_os_error(13));
            error.in_folder("to/n.sparsebundle", name)
        };
        let inside = error("bands/0");
        assert_eq!(
            inside.to_string(),
            "to/n.sparsebundle: bands/0: cannot open: Permission denied"
        );
        assert_eq!(inside.file(), Some("to/n.sparsebundle"));
        assert_eq!(inside.duplicate().part(), Some("bands/0"));
        let temporary = error(".bandsaw/states/.new-1-2/bands");
        assert_eq!(temporary.part(), Some(".bandsaw/states"));
        assert_eq!(error("").part(), None);
        // The folder of a bundle is a store, too.
        let above = Error::new(Kind::Io, "folder", "make");
        let above = above.in_folder("to", "n.sparsebundle/bands");
        assert_eq!(above.file(), Some("to"));
        let above = above.in_file("to/n.sparsebundle");
        assert_eq!(above.file(), Some("to/n.sparsebundle"));
        assert_eq!(above.part(), Some("bands"));
        let lower = Error::new(Kind::Io, "folder", "make").in_file("a");
        let lower = lower.in_folder("b", "c");
        assert_eq!((lower.file(), lower.part()), (Some("a"), None));
    }
}
