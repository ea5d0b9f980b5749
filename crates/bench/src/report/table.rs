//! Tables of results, the same in the terminal, on the page and in docs/benchmarks.md.
//!
//! One file, as each table is one function, and names and order of the columns are the same in all.

use std::collections::BTreeSet;

use super::{HOST, HostComparison, ReadTime, Report, STEPS, Series};
use crate::place::CacheState;
use crate::reference::references;
use crate::sample::Direction;
use crate::stats::Summary;
use crate::units::{bytes, decimal, rate, seconds};

/// Number of series that a fact names at most.
const NAMED: usize = 8;

/// A table of text, then numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Names of the columns.
    pub heading: Vec<String>,
    /// Number of columns of text, which are the first.
    pub texts: usize,
    /// Rows, each as long as the heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with the names of its columns, separated by `|`; the first is text.
    pub fn new(title: &str, heading: &str) -> Self {
        Self {
            title: title.to_owned(),
            heading: heading
                .split('|')
                .map(|name| name.trim().to_owned())
                .collect(),
            texts: 1,
            rows: Vec::new(),
        }
    }

    /// Formats the table as Markdown.
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
            .map(|n| if n < self.texts { "---" } else { "--:" }.to_owned())
            .collect();
        [line(&self.heading), line(&rule)]
            .into_iter()
            .chain(self.rows.iter().map(|row| line(row)))
            .collect()
    }
}

/// Returns all tables for which a report has data.
pub fn tables(report: &Report) -> Vec<Table> {
    let mut tables = vec![
        speeds(report),
        lines(report),
        ratios(report),
        streams(report),
        space(report),
        processes(report),
    ];
    tables.extend(compressed(report));
    tables.push(read_times(report));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Returns the statistics of each series, sorted by what was measured, then the fastest first; series
/// that differ in their band size by that size.
fn summaries(report: &Report) -> Vec<(&Series, &'static str, &Summary)> {
    let all = report.series.iter().flat_map(|series| {
        let of = [
            ("write", &series.write),
            ("write and flush", &series.write_flushed),
            ("read", &series.read),
            ("stream", &series.stream),
        ];
        of.into_iter().filter_map(move |(what, summary)| {
            summary.as_ref().map(|summary| (series, what, summary))
        })
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|(one, what, fast), (other, what_other, fast_other)| {
        let place = |what: &str| {
            let known = ["write", "write and flush", "read", "stream"];
            known.iter().position(|known| *known == what)
        };
        let speed = |summary: &Summary| summary.trimmed_mean.value;
        place(what)
            .cmp(&place(what_other))
            .then_with(|| one.band_size.cmp(&other.band_size))
            .then_with(|| speed(fast_other).total_cmp(&speed(fast)))
    });
    all
}

fn speeds(report: &Report) -> Table {
    let heading =
        "|  | files | bytes | 20 % trimmed mean | [of | to] | mean | median | slowest | fastest";
    let mut table = Table::new("Speeds", heading);
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
    let heading = "|  | Theil-Sen rate | [of | to] | linear rate | latency | dispersion | first set | later sets";
    let mut table = Table::new("Rates and latencies", heading);
    let fitted = summaries(report).into_iter();
    for (series, what, summary) in fitted.filter(|(.., summary)| summary.linear.is_some()) {
        let robust = |of: fn(&crate::stats::Interval) -> f64| {
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
        "Speed relative to the host",
        "|  | ratio | [of | to] | verdict | published of Apple's",
    );
    for against in sorted(report) {
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

/// Returns the ratios sorted by direction, then by band size, then the fastest first.
pub(super) fn sorted(report: &Report) -> Vec<&HostComparison> {
    let band_size = |against: &HostComparison| {
        let mut series = report.series.iter();
        let series = series.find(|series| series.name() == against.label);
        series.and_then(|series| series.band_size)
    };
    let mut ratios: Vec<&HostComparison> = report.ratios.iter().collect();
    ratios.sort_by(|one, other| {
        one.direction
            .cmp(&other.direction)
            .then_with(|| band_size(one).cmp(&band_size(other)))
            .then_with(|| other.ratio.value.total_cmp(&one.ratio.value))
    });
    ratios
}

/// Returns the streams with their time and rate, and what limits them.
fn streams(report: &Report) -> Table {
    let heading = "| repeats | bands in use | possible | median time | rate | [of | to] | of the compressor | over the host | verdict";
    let mut table = Table::new("One file compressed into another", heading);
    let Some(compression) = &report.compression else {
        return table;
    };
    let streams = summaries(report).into_iter();
    for (series, _, summary) in streams.filter(|(_, what, _)| *what == "stream") {
        let (rates, count) = (summary.trimmed_mean, |n: Option<u64>| {
            n.map_or_else(String::new, |n| n.to_string())
        });
        let (low, high) = summary.interval;
        let against = report.ratios.iter().find(|against| {
            against.direction == Direction::Stream && against.label == series.name()
        });
        let over = against.map(|against| {
            let ratio = against.ratio;
            format!("{:.2} [{:.2} to {:.2}]", ratio.value, ratio.low, ratio.high)
        });
        let verdict = if compression.limits(rates.value) {
            "limited by the processor"
        } else {
            against.map_or("", |against| against.ratio.verdict.words())
        };
        table.rows.push(vec![
            series.name(),
            summary.count.to_string(),
            count(series.bands_in_use()),
            count(series.possible_bands),
            seconds(compression.bytes as f64 / summary.median),
            rate(rates.value),
            rate(low),
            rate(high),
            format!("{:.0} %", 100.0 * rates.value / compression.rate),
            over.unwrap_or_default(),
            verdict.to_owned(),
        ]);
    }
    table
}

/// Formats the published values that correspond to a series.
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
    let heading = "| after | on disk | bands | in use within | free within | given back | published, to scale";
    let mut table = Table::new("Size on disk", heading);
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
        "| real | user | system | processors | threads",
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

/// Returns the compressed files, one table per compression method, beside the published values.
pub fn compressed(report: &Report) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    // The cases were run in random order.
    let mut files: Vec<_> = report.compressed.iter().collect();
    files.sort_by_key(|file| (&file.series, file.number));
    for file in files {
        let title = format!("Compressed files: {}", file.series);
        if tables.last().is_none_or(|table| table.title != title) {
            let heading = "| bytes | type | as it is | compressed | of that in the attribute | saved \
                | cold: as it is | compressed | speed | warm: as it is | compressed | speed \
                | published: saved | speed, cold";
            tables.push(Table::new(&title, heading));
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

/// Returns the mean times of reading each file.
fn read_times(report: &Report) -> Table {
    let heading = "|  | file | repeats | real | user | system";
    let mut table = Table::new(
        "Times of reading a file; user and system in steps of 10 ms",
        heading,
    );
    let mut reads: Vec<_> = report.reads.iter().collect();
    reads.sort_by_key(|read| (&read.file, &read.step, &read.series));
    let same = |one: &&ReadTime, other: &&ReadTime| {
        (&one.file, &one.step, &one.series) == (&other.file, &other.step, &other.series)
    };
    for reads in reads.chunk_by(same) {
        let mean = |of: fn(&ReadTime) -> f64| {
            let sum: f64 = reads.iter().map(|read| of(read)).sum();
            seconds(sum / reads.len() as f64)
        };
        table.rows.push(vec![
            reads[0].series.clone(),
            reads[0].step.clone(),
            reads[0].file.clone(),
            reads.len().to_string(),
            mean(|read| read.real),
            mean(|read| read.user),
            mean(|read| read.system),
        ]);
    }
    table
}

/// Formats the maximum number of files written in a series, and of their sets.
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
        Some((files, sets)) => {
            let noun = if sets == 1 { "set" } else { "sets" };
            format!("{files} written at most in a series, in {sets} {noun}, ")
        }
    }
}

/// Names the series that something is said of; nothing if there are none.
fn of_series(series: &[&Series], is_meant: impl Fn(&Series) -> bool) -> String {
    let names: Vec<String> = series
        .iter()
        .filter(|series| is_meant(series))
        .map(|series| series.name())
        .collect();
    let host = names.iter().any(|name| name.starts_with(HOST));
    let images = series.iter().filter(|series| series.label != HOST).count();
    match names.len() {
        len if len > 1 && len == series.len() => "all series".to_owned(),
        len if len > 1 && len == images && !host => "all images".to_owned(),
        len if len > NAMED => format!("{}; and {} more", names[..NAMED].join("; "), len - NAMED),
        _ => names.join("; "),
    }
}

/// Names the series that are said to be read from the disk, but were read more than twice as fast as
/// the host's folder was.
fn faster_than_the_host(report: &Report) -> Vec<String> {
    const FASTER: f64 = 2.0;
    let dropped =
        |series: &&Series| matches!(series.cooled, CacheState::Dropped | CacheState::Asked);
    let read = |series: &Series| series.read.as_ref().map(|read| read.median);
    let series = report.series.iter().filter(dropped);
    let host = series.clone().filter(|series| series.label == HOST);
    let Some(host) = host.filter_map(read).reduce(f64::max) else {
        return Vec::new();
    };
    series
        .filter(|series| series.label != HOST)
        .filter(|series| read(series).is_some_and(|read| read > FASTER * host))
        .map(Series::name)
        .collect()
}

/// Returns the settings and the machine of a run, as labels and texts.
pub fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let (settings, machine) = (&report.settings, &report.machine);
    let mut facts = vec![
        (
            "Benchmark",
            format!("{}, {}", report.benchmark, report.tool),
        ),
        ("Machine", machine.to_string()),
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
    let read: Vec<&Series> = report
        .series
        .iter()
        .filter(|series| series.read.is_some() || series.stream.is_some())
        .collect();
    let mut shown: Vec<CacheState> = Vec::new();
    for series in &read {
        if shown.contains(&series.cooled) {
            continue;
        }
        shown.push(series.cooled);
        let of = of_series(&read, |other| other.cooled == series.cooled);
        facts.push(("Caches", format!("{of}: {}", series.cooled.words())));
    }
    let cached = faster_than_the_host(report);
    if !cached.is_empty() {
        facts.push((
            "Caches",
            format!(
                "{}: read more than twice as fast as the host's folder, which the disk does not allow: take its reads as not dropped",
                cached.join("; ")
            ),
        ));
    }
    let all: Vec<&Series> = report.series.iter().collect();
    let of = of_series(&all, |series| {
        let summaries = [&series.write, &series.read].into_iter().flatten();
        summaries.into_iter().any(|summary| summary.cache_speed > 0)
    });
    if !of.is_empty() {
        facts.push((
            "Note",
            format!("{of}: some files are under 1 MB: their speed is the speed of memory"),
        ));
    }
    facts.extend(report.notes.iter().map(|note| ("Note", note.clone())));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn something_said_of_series_names_them() {
        let series = |label: &str, cooled| {
            let sample = Sample {
                direction: Direction::Read,
                set: 1,
                number: 1,
                size_bytes: 2_000_000,
                seconds: 1.0,
                flushed_seconds: None,
            };
            Series::new(label, None, cooled, vec![sample])
        };
        let host = series(HOST, CacheState::Dropped);
        let of = |images: [Series; 2], is_meant: &dyn Fn(&Series) -> bool| {
            let [one, other] = &images;
            of_series(&[&host, one, other], is_meant)
        };
        let images = || {
            [
                series("UDSB", CacheState::Asked),
                series("ASIF", CacheState::Asked),
            ]
        };
        let asked = |series: &Series| series.cooled == CacheState::Asked;
        assert_eq!(of(images(), &asked), "all images");
        assert_eq!(of(images(), &|series| !asked(series)), "host");
        assert_eq!(of(images(), &|_| true), "all series");
        assert_eq!(of(images(), &|_| false), "");
        let mixed = [
            series("UDSB", CacheState::Kept),
            series("ASIF", CacheState::Asked),
        ];
        assert_eq!(of(mixed, &asked), "ASIF");
    }
}
