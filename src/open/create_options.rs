//! The options of a new image, and their checks.

use uuid::Uuid;

use super::place::NewMode;
use super::{Keys, LAYER, NetworkOptions, OpenOptions};
use crate::container::sparsebundle::{self, band_size_for_macos};
use crate::container::sparseimage;
use crate::container::{ContainerKind, Format, SECTOR};
use crate::crypt::{Encryption, Protection};
use crate::device::Access;
use crate::size::narrow;
use crate::{Error, Result};

/// Options of a new image. The default is a raw image without a length, which must be set.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// The container format.
    pub format: Format,
    /// Length of the disk in bytes: whole sectors.
    pub len: u64,
    /// Bytes of a band, for formats that have bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Bytes of a sector, for formats that support several sizes: 512 or 4096. `None`: 512.
    pub sector_size: Option<u32>,
    /// Replaces an existing image.
    pub overwrite: bool,
    /// Encryption of the image, if any.
    pub encryption: Option<Encryption>,
    /// Leaves holes for unwritten blocks of an encrypted raw image, which read as noise. Otherwise
    /// every block is written, zeros as cipher text.
    pub thin: bool,
    /// Options of the bucket, if the image is to be in one.
    pub network: NetworkOptions<'static>,
    /// The mode of the image. An encrypted image is readable only by its owner, unless the mode is
    /// exact.
    pub mode: NewMode,
    /// Rounds to the nearest band size that the format supports, instead of refusing others.
    pub round_band_size: bool,
    /// The UUID of an Apple sparse image. `None`: a random one.
    pub id: Option<Uuid>,
}

impl CreateOptions {
    /// Refuses options that the format does not support, independent of the length.
    pub(crate) fn check(&self) -> Result<()> {
        let format = self.format;
        if !format.can_create() {
            let message = format!(
                "cannot create a {} ({format}): the format is only read",
                format.description()
            );
            return Err(Error::invalid(LAYER, message));
        }
        if self.band_size.is_some() && !format.has_bands() {
            return Err(Error::invalid(
                LAYER,
                format!("{format} ({}) has no bands", format.description()),
            ));
        }
        self.check_encryption()?;
        let size = self.sector_size.unwrap_or(narrow(SECTOR));
        if format.sector_sizes().contains(&size) {
            return Ok(());
        }
        let sizes: Vec<_> = format.sector_sizes().iter().map(u32::to_string).collect();
        let message = format!(
            "invalid sector size {size}: {format} supports {}",
            sizes.join(" or ")
        );
        Err(Error::invalid(LAYER, message))
    }

    fn check_encryption(&self) -> Result<()> {
        if self.thin && (self.encryption.is_none() || !self.format.is_plain()) {
            return Err(Error::invalid(
                LAYER,
                "thin or full allocation applies to encrypted raw images only",
            ));
        }
        let Some(encryption) = &self.encryption else {
            return Ok(());
        };
        encryption.check()?;
        encryption.block_for(self.max_encrypted()).map(drop)
    }

    /// Returns the number of bytes under one run of block numbers once the disk is full: the disk
    /// and the container's metadata, or a band of a bundle.
    fn max_encrypted(&self) -> u64 {
        match self.format.container() {
            ContainerKind::Bundle => self.len.min(*sparsebundle::BAND_SIZES.end()),
            ContainerKind::SparseImage | ContainerKind::Asif => {
                self.len.saturating_add(self.len / 256 + (64 << 20))
            }
            ContainerKind::Raw | ContainerKind::Udif | ContainerKind::ReadOnly => self.len,
        }
    }

    pub(super) fn new_mode(&self) -> NewMode {
        self.mode.of_secret(self.encryption.is_some())
    }

    /// Returns the options with which the image is opened for writing again.
    pub(crate) fn reopened(&self) -> OpenOptions<'_> {
        let encryption = self.encryption.as_ref();
        OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(self.format),
            keys: encryption.map(|encryption| &encryption.passphrase as &dyn Keys),
            ..OpenOptions::default()
        }
    }

    /// Returns the band size, rounded if requested: in a bundle one that macOS opens.
    pub(super) fn band_size(&self) -> Result<Option<u64>> {
        match self.band_size {
            Some(size) if self.format.is_folder() => {
                band_size_for_macos(size, self.round_band_size).map(Some)
            }
            Some(size) if self.round_band_size => Ok(Some(sparseimage::band_sizes().nearest(size))),
            size => Ok(size),
        }
    }

    pub(super) fn protection(&self) -> Result<Option<Protection>> {
        self.encryption
            .as_ref()
            .map(|encryption| encryption.protection(self.max_encrypted()))
            .transpose()
    }

    /// Refuses formats that cannot be written: the image would stay blank.
    pub(super) fn check_changeable(&self) -> Result<()> {
        if self.format.can_change() {
            return Ok(());
        }
        let message = format!(
            "cannot create an empty {} ({}): the format is read-only; create it from a source",
            self.format.description(),
            self.format
        );
        Err(Error::invalid(LAYER, message))
    }
}
