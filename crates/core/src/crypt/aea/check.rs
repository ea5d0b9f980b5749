//! Verification of a whole archive: every cluster header and every segment.

use super::LAYER;
use super::device::Archive;
use crate::device;
use crate::parallel;
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::narrow;
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

/// Maximum number of threads: each needs memory for a segment, twice.
const MAX_THREADS: usize = 16;
/// Size of segments in bytes from which they are decoded by one thread only.
const LONG_SEGMENT: u32 = 4 << 20;

/// The result of verifying an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedArchive {
    /// Number of segments.
    pub segments: u64,
    /// Number of damaged ones among them.
    pub damaged: u64,
}

/// Authenticates and decodes all of `archive` on all cores, and reports each segment that is
/// damaged, and a signature that was not verified.
///
/// Fails with the damage of a cluster header, behind which nothing can be found.
pub fn check(
    archive: &Archive,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<CheckedArchive> {
    if let Some(warning) = archive.description().signature.warning() {
        problems.add(
            Severity::Warning,
            Error::new(Kind::Unsupported, LAYER, warning),
        );
    }
    let contents = &archive.contents;
    let root = &contents.root;
    progress.stage("verify", root.size);
    let threads = match root.segment_size {
        0..LONG_SEGMENT => parallel::cores(MAX_THREADS),
        _ => 1,
    };
    let mut checked = CheckedArchive {
        segments: root.segments(),
        damaged: 0,
    };
    for number in 0..narrow(root.clusters()) {
        let cluster = contents.cluster(number)?;
        let damage = Mutex::new(Vec::new());
        let decode = |buffer: &mut Vec<u8>, place: usize, _: &parallel::StopFlag| {
            progress.check()?;
            let len = cluster.segments[place].len as usize;
            if buffer.len() < len {
                *buffer = device::zeros(len)?;
            }
            match contents.decode(&cluster, place, &mut buffer[..len]) {
                Err(error) if error.kind() == Kind::Corrupt => damage.lock().push((place, error)),
                done => done?,
            }
            progress.advance(len as u64);
            Ok(())
        };
        parallel::each(threads, 0..cluster.segments.len(), Vec::new, decode)?;
        let mut damage = damage.into_inner();
        damage.sort_by_key(|(place, _)| *place);
        checked.damaged += damage.len() as u64;
        for (_, error) in damage {
            problems.add(Severity::Damage, error);
        }
    }
    Ok(checked)
}
