//! `bandsaw format`: a new, empty volume in an existing image.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::address::ImagePath;
use bandsaw::ops::create::UNTITLED;
use bandsaw::ops::format::{DefaultFormat, FormatOptions, Formatted, NewFormat, format};
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::create::epoch;
use crate::failure::{Failure, Outcome};
use crate::info_writer::exact;
use crate::output::Output;
use crate::passphrase::{ImageUnlockArgs, Iterations};
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::volume_encryption_args::{NewVolumeKeys, RecoveryKey, VolumeEncryptionArgs};

/// Create an empty volume in an image
///
/// The volume takes one partition, whose type in a GPT is adjusted, or the whole of a disk without
/// a partition map. Space that contains data is refused unless --erase is given; then the data is
/// lost, and its space is given back to the host.
///
/// --encrypt-volume encrypts the new volume as FileVault does; see `bandsaw create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw format blank.img --fs hfs+j --volname Docs
  bandsaw format disk.img:#2 --fs apfs --volname Data      the second partition
  bandsaw format Docs.sparsebundle --erase                 delete all files
  bandsaw format card.img:#1 --fs hfsx --block-size 16k
  bandsaw format Vault.sparsebundle --encrypt-volume --recovery-key-file key.txt")]
pub(crate) struct Format {
    /// The image, or a part of it: IMAGE:#NUMBER or IMAGE:NAME
    ///
    /// #NUMBER is a partition, NAME a volume.
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    volume: OsString,
    /// Set the file system, such as hfs+ or apfs
    ///
    /// File systems are apfs, apfs-case-sensitive, hfs+, hfs+j (with a journal), hfsx
    /// (case-sensitive), hfsx+j, fat (or fat12, fat16, fat32), exfat, and hdiutil's other names for
    /// these. The default is hfs+, or apfs with --encrypt-volume.
    #[arg(long, value_name = "FS")]
    fs: Option<NewFormat>,
    /// Set the name of the volume
    #[arg(long, value_name = "NAME", default_value = UNTITLED)]
    volname: String,
    /// Set the allocation block size, a power of two from 512
    ///
    /// The default is the one of Apple's formatter.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    block_size: Option<u64>,
    /// Overwrite existing data
    #[arg(long)]
    erase: bool,
    #[command(flatten)]
    opening: OpenArgs<ImageUnlockArgs>,
    #[command(flatten)]
    encrypting_volume: VolumeEncryptionArgs,
    #[command(flatten)]
    iterations: Iterations,
}

/// The output of `--json`.
#[derive(Serialize)]
struct FormatReport {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    /// The word that `--fs` takes.
    file_system: String,
    name: String,
    size: u64,
    block_size: u32,
    free: u64,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_key: Option<String>,
    #[serde(skip)]
    place: String,
}

impl Format {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let encrypted = self.encrypting_volume.is_wanted();
        if !encrypted && self.iterations.is_given() {
            return Err(Failure::usage("--iterations", "requires --encrypt-volume"));
        }
        let file_system = self
            .fs
            .unwrap_or_else(|| DefaultFormat::of_existing(encrypted));
        if encrypted && file_system.is_hfs() {
            let message = format!("{file_system} volumes cannot be encrypted");
            return Err(Failure::usage("--encrypt-volume", message).hint("use --fs apfs"));
        }
        let address = source::image_or_volume(&self.volume)?;
        let image = self.opening.change(&address.image, output)?;
        let keys = self
            .encrypting_volume
            .choose(self.opening.on_stdin(), self.iterations)?;
        let options = FormatOptions {
            place: address.volume.as_ref(),
            format: file_system,
            name: self.volname.clone(),
            block_size: self
                .block_size
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            erase: self.erase,
            epoch: epoch()?,
            encryption: keys.as_ref().map(|keys| keys.encryption.clone()),
        };
        let recovery_key = keys
            .map(NewVolumeKeys::store_recovery_key)
            .transpose()?
            .flatten();
        let bar = Bar::new(output);
        let Formatted {
            partition,
            place,
            volume,
        } = format(&image, options, &bar).map_err(|error| advise(error, &address.image))?;
        drop(bar);
        let report = FormatReport {
            path: address.image.to_string(),
            partition,
            place,
            file_system: file_system.to_string(),
            name: self.volname.clone(),
            size: volume.len,
            block_size: volume.block_size,
            free: volume.free,
            encrypted,
            recovery_key: recovery_key.and_then(RecoveryKey::keep),
        };
        output.done(&report, |out| report.write(output, out))
    }
}

/// Adds a hint to an error of formatting.
fn advise(error: Error, image: &ImagePath) -> Failure {
    match error.kind() {
        Kind::Conflict => {
            Failure::from(error).hint("use --erase to replace it; all of its data is lost")
        }
        Kind::NotFound => {
            Failure::from(error).hint(format!("run `bandsaw info {image}` to see its contents"))
        }
        Kind::Corrupt => {
            Failure::from(error).hint(format!("run `bandsaw repair {image}` to repair the map"))
        }
        _ => source::advise(error, image),
    }
}

impl FormatReport {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            place,
            file_system,
            block_size,
            ..
        } = self;
        let (name, free) = (output.name(&self.name), exact(self.free));
        let encrypted = if self.encrypted { "encrypted " } else { "" };
        writeln!(
            out,
            "{place}: {encrypted}{file_system} volume {name}, blocks of {block_size} bytes, {free} free"
        )?;
        self.recovery_key
            .iter()
            .try_for_each(|key| writeln!(out, "recovery key: {key}"))
    }
}
