//! Checks of the commands of a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{OLDEST_MACOS, System, Target, apple_sdk, macho, processor, said};
use crate::root;

/// The emulator, if any, that runs the commands of a target on this machine.
struct Runner(Option<String>);

impl Runner {
    fn of(target: &str) -> Self {
        let processor = processor(target);
        let is_native = processor == std::env::consts::ARCH;
        Self((!is_native).then(|| format!("qemu-{processor}")))
    }

    /// Runs a command, and returns what it prints.
    fn run(&self, command: &Path, words: &[&str]) -> Result<String> {
        let Some(emulator) = &self.0 else {
            return said(Command::new(command).args(words));
        };
        said(Command::new(emulator).arg(command).args(words))
            .with_context(|| format!("{emulator} runs it here: apt-get install qemu-user"))
    }
}

/// Fails if a program is missing that is needed only after the first command is compiled.
pub(super) fn check_programs<'a>(targets: impl Iterator<Item = &'a Target>) -> Result<()> {
    let mut programs = Vec::new();
    for target in targets.filter(|target| matches!(target.system, System::Linux(_))) {
        let emulator = Runner::of(target.name).0;
        programs.extend(emulator.map(|emulator| (emulator, "qemu-user")));
        programs.extend([("dpkg-deb".into(), "dpkg"), ("rpmbuild".into(), "rpm")]);
    }
    for (program, package) in programs {
        said(Command::new(&program).arg("--version"))
            .with_context(|| format!("install {package}"))?;
    }
    Ok(())
}

/// Checks a command, and uses it if it runs here.
pub(super) fn check(target: &Target, command: &Path) -> Result<()> {
    check_paths(command)?;
    match target.system {
        System::Linux(_) => check_linux(command, &Runner::of(target.name))
            .with_context(|| command.display().to_string()),
        System::MacOs(cpu) => {
            check_macos(&fs::read(command)?, cpu).with_context(|| command.display().to_string())
        }
    }
}

/// Checks that a command is free of this machine's paths.
fn check_paths(command: &Path) -> Result<()> {
    let shown = command.display();
    let bytes = fs::read(command)?;
    let home = std::env::var("HOME").unwrap_or_default();
    for path in [root().display().to_string(), home] {
        let path = format!("{path}/");
        let found = bytes
            .windows(path.len())
            .any(|window| window == path.as_bytes());
        ensure!(!found || path == "/", "{shown} contains {path}");
    }
    Ok(())
}

/// Checks that a command for Linux is static, and uses it.
fn check_linux(command: &Path, runner: &Runner) -> Result<()> {
    let headers = said(
        Command::new("readelf")
            .arg("--program-headers")
            .arg(command),
    )?;
    ensure!(!headers.contains("INTERP"), "not static");
    let scratch = tempfile::tempdir()?;
    let image = scratch.path().join("Docs.sparsebundle");
    let image = image.to_str().context("a path of letters")?;
    let docs = root().join("docs/formats");
    let docs = docs.to_str().context("a path of letters")?;
    runner.run(command, &["--version"])?;
    for fs in ["hfs+", "apfs"] {
        let from = ["--size", "64m", "--fs", fs, "--from", docs];
        runner.run(
            command,
            &[&["create", "--overwrite", image][..], &from].concat(),
        )?;
        let listed = runner.run(command, &["ls", image])?;
        ensure!(listed.contains("apfs.md"), "{listed}");
        runner.run(command, &["check", image])?;
    }
    Ok(())
}

/// Checks a command for macOS, which does not run here, by its bytes.
fn check_macos(command: &[u8], cpu: u32) -> Result<()> {
    let found = macho::check(command)?;
    ensure!(found.cpu.0 == cpu, "for another processor: {found:?}");
    ensure!(found.oldest_system == OLDEST_MACOS, "{found:?}");
    let loadable = apple_sdk::loadable();
    let unknown = |library: &&String| !loadable.contains(library);
    if let Some(library) = found.libraries.iter().find(unknown) {
        bail!("{library} is loaded");
    }
    Ok(())
}
