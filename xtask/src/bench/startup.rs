//! How quickly the command answers (goal 25).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::container::Format;
use bandsaw::open::{self, CreateOptions};

use super::measure::{Case, Work, time};
use super::{Bench, MIB};

/// Builds the command as users run it; returns its path.
pub(super) fn build_command() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--release", "--quiet", "--package", "bandsaw-cli"]).status()?;
    ensure!(built.success(), "the command does not build");
    Ok(std::env::current_exe()?.parent().context("the build folder")?.join("bandsaw"))
}

/// Times a process from start to end, its output thrown away.
pub(super) fn process(program: &Path, args: &[&str], dir: &Path) -> Result<Duration> {
    time(|| {
        let status = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = status.with_context(|| program.display().to_string())?;
        ensure!(status.success(), "{} {args:?} failed", program.display());
        Ok(())
    })
}

/// Whether a program can be started at all.
pub(super) fn present(program: &str) -> bool {
    Command::new(program).arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// `bandsaw info` against `qemu-img info`, of a raw image and of a bundle, and against an empty process.
pub(super) fn info(bench: &Bench) -> Result<Vec<Case>> {
    for (name, format) in [("i.img", Format::Udrw), ("i.sparsebundle", Format::Udsb)] {
        drop(open::create(&bench.dir.join(name), &CreateOptions { format, len: 64 * MIB, ..CreateOptions::default() })?);
    }
    let mut cases = Vec::new();
    for name in ["i.img", "i.sparsebundle"] {
        let case = |reference: &str, least: f64| Case {
            goal: 25,
            name: format!("info {name}"),
            reference: reference.to_owned(),
            at_least: least,
            pairs: Vec::new(),
            work: Work::Run,
        };
        let ours = || process(&bench.bandsaw, &["info", name], &bench.dir);
        let rounds = bench.rounds * 4 + 1;
        cases.push(case("an empty process", 1.0 / 3.0).measure(rounds, ours, || process("true".as_ref(), &[], &bench.dir))?);
        if present("qemu-img") {
            let qemu = || process("qemu-img".as_ref(), &["info", "i.img"], &bench.dir);
            cases.push(case("qemu-img info of a raw image", 2.0).measure(rounds, ours, qemu)?);
        }
    }
    Ok(cases)
}
