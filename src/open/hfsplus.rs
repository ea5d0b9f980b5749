//! HFS+ volumes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::apfs::VolumeQuery;
use super::driver::{Driver, Headers, refuse_snapshot, unsupported};
use super::quick_check::NodeLimit;
use super::unlock::Keys;
use super::volume::Volume;
use crate::decision::CopyChoice;
use crate::device::{BlockDevice, Spill};
use crate::fs::hfsplus::{self, HfsPlus, HfsPlusFree, HfsPlusMut, WriteOptions};
use crate::fs::{FileSystem, FileSystemMut, FreeMap, ResizeVolume};
use crate::problem::{Problem, Problems};
use crate::progress::{Progress, Silent};
use crate::{Error, Result};

/// HFS+ and HFSX.
#[derive(Debug)]
pub(super) struct HfsPlusDriver;

impl Driver for HfsPlusDriver {
    fn open(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        refuse_snapshot(volume, wanted)?;
        let opened = HfsPlus::open_with(volume.device().clone(), volume.cache)?;
        Ok(Arc::new(opened.system_files(volume.system_files)))
    }

    fn open_mut(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        Ok(Arc::new(open_mut(volume)?))
    }

    fn open_resizable(
        &self,
        volume: &Volume,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Box<dyn ResizeVolume>> {
        if hfsplus::probe(&*device)? == Some(hfsplus::Probed::Wrapped) {
            let message = "cannot resize an HFS+ volume in an HFS wrapper; copy its files to a \
                           new image";
            return Err(unsupported(volume, message));
        }
        Ok(Box::new(HfsPlusMut::open(device, volume.write_options())?))
    }

    fn check(
        &self,
        volume: &Volume,
        _keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        let checked = hfsplus::check(volume.device().clone(), progress);
        Some(checked.map(|found| {
            for Problem { severity, error } in found {
                problems.add(severity, error.in_file(volume.place()));
            }
            Vec::new()
        }))
    }

    fn quick_check(&self, volume: &Volume, budget: &NodeLimit) -> Result<Vec<Problem>> {
        hfsplus::check_within(volume.device().clone(), budget)
    }

    fn compare_headers(&self, volume: &Volume) -> Result<Headers> {
        let place = volume.place();
        let compared = hfsplus::compare_headers(volume.device().clone(), &Silent)?;
        Ok(match compared {
            None => Headers::Agree,
            Some(CopyChoice::Primary) => Headers::Confirmed(format!(
                "the alternate volume header on {place} differs from the first, with which the volume agrees: run `bandsaw repair` to restore it"
            )),
            Some(CopyChoice::Alternate) => Headers::Differ(format!(
                "the volume headers on {place} differ, and the volume agrees with the alternate: run `bandsaw repair` first"
            )),
        })
    }

    fn stated_len(&self, volume: &Volume) -> Result<Option<u64>> {
        hfsplus::stated_len(&**volume.device())
    }

    fn recorded_len(&self, volume: &Volume) -> Result<Option<u64>> {
        HfsPlus::open(volume.device().clone()).map(|fs| Some(fs.volume().total))
    }

    fn free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(Some(Arc::new(HfsPlusFree::open(volume.device().clone())?)))
    }

    fn trusted_free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        let opened = HfsPlus::open(volume.device().clone())?;
        Ok(Some(Arc::new(opened.trusted_free_map()?)))
    }

    fn own_ranges(&self, volume: &Volume) -> Result<Vec<Range<u64>>> {
        HfsPlus::open(volume.device().clone())?.own_ranges()
    }
}

impl Volume {
    /// Plans the repair of a damaged HFS+ volume. `None`: repair of this format is not supported, or
    /// there is nothing to do. `header` selects the volume header if the two disagree and the
    /// remaining evidence does not decide. Changes that do not fit in memory go to an unlinked file
    /// in the folder `temporary`.
    pub(crate) fn plan_repair(
        &self,
        header: Option<CopyChoice>,
        temporary: &Path,
        progress: &dyn Progress,
    ) -> Result<Option<hfsplus::Repair>> {
        if !self.format.is_hfs_plus() {
            return Ok(None);
        }
        let spill = Arc::new(Spill::to(temporary.to_owned()));
        let device = self.device().clone();
        let repair = hfsplus::Repair::plan_on(device, header, &spill, progress)?;
        Ok(repair.is_needed().then_some(repair))
    }

    /// Replays the volume's journal, as opening it for writing does.
    pub fn replay_journal(&self) -> Result<()> {
        if self.format.is_hfs_plus() {
            open_mut(self)?.unmount()
        } else {
            Ok(())
        }
    }

    /// Adds a persistent journal of `size` bytes, or of the size that Apple's formatter chooses.
    /// [`Kind::Conflict`](crate::Kind::Conflict) if the volume has one.
    pub fn enable_journal(&self, size: Option<u64>) -> Result<()> {
        self.open_hfs_plus()?.enable_journal(size)
    }

    /// Removes the volume's journal after replaying it. [`Kind::NotFound`](crate::Kind::NotFound)
    /// if it has none.
    pub fn disable_journal(&self) -> Result<()> {
        self.open_hfs_plus()?.disable_journal()
    }

    fn open_hfs_plus(&self) -> Result<HfsPlusMut> {
        self.check_before_change()?;
        if !self.format.is_hfs_plus() {
            let message = format!("{} has no journal to enable or disable", self.format);
            return Err(unsupported(self, message));
        }
        open_mut(self)
    }

    /// Returns the options for opening it for changes.
    fn write_options(&self) -> WriteOptions {
        WriteOptions {
            cache: self.cache,
            system_files: self.system_files,
            now: self.now,
        }
    }
}

fn open_mut(volume: &Volume) -> Result<HfsPlusMut> {
    HfsPlusMut::open(volume.device().clone(), volume.write_options())
}

#[cfg(test)]
mod tests {
    use crate::device::{Access, Memory};
    use crate::fs::hfsplus::HfsPlus;
    use crate::fs::hfsplus::build::{Options, Plan};
    use crate::fs::source::{SourceKind, SourceNode, Tree};
    use crate::fs::{FileSystem, FileSystemExt, FileSystemMut, NewKind, NewNode, Timestamp};
    use crate::open::{OpenOptions, open};
    use crate::progress::Silent;

    /// Memory use is bounded by the options, independent of the number of files and operations.
    #[test]
    fn memory_is_what_the_options_say() {
        let mut tree = Tree::empty(Timestamp::from_seconds(1_700_000_000));
        for number in 0..6000 {
            let root = tree.nodes[0].clone();
            let name = format!("a file with a name that is not all that short {number}");
            tree.nodes.push(SourceNode {
                name: name.into(),
                kind: SourceKind::Symlink("nowhere".into()),
                ..root
            });
        }
        let options = Options {
            name: "Many".into(),
            case_sensitive: false,
            journaled: false,
            block_size: None,
            created: Timestamp::from_seconds(1_700_000_000),
            latest: None,
            opens: false,
            identifier: 1,
        };
        let device = Memory::zeros(64 << 20);
        Plan::new(tree, options)
            .unwrap()
            .build(&device, &Silent)
            .unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("many.img");
        std::fs::write(&path, device.to_vec()).unwrap();

        let mut all = 0;
        for cache in [64 << 20, 256 << 10, 0] {
            let image = open(
                &path,
                &OpenOptions {
                    access: Access::ReadWrite,
                    cache,
                    ..OpenOptions::default()
                },
            )
            .unwrap();
            let volume = &image.volumes()[0];
            let read = HfsPlus::open_with(volume.device().clone(), volume.cache).unwrap();
            assert_eq!(
                read.entries(read.root()).unwrap().len(),
                6000 + usize::from(all > 0)
            );
            let changed = volume.open_hfs_plus().unwrap();
            assert_eq!(
                changed.entries(changed.root()).unwrap().len(),
                6000 + usize::from(all > 0)
            );
            if all == 0 {
                changed
                    .create(changed.root(), "one more", &NewNode::new(NewKind::File))
                    .unwrap();
            }
            // A few nodes of each of the two trees.
            let most = cache.max(2 * 16 * 8192);
            for cached in [read.cached(), changed.cached()] {
                all = all.max(cached);
                assert!(
                    cached <= most,
                    "{cached} bytes are in memory, {most} may be"
                );
                assert!(
                    cached >= most.min(all) / 4,
                    "{cached} bytes in memory of {most} that may be are used"
                );
            }
            drop(read);
            changed.unmount().unwrap();
        }
        assert!(all > 1 << 20, "{all} bytes are all there is");
    }
}
