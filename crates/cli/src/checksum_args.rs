//! The comparison of an image with the checksums stored in it, for verbs that read all of it.

use bandsaw::Kind;
use bandsaw::open::{Image, Layer};
use bandsaw::ops::verify::Verification;
use clap::Args;

use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
#[cfg(target_os = "linux")]
use crate::verified_images::VerifiedFiles;

/// The hint about a checksum that differs.
pub(crate) const VERIFY_HINT: &str =
    "run `bandsaw verify` to compare all checksums, or use --no-verify to ignore them";

/// The remark about an image that is not compared with its checksums.
pub(crate) const NOT_VERIFIED: &str =
    "the image was not verified; use --verify to compare its checksums";

/// The options about stored checksums.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VerifyArgs {
    /// Do not compare the image with the checksums stored in it
    #[arg(long)]
    no_verify: bool,
    /// Compare the image with all checksums stored in it
    ///
    /// This is the default if all of a local image is read. For a path in an image, and for a
    /// remote image, only the data that is read is checked, as far as it carries checksums of its
    /// own.
    #[arg(long, conflicts_with = "no_verify")]
    verify: bool,
    /// Only warn about a mismatch, for the interface of hdiutil
    #[arg(long, hide = true, conflicts_with = "no_verify")]
    warn_about_checksums: bool,
}

impl VerifyArgs {
    /// Begins to compare an image that is read, unless an option says otherwise or only a part is
    /// read (`whole` is false). `None` also if the image stores no checksums.
    pub(crate) fn begin(
        &self,
        image: &Image,
        whole: bool,
        output: &Output,
    ) -> Option<Verification> {
        if self.no_verify {
            return None;
        }
        let verification = Verification::begin(image)?;
        if self.verify || (whole && is_local(image)) {
            return Some(verification);
        }
        output.note(NOT_VERIFIED);
        None
    }

    /// Returns true if an image that stores checksums is not compared with them because only a part is
    /// read, or the image is remote.
    pub(crate) fn leaves_out(&self, image: &Image, whole: bool) -> bool {
        if self.no_verify || self.verify || (whole && is_local(image)) {
            return false;
        }
        Verification::begin(image).is_some()
    }

    /// Compares an image before it is attached or mounted, unless this was done before and the
    /// files of the image are unchanged. A mismatch is an error, or a warning if that was requested.
    #[cfg(target_os = "linux")]
    pub(crate) fn before_use(&self, image: &Image, output: &Output) -> Outcome {
        let Some(verification) = self.begin(image, true, output) else {
            return Ok(());
        };
        let verified = VerifiedFiles::of(image);
        if !self.verify && verified.as_ref().is_some_and(VerifiedFiles::is_remembered) {
            return Ok(());
        }
        match verification.finish(&Bar::new(output)) {
            Err(error) if self.warn_about_checksums && error.kind() == Kind::Corrupt => {
                output.warn(&error.to_string());
                return Ok(());
            }
            verified => verified.advise(Kind::Corrupt, || VERIFY_HINT.to_owned())?,
        }
        // Best effort: otherwise the image is verified again the next time.
        if let Some(verified) =
            verified.filter(|verified| VerifiedFiles::of(image).as_ref() == Some(verified))
        {
            verified.remember();
        }
        Ok(())
    }
}

/// Completes a comparison.
pub(crate) fn finish(verification: Verification, output: &Output) -> Outcome {
    verification
        .finish(&Bar::new(output))
        .advise(Kind::Corrupt, || VERIFY_HINT.to_owned())
}

/// Returns true if all of the image is on this host.
fn is_local(image: &Image) -> bool {
    let is_remote = |layer: &Layer| matches!(layer, Layer::Remote(_) | Layer::Bucket(_));
    !image.layers().iter().any(is_remote)
}
