//! Valid volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::{
    AllocBlock, Cnid, Extent, ExtentsAttributeRaw, FILE_LINK_TYPE, FOLDER_LINK_TYPE, FileRaw,
    ForkAttributeRaw, MAC_TO_UNIX, MasterDirectoryBlockRaw, Variant, attribute_type, finder_flags,
    fork_type, record_flags, volume_attributes,
};
use super::super::links::{FILES_FOLDER, FOLDERS_FOLDER};
use super::super::unicode::NameOrder;
use super::super::{HfsPlus, Probed, probe};
use super::fixture::{BLOCK, Fixture, extents_raw, fork, units};
use crate::{
    Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp, UF_COMPRESSED,
    UF_HIDDEN,
};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::{Error, Kind};

const ROOT: NodeId = NodeId(2);

fn node(id: Cnid) -> NodeId {
    NodeId(id.0.into())
}

fn names(volume: &HfsPlus, dir: NodeId) -> Vec<String> {
    volume
        .entries(dir)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

fn all(device: &dyn BlockDevice) -> Vec<u8> {
    device
        .read_vec(0, device.info().len.try_into().unwrap())
        .unwrap()
}

fn read(volume: &HfsPlus, path: &str) -> Vec<u8> {
    all(&*volume
        .open(volume.resolve(path).unwrap().id, Fork::Data)
        .unwrap())
}

#[test]
fn case_matters_only_where_the_volume_says_so() {
    let fill = |mut fixture: Fixture| {
        fixture.file(Cnid::ROOT, "Readme", b"upper", |_| {});
        fixture.file(Cnid::ROOT, "e\u{301}", b"accent", |_| {});
        fixture
    };
    let folding = [
        Fixture::plain(),
        Fixture::new(Variant::Hfsx, NameOrder::Folding),
    ];
    for volume in folding.map(|fixture| fill(fixture).open().unwrap()) {
        assert!(!volume.volume().case_sensitive);
        assert_eq!(read(&volume, "/README"), b"upper");
        assert_eq!(
            read(&volume, "/\u{E9}"),
            b"accent",
            "composed names are found decomposed"
        );
        assert_eq!(
            read(&volume, "/read\u{200D}me"),
            b"upper",
            "ignored units do not count"
        );
    }
    let mut fixture = fill(Fixture::new(Variant::Hfsx, NameOrder::Binary));
    fixture.file(Cnid::ROOT, "README", b"all upper", |_| {});
    let volume = fixture.open().unwrap();
    assert_eq!(
        (volume.volume().format, volume.volume().case_sensitive),
        ("HFSX", true)
    );
    assert_eq!(names(&volume, ROOT), ["README", "Readme", "e\u{301}"]);
    assert_eq!(
        (read(&volume, "/Readme"), read(&volume, "/README")),
        (b"upper".to_vec(), b"all upper".to_vec())
    );
    assert!(volume.lookup(ROOT, "readme").unwrap().is_none());
}

#[test]
fn names_that_others_wrote_composed_are_found() {
    let mut fixture = Fixture::plain();
    fixture.file(Cnid::ROOT, "\u{E9}", b"as Linux may write it", |_| {});
    let volume = fixture.open().unwrap();
    assert_eq!(read(&volume, "/\u{E9}"), b"as Linux may write it");
}

#[test]
fn names_show_colons_for_slashes() {
    let mut fixture = Fixture::plain();
    fixture.file(Cnid::ROOT, "a/b", b"slash", |_| {});
    let volume = fixture.open().unwrap();
    assert_eq!(names(&volume, ROOT), ["a:b"]);
    assert_eq!(read(&volume, "/a:b"), b"slash");
    for odd in ["", "a/b", &"x".repeat(256)] {
        assert!(volume.lookup(ROOT, odd).unwrap().is_none(), "{odd:?}");
    }
}

#[test]
fn a_fork_in_many_pieces_is_read_whole() {
    let contents: Vec<u8> = (0..20 * BLOCK - 7).map(|at| (at % 251) as u8).collect();
    let mut fixture = Fixture::plain();
    let pieces = fixture.scatter(&contents);
    let resource: Vec<u8> = contents.iter().rev().copied().collect();
    let resource_pieces = fixture.scatter(&resource);
    let id = fixture.file(Cnid::ROOT, "pieces", b"", |file| {
        file.data_fork = fork(contents.len() as u64, 20, &pieces[..8]);
        file.resource_fork = fork(resource.len() as u64, 20, &resource_pieces[..8]);
    });
    for (kind, pieces) in [
        (fork_type::DATA, &pieces),
        (fork_type::RESOURCE, &resource_pieces),
    ] {
        fixture.more_extents(id, kind, 8, &pieces[8..16]);
        fixture.more_extents(id, kind, 16, &pieces[16..]);
    }
    let volume = fixture.open().unwrap();
    assert_eq!(read(&volume, "/pieces"), contents);
    assert_eq!(
        all(&*volume.open(node(id), Fork::Resource).unwrap()),
        resource
    );
    assert_eq!(
        all(&*volume
            .xattr(node(id), "com.apple.ResourceFork")
            .unwrap()
            .unwrap()),
        resource
    );
    assert_eq!(volume.xattrs(node(id)).unwrap(), ["com.apple.ResourceFork"]);
    let attributes = volume.attributes(node(id)).unwrap();
    assert_eq!(
        (attributes.size, attributes.resource_size),
        (contents.len() as u64, contents.len() as u64)
    );
    assert_eq!(attributes.allocated, 40 * u64::from(BLOCK));
}

#[test]
fn attributes_are_read_wherever_they_lie() {
    let value: Vec<u8> = (0..18 * BLOCK + 3).map(|at| (at % 241) as u8).collect();
    let mut fixture = Fixture::plain();
    let pieces = fixture.scatter(&value);
    let id = fixture.file(Cnid::ROOT, "file", b"", |file| file.flags = 0x0006.into());
    let other = fixture.file(Cnid::ROOT, "other", b"", |_| {});
    fixture.inline_attribute(id, "small", b"odd");
    fixture.inline_attribute(id, "", b"nameless, before all others");
    fixture.inline_attribute(id, "com.apple.system.hfs.firstlink", b"17");
    fixture.inline_attribute(other, "small", b"another's");
    fixture.inline_attribute(id, "\u{E9}", b"as given");
    fixture.inline_attribute(id, "o\u{308}", b"decomposed");
    let record_type = attribute_type::FORK.into();
    let head = ForkAttributeRaw {
        record_type,
        fork: fork(value.len() as u64, 19, &pieces[..8]),
        ..Default::default()
    };
    fixture.attribute(id, "large", 0, head.as_bytes());
    for (start, pieces) in [(8, &pieces[8..16]), (16, &pieces[16..])] {
        let record_type = attribute_type::EXTENTS.into();
        let more = ExtentsAttributeRaw {
            record_type,
            extents: extents_raw(pieces),
            ..Default::default()
        };
        fixture.attribute(id, "large", start, more.as_bytes());
    }
    let volume = fixture.open().unwrap();
    assert_eq!(
        volume.xattrs(node(id)).unwrap(),
        ["", "large", "o\u{308}", "small", "\u{E9}"]
    );
    assert!(volume.attributes(node(id)).unwrap().has_xattrs);
    let get = |id, name: &str| {
        volume
            .xattr(node(id), name)
            .unwrap()
            .map(|value| all(&*value))
    };
    assert_eq!(get(id, "large").unwrap(), value);
    assert_eq!(get(id, "small").unwrap(), b"odd");
    assert_eq!(get(other, "small").unwrap(), b"another's");
    assert_eq!(get(id, "\u{E9}").unwrap(), b"as given");
    assert_eq!(get(id, "\u{F6}").unwrap(), b"decomposed");
    assert_eq!(get(id, "smal"), None);
    assert_eq!(get(other, "large"), None);
}

#[test]
fn finder_info_is_shown_without_what_the_system_keeps_there() {
    let mut fixture = Fixture::plain();
    let bare = fixture.file(Cnid::ROOT, "bare", b"", |file| {
        file.finder_info.date_added = 1_700_000_000.into();
        file.finder_info.document_id = 7.into();
        file.finder_info.write_generation = 9.into();
    });
    let typed = fixture.file(Cnid::ROOT, "typed", b"", |file| {
        file.user_info.file_type = *b"TEXT";
        file.finder_info.date_added = 1_700_000_000.into();
        file.finder_info.extended_flags = 0x1234.into();
    });
    let link = fixture.file(Cnid::ROOT, "link", b"bare", |file| {
        file.bsd.file_mode = 0o120_755.into();
        (file.user_info.file_type, file.user_info.creator) = (*b"slnk", *b"rhap");
    });
    let folder = fixture.folder(Cnid::ROOT, "folder", |folder| {
        folder.user_info.window[3] = 5.into()
    });
    let volume = fixture.open().unwrap();
    let info = |id| {
        volume
            .xattr(node(id), "com.apple.FinderInfo")
            .unwrap()
            .map(|value| all(&*value))
    };
    assert_eq!((info(bare), info(link)), (None, None));
    assert!(volume.xattrs(node(bare)).unwrap().is_empty());
    let mut expected = [0; 32];
    expected[..4].copy_from_slice(b"TEXT");
    expected[24..26].copy_from_slice(&[0x12, 0x34]);
    assert_eq!(info(typed).unwrap(), expected);
    assert_eq!(info(folder).unwrap()[7], 5);
    assert_eq!(
        volume.xattrs(node(folder)).unwrap(),
        ["com.apple.FinderInfo"]
    );
    assert_eq!(volume.read_link(node(link)).unwrap(), "bare");
    assert_eq!(
        volume.read_link(node(bare)).unwrap_err().kind(),
        Kind::Invalid
    );
}

#[test]
fn kinds_modes_and_flags_are_those_of_macos() {
    let mut fixture = Fixture::plain();
    for (name, mode) in [
        ("fifo", 0o010_600),
        ("char", 0o020_600),
        ("block", 0o060_600),
        ("socket", 0o140_777),
        ("odd", 0o040_644),
    ] {
        fixture.file(Cnid::ROOT, name, b"", |file| {
            file.bsd.file_mode = mode.into();
            file.bsd.special = 0x0E00_0003.into();
        });
    }
    fixture.file(Cnid::ROOT, "flags", b"", |file| {
        (file.bsd.owner_flags, file.bsd.admin_flags) = (0x03, 0x02);
        file.user_info.finder_flags = finder_flags::INVISIBLE.into();
        (file.bsd.owner_id, file.bsd.group_id) = (501.into(), 20.into());
        file.bsd.file_mode = 0o106_755.into();
        file.dates.content_mod = 2_082_844_801.into();
        file.dates.access = 1_800_000_000.into();
        file.dates.backup = 0.into();
    });
    fixture.file(Cnid::ROOT, "mac os 9", b"", |file| {
        file.bsd = Default::default();
        file.flags = record_flags::EXPANDED_TIMES.into();
        file.dates.create = 1_800_000_000.into();
    });
    let volume = fixture.open().unwrap();
    let get = |name: &str| volume.lookup(ROOT, name).unwrap().unwrap();
    let kinds =
        ["fifo", "char", "block", "socket", "odd"].map(|name| (get(name).kind, get(name).device));
    let device = 0x0E00_0003;
    let expected = [
        (FileKind::Fifo, 0),
        (FileKind::CharDevice, device),
        (FileKind::BlockDevice, device),
        (FileKind::Socket, 0),
    ];
    assert_eq!(kinds[..4], expected);
    assert_eq!(
        kinds[4],
        (FileKind::File, 0),
        "a file's record with a folder's mode"
    );
    let flags = get("flags");
    assert_eq!(flags.flags, 0x0002_0003 | UF_HIDDEN);
    assert_eq!(
        (flags.uid, flags.gid, flags.mode, flags.links),
        (501, 20, 0o6755, 1)
    );
    assert_eq!(
        (flags.modified, flags.backed_up),
        (Some(Timestamp::from_seconds(1)), None)
    );
    assert_eq!(
        flags.accessed,
        Some(Timestamp::from_seconds(1_800_000_000 - MAC_TO_UNIX))
    );
    let old = get("mac os 9");
    assert_eq!((old.uid, old.gid, old.mode), (99, 99, 0o644));
    assert_eq!(old.created, Some(Timestamp::from_seconds(1_800_000_000)));
}

/// Two files linked together, a third that has only the type of a link, a fourth without a target.
fn with_links() -> (Fixture, Cnid) {
    let mut fixture = Fixture::plain();
    let private = fixture.folder(Cnid::ROOT, FILES_FOLDER, |folder| {
        folder.dates.create = 3_000_000_500.into()
    });
    let target = fixture.file(private, "iNode77", b"shared", |file| {
        file.bsd.special = 2.into();
        file.flags = (record_flags::THREAD_EXISTS | record_flags::HAS_LINK_CHAIN).into();
    });
    let folder = fixture.folder(Cnid::ROOT, "folder", |_| {});
    let link = |created: u32, reference: u32| {
        move |file: &mut FileRaw| {
            (file.user_info.file_type, file.user_info.creator) = FILE_LINK_TYPE;
            file.bsd.special = reference.into();
            file.dates.create = created.into();
        }
    };
    fixture.file(Cnid::ROOT, "by private", b"", link(3_000_000_500, 77));
    fixture.file(folder, "by root", b"", link(3_000_000_000, 77));
    fixture.file(
        Cnid::ROOT,
        "impostor",
        b"not a link",
        link(3_000_000_001, 77),
    );
    fixture.file(Cnid::ROOT, "broken", b"", link(3_000_000_000, 78));
    (fixture, target)
}

#[test]
fn hard_links_are_followed_and_their_folder_hidden() {
    let (fixture, target) = with_links();
    let volume = fixture.open().unwrap();
    assert_eq!(
        names(&volume, ROOT),
        ["broken", "by private", "folder", "impostor"]
    );
    assert!(
        volume
            .lookup(ROOT, "\u{2400}\u{2400}\u{2400}\u{2400}HFS+ Private Data")
            .unwrap()
            .is_none()
    );
    for path in ["/by private", "/folder/by root"] {
        let found = volume.resolve(path).unwrap();
        assert_eq!(
            (found.id, found.links, found.size),
            (node(target), 2, 6),
            "{path}"
        );
        assert_eq!(read(&volume, path), b"shared", "{path}");
    }
    let listed = volume
        .entries(volume.resolve("/folder").unwrap().id)
        .unwrap();
    assert_eq!(
        listed[0].attributes,
        volume.attributes(node(target)).unwrap()
    );
    assert_eq!(read(&volume, "/impostor"), b"not a link");
    let broken = volume.resolve("/broken").unwrap();
    let error = volume.open(broken.id, Fork::Data).unwrap_err();
    assert!(
        error.kind() == Kind::Corrupt && error.to_string().contains("iNode78"),
        "{error}"
    );
}

#[test]
fn hard_links_to_folders_are_followed() {
    let mut fixture = Fixture::plain();
    let private = fixture.folder(Cnid::ROOT, FOLDERS_FOLDER, |_| {});
    let target = fixture.folder(private, "dir_55", |_| {});
    fixture.file(target, "inside", b"found", |_| {});
    fixture.file(Cnid::ROOT, "link", b"", |file| {
        (file.user_info.file_type, file.user_info.creator) = FOLDER_LINK_TYPE;
        file.user_info.finder_flags = finder_flags::ALIAS.into();
        file.flags = (record_flags::THREAD_EXISTS | record_flags::HAS_LINK_CHAIN).into();
        file.bsd.special = 55.into();
    });
    let volume = fixture.open().unwrap();
    assert_eq!(names(&volume, ROOT), ["link"]);
    assert_eq!(volume.resolve("/link").unwrap().kind, FileKind::Folder);
    assert_eq!(read(&volume, "/link/inside"), b"found");
    assert_eq!(
        volume.attributes(ROOT).unwrap().size,
        0,
        "private folders do not count"
    );
}

#[test]
fn compressed_contents_are_read() {
    let header = |number: u32, size: u64, payload: &[u8]| {
        [
            &b"fpmc"[..],
            &number.to_le_bytes(),
            &size.to_le_bytes(),
            payload,
        ]
        .concat()
    };
    let mut fixture = Fixture::plain();
    let compressed = |file: &mut FileRaw| file.bsd.owner_flags = 0x20;
    let id = fixture.file(Cnid::ROOT, "inline", b"", compressed);
    fixture.inline_attribute(id, "com.apple.decmpfs", &header(3, 5, b"\xFFhello"));
    fixture.inline_attribute(id, "mine", b"kept");
    let cloud = fixture.file(Cnid::ROOT, "cloud", b"", compressed);
    fixture.inline_attribute(
        cloud,
        "com.apple.decmpfs",
        &header(0x8000_0001, 1_234_567, b""),
    );
    let plain = fixture.file(Cnid::ROOT, "attribute only", b"plain", |_| {});
    fixture.inline_attribute(plain, "com.apple.decmpfs", &header(8, 1, b""));
    fixture.file(Cnid::ROOT, "flag only", b"plain too", compressed);
    let volume = fixture.open().unwrap();
    let attributes = volume.resolve("/inline").unwrap();
    assert_eq!((attributes.size, attributes.flags), (5, UF_COMPRESSED));
    assert_eq!(read(&volume, "/inline"), b"hello");
    assert_eq!(
        volume.xattrs(attributes.id).unwrap(),
        ["mine"],
        "how it is stored is hidden"
    );
    assert!(
        volume
            .xattr(attributes.id, "com.apple.decmpfs")
            .unwrap()
            .is_some(),
        "but report who asks for it"
    );
    assert_eq!(
        volume
            .open(attributes.id, Fork::Resource)
            .unwrap()
            .info()
            .len,
        0
    );
    let attributes = volume.resolve("/cloud").unwrap();
    assert_eq!(attributes.size, 1_234_567);
    let error = volume.open(attributes.id, Fork::Data).unwrap_err();
    assert!(
        error.kind() == Kind::Unsupported && error.to_string().contains("server"),
        "{error}"
    );
    assert_eq!(read(&volume, "/attribute only"), b"plain");
    assert_eq!(read(&volume, "/flag only"), b"plain too");
}

#[test]
fn files_of_old_systems_need_no_thread() {
    let mut fixture = Fixture::plain();
    let id = fixture.file(Cnid::ROOT, "old", b"threadless", |file| {
        file.flags = 0.into()
    });
    fixture
        .catalog
        .retain(|record| record[2..6] != id.0.to_be_bytes());
    let volume = fixture.open().unwrap();
    assert_eq!(read(&volume, "/old"), b"threadless");
    assert_eq!(
        volume.attributes(NodeId(999)).unwrap_err().kind(),
        Kind::NotFound
    );
    assert_eq!(
        volume.attributes(NodeId(u64::MAX)).unwrap_err().kind(),
        Kind::NotFound
    );
}

#[test]
fn a_wrapper_is_looked_into() {
    let mut fixture = Fixture::plain();
    fixture.file(Cnid::ROOT, "inside", b"the wrapper", |_| {});
    let volume = fixture.draw().bytes;
    let mut block = MasterDirectoryBlockRaw::new_zeroed();
    block.signature = (*b"BD").into();
    block.allocation_block_size = 1024.into();
    block.first_allocation_block = 5.into();
    block.embedded_signature = 0x482B.into();
    block.embedded_start_block = 3.into();
    block.embedded_block_count = u16::try_from(volume.len().div_ceil(1024)).unwrap().into();
    let start = 5 * 512 + 3 * 1024;
    let mut bytes = vec![0; start];
    bytes[1024..1024 + size_of_val(&block)].copy_from_slice(block.as_bytes());
    bytes.extend_from_slice(&volume);
    bytes.resize(bytes.len().next_multiple_of(1024) + 4096, 0);
    let device = Arc::new(Memory::read_only(bytes.clone()));
    assert_eq!(probe(&*device).unwrap(), Some(Probed::Wrapped));
    assert_eq!(
        read(&HfsPlus::open(device).unwrap(), "/inside"),
        b"the wrapper"
    );

    bytes[1024 + 0x7C] = 0;
    let device = Arc::new(Memory::read_only(bytes));
    assert_eq!(probe(&*device).unwrap(), Some(Probed::Hfs));
    let error = HfsPlus::open(device).unwrap_err();
    assert!(
        error.kind() == Kind::Unsupported && error.to_string().contains("plain HFS"),
        "{error}"
    );
}

#[test]
fn the_alternate_header_stands_in() {
    let mut drawn = Fixture::plain().draw();
    drawn.bytes[1024..1536].fill(0xFF);
    assert_eq!(
        probe(&Memory::read_only(drawn.bytes.clone())).unwrap(),
        Some(Probed::HfsPlus)
    );
    let volume = drawn.open().unwrap();
    assert_eq!(volume.volume().name, "Sketch");
    assert_eq!(volume.problems().len(), 1);
    assert_eq!(volume.problems()[0].kind(), Kind::Corrupt);
}

#[test]
fn nothing_else_is_taken_for_a_volume() {
    for bytes in [vec![0; 8192], vec![0xFF; 8192], vec![], vec![0; 1536]] {
        assert_eq!(probe(&Memory::read_only(bytes.clone())).unwrap(), None);
        let error = HfsPlus::open(Arc::new(Memory::read_only(bytes))).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
}

#[test]
fn the_volume_describes_itself() {
    let mut fixture = Fixture::plain();
    fixture.header.identifier = 0x0123_4567_89AB_CDEF.into();
    fixture.header.create_date = 3_000_003_600.into(); // an hour east of the root folder's, which is in UTC
    fixture.header.modify_date = 3_200_000_000.into();
    (fixture.header.file_count, fixture.header.folder_count) = (5.into(), 6.into());
    fixture.header.free_blocks = 2.into();
    let info = fixture.open().unwrap().volume();
    // Verified with Python: uuid.uuid5 with md5 over the namespace and the eight bytes.
    assert_eq!(
        info.uuid.unwrap().to_string(),
        "de53349f-21ad-3c08-9044-ae10cd9587d3"
    );
    assert_eq!(
        info.created,
        Some(Timestamp::from_seconds(3_000_000_000 - MAC_TO_UNIX))
    );
    assert_eq!(
        info.modified,
        Some(Timestamp::from_seconds(3_200_000_000 - MAC_TO_UNIX))
    );
    assert_eq!(
        (info.files, info.folders, info.free, info.block_size),
        (5, 6, 1024, 512)
    );
    assert_eq!(
        (info.clean, info.journaled, &*info.name),
        (true, false, "Sketch")
    );
    assert_eq!(Fixture::plain().open().unwrap().volume().uuid, None);
}

#[test]
fn a_volume_that_was_not_unmounted_is_not_clean() {
    let mut dirty = Fixture::plain();
    dirty.header.attributes = volume_attributes::UNMOUNTED.into(); // sketches turn this bit over
    assert!(!dirty.open().unwrap().volume().clean);
    let mut damaged = Fixture::plain();
    damaged.header.attributes = volume_attributes::INCONSISTENT.into();
    assert!(!damaged.open().unwrap().volume().clean);
}

#[test]
fn listing_stops_on_request_and_passes_errors_on() {
    let mut fixture = Fixture::plain();
    for name in ["a", "b", "c"] {
        fixture.file(Cnid::ROOT, name, b"", |_| {});
    }
    let volume = fixture.open().unwrap();
    let mut seen = 0;
    let stop = |_| {
        seen += 1;
        Ok(if seen == 2 {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        })
    };
    volume.list(ROOT, &mut { stop }).unwrap();
    assert_eq!(seen, 2);
    let error = volume
        .list(ROOT, &mut |_| {
            Err(Error::new(Kind::Cancelled, "test", "stop"))
        })
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
    let file = volume.resolve("/a").unwrap();
    assert_ne!(volume.entries(file.id).unwrap_err().kind(), Kind::Io);
    assert_eq!(
        volume.open(ROOT, Fork::Data).unwrap_err().kind(),
        Kind::Invalid
    );
}

#[test]
fn threads_read_side_by_side() {
    let mut fixture = Fixture::plain();
    let folder = fixture.folder(Cnid::ROOT, "folder", |_| {});
    for index in 0..200_u32 {
        fixture.file(
            folder,
            &format!("file {index}"),
            &index.to_be_bytes(),
            |_| {},
        );
    }
    let volume = fixture.open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let volume = &volume;
            scope.spawn(move || {
                for index in (0..200_u32).map(|index| (index * 7 + thread) % 200) {
                    assert_eq!(
                        read(volume, &format!("/folder/FILE {index}")),
                        index.to_be_bytes()
                    );
                }
                assert_eq!(volume.entries(node(folder)).unwrap().len(), 200);
            });
        }
    });
}

/// Short names, many of which differ only in case or in ignored units.
fn short_names() -> impl Strategy<Value = Vec<String>> {
    let letter = prop::sample::select(vec![
        'a',
        'A',
        'b',
        'B',
        'ß',
        '\u{200D}',
        '\u{3A9}',
        '\u{3C9}',
        '7',
        ' ',
        '_',
        '\u{1F600}',
    ]);
    prop::collection::vec(
        prop::collection::vec(letter, 1..6).prop_map(String::from_iter),
        0..80,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn trees_hold_what_a_map_holds(files in short_names(), wanted in short_names(), binary: bool) {
        let order = if binary { NameOrder::Binary } else { NameOrder::Folding };
        let mut fixture = Fixture::new(if binary { Variant::Hfsx } else { Variant::HfsPlus }, order);
        let key = |name: &str| { let mut key = Vec::new(); order.sort_key(&units(name), &mut key); key };
        let mut model: BTreeMap<Vec<u8>, (String, Cnid)> = BTreeMap::new();
        for name in &files {
            if key(name).is_empty() || model.contains_key(&key(name)) {
                continue;
            }
            let id = fixture.file(Cnid::ROOT, name, name.as_bytes(), |_| {});
            model.insert(key(name), (name.clone(), id));
        }
        let volume = fixture.open().unwrap();
        let listed: Vec<(String, NodeId)> =
            volume.entries(ROOT).unwrap().into_iter().map(|entry| (entry.name, entry.attributes.id)).collect();
        let expected: Vec<(String, NodeId)> = model.values().map(|(name, id)| (name.clone(), node(*id))).collect();
        prop_assert_eq!(listed, expected);
        for name in files.iter().chain(&wanted).filter(|name| !key(name).is_empty()) {
            let found: Option<Attributes> = volume.lookup(ROOT, name).unwrap();
            prop_assert_eq!(found.as_ref().map(|found| found.id), model.get(&key(name)).map(|(_, id)| node(*id)));
            if let Some(found) = found {
                let stored = &model[&key(name)].0;
                prop_assert_eq!(all(&*volume.open(found.id, Fork::Data).unwrap()), stored.as_bytes());
            }
        }
    }
}

#[test]
fn a_fork_is_lent_and_described_by_the_device_below() {
    let mut fixture = Fixture::plain();
    let extent = fixture.store(&[7; 1000]);
    let elsewhere = Extent {
        start: AllocBlock(extent.start.0 + 1),
        count: 1,
    };
    let id = fixture.file(Cnid::ROOT, "file", b"", |file| {
        file.data_fork = fork(
            1000,
            2,
            &[
                elsewhere,
                Extent {
                    start: extent.start,
                    count: 1,
                },
            ],
        );
    });
    let volume = fixture.open().unwrap();
    let device = volume.open(node(id), Fork::Data).unwrap();
    assert_eq!(
        device
            .extents(0..1000)
            .map(|run| run.unwrap().0)
            .collect::<Vec<_>>(),
        [0..512, 512..1000]
    );
    assert!(
        device.file_range(0..1000).unwrap().is_none(),
        "memory has no file to lend"
    );
    assert_eq!(device.write_at(0, b"x").unwrap_err().kind(), Kind::ReadOnly);
    assert_eq!(
        device.read_at(990, &mut [0; 11]).unwrap_err().kind(),
        Kind::OutOfRange
    );
    device.read_at(1000, &mut []).unwrap();
    device.flush().unwrap();
}
