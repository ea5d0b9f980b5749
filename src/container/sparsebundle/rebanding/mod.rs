//! Change of the band size, in place. Source: docs/formats/sparsebundle.md §12, an extension of
//! this project.
//!
//! ```text
//! rebanding.plist          here         old and new band size, and the migrated length
//! Info.plist, Info.bckup   plist.rs     unusable for other software during the change
//! bands/<hex>              run.rs       bands of the old size, from `moved` on
//! bands/new-<hex>          run.rs       bands of the new size, up to `moved`
//! ```
//!
//! Both lists are first made unreadable to other software. Then the disk is migrated range by
//! range: the new bands are made durable, then `rebanding.plist`, and only then the old bands are
//! removed. At the end the new bands are renamed, and the lists get the new size.
//! [`MigratingBands`] is the disk during the change.

mod check;
mod copy;
mod migrating_bands;
mod run;

use ::plist::Value;

use super::plist::{self, MAX_BYTES, Version};
use super::{BANDS, LAYER, MAPPED};
use crate::container::SECTOR;
use crate::device::BlockDeviceExt;
use crate::size::to_usize;
use crate::store::{Open, Put, Store};
use crate::{Error, Kind, Result};

pub(super) use check::check;
pub(super) use migrating_bands::MigratingBands;
pub use run::Rebanded;

/// The list that holds the state of the change.
const LIST: &str = "rebanding.plist";
/// Prefix of the names of new bands until all exist.
pub(super) const NEW_BANDS: &str = "bands/new-";

/// State of a change of the band size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rebanding {
    /// Length of the disk in bytes.
    pub(super) size: u64,
    /// `bundle-backingstore-version`, before and after.
    pub(super) version: Version,
    /// Old band size in bytes.
    pub(super) from: u64,
    /// New band size in bytes.
    pub(super) to: u64,
    /// Disk offset up to which the data is in new bands: a multiple of `to`, or the length of the
    /// disk.
    pub(super) moved: u64,
    /// True if no old band is left and the new bands are being renamed.
    pub(super) naming: bool,
}

/// The values of the keys that were present.
#[derive(Default)]
struct PlistValues {
    size: Option<u64>,
    version: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
    moved: Option<u64>,
    naming: Option<bool>,
}

impl PlistValues {
    fn set_value(&mut self, key: &str, value: &Value) {
        match (key, value) {
            ("size", Value::Integer(number)) => self.size = number.as_unsigned(),
            ("bundle-backingstore-version", Value::Integer(number)) => {
                self.version = number.as_unsigned()
            }
            ("band-size-before", Value::Integer(number)) => self.from = number.as_unsigned(),
            ("band-size", Value::Integer(number)) => self.to = number.as_unsigned(),
            ("moved", Value::Integer(number)) => self.moved = number.as_unsigned(),
            ("naming", Value::Boolean(flag)) => self.naming = Some(*flag),
            _ => {}
        }
    }
}

impl Rebanding {
    /// Reads and validates the list. Fails if it is missing.
    pub(super) fn read(store: &dyn Store) -> Result<Self> {
        let missing = "missing, although the other lists record a change of the band size";
        let file = store
            .open(LIST, Open::Read)?
            .ok_or_else(|| Error::new(Kind::Corrupt, LAYER, missing).named(LIST))?;
        let len = file.info().len;
        if len > MAX_BYTES {
            let message = format!("expected at most {MAX_BYTES} bytes, found {len}");
            return Err(Error::limit(LAYER, message).named(LIST));
        }
        Self::parse(&file.read_vec(0, to_usize(len))?).map_err(|error| error.named(LIST))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut found = PlistValues::default();
        plist::each_value(bytes, &mut |key, value| found.set_value(key, value))?;
        let PlistValues {
            size: Some(size),
            version: Some(version),
            from: Some(from),
            to: Some(to),
            moved: Some(moved),
            naming,
        } = found
        else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "expected size, version, both band sizes and the progress",
            ));
        };
        let corrupt = |message: String| Err(Error::new(Kind::Corrupt, LAYER, message));
        for (what, bytes) in [
            ("size", size),
            ("band-size-before", from),
            ("band-size", to),
        ] {
            if !bytes.is_multiple_of(SECTOR) || (bytes == 0 && what != "size") {
                return corrupt(format!(
                    "expected a {what} of whole {SECTOR}-byte sectors, found {bytes}"
                ));
            }
        }
        if moved > size || (!moved.is_multiple_of(to) && moved != size) {
            return corrupt(format!(
                "expected whole bands of {to} bytes to be moved, at most the disk's {size}, found {moved}"
            ));
        }
        let version = match version {
            1 => Version::One,
            2 => Version::Two,
            other => {
                return corrupt(format!(
                    "expected bundle-backingstore-version 1 or 2, found {other}"
                ));
            }
        };
        Ok(Self {
            size,
            version,
            from,
            to,
            moved,
            naming: naming == Some(true),
        })
    }

    fn to_xml(self) -> String {
        plist::dictionary(&format!(
            "\t<key>band-size</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>band-size-before</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>bundle-backingstore-version</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>moved</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>naming</key>\n\
             \t<{}/>\n\
             \t<key>size</key>\n\
             \t<integer>{}</integer>\n",
            self.to,
            self.from,
            self.version.number(),
            self.moved,
            self.naming,
            self.size
        ))
    }

    /// Writes the list durably, with all names that were created or removed before.
    fn write(&self, store: &dyn Store) -> Result<()> {
        store.sync()?;
        store.put(LIST, self.to_xml().as_bytes(), Put::Replace)?;
        store.sync()
    }

    /// Returns the properties with the old band size.
    pub(super) fn before(&self) -> plist::Info {
        plist::Info {
            size: self.size,
            band_size: self.from,
            version: self.version,
        }
    }

    /// Returns the properties with the new band size.
    pub(super) fn after(&self) -> plist::Info {
        plist::Info {
            size: self.size,
            band_size: self.to,
            version: self.version,
        }
    }

    /// Returns a warning that describes the state.
    pub(super) fn warning(&self) -> String {
        let Self {
            from,
            to,
            moved,
            size,
            ..
        } = self;
        let far = if self.naming {
            "all but their names".to_owned()
        } else {
            format!("{moved} of {size} bytes of the disk")
        };
        format!(
            "the change of the band size from {from} to {to} bytes was interrupted after {far}; \
             other programs cannot open the bundle until `bandsaw reband` finishes it"
        )
    }
}

/// Writes `xml` to both property lists, the primary last; each is durable before the next.
fn write_lists(store: &dyn Store, xml: &str) -> Result<()> {
    for name in [plist::BACKUP, plist::INFO] {
        store.put(name, xml.as_bytes(), Put::Replace)?;
        store.sync()?;
    }
    Ok(())
}

/// Removes the files with `prefix` and a valid band number that `wanted` selects.
fn remove_bands(store: &dyn Store, prefix: &str, wanted: impl Fn(u64) -> bool) -> Result<()> {
    let mut found = Vec::new();
    store.list(prefix, &mut |entry| {
        found.extend(
            super::BandIndex::from_name(prefix, entry.name).filter(|index| wanted(index.0)),
        );
        Ok(())
    })?;
    found
        .into_iter()
        .try_for_each(|index| store.remove(&index.name_in(prefix)).map(drop))
}

/// Removes all bands of the old size and all maps, so that the new bands can take these names.
fn remove_old(store: &dyn Store) -> Result<()> {
    [BANDS, MAPPED]
        .into_iter()
        .try_for_each(|folder| remove_bands(store, folder, |_| true))
}

/// Renames the new bands, which must all exist, to their final names, writes the new band size to
/// the property lists, and removes `rebanding.plist`. Can be repeated after a crash, as long as
/// nothing was written in between.
pub(super) fn finish(store: &dyn Store, state: &Rebanding) -> Result<()> {
    let mut found = Vec::new();
    store.list(NEW_BANDS, &mut |entry| {
        found.extend(super::BandIndex::from_name(NEW_BANDS, entry.name));
        Ok(())
    })?;
    for index in found {
        let name = index.name_in(NEW_BANDS);
        store.rename(&name, &index.name_in(BANDS))?;
        // After a crash one file may have both names, and then the rename does nothing.
        store.remove(&name)?;
    }
    store.sync()?;
    write_lists(store, &state.after().to_xml())?;
    store.remove(LIST)?;
    store.sync()
}

#[cfg(test)]
mod tests;
