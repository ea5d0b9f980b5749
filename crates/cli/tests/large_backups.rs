//! Time Machine backups at the size of real ones: hundreds of dates, and hundreds of thousands of files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw_backups::{Backups, volumes_of};

use crate::common::backupd::VOLUME;
use crate::common::skip::{self, skip};
use crate::common::years::{self, Date, Node, Scale, Years};
use crate::common::{Scratch, peer_python, stderr};
use crate::tm_convert::accepted_by_apfsck;

/// The variable that lets the large tests run.
const LARGE: &str = "BANDSAW_LARGE";

/// Writes a history into a new sparse bundle of this size.
fn bundle(scratch: &Scratch, name: &str, size: &str, history: &Years) {
    scratch.ok(&["create", name, "--size", size]);
    let image = opened(scratch, name, Access::ReadWrite);
    history.write(&**image.disk());
}

fn opened(scratch: &Scratch, name: &str, access: Access) -> Image {
    let options = OpenOptions {
        access,
        ..OpenOptions::default()
    };
    open::open(&scratch.path(name), &options).unwrap()
}

/// Bytes of storage of a file or of a folder with everything below.
fn stored(path: &Path) -> u64 {
    let meta = fs::symlink_metadata(path).unwrap();
    let below = match meta.is_dir() {
        true => fs::read_dir(path)
            .unwrap()
            .map(|entry| stored(&entry.unwrap().path()))
            .sum(),
        false => 0,
    };
    meta.blocks() * 512 + below
}

/// Time and peak memory in KiB of a command that succeeds, and what it printed.
fn measured(scratch: &Scratch, words: &[&str]) -> (Duration, u64, String) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(words)
        .current_dir(scratch.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut out = child.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut said = String::new();
        out.read_to_string(&mut said).map(|_| said)
    });
    let mut peak = 0;
    let code = loop {
        if let Some(code) = child.try_wait().unwrap() {
            break code;
        }
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let word = line.and_then(|line| line.split_whitespace().next());
        peak = word
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
            .max(peak);
        thread::sleep(Duration::from_millis(1));
    };
    let took = began.elapsed();
    assert!(code.success(), "{words:?}");
    (took, peak, reader.join().unwrap().unwrap())
}

/// Compares every file of every date with the history, in two threads.
fn compare(scratch: &Scratch, name: &str, history: &Years) {
    let image = opened(scratch, name, Access::ReadOnly);
    let backups = Backups::read(volumes_of(&image, None, None).unwrap());
    assert!(backups.problems().is_empty(), "{:?}", backups.problems());
    assert_eq!(backups.all().len(), history.dates.len());
    let check = |part: usize| {
        let mut files = 0;
        for (number, date) in history
            .dates
            .iter()
            .enumerate()
            .filter(|(number, _)| number % 2 == part)
        {
            let open = backups.open(number).unwrap();
            let volume = open.resolve(VOLUME).unwrap();
            let found = date.compare(&*open.fs, volume.attributes.id);
            assert_eq!(found, date.count(), "{}", date.name);
            files += found;
        }
        files
    };
    let files = thread::scope(|scope| {
        let other = scope.spawn(|| check(1));
        check(0) + other.join().unwrap()
    });
    eprintln!("compared {files} files of {} dates", history.dates.len());
}

/// Runs a conversion that is killed after some of its dates, twice, and then to its end.
fn convert(scratch: &Scratch, words: &[&str], unfinished: &str) {
    let mut killed = 0;
    for share in [3, 2] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
            .args(words)
            .current_dir(scratch.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        let ended = loop {
            if child.try_wait().unwrap().is_some() {
                break true;
            }
            if began.elapsed() > Duration::from_secs(30 / share)
                && scratch.path(unfinished).exists()
            {
                child.kill().unwrap();
                child.wait().unwrap();
                break false;
            }
            thread::sleep(Duration::from_millis(20));
        };
        assert!(!ended, "it ended before it could be killed");
        killed += 1;
    }
    let (took, peak, said) = measured(scratch, words);
    eprintln!("after {killed} kills: {said}{took:?}, {peak} KiB");
}

/// Writes the container of a raw image, which begins at its partition, to a sparse file of its own.
fn container(scratch: &Scratch, image: &str) -> std::path::PathBuf {
    let disk = opened(scratch, image, Access::ReadOnly);
    let disk = disk.disk();
    let magic = |at: &u64| disk.read_vec(at * 4096 + 32, 4).unwrap() == b"NXSB";
    let start = (0..1000).find(magic).unwrap() * 4096;
    let blocks = disk.read_vec(start + 40, 8).unwrap();
    let len = u64::from_le_bytes(blocks.try_into().unwrap()) * 4096;
    let path = scratch.path("container.img");
    let file = fs::File::create(&path).unwrap();
    file.set_len(len).unwrap();
    let mut at = 0;
    while at < len {
        let piece = disk
            .read_vec(start + at, (len - at).min(1 << 20) as usize)
            .unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece, at).unwrap();
        }
        at += piece.len() as u64;
    }
    path
}

/// Lists the files of the last date in the current state of a volume: path, length and CRC-32.
const LIBFSAPFS: &str = r#"
import pyfsapfs, stat, sys, zlib
container = pyfsapfs.container()
container.open(sys.argv[1])
def walk(folder, prefix):
    for entry in folder.sub_file_entries:
        path = prefix + '/' + entry.name
        if stat.S_IFMT(entry.file_mode) == stat.S_IFDIR:
            walk(entry, path)
        else:
            data = entry.read_buffer(entry.size) if entry.size else b''
            print(path, len(data), zlib.crc32(data), sep='\t')
walk(container.get_volume(0).get_root_directory(), '')
"#;

const DISSECT: &str = r#"
import sys, zlib
from dissect.apfs import APFS
volume = APFS(open(sys.argv[1], 'rb')).volumes[0]
def walk(folder, prefix):
    for name, entry in folder.listdir().items():
        path = prefix + '/' + name
        if entry.is_dir():
            walk(entry, path)
        else:
            data = entry.open().read() if entry.size else b''
            print(path, len(data), zlib.crc32(data), sep='\t')
walk(volume.root, '')
"#;

/// Returns the files of a date as the scripts print them.
fn listed(date: &Date) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let root = format!("/{}.previous/{VOLUME}", date.name);
    let mut ahead = vec![(root, date.root.clone())];
    while let Some((path, folder)) = ahead.pop() {
        for (name, node) in &folder.children {
            let path = format!("{path}/{name}");
            match node {
                Node::Folder(folder) => ahead.push((path, folder.clone())),
                Node::File(body) => {
                    let mut bytes = vec![0; body.len as usize];
                    years::fill(body.number, 0, &mut bytes);
                    let mut crc = flate2::Crc::new();
                    crc.update(&bytes);
                    files.insert(path, format!("{}\t{}", body.len, crc.sum()));
                }
            }
        }
    }
    files
}

/// Compares what other programs see with the last date.
fn judge(scratch: &Scratch, image: &str, history: &Years) {
    let container = container(scratch, image);
    let truth = listed(history.dates.last().unwrap());
    for (module, script) in [("pyfsapfs", LIBFSAPFS), ("dissect.apfs", DISSECT)] {
        let Some(python) = peer_python(module) else {
            skip::without_program(
                "a_large_history_is_converted",
                &format!("no Python with {module}"),
            );
            continue;
        };
        let output = Command::new(python)
            .args(["-c", script])
            .arg(&container)
            .output()
            .unwrap();
        assert!(output.status.success(), "{module}: {}", stderr(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        let found: BTreeMap<String, String> = said
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(path, _)| *path != "/backup_manifest.plist")
            .map(|(path, rest)| (path.to_owned(), rest.to_owned()))
            .collect();
        assert_eq!(found.len(), truth.len(), "{module}");
        assert!(found == truth, "{module}");
        eprintln!("{module} lists the same {} files", found.len());
    }
    accepted_by_apfsck("a_large_history_is_converted", &container);
}

#[test]
fn a_history_is_written_and_converted() {
    let scale = Scale {
        dates: 8,
        files: 400,
        changed_folders: 3,
        len: 2000,
    };
    let history = Years::new(61, scale);
    let scratch = Scratch::new();
    bundle(&scratch, "old.sparsebundle", "64m", &history);
    compare(&scratch, "old.sparsebundle", &history);
    scratch.ok(&["tm", "convert", "old.sparsebundle", "new.sparsebundle"]);
    compare(&scratch, "new.sparsebundle", &history);
}

#[test]
#[ignore = "full: skipped but by --release: 20,000,000 files of 100 dates are compared"]
fn a_large_history_is_converted() {
    if std::env::var_os(LARGE).is_none() {
        return skip(
            "a_large_history_is_converted",
            "only by scripts/test --release",
        );
    }
    let scale = Scale {
        dates: 100,
        files: 200_000,
        changed_folders: 20,
        len: 8000,
    };
    let history = Years::new(62, scale);
    let scratch = Scratch::new();
    bundle(&scratch, "old.sparsebundle", "16g", &history);
    // The comparison with the history below replaces that with the source.
    let words = [
        "tm",
        "convert",
        "--no-verify",
        "old.sparsebundle",
        "new.sparsebundle",
    ];
    convert(&scratch, &words, "unfinished-new.sparsebundle");
    let [old, new] =
        ["old", "new"].map(|name| stored(&scratch.path(&format!("{name}.sparsebundle"))));
    eprintln!("{old} bytes before, {new} after");
    assert!(new * 10 <= old * 12, "{old} bytes became {new}");
    compare(&scratch, "new.sparsebundle", &history);
    judge(&scratch, "new.sparsebundle", &history);
}

/// Best of some runs, so that another program's load counts once.
fn best(scratch: &Scratch, words: &[&str]) -> (Duration, u64) {
    let runs = (0..5).map(|_| measured(scratch, words));
    runs.map(|(took, peak, _)| (took, peak)).min().unwrap()
}

#[test]
#[ignore = "full: skipped but by --release: times need a machine alone"]
fn five_hundred_backups_are_listed_in_a_second() {
    if std::env::var_os(LARGE).is_none() {
        return skip(
            "five_hundred_backups_are_listed_in_a_second",
            "only by scripts/test --release",
        );
    }
    let scale = Scale {
        dates: 500,
        files: 200_000,
        changed_folders: 20,
        len: 3000,
    };
    let history = Years::new(63, scale);
    let scratch = Scratch::new();
    bundle(&scratch, "hfs.sparsebundle", "1t", &history);
    let words = [
        "tm",
        "convert",
        "--no-verify",
        "hfs.sparsebundle",
        "apfs.sparsebundle",
    ];
    scratch.ok(&words);
    let path = history.file_with_versions(3);
    for name in ["hfs.sparsebundle", "apfs.sparsebundle"] {
        let (took, peak, said) = measured(&scratch, &["tm", "list", name]);
        assert_eq!(said.lines().count(), 500);
        eprintln!("{name}: list, first run {took:?}, {peak} KiB");
        let (took, peak) = best(&scratch, &["tm", "list", name]);
        eprintln!("{name}: list {took:?}, {peak} KiB");
        assert!(
            took < Duration::from_secs(1) && peak < 64 << 10,
            "{took:?}, {peak} KiB"
        );
        let (took, peak) = best(&scratch, &["tm", "versions", name, &path]);
        eprintln!("{name}: versions {took:?}, {peak} KiB");
        assert!(
            took < Duration::from_secs(1) && peak < 256 << 10,
            "{took:?}, {peak} KiB"
        );
        let (took, peak) = best(&scratch, &["tm", "find", name, "new 2*"]);
        eprintln!("{name}: find {took:?}, {peak} KiB");
        assert!(peak < 256 << 10, "{peak} KiB");
    }
}
