//! Entries of the root folder that belong to the volume itself: the folder of hard-linked files,
//! and the files of a journal.

use zerocopy::big_endian::U16;

use super::{LAYER, PRIVATE_FOLDER};
use crate::hfsplus::layout::Cnid;
use crate::hfsplus::links::JOURNAL_NAMES;
use crate::hfsplus::unicode::{NameOrder, encode_name};
use bandsaw_core::{Error, Result};

/// The folder of hard-linked folders. It is never built here, but its name is reserved.
const PRIVATE_FOLDER_OF_FOLDERS: &str = ".HFS+ Private Directory Data\r";

/// The purpose of such an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Journal,
    JournalInfo,
    PrivateFolder,
}

impl Purpose {
    /// Returns its name as programs see it.
    fn name(self) -> &'static str {
        match self {
            Self::Journal => JOURNAL_NAMES[0],
            Self::JournalInfo => JOURNAL_NAMES[1],
            Self::PrivateFolder => PRIVATE_FOLDER,
        }
    }

    pub(super) fn is_folder(self) -> bool {
        self == Self::PrivateFolder
    }
}

/// An entry of the root folder that belongs to the volume itself.
#[derive(Debug)]
pub(super) struct VolumeEntry {
    pub(super) purpose: Purpose,
    pub(super) cnid: Cnid,
    pub(super) name: Vec<U16>,
    /// Number of the root's other children that precede it in catalog order.
    pub(super) before: usize,
}

/// Finds the position of each of `wanted` among the sorted keys of the root's children, and returns
/// them in catalog order. Fails if a child has a name that the volume needs.
pub(super) fn place(
    wanted: &[(Purpose, Cnid)],
    sorted: &[&[u8]],
    order: NameOrder,
) -> Result<Vec<VolumeEntry>> {
    let find = |text: &str| -> Result<(Vec<U16>, Vec<u8>, usize)> {
        let (mut name, mut key) = (Vec::new(), Vec::new());
        encode_name(text, &mut name)?;
        order.sort_key(&name, &mut key);
        match sorted.binary_search(&key.as_slice()) {
            Ok(_) => Err(Error::unsupported(
                LAYER,
                "the name is reserved for the volume's own data",
            )
            .named(text.trim_end())),
            Err(before) => Ok((name, key, before)),
        }
    };
    find(PRIVATE_FOLDER_OF_FOLDERS)?;
    find(PRIVATE_FOLDER)?;
    let mut placed = Vec::new();
    for &(purpose, cnid) in wanted {
        let (name, key, before) = find(purpose.name())?;
        placed.push((
            key,
            VolumeEntry {
                purpose,
                cnid,
                name,
                before,
            },
        ));
    }
    placed.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(placed.into_iter().map(|(_, own)| own).collect())
}
