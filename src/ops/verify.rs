//! Verification of the checksums stored in an image.

use std::path::PathBuf;
use std::sync::Arc;

use crate::container::StoredChecksum;
use crate::container::mapped::MappedDisk;
use crate::container::udif::{Checksum, ChecksumResult, Udif};
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
pub fn verify(image: &Image, progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
    let nothing = || {
        let format = image.format();
        let message = format!(
            "{} ({format}) has no checksums to verify",
            format.description()
        );
        Error::new(Kind::Unsupported, "image", message)
    };
    let verdicts = match (image.udif(), image.mapped()) {
        (Some(udif), _) => udif
            .verify(progress)
            .map(|verdicts| verdicts.iter().map(StoredChecksum::from).collect()),
        (None, Some(disk)) => disk.verify(progress),
        (None, None) => Err(nothing()),
    };
    let comparable =
        |verdicts: &Vec<StoredChecksum>| verdicts.iter().any(|verdict| verdict.agrees().is_some());
    let verdicts = verdicts.and_then(|verdicts| {
        if comparable(&verdicts) {
            Ok(verdicts)
        } else {
            Err(nothing())
        }
    });
    verdicts.map_err(|error| error.in_file(image.path()))
}

impl From<&ChecksumResult> for StoredChecksum {
    fn from(result: &ChecksumResult) -> Self {
        let hex = |sum: u32| format!("{sum:08x}");
        let (algorithm, stored) = match result.stored {
            Checksum::None => ("none", None),
            Checksum::Crc32(sum) => ("crc32", Some(hex(sum))),
            Checksum::Other(_) => ("other", None),
        };
        Self {
            of: result.of.clone(),
            algorithm,
            stored,
            computed: result.computed.map(hex),
            is_of_area: result.area.is_some(),
        }
    }
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
    image: VerifiedImage,
    path: PathBuf,
}

#[derive(Debug)]
enum VerifiedImage {
    Udif(Arc<Udif>),
    /// Its sums are compared by reading it again: a diskette.
    Mapped(Arc<MappedDisk>),
}

impl Verification {
    /// Begins to record checksums of the data that is read from `image`. `None` if it stores no
    /// checksum that can be compared.
    pub fn begin(image: &Image) -> Option<Self> {
        let path = image.path().to_owned();
        if let Some(disk) = image.layers().iter().find_map(Layer::mapped) {
            return disk.is_diskette().then(|| Self {
                image: VerifiedImage::Mapped(disk.clone()),
                path,
            });
        }
        let udif = image.layers().iter().find_map(Layer::udif)?;
        let udif = Some(udif).filter(|udif| udif.has_sums())?.clone();
        udif.begin_sums();
        let image = VerifiedImage::Udif(udif);
        Some(Self { image, path })
    }

    /// Reads what was not read, and compares all checksums of the contents. [`Kind::Corrupt`] if
    /// one differs or a chunk does not decode; the message names the first area that is damaged,
    /// with its range, and the number of others.
    pub fn finish(self, progress: &dyn Progress) -> Result<()> {
        let udif = match &self.image {
            VerifiedImage::Udif(udif) => udif,
            VerifiedImage::Mapped(disk) => {
                let checked = disk.check_sums(progress);
                return checked.map_err(|error| error.in_file(&self.path));
            }
        };
        let verdicts = udif.verify_contents(progress);
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
        if let VerifiedImage::Udif(udif) = &self.image {
            udif.end_sums();
        }
    }
}
