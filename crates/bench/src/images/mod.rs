//! `bench images`: the articles' protocols on images of any kind, each compared with the host's
//! folder in the same run.
//!
//! * [`Kind`]: the image, and the interface that accesses it.
//! * `protocol.rs`: the steps; those of the space protocol are in [`space`], those of compressed
//!   files in `compression.rs`.
//! * `subject.rs`: an image, or the host, attached and detached.

mod active_subject;
pub mod article;
mod compression;
mod kind;
mod nbd;
mod process;
mod protocol;
pub mod space;
mod stream;
mod subject;

use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind as ErrorKind, Result};

pub use crate::compressor::Compressor;
pub use kind::{Kind, Via};

use crate::folder::{clean_up, scratch, seconds_since_1970};
use crate::machine::FileSystemSpace;
use crate::noise::SplitMix64;
use crate::place::Caches;
use crate::plan::{Plan, PlannedFile, SETS};
use crate::report::{Compression, Report, Settings};
use crate::units;
use protocol::{ProtocolRun, volume_of};
use subject::{Subject, folder_of};

const LAYER: &str = "benchmark";
/// Size of the articles' images in bytes.
const IMAGE: u64 = 100_000_000_000;
/// Minimum size of an image in bytes: a volume has metadata.
const MIN_IMAGE: u64 = 64 << 20;
/// Band sizes that are compared, in bytes: from 2 to 1020 MB, as in the article.
pub const BAND_SIZES: [u64; 12] = {
    let mib = [2, 4, 6, 8, 15, 32, 64, 100, 200, 400, 700, 973];
    let mut sizes = [0; 12];
    let mut n = 0;
    while n < 12 {
        sizes[n] = mib[n] << 20;
        n += 1;
    }
    sizes
};
/// Files of the dispersion test of band sizes: number of files, number of distinct sizes, minimum
/// and maximum size in bytes.
const DISPERSION: (u32, usize, u64, u64) = (130, 50, 4_400_000, 3_000_000_000);

/// A protocol of the articles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// R1: first and second write, with a control that was attached anew before the first write.
    Rewrite,
    /// R2: written and read in a steady state.
    Steady,
    /// R3: filled in rounds, emptied and compacted.
    Space,
    /// R4: band sizes, streaming, and dispersion of speeds.
    Bands,
    /// R5: empty, partly full, emptied.
    Refill,
    /// R6: compressed files, read cold and warm.
    Compression,
}

impl Protocol {
    /// Returns its name, such as `rewrite`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewrite => "rewrite",
            Self::Steady => "steady",
            Self::Space => "space",
            Self::Bands => "bands",
            Self::Refill => "refill",
            Self::Compression => "compression",
        }
    }

    /// Returns the minimum pause in the article, in seconds.
    pub fn pause(self) -> f64 {
        match self {
            Self::Rewrite | Self::Steady => 10.0,
            Self::Space | Self::Bands | Self::Refill | Self::Compression => 0.0,
        }
    }

    /// Returns the default number of sets: of files, of streams with each band size, or of readings.
    pub fn sets(self) -> u32 {
        match self {
            Self::Bands => 5,
            Self::Compression => 3,
            Self::Rewrite | Self::Steady | Self::Space | Self::Refill => SETS,
        }
    }

    /// Returns true if the protocol has its own files, so that no others can be chosen.
    pub fn has_files(self) -> bool {
        matches!(self, Self::Bands | Self::Compression)
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Protocol to run.
    pub protocol: Protocol,
    /// Files, requests, caches, and the pause around attaching anew.
    pub settings: Settings,
    /// Kinds of images. The host is always measured, too.
    pub kinds: Vec<Kind>,
    /// Band sizes for [`Protocol::Bands`], in bytes.
    pub band_sizes: Vec<u64>,
    /// Compressor for [`Protocol::Bands`].
    pub compressor: Compressor,
    /// Model of a slow disk for [`Protocol::Compression`], whose delays cold readings have.
    pub model_disk: Option<ModelDisk>,
    /// Path of the `bandsaw` command, which serves and mounts images.
    pub program: PathBuf,
}

/// Model of a disk: contents are read in sequence, after a seek.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelDisk {
    /// Rate in bytes per second.
    pub rate: f64,
    /// Time of a seek in seconds.
    pub seek: f64,
}

/// Plan of a run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Files of each pass.
    pub files: Vec<PlannedFile>,
    /// Number of subjects, including the host.
    pub subjects: usize,
    /// Total bytes written.
    pub bytes: u64,
    /// Size of an image in bytes.
    pub image: u64,
    /// Space in the file system of the folder.
    pub room: FileSystemSpace,
}

impl RunPlan {
    /// Returns the plan of `options` in `folder`. Fails with [`ErrorKind::Limit`] if there is too
    /// little space for an image, with [`ErrorKind::Invalid`] if options contradict each other.
    pub fn new(folder: &Path, options: &Options) -> Result<Self> {
        options.settings.plan.check_scale()?;
        if let Some(kind) = options.kinds.iter().find(|kind| !kind.is_possible()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                LAYER,
                format!(
                    "{kind}: the Linux kernel changes HFS+ without a journal only (`--fs hfs+`)"
                ),
            ));
        }
        if options.protocol == Protocol::Compression {
            let (planned, subjects) = (
                compression::bytes(options.settings.plan.scale),
                compression::cases(options).len(),
            );
            let image = (planned + planned / 4 + MIN_IMAGE).next_multiple_of(1 << 20);
            // A volume is built beside the data that is compressed for it.
            let bytes = planned.saturating_mul(1 + 2 * subjects as u64);
            return Self {
                files: Vec::new(),
                subjects,
                bytes,
                image,
                room: FileSystemSpace::of(folder)?,
            }
            .fits(folder, planned);
        }
        let files = files(options)?;
        let subjects = subjects(options, folder, 1).len();
        let bands = options.protocol == Protocol::Bands;
        if bands && !options.kinds.iter().any(|kind| kind.format == Format::Udsb) {
            return Err(Error::new(
                ErrorKind::Invalid,
                LAYER,
                "only sparse bundles (UDSB) can be measured with several band sizes",
            ));
        }
        let scale = options.settings.plan.scale;
        let (holds, writes) = volume_of(options.protocol, &files, &options.settings.plan);
        let nominal = if options.protocol == Protocol::Space {
            space::DISK
        } else {
            IMAGE
        } as f64
            * scale;
        let image = (nominal as u64)
            .max(holds + holds / 4 + MIN_IMAGE)
            .next_multiple_of(1 << 20);
        let bytes = writes.saturating_mul(subjects as u64);
        Self {
            files,
            subjects,
            bytes,
            image,
            room: FileSystemSpace::of(folder)?,
        }
        .fits(folder, 0)
    }

    /// Checks that the file system has space for a fully allocated image and `beside` more bytes.
    fn fits(self, folder: &Path, beside: u64) -> Result<Self> {
        if self.image.saturating_add(beside) <= self.room.free {
            return Ok(self);
        }
        let message = format!(
            "not enough room: an image of {} bytes is filled, {} are free",
            self.image, self.room.free
        );
        Err(Error::new(ErrorKind::Limit, LAYER, message).in_file(folder))
    }
}

fn files(options: &Options) -> Result<Vec<PlannedFile>> {
    let plan = &options.settings.plan;
    if options.protocol == Protocol::Refill && plan.sets < 2 {
        return Err(Error::new(
            ErrorKind::Invalid,
            LAYER,
            "measuring a refilled image requires at least two sets: use `--sets 2` or more",
        ));
    }
    if options.protocol != Protocol::Bands {
        return plan.files();
    }
    let (count, sizes, least, most) = DISPERSION;
    let mut noise = SplitMix64::new(plan.seed);
    let sizes: Vec<u64> = (0..sizes).map(|_| noise.between(least, most)).collect();
    let drawn = (0..count)
        .map(|_| sizes[noise.below(sizes.len())])
        .collect();
    Plan {
        sizes: drawn,
        sets: 1,
        random: None,
        ..plan.clone()
    }
    .files()
}

/// Returns the host and each image, in the random order of `round`, which counts from 1.
fn subjects<'a>(options: &'a Options, scratch: &Path, round: u32) -> Vec<Subject<'a>> {
    let bands = options.protocol == Protocol::Bands;
    let sizes: Vec<Option<u64>> = if bands {
        options.band_sizes.iter().copied().map(Some).collect()
    } else {
        vec![None]
    };
    // Kinds without bands are measured once, for comparison.
    let of = |kind: &Kind| {
        if kind.format == Format::Udsb {
            sizes.clone()
        } else {
            vec![None]
        }
    };
    let images = options
        .kinds
        .iter()
        .flat_map(|kind| of(kind).into_iter().map(|size| (Some(*kind), size)));
    let mut all: Vec<_> = [(None, None)].into_iter().chain(images).collect();
    SplitMix64::new(options.settings.plan.seed ^ (u64::from(round - 1) << 32)).shuffle(&mut all);
    let subject = |(number, (kind, band_size))| Subject {
        kind,
        band_size,
        folder: folder_of(scratch, number),
        caches: options.settings.caches,
        program: &options.program,
    };
    all.into_iter().enumerate().map(subject).collect()
}

/// Runs the protocol on each kind of image in a new folder of `folder`, and removes that folder,
/// also if the run fails.
pub fn run(
    folder: &Path,
    options: &Options,
    announced: &RunPlan,
    progress: &dyn Progress,
) -> Result<Report> {
    let mut report = Report::begin(
        &format!("images, {}", options.protocol.name()),
        folder,
        &options.settings,
    );
    if options.protocol == Protocol::Compression {
        compression::run(folder, options, announced.image, &mut report, progress)?;
        report.compare_with_host();
        report
            .notes
            .push("files as in the article, those over 1 MB scaled; zlib at level 5".to_owned());
        if let Some(disk) = options.model_disk {
            report.notes.push(format!(
                "cold readings are delayed as by a disk of {} with seeks of {}: this is a model, not a measurement of a disk",
                units::rate(disk.rate),
                units::seconds(disk.seek)
            ));
        }
        report.ended = seconds_since_1970();
        return Ok(report);
    }
    let scratch = scratch(folder)?;
    // Data are compressed before anything is measured, so that the compressor takes no time of the disk.
    let compression = (options.protocol == Protocol::Bands)
        .then(|| {
            let request = options.settings.request()?;
            stream::from_memory(&options.settings, options.compressor, request, progress)
        })
        .transpose()?;
    report.compression = compression;
    // The speed of a medium drifts: streams are repeated in rounds, each in a random order.
    let rounds = match compression {
        Some(_) => options.settings.plan.sets,
        None => 1,
    };
    for round in 1..=rounds {
        for subject in subjects(options, scratch.path(), round) {
            progress.check()?;
            let walk = ProtocolRun {
                subject: &subject,
                settings: &options.settings,
                files: &announced.files,
                compression: compression.as_ref(),
                round,
                len: announced.image,
                progress,
                space: Vec::new(),
            };
            for series in walk.run(options.protocol)? {
                report.add(series);
            }
        }
    }
    clean_up(scratch)?;
    if let Some(Compression {
        compressor,
        threads,
        rate,
        bytes,
        packed,
    }) = compression
    {
        report.notes.push(format!(
            "streams: {} on {threads} threads, {} from memory to memory, {:.0} % of the input are left; {rounds} of {} with each \
             band size, in random order",
            compressor.name(),
            units::rate(rate),
            100.0 * packed as f64 / bytes as f64,
            units::bytes(bytes),
        ));
    }
    report.compare_with_host();
    report.notes.push(format!(
        "images of {} bytes; the host folder was measured in the same run",
        announced.image
    ));
    let is_mounted = |kind: &&Kind| matches!(kind.via, Via::Mount | Via::Kernel);
    let kinds = options.kinds.iter().filter(|kind| !is_mounted(kind));
    let kinds: Vec<String> = kinds.map(ToString::to_string).collect();
    if !kinds.is_empty() {
        let kinds = if kinds.len() == options.kinds.len() {
            "all images".to_owned()
        } else if kinds.len() > 1 {
            "all images but those through a mount".to_owned()
        } else {
            kinds.join("; ")
        };
        report.notes.push(format!(
            "{kinds}: through the library and NBD, the length of a file is set before it is written"
        ));
        if options.settings.caches == Caches::Direct {
            report.notes.push(format!(
                "{kinds}: direct I/O applies to files in folders only; images were written through the page cache"
            ));
        }
    }
    report.ended = seconds_since_1970();
    Ok(report)
}
