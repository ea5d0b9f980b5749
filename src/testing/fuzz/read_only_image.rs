//! Images that are only read: of classic Mac OS, and of other programs.

use std::sync::Arc;

use crate::container::dart::{self, Dart, DartSums};
use crate::container::disk_copy::{self, DiskCopy};
use crate::container::ewf::{self, Ewf, EwfPart};
use crate::container::fork_file;
use crate::container::mapped::{DiskMap, MappedDisk};
use crate::container::ndif::{self, Ndif};
use crate::container::qcow2::{self, Qcow2};
use crate::container::vhd::{self, Vhd};
use crate::container::vhdx::{self, Vhdx};
use crate::container::vmdk::{self, Vmdk, VmdkPart};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::problem::{Problems, Severity};
use crate::progress::Silent;
use crate::{Kind, Result};

/// Limits of a test: extents that are read, bytes of each, and the largest disk whose checksums are
/// computed.
const MAX_EXTENTS: usize = 40;
const MAX_READ: u64 = 64 << 10;
const MAX_SUMMED: u64 = 4 << 20;

fn file(input: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(input))
}

/// Reads an image that opened: it is a disk of whole sectors, its extents cover it, and data reads the
/// same in one call and in pieces, or fails, which a check reports.
fn read_all(opened: Result<impl DiskMap + 'static>) {
    let Ok(map) = opened else { return };
    let disk = MappedDisk::new(map);
    let len = disk.info().len;
    assert!(len.is_multiple_of(512));
    disk.facts();
    let mut problems = Problems::default();
    let checked = disk.check(&mut problems, &Silent);
    let report = checked.is_err() || problems.count(Severity::Damage) > 0;
    if len <= MAX_SUMMED {
        let verified = disk.verify(&Silent);
        assert!(
            verified.is_ok() || report,
            "a check finds nothing wrong with data that does not decode"
        );
    }
    for extent in disk.extents(0..len).take(MAX_EXTENTS) {
        let Ok((range, _)) = extent else {
            assert!(report, "a check finds nothing wrong with a broken map");
            return;
        };
        let piece = (range.end - range.start).min(MAX_READ);
        let Ok(whole) = disk.read_vec(range.start, piece as usize) else {
            continue;
        };
        for (at, byte) in whole.iter().enumerate().step_by(4099) {
            let one = disk.read_vec(range.start + at as u64, 1);
            assert_eq!(one.expect("it was read before"), [*byte]);
        }
    }
    let error = disk.write_at(0, &[]).expect_err("it is only read");
    assert_eq!(error.kind(), Kind::ReadOnly);
}

/// A parser with its seeds.
type Parser = (fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The parsers of classic Mac OS.
const CLASSIC: [Parser; 4] = [
    (disk_copy, disk_copy_seeds),
    (dart, dart_seeds),
    (ndif, ndif_seeds),
    (fork_file, fork_file_seeds),
];

/// Those of virtual machines and forensic programs.
const VIRTUAL: [Parser; 5] = [
    (qcow2, qcow2_seeds),
    (vhd, vhd_seeds),
    (vhdx, vhdx_seeds),
    (vmdk, vmdk_seeds),
    (ewf, ewf_seeds),
];

/// Takes an input of the number of a format and an image: Disk Copy 4.2, DART, NDIF, or a file with two
/// forks.
pub fn classic_image(input: &[u8]) {
    run(&CLASSIC, input);
}

/// Takes an input of the number of a format and an image: QCOW2, VHD, VHDX, VMDK or EWF.
pub fn virtual_disk(input: &[u8]) {
    run(&VIRTUAL, input);
}

fn run(parsers: &[Parser], input: &[u8]) {
    let Some((number, rest)) = input.split_first() else {
        return;
    };
    let (parse, _) = parsers[usize::from(*number) % parsers.len()];
    parse(rest);
}

pub(super) fn classic_image_seeds() -> Vec<Vec<u8>> {
    seeds(&CLASSIC)
}

pub(super) fn virtual_disk_seeds() -> Vec<Vec<u8>> {
    seeds(&VIRTUAL)
}

fn seeds(parsers: &[Parser]) -> Vec<Vec<u8>> {
    let numbered = (0_u8..).zip(parsers);
    numbered
        .flat_map(|(number, (_, seeds))| {
            seeds()
                .into_iter()
                .map(move |seed| [&[number], &seed[..]].concat())
        })
        .collect()
}

/// Takes an input that is an image of Disk Copy 4.2.
fn disk_copy(input: &[u8]) {
    disk_copy::probe(&*file(input)).expect("memory can be read");
    read_all(DiskCopy::open(file(input)));
}

/// Takes an input that is a DART image.
fn dart(input: &[u8]) {
    dart::probe(&*file(input)).expect("memory can be read");
    let sums = DartSums {
        tags: Some(0),
        data: Some(0),
    };
    read_all(Dart::open(file(input), sums));
}

/// Takes an input of the length of a block table (16 bits, little-endian), the table, and the data fork
/// of an NDIF image.
fn ndif(input: &[u8]) {
    let Some((len, rest)) = input.split_first_chunk() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (table, data) = rest.split_at(len);
    read_all(Ndif::open(file(data), table));
}

/// Takes an input that is a QCOW2 image.
fn qcow2(input: &[u8]) {
    qcow2::probe(&*file(input)).expect("memory can be read");
    read_all(Qcow2::open(file(input)));
}

/// Takes an input of a VHD image, as [`described`](super::described).
fn vhd(input: &[u8]) {
    let Some(bytes) = super::described(input) else {
        return;
    };
    vhd::probe(&*file(&bytes)).expect("memory can be read");
    read_all(Vhd::open(file(&bytes)));
}

/// Takes an input of a VHDX image, as [`described`](super::described); it is read as it is, and with its
/// checksums corrected.
fn vhdx(input: &[u8]) {
    let Some(mut bytes) = super::described(input) else {
        return;
    };
    vhdx::probe(&*file(&bytes)).expect("memory can be read");
    read_all(Vhdx::open(file(&bytes)));
    vhdx::fixture::reseal(&mut bytes);
    read_all(Vhdx::open(file(&bytes)));
}

/// Takes an input that is a VMDK file, or a description, each of whose extents is in the same file.
fn vmdk(input: &[u8]) {
    vmdk::probe(&*file(input)).expect("memory can be read");
    let Ok(description) = vmdk::Description::read(&*file(input)) else {
        return read_all(Vmdk::open(file(input)));
    };
    let names = description.file_names();
    assert!(names.iter().all(|name| !name.contains(['/', '\\'])));
    let part = VmdkPart {
        file: Arc::new(Memory::zeros(8 << 20)),
        path: "fuzz.vmdk".into(),
    };
    read_all(Vmdk::open_parts(&description, &vec![part; names.len()]));
}

/// Takes an input that is one EWF file.
fn ewf(input: &[u8]) {
    ewf::probe(&*file(input)).expect("memory can be read");
    drop(ewf::continues(&*file(input)));
    let part = EwfPart {
        file: file(input),
        name: "fuzz.E01".into(),
    };
    read_all(Ewf::open(vec![part]));
}

/// Takes an input that is a MacBinary, AppleSingle or AppleDouble file: its forks are within the file.
fn fork_file(input: &[u8]) {
    let found = fork_file::find(&*file(input)).expect("memory can be read");
    let Some(places) = found else { return };
    for fork in [places.data, places.resource].into_iter().flatten() {
        assert!(fork.start <= fork.end && fork.end <= input.len() as u64);
    }
}

fn diskette() -> Vec<u8> {
    let mut disk = b"Welcome to Macintosh. ".repeat(3000);
    disk.resize(400 << 10, 0);
    disk
}

fn disk_copy_seeds() -> Vec<Vec<u8>> {
    let disk = &diskette()[..4096];
    vec![
        disk_copy::fixture::image(disk, &[7; 96]),
        disk_copy::fixture::image(disk, &[]),
    ]
}

fn dart_seeds() -> Vec<Vec<u8>> {
    use dart::fixture::{Packing, image};
    let disk = diskette();
    let random = crate::testing::Random::new(1).bytes(24_000);
    let noisy = [&random, &disk[random.len()..]].concat();
    vec![
        image(&disk, &[3; 9600], Packing::Best),
        image(&noisy, &[], Packing::Fast),
    ]
}

fn ndif_seeds() -> Vec<Vec<u8>> {
    let image = ndif::fixture::NdifFixture::of(&diskette());
    let len = (image.table.len() as u16).to_le_bytes();
    vec![[&len, &image.table[..], &image.data].concat()]
}

fn qcow2_seeds() -> Vec<Vec<u8>> {
    vec![
        qcow2::fixture::image(&diskette(), 12, true),
        qcow2::fixture::image(&diskette()[..128 << 10], 9, false),
    ]
}

fn vhd_seeds() -> Vec<Vec<u8>> {
    let disk = &diskette()[..96 << 10];
    vec![
        super::describe(&vhd::fixture::image(disk, Some(16 << 10))),
        super::describe(&vhd::fixture::image(disk, None)),
    ]
}

fn vhdx_seeds() -> Vec<Vec<u8>> {
    vec![super::describe(&vhdx::fixture::image(&diskette()))]
}

fn vmdk_seeds() -> Vec<Vec<u8>> {
    let disk = diskette();
    vec![
        vmdk::fixture::file(&disk[..128 << 10], false),
        vmdk::fixture::file(&disk, true),
        vmdk::fixture::DESCRIPTION.into(),
    ]
}

fn ewf_seeds() -> Vec<Vec<u8>> {
    ewf::fixture::set(&diskette(), 1 << 20)
}

fn fork_file_seeds() -> Vec<Vec<u8>> {
    vec![
        fork_file::mac_binary_of(&[1; 200], &[2; 100]),
        fork_file::apple_file_of(Some(&[1; 200]), &[2; 100]),
        fork_file::apple_file_of(None, &[2; 100]),
    ]
}
