//! Partition maps that are repaired from their other copy.

use super::*;

#[test]
fn a_map_on_a_disk_that_has_grown() {
    let small = Memory::zeros(300 * 512);
    let partition = NewPartition {
        range: 40 * 512..200 * 512,
        type_guid: APPLE_HFS,
        guid: Guids::derived("x").partition,
        name: "x".into(),
    };
    gpt::create(&small, 512, Guids::derived("x").disk, &[partition]).unwrap();
    let mut bytes = small.to_vec();
    bytes.resize(1000 * 512, 0);
    let store = store_of(&bytes);
    let (disk, expected, begun) = (file(&store), partitions(&*file(&store)), store.position());
    let parts = gpt::repair(&*disk).unwrap();
    assert!(parts.primary && parts.backup && parts.protective_mbr);
    for crash in crashes(&store, begun) {
        let disk = file(&crash);
        assert_eq!(partitions(&*disk), expected);
        gpt::repair(&*disk).unwrap();
        let mut problems = Problems::default();
        partition::check(&*disk, &mut problems).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
    }
    assert!(
        disk.read_vec(299 * 512, 512)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0),
        "the old backup is gone"
    );
    // Data at the end is not overwritten.
    bytes[990 * 512] = 7;
    let disk = Memory::from(bytes.clone());
    let (parts, refused) = gpt::repair_with(&disk, Search::Announced, None).unwrap();
    assert!(
        refused[0].message().contains("not blank") && !parts.backup,
        "{parts:?} {refused:?}"
    );
    assert_eq!(
        disk.to_vec()[512..],
        bytes[512..],
        "but for block 0 it is as it was"
    );
}

/// Two valid maps that differ: the one that matches the volume is used, or none.
#[test]
fn two_whole_maps_that_differ() {
    let volume = fuzz::sample(false, 4096);
    let disk = Memory::zeros(
        gpt::MapGeometry::holding(volume.len() as u64, 512)
            .unwrap()
            .disk_len() as usize,
    );
    let range = gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    disk.write_at(range.start, &volume).unwrap();
    let whole = disk.to_vec();
    let half = range.start + (range.end - range.start) / 2 / 4096 * 4096;
    let other = Memory::zeros(whole.len());
    let new = |end, name: &str| NewPartition {
        range: range.start..end,
        type_guid: APPLE_HFS,
        guid: Guids::derived("x").partition,
        name: name.into(),
    };
    for (end, name, expected) in [
        (half, "disk image", Outcome::Repaired),
        (range.end, "renamed", Outcome::Undecided),
    ] {
        gpt::create(&other, 512, Guids::derived("x").disk, &[new(end, name)]).unwrap();
        let mut bytes = whole.clone();
        bytes[512..34 * 512].copy_from_slice(&other.to_vec()[512..34 * 512]);
        let store = MemoryStore::default();
        store.put("x", &bytes, Put::Replace).unwrap();
        let target = Target::in_store(Arc::new(store.clone()), "x").unwrap();
        let done = repair_target(
            &target,
            &OpenOptions::default(),
            &chosen(Mode::Apply),
            &Silent,
        )
        .unwrap();
        assert_eq!(done.outcome, expected, "{name}: {done:?}");
        let now = contents(&store, "x")["x"].clone();
        if expected == Outcome::Repaired {
            assert!(now == whole);
        } else {
            assert!(now == bytes && done.alternatives().len() == 2);
            let mut options = chosen(Mode::Apply);
            options.assume.add("map=alternate").unwrap();
            repair_target(&target, &OpenOptions::default(), &options, &Silent).unwrap();
            assert!(contents(&store, "x")["x"] == whole);
        }
    }
}

/// The start of a disk is lost and the backup GPT is whole: every container is repaired.
#[test]
fn the_start_of_a_disk_is_restored_from_the_backup_map() {
    let volume = fuzz::sample(false, 4096);
    let len = gpt::MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    for format in [Format::Udrw, Format::Udsp, Format::Asif, Format::Udsb] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let options = open::CreateOptions {
            format,
            len,
            ..open::CreateOptions::default()
        };
        let image = open::create(&path, &options).unwrap();
        let range =
            gpt::create_single(&**image.disk(), 512, APPLE_HFS, Guids::derived("x")).unwrap();
        image.disk().write_at(range.start, &volume).unwrap();
        let whole = image.disk().read_vec(0, len as usize).unwrap();
        image.disk().write_at(0, &[0; 34 * 512]).unwrap();
        image.disk().flush().unwrap();
        drop(image);
        let done = run(&path, Mode::Apply).unwrap();
        assert_eq!(done.outcome, Outcome::Repaired, "{format}: {done:?}");
        assert!(done.remaining.is_empty(), "{format}: {done:?}");
        let image = open::open(&path, &OpenOptions::default()).unwrap();
        assert!(
            image.disk().read_vec(0, len as usize).unwrap() == whole,
            "{format}"
        );
        drop(image);
        assert_eq!(damage(&path), (0, false, false), "{format}");
    }
}
