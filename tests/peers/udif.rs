//! `7zz`, `dmg2img` and `qemu-img` on compressed images of ours: each returns the original disk.
//! dmg2img and qemu-img support neither LZFSE nor LZMA, and Debian has no package with qemu-img's
//! module for bzip2; dmg2img extracts only the volume of a disk with a map.

use std::fs;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::progress::Silent;
use tempfile::TempDir;

use crate::programs::{Program, SEVEN_ZIP, run};
use crate::suite::Suite;
use crate::tree::sha256;
use crate::volume::{self, Volume};

const DMG2IMG: Program = Program::Command(&["dmg2img"]);
const QEMU_IMG: Program = Program::Command(&["qemu-img"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("7zz on UDIF", &[SEVEN_ZIP])
        .test("gives_the_disk", seven_zip_gives_the_disk);
    suite
        .peer("dmg2img", &[DMG2IMG])
        .test("gives_the_disk", dmg2img_gives_the_disk);
    suite
        .peer("qemu-img on UDIF", &[QEMU_IMG])
        .test("gives_the_disk", qemu_img_gives_the_disk);
}

/// Returns one volume, which is sufficient; in debug builds it is slow.
fn volume(mapped: bool) -> &'static Volume {
    volume::all()
        .iter()
        .find(|volume| volume.mapped == mapped)
        .expect("there are both")
}

/// Converts the volume's bundle to an image of this format.
fn packed(volume: &Volume, format: Format) -> (TempDir, PathBuf) {
    let scratch = crate::scratch();
    let path = scratch.path().join("packed.dmg");
    let bundle = open::open(&volume.bundle, &OpenOptions::default()).expect("opening the bundle");
    let options = ConvertOptions {
        format,
        ..ConvertOptions::default()
    };
    convert(&bundle, &path, &options, &Silent).expect("packing the disk");
    (scratch, path)
}

fn sum_of(path: &Path) -> String {
    sha256(&fs::read(path).expect("reading a disk"))
}

fn seven_zip_gives_the_disk() {
    let volume = volume(true);
    for format in [
        Format::Udro,
        Format::Udco,
        Format::Udzo,
        Format::Udbz,
        Format::Ulfo,
        Format::Ulmo,
    ] {
        let (_scratch, path) = packed(volume, format);
        run(SEVEN_ZIP.command().args(["t", "-tDmg"]).arg(&path));
        // The areas in order are the disk.
        let disk = run(SEVEN_ZIP.command().args(["x", "-tDmg", "-so"]).arg(&path));
        assert_eq!(sha256(&disk), sum_of(&volume.disk), "{format}");
    }
}

fn dmg2img_gives_the_disk() {
    let volume = volume(false);
    for format in [Format::Udro, Format::Udco, Format::Udzo, Format::Udbz] {
        let (scratch, path) = packed(volume, format);
        let out = scratch.path().join("out.img");
        run(DMG2IMG
            .command()
            .arg("-s")
            .arg("-i")
            .arg(&path)
            .arg("-o")
            .arg(&out));
        assert_eq!(sum_of(&out), sum_of(&volume.disk), "{format}");
    }
}

fn qemu_img_gives_the_disk() {
    let volume = volume(true);
    for format in [Format::Udro, Format::Udzo] {
        let (scratch, path) = packed(volume, format);
        let out = scratch.path().join("out.img");
        run(QEMU_IMG
            .command()
            .args(["convert", "-f", "dmg", "-O", "raw"])
            .args([&path, &out]));
        assert_eq!(sum_of(&out), sum_of(&volume.disk), "{format}");
    }
}
