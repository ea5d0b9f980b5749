//! Passphrases on standard input, one after another. A NUL ends each, the end of the input the
//! last.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use bandsaw::crypt::Secret;
use bandsaw::sync::Mutex;

use super::secret_reader::MAX_SECRET_LEN;

/// The passphrases read so far: standard input can be read only once, and the second may be needed
/// first.
static INPUT: Mutex<Pieces> = Mutex::new(Pieces {
    read: Vec::new(),
    ended: false,
});

/// Returns passphrase `number` of standard input, from 0; `None` if there are fewer.
///
/// Nothing behind it is read, so that an archive may follow.
pub(super) fn piece(number: usize) -> io::Result<Option<Secret>> {
    // The buffer of `io::stdin` would never be wiped.
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    INPUT.lock().get(number, &mut stdin)
}

/// Wipes everything that was read from memory.
pub(super) fn wipe() {
    INPUT.lock().read.clear();
}

struct Pieces {
    read: Vec<Secret>,
    ended: bool,
}

impl Pieces {
    fn get(&mut self, number: usize, from: &mut impl Read) -> io::Result<Option<Secret>> {
        while self.read.len() <= number && !self.ended {
            let (piece, ended) = next(from)?;
            self.ended = ended;
            // Behind the last NUL there is another passphrase only if data follows. An empty input
            // is an empty passphrase.
            if !ended || !piece.is_empty() || self.read.is_empty() {
                self.read.push(piece);
            }
        }
        Ok(self.read.get(number).cloned())
    }
}

/// Reads up to the next NUL, as `hdiutil -stdinpass` does. Returns true if the input ended instead.
fn next(from: &mut impl Read) -> io::Result<(Secret, bool)> {
    // Growing the buffer would leave copies that are never wiped.
    let mut bytes = Vec::with_capacity(MAX_SECRET_LEN);
    let ended = fill(&mut bytes, from);
    let piece = Secret::new(bytes);
    ended.map(|ended| (piece, ended))
}

fn fill(bytes: &mut Vec<u8>, from: &mut impl Read) -> io::Result<bool> {
    let mut byte = [0];
    loop {
        match from.read(&mut byte) {
            Ok(0) => return Ok(true),
            Ok(_) if byte == [0] => return Ok(false),
            Ok(_) if bytes.len() == MAX_SECRET_LEN => {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok(_) => bytes.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(input: &[u8], numbers: &[usize]) -> Vec<Option<Vec<u8>>> {
        let (mut pieces, mut input) = (
            Pieces {
                read: Vec::new(),
                ended: false,
            },
            input,
        );
        numbers
            .iter()
            .map(|&number| {
                pieces
                    .get(number, &mut input)
                    .unwrap()
                    .map(|piece| piece.to_vec())
            })
            .collect()
    }

    #[test]
    fn a_nul_or_the_end_ends_a_passphrase() {
        let some = |text: &[u8]| Some(text.to_vec());
        assert_eq!(pieces(b"a\nb\n\0c", &[0]), [some(b"a\nb\n")]);
        assert_eq!(pieces(b"", &[0, 1]), [some(b""), None]);
        assert_eq!(pieces(b"\0", &[0, 1]), [some(b""), None]);
        assert_eq!(
            pieces(b"old\0new\0", &[1, 0, 2]),
            [some(b"new"), some(b"old"), None]
        );
        assert_eq!(
            pieces(b"image\0volume\0new\0", &[2, 0, 1]),
            [some(b"new"), some(b"image"), some(b"volume")]
        );
        assert_eq!(pieces(b"old\0new", &[0, 1]), [some(b"old"), some(b"new")]);
        assert_eq!(
            pieces(b"old\0\0new", &[0, 1, 2]),
            [some(b"old"), some(b""), some(b"new")]
        );
    }

    #[test]
    fn nothing_behind_a_passphrase_is_read() {
        let mut input = &b"key\0archive"[..];
        Pieces {
            read: Vec::new(),
            ended: false,
        }
        .get(0, &mut input)
        .unwrap();
        assert_eq!(input, b"archive");
    }

    #[test]
    fn an_endless_passphrase_is_refused() {
        let long = vec![b'x'; MAX_SECRET_LEN];
        assert_eq!(next(&mut &long[..]).unwrap().0.len(), MAX_SECRET_LEN);
        assert!(next(&mut io::repeat(b'x')).is_err());
    }
}
