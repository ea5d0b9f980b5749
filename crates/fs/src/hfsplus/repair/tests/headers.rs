//! Repairs of the volume header and the journal.

use super::*;

/// Returns a patient with a byte of its primary volume header changed by `flip`.
fn with_header_byte(at: usize, flip: u8) -> (Sample, Vec<u8>) {
    let mut sample = Sample::new(false);
    let sound = sample.bytes.clone();
    sample.bytes[1024 + at] ^= flip;
    (sample, sound)
}

#[test]
fn the_volume_header_that_agrees_with_the_volume_wins() {
    // Descriptors, starts and lengths of extents, block counts and sizes of all five files; sizes
    // of the volume.
    let bytes = [
        136, 131, 135, 127, 119, 216, 211, 215, 207, 199, 304, 291, 295, 287, 279, 384, 371, 375,
        367, 359, 456, 447,
    ];
    for at in bytes.into_iter().chain([42, 46, 1, 3]) {
        for flip in [0x08, 0x01] {
            let (sample, sound) = with_header_byte(at, flip);
            let found = sample.check();
            assert!(found.iter().any(is_wrong), "byte {at} of the header");
            let device = Arc::new(Memory::from(sample.bytes));
            let repair = Repair::plan(device.clone(), &Silent)
                .unwrap_or_else(|error| panic!("byte {at}: {error}"));
            repair
                .apply(&Silent)
                .unwrap_or_else(|error| panic!("byte {at}: {error}"));
            let bytes = device.to_vec();
            // Everything except the clean mark, the last writer and the write count is unchanged in
            // both headers.
            for place in [1024, bytes.len() - 1024] {
                let (was, is) = (&sound[place..place + 512], &bytes[place..place + 512]);
                assert_eq!(
                    (&was[..4], &was[12..68], &was[72..]),
                    (&is[..4], &is[12..68], &is[72..]),
                    "byte {at}"
                );
            }
            assert!(check(device, &Silent).unwrap().is_empty(), "byte {at}");
        }
    }
}

#[test]
fn headers_that_nothing_decides_between_are_left_to_the_user() {
    let mut sample = Sample::new(false);
    let before = sample.bytes.clone();
    // A startup file on blocks that are in use, described only by the alternate header.
    let at = sample.bytes.len() - 1024;
    let catalog = sample.fork(Cnid::CATALOG);
    let mut startup = ForkRaw {
        total_blocks: 1.into(),
        logical_size: 4096.into(),
        ..ForkRaw::default()
    };
    startup.extents[0].start_block = catalog.extents[0].start_block;
    startup.extents[0].block_count = 1.into();
    sample.bytes[at + 432..at + 512].copy_from_slice(zerocopy::IntoBytes::as_bytes(&startup));
    let damaged = sample.bytes.clone();
    let device = Arc::new(Memory::from(sample.bytes));
    let error = Repair::plan(device.clone(), &Silent).unwrap_err();
    let assumptions: Vec<_> = Undecided::of(&error)
        .iter()
        .map(|alternative| alternative.assume.as_str())
        .collect();
    assert_eq!(
        (error.kind(), &assumptions[..]),
        (Kind::Undecided, &["header=primary", "header=alternate"][..]),
        "{error}"
    );
    assert_eq!(device.to_vec(), damaged);
    let spill = Arc::new(Spill::to(platform::temporary_folder()));
    Repair::plan_on(device.clone(), Some(CopyChoice::Primary), &spill, &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    let bytes = device.to_vec();
    assert_eq!(bytes[at + 112..at + 512], before[at + 112..at + 512]);
    assert!(check(device, &Silent).unwrap().is_empty());
}

#[test]
fn interrupted_changes_are_not_rebuilt_around() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    volume
        .create(
            volume.root(),
            "a file of the mount",
            &NewNode::new(NewKind::File),
        )
        .unwrap();
    volume.sync().unwrap();
    let crashed = Arc::new(Memory::from(device.to_vec()));
    let error = Repair::plan(crashed.clone(), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    HfsPlusMut::open(crashed.clone(), WriteOptions::default())
        .unwrap()
        .unmount()
        .unwrap();
    assert!(!Repair::plan(crashed.clone(), &Silent).unwrap().is_needed());
    assert_eq!(files_in(&crashed), 120);
}

#[test]
fn a_journal_without_its_files_is_given_up() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    HfsPlusMut::open(device.clone(), WriteOptions::default())
        .unwrap()
        .enable_journal(None)
        .unwrap();
    let mut sample = Sample {
        bytes: device.to_vec(),
    };
    assert!(sample.check().is_empty());
    // Its blocks belong to a file that can be deleted, and the next mount would overwrite the file
    // that gets them.
    sample.file(".journal", |raw| raw.user_info.file_type = *b"abcd");
    sample.flip(2000);
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    let volume = HfsPlus::open(device.clone()).unwrap().volume();
    assert!(!volume.journaled && volume.clean);
    assert_eq!(files_in(&device), 120);
}

#[test]
fn a_header_with_noise_in_an_unused_extent_is_wrong() {
    let sound = Sample::new(false).bytes;
    let whole = items(sound.clone());
    // The second extent of the attributes file, which has only one, in either header.
    for header in [HEADER_OFFSET as usize, sound.len() - HEADER_OFFSET as usize] {
        let mut bytes = sound.clone();
        bytes[header + 379] ^= 0x80;
        let device = Arc::new(Memory::from(bytes));
        let repair = Repair::plan(device.clone(), &Silent).unwrap();
        assert!(repair.is_needed(), "{header}");
        assert!(repair.losses().is_empty(), "{:?}", repair.losses());
        repair.apply(&Silent).unwrap();
        assert!(items(device.to_vec()) == whole, "{header}");
        assert!(check(device, &Silent).unwrap().is_empty(), "{header}");
    }
}
