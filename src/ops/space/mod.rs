//! Storage of an image and its free space: the basis of `du`, `trim`, `compact` and the maps.

mod free;
mod map;
mod storage;

pub(crate) use free::UnconfirmedVolumes;
pub use free::{FreeSpace, FreeVolume};
pub use map::{SpaceMap, Unit, UnitUsage};
pub use storage::UnitKind;
pub(crate) use storage::{Storage, can_punch};
