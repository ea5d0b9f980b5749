//! Full volumes and hosts, few threads, images that vanish: an error where it belongs, and no harm.

use super::*;

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

/// An image that is removed while it is mounted: no change counts as stored that is not.
#[test]
fn a_vanished_image_is_reported() {
    let Some(host) = Host::new("a_vanished_image_is_reported") else {
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
        assert!(log.contains(name), "{gone}: {log}");
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
