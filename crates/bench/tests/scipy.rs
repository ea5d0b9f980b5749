//! Statistics compared with SciPy and NumPy on random data, to a relative error of 1e-9.
//!
//! The Python is that of `tests/peers`: `BANDSAW_PEER_PYTHON`, or the one that
//! `scripts/install-test-tools` installs. Without it the test is skipped with a message; with
//! `BANDSAW_REQUIRE_PEERS=1` it fails.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bandsaw_bench::noise::SplitMix64;
use bandsaw_bench::sample::{Direction, Sample};
use bandsaw_bench::stats::Summary;
use bandsaw_bench::stats::line::{least_squares, theil_sen};
use bandsaw_bench::stats::order::{mean, median, quantile, sorted, trimmed};
use serde_json::{Value, json};

/// Script that prints SciPy's results for each series of points in a file.
const THEIRS: &str = r"
import json, sys
import numpy, scipy.stats
report = []
for points in json.load(open(sys.argv[1])):
    x, y = numpy.array(points).T
    line = scipy.stats.linregress(x, y)
    slope, at_zero, low, high = scipy.stats.theilslopes(y, x, 0.95, method='joint')
    report.append([
        numpy.mean(y), numpy.median(y), scipy.stats.trim_mean(y, 0.2), numpy.percentile(y, 2.5), numpy.percentile(y, 97.5),
        line.slope, line.intercept, slope, at_zero, low, high,
    ])
json.dump([[float(value) for value in values] for values in report], sys.stdout)
";

const NAMES: [&str; 11] = [
    "mean",
    "median",
    "trimmed mean",
    "2.5 %",
    "97.5 %",
    "least squares: slope",
    "least squares: at zero",
    "Theil-Sen: slope",
    "Theil-Sen: at zero",
    "Theil-Sen: low",
    "Theil-Sen: high",
];

fn ours(points: &[(f64, f64)]) -> [f64; 11] {
    let y: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    let (line, robust) = (least_squares(points).unwrap(), theil_sen(points).unwrap());
    [
        mean(&y).unwrap(),
        median(&y).unwrap(),
        mean(&trimmed(&y, 0.2)).unwrap(),
        quantile(&sorted(&y), 0.025).unwrap(),
        quantile(&sorted(&y), 0.975).unwrap(),
        line.slope,
        line.at_zero,
        robust.line.slope,
        robust.line.at_zero,
        robust.slopes.0,
        robust.slopes.1,
    ]
}

/// Returns series with and without ties, outliers and a slope.
fn series() -> Vec<Vec<(f64, f64)>> {
    let mut noise = SplitMix64::new(2026);
    (0..60)
        .map(|n| {
            let (count, steps) = (3 + noise.below(170), 3 + noise.below(20) as u64);
            (0..count as u64)
                .map(|point| {
                    // The first two points differ in `x`.
                    let x = if point < 2 {
                        point as f64
                    } else {
                        (noise.number() % steps) as f64 * 2e6
                    };
                    let y = 0.01
                        + x * 1e-8 * (1.0 + noise.share())
                        + if noise.below(10) == 0 {
                            noise.share()
                        } else {
                            0.0
                        };
                    (
                        x,
                        if n % 3 == 0 {
                            (y * 50.0).round() / 50.0
                        } else {
                            y
                        },
                    )
                })
                .collect()
        })
        .collect()
}

fn python() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = || {
        set("BANDSAW_TEST_CACHE").or_else(|| {
            Some(
                set("XDG_CACHE_HOME")
                    .or_else(|| Some(set("HOME")?.join(".cache")))?
                    .join("bandsaw-tests"),
            )
        })
    };
    let python =
        set("BANDSAW_PEER_PYTHON").or_else(|| Some(cache()?.join("peer-python/bin/python")))?;
    let import = Command::new(&python)
        .args(["-c", "import numpy, scipy.stats"])
        .stderr(Stdio::null())
        .status();
    import
        .is_ok_and(|status| status.success())
        .then_some(python)
}

#[test]
#[ignore = "full: scipy takes a minute and 200 MB"]
fn scipy_and_numpy_say_the_same() {
    let Some(python) = python() else {
        return crate::skip::without_program(
            "scipy_and_numpy_say_the_same",
            "no Python with scipy",
        );
    };
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, series) = (scratch.path().join("points.json"), series());
    std::fs::write(&path, json!(series).to_string()).unwrap();
    let report = Command::new(python)
        .args(["-c", THEIRS])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        report.status.success(),
        "{}",
        String::from_utf8_lossy(&report.stderr)
    );
    let report: Vec<Vec<Option<f64>>> = serde_json::from_slice::<Value>(&report.stdout)
        .map(|report| serde_json::from_value(report).unwrap())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&report.stdout)));
    assert_eq!(report.len(), series.len());
    for (points, report) in series.iter().zip(report) {
        for ((name, ours), theirs) in NAMES.iter().zip(ours(points)).zip(report) {
            // SciPy returns no bound beyond the extreme slopes; ours returns the extreme slope.
            let Some(theirs) = theirs else { continue };
            let close = (ours - theirs).abs() <= 1e-9 * ours.abs().max(theirs.abs());
            assert!(
                close,
                "{name} of {} points: ours {ours:e}, theirs {theirs:e}",
                points.len()
            );
        }
    }
}

#[test]
fn a_summary_is_made_of_these() {
    let samples: Vec<Sample> = series()[1]
        .iter()
        .map(|(x, y)| Sample {
            direction: Direction::Read,
            set: 1,
            number: 1,
            size_bytes: *x as u64 + 2_000_000,
            seconds: *y,
            flushed_seconds: None,
        })
        .collect();
    let summary = Summary::of(&samples, Direction::Read, false).unwrap();
    let points: Vec<(f64, f64)> = samples
        .iter()
        .map(|sample| (sample.size_bytes as f64, sample.seconds))
        .collect();
    assert_eq!(
        summary.theil_sen.unwrap().value,
        1.0 / theil_sen(&points).unwrap().line.slope
    );
    assert_eq!(
        summary.linear.unwrap().latency,
        least_squares(&points).unwrap().at_zero
    );
}
