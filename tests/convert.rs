//! Conversion between containers: the data is preserved, and no more of it is allocated than
//! before.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::converting::{StopAfter, names, open_as};
use crate::common::corpus;
use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::container::udif::Resource;
use bandsaw::device::{Access, BlockDeviceExt, ExtentKind};
use bandsaw::open::{self, CreateOptions, Image, OpenOptions};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, convert, resume, stream};
use bandsaw::ops::create::{self, NewVolume, Source};
use bandsaw::ops::space::FreeSpace;
use bandsaw::partition::{APPLE_HFS, gpt};
use bandsaw::progress::{Progress, Silent};

const MIB: u64 = 1 << 20;
const LEN: u64 = 70 * MIB + 1536;

/// Creates a disk with data at its ends, around band boundaries, and explicit zeros.
fn source(path: &Path, format: Format) -> Image {
    let options = CreateOptions {
        format,
        len: LEN,
        ..CreateOptions::default()
    };
    let image = open::create(path, &options).unwrap();
    let write =
        |at: u64, len: usize, byte: u8| image.disk().write_at(at, &vec![byte; len]).unwrap();
    write(0, 512, 1);
    write(8 * MIB - 3, 6, 2);
    write(20 * MIB, 1 << 20, 0);
    write(33 * MIB + 100, 3 << 20, 3);
    write(34 * MIB, 1 << 20, 0);
    write(LEN - 1, 1, 4);
    image.disk().flush().unwrap();
    drop(image);
    open_as(path, format)
}

fn to(format: Format, band_size: Option<u64>) -> ConvertOptions {
    ConvertOptions {
        format,
        band_size,
        ..ConvertOptions::default()
    }
}

fn contents(image: &Image) -> Vec<u8> {
    image.disk().read_vec(0, LEN as usize).unwrap()
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).unwrap();
    let inside = |path: &PathBuf| allocated(path);
    let below = if meta.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| inside(&entry.unwrap().path()))
            .sum()
    } else {
        0
    };
    below
        + if meta.is_file() {
            meta.blocks() * 512
        } else {
            0
        }
}

#[test]
fn every_container_holds_the_same_disk() {
    let folder = tempfile::tempdir().unwrap();
    for source_format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let from = source(&folder.path().join(source_format.code()), source_format);
        let expected = contents(&from);
        let targets = [
            (Format::Udrw, None),
            (Format::Udsb, None),
            (Format::Udsb, Some(MIB)),
            (Format::Udsb, Some(MIB + 4096)),
            (Format::Udsb, Some(16 * MIB)),
            (Format::Udsb, Some(1 << 30)),
            (Format::Udsp, None),
            (Format::Udsp, Some(4096)),
            (Format::Udsp, Some(3 * MIB + 512)),
            (Format::Asif, None),
        ];
        for (number, (format, band_size)) in targets.into_iter().enumerate() {
            let path = folder.path().join(format!("{source_format}-{number}"));
            let converted = convert(&from, &path, &to(format, band_size), &Silent).unwrap();
            drop(converted);
            let image = open_as(&path, format);
            if let Some(band_size) = band_size {
                let used = image.bundle().map(|bundle| bundle.band_size());
                assert_eq!(
                    used.or_else(|| Some(image.sparse_image()?.band_size())),
                    Some(band_size)
                );
            }
            assert!(
                contents(&image) == expected,
                "{source_format} to {format} {band_size:?}"
            );
            // The tables of an ASIF image, one of them for its metadata, and their bitmaps.
            let most = 3 * MIB + if format == Format::Asif { 4 * MIB } else { 0 };
            assert!(
                allocated(&path) < most,
                "{source_format} to {format} {band_size:?}: {} bytes",
                allocated(&path)
            );
        }
    }
}

#[test]
fn holes_stay_holes() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udsb);
    let converted = convert(
        &from,
        &folder.path().join("b"),
        &to(Format::Udsb, Some(MIB)),
        &Silent,
    )
    .unwrap();
    let disk = converted.image.disk();
    let data: u64 = disk
        .extents(0..LEN)
        .map(|run| run.unwrap())
        .filter(|run| run.1 == ExtentKind::Data)
        .map(|run| run.0.end - run.0.start)
        .sum();
    assert!(
        data >= converted.copied.written && data < 3 * MIB,
        "{data}: {:?}",
        converted.copied
    );
    assert!(
        converted.copied.written < 2 * MIB + 6 * 4096,
        "{:?}",
        converted.copied
    );
    assert!(
        disk.extents(9 * MIB..33 * MIB)
            .all(|run| run.unwrap().1 == ExtentKind::Hole)
    );
}

/// Conversion of one disk always yields the same file, with any number of threads. (An ASIF image
/// has random UUIDs.)
#[test]
fn a_sparse_image_is_written_from_front_to_back() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udsb);
    let make = |name: &str| {
        drop(
            convert(
                &from,
                &folder.path().join(name),
                &to(Format::Udsp, None),
                &Silent,
            )
            .unwrap(),
        );
        fs::read(folder.path().join(name)).unwrap()
    };
    let file = make("b");
    assert!(file == make("c"));
    let slots = file[0x40..4096]
        .chunks(4)
        .map(|slot| u32::from_be_bytes(slot.try_into().unwrap()));
    let slots: Vec<u32> = slots.take_while(|slot| *slot != 0).collect();
    assert!(slots.is_sorted() && slots.len() >= 6, "{slots:?}");
}

#[test]
fn sectors_are_those_of_the_map() {
    let folder = tempfile::tempdir().unwrap();
    let [raw, asif, back] = ["raw", "asif", "back"].map(|name| folder.path().join(name));
    let image = open::create(
        &raw,
        &CreateOptions {
            len: 8 * MIB,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    gpt::create_single(&**image.disk(), 4096, APPLE_HFS, gpt::Guids::random()).unwrap();
    image.disk().flush().unwrap();
    drop(image);
    let from = open_as(&raw, Format::Udrw);
    let converted = convert(&from, &asif, &to(Format::Asif, None), &Silent)
        .unwrap()
        .image;
    assert_eq!(
        (
            converted.asif().unwrap().block(),
            converted.disk().info().block
        ),
        (4096, 4096)
    );
    assert_eq!(converted.partitions().unwrap().block, 4096);
    drop(convert(&converted, &back, &to(Format::Udrw, None), &Silent).unwrap());
    assert!(fs::read(&raw).unwrap() == fs::read(&back).unwrap());
}

/// Conversion to a pipe, to a file with existing data, and to a file that ends at the starting
/// offset.
#[test]
fn a_disk_is_written_from_front_to_back() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Asif);
    let expected = contents(&from);
    let run =
        |out: File| stream(&from, &to(Format::Udrw, None), Path::new("."), out, &Silent).unwrap();

    let (mut reader, writer) = std::io::pipe().unwrap();
    let piped = std::thread::scope(|scope| {
        let read = scope.spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        run(File::from(OwnedFd::from(writer)));
        read.join().unwrap()
    });
    assert!(piped == expected);

    let path = folder.path().join("raw");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"before").unwrap();
    let copied = run(file.try_clone().unwrap());
    file.write_all(b"after").unwrap();
    assert!(fs::read(&path).unwrap() == [b"before", &expected[..], b"after"].concat());
    assert!(
        copied.written < 3 * MIB && allocated(&path) < 4 * MIB,
        "holes are kept: {copied:?}"
    );

    fs::write(&path, vec![7; LEN as usize]).unwrap();
    run(File::options().write(true).open(&path).unwrap());
    assert!(
        fs::read(&path).unwrap() == expected,
        "what was there before does not show through holes"
    );

    let error = stream(
        &from,
        &to(Format::Udsp, None),
        Path::new("."),
        File::create(&path).unwrap(),
        &Silent,
    )
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn sums_are_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let images = [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif]
        .map(|format| source(&folder.path().join(format.code()), format));
    let expected = corpus::sha256(&contents(&images[0]));
    for image in &images {
        assert_eq!(
            checksum(&**image.disk(), Algorithm::Sha256, &Silent).unwrap(),
            expected
        );
    }
}

#[test]
fn a_stopped_conversion_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udrw);
    let old = folder.path().join("old");
    fs::write(&old, b"old").unwrap();
    for left in [1, 20 * MIB, 60 * MIB] {
        let stop = StopAfter { left: left.into() };
        for (path, overwrite) in [(folder.path().join("new"), false), (old.clone(), true)] {
            let options = ConvertOptions {
                overwrite,
                ..to(Format::Udsb, Some(MIB))
            };
            assert_eq!(
                convert(&from, &path, &options, &stop).unwrap_err().kind(),
                Kind::Cancelled
            );
        }
    }
    assert_eq!(fs::read(&old).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn an_image_is_not_converted_onto_itself() {
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let path = folder.path().join(format.code());
        let from = source(&path, format);
        assert_eq!(
            convert(&from, &path, &to(Format::Udrw, None), &Silent)
                .unwrap_err()
                .kind(),
            Kind::Conflict
        );
        let overwrite = ConvertOptions {
            overwrite: true,
            ..to(Format::Udrw, None)
        };
        let error = convert(&from, &path, &overwrite, &Silent).unwrap_err();
        assert!(
            error.kind() == Kind::Conflict && error.to_string().contains("in use"),
            "{error}"
        );
        assert_eq!(contents(&from)[..512], [1; 512]);
    }
}

#[test]
fn progress_adds_up_to_the_disk() {
    struct Sum(AtomicU64);
    impl Progress for Sum {
        fn stage(&self, name: &str, total: u64) {
            assert!(name == "flush" || total == LEN);
        }
        fn advance(&self, n: u64) {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
        fn cancelled(&self) -> bool {
            false
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udsb);
    let sum = Sum(AtomicU64::new(0));
    convert(
        &from,
        &folder.path().join("b"),
        &to(Format::Udsb, Some(MIB)),
        &sum,
    )
    .unwrap();
    assert_eq!(sum.0.into_inner(), LEN);
}

const UDIF: [Format; 6] = [
    Format::Udro,
    Format::Udco,
    Format::Udzo,
    Format::Udbz,
    Format::Ulfo,
    Format::Ulmo,
];

#[test]
fn compressed_images_hold_the_same_disk() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udsb);
    let expected = contents(&from);
    let mut last = from;
    for format in UDIF {
        let path = folder.path().join(format.code());
        let converted = convert(&last, &path, &to(format, None), &Silent).unwrap();
        assert_eq!(converted.copied.written, fs::metadata(&path).unwrap().len());
        assert!(contents(&converted.image) == expected, "{format}");
        // Chained: the next conversion starts from this one.
        last = open_as(&path, format);
        assert_eq!(last.format(), format);
        assert!(
            last.udif()
                .unwrap()
                .verify(&Silent)
                .unwrap()
                .iter()
                .all(|verdict| verdict.agrees() == Some(true)),
            "{format}"
        );
        let streamed = folder.path().join("streamed");
        stream(
            &last,
            &to(format, None),
            folder.path(),
            File::create(&streamed).unwrap(),
            &Silent,
        )
        .unwrap();
        assert!(
            fs::read(&streamed).unwrap() == fs::read(&path).unwrap(),
            "{format} to a stream"
        );
    }
    // Resources stand before what is known at the end.
    let note = Resource {
        kind: "TEXT".to_owned(),
        id: "128".to_owned(),
        name: "note".to_owned(),
        attributes: "0x0000".to_owned(),
        data: b"Use it well.".to_vec(),
        cf_name: None,
    };
    let noted = ConvertOptions {
        resources: vec![note],
        ..to(Format::Udzo, None)
    };
    let (file, streamed) = (folder.path().join("noted"), folder.path().join("piped"));
    convert(&last, &file, &noted, &Silent).unwrap();
    let out = File::create(&streamed).unwrap();
    stream(&last, &noted, folder.path(), out, &Silent).unwrap();
    assert!(fs::read(&streamed).unwrap() == fs::read(&file).unwrap());
    let raw = folder.path().join("raw");
    convert(&last, &raw, &to(Format::Udrw, None), &Silent).unwrap();
    assert!(fs::read(&raw).unwrap() == expected);
}

#[test]
fn unsupported_options_of_compressed_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("a"), Format::Udrw);
    let level = Some(bandsaw::codec::Level::default());
    for options in [
        to(Format::Udzo, Some(MIB)),
        ConvertOptions {
            level,
            ..to(Format::Ulfo, None)
        },
    ] {
        assert_eq!(
            convert(&from, &folder.path().join("b"), &options, &Silent)
                .unwrap_err()
                .kind(),
            Kind::Invalid
        );
    }
    let udzo = to(Format::Udzo, None);
    assert_eq!(
        resume(&from, &folder.path().join("b"), &udzo, &Silent)
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
    let blank = CreateOptions {
        format: Format::Udzo,
        len: MIB,
        ..CreateOptions::default()
    };
    assert_eq!(
        open::create(&folder.path().join("b"), &blank)
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
    let stop = StopAfter { left: MIB.into() };
    assert_eq!(
        convert(&from, &folder.path().join("b"), &udzo, &stop)
            .unwrap_err()
            .kind(),
        Kind::Cancelled
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left"
    );
}

/// Damage that no codec detects is found by the image's own checksums, in conversions to every
/// format, and no output remains.
#[test]
fn a_damaged_source_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("from.img"), Format::Udrw);
    for format in [Format::Udro, Format::Udco] {
        let path = folder.path().join("damaged.dmg");
        let options = ConvertOptions {
            overwrite: true,
            ..to(format, None)
        };
        drop(convert(&from, &path, &options, &Silent).unwrap());
        let whole = open_as(&path, format);
        assert_eq!(whole.udif().unwrap().usage().held % 512, 0);
        for target in [Format::Udrw, Format::Udsb, Format::Asif, Format::Udzo] {
            let good = convert(
                &whole,
                &folder.path().join("good"),
                &ConvertOptions {
                    overwrite: true,
                    ..to(target, None)
                },
                &Silent,
            );
            assert!(contents(&good.unwrap().image) == contents(&from));
        }
        drop(whole);
        let mut bytes = fs::read(&path).unwrap();
        // A literal of the first chunk: the codec accepts any other byte.
        bytes[1] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let damaged = open_as(&path, format);
        let before = names(folder.path());
        for target in [Format::Udrw, Format::Udsb, Format::Asif, Format::Ulfo] {
            let place = folder.path().join("copy");
            let error = convert(&damaged, &place, &to(target, None), &Silent).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{format} to {target}: {error}");
            assert!(
                error.to_string().contains("damaged.dmg") && error.to_string().contains("checksum"),
                "{error}"
            );
            assert_eq!(names(folder.path()), before);
        }
        let out = || File::create(folder.path().join("out")).unwrap();
        assert_eq!(
            stream(
                &damaged,
                &to(Format::Udrw, None),
                Path::new("."),
                out(),
                &Silent
            )
            .unwrap_err()
            .kind(),
            Kind::Corrupt
        );
        let all_the_same = ConvertOptions {
            no_verify: true,
            ..to(Format::Udrw, None)
        };
        stream(&damaged, &all_the_same, Path::new("."), out(), &Silent).unwrap();
        assert_eq!(fs::metadata(folder.path().join("out")).unwrap().len(), LEN);
        fs::remove_file(folder.path().join("out")).unwrap();
    }
}

#[test]
fn free_blocks_are_left_out_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dirty.img");
    let volume = NewVolume {
        layout: create::Layout::Gptspud,
        name: "Docs".into(),
        format: Default::default(),
        block_size: None,
        source: Source::Empty,
    };
    let options = create::CreateOptions {
        len: Some(9 * MIB),
        volume: Some(volume),
        ..Default::default()
    };
    drop(create::create(&path, options, &Silent).unwrap());
    let clean = fs::read(&path).unwrap();
    let image = open::open(
        &path,
        &OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        },
    )
    .unwrap();
    let runs: Vec<_> = FreeSpace::of(&image).runs().map(Result::unwrap).collect();
    assert!(!runs.is_empty());
    for run in &runs {
        image
            .disk()
            .write_at(run.start, &vec![0xAA; (run.end - run.start) as usize])
            .unwrap();
    }
    image.disk().flush().unwrap();
    drop(image);
    let image = open_as(&path, Format::Udrw);
    for (skip_free, expected) in [(true, &clean), (false, &fs::read(&path).unwrap())] {
        for format in [Format::Udrw, Format::Udzo, Format::Udsp] {
            let target = folder.path().join(format!("{skip_free}.{}", format.code()));
            let made = convert(
                &image,
                &target,
                &ConvertOptions {
                    skip_free,
                    ..to(format, None)
                },
                &Silent,
            )
            .unwrap();
            assert_eq!(
                made.image.disk().read_vec(0, clean.len()).unwrap(),
                *expected,
                "{format}, {skip_free}"
            );
        }
    }
    // Without a volume the free space is unknown.
    let blank = source(&folder.path().join("blank"), Format::Udrw);
    let options = ConvertOptions {
        skip_free: true,
        ..to(Format::Udrw, None)
    };
    assert_eq!(
        convert(&blank, &folder.path().join("no"), &options, &Silent)
            .unwrap_err()
            .kind(),
        Kind::Unsupported
    );
}
