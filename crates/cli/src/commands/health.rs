//! `bandsaw health`: the health of all bundles of a file server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::progress::Progress;
use bandsaw::store::FileMode;
use bandsaw::{Kind, size};
use bandsaw_states::health::{
    BundleVerdict, Depth, Health, HealthOptions, OpenFiles, Samba, find_bundles,
};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;
use std::io::Write;

use crate::failure::Outcome;
use crate::health;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::private_cache;
use crate::progress::Bar;
use crate::source::OpenArgs;
use crate::text::{counted, rfc3339};
use crate::throttle_args::ThrottleArgs;

/// The days until the file system is full from which nothing is said about it.
const MAX_DAYS: u64 = 365;

/// Check the health of all bundles below folders
///
/// Each bundle gets a verdict with its reasons: sound; needs attention; damaged, restore possible;
/// damaged; locked (encrypted, and no passphrase was given); unknown; unreadable; or in use. A bundle
/// that is in use, or that changes during the check, is never called damaged. Nothing is changed. A
/// bundle of which no file has changed since it was found sound is not read again, without --full.
///
/// The exit code is that of the worst verdict: 5 for damage, 1 for a bundle or folder that cannot be
/// read, 8 for one that is locked, of an unknown kind or needs attention, and 0 for sound bundles and
/// those in use.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw health /srv/timemachine
  bandsaw health /srv/timemachine --max-age 3d
  bandsaw health /srv/timemachine --full    read everything, each month
  bandsaw health /srv/timemachine --prometheus /var/lib/node_exporter/bandsaw.prom
  bandsaw health /srv/timemachine --on-change mail -s 'Time Machine' anna@example.org")]
pub(crate) struct HealthVerb {
    /// Folders with bundles, also in subfolders, or bundles
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath, required = true)]
    folders: Vec<OsString>,
    /// Read this much of each volume
    #[arg(long, value_enum, default_value = "full")]
    depth: DepthArg,
    /// Read bundles that have not changed, too
    ///
    /// By default a bundle that was found sound is not read again until one of its files has other
    /// times, another size or another inode. The report shows the date of the check that read it.
    #[arg(long)]
    full: bool,
    /// Require a backup that is not older: 36h, 3d or 2w
    #[arg(long, value_name = "AGE", value_parser = age)]
    max_age: Option<Duration>,
    /// Write the results for Prometheus to this file
    ///
    /// It is for the textfile collector of node_exporter, and is replaced in one step.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    prometheus: Option<PathBuf>,
    /// Look for causes in the settings of Samba, too
    ///
    /// FILE has the output of `smbd --version; testparm -s`. Causes do not change the verdict.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    samba: Option<PathBuf>,
    /// Ask Samba on this machine which bundles are open
    ///
    /// Runs `smbstatus --json`, which the user must be permitted to. A bundle of which a client has a
    /// file open is in use. If Samba cannot be asked, a warning says so.
    #[arg(long)]
    smbstatus: bool,
    /// Run this command if a verdict has changed since the last run
    ///
    /// All further arguments, up to `;`, are those of the command. It is run without a shell, and has
    /// the report of `--json` with a list of the changes on its standard input. A bundle in use keeps
    /// its last verdict. If the command fails, so does the check, and the next one tries again.
    #[arg(
        long,
        value_name = "COMMAND",
        num_args = 1..,
        allow_hyphen_values = true,
        value_terminator = ";",
        value_hint = ValueHint::CommandName
    )]
    on_change: Vec<OsString>,
    #[command(flatten)]
    throttle: ThrottleArgs,
    #[command(flatten)]
    opening: OpenArgs,
}

/// Depth of the check of a volume.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum DepthArg {
    /// The structure of the bundle, the partition map, and the first part of each volume
    Quick,
    /// All structures, as `bandsaw check` does
    Full,
}

/// The output of `--json`.
#[derive(Serialize)]
struct HealthReport {
    bundles: Vec<HealthJson>,
}

#[derive(Serialize)]
struct HealthJson {
    path: String,
    verdict: BundleVerdict,
    reasons: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_backup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_state: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<u64>,
    /// Bytes by which that grew each day.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_per_day: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaimable: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sound_state: Option<String>,
    /// The time of the check that read the bands; nothing has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    unchanged_since: Option<String>,
    /// Causes of failing backups that are not the bundle's.
    causes: Vec<String>,
}

impl HealthJson {
    fn new(health: &Health) -> Self {
        Self {
            path: health.path.clone(),
            verdict: health.verdict,
            reasons: health.reasons.clone(),
            last_backup: health.last_backup.map(rfc3339),
            backup_count: health.contents.backups,
            verification_state: health.verification_state,
            size: health.contents.size,
            allocated: health.contents.allocated,
            growth_per_day: health.growth,
            reclaimable: health.contents.reclaimable,
            free: health.contents.free,
            host_free: health.host_free,
            sound_state: health.sound_state.clone(),
            unchanged_since: health.unchanged_since.map(rfc3339),
            causes: health.causes.clone(),
        }
    }
}

impl HealthVerb {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.throttle.apply();
        let samba = self.samba.as_deref().map(Samba::read).transpose()?;
        let open_files = match self.smbstatus.then(OpenFiles::query) {
            Some(Err(error)) => {
                output.warn(&format!(
                    "Samba was not asked which files are open: {error}"
                ));
                None
            }
            asked => asked.transpose()?,
        };
        let bar = Bar::new(output);
        let options = HealthOptions {
            opening: self.opening.options(Access::ReadOnly),
            depth: match self.depth {
                DepthArg::Quick => Depth::Quick,
                DepthArg::Full => Depth::Full,
            },
            cache: private_cache::open(),
            reads_unchanged: self.full,
            max_age: self.max_age,
            now: Timestamp::now_in_seconds(),
            samba: samba.as_ref(),
            open_files: open_files.as_ref(),
        };
        let mut all = Vec::new();
        for folder in &self.folders {
            for found in find_bundles(Path::new(folder)) {
                (&bar as &dyn Progress).check()?;
                all.push(match found {
                    Ok(path) => Health::check(&path, &options, &bar)?,
                    Err((path, error)) if error.kind() == Kind::Cancelled => {
                        return Err(error.in_file(path).into());
                    }
                    Err((path, error)) => Health::of_error(&path, &error),
                });
            }
        }
        drop(bar);
        if let Some(file) = &self.prometheus {
            let mut new = NewFile::create_as(file, true, FileMode::ANY)?;
            new.write_all(metrics(&all, options.now.seconds).as_bytes())?;
            new.finish()?;
        }
        let report = HealthReport {
            bundles: all.iter().map(HealthJson::new).collect(),
        };
        output.result(&report, |out| {
            for one in &all {
                writeln!(out, "{:26}{}", one.verdict.name(), output.name(&one.path))?;
                let last = one
                    .last_backup
                    .map(|last| format!("last backup {}", last.to_minute()));
                let unchanged = one
                    .unchanged_since
                    .map(|read| format!("unchanged since {}, not read again", read.to_minute()));
                let causes = one.causes.iter();
                let causes = causes.map(|cause| format!("not the bundle: {cause}"));
                let texts = last.into_iter().chain(unchanged).chain(growth_text(one));
                for text in texts.chain(one.reasons.iter().cloned()).chain(causes) {
                    writeln!(out, "  {}", output.text(&text))?;
                }
            }
            Ok(())
        })?;
        let notified = match self.on_change.is_empty() {
            true => Ok(()),
            false => {
                let now = all.iter().map(|one| (one.path.clone(), one.verdict));
                health::run_on_change(&self.on_change, self.places(), now, &report, output)
            }
        };
        let concluded = health::conclude("health", all.iter().map(|one| one.verdict).max());
        health::conclude_with_command(concluded, notified, output)
    }

    /// Returns what tells runs over other folders apart.
    fn places(&self) -> Vec<String> {
        let folders = self.folders.iter();
        let folders = folders.map(|folder| folder.to_string_lossy().into_owned());
        health::run_key("health", folders)
    }
}

/// Returns the growth of a bundle for people, with the days until the file system is full.
fn growth_text(one: &Health) -> Option<String> {
    let growth = u64::try_from(one.growth?)
        .ok()
        .filter(|growth| *growth > 0)?;
    let mut text = format!("grows by {} a day", size::display(growth));
    let days = one.host_free.map(|free| free / growth);
    if let Some(days) = days.filter(|days| *days <= MAX_DAYS) {
        let days = counted(days, "day", "days");
        text.push_str(&format!("; the file system is full in {days}"));
    }
    Some(text)
}

/// Name and description of a metric, and its value for a bundle.
type Metric = (&'static str, &'static str, fn(&Health) -> Option<i128>);

/// Returns the results in the text format of Prometheus.
fn metrics(all: &[Health], now: i64) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, lines: Vec<(String, String)>| {
        text.push_str(&format!(
            "# HELP bandsaw_{name} {help}\n# TYPE bandsaw_{name} gauge\n"
        ));
        for (labels, value) in lines {
            text.push_str(&format!("bandsaw_{name}{{{labels}}} {value}\n"));
        }
    };
    let label = |one: &Health| format!("path=\"{}\"", escaped(&one.path));
    // One series per verdict, as Prometheus' enumerations have, so that a query can name a verdict.
    let verdicts = all.iter().flat_map(|one| {
        BundleVerdict::ALL.map(|verdict| {
            let name = verdict.name().replace(", ", "_").replace(' ', "_");
            let labels = format!("{},verdict=\"{name}\"", label(one));
            (labels, u8::from(one.verdict == verdict).to_string())
        })
    });
    family(
        "bundle_verdict",
        "1 for the verdict on the bundle.",
        verdicts.collect(),
    );
    let numbers: [Metric; 10] = [
        (
            "bundle_last_backup_timestamp_seconds",
            "Time at which the last backup was finished.",
            |one| one.last_backup.map(|last| last.seconds.into()),
        ),
        ("bundle_backups", "Complete backups.", |one| {
            one.contents.backups.map(Into::into)
        }),
        (
            "bundle_verification_state",
            "State of verification as macOS wrote it; 2 if it refuses the bundle.",
            |one| one.verification_state.map(Into::into),
        ),
        (
            "bundle_size_bytes",
            "Size of the disk in the bundle.",
            |one| one.contents.size.map(Into::into),
        ),
        ("bundle_allocated_bytes", "Storage of the bundle.", |one| {
            one.contents.allocated.map(Into::into)
        }),
        (
            "bundle_growth_bytes_per_day",
            "Bytes by which the storage grew each day, in the last month at most.",
            |one| one.growth.map(Into::into),
        ),
        (
            "bundle_reclaimable_bytes",
            "Storage that compaction would return.",
            |one| one.contents.reclaimable.map(Into::into),
        ),
        (
            "bundle_free_bytes",
            "Free space of the volumes in the bundle.",
            |one| one.contents.free.map(Into::into),
        ),
        (
            "bundle_host_free_bytes",
            "Free space of the file system on which the bundle is.",
            |one| one.host_free.map(Into::into),
        ),
        (
            "bundle_read_timestamp_seconds",
            "Time of the check that read a bundle which has not changed since.",
            |one| one.unchanged_since.map(|read| read.seconds.into()),
        ),
    ];
    for (name, help, value) in numbers {
        let lines = all
            .iter()
            .filter_map(|one| Some((label(one), value(one)?.to_string())));
        family(name, help, lines.collect());
    }
    text.push_str(&format!(
        "# HELP bandsaw_health_timestamp_seconds Time of the check.\n\
         # TYPE bandsaw_health_timestamp_seconds gauge\nbandsaw_health_timestamp_seconds {now}\n"
    ));
    text
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Parses an age: `36h`, `3d` or `2w`.
fn age(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number and m, h, d or w, such as 36h or 3d".to_owned();
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    number
        .checked_mul(seconds)
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
        .ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("36h"), Ok(Duration::from_secs(36 * 3600)));
        assert_eq!(age("2w"), Ok(Duration::from_secs(14 * 86_400)));
        for bad in [
            "",
            "3",
            "d",
            "-1d",
            "0d",
            "3y",
            "99999999999999999999w",
            "3é",
        ] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        let health = Health {
            path: "/a\"b".to_owned(),
            ..Health::default()
        };
        let text = metrics(&[health], 7);
        assert!(text.contains("bandsaw_bundle_verdict{path=\"/a\\\"b\",verdict=\"sound\"} 1\n"));
        assert!(text.contains("bandsaw_health_timestamp_seconds 7\n"));
        assert!(!text.contains("bundle_backups{"));
    }
}
