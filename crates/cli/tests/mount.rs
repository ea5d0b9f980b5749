//! `mount`, `attach` and `detach`: how they begin, what programs see, how they end. Skipped, by
//! name, where there is no FUSE.
#![cfg(target_os = "linux")]

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

    /// What the server of something that was mounted has said since.
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

/// What a deleted file took leaves the image: after fsync of a folder, and after unmounting.
#[test]
fn deleted_files_leave_every_plain_container() {
    let Some(host) = Host::new("deleted_files_leave_every_plain_container") else {
        return;
    };
    for name in ["x.img", "x.sparsebundle", "x.sparseimage", "x.asif"] {
        host.bundle(name);
        host.ok(&["mount", name, "mnt"]);
        let image = host.path(name);
        let before = du(&image);
        let mnt = host.path("mnt");
        fs::write(mnt.join("stays"), vec![1; 1 << 20]).unwrap();
        let mut large = File::create(mnt.join("large")).unwrap();
        large.write_all(&vec![2; 24 << 20]).unwrap();
        large.sync_all().unwrap();
        drop(large);
        let full = du(&image);
        assert!(full >= before + (24 << 20), "{name}: {before} {full}");
        fs::remove_file(mnt.join("large")).unwrap();
        let began = Instant::now();
        while du(&image) > full - (20 << 20) {
            assert!(
                began.elapsed() < Duration::from_secs(15),
                "{name}: {before} {full} {}",
                du(&image)
            );
            File::open(&mnt).unwrap().sync_all().unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        host.ok(&["detach", name]);
        assert!(
            du(&image) < before + (4 << 20),
            "{name}: {before} {full} {}",
            du(&image)
        );
        host.0.ok(&["check", name]);
    }
}

/// Storage of deleted files returns at the deletion or when the image is used the next time,
/// whatever its type and its volume. APFS holds blocks back for older checkpoints, so that only the
/// next use can return them.
#[test]
fn storage_of_deleted_files_returns_by_the_next_use() {
    let Some(host) = Host::new("storage_of_deleted_files_returns_by_the_next_use") else {
        return;
    };
    for (image, fs) in [
        ("a.img", "apfs"),
        ("a.sparsebundle", "apfs"),
        ("a.sparseimage", "apfs"),
        ("a.asif", "apfs"),
        ("h.img", "hfs+"),
        ("h.sparsebundle", "hfs+"),
        ("h.sparseimage", "hfs+"),
        ("h.asif", "hfs+"),
    ] {
        let path = host.path(image);
        host.0.ok(&[
            "create",
            image,
            "--size",
            "64m",
            "--fs",
            fs,
            "--volname",
            "Vol",
        ]);
        let empty = du(&path);
        for next in ["mount", "attach", "serve"] {
            host.ok(&["mount", image, "mnt"]);
            fs::write(host.path("mnt/stays"), vec![1; 1 << 20]).unwrap();
            fs::write(
                host.path("mnt/large"),
                (0..12_000_000_u32)
                    .map(|at| (at * 7 / 5) as u8)
                    .collect::<Vec<_>>(),
            )
            .unwrap();
            host.ok(&["detach", image]);
            assert!(
                du(&path) > empty + 11_000_000,
                "{image} {next}: {empty} {}",
                du(&path)
            );
            host.ok(&["mount", image, "mnt"]);
            fs::remove_file(host.path("mnt/large")).unwrap();
            host.ok(&["detach", image]);
            match next {
                "serve" => host.serve(image),
                "attach" => drop(host.ok(&["attach", image, "--mountroot", "Volumes"])),
                _ => drop(host.ok(&["mount", image, "mnt"])),
            }
            if next != "serve" {
                host.ok(&["detach", image]);
            }
            // The file that stays, and what the volume itself has got meanwhile.
            assert!(
                du(&path) < empty + (3 << 20),
                "{image} {next}: {empty} {}",
                du(&path)
            );
            host.0.ok(&["check", image]);
        }
        let stays = host
            .0
            .command(&["cat", &format!("{image}:/stays")])
            .output()
            .unwrap()
            .stdout;
        assert!(stays == vec![1; 1 << 20], "{image}");
    }
}

/// HFS+ has no holes: what is punched in a file of it becomes zeros, and stays allocated.
#[test]
fn an_image_on_a_host_without_holes_gives_whole_bands_back() {
    let Some(host) = Host::new("an_image_on_a_host_without_holes_gives_whole_bands_back") else {
        return;
    };
    host.bundle("host.sparsebundle");
    host.ok(&["mount", "host.sparsebundle", "mnt"]);
    let image = "mnt/in.sparsebundle";
    host.0.ok(&[
        "create",
        image,
        "--size",
        "32m",
        "--fs",
        "hfs+",
        "--band-size",
        "1m",
    ]);
    let bands = host.path(image).join("bands");
    fs::write(bands.join("10"), vec![2; 1 << 20]).unwrap();
    // The last band has the copy of the volume header at its end.
    let last = File::options().write(true).open(bands.join("1f")).unwrap();
    last.write_all_at(&vec![2; 512 << 10], 0).unwrap();
    last.sync_all().unwrap();
    drop(last);

    let number = |value: &Value| value.as_u64().unwrap();
    let usage = || host.ok(&["du", image])["items"][0]["image"]["units"].clone();
    let before = usage();
    assert_eq!(
        (&before["holes"], number(&before["reclaimable_parts"])),
        (&Value::Bool(false), 0),
        "{before}"
    );
    assert!(
        number(&before["reclaimable_whole"]) >= 1 << 20
            && number(&before["unreclaimable"]) >= 512 << 10,
        "{before}"
    );
    let done = host.ok(&["compact", "--zeros", "--battery-allowed", image]);
    assert!(
        done["holes"] == Value::Bool(false) && number(&done["reclaimed"]) >= 1 << 20,
        "{done}"
    );
    assert!(!bands.join("10").exists() && bands.join("1f").exists());
    let after = usage();
    assert!(
        number(&after["reclaimable_whole"]) == 0 && number(&after["unreclaimable"]) >= 512 << 10,
        "{after}"
    );
    assert!(
        host.0
            .ok(&["du", image])
            .contains("not known to support holes in files")
    );
    let mut names: Vec<_> = fs::read_dir(host.path(image))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["Info.bckup", "Info.plist", "bands", "lock", "token"],
        "nothing that holes were tried on is left"
    );
    host.0.ok(&["check", image]);
    host.ok(&["detach", "mnt"]);
}

#[test]
fn compressed_files_are_written_and_options_obeyed() {
    let Some(host) = Host::new("compressed_files_are_written_and_options_obeyed") else {
        return;
    };
    let text = "the same line again and again\n".repeat(4000);
    host.0.write("src/text", &text);
    host.0.write("src/read", &text);
    host.0.ok(&[
        "create",
        "x.sparsebundle",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--size",
        "32m",
    ]);
    host.0.ok(&["compress", "x.sparsebundle:/"]);
    host.ok(&[
        "mount",
        "x.sparsebundle",
        "mnt",
        "-o",
        "uid=12,gid=34,umask=027",
    ]);
    let path = host.path("mnt/text");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (12, 34, 0o640)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"one more").unwrap();
    drop(file);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text.clone() + "one more"
    );
    assert_eq!(fs::read_to_string(host.path("mnt/read")).unwrap(), text);
    host.ok(&["detach", "mnt"]);
    assert_eq!(
        host.0.ok(&["cat", "x.sparsebundle:/text"]),
        text + "one more"
    );
    host.0.ok(&["check", "x.sparsebundle"]);
    assert!(
        host.fails(2, &["mount", "x.sparsebundle", "mnt", "-o", "compress=lzo"])
            .contains("compress")
    );
    let helper = host.path("mount.bandsaw");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bandsaw"), &helper).unwrap();
    let mut command = Command::new(&helper);
    command
        .arg(host.path("x.sparsebundle"))
        .arg(host.path("mnt"))
        .args(["-o", "ro,noauto,nofail"]);
    assert!(
        command
            .env("XDG_RUNTIME_DIR", host.path(""))
            .status()
            .unwrap()
            .success()
    );
    assert!(fs::write(host.path("mnt/new"), "x").is_err());
    host.ok(&["detach", "mnt"]);
}

/// A full volume says so, and keeps what it has.
#[test]
fn a_full_volume_says_so() {
    let Some(host) = Host::new("a_full_volume_says_so") else {
        return;
    };
    host.bundle("x.sparsebundle");
    host.ok(&["mount", "x.sparsebundle", "mnt"]);
    let mnt = host.path("mnt");
    fs::write(mnt.join("kept"), "kept").unwrap();
    let fill = || -> std::io::Result<()> {
        let mut file = File::create(mnt.join("large"))?;
        for _ in 0..80 {
            file.write_all(&vec![3; 1 << 20])?;
        }
        file.sync_all()
    };
    assert_eq!(fill().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    fs::remove_file(mnt.join("large")).unwrap();
    fs::write(mnt.join("after"), "after").unwrap();
    host.ok(&["detach", "mnt"]);
    host.0.ok(&["check", "x.sparsebundle"]);
    assert_eq!(
        host.0
            .ok(&["cat", "x.sparsebundle:/kept", "x.sparsebundle:/after"]),
        "keptafter"
    );
}

/// With little memory, and more threads than fit into it: fewer threads serve, or the mount fails and
/// leaves nothing behind.
#[test]
fn a_mount_takes_no_more_threads_than_there_is_memory_for() {
    let Some(host) = Host::new("a_mount_takes_no_more_threads_than_there_is_memory_for") else {
        return;
    };
    host.bundle("x.img");
    let mut mounted = 0;
    for kib in [150_000, 400_000, 1_000_000] {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -v {kib}; ulimit -c 0; exec \"$@\""),
                "sh",
            ])
            .arg(env!("CARGO_BIN_EXE_bandsaw"))
            .args(["mount", "x.img", "mnt", "-o", "threads=64"])
            .current_dir(host.path(""))
            .env("XDG_RUNTIME_DIR", host.path(""))
            .env("HOME", host.path(""));
        let output = command.output().unwrap();
        if output.status.success() {
            mounted += 1;
            fs::write(host.path("mnt/file"), vec![7; 1 << 20]).unwrap();
            assert!(fs::read(host.path("mnt/file")).unwrap() == vec![7; 1 << 20]);
            host.ok(&["detach", "mnt"]);
        } else {
            assert_eq!(output.status.code(), Some(1), "{kib}: {}", stderr(&output));
            assert!(fs::read_dir(host.path("mnt")).is_ok() || !host.path("mnt").exists());
        }
        assert!(host.listed().is_empty(), "{kib}");
    }
    assert!(mounted > 0);
}

/// A compressed file of an image that lacks a band, while a file with another name may be that band: to
/// store the contents again would make zeros of it final. Other files are written.
#[test]
fn a_compressed_file_is_not_rewritten_while_a_band_may_be_misnamed() {
    let Some(host) = Host::new("a_compressed_file_is_not_rewritten_while_a_band_may_be_misnamed")
    else {
        return;
    };
    let mut random = bandsaw::testing::Random::new(1);
    fs::create_dir(host.path("src")).unwrap();
    for n in 0..10 {
        fs::write(host.path("src").join(format!("{n}")), random.bytes(500_000)).unwrap();
    }
    let text = "contents ".repeat(10_000);
    fs::write(host.path("src/text"), &text).unwrap();
    let create =
        "create x.sparsebundle --size 12m --band-size 1m --fs apfs --compress zlib --from src";
    host.0.ok(&create.split(' ').collect::<Vec<_>>());
    let band = |name: &str| host.path("x.sparsebundle/bands").join(name);
    fs::rename(band("3"), band("3.tmp")).unwrap();
    host.fails(9, &["decompress", "x.sparsebundle:/text"]);
    let mounted = host.ok(&["mount", "x.sparsebundle", "mnt"]);
    let write = |name: &str| {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(host.path("mnt").join(name))?;
        file.write_all(b"more").and_then(|()| file.sync_all())
    };
    assert_eq!(write("text").unwrap_err().raw_os_error(), Some(5));
    assert!(fs::read_to_string(host.path("mnt/text")).unwrap() == text);
    let log = host.log(&mounted);
    assert!(log.contains("3.tmp"), "{log}");
    write("other").unwrap();
    host.ok(&["detach", "mnt"]);
    fs::rename(band("3.tmp"), band("3")).unwrap();
    host.0.ok(&["check", "x.sparsebundle"]);
    assert!(host.0.ok(&["cat", "x.sparsebundle:/text"]) == text);
    host.ok(&["mount", "x.sparsebundle", "mnt"]);
    write("text").unwrap();
    host.ok(&["detach", "mnt"]);
    assert!(host.0.ok(&["cat", "x.sparsebundle:/text"]) == text + "more");
}

/// Names on a full volume: each is made, or fails with ENOSPC and changes nothing.
#[test]
fn names_on_a_full_volume_say_so() {
    let Some(host) = Host::new("names_on_a_full_volume_say_so") else {
        return;
    };
    for kind in ["hfs+", "hfs+j", "apfs"] {
        let create = [
            "create",
            "x.img",
            "--size",
            "24m",
            "--overwrite",
            "--fs",
            kind,
        ];
        host.0.ok(&create);
        host.ok(&["mount", "x.img", "mnt"]);
        let at = |name: &str| host.path("mnt").join(name);
        fs::write(at("kept"), "kept").unwrap();
        fs::write(at("moved"), "moved").unwrap();
        for (name, piece) in [("large", 1 << 20), ("small", 4096)] {
            let mut file = File::create(at(name)).unwrap();
            let full = (0..300)
                .try_for_each(|_| file.write_all(&vec![3; piece]))
                .and_then(|()| file.sync_all());
            assert_eq!(
                full.unwrap_err().kind(),
                std::io::ErrorKind::StorageFull,
                "{kind}"
            );
        }
        let mut names = vec!["kept".to_owned(), "large".to_owned(), "small".to_owned()];
        let (mut moved, mut failed) = ("moved".to_owned(), [0; 4]);
        for n in 0..20_000 {
            let name = format!("{n:0>200}");
            let action = n % failed.len();
            let done = match action {
                0 => fs::hard_link(at("kept"), at(&name)),
                1 => std::os::unix::fs::symlink("kept", at(&name)),
                2 => fs::create_dir(at(&name)),
                _ => fs::rename(at(&moved), at(&name)),
            };
            match done {
                Ok(()) if action == 3 => moved = name,
                Ok(()) => names.push(name),
                Err(error) => {
                    let full = std::io::ErrorKind::StorageFull;
                    assert_eq!(error.kind(), full, "{kind}: action {action}: {error}");
                    failed[action] += 1;
                }
            }
            if failed.iter().take(3).all(|times| *times > 2) {
                break;
            }
        }
        assert!(
            failed.iter().take(3).all(|times| *times > 2),
            "{kind}: {failed:?}"
        );
        names.push(moved);
        names.sort();
        let listed = |host: &Host| {
            let mut listed: Vec<_> = fs::read_dir(host.path("mnt"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            listed.sort();
            listed
        };
        assert_eq!(listed(&host), names, "{kind}");
        host.ok(&["detach", "mnt"]);
        host.0.ok(&["check", "x.img"]);
        host.ok(&["mount", "x.img", "mnt"]);
        assert_eq!(listed(&host), names, "{kind}");
        assert_eq!(fs::read(at("kept")).unwrap(), b"kept");
        fs::remove_file(at("large")).unwrap();
        fs::create_dir(at("after")).unwrap();
        host.ok(&["detach", "mnt"]);
        host.0.ok(&["check", "x.img"]);
    }
}

/// A host without room: programs hear of it, the owner reads it, and what was synced stays.
#[test]
fn a_full_host_says_so() {
    let Some(host) = Host::new("a_full_host_says_so") else {
        return;
    };
    host.bundle("host.sparsebundle");
    host.ok(&["mount", "host.sparsebundle", "mnt"]);
    host.0.ok(&[
        "create",
        "mnt/in.sparsebundle",
        "--size",
        "200m",
        "--fs",
        "hfs+",
        "--band-size",
        "1m",
    ]);
    let inner = host.ok(&["mount", "mnt/in.sparsebundle", "inner"]);
    let mut kept = File::create(host.path("inner/kept")).unwrap();
    kept.write_all(&vec![5; 1 << 20]).unwrap();
    kept.sync_all().unwrap();
    drop(kept);
    let mut large = File::create(host.path("inner/large")).unwrap();
    let full = (0..100)
        .try_for_each(|_| large.write_all(&vec![6; 1 << 20]))
        .and_then(|()| large.sync_all());
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    drop(large);
    assert!(fs::read(host.path("inner/kept")).unwrap() == vec![5; 1 << 20]);
    assert!(
        host.log(&inner).contains("No space left"),
        "{}",
        host.log(&inner)
    );
    // A change of the tables fails sooner or later; from then on every change says why.
    let folder = |n: u32| {
        fs::create_dir(host.path("inner").join(format!("{n:0>200}")))?;
        File::open(host.path("inner"))?.sync_all()
    };
    let failed: Vec<_> = (0..3000)
        .filter_map(|n| folder(n).err())
        .map(|error| error.kind())
        .take(3)
        .collect();
    assert_eq!(failed, [std::io::ErrorKind::StorageFull; 3]);
    // It fails, for what was never synced; it ends.
    let told = stderr(&host.run(&["detach", "inner"]));
    assert!(told.contains("free some space"), "{told}");
    host.run(&["detach", "--force", "inner"]);
    assert_eq!(host.listed().len(), 1);
    let left = host
        .0
        .command(&["cat", "mnt/in.sparsebundle:/kept"])
        .output()
        .unwrap()
        .stdout;
    assert!(left == vec![5; 1 << 20]);
    host.ok(&["detach", "mnt"]);
    host.0.ok(&["check", "host.sparsebundle"]);
}

/// Who takes an image away from under a volume is not told lies: what cannot be kept is not said to
/// be.
#[test]
fn an_image_that_vanishes_is_told_of() {
    let Some(host) = Host::new("an_image_that_vanishes_is_told_of") else {
        return;
    };
    for (name, gone) in [
        ("x.img", "x.img"),
        ("x.sparseimage", "x.sparseimage"),
        ("x.asif", "x.asif"),
        ("x.sparsebundle", "x.sparsebundle"),
        ("x.sparsebundle", "x.sparsebundle/bands"),
    ] {
        host.bundle(name);
        let mounted = host.ok(&["mount", name, "mnt"]);
        let mut file = File::create(host.path("mnt/file")).unwrap();
        file.write_all(&vec![1; 100_000]).unwrap();
        file.sync_all().unwrap();
        let gone_path = host.path(gone);
        match gone {
            "x.sparsebundle" => fs::remove_dir_all(gone_path).unwrap(),
            "x.sparsebundle/bands" => fs::read_dir(gone_path)
                .unwrap()
                .for_each(|band| fs::remove_file(band.unwrap().path()).unwrap()),
            _ => fs::remove_file(gone_path).unwrap(),
        }
        let lost = file
            .write_all(&vec![2; 20 << 20])
            .and_then(|()| file.sync_all());
        assert!(lost.is_err(), "{gone}");
        drop(file);
        let log = host.log(&mounted);
        assert!(log.contains(gone), "{gone}: {log}");
        let is_said = log.contains("removed or replaced");
        assert!(is_said || !gone.ends_with("bands"), "{log}");
        if gone != name {
            let told = host.fails(1, &["detach", "mnt"]);
            assert!(told.contains("removed or replaced"), "{told}");
        }
        host.run(&["detach", "--force", "mnt"]);
        assert!(host.listed().is_empty(), "{gone}");
        // The server may have created it again.
        let _ = fs::remove_dir_all(host.path("x.sparsebundle"));
    }
}

/// The failure of an image that nobody detached is not told of the next one, which has its device
/// name.
#[test]
fn a_failure_belongs_to_one_image() {
    let Some(host) = Host::new("a_failure_belongs_to_one_image") else {
        return;
    };
    host.bundle("x.sparsebundle");
    let mounted = host.ok(&["mount", "x.sparsebundle", "mnt"]);
    let mut file = File::create(host.path("mnt/file")).unwrap();
    for band in fs::read_dir(host.path("x.sparsebundle/bands")).unwrap() {
        fs::remove_file(band.unwrap().path()).unwrap();
    }
    let lost = file
        .write_all(&vec![2; 20 << 20])
        .and_then(|()| file.sync_all());
    assert!(lost.is_err());
    drop(file);
    let unmounted = Command::new("fusermount3")
        .args(["-u", "mnt"])
        .current_dir(host.path(""))
        .status();
    assert!(unmounted.unwrap().success());
    host.wait_for_none();
    let failures = || {
        let names = fs::read_dir(host.path("bandsaw")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let failures = names.filter(|name| name.ends_with(".failed"));
        failures.collect::<Vec<_>>()
    };
    let left = failures();
    assert_eq!(left.len(), 1, "{left:?}");

    host.bundle("y.sparsebundle");
    let second = host.ok(&["mount", "y.sparsebundle", "mnt"]);
    assert_eq!(second["device"], mounted["device"]);
    host.ok(&["detach", "mnt"]);
    assert_eq!(failures(), left, "it is not so old that it is removed");
    let old = host.path("bandsaw").join(&left[0]);
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    File::options()
        .write(true)
        .open(old)
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
    host.ok(&["mount", "y.sparsebundle", "mnt"]);
    host.ok(&["detach", "mnt"]);
    assert_eq!(failures(), [""; 0]);
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
        let used = format!("a.sparsebundle: cannot open: {user}");
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

    // A file that was changed just now could change again within the same tick of the clock.
    thread::sleep(Duration::from_millis(150));
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
