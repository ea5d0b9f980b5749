//! Plots of a report.
//!
//! One file, as each plot is one function, and a series has to look the same in all of them.

use super::scale::Scale;
use super::style::{SeriesStyle, SeriesStyles};
pub use super::svg::Plot;
use super::svg::{BOTTOM, Chart, LEFT, RIGHT, TOP};
use super::{Report, Series};
use crate::compare::Row;
use crate::reference::references;
use crate::sample::{Direction, Sample};
use crate::stats::line::theil_sen;
use crate::stats::order::{quantile, sorted};
use crate::units::{bytes, decimal, rate, seconds};

/// Number of series that are named below a plot of two runs at most.
const LABELED: usize = 8;
/// Number of segments of a curve.
const STEPS: usize = 60;

/// Returns all plots for which a report has data.
pub fn plots(report: &Report) -> Vec<Plot> {
    let looks = SeriesStyles::of(
        report
            .series
            .iter()
            .map(|series| (&*series.label, step(series))),
    );
    let mut plots = Vec::new();
    for direction in Direction::ALL {
        plots.extend(speed_against_size(report, &looks, direction));
        plots.extend(boxes(report, &looks, direction));
    }
    plots.extend(
        Direction::ALL
            .into_iter()
            .filter_map(|direction| ratios(report, &looks, direction)),
    );
    plots.extend(band_sizes(report));
    plots.extend(super::stream::plots(report));
    plots.extend(space(report));
    plots.extend(super::compression::plots(report));
    plots
}

fn step(series: &Series) -> &str {
    series.step.as_deref().unwrap_or_default()
}

fn style_of(looks: &SeriesStyles, series: &Series) -> SeriesStyle {
    looks.get(&series.label, step(series))
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

/// Every file, and the line of Theil and Sen, which is a curve here: time grows with size, speed
/// with how little of it is latency.
fn speed_against_size(report: &Report, looks: &SeriesStyles, direction: Direction) -> Option<Plot> {
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
    chart.left_axis(&y, "speed (bytes/s)", rate);
    chart.bottom_axis(&x, "size of the file (bytes)", decimal);
    for (n, series) in &series {
        let look = style_of(looks, series);
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
                look,
                (x.place(sample.size_bytes as f64), y.place(speed(sample))),
                &data,
                &title,
            );
        }
        let points: Vec<_> = samples(series, direction)
            .map(|sample| (sample.size_bytes as f64, sample.seconds))
            .collect();
        let fastest = samples(series, direction).map(speed).fold(0.0, f64::max);
        if let Some(found) = theil_sen(&points) {
            // At small sizes the line may pass through no time or less: it says nothing there.
            let curve = x
                .between(STEPS)
                .map(|size| (size, size / found.line.at(size)));
            let drawn = curve.filter(|(_, speed)| *speed > 0.0 && *speed <= fastest);
            chart.line(
                look,
                drawn.map(|(size, speed)| (x.place(size), y.place(speed))),
            );
            chart.legend_of_line(look, &series.name());
        } else {
            chart.legend(look, &series.name());
        }
    }
    let title = format!("Speed against size, {direction}");
    let about = "Each point is a file; the curve is the line of Theil and Sen through seconds against bytes, where it is no faster than the fastest file.";
    Some(chart.finish(&format!("speed-{direction}"), &title, about))
}

/// Quartiles, medians and ends of each series.
fn boxes(report: &Report, looks: &SeriesStyles, direction: Direction) -> Option<Plot> {
    let mut series = with(report, direction);
    series.sort_by(|(_, one), (_, other)| {
        let median = |series: &Series| series.summary(direction).map_or(0.0, |of| of.median);
        median(other).total_cmp(&median(one))
    });
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
    chart.left_axis(&y, "speed (bytes/s)", rate);
    chart.bottom_rule("series, the fastest first");
    let step = (RIGHT - LEFT) / series.len() as f64;
    for (place, (_, series)) in series.iter().enumerate() {
        let look = style_of(looks, series);
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
        chart.rule((x, at(0.0)), (x, at(1.0)), look.color(), 2.0);
        chart.filled(look, (x - half, at(0.25)), (x + half, at(0.75)), &title);
        chart.rule(
            (x - half, at(0.5)),
            (x + half, at(0.5)),
            "currentColor",
            2.0,
        );
        chart.point(look, (x, BOTTOM + 10.0), "", &title);
        chart.legend(look, &series.name());
    }
    chart.legend_of_box("half of the files");
    chart.legend_of_rule(2.0, "median");
    chart.legend_of_bounds("slowest to fastest");
    let about = "Half of the files are within the box, the median is its line, the ends are the slowest and the fastest.";
    Some(chart.finish(
        &format!("boxes-{direction}"),
        &format!("Speeds by kind, {direction}"),
        about,
    ))
}

/// Ratios to the host with their bounds, and what was published of images of the same kind.
fn ratios(report: &Report, looks: &SeriesStyles, direction: Direction) -> Option<Plot> {
    let mut ratios = super::table::sorted(report);
    ratios.retain(|against| against.direction == direction);
    if ratios.is_empty() {
        return None;
    }
    let series = |name: &str| report.series.iter().find(|series| series.name() == name);
    let published = |name: &str| {
        series(name).map_or_else(Vec::new, |series| {
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
    chart.left_axis(&y, "speed relative to the host (ratio)", |ratio| {
        format!("{ratio}").chars().take(4).collect()
    });
    chart.rule(
        (LEFT, y.place(1.0)),
        (RIGHT, y.place(1.0)),
        "currentColor",
        1.5,
    );
    chart.bottom_rule("series, the fastest first");
    let step = (RIGHT - LEFT) / ratios.len() as f64;
    for (place, against) in ratios.iter().enumerate() {
        let Some(look) = series(&against.label).map(|series| style_of(looks, series)) else {
            continue;
        };
        let (x, ratio) = (LEFT + step * (place as f64 + 0.4), against.ratio);
        let top = y.place(ratio.high).max(TOP);
        chart.rule((x, y.place(ratio.low)), (x, top), look.color(), 2.0);
        let title = format!(
            "{}: {:.2} [{:.2}..{:.2}], {}",
            against.label,
            ratio.value,
            ratio.low,
            ratio.high,
            ratio.verdict.words()
        );
        if y.place(ratio.high) < TOP {
            chart.arrow(look, x, &title);
        }
        chart.point(
            look,
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
        chart.legend(look, &against.label);
    }
    chart.legend_of_rule(1.5, "as fast as the host");
    chart.legend_of_bounds("bounds that hold in 95 of 100 cases");
    if ratios
        .iter()
        .any(|against| y.place(against.ratio.high) < TOP)
    {
        chart.legend_of_arrow("upper bound above the picture");
    }
    let has_diamonds = ratios.iter().any(|against| {
        let mut speeds = published(&against.label).into_iter();
        speeds.any(|speed| speed.ratio().is_some())
    });
    let about = if has_diamonds {
        chart.legend_of_diamond("published of Apple's images on a Mac");
        "Points are this run, with bounds that hold in 95 of 100 cases; diamonds are what was published of Apple's images on a Mac."
    } else {
        "Points are this run, with bounds that hold in 95 of 100 cases."
    };
    Some(chart.finish(
        &format!("ratios-{direction}"),
        &format!("Speed relative to the host, {direction}"),
        about,
    ))
}

/// Plots the speeds of two runs beside each other, for each direction that both have.
pub fn comparison(rows: &[Row]) -> Vec<Plot> {
    let of = |direction| {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.direction == direction)
            .collect();
        compared(&rows, direction)
    };
    Direction::ALL.into_iter().filter_map(of).collect()
}

fn compared(rows: &[&Row], direction: Direction) -> Option<Plot> {
    if rows.is_empty() {
        return None;
    }
    // Bounds of the ratio, times the speed before, are those of the speed after.
    let bounds = |row: &Row| [row.ratio.low, row.ratio.high].map(|ratio| ratio * row.before);
    let shown = rows
        .iter()
        .flat_map(|row| [row.before, row.after, bounds(row)[1].min(2.0 * row.after)]);
    let y = Scale::linear(shown, BOTTOM, TOP);
    let mut chart = Chart::default();
    chart.left_axis(&y, "speed (bytes/s)", rate);
    let step = (RIGHT - LEFT) / rows.len() as f64;
    let places = (0..rows.len()).map(|place| LEFT + step * (place as f64 + 0.5));
    if rows.len() <= LABELED {
        chart.labels(places.zip(rows.iter().map(|row| &*row.label)));
    }
    chart.bottom_rule("series");
    // The colors of two kinds that are told apart in light and dark.
    let looks = SeriesStyles::of([("host", ""), ("UDRW", "")].into_iter());
    let (before, after) = (looks.get("host", ""), looks.get("UDRW", ""));
    for (place, row) in rows.iter().enumerate() {
        let x = LEFT + step * (place as f64 + 0.5);
        let aside = (step * 0.15).min(12.0);
        let [low, high] = bounds(row);
        let top = y.place(high).max(TOP);
        chart.rule(
            (x + aside, y.place(low)),
            (x + aside, top),
            after.color(),
            2.0,
        );
        let [old, new] = [("before", row.before), ("after", row.after)].map(|(when, speed)| {
            let data = format!(" data-{when}=\"{speed}\"");
            (data, format!("{}, {when}: {}", row.label, rate(speed)))
        });
        chart.point(before, (x - aside, y.place(row.before)), &old.0, &old.1);
        let ratio = format!(
            "{}; {:.2} times, {}",
            new.1,
            row.ratio.value,
            row.ratio.verdict.words()
        );
        chart.point(after, (x + aside, y.place(row.after)), &new.0, &ratio);
    }
    chart.legend(before, "first run");
    chart.legend(after, "second run");
    chart.legend_of_bounds("bounds of the ratio that hold in 95 of 100 cases");
    Some(chart.finish(
        &format!("compare-{direction}"),
        &format!("Two runs, {direction}"),
        "Trimmed means of both runs. Where the bounds of the second contain the point of the first, there is no difference to be told.",
    ))
}

/// Plots speed against band size, if series differ in it.
fn band_sizes(report: &Report) -> Option<Plot> {
    let mut curve: Vec<(&str, u64, Direction, f64)> = Vec::new();
    for series in &report.series {
        let Some(size) = series.band_size else {
            continue;
        };
        let kind = series.label.split(", bands of ").next().unwrap_or_default();
        for direction in Direction::ALL {
            curve.extend(
                series
                    .summary(direction)
                    .map(|summary| (kind, size, direction, summary.median)),
            );
        }
    }
    curve.sort_by_key(|(kind, size, direction, _)| (*kind, *direction, *size));
    if curve.len() < 2 {
        return None;
    }
    let x = Scale::log(curve.iter().map(|(_, size, ..)| *size as f64), LEFT, RIGHT);
    let y = Scale::linear(curve.iter().map(|(.., speed)| *speed), BOTTOM, TOP);
    let mut chart = Chart::default();
    chart.left_axis(&y, "median speed (bytes/s)", rate);
    chart.bottom_axis(&x, "size of a band (bytes)", decimal);
    let runs = || curve.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2));
    let names: Vec<_> = runs().map(|run| (run[0].0, run[0].2.to_string())).collect();
    let looks = SeriesStyles::of(names.iter().map(|(kind, direction)| (*kind, &**direction)));
    for (run, (kind, direction)) in runs().zip(&names) {
        let look = looks.get(kind, direction);
        chart.line(
            look,
            run.iter()
                .map(|(_, size, _, speed)| (x.place(*size as f64), y.place(*speed))),
        );
        for (_, size, _, speed) in run {
            let data = format!(" data-band=\"{size}\" data-speed=\"{speed}\"");
            let title = format!(
                "{kind}, bands of {}, {direction}: {}",
                bytes(*size),
                rate(*speed)
            );
            chart.point(
                look,
                (x.place(*size as f64), y.place(*speed)),
                &data,
                &title,
            );
        }
        chart.legend_of_line(look, &format!("{kind}, {direction}"));
    }
    let about = "The same work in bundles that differ in the size of their bands alone.";
    Some(chart.finish("bands", "Speed and the size of bands", about))
}

/// Plots the size on disk at each step, and the published sizes, multiplied by the run's scale.
fn space(report: &Report) -> Option<Plot> {
    let series: Vec<_> = report
        .series
        .iter()
        .filter(|series| series.space.len() > 1)
        .collect();
    let longest = series.iter().max_by_key(|series| series.space.len())?;
    let steps = longest.space.len();
    // A series has the space of all steps.
    let looks = SeriesStyles::of(series.iter().map(|series| (&*series.label, "")));
    let published = |series: &Series, at: &str| references().of_step(report, series, at);
    let shown = series.iter().flat_map(|series| {
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
    chart.left_axis(&y, "size on disk (bytes)", decimal);
    let at = longest.space.iter().enumerate();
    chart.labels(at.map(|(step, space)| (x(step), &*space.at)));
    chart.bottom_rule("step of the protocol");
    for series in &series {
        let look = looks.get(&series.label, "");
        chart.line(
            look,
            series
                .space
                .iter()
                .enumerate()
                .map(|(step, space)| (x(step), y.place(space.on_disk as f64))),
        );
        for (step, space) in series.space.iter().enumerate() {
            let data = format!(" data-on-disk=\"{}\"", space.on_disk);
            let title = format!("{}, {}: {}", series.label, space.at, bytes(space.on_disk));
            chart.point(
                look,
                (x(step), y.place(space.on_disk as f64)),
                &data,
                &title,
            );
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
        chart.legend_of_line(look, &series.label);
    }
    let is_published = |series: &&Series| {
        let mut space = series.space.iter();
        space.any(|space| !published(series, &space.at).is_empty())
    };
    let about = if series.iter().copied().any(|series| is_published(&series)) {
        chart.legend_of_diamond("published of Apple's images, times the scale");
        "Space that the files of an image take on the host after each step; diamonds are what was published of Apple's images, \
         times the scale of this run."
    } else {
        "Space that the files of an image take on the host after each step."
    };
    Some(chart.finish("space", "Size on disk", about))
}
