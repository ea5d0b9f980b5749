//! Conversions that are broken off and gone on with.

mod common;

use std::fs;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::open::{self, CreateOptions, Image, OpenOptions};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, resume};
use bandsaw::progress::Silent;
use common::converting::{StopAfter, names, open_as};

const MIB: u64 = 1 << 20;
/// Four steps and a bit, mostly holes.
const LEN: u64 = 1025 * MIB + 512;

fn source(path: &Path) -> Image {
    let image = open::create(path, &CreateOptions { format: Format::Udsb, len: LEN, ..CreateOptions::default() }).unwrap();
    for at in [0, 100, 256, 300, 600, 800, 1024] {
        image.disk().write_at(at * MIB + 77, &vec![at as u8 + 1; MIB as usize]).unwrap();
    }
    image.disk().flush().unwrap();
    drop(image);
    open_as(path, Format::Udsb)
}

fn sum(image: &Image) -> String {
    checksum(&**image.disk(), Algorithm::Crc32, &Silent).unwrap()
}

#[test]
fn what_is_broken_off_is_gone_on_with() {
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let folder = tempfile::tempdir().unwrap();
        let from = source(&folder.path().join("from.sparsebundle"));
        let target = folder.path().join("to");
        let options = ConvertOptions { format, ..ConvertOptions::default() };
        for stop_after in [10, 400, 700] {
            let stop = StopAfter { left: (stop_after * MIB).into() };
            assert_eq!(resume(&from, &target, &options, &stop).unwrap_err().kind(), Kind::Cancelled);
            assert_eq!(names(folder.path()), [".to.partial", ".to.partial-note", "from.sparsebundle"], "{format}");
        }
        let done = resume(&from, &target, &options, &Silent).unwrap();
        assert!(done.copied.written < 4 * MIB, "{format}: two steps were done already: {:?}", done.copied);
        assert_eq!(sum(&done.image), sum(&from), "{format}");
        assert_eq!(names(folder.path()), ["from.sparsebundle", "to"]);
        drop(done);
        assert_eq!(sum(&open_as(&target, format)), sum(&from), "{format}");
        assert_eq!(resume(&from, &target, &options, &Silent).unwrap_err().kind(), Kind::Conflict, "it is there");
    }
}

#[test]
fn only_the_same_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("from.sparsebundle");
    let from = source(&path);
    let target = folder.path().join("to");
    let options = ConvertOptions { format: Format::Udsb, ..ConvertOptions::default() };
    let stop = || StopAfter { left: (600 * MIB).into() };
    assert_eq!(resume(&from, &target, &options, &stop()).unwrap_err().kind(), Kind::Cancelled);
    let other = ConvertOptions { band_size: Some(MIB), ..options.clone() };
    let error = resume(&from, &target, &other, &Silent).unwrap_err();
    assert!(error.kind() == Kind::Conflict && error.message().contains(".to.partial"), "{error}");
    drop(from);
    // Another band, another time: the source is not the one it was.
    fs::write(path.join("bands/1"), b"changed").unwrap();
    let from = open_as(&path, Format::Udsb);
    assert_eq!(resume(&from, &target, &options, &Silent).unwrap_err().kind(), Kind::Conflict);
    fs::remove_dir_all(folder.path().join(".to.partial")).unwrap();
    assert_eq!(sum(&resume(&from, &target, &options, &Silent).unwrap().image), sum(&from));
}

/// What a killed run leaves behind the part that counts does not show, and what was never begun right is made anew.
#[test]
fn what_does_not_count_is_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("from.sparsebundle"));
    for (format, target) in [(Format::Udrw, "raw"), (Format::Udsb, "bundle")] {
        let [target, partial] = [target.to_owned(), format!(".{target}.partial")].map(|name| folder.path().join(name));
        let options = ConvertOptions { format, ..ConvertOptions::default() };
        let stop = StopAfter { left: (600 * MIB).into() };
        resume(&from, &target, &options, &stop).unwrap_err();
        let as_told =
            OpenOptions { access: bandsaw::device::Access::ReadWrite, image_format: Some(format), ..OpenOptions::default() };
        let image = open::open(&partial, &as_told).unwrap();
        image.disk().write_at(900 * MIB, &[9; 100_000]).unwrap();
        image.disk().flush().unwrap();
        drop(image);
        assert_eq!(sum(&resume(&from, &target, &options, &Silent).unwrap().image), sum(&from), "{format}");
    }
    let half = folder.path().join(".half.partial");
    fs::create_dir_all(half.join("bands")).unwrap();
    fs::write(half.join("bands/0"), b"rubbish").unwrap();
    let options = ConvertOptions { format: Format::Udsb, ..ConvertOptions::default() };
    assert_eq!(sum(&resume(&from, &folder.path().join("half"), &options, &Silent).unwrap().image), sum(&from));
}
