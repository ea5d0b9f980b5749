//! Bands of another size, in place, as a user gets them: stopped, killed, gone on with.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Scratch;

const MIB: usize = 1 << 20;

/// More than what is moved between two marks.
fn bundle(scratch: &Scratch) -> String {
    let mut disk = File::create(scratch.path("disk.img")).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 0..320_usize {
        let mut piece = vec![0; MIB];
        if n % 7 != 3 {
            for word in piece.chunks_exact_mut(8) {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                word.copy_from_slice(&state.to_le_bytes());
            }
        }
        disk.write_all(&piece).unwrap();
    }
    drop(disk);
    scratch.ok(&[
        "convert",
        "--image-format",
        "udrw",
        "disk.img",
        "x.sparsebundle",
        "--band-size",
        "3m",
        "--quiet",
    ]);
    fs::remove_file(scratch.path("disk.img")).unwrap();
    scratch.write(
        "x.sparsebundle/com.apple.TimeMachine.MachineID.plist",
        "identity",
    );
    sum(scratch)
}

fn sum(scratch: &Scratch) -> String {
    let all = scratch.json(&["checksum", "x.sparsebundle"]);
    all.to_string()
}

fn begin(scratch: &Scratch) -> Child {
    let args = [
        "reband",
        "x.sparsebundle",
        "--band-size",
        "8m",
        "--limit-rate",
        "150m",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
    command
        .args(args)
        .current_dir(scratch.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until bands were moved for good.
fn wait(scratch: &Scratch, before: u64) {
    let began = Instant::now();
    while moved(scratch).is_none_or(|moved| moved <= before) {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "nothing is moved"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number of bytes that the interrupted or running change has moved. `None` if its list does
/// not exist, or is being written.
fn moved(scratch: &Scratch) -> Option<u64> {
    let list = fs::read_to_string(scratch.path("x.sparsebundle/rebanding.plist")).ok()?;
    let (_, after) = list.split_once("<key>moved</key>\n\t<integer>")?;
    after.split_once('<')?.0.parse().ok()
}

#[test]
fn stopped_and_killed_it_loses_nothing() {
    let scratch = Scratch::new();
    let expected = bundle(&scratch);
    let mut child = begin(&scratch);
    wait(&scratch, 0);
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "SIGKILL came too late");
    assert_eq!(sum(&scratch), expected);
    let report = scratch.ok(&["info", "x.sparsebundle"]);
    assert!(
        report.contains("320") && report.contains("or their future size"),
        "{report}"
    );
    let list = fs::read_to_string(scratch.path("x.sparsebundle/Info.plist")).unwrap();
    assert!(
        !list.contains("band-size") && !list.contains("com.apple.diskimage"),
        "{list}"
    );
    assert!(
        scratch
            .ok(&["du", "x.sparsebundle"])
            .contains("`bandsaw reband` must first resume")
    );
    let refused = scratch.fails(4, &["trim", "x.sparsebundle"]);
    assert!(refused.contains("bandsaw reband"), "{refused}");
    // The contents are unknown, and nothing is damaged.
    let checked = scratch.run(&["check", "x.sparsebundle"]);
    assert_eq!(
        checked.status.code(),
        Some(6),
        "no damage: {}",
        crate::common::stderr(&checked)
    );
    assert!(
        scratch
            .fails(4, &["reband", "x.sparsebundle", "--band-size", "64m"])
            .contains("finish it before")
    );

    let before = moved(&scratch).unwrap();
    let mut child = begin(&scratch);
    wait(&scratch, before);
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(sum(&scratch), expected);

    let done = scratch.json(&["reband", "x.sparsebundle"]);
    assert_eq!(
        (done["band_size"].as_u64(), done["resumed"].as_bool()),
        (Some(8 << 20), Some(true))
    );
    assert_eq!(sum(&scratch), expected);
    assert_eq!(
        fs::read(scratch.path("x.sparsebundle/com.apple.TimeMachine.MachineID.plist")).unwrap(),
        b"identity"
    );
    let mut names: Vec<_> = fs::read_dir(scratch.path("x.sparsebundle/bands"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 40);
    assert_eq!(
        scratch.run(&["check", "x.sparsebundle"]).status.code(),
        Some(6),
        "unknown contents, and no damage"
    );
    let again = scratch.fails(2, &["reband", "x.sparsebundle"]);
    assert!(
        again.contains("a band size is required") && again.contains("--band-size"),
        "{again}"
    );
}

#[test]
fn other_formats_and_invalid_sizes_are_refused() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "a.img", "--size", "1m", "--quiet"]);
    assert!(
        scratch
            .fails(6, &["reband", "a.img", "--band-size", "8m"])
            .contains("not a sparse bundle")
    );
    assert!(
        scratch
            .fails(3, &["reband", "missing.sparsebundle", "--band-size", "8m"])
            .contains("missing.sparsebundle")
    );
    scratch.ok(&["create", "b.sparsebundle", "--size", "1m", "--quiet"]);
    assert!(
        scratch
            .fails(2, &["reband", "b.sparsebundle", "--band-size", "700k"])
            .contains("the nearest is 1048576")
    );
    assert!(
        scratch
            .fails(
                2,
                &[
                    "create",
                    "c.sparsebundle",
                    "--size",
                    "20g",
                    "--band-size",
                    "9g"
                ]
            )
            .contains("8589934592")
    );
    // macOS opens multiples of 4096 bytes only.
    for verb in [
        &["reband", "b.sparsebundle"][..],
        &["create", "c.sparsebundle", "--size", "4m"],
    ] {
        let line = [verb, &["--band-size", "2097664"]].concat();
        assert!(
            scratch
                .fails(2, &line)
                .contains("the nearest are 2097152 and 2101248")
        );
    }
    let done = scratch.json(&[
        "reband",
        "b.sparsebundle",
        "--band-size",
        "2097664",
        "--round",
    ]);
    assert_eq!(done["band_size"], 2 << 20);
}
