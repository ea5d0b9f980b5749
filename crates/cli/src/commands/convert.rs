//! `bandsaw convert`: the same disk in another container.
//!
//! One file, as the options decide together which of three ways a copy goes: to a file, over its
//! source, or to standard output.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bandsaw::container::{ContainerKind, Format};
use bandsaw::crypt::{Encryption, Secret};
use bandsaw::decision::Undecided;
use bandsaw::error::ImagePart;
use bandsaw::open::Image;
use bandsaw::ops::convert::{ConvertOptions, CopyCounts, convert, resume, stream};
use bandsaw::ops::describe::ImageInfo;
use bandsaw::ops::orphans;
use bandsaw::platform::{hidden_name, own_suffix};
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind, Reason, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::check::COPY_AGAIN;
use crate::checksum_args::VERIFY_HINT;
use crate::container_args::{self, Container, file_mode};
use crate::encryption_args::{Cipher, DecryptArgs, NewEncryptionArgs};
use crate::failure::{Advise, Failure, Outcome};
use crate::new_archive_args::{NewArchiveArgs, is_archive};
use crate::output::Output;
use crate::passphrase::NewPassphrase;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::{image_report, info_text, missing_contents};

/// Convert an image to another format or band size
///
/// The new image contains the same disk. The source is not changed. The target appears in its place
/// only when it is complete.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw convert disk.img Disk.sparsebundle                   raw image to sparse bundle
  bandsaw convert Disk.sparsebundle disk.dmg                   sparse bundle to raw image
  bandsaw convert vm.asif vm.img                               ASIF to raw image
  bandsaw convert App.dmg App.sparsebundle                     compressed to writable
  bandsaw convert Docs.sparsebundle docs.dmg --format udzo --level 9
                                                               compress for distribution
  bandsaw convert --band-size 64m Old.sparsebundle New.sparsebundle
  bandsaw convert Backup.sparsebundle - | zstd > backup.zst     raw disk to standard output
  bandsaw convert --resume /dev/sdb Old.sparsebundle           resumable; run it again to resume
  bandsaw convert Docs.sparsebundle s3://backups/Docs.sparsebundle        upload to a bucket
  bandsaw convert --skip-free Disk.sparsebundle disk.dmg --format udzo     skip deleted files
  bandsaw convert --format udsb disk.img backup --overwrite    with an explicit format
  bandsaw convert --encrypt disk.img Secret.sparsebundle       encrypt; asks for a passphrase
  bandsaw convert --decrypt --passfile key Secret.dmg plain.img
  bandsaw convert --re-encrypt Old.dmg New.sparsebundle        new keys and passphrase
  bandsaw convert Docs.sparsebundle docs.dmg.aea --new-aea-key key       encrypted archive
  bandsaw convert Docs.dmg docs.dmg.aea --aea-recipient public.pem       for the owner of its key
  printf 'old\\0new\\0' | bandsaw convert --re-encrypt --stdinpass --new-stdinpass Old.dmg New.dmg")]
pub(crate) struct Convert {
    /// The image to read
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: OsString,
    /// The image to make; - writes to standard output
    ///
    /// Standard output takes a raw image or one of the read-only formats.
    #[arg(value_name = "TARGET", required_unless_present = "output")]
    pub(crate) target: Option<PathBuf>,
    /// The same as TARGET
    #[arg(long, short, value_name = "TARGET", conflicts_with = "target")]
    pub(crate) output: Option<PathBuf>,
    /// Make the conversion resumable, and resume one
    ///
    /// Progress is kept in a hidden file beside TARGET if the conversion is interrupted or killed.
    /// The same command resumes it.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Convert a signed image, and drop its signature
    ///
    /// Only compressed images can be signed, and the new one is not.
    #[arg(long)]
    pub(crate) remove_signature: bool,
    /// Do not compare the source with the checksums stored in it
    #[arg(long, visible_alias = "ignore-checksums", alias = "ignorebadchecksums")]
    pub(crate) no_verify: bool,
    /// Skip blocks that no volume uses
    ///
    /// They become zeros in the new image, and deleted files cannot be recovered from it.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) skip_free: bool,
    #[command(flatten)]
    pub(crate) container: Container,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArgs,
    #[command(flatten)]
    pub(crate) archive: NewArchiveArgs,
}

/// The encryption of the new image.
#[derive(Debug, Default, Args)]
pub(crate) struct EncryptionArgs {
    /// Encrypt the new image with aes-256 (default) or aes-128
    ///
    /// The new image gets new keys.
    #[arg(
        long,
        value_name = "CIPHER",
        num_args = 0..=1,
        default_missing_value = "aes-256",
        hide_possible_values = true,
        conflicts_with = "decrypt",
        help_heading = "Encryption",
        display_order = 700
    )]
    pub(crate) encrypt: Option<Cipher>,
    #[command(flatten)]
    pub(crate) decrypting: DecryptArgs,
    /// Encrypt an encrypted image with new keys
    ///
    /// The keys have the same length as before. Old headers and passphrases cannot open the new
    /// image.
    #[arg(
        long,
        conflicts_with_all = ["encrypt", "decrypt"],
        help_heading = "Encryption",
        display_order = 701
    )]
    pub(crate) re_encrypt: bool,
    #[command(flatten)]
    pub(crate) encrypting: NewEncryptionArgs,
    #[command(flatten)]
    pub(crate) new: NewPassphrase,
}

impl EncryptionArgs {
    /// Returns the encryption of the new image, after asking for its passphrase. `old` is the length
    /// of the source's key in bits, if it is encrypted.
    pub(crate) fn choose(
        &self,
        old: Option<u32>,
        opening: &OpenArgs,
    ) -> Outcome<Option<Encryption>> {
        let cipher = match (self.encrypt, old) {
            (Some(cipher), _) => cipher,
            (None, Some(old)) if self.re_encrypt => Cipher::of_bits(old),
            (None, None) if self.re_encrypt => Cipher::Aes256,
            _ => {
                return match self.encrypting.given().or(self.new.given()) {
                    Some(option) => {
                        Err(Failure::usage(option, "requires --encrypt or --re-encrypt"))
                    }
                    None => Ok(None),
                };
            }
        };
        let passphrase = || self.new_passphrase(opening);
        self.encrypting.with(cipher, passphrase).map(Some)
    }

    /// Returns the passphrase of the new image or archive, which may be asked for.
    pub(super) fn new_passphrase(&self, opening: &OpenArgs) -> Outcome<Secret> {
        (self.new.choose(opening.on_stdin())).advise(Kind::WrongKey, || {
            "use --new-passfile FILE, --new-passfd N, --new-passenv NAME or --new-stdinpass for the passphrase of the \
             new image; those without `new-` open the source"
                .to_owned()
        })
    }

    /// Refuses to write the plain text of an encrypted image without the option that permits it.
    pub(crate) fn check(&self, source: &Image) -> Outcome {
        if self.encrypt.is_some() || self.re_encrypt {
            return Ok(());
        }
        self.decrypting
            .check(source)
            .map_err(|refused| refused.hint("use --re-encrypt to encrypt the copy with new keys"))
    }
}

/// The output of `--json`, on standard error if the image goes to standard output.
#[derive(Serialize)]
pub(crate) struct StreamReport {
    format: &'static str,
    size: u64,
    read_size: u64,
    written_size: u64,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ConvertReport {
    #[serde(flatten)]
    image: ImageInfo,
    read_size: u64,
    written_size: u64,
    /// True if `--resume` found the image complete.
    was_complete: bool,
}

impl Convert {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let Some(target) = self.target.as_deref().or(self.output.as_deref()) else {
            return Err(Failure::usage("TARGET", "a target is required"));
        };
        if target.as_os_str() == "-" {
            if let Some(option) = self.archive.given() {
                return Err(Failure::usage(
                    option,
                    "cannot be used with standard output",
                ));
            }
            if self.skip_free {
                return Err(Failure::usage(
                    "--skip-free",
                    "cannot be used with standard output",
                ));
            }
            if self.resume {
                return Err(Failure::usage(
                    "--resume",
                    "output to a pipe cannot be resumed",
                ));
            }
            return self.to_standard_output(&output.aside());
        }
        let target = container_args::new_image_path(target)?;
        let is_same = is_same(self.source.as_ref(), &target);
        if is_archive(&target) {
            return self.to_archive(&target, is_same, output);
        }
        if let Some(option) = self.archive.given() {
            return Err(Failure::usage(
                option,
                "requires a target that ends in .aea",
            ));
        }
        let refused = |hint: &'static str| {
            let error = Error::conflict("convert", "source and target are the same image");
            Err(Failure::from(error.in_file(&target)).hint(hint))
        };
        if is_same && (target.is_dir() || self.resume) {
            return refused("name another target");
        }
        if is_same && !self.container.overwrite {
            return refused("use --overwrite to replace it, or name another target");
        }
        let format = self.container.format(&target)?;
        if is_same && format.container() == ContainerKind::Bundle {
            return refused("name another target");
        }
        let source = self.source(format, output)?;
        let doubt = orphans::doubt(&source, &Bar::new(output))?;
        if let Some(doubt) = doubt.as_ref().filter(|_| is_same) {
            return Err(Undecided {
                what: format!("contents may be missing from the result: {doubt}"),
                alternatives: Vec::new(),
            }
            .into_error("convert")
            .in_file(source.path())
            .into());
        }
        if is_same && source.udif().is_some_and(|udif| udif.segment().count > 1) {
            return refused("name another target");
        }
        let encryption = self.chosen_encryption(&source)?;
        let target = match is_same {
            true => Target::Source(target.into_owned()),
            false => Target::New(target.into_owned()),
        };
        self.to_file(&source, &target, format, encryption, output)?;
        missing_contents::warn(&source, doubt)
    }

    fn chosen_encryption(&self, source: &Image) -> Outcome<Option<Encryption>> {
        let old = source.encryption().map(|old| old.key_bits);
        self.encryption.choose(old, &self.opening)
    }

    fn source(&self, format: Format, output: &Output) -> Outcome<Image> {
        self.opened(format, false, output)
    }

    /// Opens the source. `is_protected` is true if the copy is encrypted whatever the options of encryption are.
    pub(super) fn opened(
        &self,
        format: Format,
        is_protected: bool,
        output: &Output,
    ) -> Outcome<Image> {
        let source = self.opening.read(&source::image(&self.source)?, output)?;
        let option = match source.encryption() {
            None if self.encryption.re_encrypt && !is_encrypted_archive(&source) => {
                Some("--re-encrypt")
            }
            _ if self.encryption.decrypting.decrypt && !source.is_secret() => Some("--decrypt"),
            _ => None,
        };
        if let Some(option) = option {
            return Err(Failure::usage(option, "the source is not encrypted")
                .hint("use --encrypt to create an encrypted copy"));
        }
        let is_signed = source.udif().is_some_and(|udif| udif.signature().is_some());
        if is_signed && !self.remove_signature && !format.is_udif() {
            output.warn("the code signature of the source is not copied");
        }
        if !is_protected {
            self.encryption.check(&source)?;
        }
        Ok(source)
    }

    fn to_file(
        &self,
        source: &Image,
        target: &Target,
        format: Format,
        encryption: Option<Encryption>,
        output: &Output,
    ) -> Outcome {
        let options = self.options(format, encryption)?;
        let bar = Bar::new(output);
        let work = if self.resume { resume } else { convert };
        let place = target.draft_path()?;
        let made = work(source, &place, &options, &bar).map_err(|error| self.advise(error))?;
        // Before the source is replaced, because a copy that cannot be read must not replace it.
        let mut report = image_report::of_copy(&made.image, &bar)?;
        if let Target::Source(path) = target {
            replace(path, &place)?;
            report.path = path.display().to_string();
        }
        drop(bar);
        image_report::warn(&report, output);
        for volume in made.image.volumes() {
            if let Some(damage) = volume.find_damage()? {
                output.warn_of_loss(&format!(
                    "the copy is complete, but its volume is damaged: {damage}"
                ));
            }
        }
        let CopyCounts {
            read: bytes_read,
            written: bytes_written,
        } = made.copied;
        let was_complete = made.was_complete;
        let converted = ConvertReport {
            image: report,
            read_size: bytes_read,
            written_size: bytes_written,
            was_complete,
        };
        output.done(&converted, |out| {
            info_text::write(&converted.image, output, out)?;
            if was_complete {
                return writeln!(
                    out,
                    "\nalready complete: the target contains the disk of the source"
                );
            }
            writeln!(
                out,
                "\nread {:#}, wrote {:#}",
                size::display(bytes_read),
                size::display(bytes_written)
            )
        })
    }

    pub(super) fn options(
        &self,
        format: Format,
        encryption: Option<Encryption>,
    ) -> Outcome<ConvertOptions> {
        let Container {
            round,
            mode,
            overwrite,
            ..
        } = self.container;
        let Self {
            remove_signature,
            no_verify,
            skip_free,
            ..
        } = *self;
        let (sector_size, level) = (self.container.sector_size(), self.container.level()?);
        let band_size = self.container.band_size;
        Ok(ConvertOptions {
            format,
            band_size,
            sector_size,
            level,
            overwrite,
            skip_free,
            encryption,
            remove_signature,
            no_verify,
            resources: Vec::new(),
            network: self.opening.network_options().without_cache(),
            mode: mode.map(file_mode),
            round_band_size: round,
        })
    }

    pub(super) fn advise(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Corrupt if error.image_part() == ImagePart::Udif => {
                Failure::from(error).hint(match self.no_verify {
                    true => COPY_AGAIN,
                    false => VERIFY_HINT,
                })
            }
            Kind::Cancelled if self.resume => {
                Failure::from(error).hint("run the command again to resume")
            }
            Kind::Conflict if error.reason() == Some(Reason::PartialExists) => error.into(),
            _ => container_args::advise(error, &self.container),
        }
    }

    fn to_standard_output(&self, output: &Output) -> Outcome {
        let out = standard_output("TARGET")?;
        let format = self.container.asked_format().unwrap_or_default();
        let source = self.source(format, output)?;
        let doubt = orphans::doubt(&source, &Silent)?;
        let bar = Bar::new(output);
        let options = self.options(format, self.chosen_encryption(&source)?)?;
        let copied = stream(&source, &options, Path::new("."), out, &bar)
            .map_err(|error| self.advise(error))?;
        drop(bar);
        let streamed = StreamReport::new(format, source.disk().info().len, copied);
        output.done(&streamed, |out| streamed.write(out))?;
        missing_contents::warn(&source, doubt)
    }
}

impl StreamReport {
    /// Describes a disk of `size` bytes that was written to standard output.
    pub(crate) fn new(format: Format, size: u64, copied: CopyCounts) -> Self {
        Self {
            format: format.code(),
            size,
            read_size: copied.read,
            written_size: copied.written,
        }
    }

    /// Writes the amounts as text.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:#}, read {:#}, wrote {:#}",
            size::display(self.size),
            size::display(self.read_size),
            size::display(self.written_size)
        )
    }
}

/// The file that a conversion writes.
enum Target {
    New(PathBuf),
    /// The source itself, which the complete copy replaces.
    Source(PathBuf),
}

impl Target {
    /// Returns the path of the copy until it is complete.
    fn draft_path(&self) -> Outcome<Cow<'_, Path>> {
        match self {
            Self::New(path) => Ok(path.into()),
            Self::Source(path) => {
                let real = path
                    .canonicalize()
                    .map_err(|error| Error::io("convert", "find", error).in_file(path))?;
                let suffix = format!(".new-{}", own_suffix());
                let name = hidden_name(real.file_name().unwrap_or_default(), &suffix);
                Ok(real.with_file_name(name).into())
            }
        }
    }
}

/// Replaces the source of a conversion by its complete copy. The source is still open, so no other
/// program can be changing it.
fn replace(source: &Path, copy: &Path) -> Outcome {
    let renamed = source
        .canonicalize()
        .and_then(|real| fs::rename(copy, real))
        .map_err(|error| Error::io("convert", "replace the source", error).in_file(source));
    if renamed.is_err() {
        let _ = fs::remove_file(copy);
    }
    Ok(renamed?)
}

fn is_encrypted_archive(source: &Image) -> bool {
    let archive = source.archive();
    archive.is_some_and(|archive| archive.description.profile.is_encrypted())
}

fn is_same(source: &Path, target: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(source).is_some_and(|source| Some(source) == real(target))
}

/// Returns standard output as a file for an image. `argument` names what asks for it.
pub(crate) fn standard_output(argument: &'static str) -> Outcome<File> {
    if io::stdout().is_terminal() {
        return Err(Failure::usage(argument, "standard output is a terminal")
            .hint("redirect it to a file or pipe"));
    }
    let out = io::stdout().as_fd().try_clone_to_owned();
    let out = out.map_err(|error| Error::io("standard output", "use standard output", error))?;
    Ok(File::from(out))
}
