//! Sequential reader of the members of an archive.

use std::fs::File;
use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::extended_headers::{ExtendedHeaders, PaxSparse};
use super::layout::{
    BLOCK, GNU, GNU_TAIL, GnuTailRaw, MemberRaw, SparseBlockRaw, SparseRaw, USTAR, text, type_flag,
};
use super::{LAYER, number, pax};
use crate::fs::Timestamp;
use crate::platform::FileExt;
use crate::size::to_usize;
use crate::{Error, Reason, Result};

pub(crate) use super::extended_headers::Value;

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    Folder,
    Symlink,
    HardLink,
    Fifo,
    CharDevice,
    BlockDevice,
}

/// A range of bytes in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SparsePiece {
    /// Offset in the file, which has zeros between its pieces.
    pub(crate) at: u64,
    /// Offset in the archive.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A member with the properties from all its headers.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Offset of its header in the archive.
    pub(crate) offset: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: MemberKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) flags: u32,
    pub(crate) modified: Timestamp,
    pub(crate) accessed: Option<Timestamp>,
    pub(crate) changed: Option<Timestamp>,
    pub(crate) created: Option<Timestamp>,
    /// Major and minor number.
    pub(crate) device: (u32, u32),
    /// Length of the contents in bytes, including holes.
    pub(crate) len: u64,
    /// Locations of the contents: one piece, except for sparse files.
    pub(crate) pieces: Vec<SparsePiece>,
    /// Extended attributes under the host's names.
    pub(crate) xattrs: Vec<(String, Value)>,
}

/// Largest extended header, in bytes; those of real files are smaller.
const MAX_PAX: u64 = 64 << 20;
/// Largest number of pieces of a sparse file, which limits memory.
const MAX_PIECES: usize = 4 << 20;

/// Reads an archive from a file.
#[derive(Debug)]
pub(crate) struct TarReader<'a> {
    file: &'a File,
    len: u64,
    at: u64,
    global: ExtendedHeaders,
}

impl<'a> TarReader<'a> {
    /// Returns a reader for the archive in `file`. Refuses a file that does not begin with a
    /// header, and names the program that decompresses it, if any.
    pub(crate) fn new(file: &'a File) -> Result<Self> {
        let len = file
            .metadata()
            .map_err(|error| Error::io(LAYER, "read metadata", error))?
            .len();
        let reader = Self {
            file,
            len,
            at: 0,
            global: ExtendedHeaders::default(),
        };
        let mut start = vec![0; to_usize(len.min(BLOCK))];
        reader.read(0, &mut start)?;
        check_start(&start)?;
        Ok(reader)
    }

    /// Returns the next member. `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let mut extended = self.global.clone();
        loop {
            let offset = self.at;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = self.field("size", &header.size, offset)?;
            let data = self.at;
            match header.typeflag {
                type_flag::PAX => self.extend(&mut extended, size)?,
                type_flag::PAX_GLOBAL => {
                    let mut global = std::mem::take(&mut self.global);
                    self.extend(&mut global, size)?;
                    self.global = global;
                    extended = self.global.clone();
                }
                type_flag::GNU_LONG_NAME => extended.path = Some(self.long_name(size)?),
                type_flag::GNU_LONG_LINK => extended.link = Some(self.long_name(size)?),
                type_flag::GNU_LABEL => self.skip(data, size)?,
                _ => return self.member(&header, offset, size, extended).map(Some),
            }
        }
    }

    /// Returns the header at the current offset, and advances past it.
    fn header(&mut self) -> Result<Option<MemberRaw>> {
        if self.at >= self.len {
            return Ok(None); // archives without an end are common enough
        }
        let offset = self.at;
        let mut header = MemberRaw::new_zeroed();
        self.read(offset, header.as_mut_bytes())?;
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !header.checksum_fits() {
            return Err(Error::corrupt(
                LAYER,
                offset,
                "checksum mismatch of the header",
            ));
        }
        self.at += BLOCK;
        Ok(Some(header))
    }

    fn member(
        &mut self,
        header: &MemberRaw,
        offset: u64,
        size: u64,
        extended: ExtendedHeaders,
    ) -> Result<Member> {
        let kind = self.kind(header, offset, &extended)?;
        let is_gnu = header.magic == GNU;
        let path = extended
            .sparse
            .name
            .clone()
            .or(extended.path.clone())
            .unwrap_or_else(|| header_path(header));
        let stored = if kind == MemberKind::File {
            extended.len.unwrap_or(size)
        } else {
            size
        };
        let number = |what, field: &[u8]| self.field(what, field, offset);
        let mut member = Member {
            offset,
            path,
            link: extended
                .link
                .clone()
                .unwrap_or_else(|| text(&header.linkname).to_vec()),
            kind,
            mode: (number("mode", &header.mode)? & 0o7777) as u16,
            uid: extended
                .uid
                .map_or_else(|| self.id("uid", &header.uid, offset), Ok)?,
            gid: extended
                .gid
                .map_or_else(|| self.id("gid", &header.gid, offset), Ok)?,
            flags: extended.flags,
            modified: extended
                .modified
                .map_or_else(|| self.date(&header.mtime, offset), Ok)?,
            accessed: extended.accessed,
            changed: extended.changed,
            created: extended.created,
            device: (0, 0),
            len: stored,
            pieces: Vec::new(),
            xattrs: extended.xattrs,
        };
        if matches!(kind, MemberKind::CharDevice | MemberKind::BlockDevice) {
            member.device = (
                self.id("device", &header.dev_major, offset)?,
                self.id("device", &header.dev_minor, offset)?,
            );
        }
        let data = self.at;
        match kind {
            MemberKind::File if header.typeflag == type_flag::GNU_SPARSE && is_gnu => {
                self.gnu_sparse(header, &mut member, stored)?;
            }
            MemberKind::File if extended.sparse.is_sparse => {
                self.skip(data, stored)?;
                self.pax_sparse(&extended.sparse, &mut member, data, stored)?;
            }
            MemberKind::File => {
                self.skip(data, stored)?;
                member.pieces.extend((stored > 0).then_some(SparsePiece {
                    at: 0,
                    offset: data,
                    len: stored,
                }));
            }
            // Only some programs write contents for these, and they are not needed.
            MemberKind::HardLink | MemberKind::Folder => self.skip(data, stored)?,
            _ => {}
        }
        Ok(member)
    }

    fn kind(
        &self,
        header: &MemberRaw,
        offset: u64,
        extended: &ExtendedHeaders,
    ) -> Result<MemberKind> {
        Ok(match header.typeflag {
            type_flag::OLD_FILE | type_flag::FILE => {
                // Before POSIX, a slash at the end marked a folder.
                let path = extended.path.clone().unwrap_or_else(|| header_path(header));
                if path.ends_with(b"/") {
                    MemberKind::Folder
                } else {
                    MemberKind::File
                }
            }
            type_flag::CONTIGUOUS | type_flag::GNU_SPARSE => MemberKind::File,
            type_flag::HARD_LINK => MemberKind::HardLink,
            type_flag::SYMLINK => MemberKind::Symlink,
            type_flag::CHAR_DEVICE => MemberKind::CharDevice,
            type_flag::BLOCK_DEVICE => MemberKind::BlockDevice,
            type_flag::FOLDER | type_flag::GNU_DUMP => MemberKind::Folder,
            type_flag::FIFO => MemberKind::Fifo,
            other => {
                let message = format!("unsupported entry type {:?}", char::from(other));
                return Err(Error::unsupported(LAYER, message).at(offset));
            }
        })
    }

    /// Advances past `size` bytes of contents at `data`. Fails if the archive ends before.
    fn skip(&mut self, data: u64, size: u64) -> Result<()> {
        let end = data.checked_add(size).filter(|&end| end <= self.len);
        let end = end.ok_or_else(|| {
            Error::corrupt(
                LAYER,
                data,
                format!("archive is truncated within an entry of {size} bytes"),
            )
        })?;
        // The padding of the last block may be missing at the end of the archive.
        self.at = end.next_multiple_of(BLOCK);
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    Error::corrupt(LAYER, offset, "archive is truncated")
                }
                _ => Error::io(LAYER, "read", error).at(offset),
            })
    }

    /// Returns offset and contents of an extended header, and advances past it.
    fn contents(&mut self, size: u64) -> Result<(u64, Vec<u8>)> {
        let data = self.at;
        if size > MAX_PAX {
            let message =
                format!("extended header of {size} bytes is too large: the maximum is {MAX_PAX}");
            return Err(Error::limit(LAYER, message).at(data));
        }
        self.skip(data, size)?;
        let mut bytes = vec![0; to_usize(size)];
        self.read(data, &mut bytes)?;
        Ok((data, bytes))
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>> {
        let (_, bytes) = self.contents(size)?;
        Ok(text(&bytes).to_vec())
    }

    fn extend(&mut self, extended: &mut ExtendedHeaders, size: u64) -> Result<()> {
        let (data, bytes) = self.contents(size)?;
        for record in pax::records(&bytes) {
            let record =
                record.ok_or_else(|| Error::corrupt(LAYER, data, "malformed pax record"))?;
            let place = data + record.value.start as u64;
            let value = &bytes[record.value];
            extended
                .set(record.key, value, place)
                .map_err(|message| Error::corrupt(LAYER, place, message))?;
        }
        Ok(())
    }

    fn gnu_sparse(&mut self, header: &MemberRaw, member: &mut Member, stored: u64) -> Result<()> {
        let offset = member.offset;
        let tail = GnuTailRaw::read_from_bytes(&header.as_bytes()[GNU_TAIL..]);
        let tail = tail.map_err(|_| {
            Error::corrupt(
                LAYER,
                offset,
                "malformed header of a sparse file: expected GNU format",
            )
        })?;
        let mut map = Vec::new();
        self.sparse_map(&tail.sparse, offset, &mut map)?;
        let mut more = tail.is_extended != 0;
        while more {
            let mut block = SparseBlockRaw::new_zeroed();
            let at = self.at;
            self.read(at, block.as_mut_bytes())?;
            self.at += BLOCK;
            self.sparse_map(&block.sparse, at, &mut map)?;
            more = block.is_extended != 0;
        }
        let data = self.at;
        self.skip(data, stored)?;
        member.len = self.field("real size", &tail.real_size, offset)?;
        member.pieces = lay_out(&map, data, stored, member.len).ok_or_else(|| bad_map(offset))?;
        Ok(())
    }

    fn sparse_map(&self, entries: &[SparseRaw], offset: u64, map: &mut Vec<u64>) -> Result<()> {
        for entry in entries.iter().filter(|entry| entry.len[0] != 0) {
            map.push(self.field("sparse offset", &entry.offset, offset)?);
            map.push(self.field("sparse length", &entry.len, offset)?);
        }
        if map.len() > 2 * MAX_PIECES {
            Err(bad_map(offset))
        } else {
            Ok(())
        }
    }

    fn pax_sparse(
        &self,
        sparse: &PaxSparse,
        member: &mut Member,
        data: u64,
        stored: u64,
    ) -> Result<()> {
        let offset = member.offset;
        let (mut map, mut data, mut stored) = (sparse.map.clone(), data, stored);
        if sparse.map_in_contents {
            let text = self.map_text(data, stored)?;
            let numbers = text
                .split(|byte| *byte == b'\n')
                .filter(|digits| !digits.is_empty());
            let mut numbers =
                numbers.map(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
            let count = numbers
                .next()
                .flatten()
                .and_then(|count| usize::try_from(count).ok());
            let count = count
                .filter(|&count| count <= MAX_PIECES)
                .ok_or_else(|| bad_map(offset))?;
            map = numbers
                .take(2 * count)
                .collect::<Option<_>>()
                .ok_or_else(|| bad_map(offset))?;
            let taken = text.len() as u64;
            (data, stored) = (data + taken, stored - taken);
        }
        member.len = sparse.real_len.ok_or_else(|| bad_map(offset))?;
        member.pieces = lay_out(&map, data, stored, member.len).ok_or_else(|| bad_map(offset))?;
        Ok(())
    }

    /// Reads the blocks of a version 1.0 map: a count, then two numbers for each piece, each on a
    /// line. The padding zeros are replaced by line ends.
    fn map_text(&self, data: u64, stored: u64) -> Result<Vec<u8>> {
        let mut text: Vec<u8> = Vec::new();
        let (mut lines, mut expected) = (0, None);
        while expected.is_none_or(|expected| lines < expected) {
            let from = text.len();
            if from as u64 + BLOCK > stored.min(MAX_PAX) {
                return Err(bad_map(data));
            }
            text.resize(from + to_usize(BLOCK), 0);
            self.read(data + from as u64, &mut text[from..])?;
            lines += text[from..].iter().filter(|byte| **byte == b'\n').count();
            if from == 0 {
                let count = text
                    .split(|byte| *byte == b'\n')
                    .next()
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                let count: Option<usize> = count.and_then(|digits| digits.parse().ok());
                expected = Some(
                    1 + 2 * count
                        .filter(|&count| count <= MAX_PIECES)
                        .ok_or_else(|| bad_map(data))?,
                );
            }
        }
        let end = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        text[end..].fill(b'\n');
        Ok(text)
    }

    fn field(&self, what: &str, field: &[u8], offset: u64) -> Result<u64> {
        let number = number::parse(field).and_then(|number| u64::try_from(number).ok());
        number
            .ok_or_else(|| Error::corrupt(LAYER, offset, format!("malformed {what} in the header")))
    }

    fn id(&self, what: &str, field: &[u8], offset: u64) -> Result<u32> {
        let number = self.field(what, field, offset)?;
        u32::try_from(number).map_err(|_| {
            Error::corrupt(
                LAYER,
                offset,
                format!("the {what} {number} in the header is too large"),
            )
        })
    }

    fn date(&self, field: &[u8], offset: u64) -> Result<Timestamp> {
        let seconds = number::parse(field)
            .ok_or_else(|| Error::corrupt(LAYER, offset, "malformed date in the header"))?;
        Ok(Timestamp::from_seconds(seconds))
    }
}

fn bad_map(offset: u64) -> Error {
    Error::corrupt(LAYER, offset, "malformed map of a sparse file")
}

/// Returns the locations of the pieces of `map` (offset and length in turn) in `stored` bytes of
/// contents at `data`. Each begins at a block.
fn lay_out(map: &[u64], data: u64, stored: u64, len: u64) -> Option<Vec<SparsePiece>> {
    let mut pieces = Vec::with_capacity(map.len() / 2);
    let (mut behind, mut taken) = (0, 0_u64);
    for pair in map.chunks(2) {
        let &[at, length] = pair else { return None };
        let end = at
            .checked_add(length)
            .filter(|&end| at >= behind && end <= len)?;
        if length > 0 {
            pieces.push(SparsePiece {
                at,
                offset: data + taken,
                len: length,
            });
        }
        taken = taken
            .checked_add(length)
            .filter(|&taken| taken <= stored)?
            .next_multiple_of(BLOCK);
        behind = end;
    }
    Some(pieces)
}

fn header_path(header: &MemberRaw) -> Vec<u8> {
    let name = text(&header.name);
    let prefix = if header.magic == USTAR {
        text(&header.prefix)
    } else {
        &[]
    };
    if prefix.is_empty() {
        name.to_vec()
    } else {
        [prefix, b"/", name].concat()
    }
}

/// Refuses a file that does not begin with a header.
pub(crate) fn check_start(start: &[u8]) -> Result<()> {
    if let Some((program, _)) = COMPRESSED
        .iter()
        .find(|(_, magic)| start.starts_with(magic))
    {
        let message = format!(
            "compressed by {program}; decompress it first: `{program} -dc ARCHIVE | ... --from -`"
        );
        return Err(Error::unsupported(LAYER, message));
    }
    let header = MemberRaw::read_from_bytes(start).ok();
    let blank = start.iter().all(|byte| *byte == 0) && start.len() as u64 == BLOCK;
    if blank || header.is_some_and(|header| header.checksum_fits()) {
        return Ok(());
    }
    Err(Error::corrupt(LAYER, 0, "not a tar archive: no header").because(Reason::NotAnArchive))
}

/// Compression programs, with the magic bytes of their files.
const COMPRESSED: [(&str, &[u8]); 7] = [
    ("gzip", b"\x1F\x8B"),
    ("bzip2", b"BZh"),
    ("xz", b"\xFD7zXZ\0"),
    ("zstd", b"\x28\xB5\x2F\xFD"),
    ("lz4", b"\x04\x22\x4D\x18"),
    ("lzip", b"LZIP"),
    ("uncompress", b"\x1F\x9D"),
];
