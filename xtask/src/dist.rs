//! `cargo xtask dist`: what a release consists of, from this tree and the registries alone.
//!
//! Each archive has the command (static, stripped), manual pages, completions, licenses and the list
//! of the crates in it (CycloneDX); beside the archives are packages (.deb, .rpm) and `SHA256SUMS`. C code
//! is compiled by `zig cc`, from PyPI's `ziglang`; Rust's own linker and musl make the rest. The same
//! tree gives the same bytes: paths are removed from the binary, and every date is that of the last
//! commit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::root;

/// The targets: processor, and Debian's name of it.
const TARGETS: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// The most that a command may have, in bytes.
const LARGEST: u64 = 18_000_000;

const MAINTAINER: &str = "The Bandsaw developers <bandsaw@users.noreply.github.com>";
const HOMEPAGE: &str = "https://github.com/bandsaw/bandsaw";
const SUMMARY: &str = "Apple disk images and the volumes in them";
const DESCRIPTION: &str = "\
 \x20Creates, opens, mounts, changes, checks, repairs and converts raw images,
 sparse images, sparse bundles, ASIF and UDIF (.dmg), and the HFS+ and APFS
 volumes in them.
";

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Build the archives and packages of a release.
#[derive(Debug, clap::Args)]
pub(crate) struct DistArgs {
    /// Only for these processors: x86_64, aarch64.
    #[arg(long, value_delimiter = ',')]
    processors: Vec<String>,
}

pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let known: Vec<_> = TARGETS.iter().map(|target| target.0).collect();
    let wanted = |name: &&String| !known.contains(&name.as_str());
    if let Some(unknown) = args.processors.iter().find(wanted) {
        bail!(
            "unknown processor {unknown}: expected one of {}",
            known.join(", ")
        );
    }
    let out = root().join("target/dist");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out)?;
    let release = Release::new(out)?;
    for (processor, debian) in TARGETS {
        if args.processors.is_empty() || args.processors.iter().any(|name| name == processor) {
            let target = &*format!("{processor}-unknown-linux-musl");
            let command = Built::new(release.build(target)?, processor);
            command.check()?;
            let files = release.collect(target, &command)?;
            let tree = release.tree(target, &files)?;
            for made in [
                release.archive(target, &files)?,
                release.debian_package(debian, &tree)?,
                release.rpm_package(processor, &tree)?,
            ] {
                let len = made.metadata()?.len();
                println!("{}  {len} bytes", made.display());
            }
        }
    }
    release.sums()
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

    /// Builds the command for a target.
    fn build(&self, target: &str) -> Result<PathBuf> {
        add_target(target)?;
        let tools = self.out.join("tools");
        let compiler = zig(&tools, "cc", target)?;
        let archiver = zig(&tools, "ar", target)?;
        let target_dir = root().join("target/dist-build");
        let home = std::env::var("HOME").unwrap_or_default();
        let cargo_home = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
        let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]))?;
        let flags = [
            "-Ctarget-feature=+crt-static".to_owned(),
            "-Clink-self-contained=yes".to_owned(),
            format!("--remap-path-prefix={}=.", root().display()),
            format!("--remap-path-prefix={cargo_home}=cargo"),
            format!("--remap-path-prefix={sysroot}=rust"),
        ];
        let underscored = target.replace('-', "_");
        let upper = underscored.to_uppercase();
        let mut build = Command::new("cargo");
        build
            .args([
                "build",
                "--profile",
                "dist",
                "--locked",
                "--package",
                "bandsaw-cli",
            ])
            .args(["--target", target])
            .current_dir(root())
            .env("CARGO_TARGET_DIR", &target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld")
            .env(format!("CC_{underscored}"), compiler)
            .env(format!("AR_{underscored}"), archiver)
            .env("SOURCE_DATE_EPOCH", &self.date);
        done(&mut build)?;
        Ok(target_dir.join(target).join("dist/bandsaw"))
    }

    /// Puts what belongs into an archive into a folder.
    fn collect(&self, target: &str, command: &Built) -> Result<PathBuf> {
        let folder = self.out.join(self.name(target));
        for name in ["man", "completions"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::copy(&command.path, folder.join("bandsaw"))?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(root().join(name), folder.join(name))?;
        }
        for page in fs::read_dir(root().join("docs/man"))? {
            let page = page?;
            fs::copy(page.path(), folder.join("man").join(page.file_name()))?;
        }
        for shell in SHELLS {
            let script = command.run(&["completions", shell])? + "\n";
            fs::write(folder.join(format!("completions/bandsaw.{shell}")), script)?;
        }
        let bom = bill_of_materials(target, &self.version)?;
        fs::write(folder.join("bandsaw.cdx.json"), bom)?;
        Ok(folder)
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

    /// Puts the same files where Linux distributions keep them.
    fn tree(&self, target: &str, files: &Path) -> Result<PathBuf> {
        let tree = self.out.join(format!("tree-{target}"));
        let share = tree.join("usr/share");
        let doc = share.join("doc/bandsaw");
        let completions = [
            ("bash", "bash-completion/completions/bandsaw"),
            ("fish", "fish/vendor_completions.d/bandsaw.fish"),
            ("zsh", "zsh/vendor-completions/_bandsaw"),
        ];
        for (shell, place) in completions {
            copy(
                &files.join(format!("completions/bandsaw.{shell}")),
                &share.join(place),
            )?;
        }
        copy(&files.join("bandsaw"), &tree.join("usr/bin/bandsaw"))?;
        for page in fs::read_dir(files.join("man"))? {
            let page = page?;
            let place = share.join("man/man1").join(page.file_name());
            copy(&page.path(), &place)?;
            done(Command::new("gzip").arg("-9n").arg(&place))?;
        }
        copy(
            &files.join("bandsaw.cdx.json"),
            &doc.join("bandsaw.cdx.json"),
        )?;
        copy(&files.join("CHANGELOG.md"), &doc.join("NEWS.md"))?;
        done(Command::new("gzip").arg("-9n").arg(doc.join("NEWS.md")))?;
        fs::write(doc.join("copyright"), COPYRIGHT)?;
        Ok(tree)
    }

    fn debian_package(&self, architecture: &str, tree: &Path) -> Result<PathBuf> {
        let control = format!(
            "Package: bandsaw\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nInstalled-Size: {}\nRecommends: fuse3\nSection: utils\nPriority: optional\n\
             Homepage: {HOMEPAGE}\nDescription: {SUMMARY}\n{DESCRIPTION}",
            sizes(tree)?.div_ceil(1024),
            version = self.version,
        );
        let day = said(Command::new("date").args(["-R", "-u", "-d", &format!("@{}", self.date)]))?;
        let changelog = format!(
            "bandsaw ({}) unstable; urgency=medium\n\n  * See NEWS.md.gz.\n\n -- {MAINTAINER}  {day}\n",
            self.version
        );
        let place = tree.join("usr/share/doc/bandsaw/changelog");
        fs::write(&place, changelog)?;
        done(Command::new("gzip").arg("-9nf").arg(&place))?;
        let overrides = tree.join("usr/share/lintian/overrides/bandsaw");
        fs::create_dir_all(overrides.parent().unwrap_or(tree))?;
        fs::write(
            &overrides,
            "# Static on purpose: one file runs on every distribution.\n\
             bandsaw: shared-library-lacks-prerequisites [usr/bin/bandsaw]\n",
        )?;
        let debian = tree.join("DEBIAN");
        fs::create_dir_all(&debian)?;
        fs::write(debian.join("control"), control)?;
        let package = self
            .out
            .join(format!("bandsaw_{}_{architecture}.deb", self.version));
        done(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "-Zxz", "--build"])
                .args([tree, &package])
                .env("SOURCE_DATE_EPOCH", &self.date)
                .stdout(Stdio::null()),
        )?;
        for own in [
            debian,
            tree.join("usr/share/lintian"),
            place.with_extension("gz"),
        ] {
            match own.is_dir() {
                true => fs::remove_dir_all(own)?,
                false => fs::remove_file(own)?,
            }
        }
        Ok(package)
    }

    fn rpm_package(&self, architecture: &str, tree: &Path) -> Result<PathBuf> {
        let spec = format!(
            "Name: bandsaw\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\n\
             License: MIT OR Apache-2.0\nURL: {HOMEPAGE}\nRecommends: fuse3\n\n\
             %description\n{}\n%install\ncp -a {tree}/. %{{buildroot}}\n\n\
             %files\n/usr/bin/bandsaw\n/usr/share/man/man1/*\n/usr/share/doc/bandsaw\n\
             /usr/share/bash-completion/completions/bandsaw\n\
             /usr/share/fish/vendor_completions.d/bandsaw.fish\n\
             /usr/share/zsh/vendor-completions/_bandsaw\n",
            DESCRIPTION.replace("\n ", "\n").trim_start(),
            version = self.version,
            tree = tree.display(),
        );
        let top = self.out.join("rpm");
        fs::create_dir_all(&top)?;
        fs::write(top.join("bandsaw.spec"), spec)?;
        // The host's name and the time of the build would differ; the command is stripped already.
        let defines = [
            format!("_topdir {}", top.display()),
            format!("_rpmdir {}", self.out.display()),
            "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".into(),
            "_buildhost localhost".into(),
            "use_source_date_epoch_as_buildtime 1".into(),
            "clamp_mtime_to_source_date_epoch 1".into(),
            "_build_id_links none".into(),
            "__os_install_post %{nil}".into(),
            "debug_package %{nil}".into(),
        ];
        let mut build = Command::new("rpmbuild");
        build.args(["-bb", "--quiet", "--target", architecture]);
        for define in &defines {
            build.args(["--define", define]);
        }
        build
            .arg(top.join("bandsaw.spec"))
            .env("SOURCE_DATE_EPOCH", &self.date);
        done(&mut build).context("apt-get install rpm")?;
        let name = format!("bandsaw-{}-1.{architecture}.rpm", self.version);
        Ok(self.out.join(name))
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

/// Both licenses, in the form that Debian asks for.
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bandsaw
Source: https://github.com/bandsaw/bandsaw

Files: *
Copyright: 2026 The Bandsaw developers
License: Apache-2.0 or Expat
 The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
Comment: the command contains the crates of bandsaw.cdx.json, each under its own license.

License: Expat
 Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
 associated documentation files (the \"Software\"), to deal in the Software without restriction,
 including without limitation the rights to use, copy, modify, merge, publish, distribute,
 sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
 furnished to do so, subject to the following conditions:
 .
 The above copyright notice and this permission notice shall be included in all copies or
 substantial portions of the Software.
 .
 THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
 NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
 OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
 CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

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

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Returns the number of bytes in the files of a folder.
fn sizes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => sizes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(sum)
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

/// Writes a script that runs `zig PROGRAM` for a target, and returns its path. The target that
/// compilers of other families are told is left out: zig has names of its own.
fn zig(tools: &Path, program: &str, target: &str) -> Result<PathBuf> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    said(Command::new(&python).args(["-m", "ziglang", "version"]))
        .context("C code is compiled by zig: pip install ziglang, and set PYTHON to its python3")?;
    let name = target.replace("-unknown", "");
    let of_target = match program {
        "cc" if name.starts_with("aarch64") => format!(" -target {name} -mno-outline-atomics"),
        "cc" => format!(" -target {name}"),
        _ => String::new(),
    };
    let script = format!(
        "#!/bin/sh\nfor word; do\n    shift\n    case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\n\
         done\nexec {python} -m ziglang {program}{of_target} \"$@\"\n"
    );
    fs::create_dir_all(tools)?;
    let path = tools.join(format!("{program}-{target}"));
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A command that was built, and the emulator that it needs on this machine.
struct Built {
    path: PathBuf,
    emulator: Option<String>,
}

impl Built {
    fn new(path: PathBuf, processor: &str) -> Self {
        let is_native = processor == std::env::consts::ARCH;
        Self {
            path,
            emulator: (!is_native).then(|| format!("qemu-{processor}")),
        }
    }

    /// Runs it, and returns what it prints.
    fn run(&self, words: &[&str]) -> Result<String> {
        let Some(emulator) = &self.emulator else {
            return said(Command::new(&self.path).args(words));
        };
        said(Command::new(emulator).arg(&self.path).args(words))
            .with_context(|| format!("{emulator} runs it here: apt-get install qemu-user"))
    }

    /// Checks that it is small, static and free of this machine's paths, and uses it.
    fn check(&self) -> Result<()> {
        let shown = self.path.display();
        let bytes = fs::read(&self.path)?;
        let len = bytes.len() as u64;
        ensure!(len <= LARGEST, "{shown}: {len} bytes, more than {LARGEST}");
        let home = std::env::var("HOME").unwrap_or_default();
        for path in [root().display().to_string(), home] {
            let path = format!("{path}/");
            let found = bytes
                .windows(path.len())
                .any(|window| window == path.as_bytes());
            ensure!(!found || path == "/", "{shown} contains {path}");
        }
        let headers = said(
            Command::new("readelf")
                .arg("--program-headers")
                .arg(&self.path),
        )?;
        ensure!(!headers.contains("INTERP"), "{shown} is not static");
        let scratch = tempfile::tempdir()?;
        let image = scratch.path().join("Docs.sparsebundle");
        let image = image.to_str().context("a path of letters")?;
        let docs = root().join("docs/formats");
        let docs = docs.to_str().context("a path of letters")?;
        self.run(&["--version"])?;
        for fs in ["hfs+", "apfs"] {
            self.run(&[
                "create",
                "--overwrite",
                image,
                "--size",
                "64m",
                "--fs",
                fs,
                "--from",
                docs,
            ])?;
            let listed = self.run(&["ls", image])?;
            ensure!(listed.contains("apfs.md"), "{shown}: {listed}");
            self.run(&["check", image])?;
        }
        Ok(())
    }
}

/// Returns the crates in the command as a CycloneDX document.
fn bill_of_materials(target: &str, version: &str) -> Result<String> {
    let metadata = said(
        Command::new("cargo")
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--filter-platform",
                target,
            ])
            .current_dir(root()),
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages: HashMap<&str, &Value> = metadata["packages"]
        .as_array()
        .context("cargo metadata lists packages")?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: HashMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .context("cargo metadata lists dependencies")?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    // Those that are linked: no tools of the build, no tests.
    let linked = |id: &str| -> Vec<&str> {
        let deps = nodes[id]["deps"].as_array().into_iter().flatten();
        deps.filter(|dep| {
            let mut kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        })
        .filter_map(|dep| dep["pkg"].as_str())
        .filter(|id| {
            let mut targets = packages[*id]["targets"].as_array().into_iter().flatten();
            !targets.any(|target| target["kind"][0] == "proc-macro")
        })
        .collect()
    };
    let command = packages
        .iter()
        .find(|(_, package)| package["name"] == "bandsaw-cli")
        .map(|(id, _)| *id)
        .context("no package bandsaw-cli")?;
    let (mut found, mut waiting) = (HashSet::new(), vec![command]);
    while let Some(id) = waiting.pop() {
        if found.insert(id) {
            waiting.extend(linked(id));
        }
    }
    let url = |id: &str| {
        let text = |key: &str| packages[id][key].as_str().unwrap_or_default();
        format!("pkg:cargo/{}@{}", text("name"), text("version"))
    };
    let mut components: Vec<Value> = Vec::new();
    let mut dependencies: Vec<Value> = Vec::new();
    let mut found: Vec<&str> = found.into_iter().collect();
    found.sort_by_key(|id| url(id));
    for id in found {
        let package = packages[id];
        let mut below: Vec<String> = linked(id).into_iter().map(url).collect();
        below.sort();
        below.dedup();
        dependencies.push(json!({ "ref": url(id), "dependsOn": below }));
        if id != command {
            let license = package["license"]
                .as_str()
                .unwrap_or_default()
                .replace('/', " OR ");
            components.push(json!({
                "type": "library",
                "bom-ref": url(id),
                "name": package["name"],
                "version": package["version"],
                "licenses": [{ "expression": license }],
                "purl": url(id),
            }));
        }
    }
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": url(command),
            "name": "bandsaw",
            "version": version,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "purl": url(command),
        } },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}
