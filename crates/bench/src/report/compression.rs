//! Plots of compressed files: savings and read speed, beside published values.

use super::scale::Scale;
use super::style::SeriesStyles;
use super::svg::{BOTTOM, Chart, LEFT, Plot, RIGHT, TOP};
use super::{Compressed, Report, STEPS};
use crate::reference::{self, references};

/// Returns the plots for which the report has data.
pub(super) fn plots(report: &Report) -> Vec<Plot> {
    let saved = FilePlot {
        name: "compression-saved".to_owned(),
        title: "What compression saves".to_owned(),
        axis: "space saved (%)",
        about: "Points are this run, in whole blocks of the volume; the diamond is the published \
             value."
            .to_owned(),
        value: &|file| Some(file.saved()),
        published: &|file| file.saved_percent,
        even: 0.0,
        no_change: "nothing saved",
    };
    let read = STEPS.map(|step| {
        move |file: &Compressed| {
            let [plain, packed] = report.readings(file, step);
            Some(plain? / packed?)
        }
    });
    let of_reading = |n: usize| FilePlot {
        name: format!("compression-{}", STEPS[n]),
        title: format!("Reading compressed files, {}", STEPS[n]),
        axis: "speed over that of the plain file (ratio)",
        about: "Points above 1 are files that read faster compressed; the diamond is the \
                published value of a 5,400 rpm disk."
            .to_owned(),
        value: &read[n],
        published: if n == 0 {
            &|file| file.speed()
        } else {
            &|_| None
        },
        even: 1.0,
        no_change: "as fast as the plain file",
    };
    [&saved, &of_reading(0), &of_reading(1)]
        .into_iter()
        .filter_map(|picture| picture.draw(report))
        .collect()
}

/// A plot of one value per file.
struct FilePlot<'a> {
    name: String,
    title: String,
    axis: &'a str,
    about: String,
    value: &'a dyn Fn(&Compressed) -> Option<f64>,
    published: &'a dyn Fn(&reference::Compressed) -> Option<f64>,
    /// Value at which compression makes no difference.
    even: f64,
    /// The same in words.
    no_change: &'a str,
}

impl FilePlot<'_> {
    fn draw(&self, report: &Report) -> Option<Plot> {
        let (mut files, mut ways): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for file in &report.compressed {
            if !files.contains(&&*file.file) {
                files.push(&file.file);
            }
            if !ways.contains(&&*file.series) {
                ways.push(&file.series);
            }
        }
        let theirs = |name: &str| {
            references()
                .compression
                .iter()
                .find(|known| known.file == name)
                .and_then(self.published)
        };
        let values: Vec<(&Compressed, f64)> = report
            .compressed
            .iter()
            .filter_map(|file| Some((file, (self.value)(file)?)))
            .collect();
        if values.is_empty() {
            return None;
        }
        let shown = values
            .iter()
            .map(|(_, value)| *value)
            .chain(files.iter().filter_map(|name| theirs(name)));
        let y = Scale::linear(shown.chain([self.even]), BOTTOM, TOP);
        let step = (RIGHT - LEFT) / files.len() as f64;
        let mut chart = Chart::default();
        chart.left_axis(&y, self.axis, |value| {
            format!("{value}").chars().take(4).collect()
        });
        chart.rule(
            (LEFT, y.place(self.even)),
            (RIGHT, y.place(self.even)),
            "currentColor",
            1.5,
        );
        let looks = SeriesStyles::of(ways.iter().map(|way| (*way, "")));
        let places = (0..files.len()).map(|place| LEFT + step * (place as f64 + 0.5));
        chart.labels(places.clone().zip(files.iter().copied()));
        chart.bottom_rule("file");
        ways.iter()
            .for_each(|way| chart.legend(looks.get(way, ""), way));
        chart.legend_of_rule(1.5, self.no_change);
        for (x, name) in places.zip(&files) {
            if let Some(value) = theirs(name) {
                let title = format!("{name}, published: {value:.2}");
                chart.legend_of_diamond("published");
                chart.diamond(
                    (x + step * 0.3, y.place(value)),
                    &format!(" data-reference=\"{value}\""),
                    &title,
                );
            }
            for (file, value) in values.iter().filter(|(file, _)| file.file == *name) {
                let way = ways
                    .iter()
                    .position(|way| *way == file.series)
                    .unwrap_or_default();
                let aside = step * 0.4 * ((way as f64 + 0.5) / ways.len() as f64 - 0.5);
                let title = format!("{name}, {}: {value:.2}", file.series);
                chart.point(
                    looks.get(&file.series, ""),
                    (x + aside, y.place(*value)),
                    &format!(" data-value=\"{value}\""),
                    &title,
                );
            }
        }
        Some(chart.finish(&self.name, &self.title, &self.about))
    }
}
