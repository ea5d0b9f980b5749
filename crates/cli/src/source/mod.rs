//! The image that a verb opens: the options for that, and how it is read or changed.

mod location;
mod named;
mod opening_hints;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bandsaw::address::{Address, ImagePath};
use bandsaw::container::Format;
use bandsaw::decision::Assumptions;
use bandsaw::device::Access;
use bandsaw::fs::hfsplus::DEFAULT_CACHE;
use bandsaw::fs::{FileSystem, FileSystemMut, Timestamp};
use bandsaw::open::{self, Image, Keys, NetworkOptions, OpenOptions, Section, VolumeQuery};
use bandsaw::ops::repair::{self, Mode};
use bandsaw::ops::writable_volume::WritableVolume;
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};

pub(crate) use self::location::{ImageLocation, address, image, image_or_volume, is_whole, normal};
use self::named::NamedVolume;
pub(crate) use self::opening_hints::advise;
use crate::failure::{Advise, Failure, Outcome};
use crate::headings::OPENING;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::passphrase::{self, GivenPassphrase, ImageUnlockArgs, UnlockArgs};
use crate::progress::Bar;

/// The options for opening an image, for every verb that does. `U` holds the keys; a verb that
/// makes a volume takes [`ImageUnlockArgs`], as its volume keys belong to the new volume.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OpenArgs<U: Args = UnlockArgs> {
    /// Read the image as this format, without detection
    ///
    /// Formats are udrw, udsb, udsp, asif, udzo and so on, also dc42, ndif, dart, qcow2,
    /// vhd, vhdx, vmdk and ewf, which are only read.
    #[arg(long, value_name = "FORMAT", help_heading = OPENING)]
    image_format: Option<Format>,
    /// Write changes to this layer, and leave the image unchanged
    ///
    /// The layer is a shadow file (ASIF); it is created if missing. Given several times, each layer
    /// lies over the one before.
    #[arg(long = "shadow", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OPENING)]
    shadows: Vec<PathBuf>,
    /// Read an APFS container as of transaction XID
    ///
    /// `bandsaw info` lists the checkpoints that are available.
    #[arg(long, value_name = "XID", help_heading = OPENING)]
    checkpoint: Option<u64>,
    /// Open this logical volume of Core Storage as the disk
    ///
    /// NAME is its name or UUID. Its decrypted contents are then the whole disk, for every command
    /// that reads; `bandsaw convert` writes them unencrypted.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "shadows",
        help_heading = OPENING,
        hide_short_help = true
    )]
    logical_volume: Option<String>,
    /// Add the disk with another part of a Core Storage group
    ///
    /// IMAGE holds a further physical volume of the same group. The option may be given several
    /// times.
    #[arg(
        long = "physical-volume",
        value_name = "IMAGE",
        value_hint = ValueHint::AnyPath,
        help_heading = OPENING,
        hide_short_help = true
    )]
    physical_volumes: Vec<PathBuf>,
    /// Choose an alternative where sources of the image disagree
    ///
    /// CHOICE is one that an error or `bandsaw repair` has listed: `size=BYTES`, `band-size=BYTES`,
    /// `map=primary|alternate`, `header=primary|alternate` or `header@PARTITION=primary|alternate`.
    /// A command that changes the image first makes its sources agree, as `bandsaw repair --assume`
    /// does, and keeps undo data; a command that reads uses `size` and `band-size`. The option may
    /// be given several times.
    #[arg(
        long,
        value_name = "CHOICE",
        value_parser = choice,
        help_heading = OPENING,
        hide_short_help = true
    )]
    assume: Vec<String>,
    /// The parsed choices.
    #[arg(skip)]
    assumed: OnceLock<Assumptions>,
    /// The part of the disk to open, set by verbs that have an option for it.
    #[arg(skip)]
    section: Option<Section>,
    /// The date of changes of volumes, set by verbs that have an option for it.
    #[arg(skip)]
    now: Option<Timestamp>,
    /// Permission to change damaged volumes, set by verbs that have an option for it.
    #[arg(skip)]
    change_damaged: bool,
    /// Show the journal files of HFS+ volumes
    ///
    /// These are .journal and .journal_info_block, which are hidden by default, as on macOS.
    #[arg(long, help_heading = OPENING)]
    system_files: bool,
    /// Limit the catalog cache of an HFS+ volume
    ///
    /// As much memory again is used for pending changes. The default is 16m.
    #[arg(long, value_name = "SIZE", value_parser = bandsaw::size::parse, hide = true)]
    catalog_memory: Option<u64>,
    #[command(flatten)]
    network_args: NetworkArgs,
    #[command(flatten)]
    unlocking: U,
}

impl OpenArgs {
    /// Returns the options with these values; all others have their defaults.
    pub(crate) fn with(
        unlocking: UnlockArgs,
        shadows: Vec<PathBuf>,
        image_format: Option<Format>,
    ) -> Self {
        Self {
            unlocking,
            shadows,
            image_format,
            ..Self::default()
        }
    }

    /// Opens an image for reading and prints warnings about it.
    pub(crate) fn read(&self, image: &ImagePath, output: &Output) -> Outcome<Image> {
        let opened = self.open(image, Access::ReadOnly);
        let opened = opened.advise(Kind::Corrupt, || {
            format!("run `bandsaw diagnose {image}` to see how far it opens")
        })?;
        output.warn_of(&opened);
        Ok(opened)
    }

    /// Opens an image for reading like [`read`](Self::read), and contents of no known format as a raw
    /// disk: for verbs that search the disk.
    #[cfg(feature = "evidence")]
    pub(crate) fn read_disk(&self, image: &ImagePath, output: &Output) -> Outcome<Image> {
        let opened = match self.open(image, Access::ReadOnly) {
            Err(failure) if failure.reason() == Some(Reason::UnknownFormat) => {
                let options = OpenOptions {
                    image_format: Some(Format::Udrw),
                    ..self.options(Access::ReadOnly)
                };
                open::open(Path::new(image), &options).map_err(|error| advise(error, image))?
            }
            opened => opened?,
        };
        output.warn_of(&opened);
        Ok(opened)
    }

    /// Opens the volume that an address names.
    pub(crate) fn volume(&self, image: &Image, address: &Address) -> Outcome<Arc<dyn FileSystem>> {
        let wanted = VolumeQuery {
            snapshot: address.snapshot.as_deref(),
            keys: Some(&self.unlocking),
        };
        let opened = image.file_system_as(address.volume.as_ref(), wanted);
        let named = |fs| {
            Arc::new(NamedVolume {
                fs,
                image: image.path().to_owned(),
            }) as Arc<dyn FileSystem>
        };
        let image_path = &address.image;
        let explain = |error: Error| match error.kind() {
            _ if error.reason() == Some(Reason::NoSuchSnapshot) => Failure::from(error).hint(
                format!("run `bandsaw info {image_path}` to list the snapshots of its volumes"),
            ),
            Kind::Unsupported if error.reason().is_none() => Failure::from(error).hint(format!(
                "run `bandsaw attach --nomount {image_path}` to show the disk as a file to \
                 programs that read it"
            )),
            Kind::NotFound => Failure::from(error).hint(format!(
                "run `bandsaw info {image_path}` to see its contents"
            )),
            _ => advise(error, image_path),
        };
        opened.map(named).map_err(|error| {
            // A passphrase that nothing needed: the header of the bundle may be damaged.
            let is_doubtful = matches!(error.kind(), Kind::NotFound | Kind::Unsupported);
            if is_doubtful && self.unlocking.is_spare() {
                let path = Path::new(image_path);
                if let Err(damaged) =
                    open::KeyFile::open(path, Access::ReadOnly, self.network_options())
                    && damaged.kind() == Kind::Corrupt
                {
                    return damaged.into();
                }
            }
            explain(error)
        })
    }

    /// Opens the volume that an address names for changes.
    pub(crate) fn volume_mut(
        &self,
        image: &Image,
        address: &Address,
    ) -> bandsaw::Result<Arc<dyn FileSystemMut>> {
        image.file_system_mut_as(address.volume.as_ref(), Some(&self.unlocking))
    }

    /// Opens the volume that an address names for changes by programs.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn volume_to_mount(
        &self,
        image: &Image,
        address: &Address,
        output: &Output,
    ) -> bandsaw::Result<WritableVolume> {
        let which = address.volume.as_ref();
        WritableVolume::open(image, which, Some(&self.unlocking), &Bar::new(output))
    }

    /// Returns how many passphrases come from standard input before that of what the verb makes.
    pub(crate) fn on_stdin(&self) -> usize {
        self.unlocking.on_stdin()
    }

    /// Returns the source of the keys of encrypted volumes, which may ask for a passphrase.
    pub(crate) fn keys(&self) -> &dyn Keys {
        &self.unlocking
    }

    /// Returns the source of the keys of encrypted volumes if options give them.
    pub(crate) fn given_keys(&self) -> Option<&dyn Keys> {
        self.unlocking.gives_volume_key().then(|| self.keys())
    }

    /// Wipes passphrases from memory, once everything is open.
    pub(crate) fn forget_keys(&self) {
        self.unlocking.wipe();
    }

    /// Returns true if only a part of the disk is opened.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn is_partial(&self) -> bool {
        self.section.is_some()
    }

    /// The same options for a part of the disk.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn of_section(&self, section: Option<Section>) -> Self {
        Self {
            section,
            ..self.clone()
        }
    }

    /// The same options, with this date of changes. `None`: that of the clock.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are mounted on Linux alone")
    )]
    pub(crate) fn dated(&self, now: Option<Timestamp>) -> Self {
        Self {
            now,
            ..self.clone()
        }
    }

    /// The same options, which open damaged volumes for changes if `forced`.
    pub(crate) fn forced(&self, forced: bool) -> Self {
        Self {
            change_damaged: forced,
            ..self.clone()
        }
    }

    /// The same options with these layers over the image.
    pub(crate) fn with_layers(&self, layers: Vec<PathBuf>) -> Outcome<Self> {
        match self.shadows.is_empty() {
            true => Ok(Self {
                shadows: layers,
                ..self.clone()
            }),
            false => Err(Failure::usage(
                "--shadow",
                "name the layers after the base, without the option",
            )),
        }
    }
}

impl OpenArgs<ImageUnlockArgs> {
    /// Returns how many passphrases come from standard input before that of what the verb makes.
    pub(crate) fn on_stdin(&self) -> usize {
        self.unlocking.on_stdin()
    }
}

impl<U: Args + Keys + GivenPassphrase> OpenArgs<U> {
    /// Opens an image. For changes, sources that `--assume` names are first made to agree.
    pub(crate) fn open(&self, image: &ImagePath, access: Access) -> Outcome<Image> {
        let repaired = match access {
            Access::ReadWrite => self.prepare(image)?,
            Access::ReadOnly => None,
        };
        let mut opened =
            open::open(Path::new(image), &self.options(access)).map_err(|error| {
                match (
                    error.kind(),
                    error.reason(),
                    self.unlocking.passphrase_option(),
                ) {
                    (Kind::WrongKey, None, Some(option)) => {
                        Failure::from(error).hint(passphrase::wrong_hint(option))
                    }
                    _ => advise(error, image),
                }
            })?;
        repaired
            .into_iter()
            .for_each(|warning| opened.add_warning(warning));
        Ok(opened)
    }

    /// Opens an image for changes and prints warnings about it.
    pub(crate) fn change(&self, image: &ImagePath, output: &Output) -> Outcome<Image> {
        let opened = self.open(image, Access::ReadWrite)?;
        output.warn_of(&opened);
        Ok(opened)
    }

    /// Returns the choices of `--assume`.
    pub(crate) fn assumptions(&self) -> Outcome<Assumptions> {
        let mut assumed = Assumptions::default();
        self.assume.iter().try_for_each(|text| assumed.add(text))?;
        Ok(assumed)
    }

    /// Makes the sources that `--assume` names agree, as `bandsaw repair --assume` does. Returns
    /// what was done, for the user.
    pub(crate) fn prepare(&self, image: &ImagePath) -> Outcome<Option<String>> {
        if self.assume.is_empty() {
            return Ok(None);
        }
        self.repair(image, self.assumptions()?)
    }

    /// Repairs an image with these choices, and keeps undo data. Returns what was done, for the user.
    pub(crate) fn repair(&self, image: &ImagePath, assume: Assumptions) -> Outcome<Option<String>> {
        let chosen = repair::Options {
            mode: Mode::Apply,
            assume,
            temporary: std::env::temp_dir(),
            ..repair::Options::default()
        };
        let is_geometry_assumed = chosen.assume.size.is_some() || chosen.assume.band_size.is_some();
        let options = self.options(Access::ReadOnly);
        let done = repair::repair(Path::new(image), &options, &chosen, &Silent)
            .map_err(|error| advise(error, image))?;
        let refused =
            |message: &'static str| Error::new(Kind::Undecided, "--assume", message).in_file(image);
        match (done.outcome, done.undecided) {
            (repair::Outcome::Undecided, Some(error)) => Err(advise(error.in_file(image), image)),
            (repair::Outcome::Undecided, None) => {
                Err(refused("a decision is required; nothing was changed").into())
            }
            (repair::Outcome::LossRefused, _) if is_geometry_assumed => {
                let message = "the assumed size cuts off a volume; nothing was changed";
                Err(Failure::from(refused(message)).hint(format!(
                    "omit --assume, or run `bandsaw repair {image}` to see the alternatives"
                )))
            }
            (repair::Outcome::LossRefused, _) => {
                let error = refused("a volume would lose files; nothing was changed");
                Err(Failure::from(error).hint(format!(
                    "run `bandsaw repair --accept-loss {image}` to repair it nevertheless"
                )))
            }
            (repair::Outcome::NothingToDo, _) => Ok(None),
            (repair::Outcome::Repaired, _) => {
                let steps: Vec<_> = done
                    .steps
                    .iter()
                    .map(|(layer, step)| format!("{layer}: {step}"))
                    .collect();
                let undo = done.undo.map_or_else(String::new, |undo| {
                    format!("; undo data: {}", undo.display())
                });
                Ok(Some(format!("repaired: {}{undo}", steps.join("; "))))
            }
        }
    }

    /// Returns the options for `open` and `trace` of the library.
    pub(crate) fn options(&self, access: Access) -> OpenOptions<'_> {
        OpenOptions {
            access,
            image_format: self.image_format,
            keys: Some(&self.unlocking),
            shadows: &self.shadows,
            checkpoint: self.checkpoint,
            section: self.section,
            logical_volume: self.logical_volume.as_deref(),
            physical_volumes: &self.physical_volumes,
            cache: self.catalog_memory.map_or(DEFAULT_CACHE, |bytes| {
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }),
            system_files: self.system_files,
            now: self.now,
            network: self.network_options(),
            change_damaged: self.change_damaged,
            assume: Some(
                self.assumed
                    .get_or_init(|| self.assumptions().unwrap_or_default()),
            ),
        }
    }

    /// Returns the options for remote images.
    pub(crate) fn network_options(&self) -> NetworkOptions<'_> {
        self.network_args.options()
    }
}

/// Checks one choice of `--assume`.
fn choice(text: &str) -> bandsaw::Result<String> {
    Assumptions::default().add(text)?;
    Ok(text.to_owned())
}
