//! `bench` as its users call it: what is measured, kept, shown and compared, and what is left when
//! something goes wrong.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandsaw_bench::articles::{EXPERIMENTS, Experiment, Scope};
use bandsaw_bench::images::{Protocol, Via};
use bandsaw_bench::machine::Machine;
use bandsaw_bench::place::Cooled;
use bandsaw_bench::report::{Compressed, ImageKind, Report, SCHEMA, Series, Space};
use bandsaw_bench::sample::{Direction, Sample};
use serde_json::Value;

use crate::common::Scratch;

/// What the browser does with the page; says `sound` if all of it went well.
const VISIT: &str = include_str!("bench/visit.js");

/// Looks at any page of results.
fn look_at(scratch: &Scratch, page: &str, name: &str) {
    let steps = format!("visit(\"true\", () => layout(\"{name}\"));");
    crate::common::browse(scratch, page, &steps);
}

/// A run of a moment.
const SHORT: &[&str] = &["bench", "files", "work", "--scale", "0.0002", "--sets", "3"];

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("work")).unwrap();
    scratch
}

fn is_empty(scratch: &Scratch, folder: &str) -> bool {
    fs::read_dir(scratch.path(folder)).unwrap().next().is_none()
}

#[test]
fn a_folder_is_measured_and_its_results_are_kept() {
    let scratch = scratch();
    let kept = [
        "-o", "run.json", "-o", "run.csv", "-o", "run.html", "-o", "run.md", "--plots", "plots",
        "--verify",
    ];
    let shown = scratch.ok(&[SHORT, &kept].concat());
    assert!(
        shown.contains("20 % trimmed mean")
            && shown.contains("Theil-Sen rate")
            && shown.contains("speed of memory"),
        "{shown}"
    );
    assert!(is_empty(&scratch, "work"));
    let report: Value =
        serde_json::from_slice(&fs::read(scratch.path("run.json")).unwrap()).unwrap();
    let samples = report["series"][0]["samples"].as_array().unwrap();
    assert_eq!(
        (report["schema"].as_u64(), samples.len()),
        (Some(1), 2 * 48)
    );
    assert!(
        samples
            .iter()
            .all(|sample| sample["seconds"].as_f64().unwrap() > 0.0
                && sample["size_bytes"].as_u64().unwrap() >= 400)
    );
    let csv = fs::read_to_string(scratch.path("run.csv")).unwrap();
    assert!(
        csv.lines().count() == 97
            && csv.starts_with("series,step,direction,set,number,size_bytes,seconds")
    );
    assert!(
        fs::read_to_string(scratch.path("run.md"))
            .unwrap()
            .contains("| host | write |")
    );
    for name in ["speed-write", "boxes-read"] {
        assert!(
            fs::read_to_string(scratch.path(&format!("plots/{name}.svg")))
                .unwrap()
                .starts_with("<svg")
        );
        assert!(!scratch.path(&format!("plots/{name}.png")).exists());
    }
    let page = fs::read_to_string(scratch.path("run.html")).unwrap();
    assert!(
        !page.contains("https://")
            && page.matches("http://").count()
                == page.matches("http://www.w3.org/2000/svg").count()
    );
    crate::common::browse(&scratch, "run.html", VISIT);
    let again = scratch.fails(4, &[SHORT, &["-o", "run.json"]].concat());
    assert!(again.contains("--overwrite"), "{again}");
}

#[test]
fn plots_become_png_files_by_another_program() {
    let scratch = scratch();
    let plots = [SHORT, &["--plots", "plots", "--plots-png"]].concat();
    let absent = scratch.command(&plots).env("PATH", "").output().unwrap();
    let why = crate::common::stderr(&absent);
    assert_eq!(absent.status.code(), Some(6), "{why}");
    assert!(
        why.contains("rsvg-convert is not installed") && !scratch.path("plots").exists(),
        "{why}"
    );
    let program = scratch.write("bin/rsvg-convert", "#!/bin/sh\nexec /bin/cat\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let made = scratch
        .command(&plots)
        .env("PATH", scratch.path("bin"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", crate::common::stderr(&made));
    let light = fs::read_to_string(scratch.path("plots/speed-write.png")).unwrap();
    assert!(light.starts_with("<svg") && !light.contains("prefers-color-scheme"));
    scratch.write(
        "bin/rsvg-convert",
        "#!/bin/sh\necho out of ink >&2\nexit 1\n",
    );
    let failed = scratch
        .command(&plots)
        .env("PATH", scratch.path("bin"))
        .output()
        .unwrap();
    let why = crate::common::stderr(&failed);
    assert!(
        failed.status.code() == Some(1) && why.contains("rsvg-convert failed: out of ink"),
        "{why}"
    );
}

/// Nobody wants to measure for an hour and be told no more than that a file was in the way.
#[test]
fn results_are_told_even_where_they_cannot_be_kept() {
    let scratch = scratch();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args([SHORT, &["--pause", "2", "-o", "run.json"]].concat())
        .current_dir(scratch.path("."))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while is_empty(&scratch, "work") {
        std::thread::sleep(Duration::from_millis(20));
    }
    scratch.write("run.json", "theirs");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("Theil-Sen rate")
            && crate::common::stderr(&output).contains("--overwrite")
    );
    assert_eq!(
        fs::read_to_string(scratch.path("run.json")).unwrap(),
        "theirs"
    );
    fs::create_dir(scratch.path("folder.json")).unwrap();
    scratch.fails(4, &[SHORT, &["-o", "folder.json", "--overwrite"]].concat());
}

#[test]
fn runs_are_compared_and_gates_hold() {
    let scratch = scratch();
    scratch.ok(&[SHORT, &["-o", "a.json"]].concat());
    let mut report: Value =
        serde_json::from_slice(&fs::read(scratch.path("a.json")).unwrap()).unwrap();
    let mut run_at = |name: &str, speed: &dyn Fn(usize) -> f64| {
        let samples = report["series"][0]["samples"].as_array_mut().unwrap();
        for (n, sample) in samples.iter_mut().enumerate() {
            let size = sample["size_bytes"].as_f64().unwrap();
            sample["seconds"] = (size / speed(n)).into();
        }
        scratch.write(name, report.to_string());
    };
    run_at("a.json", &|_| 1e8);
    run_at("slow.json", &|_| 1e6);
    // Every file another speed, from 1e8 to 48e8.
    run_at("noisy.json", &|n| 1e8 * (n * 29 % 48 + 1) as f64);
    let compared = scratch.json(&["bench", "compare", "a.json", "slow.json"]);
    let rows = compared["compared"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(
        |row| (row["ratio"]["value"].as_f64().unwrap() - 0.01).abs() < 1e-9
            && row["ratio"]["verdict"] == "slower"
    ));
    assert!(
        scratch
            .ok(&["bench", "compare", "a.json", "slow.json"])
            .contains("slower")
    );
    scratch.ok(&["bench", "compare", "a.json", "slow.json", "--plots", "both"]);
    let plot = fs::read_to_string(scratch.path("both/compare-write.svg")).unwrap();
    for point in ["data-before=\"100000000", "data-after=\"1000000"] {
        assert_eq!(plot.matches(point).count(), 1, "{point}: {plot}");
    }
    let again = ["bench", "compare", "a.json", "slow.json", "--plots", "both"];
    assert!(scratch.fails(4, &again).contains("--overwrite"));
    let gate = ["bench", "gate", "noisy.json", "--min-ratio"];
    let noisy = scratch.run(&[&gate[..], &["0.9", "--against", "a.json"]].concat());
    let (shown, said) = (
        String::from_utf8_lossy(&noisy.stdout).into_owned(),
        crate::common::stderr(&noisy),
    );
    assert_eq!(noisy.status.code(), Some(1));
    assert!(
        shown.matches("too noisy").count() == 2 && !shown.contains("yes"),
        "{shown}"
    );
    assert!(said.contains("too noisy to judge: host, ") && said.contains("--noisy warn"));
    let warned = [
        &gate[..],
        &["0.9", "--against", "a.json", "--noisy", "warn"],
    ]
    .concat();
    let warned = scratch.run(&warned);
    assert_eq!(warned.status.code(), Some(0));
    assert!(crate::common::stderr(&warned).contains("too noisy to judge: host, "));
    // Whatever the noise, it is slower than that.
    let slower = [
        &gate[..],
        &["1000", "--against", "a.json", "--noisy", "warn"],
    ]
    .concat();
    let slower = scratch.run(&slower);
    assert_eq!(slower.status.code(), Some(1));
    assert!(crate::common::stderr(&slower).contains("slower than 1000"));
    scratch.ok(&[
        "bench",
        "gate",
        "a.json",
        "--against",
        "slow.json",
        "--min-ratio",
        "0.9",
    ]);
    let refused = scratch.run(&[
        "bench",
        "gate",
        "slow.json",
        "--against",
        "a.json",
        "--min-ratio",
        "0.9",
    ]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(crate::common::stderr(&refused).contains("host, write"));
    assert!(
        scratch
            .fails(3, &["bench", "gate", "a.json", "--min-ratio", "0.9"])
            .contains("--against")
    );
    scratch.fails(
        2,
        &[
            "bench",
            "gate",
            "slow.json",
            "--against",
            "a.json",
            "--min-ratio",
            "nan",
        ],
    );
    scratch.write("other.json", r#"{"schema": 99}"#);
    assert!(
        scratch
            .fails(6, &["bench", "compare", "a.json", "other.json"])
            .contains("schema 99")
    );
    scratch.write("no.json", "[]");
    scratch.fails(2, &["bench", "compare", "a.json", "no.json"]);
}

#[test]
fn it_says_what_it_would_write() {
    let scratch = scratch();
    let plan = scratch.run(&["bench", "files", "work", "--dry-run", "--scale", "0.001"]);
    let said = crate::common::stderr(&plan);
    assert!(
        said.contains("160 files of 53.3 MB") && said.contains(" % of that"),
        "{said}"
    );
    let single = scratch.json(&[
        "bench", "files", "work", "--single", "100000", "--caches", "keep",
    ]);
    assert_eq!(single["series"][0]["samples"].as_array().unwrap().len(), 2);
    assert_eq!(single["series"][0]["cooled"], "kept");
    let random = scratch.json(&[
        "bench", "files", "work", "--random", "5", "--sets", "2", "--scale", "0.0001", "--seed",
        "7",
    ]);
    assert_eq!(random["series"][0]["samples"].as_array().unwrap().len(), 20);
    let sizes = scratch.json(&[
        "bench", "files", "work", "--sizes", "10k,20kB", "--sets", "1",
    ]);
    let of = |n: usize| {
        sizes["series"][0]["samples"][n]["size_bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(of(0) + of(1), 10_240 + 20_000);
}

#[test]
fn what_cannot_be_done_is_said_before() {
    let scratch = scratch();
    let full = scratch.fails(1, &["bench", "files", "work", "--scale", "1000000"]);
    assert!(
        full.contains("are free") && full.contains("--scale"),
        "{full}"
    );
    scratch.fails(3, &["bench", "files", "gone"]);
    assert!(
        scratch
            .fails(2, &[SHORT, &["-o", "run.pdf"]].concat())
            .contains(".html")
    );
    scratch.fails(2, &[SHORT, &["--request", "1000"]].concat());
    scratch.fails(2, &["bench", "files", "work", "--scale", "0"]);
    // Root writes where others may not.
    fs::create_dir(scratch.path("locked")).unwrap();
    fs::set_permissions(scratch.path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(scratch.path("locked/probe"), "").is_err() {
        assert!(
            scratch
                .fails(1, &["bench", "files", "locked", "--scale", "0.0001"])
                .contains("locked")
        );
    }
    assert!(is_empty(&scratch, "work"));
}

#[test]
fn an_interrupt_leaves_nothing() {
    let scratch = scratch();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args([
            "bench", "files", "work", "--scale", "0.001", "--pause", "60",
        ])
        .current_dir(scratch.path("."))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !is_empty(&scratch, "work")
    });
    assert!(begun, "it writes files");
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(&scratch, "work"));
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

fn labels(report: &Value) -> Vec<String> {
    let series = report["series"].as_array().unwrap().iter();
    let mut labels: Vec<_> = series
        .map(|series| format!("{} {}", series["label"].as_str().unwrap(), series["step"]))
        .collect();
    labels.sort();
    labels
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

/// What an image took after which step, in the order of time, with what was told of it.
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

fn names(steps: &[(String, Value)]) -> Vec<&str> {
    steps.iter().map(|(at, _)| at.as_str()).collect()
}

fn on_disk(steps: &[(String, Value)], at: &str) -> u64 {
    steps.iter().find(|(step, _)| step == at).unwrap().1["on_disk"]
        .as_u64()
        .unwrap()
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

/// The label of the only image in a report.
fn label(report: &Value) -> String {
    let mut labels = report["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["label"].as_str().unwrap());
    labels.find(|label| *label != "host").unwrap().to_owned()
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
fn space_is_told_round_by_round_whatever_the_way_to_the_image() {
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
        // What was removed comes back when the image is attached the next time, not only when it is
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

#[test]
fn a_run_of_all_articles_is_planned_and_refused() {
    let scratch = scratch();
    let ours = ["bench", "articles", "work", "-o", "results"];
    let quick = [&ours[..], &["--quick", "--dry-run"]].concat();
    let plan = crate::common::stderr(&scratch.run(&quick));
    for word in [
        "rewrite",
        "steady",
        "space",
        "bands",
        "compression",
        "refill",
        "will be written",
        "are free",
        "rating",
        "minutes",
    ] {
        assert!(plan.contains(word), "{word}: {plan}");
    }
    assert!(!scratch.path("results").exists(), "a dry run makes nothing");
    let large = [&ours[..], &["--scale", "1000"]].concat();
    assert!(scratch.fails(1, &large).contains("--scale"));
    assert!(!scratch.path("results").exists());
    // Results of another disk, and of other settings.
    let scale = 0.0001;
    let settings = serde_json::json!({
        "schema": 1, "scale": scale, "sets": 2, "pause": 0.0, "seed": 1, "ways": ["library"],
        "disk": {"device": 0, "size": 1, "file_system": "none"},
    });
    fs::create_dir(scratch.path("results")).unwrap();
    fs::write(scratch.path("results/run.json"), settings.to_string()).unwrap();
    let again = [
        "--scale", "0.0001", "--sets", "2", "--pause", "0", "--via", "library",
    ];
    let refused = scratch.fails(4, &[&ours[..], &again].concat());
    assert!(
        refused.contains("another disk") && refused.contains("--output"),
        "{refused}"
    );
    // Files that would be too long: a limit of the process is one of the file system, too.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    let mut limited_run = std::process::Command::new("sh");
    limited_run.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_bandsaw")]);
    limited_run.args([&ours[..3], &["-o", "other", "--scale", "0.0001"]].concat());
    let output = limited_run.current_dir(scratch.path(".")).output().unwrap();
    let refused = crate::common::stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{refused}");
    assert!(refused.contains("more than a file on"), "{refused}");
    // Not a medium without holes.
    let holes = scratch.fails(6, &[&ours[..3], &["--without-holes", "work"]].concat());
    assert!(holes.contains("can have holes"), "{holes}");
    assert!(!scratch.path("other").exists());
    assert!(is_empty(&scratch, "work"));
}

/// Results of one experiment as a run would have saved them, with few samples.
fn made_up(experiment: &Experiment, folder: &Path) -> Report {
    let scope = Scope {
        scale: 0.001,
        sets: Some(2),
        pause: Some(0.0),
        seed: 1,
        ways: vec![Via::Library],
        program: PathBuf::new(),
        without_holes: None,
    };
    let steps: &[Option<&str>] = match experiment.protocol {
        Protocol::Rewrite => &[Some("first"), Some("rewrite"), Some("first, attached anew")],
        Protocol::Refill => &[Some("empty"), Some("emptied")],
        Protocol::Compression => &[Some("cold"), Some("warm")],
        Protocol::Steady | Protocol::Space | Protocol::Bands => &[None],
    };
    let compresses = experiment.protocol == Protocol::Compression;
    // Every kind of answer needs a pair: the second image is the slower one.
    let kinds = [("UDRW", 0), ("UDRW", 256), ("ASIF", 0)];
    let mut series = Vec::new();
    for (at, (format, key_bits)) in kinds.into_iter().enumerate() {
        for step in steps {
            let directions = [Direction::Write, Direction::Read, Direction::Stream];
            let samples = directions.into_iter().flat_map(|direction| {
                (1..=6).map(move |number| Sample {
                    direction,
                    set: 1,
                    // Readings of a file are samples of one number.
                    number: if compresses { 1 } else { number },
                    size_bytes: 1 << 20,
                    seconds: 0.001 * (1 + at) as f64 + f64::from(number) * 1e-6,
                    flushed_seconds: None,
                })
            });
            let label = format!("{format} {key_bits}, APFS, library");
            let mut one = Series::new(label, *step, Cooled::Dropped, samples.collect());
            one.image = Some(ImageKind {
                format: format.to_owned(),
                key_bits,
                file_system: "APFS".to_owned(),
                via: "library".to_owned(),
            });
            one.band_size =
                (experiment.protocol == Protocol::Bands).then_some((1 + at as u64) << 20);
            let space = ["new", "full", "attached anew", "compacted"];
            one.space = (space.into_iter().zip([1, 9, 5, 2]))
                .map(|(at, size)| Space {
                    at: at.to_owned(),
                    on_disk: size << 20,
                    bands: None,
                    in_use: None,
                    free: None,
                    given_back: None,
                })
                .collect();
            series.push(one);
        }
    }
    let compressed = Compressed {
        series: series[1].label.clone(),
        plain: series[0].label.clone(),
        file: "1.tif".to_owned(),
        number: 1,
        kind: Some(4),
        bytes: 1 << 20,
        before: 1 << 20,
        after: 1 << 19,
        attribute: 0,
    };
    let mut report = Report {
        schema: SCHEMA,
        benchmark: format!("images, {}", experiment.protocol.name()),
        tool: "bandsaw".to_owned(),
        began: 1,
        ended: 2,
        machine: Machine::this(folder),
        settings: experiment.options(&scope).settings,
        series,
        ratios: Vec::new(),
        compressed: compresses.then_some(compressed).into_iter().collect(),
        reads: Vec::new(),
        compression: None,
        notes: Vec::new(),
    };
    report.compare_with_host();
    report
}

/// Each answer has codes and numbers, of which its sentence is made.
#[test]
fn answers_of_the_articles_are_data() {
    let scratch = scratch();
    let work = scratch.path("work");
    for experiment in &EXPERIMENTS {
        let json = made_up(experiment, &work).to_json().unwrap();
        scratch.write(&format!("results/{}.json", experiment.name()), json);
    }
    let run = [
        "bench", "articles", "work", "-o", "results", "--via", "library", "--scale", "0.001",
    ];
    let printed = scratch.json(&run);
    crate::json::assert_obeys(&scratch, "bench-articles", &printed);
    let sections = printed["sections"].as_array().unwrap();
    let answers = |protocol: &str| {
        let section = sections.iter().find(|of| of["protocol"] == protocol);
        section.unwrap()["answers"].as_array().unwrap().clone()
    };
    let kinds: BTreeSet<String> = (sections.iter())
        .flat_map(|section| section["answers"].as_array().unwrap())
        .map(|answer| answer["kind"].as_str().unwrap().to_owned())
        .collect();
    let all = ["fastest", "ratios", "readings", "returned", "without_holes"];
    assert_eq!(kinds, all.map(str::to_owned).into());
    let steady = answers("steady");
    let (encrypted, fastest) = (&steady[0], &steady[1]);
    assert_eq!(encrypted["subject"], "encrypted_over_plain");
    assert_eq!(encrypted["verdict"], "slower");
    assert_eq!(encrypted["counts"]["slower"], 2, "writes and reads");
    assert_eq!(encrypted["ratios"][0]["ratio"]["verdict"], "slower");
    let low = encrypted["low"].as_f64().unwrap();
    assert!((0.49..0.51).contains(&low), "{encrypted}");
    let sentence = encrypted["message"].as_str().unwrap();
    assert!(
        sentence.starts_with(&format!("Encrypted over plain: {low:.2} to ")),
        "{sentence}"
    );
    assert_eq!(
        (&fastest["verdict"], &fastest["name"]),
        (&"beyond_noise".into(), &"UDRW 0, APFS, library".into())
    );
    let returned = &answers("space")[0];
    assert_eq!(
        (&returned["full"], &returned["compacted"]),
        (&(9 << 20).into(), &(2 << 20).into())
    );
    let readings = &answers("compression")[0];
    assert_eq!(readings["steps"][1]["step"], "warm");
    assert_eq!(readings["steps"][1]["counts"]["slower"], 1, "{readings}");
    // The page has the same sentences.
    let page = fs::read_to_string(scratch.path("results/articles.md")).unwrap();
    assert!(page.contains(&format!("* {sentence}\n")), "{page}");
}

#[test]
#[ignore = "full: every protocol of every article takes minutes"]
fn articles_are_repeated_on_one_page() {
    let scratch = scratch();
    let ours = [
        "bench", "articles", "work", "-o", "results", "--scale", "0.00002", "--sets", "2",
        "--pause", "0",
    ];
    // Interrupted after the first protocol, the run keeps its results and nothing else.
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(ours)
        .current_dir(scratch.path("."))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let first = scratch.path("results/rewrite.json");
    assert!((0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        first.exists() && !is_empty(&scratch, "work")
    }));
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(&scratch, "work"));
    let before = fs::read(&first).unwrap();
    let page = fs::read_to_string(scratch.path("results/articles.md")).unwrap();
    assert!(page.contains("## First and second write") && !page.contains("## Band sizes"));
    // The same command goes on.
    let printed = scratch.json(&[&ours[..], &["--note", "a <quiet> disk"]].concat());
    assert_eq!(
        fs::read(&first).unwrap(),
        before,
        "nothing is measured again"
    );
    crate::json::assert_obeys(&scratch, "bench-articles", &printed);
    let sections = printed["sections"].as_array().unwrap();
    assert_eq!(sections.len(), 6);
    for section in sections {
        let answers = section["answers"].as_array().unwrap();
        assert!(!answers.is_empty(), "{section}");
        for answer in answers {
            assert_ne!(answer["kind"], "not_measured", "{section}");
        }
    }
    assert!(is_empty(&scratch, "work"));
    let page = fs::read_to_string(scratch.path("results/articles.md")).unwrap();
    let mut plots = 0;
    for file in fs::read_dir(scratch.path("results/plots")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(plots/{name})")), "{name}");
        plots += 1;
    }
    assert_eq!(plots, 16);
    assert!(page.contains("This run: a <quiet> disk"));
    let html = fs::read_to_string(scratch.path("results/articles.html")).unwrap();
    assert!(html.contains("This run: a &lt;quiet&gt; disk"));
    for disk in ["| ASIF, encrypted APFS |", "| UDRW, encrypted APFS |"] {
        assert!(page.contains(disk), "the virtual machine's disk {disk}");
    }
    // A column for each interface, and the published values in columns of their own.
    let heading = "|  | through the library | through a mount (FUSE) | through NBD | published: of the host | published: speed |";
    assert!(page.contains(heading), "{page}");
    let row = page
        .lines()
        .find(|line| line.starts_with("| UDSB AES-128, APFS |"));
    let cells: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
    assert_eq!(
        cells.iter().filter(|cell| cell.contains("% [")).count(),
        3,
        "{cells:?}"
    );
    let rewritten = page
        .split("### ")
        .find(|part| part.contains("rewrite: write"));
    let row = rewritten
        .unwrap()
        .lines()
        .find(|line| line.starts_with("| UDSB AES-128, APFS |"));
    assert!(row.unwrap().ends_with("| 60 % | 4.3 GB/s |"), "{row:?}");
    look_at(&scratch, "results/articles.html", "articles");
    // Results of which one is missing: only that is measured.
    fs::remove_file(scratch.path("results/compression.json")).unwrap();
    scratch.json(&ours);
    assert_eq!(fs::read(&first).unwrap(), before);
    assert!(scratch.path("results/compression.json").exists());
}
