//! Published results: speeds of Apple's images relative to the disk below them, and their sizes.
//! They cannot be reproduced here; reports show them beside the measured ratios.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::report::{Report, Series};
use crate::sample::Direction;
use crate::units::rate;

/// The data set that is compiled in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct References {
    /// Schema version of the data.
    pub schema: u32,
    /// Sources of the figures, by a short key.
    pub articles: BTreeMap<String, Article>,
    /// Published speeds.
    pub speeds: Vec<Speed>,
    /// Published sizes on disk.
    pub space: Vec<Space>,
    /// Published results of compressed files.
    pub compression: Vec<Compressed>,
}

/// A source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Article {
    /// Subject of its measurements.
    pub about: String,
    /// Name of the author.
    pub author: String,
    /// Date of publication.
    pub date: String,
    /// Machine and system version.
    pub system: String,
}

/// A published speed; unpublished bounds are `None`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Speed {
    /// Key in [`References::articles`].
    pub article: String,
    /// Format of the image: `UDSB`.
    pub image: String,
    /// Bits of its AES key; 0 if it is not encrypted.
    pub key_bits: u32,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Step of the protocol.
    pub step: String,
    /// Minimum and maximum band size in bytes, if it depends on the band size.
    #[serde(default)]
    pub band: Option<[u64; 2]>,
    /// Minimum and maximum rate, in bytes per second.
    pub rate: [Option<f64>; 2],
    /// Minimum and maximum ratio to the host's rate.
    pub ratio: [Option<f64>; 2],
    /// Other remarks of the source.
    pub note: String,
}

/// Published sizes on disk, in bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "steps of the protocol, by name")]
pub struct Space {
    pub article: String,
    pub image: String,
    pub fresh: u64,
    pub full: Option<u64>,
    pub full_bands: Option<u64>,
    pub emptied: Option<u64>,
    pub emptied_bands: Option<u64>,
    pub compacted: Option<u64>,
    pub note: String,
}

/// A published compressed file; times in seconds, read cold.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "columns of the article, by name")]
pub struct Compressed {
    pub file: String,
    pub bytes: u64,
    pub compressed: Option<u64>,
    pub saved_percent: Option<f64>,
    pub read_plain: Option<f64>,
    pub read_compressed: Option<f64>,
    pub note: String,
}

/// Returns the data set that is compiled in.
pub fn references() -> &'static References {
    static ALL: LazyLock<References> = LazyLock::new(|| {
        // A test parses it, so this cannot fail.
        serde_json::from_str(include_str!("../data/references.json"))
            .expect("the references are JSON")
    });
    &ALL
}

impl References {
    /// Returns the published speeds that correspond to a series: of the same kind of image, at the
    /// same step and band size, as far as the article of the benchmark distinguishes them.
    pub fn beside<'a>(
        &'a self,
        benchmark: &str,
        series: &Series,
        direction: Direction,
    ) -> Vec<&'a Speed> {
        let Some(image) = &series.image else {
            return Vec::new();
        };
        // Speeds of encrypted volumes were published for virtual machines only.
        let format = if image.file_system.starts_with("encrypted") {
            "VM"
        } else {
            &image.format
        };
        let of = |speed: &&Speed| {
            speed.image == format
                && speed.key_bits == image.key_bits
                && speed.direction == direction
        };
        let of_kind: Vec<&Speed> = self.speeds.iter().filter(of).collect();
        let article = match benchmark {
            "images, rewrite" => "dismal",
            "images, steady" => "perf",
            "images, space" => "space",
            "images, bands" => "bands",
            "images, refill" => "asif",
            _ => return Vec::new(),
        };
        let of_article: Vec<&Speed> = of_kind
            .iter()
            .copied()
            .filter(|speed| speed.article == article)
            .collect();
        let fits = |speed: &&Speed| match (speed.band, series.band_size) {
            (Some([least, most]), Some(size)) => (least..=most).contains(&size),
            _ => series.step.as_ref().is_none_or(|step| *step == speed.step),
        };
        of_article.into_iter().filter(fits).collect()
    }

    /// Returns the published sizes of such an image at this step, multiplied by the scale of the
    /// report.
    pub fn of_step(&self, report: &Report, series: &Series, at: &str) -> Vec<(f64, &Space)> {
        let Some(image) = &series.image else {
            return Vec::new();
        };
        let sizes = self.sizes(&report.benchmark, &image.format, image.key_bits, at);
        sizes
            .into_iter()
            .map(|(size, space)| (size as f64 * report.settings.plan.scale, space))
            .collect()
    }

    /// Returns the published sizes of a kind of image, in bytes, at this step of this benchmark.
    /// They exist for plain images only.
    pub fn sizes(
        &self,
        benchmark: &str,
        image: &str,
        key_bits: u32,
        at: &str,
    ) -> Vec<(u64, &Space)> {
        let of_kind = self
            .space
            .iter()
            .filter(|space| space.image == image && key_bits == 0);
        let sizes = of_kind.filter_map(|space| {
            let size = match (benchmark, space.article.as_str(), at) {
                ("images, space", "space", "new") | ("images, refill", "asif", "new") => {
                    Some(space.fresh)
                }
                ("images, space", "space", "full") => space.full,
                ("images, space", "space", "attached anew")
                | ("images, refill", "asif", "attached anew") => space.emptied,
                ("images, space", "space", "compacted") => space.compacted,
                _ => None,
            };
            Some((size?, space))
        });
        sizes.collect()
    }
}

impl Compressed {
    /// Returns the read speed of the compressed file divided by that of the plain file.
    pub fn speed(&self) -> Option<f64> {
        Some(self.read_plain? / self.read_compressed?)
    }
}

impl Speed {
    /// Formats its ratio to the host for tables, or its rate if the ratio is unknown.
    pub fn words(&self) -> String {
        let ratio = between(self.ratio, &|ratio| ratio.to_string());
        ratio.or_else(|| self.rate()).unwrap_or_default()
    }

    /// Formats its rate; `None` if it was not published.
    pub fn rate(&self) -> Option<String> {
        between(self.rate, &rate)
    }

    /// Formats its ratio to the host in percent; `None` if it was not published.
    pub fn percent(&self) -> Option<String> {
        // Rounded to a tenth, without binary fractions such as 56.99999.
        between(self.ratio, &|ratio| {
            format!("{} %", (ratio * 1000.0).round() / 10.0)
        })
    }

    /// Returns the middle of its ratio to the host; `None` if only its rate is known.
    pub fn ratio(&self) -> Option<f64> {
        match self.ratio {
            [Some(low), Some(high)] => Some((low + high) / 2.0),
            [one, other] => one.or(other),
        }
    }
}

/// Formats bounds of which either may be unknown; `None` if both are.
fn between(bounds: [Option<f64>; 2], word: &dyn Fn(f64) -> String) -> Option<String> {
    match bounds {
        [Some(low), Some(high)] if low == high => Some(word(low)),
        [Some(low), Some(high)] => Some(format!("{} to {}", word(low), word(high))),
        [None, Some(high)] => Some(format!("under {}", word(high))),
        [Some(low), None] => Some(format!("over {}", word(low))),
        [None, None] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::CacheState;
    use crate::report::ImageKind;

    #[test]
    fn every_figure_has_a_source() {
        let all = references();
        let sources = all
            .speeds
            .iter()
            .map(|speed| &speed.article)
            .chain(all.space.iter().map(|space| &space.article));
        for source in sources {
            assert!(all.articles.contains_key(source), "{source}");
        }
        assert!(all.articles.len() >= 5 && all.compression.len() == 5);
        assert!(all.speeds.iter().all(|speed| {
            speed
                .ratio()
                .is_none_or(|ratio| (0.0..2.0).contains(&ratio))
        }));
        assert!(all.speeds.iter().all(|speed| {
            speed
                .words()
                .starts_with(|c: char| c.is_ascii_alphanumeric())
        }));
        let size = |benchmark, image, key_bits, at| {
            all.sizes(benchmark, image, key_bits, at)
                .first()
                .map(|(size, _)| *size)
        };
        assert_eq!(
            size("images, space", "UDSB", 0, "full"),
            Some(104_080_000_000)
        );
        assert_eq!(
            size("images, refill", "ASIF", 0, "attached anew"),
            Some(954_000_000)
        );
        assert_eq!(
            (
                size("images, refill", "ASIF", 256, "new"),
                size("images, space", "UDRW", 0, "compacted")
            ),
            (None, None)
        );
    }

    #[test]
    fn a_series_stands_beside_what_is_like_it() {
        let beside = |benchmark,
                      format: &str,
                      file_system: &str,
                      step: Option<&str>,
                      band_size,
                      direction| {
            let image = ImageKind {
                format: format.into(),
                key_bits: 0,
                file_system: file_system.into(),
                via: "library".into(),
            };
            let series = Series {
                image: Some(image),
                band_size,
                ..Series::new("it", step, CacheState::Kept, Vec::new())
            };
            references()
                .beside(benchmark, &series, direction)
                .iter()
                .map(|speed| speed.words())
                .collect::<Vec<_>>()
        };
        let write = Direction::Write;
        assert_eq!(
            beside(
                "images, rewrite",
                "UDSB",
                "APFS",
                Some("first"),
                None,
                write
            ),
            ["under 0.5"]
        );
        assert_eq!(
            beside(
                "images, rewrite",
                "UDSB",
                "APFS",
                Some("rewrite"),
                None,
                write
            ),
            ["over 0.7"]
        );
        assert!(
            beside(
                "images, rewrite",
                "UDSB",
                "APFS",
                Some("first, attached anew"),
                None,
                write
            )
            .is_empty()
        );
        assert_eq!(
            beside(
                "images, refill",
                "ASIF",
                "APFS",
                Some("part full"),
                None,
                Direction::Read
            ),
            ["5.88 GB/s"]
        );
        assert_eq!(
            beside(
                "images, bands",
                "UDSB",
                "APFS",
                None,
                Some(15 << 20),
                Direction::Stream
            ),
            ["0.72"]
        );
        assert_eq!(
            beside(
                "images, bands",
                "UDSB",
                "APFS",
                None,
                Some(64 << 20),
                Direction::Stream
            ),
            ["under 0.36"]
        );
        assert!(
            beside(
                "images, bands",
                "UDSB",
                "APFS",
                None,
                Some(12 << 20),
                Direction::Stream
            )
            .is_empty()
        );
        assert_eq!(
            beside(
                "images, steady",
                "ASIF",
                "encrypted APFS",
                None,
                None,
                write
            ),
            ["4.5 GB/s"]
        );
        assert!(
            beside("images, steady", "ASIF", "APFS", None, None, write).is_empty(),
            "values of other articles are not comparable"
        );
        assert!(
            references()
                .beside(
                    "files",
                    &Series::new("host", None, CacheState::Kept, Vec::new()),
                    write
                )
                .is_empty()
        );
    }
}
