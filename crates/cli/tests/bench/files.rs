//! `bench files`, `bench compare` and `bench gate`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::{VISIT, is_empty, scratch};
use serde_json::Value;

/// A run of a moment.
const SHORT: &[&str] = &["bench", "files", "work", "--scale", "0.0002", "--sets", "3"];

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

/// An output file that is in the way is refused before the measurement.
#[test]
fn results_are_printed_even_where_they_cannot_be_saved() {
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
fn impossible_runs_are_refused_first() {
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
