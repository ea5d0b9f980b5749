//! Invalid and corrupt images: each fails with one error that names the file and the expectation,
//! and none is opened as a raw disk unless asked to.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, CreateOptions, Image, OpenOptions};
use bandsaw::partition::{self, gpt};
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind, Result};
use tempfile::TempDir;

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn bundle(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let options = CreateOptions {
            format: Format::Udsb,
            len: 4 << 20,
            band_size: Some(1 << 20),
            ..CreateOptions::default()
        };
        let image = open::create(&path, &options).unwrap();
        image.disk().write_at(0, &[1; 512]).unwrap();
        image.disk().flush().unwrap();
        path
    }
}

fn open(path: &Path) -> Result<Image> {
    open::open(path, &OpenOptions::default())
}

fn open_as(path: &Path, format: Format) -> Result<Image> {
    open::open(
        path,
        &OpenOptions {
            image_format: Some(format),
            ..OpenOptions::default()
        },
    )
}

/// Opens an image and returns the error, which must name the file.
fn refused(path: &Path) -> Error {
    let error = open(path)
        .err()
        .unwrap_or_else(|| panic!("{} opened", path.display()));
    assert!(
        error
            .file()
            .is_some_and(|file| file.starts_with(path.to_str().unwrap())),
        "{error}"
    );
    error
}

/// Returns pseudorandom bytes without any magic.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn unrecognized_files_need_a_named_format() {
    let scratch = Scratch::new();
    for (name, bytes) in [
        ("noise.dmg", noise(64 << 10)),
        ("short.img", noise(100)),
        ("text.txt", b"hello\n".repeat(1000)),
        ("empty.img", Vec::new()),
        ("less-than-a-sector.img", vec![0; 511]),
        (
            "one-bit.img",
            [vec![0; 1 << 20], vec![1], vec![0; 1 << 20]].concat(),
        ),
    ] {
        let path = scratch.file(name, &bytes);
        let error = refused(&path);
        let (kind, message) = match bytes.len() {
            0 => (Kind::Corrupt, "is empty"),
            1..512 => (Kind::Unsupported, "shorter than one sector"),
            _ => (Kind::Unsupported, "unknown format"),
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(message), "{error}");
        let image = open_as(&path, Format::Udrw).unwrap();
        assert_eq!(image.disk().info().len, bytes.len() as u64 / 512 * 512);
        assert_eq!(
            image.warnings().len(),
            usize::from(bytes.len() % 512 != 0),
            "{name}: {:?}",
            image.warnings()
        );
    }
}

#[test]
fn zeros_and_holes_are_a_blank_disk() {
    let scratch = Scratch::new();
    let zeros = scratch.file("zeros.img", &vec![0; 3 << 20]);
    assert_eq!(open(&zeros).unwrap().format(), Format::Udrw);
    let holes = scratch.path("holes.img");
    File::create(&holes).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(open(&holes).unwrap().disk().info().len, 1 << 40);
    let odd = scratch.file("odd.img", &vec![0; (1 << 20) + 1]);
    assert_eq!(
        refused(&odd).kind(),
        Kind::Unsupported,
        "a blank disk is whole sectors"
    );
}

#[test]
fn containers_are_never_taken_for_raw_disks() {
    let scratch = Scratch::new();
    for (name, magic) in [("a.qed", &b"QED\0"[..]), ("d.gz", b"\x1f\x8b\x08")] {
        let mut bytes = vec![0; 1 << 20];
        bytes[..magic.len()].copy_from_slice(magic);
        let path = scratch.file(name, &bytes);
        let error = refused(&path);
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.message().starts_with("is a"), "{error}");
        assert!(open_as(&path, Format::Udrw).is_ok(), "unless report so");
    }
    // The format is detected by its magic, and the rest is invalid.
    let mut udif = vec![0; 1 << 20];
    udif[(1 << 20) - 512..][..4].copy_from_slice(b"koly");
    udif[(1 << 20) - 508..][..8].copy_from_slice(&[0, 0, 0, 4, 0, 0, 2, 0]);
    let mut encrypted = vec![0; 1 << 20];
    encrypted[..12].copy_from_slice(b"encrcdsa\0\0\0\x02");
    let [sparse, asif] = [b"sprs", b"shdw"].map(|magic| {
        let mut bytes = vec![0; 1 << 20];
        bytes[..4].copy_from_slice(magic);
        bytes
    });
    let cases = [
        ("e.dmg", udif, "udif"),
        ("f.dmg", encrypted, "encr"),
        ("b.sparseimage", sparse, "sparse image"),
        ("c.asif", asif, "asif"),
    ];
    for (name, bytes, layer) in cases {
        let error = refused(&scratch.file(name, &bytes));
        assert!(
            matches!(error.kind(), Kind::Corrupt | Kind::Unsupported),
            "{error}"
        );
        assert!(error.layer().contains(layer), "{error}");
    }
}

#[test]
fn named_formats_must_fit() {
    let scratch = Scratch::new();
    let (bundle, file) = (
        scratch.bundle("a.sparsebundle"),
        scratch.file("b.img", &[0; 512]),
    );
    assert_eq!(
        open_as(&bundle, Format::Udrw).unwrap_err().kind(),
        Kind::Invalid
    );
    assert_eq!(
        open_as(&file, Format::Udsb).unwrap_err().kind(),
        Kind::Invalid
    );
    assert_eq!(
        open_as(&file, Format::Udzo).unwrap_err().kind(),
        Kind::Corrupt
    );
    assert_eq!(
        open_as(&file, Format::Asif).unwrap_err().kind(),
        Kind::Corrupt
    );
    assert_eq!(
        open_as(&file, Format::Udsp).unwrap_err().kind(),
        Kind::Corrupt
    );
    assert_eq!(open_as(&file, Format::Udto).unwrap().format(), Format::Udto);
}

#[test]
fn missing_images_are_not_found() {
    let scratch = Scratch::new();
    assert_eq!(refused(&scratch.path("none.dmg")).kind(), Kind::NotFound);
    let error = refused(scratch.0.path());
    assert!(
        error.kind() == Kind::Unsupported && error.message().contains("Info.plist"),
        "{error}"
    );
}

#[test]
fn a_bundle_without_readable_plists_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.bundle("a.sparsebundle");
    fs::remove_file(path.join("Info.plist")).unwrap();
    assert!(open(&path).unwrap().warnings()[0].contains("Info.bckup"));
    fs::write(path.join("Info.bckup"), b"\xff\xfe garbage").unwrap();
    let error = refused(&path);
    assert!(
        error.to_string().contains("Info.plist") && error.to_string().contains("Info.bckup"),
        "{error}"
    );
    fs::write(path.join("Info.plist"), noise(10 << 20)).unwrap();
    assert!(
        refused(&path).to_string().contains("65536"),
        "a list of any size is not read"
    );
}

#[test]
fn excess_bytes_of_a_band_are_ignored_and_reported() {
    let scratch = Scratch::new();
    let path = scratch.bundle("a.sparsebundle");
    File::options()
        .write(true)
        .open(path.join("bands/0"))
        .unwrap()
        .set_len((1 << 20) + 1)
        .unwrap();
    let image = open(&path).unwrap();
    assert_eq!(image.disk().read_vec(0, 512).unwrap(), [1; 512]);
    let survey = image.bundle().unwrap().survey(&Silent).unwrap();
    let report: Vec<_> = survey.too_long.iter().map(ToString::to_string).collect();
    assert!(
        report.len() == 1 && report[0].contains("bands/0") && report[0].contains("1048577"),
        "{report:?}"
    );
}

#[test]
fn stray_files_are_reported_by_a_survey() {
    let scratch = Scratch::new();
    let path = scratch.bundle("a.sparsebundle");
    for name in ["4", "00", "zz"] {
        fs::write(path.join("bands").join(name), b"x").unwrap();
    }
    let image = open(&path).unwrap();
    let survey = image.bundle().unwrap().survey(&Silent).unwrap();
    assert_eq!(
        (survey.bands, survey.problems.len()),
        (1, 3),
        "{:?}",
        survey.problems
    );
}

#[test]
fn a_disk_that_was_truncated_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path("disk.dmg");
    let options = CreateOptions {
        len: 8 << 20,
        ..CreateOptions::default()
    };
    let image = open::create(&path, &options).unwrap();
    gpt::create_single(
        &**image.disk(),
        512,
        partition::APPLE_HFS,
        gpt::Guids::random(),
    )
    .unwrap();
    image.disk().flush().unwrap();
    drop(image);
    assert!(open(&path).unwrap().partitions().is_some());
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    let error = refused(&path);
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(
        error.message().contains("truncated") && error.message().contains("4194304"),
        "{error}"
    );
    assert!(
        open_as(&path, Format::Udrw)
            .unwrap()
            .warnings()
            .iter()
            .any(|warning| warning.contains("is not within the disk"))
    );
}

#[test]
fn images_in_use_are_refused() {
    let scratch = Scratch::new();
    for path in [
        scratch.bundle("a.sparsebundle"),
        scratch.file("b.img", &[0; 1 << 20]),
    ] {
        let writing = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let held = open::open(&path, &writing).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), Kind::Conflict);
        drop(held);
        let _both = (open(&path).unwrap(), open(&path).unwrap());
        let error = open::open(&path, &writing).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains("in use"), "{error}");
    }
}

#[test]
fn a_trace_reports_the_layers_that_it_reached() {
    let scratch = Scratch::new();
    let path = scratch.file("noise.dmg", &noise(4096));
    let (layers, error) = open::trace(&path, &OpenOptions::default());
    assert!(
        matches!(
            layers[..],
            [
                open::Layer::File(_),
                open::Layer::Raw(_),
                open::Layer::Volumes(_)
            ]
        ),
        "{layers:?}"
    );
    assert_eq!(error.unwrap().kind(), Kind::Unsupported);
    let (layers, error) = open::trace(&scratch.bundle("a.sparsebundle"), &OpenOptions::default());
    assert!(
        matches!(
            layers[..],
            [open::Layer::Bundle(_), open::Layer::Volumes(_)]
        ),
        "{layers:?}"
    );
    assert!(error.is_none());
}

#[test]
fn every_sector_of_noise_is_refused_quickly() {
    // A boot sector's signature alone is no partition map, a magic of two bytes alone no file
    // system.
    let scratch = Scratch::new();
    let mut bytes = noise(64 << 10);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    bytes[1024..1026].copy_from_slice(b"H+");
    let path = scratch.file("looks-like.img", &bytes);
    assert_eq!(refused(&path).kind(), Kind::Unsupported);
}
