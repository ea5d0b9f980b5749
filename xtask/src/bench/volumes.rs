//! Changes of volumes: many small files created one by one, lookups, checks (goals 30 to 32).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice};
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::hfsplus::{self, HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemMut, FileSystemMutExt, NewKind, NewNode, Timestamp};
use bandsaw::open::{self, OpenOptions};
use bandsaw::progress::Silent;

use super::measure::{Case, Workload, time};
use super::programs::probed;
use super::{Bench, KIB, MIB};

/// Number of small files created one by one, a hundred per folder.
const FILES: u64 = 50_000;
/// Number of files in the volume that is checked, and in the folder of lookups.
const MANY: u64 = 1_000_000;
/// Number of lookups.
const LOOKUPS: u64 = 20_000;

/// Measures files of 1 KiB through the library, compared with the kernel: ext4 on a loop device
/// over a file in the same folder, or the folder itself if that cannot be mounted.
pub(super) fn small_files(bench: &Bench) -> Result<Vec<Case>> {
    let files = bench.count(FILES, 1000);
    let len = 64 * MIB + files * 8 * KIB;
    let mounted = Ext4::mount(bench, len);
    let (folder, reference) = match &mounted {
        Ok(_) => ("ext4/files", "ext4 on a loop device"),
        Err(error) => {
            eprintln!(
                "  ext4 cannot be mounted ({error:#}); the memory file system itself is the reference"
            );
            ("files", "the memory file system itself")
        }
    };
    let mut cases = Vec::new();
    for (kind, journaled) in [("a volume", false), ("a journaled volume", true)] {
        let name = format!("{files} files made one by one on {kind}");
        cases.push(
            Case::new(30, name, reference, 0.5, Workload::Files(files)).measure(
                bench.rounds,
                || ours(bench, len, files, journaled),
                || kernels(bench, folder, files),
            )?,
        );
    }
    Ok(cases)
}

fn ours(bench: &Bench, len: u64, files: u64, journaled: bool) -> Result<f64> {
    let disk = bench.blank("small.img", Format::Udrw, len, None)?;
    plan(Tree::empty(DATE), None)?.build(&*disk, &Silent)?;
    let fs = HfsPlusMut::open(disk, WriteOptions::default())?;
    if journaled {
        fs.enable_journal(None)?;
    }
    let root = fs.root();
    time(|| {
        let mut dir = root;
        for file in 0..files {
            if file % 100 == 0 {
                let name = format!("folder {}", file / 100);
                dir = fs.create(root, &name, &NewNode::new(NewKind::Folder))?;
            }
            let id = fs.create(dir, &format!("file {file}"), &NewNode::new(NewKind::File))?;
            fs.write_all(id, &[7; KIB as usize])?;
        }
        Ok(fs.unmount()?)
    })
}

fn kernels(bench: &Bench, folder: &str, files: u64) -> Result<f64> {
    let root = bench.dir.join(folder);
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
        bench.run(&format!("sync -f {folder}"))
    })?;
    bench.remove(folder);
    Ok(taken)
}

/// An ext4 file system in a file.
struct Ext4<'a>(&'a Bench);

impl<'a> Ext4<'a> {
    fn mount(bench: &'a Bench, len: u64) -> Result<Self> {
        std::fs::File::create(bench.dir.join("ext4.img"))?.set_len(2 * len)?;
        std::fs::create_dir_all(bench.dir.join("ext4"))?;
        bench.run("mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 ext4.img")?;
        bench.run("mount -o loop @/ext4.img @/ext4")?;
        Ok(Self(bench))
    }
}

impl Drop for Ext4<'_> {
    fn drop(&mut self) {
        let _ = self.0.run("umount @/ext4");
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
        opens: false,
        identifier: 1,
    };
    Ok(Plan::new(tree, options)?)
}

/// Creates a volume of very many files of a hundred bytes, in one folder or in folders of a
/// thousand.
fn many(bench: &Bench, files: u64, one_folder: bool) -> Result<Arc<dyn BlockDevice>> {
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
    let disk = bench.blank("many.img", Format::Udrw, len, None)?;
    plan.build(&*disk, &Silent)?;
    Ok(disk)
}

/// Measures names in a folder of a million, looked up a second time, on a read-only and on a
/// writable volume.
pub(super) fn lookups(bench: &Bench) -> Result<Vec<Case>> {
    let entries = bench.count(MANY, 10_000);
    let disk = many(bench, entries, true)?;
    // Far apart, and each used twice.
    let names: Vec<_> = (0..LOOKUPS)
        .map(|n| format!("file number {}", n * 7919 % entries))
        .collect();
    let look = |how: &str, fs: &dyn FileSystem| {
        let all = || {
            for name in &names {
                ensure!(fs.lookup(fs.root(), name)?.is_some(), "{name} is not found");
            }
            Ok(())
        };
        let second = || {
            all()?;
            Ok(time(all)? / LOOKUPS as f64)
        };
        let name = format!("lookup in a folder of {entries} entries, {how}");
        Case::new(31, name, "at most", 1.0, Workload::Run)
            .measure(bench.rounds, second, || Ok(20e-6))
    };
    let read = look("read-only", &HfsPlus::open(disk.clone())?)?;
    let changed = HfsPlusMut::open(disk, WriteOptions::default())?;
    Ok(vec![read, look("read-write", &changed)?])
}

/// Measures the check of a volume with a million files: seconds and memory.
pub(super) fn checks(bench: &Bench) -> Result<Vec<Case>> {
    let files = bench.count(MANY, 10_000);
    drop(many(bench, files, false)?);
    let image = bench.dir.join("many.img").display().to_string();
    let name = format!("check of a volume with {files} files");
    let mut seconds = Case::new(32, &name, "at most", 1.0, Workload::Run);
    let name = format!("peak memory of a check of {files} files");
    let mut memory = Case::new(32, name, "at most", 1.0, Workload::Memory);
    for _ in 0..bench.rounds.min(3) {
        let (taken, megabytes) = probed("check", &image)?;
        seconds.pairs.push((taken, 10.0));
        memory.pairs.push((megabytes, 512.0 * 1.048_576));
    }
    Ok(vec![seconds.told(), memory.told()])
}

/// Checks a volume; returns the seconds without its opening.
pub(super) fn probe(image: &str) -> Result<f64> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let image = open::open(Path::new(image), &options)?;
    time(|| {
        let problems = hfsplus::check(image.disk().clone(), &Silent)?;
        ensure!(problems.is_empty(), "{problems:?}");
        Ok(())
    })
}
