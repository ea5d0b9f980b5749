//! Update of the plainly named objects of a bundle in a bucket. `bandsaw checkpoint`.

use std::path::Path;

use crate::device::Access;
use crate::open::{NetworkOptions, remote};
use crate::progress::Progress;
use crate::store::Checkpointed;
use crate::{Error, Kind, Reason, Result};

/// Brings the objects under plain names of the bundle at `path`, which is in a bucket, up to its
/// newest commit, and removes objects that are no longer needed. Waits for a minute if the last
/// writer did not close the bundle.
///
/// An interrupted checkpoint is completed by the next one. [`Kind::Invalid`](crate::Kind) for a path on this
/// host.
pub fn checkpoint(
    path: &Path,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<Checkpointed> {
    let done = || {
        let Some(bundle) = remote::bundle(path, Access::ReadWrite, network)? else {
            if remote::url(path).is_none() && !path.exists() {
                let missing = Error::new(Kind::NotFound, "checkpoint", "does not exist");
                return Err(missing.because(Reason::NoSuchImage));
            }
            let message = "not in a bucket (s3://): its files are always up to date";
            return Err(Error::invalid("checkpoint", message));
        };
        progress.stage("checkpoint", 0);
        let done = bundle.checkpoint(&|bytes| {
            progress.advance(bytes);
            progress.check()
        })?;
        bundle.close()?;
        Ok(done)
    };
    done().map_err(|error| error.in_file(path))
}
