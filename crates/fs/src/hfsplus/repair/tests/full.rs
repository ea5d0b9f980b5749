//! Repairs of volumes without room for new trees.

use super::*;

/// Gives the largest free runs of blocks to a file.
fn fill(sample: &mut Sample) {
    while fill_run(sample) {}
}

/// Gives the largest free run of blocks to a file; returns false if there is none.
fn fill_run(sample: &mut Sample) -> bool {
    let total = sample.header().total_blocks.get();
    let bitmap = sample.start(Cnid::ALLOCATION);
    let is_used =
        |bytes: &[u8], block: u32| bytes[bitmap + block as usize / 8] & (0x80 >> (block % 8)) != 0;
    let (mut best, mut start) = ((0, 0), 0);
    for block in 0..total {
        if is_used(&sample.bytes, block) {
            start = block + 1;
        } else if block + 1 - start > best.1 {
            best = (start, block + 1 - start);
        }
    }
    let (start, count) = best;
    let mut has_room = false;
    sample.file("file 3", |raw| {
        has_room = raw.data_fork.extents[7].block_count.get() == 0
    });
    if count == 0 || !has_room {
        return false;
    }
    (start..start + count).for_each(|block| sample.flip(block));
    let header = sample.header();
    header.free_blocks = (header.free_blocks.get() - count).into();
    sample.file("file 3", |raw| {
        let extent = raw
            .data_fork
            .extents
            .iter_mut()
            .find(|extent| extent.block_count.get() == 0)
            .unwrap();
        (extent.start_block, extent.block_count) = (start.into(), count.into());
        let blocks = raw.data_fork.total_blocks.get() + count;
        raw.data_fork.total_blocks = blocks.into();
        raw.data_fork.logical_size = (u64::from(blocks) * 4096).into();
    });
    true
}

#[test]
fn a_full_volume_is_repaired_over_its_old_trees() {
    let mut sample = Sample::new(false);
    fill(&mut sample);
    assert!(sample.check().iter().all(|problem| !is_wrong(problem)));
    let full = items(sample.bytes.clone());
    sample.node(Cnid::CATALOG, 0)[..64].fill(0);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    assert!(repair.losses().is_empty(), "{:?}", repair.losses());
    let is_in_place = |step: &RepairStep| step.text.starts_with("overwrite the old trees");
    assert!(
        repair.steps().iter().any(is_in_place),
        "{:?}",
        repair.steps()
    );
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec()) == full);
}

#[test]
fn a_full_volume_grows_with_its_device_if_files_need_room() {
    let mut sample = Sample::new(false);
    fill(&mut sample);
    // Both files get these blocks, which are most of the volume.
    let mut fork = ForkRaw::default();
    sample.file("file 3", |raw| fork = raw.data_fork);
    sample.file("file 7", |raw| raw.data_fork = fork);
    sample.node(Cnid::CATALOG, 0)[..64].fill(0);
    let full = Arc::new(Memory::from(sample.bytes.clone()));
    let kind = Repair::plan(full, &Silent).err().map(|error| error.kind());
    assert_eq!(kind, Some(Kind::Limit));
    let mut bytes = sample.bytes;
    bytes.resize(24 << 20, 0);
    let device = Arc::new(Memory::from(bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    let both = ["/folder/inner/file 3", "/folder/inner/file 7"];
    assert_eq!(lost(&repair), both.map(str::to_owned).into());
    repair.apply(&Silent).unwrap();
    assert!(check(device.clone(), &Silent).unwrap().is_empty());
    assert_eq!(HfsPlus::open(device).unwrap().volume().total, 24 << 20);
}

#[test]
fn new_trees_beyond_the_limit_of_memory_go_to_a_file() {
    const LIMIT: u64 = 16 << 10;
    let mut sample = Sample::new(false);
    lose_records(&mut sample, 1);
    let in_memory = Arc::new(Memory::from(sample.bytes.clone()));
    let repair = Repair::plan(in_memory.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let spill = Arc::new(Spill::limited(folder.path().to_owned(), LIMIT));
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan_on(device.clone(), None, &spill, &Silent).unwrap();
    assert!(spill.used() > LIMIT, "{} bytes", spill.used());
    let kept = repair.pending.as_ref().unwrap().overlay.in_memory();
    assert!(kept <= LIMIT, "{kept} bytes");
    repair.apply(&Silent).unwrap();
    assert!(device.to_vec() == in_memory.to_vec());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
