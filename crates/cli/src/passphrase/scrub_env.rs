//! Passphrases from the environment, which every process of the user can read in `/proc` for as
//! long as this one lives.
//!
//! A process cannot wipe the environment that it was started with. So before anything else this
//! program runs itself again with the variables removed, and hands what they hold over through
//! pipes. A server in the background inherits the pipes unread.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use bandsaw::crypt::Secret;
use rustix::io::{FdFlags, fcntl_setfd};

use super::secret_reader::read_secret;
use super::{ImagePassphraseRole, NewPassphraseRole, Role, VolumePassphraseRole};

/// The variable with the pipe of each option's passphrase for the second run: `--passenv=5`,
/// separated by spaces.
const PIPES: &str = "BANDSAW_PASSENV";
/// The capacity of a pipe on every Linux and macOS.
const PIPE_CAPACITY: usize = 16 << 10;

/// The options that name an environment variable.
const OPTIONS: [&str; 3] = [
    ImagePassphraseRole::OPTIONS[3],
    VolumePassphraseRole::OPTIONS[3],
    NewPassphraseRole::OPTIONS[3],
];

/// Runs this program again without the variables that its arguments, `words`, name. Returns if
/// there is nothing to remove, or if that is not possible: the passphrases are then read from the
/// environment.
pub(crate) fn hide(words: &[OsString]) {
    if std::env::var_os(PIPES).is_some() {
        return;
    }
    let found: Vec<_> = named(words)
        .into_iter()
        .filter_map(|(option, name)| Some((option, std::env::var_os(&name)?, name)))
        .collect();
    let (Some((program, args)), false) = (words.split_first(), found.is_empty()) else {
        return;
    };
    let Ok(this) = std::env::current_exe() else {
        return;
    };
    let mut command = Command::new(this);
    command.arg0(program).args(args);
    let (mut pipes, mut pipe_numbers) = (Vec::new(), Vec::new());
    for (option, value, name) in found {
        let value = Secret::new(value.into_vec());
        let Ok(pipe) = pipe_of(&value) else { return };
        pipe_numbers.push(format!("{option}={}", pipe.as_raw_fd()));
        pipes.push(pipe);
        command.env_remove(name);
    }
    // Returns only on failure.
    let _ = command.env(PIPES, pipe_numbers.join(" ")).exec();
}

/// Returns a pipe that holds `value` and stays open in child programs.
fn pipe_of(value: &[u8]) -> io::Result<OwnedFd> {
    if value.len() > PIPE_CAPACITY {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let (read, mut write) = io::pipe()?;
    write.write_all(value)?;
    fcntl_setfd(&read, FdFlags::empty())?;
    Ok(read.into())
}

/// Returns the options among `words` that name a variable, with the variables.
fn named(words: &[OsString]) -> Vec<(&'static str, OsString)> {
    let mut found = Vec::new();
    let mut rest = words.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        for option in OPTIONS {
            let value = match word.as_bytes().strip_prefix(option.as_bytes()) {
                Some([]) => rest.next().cloned(),
                Some([b'=', value @ ..]) => Some(OsStr::from_bytes(value).to_owned()),
                _ => continue,
            };
            found.extend(value.map(|value| (option, value)));
            break;
        }
    }
    found
}

/// Returns the passphrase that the first run handed over for `option`. It can be read once.
pub(super) fn read(option: &str) -> io::Result<Option<Secret>> {
    let Some(pipe_numbers) = std::env::var(PIPES).ok() else {
        return Ok(None);
    };
    let number = pipe_numbers.split(' ').find_map(|one| {
        one.strip_prefix(option)?
            .strip_prefix('=')?
            .parse::<u32>()
            .ok()
    });
    number
        .map(|number| File::open(format!("/dev/fd/{number}")).and_then(read_secret))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_as_they_are_given() {
        let words: Vec<OsString> =
            "bandsaw cat --passenv A --volume-passenv=B x --new-passenv -- --passenv C"
                .split(' ')
                .map(OsString::from)
                .collect();
        let expected = [("--passenv", "A"), ("--volume-passenv", "B")]
            .map(|(option, name)| (option, OsString::from(name)));
        assert_eq!(named(&words), expected);
    }

    #[test]
    fn a_pipe_holds_what_was_written_before_anybody_reads() {
        let pipe = pipe_of(&[7; PIPE_CAPACITY]).unwrap();
        assert_eq!(
            read_secret(File::open(format!("/dev/fd/{}", pipe.as_raw_fd())).unwrap())
                .unwrap()
                .len(),
            PIPE_CAPACITY
        );
        assert!(pipe_of(&[7; PIPE_CAPACITY + 1]).is_err());
    }
}
