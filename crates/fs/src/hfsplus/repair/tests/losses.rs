//! Losses that a repair names, counts or suspects.

use super::*;

#[test]
fn every_file_of_a_lost_leaf_is_named_or_counted() {
    let sound = items(Sample::new(false).bytes);
    for with_header in [true, false] {
        for leaf in 1..8 {
            let mut sample = Sample::new(false);
            let names = lose_records(&mut sample, leaf);
            if !with_header {
                sample.node(Cnid::CATALOG, 0).fill(0);
                let header = sample.header();
                (header.file_count, header.folder_count) = (7.into(), 3.into());
            }
            let device = Arc::new(Memory::from(sample.bytes));
            let repair = Repair::plan(device.clone(), &Silent).unwrap();
            repair.apply(&Silent).unwrap();
            let found = items(device.to_vec());
            let report = lost(&repair);
            let gone: Vec<_> = sound
                .keys()
                .filter(|path| !found.contains_key(*path))
                .collect();
            let unnamed = repair
                .losses()
                .certain
                .iter()
                .any(|loss| matches!(loss.what, Lost::Entries(_)));
            // A folder without record and thread is restored under another name.
            let is_file = |path: &&&String| sound[**path].kind != FileKind::Folder;
            for path in gone.iter().filter(is_file) {
                // The name of a folder above may be lost.
                let is_moved = found
                    .keys()
                    .chain(&report)
                    .any(|other| other.rsplit('/').next() == path.rsplit('/').next());
                assert!(
                    report.contains(*path) || unnamed || is_moved,
                    "leaf {leaf}, {path}: {report:?}"
                );
            }
            assert_eq!(gone.is_empty(), names.is_empty(), "leaf {leaf}");
            if names.is_empty() {
                assert!(
                    report.is_empty(),
                    "leaf {leaf} holds only threads: {report:?}"
                );
            }
        }
    }
}

#[test]
fn a_file_whose_record_ends_in_zeros_is_a_loss() {
    let mut sample = Sample::new(false);
    let (mut names, mut cut) = (Vec::new(), 0);
    for leaf in 1..8 {
        names = sample.objects_in_leaf(leaf);
        cut = leaf;
        if names.len() > 3 && names[1].starts_with("file ") {
            break;
        }
    }
    let name = names[1].clone();
    let wanted = |record: &[u8]| {
        let (key, data) = CatalogKey::split(record).unwrap();
        decode_name(key.name) == name
            && !matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(_)))
    };
    // Both forks of one record, and the next one, as by a sector of zeros.
    let mut bytes = Vec::new();
    sample.record(Cnid::CATALOG, wanted, |record| bytes = record.to_vec());
    let node = sample.node(Cnid::CATALOG, cut);
    let at = node
        .windows(bytes.len())
        .position(|window| window == bytes)
        .unwrap();
    let end = at + bytes.len();
    node[end - 168..end + 40].fill(0);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device, &Silent).unwrap();
    let certain = &repair.losses().certain;
    let is_named = certain
        .iter()
        .any(|loss| loss.path.ends_with(&name) && loss.what == Lost::Contents(None));
    assert!(is_named, "{name}: {certain:?}");
}

#[test]
fn used_blocks_that_an_older_leaf_does_not_state_are_a_loss() {
    let losses = |is_used: bool| {
        let mut sample = Sample::new(false);
        let wanted = |record: &[u8]| {
            let data = CatalogKey::split(record).unwrap().1;
            matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(thread))
                if decode_name(thread.name) == "file 5")
        };
        // An object without a thread, as one that was deleted since.
        sample.record(Cnid::CATALOG, wanted, |record| record[3] ^= 0x40);
        if is_used {
            sample.flip(2000);
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        repair.losses().certain.clone()
    };
    assert!(losses(false).is_empty(), "{:?}", losses(false));
    let found = losses(true);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].what, Lost::Unowned(4096));
}

/// Changes a record of a file.
type Damage<'a> = &'a dyn Fn(&mut FileRaw);

#[test]
fn counted_blocks_without_an_owner_are_a_loss_on_a_volume_that_was_unmounted() {
    let losses = |sample: Sample| {
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        repair.losses().clone()
    };
    let mut blocks = 0;
    // A run of zeros from the size of the fork over all its extents.
    let empty = |raw: &mut FileRaw| raw.data_fork = ForkRaw::new_zeroed();
    // Other blocks, which are free: the file has other contents then.
    let move_fork = |raw: &mut FileRaw| raw.data_fork.extents[0].start_block = 2000.into();
    let damages: [(Damage<'_>, bool); 2] = [(&empty, true), (&move_fork, false)];
    for (damage, is_empty) in damages {
        for is_clean in [true, false] {
            let mut sample = Sample::new(false);
            sample.file("file 5", |raw| {
                blocks = raw.data_fork.extents[0].block_count.get();
                damage(raw);
            });
            if !is_clean {
                let header = sample.header();
                let attributes = header.attributes.get();
                header.attributes = (attributes & !volume_attributes::UNMOUNTED).into();
            }
            let found = losses(sample);
            let unowned = Lost::Unowned(u64::from(blocks) * 4096);
            let is_unowned = |loss: &crate::Loss| loss.path == "/" && loss.what == unowned;
            assert!(blocks > 0);
            assert_eq!(found.certain.iter().any(is_unowned), is_clean, "{found:?}");
            assert_eq!(found.certain.len(), usize::from(is_clean), "{found:?}");
            // A crash leaves such blocks, too.
            assert_eq!(found.possible.iter().any(is_unowned), !is_clean);
            let is_file = |loss: &crate::Loss| {
                loss.path.ends_with("/file 5") && loss.what == Lost::Contents(None)
            };
            assert_eq!(found.possible.iter().any(is_file), is_empty, "{found:?}");
        }
    }
    // A block of the bitmap alone, which the header counts as free.
    let mut sample = Sample::new(false);
    sample.flip(2000);
    assert!(losses(sample).is_empty());
}

#[test]
fn an_attribute_that_the_tree_does_not_count_is_a_possible_loss() {
    let mut sample = Sample::new(false);
    sample.attribute("small", |record| record[5] ^= 0x01);
    let tree = sample.tree(Cnid::ATTRIBUTES);
    tree.leaf_records = (tree.leaf_records.get() - 1).into();
    let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
    let losses = repair.losses();
    assert!(losses.certain.is_empty(), "{losses:?}");
    assert_eq!(losses.possible.len(), 1, "{losses:?}");
}

#[test]
fn lost_attributes_are_listed_under_every_name_or_counted() {
    let losses = |is_flagged: bool| {
        let mut sample = Sample::new(false);
        sample.attribute("small", |record| record.fill(0xFF));
        if is_flagged {
            let is_target =
                |record: &[u8]| inode_number(CatalogKey::split(record).unwrap().0.name).is_some();
            sample.record(Cnid::CATALOG, is_target, |record| {
                let at = record.len() - CatalogKey::split(record).unwrap().1.len();
                let (raw, _) = FileRaw::mut_from_prefix(&mut record[at..]).unwrap();
                raw.flags = (raw.flags.get() | record_flags::HAS_ATTRIBUTES).into();
            });
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        let certain = repair.losses().certain.iter();
        certain
            .map(|loss| (loss.path.clone(), loss.what.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(false), [("/".to_owned(), Lost::AnyAttributes(1))]);
    let names = [
        "/first name",
        "/folder/inner/third name",
        "/folder/second name",
    ];
    let expected = names.map(|name| (name.to_owned(), Lost::Attributes));
    assert_eq!(losses(true), expected);
}

/// Puts an older state of a leaf in its place, in which `change` was made to the record of a file,
/// and its newest state in place of the next leaf. Both have the same dates. Returns the path of
/// that file and the contents before the damage.
fn with_older_leaf(
    sample: &mut Sample,
    is_linked: bool,
    change: impl FnOnce(&mut FileRaw),
) -> (String, Item) {
    let whole = items(sample.bytes.clone());
    let is_plain = |name: &&String| name.starts_with("file ");
    let mut leaves = (1..8).map(|leaf| (leaf, sample.objects_in_leaf(leaf)));
    let (leaf, names) = leaves
        .find(|(_, names)| names.iter().filter(is_plain).count() > 2)
        .unwrap();
    let name = names.iter().find(is_plain).unwrap();
    let newest = sample.node(Cnid::CATALOG, leaf).to_vec();
    sample.file(name, change);
    let links = sample.node(Cnid::CATALOG, leaf + 1)[..8].to_vec();
    let next = sample.node(Cnid::CATALOG, leaf + 1);
    next.copy_from_slice(&newest);
    next[..8].copy_from_slice(&links);
    if !is_linked {
        // The leaf was the last one then.
        sample.node(Cnid::CATALOG, leaf)[..4].fill(0);
    }
    let mut found = whole.into_iter();
    found
        .find(|(path, _)| path.ends_with(&format!("/{name}")))
        .unwrap()
}

#[test]
fn a_record_whose_blocks_are_free_gives_way_to_one_of_the_same_date() {
    let mut sample = Sample::new(false);
    let (path, before) = with_older_leaf(&mut sample, true, |raw| {
        raw.data_fork.extents[0].start_block = 2000.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec())[&path] == before, "{path}");
}

#[test]
fn a_record_of_a_leaf_that_its_neighbors_contradict_gives_way() {
    let mut sample = Sample::new(false);
    let (path, before) = with_older_leaf(&mut sample, false, |raw| {
        raw.data_fork.logical_size = 100.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec())[&path] == before, "{path}");
}

/// A sector of the catalog from before the file was written: the record has no extents, but the
/// overflow tree has some.
#[test]
fn a_file_that_is_longer_than_its_older_record_states_is_a_loss() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    let root = volume.root();
    let file = NewNode::new(NewKind::File);
    let [scattered, between] =
        ["scattered", "between"].map(|name| volume.create(root, name, &file).unwrap());
    for turn in 0..12_u64 {
        for node in [scattered, between] {
            let open = volume.open_mut(node, Fork::Data).unwrap();
            open.set_len((turn + 1) * 4096, AfterDiscard::Zeros)
                .unwrap();
            open.write_at(turn * 4096, &[turn as u8 + 1; 4096]).unwrap();
            // A closed file has no reservation.
            drop(open);
            volume.sync().unwrap();
        }
    }
    volume.unmount().unwrap();
    let bytes = device.to_vec();
    let losses = |change: &dyn Fn(&mut FileRaw), free: bool| {
        let mut sample = Sample {
            bytes: bytes.clone(),
        };
        let mut blocks = 0..0;
        sample.file("scattered", |raw| {
            assert!(raw.data_fork.total_blocks.get() == 12, "not scattered");
            assert_ne!(raw.data_fork.extents[7].block_count.get(), 0);
            let first = raw.data_fork.extents[7].start_block.get() + 1;
            blocks = first..first + 12;
            change(raw);
        });
        if free {
            // Nothing of it is in use: the tree has a record of a file that was shortened.
            let start = sample.start(Cnid::ALLOCATION);
            for block in blocks {
                sample.bytes[start + block as usize / 8] &= !(0x80 >> (block % 8));
            }
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        let losses = repair.losses().certain.clone();
        losses
            .into_iter()
            .filter(|loss| loss.path == "/scattered")
            .map(|loss| loss.what)
            .collect::<Vec<_>>()
    };
    let empty = |raw: &mut FileRaw| raw.data_fork = ForkRaw::default();
    let short = |raw: &mut FileRaw| {
        raw.data_fork.logical_size = (8 * 4096).into();
        raw.data_fork.total_blocks = 8.into();
    };
    assert_eq!(losses(&empty, false), [Lost::Contents(Some(12 * 4096))]);
    let cut = Lost::End {
        from: 12 * 4096,
        to: 8 * 4096,
    };
    assert_eq!(losses(&short, false), [cut]);
    assert_eq!(losses(&short, true), []);
}
