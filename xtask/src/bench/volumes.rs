//! Changes of volumes: many small files created one by one, lookups, checks (goals 30 to 32).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice};
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::hfsplus::{self, HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemMut, FileSystemMutExt, NewKind, NewNode, Timestamp};
use bandsaw::open::{self, CreateOptions, OpenOptions};
use bandsaw::progress::Silent;

use super::measure::{Case, Workload, time};
use super::{Bench, KIB, MIB};

/// Number of small files created one by one, a hundred per folder.
const FILES: u64 = 50_000;
/// Number of files in the volume that is checked, and in the folder of lookups.
const MANY: u64 = 1_000_000;
/// Number of lookups.
const LOOKUPS: u64 = 20_000;

fn case(goal: u32, name: String, reference: &str, least: f64, work: Workload) -> Case {
    Case {
        goal,
        name,
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work,
    }
}

/// Measures files of 1 KiB through the library, compared with the kernel: ext4 on a loop device
/// over a file in the same folder, or the folder itself if that cannot be mounted.
pub(super) fn small_files(bench: &Bench) -> Result<Vec<Case>> {
    let files = ((FILES as f64 * bench.scale) as u64).max(1000);
    let image = bench.dir.join("small.img");
    let mounted = Ext4::mount(&bench.dir, 64 * MIB + files * 8 * KIB);
    let (folder, reference) = match &mounted {
        Ok(ext4) => (ext4.at.as_path(), "ext4 on a loop device"),
        Err(error) => {
            eprintln!(
                "  ext4 cannot be mounted ({error:#}); the memory file system itself is the reference"
            );
            (bench.dir.as_path(), "the memory file system itself")
        }
    };
    let mut cases = Vec::new();
    for journaled in [false, true] {
        let kind = if journaled {
            "a journaled volume"
        } else {
            "a volume"
        };
        let case = case(
            30,
            format!("{files} files made one by one on {kind}"),
            reference,
            0.5,
            Workload::Files(files),
        );
        cases.push(case.measure(
            bench.rounds,
            || ours(&image, files, journaled),
            || kernels(folder, files),
        )?);
    }
    super::remove(&image);
    Ok(cases)
}

fn ours(image: &Path, files: u64, journaled: bool) -> Result<Duration> {
    super::remove(image);
    let len = 64 * MIB + files * 8 * KIB;
    let created = open::create(
        image,
        &CreateOptions {
            format: Format::Udrw,
            len,
            ..CreateOptions::default()
        },
    )?;
    let disk = created.disk().clone();
    plan(Tree::empty(DATE), None)?.build(&*disk, &Silent)?;
    let fs = HfsPlusMut::open(disk, WriteOptions::default())?;
    if journaled {
        fs.enable_journal(None)?;
    }
    time(|| {
        let mut dir = fs.root();
        for file in 0..files {
            if file % 100 == 0 {
                dir = fs.create(
                    fs.root(),
                    &format!("folder {}", file / 100),
                    &NewNode::new(NewKind::Folder),
                )?;
            }
            let id = fs.create(dir, &format!("file {file}"), &NewNode::new(NewKind::File))?;
            fs.write_all(id, &[7; KIB as usize])?;
        }
        fs.unmount()?;
        Ok(())
    })
}

fn kernels(folder: &Path, files: u64) -> Result<Duration> {
    let root = folder.join("files");
    super::remove(&root);
    std::fs::create_dir(&root)?;
    let taken = time(|| {
        let mut dir = PathBuf::new();
        for file in 0..files {
            if file % 100 == 0 {
                dir = root.join(format!("folder {}", file / 100));
                std::fs::create_dir(&dir)?;
            }
            std::fs::write(dir.join(format!("file {file}")), [7; KIB as usize])?;
        }
        // Both sides end with a sync.
        ensure!(
            Command::new("sync")
                .arg("-f")
                .arg(&root)
                .status()?
                .success(),
            "sync failed"
        );
        Ok(())
    })?;
    super::remove(&root);
    Ok(taken)
}

/// An ext4 file system in a file.
struct Ext4 {
    at: PathBuf,
}

impl Ext4 {
    fn mount(dir: &Path, len: u64) -> Result<Self> {
        let (image, at) = (dir.join("ext4.img"), dir.join("ext4"));
        std::fs::File::create(&image)?.set_len(2 * len)?;
        std::fs::create_dir_all(&at)?;
        let quietly = |command: &mut Command| -> Result<()> {
            let done = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            ensure!(done.success(), "{command:?} failed");
            Ok(())
        };
        quietly(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
                .arg(&image),
        )?;
        quietly(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&at),
        )?;
        Ok(Self { at })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

const DATE: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn plan(tree: Tree, block_size: Option<u32>) -> Result<Plan> {
    let name = "Bench".to_owned();
    let options = Options {
        name,
        case_sensitive: false,
        journaled: false,
        block_size,
        created: DATE,
        latest: None,
        identifier: 1,
    };
    Ok(Plan::new(tree, options)?)
}

/// Creates a volume of very many files of a hundred bytes, in one folder or in folders of a
/// thousand.
fn many(image: &Path, files: u64, one_folder: bool) -> Result<Arc<dyn BlockDevice>> {
    let mut tree = Tree::empty(DATE);
    let root = tree.nodes[0].clone();
    let contents = SourceKind::File(Stream::Bytes(vec![7; 100].into()));
    let mut parent = 0;
    for file in 0..files {
        if !one_folder && file % 1000 == 0 {
            parent = u32::try_from(tree.nodes.len())?;
            let name = format!("folder {}", file / 1000).into();
            tree.nodes.push(SourceNode {
                parent: 0,
                name,
                kind: SourceKind::Folder,
                ..root.clone()
            });
        }
        let name = format!("file number {file}").into();
        tree.nodes.push(SourceNode {
            parent,
            name,
            kind: contents.clone(),
            mode: 0o644,
            ..root.clone()
        });
    }
    let plan = plan(tree, Some(512))?;
    let len = (plan.minimum_len()? + 64 * MIB).next_multiple_of(MIB);
    let created = open::create(
        image,
        &CreateOptions {
            format: Format::Udrw,
            len,
            ..CreateOptions::default()
        },
    )?;
    let disk = created.disk().clone();
    plan.build(&*disk, &Silent)?;
    Ok(disk)
}

/// Compares a measured cost with a limit.
fn limited(
    mut case: Case,
    limit: f64,
    rounds: usize,
    mut cost: impl FnMut() -> Result<f64>,
) -> Result<Case> {
    for _ in 0..rounds {
        case.pairs.push((cost()?, limit));
    }
    case.tell();
    Ok(case)
}

/// Measures names in a folder of a million, looked up a second time, on a read-only and on a
/// writable volume.
pub(super) fn lookups(bench: &Bench) -> Result<Vec<Case>> {
    let entries = ((MANY as f64 * bench.scale) as u64).max(10_000);
    let image = bench.dir.join("many.img");
    let disk = many(&image, entries, true)?;
    let look = |fs: &dyn FileSystem| -> Result<f64> {
        // Far apart, and each used twice.
        let names: Vec<_> = (0..LOOKUPS)
            .map(|n| format!("file number {}", n * 7919 % entries))
            .collect();
        let all = || {
            time(|| {
                for name in &names {
                    ensure!(fs.lookup(fs.root(), name)?.is_some(), "{name} is not found");
                }
                Ok(())
            })
        };
        all()?;
        Ok(all()?.as_secs_f64() / LOOKUPS as f64)
    };
    let case = |how: &str| {
        let name = format!("lookup in a folder of {entries} entries, {how}");
        self::case(31, name, "at most", 1.0, Workload::Run)
    };
    let read = HfsPlus::open(disk.clone())?;
    let mut cases = vec![limited(case("read-only"), 20e-6, bench.rounds, || {
        look(&read)
    })?];
    drop(read);
    let changed = HfsPlusMut::open(disk, WriteOptions::default())?;
    cases.push(limited(case("read-write"), 20e-6, bench.rounds, || {
        look(&changed)
    })?);
    drop(changed);
    super::remove(&image);
    Ok(cases)
}

/// Measures the check of a volume with a million files: seconds and memory.
pub(super) fn checks(bench: &Bench) -> Result<Vec<Case>> {
    let files = ((MANY as f64 * bench.scale) as u64).max(10_000);
    let image = bench.dir.join("many.img");
    drop(many(&image, files, false)?);
    let probe = || -> Result<(f64, f64)> {
        let out = Command::new(std::env::current_exe()?)
            .args(["bench", "--probe-check"])
            .arg(&image)
            .output()?;
        ensure!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let text = String::from_utf8(out.stdout)?;
        let (seconds, kib) = text.trim().split_once(' ').context("seconds and KiB")?;
        Ok((seconds.parse()?, kib.parse::<f64>()? * 1024.0 / 1e6))
    };
    let mut memory = case(
        32,
        format!("peak memory of a check of {files} files"),
        "at most",
        1.0,
        Workload::Memory,
    );
    let name = format!("check of a volume with {files} files");
    let time = limited(
        case(32, name, "at most", 1.0, Workload::Run),
        10.0,
        bench.rounds.min(3),
        || {
            let (seconds, megabytes) = probe()?;
            memory.pairs.push((megabytes, 512.0 * 1.048_576));
            Ok(seconds)
        },
    )?;
    memory.tell();
    super::remove(&image);
    Ok(vec![time, memory])
}

/// Checks a volume in a separate process, and prints the seconds and the peak memory in KiB.
pub(super) fn probe(image: &Path) -> Result<()> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let image = open::open(image, &options)?;
    let taken = time(|| {
        let problems = hfsplus::check(image.disk().clone(), &Silent)?;
        ensure!(problems.is_empty(), "{problems:?}");
        Ok(())
    })?;
    println!("{} {}", taken.as_secs_f64(), super::scale::peak_kib()?);
    Ok(())
}
