//! Whether the journal holds changes that have not reached their places yet (§14).

use super::extents::Space;
use super::layout::{AllocBlock, JournalHeaderRaw, JournalInfoBlockRaw, JournalOrder, journal_flags};
use super::read_structure;
use crate::{Error, Result};

const LAYER: &str = "hfs+ journal";

/// Whether the journal whose info block is `info_block` waits to be replayed.
pub(super) fn is_pending(space: &Space, info_block: AllocBlock) -> Result<bool> {
    if info_block.0 == 0 || info_block.0 >= space.total_blocks {
        let message = format!("info block {info_block} expected among the volume's {} blocks", space.total_blocks);
        return Err(Error::new(crate::Kind::Corrupt, LAYER, message));
    }
    let at = info_block.offset(space.block_size);
    let info: JournalInfoBlockRaw = read_structure(&*space.device, at)?;
    let flags = info.flags.get();
    if flags & journal_flags::NEEDS_INIT != 0 {
        return Ok(false);
    }
    if flags & journal_flags::IN_VOLUME == 0 {
        return Err(Error::unsupported(LAYER, "the journal lies on another device").at(at));
    }
    let start = info.offset.get();
    space.device.info().check(LAYER, start, info.size.get())?;
    let header: JournalHeaderRaw = read_structure(&*space.device, start)?;
    let Some(order) = JournalOrder::of(&header) else {
        return Err(Error::corrupt(LAYER, start, "a journal header (JNLx) expected"));
    };
    Ok(order.u64(header.start) != order.u64(header.end))
}
