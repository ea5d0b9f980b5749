//! Runs of `bandsaw` and of the other checker.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
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
    let mut command = Command::new("timeout");
    command
        .arg(TIMEOUT)
        .arg(&args.bandsaw)
        .args(words)
        .arg("--json")
        .arg(image)
        .env("TMPDIR", &args.scratch);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.code() == Some(127) {
        bail!("cannot run {}", args.bandsaw.display());
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let ran = Ran {
        exit: output.status.code(),
        text: format!("exit {:?}\n{stderr}{stdout}\n", output.status.code()),
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
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT).arg(&args.fsck).args(options).arg(path);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run timeout")?;
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
    Ok(Ran {
        exit: output.status.code(),
        text: format!("exit {:?}\n{lines}", output.status.code()),
    })
}
