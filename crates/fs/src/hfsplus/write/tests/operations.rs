//! Single operations and their visible effects.

use super::*;
use crate::hfsplus::layout::{HEADER_OFFSET, MAC_TO_UNIX};
use crate::{Change, FileKind, UF_HIDDEN};
use bandsaw_core::Kind;
use bandsaw_core::device::{AfterDiscard, BlockDevice};

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind()
}

#[test]
fn a_volume_is_clean_before_and_after() {
    let device = empty(2 << 20);
    let before = device.to_vec();
    let fs = open(&device);
    assert!(fs.volume().clean && fs.lookup(fs.root(), "a").unwrap().is_none());
    fs.unmount().unwrap();
    assert_eq!(device.to_vec(), before, "looking changes nothing");

    let free = fs.volume().free;
    let id = fs.create(fs.root(), "a", &file()).unwrap();
    fs.write_all(id, b"contents").unwrap();
    assert!(!fs.volume().clean && !fs.volume().journaled && fs.volume().free == free - 4096);
    assert!(!HfsPlus::open(device.clone()).unwrap().volume().clean);
    assert_eq!(names(&fs, "/"), ["a"], "no journal is seen");
    fs.unmount().unwrap();
    sound(device.clone());
    let read = HfsPlus::open(device.clone()).unwrap();
    assert!(read.volume().clean && !read.volume().journaled);
    assert_eq!(
        (names(&read, "/"), contents(&read, "/a")),
        (vec!["a".to_owned()], b"contents".to_vec())
    );
    let attributes = read.resolve("/a").unwrap();
    assert_eq!(
        (attributes.mode, attributes.size, attributes.modified),
        (0o644, 8, Some(NOW))
    );

    fs.remove(fs.root(), "a").unwrap();
    drop(fs);
    sound(device.clone());
    assert_eq!(HfsPlus::open(device).unwrap().volume().free, free);
}

#[test]
fn names_are_made_moved_and_removed() {
    for case_sensitive in [false, true] {
        let device = Arc::new(Memory::zeros(4 << 20));
        format(&*device, layout(case_sensitive, None));
        let fs = open(&device);
        let root = fs.root();
        let letters = fs.create(root, "Letters", &folder()).unwrap();
        let old = fs.create(letters, "Größe: 1", &file()).unwrap();
        fs.write_all(old, &bytes(10_000, 1)).unwrap();
        assert_eq!(kind(fs.create(root, "Letters", &file())), Kind::Conflict);
        assert_eq!(fs.create(root, "letters", &file()).is_ok(), case_sensitive);
        assert_eq!(kind(fs.create(root, "", &file())), Kind::Invalid);
        assert_eq!(kind(fs.create(root, "a/b", &file())), Kind::Invalid);
        assert_eq!(
            kind(fs.create(old, "a", &file())),
            Kind::Invalid,
            "a file is no folder"
        );
        assert_eq!(kind(fs.create(NodeId(999), "a", &file())), Kind::NotFound);
        assert_eq!(
            kind(fs.create(root, ".HFS+ Private Directory Data\r", &folder())),
            Kind::Invalid
        );
        assert_eq!(
            kind(fs.remove(root, "Letters")),
            Kind::Conflict,
            "not empty"
        );
        assert_eq!(kind(fs.remove(root, "nothing")), Kind::NotFound);

        let inner = fs.create(letters, "inner", &folder()).unwrap();
        assert_eq!(
            kind(fs.rename((root, "Letters"), (inner, "x"), ExistingTarget::Error)),
            Kind::Invalid,
            "into itself"
        );
        fs.rename(
            (letters, "Größe: 1"),
            (inner, "moved"),
            ExistingTarget::Error,
        )
        .unwrap();
        fs.rename((root, "Letters"), (root, "LETTERS"), ExistingTarget::Error)
            .unwrap();
        assert_eq!(contents(&fs, "/LETTERS/inner/moved"), bytes(10_000, 1));
        let new = fs.create(inner, "new", &file()).unwrap();
        fs.write_all(new, b"new").unwrap();
        assert_eq!(
            kind(fs.rename((inner, "new"), (inner, "moved"), ExistingTarget::Error)),
            Kind::Conflict
        );
        assert_eq!(
            kind(fs.rename((inner, "new"), (letters, "inner"), ExistingTarget::Replace)),
            Kind::Conflict
        );
        fs.rename((inner, "new"), (inner, "moved"), ExistingTarget::Replace)
            .unwrap();
        assert_eq!(
            (
                contents(&fs, "/LETTERS/inner/moved"),
                names(&fs, "/LETTERS/inner").len()
            ),
            (b"new".to_vec(), 1)
        );
        let link = fs
            .create(
                root,
                "link",
                &NewNode::new(NewKind::Symlink("LETTERS/inner".into())),
            )
            .unwrap();
        assert_eq!(fs.read_link(link).unwrap(), "LETTERS/inner");
        fs.create(
            root,
            "pipe",
            &NewNode::new(NewKind::Special(FileKind::Fifo, 0)),
        )
        .unwrap();
        assert_eq!(fs.resolve("/pipe").unwrap().kind, FileKind::Fifo);
        fs.unmount().unwrap();
        sound(device.clone());
        let found = HfsPlus::open(device.clone()).unwrap();
        assert_eq!(contents(&found, "/LETTERS/inner/moved"), b"new");
        assert_eq!(found.read_link(link).unwrap(), "LETTERS/inner");
    }
}

#[test]
fn a_file_grows_shrinks_and_is_zero_where_nothing_was_written() {
    for block_size in [512, 4096, 16384] {
        let device = Arc::new(Memory::from(vec![0xEE; 8 << 20]));
        format(&*device, layout(false, Some(block_size)));
        let fs = open(&device);
        let id = fs.create(fs.root(), "file", &file()).unwrap();
        let other = fs.create(fs.root(), "other", &file()).unwrap();
        let (open, second) = (
            fs.open_mut(id, Fork::Data).unwrap(),
            fs.open_mut(other, Fork::Data).unwrap(),
        );
        let mut model: Vec<u8> = Vec::new();
        for (step, len) in [
            5000, 100, 9000, 70_000, 69_999, 300_000, 1, 0, 50_000, 1_000_000,
        ]
        .into_iter()
        .enumerate()
        {
            open.set_len(len, AfterDiscard::Zeros).unwrap();
            model.resize(len as usize, 0);
            assert_eq!(open.read_vec(0, model.len()).unwrap(), model, "step {step}");
            second
                .set_len(second.info().len + 3000, AfterDiscard::Zeros)
                .unwrap();
            let piece = bytes(len as usize / 2, step as u8);
            open.write_at(len / 3, &piece).unwrap();
            model[len as usize / 3..][..piece.len()].copy_from_slice(&piece);
            open.discard(len / 3..len / 2, AfterDiscard::Zeros).unwrap();
            model[len as usize / 3..len as usize / 2].fill(0);
        }
        assert_eq!(kind(open.write_at(999_999, &[0; 2])), Kind::OutOfRange);
        let reader = fs.open(id, Fork::Data).unwrap();
        assert_eq!(kind(reader.write_at(0, &[0])), Kind::ReadOnly);
        assert_eq!(reader.read_vec(0, model.len()).unwrap(), model);
        let free = fs.volume().free;
        assert_eq!(
            kind(open.set_len(1 << 40, AfterDiscard::Zeros)),
            Kind::Limit
        );
        assert_eq!(
            (open.info().len, fs.volume().free),
            (1_000_000, free),
            "a volume that is full stays as it was"
        );
        fs.unmount().unwrap();
        sound(device.clone());
        assert_eq!(
            contents(&HfsPlus::open(device.clone()).unwrap(), "/file"),
            model
        );
    }
}

#[test]
fn a_file_in_many_pieces_overflows_and_comes_back() {
    let device = empty(8 << 20);
    let fs = open(&device);
    let free = fs.volume().free;
    let ids = ["even", "odd"].map(|name| fs.create(fs.root(), name, &file()).unwrap());
    let open_files = ids.map(|id| fs.open_mut(id, Fork::Data).unwrap());
    for block in 0..300_u64 {
        for (file, seed) in open_files.iter().zip([1, 2]) {
            file.set_len((block + 1) * 4096, AfterDiscard::Any).unwrap();
            file.write_at(block * 4096, &bytes(4096, (block as u8).wrapping_add(seed)))
                .unwrap();
        }
    }
    fs.unmount().unwrap();
    sound(device.clone());
    let expected: Vec<u8> = (0..300)
        .flat_map(|block| bytes(4096, (block as u8).wrapping_add(1)))
        .collect();
    assert_eq!(
        contents(&HfsPlus::open(device.clone()).unwrap(), "/even"),
        expected
    );
    for len in [1_000_000, 40_000, 20_000] {
        open_files[0].set_len(len, AfterDiscard::Zeros).unwrap();
        fs.unmount().unwrap();
        sound(device.clone());
        assert_eq!(
            contents(&HfsPlus::open(device.clone()).unwrap(), "/even"),
            expected[..len as usize]
        );
    }
    drop(open_files);
    fs.remove(fs.root(), "even").unwrap();
    fs.remove(fs.root(), "odd").unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
    // A tree may have grown, and does not shrink.
    let lost = free - fs.volume().free;
    assert!(lost <= 64 << 10, "{lost} bytes are gone");
}

#[test]
fn files_have_several_names() {
    let device = empty(4 << 20);
    let fs = open(&device);
    let root = fs.root();
    let dir = fs.create(root, "dir", &folder()).unwrap();
    let id = fs.create(root, "first", &file()).unwrap();
    fs.write_all(id, b"shared").unwrap();
    fs.set_xattr_bytes(id, "user.note", b"kept").unwrap();
    fs.link(id, dir, "second").unwrap();
    fs.link(id, root, "third").unwrap();
    assert_eq!(kind(fs.link(id, root, "dir")), Kind::Conflict);
    assert_eq!(kind(fs.link(dir, root, "folder")), Kind::Unsupported);
    fs.unmount().unwrap();
    sound(device.clone());
    for path in ["/first", "/dir/second", "/third"] {
        let attributes = fs.resolve(path).unwrap();
        assert_eq!(
            (attributes.id, attributes.links, attributes.size),
            (id, 3, 6),
            "{path}"
        );
    }
    assert_eq!(
        names(&fs, "/"),
        ["dir", "first", "third"],
        "the private folder is not seen"
    );
    fs.rename((root, "first"), (dir, "renamed"), ExistingTarget::Error)
        .unwrap();
    fs.rename((dir, "second"), (dir, "renamed"), ExistingTarget::Replace)
        .unwrap();
    assert_eq!(
        fs.resolve("/dir/renamed").unwrap().links,
        3,
        "two names of one file stay two"
    );
    fs.remove(dir, "second").unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
    fs.remove(dir, "renamed").unwrap();
    assert_eq!(fs.resolve("/third").unwrap().links, 1);
    fs.link(id, root, "again").unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
    assert_eq!(
        contents(&HfsPlus::open(device.clone()).unwrap(), "/again"),
        b"shared"
    );
    fs.remove(root, "again").unwrap();
    fs.remove(root, "third").unwrap();
    assert_eq!(kind(fs.attributes(id)), Kind::NotFound);
    fs.unmount().unwrap();
    sound(device.clone());
}

/// A second name turns the first into a link too. Neither its folder nor the root folder, which
/// gets a hidden folder, changes its dates.
#[test]
fn a_second_name_changes_no_other_folder() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let [here, there] =
        ["here", "there"].map(|name| fs.create(fs.root(), name, &folder()).unwrap());
    let id = fs.create(here, "first", &file()).unwrap();
    let old = Some(Timestamp::from_seconds(1_000_000_000));
    for dir in [fs.root(), here, there] {
        fs.set_attributes(
            dir,
            &Change {
                modified: old,
                changed: old,
                ..Change::default()
            },
        )
        .unwrap();
    }
    fs.link(id, there, "second").unwrap();
    let dates = [fs.root(), here, there]
        .map(|dir| fs.attributes(dir).unwrap())
        .map(|dir| (dir.modified, dir.changed));
    assert_eq!(dates, [(old, old), (old, old), (Some(NOW), Some(NOW))]);
    fs.unmount().unwrap();
    sound(device);
}

#[test]
fn a_file_that_is_removed_stays_for_those_who_have_it_open() {
    let device = empty(4 << 20);
    let fs = open(&device);
    let root = fs.root();
    let free = fs.volume().free;
    let id = fs.create(root, "file", &file()).unwrap();
    let open_file = fs.open_mut(id, Fork::Data).unwrap();
    open_file.set_len(5000, AfterDiscard::Zeros).unwrap();
    fs.remove(root, "file").unwrap();
    assert!(fs.lookup(root, "file").unwrap().is_none());
    fs.write_all(fs.create(root, "file", &file()).unwrap(), b"another")
        .unwrap();
    open_file.set_len(9000, AfterDiscard::Zeros).unwrap();
    open_file.write_at(8000, &[1; 1000]).unwrap();
    fs.sync().unwrap();
    assert_eq!(open_file.read_vec(8000, 1000).unwrap(), [1; 1000]);
    drop(open_file);
    assert_eq!(kind(fs.attributes(id)), Kind::NotFound);
    fs.remove(root, "file").unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
    assert_eq!(fs.volume().free, free);
}

#[test]
fn attributes_of_every_length_are_kept() {
    let device = empty(8 << 20);
    let fs = open(&device);
    let root = fs.root();
    let id = fs.create(root, "file", &file()).unwrap();
    let dir = fs.create(root, "dir", &folder()).unwrap();
    let value = |node, name: &str| {
        fs.xattr(node, name)
            .unwrap()
            .map(|value| value.read_vec(0, value.info().len as usize).unwrap())
    };
    for (step, len) in [0, 1, 3802, 3803, 100_000, 5, 1_000_000, 3802]
        .into_iter()
        .enumerate()
    {
        for node in [id, dir, root] {
            fs.set_xattr_bytes(node, "com.example.größe", &bytes(len, step as u8))
                .unwrap();
            assert_eq!(
                value(node, "com.example.größe").unwrap(),
                bytes(len, step as u8)
            );
        }
        fs.unmount().unwrap();
        sound(device.clone());
    }
    assert_eq!(
        kind(fs.set_xattr(
            id,
            "com.example.größe",
            &Memory::zeros(1),
            ExistingTarget::Error
        )),
        Kind::Conflict
    );
    for number in 0..300 {
        fs.set_xattr_bytes(id, &format!("number {number}"), &bytes(200, number as u8))
            .unwrap();
    }
    fs.set_xattr_bytes(id, "com.apple.system.Security", b"acl")
        .unwrap();
    assert_eq!(fs.xattrs(id).unwrap().len(), 302);
    fs.set_xattr_bytes(id, "com.apple.FinderInfo", &[[b'T'; 16], [0; 16]].concat())
        .unwrap();
    assert_eq!(value(id, "com.apple.FinderInfo").unwrap()[..16], [b'T'; 16]);
    assert_eq!(
        kind(fs.set_xattr_bytes(id, "com.apple.FinderInfo", b"short")),
        Kind::Invalid
    );
    fs.set_xattr_bytes(id, "com.apple.ResourceFork", &bytes(70_000, 9))
        .unwrap();
    assert_eq!(
        value(id, "com.apple.ResourceFork").unwrap(),
        bytes(70_000, 9)
    );
    assert_eq!(fs.resolve("/file").unwrap().resource_size, 70_000);
    fs.unmount().unwrap();
    sound(device.clone());
    for name in fs.xattrs(id).unwrap() {
        fs.remove_xattr(id, &name).unwrap();
        assert_eq!(kind(fs.remove_xattr(id, &name)), Kind::NotFound);
    }
    assert!(fs.xattrs(id).unwrap().is_empty() && !fs.attributes(id).unwrap().has_xattrs);
    fs.remove(root, "dir").unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
}

#[test]
fn modes_owners_flags_and_dates_are_set() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let id = fs.create(fs.root(), "file", &file()).unwrap();
    let date = |seconds| Some(Timestamp::from_seconds(seconds));
    let change = Change {
        mode: Some(0o4751),
        uid: Some(501),
        gid: Some(20),
        flags: Some(UF_HIDDEN | 0x0002_0001),
        created: date(1_000_000_000),
        modified: date(1_100_000_000),
        changed: date(1_200_000_000),
        accessed: date(1_300_000_000),
        backed_up: date(1_400_000_000),
    };
    fs.set_attributes(id, &change).unwrap();
    fs.set_attributes(
        fs.root(),
        &Change {
            mode: Some(0o700),
            ..Change::default()
        },
    )
    .unwrap();
    fs.unmount().unwrap();
    sound(device.clone());
    let found = HfsPlus::open(device).unwrap();
    let file = found.resolve("/file").unwrap();
    assert_eq!(
        (file.kind, file.mode, file.uid, file.gid, file.flags),
        (FileKind::File, 0o4751, 501, 20, UF_HIDDEN | 0x0002_0001)
    );
    assert_eq!(
        (file.created, file.modified, file.changed),
        (change.created, change.modified, change.changed)
    );
    assert_eq!(
        (file.accessed, file.backed_up),
        (change.accessed, change.backed_up)
    );
    let root = found.attributes(found.root()).unwrap();
    assert_eq!((root.mode, root.changed), (0o700, Some(NOW)));
}

#[test]
fn a_full_volume_can_be_emptied() {
    let device = empty(1 << 20);
    let fs = open(&device);
    let mut made = Vec::new();
    let error = loop {
        let name = format!("file {}", made.len());
        let filled = fs
            .create(fs.root(), &name, &file())
            .and_then(|id| fs.write_all(id, &bytes(4096, made.len() as u8)));
        match filled {
            Ok(()) => made.push(name),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Limit);
    fs.sync().unwrap();
    for (seed, name) in made.iter().enumerate() {
        assert_eq!(contents(&fs, name), bytes(4096, seed as u8));
    }
    fs.unmount().unwrap();
    sound(device.clone());
    for name in names(&fs, "/") {
        fs.remove(fs.root(), &name).unwrap();
    }
    fs.unmount().unwrap();
    sound(device.clone());
}

#[test]
fn a_folder_of_many_files_is_listed_while_it_changes() {
    let device = empty(32 << 20);
    let fs = open(&device);
    let dir = fs.create(fs.root(), "many", &folder()).unwrap();
    for number in 0..5000 {
        let number = number * 7919 % 5000;
        fs.create(
            dir,
            &format!("file with a longer name {number:05}"),
            &file(),
        )
        .unwrap();
    }
    let mut seen = 0;
    fs.list(dir, &mut |entry| {
        seen += 1;
        fs.remove(dir, &entry.name)?;
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!((seen, names(&fs, "/many").len()), (5000, 0));
    fs.unmount().unwrap();
    sound(device.clone());
}

#[test]
fn volumes_that_must_not_be_changed_are_refused() {
    let device = empty(1 << 20);
    let change = |at: usize, value: u8| {
        let mut bytes = device.to_vec();
        bytes[1024 + at] = value;
        Arc::new(Memory::from(bytes))
    };
    // Attributes are the bytes from 4 on: not unmounted, locked.
    for (at, value, expected) in [
        (6, 0, Kind::Corrupt),
        (6, 0x81, Kind::ReadOnly),
        (0, 0, Kind::Corrupt),
    ] {
        let error = HfsPlusMut::open(change(at, value), options()).unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
    }
    let read_only = Arc::new(Memory::read_only(device.to_vec()));
    assert_eq!(
        HfsPlusMut::open(read_only, options()).unwrap_err().kind(),
        Kind::ReadOnly
    );
}

#[test]
fn a_journal_comes_to_stay_and_goes_again() {
    for (len, size) in [(8 << 20, None), (8 << 20, Some(1 << 20)), (160 << 20, None)] {
        let device = empty(len);
        let fs = open(&device);
        let id = fs.create(fs.root(), "before", &file()).unwrap();
        fs.write_all(id, b"kept").unwrap();
        assert_eq!(kind(fs.disable_journal()), Kind::NotFound);
        fs.enable_journal(size).unwrap();
        assert_eq!(kind(fs.enable_journal(size)), Kind::Conflict);
        sound(device.clone());
        assert!(fs.volume().journaled && fs.volume().clean);
        let read = HfsPlus::open(device.clone()).unwrap();
        let expected = size.unwrap_or(if len > 100 << 20 { 8 << 20 } else { 512 << 10 });
        assert_eq!(
            names(&fs, "/"),
            ["before"],
            "the journal's files are hidden, as on macOS"
        );
        assert_eq!(
            (
                kind(read.resolve("/.journal")),
                read.volume().files,
                fs.volume().files
            ),
            (Kind::NotFound, 1, 1)
        );
        assert_eq!(
            read.system_files(true).resolve("/.journal").unwrap().size,
            expected
        );
        let free = fs.volume().free;
        let id = fs.create(fs.root(), "meanwhile", &file()).unwrap();
        fs.write_all(id, &bytes(10_000, 3)).unwrap();
        fs.unmount().unwrap();
        sound(device.clone());
        assert!(
            HfsPlus::open(device.clone()).unwrap().volume().journaled
                && fs.volume().free == free - 3 * 4096
        );
        let fs = open(&device);
        fs.disable_journal().unwrap();
        sound(device.clone());
        let read = HfsPlus::open(device.clone()).unwrap();
        assert!(!read.volume().journaled && read.volume().clean && read.volume().free > free);
        assert_eq!(names(&read, "/"), ["before", "meanwhile"]);
        assert_eq!(
            (contents(&read, "/before"), contents(&read, "/meanwhile")),
            (b"kept".to_vec(), bytes(10_000, 3))
        );
    }
}

/// Blocks of others are not freed with a journal whose info block says too much.
#[test]
fn a_journal_longer_than_its_file_is_not_removed() {
    let device = empty(8 << 20);
    let fs = open(&device);
    fs.enable_journal(None).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let mut number = [0; 4];
    device.read_at(HEADER_OFFSET + 12, &mut number).unwrap();
    let size_at = u64::from(u32::from_be_bytes(number)) * 4096 + 44;
    let mut size = [0; 8];
    device.read_at(size_at, &mut size).unwrap();
    let longer = u64::from_be_bytes(size) + 1;
    device.write_at(size_at, &longer.to_be_bytes()).unwrap();
    let fs = open(&device);
    let error = fs.disable_journal().unwrap_err();
    assert!(error.to_string().contains("other blocks"), "{error}");
    drop(fs);
    device.write_at(size_at, &size).unwrap();
    sound(device.clone());
    open(&device).disable_journal().unwrap();
    sound(device);
}

/// Marks the volume as one whose new records have dates since 1970 (attribute bit 29, as
/// `newfs_hfs -B` makes it). The records that exist keep dates since 1904, each by its own flag.
fn expand_times(device: &Memory) {
    let len = device.info().len;
    for offset in [HEADER_OFFSET, len - HEADER_OFFSET] {
        let mut attributes = [0; 4];
        device.read_at(offset + 4, &mut attributes).unwrap();
        attributes[0] |= 0x20;
        device.write_at(offset + 4, &attributes).unwrap();
    }
}

#[test]
fn dates_since_1970_follow_the_flag_of_each_record() {
    let device = empty(2 << 20);
    let fs = open(&device);
    fs.create(fs.root(), "before", &file()).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    expand_times(&device);

    let late = Timestamp::from_seconds(4_000_000_000);
    let fs = open(&device);
    let new = NewNode {
        created: Some(late),
        ..file()
    };
    let id = fs.create(fs.root(), "after", &new).unwrap();
    fs.write_all(id, b"contents").unwrap();
    let dir = fs.create(fs.root(), "folder", &folder()).unwrap();
    fs.link(id, dir, "second name").unwrap();
    let old = fs.lookup(fs.root(), "before").unwrap().unwrap().id;
    fs.write_all(old, b"changed").unwrap();
    let change = Change {
        accessed: Some(late),
        ..Change::default()
    };
    fs.set_attributes(id, &change).unwrap();
    fs.set_attributes(old, &change).unwrap();
    fs.rename((fs.root(), "before"), (dir, "moved"), ExistingTarget::Error)
        .unwrap();
    fs.unmount().unwrap();
    sound(device.clone());

    let read = HfsPlus::open(device.clone()).unwrap();
    let after = read.resolve("/folder/second name").unwrap();
    assert_eq!(
        (after.created, after.modified, after.changed, after.accessed),
        (Some(late), Some(NOW), Some(NOW), Some(late))
    );
    assert_eq!(
        (after.links, contents(&read, "/after")),
        (2, b"contents".to_vec())
    );
    let moved = read.resolve("/folder/moved").unwrap();
    assert_eq!((moved.modified, moved.changed), (Some(NOW), Some(NOW)));
    let last = Timestamp::from_seconds(i64::from(u32::MAX) - MAC_TO_UNIX);
    assert_eq!(moved.accessed, Some(last), "a date since 1904 ends in 2040");
    let folder = read.resolve("/folder").unwrap();
    assert_eq!((folder.created, folder.modified), (Some(NOW), Some(NOW)));
    assert_eq!(read.resolve("/").unwrap().modified, Some(NOW));
    assert_eq!(read.volume().modified, Some(NOW));
}
