//! `cargo xtask judge-hfs`: damaged HFS+ volumes, checked and repaired by `bandsaw` and by another
//! program. The contents of each volume are known before the damage, and compared afterwards.
//!
//! The other checker has the options of `fsck_hfs`; its formatter those of `newfs_hfs`, with the
//! volume as first argument.

mod case;
mod damage;
mod places;
mod programs;
mod report;
mod volumes;

use std::fs::File;
use std::path::PathBuf;

use bandsaw::sync::Mutex;

use anyhow::Result;
use rayon::prelude::*;

use self::case::judge;
use self::damage::Kind;
use self::places::Places;
use self::report::Report;
use self::volumes::Sample;

/// Damage HFS+ volumes, check and repair them beside another program, and compare every file.
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// The command to judge.
    #[arg(long)]
    bandsaw: PathBuf,
    /// The other checker.
    #[arg(long)]
    fsck: PathBuf,
    /// The other formatter, which gets the volume as its first argument.
    #[arg(long)]
    newfs: PathBuf,
    /// The number of cases.
    #[arg(long, default_value_t = 600)]
    cases: u64,
    /// The first case's seed; those after it have the numbers that follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cases made of one consistent volume.
    #[arg(long, default_value_t = 25)]
    reuse: u64,
    /// The only kind of damage, by its name in the tables.
    #[arg(long, hide_possible_values = true)]
    only: Option<Kind>,
    /// Folder for scratch files; volumes of disagreements stay there with `--keep`.
    #[arg(long, default_value = "/dev/shm/judge-hfs")]
    scratch: PathBuf,
    /// Keeps the volumes of disagreements.
    #[arg(long)]
    keep: bool,
    /// Writes a line for each case and the messages of disagreements to this file.
    #[arg(long)]
    log: Option<PathBuf>,
}

pub(crate) fn run(args: &JudgeArgs) -> Result<()> {
    std::fs::create_dir_all(&args.scratch)?;
    let log = args
        .log
        .as_ref()
        .map(File::create)
        .transpose()?
        .map(Mutex::new);
    let report = Mutex::new(Report::default());
    let groups: Vec<u64> = (args.seed..args.seed + args.cases)
        .step_by(args.reuse.max(1) as usize)
        .collect();
    groups.into_par_iter().try_for_each(|first| -> Result<()> {
        let volume = first / args.reuse.max(1);
        let sample = match volumes::make(volume, &args.newfs, &args.scratch) {
            Ok(sample) => sample,
            Err(error) => {
                eprintln!("volume {volume}: {error:#}");
                return Ok(());
            }
        };
        if let Some(why) = is_unsound(args, &sample, volume)? {
            eprintln!("volume {volume} is not sound ({}): {why}", sample.about);
            return Ok(());
        }
        let places = Places::of(&sample.bytes);
        for seed in first..(first + args.reuse.max(1)).min(args.seed + args.cases) {
            let Some((case, damaged)) = judge(args, &sample, &places, seed)? else {
                continue;
            };
            if let Some(log) = &log {
                report::log(&case, log);
            }
            if args.keep && !case.flags().is_empty() {
                let keep = |what: &str, bytes: &[u8]| {
                    std::fs::write(args.scratch.join(format!("{seed}-{what}")), bytes)
                };
                keep("sound", &sample.bytes)?;
                keep("damaged", &damaged)?;
                keep("ours", &case.best().bytes)?;
                keep("theirs", &case.theirs.bytes)?;
            }
            let all = sample.holds.kept(&sample.holds);
            let mut report = report.lock();
            report.add(&case, all);
        }
        Ok(())
    })?;
    report.into_inner().print();
    Ok(())
}

/// Returns the reason why a volume that was not damaged cannot be used: a file that cannot be read,
/// or a finding of either checker.
fn is_unsound(args: &JudgeArgs, sample: &Sample, volume: u64) -> Result<Option<String>> {
    let name = format!("sound-{volume}");
    let theirs = programs::verdict(args, &sample.bytes, &name)?;
    if theirs.exit != Some(0) {
        return Ok(Some(theirs.text));
    }
    let image = args.scratch.join(format!("{name}.img"));
    std::fs::write(&image, &sample.bytes)?;
    let (ours, _) = programs::bandsaw(args, &["check"], &image)?;
    std::fs::remove_file(&image)?;
    if ours.exit != Some(0) {
        return Ok(Some(ours.text));
    }
    let unreadable = sample.holds.files.iter().find(|(_, file)| file.is_none());
    Ok(unreadable.map(|(path, _)| format!("{path} cannot be read")))
}
