//! `bandsaw convert` to an encrypted archive.

use std::path::Path;

use bandsaw::ops::convert::convert_to_archive;
use bandsaw::ops::describe::ArchiveInfo;
use bandsaw::{Error, size};
use serde::Serialize;

use super::convert::Convert;
use crate::encryption_args::Cipher;
use crate::failure::{Failure, Outcome};
use crate::missing_contents;
use crate::new_archive_args;
use crate::output::Output;
use crate::progress::Bar;

/// The output of `--json`.
#[derive(Serialize)]
struct ArchiveReport {
    path: String,
    /// The format of the image in the archive.
    format: &'static str,
    size: u64,
    archive: ArchiveInfo,
    archive_size: u64,
    read_size: u64,
    written_size: u64,
}

impl Convert {
    /// Converts to an archive at `target`.
    pub(super) fn to_archive(&self, target: &Path, is_same: bool, output: &Output) -> Outcome {
        if is_same {
            let error = Error::conflict("convert", "source and target are the same file");
            return Err(Failure::from(error.in_file(target)).hint("name another target"));
        }
        let refused = |option, message: &'static str| Err(Failure::usage(option, message));
        let encryption = &self.encryption;
        if self.resume {
            return refused("--resume", "an encrypted archive cannot be resumed");
        }
        if encryption.encrypt == Some(Cipher::Aes128) {
            return refused("--encrypt", "encrypted archives have AES-256 only");
        }
        if let Some(option) = encryption.encrypting.given() {
            return refused(option, "encrypted archives have no such property");
        }
        let format = self.container.asked_format();
        let format = format.unwrap_or_else(|| new_archive_args::format(target));
        let is_encrypted = encryption.encrypt.is_some() || encryption.re_encrypt;
        let has_passphrase = is_encrypted || encryption.new.given().is_some();
        let passphrase = || encryption.new_passphrase(&self.opening);
        let archive = self.archive.choose(format, has_passphrase, passphrase)?;
        let source = self.opened(format, archive.key.is_some(), output)?;
        let bar = Bar::new(output);
        let doubt = bandsaw::ops::orphans::doubt(&source, &bar)?;
        let options = self.options(format, None)?;
        let made = convert_to_archive(&source, target, &options, &archive, &bar);
        let made = made.map_err(|error| self.advise(error))?;
        drop(bar);
        let archive_size = made.archive.root.map_or(0, |root| root.archive_size);
        let report = ArchiveReport {
            path: target.display().to_string(),
            format: format.code(),
            size: source.disk().info().len,
            archive: ArchiveInfo::new(&made.archive),
            archive_size,
            read_size: made.copied.read,
            written_size: made.copied.written,
        };
        output.done(&report, |out| {
            writeln!(
                out,
                "AEA profile {}, {}: {format}, {:#}, read {:#}, wrote {:#}",
                report.archive.profile,
                report.archive.description,
                size::display(report.size),
                size::display(report.read_size),
                size::display(archive_size)
            )
        })?;
        missing_contents::warn(&source, doubt)
    }
}
