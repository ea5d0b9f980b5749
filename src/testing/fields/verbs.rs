//! The verbs that change an image, each on an image with one field changed: unless the verb wrote
//! it, the field gets its old value again; then every file is compared.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::codec::Level;
use crate::container::sparsebundle::Rebanded;
use crate::crypt::{KeyWrap, MIN_ITERATIONS, NewKeySlot, Secret};
use crate::decmpfs::{Method, PackOptions};
use crate::device::{Access, BlockDeviceExt};
use crate::fs::{
    Change, ExistingTarget, FileSystemExt, FileSystemMut, FileSystemMutExt, NewKind, NewNode,
    NodeId,
};
use crate::open::{self, Image as OpenImage, KeyFile, NetworkOptions, OpenOptions};
use crate::ops::compact::{self, compact};
use crate::ops::compress::{CompressOptions, compress, decompress};
use crate::ops::reband::reband;
use crate::ops::resize::{Parts, ResizeOptions, Size, resize};
use crate::ops::trim::{before_use, trim};
use crate::ops::writable_volume::RewritableVolume;
use crate::ops::{snapshot, stack};
use crate::progress::Silent;
use crate::sync::Mutex;
use crate::testing::Random;

use super::images::{self, Files};
use super::{ImageCase, Images, on_all_cores};

/// A change of an image, as a verb of the command makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Put,
    Overwrite,
    Remove,
    Rename,
    MakeFolder,
    Link,
    SetXattr,
    SetMode,
    Compress,
    Decompress,
    /// `mount` and `attach`: a trim at the start, a change, and an unmount.
    Mount,
    /// `serve`: a trim at the start, and a client that writes what it has read.
    Serve,
    /// `serve` without a client: the image is opened and flushed.
    Idle,
    Compact,
    CompactZeros,
    Trim,
    EnableJournal,
    DisableJournal,
    Grow,
    Shrink,
    GrowImage,
    Reband,
    ChangePassphrase,
    CommitLayer,
    RestoreSnapshot,
}

const VERBS: [Verb; 25] = [
    Verb::Put,
    Verb::Overwrite,
    Verb::Remove,
    Verb::Rename,
    Verb::MakeFolder,
    Verb::Link,
    Verb::SetXattr,
    Verb::SetMode,
    Verb::Compress,
    Verb::Decompress,
    Verb::Mount,
    Verb::Serve,
    Verb::Idle,
    Verb::Compact,
    Verb::CompactZeros,
    Verb::Trim,
    Verb::EnableJournal,
    Verb::DisableJournal,
    Verb::Grow,
    Verb::Shrink,
    Verb::GrowImage,
    Verb::Reband,
    Verb::ChangePassphrase,
    Verb::CommitLayer,
    Verb::RestoreSnapshot,
];

/// Bytes that an image grows by.
const GROWTH: u64 = 8 << 20;

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Overwrite => "put --overwrite",
            Self::Remove => "rm",
            Self::Rename => "mv",
            Self::MakeFolder => "mkdir",
            Self::Link => "ln",
            Self::SetXattr => "xattr",
            Self::SetMode => "chmod",
            Self::Compress => "compress",
            Self::Decompress => "decompress",
            Self::Mount => "mount",
            Self::Serve => "serve",
            Self::Idle => "serve, idle",
            Self::Compact => "compact",
            Self::CompactZeros => "compact --zeros",
            Self::Trim => "trim",
            Self::EnableJournal => "enable-journal",
            Self::DisableJournal => "disable-journal",
            Self::Grow => "resize",
            Self::Shrink => "resize --size min",
            Self::GrowImage => "resize --image-only",
            Self::Reband => "reband",
            Self::ChangePassphrase => "passwd",
            Self::CommitLayer => "stack commit",
            Self::RestoreSnapshot => "snapshot restore",
        }
    }

    /// Returns true if the verb changes a consistent image of this kind.
    fn applies(self, case: &ImageCase<'_>) -> bool {
        let is = |part: &str| case.image().contains(part);
        let is_apfs = is("apfs");
        match self {
            _ if is(".dmg") => false,
            Self::EnableJournal => !is_apfs && !is("journaled"),
            Self::DisableJournal => is("journaled"),
            Self::Reband | Self::RestoreSnapshot => is(".sparsebundle"),
            Self::ChangePassphrase => case.is_encrypted(),
            _ => true,
        }
    }

    /// Returns the number of the file that it removes or changes, as [`images::file`] counts.
    fn changes(self) -> Option<usize> {
        match self {
            Self::Overwrite => Some(5),
            Self::Remove => Some(6),
            Self::Rename => Some(7),
            _ => None,
        }
    }

    fn run(self, path: &Path, keys: &Secret) -> Result<()> {
        let file = |number: usize| images::file(number);
        let change = |change: &dyn Fn(&dyn FileSystemMut) -> Result<()>| {
            let image = open::open(path, &writing(keys))?;
            change_volume(&image, keys, change)
        };
        match self {
            Self::Put => change(&add),
            Self::Overwrite => change(&|fs| {
                let node = fs.resolve(&file(5))?.id;
                fs.write_all(node, &[0xEE; 700])
            }),
            Self::Remove => change(&|fs| {
                let (folder, name) = parent_of(fs, &file(6))?;
                fs.remove(folder, &name)
            }),
            Self::Rename => change(&|fs| {
                let (folder, name) = parent_of(fs, &file(7))?;
                fs.rename(
                    (folder, &name),
                    (fs.root(), "renamed"),
                    ExistingTarget::Error,
                )
            }),
            Self::MakeFolder => change(&|fs| {
                fs.create(fs.root(), "made", &NewNode::new(NewKind::Folder))
                    .map(drop)
            }),
            Self::Link => change(&|fs| {
                let node = fs.resolve(&file(8))?.id;
                fs.link(node, fs.root(), "linked")
            }),
            Self::SetXattr => change(&|fs| {
                let node = fs.resolve(&file(9))?.id;
                fs.set_xattr_bytes(node, "org.example.test", &[7; 200])
            }),
            Self::SetMode => change(&|fs| {
                let node = fs.resolve(&file(10))?.id;
                let mode = Change {
                    mode: Some(0o600),
                    ..Change::default()
                };
                fs.set_attributes(node, &mode)
            }),
            Self::Compress => rewrite(path, keys, &compress_one),
            Self::Decompress => rewrite(path, keys, &|volume| {
                compress_one(volume)?;
                decompress(volume, &[file(47)], &Silent, &mut |_| Ok(()))
            }),
            Self::Mount => {
                let image = open::open(path, &writing(keys))?;
                before_use(&image, Some(keys), &Silent)?;
                change_volume(&image, keys, &add)
            }
            Self::Serve => serve(&open::open(path, &writing(keys))?),
            Self::Idle => {
                let image = open::open(path, &writing(keys))?;
                before_use(&image, None, &Silent)?;
                image.disk().flush()
            }
            Self::Compact | Self::CompactZeros => {
                let options = compact::Options {
                    zeros: (self == Self::CompactZeros).then_some(true),
                    battery_allowed: true,
                };
                compact(
                    &open::open(path, &writing(keys))?,
                    &options,
                    Some(keys),
                    &Silent,
                )
                .map(drop)
            }
            Self::Trim => trim(&open::open(path, &writing(keys))?, Some(keys), &Silent).map(drop),
            Self::EnableJournal => first_volume(path, keys, |volume| volume.enable_journal(None)),
            Self::DisableJournal => first_volume(path, keys, open::Volume::disable_journal),
            Self::Grow | Self::Shrink | Self::GrowImage => {
                let image = open::open(path, &writing(keys))?;
                let len = image.disk().info().len;
                let options = ResizeOptions {
                    size: match self {
                        Self::Shrink => Size::Min,
                        _ => Size::Bytes(len.saturating_add(GROWTH)),
                    },
                    parts: match self {
                        Self::GrowImage => Parts::Image,
                        _ => Parts::All,
                    },
                    volume: None,
                    dry_run: false,
                };
                resize(&image, &options, &Silent).map(drop)
            }
            Self::Reband => {
                // No number that a field gets: what was written would not be told from the damage.
                reband(path, Some(4 << 20), &writing(keys), &Silent).map(|_: Rebanded| ())
            }
            Self::ChangePassphrase => {
                let ring = KeyFile::open(path, Access::ReadWrite, NetworkOptions::default())?
                    .ok_or_else(|| crate::Error::not_found("testing", "an encryption header"))?
                    .unlock(keys)?;
                ring.replace(
                    0,
                    &NewKeySlot::Passphrase {
                        passphrase: keys.clone(),
                        iterations: MIN_ITERATIONS,
                        wrap: KeyWrap::default(),
                    },
                )
            }
            Self::CommitLayer => {
                let layers = [path.with_extension("layer")];
                let options = OpenOptions {
                    shadows: &layers,
                    ..writing(keys)
                };
                let image = open::open(path, &options)?;
                change_volume(&image, keys, &add)?;
                drop(image);
                stack::commit(path, &layers, &writing(keys), &Silent).map(drop)
            }
            Self::RestoreSnapshot => {
                let network = NetworkOptions::default();
                snapshot::create(path, "before", network, &Silent)?;
                Self::Put.run(path, keys)?;
                snapshot::restore(path, "before", network, &Silent)
            }
        }
    }
}

fn writing(keys: &Secret) -> OpenOptions<'_> {
    OpenOptions {
        access: Access::ReadWrite,
        keys: Some(keys),
        ..OpenOptions::default()
    }
}

fn change_volume(
    image: &OpenImage,
    keys: &Secret,
    change: &dyn Fn(&dyn FileSystemMut) -> Result<()>,
) -> Result<()> {
    let fs = image.file_system_mut_as(None, Some(keys))?;
    change(&*fs)?;
    fs.unmount()
}

fn rewrite(
    path: &Path,
    keys: &Secret,
    change: &dyn Fn(&RewritableVolume) -> Result<()>,
) -> Result<()> {
    let image = open::open(path, &writing(keys))?;
    let volume = RewritableVolume::open(&image, None, Some(keys), &Silent)?;
    change(&volume)?;
    volume.unmount()
}

fn first_volume(
    path: &Path,
    keys: &Secret,
    change: impl FnOnce(&open::Volume) -> Result<()>,
) -> Result<()> {
    let image = open::open(path, &writing(keys))?;
    change(image.volume(None)?)
}

fn add(fs: &dyn FileSystemMut) -> Result<()> {
    let node = fs.create(fs.root(), "added", &NewNode::new(NewKind::File))?;
    fs.write_all(node, &[0xDD; 5000])
}

fn compress_one(volume: &RewritableVolume) -> Result<()> {
    let options = CompressOptions::new(PackOptions::new(Method::Zlib, Level::default())?);
    compress(volume, &[images::file(47)], &options, &Silent, &mut |_| {
        Ok(())
    })
}

fn parent_of(fs: &dyn FileSystemMut, path: &str) -> Result<(NodeId, String)> {
    crate::ops::put::parent(fs, path)
}

/// Trims, and writes some of what the disk holds to where it was read.
fn serve(image: &OpenImage) -> Result<()> {
    before_use(image, None, &Silent)?;
    let disk = image.disk();
    let len = disk.info().len;
    let piece = len.min(64 << 10);
    for at in [0, ((len - piece) / 2) & !0xFFF, len - piece] {
        let bytes = disk.read_vec(at, piece as usize)?;
        disk.write_at(at, &bytes)?;
    }
    disk.flush()
}

/// The outcomes of one verb.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerbCounts {
    /// Cases in which it refused.
    pub refused: usize,
    /// Cases in which it changed the image, and no file was lost.
    pub harmless: usize,
    /// Cases in which a file was lost.
    pub lost: usize,
}

/// The results of all cases.
#[derive(Debug, Default)]
pub struct VerbReport {
    /// Outcomes by the name of the verb.
    pub counts: BTreeMap<&'static str, VerbCounts>,
    /// The cases that lost a file.
    pub lost: Vec<String>,
    /// Consistent images that a verb refused, or lost a file of.
    pub false_refusals: Vec<String>,
}

/// A verb and an image that it changes, at `path`, in a folder of its own.
struct VerbCase<'a> {
    case: &'a ImageCase<'a>,
    verb: Verb,
    path: PathBuf,
}

impl VerbCase<'_> {
    /// Runs the verb on the image, or on it as `files`, and compares every file; returns true if the
    /// verb did not refuse.
    fn run(&self, files: Option<&Files>) -> std::result::Result<bool, String> {
        let folder = self.path.parent().unwrap();
        match files {
            Some(files) => images::write(&self.path, files),
            None => self.case.write(&self.path),
        }
        let run = || self.verb.run(&self.path, self.case.keys);
        let done = catch_unwind(AssertUnwindSafe(run)).map_err(|_| "panic".to_owned())?;
        let but = match done {
            Ok(()) => self.verb.changes().map(images::file),
            Err(_) => None,
        };
        let compared = self.case.compare(&self.path, but.as_slice());
        fs::remove_dir_all(folder).unwrap();
        match (done, compared) {
            (done, Ok(())) if files.is_none() => Ok(done.is_ok()),
            (Ok(()), Ok(())) => Ok(true),
            (Err(error), Ok(())) => Err(format!("refused ({error})")),
            (Ok(()), Err(lost)) => Err(format!("accepted; {lost}")),
            (Err(error), Err(lost)) => Err(format!("refused ({error}); {lost}")),
        }
    }
}

/// Returns the image as a killed writer leaves it: with a file added and no unmount.
fn killed(case: &ImageCase<'_>, path: &Path) -> Option<Files> {
    let keys = case.keys;
    case.write(path);
    let opened = open::open(path, &writing(keys)).ok()?;
    let fs = opened.file_system_mut_as(None, Some(keys)).ok()?;
    let node = fs
        .create(fs.root(), "cut off", &NewNode::new(NewKind::File))
        .ok()?;
    fs.write_all(node, &[0xCC; 20_000]).ok()?;
    fs.sync().ok()?;
    let node = fs
        .create(fs.root(), "lost", &NewNode::new(NewKind::File))
        .ok()?;
    fs.write_all(node, &[0xCC; 20_000]).ok()?;
    // Changes in memory are never written.
    std::mem::forget(fs);
    std::mem::forget(opened);
    let files = images::read(path);
    fs::remove_dir_all(path.parent()?).ok()?;
    Some(files)
}

/// Runs `cases` cases, with values derived from `seed`, on all cores: each field in turn, with a verb
/// at random. Images are created in `scratch`. Only cases whose names contain `only` are
/// run.
///
/// Every verb must accept each image without a change, and as a killed writer leaves it.
pub fn run_verbs(scratch: &Path, cases: usize, seed: u64, only: &str) -> VerbReport {
    let images = Images::new(scratch);
    let report = Mutex::new(VerbReport::default());
    let place = |case: &ImageCase<'_>, number: usize| {
        scratch.join(format!("case-{number}")).join(case.image())
    };
    let unchanged: Vec<_> = images.unchanged().collect();
    on_all_cores(unchanged.len(), |at| {
        let case = &unchanged[at];
        let killed = killed(case, &place(case, at));
        for verb in VERBS.into_iter().filter(|verb| verb.applies(case)) {
            let states = [("", Some(&case.image.files)), ("killed, ", killed.as_ref())];
            for (state, files) in states {
                let name = format!("{}: {state}{}", case.image(), verb.name());
                let Some(files) = files.filter(|_| name.contains(only)) else {
                    continue;
                };
                let path = place(case, at);
                if let Err(error) = (VerbCase { case, verb, path }).run(Some(files)) {
                    let mut report = report.lock();
                    report.false_refusals.push(format!("{name}: {error}"));
                }
            }
        }
    });
    let encrypted = AtomicUsize::new(0);
    on_all_cores(cases, |number| {
        // Most fields are those of trees: every other case takes the images in turn instead.
        let (half, count) = (number / 2, images.images.len());
        let case = match number % 2 {
            0 => images.changed(half, seed),
            _ => images.changed_in(images.images[half % count].name, half / count, seed),
        };
        let Some(case) = &case else {
            return;
        };
        let mut random = Random::new(seed << 32 | number as u64);
        let verbs: Vec<_> = VERBS
            .into_iter()
            .filter(|verb| verb.applies(case))
            .collect();
        if verbs.is_empty() {
            return;
        }
        let verb = verbs[random.within(0..verbs.len() as u64) as usize];
        let name = format!("{}: {}", verb.name(), case.name());
        if !name.contains(only)
            || case.is_encrypted()
                && encrypted.fetch_add(1, Ordering::Relaxed) >= super::ENCRYPTED_CASES
        {
            return;
        }
        let path = place(case, number);
        let outcome = VerbCase { case, verb, path }.run(None);
        let mut report = report.lock();
        let counts = report.counts.entry(verb.name()).or_default();
        match outcome {
            Ok(true) => counts.harmless += 1,
            Ok(false) => counts.refused += 1,
            Err(error) => {
                counts.lost += 1;
                report.lost.push(format!("{name}: {error}"));
            }
        }
    });
    report.into_inner()
}
