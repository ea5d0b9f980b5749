//! `bandsaw stat`: the compression and the sizes of a file or folder.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;

use bandsaw::address::Address;
use bandsaw::decmpfs::Place as Stored;
use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{FileKind, Fork};
use bandsaw::ops::compress::{FileUsage, FolderUsage, content_type};
use bandsaw::ops::import;
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::info_writer::{InfoWriter, exact};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, ImageLocation, OpenArgs};
use crate::text::{counted, counted_files, grouped};

const LAYER: &str = "stat";
/// Number of bytes at the start of a file that identify the type of its contents.
const HEAD: u64 = 16;
/// Size of a sector in bytes: no image is shorter.
const SECTOR: u64 = 512;

/// Show how files are compressed, and what that saves
///
/// Of a file, this shows what `afsctool -v` does: its compression, the type and the size of its
/// contents, uncompressed and as they are stored, with and without the attribute that describes the
/// compression, the savings, its extended attributes and their overhead in the volume, and the
/// total. Of a folder, it shows totals and the files with the largest savings. A file with several
/// names counts once.
///
/// The address may also be a file of the host with the attributes of macOS, as extended attributes
/// or in an AppleDouble file (`._NAME`) beside it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stat Docs.sparsebundle:/Letters/a.txt    one file
  bandsaw stat Docs.sparsebundle:/                 totals, and the largest savings
  bandsaw stat --top 50 disk.img:/Applications     more of the largest savings
  bandsaw stat copied/._a.txt                      a file of the host with its attributes")]
pub(crate) struct Stat {
    /// The file or folder: IMAGE[:VOLUME]:/PATH, or a host path
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// List this many of the largest savings in a folder
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct StatReport {
    /// The image, or a file of the host.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FileJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<FolderJson>,
}

/// Sizes are in bytes.
#[derive(Serialize)]
struct FileJson {
    compressed: bool,
    /// Number of the compression type.
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<u32>,
    /// `zlib`, `LZVN` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// `attribute`, `resource_fork`, `nowhere` or `server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_in: Option<&'static str>,
    content_type: &'static str,
    size: u64,
    /// The contents as they are stored, without and with the attribute of the compression.
    stored: u64,
    stored_with_attribute: u64,
    savings_percent: f64,
    resource_fork_size: u64,
    xattrs: u64,
    xattr_size: u64,
    /// Approximate bytes of the keys of attributes, and of all of the file.
    xattr_overhead: u64,
    total: u64,
    allocated: u64,
}

#[derive(Serialize)]
struct FolderJson {
    files: u64,
    compressed_files: u64,
    folders: u64,
    size: u64,
    stored: u64,
    /// Contents of compressed files, and what is stored of them.
    compressed_size: u64,
    compressed_stored: u64,
    savings_percent: f64,
    allocated: u64,
    total: u64,
    largest_savings: Vec<Saving>,
}

#[derive(Serialize)]
struct Saving {
    volume_path: String,
    compression: u32,
    size: u64,
    stored_with_attribute: u64,
    saved: u64,
}

impl Stat {
    /// Returns the verb for this address.
    pub(super) fn of(address: OsString, opening: OpenArgs) -> Self {
        Self {
            address,
            top: 10,
            opening,
        }
    }

    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        let file = address.image.as_path().metadata();
        let is_short = file.is_ok_and(|file| file.len() < SECTOR);
        let report = match self.host(&address, true)? {
            Some(report) => report,
            None => match self.inside(&address, output) {
                // A file that is not an image, or too short for one, is one of the host.
                Err(failure) if failure.kind() == Kind::Unsupported || is_short => {
                    self.host(&address, false)?.ok_or(failure)?
                }
                inside => inside?,
            },
        };
        output.result(&report, |out| report.write(output, out))
    }

    fn inside(&self, address: &Address, output: &Output) -> Outcome<StatReport> {
        let place = ImageLocation::open(address, &self.opening, output)?;
        let (mut file, mut folder) = (None, None);
        match place.attributes.kind {
            FileKind::Folder => {
                let id = place.attributes.id;
                let bar = Bar::new(output);
                let total = FolderUsage::of(&*place.fs, &place.path, id, self.top, &bar);
                folder = Some(FolderJson::new(total?));
            }
            FileKind::File => {
                let usage = FileUsage::of(&*place.fs, &place.attributes)?;
                let contents = place.fs.open(place.attributes.id, Fork::Data)?;
                let head = contents.read_vec(0, HEAD.min(usage.size) as usize)?;
                file = Some(FileJson::new(&usage, content_type(place.name(), &head)));
            }
            _ => {
                let error = Error::invalid(LAYER, "is not a file or folder");
                return Err(error
                    .named(place.shown_path())
                    .in_file(&address.image)
                    .into());
            }
        }
        Ok(StatReport {
            path: address.image.to_string(),
            volume_path: Some(place.shown_path().to_owned()),
            file,
            folder,
        })
    }

    /// Returns the sizes of a file of the host. `None` if the address names no such file. With
    /// `only_compressed`, also `None` without attributes of compression: the file may be an image.
    fn host(&self, address: &Address, only_compressed: bool) -> Outcome<Option<StatReport>> {
        let path = address.image.as_path();
        if !address.is_bare() || !path.is_file() {
            return Ok(None);
        }
        let (of, xattrs) = import::mac_attributes(path)?;
        let failed = |source: io::Error| Error::io(LAYER, "read", source).in_file(&of);
        let metadata = of.metadata().map_err(failed)?;
        let allocated = metadata.blocks().saturating_mul(512);
        let usage = FileUsage::of_host(&xattrs, metadata.len(), allocated);
        if only_compressed && usage.compression.is_none() {
            return Ok(None);
        }
        let mut head = Vec::new();
        let file = File::open(&of).map_err(failed)?;
        file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
        let name = of.file_name().unwrap_or_default().to_string_lossy();
        Ok(Some(StatReport {
            path: of.display().to_string(),
            volume_path: None,
            file: Some(FileJson::new(&usage, content_type(&name, &head))),
            folder: None,
        }))
    }
}

impl FileJson {
    fn new(usage: &FileUsage, content_type: &'static str) -> Self {
        let method = usage
            .compression
            .and_then(|compression| compression.method());
        Self {
            compressed: usage.compression.is_some(),
            compression: usage.compression.map(|compression| compression.number),
            method: method.map(|(method, _)| method.to_string()),
            stored_in: method.map(|(_, place)| match place {
                Stored::Attribute => "attribute",
                Stored::Fork => "resource_fork",
                Stored::Nowhere => "nowhere",
                Stored::Server => "server",
            }),
            content_type,
            size: usage.size,
            stored: usage.stored,
            stored_with_attribute: usage.stored + usage.header,
            savings_percent: usage.saving_percent(),
            resource_fork_size: usage.resource_fork,
            xattrs: usage.xattrs,
            xattr_size: usage.xattr_size,
            xattr_overhead: usage.overhead(),
            total: usage.total(),
            allocated: usage.allocated,
        }
    }

    fn write(&self, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        let how = match (&self.method, self.stored_in, self.compression) {
            (Some(method), Some(place), Some(number)) => {
                let place = match place {
                    "attribute" => "in the attribute",
                    "resource_fork" => "in the resource fork",
                    "nowhere" => "all zeros, not stored",
                    _ => "on a server",
                };
                format!("yes, {method} (type {number}), {place}")
            }
            (_, _, Some(number)) => format!("yes, with the unknown type {number}"),
            _ => "no".to_owned(),
        };
        sheet.fact("compressed", &how)?;
        sheet.fact("type", self.content_type)?;
        sheet.fact("size", &format!("{} uncompressed", exact(self.size)))?;
        if self.compressed {
            sheet.fact(
                "",
                &format!("{} compressed, without the attribute", exact(self.stored)),
            )?;
            let with = exact(self.stored_with_attribute);
            sheet.fact("", &format!("{with} compressed, with the attribute"))?;
            sheet.fact("savings", &format!("{:.1} %", self.savings_percent))?;
        }
        if self.resource_fork_size > 0 {
            sheet.fact(
                "",
                &format!("{} in the resource fork", exact(self.resource_fork_size)),
            )?;
        }
        let count = counted(self.xattrs, "extended attribute", "extended attributes");
        sheet.fact(
            "attributes",
            &format!("{count} of {}", exact(self.xattr_size)),
        )?;
        let overhead = exact(self.xattr_overhead);
        sheet.fact("", &format!("about {overhead} of overhead for attributes"))?;
        sheet.fact(
            "total",
            &format!("about {} with attributes", exact(self.total)),
        )?;
        sheet.fact("on disk", &exact(self.allocated))
    }
}

impl FolderJson {
    fn new(usage: FolderUsage) -> Self {
        Self {
            files: usage.files,
            compressed_files: usage.compressed,
            folders: usage.folders,
            size: usage.size,
            stored: usage.stored,
            compressed_size: usage.compressed_size,
            compressed_stored: usage.compressed_stored,
            savings_percent: usage.saving_percent(),
            allocated: usage.allocated,
            total: usage.total,
            largest_savings: usage
                .largest
                .into_iter()
                .map(|(volume_path, file)| Saving {
                    volume_path,
                    compression: file.compression.map_or(0, |compression| compression.number),
                    size: file.size,
                    stored_with_attribute: file.stored + file.header,
                    saved: file.saved(),
                })
                .collect(),
        }
    }

    fn write(&self, output: &Output, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        let files = counted_files(self.files, self.compressed_files, self.folders);
        sheet.fact("files", &files)?;
        sheet.fact("size", &format!("{} uncompressed", exact(self.size)))?;
        sheet.fact("", &format!("{} as stored", exact(self.stored)))?;
        if self.compressed_files > 0 {
            let (size, stored) = (exact(self.compressed_size), exact(self.compressed_stored));
            let text = format!("{size} of compressed files take {stored}");
            sheet.fact("", &text)?;
            sheet.fact("savings", &format!("{:.1} %", self.savings_percent))?;
        }
        sheet.fact(
            "total",
            &format!("about {} with attributes", exact(self.total)),
        )?;
        sheet.fact("on disk", &exact(self.allocated))?;
        let mut name = "largest";
        for saving in &self.largest_savings {
            let (saved, size) = (grouped(saving.saved), grouped(saving.size));
            let path = output.name(&saving.volume_path);
            sheet.fact(name, &format!("{saved} of {size} bytes saved  {path}"))?;
            name = "";
        }
        Ok(())
    }
}

impl StatReport {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut sheet = InfoWriter::new(output, out);
        let path = self.volume_path.as_ref().unwrap_or(&self.path);
        sheet.heading(&output.name(path))?;
        if let Some(file) = &self.file {
            file.write(&mut sheet)?;
        }
        match &self.folder {
            Some(folder) => folder.write(output, &mut sheet),
            None => Ok(()),
        }
    }
}
