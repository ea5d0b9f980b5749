//! Corruptions of every kind for tests, one structure at a time, with a valid checksum.

use super::sample::Sample;
use crate::apfs::layout::*;
use crate::testing::corruption::{damage, note, warning};
use bandsaw_core::problem::Severity;

/// A corruption of a container.
pub(in crate::apfs) type Corruption = crate::testing::corruption::Corruption<Sample>;

pub(in crate::apfs) const CONTAINER: &[Corruption] = &[
    damage("checksum mismatch of the container superblock", |p| {
        p.block(0)[100] ^= 1
    }),
    warning("differs from the superblock of the checkpoint", |p| {
        p.copy(|raw| raw.next_oid = 7.into())
    }),
    warning("the next transaction number is 1,", |p| {
        p.superblock(|raw| raw.next_xid = 1.into())
    }),
    warning("the next transaction number is 18446744073709551615", |p| {
        p.superblock(|raw| raw.next_xid = u64::MAX.into())
    }),
    warning("has room for 9 volumes", |p| {
        p.superblock(|raw| raw.max_volumes = 9.into())
    }),
    warning("descriptors:", |p| {
        p.superblock(|raw| raw.desc_next = 1.into())
    }),
    warning("records 99 blocks of objects", |p| {
        p.superblock(|raw| raw.data_len = 99.into())
    }),
    damage("checkpoint 2: object 0x5 in block 5", |p| {
        p.superblock(|raw| raw.omap_oid = 5.into())
    }),
    damage("lists a volume twice", |p| {
        p.superblock(|raw| raw.volume_oids[1] = raw.volume_oids[0])
    }),
    damage("does not list volume", |p| {
        p.superblock(|raw| raw.volume_oids[0] = 0.into())
    }),
    damage("has no object 0x7777", |p| {
        p.superblock(|raw| raw.volume_oids[0] = 0x7777.into())
    }),
    damage("is not in the container", |p| {
        p.superblock(|raw| raw.key_locker = PrangeRaw::new(Paddr(1 << 40), 1))
    }),
    damage("no checkpoint map lists the reaper", |p| {
        p.superblock(|raw| raw.reaper_oid = 0x7777.into())
    }),
    warning(
        "the object number is not in the range 0x400 to 0x400",
        |p| p.superblock(|raw| raw.next_oid = 0x401.into()),
    ),
    damage("has a wrong flag: only the last", |p| {
        p.map(|bytes| bytes[0x20] = 0)
    }),
    damage("type 0x9", |p| p.map(|bytes| bytes[0x28] = 9)),
    warning("expected an ephemeral object", |p| {
        p.map(|bytes| bytes[0x2B] = 0x40)
    }),
    note("in a slot that is not in use", |p| p.block(7)[9] = 1),
    note("a deletion is in progress", |p| {
        p.reaper(|raw| raw.flags = 3.into())
    }),
    warning("has flags 0x9", |p| p.reaper(|raw| raw.flags = 9.into())),
    warning("has a buffer of 7 bytes", |p| {
        p.reaper(|raw| raw.buffer_size = 7.into())
    }),
    warning("lists, but has none", |p| {
        p.reaper(|raw| raw.head = 0x500.into())
    }),
    warning("has no lists, but is not empty", |p| {
        p.reaper(|raw| raw.fs_oid = 0x402.into())
    }),
    warning("has no lists, but is not empty", |p| {
        p.reaper(|raw| raw.next_id = 9.into())
    }),
    damage("but the newest checkpoint has", |p| {
        // The UUID is not this container's any more.
        let place = p.superblock_at();
        p.object(place, |bytes| bytes[0x48] ^= 1);
    }),
];

pub(in crate::apfs) const SPACE: &[Corruption] = &[
    damage("records 5 free blocks", |p| {
        p.space(|raw| raw.devices[0].free = 5.into())
    }),
    damage("records 9 chunks", |p| {
        p.space(|raw| raw.devices[0].chunks = 9.into())
    }),
    warning("3 blocks in its pool", |p| {
        p.space(|raw| raw.pool_blocks = 3.into())
    }),
    damage("is not in the container", |p| {
        p.space(|raw| raw.pool_base = (1 << 40).into())
    }),
    warning("records 99 blocks", |p| {
        p.space(|raw| raw.queues[1].blocks = 99.into())
    }),
    warning("9 as its oldest transaction", |p| {
        p.space(|raw| raw.queues[1].oldest_xid = 9.into())
    }),
    warning("77 nodes at most in the queue", |p| {
        p.space(|raw| raw.queues[1].node_limit = 77.into())
    }),
    damage("object 0x7777 is not in the checkpoint maps", |p| {
        p.space(|raw| raw.queues[1].tree_oid = 0x7777.into())
    }),
    warning("unused fields of a free queue are not 0", |p| {
        p.space(|raw| raw.queues[0].pad = 1.into())
    }),
    warning("a free queue for a second device", |p| {
        p.space(|raw| raw.queues[2].blocks = 1.into())
    }),
    warning("records a second device", |p| {
        p.space(|raw| raw.devices[1].free = 1.into())
    }),
    warning("slots for 3 versions", |p| {
        p.space(|raw| raw.ring_multiplier = 3.into())
    }),
    warning("zone 0 of the allocator has invalid boundaries", |p| {
        p.zone(0, |bytes| bytes[0] = 1)
    }),
    warning("invalid previous boundaries", |p| {
        p.zone(3, |bytes| bytes[0x10] = 1)
    }),
    warning("data in an unused field", |p| {
        p.zone(3, |bytes| bytes[0x84] = 1)
    }),
    warning("expected a physical object", |p| {
        p.cib(|raw| raw.object.kind = (raw.object.kind.get() | 1 << 24).into())
    }),
    damage("the list of free slots", |p| {
        p.space(|raw| raw.ring_free_head = 999.into())
    }),
    warning("expected 3", |p| {
        p.space(|raw| raw.ring_free_tail = 3.into())
    }),
    damage("are used by", |p| {
        p.queue(|bytes| bytes[56 + 576 + 8] ^= 0x40)
    }),
    damage("with number 0 and 1 entries, found number 4", |p| {
        p.cib(|raw| raw.index = 4.into())
    }),
    damage("transaction number 99 is too large", |p| {
        p.cib(|raw| raw.object.xid = 99.into())
    }),
    damage("unexpected object 0x63", |p| {
        p.cib(|raw| raw.object.oid = 99.into())
    }),
    warning("but its newest chunk of 1", |p| {
        p.chunk(|raw| raw.xid = 1.into())
    }),
    damage("but its record has 5", |p| {
        p.chunk(|raw| raw.free = 5.into())
    }),
    damage("has block 5 as its first", |p| {
        p.chunk(|raw| raw.first = 5.into())
    }),
    damage("which is not in the pool", |p| {
        p.chunk(|raw| raw.bitmap = 5.into())
    }),
    damage("checksum mismatch", |p| {
        let place = p.cib_at();
        p.block(place)[100] ^= 1;
    }),
    damage("blocks 0 to 0 are in use, but marked as free", |p| {
        p.flip(0)
    }),
    warning(
        "1 blocks are marked as used, but nothing uses them; the first is block 1000",
        |p| p.flip(1000),
    ),
    damage("of the pool", |p| p.pool_bitmap()[0] ^= 1),
];

pub(in crate::apfs) const TREES: &[Corruption] = &[
    warning("flag 1 (manually managed)", |p| {
        p.container_omap(|raw| raw.flags = 0.into())
    }),
    warning("flag 1 (manually managed)", |p| {
        p.omap(|raw| raw.flags = 1.into())
    }),
    warning("its tree has type 0x9", |p| {
        p.omap(|raw| raw.tree_type = 9.into())
    }),
    damage("records 3 snapshots", |p| {
        p.omap(|raw| raw.snapshot_count = 3.into())
    }),
    damage("expected type 0xb/0x0", |p| {
        p.omap(|raw| raw.object.subtype = 3.into())
    }),
    damage("has storage flags that do not fit its tree", |p| {
        let root = p.references_root();
        p.node(root, |raw| {
            raw.object.kind = (raw.object.kind.get() | 1 << 24).into()
        });
    }),
    warning("the tree's flags are", |p| {
        let root = p.references_root();
        p.info(root, |info| {
            info.flags = (info.flags.get() | tree_flags::HASHED).into()
        });
    }),
    damage("is in block 1099511627776", |p| {
        p.object_record(|raw| raw.paddr = (1 << 40).into())
    }),
    damage("are used by", |p| {
        p.object_record(|raw| raw.paddr = 1.into())
    }),
    damage("has 8192 bytes", |p| {
        p.object_record(|raw| raw.size = 8192.into())
    }),
    damage("has no object", |p| {
        p.object_record(|raw| raw.flags = 1.into())
    }),
    damage("has the encryption flag", |p| {
        p.object_record(|raw| raw.flags = 4.into())
    }),
    damage("records 99 keys", |p| {
        let root = p.omap_root();
        p.info(root, |info| info.key_count = 99.into());
    }),
    damage("records 99 nodes", |p| {
        let root = p.files_root();
        p.info(root, |info| info.node_count = 99.into());
    }),
    warning("records 1 bytes for the longest key", |p| {
        let root = p.files_root();
        p.info(root, |info| info.longest_key = 1.into());
    }),
    warning("the tree's flags are 0x1", |p| {
        let root = p.references_root();
        p.info(root, |info| info.flags = 1.into());
    }),
    damage("checksum mismatch", |p| {
        let leaf = p.first_leaf();
        p.block(leaf)[3000] ^= 1;
    }),
    damage("but the node has 77", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.object.xid = 77.into());
    }),
    damage("unexpected object 0x777", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.object.oid = 0x777.into());
    }),
    damage("is stored as 0x40000000", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| {
            raw.object.kind = (object_type::BTREE_NODE | storage::PHYSICAL).into()
        });
    }),
    damage("expected type 0x3/0xe", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.object.subtype = object_type::OMAP.into());
    }),
    damage("expected a node of level 0", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| (raw.level, raw.flags) = (1.into(), 0.into()));
    }),
    damage("has no keys", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.count = 0.into());
    }),
    damage("records 9999 keys", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.count = 9999.into());
    }),
    damage("records 77 free bytes among the keys", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.key_free_list.len = 77.into());
    }),
    warning("of which some are unexpected", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.flags = (raw.flags.get() | 0x40).into());
    }),
    damage("reaches past the end of the node", |p| {
        let leaf = p.first_leaf();
        p.node(leaf, |raw| raw.free.len = 9999.into());
    }),
    damage("does not sort after the key before it", |p| {
        // Swap two entries of the table.
        let leaf = p.first_leaf();
        p.object(leaf, |bytes| {
            let (first, second) = bytes[NODE_HEADER..NODE_HEADER + 16].split_at_mut(8);
            first.swap_with_slice(second);
        });
    }),
    damage("shares bytes with another", |p| {
        // Give two entries of the table the same key.
        let leaf = p.first_leaf();
        p.object(leaf, |bytes| {
            bytes.copy_within(NODE_HEADER..NODE_HEADER + 4, NODE_HEADER + 8)
        });
    }),
    damage(
        "its first key sorts before its key in the parent node",
        |p| {
            // Change the first key of the root's second child.
            let root = p.files_root();
            p.object(root, |bytes| {
                let table =
                    NODE_HEADER + usize::from(u16::from_le_bytes([bytes[0x2A], bytes[0x2B]]));
                let key = table
                    + usize::from(u16::from_le_bytes([
                        bytes[NODE_HEADER + 8],
                        bytes[NODE_HEADER + 9],
                    ]));
                bytes[key + 1] ^= 0x40;
            });
        },
    ),
];

pub(in crate::apfs) const FILES: &[Corruption] = &[
    damage("is stored under hash", |p| {
        p.entry("symlink", |key, _| key[10] ^= 0x40)
    }),
    damage("points to object 0x9999, which does not", |p| {
        p.entry("symlink", |_, raw| raw.file_id = 0x9999.into())
    }),
    damage("has type 0x8", |p| {
        p.entry("symlink", |_, raw| raw.flags = 8.into())
    }),
    damage("folder 0x2 has 2 names", |p| {
        p.entry("folder", |_, raw| raw.file_id = 2.into())
    }),
    damage("cannot be reached from the root", |p| {
        p.entry("folder", |_, raw| raw.file_id = 2.into())
    }),
    damage("without a valid type", |p| {
        p.inode("symlink", |raw| raw.mode = 0o777.into())
    }),
    damage("contradicts its attribute for the target", |p| {
        p.inode("symlink", |raw| raw.mode = 0o100_777.into())
    }),
    warning("records 3 entries", |p| {
        p.inode("folder", |raw| raw.children_or_links = 3.into())
    }),
    damage("which is not a folder", |p| {
        p.inode("folder", |raw| raw.mode = 0o100_755.into())
    }),
    warning("records 7 names, but 2 exist", |p| {
        p.inode("first name", |raw| raw.children_or_links = 7.into())
    }),
    warning("name and folder of its first link", |p| {
        p.inode("first name", |raw| raw.parent_id = 3.into())
    }),
    warning("records another name or folder", |p| {
        p.inode("with attributes", |raw| raw.parent_id = 3.into())
    }),
    warning("has a resource fork: no, but its inode says yes", |p| {
        p.inode("with attributes", |raw| {
            raw.internal_flags = inode_flags::HAS_RESOURCE_FORK.into()
        })
    }),
    warning("has access rights: yes, but its inode says no", |p| {
        p.inode("with attributes", |raw| {
            raw.internal_flags = inode_flags::NO_RESOURCE_FORK.into()
        })
    }),
    warning("a count of sparse bytes", |p| {
        p.inode("with attributes", |raw| {
            raw.internal_flags = (inode_flags::HAS_SECURITY | inode_flags::IS_SPARSE).into()
        })
    }),
    damage("has no compression attribute", |p| {
        p.inode("with attributes", |raw| raw.bsd_flags = 0x20.into())
    }),
    warning("a size of compressed contents", |p| {
        p.inode("with attributes", |raw| raw.uncompressed_size = 9.into())
    }),
    damage("the next object number is", |p| {
        p.inode("with attributes", |raw| raw.private_id = 0x9999.into())
    }),
    damage(
        "has 99999 bytes of contents, but its extents have only 4096",
        |p| p.stream("with attributes", |raw| raw.size = 99_999.into()),
    ),
    warning("but records 8192", |p| {
        p.stream("with attributes", |raw| raw.allocated = 8192.into())
    }),
    damage("both must be multiples of the block size", |p| {
        p.extent("with attributes", |raw| raw.len_and_flags = 100.into())
    }),
    damage("reaches past the end of the container", |p| {
        p.extent("with attributes", |raw| raw.paddr = (1 << 40).into())
    }),
    damage("have a reference count of 0", |p| {
        p.extent("with attributes", |raw| raw.paddr = 1.into())
    }),
    warning("bytes of holes", |p| {
        p.extent("with attributes", |raw| raw.paddr = 0.into())
    }),
    warning("has a reference count of 5", |p| {
        let id = p.id("with attributes");
        p.record(
            &RecordKey::single(id, record_type::DATA_STREAM),
            |_, value| value[0] = 5,
        );
    }),
    warning("differ in name or object", |p| {
        let id = p.id("first name");
        p.record(
            &RecordKey::numbered(id, record_type::SIBLING_LINK, 0),
            |_, value| value[0] = 3,
        );
    }),
    warning("the link map records object", |p| {
        // Sibling numbers come after object numbers.
        let id = p.id("first name");
        let mut link = 0;
        p.record(
            &RecordKey::numbered(id, record_type::SIBLING_LINK, 0),
            |key, _| {
                link = u64::from_le_bytes(key[8..].try_into().unwrap());
            },
        );
        p.record(
            &RecordKey::single(FileId(link), record_type::SIBLING_MAP),
            |_, value| value[0] ^= 1,
        );
    }),
    damage("malformed", |p| p.xattr("small", |value| value[0] = 3)),
    damage(
        "has 20000 bytes of contents, but its extents have only 0",
        |p| p.xattr("large", |value| value[5] ^= 0x40),
    ),
    damage("is not NUL-terminated", |p| {
        let id = p.id("symlink");
        p.record(
            &RecordKey::named(id, record_type::XATTR, b""),
            |_, value| *value.last_mut().unwrap() = b'x',
        );
    }),
];

pub(in crate::apfs) const VOLUME: &[Corruption] = &[
    warning("have a reference count of 5", |p| {
        p.reference(|raw| raw.references = 5.into())
    }),
    damage("have a reference count of 0", |p| {
        p.reference(|raw| raw.references = 0.into())
    }),
    warning("has the invalid owner 0x3", |p| {
        p.reference(|raw| raw.owner = 3.into())
    }),
    damage("the kind 9", |p| {
        p.reference(|raw| *raw = ExtentRefRaw::new(9, raw.blocks(), 20, 1))
    }),
    warning("has version 4.0", |p| {
        p.volume(|raw| raw.meta_crypto.major_version = 4.into())
    }),
    warning("expected a virtual object", |p| {
        p.volume(|raw| raw.object.kind = (raw.object.kind.get() | 1 << 20).into())
    }),
    warning("counts 3 files", |p| p.volume(|raw| raw.files = 3.into())),
    warning("counts 9 folders", |p| {
        p.volume(|raw| raw.folders = 9.into())
    }),
    warning("counts 9 symbolic links", |p| {
        p.volume(|raw| raw.symlinks = 9.into())
    }),
    damage("the next object number is recorded as 0x11", |p| {
        p.volume(|raw| raw.next_file_id = 0x11.into())
    }),
    warning("records 7 blocks of its own", |p| {
        p.volume(|raw| raw.allocated_blocks = 7.into())
    }),
    warning("has no name", |p| {
        p.volume(|raw| raw.name = [0; VOLUME_NAME_LEN])
    }),
    warning("records 3 snapshots", |p| {
        p.volume(|raw| raw.snapshots = 3.into())
    }),
    warning("records 9999 freed blocks", |p| {
        p.volume(|raw| raw.total_blocks_freed = 9999.into())
    }),
    warning("records slot 4", |p| p.volume(|raw| raw.index = 4.into())),
    damage("apfs object map", |p| {
        p.volume(|raw| raw.omap_oid = 1.into())
    }),
    damage("expected a volume superblock (APSB)", |p| {
        p.volume(|raw| raw.magic = *b"NOPE")
    }),
    damage(
        "records transaction 2 for the superblock, but it has 1",
        |p| p.volume(|raw| raw.object.xid = 1.into()),
    ),
    warning("the tree of extent references has type", |p| {
        p.volume(|raw| raw.extent_ref_tree_type = 2.into())
    }),
    warning(
        "the list of modifying programs is not in order from newest to oldest",
        |p| p.volume(|raw| raw.modified_by[1].last_xid = 9.into()),
    ),
    warning("contradictory flags", |p| {
        p.volume(|raw| raw.incompatible_features = 9.into())
    }),
    damage("has no object 0x7777", |p| {
        p.volume(|raw| raw.integrity_oid = 0x7777.into())
    }),
];

/// Returns a container of `len` bytes for each kind of corruption, with its severity and a part of
/// the expected message.
pub fn damaged(len: usize) -> impl Iterator<Item = (&'static str, Severity, Vec<u8>)> {
    [CONTAINER, SPACE, TREES, FILES, VOLUME]
        .into_iter()
        .flatten()
        .map(move |(damage, severity, words)| {
            let mut sample = Sample::new(len);
            damage(&mut sample);
            (*words, *severity, sample.bytes)
        })
}

/// Returns a container of `len` bytes with one bit of an object flipped and the checksum updated,
/// and the block and offset of that bit. `below` returns a number below its argument.
pub fn corrupted_at_random(
    len: usize,
    below: &mut dyn FnMut(u64) -> u64,
) -> ((u64, usize), Vec<u8>) {
    let mut sample = Sample::new(len);
    let blocks = sample.bytes.len() as u64 / 4096;
    let objects: Vec<u64> = (0..blocks)
        .filter(|block| verify(sample.block(*block)))
        .collect();
    let block = objects[below(objects.len() as u64) as usize];
    // Most of a block is zero; nonzero bytes are the more useful targets.
    let bytes = sample.block(block);
    let used: Vec<usize> = (8..4096).filter(|at| bytes[*at] != 0).collect();
    let at = used[below(used.len() as u64) as usize];
    sample.object(block, |bytes| bytes[at] ^= 1 << below(8));
    ((block, at), sample.bytes)
}
