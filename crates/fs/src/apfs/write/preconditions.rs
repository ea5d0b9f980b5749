//! Conditions for modifying a volume: everything that a change must keep consistent is supported.

use super::LAYER;
use super::ephemeral::Ephemeral;
use crate::apfs::checkpoint::descriptor_area;
use crate::apfs::container::Container;
use crate::apfs::layout::{
    ContainerRaw, Oid, OmapRaw, Paddr, VolumeRaw, omap_flags, volume_features, volume_flags,
    volume_incompatible,
};
use crate::apfs::omap::Omap;
use crate::apfs::store::Store;
use bandsaw_core::{Error, Result};

/// First number that no counter may reach: those of files have 60 bits, and the others no more in practice.
const NUMBERS: u64 = 1 << 60;

/// Volume features that are supported for writing.
const FEATURES: u64 = volume_features::DEFRAG_PRERELEASE
    | volume_features::HARD_LINK_RECORDS
    | volume_features::DEFRAG
    | volume_features::STRICT_ACCESS_TIME
    | volume_features::VOLUME_GROUP;
const INCOMPATIBLE: u64 = volume_incompatible::CASE_INSENSITIVE
    | volume_incompatible::DATALESS_SNAPSHOTS
    | volume_incompatible::ENCRYPTION_ROLLED
    | volume_incompatible::NORMALIZATION_INSENSITIVE
    | volume_incompatible::INCOMPLETE_RESTORE
    | volume_incompatible::EXTENT_PREALLOCATION;

/// Fails if the open checkpoint of an intact container is not the newest.
pub(super) fn check_newest(container: &Container) -> Result<()> {
    let now = container.checkpoint();
    match container.problems().is_empty() && container.checkpoints().first() != Some(&now) {
        true => Err(Error::conflict(
            LAYER,
            format!("read-only: checkpoint {now} is not the newest"),
        )),
        false => Ok(()),
    }
}

/// Fails, with the reason, if a container cannot be modified.
pub(super) fn check_container(container: &Container, ephemeral: &Ephemeral) -> Result<()> {
    ephemeral.check_idle()?;
    check_features(&[(
        container.superblock.readonly_compatible_features.get(),
        0,
        "the container's",
    )])?;
    let (store, superblock) = (&container.store, &container.superblock);
    let desc = descriptor_area(superblock, store.blocks)?;
    let last = u64::from(superblock.desc_index.get())
        + u64::from(superblock.desc_len.get()).saturating_sub(1);
    let place = Paddr(desc.start + last % (desc.end - desc.start));
    check_rest(store, place, size_of::<ContainerRaw>(), "the container's")?;
    if !container.problems().is_empty()
        || container.checkpoints().first() != Some(&container.checkpoint())
    {
        return Err(Error::conflict(
            LAYER,
            "only the newest checkpoint of an undamaged container can be changed",
        ));
    }
    let (xid, next) = (container.checkpoint(), superblock.next_xid.get());
    if next <= xid {
        return Err(Error::conflict(
            LAYER,
            format!("the next transaction is {next}, but the newest checkpoint is {xid}"),
        ));
    }
    check_numbers(&[(next, "transaction"), (superblock.next_oid.get(), "object")])?;
    if let Some(oid) = container.unlisted_volumes()?.first() {
        return Err(Error::conflict(
            LAYER,
            format!("the superblock does not list volume {oid:#x} of the object map"),
        ));
    }
    Ok(())
}

/// Fails if one of these counters, each with what it counts, has no room for more.
fn check_numbers(counters: &[(u64, &str)]) -> Result<()> {
    match counters.iter().find(|(next, _)| *next >= NUMBERS) {
        Some((next, what)) => Err(Error::conflict(
            LAYER,
            format!("the next number of a {what} is {next:#x}, too large to be right"),
        )),
        None => Ok(()),
    }
}

fn refused(message: impl std::fmt::Display) -> Result<()> {
    Err(Error::unsupported(LAYER, format!("read-only: {message}")))
}

/// Fails if some features are unknown. Each element has the features found, those known, and their
/// owner.
fn check_features(features: &[(u64, u64, &str)]) -> Result<()> {
    match features
        .iter()
        .find(|(found, known, _)| found & !known != 0)
    {
        Some((found, known, whose)) => refused(format_args!(
            "{whose} features {:#x} are unknown",
            found & !known
        )),
        None => Ok(()),
    }
}

/// Fails, with the reason, if a volume cannot be modified.
pub(super) fn check_writable(
    container: &Container,
    raw: &VolumeRaw,
    ephemeral: &Ephemeral,
) -> Result<()> {
    check_container(container, ephemeral)?;
    let known = [
        (raw.features.get(), FEATURES, "the volume's"),
        (raw.readonly_compatible_features.get(), 0, "the volume's"),
        (
            raw.incompatible_features.get(),
            INCOMPATIBLE,
            "the volume's",
        ),
    ];
    if raw.has(volume_incompatible::SEALED) || raw.integrity_oid.get() != 0 {
        return refused("it is sealed");
    }
    check_features(&known)?;
    check_numbers(&[(raw.next_file_id.get(), "file")])?;
    if raw.features.get() & volume_features::HARD_LINK_RECORDS == 0 || !raw.hashes_names() {
        return refused("it was made by an early version of APFS");
    }
    if raw.flags.get()
        & !(volume_flags::UNENCRYPTED | volume_flags::ONE_KEY | volume_flags::PREVIOUSLY_SEALED)
        != 0
    {
        return refused(format_args!("its flags {:#x} are unknown", raw.flags.get()));
    }
    for (oid, what) in [
        (raw.revert_to_xid, "it is being reverted to a snapshot"),
        (raw.root_to_xid, "its root is a snapshot"),
        (raw.encryption_rolling_oid, "encryption is in progress"),
        (raw.secondary_root_oid, "it has a second tree of files"),
        (raw.clone_group_tree_oid, "it has groups of clones"),
    ] {
        if oid.get() != 0 {
            return refused(what);
        }
    }
    let (_, place) = container.volume_superblock(raw.object.oid.into())?;
    check_rest(
        &container.store,
        place,
        size_of::<VolumeRaw>(),
        "the volume's",
    )?;
    let omap = Omap::open(&container.store, Oid::from(raw.omap_oid).into_paddr())?;
    check_omap(&omap.raw)
}

/// Fails if a superblock has data after its known part, which would be lost.
fn check_rest(store: &Store, place: Paddr, known: usize, whose: &str) -> Result<()> {
    match store
        .read(LAYER, place, 1)?
        .iter()
        .skip(known)
        .any(|byte| *byte != 0)
    {
        true => refused(format_args!("{whose} superblock has unknown fields")),
        false => Ok(()),
    }
}

fn check_omap(raw: &OmapRaw) -> Result<()> {
    let changing = raw.flags.get() & !omap_flags::MANUALLY_MANAGED;
    if changing != 0 || raw.pending_revert_min.get() != 0 {
        return Err(Error::unsupported(
            LAYER,
            "read-only: its object map is being changed",
        ));
    }
    Ok(())
}
