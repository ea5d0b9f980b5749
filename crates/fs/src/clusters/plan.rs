//! The steps by which a volume of clusters is created, common to FAT and exFAT.

use std::fmt;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

use super::FIRST;
use super::build::{Allotment, PlacedFiles};
use crate::build::{blank, filling};
use crate::source::{SourceKind, Tree};
use crate::{NewVolumeInfo, PlacedContents, VolumePlan};

/// Largest sector in bytes.
const MAX_SECTOR: u64 = 4096;

/// A plan of a volume whose files get clusters before anything is written.
pub(crate) trait ClusterPlan: fmt::Debug + Send + Sync {
    /// The layer of errors.
    const LAYER: &'static str;
    /// The parts of a volume of some length.
    type LaidOut;

    fn tree(&self) -> &Tree;

    /// Returns the least length that holds the files, plus `room` of that length.
    fn len_with(&self, room: impl Fn(u64) -> u64) -> Result<u64>;

    /// Returns the parts of a volume of `len` bytes. Fails if it is too small.
    fn lay_out(&self, len: u64, sector: u64) -> Result<Self::LaidOut>;

    /// Returns the clusters of a volume.
    fn clusters<'a>(&self, laid: &'a Self::LaidOut) -> LaidOutClusters<'a>;

    /// Writes everything but the contents of files and the boot sector.
    fn write_metadata(&self, device: &dyn BlockDevice, laid: &Self::LaidOut) -> Result<()>;

    fn boot_sector(&self, laid: &Self::LaidOut) -> Vec<u8>;
}

/// The clusters of a volume that is laid out.
pub(crate) struct LaidOutClusters<'a> {
    pub(crate) allotment: &'a Allotment,
    /// Offset of the first cluster, in bytes.
    pub(crate) start: u64,
    /// Size of a cluster, in bytes.
    pub(crate) size: u64,
    pub(crate) count: u64,
}

fn lay_out_on<P: ClusterPlan>(plan: &P, device: &dyn BlockDevice) -> Result<P::LaidOut> {
    let info = device.info();
    info.check_writable(P::LAYER)?;
    let sector = u64::from(info.block).max(512);
    if sector > MAX_SECTOR {
        let message = format!("sectors of {sector} bytes are not supported");
        return Err(Error::unsupported(P::LAYER, message));
    }
    plan.lay_out(info.len, sector)
}

fn placed<'a, P: ClusterPlan>(plan: &'a P, laid: &P::LaidOut) -> PlacedFiles<'a> {
    let LaidOutClusters {
        allotment,
        start,
        size,
        ..
    } = plan.clusters(laid);
    PlacedFiles::new(plan.tree(), allotment, start, size)
}

/// Writes the boot sector when everything else is durable.
fn write_boot_sector<P: ClusterPlan>(
    plan: &P,
    device: &dyn BlockDevice,
    laid: &P::LaidOut,
) -> Result<NewVolumeInfo> {
    device.flush()?;
    device.write_at(0, &plan.boot_sector(laid))?;
    device.flush()?;
    let nodes = |are_folders: bool| {
        let nodes = plan.tree().nodes.iter().skip(1);
        nodes
            .filter(|node| (node.kind == SourceKind::Folder) == are_folders)
            .count() as u64
    };
    let clusters = plan.clusters(laid);
    Ok(NewVolumeInfo {
        len: device.info().len,
        block_size: narrow(clusters.size),
        files: nodes(false),
        folders: nodes(true),
        free: (clusters.count + FIRST - clusters.allotment.end) * clusters.size,
    })
}

impl<P: ClusterPlan> VolumePlan for P {
    fn minimum_len(&self) -> Result<u64> {
        self.len_with(|_| 0)
    }

    /// Returns the needed length plus a sixteenth, at least 4 MiB.
    fn comfortable_len(&self) -> Result<u64> {
        self.len_with(|least| (least / 16).max(4 << 20))
    }

    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<NewVolumeInfo> {
        let laid = lay_out_on(self, device)?;
        blank(device, &[0])?;
        let placed = placed(self, &laid);
        let range = PlacedContents::range(&placed);
        progress.stage("write", range.end - range.start);
        filling::fill(self.tree(), &placed, device, progress, || {
            self.write_metadata(device, &laid)
        })?;
        progress.check()?;
        write_boot_sector(self, device, &laid)
    }

    fn build_metadata<'a>(
        &'a self,
        device: &dyn BlockDevice,
    ) -> Result<(NewVolumeInfo, Box<dyn PlacedContents + 'a>)> {
        let laid = lay_out_on(self, device)?;
        self.write_metadata(device, &laid)?;
        let built = write_boot_sector(self, device, &laid)?;
        Ok((built, Box::new(placed(self, &laid))))
    }
}
