//! Zeroing, comparing and copying regions of a device. Holes are neither read nor written.

use std::ops::Range;

use super::{AfterDiscard, BlockDevice, ExtentKind, is_zero as is_zero_slice};
use crate::Result;
use crate::size::to_usize;

/// Bytes read at a time.
const PIECE: u64 = 256 << 10;

/// Makes `range` read as zeros. Cheap if it does already.
pub fn blank(device: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        // One byte only: some hosts are slow to find the end of data (tmpfs walks all pages), and
        // discarding the holes after it costs no more than finding them.
        if device.extent_at(at..at + 1)?.kind == ExtentKind::Data {
            return device.discard(at..range.end, AfterDiscard::Zeros);
        }
        at += device.extent_at(at..range.end)?.len;
    }
    Ok(())
}

/// Returns true if `range` reads as zeros. Bytes past the end of the device count as zeros.
pub fn is_zero(device: &dyn BlockDevice, range: Range<u64>) -> Result<bool> {
    let end = range.end.min(device.info().len);
    let (mut at, mut buf) = (range.start, Vec::new());
    while at < end {
        let extent = device.extent_at(at..end)?;
        let len = if extent.kind == ExtentKind::Data {
            extent.len.min(PIECE)
        } else {
            extent.len
        };
        if extent.kind == ExtentKind::Data {
            buf.resize(to_usize(len), 0);
            device.read_at(at, &mut buf)?;
            if !is_zero_slice(&buf) {
                return Ok(false);
            }
        }
        at += len;
    }
    Ok(true)
}

/// Returns true if the `len` bytes at `one` and at `other` are equal. Bytes past the end of the
/// device count as zeros.
pub fn are_equal(device: &dyn BlockDevice, one: u64, other: u64, len: u64) -> Result<bool> {
    let device_len = device.info().len;
    let (mut done, mut left, mut right) = (0, Vec::new(), Vec::new());
    while done < len {
        let inside = |start: u64| (start + done).min(device_len)..(start + len).min(device_len);
        let (a, b) = (inside(one), inside(other));
        if a.is_empty() || b.is_empty() {
            return Ok(is_zero(device, a)? && is_zero(device, b)?);
        }
        let (first, second) = (device.extent_at(a.clone())?, device.extent_at(b.clone())?);
        let mut piece = first.len.min(second.len);
        if first.kind == ExtentKind::Data || second.kind == ExtentKind::Data {
            piece = piece.min(PIECE);
            left.resize(to_usize(piece), 0);
            right.resize(to_usize(piece), 0);
            device.read_at(a.start, &mut left)?;
            device.read_at(b.start, &mut right)?;
            if left != right {
                return Ok(false);
            }
        }
        done += piece;
    }
    Ok(true)
}

/// Copies `len` bytes from `from` to `to`, which must not overlap. Preserves holes.
pub fn copy(device: &dyn BlockDevice, from: u64, to: u64, len: u64) -> Result<()> {
    let (mut done, mut buf) = (0, Vec::new());
    while done < len {
        let extent = device.extent_at(from + done..from + len)?;
        let end = done + extent.len;
        if extent.kind != ExtentKind::Data {
            blank(device, to + done..to + end)?;
            done = end;
        }
        while done < end {
            let piece = PIECE.min(end - done);
            buf.resize(to_usize(piece), 0);
            device.read_at(from + done, &mut buf)?;
            device.write_at(to + done, &buf)?;
            done += piece;
        }
    }
    Ok(())
}

/// Sets the length and the contents of `target` to those of `source`. Preserves holes.
pub fn copy_all(source: &dyn BlockDevice, target: &dyn BlockDevice) -> Result<()> {
    let len = source.info().len;
    target.set_len(0, AfterDiscard::Zeros)?;
    target.set_len(len, AfterDiscard::Zeros)?;
    let (mut at, mut buf) = (0, Vec::new());
    while at < len {
        let extent = source.extent_at(at..len)?;
        let piece = if extent.kind == ExtentKind::Data {
            extent.len.min(PIECE)
        } else {
            extent.len
        };
        if extent.kind == ExtentKind::Data {
            buf.resize(to_usize(piece), 0);
            source.read_at(at, &mut buf)?;
            target.write_at(at, &buf)?;
        }
        at += piece;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Memory};

    #[test]
    fn a_copy_has_the_same_length_and_bytes() {
        let (source, target) = (striped(), Memory::from(vec![9; 3 << 20]));
        copy_all(&source, &target).unwrap();
        assert!(target.to_vec() == source.to_vec());
    }

    fn striped() -> Memory {
        let device = Memory::zeros(2 << 20);
        device.write_at(1000, &[7; 300_000]).unwrap();
        device
    }

    #[test]
    fn a_blank_region_is_zero() {
        let device = striped();
        assert!(is_zero(&device, 0..1000).unwrap() && !is_zero(&device, 0..1001).unwrap());
        assert!(
            is_zero(&device, 301_000..9 << 20).unwrap(),
            "what is not there is zero"
        );
        blank(&device, 1000..200_000).unwrap();
        assert!(is_zero(&device, 0..200_000).unwrap() && !is_zero(&device, 0..200_001).unwrap());
    }

    #[test]
    fn a_copy_is_equal() {
        let device = striped();
        assert!(!are_equal(&device, 0, 1 << 20, 400_000).unwrap());
        copy(&device, 0, 1 << 20, 400_000).unwrap();
        assert!(are_equal(&device, 0, 1 << 20, 400_000).unwrap());
        assert_eq!(device.read_vec((1 << 20) + 999, 3).unwrap(), [0, 7, 7]);
        assert!(
            are_equal(&device, 400_000, (2 << 20) - 1000, 5000).unwrap(),
            "past the end there are zeros"
        );
        assert!(!are_equal(&device, 1000, (2 << 20) - 1000, 5000).unwrap());
    }
}
