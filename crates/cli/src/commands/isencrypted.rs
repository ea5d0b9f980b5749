//! `bandsaw isencrypted`: tells encrypted images from others, in hdiutil's format.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::crypt::{Description, KeySlot};
use bandsaw::device::Access;
use bandsaw::open::KeyFile;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::Output;
use crate::reaching::Reaching;
use crate::source;

/// Tell whether an image is encrypted
///
/// The output has hdiutil's format. As with hdiutil, no passphrase is needed, and the exit code is
/// 0 for both answers. `bandsaw info` shows more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw isencrypted Secret.dmg
  bandsaw isencrypted --json Secret.sparsebundle     for programs")]
pub(crate) struct IsEncrypted {
    /// The image to examine
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    #[command(flatten)]
    reaching: Reaching,
}

/// The output of `--json`.
#[derive(Serialize)]
struct EncryptionReport {
    schema: u32,
    image: String,
    encrypted: bool,
    #[serde(flatten)]
    header: Option<Header>,
}

#[derive(Serialize)]
struct Header {
    /// The size of a cipher block, in bytes.
    block_size: u32,
    key_bits: u32,
    uuid: String,
    passphrases: usize,
    private_keys: usize,
    /// The number of key slots for which the header has space.
    most_keys: u64,
    version: u8,
}

impl Header {
    fn new(of: &Description) -> Self {
        let count = |is: fn(&KeySlot) -> bool| of.ways_in.iter().filter(|way| is(way)).count();
        Self {
            block_size: of.block,
            key_bits: of.key_bits,
            uuid: of.uuid.hyphenated().to_string().to_uppercase(),
            passphrases: count(|way| matches!(way, KeySlot::Passphrase { .. })),
            private_keys: count(|way| matches!(way, KeySlot::PublicKey { .. })),
            most_keys: of.most_ways_in(),
            version: of.version,
        }
    }
}

impl IsEncrypted {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let file = KeyFile::open(Path::new(&image), Access::ReadOnly, self.reaching.reach())?;
        let header = file.as_ref().map(|file| Header::new(file.description()));
        let facts = EncryptionReport {
            schema: 1,
            encrypted: header.is_some(),
            image: image.to_string(),
            header,
        };
        output.facts(&facts, |out| {
            let Some(header) = &facts.header else {
                return writeln!(out, "encrypted: NO");
            };
            writeln!(out, "encrypted: YES")?;
            writeln!(out, "blocksize: {}", header.block_size)?;
            writeln!(out, "uuid: {}", header.uuid)?;
            writeln!(out, "private-key-count: {}", header.private_keys)?;
            writeln!(out, "passphrase-count: {}", header.passphrases)?;
            writeln!(out, "max-key-count: {}", header.most_keys)?;
            writeln!(out, "version: {}", header.version)
        })
    }
}
