//! `bench articles`: the experiments of all articles in one run, and a page with a section for each.
//!
//! * [`EXPERIMENTS`]: the images of each article, and its conclusion as a question.
//! * [`Results`]: the folder of a run's results, from which it is resumed.
//! * `answers.rs`: the answers to the questions by a run.
//! * `page.rs`: the page, as HTML and as Markdown.

mod answers;
mod page;
mod results;
mod sentences;

use std::path::PathBuf;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;

use crate::images::{BAND_SIZES, Compressor, Kind, Options, Protocol, Via};
use crate::place::Caches;
use crate::plan::{Plan, SIZES};
use crate::report::{Report, Settings};

pub use answers::{
    Answer, Conclusion, FastestSeries, Finding, Pair, StepReadings, Subject, VerdictCounts,
};
pub use page::Section;
pub use results::{Results, check_file_system, check_without_holes};

const LAYER: &str = "articles";

/// An experiment of an article.
#[derive(Debug)]
pub struct Experiment {
    /// Its protocol.
    pub protocol: Protocol,
    /// Key of the article among the published results.
    pub article: &'static str,
    /// Title of its section.
    pub title: &'static str,
    /// The article's conclusion as a question.
    pub question: &'static str,
    formats: &'static [Format],
    key_bits: &'static [u32],
    file_systems: &'static [NewFormat],
    /// True if disks of a virtual machine with an encrypted volume are measured, too.
    vm: bool,
    /// Names of the plots on the page.
    plots: &'static [&'static str],
    /// Beginnings of the titles of its tables, besides those of speeds.
    tables: &'static [&'static str],
    /// True if it needs a folder on a medium without holes.
    pub without_holes: bool,
}

/// All experiments, in the order of the page.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        protocol: Protocol::Rewrite,
        article: "dismal",
        title: "First and second write",
        question: "Is the first write to a new image slower than the second, and is the sparse bundle the fastest type?",
        formats: &[Format::Udrw, Format::Udsb, Format::Udsp],
        key_bits: &[0, 128, 256],
        file_systems: &[NewFormat::Apfs, NewFormat::HfsPlusJournaled],
        vm: false,
        plots: &["ratios-write", "boxes-write"],
        tables: &[],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Steady,
        article: "perf",
        title: "Speed in a steady state",
        question: "Does encryption cost speed?",
        formats: &[Format::Udrw, Format::Udsb, Format::Udsp],
        key_bits: &[0, 256],
        file_systems: &[NewFormat::Apfs],
        vm: true,
        plots: &["ratios-write", "ratios-read"],
        tables: &["The process"],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Space,
        article: "space",
        title: "Size on disk",
        question: "How much space comes back after files are removed?",
        formats: &[Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif],
        key_bits: &[0],
        file_systems: &[NewFormat::Apfs, NewFormat::HfsPlusJournaled],
        vm: false,
        plots: &["space", "ratios-write"],
        tables: &["Size on disk"],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Bands,
        article: "bands",
        title: "Band sizes",
        question: "Which band size is the fastest, and is the difference beyond the noise?",
        formats: &[Format::Udsb, Format::Udrw],
        key_bits: &[0],
        file_systems: &[NewFormat::Apfs],
        vm: false,
        plots: &[
            "stream-time",
            "stream-rate",
            "stream-rate-used",
            "stream-rate-possible",
        ],
        tables: &["One file compressed"],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Compression,
        article: "compression",
        title: "Compressed files",
        question: "Are compressed files read faster than plain ones?",
        formats: &[Format::Udrw],
        key_bits: &[0],
        file_systems: &[NewFormat::HfsPlus],
        vm: false,
        plots: &["compression-cold", "compression-warm", "compression-saved"],
        tables: &["Compressed files", "Times of reading"],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Refill,
        article: "asif",
        title: "ASIF beside the older types",
        question: "Is an image slower after it was filled and emptied, and is ASIF as fast as a raw image?",
        formats: &[Format::Udrw, Format::Udsb, Format::Asif],
        key_bits: &[0, 256],
        file_systems: &[NewFormat::Apfs],
        vm: false,
        plots: &["ratios-write", "ratios-read", "space"],
        tables: &["Size on disk"],
        without_holes: false,
    },
    Experiment {
        protocol: Protocol::Space,
        article: "asif",
        title: "Size on a medium without holes",
        question: "Which images take less than their size on a medium whose files have no holes?",
        formats: &[Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif],
        key_bits: &[0],
        file_systems: &[NewFormat::Apfs],
        vm: false,
        plots: &["space"],
        tables: &["Size on disk"],
        without_holes: true,
    },
];

/// Size of a run of all experiments.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Factor of every size.
    pub scale: f64,
    /// Number of sets; `None` for those of each article.
    pub sets: Option<u32>,
    /// Minimum pause in seconds; `None` for those of each article.
    pub pause: Option<f64>,
    /// Seed of the order and contents of files.
    pub seed: u64,
    /// Interfaces through which images are accessed, each a series of its own.
    pub ways: Vec<Via>,
    /// Path of the `bandsaw` command, which serves and mounts images.
    pub program: PathBuf,
    /// Folder on a medium without holes, for the experiment that needs one.
    pub without_holes: Option<PathBuf>,
}

impl Experiment {
    /// Returns its name, of which its files are named: that of its protocol, but for the protocol's
    /// repetition on a medium without holes.
    pub fn name(&self) -> &'static str {
        if self.without_holes {
            "without-holes"
        } else {
            self.protocol.name()
        }
    }

    /// Returns its options within `scope`.
    pub fn options(&self, scope: &Scope) -> Options {
        // Sizes on a medium do not depend on the interface.
        let library = [Via::Library];
        let ways = if self.without_holes {
            &library[..]
        } else {
            &scope.ways
        };
        let mut kinds = Vec::new();
        for &format in self.formats {
            for &key_bits in self.key_bits {
                let kind = |file_system, via| Kind {
                    format,
                    key_bits,
                    file_system,
                    volume_key: false,
                    via,
                };
                let in_this_process = ways.iter().filter(|via| **via != Via::Kernel);
                for &file_system in self.file_systems {
                    kinds.extend(in_this_process.clone().map(|&via| kind(file_system, via)));
                }
                // Linux changes HFS+ without a journal, whatever the article measured.
                if ways.contains(&Via::Kernel) && self.protocol != Protocol::Compression {
                    kinds.push(kind(NewFormat::HfsPlus, Via::Kernel));
                }
            }
        }
        if self.vm {
            let raw = Kind {
                format: Format::Udrw,
                ..Kind::VM
            };
            kinds.extend([Kind::VM, raw]);
        }
        let sets = scope.sets.unwrap_or_else(|| self.protocol.sets());
        let sets = match self.protocol {
            // The noise is known after five streams, and after three readings.
            Protocol::Bands | Protocol::Compression => self.protocol.sets().max(sets.min(5)),
            _ => sets,
        };
        let sizes = if self.protocol.has_files() {
            Vec::new()
        } else {
            SIZES.to_vec()
        };
        Options {
            protocol: self.protocol,
            settings: Settings {
                plan: Plan {
                    sizes,
                    sets,
                    scale: scope.scale,
                    seed: scope.seed,
                    random: None,
                },
                request: 1 << 20,
                caches: Caches::Drop,
                compressible: false,
                verify: false,
                pause: scope.pause.unwrap_or_else(|| self.protocol.pause()),
            },
            kinds,
            band_sizes: BAND_SIZES.to_vec(),
            compressor: Compressor::default(),
            model_disk: None,
            program: scope.program.clone(),
        }
    }

    /// Returns the answers to its question by the results of a run.
    pub fn answers(&self, report: &Report) -> Vec<Answer> {
        answers::of(self, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::references;

    #[test]
    fn every_article_has_an_experiment() {
        for article in references().articles.keys() {
            let mut experiments = EXPERIMENTS.iter();
            assert!(experiments.any(|of| of.article == article), "{article}");
        }
        let options = |n: usize| {
            EXPERIMENTS[n].options(&Scope {
                scale: 0.001,
                sets: Some(2),
                pause: Some(0.0),
                seed: 1,
                ways: vec![Via::Library],
                program: PathBuf::new(),
                without_holes: None,
            })
        };
        // Three types, three ciphers, two file systems.
        assert_eq!(options(0).kinds.len(), 18);
        assert_eq!(options(3).settings.plan.sets, 5);
        let disks = options(1).kinds.into_iter().filter(|kind| kind.volume_key);
        assert_eq!(disks.count(), 2, "a virtual machine's, raw and ASIF");
    }
}
