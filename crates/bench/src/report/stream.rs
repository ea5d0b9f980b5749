//! Plots of one file that is compressed into another, over the size and the number of bands.

use super::scale::Scale;
use super::style::{SeriesStyle, SeriesStyles};
use super::svg::{BOTTOM, Chart, LEFT, Plot, RIGHT, TOP};
use super::{Compression, HOST, Report, Series};
use crate::sample::Direction;
use crate::stats::Summary;
use crate::units::{bytes, decimal, rate, seconds};

/// A bundle with its streams.
type Bundle<'a> = (&'a str, &'a Series, &'a Summary);

/// A plot of streams: the values over which and of which it is.
struct Axes {
    name: &'static str,
    title: &'static str,
    across: &'static str,
    over: fn(&Series) -> Option<u64>,
    /// True for seconds, false for bytes per second.
    is_time: bool,
}

const PLOTS: [Axes; 4] = [
    Axes {
        name: "stream-time",
        title: "Time of compressing a file, and the size of bands",
        across: "size of a band (bytes)",
        over: |series| series.band_size,
        is_time: true,
    },
    Axes {
        name: "stream-rate",
        title: "Rate of compressing a file, and the size of bands",
        across: "size of a band (bytes)",
        over: |series| series.band_size,
        is_time: false,
    },
    Axes {
        name: "stream-rate-used",
        title: "Rate of compressing a file, and the number of bands in use",
        across: "bands in use",
        over: Series::bands_in_use,
        is_time: false,
    },
    Axes {
        name: "stream-rate-possible",
        title: "Rate of compressing a file, and the number of possible bands",
        across: "bands that the image can have",
        over: |series| series.possible_bands,
        is_time: false,
    },
];

/// Returns the plots of streams in bundles of several band sizes; none without them.
pub(super) fn plots(report: &Report) -> Vec<Plot> {
    let Some(compression) = &report.compression else {
        return Vec::new();
    };
    let mut bundles: Vec<Bundle<'_>> = Vec::new();
    let mut others: Vec<(&Series, &Summary)> = Vec::new();
    for series in &report.series {
        let Some(stream) = &series.stream else {
            continue;
        };
        if series.band_size.is_some() {
            let kind = series.label.split(", bands of ").next().unwrap_or_default();
            bundles.push((kind, series, stream));
        } else {
            others.push((series, stream));
        }
    }
    bundles.sort_by_key(|(kind, series, _)| (*kind, series.band_size));
    if bundles.len() < 2 {
        return Vec::new();
    }
    let plot = |axes: &Axes| plot(axes, &bundles, &others, compression);
    PLOTS.iter().filter_map(plot).collect()
}

/// Returns the trimmed mean of a summary with its bounds, low to high, as rates or as times.
fn values(summary: &Summary, axes: &Axes, len: f64) -> [f64; 3] {
    let (low, high) = summary.interval;
    let rates = [low, summary.trimmed_mean.value, high];
    if axes.is_time {
        let [low, middle, high] = rates.map(|rate| len / rate);
        [high, middle, low]
    } else {
        rates
    }
}

fn plot(
    axes: &Axes,
    bundles: &[Bundle<'_>],
    others: &[(&Series, &Summary)],
    compression: &Compression,
) -> Option<Plot> {
    let len = compression.bytes as f64;
    let of_bundles: Vec<_> = bundles
        .iter()
        .filter_map(|(kind, series, summary)| {
            Some((
                *kind,
                *series,
                (axes.over)(series)? as f64,
                values(summary, axes, len),
            ))
        })
        .collect();
    if of_bundles.len() < 2 {
        return None;
    }
    let compressor = if axes.is_time {
        len / compression.rate
    } else {
        compression.rate
    };
    let of_others = others.iter().map(|(_, summary)| values(summary, axes, len));
    let shown = of_bundles
        .iter()
        .map(|(.., values)| *values)
        .chain(of_others);
    let y = Scale::linear(shown.flatten().chain([compressor]), BOTTOM, TOP);
    let x = Scale::log(of_bundles.iter().map(|(_, _, over, _)| *over), LEFT, RIGHT);
    let mut chart = Chart::default();
    if axes.is_time {
        chart.left_axis(&y, "time (seconds)", seconds);
    } else {
        chart.left_axis(&y, "rate (bytes/s)", rate);
    }
    chart.bottom_axis(&x, axes.across, decimal);
    let mut kinds: Vec<&str> = bundles.iter().map(|(kind, ..)| *kind).collect();
    kinds.dedup();
    let labels = others.iter().map(|(series, _)| &*series.label);
    let looks = SeriesStyles::of(kinds.iter().copied().chain(labels).map(|label| (label, "")));
    let bars = |chart: &mut Chart, look: SeriesStyle, x: f64, [low, _, high]: [f64; 3]| {
        chart.rule((x, y.place(low)), (x, y.place(high)), look.color(), 2.0);
    };
    // Images without bands, and the host, have one value for all sizes.
    for (n, (series, summary)) in others.iter().enumerate() {
        let (look, of) = (looks.get(&series.label, ""), values(summary, axes, len));
        let at = y.place(of[1]);
        chart.line(look, [(LEFT, at), (RIGHT, at)].into_iter());
        // Their bounds stand beside each other.
        let x = RIGHT - 10.0 - 14.0 * n as f64;
        bars(&mut chart, look, x, of);
        let title = format!("{}: {}", series.name(), word(axes, of[1]));
        chart.point(look, (x, at), &data(axes, "", of), &title);
        let named = if series.label == HOST {
            "host's folder"
        } else {
            &*series.label
        };
        chart.legend_of_line(look, named);
    }
    for kind in kinds {
        let look = looks.get(kind, "");
        let mut points: Vec<_> = of_bundles.iter().filter(|(of, ..)| *of == kind).collect();
        points.sort_by(|one, other| one.2.total_cmp(&other.2));
        let line = points
            .iter()
            .map(|(_, _, over, of)| (x.place(*over), y.place(of[1])));
        chart.line(look, line);
        for (_, series, over, of) in points {
            let size = series.band_size.map_or_else(String::new, bytes);
            let title = format!("{kind}, bands of {size}: {}", word(axes, of[1]));
            bars(&mut chart, look, x.place(*over), *of);
            let data = data(axes, &format!(" data-over=\"{over}\""), *of);
            chart.point(look, (x.place(*over), y.place(of[1])), &data, &title);
        }
        chart.legend_of_line(look, kind);
    }
    let at = y.place(compressor);
    chart.rule((LEFT, at), (RIGHT, at), "currentColor", 1.5);
    let named = format!("{} from memory to memory", compression.compressor.name());
    chart.legend_of_rule(1.5, &named);
    chart.legend_of_bounds("bounds that hold in 95 of 100 cases");
    let about = "Points are trimmed means of the repeats; where a bar meets that of another point, there is no difference to be told.";
    Some(chart.finish(axes.name, axes.title, about))
}

fn word(axes: &Axes, value: f64) -> String {
    if axes.is_time {
        seconds(value)
    } else {
        rate(value)
    }
}

/// Attributes of a point, for those who check the picture.
fn data(axes: &Axes, more: &str, [low, middle, high]: [f64; 3]) -> String {
    let name = if axes.is_time { "time" } else { "rate" };
    format!(
        "{more} data-{direction}-{name}=\"{middle}\" data-low=\"{low}\" data-high=\"{high}\"",
        direction = Direction::Stream
    )
}
