//! The page of all experiments: a section for each article, as HTML and as Markdown.

use super::Experiment;
use crate::reference::references;
use crate::report::plot::{self, Plot};
use crate::report::table::{self, Table};
use crate::report::{HOST, ImageKind, Report, Series, html};
use crate::sample::Direction;
use crate::units::rate;

const INTRODUCTION: &str = "Every experiment of the articles about disk images by which this program began, repeated by one command: \
    `bandsaw bench articles`. Each section has the article's conclusion as a question, the answers of this run, its tables and its plots.";
const HARDWARE: &str = "Columns and marks named \"published\" were measured by the author on other hardware, with macOS. Compare ratios \
    to the host, not speeds.";
const NOISE: &str = "A difference is called one only beyond the noise: if the interval of the ratio, in which it is in 95 of 100 cases, \
    does not contain 1. Few files make wide intervals.";

/// Returns the plots of an experiment, with names that are unique on the page.
pub(super) fn plots(experiment: &Experiment, report: &Report) -> Vec<Plot> {
    let known = plot::plots(report).into_iter();
    let shown = known.filter(|plot| experiment.plots.contains(&&*plot.name));
    let named = shown.map(|mut plot| {
        plot.name = format!("{}-{}", experiment.protocol.name(), plot.name);
        plot
    });
    named.collect()
}

/// Returns the tables of an experiment: those of the article first.
fn tables(report: &Report) -> Vec<Table> {
    let mut tables = beside(report);
    let kept = [
        "Size on disk",
        "One file compressed",
        "Compressed files",
        "The process",
    ];
    let others = table::tables(report).into_iter();
    tables.extend(others.filter(|table| kept.iter().any(|kept| table.title.starts_with(kept))));
    tables
}

/// An image at a step, whatever the interface.
type Row<'a> = (&'a str, Option<u64>, ImageKind);

/// Returns a table for each step and direction: percent of the host through each interface, beside
/// what was published, the fastest first.
fn beside(report: &Report) -> Vec<Table> {
    let mut ways: Vec<&str> = Vec::new();
    let mut steps: Vec<Option<&str>> = Vec::new();
    for series in report.series.iter().filter(|series| series.label != HOST) {
        if let Some(image) = &series.image
            && !ways.contains(&&*image.via)
        {
            ways.push(&image.via);
        }
        if !steps.contains(&series.step.as_deref()) {
            steps.push(series.step.as_deref());
        }
    }
    ways.sort_unstable();
    let mut tables = Vec::new();
    for direction in Direction::ALL {
        for step in &steps {
            tables.extend(beside_at(report, *step, direction, &ways));
        }
    }
    tables
}

fn beside_at(
    report: &Report,
    step: Option<&str>,
    direction: Direction,
    ways: &[&str],
) -> Option<Table> {
    let ratio = |series: &Series| {
        let mut ratios = report.ratios.iter();
        let found = ratios.find(|of| of.direction == direction && of.label == series.name());
        found.map(|of| of.ratio)
    };
    // The subject of a series is its image without the interface.
    let mut rows: Vec<(Row<'_>, Vec<&Series>)> = Vec::new();
    let series = report
        .series
        .iter()
        .filter(|series| series.step.as_deref() == step);
    for series in series.filter(|series| ratio(series).is_some()) {
        let Some(image) = &series.image else { continue };
        let image = ImageKind {
            via: String::new(),
            ..image.clone()
        };
        let row = (step.unwrap_or_default(), series.band_size, image);
        match rows.iter_mut().find(|(known, _)| *known == row) {
            Some((_, all)) => all.push(series),
            None => rows.push((row, vec![series])),
        }
    }
    let best = |all: &[&Series]| {
        let ratios = all.iter().filter_map(|series| ratio(series));
        ratios.map(|ratio| ratio.value).fold(0.0, f64::max)
    };
    rows.sort_by(|((_, size, _), one), ((_, other_size, _), other)| {
        size.cmp(other_size)
            .then_with(|| best(other).total_cmp(&best(one)))
    });
    let host = report.series.iter().find(|series| {
        series.label == HOST && (series.step.as_deref() == step || series.step.is_none())
    });
    let host = host.and_then(|host| host.summary(direction)).map_or_else(
        || "the host's folder".to_owned(),
        |summary| format!("the host's folder ({})", rate(summary.trimmed_mean.value)),
    );
    let step = step.map_or_else(String::new, |step| format!("{step}: "));
    let mut table = Table {
        title: format!("{step}{direction}, percent of {host}"),
        heading: vec![String::new()],
        rows: Vec::new(),
    };
    table.heading.extend(ways.iter().map(|way| match *way {
        "mount" => "through a mount (FUSE)".to_owned(),
        "nbd" => "through NBD".to_owned(),
        _ => format!("through the {way}"),
    }));
    table
        .heading
        .extend(["published: of the host", "published: speed"].map(str::to_owned));
    for ((_, band_size, image), all) in rows {
        let encrypted = if image.key_bits > 0 {
            format!(" AES-{}", image.key_bits)
        } else {
            String::new()
        };
        let bands = band_size.map_or_else(String::new, |size| {
            format!(", bands of {}", crate::units::bytes(size))
        });
        let mut row = vec![format!(
            "{}{encrypted}, {}{bands}",
            image.format, image.file_system
        )];
        for way in ways {
            let of_way = all.iter().find(|series| {
                let image = series.image.as_ref();
                image.is_some_and(|image| image.via == *way)
            });
            row.push(
                of_way
                    .and_then(|series| ratio(series))
                    .map_or_else(String::new, |ratio| {
                        let [value, low, high] =
                            [ratio.value, ratio.low, ratio.high].map(|of| 100.0 * of);
                        format!("{value:.0} % [{low:.0} to {high:.0}]")
                    }),
            );
        }
        let published = references().beside(&report.benchmark, all[0], direction);
        let [mut of_host, mut speed] = [Vec::new(), Vec::new()];
        for of in published {
            of_host.extend(of.percent());
            speed.extend(of.rate());
        }
        row.extend([of_host.join("; "), speed.join("; ")]);
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the source of an experiment, and what is known of its measurements.
fn source(experiment: &Experiment) -> String {
    let article = &references().articles[experiment.article];
    format!(
        "{}, {}: {}. Measured on {}.",
        article.author, article.date, article.about, article.system
    )
}

/// Returns what a reader must know of the ways to the images.
fn ways(results: &[(&Experiment, Report)]) -> String {
    let images = results.iter().flat_map(|(_, report)| &report.series);
    let mut ways: Vec<&str> = Vec::new();
    for image in images.filter_map(|series| series.image.as_ref()) {
        if !ways.contains(&&*image.via) {
            ways.push(&image.via);
        }
    }
    let mut text = "The articles measured volumes that macOS had mounted.".to_owned();
    if ways.contains(&"mount") {
        text += " \"Through a mount\" is what other programs see here: FUSE, served by another process.";
    }
    if ways.contains(&"nbd") {
        text += " \"Through NBD\" the disk comes from another process, and the file system is that of the library.";
    }
    text + " The kernel's own file system behind NBD is measured with `bandsaw attach` and `bandsaw bench files` on a machine with \
        network block devices and drivers for HFS+; this page does not have it."
}

/// Formats all results as Markdown, with the plots in the folder `plots`.
pub(super) fn markdown(results: &[(&Experiment, Report)], plots_folder: &str) -> String {
    let mut page = format!(
        "# The articles' experiments\n\n{INTRODUCTION}\n\n{HARDWARE} {NOISE}\n\n{}\n",
        ways(results)
    );
    for (experiment, report) in results {
        page += &format!("\n## {}\n\n{}\n\n", experiment.title, source(experiment));
        page += &format!("**{}**\n\n", experiment.question);
        for answer in experiment.answers(report) {
            page += &format!("* {answer}\n");
        }
        page += "\nThe run:\n\n";
        for (name, value) in table::facts(report) {
            page += &format!("* {name}: {value}\n");
        }
        for plot in plots(experiment, report) {
            page += &format!(
                "\n![{}]({plots_folder}/{}.svg)\n\n{}\n",
                plot.title, plot.name, plot.about
            );
        }
        for table in tables(report) {
            page += &format!(
                "\n### {}: {}\n\n{}",
                experiment.title,
                table.title,
                table.markdown()
            );
        }
    }
    page
}

/// Formats all results as one page without references to other files.
pub(super) fn html(results: &[(&Experiment, Report)]) -> String {
    let mut body = [INTRODUCTION, &format!("{HARDWARE} {NOISE}"), &ways(results)]
        .map(|text| html::paragraph(&text.replace('`', "")))
        .to_vec();
    for (experiment, report) in results {
        body.push(html::heading(2, experiment.title));
        body.push(html::paragraph(&source(experiment)));
        body.push(html::heading(3, experiment.question));
        body.push(html::list(&experiment.answers(report)));
        body.push(html::facts(&table::facts(report)));
        body.extend(
            plots(experiment, report)
                .iter()
                .map(|plot| html::figure(3, plot)),
        );
        body.extend(tables(report).iter().map(|table| html::table(3, table)));
    }
    html::page("The articles' experiments", &body, None)
}
