//! Buffered sequential output to a device, in large writes.

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, is_zero};
use bandsaw_core::size::to_usize;

/// Buffer size in bytes: large enough that the cost of a call is negligible, small enough for the
/// processor's cache.
pub(crate) const BUFFER: usize = 1 << 20;
/// Granularity of the search for zeros, which need not be written, in bytes.
const PIECE: usize = 64 << 10;

/// A writer that appends to a device from a given position.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    device: &'a dyn BlockDevice,
    /// True if every byte of the device is zero, so that zeros need not be written.
    zeroed: bool,
    /// Buffer, as large as was needed so far, at most [`BUFFER`].
    buffer: Vec<u8>,
    /// Position of the buffer's first byte on the device.
    start: u64,
    filled: usize,
}

impl<'a> Output<'a> {
    /// Returns a writer at `position` of a device that is all zero.
    pub(crate) fn new(device: &'a dyn BlockDevice, position: u64) -> Self {
        Self {
            device,
            zeroed: true,
            buffer: Vec::new(),
            start: position,
            filled: 0,
        }
    }

    /// Returns a writer at `position` of a device with arbitrary contents.
    pub(crate) fn over(device: &'a dyn BlockDevice, position: u64) -> Self {
        Self {
            zeroed: false,
            ..Self::new(device, position)
        }
    }

    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Sets the position of the next byte; skipped bytes stay unwritten.
    pub(crate) fn seek(&mut self, position: u64) -> Result<()> {
        if position != self.position() {
            self.flush()?;
            self.start = position;
        }
        Ok(())
    }

    /// Returns the number of bytes until the next write. Writes end at multiples of the buffer
    /// size, regardless of the first position.
    pub(crate) fn room(&self) -> usize {
        BUFFER - to_usize(self.start % BUFFER as u64) - self.filled
    }

    /// Appends `length` bytes, at most [`room`](Self::room), that `fill` generates.
    pub(crate) fn append_with(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let end = self.filled + length;
        if self.buffer.len() < end {
            // Small trees should not touch the pages of a whole buffer.
            let mut larger = vec![0; end.next_power_of_two()];
            larger[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
            self.buffer = larger;
        }
        fill(&mut self.buffer[self.filled..end])?;
        self.filled += length;
        if self.room() == 0 {
            self.flush()
        } else {
            Ok(())
        }
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.append_with(now.len(), |place| {
                place.copy_from_slice(now);
                Ok(())
            })?;
            bytes = later;
        }
        Ok(())
    }

    /// Appends zeros up to `position`, which must not be before the current one.
    pub(crate) fn pad_to(&mut self, position: u64) -> Result<()> {
        while self.position() < position {
            let length = self.room().min(
                (position - self.position())
                    .try_into()
                    .unwrap_or(usize::MAX),
            );
            self.append_with(length, |place| {
                place.fill(0);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes the buffered bytes, except long runs of zeros on a device that is all zero.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let filled = &self.buffer[..self.filled];
        let mut from = 0;
        for (number, piece) in filled.chunks(PIECE).enumerate() {
            if self.zeroed && is_zero(piece) {
                let at = number * PIECE;
                self.write(from, at)?;
                from = at + piece.len();
            }
        }
        self.write(from, filled.len())?;
        self.start += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    fn write(&self, from: usize, to: usize) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.device
            .write_at(self.start + from as u64, &self.buffer[from..to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    #[test]
    fn bytes_land_where_they_belong() {
        let device = Memory::zeros(3 * BUFFER);
        let mut out = Output::new(&device, 700);
        let bytes: Vec<u8> = (0..BUFFER + 5000).map(|n| (n % 251) as u8).collect();
        out.append(&bytes[..10]).unwrap();
        out.append(&bytes[10..]).unwrap();
        assert_eq!(out.position(), 700 + bytes.len() as u64);
        out.pad_to(2 * BUFFER as u64 + 3).unwrap();
        out.append(b"end").unwrap();
        out.seek(5).unwrap();
        out.append(b"begin").unwrap();
        out.flush().unwrap();
        assert_eq!(device.read_vec(700, bytes.len()).unwrap(), bytes);
        assert_eq!(
            &device.read_array::<8>(2 * BUFFER as u64).unwrap(),
            b"\0\0\0end\0\0"
        );
        assert_eq!(&device.read_array::<7>(4).unwrap(), b"\0begin\0");
    }

    #[test]
    fn zeros_are_written_over_anything() {
        let device = Memory::from(vec![0xAA; 2 * BUFFER]);
        let mut out = Output::over(&device, 0);
        out.pad_to(BUFFER as u64 + 99).unwrap();
        out.flush().unwrap();
        let written = device.to_vec();
        assert!(
            written
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == if at < BUFFER + 99 { 0 } else { 0xAA })
        );
    }

    #[test]
    fn zeros_are_not_written() {
        let device = Memory::from(vec![0xAA; 2 * BUFFER]);
        let mut out = Output::new(&device, 0);
        out.pad_to(3 * PIECE as u64 + 7).unwrap();
        out.append(b"x").unwrap();
        out.pad_to(BUFFER as u64 + 99).unwrap();
        out.flush().unwrap();
        let written = device.to_vec();
        let at = 3 * PIECE;
        assert!(
            written[..at]
                .iter()
                .chain(&written[at + PIECE..])
                .all(|byte| *byte == 0xAA)
        );
        assert!(
            written[at..at + PIECE]
                .iter()
                .enumerate()
                .all(|(place, byte)| *byte == if place == 7 { b'x' } else { 0 })
        );
    }
}
