//! The journal, `$LogFile`: whether it must be replayed.

use zerocopy::FromBytes;

use super::super::layout::ntfs::{NO_CLIENT, RestartAreaRaw, RestartPageRaw, VOLUME_IS_CLEAN};
use super::record::restore;
use super::{File, NtfsVolume};
use crate::Result;

/// Offset of the second page: one system page after the first.
const PAGE: usize = 4096;

/// Returns the reason if the volume is not clean. Both restart pages must say that the log was
/// closed, or the log must be empty, as Linux programs leave it.
pub(super) fn disorder(volume: &NtfsVolume, log: &File) -> Result<Option<&'static str>> {
    let mut pages = vec![0; 2 * PAGE];
    volume.read(log, 0, &mut pages)?;
    let is_closed = || {
        pages
            .chunks_exact(PAGE)
            .all(|page| is_clean(page) == Some(true))
    };
    let in_order = pages.iter().all(|&byte| byte == 0xFF) || is_closed();
    Ok((!in_order)
        .then_some("not cleanly unmounted, or Windows is hibernated: its log may have changes"))
}

/// Returns true if a page says that the log was closed cleanly, `None` if it is invalid.
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
