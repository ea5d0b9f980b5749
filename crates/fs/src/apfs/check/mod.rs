//! Checking a container against every rule of §15; findings have a severity and a place.
//!
//! [`check`] reads the superblocks, every node of every tree, and the bitmaps, but no contents of
//! files. Memory use grows with the number of objects and extents (about 100 bytes each), not with
//! the container. Checkpoints are checked first, then the space manager, then each volume with its
//! snapshots. Each of them claims the blocks that it uses, and the claims are compared with the
//! bitmaps last.

mod blocks;
mod checkpoint;
mod files;
mod keybags;
mod omap;
mod paths;
mod references;
mod report;
mod snapshots;
mod space;
mod tree;
mod volume;

#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub(super) mod corruptions;
#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub(super) mod sample;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use zerocopy::FromBytes;

use self::blocks::BlockUsers;
use self::checkpoint::Ephemerals;
use self::omap::{CheckedObjects, Scope};
use self::report::{Report, wrong};
use self::space::CheckedSpace;
use self::volume::VolumeCheck;
use super::container::Container;
use super::layout::{Oid, ReapListRaw, ReaperRaw, Xid, object_type, reaper_flags};
use crate::{LockedVolume, VolumeKey};
use bandsaw_core::problem::Problems;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Result};

const LAYER: &str = "apfs container";

/// A function that returns the keys of encrypted volumes.
pub(super) type KeyLookup<'a> = &'a dyn Fn(&LockedVolume) -> Result<VolumeKey>;

/// The parameters of a check.
struct Checker<'a> {
    container: &'a Arc<Container>,
    key: KeyLookup<'a>,
    progress: &'a dyn Progress,
}

impl Container {
    /// Checks the checkpoint that is open, and adds every finding; `place` describes the location
    /// of the container in words. Nothing is modified. Returns an error for each volume whose files
    /// could not be checked: those whose key `key` does not return, and those of unsupported
    /// versions.
    ///
    /// # Errors
    ///
    /// Fails on I/O errors, with [`Kind::Cancelled`](bandsaw_core::Kind::Cancelled), or with
    /// [`Kind::Unsupported`](bandsaw_core::Kind::Unsupported) for a container of an unsupported kind.
    pub fn check(
        self: &Arc<Self>,
        place: &str,
        key: KeyLookup<'_>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Result<Vec<Error>> {
        let mut report = Report::new(problems, place);
        for problem in self.problems() {
            report.damage(problem.duplicate());
        }
        if let Some(older) = self.older_state() {
            report.note(wrong("apfs checkpoint", older));
        }
        self.check_state(place, key, problems, progress)
    }

    /// Checks the container without the findings from opening it.
    pub(super) fn check_state(
        self: &Arc<Self>,
        place: &str,
        key: KeyLookup<'_>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Result<Vec<Error>> {
        progress.stage("check the container", 0);
        Checker {
            container: self,
            key,
            progress,
        }
        .run(&mut Report::new(problems, place))
    }
}

impl Checker<'_> {
    fn newest(&self) -> Xid {
        Xid(self.container.checkpoint())
    }

    fn run(&self, report: &mut Report<'_>) -> Result<Vec<Error>> {
        let (container, raw) = (self.container, &self.container.superblock);
        let mut blocks = BlockUsers::default();
        let mut objects = checkpoint::check(container, &mut blocks, report)?;
        let space =
            CheckedSpace::read(container, &mut objects, &mut blocks, report, self.progress)?;
        if is_reaping(&objects) {
            report.note(wrong(
                LAYER,
                "a deletion is in progress, so it is unknown which blocks are still in use for it",
            ));
            blocks.incomplete = true;
        }
        if raw.blocked_out.count.get() != 0 || raw.evict_tree_oid.get() != 0 {
            report.note(wrong(
                LAYER,
                "a shrink of the container is in progress, so it is unknown which blocks are in \
                 use for it",
            ));
            blocks.incomplete = true;
        }
        leftovers(&objects, Oid::from(raw.reaper_oid), report);
        keybags::jumpstart(container, &mut blocks, report)?;
        let scope = Scope {
            store: &container.store,
            progress: self.progress,
            volume: 0,
            newest: self.newest(),
            next_oid: raw.next_oid.get(),
            encrypted: false,
        };
        let mut unseen = Vec::new();
        match CheckedObjects::read(
            Oid::from(raw.omap_oid).into_paddr(),
            &scope,
            &mut blocks,
            report,
        )? {
            None => blocks.incomplete = true,
            Some(mut objects) => {
                let mut volumes = Vec::new();
                for (number, oid) in (1..).zip(container.volume_oids()) {
                    match volume::superblock(self, oid, &mut objects, report)? {
                        Some((raw, paddr)) => volumes.push(VolumeCheck {
                            checker: self,
                            number,
                            raw,
                            paddr,
                        }),
                        None => blocks.incomplete = true,
                    }
                }
                for oid in container.unlisted_volumes().unwrap_or_default() {
                    let message = format!("the superblock does not list volume {oid:#x}");
                    report.damage(wrong(LAYER, message));
                    blocks.incomplete = true;
                }
                objects.report_unused(0, !blocks.incomplete, report);
                let raws: Vec<_> = volumes.iter().map(|volume| volume.raw).collect();
                keybags::check(container, &raws, &mut blocks, report)?;
                for volume in &volumes {
                    unseen.extend(volume.run(&mut blocks, report)?);
                }
            }
        }
        if let Some(space) = space {
            space.compare(blocks, report)?;
        }
        Ok(unseen)
    }
}

/// Returns true if a large object is being deleted over several transactions (§6).
fn is_reaping(objects: &Ephemerals) -> bool {
    objects.values().any(|(_, bytes)| {
        let kind = super::layout::ObjectRaw::ref_from_prefix(bytes)
            .map_or(0, |(header, _)| header.object_type());
        match kind {
            object_type::REAPER => ReaperRaw::read_from_prefix(bytes)
                .is_ok_and(|(reaper, _)| reaper.flags.get() & reaper_flags::CONTINUE != 0),
            object_type::REAP_LIST => {
                ReapListRaw::read_from_prefix(bytes).is_ok_and(|(list, _)| list.count.get() != 0)
            }
            _ => false,
        }
    })
}

/// Reports ephemeral objects without a reference; free queues and the space manager have been
/// removed from `objects`.
fn leftovers(objects: &Ephemerals, reaper: Oid, report: &mut Report<'_>) {
    for (oid, (paddr, bytes)) in objects {
        let kind = super::layout::ObjectRaw::ref_from_prefix(bytes)
            .map_or(0, |(header, _)| header.object_type());
        match kind {
            object_type::REAPER if *oid == reaper => {
                let flags =
                    ReaperRaw::read_from_prefix(bytes).map_or(0, |(reaper, _)| reaper.flags.get());
                if flags & !reaper_flags::CONTINUE != reaper_flags::ALWAYS {
                    let message = format!(
                        "the reaper in block {paddr} has flags {flags:#x}, expected {:#x}",
                        reaper_flags::ALWAYS
                    );
                    report.warning(wrong("apfs checkpoint", message));
                }
                if let Some(message) = unusual_fields(bytes) {
                    report.warning(wrong(
                        "apfs checkpoint",
                        format!("the reaper in block {paddr} {message}"),
                    ));
                }
            }
            object_type::REAP_LIST => {}
            _ => {
                let message =
                    format!("object {oid:#x} of type {kind:#x} in block {paddr} is not used");
                report.warning(wrong("apfs checkpoint", message));
            }
        }
    }
}

/// Returns a message if a reaper is inconsistent; `bytes` are all of its block.
fn unusual_fields(bytes: &[u8]) -> Option<String> {
    let (reaper, buffer) = ReaperRaw::ref_from_prefix(bytes).ok()?;
    let size = reaper.buffer_size.get();
    if size as usize != buffer.len() {
        return Some(format!(
            "has a buffer of {size} bytes, expected {}",
            buffer.len()
        ));
    }
    // A reaper with lists keeps the state of its last run.
    if reaper.head.get() != 0 {
        let lists = reaper
            .tail
            .get()
            .checked_sub(reaper.head.get())
            .map(|more| more + 1);
        return (lists != Some(reaper.lists.get().into()))
            .then(|| format!("records {} lists, but has none", reaper.lists));
    }
    let counts = [
        reaper.completed_id,
        reaper.tail,
        reaper.fs_oid,
        reaper.oid,
        reaper.xid,
    ];
    let kinds = [reaper.lists, reaper.kind, reaper.size, reaper.entry_flags];
    let is_empty =
        counts.iter().all(|count| count.get() == 0) && kinds.iter().all(|kind| kind.get() == 0);
    let is_new = is_empty && reaper.next_id.get() == 1 && buffer.iter().all(|byte| *byte == 0);
    (!is_new).then(|| "has no lists, but is not empty".to_owned())
}
