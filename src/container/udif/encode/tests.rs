//! Tests that read new images with our own reader; `tests/peers` covers other readers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::container::udif::{Udif, Usage};
use crate::device::{BlockDeviceExt, ExtentKind, Memory};
use crate::partition::{self, APPLE_HFS, Scheme, gpt};
use crate::progress::Silent;

const MIB: usize = 1 << 20;
const KINDS: [Format; 6] = [
    Format::Udro,
    Format::Udco,
    Format::Udzo,
    Format::Udbz,
    Format::Ulfo,
    Format::Ulmo,
];

/// Returns a disk with a map, text, noise, short and long zeros, and data in the last sector.
fn disk() -> Memory {
    let disk = Memory::zeros(9 * MIB + 512);
    let text: Vec<u8> = (0..90_000u32)
        .flat_map(|n| format!("{} of {n}\n", n * 7919 % 97).into_bytes())
        .take(MIB)
        .collect();
    let mut state = 7u32;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    let noise: Vec<u8> = (0..3 * MIB).map(|_| noise()).collect();
    disk.write_at(300_000, &text).unwrap();
    disk.write_at(3 * MIB as u64, &noise).unwrap();
    disk.write_at(8 * MIB as u64 + 100_000, b"one byte of many")
        .unwrap();
    gpt::create_single(&disk, 512, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
    disk
}

/// Returns the areas of a disk, as a conversion would.
fn areas(disk: &dyn BlockDevice) -> (TableNumbering, Vec<Area>) {
    let map = partition::probe(disk).unwrap();
    let (scheme, areas) = partition::areas(disk, map.as_ref()).unwrap();
    let areas = areas.into_iter().map(|area| {
        let is_free = area.is_free();
        Area {
            range: area.range,
            name: area.name,
            kind: area.kind,
            is_free,
        }
    });
    (
        if scheme == Some(Scheme::Gpt) {
            TableNumbering::FromZero
        } else {
            TableNumbering::Whole
        },
        areas.collect(),
    )
}

fn encoded(disk: &dyn BlockDevice, format: Format) -> Vec<u8> {
    let (numbers, areas) = areas(disk);
    let mut out = StreamSink(Vec::new());
    let options = EncodeOptions {
        format,
        level: None,
    };
    let done = encode(disk, (numbers, &areas), &options, &mut out, &Silent).unwrap();
    assert_eq!(done.written, out.0.len() as u64);
    out.0
}

fn open(bytes: &[u8]) -> Udif {
    Udif::open(Arc::new(Memory::read_only(bytes.to_vec()))).unwrap()
}

#[test]
fn every_kind_holds_the_disk() {
    let disk = disk();
    let plain = disk.to_vec();
    for format in KINDS {
        let bytes = encoded(&disk, format);
        let image = open(&bytes);
        assert_eq!(
            (image.format(), image.info().len),
            (format, plain.len() as u64)
        );
        assert!(image.read_vec(0, plain.len()).unwrap() == plain, "{format}");
        for verdict in image.verify(&Silent).unwrap() {
            assert_eq!(verdict.agrees(), Some(true), "{format}: {verdict:?}");
        }
        let Usage { held, stored, .. } = image.usage();
        assert!(held < 5 * MIB as u64, "{format}: zeros are stored: {held}");
        // Noise is stored uncompressed.
        assert!(
            stored
                < 3 * MIB as u64
                    + if format == Format::Udro {
                        2 * MIB as u64
                    } else {
                        600_000
                    },
            "{format}: {stored}"
        );
        assert!(
            bytes == encoded(&disk, format),
            "{format} differs from time to time"
        );
    }
}

#[test]
fn tables_are_laid_out_as_hdiutil_does() {
    let image = open(&encoded(&disk(), Format::Udzo));
    let tables: Vec<_> = image
        .resources()
        .iter()
        .filter(|resource| resource.kind == "blkx")
        .collect();
    let names: Vec<_> = tables
        .iter()
        .map(|table| (table.id.as_str(), table.name.as_str()))
        .collect();
    assert_eq!(names[0], ("-1", "Protective Master Boot Record (MBR : 0)"));
    assert_eq!(names[3], ("2", " (Apple_Free : 3)"));
    assert_eq!(
        names.last().unwrap(),
        &("5", "GPT Header (Backup GPT Header : 6)")
    );
    assert!(
        tables.iter().all(
            |table| table.cf_name.as_ref() == Some(&table.name) && table.attributes == "0x0050"
        )
    );
    let descriptors: Vec<_> = tables
        .iter()
        .map(|table| i32::from_be_bytes(table.data[0x24..0x28].try_into().unwrap()))
        .collect();
    assert_eq!(descriptors, (0..tables.len() as i32).collect::<Vec<_>>());
    // Unused space is one run of its own kind and is not summed.
    let free = &tables[3].data;
    assert_eq!(
        (&free[0x48..0x4C], &free[0xCC..0xD0], free.len()),
        (&[0; 4][..], &[0, 0, 0, 2][..], 0xCC + 80)
    );
    let plst = image
        .resources()
        .iter()
        .find(|resource| resource.kind == "plst")
        .unwrap();
    assert_eq!(
        (plst.data.len(), plst.id.as_str(), plst.cf_name.as_ref()),
        (1032, "0", None)
    );
}

#[test]
fn a_disk_without_a_map_is_one_table() {
    let disk = Memory::zeros(2 * MIB);
    let bytes = encoded(&disk, Format::Ulfo);
    let image = open(&bytes);
    let table = &image.resources()[0];
    assert_eq!(
        (table.id.as_str(), table.name.as_str()),
        ("0", "whole disk (unknown partition : 0)")
    );
    assert_eq!(table.data[0x24..0x28], (-2i32).to_be_bytes());
    assert_eq!(
        bytes[bytes.len() - 24..bytes.len() - 20],
        2u32.to_be_bytes(),
        "a partition, not a device"
    );
    assert!(
        image
            .verify(&Silent)
            .unwrap()
            .iter()
            .all(|verdict| verdict.agrees() == Some(true))
    );
}

/// A disk that reports its holes and counts the bytes read.
#[derive(Debug)]
struct Holes {
    data: Memory,
    at: u64,
    len: u64,
    read: AtomicU64,
    fails_from: u64,
}

fn holes(at: u64, len: u64, data: usize) -> Holes {
    Holes {
        data: Memory::from(vec![5; data]),
        at,
        len,
        read: AtomicU64::new(0),
        fails_from: u64::MAX,
    }
}

impl BlockDevice for Holes {
    fn info(&self) -> crate::device::Info {
        crate::device::Info {
            len: self.len,
            access: crate::device::Access::ReadOnly,
            ..self.data.info()
        }
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset >= self.fails_from {
            return Err(Error::corrupt("test", offset, "cannot be read"));
        }
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        buf.fill(0);
        let end = (offset + buf.len() as u64).min(self.at + self.data.info().len);
        let start = offset.max(self.at);
        if start < end {
            self.data.read_at(
                start - self.at,
                &mut buf[(start - offset) as usize..(end - offset) as usize],
            )?;
        }
        Ok(())
    }
    fn extent_at(&self, range: Range<u64>) -> Result<crate::device::Extent> {
        let end = self.at + self.data.info().len;
        let (kind, until) = match range.start {
            start if start < self.at => (ExtentKind::Hole, self.at),
            start if start < end => (ExtentKind::Data, end),
            _ => (ExtentKind::Zero, u64::MAX),
        };
        Ok(crate::device::Extent {
            kind,
            len: until.min(range.end) - range.start,
        })
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::read_only("test"))
    }
    fn discard(&self, _: Range<u64>, _: crate::device::AfterDiscard) -> Result<()> {
        Err(Error::read_only("test"))
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, _: u64, _: crate::device::AfterDiscard) -> Result<()> {
        Err(Error::read_only("test"))
    }
    fn file_range(&self, _: Range<u64>) -> Result<Option<crate::device::FileRange>> {
        Ok(None)
    }
}

#[test]
fn huge_holes_cost_nothing() {
    let huge = holes((1 << 42) + 4608, 1 << 43, 100_000);
    let bytes = encoded(&huge, Format::Udzo);
    assert!(bytes.len() < 10_000 && huge.read.load(Ordering::Relaxed) < 4 * MIB as u64);
    let image = open(&bytes);
    assert_eq!(
        image.read_vec((1 << 42) + 4600, 100_016).unwrap(),
        [&[0; 8][..], &[5; 100_000], &[0; 8]].concat()
    );
    assert!(
        image
            .verify(&Silent)
            .unwrap()
            .iter()
            .all(|verdict| verdict.agrees() == Some(true))
    );
    // The format that stores the disk does not matter.
    let small = holes(3 * MIB as u64 + 4608, 70 * MIB as u64, 100_000);
    let same = Memory::from(small.read_vec(0, 70 * MIB).unwrap());
    for format in [Format::Udro, Format::Udzo] {
        assert!(
            encoded(&small, format) == encoded(&same, format),
            "{format}"
        );
    }
}

#[test]
fn nonsense_is_refused() {
    let refused = |disk: &Memory, areas: &[Area], options: EncodeOptions| {
        encode(
            disk,
            (TableNumbering::Whole, areas),
            &options,
            &mut StreamSink(Vec::new()),
            &Silent,
        )
        .unwrap_err()
        .kind()
    };
    let area = |range| Area {
        range,
        name: String::new(),
        kind: String::new(),
        is_free: false,
    };
    let udzo = EncodeOptions {
        format: Format::Udzo,
        level: None,
    };
    let disk = Memory::zeros(1024);
    assert_eq!(
        refused(&disk, &[area(0..512)], udzo),
        Kind::Invalid,
        "too little"
    );
    assert_eq!(
        refused(&disk, &[area(0..512), area(1000..1024)], udzo),
        Kind::Invalid,
        "a gap"
    );
    assert_eq!(
        refused(&Memory::zeros(1000), &[area(0..1000)], udzo),
        Kind::Invalid,
        "areas leave gaps or are not whole sectors"
    );
    assert_eq!(
        refused(
            &disk,
            &[area(0..1024)],
            EncodeOptions {
                format: Format::Udrw,
                level: None
            }
        ),
        Kind::Invalid
    );
    let level = EncodeOptions {
        format: Format::Ulfo,
        level: Some(Level::default()),
    };
    assert_eq!(refused(&disk, &[area(0..1024)], level), Kind::Invalid);
}

#[test]
fn levels_make_it_smaller() {
    let (disk, areas) = (
        disk(),
        [Area {
            range: 0..9 * MIB as u64 + 512,
            name: String::new(),
            kind: String::new(),
            is_free: false,
        }],
    );
    let len = |level| {
        let mut out = StreamSink(Vec::new());
        let options = EncodeOptions {
            format: Format::Udzo,
            level: Some(Level::new(level).unwrap()),
        };
        encode(
            &disk,
            (TableNumbering::Whole, &areas),
            &options,
            &mut out,
            &Silent,
        )
        .unwrap()
        .written
    };
    assert!(len(9) < len(1));
}

#[test]
fn a_failing_disk_or_sink_ends_it() {
    struct Full(usize);
    impl Sink for Full {
        fn append(&mut self, bytes: &[u8]) -> Result<()> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or_else(|| Error::new(Kind::Io, "test", "full"))?;
            Ok(())
        }
    }
    let areas = [Area {
        range: 0..9 * MIB as u64 + 512,
        name: String::new(),
        kind: String::new(),
        is_free: false,
    }];
    let options = EncodeOptions {
        format: Format::Udzo,
        level: None,
    };
    let error = encode(
        &disk(),
        (TableNumbering::Whole, &areas),
        &options,
        &mut Full(MIB),
        &Silent,
    )
    .unwrap_err();
    assert_eq!(error.message(), "full");
    let failing = Holes {
        fails_from: 5 * MIB as u64,
        ..holes(0, 9 * MIB as u64 + 512, 9 * MIB)
    };
    let error = encode(
        &failing,
        (TableNumbering::Whole, &areas),
        &options,
        &mut Full(1 << 30),
        &Silent,
    )
    .unwrap_err();
    assert_eq!(error.message(), "cannot be read");
}

#[test]
fn a_device_grows_and_is_cut() {
    let (disk, file) = (disk(), Memory::zeros(0));
    let (numbers, areas) = areas(&disk);
    let mut out = DeviceSink::new(&file);
    let options = EncodeOptions {
        format: Format::Udzo,
        level: None,
    };
    let done = encode(&disk, (numbers, &areas), &options, &mut out, &Silent).unwrap();
    out.finish().unwrap();
    assert_eq!(file.info().len, done.written);
    assert!(file.to_vec() == encoded(&disk, Format::Udzo));
}
