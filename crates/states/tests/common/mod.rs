//! A bundle with random bands, and processes that are killed at a chosen point.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::progress::{Progress, Silent};
use bandsaw::store::Local;
use bandsaw_states::{
    BundleFolder, Change, KeepOptions, KeepReport, RolledBack, Shelf, Soundness, keep, roll_back,
    undo,
};
use sha2::{Digest, Sha256};

pub(crate) const BANDS: u64 = 8;
pub(crate) const BAND: usize = 16 << 10;
/// The task of a child, the bundle, and the number of the check at which it is killed.
const CHILD: [&str; 3] = [
    "BANDSAW_STATES_DEED",
    "BANDSAW_STATES_BUNDLE",
    "BANDSAW_STATES_KILLED_AT",
];

/// A source of numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A bundle in a folder of its own.
pub(crate) struct Fixture {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) random: Random,
}

/// The files of a bundle: contents, modification time and inode.
pub(crate) type Files = BTreeMap<String, (Vec<u8>, (i64, i64), u64)>;

impl Fixture {
    pub(crate) fn new(seed: u64) -> Self {
        // Thousands of small files are made durable, which takes a disk most of the time.
        let memory = tempfile::tempdir_in("/dev/shm");
        let scratch = memory.or_else(|_| tempfile::tempdir()).unwrap();
        let mut fixture = Self {
            scratch,
            random: Random::new(seed),
        };
        let options = BundleOptions {
            len: BANDS << 20,
            band_size: Some(1 << 20),
        };
        drop(Bundle::create(Arc::new(Local::new(fixture.path())), &options).unwrap());
        for band in 0..BANDS {
            fixture.write_band(band);
        }
        fixture.write(MACHINE, machine(0).as_bytes());
        fixture
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("b.sparsebundle")
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    pub(crate) fn write_band(&mut self, band: u64) {
        let bytes = self.random.bytes(BAND);
        self.write(&format!("bands/{band:x}"), &bytes);
    }

    pub(crate) fn open(&self) -> (BundleFolder, Shelf) {
        open(&self.path())
    }

    pub(crate) fn keep(&self) -> KeepReport {
        self.keep_as(Soundness::Sound).unwrap()
    }

    pub(crate) fn keep_as(&self, soundness: Soundness) -> bandsaw::Result<KeepReport> {
        let (bundle, shelf) = self.open();
        keep(&bundle, &shelf, &options(&|_| Ok(soundness)), &Silent)
    }

    pub(crate) fn roll_back(&self, id: Option<&str>) -> bandsaw::Result<RolledBack> {
        let (bundle, shelf) = self.open();
        roll_back(&bundle, &shelf, id, &Silent)
    }

    pub(crate) fn undo(&self) -> bandsaw::Result<()> {
        undo(&self.open().0, Change::RollBack, &Silent)
    }

    /// Returns the bundle's own files.
    pub(crate) fn files(&self) -> Files {
        files(&self.path())
    }

    pub(crate) fn state(&self, id: &str) -> PathBuf {
        self.path().join(".bandsaw/states").join(id)
    }

    /// Runs a process that does this to the bundle, and is killed at its `at`th check. `false`: it
    /// ended before.
    pub(crate) fn killed(&self, deed: &str, at: u64) -> bool {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "common::child",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD[0], deed)
            .env(CHILD[1], self.path())
            .env(CHILD[2], at.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || output.status.code().is_none(),
            "{deed} {at}: {text}"
        );
        !output.status.success()
    }
}

pub(crate) const MACHINE: &str = "com.apple.TimeMachine.MachineID.plist";

/// The list of a machine with this state of verification.
pub(crate) fn machine(state: u8) -> String {
    let declined = match state {
        0 => "",
        _ => "<key>RecoveryBackupDeclinedDate</key><date>2026-11-01T00:00:00Z</date>",
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><plist version=\"1.0\"><dict>{declined}<key>VerificationState</key>\
         <integer>{state}</integer><key>com.apple.backupd.HostUUID</key><string>A</string></dict></plist>"
    )
}

pub(crate) fn options<'a>(check: bandsaw_states::Check<'a>) -> KeepOptions<'a> {
    KeepOptions {
        whole_copy: true,
        check: Some(check),
    }
}

pub(crate) fn open(path: &Path) -> (BundleFolder, Shelf) {
    let bundle = BundleFolder::open(path).unwrap();
    let shelf = Shelf::of(&bundle, None).unwrap();
    (bundle, shelf)
}

/// Returns all files but those that only Bandsaw uses.
pub(crate) fn files(root: &Path) -> Files {
    fn walk(root: &Path, folder: &Path, all: &mut Files) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if name == ".bandsaw" || name == "lock" {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, all);
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            let times = (meta.mtime(), meta.mtime_nsec());
            all.insert(name, (fs::read(&path).unwrap(), times, meta.ino()));
        }
    }
    let mut all = Files::new();
    walk(root, root, &mut all);
    all
}

/// Returns the contents alone.
pub(crate) fn contents(files: &Files) -> BTreeMap<&str, &[u8]> {
    files
        .iter()
        .map(|(name, file)| (name.as_str(), file.0.as_slice()))
        .collect()
}

/// Returns one SHA-256 over the names and contents of a folder.
pub(crate) fn sum(folder: &Path) -> String {
    let mut hasher = Sha256::new();
    for (name, (bytes, ..)) in files(folder) {
        hasher.update(name.as_bytes());
        hasher.update(Sha256::digest(&bytes));
    }
    format!("{:x?}", hasher.finalize().as_slice())
}

/// Kills its process at a check.
struct Killer {
    checks: AtomicU64,
    at: u64,
}

impl Progress for Killer {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        if self.checks.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let id = std::process::id().to_string();
            Command::new("kill").args(["-9", &id]).status().unwrap();
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
        false
    }
}

/// The process of [`Fixture::killed`]; nothing in all others.
#[test]
fn child() {
    let [Some(deed), Some(path), Some(at)] = CHILD.map(std::env::var_os) else {
        return;
    };
    let (bundle, shelf) = open(Path::new(&path));
    let killer = Killer {
        checks: AtomicU64::new(0),
        at: at.to_str().unwrap().parse().unwrap(),
    };
    match deed.to_str().unwrap() {
        "keep" => {
            keep(
                &bundle,
                &shelf,
                &options(&|_| Ok(Soundness::Sound)),
                &killer,
            )
            .unwrap();
        }
        "roll-back" => drop(roll_back(&bundle, &shelf, None, &killer).unwrap()),
        "undo" => undo(&bundle, Change::RollBack, &killer).unwrap(),
        other => panic!("unknown deed {other}"),
    }
}
