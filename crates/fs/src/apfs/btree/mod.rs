//! B-trees: search, and iteration over the leaves, with every node verified when it is read (§5).

mod cursor;
mod node;

use std::fmt::{self, Display};
use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

pub(super) use cursor::{Cursor, Record};
pub(super) use node::{Node, NodeCache, Sizes};

use super::cipher::VolumeCipher;
use super::layout::{
    FextKeyRaw, FreeQueueKeyRaw, MAX_LEVELS, Oid, OmapKeyRaw, Paddr, RecordKey, TreeInfoRaw, Xid,
    node_flags, object_type, omap_value, tree_flags,
};
use super::omap::View;
use super::store::{Expected, Store};
use bandsaw_core::{Error, Kind, Result};

/// The kind of a tree, which determines the format of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    Omap,
    /// The file-system tree of a volume; `hashed` if directory entries contain name hashes.
    Files {
        hashed: bool,
    },
    Snapshots,
    /// File extents of a sealed volume.
    Fext,
    /// Reference counts of extents of file contents.
    ExtentReferences,
    /// Blocks that are freed once older checkpoints no longer need them.
    FreeQueue,
    /// Snapshots whose objects an object map keeps.
    OmapSnapshots,
}

impl TreeKind {
    pub(super) fn layer(self) -> &'static str {
        match self {
            Self::Omap => "apfs object map",
            Self::Files { .. } => "apfs file tree",
            Self::Snapshots => "apfs snapshots",
            Self::Fext => "apfs file extents",
            Self::ExtentReferences => "apfs extent references",
            Self::FreeQueue => "apfs free queue",
            Self::OmapSnapshots => "apfs object map",
        }
    }

    pub(super) fn subtype(self) -> u32 {
        match self {
            Self::Omap => object_type::OMAP,
            Self::Files { .. } => object_type::FS_TREE,
            Self::Snapshots => object_type::SNAP_META_TREE,
            Self::Fext => object_type::FEXT_TREE,
            Self::ExtentReferences => object_type::EXTENT_REF_TREE,
            Self::FreeQueue => object_type::FREE_QUEUE,
            Self::OmapSnapshots => object_type::OMAP_SNAPSHOT,
        }
    }

    /// Returns the flags that the root of such a tree has with every writer, of [`tree_flags`]
    /// (§5.2).
    pub(super) fn tree_flags(self) -> u32 {
        match self {
            Self::Omap | Self::OmapSnapshots | Self::Fext => tree_flags::PHYSICAL,
            Self::Files { .. } => tree_flags::NOT_ALIGNED,
            Self::Snapshots | Self::ExtentReferences => {
                tree_flags::PHYSICAL | tree_flags::NOT_ALIGNED
            }
            Self::FreeQueue => tree_flags::EPHEMERAL | tree_flags::ALLOW_GHOSTS,
        }
    }

    pub(super) fn sizes(self) -> Option<Sizes> {
        match self {
            Self::Omap | Self::Fext => Some(Sizes { key: 16, value: 16 }),
            Self::FreeQueue => Some(Sizes { key: 16, value: 8 }),
            Self::OmapSnapshots => Some(Sizes { key: 8, value: 16 }),
            Self::Files { .. } | Self::Snapshots | Self::ExtentReferences => None,
        }
    }

    /// Returns the number of nodes that the cache holds.
    fn cached(self) -> usize {
        match self {
            Self::Files { .. } => 2048,
            Self::Omap | Self::Fext => 512,
            Self::Snapshots | Self::ExtentReferences | Self::FreeQueue | Self::OmapSnapshots => 16,
        }
    }

    /// Parses a key of this tree; `None` if `bytes` are not one.
    pub(super) fn key(self, bytes: &[u8]) -> Option<Key<'_>> {
        Some(match self {
            Self::Omap => {
                let (key, _) = OmapKeyRaw::ref_from_prefix(bytes).ok()?;
                Key::Pair(key.oid.get(), key.xid.get())
            }
            Self::Fext => {
                let (key, _) = FextKeyRaw::ref_from_prefix(bytes).ok()?;
                Key::Pair(key.private_id.get(), key.offset.get())
            }
            Self::Files { hashed } => Key::Record(RecordKey::parse(bytes, hashed)?),
            Self::Snapshots | Self::ExtentReferences => {
                Key::Record(RecordKey::parse(bytes, false)?)
            }
            Self::FreeQueue => {
                let (key, _) = FreeQueueKeyRaw::ref_from_prefix(bytes).ok()?;
                Key::Pair(key.xid.get(), key.paddr.get())
            }
            Self::OmapSnapshots => Key::Pair(U64::ref_from_prefix(bytes).ok()?.0.get(), 0),
        })
    }
}

/// A key of any tree. All keys of one tree have the same variant and compare in the tree's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Pair(u64, u64),
    Record(RecordKey<'a>),
}

/// The method by which the nodes of a tree are located.
#[derive(Debug, Clone)]
pub(super) enum Addressing {
    /// By block number.
    Physical,
    /// By an object map; decrypted if the map flags them as encrypted.
    Virtual(View, Option<Arc<VolumeCipher>>),
}

/// A source of nodes other than the disk: a tree that is being modified in memory.
pub(super) trait NodeSource: fmt::Debug + Send + Sync {
    /// Returns the current state of a node.
    fn node(&self, oid: Oid) -> Result<Arc<Node>>;
}

/// The location of an object on disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectLocation {
    pub(super) paddr: Paddr,
    pub(super) xid: Xid,
    /// Flags, of [`omap_value`].
    pub(super) flags: u32,
}

/// An open tree, which any number of threads can read.
#[derive(Debug)]
pub(super) struct Tree {
    kind: TreeKind,
    store: Store,
    nodes: Source,
    root: Arc<Node>,
}

/// The source of the nodes of a tree.
#[derive(Debug)]
enum Source {
    Disk(Addressing, NodeCache),
    Changing(Arc<dyn NodeSource>),
}

impl Tree {
    /// Opens the tree with this root.
    pub(super) fn open(
        store: &Store,
        kind: TreeKind,
        addressing: Addressing,
        root: Oid,
    ) -> Result<Self> {
        let reader = Reader {
            store,
            kind,
            addressing: &addressing,
        };
        let root = reader.read(root)?;
        let corrupt = |message: String| store.corrupt(kind.layer(), root.oid, root.paddr, message);
        if root.flags & node_flags::ROOT == 0 {
            return Err(corrupt(
                "expected the root node of a tree, found another node".to_owned(),
            ));
        }
        if root.level >= MAX_LEVELS {
            return Err(corrupt(format!(
                "too many levels: {} below this node, the maximum is {MAX_LEVELS}",
                root.level
            )));
        }
        let Ok((_, info)) = TreeInfoRaw::read_from_suffix(&root.bytes) else {
            return Err(corrupt("is truncated".to_owned()));
        };
        if info.node_size.get() != store.block_size.get() {
            return Err(corrupt(format!(
                "the tree has nodes of {} bytes, expected {}",
                info.node_size.get(),
                store.block_size.get()
            )));
        }
        let nodes = Source::Disk(addressing, NodeCache::new(kind.cached()));
        Ok(Self {
            kind,
            store: store.clone(),
            nodes,
            root: Arc::new(root),
        })
    }

    /// Opens the tree with this root over nodes that are being modified.
    pub(super) fn over(
        store: &Store,
        kind: TreeKind,
        nodes: Arc<dyn NodeSource>,
        root: Oid,
    ) -> Result<Self> {
        let root = nodes.node(root)?;
        Ok(Self {
            kind,
            store: store.clone(),
            nodes: Source::Changing(nodes),
            root,
        })
    }

    /// Returns a cursor on the first record whose key is not before `key`.
    pub(super) fn seek(&self, key: &Key<'_>) -> Result<Cursor<'_>> {
        let mut path = self.descend(key)?;
        if let Some((leaf, index)) = path.last_mut() {
            *index = self.partition(leaf, |found| found < *key)?;
        }
        Ok(Cursor::new(self, path))
    }

    /// Returns a cursor on the first record of the tree.
    pub(super) fn first(&self) -> Result<Cursor<'_>> {
        let mut path = vec![(self.root.clone(), 0)];
        let mut node = self.root.clone();
        while node.level > 0 {
            node = self.child(&node, 0)?;
            path.push((node.clone(), 0));
        }
        Ok(Cursor::new(self, path))
    }

    /// Looks up exactly this key and passes its value to `found`.
    pub(super) fn get<T>(
        &self,
        key: &Key<'_>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut cursor = self.seek(key)?;
        Ok(cursor
            .next()?
            .filter(|record| record.key == *key)
            .map(|record| found(record.value)))
    }

    /// Looks up the last record whose key is not after `key` and passes it to `found`.
    pub(super) fn floor<T>(
        &self,
        key: &Key<'_>,
        found: impl FnOnce(Record<'_>) -> T,
    ) -> Result<Option<T>> {
        let path = self.descend(key)?;
        let Some((leaf, _)) = path.last() else {
            return Ok(None);
        };
        let after = self.partition(leaf, |found| found <= *key)?;
        after
            .checked_sub(1)
            .map(|index| self.record(leaf, index).map(found))
            .transpose()
    }

    /// Returns the nodes from the root to the leaf where `key` belongs, each with the index of the
    /// entry that is followed.
    pub(super) fn descend(&self, key: &Key<'_>) -> Result<Vec<(Arc<Node>, usize)>> {
        let mut path = Vec::with_capacity(usize::from(self.root.level) + 1);
        let mut node = self.root.clone();
        while node.level > 0 {
            // The last child whose first key is not after the key; the first child, if there is
            // none.
            let index = self
                .partition(&node, |found| found <= *key)?
                .saturating_sub(1);
            let child = self.child(&node, index)?;
            path.push((node, index));
            node = child;
        }
        path.push((node, 0));
        Ok(path)
    }

    /// Returns the number of keys at the beginning of a node that satisfy `before`.
    pub(super) fn partition(&self, node: &Node, before: impl Fn(Key<'_>) -> bool) -> Result<usize> {
        let (mut low, mut high) = (0, node.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.key(node, middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(super) fn key<'n>(&self, node: &'n Node, index: usize) -> Result<Key<'n>> {
        let key = node.key(index).and_then(|key| self.kind.key(key));
        key.ok_or_else(|| self.corrupt(node, format_args!("malformed key {index}")))
    }

    fn record<'n>(&self, node: &'n Node, index: usize) -> Result<Record<'n>> {
        let record = node.record(index).and_then(|(key, value)| {
            Some(Record {
                key: self.kind.key(key)?,
                value,
            })
        });
        record.ok_or_else(|| self.corrupt(node, format_args!("malformed key {index}")))
    }

    fn corrupt(&self, node: &Node, message: impl Display) -> Error {
        self.store
            .corrupt(self.kind.layer(), node.oid, node.paddr, message)
    }

    /// Reads the child of entry `index`, one level down.
    fn child(&self, parent: &Node, index: usize) -> Result<Arc<Node>> {
        let Some((oid, _)) = parent
            .record(index)
            .and_then(|(_, value)| U64::read_from_prefix(value).ok())
        else {
            return Err(self.corrupt(
                parent,
                format_args!("entry {index} of the index node has no valid node number"),
            ));
        };
        // In a hashed tree object numbers of children are relative to the root's.
        let base = if parent.flags & node_flags::HASHED != 0 {
            self.root.oid.0
        } else {
            0
        };
        let Some(oid) = oid.get().checked_add(base).map(Oid) else {
            return Err(self.corrupt(
                parent,
                format_args!("entry {index} of the index node has no valid node number"),
            ));
        };
        let node = match &self.nodes {
            Source::Changing(nodes) => nodes.node(oid)?,
            Source::Disk(addressing, cache) => match cache.get(oid) {
                Some(node) => node,
                None => {
                    let node = Arc::new(read_node(&self.store, self.kind, addressing, oid)?);
                    cache.put(&node);
                    node
                }
            },
        };
        if node.level + 1 != parent.level || node.flags & node_flags::ROOT != 0 {
            let message = format_args!(
                "expected a node of level {}, found level {}",
                parent.level - 1,
                node.level
            );
            return Err(self.corrupt(&node, message));
        }
        if node.count == 0 {
            return Err(self.corrupt(&node, "the node is in use, but has no keys"));
        }
        Ok(node)
    }
}

/// Reads a node from the disk, without a cache.
pub(crate) fn read_node(
    store: &Store,
    kind: TreeKind,
    addressing: &Addressing,
    oid: Oid,
) -> Result<Node> {
    Reader {
        store,
        kind,
        addressing,
    }
    .read(oid)
}

/// The parameters for reading a node.
struct Reader<'a> {
    store: &'a Store,
    kind: TreeKind,
    addressing: &'a Addressing,
}

impl Reader<'_> {
    fn read(&self, oid: Oid) -> Result<Node> {
        let layer = self.kind.layer();
        let (located, cipher) = match self.addressing {
            Addressing::Physical => (
                ObjectLocation {
                    paddr: Paddr(oid.0),
                    xid: Xid(u64::MAX),
                    flags: 0,
                },
                None,
            ),
            Addressing::Virtual(view, cipher) => (view.locate(oid)?, cipher.as_deref()),
        };
        let ObjectLocation { paddr, xid, flags } = located;
        let mut bytes = self.store.block(layer, oid, paddr)?;
        if flags & omap_value::ENCRYPTED != 0 {
            let Some(cipher) = cipher else {
                return Err(Error::new(
                    Kind::WrongKey,
                    layer,
                    format!("object {oid:#x} in block {paddr} is encrypted"),
                ));
            };
            cipher.decrypt_blocks(paddr.0, &mut bytes);
        }
        if flags & omap_value::NO_HEADER == 0 {
            let expected = Expected {
                oid,
                kind: object_type::BTREE_NODE,
                subtype: self.kind.subtype(),
            };
            let header = self.store.check(layer, &bytes, paddr, &expected)?;
            if matches!(self.addressing, Addressing::Virtual(..)) && header.xid.get() != xid.0 {
                let message = format!(
                    "the object map records transaction {xid}, but the node has {}",
                    header.xid
                );
                return Err(self.store.corrupt(layer, oid, paddr, message));
            }
        }
        Node::parse(oid, paddr, bytes, self.kind.sizes())
            .map_err(|message| self.store.corrupt(layer, oid, paddr, message))
    }
}
