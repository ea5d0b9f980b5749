//! Numbers, names and order of the objects on a volume to be built, which do not depend on the
//! volume's size.

use std::collections::BTreeMap;

use zerocopy::big_endian::U16;

use super::LAYER;
use super::volume_files::{self, Purpose, VolumeEntry};
use crate::build::tree::{by_parent, check_source_tree, links, path};
use crate::hfsplus::layout::Cnid;
use crate::hfsplus::unicode::{NameOrder, encode_name};
use crate::source::{SourceKind, Tree};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// The objects of a tree: numbered in its order, sorted in catalog order.
#[derive(Debug)]
pub(super) struct Objects {
    names: Names,
    /// CNIDs by node. For a file with hard links, that of the inode file; its first name has the
    /// next number.
    cnids: Vec<Cnid>,
    /// The children of node 0, sorted, then those of node 1, ...
    children: Vec<u32>,
    /// Index in `children` of the first child, by node.
    first_child: Vec<u32>,
    /// The other names of each file with hard links.
    links: BTreeMap<u32, Vec<u32>>,
    /// Sorted entries of the root folder that belong to the volume itself.
    own: Vec<VolumeEntry>,
    pub(super) next_cnid: Cnid,
    /// Number of file records, including those of hard links and of inode files.
    pub(super) files: u32,
    /// Number of folder records, without the root.
    pub(super) folders: u32,
}

impl Objects {
    /// Numbers and sorts `tree`. Fails if a volume with names in this `order` cannot hold it.
    pub(super) fn new(
        tree: &Tree,
        volume_name: &str,
        order: NameOrder,
        journaled: bool,
    ) -> Result<Self> {
        check_source_tree(tree, LAYER)?;
        let names = Names::new(tree, volume_name)?;
        let links = links(tree, LAYER)?;
        let (children, first_child) = by_parent(tree);
        let mut objects = Self {
            names,
            cnids: Vec::with_capacity(tree.nodes.len()),
            children,
            first_child,
            links,
            own: Vec::new(),
            next_cnid: Cnid::FIRST_USER,
            files: 0,
            folders: 0,
        };
        let own = objects.number(tree, journaled)?;
        objects.sort(tree, order, &own)?;
        Ok(objects)
    }

    /// Returns the name of a node as stored on disk; for the root, the name of the volume.
    pub(super) fn name(&self, node: u32) -> &[U16] {
        self.names.get(node)
    }

    /// Returns the number of the object itself; for every name of a hard-linked file, that of the
    /// inode file.
    pub(super) fn cnid(&self, node: u32) -> Cnid {
        self.cnids[node as usize]
    }

    /// Returns the children of a folder in catalog order.
    pub(super) fn children(&self, folder: u32) -> &[u32] {
        let folder = folder as usize;
        &self.children[self.first_child[folder] as usize..self.first_child[folder + 1] as usize]
    }

    /// Returns the entries of the root folder that belong to the volume itself, in catalog order.
    pub(super) fn own(&self) -> &[VolumeEntry] {
        &self.own
    }

    /// Returns the folder of hard-linked files, if there are any.
    pub(super) fn private_folder(&self) -> Option<Cnid> {
        self.own
            .iter()
            .find(|own| own.purpose == Purpose::PrivateFolder)
            .map(|own| own.cnid)
    }

    /// Returns the other names of each file with hard links, by its first node.
    pub(super) fn links(&self) -> &BTreeMap<u32, Vec<u32>> {
        &self.links
    }

    /// Returns all names of a file with hard links, in the order of their numbers; `None` for a
    /// file with one name.
    pub(super) fn chain(&self, first: u32) -> Option<impl Iterator<Item = u32> + '_> {
        let others = self.links.get(&first)?;
        Some(std::iter::once(first).chain(others.iter().copied()))
    }

    /// Returns the number of the record that makes `node` a name of a file with hard links.
    pub(super) fn link_cnid(&self, node: u32) -> Cnid {
        let cnid = self.cnids[node as usize];
        if self.links.contains_key(&node) {
            Cnid(cnid.0 + 1)
        } else {
            cnid
        }
    }

    /// Assigns all numbers; returns those of the entries that belong to the volume itself.
    fn number(&mut self, tree: &Tree, journaled: bool) -> Result<Vec<(Purpose, Cnid)>> {
        let mut next = u64::from(Cnid::FIRST_USER.0);
        let mut take = |count: u64| {
            let cnid = next;
            next += count;
            // The last numbers are kept free, because the next number must be valid too.
            match u32::try_from(next) {
                Ok(below) if below < u32::MAX - 16 => Ok(Cnid(narrow(cnid))),
                _ => Err(Error::limit(
                    LAYER,
                    "too many files and folders: a volume has room for about 2^32",
                )),
            }
        };
        let mut own = Vec::new();
        if journaled {
            for purpose in [Purpose::Journal, Purpose::JournalInfo] {
                own.push((purpose, take(1)?));
                self.files += 1;
            }
        }
        if !self.links.is_empty() {
            own.push((Purpose::PrivateFolder, take(1)?));
            self.folders += 1;
        }
        self.cnids.push(Cnid::ROOT);
        for (node, source) in (1..).zip(&tree.nodes[1..]) {
            let linked = self.links.contains_key(&node);
            self.cnids.push(take(if linked { 2 } else { 1 })?);
            match source.kind {
                SourceKind::Folder => self.folders += 1,
                _ => self.files += if linked { 2 } else { 1 },
            }
        }
        self.next_cnid = take(0)?;
        Ok(own)
    }

    fn sort(&mut self, tree: &Tree, order: NameOrder, own: &[(Purpose, Cnid)]) -> Result<()> {
        let mut keys = Vec::new();
        let mut places: Vec<(std::ops::Range<usize>, u32)> = Vec::new();
        for folder in 0..tree.nodes.len() {
            let range = self.first_child[folder] as usize..self.first_child[folder + 1] as usize;
            keys.clear();
            places.clear();
            for &child in &self.children[range.clone()] {
                let start = keys.len();
                order.sort_key(self.names.get(child), &mut keys);
                if start == keys.len() {
                    let message = "the name has only characters that the volume ignores";
                    return Err(Error::unsupported(LAYER, message).named(path(tree, child)));
                }
                places.push((start..keys.len(), child));
            }
            places.sort_by(|(a, _), (b, _)| keys[a.clone()].cmp(&keys[b.clone()]));
            if let Some(same) = places
                .windows(2)
                .find(|two| keys[two[0].0.clone()] == keys[two[1].0.clone()])
            {
                return Err(tree.same_name(same[0].1, same[1].1));
            }
            if folder == 0 {
                let sorted: Vec<&[u8]> = places
                    .iter()
                    .map(|(place, _)| &keys[place.clone()])
                    .collect();
                self.own = volume_files::place(own, &sorted, order)?;
            }
            for (slot, (_, child)) in self.children[range].iter_mut().zip(&places) {
                *slot = *child;
            }
        }
        Ok(())
    }
}

/// All names, concatenated.
#[derive(Debug)]
struct Names {
    units: Vec<U16>,
    /// End of each name in `units`, by node.
    ends: Vec<usize>,
}

impl Names {
    fn new(tree: &Tree, volume_name: &str) -> Result<Self> {
        let mut names = Self {
            units: Vec::new(),
            ends: Vec::with_capacity(tree.nodes.len()),
        };
        encode_name(volume_name, &mut names.units)?;
        names.ends.push(names.units.len());
        for (node, source) in (1..).zip(&tree.nodes[1..]) {
            encode_name(&source.name, &mut names.units)
                .map_err(|error| error.named(path(tree, node)))?;
            names.ends.push(names.units.len());
        }
        Ok(names)
    }

    fn get(&self, node: u32) -> &[U16] {
        let node = node as usize;
        let start = if node == 0 { 0 } else { self.ends[node - 1] };
        &self.units[start..self.ends[node]]
    }
}
