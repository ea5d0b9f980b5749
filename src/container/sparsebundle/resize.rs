//! Another size for the disk. Source: docs/formats/sparsebundle.md §9.

use std::sync::PoisonError;

use super::{Bundle, LAYER, check_len, plist};
use crate::Result;
use crate::store::Put;

impl Bundle {
    /// Grows or cuts the disk, durably. If it fails before the plists tell the new size the bundle is as it was; a
    /// failure afterwards leaves files past the end, which the next growth removes.
    pub(super) fn resize(&self, len: u64) -> Result<()> {
        self.bands.check_changeable()?;
        check_len(LAYER, len)?;
        let _one_at_a_time = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.bands.len();
        if len > now {
            // Growth trusts no leftovers: they would become part of the disk.
            self.bands.remove_beyond(now)?;
            self.write_size(len)?;
            self.bands.grow(len);
        } else if len < now {
            let before = self.bands.shut_out(len);
            if let Err(error) = self.write_size(len) {
                self.bands.grow(before);
                return Err(error);
            }
            self.bands.remove_beyond(len)?;
        }
        Ok(())
    }

    /// Tells the size in both plists, the copy first, each durable before the next step.
    fn write_size(&self, size: u64) -> Result<()> {
        let bands = &self.bands;
        let info = plist::Info { size, band_size: bands.band_size, version: bands.version };
        let xml = info.to_xml();
        for name in [plist::BACKUP, plist::INFO] {
            let put = bands.store.put(name, xml.as_bytes(), Put::Replace).and_then(|_| bands.store.sync());
            put.map_err(|error| bands.lose(error))?;
        }
        Ok(())
    }
}
