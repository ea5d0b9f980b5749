//! One round over the bundles of a file server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use bandsaw::store::{Local, Lock, Store};

use crate::common::{Scratch, stderr};

const KEEP: &str = "folders = ['share']\nkeep = true\nwhole-copy = true\n";

fn bundle(scratch: &Scratch, name: &str) {
    let args = [
        "create",
        name,
        "--size",
        "20m",
        "--band-size",
        "1m",
        "--fs",
        "hfs+",
    ];
    scratch.ok(&args);
}

/// A share with a sound bundle.
fn share(config: &str) -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("share")).unwrap();
    bundle(&scratch, "share/a.sparsebundle");
    scratch.write("watch.toml", config);
    scratch
}

/// Runs a round; returns its exit code and the verdicts by path.
fn round(scratch: &Scratch) -> (i32, Vec<(String, String)>) {
    let output = scratch.run(&["watch", "watch.toml", "--once", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let bundles = report["bundles"].as_array().unwrap().iter();
    let bundles = bundles.map(|bundle| (text(&bundle["path"]), text(&bundle["verdict"])));
    (output.status.code().unwrap(), bundles.collect())
}

fn states(scratch: &Scratch, name: &str) -> usize {
    let report = scratch.run(&["tm", "states", name, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    report["states"].as_array().unwrap().len()
}

const A: &str = "share/a.sparsebundle";

#[test]
fn a_sound_bundle_is_kept_and_states_are_no_bundles() {
    let scratch = share(&format!("{KEEP}states = 'share'\nkeep-last = 1\n"));
    // The folder of states would be the bundle itself.
    assert_ne!(round(&scratch).0, 0);
    scratch.write(
        "watch.toml",
        format!("{KEEP}states = 'share/states'\nkeep-last = 1\n"),
    );
    let sound = vec![(A.to_owned(), "sound".to_owned())];
    assert_eq!(round(&scratch), (0, sound.clone()));
    let kept = |scratch: &Scratch| {
        let folder = fs::read_dir(scratch.path("share/states/a.sparsebundle")).unwrap();
        let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "lock").collect();
        names.sort();
        names
    };
    let first = kept(&scratch);
    assert_eq!(first.len(), 1);
    // Nothing changed, so there is no second state.
    assert_eq!(round(&scratch), (0, sound.clone()));
    assert_eq!(kept(&scratch), first);
    scratch.write("letter", "dear diary");
    scratch.ok(&["put", "--from", "letter", "share/a.sparsebundle:/first"]);
    assert_eq!(round(&scratch), (0, sound.clone()));
    let second = kept(&scratch);
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    // A state that somebody copied beside the bundles.
    let from = scratch.path("share/states/a.sparsebundle").join(&second[0]);
    fs::rename(from, scratch.path("share/copied.sparsebundle")).unwrap();
    fs::remove_dir_all(scratch.path("share/states")).unwrap();
    scratch.write("watch.toml", "folders = ['share']");
    assert_eq!(round(&scratch), (0, sound));
}

#[test]
fn a_bundle_that_is_not_sound_gets_no_state() {
    let scratch = share(KEEP);
    bundle(&scratch, "share/b.sparsebundle");
    fs::write(
        scratch.path("share/b.sparsebundle/bands/0"),
        vec![7; 1 << 20],
    )
    .unwrap();
    bundle(&scratch, "share/lost.sparsebundle");
    for list in ["Info.plist", "Info.bckup"] {
        fs::remove_file(scratch.path("share/lost.sparsebundle").join(list)).unwrap();
    }
    let (code, verdicts) = round(&scratch);
    assert!(matches!(code, 5 | 8), "{code}");
    assert_eq!(verdicts[0].1, "sound");
    assert!(
        verdicts[1].1 != "sound" && verdicts[1].1 != "in_use",
        "{verdicts:?}"
    );
    assert_eq!(verdicts[2].1, "needs_attention");
    assert_eq!(states(&scratch, A), 1);
    assert_eq!(states(&scratch, "share/b.sparsebundle"), 0);
}

#[test]
fn unreadable_bundles_are_no_success() {
    let scratch = share("folders = ['share', 'absent']");
    let (code, verdicts) = round(&scratch);
    assert_eq!(code, 1);
    assert_eq!(verdicts[1], ("absent".to_owned(), "unreadable".to_owned()));
    scratch.write("watch.toml", "bundles = ['share/gone.sparsebundle']");
    assert_eq!(round(&scratch).0, 1);
    // A symbolic link that leads nowhere.
    scratch.write("watch.toml", "folders = ['share']");
    let link = scratch.path("share/x.sparsebundle");
    std::os::unix::fs::symlink("nowhere", link).unwrap();
    assert_eq!(round(&scratch).0, 1);
    fs::create_dir(scratch.path("empty")).unwrap();
    scratch.write("watch.toml", "folders = ['empty']");
    assert_eq!(round(&scratch).0, 3);
    for config in ["folders = [", "folder = ['share']", "keep = true"] {
        scratch.write("watch.toml", config);
        scratch.fails(2, &["watch", "watch.toml", "--once"]);
    }
    scratch.fails(3, &["watch", "absent.toml", "--once"]);
}

#[test]
fn a_bundle_in_use_is_passed_over_and_one_with_missing_bands_is_reported() {
    let scratch = share(&format!("{KEEP}scrub = true\n"));
    let store = Local::new(scratch.path(A));
    let used = store.lock("lock", Lock::Exclusive).unwrap();
    assert_eq!(
        round(&scratch),
        (0, vec![(A.to_owned(), "in_use".to_owned())])
    );
    drop(used);
    // Another conflict is no use.
    let rebanding = scratch.write("share/a.sparsebundle/rebanding.plist", "left");
    assert_eq!(round(&scratch).0, 8);
    fs::remove_file(rebanding).unwrap();
    assert_eq!(round(&scratch).0, 0);
    scratch.write("letter", vec![3; 3 << 20]);
    scratch.ok(&["put", "--from", "letter", "share/a.sparsebundle:/first"]);
    assert_eq!(round(&scratch).0, 0);
    scratch.ok(&["rm", "share/a.sparsebundle:/first"]);
    scratch.ok(&["compact", "--battery-allowed", A]);
    let (code, verdicts) = round(&scratch);
    assert_eq!((code, verdicts[0].1.as_str()), (8, "needs_attention"));
    scratch.ok(&["scrub", A, "--accept"]);
    assert_eq!(round(&scratch).0, 0);
}

#[test]
fn a_command_receives_changes() {
    let scratch = share("folders = ['share']\non-change = ['tee', '-a', 'told']");
    let round = || {
        let mut run = scratch.command(&["watch", "watch.toml", "--once"]);
        let output = run.env("XDG_CACHE_HOME", scratch.path("cache")).output();
        let code = output.unwrap().status.code().unwrap();
        let told = fs::read_to_string(scratch.path("told")).unwrap_or_default();
        (code, told.matches("\"changes\"").count())
    };
    assert_eq!(round(), (0, 0));
    let band = scratch.path(A).join("bands/0");
    let whole = fs::read(&band).unwrap();
    fs::write(&band, vec![7; whole.len()]).unwrap();
    let (code, told) = round();
    assert!(code != 0 && told == 1, "{code} {told}");
    assert_eq!(round(), (code, 1));
    fs::write(&band, &whole).unwrap();
    assert_eq!(round(), (0, 2));
    // Another command fails: the round does, too.
    scratch.write(
        "watch.toml",
        "folders = ['share']\non-change = ['./absent']",
    );
    assert_eq!(round(), (0, 2));
    fs::write(&band, vec![7; whole.len()]).unwrap();
    let (code, _) = round();
    assert_ne!(code, 0);
}

/// Returns the report on the only bundle.
fn report(scratch: &Scratch) -> serde_json::Value {
    let output = scratch.run(&["watch", "watch.toml", "--once", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    crate::json::assert_obeys(scratch, "watch", &report);
    report["bundles"][0].clone()
}

/// Bands that hold data in free space, as a Mac leaves them.
#[test]
fn a_sound_bundle_is_compacted_when_that_is_worth_it() {
    let scratch = share(&format!("{KEEP}compact-from = '4m'\n"));
    let fill = |band: &str| scratch.write(&format!("{A}/bands/{band}"), vec![7; 1 << 20]);
    for band in ["b", "c"] {
        fill(band);
    }
    let done = report(&scratch);
    assert_eq!(
        (&done["verdict"], &done["reclaimed"]),
        (&"sound".into(), &serde_json::Value::Null)
    );
    assert_eq!(
        fs::metadata(scratch.path(A).join("bands/b")).unwrap().len(),
        1 << 20
    );
    for band in ["d", "e", "f"] {
        fill(band);
    }
    let done = report(&scratch);
    assert_eq!(done["verdict"], "sound", "{done}");
    assert!(done["reclaimed"].as_u64().unwrap() >= 4 << 20, "{done}");
    assert!(!scratch.path(A).join("bands/b").exists());
    // The state is from before.
    let state = scratch
        .path(A)
        .join(".bandsaw/states")
        .join(done["state"].as_str().unwrap());
    assert!(state.join("bands/b").exists());
    scratch.ok(&["check", A]);
    // A damaged bundle stays as it is.
    fill("b");
    for band in ["c", "d", "e", "f"] {
        fill(band);
    }
    let first = fs::read(scratch.path(A).join("bands/0")).unwrap();
    scratch.write(&format!("{A}/bands/0"), vec![0; first.len()]);
    let done = report(&scratch);
    assert_ne!(done["verdict"], "sound");
    assert!(scratch.path(A).join("bands/b").exists());
    scratch.write("watch.toml", "folders = ['share']\ncompact-from = 'much'");
    assert_eq!(
        scratch
            .run(&["watch", "watch.toml", "--once"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn a_sound_bundle_gets_bands_of_the_size_in_the_configuration() {
    let scratch = share(&format!("{KEEP}band-size = '2m'\n"));
    let band_size = || scratch.json(&["info", A])["storage"]["band_size"].clone();
    // A damaged bundle, and one in use, stay as they are.
    let first = fs::read(scratch.path(A).join("bands/0")).unwrap();
    scratch.write(&format!("{A}/bands/0"), vec![7; first.len()]);
    assert_ne!(report(&scratch)["verdict"], "sound");
    scratch.write(&format!("{A}/bands/0"), &first);
    let used = Local::new(scratch.path(A)).lock("lock", Lock::Exclusive);
    assert_eq!(report(&scratch)["verdict"], "in_use");
    drop(used.unwrap());
    assert_eq!(band_size(), 1 << 20);
    let done = report(&scratch);
    assert_eq!(
        (&done["verdict"], &done["band_size"]),
        (&"sound".into(), &(2 << 20).into())
    );
    assert_eq!(band_size(), 2 << 20);
    scratch.ok(&["check", A]);
    // The state has the bands of before, and the next round changes nothing.
    assert_eq!(states(&scratch, A), 1);
    assert!(report(&scratch)["band_size"].is_null());
    assert_eq!(states(&scratch, A), 2);
    for config in ["band-size = 'wide'", "band-size = '1234567'"] {
        scratch.write("watch.toml", format!("folders = ['share']\n{config}\n"));
        scratch.fails(2, &["watch", "watch.toml", "--once"]);
    }
}

#[test]
fn an_interrupted_change_of_the_band_size_is_resumed() {
    let scratch = share("folders = ['share']\n");
    scratch.write("letter", bandsaw::testing::Random::new(5).bytes(12 << 20));
    scratch.ok(&["put", "--from", "letter", &format!("{A}:/letter")]);
    let args = ["reband", A, "--band-size", "2m", "--limit-rate", "1m"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(args)
        .current_dir(scratch.path(""))
        .spawn()
        .unwrap();
    let list = scratch.path(A).join("rebanding.plist");
    while !list.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(report(&scratch)["verdict"], "needs_attention");
    assert!(list.exists());
    scratch.write("watch.toml", "folders = ['share']\nband-size = '2m'\n");
    // Not while a client has a file open through a server.
    #[cfg(target_os = "linux")]
    {
        let file = fs::File::open(scratch.path(A).join("Info.plist")).unwrap();
        let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::fcntl_lock(&file, lock).unwrap();
        assert!(report(&scratch)["band_size"].is_null() && list.exists());
    }
    let done = report(&scratch);
    assert_eq!(
        (&done["verdict"], &done["band_size"]),
        (&"sound".into(), &(2 << 20).into())
    );
    assert!(!list.exists());
    let letter = scratch.run(&["cat", &format!("{A}:/letter")]).stdout;
    assert!(letter == fs::read(scratch.path("letter")).unwrap());
}

#[test]
fn without_an_answer_of_samba_no_bundle_is_changed() {
    let scratch = share("folders = ['share']\nsmbstatus = true\nband-size = '2m'\n");
    let round = |status: &str| {
        scratch.write("bin/smbstatus", status);
        let path = scratch.path("bin/smbstatus");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = scratch.command(&["watch", "watch.toml", "--once", "--json"]);
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", scratch.path("bin").display());
        let output = command.env("PATH", path).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["bundles"][0].clone(), stderr(&output))
    };
    let (done, said) = round("#!/bin/sh\nexit 1\n");
    assert_eq!(
        (&done["verdict"], &done["band_size"]),
        (&"sound".into(), &serde_json::Value::Null)
    );
    assert!(said.contains("Samba was not asked"), "{said}");
    let open = scratch.path(A).join("token");
    let (folder, name) = (scratch.path("share"), "a.sparsebundle/token");
    let open = format!(
        r#"{{"open_files": {{"{}": {{"service_path": "{}", "filename": "{name}"}}}}}}"#,
        open.display(),
        folder.display()
    );
    let (done, _) = round(&format!("#!/bin/sh\necho '{open}'\n"));
    assert_eq!(done["verdict"], "in_use");
    let (done, _) = round("#!/bin/sh\necho '{}'\n");
    assert_eq!(
        (&done["verdict"], &done["band_size"]),
        (&"sound".into(), &(2 << 20).into())
    );
}

#[test]
fn a_command_makes_snapshots_of_sound_bundles() {
    let command = "on-sound = ['sh', '-c', 'echo $1 >> log', 'sh', '{bundle} {time}']\n";
    let scratch = share(&format!("folders = ['share']\n{command}"));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    for _ in 0..2 {
        assert_eq!(report(&scratch)["verdict"], "sound");
    }
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.starts_with(&format!("{A} 20")) && log.trim_end().ends_with('Z'),
        "{log}"
    );
    scratch.write("letter", "dear diary");
    scratch.ok(&["put", "--from", "letter", &format!("{A}:/first")]);
    report(&scratch);
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
    // Neither a failure nor a bundle that changes meanwhile is a success.
    for (command, expected) in [
        ("['false']", "failed"),
        ("['touch', '{bundle}/bands/0']", "changed"),
        ("['no-such-program']", "no-such-program"),
    ] {
        scratch.write(
            "watch.toml",
            format!("folders = ['share']\non-sound = {command}\n"),
        );
        let done = report(&scratch);
        assert_eq!(done["verdict"], "needs_attention", "{done}");
        assert!(
            done["message"].as_str().unwrap().contains(expected),
            "{done}"
        );
    }
}
