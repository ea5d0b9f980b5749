//! Import and export of file trees (goals 20 and 21).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::measure::{Case, Workload, time};
use super::startup::{present, process};

/// Number of files in the tree.
const FILES: u64 = 50_000;

/// File systems of the volumes.
const FILE_SYSTEMS: [&str; 3] = ["hfs+", "hfs+j", "apfs"];

/// Files that the cases leave in the scratch folder.
const LEFT: [&str; 9] = [
    "tree",
    "b.img",
    "h.img",
    "f.img",
    "t.tar",
    "out.bandsaw",
    "out.tar",
    "out.7zz",
    "out.cp",
];

/// Builds volumes of 50,000 files, compared with `tar cf`, `fstool` and each other, and extracts
/// them, compared with `tar x`, `7zz` and `fsapfsmount`.
pub(super) fn build_and_extract(bench: &Bench) -> Result<Vec<Case>> {
    let files = ((FILES as f64 * bench.scale) as u64).max(1000);
    grow_tree(&bench.dir.join("tree"), files)?;
    let trees = Trees {
        bench,
        dir: &bench.dir,
        files,
    };
    let mut cases = Vec::new();
    for fs in FILE_SYSTEMS {
        trees.builds(fs, &mut cases)?;
        trees.extractions(fs, &mut cases)?;
    }
    LEFT.iter().for_each(|name| trees.clean(name));
    Ok(cases)
}

struct Trees<'a> {
    bench: &'a Bench,
    dir: &'a Path,
    files: u64,
}

impl Trees<'_> {
    fn case(&self, goal: u32, name: &str, reference: &str, at_least: f64) -> Case {
        Case {
            goal,
            name: format!("{name}, {} files", self.files),
            reference: reference.to_owned(),
            at_least,
            pairs: Vec::new(),
            work: Workload::Files(self.files),
        }
    }

    fn clean(&self, name: &str) {
        super::remove(&self.dir.join(name));
    }

    /// Goal 20: builds the volume, and leaves it in `b.img`.
    fn builds(&self, fs: &str, cases: &mut Vec<Case>) -> Result<()> {
        let rounds = self.bench.rounds;
        let ours = || self.build(fs, "b.img");
        let name = format!("create --fs {fs} --from");
        if fs == "apfs" {
            // At most 1.5 times the time.
            let case = self.case(20, &name, "create --fs hfs+ --from", 1.0 / 1.5);
            cases.push(case.measure(rounds, ours, || self.build("hfs+", "h.img"))?);
            return Ok(());
        }
        let tar = || {
            self.clean("t.tar");
            process(
                "tar".as_ref(),
                &["cf", "t.tar", "-C", "tree", "."],
                self.dir,
            )
        };
        cases.push(
            self.case(20, &name, "tar cf", 1.0)
                .measure(rounds, ours, tar)?,
        );
        if present("fstool") {
            let fstool = || {
                self.clean("f.img");
                process(
                    "fstool".as_ref(),
                    &["create", "-t", "hfs+", "tree", "-o", "f.img"],
                    self.dir,
                )
            };
            cases.push(
                self.case(20, &name, "fstool create -t hfs+", 1.7)
                    .measure(rounds, ours, fstool)?,
            );
        } else {
            eprintln!("  fstool is absent: its case is left out (cargo install fstool)");
        }
        Ok(())
    }

    fn build(&self, fs: &str, name: &str) -> Result<Duration> {
        self.clean(name);
        let args = [
            "create",
            name,
            "--format",
            "udrw",
            "--fs",
            fs,
            "--volname",
            "Bench",
            "--from",
            "tree",
            "--layout",
            "none",
        ];
        process(&self.bench.bandsaw, &args, self.dir)
    }

    /// Goal 21: extracts the volume in `b.img`.
    fn extractions(&self, fs: &str, cases: &mut Vec<Case>) -> Result<()> {
        let rounds = self.bench.rounds;
        let ours = self
            .bench
            .bandsaw
            .to_str()
            .context("a folder with a name in UTF-8")?;
        let extract = |on: &[&str]| {
            self.clean("out.bandsaw");
            self.on(on, &[ours, "extract", "b.img", "out.bandsaw"])
        };
        let seven = |on: &[&str]| {
            self.clean("out.7zz");
            self.on(on, &["7zz", "x", "-oout.7zz", "-y", "b.img"])
        };
        let tar = || {
            self.clean("out.tar");
            std::fs::create_dir(self.dir.join("out.tar"))?;
            process("tar".as_ref(), &["xf", "t.tar", "-C", "out.tar"], self.dir)
        };
        let name = format!("extract from {fs}");
        cases.push(
            self.case(21, &name, "tar x", 0.9)
                .measure(rounds, || extract(&[]), tar)?,
        );
        if present("7zz") {
            cases.push(self.case(21, &name, "7zz x", 1.5).measure(
                rounds,
                || extract(&[]),
                || seven(&[]),
            )?);
            if present("taskset") {
                let one = ["taskset", "-c", "0"];
                let case = self.case(21, &format!("{name} on one core"), "7zz x on one core", 1.0);
                cases.push(case.measure(rounds, || extract(&one), || seven(&one))?);
            } else {
                eprintln!("  taskset is absent: its case is left out (apt install util-linux)");
            }
        } else {
            eprintln!("  7zz is absent: its cases are left out (apt install 7zip)");
        }
        if fs != "apfs" {
            return Ok(());
        }
        if present("fsapfsmount") && present("fusermount") && Path::new("/dev/fuse").exists() {
            // It is slow enough that few rounds are sufficient.
            let case = self.case(21, &name, "fsapfsmount and cp", 3.0);
            cases.push(case.measure(rounds.min(2), || extract(&[]), || self.copy_from_mount())?);
        } else {
            eprintln!(
                "  fsapfsmount is absent: its case is left out (apt install libfsapfs-utils fuse3)"
            );
        }
        Ok(())
    }

    /// Times a command line, with a prefix that restricts it to some processors.
    fn on(&self, before: &[&str], line: &[&str]) -> Result<Duration> {
        let line = [before, line].concat();
        process(line[0].as_ref(), &line[1..], self.dir)
    }

    /// Mounts the volume in `b.img` with libfsapfs and copies all of it.
    fn copy_from_mount(&self) -> Result<Duration> {
        self.clean("out.cp");
        let at = self.dir.join("fsapfs.mnt");
        std::fs::create_dir_all(&at)?;
        let copied = time(|| {
            // The daemon remains and must not hold the standard output of the benchmark open.
            let mut mount = Command::new("fsapfsmount");
            mount.args(["b.img", "fsapfs.mnt"]).current_dir(self.dir);
            let mounted = mount
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            ensure!(
                mounted.context("fsapfsmount")?.success(),
                "fsapfsmount failed"
            );
            process("cp".as_ref(), &["-r", "fsapfs.mnt", "out.cp"], self.dir)
        });
        let unmounted = Command::new("fusermount")
            .args(["-u", "-z"])
            .arg(&at)
            .status();
        ensure!(
            unmounted.context("fusermount")?.success(),
            "the mount of fsapfsmount stays"
        );
        std::fs::remove_dir(&at)?;
        copied
    }
}

/// Creates `files` files in folders of a hundred, most of them small, one in fifty large: 8.5 KB on
/// average.
fn grow_tree(root: &Path, files: u64) -> Result<()> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let noise: Vec<u8> = (0..1 << 20).map(|_| random() as u8).collect();
    for file in 0..files {
        let folder = root.join(format!("folder {:03}", file / 100));
        if file % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let len = if file % 50 == 0 {
            100_000 + random() % 200_000
        } else {
            random() % 9_000
        };
        let from = (random() % (noise.len() as u64 - len)) as usize;
        std::fs::write(
            folder.join(format!("file {file:05}.dat")),
            &noise[from..from + len as usize],
        )?;
    }
    Ok(())
}
