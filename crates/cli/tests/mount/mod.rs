//! `mount`, `attach` and `detach`: how they begin, what programs see, how they end. Skipped, by
//! name, where there is no FUSE.
#![cfg(target_os = "linux")]

mod faults;
mod storage;

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Scratch, stderr};
use bandsaw::fs::core_storage::fixture::Options;
use bandsaw::testing::fuzz;
use serde_json::Value;

/// A scratch folder with a registry of its own, whose mounts go with it.
struct Host(Scratch);

impl Host {
    /// `None`, and a word about it, on a machine without FUSE.
    fn new(test: &str) -> Option<Self> {
        let can_mount = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_ok();
        if !can_mount {
            crate::common::skip::skip(test, "/dev/fuse cannot be opened here");
            return None;
        }
        Some(Self(Scratch::new()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        self.0
            .command(args)
            .env("XDG_RUNTIME_DIR", self.path(""))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.path(""))
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(
            output.status.success(),
            "bandsaw {args:?} failed: {}",
            stderr(&output)
        );
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "bandsaw {args:?}: {}",
            stderr(&output)
        );
        stderr(&output)
    }

    /// Serves an image until it has begun, and ends that.
    fn serve(&self, image: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command
            .args(["serve", image, "--socket", "socket", "--json"])
            .current_dir(self.path(""));
        command
            .env("XDG_RUNTIME_DIR", self.path(""))
            .env("HOME", self.path(""))
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Its first line comes once it listens, which is after it has trimmed.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(!line.is_empty(), "serve {image} told nothing");
        kill("-TERM", &child.id().into());
        assert!(child.wait().unwrap().success());
    }

    fn listed(&self) -> Vec<Value> {
        self.ok(&["list"])["devices"].as_array().unwrap().clone()
    }

    /// Waits for the servers to go.
    fn wait_for_none(&self) {
        let began = Instant::now();
        while !self.listed().is_empty() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{:?}",
                self.listed()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the log of the server of something that was mounted.
    fn log(&self, mounted: &Value) -> String {
        let device = mounted["device"].as_str().unwrap();
        fs::read_to_string(self.path(&format!("bandsaw/{device}.log"))).unwrap()
    }

    fn bundle(&self, name: &str) {
        self.0.ok(&[
            "create",
            name,
            "--size",
            "64m",
            "--fs",
            "hfs+",
            "--volname",
            "Vol",
        ]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for device in self.listed() {
            let _ = self.run(&["detach", "--force", device["device"].as_str().unwrap()]);
        }
    }
}

fn kill(signal: &str, process: &Value) {
    assert!(
        Command::new("kill")
            .args([signal, &process.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Bytes of storage behind a file or a folder and what is in it.
fn du(path: &Path) -> u64 {
    let meta = fs::symlink_metadata(path).unwrap();
    let below = if meta.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| du(&entry.unwrap().path()))
            .sum()
    } else {
        0
    };
    meta.blocks() * 512 + below
}

#[test]
fn a_volume_is_written_by_anybody_and_left_clean() {
    let Some(host) = Host::new("a_volume_is_written_by_anybody_and_left_clean") else {
        return;
    };
    host.bundle("x.sparsebundle");
    let mounted = host.ok(&["mount", "x.sparsebundle", "mnt"]);
    assert_eq!(mounted["device"], "disk1");
    let mnt = host.path("mnt");
    fs::create_dir(mnt.join("folder")).unwrap();
    fs::write(mnt.join("folder/file"), vec![7; 300_000]).unwrap();
    fs::hard_link(mnt.join("folder/file"), mnt.join("second")).unwrap();
    std::os::unix::fs::symlink("folder/file", mnt.join("link")).unwrap();
    assert_eq!(fs::read(mnt.join("link")).unwrap(), vec![7; 300_000]);
    assert_eq!(fs::metadata(mnt.join("second")).unwrap().nlink(), 2);
    fs::rename(mnt.join("second"), mnt.join("folder/third")).unwrap();
    assert!(fs::remove_dir(mnt.join("folder")).is_err());
    assert!(
        host.fails(4, &["mount", "x.sparsebundle", "other"])
            .contains("in use")
    );
    assert!(
        host.fails(4, &["mount", "x.sparsebundle", "mnt"])
            .contains("in use")
    );
    // A file that is open holds it, and is named.
    let open = File::create(mnt.join("open")).unwrap();
    let refused = host.fails(4, &["detach", "mnt"]);
    assert!(
        refused.contains(&format!("process {}", std::process::id())) && refused.contains("--force"),
        "{refused}"
    );
    drop(open);
    let detached = host.ok(&["detach", "x.sparsebundle"]);
    assert_eq!(detached["device"], "disk1");
    // The folder was made for the mount.
    assert!(!mnt.exists() && host.listed().is_empty());
    host.0.ok(&["check", "x.sparsebundle"]);
    assert_eq!(
        host.0.ok(&["ls", "x.sparsebundle:/folder"]),
        "file\nthird\n"
    );
    assert!(host.fails(3, &["detach", "disk1"]).contains("bandsaw list"));
}

#[test]
fn signals_and_umount_leave_it_clean_and_a_kill_recoverable() {
    let Some(host) = Host::new("signals_and_umount_leave_it_clean_and_a_kill_recoverable") else {
        return;
    };
    host.bundle("x.sparsebundle");
    for (round, end) in ["-TERM", "-INT", "umount", "-KILL"].into_iter().enumerate() {
        let mounted = host.ok(&["mount", "x.sparsebundle", "mnt"]);
        let path = host.path("mnt").join(format!("file{round}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[round as u8; 100_000]).unwrap();
        file.sync_all().unwrap();
        match end {
            "umount" => {
                drop(file);
                assert!(
                    Command::new("fusermount3")
                        .arg("-u")
                        .arg(host.path("mnt"))
                        .status()
                        .unwrap()
                        .success()
                );
            }
            signal => kill(signal, &mounted["process"]),
        }
        host.wait_for_none();
        assert!(!host.path("mnt").exists(), "{end}: nothing is left");
        if end != "-KILL" {
            host.0.ok(&["check", "x.sparsebundle"]);
        }
        let left = host
            .0
            .command(&["cat", &format!("x.sparsebundle:/file{round}")])
            .output()
            .unwrap()
            .stdout;
        assert_eq!(left, vec![round as u8; 100_000], "{end}");
    }
    host.ok(&["mount", "x.sparsebundle", "mnt"]);
    assert_eq!(fs::read_dir(host.path("mnt")).unwrap().count(), 4);
    host.ok(&["detach", "mnt"]);
    host.0.ok(&["check", "x.sparsebundle"]);
}

/// Returns true if a process ended, even if nobody has waited for it.
fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

/// A server whose launcher is killed before it was told of the mount ends, and leaves nothing.
#[test]
fn a_server_ends_with_its_launcher() {
    let Some(host) = Host::new("a_server_ends_with_its_launcher") else {
        return;
    };
    host.0.write("key", "key");
    let create = ["create", "x.sparsebundle", "--size", "20m", "--fs", "hfs+"];
    let encrypt = ["--encrypt", "--passfile", "key", "--iterations", "150000"];
    host.0.ok(&[&create[..], &encrypt].concat());
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command
            .args(args)
            .current_dir(host.path(""))
            .env("XDG_RUNTIME_DIR", host.path(""))
            .env("HOME", host.path(""));
        command
    };
    // Nobody writes to it, so that the server waits for the passphrase.
    let fifo = host.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let before = host.0.names();
    let key = ["x.sparsebundle", "--passfile", "fifo"];
    for (verb, folder) in [("mount", "mnt"), ("attach", "--nomount")] {
        for signal in ["-KILL", "-TERM", "-INT"] {
            let mut launcher = command(&[&[verb][..], &key, &[folder]].concat())
                .spawn()
                .unwrap();
            let id = launcher.id();
            let children = format!("/proc/{id}/task/{id}/children");
            let server = loop {
                let found = fs::read_to_string(&children).unwrap();
                if let Some(server) = found.split_whitespace().next() {
                    break server.to_owned();
                }
                thread::sleep(Duration::from_millis(1));
            };
            kill(signal, &id.into());
            assert!(!launcher.wait().unwrap().success());
            let began = Instant::now();
            while !has_ended(&server) {
                let waited = began.elapsed();
                assert!(waited < Duration::from_secs(20), "{verb} {signal}");
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(host.0.names(), before, "{verb} {signal}");
        }
    }
    // The report cannot be delivered: what was mounted is taken back.
    let serving = ["mount", "--serving", "x.sparsebundle", "mnt"];
    let mut server = command(&[&serving[..], &["--passfile", "key"]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(server.stdout.take());
    assert!(!server.wait().unwrap().success());
    assert!(host.listed().is_empty() && !host.path("mnt").exists());
    host.0.ok(&["check", "x.sparsebundle", "--passfile", "key"]);
}

#[test]
fn an_image_is_attached_by_its_volumes() {
    let Some(host) = Host::new("an_image_is_attached_by_its_volumes") else {
        return;
    };
    host.0.sample();
    host.0.ok(&[
        "create",
        "x.img",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "Vol",
    ]);
    host.0
        .ok(&["convert", "x.img", "x.dmg", "--format", "udzo"]);
    let attached = host.ok(&["attach", "x.dmg", "--mountroot", "Volumes"]);
    let again = host.ok(&["attach", "x.dmg", "--mountroot", "Volumes"]);
    assert_eq!(
        (&attached["device"], &again["device"]),
        (&"disk1".into(), &"disk2".into())
    );
    assert_eq!(attached["volumes"][0]["device"], "disk1s1");
    assert_eq!(attached["read_only"], true);
    assert!(host.path("Volumes/Vol").is_dir() && host.path("Volumes/Vol 1").is_dir());
    assert!(fs::write(host.path("Volumes/Vol/new"), "x").is_err());
    let listed = host.listed();
    assert_eq!(
        (&listed[0]["usage"], &listed[0]["locations"][0]),
        (&"attached".into(), &attached["volumes"][0]["mount_point"])
    );
    assert!(host.fails(4, &["detach", "x.dmg"]).contains("disk1, disk2"));
    host.ok(&["detach", "/dev/disk1s1"]);
    host.ok(&["detach", "Volumes/Vol 1"]);
    assert_eq!(fs::read_dir(host.path("Volumes")).unwrap().count(), 0);
    // The disk as a file.
    let attached = host.ok(&["attach", "x.img", "--nomount", "--folders"]);
    let disk = PathBuf::from(attached["volumes"][0]["mount_point"].as_str().unwrap()).join("x.img");
    assert_eq!(
        fs::metadata(&disk).unwrap().len(),
        fs::metadata(host.path("x.img")).unwrap().len()
    );
    let file = File::options().read(true).write(true).open(&disk).unwrap();
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, 1024).unwrap();
    file.write_all_at(&sector, 1024).unwrap();
    file.sync_all().unwrap();
    assert!(file.set_len(1).is_err());
    host.ok(&["detach", "disk1", "--force"]);
    host.0.ok(&["check", "x.img"]);
    // Read-only, where the kernel may read the host's file by itself.
    host.ok(&["mount", "x.img", "mnt", "--as-disk", "--read-only"]);
    assert!(fs::read(host.path("mnt/x.img")).unwrap() == fs::read(host.path("x.img")).unwrap());
    assert!(
        File::options()
            .write(true)
            .open(host.path("mnt/x.img"))
            .is_err()
    );
    host.ok(&["detach", "mnt"]);
}

/// Made composed or decomposed, a name is found by both; APFS lists what was made, HFS+ what
/// programs on Linux write, or macOS.
#[test]
fn names_are_found_however_they_are_composed() {
    let Some(host) = Host::new("names_are_found_however_they_are_composed") else {
        return;
    };
    let both = [
        ("Gr\u{F6}\u{DF}e", "Gro\u{308}\u{DF}e"),
        ("\u{AE00} \u{E9}", "\u{1100}\u{1173}\u{11AF} e\u{301}"),
    ];
    let [composed, decomposed] = [both.map(|(name, _)| name), both.map(|(_, name)| name)];
    for (kind, options, listed) in [
        ("hfs+", "rw", composed),
        ("hfsx", "nfd", decomposed),
        ("apfs", "rw", [both[0].0, both[1].1]),
    ] {
        host.0.ok(&[
            "create",
            "x.sparsebundle",
            "--size",
            "64m",
            "--fs",
            kind,
            "--overwrite",
        ]);
        host.ok(&["mount", "x.sparsebundle", "mnt", "-o", options]);
        let mnt = host.path("mnt");
        fs::write(mnt.join(both[0].0), "first").unwrap();
        fs::write(mnt.join(both[1].1), "second").unwrap();
        for (names, text) in both.iter().zip(["first", "second"]) {
            for name in [names.0, names.1] {
                assert_eq!(fs::read_to_string(mnt.join(name)).unwrap(), text, "{kind}");
                assert_eq!(
                    File::create_new(mnt.join(name)).unwrap_err().kind(),
                    std::io::ErrorKind::AlreadyExists,
                    "{kind}"
                );
            }
        }
        let names = || {
            fs::read_dir(&mnt)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        };
        let mut found: Vec<_> = names().filter(|name| !name.starts_with('.')).collect();
        found.sort();
        let mut expected = listed.map(String::from);
        expected.sort();
        assert_eq!(found, expected, "{kind}");
        fs::remove_file(mnt.join(both[0].1)).unwrap();
        fs::remove_file(mnt.join(both[1].0)).unwrap();
        assert!(names().all(|name| name.starts_with('.')), "{kind}");
        host.ok(&["detach", "mnt"]);
        host.0.ok(&["check", "x.sparsebundle"]);
    }
}

/// A volume of two names that are one on the volume where they are to be.
#[test]
fn extracting_replaces_no_file_that_came_before_it() {
    let Some(host) = Host::new("extracting_replaces_no_file_that_came_before_it") else {
        return;
    };
    for (name, text) in [
        ("Foo", "upper"),
        ("foo", "lower"),
        ("Dir/in", "upper"),
        ("dir/in", "lower"),
    ] {
        host.0.write(&format!("src/{name}"), text);
    }
    host.0.ok(&[
        "create",
        "two.img",
        "--fs",
        "hfsx",
        "--from",
        "src",
        "--volname",
        "Two",
    ]);
    host.bundle("one.sparsebundle");
    fs::create_dir(host.path("mnt")).unwrap();
    host.ok(&["mount", "one.sparsebundle", "mnt"]);
    for time in ["first", "again"] {
        let output = host.run(&["extract", "--overwrite", "two.img", "mnt"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{time}: {said}");
        assert!(
            said.contains("/foo: ") && said.contains("/dir: ") && said.contains("name collision"),
            "{time}: {said}"
        );
        assert_eq!(
            fs::read_to_string(host.path("mnt/Foo")).unwrap(),
            "upper",
            "{time}"
        );
        assert_eq!(
            fs::read_to_string(host.path("mnt/Dir/in")).unwrap(),
            "upper",
            "{time}"
        );
    }
    host.ok(&["detach", "mnt"]);
}

/// An image in use is named with the command that uses it, and the one that ends that.
#[test]
fn the_use_of_an_image_is_named() {
    let Some(host) = Host::new("the_use_of_an_image_is_named") else {
        return;
    };
    host.bundle("a.sparsebundle");
    let mounted = host.ok(&["mount", "a.sparsebundle", "at"]);
    let folder = fs::canonicalize(host.path("at")).unwrap();
    let user = format!("in use by bandsaw mount (pid {})", mounted["process"]);
    let hint = format!("run `bandsaw detach {}` first", folder.display());
    for args in [
        vec!["ls", "a.sparsebundle"],
        vec!["check", "a.sparsebundle"],
        vec!["cat", "a.sparsebundle:/x"],
    ] {
        let printed = host.fails(4, &args);
        let used = format!("a.sparsebundle: image: cannot open: {user}");
        assert!(printed.contains(&used), "{args:?}: {printed}");
        assert!(printed.contains(&hint), "{args:?}: {printed}");
    }
    for args in [
        vec!["tree", "a.sparsebundle"],
        vec!["extract", "a.sparsebundle", "out"],
        vec!["cp", "a.sparsebundle:/x", "out"],
        vec!["convert", "a.sparsebundle", "b.img"],
        vec!["checksum", "a.sparsebundle"],
        vec!["mkdir", "a.sparsebundle:/x"],
        vec!["compact", "a.sparsebundle"],
        vec!["trim", "a.sparsebundle"],
        vec!["repair", "a.sparsebundle"],
        vec!["resize", "a.sparsebundle", "--size", "2g"],
        vec!["reband", "a.sparsebundle", "--band-size", "2m"],
        vec!["report", "a.sparsebundle", "-o", "a.html"],
        vec!["snapshot", "create", "a.sparsebundle", "one"],
        vec!["diagnose", "a.sparsebundle"],
    ] {
        let printed = host.fails(4, &args);
        assert!(printed.contains(&hint), "{args:?}: {printed}");
    }
    // Facts that need no lock are shown.
    let facts = host.ok(&["info", "a.sparsebundle"]);
    assert_eq!(facts["format"], "UDSB");
    assert!(facts["size"].as_u64() > Some(0), "{facts}");
    let printed = facts["warnings"][0]["message"].as_str().unwrap();
    assert!(
        printed.contains(&user) && printed.contains(&hint),
        "{printed}"
    );
    assert!(printed.contains(folder.to_str().unwrap()), "{printed}");
    host.ok(&["detach", "at"]);
    host.wait_for_none();
    host.ok(&["mount", "a.sparsebundle", "at", "--read-only"]);
    for verb in ["info", "ls", "check", "du"] {
        host.ok(&[verb, "a.sparsebundle"]);
    }
    host.ok(&["detach", "at"]);
}

/// A path is bytes.
#[test]
fn an_image_whose_path_is_not_utf8_is_mounted() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let Some(host) = Host::new("an_image_whose_path_is_not_utf8_is_mounted") else {
        return;
    };
    host.bundle("a.sparsebundle");
    let name = OsStr::from_bytes(b"b\xff.sparsebundle");
    fs::rename(host.path("a.sparsebundle"), host.path("").join(name)).unwrap();
    let run = |args: &[&OsStr]| {
        let mut command = host.0.command(&["--json"]);
        command
            .args(args)
            .env("XDG_RUNTIME_DIR", host.path(""))
            .env("HOME", host.path(""));
        command.output().unwrap()
    };
    let output = run(&["mount".as_ref(), name, "at".as_ref()]);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(host.path("at/new"), "new").unwrap();
    let image = host.listed()[0]["path"].as_str().unwrap().to_owned();
    assert!(image.ends_with("/b\\xFF.sparsebundle"), "{image}");
    let used = run(&["ls".as_ref(), name]);
    assert_eq!(used.status.code(), Some(4));
    assert!(
        stderr(&used).contains("bandsaw detach"),
        "{}",
        stderr(&used)
    );
    let output = run(&["detach".as_ref(), name]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run(&["ls".as_ref(), name]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"new\""));
}

/// The age from which a file counts as unchanged: one that was changed just now could change again within
/// the same tick of the clock. No program can set the time of a change, so the test has to wait.
const CLOCK_TICK: Duration = Duration::from_millis(150);

/// A compressed image is compared with its checksums before it is used, once.
#[test]
fn a_damaged_image_is_not_mounted() {
    let Some(host) = Host::new("a_damaged_image_is_not_mounted") else {
        return;
    };
    host.0.write("src/hello.txt", "hello, world\n");
    host.0
        .ok(&["create", "a.img", "--from", "src", "--size", "8m"]);
    host.0
        .ok(&["convert", "a.img", "a.dmg", "--format", "udro"]);
    let list = host.path("cache/bandsaw/verified");
    let mounts = |option: Option<&str>| {
        let args = ["mount", "a.dmg", "at"];
        let mounted = host.ok(&args.into_iter().chain(option).collect::<Vec<_>>());
        host.ok(&["detach", mounted["device"].as_str().unwrap()]);
        host.wait_for_none();
    };
    let refused = |option: &[&str]| {
        for args in [
            vec!["mount", "a.dmg", "at"],
            vec!["attach", "a.dmg", "--folders"],
        ] {
            let printed = host.fails(5, &[&args, option].concat());
            for part in [
                "checksum mismatch of",
                "(bytes ",
                "`bandsaw verify`",
                "--no-verify",
            ] {
                assert!(printed.contains(part), "{args:?}: {printed}");
            }
        }
        assert_eq!(host.listed(), [] as [Value; 0]);
    };
    let identity = || {
        let meta = fs::metadata(host.path("a.dmg")).unwrap();
        let (mtime, ctime) = (
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        );
        format!(
            "{}:{}:{}:{}.{:09}:{}.{:09}\n",
            meta.dev(),
            meta.ino(),
            meta.size(),
            mtime.0,
            mtime.1,
            ctime.0,
            ctime.1
        )
    };

    thread::sleep(CLOCK_TICK);
    mounts(Some("--no-verify"));
    assert!(!list.exists(), "nothing was verified");
    mounts(None);
    let remembered = fs::read_to_string(&list).unwrap();
    assert_eq!(remembered, identity());
    mounts(None);
    assert_eq!(fs::read_to_string(&list).unwrap(), remembered);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&host.path("cache/bandsaw")), 0o700);
    assert_eq!(mode(&list), 0o600);

    // Changed with the same size and the same date.
    let file = File::options()
        .write(true)
        .read(true)
        .open(host.path("a.dmg"))
        .unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let bytes = fs::read(host.path("a.dmg")).unwrap();
    let at = bytes
        .windows(12)
        .position(|bytes| bytes == b"hello, world")
        .unwrap();
    file.write_all_at(b"H", at as u64).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    refused(&[]);
    mounts(Some("--no-verify"));

    // Said to be verified, it is not compared, unless that is asked for or the list is another's.
    fs::write(&list, identity()).unwrap();
    mounts(None);
    refused(&["--verify"]);
    for folder in [host.path("cache/bandsaw"), list.clone()] {
        let usual = fs::metadata(&folder).unwrap().permissions();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        refused(&[]);
        fs::set_permissions(&folder, usual).unwrap();
    }
    fs::rename(&list, host.path("list")).unwrap();
    std::os::unix::fs::symlink(host.path("list"), &list).unwrap();
    refused(&[]);
}

#[test]
fn a_core_storage_volume_is_mounted_for_reading_only() {
    let Some(host) = Host::new("a_core_storage_volume_is_mounted_for_reading_only") else {
        return;
    };
    let disks = Options::new(fuzz::sample(false, 4096), "open sesame").build();
    host.0.write("0.img", &disks[0]);
    host.0.write("pass", "open sesame\n");
    let key = ["--volume-passfile", "pass"];
    let told = host.run(&[&["mount", "0.img", "mnt"][..], &key].concat());
    assert!(
        told.status.success() && stderr(&told).contains("read-only"),
        "{}",
        stderr(&told)
    );
    assert!(fs::create_dir(host.path("mnt/new")).is_err());
    host.ok(&["detach", "mnt"]);
    host.ok(&[&["mount", "-r", "0.img", "mnt"][..], &key].concat());
    let file = host.path("mnt/docs/deep/file.txt");
    assert_eq!(fs::read(&file).unwrap(), b"deep down");
    assert!(fs::write(&file, "no").is_err());
    host.ok(&["detach", "mnt"]);
    assert!(fs::read(host.path("0.img")).unwrap() == disks[0]);
}

#[test]
fn an_apple_archive_is_mounted_for_reading_only() {
    let Some(host) = Host::new("an_apple_archive_is_mounted_for_reading_only") else {
        return;
    };
    let archive = bandsaw::fs::apple_archive::fixture::archive();
    host.0.write("x.aar", &archive);
    host.ok(&["mount", "x.aar", "mnt"]);
    for name in ["file.txt", "again.txt"] {
        let read = fs::read(host.path("mnt/folder").join(name)).unwrap();
        assert_eq!(read, bandsaw::fs::apple_archive::fixture::CONTENTS);
    }
    assert_eq!(
        fs::read(host.path("mnt/unknown/large")).unwrap().len(),
        70_000
    );
    assert!(fs::create_dir(host.path("mnt/new")).is_err());
    host.ok(&["detach", "mnt"]);
    assert!(fs::read(host.path("x.aar")).unwrap() == archive);
}
