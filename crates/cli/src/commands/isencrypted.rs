//! `bandsaw isencrypted`: tells encrypted images from others, in hdiutil's format.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open::{self, KeyFile};
use bandsaw::ops::describe::{ArchiveInfo, EncryptionInfo, KeySlotKind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::source;

/// Show whether an image is encrypted
///
/// The output has hdiutil's format. As with hdiutil, no passphrase is needed, and the exit code is
/// 0 for both answers. `bandsaw info` shows more.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw isencrypted Secret.dmg
  bandsaw isencrypted --json Secret.sparsebundle     for programs")]
pub(crate) struct IsEncrypted {
    /// The image to examine
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) network_args: NetworkArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct EncryptionReport {
    path: String,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<ArchiveInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encryption: Option<EncryptionInfo>,
}

impl IsEncrypted {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let archive = open::archive(Path::new(&image), self.network_args.options())?;
        let archive = archive.as_ref().map(ArchiveInfo::new);
        // Encryption within an archive is not looked for.
        let file = match archive {
            Some(_) => None,
            None => KeyFile::open(
                Path::new(&image),
                Access::ReadOnly,
                self.network_args.options(),
            )?,
        };
        let encryption = file
            .as_ref()
            .map(|file| EncryptionInfo::new(file.description()));
        let report = EncryptionReport {
            path: image.to_string(),
            encrypted: encryption.is_some()
                || archive.as_ref().is_some_and(|archive| archive.encrypted),
            archive,
            encryption,
        };
        output.result(&report, |out| {
            let Some(header) = &report.encryption else {
                let answer = if report.encrypted { "YES" } else { "NO" };
                return writeln!(out, "encrypted: {answer}");
            };
            let count = |is: fn(&KeySlotKind) -> bool| {
                header
                    .key_slots
                    .iter()
                    .filter(|slot| is(&slot.kind))
                    .count()
            };
            let private_keys = count(|kind| matches!(kind, KeySlotKind::PublicKey { .. }));
            let passphrases = count(|kind| matches!(kind, KeySlotKind::Passphrase { .. }));
            writeln!(out, "encrypted: YES")?;
            writeln!(out, "blocksize: {}", header.block_size)?;
            writeln!(out, "uuid: {}", header.uuid.to_uppercase())?;
            writeln!(out, "private-key-count: {}", private_keys)?;
            writeln!(out, "passphrase-count: {}", passphrases)?;
            writeln!(out, "max-key-count: {}", header.max_key_slots)?;
            writeln!(out, "version: {}", header.version)
        })
    }
}
