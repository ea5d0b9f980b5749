//! The records of a volume's files: each by itself, then against each other (§8).
//!
//! Records are read in the order of the tree, so all records of one object are adjacent. Relations
//! between objects are gathered, with some ten bytes for each, and checked at the end.

mod inode;
mod links;
mod streams;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use zerocopy::FromBytes;

use self::inode::Group;
use self::links::{ObjectState, Sibling};
use self::streams::StreamSeen;
use super::report::{Report, entry_in, numbered};
use super::tree::Leaf;
use crate::apfs::btree::Key;
use crate::apfs::layout::{
    BlockSize, Counts, CryptoStateRaw, DataStreamIdRaw, DirectoryEntryRaw, DirectoryStatsRaw,
    ENTRY_TYPE_MASK, FileExtentRaw, FileId, FileInfoRaw, InodeRaw, KeyRest, RecordKey,
    SiblingLinkRaw, SiblingMapRaw, XattrRaw, XattrValue, entry_field, record_type, xattr_flags,
};
use crate::apfs::names::NameRules;
use bandsaw_core::Result;

pub(super) const LAYER: &str = "apfs file tree";

/// The limits and features that a volume's records are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) names: NameRules,
    pub(super) encrypted: bool,
    pub(super) sealed: bool,
    /// True if made by an early version of APFS, in which some records differ.
    pub(super) early: bool,
    pub(super) block_size: BlockSize,
    /// Number of blocks of the container.
    pub(super) blocks: u64,
}

/// The state gathered from the records of a file-system tree.
#[derive(Debug)]
pub(super) struct Files {
    rules: Rules,
    group: Group,
    objects: HashMap<u64, ObjectState>,
    siblings: HashMap<u64, Sibling>,
    streams: HashMap<u64, StreamSeen>,
    /// Runs of blocks that files use, once for each use.
    pub(super) extents: Vec<Range<u64>>,
    /// Highest number of an inode, a stream or a sibling.
    pub(super) highest: u64,
    unknown_types: u64,
}

impl Files {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            group: Group::new(0),
            objects: HashMap::new(),
            siblings: HashMap::new(),
            streams: HashMap::new(),
            extents: Vec::new(),
            highest: 0,
            unknown_types: 0,
        }
    }

    /// Adds a record of the file-system tree, in its order.
    pub(super) fn add(&mut self, leaf: &Leaf<'_>, report: &mut Report<'_>) -> Result<()> {
        let Key::Record(key) = leaf.key else {
            return Ok(());
        };
        let id = key.id.0;
        if id != self.group.id {
            self.close_group(report);
            self.group = Group::new(id);
        }
        let understood = match key.kind {
            record_type::INODE => self.inode(id, leaf, report),
            record_type::XATTR => self.xattr(&key, leaf, report),
            record_type::SIBLING_LINK => self.sibling_link(&key, leaf, report),
            record_type::SIBLING_MAP => self.sibling_map(id, leaf),
            record_type::DATA_STREAM => self.stream_id(id, leaf),
            record_type::FILE_EXTENT => self.extent(&key, leaf, report),
            record_type::DIRECTORY_ENTRY => self.entry(&key, leaf, report),
            record_type::DIRECTORY_STATS => self.statistics(leaf),
            record_type::CRYPTO_STATE => self.crypto_state(leaf, report),
            record_type::FILE_INFO => FileInfoRaw::read_from_prefix(leaf.value).ok().map(drop),
            kind => {
                if self.unknown_types == 0 {
                    report.warning(
                        leaf.wrong(format_args!(
                            "object {id:#x} has a record of the unknown type {kind}"
                        ))
                        .about(numbered(id)),
                    );
                }
                self.unknown_types += 1;
                Some(())
            }
        };
        if understood.is_none() {
            report.damage(
                leaf.wrong(format_args!(
                    "malformed record of type {} of object {id:#x}",
                    key.kind
                ))
                .about(numbered(id)),
            );
        }
        Ok(())
    }

    /// Checks the relations between objects, after the last record.
    pub(super) fn finish(&mut self, report: &mut Report<'_>) -> Counts {
        self.close_group(report);
        self.check_streams(report);
        self.check_links(report)
    }

    fn see(&mut self, id: u64) {
        self.highest = self.highest.max(id);
    }

    /// Checks a crypto state. Reference counts are ignored: only volumes with several keys maintain
    /// them.
    fn crypto_state(&mut self, leaf: &Leaf<'_>, report: &mut Report<'_>) -> Option<()> {
        let (state, rest) = CryptoStateRaw::ref_from_prefix(leaf.value).ok()?;
        if !self.rules.encrypted {
            report.warning(
                leaf.wrong("a record has an encryption state, but the volume is not encrypted"),
            );
        }
        (rest.len() == usize::from(state.key_len.get())).then_some(())
    }

    fn statistics(&mut self, leaf: &Leaf<'_>) -> Option<()> {
        self.group.has_statistics = true;
        DirectoryStatsRaw::ref_from_prefix(leaf.value)
            .ok()
            .map(drop)
    }

    fn stream_id(&mut self, id: u64, leaf: &Leaf<'_>) -> Option<()> {
        let (raw, _) = DataStreamIdRaw::ref_from_prefix(leaf.value).ok()?;
        self.stream(id).recorded = Some(raw.references.get());
        Some(())
    }

    fn xattr(
        &mut self,
        key: &RecordKey<'_>,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) -> Option<()> {
        let KeyRest::Name(name) = key.rest else {
            return None;
        };
        let name = str::from_utf8(name).ok()?;
        let (head, _) = XattrRaw::ref_from_prefix(leaf.value).ok()?;
        self.group.attribute(name);
        match XattrValue::parse(leaf.value)? {
            XattrValue::Embedded(value) => self.embedded(name, value, leaf, report),
            XattrValue::Stream(at) => {
                let stream = at.stream_id.get();
                let private = head.flags.get() & xattr_flags::PRIVATE_STREAM != 0;
                if private && self.rules.sealed {
                    report.note(leaf.wrong(format_args!(
                        "attribute {name} has a stream of its own, unexpected on a sealed volume"
                    )).about(numbered(self.group.id)));
                }
                self.see(stream);
                self.stream(stream).use_by_attribute(key.id.0, &at.stream);
            }
        }
        Some(())
    }

    fn embedded(&mut self, name: &str, value: &[u8], leaf: &Leaf<'_>, report: &mut Report<'_>) {
        use crate::apfs::layout::{MAX_EMBEDDED_XATTR, xattr_name};
        let id = self.group.id;
        if value.len() > MAX_EMBEDDED_XATTR {
            report.warning(
                leaf.wrong(format_args!(
                    "attribute {name} of object {id:#x} has {} bytes in the tree: the maximum is \
                 {MAX_EMBEDDED_XATTR}",
                    value.len()
                ))
                .about(numbered(id)),
            );
        }
        match name {
            xattr_name::SYMLINK if value.last() != Some(&0) => {
                report.damage(
                    leaf.wrong(format_args!(
                        "the target of symbolic link {id:#x} is not NUL-terminated"
                    ))
                    .about(numbered(id)),
                );
            }
            xattr_name::RESOURCE_FORK if !self.rules.early => {
                report.damage(
                    leaf.wrong(format_args!(
                        "the resource fork of object {id:#x} is in the tree, not in a stream"
                    ))
                    .about(numbered(id)),
                );
            }
            xattr_name::FINDER_INFO if value.len() != 32 => {
                report.warning(
                    leaf.wrong(format_args!(
                        "the Finder info of object {id:#x} has {} bytes, expected 32",
                        value.len()
                    ))
                    .about(numbered(id)),
                );
            }
            _ => {}
        }
    }

    fn extent(
        &mut self,
        key: &RecordKey<'_>,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) -> Option<()> {
        let KeyRest::Number(start) = key.rest else {
            return None;
        };
        let (raw, _) = FileExtentRaw::read_from_prefix(leaf.value).ok()?;
        self.add_extent(key.id.0, start, &raw, leaf, report);
        Some(())
    }

    /// Adds an extent of a stream, in order, from a record or from the extent tree of a sealed
    /// volume.
    pub(super) fn add_extent(
        &mut self,
        id: u64,
        start: u64,
        raw: &FileExtentRaw,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) {
        let (len, paddr, block) = (
            raw.len(),
            raw.paddr.get(),
            u64::from(self.rules.block_size.get()),
        );
        let blocks = self.rules.blocks;
        self.see(id);
        if len == 0
            || !len.is_multiple_of(block)
            || !start.is_multiple_of(block)
            || start.checked_add(len).is_none()
        {
            return report.damage(
                leaf.wrong(format_args!(
                    "stream {id:#x}: the extent at byte {start} has {len} bytes: both must be \
                 multiples of the block size"
                ))
                .about(numbered(self.owner_of(id))),
            );
        }
        let run = paddr..paddr.saturating_add(len / block);
        if paddr != 0 && run.end > blocks {
            let message = format_args!(
                "stream {id:#x}: the extent from block {paddr} of {} blocks reaches past the end \
                 of the container, which has {blocks} blocks",
                len / block
            );
            return report.damage(leaf.wrong(message).about(numbered(self.owner_of(id))));
        }
        let stream = self.stream(id);
        if stream.end != start && !stream.gap {
            // Set once: all extents that follow are misplaced.
            stream.gap = true;
            stream.end = start;
        }
        stream.end = stream.end.max(start + len);
        stream.sum += len;
        if paddr == 0 {
            stream.holes += len;
        } else {
            self.extents.push(run);
        }
    }

    fn inode(&mut self, id: u64, leaf: &Leaf<'_>, report: &mut Report<'_>) -> Option<()> {
        let (raw, fields) = InodeRaw::parse(leaf.value)?;
        self.see(id);
        inode::add(self, id, raw, &fields, leaf, report)
    }

    fn entry(
        &mut self,
        key: &RecordKey<'_>,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) -> Option<()> {
        let (entry, fields) = DirectoryEntryRaw::parse(leaf.value)?;
        let parent = key.id;
        let name = match key.rest {
            KeyRest::Name(name) | KeyRest::Hashed(_, name) => str::from_utf8(name).ok()?,
            _ => return None,
        };
        if let KeyRest::Hashed(found, _) = key.rest
            && !leaf.known
            && let Some(expected) = self
                .rules
                .names
                .hash(name)
                .filter(|&expected| expected != found)
        {
            let message = format_args!(
                "`{name}` in folder {parent:#x} is stored under hash {found:#x}, expected {expected:#x}"
            );
            report.damage(leaf.wrong(message).about(entry_in(parent.0, name)));
        }
        if name.is_empty() || name.contains('/') {
            report.warning(leaf.wrong(format_args!(
                "folder {parent:#x} has an entry with the invalid name `{name}`: it is empty or \
                 has a slash"
            )).about(entry_in(parent.0, name)));
        }
        self.group.entries += 1;
        let kind = entry.flags.get() & ENTRY_TYPE_MASK;
        let target = entry.file_id.get();
        let hash = link_hash(parent, name.as_bytes());
        let sibling = match fields.get(entry_field::SIBLING_ID) {
            Some(value) => Some(u64::from_le_bytes(*value.first_chunk()?)),
            None => None,
        };
        self.known(target).name(kind, hash, parent);
        if let Some(sibling) = sibling {
            self.see(sibling);
            self.siblings.entry(sibling).or_default().entry = Some((target, hash));
        }
        Some(())
    }

    fn sibling_link(
        &mut self,
        key: &RecordKey<'_>,
        leaf: &Leaf<'_>,
        report: &mut Report<'_>,
    ) -> Option<()> {
        let KeyRest::Number(sibling) = key.rest else {
            return None;
        };
        let (link, name) = SiblingLinkRaw::parse(leaf.value)?;
        let (id, hash) = (key.id.0, link_hash(link.parent_id.into(), name));
        self.see(sibling);
        // The link with the lowest number comes first; its name and folder are those in the inode.
        if self.group.links == 0
            && let Some(primary) = self.group.primary.filter(|&primary| primary != hash)
            && primary != 0
        {
            report.warning(
                leaf.wrong(format_args!(
                    "object {id:#x} has no record of the name and folder of its first link"
                ))
                .about(numbered(id)),
            );
        }
        self.group.links += 1;
        self.siblings.entry(sibling).or_default().link = Some((id, hash));
        Some(())
    }

    fn sibling_map(&mut self, id: u64, leaf: &Leaf<'_>) -> Option<()> {
        let (raw, _) = SiblingMapRaw::ref_from_prefix(leaf.value).ok()?;
        self.siblings.entry(id).or_default().map = Some(raw.file_id.get());
        Some(())
    }

    fn known(&mut self, id: u64) -> &mut ObjectState {
        self.objects.entry(id).or_default()
    }

    fn stream(&mut self, id: u64) -> &mut StreamSeen {
        self.streams.entry(id).or_default()
    }
}

/// Returns a hash of a name in a folder. A collision would only hide a wrong name.
fn link_hash(parent: FileId, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent.0, name).hash(&mut hasher);
    hasher.finish()
}
