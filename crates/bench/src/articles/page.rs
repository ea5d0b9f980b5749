//! The page of all experiments: a section for each article, as HTML and as Markdown.

use super::{Answer, Experiment};
use crate::images::Protocol;
use crate::reference::references;
use crate::report::plot::{self, Plot};
use crate::report::table::{self, Table};
use crate::report::{HOST, ImageKind, Report, Series, Space, html};
use crate::sample::Direction;
use crate::units::{bytes, decimal, rate};

const INTRODUCTION: &str = "Every experiment of the articles about disk images by which this program began, repeated by one command: \
    `bandsaw bench articles`. Each section has the article's conclusion as a question, the answers of this run, its tables and its plots. A run \
    in memory (tmpfs) shows the processor time that images cost, not the speed of a disk.";
const HARDWARE: &str = "Columns and marks named \"published\" were measured by the author on other hardware, with macOS. Compare ratios \
    to the host, not speeds.";
const NOISE: &str = "A difference is called one only beyond the noise: if the interval of the ratio, in which it is in 95 of 100 cases, \
    does not contain 1. Few files make wide intervals.";

const DRAWN: &str =
    "Plots show the images through a mount, where that was measured; tables have all.";
const KERNEL: &str = "\"By the kernel\" is a disk that another process serves to Linux over NBD, with the file system of Linux: HFS+ \
    without a journal.";
const NO_KERNEL: &str = "The kernel's own file system behind NBD is not a column here: it needs root, a kernel with network block devices \
    and a driver for HFS+, and is then measured, too.";

/// A section of the page: what is shown of an experiment. Its ratios take long to compute.
#[derive(Debug)]
pub struct Section {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Answers to its question.
    pub answers: Vec<Answer>,
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
        let mut plots = plot::plots(&drawn(experiment, report));
        plots.retain(|plot| experiment.plots.contains(&&*plot.name));
        for plot in &mut plots {
            plot.name = format!("{}-{}", experiment.name(), plot.name);
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
            tables: tables(experiment, report),
            plots,
        }
    }
}

/// Returns the part of a report that is drawn: the images through one interface, so that they can be
/// told apart. The articles measured mounted volumes.
fn drawn(experiment: &Experiment, report: &Report) -> Report {
    let has = |way: &str| {
        let mut images = report
            .series
            .iter()
            .filter_map(|series| series.image.as_ref());
        images.any(|image| image.via == way)
    };
    let ways = ["mount", "library", "nbd", "kernel"].into_iter();
    let way = ways.clone().find(|way| has(way)).unwrap_or_default();
    let through = format!(", {way}");
    let is_through =
        |label: &str| label == HOST || label.contains(&through) || label.contains("encrypted");
    // The article of rewriting has three tables; its plot compares two steps with one file system.
    let is_drawn = |series: &&Series| {
        let rewrite = experiment.protocol == Protocol::Rewrite;
        let file_system = series
            .image
            .as_ref()
            .is_none_or(|image| image.file_system == "APFS");
        let step = series.step.as_deref() != Some("first, attached anew");
        is_through(&series.label) && (!rewrite || file_system && step)
    };
    let mut part = report.clone();
    part.series = report.series.iter().filter(is_drawn).cloned().collect();
    part.ratios.retain(|against| {
        part.series
            .iter()
            .any(|series| series.name() == against.label)
    });
    part.compressed.retain(|file| is_through(&file.series));
    part
}

/// Returns the tables of an experiment: speeds beside those of the article, then the others that
/// its article has.
fn tables(experiment: &Experiment, report: &Report) -> Vec<Table> {
    let mut tables = beside(report);
    let has = |title: &str| experiment.tables.iter().any(|of| title.starts_with(of));
    if has("Size on disk") {
        tables.extend(sizes(report));
    }
    let others = table::tables(report).into_iter();
    tables.extend(others.filter(|table| table.title != "Size on disk" && has(&table.title)));
    tables
}

/// Returns a table of the size on disk of each image, with a column for each step, and tables of the
/// number of bands and of the free space in the volume.
fn sizes(report: &Report) -> Vec<Table> {
    let title = |what: &str, by: &str| format!("{what}, {by}");
    let scale = format!("Apple's: published, times {}", report.settings.plan.scale);
    let on_disk = pivot(report, &title("Size on disk", &scale), true, |space| {
        Some(bytes(space.on_disk))
    });
    let bands = pivot(report, "Number of bands", false, |space| {
        space.bands.map(|bands| bands.to_string())
    });
    let free = pivot(report, "Free space in the volume", false, |space| {
        space.free.map(bytes)
    });
    [on_disk, bands, free].into_iter().flatten().collect()
}

fn pivot(
    report: &Report,
    title: &str,
    has_published: bool,
    value: impl Fn(&Space) -> Option<String>,
) -> Option<Table> {
    let of_images = report.series.iter().filter(|series| series.space.len() > 1);
    let mut images: Vec<&Series> = of_images.collect();
    images.sort_by(|one, other| one.label.cmp(&other.label));
    let mut steps: Vec<&str> = Vec::new();
    for space in images.iter().flat_map(|series| &series.space) {
        if !steps.contains(&&*space.at) && value(space).is_some() {
            steps.push(&space.at);
        }
    }
    let cell = |series: &Series, step: &str| {
        let mut space = series.space.iter();
        let found = space.find(|space| space.at == step);
        found.and_then(&value).unwrap_or_default()
    };
    let mut table = Table::new(title, "");
    table
        .heading
        .extend(steps.iter().map(|&step| step.to_owned()));
    let mut published: Vec<Vec<String>> = Vec::new();
    for series in images {
        let row = steps.iter().map(|step| cell(series, step));
        let row: Vec<String> = [series.label.clone()].into_iter().chain(row).collect();
        if row[1..].iter().any(|cell| !cell.is_empty()) {
            table.rows.push(row);
        }
        let theirs = steps.iter().map(|step| {
            let sizes = references().of_step(report, series, step);
            sizes
                .first()
                .map_or_else(String::new, |(size, _)| decimal(*size))
        });
        let format = series.image.as_ref().map_or("", |image| &image.format);
        let theirs: Vec<String> = [format!("Apple's {format}")]
            .into_iter()
            .chain(theirs)
            .collect();
        let is_known = theirs[1..].iter().any(|cell| !cell.is_empty());
        if has_published && is_known && !published.contains(&theirs) {
            published.push(theirs);
        }
    }
    table.rows.extend(published);
    (!table.rows.is_empty()).then_some(table)
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
    let mut table = Table::new(&format!("{step}{direction}, percent of {host}"), "");
    table.heading.extend(ways.iter().map(|way| match *way {
        "mount" => "through a mount (FUSE)".to_owned(),
        "nbd" => "through NBD".to_owned(),
        "kernel" => "by the kernel, through NBD".to_owned(),
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
        let bands =
            band_size.map_or_else(String::new, |size| format!(", bands of {}", bytes(size)));
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
    text + " " + if has("kernel") { KERNEL } else { NO_KERNEL }
}

/// Formats all sections as Markdown, with the plots in the folder `plots`.
pub(super) fn markdown(sections: &[&Section], plots: &str, note: &str) -> String {
    let mut page = format!(
        "# The articles' experiments\n\n{INTRODUCTION}\n\n{HARDWARE} {NOISE} {DRAWN}\n\n{}\n",
        ways(sections)
    );
    if !note.is_empty() {
        page += &format!("\nThis run: {note}\n");
    }
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
pub(super) fn html(sections: &[&Section], note: &str) -> String {
    let mut body = [
        INTRODUCTION,
        &format!("{HARDWARE} {NOISE} {DRAWN}"),
        &ways(sections),
    ]
    .map(|text| html::paragraph(&text.replace('`', "")))
    .to_vec();
    if !note.is_empty() {
        body.push(html::paragraph(&format!("This run: {note}")));
    }
    for section in sections {
        let experiment = section.experiment;
        body.push(html::heading(2, experiment.title));
        body.push(html::paragraph(&source(experiment)));
        body.push(html::heading(3, experiment.question));
        let answers: Vec<_> = section.answers.iter().map(Answer::to_string).collect();
        body.push(html::list(&answers));
        body.push(html::facts(&section.facts));
        body.extend(section.plots.iter().map(|plot| html::figure(3, plot)));
        body.extend(section.tables.iter().map(|table| html::table(3, table)));
    }
    html::page("The articles' experiments", &body, None)
}
