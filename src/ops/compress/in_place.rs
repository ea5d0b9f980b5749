//! Compression of files of an existing volume, sequentially or in parallel. Each file is switched
//! to its new form in one step.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::choose::FileTraits;
use super::{CompressOptions, FileReport, LAYER, PIECE, SkipReason, on_cores};
use crate::decmpfs::{self, Bounds, Compression, PackedFile, PlainContents, pack};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use crate::fs::{
    Attributes, FileKind, FileSystem, FileSystemExt, FileSystemMut, Fork, NewKind, NewNode, NodeId,
    Stored, UF_COMPRESSED, UnlinkedFile,
};
use crate::ops::export::{FolderOptions, to_folder};
use crate::ops::new_file::NewFileWriter;
use crate::ops::writable_volume::RewritableVolume;
use crate::progress::{NestedProgress, Progress};
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// Number of files processed in parallel.
const BATCH: usize = 64;
/// The flags that make a file immutable: `UF_IMMUTABLE`, `UF_APPEND`, `SF_IMMUTABLE`, `SF_APPEND`.
const LOCKED: u32 = 0x2 | 0x4 | 0x2_0000 | 0x4_0000;

/// Compresses the files at `paths`, recursively for folders; each file once, regardless of its
/// number of hard links. `each` is called for every file. After an error, files that were completed
/// stay compressed.
pub fn compress(
    volume: &RewritableVolume,
    paths: &[String],
    options: &CompressOptions,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    let fs: &dyn FileSystemMut = &**volume;
    let files = files_below(fs, paths, progress)?;
    over_files(
        &files,
        "compress",
        options.jobs,
        progress,
        each,
        &|path, file| compress_one(fs, path, file, options, progress),
    )
}

/// Estimates the result of [`compress`] for these files, without changes. The volume may be
/// read-only.
pub fn estimate(
    fs: &dyn FileSystem,
    paths: &[String],
    options: &CompressOptions,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    let files = files_below(fs, paths, progress)?;
    over_files(
        &files,
        "estimate",
        options.jobs,
        progress,
        each,
        &|path, file| estimate_one(fs, path, file, options, progress),
    )
}

/// Stores compressed files uncompressed: the reverse of [`compress`].
pub fn decompress(
    volume: &RewritableVolume,
    paths: &[String],
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    let fs: &dyn FileSystemMut = &**volume;
    let files = files_below(fs, paths, progress)?;
    over_files(&files, "decompress", None, progress, each, &|path, file| {
        decompress_one(fs, path, file, progress)
    })
}

type FileRewrite<'a> = &'a (dyn Fn(String, &Attributes) -> Result<FileReport> + Sync);

fn over_files(
    files: &[(String, Attributes)],
    stage: &str,
    jobs: Option<std::num::NonZeroUsize>,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
    one: FileRewrite<'_>,
) -> Result<()> {
    progress.stage(stage, files.iter().map(|(_, file)| file.size).sum());
    for batch in files.chunks(BATCH) {
        progress.check()?;
        let done = |(path, file): &(String, Attributes)| {
            one(path.clone(), file).map_err(|error| error.named(path.clone()))
        };
        let reports: Vec<Result<FileReport>> =
            on_cores(jobs, || batch.par_iter().map(done).collect())?;
        // Report all completed files before the first error, regardless of their order.
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

/// Returns the regular files at `paths` and below, each once.
fn files_below(
    fs: &dyn FileSystem,
    paths: &[String],
    progress: &dyn Progress,
) -> Result<Vec<(String, Attributes)>> {
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

/// Compresses one file by its number, which works for an unlinked one too. `path` is used in the
/// report. The file must not be open.
pub fn compress_one(
    fs: &dyn FileSystemMut,
    path: String,
    file: &Attributes,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<FileReport> {
    one(fs, path, file, options, progress, &|path, bounds| {
        let mut switch = FormSwitch {
            fs,
            path,
            file,
            options,
            progress,
            backed_up: false,
        };
        match switch.run(bounds) {
            // Small nodes of old volumes cannot hold an attribute of this length.
            Err(error) if error.kind() == Kind::Limit => switch.run(Bounds {
                attribute: 0,
                ..bounds
            }),
            done => done,
        }
    })
}

fn estimate_one(
    fs: &dyn FileSystem,
    path: String,
    file: &Attributes,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<FileReport> {
    one(fs, path, file, options, progress, &|_, bounds| {
        let plain = fs.open(file.id, Fork::Data)?;
        let mut read = |at: u64, buf: &mut [u8]| plain.read_at(at, buf);
        pack(
            PlainContents {
                len: file.size,
                read: &mut read,
            },
            options.packing,
            bounds,
            progress,
            &mut |_, _| Ok(()),
        )
    })
}

/// Compresses one file with `pack`, unless it is to be skipped.
fn one(
    fs: &dyn FileSystem,
    path: String,
    file: &Attributes,
    options: &CompressOptions,
    progress: &dyn Progress,
    pack: &dyn Fn(&str, Bounds) -> Result<Option<PackedFile>>,
) -> Result<FileReport> {
    let as_it_is = FileReport {
        path,
        number: None,
        size: file.size,
        before: file.allocated,
        after: file.allocated,
        left: Some(SkipReason::NoGain),
    };
    if let Some(left) = why_left(fs, &as_it_is.path, file, options)? {
        progress.advance(file.size);
        let attribute = if left == SkipReason::Compressed {
            attribute(fs, file.id)?
        } else {
            None
        };
        let number = attribute
            .as_deref()
            .and_then(Compression::parse)
            .map(|compression| compression.number);
        let taken = file.allocated + attribute.map_or(0, |value| value.len() as u64);
        return Ok(FileReport {
            number,
            before: taken,
            after: taken,
            left: Some(left),
            ..as_it_is
        });
    }
    let block = u64::from(fs.volume().block_size);
    let packed = pack(
        &as_it_is.path,
        options.bounds(file.size, file.allocated, block),
    )?;
    Ok(match packed {
        Some(packed) => FileReport {
            number: packed.number(),
            after: packed.fork_len.next_multiple_of(block) + packed.attribute.len() as u64,
            left: None,
            ..as_it_is
        },
        None => as_it_is,
    })
}

fn why_left(
    fs: &dyn FileSystem,
    path: &str,
    file: &Attributes,
    options: &CompressOptions,
) -> Result<Option<SkipReason>> {
    let looks = FileTraits {
        path,
        size: file.size,
        compressed: file.flags & UF_COMPRESSED != 0,
        locked: file.flags & LOCKED != 0,
    };
    Ok(match options.leaves(&looks) {
        None if file.resource_size > 0 || file.has_xattrs && attribute(fs, file.id)?.is_some() => {
            Some(SkipReason::ResourceFork)
        }
        left => left,
    })
}

/// Returns the attribute that describes the compression of a file, if it has one.
pub(super) fn attribute(fs: &dyn FileSystem, node: NodeId) -> Result<Option<Vec<u8>>> {
    let Some(value) = fs.xattr(node, decmpfs::ATTRIBUTE)? else {
        return Ok(None);
    };
    // macOS ignores longer ones.
    let len = value.info().len.min(super::MAX_IN_ATTRIBUTE as u64 + 1);
    value.read_vec(0, to_usize(len)).map(Some)
}

/// A file whose contents are to be stored in another form.
struct FormSwitch<'a> {
    fs: &'a dyn FileSystemMut,
    path: &'a str,
    file: &'a Attributes,
    options: &'a CompressOptions,
    progress: &'a dyn Progress,
    backed_up: bool,
}

impl FormSwitch<'_> {
    /// Packs the contents into an unlinked file, and then makes these the contents of the file.
    /// `None`: compression saves too little.
    fn run(&mut self, bounds: Bounds) -> Result<Option<PackedFile>> {
        let Self {
            fs,
            file,
            options,
            progress,
            ..
        } = *self;
        let (_nameless, contents) = UnlinkedFile::new(fs, &NewNode::new(NewKind::File))?;
        let out = fs.open_mut(contents, Fork::Data)?;
        let plain = fs.open(file.id, Fork::Data)?;
        let mut read = |at: u64, buf: &mut [u8]| plain.read_at(at, buf);
        let mut write = |at: u64, bytes: &[u8]| {
            let end = at + bytes.len() as u64;
            if end > out.info().len {
                out.set_len(end, AfterDiscard::Any)?;
            }
            out.write_at(at, bytes)
        };
        let source = PlainContents {
            len: file.size,
            read: &mut read,
        };
        let Some(packed) = pack(source, options.packing, bounds, progress, &mut write)? else {
            return Ok(None);
        };
        out.set_len(packed.fork_len, AfterDiscard::Any)?;
        if options.verify {
            compare(
                PlainContents {
                    len: file.size,
                    read: &mut read,
                },
                &packed,
                out.clone(),
                progress,
            )?;
        }
        drop(plain); // which keeps it open
        if let Some(folder) = &options.backup
            && !self.backed_up
        {
            back_up(fs, self.path, folder, progress)?;
            self.backed_up = true;
        }
        fs.store(
            file.id,
            &Stored::Packed {
                attribute: &packed.attribute,
                contents,
            },
        )?;
        Ok(Some(packed))
    }
}

/// Refuses a packed form that does not decode to the original contents.
pub(super) fn compare(
    plain: PlainContents<'_>,
    packed: &PackedFile,
    fork: Arc<dyn BlockDevice>,
    progress: &dyn Progress,
) -> Result<()> {
    let PlainContents { len, read } = plain;
    let decoded = decmpfs::contents(&packed.attribute, || Ok(fork))?;
    let mut expected = vec![0; to_usize(PIECE.min(len))];
    for at in (0..len).step_by(to_usize(PIECE)) {
        progress.check()?;
        let now = to_usize(PIECE.min(len - at));
        read(at, &mut expected[..now])?;
        if expected[..now] != decoded.read_vec(at, now)? {
            let message = "the compressed contents do not match; the file was not changed";
            return Err(Error::corrupt(LAYER, at, message));
        }
    }
    Ok(())
}

/// Copies a file, with all its metadata, to its path below `folder`.
fn back_up(
    fs: &dyn FileSystemMut,
    path: &str,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let fs: &dyn FileSystem = fs;
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    let folder = folder.join(above.trim_start_matches('/'));
    std::fs::create_dir_all(&folder)
        .map_err(|error| Error::io(LAYER, "create the folder", error).in_file(&folder))?;
    let done = to_folder(
        fs,
        path,
        &folder,
        &FolderOptions {
            setuid: true,
            ..FolderOptions::default()
        },
        &NestedProgress(progress),
    )?;
    match done.problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

fn decompress_one(
    fs: &dyn FileSystemMut,
    path: String,
    file: &Attributes,
    progress: &dyn Progress,
) -> Result<FileReport> {
    let value = attribute(fs, file.id)?.unwrap_or_default();
    let (attribute, before) = (value.len() as u64, file.allocated);
    if file.flags & UF_COMPRESSED == 0 || attribute == 0 {
        progress.advance(file.size);
        return Ok(FileReport {
            path,
            number: None,
            size: file.size,
            before,
            after: before,
            left: Some(SkipReason::Plain),
        });
    }
    // macOS shows such a file as empty: the stored contents would be lost.
    if Compression::parse(&value).is_none() {
        let message = "the compression attribute is malformed; the file was not changed";
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    unpack(fs, file, progress)?;
    let after = fs.attributes(file.id)?.allocated;
    Ok(FileReport {
        path,
        number: None,
        size: file.size,
        before: before + attribute,
        after,
        left: None,
    })
}

/// Stores the compressed contents of one file uncompressed, which is required before a write to it.
/// [`Kind::Conflict`] if the file is open or not compressed.
pub fn decompress_file(
    volume: &RewritableVolume,
    node: NodeId,
    progress: &dyn Progress,
) -> Result<()> {
    unpack(&**volume, &volume.attributes(node)?, progress)
}

fn unpack(fs: &dyn FileSystemMut, file: &Attributes, progress: &dyn Progress) -> Result<()> {
    let (_nameless, contents) = UnlinkedFile::new(fs, &NewNode::new(NewKind::File))?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let packed = fs.open(file.id, Fork::Data)?;
    let mut writer = NewFileWriter::new(&*out, file.size, fs.volume().holes)?;
    for at in (0..file.size).step_by(to_usize(PIECE)) {
        progress.check()?;
        let now = PIECE.min(file.size - at);
        writer.bytes(&packed.read_vec(at, to_usize(now))?)?;
        progress.advance(now);
    }
    writer.finish()?;
    drop(packed); // which keeps it open
    fs.store(file.id, &Stored::Plain { contents })
}
