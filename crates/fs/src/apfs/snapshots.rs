//! Snapshots of a volume (§8.9).

use super::btree::{Addressing, Key, Tree, TreeKind};
use super::container::{Container, read_volume};
use super::layout::{
    Oid, OmapRaw, Paddr, RecordKey, SnapshotRaw, VolumeRaw, Xid, record_type, snapshot_flags,
    timestamp,
};
use super::summary::Snapshot;
use super::volume::OpenState;
use bandsaw_core::{Error, Kind, Reason, Result};

const LAYER: &str = "apfs snapshots";

/// A snapshot as recorded in the snapshot metadata tree.
struct SnapshotRecord {
    raw: SnapshotRaw,
    snapshot: Snapshot,
}

impl Container {
    /// Returns the snapshots of a volume, oldest first.
    pub(super) fn snapshots(&self, volume: &VolumeRaw) -> Result<Vec<Snapshot>> {
        let mut all = Vec::new();
        self.each_snapshot(volume, |found| {
            all.push(found.snapshot);
            true
        })?;
        Ok(all)
    }

    /// Returns the state of a volume in the snapshot of this name.
    pub(super) fn snapshot(&self, volume: &VolumeRaw, name: &str) -> Result<OpenState> {
        let mut found = None;
        self.each_snapshot(volume, |snapshot| {
            if snapshot.snapshot.name == name {
                found = Some(snapshot);
            }
            found.is_none()
        })?;
        let Some(SnapshotRecord { raw, snapshot }) = found else {
            let missing = Error::not_found(LAYER, format!("{}@{name}", volume.label()));
            return Err(missing.because(Reason::NoSuchSnapshot));
        };
        let paddr = Oid::from(raw.superblock_oid).into_paddr();
        let old = read_volume(&self.store, paddr, Oid(paddr.0))?;
        let kept = raw.extent_ref_tree_oid.get() != 0
            && raw.flags.get() & snapshot_flags::PENDING_DATALESS == 0;
        Ok(OpenState {
            raw: old,
            omap: Paddr(volume.omap_oid.get()),
            xid: Xid(snapshot.xid),
            dataless: !kept,
        })
    }

    /// Returns the roots of the extent-reference trees of a volume's snapshots that keep contents,
    /// newest first.
    ///
    /// # Errors
    ///
    /// [`Kind::Conflict`] while one of them is being deleted, or if their number differs from the
    /// counts in the volume and its object map.
    pub(super) fn snapshot_references(
        &self,
        volume: &VolumeRaw,
        omap: &OmapRaw,
    ) -> Result<Vec<Oid>> {
        let (mut roots, mut count, mut busy) = (Vec::new(), 0, false);
        self.each_snapshot(volume, |SnapshotRecord { raw, .. }| {
            count += 1;
            busy |= raw.flags.get() & !snapshot_flags::PENDING_DATALESS != 0;
            roots.push(Oid::from(raw.extent_ref_tree_oid));
            true
        })?;
        if busy || count != volume.snapshots.get() || count != u64::from(omap.snapshot_count.get())
        {
            let message = "a snapshot is being created or deleted; let a Mac finish it first";
            return Err(Error::conflict(LAYER, message).named(volume.label()));
        }
        Ok(roots
            .into_iter()
            .rev()
            .filter(|root| root.is_some())
            .collect())
    }

    /// Calls `each` for the snapshots of a volume, oldest first, until it returns false.
    fn each_snapshot(
        &self,
        volume: &VolumeRaw,
        mut each: impl FnMut(SnapshotRecord) -> bool,
    ) -> Result<()> {
        let root = Oid::from(volume.snap_meta_tree_oid);
        if !root.is_some() {
            return Ok(());
        }
        let tree = Tree::open(&self.store, TreeKind::Snapshots, Addressing::Physical, root)?;
        let mut cursor = tree.first()?;
        while let Some(record) = cursor.next()? {
            let Key::Record(RecordKey {
                id,
                kind: record_type::SNAPSHOT,
                ..
            }) = record.key
            else {
                continue;
            };
            let Some((raw, name)) = SnapshotRaw::parse(record.value) else {
                let message = format!("malformed record of snapshot {id}");
                return Err(Error::new(Kind::Corrupt, LAYER, message).named(volume.label()));
            };
            let name = String::from_utf8_lossy(name).into_owned();
            let snapshot = Snapshot {
                name,
                xid: id.0,
                created: timestamp(raw.created),
            };
            if !each(SnapshotRecord {
                raw: *raw,
                snapshot,
            }) {
                break;
            }
        }
        Ok(())
    }
}
