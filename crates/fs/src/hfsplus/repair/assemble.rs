//! Assembly of the repaired volume, with new trees, on a view.

use std::collections::HashSet;
use std::sync::Arc;

use super::forks::{self, OverflowRecords, RepairedForks, UsedBlocks};
use super::losses::{self, Paths};
use super::objects::{AllObjects, RepairedObject};
use super::rewrite::{self, NewTrees, Records};
use super::salvage::{self, Salvage, Salvaged};
use super::steps::{Steps, Subject};
use super::{LAYER, PendingWrites, alternate, attributes, in_place, links, no_room};
use crate::hfsplus::btree::{KeyOrder, TreeKind};
use crate::hfsplus::journal;
use crate::hfsplus::layout::{
    Extent, ForkRaw, VolumeHeader, VolumeHeaderRaw, extents_of, volume_attributes,
};
use crate::hfsplus::unicode::NameOrder;
use crate::{Losses, RepairStep};
use bandsaw_core::device::{BlockDevice, CowDevice, Spill};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

/// Treatment of the old trees while the new ones are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldTrees {
    /// The old trees remain intact and are used after a crash.
    Keep,
    /// The new trees may overwrite the old ones; after a crash, only the undo data of the repair
    /// restores them.
    Overwrite,
    /// The same, and the new trees have no room to grow.
    OverwriteTightly,
}

/// A volume with new trees, assembled on a view.
pub(super) struct Rebuilt {
    pub(super) pending: PendingWrites,
    pub(super) steps: Vec<RepairStep>,
    pub(super) losses: Losses,
}

impl Rebuilt {
    /// Assembles the repaired volume: with new trees beside the old ones, or else over them.
    pub(super) fn new(
        device: &Arc<dyn BlockDevice>,
        header: &VolumeHeader,
        is_bitmap_certain: bool,
        spill: &Arc<Spill>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let total = header.total_blocks;
        // The device is longer if it was grown for this.
        let most = device.info().len / u64::from(header.block_size);
        let most = u32::try_from(most).unwrap_or(total);
        let attempts = [
            (total, OldTrees::Keep),
            (total, OldTrees::Overwrite),
            (total, OldTrees::OverwriteTightly),
        ];
        let grown = (most > total).then_some((most, OldTrees::Keep));
        let mut refused = None;
        for (total_blocks, old_trees) in attempts.into_iter().chain(grown) {
            let room = (total_blocks, old_trees);
            match assemble_volume(device, header, room, is_bitmap_certain, spill, progress) {
                Err(error) if error.kind() == Kind::Limit => refused = Some(error),
                done => return done,
            }
        }
        Err(refused.unwrap_or_else(|| no_room("no room for new trees")))
    }
}

/// The records of the three trees, as far as they can be read.
struct SalvagedTrees {
    catalog: Salvaged,
    overflow: Salvaged,
    /// The attributes tree.
    values: Salvaged,
    /// The rules for names in the catalog.
    names: NameOrder,
}

impl SalvagedTrees {
    fn read(salvage: &Salvage<'_>, steps: &mut Steps) -> Result<Self> {
        let catalog = salvage.tree(TreeKind::Catalog(salvage.header.variant))?;
        if catalog.records.is_empty() {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "nothing was written: no record of the catalog was found, so no file can be recovered",
            ));
        }
        let overflow = salvage.tree(TreeKind::Extents)?;
        let values = salvage.tree(TreeKind::Attributes)?;
        for (tree, name) in [
            (&catalog, "catalog"),
            (&overflow, "extents tree"),
            (&values, "attributes tree"),
        ] {
            if tree.incomplete {
                let subject = Subject::Name(name.to_owned());
                steps.on_subject("recover records from damaged trees", subject);
            }
        }
        let KeyOrder::Catalog(names) = catalog.order else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "internal: the catalog has the key order of another tree",
            ));
        };
        Ok(Self {
            catalog,
            overflow,
            values,
            names,
        })
    }
}

/// Assembles the repaired volume, of `total_blocks`, on a view.
fn assemble_volume(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    (total_blocks, old_trees): (u32, OldTrees),
    is_bitmap_certain: bool,
    spill: &Arc<Spill>,
    progress: &dyn Progress,
) -> Result<Rebuilt> {
    let mut all_steps = Steps::default();
    let steps = &mut all_steps;
    if old_trees != OldTrees::Keep {
        steps.add("overwrite the old trees: no room for new ones beside them");
    }
    let alternate = alternate(device, header)?;
    let space = salvage::space(device.clone(), header);
    let salvage = Salvage {
        space: &space,
        header,
        alternate: alternate.as_ref(),
        progress,
    };
    let SalvagedTrees {
        mut catalog,
        overflow,
        values,
        names,
    } = SalvagedTrees::read(&salvage, steps)?;
    let specs = [catalog.spec, overflow.spec, values.spec];
    let more = OverflowRecords::read(&overflow.records);
    let mut damage = losses::Trees::new(&mut catalog, &values, is_bitmap_certain);
    let referenced: HashSet<u32> = attributes::files(&values.records)
        .chain(more.files())
        .collect();
    let mut objects = AllObjects::read(catalog.records, names, header, steps);
    objects.repair(&|id| referenced.contains(&id), steps);
    drop(referenced);
    links::repair(&mut objects, steps);
    objects.part_names(steps);
    let grown = grown(header, total_blocks, steps);
    let mut raw = grown.raw;
    rewrite::repair_clumps(&mut raw, header, alternate.as_ref());
    raw.encodings_bitmap = (raw.encodings_bitmap.get() | objects.encodings()).into();
    let journaled = header.has(volume_attributes::JOURNALED);
    let is_journal_dropped =
        journaled && (journal::pending(device, header).is_err() || !objects.has_journal());
    if is_journal_dropped {
        drop_journal(&mut raw, &mut objects, steps);
    }
    damage.own = special_extents(&raw, header);
    let mut forks = RepairedForks::default();
    forks.reserved = match old_trees {
        OldTrees::Keep => damage.own.clone(),
        _ => in_place(&raw.allocation_file, header),
    };
    grown
        .reserved()
        .into_iter()
        .for_each(|extent| forks.taken.insert(extent));
    repair_startup(&mut raw.startup_file, header, &mut forks.taken, steps);
    let ids: HashSet<u32> = objects.all.iter().map(RepairedObject::id).collect();
    let compressed = objects.compressed();
    let values = attributes::repair(
        values.records,
        &ids,
        &compressed,
        header,
        &mut forks.taken,
        steps,
    );
    forks.objects(&mut objects, &more, header, total_blocks, steps)?;
    let folder_links = links::folder_links(&objects);
    objects.count(&values.owners, &folder_links, steps);
    objects.add_thread_steps(steps);

    let counts = counts(&objects);
    forks.find_longer(&more, |extent| salvage.is_used(extent))?;
    let paths = Paths::new(&objects);
    let ownerless = || {
        // The blocks of a journal that has lost its files belong to nothing either.
        if is_journal_dropped {
            return Ok(None);
        }
        let of_records = more
            .all_extents()
            .chain(objects.deleted_blocks.iter().copied())
            .chain(values.dropped_blocks.iter().copied());
        count_ownerless(&salvage, of_records, &damage.own, &forks)
    };
    let files = more.files();
    let losses = losses::find(&paths, &damage, &values, &forks, files, header, &ownerless)?;
    let mut steps = all_steps.finish(|subject| paths.subject(subject));
    let records = [
        Records::Catalog(objects.into_records()),
        Records::Other(forks.overflow_records(&more.bad)),
        Records::Other(values.records),
    ];
    let trees = specs.into_iter().zip(records).collect();
    let overlay = Arc::new(CowDevice::spilling(device.clone(), spill.clone()));
    let pending = NewTrees {
        overlay,
        header: &grown,
        taken: forks.taken,
        old: forks.reserved,
        has_reserve: old_trees != OldTrees::OverwriteTightly,
        progress,
    }
    .run(raw, trees, counts, forks.copies, &mut steps)?;
    Ok(Rebuilt {
        pending,
        steps,
        losses,
    })
}

/// Returns the header of a volume that has `total_blocks`.
fn grown(header: &VolumeHeader, total_blocks: u32, steps: &mut Steps) -> VolumeHeader {
    if total_blocks != header.total_blocks {
        steps.add("grow the volume to the end of its partition: it has no room");
    }
    let mut grown = header.clone();
    grown.total_blocks = total_blocks;
    grown.raw.total_blocks = total_blocks.into();
    grown
}

fn counts(objects: &AllObjects) -> rewrite::Counts {
    let is_file = |object: &&RepairedObject| !object.is_folder();
    let files = objects.all.iter().filter(is_file).count();
    rewrite::Counts {
        files,
        folders: objects.all.len() - files - 1,
        next_id: objects.next_id(),
    }
}

/// Makes the volume one without a journal: blocks of a journal that belong to no file would overwrite the
/// files that get them.
fn drop_journal(raw: &mut VolumeHeaderRaw, objects: &mut AllObjects, steps: &mut Steps) {
    objects.drop_journal(steps);
    raw.attributes = (raw.attributes.get() & !volume_attributes::JOURNALED).into();
    raw.journal_info_block = 0.into();
}

/// Counts the used blocks that neither the repaired files, nor records that are left out, nor the volume's
/// own files (`own`, and those that the alternate header states) refer to. `None` if the bitmap cannot
/// be read.
fn count_ownerless(
    salvage: &Salvage<'_>,
    of_records: impl Iterator<Item = Extent>,
    own: &[Extent],
    forks: &RepairedForks,
) -> Result<Option<u64>> {
    let special = salvage
        .alternate
        .iter()
        .flat_map(|raw| special_extents(raw, salvage.header));
    let stated = of_records
        .chain(special)
        .chain(own.iter().chain(&forks.reserved).copied());
    let mut all = forks.taken.clone();
    stated.for_each(|extent| all.insert(extent));
    salvage.ownerless(&all)
}

/// Cuts the startup file to the contents of its extents, and claims their blocks.
fn repair_startup(
    fork: &mut ForkRaw,
    header: &VolumeHeader,
    taken: &mut UsedBlocks,
    steps: &mut Steps,
) {
    let mut extents = Vec::new();
    for extent in extents_of(&fork.extents) {
        if extent.start.0 == 0
            || extent.end() > u64::from(header.total_blocks)
            || taken.overlaps(extent)
        {
            break;
        }
        taken.insert(extent);
        extents.push(extent);
    }
    let blocks: u32 = extents.iter().map(|extent| extent.count).sum();
    let capacity = u64::from(blocks) * u64::from(header.block_size);
    let size = fork.logical_size.get().min(capacity);
    let repaired = ForkRaw {
        logical_size: size.into(),
        total_blocks: blocks.into(),
        extents: forks::raw(&extents),
        ..*fork
    };
    if repaired != *fork {
        steps.add("truncate the startup file to the blocks that it still has");
        *fork = repaired;
    }
}

/// Returns the extents of the trees and of the bitmap in a volume header that are within the volume.
fn special_extents(raw: &VolumeHeaderRaw, header: &VolumeHeader) -> Vec<Extent> {
    let files = [
        raw.extents_file,
        raw.catalog_file,
        raw.attributes_file,
        raw.allocation_file,
    ];
    let each = |fork: &ForkRaw| in_place(fork, header);
    files.iter().flat_map(each).collect()
}
