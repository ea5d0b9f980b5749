//! Changes of a volume as a whole: its length, its journal.

use std::sync::Arc;

use super::volume::{Volume, VolumeFormat};
use crate::device::BlockDevice;
use crate::fs::ResizeVolume;
use crate::fs::apfs::{Container, ContainerMut};
use crate::fs::hfsplus::{self, HfsPlusMut};
use crate::{Error, Result};

const LAYER: &str = "volume";

impl Volume {
    /// Opens the volume for resizing, on `device` if that is longer than its partition.
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if its format cannot be resized.
    pub(crate) fn open_resizable(
        &self,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Box<dyn ResizeVolume>> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => {
                if hfsplus::probe(&*device)? == Some(hfsplus::Probed::Wrapped) {
                    let message = "cannot resize an HFS+ volume in an HFS wrapper; copy its files \
                                   to a new image";
                    return Err(Error::unsupported(LAYER, message).named(self.place()));
                }
                Ok(Box::new(HfsPlusMut::open(device, self.write_options())?))
            }
            VolumeFormat::Apfs => {
                let container = Container::open(device, self.checkpoint)?.with_writer(&self.writer);
                Ok(Box::new(ContainerMut::open(&Arc::new(container))?))
            }
            other => Err(
                Error::unsupported(LAYER, format!("resizing {other} is not supported"))
                    .named(self.place()),
            ),
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
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => {
                HfsPlusMut::open(self.device().clone(), self.write_options())
            }
            other => Err(Error::unsupported(
                LAYER,
                format!("{other} has no journal to enable or disable"),
            )
            .named(self.place())),
        }
    }
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
