//! Files of a volume stored compressed, as macOS stores them, and as they are again.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rayon::prelude::*;

use crate::decmpfs::{self, Bounds, MAX_LEN, Packed, Packing, pack};
use crate::device::{BlockDevice, BlockDeviceExt, Leave};
use crate::fs::{Attributes, FileKind, FileSystemExt, FileSystemMut, Fork, NodeId, Stored, UF_COMPRESSED};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "compress";
/// Bytes copied or compared in one go.
const PIECE: u64 = 4 << 20;
/// Files that are worked on side by side.
const BATCH: usize = 64;
/// The longest attribute that macOS takes.
const MOST_IN_ATTRIBUTE: usize = 3802;

/// What is compressed, and how.
#[derive(Debug, Clone, Copy)]
pub struct CompressOptions {
    /// How.
    pub packing: Packing,
    /// Files that would take more than this many percent less are compressed; others stay as they are.
    pub min_saving: u8,
    /// Longer files, in bytes, stay as they are.
    pub max_size: u64,
    /// Everything is decoded and compared before a file is switched over.
    pub verify: bool,
    /// Nothing is changed; the report says what would come of it.
    pub estimate: bool,
}

impl CompressOptions {
    /// Files of any length, if they get any shorter.
    pub fn new(packing: Packing) -> Self {
        Self { packing, min_saving: 0, max_size: MAX_LEN, verify: false, estimate: false }
    }
}

/// What came of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Its path in the volume.
    pub path: String,
    /// Bytes of its contents.
    pub size: u64,
    /// Bytes it took on the volume: whole blocks, and what is in an attribute.
    pub before: u64,
    /// Bytes it takes now, or would.
    pub after: u64,
    /// Why it stays as it is, if it does.
    pub left: Option<Left>,
}

/// Why a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Left {
    /// It is compressed already.
    Compressed,
    /// It is not compressed.
    Plain,
    /// It is empty.
    Empty,
    /// It is longer than asked for, or than macOS can read.
    TooLong,
    /// It has a resource fork, or an attribute that looks like that of a compressed file.
    ResourceFork,
    /// It would take no less room, or not as much less as asked for.
    NoGain,
    /// It may not be changed (the flags `uchg`, `schg`).
    Locked,
}

impl Left {
    /// In words that follow "left as it is: ".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Compressed => "compressed already",
            Self::Plain => "not compressed",
            Self::Empty => "empty",
            Self::TooLong => "too long",
            Self::ResourceFork => "has a resource fork or an attribute of its own that would be in the way",
            Self::NoGain => "would not take less room",
            Self::Locked => "locked",
        }
    }
}

/// The flags that make a file immutable: `UF_IMMUTABLE`, `UF_APPEND`, `SF_IMMUTABLE`, `SF_APPEND`.
const LOCKED: u32 = 0x2 | 0x4 | 0x2_0000 | 0x4_0000;

/// Compresses the files at `paths`, and all below those that are folders; each file once, however many names it has. `each` is told
/// of every file. What was done before an error stays done, each file whole.
pub fn compress(
    fs: &dyn FileSystemMut,
    paths: &[String],
    options: &CompressOptions,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    over_files(fs, paths, "compress", progress, each, &|path, file| compress_one(fs, path, file, options, progress))
}

/// Stores compressed files as they are, like [`compress`] the other way.
pub fn decompress(
    fs: &dyn FileSystemMut,
    paths: &[String],
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    over_files(fs, paths, "decompress", progress, each, &|path, file| decompress_one(fs, path, file, progress))
}

type One<'a> = &'a (dyn Fn(String, &Attributes) -> Result<FileReport> + Sync);

fn over_files(
    fs: &dyn FileSystemMut,
    paths: &[String],
    stage: &str,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
    one: One<'_>,
) -> Result<()> {
    let files = files_below(fs, paths, progress)?;
    progress.stage(stage, files.iter().map(|(_, file)| file.size).sum());
    for batch in files.chunks(BATCH) {
        progress.check()?;
        let done = |(path, file): &(String, Attributes)| one(path.clone(), file).map_err(|error| error.named(path.clone()));
        let reports: Vec<Result<FileReport>> = batch.par_iter().map(done).collect();
        // Who was done is told before the first error, whatever came first.
        let mut failed = None;
        for report in reports {
            match report {
                Ok(report) => each(report)?,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// The ordinary files at `paths` and below, each once.
fn files_below(fs: &dyn FileSystemMut, paths: &[String], progress: &dyn Progress) -> Result<Vec<(String, Attributes)>> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for path in paths {
        let top = fs.resolve(path)?;
        let mut ahead = vec![(path.trim_end_matches('/').to_owned(), top)];
        while let Some((path, found)) = ahead.pop() {
            progress.check()?;
            match found.kind {
                FileKind::File if seen.insert(found.id) => files.push((path, found)),
                FileKind::Folder => {
                    let before = ahead.len();
                    fs.list(found.id, &mut |entry| {
                        ahead.push((format!("{path}/{}", entry.name), entry.attributes));
                        Ok(ControlFlow::Continue(()))
                    })?;
                    ahead[before..].reverse();
                }
                _ => {}
            }
        }
    }
    Ok(files)
}

fn report(path: String, file: &Attributes, after: u64, left: Option<Left>) -> FileReport {
    FileReport { path, size: file.size, before: file.allocated, after, left }
}

fn compress_one(
    fs: &dyn FileSystemMut,
    path: String,
    file: &Attributes,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<FileReport> {
    if let Some(left) = why_left(fs, file, options)? {
        progress.advance(file.size);
        let stored = if left == Left::Compressed { attribute_len(fs, file.id)? } else { 0 };
        let mut report = report(path, file, file.allocated + stored, Some(left));
        report.before += stored;
        return Ok(report);
    }
    let block = u64::from(fs.volume().block_size);
    let gain = file.size - file.size * u64::from(options.min_saving.min(100)) / 100;
    let bounds = Bounds { attribute: MOST_IN_ATTRIBUTE, fork: gain.min(file.allocated.saturating_sub(block)) };
    let packed = if options.estimate {
        let plain = fs.open(file.id, Fork::Data)?;
        pack(&*plain, options.packing, bounds, progress, &mut |_, _| Ok(()))?
    } else {
        match switch(fs, file.id, options, bounds, progress) {
            // Small nodes of old volumes hold no attribute as long.
            Err(error) if error.kind() == Kind::Limit => {
                switch(fs, file.id, options, Bounds { attribute: 0, ..bounds }, progress)?
            }
            done => done?,
        }
    };
    Ok(match packed {
        Some(packed) => {
            let after = packed.fork_len.next_multiple_of(block) + packed.attribute.len() as u64;
            report(path, file, after, None)
        }
        None => report(path, file, file.allocated, Some(Left::NoGain)),
    })
}

fn why_left(fs: &dyn FileSystemMut, file: &Attributes, options: &CompressOptions) -> Result<Option<Left>> {
    Ok(if file.flags & UF_COMPRESSED != 0 {
        Some(Left::Compressed)
    } else if file.size == 0 {
        Some(Left::Empty)
    } else if file.size > options.max_size.min(MAX_LEN) {
        Some(Left::TooLong)
    } else if file.flags & LOCKED != 0 {
        Some(Left::Locked)
    } else if file.resource_size > 0 || file.has_xattrs && fs.xattr(file.id, decmpfs::ATTRIBUTE)?.is_some() {
        Some(Left::ResourceFork)
    } else {
        None
    })
}

fn attribute_len(fs: &dyn FileSystemMut, node: NodeId) -> Result<u64> {
    Ok(fs.xattr(node, decmpfs::ATTRIBUTE)?.map_or(0, |value| value.info().len))
}

/// Packs a file's contents beside it, and then lets these be its contents. `None`: not worth it.
fn switch(
    fs: &dyn FileSystemMut,
    node: NodeId,
    options: &CompressOptions,
    bounds: Bounds,
    progress: &dyn Progress,
) -> Result<Option<Packed>> {
    let (contents, out) = fs.make_nameless()?;
    let plain = fs.open(node, Fork::Data)?;
    let mut write = |at: u64, bytes: &[u8]| {
        let end = at + bytes.len() as u64;
        if end > out.info().len {
            out.set_len(end, Leave::Any)?;
        }
        out.write_at(at, bytes)
    };
    let Some(packed) = pack(&*plain, options.packing, bounds, progress, &mut write)? else { return Ok(None) };
    out.set_len(packed.fork_len, Leave::Any)?;
    if options.verify {
        compare(&*plain, &packed, out.clone(), progress)?;
    }
    drop(plain); // which keeps it open
    fs.store(node, &Stored::Packed { attribute: &packed.attribute, contents })?;
    Ok(Some(packed))
}

/// Refuses what does not decode to what was packed.
fn compare(plain: &dyn BlockDevice, packed: &Packed, fork: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<()> {
    let decoded = decmpfs::contents(&packed.attribute, || Ok(fork))?;
    let len = plain.info().len;
    for at in (0..len).step_by(PIECE as usize) {
        progress.check()?;
        let now = PIECE.min(len - at) as usize;
        if plain.read_vec(at, now)? != decoded.read_vec(at, now)? {
            let message = "what was compressed does not decode to the same; the file stays as it was";
            return Err(Error::corrupt(LAYER, at, message));
        }
    }
    Ok(())
}

fn decompress_one(fs: &dyn FileSystemMut, path: String, file: &Attributes, progress: &dyn Progress) -> Result<FileReport> {
    let attribute = attribute_len(fs, file.id)?;
    if file.flags & UF_COMPRESSED == 0 || attribute == 0 {
        progress.advance(file.size);
        return Ok(report(path, file, file.allocated, Some(Left::Plain)));
    }
    let (contents, out) = fs.make_nameless()?;
    let packed = fs.open(file.id, Fork::Data)?;
    out.set_len(file.size, Leave::Any)?;
    for at in (0..file.size).step_by(PIECE as usize) {
        progress.check()?;
        let now = PIECE.min(file.size - at);
        out.write_at(at, &packed.read_vec(at, now as usize)?)?;
        progress.advance(now);
    }
    drop(packed);
    fs.store(file.id, &Stored::Plain { contents })?;
    drop(out);
    let after = file.size.next_multiple_of(u64::from(fs.volume().block_size));
    let mut report = report(path, file, after, None);
    report.before += attribute;
    Ok(report)
}
