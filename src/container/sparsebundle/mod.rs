//! UDSB: a folder whose files are the bands of a disk. Source: docs/formats/sparsebundle.md.
//!
//! ```text
//! Info.plist, Info.bckup   lists.rs     size of the disk and of a band, parsed by plist.rs
//! bands/<hex>              bands/       data of the disk
//! mapped/<hex>             bands/       version 2: bitmaps of mapped blocks, by band_bitmap.rs
//! token                    token.rs     empty, or the encryption header; bands then use cipher.rs
//! bands/                   stored.rs    list of stored bands, and discarding them
//! all of a new bundle      create.rs
//! lock                     here         locked while the bundle is open, as token is
//! rebanding.plist          rebanding/   exists during a change of the band size
//! ```

mod band_rules;
mod bands;
mod check;
mod create;
mod disk;
mod lists;
mod plist;
mod rebanding;
mod repair;
mod stored;
mod survey;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{BandSizes, SECTOR};
use crate::crypt::{KeyMaterial, LockedHeader};
use crate::device::{Access, BlockDevice};
use crate::progress::Progress;
use crate::store::{Guard, Lock, Open, Store};
use crate::sync::Mutex;
use crate::{Error, Kind, Result};
use bands::Bands;
use lists::{RecordedGeometry, effective_properties, read_lists, read_plist};
use rebanding::{MigratingBands, NEW_BANDS, Rebanding};
use token::UnlockedToken;

pub use check::check;
pub use create::{BundleOptions, default_band_size};
pub(crate) use lists::{ChosenGeometry, is_resizing};
pub use plist::{Info as BundleGeometry, Version};
pub use rebanding::Rebanded;
pub use repair::{ListState, Repaired, listed, locks, name_of, put_lists, repair};
pub(crate) use repair::{band_lens, band_size_by_lengths, first_band_lens, other_band_size};
pub use stored::{StoredBand, StoredBands, StrayFile};
pub use survey::Survey;
pub use token::{damaged as damaged_token, encryption};

/// The layer in errors.
pub(crate) const LAYER: &str = "sparse bundle";

const BANDS: &str = "bands/";
const MAPPED: &str = "mapped/";
pub(crate) const TOKEN: &str = "token";
const LOCK: &str = "lock";
/// Folder of the snapshots of a bundle, one folder each, see `ops::snapshot`.
pub(crate) const SNAPSHOTS: &str = ".bandsaw/snapshots/";
/// File that marks a folder as the state of a bundle that a program keeps to return to, and that
/// lists its files. Such a bundle is never opened for changes.
pub const STATE: &str = ".bandsaw/state.json";

/// Number of bands above which a warning is issued.
const MANY_BANDS: u64 = 100_000;
/// Range of band sizes that hdiutil and DiskImages2 create, in bytes.
pub const BAND_SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=8 << 30;
/// Unit of the band sizes that macOS opens, in bytes.
const MAC_BAND_UNIT: u64 = 4096;

/// Error message of operations that require bands of one size.
const BETWEEN: &str =
    "a change of the band size was interrupted; finish it with `bandsaw reband` first";

/// An open sparse bundle; a block device for the disk in it.
///
/// Opening reads only the property lists, so its duration does not depend on the number of bands.
/// The part of a band's file past the band size, or of the last one past the end of the disk, is
/// ignored, as in macOS, and left unchanged.
#[derive(Debug)]
pub struct Bundle {
    bands: Bands,
    /// The part of the disk in new bands, during a change of the band size.
    migrating_bands: Option<MigratingBands>,
    /// The interrupted change of the band size that opening the bundle completed.
    finished: Option<Rebanding>,
    /// The warning about the list that is not used, because it is damaged.
    damaged_list: Option<String>,
    warnings: Vec<String>,
    /// Serializes changes of the length.
    resizing: Mutex<()>,
    /// True once the files past the end are known to be leftovers.
    leftovers_resolved: AtomicBool,
    locks: [Guard; 2],
}

impl Bundle {
    /// Opens the bundle in `store`. A read-only open changes nothing; otherwise `lock` and `token`
    /// are created if missing. [`Kind::WrongKey`] if the bundle is encrypted,
    /// [`Kind::Undecided`] if it is opened for changes and its lists differ.
    pub fn open(store: Arc<dyn Store>, access: Access) -> Result<Self> {
        Self::unlock(store, access, None, None)
    }

    /// Opens a bundle like [`open`](Self::open), whose lists differ, with numbers that were chosen
    /// by other evidence. [`Kind::Conflict`] if the lists were changed since.
    pub(crate) fn open_chosen(
        store: Arc<dyn Store>,
        access: Access,
        choice: Option<ChosenGeometry>,
    ) -> Result<Self> {
        Self::unlock(store, access, None, choice)
    }

    /// Opens the encrypted bundle in `store` with the keys that `header`, its [`encryption`],
    /// unlocked to. A bundle of encryption version 1 opens read-only. Otherwise like
    /// [`open`](Self::open).
    pub fn open_encrypted(
        store: Arc<dyn Store>,
        access: Access,
        header: &LockedHeader,
        keys: &KeyMaterial,
    ) -> Result<Self> {
        Self::unlock(store, access, Some(&UnlockedToken { header, keys }), None)
    }

    /// Opens a bundle like [`open_encrypted`](Self::open_encrypted), with numbers as in
    /// [`open_chosen`](Self::open_chosen).
    pub(crate) fn open_encrypted_chosen(
        store: Arc<dyn Store>,
        access: Access,
        header: &LockedHeader,
        keys: &KeyMaterial,
        choice: Option<ChosenGeometry>,
    ) -> Result<Self> {
        Self::unlock(store, access, Some(&UnlockedToken { header, keys }), choice)
    }

    fn unlock(
        store: Arc<dyn Store>,
        access: Access,
        unlocked: Option<&UnlockedToken<'_>>,
        choice: Option<ChosenGeometry>,
    ) -> Result<Self> {
        // Fails before a lock file is created in a folder that is not a supported bundle.
        read_lists(&*store)?;
        token::check_keys(&*store, unlocked, access)?;
        let locks = lock(&*store, access)?;
        // Reads again: the previous lock holder may have changed the bundle.
        let (mut recorded, damaged_list) = read_lists(&*store)?;
        let mut warnings: Vec<_> = damaged_list.iter().cloned().collect();
        if let RecordedGeometry::Whole(info) = &mut recorded {
            *info = effective_properties(&*store, *info, access, choice)?;
        }
        warnings.extend(token::check_keys(&*store, unlocked, access)?);
        let mut finished = None;
        if let RecordedGeometry::Between(state) = recorded
            && state.naming
            && access == Access::ReadWrite
        {
            rebanding::finish(&*store, &state)?;
            (recorded, finished) = (RecordedGeometry::Whole(state.after()), Some(state));
        }
        let (info, between) = match recorded {
            RecordedGeometry::Whole(info) => (info, None),
            RecordedGeometry::Between(state) => (state.before(), Some(state)),
        };
        let cipher = unlocked
            .map(UnlockedToken::blocks)
            .transpose()?
            .map(Arc::new);
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
        bundle.damaged_list = damaged_list;
        bundle.migrating_bands = between.map(|state| bundle.migrating_bands(state));
        Ok(bundle)
    }

    fn new(bands: Bands, warnings: Vec<String>, locks: [Guard; 2]) -> Self {
        Self {
            bands,
            migrating_bands: None,
            finished: None,
            damaged_list: None,
            warnings,
            resizing: Mutex::new(()),
            leftovers_resolved: AtomicBool::new(false),
            locks,
        }
    }

    /// Returns the part of the disk that is in new bands.
    fn migrating_bands(&self, state: Rebanding) -> MigratingBands {
        // New bands have no maps; the maps are those of old bands.
        let info = plist::Info {
            version: Version::One,
            ..state.after()
        };
        let or_prefix = state.naming.then_some(BANDS);
        MigratingBands {
            bands: self.bands.named(info, NEW_BANDS, or_prefix),
            state,
        }
    }

    /// Returns true if files past the end of the disk are known to be leftovers, or absent.
    pub(crate) fn are_leftovers_resolved(&self) -> bool {
        self.leftovers_resolved.load(Ordering::Acquire)
    }

    /// Records that files past the end of the disk are leftovers, or absent.
    pub(crate) fn resolve_leftovers(&self) {
        self.leftovers_resolved.store(true, Ordering::Release);
    }

    /// Returns true if a change of the band size was interrupted. The disk is readable and writable
    /// then, but operations on bands fail.
    pub fn is_between(&self) -> bool {
        self.migrating_bands.is_some()
    }

    /// Fails if the bands are of two sizes.
    fn check_one_size(&self) -> Result<()> {
        if !self.is_between() {
            return Ok(());
        }
        Err(Error::conflict(LAYER, BETWEEN))
    }

    /// Returns the band size in bytes; the [old](Self::is_between) one if a change was interrupted.
    pub fn band_size(&self) -> u64 {
        self.bands.band_size()
    }

    /// Returns the number of bands of a full disk.
    pub fn band_count(&self) -> u64 {
        self.bands.count(self.bands.len())
    }

    /// Returns the number and the length in bytes of each band that has a file; `None` if a change
    /// of the band size was interrupted. The time is proportional to their number.
    pub(crate) fn band_lens(&self, progress: &dyn Progress) -> Result<Option<Vec<(u64, u64)>>> {
        if self.is_between() {
            return Ok(None);
        }
        band_lens(self.bands.store(), progress).map(Some)
    }

    /// Returns `bundle-backingstore-version`.
    pub fn version(&self) -> Version {
        self.bands.version()
    }

    /// Returns the warning about a damaged list, if the bundle was opened by the other one.
    pub(crate) fn damaged_list(&self) -> Option<&str> {
        self.damaged_list.as_deref()
    }

    /// Returns the warnings about the bundle that do not prevent its use.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Returns true if `store` holds a bundle, complete or not.
pub fn is_bundle(store: &dyn Store) -> Result<bool> {
    Ok(store.stat(plist::INFO)?.is_some() || store.stat(plist::BACKUP)?.is_some())
}

/// Returns the valid band sizes: multiples of `unit` bytes, a sector or a cipher block.
pub(crate) fn band_sizes(unit: u64) -> BandSizes {
    let (least, most) = BAND_SIZES.into_inner();
    BandSizes { least, most, unit }
}

/// Returns the band size of a new or changed bundle that macOS opens as well: `size`, or the nearest one if `round`
/// is true, in bytes. Other programs made, and [`Bundle`] accepts, multiples of 512 bytes. Source:
/// docs/formats/sparsebundle.md §3.
///
/// [`Kind::Invalid`] with [`Reason::BandSize`](crate::Reason::BandSize) for any other size.
pub fn band_size_for_macos(size: u64, round: bool) -> Result<u64> {
    let sizes = band_sizes(MAC_BAND_UNIT);
    if round {
        return Ok(sizes.nearest(size));
    }
    sizes.check(LAYER, size).map(|()| size)
}

fn check_band_size(size: u64) -> Result<()> {
    band_sizes(SECTOR).check(LAYER, size)
}

/// Checks that the band size of an existing bundle is a multiple of the cipher block. Sizes below
/// the current minimum are accepted: macOS gave a disk smaller than a band a band of its own size.
fn check_whole_blocks(band_size: u64, block: u64) -> Result<()> {
    if band_size.is_multiple_of(block) {
        return Ok(());
    }
    let message =
        format!("expected a band size of whole cipher blocks of {block} bytes, found {band_size}");
    Err(Error::invalid(LAYER, message).named(plist::INFO))
}

/// Checks that the size of encrypted bands is a valid multiple of the cipher block.
fn check_cipher_block(band_size: u64, block: u32) -> Result<()> {
    band_sizes(block.into()).check(LAYER, band_size)
}

fn warnings_of_size(info: &plist::Info) -> Vec<String> {
    let mut warnings = Vec::new();
    let bands = info.size.div_ceil(info.band_size);
    if bands > MANY_BANDS {
        warnings.push(format!(
            "a full bundle has {bands} bands; more than {MANY_BANDS} files are \
                               slow to copy"
        ));
    }
    if !info.band_size.is_multiple_of(bands::BLOCK) {
        warnings.push(format!(
            "the band size of {} bytes is not a multiple of 4096; macOS 26 may refuse it",
            info.band_size
        ));
    }
    warnings
}

/// Acquires both locks, the newer one first: systems before DiskImages2 know only `token`.
fn lock(store: &dyn Store, access: Access) -> Result<[Guard; 2]> {
    if access == Access::ReadWrite {
        check_changeable(store)?;
    }
    let mode = if access == Access::ReadOnly {
        Lock::Shared
    } else {
        Lock::Exclusive
    };
    let take = |name| match store.lock(name, mode) {
        // File servers without locks: continues without one, as macOS does.
        Err(error) if error.kind() == Kind::Unsupported => Ok(Guard::nothing()),
        taken => taken,
    };
    Ok([take(LOCK)?, take(TOKEN)?])
}

/// Returns true if there are snapshots among the files of a bundle.
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

/// Returns true if the folder is a kept state of a bundle rather than a bundle in use: it has the
/// file [`STATE`]. Buckets have none.
pub fn is_state(store: &dyn Store) -> Result<bool> {
    match store.stat(STATE) {
        // A bucket refuses the name, which is among those of its log.
        Err(error) if error.kind() == Kind::Invalid => Ok(false),
        found => Ok(found?.is_some()),
    }
}

/// Refuses a kept state of a bundle. [`Kind::ReadOnly`].
pub(crate) fn check_changeable(store: &dyn Store) -> Result<()> {
    if is_state(store)? {
        let message =
            "a kept state of a bundle, which is never changed; copy it to change the copy";
        return Err(Error::new(Kind::ReadOnly, LAYER, message).named(STATE));
    }
    Ok(())
}

/// Acquires the locks of a bundle whose files are changed without opening it. They are created if
/// missing. [`Kind::Conflict`] if the bundle is in use, [`Kind::ReadOnly`] if it is a kept state.
pub fn lock_exclusive(store: &dyn Store) -> Result<[Guard; 2]> {
    lock(store, Access::ReadWrite)
}

/// Acquires the locks of a bundle that is read and must not be written concurrently.
pub fn lock_shared(store: &dyn Store) -> Result<[Guard; 2]> {
    lock(store, Access::ReadOnly)
}

/// Acquires the existing locks of a bundle that is to be replaced as a whole. Creates no files.
pub(crate) fn lock_unused(store: &dyn Store) -> Result<Vec<Guard>> {
    let mut guards = Vec::new();
    for name in [LOCK, TOKEN] {
        if store.stat(name)?.is_some() {
            guards.push(store.lock(name, Lock::Exclusive)?);
        }
    }
    Ok(guards)
}

/// Opens the file that holds the encryption header of an encrypted bundle, and returns it with its
/// name. It is changed in place: its inode carries the bundle's lock.
pub(crate) fn open_token(
    store: &dyn Store,
    mode: Open,
) -> Result<Option<(&'static str, Arc<dyn BlockDevice>)>> {
    Ok(store.open(TOKEN, mode)?.map(|token| (TOKEN, token)))
}

/// Returns the name of the file of the band with this number.
pub(crate) fn band_name(number: u64) -> String {
    BandIndex(number).name()
}

/// Number of a band: its disk offset divided by the band size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct BandIndex(u64);

impl BandIndex {
    /// Returns the name of its file: lower-case hexadecimal without padding.
    fn name(self) -> String {
        self.name_in(BANDS)
    }

    fn name_in(self, prefix: &str) -> String {
        format!("{prefix}{:x}", self.0)
    }

    /// Returns the name of its map in a version 2 bundle.
    fn mapped_name(self) -> String {
        format!("{MAPPED}{:x}", self.0)
    }

    /// Parses `name` as a band file in `folder`. Returns `None` if macOS would not write that name.
    fn from_name(folder: &str, name: &str) -> Option<Self> {
        let digits = name.strip_prefix(folder)?;
        let index = u64::from_str_radix(digits, 16).ok()?;
        (format!("{index:x}") == digits).then_some(Self(index))
    }
}

#[cfg(test)]
mod tests;
