//! Volumes made by `mkudffs`, `wrudf` and `genisoimage`, compared with what was put in.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bandsaw_core::progress::Silent;
use bandsaw_fs::device::{BlockDevice, BlockDeviceExt};
use bandsaw_fs::udf::{self, UdfVolume};
use bandsaw_fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, LocalFile, NodeId, Open};
use bandsaw_testing::Random;
use tempfile::TempDir;

use crate::skip::without_program;

/// Returns the path of a program, which may be for administrators only.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns a scratch folder if there are all programs. `None`: the test is skipped.
fn scratch(test: &str, programs: &[&str]) -> Option<TempDir> {
    for name in programs {
        if program(name).is_none() {
            without_program(test, &format!("no {name}"));
            return None;
        }
    }
    Some(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
}

/// Runs a program with what it reads.
fn run(command: &mut Command, input: &str) -> String {
    let mut child = command
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Makes a volume of a number of blocks with options of `mkudffs`.
fn mkudffs(image: &Path, options: &[&str], blocks: u32) {
    let _ = fs::remove_file(image);
    let mut command = Command::new(program("mkudffs").unwrap());
    command
        .args(["--utf8", "--new-file", "--label=Disc \u{fc}\u{20ac}"])
        .args(options)
        .arg(image)
        .arg(blocks.to_string());
    run(&mut command, "");
}

fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(LocalFile::open(image, Open::Read).unwrap().unwrap())
}

/// Returns all objects by their paths.
fn objects(volume: &UdfVolume) -> BTreeMap<String, Attributes> {
    let (mut found, mut ahead) = (BTreeMap::new(), vec![(String::new(), volume.root())]);
    while let Some((path, folder)) = ahead.pop() {
        for entry in volume.entries(folder).unwrap() {
            let path = format!("{path}/{}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                ahead.push((path.clone(), entry.attributes.id));
            }
            assert!(found.insert(path, entry.attributes).is_none());
        }
    }
    found
}

fn read(volume: &UdfVolume, node: NodeId) -> Vec<u8> {
    let device = volume.open(node, Fork::Data).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

#[test]
fn volumes_of_mkudffs_are_read() {
    let test = "volumes_of_mkudffs_are_read";
    let Some(scratch) = scratch(test, &["mkudffs"]) else {
        return;
    };
    let image = scratch.path().join("volume.udf");
    let kinds: [(&[&str], u32); 15] = [
        (
            &["--media-type=hd", "--udfrev=2.01", "--blocksize=512"],
            20_000,
        ),
        (
            &["--media-type=hd", "--udfrev=1.02", "--blocksize=1024"],
            4000,
        ),
        (
            &["--media-type=hd", "--udfrev=2.01", "--blocksize=4096"],
            1000,
        ),
        (&["--media-type=hd", "--blocksize=32768"], 600),
        (
            &["--media-type=dvd", "--udfrev=1.02", "--space=unalloctable"],
            2000,
        ),
        (
            &[
                "--media-type=hd",
                "--udfrev=1.50",
                "--space=freedbitmap",
                "--blocksize=2048",
            ],
            2000,
        ),
        (&["--media-type=hd", "--blocksize=2048", "--ad=short"], 2000),
        (
            &[
                "--media-type=hd",
                "--blocksize=2048",
                "--ad=long",
                "--noefe",
            ],
            2000,
        ),
        (
            &["--media-type=hd", "--blocksize=2048", "--strategy=4096"],
            2000,
        ),
        (&["--media-type=worm", "--udfrev=1.02"], 2000),
        (&["--media-type=cdrw", "--udfrev=1.50"], 6000),
        (&["--media-type=dvdrw", "--udfrev=2.01"], 6000),
        (&["--media-type=cdr", "--udfrev=1.50", "--vat"], 2000),
        (
            &["--media-type=cdr", "--udfrev=2.01", "--vat", "--closed"],
            2000,
        ),
        (&["--media-type=bdr", "--udfrev=2.60", "--vat"], 2000),
    ];
    for (options, blocks) in kinds {
        mkudffs(&image, options, blocks);
        let device = device(&image);
        assert!(udf::is_recognized(&*device).unwrap(), "{options:?}");
        let volume =
            UdfVolume::open(device.clone()).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let info = volume.volume();
        assert_eq!(info.name, "Disc \u{fc}\u{20ac}", "{options:?}");
        assert_eq!(info.folders, 1, "{options:?}");
        assert!(info.clean, "{options:?}");
        let root = volume.attributes(volume.root()).unwrap();
        assert_eq!(
            (root.mode, root.uid, root.size),
            (0o755, 0, 0),
            "{options:?}"
        );
        assert!(objects(&volume).is_empty(), "{options:?}");
        let problems = udf::check(device, &Silent).unwrap();
        assert!(problems.is_empty(), "{options:?}: {problems:?}");
    }
}

#[test]
fn files_of_wrudf_are_read() {
    let test = "files_of_wrudf_are_read";
    let Some(scratch) = scratch(test, &["mkudffs", "wrudf"]) else {
        return;
    };
    let image = scratch.path().join("volume.udf");
    let mut random = Random::new(167);
    let files = [
        ("short", b"short".to_vec()),
        ("large", random.bytes(300_001)),
    ];
    for (name, bytes) in &files {
        fs::write(scratch.path().join(name), bytes).unwrap();
    }
    // It does not write the other kinds of volumes in files.
    mkudffs(&image, &["--media-type=cdrw", "--udfrev=1.50"], 6000);
    let mut command = Command::new(program("wrudf").unwrap());
    command.arg(&image).current_dir(scratch.path());
    let said = run(
        &mut command,
        "y\ncp short .\ncp large .\nmkdir folder\ncp short folder\nquit\n",
    );
    let volume = UdfVolume::open(device(&image)).unwrap();
    let found = objects(&volume);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["/folder", "/folder/short", "/large", "/short"],
        "{said}"
    );
    for (path, bytes) in [
        ("/short", &files[0].1),
        ("/large", &files[1].1),
        ("/folder/short", &files[0].1),
    ] {
        assert!(read(&volume, found[path].id) == *bytes, "{path}");
    }
    // It does not count all blocks that it allocates.
    let mut problems = udf::check(device(&image), &Silent).unwrap();
    problems.retain(|problem| {
        !problem
            .error
            .message()
            .contains("integrity descriptor counts")
    });
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn bridge_discs_of_genisoimage_are_read() {
    let test = "bridge_discs_of_genisoimage_are_read";
    let Some(scratch) = scratch(test, &["genisoimage"]) else {
        return;
    };
    let mut random = Random::new(13_346);
    let mut files = BTreeMap::from([
        ("short.txt".to_owned(), b"short".to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("\u{fc}nd \u{20ac}.text".to_owned(), random.bytes(70_000)),
        ("folder/inner/data.bin".to_owned(), random.bytes(300_001)),
    ]);
    for number in 0..300 {
        files.insert(format!("many/{number:04}.txt"), random.bytes(number));
    }
    let source = scratch.path().join("source");
    for (path, bytes) in &files {
        let path = source.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let image = scratch.path().join("bridge.iso");
    // With Joliet the identifiers of UDF begin one sector further.
    for options in [&["-udf", "-R"][..], &["-udf", "-R", "-J", "-joliet-long"]] {
        let mut command = Command::new(program("genisoimage").unwrap());
        command
            .args(["-quiet", "-V", "VOLUME_1", "-input-charset", "utf-8"])
            .args(options)
            .arg("-o")
            .args([&image, &source]);
        run(&mut command, "");
        let device = device(&image);
        assert!(udf::is_recognized(&*device).unwrap(), "{options:?}");
        let volume = UdfVolume::open(device.clone()).unwrap();
        let info = volume.volume();
        assert_eq!((&*info.name, info.files), ("VOLUME_1", files.len() as u64));
        let found = objects(&volume);
        assert_eq!(
            found.len(),
            files.len() + 3,
            "{options:?}: {:?}",
            found.keys()
        );
        for (path, bytes) in &files {
            let object = &found[&format!("/{path}")];
            assert!(read(&volume, object.id) == *bytes, "{options:?}: {path}");
            let host = fs::metadata(source.join(path)).unwrap().modified().unwrap();
            let host = host
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs();
            assert_eq!(object.modified.unwrap().seconds, host as i64, "{path}");
        }
        let problems = udf::check(device, &Silent).unwrap();
        assert!(problems.is_empty(), "{options:?}: {problems:?}");
    }
}
