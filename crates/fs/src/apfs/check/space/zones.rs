//! The additional part of a versioned space manager: its size, and the allocation zones, which are
//! hints that readers ignore (§14).

use std::collections::HashSet;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::apfs::layout::{
    BlockSize, SPACEMAN_ARRAYS, SpacemanRaw, SpacemanVersionRaw, ZoneRaw, spaceman_flags,
};

/// Returns a message if the zones are inconsistent; `manager` are all bytes of the space manager.
pub(super) fn zone_damage(manager: &[u8], block_size: BlockSize) -> Option<String> {
    let (head, rest) = SpacemanRaw::ref_from_prefix(manager).ok()?;
    if head.flags.get() & spaceman_flags::VERSIONED == 0 {
        return None;
    }
    let (versioned, _) = SpacemanVersionRaw::ref_from_prefix(rest).ok()?;
    if versioned.struct_size.get() != SPACEMAN_ARRAYS {
        return Some(format!(
            "records a header of {} bytes, expected {SPACEMAN_ARRAYS}",
            versioned.struct_size
        ));
    }
    let mut ids = HashSet::new();
    versioned
        .zones
        .iter()
        .zip(0..)
        .find_map(|(bytes, index): (_, u32)| {
            let zone = ZoneRaw::read_from_bytes(bytes).ok()?;
            let id = zone.id.get();
            let message = match unusual_zone(&zone, block_size) {
                None if id == 0 || ids.insert(id) => return None,
                None => "the same number as another zone",
                Some(message) => message,
            };
            Some(format!("zone {index} of the allocator has {message}"))
        })
}

fn unusual_zone(zone: &ZoneRaw, block_size: BlockSize) -> Option<&'static str> {
    let none = [U64::new(0); 2];
    let makes_sense = |[start, end]: &[U64; 2]| {
        let size = u64::from(block_size.get());
        start < end && start.get() % size == 0 && end.get() % size == 0
    };
    let latest = usize::from(zone.previous_index.get());
    if zone.reserved.get() != 0 {
        return Some("data in an unused field");
    }
    let now = if zone.id.get() == 0 {
        zone.now == none
    } else {
        makes_sense(&zone.now)
    };
    if !now {
        return Some("invalid boundaries");
    }
    let before = match latest
        .checked_sub(1)
        .map(|latest| zone.previous.get(latest))
    {
        None => zone.previous.iter().all(|bounds| *bounds == none),
        Some(None) => false,
        Some(Some(latest)) => {
            *latest != none
                && zone
                    .previous
                    .iter()
                    .all(|bounds| *bounds == none || makes_sense(bounds))
        }
    };
    (!before).then_some("invalid previous boundaries")
}
