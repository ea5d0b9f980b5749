//! Where passphrases come from. Never from the arguments, which every user can see.
//!
//! A command may need two: of the image that it opens, and for what it makes. The options of the second carry the prefix
//! `--new-`. Over one standard input they come in this order, each ended by a NUL.

mod stdin;

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use bandsaw::crypt::{Certificate, Description, Key, LEAST_ITERATIONS, MOST_ITERATIONS, PrivateKey, Secret, calibrate};
use bandsaw::open::Keys;
use bandsaw::{Error, Kind, Result, platform};
use clap::{Args, ValueHint};

/// What to do about a key that is missing or wrong.
pub(crate) const HINT: &str =
    "a passphrase is read by --passfile FILE, --passfd N, --passenv NAME or --stdinpass, a private key by --private-key FILE";

/// Longer ones are a mistake: the wrong file was named.
const LONGEST: usize = 64 << 10;

/// The options that say where one passphrase comes from, with a prefix that says which.
macro_rules! passphrase_options {
    ($(#[$about:meta])* $name:ident, $group:literal, $prefix:literal, $what:literal, $heading:literal, $order:literal) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, Args)]
        #[group(id = $group, multiple = false)]
        pub(crate) struct $name {
            #[arg(
                id = concat!($prefix, "stdinpass"),
                long = concat!($prefix, "stdinpass"),
                help = concat!("Read ", $what, " from standard input, up to a NUL or the end; a newline is part of it"),
                help_heading = $heading,
                display_order = $order
            )]
            stdinpass: bool,
            #[arg(
                id = concat!($prefix, "passfile"),
                long = concat!($prefix, "passfile"),
                value_name = "FILE",
                help = concat!("Read ", $what, " from a file, without the newline at its end if it has one"),
                help_heading = $heading,
                display_order = $order + 1
            )]
            passfile: Option<PathBuf>,
            #[arg(
                id = concat!($prefix, "passfd"),
                long = concat!($prefix, "passfd"),
                value_name = "N",
                help = concat!("Read ", $what, " from an open file descriptor, as from a file"),
                help_heading = $heading,
                display_order = $order + 2
            )]
            passfd: Option<u32>,
            #[arg(
                id = concat!($prefix, "passenv"),
                long = concat!($prefix, "passenv"),
                value_name = "NAME",
                help = concat!("Take ", $what, " from an environment variable"),
                help_heading = $heading,
                display_order = $order + 3
            )]
            passenv: Option<OsString>,
            /// What was read or typed.
            #[arg(skip)]
            known: OnceCell<Option<Secret>>,
        }

        impl $name {
            /// The option that was given, if one was.
            pub(crate) fn given(&self) -> Option<&'static str> {
                match self.source() {
                    Source::Stdin(option)
                    | Source::File(option, _)
                    | Source::Descriptor(option, _)
                    | Source::Variable(option, _) => Some(option),
                    Source::Terminal => None,
                }
            }

            fn source(&self) -> Source<'_> {
                if self.stdinpass {
                    return Source::Stdin(concat!("--", $prefix, "stdinpass"));
                }
                if let Some(path) = &self.passfile {
                    return Source::File(concat!("--", $prefix, "passfile"), path);
                }
                if let Some(number) = self.passfd {
                    return Source::Descriptor(concat!("--", $prefix, "passfd"), number);
                }
                match &self.passenv {
                    Some(name) => Source::Variable(concat!("--", $prefix, "passenv"), name),
                    None => Source::Terminal,
                }
            }
        }
    };
}

passphrase_options! {
    /// The passphrase of an encrypted image, for every verb that opens one. Without an option the terminal is asked.
    Passphrase, "passphrase", "", "the passphrase of an encrypted image", "Encrypted images", 800
}

passphrase_options! {
    /// The passphrase of what a verb makes, beside that of the image it opens. Without an option the terminal is asked, twice.
    NewPassphrase, "new-passphrase", "new-", "the new passphrase", "New passphrase", 850
}

impl Passphrase {
    /// The passphrase that this verb gives to an image, where it opens no other: asked for twice on a terminal, and
    /// never empty.
    #[allow(dead_code, reason = "creating encrypted images comes next")]
    pub(crate) fn choose(&self) -> Result<Secret> {
        once(&self.known, || choose(&self.source(), 0))?.ok_or_else(missing)
    }
}

impl NewPassphrase {
    /// The passphrase that this verb gives to an image, never empty; that of the image it opens comes first where both
    /// come from standard input.
    pub(crate) fn choose(&self, of_image: &Passphrase) -> Result<Secret> {
        once(&self.known, || choose(&self.source(), usize::from(of_image.stdinpass)))?.ok_or_else(missing)
    }
}

/// What opens an encrypted image, for every verb that opens one.
#[derive(Debug, Clone, Args)]
pub(crate) struct Unlocking {
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    /// Open an encrypted image with the private key of a certificate: a PEM file, PKCS#8 or PKCS#1
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "passphrase",
        help_heading = "Encrypted images",
        display_order = 804
    )]
    private_key: Option<PathBuf>,
}

impl Keys for Unlocking {
    /// One passphrase or private key for everything that a command opens.
    fn key(&self, image: &Description) -> Result<Option<Key>> {
        if let Some(path) = &self.private_key {
            return private_key(path).map_err(|error| error.in_file(path)).map(|key| Some(Key::Private(key)));
        }
        if !image.has_passphrase() {
            return Ok(None);
        }
        let passphrase = &self.passphrase;
        Ok(once(&passphrase.known, || passphrase.source().read(0, "passphrase: "))?.map(Key::Passphrase))
    }
}

fn private_key(path: &Path) -> Result<PrivateKey> {
    platform::forbid_core_dumps();
    let pem = File::open(path).and_then(all).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Error::new(Kind::Invalid, "--private-key", format!("is longer than {LONGEST} bytes")),
        _ => Error::io("--private-key", "the private key cannot be read", error),
    })?;
    PrivateKey::parse(&pem)
}

/// How long a new passphrase takes to try.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Iterations {
    /// Iterations of the new passphrase's derivation, at least 150000; without it as many as take a quarter of a second here
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(i64::from(LEAST_ITERATIONS)..=i64::from(MOST_ITERATIONS)),
        help_heading = "New passphrase",
        display_order = 890
    )]
    iterations: Option<u32>,
}

impl Iterations {
    pub(crate) fn is_given(self) -> bool {
        self.iterations.is_some()
    }

    pub(crate) fn count(self) -> u32 {
        self.iterations.unwrap_or_else(calibrate)
    }
}

/// A certificate whose private key is to open an image.
pub(crate) fn certificate(path: &Path) -> Result<Certificate> {
    let bytes = File::open(path).and_then(all).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Error::new(Kind::Invalid, "--certificate", format!("is longer than {LONGEST} bytes")),
        _ => Error::io("--certificate", "the certificate cannot be read", error),
    });
    bytes.and_then(|bytes| Certificate::parse(&bytes)).map_err(|error| error.in_file(path))
}

/// Where one passphrase comes from, with the option that says so.
enum Source<'a> {
    Stdin(&'static str),
    File(&'static str, &'a Path),
    Descriptor(&'static str, u32),
    Variable(&'static str, &'a OsStr),
    Terminal,
}

impl Source<'_> {
    /// The passphrase; `None` if nobody knows it. `number` counts those on standard input before it.
    fn read(&self, number: usize, question: &str) -> Result<Option<Secret>> {
        platform::forbid_core_dumps();
        match *self {
            Self::Stdin(option) => {
                let piece = stdin::piece(number).map_err(|error| failed(option, error))?;
                let ended = "standard input ends before it; passphrases stand there in the order image, new, each ended by a NUL";
                piece.ok_or_else(|| Error::new(Kind::Invalid, option, ended)).map(Some)
            }
            Self::File(option, path) => {
                let secret = File::open(path).and_then(without_newline);
                secret.map(Some).map_err(|error| failed(option, error).in_file(path))
            }
            Self::Descriptor(option, number) => {
                let secret = File::open(format!("/dev/fd/{number}")).and_then(without_newline);
                secret.map(Some).map_err(|error| failed(option, error))
            }
            Self::Variable(option, name) => {
                let value = std::env::var_os(name).ok_or_else(|| {
                    Error::new(Kind::Invalid, option, "no such environment variable").named(name.to_string_lossy())
                })?;
                Ok(Some(Secret::new(value.into_vec())))
            }
            // Nothing typed means that it is not known.
            Self::Terminal if io::stdin().is_terminal() => Ok(Some(ask(question)?).filter(|typed| !typed.is_empty())),
            Self::Terminal => Ok(None),
        }
    }
}

fn ask(question: &str) -> Result<Secret> {
    let typed = rpassword::prompt_password(question).map_err(|error| failed("terminal", error))?;
    Ok(Secret::new(typed.into_bytes()))
}

/// A passphrase for an image, which must not be empty, nor mistyped: what is typed is asked for again.
fn choose(source: &Source<'_>, number: usize) -> Result<Option<Secret>> {
    let chosen = source.read(number, "new passphrase: ")?;
    if chosen.as_ref().is_some_and(|secret| secret.is_empty()) {
        return Err(Error::new(Kind::Invalid, "new passphrase", "is empty"));
    }
    if let (Source::Terminal, Some(chosen)) = (source, &chosen)
        && *ask("new passphrase again: ")? != **chosen
    {
        return Err(Error::new(Kind::Invalid, "new passphrase", "was typed differently the second time"));
    }
    Ok(chosen)
}

fn missing() -> Error {
    Error::new(Kind::WrongKey, "new passphrase", "is needed")
}

/// What `read` gives, asked for no more than once.
fn once(known: &OnceCell<Option<Secret>>, read: impl FnOnce() -> Result<Option<Secret>>) -> Result<Option<Secret>> {
    if let Some(known) = known.get() {
        return Ok(known.clone());
    }
    let secret = read()?;
    Ok(known.get_or_init(|| secret).clone())
}

fn failed(option: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::new(Kind::Invalid, option, format!("is longer than {LONGEST} bytes")),
        _ => Error::io(option, "the passphrase cannot be read", error),
    }
}

/// Everything but one newline at the end, which editors and `echo` leave there.
fn without_newline(from: impl Read) -> io::Result<Secret> {
    let secret = all(from)?;
    Ok(match secret.strip_suffix(b"\n") {
        Some(line) => Secret::new(line.to_vec()),
        None => secret,
    })
}

/// All of a file that holds a secret.
fn all(from: impl Read) -> io::Result<Secret> {
    // As long as it may become: growing would leave copies behind that nobody wipes.
    let mut bytes = Vec::with_capacity(LONGEST + 1);
    let read = from.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    if secret.len() > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { read.map(|_| secret) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_no_part_of_a_file_s_passphrase() {
        assert_eq!(&*without_newline(&b"a\n\n"[..]).unwrap(), b"a\n");
        assert_eq!(&*without_newline(&b" a\0b "[..]).unwrap(), b" a\0b ");
        assert_eq!(without_newline(&[b'x'; LONGEST][..]).unwrap().len(), LONGEST);
        assert!(without_newline(&[b'x'; LONGEST + 1][..]).is_err());
    }
}
