//! `qemu-img` and `qemu-io`: raw disks with holes.

use std::path::Path;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::container::raw::Raw;
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind};
use bandsaw::open::OpenOptions;
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::progress::Silent;
use bandsaw::store::Local;
use serde_json::Value;

use crate::disk::{self, DISK_LEN};
use crate::noise::noise;
use crate::programs::{Program, run, run_text};
use crate::suite::Suite;
use crate::volume;

const QEMU_IMG: Program = Program::Command(&["qemu-img"]);
const QEMU_IO: Program = Program::Command(&["qemu-io"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("qemu-img", &[QEMU_IMG, QEMU_IO])
        .test("converts_our_raw_disk", converts_our_raw_disk)
        .test("converts_our_volumes", converts_our_volumes)
        .test("we_read_its_raw_disk", we_read_its_raw_disk)
        .test(
            "changes_a_disk_as_our_stack_does",
            changes_a_disk_as_our_stack_does,
        );
}

/// Data with holes around and inside it survives conversion to qcow2 and back, and the holes are
/// those that we report.
fn converts_our_raw_disk() {
    let scratch = crate::scratch();
    let path = scratch.path().join("ours.img");
    let disk =
        Raw::create(&Local::new(scratch.path()), "ours.img", DISK_LEN).expect("making a disk");
    disk.write_at(1 << 20, &noise(3 << 20)).expect("writing");
    disk.write_at(DISK_LEN - 512, &noise(512))
        .expect("writing the last sector");
    disk.discard(2 << 20..(2 << 20) + 65536, AfterDiscard::Zeros)
        .expect("discarding");
    disk.flush().expect("flushing");

    let info = json(
        QEMU_IMG
            .command()
            .args(["info", "--output=json", "-f", "raw"])
            .arg(&path),
    );
    assert_eq!(info["virtual-size"], DISK_LEN);
    let map = json(
        QEMU_IMG
            .command()
            .args(["map", "--output=json", "-f", "raw"])
            .arg(&path),
    );
    assert_eq!(data_by_map(&map), data_by_us(&disk));

    there_and_back(&path, scratch.path());
}

/// A bundle converted by us to a raw disk has the same contents, too.
fn converts_our_volumes() {
    for volume in volume::all() {
        let scratch = crate::scratch();
        there_and_back(&volume.disk, scratch.path());
        let bundle = bandsaw::open::open(&volume.bundle, &OpenOptions::default())
            .expect("opening the bundle");
        let raw = scratch.path().join("converted.img");
        convert(&bundle, &raw, &ConvertOptions::default(), &Silent).expect("converting the bundle");
        compare(&volume.disk, &raw);
    }
}

/// Converts a raw disk to qcow2 and back and fails the test unless it is the same.
fn there_and_back(disk: &Path, scratch: &Path) {
    let [qcow2, raw] = ["other.qcow2", "back.img"].map(|name| scratch.join(name));
    run(QEMU_IMG
        .command()
        .args(["convert", "-f", "raw", "-O", "qcow2"])
        .args([disk, &qcow2]));
    run(QEMU_IMG
        .command()
        .args(["check", "-f", "qcow2"])
        .arg(&qcow2));
    run(QEMU_IMG
        .command()
        .args(["convert", "-f", "qcow2", "-O", "raw"])
        .args([&qcow2, &raw]));
    compare(disk, &raw);
}

fn compare(disk: &Path, other: &Path) {
    run(QEMU_IMG
        .command()
        .args(["compare", "-f", "raw", "-F", "raw"])
        .args([disk, other]));
}

/// Returns the data extents printed by `qemu-img map`.
fn data_by_map(map: &Value) -> Vec<(u64, u64)> {
    let runs = map
        .as_array()
        .expect("addresses exceeds its block")
        .iter()
        .filter(|run| run["data"] == true);
    runs.map(|run| {
        (
            run["start"].as_u64().expect("a number"),
            run["length"].as_u64().expect("a number"),
        )
    })
    .collect()
}

fn data_by_us(disk: &dyn BlockDevice) -> Vec<(u64, u64)> {
    let extents = disk
        .extents(0..disk.info().len)
        .map(|extent| extent.expect("asking for an extent"));
    extents
        .filter(|(_, kind)| *kind == ExtentKind::Data)
        .map(|(range, _)| (range.start, range.end - range.start))
        .collect()
}

fn we_read_its_raw_disk() {
    let scratch = crate::scratch();
    let path = scratch.path().join("theirs.img");
    run(QEMU_IMG
        .command()
        .args(["create", "-q", "-f", "raw"])
        .arg(&path)
        .arg(DISK_LEN.to_string()));
    let mut qemu_io = QEMU_IO.command();
    qemu_io.args([
        "-f",
        "raw",
        "-c",
        "write -P 0xab 1M 2M",
        "-c",
        "discard 2M 64k",
        "-c",
        "write -P 0xcd 67107840 1024",
    ]);
    run(qemu_io.arg(&path));

    let mut expected = vec![0; usize::try_from(DISK_LEN).expect("64 MiB fit")];
    expected[1 << 20..3 << 20].fill(0xab);
    expected[2 << 20..(2 << 20) + 65536].fill(0);
    expected[67_107_840..].fill(0xcd);
    let disk = Raw::new(Arc::new(disk::open(&path, bandsaw::store::Open::Read)));
    assert_eq!(disk.info().len, DISK_LEN);
    assert!(
        disk.read_vec(0, expected.len()).expect("reading") == expected,
        "contents differ"
    );
}

/// A layer committed to its disk: the result is that of QEMU's own writes.
fn changes_a_disk_as_our_stack_does() {
    let scratch = crate::scratch();
    let [base, layer, flat, copy] =
        ["base.img", "layer.asif", "flat.img", "copy.img"].map(|name| scratch.path().join(name));
    run(QEMU_IMG
        .command()
        .args(["create", "-q", "-f", "raw"])
        .arg(&base)
        .arg(DISK_LEN.to_string()));
    let write = |path: &Path, commands: &[&str]| {
        let mut qemu_io = QEMU_IO.command();
        qemu_io
            .args(["-f", "raw"])
            .args(commands.iter().flat_map(|command| ["-c", command]));
        run(qemu_io.arg(path));
    };
    write(
        &base,
        &["write -P 0xab 1M 2M", "write -P 0xcd 67107840 1024"],
    );
    std::fs::copy(&base, &copy).expect("copying the disk");
    write(
        &copy,
        &[
            "write -P 0x11 1536k 1M",
            "write -P 0x22 100 300",
            "write -z 1M 4k",
            "write -P 0x33 67108000 100",
        ],
    );
    let before = std::fs::read(&base).expect("reading the base");

    let shadows = [layer.clone()];
    let udrw = OpenOptions {
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let options = OpenOptions {
        access: Access::ReadWrite,
        shadows: &shadows,
        ..udrw
    };
    let stack = bandsaw::open::open(&base, &options).expect("opening the stack");
    let disk = stack.disk();
    disk.write_at(1536 << 10, &vec![0x11; 1 << 20])
        .expect("writing");
    disk.write_at(100, &[0x22; 300])
        .expect("writing a part of a sector");
    disk.discard(1 << 20..(1 << 20) + 4096, AfterDiscard::Zeros)
        .expect("discarding");
    disk.write_at(67_108_000, &[0x33; 100])
        .expect("writing near the end");
    disk.flush().expect("flushing");
    convert(
        &stack,
        &flat,
        &ConvertOptions {
            format: Format::Udrw,
            ..ConvertOptions::default()
        },
        &Silent,
    )
    .expect("flattening");
    drop(stack);
    compare(&copy, &flat);
    assert!(
        std::fs::read(&base).expect("reading the base") == before,
        "the base was changed"
    );
    bandsaw::ops::stack::commit(&base, &shadows, &udrw, &Silent).expect("committing");
    compare(&copy, &base);
}

fn json(command: &mut std::process::Command) -> Value {
    serde_json::from_str(&run_text(command)).expect("qemu-img prints JSON")
}
