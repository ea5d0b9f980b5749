//! Creation of an image: sized, partitioned, formatted and filled in one call.
//!
//! The tree of files is known completely before anything is created, so the image has the right
//! size from the beginning and is written once, sequentially. It is created under a temporary name
//! and renamed when it is complete.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::compress::{BlockRounding, CompressOptions, FileReport, compress_tree, spool_len};
use super::convert::{self, ConvertOptions, CopyCounts};
pub use super::disk_layout::Layout;
use super::finder::{self, WindowSettings};
use super::format::{NewFormat, VolumeOptions};
use super::import::{self, FolderOptions, Item};
use super::planned_disk::PlannedDisk;
use crate::codec::Level;
use crate::container::Format;
use crate::container::udif::Resource;
use crate::crypt::{Encryption, MIN_ITERATIONS, Secret};
use crate::device::{BlockDevice, Slice};
use crate::fs::source::Tree;
use crate::fs::{NewVolumeInfo, Timestamp, VolumeEncryption, VolumePlan};
use crate::open::remote::{check_holds, url};
use crate::open::{self, Draft, Image, NetworkOptions, NewMode};
use crate::partition::single::SingleType;
use crate::partition::{gpt, single};
use crate::progress::Progress;
use crate::store::FileMode;
use crate::{Error, Reason, Result, platform};

const LAYER: &str = "create";
/// Block size of all but the largest volumes, in bytes.
const USUAL_BLOCK: u32 = 4096;

/// The name of a volume for which none is given and none follows from its files, as hdiutil has it.
pub const UNTITLED: &str = "untitled";

/// Options of a new image. The default is a blank raw image without a length, which has to be
/// given.
#[derive(Debug, Default)]
pub struct CreateOptions {
    /// The container format.
    pub format: Format,
    /// Length of the disk in bytes, a multiple of 512. `None`: the size of the files with some free
    /// space; required for a blank disk.
    pub len: Option<u64>,
    /// Band size in bytes, of formats with bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Sector size in bytes, of formats with a choice: 512 or 4096. `None`: 512.
    pub sector_size: Option<u32>,
    /// Compression level of UDZO. `None`: level 6.
    pub level: Option<Level>,
    /// True to replace an existing image.
    pub overwrite: bool,
    /// The volume on the disk. `None`: the disk is blank.
    pub volume: Option<NewVolume>,
    /// Names of further, empty volumes beside that one, for file systems that hold several.
    pub more_volumes: Vec<String>,
    /// Compression of the files of the volume. Packed forks are kept in a file beside the image
    /// meanwhile.
    pub compress: Option<CompressOptions>,
    /// `SOURCE_DATE_EPOCH`: the date of everything created now, and of every file that is newer.
    /// All identifiers are then derived from the input, only the modification date of a file
    /// counts, and the same input gives the same bytes, unless it is encrypted.
    pub epoch: Option<Timestamp>,
    /// Encryption of the image. `None`: not encrypted.
    pub encryption: Option<Encryption>,
    /// Encryption of the volume and of those beside it. `None`: not encrypted.
    pub volume_encryption: Option<VolumeEncryption>,
    /// See [`open::CreateOptions::thin`]; for blank disks only, because a volume relies on zeros
    /// that would be noise.
    pub thin: bool,
    /// Finder settings of the volume. `None`: those of its source.
    pub look: Option<WindowSettings>,
    /// True if the Finder is to open a window of the root folder when the volume is mounted. Volumes
    /// other than HFS+ do not record it.
    pub opens: bool,
    /// Resources of a compressed or read-only image, such as a license.
    pub resources: Vec<Resource>,
    /// Remote access options, if the image is in a bucket.
    pub network: NetworkOptions<'static>,
    /// The mode of the image. `None`: according to the umask, and private to the owner if the image
    /// or the volume is encrypted.
    pub mode: Option<FileMode>,
    /// See [`open::CreateOptions::round_band_size`].
    pub round_band_size: bool,
}

impl CreateOptions {
    /// Returns the options of an image for distribution, which is compressed once and downloaded often: UDZO of the
    /// highest level, unless `format` or `level` says otherwise. A level is ignored for a format without levels.
    pub fn for_distribution(format: Option<Format>, level: Option<Level>) -> Self {
        let format = format.unwrap_or(Format::Udzo);
        Self {
            format,
            level: format
                .has_levels()
                .then(|| level.unwrap_or(Level::SMALLEST)),
            ..Self::default()
        }
    }
}

/// Returns the name of a volume for which none is given, as hdiutil has it: that of the folder with its files, that of
/// the archive without its extension, or [`UNTITLED`].
pub fn default_volume_name(source: Option<&Path>) -> String {
    let source = source.and_then(|source| source.canonicalize().ok());
    let name = source.as_deref().and_then(|source| match source.is_dir() {
        true => source.file_name(),
        false => source.file_stem(),
    });
    name.and_then(OsStr::to_str).unwrap_or(UNTITLED).to_owned()
}

/// A volume to be created.
#[derive(Debug)]
pub struct NewVolume {
    /// The partition layout of the disk.
    pub layout: Layout,
    /// The volume name.
    pub name: String,
    /// The file system.
    pub format: NewFormat,
    /// Allocation block size in bytes; for HFS+ a power of two from 512. `None`: as chosen by
    /// Apple's formatter.
    pub block_size: Option<u32>,
    /// The source of the files.
    pub source: Source,
}

/// The source of the files of a new volume.
#[derive(Default)]
pub enum Source {
    /// No files: the volume is only formatted.
    #[default]
    Empty,
    /// The contents of a folder of the host. The image itself is left out if it is inside.
    Folder(PathBuf),
    /// Files and folders of the host side by side.
    Items(Vec<Item>),
    /// The contents of a tar archive.
    Tar(PathBuf),
    /// The contents of a tar archive that is first read to its end, into an unlinked file beside
    /// the image.
    TarStream(Box<dyn Read + Send>),
}

impl Source {
    /// Returns the source at `path` of the host: a folder, or else an archive.
    pub fn at(path: PathBuf) -> Self {
        if path.is_dir() {
            Self::Folder(path)
        } else {
            Self::Tar(path)
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Self::Items(items) => f.debug_tuple("Items").field(items).finish(),
            Self::Tar(path) => f.debug_tuple("Tar").field(path).finish(),
            Self::TarStream(_) => f.write_str("TarStream"),
        }
    }
}

/// Result of a creation.
#[derive(Debug)]
pub struct Created {
    /// The image, open for writing.
    pub image: Image,
    /// The volume on it, if one was requested.
    pub volume: Option<NewVolumeInfo>,
    /// Compression result of each file, if compression was requested.
    pub compressed: Vec<FileReport>,
}

/// Creates an image at `path`, durably.
///
/// After an error, or if `progress` cancels, the image is removed, and a previous file at `path` is
/// unchanged.
pub fn create(path: &Path, options: CreateOptions, progress: &dyn Progress) -> Result<Created> {
    create_beside(path, options, progress).map_err(|error| error.in_file(path))
}

/// Creates an image from temporary files beside it; errors may name these.
fn create_beside(
    path: &Path,
    mut options: CreateOptions,
    progress: &dyn Progress,
) -> Result<Created> {
    let format = options.format;
    let invalid = |message: String| Err(Error::invalid(LAYER, message).in_file(path));
    if !options.overwrite && fs::symlink_metadata(path).is_ok() {
        // The draft checks this again. Checked here first, to avoid reading the source in vain.
        let exists = Error::conflict(LAYER, "already exists").because(Reason::Exists);
        return Err(exists.in_file(path));
    }
    check_holds(path, format)?;
    let blank = options.container(options.len.unwrap_or(0), None);
    let checked = convert::check_level(format, options.level).and_then(|()| blank.check());
    checked.map_err(|error| error.in_file(path))?;
    if !options.resources.is_empty() && !format.is_udif() {
        return Err(no_resources(format).in_file(path));
    }
    if options.look.is_some() && options.volume.is_none() {
        let message = "a Finder layout requires a volume, but the disk is blank";
        return invalid(message.into());
    }
    if options.thin && options.volume.is_some() {
        let message = "a thin encrypted raw image cannot have a volume: unwritten blocks do not \
                       read as zeros";
        return invalid(message.into());
    }
    let Some(volume) = options.volume.take() else {
        let Some(len) = options.len else {
            return invalid("a blank disk requires a size".into());
        };
        let blank = options.container(len, NewIds::blank(options.epoch, len));
        return Ok(Created {
            image: Draft::watched(path, &blank, progress)?.finish()?,
            volume: None,
            compressed: Vec::new(),
        });
    };
    let PreparedDisk {
        plan,
        ids,
        len,
        compressed,
        spool,
    } = options.prepare(volume, path, progress)?;
    if format.is_udif() {
        let disk = plan.lay_out(len, ids.disk)?;
        let mode = options.new_mode();
        let options = ConvertOptions {
            format,
            level: options.level,
            overwrite: options.overwrite,
            encryption: options.encryption,
            resources: options.resources,
            ..ConvertOptions::default()
        };
        let source = convert::Source::of_disk(&disk);
        let packed = convert::udif::pack(source, path, &options, mode, progress);
        return Ok(Created {
            image: packed.map_err(|error| error.in_file(path))?.image,
            volume: Some(disk.built()),
            compressed,
        });
    }
    let draft = Draft::watched(path, &options.container(len, ids.image), progress)?;
    let built = plan.build(draft.image().disk(), ids.disk, progress)?;
    drop(spool); // nothing comes from there any more
    progress.stage("flush", 0);
    Ok(Created {
        image: draft.finish_watched(progress)?,
        volume: Some(built),
        compressed,
    })
}

/// Result of writing a new image to a pipe.
#[derive(Debug)]
pub struct Streamed {
    /// Length of the disk in bytes.
    pub len: u64,
    /// Amount of data read and written.
    pub copied: CopyCounts,
    /// The volume on the disk.
    pub volume: NewVolumeInfo,
    /// Compression result of each file, if compression was requested.
    pub compressed: Vec<FileReport>,
}

/// Writes a new image with a volume to `out` in order, in a raw format or a kind of UDIF. Temporary
/// data is in `folder`: what [`CreateOptions::compress`] or a [`Source::TarStream`] needs, and an
/// encrypted UDIF or one with resources, as for [`convert::stream`](fn@convert::stream).
///
/// [`Kind::Unsupported`](crate::Kind) for other formats. Output written before an error cannot be undone.
pub fn stream(
    folder: &Path,
    mut options: CreateOptions,
    out: File,
    progress: &dyn Progress,
) -> Result<Streamed> {
    let format = options.format;
    convert::stream::check_format(format)?;
    convert::check_level(format, options.level)?;
    if options.band_size.is_some() || options.sector_size.is_some_and(|size| size != 512) {
        let message = format!("{format} has no bands, and sectors of 512 bytes");
        return Err(Error::invalid(LAYER, message));
    }
    if !options.resources.is_empty() && !format.is_udif() {
        return Err(no_resources(format));
    }
    let Some(volume) = options.volume.take() else {
        let message = "a blank disk is not written to a pipe; give it a volume";
        return Err(Error::invalid(LAYER, message));
    };
    let prepared = options.prepare(volume, &folder.join("image"), progress)?;
    let disk = prepared.plan.lay_out(prepared.len, prepared.ids.disk)?;
    let options = ConvertOptions {
        format,
        level: options.level,
        encryption: options.encryption,
        resources: options.resources,
        ..ConvertOptions::default()
    };
    let source = convert::Source::of_disk(&disk);
    Ok(Streamed {
        len: prepared.len,
        copied: convert::stream::write(source, &options, folder, out, progress)?,
        volume: disk.built(),
        compressed: prepared.compressed,
    })
}

fn no_resources(format: Format) -> Error {
    let message = format!(
        "{format} has no place for a license or other resources; compressed and read-only images have"
    );
    Error::invalid(LAYER, message)
}

/// A disk of which every byte is known, before it is written.
struct PreparedDisk {
    plan: PlannedContents,
    ids: NewIds,
    len: u64,
    compressed: Vec<FileReport>,
    /// The packed forks of compressed files.
    spool: Option<Draft>,
}

impl CreateOptions {
    /// Returns true if plain text must not reach the host.
    fn is_secret(&self) -> bool {
        self.encryption.is_some() || self.volume_encryption.is_some()
    }

    fn new_mode(&self) -> NewMode {
        let usual = NewMode::default().of_secret(self.is_secret());
        self.mode.map_or(usual, NewMode::Exactly)
    }

    /// Returns the options of the blank image, of `len` bytes.
    fn container(&self, len: u64, id: Option<Uuid>) -> open::CreateOptions {
        open::CreateOptions {
            format: self.format,
            len,
            band_size: self.band_size,
            sector_size: self.sector_size,
            overwrite: self.overwrite,
            encryption: self.encryption.clone(),
            thin: self.thin,
            network: self.network,
            mode: self.new_mode(),
            round_band_size: self.round_band_size,
            id,
        }
    }

    /// Reads the source of `volume`, compresses its files if requested, and plans the disk. Temporary
    /// data is stored beside `image`.
    fn prepare(
        &self,
        volume: NewVolume,
        image: &Path,
        progress: &dyn Progress,
    ) -> Result<PreparedDisk> {
        let NewVolume {
            layout,
            name,
            format,
            block_size,
            source,
        } = volume;
        let needs_scratch = self.compress.is_some() || matches!(source, Source::TarStream(_));
        if needs_scratch && url(image).is_some() {
            let message = "cannot store temporary data beside the target; create the image on this \
                           machine and convert it (`bandsaw convert`)";
            return Err(Error::unsupported(LAYER, message).in_file(image));
        }
        let created = self.epoch.unwrap_or_else(Timestamp::now_in_seconds);
        let mut tree = read(source, image, created, progress)?;
        if self.epoch.is_some() {
            forget_host_dates(&mut tree);
        }
        let ids = NewIds::new(self.epoch, &name, &tree);
        let mut compressed = Vec::new();
        let mut spool = None;
        if let Some(options) = &self.compress {
            let room = BlockRounding {
                block: block_size.unwrap_or(USUAL_BLOCK),
                holes: format.has_holes(),
            };
            let scratch = scratch_beside(image, "packed", spool_len(&tree), self.is_secret())?;
            let disk = scratch.image().disk().clone();
            (tree, compressed) = compress_tree(tree, room, disk, options, progress)?;
            spool = Some(scratch);
        }
        let options = VolumeOptions {
            name,
            block_size,
            created,
            latest: self.epoch,
            opens: self.opens,
            id: ids.volume,
            more_volumes: self.more_volumes.clone(),
            encryption: self.volume_encryption.clone(),
        };
        if let Some(look) = &self.look {
            let number = |tree: &Tree, node| format.number_of(tree, &options, node);
            let volume = finder::TargetVolume {
                name: &options.name,
                created,
                number: &number,
            };
            finder::apply_settings(&mut tree, look, &volume)
                .map_err(|error| error.in_file(image))?;
        }
        let plan = PlannedContents {
            layout,
            partition_type: format.single_type(),
            volume: format.plan(tree, options)?,
        };
        Ok(PreparedDisk {
            len: self
                .len
                .map_or_else(|| plan.disk_len(self.sector_size), Ok)?,
            plan,
            ids,
            compressed,
            spool,
        })
    }
}

/// Creates a temporary disk for the data of `image`, removed on drop. If the image is to be
/// encrypted, so is this disk, with a random passphrase that is never stored: plaintext never
/// reaches the host.
fn scratch_beside(image: &Path, what: &str, len: u64, is_secret: bool) -> Result<Draft> {
    let name = platform::hidden_name(image.file_name().unwrap_or_default(), &format!(".{what}"));
    let passphrase = || {
        Secret::new(
            [Uuid::new_v4(), Uuid::new_v4()]
                .map(Uuid::into_bytes)
                .concat(),
        )
    };
    let encryption = is_secret.then(|| Encryption {
        iterations: Some(MIN_ITERATIONS),
        ..Encryption::new(passphrase())
    });
    // Unwritten ranges are zeros in a sparse image, and would be noise in an encrypted raw one.
    let format = if is_secret {
        Format::Udsp
    } else {
        Format::Udrw
    };
    // It may hold private files of one user, regardless of the mode of the image.
    let mode = NewMode::AtMost(FileMode::PRIVATE);
    let options = open::CreateOptions {
        format,
        len,
        overwrite: true,
        encryption,
        mode,
        ..open::CreateOptions::default()
    };
    Draft::new(&image.with_file_name(name), &options)
}

/// The planned contents of a disk.
struct PlannedContents {
    layout: Layout,
    partition_type: SingleType,
    volume: Box<dyn VolumePlan>,
}

impl PlannedContents {
    /// Returns the length in bytes of a disk that holds the volume with free space to work.
    fn disk_len(&self, sector_size: Option<u32>) -> Result<u64> {
        self.layout
            .disk_len_for(self.volume.comfortable_len()?, sector_size.unwrap_or(512))
    }

    /// Returns a disk of `len` bytes that is read as if it had been written.
    fn lay_out(&self, len: u64, guids: gpt::Guids) -> Result<PlannedDisk<'_>> {
        PlannedDisk::new(&*self.volume, len, self.layout, self.partition_type, guids)
    }

    fn build(
        &self,
        disk: &Arc<dyn BlockDevice>,
        guids: gpt::Guids,
        progress: &dyn Progress,
    ) -> Result<NewVolumeInfo> {
        let Some(scheme) = self.layout.scheme() else {
            return self.volume.build(&**disk, progress);
        };
        let range = single::create(scheme, &**disk, self.partition_type, guids)?;
        self.volume
            .build(&Slice::new(disk.clone(), range)?, progress)
    }
}

fn read(source: Source, image: &Path, created: Timestamp, progress: &dyn Progress) -> Result<Tree> {
    match source {
        Source::Empty => Ok(Tree::empty(created)),
        Source::Folder(folder) => import::folder(
            &folder,
            &FolderOptions {
                leave_out: vec![image.to_owned()],
            },
            progress,
        ),
        Source::Items(items) => import::items(
            &items,
            created,
            &FolderOptions {
                leave_out: vec![image.to_owned()],
            },
            progress,
        ),
        Source::Tar(archive) => import::tar(&archive, progress),
        Source::TarStream(mut stream) => {
            let beside = image
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            import::tar_stream(&mut stream, beside, progress)
        }
    }
}

/// Clears all dates but the modification date. The others record when the host read, copied or
/// unpacked a file: reading the source for one image would change the next.
fn forget_host_dates(tree: &mut Tree) {
    for node in &mut tree.nodes {
        (node.created, node.changed, node.accessed) = (None, None, None);
    }
}

/// The identifiers of disk, partition and volume.
pub(super) struct NewIds {
    disk: gpt::Guids,
    pub(super) volume: Uuid,
    /// UUID of the container, if it has one. `None`: a random one.
    image: Option<Uuid>,
}

impl NewIds {
    /// Returns random identifiers, or with a fixed date ones derived from that date, the volume
    /// name and the file names.
    pub(super) fn new(epoch: Option<Timestamp>, name: &str, tree: &Tree) -> Self {
        let Some(epoch) = epoch else {
            return Self {
                disk: gpt::Guids::random(),
                volume: Uuid::new_v4(),
                image: None,
            };
        };
        let mut seed = format!("{name}\0{}\0{}", epoch.seconds, tree.nodes.len());
        for node in &tree.nodes {
            seed.push('\0');
            seed.push_str(&node.name);
        }
        let seed = Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()).to_string();
        let volume = Uuid::new_v5(
            &Uuid::NAMESPACE_OID,
            format!("bandsaw volume\0{seed}").as_bytes(),
        );
        let image = Uuid::new_v5(
            &Uuid::NAMESPACE_OID,
            format!("bandsaw image\0{seed}").as_bytes(),
        );
        Self {
            disk: gpt::Guids::derived(&seed),
            volume,
            image: Some(image),
        }
    }

    /// Returns the UUID of the container of a blank disk of `len` bytes.
    fn blank(epoch: Option<Timestamp>, len: u64) -> Option<Uuid> {
        let seed = format!("bandsaw blank image\0{len}\0{}", epoch?.seconds);
        Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_the_name_of_its_files() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("Tool 1.2");
        fs::create_dir(&folder).unwrap();
        fs::write(scratch.path().join("Tool.tar"), "").unwrap();
        for (source, name) in [
            (Some(folder.clone()), "Tool 1.2"),
            (Some(folder.join("../Tool 1.2/.")), "Tool 1.2"),
            (Some(scratch.path().join("Tool.tar")), "Tool"),
            (Some(scratch.path().join("absent")), UNTITLED),
            (None, UNTITLED),
        ] {
            assert_eq!(default_volume_name(source.as_deref()), name);
        }
    }

    #[test]
    fn an_image_for_distribution_is_small() {
        let of = |format, level| {
            let options = CreateOptions::for_distribution(format, level);
            (options.format, options.level)
        };
        let fast = Some(Level::FASTEST);
        assert_eq!(of(None, None), (Format::Udzo, Some(Level::SMALLEST)));
        assert_eq!(of(None, fast), (Format::Udzo, fast));
        assert_eq!(of(Some(Format::Ulmo), fast), (Format::Ulmo, None));
    }
}
