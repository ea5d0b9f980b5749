//! Inverse of the block sorting (Burrows-Wheeler transform).
//!
//! Each row of the sorted rotations has a successor; the path through all rows spells the block.
//! Each step waits for memory, because the rows are spread all over it. So the path is cut at some
//! rows, and several stretches are walked in parallel.

use std::slice;

/// Number of stretches walked in parallel.
const LANES: usize = 8;
/// Number of rows at which the path is cut: many, so that few lanes are idle at the end.
const CUTS: usize = 256;
/// A row is its byte, and above that the index of its successor. This bit marks a cut.
const CUT: u32 = 1 << 31;
const ROW: u32 = (1 << 20) - 1;

/// A block being decoded. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    rows: Vec<u32>,
    counts: RotationCounts,
    /// Output of the lanes, step by step.
    spelt: Vec<[u8; LANES]>,
}

#[derive(Debug)]
struct RotationCounts([u32; 256]);

impl Default for RotationCounts {
    fn default() -> Self {
        Self([0; 256])
    }
}

/// A part of the path, from one cut to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    lane: usize,
    /// Range of steps of the lane.
    from: usize,
    to: usize,
    /// The row at its end.
    end: u32,
}

/// Iterator over the bytes of a stretch.
#[derive(Debug)]
pub(super) struct Spelt<'a> {
    steps: slice::Iter<'a, [u8; LANES]>,
    lane: usize,
}

impl Iterator for Spelt<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.steps.next().map(|step| step[self.lane % LANES])
    }
}

impl Sorted {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.counts = RotationCounts::default();
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Appends `count` rows with the last byte `byte`.
    #[inline]
    pub(super) fn push(&mut self, byte: u8, count: usize) {
        self.counts.0[usize::from(byte)] += count as u32;
        if count == 1 {
            self.rows.push(byte.into());
        } else {
            self.rows.resize(self.rows.len() + count, byte.into());
        }
    }

    /// Passes the block to `take`, stretch by stretch. `first` is the row of the unrotated block;
    /// it must be below the number of rows, which must be below 2^20.
    pub(super) fn spell<E>(
        &mut self,
        first: usize,
        mut take: impl FnMut(Spelt<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let len = self.rows.len();
        debug_assert!(first < len && len < ROW as usize);
        self.link();
        let start = self.rows[first] >> 8 & ROW;
        let (cuts, stretches) = self.walk(start);
        let (mut left, mut row) = (len, start);
        while left > 0 {
            let Some(stretch) = cuts.binary_search(&row).ok().map(|n| stretches[n]) else {
                break;
            };
            let steps = (stretch.to - stretch.from).min(left);
            take(Spelt {
                steps: self.spelt[stretch.from..stretch.from + steps].iter(),
                lane: stretch.lane,
            })?;
            left -= steps;
            row = stretch.end;
        }
        Ok(())
    }

    /// Stores the successor in each row.
    fn link(&mut self) {
        let mut next = [0; 256];
        let mut sum = 0;
        for (next, count) in next.iter_mut().zip(self.counts.0) {
            *next = sum;
            sum += count;
        }
        for row in 0..self.rows.len() {
            let next = &mut next[usize::from(self.rows[row] as u8)];
            self.rows[*next as usize] |= (row as u32) << 8;
            *next += 1;
        }
    }

    /// Walks all stretches. Returns the sorted cuts, and the stretch that starts at each.
    fn walk(&mut self, start: u32) -> (Vec<u32>, Vec<Stretch>) {
        let len = self.rows.len();
        let mut cuts: Vec<_> = (0..CUTS)
            .map(|n| (n * len / CUTS) as u32)
            .chain([start])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        for &cut in &cuts {
            self.rows[cut as usize] |= CUT;
        }
        // A row for idle lanes, which is its own successor.
        let rest = len as u32;
        self.rows.push(rest << 8);

        let mut stretches = vec![Stretch::default(); cuts.len()];
        let (mut begun, mut ended) = (0, 0);
        let (mut lanes, mut walked) = ([rest << 8; LANES], [usize::MAX; LANES]);
        let mut begin = |lane: usize, step: usize, rows: &[u32], stretches: &mut [Stretch]| {
            let Some(&cut) = cuts.get(begun) else {
                return (rest << 8, usize::MAX);
            };
            stretches[begun] = Stretch {
                lane,
                from: step,
                to: step,
                end: cut,
            };
            begun += 1;
            (rows[cut as usize] & !CUT, begun - 1)
        };
        for lane in 0..LANES {
            (lanes[lane], walked[lane]) = begin(lane, 0, &self.rows, &mut stretches);
        }
        self.spelt.clear();
        while ended < cuts.len() {
            self.spelt.push(lanes.map(|row| row as u8));
            let before = lanes;
            lanes = lanes.map(|row| self.rows[(row >> 8) as usize]);
            if lanes.iter().fold(0, |all, row| all | row) & CUT == 0 {
                continue;
            }
            let step = self.spelt.len();
            for lane in 0..LANES {
                if lanes[lane] & CUT != 0 {
                    let stretch = &mut stretches[walked[lane]];
                    (stretch.to, stretch.end) = (step, before[lane] >> 8);
                    ended += 1;
                    (lanes[lane], walked[lane]) = begin(lane, step, &self.rows, &mut stretches);
                }
            }
        }
        (cuts, stretches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the last bytes of the sorted rotations of `block`, and the index of `block` itself.
    fn sort(block: &[u8]) -> (Vec<u8>, usize) {
        let twice = block.repeat(2);
        let mut rotations: Vec<_> = (0..block.len()).collect();
        rotations.sort_by_key(|&at| &twice[at..at + block.len()]);
        let last = rotations
            .iter()
            .map(|at| twice[at + block.len() - 1])
            .collect();
        (last, rotations.iter().position(|&at| at == 0).unwrap())
    }

    #[test]
    fn what_was_sorted_is_spelt() {
        let mixed: Vec<u8> = (0..3000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 7)
            .collect();
        let mut sorted = Sorted::default();
        for block in [
            &b"a"[..],
            b"ab",
            b"banana",
            &[7; 300],
            &b"abc".repeat(200),
            &mixed,
            &mixed[..255],
            &mixed[..257],
        ] {
            let (last, first) = sort(block);
            sorted.clear();
            last.iter().for_each(|&byte| sorted.push(byte, 1));
            assert_eq!(sorted.len(), block.len());
            let mut spelt = Vec::new();
            sorted
                .spell(first, |piece| {
                    spelt.extend(piece);
                    Ok::<_, ()>(())
                })
                .unwrap();
            assert!(spelt == block, "{} bytes", block.len());
        }
    }
}
