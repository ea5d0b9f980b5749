//! Results as rows of words, for the terminal, the HTML page and the pages in docs/benchmarks.

use std::collections::BTreeSet;

use super::{Report, Series};
use crate::images::STEPS;
use crate::reference::references;
use crate::sample::Direction;
use crate::stats::Summary;
use crate::units::{bytes, decimal, rate, seconds};

/// A heading and rows; the first column is text, the others are numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of columns.
    pub heading: Vec<String>,
    /// Rows, as long as the heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: &str, heading: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            heading: heading.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// As Markdown has it.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            format!(
                "| {} |\n",
                cells
                    .iter()
                    .map(|cell| cell.replace('|', "\\|"))
                    .collect::<Vec<_>>()
                    .join(" | ")
            )
        };
        let rule: Vec<String> = (0..self.heading.len())
            .map(|n| if n == 0 { "---" } else { "--:" }.to_owned())
            .collect();
        [line(&self.heading), line(&rule)]
            .into_iter()
            .chain(self.rows.iter().map(|row| line(row)))
            .collect()
    }
}

/// All tables that a report has something to show in.
pub fn tables(report: &Report) -> Vec<Table> {
    let mut tables = vec![
        speeds(report),
        lines(report),
        ratios(report),
        space(report),
        processes(report),
    ];
    tables.extend(compressed(report));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Each series' summaries, in the order in which they were measured.
fn summaries(report: &Report) -> impl Iterator<Item = (&Series, &'static str, &Summary)> {
    report.series.iter().flat_map(|series| {
        let of = [
            ("write", &series.write),
            ("write and flush", &series.write_flushed),
            ("read", &series.read),
            ("stream", &series.stream),
        ];
        of.into_iter().filter_map(move |(what, summary)| {
            summary.as_ref().map(|summary| (series, what, summary))
        })
    })
}

fn speeds(report: &Report) -> Table {
    let heading = [
        "",
        "",
        "files",
        "bytes",
        "20 % trimmed mean",
        "[of",
        "to]",
        "mean",
        "median",
        "slowest",
        "fastest",
    ];
    let mut table = Table::new("Speeds", &heading);
    for (series, what, summary) in summaries(report) {
        let middle = summary.trimmed_mean;
        let noisy = if summary.too_noisy {
            " (too noisy to say)"
        } else {
            ""
        };
        table.rows.push(vec![
            series.name(),
            what.to_owned(),
            match summary.cache_speed {
                0 => summary.count.to_string(),
                small => format!("{} ({small} under 1 MB)", summary.count),
            },
            bytes(summary.bytes),
            format!("{}{noisy}", rate(middle.value)),
            rate(middle.low),
            rate(middle.high),
            rate(summary.mean),
            rate(summary.median),
            rate(summary.min),
            rate(summary.max),
        ]);
    }
    table
}

fn lines(report: &Report) -> Table {
    let heading = [
        "",
        "",
        "Theil-Sen rate",
        "[of",
        "to]",
        "linear rate",
        "latency",
        "dispersion",
        "first set",
        "later sets",
    ];
    let mut table = Table::new("Rates and latencies", &heading);
    for (series, what, summary) in
        summaries(report).filter(|(.., summary)| summary.linear.is_some())
    {
        let robust = |of: fn(&crate::stats::Bounded) -> f64| {
            summary
                .theil_sen
                .as_ref()
                .map_or_else(|| "none".to_owned(), |found| rate(of(found)))
        };
        let change = |of: fn(&crate::stats::FirstAndLater) -> f64| {
            summary
                .first_and_later
                .as_ref()
                .map_or_else(String::new, |found| rate(of(found)))
        };
        let linear = summary.linear.map(|linear| {
            let flag = if linear.negative_latency {
                " (negative: no line)"
            } else {
                ""
            };
            (
                if linear.rate > 0.0 {
                    rate(linear.rate)
                } else {
                    "none".to_owned()
                },
                format!("{}{flag}", seconds(linear.latency)),
            )
        });
        let (linear, latency) = linear.unwrap_or_default();
        table.rows.push(vec![
            series.name(),
            what.to_owned(),
            robust(|found| found.value),
            robust(|found| found.low),
            robust(|found| found.high),
            linear,
            latency,
            summary
                .dispersion
                .map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share)),
            change(|found| found.first),
            change(|found| found.later),
        ]);
    }
    table
}

fn ratios(report: &Report) -> Table {
    let mut table = Table::new(
        "Speed over the host's",
        &[
            "",
            "",
            "ratio",
            "[of",
            "to]",
            "verdict",
            "published of Apple's",
        ],
    );
    for against in &report.ratios {
        let ratio = against.ratio;
        let words = [ratio.value, ratio.low, ratio.high].map(|ratio| format!("{ratio:.2}"));
        let [value, low, high] = words;
        table.rows.push(vec![
            against.label.clone(),
            against.direction.to_string(),
            value,
            low,
            high,
            ratio.verdict.words().to_owned(),
            published(report, &against.label, against.direction),
        ]);
    }
    table
}

/// What others have measured of the same.
fn published(report: &Report, name: &str, direction: Direction) -> String {
    let Some(series) = report.series.iter().find(|series| series.name() == name) else {
        return String::new();
    };
    let speeds = references().beside(&report.benchmark, series, direction);
    speeds
        .iter()
        .map(|speed| speed.words())
        .collect::<Vec<_>>()
        .join("; ")
}

fn space(report: &Report) -> Table {
    let heading = [
        "",
        "after",
        "on disk",
        "bands",
        "in use within",
        "free within",
        "given back",
        "published, to scale",
    ];
    let mut table = Table::new("Size on disk", &heading);
    for series in &report.series {
        for space in &series.space {
            table.rows.push(vec![
                series.name(),
                space.at.clone(),
                bytes(space.on_disk),
                space
                    .bands
                    .map_or_else(String::new, |bands| bands.to_string()),
                space.in_use.map_or_else(String::new, bytes),
                space.free.map_or_else(String::new, bytes),
                space.given_back.map_or_else(String::new, bytes),
                references()
                    .of_step(report, series, &space.at)
                    .iter()
                    .map(|(size, ..)| decimal(*size))
                    .collect::<Vec<_>>()
                    .join("; "),
            ]);
        }
    }
    table
}

fn processes(report: &Report) -> Table {
    let mut table = Table::new(
        "The process that serves the image; for the host and the library, this one",
        &["", "real", "user", "system", "processors", "threads"],
    );
    for series in &report.series {
        let Some(process) = &series.process else {
            continue;
        };
        table.rows.push(vec![
            series.name(),
            seconds(process.real),
            seconds(process.user),
            seconds(process.system),
            format!("{:.2}", process.processors()),
            process.threads.to_string(),
        ]);
    }
    table
}

/// Compressed files, a table for each way of storing them, beside what was published.
pub fn compressed(report: &Report) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    // The run had an order of its own.
    let mut files: Vec<_> = report.compressed.iter().collect();
    files.sort_by_key(|file| (&file.series, file.number));
    for file in files {
        let title = format!("Compressed files: {}", file.series);
        if tables.last().is_none_or(|table| table.title != title) {
            let sizes = [
                "",
                "bytes",
                "type",
                "as it is",
                "compressed",
                "of that in the attribute",
                "saved",
            ];
            let times = [
                "cold: as it is",
                "compressed",
                "speed",
                "warm: as it is",
                "compressed",
                "speed",
            ];
            tables.push(Table::new(
                &title,
                &[&sizes[..], &times[..], &["published: saved", "speed, cold"]].concat(),
            ));
        }
        let mut row = vec![
            file.file.clone(),
            file.bytes.to_string(),
            file.kind
                .map_or_else(|| "plain".to_owned(), |kind| kind.to_string()),
            file.before.to_string(),
            file.after.to_string(),
            file.attribute.to_string(),
            format!("{:.1} %", file.saved()),
        ];
        for step in STEPS {
            let [plain, packed] = report.readings(file, step);
            row.extend([plain, packed].map(|time| time.map_or_else(String::new, seconds)));
            row.push(
                plain
                    .zip(packed)
                    .map_or_else(String::new, |(plain, packed)| {
                        format!("{:.2}", plain / packed)
                    }),
            );
        }
        let published = references()
            .compression
            .iter()
            .find(|published| published.file == file.file);
        let saved = published.and_then(|published| published.saved_percent);
        row.push(saved.map_or_else(String::new, |saved| format!("{saved} %")));
        row.push(published.map_or_else(String::new, |published| {
            published
                .speed()
                .map_or_else(|| published.note.clone(), |speed| format!("{speed:.2}"))
        }));
        if let Some(table) = tables.last_mut() {
            table.rows.push(row);
        }
    }
    tables
}

/// Returns how many files a series has at most that are written, and of how many sets.
fn counts(report: &Report) -> String {
    let written = report.series.iter().map(|series| {
        series
            .samples
            .iter()
            .filter(|sample| sample.direction == Direction::Write)
    });
    let counts = written.map(|samples| {
        (
            samples.clone().count(),
            samples
                .map(|sample| sample.set)
                .collect::<BTreeSet<_>>()
                .len(),
        )
    });
    match counts.max() {
        None | Some((0, _)) => String::new(),
        Some((files, sets)) => format!("{files} written at most in a series, {sets} sets, "),
    }
}

/// What the reader should know of a run, beside its numbers.
pub fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let (settings, machine) = (&report.settings, &report.machine);
    let mut facts = vec![
        (
            "Benchmark",
            format!("{}, {}", report.benchmark, report.tool),
        ),
        (
            "Machine",
            format!(
                "{}, {} cores, {} of memory, {}",
                machine.processor,
                machine.cores,
                bytes(machine.memory),
                machine.system
            ),
        ),
        ("Files on", machine.file_system.clone()),
        (
            "Files",
            format!(
                "{}sizes times {}, seed {}",
                counts(report),
                settings.plan.scale,
                settings.plan.seed
            ),
        ),
        ("Requests", decimal(settings.request as f64)),
        (
            "Contents",
            if settings.compressible {
                "compressible"
            } else {
                "incompressible"
            }
            .to_owned(),
        ),
    ];
    for series in report.series.iter().filter(|series| series.read.is_some()) {
        let fact = ("Caches", series.cooled.words().to_owned());
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    if report
        .series
        .iter()
        .flat_map(|series| [&series.write, &series.read])
        .flatten()
        .any(|summary| summary.cache_speed > 0)
    {
        facts.push((
            "Note",
            "files under 1 MB are here: what they tell is the speed of memory".to_owned(),
        ));
    }
    facts.extend(report.notes.iter().map(|note| ("Note", note.clone())));
    facts
}
