//! The volume as changed by one thread at a time: operations that are kept or rolled back as a whole, and the
//! order in which they are written.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

use super::format::{EntryBytes, Stream, WriteFormat};
use super::free_clusters::FreeClusters;
use super::nodes::{ClusterNodes, NodePlace, ParentCache};
use crate::clusters::{ClusterContents, ClusterSpace, FIRST, Run, push_run};
use crate::write_buffer::Buffer;
use crate::{NodeId, Timestamp, VolumeInfo};

/// Number of the root folder.
pub(super) const ROOT: NodeId = NodeId(1);
/// Bytes that disks write at once. Entries of an object are kept within such a sector if they fit.
pub(super) const SECTOR: u64 = 512;
/// Bytes of pending changes that cause a commit.
const MAX_PENDING: u64 = 8 << 20;
/// Number of entries with an order of writes that cause a commit.
const MAX_DEFERRED: usize = 1 << 14;
/// Number of links that are written at a time.
const LINKS: u64 = 1 << 14;
/// Maximum length of adjacent pages that are written together, in bytes.
const MAX_WRITE: usize = 256 << 10;

/// Tells whether a file is open by its number.
pub(super) type OpenFiles<'a> = dyn Fn(u64) -> bool + 'a;

/// The step of a commit in which an entry of a folder is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WriteStep {
    /// With all others.
    First,
    /// Entries that name another parent, and the end of a folder.
    Second,
    /// Entries of objects that were moved: the old one must be gone before.
    Third,
}

/// An entry that must not be written with all others.
#[derive(Debug, Clone, Copy)]
struct Deferred {
    step: WriteStep,
    /// Written in the steps before.
    until: EntryBytes,
}

/// The clusters of a file or folder.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    pub(super) stored: ClusterContents,
    pub(super) is_contiguous: bool,
    /// True if the entry does not have the length and the clusters yet.
    pub(super) is_unrecorded: bool,
}

impl Contents {
    pub(super) fn clusters(&self) -> u64 {
        let last = self.stored.runs().last();
        last.map_or(0, |run| u64::from(run.logical) + u64::from(run.count))
    }

    fn last(&self) -> Option<u64> {
        let last = self.stored.runs().last();
        last.map(|run| u64::from(run.first) + u64::from(run.count) - 1)
    }

    /// Returns the clusters and the length for the entry.
    pub(super) fn stream(&self) -> Stream {
        Stream {
            first: self.stored.runs().first().map_or(0, |run| run.first),
            len: self.stored.len(),
            valid: self.stored.valid(),
            is_contiguous: self.is_contiguous,
        }
    }
}

/// Returns the clusters of a run.
fn range_of(run: &Run) -> Range<u64> {
    u64::from(run.first)..u64::from(run.first) + u64::from(run.count)
}

/// A volume with the state needed to change it.
#[derive(Debug)]
pub(super) struct Volume<F: WriteFormat> {
    pub(super) format: F,
    /// The device below the buffer.
    device: Arc<dyn BlockDevice>,
    buffer: Arc<Buffer>,
    pub(super) clusters: FreeClusters,
    pub(super) nodes: ClusterNodes<F::Raw>,
    pub(super) parents: ParentCache,
    /// Clusters that become free with the next commit.
    freed: Vec<Range<u64>>,
    /// Clusters that become the last of their file with the next commit.
    cuts: Vec<u64>,
    deferred: BTreeMap<u64, Deferred>,
    undo: Vec<(u64, Option<Deferred>)>,
    /// True from the first change to the next clean state.
    is_dirty: bool,
}

impl<F: WriteFormat> Volume<F> {
    /// Creates the state of a clean volume on `device`, whose clusters in use are `clusters`.
    pub(super) fn new(
        format: F,
        device: Arc<dyn BlockDevice>,
        buffer: Arc<Buffer>,
        clusters: FreeClusters,
    ) -> Self {
        Self {
            format,
            device,
            buffer,
            clusters,
            nodes: ClusterNodes::new(),
            parents: ParentCache::default(),
            freed: Vec::new(),
            cuts: Vec::new(),
            deferred: BTreeMap::new(),
            undo: Vec::new(),
            is_dirty: false,
        }
    }

    pub(super) fn info(&self) -> VolumeInfo {
        let size = self.space().cluster_size;
        let pending: u64 = self.freed.iter().map(|range| range.end - range.start).sum();
        VolumeInfo {
            clean: !self.is_dirty && self.buffer.is_empty(),
            free: self.clusters.free() * size,
            pending: pending * size,
            ..self.format.info()
        }
    }

    pub(super) fn space(&self) -> &ClusterSpace {
        self.format.space()
    }

    /// Returns the error about something that the format does not have.
    pub(super) fn lacks(&self, what: &str) -> Error {
        Error::unsupported(F::LAYER, format!("{} has no {what}", self.format.name()))
    }

    /// Performs an operation. If it lacks space that a commit frees, that is done, and it is started again.
    pub(super) fn change<T>(
        &mut self,
        mut change: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.buffer.len_if_kept() > MAX_PENDING || self.deferred.len() > MAX_DEFERRED {
            self.commit()?;
        }
        match self.step(&mut change) {
            Err(error) if error.kind() == Kind::Limit && !self.freed.is_empty() => {
                self.commit()?;
                self.step(&mut change)
            }
            done => done,
        }
    }

    fn step<T>(&mut self, change: &mut dyn FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let (freed, cuts) = (self.freed.len(), self.cuts.len());
        let done = change(self);
        match &done {
            Ok(_) => {
                self.buffer.accept();
                self.clusters.accept();
                self.nodes.accept();
                self.undo.clear();
            }
            Err(_) => {
                self.buffer.rollback();
                self.clusters.rollback();
                self.nodes.rollback();
                self.freed.truncate(freed);
                self.cuts.truncate(cuts);
                while let Some((offset, old)) = self.undo.pop() {
                    match old {
                        Some(old) => drop(self.deferred.insert(offset, old)),
                        None => drop(self.deferred.remove(&offset)),
                    }
                }
                self.format.forget_links();
            }
        }
        done
    }

    /// Writes an entry of a folder.
    pub(super) fn write_entry(&mut self, offset: u64, entry: &EntryBytes) -> Result<()> {
        self.buffer.write_at(offset, entry)
    }

    pub(super) fn read_entry(&self, offset: u64) -> Result<EntryBytes> {
        self.buffer.read_array(offset)
    }

    /// Lets a commit write an entry in a later step; `until` is written before.
    pub(super) fn defer(&mut self, offset: u64, step: WriteStep, until: EntryBytes) {
        let old = self.deferred.get(&offset).copied();
        let new = Deferred {
            step: old.map_or(step, |old| old.step.max(step)),
            // The bytes on the device count, not a state in between.
            until: old.map_or(until, |old| old.until),
        };
        self.deferred.insert(offset, new);
        self.undo.push((offset, old));
    }

    pub(super) fn is_deferred(&self, offset: u64) -> bool {
        self.deferred.contains_key(&offset)
    }

    /// Deletes entries.
    pub(super) fn delete_entries(&mut self, offsets: &[u64]) -> Result<()> {
        for &offset in offsets {
            let entry = self.read_entry(offset)?;
            self.write_entry(offset, &self.format.deleted(entry))?;
            if let Some(old) = self.deferred.remove(&offset) {
                self.undo.push((offset, Some(old)));
            }
        }
        Ok(())
    }

    /// Returns the description of an object that exists.
    pub(super) fn raw(&self, id: u64) -> Result<F::Raw> {
        match self.nodes.place(id) {
            Some(NodePlace::Nameless { raw, .. }) => Ok(raw),
            Some(NodePlace::Entry(main)) => match self.format.locate(main)? {
                Some((raw, _)) => Ok(raw),
                None => Err(missing::<F>(id)),
            },
            None => Err(missing::<F>(id)),
        }
    }

    /// Changes the description of an object that exists.
    pub(super) fn update(
        &mut self,
        id: u64,
        update: &mut dyn FnMut(&F, &mut F::Raw),
    ) -> Result<()> {
        match self.nodes.place(id) {
            Some(NodePlace::Nameless { mut raw, is_new }) => {
                update(&self.format, &mut raw);
                self.nodes.set_nameless(id, raw, is_new);
                Ok(())
            }
            Some(NodePlace::Entry(main)) => {
                let (mut raw, offsets) =
                    self.format.locate(main)?.ok_or_else(|| missing::<F>(id))?;
                update(&self.format, &mut raw);
                self.store(&raw, &offsets)
            }
            None => Err(missing::<F>(id)),
        }
    }

    /// Writes the entries of an object whose name stays.
    pub(super) fn store(&mut self, raw: &F::Raw, offsets: &[u64]) -> Result<()> {
        let old: Vec<EntryBytes> = offsets
            .iter()
            .map(|&offset| self.read_entry(offset))
            .collect::<Result<_>>()?;
        let mut new = old.clone();
        self.format.update_entries(raw, &mut new);
        for ((&offset, old), new) in offsets.iter().zip(&old).zip(&new) {
            if old != new {
                self.write_entry(offset, new)?;
            }
        }
        Ok(())
    }

    /// Returns the clusters of an object. Contents are read and written by the device below the buffer.
    pub(super) fn contents(&self, raw: &F::Raw) -> Result<Contents> {
        let stream = self.format.stream(raw);
        let space = self.space();
        let needed = space.clusters_for(stream.len);
        let wrong = |message: String| Err(Error::new(Kind::Corrupt, F::LAYER, message));
        let runs = match stream.first {
            0 => Box::default(),
            first if stream.is_contiguous => space.contiguous(first.into(), needed)?,
            first => self
                .uncut(space.whole_chain(first.into())?)
                .into_boxed_slice(),
        };
        let contents = self.contents_of(&runs, stream.len, stream.valid, stream.is_contiguous);
        if contents.clusters() < needed {
            return wrong(format!(
                "has {} clusters, expected {needed} for {} bytes; check the volume",
                contents.clusters(),
                stream.len
            ));
        }
        if stream.valid > stream.len {
            return wrong(format!(
                "has {} valid bytes of {}",
                stream.valid, stream.len
            ));
        }
        let mut clusters = runs.iter().flat_map(range_of);
        match clusters.find(|&cluster| !self.clusters.is_used(cluster)) {
            Some(cluster) => wrong(format!(
                "cluster {cluster} of a file is marked as free; check the volume"
            )),
            None => Ok(contents),
        }
    }

    /// Returns a chain without the clusters that the next commit cuts off.
    fn uncut(&self, runs: Vec<Run>) -> Vec<Run> {
        if self.cuts.is_empty() {
            return runs;
        }
        let cuts: HashSet<u64> = self.cuts.iter().copied().collect();
        let mut kept = Vec::new();
        for run in runs {
            let end = range_of(&run).find(|cluster| cuts.contains(cluster));
            let count = end.map_or(u64::from(run.count), |end| end + 1 - u64::from(run.first));
            push_run(&mut kept, run.first, narrow(count));
            if end.is_some() {
                break;
            }
        }
        kept
    }

    fn contents_of(&self, runs: &[Run], len: u64, valid: u64, is_contiguous: bool) -> Contents {
        let space = ClusterSpace {
            device: self.device.clone(),
            ..self.space().clone()
        };
        Contents {
            stored: ClusterContents::new(&space, runs.into(), len, valid),
            is_contiguous,
            is_unrecorded: false,
        }
    }

    /// Returns the contents of a new object.
    pub(super) fn no_contents(&self) -> Contents {
        self.contents_of(&[], 0, 0, F::HAS_CONTIGUOUS)
    }

    /// Returns contents with a length, for which clusters are added or freed. The entry is not changed.
    pub(super) fn resize(&mut self, old: &Contents, len: u64) -> Result<Contents> {
        let (have, needed) = (old.clusters(), self.space().clusters_for(len));
        let valid = old.stored.valid().min(len);
        let mut runs = old.stored.runs().to_vec();
        let mut is_contiguous = old.is_contiguous;
        if needed > have {
            let pieces = self.take(needed - have, old.last())?;
            is_contiguous = self.link(old, &pieces)?;
            for piece in &pieces {
                let count = piece.end - piece.start;
                push_run(&mut runs, narrow(piece.start), narrow(count));
            }
        } else if needed < have && len < old.stored.len() {
            self.cut(&mut runs, needed, is_contiguous);
        }
        if runs.is_empty() {
            is_contiguous = F::HAS_CONTIGUOUS;
        }
        Ok(Contents {
            is_unrecorded: true,
            ..self.contents_of(&runs, len, valid, is_contiguous)
        })
    }

    /// Takes clusters, those behind `last` if possible.
    fn take(&mut self, count: u64, last: Option<u64>) -> Result<Vec<Range<u64>>> {
        let free = self.clusters.free();
        let pieces = self.clusters.take(count, last.map(|last| last + 1));
        let pieces = pieces.ok_or_else(|| {
            let size = self.space().cluster_size;
            let message = format!(
                "no space left on the volume: {} bytes are needed, {} are free",
                count.saturating_mul(size),
                free * size
            );
            Error::limit(F::LAYER, message)
        })?;
        for piece in &pieces {
            self.format.claim(piece.clone())?;
        }
        Ok(pieces)
    }

    /// Links new clusters behind those of a file; returns true if all of them are contiguous, so that they
    /// are not linked.
    fn link(&mut self, old: &Contents, pieces: &[Range<u64>]) -> Result<bool> {
        let follows = |last: u64| pieces.first().is_some_and(|first| first.start == last + 1);
        if F::HAS_CONTIGUOUS
            && old.is_contiguous
            && pieces.len() == 1
            && old.last().is_none_or(follows)
        {
            return Ok(true);
        }
        let old_pieces = match old.is_contiguous {
            // Links of a file that had none.
            true => old.stored.runs().iter().map(range_of).collect(),
            false => old
                .last()
                .map(|last| last..last + 1)
                .into_iter()
                .collect::<Vec<_>>(),
        };
        let all = [&*old_pieces, pieces].concat();
        let end = self.space().table.width().end_of_chain();
        for (number, piece) in all.iter().enumerate() {
            let behind = all.get(number + 1);
            let mut at = piece.start;
            while at < piece.end {
                let until = piece.end.min(at + LINKS);
                let links: Vec<u32> = (at + 1..=until)
                    .map(|next| match next == piece.end {
                        true => behind.map_or(end, |behind| narrow(behind.start)),
                        false => narrow(next),
                    })
                    .collect();
                self.format.store_links(at, &links)?;
                at = until;
            }
        }
        Ok(false)
    }

    /// Frees the clusters of a file behind the first `keep`, with the next commit.
    fn cut(&mut self, runs: &mut Vec<Run>, keep: u64, is_contiguous: bool) {
        while let Some(last) = runs.last_mut() {
            let (logical, count) = (u64::from(last.logical), u64::from(last.count));
            let range = range_of(last);
            if logical >= keep {
                self.freed.push(range);
                runs.pop();
                continue;
            }
            let kept = keep - logical;
            if kept < count {
                self.freed.push(range.start + kept..range.end);
                last.count = narrow(kept);
            }
            break;
        }
        if let Some(last) = runs.last()
            && !is_contiguous
        {
            self.cuts.push(range_of(last).end - 1);
        }
    }

    /// Commits, if a file whose chain the next commit cuts could be extended before.
    pub(super) fn settle_cuts(&mut self) -> Result<()> {
        match self.cuts.is_empty() {
            true => Ok(()),
            false => self.commit(),
        }
    }

    /// Frees all clusters of an object, with the next commit.
    pub(super) fn free_contents(&mut self, contents: &Contents) {
        self.freed
            .extend(contents.stored.runs().iter().map(range_of));
    }

    /// Returns the chain of a folder without an entry.
    pub(super) fn chain_contents(&self, first: u64) -> Result<Contents> {
        let runs = self.space().whole_chain(first)?;
        Ok(self.contents_of(&runs, 0, 0, false))
    }

    /// Adds a cluster of zeros to a folder. Returns also its offset on the volume.
    pub(super) fn grow_folder(&mut self, old: &Contents) -> Result<(Contents, u64)> {
        let size = self.space().cluster_size;
        let len = (old.clusters() + 1) * size;
        let mut grown = self.resize(old, len)?;
        grown.stored.set_valid(len);
        let start = self.space().offset(grown.last().unwrap_or(FIRST));
        // Nothing refers to the cluster yet.
        self.device
            .discard(start..start + size, AfterDiscard::Zeros)?;
        Ok((grown, start))
    }

    /// Writes entries to a new cluster.
    pub(super) fn write_new(&self, start: u64, entries: &[EntryBytes]) -> Result<()> {
        match entries.is_empty() {
            true => Ok(()),
            false => self.device.write_at(start, &entries.concat()),
        }
    }

    /// Makes all changes durable: contents, then clusters, then entries; those that are removed before those
    /// that take their place. Then clusters that are not needed any more become free.
    pub(super) fn commit(&mut self) -> Result<()> {
        if self.buffer.is_empty() && self.freed.is_empty() && self.cuts.is_empty() {
            return self.device.flush();
        }
        if !self.is_dirty {
            self.format.mark_dirty(&*self.device)?;
            self.buffer.accept();
            self.is_dirty = true;
        }
        self.device.flush()?;
        let (tables, folders): (Vec<_>, Vec<_>) = self
            .buffer
            .pages()
            .into_iter()
            .partition(|(offset, _)| self.format.is_allocation(*offset));
        if !tables.is_empty() {
            self.write(tables)?;
            self.device.flush()?;
        }
        for step in [WriteStep::First, WriteStep::Second, WriteStep::Third] {
            let pages: Vec<_> = folders
                .iter()
                .filter_map(|(offset, page)| self.page_in_step(*offset, page, step))
                .collect();
            if !pages.is_empty() {
                self.write(pages)?;
                self.device.flush()?;
            }
        }
        self.deferred.clear();
        self.buffer.clear_pending();
        self.free_clusters()
    }

    /// Returns a page as a step of a commit writes it. `None`: the step does not change it.
    fn page_in_step(&self, offset: u64, page: &[u8], step: WriteStep) -> Option<(u64, Vec<u8>)> {
        let mut page = page.to_vec();
        let mut is_changed = step == WriteStep::First;
        for (place, deferred) in self.deferred.range(offset..offset + page.len() as u64) {
            is_changed |= deferred.step == step;
            if deferred.step > step {
                let at = usize::try_from(place - offset).unwrap_or(usize::MAX);
                if let Some(entry) = page.get_mut(at..at + deferred.until.len()) {
                    entry.copy_from_slice(&deferred.until);
                }
            }
        }
        is_changed.then_some((offset, page))
    }

    /// Writes pages; adjacent ones together.
    fn write(&self, pages: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let mut pending: Option<(u64, Vec<u8>)> = None;
        for (offset, page) in pages {
            match &mut pending {
                Some((start, bytes))
                    if *start + bytes.len() as u64 == offset && bytes.len() < MAX_WRITE =>
                {
                    bytes.extend(page);
                }
                _ => {
                    if let Some((start, bytes)) = pending.replace((offset, page)) {
                        self.device.write_at(start, &bytes)?;
                    }
                }
            }
        }
        match pending {
            Some((start, bytes)) => self.device.write_at(start, &bytes),
            None => Ok(()),
        }
    }

    /// Frees the clusters that no entry refers to any more, on the device and in memory.
    fn free_clusters(&mut self) -> Result<()> {
        if self.freed.is_empty() && self.cuts.is_empty() {
            return Ok(());
        }
        self.step(&mut |volume| {
            let end = volume.space().table.width().end_of_chain();
            for &cluster in &volume.cuts {
                volume.format.store_links(cluster, &[end])?;
            }
            for range in &volume.freed {
                volume.format.release(range.clone())?;
            }
            Ok(())
        })?;
        self.cuts.clear();
        let freed = std::mem::take(&mut self.freed);
        for range in &freed {
            self.clusters.release(range.clone());
        }
        // A table that cannot be written now is written by the next commit.
        self.write(self.buffer.pages())?;
        self.buffer.clear_pending();
        for range in freed {
            let (start, end) = (
                self.space().offset(range.start),
                self.space().offset(range.end),
            );
            // Best effort: clusters that are not discarded now can be trimmed later.
            let _ = self.device.discard(start..end, AfterDiscard::Any);
        }
        Ok(())
    }

    /// Makes all changes durable, and marks the volume as clean if it has no objects without a name.
    pub(super) fn clean(&mut self) -> Result<()> {
        self.commit()?;
        if !self.is_dirty || self.nodes.has_nameless() {
            return self.device.flush();
        }
        self.device.flush()?;
        let (free, next) = (self.clusters.free(), self.clusters.next());
        self.format.mark_clean(&*self.device, free, next)?;
        self.device.flush()?;
        self.is_dirty = false;
        Ok(())
    }
}

/// Returns the time to be recorded for changes.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

/// Returns the error about an object that does not exist.
pub(super) fn missing<F: WriteFormat>(id: u64) -> Error {
    Error::not_found(F::LAYER, format!("object {id}"))
}
