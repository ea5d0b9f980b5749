//! Tests of the extents of open files while they change.

use super::contents::Model;
use super::*;
use crate::apfs::layout::FileId;

/// The extents of an open file equal its records after every change.
#[test]
fn an_open_file_follows_its_records() {
    for device in [container(16 << 20, false), encrypted(16 << 20)] {
        let fs = open(&device);
        let mut model = Model::new(11);
        let id = file(&fs, fs.root(), "file", &[]);
        let fork = fs.open_mut(id, Fork::Data).unwrap();
        for step in 0..600 {
            model.step(&fs, &*fork);
            let len = model.bytes.len() as u64;
            let volume = fs.shared.read();
            let stored = match volume.inode(FileId(id.0)).unwrap().stream() {
                Some(raw) => volume.read.stream(FileId(id.0), raw.size.get()).unwrap(),
                None => Arc::new(Memory::read_only([])),
            };
            drop(volume);
            assert_eq!(stored.info().len, len, "step {step}");
            let mut at = 0;
            while at < len {
                let rest = at..len;
                let extent = fork.extent_at(rest.clone()).unwrap();
                assert_eq!(
                    extent,
                    stored.extent_at(rest).unwrap(),
                    "step {step}, byte {at}"
                );
                at += extent.len;
            }
        }
        drop(fork);
        fs.unmount().unwrap();
        assert!(contents(&read(&device), "/file") == model.bytes);
    }
}

/// The cost of a small write does not depend on the number of extents of the file.
#[test]
fn a_write_looks_at_what_it_touches() {
    const PIECES: u64 = 3000;
    let device = container(32 << 20, false);
    let fs = open(&device);
    let id = file(&fs, fs.root(), "file", &[]);
    let fork = fs.open_mut(id, Fork::Data).unwrap();
    fork.set_len(PIECES * 8192, AfterDiscard::Zeros).unwrap();
    let mut nodes = Vec::new();
    for piece in 0..PIECES {
        let before = fs.shared.read().files.asked();
        fork.write_at(piece * 8192 + 100, &[1; 50]).unwrap();
        nodes.push(fs.shared.read().files.asked() - before);
    }
    let per_write = |range: std::ops::Range<usize>| nodes[range].iter().sum::<u64>() / 100;
    let (early, late) = (
        per_write(100..200),
        per_write(PIECES as usize - 100..PIECES as usize),
    );
    // The tree may be one level higher.
    assert!(
        early > 0 && late <= early * 2,
        "{early} nodes for a write at first, {late} in the end"
    );
}
