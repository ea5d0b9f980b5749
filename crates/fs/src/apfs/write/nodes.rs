//! The nodes of a tree that is being modified: nodes changed since the last commit, over those on
//! disk.

use std::collections::HashMap;
use std::sync::Arc;

use crate::apfs::btree::{Addressing, Node, NodeCache, NodeSource, TreeKind, read_node};
use crate::apfs::layout::Oid;
use crate::apfs::store::Store;
use bandsaw_core::Result;
use bandsaw_core::sync::RwLock;

/// Number of nodes in the cache of nodes on disk.
const CACHED: usize = 1024;

/// The nodes of one tree, shared by all of its readers.
#[derive(Debug)]
pub(super) struct Nodes {
    store: Store,
    kind: TreeKind,
    state: RwLock<NodeTable>,
    cache: NodeCache,
    /// Number of node requests.
    #[cfg(test)]
    asked: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
struct NodeTable {
    /// Method of locating nodes on disk.
    stored: Addressing,
    changed: HashMap<Oid, Arc<Node>>,
}

impl Nodes {
    pub(super) fn new(store: Store, kind: TreeKind, stored: Addressing) -> Self {
        let state = RwLock::new(NodeTable {
            stored,
            changed: HashMap::new(),
        });
        Self {
            store,
            kind,
            state,
            cache: NodeCache::new(CACHED),
            #[cfg(test)]
            asked: std::sync::atomic::AtomicU64::default(),
        }
    }

    /// Returns the number of node requests so far.
    #[cfg(test)]
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn changed(&self, oid: Oid) -> Option<Arc<Node>> {
        self.state.read().changed.get(&oid).cloned()
    }

    pub(super) fn changed_count(&self) -> usize {
        self.state.read().changed.len()
    }

    /// Sets a changed node, or with `None` reverts to the one on disk; returns the previous changed
    /// node.
    pub(super) fn set(&self, oid: Oid, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let mut state = self.state.write();
        match node {
            Some(node) => state.changed.insert(oid, node),
            None => state.changed.remove(&oid),
        }
    }

    /// Returns all changed nodes, leaves first.
    pub(super) fn all_changed(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<_> = self.state.read().changed.values().cloned().collect();
        nodes.sort_by_key(|node| (node.level, node.oid));
        nodes
    }

    /// Replaces the changed nodes by `written`, which are on disk now.
    pub(super) fn mark_written(&self, written: &[Arc<Node>]) {
        let mut state = self.state.write();
        state.changed.clear();
        written.iter().for_each(|node| self.cache.put(node));
    }

    /// Sets the method of locating nodes on disk.
    pub(super) fn find_by(&self, stored: Addressing) {
        self.state.write().stored = stored;
    }
}

impl NodeSource for Nodes {
    fn node(&self, oid: Oid) -> Result<Arc<Node>> {
        #[cfg(test)]
        self.asked
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let state = self.state.read();
        if let Some(node) = state.changed.get(&oid) {
            return Ok(node.clone());
        }
        if let Some(node) = self.cache.get(oid) {
            return Ok(node);
        }
        let node = Arc::new(read_node(&self.store, self.kind, &state.stored, oid)?);
        self.cache.put(&node);
        Ok(node)
    }
}
