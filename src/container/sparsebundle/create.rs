//! New bundles.

use std::sync::Arc;

use super::bands::Bands;
use super::{
    BAND_SIZES, BandIndex, Bundle, LAYER, TOKEN, check_band_size, check_cipher_block, lock, plist,
    token, warnings_of_size,
};
use crate::container::check_len;
use crate::crypt::Protection;
use crate::device::Access;
use crate::store::{Open, Put, Store};
use crate::{Error, Result};

/// Band size of a new bundle, unless the disk is so large that it would have too many bands.
pub(super) const DEFAULT_BAND_SIZE: u64 = 8 << 20;
/// Number of bands that the default band size does not exceed: larger folders are slow on file
/// servers and to copy.
pub(super) const DEFAULT_MAX_BANDS: u64 = 65_536;

/// Parameters of a new bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleOptions {
    /// Length of the disk in bytes, a multiple of 512.
    pub len: u64,
    /// Band size in bytes: a multiple of 512 within [`BAND_SIZES`], used exactly as given, even if
    /// the disk is smaller than a band. `None`: [`default_band_size`].
    pub band_size: Option<u64>,
}

/// Returns 8 MiB, doubled until a full disk of `len` bytes has no more than 65,536 bands, at most 8
/// GiB.
pub fn default_band_size(len: u64) -> u64 {
    let mut size = DEFAULT_BAND_SIZE;
    while len.div_ceil(size) > DEFAULT_MAX_BANDS && size < *BAND_SIZES.end() {
        size *= 2;
    }
    size
}

impl Bundle {
    /// Creates a bundle without bands in `store`, which must not hold one.
    ///
    /// The bundle is durable on return, and is recognized as a bundle only after the last step.
    pub fn create(store: Arc<dyn Store>, options: &BundleOptions) -> Result<Self> {
        Self::make(store, options, None)
    }

    /// Creates an encrypted bundle with new keys, which `protection` guards.
    pub fn create_encrypted(
        store: Arc<dyn Store>,
        options: &BundleOptions,
        protection: &Protection,
    ) -> Result<Self> {
        Self::make(store, options, Some(protection))
    }

    fn make(
        store: Arc<dyn Store>,
        options: &BundleOptions,
        protection: Option<&Protection>,
    ) -> Result<Self> {
        let info = plist::Info {
            size: options.len,
            band_size: options
                .band_size
                .unwrap_or_else(|| default_band_size(options.len)),
            version: plist::Version::One,
        };
        check_len(LAYER, info.size)?;
        match protection {
            // A multiple of the cipher block is a multiple of the sector size.
            Some(protection) => check_cipher_block(info.band_size, protection.block)?,
            None => check_band_size(info.band_size)?,
        }
        for name in [plist::INFO, plist::BACKUP] {
            if store.stat(name)?.is_some() {
                return Err(Error::conflict(LAYER, "already exists").named(name));
            }
        }
        // A store creates folders only with their first file, and macOS requires this folder.
        let first = BandIndex(0).name();
        store.open(&first, Open::Create)?;
        store.remove(&first)?;
        store.open(TOKEN, Open::Create)?;
        let locks = lock(&*store, Access::ReadWrite)?;
        let cipher = protection
            .map(|protection| token::create(&*store, protection))
            .transpose()?
            .map(Arc::new);
        let xml = info.to_xml();
        for name in [plist::BACKUP, plist::INFO] {
            store.sync()?;
            store.put(name, xml.as_bytes(), Put::Replace)?;
        }
        store.sync()?;
        Ok(Self::new(
            Bands::new(store, info, Access::ReadWrite, cipher),
            warnings_of_size(&info),
            locks,
        ))
    }
}
