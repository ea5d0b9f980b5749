//! `bandsaw du`: the space that images take, inside and outside, and that of host files and
//! folders.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::address::{Address, ImagePath};
use bandsaw::container::Format;
use bandsaw::device::Access;
use bandsaw::fs::FileKind;
use bandsaw::ops::compress::{FileUsage, FolderUsage};
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::ops::usage::{HostUsage, ImageUsage, VolumeUsage};
use bandsaw::{Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::band_usage::BandsJson;
use crate::failure::{Failures, Outcome};
use crate::info_writer::{InfoWriter, exact, held};
use crate::output::{Output, Style};
use crate::progress::Bar;
use crate::source::{self, ImageLocation, OpenArgs};
use crate::text::{counted, counted_files};

/// Show the space that images use and could free
///
/// For an image: the size of its disk, the storage of its files, the fill level of its bands, the
/// used, pending and free space of its volumes, and the space that `bandsaw compact` would free.
/// Pending space is space that an APFS container has freed but still holds for older checkpoints;
/// from 1 MiB on, `compact`, `trim` and attaching the image release it first, so it counts as space
/// that would be freed. On a host without holes in files (such as FAT, exFAT and most file servers)
/// the space that could not be freed is shown separately. Other files and folders are measured as
/// such. Nothing is changed, and of an image only maps are read. Of a file or folder in a volume
/// (IMAGE:/PATH) the length of the contents is shown, and what is stored of them, which is less for
/// compressed files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw du Docs.sparsebundle               sizes, and space that could be freed
  bandsaw du *.sparsebundle ~/Pictures       several items with a total
  bandsaw du Docs.sparsebundle:/Letters      a folder in a volume
  bandsaw du --bands Docs.sparsebundle       list every band
  bandsaw du --json Docs.sparsebundle        for programs")]
pub(crate) struct Du {
    /// Images, paths in them, or files and folders of the host
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true)]
    images: Vec<OsString>,
    /// List every allocated band or chunk
    #[arg(long)]
    bands: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct UsageReport {
    items: Vec<Item>,
    /// The storage of all files, in bytes.
    allocated: u64,
}

#[derive(Serialize)]
struct Item {
    path: String,
    #[serde(flatten)]
    host: Option<HostJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageJson>,
    /// A file or folder in a volume, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<InsideJson>,
    /// The reason why a file that looks like an image was only measured from outside, or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
}

/// Files in a volume. Sizes are in bytes.
#[derive(Serialize)]
struct InsideJson {
    volume_path: String,
    files: u64,
    compressed_files: u64,
    folders: u64,
    /// The length of all contents, and what is stored of them.
    size: u64,
    stored: u64,
    /// Storage on the volume.
    allocated: u64,
}

#[derive(Serialize)]
struct HostJson {
    files: u64,
    folders: u64,
    /// The length of the files, in bytes.
    size: u64,
    allocated: u64,
    /// Files with less storage than their length.
    sparse_files: u64,
}

#[derive(Serialize)]
struct ImageJson {
    format: &'static str,
    /// The size of the disk, in bytes.
    size: u64,
    sparse: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<BandsJson>,
    volumes: Vec<VolumeJson>,
    /// Bytes that compaction would free.
    reclaimable: u64,
}

#[derive(Serialize)]
struct VolumeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    file_system: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// Bytes held by older checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u64>,
    /// The reason why free space cannot be freed on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<ErrorInfo>,
    #[serde(skip)]
    place: String,
}

impl Du {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let mut items = Vec::with_capacity(self.images.len());
        let bar = Bar::new(output);
        let mut failures = Failures::default();
        for image in &self.images {
            let address = source::address(image)?;
            let path = &address.image;
            let measured = match address.path.is_some() {
                true => self.inside(&address, output, &bar),
                false => self.item(&source::image(image)?, &bar),
            };
            let (item, error) = failures.split(measured)?;
            items.push(item.unwrap_or(Item {
                path: path.to_string(),
                host: None,
                image: None,
                inside: None,
                error,
            }));
        }
        drop(bar);
        let measured = items.iter().filter_map(|item| item.host.as_ref());
        let report = UsageReport {
            allocated: measured.map(|host| host.allocated).sum(),
            items,
        };
        output.result(&report, |out| report.write(output, out))?;
        failures.end(output)
    }

    fn item(&self, path: &ImagePath, bar: &Bar) -> Outcome<Item> {
        match self.opening.open(path, Access::ReadOnly) {
            Ok(image) => {
                let usage = ImageUsage::of(&image, self.opening.given_keys(), bar)
                    .map_err(|error| error.in_file(path))?;
                let host = HostJson::new(&usage.host);
                Ok(Item {
                    path: path.to_string(),
                    host: Some(host),
                    image: Some(ImageJson::new(&usage, self.bands)),
                    inside: None,
                    error: None,
                })
            }
            // An ordinary file or folder, or an image that is locked, damaged or in use, is
            // measured from outside.
            Err(failure) if matches!(failure.kind(), Kind::NotFound | Kind::Cancelled) => {
                Err(failure)
            }
            Err(failure) => {
                let host = HostJson::new(&HostUsage::of(path.as_path(), bar)?);
                let error =
                    Some(failure.described()).filter(|_| failure.kind() != Kind::Unsupported);
                Ok(Item {
                    path: path.to_string(),
                    host: Some(host),
                    image: None,
                    inside: None,
                    error,
                })
            }
        }
    }

    fn inside(&self, address: &Address, output: &Output, bar: &Bar) -> Outcome<Item> {
        let place = ImageLocation::open(address, &self.opening, output)?;
        let of = &place.attributes;
        let usage = match of.kind {
            FileKind::Folder => FolderUsage::of(&*place.fs, &place.path, of.id, 0, bar)?,
            _ => FolderUsage::of_file(&FileUsage::of(&*place.fs, of)?),
        };
        Ok(Item {
            path: address.image.to_string(),
            host: None,
            image: None,
            inside: Some(InsideJson {
                volume_path: place.shown_path().to_owned(),
                files: usage.files,
                compressed_files: usage.compressed,
                folders: usage.folders,
                size: usage.size,
                stored: usage.stored,
                allocated: usage.allocated,
            }),
            error: None,
        })
    }
}

impl HostJson {
    fn new(usage: &HostUsage) -> Self {
        Self {
            files: usage.files,
            folders: usage.folders,
            size: usage.len,
            allocated: usage.allocated,
            sparse_files: usage.sparse,
        }
    }
}

impl ImageJson {
    fn new(usage: &ImageUsage, each: bool) -> Self {
        Self {
            format: usage.format.code(),
            size: usage.disk,
            sparse: usage.is_sparse(),
            units: usage.map.as_ref().map(|map| BandsJson::new(map, each)),
            volumes: usage.volumes.iter().map(VolumeJson::new).collect(),
            reclaimable: usage.returns(),
        }
    }
}

impl VolumeJson {
    fn new(usage: &VolumeUsage) -> Self {
        let info = usage.info.as_ref().ok();
        Self {
            partition: usage.partition,
            place: usage.place.clone(),
            file_system: usage.format.name(),
            name: info.map(|info| info.name.clone()),
            used: usage.space.map(|space| space.used),
            pending: usage.space.map(|space| space.pending),
            free: usage.space.map(|space| space.free),
            refused: usage.refused.as_ref().map(ErrorInfo::brief),
        }
    }
}

impl UsageReport {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        for item in &self.items {
            item.write(output, out)?;
        }
        if self.items.len() > 1 {
            writeln!(
                out,
                "{}  {}",
                output.paint(Style::Bold, "total"),
                exact(self.allocated)
            )?;
        }
        Ok(())
    }
}

impl Item {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        if let Some(inside) = &self.inside {
            return inside.write(output, out);
        }
        let Some(HostJson {
            files,
            folders,
            size,
            allocated,
            sparse_files,
        }) = self.host
        else {
            return Ok(());
        };
        let mut sheet = InfoWriter::new(output, out);
        sheet.heading(&output.name(&self.path))?;
        let disk = self.image.as_ref().map(|image| image.size);
        if let Some(image) = &self.image {
            sheet.fact("format", image.format)?;
        }
        sheet.fact("size", &exact(disk.unwrap_or(size)))?;
        sheet.fact("on disk", &exact(allocated))?;
        let sparse = self
            .image
            .as_ref()
            .map_or(sparse_files > 0 && files == 1, |image| image.sparse);
        let share = disk.unwrap_or(size).max(1);
        let percent = size::percent(allocated, share);
        sheet.fact(
            "sparse",
            &if sparse {
                format!("yes, {percent} of the size is allocated")
            } else {
                "no".to_owned()
            },
        )?;
        if folders > 0 {
            sheet.fact(
                "files",
                &format!(
                    "{}, {}",
                    counted(files, "file", "files"),
                    counted(folders, "folder", "folders")
                ),
            )?;
        }
        if let Some(error) = &self.error {
            sheet.fact(
                "inside",
                &format!("not measured: {}", output.text(&error.message)),
            )?;
        }
        match &self.image {
            Some(image) => image.write(output, &mut sheet),
            None => Ok(()),
        }
    }
}

impl InsideJson {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut sheet = InfoWriter::new(output, out);
        sheet.heading(&output.name(&self.volume_path))?;
        sheet.fact("size", &exact(self.size))?;
        sheet.fact("stored", &exact(self.stored))?;
        sheet.fact("on volume", &exact(self.allocated))?;
        let files = counted_files(self.files, self.compressed_files, self.folders);
        sheet.fact("files", &files)
    }
}

impl ImageJson {
    fn write(&self, output: &Output, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        if let Some(bands) = &self.units {
            bands.write(sheet)?;
        }
        for volume in &self.volumes {
            let name = volume
                .name
                .as_deref()
                .map(|name| output.name(name))
                .unwrap_or_default();
            sheet.fact(
                "volume",
                &format!("{} on {}  {name}", volume.file_system, volume.place),
            )?;
            if let (Some(used), Some(free)) = (volume.used, volume.free) {
                sheet.fact("", &format!("{} used, {} free", exact(used), exact(free)))?;
            }
            if let Some(pending) = volume.pending.filter(|pending| *pending > 0) {
                sheet.fact("", &held(pending))?;
            }
            if let Some(refused) = &volume.refused {
                sheet.fact(
                    "",
                    &format!("free space is skipped: {}", output.text(&refused.message)),
                )?;
            }
        }
        let Some(bands) = &self.units else {
            // In a bundle only a band in the middle can be unknown.
            let between = self.format == Format::Udsb.code();
            let why = if between {
                "cannot be compacted: `bandsaw reband` must first resume an interrupted run"
            } else {
                "nothing: this format has no free space"
            };
            return sheet.fact("compact", why);
        };
        let (whole, parts) = (
            exact(bands.reclaimable_whole),
            exact(bands.reclaimable_parts),
        );
        match self.reclaimable {
            0 => sheet.fact("compact", "would free nothing: no unused space is stored")?,
            returns => {
                sheet.fact("compact", &format!("would free {}", exact(returns)))?;
                sheet.fact(
                    "",
                    &format!(
                        "{whole} in whole {}s, {parts} in parts of others",
                        bands.kind()
                    ),
                )?;
            }
        }
        bands.write_kept(sheet)?;
        bands.write_each(sheet)
    }
}
