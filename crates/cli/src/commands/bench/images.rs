//! `bandsaw bench images`: the protocols of published measurements, on images of any kind.

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind as ErrorKind, size};
use bandsaw_bench::images::{self, Announced, BAND_SIZES, Kind, Options, Protocol, Via};
use bandsaw_bench::units::bytes;
use clap::{Args, ValueEnum};

use super::asked::{Asked, percent};
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::text::counted;

/// Measure disk images of any kind, each against the folder that they are in
///
/// Images are made in a new folder of DIR, used as a published protocol has it, and removed at the
/// end, also by Ctrl-C. Every kind is measured in the same run as files in the folder itself, in
/// random order, and told as a ratio to these, beside what was published of Apple's images on a
/// Mac. What an image takes on disk is told after each step, and what the process uses that serves
/// it. At the end of each protocol files are removed, the image is attached anew and compacted, and
/// what it takes then is told too.
///
/// Protocols: `rewrite` writes right after creation, again after files were removed and the image
/// was attached anew, and as a control for the first time after it was attached anew. `steady`
/// attaches anew, writes and reads. `space` writes in five rounds and removes the largest quarter
/// of the files after each but the last; with --verify every layer and all contents are checked.
/// `bands` compares sizes of bands: 130 files that scatter, and one file compressed into another
/// beside it. `refill` writes and reads an image when it is empty, part full, and emptied.
/// `compression` stores five files as they are and compressed in each way, and reads each three
/// times cold and three times warm; only files over 1 MB are scaled. They are also known as r1 to
/// r6.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench images /mnt/disk --scale 0.01 --pause 10 -o run.json -o run.html
  bandsaw bench images . --scale 0.01 --type udsb,asif --cipher none,aes-256 --fs apfs --via mount
  bandsaw bench images . --scale 0.01 --protocol bands --band-sizes 8m,64m
  bandsaw bench images . --scale 0.01 --protocol space --type udsb,udrw --fs hfs+ --verify
  bandsaw bench images . --scale 0.1 --protocol compression --type udrw --fs hfs+,apfs")]
pub(crate) struct Images {
    #[command(flatten)]
    asked: Asked,
    /// What is done with each image
    #[arg(long, value_enum, default_value_t)]
    protocol: ProtocolArg,
    /// Kinds of images: udrw, udsb, udsp, asif; vm for an encrypted APFS volume in ASIF over NBD
    /// [default: the four; with `--protocol bands` udsb, and udrw to compare it with]
    #[arg(long = "type", value_name = "FORMAT,...", value_delimiter = ',')]
    types: Vec<String>,
    /// Ciphers: none, aes-128, aes-256
    #[arg(long = "cipher", value_name = "CIPHER,...", value_delimiter = ',', default_values = ["none"])]
    ciphers: Vec<String>,
    /// File systems within: apfs, hfs+, hfs+j and the others that `create` makes
    #[arg(long = "fs", value_name = "FORMAT,...", value_delimiter = ',', default_values = ["apfs"])]
    file_systems: Vec<NewFormat>,
    /// Ways to what is in an image: library (in this process), nbd, mount (a folder, through FUSE)
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_values = ["library"])]
    via: Vec<Via>,
    /// With `--protocol bands`: the sizes of bands, in the place of twelve from 2 to 1020 MB
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse)]
    band_sizes: Vec<u64>,
}

/// `--protocol`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum ProtocolArg {
    /// First and second write
    #[value(alias = "r1")]
    Rewrite,
    /// Attached anew, written, read
    #[default]
    #[value(alias = "r2")]
    Steady,
    /// What images take on disk
    #[value(alias = "r3")]
    Space,
    /// Sizes of bands
    #[value(alias = "r4")]
    Bands,
    /// Empty, part full, emptied
    #[value(alias = "r5")]
    Refill,
    /// Files stored compressed
    #[value(alias = "r6")]
    Compression,
}

impl Images {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let protocol = match self.protocol {
            ProtocolArg::Rewrite => Protocol::Rewrite,
            ProtocolArg::Steady => Protocol::Steady,
            ProtocolArg::Bands => Protocol::Bands,
            ProtocolArg::Refill => Protocol::Refill,
            ProtocolArg::Space => Protocol::Space,
            ProtocolArg::Compression => Protocol::Compression,
        };
        if protocol.has_files() && self.asked.chooses_files() {
            let why = format!(
                "`{}` brings its own files: --sets, --sizes, --random and --single are not for it",
                protocol.name()
            );
            return Err(Failure::usage("--protocol", why));
        }
        let (mut settings, folder) = (self.asked.settings(protocol.pause())?, self.asked.folder());
        if protocol.has_files() {
            // What is not asked for is not told either.
            (settings.plan.sizes, settings.plan.sets) = (Vec::new(), 1);
        }
        let kinds = self.kinds()?;
        let program =
            std::env::current_exe().map_err(|source| Error::io("benchmark", "find", source))?;
        let band_sizes = if self.band_sizes.is_empty() {
            BAND_SIZES.to_vec()
        } else {
            self.band_sizes.clone()
        };
        let options = Options {
            protocol,
            settings,
            kinds,
            band_sizes,
            program,
        };
        let announced = Announced::new(folder, &options);
        let announced = announced.advise(ErrorKind::Limit, || {
            "`--scale 0.01` makes all of it a hundredth".to_owned()
        })?;
        let plan = format!(
            "{}, one after the other, images of {}; about {} will be written to {} and read back, {} of what a solid-state disk of \
             this size is commonly rated for; {} are free.",
            counted(announced.subjects as u64, "subject", "subjects"),
            bytes(announced.image),
            bytes(announced.bytes),
            folder.display(),
            percent(announced.room.wear(announced.bytes)),
            bytes(announced.room.free)
        );
        self.asked.run(&plan, output, |progress| {
            images::run(folder, &options, &announced, progress)
        })
    }

    /// Every combination.
    fn kinds(&self) -> Outcome<Vec<Kind>> {
        let usual: &[&str] = match self.protocol {
            ProtocolArg::Bands => &["udsb", "udrw"],
            _ => &["udrw", "udsb", "udsp", "asif"],
        };
        let types = self.types.iter().map(String::as_str);
        let types: Vec<&str> = if self.types.is_empty() {
            usual.to_vec()
        } else {
            types.collect()
        };
        let mut kinds = Vec::new();
        for name in types {
            if name.eq_ignore_ascii_case("vm") {
                kinds.push(Kind::VM);
                continue;
            }
            let format: Format = name.parse()?;
            if !matches!(
                format,
                Format::Udrw | Format::Udsb | Format::Udsp | Format::Asif
            ) {
                return Err(Failure::usage(
                    "--type",
                    format!("{name} cannot be written to: udrw, udsb, udsp, asif and vm can"),
                ));
            }
            for cipher in &self.ciphers {
                let key_bits = match cipher.to_ascii_lowercase().as_str() {
                    "none" => 0,
                    "aes-128" => 128,
                    "aes-256" => 256,
                    _ => {
                        return Err(Failure::usage(
                            "--cipher",
                            format!("{cipher} is no cipher of images: none, aes-128, aes-256"),
                        ));
                    }
                };
                for &file_system in &self.file_systems {
                    kinds.extend(self.via.iter().map(|&via| Kind {
                        format,
                        key_bits,
                        file_system,
                        volume_key: false,
                        via,
                    }));
                }
            }
        }
        Ok(kinds)
    }
}
