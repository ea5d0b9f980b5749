//! Conversion to UDIF: the disk is divided into areas by its partition map, compressed, and written
//! sequentially.

use std::path::Path;
use std::sync::Arc;

use super::{ConvertOptions, Converted, CopyCounts, Source};
use crate::codec::Level;
use crate::container::Format;
use crate::container::udif::{
    self, Area, DeviceSink, EncodeOptions, EncodedImage, Sink, TableNumbering,
};
use crate::crypt;
use crate::device::BlockDevice;
use crate::open::{FileDraft, Keys, NewMode, OpenOptions};
use crate::ops::disk_areas::disk_areas;
use crate::ops::resources::add;
use crate::partition::{self, Scheme};
use crate::progress::Progress;
use crate::{Kind, Result};

/// Creates an image at `to` that holds the disk of `from`, durably.
pub(in crate::ops) fn pack(
    from: Source<'_>,
    to: &Path,
    options: &ConvertOptions,
    mode: NewMode,
    progress: &dyn Progress,
) -> Result<Converted> {
    let ConvertOptions {
        format,
        level,
        overwrite,
        encryption,
        ..
    } = options;
    EncodeOptions {
        format: *format,
        level: *level,
    }
    .check()?;
    let draft = FileDraft::new(to, *overwrite, mode)?;
    let copied = {
        let file: Arc<dyn BlockDevice> = draft.file().clone();
        fill(&file, from, options, progress)?
    };
    let keys = encryption
        .as_ref()
        .map(|encryption| &encryption.passphrase as &dyn Keys);
    let opened = OpenOptions {
        image_format: Some(*format),
        keys,
        ..OpenOptions::default()
    };
    Ok(Converted {
        image: draft.finish(&opened)?,
        copied,
        was_complete: false,
    })
}

/// Writes an image that holds the disk of `from` to `file`, which is empty, with the encryption and
/// resources of `options`. Durable on return.
pub(super) fn fill(
    file: &Arc<dyn BlockDevice>,
    from: Source<'_>,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let Some(encryption) = &options.encryption else {
        return fill_plain(&**file, from, options, progress);
    };
    // At most the length of the disk, and of the list of its chunks.
    let len = from.disk().info().len;
    let protection = encryption.protection(len.saturating_add(len / 1024 + (64 << 20)))?;
    let target = crypt::Device::create(file.clone(), &protection)?;
    fill_plain(&target, from, options, progress)
}

fn fill_plain(
    target: &dyn BlockDevice,
    from: Source<'_>,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let mut out = DeviceSink::new(target);
    let kind = (options.format, options.level);
    let copied = write(from, options.no_verify, kind, &mut out, progress)?;
    out.finish()?;
    progress.check()?;
    if !options.resources.is_empty() {
        let (mut resources, _) = udif::read_list(target)?;
        add(&mut resources, options.resources.clone(), false)?;
        udif::write_list(target, &resources)?;
    }
    progress.stage("flush", 0);
    target.flush()?;
    Ok(copied)
}

/// Writes an image that holds the disk of `from` to `sink`.
pub(super) fn write(
    from: Source<'_>,
    no_verify: bool,
    (format, level): (Format, Option<Level>),
    sink: &mut dyn Sink,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let (numbers, areas) = areas(from.disk())?;
    from.read(no_verify, progress, |disk| {
        let options = EncodeOptions { format, level };
        let EncodedImage { read, written } =
            udif::encode(disk, (numbers, &areas), &options, sink, progress)?;
        Ok(CopyCounts { read, written })
    })
}

/// Returns the areas that get tables of their own. A disk with an unusable partition map is one
/// area.
fn areas(disk: &dyn BlockDevice) -> Result<(TableNumbering, Vec<Area>)> {
    let map = match partition::probe(disk) {
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Limit) => None,
        map => map?,
    };
    let (scheme, areas) = disk_areas(disk, map.as_ref())?;
    let areas = areas.into_iter().map(|area| {
        let is_free = area.is_free();
        Area {
            range: area.range,
            name: area.name,
            kind: area.kind,
            is_free,
        }
    });
    let numbers = match scheme {
        None => TableNumbering::Whole,
        Some(Scheme::Apm) => TableNumbering::Apm,
        Some(Scheme::Gpt | Scheme::Mbr) => TableNumbering::FromZero,
    };
    Ok((numbers, areas.collect()))
}
