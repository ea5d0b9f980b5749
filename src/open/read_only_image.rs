//! Images that are only read: files with two forks, and containers of classic Mac OS and of other
//! programs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::container::detect_container;
use super::opening::Opening;
use super::{LAYER, Layer, remote};
use crate::container::dart::{self, Dart, DartSums};
use crate::container::disk_copy::DiskCopy;
use crate::container::ewf::{self, Ewf, EwfPart};
use crate::container::mapped::MappedDisk;
use crate::container::ndif::{self, Ndif};
use crate::container::qcow2::Qcow2;
use crate::container::udif::{self, Resource};
use crate::container::vhd::Vhd;
use crate::container::vhdx::Vhdx;
use crate::container::vmdk::{self, Vmdk, VmdkPart};
use crate::container::{Format, fork_file};
use crate::device::{Access, BlockDevice, BlockDeviceExt, Slice};
use crate::size::{narrow, to_usize};
use crate::store::{LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

/// Largest number of files of a set: .E01 to .ZZZ.
const MAX_PARTS: usize = 14_971;
/// Longest resource fork that is read, in bytes: no fork of classic Mac OS is longer.
const MAX_FORK: u64 = 16 << 20;

/// The contents of a file, without a wrapper around its two forks.
#[derive(Debug)]
pub(super) struct ForkedFile {
    /// The data fork, or the file itself.
    pub(super) data: Arc<dyn BlockDevice>,
    /// The resource fork in the same file.
    resource: Option<Vec<u8>>,
}

impl Opening<'_> {
    /// Returns the forks in a MacBinary or AppleSingle file; other files are data forks.
    pub(super) fn forks(&self, file: Arc<dyn BlockDevice>) -> Result<ForkedFile> {
        let found = match self.options.image_format {
            Some(format) if format.can_create() => None,
            _ => fork_file::find(&*file)?,
        };
        let Some((places, data)) = found.and_then(|found| Some((found.clone(), found.data?)))
        else {
            return Ok(ForkedFile {
                data: file,
                resource: None,
            });
        };
        if self.options.access == Access::ReadWrite {
            let message = format!(
                "{} files can only be read; convert the image to change it",
                places.format
            );
            return Err(Error::new(Kind::ReadOnly, LAYER, message));
        }
        let resource = places
            .resource
            .map(|fork| read_fork(&*file, fork.start, fork.end))
            .transpose()?
            .flatten();
        Ok(ForkedFile {
            data: Arc::new(Slice::new(file, data)?),
            resource,
        })
    }

    /// Returns the format of a file by its contents, and by its resource fork.
    pub(super) fn detect(&mut self, file: &ForkedFile) -> Result<Format> {
        let format = detect_container(&*file.data)?;
        let is_ndif = format == Format::Udrw && self.block_table(file)?.is_some();
        Ok(if is_ndif { Format::Ndif } else { format })
    }

    /// Opens an image that is only read. Its layer is not recorded, further files of a set are.
    pub(super) fn read_only_image(
        &mut self,
        file: &ForkedFile,
        format: Format,
    ) -> Result<MappedDisk> {
        let data = file.data.clone();
        Ok(match format {
            Format::Dc42 => MappedDisk::new(DiskCopy::open(data)?),
            Format::Dart => MappedDisk::new(Dart::open(data, self.dart_sums(file)?)?),
            Format::Ndif => match self.block_table(file)? {
                Some(table) => MappedDisk::new(Ndif::open(data, &table)?),
                None => {
                    let message = "the resource fork with the block table (`bcem` 128) was not found: \
                                   expected in a file `._` with the name of the image beside it, or \
                                   both in a MacBinary file";
                    return Err(Error::new(Kind::NotFound, "ndif", message));
                }
            },
            Format::Qcow2 => MappedDisk::new(Qcow2::open(data)?),
            Format::Vhd => MappedDisk::new(Vhd::open(data)?),
            Format::Vhdx => MappedDisk::new(Vhdx::open(data)?),
            Format::Vmdk => MappedDisk::new(self.vmdk(data)?),
            Format::Ewf => MappedDisk::new(Ewf::open(self.ewf_parts(data)?)?),
            other => {
                let message = format!("{other} is not a format that is only read");
                return Err(Error::invalid(LAYER, message));
            }
        })
    }

    /// Returns `file`, the first of a set of EWF files, and the others, beside it.
    fn ewf_parts(&mut self, file: Arc<dyn BlockDevice>) -> Result<Vec<EwfPart>> {
        const SET: &str = "ewf set";
        match ewf::probe(&*file)? {
            Some(1) | None => {}
            Some(number) => {
                let message = format!("file {number} of a set; open the first one (.E01)");
                return Err(Error::invalid(SET, message));
            }
        }
        let mut parts = vec![EwfPart {
            file,
            name: self.path.to_owned(),
        }];
        while parts.len() < MAX_PARTS
            && let Some(last) = parts.last()
            && ewf::continues(&*last.file)?
        {
            let number = narrow::<u32>(parts.len()) + 1;
            let missing = |place: String| {
                let message = format!("missing file {number} of the set: expected {place}");
                Error::new(Kind::NotFound, SET, message)
            };
            let is_far = remote::url(self.path).is_some();
            let path = ewf::part_path(self.path, number).filter(|_| !is_far);
            let path = path.ok_or_else(|| missing("beside the first".to_owned()))?;
            let found = LocalFile::open_locked(&path, Open::Read, Lock::Shared)?;
            let file = Arc::new(found.ok_or_else(|| missing(path.display().to_string()))?);
            self.layers.push(Layer::File(file.clone()));
            parts.push(EwfPart { file, name: path });
        }
        Ok(parts)
    }

    /// Opens a VMDK file; of a description also the files of the extents, beside it.
    fn vmdk(&mut self, file: Arc<dyn BlockDevice>) -> Result<Vmdk> {
        const SET: &str = "vmdk";
        if !vmdk::Description::probe(&*file)? {
            return Vmdk::open(file);
        }
        let description = vmdk::Description::read(&*file)?;
        let is_far = remote::url(self.path).is_some();
        let folder = self.path.parent().filter(|_| !is_far);
        let mut parts = Vec::new();
        for name in description.file_names() {
            let missing = || {
                let message = format!("missing extent {name:?}: expected beside the description");
                Error::new(Kind::NotFound, SET, message)
            };
            // The description allows plain names only.
            let path = folder.ok_or_else(missing)?.join(name);
            let found = LocalFile::open_locked(&path, Open::Read, Lock::Shared)?;
            let file = Arc::new(found.ok_or_else(missing)?);
            self.layers.push(Layer::File(file.clone()));
            parts.push(VmdkPart { file, path });
        }
        Vmdk::open_parts(&description, &parts)
    }

    /// Returns the block table of an NDIF image. `None`: it is no such image.
    fn block_table(&mut self, file: &ForkedFile) -> Result<Option<Vec<u8>>> {
        let (kind, id) = ndif::RESOURCE;
        Ok(self
            .resources(file)?
            .into_iter()
            .find(|resource| resource.kind == kind && resource.id == id)
            .map(|resource| resource.data))
    }

    fn dart_sums(&mut self, file: &ForkedFile) -> Result<DartSums> {
        let resources = self.resources(file)?;
        let sum = |(kind, id): (&str, &str)| {
            let found = resources
                .iter()
                .find(|resource| resource.kind == kind && resource.id == id)?;
            Some(u32::from_be_bytes(*found.data.first_chunk()?))
        };
        Ok(DartSums {
            tags: sum(dart::TAG_SUM),
            data: sum(dart::DATA_SUM),
        })
    }

    /// Returns the resources of a file: from its resource fork, or that in a file beside it. There are none,
    /// with a warning, if its own fork is damaged, or one beside it cannot be read.
    fn resources(&mut self, file: &ForkedFile) -> Result<Vec<Resource>> {
        if let Some(fork) = &file.resource {
            return Ok(udif::from_fork(fork).unwrap_or_else(|error| {
                self.warn_of_fork(&error);
                Vec::new()
            }));
        }
        if remote::url(self.path).is_some() || !self.path.is_file() {
            return Ok(Vec::new());
        }
        for place in places_of_forks(self.path) {
            match resources_at(&place) {
                Ok(resources) if resources.is_empty() => {}
                Ok(resources) => return Ok(resources),
                Err(error) => self.warn_of_fork(&error),
            }
        }
        Ok(Vec::new())
    }

    /// Warns that an image may be of another format, or without checksums, by its resource fork. A fork is
    /// read by several steps and reported once.
    fn warn_of_fork(&mut self, error: &Error) {
        let warning = format!(
            "cannot read the resource fork, which may have a block table or checksums: {error}"
        );
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// Returns the resources in the file at `path`, a resource fork or an AppleDouble file. There are none if
/// it does not exist or is damaged: it is often that of another file.
fn resources_at(path: &Path) -> Result<Vec<Resource>> {
    let beside = match LocalFile::open(path, Open::Read) {
        Ok(Some(beside)) => beside,
        Ok(None) => return Ok(Vec::new()),
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (start, end) = match fork_file::find(&beside)? {
        Some(places) if places.data.is_none() => match places.resource {
            Some(fork) => (fork.start, fork.end),
            None => return Ok(Vec::new()),
        },
        _ => (0, beside.info().len),
    };
    let fork = read_fork(&beside, start, end)?;
    let resources = fork.and_then(|fork| udif::from_fork(&fork).ok());
    Ok(resources.unwrap_or_default())
}

/// Returns true if there can be no file at a path: a folder is in its place, a file in that of its folder,
/// or its name is too long.
fn is_absent(error: &Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    let kind = error.io_kind();
    error.kind() != Kind::Io || matches!(kind, Some(InvalidFilename | NotADirectory | NotFound))
}

/// Reads a resource fork. `None` if it is too long for one.
fn read_fork(file: &dyn BlockDevice, start: u64, end: u64) -> Result<Option<Vec<u8>>> {
    match end - start {
        0 => Ok(None),
        len if len > MAX_FORK => Ok(None),
        len => file.read_vec(start, to_usize(len)).map(Some),
    }
}

/// Returns the paths at which programs keep the resource fork of the file at `path`.
fn places_of_forks(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let with = |before: &str, after: &str| {
        let mut full = std::ffi::OsString::from(before);
        full.push(name);
        full.push(after);
        full
    };
    let mut places = vec![
        // macOS on other file systems, and archives made by it.
        folder.join(with("._", "")),
        folder.join("__MACOSX").join(with("._", "")),
        // netatalk.
        folder.join(".AppleDouble").join(name),
        // Basilisk II and SheepShaver.
        folder.join(".rsrc").join(name),
        // A fork that was extracted.
        folder.join(with("", ".rsrc")),
    ];
    if cfg!(target_os = "macos") {
        places.push(path.join("..namedfork/rsrc"));
    }
    places
}
