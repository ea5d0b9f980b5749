//! Conversion to an encrypted archive around an image that is written in order.

use std::path::Path;

use super::{ConvertOptions, CopyCounts, Source, stream, udif};
use crate::container::udif::Sink;
use crate::crypt::aea::{ArchiveDescription, ArchiveWriter, NewArchive};
use crate::device::BlockDevice;
use crate::open::remote::must_be_here;
use crate::open::{FileDraft, Image};
use crate::ops::pipeline::{self, DiskPiece};
use crate::progress::Progress;
use crate::{Error, Result};

const LAYER: &str = "encrypted archive";

/// Result of a conversion to an archive.
#[derive(Debug)]
pub struct ArchivedDisk {
    /// The new archive.
    pub archive: ArchiveDescription,
    /// Amount of data copied to the image in the archive.
    pub copied: CopyCounts,
}

/// Creates an archive at `to` with an image that holds the disk of `from`, durably. The image is raw, or a
/// kind of UDIF; no plain text is written to a file.
///
/// The archive is created under a temporary name beside `to` and renamed when it is complete. After an error,
/// or if `progress` cancels, it is removed, and a previous file at `to` is unchanged.
///
/// [`Kind::Unsupported`](crate::Kind::Unsupported) for other formats of the image;
/// [`Kind::Invalid`](crate::Kind::Invalid) for an image that is itself
/// encrypted, has resources or is in a bucket, and for keys that no profile has.
pub fn convert_to_archive(
    from: &Image,
    to: &Path,
    options: &ConvertOptions,
    archive: &NewArchive,
    progress: &dyn Progress,
) -> Result<ArchivedDisk> {
    made(from, to, options, archive, progress).map_err(|error| error.in_file(to))
}

fn made(
    from: &Image,
    to: &Path,
    options: &ConvertOptions,
    archive: &NewArchive,
    progress: &dyn Progress,
) -> Result<ArchivedDisk> {
    let profile = archive.profile()?;
    must_be_here(to)?;
    stream::check_format(options.format)?;
    options.check(from)?;
    if options.encryption.is_some() || !options.resources.is_empty() {
        let message = "the image in an archive is not encrypted itself, and has no resources";
        return Err(Error::invalid(LAYER, message));
    }
    let used_only = options.used_only(from, progress)?;
    let source = Source::of(from, used_only.as_ref());
    let mode = options.new_mode(Some(from));
    let mode = mode.of_secret(profile.is_encrypted());
    let draft = FileDraft::new(to, options.overwrite, mode)?;
    let file = draft.file().clone();
    let mut writer = ArchiveWriter::new(&*file, archive)?;
    let copied = match options.format.is_udif() {
        true => {
            let kind = (options.format, options.level);
            let mut sink = ArchiveSink(&mut writer);
            udif::write(source, options.no_verify, kind, &mut sink, progress)?
        }
        false => source.read(options.no_verify, progress, |disk| {
            raw(disk, &mut writer, progress)
        })?,
    };
    progress.stage("flush", 0);
    let archive = writer.finish(progress)?;
    drop(file);
    draft.persist()?;
    Ok(ArchivedDisk { archive, copied })
}

/// Writes a raw image of a disk.
fn raw(
    disk: &dyn BlockDevice,
    writer: &mut ArchiveWriter<'_>,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let len = disk.info().len;
    progress.stage("copy", len);
    let mut copied = CopyCounts {
        read: 0,
        written: len,
    };
    pipeline::in_order(disk, 0..len, progress, |piece| match piece {
        DiskPiece::Zeros(range) => writer.write_zeros(range.end - range.start),
        DiskPiece::Data(_, bytes) => {
            copied.read += bytes.len() as u64;
            writer.write(bytes)
        }
    })?;
    Ok(copied)
}

/// The contents of an archive, to which an image is appended.
struct ArchiveSink<'a, 'b>(&'a mut ArchiveWriter<'b>);

impl Sink for ArchiveSink<'_, '_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }
}
