//! Conversion to standard output, or to any other sequential output.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::copy::{CopyCounts, runs_of_data};
use super::{ConvertOptions, Source};
use crate::container::Format;
use crate::container::udif::StreamSink;
use crate::crypt::{Encryption, KeyMaterial, LockedHeader, Sectors};
use crate::device::{BlockDevice, ZEROS};
use crate::open::{FileDraft, Image, NewMode};
use crate::ops::pipeline::{self, DiskPiece, PIECE};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::store::FileMode;
use crate::{Error, Result, platform};

const LAYER: &str = "output";

/// Writes the disk of `from` to `out` in a format that is written in order: a raw one, or a kind
/// of UDIF. In a plain raw one, holes and zeros become holes if `out` is a file positioned at its end,
/// and zeros otherwise. An encrypted UDIF, or one with resources, states at its beginning what is known
/// at its end: it is first written to a temporary file in `folder`.
///
/// [`Kind::Unsupported`](crate::Kind::Unsupported) for other formats. Output written before an
/// error cannot be undone, not even if the source's checksums turn out not to match at the end.
pub fn stream(
    from: &Image,
    options: &ConvertOptions,
    folder: &Path,
    out: File,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    super::check_level(options.format, options.level)?;
    options.keep_signature(from)?;
    let used_only = options.used_only(from, progress)?;
    let from = Source::of(from, used_only.as_ref());
    write(from, options, folder, out, progress)
}

/// Writes the disk of `from` to `out`, as [`stream`] does.
pub(in crate::ops) fn write(
    from: Source<'_>,
    options: &ConvertOptions,
    folder: &Path,
    out: File,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let ConvertOptions {
        format,
        level,
        no_verify,
        ..
    } = *options;
    check_format(format)?;
    if format.is_udif() && (options.encryption.is_some() || !options.resources.is_empty()) {
        let path = folder.join(format!(".bandsaw-{}", Uuid::new_v4()));
        // Removed when it is dropped.
        let draft = FileDraft::new(&path, false, NewMode::Exactly(FileMode::PRIVATE))?;
        let whole: Arc<dyn BlockDevice> = draft.file().clone();
        let copied = super::udif::fill(&whole, from, options, progress)?;
        return plain(&*whole, out, progress).map(|_| copied);
    }
    if format.is_udif() {
        // Chunks are small and many; a pipe takes them together.
        let mut out = BufWriter::with_capacity(PIECE, out);
        let copied = super::udif::write(
            from,
            no_verify,
            (format, level),
            &mut StreamSink(&mut out),
            progress,
        )?;
        return out.flush().map_err(failed).map(|()| copied);
    }
    from.read(no_verify, progress, |disk| match &options.encryption {
        Some(encryption) => encrypted(disk, encryption, out, progress),
        None => plain(disk, out, progress),
    })
}

/// Refuses formats that are not written in one pass.
pub(in crate::ops) fn check_format(format: Format) -> Result<()> {
    if format.is_udif() || format.is_plain() {
        return Ok(());
    }
    let message = format!(
        "cannot write {format} ({}) to a pipe: it is not written in order",
        format.description()
    );
    Err(Error::unsupported(LAYER, message))
}

fn plain(disk: &dyn BlockDevice, out: File, progress: &dyn Progress) -> Result<CopyCounts> {
    let len = disk.info().len;
    progress.stage("copy", len);
    let (mut out, mut copied) = (SparseOutput::new(out), CopyCounts::default());
    pipeline::in_order(disk, 0..len, progress, |piece| {
        match piece {
            DiskPiece::Zeros(range) => out.zeros(range.end - range.start),
            DiskPiece::Data(at, bytes) => {
                copied.read += bytes.len() as u64;
                out.data(at, bytes, &mut copied.written)
            }
        }
        .map_err(failed)
    })?;
    out.finish().map_err(failed)?;
    Ok(copied)
}

/// Writes the disk encrypted. Its length, which the header states at the front, is known.
fn encrypted(
    disk: &dyn BlockDevice,
    encryption: &Encryption,
    out: File,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let len = disk.info().len;
    let protection = encryption.protection(len)?;
    let keys = KeyMaterial::random(protection.key_bits)?;
    let (_, header) = LockedHeader::make(&keys, &protection, len)?;
    let mut out = EncryptedOutput {
        out,
        cipher: Sectors::new(&keys, protection.block)?,
        plain: Vec::with_capacity(PIECE),
        encrypted: vec![0; PIECE],
        block: 0,
    };
    out.out.write_all(&header).map_err(failed)?;
    progress.stage("copy", len);
    let mut copied = CopyCounts::default();
    pipeline::in_order(disk, 0..len, progress, |piece| match piece {
        DiskPiece::Zeros(range) => out.zeros(range.end - range.start),
        DiskPiece::Data(_, bytes) => {
            copied.read += bytes.len() as u64;
            out.data(bytes)
        }
    })?;
    copied.written = len;
    out.finish()?;
    Ok(copied)
}

/// A sequential output that encrypts.
struct EncryptedOutput {
    out: File,
    cipher: Sectors,
    /// Plain text that was not written yet, less than [`PIECE`].
    plain: Vec<u8>,
    /// Memory for its cipher text.
    encrypted: Vec<u8>,
    /// Number of the next block.
    block: u64,
}

impl EncryptedOutput {
    fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - self.plain.len()));
            self.plain.extend_from_slice(now);
            bytes = rest;
            if self.plain.len() == PIECE {
                self.write()?;
            }
        }
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            let piece = count.min(ZEROS.len() as u64);
            self.data(&ZEROS[..to_usize(piece)])?;
            count -= piece;
        }
        Ok(())
    }

    /// Encrypts and writes the plain text at hand, whole blocks.
    fn write(&mut self) -> Result<()> {
        let encrypted = &mut self.encrypted[..self.plain.len()];
        self.cipher.encrypt(self.block, &self.plain, encrypted)?;
        self.out.write_all(encrypted).map_err(failed)?;
        self.block += self.plain.len() as u64 / self.cipher.block();
        self.plain.clear();
        Ok(())
    }

    /// Writes the rest, with zeros up to the end of its last block.
    fn finish(mut self) -> Result<()> {
        let whole = self
            .plain
            .len()
            .next_multiple_of(to_usize(self.cipher.block()));
        self.plain.resize(whole, 0);
        self.write()?;
        self.out.flush().map_err(failed)
    }
}

fn failed(source: io::Error) -> Error {
    Error::io(LAYER, "write", source)
}

/// A sequential output, with holes if possible.
struct SparseOutput {
    file: File,
    /// Zeros skipped before the next write, in bytes. `None` if the output cannot have holes.
    skipped: Option<u64>,
}

impl SparseOutput {
    fn new(file: File) -> Self {
        let skipped = can_skip(&file).unwrap_or(false).then_some(0);
        Self { file, skipped }
    }

    fn data(&mut self, at: u64, bytes: &[u8], written: &mut u64) -> io::Result<()> {
        if self.skipped.is_none() {
            *written += bytes.len() as u64;
            return self.file.write_all(bytes);
        }
        let mut done = 0;
        for run in runs_of_data(bytes, at) {
            self.zeros((run.start - done) as u64)?;
            self.seek()?;
            self.file.write_all(&bytes[run.clone()])?;
            *written += run.len() as u64;
            done = run.end;
        }
        self.zeros((bytes.len() - done) as u64)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        if let Some(skipped) = &mut self.skipped {
            *skipped += count;
            return Ok(());
        }
        let mut left = count;
        while left > 0 {
            let piece = left.min(ZEROS.len() as u64);
            self.file.write_all(&ZEROS[..to_usize(piece)])?;
            left -= piece;
        }
        Ok(())
    }

    fn seek(&mut self) -> io::Result<u64> {
        let count = self.skipped.replace(0).unwrap_or(0);
        self.file.seek(SeekFrom::Current(
            i64::try_from(count).map_err(io::Error::other)?,
        ))
    }

    /// Extends the file by the zeros at the end, and flushes it.
    fn finish(mut self) -> io::Result<()> {
        if self.skipped.is_some() {
            let end = self.seek()?;
            if self.file.metadata()?.len() < end {
                self.file.set_len(end)?;
            }
        }
        self.file.flush()
    }
}

/// Returns true if skipped ranges of `file` read as zeros: it is a regular file, positioned at its
/// end and not open for appending.
fn can_skip(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let mut file = file;
    Ok(meta.is_file() && !platform::appends(file)? && file.stream_position()? == meta.len())
}
