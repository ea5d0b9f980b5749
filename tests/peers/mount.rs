//! Ordinary programs on our mounted volumes: rsync, tar, git and a compiler, stress-ng and fsx. Our
//! check then finds the volume clean.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::crypt::Secret;
use bandsaw::device::{Access, BlockDevice};
use bandsaw::fs::hfsplus;
use bandsaw::open::{OpenOptions, VolumeQuery, open};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::create::{Layout, Source};
use bandsaw::ops::writable_volume::WritableVolume;
use bandsaw::progress::Silent;
use bandsaw_mount::{MountContent, MountOptions, Mounted};
use tempfile::TempDir;

use crate::common::corpus;
use crate::programs::{Program, everything, output, run, run_text};
use crate::suite::Suite;
use crate::{tree, volume};

const FUSE: Program = Program::Fuse;
const RSYNC: Program = Program::Command(&["rsync"]);
const TAR: Program = Program::Command(&["tar"]);
const GIT: Program = Program::Command(&["git"]);
const COMPILER: Program = Program::Command(&["c++"]);
const STRESS: Program = Program::Command(&["stress-ng"]);
const FSX: Program = Program::Command(&["fsx"]);
const PYTHON3: Program = Program::Command(&["python3"]);
const SHA256SUM: Program = Program::Command(&["sha256sum"]);

/// Number of operations of fsx, for each seed.
const FSX_OPERATIONS: &str = "5000";

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("mount-rsync", &[FUSE, RSYNC])
        .test("there_and_back", there_and_back)
        .test("nothing_to_do_again", nothing_to_do_again);
    suite
        .peer("mount-tar", &[FUSE, TAR])
        .test("many_files", many_files);
    suite
        .heavy_peer(
            "mount-git",
            "compiles a C++ program",
            &[FUSE, GIT, COMPILER],
        )
        .test("clone_and_build", clone_and_build);
    suite
        .heavy_peer(
            "mount-stress-ng",
            "stresses a volume for 17 s",
            &[FUSE, STRESS],
        )
        .test("stress", stress);
    suite
        .heavy_peer("mount-fsx", "takes a minute", &[FUSE, FSX])
        .test("random_operations", random_operations);
    suite
        .peer("mount-python", &[FUSE, PYTHON3])
        .test("posix", posix);
    suite
        .peer("mount-sha256sum", &[FUSE, SHA256SUM])
        .corpus_test("encrypted_apfs", encrypted_apfs);
}

/// A mounted volume with mount point `folder` in a scratch folder, which can contain other files,
/// too.
struct Volume {
    scratch: TempDir,
    folder: PathBuf,
    device: Arc<dyn BlockDevice>,
    mounted: Option<Mounted>,
}

impl Volume {
    fn new(case_sensitive: bool, len: u64, options: MountOptions) -> Self {
        let scratch = crate::scratch();
        let path = scratch.path().join("x.sparsebundle");
        volume::create_of(
            Some(len),
            Source::Empty,
            &path,
            Format::Udsb,
            case_sensitive,
            Layout::None,
        );
        let image = open(
            &path,
            &OpenOptions {
                access: Access::ReadWrite,
                ..OpenOptions::default()
            },
        )
        .expect("opening");
        let folder = scratch.path().join("mnt");
        fs::create_dir(&folder).expect("a folder");
        let fs = WritableVolume::open(&image, None, None, &Silent).expect("a volume");
        let note = Box::new(|line: &str| eprintln!("{line}"));
        let mounted = Mounted::new(MountContent::VolumeMut(fs), &folder, &options, note, || {})
            .expect("mounting");
        Self {
            scratch,
            folder,
            device: image.disk().clone(),
            mounted: Some(mounted),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Unmounts the volume and checks it.
    fn finish(mut self) {
        self.mounted
            .take()
            .expect("it is mounted")
            .end()
            .expect("unmounting");
        let problems = hfsplus::check(self.device.clone(), &Silent).expect("checking");
        assert!(problems.is_empty(), "{problems:?}");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.end();
        }
    }
}

/// Copies to the volume and back with hard links and attributes: rsync itself finds no difference.
fn there_and_back() {
    for case_sensitive in [false, true] {
        let volume = Volume::new(case_sensitive, 256 << 20, MountOptions::default());
        let (source, back) = (
            volume.scratch.path().join("source"),
            volume.scratch.path().join("back"),
        );
        tree::write(&source, case_sensitive);
        // Dates before 1970 are 1970 on the volume.
        for (from, to) in [
            (&source, &volume.path("copy")),
            (&volume.path("copy"), &back),
        ] {
            run(RSYNC
                .command()
                .args(["-aHX", "--no-o", "--no-g"])
                .arg(slashed(from))
                .arg(to));
        }
        // Decomposed names are listed composed.
        let decomposed = |(name, item): (String, tree::Item)| (tree::decomposed(&name), item);
        let listed = |folder: &Path| {
            volume::as_stored(tree::list(folder))
                .into_iter()
                .map(decomposed)
                .collect::<tree::Listing>()
        };
        assert_eq!(listed(&source), listed(&back));
        let differs = run_text(
            RSYNC
                .command()
                .args(["-aHXnic", "--no-o", "--no-g"])
                .arg(slashed(&volume.path("copy")))
                .arg(&back),
        );
        assert_eq!(differs, "");
        volume.finish();
    }
}

/// Composed names are listed composed: a second run has nothing to do.
fn nothing_to_do_again() {
    let volume = Volume::new(false, 64 << 20, MountOptions::default());
    let source = volume.scratch.path().join("source");
    let folder = source.join("Gr\u{F6}\u{DF}e");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("\u{D55C}\u{AE00}"), "a file").expect("a file");
    let sync = || {
        run_text(
            RSYNC
                .command()
                .args(["-ai", "--delete"])
                .arg(slashed(&source))
                .arg(volume.path("copy")),
        )
    };
    assert!(sync().contains('>'));
    assert_eq!(sync(), "");
    volume.finish();
}

fn slashed(folder: &Path) -> PathBuf {
    folder.join("")
}

/// A tree of many small files, through an archive.
fn many_files() {
    let volume = Volume::new(false, 256 << 20, MountOptions::default());
    let source = volume.scratch.path().join("source");
    for folder in 0..20 {
        let folder = source.join(format!("folder {folder}"));
        fs::create_dir_all(&folder).expect("a folder");
        (0..100).for_each(|file| {
            fs::write(folder.join(format!("file {file}")), vec![b'x'; file * 40]).expect("a file")
        });
    }
    let archive = volume.scratch.path().join("x.tar");
    run(TAR
        .command()
        .arg("-C")
        .arg(&source)
        .arg("-cf")
        .arg(&archive)
        .arg("."));
    run(TAR
        .command()
        .arg("-C")
        .arg(&volume.folder)
        .arg("-xf")
        .arg(&archive));
    run(TAR
        .command()
        .arg("-C")
        .arg(&volume.folder)
        .arg("-df")
        .arg(&archive));
    volume.finish();
}

/// A git working copy, changed, repacked, cloned again, and a build in it.
fn clone_and_build() {
    let volume = Volume::new(true, 256 << 20, MountOptions::default());
    let git = |folder: &Path, args: &[&str]| {
        let mut git = GIT.command();
        git.env("HOME", volume.scratch.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(folder);
        for setting in [
            "user.name=x",
            "user.email=x@example.org",
            "init.defaultBranch=main",
        ] {
            git.args(["-c", setting]);
        }
        run_text(git.args(args))
    };
    let first = volume.path("first");
    fs::create_dir(&first).expect("a folder");
    git(&first, &["init", "-q"]);
    for name in ["Gr\u{F6}\u{DF}e.h", "\u{D55C}\u{AE00}.h"] {
        fs::write(first.join(name), "").expect("a file");
        git(&first, &["add", name]);
    }
    git(&first, &["commit", "-q", "-m", "names"]);
    assert_eq!(git(&first, &["status", "--porcelain"]), "");
    for number in 0..40 {
        let text = format!("int f{number}(int x) {{ return x + {number}; }}\n");
        fs::write(first.join(format!("f{number}.cc")), text).expect("a file");
        git(&first, &["add", "."]);
        git(&first, &["commit", "-q", "-m", &format!("f{number}")]);
    }
    git(&first, &["gc", "-q"]);
    git(&volume.folder, &["clone", "-q", "first", "second"]);
    let second = volume.path("second");
    assert_eq!(git(&second, &["status", "--porcelain"]), "");
    git(&second, &["fsck", "--strict"]);
    let calls: String = (0..40)
        .map(|number| format!("int f{number}(int); "))
        .collect();
    let sum: String = (0..40).map(|number| format!("+ f{number}(0)")).collect();
    fs::write(
        second.join("main.cc"),
        format!("{calls}\nint main() {{ return (0 {sum}) == 780 ? 0 : 1; }}\n"),
    )
    .expect("a file");
    run(COMPILER
        .command()
        .current_dir(&second)
        .args(["-O1", "-o", "program"])
        .arg("main.cc")
        .args((0..40).map(|number| format!("f{number}.cc"))));
    run(&mut Command::new(second.join("program")));
    volume.finish();
}

/// Several concurrent processes that write, link, rename and verify.
fn stress() {
    let volume = Volume::new(false, 512 << 20, MountOptions::default());
    for stressor in [
        "--hdd",
        "--link",
        "--rename",
        "--dentry",
        "--utime",
        "--chmod",
        "--fallocate",
    ] {
        let mut stress = STRESS.command();
        stress.arg("--temp-path").arg(&volume.folder).args([
            stressor,
            "2",
            "--timeout",
            "2",
            "--verify",
            "--metrics-brief",
        ]);
        let said = output(stress.args([
            "--hdd-bytes",
            "8m",
            "--fallocate-bytes",
            "8m",
            "--dentries",
            "200",
        ]));
        assert!(said.status.success(), "{stressor}: {}", everything(&said));
    }
    volume.finish();
}

/// Reads, writes, mappings, holes and lengths of one file compared with a model, with and without
/// write-back caching.
fn random_operations() {
    for gather in [true, false] {
        let volume = Volume::new(
            false,
            128 << 20,
            MountOptions {
                gather,
                ..MountOptions::default()
            },
        );
        for seed in ["1", "2"] {
            run(FSX
                .command()
                .args(["-N", FSX_OPERATIONS, "-S", seed])
                .arg(volume.path(&format!("file{seed}"))));
        }
        volume.finish();
    }
}

/// POSIX semantics of names, links, kinds, owners, dates and lengths, through Python's system
/// calls.
fn posix() {
    let options = MountOptions {
        allow_other: true,
        suid: true,
        dev: true,
        ..MountOptions::default()
    };
    for gather in [false, true] {
        let volume = Volume::new(
            true,
            64 << 20,
            MountOptions {
                gather,
                ..options.clone()
            },
        );
        run(PYTHON3
            .command()
            .arg("-c")
            .arg(include_str!("mount_posix.py"))
            .arg(&volume.folder));
        volume.finish();
    }
}

/// An encrypted volume of macOS in an image in another container, read by ordinary programs.
fn encrypted_apfs() {
    let name = "raw/dfvfs-apfs_encrypted.dmg.gz";
    let Some(known) = corpus::image("encrypted_apfs", name) else {
        return;
    };
    let scratch = crate::scratch();
    let (raw, asif, folder) = (
        scratch.path().join("x.img"),
        scratch.path().join("x.asif"),
        scratch.path().join("mnt"),
    );
    fs::write(&raw, known.bytes().expect("a file")).expect("a file");
    let image = open(&raw, &OpenOptions::default()).expect("opening");
    convert(
        &image,
        &asif,
        &ConvertOptions {
            format: Format::Asif,
            ..ConvertOptions::default()
        },
        &Silent,
    )
    .expect("converting");
    let image = open(&asif, &OpenOptions::default()).expect("opening");
    let secret = Secret::new(
        known
            .text("volume_password")
            .expect("a passphrase")
            .as_bytes()
            .to_vec(),
    );
    let fs = image
        .file_system_as(
            None,
            VolumeQuery {
                keys: Some(&secret),
                ..VolumeQuery::default()
            },
        )
        .expect("unlocking");
    fs::create_dir(&folder).expect("a folder");
    let note = Box::new(|line: &str| eprintln!("{line}"));
    let mounted = Mounted::new(
        MountContent::Volume(fs),
        &folder,
        &MountOptions::default(),
        note,
        || {},
    )
    .expect("mounting");
    for file in known.files() {
        let said = run_text(
            SHA256SUM
                .command()
                .arg(folder.join(file.path.trim_start_matches('/'))),
        );
        assert!(said.contains(&file.sha256), "{}: {said}", file.path);
    }
    fs::write(folder.join("new"), "x").expect_err("nothing changes it");
    mounted.end().expect("unmounting");
}
