//! Answers to the questions of the articles, each with the noise of the run.

use super::Experiment;
use crate::images::{Protocol, STEPS};
use crate::report::{HOST, ImageKind, Report, Series};
use crate::sample::Direction;
use crate::stats;
use crate::stats::ratio::{Ratio, Verdict};
use crate::units::{bytes, rate};

/// Number of series that an answer names at most.
const NAMED: usize = 6;

/// Returns the answers of a run to the question of its experiment.
pub(super) fn of(experiment: &Experiment, report: &Report) -> Vec<String> {
    match experiment.protocol {
        Protocol::Space if experiment.without_holes => without_holes(report),
        Protocol::Rewrite => vec![
            pairs(report, "First write over second", |one| {
                at_step(report, one, "first", "rewrite")
            }),
            pairs(
                report,
                "First write after attaching anew over first write",
                |one| at_step(report, one, "first, attached anew", "first"),
            ),
            fastest(report, Some("rewrite")),
            pairs(report, "Encrypted over plain", |one| plain(report, one)),
        ],
        Protocol::Steady => vec![
            pairs(report, "Encrypted over plain", |one| plain(report, one)),
            fastest(report, None),
        ],
        Protocol::Space => returned(report),
        Protocol::Bands => bands(report),
        Protocol::Compression => readings(report),
        Protocol::Refill => {
            let raw = |one: &Series| {
                let image = one.image.as_ref().filter(|image| image.format == "ASIF")?;
                let raw = ImageKind {
                    format: "UDRW".to_owned(),
                    ..image.clone()
                };
                find(report, &raw, one.step.as_deref())
            };
            let mut all = vec![
                pairs(report, "Emptied over empty", |one| {
                    at_step(report, one, "emptied", "empty")
                }),
                pairs(report, "Encrypted over plain", |one| plain(report, one)),
                pairs(report, "ASIF over raw", raw),
            ];
            all.extend(returned(report));
            all
        }
    }
}

fn find<'a>(report: &'a Report, image: &ImageKind, step: Option<&str>) -> Option<&'a Series> {
    let mut series = report.series.iter();
    series.find(|series| series.image.as_ref() == Some(image) && series.step.as_deref() == step)
}

/// Returns the series of the same image at the step `other`, if `one` is that at `step`.
fn at_step<'a>(report: &'a Report, one: &Series, step: &str, other: &str) -> Option<&'a Series> {
    let image = one.image.as_ref()?;
    (one.step.as_deref() == Some(step)).then(|| find(report, image, Some(other)))?
}

/// Returns the series of the same image without encryption.
fn plain<'a>(report: &'a Report, one: &Series) -> Option<&'a Series> {
    let image = one.image.as_ref().filter(|image| image.key_bits > 0)?;
    let plain = ImageKind {
        key_bits: 0,
        ..image.clone()
    };
    find(report, &plain, one.step.as_deref())
}

/// Compares each series of an image that has another one to be compared with, in each direction:
/// the ratios of their speeds, and those that differ beyond the noise.
fn pairs<'a>(
    report: &'a Report,
    what: &str,
    other: impl Fn(&'a Series) -> Option<&'a Series>,
) -> String {
    let mut all: Vec<(String, Ratio)> = Vec::new();
    for series in &report.series {
        let Some(other) = other(series) else {
            continue;
        };
        for direction in [Direction::Write, Direction::Read] {
            let speeds = |of: &Series| stats::speeds(&of.samples, direction);
            if let Some(ratio) = Ratio::of(&speeds(series), &speeds(other)) {
                all.push((format!("{}, {direction}", series.name()), ratio));
            }
        }
    }
    all.sort_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
    let (Some((_, low)), Some((_, high))) = (all.first(), all.last()) else {
        return format!("{what}: not measured.");
    };
    let of = |verdict| {
        all.iter()
            .filter(move |(_, ratio)| ratio.verdict == verdict)
    };
    let count = |verdict| of(verdict).count();
    let median = all[all.len() / 2].1.value;
    let mut text = format!(
        "{what}: {:.2} to {:.2}, median {median:.2}. Of {} comparisons {} are slower beyond the noise, {} faster, {} the same within \
         5 %, {} too noisy to say.",
        low.value,
        high.value,
        all.len(),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::Same),
        count(Verdict::TooNoisy),
    );
    for (word, verdict) in [("Slower", Verdict::Slower), ("Faster", Verdict::Faster)] {
        let mut named: Vec<_> = of(verdict).collect();
        if verdict == Verdict::Faster {
            named.reverse();
        }
        if named.is_empty() {
            continue;
        }
        let names = named.iter().take(NAMED).map(|(name, ratio)| {
            format!(
                "{name}: {:.2} [{:.2} to {:.2}]",
                ratio.value, ratio.low, ratio.high
            )
        });
        let names: Vec<String> = names.collect();
        let more = named.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        text += &format!(" {word}: {}{more}.", names.join("; "));
    }
    text
}

/// Names the image that writes the fastest at a step, and those that it does not differ from.
fn fastest(report: &Report, step: Option<&str>) -> String {
    let images = report.series.iter().filter(|series| series.label != HOST);
    let of_step = images.filter(|series| series.step.as_deref() == step);
    let all = of_step.filter_map(|series| {
        let write = series.write.as_ref()?;
        Some((series.label.clone(), series, write.trimmed_mean.value))
    });
    first_of(all.collect(), Direction::Write, "Fastest writes")
}

/// Names the fastest of `all`, which have a name and a speed, and those within the noise of it.
fn first_of(mut all: Vec<(String, &Series, f64)>, direction: Direction, what: &str) -> String {
    all.sort_by(|(.., one), (.., other)| other.total_cmp(one));
    let Some(((name, first, speed), others)) = all.split_first() else {
        return format!("{what}: not measured.");
    };
    let speeds = |of: &Series| stats::speeds(&of.samples, direction);
    let within = others.iter().filter(|(_, other, _)| {
        let ratio = Ratio::of(&speeds(first), &speeds(other));
        ratio.is_none_or(|ratio| ratio.verdict != Verdict::Faster)
    });
    let within: Vec<&str> = within.map(|(name, ..)| &**name).collect();
    let named = format!("{what}: {name} with {}", rate(*speed));
    match within.len() {
        0 => format!("{named}, beyond the noise."),
        all if all == others.len() => {
            format!("{named}, which is not beyond the noise of any of the other {all}.")
        }
        more if more > NAMED => format!(
            "{named}; within the noise of it: {}; and {} more.",
            within[..NAMED].join("; "),
            more - NAMED
        ),
        _ => format!("{named}; within the noise of it: {}.", within.join("; ")),
    }
}

/// Names the band size with the fastest stream for each interface, unless the processor limits it.
fn bands(report: &Report) -> Vec<String> {
    let via = |series: &Series| series.image.as_ref().map(|image| image.via.clone());
    let mut ways: Vec<String> = report.series.iter().filter_map(via).collect();
    ways.sort_unstable();
    ways.dedup();
    let of_way = |way: &String| {
        let series = report.series.iter();
        let streams = series.filter(|series| via(series).as_ref() == Some(way));
        let streams = streams.filter_map(|series| {
            let (size, stream) = (series.band_size?, series.stream.as_ref()?);
            Some((bytes(size), series, stream.trimmed_mean.value))
        });
        let streams: Vec<(String, &Series, f64)> = streams.collect();
        let what = format!("Fastest band size, {way}");
        let fastest = streams.iter().map(|(.., speed)| *speed).fold(0.0, f64::max);
        match report.compression.filter(|of| of.limits(fastest)) {
            Some(compression) => format!(
                "{what}: limited by the processor. The fastest stream, {}, is {:.0} % of the compressor's speed from memory to \
                 memory, so band sizes cannot be told apart.",
                rate(fastest),
                100.0 * fastest / compression.rate
            ),
            None => first_of(streams, Direction::Stream, &what),
        }
    };
    ways.iter().map(of_way).collect()
}

/// Returns a sentence for each image: its size when full, and the share that came back.
fn returned(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    for series in &report.series {
        let largest = series.space.iter().map(|space| space.on_disk).max();
        let at = |step: &str| {
            let mut space = series.space.iter().rev();
            space
                .find(|space| space.at == step)
                .map(|space| space.on_disk)
        };
        let sizes = (largest, at("attached anew"), at("compacted"));
        let (Some(full), Some(emptied), Some(compacted)) = sizes else {
            continue;
        };
        let share = |left: u64| 100.0 * (1.0 - left as f64 / full.max(1) as f64);
        all.push(format!(
            "{}: {} at most; {:.1} % came back when the emptied image was attached anew, {:.1} % after compaction; {} are left.",
            series.label,
            bytes(full),
            share(emptied),
            share(compacted),
            bytes(compacted)
        ));
    }
    all.sort_unstable();
    all
}

/// Returns a sentence for each image on a medium without holes.
fn without_holes(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    for series in &report.series {
        let size = |step: &str| {
            let mut space = series.space.iter();
            space
                .find(|space| space.at == step)
                .map(|space| space.on_disk)
        };
        let (Some(new), Some(full), Some(compacted)) =
            (size("new"), size("full"), size("compacted"))
        else {
            continue;
        };
        all.push(format!(
            "{}: {} when new, {} when full, {} when emptied and compacted.",
            series.label,
            bytes(new),
            bytes(full),
            bytes(compacted)
        ));
    }
    all
}

/// Returns a sentence for each compression method: the files that were read faster, cold and warm.
fn readings(report: &Report) -> Vec<String> {
    let mut methods: Vec<&str> = report.compressed.iter().map(|file| &*file.series).collect();
    methods.sort_unstable();
    methods.dedup();
    let of_method = |method: &str| {
        let counts = STEPS.map(|step| {
            let files = report
                .compressed
                .iter()
                .filter(|file| file.series == method);
            let ratios = files.filter_map(|file| report.compressed_over_plain(file, step));
            let ratios: Vec<Ratio> = ratios.collect();
            let count = |verdict| {
                ratios
                    .iter()
                    .filter(|ratio| ratio.verdict == verdict)
                    .count()
            };
            format!(
                "{step} {} of {} files faster beyond the noise, {} slower",
                count(Verdict::Faster),
                ratios.len(),
                count(Verdict::Slower)
            )
        });
        format!("{method}: {}.", counts.join("; "))
    };
    methods.into_iter().map(of_method).collect()
}
