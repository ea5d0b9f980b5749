//! Verification of the checksums stored in an image.

use crate::container::udif::Verdict;
use crate::open::Image;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Computes every checksum stored in `image` and returns whether each matches. Data that cannot be
/// decoded is an error.
///
/// [`Kind::Unsupported`] if no checksum is stored: raw images and sparse bundles have none, and
/// UDIF images may lack them.
pub fn verify(image: &Image, progress: &dyn Progress) -> Result<Vec<Verdict>> {
    let nothing = || {
        let format = image.format();
        let message = format!(
            "the {} ({format}) stores no checksums, so there is nothing to verify",
            format.description()
        );
        Error::new(Kind::Unsupported, "image", message)
    };
    let verdicts = match image.udif() {
        Some(udif) => udif.verify(progress),
        None => Err(nothing()),
    };
    let comparable =
        |verdicts: &Vec<Verdict>| verdicts.iter().any(|verdict| verdict.agrees().is_some());
    let verdicts = verdicts.and_then(|verdicts| {
        if comparable(&verdicts) {
            Ok(verdicts)
        } else {
            Err(nothing())
        }
    });
    verdicts.map_err(|error| error.in_file(image.path()))
}
