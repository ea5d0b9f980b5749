//! `cargo xtask dist`: what a release consists of, from this tree and the registries alone.
//!
//! Each archive has the command (stripped, for Linux static), manual pages, completions, licenses and the
//! list of the crates in it (CycloneDX); beside the archives are packages (.deb, .rpm) and `SHA256SUMS`. C
//! code is compiled by `zig cc`, from PyPI's `ziglang`; Rust's own linker makes the rest, with Rust's musl
//! or zig's list of the names in macOS's libSystem. The same tree gives the same bytes: paths are removed
//! from the binary, and every date is that of the last commit.

mod apple_sdk;
mod bill;
mod checks;
mod macho;
mod packages;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::checks::{check, check_programs};
use crate::root;

/// A system and processor that a release is made for.
#[derive(Debug)]
struct Target {
    /// Rust's name.
    name: &'static str,
    system: System,
}

#[derive(Debug, Clone, Copy)]
enum System {
    /// Linux, with Debian's name of the processor.
    Linux(&'static str),
    /// macOS, with its number of the processor.
    MacOs(u32),
}

const TARGETS: [Target; 4] = [
    Target {
        name: "x86_64-unknown-linux-musl",
        system: System::Linux("amd64"),
    },
    Target {
        name: "aarch64-unknown-linux-musl",
        system: System::Linux("arm64"),
    },
    Target {
        name: "x86_64-apple-darwin",
        system: System::MacOs(0x0100_0007),
    },
    Target {
        name: "aarch64-apple-darwin",
        system: System::MacOs(0x0100_000c),
    },
];

/// Both commands for macOS in one file.
const UNIVERSAL: &str = "universal-apple-darwin";

/// The oldest macOS that the commands run on: the first for ARM64.
const OLDEST_MACOS: (u32, u32) = (11, 0);

/// The most that a command may have, in bytes.
const LARGEST: u64 = 18_000_000;
/// The same without features, for containers.
const LARGEST_SMALL: u64 = 8_000_000;
const SMALL: [&str; 1] = ["--no-default-features"];

/// The linker's script that leaves out what only unwinding reads.
const NO_UNWIND_TABLES: &str = "xtask/src/dist/no-unwind-tables.ld";

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Build the archives and packages of a release.
#[derive(Debug, clap::Args)]
pub(crate) struct DistArgs {
    /// Only for these targets, by Rust's names; with both of macOS also a universal one.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Only check that everything, tests included, compiles without a warning.
    #[arg(long)]
    check: bool,
    /// Only make this folder, which stands for Apple's SDK where programs are linked for macOS.
    #[arg(long)]
    sdk: Option<PathBuf>,
}

pub(crate) fn run(args: &DistArgs) -> Result<()> {
    if let Some(sdk) = &args.sdk {
        return make_apple_sdk(sdk);
    }
    let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let is_unknown = |name: &&String| !known.contains(&name.as_str());
    if let Some(unknown) = args.targets.iter().find(is_unknown) {
        bail!(
            "unknown target {unknown}: expected one of {}",
            known.join(", ")
        );
    }
    let out = root().join(match args.check {
        true => "target/dist-check-files",
        false => "target/dist",
    });
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out)?;
    let release = Release::new(out)?;
    let is_wanted = |target: &&Target| {
        args.targets.is_empty() || args.targets.iter().any(|name| name == target.name)
    };
    if !args.check {
        check_programs(TARGETS.iter().filter(is_wanted))?;
    }
    let (mut for_macos, mut too_large) = (Vec::new(), Vec::new());
    for target in TARGETS.iter().filter(is_wanted) {
        if args.check {
            release.check_sources(target.name)?;
            continue;
        }
        let command = release.build(target.name, &[])?;
        check(target, &command)?;
        too_large.extend(above(&command, LARGEST)?);
        let files = release.collect(target.name, (target.name, &[]), &command)?;
        let mut made = vec![release.archive(target.name, &files)?];
        match target.system {
            System::Linux(debian) => {
                let tree = release.tree(target.name, &files)?;
                made.push(release.debian_package(debian, &tree)?);
                made.push(release.rpm_package(processor(target.name), &tree)?);
                let small = release.build(target.name, &SMALL)?;
                check(target, &small)?;
                too_large.extend(above(&small, LARGEST_SMALL)?);
                let name = format!("{}-small", target.name);
                let files = release.collect(&name, (target.name, &SMALL), &small)?;
                made.push(release.archive(&name, &files)?);
            }
            System::MacOs(_) => for_macos.push(command),
        }
        show(&made)?;
    }
    if for_macos.len() > 1 {
        let command = release.universal(&for_macos)?;
        // More crates are linked for x86-64.
        let files = release.collect(UNIVERSAL, ("x86_64-apple-darwin", &[]), &command)?;
        show(&[release.archive(UNIVERSAL, &files)?])?;
    }
    if args.check {
        return Ok(());
    }
    release.sums()?;
    // The files are there for whoever wants them all the same.
    ensure!(too_large.is_empty(), "{}", too_large.join("; "));
    Ok(())
}

/// Returns what is wrong with a command of more than `largest` bytes.
fn above(command: &Path, largest: u64) -> Result<Option<String>> {
    let len = command.metadata()?.len();
    let shown = command.display();
    Ok((len > largest).then(|| format!("{shown}: {len} bytes, more than {largest}")))
}

fn show(made: &[PathBuf]) -> Result<()> {
    for path in made {
        println!("{}  {} bytes", path.display(), path.metadata()?.len());
    }
    Ok(())
}

/// Returns the processor of a target.
fn processor(target: &str) -> &str {
    target.split_once('-').map_or(target, |(first, _)| first)
}

/// A release that is being made.
struct Release {
    out: PathBuf,
    version: String,
    /// The date of the last commit, in seconds since 1970.
    date: String,
}

impl Release {
    fn new(out: PathBuf) -> Result<Self> {
        let date = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(date) => date,
            Err(_) => said(Command::new("git").args(["log", "-1", "--format=%ct"]))?,
        };
        Ok(Self {
            out,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date,
        })
    }

    /// Builds the command for a target. `features` are options of cargo.
    fn build(&self, target: &str, features: &[&str]) -> Result<PathBuf> {
        let target_dir = root().join("target/dist-build");
        let profile = match features {
            [] => "dist",
            _ => "dist-small",
        };
        let mut build = self.cargo(target, "build", &[])?;
        build
            .args(["--profile", profile, "--package", "bandsaw-cli"])
            .args(features)
            .env("CARGO_TARGET_DIR", &target_dir);
        done(&mut build)?;
        let built = target_dir.join(target).join(profile).join("bandsaw");
        // The next build with other features would replace it.
        let kept = self.out.join("tools").join(match features {
            [] => format!("bandsaw-{target}"),
            _ => format!("bandsaw-small-{target}"),
        });
        fs::copy(built, &kept)?;
        Ok(kept)
    }

    /// Returns a command that runs here: the one of the release that was built, or else one that is compiled
    /// as soon as possible.
    fn printer(&self) -> Result<PathBuf> {
        let native = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let kept = self.out.join(format!("tools/bandsaw-{native}"));
        if kept.exists() {
            return Ok(kept);
        }
        let target_dir = root().join("target/dist-build");
        done(
            Command::new("cargo")
                .args(["build", "--locked", "--quiet", "--profile", "demo"])
                .args(["--package", "bandsaw-cli"])
                .current_dir(root())
                .env("CARGO_TARGET_DIR", &target_dir),
        )?;
        Ok(target_dir.join("demo/bandsaw"))
    }

    /// Checks that every crate with its tests compiles for a target without a warning.
    fn check_sources(&self, target: &str) -> Result<()> {
        let mut check = self.cargo(target, "check", &["-Dwarnings".to_owned()])?;
        check
            .args(["--quiet", "--workspace", "--all-targets"])
            .env("CARGO_TARGET_DIR", root().join("target/dist-check"));
        done(&mut check)
    }

    /// Returns cargo with what it needs to compile and link for a target.
    fn cargo(&self, target: &str, word: &str, more_flags: &[String]) -> Result<Command> {
        add_target(target)?;
        let tools = self.out.join("tools");
        let compiler = zig(&tools, "cc", target)?;
        let archiver = zig(&tools, "ar", target)?;
        let home = std::env::var("HOME").unwrap_or_default();
        let cargo_home = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
        let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]))?;
        let mut flags = vec![
            format!("--remap-path-prefix={}=.", root().display()),
            format!("--remap-path-prefix={cargo_home}=cargo"),
            format!("--remap-path-prefix={sysroot}=rust"),
        ];
        flags.extend_from_slice(more_flags);
        let underscored = target.replace('-', "_");
        let upper = underscored.to_uppercase();
        let mut cargo = Command::new("cargo");
        if target.contains("apple") {
            let sdk = self.out.join("tools/MacOSX.sdk");
            make_apple_sdk(&sdk)?;
            flags.push("-Clinker-flavor=ld64.lld".to_owned());
            flags.push("-Clink-arg=-adhoc_codesign".to_owned());
            flags.push("-Clink-arg=-dead_strip_dylibs".to_owned());
            let (major, minor) = OLDEST_MACOS;
            cargo
                .env("SDKROOT", sdk)
                .env("MACOSX_DEPLOYMENT_TARGET", format!("{major}.{minor}"));
        } else {
            flags.push("-Ctarget-feature=+crt-static".to_owned());
            flags.push("-Clink-self-contained=yes".to_owned());
            flags.push("-Clink-arg=--icf=all".to_owned());
            // By a path within the tree: another one would make other names of functions.
            flags.push(format!("-Clink-arg=-T{NO_UNWIND_TABLES}"));
            flags.push("-Clink-arg=--no-eh-frame-hdr".to_owned());
        }
        cargo
            .args([word, "--locked", "--target", target])
            .current_dir(root())
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld")
            .env(format!("CC_{underscored}"), compiler)
            .env(format!("AR_{underscored}"), archiver)
            .env("SOURCE_DATE_EPOCH", &self.date);
        Ok(cargo)
    }

    /// Makes one command of those for both processors of macOS.
    fn universal(&self, commands: &[PathBuf]) -> Result<PathBuf> {
        let parts: Vec<Vec<u8>> = commands.iter().map(fs::read).collect::<Result<_, _>>()?;
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let path = self.out.join("tools/bandsaw-universal");
        fs::write(&path, macho::universal(&parts)?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        ensure!(
            macho::parts(&fs::read(&path)?)? == parts,
            "the universal command has other parts"
        );
        Ok(path)
    }

    /// Puts what belongs into the archive `name` into a folder. The crates that are linked are those of
    /// `target` and `features`.
    fn collect(
        &self,
        name: &str,
        (target, features): (&str, &[&str]),
        command: &Path,
    ) -> Result<PathBuf> {
        let folder = self.out.join(self.name(name));
        for name in ["man", "completions"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::copy(command, folder.join("bandsaw"))?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(root().join(name), folder.join(name))?;
        }
        for page in fs::read_dir(root().join("docs/man"))? {
            let page = page?;
            fs::copy(page.path(), folder.join("man").join(page.file_name()))?;
        }
        // The same for every system and feature: a command that runs here prints them.
        let printer = self.printer()?;
        for shell in SHELLS {
            let script = said(Command::new(&printer).args(["completions", shell]))? + "\n";
            fs::write(folder.join(format!("completions/bandsaw.{shell}")), script)?;
        }
        let bom = bill::make(target, features, &self.version)?;
        fs::write(folder.join("bandsaw.cdx.json"), bom)?;
        Ok(folder)
    }

    /// Returns the date of the release, in a form of date(1).
    fn day(&self, form: &str) -> Result<String> {
        let at = format!("@{}", self.date);
        said(
            Command::new("date")
                .args(["-u", "-d", &at, form])
                .env("LC_ALL", "C"),
        )
    }

    fn name(&self, target: &str) -> String {
        format!("bandsaw-{}-{target}", self.version)
    }

    fn archive(&self, target: &str, files: &Path) -> Result<PathBuf> {
        let archive = self.out.join(format!("{}.tar.gz", self.name(target)));
        let folder = files.file_name().context("a folder has a name")?;
        // Without the date and name that gzip stores by itself.
        done(
            Command::new("tar")
                .args([
                    "--sort=name",
                    "--owner=0",
                    "--group=0",
                    "--numeric-owner",
                    "--format=ustar",
                ])
                .args([&format!("--mtime=@{}", self.date), "--mode=u=rwX,go=rX"])
                .args(["--use-compress-program=gzip -9n", "--create", "--file"])
                .arg(&archive)
                .arg("--directory")
                .arg(&self.out)
                .arg(folder),
        )?;
        Ok(archive)
    }

    /// Writes `SHA256SUMS`, and removes what is not part of the release.
    fn sums(&self) -> Result<()> {
        let mut sums = BTreeMap::new();
        for entry in fs::read_dir(&self.out)? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if path.is_dir() {
                fs::remove_dir_all(path)?;
                continue;
            }
            let sum = said(Command::new("sha256sum").arg("--").arg(&path))?;
            let sum = sum.split(' ').next().unwrap_or_default().to_owned();
            sums.insert(name.to_string_lossy().into_owned(), sum);
        }
        let lines = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n"));
        Ok(fs::write(
            self.out.join("SHA256SUMS"),
            lines.collect::<String>(),
        )?)
    }
}

/// Returns what a program prints, without the end of the line.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Runs a program, which must succeed.
fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Makes the folder of what is linked for macOS.
fn make_apple_sdk(sdk: &Path) -> Result<()> {
    let find = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
    let zig = said(Command::new(python()).args(["-c", find]))?;
    let metadata = cargo_metadata("aarch64-apple-darwin")?;
    apple_sdk::make(sdk, Path::new(&zig), |name| {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest = packages
            .filter(|package| package["name"] == name)
            .find_map(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|path| Path::new(path).parent());
        Ok(folder
            .with_context(|| format!("no crate {name}"))?
            .to_owned())
    })
}

/// Makes sure that Rust's standard library for a target is there.
fn add_target(target: &str) -> Result<()> {
    let folder =
        said(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    if !Path::new(&folder).is_dir() {
        done(Command::new("rustup").args(["target", "add", target]))?;
    }
    Ok(())
}

/// Returns the Python that has zig.
fn python() -> String {
    std::env::var("PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Writes a script that runs `zig PROGRAM` for a target, and returns its path. What compilers of other
/// families are told of the target is left out: zig has names of its own.
fn zig(tools: &Path, program: &str, target: &str) -> Result<PathBuf> {
    let python = python();
    said(Command::new(&python).args(["-m", "ziglang", "version"]))
        .context("C code is compiled by zig: pip install ziglang, and set PYTHON to its python3")?;
    let of_target = match program {
        "cc" => format!(" -target {}", zig_target(target)),
        _ => String::new(),
    };
    let script = format!(
        "#!/bin/sh\nfor word; do\n    shift\n    case $word in\n\
         \x20       --target=* | -mmacosx-version-min=*) ;;\n\
         \x20       -arch | -isysroot) left_out=yes ;;\n\
         \x20       *) [ -n \"$left_out\" ] || set -- \"$@\" \"$word\"; left_out= ;;\n\
         \x20   esac\ndone\nexec {python} -m ziglang {program}{of_target} \"$@\"\n"
    );
    fs::create_dir_all(tools)?;
    let path = tools.join(format!("{program}-{target}"));
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Returns zig's name of a target, with options.
fn zig_target(target: &str) -> String {
    let (major, minor) = OLDEST_MACOS;
    match target {
        "aarch64-unknown-linux-musl" => "aarch64-linux-musl -mno-outline-atomics".to_owned(),
        _ => match target.strip_suffix("-apple-darwin") {
            Some(processor) => format!("{processor}-macos.{major}.{minor}"),
            None => target.replace("-unknown", ""),
        },
    }
}

/// Returns what cargo knows of the crates for a target.
fn cargo_metadata(target: &str) -> Result<Value> {
    let words = ["metadata", "--format-version=1", "--locked"];
    let metadata = said(
        Command::new("cargo")
            .args(words)
            .args(["--filter-platform", target])
            .current_dir(root()),
    )?;
    Ok(serde_json::from_str(&metadata)?)
}
