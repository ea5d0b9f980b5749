//! FAT and exFAT volumes that are changed in place: random operations against a model, power cuts and failing
//! writes, judged by the programs of Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_fs::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw_fs::exfat::{self, ExFatVolume};
use bandsaw_fs::fat::{self, FatVolume};
use bandsaw_fs::{
    Change, ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt,
    Fork, LocalFile, NewKind, NewNode, NodeId, Open, Timestamp, UnlinkedFile,
};
use bandsaw_testing::faults::{Call, Fault, Faults, FaultyDevice, at_every};
use bandsaw_testing::{PowerCut, Random};

use crate::fat::{
    Files, LONG, command, compare, compare_with_sleuth_kit, device, lacks, read_folder,
    read_volume, run, scratch,
};

/// A format, by the programs that make and check its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Fat(u32),
    ExFat,
}

impl Format {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Fat(_) => &["mkfs.fat", "fsck.fat", "mcopy"],
            Self::ExFat => &["mkfs.exfat", "fsck.exfat", "fls"],
        }
    }

    /// Makes an empty volume in a file.
    fn make(self, image: &Path, len: u64, cluster: u64) {
        let file = fs::File::create(image).unwrap();
        file.set_len(len).unwrap();
        match self {
            Self::Fat(width) => run(command("mkfs.fat")
                .args(["-F", &width.to_string(), "-s", &(cluster / 512).to_string()])
                .args(["-n", "VOLUME 1"])
                .arg(image)),
            Self::ExFat => run(command("mkfs.exfat")
                .args(["-L", "Volume", "-b", "16K", "-c", &cluster.to_string()])
                .arg(image)),
        };
    }

    fn open_mut(self, device: Arc<dyn BlockDevice>) -> bandsaw_fs::Result<Arc<dyn FileSystemMut>> {
        match self {
            Self::Fat(_) => fat::open_mut(device),
            Self::ExFat => exfat::open_mut(device),
        }
    }

    fn open(self, device: Arc<dyn BlockDevice>) -> Box<dyn FileSystem> {
        match self {
            Self::Fat(_) => Box::new(FatVolume::open(device).unwrap()),
            Self::ExFat => Box::new(ExFatVolume::open(device).unwrap()),
        }
    }

    fn check(self, device: Arc<dyn BlockDevice>) -> Vec<Problem> {
        match self {
            Self::Fat(_) => fat::check(device, &Silent).unwrap(),
            Self::ExFat => exfat::check(device, &Silent).unwrap(),
        }
    }

    fn fsck(self, image: &Path) -> Command {
        let mut fsck = match self {
            Self::Fat(_) => command("fsck.fat"),
            Self::ExFat => command("fsck.exfat"),
        };
        fsck.arg("-n").arg(image);
        fsck
    }

    /// Fails unless the programs find a clean volume with just these files.
    fn judge(self, image: &Path, files: &Files, what: &str) {
        let problems = self.check(device(image));
        assert!(problems.is_empty(), "{what}: {problems:?}");
        let said = run(&mut self.fsck(image));
        assert!(
            !said.contains("ERROR") && !said.contains("Dirty") && !said.contains("wrong"),
            "{what}: {said}"
        );
        compare(&read_volume(&*self.open(device(image))), files, what);
        match self {
            Self::Fat(_) if files.is_empty() => {}
            // mtools takes it for FAT12.
            Self::Fat(32) if fs::metadata(image).unwrap().len() < 34 << 20 => {}
            Self::Fat(_) => {
                let copied = tempfile::tempdir_in(image.parent().unwrap()).unwrap();
                run(command("mcopy")
                    .args(["-s", "-n", "-m", "-i"])
                    .arg(image)
                    .arg("::/*")
                    .arg(copied.path()));
                let mut found = Files::new();
                read_folder(copied.path(), "", &mut found);
                compare(&found, files, &format!("mcopy: {what}"));
            }
            Self::ExFat => compare_with_sleuth_kit(image, "exfat", files, &format!("fls: {what}")),
        }
    }
}

fn open_image(format: Format, image: &Path) -> Arc<dyn FileSystemMut> {
    let device = LocalFile::open(image, Open::Write).unwrap().unwrap();
    format.open_mut(Arc::new(device)).unwrap()
}

fn file() -> NewNode {
    NewNode::new(NewKind::File)
}

fn folder() -> NewNode {
    NewNode::new(NewKind::Folder)
}

/// Returns the folder of a path, and the name.
fn parent(fs: &dyn FileSystemMut, path: &str) -> (NodeId, String) {
    let (folder, name) = path.rsplit_once('/').unwrap();
    (fs.resolve(folder).unwrap().id, name.to_owned())
}

/// Creates a file without a name, and links it when it is complete.
fn put(fs: &dyn FileSystemMut, path: &str, bytes: &[u8]) -> bandsaw_fs::Result<()> {
    let (dir, name) = parent(fs, path);
    let (nameless, id) = UnlinkedFile::new(fs, &file())?;
    {
        let contents = fs.open_mut(id, Fork::Data)?;
        contents.set_len(bytes.len() as u64, AfterDiscard::Any)?;
        contents.write_at(0, bytes)?;
        contents.flush()?;
    }
    nameless.link_unlinked(dir, &name, ExistingTarget::Replace)
}

/// An operation by paths, so that it fits the model and the volume.
#[derive(Debug, Clone)]
enum Op {
    Create(String),
    MakeFolder(String),
    Put(String, usize),
    /// New length, and whether new bytes are written.
    Resize(String, usize, bool),
    Overwrite(String, usize, usize),
    Rename(String, String),
    Remove(String),
    Sync,
}

/// Names of all kinds, some of which are equal but for case.
fn name(random: &mut Random) -> String {
    match random.within(0..8) {
        0 => format!("F{}.TXT", random.within(0..6)),
        1 => format!("f{}.txt", random.within(0..6)),
        2 => format!("long name number {}.data", random.within(0..6)),
        3 => format!("{} {}", LONG, random.within(0..3)),
        4 => format!("\u{fc}ml{} \u{e4}\u{3a9}", random.within(0..4)),
        5 => format!("{}{}", "x".repeat(200), random.within(0..3)),
        6 => format!(".hidden{}", random.within(0..4)),
        _ => format!("N{}", random.within(0..6)),
    }
}

fn random_op(random: &mut Random, files: &Files, most: u64) -> Op {
    let pick = |random: &mut Random, wants_file: Option<bool>| {
        let fitting: Vec<_> = files
            .iter()
            .filter(|(_, bytes)| wants_file.is_none_or(|wanted| bytes.is_some() == wanted))
            .map(|(path, _)| path.clone())
            .collect();
        match fitting.is_empty() {
            true => None,
            false => Some(fitting[random.within(0..fitting.len() as u64) as usize].clone()),
        }
    };
    let folder = pick(random, Some(false)).filter(|_| random.one_in(2));
    let new = format!("{}/{}", folder.unwrap_or_default(), name(random));
    let old = pick(random, Some(true));
    let len = match random.one_in(4) {
        true => random.within(0..most),
        false => random.within(0..3000),
    } as usize;
    match (random.within(0..16), old) {
        (0 | 1, _) => Op::Create(new),
        (2 | 3, _) => Op::MakeFolder(new),
        (4 | 5, _) => Op::Put(new, len),
        (6, Some(old)) => Op::Put(old, len),
        (7 | 8, Some(old)) => Op::Resize(old, len, random.one_in(2)),
        (9, Some(old)) => Op::Overwrite(old, random.within(0..3000) as usize, len),
        (10 | 11, _) => match pick(random, None) {
            Some(any) => Op::Rename(any, new),
            None => Op::Create(new),
        },
        (12, Some(old)) => match pick(random, None) {
            Some(any) => Op::Rename(old, any),
            None => Op::Remove(old),
        },
        (13 | 14, _) => match pick(random, None) {
            Some(any) => Op::Remove(any),
            None => Op::Create(new),
        },
        (15, _) => Op::Sync,
        _ => Op::Create(new),
    }
}

/// Returns the path in the model that is the same on the volume.
fn same(files: &Files, path: &str) -> Option<String> {
    let wanted = path.to_uppercase();
    files
        .keys()
        .find(|known| known.to_uppercase() == wanted)
        .cloned()
}

/// Returns true for the error of a full volume or root folder.
fn is_full<T>(done: &bandsaw_fs::Result<T>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::Limit)
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn has_children(files: &Files, folder: &str) -> bool {
    let prefix = format!("{folder}/");
    files.keys().any(|path| path.starts_with(&prefix))
}

/// Does an operation on the model and on the volume, which must agree whether it fails.
fn apply(fs: &dyn FileSystemMut, files: &mut Files, op: &Op, random: &mut Random) {
    let what = format!("{op:?}");
    match op {
        Op::Create(path) | Op::MakeFolder(path) => {
            let is_folder = matches!(op, Op::MakeFolder(_));
            let (dir, name) = parent(fs, path);
            let new = if is_folder { folder() } else { file() };
            let made = fs.create(dir, &name, &new);
            match same(files, path) {
                Some(_) => assert_eq!(made.unwrap_err().kind(), Kind::Conflict, "{what}"),
                None if is_full(&made) => {}
                None => {
                    made.unwrap_or_else(|error| panic!("{what}: {error}"));
                    files.insert(path.clone(), (!is_folder).then(Vec::new));
                }
            }
        }
        Op::Put(path, len) => {
            let bytes = random.bytes(*len);
            let done = put(fs, path, &bytes);
            match same(files, path) {
                Some(known) if files[&known].is_none() => assert!(done.is_err(), "{what}"),
                _ if is_full(&done) => {}
                known => {
                    done.unwrap_or_else(|error| panic!("{what}: {error}"));
                    files.insert(known.unwrap_or(path.clone()), Some(bytes));
                }
            }
        }
        Op::Resize(path, len, writes) => {
            let id = fs.resolve(path).unwrap().id;
            let contents = fs.open_mut(id, Fork::Data).unwrap();
            let done = contents.set_len(*len as u64, AfterDiscard::Zeros);
            if is_full(&done) {
                return;
            }
            done.unwrap();
            let bytes = files.get_mut(path).unwrap().as_mut().unwrap();
            let old = bytes.len();
            bytes.resize(*len, 0);
            if *writes && old < *len {
                // Somewhere behind the old end.
                let at = old + (len - old) / 2;
                let new = random.bytes(len - at);
                contents.write_at(at as u64, &new).unwrap();
                bytes[at..].copy_from_slice(&new);
            }
            assert_eq!(fs.resolve(path).unwrap().size, *len as u64, "{what}");
        }
        Op::Overwrite(path, at, len) => {
            let id = fs.resolve(path).unwrap().id;
            let bytes = files.get_mut(path).unwrap().as_mut().unwrap();
            let at = (*at).min(bytes.len());
            let new = random.bytes((*len).min(bytes.len() - at));
            let contents = fs.open_mut(id, Fork::Data).unwrap();
            contents.write_at(at as u64, &new).unwrap();
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        Op::Rename(from, to) => rename(fs, files, from, to, &what),
        Op::Remove(path) => {
            let (dir, name) = parent(fs, path);
            let done = fs.remove(dir, &name);
            match has_children(files, path) {
                true => assert_eq!(done.unwrap_err().kind(), Kind::Conflict, "{what}"),
                false => {
                    done.unwrap_or_else(|error| panic!("{what}: {error}"));
                    files.remove(path);
                }
            }
        }
        Op::Sync => fs.sync().unwrap(),
    }
}

fn rename(fs: &dyn FileSystemMut, files: &mut Files, from: &str, to: &str, what: &str) {
    let (old, new) = (parent(fs, from), parent(fs, to));
    let id = fs.resolve(from).unwrap().id;
    let done = fs.rename((old.0, &old.1), (new.0, &new.1), ExistingTarget::Replace);
    let target = same(files, to).filter(|target| target != from);
    let refused = is_within(to, from) && to != from
        || target.as_ref().is_some_and(|target| {
            let (is_file, replaces) = (files[from].is_some(), files[target].is_some());
            is_file != replaces || !is_file && has_children(files, target)
        });
    if refused {
        assert!(done.is_err(), "{what}");
        return;
    }
    if is_full(&done) {
        return;
    }
    done.unwrap_or_else(|error| panic!("{what}: {error}"));
    // The spelling of a name that is replaced stays.
    let to = target.unwrap_or(to.to_owned());
    let moved: Vec<_> = files
        .keys()
        .filter(|path| is_within(path, from))
        .cloned()
        .collect();
    let moved: Vec<_> = moved
        .into_iter()
        .map(|path| {
            (
                format!("{to}{}", &path[from.len()..]),
                files.remove(&path).unwrap(),
            )
        })
        .collect();
    files.extend(moved);
    assert_eq!(fs.resolve(&to).unwrap().id, id, "{what}: the number");
}

/// Does random operations in batches, each of which is judged.
fn torture(test: &str, format: Format, len: u64, cluster: u64, seeds: std::ops::Range<u64>) {
    if lacks(test, format.programs()) {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    for seed in seeds {
        let mut random = Random::new(seed);
        format.make(&image, len, cluster);
        let mut files = Files::new();
        for batch in 0..4 {
            let what = format!("{format:?}, {cluster}, seed {seed}, batch {batch}");
            let fs = open_image(format, &image);
            for number in 0..120 {
                let op = random_op(&mut random, &files, len / 16);
                apply(&*fs, &mut files, &op, &mut random);
                if number % 40 == 39 {
                    compare(
                        &read_volume(&*fs),
                        &files,
                        &format!("{what}: {number}, {op:?}"),
                    );
                }
            }
            let free = fs.volume().free + fs.volume().pending;
            fs.unmount().unwrap();
            assert_eq!(fs.volume().free, free, "{what}");
            drop(fs);
            format.judge(&image, &files, &what);
        }
    }
}

#[test]
fn random_changes_of_fat12_are_those_of_the_model() {
    let test = "random_changes_of_fat12_are_those_of_the_model";
    torture(test, Format::Fat(12), 4 << 20, 2048, 0..6);
    torture(test, Format::Fat(12), 1 << 20, 512, 6..9);
}

#[test]
fn random_changes_of_fat16_are_those_of_the_model() {
    let test = "random_changes_of_fat16_are_those_of_the_model";
    torture(test, Format::Fat(16), 8 << 20, 512, 20..24);
}

#[test]
fn random_changes_of_fat32_are_those_of_the_model() {
    let test = "random_changes_of_fat32_are_those_of_the_model";
    torture(test, Format::Fat(32), 40 << 20, 512, 40..43);
    torture(test, Format::Fat(32), 300 << 20, 4096, 43..44);
}

/// The empty volume as bytes.
fn image_bytes(format: Format, len: u64, cluster: u64) -> Vec<u8> {
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    format.make(&image, len, cluster);
    fs::read(image).unwrap()
}

/// The steps of the power cuts and faults: each is an operation that is done or not.
fn steps() -> Vec<Op> {
    let path = |path: &str| path.to_owned();
    vec![
        Op::Put(path("/keep.txt"), 5000),
        Op::MakeFolder(path("/folder")),
        Op::Put(path("/folder/a long name in a folder.txt"), 3000),
        Op::Sync,
        Op::Put(path("/other"), 2000),
        Op::Rename(path("/other"), path("/folder/moved here")),
        Op::Sync,
        Op::MakeFolder(path("/second")),
        Op::Rename(path("/folder/moved here"), path("/second/again")),
        Op::Rename(path("/folder"), path("/second/folder")),
        Op::Sync,
        Op::Put(path("/temporary"), 2500),
        Op::Sync,
        Op::Rename(path("/temporary"), path("/second/again")),
        Op::Sync,
        Op::Resize(path("/second/again"), 700, false),
        Op::Sync,
        Op::Resize(path("/second/again"), 4000, true),
        Op::Put(path("/keep.txt"), 1500),
        Op::Sync,
        Op::Remove(path("/second/folder/a long name in a folder.txt")),
        Op::Remove(path("/second/folder")),
        Op::Put(path("/new"), 6000),
        Op::Sync,
    ]
}

/// Lines of `fsck.fat` and `fsck.exfat` about clusters without a file, and marks of a volume in use.
const HARMLESS: [&str; 27] = [
    "Warning: Filesystem is FAT32 according to fat_length",
    "but has only ",
    "This may lead to problems on some systems",
    "fsck.fat ",
    "exfatprogs version",
    "0x25: Dirty bit is set",
    "0x41: Dirty bit is set",
    "Dirty bit is set",
    " Automatically removing dirty bit",
    "Automatically removing dirty bit",
    "There are differences between boot sector and its backup",
    "This is mostly harmless",
    "65:01/00",
    "Not automatically fixing this",
    "FATs differ but appear to be intact",
    "Using first FAT",
    "Reclaimed ",
    "Reclaiming ",
    "Free cluster summary",
    "Auto-setting",
    "Leaving filesystem unchanged",
    "Found orphaned",
    "Orphaned long file name part",
    "Auto-deleting",
    "Truncating file to",
    "volume.img: ",
    "Perform changes",
];

fn is_harmless(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || HARMLESS.iter().any(|start| line.starts_with(start.trim()))
        || line.starts_with('/') && !line.contains("and")
        || line.contains("cluster chain length is >")
}

/// Fails if a volume after a crash has anything worse than clusters without a file, or files whose contents
/// no operation has given them.
fn judge_crash(
    format: Format,
    bytes: &[u8],
    versions: &BTreeMap<String, BTreeSet<Option<Vec<u8>>>>,
    image: &Path,
    what: &str,
) {
    let memory: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes.to_vec()));
    for problem in format.check(memory.clone()) {
        let message = problem.error.message();
        assert!(
            problem.severity == Severity::Warning || message.contains("copies of the table"),
            "{what}: {problem:?}"
        );
    }
    for (path, found) in read_volume(&*format.open(memory)) {
        assert!(
            versions[&path].contains(&found),
            "{what}: {path} has {:?} bytes that no operation has written",
            found.map(|found| found.len())
        );
    }
    fs::write(image, bytes).unwrap();
    let output = format.fsck(image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if let Format::Fat(_) = format {
        let worse: Vec<_> = said.lines().filter(|line| !is_harmless(line)).collect();
        assert!(worse.is_empty(), "{what}: {worse:?} of {said}");
    } else {
        let worse: Vec<_> = said
            .lines()
            .filter(|line| line.contains("ERROR") && !line.contains("dirty"))
            .collect();
        assert!(worse.is_empty(), "{what}: {worse:?} of {said}");
    }
}

fn cut_power(test: &str, format: Format, len: u64, cluster: u64) {
    if lacks(test, format.programs()) {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    let store = PowerCut::default();
    let open = |store: &PowerCut| {
        use bandsaw_core::store::Store;
        store.open("disk", Open::Create).unwrap().unwrap()
    };
    let disk = open(&store);
    let bytes = image_bytes(format, len, cluster);
    disk.set_len(bytes.len() as u64, AfterDiscard::Zeros)
        .unwrap();
    disk.write_at(0, &bytes).unwrap();
    disk.flush().unwrap();
    {
        use bandsaw_core::store::Store;
        store.sync().unwrap();
    }
    let begin = store.position();
    let fs = format.open_mut(disk).unwrap();
    let mut files = Files::new();
    let mut versions: BTreeMap<String, BTreeSet<Option<Vec<u8>>>> = BTreeMap::new();
    let mut random = Random::new(3);
    // Positions from which on files have their last contents.
    let mut durable = Vec::new();
    for op in steps() {
        apply(&*fs, &mut files, &op, &mut random);
        for (path, bytes) in &files {
            versions
                .entry(path.clone())
                .or_default()
                .insert(bytes.clone());
        }
        if matches!(op, Op::Sync) {
            durable.push((store.position(), files.clone()));
        }
    }
    fs.unmount().unwrap();
    drop(fs);
    let mut count = 0;
    for crash in store.crashes_from(begin, 7, 2) {
        let disk = open(&crash.store);
        let bytes = disk.read_vec(0, disk.info().len as usize).unwrap();
        let what = format!("{format:?}, crash at {}, {:?}", crash.position, crash.keep);
        judge_crash(format, &bytes, &versions, &image, &what);
        // Files that no later operation touches are there.
        let known = durable
            .iter()
            .rev()
            .find(|(position, _)| *position <= crash.position);
        if let Some((_, known)) = known {
            let memory = Arc::new(Memory::read_only(bytes));
            let found = read_volume(&*format.open(memory));
            for (path, bytes) in known {
                let is_final = files.get(path) == Some(bytes);
                assert!(
                    !is_final || found.get(path) == Some(bytes),
                    "{what}: {path}"
                );
            }
        }
        count += 1;
    }
    assert!(count > 100, "{count} crashes");
}

#[test]
fn a_power_cut_loses_at_most_clusters_of_fat() {
    let test = "a_power_cut_loses_at_most_clusters_of_fat";
    cut_power(test, Format::Fat(12), 256 << 10, 512);
    cut_power(test, Format::Fat(32), 512 << 10, 512);
}

/// Lets every call of a kind fail once, and continues.
fn fail_every(test: &str, format: Format, len: u64, cluster: u64, call: Call) {
    if lacks(test, format.programs()) {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    let empty = image_bytes(format, len, cluster);
    let failed = at_every(call, Fault::Io, |faults: &Arc<Faults>, n| {
        let disk = Arc::new(Memory::from(empty.clone()));
        let faulty: Arc<dyn BlockDevice> = Arc::new(FaultyDevice::new(disk.clone(), faults));
        let Ok(fs) = format.open_mut(faulty) else {
            return;
        };
        let mut files = Files::new();
        let mut versions: BTreeMap<String, BTreeSet<Option<Vec<u8>>>> = BTreeMap::new();
        let mut note = |files: &Files| {
            for (path, bytes) in files {
                versions
                    .entry(path.clone())
                    .or_default()
                    .insert(bytes.clone());
            }
        };
        let mut random = Random::new(3);
        for op in steps() {
            let what = format!("{format:?}, {call:?} {n}, {op:?}");
            let before = files.clone();
            let was = faults.happened();
            let attempt = std::panic::AssertUnwindSafe(|| {
                let mut after = before.clone();
                apply(&*fs, &mut after, &op, &mut random);
                after
            });
            match std::panic::catch_unwind(attempt) {
                Ok(after) => files = after,
                Err(_) => {
                    assert!(faults.happened() > was || call == Call::Flush, "{what}");
                    let now = read_volume(&*fs);
                    // Steps of several operations may be done in part, in the files they name.
                    let touched = |path: &String| match &op {
                        Op::Put(at, _) | Op::Resize(at, ..) => path == at,
                        _ => false,
                    };
                    for (path, bytes) in &files {
                        assert!(
                            touched(path) || now.get(path) == Some(bytes),
                            "{what}: {path}"
                        );
                    }
                    for path in now.keys() {
                        assert!(touched(path) || files.contains_key(path), "{what}: {path}");
                    }
                    files = now;
                }
            }
            note(&files);
            // The remaining operations depend on all files.
            if faults.happened() > 0 {
                break;
            }
        }
        let unmounted = fs.unmount();
        assert!(unmounted.is_ok() || faults.happened() > 0);
        if call == Call::Flush && faults.happened() > 0 {
            // The device refuses all further changes.
            drop(fs);
            let what = format!("{format:?}, {call:?} {n}");
            judge_crash(format, &disk.to_vec(), &versions, &image, &what);
            return;
        }
        if unmounted.is_err() {
            fs.unmount().unwrap();
        }
        drop(fs);
        fs::write(&image, disk.to_vec()).unwrap();
        format.judge(&image, &files, &format!("{format:?}, {call:?} {n}"));
    });
    assert!(failed > 5, "{failed} calls");
}

#[test]
fn a_failed_change_of_fat_leaves_the_volume_as_it_was() {
    let test = "a_failed_change_of_fat_leaves_the_volume_as_it_was";
    for call in [Call::Write, Call::Discard, Call::Flush] {
        fail_every(test, Format::Fat(12), 256 << 10, 512, call);
    }
    fail_every(test, Format::Fat(32), 512 << 10, 512, Call::Write);
}

/// Checks that a full volume and a full root folder stay as they are.
fn fill(test: &str, format: Format, len: u64) {
    if lacks(test, format.programs()) {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    format.make(&image, len, 512);
    let fs = open_image(format, &image);
    let mut files = Files::new();
    let free = fs.volume().free;
    put(&*fs, "/small", b"small").unwrap();
    files.insert("/small".into(), Some(b"small".to_vec()));
    let id = fs.resolve("/small").unwrap().id;
    {
        let small = fs.open_mut(id, Fork::Data).unwrap();
        let error = small.set_len(free + 1, AfterDiscard::Any).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        // All but one cluster, then too much.
        let most = fs.volume().free - 512;
        small.set_len(most, AfterDiscard::Any).unwrap();
    }
    files
        .get_mut("/small")
        .unwrap()
        .as_mut()
        .unwrap()
        .resize(fs.resolve("/small").unwrap().size as usize, 0);
    let root = fs.root();
    let mut count = 0;
    let error = loop {
        let name = format!("a folder of some length {count}");
        match fs.create(root, &name, &folder()) {
            Ok(_) => drop(files.insert(format!("/{name}"), None)),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    fs.unmount().unwrap();
    format.judge(&image, &files, "full volume");
    // Space that a removal frees can be used at once.
    fs.remove(root, "small").unwrap();
    files.remove("/small");
    let mut names = 0;
    let error = loop {
        let name = format!("another file with a long name, number {names}");
        match fs.create(root, &name, &file()) {
            Ok(_) if names > 700 => break None,
            Ok(_) => drop(files.insert(format!("/{name}"), Some(Vec::new()))),
            Err(error) => break Some(error),
        }
        names += 1;
    };
    if let Some(error) = error {
        assert_eq!(error.kind(), Kind::Limit, "{error}");
    } else {
        files.insert(
            format!("/another file with a long name, number {names}"),
            Some(Vec::new()),
        );
    }
    fs.unmount().unwrap();
    drop(fs);
    format.judge(&image, &files, "full folder");
}

#[test]
fn a_full_fat_volume_and_a_full_root_stay_as_they_are() {
    let test = "a_full_fat_volume_and_a_full_root_stay_as_they_are";
    fill(test, Format::Fat(12), 1 << 20);
    fill(test, Format::Fat(32), 36 << 20);
}

/// Checks names, attributes, open files without a name, and what the format lacks.
fn details(test: &str, format: Format, len: u64) {
    if lacks(test, format.programs()) {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("volume.img");
    format.make(&image, len, 512);
    let fs = open_image(format, &image);
    let root = fs.root();
    for name in [
        "a*b", "a?", "a:b", "ends.", "ends ", "", ".", "..", "con", "Aux.c", "LPT1.txt",
    ] {
        let error = fs.create(root, name, &file()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
    }
    assert!(fs.create(root, &"x".repeat(256), &file()).is_err());
    let id = fs.create(root, "Name.Txt", &file()).unwrap();
    assert_eq!(
        fs.create(root, "nAME.tXT", &file()).unwrap_err().kind(),
        Kind::Conflict
    );
    assert_eq!(fs.lookup(root, "NAME.TXT").unwrap().unwrap().id, id);
    // A new spelling of the same name.
    fs.rename(
        (root, "name.txt"),
        (root, "NAME.txt"),
        ExistingTarget::Error,
    )
    .unwrap();
    let names: Vec<_> = fs
        .entries(root)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["NAME.txt"]);
    assert_eq!(fs.lookup(root, "name.txt").unwrap().unwrap().id, id);
    let refused = [
        fs.link(id, root, "linked").unwrap_err(),
        fs.create(root, "link", &NewNode::new(NewKind::Symlink("to".into())))
            .unwrap_err(),
        fs.create(
            root,
            "pipe",
            &NewNode::new(NewKind::Special(FileKind::Fifo, 0)),
        )
        .unwrap_err(),
        fs.set_xattr_bytes(id, "user.x", b"x").unwrap_err(),
        fs.set_attributes(
            id,
            &Change {
                uid: Some(501),
                ..Change::default()
            },
        )
        .unwrap_err(),
        fs.open_mut(id, Fork::Resource).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains("FAT"), "{error}");
    }
    let date = Timestamp::from_seconds(1_600_000_000);
    let change = Change {
        created: Some(date),
        modified: Some(date),
        flags: Some(0x8002),
        ..Change::default()
    };
    fs.set_attributes(id, &change).unwrap();
    // A file that was removed while it is open keeps its contents until it is closed.
    put(&*fs, "/removed", &[7; 3000]).unwrap();
    fs.sync().unwrap();
    let free = fs.volume().free;
    let open = fs
        .open(fs.resolve("/removed").unwrap().id, Fork::Data)
        .unwrap();
    fs.remove(root, "removed").unwrap();
    put(&*fs, "/removed", &[8; 2000]).unwrap();
    fs.sync().unwrap();
    assert!(!fs.volume().clean);
    assert_eq!(open.read_vec(0, 3000).unwrap(), [7; 3000]);
    drop(open);
    fs.remove(root, "removed").unwrap();
    fs.sync().unwrap();
    assert!(fs.volume().clean);
    assert_eq!(fs.volume().free, free + 3072);
    // A file that is written in two places at once, and renamed meanwhile.
    let other = fs.create(root, "other", &file()).unwrap();
    let contents = fs.open_mut(other, Fork::Data).unwrap();
    contents.set_len(600, AfterDiscard::Zeros).unwrap();
    fs.rename(
        (root, "other"),
        (root, "a much longer name"),
        ExistingTarget::Error,
    )
    .unwrap();
    contents.write_at(500, &[1; 100]).unwrap();
    assert_eq!(fs.attributes(other).unwrap().size, 600);
    drop(contents);
    drop(fs);
    let expected = [vec![0; 500], vec![1; 100]].concat();
    let files = Files::from([
        ("/NAME.txt".to_owned(), Some(Vec::new())),
        ("/a much longer name".to_owned(), Some(expected)),
    ]);
    format.judge(&image, &files, "details");
    let found = format.open(device(&image)).resolve("/name.txt").unwrap();
    assert_eq!(
        (found.modified, found.created, found.flags),
        (Some(date), Some(date), 0x8002)
    );
}

#[test]
fn names_and_attributes_of_fat_are_kept() {
    let test = "names_and_attributes_of_fat_are_kept";
    details(test, Format::Fat(12), 1 << 20);
    details(test, Format::Fat(32), 36 << 20);
}

#[test]
fn a_fat_volume_with_disagreeing_structures_is_not_changed() {
    let test = "a_fat_volume_with_disagreeing_structures_is_not_changed";
    let format = Format::Fat(32);
    if lacks(test, format.programs()) {
        return;
    }
    let bytes = image_bytes(format, 2 << 20, 512);
    // The flag of a volume in use, a signature of FSInfo, the copy of the boot sector, a link in one table.
    for at in [0x41, 512, 6 * 512 + 13, 32 * 512 + 40] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let error = format
            .open_mut(Arc::new(Memory::from(damaged)))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{at}: {error}");
    }
    let read_only = format.open_mut(Arc::new(Memory::read_only(bytes)));
    assert_eq!(read_only.unwrap_err().kind(), Kind::ReadOnly);
}

#[test]
fn random_changes_of_exfat_are_those_of_the_model() {
    let test = "random_changes_of_exfat_are_those_of_the_model";
    torture(test, Format::ExFat, 4 << 20, 512, 60..64);
    torture(test, Format::ExFat, 16 << 20, 4096, 64..67);
}

#[test]
fn a_power_cut_loses_at_most_clusters_of_exfat() {
    let test = "a_power_cut_loses_at_most_clusters_of_exfat";
    cut_power(test, Format::ExFat, 1 << 20, 512);
}

#[test]
fn a_failed_change_of_exfat_leaves_the_volume_as_it_was() {
    let test = "a_failed_change_of_exfat_leaves_the_volume_as_it_was";
    for call in [Call::Write, Call::Discard, Call::Flush] {
        fail_every(test, Format::ExFat, 1 << 20, 512, call);
    }
}

#[test]
fn a_full_exfat_volume_stays_as_it_is() {
    fill("a_full_exfat_volume_stays_as_it_is", Format::ExFat, 2 << 20);
}

#[test]
fn names_and_attributes_of_exfat_are_kept() {
    details(
        "names_and_attributes_of_exfat_are_kept",
        Format::ExFat,
        2 << 20,
    );
}

#[test]
fn an_exfat_volume_with_disagreeing_structures_is_not_changed() {
    let test = "an_exfat_volume_with_disagreeing_structures_is_not_changed";
    let format = Format::ExFat;
    if lacks(test, format.programs()) {
        return;
    }
    let bytes = image_bytes(format, 2 << 20, 512);
    // The flag of a volume in use, and the copy of the boot sector.
    for (at, bit) in [(0x6A, 2), (12 * 512 + 0x64, 1)] {
        let mut damaged = bytes.clone();
        damaged[at] ^= bit;
        let error = format
            .open_mut(Arc::new(Memory::from(damaged)))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{at}: {error}");
    }
}
