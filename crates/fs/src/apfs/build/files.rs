//! All records of a volume's file-system tree, in the order of their keys: by object, then by type.
//!
//! Object numbers follow the order of the tree (`objects`), so a single pass over the tree
//! suffices.

use zerocopy::{FromZeros, IntoBytes};

use super::objects::Objects;
use super::records::{Body, RecordStyle};
use super::streams::{NodeBlocks, Part, in_stream, in_streams};
use crate::apfs::layout::{
    CryptoStateRaw, DEFAULT_CRYPTO_ID, DataStreamIdRaw, ExtentRefRaw, FileExtentRaw, FileId, Paddr,
    RecordKey, SiblingLinkRaw, SiblingMapRaw, XattrRaw, XattrStreamRaw, extent_flags,
    extent_ref_kind, mode_type, put_name, record_type, xattr_flags, xattr_name,
};
use crate::apfs::names::NameRules;
use crate::build::tree::{body, resolve};
use crate::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw_core::Result;
use bandsaw_core::size::{narrow, to_usize};

/// A consumer of records, called with key and value of each.
pub(super) type Sink<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// The input from which the records are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) tree: &'a Tree,
    pub(super) objects: &'a Objects,
    pub(super) blocks: &'a NodeBlocks<'a>,
    pub(super) rules: NameRules,
    pub(super) style: RecordStyle,
}

impl Files<'_> {
    /// Passes every record of the file-system tree to `sink`. Attributes that are not in memory are
    /// read.
    pub(super) fn emit(&self, sink: &mut Sink<'_>) -> Result<()> {
        let mut out = Emitter {
            sink,
            key: Vec::new(),
            value: Vec::new(),
        };
        let top = [("private-dir", FileId::PRIVATE_DIR), ("root", FileId::ROOT)];
        let mut top = top.map(|(name, id)| {
            (
                RecordKey::entry(FileId::ROOT_PARENT, name.as_bytes(), self.rules.hash(name)),
                id,
            )
        });
        top.sort();
        for (key, id) in top {
            out.record(key, |value| {
                self.style.entry(id, mode_type::FOLDER, None, value)
            })?;
        }
        self.object(&mut out, 0)?;
        out.record(
            RecordKey::single(FileId::PRIVATE_DIR, record_type::INODE),
            |value| self.style.private_dir(value),
        )?;
        if self.style.encrypted {
            let key = RecordKey::single(FileId(DEFAULT_CRYPTO_ID), record_type::CRYPTO_STATE);
            out.record(key, |value| value.extend_from_slice(one_key().as_bytes()))?;
        }
        self.streams(&mut out, 0)?;
        for node in 1..narrow::<u32>(self.tree.nodes.len()) {
            if body(self.tree, node).is_some() {
                self.object(&mut out, node)?;
                self.streams(&mut out, node)?;
                self.sibling_maps(&mut out, node)?;
            }
        }
        Ok(())
    }

    /// Emits all records under an object's own number.
    fn object(&self, out: &mut Emitter<'_, '_>, node: u32) -> Result<()> {
        let (_, source) = resolve(self.tree, node);
        let body = Body::new(
            source,
            node,
            &self.tree.nodes[node as usize],
            self.objects,
            self.blocks,
        );
        out.record(RecordKey::single(body.id, record_type::INODE), |value| {
            self.style.inode(&body, value)
        })?;
        self.attributes(out, node, source)?;
        for name in self.objects.names(node) {
            let link = &self.tree.nodes[name as usize];
            let Some(sibling) = self.objects.sibling(name) else {
                continue;
            };
            let key = RecordKey::numbered(body.id, record_type::SIBLING_LINK, sibling.0);
            out.record(key, |value| {
                value.extend_from_slice(
                    SiblingLinkRaw {
                        parent_id: self.objects.id(link.parent).into(),
                    }
                    .as_bytes(),
                );
                put_name(link.name.as_bytes(), value);
            })?;
        }
        if matches!(&source.kind, SourceKind::File(stream) if !stream.is_empty()) {
            let key = RecordKey::single(body.id, record_type::DATA_STREAM);
            out.record(key, |value| {
                value.extend_from_slice(
                    DataStreamIdRaw {
                        references: 1.into(),
                    }
                    .as_bytes(),
                )
            })?;
            self.extents(out, node, Part::Data, body.id)?;
        }
        self.objects
            .children(node)
            .iter()
            .try_for_each(|&child| self.entry(out, body.id, child))
    }

    fn entry(&self, out: &mut Emitter<'_, '_>, folder: FileId, child: u32) -> Result<()> {
        let (_, source) = resolve(self.tree, child);
        let name = self.tree.nodes[child as usize].name.as_bytes();
        let key = RecordKey::entry(folder, name, Some(self.objects.name_hash(child)));
        let (id, sibling) = (self.objects.id(child), self.objects.sibling(child));
        out.record(key, |value| {
            self.style
                .entry(id, mode_type::mode_of(source), sibling, value)
        })
    }

    /// Emits the attributes in the order of their names, a symbolic link's target among them.
    fn attributes(&self, out: &mut Emitter<'_, '_>, node: u32, source: &SourceNode) -> Result<()> {
        let id = self.objects.id(node);
        let mut target = match &source.kind {
            SourceKind::Symlink(target) => Some([target.as_bytes(), b"\0"].concat()),
            _ => None,
        };
        let mut streams = 0;
        for (name, value) in &source.xattrs {
            if &**name > xattr_name::SYMLINK {
                target
                    .take()
                    .into_iter()
                    .try_for_each(|target| out.target(id, &target))?;
            }
            let key = RecordKey::named(id, record_type::XATTR, name.as_bytes());
            if in_stream(name, value) {
                let bytes = u64::from(self.blocks.block_size().get());
                let stream = self.style.stream(
                    value.len(),
                    self.blocks.block_size().blocks_for(value.len()) * bytes,
                );
                let stream_id = self.objects.stream(node, streams).into();
                streams += 1;
                out.attribute(
                    key,
                    xattr_flags::DATA_STREAM,
                    XattrStreamRaw { stream_id, stream }.as_bytes(),
                )?;
            } else {
                match value {
                    Stream::Bytes(bytes) => out.attribute(key, xattr_flags::EMBEDDED, bytes)?,
                    Stream::Extern { len, .. } => {
                        let mut bytes = vec![0; to_usize(*len)]; // in_stream() would be true for a large one
                        self.tree.contents.open(value)?.read_at(0, &mut bytes)?;
                        out.attribute(key, xattr_flags::EMBEDDED, &bytes)?;
                    }
                }
            }
        }
        target
            .into_iter()
            .try_for_each(|target| out.target(id, &target))
    }

    /// Emits the extents of the attributes that are stored in streams of their own.
    fn streams(&self, out: &mut Emitter<'_, '_>, node: u32) -> Result<()> {
        let (_, source) = resolve(self.tree, node);
        (0..in_streams(source).count() as u64).try_for_each(|place| {
            self.extents(
                out,
                node,
                Part::Attribute(place),
                self.objects.stream(node, place),
            )
        })
    }

    fn extents(&self, out: &mut Emitter<'_, '_>, node: u32, part: Part, id: FileId) -> Result<()> {
        let bytes = u64::from(self.blocks.block_size().get());
        self.blocks.runs(node, part, &mut |run| {
            let key = RecordKey::numbered(id, record_type::FILE_EXTENT, run.from * bytes);
            let encrypted = self.style.encrypted && run.place.is_some();
            let place = run.place.unwrap_or(Paddr(0));
            let flags = if encrypted {
                extent_flags::CRYPTO_ID_IS_TWEAK
            } else {
                0
            };
            let extent = FileExtentRaw::new(
                run.count * bytes,
                place,
                if encrypted { place.0 } else { 0 },
                flags,
            );
            out.record(key, |value| value.extend_from_slice(extent.as_bytes()))
        })
    }

    fn sibling_maps(&self, out: &mut Emitter<'_, '_>, node: u32) -> Result<()> {
        let file_id = self.objects.id(node).into();
        self.objects
            .names(node)
            .filter_map(|name| self.objects.sibling(name))
            .try_for_each(|sibling| {
                let key = RecordKey::single(sibling, record_type::SIBLING_MAP);
                out.record(key, |value| {
                    value.extend_from_slice(SiblingMapRaw { file_id }.as_bytes())
                })
            })
    }

    /// Passes every record of the extent-reference tree to `sink`: one for each stream, whose
    /// blocks are contiguous.
    ///
    /// macOS writes one record for adjacent streams of one owner; `apfsck` requires separate
    /// records for a file and for its attributes.
    pub(super) fn emit_references(&self, sink: &mut Sink<'_>) -> Result<()> {
        let mut out = Emitter {
            sink,
            key: Vec::new(),
            value: Vec::new(),
        };
        for node in 0..narrow::<u32>(self.tree.nodes.len()) {
            let owner = self.objects.id(node).0;
            self.blocks.parts(node, &mut |blocks| {
                let key = RecordKey::single(FileId(blocks.start), record_type::EXTENT_REF);
                let reference =
                    ExtentRefRaw::new(extent_ref_kind::NEW, blocks.end - blocks.start, owner, 1);
                out.record(key, |value| value.extend_from_slice(reference.as_bytes()))
            })?;
        }
        Ok(())
    }
}

/// Returns the crypto state of the volume's only key, which is stored elsewhere in full.
fn one_key() -> CryptoStateRaw {
    CryptoStateRaw {
        references: 1.into(),
        ..CryptoStateRaw::new_zeroed()
    }
}

/// A buffer for keys and values, reused to avoid an allocation per record.
struct Emitter<'a, 'b> {
    sink: &'a mut Sink<'b>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Emitter<'_, '_> {
    fn record(&mut self, key: RecordKey<'_>, value: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.key.clear();
        key.put(&mut self.key);
        self.value.clear();
        value(&mut self.value);
        (self.sink)(&self.key, &self.value)
    }

    /// Emits an attribute record. `bytes` are at most a node's.
    fn attribute(&mut self, key: RecordKey<'_>, flags: u16, bytes: &[u8]) -> Result<()> {
        self.record(key, |value| {
            value.extend_from_slice(
                XattrRaw {
                    flags: flags.into(),
                    len: narrow::<u16>(bytes.len()).into(),
                }
                .as_bytes(),
            );
            value.extend_from_slice(bytes);
        })
    }

    fn target(&mut self, id: FileId, target: &[u8]) -> Result<()> {
        let key = RecordKey::named(id, record_type::XATTR, xattr_name::SYMLINK.as_bytes());
        self.attribute(
            key,
            xattr_flags::EMBEDDED | xattr_flags::FILE_SYSTEM_OWNED,
            target,
        )
    }
}
