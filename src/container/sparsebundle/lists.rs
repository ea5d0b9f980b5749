//! Choice between the two property lists of a bundle.

use super::rebanding::Rebanding;
use super::{LAYER, plist};
use crate::device::BlockDeviceExt;
use crate::store::{Open, Store};
use crate::{Error, Kind, Result};

/// Text in the warning about a bundle that was opened with one list because the other is
/// unreadable.
pub const USED_INSTEAD: &str = "is used instead of";

/// Contents of the property lists of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) enum Told {
    Whole(plist::Info),
    /// The bands are of two sizes.
    Between(Rebanding),
}

/// Reads `Info.plist`, or its copy if that is unreadable. Returns warnings as well.
pub(super) fn read_lists(store: &dyn Store) -> Result<(Told, Vec<String>)> {
    let first = match read_plist(store, plist::INFO) {
        Ok(info) => return Ok((Told::Whole(info), Vec::new())),
        Err(plist::Unread::Rebanding(_)) => {
            return Ok((Told::Between(Rebanding::read(store)?), Vec::new()));
        }
        Err(plist::Unread::Refused(error)) => return Err(error),
        Err(plist::Unread::Unreadable(error)) => error,
    };
    let instead = vec![format!(
        "{} {USED_INSTEAD} {}: {first}",
        plist::BACKUP,
        plist::INFO
    )];
    match read_plist(store, plist::BACKUP) {
        Ok(info) => Ok((Told::Whole(info), instead)),
        Err(plist::Unread::Rebanding(_)) => Ok((Told::Between(Rebanding::read(store)?), instead)),
        Err(unread) => {
            let second = Error::from(unread);
            let message = format!(
                "{}, and {}: {}",
                first.message(),
                plist::BACKUP,
                second.message()
            );
            Err(Error::new(first.kind(), LAYER, message).named(plist::INFO))
        }
    }
}

pub(super) fn read_plist(store: &dyn Store, name: &str) -> Result<plist::Info, plist::Unread> {
    let unreadable = plist::Unread::Unreadable;
    let missing = || Error::not_found(LAYER, name);
    let file = store
        .open(name, Open::Read)
        .and_then(|file| file.ok_or_else(missing))
        .map_err(unreadable)?;
    let len = file.info().len;
    if len > plist::MOST_BYTES {
        let message = format!("expected at most {} bytes, found {len}", plist::MOST_BYTES);
        return Err(unreadable(
            Error::new(Kind::Limit, LAYER, message).named(name),
        ));
    }
    let bytes = file.read_vec(0, len as usize).map_err(unreadable)?;
    plist::Info::parse(&bytes, name)
}
