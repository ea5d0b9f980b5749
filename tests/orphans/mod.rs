//! Stored data that belongs to no part of the disk: it is kept unless all volumes are sound and
//! nothing can refer to it.

mod bands;
mod chunks;
mod maps;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::decision::{Assumptions, Undecided};
use bandsaw::device::Access;
use bandsaw::fs::{NewKind, NewNode, Timestamp};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::compact::{self, Compacted};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::reband::reband;
use bandsaw::ops::repair::{self, Mode, Options, Outcome, Repaired, repair};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, limits, resize};
use bandsaw::ops::stack;
use bandsaw::ops::trim::{before_use, trim};
use bandsaw::ops::writable_volume::{RewritableVolume, WritableVolume};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::store::Local;
use bandsaw::testing::Random;
use bandsaw::testing::contents::{Contents, contents};

const MIB: usize = 1 << 20;

struct Sample {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Sample {
    /// Creates an image of 12 MiB with 5 MB of random files.
    fn new(format: Format, volume: NewFormat) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        for number in 0..10 {
            let bytes = Random::new(number).bytes(500_000);
            fs::write(source.join(format!("file {number}")), bytes).unwrap();
        }
        let path = folder.path().join("image");
        let options = CreateOptions {
            format,
            len: Some(12 << 20),
            band_size: format.has_bands().then_some(1 << 20),
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: "Data".into(),
                format: volume,
                block_size: None,
                source: Source::Folder(source),
            }),
            epoch: Some(Timestamp::from_seconds(1_700_000_000)),
            ..CreateOptions::default()
        };
        drop(create(&path, options, &Silent).unwrap());
        Self { folder, path }
    }

    fn contents(&self) -> Contents {
        let store = Arc::new(Local::new(self.folder.path()));
        let options = OpenOptions::default();
        match self.path.is_dir() {
            true => contents(Arc::new(Local::new(&self.path)), None, &options).unwrap(),
            false => contents(store, Some("image"), &options).unwrap(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn edit(&self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = self.bytes();
        change(&mut bytes);
        fs::write(&self.path, &bytes).unwrap();
        bytes
    }

    fn repair(&self, assume: &[&str]) -> Repaired {
        let mut assumptions = Assumptions::default();
        assume
            .iter()
            .for_each(|text| assumptions.add(text).unwrap());
        let options = Options {
            mode: Mode::Apply,
            assume: assumptions,
            ..Options::default()
        };
        repair(&self.path, &OpenOptions::default(), &options, &Silent).unwrap()
    }

    fn undo(&self) {
        repair::undo(&self.path, &OpenOptions::default(), &Options::default()).unwrap();
    }

    fn compact(&self) -> Compacted {
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let image = open::open(&self.path, &options).unwrap();
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        compact::compact(&image, &options, None, &Silent).unwrap()
    }

    fn plan(&self) -> compact::Plan {
        let image = open::open(&self.path, &OpenOptions::default()).unwrap();
        compact::plan(&image, &compact::Options::default(), None, &Silent).unwrap()
    }

    /// Returns the worst problem, and true if data may be lost.
    fn check(&self) -> (Option<Severity>, bool) {
        let found = open::examine(&self.path, &OpenOptions::default(), &Silent).unwrap();
        (found.problems.worst(), found.is_in_doubt)
    }
}

/// A change of the bytes of an image.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

fn be(bytes: &[u8], at: usize, len: usize) -> usize {
    let digits = bytes[at..at + len].iter();
    digits.fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Returns the offset of a label of a sparse image whose band holds contents of files alone.
fn label_of_contents(bytes: &[u8]) -> usize {
    // In the order of the disk: that of the file depends on which thread writes first.
    let at = |slot: usize| 0x40 + 4 * slot;
    let mut used: Vec<_> = (0..1008)
        .map(|slot| (be(bytes, at(slot), 4), slot))
        .filter(|(band, _)| *band != 0)
        .collect();
    assert!(used.len() > 5, "{used:?}");
    used.sort_unstable();
    at(used[used.len() / 2].1)
}

/// Returns the offsets of the used entries of the table of an ASIF image, and their chunks.
fn entries(bytes: &[u8]) -> Vec<(usize, usize)> {
    let directories = [be(bytes, 0x10, 8), be(bytes, 0x18, 8)];
    let active = directories
        .into_iter()
        .max_by_key(|at| be(bytes, *at, 8))
        .unwrap();
    let table = be(bytes, active + 8, 8) * MIB;
    (0..12)
        .map(|entry| table + 8 * entry)
        .map(|at| (at, be(bytes, at, 8) & 0x007F_FFFF_FFFF_FFFF))
        .filter(|(_, chunk)| *chunk != 0)
        .collect()
}

fn alternatives(done: &Repaired) -> Vec<&str> {
    let undecided = done.undecided.as_ref().unwrap();
    let alternatives = Undecided::of(undecided).iter();
    alternatives.map(|one| one.assume.as_str()).collect()
}

/// Damages one reference to a band or chunk, so that its data belongs to nothing, and checks that
/// no operation but a chosen repair touches it.
fn check_lost_reference(sample: &Sample, damage: impl FnOnce(&mut Vec<u8>), what: &str) {
    let expected = sample.contents();
    let damaged = sample.edit(damage);
    assert_ne!(sample.contents(), expected, "{what}");
    let (worst, is_in_doubt) = sample.check();
    assert!(
        worst >= Some(Severity::Warning) && is_in_doubt,
        "{what}: {worst:?}"
    );

    let plan = sample.plan();
    assert_eq!(plan.orphans.found.len(), 1, "{what}: {:?}", plan.orphans);
    assert!(plan.orphans.kept.is_some(), "{what}");

    let done = sample.repair(&[]);
    assert_eq!(done.outcome, Outcome::Undecided, "{what}: {done:?}");
    assert_eq!(
        alternatives(&done),
        ["orphans=restore", "orphans=remove"],
        "{what}"
    );
    assert!(sample.bytes() == damaged, "{what}");

    let done = sample.repair(&["orphans=restore"]);
    assert_eq!(done.outcome, Outcome::Repaired, "{what}: {done:?}");
    assert_eq!(sample.contents(), expected, "{what}");
    assert_eq!(sample.check(), (None, false), "{what}");
    sample.undo();
    assert!(sample.bytes() == damaged, "{what}");

    // Shrinking would move the zeros that are read there.
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    for size in [Size::Min, Size::Bytes(11 << 20)] {
        let image = open::open(&sample.path, &options).unwrap();
        let shrink = ResizeOptions {
            size,
            parts: Parts::All,
            volume: None,
            dry_run: false,
        };
        let error = resize(&image, &shrink, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{what}: {error}");
    }
    assert!(sample.bytes() == damaged, "{what}");

    // Packing may move other bands, but not the orphan.
    let done = sample.compact();
    assert!(done.orphans.kept.is_some(), "{what}");
    let done = sample.repair(&["orphans=restore"]);
    assert_eq!(done.outcome, Outcome::Repaired, "{what}: {done:?}");
    assert_eq!(sample.contents(), expected, "{what}");

    fs::write(&sample.path, &damaged).unwrap();
    let _ = fs::remove_dir_all(repair::undo_folder(&sample.path, None));
    let done = sample.repair(&["orphans=remove"]);
    assert_eq!(done.outcome, Outcome::Repaired, "{what}: {done:?}");
    // The place of the contents reads as zeros now.
    assert_eq!(sample.check(), (Some(Severity::Note), false), "{what}");
    sample.undo();
    assert!(sample.bytes() == damaged, "{what}");
}

#[test]
fn shrinking_keeps_orphans_of_unknown_contents() {
    let sample = Sample::new(Format::Udsp, NewFormat::HfsPlus);
    let at = label_of_contents(&sample.bytes());
    let damaged = sample.edit(|bytes| {
        bytes[at..at + 4].fill(0);
        let noise = Random::new(77).bytes(bytes.len() - 4096);
        bytes[4096..].copy_from_slice(&noise);
    });
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let image = open::open(&sample.path, &options).unwrap();
    let shrink = ResizeOptions {
        size: Size::Bytes(11 << 20),
        parts: Parts::Image,
        volume: None,
        dry_run: false,
    };
    let error = resize(&image, &shrink, &Silent).unwrap_err();
    let alternatives: Vec<_> = Undecided::of(&error)
        .iter()
        .map(|one| one.assume.as_str())
        .collect();
    assert_eq!(alternatives, ["orphans=remove"], "{error}");
    drop(image);
    assert!(sample.bytes() == damaged);
}

/// Verbs that read contents and store them again are refused where these may be zeros by mistake, and
/// not otherwise.
#[test]
fn contents_are_not_stored_again_while_data_may_belong_to_them() {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let check = |sample: &Sample, is_refused: bool| {
        let image = open::open(&sample.path, &options).unwrap();
        match RewritableVolume::open(&image, None, None, &Silent) {
            Ok(volume) => {
                assert!(!is_refused);
                volume.unmount().unwrap();
            }
            Err(error) => {
                assert!(is_refused, "{error}");
                assert_eq!(error.kind(), Kind::Undecided, "{error}");
            }
        }
    };
    for volume in [NewFormat::HfsPlusJournaled, NewFormat::Apfs] {
        let lose_band = |bytes: &mut Vec<u8>| {
            let at = label_of_contents(bytes);
            bytes[at..at + 4].fill(0);
        };
        let lose_chunk = |bytes: &mut Vec<u8>| {
            let entries = entries(bytes);
            let (at, _) = entries[entries.len() / 2];
            bytes[at..at + 8].fill(0);
        };
        let cases: [(Format, Damage<'_>); 2] =
            [(Format::Udsp, &lose_band), (Format::Asif, &lose_chunk)];
        for (format, lose) in cases {
            let sample = Sample::new(format, volume);
            let whole = sample.bytes().len();
            sample.edit(|bytes| bytes.resize(whole + MIB, 7));
            check(&sample, false);
            sample.edit(|bytes| bytes.truncate(whole));
            let damaged = sample.edit(|bytes| lose(bytes));
            check(&sample, true);
            assert!(sample.bytes() == damaged, "{format}");
            // Programs can use the volume, but no file of it is decompressed for them.
            let image = open::open(&sample.path, &options).unwrap();
            let volume = WritableVolume::open(&image, None, None, &Silent).unwrap();
            let error = volume.rewritable().unwrap_err();
            assert_eq!(error.kind(), Kind::Undecided, "{format}: {error}");
            volume.unmount().unwrap();
        }
    }
}

#[test]
fn a_layer_is_not_committed_to_an_image_with_orphans() {
    let sample = Sample::new(Format::Udsp, NewFormat::HfsPlus);
    let at = label_of_contents(&sample.bytes());
    let damaged = sample.edit(|bytes| bytes[at..at + 4].fill(0));
    let layers = [sample.folder.path().join("layer")];
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let over = OpenOptions {
        shadows: &layers,
        ..options
    };
    let image = open::open(&sample.path, &over).unwrap();
    let volume = image.file_system_mut(None).unwrap();
    volume
        .create(volume.root(), "more", &NewNode::new(NewKind::File))
        .unwrap();
    volume.unmount().unwrap();
    drop((volume, image));
    let layer = fs::read(&layers[0]).unwrap();
    let error = stack::commit(&sample.path, &layers, &options, &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    assert!(sample.bytes() == damaged && fs::read(&layers[0]).unwrap() == layer);
}

/// The entry of the only partition is lost in both copies of the map.
#[test]
fn a_volume_without_an_entry_in_the_map_is_no_blank_disk() {
    for format in [Format::Udrw, Format::Udsp] {
        let sample = Sample::new(Format::Udrw, NewFormat::HfsPlus);
        sample.edit(|bytes| {
            let last = bytes.len() - 512;
            for (header, table) in [(512, 1024), (last, last - 32 * 512)] {
                bytes[table..table + 32 * 512].fill(0);
                let sum = crc32fast::hash(&bytes[table..table + 32 * 512]);
                bytes[header + 88..header + 92].copy_from_slice(&sum.to_le_bytes());
                bytes[header + 16..header + 20].fill(0);
                let sum = crc32fast::hash(&bytes[header..header + 92]);
                bytes[header + 16..header + 20].copy_from_slice(&sum.to_le_bytes());
            }
        });
        let path = match format {
            Format::Udrw => sample.path.clone(),
            _ => {
                let path = sample.folder.path().join("copy");
                let image = open::open(&sample.path, &OpenOptions::default()).unwrap();
                let new = ConvertOptions {
                    format,
                    ..ConvertOptions::default()
                };
                convert(&image, &path, &new, &Silent).unwrap();
                path
            }
        };
        let found = open::examine(&path, &OpenOptions::default(), &Silent).unwrap();
        assert_eq!(found.contents, Some(open::Contents::Unknown), "{format}");
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let before = fs::read(&path).unwrap();
        let image = open::open(&path, &options).unwrap();
        let shrink = ResizeOptions {
            size: Size::Bytes(2 << 20),
            parts: Parts::Image,
            volume: None,
            dry_run: false,
        };
        let error = resize(&image, &shrink, &Silent).unwrap_err();
        assert!(
            matches!(error.kind(), Kind::Conflict | Kind::Undecided),
            "{format}: {error}"
        );
        drop(image);
        assert!(fs::read(&path).unwrap() == before, "{format}");
    }
}

/// A header with too few sectors: a disk that grows would remove the bands and chunks past its end.
#[test]
fn a_disk_of_unknown_contents_does_not_grow_over_its_own_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    // The ends of the numbers of sectors.
    for (format, places) in [(Format::Udsp, &[0x14, 0x24][..]), (Format::Asif, &[0x38])] {
        let new = CreateOptions {
            format,
            len: Some(12 << 20),
            overwrite: true,
            ..CreateOptions::default()
        };
        let created = create(&path, new, &Silent).unwrap();
        let disk = created.image.disk();
        disk.write_at(0, &Random::new(9).bytes(12 * MIB)).unwrap();
        disk.flush().unwrap();
        drop(created);
        let mut damaged = fs::read(&path).unwrap();
        for end in places {
            assert_eq!(be(&damaged, end - 4, 4), 12 * MIB / 512, "{format}");
            damaged[end - 4..*end].copy_from_slice(&(6_u32 << 11).to_be_bytes());
        }
        fs::write(&path, &damaged).unwrap();
        let image = open::open(&path, &options).unwrap();
        let grow = ResizeOptions {
            size: Size::Bytes(12 << 20),
            parts: Parts::Image,
            volume: None,
            dry_run: false,
        };
        let error = resize(&image, &grow, &Silent).unwrap_err();
        let is_refused = matches!(error.kind(), Kind::Undecided | Kind::Conflict);
        assert!(is_refused, "{format}: {error}");
        drop(image);
        assert!(fs::read(&path).unwrap() == damaged, "{format}");
    }
}

/// Before a mount nothing is freed; the user's own trim is refused.
#[test]
fn an_image_with_orphans_is_used_and_not_trimmed() {
    let sample = Sample::new(Format::Udsp, NewFormat::HfsPlus);
    let at = label_of_contents(&sample.bytes());
    let damaged = sample.edit(|bytes| bytes[at..at + 4].fill(0));
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let image = open::open(&sample.path, &options).unwrap();
    assert!(before_use(&image, None, &Silent).unwrap().is_empty());
    let error = trim(&image, None, &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    drop(image);
    assert!(sample.bytes() == damaged);
}

/// The tables are lost in both directories: the disk is blank, and all its data belongs to nothing.
#[test]
fn a_blank_disk_with_stored_data_is_in_doubt() {
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    sample.edit(|bytes| {
        for directory in [be(bytes, 0x10, 8), be(bytes, 0x18, 8)] {
            bytes[directory + 8..directory + 16].fill(0);
        }
    });
    let (worst, is_in_doubt) = sample.check();
    assert!(worst >= Some(Severity::Warning) && is_in_doubt, "{worst:?}");
    let done = sample.repair(&[]);
    assert_ne!(done.outcome, Outcome::Repaired, "{done:?}");
}

/// Remains of an interrupted write in blocks that no volume uses do not count.
#[test]
fn leftovers_in_unused_blocks_refuse_nothing() {
    let sample = Sample::new(Format::Asif, NewFormat::HfsPlus);
    let bytes = sample.bytes();
    let entries = entries(&bytes);
    let partial = entries.iter().rfind(|(at, _)| bytes[*at] >> 6 == 3);
    let (at, chunk) = *partial.unwrap();
    let bitmap = be(&bytes, entries[0].0 + 8 * 2048, 8) * MIB;
    let mask = bitmap + (at - entries[0].0) / 8 * 512;
    let unwritten = (0..512).find(|byte| bytes[mask + byte] == 0).unwrap();
    sample.edit(|bytes| {
        let end = (chunk * MIB + unwritten * 2048 + 2048).max(bytes.len());
        bytes.resize(end, 0);
        bytes[chunk * MIB + unwritten * 2048..][..2048].fill(7);
    });
    assert_eq!(sample.check(), (None, false));
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let image = open::open(&sample.path, &options).unwrap();
    image.file_system_mut(None).unwrap().unmount().unwrap();
}

/// Leftovers of an interrupted write are removed from an image that has all its data.
#[test]
fn accounted_leftovers_are_removed() {
    for format in [Format::Udsp, Format::Asif] {
        for volume in [NewFormat::HfsPlusJournaled, NewFormat::Apfs] {
            let sample = Sample::new(format, volume);
            let (expected, whole) = (sample.contents(), sample.bytes().len());
            let damaged = sample.edit(|bytes| bytes.resize(whole + MIB, 7));
            assert_eq!(sample.check(), (Some(Severity::Note), false), "{format}");
            assert_eq!(sample.plan().orphans.kept, None, "{format} {volume:?}");
            let done = sample.repair(&[]);
            assert_eq!(done.outcome, Outcome::Repaired, "{format}: {done:?}");
            assert_eq!(sample.bytes().len(), whole, "{format}");
            sample.undo();
            assert!(sample.bytes() == damaged, "{format}");
            // A compaction leaves them to a repair, which keeps undo data.
            let done = sample.compact();
            assert_eq!(done.orphans.bytes(), MIB as u64, "{format}");
            assert!(done.orphans.is_resolved() && done.orphans.kept.is_some());
            assert!(sample.bytes().len() > whole, "{format}");
            assert_eq!(sample.repair(&[]).outcome, Outcome::Repaired);
            assert!(sample.bytes().len() <= whole, "{format}");
            assert_eq!(sample.contents(), expected, "{format}");
            assert_eq!(sample.check(), (None, false), "{format}");
        }
    }
}
