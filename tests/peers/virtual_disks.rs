//! `qemu-img` and `ewfacquire`, which write the disks of other programs that we read.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::verify::verify;
use bandsaw::progress::Silent;

use crate::noise::noise;
use crate::programs::{Program, run};
use crate::suite::Suite;

const QEMU_IMG: Program = Program::Command(&["qemu-img"]);
const EWFACQUIRE: Program = Program::Command(&["ewfacquire"]);

/// A multiple of the cylinders that `qemu-img` gives a VHD disk: 16 heads of 17 sectors.
const LEN: usize = 16 * 17 * 512 * 280;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("qemu-img-disks", &[QEMU_IMG])
        .test("we_read_its_virtual_disks", we_read_its_virtual_disks)
        .test(
            "we_read_its_disks_in_several_files",
            we_read_its_disks_in_several_files,
        )
        .test("layers_are_refused", layers_are_refused);
    suite
        .peer("ewfacquire", &[EWFACQUIRE])
        .test("we_read_its_sets", we_read_its_sets);
}

/// Returns a disk with text, data that does not shrink, zeros, and an end that is no whole cluster.
fn disk() -> Vec<u8> {
    let mut disk = b"It was the best of times, it was the worst of times. ".repeat(60_000);
    disk.extend(noise(3 << 20));
    disk.resize(20 << 20, 0);
    disk.extend(noise(100_000));
    disk.resize(LEN - 512, 0);
    disk.extend(noise(512));
    disk
}

/// Opens an image, compares its disk in one call and in pieces, and checks it.
fn opens_as(path: &Path, format: Format, disk: &[u8]) {
    let image = open::open(path, &OpenOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(image.format(), format, "{}", path.display());
    assert_eq!(
        image.disk().info().len,
        disk.len() as u64,
        "{}",
        path.display()
    );
    assert!(
        image.disk().read_vec(0, disk.len()).unwrap() == disk,
        "{}",
        path.display()
    );
    for at in (0..disk.len() - 70_000).step_by(1_000_003) {
        let piece = image.disk().read_vec(at as u64, 70_000).unwrap();
        assert!(piece == disk[at..at + 70_000], "{} at {at}", path.display());
    }
    let checked = open::examine(path, &OpenOptions::default(), &Silent).unwrap();
    let layer = checked.problems.listed().iter();
    let of_container = layer.filter(|problem| problem.error.layer() != "image");
    assert_eq!(of_container.count(), 0, "{:?}", checked.problems);
}

fn we_read_its_virtual_disks() {
    let scratch = crate::scratch();
    let (disk, raw) = (disk(), scratch.path().join("raw.img"));
    fs::write(&raw, &disk).unwrap();
    let kinds: [(&str, Format, &[&str]); 12] = [
        ("qcow2", Format::Qcow2, &[]),
        ("qcow2", Format::Qcow2, &["-o", "compat=0.10"]),
        ("qcow2", Format::Qcow2, &["-c"]),
        ("qcow2", Format::Qcow2, &["-c", "-o", "cluster_size=2M"]),
        ("qcow2", Format::Qcow2, &["-o", "cluster_size=512"]),
        ("vpc", Format::Vhd, &["-o", "subformat=dynamic"]),
        ("vpc", Format::Vhd, &["-o", "subformat=fixed"]),
        (
            "vpc",
            Format::Vhd,
            &["-o", "subformat=dynamic,force_size=on"],
        ),
        ("vhdx", Format::Vhdx, &["-o", "subformat=dynamic"]),
        (
            "vhdx",
            Format::Vhdx,
            &["-o", "subformat=fixed,block_size=16M"],
        ),
        ("vmdk", Format::Vmdk, &["-o", "subformat=monolithicSparse"]),
        ("vmdk", Format::Vmdk, &["-o", "subformat=streamOptimized"]),
    ];
    for (number, (kind, format, options)) in kinds.into_iter().enumerate() {
        let path = scratch.path().join(format!("{number}.{kind}"));
        run(QEMU_IMG
            .command()
            .args(["convert", "-f", "raw", "-O", kind])
            .args(options)
            .args([&raw, &path]));
        opens_as(&path, format, &disk);
        // Truncated in the middle, it is refused, or found to be damaged.
        let bytes = fs::read(&path).unwrap();
        let cut = scratch.path().join(format!("cut.{kind}"));
        fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        let checked = open::examine(&cut, &OpenOptions::default(), &Silent);
        assert!(
            checked.is_ok_and(|checked| checked.problems.worst().is_some()),
            "{kind} {options:?}"
        );
        fs::remove_file(&path).unwrap();
    }
}

/// A disk that is longer than two extents can be.
fn we_read_its_disks_in_several_files() {
    const END: u64 = (2 << 30) + (8 << 20);
    const PIECE: usize = 4 << 20;
    let scratch = crate::scratch();
    let at = |name: &str| scratch.path().join(name);
    let mut raw = fs::File::create(at("raw.img")).unwrap();
    raw.set_len(END).unwrap();
    let boundary = 2 << 30;
    for (place, len) in [
        (0, 70_000),
        (1 << 30, 3_000_000),
        (boundary - 99_000, 200_000),
    ] {
        raw.seek(SeekFrom::Start(place)).unwrap();
        raw.write_all(&noise(len)).unwrap();
    }
    raw.seek(SeekFrom::Start(END - 512)).unwrap();
    raw.write_all(&noise(512)).unwrap();
    let raw = crate::disk::open(&at("raw.img"), bandsaw::store::Open::Read);
    for (kind, extents) in [
        (
            "twoGbMaxExtentSparse",
            &["disk-s001.vmdk", "disk-s002.vmdk"][..],
        ),
        ("twoGbMaxExtentFlat", &["disk-f001.vmdk", "disk-f002.vmdk"]),
        ("monolithicFlat", &["disk-flat.vmdk"]),
    ] {
        let path = at("disk.vmdk");
        run(QEMU_IMG
            .command()
            .args(["convert", "-f", "raw", "-O", "vmdk", "-o"])
            .arg(format!("subformat={kind}"))
            .args([&at("raw.img"), &path]));
        let image = open::open(&path, &OpenOptions::default())
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(image.format(), Format::Vmdk);
        assert_eq!(image.disk().info().len, END, "{kind}");
        for start in (0..END).step_by(PIECE) {
            let expected = raw.read_vec(start, PIECE).unwrap();
            assert!(
                image.disk().read_vec(start, PIECE).unwrap() == expected,
                "{kind}: {start}"
            );
        }
        drop(image);
        let checked = open::examine(&path, &OpenOptions::default(), &Silent).unwrap();
        assert_eq!(
            checked.problems.worst(),
            None,
            "{kind}: {:?}",
            checked.problems
        );
        let refused = |word: &str| {
            let error = open::open(&path, &OpenOptions::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{kind}: {error}");
        };
        let last = at(extents[extents.len() - 1]);
        let bytes = fs::metadata(&last).unwrap().len();
        fs::File::options()
            .write(true)
            .open(&last)
            .unwrap()
            .set_len(bytes / 2)
            .unwrap();
        // Of a sparse extent the tables may be whole, so that a check finds the loss.
        let checked = open::examine(&path, &OpenOptions::default(), &Silent);
        assert!(
            checked.is_ok_and(|checked| checked.problems.worst().is_some()),
            "{kind}"
        );
        if kind != "twoGbMaxExtentSparse" {
            refused("truncated");
        }
        fs::remove_file(&last).unwrap();
        refused("missing extent");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(extents[0], "../elsewhere.vmdk")).unwrap();
        refused("without a folder");
        for name in extents {
            let _ = fs::remove_file(at(name));
        }
    }
}

fn layers_are_refused() {
    let scratch = crate::scratch();
    let at = |name: &str| scratch.path().join(name);
    let create = |args: &[&str]| {
        let mut command = QEMU_IMG.command();
        run(command
            .current_dir(scratch.path())
            .args(["create", "-q"])
            .args(args));
    };
    create(&["-f", "qcow2", "below.qcow2", "16M"]);
    create(&[
        "-f",
        "qcow2",
        "-b",
        "below.qcow2",
        "-F",
        "qcow2",
        "over.qcow2",
    ]);
    create(&["-f", "vmdk", "below.vmdk", "16M"]);
    create(&["-f", "vmdk", "-b", "below.vmdk", "-F", "vmdk", "over.vmdk"]);
    create(&[
        "-f",
        "vmdk",
        "-o",
        "subformat=twoGbMaxExtentSparse",
        "split.vmdk",
        "16M",
    ]);
    create(&[
        "-f",
        "qcow2",
        "-o",
        "extended_l2=on,cluster_size=64k",
        "sub.qcow2",
        "16M",
    ]);
    for (name, word) in [
        ("over.qcow2", "below.qcow2"),
        ("over.vmdk", "below.vmdk"),
        ("split-s001.vmdk", "open its description"),
        ("sub.qcow2", "subclusters"),
    ] {
        let opened = open::open(&at(name), &OpenOptions::default());
        let error = opened.err().unwrap_or_else(|| panic!("{name} opened"));
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
}

fn we_read_its_sets() {
    let scratch = crate::scratch();
    let (disk, raw) = (disk(), scratch.path().join("raw.img"));
    fs::write(&raw, &disk).unwrap();
    for (name, format, compression, size) in [
        ("encase6", "encase6", "deflate:fast", "2MiB"),
        ("encase5", "encase5", "deflate:none", "10MiB"),
        ("ftk", "ftk", "deflate:best", "1GiB"),
        ("linen7", "linen7", "deflate:empty-block", "1GiB"),
    ] {
        let target = scratch.path().join(name);
        run(EWFACQUIRE
            .command()
            .args([
                "-u",
                "-q",
                "-d",
                "sha1",
                "-f",
                format,
                "-c",
                compression,
                "-S",
                size,
            ])
            .args([
                "-C", "1", "-E", "1", "-D", "x", "-e", "x", "-N", "x", "-m", "fixed", "-M",
                "logical",
            ])
            .arg("-t")
            .arg(&target)
            .arg(&raw));
        let first = target.with_extension("E01");
        opens_as(&first, Format::Ewf, &disk);
        let image = open::open(&first, &OpenOptions::default()).unwrap();
        let sums = verify(&image, &Silent).unwrap();
        assert!(
            !sums.is_empty() && sums.iter().all(|sum| sum.agrees() == Some(true)),
            "{sums:?}"
        );
        drop(image);
        let second = target.with_extension("E02");
        if second.exists() {
            let error = open::open(&second, &OpenOptions::default()).unwrap_err();
            assert!(error.to_string().contains("first"), "{error}");
            fs::remove_file(&second).unwrap();
            let error = open::open(&first, &OpenOptions::default()).unwrap_err();
            assert!(error.to_string().contains("missing"), "{error}");
        }
    }
}
