//! Conversion that can be resumed after an interruption.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::copy::{CopyCounts, copy_range, is_same};
use super::{ConvertOptions, Converted, Order, Source, order};
use crate::device::BlockDevice;
use crate::open::{CreateOptions, Draft, Image, open};
use crate::progress::Progress;
use crate::store::{Local, Store};
use crate::{Error, Kind, Result, platform};

/// Bytes of the disk after which the copy is made durable: at most this much is copied again.
const STEP: u64 = 256 << 20;

/// Converts as [`convert`](super::convert()) does, but keeps an incomplete image beside `to` after
/// any interruption, from which the same call resumes. If the image at `to` is already complete,
/// nothing is done. [`Kind::Conflict`](crate::Kind::Conflict) if the incomplete image was begun
/// from another source, from one that was changed since, or with other options. The incomplete copy
/// of an encrypted image is encrypted, and [`Kind::WrongKey`](crate::Kind::WrongKey) reports that
/// its passphrase differs.
pub fn resume(
    from: &Image,
    to: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Converted> {
    options.check(from).map_err(|error| error.in_file(to))?;
    if !options.format.can_change() {
        let message = format!(
            "cannot resume {}: the format is written in one pass",
            options.format
        );
        return Err(Error::invalid("image", message).in_file(to));
    }
    if options.skip_free {
        // The free space may change before the copy is resumed.
        return Err(
            Error::invalid("image", "cannot resume a copy without free blocks").in_file(to),
        );
    }
    let create = options.create(from);
    let mut draft = match Draft::resumable(to, &create, &identity(from, &create)?) {
        Err(error) if error.kind() == Kind::Conflict && !options.overwrite => {
            let image = complete(from, to, &create, progress)?.ok_or(error)?;
            return Ok(Converted {
                image,
                copied: CopyCounts::default(),
                was_complete: true,
            });
        }
        draft => draft?,
    };
    let len = from.disk().info().len;
    progress.stage("copy", len);
    progress.advance(draft.done());
    let order = order(draft.image(), create.thin);
    let copied = Source::of(from, None).read(options.no_verify, progress, |disk| {
        copy_rest(disk, &mut draft, order, progress)
    })?;
    progress.check()?;
    progress.stage("flush", 0);
    Ok(Converted {
        image: draft.finish()?,
        copied,
        was_complete: false,
    })
}

/// Returns the image at `to`, if it has the requested format and the disk of `from`. Reads both to
/// compare them.
fn complete(
    from: &Image,
    to: &Path,
    create: &CreateOptions,
    progress: &dyn Progress,
) -> Result<Option<Image>> {
    // A file that cannot be opened is not the target of a completed conversion.
    let Ok(image) = open(to, &create.reopened()) else {
        return Ok(None);
    };
    let fits = image.encryption().is_some() == create.encryption.is_some()
        && create.band_size.is_none_or(|size| {
            image
                .bundle()
                .is_none_or(|bundle| bundle.band_size() == size)
        });
    let is_complete = fits && is_same(&**from.disk(), &**image.disk(), progress)?;
    Ok(is_complete.then_some(image))
}

/// Copies the missing part, and commits step after step.
fn copy_rest(
    disk: &dyn BlockDevice,
    draft: &mut Draft,
    order: Order,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let len = disk.info().len;
    let (mut at, mut copied, mut kept) =
        (draft.done(), CopyCounts::default(), CopyCounts::default());
    while at < len {
        let end = (at - at % STEP).saturating_add(STEP).min(len);
        copied = copied + copy_range(disk, &**draft.image().disk(), at..end, order, progress)?;
        at = end;
        // Long holes are as quick to skip the next time.
        if copied != kept {
            draft.record_progress(at)?;
            kept = copied;
        }
    }
    Ok(copied)
}

/// Returns a line that identifies the source and the options, and changes if any of them does.
fn identity(from: &Image, create: &CreateOptions) -> Result<String> {
    let CreateOptions {
        format,
        len,
        band_size,
        sector_size,
        encryption,
        ..
    } = create;
    let mut sum = Sha256::new();
    let meta = fs::metadata(from.path())
        .map_err(|source| Error::io("image", "read metadata", source).in_file(from.path()))?;
    if meta.is_dir() {
        let mut files = Vec::new();
        Local::new(from.path()).list("", &mut |entry| {
            if !matches!(entry.name, "lock" | "token") {
                let meta = entry.meta()?;
                files.push((
                    entry.name.to_owned(),
                    meta.map(|meta| (meta.len, meta.version)),
                ));
            }
            Ok(())
        })?;
        files.sort();
        files
            .iter()
            .for_each(|file| sum.update(format!("{file:?}\n")));
    } else {
        sum.update(platform::version(&meta));
    }
    for layer in from.overlays() {
        let failed = |source| Error::io("image", "read metadata", source).in_file(&layer.path);
        let meta = fs::metadata(&layer.path).map_err(failed)?;
        sum.update(format!("\n{}", platform::version(&meta)));
    }
    // The passphrase is verified on opening, and the number of iterations is chosen anew each time.
    if let Some(encryption) = encryption {
        sum.update(format!(
            "\n{} {:?}",
            encryption.key_bits, encryption.cipher_block
        ));
        encryption
            .certificates
            .iter()
            .for_each(|certificate| sum.update(certificate.id()));
    }
    let mut line = format!("{format} {len} {band_size:?} {sector_size:?} ");
    for byte in sum.finalize() {
        let _ = write!(line, "{byte:02x}");
    }
    Ok(line)
}
