//! The plain names of a bundle in a bucket, brought up to date. `bandsaw checkpoint`.

use std::path::Path;

use crate::device::Access;
use crate::open::{NetworkOptions, remote};
use crate::progress::Progress;
use crate::store::Checkpointed;
use crate::{Error, Kind, Result};

/// Makes the objects under plain names the bundle at `path`, which is in a bucket, as of its newest
/// commit, and removes what nothing needs any more. After a writer that did not close the bundle it
/// waits for a minute.
///
/// Stopped at any moment it has done a part of it, and the next one does the rest.
/// [`Kind::Invalid`] for what is on this host.
pub fn checkpoint(
    path: &Path,
    network: NetworkOptions,
    progress: &dyn Progress,
) -> Result<Checkpointed> {
    let done = || {
        let Some(bundle) = remote::bundle(path, Access::ReadWrite, network)? else {
            let message = "is in no bucket (s3://): its files are what it is at any moment, nothing has to be brought up to date";
            return Err(Error::new(Kind::Invalid, "checkpoint", message));
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
