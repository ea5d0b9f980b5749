//! Where the storage of an image is, what of it no volume uses, and giving that back: what `du`,
//! `trim`, `compact` and the maps go by.

mod free;
mod map;
mod storage;

pub use free::{FreeSpace, FreeVolume};
pub use map::{Fill, SpaceMap, Unit};
pub use storage::UnitKind;
pub(crate) use storage::{Storage, can_punch};
