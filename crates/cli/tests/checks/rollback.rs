//! Repairs that are undone or rolled back in circumstances that are less common: files that become
//! longer or get another name, space that was freed, a full disk.

use std::fs;

use super::edit;
use crate::common::Scratch;

/// Length of the disks, in bytes.
const LEN: usize = 16 << 20;

/// Takes the mark away that the last repair of an image is complete, which is written last.
fn interrupt(scratch: &Scratch, image: &str) {
    fs::remove_file(scratch.path(&format!("{image}.undo/1/applied"))).unwrap();
}

/// Returns an HFS+ volume in the formats `a.img` and `a.sparsebundle`, in which a leaf of the
/// catalog has a wrong height. The bundle has one band.
fn with_a_damaged_catalog(files: usize) -> Scratch {
    let scratch = Scratch::new();
    for n in 0..files {
        let name = format!("s/a file with a long name, so that there are several leaves {n}");
        scratch.write(&name, format!("{n}\n"));
    }
    for (image, disk) in [
        ("a.img", "a.img"),
        ("a.sparsebundle", "a.sparsebundle/bands/0"),
    ] {
        let create = [
            "create", image, "--fs", "hfs+", "--from", "s", "--size", "16m",
        ];
        let band = ["--band-size", "16m"];
        let is_bundle = image != disk;
        scratch.ok(&[&create[..], if is_bundle { &band } else { &[] }].concat());
        edit(&scratch, disk, |disk| {
            let number = |at: usize, len: usize| {
                let bytes = &disk[at..at + len];
                bytes
                    .iter()
                    .fold(0, |number, byte| number << 8 | usize::from(*byte))
            };
            let start = (0..disk.len()).step_by(512);
            let header = start
                .into_iter()
                .find(|at| disk[*at..].starts_with(b"H+"))
                .unwrap();
            let catalog = header - 1024 + number(header + 288, 4) * number(header + 40, 4);
            let node = number(catalog + 32, 2);
            let leaf = (1..40)
                .map(|number| catalog + number * node)
                .filter(|at| disk[at + 8] == 0xff)
                .nth(2)
                .unwrap();
            disk[leaf + 9] = 7;
        });
    }
    scratch
}

/// The end of a raw image and of a band is missing: the repair makes the file longer. It is rolled
/// back wherever it was interrupted.
#[test]
fn a_file_that_became_longer_is_rolled_back() {
    let scratch = Scratch::new();
    let bundle = ["a.sparsebundle", "--size", "16m", "--band-size", "1m"];
    for (image, disk) in [
        (&["a.img", "--size", "16m"][..], "a.img"),
        (&bundle, "a.sparsebundle/bands/f"),
    ] {
        scratch.ok(&[&["create"], image, &["--fs", "hfs+"]].concat());
        let image = image[0];
        edit(&scratch, disk, |disk| {
            disk.truncate(LEN.min(disk.len()) - 20480)
        });
        let list = format!("{image}/Info.bckup");
        if image != disk {
            fs::remove_file(scratch.path(&list)).unwrap();
        }
        let damaged = fs::read(scratch.path(disk)).unwrap();
        let half = |len: usize, is_listed: bool| {
            edit(&scratch, disk, |disk| {
                *disk = damaged.clone();
                disk.resize(len, 0);
            });
            if image != disk && !is_listed {
                fs::remove_file(scratch.path(&list)).unwrap();
            }
            interrupt(&scratch, image);
        };
        let is_restored = || {
            fs::read(scratch.path(disk)).unwrap() == damaged
                && (image == disk || !scratch.path(&list).exists())
        };
        for longer in [false, true] {
            for is_listed in [false, true] {
                let place = format!("{image}, longer: {longer}, listed: {is_listed}");
                if longer && !is_listed {
                    // The list is written first.
                    continue;
                }
                scratch.ok(&["repair", image]);
                let repaired = fs::read(scratch.path(disk)).unwrap();
                assert!(repaired.len() > damaged.len(), "{place}");
                let len = if longer {
                    repaired.len()
                } else {
                    damaged.len()
                };
                half(len, is_listed);
                if longer || (is_listed && image != disk) {
                    let refused = scratch.fails(4, &["repair", "--commit", image]);
                    assert!(refused.contains("interrupted"), "{place}: {refused}");
                }
                scratch.ok(&["repair", "-n", image]);
                scratch.ok(&["repair", image]);
                assert!(fs::read(scratch.path(disk)).unwrap() == repaired, "{place}");
                half(len, is_listed);
                scratch.ok(&["repair", "--undo", image]);
                assert!(is_restored(), "{place}");
            }
        }
        // Bytes that something else wrote where the repair leaves zeros are not cut off.
        scratch.ok(&["repair", image]);
        edit(&scratch, disk, |disk| disk[damaged.len() + 600] = 1);
        for _ in 0..2 {
            let refused = scratch.fails(4, &["repair", "--undo", image]);
            assert!(refused.contains("changed since"), "{refused}");
            let undo = scratch.path(&format!("{image}.undo/1/applied"));
            if undo.exists() {
                interrupt(&scratch, image);
            }
        }
    }
}

/// A band that is renamed and changed by the same repair, which can be interrupted in between.
#[test]
fn a_band_is_renamed_and_changed() {
    let scratch = Scratch::new();
    scratch.write("src/hello.txt", "hello, world\n");
    let create = ["create", "a.sparsebundle", "--fs", "hfs+", "--from", "src"];
    scratch.ok(&[&create[..], &["--size", "16m", "--band-size", "1m"]].concat());
    let band = |name: &str| scratch.path(&format!("a.sparsebundle/bands/{name}"));
    fs::rename(band("f"), band("F")).unwrap();
    edit(&scratch, "a.sparsebundle/bands/F", |band| {
        let end = band.len();
        band[end - 512..end - 508].fill(b'X');
    });
    let damaged = fs::read(band("F")).unwrap();
    for is_interrupted in [false, true] {
        scratch.ok(&["repair", "a.sparsebundle"]);
        assert!(fs::read(band("f")).unwrap() != damaged && !band("F").exists());
        scratch.ok(&["check", "a.sparsebundle"]);
        if is_interrupted {
            fs::write(band("f"), &damaged).unwrap();
            interrupt(&scratch, "a.sparsebundle");
        }
        scratch.ok(&["repair", "--undo", "a.sparsebundle"]);
        assert!(fs::read(band("F")).unwrap() == damaged && !band("f").exists());
    }
}

/// The blocks of old trees are free after a repair. Once they were discarded, an undo is refused.
#[test]
fn an_undo_needs_what_the_repair_freed() {
    let scratch = with_a_damaged_catalog(400);
    for (image, disk) in [
        ("a.img", "a.img"),
        ("a.sparsebundle", "a.sparsebundle/bands/0"),
    ] {
        let damaged = fs::read(scratch.path(disk)).unwrap();
        for verb in [None, Some("trim"), Some("compact")] {
            scratch.ok(&["repair", "--accept-loss", image]);
            let repaired = fs::read(scratch.path(disk)).unwrap();
            let Some(verb) = verb else {
                scratch.ok(&["repair", "--undo", image]);
                assert!(fs::read(scratch.path(disk)).unwrap() == damaged, "{image}");
                continue;
            };
            scratch.ok(&[verb, image]);
            let trimmed = fs::read(scratch.path(disk)).unwrap();
            if trimmed == repaired {
                crate::common::skip::skip("holes cannot be punched here", verb);
                return;
            }
            let refused = scratch.fails(4, &["repair", "--undo", image]);
            assert!(refused.contains("which the repair freed"), "{refused}");
            assert!(fs::read(scratch.path(disk)).unwrap() == trimmed, "{image}");
            assert!(scratch.path(&format!("{image}.undo/1/data")).exists());
            scratch.ok(&["repair", "--commit", image]);
            scratch.ok(&["check", image]);
            fs::write(scratch.path(disk), &damaged).unwrap();
        }
    }
}

/// A repair for which a disk has too little room restores the image at once; one for which it has
/// just enough can be undone on the full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_repair_on_a_full_disk_is_undone() {
    let scratch = with_a_damaged_catalog(2000);
    fs::create_dir(scratch.path("work")).unwrap();
    let script = r#"cp --sparse=always a.img old.img
        used=$(du -k old.img | cut -f1)
        for room in $(seq 60 120 1500); do
            mount -t tmpfs -o size=$((used + room))k tmpfs work || exit 99
            if cp --sparse=always a.img work/; then
                "$0" -q repair --accept-loss work/a.img; code=$?
                if [ $code -eq 0 ]; then
                    head -c 10m /dev/zero >work/rest 2>/dev/null
                    "$0" -q repair --undo work/a.img >/dev/null || exit 98
                fi
                cmp -s work/a.img old.img && state=old || state=changed
                [ -e work/a.img.undo ] && state="$state, undo data"
                echo "$code $state"
            fi
            umount work
        done"#;
    let output = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "bash", "-c", script])
        .arg(env!("CARGO_BIN_EXE_bandsaw"))
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    let told = crate::common::stderr(&output);
    if output.status.code() == Some(99) || told.starts_with("unshare:") {
        crate::common::skip::skip("a disk cannot be mounted here", &told);
        return;
    }
    let runs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{runs}{told}");
    for wanted in ["0 old", "1 old"] {
        assert!(runs.lines().any(|run| run == wanted), "{runs}{told}");
    }
    let is_right = |run: &str| run == "0 old" || run == "1 old";
    assert!(runs.lines().all(is_right), "{runs}{told}");
}
