//! `bandsaw create`: new images, blank or filled from a folder or an archive.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bandsaw::crypt::Encryption;
use bandsaw::fs::Timestamp;
use bandsaw::ops::compress::FileReport;
use bandsaw::ops::create::{
    CreateOptions, Layout, NewVolume, Source, create, default_volume_name, stream,
};
use bandsaw::ops::format::{DefaultFormat, FormatRequirements, NewFormat};
use bandsaw::{Error, Kind, Reason, size};
use clap::Args;
use serde::Serialize;

use crate::commands::convert::{StreamReport, standard_output};
use crate::compression_args::{CompressionArgs, Totals};
use crate::container_args::{self, Container};
use crate::encryption_args::{Cipher, NewEncryptionArgs};
use crate::failure::{Failure, Outcome};
use crate::headings::COMPRESSION;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::passphrase::Passphrase;
use crate::progress::Bar;
use crate::volume_encryption_args::{NewVolumeKeys, RecoveryKey, VolumeEncryptionArgs};
use crate::{image_report, info_text};

/// Create an image, blank or filled from a folder or archive
///
/// With --fs, --volname or --from the image gets a volume, which is APFS unless --fs says
/// otherwise; systems before macOS 10.13 read only HFS+. Without these options the disk is blank.
/// The image is written under a temporary name and renamed when it is complete; after a failure
/// no file is left.
///
/// --encrypt encrypts the image with new keys, which the passphrase unlocks. The format protects
/// confidentiality, not integrity: it does not detect changes.
///
/// --encrypt-volume encrypts the volume, as FileVault does. It hides names and contents of files,
/// but not their total size. The passphrase unlocks it, and with --recovery-key-file a recovery
/// key. Both kinds of encryption can be combined.
///
/// If SOURCE_DATE_EPOCH is set, the same source gives the same image, bit for bit, unless it is
/// encrypted.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw create Docs.sparsebundle --from ~/Documents           as large as necessary
  bandsaw create New.sparsebundle --size 20g --volname Docs     an empty APFS volume
  bandsaw create Docs.sparsebundle --size 100g --fs hfs+ --band-size 64m --from ~/Documents
  tar c -C build . | bandsaw create app.dmg --volname App --from -
  bandsaw create - --format udzo --from build | ssh host 'cat > app.dmg'
  bandsaw create disk.img --size 100m                           a blank raw disk
  bandsaw create vm.asif --size 64g                             a blank ASIF image
  bandsaw create Old.sparseimage --size 4g --volname Old        for systems before macOS 26
  bandsaw create app.dmg --from build --layout none --overwrite
  bandsaw create app.dmg --from build --compress lzfse          with compressed files
  bandsaw create --encrypt Secret.sparsebundle --size 20g       asks for a passphrase
  bandsaw create --encrypt aes-128 --passfile key Secret.sparsebundle --from ~/Documents
  bandsaw create --encrypt-volume --recovery-key-file key.txt Vault.sparsebundle --size 20g
  bandsaw create s3://backups/Docs.sparsebundle --size 2t       in a bucket")]
pub(crate) struct Create {
    /// The image to create; - for standard output
    ///
    /// Raw images (the default) and compressed ones can be written to standard output or a pipe. The
    /// results are then printed on standard error. An encrypted compressed image is first written to a
    /// temporary file in the working folder.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
    /// Set the size of the disk, as 8m, 8MiB, 8MB or 16384s
    ///
    /// The default is the space that the files need, with some room.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: Option<u64>,
    /// Set the file system, such as apfs, hfs+ or none
    ///
    /// File systems are apfs, apfs-case-sensitive, hfs+, hfs+j (with a journal), hfsx
    /// (case-sensitive), hfsx+j, fat (or fat12, fat16, fat32), exfat, and hdiutil's other names for
    /// these. FAT and exFAT hold neither links nor permissions. The default with --from,
    /// --volname or --encrypt-volume is apfs, or hfs+ if the disk is too small for APFS or
    /// --block-size requires it.
    #[arg(long, value_name = "FS")]
    pub(crate) fs: Option<FileSystemArg>,
    /// Set the name of the volume
    ///
    /// The default is the name of the folder or archive, or untitled.
    #[arg(long, value_name = "NAME")]
    pub(crate) volname: Option<String>,
    /// Add another, empty volume to an APFS container
    ///
    /// The option may be given several times.
    #[arg(long = "volume", value_name = "NAME", hide_short_help = true)]
    pub(crate) volumes: Vec<String>,
    /// Fill the volume from a folder or tar archive; - for stdin
    ///
    /// With - a tar archive is read from standard input.
    #[arg(long, value_name = "SOURCE", visible_alias = "srcfolder")]
    pub(crate) from: Option<PathBuf>,
    /// Set the partition map: gptspud, spud, mbrspud or none
    ///
    /// gptspud is a GUID partition table (GPT) with one partition, the default for Apple's file
    /// systems; spud is an Apple partition map, which cannot hold FAT and exFAT; mbrspud is a master
    /// boot record, their default, which cannot hold APFS; with none the volume takes the whole disk.
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,
    /// Set the allocation block size, a power of two from 512
    ///
    /// The default is the one of Apple's formatter.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, hide_short_help = true)]
    pub(crate) block_size: Option<u64>,
    #[command(flatten)]
    pub(crate) container: Container,
    /// List every file that is compressed or skipped
    #[arg(
        long,
        short,
        requires = "compress",
        help_heading = COMPRESSION
    )]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) compressing: CompressionArgs,
    /// Encrypt the image with aes-256 (default) or aes-128
    #[arg(
        long,
        value_name = "CIPHER",
        num_args = 0..=1,
        default_missing_value = "aes-256",
        hide_possible_values = true,
        help_heading = "Encryption",
        display_order = 700
    )]
    pub(crate) encrypt: Option<Cipher>,
    /// Write an encrypted raw image sparsely
    ///
    /// Blocks of a blank disk become holes, which read as noise, instead of being written.
    #[arg(
        long,
        requires = "encrypt",
        help_heading = "Encryption",
        display_order = 704,
        hide_short_help = true
    )]
    pub(crate) thin: bool,
    #[command(flatten)]
    pub(crate) encrypting: NewEncryptionArgs,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    #[command(flatten)]
    pub(crate) encrypting_volume: VolumeEncryptionArgs,
    #[command(flatten)]
    pub(crate) network_args: NetworkArgs,
}

/// The output of `--json`: that of `info`, or of a conversion to standard output, and the results of
/// compression.
#[derive(Serialize)]
struct CreateReport<T> {
    #[serde(flatten)]
    image: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed: Option<Totals>,
}

impl<T> CreateReport<T> {
    /// Writes what follows the properties of the image.
    fn write_rest(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        self.recovery_key
            .iter()
            .try_for_each(|key| writeln!(out, "recovery key: {key}"))?;
        self.compressed
            .iter()
            .try_for_each(|totals| totals.write("compressed", output, out))
    }
}

/// A file system to make, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSystemArg(pub(crate) Option<NewFormat>);

impl FromStr for FileSystemArg {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.eq_ignore_ascii_case("none") {
            Ok(Self(None))
        } else {
            text.parse().map(|format| Self(Some(format)))
        }
    }
}

impl Create {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = container_args::new_image_path(&self.image)?;
        let format = if self.is_streamed() {
            self.container.asked_format().unwrap_or_default()
        } else {
            self.container.format(&image)?
        };
        let mut options = CreateOptions {
            format,
            len: self
                .size
                .map(|size| whole_sectors(size, self.container.sector_size(), output)),
            band_size: self.container.band_size,
            sector_size: self.container.sector_size(),
            level: None,
            overwrite: self.container.overwrite,
            volume: self.volume(output)?,
            more_volumes: self.volumes.clone(),
            compress: self.compressing.options(self.container.asked_level())?,
            epoch: epoch()?,
            encryption: None,
            volume_encryption: None,
            thin: self.thin,
            opens: false,
            look: None,
            resources: Vec::new(),
            network: self.network_args.options().without_cache(),
            mode: self.container.mode.map(container_args::file_mode),
            round_band_size: self.container.round,
        };
        // With --compress, --level is the level of the files, and of the image if it is compressed.
        if options.compress.is_none() || options.format.is_udif() {
            options.level = self.container.level()?;
        }
        if options.compress.is_some() && self.from.is_none() {
            return Err(Failure::usage("--compress", "requires --from"));
        }
        if options.volume.is_none() && self.size.is_none() {
            let image = bandsaw::address::shown(&self.image);
            return Err(Failure::usage(
                "create",
                "a blank disk requires --size; a volume requires --from, --fs or --volname",
            )
            .hint(format!(
                "`bandsaw create {image} --size 1g` makes a blank disk, `bandsaw create {image} --size 1g --volname Data` an \
                 empty volume, `bandsaw create {image} --from FOLDER` a volume with files"
            )));
        }
        // The passphrase is asked for only when all other options are valid.
        options.encryption = self.encryption()?;
        let volume_encryption = self
            .encrypting_volume
            .choose(self.passphrase.on_stdin(), self.encrypting.iterations())?;
        options.volume_encryption = volume_encryption
            .as_ref()
            .map(|chosen| chosen.encryption.clone());
        if options.encryption.is_some() && !self.thin && options.format.is_plain() {
            output.warn(
                "an encrypted raw image allocates the whole disk; use udsb, udsp or asif \
                         to allocate used space only",
            );
        }
        let recovery_key = volume_encryption
            .map(NewVolumeKeys::store_recovery_key)
            .transpose()?
            .flatten();
        if self.is_streamed() {
            return self.to_standard_output(options, recovery_key, output);
        }
        let bar = Bar::new(output);
        let made = create(&image, options, &bar).map_err(|error| self.advise(error))?;
        let recovery_key = recovery_key.and_then(RecoveryKey::keep);
        let facts = image_report::of_image(&made.image, &bar)?;
        drop(bar);
        image_report::warn(&facts, output);
        let facts = CreateReport {
            image: facts,
            recovery_key,
            compressed: self.totals(made.compressed),
        };
        output.done(&facts, |out| {
            info_text::write(&facts.image, output, out)?;
            facts.write_rest(output, out)
        })
    }

    /// Returns the sums of compressed files, if compression was requested.
    fn totals(&self, reports: Vec<FileReport>) -> Option<Totals> {
        self.compressing.is_wanted().then(|| {
            let mut totals = Totals::default();
            reports
                .into_iter()
                .for_each(|report| totals.add(report, self.verbose));
            totals
        })
    }

    fn is_streamed(&self) -> bool {
        self.image.as_os_str() == "-"
    }

    /// Writes the image to standard output. Temporary data, if there is any, is in the working
    /// folder.
    fn to_standard_output(
        &self,
        options: CreateOptions,
        recovery_key: Option<RecoveryKey>,
        output: &Output,
    ) -> Outcome {
        let format = options.format;
        let out = standard_output("IMAGE")?;
        let bar = Bar::new(output);
        let made =
            stream(Path::new("."), options, out, &bar).map_err(|error| self.advise(error))?;
        drop(bar);
        let output = &output.aside();
        let facts = CreateReport {
            image: StreamReport::new(format, made.len, made.copied),
            recovery_key: recovery_key.and_then(RecoveryKey::keep),
            compressed: self.totals(made.compressed),
        };
        output.done(&facts, |out| {
            facts.image.write(out)?;
            facts.write_rest(output, out)
        })
    }

    /// Returns the encryption of the image, after asking for its passphrase.
    fn encryption(&self) -> Outcome<Option<Encryption>> {
        let Some(cipher) = self.encrypt else {
            let given = self.encrypting.given().filter(|option| {
                !(self.encrypting_volume.is_wanted() && *option == "--iterations")
            });
            return match given.or(self.passphrase.given()) {
                Some(option) if self.encrypting_volume.is_wanted() => {
                    let hint = option.strip_prefix("--").map_or_else(
                        || "use --volume-passfile FILE for the passphrase of the volume".to_owned(),
                        |name| format!("use --volume-{name} for the passphrase of the volume"),
                    );
                    Err(Failure::usage(option, "requires --encrypt").hint(hint))
                }
                Some(option) => Err(Failure::usage(option, "requires --encrypt")),
                None => Ok(None),
            };
        };
        if fs::symlink_metadata(&self.image).is_ok() && !self.container.overwrite {
            let exists = Error::conflict("create", "already exists").because(Reason::Exists);
            return Err(container_args::advise(
                exists.in_file(&self.image),
                &self.container,
            ));
        }
        let passphrase = || (self.passphrase.choose(0)).map_err(container_args::advise_passphrase);
        self.encrypting.with(cipher, passphrase).map(Some)
    }

    /// Returns the requested volume; `None` for a blank disk.
    fn volume(&self, output: &Output) -> Outcome<Option<NewVolume>> {
        if !self.has_volume() {
            let given = [
                ("--from", self.from.is_some()),
                ("--volname", self.volname.is_some()),
                ("--volume", !self.volumes.is_empty()),
                (
                    "--layout",
                    self.layout.is_some_and(|layout| layout != Layout::None),
                ),
                ("--block-size", self.block_size.is_some()),
                ("--encrypt-volume", self.encrypting_volume.is_wanted()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(Failure::usage(
                    option,
                    "requires a volume, and the disk is blank",
                )
                .hint("use --fs hfs+ to create a volume")),
                None => Ok(None),
            };
        }
        let format = match self.fs {
            Some(FileSystemArg(Some(format))) => format,
            _ => self.usual_format(output)?,
        };
        Ok(Some(NewVolume {
            layout: self.layout.unwrap_or(format.usual_layout()),
            name: self
                .volname
                .clone()
                .unwrap_or_else(|| default_volume_name(self.from.as_deref())),
            format,
            block_size: self
                .block_size
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            source: self.source()?,
        }))
    }

    fn has_volume(&self) -> bool {
        let wanted =
            self.from.is_some() || self.volname.is_some() || self.encrypting_volume.is_wanted();
        self.fs
            .map_or(wanted, |FileSystemArg(format)| format.is_some())
    }

    /// Returns the default file system, with a warning if it is not APFS.
    fn usual_format(&self, output: &Output) -> Outcome<NewFormat> {
        let chosen = DefaultFormat::of_image(&FormatRequirements {
            layout: self.layout.unwrap_or_default(),
            sector: self.container.sector_size().unwrap_or(512),
            disk_len: self.size,
            block_size: self.block_size,
            requires_apfs: self.encrypting_volume.is_wanted() || !self.volumes.is_empty(),
        })?;
        if let Some(why) = chosen.reason {
            let format = chosen.format;
            output.warn(&format!(
                "the volume is {format}: {why}; use --fs to choose the file system"
            ));
        }
        Ok(chosen.format)
    }

    fn source(&self) -> Outcome<Source> {
        match &self.from {
            None => Ok(Source::Empty),
            Some(path) if path.as_os_str() != "-" => Ok(Source::at(path.clone())),
            Some(_) if io::stdin().is_terminal() => {
                Err(Failure::usage("--from", "standard input is a terminal")
                    .hint("pipe a tar archive to standard input"))
            }
            Some(_) => Ok(Source::TarStream(Box::new(io::stdin()))),
        }
    }

    fn advise(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Limit if self.size.is_some() && self.has_volume() => {
                let hint = match self.fs {
                    Some(_) => {
                        "use a larger --size, or omit it: the image is then as large as the files \
                         require"
                    }
                    None => {
                        "use a larger --size, or omit it: the image is then as large as the files \
                         require; --fs hfs+ requires less than apfs"
                    }
                };
                Failure::from(error.in_file(&self.image)).hint(hint)
            }
            Kind::Corrupt if error.reason() == Some(Reason::NotAnArchive) => {
                Failure::from(error).hint("use a folder or a tar archive as the source")
            }
            _ => container_args::advise(error, &self.container),
        }
    }
}

/// Rounds a size up to whole sectors, with a warning: few decimal sizes, such as 10MB, are whole
/// sectors.
fn whole_sectors(size: u64, sector_size: Option<u32>, output: &Output) -> u64 {
    let sector = sector_size.map_or(size::SECTOR, u64::from).max(1);
    let whole = size.checked_next_multiple_of(sector).unwrap_or(size);
    if whole != size {
        output.warn(&format!(
            "--size is rounded up from {size} to {whole} bytes, whole sectors of {sector}"
        ));
    }
    whole
}

/// Returns the date of SOURCE_DATE_EPOCH, if that is set.
pub(crate) fn epoch() -> Outcome<Option<Timestamp>> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(text) = std::env::var_os(NAME).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| Failure::usage(NAME, "expected seconds since 1970"))?;
    Ok(Some(Timestamp::from_seconds(seconds)))
}
