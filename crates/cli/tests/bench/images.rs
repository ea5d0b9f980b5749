//! `bench images`.

use std::fs;
use std::time::Duration;

use super::{VISIT, is_empty, look_at, scratch};
#[cfg(target_os = "linux")]
use crate::common::Scratch;
use serde_json::Value;

fn labels(report: &Value) -> Vec<String> {
    let series = report["series"].as_array().unwrap().iter();
    let mut labels: Vec<_> = series
        .map(|series| format!("{} {}", series["label"].as_str().unwrap(), series["step"]))
        .collect();
    labels.sort();
    labels
}

/// A run of images of a moment: 16 files a pass, without the rest that protocols have.
fn images<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let rest: &[&str] = if more.contains(&"--pause") {
        &[]
    } else {
        &["--pause", "0"]
    };
    [
        &[
            "bench", "images", "work", "--scale", "0.0001", "--sets", "2",
        ],
        rest,
        more,
    ]
    .concat()
}

#[test]
fn images_are_held_against_the_host() {
    let scratch = scratch();
    let kept = [
        "--type",
        "udrw,udsb",
        "--cipher",
        "none,aes-128",
        "--fs",
        "apfs",
        "--verify",
        "-o",
        "run.json",
        "-o",
        "run.html",
    ];
    let shown = scratch.ok(&images(&kept));
    assert!(
        shown.contains("Speed relative to the host")
            && shown.contains("UDSB AES-128, APFS, library"),
        "{shown}"
    );
    assert!(is_empty(&scratch, "work"));
    let report: Value =
        serde_json::from_slice(&fs::read(scratch.path("run.json")).unwrap()).unwrap();
    assert_eq!(labels(&report).len(), 5);
    assert_eq!(report["ratios"].as_array().unwrap().len(), 8);
    let bundle = report["series"]
        .as_array()
        .unwrap()
        .iter()
        .find(|series| series["label"] == "UDSB, APFS, library")
        .unwrap();
    assert!(bundle["process"]["threads"].as_u64().unwrap() >= 1);
    let space = bundle["space"].as_array().unwrap();
    let written = space
        .iter()
        .find(|space| space["at"] == "read, detached")
        .unwrap();
    assert!(
        written["in_use"].as_u64().unwrap() > 1_000_000 && written["bands"].as_u64().unwrap() > 0
    );
    crate::common::browse(&scratch, "run.html", VISIT);
    let gate = scratch.run(&["bench", "gate", "run.json", "--min-ratio", "1000"]);
    assert_eq!(gate.status.code(), Some(1));
    assert!(
        scratch
            .ok(&[
                "bench",
                "gate",
                "run.json",
                "--min-ratio",
                "0",
                "--noisy",
                "warn"
            ])
            .contains("Ratios")
    );
}

#[test]
fn an_image_is_reached_in_three_ways() {
    let scratch = scratch();
    let library = scratch.json(&images(&[
        "--type",
        "udsp",
        "--fs",
        "hfs+",
        "--via",
        "library,nbd",
        "--verify",
    ]));
    assert_eq!(
        labels(&library),
        [
            "UDSP, HFS+, library null",
            "UDSP, HFS+, nbd null",
            "host null"
        ]
    );
    let vm = scratch.json(&images(&["--type", "vm", "--verify"]));
    assert_eq!(labels(&vm), ["ASIF, encrypted APFS, nbd null", "host null"]);
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        crate::common::skip::skip("an_image_is_reached_in_three_ways", "no FUSE");
    } else {
        let mounted = scratch.json(&images(&[
            "--type", "udsb", "--cipher", "aes-256", "--via", "mount", "--verify",
        ]));
        assert_eq!(
            labels(&mounted),
            ["UDSB AES-256, APFS, mount null", "host null"]
        );
    }
    assert!(is_empty(&scratch, "work"));
}

fn names(steps: &[(String, Value)]) -> Vec<&str> {
    steps.iter().map(|(at, _)| at.as_str()).collect()
}

fn on_disk(steps: &[(String, Value)], at: &str) -> u64 {
    steps.iter().find(|(step, _)| step == at).unwrap().1["on_disk"]
        .as_u64()
        .unwrap()
}

/// The label of the only image in a report.
fn label(report: &Value) -> String {
    let mut labels = report["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["label"].as_str().unwrap());
    labels.find(|label| *label != "host").unwrap().to_owned()
}

/// Returns the steps of a run in the order of time, with what was reported of the image after each.
fn steps(report: &Value, label: &str) -> Vec<(String, Value)> {
    let of = report["series"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|series| series["label"] == label);
    let all = of.flat_map(|series| series["space"].as_array().unwrap());
    all.map(|space| (space["at"].as_str().unwrap().to_owned(), space.clone()))
        .collect()
}

#[test]
fn protocols_have_their_steps() {
    let scratch = scratch();
    let one = [
        "--type",
        "asif",
        "--cipher",
        "none",
        "--fs",
        "hfs+j",
        "--protocol",
    ];
    let rewrite = scratch.json(&images(&[&one[..], &["rewrite"]].concat()));
    let series: Vec<String> = labels(&rewrite)
        .into_iter()
        .filter(|label| label.starts_with("ASIF"))
        .collect();
    assert_eq!(series.len(), 3, "{series:?}");
    assert!(
        series.iter().any(|step| step.contains("rewrite"))
            && series.iter().any(|step| step.contains("attached anew"))
    );
    let taken = steps(&rewrite, &label(&rewrite));
    let end = ["emptied", "attached anew", "compacted"];
    assert_eq!(
        names(&taken),
        [
            &["new", "written", "removed", "rewritten"],
            &end[..],
            &["control: new", "written"]
        ]
        .concat()
    );
    assert!(
        on_disk(&taken, "written") > on_disk(&taken, "new")
            && on_disk(&taken, "compacted") < on_disk(&taken, "rewritten")
    );
    let steady = scratch.json(&images(&[&one[..], &["steady"]].concat()));
    let taken = steps(&steady, &label(&steady));
    assert_eq!(
        names(&taken),
        [
            &["new", "attached once", "written", "read, detached"],
            &end[..]
        ]
        .concat()
    );
    assert!(
        taken.last().unwrap().1["free"].as_u64().unwrap() > 50_000_000
            && taken.last().unwrap().1["given_back"].is_u64()
    );
    let refill = scratch.json(&images(&[&one[..], &["r5"]].concat()));
    // The host and the image, three passes and a second load.
    assert_eq!(labels(&refill).len(), 8);
    let sequential = refill["series"].as_array().unwrap().iter();
    for series in sequential.filter(|series| series["step"] == "sequential") {
        assert_eq!(series["write"]["count"], 5);
        assert_eq!(series["read"]["count"], 5);
    }
    let taken = steps(&refill, &label(&refill));
    let passes = [
        "empty: written",
        "empty: removed",
        "part full: written",
        "part full: removed",
        "emptied: written",
        "read",
        "sequential: written",
        "sequential: removed",
    ];
    assert_eq!(names(&taken), [&["new"], &passes[..], &end[1..]].concat());
    assert!(
        on_disk(&taken, "empty: written") > on_disk(&taken, "new"),
        "written is more than new"
    );
    assert!(is_empty(&scratch, "work"));
}

#[test]
fn sizes_of_bands_are_compared_with_each_other_and_with_one_file() {
    let scratch = scratch();
    let bands = [
        "bench",
        "images",
        "work",
        "--scale",
        "0.00002",
        "--protocol",
        "bands",
        "--band-sizes",
        "2m,8m",
    ];
    let report = scratch.json(
        &[
            &bands[..],
            &["--fs", "hfs+", "-o", "run.html", "-o", "run.md"],
        ]
        .concat(),
    );
    // The host, two bundles, and an image that is one file.
    assert_eq!(labels(&report).len(), 4);
    assert_eq!(
        report["ratios"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|ratio| ratio["direction"] == "stream")
            .count(),
        3
    );
    for series in report["series"].as_array().unwrap() {
        assert!(series["stream"]["mean"].as_f64().unwrap() > 0.0);
        assert_eq!(series["stream"]["count"], 5, "repeats");
        assert_eq!(series["stream"]["bytes"].as_u64(), Some(5 << 20));
        assert_eq!(series["write"]["count"], 130);
    }
    let compression = &report["compression"];
    assert_eq!(compression["compressor"], "lz4");
    assert!(compression["rate"].as_f64().unwrap() > 0.0);
    // Half of the contents is noise, which does not shrink, and half zeros.
    let packed = compression["packed"].as_u64().unwrap();
    assert!(((1 << 19)..(3 << 18)).contains(&packed), "{packed}");
    let page = fs::read_to_string(scratch.path("run.html")).unwrap();
    for (plot, name) in [
        ("stream-time", "time"),
        ("stream-rate", "rate"),
        ("stream-rate-used", "rate"),
        ("stream-rate-possible", "rate"),
    ] {
        let plot = page
            .split("<svg")
            .find(|svg| svg.contains(&format!("id=\"plot-{plot}\"")))
            .unwrap_or_else(|| panic!("{plot}"));
        let points = plot.matches(&format!("data-stream-{name}=")).count();
        assert_eq!(points, 4, "two bundles, the host and UDRW");
    }
    let plot = page
        .split("<svg")
        .find(|plot| plot.contains("plot-ratios-stream"))
        .unwrap();
    assert_eq!(
        plot.matches("data-reference=\"0.57\"").count(),
        2,
        "of 2 and of 8 MiB the same was published"
    );
    assert!(
        fs::read_to_string(scratch.path("run.md"))
            .unwrap()
            .contains("| 0.57 |")
    );
    look_at(&scratch, "run.html", "bands");
    let lzfse = ["--compressor", "lzfse", "--sets", "2", "--verify"];
    let one = ["--type", "udsb", "--band-sizes", "8m"];
    let report = scratch.json(&[&bands[..7], &one, &lzfse].concat());
    assert_eq!(report["compression"]["compressor"], "lzfse");
    assert_eq!(report["series"][0]["stream"]["count"], 2);
    scratch.fails(2, &[&bands[..], &["--compressor", "zip"]].concat());
    let refused = scratch.fails(2, &[&bands[..], &["--sizes", "2m"]].concat());
    assert!(refused.contains("do not apply"), "{refused}");
    assert!(is_empty(&scratch, "work"));
}

#[test]
fn space_is_reported_round_by_round_whatever_the_way_to_the_image() {
    let scratch = scratch();
    let report = scratch.json(&images(&[
        "-o",
        "run.html",
        "--protocol",
        "space",
        "--type",
        "udsb",
        "--fs",
        "hfs+,apfs",
        "--via",
        "library,nbd",
        "--verify",
    ]));
    assert_eq!(labels(&report).len(), 5, "the host, too");
    for kind in ["HFS+, library", "HFS+, nbd", "APFS, library", "APFS, nbd"] {
        let taken = steps(&report, &format!("UDSB, {kind}"));
        let rounds = [
            "written, 1",
            "removed, 1",
            "written, 2",
            "removed, 2",
            "written, 3",
            "removed, 3",
            "written, 4",
            "removed, 4",
            "written, 5",
        ];
        let end = [
            "full",
            "emptied",
            "attached anew, 1",
            "attached anew, 2",
            "attached anew",
            "compacted",
        ];
        assert_eq!(names(&taken), [&["new"], &rounds[..], &end].concat());
        // Free space is told in use and detached. HFS+ frees what is removed at once, APFS when no
        // older checkpoint has it.
        let free = |at: &str| {
            let (_, space) = taken.iter().find(|(name, _)| *name == at).unwrap();
            space["free"].as_u64().unwrap()
        };
        let freed = free("removed, 1") > free("written, 1");
        assert!(freed || kind.starts_with("APFS"), "{kind}");
        assert!(free("attached anew, 1") > free("full"), "{kind}");
        assert!(
            taken
                .iter()
                .all(|(_, space)| space["bands"].as_u64() > Some(0))
        );
        // The largest quarter is 83 in 100 of a round's bytes.
        assert!(
            on_disk(&taken, "full") > on_disk(&taken, "removed, 4")
                && on_disk(&taken, "compacted") < on_disk(&taken, "full")
        );
        assert!(taken.last().unwrap().1["given_back"].is_u64());
        // Removed data is given back when the image is attached the next time, not only when it is
        // compacted.
        let (emptied, full) = (on_disk(&taken, "attached anew"), on_disk(&taken, "full"));
        assert!(emptied < full - 1_000_000, "{kind}: {emptied} of {full}");
    }
    for series in report["series"].as_array().unwrap() {
        let samples = series["samples"].as_array().unwrap();
        assert_eq!(
            (samples.len(), &samples.last().unwrap()["set"]),
            (5 * 32, &Value::from(10)),
            "two sets in each round"
        );
    }
    look_at(&scratch, "run.html", "space");
    assert!(is_empty(&scratch, "work"));
}

#[test]
fn compressed_files_are_read_cold_and_warm() {
    let scratch = scratch();
    let kept = ["-o", "run.html", "-o", "run.md", "--verify"];
    let ours = [
        "bench",
        "images",
        "work",
        "--scale",
        "0.002",
        "--protocol",
        "r6",
        "--type",
        "udrw",
        "--fs",
        "hfs+",
    ];
    let report = scratch.json(&[&ours[..], &kept].concat());
    // The host and the image without compression, and three ways to compress, each cold and warm.
    assert_eq!(labels(&report).len(), 2 * 5);
    for series in report["series"].as_array().unwrap() {
        assert_eq!(
            series["samples"].as_array().unwrap().len(),
            3 * 5,
            "three readings of each file"
        );
    }
    // Each file in each of these, three times, with its times.
    let reads = report["reads"].as_array().unwrap();
    assert_eq!(reads.len(), 2 * 5 * 3 * 5);
    assert!(
        reads
            .iter()
            .all(|read| read["real"].as_f64() > Some(0.0) && read["user"].is_f64())
    );
    let files = report["compressed"].as_array().unwrap();
    let kinds: Vec<_> = files
        .iter()
        .filter(|file| file["file"] == "text of 80 bytes")
        .map(|file| &file["kind"])
        .collect();
    assert!(
        kinds.len() == 3
            && [3, 7, 11]
                .iter()
                .all(|kind| kinds.contains(&&Value::from(*kind))),
        "{kinds:?}"
    );
    let packed = files.iter().filter(|file| file["kind"].is_number());
    assert!(
        packed
            .clone()
            .all(|file| file["after"].as_u64() < file["before"].as_u64()
                && file["attribute"].as_u64() > Some(15))
    );
    assert!(packed.count() >= 9, "{files:?}");
    let page = fs::read_to_string(scratch.path("run.md")).unwrap();
    assert!(
        page.contains("Compressed files: UDRW, HFS+, library, zlib") && page.contains("27.7 %"),
        "{page}"
    );
    let page = fs::read_to_string(scratch.path("run.html")).unwrap();
    let plot = page
        .split("<svg")
        .find(|plot| plot.contains("plot-compression-saved"))
        .unwrap();
    assert!(plot.matches("data-value").count() == 15 && plot.contains("data-reference=\"27.7\""));
    look_at(&scratch, "run.html", "compression");
    // A slow disk: 80 bytes take a seek or two of 20 ms when read cold, and nothing more when warm.
    let slow = ["--model-disk", "1000,20", "--sets", "1"];
    let report = scratch.json(&[&ours[..], &slow].concat());
    let reads = report["reads"].as_array().unwrap();
    let small = reads
        .iter()
        .filter(|read| read["file"] == "text of 80 bytes");
    for read in small {
        let (real, cold) = (read["real"].as_f64().unwrap(), read["step"] == "cold");
        let seeks = if read["series"].as_str().unwrap().contains("library, ") {
            1.0
        } else {
            2.0
        };
        assert!(!cold || real >= 0.02 * seeks, "{read}");
    }
    let notes = report["notes"].to_string();
    assert!(notes.contains("this is a model"), "{notes}");
    for wrong in ["80", "0,12", "80,-1", "nan,1", "80,1e9"] {
        let refused = [&ours[..], &["--model-disk", wrong]].concat();
        assert!(
            scratch.fails(2, &refused).contains("milliseconds"),
            "{wrong}"
        );
    }
    assert!(is_empty(&scratch, "work"));
}

#[test]
fn an_interrupt_ends_servers_too() {
    let scratch = scratch();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(images(&[
            "--type", "asif", "--via", "nbd", "--seed", "2", "--pause", "60",
        ]))
        .current_dir(scratch.path("."))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!((0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !is_empty(&scratch, "work")
    }));
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(&scratch, "work"));
}

/// Runs the command where `work` is a disk of its own, of 100 MB, that `before` sees first;
/// `meanwhile` runs beside it. `None` where nobody may mount one.
#[cfg(target_os = "linux")]
fn on_small_disk(
    scratch: &Scratch,
    before: &str,
    meanwhile: &str,
    args: &[&str],
) -> Option<std::process::Output> {
    let script = format!(
        r#"mount -t tmpfs -o size=100m tmpfs work || exit 99
        until_there() {{ n=0; until eval "$@" > /dev/null 2>&1 || [ $((n += 1)) -gt 600 ]; do sleep 0.05; done; }}
        {before}
        ( {meanwhile} ) & beside=$!
        "$@"; code=$?
        wait $beside
        rm -f work/filler
        [ -z "$(ls -A work)" ] || exit 98
        exit $code"#
    );
    let mut unshare = std::process::Command::new("unshare");
    unshare
        .args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &script,
            "sh",
            env!("CARGO_BIN_EXE_bandsaw"),
        ])
        .args(args);
    let output = unshare.current_dir(scratch.path(".")).output().ok()?;
    let refused =
        output.status.code() == Some(99) || crate::common::stderr(&output).starts_with("unshare:");
    if refused {
        crate::common::skip::skip(
            "a disk cannot be mounted here",
            &crate::common::stderr(&output),
        );
    }
    (!refused).then_some(output)
}

#[cfg(target_os = "linux")]
#[test]
fn disks_that_fail_are_left_as_they_were() {
    let scratch = scratch();
    let failed = |output: std::process::Output, word: &str| {
        let said = crate::common::stderr(&output);
        assert!(
            output.status.code() == Some(1) && said.contains(word),
            "{:?}: {said}",
            output.status
        );
    };
    // Full before anything begins.
    let large = ["bench", "files", "work", "--sizes", "200MB", "--sets", "1"];
    let Some(output) = on_small_disk(&scratch, "true", "true", &large) else {
        return;
    };
    failed(output, "are free");
    // Another program takes the rest while the image rests, before its files are written.
    let filler = "until_there \"ls work/*/*/image.img\"; head -c 200m /dev/zero > work/filler";
    let images = [
        "bench", "images", "work", "--scale", "0.0001", "--sizes", "20GB", "--sets", "2",
    ];
    let images = [
        &images[..],
        &["--type", "udrw", "--fs", "hfs+", "--pause", "2"],
    ]
    .concat();
    failed(
        on_small_disk(&scratch, "true", filler, &images).unwrap(),
        "No space left",
    );
    // A file goes away before it is read.
    let remove = "until_there \"ls work/*/003-*\"; rm work/*/001-*";
    let files = [
        "bench", "files", "work", "--sizes", "1MB", "--sets", "3", "--pause", "3",
    ];
    let gone = on_small_disk(&scratch, "true", remove, &files).unwrap();
    assert!(
        !gone.status.success() && crate::common::stderr(&gone).contains("work/bandsaw-bench-"),
        "{}",
        crate::common::stderr(&gone)
    );
    assert_ne!(gone.status.code(), Some(98));
    // Nothing can be made in it.
    let files = ["bench", "files", "work", "--scale", "0.0001"];
    failed(
        on_small_disk(&scratch, "mount -o remount,ro work", "true", &files).unwrap(),
        "Read-only file system",
    );
}

#[test]
fn images_that_cannot_be_are_refused_before() {
    let scratch = scratch();
    assert!(
        scratch
            .fails(2, &images(&["--type", "udzo"]))
            .contains("udrw")
    );
    assert!(
        scratch
            .fails(2, &images(&["--cipher", "rot13"]))
            .contains("aes-256")
    );
    let asif = [
        "bench",
        "images",
        "work",
        "--scale",
        "0.0001",
        "--type",
        "asif",
        "--protocol",
        "bands",
    ];
    assert!(scratch.fails(2, &asif).contains("sparse bundles"));
    for pause in ["nan", "1e9"] {
        assert!(
            scratch
                .fails(2, &images(&["--pause", pause]))
                .contains("seconds")
        );
    }
    for (scale, code) in [("0", 2), ("nan", 2), ("1e10", 2), ("1e8", 1)] {
        for protocol in ["compression", "bands", "steady"] {
            scratch.fails(
                code,
                &[
                    "bench",
                    "images",
                    "work",
                    "--scale",
                    scale,
                    "--protocol",
                    protocol,
                ],
            );
        }
    }
    assert!(
        scratch
            .fails(1, &["bench", "images", "work", "--scale", "1000"])
            .contains("--scale")
    );
    let plan = crate::common::stderr(&scratch.run(&images(&["--dry-run"])));
    assert!(plan.contains("5 subjects"), "{plan}");
    // Three types, three ciphers, two file systems, and the host: the matrix of the article.
    let matrix = ["--dry-run", "--protocol", "rewrite"];
    let plan = crate::common::stderr(&scratch.run(&images(&matrix)));
    assert!(plan.contains("19 subjects"), "{plan}");
    assert!(is_empty(&scratch, "work"));
}
