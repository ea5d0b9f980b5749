//! The check of a volume: its boot regions, bitmap and up-case table, and every file: it has its clusters to
//! itself, as many as its length needs, and whole entries.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;

use super::directory::{DirectoryItem, EntrySet, Items};
use super::file_system::directory_of;
use super::free::bitmap_clusters;
use super::layout::{
    BootRaw, CHANGING, REGION_SECTORS, StreamRaw, attributes, flags, name_hash, stream_flags,
    table_sum,
};
use super::upcase::UpcaseTable;
use super::{ExFatVolume, LAYER, Structures, check_sum, read_upcase};
use crate::clusters::{
    ClusterFindings, ClusterOwners, DirectoryPlace, FIRST, OwnedClusters, TableEntry, path_of,
};

/// Bytes of the bitmap that are compared at a time.
const PIECE: usize = 64 << 10;
/// The last bytes of the sectors after the first one of a boot region.
const EXTENDED_SIGNATURE: [u8; 4] = [0, 0, 0x55, 0xAA];

/// Returns the problems of a volume. An error is damage that prevents any check.
///
/// Memory grows with the number of folders and, by a bit each, of clusters. Contents have no checksums
/// and are not read.
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    progress.stage("folders", 0);
    let volume = ExFatVolume::open(device)?;
    let mut found = ClusterFindings::new(LAYER, progress);
    if volume.boot.flags & (flags::DIRTY | flags::FAILED) != 0 {
        let message = "the volume was not cleanly unmounted, or records an error of the medium";
        found.of_volume(Severity::Warning, message)?;
    }
    check_boot_regions(&volume, &mut found)?;
    let structures = Structures::read(&volume.space, &volume.boot, false)?;
    let mut owners = ClusterOwners::new(&volume.space)?;
    for (what, first) in [
        ("bitmap", structures.bitmap.first.get()),
        ("up-case table", structures.upcase.first.get()),
        (
            "root directory",
            volume.boot.root.try_into().unwrap_or_default(),
        ),
    ] {
        let owned = owners.take_chain(&volume.space, first.into())?;
        if let Some(problem) = owned.problem {
            let message = format!("the {what} {}", problem.message());
            found.of_volume(Severity::Damage, message)?;
        }
    }
    let table = read_upcase(&volume.space, &structures.upcase).and_then(|bytes| {
        let sum = table_sum(&bytes);
        Ok((UpcaseTable::decode(&bytes)?, sum))
    });
    match table {
        Err(error) => found.add(Severity::Damage, error)?,
        Ok((_, sum)) if sum != structures.upcase.upcase_sum() => {
            let message = format!("checksum mismatch of the up-case table: expected {sum:#010x}");
            found.of_volume(Severity::Damage, message)?;
        }
        Ok(_) => {}
    }
    let mut check = FolderCheck {
        owners,
        ahead: vec![("/".to_owned(), volume.root.clone())],
        volume: &volume,
        found: &mut found,
    };
    check.run()?;
    let owners = check.owners;
    match bitmap_clusters(&volume.space, &structures.bitmap) {
        Err(error) => found.add(Severity::Damage, error)?,
        Ok(bitmap) => compare_bitmap(&volume, &bitmap.contents, &owners, &mut found)?,
    }
    Ok(found.into_problems())
}

/// Compares the boot region with its copy, without the fields that change while the volume is in use.
fn check_boot_regions(volume: &ExFatVolume, found: &mut ClusterFindings<'_>) -> Result<()> {
    let (device, boot) = (&volume.space.device, &volume.boot);
    if let Err(error) = check_sum(&**device, boot, REGION_SECTORS) {
        found.add(Severity::Warning, error)?;
    }
    let read = |first: u64| -> Result<[u8; size_of::<BootRaw>()]> {
        let mut bytes: [u8; size_of::<BootRaw>()] = device.read_array(first * boot.sector)?;
        CHANGING.into_iter().for_each(|range| bytes[range].fill(0));
        Ok(bytes)
    };
    if read(0)? != read(REGION_SECTORS)? {
        found.of_volume(Severity::Warning, "the boot sector differs from its copy")?;
    }
    for region in [0, REGION_SECTORS] {
        for sector in region + 1..region + 9 {
            let end: [u8; 4] = device.read_array((sector + 1) * boot.sector - 4)?;
            if end != EXTENDED_SIGNATURE {
                let message = format!("sector {sector} of the boot regions has no signature");
                found.of_volume(Severity::Warning, message)?;
            }
        }
    }
    Ok(())
}

/// Compares the bitmap with the clusters that files own.
fn compare_bitmap(
    volume: &ExFatVolume,
    bitmap: &dyn BlockDevice,
    owners: &ClusterOwners,
    found: &mut ClusterFindings<'_>,
) -> Result<()> {
    let (mut lost, mut first_lost) = (0_u64, 0);
    let (mut free, mut first_free) = (0_u64, 0);
    let mut at = 0_u64;
    for owned in owners.bits().chunks(PIECE) {
        let stored = bitmap.read_vec(at, owned.len())?;
        for (number, (&owned, &stored)) in (at..).zip(owned.iter().zip(&stored)) {
            for bit in (0..8).filter(|bit| (owned ^ stored) & 1 << bit != 0) {
                let cluster = number * 8 + bit + FIRST;
                if owned & 1 << bit != 0 {
                    first_free = if free == 0 { cluster } else { first_free };
                    free += 1;
                // Bad clusters are marked as used, so that nothing is stored in them.
                } else if volume.space.has(cluster)
                    && volume.space.table.link(cluster)? != TableEntry::Bad
                {
                    first_lost = if lost == 0 { cluster } else { first_lost };
                    lost += 1;
                }
            }
        }
        at += owned.len() as u64;
    }
    if free > 0 {
        let message = format!(
            "{free} clusters of files are marked as free, the first of which is {first_free}"
        );
        found.of_volume(Severity::Damage, message)?;
    }
    if lost > 0 {
        let message = format!(
            "{lost} clusters are marked as used and belong to no file, the first of which is \
             {first_lost}"
        );
        found.of_volume(Severity::Warning, message)?;
    }
    Ok(())
}

/// Returns a number for a name: a folder may have names of 256 MiB, which are not kept.
fn hash_of(capitals: &[u16]) -> u64 {
    let mut hasher = DefaultHasher::new();
    capitals.hash(&mut hasher);
    hasher.finish()
}

struct FolderCheck<'a, 'b> {
    volume: &'a ExFatVolume,
    owners: ClusterOwners,
    /// Folders that are still to be checked, with their paths.
    ahead: Vec<(String, DirectoryPlace)>,
    found: &'a mut ClusterFindings<'b>,
}

impl FolderCheck<'_, '_> {
    fn run(&mut self) -> Result<()> {
        while let Some((path, place)) = self.ahead.pop() {
            self.found.advance()?;
            if self.found.is_full() {
                break;
            }
            if let Err(error) = self.check_folder(&path, &place) {
                self.found.failed(&path, error)?;
            }
        }
        Ok(())
    }

    fn check_folder(&mut self, folder: &str, place: &DirectoryPlace) -> Result<()> {
        let mut items = Items::new(&self.volume.space, place)?;
        let mut names = HashSet::new();
        let is_root = folder == "/";
        while let Some(item) = items.read_next()? {
            match item {
                DirectoryItem::Set(set) => {
                    let path = path_of(folder, &set.name());
                    let upcase = self.volume.upcase();
                    let capitals: Vec<u16> =
                        set.units.iter().map(|&unit| upcase.capital(unit)).collect();
                    if name_hash(capitals.iter().copied()) != set.stream.name_hash.get() {
                        let message = "checksum mismatch of the name";
                        self.found.of_path(Severity::Warning, &path, message)?;
                    }
                    if !names.insert(hash_of(&capitals)) {
                        let message = "another entry of the folder has the same name";
                        self.found.of_path(Severity::Damage, &path, message)?;
                    }
                    self.check_set(path, &set)?;
                }
                DirectoryItem::Unreadable(offset, why) => {
                    let message = format!("at byte {offset} of the volume, {why}");
                    self.found.of_path(Severity::Damage, folder, message)?;
                }
                DirectoryItem::Bitmap(_) | DirectoryItem::Upcase(_) | DirectoryItem::Label(_)
                    if is_root => {}
                _ => {
                    let message = "an entry belongs to the root directory";
                    self.found.of_path(Severity::Warning, folder, message)?;
                }
            }
        }
        Ok(())
    }

    fn check_set(&mut self, path: String, set: &EntrySet) -> Result<()> {
        if let Some(fault) = set.fault {
            self.found.of_path(Severity::Damage, &path, fault)?;
        }
        for other in &set.others {
            self.claim_clusters(&path, other)?;
        }
        let stream = &set.stream;
        let (len, valid) = (stream.len.get(), stream.valid_len.get());
        if valid > len {
            let message = format!("has {valid} valid bytes of {len}");
            self.found.of_path(Severity::Damage, &path, message)?;
        }
        if set.file.attributes.get() & attributes::DIRECTORY == 0 {
            return self.claim_clusters(&path, stream).map(drop);
        }
        if valid != len || !len.is_multiple_of(self.volume.space.cluster_size) {
            let message = format!("the folder has {valid} valid bytes of {len}");
            self.found.of_path(Severity::Warning, &path, message)?;
        }
        let place = match directory_of(stream) {
            Ok(place) => place,
            Err(error) => return self.found.failed(&path, error),
        };
        if self.claim_clusters(&path, stream)? > 0 {
            self.ahead.push((path, place));
        }
        Ok(())
    }

    /// Takes the clusters of a stream, and returns their number.
    fn claim_clusters(&mut self, path: &str, stream: &StreamRaw) -> Result<u64> {
        let space = &self.volume.space;
        let (first, len) = (u64::from(stream.first.get()), stream.len.get());
        let needed = space.clusters_for(len);
        if first == 0 && len == 0 {
            return Ok(0);
        }
        let is_allocatable = stream.flags & stream_flags::ALLOCATABLE != 0;
        if !is_allocatable || len == 0 {
            let message = format!("has {len} bytes, and cluster {first}");
            self.found.of_path(Severity::Warning, path, message)?;
        }
        let owned: OwnedClusters = match stream.flags & stream_flags::CONTIGUOUS {
            0 => self.owners.take_chain(space, first)?,
            _ => self.owners.take_range(space, first, needed),
        };
        let count = owned.count;
        match owned.problem {
            Some(problem) => self.found.failed(path, problem)?,
            None if count != needed => {
                let severity = match count < needed {
                    true => Severity::Damage,
                    false => Severity::Warning,
                };
                let message = format!("has {count} clusters, expected {needed} for {len} bytes");
                self.found.of_path(severity, path, message)?;
            }
            None => {}
        }
        Ok(count)
    }
}
