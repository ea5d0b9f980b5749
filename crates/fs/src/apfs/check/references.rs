//! Extent references against the extents of files: the reference count of every block must equal
//! the number of its uses (§9).

use std::ops::Range;

use zerocopy::FromBytes;

use super::blocks::{BlockUsers, User};
use super::omap::Scope;
use super::report::{Report, wrong};
use super::tree::{Leaf, Physical};
use crate::apfs::btree::{Key, TreeKind};
use crate::apfs::layout::{ExtentRefRaw, FileId, Oid, UPDATE_OWNER, extent_ref_kind, record_type};
use bandsaw_core::Result;

const LAYER: &str = "apfs extent references";
/// Maximum number of runs that are reported individually.
const MAX_REPORTED: usize = 100;

/// The extent references of a volume, those in its snapshots' trees included, oldest first.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Runs, and the change of the reference count in each.
    runs: Vec<(Range<u64>, i64)>,
    /// End of each tree's runs in `runs`.
    states: Vec<usize>,
    /// Number of blocks that belong to the volume.
    pub(super) owned: u64,
    /// Number of nodes of all trees.
    pub(super) nodes: u64,
    /// Highest number of an owner.
    pub(super) highest: u64,
}

impl References {
    /// Adds a tree: of the next snapshot, or, last, the volume's own.
    pub(super) fn add_tree(
        &mut self,
        root: Oid,
        scope: &Scope<'_>,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let volume = scope.volume;
        let mut own = BlockUsers::default();
        let mut end = 0;
        let user = User::volume(volume, "tree of extent references");
        let totals = scope.walk(TreeKind::ExtentReferences).run(
            root,
            &mut Physical { blocks, user },
            report,
            &mut |leaf, report| {
                if let Some((run, raw)) = reference(leaf, scope.store.blocks, report) {
                    if run.start < end {
                        report.damage(leaf.wrong(format_args!(
                            "the blocks from {} have two reference counts",
                            run.start
                        )));
                    }
                    end = end.max(run.end);
                    self.add(&run, &raw, leaf, report);
                    if raw.kind() == extent_ref_kind::NEW {
                        own.claim(
                            run.clone(),
                            User {
                                volume,
                                what: "contents of object",
                                id: raw.owner.get(),
                            },
                        );
                    }
                }
                Ok(())
            },
        )?;
        blocks.append(own);
        self.nodes += totals.map_or(0, |totals| totals.nodes);
        self.states.push(self.runs.len());
        Ok(())
    }

    /// Returns the number of trees that were added.
    pub(super) fn trees(&self) -> usize {
        self.states.len()
    }

    fn add(
        &mut self,
        run: &Range<u64>,
        raw: &ExtentRefRaw,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) {
        let (owner, count) = (raw.owner.get(), raw.references.get());
        let is_new = raw.kind() == extent_ref_kind::NEW;
        if is_new == (owner == UPDATE_OWNER) || (is_new && owner < FileId::FIRST_USER.0) {
            report.warning(leaf.wrong(format_args!(
                "the record of the blocks from {} on has the invalid owner {owner:#x}",
                run.start
            )));
        }
        if count == 0 {
            report.warning(leaf.wrong(format_args!(
                "the blocks from {} have a reference count of 0",
                run.start
            )));
        }
        if is_new {
            self.owned += run.end - run.start;
            if owner != UPDATE_OWNER {
                self.highest = self.highest.max(owner);
            }
        }
        // The count of an update is signed.
        let change = if is_new {
            i64::from(count)
        } else {
            i64::from(count.cast_signed())
        };
        self.runs.push((run.clone(), change));
    }

    /// Compares the reference counts with the extents of the files of a state, which is given by
    /// the number of its tree.
    pub(super) fn compare(
        &self,
        state: usize,
        extents: &[Range<u64>],
        whose: &str,
        report: &mut Report<'_>,
    ) {
        let end = self.states.get(state).copied().unwrap_or(0);
        // The ends of runs: block, change of the reference count, change of the number of uses.
        let mut steps: Vec<(u64, i64, i64)> = Vec::new();
        for (run, change) in self.runs.get(..end).unwrap_or_default() {
            steps.extend([(run.start, *change, 0), (run.end, -*change, 0)]);
        }
        for run in extents {
            steps.extend([(run.start, 0, 1), (run.end, 0, -1)]);
        }
        steps.sort_unstable();
        let (mut counted, mut used, mut reported) = (0, 0, 0);
        let mut steps = steps.iter().peekable();
        while let Some(&(at, count, uses)) = steps.next() {
            counted += count;
            used += uses;
            let Some(&&(next, ..)) = steps.peek() else {
                break;
            };
            if next == at || counted == used {
                continue;
            }
            reported += 1;
            if reported > MAX_REPORTED {
                continue;
            }
            let message = format!(
                "blocks {at} to {} have a reference count of {counted}, but {whose} use them \
                 {used} times",
                next - 1
            );
            // Blocks with more uses than references would be freed while they are in use.
            if used > counted {
                report.damage(wrong(LAYER, message))
            } else {
                report.warning(wrong(LAYER, message))
            }
        }
        if reported > MAX_REPORTED {
            report.damage(wrong(
                LAYER,
                format!(
                    "{} more runs of blocks have wrong reference counts for {whose}",
                    reported - MAX_REPORTED
                ),
            ));
        }
    }
}

/// Returns a record and its blocks, if they are within the container.
fn reference(
    leaf: &Leaf<'_>,
    blocks: u64,
    report: &mut Report<'_>,
) -> Option<(Range<u64>, ExtentRefRaw)> {
    let Key::Record(key) = leaf.key else {
        return None;
    };
    if key.kind != record_type::EXTENT_REF {
        report.damage(leaf.wrong(format_args!(
            "unexpected record of type {} for the blocks from {} on",
            key.kind, key.id
        )));
    }
    let Ok((raw, _)) = ExtentRefRaw::read_from_prefix(leaf.value) else {
        report.damage(leaf.wrong(format_args!(
            "truncated record of the blocks from {}",
            key.id
        )));
        return None;
    };
    let (start, count) = (key.id.0, raw.blocks());
    let end = start
        .checked_add(count)
        .filter(|&end| end <= blocks && count > 0 && start > 0);
    let known = matches!(raw.kind(), extent_ref_kind::NEW | extent_ref_kind::UPDATE);
    match end {
        Some(end) if known => Some((start..end, raw)),
        _ => {
            let message = format_args!(
                "invalid record of {count} blocks from block {start}: they are not in the \
                 container, or the kind {} is unknown",
                raw.kind()
            );
            report.damage(leaf.wrong(message));
            None
        }
    }
}
