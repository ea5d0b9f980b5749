//! FAT and exFAT volumes, exchanged with the programs of Linux: theirs are read, ours are judged and read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bandsaw_core::problem::Severity;
use bandsaw_core::progress::Silent;
use bandsaw_fs::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_fs::exfat::{self, ExFatVolume};
use bandsaw_fs::fat::{self, FatVolume, build::Width};
use bandsaw_fs::source::{InMemory, SourceKind, SourceNode, Stream, Tree};
use bandsaw_fs::{
    FileKind, FileSystem, FileSystemExt, Fork, LocalFile, Open, Timestamp, VolumePlan,
};
use bandsaw_testing::Random;
use tempfile::TempDir;

use crate::skip::without_program;

/// A name that needs several parts.
pub(crate) const LONG: &str =
    "a long name with spaces, \u{fc}nd umlauts, of more than 26 units.text";

/// The contents of files by their paths; `None` for folders.
pub(crate) type Files = BTreeMap<String, Option<Vec<u8>>>;

/// Returns true, and skips the test, if one of the programs is missing.
pub(crate) fn lacks(test: &str, programs: &[&str]) -> bool {
    let missing = programs
        .iter()
        .find(|program| command(program).arg("--version").output().is_err());
    if let Some(program) = missing {
        without_program(test, &format!("no {program}"));
    }
    missing.is_some()
}

pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env(
            "PATH",
            "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
        )
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("MTOOLS_SKIP_CHECK", "1");
    command
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{errors}");
    said
}

pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns files of many kinds.
pub(crate) fn files() -> Files {
    let mut random = Random::new(12);
    let mut files = Files::new();
    let mut add = |path: &str, bytes| drop(files.insert(path.to_owned(), bytes));
    add("/SHORT.TXT", Some(b"short".to_vec()));
    add("/lower.txt", Some(random.bytes(600)));
    add("/Mixed.Txt", Some(random.bytes(513)));
    add("/empty", Some(Vec::new()));
    add(&format!("/{LONG}"), Some(random.bytes(70_001)));
    add("/folder", None);
    add("/folder/inner", None);
    add("/folder/inner/data.bin", Some(random.bytes(200_000)));
    add("/folder/bare", None);
    add("/many", None);
    for number in 0..40 {
        let path = format!("/many/file number {number:04}.txt");
        add(&path, Some(random.bytes(number * 30)));
    }
    files
}

/// Writes files into a folder of the host.
pub(crate) fn write(folder: &Path, files: &Files) {
    for (path, bytes) in files {
        let path = folder.join(&path[1..]);
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::create_dir_all(path).unwrap(),
        }
    }
}

/// Returns the files of a folder of the host.
pub(crate) fn read_folder(folder: &Path, prefix: &str, found: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            read_folder(&entry.path(), &path, found);
            found.insert(path, None);
        } else {
            found.insert(path, Some(fs::read(entry.path()).unwrap()));
        }
    }
}

/// Returns the files of a volume.
pub(crate) fn read_volume(volume: &dyn FileSystem) -> Files {
    let (mut found, mut ahead) = (Files::new(), vec![(String::new(), volume.root())]);
    while let Some((path, folder)) = ahead.pop() {
        for entry in volume.entries(folder).unwrap() {
            let path = format!("{path}/{}", entry.name);
            assert_eq!(volume.resolve(&path).unwrap(), entry.attributes);
            let bytes = match entry.attributes.kind {
                FileKind::Folder => {
                    ahead.push((path.clone(), entry.attributes.id));
                    None
                }
                _ => {
                    let file = volume.open(entry.attributes.id, Fork::Data).unwrap();
                    Some(file.read_vec(0, file.info().len as usize).unwrap())
                }
            };
            found.insert(path, bytes);
        }
    }
    found
}

pub(crate) fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(LocalFile::open(path, Open::Read).unwrap().unwrap())
}

/// Compares all names, then all contents.
pub(crate) fn compare(found: &Files, expected: &Files, what: &str) {
    let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{what}");
    for (path, bytes) in expected {
        assert!(found[path] == *bytes, "{what}: {path}");
    }
}

#[test]
fn volumes_of_mkfs_and_mtools_are_read() {
    if lacks(
        "volumes_of_mkfs_and_mtools_are_read",
        &["mkfs.fat", "mcopy"],
    ) {
        return;
    }
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let files = files();
    write(&source, &files);
    let top = || {
        fs::read_dir(&source)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    for (width, per_cluster, mib) in [
        (12, 1, 1),
        (12, 8, 4),
        (12, 64, 16),
        (16, 1, 8),
        (16, 4, 16),
        (16, 32, 100),
        (32, 1, 40),
        (32, 8, 300),
    ] {
        let what = format!("FAT{width}, {per_cluster} sectors");
        let image = scratch.path().join("volume.img");
        let file = fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        run(command("mkfs.fat")
            .args([
                "-F",
                &width.to_string(),
                "-s",
                &per_cluster.to_string(),
                "-n",
                "VOLUME 1",
            ])
            .arg(&image));
        run(command("mcopy")
            .args(["-s", "-m", "-Q", "-i"])
            .arg(&image)
            .args(top())
            .arg("::/"));
        let volume = FatVolume::open(device(&image)).unwrap();
        compare(&read_volume(&volume), &files, &what);
        let info = volume.volume();
        assert_eq!(
            (&*info.name, info.format),
            ("VOLUME 1", &*format!("FAT{width}"))
        );
        let problems = fat::check(device(&image), &Silent).unwrap();
        let worst = problems.iter().map(|problem| problem.severity).max();
        assert!(worst <= Some(Severity::Warning), "{what}: {problems:?}");
        assert!(problems.len() <= 1, "{what}: {problems:?}");
        let host = fs::metadata(source.join("SHORT.TXT")).unwrap();
        let modified = Timestamp::from(host.modified().unwrap());
        let found = volume.resolve("/short.txt").unwrap().modified.unwrap();
        assert!((modified.seconds - found.seconds).abs() <= 2, "{what}");
        // A file in pieces: every other small file is removed, and a large one takes their clusters.
        for number in (0..40).step_by(2) {
            let path = format!("::/many/file number {number:04}.txt");
            run(command("mdel").arg("-i").arg(&image).arg(path));
        }
        let large = Random::new(99).bytes(300_000);
        fs::write(scratch.path().join("large"), &large).unwrap();
        run(command("mcopy")
            .arg("-i")
            .arg(&image)
            .arg(scratch.path().join("large"))
            .arg("::/"));
        let volume = FatVolume::open(device(&image)).unwrap();
        let found = read_volume(&volume);
        assert!(found["/large"].as_ref() == Some(&large), "{what}");
        assert_eq!(found.len(), files.len() - 20 + 1, "{what}");
    }
}

fn tree(files: &Files) -> Tree {
    let mut tree = Tree::empty(MOMENT);
    tree.contents = Box::new(InMemory);
    let mut folders = BTreeMap::from([("", 0)]);
    for (path, bytes) in files {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let kind = match bytes {
            Some(bytes) => SourceKind::File(Stream::Bytes(bytes.clone().into())),
            None => {
                folders.insert(path, tree.nodes.len() as u32);
                SourceKind::Folder
            }
        };
        let node = SourceNode::made(folders[parent], name, kind, 0o644, MOMENT);
        tree.nodes.push(node);
    }
    tree
}

const MOMENT: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// Writes a volume to a file.
pub(crate) fn build(plan: &dyn VolumePlan, len: usize, path: &Path) {
    let disk = Memory::zeros(len);
    plan.build(&disk, &Silent).unwrap();
    fs::write(path, disk.to_vec()).unwrap();
}

pub(crate) fn fat_plan(
    files: &Files,
    width: Width,
    block_size: Option<u32>,
) -> fat::build::FatPlan {
    let options = fat::build::FatOptions {
        name: "Volume 1".into(),
        width: Some(width),
        block_size,
        created: MOMENT,
        latest: None,
        serial: 0x1234_ABCD,
    };
    fat::build::FatPlan::new(tree(files), options).unwrap()
}

pub(crate) fn exfat_plan(files: &Files, block_size: Option<u32>) -> exfat::build::ExFatPlan {
    let options = exfat::build::ExFatOptions {
        name: "Volume \u{fc}".into(),
        block_size,
        created: MOMENT,
        latest: None,
        serial: 0x1234_ABCD,
    };
    exfat::build::ExFatPlan::new(tree(files), options).unwrap()
}

/// Copies all files with the Sleuth Kit, and compares them.
pub(crate) fn compare_with_sleuth_kit(image: &Path, kind: &str, files: &Files, what: &str) {
    let listed = run(command("fls").args(["-r", "-p", "-f", kind]).arg(image));
    let mut found = Files::new();
    // Folders that were deleted or moved are listed with what their clusters hold now.
    let mut deleted = None;
    for line in listed.lines() {
        let (head, path) = line.split_once('\t').unwrap();
        let number = head.rsplit(' ').next().unwrap().trim_end_matches(':');
        let path = format!("/{path}");
        if deleted
            .as_ref()
            .is_some_and(|folder| path.starts_with(folder))
        {
            continue;
        }
        deleted = (head.contains('*') && head.starts_with("d/")).then(|| format!("{path}/"));
        if head.contains('*')
            || path.starts_with("/$")
            || head.starts_with("v/")
            || path.contains("(Volume Label Entry)")
        {
            continue;
        }
        if head.starts_with("d/") {
            found.insert(path, None);
            continue;
        }
        let output = command("icat")
            .args(["-f", kind])
            .arg(image)
            .arg(number)
            .output()
            .unwrap();
        assert!(output.status.success(), "{what}: {path}");
        found.insert(path, Some(output.stdout));
    }
    compare(&found, files, what);
}

#[test]
fn fat_volumes_of_ours_are_sound_for_others() {
    let test = "fat_volumes_of_ours_are_sound_for_others";
    if lacks(test, &["fsck.fat", "mcopy", "fls"]) {
        return;
    }
    let scratch = scratch();
    let files = files();
    let image = scratch.path().join("volume.img");
    for (width, block_size, mib) in [
        (Width::Fat12, None, 2),
        (Width::Fat12, Some(8192), 8),
        (Width::Fat16, None, 8),
        (Width::Fat16, Some(4096), 24),
        (Width::Fat32, None, 40),
        (Width::Fat32, Some(2048), 160),
    ] {
        let what = format!("{width:?} {block_size:?}");
        build(&fat_plan(&files, width, block_size), mib << 20, &image);
        run(command("fsck.fat").args(["-n", "-v"]).arg(&image));
        let volume = FatVolume::open(device(&image)).unwrap();
        compare(&read_volume(&volume), &files, &what);
        let copied = scratch.path().join("copied");
        fs::create_dir(&copied).unwrap();
        run(command("mcopy")
            .args(["-s", "-n", "-m", "-i"])
            .arg(&image)
            .arg("::/*")
            .arg(&copied));
        let mut found = Files::new();
        read_folder(&copied, "", &mut found);
        compare(&found, &files, &format!("mcopy: {what}"));
        let label = run(command("mlabel").args(["-s", "-i"]).arg(&image).arg("::"));
        assert!(label.contains("VOLUME 1"), "{label}");
        fs::remove_dir_all(&copied).unwrap();
        compare_with_sleuth_kit(&image, "fat", &files, &format!("fls: {what}"));
        if command("7zz").output().is_ok() {
            let out = format!("-o{}", copied.display());
            run(command("7zz").args(["x", "-y", &out]).arg(&image));
            let mut found = Files::new();
            read_folder(&copied, "", &mut found);
            compare(&found, &files, &format!("7zz: {what}"));
            fs::remove_dir_all(&copied).unwrap();
        }
    }
}

#[test]
fn exfat_volumes_of_ours_are_sound_for_others() {
    let test = "exfat_volumes_of_ours_are_sound_for_others";
    if lacks(test, &["fsck.exfat", "fls"]) {
        return;
    }
    let scratch = scratch();
    let files = files();
    let image = scratch.path().join("volume.img");
    for (block_size, mib) in [
        (None, 4),
        (Some(512), 2),
        (Some(32768), 300),
        (Some(1 << 20), 200),
    ] {
        let what = format!("{block_size:?}");
        build(&exfat_plan(&files, block_size), mib << 20, &image);
        run(command("fsck.exfat").arg("-n").arg(&image));
        let volume = ExFatVolume::open(device(&image)).unwrap();
        compare(&read_volume(&volume), &files, &what);
        compare_with_sleuth_kit(&image, "exfat", &files, &format!("fls: {what}"));
    }
}

#[test]
fn empty_volumes_are_sound() {
    let test = "empty_volumes_are_sound";
    if lacks(test, &["fsck.fat", "mkfs.exfat", "fsck.exfat"]) {
        return;
    }
    let scratch = scratch();
    let image: PathBuf = scratch.path().join("volume.img");
    let none = Files::new();
    for (width, mib) in [(Width::Fat12, 1), (Width::Fat16, 5), (Width::Fat32, 34)] {
        build(&fat_plan(&none, width, None), mib << 20, &image);
        run(command("fsck.fat").arg("-n").arg(&image));
    }
    build(&exfat_plan(&none, None), 1 << 20, &image);
    run(command("fsck.exfat").arg("-n").arg(&image));
    // One of theirs, and the two names of its type.
    for (kib, per_cluster) in [(4096, 8), (65536, 1), (300_000, 64)] {
        let file = fs::File::create(&image).unwrap();
        file.set_len(kib << 10).unwrap();
        run(command("mkfs.exfat")
            .args(["-L", "Theirs", "-c", &format!("{}", per_cluster * 512)])
            .arg(&image));
        let volume = ExFatVolume::open(device(&image)).unwrap();
        assert!(volume.entries(volume.root()).unwrap().is_empty());
        assert_eq!(volume.volume().name, "Theirs");
        assert_eq!(exfat::check(device(&image), &Silent).unwrap().len(), 0);
    }
}
