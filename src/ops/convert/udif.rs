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
use crate::fs::hfsplus;
use crate::open::{FileDraft, Keys, NewMode, OpenOptions};
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
    let (scheme, areas) = partition::areas(disk, map.as_ref())?;
    let areas = areas.into_iter().map(|area| {
        Ok(Area {
            is_free: area.is_free(),
            kind: kind(disk, scheme, &area)?,
            range: area.range,
            name: area.name,
        })
    });
    let numbers = match scheme {
        None => TableNumbering::Whole,
        Some(Scheme::Apm) => TableNumbering::Apm,
        Some(Scheme::Gpt | Scheme::Mbr) => TableNumbering::FromZero,
    };
    Ok((numbers, areas.collect::<Result<_>>()?))
}

/// Returns the type of an area in the notation of hdiutil, which looks into areas where the map does
/// not tell HFS+ from HFSX, and into a disk without a map.
fn kind(disk: &dyn BlockDevice, scheme: Option<Scheme>, area: &partition::Area) -> Result<String> {
    let is_ambiguous = match scheme {
        None => true,
        Some(Scheme::Gpt) => area.kind == "Apple_HFS",
        Some(Scheme::Apm | Scheme::Mbr) => false,
    };
    let volume = match is_ambiguous {
        true => hfsplus::signature_at(disk, area.range.start)?,
        false => None,
    };
    Ok(match (scheme, volume) {
        (None, Some(_)) => "Apple_HFS".to_owned(),
        (Some(_), Some(hfsplus::Probed::Hfsx)) => "Apple_HFSX".to_owned(),
        _ => area.kind.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::partition::{APPLE_HFS, gpt};

    const MIB: usize = 1 << 20;

    fn kinds(disk: &Memory) -> Vec<String> {
        let (_, areas) = areas(disk).unwrap();
        areas.into_iter().map(|area| area.kind).collect()
    }

    #[test]
    fn types_are_those_of_hdiutil() {
        let disk = Memory::zeros(MIB);
        assert_eq!(kinds(&disk), ["unknown partition"]);
        for (signature, kind) in [
            (b"H+", "Apple_HFS"),
            (b"HX", "Apple_HFS"),
            (b"BD", "Apple_HFS"),
            (b"BX", "unknown partition"),
        ] {
            disk.write_at(1024, signature).unwrap();
            assert_eq!(kinds(&disk), [kind]);
        }
        assert_eq!(kinds(&Memory::zeros(1025)), ["unknown partition"]);

        let disk = Memory::zeros(4 * MIB);
        gpt::create_single(&disk, 512, APPLE_HFS, gpt::Guids::derived("x")).unwrap();
        let (_, found) = areas(&disk).unwrap();
        let at = found.iter().position(|area| area.kind == "Apple_HFS");
        let start = found[at.unwrap()].range.start;
        for (signature, kind) in [(b"HX", "Apple_HFSX"), (b"H+", "Apple_HFS")] {
            disk.write_at(start + 1024, signature).unwrap();
            assert_eq!(kinds(&disk)[at.unwrap()], kind);
        }
    }
}
