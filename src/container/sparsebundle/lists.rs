//! Choice between the two property lists of a bundle.

use super::rebanding::Rebanding;
use super::repair::listed;
use super::{LAYER, plist};
use crate::decision::{CopyChoice, Undecided};
use crate::device::{Access, BlockDeviceExt};
use crate::size::to_usize;
use crate::store::{Open, Store};
use crate::{Error, Kind, Result};

/// Contents of the property lists of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) enum RecordedGeometry {
    Whole(plist::Info),
    /// The bands are of two sizes.
    Between(Rebanding),
}

/// Reads `Info.plist`, or its copy if that is unreadable; then the second value is the warning about
/// it.
pub(super) fn read_lists(store: &dyn Store) -> Result<(RecordedGeometry, Option<String>)> {
    let first = match read_plist(store, plist::INFO) {
        Ok(info) => return Ok((RecordedGeometry::Whole(info), None)),
        Err(plist::InfoError::Rebanding(_)) => {
            return Ok((RecordedGeometry::Between(Rebanding::read(store)?), None));
        }
        Err(plist::InfoError::Refused(error)) => return Err(error),
        Err(plist::InfoError::Unreadable(error)) => error,
    };
    let instead = Some(format!(
        "{} is used instead of {}: {first}",
        plist::BACKUP,
        plist::INFO
    ));
    match read_plist(store, plist::BACKUP) {
        Ok(info) => Ok((RecordedGeometry::Whole(info), instead)),
        Err(plist::InfoError::Rebanding(_)) => {
            Ok((RecordedGeometry::Between(Rebanding::read(store)?), instead))
        }
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

/// Numbers that evidence outside of the lists has chosen between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChosenGeometry {
    /// The numbers to use.
    pub(crate) geometry: plist::Info,
    /// The numbers in Info.plist and Info.bckup when they were chosen.
    pub(crate) lists: [plist::Info; 2],
}

/// Returns the properties with which a bundle is opened whose effective list contains `info`: those
/// of `choice`, if the lists are still as they were. Without a choice, lists that differ are an
/// error of [`Kind::Undecided`] if the bundle is to be changed.
pub(super) fn effective_properties(
    store: &dyn Store,
    info: plist::Info,
    access: Access,
    choice: Option<ChosenGeometry>,
) -> Result<plist::Info> {
    if choice.is_none() && access == Access::ReadOnly {
        return Ok(info);
    }
    let lists = [
        listed(store, CopyChoice::Primary)?.geometry(),
        listed(store, CopyChoice::Alternate)?.geometry(),
    ];
    match (choice, lists) {
        (Some(choice), _) if lists != choice.lists.map(Some) => Err(Error::conflict(
            LAYER,
            "the property lists changed while they were compared",
        )),
        (Some(choice), _) => Ok(choice.geometry),
        (None, [Some(one), Some(other)]) if one != other && !is_resizing(store, [one, other]) => {
            Err(Undecided {
                what: format!("{} and {} differ", plist::INFO, plist::BACKUP),
                alternatives: Vec::new(),
            }
            .into_error(LAYER))
        }
        (None, _) => Ok(info),
    }
}

/// Returns true if the lists, Info.plist first, differ because a change of the size was interrupted
/// before it had an effect.
pub(crate) fn is_resizing(store: &dyn Store, lists: [plist::Info; 2]) -> bool {
    let [info, backup] = lists;
    let before = || plist::size_before(&read_bytes(store, plist::BACKUP).ok()?);
    plist::Info {
        size: info.size,
        ..backup
    } == info
        && before() == Some(info.size)
}

pub(super) fn read_plist(store: &dyn Store, name: &str) -> Result<plist::Info, plist::InfoError> {
    // A read error is no evidence about the list: the other one does not take its place.
    let bytes = read_bytes(store, name).map_err(|error| match error.kind() {
        Kind::Io => plist::InfoError::Refused(error),
        _ => plist::InfoError::Unreadable(error),
    })?;
    plist::Info::parse(&bytes, name)
}

fn read_bytes(store: &dyn Store, name: &str) -> Result<Vec<u8>> {
    let missing = || Error::not_found(LAYER, name);
    let file = store
        .open(name, Open::Read)
        .and_then(|file| file.ok_or_else(missing))?;
    let len = file.info().len;
    if len > plist::MAX_BYTES {
        let message = format!("expected at most {} bytes, found {len}", plist::MAX_BYTES);
        return Err(Error::limit(LAYER, message).named(name));
    }
    file.read_vec(0, to_usize(len))
}
