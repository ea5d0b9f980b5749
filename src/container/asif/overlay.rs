//! An image as a layer of a stack.

use std::ops::Range;

use uuid::Uuid;

use super::{Asif, LAYER};
use crate::container::overlay::Overlay;
use crate::{Error, Result};

impl Overlay for Asif {
    fn grain(&self) -> u64 {
        u64::from(self.geometry.block)
    }

    fn set_len_hiding(&self, len: u64, hidden: Range<u64>) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.resize(len, hidden)
    }
}

impl Asif {
    /// Begins the changes of this session with a UUID that the caller has chosen and recorded.
    /// Durable on return. A cache keeps its UUID.
    pub fn begin_as(&self, uuid: Uuid) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked_as(uuid)?;
        if self.layer.is_cache || self.uuid() == uuid {
            return Ok(());
        }
        self.change_header(|raw| raw.uuid = uuid.into_bytes())
    }

    /// Makes the image a layer above the image with this UUID. Durable on return. Its own UUID
    /// changes, unless it has changed in this session already.
    pub fn set_parent(&self, parent: Uuid) -> Result<()> {
        self.check_changeable()?;
        if self.layer.is_cache || !self.layer.is_overlaid {
            return Err(Error::invalid(
                LAYER,
                "not an overlay; only an overlay can be stacked over another image",
            ));
        }
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked()?;
        self.change_header(|raw| raw.parent_uuid = parent.into_bytes())
    }
}
