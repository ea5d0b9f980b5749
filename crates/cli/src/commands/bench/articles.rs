//! `bandsaw bench articles`: the experiments of all articles in one run.

use std::fs::File;
use std::path::{Path, PathBuf};

use bandsaw::ops::describe::code;
use bandsaw::{Error, Kind};
use bandsaw_bench::articles::{
    Answer, EXPERIMENTS, Experiment, Results, Scope, check_file_system, check_without_holes,
};
use bandsaw_bench::images::{self, RunPlan, Via};
use bandsaw_bench::units::bytes;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::workload_args::percent;
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;

const LAYER: &str = "articles";
/// Rates in bytes per second that the expected time is stated for: a slow disk, and a fast one.
const RATES: [f64; 2] = [100e6, 1e9];

/// Repeat the experiments of the articles about disk images
///
/// Every protocol of `bandsaw bench images` runs with the images of its article, through a mount,
/// through NBD and through the library. One page has a section for each: the conclusion of the
/// article as a question, the answers of this run, tables beside the published values, and plots.
/// It is written as HTML and as Markdown.
///
/// The results of each protocol are saved when it ends. After an interruption, the same command
/// continues, on the same disk and with the same options only. Everything that was made in DIR is
/// removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench articles /mnt/disk --dry-run            show bytes, time, room and wear
  bandsaw bench articles /mnt/disk --quick -o results   about ten minutes
  bandsaw bench articles /mnt/disk --gold -o results    images of 100 GB, as in the articles")]
pub(crate) struct Articles {
    /// The folder to measure in
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath, default_value = ".")]
    folder: PathBuf,
    /// Write the results and the page into this folder
    #[arg(long, short, value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "bandsaw-articles")]
    output: PathBuf,
    /// Multiply every file size by this factor
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["quick", "silver", "gold"])]
    scale: Option<f64>,
    /// Set the number of passes over the files
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    sets: Option<u32>,
    /// Set the pause between phases, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::workload_args::seconds)]
    pause: Option<f64>,
    /// Use small sizes and no pauses, for ten minutes (default)
    #[arg(long, conflicts_with_all = ["silver", "gold"])]
    quick: bool,
    /// Use images of 25 GB, two passes
    #[arg(long, conflicts_with = "gold")]
    silver: bool,
    /// Use images of 100 GB, 160 files of 53 GB, as in the articles
    #[arg(long)]
    gold: bool,
    /// Access images these ways: library, nbd, mount or kernel
    ///
    /// The default is all that this system allows: mount needs FUSE, and kernel needs root, network
    /// block devices (`modprobe nbd`) and HFS+ in the kernel.
    #[arg(long, value_name = "WAY,...", value_delimiter = ',')]
    via: Vec<Via>,
    /// Also measure sizes in this folder, on a medium without holes
    ///
    /// Files on FAT, exFAT and some network shares have no holes. The article about ASIF says that
    /// its images are small there, too.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    without_holes: Option<PathBuf>,
    /// Add a note about the run to the page, such as other load
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// Show the plan, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// An experiment of this run.
struct PlannedExperiment<'a> {
    experiment: &'static Experiment,
    /// Folder in which it measures.
    folder: &'a Path,
    options: images::Options,
    announced: RunPlan,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ArticlesReport<'a> {
    page: PathBuf,
    sections: Vec<Section<'a>>,
}

#[derive(Serialize)]
struct Section<'a> {
    protocol: String,
    /// The question, for people.
    message: &'static str,
    answers: Vec<AnswerReport<'a>>,
    results: PathBuf,
}

#[derive(Serialize)]
struct AnswerReport<'a> {
    #[serde(flatten)]
    answer: &'a Answer,
    message: String,
}

impl Articles {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let scope = self.scope(output)?;
        if let Some(folder) = &self.without_holes {
            check_without_holes(folder)?;
        }
        let mut planned = Vec::new();
        for experiment in &EXPERIMENTS {
            let Some(folder) = self.folder_of(experiment) else {
                continue;
            };
            let options = experiment.options(&scope);
            let announced = RunPlan::new(folder, &options).and_then(|announced| {
                check_file_system(folder, &announced)?;
                Ok(announced)
            });
            let announced = announced.advise(Kind::Limit, || {
                "`--scale 0.001` makes all of it a thousandth".to_owned()
            })?;
            planned.push(PlannedExperiment {
                experiment,
                folder,
                options,
                announced,
            });
        }
        self.print(&planned, output);
        if self.dry_run {
            return Ok(());
        }
        let results = Results::begin(&self.output, &self.folder, &scope);
        let mut results = results.advise(Kind::Conflict, || {
            "choose another folder for the results with `--output`".to_owned()
        })?;
        for PlannedExperiment {
            experiment,
            folder,
            options,
            announced,
        } in &planned
        {
            if results.has(experiment) {
                output.print_plan(&format!("{}: kept", experiment.name()));
                continue;
            }
            let bar = Bar::new(output);
            let report = images::run(folder, options, announced, &bar);
            drop(bar);
            let report = report.advise(Kind::Cancelled, || {
                "run the same command again to continue".to_owned()
            })?;
            results.save(experiment, &report)?;
            // The page of what is done so far is there even if the next protocol fails.
            results.write_pages(&self.note)?;
        }
        results.write_pages(&self.note)?;
        show(&results, output)
    }

    /// Returns the folder of an experiment; `None` if it is not measured.
    fn folder_of(&self, experiment: &Experiment) -> Option<&Path> {
        if experiment.without_holes {
            self.without_holes.as_deref()
        } else {
            Some(&self.folder)
        }
    }

    fn scope(&self, output: &Output) -> Outcome<Scope> {
        let (scale, sets, pause) = match (self.scale, self.silver, self.gold) {
            (Some(scale), ..) => (scale, None, None),
            (_, true, _) => (0.25, Some(2), None),
            (.., true) => (1.0, None, None),
            _ => (0.002, Some(2), Some(0.0)),
        };
        let program = std::env::current_exe().map_err(|source| Error::io(LAYER, "find", source))?;
        Ok(Scope {
            scale,
            sets: self.sets.or(sets),
            pause: self.pause.or(pause),
            seed: 1,
            ways: self.ways(output),
            program,
            without_holes: self.without_holes.clone(),
        })
    }

    fn ways(&self, output: &Output) -> Vec<Via> {
        const FUSE: &str = "/dev/fuse";
        if !self.via.is_empty() {
            return self.via.clone();
        }
        let fuse = File::options().read(true).write(true).open(FUSE);
        if let Err(error) = &fuse {
            output.warn(&format!(
                "nothing is measured through a mount: {FUSE}: {error}"
            ));
        }
        let ways = [
            fuse.is_ok().then_some(Via::Mount),
            kernel_has_disks().then_some(Via::Kernel),
            Some(Via::Nbd),
            Some(Via::Library),
        ];
        ways.into_iter().flatten().collect()
    }

    fn print(&self, planned: &[PlannedExperiment<'_>], output: &Output) {
        let (mut all, mut pauses) = (0_u64, 0.0);
        for PlannedExperiment {
            experiment,
            options,
            announced,
            ..
        } in planned
        {
            all = all.saturating_add(announced.bytes);
            pauses += 4.0 * options.settings.pause * announced.subjects as f64;
            output.print_plan(&format!(
                "{:13} {:2} subjects, images of {}, {} written",
                experiment.name(),
                announced.subjects,
                bytes(announced.image),
                bytes(announced.bytes)
            ));
        }
        let Some(first) = planned.first() else {
            return;
        };
        let minutes = RATES.map(|rate| (2.0 * all as f64 / rate + pauses) / 60.0);
        output.print_plan(&format!(
            "About {} will be written to {} in all and read back, {} of the typical rating of a solid-state disk of this size; {} are \
             free. This takes {:.0} to {:.0} minutes with a disk of {}/s to {}/s; {:.0} minutes of it are pauses.",
            bytes(all),
            self.folder.display(),
            percent(first.announced.room.wear(all)),
            bytes(first.announced.room.free),
            minutes[1].ceil(),
            minutes[0].ceil(),
            bytes(RATES[0] as u64),
            bytes(RATES[1] as u64),
            pauses / 60.0
        ));
    }
}

/// True if the kernel can mount HFS+ from a network block device, for this user.
fn kernel_has_disks() -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let disk = File::options().read(true).write(true).open("/dev/nbd0");
    disk.is_ok() && known.lines().any(|line| line.trim() == "hfsplus")
}

fn show(results: &Results, output: &Output) -> Outcome {
    let sections = results.sections().into_iter().map(|section| Section {
        protocol: code(section.experiment.name()),
        message: section.experiment.question,
        answers: (section.answers.iter())
            .map(|answer| AnswerReport {
                answer,
                message: answer.to_string(),
            })
            .collect(),
        results: results.path(section.experiment),
    });
    let facts = ArticlesReport {
        page: results.page(),
        sections: sections.collect(),
    };
    output.result(&facts, |out| {
        for section in &facts.sections {
            writeln!(out, "{}: {}", section.protocol, section.message)?;
            for answer in &section.answers {
                writeln!(out, "  {}", output.name(&answer.message))?;
            }
        }
        writeln!(out, "page: {}", facts.page.display())
    })
}
