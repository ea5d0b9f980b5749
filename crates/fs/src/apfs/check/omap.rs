//! Object maps: their trees, and whether each of their objects is used (§4).

use zerocopy::FromBytes;

use super::blocks::{BlockUsers, User};
use super::report::{Report, wrong};
use super::tree::{Physical, Totals, TreeWalk};
use crate::apfs::btree::{Key, TreeKind};
use crate::apfs::layout::{
    Oid, OmapRaw, OmapSnapshotRaw, OmapValueRaw, Paddr, Xid, object_type, omap_flags, omap_value,
    storage,
};
use crate::apfs::store::Store;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs object map";

/// A record of an object map.
#[derive(Debug, Clone, Copy)]
pub(super) struct OmapEntry {
    oid: Oid,
    pub(super) xid: Xid,
    pub(super) paddr: Paddr,
    /// Flags, of [`omap_value`].
    pub(super) flags: u32,
    pub(super) used: bool,
}

/// The contents of an object map.
#[derive(Debug)]
pub(super) struct CheckedObjects {
    /// The map as on disk.
    pub(super) raw: OmapRaw,
    /// In the order of the tree: object, transaction.
    entries: Vec<OmapEntry>,
    /// Number of blocks of the map itself, its trees included.
    pub(super) own_blocks: u64,
    /// Transactions of the snapshots whose objects it keeps.
    pub(super) snapshots: Vec<u64>,
}

/// The owner of a map, and the limits of its numbers.
pub(super) struct Scope<'a> {
    pub(super) store: &'a Store,
    pub(super) progress: &'a dyn Progress,
    /// Number of the volume, 0 for the container's own map.
    pub(super) volume: u32,
    pub(super) newest: Xid,
    pub(super) next_oid: u64,
    pub(super) encrypted: bool,
}

impl<'a> Scope<'a> {
    /// Returns the traversal of a tree of the owner.
    pub(super) fn walk(&self, kind: TreeKind) -> TreeWalk<'a> {
        TreeWalk {
            store: self.store,
            kind,
            newest: self.newest,
            progress: self.progress,
        }
    }
}

impl CheckedObjects {
    /// Reads the map in a block and claims the blocks of all its objects. Returns `None` if it
    /// cannot be read, which has been reported.
    pub(super) fn read(
        paddr: Paddr,
        scope: &Scope<'_>,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<Option<Self>> {
        let volume = scope.volume;
        blocks.claim(
            paddr.0..paddr.0.saturating_add(1),
            User::volume(volume, "object map"),
        );
        let Some(block) =
            report.value_or_damage(scope.store.object(LAYER, paddr, object_type::OMAP))?
        else {
            return Ok(None);
        };
        let Ok((raw, _)) = OmapRaw::read_from_prefix(&block) else {
            return Ok(None);
        };
        check_head(&raw, paddr, scope, report);
        let mut entries: Vec<OmapEntry> = Vec::new();
        let user = User::volume(volume, "object map's tree");
        let totals = scope.walk(TreeKind::Omap).run(
            raw.tree_oid.into(),
            &mut Physical { blocks, user },
            report,
            &mut |leaf, report| {
                let Key::Pair(oid, xid) = leaf.key else {
                    return Ok(());
                };
                let Ok((value, _)) = OmapValueRaw::read_from_prefix(leaf.value) else {
                    return Ok(());
                };
                let (paddr, flags) = (Paddr::from(value.paddr), value.flags.get());
                let entry = OmapEntry {
                    oid: Oid(oid),
                    xid: Xid(xid),
                    paddr,
                    flags,
                    used: false,
                };
                if let Some(message) = entry_damage(&entry, value.size.get(), scope) {
                    report.damage(leaf.wrong(format_args!(
                        "object {oid:#x} of transaction {xid} {message}"
                    )));
                }
                entries.push(entry);
                Ok(())
            },
        )?;
        let mut objects = Self {
            raw,
            entries,
            own_blocks: 1 + nodes(totals),
            snapshots: Vec::new(),
        };
        // After the walk, which claims the blocks of the tree meanwhile. Deleted objects have no block.
        for entry in &objects.entries {
            if entry.flags & omap_value::DELETED == 0 {
                let user = User {
                    volume,
                    what: "object",
                    id: entry.oid.0,
                };
                blocks.claim(entry.paddr.0..entry.paddr.0.saturating_add(1), user);
            }
        }
        objects.read_snapshots(paddr, scope, blocks, report)?;
        Ok(Some(objects))
    }

    /// Reads the snapshot tree of the map.
    fn read_snapshots(
        &mut self,
        paddr: Paddr,
        scope: &Scope<'_>,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let root = Oid::from(self.raw.snapshot_tree_oid);
        if root.is_some() {
            let user = User::volume(scope.volume, "object map's tree of snapshots");
            let found = &mut self.snapshots;
            let totals = scope.walk(TreeKind::OmapSnapshots).run(
                root,
                &mut Physical { blocks, user },
                report,
                &mut |leaf, report| {
                    let Key::Pair(xid, _) = leaf.key else {
                        return Ok(());
                    };
                    if OmapSnapshotRaw::read_from_prefix(leaf.value)
                        .is_ok_and(|(value, _)| value.oid.get() != 0)
                    {
                        report.warning(leaf.wrong(format_args!(
                            "the record of snapshot {xid} has an object number, expected 0"
                        )));
                    }
                    found.push(xid);
                    Ok(())
                },
            )?;
            self.own_blocks += nodes(totals);
        }
        let raw = &self.raw;
        let (recorded, newest) = (raw.snapshot_count.get(), raw.most_recent_snapshot.get());
        let found = (
            self.snapshots.len() as u64,
            self.snapshots.last().copied().unwrap_or(0),
        );
        if (u64::from(recorded), newest) != found {
            let message = format!(
                "records {recorded} snapshots, the newest of transaction {newest}, but lists {}, the \
                 newest {}",
                found.0, found.1
            );
            report.damage(scope.store.corrupt(LAYER, Oid(paddr.0), paddr, message));
        }
        Ok(())
    }

    /// Returns the entry of an object as of transaction `limit`, and marks it as used; `used` of
    /// the returned entry is the state before.
    pub(super) fn use_object(&mut self, oid: Oid, limit: Xid) -> Result<OmapEntry> {
        let (revert_min, revert_max) = (
            self.raw.pending_revert_min.get(),
            self.raw.pending_revert_max.get(),
        );
        let reverted = |xid: u64| revert_min != 0 && (revert_min..=revert_max).contains(&xid);
        let end = self
            .entries
            .partition_point(|entry| (entry.oid, entry.xid) <= (oid, limit));
        let before = self.entries.get_mut(..end).unwrap_or_default();
        let found = before
            .iter_mut()
            .rev()
            .take_while(|entry| entry.oid == oid)
            .find(|entry| !reverted(entry.xid.0));
        match found {
            Some(entry) if entry.flags & omap_value::DELETED == 0 => {
                let before = *entry;
                entry.used = true;
                Ok(before)
            }
            _ => {
                let message = format!("has no object {oid:#x} as of transaction {limit}");
                Err(Error::new(Kind::Corrupt, LAYER, message)
                    .named(format!("object map in block {}", self.raw.object.oid)))
            }
        }
    }

    /// Returns the number of objects that exist, used or not: each has a block.
    pub(super) fn blocks(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.flags & omap_value::DELETED == 0)
            .count() as u64
    }

    /// Reports unused objects. `known` is true if everything that could use an object has been
    /// read.
    pub(super) fn report_unused(&self, volume: u32, known: bool, report: &mut Report<'_>) {
        let mut unused = self
            .entries
            .iter()
            .filter(|entry| !entry.used && entry.flags & omap_value::DELETED == 0);
        let Some(first) = unused.next() else { return };
        let message = format!(
            "{} objects {} are not used, the first is {:#x} of transaction {} in block {}",
            unused.count() + 1,
            if volume == 0 {
                "of the container".to_owned()
            } else {
                format!("of volume {volume}")
            },
            first.oid,
            first.xid,
            first.paddr
        );
        if known {
            report.warning(wrong(LAYER, message))
        } else {
            report.note(wrong(LAYER, message + " that is known"))
        }
    }
}

fn nodes(totals: Option<Totals>) -> u64 {
    totals.map_or(0, |totals| totals.nodes)
}

fn check_head(raw: &OmapRaw, paddr: Paddr, scope: &Scope<'_>, report: &mut Report<'_>) {
    let mut wrong =
        |message: String| report.warning(scope.store.corrupt(LAYER, Oid(paddr.0), paddr, message));
    let manual = raw.flags.get() & omap_flags::MANUALLY_MANAGED != 0;
    if manual != (scope.volume == 0) {
        wrong(format!(
            "its flags are {:#x}: flag 1 (manually managed) belongs in the object map of the \
             container only",
            raw.flags
        ));
    }
    let xid = raw.object.xid.get();
    if xid == 0 || xid > scope.newest.0 {
        wrong(format!(
            "the transaction number {xid} is too large: expected at most {}",
            scope.newest
        ));
    }
    for (what, kind) in [
        ("tree", raw.tree_type.get()),
        ("tree of snapshots", raw.snapshot_tree_type.get()),
    ] {
        let expected = object_type::BTREE_ROOT | storage::PHYSICAL;
        if kind != expected {
            wrong(format!(
                "its {what} has type {kind:#x}, expected {expected:#x}"
            ));
        }
    }
    if scope.volume == 0 && raw.snapshot_tree_oid.get() != 0 {
        wrong(
            "the object map of the container has snapshots, which only that of a volume can have"
                .to_owned(),
        );
    }
}

/// Returns a message if a record is invalid.
fn entry_damage(entry: &OmapEntry, size: u32, scope: &Scope<'_>) -> Option<String> {
    let (oid, xid, flags) = (entry.oid, entry.xid.0, entry.flags);
    if oid < Oid::FIRST_USER || oid.0 >= scope.next_oid {
        return Some(format!(
            "object number is not in the range {:#x} to {:#x}",
            Oid::FIRST_USER,
            scope.next_oid.saturating_sub(1)
        ));
    }
    if xid == 0 || xid > scope.newest.0 {
        return Some(format!(
            "its transaction is not in the range 1 to {}, the newest",
            scope.newest
        ));
    }
    // The rest of the record of a deleted object is not used.
    if flags & omap_value::DELETED != 0 {
        return None;
    }
    if entry.paddr.0 == 0 || entry.paddr.0 >= scope.store.blocks {
        return Some(format!(
            "is in block {}, but the container has {} blocks",
            entry.paddr, scope.store.blocks
        ));
    }
    if size != scope.store.block_size.get() {
        return Some(format!(
            "has {size} bytes, expected {}",
            scope.store.block_size.get()
        ));
    }
    if flags & omap_value::ENCRYPTED != 0 && !scope.encrypted {
        return Some("has the encryption flag, but its volume is not encrypted".to_owned());
    }
    None
}
