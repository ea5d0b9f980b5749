//! The records of the catalog, in key order.
//!
//! These are the root's own record; then, for each object in the order of the numbers, its thread
//! and, for a folder, the records of its entries. Numbers follow the order of the tree, so a single
//! walk over the tree is sufficient.

use std::collections::BTreeMap;

use zerocopy::big_endian::U16;
use zerocopy::{Immutable, IntoBytes};

use super::forks::NodeBlocks;
use super::geometry::JournalPlace;
use super::objects::Objects;
use super::records::{RecordStyle, journal_file};
use super::volume_files::{Purpose, VolumeEntry};
use crate::build::tree::body;
use crate::hfsplus::layout::{CatalogKey, Cnid, Thread, record_flags};
use crate::hfsplus::links::inode_name;
use crate::source::{SourceKind, Tree};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// The input of the catalog records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Catalog<'a> {
    pub(super) tree: &'a Tree,
    pub(super) objects: &'a Objects,
    pub(super) blocks: &'a NodeBlocks,
    pub(super) style: RecordStyle,
    /// Place of the journal, if there is one.
    pub(super) journal: JournalPlace,
}

/// Receiver of records: key and data of one after another.
pub(super) type Sink<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

impl Catalog<'_> {
    /// Passes every record to `sink`.
    pub(super) fn emit(&self, sink: &mut Sink<'_>) -> Result<()> {
        let mut out = Emitter {
            sink,
            key: Vec::new(),
            thread: Vec::new(),
        };
        let links = self.links();
        self.named(&mut out, 0, Cnid::ROOT_PARENT, &links)?;
        out.thread(Cnid::ROOT, Cnid::ROOT_PARENT, self.objects.name(0), true)?;
        let mut done = 0;
        // Entries of the volume itself have their place among those of the root, which are sorted by name.
        for own in self.objects.own() {
            let before = &self.objects.children(0)[done..own.before];
            before
                .iter()
                .try_for_each(|&child| self.named(&mut out, child, Cnid::ROOT, &links))?;
            done = own.before;
            self.own(&mut out, own)?;
        }
        let after = &self.objects.children(0)[done..];
        after
            .iter()
            .try_for_each(|&child| self.named(&mut out, child, Cnid::ROOT, &links))?;
        let mut own: Vec<&VolumeEntry> = self.objects.own().iter().collect();
        // The key of a thread begins with the object's number, so these follow in another order.
        own.sort_by_key(|own| own.cnid);
        for own in own {
            out.thread(own.cnid, Cnid::ROOT, &own.name, own.purpose.is_folder())?;
            if own.purpose.is_folder() {
                self.inodes(&mut out, own.cnid)?;
            }
        }
        for node in 1..narrow::<u32>(self.tree.nodes.len()) {
            self.below(&mut out, node, &links)?;
        }
        Ok(())
    }

    /// Emits the record of an entry that belongs to the volume itself.
    fn own(&self, out: &mut Emitter<'_, '_>, own: &VolumeEntry) -> Result<()> {
        let fork = match own.purpose {
            Purpose::PrivateFolder => {
                let record = self
                    .style
                    .private_folder(own.cnid, narrow(self.objects.links().len()));
                return out.record(Cnid::ROOT, &own.name, &record);
            }
            Purpose::Journal => self.journal.body,
            Purpose::JournalInfo => self.journal.info,
        };
        let record = journal_file(
            own.cnid,
            self.style.volume_date(),
            self.style.expanded,
            fork,
            self.blocks.block_size(),
        );
        out.record(Cnid::ROOT, &own.name, &record)
    }

    /// Emits the thread of `node` and the records of its entries.
    fn below(&self, out: &mut Emitter<'_, '_>, node: u32, links: &Links) -> Result<()> {
        let source = &self.tree.nodes[node as usize];
        let cnid = self.objects.cnid(node);
        if let (true, Some(private)) = (
            self.objects.links().contains_key(&node),
            self.objects.private_folder(),
        ) {
            out.thread(cnid, private, &inode_name(cnid), false)?;
        }
        let parent = self.objects.cnid(source.parent);
        let folder = source.kind == SourceKind::Folder;
        out.thread(
            self.objects.link_cnid(node),
            parent,
            self.objects.name(node),
            folder,
        )?;
        if folder {
            for &child in self.objects.children(node) {
                self.named(out, child, cnid, links)?;
            }
        }
        Ok(())
    }

    /// Emits the record under the name of `node`.
    fn named(
        &self,
        out: &mut Emitter<'_, '_>,
        node: u32,
        parent: Cnid,
        links: &Links,
    ) -> Result<()> {
        let name = self.objects.name(node);
        if let Some(link) = links.get(&node) {
            let record = self.style.link(
                self.objects.link_cnid(node),
                link.target,
                link.previous,
                link.next,
            );
            return out.record(parent, name, &record);
        }
        let cnid = self.objects.cnid(node);
        let Some(source) = body(self.tree, node) else {
            return Ok(());
        };
        if source.kind != SourceKind::Folder {
            let first = self.blocks.first(node);
            return out.record(
                parent,
                name,
                &self.style.file(source, cnid, self.blocks, first),
            );
        }
        let children = self.objects.children(node);
        let is_folder = |child: &&u32| self.tree.nodes[**child as usize].kind == SourceKind::Folder;
        let folders = narrow::<u32>(children.iter().filter(is_folder).count());
        let own = if node == 0 { self.objects.own() } else { &[] };
        let (valence, folders) = (
            children.len() + own.len(),
            folders + narrow::<u32>(own.iter().filter(|own| own.purpose.is_folder()).count()),
        );
        out.record(
            parent,
            name,
            &self.style.folder(source, cnid, narrow(valence), folders),
        )
    }

    /// Emits the inode files of hard links, which the private folder sorts by the text of their
    /// numbers.
    fn inodes(&self, out: &mut Emitter<'_, '_>, private: Cnid) -> Result<()> {
        let mut inodes: Vec<(Vec<U16>, u32)> = self
            .objects
            .links()
            .keys()
            .map(|&node| (inode_name(self.objects.cnid(node)), node))
            .collect();
        inodes.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        for (name, node) in inodes {
            let (cnid, first) = (self.objects.cnid(node), self.blocks.first(node));
            let mut record =
                self.style
                    .file(&self.tree.nodes[node as usize], cnid, self.blocks, first);
            let names = self.objects.chain(node).into_iter().flatten();
            let (count, newest) = names.fold((0_u32, node), |(count, _), name| (count + 1, name));
            record.flags = (record.flags.get() | record_flags::HAS_LINK_CHAIN).into();
            record.bsd.special = count.into();
            record.first_link = self.objects.link_cnid(newest).0.into();
            out.record(private, &name, &record)?;
        }
        Ok(())
    }

    /// Returns every name of a hard-linked file with its neighbors. The newest link is the first of
    /// its chain.
    fn links(&self) -> Links {
        let mut links = Links::new();
        for &first in self.objects.links().keys() {
            let target = self.objects.cnid(first);
            let names: Vec<u32> = self.objects.chain(first).into_iter().flatten().collect();
            let cnid = |place: usize| names.get(place).map(|&node| self.objects.link_cnid(node));
            for (place, &node) in names.iter().enumerate() {
                let (previous, next) = (cnid(place + 1), place.checked_sub(1).and_then(cnid));
                links.insert(
                    node,
                    LinkName {
                        target,
                        previous,
                        next,
                    },
                );
            }
        }
        links
    }
}

type Links = BTreeMap<u32, LinkName>;

/// One name of a hard-linked file.
#[derive(Debug, Clone, Copy)]
struct LinkName {
    target: Cnid,
    previous: Option<Cnid>,
    next: Option<Cnid>,
}

/// Assembles keys and threads without an allocation for each.
struct Emitter<'a, 'b> {
    sink: &'a mut Sink<'b>,
    key: Vec<u8>,
    thread: Vec<u8>,
}

impl Emitter<'_, '_> {
    fn record(
        &mut self,
        parent: Cnid,
        name: &[U16],
        record: &(impl IntoBytes + Immutable),
    ) -> Result<()> {
        self.key.clear();
        CatalogKey { parent, name }.put(&mut self.key);
        (self.sink)(&self.key, record.as_bytes())
    }

    fn thread(&mut self, of: Cnid, parent: Cnid, name: &[U16], folder: bool) -> Result<()> {
        self.key.clear();
        CatalogKey {
            parent: of,
            name: &[],
        }
        .put(&mut self.key);
        self.thread.clear();
        Thread {
            parent,
            name,
            folder,
        }
        .put(&mut self.thread);
        (self.sink)(&self.key, &self.thread)
    }
}
