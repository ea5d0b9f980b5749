//! Encrypted bundles of development versions before the first release. Their cipher counted its
//! blocks over the whole disk; macOS and this library count from 0 in every band.
//!
//! Both agree in band 0. Beyond it, self-identifying structures are read in both ways: the backup
//! GPT, the alternate header and the tree nodes of an HFS+ volume, the objects of an APFS
//! container. They are found by parsing the disk in the old numbering: for a bundle by macOS,
//! parsing ends at the first structure beyond band 0.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::apfs::VolumeQuery;
use super::volume::{self, Volume, VolumeFormat};
use super::{Layer, OpenOptions};
use crate::container::sparsebundle::Bundle;
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, FileRange, Info};
use crate::fs::FileSystem;
use crate::fs::apfs::layout::verify;
use crate::fs::hfsplus::{self, HfsPlus};
use crate::{Error, Result, partition};

const LAYER: &str = "sparse bundle";
/// Maximum number of ranges compared, for each volume and for the map.
const MOST_COMPARED: usize = 256;
/// Maximum number of nodes of each tree of an HFS+ volume that are read in addition to those that
/// opening it needs.
const MOST_NODES: u32 = 16;
/// Maximum number of entries of the root folder of a volume that are read.
const MOST_ENTRIES: usize = 1024;
/// Maximum length of a compared read, in bytes; structures are smaller.
const MOST_READ: usize = 1 << 20;
/// Bytes of a header.
const HEADER: usize = 512;

/// Returns the error about a bundle encrypted in the old numbering, `None` for any other. Returns
/// immediately for bundles that are not encrypted or have one band.
pub(super) fn find(bundle: &Arc<Bundle>) -> Option<Error> {
    if !bundle.has_other_numbering() {
        return None;
    }
    let found = look(bundle)?;
    let message = format!(
        "was encrypted by a development version of bandsaw, which counted cipher blocks over the whole disk; macOS counts them \
         from 0 in every band, and so does this version: of this bundle it reads the first band alone ({found} is valid in the \
         old count and not in this). Make the bundle again from its source"
    );
    Some(Error::unsupported(LAYER, message))
}

/// Refuses the bundle at `path` if it was encrypted in the old numbering. Bundles that fail to open
/// for another reason pass.
pub(crate) fn refuse(path: &Path, options: &OpenOptions<'_>) -> Result<()> {
    let (layers, _) = super::trace(path, options);
    let found = layers.iter().find_map(|layer| match layer {
        Layer::Bundle(bundle) => find(bundle),
        _ => None,
    });
    found.map_or(Ok(()), Err)
}

/// Returns the structure that is valid only in the old numbering, if any. Unreadable structures are
/// skipped.
fn look(bundle: &Arc<Bundle>) -> Option<String> {
    let old = Arc::new(Old {
        bundle: bundle.clone(),
        met: Mutex::default(),
    });
    let device: Arc<dyn BlockDevice> = old.clone();
    let map = partition::probe(&*device).ok().flatten();
    let len = device.info().len;
    for sector in [512, 4096] {
        touch(&*device, len.saturating_sub(sector), HEADER);
    }
    if old.gives_away(HEADER, |bytes| bytes.starts_with(b"EFI PART")) {
        return Some("the backup GPT".to_owned());
    }
    let volumes = volume::find(&device, map.as_ref()).ok()?;
    volumes.iter().find_map(|volume| {
        let what = match volume.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => look_at_hfs_plus(&old, volume)?,
            VolumeFormat::Apfs => look_at_apfs(&old, volume)?,
            _ => return None,
        };
        Some(format!("{what} of {}", volume.place()))
    })
}

fn look_at_hfs_plus(old: &Old, volume: &Volume) -> Option<&'static str> {
    let device = volume.device();
    let len = device.info().len;
    for at in hfsplus::header_places(len) {
        touch(&**device, at, HEADER);
    }
    if old.gives_away(HEADER, |bytes| hfsplus::is_volume_header(bytes, len)) {
        return Some("a volume header");
    }
    if let Ok(opened) = HfsPlus::open(device.clone()) {
        opened.touch_nodes(MOST_NODES);
        list_root(&opened);
    }
    old.gives_away(usize::MAX, hfsplus::is_node)
        .then_some("a tree node")
}

fn look_at_apfs(old: &Old, volume: &Volume) -> Option<&'static str> {
    let mut block = 4096;
    touch(&**volume.device(), 0, block);
    if let Ok(container) = volume.container() {
        block = container.block_size() as usize;
        let _ = container.free_map();
        for found in container.volumes().into_iter().flatten() {
            if let Ok(opened) = volume.open_within(Some(found.label.number), VolumeQuery::default())
            {
                list_root(&*opened);
            }
        }
    }
    old.gives_away(block, verify).then_some("an object")
}

/// Lists the root folder for the side effect of reading it.
fn list_root(fs: &dyn FileSystem) {
    let mut left = MOST_ENTRIES;
    let _ = fs.list(fs.root(), &mut |_| {
        left -= 1;
        Ok(if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    });
}

fn touch(device: &dyn BlockDevice, offset: u64, length: usize) {
    let _ = device.read_vec(offset, length);
}

/// The disk of a bundle in the old numbering, which records reads beyond band 0.
#[derive(Debug)]
struct Old {
    bundle: Arc<Bundle>,
    met: Mutex<Vec<Range<u64>>>,
}

impl Old {
    /// Checks the ranges read since the last call in units of at most `unit` bytes; returns true if
    /// one is valid in the old numbering and not in that of macOS.
    fn gives_away(&self, unit: usize, is_valid: impl Fn(&[u8]) -> bool) -> bool {
        let met = std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner));
        met.into_iter().any(|range| {
            let length = (range.end - range.start) as usize;
            let mut old = vec![0; length];
            let read = self.bundle.read_in_other_numbering(range.start, &mut old);
            let (Ok(true), Ok(new)) = (read, self.bundle.read_vec(range.start, length)) else {
                return false;
            };
            let unit = unit.min(length.max(1));
            old.chunks(unit)
                .zip(new.chunks(unit))
                .any(|(old, new)| is_valid(old) && !is_valid(new))
        })
    }
}

impl BlockDevice for Old {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.bundle.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.bundle.read_in_other_numbering(offset, buf)? {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            let range = offset..offset + buf.len() as u64;
            if met.len() < MOST_COMPARED && buf.len() <= MOST_READ && !met.contains(&range) {
                met.push(range);
            }
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        self.info().check_writable(LAYER)
    }

    fn discard(&self, _range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.bundle.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}
