//! The journal of data that was flushed to the local disk and is not in the store yet.
//!
//! The file is a sequence of records, each flushed before the next is written: a line with 8
//! hexadecimal digits, the number of bytes of the document that follows. Lines as in `layout.rs`,
//! and these:
//!
//! ```text
//! bandsaw cache 1                    first line
//! parts BYTES                        bytes of a part
//! writer GENERATION NUMBER ID        a writer whose cache this is, by the entry with which it took over, or wanted to
//! page NUMBER BLOCK CRC32            a page of the file above that no object has, and the block that it is in
//! page NUMBER -                      the same; it is zeros
//! sum CRC32
//! ```
//!
//! The last record of a name is valid. A torn record at the end was not acknowledged and is
//! ignored.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::super::LAYER;
use super::super::buffers::PAGE;
use super::super::fields::{Fields, Lines, escaped};
use super::super::layout::{
    Document, EntryPurpose, FileState, LARGEST, ObjectId, Role, encode_file, log_key, take_file,
    take_part,
};
use super::super::log::read_all;
use super::{BLOCKS, Block, JOURNAL, odd};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use crate::size::to_usize;
use crate::store::objects::Objects;
use crate::store::{Open, Put, Store};
use crate::{Error, Result};

const TITLE: &str = "bandsaw cache 1";
/// Bytes of the line before a document.
const FRAME: usize = 9;
/// Minimum length in bytes at which the journal is rewritten, if it is also at least four times as
/// long as after the last rewrite.
const MAX_GROWTH: u64 = 4 << 20;
/// Maximum length in bytes of a journal that is read.
const MAX_LEN: u64 = 1 << 30;

/// The recorded state of a name.
#[derive(Debug, Clone)]
pub(in super::super) enum NameRecord<B = Arc<Block>> {
    Gone,
    /// A file, and its pages that are in no object; those without a block are zeros.
    File {
        state: FileState,
        pages: Vec<(u64, Option<B>)>,
    },
}

/// A block by number and checksum.
type BlockChecksum = (u32, u32);

/// A writer, by the entry with which it took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer {
    generation: u64,
    number: u64,
    id: u64,
}

/// A journal in its stored form.
#[derive(Debug, Default)]
pub(super) struct Stored {
    part: u64,
    writers: Vec<Writer>,
    names: BTreeMap<String, NameRecord<BlockChecksum>>,
}

#[derive(Debug)]
pub(in super::super) struct Journal {
    store: Arc<dyn Store>,
    /// `None`: the next record begins a new file.
    file: Option<Arc<dyn BlockDevice>>,
    len: u64,
    /// Bytes of its first record.
    first: u64,
    part: u64,
    writers: Vec<Writer>,
    /// All valid records, with the number of their flush.
    names: BTreeMap<String, (u64, NameRecord)>,
    /// Superseded records that the stored journal still contains: after a crash they would be
    /// valid, so their blocks must not be overwritten until another journal is durable.
    outdated: Vec<NameRecord>,
    /// Number of flushes so far.
    pub(in super::super) flushes: u64,
    /// Recording is suspended.
    pub(in super::super) paused: bool,
}

impl<B> NameRecord<B> {
    fn blocks(&self) -> impl Iterator<Item = &B> {
        let pages = match self {
            Self::Gone => &[][..],
            Self::File { pages, .. } => pages,
        };
        pages.iter().filter_map(|(_, block)| block.as_ref())
    }
}

impl Stored {
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockChecksum> + '_ {
        self.names.values().flat_map(NameRecord::blocks).copied()
    }
}

impl Journal {
    /// Creates the journal from the stored one, with its blocks in the order in which it lists
    /// them.
    pub(super) fn new(
        store: Arc<dyn Store>,
        found: Stored,
        blocks: &mut dyn Iterator<Item = Arc<Block>>,
    ) -> Self {
        let mut names = BTreeMap::new();
        for (name, recorded) in found.names {
            let recorded = match recorded {
                NameRecord::Gone => NameRecord::Gone,
                NameRecord::File { state, pages } => {
                    let pages = pages
                        .into_iter()
                        .map(|(number, block)| (number, block.and_then(|_| blocks.next())));
                    NameRecord::File {
                        state,
                        pages: pages.collect(),
                    }
                }
            };
            names.insert(name, (0, recorded));
        }
        let (part, writers) = (found.part, found.writers);
        Self {
            store,
            file: None,
            len: 0,
            first: 0,
            part,
            writers,
            names,
            outdated: Vec::new(),
            flushes: 0,
            paused: false,
        }
    }

    /// Returns the names with flushed data that the store does not have.
    pub(in super::super) fn names(&self) -> impl Iterator<Item = (&String, &NameRecord)> {
        self.names
            .iter()
            .map(|(name, (_, recorded))| (name, recorded))
    }

    /// Returns the objects that are needed as long as the journal is valid.
    pub(in super::super) fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let states = self.names().filter_map(|(_, recorded)| match recorded {
            NameRecord::File { state, .. } => Some(state),
            NameRecord::Gone => None,
        });
        states.flat_map(|state| state.parts.values().filter_map(|part| part.object))
    }

    /// Refuses a bundle that another writer has written since. `place`: the folder of the cache,
    /// for messages.
    pub(in super::super) fn check_fits(
        &self,
        objects: &dyn Objects,
        state: Option<&Document>,
        place: &str,
    ) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let refused = |why: String| {
            let message = format!(
                "{place} has {} flushed files that are not in the store, {why}; they cannot be \
                 merged: copy the image first, then remove the folder to discard them",
                self.names.len()
            );
            Err(Error::conflict(LAYER, message))
        };
        let Some(state) = state else {
            return refused("where the bundle no longer has a log".to_owned());
        };
        for writer in self
            .writers
            .iter()
            .rev()
            .filter(|writer| writer.generation == state.generation)
        {
            let key = log_key(writer.number);
            let Some(bytes) = read_all(objects, &key)? else {
                continue;
            };
            let entry = Document::parse(&key, &bytes, Role::Entry)?;
            if entry.what == EntryPurpose::Take
                && entry.generation == writer.generation
                && entry.id == writer.id
                && state.part == self.part
            {
                return Ok(());
            }
        }
        refused(format!(
            "and the bundle was changed without it since, by {}",
            state.holder
        ))
    }

    /// Records a writer that is about to take over, durably if the journal contains data.
    pub(in super::super) fn announce(&mut self, entry: &Document) -> Result<()> {
        if self.names.is_empty() {
            self.writers.clear();
        }
        self.part = entry.part;
        self.writers.push(Writer {
            generation: entry.generation,
            number: entry.number,
            id: entry.id,
        });
        if self.names.is_empty() {
            Ok(())
        } else {
            self.rewrite()
        }
    }

    /// Records the current state of names, durably; their blocks are durable already. After an
    /// error the earlier records are valid, and possibly these.
    pub(in super::super) fn record(&mut self, names: BTreeMap<String, NameRecord>) -> Result<()> {
        self.flushes += 1;
        let flush = self.flushes;
        let Some(file) = self
            .file
            .clone()
            .filter(|_| self.len < MAX_GROWTH.max(self.first * 4))
        else {
            self.count(names, flush);
            return self.rewrite();
        };
        let bytes = self.encode(names.iter())?;
        let at = self.len;
        self.count(names, flush);
        // After an error the next record begins a new file.
        self.file = None;
        file.set_len(at + bytes.len() as u64, AfterDiscard::Any)?;
        file.write_at(at, &bytes)?;
        file.flush()?;
        self.len = at + bytes.len() as u64;
        self.file = Some(file);
        self.outdated.clear();
        Ok(())
    }

    fn count(&mut self, names: BTreeMap<String, NameRecord>, flush: u64) {
        let before = names
            .into_iter()
            .filter_map(|(name, recorded)| self.names.insert(name, (flush, recorded)));
        self.outdated.extend(before.map(|(_, recorded)| recorded));
    }

    /// Drops the records up to a flush, whose data is in the store; data changed since may be there
    /// too.
    pub(in super::super) fn drop_flushed(&mut self, flush: u64) -> Result<()> {
        let settled = self
            .names
            .values()
            .filter(|(recorded, _)| *recorded <= flush);
        self.outdated
            .extend(settled.map(|(_, recorded)| recorded.clone()));
        self.names.retain(|_, (recorded, _)| *recorded > flush);
        if self.outdated.is_empty() {
            Ok(())
        } else {
            self.rewrite()
        }
    }

    /// Replaces the journal by a new file with all valid records; removes it if there are none.
    fn rewrite(&mut self) -> Result<()> {
        self.file = None;
        if self.names.is_empty() {
            self.store.remove(JOURNAL)?;
            self.store.sync()?;
            self.outdated.clear();
            return Ok(());
        }
        let bytes = self.encode(self.names())?;
        self.store.put(JOURNAL, &bytes, Put::Replace)?;
        self.store.sync()?;
        self.outdated.clear();
        (self.len, self.first) = (bytes.len() as u64, bytes.len() as u64);
        self.file = self.store.open(JOURNAL, Open::Write)?;
        Ok(())
    }

    fn encode<'a>(
        &self,
        names: impl Iterator<Item = (&'a String, &'a NameRecord)>,
    ) -> Result<Vec<u8>> {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{TITLE}\nparts {}", self.part);
        for writer in &self.writers {
            let _ = writeln!(
                text,
                "writer {:016x} {:016x} {:016x}",
                writer.generation, writer.number, writer.id
            );
        }
        for (name, recorded) in names {
            let name = escaped(name);
            let NameRecord::File { state, pages } = recorded else {
                let _ = writeln!(text, "gone {name}");
                continue;
            };
            encode_file(&mut text, &name, state);
            for (number, block) in pages {
                let _ = match block {
                    Some(block) => {
                        writeln!(text, "page {number} {} {:08x}", block.number(), block.sum())
                    }
                    None => writeln!(text, "page {number} -"),
                };
            }
        }
        let sum = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        if text.len() as u64 > LARGEST {
            return Err(Error::limit(
                LAYER,
                format!("expected at most {LARGEST} bytes, found {}", text.len()),
            ));
        }
        Ok(format!("{:08x}\n{text}", text.len()).into_bytes())
    }
}

/// Reads the journal, if there is one.
pub(super) fn load(store: &dyn Store) -> Result<Stored> {
    let Some(file) = store.open(JOURNAL, Open::Read)? else {
        return Ok(Stored::default());
    };
    let len = file.info().len;
    if len > MAX_LEN {
        return Err(Error::limit(
            LAYER,
            format!("expected at most {MAX_LEN} bytes, found {len}"),
        )
        .in_part(JOURNAL));
    }
    let blocks = store.stat(BLOCKS)?.map_or(0, |meta| meta.len / PAGE);
    parse(&file.read_vec(0, to_usize(len))?, blocks)
}

fn parse(bytes: &[u8], blocks: u64) -> Result<Stored> {
    let mut found = Stored::default();
    let mut at = 0;
    while let Some(document) = record_at(bytes, at) {
        found
            .apply(document, blocks)
            .map_err(|error| error.in_part(JOURNAL))?;
        at += FRAME + document.len();
    }
    // Only the last record can be torn. If another one begins in it, this one was flushed and is
    // corrupt.
    let rest = bytes.get(at + FRAME + 1..).unwrap_or_default();
    if rest
        .windows(TITLE.len())
        .any(|window| window == TITLE.as_bytes())
    {
        return Err(odd(
            JOURNAL,
            at,
            "checksum mismatch of a record that is not the last",
        ));
    }
    if at == 0 && !bytes.is_empty() {
        return Err(odd(JOURNAL, 0, "checksum mismatch of a record"));
    }
    let mut used = HashSet::new();
    if !found.blocks().all(|(number, _)| used.insert(number)) {
        return Err(odd(JOURNAL, 0, "duplicate block"));
    }
    Ok(found)
}

/// Returns the document at `at`, if it is complete.
fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let frame = bytes.get(at..at.checked_add(FRAME)?)?;
    let digits = std::str::from_utf8(frame.strip_suffix(b"\n")?).ok()?;
    let len = u32::from_str_radix(digits, 16)
        .ok()
        .filter(|_| !digits.starts_with('+'))? as usize;
    let document = bytes.get(at + FRAME..at.checked_add(FRAME)?.checked_add(len)?)?;
    Lines::checked(document).ok().map(|_| document)
}

/// The file whose pages are being parsed.
type Current = Option<(String, FileState, BTreeMap<u64, Option<BlockChecksum>>)>;

impl Stored {
    fn apply(&mut self, document: &[u8], blocks: u64) -> Result<()> {
        let mut lines = Lines::checked(document)?.after(TITLE)?;
        let mut fields = lines.expect("parts")?;
        self.part = fields.part_len()?;
        fields.end()?;
        self.writers.clear();
        let mut current: Current = None;
        while let Some(mut fields) = lines.next()? {
            match (fields.word()?, &mut current) {
                ("writer", None) => {
                    self.writers.push(Writer {
                        generation: fields.hex()?,
                        number: fields.hex()?,
                        id: fields.hex()?,
                    });
                    fields.end()?;
                }
                ("part", Some((_, state, _))) => take_part(&mut fields, state, self.part)?,
                ("page", Some((_, state, pages))) => {
                    take_page(&mut fields, state.len, blocks, pages)?
                }
                ("file", _) => {
                    self.finish(current.take());
                    let name = fields.name()?;
                    current = Some((name, take_file(&mut fields)?, BTreeMap::new()));
                    fields.end()?;
                }
                ("gone", _) => {
                    self.finish(current.take());
                    self.names.insert(fields.name()?, NameRecord::Gone);
                    fields.end()?;
                }
                _ => return Err(fields.odd("expected writer, file, part, page or gone")),
            }
        }
        self.finish(current);
        Ok(())
    }

    fn finish(&mut self, current: Current) {
        if let Some((name, state, pages)) = current {
            self.names.insert(
                name,
                NameRecord::File {
                    state,
                    pages: pages.into_iter().collect(),
                },
            );
        }
    }
}

fn take_page(
    fields: &mut Fields<'_>,
    len: u64,
    blocks: u64,
    pages: &mut BTreeMap<u64, Option<BlockChecksum>>,
) -> Result<()> {
    let number = fields.number()?;
    if number >= len.div_ceil(PAGE) {
        return Err(fields.odd("expected a page within its file"));
    }
    let block = match fields.word()? {
        "-" => None,
        text => {
            let block = text
                .parse::<u32>()
                .ok()
                .filter(|block| u64::from(*block) < blocks && *block < u32::MAX);
            let block =
                block.ok_or_else(|| fields.odd("expected a block within the file of blocks"))?;
            let sum = u32::from_str_radix(fields.word()?, 16)
                .map_err(|_| fields.odd("expected a checksum"))?;
            Some((block, sum))
        }
    };
    if pages.insert(number, block).is_some() {
        return Err(fields.odd("duplicate page"));
    }
    fields.end()
}
