//! Runs of `bandsaw` and of the other checker.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::JudgeArgs;

/// Seconds after which a run counts as a hang.
const TIMEOUT: &str = "120";

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    /// `None`: ended by a signal.
    pub(super) exit: Option<i32>,
    pub(super) text: String,
}

impl Ran {
    /// Returns true if the program panicked, was ended by a signal, or ran into the time limit.
    pub(super) fn crashed(&self) -> bool {
        matches!(self.exit, None | Some(101 | 124 | 134 | 139))
    }
}

/// Runs `bandsaw ARGS --json`, and returns the result with the parsed standard output.
pub(super) fn bandsaw(args: &JudgeArgs, words: &[&str], image: &Path) -> Result<(Ran, Value)> {
    let options = [words, &["--json"]].concat();
    let (exit, stdout, stderr) = run(args, &args.bandsaw, &options, image)?;
    let ran = Ran {
        exit,
        text: format!("exit {exit:?}\n{stderr}{stdout}\n"),
    };
    let facts = serde_json::from_str(&stdout).unwrap_or(Value::Null);
    Ok((ran, facts))
}

/// The verdict of the other checker.
pub(super) fn verdict(args: &JudgeArgs, bytes: &[u8], name: &str) -> Result<Ran> {
    let path = args.scratch.join(format!("{name}-verdict"));
    std::fs::write(&path, bytes)?;
    let options = ["-f", "-n"];
    let mut ran = other(args, &path, &options)?;
    // With its debug messages it continues where it would otherwise stop, but forgets some
    // findings; the stricter result is used.
    if ran.exit == Some(0) {
        ran = other(args, &path, &["-f", "-n", "-d"])?;
    }
    std::fs::remove_file(&path)?;
    Ok(ran)
}

/// Lets the other checker repair a copy of `bytes`; returns its messages and the result.
pub(super) fn repaired_by_other(
    args: &JudgeArgs,
    bytes: &[u8],
    name: &str,
) -> Result<(Ran, Vec<u8>)> {
    let path = args.scratch.join(format!("{name}-theirs"));
    std::fs::write(&path, bytes)?;
    let ran = other(args, &path, &["-f", "-y"])?;
    let bytes = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    Ok((ran, bytes))
}

fn other(args: &JudgeArgs, path: &Path, options: &[&str]) -> Result<Ran> {
    let (exit, stdout, stderr) = run(args, &args.fsck, options, path)?;
    let text = stdout + &stderr;
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
    Ok(Ran {
        exit,
        text: format!("exit {exit:?}\n{lines}"),
    })
}

/// Runs a program on a file; returns its exit code, and what it writes to both streams.
fn run(
    args: &JudgeArgs,
    program: &Path,
    options: &[&str],
    file: &Path,
) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT).arg(program).args(options).arg(file);
    command.stdin(Stdio::null()).env("TMPDIR", &args.scratch);
    let output = command.output().context("cannot run timeout")?;
    let exit = output.status.code();
    ensure!(exit != Some(127), "cannot run {}", program.display());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((exit, text(&output.stdout), text(&output.stderr)))
}
