//! The check of a volume: its tables agree, every file has its clusters to itself and as many as its size
//! needs, and names are whole and different.

use std::collections::HashSet;
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use zerocopy::FromBytes;

use super::directory::{DirectoryItem, FatEntry, Items};
use super::layout::{INFO_LEAD, INFO_SIGNATURE, InfoRaw, ShortEntryRaw};
use super::{FatVolume, LAYER, free_map, stated_len, table_of};
use crate::FreeMap;
use crate::clusters::{
    ClusterFindings, ClusterOwners, DirectoryPlace, FIRST, OwnedClusters, TableEntry, path_of,
};

/// Number of entries that are compared at a time; even.
const PER_PIECE: u64 = 1 << 14;

/// Returns the problems of a volume. An error is damage that prevents any check.
///
/// Memory grows with the number of folders and, by a bit each, of clusters. Contents have no checksums
/// and are not read.
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    progress.stage("folders", 0);
    let volume = FatVolume::open(device.clone())?;
    let mut found = ClusterFindings::new(LAYER, progress);
    if stated_len(&*device)?.is_some_and(|len| len > device.info().len) {
        found.of_volume(Severity::Warning, "the volume is longer than its partition")?;
    }
    if !free_map(device)?.is_in_order() {
        let message = "the volume was not cleanly unmounted, or records an error of the medium";
        found.of_volume(Severity::Warning, message)?;
    }
    compare_tables(&volume, &mut found)?;
    compare_boot_sectors(&volume, &mut found)?;
    let mut check = FolderCheck {
        owners: ClusterOwners::new(&volume.space)?,
        ahead: Vec::new(),
        volume: &volume,
        found: &mut found,
    };
    check.run()?;
    let owners = check.owners;
    check_table(&volume, &owners, &mut found)?;
    Ok(found.into_problems())
}

/// Compares the tables that are maintained with each other, and the first byte with the boot sector.
fn compare_tables(volume: &FatVolume, found: &mut ClusterFindings<'_>) -> Result<()> {
    let boot = &volume.boot;
    let tables: Vec<_> = boot
        .tables
        .clone()
        .map(|number| table_of(volume.space.device.clone(), boot, number))
        .collect();
    let Some((one, others)) = tables.split_first() else {
        return Ok(());
    };
    let media = one.entries(0, 1)?.first().copied().unwrap_or_default() & 0xFF;
    if media != u32::from(boot.media) {
        let message = format!(
            "the table begins with {media:#04x}, but the boot sector with {:#04x}",
            boot.media
        );
        found.of_volume(Severity::Warning, message)?;
    }
    for other in others {
        let (mut differ, mut first_differs) = (0_u64, 0);
        let end = boot.clusters + FIRST;
        for first in (FIRST..end).step_by(usize::try_from(PER_PIECE).unwrap_or(usize::MAX)) {
            let count = usize::try_from((end - first).min(PER_PIECE)).unwrap_or_default();
            let (a, b) = (one.entries(first, count)?, other.entries(first, count)?);
            for (cluster, _) in (first..).zip(a.iter().zip(&b)).filter(|(_, (a, b))| a != b) {
                if differ == 0 {
                    first_differs = cluster;
                }
                differ += 1;
            }
        }
        if differ > 0 {
            let message = format!(
                "the copies of the table differ for {differ} clusters, the first of which is \
                 {first_differs}"
            );
            found.of_volume(Severity::Damage, message)?;
        }
    }
    Ok(())
}

/// Compares the boot sector of FAT32 with its copy, as far as readers need it.
fn compare_boot_sectors(volume: &FatVolume, found: &mut ClusterFindings<'_>) -> Result<()> {
    let Some(copy) = volume.boot.copy_at else {
        return Ok(());
    };
    // The flags change while the volume is in use.
    const COMPARED: usize = 0x40;
    let device = &volume.space.device;
    let (one, other) = (
        device.read_array::<COMPARED>(0)?,
        device.read_array::<COMPARED>(copy)?,
    );
    if one != other {
        found.of_volume(Severity::Warning, "the boot sector differs from its copy")?;
    }
    Ok(())
}

/// Compares the table with the clusters that files own, and the free count with the table.
fn check_table(
    volume: &FatVolume,
    owners: &ClusterOwners,
    found: &mut ClusterFindings<'_>,
) -> Result<()> {
    let (mut free, mut lost, mut first_lost) = (0_u64, 0_u64, 0);
    volume.space.table.each(|cluster, link| {
        match link {
            TableEntry::Free => free += 1,
            TableEntry::Bad => {}
            _ if owners.has(cluster) => {}
            _ => {
                if lost == 0 {
                    first_lost = cluster;
                }
                lost += 1;
            }
        }
        Ok(())
    })?;
    if lost > 0 {
        let message = format!(
            "{lost} clusters are marked as used and belong to no file, the first of which is \
             {first_lost}"
        );
        found.of_volume(Severity::Warning, message)?;
    }
    let Some(at) = volume.boot.info_at else {
        return Ok(());
    };
    let bytes = volume
        .space
        .device
        .read_array::<{ size_of::<InfoRaw>() }>(at)?;
    let Ok(info) = InfoRaw::read_from_bytes(&bytes) else {
        return Ok(());
    };
    if info.lead.get() != INFO_LEAD || info.signature.get() != INFO_SIGNATURE {
        return found.of_volume(Severity::Warning, "the sector FSInfo has no signature");
    }
    let recorded = info.free.get();
    if recorded != u32::MAX && u64::from(recorded) != free {
        let message = format!("FSInfo counts {recorded} free clusters, the table has {free}");
        found.of_volume(Severity::Warning, message)?;
    }
    Ok(())
}

/// A folder that is still to be checked.
struct Folder {
    path: String,
    place: DirectoryPlace,
    /// Its first cluster, and that of its parent as the entry `..` has it. `None`: the root.
    dots: Option<(u64, u64)>,
}

struct FolderCheck<'a, 'b> {
    volume: &'a FatVolume,
    owners: ClusterOwners,
    ahead: Vec<Folder>,
    found: &'a mut ClusterFindings<'b>,
}

impl FolderCheck<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let place = self.volume.root.clone();
        let owned = self.owners.take_directory(&self.volume.space, &place)?;
        let path = "/".to_owned();
        if let Some(problem) = owned.problem {
            self.found.failed(&path, problem)?;
        }
        self.ahead.push(Folder {
            path,
            place,
            dots: None,
        });
        while let Some(folder) = self.ahead.pop() {
            self.found.advance()?;
            if self.found.is_full() {
                break;
            }
            if let Err(error) = self.check_folder(&folder) {
                self.found.failed(&folder.path, error)?;
            }
        }
        Ok(())
    }

    fn check_folder(&mut self, folder: &Folder) -> Result<()> {
        let mut items = Items::new(&self.volume.space, &folder.place)?;
        let (mut names, mut short_names) = (HashSet::new(), HashSet::new());
        let mut dots = Vec::new();
        let mut labels = 0;
        let mut end = Ok(());
        loop {
            match items.read_next() {
                Ok(Some(DirectoryItem::Entry(entry))) => {
                    let path = path_of(&folder.path, &entry.name);
                    let is_new = names.insert(entry.name.to_uppercase());
                    if !is_new || !short_names.insert(entry.raw.name) {
                        let message = "another entry of the folder has the same name";
                        self.found.of_path(Severity::Damage, &path, message)?;
                    }
                    self.check_entry(folder, path, &entry)?;
                }
                Ok(Some(DirectoryItem::Dot(raw))) => dots.push(raw),
                Ok(Some(DirectoryItem::Label(_))) => labels += 1,
                Ok(None) => break,
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        let most_labels = usize::from(folder.dots.is_none());
        if labels > most_labels {
            let message = format!("the folder has {labels} labels of the volume");
            self.found
                .of_path(Severity::Warning, &folder.path, message)?;
        }
        if items.strays() > 0 {
            let message = format!("{} parts of long names belong to no entry", items.strays());
            self.found
                .of_path(Severity::Warning, &folder.path, message)?;
        }
        self.check_dots(folder, &dots)?;
        end
    }

    fn check_dots(&mut self, folder: &Folder, dots: &[ShortEntryRaw]) -> Result<()> {
        let width = self.volume.boot.width;
        let is_right = match (folder.dots, dots) {
            (None, []) => true,
            (Some((own, parent)), [one, two]) => {
                let to_root = folder.path.matches('/').count() == 1;
                let up = two.first(width);
                one.name[1] == b' '
                    && one.first(width) == own
                    && (up == parent || to_root && Some(up) == self.volume.boot.root)
            }
            _ => false,
        };
        if !is_right {
            let message = "the entries `.` and `..` are missing or lead elsewhere";
            self.found
                .of_path(Severity::Warning, &folder.path, message)?;
        }
        Ok(())
    }

    fn check_entry(&mut self, folder: &Folder, path: String, entry: &FatEntry) -> Result<()> {
        let (space, raw) = (&self.volume.space, &entry.raw);
        let (first, size) = (raw.first(self.volume.boot.width), u64::from(raw.size.get()));
        if raw.is_directory() {
            let place = match self.volume.place_of(entry) {
                Ok(place) => place,
                Err(error) => return self.found.failed(&path, error),
            };
            if size != 0 {
                let message = format!("the folder has a size of {size} bytes, expected 0");
                self.found.of_path(Severity::Warning, &path, message)?;
            }
            let owned = self.owners.take_directory(space, &place)?;
            let count = owned.count;
            self.report(&path, owned)?;
            if count > 0 {
                let parent = folder.dots.map_or(0, |(own, _)| own);
                self.ahead.push(Folder {
                    path,
                    place,
                    dots: Some((first, parent)),
                });
            }
            return Ok(());
        }
        if first == 0 && size == 0 {
            return Ok(());
        }
        let owned = self.owners.take_chain(space, first)?;
        let (needed, count) = (space.clusters_for(size), owned.count);
        let is_whole = owned.problem.is_none();
        self.report(&path, owned)?;
        if is_whole && count != needed {
            let severity = match count < needed {
                true => Severity::Damage,
                false => Severity::Warning,
            };
            let message = format!("has {count} clusters, expected {needed} for {size} bytes");
            self.found.of_path(severity, &path, message)?;
        }
        Ok(())
    }

    fn report(&mut self, path: &str, owned: OwnedClusters) -> Result<()> {
        match owned.problem {
            Some(problem) => {
                let error = problem.about(Subject::Path(path.to_owned()));
                self.found.add(Severity::Damage, error)
            }
            None => Ok(()),
        }
    }
}
