//! The gate before the first write to an ASIF image whose directories disagree.

use std::fs;

use crate::common::{Scratch, stderr};

fn number(bytes: &[u8], at: usize) -> usize {
    let digits = bytes[at..at + 8].iter();
    digits.fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Returns the size of a directory of an ASIF image.
fn directory_len(bytes: &[u8]) -> usize {
    number(bytes, 0x18) - number(bytes, 0x10)
}

/// Each directory of an ASIF image in turn has the higher version and cannot be loaded.
#[test]
fn a_directory_that_cannot_be_loaded_has_an_alternative() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create", "x.asif", "--size", "12m", "--fs", "hfs+", "--from", "src",
    ]);
    let good = fs::read(scratch.path("x.asif")).unwrap();
    let expected = scratch.ok(&["ls", "-R", "x.asif"]);
    let places = [number(&good, 0x10), number(&good, 0x18)];
    let active = usize::from(number(&good, places[1]) > number(&good, places[0]));
    let len = directory_len(&good);
    for broken in [0, 1] {
        // Both name the same tables, the broken one with the higher version.
        let mut bytes = good.clone();
        bytes.copy_within(places[active]..places[active] + len, places[1 - active]);
        for (index, place) in places.into_iter().enumerate() {
            let version = 5 + u64::from(index == broken);
            bytes[place..place + 8].copy_from_slice(&version.to_be_bytes());
        }
        let damages: [(&str, usize, [u8; 8]); 3] = [
            ("a table", places[broken] + 8, [0x7F; 8]),
            ("a place in the header", 0x10 + 8 * broken, [3; 8]),
            (
                "a place past the end",
                0x10 + 8 * broken,
                (1_u64 << 40).to_be_bytes(),
            ),
        ];
        for (what, at, value) in damages {
            let what = format!("directory {broken}, {what}");
            let mut damaged = bytes.clone();
            damaged[at..at + 8].copy_from_slice(&value);
            if at < places[0] {
                // Nothing is at its usual place either.
                damaged[places[broken]..places[broken] + len].fill(0);
            }
            let _ = fs::remove_dir_all(scratch.path("x.asif.undo"));
            let path = scratch.write("x.asif", &damaged);
            let other = 1 - broken;

            let output = scratch.run(&["ls", "-R", "x.asif"]);
            let printed = stderr(&output);
            assert!(output.status.success(), "{what}: {printed}");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                expected,
                "{what}: {printed}"
            );
            assert!(
                printed.contains(&format!("directory {other} is used")),
                "{what}: {printed}"
            );
            let output = scratch.run(&["check", "x.asif"]);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(5), "{what}: {printed}");
            assert!(
                printed.contains(&format!("directory {broken} cannot be used")),
                "{what}: {printed}"
            );
            let output = scratch.run(&["diagnose", "x.asif"]);
            assert_eq!(output.status.code(), Some(5), "{what}");
            let choice = format!("directory={other}");
            for verb in [
                &["mkdir", "x.asif:/made"][..],
                &["compact", "x.asif"],
                &["resize", "x.asif", "--size", "14m"],
            ] {
                let output = scratch.run(verb);
                let printed = stderr(&output);
                assert_eq!(output.status.code(), Some(9), "{what} {verb:?}: {printed}");
                assert!(
                    printed.contains(&choice) && printed.contains("--assume"),
                    "{what}: {printed}"
                );
            }
            assert!(fs::read(&path).unwrap() == damaged, "{what}");
            assert!(!scratch.path("x.asif.undo").exists(), "{what}");

            let output = scratch.run(&["mkdir", "x.asif:/made", "--assume", &choice]);
            let printed = stderr(&output);
            assert!(output.status.success(), "{what}: {printed}");
            assert!(printed.contains("x.asif.undo"), "{what}: {printed}");
            scratch.ok(&["check", "x.asif"]);
            scratch.ok(&["rm", "-r", "x.asif:/made"]);
            assert_eq!(scratch.ok(&["ls", "-R", "x.asif"]), expected, "{what}");

            fs::remove_dir_all(scratch.path("x.asif.undo")).unwrap();
            fs::write(&path, &damaged).unwrap();
            scratch.ok(&["repair", "x.asif"]);
            scratch.ok(&["check", "x.asif"]);
            assert_eq!(scratch.ok(&["ls", "-R", "x.asif"]), expected, "{what}");
            scratch.ok(&["repair", "--undo", "x.asif"]);
            assert!(fs::read(&path).unwrap() == damaged, "{what}");
        }
    }
}

/// The place of the newer directory is damaged in the header: it is read at its usual place, with a
/// warning, and named again by a repair.
#[test]
fn the_newer_directory_is_found_at_its_usual_place() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create", "x.asif", "--size", "12m", "--fs", "hfs+", "--from", "src",
    ]);
    let mut sound = fs::read(scratch.path("x.asif")).unwrap();
    let places = [number(&sound, 0x10), number(&sound, 0x18)];
    let len = directory_len(&sound);
    let newer = usize::from(number(&sound, places[1]) > number(&sound, places[0]));
    // Without the only table, as before anything was written.
    let older = places[1 - newer];
    sound[older + 8..older + len].fill(0);
    let blank = (places[0].max(places[1]) + len) as u64;
    let other = places.map(|place| place as u64)[1 - newer] + 8;
    for wrong in [0, blank, other, u64::MAX] {
        let mut damaged = sound.clone();
        damaged[0x10 + 8 * newer..0x18 + 8 * newer].copy_from_slice(&wrong.to_be_bytes());
        let path = scratch.write("x.asif", &damaged);
        let output = scratch.run(&["cat", "x.asif:/hello.txt"]);
        let printed = stderr(&output);
        assert_eq!(output.stdout, b"hello, world\n", "{wrong:#x}: {printed}");
        let warning = format!("wrong place of directory {newer}");
        assert!(printed.contains(&warning), "{wrong:#x}: {printed}");
        scratch.fails(9, &["put", "--from", "src/run.sh", "x.asif:/new"]);
        let checked = scratch.run(&["check", "x.asif"]);
        assert_eq!(checked.status.code(), Some(5), "{wrong:#x}");
        assert!(fs::read(&path).unwrap() == damaged);
        scratch.ok(&["repair", "x.asif"]);
        assert!(fs::read(&path).unwrap() == sound, "{wrong:#x}");
        scratch.ok(&["check", "x.asif"]);
        scratch.ok(&["repair", "--undo", "x.asif"]);
        assert!(fs::read(&path).unwrap() == damaged);
    }
}

/// The place of a directory is damaged in the header, and other tables are where it usually is: the
/// lost directory, which is overwritten only if that was asked for.
#[test]
fn a_lost_directory_is_overwritten_by_choice_alone() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create", "x.asif", "--size", "12m", "--fs", "hfs+", "--from", "src",
    ]);
    let mut damaged = fs::read(scratch.path("x.asif")).unwrap();
    let places = [number(&damaged, 0x10), number(&damaged, 0x18)];
    let active = usize::from(number(&damaged, places[1]) > number(&damaged, places[0]));
    let lost = 1 - active;
    let len = directory_len(&damaged);
    damaged.copy_within(places[active]..places[active] + len, places[lost]);
    damaged[places[lost]..places[lost] + 8].copy_from_slice(&9_u64.to_be_bytes());
    damaged[places[lost] + 23] = 1; // a second table
    damaged[0x10 + 8 * lost..0x18 + 8 * lost].fill(3);
    let path = scratch.write("x.asif", &damaged);

    let choice = format!("directory={active}");
    let output = scratch.run(&["repair", "--json", "x.asif"]);
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(&choice), "{printed}");
    assert!(fs::read(&path).unwrap() == damaged);
    scratch.ok(&["repair", "--assume", &choice, "x.asif"]);
    scratch.ok(&["check", "x.asif"]);
    scratch.ok(&["repair", "--undo", "x.asif"]);
    assert!(fs::read(&path).unwrap() == damaged);
}
