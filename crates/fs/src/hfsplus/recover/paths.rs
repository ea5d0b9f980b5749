//! Paths of files that do not exist any more, through folders that do, and through those that were found.

use super::area::Area;
use super::carve::{self, Carved, Limits, MAX_RECORD};
use super::found::FoundRecords;
use super::live::LiveObjects;
use crate::hfsplus::HfsPlus;
use crate::hfsplus::layout::Cnid;
use crate::hfsplus::unicode::decode_name;
use crate::recovered::paths::{FolderPath, KnownPaths};

/// Resolves paths of folders.
pub(super) struct FolderPaths<'a> {
    pub(super) live: Option<(&'a HfsPlus, &'a LiveObjects)>,
    pub(super) areas: &'a [Area],
    pub(super) limits: Limits,
    pub(super) known: KnownPaths<u32>,
}

impl FolderPaths<'_> {
    /// Returns the path of a folder.
    pub(super) fn folder(&mut self, id: u32, found: &FoundRecords) -> FolderPath {
        let (live, areas, limits) = (self.live, self.areas, self.limits);
        self.known.folder(id, |id| {
            if let Some((volume, live)) = live
                && live.has(id)
            {
                let object = volume.catalog.by_id(Cnid(id)).ok()??;
                return Some((object.parent.0, decode_name(&object.name)));
            }
            let place = found.folder(id)?;
            let bytes = areas.get(place.area())?.read(place.at(), MAX_RECORD).ok()?;
            match carve::catalog(&bytes, limits)?.0 {
                Carved::Folder(key, _) => Some((key.parent.0, decode_name(key.name))),
                Carved::Thread(_, thread) => Some((thread.parent.0, decode_name(thread.name))),
                Carved::File(..) => None,
            }
        })
    }
}
