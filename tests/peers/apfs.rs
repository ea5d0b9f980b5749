//! APFS: `apfsck`, which prints nothing for a consistent container, `fsapfsinfo` and `7zz`. The
//! `apfsck` of Debian 12 supports neither containers below 128 MiB, nor those whose space manager
//! takes several blocks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::fs::apfs::{ApfsMut, WriteOptions};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::testing::{Random, corruptions};

use crate::common::changing::operate;
use crate::programs::{Program, SEVEN_ZIP, everything, output, run, run_text};
use crate::suite::Suite;
use crate::tree::{self, Item, Kind, Listing, assert_same, list, sha256};

const APFSCK: Program = Program::Command(&["apfsck"]);
const MKAPFS: Program = Program::Command(&["mkapfs"]);
const FSAPFSINFO: Program = Program::Command(&["fsapfsinfo"]);

const NAME: &str = "Peers é";
const MIB: u64 = 1 << 20;
/// Mode bits that 7zz sets regardless of the umask.
const UNPACKED_MODE: u32 = 0o755;

/// Latest date that the host's file system supports.
const FAR_AHEAD: i64 = 15_032_385_535;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("apfsck", &[APFSCK])
        .test("formatted", apfsck_formatted)
        .test("several", apfsck_several)
        .test("built", apfsck_built)
        .test("changed", apfsck_changed)
        .test("snapshots", apfsck_snapshots)
        .test("resized", apfsck_resized)
        .test("damaged", apfsck_damaged);
    suite
        .peer("mkapfs", &[APFSCK, MKAPFS])
        .test("changed", mkapfs_changed);
    suite
        .peer("fsapfsinfo", &[FSAPFSINFO])
        .test("formatted", fsapfsinfo_formatted);
    suite
        .peer("7zz on APFS", &[SEVEN_ZIP])
        .test("unpacks_all", unpacks_all);
}

fn make(folder: &Path, len: Option<u64>, format: NewFormat, source: Source) -> PathBuf {
    let image = folder.join("apfs.img");
    let volume = NewVolume {
        layout: Layout::None,
        name: NAME.into(),
        format,
        block_size: None,
        source,
    };
    // Later than any file.
    let epoch = Some(Timestamp::from_seconds(crate::volume::CREATED));
    let options = CreateOptions {
        len,
        overwrite: true,
        volume: Some(volume),
        epoch,
        ..CreateOptions::default()
    };
    create(&image, options, &Silent).expect("making an image");
    image
}

fn check(image: &Path) {
    let checked = output(APFSCK.command().arg("-cuw").arg(image));
    let said = everything(&checked);
    assert!(
        checked.status.success() && said.is_empty(),
        "{}: {said}",
        checked.status
    );
    let found = open::examine(image, &OpenOptions::default(), &Silent)
        .expect("a check")
        .problems;
    assert!(found.worst() <= Some(Severity::Note), "{found:#?}");
}

const FORMATS: [NewFormat; 2] = [NewFormat::Apfs, NewFormat::ApfsCaseSensitive];

fn apfsck_formatted() {
    let scratch = crate::scratch();
    for format in FORMATS {
        for len in [
            128 * MIB,
            128 * MIB + 4096,
            512 * MIB,
            513 * MIB,
            1024 * MIB,
            1500 * MIB,
            5 << 30,
            100 << 30,
            1 << 40,
        ] {
            check(&make(scratch.path(), Some(len), format, Source::Empty));
        }
    }
}

fn apfsck_several() {
    let scratch = crate::scratch();
    let image = scratch.path().join("several.img");
    for (count, len) in [(2, 600 * MIB), (100, 50 << 30)] {
        let volume = NewVolume {
            layout: Layout::None,
            name: NAME.into(),
            format: NewFormat::Apfs,
            block_size: None,
            source: Source::Empty,
        };
        let more_volumes = (1..count)
            .map(|number| format!("Volume {number}"))
            .collect();
        let options = CreateOptions {
            len: Some(len),
            overwrite: true,
            volume: Some(volume),
            more_volumes,
            ..CreateOptions::default()
        };
        create(&image, options, &Silent).expect("making an image");
        check(&image);
    }
}

fn apfsck_built() {
    for format in FORMATS {
        let (scratch, source) = source(format);
        check(&make(scratch.path(), Some(200 * MIB), format, source));
    }
}

/// Changed volumes are consistent: after every few operations, and after each reopening.
fn change(image: &Path, seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let opened = open::open(image, &options).expect("opening an image");
        let fs = opened
            .file_system_mut(None)
            .expect("a volume that can be changed");
        for _ in 0..random.within(1..200) {
            operate(&*fs, &mut random);
            if random.one_in(20) {
                fs.sync().expect("a sync");
            }
        }
        fs.unmount().expect("an unmount");
        drop((fs, opened));
        check(image);
    }
}

fn apfsck_changed() {
    for (seed, format) in (0..).zip(FORMATS) {
        let scratch = crate::scratch();
        change(
            &make(scratch.path(), Some(128 * MIB), format, Source::Empty),
            seed,
            12,
        );
        let (_source, source) = source(format);
        change(
            &make(scratch.path(), Some(600 * MIB), format, source),
            seed,
            8,
        );
    }
}

/// Changes before and after snapshots, which are created by test code. The `apfsck` of Debian 12
/// rejects a snapshot of the last checkpoint as one from the future, so there is always one after
/// it.
fn apfsck_snapshots() {
    for (seed, format) in (0..).zip(FORMATS) {
        let scratch = crate::scratch();
        let (_source, source) = source(format);
        let image = make(scratch.path(), Some(200 * MIB), format, source);
        for round in 0..4 {
            let options = OpenOptions {
                access: Access::ReadWrite,
                ..OpenOptions::default()
            };
            let opened = open::open(&image, &options).expect("opening an image");
            let container = opened.volumes()[0].container().expect("a container");
            let volume = ApfsMut::open(&container, 1, WriteOptions::default(), &|_| {
                unreachable!("it is plain")
            })
            .expect("a volume that can be changed");
            volume
                .take_snapshot(&format!("snapshot {round}"), None)
                .expect("a snapshot");
            drop((volume, container, opened));
            change(&image, 4 * seed + round, 3);
        }
    }
}

/// Resizes across chunks, blocks of descriptions and bitmaps of the pool, and back, with changes in
/// between. It supports no container above 1 TiB.
fn apfsck_resized() {
    let scratch = crate::scratch();
    let image = make(
        scratch.path(),
        Some(128 * MIB),
        NewFormat::Apfs,
        Source::Empty,
    );
    for (seed, len) in (0..).zip([
        130 * MIB,
        600 * MIB,
        5 << 30,
        200 << 30,
        1 << 40,
        20 << 30,
        300 * MIB,
    ]) {
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let size = ResizeOptions {
            size: Size::Bytes(len),
            parts: Parts::All,
            volume: None,
            dry_run: false,
        };
        resize(
            &open::open(&image, &options).expect("opening an image"),
            &size,
            &Silent,
        )
        .expect("resizing");
        check(&image);
        change(&image, seed, 1);
    }
}

/// Our check reports all damage that `apfsck` reports: every kind of damage, and random bit flips.
fn apfsck_damaged() {
    const LEN: u64 = 128 * MIB;
    let scratch = crate::scratch();
    let image = scratch.path().join("damaged.img");
    let mut random = Random::new(1);
    let named = corruptions::apfs(LEN as usize).map(|(words, _, bytes)| (words.to_owned(), bytes));
    let by_chance = (0..BY_CHANCE).map(|_| corruptions::apfs_at_random(LEN as usize, &mut random));
    let by_chance =
        by_chance.map(|((block, byte), bytes)| (format!("block {block}, byte {byte:#x}"), bytes));
    let (mut missed, mut judged) = (Vec::new(), 0);
    for (what, bytes) in named.chain(by_chance) {
        write_sparse(&image, &bytes);
        let said = everything(&output(APFSCK.command().arg("-cuw").arg(&image)));
        // Unsupported features are no verdict.
        if said.is_empty() || said.trim_end().ends_with("not supported.") {
            continue;
        }
        judged += 1;
        let found = open::examine(&image, &OpenOptions::default(), &Silent)
            .expect("a check")
            .problems;
        if found.worst().is_none() {
            missed.push(format!("{what}: {said}"));
        }
    }
    assert!(
        missed.is_empty() && judged > 50,
        "of {judged} missed: {missed:#?}"
    );
}

/// Number of containers with a random bit flip.
const BY_CHANCE: u64 = 40;

/// Writes the blocks that are not zero.
fn write_sparse(image: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(image).expect("a file");
    file.set_len(bytes.len() as u64).expect("a length");
    // Compared as slices: byte by byte takes seconds without optimization.
    let zeros = [0; 4096];
    for (block, bytes) in (0..)
        .zip(bytes.chunks(4096))
        .filter(|(_, bytes)| *bytes != &zeros[..bytes.len()])
    {
        file.write_all_at(bytes, block * 4096).expect("a write");
    }
}

fn mkapfs_changed() {
    let scratch = crate::scratch();
    let image = scratch.path().join("mkapfs.img");
    for (seed, options) in (0..).zip([&["-L", NAME][..], &["-s", "-L", NAME]]) {
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(200 * MIB))
            .expect("a file");
        run(MKAPFS.command().args(options).arg(&image));
        change(&image, seed, 8);
    }
}

fn source(format: NewFormat) -> (tempfile::TempDir, Source) {
    let scratch = crate::scratch();
    let folder = scratch.path().join("source");
    tree::write(&folder, format == NewFormat::ApfsCaseSensitive);
    (scratch, Source::Folder(folder))
}

fn fsapfsinfo_formatted() {
    let scratch = crate::scratch();
    for format in FORMATS {
        for len in [MIB, 5 * MIB, 64 * MIB, 300 * MIB, 16 << 30] {
            let image = make(scratch.path(), Some(len), format, Source::Empty);
            let report = run_text(FSAPFSINFO.command().arg(&image));
            assert!(
                report.contains("Number of volumes\t\t: 1") && report.contains(NAME),
                "{report}"
            );
        }
    }
}

fn unpacks_all() {
    for format in FORMATS {
        let (scratch, source) = source(format);
        let expected = as_shown(&list(&scratch.path().join("source")));
        let image = make(scratch.path(), None, format, source);
        let into = scratch.path().join("unpacked");
        let mut out = OsString::from("-o");
        out.push(&into);
        run(SEVEN_ZIP
            .command()
            .args(["x", "-y", "-snld"])
            .arg(out)
            .arg(image));
        assert_same(&expected, &known(&into));
    }
}

/// Returns the expected output of 7zz for our files: attributes of files as files beside them, a
/// FIFO as an empty file, dates before 1970 far in the future.
fn as_shown(files: &Listing) -> Listing {
    let mut shown = Listing::new();
    for (path, item) in files {
        for (name, value) in item.xattrs.iter().filter(|_| item.kind != Kind::Folder) {
            shown.insert(
                format!("{path}:{name}"),
                Item::of(Kind::File {
                    len: value.len() as u64,
                    sha256: sha256(value),
                }),
            );
        }
        let (kind, mode) = match &item.kind {
            Kind::Fifo => (
                Kind::File {
                    len: 0,
                    sha256: sha256(b""),
                },
                0o644,
            ),
            kind => (kind.clone(), item.mode),
        };
        let modified = if item.modified < 0 {
            FAR_AHEAD
        } else {
            item.modified
        };
        shown.insert(
            path.clone(),
            Item {
                kind,
                mode: mode & UNPACKED_MODE,
                links: 1,
                xattrs: BTreeMap::new(),
                modified,
            },
        );
    }
    shown
}

/// Returns the actual output of 7zz.
fn known(root: &Path) -> Listing {
    let prefix = root.to_str().expect("scratch paths are UTF-8");
    let known = |(path, item): (String, Item)| match item.kind {
        _ if path.contains(':') && !path.ends_with("with:colon") => (path, Item::of(item.kind)),
        Kind::Symlink(target) => {
            let target = target
                .strip_prefix(prefix)
                .map_or(target.clone(), str::to_owned);
            (
                path,
                Item {
                    kind: Kind::Symlink(target),
                    mode: item.mode & UNPACKED_MODE,
                    links: 1,
                    ..item
                },
            )
        }
        _ => (
            path,
            Item {
                mode: item.mode & UNPACKED_MODE,
                links: 1,
                ..item
            },
        ),
    };
    list(root).into_iter().map(known).collect()
}
