//! What others have published: speeds of Apple's images beside the disk below them, and what they take. Nobody can run these
//! again here; their ratios are drawn beside one's own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::sample::Direction;

/// All that is shipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct References {
    /// The version of the data.
    pub schema: u32,
    /// Where the figures are from, by a word.
    pub articles: BTreeMap<String, Article>,
    /// Speeds.
    pub speeds: Vec<Speed>,
    /// Sizes on disk.
    pub space: Vec<Space>,
    /// Compressed files.
    pub compression: Vec<Compressed>,
}

/// A source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Article {
    /// What it measures.
    pub about: String,
    /// Who wrote it.
    pub author: String,
    /// When.
    pub date: String,
    /// On what.
    pub system: String,
}

/// A published speed; bounds that were not told are `None`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Speed {
    /// Of [`References::articles`].
    pub article: String,
    /// The kind of image: `UDSB`.
    pub image: String,
    /// Bits of its AES key; 0 for none.
    pub key_bits: u32,
    /// Which way.
    pub direction: Direction,
    /// At which step of the protocol.
    pub step: String,
    /// Bytes a second, from and to.
    pub rate: [Option<f64>; 2],
    /// The same over the host's, from and to.
    pub ratio: [Option<f64>; 2],
    /// What else was said.
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

/// A published compressed file; times in seconds, cold.
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

/// What is shipped.
pub fn references() -> &'static References {
    static ALL: LazyLock<References> = LazyLock::new(|| {
        // A test reads it: what is compiled in cannot be wrong.
        serde_json::from_str(include_str!("../data/references.json")).expect("the references are JSON")
    });
    &ALL
}

impl References {
    /// What was published of images of a kind in one direction.
    pub fn of<'a>(&'a self, image: &'a str, key_bits: u32, direction: Direction) -> impl Iterator<Item = &'a Speed> {
        self.speeds.iter().filter(move |speed| speed.image == image && speed.key_bits == key_bits && speed.direction == direction)
    }

    /// What was published of the size of images of a kind, in bytes, at this step of this benchmark. Only of plain ones is any known.
    pub fn sizes(&self, benchmark: &str, image: &str, key_bits: u32, at: &str) -> Vec<(u64, &Space)> {
        let of_kind = self.space.iter().filter(|space| space.image == image && key_bits == 0);
        let sizes = of_kind.filter_map(|space| {
            let size = match (benchmark, space.article.as_str(), at) {
                ("images, space", "space", "new") | ("images, refill", "asif", "new") => Some(space.fresh),
                ("images, space", "space", "full") => space.full,
                ("images, space", "space", "emptied") | ("images, refill", "asif", "part full: removed") => space.emptied,
                ("images, space", "space", "compacted again") => space.compacted,
                _ => None,
            };
            Some((size?, space))
        });
        sizes.collect()
    }
}

impl Compressed {
    /// Speed of reading it compressed over that of reading it as it is.
    pub fn speed(&self) -> Option<f64> {
        Some(self.read_plain? / self.read_compressed?)
    }
}

impl Speed {
    /// The middle of what is told of its ratio to the host.
    pub fn ratio(&self) -> Option<f64> {
        match self.ratio {
            [Some(low), Some(high)] => Some((low + high) / 2.0),
            [one, other] => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_source() {
        let all = references();
        let sources = all.speeds.iter().map(|speed| &speed.article).chain(all.space.iter().map(|space| &space.article));
        for source in sources {
            assert!(all.articles.contains_key(source), "{source}");
        }
        assert!(all.articles.len() >= 5 && all.compression.len() == 5);
        assert!(all.speeds.iter().all(|speed| speed.ratio().is_some_and(|ratio| (0.0..2.0).contains(&ratio))));
        assert_eq!(all.of("ASIF", 0, Direction::Write).count(), 3);
        let size = |benchmark, image, key_bits, at| all.sizes(benchmark, image, key_bits, at).first().map(|(size, _)| *size);
        assert_eq!(size("images, space", "UDSB", 0, "full"), Some(104_080_000_000));
        assert_eq!(size("images, refill", "ASIF", 0, "part full: removed"), Some(954_000_000));
        assert_eq!(
            (size("images, refill", "ASIF", 256, "new"), size("images, space", "UDRW", 0, "compacted again")),
            (None, None)
        );
    }
}
