//! Corrupt images: told, and never worse for it.

use super::*;

/// Returns the file of an image with a full chunk, a partly written one and an unmapped one.
fn some_chunks() -> Vec<u8> {
    let (file, disk) = in_memory(10 * MIB);
    disk.write_at(0, &Random::new(3).bytes(MIB as usize))
        .unwrap();
    disk.write_at(MIB, &Random::new(4).bytes(5000)).unwrap();
    disk.write_at(2 * MIB, &[1]).unwrap();
    disk.flush().unwrap();
    disk.discard(2 * MIB..3 * MIB, AfterDiscard::Zeros).unwrap();
    disk.flush().unwrap();
    file.to_vec()
}

/// Offsets in `some_chunks`: the table of the disk, its first bitmap entry, the metadata.
const TABLE: usize = 5 << 20;

const BITMAP_ENTRY: usize = TABLE + 8 * 2048;

const SEGMENT: usize = 2 << 20;

#[test]
fn damage_is_reported() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 17] = [
        (
            "a short file",
            |file| file.truncate(500),
            "it has 500 bytes",
        ),
        ("another magic", |file| file[0] = b'x', "invalid signature"),
        (
            "an old shadow file",
            |file| file[7] = 2,
            "an old shadow file",
        ),
        (
            "unknown flags",
            |file| file[0xF] = 8,
            "unknown header flags 0x8",
        ),
        (
            "a file that ends in a directory",
            |file| file.truncate(0x50000),
            "directory 1 ends at byte",
        ),
        (
            "a file that ends before its chunks",
            |file| file.truncate(3 << 20),
            "past the last of the 3",
        ),
        (
            "a table in the header",
            |file| file[0x208..0x210].fill(0xFF),
            "is past the last of",
        ),
        (
            "a reserved bit",
            |file| file[TABLE] |= 0x20,
            "reserved bits",
        ),
        (
            "data without a chunk",
            |file| file[TABLE + 1..TABLE + 8].fill(0),
            "invalid entry: it has data but no chunk number",
        ),
        (
            "zeros with a chunk",
            |file| file[TABLE + 23] = 9,
            "invalid entry: it has no data but a chunk number",
        ),
        (
            "one chunk twice",
            |file| file.copy_within(TABLE..TABLE + 8, TABLE + 24),
            "is referenced twice",
        ),
        (
            "a table as data",
            |file| file[TABLE + 7] = 5,
            "is referenced twice",
        ),
        (
            "no bitmap",
            |file| file[BITMAP_ENTRY..BITMAP_ENTRY + 8].fill(0),
            "a partly written chunk has no bitmap",
        ),
        (
            "a bitmap with a status",
            |file| file[BITMAP_ENTRY] = 0x40,
            "status or reserved bits",
        ),
        (
            "metadata without a magic",
            |file| file[SEGMENT] = 0,
            "invalid segment signature: expected \"meta\"",
        ),
        (
            "metadata that go round",
            |file| file[SEGMENT + 0x18..SEGMENT + 0x1C].fill(0xFF),
            "its segments form a cycle",
        ),
        (
            "metadata on the disk",
            |file| file[SEGMENT + 0x1B] = 1,
            "is not between the disk",
        ),
    ];
    for (name, change, expected) in cases {
        let mut file = some_chunks();
        change(&mut file);
        let error = open(file.clone()).expect_err(name);
        assert!(error.to_string().contains(expected), "{name}: {error}");
        let found = problems_in(file);
        assert!(
            found
                .iter()
                .any(|(severity, text)| *severity == Severity::Damage && text.contains(expected)),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn an_invalid_block_state_is_reported_when_it_is_read() {
    let mut file = some_chunks();
    let bitmap =
        u64::from_be_bytes(file[BITMAP_ENTRY..BITMAP_ENTRY + 8].try_into().unwrap()) as usize;
    file[(bitmap << 20) + 512 + 7] = 0b1100;
    let disk = open(file.clone()).unwrap();
    disk.read_vec(0, MIB as usize).unwrap();
    assert!(
        disk.read_vec(MIB, 1)
            .unwrap_err()
            .to_string()
            .contains("block 29 of a chunk has the invalid state 3")
    );
    assert_eq!(problems_in(file)[0].0, Severity::Damage);
}

/// One bit of an entry says that a full chunk is partly written. Its mask then hides nothing: it says that
/// all blocks are written, or that none ever was, which is damage.
#[test]
fn a_full_chunk_whose_entry_says_that_it_is_partly_written() {
    const LEN: usize = MIB as usize;
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(5).bytes(2 * LEN);
    image.write_at(0, &bytes[..LEN / 2]).unwrap();
    image.flush().unwrap();
    image.write_at(MIB / 2, &bytes[LEN / 2..LEN]).unwrap();
    image.write_at(MIB, &bytes[LEN..]).unwrap();
    image.flush().unwrap();
    drop(image);
    let mut damaged = file.to_vec();
    for at in [TABLE, TABLE + 8] {
        assert_eq!(damaged[at], 0x40, "a full chunk");
        damaged[at] = 0xC0;
    }
    let found = problems_in(damaged.clone());
    assert_eq!(found.len(), 1, "{found:?}");
    let (severity, message) = &found[0];
    assert_eq!(*severity, Severity::Damage);
    assert!(
        message.contains("no written block in its bitmap"),
        "{message}"
    );
    let file = Arc::new(Memory::zeros(damaged.len()));
    file.write_at(0, &damaged).unwrap();
    let image = Asif::open(file).unwrap();
    assert!(image.read_vec(0, LEN).unwrap() == bytes[..LEN]);
    let refused = |done: Result<()>| assert_eq!(done.unwrap_err().kind(), Kind::Corrupt);
    refused(image.read_vec(MIB, 512).map(drop));
    refused(image.write_at(MIB, &[0; 512]));
    refused(image.write_at(MIB + 4096, &[7; 4096]));
}

/// A use without a change keeps data after the last chunk: it may be a chunk whose entry is damaged.
#[test]
fn a_flush_without_a_change_changes_nothing() {
    let (file, image) = in_memory(4 * MIB);
    image.write_at(0, &[7; 4096]).unwrap();
    image.flush().unwrap();
    drop(image);
    file.write_at(TABLE as u64, &[0; 8]).unwrap();
    let damaged = file.to_vec();
    let image = Asif::open(file.clone()).unwrap();
    assert_eq!(image.orphans().unwrap().len(), 1);
    image.flush().unwrap();
    drop(image);
    assert!(file.to_vec() == damaged);
}

/// One bit of an entry says that a partly written chunk is full. What is written to it stays when the bit
/// is corrected.
#[test]
fn a_partly_written_chunk_whose_entry_says_that_it_is_full() {
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(6).bytes(64 << 10);
    for at in [0, MIB] {
        image.write_at(at, &bytes[..4096]).unwrap();
    }
    image.flush().unwrap();
    drop(image);
    let set_states = |state: u8| {
        for at in [TABLE, TABLE + 8] {
            file.write_at(at as u64, &[state]).unwrap();
        }
    };
    assert_eq!(file.to_vec()[TABLE], 0xC0, "a partly written chunk");
    set_states(0x40);
    let image = Asif::open(file.clone()).unwrap();
    image.write_at(8192, &bytes[8192..]).unwrap();
    image.flush().unwrap();
    image.write_at(12_288, &bytes[12_288..]).unwrap();
    image.flush().unwrap();
    drop(image);
    set_states(0xC0);
    assert_eq!(problems_in(file.to_vec()), []);
    let image = Asif::open(file.clone()).unwrap();
    let mut expected = bytes.clone();
    expected[4096..8192].fill(0);
    assert!(image.read_vec(0, bytes.len()).unwrap() == expected);
    // The other chunk was not written, and keeps its mask.
    assert!(image.read_vec(MIB, 4096).unwrap() == bytes[..4096]);
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
}

/// Data in blocks that count as unwritten is found, becomes that of the disk or is removed.
#[test]
fn data_in_unwritten_blocks() {
    const LEN: usize = MIB as usize;
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(7).bytes(2 * LEN);
    for at in [0, MIB] {
        image
            .write_at(at, &bytes[at as usize..][..LEN / 2])
            .unwrap();
    }
    image.flush().unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
    drop(image);
    // The first mask: all but the first four blocks are unwritten. The second: one block is.
    let whole = file.to_vec();
    let number = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().unwrap());
    let bitmap = (number(BITMAP_ENTRY) as usize) << 20;
    assert_eq!(whole[bitmap], 0x55);
    file.write_at(bitmap as u64 + 1, &[0; 511]).unwrap();
    file.write_at(bitmap as u64 + 512, &[0x54]).unwrap();
    let damaged = file.to_vec();
    let hidden = [2048..MIB / 2, MIB..MIB + 512];
    let image = Asif::open(file.clone()).unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), hidden);
    assert_eq!(image.unwritten_data(0).unwrap(), []);
    assert_eq!(image.read_vec(MIB, 512).unwrap(), [0; 512]);
    image.restore_unwritten(&hidden).unwrap();
    drop(image);
    let image = open(file.to_vec()).unwrap();
    for at in [0, LEN] {
        assert!(image.read_vec(at as u64, LEN / 2).unwrap() == bytes[at..at + LEN / 2]);
    }
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);

    let file = Arc::new(Memory::from(damaged));
    let image = Asif::open(file.clone()).unwrap();
    image.clear_unwritten(&hidden).unwrap();
    drop(image);
    let image = open(file.to_vec()).unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
    assert!(image.read_vec(0, 2048).unwrap() == bytes[..2048]);
    assert!(image.read_vec(MIB + 512, 512).unwrap() == bytes[LEN + 512..][..512]);
    assert_eq!(problems_in(file.to_vec()), []);
}

/// A chunk that loses all its written blocks when the disk shrinks is not stored any more.
#[test]
fn a_partly_written_chunk_without_a_written_block_is_removed() {
    let (file, image) = in_memory(4 * MIB);
    image.write_at(MIB + MIB / 2, &[7; 4096]).unwrap();
    image.flush().unwrap();
    image.set_len(MIB + MIB / 4, AfterDiscard::Zeros).unwrap();
    image.set_len(4 * MIB, AfterDiscard::Zeros).unwrap();
    assert!(
        image
            .read_vec(MIB, MIB as usize)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    drop(image);
    assert_eq!(problems_in(file.to_vec()), []);
}

/// The check continues after damage: it still finds the masks of the metadata, and the owner of the
/// last chunk.
#[test]
fn an_impossible_chunk_number_is_reported() {
    let file = some_chunks();
    let table = SEGMENT - MIB as usize;
    let number = |at: &usize| u64::from_be_bytes(file[*at..*at + 8].try_into().unwrap());
    let entries: Vec<_> = (table..SEGMENT)
        .step_by(8)
        .filter(|at| number(at) != 0)
        .collect();
    assert_eq!(entries.len(), 2, "of the metadata and of their bitmap");
    for at in entries.into_iter().chain([TABLE, TABLE + 8, BITMAP_ENTRY]) {
        for cut in [0, 1000] {
            let mut file = file.clone();
            file[at + 1] |= 0x40;
            file.truncate(file.len() - cut);
            assert!(
                open(file.clone())
                    .unwrap_err()
                    .to_string()
                    .contains("is past the last of")
            );
            assert_eq!(problems_in(file)[0].0, Severity::Damage);
        }
    }
}

/// An entry past the end of the disk is not read when the image is opened, but by the check.
#[test]
fn an_impossible_number_of_an_orphan_is_reported() {
    let mut file = some_chunks();
    let beyond = TABLE + 8 * 1500;
    file.copy_within(TABLE..TABLE + 8, beyond);
    file[beyond + 1] |= 0x40;
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file));
    let mut problems = Problems::default();
    let image = asif::check(&file, &mut problems, &Silent).unwrap();
    assert!(problems.worst() >= Some(Severity::Warning), "{problems:?}");
    assert!(image.orphans().unwrap().is_empty());
}

#[test]
fn flags_that_forbid_changes_are_heeded() {
    let mut bytes = some_chunks();
    bytes[0x63] = 4;
    let disk = Asif::open(Arc::new(Memory::from(bytes.clone()))).unwrap();
    assert_eq!(disk.write_at(0, &[1]).unwrap_err().kind(), Kind::ReadOnly);
    conformance::read_only(Arc::new(open(some_chunks()).unwrap()));
    bytes[0x63] = 0;
    bytes[0x6B] = 1;
    let disk = Asif::open(Arc::new(Memory::from(bytes))).unwrap();
    disk.write_at(0, &[1]).unwrap();
    assert_eq!(
        disk.set_user_metadata(plist::Dictionary::new())
            .unwrap_err()
            .kind(),
        Kind::ReadOnly
    );
}

#[test]
fn a_truncated_file_is_never_read_as_zeros() {
    let (file, disk) = in_memory(10 * MIB);
    disk.write_at(0, &Random::new(3).bytes(2 * MIB as usize))
        .unwrap();
    disk.flush().unwrap();
    let mut bytes = file.to_vec();
    bytes.truncate(bytes.len() - 1000);
    let disk = open(bytes.clone()).unwrap();
    disk.read_vec(0, 2 * MIB as usize - 1000).unwrap();
    assert!(
        disk.read_vec(2 * MIB - 1000, 1)
            .unwrap_err()
            .to_string()
            .contains("the file is truncated: it ends at byte")
    );
    assert_eq!(problems_in(bytes)[0].0, Severity::Damage);
}

/// Corrupt headers, directories, tables, bitmaps and metadata cause no panic and no endless loop;
/// images that open can be read, written and flushed, or return an error.
#[test]
fn damaged_images_do_no_harm() {
    let whole = some_chunks();
    let mut random = Random::new(5);
    let mut opened = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..random.within(1..5) {
            let start = [
                0,
                0,
                0x200,
                0x41400,
                0x82448,
                TABLE,
                BITMAP_ENTRY,
                SEGMENT,
                SEGMENT + 0x200,
                7 << 20,
            ];
            let start = start[random.within(0..10) as usize];
            let reach = if random.one_in(2) { 0x20 } else { 0x200 };
            let at = start + random.within(0..reach) as usize;
            bytes[at] = if random.one_in(2) {
                random.number() as u8
            } else {
                bytes[at] ^ 1 << random.within(0..8)
            };
        }
        if random.one_in(8) {
            bytes.truncate(random.within(0..bytes.len() as u64) as usize);
        }
        let found = problems_in(bytes.clone());
        let disk = match open(bytes.clone()) {
            Ok(disk) => disk,
            Err(error) => {
                assert!(
                    found
                        .iter()
                        .any(|(severity, _)| *severity == Severity::Damage),
                    "{error}, but {found:?}"
                );
                continue;
            }
        };
        opened += 1;
        let len = disk.info().len;
        let _wrong = disk.read_vec(0, len.min(4 * MIB) as usize);
        let _wrong = disk.read_vec(len.saturating_sub(5000), 4000.min(len as usize));
        let _wrong = disk.extents(0..len).take(5000).count();
        let Ok(disk) = Asif::open(Arc::new(Memory::from(bytes))) else {
            continue;
        };
        let at = random.within(0..len.clamp(1, 4 * MIB));
        let _wrong = disk.write_at(at, &vec![1; 9000.min(len.saturating_sub(at)) as usize]);
        let _wrong = disk.discard(0..len.min(3 * MIB), AfterDiscard::Zeros);
        let _wrong = disk.flush();
    }
    assert!(
        opened > 20,
        "only {opened} of 200 opened: the damage is too heavy to tell anything"
    );
}

/// A tail may be a chunk with a damaged table entry: it stays in place until it is removed as an
/// orphan.
#[test]
fn a_tail_is_kept_until_it_is_removed() {
    let mut bytes = some_chunks();
    let len = bytes.len();
    bytes.resize(len + (1 << 20), 7);
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes));
    let severities: Vec<_> = problems(&file).into_iter().map(|found| found.0).collect();
    assert_eq!(severities, [Severity::Note]);
    let tail = || file.read_vec(len as u64, 1 << 20).unwrap();

    let image = Asif::open(file.clone()).unwrap();
    let written = image.extent_at(0..image.info().len).unwrap();
    assert_eq!(written.kind, ExtentKind::Data);
    image.write_at(0, &[1; 512]).unwrap();
    image.flush().unwrap();
    assert!(tail() == [7; 1 << 20]);

    for at in 3..10 {
        image.write_at(at * MIB, &vec![2; MIB as usize]).unwrap();
    }
    image.flush().unwrap();
    image.compact(&Silent).unwrap();
    assert!(tail() == [7; 1 << 20]);
    let orphans = image.orphans().unwrap();
    assert_eq!((orphans.len(), orphans[0].len), (1, 1 << 20));
    image.remove_orphans().unwrap();
    image.compact(&Silent).unwrap();
    let severities: Vec<_> = problems(&file).into_iter().map(|found| found.0).collect();
    assert_eq!(severities, []);
}
