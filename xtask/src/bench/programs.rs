//! Other programs and the command itself, as processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::measure::time;
use super::{Bench, buckets, scale, volumes};

impl Bench {
    /// Returns a command in the scratch folder, with neither input nor output. `line` is its words;
    /// `bandsaw` is the command that is measured, `@/` the scratch folder.
    pub(super) fn command(&self, line: &str) -> Command {
        let scratch = format!("{}/", self.dir.display());
        let mut words = line.split_whitespace().map(|word| match word {
            "bandsaw" => self.bandsaw.clone(),
            word => PathBuf::from(word.replace("@/", &scratch)),
        });
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(&self.dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Runs a command; returns the seconds from start to end.
    pub(super) fn run(&self, line: &str) -> Result<f64> {
        finish(&mut self.command(line))
    }

    /// Runs a command whose output goes to a new file of the scratch folder.
    pub(super) fn run_into(&self, out: &str, line: &str) -> Result<f64> {
        self.remove(out);
        finish(self.command(line).stdout(File::create(self.dir.join(out))?))
    }

    /// Runs a line of the shell.
    pub(super) fn shell(&self, line: &str) -> Result<f64> {
        finish(self.command("sh -c").arg(line))
    }

    /// Returns true if all of these programs can be started, and these paths exist; otherwise
    /// reports the first that is absent.
    pub(super) fn has(&self, programs: &str, install: &str) -> bool {
        let is_absent = |program: &&str| match program.starts_with('/') {
            true => !Path::new(program).exists(),
            false => self.command(program).arg("--help").status().is_err(),
        };
        let absent = programs.split(' ').find(is_absent);
        if let Some(program) = absent {
            eprintln!("  {program} is absent: its cases are left out ({install})");
        }
        absent.is_none()
    }
}

/// Runs a command; returns the seconds from start to end.
pub(super) fn finish(command: &mut Command) -> Result<f64> {
    time(|| {
        let status = command.status();
        let status = status.with_context(|| format!("{command:?}"))?;
        ensure!(status.success(), "{command:?} failed");
        Ok(())
    })
}

/// Runs a probe in a process of its own; returns its seconds, and its peak memory in megabytes.
pub(super) fn probed(what: &str, argument: &str) -> Result<(f64, f64)> {
    let out = Command::new(std::env::current_exe()?)
        .args(["bench", "--probe", what, argument])
        .output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout)?;
    let (seconds, kib) = text.trim().split_once(' ').context("seconds and KiB")?;
    Ok((seconds.parse()?, kib.parse::<f64>()? * 1024.0 / 1e6))
}

/// Runs a probe in this process, and prints its seconds and the peak memory in KiB.
pub(super) fn probe(what: &str, argument: &str) -> Result<()> {
    let seconds = match what {
        "bands" => scale::probe(argument)?,
        "check" => volumes::probe(argument)?,
        _ => buckets::probe(argument)?,
    };
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("VmHWM")?;
    println!("{seconds} {}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}
