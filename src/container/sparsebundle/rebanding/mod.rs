//! Another size for bands, in place. Source: docs/formats/sparsebundle.md §12, which is ours alone.
//!
//! ```text
//! rebanding.plist          here         both sizes of bands, and how far the disk is in new ones
//! Info.plist, Info.bckup   plist.rs     what nobody takes for a bundle, as long as it lasts
//! bands/<hex>              run.rs       bands of the old size, from `moved` on
//! bands/new-<hex>          run.rs       bands of the new size, up to there
//! ```
//!
//! Both lists are made unreadable to others first. Then the disk goes range by range: new bands,
//! durable; the mark, durable; and only then the old bands go. When there are none left the new
//! ones get their names, and the lists tell the new size. [`MigratingBands`] is the disk in between.

mod check;
mod copy;
mod finish;
mod migrating_bands;
mod run;

use ::plist::stream::Event;

use super::plist::{self, MOST_BYTES, Version};
use super::{BANDS, LAYER, MAPPED};
use crate::container::SECTOR;
use crate::device::BlockDeviceExt;
use crate::store::{Open, Put, Store};
use crate::{Error, Kind, Result};

pub(super) use check::check;
pub(super) use finish::finish;
pub(super) use migrating_bands::MigratingBands;
pub use run::Rebanded;

/// The list that tells how far it is.
const LIST: &str = "rebanding.plist";
/// What the names of bands of the new size begin with until all are there.
pub(super) const NEW_BANDS: &str = "bands/new-";

/// How far a change of the size of bands is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rebanding {
    /// Bytes of the disk.
    pub(super) size: u64,
    /// `bundle-backingstore-version`, before and after.
    pub(super) version: Version,
    /// Bytes of a band before.
    pub(super) from: u64,
    /// Bytes of a band to be.
    pub(super) to: u64,
    /// Up to where the disk is in new bands: whole ones, or all of it.
    pub(super) moved: u64,
    /// No old band is left, and new ones are getting their names.
    pub(super) naming: bool,
}

/// The values of the keys, as far as they were met.
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
    fn take(&mut self, key: &str, value: Event<'_>) {
        match (key, value) {
            ("size", Event::Integer(number)) => self.size = number.as_unsigned(),
            ("bundle-backingstore-version", Event::Integer(number)) => {
                self.version = number.as_unsigned()
            }
            ("band-size-before", Event::Integer(number)) => self.from = number.as_unsigned(),
            ("band-size", Event::Integer(number)) => self.to = number.as_unsigned(),
            ("moved", Event::Integer(number)) => self.moved = number.as_unsigned(),
            ("naming", Event::Boolean(flag)) => self.naming = Some(flag),
            _ => {}
        }
    }
}

impl Rebanding {
    /// Reads the list, which must be there and make sense.
    pub(super) fn read(store: &dyn Store) -> Result<Self> {
        let missing =
            "is missing, though the other lists say that the size of bands is being changed";
        let file = store
            .open(LIST, Open::Read)?
            .ok_or_else(|| Error::new(Kind::Corrupt, LAYER, missing).named(LIST))?;
        let len = file.info().len;
        if len > MOST_BYTES {
            let message = format!("expected at most {MOST_BYTES} bytes, found {len}");
            return Err(Error::new(Kind::Limit, LAYER, message).named(LIST));
        }
        Self::parse(&file.read_vec(0, len as usize)?).map_err(|error| error.named(LIST))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut found = PlistValues::default();
        plist::each_value(bytes, &mut |key, value| found.take(key, value))?;
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
                "expected size, version, both sizes of bands and how much is moved",
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

    /// Writes the list, durably, with all names that were made or removed before.
    fn write(&self, store: &dyn Store) -> Result<()> {
        store.sync()?;
        store.put(LIST, self.to_xml().as_bytes(), Put::Replace)?;
        store.sync()
    }

    /// The bands before.
    pub(super) fn before(&self) -> plist::Info {
        plist::Info {
            size: self.size,
            band_size: self.from,
            version: self.version,
        }
    }

    /// The bands to be.
    pub(super) fn after(&self) -> plist::Info {
        plist::Info {
            size: self.size,
            band_size: self.to,
            version: self.version,
        }
    }

    /// The same for people.
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
            "changing the size of bands from {from} to {to} bytes was interrupted after {far}; other programs cannot open the \
             bundle until `bandsaw reband` has finished it"
        )
    }
}

/// Writes `xml` to both lists that every bundle has, the one that counts last; each durable before
/// the next.
fn write_lists(store: &dyn Store, xml: &str) -> Result<()> {
    for name in [plist::BACKUP, plist::INFO] {
        store.put(name, xml.as_bytes(), Put::Replace)?;
        store.sync()?;
    }
    Ok(())
}

/// Names that begin with `prefix` and go on as a band's does, of those that `wanted` says yes to.
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

/// Removes what is left of bands of the old size, maps of blocks included, for the new ones to take
/// these names.
fn remove_old(store: &dyn Store) -> Result<()> {
    [BANDS, MAPPED]
        .into_iter()
        .try_for_each(|folder| remove_bands(store, folder, |_| true))
}

#[cfg(test)]
mod tests;
