//! Maps of free space that have the right counts, and free and used space in the wrong places.

use super::*;

fn le(bytes: &[u8], at: usize, len: usize) -> usize {
    let digits = bytes[at..at + len].iter().rev();
    digits.fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Returns the place of the allocation bitmap of the volume on a raw disk.
fn bitmap(bytes: &[u8]) -> std::ops::Range<usize> {
    let sectors = || (0..bytes.len()).step_by(512);
    if let Some(header) = sectors().find(|at| bytes[*at..].starts_with(b"H+\0\x04")) {
        let start = header - 1024 + be(bytes, header + 128, 4) * be(bytes, header + 40, 4);
        return start..start + be(bytes, header + 44, 4) / 8;
    }
    let superblock = sectors().find(|at| is_at(bytes, *at));
    let superblock = superblock.expect("a container");
    // Of all blocks of chunk records, the newest counts.
    let records = (superblock..bytes.len()).step_by(4096);
    let newest = records
        .filter(|at| le(bytes, at + 24, 4) == 0x4000_0007)
        .max_by_key(|at| le(bytes, at + 16, 8))
        .expect("chunk records");
    let start = superblock + 4096 * le(bytes, newest + 64, 8);
    start..start + le(bytes, newest + 56, 4) / 8
}

fn is_at(bytes: &[u8], at: usize) -> bool {
    bytes.get(at + 32..at + 36) == Some(b"NXSB")
}

/// Exchanges eight bytes of used blocks of files and eight of free blocks.
fn exchange(bytes: &mut [u8]) {
    let place = bitmap(bytes);
    let of = |wanted: u8| {
        let runs = place.clone().step_by(8);
        let is_run = |at: &usize| bytes[*at..*at + 8] == [wanted; 8];
        runs.filter(|at| at + 8 <= place.end)
            .filter(is_run)
            .collect::<Vec<_>>()
    };
    let (used, free) = (of(0xFF), of(0));
    let (used, free) = (used[used.len() / 2], free[free.len() / 2]);
    bytes[used..used + 8].fill(0);
    bytes[free..free + 8].fill(0xFF);
}

/// Nothing is freed by a map that calls blocks of files free, and the copy without free blocks is refused.
#[test]
fn an_exchanged_part_of_a_map_frees_nothing() {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    for volume in [
        NewFormat::HfsPlus,
        NewFormat::HfsPlusJournaled,
        NewFormat::Apfs,
    ] {
        let sample = Sample::new(Format::Udrw, volume);
        let expected = sample.contents();
        // What is free now is stored, so that there is something to free.
        let is_free = |sample: &Sample| {
            let image = open::open(&sample.path, &options).unwrap();
            before_use(&image, None, &Silent)
                .unwrap()
                .iter()
                .all(|volume| volume.refused.is_none())
        };
        assert!(is_free(&sample), "{volume:?}");
        let whole = sample.bytes();
        let damaged = sample.edit(|bytes| exchange(bytes));
        assert!(!is_free(&sample), "{volume:?}");
        assert!(sample.bytes() == damaged, "{volume:?}: before a use");
        let image = open::open(&sample.path, &options).unwrap();
        let trimmed = trim(&image, None, &Silent).unwrap();
        let refused = trimmed.volumes[0].refused.as_ref().unwrap();
        assert_eq!(refused.kind(), Kind::Corrupt, "{volume:?}: {refused}");
        drop(image);
        assert!(sample.bytes() == damaged, "{volume:?}: trim");
        let plan = sample.plan();
        assert!(!plan.refused.is_empty(), "{volume:?}: {plan:?}");
        assert!(!sample.compact().refused.is_empty(), "{volume:?}");
        assert!(sample.bytes() == damaged, "{volume:?}: compact");
        let image = open::open(&sample.path, &OpenOptions::default()).unwrap();
        let target = ConvertOptions {
            skip_free: true,
            format: Format::Udrw,
            ..ConvertOptions::default()
        };
        let copy = sample.folder.path().join("copy");
        let error = convert(&image, &copy, &target, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{volume:?}: {error}");
        assert!(!copy.exists());
        drop(image);
        fs::write(&sample.path, whole).unwrap();
        assert_eq!(sample.contents(), expected, "{volume:?}");
    }
}
