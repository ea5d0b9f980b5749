//! A disk in another container: any that is read to any that is written.
//!
//! [`convert`] makes the target under a name of its own and puts it in its place when it is whole.
//! How the disk gets there depends on the target: containers that are changed in place are blank
//! disks to which [`copy`](mod@copy) copies, standard output is a [`stream`], and [`udif`] images
//! are written from front to back. [`resume`] goes on with what was broken off.

pub mod copy;
mod resume;
mod stream;
pub(super) mod udif;
mod used;

use std::path::Path;

use crate::codec::Level;
use crate::container::Format;
use crate::container::udif::Resource;
use crate::crypt::Encryption;
use crate::device::BlockDevice;
use crate::open::remote::check_holds;
use crate::open::{CreateOptions, Draft, Image, NetworkOptions, NewMode};
use crate::progress::Progress;
use crate::store::FileMode;
use crate::{Error, Kind, Reason, Result};

pub use self::copy::{Copied, Order};
pub use self::resume::resume;
pub use self::stream::stream;
use self::used::UsedOnly;

/// What an image is to become. The default is a raw image.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// The container of the new image.
    pub format: Format,
    /// Bytes of a band, of formats that have bands. `None`: the format's default.
    pub band_size: Option<u64>,
    /// Bytes of a sector, of formats that have a choice. `None`: those of the source's partition
    /// map, or else of its disk.
    pub sector_size: Option<u32>,
    /// How hard UDZO is compressed. `None`: level 1.
    pub level: Option<Level>,
    /// True if an image that exists is to be replaced.
    pub overwrite: bool,
    /// Leave out what no volume uses: those blocks read as zeros in the new image. Fails where a
    /// volume's map of them cannot be relied on. The source's own checksums cover what is left out,
    /// and are not compared then.
    pub skip_free: bool,
    /// Whether and how the new image is encrypted, whatever the old one is: with fresh keys.
    pub encryption: Option<Encryption>,
    /// True if a new compressed image may lack the code signature of the old one, which covers the
    /// bytes of that file. Of the other formats, in which none can stand, nobody expects it.
    pub remove_signature: bool,
    /// True if to go on where the source's own checksums say that it is damaged.
    pub ignore_checksums: bool,
    /// What is put into a compressed or read-only image beside its disk, such as a licence. Nothing
    /// is taken from the source.
    pub resources: Vec<Resource>,
    /// How a bucket is reached, if the new image is to be in one.
    pub network: NetworkOptions<'static>,
    /// The mode of the new image. `None`: as far as the source's goes, and for its owner only where
    /// either of the two is encrypted.
    pub mode: Option<FileMode>,
    /// As [`CreateOptions::round_band_size`].
    pub round_band_size: bool,
}

impl ConvertOptions {
    /// Refuses what the format does not have.
    fn check(&self, from: &Image) -> Result<()> {
        self.keep_signature(from)?;
        check_level(self.format, self.level)?;
        if !self.resources.is_empty() && !self.format.is_udif() {
            return Err(Error::new(
                Kind::Invalid,
                "image",
                format!("{} has no resources", self.format),
            ));
        }
        self.create(from).check()
    }

    fn keep_signature(&self, from: &Image) -> Result<()> {
        keep_signature(from, self.remove_signature || !self.format.is_udif())
    }

    /// The disk without its free blocks, if that is what is to be copied.
    fn used_only(&self, from: &Image) -> Result<Option<UsedOnly>> {
        self.skip_free.then(|| UsedOnly::of(from)).transpose()
    }

    /// The blank image that the disk of `from` is copied to.
    fn create(&self, from: &Image) -> CreateOptions {
        CreateOptions {
            format: self.format,
            len: from.disk().info().len,
            band_size: self.band_size,
            sector_size: self.sector_size.or_else(|| sector_size(from, self.format)),
            overwrite: self.overwrite,
            encryption: self.encryption.clone(),
            // What is not written of it is noise, so the copy writes every block.
            thin: self.encryption.is_some() && matches!(self.format, Format::Udrw | Format::Udto),
            network: self.network,
            mode: self.new_mode(Some(from)),
            round_band_size: self.round_band_size,
            id: None,
        }
    }

    /// Who may read the new image.
    fn new_mode(&self, from: Option<&Image>) -> NewMode {
        match (self.mode, from) {
            (Some(mode), _) => NewMode::Exactly(mode),
            (None, Some(from)) => from.mode_of_copy().of_secret(self.encryption.is_some()),
            (None, None) => NewMode::default().of_secret(self.encryption.is_some()),
        }
    }
}

/// Refuses to lose the code signature of `image`, which covers the bytes of its file, unless it may
/// go.
pub fn keep_signature(image: &Image, may_go: bool) -> Result<()> {
    if !may_go && image.udif().is_some_and(|udif| udif.signature().is_some()) {
        return Err(Error::new(Kind::ReadOnly, "image", SIGNED)
            .because(Reason::Signed)
            .in_file(image.path()));
    }
    Ok(())
}

/// The message of the error about an image whose code signature would be lost.
pub(crate) const SIGNED: &str =
    "is signed, and its code signature does not survive a change of the file";

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    Image(&'a Image),
    Disk(&'a dyn BlockDevice),
}

impl<'a> Source<'a> {
    /// The disk of `image`, or what is used of it.
    fn of(image: &'a Image, used_only: Option<&'a UsedOnly>) -> Self {
        used_only.map_or(Self::Image(image), |disk| Self::Disk(disk))
    }

    fn disk(&self) -> &dyn BlockDevice {
        match self {
            Self::Image(image) => &**image.disk(),
            Self::Disk(disk) => *disk,
        }
    }

    /// Has `work` read the whole disk, and compares that with the sums that the image stores, where
    /// it does.
    fn read<R>(
        &self,
        ignore_checksums: bool,
        work: impl FnOnce(&dyn BlockDevice) -> Result<R>,
    ) -> Result<R> {
        let sums = match self {
            Self::Image(image) if !ignore_checksums && image.overlays().next().is_none() => {
                image.udif().map(|udif| (image, udif))
            }
            _ => None,
        };
        let Some((image, udif)) = sums else {
            return work(self.disk());
        };
        let disk = udif.checked();
        let done = work(&disk)?;
        disk.finish().map_err(|error| error.in_file(image.path()))?;
        Ok(done)
    }
}

/// Refuses a level of compression where there is none.
pub(super) fn check_level(format: Format, level: Option<Level>) -> Result<()> {
    if level.is_some() && format != Format::Udzo {
        return Err(Error::new(
            Kind::Invalid,
            "image",
            format!("{format} has no levels of compression, only UDZO has"),
        ));
    }
    Ok(())
}

/// What became of it.
#[derive(Debug)]
pub struct Converted {
    /// The new image, open for writing where its format can be changed.
    pub image: Image,
    /// How much was moved.
    pub copied: Copied,
    /// True if the image was there already, with the same disk, so that nothing was left to do.
    pub was_complete: bool,
}

/// Makes an image at `to` that holds the same disk as `from`, durably.
///
/// It is made under a name of its own beside `to` and gets its place when it is whole: whatever
/// goes wrong, or if `progress` says stop, nothing is left of it, and what was at `to` is as it
/// was.
pub fn convert(
    from: &Image,
    to: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Converted> {
    options.check(from).map_err(|error| error.in_file(to))?;
    check_holds(to, options.format)?;
    let used_only = options.used_only(from)?;
    let source = Source::of(from, used_only.as_ref());
    if options.format.is_udif() {
        return udif::pack(source, to, options, options.new_mode(Some(from)), progress)
            .map_err(|error| error.in_file(to));
    }
    onto_blank_disk(from, source, to, options, progress)
}

/// Into a container that is changed in place.
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
    let copied = source.read(options.ignore_checksums, |disk| {
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

/// A band that is a file of its own is written by one thread. What a sparse file takes in the order
/// of writing is written from front to back, so that the same disk gives the same file, and reads
/// as fast as it was written.
fn order(target: &Image, noisy: bool) -> Order {
    match target.format() {
        _ if noisy => Order::Over,
        Format::Udsb => Order::SideBySide(target.bundle().map_or(1, |bundle| bundle.band_size())),
        Format::Udsp | Format::Asif => Order::FrontToBack,
        _ => Order::SideBySide(1),
    }
}

/// The sectors that the map of a disk counts in: in a raw image they need not be those of the
/// container.
fn sector_size(from: &Image, format: Format) -> Option<u32> {
    let used = from
        .partitions()
        .map_or(from.disk().info().block, |map| map.block);
    Some(used).filter(|_| format == Format::Asif)
}
