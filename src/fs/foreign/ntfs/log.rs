//! The log of changes, `$LogFile`: whether anything in it waits to be done again or undone.

use zerocopy::FromBytes;

use super::super::layout::ntfs::{NO_CLIENT, RestartAreaRaw, RestartPageRaw, VOLUME_IS_CLEAN};
use super::record::restore;
use super::{File, NtfsVolume};
use crate::Result;

/// Where the second page may be: a page of the system's after the first.
const PAGE: usize = 4096;

/// Why the volume is not in order, if it is not. Both first pages have to say that the log was
/// closed; or it is empty, as Linux programs leave it.
pub(super) fn disorder(volume: &NtfsVolume, log: &File) -> Result<Option<&'static str>> {
    let mut pages = vec![0; 2 * PAGE];
    volume.read(log, 0, &mut pages)?;
    let is_closed = || {
        pages
            .chunks_exact(PAGE)
            .all(|page| is_clean(page) == Some(true))
    };
    let in_order = pages.iter().all(|&byte| byte == 0xFF) || is_closed();
    Ok((!in_order).then_some(
        "was not cleanly unmounted, or Windows sleeps in it: changes may wait in its log",
    ))
}

/// Returns whether a page says that the log was closed in order. `None`: it makes no sense.
fn is_clean(page: &[u8]) -> Option<bool> {
    let (head, _) = RestartPageRaw::read_from_prefix(page).ok()?;
    if head.magic != *b"RSTR" || head.major.get() != 1 || head.system_page.get() as usize != PAGE {
        return None;
    }
    let mut page = page.to_vec();
    restore(
        &mut page,
        head.fixups.get().into(),
        head.fixup_count.get().into(),
    )?;
    let (area, _) =
        RestartAreaRaw::read_from_prefix(page.get(usize::from(head.area.get())..)?).ok()?;
    Some(area.client_in_use.get() == NO_CLIENT || area.flags.get() & VOLUME_IS_CLEAN != 0)
}
