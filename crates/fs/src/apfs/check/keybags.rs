//! Keybags and other data that the container keeps outside its trees.

use std::ops::Range;

use zerocopy::FromBytes;

use super::blocks::{BlockUsers, User};
use super::report::{Report, wrong};
use crate::apfs::container::Container;
use crate::apfs::keys::{entries, read_keybag};
use crate::apfs::layout::{
    JumpstartRaw, Oid, Paddr, PrangeRaw, VolumeRaw, keybag_tag, object_type,
};
use bandsaw_core::Result;

const LAYER: &str = "apfs keybag";

/// Claims and reads the container's keybag and those of its volumes.
pub(super) fn check(
    container: &Container,
    volumes: &[VolumeRaw],
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Result<()> {
    let (store, raw) = (&container.store, &container.superblock);
    claim(
        &raw.media_key_locker,
        "media keybag",
        store.blocks,
        blocks,
        report,
    );
    if claim(&raw.key_locker, "keybag", store.blocks, blocks, report).is_none() {
        return Ok(());
    }
    let Some(bag) = report.value_or_damage(read_keybag(
        store,
        &raw.key_locker,
        &raw.uuid,
        object_type::CONTAINER_KEYBAG,
    ))?
    else {
        return Ok(());
    };
    let Some(entries) = report.value_or_damage(entries(&bag))? else {
        return Ok(());
    };
    for volume in volumes {
        let own = entries
            .iter()
            .find(|entry| (entry.uuid, entry.tag) == (volume.uuid(), keybag_tag::UNLOCK_RECORDS));
        let Some((place, _)) = own.and_then(|entry| PrangeRaw::read_from_prefix(entry.data).ok())
        else {
            continue;
        };
        if claim(&place, "keybag of a volume", store.blocks, blocks, report).is_some() {
            let read = read_keybag(store, &place, &volume.uuid, object_type::VOLUME_KEYBAG);
            report.value_or_damage(read.map_err(|error| error.named(volume.label())))?;
        }
    }
    Ok(())
}

/// Claims a run that is not empty.
fn claim(
    place: &PrangeRaw,
    what: &'static str,
    all: u64,
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Option<Range<u64>> {
    if place.count.get() == 0 {
        return None;
    }
    let run = place.within(all);
    match &run {
        Some(run) => blocks.claim(run.clone(), User::container(what)),
        None => {
            let message = format!(
                "the {what}, {} blocks from {} on, is not in the container",
                place.count, place.start
            );
            report.damage(wrong(LAYER, message));
        }
    }
    run
}

/// Claims the EFI jumpstart and the driver from which a Mac starts.
pub(super) fn jumpstart(
    container: &Container,
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Result<()> {
    const LAYER: &str = "apfs EFI jumpstart";
    let store = &container.store;
    let paddr = Paddr(container.superblock.efi_jumpstart.get());
    if paddr.0 == 0 {
        return Ok(());
    }
    blocks.claim(
        paddr.0..paddr.0.saturating_add(1),
        User::container("EFI jumpstart"),
    );
    let Some(block) =
        report.value_or_damage(store.object(LAYER, paddr, object_type::EFI_JUMPSTART))?
    else {
        return Ok(());
    };
    let (count, runs) = JumpstartRaw::ref_from_prefix(&block)
        .map_or((0, &[][..]), |(head, runs)| (head.extents.get(), runs));
    let runs = <[PrangeRaw]>::ref_from_prefix_with_elems(runs, count as usize);
    match runs {
        Ok((runs, _)) => {
            for run in runs {
                claim(run, "EFI driver", store.blocks, blocks, report);
            }
        }
        Err(_) => report.damage(store.corrupt(
            LAYER,
            Oid(paddr.0),
            paddr,
            format!("records {count} runs of blocks, which do not fit in its block"),
        )),
    }
    Ok(())
}
