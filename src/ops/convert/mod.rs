//! Conversion of a disk from any readable to any writable container.
//!
//! [`convert`] creates the target under a temporary name and renames it when it is complete. The
//! method depends on the target: containers that are changed in place are blank disks to which
//! [`copy`](mod@copy) copies, standard output is a [`stream`], and [`udif`] images are written
//! sequentially, also into an [`archive`](mod@archive). [`resume`] continues an interrupted conversion.

mod archive;
pub mod copy;
mod resume;
pub(super) mod stream;
pub(super) mod udif;
mod used;

use std::path::Path;

use crate::codec::Level;
use crate::container::udif::Resource;
use crate::container::{ContainerKind, Format};
use crate::crypt::Encryption;
use crate::device::BlockDevice;
use crate::open::remote::check_holds;
use crate::open::{CreateOptions, Draft, Image, NetworkOptions, NewMode};
use crate::ops::verify::Verification;
use crate::progress::Progress;
use crate::store::FileMode;
use crate::{Error, Kind, Reason, Result};

pub use self::archive::{ArchivedDisk, convert_to_archive};
pub use self::copy::{CopyCounts, Order};
pub use self::resume::resume;
pub use self::stream::stream;
use self::used::UsedSpaceDisk;

/// Options of a conversion. The default is a raw image.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// The container of the new image.
    pub format: Format,
    /// Band size in bytes, of formats with bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Sector size in bytes, of formats with a choice. `None`: that of the source's partition map,
    /// or else of its disk.
    pub sector_size: Option<u32>,
    /// Compression level of UDZO. `None`: level 6.
    pub level: Option<Level>,
    /// True to replace an existing image.
    pub overwrite: bool,
    /// True to omit blocks that no volume uses, which read as zeros in the new image. Fails if the
    /// allocation map of a volume cannot be trusted.
    pub skip_free: bool,
    /// Encryption of the new image, with fresh keys, regardless of that of the source.
    pub encryption: Option<Encryption>,
    /// True to allow a compressed image to lose the code signature of the source, which covers the
    /// bytes of that file. Other formats cannot hold a signature, so they need no permission.
    pub remove_signature: bool,
    /// True to skip the comparison with the checksums that the source stores.
    pub no_verify: bool,
    /// Resources of a compressed or read-only image, such as a license. None are copied from the
    /// source.
    pub resources: Vec<Resource>,
    /// Remote access options, if the new image is in a bucket.
    pub network: NetworkOptions<'static>,
    /// The mode of the new image. `None`: derived from the source's mode, and private to the owner
    /// if either of the two is encrypted.
    pub mode: Option<FileMode>,
    /// See [`CreateOptions::round_band_size`].
    pub round_band_size: bool,
}

impl ConvertOptions {
    /// Refuses options that the format does not support, and archives of files.
    fn check(&self, from: &Image) -> Result<()> {
        if from.format() == Format::Aar {
            let message = "an archive of files is no disk: extract it, and create an image of the \
                           folder (`bandsaw create --from FOLDER`)";
            return Err(Error::unsupported("image", message));
        }
        self.keep_signature(from)?;
        check_level(self.format, self.level)?;
        if !self.resources.is_empty() && !self.format.is_udif() {
            return Err(Error::invalid(
                "image",
                format!("{} has no resources", self.format),
            ));
        }
        self.create(from).check()
    }

    fn keep_signature(&self, from: &Image) -> Result<()> {
        keep_signature(from, self.remove_signature || !self.format.is_udif())
    }

    /// Returns the disk without its free blocks, if these are to be omitted.
    fn used_only(&self, from: &Image, progress: &dyn Progress) -> Result<Option<UsedSpaceDisk>> {
        self.skip_free
            .then(|| UsedSpaceDisk::of(from, progress))
            .transpose()
    }

    /// Returns the options of the blank image to which the disk of `from` is copied.
    fn create(&self, from: &Image) -> CreateOptions {
        CreateOptions {
            format: self.format,
            len: from.disk().info().len,
            band_size: self.band_size,
            sector_size: self.sector_size.or_else(|| sector_size(from, self.format)),
            overwrite: self.overwrite,
            encryption: self.encryption.clone(),
            // Unwritten blocks would decrypt to noise, so the copy writes every block.
            thin: self.encryption.is_some() && self.format.is_plain(),
            network: self.network,
            mode: self.new_mode(Some(from)),
            round_band_size: self.round_band_size,
            id: None,
        }
    }

    /// Returns the mode of the new image.
    fn new_mode(&self, from: Option<&Image>) -> NewMode {
        match (self.mode, from) {
            (Some(mode), _) => NewMode::Exactly(mode),
            (None, Some(from)) => from.mode_of_copy().of_secret(self.encryption.is_some()),
            (None, None) => NewMode::default().of_secret(self.encryption.is_some()),
        }
    }
}

/// Refuses to lose the code signature of `image`, which covers the bytes of its file, unless
/// `may_go` is true.
pub(crate) fn keep_signature(image: &Image, may_go: bool) -> Result<()> {
    if !may_go && image.udif().is_some_and(|udif| udif.signature().is_some()) {
        return Err(
            Error::new(Kind::ReadOnly, "image", super::resources::SIGNED)
                .because(Reason::Signed)
                .in_file(image.path()),
        );
    }
    Ok(())
}

/// The disk to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The image that holds the disk, if there is one.
    image: Option<&'a Image>,
    disk: &'a dyn BlockDevice,
}

impl<'a> Source<'a> {
    /// Returns the disk of `image`, or its used part.
    fn of(image: &'a Image, used_only: Option<&'a UsedSpaceDisk>) -> Self {
        let whole = || &**image.disk();
        let disk = used_only.map_or_else(whole, |disk| disk as _);
        Self {
            image: Some(image),
            disk,
        }
    }

    /// Returns a disk of its own.
    pub(super) fn of_disk(disk: &'a dyn BlockDevice) -> Self {
        Self { image: None, disk }
    }

    fn disk(&self) -> &dyn BlockDevice {
        self.disk
    }

    /// Runs `work`, which reads the disk, and verifies the checksums that the image stores, if it
    /// has any.
    fn read<R>(
        &self,
        no_verify: bool,
        progress: &dyn Progress,
        work: impl FnOnce(&dyn BlockDevice) -> Result<R>,
    ) -> Result<R> {
        let image = self.image.filter(|_| !no_verify);
        let verification = image.and_then(Verification::begin);
        // The damage is in the source.
        let done = work(self.disk).map_err(|error| match (self.image, error.kind()) {
            (Some(image), Kind::Corrupt) => error.in_file(image.path()),
            _ => error,
        })?;
        verification.map_or(Ok(()), |sums| sums.finish(progress))?;
        Ok(done)
    }
}

/// Refuses a compression level for formats without levels.
pub(super) fn check_level(format: Format, level: Option<Level>) -> Result<()> {
    if level.is_some() && !format.has_levels() {
        return Err(Error::invalid(
            "image",
            format!("{format} has no compression levels; only UDZO has"),
        ));
    }
    Ok(())
}

/// Result of a conversion.
#[derive(Debug)]
pub struct Converted {
    /// The new image, open for writing if its format can be changed.
    pub image: Image,
    /// Amount of data copied.
    pub copied: CopyCounts,
    /// True if the image already existed with the same disk, so that nothing was copied.
    pub was_complete: bool,
}

/// Creates an image at `to` that holds the same disk as `from`, durably.
///
/// The image is created under a temporary name beside `to` and renamed when it is complete. After
/// an error, or if `progress` cancels, it is removed, and a previous file at `to` is unchanged.
pub fn convert(
    from: &Image,
    to: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Converted> {
    options.check(from).map_err(|error| error.in_file(to))?;
    check_holds(to, options.format)?;
    let used_only = options.used_only(from, progress)?;
    let source = Source::of(from, used_only.as_ref());
    let made = if options.format.is_udif() {
        udif::pack(source, to, options, options.new_mode(Some(from)), progress)
            .map_err(|error| error.in_file(to))
    } else {
        onto_blank_disk(from, source, to, options, progress)
    };
    made.map_err(|error| error.in_file(to))
}

/// Converts to a container that is changed in place.
fn onto_blank_disk(
    from: &Image,
    source: Source<'_>,
    to: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Converted> {
    let create = options.create(from);
    let draft = Draft::new(to, &create)?;
    let (target, order) = (draft.image().disk(), order(draft.image(), create.thin));
    let copied = source.read(options.no_verify, progress, |disk| {
        copy::copy(disk, &**target, order, progress)
    })?;
    progress.check()?;
    progress.stage("flush", 0);
    Ok(Converted {
        image: draft.finish_watched(progress)?,
        copied,
        was_complete: false,
    })
}

/// Returns the order of writes for `target`. A band with a file of its own is written by one
/// thread. Sparse files that allocate in the order of writes are written sequentially, so that the
/// same disk gives the same file, and reads are sequential too.
fn order(target: &Image, noisy: bool) -> Order {
    match target.format().container() {
        _ if noisy => Order::Over,
        ContainerKind::Bundle => {
            Order::SideBySide(target.bundle().map_or(1, |bundle| bundle.band_size()))
        }
        ContainerKind::SparseImage | ContainerKind::Asif => Order::FrontToBack,
        ContainerKind::Raw | ContainerKind::Udif | ContainerKind::ReadOnly => Order::SideBySide(1),
    }
}

/// Returns the sector size that the partition map of a disk uses. In a raw image it can differ from
/// that of the container.
fn sector_size(from: &Image, format: Format) -> Option<u32> {
    let used = from
        .partitions()
        .map_or(from.disk().info().block, |map| map.block);
    Some(used).filter(|_| format.sector_sizes().len() > 1)
}
