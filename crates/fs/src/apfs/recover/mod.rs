//! Files that no live tree of a container has: records in nodes of earlier transactions, which are found
//! in any block by their header and checksum. If the tree of a volume is damaged, all records in its nodes.
//!
//! Memory: 24 bytes for each record that is found, 8 for each object that exists.

mod assemble;
mod free;
mod live;
mod nodes;
mod owners;
mod paths;
mod records;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::assemble::Assembler;
use self::free::FreeOrQueued;
use self::live::LiveObjects;
use self::nodes::NodeReader;
use self::owners::NodeOwners;
use self::paths::FolderPaths;
use self::records::FoundRecords;
use super::cipher::VolumeCipher;
use super::container::Container;
use super::layout::{FileId, Paddr, VolumeRaw, Xid};
use super::names::NameRules;
use super::volume::{Apfs, OpenState};
use crate::free::FreeMap;
use crate::recovered::paths::KnownPaths;
use crate::recovered::{BlockSet, Judge};
use crate::{LockedVolume, RecoveredFile, RecoverySummary, VolumeKey};
use bandsaw_core::device::{ExtentKind, is_zero};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Largest number of problems that are kept.
const MAX_PROBLEMS: usize = 100;

/// Receives a file and the number of its volume.
type EachOfVolume<'a> = dyn FnMut(u32, RecoveredFile) -> Result<()> + 'a;

/// Volumes of a container to be searched for files. Nothing is written to it.
#[derive(Debug)]
pub struct ApfsRecovery {
    container: Arc<Container>,
    volumes: Vec<VolumeToSearch>,
}

#[derive(Debug)]
struct VolumeToSearch {
    number: u32,
    raw: VolumeRaw,
    cipher: Option<Arc<VolumeCipher>>,
    hashed: bool,
    /// The volume, or the reason why its tree does not open.
    opened: Result<Apfs>,
}

/// The state of a search of one volume.
#[derive(Debug, Default)]
struct VolumeSearch {
    live: Option<LiveObjects>,
    found: FoundRecords,
    summary: RecoverySummary,
}

impl ApfsRecovery {
    /// Opens a container for searches of its volumes.
    pub fn new(container: &Arc<Container>) -> Self {
        Self {
            container: container.clone(),
            volumes: Vec::new(),
        }
    }

    /// Adds the volume of a number, from 1. `key` is called for the key of an encrypted volume. A volume
    /// whose tree is damaged is added, too.
    pub fn add(
        &mut self,
        number: u32,
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
    ) -> Result<()> {
        let index = number.checked_sub(1).map(|index| to_usize(index.into()));
        let oid = index.and_then(|index| self.container.volume_oids().nth(index));
        let Some(oid) = oid else {
            let volume = format!("volume {number}");
            return Err(Error::not_found("apfs container", volume));
        };
        let (raw, _) = self.container.volume_superblock(oid)?;
        let cipher = self.container.cipher(&raw, key)?;
        let state = OpenState {
            raw,
            omap: Paddr(raw.omap_oid.get()),
            xid: Xid(self.container.checkpoint()),
            dataless: false,
        };
        let opened = Apfs::open(&self.container, &state, cipher.clone());
        self.volumes.push(VolumeToSearch {
            number,
            raw,
            cipher,
            hashed: NameRules::of(&raw).hashed(),
            opened,
        });
        Ok(())
    }

    /// Searches the container once for files of all volumes that were added, and calls `each` for them,
    /// volume by volume, those with records of the newest transactions first. Returns the results in the
    /// order in which the volumes were added.
    pub fn scan(
        &self,
        progress: &dyn Progress,
        each: &mut EachOfVolume<'_>,
    ) -> Result<Vec<(u32, RecoverySummary)>> {
        let mut searches = Vec::new();
        for volume in &self.volumes {
            searches.push(volume.begin(&self.container, progress)?);
        }
        let owners = NodeOwners::read(&self.container, progress)?;
        let (searched, unassigned) = self.search(&owners, &mut searches, progress)?;
        let mut summaries = Vec::new();
        for (volume, mut search) in self.volumes.iter().zip(searches) {
            search.summary.searched = searched;
            search.summary.unassigned_nodes = unassigned;
            search.found.sort();
            volume.assemble(&self.container, &mut search, progress, each)?;
            summaries.push((volume.number, search.summary));
        }
        Ok(summaries)
    }

    /// Adds the records of all leaves in the container to the searches. Returns the number of bytes that
    /// were read, and that of leaves whose volume is unknown.
    fn search(
        &self,
        owners: &NodeOwners,
        searches: &mut [VolumeSearch],
        progress: &dyn Progress,
    ) -> Result<(u64, u64)> {
        let store = &self.container.store;
        let block = u64::from(store.block_size.get());
        let end = store
            .offset(Paddr(store.blocks))
            .min(store.device.info().len / block * block);
        progress.stage("search", end);
        let (mut at, mut searched, mut unassigned) = (0, 0, 0);
        let mut buffer = Vec::new();
        while at < end {
            progress.check()?;
            let extent = store.device.extent_at(at..end)?;
            let mut len = extent.len.min(end - at);
            // Whole blocks, also where the image stores parts of one.
            len = match at + len == end {
                true => len,
                false => len / block * block,
            };
            if extent.kind != ExtentKind::Data && len > 0 {
                progress.advance(len);
                at += len;
                continue;
            }
            let len = PIECE.max(block).min(end - at);
            buffer.resize(to_usize(len), 0);
            if let Err(error) = store.device.read_at(at, &mut buffer) {
                self.read_singly(at, &mut buffer, searches, &error);
            }
            for (index, bytes) in buffer.chunks_exact(store.block_size.bytes()).enumerate() {
                if is_zero(&bytes[..64]) {
                    continue;
                }
                let paddr = Paddr(at / block + index as u64);
                unassigned += u64::from(!self.leaf(bytes, paddr, owners, searches));
            }
            progress.advance(len);
            searched += len;
            at += len;
        }
        Ok((searched, unassigned))
    }

    /// Reads a piece block by block; those that cannot be read become zeros.
    fn read_singly(
        &self,
        at: u64,
        buffer: &mut [u8],
        searches: &mut [VolumeSearch],
        error: &Error,
    ) {
        let store = &self.container.store;
        let size = store.block_size.bytes();
        for (index, block) in buffer.chunks_mut(size).enumerate() {
            if store
                .device
                .read_at(at + (index * size) as u64, block)
                .is_err()
            {
                block.fill(0);
            }
        }
        for search in searches {
            search.problem(error.duplicate());
        }
    }

    /// Adds the records of the leaf in a block, if it is one. Returns false if its volume is unknown.
    fn leaf(
        &self,
        bytes: &[u8],
        paddr: Paddr,
        owners: &NodeOwners,
        searches: &mut [VolumeSearch],
    ) -> bool {
        if let Some(found) = nodes::leaf(bytes, paddr, None) {
            // A later transaction is of another container that was in the same place.
            if found.xid > self.container.checkpoint() {
                return true;
            }
            let Some(number) = owners.of(found.node.oid) else {
                return false;
            };
            for (volume, search) in self.volumes.iter().zip(searches) {
                if volume.number == number {
                    search
                        .found
                        .add(&found, volume.hashed, search.live.as_ref());
                }
            }
            return true;
        }
        for (volume, search) in self.volumes.iter().zip(searches) {
            if let Some(cipher) = &volume.cipher
                && let Some(found) = nodes::leaf(bytes, paddr, Some(&**cipher))
            {
                search
                    .found
                    .add(&found, volume.hashed, search.live.as_ref());
                break;
            }
        }
        true
    }
}

impl VolumeSearch {
    fn problem(&mut self, error: Error) {
        if self.summary.problems.len() < MAX_PROBLEMS {
            self.summary.problems.push(error);
        }
    }
}

impl VolumeToSearch {
    /// Reads the objects that exist.
    fn begin(&self, container: &Arc<Container>, progress: &dyn Progress) -> Result<VolumeSearch> {
        let mut search = VolumeSearch::default();
        let apfs = match &self.opened {
            Ok(apfs) => apfs,
            Err(error) => {
                search.summary.is_damaged = true;
                search.problem(error.duplicate());
                return Ok(search);
            }
        };
        let mut live = LiveObjects::default();
        match live.add(&apfs.files, progress) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => {
                search.summary.is_damaged = true;
                search.problem(error);
                return Ok(search);
            }
        }
        for snapshot in container.snapshots(&self.raw).unwrap_or_default() {
            let added = apfs
                .open_snapshot(&snapshot.name)
                .and_then(|snapshot| live.add(&snapshot.files, progress));
            match added {
                Ok(()) => {}
                Err(error) if error.kind() == Kind::Cancelled => return Err(error),
                Err(error) => search.problem(error.named(snapshot.name)),
            }
        }
        live.sort();
        search.live = Some(live);
        Ok(search)
    }

    fn assemble(
        &self,
        container: &Arc<Container>,
        search: &mut VolumeSearch,
        progress: &dyn Progress,
        each: &mut EachOfVolume<'_>,
    ) -> Result<()> {
        let store = &container.store;
        let free = match FreeOrQueued::open(container) {
            Ok(map) => Some(Box::new(map) as Box<dyn FreeMap>),
            Err(error) => {
                search.problem(error);
                None
            }
        };
        let mut judge = Judge {
            free,
            device: store.device.clone(),
            block_size: store.block_size.get().into(),
            start: 0,
            end: store.offset(Paddr(store.blocks)),
            is_damaged: search.summary.is_damaged,
            claimed: BlockSet::default(),
        };
        let assembler = Assembler {
            store,
            cipher: self.cipher.as_ref(),
            found: &search.found,
            hashed: self.hashed,
        };
        let tree = self.opened.as_ref().ok().map(|apfs| &apfs.files);
        let mut paths = FolderPaths {
            live: tree.zip(search.live.as_ref()),
            found: &search.found,
            known: KnownPaths::new(FileId::ROOT.0),
        };
        let mut reader = NodeReader {
            store,
            cipher: self.cipher.as_deref(),
            last: None,
        };
        let newest = search.found.newest();
        progress.stage("judge", newest.len() as u64);
        for record in &newest {
            progress.check()?;
            progress.advance(1);
            let file = assembler.file(record, &mut judge, &mut paths, &mut reader)?;
            if let Some(file) = file {
                search.summary.files += 1;
                each(self.number, file)?;
            }
        }
        Ok(())
    }
}
