//! Tests that compressed contents decode again, at all critical lengths.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::Kind;
use crate::codec::Level;
use crate::decmpfs::contents;
use crate::device::Memory;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::progress::Silent;

const ALL: Bounds = Bounds {
    attribute: MAX_ATTRIBUTE,
    fork: u64::MAX,
};
const METHODS: [Method; 3] = [Method::Zlib, Method::Lzvn, Method::Lzfse];

fn packed(plain: &[u8], method: Method, bounds: Bounds) -> Option<(PackedFile, Vec<u8>)> {
    let packing = PackOptions::new(method, Level::new(5).unwrap()).unwrap();
    let mut fork = Vec::new();
    let mut write = |at: u64, bytes: &[u8]| {
        let end = at as usize + bytes.len();
        fork.resize(fork.len().max(end), 0);
        fork[at as usize..end].copy_from_slice(bytes);
        Ok(())
    };
    let mut read = |at: u64, buf: &mut [u8]| Memory::read_only(plain).read_at(at, buf);
    let packed = pack(
        PlainContents {
            len: plain.len() as u64,
            read: &mut read,
        },
        packing,
        bounds,
        &Silent,
        &mut write,
    )
    .unwrap()?;
    assert!(packed.fork_len == 0 || packed.fork_len == fork.len() as u64);
    Some((packed, fork))
}

fn unpacked(packed: &PackedFile, fork: Vec<u8>) -> Vec<u8> {
    let fork: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(fork));
    let device = contents(&packed.attribute, || Ok(fork)).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

/// Returns text and noise in turn, `step` bytes each.
fn mixed(len: usize, step: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let byte = |at: usize| {
        if (at / step).is_multiple_of(2) {
            b"so it goes, "[at % 12]
        } else {
            noise()
        }
    };
    (0..len).map(byte).collect()
}

#[test]
fn packed_contents_decode_to_their_source() {
    for method in METHODS {
        for len in [1, 100, 3786, 3787, 65_535, 65_536, 65_537, 131_072, 700_001] {
            for step in [1 << 30, 1000, 90_000] {
                let plain = mixed(len, step);
                let (packed, fork) = packed(&plain, method, ALL).unwrap();
                assert!(
                    unpacked(&packed, fork) == plain,
                    "{method}, {len} bytes, {step} of a kind"
                );
                assert!(packed.attribute.len() <= MAX_ATTRIBUTE);
                assert!(len <= 65_536 || packed.fork_len > 0);
            }
        }
    }
}

#[test]
fn contents_that_do_not_shrink_are_not_packed() {
    let noise: Vec<u8> = mixed(400_000, 200_000)[200_000..].to_vec();
    for method in METHODS {
        assert_eq!(
            packed(
                &noise,
                method,
                Bounds {
                    fork: 200_000,
                    ..ALL
                }
            ),
            None
        );
        let text = mixed(5000, 1 << 30);
        let (short, _) = packed(&text, method, ALL).unwrap();
        assert_eq!(short.fork_len, 0);
        let (long, _) = packed(
            &text,
            method,
            Bounds {
                attribute: 20,
                ..ALL
            },
        )
        .unwrap();
        assert!(long.fork_len > 0 && long.attribute.len() == 16);
    }
    let packing = PackOptions::new(Method::Zlib, Level::default()).unwrap();
    let nothing = PlainContents {
        len: 0,
        read: &mut |_, _| Ok(()),
    };
    let empty = pack(nothing, packing, ALL, &Silent, &mut |_, _| Ok(()));
    assert_eq!(empty.unwrap_err().kind(), Kind::Limit);
    assert_eq!(
        PackOptions::new(Method::Lzbitmap, Level::default())
            .unwrap_err()
            .kind(),
        Kind::Unsupported
    );
}

#[test]
fn the_classic_fork_is_as_specified() {
    let plain = mixed(70_000, 1 << 30);
    let (packed, fork) = packed(&plain, Method::Zlib, ALL).unwrap();
    let end = fork.len() - 50;
    let word = |at: usize| u32::from_be_bytes(fork[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(
        [word(0), word(4), word(8), word(12)],
        [0x100, end, end - 0x100, 50]
    );
    assert_eq!(word(0x100), end - 0x104);
    assert_eq!(fork[0x104..0x10C], [2, 0, 0, 0, 20, 0, 0, 0]);
    assert_eq!(
        fork[end + 24..end + 38],
        [0, 0x1C, 0, 50, 0, 0, b'c', b'm', b'p', b'f', 0, 0, 0, 0x0A]
    );
    assert_eq!(fork[end + 38..], [0, 1, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packed.attribute[..5], *b"fpmc\x04");
}

/// Runs `work` on this many cores, which determine the length of a batch.
fn on_cores<T: Send>(cores: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new()
        .num_threads(cores)
        .build()
        .unwrap()
        .install(work)
}

#[test]
fn batches_join_without_a_seam() {
    for method in METHODS {
        let plain = mixed(5 * (1 << 20) + 4321, 70_000);
        let made = [1, 2, 3].map(|cores| on_cores(cores, || packed(&plain, method, ALL).unwrap()));
        assert!(
            made[0] == made[1] && made[1] == made[2],
            "{method}: however many cores"
        );
        let (packed, fork) = made.into_iter().next().unwrap();
        assert!(unpacked(&packed, fork) == plain, "{method}");
    }
}

#[test]
fn a_failure_to_read_or_write_is_reported() {
    let packing = PackOptions::new(Method::Zlib, Level::default()).unwrap();
    let failed = || Error::new(Kind::Io, "test", "no");
    let len = 5 << 20;
    let mut read = |at: u64, buf: &mut [u8]| {
        buf.fill(1);
        if at > 3 << 20 { Err(failed()) } else { Ok(()) }
    };
    let report = on_cores(1, || {
        pack(
            PlainContents {
                len,
                read: &mut read,
            },
            packing,
            ALL,
            &Silent,
            &mut |_, _| Ok(()),
        )
    });
    assert_eq!(report.unwrap_err().kind(), Kind::Io);
    let mut read = |_: u64, buf: &mut [u8]| {
        buf.fill(1);
        Ok(())
    };
    let report = pack(
        PlainContents {
            len,
            read: &mut read,
        },
        packing,
        ALL,
        &Silent,
        &mut |_, _| Err(failed()),
    );
    assert_eq!(report.unwrap_err().kind(), Kind::Io);
}

#[test]
fn every_length_around_the_limits() {
    let noise = mixed(8000, 4000)[4000..].to_vec();
    for method in METHODS {
        for len in (3786 - 40..3786 + 40)
            .chain(65_536 - 20..65_536 + 20)
            .chain(1..40)
        {
            for plain in [
                mixed(len, 1 << 30),
                noise.iter().cycle().take(len).copied().collect(),
            ] {
                let (packed, fork) = packed(&plain, method, ALL).unwrap();
                assert!(
                    packed.attribute.len() <= MAX_ATTRIBUTE
                        && (packed.fork_len == 0) == fork.is_empty()
                );
                assert!(unpacked(&packed, fork) == plain, "{method}, {len} bytes");
            }
        }
    }
    // Noise after a one-byte marker: the last length that fits in the attribute, and the first that
    // does not.
    let fork_len = |len: usize| packed(&noise[..len], Method::Lzvn, ALL).unwrap().0.fork_len;
    assert_eq!(fork_len(3785), 0);
    assert_eq!(fork_len(3786), 8 + 3787);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_length_around_the_limits(near in prop::sample::select(vec![1_usize, 3786, 65_536, 131_072]), by in -40_i32..40, step in 1_usize..9000) {
        let plain = mixed(near.saturating_add_signed(by as isize).max(1), step);
        for method in METHODS {
            let (packed, fork) = packed(&plain, method, ALL).unwrap();
            prop_assert!(unpacked(&packed, fork) == plain);
        }
    }
}
