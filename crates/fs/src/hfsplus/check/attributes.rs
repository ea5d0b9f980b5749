//! Check of the records of the attributes tree (§8, §17).

use zerocopy::big_endian::U16;

use super::forks::Forks;
use super::report::{Report, numbered, wrong};
use crate::block_users::BlockUse;
use crate::hfsplus::layout::{
    AttributeKey, AttributeRecord, Cnid, ExtentsRaw, SECURITY, extents_of,
};
use crate::hfsplus::unicode::decode_attribute_name;
use bandsaw_core::decmpfs::{self, Compression, Place};

const LAYER: &str = "hfs+ attributes tree";

/// An object that has attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) id: Cnid,
    /// True if one of them is its access control list.
    pub(super) security: bool,
    /// True if one of them describes compressed contents.
    pub(super) compression: bool,
    /// True if it also holds them.
    pub(super) contents: bool,
}

/// A value in blocks whose extents have not all been seen yet.
#[derive(Debug)]
struct Open {
    id: Cnid,
    name: Vec<U16>,
    found: u64,
    wanted: u32,
}

/// Checks the records in order.
#[derive(Debug, Default)]
pub(super) struct AttributeCheck {
    /// Owners in the order of the tree.
    owners: Vec<Owner>,
    open: Option<Open>,
}

impl AttributeCheck {
    pub(super) fn add(&mut self, record: &[u8], node: u32, forks: &mut Forks, report: &mut Report) {
        let Some((key, data)) = AttributeKey::split(record) else {
            report.damage(wrong(
                LAYER,
                format!("node {node}: malformed key of a record"),
            ));
            return;
        };
        let Some(parsed) = AttributeRecord::parse(data) else {
            report.damage(
                wrong(
                    LAYER,
                    format!(
                        "node {node}: a record of object {} is of unknown type or truncated",
                        key.file
                    ),
                )
                .about(numbered(key.file)),
            );
            return;
        };
        self.own(&key, &parsed);
        if let AttributeRecord::Extents(extents) = parsed {
            return self.continue_value(&key, extents, forks, report);
        }
        self.close(report);
        if key.start_block != 0 {
            report.damage(
                wrong(
                    LAYER,
                    format!(
                        "the first record of {} is for block {}, expected 0",
                        name_of(&key),
                        key.start_block
                    ),
                )
                .about(numbered(key.file)),
            );
        }
        if let AttributeRecord::Fork(fork) = parsed {
            forks.check(fork, key.file, BlockUse::Attribute, report);
            let found = extents_of(&fork.extents)
                .map(|extent| u64::from(extent.count))
                .sum();
            self.open = Some(Open {
                id: key.file,
                name: key.name.to_vec(),
                found,
                wanted: fork.total_blocks.get(),
            });
        }
    }

    fn own(&mut self, key: &AttributeKey<'_>, value: &AttributeRecord<'_>) {
        let is_named =
            |name: &str| key.name.len() == name.len() && decode_attribute_name(key.name) == name;
        let is_attribute = is_named(decmpfs::ATTRIBUTE);
        let described = match value {
            AttributeRecord::Inline(value) => Compression::parse(value),
            AttributeRecord::Fork(_) | AttributeRecord::Extents(_) => None,
        };
        let is_inline = matches!(value, AttributeRecord::Inline(_));
        let security = is_named(SECURITY);
        let compression = is_attribute && (described.is_some() || !is_inline);
        let place = described
            .filter(|described| is_attribute && described.size > 0)
            .and_then(Compression::method);
        let contents =
            place.is_some_and(|(_, place)| matches!(place, Place::Attribute | Place::Nowhere));
        match self.owners.last_mut() {
            Some(last) if last.id == key.file => {
                last.security |= security;
                last.compression |= compression;
                last.contents |= contents;
            }
            _ => self.owners.push(Owner {
                id: key.file,
                security,
                compression,
                contents,
            }),
        }
    }

    /// Processes an extents record of the value seen last.
    fn continue_value(
        &mut self,
        key: &AttributeKey<'_>,
        extents: &ExtentsRaw,
        forks: &mut Forks,
        report: &mut Report,
    ) {
        let more = forks.claim_extents(extents, key.file, BlockUse::Attribute, report);
        match &mut self.open {
            Some(open)
                if open.id == key.file
                    && open.name == key.name
                    && open.found == u64::from(key.start_block) =>
            {
                open.found += more;
            }
            _ => {
                let message = format!(
                    "the extents of {} from block {} on do not continue the extents before",
                    name_of(key),
                    key.start_block
                );
                report.damage(wrong(LAYER, message).about(numbered(key.file)));
            }
        }
    }

    /// Checks that the extents of the last value are complete.
    pub(super) fn close(&mut self, report: &mut Report) {
        let Some(open) = self.open.take() else { return };
        if open.found != u64::from(open.wanted) {
            let name = decode_attribute_name(&open.name);
            let message = format!(
                "expected {} blocks for {name} of object {}, but its extents have {}",
                open.wanted, open.id, open.found
            );
            report.damage(wrong(LAYER, message).about(numbered(open.id)));
        }
    }

    /// Returns the objects with attributes, in ascending order and without duplicates.
    pub(super) fn into_owners(mut self) -> Vec<Owner> {
        self.owners.sort_unstable_by_key(|owner| owner.id);
        self.owners.dedup_by(|later, first| {
            let same = later.id == first.id;
            first.security |= same && later.security;
            first.compression |= same && later.compression;
            first.contents |= same && later.contents;
            same
        });
        self.owners
    }
}

fn name_of(key: &AttributeKey<'_>) -> String {
    format!("{} of object {}", decode_attribute_name(key.name), key.file)
}
