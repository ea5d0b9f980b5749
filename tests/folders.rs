//! Folders of the host imported to volumes and exported.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bandsaw::device::{AfterDiscard, BlockDevice, Memory};
use bandsaw::fs::hfsplus::HfsPlus;
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemExt, Timestamp};
use bandsaw::ops::export::{self, Exported, to_folder};
use bandsaw::ops::import::{self, FolderOptions};
use bandsaw::progress::{Progress, Silent};
use bandsaw::store::{LocalFile, Open};
use bandsaw::{Error, Kind};

use crate::common::make_fifo;

/// Returns a scratch folder on the disk of the build, where attributes are supported.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options() -> Options {
    Options {
        name: "Volume".into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 42,
    }
}

fn volume(tree: Tree) -> Result<HfsPlus, Error> {
    let plan = Plan::new(tree, options())?;
    let device = Arc::new(Memory::zeros(plan.minimum_len()?.try_into().unwrap()));
    plan.build(&*device, &Silent)?;
    HfsPlus::open(device)
}

fn import(folder: &Path) -> Result<Tree, Error> {
    import::folder(folder, &FolderOptions::default(), &Silent)
}

fn extract(volume: &HfsPlus, target: &Path) -> Exported {
    let options = export::FolderOptions {
        special_files: true,
        setuid: true,
        ..Default::default()
    };
    to_folder(volume, "/", target, &options, &Silent).unwrap()
}

/// Returns all metadata of everything below a folder, by path.
fn survey(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let contents = match meta.file_type() {
            kind if kind.is_dir() => {
                ahead.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                String::new()
            }
            kind if kind.is_symlink() => format!("-> {}", fs::read_link(&path).unwrap().display()),
            kind if kind.is_file() => format!("{:?}", fs::read(&path).unwrap()),
            _ => format!("device {}", meta.rdev()),
        };
        // The link count of a folder depends on the file system.
        let links = if meta.is_dir() { 1 } else { meta.nlink() };
        let facts = format!(
            "{:o} {}:{} x{} {} {:?} {contents}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            links,
            meta.mtime(),
            xattrs(&path, meta.is_symlink()),
        );
        all.insert(path.strip_prefix(folder).unwrap().to_owned(), facts);
    }
    all
}

fn xattrs(path: &Path, symlink: bool) -> BTreeMap<String, Vec<u8>> {
    if symlink {
        return BTreeMap::new();
    }
    let mut list = vec![0; 65536];
    let len = rustix::fs::listxattr(path, &mut list[..]).unwrap();
    let names = list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 65536];
        let len = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
        (
            String::from_utf8(name.to_vec()).unwrap(),
            value[..len].to_vec(),
        )
    };
    names.map(value).collect()
}

/// Sets an attribute; returns false, with a message on stderr, if the file system of `path` does
/// not support it.
fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    match rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()) {
        Ok(()) => true,
        Err(error) => {
            crate::common::skip::skip(
                &format!("{name} of {} bytes", value.len()),
                &format!("the file system refuses it: {error}"),
            );
            false
        }
    }
}

fn date(path: &Path, seconds: u64) {
    let when = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path)
        .unwrap()
        .set_times(fs::FileTimes::new().set_modified(when).set_accessed(when))
        .unwrap();
}

/// Fills a folder with objects of every kind.
fn varied(folder: &Path) {
    fs::create_dir_all(folder.join("a/b/c")).unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::write(
        folder.join("a/large"),
        (0..3_000_000)
            .map(|at| (at % 251) as u8)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    fs::write(folder.join("a/b/nothing"), b"").unwrap();
    for len in [1, 4095, 4096, 4097] {
        fs::write(folder.join(format!("a/b/{len}")), vec![len as u8; len]).unwrap();
    }
    fs::write(folder.join("a/with:colon"), b"colon").unwrap();
    fs::hard_link(folder.join("a/large"), folder.join("a/b/c/again")).unwrap();
    fs::hard_link(folder.join("a/large"), folder.join("once more")).unwrap();
    symlink("../../nowhere/at all", folder.join("a/link")).unwrap();
    symlink("large", folder.join("a/b/ link ")).unwrap();
    make_fifo(&folder.join("fifo"), 0o620);
    fs::set_permissions(folder.join("a/b/4096"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(folder.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    set_xattr(
        &folder.join("a/large"),
        "user.note",
        b"text\0with\nevery\xFFthing",
    );
    set_xattr(&folder.join("a/b"), "user.on a folder", b"");
    set_xattr(
        &folder.join("a/b/4095"),
        "user.com.apple.ResourceFork",
        &[7; 1500],
    );
    set_xattr(
        &folder.join("a/b/4095"),
        "user.com.apple.FinderInfo",
        b"TEXTttxt\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0",
    );
    date(&folder.join("a/b/1"), 1_111_111_111);
    for folder in [
        folder.join("a/b/c"),
        folder.join("a/b"),
        folder.join("empty"),
        folder.join("a"),
    ] {
        date(&folder, 1_222_222_222);
    }
}

#[test]
fn a_folder_survives_the_round_trip() {
    let scratch = scratch();
    let (source, target) = (scratch.path().join("source"), scratch.path().join("target"));
    fs::create_dir(&source).unwrap();
    varied(&source);
    let volume = volume(import(&source).unwrap()).unwrap();
    let report = extract(&volume, &target);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!((report.files, report.folders, report.symlinks), (10, 4, 2));
    let (mut before, mut after) = (survey(&source), survey(&target));
    // The date of the top folder changed when its contents were created.
    for survey in [&mut before, &mut after] {
        assert!(survey.remove(Path::new("")).is_some());
    }
    assert_eq!(before, after);
}

#[test]
fn the_tree_does_not_depend_on_the_order_of_the_host() {
    let scratch = scratch();
    let made = |name: &str, order: &mut dyn Iterator<Item = u32>| {
        let folder = scratch.path().join(name);
        fs::create_dir(&folder).unwrap();
        for number in order {
            let inside = folder.join(format!("folder {}", number % 10));
            let _ = fs::create_dir(&inside);
            fs::write(inside.join(format!("file {number}")), number.to_string()).unwrap();
        }
        let tree = import(&folder).unwrap();
        tree.nodes
            .iter()
            .map(|node| (node.parent, node.name.to_string()))
            .collect::<Vec<_>>()
    };
    let forward = made("forward", &mut (0..500));
    assert_eq!(forward, made("backward", &mut (0..500).rev()));
    assert_eq!(forward.len(), 511);
}

#[test]
fn a_folder_deeper_than_any_path() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    // 100 names of 200 bytes exceed the maximum path length five times.
    let name = "n".repeat(200);
    let mut at = rustix::fs::open(
        &source,
        rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..100 {
        rustix::fs::mkdirat(&at, &*name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(
            &at,
            &*name,
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let bottom = rustix::fs::openat(&at, "bottom", flags, rustix::fs::Mode::RUSR).unwrap();
    File::from(bottom).write_all(b"deep").unwrap();
    let tree = import(&source).unwrap();
    assert_eq!(tree.nodes.len(), 102);
    let volume = volume(tree).unwrap();
    let report = extract(&volume, &scratch.path().join("target"));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let again = import(&scratch.path().join("target")).unwrap();
    assert_eq!(again.nodes.len(), 102);
    assert_eq!(
        again.nodes[101].kind,
        SourceKind::File(Stream::Extern {
            node: 101,
            offset: 0,
            len: 4
        })
    );
}

#[test]
fn holes_are_not_read_and_not_written() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let len = 5_000_000_000;
    let file = File::create(source.join("sparse")).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(b"middle", 3_000_000_000).unwrap();
    file.write_all_at(b"end", len - 3).unwrap();
    let plan = Plan::new(import(&source).unwrap(), options()).unwrap();
    let image = scratch.path().join("image");
    let device = LocalFile::open(&image, Open::CreateNew).unwrap().unwrap();
    device
        .set_len(plan.minimum_len().unwrap(), AfterDiscard::Zeros)
        .unwrap();
    plan.build(&device, &Silent).unwrap();
    assert!(
        fs::metadata(&image).unwrap().blocks() * 512 < 16 << 20,
        "the image is sparse too"
    );
    let volume = HfsPlus::open(Arc::new(device)).unwrap();
    extract(&volume, &scratch.path().join("target"));
    let out = File::open(scratch.path().join("target/sparse")).unwrap();
    assert_eq!(out.metadata().unwrap().len(), len);
    assert!(out.metadata().unwrap().blocks() * 512 < 16 << 20);
    let mut bytes = [0; 6];
    out.read_exact_at(&mut bytes, 3_000_000_000).unwrap();
    assert_eq!(&bytes, b"middle");
    out.read_exact_at(&mut bytes[..3], len - 3).unwrap();
    assert_eq!(&bytes[..3], b"end");
}

#[test]
fn a_file_that_changes_is_an_error_that_names_it() {
    let scratch = scratch();
    let path = scratch.path().join("inside");
    type Change = fn(&Path);
    let changes: [(&str, Change); 5] = [
        ("longer", |path| {
            File::options()
                .append(true)
                .open(path)
                .unwrap()
                .write_all(b"more")
                .unwrap()
        }),
        ("shorter", |path| {
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(10)
                .unwrap()
        }),
        ("same length", |path| {
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .write_all_at(b"x", 0)
                .unwrap();
            date(path, 1);
        }),
        ("replaced", |path| {
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            fs::write(path.with_extension("new"), [2; 5000]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
            File::open(path).unwrap().set_modified(modified).unwrap();
        }),
        ("vanished", |path| fs::remove_file(path).unwrap()),
    ];
    for (what, change) in changes {
        fs::write(&path, [1; 5000]).unwrap();
        let plan = Plan::new(import(scratch.path()).unwrap(), options()).unwrap();
        change(&path);
        let device = Memory::zeros(plan.minimum_len().unwrap().try_into().unwrap());
        let error = plan.build(&device, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{what}: {error}");
        assert!(error.to_string().contains("inside"), "{what}: {error}");
    }
}

#[test]
fn names_that_no_volume_can_hold_are_refused() {
    let scratch = scratch();
    let refused = |path: &Path| import(path).map(drop).unwrap_err();
    let bad = scratch.path().join("bad");
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join(OsStr::from_bytes(b"not \xFF UTF-8")), b"").unwrap();
    let error = refused(&bad);
    assert!(
        error.kind() == Kind::Unsupported && error.to_string().contains("not \u{FFFD} UTF-8"),
        "{error}"
    );
    let link = scratch.path().join("link");
    fs::create_dir(&link).unwrap();
    symlink(OsStr::from_bytes(b"\xFF"), link.join("symlink")).unwrap();
    let error = refused(&link);
    assert!(
        error.kind() == Kind::Unsupported && error.to_string().contains("symlink"),
        "{error}"
    );
    assert_eq!(
        refused(&bad.join("nowhere")).io_kind(),
        Some(std::io::ErrorKind::NotFound)
    );
    fs::write(scratch.path().join("file"), b"").unwrap();
    assert_eq!(refused(&scratch.path().join("file")).kind(), Kind::Invalid);
}

#[test]
fn the_image_being_made_is_left_out() {
    let scratch = scratch();
    fs::create_dir(scratch.path().join("folder")).unwrap();
    for name in ["image.dmg", "folder/image.dmg", "other"] {
        fs::write(scratch.path().join(name), name).unwrap();
    }
    let options = FolderOptions {
        leave_out: vec![
            scratch.path().join("image.dmg"),
            scratch.path().join("not there"),
        ],
    };
    let tree = import::folder(scratch.path(), &options, &Silent).unwrap();
    let names: Vec<&str> = tree.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["", "folder", "other", "image.dmg"]);
}

#[test]
fn nothing_that_exists_is_changed_unless_asked() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("folder")).unwrap();
    fs::write(source.join("folder/file"), b"new").unwrap();
    fs::write(source.join("other"), b"new").unwrap();
    let volume = volume(import(&source).unwrap()).unwrap();

    let target = scratch.path().join("target");
    fs::create_dir_all(target.join("folder")).unwrap();
    fs::write(target.join("folder/file"), b"old").unwrap();
    fs::write(target.join("folder/stays"), b"old").unwrap();
    let report = extract(&volume, &target);
    assert_eq!(report.problem_count, 1);
    assert_eq!(report.problems[0].kind(), Kind::Conflict);
    assert!(
        report.problems[0].to_string().contains("/folder/file"),
        "{}",
        report.problems[0]
    );
    assert_eq!(fs::read(target.join("folder/file")).unwrap(), b"old");
    assert_eq!(fs::read(target.join("other")).unwrap(), b"new");

    let overwrite = export::FolderOptions {
        overwrite: true,
        ..Default::default()
    };
    let report = to_folder(&volume, "/", &target, &overwrite, &Silent).unwrap();
    assert_eq!(report.problem_count, 0);
    assert_eq!(fs::read(target.join("folder/file")).unwrap(), b"new");
    assert_eq!(fs::read(target.join("folder/stays")).unwrap(), b"old");
}

#[test]
fn one_file_and_one_folder_can_be_had_alone() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/file"), b"contents").unwrap();
    let volume = volume(import(&source).unwrap()).unwrap();
    let options = export::FolderOptions::default();
    let one = scratch.path().join("one");
    to_folder(&volume, "/a/b/file", &one, &options, &Silent).unwrap();
    assert_eq!(fs::read(one.join("file")).unwrap(), b"contents");
    let some = scratch.path().join("some");
    to_folder(&volume, "a", &some, &options, &Silent).unwrap();
    assert_eq!(fs::read(some.join("b/file")).unwrap(), b"contents");
    let error = to_folder(&volume, "/nowhere", &some, &options, &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

fn node(parent: u32, name: &str, kind: SourceKind) -> SourceNode {
    let root = Tree::empty(Timestamp::from_seconds(1_700_000_000))
        .nodes
        .remove(0);
    SourceNode {
        parent,
        name: name.into(),
        kind,
        ..root
    }
}

#[test]
fn hostile_volumes_do_not_leave_the_target() {
    let scratch = scratch();
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = scratch.path().join("target");
    fs::create_dir(&target).unwrap();

    // A link to a path outside, and a folder of the same name.
    let file = |text: &str| SourceKind::File(Stream::Bytes(text.as_bytes().into()));
    let mut tree = Tree::empty(Timestamp::from_seconds(0));
    tree.nodes.push(node(0, "link", SourceKind::Folder));
    tree.nodes.push(node(1, "file", file("stray")));
    tree.nodes.push(node(0, "..", SourceKind::Folder));
    tree.nodes.push(node(3, "escaped", file("stray")));
    tree.nodes.push(node(0, ".", file("stray")));
    tree.nodes.push(node(0, ":", file("a slash on disk")));
    let volume = volume(tree).unwrap();
    symlink(&outside, target.join("link")).unwrap();
    for overwrite in [false, true] {
        let options = export::FolderOptions {
            overwrite,
            ..Default::default()
        };
        let report = to_folder(&volume, "/", &target, &options, &Silent).unwrap();
        assert!(report.problem_count >= 3, "{:?}", report.problems);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!scratch.path().join("escaped").exists());
        assert_eq!(fs::read(target.join(":")).unwrap(), b"a slash on disk");
    }
}

#[test]
fn attributes_that_the_host_cannot_store_are_reported() {
    let scratch = scratch();
    let mut tree = Tree::empty(Timestamp::from_seconds(0));
    let mut file = node(
        0,
        "file",
        SourceKind::File(Stream::Bytes(b"contents".as_slice().into())),
    );
    file.xattrs.push((
        "com.apple.ResourceFork".into(),
        Stream::Bytes(vec![1; 100_000].into()),
    ));
    tree.nodes.push(file);
    // 100 characters of three bytes exceed Linux's limit of 255 bytes.
    tree.nodes
        .push(node(0, &"界".repeat(100), SourceKind::Folder));
    tree.nodes.push(node(2, "inside", SourceKind::Folder));
    let volume = volume(tree).unwrap();
    let report = extract(&volume, &scratch.path().join("target"));
    assert_eq!(
        fs::read(scratch.path().join("target/file")).unwrap(),
        b"contents"
    );
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    if cfg!(target_os = "linux") {
        assert!(
            problems
                .iter()
                .any(|text| text.contains("/file") && text.contains("ResourceFork")),
            "{problems:?}"
        );
        assert!(
            problems.iter().any(|text| text.contains("界")),
            "{problems:?}"
        );
    }
}

/// Cancels after a number of checks.
struct StopAfter(std::sync::atomic::AtomicU64);

impl Progress for StopAfter {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0
    }
}

#[test]
fn everything_can_be_stopped() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    for folder in 0..20 {
        fs::create_dir_all(source.join(folder.to_string())).unwrap();
        fs::write(source.join(folder.to_string()).join("file"), [1; 5000]).unwrap();
    }
    let stop = || StopAfter(5.into());
    let stopped = |error: Error| assert_eq!(error.kind(), Kind::Cancelled);
    stopped(
        import::folder(&source, &FolderOptions::default(), &stop())
            .map(drop)
            .unwrap_err(),
    );
    let plan = Plan::new(import(&source).unwrap(), options()).unwrap();
    let device = Memory::zeros(plan.minimum_len().unwrap().try_into().unwrap());
    stopped(plan.build(&device, &stop()).unwrap_err());
    let volume = volume(import(&source).unwrap()).unwrap();
    let target = scratch.path().join("target");
    stopped(
        to_folder(
            &volume,
            "/",
            &target,
            &export::FolderOptions::default(),
            &stop(),
        )
        .unwrap_err(),
    );
    assert!(volume.resolve("/3/file").is_ok() && volume.volume().clean);
}
