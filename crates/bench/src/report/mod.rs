//! What was measured, as it is kept and passed on.
//!
//! * [`Report`]: all of it, as JSON with a schema.
//! * [`csv`]: a line for each sample.
//! * [`html`]: a page to look at.
//! * [`table`]: rows of words.
//! * [`plot`]: its pictures, as SVG; as PNG, [`png`].

mod chart;
mod compression;
pub mod csv;
pub mod html;
mod look;
pub mod plot;
pub mod png;
mod scale;
pub mod table;

use serde::{Deserialize, Serialize};

use bandsaw::{Error, Kind, Result};

use crate::machine::Machine;
use crate::place::{Caches, Cooled};
use crate::plan::Plan;
use crate::sample::{Direction, Sample};
use crate::stats::ratio::Ratio;
use crate::stats::{self, Summary};

/// The version of what is written; a reader of another refuses it.
pub const SCHEMA: u32 = 1;
/// The series that others are compared with.
pub const HOST: &str = "host";

/// A run of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which benchmark: `files`, or the protocol of `images`.
    pub benchmark: String,
    /// The program and its version.
    pub tool: String,
    /// When it began and ended, in seconds since 1970.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// On what.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Settings,
    /// What was measured, in the order in which it was.
    pub series: Vec<Series>,
    /// Each image against the host, in each direction.
    pub ratios: Vec<Against>,
    /// Files that are stored compressed, for the protocol that is about these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compressed: Vec<Compressed>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The files.
    pub plan: Plan,
    /// Bytes of a request.
    pub request: u64,
    /// How the system's memory is kept out.
    pub caches: Caches,
    /// True if files can be compressed.
    pub compressible: bool,
    /// True if they were compared when they were read.
    pub verify: bool,
    /// Seconds of rest between writing and reading, and around attaching anew.
    pub pause: f64,
}

/// Files of one kind of place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is: `host`, or a kind of image.
    pub label: String,
    /// The kind of image; none for the host.
    pub image: Option<ImageKind>,
    /// The step of a protocol that it is, if it has several.
    pub step: Option<String>,
    /// What became of the cache between writing and reading.
    pub cooled: Cooled,
    /// Every file.
    pub samples: Vec<Sample>,
    /// What the samples of writing say.
    pub write: Option<Summary>,
    /// The same with the final flush.
    pub write_flushed: Option<Summary>,
    /// What the samples of reading say.
    pub read: Option<Summary>,
    /// What reading one file and writing another says.
    pub stream: Option<Summary>,
    /// Bytes of a band, where a series is one of several band sizes.
    pub band_size: Option<u64>,
    /// What the image took on disk, in the order of time.
    pub space: Vec<Space>,
    /// What the process that serves the image used, if that was told.
    pub process: Option<Process>,
}

/// A kind of image, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageKind {
    /// The container: `UDSB`.
    pub format: String,
    /// Bits of its AES key; 0 for none.
    pub key_bits: u32,
    /// The file system within.
    pub file_system: String,
    /// `library`, `nbd` or `mount`.
    pub via: String,
}

/// What an image takes at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// After which step.
    pub at: String,
    /// Bytes of storage behind it.
    pub on_disk: u64,
    /// Files of bands, for a bundle.
    pub bands: Option<u64>,
    /// Bytes in use in its volume, where that was asked.
    pub in_use: Option<u64>,
    /// Bytes free in its volume, where that was asked.
    #[serde(default)]
    pub free: Option<u64>,
    /// Bytes that a compaction gave back, after one.
    #[serde(default)]
    pub given_back: Option<u64>,
}

/// What a process used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Seconds that went by.
    pub real: f64,
    /// Seconds of processors in the program.
    pub user: f64,
    /// Seconds of processors in the system.
    pub system: f64,
    /// The most threads that were seen.
    pub threads: u64,
}

impl Process {
    /// Both one after the other; `None` if neither is known.
    pub fn sum(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else {
            return one.or(other);
        };
        Some(Self {
            real: one.real + other.real,
            user: one.user + other.user,
            system: one.system + other.system,
            threads: one.threads.max(other.threads),
        })
    }

    /// Processors used on average.
    pub fn processors(&self) -> f64 {
        (self.user + self.system) / self.real.max(1e-9)
    }
}

/// A file that is stored compressed. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The label of the series that it was read in, and that of the same file as it is.
    pub series: String,
    /// The same of the file as it is.
    pub plain: String,
    /// What is read.
    pub file: String,
    /// Its number among the samples.
    pub number: u32,
    /// The number of the way it is compressed; `None`: it stayed as it is.
    pub kind: Option<u32>,
    /// Bytes of its contents.
    pub bytes: u64,
    /// What it takes on the volume as it is: whole blocks.
    pub before: u64,
    /// What it takes compressed: whole blocks, and what is in the attribute.
    pub after: u64,
    /// What of that is in the attribute.
    pub attribute: u64,
}

impl Compressed {
    /// What is saved, in percent.
    pub fn saved(&self) -> f64 {
        100.0 * (1.0 - self.after as f64 / self.before.max(1) as f64)
    }
}

/// A series against the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The series, with its step.
    pub label: String,
    /// Which way.
    pub direction: Direction,
    /// The ratio of speeds.
    pub ratio: Ratio,
}

impl Series {
    /// A series with its summaries.
    pub fn new(
        label: impl Into<String>,
        step: Option<&str>,
        cooled: Cooled,
        samples: Vec<Sample>,
    ) -> Self {
        Self {
            label: label.into(),
            image: None,
            step: step.map(str::to_owned),
            cooled,
            write: Summary::of(&samples, Direction::Write, false),
            write_flushed: Summary::of(&samples, Direction::Write, true),
            read: Summary::of(&samples, Direction::Read, false),
            stream: Summary::of(&samples, Direction::Stream, false),
            band_size: None,
            samples,
            space: Vec::new(),
            process: None,
        }
    }

    /// What it is called, with its step.
    pub fn name(&self) -> String {
        self.step.as_ref().map_or_else(
            || self.label.clone(),
            |step| format!("{}, {step}", self.label),
        )
    }

    /// What is known of one direction.
    pub fn summary(&self, direction: Direction) -> Option<&Summary> {
        match direction {
            Direction::Write => self.write.as_ref(),
            Direction::Read => self.read.as_ref(),
            Direction::Stream => self.stream.as_ref(),
        }
    }
}

impl Report {
    /// Mean seconds of reading a file at `step`, as it is and compressed; `None` where that was not
    /// measured.
    pub fn readings(&self, file: &Compressed, step: &str) -> [Option<f64>; 2] {
        [&file.plain, &file.series].map(|label| {
            let series = self
                .series
                .iter()
                .filter(|series| series.label == *label && series.step.as_deref() == Some(step));
            let samples = series
                .flat_map(|series| &series.samples)
                .filter(|sample| sample.number == file.number);
            let seconds: Vec<f64> = samples.map(|sample| sample.seconds).collect();
            (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
        })
    }

    /// Computes each series against the host's at the same step; where the host has no such step,
    /// against all of the host's.
    pub fn compare_with_host(&mut self) {
        let of_host = |direction, step: &Option<String>| -> Vec<_> {
            let host = || self.series.iter().filter(|series| series.label == HOST);
            let same = host().any(|series| series.step == *step);
            let host = host().filter(|series| !same || series.step == *step);
            host.flat_map(|series| stats::speeds(&series.samples, direction))
                .collect()
        };
        let others = self.series.iter().filter(|series| series.label != HOST);
        self.ratios = others
            .flat_map(|series| Direction::ALL.map(|direction| (series, direction)))
            .filter_map(|(series, direction)| {
                let ratio = Ratio::of(
                    &stats::speeds(&series.samples, direction),
                    &of_host(direction, &series.step),
                )?;
                Some(Against {
                    label: series.name(),
                    direction,
                    ratio,
                })
            })
            .collect();
    }

    /// As it is kept.
    pub fn to_json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self);
        Ok(json.map_err(|error| Error::new(Kind::Io, "benchmark", error.to_string()))? + "\n")
    }

    /// Reads what [`to_json`](Self::to_json) wrote. [`Kind::Unsupported`] for another schema,
    /// [`Kind::Invalid`] for other files.
    pub fn from_json(json: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let invalid = |error: serde_json::Error| {
            Error::new(
                Kind::Invalid,
                "benchmark",
                format!("not the JSON of a benchmark: {error}"),
            )
        };
        let Version { schema } = serde_json::from_str(json).map_err(invalid)?;
        if schema != SCHEMA {
            return Err(Error::unsupported(
                "benchmark",
                format!("results have schema {schema}; this program knows {SCHEMA}"),
            ));
        }
        serde_json::from_str(json).map_err(invalid)
    }
}
