//! The health of bundles on a share.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandsaw::store::{Local, Lock, Store};
use bandsaw_states::sealed::{Found, from_bytes, to_bytes};
#[cfg(target_os = "linux")]
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::backupd::{self, History};
use crate::common::{Scratch, stderr};

/// A share with a bundle of backups, in a folder of its user.
fn share() -> Scratch {
    let scratch = Scratch::new();
    let history = History::new(31, 4, 10);
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    fs::create_dir_all(scratch.path("share/anna")).unwrap();
    scratch.ok(&["convert", "hfs.img", MAC, "--band-size", "1m"]);
    let list = format!("{MAC}/com.apple.TimeMachine.SnapshotHistory.plist");
    scratch.write(&list, history.list());
    scratch
}

const MAC: &str = "share/anna/Mac.sparsebundle";

/// Runs a check; returns its exit code and the bundles.
fn health(scratch: &Scratch, args: &[&str]) -> (i32, Vec<Value>) {
    let output = scratch.run(&[&["health", "share", "--json"], args].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let bundles = report["bundles"].as_array().unwrap().clone();
    (output.status.code().unwrap(), bundles)
}

fn verdict(scratch: &Scratch, args: &[&str]) -> (i32, String) {
    let (code, bundles) = health(scratch, args);
    assert_eq!(bundles.len(), 1, "{bundles:?}");
    (code, bundles[0]["verdict"].as_str().unwrap().to_owned())
}

#[test]
fn a_sound_bundle_is_sound_and_has_its_figures() {
    let scratch = share();
    for depth in ["quick", "full"] {
        let (code, bundles) = health(&scratch, &["--depth", depth]);
        let one = &bundles[0];
        assert_eq!((code, &one["verdict"]), (0, &"sound".into()), "{one}");
        assert_eq!(one["path"], MAC);
        assert_eq!(one["backup_count"], 4);
        for field in ["size", "allocated", "reclaimable", "free", "host_free"] {
            assert!(one[field].is_u64(), "{field}: {one}");
        }
    }
    // The backups are of January 2026.
    let old = verdict(&scratch, &["--max-age", "1h"]);
    assert_eq!(old, (8, "needs_attention".to_owned()));
    let (_, bundles) = health(&scratch, &["--max-age", "1h"]);
    let causes = bundles[0]["causes"].to_string();
    assert!(
        causes.contains("macOS 26.4") && causes.contains("sleeps"),
        "{causes}"
    );
    assert_eq!(verdict(&scratch, &["--max-age", "5200w"]).0, 0);
    let text = scratch.ok(&["health", "share"]);
    assert!(
        text.starts_with("sound") && text.contains("last backup 2026-01"),
        "{text}"
    );
    fs::create_dir(scratch.path("empty")).unwrap();
    scratch.fails(3, &["health", "empty"]);
    assert_eq!(scratch.run(&["health", "absent"]).status.code(), Some(1));
}

#[test]
fn metrics_are_replaced_in_one_step() {
    let scratch = share();
    scratch.write("bandsaw.prom", "old");
    let args = ["health", "share", "--prometheus", "bandsaw.prom"];
    scratch.ok(&args);
    let text = fs::read_to_string(scratch.path("bandsaw.prom")).unwrap();
    let sound = format!("bandsaw_bundle_verdict{{path=\"{MAC}\",verdict=\"sound\"}} 1\n");
    assert!(text.contains(&sound), "{text}");
    assert!(
        text.contains("bandsaw_bundle_last_backup_timestamp_seconds{"),
        "{text}"
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with("bandsaw_") && value.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    assert_eq!(scratch.names(), ["bandsaw.prom", "hfs.img", "share"]);
}

#[test]
fn damage_is_reported_with_the_possibility_of_a_restore() {
    let scratch = share();
    // Contents of the catalog: names of files.
    let bands = scratch.path(MAC).join("bands");
    let mut damaged = 0;
    for band in fs::read_dir(&bands).unwrap() {
        let path = band.unwrap().path();
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        for at in (0..bytes.len().saturating_sub(16)).step_by(2) {
            if bytes[at..at + 16] == *b"\0f\0i\0l\0e\0 \0\x31\0\x32\0" {
                bytes[at + 1] = b'z';
                break;
            }
        }
        if bytes == whole {
            continue;
        }
        fs::write(&path, &bytes).unwrap();
        let (code, verdict) = verdict(&scratch, &[]);
        if code != 0 {
            assert_eq!((code, verdict.as_str()), (5, "damaged_restorable"));
            damaged += 1;
        }
        fs::write(&path, &whole).unwrap();
    }
    let _ = damaged;
    // Everything is overwritten.
    for band in fs::read_dir(&bands).unwrap() {
        let path = band.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, vec![7; bytes.len()]).unwrap();
    }
    let (code, verdict) = verdict(&scratch, &[]);
    assert!(
        code != 0 && verdict != "sound" && verdict != "in_use",
        "{code} {verdict}"
    );
}

#[test]
fn a_bundle_in_use_is_never_damaged() {
    let scratch = share();
    let store = Local::new(scratch.path(MAC));
    let used = store.lock("lock", Lock::Exclusive).unwrap();
    assert_eq!(verdict(&scratch, &[]), (0, "in_use".to_owned()));
    drop(used);
    // A writer without locks changes it all the time.
    let ends = Arc::new(AtomicBool::new(false));
    let band = scratch.path(MAC).join("bands/0");
    let writer = {
        let (ends, band) = (ends.clone(), band.clone());
        thread::spawn(move || {
            let file = File::options().write(true).open(band).unwrap();
            let mut time = std::time::SystemTime::now();
            while !ends.load(Ordering::Relaxed) {
                time += std::time::Duration::from_nanos(1_000_000);
                file.set_modified(time).unwrap();
            }
        })
    };
    // On a busy machine the writer may not get a turn during one check.
    let mut found = (0, String::new());
    for _ in 0..50 {
        found = verdict(&scratch, &[]);
        assert!(found.0 == 0 && ["in_use", "sound"].contains(&&*found.1));
        if found.1 == "in_use" {
            break;
        }
    }
    ends.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(found, (0, "in_use".to_owned()));
    assert_eq!(verdict(&scratch, &[]), (0, "sound".to_owned()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_bundle_with_a_locked_file_is_in_use() {
    let scratch = share();
    let lock = FlockOperation::NonBlockingLockShared;
    for name in ["token", "bands/0"] {
        let path = scratch.path(MAC).join(name);
        let file = File::options().read(true).write(true).open(path).unwrap();
        rustix::fs::fcntl_lock(&file, lock).unwrap();
        let (code, bundles) = health(&scratch, &[]);
        assert_eq!(
            (code, &bundles[0]["verdict"]),
            (0, &"in_use".into()),
            "{bundles:?}"
        );
        let process = format!("process {} ", std::process::id());
        let reason = bundles[0]["reasons"][0].as_str().unwrap();
        assert!(reason.contains(&process), "{reason}");
    }
    assert_eq!(verdict(&scratch, &[]), (0, "sound".to_owned()));
}

/// The record of a check. The order of the fields is that of the file, which has a hash.
#[derive(Serialize, Deserialize)]
struct Known {
    version: String,
    bundles: Vec<KnownBundle>,
}

#[derive(Serialize, Deserialize)]
struct KnownBundle {
    device: u64,
    inode: u64,
    files: String,
    whole: bool,
    read: i64,
    contents: KnownContents,
    sizes: Vec<(i64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct KnownContents {
    backups: Option<u64>,
    last_backup: Option<i64>,
    allocated: Option<u64>,
    reclaimable: Option<u64>,
    size: Option<u64>,
    free: Option<u64>,
}

#[test]
fn growth_is_reported_from_the_second_day_on() {
    const DAY: i64 = 86_400;
    let scratch = share();
    assert!(unchanged(&scratch)["growth_per_day"].is_null());
    // As if all checks had been ten days ago, when the bundle was smaller.
    let record = scratch.path("cache/bandsaw/health");
    let bytes = fs::read(&record).unwrap();
    let Found::Whole(mut known) = from_bytes::<Known>(&bytes, 1).unwrap() else {
        panic!("it was just written");
    };
    let (time, size) = &mut known.bundles[0].sizes[0];
    *time -= 10 * DAY;
    *size -= 100 << 10;
    fs::write(&record, to_bytes(1, &known).unwrap()).unwrap();
    let one = remembered(&scratch, &[]);
    let growth = one["growth_per_day"].as_i64().unwrap();
    assert!((10_000..=10_240).contains(&growth), "{growth}");
    let mut command = scratch.command(&["health", "share"]);
    let output = command
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(
        text.contains("\n  grows by ") && text.contains(" a day"),
        "{text}"
    );
}

#[test]
fn refused_bundles_need_attention_and_encrypted_ones_are_locked() {
    let scratch = share();
    let list = backupd::plist("<dict><key>VerificationState</key><integer>2</integer></dict>");
    let path = format!("{MAC}/com.apple.TimeMachine.MachineID.plist");
    scratch.write(&path, list);
    let (code, bundles) = health(&scratch, &[]);
    assert_eq!(
        (code, &bundles[0]["verdict"]),
        (8, &"needs_attention".into())
    );
    assert_eq!(bundles[0]["verification_state"], 2);
    scratch.write(&path, "no list");
    assert_eq!(verdict(&scratch, &[]).0, 8);
    fs::remove_file(scratch.path(&path)).unwrap();
    scratch.write("key", "secret\n");
    let secret = [
        "convert",
        "hfs.img",
        "share/Secret.sparsebundle",
        "--encrypt",
    ];
    let key = [
        "--new-passfile",
        "key",
        "--iterations",
        "150000",
        "--band-size",
        "1m",
    ];
    scratch.ok(&[&secret[..], &key].concat());
    let (code, bundles) = health(&scratch, &[]);
    assert_eq!(code, 8);
    assert_eq!(bundles[0]["verdict"], "locked", "{bundles:?}");
    assert_eq!(health(&scratch, &["--passfile", "key"]).0, 0);
}

/// Runs a check with a cache folder of its own until it says that the bundle has not changed: that
/// takes some seconds, as younger files could be written again without getting other times.
fn unchanged(scratch: &Scratch) -> Value {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let one = remembered(scratch, &[]);
        if one["unchanged_since"].is_string() {
            return one;
        }
        assert_eq!(one["verdict"], "sound", "{one}");
        assert!(Instant::now() < deadline, "never remembered: {one}");
    }
}

/// The only bundle of a check with a cache folder of its own.
fn remembered(scratch: &Scratch, args: &[&str]) -> Value {
    let args = [&["health", "share", "--json"], args].concat();
    let mut command = scratch.command(&args);
    let output = command
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .output();
    let output = output.unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    report["bundles"][0].clone()
}

#[test]
fn an_unchanged_bundle_is_not_read_again() {
    let scratch = share();
    let first = remembered(&scratch, &["--depth", "quick"]);
    assert!(first["unchanged_since"].is_null(), "{first}");
    let again = unchanged(&scratch);
    for field in ["size", "allocated", "reclaimable", "free", "backup_count"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    // Options that need nothing of the bands are obeyed.
    let old = remembered(&scratch, &["--max-age", "1h"]);
    assert_eq!(old["verdict"], "needs_attention");
    assert!(old["unchanged_since"].is_string(), "{old}");
    assert!(remembered(&scratch, &["--full"])["unchanged_since"].is_null());
    let of_another_state = remembered(&scratch, &["--image-format", "udsb"]);
    assert!(of_another_state["unchanged_since"].is_null());
    let mut command = scratch.command(&["health", "share"]);
    let output = command
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains("\n  unchanged since 2"), "{text}");
    assert!(text.contains(", not read again\n"), "{text}");

    // One in use is reported as such.
    let used = Local::new(scratch.path(MAC)).lock("lock", Lock::Exclusive);
    assert_eq!(remembered(&scratch, &[])["verdict"], "in_use");
    drop(used.unwrap());
    assert!(remembered(&scratch, &[])["unchanged_since"].is_string());

    // Undo data of a repair that was interrupted.
    let undo = scratch.path("share/anna/Mac.sparsebundle.undo");
    fs::create_dir(&undo).unwrap();
    assert!(remembered(&scratch, &[])["unchanged_since"].is_null());
    fs::remove_dir(&undo).unwrap();
}

#[test]
fn any_change_of_a_file_makes_the_bundle_read_again() {
    let scratch = share();
    let band = scratch.path(MAC).join("bands/0");
    let list = scratch
        .path(MAC)
        .join("com.apple.TimeMachine.SnapshotHistory.plist");
    unchanged(&scratch);
    for path in [&band, &list] {
        // The same contents, and the same time of the last change of contents.
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        let bytes = fs::read(path).unwrap();
        fs::write(path, bytes).unwrap();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert!(remembered(&scratch, &[])["unchanged_since"].is_null());
        unchanged(&scratch);
    }
    // A sound bundle that is damaged later.
    let whole = fs::read(&band).unwrap();
    fs::write(&band, vec![7; whole.len()]).unwrap();
    let damaged = remembered(&scratch, &[]);
    assert!(damaged["unchanged_since"].is_null());
    assert_ne!(damaged["verdict"], "sound");
    // Damage is never remembered as sound.
    let again = remembered(&scratch, &[]);
    assert!(again["unchanged_since"].is_null());
    assert_eq!(again["verdict"], damaged["verdict"]);
}

#[test]
fn a_record_that_is_not_whole_is_ignored() {
    let scratch = share();
    unchanged(&scratch);
    let record = scratch.path("cache/bandsaw/health");
    let whole = fs::read(&record).unwrap();
    let step = (whole.len() / 12).max(1);
    let flipped = (0..whole.len()).step_by(step).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    });
    let cut = (0..whole.len())
        .step_by(step)
        .map(|at| whole[..at].to_vec());
    for bytes in flipped
        .chain(cut)
        .chain([vec![b'['; 1 << 20], vec![0xFF; 9]])
    {
        fs::write(&record, &bytes).unwrap();
        let one = remembered(&scratch, &["--depth", "quick"]);
        assert!(one["unchanged_since"].is_null(), "{one}");
        assert_eq!(one["verdict"], "sound");
    }
    // A record that others may write is not trusted.
    fs::write(&record, &whole).unwrap();
    assert!(remembered(&scratch, &[])["unchanged_since"].is_string());
    fs::set_permissions(&record, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(remembered(&scratch, &[])["unchanged_since"].is_null());
}

#[test]
fn causes_that_are_not_the_bundle_s_are_named() {
    let scratch = share();
    let causes = |args: &[&str]| {
        let (code, bundles) = health(&scratch, args);
        assert_eq!((code, &bundles[0]["verdict"]), (0, &"sound".into()));
        bundles[0]["causes"].as_array().unwrap().clone()
    };
    assert!(causes(&[]).is_empty());
    let quota = |bytes: u64| {
        let key = "<key>GlobalQuota</key>";
        backupd::plist(&format!("<dict>{key}<integer>{bytes}</integer></dict>"))
    };
    let list = "share/.com.apple.TimeMachine.quota.plist";
    scratch.write(list, quota(1 << 50));
    assert!(causes(&[]).is_empty());
    scratch.write(list, quota(4096));
    let found = causes(&[]);
    assert!(found[0].as_str().unwrap().contains("quota"), "{found:?}");
    scratch.write(list, "no list");
    let found = causes(&[]);
    assert!(found[0].as_str().unwrap().contains("cannot be read"));
    // A pipe, which nobody writes to.
    fs::remove_file(scratch.path(list)).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(scratch.path(list))
        .status();
    if made.is_ok_and(|made| made.success()) {
        assert_eq!(causes(&[]).len(), 1);
        fs::remove_file(scratch.path(list)).unwrap();
    }

    let share = scratch.path("share").canonicalize().unwrap();
    let config = format!(
        "Version 4.22.5\n[global]\n[tm]\n\tpath = {}/%U\n",
        share.display()
    );
    scratch.write("samba", config);
    let found = causes(&["--samba", "samba"]);
    let text = |at: usize| found[at].as_str().unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(text(0).contains("15926") && text(1).contains("fruit"));
    assert!(text(2).contains("fruit:time machine = yes"));
    let shown = scratch.ok(&["health", "share", "--samba", "samba"]);
    assert!(
        shown.contains("\n  not the bundle: Samba 4.22.5"),
        "{shown}"
    );
    scratch.write("samba", "nothing of it");
    scratch.fails(2, &["health", "share", "--samba", "samba"]);
}

#[test]
fn a_command_receives_only_changes() {
    let scratch = share();
    scratch.write("mail", "#!/bin/sh\ncat > \"$1\"; echo told\n");
    let mail = scratch.path("mail");
    fs::set_permissions(&mail, fs::Permissions::from_mode(0o755)).unwrap();
    let told = scratch.path("told");
    let round = |extra: &[&str]| {
        let _ = fs::remove_file(&told);
        let args = [
            "health",
            "share",
            "--json",
            "--max-age",
            "5200w",
            "--on-change",
        ];
        let command = ["./mail", "told"];
        let mut run = scratch.command(&[&args[..], &command, extra].concat());
        let output = run.env("XDG_CACHE_HOME", scratch.path("cache")).output();
        let output = output.unwrap();
        // The output of the command does not spoil the document.
        let _: Value = serde_json::from_slice(&output.stdout).unwrap();
        let notice = fs::read(&told).ok();
        let notice = notice.map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap());
        (output.status.code().unwrap(), notice)
    };
    // Sound, and nothing to compare with; and a bundle in use keeps that verdict.
    assert_eq!(round(&[]), (0, None));
    let used = Local::new(scratch.path(MAC)).lock("lock", Lock::Exclusive);
    assert_eq!(round(&[]), (0, None));
    drop(used.unwrap());
    let list = format!("{MAC}/com.apple.TimeMachine.MachineID.plist");
    let refused = backupd::plist("<dict><key>VerificationState</key><integer>2</integer></dict>");
    scratch.write(&list, &refused);
    let (code, notice) = round(&[]);
    let notice = notice.unwrap();
    assert_eq!(code, 8);
    assert_eq!(notice["changes"][0]["before"], "sound");
    assert_eq!(notice["changes"][0]["verdict"], "needs_attention");
    assert_eq!(notice["bundles"][0]["path"], MAC);
    assert_eq!(notice["schema"], 2);
    assert_eq!(round(&[]), (8, None));
    fs::remove_file(scratch.path(&list)).unwrap();
    // A command that fails is run again.
    let broken = |command: &str| {
        let args = [
            "health",
            "share",
            "--max-age",
            "5200w",
            "--on-change",
            command,
        ];
        let mut run = scratch.command(&args);
        let output = run.env("XDG_CACHE_HOME", scratch.path("cache")).output();
        output.unwrap().status.code()
    };
    assert_eq!(broken("./absent"), Some(3));
    assert_eq!(broken("false"), Some(1));
    let (code, notice) = round(&[]);
    assert_eq!(code, 0);
    assert_eq!(notice.unwrap()["changes"][0]["verdict"], "sound");
    // A command that does not read, and arguments after it.
    scratch.write(&list, &refused);
    let args = [
        "health",
        "--on-change",
        "true",
        "-x",
        ";",
        "share",
        "--max-age",
        "5200w",
    ];
    let mut run = scratch.command(&args);
    let output = run.env("XDG_CACHE_HOME", scratch.path("cache")).output();
    assert_eq!(output.unwrap().status.code(), Some(8));
    assert_eq!(round(&[]), (8, None));
    // Gone.
    fs::rename(scratch.path(MAC), scratch.path("moved.sparsebundle")).unwrap();
    let (code, notice) = round(&[]);
    assert_eq!(code, 3);
    let change = notice.unwrap()["changes"][0].clone();
    assert!(change["verdict"].is_null(), "{change}");
    assert_eq!(change["before"], "needs_attention");
}

#[test]
fn reading_is_limited() {
    let scratch = share();
    let began = Instant::now();
    // The check reads a few hundred kilobytes.
    let args = [
        "health",
        "share",
        "--limit-rate",
        "64k",
        "--low-priority",
        "--full",
    ];
    scratch.ok(&args);
    assert!(began.elapsed() >= Duration::from_millis(500));
    scratch.ok(&["scrub", MAC, "--limit-rate", "64m", "--low-priority"]);
    scratch.fails(2, &["health", "share", "--limit-rate", "fast"]);
}

/// A program that answers as `smbstatus` does, as far as it matters here.
#[test]
fn samba_is_asked_which_bundles_are_open() {
    let scratch = Scratch::new();
    for name in ["share/a.sparsebundle", "share/b.sparsebundle"] {
        fs::create_dir_all(scratch.path("share")).unwrap();
        scratch.ok(&["create", name, "--size", "20m", "--fs", "hfs+"]);
    }
    let share = scratch.path("share");
    let said = format!(
        "#!/bin/sh\ntest \"$1\" = --json || exit 1\necho '{{\"open_files\": {{\"x\": {{\"service_path\": \"{}\", \
         \"filename\": \"b.sparsebundle/token\"}}}}}}'\n",
        share.display()
    );
    let program = scratch.write("bin/smbstatus", said);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let verdicts = |path: &str| {
        let mut command = scratch.command(&["health", "share", "--smbstatus", "--json"]);
        let output = command.env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let bundles = report["bundles"].as_array().unwrap().iter();
        let verdicts = bundles.map(|one| one["verdict"].as_str().unwrap().to_owned());
        (verdicts.collect::<Vec<_>>(), stderr(&output))
    };
    let bin = scratch.path("bin").display().to_string();
    let (found, warned) = verdicts(&format!("{bin}:/bin:/usr/bin"));
    assert_eq!(
        (found, warned.as_str()),
        (vec!["sound".to_owned(), "in_use".into()], "")
    );
    // Without the program everything is checked, with a warning.
    let (found, warned) = verdicts("/nonexistent");
    assert_eq!(found, ["sound", "sound"]);
    assert!(warned.contains("Samba was not asked"), "{warned}");
}
