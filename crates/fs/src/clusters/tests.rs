//! Tests of chains, tables and contents.

use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, ExtentKind, Memory};
use bandsaw_testing::conformance;

use super::{
    AllocationTable, ClusterContents, ClusterSpace, DirectoryPlace, DirectoryReader, EntryWidth,
    Run, TableEntry,
};

const SIZE: u64 = 512;

/// Returns a volume of 16 clusters, each filled with its number, with a table of 32-bit entries in front.
fn space(entries: &[u32]) -> ClusterSpace {
    let mut bytes: Vec<u8> = entries
        .iter()
        .flat_map(|entry| entry.to_le_bytes())
        .collect();
    bytes.resize(512, 0);
    bytes.extend((2..18_u8).flat_map(|number| [number; 512]));
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    ClusterSpace {
        table: Arc::new(AllocationTable::new(
            device.clone(),
            0,
            EntryWidth::Bits32,
            16,
        )),
        device,
        layer: "test",
        start: 512,
        cluster_size: SIZE,
        clusters: 16,
    }
}

const END: u32 = u32::MAX;

#[test]
fn a_chain_is_read_in_order() {
    let space = space(&[0, 0, 3, 7, 0, 0, 0, 8, END]);
    let runs = space.chain(2, 4).unwrap();
    let run = |logical, first, count| Run {
        logical,
        first,
        count,
    };
    assert_eq!(*runs, [run(0, 2, 2), run(2, 7, 2)]);
    let file = ClusterContents::new(&space, runs, 4 * SIZE - 5, 3 * SIZE + 10);
    let bytes = file.read_vec(0, 4 * 512 - 5).unwrap();
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (2, 3, 7));
    assert_eq!((bytes[3 * 512 + 9], bytes[3 * 512 + 10]), (8, 0));
    let extent = file.extent_at(3 * SIZE + 10..4 * SIZE - 5).unwrap();
    assert_eq!((extent.kind, extent.len), (ExtentKind::Zero, SIZE - 15));
    conformance::read_only(Arc::new(file));
    let contiguous = space.contiguous(4, 3).unwrap();
    assert_eq!(*contiguous, [run(0, 4, 3)]);
    assert!(space.contiguous(16, 3).is_err() && space.contiguous(2, u64::MAX).is_err());
    assert!(space.contiguous(0, 0).unwrap().is_empty());
}

#[test]
fn loops_and_ends_are_found() {
    for (entries, first, needed, expected) in [
        (&[0, 0, 3, 2][..], 2, 4, "loop"),
        (&[0, 0, 3, END], 2, 3, "ends with cluster 3"),
        (&[0, 0, 3, 0], 2, 3, "free cluster"),
        (&[0, 0, 99], 2, 2, "outside"),
        (&[0, 0, 0xFFFF_FFF7], 2, 2, "bad cluster"),
        (&[], 0, 1, "outside"),
        (&[], 2, 17, "more than"),
    ] {
        let error = space(entries).chain(first, needed).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn entries_of_every_width_are_decoded() {
    let table = |width, bytes: &[u8]| {
        let bytes = [bytes, &[0; 64]].concat();
        AllocationTable::new(Arc::new(Memory::read_only(bytes)), 0, width, 10)
    };
    let twelve = table(
        EntryWidth::Bits12,
        &[0xF8, 0xFF, 0xFF, 0x03, 0x40, 0x00, 0xF7, 0xFF, 0xFF],
    );
    let links: Vec<_> = (2..6).map(|at| twelve.link(at).unwrap()).collect();
    assert_eq!(
        links,
        [
            TableEntry::Next(3),
            TableEntry::Next(4),
            TableEntry::Bad,
            TableEntry::End
        ]
    );
    assert_eq!(twelve.entries(3, 2).unwrap(), [4, 0xFF7]);
    let wide = table(
        EntryWidth::Bits28,
        &[
            0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0xF0, 0xF8, 0xFF, 0xFF, 0x0F,
        ],
    );
    assert_eq!(wide.link(2).unwrap(), TableEntry::Next(3));
    assert_eq!(wide.link(3).unwrap(), TableEntry::End);
    assert_eq!(wide.link(4).unwrap(), TableEntry::Free);
    let mut count = 0;
    wide.each(|cluster, _| {
        count += 1;
        assert_eq!(cluster, count + 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 10);
    let sixteen = table(EntryWidth::Bits16, &[0, 0, 0, 0, 1, 0, 0xF7, 0xFF]);
    assert_eq!(sixteen.link(2).unwrap(), TableEntry::Outside(1));
    assert_eq!(sixteen.link(3).unwrap(), TableEntry::Bad);
}

#[test]
fn entries_of_every_width_are_stored_without_their_neighbors() {
    for (width, reserved) in [
        (EntryWidth::Bits12, 0),
        (EntryWidth::Bits16, 0),
        (EntryWidth::Bits28, 0xF0),
        (EntryWidth::Bits32, 0),
    ] {
        let disk = Arc::new(Memory::from(vec![0; 64]));
        let end = width.end_of_chain();
        // The highest bits of entries of 28 bits are reserved.
        disk.write_at(3 * 4 + 3, &[reserved]).unwrap();
        let table = AllocationTable::new(disk.clone(), 0, width, 10);
        let before = table.entries(0, 12).unwrap();
        for (first, entries) in [(5, vec![6, end]), (2, vec![end, 7, 4]), (9, vec![2])] {
            assert!(table.link(first).is_ok());
            table.store(first, &entries).unwrap();
            let last = entries.last().unwrap();
            let link = table.link(first + entries.len() as u64 - 1).unwrap();
            assert_eq!(link, table.decode(*last), "{width:?}");
        }
        let mut expected = before;
        expected[2..7].copy_from_slice(&[end, 7, 4, 6, end]);
        expected[9] = 2;
        assert_eq!(table.entries(0, 12).unwrap(), expected, "{width:?}");
        if reserved != 0 {
            let [kept] = disk.read_array(3 * 4 + 3).unwrap();
            assert_eq!(kept & 0xF0, reserved);
        }
    }
}

#[test]
fn a_directory_ends_with_its_chain_or_its_length() {
    let space = space(&[0, 0, 4, 0, END, 5]);
    let count = |place| {
        let mut reader = DirectoryReader::new(&space, &place)?;
        let mut count = 0;
        while reader.read_next()?.is_some() {
            count += 1;
        }
        Ok::<_, bandsaw_core::Error>(count)
    };
    let max = 1 << 20;
    assert_eq!(count(DirectoryPlace::Chain { first: 2, max }).unwrap(), 32);
    assert_eq!(count(DirectoryPlace::Fixed(512..1024)).unwrap(), 16);
    assert_eq!(
        count(DirectoryPlace::ChainOf { first: 2, len: 544 }).unwrap(),
        17
    );
    assert_eq!(
        count(DirectoryPlace::Contiguous {
            first: 2,
            len: 1536
        })
        .unwrap(),
        48
    );
    let failed = [
        DirectoryPlace::Chain {
            first: 5,
            max: 2048,
        },
        DirectoryPlace::Chain { first: 3, max },
        DirectoryPlace::ChainOf {
            first: 2,
            len: 1025,
        },
        DirectoryPlace::Contiguous {
            first: 17,
            len: 1024,
        },
        DirectoryPlace::Chain { first: 0, max },
    ];
    for place in failed {
        let error = count(place.clone()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{place:?}");
    }
}
