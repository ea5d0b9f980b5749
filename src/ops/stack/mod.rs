//! Commit of a layer to the image below it. Source: docs/formats/stack.md §5.
//!
//! The layer stays complete until the image below has all of its data, so the two show the same
//! disk at every moment: an interrupted commit is resumed by running it again.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::container::stack::Role;
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind};
use crate::open::overlays::{self, LayerFile, LayerOptions, LowerDisk};
use crate::open::{OpenOptions, layer_metadata, leftovers};
use crate::ops::orphans;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

const LAYER: &str = "commit";
/// Bytes moved at a time.
const PIECE: u64 = 1 << 20;
/// Bytes of the disk after which the progress is recorded.
const STRETCH: u64 = 1 << 30;

/// Result of a commit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Bytes of data written.
    pub written: u64,
    /// Bytes zeroed because the layer marks them as zeros.
    pub zeroed: u64,
    /// Disk offset at which the commit resumed; 0 unless it was interrupted before.
    pub resumed_at: u64,
}

/// Commits the topmost of `layers`, which are on top of the image at `base`, to the layer or image
/// directly below it, and empties it. It can then be used further as an overlay, or be removed.
///
/// The target must be of a format that can be changed, and gets the layer's length. Other layers on
/// top of it no longer fit. After an error, or if `progress` cancels, both are still usable, and
/// the same call resumes.
pub fn commit(
    base: &Path,
    layers: &[PathBuf],
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Committed> {
    let Some((path, shadows)) = layers.split_last() else {
        return Err(Error::invalid(LAYER, "no layer to commit").in_file(base));
    };
    // The file itself is to be replaced, not a symbolic link to it.
    let path = &fs::canonicalize(path)
        .map_err(|source| Error::io(LAYER, "find the layer", source).in_file(path))?;
    let below_options = OpenOptions {
        shadows,
        ..*options
    };
    let in_layer = |error: Error| error.in_file(path);
    let below = overlays::below(
        base,
        &OpenOptions {
            access: Access::ReadWrite,
            ..below_options
        },
    )?;
    let layer = overlays::open_layer(path, Access::ReadWrite).map_err(in_layer)?;
    if layer.role == Role::Cache || below.ends_with_cache() {
        let message = "cannot commit a cache; leave it out and commit the overlay above it";
        return Err(Error::invalid(LAYER, message).in_file(path));
    }
    let _odd = below.check(&layer)?;
    // Before the layer records that it is being committed.
    if let Some(bundle) = &below.bundle
        && below.disk.info().len != layer.image.info().len
    {
        leftovers::check_leftovers(bundle, &below.disk, options, progress)
            .map_err(|error| error.in_file(base))?;
    }
    // A commit that was interrupted must end, whatever the disk below holds in between.
    if layer_metadata::commit(&layer.image.metadata()).is_none() {
        orphans::refuse_orphans_below(&below.layers, &below.disk, LAYER, progress)
            .map_err(|error| error.in_file(base))?;
    }
    let mut job = CommitJob {
        below,
        layer,
        progress,
        parent: Uuid::nil(),
        committed: Committed::default(),
    };
    job.run().map_err(in_layer)?;
    let CommitJob {
        layer,
        committed,
        below,
        ..
    } = job;
    // All data is below; the layer is replaced in one step.
    let (len, block, uuid) = (
        layer.image.info().len,
        layer.image.block(),
        layer.image.uuid(),
    );
    drop((layer, below));
    let below = overlays::below(
        base,
        &OpenOptions {
            access: Access::ReadOnly,
            ..below_options
        },
    )?;
    let empty = LayerOptions {
        role: Role::Overlay,
        len: Some(len),
        block: Some(block),
        overwrite: true,
    };
    overlays::make(path, &empty, &below, Some(uuid)).map_err(in_layer)?;
    Ok(committed)
}

struct CommitJob<'a> {
    below: LowerDisk,
    layer: LayerFile,
    progress: &'a dyn Progress,
    /// The UUID of the image below during the commit; nil if it has none.
    parent: Uuid,
    committed: Committed,
}

impl CommitJob<'_> {
    fn run(&mut self) -> Result<()> {
        let from = self.begin()?;
        self.committed.resumed_at = from;
        let (disk, len) = (&self.below.disk, self.layer.image.info().len);
        if disk.info().len != len {
            disk.set_len(len, AfterDiscard::Zeros)?;
        }
        self.progress.stage("commit", len);
        self.progress.advance(from);
        let mut noted = from;
        for extent in self.layer.image.clone().extents(from..len) {
            let (range, kind) = extent?;
            let mut at = range.start;
            while at < range.end {
                let most = if kind == ExtentKind::Data {
                    PIECE
                } else {
                    STRETCH
                };
                let piece = at..range.end.min(at + most);
                if self.progress.cancelled() || piece.end - noted > STRETCH {
                    self.below.disk.flush()?;
                    self.record_progress(at)?;
                    noted = at;
                    self.progress.check()?;
                }
                self.put(&piece, kind)?;
                self.progress.advance(piece.end - piece.start);
                at = piece.end;
            }
        }
        self.progress.stage("flush", 0);
        self.below.disk.flush()
    }

    /// Gives the image below a new UUID, which is recorded in the layer first. Returns the offset
    /// at which to resume. For an image without a UUID, records that it is going to be changed.
    fn begin(&mut self) -> Result<u64> {
        let layer = self.layer.image.clone();
        let before = layer_metadata::commit(&layer.metadata());
        let Some(parent) = self.below.top.clone() else {
            if before.is_none() && layer_metadata::below(&layer.metadata()).is_some() {
                let begun = layer_metadata::Commit {
                    parent: Uuid::nil(),
                    done: 0,
                    uuid: Uuid::nil(),
                };
                layer.set_user_metadata(begun.add_to(layer.metadata().user))?;
            }
            return Ok(0);
        };
        let done =
            before.filter(|before| before.parent == parent.uuid() && before.uuid == layer.uuid());
        self.parent = Uuid::new_v4();
        let begun = layer_metadata::Commit {
            parent: self.parent,
            done: 0,
            uuid: Uuid::nil(),
        };
        layer.set_user_metadata(begun.add_to(layer.metadata().user))?;
        parent.begin_as(self.parent)?;
        layer.set_parent(self.parent)?;
        let done = done.map_or(0, |done| done.done.min(layer.info().len) / PIECE * PIECE);
        self.record_progress(done)?;
        Ok(done)
    }

    /// Records, durably, that everything before `done` is below. Nothing is recorded for an image
    /// without a UUID, because it could be replaced by another one before the record is read.
    fn record_progress(&self, done: u64) -> Result<()> {
        if self.parent.is_nil() {
            return Ok(());
        }
        let layer = &self.layer.image;
        let note = layer_metadata::Commit {
            parent: self.parent,
            done,
            uuid: layer.uuid(),
        };
        layer.set_user_metadata(note.add_to(layer.metadata().user))
    }

    fn put(&mut self, piece: &Range<u64>, kind: ExtentKind) -> Result<()> {
        let len = piece.end - piece.start;
        match kind {
            ExtentKind::Hole => {}
            ExtentKind::Zero => {
                self.below
                    .disk
                    .discard(piece.clone(), AfterDiscard::Zeros)?;
                self.committed.zeroed += len;
            }
            ExtentKind::Data => {
                let bytes = self.layer.image.read_vec(piece.start, to_usize(len))?;
                self.below.disk.write_at(piece.start, &bytes)?;
                self.committed.written += len;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
