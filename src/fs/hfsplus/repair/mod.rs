//! Repairing a volume: its records are taken out of the trees, made to agree, and written as new trees into free blocks.
//!
//! Nothing that the volume uses is overwritten before the header, a single sector, leads to the new trees: a crash leaves
//! the volume as it was, or repaired. The result is first put together in memory and checked there; see [`Repair`].

mod attributes;
mod forks;
mod links;
mod objects;
mod rewrite;
mod salvage;
mod steps;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use self::forks::{Copy, Mended, More};
use self::objects::{Object, Objects};
use self::rewrite::Rewrite;
use self::salvage::Salvage;
use self::steps::Steps;
use super::btree::{KeyOrder, TreeKind};
use super::layout::{Extent, ForkRaw, HEADER_OFFSET, VolumeHeader, VolumeHeaderRaw, extents_of, volume_attributes};
use super::{check, header, journal, read_structure};
use crate::device::{BlockDevice, Overlay};
use crate::problem::{Problem, Severity};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "hfs+ repair";
/// The most that the repaired parts may take in memory: the trees of a volume of millions of files.
const MEMORY: u64 = 4 << 30;

/// A repair that was planned and tried, and not yet written.
#[derive(Debug)]
pub struct Repair {
    device: Arc<dyn BlockDevice>,
    findings: Vec<Problem>,
    steps: Vec<String>,
    left: Vec<Problem>,
    work: Option<Work>,
}

/// What is to be written.
#[derive(Debug)]
struct Work {
    overlay: Arc<Overlay>,
    copies: Vec<Copy>,
    block_size: u32,
    /// Where the bitmap lies, which is changed in place.
    bitmap: Vec<Extent>,
    header: VolumeHeaderRaw,
}

impl Repair {
    /// Checks the volume on `device`, plans what would mend it, and checks the result. Nothing is written.
    ///
    /// Refused with [`Kind::Corrupt`] where no volume header is left, with [`Kind::Limit`] where the volume has not enough
    /// free blocks for new trees, and with [`Kind::Conflict`] while changes wait in a journal that can be replayed, or whoever made
    /// some was interrupted.
    pub fn plan(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Self> {
        let findings = check(device.clone(), progress)?;
        let mut repair = Self { device: device.clone(), findings, steps: Vec::new(), left: Vec::new(), work: None };
        if !repair.findings.iter().any(is_wrong) {
            return Ok(repair);
        }
        let header::Located { device, header, .. } = header::locate(device)?;
        repair.device = device.clone();
        // Neither the blocks of such a journal nor what waits in one can be told from the records alone.
        let waits = header.has(volume_attributes::JOURNALED) && matches!(journal::pending(&device, &header), Ok(Some(_)));
        if waits || journal::is_transient(&*device, &header) {
            let message = "changes wait in the journal, or were not ended; open the volume for writing first, which makes them";
            return Err(Error::new(Kind::Conflict, LAYER, message));
        }
        let work = headers_alone(&device, &header)?;
        repair.left = check(work.overlay.clone(), progress)?;
        if repair.left.iter().any(is_wrong) {
            let mut steps = Steps::default();
            let work = put_together(&device, &header, &mut steps, progress)?;
            repair.left = check(work.overlay.clone(), progress)?;
            repair.steps = steps.lines();
            repair.steps.push("write new trees, bitmap and headers".to_owned());
            repair.work = Some(work);
        } else {
            repair.steps.push("write both headers anew and mark the volume clean".to_owned());
            repair.work = Some(work);
        }
        Ok(repair)
    }

    /// What was wrong.
    pub fn findings(&self) -> &[Problem] {
        &self.findings
    }

    /// What is done about it, a line for each kind of step.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// What would still be wrong afterwards.
    pub fn left(&self) -> &[Problem] {
        &self.left
    }

    /// Whether there is anything to write.
    pub fn is_needed(&self) -> bool {
        self.work.is_some()
    }

    /// [`Kind::Corrupt`] if the result would not check clean, so that [`apply`](Self::apply) will refuse.
    pub fn is_possible(&self) -> Result<()> {
        match self.left.iter().find(|problem| is_wrong(problem)) {
            None => Ok(()),
            Some(problem) => {
                let message = format!("is not written, because it would leave damage: {}", problem.error);
                Err(Error::new(Kind::Corrupt, LAYER, message))
            }
        }
    }

    /// Writes the repair, durable when this returns. Refused with [`Kind::Corrupt`] if the result would not check clean.
    pub fn apply(&self, progress: &dyn Progress) -> Result<()> {
        self.is_possible()?;
        self.work.as_ref().map_or(Ok(()), |work| work.write(&*self.device, progress))
    }
}

fn is_wrong(problem: &Problem) -> bool {
    problem.severity >= Severity::Warning
}

/// The volume with both headers as the sound one of them says, marked clean: enough where nothing else is wrong.
fn headers_alone(device: &Arc<dyn BlockDevice>, header: &VolumeHeader) -> Result<Work> {
    let overlay = Arc::new(Overlay::new(device.clone(), MEMORY));
    let mut raw = header.raw;
    rewrite::mark_clean(&mut raw);
    rewrite::write_headers(&*overlay, &raw)?;
    let bitmap = in_place(&raw.allocation_file, header);
    Ok(Work { overlay, copies: Vec::new(), block_size: header.block_size, bitmap, header: raw })
}

/// Puts the repaired volume together in memory.
fn put_together(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    steps: &mut Steps,
    progress: &dyn Progress,
) -> Result<Work> {
    let len = device.info().len;
    let alternate: VolumeHeaderRaw = read_structure(&**device, len - HEADER_OFFSET)?;
    let alternate = VolumeHeader::parse(&alternate, len - HEADER_OFFSET, len)
        .ok()
        .filter(|alternate| (alternate.block_size, alternate.total_blocks) == (header.block_size, header.total_blocks));
    let space = salvage::space(device.clone(), header);
    let salvage = Salvage { space: &space, header, alternate: alternate.as_ref().map(|alternate| &alternate.raw), progress };
    let catalog = salvage.tree(TreeKind::Catalog(header.variant))?;
    let overflow = salvage.tree(TreeKind::Extents)?;
    let values = salvage.tree(TreeKind::Attributes)?;
    for (tree, name) in [(&catalog, "catalog"), (&overflow, "extents tree"), (&values, "attributes tree")] {
        if tree.torn {
            steps.add("take records out of torn trees", || name.to_owned());
        }
    }
    let KeyOrder::Catalog(names) = catalog.order else {
        return Err(Error::new(Kind::Corrupt, LAYER, "the catalog has no order"));
    };
    let specs = [catalog.spec, overflow.spec, values.spec];
    let mut objects = Objects::read(catalog.records, names, header, steps);
    objects.mend(steps);
    links::mend(&mut objects, steps);
    objects.part_names(steps);

    let mut raw = header.raw;
    // A journal whose blocks belong to no file would be written over files that get them.
    let journaled = header.has(volume_attributes::JOURNALED);
    if journaled && (journal::pending(device, header).is_err() || !objects.has_journal()) {
        objects.drop_journal(steps);
        raw.attributes = (raw.attributes.get() & !volume_attributes::JOURNALED).into();
        raw.journal_info_block = 0.into();
    }
    let own = [raw.extents_file, raw.catalog_file, raw.attributes_file, raw.allocation_file];
    let old: Vec<Extent> = own.iter().flat_map(|fork| in_place(fork, header)).collect();
    let mut mended = Mended::default();
    mended.reserved.clone_from(&old);
    header.reserved().into_iter().for_each(|extent| mended.taken.insert(extent));
    in_place(&raw.startup_file, header).into_iter().for_each(|extent| mended.taken.insert(extent));
    let more = More::read(&overflow.records);
    let ids: HashSet<u32> = objects.all.iter().map(Object::id).collect();
    let (values, owners) = attributes::mend(values.records, &ids, header.total_blocks, &mut mended.taken, steps);
    mended.objects(&mut objects, &more, header, steps)?;
    let folder_links = links::folder_links(&objects);
    objects.count(&owners, &folder_links, steps);
    objects.tell_threads(steps);

    let files = objects.all.iter().filter(|object| !object.is_folder()).count();
    let counts = rewrite::Counts { files, folders: objects.all.len() - files - 1, next_id: objects.next_id() };
    let catalog_records = objects.records(catalog.order);
    drop(objects);
    let records = [catalog_records, mended.overflow_records(&more.bad), values];
    let trees = specs.into_iter().zip(records).collect();
    let overlay = Arc::new(Overlay::new(device.clone(), MEMORY));
    Rewrite { overlay, header, taken: mended.taken, old, progress }.run(raw, trees, counts, mended.copies, steps)
}

/// The extents of one of the volume's own files that lie on it.
fn in_place(fork: &ForkRaw, header: &VolumeHeader) -> Vec<Extent> {
    extents_of(&fork.extents).filter(|extent| extent.end() <= u64::from(header.total_blocks)).collect()
}
