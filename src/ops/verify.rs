//! The sums that an image stores of itself, computed anew.

use crate::container::udif::Verdict;
use crate::open::Image;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Computes every sum stored in `image` anew and says of each whether it agrees. What does not even
/// decode is an error.
///
/// [`Kind::Unsupported`] where nothing is stored to compare with: raw images and sparse bundles
/// have no sums, and UDIF images may be without.
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
