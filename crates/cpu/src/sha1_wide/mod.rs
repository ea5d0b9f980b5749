//! HMAC-SHA1 of many numbers in parallel, each in a 32-bit lane of wide registers: a register holds
//! word `i` of all of them.

use super::CELL;

mod eight;
mod sixteen;

/// SHA-1 in the lanes of wide registers.
#[derive(Debug, Clone, Copy)]
pub struct WideSha1(Lanes);

#[derive(Debug, Clone, Copy)]
enum Lanes {
    /// AVX-512.
    Sixteen,
    /// AVX2.
    Eight,
}

impl WideSha1 {
    /// Returns a value if this processor has the instructions for sixteen lanes.
    pub fn sixteen() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"))
            .then_some(Self(Lanes::Sixteen))
    }

    /// Returns a value if this processor has the instructions for eight lanes.
    pub fn eight() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(Lanes::Eight))
    }

    /// Computes the first 16 bytes of HMAC-SHA1 of each number from `first` on, 32 bits big-endian.
    /// `inner` and `outer` are the states of the key's two pads.
    pub fn number_macs(
        self,
        inner: &[u32; 5],
        outer: &[u32; 5],
        first: u32,
        macs: &mut [[u8; CELL]],
    ) {
        match self.0 {
            Lanes::Sixteen => fill(first, macs, |number| {
                // SAFETY: AVX-512F and BW were detected, or `self` would not say so.
                unsafe { sixteen::number_macs(inner, outer, number) }
            }),
            Lanes::Eight => fill(first, macs, |number| {
                // SAFETY: AVX2 was detected, or `self` would not say so.
                unsafe { eight::number_macs(inner, outer, number) }
            }),
        }
    }
}

/// Fills in the MACs of the numbers from `first` on, `L` at a time.
fn fill<const L: usize>(
    first: u32,
    macs: &mut [[u8; CELL]],
    from: impl Fn(u32) -> [[u8; CELL]; L],
) {
    let mut number = first;
    for macs in macs.chunks_mut(L) {
        macs.copy_from_slice(&from(number)[..macs.len()]);
        number = number.wrapping_add(L as u32);
    }
}

/// Defines `compress`: one compression in each lane, for a message of `N` words after a pad of 64
/// bytes. It is a separate, unrolled function for each `N`, so that the compiler folds the constant
/// parts of the padded block. The operations on registers are functions in scope of the expansion;
/// `choose`, `parity` and `majority` are those of FIPS 180-4, 4.1.1.
macro_rules! compress {
    ($register:ty, $features:literal) => {
        #[inline]
        #[target_feature(enable = $features)]
        fn compress<const N: usize>(start: [$register; 5], words: [$register; N]) -> [$register; 5] {
            let mut message = [splat(0); 16];
            message[..N].copy_from_slice(&words);
            message[N] = splat(0x8000_0000);
            message[15] = splat((64 + 4 * N as u32) * 8);
            let mut state = start;
            rounds!(state, message, choose, 0x5A82_7999: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
            rounds!(state, message, parity, 0x6ED9_EBA1: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
            rounds!(state, message, majority, 0x8F1B_BCDC: 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
            rounds!(state, message, parity, 0xCA62_C1D6: 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
            std::array::from_fn(|word| add(start[word], state[word]))
        }
    };
}

macro_rules! rounds {
    ($state:ident, $message:ident, $mix:ident, $constant:literal: $($round:literal)*) => { $({
        const AT: usize = $round % 16;
        if $round >= 16 {
            let early = xor($message[(AT + 2) % 16], $message[AT]);
            let late = xor($message[(AT + 13) % 16], $message[(AT + 8) % 16]);
            $message[AT] = left_1(xor(early, late));
        }
        let [a, b, c, d, e] = $state;
        let added = add(add($message[AT], splat($constant)), e);
        $state = [add(add($mix(b, c, d), added), left_5(a)), a, left_30(b), c, d];
    })* };
}

use {compress, rounds};
