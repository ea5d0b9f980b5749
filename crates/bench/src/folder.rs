//! `bench files`: the gold standard in a folder of the host, from the announcement to the report.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandsaw::progress::Progress;
use bandsaw::{Error, Result};
use tempfile::TempDir;

use crate::clock::{Clock, HostClock};
use crate::contents::Contents;
use crate::files::Run;
use crate::machine::{FileSystemSpace, Machine};
use crate::place::{HostFolder, Place};
use crate::plan::{PlannedFile, bytes_of};
use crate::report::{HOST, Report, SCHEMA, Series, Settings};

const LAYER: &str = "benchmark";
const UNOPTIMISED: &str =
    "measured with a program built without optimization: sizes are valid, times are not";
/// Interval at which a pause checks for cancellation.
const NAP: Duration = Duration::from_millis(100);

/// Plan of a run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Files that are written.
    pub files: Vec<PlannedFile>,
    /// Total bytes written.
    pub bytes: u64,
    /// Space in the file system of the folder.
    pub room: FileSystemSpace,
}

impl RunPlan {
    /// Returns the plan of `settings` in `folder`. Fails with [`Kind::Limit`](bandsaw::Kind) if there is too
    /// little space for the files.
    pub fn new(folder: &Path, settings: &Settings) -> Result<Self> {
        let files = settings.plan.files()?;
        let (bytes, room) = (bytes_of(&files), FileSystemSpace::of(folder)?);
        // The file system's metadata takes space, too.
        if bytes.saturating_add(bytes / 100) > room.free {
            let message = format!(
                "not enough room: {bytes} bytes are required, {} are free",
                room.free
            );
            return Err(Error::limit(LAYER, message).in_file(folder));
        }
        Ok(Self { files, bytes, room })
    }
}

/// Creates a temporary folder in `folder`, which is removed with its contents when it is dropped.
pub fn scratch(folder: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new()
        .prefix("bandsaw-bench-")
        .tempdir_in(folder);
    made.map_err(|source| Error::io(LAYER, "create a folder", source).in_file(folder))
}

/// Removes a temporary folder, and returns an error if that fails.
pub fn clean_up(scratch: TempDir) -> Result<()> {
    let path = scratch.path().to_owned();
    scratch
        .close()
        .map_err(|source| Error::io(LAYER, "remove", source).in_file(&path))
}

/// Sleeps, unless `progress` is cancelled.
pub(crate) fn pause(seconds: f64, progress: &dyn Progress) -> Result<()> {
    let clock = HostClock::default();
    let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    while clock.now() < whole {
        progress.check()?;
        std::thread::sleep(NAP.min(whole.saturating_sub(clock.now())));
    }
    Ok(())
}

pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Writes and reads the files of `announced` in a new folder of `folder`, and removes them, also if
/// the run fails.
pub fn run(
    folder: &Path,
    settings: &Settings,
    announced: &RunPlan,
    progress: &dyn Progress,
) -> Result<Report> {
    let mut report = Report::begin("files", folder, settings);
    let scratch = scratch(folder)?;
    let place = HostFolder::new(scratch.path(), settings.caches);
    report.series.push(series(
        &place,
        HOST,
        None,
        settings,
        &announced.files,
        progress,
    )?);
    clean_up(scratch)?;
    report.ended = seconds_since_1970();
    Ok(report)
}

/// Writes `files` in `place`, pauses, drops the caches if asked to, and reads them.
pub(crate) fn series(
    place: &dyn Place,
    label: &str,
    step: Option<&str>,
    settings: &Settings,
    files: &[PlannedFile],
    progress: &dyn Progress,
) -> Result<Series> {
    let clock = HostClock::default();
    let mut run = settings.run(place, &clock)?;
    let mut samples = run.write(files, progress)?;
    pause(settings.pause, progress)?;
    let cooled = run.cool(files)?;
    samples.extend(run.read(files, progress)?);
    Ok(Series::new(label, step, cooled, samples))
}

impl Settings {
    /// Returns a run of files in `place` with these settings. Fails with [`Kind::Invalid`](bandsaw::Kind) if
    /// requests are not whole blocks.
    pub(crate) fn run<'a>(&self, place: &'a dyn Place, clock: &'a dyn Clock) -> Result<Run<'a>> {
        let contents = Contents::new(self.plan.seed, self.request()?, self.compressible);
        Ok(Run {
            place,
            clock,
            contents,
            verify: self.verify,
        })
    }

    /// Returns the size of requests. Fails with [`Kind::Invalid`](bandsaw::Kind) if they are not whole blocks.
    pub(crate) fn request(&self) -> Result<usize> {
        const MAX_REQUEST: u64 = 256 << 20;
        let request = usize::try_from(self.request)
            .ok()
            .filter(|_| self.request <= MAX_REQUEST);
        let request = request
            .filter(|request| *request > 0 && request.is_multiple_of(crate::contents::ALIGNMENT));
        request.ok_or_else(|| {
            Error::invalid(
                LAYER,
                format!(
                    "invalid request size {}: expected a multiple of 4096 bytes up to 256 MiB",
                    self.request
                ),
            )
        })
    }
}

impl Report {
    /// Returns a report without results.
    pub(crate) fn begin(benchmark: &str, folder: &Path, settings: &Settings) -> Self {
        Self {
            schema: SCHEMA,
            benchmark: benchmark.to_owned(),
            tool: concat!("bandsaw ", env!("CARGO_PKG_VERSION")).to_owned(),
            began: seconds_since_1970(),
            ended: 0,
            machine: Machine::this(folder),
            settings: settings.clone(),
            series: Vec::new(),
            ratios: Vec::new(),
            compressed: Vec::new(),
            reads: Vec::new(),
            compression: None,
            notes: if cfg!(debug_assertions) {
                vec![UNOPTIMISED.to_owned()]
            } else {
                Vec::new()
            },
        }
    }
}
