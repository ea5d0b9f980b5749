//! The warning that contents may be missing from what was read of an image.

use bandsaw::open::Image;
use bandsaw::{Error, Kind};

use crate::failure::{Failure, Outcome};

/// Fails with the exit code for warnings if there is a `doubt` about what was read of `image`.
pub(crate) fn warn(image: &Image, doubt: Option<String>) -> Outcome {
    let Some(doubt) = doubt else { return Ok(()) };
    let what = format!("contents may be missing: {doubt}");
    let error = Error::new(Kind::Corrupt, "image", what).in_file(image.path());
    Err(Failure::from(error)
        .hint(format!("run `bandsaw check {}`", image.path().display()))
        .warned())
}
