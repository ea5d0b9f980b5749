//! States of a bundle and hashes of its bands, as a user gets them.

use std::fs;

use crate::common::{Scratch, peer_python, skip, stderr};

const BUNDLE: &str = "Mac.sparsebundle";

/// A bundle with a volume and a file in it.
fn bundle(scratch: &Scratch) {
    scratch.write("letter", "dear diary");
    let args = [
        "create",
        BUNDLE,
        "--size",
        "20m",
        "--band-size",
        "1m",
        "--fs",
        "hfs+",
    ];
    scratch.ok(&args);
    scratch.ok(&["put", "--from", "letter", "Mac.sparsebundle:/first"]);
}

fn keep(scratch: &Scratch) -> String {
    let kept = scratch.json(&["tm", "keep", BUNDLE, "--whole-copy"]);
    assert_eq!(kept["check"], "sound");
    kept["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_damaged_bundle_returns_to_its_last_sound_state() {
    let scratch = Scratch::new();
    bundle(&scratch);
    scratch.ok(&["tm", "status", BUNDLE]);
    let first = keep(&scratch);
    scratch.ok(&["put", "--from", "letter", "Mac.sparsebundle:/second"]);
    assert!(scratch.ok(&["tm", "status", BUNDLE]).contains(&first));
    let second = keep(&scratch);
    // The volume is overwritten: the state of a damaged bundle is kept, but does not count.
    for band in fs::read_dir(scratch.path("Mac.sparsebundle/bands")).unwrap() {
        let path = band.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        fs::write(&path, bytes).unwrap();
    }
    let output = scratch.run(&["tm", "keep", BUNDLE]);
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    let planned = scratch.ok(&["tm", "roll-back", BUNDLE, "--dry-run"]);
    assert!(
        planned.contains(&second) && planned.contains("lost"),
        "{planned}"
    );
    let done = scratch.ok(&["tm", "roll-back", BUNDLE]);
    assert!(done.contains("macOS compares all files"), "{done}");
    assert_eq!(
        scratch.ok(&["cat", "Mac.sparsebundle:/second"]),
        "dear diary"
    );
    scratch.ok(&["check", BUNDLE]);
    // It is a conflict until it is committed or undone.
    let refused = scratch.fails(4, &["tm", "roll-back", BUNDLE, &first]);
    assert!(refused.contains("--commit"), "{refused}");
    scratch.ok(&["tm", "roll-back", BUNDLE, "--commit"]);
    scratch.ok(&["tm", "roll-back", BUNDLE, &first]);
    scratch.fails(3, &["cat", "Mac.sparsebundle:/second"]);
    scratch.ok(&["tm", "roll-back", BUNDLE, "--undo"]);
    assert_eq!(
        scratch.ok(&["cat", "Mac.sparsebundle:/second"]),
        "dear diary"
    );
    let states = scratch.ok(&["tm", "states", BUNDLE, "--verify"]);
    assert!(
        states.lines().count() == 3 && states.contains("sound"),
        "{states}"
    );
    scratch.ok(&["tm", "forget", BUNDLE, "--keep-last", "1"]);
    let states = scratch.json(&["tm", "states", BUNDLE]);
    let names = states["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|state| &state["name"]);
    let names: Vec<_> = names.collect();
    assert!(names.len() == 2 && names[0] == &second, "{states}");
}

#[test]
fn a_state_is_read_as_an_image_and_never_changed() {
    let scratch = Scratch::new();
    bundle(&scratch);
    let planned = scratch.json(&["tm", "keep", BUNDLE, "--dry-run"]);
    if planned["shares_storage"] == false {
        let refused = scratch.fails(9, &["tm", "keep", BUNDLE]);
        assert!(refused.contains("--whole-copy"), "{refused}");
    }
    let args = [
        "tm",
        "keep",
        BUNDLE,
        "--whole-copy",
        "--states",
        "states",
        "--json",
    ];
    let kept = scratch.json(&args[..6]);
    let state = format!(
        "states/Mac.sparsebundle/{}",
        kept["state"].as_str().unwrap()
    );
    assert_eq!(
        scratch.ok(&["cat", &format!("{state}:/first")]),
        "dear diary"
    );
    let refused = scratch.fails(1, &["put", "--from", "letter", &format!("{state}:/second")]);
    assert!(refused.contains("never changed"), "{refused}");
    for args in [
        &["reband", &state, "--band-size", "2m"][..],
        &["compact", "--battery-allowed", &state],
        &["resize", &state, "--size", "30m"],
        &["tm", "keep", &state],
        &["scrub", &state],
    ] {
        let refused = scratch.run(args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}: {refused:?}");
    }
    let states = scratch.json(&["tm", "states", BUNDLE, "--states", "states", "--verify"]);
    assert_eq!(states["states"][0]["condition"], "whole");
}

#[test]
fn missing_bands_are_reported_and_not_forgotten() {
    let scratch = Scratch::new();
    bundle(&scratch);
    let first = scratch.json(&["scrub", BUNDLE]);
    assert_eq!(first["new_bands"], first["read_bands"]);
    let second = scratch.json(&["scrub", BUNDLE]);
    assert_eq!(
        (&second["new_bands"], &second["changed_bands"]),
        (&0.into(), &0.into())
    );
    let bands = scratch.path("Mac.sparsebundle/bands");
    let band = fs::read_dir(bands).unwrap().next().unwrap().unwrap();
    fs::remove_file(band.path()).unwrap();
    for _ in 0..2 {
        let told = scratch.run(&["scrub", BUNDLE]);
        assert_eq!(told.status.code(), Some(8));
        let told = stderr(&told);
        assert!(told.contains("unknown or missing"), "{told}");
    }
    scratch.ok(&["scrub", BUNDLE, "--accept"]);
    scratch.ok(&["scrub", BUNDLE]);
}

#[test]
fn a_state_is_sent_through_a_pipe_and_to_a_folder() {
    let scratch = Scratch::new();
    bundle(&scratch);
    let first = keep(&scratch);
    let received = |args: &[&str], stream: Vec<u8>| {
        scratch.command(args).write_stdin(stream).output().unwrap()
    };
    let sent = scratch.run(&["send", BUNDLE, "-"]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    let half = sent.stdout[..sent.stdout.len() / 2].to_vec();
    assert_eq!(received(&["receive", "nas"], half).status.code(), Some(5));
    let known = scratch.run(&["receive", "nas", "--have", BUNDLE]);
    scratch.write("known", known.stdout);
    let rest = scratch.run(&["send", BUNDLE, "-", "--have", "known"]);
    assert!(rest.stdout.len() < sent.stdout.len());
    let done = received(&["receive", "nas"], rest.stdout);
    assert!(done.status.success(), "{}", stderr(&done));
    let state = format!("nas/Mac.sparsebundle/{first}");
    assert_eq!(
        scratch.ok(&["cat", &format!("{state}:/first")]),
        "dear diary"
    );
    scratch.ok(&["put", "--from", "letter", "Mac.sparsebundle:/second"]);
    let second = keep(&scratch);
    let report = scratch.json(&["send", BUNDLE, "nas"]);
    assert_eq!(report["state"], second.as_str());
    let state = format!("nas/Mac.sparsebundle/{second}");
    assert_eq!(
        scratch.ok(&["cat", &format!("{state}:/second")]),
        "dear diary"
    );
    let refused = received(&["receive", "nas"], b"no stream, but long enough".to_vec());
    assert_eq!(refused.status.code(), Some(6));
}

const UUID: &str = "EB3EA526-064B-58FA-807A-5F5144738118";

#[test]
fn a_new_destination_is_sound_and_belongs_to_its_machine() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("share")).unwrap();
    let create = |machine: &'static str, fs: &'static str| {
        let args = ["tm", "create", "share", "--machine", machine, "--fs", fs];
        [&args[..], &["--size", "64m", "--uuid", UUID]].concat()
    };
    let made = scratch.json(&[&create("Anna Mac", "apfs")[..], &["--model", "Mac14,2"]].concat());
    assert_eq!(made["path"], "share/Anna Mac.sparsebundle");
    assert_eq!(made["band_size"], 8 << 20);
    scratch.ok(&[&create("Old", "hfs+")[..], &["--band-size", "1m"]].concat());
    let names = |folder: &str| {
        let entries = fs::read_dir(scratch.path(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(
        names("share"),
        ["Anna Mac.sparsebundle", "Old.sparsebundle"]
    );
    for (name, volume) in [
        ("Anna Mac", "Backups of Anna Mac"),
        ("Old", "Time Machine Backups"),
    ] {
        let bundle = format!("share/{name}.sparsebundle");
        let info = scratch.ok(&["info", &bundle]);
        assert!(info.contains(volume), "{info}");
        let list = format!("{bundle}/com.apple.TimeMachine.MachineID.plist");
        let list = fs::read_to_string(scratch.path(&list)).unwrap();
        assert!(list.contains("com.apple.backupd.HostUUID") && list.contains(UUID));
        assert_eq!(list.contains("Mac14,2"), name == "Anna Mac");
        scratch.ok(&["check", &bundle]);
        // Names that differ by case are two.
        scratch.ok(&["mkdir", &format!("{bundle}:/a")]);
        scratch.ok(&["mkdir", &format!("{bundle}:/A")]);
    }
    scratch.ok(&["health", "share"]);
    // An existing bundle stays as it is.
    scratch.fails(4, &create("Old", "hfs+"));
    scratch.ok(&["ls", "share/Old.sparsebundle:/a"]);
    scratch.fails(2, &create("a/b", "apfs"));
    scratch.fails(2, &create("New", "fat"));
    let other = ["--machine", "New", "--fs", "apfs", "--size", "64m"];
    scratch.fails(
        2,
        &[&["tm", "create", "share", "--uuid", "x"], &other[..]].concat(),
    );
    scratch.fails(
        3,
        &[&["tm", "create", "absent", "--uuid", UUID], &other[..]].concat(),
    );
    // Too small for the volume: nothing is left.
    let small = ["tm", "create", "share", "--machine", "New", "--fs", "apfs"];
    let output = scratch.run(&[&small[..], &["--size", "8k", "--uuid", UUID]].concat());
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(
        names("share"),
        ["Anna Mac.sparsebundle", "Old.sparsebundle"]
    );
}

/// libfsapfs and Python's property lists see the same machine and volume.
#[test]
fn others_read_a_new_destination() {
    let Some(python) = peer_python("pyfsapfs") else {
        skip::without_program("others_read_a_new_destination", "no Python with pyfsapfs");
        return;
    };
    let scratch = Scratch::new();
    let args = ["tm", "create", ".", "--machine", "Anna Mac", "--fs", "apfs"];
    scratch.ok(&[&args[..], &["--size", "64m", "--uuid", UUID]].concat());
    scratch.ok(&["convert", "Anna Mac.sparsebundle", "raw.img"]);
    // The partition begins at sector 40.
    let script = "
import io, plistlib, pyfsapfs
disk = open('raw.img', 'rb').read()
container = pyfsapfs.container()
container.open_file_object(io.BytesIO(disk[40 * 512:]))
print(container.number_of_volumes, container.get_volume(0).name)
name = 'Anna Mac.sparsebundle/com.apple.TimeMachine.MachineID.plist'
print(plistlib.load(open(name, 'rb'))['com.apple.backupd.HostUUID'])
";
    let output = std::process::Command::new(python)
        .args(["-c", script])
        .current_dir(scratch.path("."))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("1 Backups of Anna Mac\n{UUID}\n");
    assert_eq!(text, expected, "{}", stderr(&output));
}
