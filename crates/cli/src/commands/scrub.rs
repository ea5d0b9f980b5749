//! `bandsaw scrub`: a hash of each band.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::open::{self, OpenOptions};
use bandsaw::store::Store;
use bandsaw::{Error, Kind};
use bandsaw_states::{BundleFolder, Finding, ScrubOptions, scrub};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::info_writer::exact;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::progress::Bar;
use crate::source;
use crate::text::counted;
use crate::throttle_args::ThrottleArgs;

/// Find bands that changed although no program wrote to them
///
/// Reads every band of a sparse bundle and compares it with its BLAKE3 hash in
/// .bandsaw/hashes.json, which the first run records. A band is faulty if its contents changed, but
/// not its size and times: every write changes these. A band that was written since gets a new hash.
/// If the times do not tell, or a band no longer exists, it is reported until --accept. --from repairs
/// faulty bands from another copy of the bundle, if that has the recorded contents; the faulty ones
/// go to .bandsaw/quarantine. An interrupted run is resumed.
///
/// The exit code is 5 if a band is faulty or cannot be read, and 8 if one is unknown or missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw scrub Mac.sparsebundle
  bandsaw scrub Mac.sparsebundle --limit-rate 50m
  bandsaw scrub Mac.sparsebundle --from /backup/Mac.sparsebundle   repair faulty bands
  bandsaw scrub Mac.sparsebundle --from s3://backups/nas/Mac.sparsebundle
  bandsaw scrub Mac.sparsebundle --accept                          after a check by hand")]
pub(crate) struct Scrub {
    /// The sparse bundle
    #[arg(value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    bundle: OsString,
    /// Repair faulty bands from another copy or a state
    ///
    /// That is a folder, a snapshot (BUNDLE@NAME), or a bundle in a bucket
    /// (s3://BUCKET/FOLDER/NAME.sparsebundle@STATE).
    #[arg(long, value_name = "COPY", value_hint = ValueHint::DirPath)]
    from: Option<PathBuf>,
    /// Record unknown bands as they are, and forget missing ones
    ///
    /// Faulty bands are never accepted.
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    throttle: ThrottleArgs,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ScrubReport {
    path: String,
    resumed: bool,
    read_bands: u64,
    read_size: u64,
    new_bands: u64,
    changed_bands: u64,
    findings: Vec<FindingJson>,
    repaired: Vec<String>,
}

#[derive(Serialize)]
struct FindingJson {
    name: String,
    /// `faulty`, `unreadable`, `unknown` or `missing`.
    finding: &'static str,
}

impl Scrub {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.bundle)?;
        let bundle = BundleFolder::open(Path::new(&image))?;
        // Of an encrypted bundle, the transactions are not known.
        let opened = open::open(Path::new(&image), &OpenOptions::default());
        let transactions = opened.ok().and_then(|image| image.last_transactions());
        let from = self.from.as_deref();
        let from = from.map(|from| open::bundle_files(from, self.network_args.options()));
        let from = from.transpose()?;
        let options = ScrubOptions {
            transactions: transactions.as_deref(),
            from: from.as_deref().map(|from| from as &dyn Store),
            accept: self.accept,
            ..ScrubOptions::default()
        };
        let bar = Bar::new(output);
        self.throttle.apply();
        let done = scrub(&bundle, &options, &bar)
            .advise(Kind::Cancelled, || {
                format!("run `bandsaw scrub {image}` to resume")
            })
            .advise(Kind::Corrupt, || {
                "use --accept to record the present contents as sound".to_owned()
            })?;
        drop(bar);
        let findings = done.findings.iter().map(|(name, finding)| FindingJson {
            name: name.clone(),
            finding: finding.name(),
        });
        let report = ScrubReport {
            path: image.to_string(),
            resumed: done.resumed,
            read_bands: done.read,
            read_size: done.read_size,
            new_bands: done.new,
            changed_bands: done.changed,
            findings: findings.collect(),
            repaired: done.repaired.clone(),
        };
        output.done(&report, |out| {
            for name in &report.repaired {
                writeln!(out, "repaired   {}", output.name(name))?;
            }
            for found in &report.findings {
                writeln!(out, "{:10} {}", found.finding, output.name(&found.name))?;
            }
            writeln!(
                out,
                "read {} ({}): {} new, {} changed, {} repaired",
                counted(report.read_bands, "band", "bands"),
                exact(report.read_size),
                report.new_bands,
                report.changed_bands,
                report.repaired.len()
            )
        })?;
        conclude(&done.findings, &bundle)
    }
}

/// Returns the failure for the worst finding.
fn conclude(findings: &[(String, Finding)], bundle: &BundleFolder) -> Outcome {
    let damaged = findings.iter().filter(|(_, finding)| finding.is_damage());
    let damaged = damaged.count() as u64;
    let error =
        |message| Failure::from(Error::new(Kind::Corrupt, "scrub", message).in_file(bundle.path()));
    if damaged > 0 {
        let what = counted(damaged, "band is", "bands are");
        return Err(error(format!("{what} faulty")).hint(
            "use --from with another copy of the bundle, or with a state of `bandsaw tm states`",
        ));
    }
    match findings.len() as u64 {
        0 => Ok(()),
        others => {
            let what = counted(others, "band is", "bands are");
            Err(error(format!("{what} unknown or missing"))
                .warned()
                .hint("use --accept to record the present contents as sound"))
        }
    }
}
