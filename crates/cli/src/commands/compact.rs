//! `bandsaw compact`: less storage for the same data.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::address::ImagePath;
use bandsaw::decision::Assumptions;
use bandsaw::ops::compact::{self, Cause, Compacted, Options, Plan};
use bandsaw::ops::describe::{OrphanInfo, SkippedVolumeInfo};
use bandsaw::ops::usage::HostUsage;
use bandsaw::progress::{RateLimited, Silent};
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::band_usage::BandsJson;
use super::trim;
use crate::failure::{Failure, Outcome};
use crate::info_writer::{InfoWriter, exact};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Shrink the storage of an image
///
/// Gives unused space of the volumes back to the host as `bandsaw trim` does, and packs bands and
/// chunks. With --zeros, blocks in use that contain only zeros are given back too. Maps of volumes
/// are read, but not their files. Stored data that belongs to no part of the disk is moved to undo
/// data (see `bandsaw repair`) if all volumes are sound and none of their data is missing; otherwise
/// it is kept and reported, because it may belong to them. The image is consistent after every step:
/// run an interrupted compaction again to resume it.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw compact --dry-run Docs.sparsebundle       show what would be freed
  bandsaw compact Docs.sparsebundle
  bandsaw compact --zeros Disk.img                  free blocks of zeros, too
  bandsaw compact --limit-rate 500m Backup.sparsebundle   limit the load")]
pub(crate) struct Compact {
    /// The image to compact
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: OsString,
    /// Show the space that would be freed, and change nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// With --dry-run, list every allocated band or chunk
    #[arg(long, requires = "dry_run")]
    pub(crate) bands: bool,
    /// Read all data in use, and free blocks of zeros
    ///
    /// This is the default if the free space of no volume is known.
    #[arg(long, overrides_with = "no_zeros")]
    pub(crate) zeros: bool,
    /// Do not read the data in use
    #[arg(long, overrides_with = "zeros")]
    pub(crate) no_zeros: bool,
    /// Run on battery power
    #[arg(long, alias = "batteryallowed")]
    pub(crate) battery_allowed: bool,
    /// Allow the computer to sleep meanwhile
    ///
    /// Accepted for compatibility with hdiutil: bandsaw never prevents sleep, which does no harm.
    #[arg(long, alias = "sleepallowed")]
    pub(crate) sleep_allowed: bool,
    /// Limit throughput, in bytes per second
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) limit_rate: Option<u64>,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// The output of `--json` after a compaction.
#[derive(Serialize)]
struct CompactReport {
    path: String,
    allocated_before: u64,
    allocated: u64,
    reclaimed: u64,
    /// Bytes of the disk that were in use and contained only zeros.
    zeros: u64,
    /// True if the host supports holes in files.
    holes: bool,
    orphans: OrphanInfo,
    refused: Vec<SkippedVolumeInfo>,
}

/// The output of `--json` with `--dry-run`.
#[derive(Serialize)]
struct PlanJson {
    path: String,
    dry_run: bool,
    allocated: u64,
    reclaimable: u64,
    causes: Vec<CauseJson>,
    /// Bytes held by older checkpoints, which are released first.
    pending: u64,
    units: BandsJson,
    orphans: OrphanInfo,
    refused: Vec<SkippedVolumeInfo>,
}

/// Returns one line about data that belongs to no part of the disk, if there is some.
fn orphans_line(orphans: &OrphanInfo, output: &Output) -> Option<String> {
    let first = orphans.places.first()?;
    let more = match orphans.places.len() {
        1 => String::new(),
        places => format!(", and {} more", places - 1),
    };
    let kept = match &orphans.kept {
        Some(why) => format!("kept: {}", output.text(&why.message)),
        None => "nothing refers to them: removed, with undo data".to_owned(),
    };
    Some(format!(
        "{} do not belong to any part of the disk ({}{more}); {kept}",
        exact(orphans.size),
        output.text(first)
    ))
}

#[derive(Serialize)]
struct CauseJson {
    cause: &'static str,
    reclaimable: u64,
}

fn write_skipped(
    all: &[SkippedVolumeInfo],
    output: &Output,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut each = all.iter();
    each.try_for_each(|refused| {
        writeln!(
            out,
            "{}: skipped, {}",
            refused.place,
            output.text(&refused.error.message)
        )
    })
}

impl Compact {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let zeros = (self.zeros || self.no_zeros).then_some(self.zeros);
        let options = Options {
            zeros,
            battery_allowed: self.battery_allowed,
        };
        let bar = Bar::new(output);
        let progress = RateLimited::new(&bar, self.limit_rate);
        if self.dry_run {
            let image = self.opening.read(&path, output)?;
            let plan = compact::plan(&image, &options, Some(self.opening.keys()), &progress)
                .map_err(|error| error.in_file(&path))?;
            drop(bar);
            let report = PlanJson::new(&path, &plan, self.bands);
            return output.result(&report, |out| report.write(output, out));
        }
        let image = self.opening.change(&path, output)?;
        let done = compact::compact(&image, &options, Some(self.opening.keys()), &progress)
            .map_err(|error| source::advise(error.in_file(&path), &path))?;
        drop(bar);
        // The repair of orphans locks the image again.
        drop(image);
        let mut report = CompactReport::new(&path, &done);
        let orphans_kept = match done.orphans.is_resolved() {
            true => self.remove_orphans(&path, &mut report, output).err(),
            false => None,
        };
        output.done(&report, |out| report.write(output, out))?;
        if let Some(failure) = orphans_kept {
            return Err(failure.warned());
        }
        if !done.orphans.is_resolved() {
            let what = "nothing was freed: stored data does not belong to any part of the disk, \
                        and it is unknown where it belongs";
            let error = Error::new(Kind::Corrupt, "compact", what).in_file(&path);
            let hint = format!("run `bandsaw repair --dry-run {path}` to see the alternatives");
            return Err(Failure::from(error).hint(hint).warned());
        }
        trim::refusal(&path, done.refused.into_iter().map(|skipped| skipped.error))
            .map_or(Ok(()), Err)
    }
}

impl Compact {
    /// Removes stored data to which nothing refers, with undo data: it may have been of a part of the
    /// disk that was written again.
    fn remove_orphans(
        &self,
        path: &ImagePath,
        report: &mut CompactReport,
        output: &Output,
    ) -> Outcome {
        if report.orphans.places.is_empty() {
            return Ok(());
        }
        if let Some(done) = self.opening.repair(path, Assumptions::default())? {
            output.warn(&done);
        }
        report.orphans.kept = None;
        report.allocated = HostUsage::of(Path::new(path), &Silent)?.allocated;
        report.reclaimed = report.allocated_before.saturating_sub(report.allocated);
        Ok(())
    }
}

impl CompactReport {
    fn new(path: &ImagePath, done: &Compacted) -> Self {
        Self {
            path: path.to_string(),
            allocated_before: done.before,
            allocated: done.after,
            reclaimed: done.before.saturating_sub(done.after),
            zeros: done.zeros,
            holes: done.can_punch,
            orphans: OrphanInfo::new(&done.orphans),
            refused: SkippedVolumeInfo::all(&done.refused),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        write_skipped(&self.refused, output, out)?;
        if let Some(line) = orphans_line(&self.orphans, output) {
            writeln!(out, "{line}")?;
        }
        if self.zeros > 0 {
            writeln!(
                out,
                "{} were in use but contained only zeros",
                exact(self.zeros)
            )?;
        }
        if !self.holes {
            writeln!(
                out,
                "the host does not support sparse files: parts of bands stay allocated; run \
                 `bandsaw du` to see how much"
            )?;
        }
        let (before, after) = (exact(self.allocated_before), exact(self.allocated));
        writeln!(
            out,
            "{}: {before} before, {} freed, {after} now",
            output.name(&self.path),
            exact(self.reclaimed)
        )?;
        let is_complete = self.refused.is_empty() && self.orphans.places.is_empty();
        if self.reclaimed == 0 && self.holes && is_complete {
            writeln!(
                out,
                "no unused space is stored: `bandsaw rm` frees that of files at once"
            )?;
        }
        Ok(())
    }
}

impl PlanJson {
    fn new(path: &ImagePath, plan: &Plan, each: bool) -> Self {
        let causes = plan.causes.iter().map(|(cause, bytes)| CauseJson {
            cause: name(*cause),
            reclaimable: *bytes,
        });
        Self {
            path: path.to_string(),
            dry_run: true,
            allocated: plan.allocated,
            reclaimable: plan.returns(),
            causes: causes.collect(),
            pending: plan.pending,
            units: BandsJson::new(&plan.map, each),
            orphans: OrphanInfo::new(&plan.orphans),
            refused: SkippedVolumeInfo::all(&plan.refused),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut sheet = InfoWriter::new(output, out);
        sheet.heading(&output.name(&self.path))?;
        sheet.fact("on disk", &exact(self.allocated))?;
        self.units.write(&mut sheet)?;
        if self.pending > 0 {
            sheet.fact(
                "pending",
                &format!(
                    "{} held by older checkpoints; 1 MiB and more is released first",
                    exact(self.pending)
                ),
            )?;
        }
        for cause in &self.causes {
            let what = match cause.cause {
                "free_units" => format!("in completely free {}s", self.units.kind()),
                "free_parts" => "in free parts of others".to_owned(),
                _ => "in blocks that contain only zeros".to_owned(),
            };
            sheet.fact("returns", &format!("{} {what}", exact(cause.reclaimable)))?;
        }
        if let Some(line) = orphans_line(&self.orphans, output) {
            sheet.fact("orphans", &line)?;
        }
        sheet.fact("in all", &exact(self.reclaimable))?;
        self.units.write_kept(&mut sheet)?;
        self.units.write_each(&mut sheet)?;
        write_skipped(&self.refused, output, out)
    }
}

/// Returns the name of a cause, which is stable for programs.
fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::FreeUnits => "free_units",
        Cause::FreeParts => "free_parts",
        Cause::Zeros => "zeros",
    }
}
