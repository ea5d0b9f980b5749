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

const KERNEL: &str = "The kernel's own file system behind NBD is not a column here: it needs a kernel with network block devices and a \
    driver for HFS+. On such a machine, `bandsaw attach` makes the device, and `bandsaw bench files` measures the mounted volume.";

/// A section of the page: what is shown of an experiment. Its ratios take long to compute.
#[derive(Debug)]
pub struct Section {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Answers to its question.
    pub answers: Vec<String>,
    /// Interfaces that were measured.
    ways: Vec<String>,
    facts: Vec<(&'static str, String)>,
    tables: Vec<Table>,
    /// Plots, with names that are unique on the page.
    pub(super) plots: Vec<Plot>,
}

impl Section {
    /// Returns the section of an experiment with these results.
    pub(super) fn new(experiment: &'static Experiment, report: &Report) -> Self {
        let mut plots = plot::plots(report);
        plots.retain(|plot| experiment.plots.contains(&&*plot.name));
        for plot in &mut plots {
            plot.name = format!("{}-{}", experiment.protocol.name(), plot.name);
        }
        let images = report.series.iter();
        let images = images.filter_map(|series| series.image.as_ref());
        let mut ways: Vec<String> = images.map(|image| image.via.clone()).collect();
        ways.sort_unstable();
        ways.dedup();
        Self {
            experiment,
            answers: experiment.answers(report),
            ways,
            facts: table::facts(report),
            tables: tables(report),
            plots,
        }
    }
}

/// Returns the tables of an experiment: those of the article first.
fn tables(report: &Report) -> Vec<Table> {
    let mut tables = beside(report);
    let kept = [
        "Size on disk",
        "One file compressed",
        "Compressed files",
        "Times of reading",
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
fn ways(sections: &[&Section]) -> String {
    let has = |way: &str| {
        let mut ways = sections.iter().flat_map(|section| &section.ways);
        ways.any(|known| known == way)
    };
    let mut text = "The articles measured volumes that macOS had mounted.".to_owned();
    if has("mount") {
        text += " \"Through a mount\" is what other programs see here: FUSE, served by another process.";
    }
    if has("nbd") {
        text += " \"Through NBD\" the disk comes from another process, and the file system is that of the library.";
    }
    text + " " + KERNEL
}

/// Formats all sections as Markdown, with the plots in the folder `plots`.
pub(super) fn markdown(sections: &[&Section], plots: &str) -> String {
    let mut page = format!(
        "# The articles' experiments\n\n{INTRODUCTION}\n\n{HARDWARE} {NOISE}\n\n{}\n",
        ways(sections)
    );
    for section in sections {
        let experiment = section.experiment;
        page += &format!("\n## {}\n\n{}\n\n", experiment.title, source(experiment));
        page += &format!("**{}**\n\n", experiment.question);
        for answer in &section.answers {
            page += &format!("* {answer}\n");
        }
        page += "\nThe run:\n\n";
        for (name, value) in &section.facts {
            page += &format!("* {name}: {value}\n");
        }
        for plot in &section.plots {
            page += &format!(
                "\n![{}]({plots}/{}.svg)\n\n{}\n",
                plot.title, plot.name, plot.about
            );
        }
        for table in &section.tables {
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

/// Formats all sections as one page without references to other files.
pub(super) fn html(sections: &[&Section]) -> String {
    let mut body = [
        INTRODUCTION,
        &format!("{HARDWARE} {NOISE}"),
        &ways(sections),
    ]
    .map(|text| html::paragraph(&text.replace('`', "")))
    .to_vec();
    for section in sections {
        let experiment = section.experiment;
        body.push(html::heading(2, experiment.title));
        body.push(html::paragraph(&source(experiment)));
        body.push(html::heading(3, experiment.question));
        body.push(html::list(&section.answers));
        body.push(html::facts(&section.facts));
        body.extend(section.plots.iter().map(|plot| html::figure(3, plot)));
        body.extend(section.tables.iter().map(|table| html::table(3, table)));
    }
    html::page("The articles' experiments", &body, None)
}
