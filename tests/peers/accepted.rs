//! The gate before the first write refuses no image that another formatter or kernel made, nor one
//! that was in use when the machine lost its power.

use std::fs::File;
use std::path::{Path, PathBuf};

use bandsaw::device::Access;
use bandsaw::fs::{FileSystemMutExt, NewKind, NewNode};
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::ops::compact::{self, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::repair::{self, Mode, Outcome, repair};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::ops::trim::{before_use, trim};
use bandsaw::progress::Silent;
use bandsaw::{Kind, Result};

use crate::programs::{Program, run};
use crate::qemu::{self, Guest};
use crate::suite::Suite;
use crate::{scratch, tree};

const MKAPFS: Program = Program::Command(&["mkapfs"]);
const HFSPLUS: [&str; 2] = ["nls_utf8", "hfsplus"];
/// Minimum size of a container that the driver for APFS supports.
const APFS_LEN: u64 = 600 << 20;
const HFS_LEN: u64 = 64 << 20;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .heavy_peer("linux leaves", "boots Linux in an emulator", &qemu::NEEDS)
        .test("hfs_volumes", hfs_volumes);
    let needs = [&qemu::NEEDS[..], &[Program::GuestModule("apfs"), MKAPFS]].concat();
    suite
        .heavy_peer("linux leaves APFS", "boots Linux in an emulator", &needs)
        .test("apfs_containers", apfs_containers);
}

/// Changes each volume of `clean` and `cut`. Those of `clean` are unmounted. Then the power fails,
/// with changes of the others on the disk and in memory.
const WORK: &str = r#"
work() {
    mkdir /tmp/$1
    mount -t $kind -o $options /dev/$1 /tmp/$1
    mkdir /tmp/$1/New
    for number in $(seq 200); do echo $number >"/tmp/$1/New/number $number"; done
    head -c 3000000 /dev/urandom >/tmp/$1/New/large
}
for disk in $clean; do
    work $disk
    umount /tmp/$disk
done
for disk in $cut; do
    work $disk
    sync
    for number in $(seq 3 3 200); do rm "/tmp/$disk/New/number $number"; done
    head -c 2000000 /dev/urandom >/tmp/$disk/New/lost
done
echo "@@ exit 0"
sleep 1
echo o >/proc/sysrq-trigger
sleep 60
"#;

fn our_image(path: PathBuf, format: NewFormat, layout: Layout, len: u64) -> PathBuf {
    let source = path.with_extension("source");
    tree::write(&source, false);
    let options = CreateOptions {
        len: Some(len),
        volume: Some(NewVolume {
            layout,
            name: "Ours".into(),
            format,
            block_size: None,
            source: Source::Folder(source),
        }),
        ..CreateOptions::default()
    };
    create(&path, options, &Silent).expect("making an image");
    path
}

fn hfs_volumes() {
    let folder = scratch();
    let image =
        |name: &str, format, layout| our_image(folder.path().join(name), format, layout, HFS_LEN);
    let images = [
        image("clean.img", NewFormat::HfsPlus, Layout::Gptspud),
        image("clean-bare.img", NewFormat::HfsxJournaled, Layout::None),
        image("cut.img", NewFormat::HfsPlus, Layout::Gptspud),
        image("cut-bare.img", NewFormat::HfsPlusJournaled, Layout::None),
    ];
    boot(
        "hfsplus",
        "force",
        ["vda1 vdb", "vdc1 vdd"],
        &HFSPLUS,
        &images,
    );
    check(&images);
}

fn apfs_containers() {
    let folder = scratch();
    let place = |name: &str| folder.path().join(name);
    let made_by_mkapfs = |name: &str| {
        let path = place(name);
        let file = File::create(&path).expect("an image");
        file.set_len(APFS_LEN).expect("the length of an image");
        run(MKAPFS.command().arg(&path));
        path
    };
    let ours = |name: &str| our_image(place(name), NewFormat::Apfs, Layout::None, APFS_LEN);
    let untouched = made_by_mkapfs("untouched.img");
    let images = [
        ours("clean.img"),
        made_by_mkapfs("clean-mkapfs.img"),
        ours("cut.img"),
        made_by_mkapfs("cut-mkapfs.img"),
    ];
    boot(
        "apfs",
        "readwrite",
        ["vda vdb", "vdc vdd"],
        &["apfs"],
        &images,
    );
    check(&images);
    check(&[untouched]);
}

/// Lets the kernel change the disks named in `clean` and `cut`.
fn boot(kind: &str, options: &str, [clean, cut]: [&str; 2], modules: &[&str], images: &[PathBuf]) {
    let script = format!("kind={kind} options={options}\nclean='{clean}' cut='{cut}'\n{WORK}");
    let guest = images
        .iter()
        .fold(Guest::new(script).modules(modules), |guest, image| {
            guest.disk(image)
        });
    guest.boot().succeeded();
}

/// A change of an image.
type Verb = fn(&Image) -> Result<()>;

const VERBS: [(&str, Verb); 8] = [
    ("mount", |image| before_use(image, None, &Silent).map(drop)),
    ("put", |image| {
        let fs = image.file_system_mut(None)?;
        let node = fs.create(fs.root(), "put by us", &NewNode::new(NewKind::File))?;
        fs.write_all(node, &[7; 70_000])?;
        fs.unmount()
    }),
    ("trim", |image| trim(image, None, &Silent).map(drop)),
    ("compact", |image| {
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        compact(image, &options, None, &Silent).map(drop)
    }),
    ("resize --image-only", |image| {
        resized(image, Parts::Image, 8 << 20)
    }),
    ("resize", |image| resized(image, Parts::All, 8 << 20)),
    ("resize, smaller", |image| {
        resized(image, Parts::All, -(8 << 20))
    }),
    ("disable-journal", |image| {
        match image.volume(None)?.disable_journal() {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unsupported) => Ok(()),
            done => done,
        }
    }),
];

fn resized(image: &Image, parts: Parts, by: i64) -> Result<()> {
    let options = ResizeOptions {
        size: Size::Bytes(image.disk().info().len.saturating_add_signed(by)),
        parts,
        volume: None,
        dry_run: false,
    };
    resize(image, &options, &Silent).map(drop)
}

/// Returns true if the volume was not unmounted, and no journal makes up for it.
fn is_unclean(path: &Path) -> bool {
    let image = open::open(path, &OpenOptions::default()).expect("an image");
    !image.file_system(None).expect("a volume").volume().clean
}

/// Every verb accepts each image, unless the check finds damage in it. A volume that was not
/// unmounted, and whose journal the driver did not use, is refused until it was repaired, as Linux
/// mounts it read-only; then it is accepted.
fn check(images: &[PathBuf]) {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let repairing = repair::Options {
        mode: Mode::Apply,
        ..repair::Options::default()
    };
    for path in images {
        let name = path.file_name().expect("a name").display();
        let is_damaged = || {
            open::examine(path, &OpenOptions::default(), &Silent)
                .expect("a check")
                .problems
                .worst()
                >= Some(bandsaw::problem::Severity::Damage)
        };
        for (verb, run) in VERBS {
            match open::open(path, &options).and_then(|image| run(&image)) {
                Ok(()) => {}
                Err(error) if error.kind() == Kind::Corrupt && is_damaged() => {
                    eprintln!("{name}: {verb}: the kernel left damage: {error}");
                }
                Err(error) if error.kind() == Kind::Corrupt && is_unclean(path) => {
                    let done = repair(path, &OpenOptions::default(), &repairing, &Silent)
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(done.outcome, Outcome::Repaired, "{name}: {done:?}");
                    open::open(path, &options)
                        .and_then(|image| run(&image))
                        .unwrap_or_else(|error| panic!("{name}: {verb} after repair: {error}"));
                }
                Err(error) => panic!("{name}: {verb}: {error} ({:?})", error.kind()),
            }
        }
    }
}
