//! An inode in memory: its fixed part and its extended fields.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use crate::apfs::layout::{
    DataStreamRaw, FileId, InodeRaw, XFields, field_flags, inode_field, inode_flags, mode_type,
    until_nul,
};

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) id: FileId,
    pub(super) raw: InodeRaw,
    /// Type, flags and value of each extended field.
    fields: Vec<(u8, u8, Vec<u8>)>,
}

impl Inode {
    /// Returns an inode whose only extended field is its name.
    pub(super) fn new(id: FileId, raw: InodeRaw, name: &str) -> Self {
        let mut inode = Self {
            id,
            raw,
            fields: Vec::new(),
        };
        inode.set_name(name);
        inode
    }

    /// Parses the record of an inode; `None` if it is invalid.
    pub(super) fn parse(id: FileId, record: &[u8]) -> Option<Self> {
        let (raw, fields) = InodeRaw::parse(record)?;
        let fields = fields
            .iter()
            .map(|(kind, flags, value)| (kind, flags, value.to_vec()))
            .collect();
        Some(Self {
            id,
            raw: *raw,
            fields,
        })
    }

    /// Returns the on-disk record.
    pub(super) fn record(&self) -> Vec<u8> {
        let mut out = self.raw.as_bytes().to_vec();
        let fields: Vec<_> = self
            .fields
            .iter()
            .map(|(kind, flags, value)| (*kind, *flags, value.as_slice()))
            .collect();
        XFields::put(&fields, &mut out);
        out
    }

    fn field(&self, kind: u8) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|(found, ..)| *found == kind)
            .map(|(.., value)| value.as_slice())
    }

    /// Sets a field, or removes it if `value` is `None`.
    pub(super) fn set_field(&mut self, kind: u8, flags: u8, value: Option<Vec<u8>>) {
        let at = self.fields.iter().position(|(found, ..)| *found == kind);
        match (at, value) {
            (Some(at), Some(value)) => self.fields[at].2 = value,
            (Some(at), None) => drop(self.fields.remove(at)),
            (None, Some(value)) => self.fields.push((kind, flags, value)),
            (None, None) => {}
        }
    }

    /// Returns the name of its first link.
    pub(super) fn name(&self) -> Option<&str> {
        str::from_utf8(until_nul(self.field(inode_field::NAME)?)).ok()
    }

    pub(super) fn set_name(&mut self, name: &str) {
        self.set_field(
            inode_field::NAME,
            field_flags::DO_NOT_COPY,
            Some([name.as_bytes(), b"\0"].concat()),
        );
    }

    /// Returns its data stream; `None` if nothing was ever written.
    pub(super) fn stream(&self) -> Option<DataStreamRaw> {
        DataStreamRaw::read_from_prefix(self.field(inode_field::DATA_STREAM)?)
            .ok()
            .map(|(stream, _)| stream)
    }

    pub(super) fn set_stream(&mut self, stream: Option<DataStreamRaw>) {
        self.set_field(
            inode_field::DATA_STREAM,
            field_flags::SYSTEM,
            stream.map(|stream| stream.as_bytes().to_vec()),
        );
    }

    /// Returns the length of the holes in its contents, in bytes.
    pub(super) fn holes(&self) -> u64 {
        self.field(inode_field::SPARSE_BYTES)
            .and_then(|value| U64::read_from_prefix(value).ok())
            .map_or(0, |(bytes, _)| bytes.get())
    }

    pub(super) fn set_holes(&mut self, bytes: u64) {
        let flags = field_flags::SYSTEM | field_flags::CHILDREN_INHERIT;
        self.set_field(
            inode_field::SPARSE_BYTES,
            flags,
            (bytes > 0).then(|| bytes.to_le_bytes().to_vec()),
        );
        self.set_flag(inode_flags::IS_SPARSE, bytes > 0);
    }

    pub(super) fn set_flag(&mut self, flag: u64, set: bool) {
        let flags = self.raw.internal_flags.get();
        self.raw.internal_flags = if set { flags | flag } else { flags & !flag }.into();
    }

    pub(super) fn is_folder(&self) -> bool {
        self.raw.mode.get() & mode_type::MASK == mode_type::FOLDER
    }

    pub(super) fn is_file(&self) -> bool {
        self.raw.mode.get() & mode_type::MASK == mode_type::FILE
    }

    /// Returns the number of entries of a folder, or the link count of another object.
    pub(super) fn count(&self) -> u32 {
        self.raw.children_or_links.get()
    }
}
