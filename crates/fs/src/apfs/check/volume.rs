//! A volume: its superblock, its trees, its snapshots, and its counts.

use std::sync::Arc;

use super::Checker;
use super::blocks::BlockUsers;
use super::files::{Files, Rules};
use super::omap::{CheckedObjects, Scope};
use super::paths;
use super::references::References;
use super::report::Report;
use super::snapshots::{self, SnapshotRecord};
use super::tree::{Nodes, Physical, TreeWalk, Virtual};
use crate::apfs::btree::{Key, TreeKind};
use crate::apfs::check::blocks::User;
use crate::apfs::cipher::VolumeCipher;
use crate::apfs::layout::{
    Counts, FextValueRaw, FileExtentRaw, FileId, IntegrityRaw, MetaCryptoRaw, Oid, Paddr,
    VOLUME_MAGIC, VolumeRaw, Xid, object_type, omap_flags, storage, until_nul, volume_features,
    volume_incompatible,
};
use crate::apfs::names::NameRules;
use crate::apfs::store::Expected;
use crate::apfs::volume::{Apfs, OpenState, check_features};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

const LAYER: &str = "apfs volume";

/// A volume that is being checked.
pub(super) struct VolumeCheck<'a, 'b> {
    pub(super) checker: &'a Checker<'b>,
    pub(super) number: u32,
    pub(super) raw: VolumeRaw,
    pub(super) paddr: Paddr,
}

/// A state of a volume: the current one, or a snapshot.
struct SnapshotState<'s> {
    raw: &'s VolumeRaw,
    xid: Xid,
    /// Number of its extent-reference tree; `None` if contents were not kept.
    references: Option<usize>,
    whose: String,
}

/// The parts of a volume that the check of a state needs.
struct Known<'a> {
    references: &'a References,
    /// `None` if the volume is not encrypted, or cannot be unlocked.
    cipher: Option<&'a Arc<VolumeCipher>>,
    /// True if the volume is not encrypted, or is unlocked.
    is_readable: bool,
}

/// Reads the superblock of a volume; `None` if it cannot be read, which has been reported.
pub(super) fn superblock(
    checker: &Checker<'_>,
    oid: Oid,
    objects: &mut CheckedObjects,
    report: &mut Report<'_>,
) -> Result<Option<(VolumeRaw, Paddr)>> {
    let store = &checker.container.store;
    let Some(entry) = report.value_or_damage(objects.use_object(oid, checker.newest()))? else {
        return Ok(None);
    };
    let Some(block) = report.value_or_damage(store.block(LAYER, oid, entry.paddr))? else {
        return Ok(None);
    };
    let expected = Expected {
        oid,
        kind: object_type::VOLUME,
        subtype: 0,
    };
    let Some(header) =
        report.value_or_damage(store.check(LAYER, &block, entry.paddr, &expected))?
    else {
        return Ok(None);
    };
    let wrong = |message: String| store.corrupt(LAYER, oid, entry.paddr, message);
    if header.xid.get() != entry.xid.0 {
        report.damage(wrong(format!(
            "the object map records transaction {} for the superblock, but it has {}",
            entry.xid, header.xid
        )));
    }
    if header.kind.get() & storage::MASK != storage::VIRTUAL || header.has_odd_flags(false) {
        report.warning(wrong(format!(
            "expected a virtual object, found type {:#x}",
            header.kind
        )));
    }
    let Ok((raw, _)) = VolumeRaw::read_from_prefix(&block) else {
        return Ok(None);
    };
    if raw.magic != VOLUME_MAGIC {
        report.damage(wrong("expected a volume superblock (APSB)".to_owned()));
        return Ok(None);
    }
    Ok(Some((raw, entry.paddr)))
}

impl VolumeCheck<'_, '_> {
    /// Checks the volume. Returns the reason if its files cannot be checked.
    pub(super) fn run(
        &self,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<Option<Error>> {
        // Blocks of parts that are not read belong to nobody: from here on `incomplete` keeps them from being
        // reported as lost.
        self.superblock(report);
        if let Err(error) = self.check_supported() {
            blocks.incomplete = true;
            return Ok(Some(error));
        }
        let scope = self.scope();
        let read = CheckedObjects::read(
            Oid::from(self.raw.omap_oid).into_paddr(),
            &scope,
            blocks,
            report,
        )?;
        let Some(mut objects) = read else {
            blocks.incomplete = true;
            return Ok(None);
        };
        // Between two keys, only the Mac that changes them knows which blocks have which.
        let changing = omap_flags::ENCRYPTING | omap_flags::DECRYPTING | omap_flags::KEY_ROLLING;
        if objects.raw.flags.get() & changing != 0 {
            blocks.incomplete = true;
            return Ok(Some(
                self.unsupported("encryption is in progress; files were not checked"),
            ));
        }
        let (snapshots, mut own) = snapshots::read(&self.raw, &objects, &scope, blocks, report)?;
        // The trees of references come before the files, which are compared with them, and in the order
        // of their snapshots: each has the extents that came since the one before.
        let mut references = References::default();
        let mut kept = Vec::new();
        for snapshot in &snapshots {
            let has_tree = snapshot.references.is_some();
            if has_tree {
                references.add_tree(snapshot.references, &scope, blocks, report)?;
            }
            kept.push(
                snapshot
                    .has_contents
                    .then(|| references.trees().saturating_sub(1))
                    .filter(|_| has_tree),
            );
        }
        let own_tree = self.raw.extent_ref_tree_oid.into();
        references.add_tree(own_tree, &scope, blocks, report)?;
        self.others(&mut objects, report)?;
        // A volume without its key is checked as far as it is not encrypted; damaged keys are damage.
        let (cipher, unseen) = match self.checker.cipher(&self.raw) {
            Ok(cipher) => (cipher, None),
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => return Err(error),
            Err(error) if error.kind() == Kind::Corrupt => {
                report.damage(error);
                (None, Some(None))
            }
            Err(error) => (None, Some(Some(error))),
        };
        let known = Known {
            references: &references,
            cipher: cipher.as_ref(),
            is_readable: unseen.is_none(),
        };
        if known.is_readable {
            let live = SnapshotState {
                raw: &self.raw,
                xid: scope.newest,
                references: Some(references.trees().saturating_sub(1)),
                whose: format!("the files of volume {}", self.number),
            };
            own += self.state(&live, &known, &mut objects, blocks, report)?;
        }
        for (snapshot, kept) in snapshots.iter().zip(kept) {
            own += self.snapshot(snapshot, kept, &known, &mut objects, blocks, report)?;
        }
        if known.is_readable {
            objects.report_unused(
                self.number,
                !blocks.incomplete && !self.has_unknown_trees(),
                report,
            );
        }
        // The sum of all parts, so it is known only now.
        let counted =
            objects.own_blocks + objects.blocks() + references.nodes + references.owned + own;
        let recorded = self.raw.allocated_blocks.get();
        if recorded != counted && !blocks.incomplete {
            report.warning(self.wrong(format!(
                "records {recorded} blocks of its own, but has {counted}"
            )));
        }
        self.check_next(references.highest, report);
        Ok(unseen.flatten())
    }

    fn scope(&self) -> Scope<'_> {
        let container = &self.checker.container;
        Scope {
            store: &container.store,
            progress: self.checker.progress,
            volume: self.number,
            newest: self.checker.newest(),
            next_oid: container.superblock.next_oid.get(),
            encrypted: self.raw.is_encrypted(),
        }
    }

    fn wrong(&self, message: impl std::fmt::Display) -> Error {
        self.checker
            .container
            .store
            .corrupt(LAYER, self.raw.object.oid.into(), self.paddr, message)
    }

    fn unsupported(&self, message: &'static str) -> Error {
        Error::unsupported(LAYER, message).named(self.raw.label())
    }

    /// Fails if the volume has unsupported features, or is in a transition that cannot be checked.
    fn check_supported(&self) -> Result<()> {
        check_features(&self.raw)?;
        if self.raw.encryption_rolling_oid.get() != 0 {
            let message = "not checked: encryption is in progress; let a Mac finish it first";
            return Err(self.unsupported(message));
        }
        if self.raw.revert_to_xid.get() != 0 {
            let message =
                "not checked: a revert to a snapshot is in progress; let a Mac finish it first";
            return Err(self.unsupported(message));
        }
        Ok(())
    }

    /// Returns true if the volume has trees of later versions of macOS, whose objects are in its
    /// object map.
    fn has_unknown_trees(&self) -> bool {
        let raw = &self.raw;
        [
            raw.document_tree_oid,
            raw.previous_document_tree_oid,
            raw.secondary_root_oid,
            raw.clone_group_tree_oid,
            raw.reserved_oid,
        ]
        .iter()
        .any(|oid| oid.get() != 0)
    }

    /// Checks the fields of the superblock.
    fn superblock(&self, report: &mut Report<'_>) {
        let raw = &self.raw;
        let slot = self
            .checker
            .container
            .superblock
            .volume_oids
            .iter()
            .position(|oid| *oid == raw.object.oid);
        let mut warn = |message: String| report.warning(self.wrong(message));
        if slot.is_some_and(|slot| slot != raw.index.get() as usize) {
            warn(format!(
                "records slot {} of the container, but is in slot {}",
                raw.index,
                slot.unwrap_or(0)
            ));
        }
        if until_nul(&raw.name).is_empty()
            || str::from_utf8(until_nul(&raw.name)).is_err()
            || !raw.name.contains(&0)
        {
            warn("has no name, or one that is not UTF-8".to_owned());
        }
        if raw.total_blocks_freed.get() > raw.total_blocks_allocated.get() {
            warn(format!(
                "records {} freed blocks, more than the {} that were allocated",
                raw.total_blocks_freed, raw.total_blocks_allocated
            ));
        }
        // Some volumes have an all-zero crypto state.
        let crypto = &raw.meta_crypto;
        let known = (
            crypto.major_version.get(),
            crypto.minor_version.get(),
            crypto.flags.get(),
            crypto.unused.get(),
        ) == (5, 0, 0, 0);
        if !known && *crypto != MetaCryptoRaw::default() {
            warn(format!(
                "has version {}.{} of encrypted metadata, expected 5.0",
                crypto.major_version, crypto.minor_version
            ));
        }
        let both =
            volume_incompatible::CASE_INSENSITIVE | volume_incompatible::NORMALIZATION_INSENSITIVE;
        if raw.incompatible_features.get() & both == both {
            warn(
                "has contradictory flags: names ignore case by one, and respect it by another"
                    .to_owned(),
            );
        }
        for (found, expected, what) in [
            (
                raw.extent_ref_tree_type,
                object_type::BTREE_ROOT | storage::PHYSICAL,
                "extent references",
            ),
            (
                raw.snap_meta_tree_type,
                object_type::BTREE_ROOT | storage::PHYSICAL,
                "snapshots",
            ),
        ] {
            if found.get() != expected {
                warn(format!(
                    "the tree of {what} has type {found:#x}, expected {expected:#x}"
                ));
            }
        }
        if raw.root_tree_type.get() & object_type::MASK != object_type::BTREE_ROOT {
            warn(format!(
                "the tree of files has type {:#x}, expected that of a root node",
                raw.root_tree_type
            ));
        }
        let xids: Vec<_> = raw
            .modified_by
            .iter()
            .map(|entry| entry.last_xid.get())
            .collect();
        if !xids.is_sorted_by(|a, b| a > b || (*a, *b) == (0, 0))
            || xids[0] > self.checker.newest().0
        {
            warn("the list of modifying programs is not in order from newest to oldest".to_owned());
        }
    }

    /// Checks the objects beside the trees.
    fn others(&self, objects: &mut CheckedObjects, report: &mut Report<'_>) -> Result<()> {
        let (raw, xid) = (&self.raw, self.checker.newest());
        let container = &self.checker.container;
        for (oid, kind) in [
            (raw.integrity_oid, object_type::INTEGRITY),
            (raw.snap_meta_ext_oid, object_type::SNAP_META_EXT),
        ] {
            let oid = Oid::from(oid);
            if !oid.is_some() {
                continue;
            }
            let Some(entry) = report.value_or_damage(objects.use_object(oid, xid))? else {
                continue;
            };
            let Some(block) =
                report.value_or_damage(container.store.block(LAYER, oid, entry.paddr))?
            else {
                continue;
            };
            report.value_or_damage(container.store.check(
                LAYER,
                &block,
                entry.paddr,
                &Expected {
                    oid,
                    kind,
                    subtype: 0,
                },
            ))?;
            if kind == object_type::INTEGRITY
                && IntegrityRaw::read_from_prefix(&block)
                    .is_ok_and(|(integrity, _)| integrity.broken_xid.get() != 0)
            {
                report.note(
                    self.wrong("the seal is broken: the volume was changed after it was sealed"),
                );
            }
        }
        if raw.has(volume_incompatible::SEALED) != (raw.integrity_oid.get() != 0) {
            report.warning(self.wrong(
                "has either the flag of a sealed volume or the data of a seal, expected both or \
                 neither",
            ));
        }
        Ok(())
    }

    /// Checks the files of a state. Returns the number of blocks of the volume that only this walk
    /// finds.
    fn state(
        &self,
        state: &SnapshotState<'_>,
        known: &Known<'_>,
        objects: &mut CheckedObjects,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<u64> {
        let scope = self.scope();
        let names = NameRules::of(state.raw);
        let sealed =
            state.raw.has(volume_incompatible::SEALED) && state.raw.fext_tree_oid.get() != 0;
        let rules = Rules {
            names,
            encrypted: self.raw.is_encrypted(),
            sealed,
            early: !names.hashed()
                || state.raw.features.get() & volume_features::HARD_LINK_RECORDS == 0,
            block_size: scope.store.block_size,
            blocks: scope.store.blocks,
        };
        let first = report.listed();
        let mut files = Files::new(rules);
        let kind = TreeKind::Files {
            hashed: names.hashed(),
        };
        let walk = TreeWalk {
            newest: state.xid,
            ..scope.walk(kind)
        };
        let physical = state.raw.root_tree_type.get() & storage::MASK == storage::PHYSICAL;
        let mut own = 0;
        scope.progress.stage(&format!("check {}", state.whose), 0);
        let root = state.raw.root_tree_oid.into();
        let mut each =
            |leaf: &super::tree::Leaf<'_>, report: &mut Report<'_>| files.add(leaf, report);
        let totals = if physical {
            let user = User::volume(self.number, "tree of files");
            walk.run(
                root,
                &mut Physical { blocks, user } as &mut dyn Nodes,
                report,
                &mut each,
            )?
        } else {
            walk.run(
                root,
                &mut Virtual {
                    objects,
                    limit: state.xid,
                    cipher: known.cipher.map(|cipher| &**cipher),
                },
                report,
                &mut each,
            )?
        };
        if physical {
            own += totals.map_or(0, |totals| totals.nodes);
        }
        if totals.is_none() {
            blocks.incomplete = true;
            return Ok(own);
        }
        if sealed {
            own += self.sealed_extents(state, &mut files, blocks, report)?;
        }
        let counts = files.finish(report);
        if report.has_subjects(first) {
            self.name_files(state, known.cipher, first, report);
        }
        self.check_counts(state, &counts, files.highest, report);
        if let Some(tree) = state.references {
            known
                .references
                .compare(tree, &files.extents, &state.whose, report);
        }
        Ok(own)
    }

    /// Names the files that the findings of a state, from number `first` on, are about.
    fn name_files(
        &self,
        state: &SnapshotState<'_>,
        cipher: Option<&Arc<VolumeCipher>>,
        first: usize,
        report: &mut Report<'_>,
    ) {
        let state = OpenState {
            raw: *state.raw,
            omap: Oid::from(self.raw.omap_oid).into_paddr(),
            xid: state.xid,
            dataless: false,
        };
        // Damage that keeps the volume from being opened was found before.
        if let Ok(volume) = Apfs::open(self.checker.container, &state, cipher.cloned()) {
            paths::resolve(&volume, first, report);
        }
    }

    /// Adds the extents of a sealed volume, which has them in a separate tree. Returns the number
    /// of its nodes.
    fn sealed_extents(
        &self,
        state: &SnapshotState<'_>,
        files: &mut Files,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<u64> {
        let scope = self.scope();
        let walk = scope.walk(TreeKind::Fext);
        let user = User::volume(self.number, "tree of sealed extents");
        let root = state.raw.fext_tree_oid.into();
        let totals = walk.run(
            root,
            &mut Physical { blocks, user },
            report,
            &mut |leaf, report| {
                let Key::Pair(id, start) = leaf.key else {
                    return Ok(());
                };
                if let Ok((
                    FextValueRaw {
                        len_and_flags,
                        paddr,
                    },
                    _,
                )) = FextValueRaw::read_from_prefix(leaf.value)
                {
                    let extent = FileExtentRaw {
                        len_and_flags,
                        paddr,
                        crypto_id: 0.into(),
                    };
                    files.add_extent(id, start, &extent, leaf, report);
                }
                Ok(())
            },
        )?;
        Ok(totals.map_or(0, |totals| totals.nodes))
    }

    fn check_counts(
        &self,
        state: &SnapshotState<'_>,
        found: &Counts,
        highest: u64,
        report: &mut Report<'_>,
    ) {
        let raw = state.raw;
        for (what, recorded, found) in [
            ("files", raw.files.get(), found.files),
            ("folders", raw.folders.get(), found.folders),
            ("symbolic links", raw.symlinks.get(), found.symlinks),
            ("other objects", raw.other_objects.get(), found.others),
        ] {
            if recorded != found {
                report.warning(self.wrong(format!(
                    "the volume counts {} {what}, but has {} {found}",
                    recorded, state.whose
                )));
            }
        }
        let next = raw.next_file_id.get();
        if highest >= next {
            let message = format!(
                "the next object number is recorded as {next:#x}, but {} use {highest:#x}",
                state.whose
            );
            report.damage(self.wrong(message));
        }
    }

    fn check_next(&self, highest: u64, report: &mut Report<'_>) {
        let next = self.raw.next_file_id.get();
        if highest >= next || next < FileId::FIRST_USER.0 {
            report.damage(self.wrong(format!(
                "the next object number is recorded as {next:#x}, but {highest:#x} is in use"
            )));
        }
    }

    /// Checks a snapshot: its superblock, and its files if they can be read.
    fn snapshot(
        &self,
        snapshot: &SnapshotRecord,
        references: Option<usize>,
        known: &Known<'_>,
        objects: &mut CheckedObjects,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<u64> {
        let store = &self.checker.container.store;
        let Some(raw) = snapshots::superblock(snapshot, store, self.number, blocks, report)? else {
            return Ok(0);
        };
        // Located through the live superblock: the snapshot's superblock was copied before the
        // number was recorded in it.
        if self.raw.snap_meta_ext_oid.get() != 0 {
            objects
                .use_object(self.raw.snap_meta_ext_oid.into(), Xid(snapshot.xid))
                .ok();
        }
        if raw.integrity_oid.get() != 0 {
            report
                .value_or_damage(objects.use_object(raw.integrity_oid.into(), Xid(snapshot.xid)))?;
        }
        if !known.is_readable {
            return Ok(0);
        }
        let whose = format!(
            "the files of snapshot {} of volume {}",
            snapshot.name, self.number
        );
        let state = SnapshotState {
            raw: &raw,
            xid: Xid(snapshot.xid),
            references,
            whose,
        };
        self.state(&state, known, objects, blocks, report)
    }
}

impl Checker<'_> {
    /// Returns the cipher of a volume, `None` if it is not encrypted.
    fn cipher(&self, raw: &VolumeRaw) -> Result<Option<Arc<VolumeCipher>>> {
        self.container.cipher(raw, self.key)
    }
}
