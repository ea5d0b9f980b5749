//! Chunks of ASIF images that belong to no part of the disk.

use super::*;

#[test]
fn a_first_chunk_without_an_entry_is_not_written_anew() {
    for volume in [NewFormat::HfsPlus, NewFormat::Apfs] {
        let sample = Sample::new(Format::Asif, volume);
        let expected = sample.contents();
        let (first, _) = entries(&sample.bytes())[0];
        let whole = sample.bytes();
        let damaged = sample.edit(|bytes| bytes[first..first + 8].fill(0));
        // The data becomes the first chunk again, as all volumes are in order then and only then.
        let done = sample.repair(&[]);
        assert_eq!(done.outcome, Outcome::Repaired, "{volume:?}: {done:?}");
        assert_eq!(sample.contents(), expected, "{volume:?}");
        sample.undo();
        assert!(sample.bytes() == damaged, "{volume:?}");
        // Another chunk without an entry: nothing decides between the two.
        let (other, _) = entries(&whole)[3];
        let damaged = sample.edit(|bytes| bytes[other..other + 8].fill(0));
        for assume in [&[][..], &["orphans=restore"]] {
            let done = sample.repair(assume);
            assert_eq!(done.outcome, Outcome::Undecided, "{volume:?}: {done:?}");
            assert!(sample.bytes() == damaged, "{volume:?}");
        }
    }
}

#[test]
fn a_chunk_without_an_entry_stays() {
    for volume in [NewFormat::HfsPlus, NewFormat::Apfs] {
        let sample = Sample::new(Format::Asif, volume);
        let entries = entries(&sample.bytes());
        let (at, _) = entries[entries.len() / 2];
        let damage = |bytes: &mut Vec<u8>| bytes[at..at + 8].fill(0);
        check_lost_reference(&sample, damage, &format!("{volume:?}"));
    }
}

/// The last chunk of the files is partly written, as its bitmap says: it becomes so again.
#[test]
fn a_partly_written_chunk_without_an_entry_stays() {
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let bytes = sample.bytes();
    // The entry before those of the end of the disk.
    let entries = entries(&bytes);
    let is_partial = |at: usize| bytes[at] >> 6 == 3;
    let partial: Vec<_> = entries.iter().filter(|(at, _)| is_partial(*at)).collect();
    let of_files = partial.iter().rev().find(|(at, _)| {
        let before = at - 8;
        be(&bytes, before, 8) != 0 && !is_partial(before)
    });
    let at = of_files.unwrap().0;
    let damage = |bytes: &mut Vec<u8>| bytes[at..at + 8].fill(0);
    check_lost_reference(&sample, damage, "partly written");
}

/// Makes a full chunk of the image a partly written one, of which an older bitmap, as macOS leaves it,
/// says that only its first block was written.
fn hide_blocks(bytes: &mut [u8]) {
    let entries = entries(bytes);
    let full = entries.iter().filter(|(at, _)| bytes[*at] >> 6 == 1);
    let (at, _) = *full.clone().nth(full.count() / 2).unwrap();
    let table = entries[0].0;
    let bitmap = be(bytes, table + 8 * 2048, 8) * MIB;
    assert_ne!(bitmap, 0);
    bytes[bitmap + (at - table) / 8 * 512] = 1;
    bytes[at] |= 0x80;
}

/// Blocks that a volume uses read as zeros, because their chunk marks them as never written, and the file
/// has data for them: no verb writes to the image until a repair has decided.
#[test]
fn data_in_blocks_that_count_as_unwritten_stays() {
    let writing = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    for volume in [
        NewFormat::HfsPlus,
        NewFormat::HfsPlusJournaled,
        NewFormat::Apfs,
    ] {
        let sample = Sample::new(Format::Asif, volume);
        let expected = sample.contents();
        let damaged = sample.edit(|bytes| hide_blocks(bytes));
        assert_ne!(sample.contents(), expected, "{volume:?}");
        let error = open::open(&sample.path, &writing).unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{volume:?}: {error}");
        assert_eq!(sample.check(), (Some(Severity::Warning), true));
        let done = sample.repair(&[]);
        assert_eq!(alternatives(&done), ["orphans=restore", "orphans=remove"]);
        assert!(sample.bytes() == damaged, "{volume:?}");

        let done = sample.repair(&["orphans=remove"]);
        assert_eq!(done.outcome, Outcome::Repaired, "{volume:?}: {done:?}");
        assert_eq!(sample.check(), (None, false), "{volume:?}");
        sample.undo();
        assert!(sample.bytes() == damaged, "{volume:?}");
        let done = sample.repair(&["orphans=restore"]);
        assert_eq!(done.outcome, Outcome::Repaired, "{volume:?}: {done:?}");
        assert_eq!(sample.check(), (None, false), "{volume:?}");
        assert_eq!(sample.contents(), expected, "{volume:?}");
        drop(open::open(&sample.path, &writing).unwrap());
    }
}

/// The volume is found only with the data of the blocks: they become written ones without a choice.
#[test]
fn unwritten_blocks_of_a_volume_that_is_not_found_without_them() {
    let sample = Sample::new(Format::Asif, NewFormat::Apfs);
    let expected = sample.contents();
    let damaged = sample.edit(|bytes| {
        let table = entries(bytes)[0].0;
        assert_eq!(bytes[table] >> 6, 3, "a partly written chunk");
        let bitmap = be(bytes, table + 8 * 2048, 8) * MIB;
        bytes[bitmap + 9..bitmap + 256].fill(0);
    });
    let writing = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let error = open::open(&sample.path, &writing).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    assert!(sample.bytes() == damaged);
    let done = sample.repair(&[]);
    assert_eq!(done.outcome, Outcome::Repaired, "{done:?}");
    assert_eq!(sample.contents(), expected);
    sample.undo();
    assert!(sample.bytes() == damaged);
}

/// A damaged version makes the older directory of an ASIF image count, with which the disk is blank.
#[test]
fn the_other_directory_is_found() {
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let expected = sample.contents();
    let damaged = sample.edit(|bytes| {
        let directories = [be(bytes, 0x10, 8), be(bytes, 0x18, 8)];
        let older = directories
            .into_iter()
            .min_by_key(|at| be(bytes, *at, 8))
            .unwrap();
        bytes[older + 4] ^= 1;
    });
    assert_eq!(sample.check().0, Some(Severity::Damage));
    let image = open::open(&sample.path, &OpenOptions::default()).unwrap();
    assert_eq!(image.volumes().len(), 1);
    let warnings = image.warnings();
    assert!(
        warnings.iter().any(|text| text.contains("directory")),
        "{warnings:?}"
    );
    drop(image);
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let error = open::open(&sample.path, &options).unwrap_err();
    assert_eq!(error.kind(), bandsaw::Kind::Undecided, "{error}");
    assert!(sample.bytes() == damaged);
    let done = sample.repair(&[]);
    assert_eq!(done.outcome, Outcome::Repaired, "{done:?}");
    assert_eq!(sample.contents(), expected);
    assert_eq!(sample.check(), (None, false));
    sample.undo();
    assert!(sample.bytes() == damaged);
}

/// A killed growth leaves a disk that is longer than its map says. The map is whole at its former length
/// and the volume is sound, so the end of the file is in no doubt.
#[test]
fn the_end_of_a_disk_that_was_growing_is_in_no_doubt() {
    let grow = |sample: &Sample| {
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let image = open::open(&sample.path, &options).unwrap();
        let grow = ResizeOptions {
            size: Size::Bytes(40 << 20),
            parts: Parts::All,
            volume: None,
            dry_run: false,
        };
        resize(&image, &grow, &Silent)
    };
    // The disk has 20 MiB, its map 12.
    let longer = |bytes: &mut Vec<u8>| {
        let blocks = (20_u64 << 20) / 512;
        bytes[0x30..0x38].copy_from_slice(&blocks.to_be_bytes());
    };
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let expected = sample.contents();
    sample.edit(|bytes| {
        longer(bytes);
        bytes.resize(bytes.len() + MIB, 0);
    });
    let done = sample.repair(&[]);
    assert_eq!(done.outcome, Outcome::Repaired, "{done:?}");
    let mut steps = done.steps.iter().map(|(_, step)| step.to_string());
    assert!(steps.any(|step| step.contains("the file is truncated")));
    assert_eq!(sample.contents(), expected);
    grow(&sample).unwrap();
    assert_eq!(sample.contents(), expected);

    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let past_end = |bytes: &mut Vec<u8>| {
        let table = entries(bytes)[0].0;
        let chunk = bytes.len().div_ceil(MIB);
        bytes.resize(chunk * MIB, 0);
        bytes.extend(Random::new(5).bytes(MIB));
        let entry = 1 << 62 | chunk as u64;
        bytes[table + 8 * 25..][..8].copy_from_slice(&entry.to_be_bytes());
    };
    sample.edit(|bytes| {
        longer(bytes);
        past_end(bytes);
    });
    grow(&sample).unwrap();
    assert_eq!(sample.contents(), expected);

    // A volume that is not sound decides nothing.
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let damaged = sample.edit(|bytes| {
        longer(bytes);
        past_end(bytes);
        let is_header = |at: &usize| bytes[*at..].starts_with(b"H+\0\x04");
        let headers: Vec<_> = (0..bytes.len()).step_by(512).filter(is_header).collect();
        assert!(!headers.is_empty());
        for header in headers {
            // The number of files.
            bytes[header + 32..header + 36].fill(0xFF);
        }
    });
    let error = grow(&sample).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    assert!(sample.bytes() == damaged);
}
