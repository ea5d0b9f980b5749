//! Where the passphrase of an encrypted image comes from. Never from the arguments, which every user can see.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use bandsaw::crypt::{Description, Secret};
use bandsaw::open::Keys;
use bandsaw::{Error, Kind, Result};
use clap::Args;

/// Longer ones are a mistake: the wrong file was named.
const LONGEST: usize = 64 << 10;

/// The passphrase of an encrypted image, for every verb that opens one. Without an option the terminal is asked.
#[derive(Debug, Clone, Args)]
#[group(id = "passphrase", multiple = false)]
pub(crate) struct Passphrase {
    /// Read the passphrase of an encrypted image from standard input, up to a NUL or the end; a newline is part of it
    #[arg(long, help_heading = "Encrypted images", display_order = 800)]
    stdinpass: bool,
    /// Read the passphrase from a file, without the newline at its end if it has one
    #[arg(long, value_name = "FILE", help_heading = "Encrypted images", display_order = 801)]
    passfile: Option<PathBuf>,
    /// Read the passphrase from an open file descriptor, as from a file
    #[arg(long, value_name = "N", help_heading = "Encrypted images", display_order = 802)]
    passfd: Option<u32>,
    /// Take the passphrase from an environment variable
    #[arg(long, value_name = "NAME", help_heading = "Encrypted images", display_order = 803)]
    passenv: Option<OsString>,
    /// What was read or typed: one passphrase for everything a command opens.
    #[arg(skip)]
    known: OnceCell<Option<Secret>>,
}

impl Passphrase {
    fn read(&self) -> Result<Option<Secret>> {
        if self.stdinpass {
            return until_nul(io::stdin().lock()).map(Some).map_err(|error| failed("--stdinpass", error));
        }
        if let Some(path) = &self.passfile {
            let secret = File::open(path).and_then(without_newline);
            return secret.map(Some).map_err(|error| failed("--passfile", error).in_file(path));
        }
        if let Some(number) = self.passfd {
            let secret = File::open(format!("/dev/fd/{number}")).and_then(without_newline);
            return secret.map(Some).map_err(|error| failed("--passfd", error));
        }
        if let Some(name) = &self.passenv {
            let value = std::env::var_os(name).ok_or_else(|| {
                Error::new(Kind::Invalid, "--passenv", "no such environment variable").named(name.to_string_lossy())
            })?;
            return Ok(Some(Secret::new(value.into_vec())));
        }
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let typed = rpassword::prompt_password("passphrase: ").map_err(|error| failed("terminal", error))?;
        // Nothing typed means that it is not known.
        Ok(Some(typed).filter(|typed| !typed.is_empty()).map(|typed| Secret::new(typed.into_bytes())))
    }
}

impl Keys for Passphrase {
    fn passphrase(&self, _image: &Description) -> Result<Option<Secret>> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let secret = self.read()?;
        Ok(self.known.get_or_init(|| secret).clone())
    }
}

fn failed(option: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::new(Kind::Invalid, option, format!("is longer than {LONGEST} bytes")),
        _ => Error::io(option, "the passphrase cannot be read", error),
    }
}

/// Everything up to the first NUL, as `hdiutil -stdinpass` reads it.
fn until_nul(from: impl Read) -> io::Result<Secret> {
    let mut bytes = all(from)?;
    bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
    Ok(Secret::new(bytes))
}

/// Everything but one newline at the end, which editors and `echo` leave there.
fn without_newline(from: impl Read) -> io::Result<Secret> {
    let mut bytes = all(from)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(Secret::new(bytes))
}

fn all(from: impl Read) -> io::Result<Vec<u8>> {
    // As long as it may become: growing would leave copies behind that nobody wipes.
    let mut bytes = Vec::with_capacity(LONGEST + 1);
    from.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_passphrase() {
        assert_eq!(&*until_nul(&b"a\nb\n\0c"[..]).unwrap(), b"a\nb\n");
        assert_eq!(&*until_nul(&b""[..]).unwrap(), b"");
        assert_eq!(&*without_newline(&b"a\n\n"[..]).unwrap(), b"a\n");
        assert_eq!(&*without_newline(&b" a\0b "[..]).unwrap(), b" a\0b ");
        assert_eq!(all(&[b'x'; LONGEST][..]).unwrap().len(), LONGEST);
        assert!(all(&[b'x'; LONGEST + 1][..]).is_err());
    }
}
