//! `ditto --hfsCompression`: files that are compressed on a mounted volume.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use super::{links, mounted, ok, run};
use crate::common::{Scratch, stderr};

/// The name by which the mount compresses a file.
const COMPRESS: &str = "system.bandsaw.compress";

/// Names of the files and their contents; whether ditto is to compress each.
fn sample() -> Vec<(&'static str, Vec<u8>, bool)> {
    let mut state = 7_u64;
    let noise = (0..200_000).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    vec![
        ("long", "a line of a text\n".repeat(50_000).into(), true),
        ("read-only", "short ".repeat(1000).into(), true),
        ("sub/deep", "deep ".repeat(5000).into(), true),
        ("empty", Vec::new(), false),
        ("linked", "linked ".repeat(5000).into(), false),
        ("noise", noise.collect(), false),
    ]
}

fn write_sample(scratch: &Scratch) {
    for (name, contents, _) in sample() {
        scratch.write(&format!("src/{name}"), contents);
    }
    let locked = fs::Permissions::from_mode(0o444);
    fs::set_permissions(scratch.path("src/read-only"), locked).unwrap();
    fs::hard_link(scratch.path("src/linked"), scratch.path("src/second")).unwrap();
}

/// Fails unless the files at `folder` are those of the source, with their modes and dates.
fn are_equal(scratch: &Scratch, folder: &Path) {
    for (name, contents, _) in sample() {
        let path = folder.join(name);
        assert!(fs::read(&path).unwrap() == contents, "{}", path.display());
        let meta = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode(), meta.mtime(), meta.nlink())
        };
        let source = scratch.path("src").join(name);
        assert_eq!(meta(&path), meta(&source), "{}", path.display());
    }
}

#[test]
fn files_are_compressed_where_the_volume_can() {
    for fs in ["HFS+", "APFS"] {
        let Some(scratch) = mounted("files_are_compressed_where_the_volume_can", fs) else {
            return;
        };
        let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
        write_sample(&scratch);
        ok("ditto --hfsCompression src disk/src");
        ok("ditto --hfsCompression --nohfsCompression src disk/plain");
        ok("ditto -c -k --keepParent src src.zip");
        ok("ditto -x -k --hfsCompression src.zip disk/extracted");
        are_equal(&scratch, &scratch.path("disk/src"));
        are_equal(&scratch, &scratch.path("disk/plain"));
        assert_eq!(ok("xattr -r disk"), "");
        // A second time onto the compressed files, and a change of one.
        ok("ditto --hfsCompression src disk/src");
        are_equal(&scratch, &scratch.path("disk/src"));
        ok("ditto --hfsCompression src/long disk/changed");
        let mut changed = fs::File::options()
            .append(true)
            .open(scratch.path("disk/changed"))
            .unwrap();
        changed.write_all(b"more").unwrap();
        drop(changed);
        ok("hdiutil detach disk");
        scratch.ok(&["check", "a.dmg"]);

        let number = |path: &str| {
            let facts = scratch.json(&["stat", &format!("a.dmg:/{path}")]);
            assert_eq!(
                facts["file"]["compressed"],
                !facts["file"]["compression"].is_null()
            );
            facts["file"]["compression"].as_u64()
        };
        for (name, contents, is_compressed) in sample() {
            // LZVN, in the resource fork or the attribute.
            let expected = match contents.len() {
                _ if !is_compressed => None,
                100_000.. => Some(8),
                _ => Some(7),
            };
            assert_eq!(number(&format!("src/{name}")), expected, "{fs}: {name}");
            assert_eq!(number(&format!("plain/{name}")), None, "{fs}: {name}");
            // A zip archive has no links: both are files of their own.
            let expected = expected.or((name == "linked").then_some(7));
            let extracted = format!("extracted/src/{name}");
            assert_eq!(number(&extracted), expected, "{fs}: {name}");
            for folder in ["src", "plain", "extracted/src"] {
                let read = scratch.run(&["cat", &format!("a.dmg:/{folder}/{name}")]);
                assert!(read.stdout == contents, "{fs}: {folder}/{name}");
            }
        }
        assert_eq!(number("changed"), None);
        let read = scratch.run(&["cat", "a.dmg:/changed"]);
        assert!(read.stdout == [&sample()[0].1[..], b"more"].concat());
    }
}

#[test]
fn a_folder_of_the_host_gets_a_plain_copy() {
    let scratch = links();
    write_sample(&scratch);
    let words = ["ditto", "-V", "--hfsCompression", "src", "copy"];
    let printed = stderr(&run(&scratch, &words));
    let mut lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.remove(0), ">>> Copying src");
    for (name, ..) in sample() {
        let line = format!("copying file src/{name}");
        assert!(lines.contains(&&*line), "{line}: {printed}");
    }
    assert_eq!(lines.len(), sample().len() + 1);
    are_equal(&scratch, &scratch.path("copy"));
}

/// The call behind it, while programs have the file open.
#[test]
fn open_files_are_compressed_unless_they_are_written() {
    use rustix::fs::{Advice, XattrFlags, fadvise, getxattr, removexattr, setxattr};
    use rustix::io::Errno;

    const TEST: &str = "open_files_are_compressed_unless_they_are_written";
    let compress = |path: &Path, method: &str| {
        setxattr(path, COMPRESS, method.as_bytes(), XattrFlags::empty())
    };
    for fs in ["HFS+", "APFS"] {
        let Some(scratch) = mounted(TEST, fs) else {
            return;
        };
        let text = "a line of a text\n".repeat(50_000);
        let path = scratch.write("disk/long", &text);
        let writer = fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(compress(&path, ""), Err(Errno::BUSY), "{fs}");
        drop(writer);
        let mut reader = fs::File::open(&path).unwrap();
        let mut first = [0; 1000];
        reader.read_exact(&mut first).unwrap();
        for (target, method) in [("disk/long", "brotli"), ("disk", "zlib")] {
            let refused = compress(&scratch.path(target), method);
            assert_eq!(refused, Err(Errno::INVAL), "{fs}: {target} {method}");
        }
        let blocks = || fs::File::open(&path).unwrap().metadata().unwrap().blocks();
        let plain = blocks();
        // The kernel reports the end of the writer late.
        let mut tries = 0;
        while compress(&path, "zlib") == Err(Errno::BUSY) {
            tries += 1;
            assert!(tries < 500);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(compress(&path, "lzfse"), Ok(()), "compressed already");
        let mut value = [0; 10];
        for result in [
            getxattr(&path, COMPRESS, &mut value).map(drop),
            removexattr(&path, COMPRESS),
        ] {
            assert_eq!(result, Err(Errno::OPNOTSUPP), "{fs}");
        }
        // From the image, not from the kernel's cache.
        fadvise(&reader, 0, None, Advice::DontNeed).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(
            [&first[..], rest.as_bytes()].concat() == text.as_bytes(),
            "{fs}"
        );
        // A write while it is read.
        let writer = fs::File::options().write(true).open(&path).unwrap();
        writer.write_all_at(b"A", 0).unwrap();
        drop(writer);
        fadvise(&reader, 0, None, Advice::DontNeed).unwrap();
        reader.read_exact_at(&mut first[..1], 0).unwrap();
        assert_eq!(first[0], b'A');
        drop(reader);
        assert!(blocks() >= plain);
        let mut tries = 0;
        while compress(&path, "zlib") == Err(Errno::BUSY) {
            tries += 1;
            assert!(tries < 500);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        ok(&scratch, &["hdiutil", "detach", "disk"]);
        scratch.ok(&["check", "a.dmg"]);
        assert_eq!(
            scratch.json(&["stat", "a.dmg:/long"])["file"]["compression"],
            4
        );
        assert_eq!(
            scratch.ok(&["cat", "a.dmg:/long"]),
            format!("A{}", &text[1..])
        );

        // A volume that is not writable.
        let attach = "hdiutil attach -readonly -mountpoint disk a.dmg";
        ok(&scratch, &attach.split(' ').collect::<Vec<_>>());
        assert_eq!(compress(&path, ""), Err(Errno::ROFS), "{fs}");
        ok(&scratch, &["hdiutil", "detach", "disk"]);
    }
}
