//! Import and export of tar archives, including those made by GNU tar.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::archives_made_here::Archive;
use bandsaw::Error;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::hfsplus::HfsPlus;
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, Timestamp, UF_HIDDEN};
use bandsaw::ops::export::to_tar;
use bandsaw::ops::import;
use bandsaw::progress::Silent;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn volume(tree: Tree) -> Result<HfsPlus, Error> {
    let options = Options {
        name: "Volume".into(),
        case_sensitive: true,
        journaled: false,
        block_size: None,
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 42,
    };
    let plan = Plan::new(tree, options)?;
    let device = Arc::new(Memory::zeros(plan.minimum_len()?.try_into().unwrap()));
    plan.build(&*device, &Silent)?;
    HfsPlus::open(device)
}

pub(crate) fn import(archive: &[u8]) -> Result<Tree, Error> {
    import::tar_stream(&mut &archive[..], scratch().path(), &Silent)
}

/// Everything about a path that an archive preserves.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct Seen {
    pub(crate) attributes: Attributes,
    pub(crate) contents: Vec<u8>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    /// First path of the same file.
    pub(crate) first: String,
}

pub(crate) fn read(volume: &HfsPlus) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![(String::new(), volume.attributes(volume.root()).unwrap())];
    let whole = |device: Arc<dyn BlockDevice>| {
        device
            .read_vec(0, device.info().len.try_into().unwrap())
            .unwrap()
    };
    while let Some((path, attributes)) = ahead.pop() {
        let contents = match attributes.kind {
            FileKind::File => whole(volume.open(attributes.id, Fork::Data).unwrap()),
            FileKind::Symlink => volume.read_link(attributes.id).unwrap().into_bytes(),
            FileKind::Folder => {
                let entries = volume.entries(attributes.id).unwrap();
                ahead.extend(
                    entries
                        .into_iter()
                        .map(|entry| (format!("{path}/{}", entry.name), entry.attributes)),
                );
                Vec::new()
            }
            _ => Vec::new(),
        };
        let value = |name: String| {
            let value = whole(volume.xattr(attributes.id, &name).unwrap().unwrap());
            (name, value)
        };
        let xattrs = volume
            .xattrs(attributes.id)
            .unwrap()
            .into_iter()
            .map(value)
            .collect();
        all.insert(
            path.clone(),
            Seen {
                attributes,
                contents,
                xattrs,
                first: String::new(),
            },
        );
    }
    let mut first = BTreeMap::new();
    for (path, seen) in &all {
        first.entry(seen.attributes.id).or_insert(path.clone());
    }
    for seen in all.values_mut() {
        seen.first = first[&seen.attributes.id].clone();
        // Attributes that an archive does not preserve, or represents differently.
        seen.attributes.id = bandsaw::fs::NodeId(0);
        seen.attributes.changed = None;
        seen.attributes.accessed = None;
    }
    all
}

fn node(parent: u32, name: &str, kind: SourceKind) -> SourceNode {
    SourceNode {
        parent,
        name: name.into(),
        kind,
        mode: 0o640,
        uid: 3_000_000,
        gid: 20,
        flags: 0,
        created: Some(Timestamp::from_seconds(1_000_000_000)),
        modified: Timestamp::from_seconds(1_234_567_890),
        changed: None,
        accessed: None,
        xattrs: Vec::new(),
    }
}

fn bytes(len: usize) -> Stream {
    Stream::Bytes((0..len).map(|at| (at % 253) as u8).collect())
}

/// Returns a tree with everything that is difficult to archive.
fn varied() -> Tree {
    let mut tree = Tree::empty(Timestamp::from_seconds(1_111_111_111));
    let mut add = |parent, name: &str, kind| {
        let index = tree.nodes.len() as u32;
        tree.nodes.push(node(parent, name, kind));
        index
    };
    let long = add(0, &"long ".repeat(40), SourceKind::Folder);
    let longer = add(long, &"longer ".repeat(30), SourceKind::Folder);
    for len in [0, 1, 511, 512, 513, 3_000_000] {
        add(
            longer,
            &format!("{len} bytes"),
            SourceKind::File(bytes(len)),
        );
    }
    let linked = add(0, "gru\u{308}n", SourceKind::File(bytes(100)));
    add(long, "again", SourceKind::HardLink(linked));
    add(0, "link", SourceKind::Symlink("t/".repeat(400).into()));
    add(0, "fifo", SourceKind::Special(FileKind::Fifo, 0));
    add(
        0,
        "disk",
        SourceKind::Special(FileKind::BlockDevice, 0x08FF_FFFF),
    );
    let file = add(0, "with everything", SourceKind::File(bytes(10))) as usize;
    tree.nodes[file].flags = UF_HIDDEN | 0x2;
    let value = |text: &[u8]| Stream::Bytes(text.into());
    tree.nodes[file].xattrs = vec![
        ("a=b%c".into(), value(b"line\nfeed\0and more")),
        ("empty".into(), value(b"")),
        ("large".into(), bytes(100_000)),
        ("com.apple.ResourceFork".into(), bytes(200_000)),
        (
            "com.apple.FinderInfo".into(),
            value(&[b"TEXTttxt\x40\0".as_slice(), &[0; 22]].concat()),
        ),
    ];
    tree.nodes[long as usize]
        .xattrs
        .push(("on a folder".into(), value(b"x")));
    tree.nodes[0]
        .xattrs
        .push(("on the root".into(), value(b"y")));
    tree
}

#[test]
fn a_volume_survives_an_archive() {
    let before = volume(varied()).unwrap();
    let mut archive = Vec::new();
    let report = to_tar(&before, "/", &mut archive, &Silent).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!((report.files, report.folders, report.symlinks), (11, 2, 1));
    let after = volume(import(&archive).unwrap()).unwrap();
    let (mut before, mut after) = (read(&before), read(&after));
    for all in [&mut before, &mut after] {
        // The root's creation date is that of the volume.
        all.get_mut("").unwrap().attributes.created = None;
    }
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    for (path, seen) in &before {
        assert!(
            *seen == after[path],
            "{path}: {:?} instead of {:?}",
            after[path].attributes,
            seen.attributes
        );
    }
    // A second export yields the same bytes.
    let mut again = Vec::new();
    to_tar(
        &volume(import(&archive).unwrap()).unwrap(),
        "/",
        &mut again,
        &Silent,
    )
    .unwrap();
    assert!(archive == again);
}

/// Runs GNU tar; `None` and a message on stderr if it is not installed.
fn gnu_tar(test: &str, arguments: &[&str], folder: &Path) -> Option<Vec<u8>> {
    let version = Command::new("tar").arg("--version").output();
    if !version.is_ok_and(|output| output.stdout.starts_with(b"tar (GNU tar)")) {
        crate::common::skip::without_program(test, "GNU tar is not installed");
        return None;
    }
    let output = Command::new("tar")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "tar {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

#[test]
fn gnu_tar_unpacks_what_we_write() {
    let scratch = scratch();
    let mut tree = varied();
    // Creating devices requires root, and not every file system supports large attributes.
    tree.nodes
        .retain(|node| !matches!(node.kind, SourceKind::Special(FileKind::BlockDevice, _)));
    tree.nodes.iter_mut().for_each(|node| node.xattrs.clear());
    let volume = volume(tree).unwrap();
    let mut archive = Vec::new();
    to_tar(&volume, "/", &mut archive, &Silent).unwrap();
    fs::write(scratch.path().join("archive.tar"), &archive).unwrap();
    fs::create_dir(scratch.path().join("out")).unwrap();
    let arguments = [
        "-x",
        "-f",
        "archive.tar",
        "--no-same-owner",
        "--warning=no-unknown-keyword",
        "-C",
        "out",
    ];
    if gnu_tar("gnu_tar_unpacks_what_we_write", &arguments, scratch.path()).is_none() {
        return;
    }
    for (path, seen) in read(&volume) {
        let host = scratch
            .path()
            .join("out")
            .join(path.trim_start_matches('/'));
        let meta = fs::symlink_metadata(&host).unwrap_or_else(|error| panic!("{path}: {error}"));
        match seen.attributes.kind {
            FileKind::File => assert!(fs::read(&host).unwrap() == seen.contents, "{path}"),
            FileKind::Symlink => assert_eq!(
                fs::read_link(&host).unwrap().as_os_str().as_encoded_bytes(),
                seen.contents
            ),
            _ => {}
        }
        if seen.attributes.kind == FileKind::File {
            assert_eq!(
                meta.permissions().mode() & 0o7777,
                u32::from(seen.attributes.mode),
                "{path}"
            );
        }
    }
}

#[test]
fn we_read_every_format_of_gnu_tar() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("folder")).unwrap();
    fs::write(source.join("file"), b"contents").unwrap();
    fs::write(source.join("folder/large"), vec![7; 100_000]).unwrap();
    fs::hard_link(source.join("file"), source.join("folder/again")).unwrap();
    symlink("file", source.join("link")).unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.set_len(50 << 20).unwrap();
    for at in 0..40 {
        sparse
            .write_all_at(&[at as u8 + 1; 3000], at * (1 << 20) + 4096 * (at % 3))
            .unwrap();
    }
    let mut expected = Vec::new();
    File::open(source.join("sparse"))
        .unwrap()
        .read_to_end(&mut expected)
        .unwrap();
    let long = "n".repeat(95);
    fs::create_dir(source.join(&long)).unwrap();
    fs::write(source.join(&long).join(&long), b"long").unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=oldgnu"],
        &["--format=posix"],
        &["--format=ustar"],
        &["--format=gnu", "--sparse"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=posix", "--sparse", "--sparse-version=1.0"],
    ] {
        let arguments = [&["-c", "-f", "-"], format, &["-C", "source", "."]].concat();
        let Some(archive) = gnu_tar(
            "we_read_every_format_of_gnu_tar",
            &arguments,
            scratch.path(),
        ) else {
            return;
        };
        assert_eq!(archive.len() < 10 << 20, format.contains(&"--sparse"));
        let found = read(
            &volume(import(&archive).unwrap_or_else(|error| panic!("{format:?}: {error}")))
                .unwrap(),
        );
        assert!(found["/sparse"].contents == expected, "{format:?}");
        assert_eq!(found["/folder/again"].first, "/file", "{format:?}");
        assert_eq!(found["/folder/again"].contents, b"contents", "{format:?}");
        assert_eq!(found["/folder/large"].contents.len(), 100_000, "{format:?}");
        assert_eq!(found["/link"].contents, b"file", "{format:?}");
        assert_eq!(
            found[&format!("/{long}/{long}")].contents,
            b"long",
            "{format:?}"
        );
        assert_eq!(found.len(), 9, "{format:?}");
    }
}

#[test]
fn a_stream_may_come_in_drops() {
    struct Drops<'a>(&'a [u8]);
    impl Read for Drops<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let taken = 7.min(self.0.len()).min(buf.len());
            buf[..taken].copy_from_slice(&self.0[..taken]);
            self.0 = &self.0[taken..];
            Ok(taken)
        }
    }
    let scratch = scratch();
    let archive = Archive::default().member(b"file", b'0', &[9; 10_000]).0;
    let tree = import::tar_stream(&mut Drops(&archive), scratch.path(), &Silent).unwrap();
    assert_eq!(
        fs::read_dir(scratch.path()).unwrap().count(),
        0,
        "the copy has no name"
    );
    assert_eq!(read(&volume(tree).unwrap())["/file"].contents, [9; 10_000]);
}

#[test]
fn a_reader_that_goes_away_ends_the_archive() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = to_tar(&volume(varied()).unwrap(), "/", &mut Full, &Silent).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::BrokenPipe));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn no_damage_is_worse_than_an_error(
        changes in proptest::collection::vec((0..8000_usize, proptest::prelude::any::<u8>()), 1..20),
        sum in proptest::prelude::any::<bool>(),
    ) {
        let mut bytes = Archive::default()
            .member(b"pax", b'x', b"22 GNU.sparse.major=1\n31 GNU.sparse.realsize=1000000\n27 SCHILY.xattr.user.a=text\n")
            .member(b"sparse", b'0', &[b"1\n500\n100\n".as_slice(), &[0; 502], &[7; 100]].concat())
            .member(b"._file", b'0', b"\0\x05\x16\x07\0\x02\0\0Mac OS X        \0\x01\0\0\0\x02\0\0\0\x26\0\0\0\x04fork")
            .member(b"file", b'0', b"contents")
            .link(b"link", b'1', b"file")
            .member(b"folder/", b'5', b"")
            .0;
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
            if sum {
                // Damage that the checksum does not detect.
                let header = at / 512 * 512;
                bytes[header + 148..header + 156].fill(b' ');
                let sum: u32 = bytes[header..header + 512].iter().map(|byte| u32::from(*byte)).sum();
                bytes[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        if let Ok(tree) = import(&bytes) && let Ok(volume) = volume(tree) {
            read(&volume);
        }
    }
}
