//! `cargo xtask judge-hfs`: randomly corrupted HFS+ volumes, checked by another program and by us.
//!
//! The other checker has the options of `fsck_hfs`; its formatter those of `newfs_hfs`, with the
//! volume as first argument.

mod damage;
mod volumes;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use bandsaw::device::Memory;
use bandsaw::fs::hfsplus::{Repair, check};
use bandsaw::problem::{Problem, Severity};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;
use rayon::prelude::*;

use self::damage::{Places, TARGETS};
use self::volumes::{Contents, Sample};

/// Randomly damaged HFS+ volumes: our check and repair beside those of another program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The other checker.
    #[arg(long)]
    fsck: PathBuf,
    /// The other formatter, which gets the volume as its first argument.
    #[arg(long)]
    newfs: PathBuf,
    /// How many cases.
    #[arg(long, default_value_t = 600)]
    cases: u64,
    /// The first case's seed; those after it have the numbers that follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cases made of one sound volume.
    #[arg(long, default_value_t = 25)]
    reuse: u64,
    /// Damages only this, by name.
    #[arg(long)]
    only: Option<String>,
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

/// The outcome of our repair.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ours {
    Nothing,
    Repaired,
    Refused(String),
    Panicked,
}

/// A case and the results of both checkers.
struct Case {
    seed: u64,
    kind: String,
    about: String,
    damage: String,
    /// Verdicts of the other checker: on the damaged volume, on the one repaired by us, on the one
    /// repaired by it.
    rejects: bool,
    ours_accepted: bool,
    theirs_accepted: bool,
    worst: Option<Severity>,
    ours: Ours,
    before: [usize; 3],
    ours_kept: [usize; 3],
    theirs_kept: [usize; 3],
    told: String,
}

/// Counts of one kind of damage.
#[derive(Debug, Default, Clone)]
struct Row {
    cases: u64,
    rejects: u64,
    missed: u64,
    strict: u64,
    strict_warning: u64,
    ours: u64,
    theirs: u64,
    refused_theirs: u64,
    bad_repair: u64,
    worse: u64,
    panicked: u64,
    kept: [[usize; 3]; 2],
    fewer: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.scratch)?;
    let log = args
        .log
        .as_ref()
        .map(std::fs::File::create)
        .transpose()?
        .map(Mutex::new);
    let rows: Mutex<BTreeMap<String, Row>> = Mutex::default();
    let groups: Vec<u64> = (args.seed..args.seed + args.cases)
        .step_by(args.reuse.max(1) as usize)
        .collect();
    let done: Result<()> = groups.into_par_iter().try_for_each(|first| {
        let volume = first / args.reuse.max(1);
        let sample = match volumes::make(volume, &args.newfs, &args.scratch) {
            Ok(sample) => sample,
            Err(error) => {
                eprintln!("volume {volume}: {error:#}");
                return Ok(());
            }
        };
        let sound = other(args, &sample.bytes, first, &["-f", "-n"])?;
        let ours = check(Arc::new(Memory::read_only(sample.bytes.clone())), &Silent)?;
        if sound.0 != Some(0) || ours.iter().any(|problem| problem.severity > Severity::Note) {
            eprintln!(
                "volume {volume} is not sound ({}): {}\n{ours:?}",
                sample.about, sound.1
            );
            return Ok(());
        }
        let places = Places::of(&sample.bytes);
        for seed in first..(first + args.reuse.max(1)).min(args.seed + args.cases) {
            let Some(case) = judge(args, &sample, &places, seed)? else {
                continue;
            };
            tell(&case, log.as_ref());
            let mut rows = rows.lock().unwrap_or_else(|held| held.into_inner());
            rows.entry(case.kind.clone()).or_default().add(&case);
        }
        Ok(())
    });
    done?;
    print(&rows.into_inner().unwrap_or_default());
    Ok(())
}

fn judge(args: &Args, sample: &Sample, places: &Places, seed: u64) -> Result<Option<Case>> {
    let mut random = Random::new(seed ^ 0x4846_532B);
    let mut bytes = sample.bytes.clone();
    let damages = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3][random.within(0..10) as usize];
    let (mut kinds, mut done) = (Vec::new(), Vec::new());
    for _ in 0..damages {
        let number = random.within(0..TARGETS.len() as u64) as usize;
        let only = |only: &String| {
            TARGETS
                .into_iter()
                .find(|target| format!("{target:?}") == *only)
        };
        let target = args.only.as_ref().and_then(only).unwrap_or(TARGETS[number]);
        if let Some(what) = places.damage(target, &mut bytes, &mut random) {
            kinds.push(format!("{target:?}"));
            done.push(what);
        }
    }
    if bytes == sample.bytes {
        return Ok(None);
    }
    let kind = if kinds.len() > 1 {
        "several".to_owned()
    } else {
        kinds.concat()
    };
    let theirs = other(args, &bytes, seed, &["-f", "-n"])?;
    let quiet = |bytes: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| {
            check(Arc::new(Memory::read_only(bytes.to_vec())), &Silent).unwrap_or_else(|error| {
                vec![Problem {
                    severity: Severity::Damage,
                    error,
                }]
            })
        }))
    };
    let found = quiet(&bytes);
    let worst = found.as_ref().map_or(Some(Severity::Damage), |found| {
        found.iter().map(|problem| problem.severity).max()
    });
    let device = Arc::new(Memory::from(bytes.clone()));
    let ours = catch_unwind(AssertUnwindSafe(|| repair(&device))).unwrap_or(Ours::Panicked);
    let repaired = device.to_vec();
    let after_ours = if repaired == bytes {
        theirs.clone()
    } else {
        other(args, &repaired, seed, &["-f", "-n"])?
    };
    let path = args.scratch.join(format!("fy-{seed}"));
    std::fs::write(&path, &bytes)?;
    let fixing = other_on(args, &path, &["-f", "-y"])?;
    let fixed = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    let after_theirs = if fixed == bytes {
        theirs.clone()
    } else {
        other(args, &fixed, seed, &["-f", "-n"])?
    };
    let kept = |bytes: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| sample.holds.kept(&Contents::of(bytes))))
            .unwrap_or_default()
    };
    let ok = |answer: &(Option<i32>, String)| answer.0 == Some(0);
    let mut told = format!("--- theirs\n{}", theirs.1);
    told += "--- ours\n";
    for problem in found.iter().flatten().take(12) {
        told += &format!("{:?}: {}\n", problem.severity, problem.error);
    }
    told += &format!("--- our repair: {ours:?}\n");
    if !ok(&after_ours) {
        told += &format!("--- theirs of our repair\n{}", after_ours.1);
    }
    told += &format!("--- their repair\n{}", fixing.1);
    let case = Case {
        seed,
        kind,
        about: sample.about.clone(),
        damage: done.join("; "),
        rejects: !ok(&theirs),
        ours_accepted: ok(&after_ours),
        theirs_accepted: ok(&after_theirs),
        worst: if found.is_err() { None } else { worst },
        ours: if found.is_err() { Ours::Panicked } else { ours },
        before: kept(&bytes),
        ours_kept: kept(&repaired),
        theirs_kept: kept(&fixed),
        told,
    };
    if args.keep && !case.flags().is_empty() {
        std::fs::write(args.scratch.join(format!("{seed}-damaged")), &bytes)?;
        std::fs::write(args.scratch.join(format!("{seed}-ours")), &repaired)?;
        std::fs::write(args.scratch.join(format!("{seed}-theirs")), &fixed)?;
        std::fs::write(args.scratch.join(format!("{seed}-sound")), &sample.bytes)?;
    }
    Ok(Some(case))
}

fn repair(device: &Arc<Memory>) -> Ours {
    let done = Repair::plan(device.clone(), &Silent).and_then(|repair| {
        let needed = repair.is_needed();
        repair.apply(&Silent).map(|()| needed)
    });
    match done {
        Ok(true) => Ours::Repaired,
        Ok(false) => Ours::Nothing,
        Err(error) => Ours::Refused(error.to_string()),
    }
}

fn other(args: &Args, bytes: &[u8], seed: u64, options: &[&str]) -> Result<(Option<i32>, String)> {
    let path = args.scratch.join(format!("n-{seed}"));
    std::fs::write(&path, bytes)?;
    let mut answer = other_on(args, &path, options)?;
    // With its debug messages it continues where it would otherwise stop, but forgets some
    // findings; the stricter result is used.
    if answer.0 == Some(0) {
        answer = other_on(args, &path, &[options, &["-d"]].concat())?;
    }
    std::fs::remove_file(&path)?;
    Ok(answer)
}

/// Runs the other checker; returns its exit code and messages.
fn other_on(args: &Args, path: &Path, options: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new("timeout");
    command.args(["20"]).arg(&args.fsck).args(options).arg(path);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.code() == Some(127) {
        bail!("cannot run {}", args.fsck.display());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let dull = [
        "Executing",
        "Using cache",
        "The volume name",
        "CONTINUE",
        "NO WRITE",
        "Checking ",
        "Journal is empty",
        "Detected a case",
        "character device",
        "volume type is",
        "MDB is at",
        "VHB is at",
        "sector size =",
        "VolumeObject",
        "total sectors",
        "CheckHFS returned",
        "cacheBlock",
        "** /dev",
    ];
    let lines: String = text
        .lines()
        .filter(|line| !line.is_empty() && !dull.iter().any(|dull| line.contains(dull)))
        .take(25)
        .fold(String::new(), |all, line| all + line + "\n");
    Ok((
        output.status.code(),
        format!("{lines}exit {:?}\n", output.status.code()),
    ))
}

impl Case {
    /// Returns the disagreements.
    fn flags(&self) -> Vec<&'static str> {
        let clean = self.worst.is_none_or(|worst| worst < Severity::Warning);
        let mut flags = Vec::new();
        let mut add = |wrong: bool, flag| {
            if wrong {
                flags.push(flag);
            }
        };
        add(self.ours == Ours::Panicked, "PANIC");
        add(self.rejects && clean, "MISSED");
        add(
            !self.rejects && self.worst == Some(Severity::Damage),
            "STRICT",
        );
        add(
            !self.rejects && self.worst == Some(Severity::Warning),
            "WARNED",
        );
        add(
            self.ours == Ours::Repaired && !self.ours_accepted,
            "BADREPAIR",
        );
        add(
            !self.rejects && (!self.ours_accepted || self.ours_kept[0] < self.before[0]),
            "WORSE",
        );
        add(
            matches!(self.ours, Ours::Refused(_)) && self.theirs_accepted && self.rejects,
            "REFUSED",
        );
        add(
            matches!(self.ours, Ours::Refused(_)) && !(self.theirs_accepted && self.rejects),
            "REFUSED-BOTH",
        );
        add(
            self.theirs_accepted && self.ours_accepted && self.ours_kept[0] < self.theirs_kept[0],
            "FEWER",
        );
        add(
            self.theirs_accepted && self.ours_accepted && self.ours_kept[1] < self.theirs_kept[1],
            "FEWERPATHS",
        );
        add(
            self.theirs_accepted && self.ours_accepted && self.ours_kept[2] < self.theirs_kept[2],
            "FEWERVALUES",
        );
        flags
    }
}

impl Row {
    fn add(&mut self, case: &Case) {
        let flags = case.flags();
        let is = |flag: &str| u64::from(flags.contains(&flag));
        self.cases += 1;
        self.rejects += u64::from(case.rejects);
        self.missed += is("MISSED");
        self.strict += is("STRICT");
        self.strict_warning += is("WARNED");
        let repaired = matches!(case.ours, Ours::Repaired | Ours::Nothing);
        self.ours += u64::from(case.rejects && repaired && case.ours_accepted);
        self.theirs += u64::from(case.rejects && case.theirs_accepted);
        self.refused_theirs += is("REFUSED");
        self.bad_repair += is("BADREPAIR");
        self.worse += is("WORSE");
        self.panicked += is("PANIC");
        self.fewer += is("FEWER");
        for at in 0..3 {
            self.kept[0][at] += case.ours_kept[at];
            self.kept[1][at] += case.theirs_kept[at];
        }
    }
}

fn tell(case: &Case, log: Option<&Mutex<std::fs::File>>) {
    let Some(log) = log else { return };
    let mut log = log.lock().unwrap_or_else(|held| held.into_inner());
    let flags = case.flags();
    let _ = writeln!(
        log,
        "CASE {} {} [{}] rejects={} ours={:?} accepted={}/{} worst={:?} before={:?} kept={:?}/{:?} | {} | {}",
        case.seed,
        case.kind,
        flags.join(","),
        case.rejects,
        case.ours,
        case.ours_accepted,
        case.theirs_accepted,
        case.worst,
        case.before,
        case.ours_kept,
        case.theirs_kept,
        case.damage,
        case.about
    );
    if !flags.is_empty() {
        let _ = writeln!(log, "{}", case.told);
    }
}

fn print(rows: &BTreeMap<String, Row>) {
    println!(
        "| damage | cases | they reject | we call clean | we call damaged, they accept | we warn, they accept | mended by us | mended by them | only by them | repaired, not accepted | made worse | panics | files kept, ours : theirs | paths | values | cases with fewer files |"
    );
    println!("|{}", " --- |".repeat(16));
    let mut all = Row::default();
    let line = |name: &str, row: &Row| {
        let [ours, theirs] = row.kept;
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} : {} | {} : {} | {} : {} | {} |",
            row.cases,
            row.rejects,
            row.missed,
            row.strict,
            row.strict_warning,
            row.ours,
            row.theirs,
            row.refused_theirs,
            row.bad_repair,
            row.worse,
            row.panicked,
            ours[0],
            theirs[0],
            ours[1],
            theirs[1],
            ours[2],
            theirs[2],
            row.fewer
        );
    };
    for (name, row) in rows {
        line(name, row);
        let add = |a: &mut u64, b: u64| *a += b;
        add(&mut all.cases, row.cases);
        add(&mut all.rejects, row.rejects);
        add(&mut all.missed, row.missed);
        add(&mut all.strict, row.strict);
        add(&mut all.strict_warning, row.strict_warning);
        add(&mut all.ours, row.ours);
        add(&mut all.theirs, row.theirs);
        add(&mut all.refused_theirs, row.refused_theirs);
        add(&mut all.bad_repair, row.bad_repair);
        add(&mut all.worse, row.worse);
        add(&mut all.panicked, row.panicked);
        add(&mut all.fewer, row.fewer);
        for who in 0..2 {
            for at in 0..3 {
                all.kept[who][at] += row.kept[who][at];
            }
        }
    }
    line("all", &all);
}
