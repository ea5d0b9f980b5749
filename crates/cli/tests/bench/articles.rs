//! `bench articles`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{is_empty, look_at, scratch};
use bandsaw_bench::articles::{EXPERIMENTS, Experiment, Scope};
use bandsaw_bench::images::{Protocol, Via};
use bandsaw_bench::machine::Machine;
use bandsaw_bench::place::CacheState;
use bandsaw_bench::report::{Compressed, ImageKind, Report, SCHEMA, Series, Space};
use bandsaw_bench::sample::{Direction, Sample};

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
    assert!(
        holes.contains("a file system without sparse files"),
        "{holes}"
    );
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
            let mut one = Series::new(label, *step, CacheState::Dropped, samples.collect());
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
        series: series[steps.len()].label.clone(),
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
