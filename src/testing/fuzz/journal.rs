//! The journal of an HFS+ volume.

use std::sync::{Arc, OnceLock};

use super::hfsplus::{read_all, sample_with_room};
use crate::device::Memory;
use crate::fs::hfsplus::{add_journal, reseal_journal, sample_journals};

const BLOCK: usize = 4096;
/// Size of the journal in bytes.
const JOURNAL: usize = 16 << 10;

/// Takes an input whose rest is the journal of a valid volume, unchanged if its first byte is even;
/// otherwise the checksums of its header and lists are corrected, to reach the numbers behind them.
/// The volume is refused, or everything in it can be queried, including changes in the journal;
/// nothing is written.
pub fn journal(input: &[u8]) {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let (mut volume, at) = volume().clone();
    let journal = &mut volume[at..][..JOURNAL];
    journal
        .iter_mut()
        .zip(input)
        .for_each(|(byte, new)| *byte = *new);
    if flags % 2 == 1 {
        reseal_journal(journal);
    }
    read_all(Arc::new(Memory::read_only(volume)));
}

/// Returns the sample volume with a journal of zeros, and the offset of the journal in bytes.
fn volume() -> &'static (Vec<u8>, usize) {
    static VOLUME: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    VOLUME.get_or_init(|| {
        let mut volume = sample_with_room(BLOCK as u32, JOURNAL + 4 * BLOCK);
        let at = add_journal(&mut volume, BLOCK, JOURNAL);
        (volume, at)
    })
}

/// Returns journals whose one transaction writes a sector of zeros, and the unchanged volume
/// header, in either byte order.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    sample_journals(&volume().0, JOURNAL)
        .into_iter()
        .map(|journal| [&[1][..], &journal].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FileSystem;
    use crate::fs::hfsplus::HfsPlus;

    #[test]
    fn seeds_are_replayed() {
        for seed in seeds() {
            let (mut volume, at) = volume().clone();
            volume[at..][..seed.len() - 1].copy_from_slice(&seed[1..]);
            let volume = HfsPlus::open(Arc::new(Memory::read_only(volume))).unwrap();
            assert!(volume.problems().is_empty(), "{:?}", volume.problems());
            assert!(volume.volume().journaled && !volume.volume().clean);
        }
    }
}
