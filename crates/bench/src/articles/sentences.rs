//! The sentences that say the answers.

use std::fmt;

use super::answers::{Answer, FastestSeries, Finding, Pair, StepReadings, Subject};
use crate::stats::ratio::{Ratio, RatioVerdict};
use crate::units::{bytes, rate};

/// Number of series that a sentence names at most.
const NAMED: usize = 6;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.subject.words();
        match &self.finding {
            Finding::NotMeasured => write!(f, "{what}: not measured."),
            Finding::Ratios {
                low,
                median,
                high,
                counts,
                ratios,
                ..
            } => {
                write!(
                    f,
                    "{what}: {low:.2} to {high:.2}, median {median:.2}. Of {} comparisons {} are slower beyond the noise, {} faster, {} \
                     the same within 5 %, {} too noisy to say.",
                    counts.all(),
                    counts.slower,
                    counts.faster,
                    counts.same,
                    counts.too_noisy,
                )?;
                let of = |verdict| ratios.iter().filter(move |of| of.ratio.verdict == verdict);
                let (slower, faster): (Vec<_>, Vec<_>) = (
                    of(RatioVerdict::Slower).collect(),
                    of(RatioVerdict::Faster).rev().collect(),
                );
                write_pairs(f, "Slower", &slower)?;
                write_pairs(f, "Faster", &faster)
            }
            Finding::Fastest {
                verdict,
                via,
                name,
                rate: speed,
                within_noise: within,
                compressor_rate,
                of,
            } => {
                let way = via
                    .as_ref()
                    .map_or_else(String::new, |via| format!(", {via}"));
                let speed_text = rate(*speed);
                if let Some(limit) = compressor_rate {
                    return write!(
                        f,
                        "{what}{way}: limited by the processor. The fastest stream, {speed_text}, is {:.0} % of the compressor's speed \
                         from memory to memory, so band sizes cannot be told apart.",
                        100.0 * speed / limit
                    );
                }
                write!(f, "{what}{way}: {name} with {speed_text}")?;
                let named = &within[..within.len().min(NAMED)];
                match verdict {
                    FastestSeries::BeyondNoise => f.write_str(", beyond the noise."),
                    FastestSeries::TooNoisy => write!(
                        f,
                        ", which is not beyond the noise of any of the other {}.",
                        of - 1
                    ),
                    _ => {
                        write!(f, "; within the noise of it: {}", named.join("; "))?;
                        write_more(f, within.len())?;
                        f.write_str(".")
                    }
                }
            }
            Finding::Returned {
                series,
                full,
                attached_anew,
                compacted,
            } => {
                let share = |left: u64| 100.0 * (1.0 - left as f64 / (*full).max(1) as f64);
                write!(
                    f,
                    "{series}: {} at most; {:.1} % came back when the emptied image was attached anew, {:.1} % after compaction; {} are \
                     left.",
                    bytes(*full),
                    share(*attached_anew),
                    share(*compacted),
                    bytes(*compacted)
                )
            }
            Finding::WithoutHoles {
                series,
                new,
                full,
                compacted,
            } => write!(
                f,
                "{series}: {} when new, {} when full, {} when emptied and compacted.",
                bytes(*new),
                bytes(*full),
                bytes(*compacted)
            ),
            Finding::Readings { series, steps } => {
                let steps: Vec<String> = steps
                    .iter()
                    .map(|StepReadings { step, counts, .. }| {
                        format!(
                            "{step} {} of {} files faster beyond the noise, {} slower",
                            counts.faster,
                            counts.all(),
                            counts.slower
                        )
                    })
                    .collect();
                write!(f, "{series}: {}.", steps.join("; "))
            }
        }
    }
}

impl Subject {
    fn words(self) -> &'static str {
        match self {
            Self::FirstOverSecondWrite => "First write over second",
            Self::AttachedAnewOverFirstWrite => "First write after attaching anew over first write",
            Self::EncryptedOverPlain => "Encrypted over plain",
            Self::EmptiedOverEmpty => "Emptied over empty",
            Self::AsifOverRaw => "ASIF over raw",
            Self::FastestWrites => "Fastest writes",
            Self::FastestBandSize => "Fastest band size",
            Self::SpaceReturned => "Space returned",
            Self::SpaceWithoutHoles => "Size without holes",
            Self::CompressedOverPlain => "Compressed over plain",
        }
    }
}

/// Writes the first of these pairs with their intervals, and how many there are more.
fn write_pairs(f: &mut fmt::Formatter<'_>, word: &str, pairs: &[&Pair]) -> fmt::Result {
    if pairs.is_empty() {
        return Ok(());
    }
    let names = pairs.iter().take(NAMED).map(|pair| {
        let Ratio {
            value, low, high, ..
        } = pair.ratio;
        let Pair {
            series, direction, ..
        } = pair;
        format!("{series}, {direction}: {value:.2} [{low:.2} to {high:.2}]")
    });
    let names: Vec<String> = names.collect();
    write!(f, " {word}: {}", names.join("; "))?;
    write_more(f, pairs.len())?;
    f.write_str(".")
}

fn write_more(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    match count.saturating_sub(NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}
