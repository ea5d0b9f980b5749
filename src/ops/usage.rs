//! Space usage of files, and of images inside and out: lengths, storage, used space, and space that
//! compaction would free. `bandsaw du`.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::space::{FreeSpace, FreeVolume, SpaceMap, UnconfirmedVolumes};
use crate::container::Format;
use crate::error::shown;
use crate::fs::VolumeInfo;
use crate::open::{Image, Keys, Layer, VolumeFormat, remote, snapshot};
use crate::platform::{self, FileId};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "folder";
/// Bytes by which the storage of a file may be less than its length without the file being counted
/// as sparse: short files can be stored in the inode.
const INLINE: u64 = 4096;

/// Space usage of files of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostUsage {
    /// Number of files, counting hard-linked ones once.
    pub files: u64,
    /// Number of folders.
    pub folders: u64,
    /// Total length of the files, in bytes.
    pub len: u64,
    /// Bytes of storage of files and folders.
    pub allocated: u64,
    /// Number of files with less storage than bytes.
    pub sparse: u64,
}

impl HostUsage {
    /// Measures the file at `path`, or everything below the folder there. Symbolic links are not
    /// followed, except for `path` itself.
    pub fn of(path: &Path, progress: &dyn Progress) -> Result<Self> {
        let mut usage = Self::default();
        let meta = fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Kind::NotFound, LAYER, "does not exist").in_file(path)
            }
            _ => Error::io(LAYER, "read metadata", source).in_file(path),
        })?;
        progress.stage("measure", 0);
        let (mut seen, mut folders) = (HashSet::new(), Vec::new());
        usage.add(path.to_owned(), &meta, &mut seen, &mut folders);
        while let Some(folder) = folders.pop() {
            let within = |found: &Path| shown(found.strip_prefix(path).unwrap_or(found));
            let failed =
                |source| Error::io(LAYER, "list", source).in_folder(path, &within(&folder));
            for entry in fs::read_dir(&folder).map_err(failed)? {
                progress.check()?;
                progress.advance(1);
                let entry = entry.map_err(failed)?;
                match entry.metadata() {
                    Ok(meta) => usage.add(entry.path(), &meta, &mut seen, &mut folders),
                    Err(source) if source.kind() == std::io::ErrorKind::NotFound => {} // it has gone meanwhile
                    Err(source) => {
                        let error = Error::io(LAYER, "read metadata", source);
                        return Err(error.in_folder(path, &within(&entry.path())));
                    }
                }
            }
        }
        Ok(usage)
    }

    fn add(
        &mut self,
        path: PathBuf,
        meta: &Metadata,
        seen: &mut HashSet<FileId>,
        folders: &mut Vec<PathBuf>,
    ) {
        let allocated = platform::allocated(meta);
        if meta.is_dir() {
            self.folders += 1;
            self.allocated += allocated;
            folders.push(path);
        } else if platform::shared_id(meta).is_none_or(|id| seen.insert(id)) {
            self.files += 1;
            self.len += meta.len();
            self.allocated += allocated;
            self.sparse += u64::from(allocated.saturating_add(INLINE) <= meta.len());
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            folders: self.folders + other.folders,
            len: self.len + other.len,
            allocated: self.allocated + other.allocated,
            sparse: self.sparse + other.sparse,
        }
    }
}

/// Bytes of a volume by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Bytes used by files, and by the volume itself.
    pub used: u64,
    /// Bytes that were freed but are held for older checkpoints. A trim makes them free first.
    pub pending: u64,
    /// Free bytes.
    pub free: u64,
}

impl VolumeSpace {
    fn new(total: u64, free: u64, pending: u64) -> Self {
        Self {
            used: total.saturating_sub(free).saturating_sub(pending),
            pending,
            free,
        }
    }
}

/// A volume with its usage.
#[derive(Debug)]
pub struct VolumeUsage {
    /// Number of its partition; `None` if it is the whole disk.
    pub partition: Option<u32>,
    /// Location: `partition 1`.
    pub place: String,
    /// Format of the volume.
    pub format: VolumeFormat,
    /// Properties of the volume, or the error that prevents reading them.
    pub info: Result<VolumeInfo>,
    /// Bytes of the volume by use, according to the volume itself or to its free map. `None` if
    /// both are unreadable. For an APFS container, all its volumes together.
    pub space: Option<VolumeSpace>,
    /// The reason why its free space is not discarded, if it is not.
    pub refused: Option<Error>,
}

impl VolumeUsage {
    fn of(found: FreeVolume) -> Result<Self> {
        let info = found.volume.open().map(|volume| volume.volume());
        // The quota and the key of the first volume do not matter for the space that all volumes of
        // a container share.
        let container = found
            .volume
            .format
            .is_container()
            .then(|| found.volume.container());
        let space = match (&info, container) {
            (_, Some(container)) => container
                .ok()
                .map(|found| VolumeSpace::new(found.size(), found.free(), found.pending())),
            (Ok(info), None) => Some(VolumeSpace::new(info.total, info.free, info.pending)),
            (Err(_), None) if found.map.is_err() => None,
            (Err(_), None) => {
                let range = &found.volume.range;
                let free = found
                    .runs()
                    .map(|run| run.map(|run| run.end - run.start))
                    .sum::<Result<u64>>()?;
                Some(VolumeSpace::new(range.end - range.start, free, 0))
            }
        };
        Ok(Self {
            partition: found.volume.partition,
            place: found.volume.place(),
            format: found.volume.format,
            info,
            space,
            refused: found.map.err(),
        })
    }
}

/// Space usage of an image and its contents.
#[derive(Debug)]
pub struct ImageUsage {
    /// Usage of its files on the host, including layers on top of it.
    pub host: HostUsage,
    /// Format of the image.
    pub format: Format,
    /// Length of its disk, in bytes.
    pub disk: u64,
    /// Usage of its bands. `None` if the format cannot be changed, so that nothing can be freed.
    pub map: Option<SpaceMap>,
    /// The volumes, in the order of the disk.
    pub volumes: Vec<VolumeUsage>,
}

impl ImageUsage {
    /// Measures an open image. Reads the allocation bitmaps of volumes, but no files. Free space of a
    /// container with a volume that `keys` does not unlock is not freed by a compaction.
    pub fn of(image: &Image, keys: Option<&dyn Keys>, progress: &dyn Progress) -> Result<Self> {
        let host = host(image, progress)?;
        let locked = UnconfirmedVolumes::locked(image, keys);
        let free = FreeSpace::projected_free(image).without(&locked);
        let map = SpaceMap::of(image, &free, progress)?;
        let volumes = free
            .volumes
            .into_iter()
            .map(VolumeUsage::of)
            .collect::<Result<_>>()?;
        Ok(Self {
            host,
            format: image.format(),
            disk: image.disk().info().len,
            map,
            volumes,
        })
    }

    /// Returns the bytes of storage that compaction would free.
    pub fn returns(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| {
            let (whole, parts) = map.returns();
            whole + parts
        })
    }

    /// Returns true if the image has less storage than bytes of disk.
    pub fn is_sparse(&self) -> bool {
        self.host.allocated < self.disk
    }
}

/// Measures an image that is not on this host, by its objects or its file.
fn elsewhere(image: &Image, progress: &dyn Progress) -> Result<HostUsage> {
    let Some(bundle) = image.bundle() else {
        let file = image.layers().iter().find_map(Layer::remote_file);
        let len = file.map_or(0, |file| file.info().len);
        return Ok(HostUsage {
            files: 1,
            len,
            allocated: len,
            ..HostUsage::default()
        });
    };
    let survey = bundle.survey(progress)?;
    Ok(HostUsage {
        files: survey.bands,
        len: survey.allocated,
        allocated: survey.allocated,
        ..HostUsage::default()
    })
}

/// Returns the space usage of all files of an image.
pub(crate) fn host(image: &Image, progress: &dyn Progress) -> Result<HostUsage> {
    let mut usage = match snapshot::on_host(image.path())? {
        Some(folder) => HostUsage::of(&folder, progress)?,
        None if remote::is_elsewhere(image.path()) => elsewhere(image, progress)?,
        None => HostUsage::of(image.path(), progress)?,
    };
    for layer in image.overlays() {
        usage = usage.and(HostUsage::of(&layer.path, progress)?);
    }
    Ok(usage)
}
