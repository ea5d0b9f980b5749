//! `bandsaw watch`: checks and states of all bundles of a file server, by a schedule.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bandsaw::container::sparsebundle::band_size_for_macos;
use bandsaw::fs::Timestamp;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, size};
use bandsaw_states::health::{BundleVerdict, OpenFiles, bundles_in};
use bandsaw_states::{ClientUse, KeepPolicy, Policy, WatchOptions, WatchedBundle, watch_bundle};
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};

use crate::failure::Outcome;
use crate::health::{self, on_sound};
use crate::output::Output;
use crate::private_cache;
use crate::progress::Bar;
use crate::source::OpenArgs;
use crate::text::rfc3339;

/// Seconds between two looks for signals.
const TICK: Duration = Duration::from_secs(1);

/// Check bundles of a file server by a schedule
///
/// CONFIG is a file in TOML. Every bundle that is not in use is checked as `bandsaw check` does; with
/// `keep = true` a state of a sound one is kept, and old states are removed. States are no bundles.
/// A bundle of which no file has changed since it was found sound is not read again.
///
/// With `compact-from` a sound bundle is compacted, after its state was kept; the next round keeps another
/// state. With `band-size` a sound bundle with other bands gets bands of this size, and an interrupted change
/// of the size is resumed. Neither is done to a bundle that is not sound, or is in use. With `on-sound` a
/// command makes a snapshot of the file system, instead of a state. It is run without a shell while others are
/// kept from opening the bundle for changes; if the bundle changes nevertheless, the round says so.
///
/// With --once the exit code is that of the worst verdict: 5 for damage, 1 for a bundle or folder that
/// cannot be read, 8 for one that is locked, of an unknown kind or needs attention, and 0 for sound
/// bundles and those in use.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw watch /etc/bandsaw/watch.toml --once   one round, for cron
  bandsaw watch /etc/bandsaw/watch.toml          until it is told to end

CONFIG, with all keys:
  folders = [\"/srv/timemachine\"]     check every bundle in these folders
  bundles = [\"/srv/Mac.sparsebundle\"]
  interval-hours = 24                between the beginnings of two rounds
  keep = true                        keep a state of each sound bundle
  whole-copy = true                  permit that the first state is a whole copy
  states = \"/mnt/states\"             keep states there, not in the bundles
  keep-last = 3                      remove other states
  keep-daily = 7
  keep-weekly = 8
  scrub = true                       compare bands with their hashes
  compact-from = \"10g\"              give free space back, if that is so much
  band-size = \"32m\"                 change bands of another size
  smbstatus = true                   ask Samba which bundles are in use
  on-sound = [\"zfs\", \"snapshot\", \"tank/tm@{time}\"]
                                     run this for each bundle that changed and
                                     is sound: {bundle} is its path
  on-change = [\"mail\", \"-s\", \"Time Machine\", \"anna@example.org\"]
                                     run this when a verdict has changed;
                                     it has the report on standard input")]
pub(crate) struct Watch {
    /// The configuration
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath)]
    config: OsString,
    /// End after one round
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Config {
    #[serde(default)]
    folders: Vec<PathBuf>,
    #[serde(default)]
    bundles: Vec<PathBuf>,
    #[serde(default = "a_day")]
    interval_hours: u32,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    whole_copy: bool,
    states: Option<PathBuf>,
    #[serde(default)]
    keep_last: u64,
    #[serde(default)]
    keep_daily: u64,
    #[serde(default)]
    keep_weekly: u64,
    #[serde(default)]
    scrub: bool,
    #[serde(default)]
    on_change: Vec<String>,
    compact_from: Option<String>,
    band_size: Option<String>,
    #[serde(default)]
    smbstatus: bool,
    #[serde(default)]
    on_sound: Vec<String>,
}

impl Config {
    /// Returns the bytes from which a compaction is worth its work.
    fn compact_from(&self) -> bandsaw::Result<Option<u64>> {
        bytes("compact-from", self.compact_from.as_deref())
    }

    /// Returns the band size that bundles get.
    fn band_size(&self) -> bandsaw::Result<Option<u64>> {
        let size = bytes("band-size", self.band_size.as_deref())?;
        size.map(|size| band_size_for_macos(size, false))
            .transpose()
    }
}

/// Parses the number of bytes that a key of the configuration has.
fn bytes(key: &str, value: Option<&str>) -> bandsaw::Result<Option<u64>> {
    let parsed = value.map(size::parse);
    parsed
        .transpose()
        .map_err(|error| Error::invalid("watch", format!("{key}: {error}")))
}

/// Returns the use of bundles by clients of the server, as Samba tells.
fn client_use(config: &Config, output: &Output) -> ClientUse {
    if !config.smbstatus {
        return ClientUse::NotAsked;
    }
    OpenFiles::query().map_or_else(
        |error| {
            output.warn(&format!(
                "Samba was not asked which files are open, so no bundle is compacted or gets other \
                 bands: {error}"
            ));
            ClientUse::Unknown
        },
        ClientUse::Known,
    )
}

fn a_day() -> u32 {
    24
}

/// The output of `--json`.
#[derive(Serialize)]
struct WatchReport {
    bundles: Vec<Watched>,
}

#[derive(Default, Serialize)]
struct Watched {
    path: String,
    verdict: BundleVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The state that was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    removed_states: Vec<String>,
    /// Bytes that a compaction gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaimed: Option<u64>,
    /// The size of its bands, if this was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    band_size: Option<u64>,
    /// The time of the check that read the bands; nothing has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    unchanged_since: Option<String>,
}

impl Watch {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        if !self.once {
            output.refuse_json("watch without --once")?;
        }
        let config = self.config()?;
        let bar = Bar::new(output);
        loop {
            let began = Instant::now();
            let clients = client_use(&config, output);
            let done = self.round(&config, &clients, &bar)?;
            let worst = done.bundles.iter().map(|bundle| bundle.verdict).max();
            output.result(&done, |out| {
                for bundle in &done.bundles {
                    let mut line = format!("{:16}", bundle.verdict.name());
                    line.push_str(&output.name(&bundle.path));
                    for text in [&bundle.message, &bundle.state].into_iter().flatten() {
                        line.push_str(": ");
                        line.push_str(&output.text(text));
                    }
                    if let Some(bytes) = bundle.reclaimed {
                        line.push_str(&format!(": {} given back", size::display(bytes)));
                    }
                    if let Some(bytes) = bundle.band_size {
                        line.push_str(&format!(": bands of {}", size::display(bytes)));
                    }
                    writeln!(out, "{line}")?;
                }
                Ok(())
            })?;
            let notified = self.notify(&config, &done, output);
            if self.once {
                drop(bar);
                return health::conclude_with_command(
                    health::conclude("watch", worst),
                    notified,
                    output,
                );
            }
            // The next round tries again.
            if let Err(failure) = notified {
                let _ = failure.report(output);
            }
            let interval = Duration::from_secs(u64::from(config.interval_hours.max(1)) * 3600);
            while began.elapsed() < interval {
                (&bar as &dyn Progress).check()?;
                thread::sleep(TICK);
            }
        }
    }

    /// Runs the command that tells of changes.
    fn notify(&self, config: &Config, done: &WatchReport, output: &Output) -> Outcome {
        if config.on_change.is_empty() {
            return Ok(());
        }
        let places = health::run_key("watch", [self.config.to_string_lossy().into_owned()]);
        let now = done.bundles.iter();
        let now = now.map(|one| (one.path.clone(), one.verdict));
        let command: Vec<_> = config.on_change.iter().map(OsString::from).collect();
        health::run_on_change(&command, places, now, done, output)
    }

    fn config(&self) -> Outcome<Config> {
        let path = Path::new(&self.config);
        let text = fs::read_to_string(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::not_found("watch", path.display().to_string()),
            _ => Error::io("watch", "read", source).in_file(path),
        })?;
        let config: Config = toml::from_str(&text)
            .map_err(|error| Error::invalid("watch", error.to_string()).in_file(path))?;
        if config.folders.is_empty() && config.bundles.is_empty() {
            let message = "names neither folders nor bundles";
            return Err(Error::invalid("watch", message).in_file(path).into());
        }
        config.compact_from().map_err(|error| error.in_file(path))?;
        config.band_size().map_err(|error| error.in_file(path))?;
        Ok(config)
    }

    fn round(&self, config: &Config, clients: &ClientUse, bar: &Bar) -> Outcome<WatchReport> {
        let mut found: Vec<_> = config.bundles.iter().cloned().map(Ok).collect();
        for folder in &config.folders {
            found.extend(bundles_in(folder));
        }
        let opening = |access| self.opening.options(access);
        let on_sound = |path: &Path| {
            on_sound::run_if_changed(path, &config.on_sound, Timestamp::now_in_seconds())
        };
        let options = WatchOptions {
            opening: &opening,
            keys: Some(self.opening.keys()),
            cache: private_cache::open(),
            clients,
            states: config.states.as_deref(),
            keep: config.keep.then_some(KeepPolicy {
                whole_copy: config.whole_copy,
                retained: Policy {
                    last: config.keep_last,
                    daily: config.keep_daily,
                    weekly: config.keep_weekly,
                },
            }),
            on_sound: (!config.on_sound.is_empty()).then_some(&on_sound),
            scrub: config.scrub,
            compact_from: config.compact_from()?,
            band_size: config.band_size()?,
        };
        let mut report = WatchReport {
            bundles: Vec::new(),
        };
        for bundle in found {
            (bar as &dyn Progress).check()?;
            let watched = match bundle {
                Ok(path) => match watch_bundle(&path, &options, bar) {
                    Err(error) if error.kind() == Kind::Cancelled => return Err(error.into()),
                    Err(error) => entry(&path, WatchedBundle::of_error(&error)),
                    Ok(found) => entry(&path, found),
                },
                Err((path, error)) => entry(&path, WatchedBundle::of_error(&error)),
            };
            report.bundles.push(watched);
        }
        Ok(report)
    }
}

/// Returns the entry of a bundle in the report.
fn entry(path: &Path, found: WatchedBundle) -> Watched {
    let advice = found
        .status
        .map(|_| format!("run `bandsaw tm status {}`", path.display()));
    Watched {
        path: path.display().to_string(),
        verdict: found.verdict,
        message: found.message.or(advice),
        state: found.state,
        removed_states: found.removed_states,
        reclaimed: found.reclaimed,
        band_size: found.band_size,
        unchanged_since: found.unchanged_since.map(rfc3339),
    }
}
