//! UDSB: a folder whose files are the bands of a disk. Source: docs/formats/sparsebundle.md.
//!
//! ```text
//! Info.plist, Info.bckup   lists.rs     size of the disk and of a band, in plist.rs
//! bands/<hex>              bands.rs     where bytes are; one slot.rs for each band met, kept by cache.rs
//! mapped/<hex>             mapped.rs    version 2: blocks that do not count
//! token                    token.rs     empty, or how the bundle is encrypted; cipher.rs reads and writes bands then
//! bands/                   stored.rs    which of them have a file, and giving that back
//! lock                     here         locked while the bundle is open, as token is
//! rebanding.plist          rebanding/   while the size of bands is being changed
//! ```

mod bands;
mod cache;
mod check;
mod cipher;
mod discard;
mod disk;
mod flush;
mod gaps;
mod lists;
mod mapped;
mod plist;
mod rebanding;
mod repair;
mod resize;
mod slot;
mod stored;
mod survey;
mod token;

use std::sync::{Arc, Mutex};

use super::{BandSizes, SECTOR, check_len};
use crate::crypt::{KeyMaterial, Locked, Protection};
use crate::device::{Access, BlockDevice};
use crate::store::{Guard, Lock, Open, Put, Store};
use crate::{Error, Kind, Result};
use bands::Bands;
use lists::{Told, read_lists, read_plist};
use rebanding::{MigratingBands, NEW_BANDS, Rebanding};
use token::Unlocked;

pub use check::check;
pub use lists::USED_INSTEAD;
pub use plist::Version;
pub use rebanding::Rebanded;
pub use repair::{Facts, Listed, Repair, band_lens, listed, locks, name_of, plan, put_lists};
pub use stored::{StoredBand, StoredBands, StrayFile};
pub use survey::Survey;
pub use token::encryption;

const LAYER: &str = "sparse bundle";

const BANDS: &str = "bands/";
const MAPPED: &str = "mapped/";
const TOKEN: &str = "token";
const LOCK: &str = "lock";
/// Bundles that are kept as they were, one in each folder, see `ops::snapshot`.
pub(crate) const SNAPSHOTS: &str = ".bandsaw/snapshots/";

/// The band size of a new bundle, unless the disk is so large that it would have too many.
const DEFAULT_BAND_SIZE: u64 = 8 << 20;
/// More bands than this are avoided by default: file servers and copies suffer from folders larger
/// than that.
const DEFAULT_MOST_BANDS: u64 = 65_536;
/// More bands than this are worth a warning.
const MANY_BANDS: u64 = 100_000;
/// The band sizes that hdiutil and DiskImages2 make.
pub const BAND_SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=8 << 30;

/// Why nothing is done that goes by bands of one size.
const BETWEEN: &str =
    "a change of the size of its bands was interrupted; finish it with `bandsaw reband` first";

/// What a new bundle is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes of the disk: whole sectors of 512.
    pub len: u64,
    /// Bytes of a band: whole sectors within [`BAND_SIZES`], used exactly as given, also where the
    /// disk is smaller than a band. `None`: [`default_band_size`].
    pub band_size: Option<u64>,
}

/// 8 MiB, doubled until a full disk of `len` bytes has no more than 65,536 bands, at most 8 GiB.
pub fn default_band_size(len: u64) -> u64 {
    let mut size = DEFAULT_BAND_SIZE;
    while len.div_ceil(size) > DEFAULT_MOST_BANDS && size < *BAND_SIZES.end() {
        size *= 2;
    }
    size
}

/// An open sparse bundle: the disk in it, as a device.
///
/// Opening reads the plists and nothing else: it takes as long with a million bands as with none.
/// What a band's file has past the band size, or the last one past the end of the disk, is ignored,
/// as macOS does, and left as it is.
#[derive(Debug)]
pub struct Bundle {
    bands: Bands,
    /// While the size of bands is being changed: what is in new ones already.
    migrating_bands: Option<MigratingBands>,
    /// The change of the size of bands that opening the bundle has finished.
    finished: Option<Rebanding>,
    warnings: Vec<String>,
    /// One change of the length at a time.
    resizing: Mutex<()>,
    locks: [Guard; 2],
}

impl Bundle {
    /// Makes a bundle with no band in `store`, which must not hold one.
    ///
    /// It is durable when this returns, and not before its last step does it look like a bundle.
    pub fn create(store: Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        Self::make(store, options, None)
    }

    /// The same with fresh keys that `protection` guards: what is written to the bands is
    /// encrypted.
    pub fn create_encrypted(
        store: Arc<dyn Store>,
        options: &CreateOptions,
        protection: &Protection,
    ) -> Result<Self> {
        Self::make(store, options, Some(protection))
    }

    fn make(
        store: Arc<dyn Store>,
        options: &CreateOptions,
        protection: Option<&Protection>,
    ) -> Result<Self> {
        let info = plist::Info {
            size: options.len,
            band_size: options
                .band_size
                .unwrap_or_else(|| default_band_size(options.len)),
            version: Version::One,
        };
        check_len(LAYER, info.size)?;
        match protection {
            // Whole cipher blocks are whole sectors.
            Some(protection) => check_cipher_block(info.band_size, protection.block)?,
            None => check_band_size(info.band_size)?,
        }
        for name in [plist::INFO, plist::BACKUP] {
            if store.stat(name)?.is_some() {
                return Err(Error::new(Kind::Conflict, LAYER, "exists already").named(name));
            }
        }
        // A store makes folders with their first file only, and macOS wants to find this one.
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

    /// Opens the bundle in `store`. Read-only opens change nothing; others make `lock` and `token`
    /// if missing. [`Kind::WrongKey`] if it is encrypted.
    pub fn open(store: Arc<dyn Store>, access: Access) -> Result<Self> {
        Self::unlock(store, access, None)
    }

    /// Opens the encrypted bundle in `store` with the keys that `header`, its [`encryption`],
    /// unlocked to. A bundle encrypted by version 1 opens read-only.
    pub fn open_encrypted(
        store: Arc<dyn Store>,
        access: Access,
        header: &Locked,
        keys: &KeyMaterial,
    ) -> Result<Self> {
        Self::unlock(store, access, Some(&Unlocked { header, keys }))
    }

    fn unlock(
        store: Arc<dyn Store>,
        access: Access,
        unlocked: Option<&Unlocked<'_>>,
    ) -> Result<Self> {
        // Refused before a lock is made in something that is no bundle of ours.
        read_lists(&*store)?;
        token::check(&*store, unlocked, access)?;
        let locks = lock(&*store, access)?;
        // Read again: whoever had the lock may have changed it.
        let (mut told, mut warnings) = read_lists(&*store)?;
        warnings.extend(token::check(&*store, unlocked, access)?);
        let mut finished = None;
        if let Told::Between(state) = told
            && state.naming
            && access == Access::ReadWrite
        {
            rebanding::finish(&*store, &state)?;
            (told, finished) = (Told::Whole(state.after()), Some(state));
        }
        let (info, between) = match told {
            Told::Whole(info) => (info, None),
            Told::Between(state) => (state.before(), Some(state)),
        };
        let cipher = unlocked.map(Unlocked::blocks).transpose()?.map(Arc::new);
        for band_size in [Some(info.band_size), between.map(|state| state.to)]
            .into_iter()
            .flatten()
        {
            if let Some(cipher) = &cipher {
                check_whole_blocks(band_size, cipher.block())?;
            }
        }
        warnings.extend(between.map(|state| state.warning()));
        let mut bundle = Self::new(Bands::new(store, info, access, cipher), warnings, locks);
        bundle.finished = finished;
        bundle.migrating_bands = between.map(|state| bundle.migrating_bands(state));
        Ok(bundle)
    }

    fn new(bands: Bands, warnings: Vec<String>, locks: [Guard; 2]) -> Self {
        Self {
            bands,
            migrating_bands: None,
            finished: None,
            warnings,
            resizing: Mutex::new(()),
            locks,
        }
    }

    /// The part of the disk that is in new bands.
    fn migrating_bands(&self, state: Rebanding) -> MigratingBands {
        let Bands {
            store,
            access,
            cipher,
            ..
        } = &self.bands;
        // New bands have no maps, and those of old bands are none of theirs.
        let info = plist::Info {
            version: Version::One,
            ..state.after()
        };
        let bands = Bands::new(store.clone(), info, *access, cipher.clone());
        MigratingBands {
            bands: bands.called(NEW_BANDS, state.naming.then_some(BANDS)),
            state,
        }
    }

    /// Returns whether a change of the size of bands was interrupted: the bundle works, and what
    /// goes by its bands does not.
    pub fn is_between(&self) -> bool {
        self.migrating_bands.is_some()
    }

    /// Refuses what goes by bands of one size.
    fn check_one_size(&self) -> Result<()> {
        if !self.is_between() {
            return Ok(());
        }
        Err(Error::new(Kind::Conflict, LAYER, BETWEEN))
    }

    /// The size nearest to `size` that its bands can have.
    pub fn nearest_band_size(&self, size: u64) -> u64 {
        let unit = self
            .bands
            .cipher
            .as_ref()
            .map_or(SECTOR, |cipher| cipher.block());
        band_sizes(unit).nearest(size)
    }

    /// Bytes of a band; [before](Self::is_between) a change of their size that was interrupted.
    pub fn band_size(&self) -> u64 {
        self.bands.band_size
    }

    /// Returns how many bands the disk has when it is full.
    pub fn band_count(&self) -> u64 {
        self.bands.count(self.bands.len())
    }

    /// `bundle-backingstore-version`.
    pub fn version(&self) -> Version {
        self.bands.version
    }

    /// What is odd about the bundle without keeping it from working.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Returns whether `store` holds what looks like a bundle, whole or not.
pub fn is_bundle(store: &dyn Store) -> Result<bool> {
    Ok(store.stat(plist::INFO)?.is_some() || store.stat(plist::BACKUP)?.is_some())
}

/// The sizes that bands can have: whole units of `unit` bytes, a sector or a cipher block.
pub(crate) fn band_sizes(unit: u64) -> BandSizes {
    let (least, most) = BAND_SIZES.into_inner();
    BandSizes { least, most, unit }
}

fn check_band_size(size: u64) -> Result<()> {
    band_sizes(SECTOR).check(LAYER, size)
}

/// Refuses bands of a bundle that exists which are no whole number of cipher blocks. Smaller ones
/// than are made now are read: macOS gave a disk that is smaller than a band one of its own size.
fn check_whole_blocks(band_size: u64, block: u64) -> Result<()> {
    if band_size.is_multiple_of(block) {
        return Ok(());
    }
    let message =
        format!("expected a band size of whole cipher blocks of {block} bytes, found {band_size}");
    Err(Error::new(Kind::Invalid, LAYER, message).named(plist::INFO))
}

/// Bands of cipher text are whole cipher blocks.
fn check_cipher_block(band_size: u64, block: u32) -> Result<()> {
    band_sizes(block.into()).check(LAYER, band_size)
}

fn warnings_of_size(info: &plist::Info) -> Vec<String> {
    let mut warnings = Vec::new();
    let bands = info.size.div_ceil(info.band_size);
    if bands > MANY_BANDS {
        warnings.push(format!("the bundle has {bands} bands when it is full; more than {MANY_BANDS} files make it slow to copy"));
    }
    if !info.band_size.is_multiple_of(slot::BLOCK) {
        warnings.push(format!(
            "the band size of {} bytes is no multiple of 4096; macOS 26 may refuse it",
            info.band_size
        ));
    }
    warnings
}

/// Takes both locks, the newer one first: systems before DiskImages2 know only `token`.
fn lock(store: &dyn Store, access: Access) -> Result<[Guard; 2]> {
    let mode = if access == Access::ReadOnly {
        Lock::Shared
    } else {
        Lock::Exclusive
    };
    let take = |name| match store.lock(name, mode) {
        // File servers that know no locks: macOS goes on without, too.
        Err(error) if error.kind() == Kind::Unsupported => Ok(Guard::nothing()),
        taken => taken,
    };
    Ok([take(LOCK)?, take(TOKEN)?])
}

/// Returns whether there are snapshots among the files of a bundle.
pub(crate) fn has_snapshots(store: &dyn Store) -> Result<bool> {
    let mut found = false;
    let listed = store.list(SNAPSHOTS, &mut |_| {
        found = true;
        Err(Error::new(Kind::Cancelled, LAYER, "one is enough"))
    });
    if found {
        Ok(true)
    } else {
        listed.map(|()| false)
    }
}

/// The locks of a bundle that is read and that nobody may write meanwhile.
pub(crate) fn lock_shared(store: &dyn Store) -> Result<[Guard; 2]> {
    lock(store, Access::ReadOnly)
}

/// The locks of a bundle that is to be replaced as a whole, as far as it has the files. It is not
/// changed.
pub(crate) fn lock_unused(store: &dyn Store) -> Result<Vec<Guard>> {
    let mut guards = Vec::new();
    for name in [LOCK, TOKEN] {
        if store.stat(name)?.is_some() {
            guards.push(store.lock(name, Lock::Exclusive)?);
        }
    }
    Ok(guards)
}

/// The file that holds the encryption header of an encrypted bundle, with its name. It is changed
/// in place: its inode carries the bundle's lock.
pub(crate) fn open_token(
    store: &dyn Store,
    how: Open,
) -> Result<Option<(&'static str, Arc<dyn BlockDevice>)>> {
    Ok(store.open(TOKEN, how)?.map(|token| (TOKEN, token)))
}

/// The number of a band: its place on the disk divided by the band size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct BandIndex(u64);

impl BandIndex {
    /// Of its file: lower-case hexadecimal without padding.
    fn name(self) -> String {
        self.name_in(BANDS)
    }

    fn name_in(self, prefix: &str) -> String {
        format!("{prefix}{:x}", self.0)
    }

    /// Of its map in a version 2 bundle.
    fn mapped_name(self) -> String {
        format!("{MAPPED}{:x}", self.0)
    }

    /// The band that `name` is the file of in `folder`. `None`: not a name that macOS would write.
    fn from_name(folder: &str, name: &str) -> Option<Self> {
        let digits = name.strip_prefix(folder)?;
        let index = u64::from_str_radix(digits, 16).ok()?;
        (format!("{index:x}") == digits).then_some(Self(index))
    }
}

#[cfg(test)]
mod tests;
