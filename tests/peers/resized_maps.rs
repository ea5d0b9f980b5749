//! Disks with an Apple partition map or an MBR made by other programs, whose volume we grew and
//! shrank: `parted` and `mmls` read its position, 7-Zip its contents.

use std::ops::Range;
use std::path::Path;

use bandsaw::address::VolumeSelector;
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::fs::{FileSystem, FileSystemExt, FileSystemMutExt, Fork, NewKind, NewNode, Timestamp};
use bandsaw::open::{Image, OpenOptions, open};
use bandsaw::ops::format::{FormatOptions, NewFormat, format};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::common::corpus;
use crate::programs::{Program, SEVEN_ZIP, run, run_text};
use crate::suite::Suite;
use crate::tree::sha256;
use crate::{disk, ours};

const PARTED: Program = Program::Command(&["parted"]);
const MMLS: Program = Program::Command(&["mmls"]);
const MIB: u64 = 1 << 20;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("parted, mmls and 7zz", &[PARTED, MMLS, SEVEN_ZIP])
        .test("read_resized_maps", read_resized_maps)
        .corpus_test("read_a_resized_apm_of_macos", read_a_resized_apm_of_macos);
}

fn writable(path: &Path) -> Image {
    open(
        path,
        &OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        },
    )
    .expect("opening the image")
}

fn resize_to(path: &Path, size: Size, parts: Parts) {
    let options = ResizeOptions {
        size,
        parts,
        volume: None,
        dry_run: false,
    };
    resize(&writable(path), &options, &Silent).expect("resizing");
}

fn read_resized_maps() {
    for (label, scheme) in [("mac", "mac"), ("msdos", "dos")] {
        let (_scratch, path) = disk::blank();
        let mut parted = PARTED.command();
        parted
            .arg("--script")
            .arg(&path)
            .args(["mklabel", label, "mkpart"]);
        parted
            .args(if label == "mac" {
                &["Docs", "hfs+"][..]
            } else {
                &["primary", "hfs+"]
            })
            .args(["1MiB", "40MiB"]);
        run_text(&mut parted);
        let number = disk::our_view(&path)
            .partitions
            .iter()
            .find(|partition| partition.kind == "Apple_HFS")
            .expect("it is there")
            .number;
        let place = VolumeSelector::Number {
            partition: number,
            volume: None,
        };
        let options = FormatOptions {
            place: Some(&place),
            format: NewFormat::HfsPlusJournaled,
            name: "Docs".into(),
            block_size: None,
            erase: false,
            epoch: Some(Timestamp::from_seconds(1_700_000_000)),
            encryption: None,
        };
        format(&writable(&path), options, &Silent).expect("formatting");
        let contents: Vec<u8> = (0..3_000_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        {
            let fs = writable(&path)
                .file_system_mut(None)
                .expect("opening the volume");
            let id = fs
                .create(fs.root(), "file", &NewNode::new(NewKind::File))
                .expect("making a file");
            fs.write_all(id, &contents).expect("writing it");
            fs.unmount().expect("leaving it clean");
        }
        let sizes = [
            (Size::Bytes(50 * MIB), Parts::Partition),
            (Size::Bytes(100 * MIB), Parts::All),
            (Size::Bytes(30 * MIB), Parts::All),
            (Size::Min, Parts::All),
        ];
        for (size, parts) in sizes {
            resize_to(&path, size, parts);
            let map = disk::our_view(&path);
            let volume = map
                .partitions
                .iter()
                .find(|partition| partition.number == number)
                .expect("it is there")
                .range
                .clone();
            let (first, last) = (volume.start / 512, volume.end / 512 - 1);
            let report = run_text(MMLS.command().args(["-t", scheme]).arg(&path));
            assert!(
                report.contains(&format!(
                    "{first:010}   {last:010}   {:010}",
                    last - first + 1
                )),
                "{size:?}\n{report}"
            );
            let report = run_text(
                PARTED
                    .command()
                    .arg("--script")
                    .arg(&path)
                    .args(["unit", "s", "print"]),
            );
            let words: Vec<_> = report
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
                .collect();
            let line = [number.to_string(), format!("{first}s"), format!("{last}s")];
            assert!(
                words
                    .iter()
                    .any(|words| words.len() > 3 && line.iter().zip(words).all(|(a, b)| a == b)),
                "{size:?}\n{report}"
            );
            assert!(
                !report.contains("Error") && !report.contains("Warning"),
                "{report}"
            );
            seven_zip_reads(&path, volume.clone(), "Docs/file", &sha256(&contents));
            assert!(ours::check(&path, volume).is_empty());
        }
    }
}

/// A disk made by macOS, with an entry for the free space at its end.
fn read_a_resized_apm_of_macos() {
    let known = corpus::image("read_a_resized_apm_of_macos", "raw/dfvfs-apm.dmg.gz")
        .expect("the corpus has it");
    let scratch = crate::scratch();
    let path = scratch.path().join("apm.img");
    std::fs::write(
        &path,
        known
            .bytes()
            .expect("is a folder, expected a file of format packed"),
    )
    .expect("writing the image");
    let before = disk::our_view(&path);
    let len = std::fs::metadata(&path).expect("it is there").len();
    let files = known.files();
    let first = files
        .iter()
        .max_by_key(|file| file.sha256.clone())
        .expect("it has files");
    for size in [Size::Bytes(2 * len), Size::Bytes(3 * len / 2)] {
        resize_to(&path, size, Parts::All);
        let map = disk::our_view(&path);
        assert_eq!(map.partitions.len(), before.partitions.len());
        let tail = map.partitions.last().expect("free space at the end");
        assert_eq!(
            (tail.kind.as_str(), tail.range.end),
            (
                "Apple_Free",
                std::fs::metadata(&path).expect("it is there").len()
            )
        );
        let report = run_text(MMLS.command().args(["-t", "mac"]).arg(&path));
        for partition in &map.partitions {
            let (first, last) = (partition.range.start / 512, partition.range.end / 512 - 1);
            assert!(
                report.contains(&format!(
                    "{first:010}   {last:010}   {:010}",
                    last - first + 1
                )),
                "{partition:?}\n{report}"
            );
        }
        let volume = map
            .partitions
            .iter()
            .find(|partition| partition.kind == "Apple_HFS")
            .expect("a volume")
            .range
            .clone();
        assert!(ours::check(&path, volume.clone()).is_empty());
        let read = ours::open(&path, volume.clone());
        for file in &files {
            let id = read.resolve(&file.path).expect("it is there").id;
            let found = read.open(id, Fork::Data).expect("opening it");
            assert_eq!(
                sha256(
                    &found
                        .read_vec(0, found.info().len as usize)
                        .expect("reading it")
                ),
                file.sha256,
                "{}",
                file.path
            );
        }
        let name = read.volume().name;
        seven_zip_reads(
            &path,
            volume,
            &format!("{name}{}", first.path),
            &first.sha256,
        );
    }
}

/// Checks that 7-Zip reads this file in a volume of the disk.
fn seven_zip_reads(path: &Path, volume: Range<u64>, file: &str, sum: &str) {
    let scratch = crate::scratch();
    let alone = scratch.path().join("volume.hfsx");
    let bytes = disk::open(path, Open::Read)
        .read_vec(volume.start, (volume.end - volume.start) as usize)
        .expect("reading the volume");
    std::fs::write(&alone, bytes).expect("writing the volume");
    let found = run(SEVEN_ZIP
        .command()
        .args(["e", "-so", "-sns-"])
        .arg(&alone)
        .arg(file));
    assert_eq!(sha256(&found), sum, "{file}");
}
