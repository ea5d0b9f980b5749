//! R6: the article's five files plain and compressed: their size on disk, and their read speed,
//! cold and warm.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use bandsaw::codec::Level;
use bandsaw::decmpfs::{Method, PackOptions};
use bandsaw::ops::compress::{CompressOptions, FileReport};
use bandsaw::progress::Progress;
use bandsaw::{Error, Result};

use super::active_subject::ActiveSubject;
use super::article::{self, ArticleFile};
use super::process::MeasuredProcess;
use super::subject::{Subject, folder_of};
use super::{Kind, LAYER, Options};
use crate::clock::{HostClock, Stopwatch};
use crate::contents::Buffer;
use crate::folder::{clean_up, pause, scratch};
use crate::noise::SplitMix64;
use crate::place::CacheState;
use crate::report::{Compressed, Process, ReadTime, Report, STEPS, Series};
use crate::sample::{Direction, Sample};

/// The compression level, as in afsctool.
const LEVEL: u8 = 5;
/// Block size of a volume in bytes. An attribute is always shorter than it.
const BLOCK: u64 = 4096;

/// Returns the total size of all files.
pub(super) fn bytes(scale: f64) -> u64 {
    article::files(scale).iter().map(|file| file.len).sum()
}

/// Returns the host's folder, and each kind of image with plain files and with each compression
/// method.
pub(super) fn cases(options: &Options) -> Vec<(Option<Kind>, Option<Method>)> {
    const WAYS: [Option<Method>; 4] = [
        None,
        Some(Method::Zlib),
        Some(Method::Lzvn),
        Some(Method::Lzfse),
    ];
    let images = options
        .kinds
        .iter()
        .flat_map(|kind| WAYS.map(|method| (Some(*kind), method)));
    [(None, None)].into_iter().chain(images).collect()
}

/// Reads all files in all cases, in random order.
pub(super) fn run(
    folder: &Path,
    options: &Options,
    len: u64,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<()> {
    let scratch = scratch(folder)?;
    let files = article::files(options.settings.plan.scale);
    let originals = scratch.path().join("files");
    let failed = |source| Error::io(LAYER, "write", source).in_file(&originals);
    std::fs::create_dir(&originals).map_err(failed)?;
    progress.stage("generate", files.iter().map(|file| file.len).sum());
    for file in &files {
        progress.check()?;
        std::fs::write(originals.join(file.name), file.contents()).map_err(failed)?;
        progress.advance(file.len);
    }
    let mut cases = cases(options);
    SplitMix64::new(options.settings.plan.seed).shuffle(&mut cases);
    for (number, (kind, method)) in cases.into_iter().enumerate() {
        let folder = folder_of(scratch.path(), number);
        let caches = options.settings.caches;
        let subject = Subject {
            kind,
            band_size: None,
            folder,
            caches,
            program: &options.program,
        };
        let walk = CompressionCase {
            subject: &subject,
            method,
            files: &files,
            originals: &originals,
            options,
            progress,
        };
        walk.run(len, report)?;
    }
    clean_up(scratch)
}

/// Delay of a cold reading on a modeled disk.
#[derive(Debug, Clone, Copy)]
struct Delay {
    seek: Duration,
    /// Seconds per byte of the contents, for the bytes that are stored of it.
    per_byte: f64,
}

/// One case: a subject and a compression method.
struct CompressionCase<'a> {
    subject: &'a Subject<'a>,
    method: Option<Method>,
    files: &'a [ArticleFile],
    originals: &'a PathBuf,
    options: &'a Options,
    progress: &'a dyn Progress,
}

impl CompressionCase<'_> {
    fn label(&self) -> String {
        let label = self.subject.label();
        self.method
            .map_or(label.clone(), |method| format!("{label}, {method}"))
    }

    fn run(&self, len: u64, report: &mut Report) -> Result<()> {
        let compress = match self.method {
            Some(method) => Some(CompressOptions::new(PackOptions::new(
                method,
                Level::new(LEVEL)?,
            )?)),
            None => None,
        };
        let made = self
            .subject
            .fill(len, self.originals, compress, self.progress)?;
        let named = |file: &FileReport| {
            self.files
                .iter()
                .position(|known| file.path.strip_prefix('/') == Some(known.name))
        };
        for file in made {
            let Some(number) = named(&file) else { continue };
            report.compressed.push(Compressed {
                series: self.label(),
                plain: self.subject.label(),
                file: self.files[number].name.to_owned(),
                number: number as u32 + 1,
                kind: file.number,
                bytes: file.size,
                before: file.before,
                after: file.after,
                attribute: if file.number.is_some() {
                    file.after % BLOCK
                } else {
                    0
                },
            });
        }
        let mut samples = [Vec::new(), Vec::new()];
        let mut used: [Option<Process>; 2] = [None; 2];
        let mut cooled = None;
        let delays = self.delays(report);
        let names: Vec<String> = self.files.iter().map(|file| file.name.to_owned()).collect();
        for round in 1..=self.options.settings.plan.sets {
            pause(self.options.settings.pause, self.progress)?;
            self.progress.stage(
                "read",
                2 * self.files.iter().map(|file| file.len).sum::<u64>(),
            );
            for number in 0..self.files.len() {
                // Newly attached images have nothing cached, and reading one file may read the next
                // one ahead.
                let attached = self.subject.attach()?;
                let this = self.subject.cool(&attached, &names, self.progress)?;
                cooled = Some(cooled.map_or(this, |cooled: CacheState| cooled.worse(this)));
                let each = STEPS.iter().zip(samples.iter_mut()).zip(&mut used);
                for ((step, samples), used) in each {
                    let watched = attached.process.as_ref().map(MeasuredProcess::anew);
                    let cold = *step == STEPS[0];
                    let sample =
                        self.read(&attached, number, round, delays[number].filter(|_| cold))?;
                    let process = watched.and_then(|watched| watched.so_far());
                    if let Some(process) = process {
                        report.reads.push(ReadTime {
                            series: self.label(),
                            step: (*step).to_owned(),
                            file: names[number].clone(),
                            real: sample.seconds,
                            user: process.user,
                            system: process.system,
                        });
                    }
                    samples.push(sample);
                    *used = Process::sum(*used, process);
                }
                attached.detach()?;
            }
        }
        let space = self.subject.space("filled", true)?;
        self.subject.destroy()?;
        for (((step, samples), used), cooled) in STEPS
            .into_iter()
            .zip(samples)
            .zip(used)
            .zip([cooled.unwrap_or(CacheState::Kept), CacheState::Kept])
        {
            let mut series = Series::new(self.label(), Some(step), cooled, samples);
            series.process = used;
            if self.method.is_none() {
                series.image = self.subject.kind.map(|kind| kind.described());
            }
            series.space = space.iter().filter(|_| step == STEPS[0]).cloned().collect();
            report.series.push(series);
        }
        Ok(())
    }

    /// Returns the delays of reading each file from the model of a disk, if one is asked for.
    fn delays(&self, report: &Report) -> Vec<Option<Delay>> {
        let label = self.label();
        let delay = |file: &ArticleFile| {
            let disk = self.options.model_disk?;
            let mut stored = report.compressed.iter();
            let stored = stored.find(|stored| stored.series == label && stored.file == file.name);
            let (bytes, in_attribute) = stored.map_or((file.len, false), |stored| {
                let in_attribute = stored.kind.is_some() && stored.after < BLOCK;
                (stored.after - stored.attribute, in_attribute)
            });
            // The catalog, then the contents, unless these are in the attribute.
            let seeks = if in_attribute { 1.0 } else { 2.0 };
            Some(Delay {
                seek: Duration::from_secs_f64(seeks * disk.seek),
                per_byte: bytes as f64 / disk.rate / file.len as f64,
            })
        };
        self.files.iter().map(delay).collect()
    }

    /// Opens a file and reads it to its end, with this delay.
    fn read(
        &self,
        attached: &ActiveSubject,
        number: usize,
        round: u32,
        delay: Option<Delay>,
    ) -> Result<Sample> {
        let file = &self.files[number];
        let settings = &self.options.settings;
        let clock = HostClock::default();
        let request = settings.run(&*attached.place, &clock)?.contents.request();
        let mut buffer = Buffer::new(request);
        let path = self.originals.join(file.name);
        let failed = |source| Error::io(LAYER, "read", source).in_file(&path);
        let mut original = if settings.verify {
            Some(File::open(&path).map_err(failed)?)
        } else {
            None
        };
        let mut expected = Vec::new();
        let mut watch = Stopwatch::start(&clock);
        let wait = |time: Duration| {
            if !time.is_zero() {
                thread::sleep(time);
            }
        };
        wait(delay.map_or(Duration::ZERO, |delay| delay.seek));
        let mut source = attached.place.open(file.name)?;
        let mut at = 0;
        while at < file.len {
            let len = request.min(usize::try_from(file.len - at).unwrap_or(request));
            let bytes = buffer.front(len);
            source.read(bytes)?;
            wait(delay.map_or(Duration::ZERO, |delay| {
                Duration::from_secs_f64(len as f64 * delay.per_byte)
            }));
            watch.apart(|| {
                self.progress.advance(len as u64);
                self.progress.check()?;
                let Some(original) = &mut original else {
                    return Ok(());
                };
                expected.resize(len, 0);
                original.read_exact(&mut expected).map_err(failed)?;
                if expected == *bytes {
                    Ok(())
                } else {
                    Err(
                        Error::corrupt(LAYER, at, "the data read differs from the data stored")
                            .named(file.name),
                    )
                }
            })?;
            at += len as u64;
        }
        let seconds = watch.seconds();
        let number = number as u32 + 1;
        Ok(Sample {
            direction: Direction::Read,
            set: round,
            number,
            size_bytes: file.len,
            seconds,
            flushed_seconds: None,
        })
    }
}
