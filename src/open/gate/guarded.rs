//! Disks that are open for changes and whose stored data past the end is accounted for before their
//! length changes, which removes or overwrites that data.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::leftovers::{check_excess, check_leftovers, check_past_end};
use crate::container::asif::Asif;
use crate::container::sparsebundle::Bundle;
use crate::container::sparseimage::SparseImage;
use crate::crypt;
use crate::decision::{Alternative, Undecided};
use crate::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::open::OpenOptions;
use crate::progress::Silent;
use crate::{Error, Result};

/// A device whose length changes only after a check.
pub(in crate::open) struct Guarded<D> {
    device: Arc<D>,
    /// Checks the device before it gets this length.
    check: fn(&Arc<D>, u64) -> Result<()>,
}

impl Guarded<Bundle> {
    /// Returns a sparse bundle whose files past the end are checked.
    pub(in crate::open) fn bundle(bundle: Arc<Bundle>) -> Self {
        let check = |bundle: &Arc<Bundle>, len| {
            let disk: Arc<dyn BlockDevice> = bundle.clone();
            check_leftovers(bundle, &disk, &OpenOptions::default(), &Silent)?;
            check_excess(bundle, len, &Silent)
        };
        Self {
            device: bundle,
            check,
        }
    }
}

impl Guarded<SparseImage> {
    /// Returns a sparse image whose bands past the end are checked.
    pub(in crate::open) fn sparse_image(image: Arc<SparseImage>) -> Self {
        let check = |image: &Arc<SparseImage>, len| match len > image.info().len {
            true => {
                let disk: Arc<dyn BlockDevice> = image.clone();
                check_past_end(&disk, &image.orphans()?, "sparse image")
            }
            false => Ok(()),
        };
        Self {
            device: image,
            check,
        }
    }
}

impl Guarded<Asif> {
    /// Returns an ASIF image whose chunks past the end are checked.
    pub(in crate::open) fn asif(image: Arc<Asif>) -> Self {
        let check = |image: &Arc<Asif>, len| match len > image.info().len {
            true => {
                let disk: Arc<dyn BlockDevice> = image.clone();
                check_past_end(&disk, &image.orphans()?, "ASIF")
            }
            false => Ok(()),
        };
        Self {
            device: image,
            check,
        }
    }
}

impl Guarded<crypt::Device> {
    /// Returns the contents of an encrypted file, for a disk that has no structure of its own. Data past
    /// the end is not overwritten.
    pub(in crate::open) fn encrypted(device: Arc<crypt::Device>) -> Self {
        let check = |device: &Arc<crypt::Device>, len| {
            let recorded = device.info().len;
            if len <= recorded {
                return Ok(());
            }
            let end = device.data_past_end()?;
            end.map_or(Ok(()), |end| Err(past_end(recorded, end)))
        };
        Self { device, check }
    }
}

/// Returns the error about an encrypted file whose header records fewer bytes of data than it stores.
fn past_end(recorded: u64, stored: u64) -> Error {
    let what = format!(
        "the header records {recorded} bytes of data, and the file stores {} more, which a larger \
         disk would overwrite",
        stored - recorded
    );
    let alternative = |len, evidence: &str| Alternative {
        assume: format!("size={len}"),
        evidence: evidence.to_owned(),
    };
    let alternatives = vec![
        alternative(stored, "the file stores as many bytes"),
        alternative(recorded, "the header records it; the others are removed"),
    ];
    Undecided { what, alternatives }.into_error("encrypted image")
}

impl<D: fmt::Debug> fmt::Debug for Guarded<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guarded").field(&self.device).finish()
    }
}

impl<D: BlockDevice> BlockDevice for Guarded<D> {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.device.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.device.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.device.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        if len != self.device.info().len {
            (self.check)(&self.device, len)?;
        }
        self.device.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.device.file_range(range)
    }
}
