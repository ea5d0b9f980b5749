//! Manifests, verification and differences, on volumes with snapshots.

#[path = "../../../tests/common/backupd.rs"]
mod backupd;

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::Memory;
use bandsaw::fs::FileSystem;
use bandsaw::open::{Image, OpenOptions, VolumeQuery, open_device};
use bandsaw::progress::{Progress, Silent};
use bandsaw::{Kind, Result};
use bandsaw_evidence::{
    ComparedFolder, Comparison, DifferenceKind, Field, ManifestFormat, Mismatch, Options, diff,
    html, verify, write_manifest, write_timeline,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::backupd::History;

fn image(bytes: Vec<u8>) -> Image {
    let device = Arc::new(Memory::read_only(bytes));
    open_device(device, Path::new("disk.img"), &OpenOptions::default()).unwrap()
}

fn manifest(image: &Image) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let format = ManifestFormat::JsonLines;
    let done = write_manifest(image, None, format, "test", &mut out, &Silent).unwrap();
    assert!(done.problems.is_empty(), "{:?}", done.problems);
    out
}

fn lines(manifest: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(manifest).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn mismatches(manifest: &[u8], image: &Image) -> Result<Vec<Mismatch>> {
    let mut all = Vec::new();
    let mut each = |found| {
        all.push(found);
        Ok(())
    };
    let mut from = Cursor::new(manifest);
    let done = verify(&mut from, Path::new("m"), image, None, &mut each, &Silent)?;
    assert_eq!(done.mismatches, all.len() as u64);
    Ok(all)
}

/// Disks with HFS+ and with APFS and snapshots.
fn disks() -> [Vec<u8>; 2] {
    let history = History::new(3, 5, 8);
    [
        backupd::hfs_plus(&history, |_, _| {}),
        backupd::apfs(&history, |_, _| {}),
    ]
}

#[test]
fn hashes_and_extents_are_those_of_the_bytes_on_the_disk() {
    for bytes in disks() {
        let mut covered = 0;
        for line in lines(&manifest(&image(bytes.clone()))) {
            if line["kind"] != "file" {
                continue;
            }
            let mut contents = Vec::new();
            for extent in line["extents"].as_array().into_iter().flatten() {
                let number = |name: &str| usize::try_from(extent[name].as_u64().unwrap()).unwrap();
                assert_eq!(number("offset"), contents.len());
                let at = number("disk_offset");
                contents.extend(&bytes[at..at + number("size")]);
            }
            if contents.len() as u64 == line["size"].as_u64().unwrap() {
                let sum: String = Sha256::digest(&contents)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                assert_eq!(line["sha256"], sum, "{line}");
                covered += u32::from(!contents.is_empty());
            }
        }
        assert!(covered > 3, "{covered}");
    }
}

#[test]
fn a_changed_byte_is_named_in_every_state_that_has_it() {
    for mut bytes in disks() {
        let made = manifest(&image(bytes.clone()));
        assert_eq!(mismatches(&made, &image(bytes.clone())).unwrap(), []);
        let all = lines(&made);
        let file = all
            .iter()
            .find(|line| line["extents"][0]["size"].as_u64() > Some(0))
            .unwrap();
        let at = file["extents"][0]["disk_offset"].as_u64().unwrap();
        bytes[usize::try_from(at).unwrap()] ^= 1;
        let holders = all
            .iter()
            .filter(|line| line["extents"][0]["disk_offset"].as_u64() == Some(at))
            .count();
        let found = mismatches(&made, &image(bytes)).unwrap();
        assert_eq!(found.len(), holders, "{found:?}");
        for one in found {
            assert_eq!(one.fields, ["md5", "sha256"], "{one:?}");
        }
    }
}

#[test]
fn manifests_of_other_states_differ() {
    let [_, bytes] = disks();
    let made = manifest(&image(bytes));
    let longer = backupd::apfs(&History::new(4, 5, 8), |_, _| {});
    let found = mismatches(&made, &image(longer)).unwrap();
    assert!(!found.is_empty());
}

#[test]
fn a_cut_or_changed_manifest_is_an_error() {
    let [bytes, _] = disks();
    let image = image(bytes);
    let made = manifest(&image);
    for cut in (0..made.len())
        .step_by(made.len() / 50)
        .chain([made.len() - 1])
    {
        let error = mismatches(&made[..cut], &image).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{cut}: {error}");
        let mut from = Cursor::new(&made[..cut]);
        let error = write_timeline(&mut from, &mut Vec::<u8>::new(), &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{cut}: {error}");
    }
    for at in (0..made.len()).step_by(made.len() / 50) {
        let mut other = made.clone();
        other[at] ^= 4;
        let error = mismatches(&other, &image).unwrap_err();
        let kinds = [Kind::Corrupt, Kind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{at}: {error}");
    }
    for odd in [
        &b""[..],
        b"\n",
        b"{}\n",
        b"{\"record\":\"end\"}\n",
        &[0xff; 100],
    ] {
        let error = mismatches(odd, &image).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
    let twice = [&made[..], &made[..]].concat();
    assert_eq!(
        mismatches(&twice, &image).unwrap_err().kind(),
        Kind::Corrupt
    );
}

#[test]
fn a_timeline_is_in_order_and_repeats_nothing() {
    let [_, bytes] = disks();
    let made = manifest(&image(bytes));
    let mut csv: Vec<u8> = Vec::new();
    let done = write_timeline(&mut Cursor::new(&made), &mut csv, &Silent).unwrap();
    let text = String::from_utf8(csv).unwrap();
    let rows: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(rows.len() as u64, done.events);
    assert!(
        done.repeated > 0 && rows.is_sorted_by_key(|row| &row[..32]),
        "{text}"
    );
    assert_eq!(text.matches("Snapshot ").count(), 5, "{text}");
}

/// Compares two states of the APFS volume.
fn compare(image: &Image, old: Option<&str>, new: Option<&str>, options: &Options) -> Comparison {
    let open = |snapshot| {
        let query = VolumeQuery {
            snapshot,
            keys: None,
        };
        image.file_system_as(None, query).unwrap()
    };
    let (old, new) = (open(old), open(new));
    let root = |fs: &Arc<dyn FileSystem>| fs.attributes(fs.root()).unwrap();
    let (a, b) = (root(&old), root(&new));
    let old = ComparedFolder {
        fs: &*old,
        attributes: &a,
    };
    let new = ComparedFolder {
        fs: &*new,
        attributes: &b,
    };
    diff(old, new, options, &Silent).unwrap()
}

#[test]
fn snapshots_differ_from_each_other_and_not_from_themselves() {
    let [_, bytes] = disks();
    let image = image(bytes);
    let names: Vec<String> = image.volumes()[0].container().unwrap().volumes()[0]
        .as_ref()
        .unwrap()
        .snapshots
        .iter()
        .map(|snapshot| snapshot.name.clone())
        .collect();
    let (first, last) = (names.first().unwrap(), names.last().unwrap());
    let none = Options::default();
    let same = compare(&image, Some(first), Some(first), &none);
    assert!(same.differences.is_empty() && same.compared > 5, "{same:?}");
    let there = compare(&image, Some(first), Some(last), &none);
    let back = compare(&image, Some(last), Some(first), &none);
    let count =
        |of: &Comparison, kind| of.differences.iter().filter(|one| one.kind == kind).count();
    assert!(there.problems.is_empty(), "{:?}", there.problems);
    assert!(!there.differences.is_empty());
    for (a, b) in [
        (DifferenceKind::Added, DifferenceKind::Removed),
        (DifferenceKind::Removed, DifferenceKind::Added),
        (DifferenceKind::Changed, DifferenceKind::Changed),
        (DifferenceKind::Renamed, DifferenceKind::Renamed),
    ] {
        assert_eq!(count(&there, a), count(&back, b), "{a:?}");
    }
    let all = Options {
        ignored: Field::ALL.to_vec(),
        quick: false,
    };
    let structure = compare(&image, Some(first), Some(last), &all);
    assert_eq!(count(&structure, DifferenceKind::Changed), 0);
    let title = bandsaw_evidence::PageTitle {
        old: "<a>",
        new: "b",
    };
    let page = html(title, &there);
    assert!(
        page.contains("&lt;a&gt;") && !page.contains("<script"),
        "{page}"
    );
}

/// Interrupts at once.
struct Cancelled;

impl Progress for Cancelled {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        true
    }
}

#[test]
fn an_interruption_ends_the_work() {
    let [bytes, _] = disks();
    let image = image(bytes);
    let made = manifest(&image);
    let format = ManifestFormat::JsonLines;
    let mut out: Vec<u8> = Vec::new();
    let error = write_manifest(&image, None, format, "test", &mut out, &Cancelled).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
    // The unfinished manifest has no last line.
    assert_eq!(mismatches(&out, &image).unwrap_err().kind(), Kind::Corrupt);
    let mut from = Cursor::new(&made);
    let error = verify(
        &mut from,
        Path::new("m"),
        &image,
        None,
        &mut |_| Ok(()),
        &Cancelled,
    )
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
}
