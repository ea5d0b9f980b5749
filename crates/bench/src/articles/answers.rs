//! Answers to the questions of the articles, each with the noise of the run: codes and numbers, of
//! which the sentences are made. The types are here, as each question fills its own variants.

use serde::Serialize;

use super::Experiment;
use crate::images::Protocol;
use crate::report::{HOST, ImageKind, Report, STEPS, Series};
use crate::sample::Direction;
use crate::stats;
use crate::stats::ratio::{Ratio, RatioVerdict};
use crate::units::bytes;

/// The subject of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The first write to a new image, over the second.
    FirstOverSecondWrite,
    /// The first write after attaching anew, over the first write.
    AttachedAnewOverFirstWrite,
    /// Encrypted images over plain ones.
    EncryptedOverPlain,
    /// Emptied images over empty ones.
    EmptiedOverEmpty,
    /// ASIF over raw images.
    AsifOverRaw,
    /// The fastest writes.
    FastestWrites,
    /// The band size with the fastest stream.
    FastestBandSize,
    /// Storage that comes back when files are removed.
    SpaceReturned,
    /// Storage on a medium without holes.
    SpaceWithoutHoles,
    /// Compressed files over plain ones.
    CompressedOverPlain,
}

/// An answer to a question of an article; its `Display` is a sentence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The comparison or measurement.
    pub subject: Subject,
    /// The result.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// Nothing was measured.
    NotMeasured,
    /// Ratios of the speeds of pairs of series, the smallest first.
    Ratios {
        /// Conclusion from all of them.
        verdict: Conclusion,
        /// Smallest ratio.
        low: f64,
        /// Median ratio.
        median: f64,
        /// Largest ratio.
        high: f64,
        /// Number of pairs by their verdicts.
        counts: VerdictCounts,
        /// All ratios.
        ratios: Vec<Pair>,
    },
    /// The fastest of several series.
    Fastest {
        /// The certainty of the answer, by the noise.
        verdict: FastestSeries,
        /// Interface that accesses the images, if each has an answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<String>,
        /// Its name.
        name: String,
        /// Its speed in bytes per second.
        rate: f64,
        /// Names of series that are not slower beyond the noise.
        within_noise: Vec<String>,
        /// Speed of the compressor from memory to memory in bytes per second, if it is the limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        compressor_rate: Option<f64>,
        /// Number of series.
        #[serde(skip)]
        of: usize,
    },
    /// Sizes of an image on disk, in bytes.
    Returned {
        /// Name of the series.
        series: String,
        /// Largest size.
        full: u64,
        /// Size after it was emptied and attached anew.
        attached_anew: u64,
        /// Size after compaction.
        compacted: u64,
    },
    /// Sizes of an image on a medium without holes, in bytes.
    WithoutHoles {
        /// Name of the series.
        series: String,
        /// Size when new.
        new: u64,
        /// Size when full.
        full: u64,
        /// Size when emptied and compacted.
        compacted: u64,
    },
    /// Readings of compressed files.
    Readings {
        /// Name of the compression method.
        series: String,
        /// The steps: cold and warm.
        steps: Vec<StepReadings>,
    },
}

/// Conclusion from several ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Some are faster beyond the noise, and none slower.
    Faster,
    /// Some are slower beyond the noise, and none faster.
    Slower,
    /// Some are faster and some slower beyond the noise.
    Mixed,
    /// All are the same within 5 %.
    Same,
    /// None differs beyond the noise, and some are too noisy to say.
    TooNoisy,
}

/// Conclusion about the fastest series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FastestSeries {
    /// It is faster than all others beyond the noise.
    BeyondNoise,
    /// Some others are within its noise.
    WithinNoise,
    /// All others are within its noise.
    TooNoisy,
    /// The processor limits it, so that series cannot be compared.
    LimitedByProcessor,
}

/// Number of ratios by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// Slower beyond the noise.
    pub slower: usize,
    /// Faster beyond the noise.
    pub faster: usize,
    /// The same within 5 %.
    pub same: usize,
    /// Too noisy to say.
    pub too_noisy: usize,
}

impl VerdictCounts {
    fn of<'a>(ratios: impl Iterator<Item = &'a Ratio> + Clone) -> Self {
        let count = |verdict| ratios.clone().filter(|of| of.verdict == verdict).count();
        Self {
            slower: count(RatioVerdict::Slower),
            faster: count(RatioVerdict::Faster),
            same: count(RatioVerdict::Same),
            too_noisy: count(RatioVerdict::TooNoisy),
        }
    }

    pub(super) fn all(self) -> usize {
        self.slower + self.faster + self.same + self.too_noisy
    }

    pub(super) fn conclusion(self) -> Conclusion {
        match (self.slower, self.faster, self.too_noisy) {
            (0, 0, 0) => Conclusion::Same,
            (0, 0, _) => Conclusion::TooNoisy,
            (0, ..) => Conclusion::Faster,
            (_, 0, _) => Conclusion::Slower,
            _ => Conclusion::Mixed,
        }
    }
}

/// The speed of a series over that of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Name of the series.
    pub series: String,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Ratio of the speeds.
    pub ratio: Ratio,
}

/// Readings of all files at one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReadings {
    /// Name of the step.
    pub step: &'static str,
    /// Conclusion from all files.
    pub verdict: Conclusion,
    /// Number of files by the verdicts of their ratios.
    pub counts: VerdictCounts,
}

/// Returns the answers of a run to the question of its experiment.
pub(super) fn of(experiment: &Experiment, report: &Report) -> Vec<Answer> {
    match experiment.protocol {
        Protocol::Space if experiment.without_holes => without_holes(report),
        Protocol::Rewrite => vec![
            pairs(report, Subject::FirstOverSecondWrite, |one| {
                at_step(report, one, "first", "rewrite")
            }),
            pairs(report, Subject::AttachedAnewOverFirstWrite, |one| {
                at_step(report, one, "first, attached anew", "first")
            }),
            fastest(report, Some("rewrite")),
            pairs(report, Subject::EncryptedOverPlain, |one| {
                plain(report, one)
            }),
        ],
        Protocol::Steady => vec![
            pairs(report, Subject::EncryptedOverPlain, |one| {
                plain(report, one)
            }),
            fastest(report, None),
        ],
        Protocol::Space => returned(report),
        Protocol::Bands => bands(report),
        Protocol::Compression => readings(report),
        Protocol::Refill => {
            let raw = |one: &Series| {
                let image = one.image.as_ref().filter(|image| image.format == "ASIF")?;
                let raw = ImageKind {
                    format: "UDRW".to_owned(),
                    ..image.clone()
                };
                find(report, &raw, one.step.as_deref())
            };
            let mut all = vec![
                pairs(report, Subject::EmptiedOverEmpty, |one| {
                    at_step(report, one, "emptied", "empty")
                }),
                pairs(report, Subject::EncryptedOverPlain, |one| {
                    plain(report, one)
                }),
                pairs(report, Subject::AsifOverRaw, raw),
            ];
            all.extend(returned(report));
            all
        }
    }
}

fn find<'a>(report: &'a Report, image: &ImageKind, step: Option<&str>) -> Option<&'a Series> {
    let mut series = report.series.iter();
    series.find(|series| series.image.as_ref() == Some(image) && series.step.as_deref() == step)
}

/// Returns the series of the same image at the step `other`, if `one` is that at `step`.
fn at_step<'a>(report: &'a Report, one: &Series, step: &str, other: &str) -> Option<&'a Series> {
    let image = one.image.as_ref()?;
    (one.step.as_deref() == Some(step)).then(|| find(report, image, Some(other)))?
}

/// Returns the series of the same image without encryption.
fn plain<'a>(report: &'a Report, one: &Series) -> Option<&'a Series> {
    let image = one.image.as_ref().filter(|image| image.key_bits > 0)?;
    let plain = ImageKind {
        key_bits: 0,
        ..image.clone()
    };
    find(report, &plain, one.step.as_deref())
}

/// Compares each series of an image that has another one to be compared with, in each direction:
/// the ratios of their speeds, and those that differ beyond the noise.
fn pairs<'a>(
    report: &'a Report,
    subject: Subject,
    other: impl Fn(&'a Series) -> Option<&'a Series>,
) -> Answer {
    let mut ratios: Vec<Pair> = Vec::new();
    for series in &report.series {
        let Some(other) = other(series) else {
            continue;
        };
        for direction in [Direction::Write, Direction::Read] {
            let speeds = |of: &Series| stats::speeds(&of.samples, direction);
            if let Some(ratio) = Ratio::of(&speeds(series), &speeds(other)) {
                ratios.push(Pair {
                    series: series.name(),
                    direction,
                    ratio,
                });
            }
        }
    }
    ratios.sort_by(|one, other| one.ratio.value.total_cmp(&other.ratio.value));
    let counts = VerdictCounts::of(ratios.iter().map(|pair| &pair.ratio));
    let finding = match (ratios.first(), ratios.last()) {
        (Some(low), Some(high)) => Finding::Ratios {
            verdict: counts.conclusion(),
            low: low.ratio.value,
            median: ratios[ratios.len() / 2].ratio.value,
            high: high.ratio.value,
            counts,
            ratios,
        },
        _ => Finding::NotMeasured,
    };
    Answer { subject, finding }
}

/// Names the image that writes the fastest at a step, and those that it does not differ from.
fn fastest(report: &Report, step: Option<&str>) -> Answer {
    let images = report.series.iter().filter(|series| series.label != HOST);
    let of_step = images.filter(|series| series.step.as_deref() == step);
    let all = of_step.filter_map(|series| {
        let write = series.write.as_ref()?;
        Some((series.label.clone(), series, write.trimmed_mean.value))
    });
    Answer {
        subject: Subject::FastestWrites,
        finding: first_of(all.collect(), Direction::Write, None),
    }
}

/// Names the fastest of `all`, which have a name and a speed, and those within the noise of it.
fn first_of(
    mut all: Vec<(String, &Series, f64)>,
    direction: Direction,
    via: Option<String>,
) -> Finding {
    all.sort_by(|(.., one), (.., other)| other.total_cmp(one));
    let Some(((name, first, speed), others)) = all.split_first() else {
        return Finding::NotMeasured;
    };
    let speeds = |of: &Series| stats::speeds(&of.samples, direction);
    let within = others.iter().filter(|(_, other, _)| {
        let ratio = Ratio::of(&speeds(first), &speeds(other));
        ratio.is_none_or(|ratio| ratio.verdict != RatioVerdict::Faster)
    });
    let within_noise: Vec<String> = within.map(|(name, ..)| name.clone()).collect();
    Finding::Fastest {
        verdict: match within_noise.len() {
            0 => FastestSeries::BeyondNoise,
            count if count == others.len() => FastestSeries::TooNoisy,
            _ => FastestSeries::WithinNoise,
        },
        via,
        name: name.clone(),
        rate: *speed,
        within_noise,
        compressor_rate: None,
        of: all.len(),
    }
}

/// Names the band size with the fastest stream for each interface, unless the processor limits it.
fn bands(report: &Report) -> Vec<Answer> {
    let via = |series: &Series| series.image.as_ref().map(|image| image.via.clone());
    let mut ways: Vec<String> = report.series.iter().filter_map(via).collect();
    ways.sort_unstable();
    ways.dedup();
    let of_way = |way: String| {
        let series = report.series.iter();
        let streams = series.filter(|series| via(series).as_ref() == Some(&way));
        let streams = streams.filter_map(|series| {
            let (size, stream) = (series.band_size?, series.stream.as_ref()?);
            Some((bytes(size), series, stream.trimmed_mean.value))
        });
        let mut finding = first_of(streams.collect(), Direction::Stream, Some(way));
        if let Finding::Fastest {
            verdict,
            rate,
            compressor_rate,
            ..
        } = &mut finding
            && let Some(limit) = report.compression.filter(|of| of.limits(*rate))
        {
            (*verdict, *compressor_rate) = (FastestSeries::LimitedByProcessor, Some(limit.rate));
        }
        Answer {
            subject: Subject::FastestBandSize,
            finding,
        }
    };
    ways.into_iter().map(of_way).collect()
}

/// Returns the size of each image when full, and what came back.
fn returned(report: &Report) -> Vec<Answer> {
    let of = |series: &Series| {
        let at = |step: &str| {
            let mut space = series.space.iter().rev();
            space
                .find(|space| space.at == step)
                .map(|space| space.on_disk)
        };
        Some(Finding::Returned {
            series: series.label.clone(),
            full: series.space.iter().map(|space| space.on_disk).max()?,
            attached_anew: at("attached anew")?,
            compacted: at("compacted")?,
        })
    };
    let mut all: Vec<Answer> = (report.series.iter().filter_map(of))
        .map(|finding| Answer {
            subject: Subject::SpaceReturned,
            finding,
        })
        .collect();
    all.sort_by_cached_key(Answer::to_string);
    all
}

/// Returns the sizes of each image on a medium without holes.
fn without_holes(report: &Report) -> Vec<Answer> {
    let of = |series: &Series| {
        let at = |step: &str| {
            let mut space = series.space.iter();
            space
                .find(|space| space.at == step)
                .map(|space| space.on_disk)
        };
        Some(Finding::WithoutHoles {
            series: series.label.clone(),
            new: at("new")?,
            full: at("full")?,
            compacted: at("compacted")?,
        })
    };
    (report.series.iter().filter_map(of))
        .map(|finding| Answer {
            subject: Subject::SpaceWithoutHoles,
            finding,
        })
        .collect()
}

/// Returns an answer for each compression method: the files that were read faster, cold and warm.
fn readings(report: &Report) -> Vec<Answer> {
    let mut methods: Vec<&str> = report.compressed.iter().map(|file| &*file.series).collect();
    methods.sort_unstable();
    methods.dedup();
    let of_method = |method: &str| {
        let steps = STEPS.map(|step| {
            let files = report
                .compressed
                .iter()
                .filter(|file| file.series == method);
            let ratios = files.filter_map(|file| report.compressed_over_plain(file, step));
            let ratios: Vec<Ratio> = ratios.collect();
            let counts = VerdictCounts::of(ratios.iter());
            StepReadings {
                step,
                verdict: counts.conclusion(),
                counts,
            }
        });
        Answer {
            subject: Subject::CompressedOverPlain,
            finding: Finding::Readings {
                series: method.to_owned(),
                steps: steps.to_vec(),
            },
        }
    };
    methods.into_iter().map(of_method).collect()
}
