//! Plots of a report.

pub use super::chart::Plot;
use super::chart::{Anchor, BOTTOM, Chart, LEFT, RIGHT, TOP};
use super::scale::Scale;
use super::{Report, Series};
use crate::reference::references;
use crate::sample::{Direction, Sample};
use crate::stats::line::theil_sen;
use crate::stats::order::{quantile, sorted};
use crate::units::{bytes, decimal, rate, seconds};

/// Number of segments of a curve.
const STEPS: usize = 60;

/// Returns all plots for which a report has data.
pub fn plots(report: &Report) -> Vec<Plot> {
    let mut plots = Vec::new();
    for direction in Direction::ALL {
        plots.extend(speed_against_size(report, direction));
        plots.extend(boxes(report, direction));
    }
    plots.extend(
        Direction::ALL
            .into_iter()
            .filter_map(|direction| ratios(report, direction)),
    );
    plots.extend(band_sizes(report));
    plots.extend(space(report));
    plots.extend(super::compression::plots(report));
    plots
}

fn samples(series: &Series, direction: Direction) -> impl Iterator<Item = &Sample> {
    series
        .samples
        .iter()
        .filter(move |sample| sample.direction == direction)
}

fn speed(sample: &Sample) -> f64 {
    sample.size_bytes as f64 / sample.seconds
}

/// Returns the series with samples of a direction, and their indexes in the report.
fn with(report: &Report, direction: Direction) -> Vec<(usize, &Series)> {
    report
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| samples(series, direction).next().is_some())
        .collect()
}

/// Plots every file with the Theil-Sen line, which is a curve here: speed grows with size as the
/// share of latency falls.
fn speed_against_size(report: &Report, direction: Direction) -> Option<Plot> {
    let series = with(report, direction);
    let all = || {
        series
            .iter()
            .flat_map(|(_, series)| samples(series, direction))
    };
    all().next()?;
    let x = Scale::log(all().map(|sample| sample.size_bytes as f64), LEFT, RIGHT);
    let y = Scale::linear(all().map(speed), BOTTOM, TOP);
    let mut chart = Chart::default();
    chart.left_axis(&y, "speed", rate);
    chart.bottom_axis(&x, "size of the file", decimal);
    for (n, series) in &series {
        for sample in samples(series, direction) {
            let data = format!(
                " data-series=\"{n}\" data-direction=\"{direction}\" data-size=\"{}\" data-seconds=\"{}\"",
                sample.size_bytes, sample.seconds
            );
            let title = format!(
                "{}: {} in {}, {}",
                series.name(),
                bytes(sample.size_bytes),
                seconds(sample.seconds),
                rate(speed(sample))
            );
            chart.point(
                *n,
                (x.place(sample.size_bytes as f64), y.place(speed(sample))),
                &data,
                &title,
            );
        }
        let points: Vec<_> = samples(series, direction)
            .map(|sample| (sample.size_bytes as f64, sample.seconds))
            .collect();
        if let Some(found) = theil_sen(&points) {
            let curve = x
                .between(STEPS)
                .map(|size| (size, size / found.line.at(size)));
            let drawn = curve
                .filter(|(_, speed)| speed.is_finite() && *speed > 0.0 && y.place(*speed) >= TOP);
            chart.line(
                *n,
                drawn.map(|(size, speed)| (x.place(size), y.place(speed))),
                false,
            );
        }
        chart.legend(*n, &series.name());
    }
    let title = format!("Speed against size, {direction}");
    let about = "Each point is a file; the curve is the line of Theil and Sen through seconds against bytes.";
    Some(chart.finish(&format!("speed-{direction}"), &title, about))
}

/// Plots the quartiles, median and range of each series.
fn boxes(report: &Report, direction: Direction) -> Option<Plot> {
    let series = with(report, direction);
    let y = Scale::linear(
        series
            .iter()
            .flat_map(|(_, series)| samples(series, direction).map(speed)),
        BOTTOM,
        TOP,
    );
    if series.is_empty() {
        return None;
    }
    let mut chart = Chart::default();
    chart.left_axis(&y, "speed", rate);
    let step = (RIGHT - LEFT) / series.len() as f64;
    for (place, (n, series)) in series.iter().enumerate() {
        let speeds = sorted(&samples(series, direction).map(speed).collect::<Vec<_>>());
        let at = |share| quantile(&speeds, share).map_or(BOTTOM, |speed| y.place(speed));
        let x = LEFT + step * (place as f64 + 0.5);
        let half = (step * 0.3).min(40.0);
        let middle = quantile(&speeds, 0.5).unwrap_or_default();
        let title = format!(
            "{}: median {}, {} files",
            series.name(),
            rate(middle),
            speeds.len()
        );
        chart.rule((x, at(0.0)), (x, at(1.0)), super::chart::colour(*n), 1.5);
        chart.filled(*n, (x - half, at(0.25)), (x + half, at(0.75)), &title);
        chart.rule(
            (x - half, at(0.5)),
            (x + half, at(0.5)),
            "currentColor",
            2.0,
        );
        chart.legend(*n, &series.name());
    }
    let about = "Half of the files are within the box, the median is its line, the ends are the slowest and the fastest.";
    Some(chart.finish(
        &format!("boxes-{direction}"),
        &format!("Speeds by kind, {direction}"),
        about,
    ))
}

/// Plots the ratios to the host with their bounds, and the published ratios of the same kind of
/// image.
fn ratios(report: &Report, direction: Direction) -> Option<Plot> {
    let ratios: Vec<_> = report
        .ratios
        .iter()
        .filter(|against| against.direction == direction)
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let series = |name: &str| {
        report
            .series
            .iter()
            .enumerate()
            .find(|(_, series)| series.name() == name)
    };
    let published = |name: &str| {
        series(name).map_or_else(Vec::new, |(_, series)| {
            references().beside(&report.benchmark, series, direction)
        })
    };
    let shown = ratios.iter().flat_map(|against| {
        let theirs = published(&against.label)
            .into_iter()
            .filter_map(|speed| speed.ratio());
        theirs.chain([against.ratio.high.min(against.ratio.value * 2.0)])
    });
    let y = Scale::linear(shown.chain([1.0]), BOTTOM, TOP);
    let mut chart = Chart::default();
    chart.left_axis(&y, "speed over the host's", |ratio| {
        format!("{ratio}").chars().take(4).collect()
    });
    chart.rule(
        (LEFT, y.place(1.0)),
        (RIGHT, y.place(1.0)),
        "currentColor",
        1.5,
    );
    let step = (RIGHT - LEFT) / ratios.len() as f64;
    for (place, against) in ratios.iter().enumerate() {
        let n = series(&against.label).map_or(0, |(n, _)| n);
        let (x, ratio) = (LEFT + step * (place as f64 + 0.4), against.ratio);
        let top = y.place(ratio.high).max(TOP);
        chart.rule(
            (x, y.place(ratio.low)),
            (x, top),
            super::chart::colour(n),
            2.0,
        );
        let title = format!(
            "{}: {:.2} [{:.2}..{:.2}], {}",
            against.label,
            ratio.value,
            ratio.low,
            ratio.high,
            ratio.verdict.words()
        );
        chart.point(
            n,
            (x, y.place(ratio.value)),
            &format!(" data-ratio=\"{}\"", ratio.value),
            &title,
        );
        for speed in published(&against.label) {
            let Some(ratio) = speed.ratio() else { continue };
            let article = references().articles.get(&speed.article);
            let from = article.map_or("", |article| article.date.as_str());
            let title = format!(
                "{}, {} bits, {}: {ratio} ({from}) {}",
                speed.image, speed.key_bits, speed.step, speed.note
            );
            chart.diamond(
                (x + step * 0.2, y.place(ratio)),
                &format!(" data-reference=\"{ratio}\""),
                &title,
            );
        }
        chart.legend(n, &against.label);
    }
    let about = "Points are this run, with bounds that hold in 95 of 100 cases; diamonds are what was published of Apple's images on a Mac.";
    Some(chart.finish(
        &format!("ratios-{direction}"),
        &format!("Speed over the host's, {direction}"),
        about,
    ))
}

/// Plots speed against band size, if series differ in it.
fn band_sizes(report: &Report) -> Option<Plot> {
    let mut curve: Vec<(u64, Direction, f64)> = Vec::new();
    for series in &report.series {
        let Some(size) = series.band_size else {
            continue;
        };
        for direction in Direction::ALL {
            curve.extend(
                series
                    .summary(direction)
                    .map(|summary| (size, direction, summary.median)),
            );
        }
    }
    curve.sort_by_key(|(size, direction, _)| (*direction, *size));
    if curve.len() < 2 {
        return None;
    }
    let x = Scale::log(curve.iter().map(|(size, ..)| *size as f64), LEFT, RIGHT);
    let y = Scale::linear(curve.iter().map(|(.., speed)| *speed), BOTTOM, TOP);
    let mut chart = Chart::default();
    chart.left_axis(&y, "median speed", rate);
    chart.bottom_axis(&x, "size of a band", decimal);
    for run in curve.chunk_by(|a, b| a.1 == b.1) {
        let n = run[0].1 as usize + 1;
        chart.line(
            n,
            run.iter()
                .map(|(size, _, speed)| (x.place(*size as f64), y.place(*speed))),
            false,
        );
        for (size, direction, speed) in run {
            let data = format!(" data-band=\"{size}\" data-speed=\"{speed}\"");
            let title = format!("bands of {}, {direction}: {}", bytes(*size), rate(*speed));
            chart.point(n, (x.place(*size as f64), y.place(*speed)), &data, &title);
        }
        chart.legend(n, &run[0].1.to_string());
    }
    let about = "The same work in bundles that differ in the size of their bands alone.";
    Some(chart.finish("bands", "Speed and the size of bands", about))
}

/// Plots the size on disk at each step, and the published sizes, multiplied by the run's scale.
fn space(report: &Report) -> Option<Plot> {
    let series: Vec<_> = report
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| series.space.len() > 1)
        .collect();
    let steps = series.iter().map(|(_, series)| series.space.len()).max()?;
    let published = |series: &Series, at: &str| references().of_step(report, series, at);
    let shown = series.iter().flat_map(|(_, series)| {
        let theirs = series
            .space
            .iter()
            .flat_map(|space| published(series, &space.at))
            .map(|(size, ..)| size);
        series
            .space
            .iter()
            .map(|space| space.on_disk as f64)
            .chain(theirs)
            .collect::<Vec<_>>()
    });
    let y = Scale::linear(shown, BOTTOM, TOP);
    let x = |step: usize| LEFT + (RIGHT - LEFT) * (step as f64 + 0.5) / steps as f64;
    let mut chart = Chart::default();
    chart.left_axis(&y, "on disk", decimal);
    let longest = series.iter().max_by_key(|(_, series)| series.space.len());
    // Labels are staggered on as many lines as their width requires.
    let width = longest
        .iter()
        .flat_map(|(_, series)| &series.space)
        .map(|space| 6.6 * space.at.chars().count() as f64);
    let lines = (width.fold(0.0, f64::max) * steps as f64 / (RIGHT - LEFT))
        .ceil()
        .clamp(1.0, 3.0) as usize;
    for (step, space) in longest
        .iter()
        .flat_map(|(_, series)| series.space.iter().enumerate())
    {
        chart.text(
            x(step),
            BOTTOM + 13.0 + 12.0 * (step % lines) as f64,
            Anchor::Middle,
            &space.at,
        );
    }
    for (n, series) in &series {
        chart.line(
            *n,
            series
                .space
                .iter()
                .enumerate()
                .map(|(step, space)| (x(step), y.place(space.on_disk as f64))),
            false,
        );
        for (step, space) in series.space.iter().enumerate() {
            let data = format!(" data-on-disk=\"{}\"", space.on_disk);
            let title = format!("{}, {}: {}", series.name(), space.at, bytes(space.on_disk));
            chart.point(*n, (x(step), y.place(space.on_disk as f64)), &data, &title);
            for (size, theirs) in published(series, &space.at) {
                let article = references().articles.get(&theirs.article);
                let from = article.map_or("", |article| article.date.as_str());
                let title = format!(
                    "Apple's, {}: {} at this scale ({from}) {}",
                    space.at,
                    decimal(size),
                    theirs.note
                );
                chart.diamond(
                    (x(step), y.place(size)),
                    &format!(" data-published-size=\"{size}\""),
                    &title,
                );
            }
        }
        chart.legend(*n, &series.name());
    }
    let about = "What the files of an image take on the host after each step; diamonds are what was published of Apple's images, \
                 times the scale of this run.";
    Some(chart.finish("space", "Size on disk", about))
}
