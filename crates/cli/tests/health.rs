//! The health of bundles on a share.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bandsaw::store::{Local, Lock, Store};
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
fn damage_is_damage_and_tells_if_a_restore_is_possible() {
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
    let found = verdict(&scratch, &[]);
    ends.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(found, (0, "in_use".to_owned()));
    assert_eq!(verdict(&scratch, &[]), (0, "sound".to_owned()));
}

#[test]
fn what_macos_refuses_needs_attention_and_what_is_encrypted_is_locked() {
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
