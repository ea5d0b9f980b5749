//! APFS: containers made by `mkapfs` and read by us, and real ones read by libfsapfs, 7-Zip and us.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bandsaw::address::VolumeSelector;
use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt, Fork};
use bandsaw::open::{self, Image, OpenOptions};

use crate::common::{corpus, opened};
use crate::programs::{Program, SEVEN_ZIP, run_text};
use crate::scratch;
use crate::suite::Suite;

const MKAPFS: Program = Program::Command(&["mkapfs"]);
const FSAPFSINFO: Program = Program::Command(&["fsapfsinfo"]);

/// Images without features that 7-Zip reads incorrectly (holes, compressed files).
const PLAIN: [&str; 2] = [
    "raw/dfvfs-apfs.raw.gz",
    "udif/sparkle-CodeSign_apfs_lzma_aux_files.dmg",
];

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("mkapfs", &[MKAPFS])
        .test("its_containers_are_read", its_containers_are_read);
    suite
        .peer("libfsapfs", &[FSAPFSINFO])
        .test("names_the_same_volumes", names_the_same_volumes);
    suite
        .peer("7-Zip and APFS", &[SEVEN_ZIP])
        .test("extracts_the_same_files", extracts_the_same_files);
}

fn image(path: &Path) -> Image {
    open::open(path, &OpenOptions::default()).unwrap()
}

/// Returns the path of an image of the corpus.
fn corpus_file(test: &str, name: &str, scratch: &Path) -> Option<PathBuf> {
    opened::place(&corpus::image(test, name)?, scratch)
}

fn its_containers_are_read() {
    let folder = scratch();
    for (number, (mib, case)) in [
        (130, None),
        (512, Some("-s")),
        (600, None),
        (70_000, Some("-z")),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{number}.img"));
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        let made = MKAPFS
            .command()
            .args(["-L", "Theirs"])
            .args(case)
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success(), "mkapfs {case:?} of {mib} MiB");
        let image = image(&path);
        let container = image.volumes()[0].container().unwrap();
        assert!(
            container.problems().is_empty(),
            "{:?}",
            container.problems()
        );
        let volume = image
            .file_system(Some(&VolumeSelector::Name("Theirs".into())))
            .unwrap();
        assert_eq!(volume.volume().case_sensitive, case.is_some());
        assert!(volume.entries(volume.root()).unwrap().is_empty());
        assert!(volume.volume().free < mib << 20 && volume.volume().free > 0);
    }
}

fn names_the_same_volumes() {
    let folder = scratch();
    // The corpus's volume with 512 snapshots is excluded, since its snapshot tree has two levels,
    // which libfsapfs does not read.
    for name in [
        "raw/dfvfs-apfs.raw.gz",
        "raw/dissect-apfs-case-insensitive.bin.gz",
        "raw/utillinux-apfs.img.xz",
    ] {
        let Some(path) = corpus_file("names_the_same_volumes", name, folder.path()) else {
            return;
        };
        let report = run_text(FSAPFSINFO.command().arg(&path));
        let container = image(&path).volumes()[0].container().unwrap();
        for volume in container.volumes() {
            let volume = volume.unwrap();
            for known in [
                volume.label.name,
                volume.uuid.to_string(),
                container.uuid().to_string(),
            ] {
                assert!(
                    report.contains(&known),
                    "{name}: {known} is not in {report}"
                );
            }
        }
    }
}

fn extracts_the_same_files() {
    let folder = scratch();
    for (number, name) in PLAIN.into_iter().enumerate() {
        let Some(path) = corpus_file("extracts_the_same_files", name, folder.path()) else {
            return;
        };
        let out = folder.path().join(format!("out-{number}"));
        let mut command = SEVEN_ZIP.command();
        run_text(
            command
                .args(["x", "-y", "-sns-"])
                .arg(format!("-o{}", out.display()))
                .arg(&path),
        );
        let image = image(&path);
        let ours = our_files(&*image.file_system(None).unwrap());
        let mut theirs = BTreeMap::new();
        their_files(&out, &out, &mut theirs);
        assert!(
            ours.len() > 3 && ours == theirs,
            "{name}: {:?} and {:?}",
            ours.keys(),
            theirs.keys()
        );
    }
}

/// Returns the regular files by path, with the checksums of their contents.
pub(crate) fn our_files(volume: &dyn FileSystem) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![(volume.root(), String::new())];
    while let Some((dir, path)) = waiting.pop() {
        for entry in volume.entries(dir).unwrap() {
            let path = format!("{path}/{}", entry.name);
            match entry.attributes.kind {
                FileKind::Folder => waiting.push((entry.attributes.id, path)),
                FileKind::File => {
                    let device = volume.open(entry.attributes.id, Fork::Data).unwrap();
                    let contents = device.read_vec(0, device.info().len as usize).unwrap();
                    all.insert(path, corpus::sha256(&contents));
                }
                _ => {}
            }
        }
    }
    all
}

/// Adds the regular files of a folder that 7-Zip wrote, whose top folder may be named after the
/// volume.
fn their_files(top: &Path, folder: &Path, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            their_files(top, &path, all);
        } else if kind.is_file() {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap();
            all.insert(
                format!("/{name}"),
                corpus::sha256(&fs::read(&path).unwrap()),
            );
        }
    }
}
