//! Reports of measurements, and their formats.
//!
//! * [`Report`] holds all results, as JSON with a schema.
//! * [`csv`] has a line per sample.
//! * [`html`] is a web page.
//! * [`table`] makes tables.
//! * [`plot`] makes plots as SVG.

mod compression;
pub mod csv;
pub mod html;
pub mod plot;
mod scale;
mod stream;
mod style;
mod svg;
pub mod table;

use serde::{Deserialize, Serialize};

use bandsaw::{Error, Kind, Result};

use crate::compressor::Compressor;
use crate::machine::Machine;
use crate::place::{CacheState, Caches};
use crate::plan::Plan;
use crate::sample::{Direction, Sample};
use crate::stats::ratio::Ratio;
use crate::stats::{self, Summary};

/// Schema version of the report; other versions are refused.
pub const SCHEMA: u32 = 1;
/// Name of the series that the others are compared with.
pub const HOST: &str = "host";
/// Steps of a series that reads compressed files.
pub(crate) const STEPS: [&str; 2] = ["cold", "warm"];
/// Step of the stream test at which the size of an image is noted: it has both files.
pub(crate) const STREAMED: &str = "streamed";

/// Results of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Schema version: [`SCHEMA`].
    pub schema: u32,
    /// Name of the benchmark: `files`, or `images` with the protocol.
    pub benchmark: String,
    /// Program and version.
    pub tool: String,
    /// Start time, in seconds since 1970.
    pub began: u64,
    /// End time, in seconds since 1970.
    pub ended: u64,
    /// Machine of the run.
    pub machine: Machine,
    /// Settings of the run.
    pub settings: Settings,
    /// Measurements, in chronological order.
    pub series: Vec<Series>,
    /// Ratio of each image to the host, per direction.
    pub ratios: Vec<HostComparison>,
    /// Compressed files, for the protocol that measures them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compressed: Vec<Compressed>,
    /// Readings of these files, for the protocol that measures them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadTime>,
    /// Compressor of the stream test, for the protocol that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Compressor of the stream test, and its speed from memory to memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compression {
    /// Compression format.
    pub compressor: Compressor,
    /// Number of threads that compress, in the test and in memory.
    pub threads: usize,
    /// Speed from memory to memory in bytes of input per second.
    pub rate: f64,
    /// Length of the input in bytes.
    pub bytes: u64,
    /// Length of the output in bytes.
    pub packed: u64,
}

impl Compression {
    /// Share of the compressor's speed from which the processor limits a stream.
    const LIMITED: f64 = 0.9;

    /// Returns true if a stream of `rate` bytes per second is as fast as the compressor, so that it
    /// tells nothing of the medium.
    pub fn limits(&self, rate: f64) -> bool {
        rate >= Self::LIMITED * self.rate
    }
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Files that are written.
    pub plan: Plan,
    /// Size of a request in bytes.
    pub request: u64,
    /// Treatment of the page cache.
    pub caches: Caches,
    /// True if the contents are compressible.
    pub compressible: bool,
    /// True if the data read was compared with the data written.
    pub verify: bool,
    /// Pause between writing and reading, and around attaching anew, in seconds.
    pub pause: f64,
}

/// Measurements of one subject at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name of the subject: `host`, or a kind of image.
    pub label: String,
    /// Kind of image; `None` for the host.
    pub image: Option<ImageKind>,
    /// Step of the protocol, if it has several.
    pub step: Option<String>,
    /// State of the cache between writing and reading.
    pub cooled: CacheState,
    /// Samples of all files.
    pub samples: Vec<Sample>,
    /// Statistics of writing, without the final flush.
    pub write: Option<Summary>,
    /// Statistics of writing, including the final flush.
    pub write_flushed: Option<Summary>,
    /// Statistics of reading.
    pub read: Option<Summary>,
    /// Statistics of compressing one file into another on the same volume.
    pub stream: Option<Summary>,
    /// Band size in bytes, if the protocol compares several.
    pub band_size: Option<u64>,
    /// Number of bands of a full image, if the protocol compares several band sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_bands: Option<u64>,
    /// Size of the image on disk, in chronological order.
    pub space: Vec<Space>,
    /// Resource usage of the process that serves the image, if known.
    pub process: Option<Process>,
}

/// A kind of image, and the interface that accesses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageKind {
    /// Container format: `UDSB`.
    pub format: String,
    /// Bits of its AES key; 0 if it is not encrypted.
    pub key_bits: u32,
    /// File system of the image.
    pub file_system: String,
    /// Interface: `library`, `nbd` or `mount`.
    pub via: String,
}

/// Size of an image at one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Step after which it was measured.
    pub at: String,
    /// Size on disk in bytes.
    pub on_disk: u64,
    /// Number of band files, for a bundle.
    pub bands: Option<u64>,
    /// Bytes in use in its volume, if measured.
    pub in_use: Option<u64>,
    /// Bytes free in its volume, if measured.
    #[serde(default)]
    pub free: Option<u64>,
    /// Bytes reclaimed by compaction, after a compaction.
    #[serde(default)]
    pub given_back: Option<u64>,
}

/// Resource usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Elapsed seconds.
    pub real: f64,
    /// Seconds of processor time in user mode.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Maximum number of threads observed.
    pub threads: u64,
}

impl Process {
    /// Adds the usage of two consecutive measurements; `None` if both are unknown.
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

    /// Returns the average number of processors used.
    pub fn processors(&self) -> f64 {
        (self.user + self.system) / self.real.max(1e-9)
    }
}

/// A compressed file. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// Name of the series that read the compressed file.
    pub series: String,
    /// Name of the series that read the plain file.
    pub plain: String,
    /// Name of the file.
    pub file: String,
    /// Its number among the samples.
    pub number: u32,
    /// Number of the compression type (decmpfs); `None` if it stayed plain.
    pub kind: Option<u32>,
    /// Length of its contents.
    pub bytes: u64,
    /// Size on the volume when plain: whole blocks.
    pub before: u64,
    /// Size on the volume when compressed: whole blocks, plus the data in the attribute.
    pub after: u64,
    /// Part of `after` that is in the attribute.
    pub attribute: u64,
}

impl Compressed {
    /// Returns the savings in percent.
    pub fn saved(&self) -> f64 {
        100.0 * (1.0 - self.after as f64 / self.before.max(1) as f64)
    }
}

/// Times of reading a file once, in seconds. The system counts processor time in steps of 10 ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadTime {
    /// Name of the series.
    pub series: String,
    /// Step of the series: cold or warm.
    pub step: String,
    /// Name of the file.
    pub file: String,
    /// Elapsed time.
    pub real: f64,
    /// Processor time in user mode, of the process that serves the image.
    pub user: f64,
    /// Processor time in the kernel.
    pub system: f64,
}

/// Comparison of a series with the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostComparison {
    /// Name of the series, with its step.
    pub label: String,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Ratio of the speeds.
    pub ratio: Ratio,
}

impl Series {
    /// Creates a series with its statistics.
    pub fn new(
        label: impl Into<String>,
        step: Option<&str>,
        cooled: CacheState,
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
            possible_bands: None,
            samples,
            space: Vec::new(),
            process: None,
        }
    }

    /// Returns its name, with its step.
    pub fn name(&self) -> String {
        self.step.as_ref().map_or_else(
            || self.label.clone(),
            |step| format!("{}, {step}", self.label),
        )
    }

    /// Returns the largest number of bands with both files of the stream test; `None` if there is
    /// none.
    pub fn bands_in_use(&self) -> Option<u64> {
        let streamed = self.space.iter().filter(|space| space.at == STREAMED);
        streamed.filter_map(|space| space.bands).max()
    }

    /// Returns the statistics of one direction.
    pub fn summary(&self, direction: Direction) -> Option<&Summary> {
        match direction {
            Direction::Write => self.write.as_ref(),
            Direction::Read => self.read.as_ref(),
            Direction::Stream => self.stream.as_ref(),
        }
    }
}

impl Report {
    /// Returns the mean time of reading a file at `step`, plain and compressed, in seconds; `None`
    /// if it was not measured.
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

    /// Returns the speed of reading a compressed file at `step`, divided by that of the plain file;
    /// `None` if either was not measured.
    pub fn compressed_over_plain(&self, file: &Compressed, step: &str) -> Option<Ratio> {
        let [plain, packed] = [&file.plain, &file.series].map(|label| {
            let all = self.series.iter();
            let series =
                all.filter(|series| series.label == *label && series.step.as_deref() == Some(step));
            let samples = series.flat_map(|series| &series.samples);
            let samples = samples.filter(|sample| sample.number == file.number);
            stats::speeds(&samples.cloned().collect::<Vec<_>>(), Direction::Read)
        });
        Ratio::of(&packed, &plain)
    }

    /// Adds a series, or its samples to those of the same name from an earlier round.
    pub(crate) fn add(&mut self, series: Series) {
        let known = self
            .series
            .iter_mut()
            .find(|known| known.label == series.label && known.step == series.step);
        let Some(known) = known else {
            self.series.push(series);
            return;
        };
        known.samples.extend(series.samples);
        known.cooled = known.cooled.worse(series.cooled);
        known.process = Process::sum(known.process, series.process);
        // Statistics of many files take long: those of directions without new samples stay.
        let of = |direction, flushed| Summary::of(&known.samples, direction, flushed);
        if series.write.is_some() {
            known.write = of(Direction::Write, false);
            known.write_flushed = of(Direction::Write, true);
        }
        if series.read.is_some() {
            known.read = of(Direction::Read, false);
        }
        if series.stream.is_some() {
            known.stream = of(Direction::Stream, false);
        }
    }

    /// Compares each series with the host's at the same step; if the host lacks that step, with all
    /// of the host's.
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
                Some(HostComparison {
                    label: series.name(),
                    direction,
                    ratio,
                })
            })
            .collect();
    }

    /// Serializes the report as JSON.
    pub fn to_json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self);
        Ok(json.map_err(|error| Error::new(Kind::Io, "benchmark", error.to_string()))? + "\n")
    }

    /// Parses the output of [`to_json`](Self::to_json). Fails with [`Kind::Unsupported`] for
    /// another schema, with [`Kind::Invalid`] for other files.
    pub fn from_json(json: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let invalid = |error: serde_json::Error| {
            Error::invalid("benchmark", format!("not the JSON of a benchmark: {error}"))
        };
        let Version { schema } = serde_json::from_str(json).map_err(invalid)?;
        if schema != SCHEMA {
            return Err(Error::unsupported(
                "benchmark",
                format!("unsupported schema {schema}: expected {SCHEMA}"),
            ));
        }
        serde_json::from_str(json).map_err(invalid)
    }
}
