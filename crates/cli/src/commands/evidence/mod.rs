//! `bandsaw evidence`: manifests and timelines of the files of an image.

mod manifest;
mod timeline;
mod verify;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bandsaw::Error;
use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::output::Output;

/// List, hash and compare the files of an image as evidence
///
/// The image is opened for reading only. See docs/evidence.md for a procedure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw evidence manifest disk.img -o disk.jsonl
  bandsaw evidence timeline disk.jsonl -o disk.csv
  bandsaw evidence verify disk.jsonl disk.img")]
pub(crate) struct Evidence {
    #[command(subcommand)]
    verb: EvidenceVerb,
}

#[derive(Debug, Subcommand)]
enum EvidenceVerb {
    /// Write a manifest of all files of an image, with hashes
    Manifest(Box<manifest::Manifest>),
    /// Write all times of a manifest, in order, as CSV
    Timeline(timeline::Timeline),
    /// Compare an image with a manifest of its files
    Verify(Box<verify::Verify>),
}

impl Evidence {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match &self.verb {
            EvidenceVerb::Manifest(verb) => verb.run(output),
            EvidenceVerb::Timeline(verb) => verb.run(output),
            EvidenceVerb::Verify(verb) => verb.run(output),
        }
    }
}

/// Opens a manifest.
fn open(path: &Path) -> Outcome<BufReader<File>> {
    let file = File::open(path);
    let file = file.map_err(|error| Error::io("manifest", "open", error).in_file(path))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}
