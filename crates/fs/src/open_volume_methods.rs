//! Methods that are the same for every volume that is open for changes: it has a `shared` state with the
//! volume behind a lock and the forks that are open.

/// Expands to methods of [`FileSystem`](crate::FileSystem) for open contents, links and attributes.
macro_rules! read_shared {
    () => {
        fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
            let stored = |fork| -> Result<Arc<dyn BlockDevice>> {
                let open = OpenFork::open(&self.shared, node, fork)?;
                Ok(Arc::new(ReadOnlyView(open)))
            };
            let compression = self.shared.read().read.compression_of(node)?;
            match (compression, fork) {
                (None, fork) => stored(fork),
                (Some(value), Fork::Data) => {
                    let contents = decmpfs::contents(&value, || stored(Fork::Resource));
                    contents.map_err(|error| error.named(format!("object {}", node.0)))
                }
                (Some(_), Fork::Resource) => Ok(Arc::new(Memory::read_only([]))),
            }
        }

        fn read_link(&self, node: NodeId) -> Result<String> {
            self.shared.read().read.read_link(node)
        }

        fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
            self.shared.read().read.xattrs(node)
        }
    };
}

/// Expands to the methods of [`FileSystemMut`](crate::FileSystemMut) for names and unlinked files.
macro_rules! change_shared {
    () => {
        fn create(&self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId> {
            self.shared.write().create(dir, name, new)
        }

        fn link(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()> {
            self.shared
                .write()
                .link((node, dir, name), ExistingTarget::Error, &|id| {
                    self.shared.is_open(id)
                })
        }

        fn link_over(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()> {
            self.shared
                .write()
                .link((node, dir, name), ExistingTarget::Replace, &|id| {
                    self.shared.is_open(id)
                })
        }

        fn rename(
            &self,
            from: (NodeId, &str),
            to: (NodeId, &str),
            existing: ExistingTarget,
        ) -> Result<()> {
            let mut volume = self.shared.write();
            volume.rename(from, to, existing, &|id| self.shared.is_open(id))
        }

        fn swap(&self, a: (NodeId, &str), b: (NodeId, &str)) -> Result<()> {
            self.shared.write().swap(a, b)
        }

        fn remove(&self, dir: NodeId, name: &str) -> Result<()> {
            let mut volume = self.shared.write();
            volume.remove(dir, name, &|id| self.shared.is_open(id))
        }

        fn open_mut(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
            let open = OpenFork::open(&self.shared, node, fork)?;
            open.check_writable()?;
            Ok(open)
        }

        fn create_unlinked(&self, new: &NewNode) -> Result<NodeId> {
            self.shared.write().create_unlinked(new)
        }

        fn link_unlinked(
            &self,
            node: NodeId,
            dir: NodeId,
            name: &str,
            existing: ExistingTarget,
        ) -> Result<()> {
            self.shared
                .write()
                .link_unlinked(node, dir, name, existing, &|id| self.shared.is_open(id))
        }

        fn discard_unlinked(&self, node: NodeId) -> Result<()> {
            self.shared
                .write()
                .discard_unlinked(node, &|id| self.shared.is_open(id))
        }
    };
}

pub(crate) use {change_shared, read_shared};
