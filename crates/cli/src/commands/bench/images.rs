//! `bandsaw bench images`: published measurement protocols, on images of any kind.

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind as ErrorKind, size};
use bandsaw_bench::images::{
    self, BAND_SIZES, Compressor, Kind, ModelDisk, Options, Protocol, RunPlan, Via,
};
use bandsaw_bench::units::bytes;
use clap::{Args, ValueEnum};

use super::workload_args::{WorkloadArgs, percent};
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::text::counted;

/// Measure the speed of disk images, compared with their folder
///
/// Images are made in a new folder in DIR, used as in a published protocol, and removed at the end,
/// or after Ctrl-C. Every kind of image and the folder itself are measured in the same run, in
/// random order. Results are shown as ratios to the folder, beside published results of Apple's
/// images on a Mac. The storage of the image is shown after each step, and the resources that its
/// server uses. At the end of each protocol files are removed, the image is attached again and
/// compacted, and its storage is shown once more.
///
/// Protocols: `rewrite` writes to a new image, again after removing the files and attaching the
/// image again, and as a control for the first time after attaching it again. `steady` attaches an
/// image, writes and reads. `space` writes in five rounds and removes the largest quarter of the
/// files after each round but the last; with --verify every layer and all contents are checked.
/// `bands` compares band sizes with 130 scattered files, and with one file that is compressed into
/// another on the same image while several threads read, compress and write. `refill` writes and
/// reads an empty image, a partly full one, and an emptied one. `compression` stores five files
/// plain and with each kind of compression, and reads each cold and warm; only files over 1 MB are
/// scaled. The protocols are also known as r1 to r6.
///
/// --sets is the number of passes over the files; with `bands` the number of compressed files for
/// each band size (default: 5), with `compression` the number of readings (default: 3).
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
    workload: WorkloadArgs,
    /// Run this protocol with each image
    #[arg(long, value_enum, default_value_t)]
    protocol: ProtocolArg,
    /// Measure these kinds of images
    ///
    /// Kinds are udrw, udsb, udsp, asif, and vm for an encrypted APFS volume in ASIF over NBD. The
    /// default is the first four; with `--protocol rewrite` it is the first three, and with
    /// `--protocol bands` udsb, and udrw for comparison.
    #[arg(long = "type", value_name = "FORMAT,...", value_delimiter = ',')]
    types: Vec<String>,
    /// Use these ciphers: none, aes-128, aes-256
    ///
    /// The default is none; with `--protocol rewrite` it is all three.
    #[arg(long = "cipher", value_name = "CIPHER,...", value_delimiter = ',')]
    ciphers: Vec<String>,
    /// Use these file systems: apfs, hfs+, hfs+j and so on
    ///
    /// The default is apfs; with `--protocol rewrite` it is apfs and hfs+j.
    #[arg(long = "fs", value_name = "FORMAT,...", value_delimiter = ',')]
    file_systems: Vec<NewFormat>,
    /// Access images this way: library, nbd, mount or kernel
    ///
    /// library works in this process, nbd through a network block device, and mount through a FUSE
    /// folder. kernel needs root, and Linux with network block devices and HFS+: it mounts the volume
    /// of an attached disk, HFS+ without a journal.
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_values = ["library"])]
    via: Vec<Via>,
    /// Use these band sizes with `--protocol bands`
    ///
    /// The default is twelve sizes from 2 to 1020 MB.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse)]
    band_sizes: Vec<u64>,
    /// Compress with this in `--protocol bands`: lz4 or lzfse
    ///
    /// The speed of the compressor from memory to memory is measured, too: a stream that is about
    /// as fast is limited by the processor.
    #[arg(
        long,
        value_name = "CODEC",
        default_value = "lz4",
        hide_short_help = true
    )]
    compressor: Compressor,
    /// Delay cold reads of `compression` as a slow disk does
    ///
    /// The disk reads this many MB/s, and seeks in this many milliseconds: 80,12 is a disk of 5,400
    /// rpm. It is a model, and the results say so.
    #[arg(long, value_name = "MB/S,MS", value_parser = model_disk, hide_short_help = true)]
    model_disk: Option<ModelDisk>,
}

fn model_disk(text: &str) -> Result<ModelDisk, String> {
    let parsed = || {
        let (rate, seek) = text.split_once(',')?;
        let (rate, seek): (f64, f64) = (rate.parse().ok()?, seek.parse().ok()?);
        let sound = (0.1..=1e6).contains(&rate) && (0.0..=1000.0).contains(&seek);
        sound.then_some(ModelDisk {
            rate: rate * 1e6,
            seek: seek / 1e3,
        })
    };
    parsed()
        .ok_or_else(|| "expected MB/s from 0.1 and milliseconds up to 1000, as in 80,12".to_owned())
}

/// The values of `--protocol`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum ProtocolArg {
    /// Measure a first and a second write
    #[value(alias = "r1")]
    Rewrite,
    /// Attach, write and read
    #[default]
    #[value(alias = "r2")]
    Steady,
    /// Measure the storage of images
    #[value(alias = "r3")]
    Space,
    /// Compare band sizes
    #[value(alias = "r4")]
    Bands,
    /// Measure empty, partly full and emptied images
    #[value(alias = "r5")]
    Refill,
    /// Measure compressed files
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
        if protocol.has_files() && self.workload.chooses_files() {
            let why = format!(
                "--sizes, --random and --single do not apply to `{}`",
                protocol.name()
            );
            return Err(Failure::usage("--protocol", why));
        }
        let mut settings = self.workload.settings(protocol.pause(), protocol.sets())?;
        let folder = self.workload.folder();
        if protocol.has_files() {
            // Options that were not given are not shown.
            settings.plan.sizes = Vec::new();
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
            compressor: self.compressor,
            model_disk: self.model_disk,
            program,
        };
        let announced = RunPlan::new(folder, &options);
        let announced = announced.advise(ErrorKind::Limit, || {
            "use `--scale 0.01` to scale the sizes to a hundredth".to_owned()
        })?;
        let plan = format!(
            "{}, in sequence, with images of {}; about {} will be written to {} and read back, {} of the typical rating of a \
             solid-state disk of this size; {} are free.",
            counted(announced.subjects as u64, "subject", "subjects"),
            bytes(announced.image),
            bytes(announced.bytes),
            folder.display(),
            percent(announced.room.wear(announced.bytes)),
            bytes(announced.room.free)
        );
        self.workload.run(&plan, output, |progress| {
            images::run(folder, &options, &announced, progress)
        })
    }

    /// Returns every combination.
    fn kinds(&self) -> Outcome<Vec<Kind>> {
        // Those of the article of the protocol.
        let (usual, ciphers, file_systems): (&[&str], &[&str], &[NewFormat]) = match self.protocol {
            ProtocolArg::Rewrite => (
                &["udrw", "udsb", "udsp"],
                &["none", "aes-128", "aes-256"],
                &[NewFormat::Apfs, NewFormat::HfsPlusJournaled],
            ),
            ProtocolArg::Bands => (&["udsb", "udrw"], &["none"], &[NewFormat::Apfs]),
            _ => (
                &["udrw", "udsb", "udsp", "asif"],
                &["none"],
                &[NewFormat::Apfs],
            ),
        };
        let given = self.ciphers.iter().map(String::as_str);
        let ciphers: Vec<&str> = if self.ciphers.is_empty() {
            ciphers.to_vec()
        } else {
            given.collect()
        };
        let file_systems = if self.file_systems.is_empty() {
            file_systems
        } else {
            &self.file_systems[..]
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
                    format!("unsupported image type {name}: expected udrw, udsb, udsp, asif or vm"),
                ));
            }
            for cipher in &ciphers {
                let key_bits = match cipher.to_ascii_lowercase().as_str() {
                    "none" => 0,
                    "aes-128" => 128,
                    "aes-256" => 256,
                    _ => {
                        return Err(Failure::usage(
                            "--cipher",
                            format!("unknown cipher {cipher}: expected none, aes-128 or aes-256"),
                        ));
                    }
                };
                for &file_system in file_systems {
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
