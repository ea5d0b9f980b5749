//! The end of it: bands get their names, the lists the new size.

use super::super::BandIndex;
use super::{BANDS, LIST, NEW_BANDS, Rebanding, write_lists};
use crate::Result;
use crate::store::Store;

/// Gives bands that are all there their names, tells their size, and forgets that there was
/// another. May be done again after a crash, as long as nothing was written in between.
pub(in super::super) fn finish(store: &dyn Store, state: &Rebanding) -> Result<()> {
    let mut found = Vec::new();
    store.list(NEW_BANDS, &mut |entry| {
        found.extend(BandIndex::from_name(NEW_BANDS, entry.name));
        Ok(())
    })?;
    for index in found {
        let name = index.name_in(NEW_BANDS);
        store.rename(&name, &index.name_in(BANDS))?;
        // After a crash one file may have had both names, and then nothing is moved.
        store.remove(&name)?;
    }
    store.sync()?;
    write_lists(store, &state.after().to_xml())?;
    store.remove(LIST)?;
    store.sync()
}
