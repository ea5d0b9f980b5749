//! Consistency check of an image.

use std::sync::Arc;

use super::layout::ChunkEntry;
use super::mask::BlockState;
use super::owners::Owner;
use super::{Asif, LAYER, load};
use crate::device::{Access, BlockDevice};
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Progress;
use crate::size::{counted, narrow};
use crate::{Error, Reason, Result};

/// Reports every problem of the image in `file`, read-only, and returns the disk as far as it is
/// readable. Fails if the image is damaged so much that nothing else can be checked, or if it
/// cannot be read.
pub fn check(
    file: &Arc<dyn BlockDevice>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<Asif> {
    check_with(file, None, problems, progress)
}

/// Like [`check`], with the given directory instead of the one with the higher version.
pub fn check_with(
    file: &Arc<dyn BlockDevice>,
    directory: Option<usize>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<Asif> {
    progress.stage("check", 0);
    let mut findings = Findings::Check(problems, progress);
    let mut loaded = load::load_with(&**file, directory, &mut findings)?;
    let (beyond, end) = (loaded.beyond.clone(), loaded.used.end());
    let (metadata, sectors) = (loaded.header.metadata.take(), loaded.header.sectors);
    let image = Asif::over(file.clone(), loaded, Access::ReadOnly)?;
    if let Some(first) = metadata {
        findings.value_or_damage(image.read_metadata(sectors, first))?;
    }
    for (chunk, at) in beyond
        .iter()
        .filter(|(chunk, _)| !image.described().chunks.contains(chunk))
    {
        let leftover = format!(
            "table entry for chunk {}, past the end of the disk",
            chunk.0
        );
        findings.report(Severity::Warning, Error::corrupt(LAYER, *at, leftover))?;
    }
    let (len, end) = (file.info().len, end.0 * image.geometry.chunk_bytes());
    if len > end {
        let unused = counted(len - end, "unused byte", "unused bytes") + " after the last chunk";
        findings.report(Severity::Note, Error::corrupt(LAYER, end, unused))?;
    } else if len < end {
        image.check_cut_off(len, &mut findings)?;
    }
    Ok(image)
}

impl Asif {
    /// Reports a file that ends within its last chunk: as damage if data is lost, otherwise as a
    /// note.
    fn check_cut_off(&self, len: u64, findings: &mut Findings<'_>) -> Result<()> {
        let there = len % self.geometry.chunk_bytes();
        let is_lost = match self.last_chunks(1)?.first() {
            Some((_, Owner::Data(chunk))) => match self.tables.entry(*chunk)? {
                ChunkEntry::Partial(_) => {
                    let lost = narrow::<u32>(there / u64::from(self.geometry.block))
                        ..self.geometry.blocks_per_chunk();
                    let mask = self.tables.mask(*chunk)?;
                    lost.into_iter()
                        .any(|block| mask.is(block..block + 1, BlockState::Written))
                }
                _ => true,
            },
            // The unwritten part of a table or bitmap may be missing.
            _ => false,
        };
        let severity = if is_lost {
            Severity::Damage
        } else {
            Severity::Note
        };
        let cut = "the file is truncated: it ends within its last chunk";
        let error = Error::corrupt(LAYER, len, cut).because(Reason::Truncated);
        findings.report(severity, error)
    }
}
