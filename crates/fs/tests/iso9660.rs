//! Volumes made by `xorriso`, compared with the folders that they were made of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bandsaw_core::progress::Silent;
use bandsaw_fs::device::BlockDeviceExt;
use bandsaw_fs::iso9660::{self, IsoVolume};
use bandsaw_fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, LocalFile, NodeId, Open};
use bandsaw_testing::Random;
use tempfile::TempDir;

use crate::skip::without_program;

/// A name that only Rock Ridge and Joliet hold.
const LONG: &str = "a long name with spaces, \u{fc}nd umlauts.text";

/// Folders for a source and a volume.
struct Made {
    scratch: TempDir,
}

impl Made {
    /// Returns the folders if there is a program. `None`: the test is skipped.
    fn new(test: &str) -> Option<Self> {
        if Command::new("xorriso").arg("-version").output().is_err() {
            without_program(test, "no xorriso");
            return None;
        }
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(scratch.path().join("source")).unwrap();
        Some(Self { scratch })
    }

    fn source(&self) -> PathBuf {
        self.scratch.path().join("source")
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("volume.iso")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Writes a small tree of every kind of object.
    fn write_tree(&self) {
        let mut random = Random::new(9660);
        self.write("short.txt", b"short");
        self.write("empty", b"");
        self.write(LONG, &random.bytes(70_000));
        self.write("folder/inner/data.bin", &random.bytes(300_001));
        self.write("1/2/3/4/5/6/7/8/9/10/deep.txt", b"deep down");
        for number in 0..300 {
            self.write(&format!("many/{number:04}.txt"), &random.bytes(number));
        }
        symlink("folder/../short.txt", self.source().join("link")).unwrap();
        symlink("/absolute/target", self.source().join("elsewhere")).unwrap();
        let private = fs::Permissions::from_mode(0o4751);
        fs::set_permissions(self.source().join("short.txt"), private).unwrap();
    }

    /// Makes the volume with options of `xorriso` and of `mkisofs`.
    fn build(&self, native: &[&str], options: &[&str]) -> Arc<LocalFile> {
        let output = Command::new("xorriso")
            .args(native)
            .args(["-as", "mkisofs", "-quiet", "-V", "VOLUME_1"])
            .args(options)
            .arg("-o")
            .arg(self.image())
            .arg(self.source())
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {said}");
        Arc::new(LocalFile::open(self.image(), Open::Read).unwrap().unwrap())
    }
}

/// Returns all objects by their paths.
fn objects(volume: &IsoVolume) -> BTreeMap<String, Attributes> {
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

/// Returns all paths of a folder of the host.
fn paths(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            paths(&entry.path(), &path, found);
        }
        found.push(path);
    }
}

fn read(volume: &IsoVolume, node: NodeId) -> Vec<u8> {
    let device = volume.open(node, Fork::Data).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

/// Compares names and contents, and with Rock Ridge everything else.
fn compare(made: &Made, volume: &IsoVolume, has_rock_ridge: bool, what: &str) {
    let found = objects(volume);
    let mut expected = Vec::new();
    paths(&made.source(), "", &mut expected);
    expected.sort_unstable();
    if !has_rock_ridge {
        expected.retain(|path| !made.source().join(&path[1..]).is_symlink());
    }
    let names: Vec<_> = found.keys().cloned().collect();
    assert_eq!(names, expected, "{what}");
    for path in expected {
        let object = &found[&path];
        let host = made.source().join(&path[1..]);
        let meta = fs::symlink_metadata(&host).unwrap();
        assert_eq!(volume.resolve(&path).unwrap(), *object, "{what}: {path}");
        if meta.is_file() {
            assert!(
                read(volume, object.id) == fs::read(&host).unwrap(),
                "{what}: {path}"
            );
            assert_eq!(object.size, meta.len(), "{what}: {path}");
        } else if meta.is_symlink() {
            let target = fs::read_link(&host).unwrap();
            assert_eq!(
                volume.read_link(object.id).unwrap(),
                target.to_str().unwrap()
            );
        }
        assert_eq!(
            object.modified.unwrap().seconds,
            meta.mtime(),
            "{what}: {path}"
        );
        if has_rock_ridge {
            let mode = u32::from(object.mode);
            assert_eq!(mode, meta.mode() & 0o7777, "{what}: {path}");
            assert_eq!(
                (object.uid, object.gid),
                (meta.uid(), meta.gid()),
                "{what}: {path}"
            );
        }
    }
    let device = LocalFile::open(made.image(), Open::Read).unwrap().unwrap();
    let problems = iso9660::check(Arc::new(device), &Silent).unwrap();
    assert!(problems.is_empty(), "{what}: {problems:?}");
}

#[test]
fn volumes_of_xorriso_have_what_was_put_in() {
    let Some(made) = Made::new("volumes_of_xorriso_have_what_was_put_in") else {
        return;
    };
    made.write_tree();
    for (native, options, has_rock_ridge) in [
        (&[][..], &["-R"][..], true),
        (&[], &["-R", "-J", "-joliet-long"], true),
        (
            &[],
            &["-R", "-iso-level", "3", "-untranslated-filenames"],
            true,
        ),
        (
            &["-compliance", "deep_paths_off"],
            &["-R", "-rr_reloc_dir", "rr_moved"],
            true,
        ),
        (&[], &["--norock", "-J", "-joliet-long"], false),
    ] {
        let volume = IsoVolume::open(made.build(native, options)).unwrap();
        assert_eq!(volume.volume().name, "VOLUME_1");
        compare(&made, &volume, has_rock_ridge, &format!("{options:?}"));
    }
}

#[test]
fn plain_volumes_of_xorriso_have_short_names() {
    let Some(made) = Made::new("plain_volumes_of_xorriso_have_short_names") else {
        return;
    };
    made.write_tree();
    let volume = IsoVolume::open(made.build(&[], &["--norock"])).unwrap();
    let found = objects(&volume);
    for (path, name) in [
        ("/SHORT.TXT", "short.txt"),
        ("/EMPTY", "empty"),
        ("/FOLDER/INNER/DATA.BIN", "folder/inner/data.bin"),
        ("/MANY/0299.TXT", "many/0299.txt"),
    ] {
        let object = found.get(path);
        let object = object.unwrap_or_else(|| panic!("no {path} in {:?}", found.keys()));
        assert!(
            read(&volume, object.id) == fs::read(made.source().join(name)).unwrap(),
            "{path}"
        );
    }
    assert!(volume.lookup(volume.root(), "short.txt").unwrap().is_some());
    assert_eq!(
        iso9660::check(made.build(&[], &["--norock"]), &Silent)
            .unwrap()
            .len(),
        0
    );
}

#[test]
#[ignore = "full: writes a volume of 5 GiB"]
fn a_file_of_several_extents_is_whole() {
    let Some(made) = Made::new("a_file_of_several_extents_is_whole") else {
        return;
    };
    made.write("large", b"start");
    let large = fs::File::options()
        .write(true)
        .open(made.source().join("large"))
        .unwrap();
    let marks = [
        (0_u64, "start"),
        ((4 << 30) - 3, "across"),
        ((5 << 30) - 3, "end"),
    ];
    for (at, mark) in marks {
        large.write_all_at(mark.as_bytes(), at).unwrap();
    }
    let volume = IsoVolume::open(made.build(&[], &["-R", "-iso-level", "3"])).unwrap();
    let file = volume.resolve("/large").unwrap();
    assert_eq!(file.size, 5 << 30);
    let contents = volume.open(file.id, Fork::Data).unwrap();
    for (at, mark) in marks {
        assert_eq!(contents.read_vec(at, mark.len()).unwrap(), mark.as_bytes());
    }
}
