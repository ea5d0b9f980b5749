//! The allocation file: one bit per block, the first block in the most significant bit of the first
//! byte.

pub(in crate::hfsplus) use crate::bitmap::set_high_bits as set_bits;
use crate::build::output::Output;
use crate::hfsplus::layout::Extent;
use bandsaw_core::Result;
use bandsaw_core::size::to_usize;

/// Writes the allocation file at the position of `out`, with the bits of `used` set; these extents
/// are in order and not adjacent. Parts that contain no used block are not written.
pub(super) fn write(out: &mut Output<'_>, used: &[Extent]) -> Result<()> {
    /// Bits built at a time, and the minimum that is written: a page of the host.
    const STEP: u64 = 8 << 12;
    let base = out.position();
    let mut step = 0;
    while let Some(next) = used.iter().find(|extent| extent.end() > step) {
        step = step.max(u64::from(next.start.0) / STEP * STEP);
        let mut bytes = vec![0; (STEP / 8) as usize];
        for extent in used {
            let inside = |block: u64| to_usize(block.clamp(step, step + STEP) - step);
            set_bits(
                &mut bytes,
                inside(extent.start.0.into())..inside(extent.end()),
            );
        }
        let bits = used
            .last()
            .map_or(0, |last| last.end().clamp(step, step + STEP) - step);
        bytes.truncate(to_usize(bits.div_ceil(8)));
        out.seek(base + step / 8)?;
        out.append(&bytes)?;
        step += STEP;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hfsplus::layout::AllocBlock;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    #[test]
    fn ranges_of_bits() {
        for start in 0..20 {
            for end in start..24 {
                let mut bytes = [0; 3];
                set_bits(&mut bytes, start..end);
                let bits = (0..24).filter(|bit| bytes[bit / 8] & (0x80 >> (bit % 8)) != 0);
                assert!(bits.eq(start..end), "{start}..{end}: {bytes:x?}");
            }
        }
    }

    #[test]
    fn the_bitmap_of_a_large_volume() {
        let device = Memory::zeros(1 << 20);
        let used = [(0, 3), (1_000_000, 600_000), (8_000_001, 7)].map(|(start, count)| Extent {
            start: AllocBlock(start),
            count,
        });
        let mut out = Output::new(&device, 512);
        write(&mut out, &used).unwrap();
        let bytes = device.read_vec(512, (1 << 20) - 512).unwrap();
        let set = |block: u64| bytes[(block / 8) as usize] & (0x80 >> (block % 8)) != 0;
        for block in 0..8_100_000 {
            let expected = used
                .iter()
                .any(|extent| (u64::from(extent.start.0)..extent.end()).contains(&block));
            assert_eq!(set(block), expected, "{block}");
        }
    }
}
