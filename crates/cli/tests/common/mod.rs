//! A scratch folder in which the built command runs.
#![allow(dead_code, reason = "each suite uses a part")]

#[path = "../../../../tests/common/backupd.rs"]
pub(crate) mod backupd;
#[cfg(feature = "s3")]
#[path = "../../../../tests/common/server.rs"]
pub(crate) mod server;
#[path = "../../../../tests/common/skip.rs"]
pub(crate) mod skip;
#[path = "../../../../tests/common/years.rs"]
pub(crate) mod years;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// A name as HFS+ keeps it: `März.txt`, decomposed.
pub(crate) const MARCH: &str = "Ma\u{308}rz.txt";

pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Everything in the folder itself, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// `bandsaw` with these arguments, in the folder, untouched by the environment of whoever runs
    /// the tests.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command.args(args).current_dir(self.0.path());
        for name in ["NO_COLOR", "SOURCE_DATE_EPOCH", "TERM"] {
            command.env_remove(name);
        }
        command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a run that succeeds.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "bandsaw {args:?} failed: {}",
            stderr(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard output of `repair` of an image in which there is nothing to repair.
    pub(crate) fn idle_repair(&self, args: &[&str]) -> String {
        let output = self.run(&[&["repair"], args].concat());
        assert_eq!(
            output.status.code(),
            Some(10),
            "bandsaw repair {args:?}: {}",
            stderr(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Parsed standard output of a run with `--json` that succeeds.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        serde_json::from_str(&self.ok(&all)).unwrap()
    }

    /// Standard error of a run that ends with `code`.
    pub(crate) fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "bandsaw {args:?}: {}",
            stderr(&output)
        );
        assert!(
            output.stdout.is_empty(),
            "a failure has nothing to say on standard output"
        );
        stderr(&output)
    }

    /// A folder `src` with something of everything that a volume holds.
    pub(crate) fn sample(&self) -> PathBuf {
        let src = self.path("src");
        self.write("src/hello.txt", "hello, world\n");
        self.write("src/empty", "");
        self.write(&format!("src/Letters/{MARCH}"), "grüße\n");
        self.write("src/Letters/old/a b.txt", "x".repeat(10_000));
        let big: Vec<u8> = (0..3_000_017_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        self.write("src/big.bin", big);
        let script = self.write("src/run.sh", "#!/bin/sh\n");
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("Letters/old", src.join("link")).unwrap();
        fs::hard_link(src.join("hello.txt"), src.join("hello again.txt")).unwrap();
        fs::create_dir(src.join("nothing in here")).unwrap();
        src
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Everything below a folder, one line each: name, kind, mode, size, time of change, contents or
/// target.
pub(crate) fn inventory(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                folders.push(path);
                format!("folder {:o} {}", meta.mode(), meta.mtime())
            } else {
                let contents = fs::read(&path).unwrap();
                let sum = contents.iter().fold(0_u64, |sum, &byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                });
                format!(
                    "file {:o} {} links {} bytes {} sum {sum}",
                    meta.mode(),
                    meta.mtime(),
                    meta.nlink(),
                    contents.len()
                )
            };
            lines.push(format!("{name}: {what}"));
        }
    }
    lines.sort();
    lines
}

/// The Python that `scripts/install-test-tools` makes, or that `BANDSAW_PEER_PYTHON` names, if it
/// has this module.
pub(crate) fn peer_python(module: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cache = std::process::Command::new(root.join("scripts/test-cache"))
        .output()
        .ok()?;
    let own =
        PathBuf::from(String::from_utf8(cache.stdout).ok()?.trim()).join("peer-python/bin/python");
    let python = std::env::var_os("BANDSAW_PEER_PYTHON")
        .filter(|set| !set.is_empty())
        .map_or(own, PathBuf::from);
    // dmgbuild asks for a Mac's version when it is imported.
    let find =
        format!("import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)");
    let found = std::process::Command::new(&python)
        .args(["-c", &find])
        .output();
    found
        .is_ok_and(|output| output.status.success())
        .then_some(python)
}

/// The script that drives a browser, to be followed by the steps on a page.
const BROWSER: &str = include_str!("browser.js");

/// Opens a page of the scratch folder in a real browser and does `steps` with it; fails unless all
/// of them went well. Says that it was skipped where there is no browser.
pub(crate) fn browse(scratch: &Scratch, page: &str, steps: &str) {
    let browser = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let browser = browser.into_iter().find(|path| Path::new(path).exists());
    let node = std::process::Command::new("node")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    let (Some(browser), true) = (browser, node) else {
        skip::without_program(&format!("{page} in a browser"), "no chromium, or no node");
        return;
    };
    scratch.write("visit.mjs", [BROWSER, steps].concat());
    let visit = std::process::Command::new("node")
        .arg(scratch.path("visit.mjs"))
        .arg(browser)
        .arg(scratch.path(page))
        .arg(scratch.path("profile"))
        .output()
        .unwrap();
    let (said, failed) = (
        String::from_utf8_lossy(&visit.stdout),
        String::from_utf8_lossy(&visit.stderr),
    );
    assert!(
        visit.status.success() && said.trim() == "sound",
        "{said}\n{failed}"
    );
}
