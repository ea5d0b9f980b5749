//! Reading one passphrase from its source.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use bandsaw::crypt::Secret;
use bandsaw::{Error, Result, platform};

use super::secret_reader::{MAX_SECRET_LEN, read_secret};
use super::{scrub_env, stdin};

/// The source of one passphrase, with its option.
#[derive(Debug, Clone, Default)]
pub(super) enum Source {
    Stdin(&'static str),
    File(&'static str, PathBuf),
    Descriptor(&'static str, u32),
    Variable(&'static str, OsString),
    #[default]
    Terminal,
}

impl Source {
    /// Returns the option that was given, or `None`.
    pub(super) fn option(&self) -> Option<&'static str> {
        match self {
            Self::Stdin(option)
            | Self::File(option, _)
            | Self::Descriptor(option, _)
            | Self::Variable(option, _) => Some(option),
            Self::Terminal => None,
        }
    }

    /// Returns the passphrase; `None` if it is not known. `before` counts the passphrases that come
    /// first on standard input.
    pub(super) fn read(&self, before: usize, question: &str) -> Result<Option<Secret>> {
        platform::forbid_core_dumps();
        match self {
            Self::Stdin(option) => {
                let piece = stdin::piece(before).map_err(|error| failed(option, error))?;
                let ended = "not found on standard input: expected the passphrases of image, \
                             volume and new image, in this order, each followed by a NUL";
                piece.ok_or_else(|| Error::invalid(option, ended)).map(Some)
            }
            Self::File(option, path) => line_of(option, path).map(Some),
            Self::Descriptor(option, number) => {
                let secret = File::open(format!("/dev/fd/{number}")).and_then(without_newline);
                secret.map(Some).map_err(|error| failed(option, error))
            }
            Self::Variable(option, name) => {
                if let Some(secret) =
                    scrub_env::read(option).map_err(|error| failed(option, error))?
                {
                    return Ok(Some(secret));
                }
                let value = std::env::var_os(name).ok_or_else(|| {
                    Error::invalid(option, "no such environment variable")
                        .named(name.to_string_lossy())
                })?;
                Ok(Some(Secret::new(value.into_vec())))
            }
            // An empty line means that the passphrase is not known.
            Self::Terminal if io::stdin().is_terminal() => {
                Ok(Some(prompt(question)?).filter(|typed| !typed.is_empty()))
            }
            Self::Terminal => Ok(None),
        }
    }

    /// Returns a new passphrase, which must not be empty. A terminal asks for it twice.
    pub(super) fn choose(&self, before: usize, what: &'static str) -> Result<Option<Secret>> {
        let chosen = self.read(before, &format!("{what}: "))?;
        if chosen.as_ref().is_some_and(|secret| secret.is_empty()) {
            return Err(Error::invalid(what, "empty"));
        }
        if let (Self::Terminal, Some(chosen)) = (self, &chosen)
            && *prompt(&format!("{what} again: "))? != **chosen
        {
            return Err(Error::invalid(
                what,
                "the two passphrases that were typed differ",
            ));
        }
        Ok(chosen)
    }
}

fn prompt(question: &str) -> Result<Secret> {
    let typed = rpassword::prompt_password(question).map_err(|error| failed("terminal", error))?;
    Ok(Secret::new(typed.into_bytes()))
}

fn failed(option: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            Error::invalid(option, format!("longer than {MAX_SECRET_LEN} bytes"))
        }
        _ => Error::io(option, "read the passphrase", error),
    }
}

/// Returns the secret in the file that an option names, without the newline at its end.
pub(super) fn line_of(option: &'static str, path: &Path) -> Result<Secret> {
    File::open(path)
        .and_then(without_newline)
        .map_err(|error| failed(option, error).in_file(path))
}

/// Reads everything but one newline at the end, which editors and `echo` add.
fn without_newline(from: impl Read) -> io::Result<Secret> {
    let secret = read_secret(from)?;
    Ok(match secret.strip_suffix(b"\n") {
        Some(line) => Secret::new(line.to_vec()),
        None => secret,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_no_part_of_a_file_s_passphrase() {
        assert_eq!(&*without_newline(&b"a\n\n"[..]).unwrap(), b"a\n");
        assert_eq!(&*without_newline(&b" a\0b "[..]).unwrap(), b" a\0b ");
        assert_eq!(
            without_newline(&[b'x'; MAX_SECRET_LEN][..]).unwrap().len(),
            MAX_SECRET_LEN
        );
        assert!(without_newline(&[b'x'; MAX_SECRET_LEN + 1][..]).is_err());
    }
}
