//! The contents of every file of an image, for comparing two states of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::device::BlockDeviceExt;
use crate::fs::{FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use crate::open::{self, OpenOptions, StoredImage};
use crate::partition;
use crate::store::{Open, Store};
use crate::{Error, Result};

/// Length and CRC-32 of every file of an image's first readable volume, by path; of a symbolic link
/// the CRC-32 of its target.
pub type Contents = BTreeMap<String, (u64, u32)>;

/// Reads every file of the image in `store`: the file named `file`, or the sparse bundle that the
/// store contains. The error is that of the first unreadable item.
pub fn contents(
    store: Arc<dyn Store>,
    file: Option<&str>,
    options: &OpenOptions<'_>,
) -> Result<Contents> {
    let stored = match file {
        None => StoredImage::Folder(store),
        Some(name) => StoredImage::File(
            store
                .open(name, Open::Read)?
                .ok_or_else(|| Error::not_found("testing", name))?,
        ),
    };
    let disk = open::disk_of(Path::new(file.unwrap_or("bundle")), stored, options)?;
    let map = partition::probe(&*disk)?;
    let volumes = open::find_volumes(&disk, map.as_ref())?;
    let volume = volumes.iter().find(|volume| volume.format.is_supported());
    let volume = volume
        .ok_or_else(|| Error::not_found("testing", "a volume"))?
        .open()?;
    let mut contents = Contents::new();
    let mut folders = vec![(volume.root(), String::new())];
    while let Some((folder, path)) = folders.pop() {
        for entry in volume.entries(folder)? {
            let path = format!("{path}/{}", entry.name);
            let id = entry.attributes.id;
            match entry.attributes.kind {
                FileKind::Folder => folders.push((id, path)),
                FileKind::Symlink => drop(
                    contents.insert(path, (0, crc32fast::hash(volume.read_link(id)?.as_bytes()))),
                ),
                _ => drop(contents.insert(path, sum(&*volume, id)?)),
            }
        }
    }
    Ok(contents)
}

fn sum(volume: &dyn FileSystem, id: NodeId) -> Result<(u64, u32)> {
    let file = volume.open(id, Fork::Data)?;
    let len = file.info().len;
    let mut sum = crc32fast::Hasher::new();
    for at in (0..len).step_by(1 << 20) {
        sum.update(&file.read_vec(at, (len - at).min(1 << 20) as usize)?);
    }
    Ok((len, sum.finalize()))
}
