//! The snapshot records of a volume, and the superblocks of snapshots (§8.9).

use std::collections::BTreeMap;

use super::blocks::{BlockUsers, User};
use super::omap::{CheckedObjects, Scope};
use super::report::{Report, wrong};
use super::tree::{Leaf, Physical};
use crate::apfs::btree::{Key, TreeKind};
use crate::apfs::container::read_volume;
use crate::apfs::layout::{
    KeyRest, Oid, SNAPSHOT_NAMES_ID, SnapshotNameRaw, SnapshotRaw, VolumeRaw, Xid, record_type,
    snapshot_flags,
};
use crate::apfs::store::Store;
use bandsaw_core::Result;
use zerocopy::FromBytes;

const LAYER: &str = "apfs snapshots";

/// A snapshot as recorded in the snapshot metadata tree.
#[derive(Debug, Clone)]
pub(super) struct SnapshotRecord {
    pub(super) xid: u64,
    pub(super) name: String,
    pub(super) references: Oid,
    superblock: Oid,
    /// True if the snapshot keeps the contents of files.
    pub(super) has_contents: bool,
}

/// The records of a tree of snapshots, in its order. A name may come before or after its snapshot.
#[derive(Default)]
struct SnapshotRecords {
    snapshots: Vec<SnapshotRecord>,
    names: BTreeMap<u64, String>,
}

/// Reads the snapshots of a volume, oldest first; returns them and the number of nodes of their
/// tree.
pub(super) fn read(
    raw: &VolumeRaw,
    objects: &CheckedObjects,
    scope: &Scope<'_>,
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Result<(Vec<SnapshotRecord>, u64)> {
    let volume = scope.volume;
    let user = User::volume(volume, "tree of snapshots");
    let mut records = SnapshotRecords::default();
    let totals = scope.walk(TreeKind::Snapshots).run(
        raw.snap_meta_tree_oid.into(),
        &mut Physical { blocks, user },
        report,
        &mut |leaf, report| {
            records.add(leaf, scope.newest, report);
            Ok(())
        },
    )?;
    let found = records.named(report);
    let recorded = raw.snapshots.get();
    if recorded != found.len() as u64 {
        report.warning(wrong(
            LAYER,
            format!(
                "volume {volume} records {recorded} snapshots, but has {}",
                found.len()
            ),
        ));
    }
    // The object map resolves objects of snapshots by its own list, so a difference makes files unreadable.
    if !found
        .iter()
        .map(|snapshot| snapshot.xid)
        .eq(objects.snapshots.iter().copied())
    {
        let message =
            format!("the object map of volume {volume} has other snapshots than the volume");
        report.damage(wrong(LAYER, message));
    }
    Ok((found, totals.map_or(0, |totals| totals.nodes)))
}

impl SnapshotRecords {
    /// Adds a record of the tree. `newest` is the last transaction of the container.
    fn add(&mut self, leaf: &Leaf<'_>, newest: Xid, report: &mut Report<'_>) {
        let Key::Record(key) = leaf.key else {
            return;
        };
        match (key.kind, key.rest) {
            (record_type::SNAPSHOT, _) => {
                let Some((raw, name)) = SnapshotRaw::parse(leaf.value) else {
                    return report.damage(
                        leaf.wrong(format_args!("malformed record of snapshot {}", key.id)),
                    );
                };
                if key.id.0 == 0 || key.id.0 > newest.0 || raw.file_id.get() == 0 {
                    report.damage(leaf.wrong(format_args!(
                        "the record of snapshot {} has an invalid transaction number or no object \
                         number",
                        key.id
                    )));
                }
                let references = Oid::from(raw.extent_ref_tree_oid);
                self.snapshots.push(SnapshotRecord {
                    xid: key.id.0,
                    name: String::from_utf8_lossy(name).into_owned(),
                    references,
                    superblock: raw.superblock_oid.into(),
                    has_contents: references.is_some()
                        && raw.flags.get() & snapshot_flags::PENDING_DATALESS == 0,
                });
            }
            (record_type::SNAPSHOT_NAME, KeyRest::Name(name)) if key.id == SNAPSHOT_NAMES_ID => {
                let xid = SnapshotNameRaw::read_from_prefix(leaf.value)
                    .map_or(0, |(value, _)| value.xid.get());
                let name = String::from_utf8_lossy(name).into_owned();
                if self.names.insert(xid, name).is_some() {
                    report.damage(leaf.wrong(format_args!("two names refer to snapshot {xid}")));
                }
            }
            (kind, _) => {
                report.damage(leaf.wrong(format_args!("unexpected record of type {kind}")))
            }
        }
    }

    /// Returns the snapshots, oldest first, after a comparison with their names.
    fn named(self, report: &mut Report<'_>) -> Vec<SnapshotRecord> {
        let Self {
            mut snapshots,
            mut names,
        } = self;
        // Damaged trees may have another order.
        snapshots.sort_unstable_by_key(|snapshot| snapshot.xid);
        for snapshot in &snapshots {
            if names.remove(&snapshot.xid).as_ref() != Some(&snapshot.name) {
                let message = format!(
                    "snapshot {} of transaction {} is not found by its name",
                    snapshot.name, snapshot.xid
                );
                report.damage(wrong(LAYER, message));
            }
        }
        if let Some((xid, name)) = names.into_iter().next() {
            report.damage(wrong(
                LAYER,
                format!("the name {name} points to snapshot {xid}, which does not exist"),
            ));
        }
        snapshots
    }
}

/// Reads the superblock of a volume as of a snapshot; `None` if it cannot be read, which has been
/// reported.
pub(super) fn superblock(
    snapshot: &SnapshotRecord,
    store: &Store,
    volume: u32,
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Result<Option<VolumeRaw>> {
    let paddr = snapshot.superblock.into_paddr();
    blocks.claim(
        paddr.0..paddr.0.saturating_add(1),
        User {
            volume,
            what: "snapshot",
            id: snapshot.xid,
        },
    );
    let Some(raw) = report.value_or_damage(read_volume(store, paddr, snapshot.superblock))? else {
        return Ok(None);
    };
    let own = [
        raw.omap_oid,
        raw.extent_ref_tree_oid,
        raw.snap_meta_tree_oid,
    ];
    if own.iter().any(|oid| oid.get() != 0) {
        let message = "the superblock of a snapshot refers to trees that only a volume has";
        report.warning(store.corrupt(LAYER, snapshot.superblock, paddr, message));
    }
    if raw.object.xid.get() > snapshot.xid {
        let message = format!(
            "the superblock of the snapshot has transaction {}, but the snapshot is of the older \
             transaction {}",
            raw.object.xid, snapshot.xid
        );
        report.damage(store.corrupt(LAYER, snapshot.superblock, paddr, message));
    }
    Ok(Some(raw))
}
