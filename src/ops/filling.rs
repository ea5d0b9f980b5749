//! Contents on their way into a new file, from the first byte to the last. Zeros become holes where
//! a volume has such.

use crate::device::{AfterDiscard, BlockDevice, is_zero};
use crate::{Kind, Result};

/// Zeros that are looked for among bytes, and where: as much as is compressed in one go. Less is
/// not worth an extent.
const UNIT: usize = 64 << 10;

/// An empty file that is being filled. What it is filled with adds up to the length that was
/// announced.
#[derive(Debug)]
pub(super) struct Filling<'a> {
    out: &'a dyn BlockDevice,
    /// What all of it will be.
    len: u64,
    /// What there is so far.
    at: u64,
    holes: bool,
    /// Room is made for all of it at once, so that it lies in one piece: as long as no hole came
    /// and it fits.
    whole: bool,
}

impl<'a> Filling<'a> {
    /// Begins to fill `out` with `len` bytes. `holes`: zeros are left out, which its volume must
    /// know how to.
    pub(super) fn new(out: &'a dyn BlockDevice, len: u64, holes: bool) -> Result<Self> {
        if !holes {
            out.set_len(len, AfterDiscard::Any)?;
        }
        Ok(Self {
            out,
            len,
            at: 0,
            holes,
            whole: true,
        })
    }

    /// Bytes as they are.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at + bytes.len() as u64;
        self.make_room(end)?;
        self.out.write_at(self.at, bytes)?;
        self.at = end;
        Ok(())
    }

    /// So many zeros.
    pub(super) fn zeros(&mut self, count: u64) -> Result<()> {
        let end = self.at + count;
        if !self.holes {
            self.out.discard(self.at..end, AfterDiscard::Zeros)?;
        } else if self.out.info().len > self.at {
            self.out.set_len(self.at, AfterDiscard::Any)?;
        }
        self.whole = false;
        self.at = end;
        Ok(())
    }

    /// Bytes, in which zeros are looked for.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.holes {
            return self.data(bytes);
        }
        let units: Vec<bool> = bytes.chunks(UNIT).map(is_zero).collect();
        let mut rest = bytes;
        for alike in units.chunk_by(|a, b| a == b) {
            let (now, later) = rest.split_at((alike.len() * UNIT).min(rest.len()));
            match alike {
                [true, ..] => self.zeros(now.len() as u64)?,
                _ => self.data(now)?,
            }
            rest = later;
        }
        Ok(())
    }

    /// The file has its length, also where it ends with a hole.
    pub(super) fn finish(self) -> Result<()> {
        if self.out.info().len < self.at {
            self.out.set_len(self.at, AfterDiscard::Zeros)?;
        }
        Ok(())
    }

    /// Makes the file so long that `end` is in it, what was left out being a hole.
    fn make_room(&mut self, end: u64) -> Result<()> {
        let len = self.out.info().len;
        if len >= end {
            return Ok(());
        }
        if len < self.at {
            self.out.set_len(self.at, AfterDiscard::Zeros)?;
        }
        if self.whole {
            match self.out.set_len(self.len, AfterDiscard::Any) {
                // With its holes it may fit.
                Err(error) if error.kind() == Kind::Limit => self.whole = false,
                done => return done,
            }
        }
        self.out.set_len(end, AfterDiscard::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Memory};

    #[test]
    fn zeros_are_left_out_and_read_as_such() {
        let mut contents = vec![7; 10 * UNIT + 5];
        for zeros in [
            UNIT..3 * UNIT,
            4 * UNIT + 1..6 * UNIT - 1,
            9 * UNIT..10 * UNIT + 5,
        ] {
            contents[zeros].fill(0);
        }
        for holes in [false, true] {
            // Room that was never written may hold anything.
            let out = Memory::zeros(0);
            let mut filling = Filling::new(&out, contents.len() as u64, holes).unwrap();
            for piece in contents.chunks(4 * UNIT) {
                filling.bytes(piece).unwrap();
            }
            filling.finish().unwrap();
            assert!(
                out.read_vec(0, out.info().len as usize).unwrap() == contents,
                "{holes}"
            );

            let out = Memory::zeros(0);
            let mut filling = Filling::new(&out, 300, holes).unwrap();
            filling.zeros(100).unwrap();
            filling.data(&[1; 100]).unwrap();
            filling.zeros(100).unwrap();
            filling.finish().unwrap();
            assert_eq!(
                out.read_vec(0, 300).unwrap(),
                [[0; 100], [1; 100], [0; 100]].concat()
            );
        }
    }
}
