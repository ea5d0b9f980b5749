//! Sequential write of the contents of a new file. Zeros become holes if the volume supports them.

use crate::device::{AfterDiscard, BlockDevice, is_zero};
use crate::{Kind, Result};

/// Granularity of the search for zeros, in bytes: the unit of compression. Smaller holes are not
/// worth an extent.
const UNIT: usize = 64 << 10;

/// An empty file being written. The data must add up to the announced length.
#[derive(Debug)]
pub(super) struct NewFileWriter<'a> {
    out: &'a dyn BlockDevice,
    /// Announced length, in bytes.
    len: u64,
    /// Length written so far, in bytes.
    at: u64,
    holes: bool,
    /// True to allocate the whole length in one step, so that it is contiguous. Cleared after the
    /// first hole, or if the volume has too little space.
    whole: bool,
}

impl<'a> NewFileWriter<'a> {
    /// Begins to fill `out` with `len` bytes. `holes` is true to store zeros as holes, which the
    /// volume must support.
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

    /// Appends bytes, without a search for zeros.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at + bytes.len() as u64;
        self.make_room(end)?;
        self.out.write_at(self.at, bytes)?;
        self.at = end;
        Ok(())
    }

    /// Appends `count` zeros.
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

    /// Appends bytes, storing units of zeros as holes.
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

    /// Extends the file to its length if it ends with a hole.
    pub(super) fn finish(self) -> Result<()> {
        if self.out.info().len < self.at {
            self.out.set_len(self.at, AfterDiscard::Zeros)?;
        }
        Ok(())
    }

    /// Extends the file so that it includes `end`. The skipped range becomes a hole.
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
                // With holes it may still fit.
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
            // The contents of extended space are undefined until written.
            let out = Memory::zeros(0);
            let mut writer = NewFileWriter::new(&out, contents.len() as u64, holes).unwrap();
            for piece in contents.chunks(4 * UNIT) {
                writer.bytes(piece).unwrap();
            }
            writer.finish().unwrap();
            assert!(
                out.read_vec(0, out.info().len as usize).unwrap() == contents,
                "{holes}"
            );

            let out = Memory::zeros(0);
            let mut writer = NewFileWriter::new(&out, 300, holes).unwrap();
            writer.zeros(100).unwrap();
            writer.data(&[1; 100]).unwrap();
            writer.zeros(100).unwrap();
            writer.finish().unwrap();
            assert_eq!(
                out.read_vec(0, 300).unwrap(),
                [[0; 100], [1; 100], [0; 100]].concat()
            );
        }
    }
}
