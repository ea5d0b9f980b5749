//! Disks of virtual machines and of forensic programs, which are only read.

use std::sync::Arc;

use super::opening::Opening;
use super::{LAYER, Layer, remote};
use crate::container::Format;
use crate::container::ewf::{self, Ewf, EwfPart};
use crate::container::mapped::MappedDisk;
use crate::container::qcow2::Qcow2;
use crate::container::vhd::Vhd;
use crate::container::vhdx::Vhdx;
use crate::container::vmdk::{self, Vmdk, VmdkPart};
use crate::device::BlockDevice;
use crate::size::narrow;
use crate::store::{LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

/// Largest number of files of a set: .E01 to .ZZZ.
const MAX_PARTS: usize = 14_971;

impl Opening<'_> {
    /// Opens the disk of a virtual machine or of a forensic program.
    pub(super) fn virtual_disk(
        &mut self,
        data: Arc<dyn BlockDevice>,
        format: Format,
    ) -> Result<MappedDisk> {
        Ok(match format {
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
}
