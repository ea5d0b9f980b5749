//! Reconciliation of the two volume headers: where they disagree, the one that agrees with the
//! volume is used (§2.5).
//!
//! Fields that only the primary keeps up to date (counts, dates, attributes) are taken from it. For
//! all others the evidence is compared, structure by structure; if it is inconclusive, the repair
//! fails and nothing is written.

use std::cmp::Ordering;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::LAYER;
use crate::hfsplus::btree::{Node, TreeKind};
use crate::hfsplus::check::{Report, Rules, walk_tree};
use crate::hfsplus::extents::{ForkDevice, ForkSpace, Owner};
use crate::hfsplus::header;
use crate::hfsplus::layout::{
    Cnid, EXTENTS_PER_RECORD, Extent, ExtentsRaw, FIRST_RECORD, ForkRaw, HEADER_OFFSET,
    TreeHeaderRaw, VolumeHeader, VolumeHeaderRaw, extents_of, fork_type, node_kind,
};
use crate::hfsplus::overflow::Overflow;
use crate::hfsplus::read_structure;
use bandsaw_core::decision::{Alternative, CopyChoice, Undecided};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Kind, Result};

/// The volume's own files that its header describes.
const FILES: [(&str, Cnid); 5] = [
    ("extents file", Cnid::EXTENTS),
    ("allocation file", Cnid::ALLOCATION),
    ("catalog file", Cnid::CATALOG),
    ("attributes file", Cnid::ATTRIBUTES),
    ("startup file", Cnid::STARTUP),
];

/// Returns the header that the evidence on the volume supports: the primary, with those fields of
/// the alternate that the volume supports instead; or `found`, the header read first, if the other
/// is invalid. `assumed` decides where the evidence is inconclusive; without it, that is an error
/// of [`Kind::Undecided`].
pub(super) fn resolve(
    device: &Arc<dyn BlockDevice>,
    found: &VolumeHeader,
    assumed: Option<CopyChoice>,
    progress: &dyn Progress,
) -> Result<VolumeHeader> {
    let len = device.info().len;
    // An invalid header was reported before, and is ignored.
    let (Some(first), Some(other)) = both(device)? else {
        return Ok(found.clone());
    };
    let evidence = HeaderEvidence { device, progress };
    let mut raw = first.raw;
    let geometry = |header: &VolumeHeader| (header.variant, header.block_size, header.total_blocks);
    if geometry(&first) != geometry(&other) {
        let fits = |header: &VolumeHeader| {
            u64::from(u64::from(header.total_blocks) == len / u64::from(header.block_size))
        };
        let opens = |header: &VolumeHeader| {
            evidence
                .of(header, Cnid::CATALOG)
                .map(|score| score[1] + score[2])
        };
        let scores = (
            (fits(&first), opens(&first)?),
            (fits(&other), opens(&other)?),
        );
        let (fitting, opening) = (scores.0.0.cmp(&scores.1.0), scores.0.1.cmp(&scores.1.1));
        // The two scores are independent, so they must not contradict each other.
        let order = if fitting == Ordering::Equal || fitting == opening {
            opening
        } else if opening == Ordering::Equal {
            fitting
        } else {
            Ordering::Equal
        };
        if choose(order, assumed, "size", &first, &other)? == CopyChoice::Alternate {
            raw.signature = other.raw.signature;
            raw.version = other.raw.version;
            raw.block_size = other.raw.block_size;
            raw.total_blocks = other.raw.total_blocks;
        }
    }
    // Both dates are written when a volume is formatted, and never again; Apple's checker takes
    // that of the alternate.
    raw.create_date = other.raw.create_date;
    let mut header = VolumeHeader::parse(&raw, HEADER_OFFSET, len)?;
    for (name, id) in FILES {
        let (ours, theirs) = (fork(&first.raw, id), fork(&other.raw, id));
        if location_fields(&ours) == location_fields(&theirs) {
            continue;
        }
        let with = |one: ForkRaw| {
            let mut header = header.clone();
            *fork_mut(&mut header.raw, id) = one;
            header
        };
        let order = evidence.compare(&with(ours), &with(theirs), id)?;
        let order = order.then(is_terminated(&ours).cmp(&is_terminated(&theirs)));
        if choose(order, assumed, name, &first, &other)? == CopyChoice::Alternate {
            *fork_mut(&mut header.raw, id) = theirs;
        }
    }
    Ok(header)
}

/// Compares the geometry and the places of the volume's own files in the two headers. `None`: they
/// agree, one of them is invalid, or the alternate is an older state of the primary. Otherwise
/// returns the header that the volume agrees with; [`CopyChoice::Alternate`] if that is so for one field
/// at least. Fails with [`Kind::Undecided`] if the volume agrees with both or neither.
pub(in crate::hfsplus) fn compare(
    device: &Arc<dyn BlockDevice>,
    progress: &dyn Progress,
) -> Result<Option<CopyChoice>> {
    let (Some(first), Some(other)) = both(device)? else {
        return Ok(None);
    };
    let geometry = |header: &VolumeHeader| (header.variant, header.block_size, header.total_blocks);
    let is_older = |(_, id)| is_older(&fork(&other.raw, id), &fork(&first.raw, id));
    if geometry(&first) == geometry(&other) && FILES.into_iter().all(is_older) {
        return Ok(None);
    }
    let resolved = resolve(device, &first, None, progress)?;
    let is_first = |(_, id)| {
        location_fields(&fork(&resolved.raw, id)) == location_fields(&fork(&first.raw, id))
    };
    let is_primary = geometry(&resolved) == geometry(&first) && FILES.into_iter().all(is_first);
    Ok(Some(if is_primary {
        CopyChoice::Primary
    } else {
        CopyChoice::Alternate
    }))
}

/// Returns the two headers, as far as they are valid.
fn both(device: &Arc<dyn BlockDevice>) -> Result<(Option<VolumeHeader>, Option<VolumeHeader>)> {
    let len = device.info().len;
    let raw: VolumeHeaderRaw = read_structure(&**device, HEADER_OFFSET)?;
    let Ok(first) = VolumeHeader::parse(&raw, HEADER_OFFSET, len) else {
        return Ok((None, None));
    };
    let other = header::alternate(&**device, &first)?.header.ok();
    Ok((Some(first), other))
}

/// Returns the fields of a fork that locate it.
fn location_fields(
    fork: &ForkRaw,
) -> (
    zerocopy::big_endian::U64,
    zerocopy::big_endian::U32,
    ExtentsRaw,
) {
    (fork.logical_size, fork.total_blocks, fork.extents)
}

/// Returns true if the extents after the first unused one are zeros, as every driver leaves them.
fn is_terminated(fork: &ForkRaw) -> bool {
    let used = extents_of(&fork.extents).count();
    fork.extents[used..] == ExtentsRaw::default()[used..]
}

/// Returns true if `old` is the place of a file before it has grown to `new`, or the same place.
/// Drivers write the alternate header less often than the primary.
fn is_older(old: &ForkRaw, new: &ForkRaw) -> bool {
    let count = |fork: &ForkRaw| extents_of(&fork.extents).count();
    let (last, total) = (count(old), old.total_blocks.get());
    let same = old.extents.iter().zip(&new.extents).take(last);
    let is_prefix = (1..).zip(same).all(|(number, (old, new))| {
        old.start_block == new.start_block
            && (old.block_count == new.block_count
                || (number == last && old.block_count.get() < new.block_count.get()))
    });
    is_prefix
        && total <= new.total_blocks.get()
        && old.logical_size.get() <= new.logical_size.get()
        && (location_fields(old) == location_fields(new) || total < new.total_blocks.get())
}

/// Chooses a header by the comparison of the primary's evidence with the alternate's.
fn choose(
    order: Ordering,
    assumed: Option<CopyChoice>,
    what: &str,
    first: &VolumeHeader,
    other: &VolumeHeader,
) -> Result<CopyChoice> {
    match (order, assumed) {
        (Ordering::Greater, _) => Ok(CopyChoice::Primary),
        (Ordering::Less, _) => Ok(CopyChoice::Alternate),
        (Ordering::Equal, Some(which)) => Ok(which),
        (Ordering::Equal, None) => {
            let evidence = |header: &VolumeHeader| {
                let raw = &header.raw;
                format!(
                    "{} blocks of {} bytes, changed {} times",
                    raw.total_blocks, raw.block_size, raw.write_count
                )
            };
            let alternative = |which: CopyChoice, header| Alternative {
                assume: format!("header={}", which.name()),
                evidence: evidence(header),
            };
            let alternatives = vec![
                alternative(CopyChoice::Primary, first),
                alternative(CopyChoice::Alternate, other),
            ];
            let what = format!(
                "the two volume headers differ in the {what}, and the volume agrees with both or \
                 neither"
            );
            Err(Undecided { what, alternatives }.into_error(LAYER))
        }
    }
}

/// Returns the fork of one of the volume's own files.
fn fork(raw: &VolumeHeaderRaw, id: Cnid) -> ForkRaw {
    let mut raw = *raw;
    *fork_mut(&mut raw, id)
}

fn fork_mut(raw: &mut VolumeHeaderRaw, id: Cnid) -> &mut ForkRaw {
    match id {
        Cnid::EXTENTS => &mut raw.extents_file,
        Cnid::ALLOCATION => &mut raw.allocation_file,
        Cnid::CATALOG => &mut raw.catalog_file,
        Cnid::ATTRIBUTES => &mut raw.attributes_file,
        _ => &mut raw.startup_file,
    }
}

/// Collects evidence for and against a header.
struct HeaderEvidence<'a> {
    device: &'a Arc<dyn BlockDevice>,
    progress: &'a dyn Progress,
}

impl HeaderEvidence<'_> {
    fn space(&self, header: &VolumeHeader) -> ForkSpace {
        ForkSpace {
            device: self.device.clone(),
            block_size: header.block_size,
            total_blocks: header.total_blocks,
        }
    }

    /// Compares how well two headers agree with the volume that differ only in the place of file
    /// `id`.
    fn compare(&self, first: &VolumeHeader, other: &VolumeHeader, id: Cnid) -> Result<Ordering> {
        let order = self.of(first, id)?.cmp(&self.of(other, id)?);
        if order != Ordering::Equal {
            return Ok(order);
        }
        // The most expensive evidence: all of a tree, or of the bitmap.
        Ok(self.faults(other, id)?.cmp(&self.faults(first, id)?))
    }

    /// Returns the evidence for the place of file `id`, the strongest first: valid descriptors,
    /// consistent sizes, contents of the right kind.
    fn of(&self, header: &VolumeHeader, id: Cnid) -> Result<[u64; 3]> {
        let fork = fork(&header.raw, id);
        let total = fork.total_blocks.get();
        if total == 0 {
            let empty = fork.logical_size.get() == 0 && fork.extents == ExtentsRaw::default();
            let may_be = !matches!(id, Cnid::ALLOCATION | Cnid::CATALOG | Cnid::EXTENTS);
            return Ok([
                u64::from(empty && may_be),
                u64::from(empty),
                u64::from(empty && may_be),
            ]);
        }
        let extents: Vec<Extent> = extents_of(&fork.extents).collect();
        let lies =
            |extent: &Extent| extent.start.0 != 0 && extent.end() < u64::from(header.total_blocks);
        let behind = fork
            .extents
            .iter()
            .skip(extents.len())
            .all(|raw| (raw.start_block.get(), raw.block_count.get()) == (0, 0));
        let makes_sense = !extents.is_empty() && behind && extents.iter().all(lies);
        let sum: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let goes_on =
            sum < u64::from(total) && extents.len() == EXTENTS_PER_RECORD && id != Cnid::EXTENTS;
        let capacity = u64::from(total) * u64::from(header.block_size);
        let agrees = (sum == u64::from(total) || goes_on)
            && (1..=capacity).contains(&fork.logical_size.get());
        let score = [u64::from(makes_sense), u64::from(agrees), 0];
        let Some(file) = self.file(header, id)? else {
            return Ok(score);
        };
        let is_such = match id {
            Cnid::ALLOCATION => file.len() >= u64::from(header.total_blocks).div_ceil(8),
            Cnid::STARTUP => true,
            _ => is_tree(&file)?,
        };
        Ok([score[0], score[1], u64::from(is_such)])
    }

    fn file(&self, header: &VolumeHeader, id: Cnid) -> Result<Option<ForkDevice>> {
        let space = self.space(header);
        let overflow = Overflow::open(&space, &header.raw.extents_file).ok();
        let mut more = |block| match &overflow {
            Some(overflow) if id != Cnid::EXTENTS => overflow.get(id, fork_type::DATA, block),
            _ => Ok(None),
        };
        match space.fork(
            &fork(&header.raw, id),
            &Owner::Special("file of the volume"),
            &mut more,
        ) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns the number of findings in the tree at that place; for the bitmap and the startup
    /// file, the number of blocks that are used by the header's files but marked free.
    fn faults(&self, header: &VolumeHeader, id: Cnid) -> Result<u64> {
        let kind = match id {
            Cnid::EXTENTS => TreeKind::Extents,
            Cnid::CATALOG => TreeKind::Catalog(header.variant),
            Cnid::ATTRIBUTES => TreeKind::Attributes,
            _ => return self.unmarked(header, id),
        };
        let Some(file) = self.file(header, id)? else {
            return Ok(u64::MAX);
        };
        let mut report = Report::default();
        let rules = Rules {
            whole_nodes: false,
            zeroed: false,
        };
        let whole = walk_tree(
            &file,
            kind,
            rules,
            &mut report,
            self.progress,
            &mut |_, _, _| Ok(()),
        )?;
        Ok(report.len() + if whole { 0 } else { 1 << 32 })
    }

    fn unmarked(&self, header: &VolumeHeader, id: Cnid) -> Result<u64> {
        let Some(bitmap) = self.file(header, Cnid::ALLOCATION)? else {
            return Ok(u64::MAX);
        };
        let files = if id == Cnid::STARTUP {
            &FILES[4..]
        } else {
            &FILES[..]
        };
        let mut found = 0;
        for extent in files
            .iter()
            .flat_map(|&(_, id)| extents_of(&fork(&header.raw, id).extents).collect::<Vec<_>>())
        {
            for block in u64::from(extent.start.0)..extent.end() {
                let byte = if block / 8 < bitmap.len() {
                    bitmap.read_vec(block / 8, 1)?[0]
                } else {
                    0
                };
                found += u64::from(byte & (0x80 >> (block % 8)) == 0);
            }
        }
        Ok(found)
    }
}

/// Returns true if the first node of `file` is the header node of a tree as long as the file.
fn is_tree(file: &ForkDevice) -> Result<bool> {
    let head_len = usize::from(FIRST_RECORD) + size_of::<TreeHeaderRaw>();
    if file.len() < head_len as u64 {
        return Ok(false);
    }
    let head = file.read_vec(0, head_len)?;
    let Ok(header) = TreeHeaderRaw::read_from_bytes(&head[usize::from(FIRST_RECORD)..]) else {
        return Ok(false);
    };
    let size = header.node_size.get();
    if !size.is_power_of_two() || size < 512 || u64::from(size) > file.len() {
        return Ok(false);
    }
    let sound = Node::parse(0, file.read_vec(0, size.into())?.into())
        .is_ok_and(|node| node.kind == node_kind::HEADER);
    Ok(sound && u64::from(header.total_nodes.get()) * u64::from(size) == file.len())
}
