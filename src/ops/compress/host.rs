//! Compression of files on the host, on macOS, whose kernel decompresses them on reading. Not yet
//! run on a Mac.
//!
//! A copy of the file, with all its metadata, is made beside it and stored in the new form. The two
//! are exchanged only if the copy reads the same, and the old file is removed only if it was not
//! written to until then. After any failure of the system the file exists in one form or the other.
//! A program that has the file open and writes to it later writes to the old one; this cannot be
//! prevented.

use std::fs::{self, File, FileTimes};
use std::os::darwin::fs::FileTimesExt;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};

use super::choose::FileTraits;
use super::{CompressOptions, FileReport, LAYER, PIECE, SkipReason, on_cores};
use crate::decmpfs::{self, PackedFile, PlainContents, pack};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::{RESOURCE_FORK, UF_COMPRESSED};
use crate::platform::nodes::{self, HostNode};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// The flags that make a file immutable: `UF_IMMUTABLE`, `UF_APPEND`, `SF_IMMUTABLE`, `SF_APPEND`.
const LOCKED: u32 = 0x2 | 0x4 | 0x2_0000 | 0x4_0000;
/// `SF_DATALESS`: the contents are not on this host, and reading would download them.
const DATALESS: u32 = 0x4000_0000;
/// Block size of macOS volumes, in bytes.
const BLOCK: u64 = 4096;

/// Compresses the files at `paths`, recursively for folders. Files with several hard links are
/// skipped, because the copy would be a separate file.
pub fn compress_host(
    paths: &[PathBuf],
    options: &CompressOptions,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    over_files(paths, "compress", progress, each, &|path| {
        on_cores(options.jobs, || compress_one(path, options, true, progress))?
    })
}

/// Estimates the result of [`compress_host`] for these files, without changes.
pub fn estimate_host(
    paths: &[PathBuf],
    options: &CompressOptions,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    over_files(paths, "estimate", progress, each, &|path| {
        on_cores(options.jobs, || {
            compress_one(path, options, false, progress)
        })?
    })
}

/// Stores compressed files uncompressed: the reverse of [`compress_host`].
pub fn decompress_host(
    paths: &[PathBuf],
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
) -> Result<()> {
    over_files(paths, "decompress", progress, each, &|path| {
        decompress_one(path, progress)
    })
}

fn over_files(
    paths: &[PathBuf],
    stage: &str,
    progress: &dyn Progress,
    each: &mut dyn FnMut(FileReport) -> Result<()>,
    one: &dyn Fn(&Path) -> Result<FileReport>,
) -> Result<()> {
    progress.stage(stage, 0);
    let mut ahead: Vec<PathBuf> = paths.iter().rev().cloned().collect();
    while let Some(path) = ahead.pop() {
        progress.check()?;
        let meta =
            fs::symlink_metadata(&path).map_err(|error| failed("read metadata", &path, error))?;
        if meta.is_dir() {
            let listed: std::io::Result<Vec<_>> = fs::read_dir(&path)
                .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
            let mut listed = listed.map_err(|error| failed("list the folder", &path, error))?;
            listed.sort();
            ahead.extend(listed.into_iter().rev());
        } else if meta.is_file() {
            each(one(&path)?)?;
        }
    }
    Ok(())
}

fn failed(what: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::io(LAYER, what, error).in_file(path)
}

/// An open file, with its metadata at that time.
struct OriginalFile<'a> {
    path: &'a Path,
    file: File,
    node: HostNode,
    report: FileReport,
}

impl<'a> OriginalFile<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| failed("open", path, error))?;
        let node = nodes::node_of(&file).map_err(|error| failed("read metadata", path, error))?;
        let taken = allocated(&file, path)?;
        let report = FileReport {
            path: path.display().to_string(),
            number: None,
            size: node.size,
            before: taken,
            after: taken,
            left: None,
        };
        Ok(Self {
            path,
            file,
            node,
            report,
        })
    }

    /// Makes a copy beside the file, stores it in another form with `change`, and exchanges the two
    /// if the copy reads the same.
    fn replace(
        mut self,
        progress: &dyn Progress,
        change: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<FileReport> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self
            .path
            .with_file_name(format!(".{name}.bandsaw-{}", uuid::Uuid::new_v4()));
        // With all metadata, as a clone if the file system supports that.
        let done = fs::copy(self.path, &aside)
            .map_err(|error| failed("copy", &aside, error))
            .and_then(|_| {
                fs::set_permissions(&aside, PermissionsExt::from_mode(0o600))
                    .map_err(|e| failed("make accessible", &aside, e))
            })
            .and_then(|()| change(&aside))
            .and_then(|()| self.verify_copy(&aside, progress));
        match done.and_then(|after| self.exchange(&aside).map(|()| after)) {
            Ok(after) => {
                self.report.after = after;
                Ok(self.report)
            }
            Err(error) => {
                // Best effort: the caller needs the earlier error. The original file itself is
                // never removed, wherever it is.
                if nodes::node_at(CWD, &c_path(&aside)?)
                    .is_ok_and(|node| node.identity != self.node.identity)
                {
                    let _ = fs::remove_file(&aside);
                }
                Err(error)
            }
        }
    }

    fn conflict(&self, message: &'static str) -> Error {
        Error::conflict(LAYER, message).in_file(self.path)
    }

    /// Compares the copy, gives it the file's mode and dates, and makes it durable. Returns the
    /// bytes that it takes.
    fn verify_copy(&self, aside: &Path, progress: &dyn Progress) -> Result<u64> {
        let copy = File::open(aside).map_err(|error| failed("open", aside, error))?;
        let (mut expected, mut found) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
        let copied =
            nodes::node_of(&copy).map_err(|error| failed("read metadata", aside, error))?;
        if copied.size != self.node.size {
            return Err(
                self.conflict("the compressed copy has another length; the file was not changed")
            );
        }
        for at in (0..self.node.size).step_by(PIECE as usize) {
            progress.check()?;
            let now = to_usize(PIECE.min(self.node.size - at));
            self.file
                .read_exact_at(&mut expected[..now], at)
                .map_err(|error| failed("read", self.path, error))?;
            copy.read_exact_at(&mut found[..now], at)
                .map_err(|error| failed("read", aside, error))?;
            if expected[..now] != found[..now] {
                return Err(self
                    .conflict("the compressed copy has other contents; the file was not changed"));
            }
            progress.advance(now as u64);
        }
        if self.attributes(&self.file)? != self.attributes(&copy)? {
            return Err(
                self.conflict("its attributes could not be copied; the file was not changed")
            );
        }
        let meta = self
            .file
            .metadata()
            .map_err(|error| failed("read metadata", self.path, error))?;
        let times = || {
            let times = FileTimes::new()
                .set_accessed(meta.accessed()?)
                .set_modified(meta.modified()?);
            copy.set_permissions(meta.permissions())?;
            copy.set_times(times.set_created(meta.created()?))?;
            copy.sync_all()
        };
        times().map_err(|error| failed("set mode and dates", aside, error))?;
        let copied =
            nodes::node_of(&copy).map_err(|error| failed("read metadata", aside, error))?;
        let of = |node: &HostNode| (node.uid, node.gid, node.mode, node.flags & !UF_COMPRESSED);
        if of(&copied) != of(&self.node) {
            return Err(self.conflict(
                "its owner, mode or flags could not be copied; the file was not changed",
            ));
        }
        allocated(&copy, self.path)
    }

    /// Returns the extended attributes, except those of compression.
    fn attributes(&self, of: &File) -> Result<Vec<(String, Vec<u8>)>> {
        let mut all = nodes::xattrs(of.as_fd())
            .map_err(|error| failed("read the attributes", self.path, error))?;
        all.retain(|(name, _)| name != RESOURCE_FORK && name != decmpfs::ATTRIBUTE);
        Ok(all)
    }

    /// Exchanges the two files and removes the old one. If that was changed meanwhile, the exchange
    /// is reverted.
    fn exchange(&self, aside: &Path) -> Result<()> {
        let exchange =
            || rustix::fs::renameat_with(CWD, aside, CWD, self.path, RenameFlags::EXCHANGE);
        exchange().map_err(|errno| failed("rename the copy", self.path, errno.into()))?;
        let now = nodes::node_at(CWD, &c_path(aside)?)
            .map_err(|error| failed("read metadata", aside, error));
        let is_same = |now: &HostNode| {
            (now.identity, now.size, now.modified)
                == (self.node.identity, self.node.size, self.node.modified)
        };
        match now {
            Ok(now) if is_same(&now) => {
                // The new file is in place from here on; an error names the path of the old one.
                fs::remove_file(aside)
                    .map_err(|error| failed("remove the previous copy", aside, error))
            }
            _ => {
                exchange().map_err(|errno| {
                    failed(
                        "restore the file, changed meanwhile and kept here,",
                        aside,
                        errno.into(),
                    )
                })?;
                Err(self.conflict("changed meanwhile; skipped"))
            }
        }
    }
}

fn c_path(path: &Path) -> Result<std::ffi::CString> {
    nodes::c_name(path.as_os_str().as_encoded_bytes())
        .map_err(|error| failed("name the temporary file", path, error))
}

fn allocated(file: &File, path: &Path) -> Result<u64> {
    file.metadata()
        .map(|meta| meta.blocks() * 512)
        .map_err(|error| failed("read metadata", path, error))
}

fn compress_one(
    path: &Path,
    options: &CompressOptions,
    switch: bool,
    progress: &dyn Progress,
) -> Result<FileReport> {
    let mut original = OriginalFile::open(path)?;
    if let Some(left) = why_left(&original, options)? {
        original.report.left = Some(left);
        return Ok(original.report);
    }
    // The fork is written to an unlinked file first, so that a result that is not worth keeping
    // never affects the file.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let fork = nodes::unlinked_file(folder)
        .map_err(|error| failed("create a temporary file", folder, error))?;
    let bounds = options.bounds(original.node.size, original.report.before, BLOCK);
    let mut read = |at: u64, buf: &mut [u8]| {
        original
            .file
            .read_exact_at(buf, at)
            .map_err(|error| failed("read", path, error))
    };
    let mut write = |at: u64, bytes: &[u8]| {
        fork.write_all_at(bytes, at)
            .map_err(|error| failed("write", folder, error))
    };
    let source = PlainContents {
        len: original.node.size,
        read: &mut read,
    };
    let Some(packed) = pack(source, options.packing, bounds, progress, &mut write)? else {
        original.report.left = Some(SkipReason::NoGain);
        return Ok(original.report);
    };
    original.report.number = packed.number();
    if !switch {
        original.report.after =
            packed.fork_len.next_multiple_of(BLOCK) + packed.attribute.len() as u64;
        return Ok(original.report);
    }
    if let Some(folder) = &options.backup {
        back_up(path, folder)?;
    }
    original.replace(progress, |aside| store(aside, &packed, &fork))
}

/// Copies a file to its path below `folder`.
fn back_up(path: &Path, folder: &Path) -> Result<()> {
    let below = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)));
    let kept = folder.join(below.collect::<PathBuf>());
    let above = kept.parent().unwrap_or(folder);
    fs::create_dir_all(above).map_err(|error| failed("create the folder", above, error))?;
    if kept.symlink_metadata().is_ok() {
        return Err(
            Error::conflict(LAYER, "the name of the backup copy already exists").in_file(kept),
        );
    }
    fs::copy(path, &kept)
        .map(drop)
        .map_err(|error| failed("create the backup copy", &kept, error))
}

fn why_left(original: &OriginalFile<'_>, options: &CompressOptions) -> Result<Option<SkipReason>> {
    let OriginalFile {
        path, file, node, ..
    } = original;
    let name = format!(
        "/{}",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    if node.flags & DATALESS != 0 {
        return Ok(Some(SkipReason::Dataless));
    }
    let (compressed, locked) = (node.flags & UF_COMPRESSED != 0, node.flags & LOCKED != 0);
    let left = options.leaves(&FileTraits {
        path: &name,
        size: node.size,
        compressed,
        locked,
    });
    if left.is_some() || node.links > 1 {
        return Ok(left.or(Some(SkipReason::Linked)));
    }
    let xattrs =
        nodes::xattrs(file.as_fd()).map_err(|error| failed("read the attributes", path, error))?;
    let in_the_way =
        |(name, _): &(String, Vec<u8>)| name == RESOURCE_FORK || name == decmpfs::ATTRIBUTE;
    Ok(xattrs
        .iter()
        .any(in_the_way)
        .then_some(SkipReason::ResourceFork))
}

/// Stores `packed` as the compressed contents of the file at `path`: writes the fork, sets the
/// attribute, truncates the data, then sets the flag.
fn store(path: &Path, packed: &PackedFile, fork: &File) -> Result<()> {
    if packed.fork_len > 0 {
        let place = path.join("..namedfork/rsrc");
        let to = File::options()
            .write(true)
            .open(&place)
            .map_err(|error| failed("open the resource fork", &place, error))?;
        let mut piece = vec![0; PIECE as usize];
        for at in (0..packed.fork_len).step_by(PIECE as usize) {
            let now = to_usize(PIECE.min(packed.fork_len - at));
            let copied = fork
                .read_exact_at(&mut piece[..now], at)
                .and_then(|()| to.write_all_at(&piece[..now], at));
            copied.map_err(|error| failed("write the resource fork", &place, error))?;
        }
        to.sync_all()
            .map_err(|error| failed("sync the resource fork", &place, error))?;
    }
    let file = File::options()
        .write(true)
        .open(path)
        .map_err(|error| failed("open", path, error))?;
    let set = nodes::set_xattr(file.as_fd(), decmpfs::ATTRIBUTE, &packed.attribute);
    set.map_err(|error| failed("set the attribute", path, error))?;
    file.set_len(0)
        .map_err(|error| failed("truncate", path, error))?;
    drop(file);
    // With the command, because the system call has no safe binding.
    let status = Command::new("/usr/bin/chflags")
        .args(["--", "compressed"])
        .arg(path)
        .status();
    match status.map_err(|error| failed("run chflags", path, error))? {
        status if status.success() => Ok(()),
        _ => Err(
            Error::unsupported(LAYER, "the file system does not support compressed files")
                .in_file(path),
        ),
    }
}

fn decompress_one(path: &Path, progress: &dyn Progress) -> Result<FileReport> {
    let mut original = OriginalFile::open(path)?;
    let HostNode {
        flags, size, links, ..
    } = original.node;
    let left = match () {
        () if flags & DATALESS != 0 => Some(SkipReason::Dataless),
        () if flags & UF_COMPRESSED == 0 => Some(SkipReason::Plain),
        () if links > 1 => Some(SkipReason::Linked),
        () if flags & LOCKED != 0 => Some(SkipReason::Locked),
        () => None,
    };
    if left.is_some() {
        original.report.left = left;
        return Ok(original.report);
    }
    check_sizes(path, size, progress)?;
    if size == 0 {
        original.report.left = Some(SkipReason::Plain);
        return Ok(original.report);
    }
    original.replace(progress, |aside| {
        // The kernel decompresses a file before the first write to it. The byte written is the one
        // already there.
        let open = File::options().read(true).write(true).open(aside);
        let mut first = [0];
        let touched = open.and_then(|file| {
            file.read_exact_at(&mut first, 0)
                .and_then(|()| file.write_all_at(&first, 0))
        });
        touched.map_err(|error| failed("decompress", aside, error))
    })
}

/// Refuses a file whose payload is longer or shorter than the size in its attribute. The kernel
/// trusts that size, and the decompressed file would be empty or truncated.
fn check_sizes(path: &Path, size: u64, progress: &dyn Progress) -> Result<()> {
    let stored = |name: &str| shown_attribute(path, name);
    // If `xattr` of this system does not show the attribute, there is nothing to compare.
    let Some(attribute) = stored(decmpfs::ATTRIBUTE)? else {
        return Ok(());
    };
    let fork = || {
        Ok(Arc::new(Memory::read_only(
            stored(RESOURCE_FORK)?.unwrap_or_default(),
        )) as Arc<dyn BlockDevice>)
    };
    let contents = decmpfs::contents(&attribute, fork).map_err(|error| error.in_file(path))?;
    if contents.info().len != size {
        let message = format!(
            "size mismatch: {size} bytes by the system, {} by the attribute; the file was not \
             changed",
            contents.info().len
        );
        return Err(Error::new(Kind::Corrupt, LAYER, message).in_file(path));
    }
    for at in (0..size).step_by(PIECE as usize) {
        progress.check()?;
        contents
            .read_vec(at, to_usize(PIECE.min(size - at)))
            .map_err(|error| error.in_file(path))?;
    }
    Ok(())
}

/// Returns an attribute as stored, even one of compression that the kernel hides. Uses the command,
/// because the option of the system call that shows these has no safe binding. `None`: the command
/// shows no attribute of that name.
fn shown_attribute(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    // In hexadecimal, because text output ends at a line break.
    let mut command = Command::new("/usr/bin/xattr");
    command.args(["-p", "-x", name]).arg(path);
    let output = command
        .output()
        .map_err(|error| failed("run xattr", path, error))?;
    if !output.status.success() {
        return Ok(None);
    }
    let digits: Vec<u8> = output
        .stdout
        .into_iter()
        .filter(u8::is_ascii_hexdigit)
        .collect();
    let byte = |pair: &[u8]| {
        std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    Ok(digits.chunks_exact(2).map(byte).collect())
}
