//! Two hundred broken copies of an image of each kind: opened, listed, read, or refused, without a panic,
//! in bounded time, and in a gibibyte of address space.
//!
//! The images are read by child processes, so that their memory can be limited and a hang be ended.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bandsaw::address::VolumeSelector;
use bandsaw::container::Format;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, CreateOptions, Image, OpenOptions};
use bandsaw::partition::gpt::{Geometry, Guids};
use bandsaw::partition::{APPLE_HFS, gpt};
use bandsaw::testing::{Random, fuzz, mutate, walk};

/// Broken copies of each image.
const COPIES: u64 = 200;
/// Copies that one child reads, and how long it may take for one and for all.
const BATCH: u64 = 50;
const ONE: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(120);
/// KiB of address space of a child.
const ADDRESS_SPACE: u32 = 1 << 20;
/// Tells the child what to read: the folder with the good image, and the first copy.
const JOB: &str = "BANDSAW_MUTATIONS";

const IMAGES: [(&str, Format); 4] = [
    ("good.dmg", Format::Udrw),
    ("good.sparsebundle", Format::Udsb),
    ("good.sparseimage", Format::Udsp),
    ("good.asif", Format::Asif),
];

#[test]
fn broken_copies_are_read_or_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = String::new();
    for (name, format) in IMAGES {
        make(&scratch.path().join(name), format);
        for first in (0..COPIES).step_by(BATCH as usize) {
            outcomes += &read_in_child(scratch.path(), name, first);
        }
    }
    // Some copies are only scratched, some are beyond reading: where one kind is missing, nothing was tested.
    for outcome in [Outcome::Whole, Outcome::Damaged, Outcome::Refused] {
        let count = outcomes.matches(&format!("{outcome:?}")).count();
        assert!(count >= 20, "{count} of {} copies are {outcome:?}", IMAGES.len() as u64 * COPIES);
    }
}

/// What became of a broken copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It opened, and every question about it was answered.
    Whole,
    /// It opened, and some answers were errors.
    Damaged,
    /// It did not open.
    Refused,
}

/// An image with a map and a volume on it that has one of everything.
fn make(path: &Path, format: Format) {
    let volume = fuzz::sample(false, 4096);
    let len = Geometry::holding(volume.len() as u64, 512).unwrap().disk_len();
    let band_size = (format == Format::Udsb).then_some(1 << 20);
    let image = open::create(path, &CreateOptions { format, len, band_size, ..CreateOptions::default() }).unwrap();
    let range = gpt::create_single(&**image.disk(), 512, APPLE_HFS, Guids::derived("good")).unwrap();
    image.disk().write_at(range.start, &volume).unwrap();
    image.disk().flush().unwrap();
}

/// What a child reports of the copies from `first` on.
fn read_in_child(folder: &Path, name: &str, first: u64) -> String {
    let report = folder.join("report");
    fs::write(&report, "").unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE} 2>/dev/null; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .stdout(Stdio::null())
        .env(JOB, format!("{first} {name} {}", folder.display()))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > ALL {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name}: still busy after {ALL:?}; {}", fs::read_to_string(&report).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let report = fs::read_to_string(&report).unwrap();
    assert!(status.success(), "{name}: {status}; {report}");
    report
}

/// Does nothing unless [`read_in_child`] calls it.
#[test]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let [first, name, folder] = job.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let first: u64 = first.parse().unwrap();
    let (good, folder) = (Path::new(folder).join(name), Path::new(folder));
    let mut report = fs::OpenOptions::new().append(true).open(folder.join("report")).unwrap();
    for copy in first..first + BATCH {
        let broken = folder.join(format!("broken-{name}"));
        write!(report, "\ncopy {copy}").unwrap();
        break_copy(&good, &broken, &mut Random::new(copy));
        let begun = Instant::now();
        let outcome = read(&broken);
        assert!(begun.elapsed() < ONE, "copy {copy} took {:?}", begun.elapsed());
        write!(report, " {outcome:?}").unwrap();
        if broken.is_dir() { fs::remove_dir_all(&broken).unwrap() } else { fs::remove_file(&broken).unwrap() }
    }
}

/// Copies an image, and breaks the copy or, of a bundle, one of its files: a band as a rule, and now and then by leaving it
/// out.
fn break_copy(good: &Path, broken: &Path, random: &mut Random) {
    if good.is_file() {
        return fs::write(broken, mutate::mutated(&fs::read(good).unwrap(), random)).unwrap();
    }
    fs::create_dir_all(broken.join("bands")).unwrap();
    let (bands, others) = (files(&good.join("bands")), files(good));
    let pool = if random.one_in(3) { &others } else { &bands };
    let victim = &pool[random.within(0..pool.len() as u64) as usize];
    for file in bands.iter().chain(&others) {
        let to = broken.join(file.strip_prefix(good).unwrap());
        let bytes = fs::read(file).unwrap();
        if file != victim {
            fs::write(to, bytes).unwrap();
        } else if !random.one_in(8) {
            fs::write(to, mutate::mutated(&bytes, random)).unwrap();
        }
    }
}

/// The files of a folder in the same order each time.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Opens an image and reads what is on it.
fn read(path: &Path) -> Outcome {
    let (layers, stopped) = open::trace(path, &OpenOptions::default());
    let Ok(image) = open::open(path, &OpenOptions::default()) else {
        assert!(stopped.is_some(), "{layers:?}");
        return Outcome::Refused;
    };
    let mut errors = image.warnings().len() as u64 + u64::from(!read_disk(&image));
    for volume in image.volumes() {
        let selector = volume.partition.map(|partition| VolumeSelector::Number { partition, volume: None });
        errors += image.file_system(selector.as_ref()).map_or(1, |volume| walk::walk(&*volume, 2000).errors);
    }
    if errors == 0 && !image.volumes().is_empty() { Outcome::Whole } else { Outcome::Damaged }
}

/// Whether all extents can be read, of long ones the beginning.
fn read_disk(image: &Image) -> bool {
    let disk = image.disk();
    let mut extents = disk.extents(0..disk.info().len).take(1000);
    extents.all(|extent| {
        let piece = extent.and_then(|(range, _)| disk.read_vec(range.start, (range.end - range.start).min(1 << 20) as usize));
        piece.is_ok()
    })
}
