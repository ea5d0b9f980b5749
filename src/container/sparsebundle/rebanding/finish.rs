//! The last phase: renames the new bands and writes the new size into the property lists.

use super::super::BandIndex;
use super::{BANDS, LIST, NEW_BANDS, Rebanding, write_lists};
use crate::Result;
use crate::store::Store;

/// Renames the new bands, which must all exist, to their final names, writes the new band size to
/// the property lists, and removes `rebanding.plist`. Can be repeated after a crash, as long as
/// nothing was written in between.
pub(in super::super) fn finish(store: &dyn Store, state: &Rebanding) -> Result<()> {
    let mut found = Vec::new();
    store.list(NEW_BANDS, &mut |entry| {
        found.extend(BandIndex::from_name(NEW_BANDS, entry.name));
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
