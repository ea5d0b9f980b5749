//! Images of other people, opened: the disk in each has the known sum, and what cannot be read is refused by name.

mod common;

use std::fs;
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::{Kind, Result};
use common::corpus::{self, sha256};

/// Opens an image of the corpus, unpacked into `scratch` where it is stored compressed. `None`: it cannot be unpacked.
fn open_image(image: &corpus::Image, scratch: &Path) -> Option<Result<Image>> {
    let options = OpenOptions::default();
    if image.location().is_dir() {
        return Some(open::open(&image.location(), &options));
    }
    let path = scratch.join(image.path().replace('/', "-"));
    fs::write(&path, image.bytes()?).unwrap();
    Some(open::open(&path, &options))
}

fn disk_sum(image: &Image) -> String {
    let disk = image.disk();
    sha256(&disk.read_vec(0, disk.info().len as usize).unwrap())
}

#[test]
fn raw_images_and_bundles_open() {
    let Some(images) = corpus::images("raw_images_and_bundles_open") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let mut opened = 0;
    for known in images.iter().filter(|image| matches!(image.format(), "raw (UDRW)" | "sparsebundle (UDSB)")) {
        // A disk without any volume: only a bundle can be that.
        let image = open_image(known, scratch.path()).unwrap().unwrap_or_else(|error| panic!("{}: {error}", known.path()));
        let expected = if known.location().is_dir() { Format::Udsb } else { Format::Udrw };
        assert_eq!(image.format(), expected, "{}", known.path());
        assert_eq!(Some(image.disk().info().len), known.number("media_size"), "{}", known.path());
        assert_eq!(Some(disk_sum(&image).as_str()), known.text("media_sha256"), "{}", known.path());
        check_volumes(&image, known);
        opened += 1;
    }
    assert!(opened >= 24, "{opened} images");
}

/// What is told of partitions and volumes is what the manifest says.
fn check_volumes(image: &Image, known: &corpus::Image) {
    let scheme = image.partitions().map_or("none".to_owned(), |map| map.scheme.to_string());
    assert_eq!(Some(scheme.as_str()), known.text("partition_scheme"), "{}", known.path());
    let told: Vec<_> = image.volumes().iter().map(|volume| (volume.range.start, volume.format.name())).collect();
    let expected: Vec<_> = known.file_systems().into_iter().map(|found| (found.offset, found.kind)).collect();
    let expected: Vec<_> = expected.iter().map(|(at, kind)| (*at, if kind == "HFS-standard" { "HFS" } else { kind })).collect();
    assert_eq!(told, expected, "{}", known.path());
    for volume in image.volumes() {
        match volume.open() {
            Ok(fs) => assert_eq!(fs.volume().format, volume.format.name(), "{}", known.path()),
            Err(error) => assert!(error.kind() == Kind::Unsupported && !volume.format.is_supported(), "{error}"),
        }
    }
}

#[test]
fn everything_else_is_refused_by_name() {
    let Some(images) = corpus::images("everything_else_is_refused_by_name") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for known in &images {
        let part = ["udif/", "asif/", "sparseimage/", "encrypted/"].iter().find(|part| known.path().starts_with(**part));
        let Some(part) = part else { continue };
        if known.number("image_size").is_some_and(|size| size > 16 << 20) {
            continue; // takes long to unpack, and shows nothing more
        }
        let Some(outcome) = open_image(known, scratch.path()) else { continue };
        let error = outcome.err().unwrap_or_else(|| panic!("{} opened", known.path()));
        assert_eq!(error.kind(), Kind::Unsupported, "{}: {error}", known.path());
        let name = match *part {
            "udif/" => "UDIF",
            "asif/" => "ASIF",
            "sparseimage/" => "UDSP",
            _ => "encrypted",
        };
        assert!(error.message().contains(name), "{}: {error}", known.path());
        assert!(error.file().is_some(), "{}: {error}", known.path());
        refused += 1;
    }
    assert!(refused > 20, "{refused} images");
}

#[test]
fn damaged_images_give_one_clear_error_or_what_is_there() {
    let Some(images) = corpus::images("damaged_images_give_one_clear_error_or_what_is_there") else { return };
    let scratch = tempfile::tempdir().unwrap();
    for known in images.iter().filter(|image| image.path().starts_with("corrupt/")) {
        let outcome = open_image(known, scratch.path()).unwrap();
        match known.path() {
            "corrupt/threez-empty.sparsebundle" => {
                let disk = outcome.unwrap().disk().clone();
                assert_eq!(disk.read_vec(0, 12).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0, 0]);
                assert_eq!(disk.info().len, 134_217_728);
            }
            "corrupt/dissect-apfs-corrupt.bin.gz" => assert_eq!(outcome.unwrap().volumes()[0].format.name(), "APFS"),
            path => {
                let error = outcome.err().unwrap_or_else(|| panic!("{path} opened"));
                assert_eq!(error.kind(), Kind::Unsupported, "{error}");
                assert!(error.file().is_some(), "{error}");
            }
        }
    }
}
