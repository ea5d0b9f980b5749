//! Verification of the checksums stored in an image.

use std::path::PathBuf;
use std::sync::Arc;

use crate::container::udif::{ChecksumResult, Udif};
use crate::crypt::aea::{self, CheckedArchive};
use crate::open::{Image, Layer};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Computes every checksum stored in `image` and returns whether each matches. Data that cannot be
/// decoded is an error.
///
/// [`Kind::Unsupported`] if no checksum is stored: raw images and sparse bundles have none, and
/// UDIF images may lack them.
pub fn verify(image: &Image, progress: &dyn Progress) -> Result<Vec<ChecksumResult>> {
    let nothing = || {
        let format = image.format();
        let message = format!(
            "{} ({format}) has no checksums to verify",
            format.description()
        );
        Error::new(Kind::Unsupported, "image", message)
    };
    let verdicts = match image.udif() {
        Some(udif) => udif.verify(progress),
        None => Err(nothing()),
    };
    let comparable =
        |verdicts: &Vec<ChecksumResult>| verdicts.iter().any(|verdict| verdict.agrees().is_some());
    let verdicts = verdicts.and_then(|verdicts| {
        if comparable(&verdicts) {
            Ok(verdicts)
        } else {
            Err(nothing())
        }
    });
    verdicts.map_err(|error| error.in_file(image.path()))
}

/// Authenticates and decodes every segment of the archive that contains `image`; `None` if there is none.
/// Also returns the damage that was found, up to a limit.
///
/// [`Kind::Corrupt`] if the header of a cluster is damaged, behind which nothing can be found.
pub fn verify_archive(
    image: &Image,
    progress: &dyn Progress,
) -> Result<Option<(CheckedArchive, Problems)>> {
    let Some(archive) = image.archive().and_then(|archive| archive.contents.clone()) else {
        return Ok(None);
    };
    let mut problems = Problems::default();
    let checked = aea::check(&archive, &mut problems, progress)
        .map_err(|error| error.in_file(image.path()))?;
    Ok(Some((checked, problems)))
}

/// A comparison of an image with the checksums stored in it, while it is read.
#[derive(Debug)]
pub struct Verification {
    udif: Arc<Udif>,
    path: PathBuf,
}

impl Verification {
    /// Begins to record checksums of the data that is read from `image`. `None` if it stores no
    /// checksum that can be compared.
    pub fn begin(image: &Image) -> Option<Self> {
        let udif = image.layers().iter().find_map(Layer::udif)?;
        let udif = Some(udif).filter(|udif| udif.has_sums())?.clone();
        udif.begin_sums();
        let path = image.path().to_owned();
        Some(Self { udif, path })
    }

    /// Reads what was not read, and compares all checksums of the contents. [`Kind::Corrupt`] if
    /// one differs or a chunk does not decode; the message names the first area that is damaged,
    /// with its range, and the number of others.
    pub fn finish(self, progress: &dyn Progress) -> Result<()> {
        let verdicts = self.udif.verify_contents(progress);
        let verdicts = verdicts.map_err(|error| error.in_file(&self.path))?;
        let (areas, others): (Vec<_>, Vec<_>) =
            verdicts.iter().partition(|verdict| verdict.area.is_some());
        let mut wrong = areas
            .into_iter()
            .chain(others)
            .filter_map(ChecksumResult::mismatch);
        let Some(first) = wrong.next() else {
            return Ok(());
        };
        let error = match wrong.count() {
            0 => first,
            others => {
                let message = format!("{}; {others} more differ", first.message());
                Error::new(Kind::Corrupt, first.layer(), message)
            }
        };
        Err(error.in_file(&self.path))
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.udif.end_sums();
    }
}
