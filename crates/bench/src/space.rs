//! The space protocol: five rounds of files written and the largest deleted, then all of them; what the image takes at each
//! point. After Howard Oakley's measurements of 21 October 2024, who did it with 125 GB, 160 files a round and macOS.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, LEAST_ITERATIONS, Secret};
use bandsaw::device::Access;
use bandsaw::fs::{FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, NewKind, NewNode};
use bandsaw::open::{self, Image, Keys, OpenOptions};
use bandsaw::ops::compact::{self, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::reband::reband;
use bandsaw::ops::trim::{check_fully, trim};
use bandsaw::ops::usage::HostUsage;
use bandsaw::progress::{Progress, Silent};
use bandsaw::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use crate::noise::Noise;

const LAYER: &str = "space protocol";
/// The original's numbers, in bytes and files.
const DISK: u64 = 125_000_000_000;
const SIZES: [u64; 2] = [2_000_000, 2_000_000_000];
const ROUNDS: u64 = 5;
const FILES: u64 = 160;
const DELETED: usize = 40;
/// What may be left of all bytes written when everything is deleted: 0.2 %.
const LEFT_PER_MILLE: u64 = 2;
/// What a full image may take of the bytes in use: 1.03.
const FULL_PERCENT: u64 = 103;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The container.
    pub format: Format,
    /// Bits of its AES key; 0 for none.
    pub key_bits: u32,
    /// The file system within.
    pub file_system: NewFormat,
    /// What every size of the original is divided by.
    pub scale: u64,
    /// Of the sizes and contents of files.
    pub seed: u64,
}

impl Case {
    /// Every container that can be changed, plain and encrypted, with an HFS+ volume and with APFS.
    pub fn all(scale: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for file_system in [NewFormat::HfsPlus, NewFormat::Apfs] {
            for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
                all.extend([0, 256].map(|key_bits| Self { format, key_bits, file_system, scale, seed: 1 }));
            }
        }
        all
    }

    /// Bytes of the disk.
    pub fn disk_len(&self) -> u64 {
        (DISK / self.scale).next_multiple_of(1 << 20)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.key_bits > 0 { " encrypted" } else { "" };
        let file_system = if self.file_system == NewFormat::Apfs { "APFS" } else { "HFS+" };
        write!(f, "{}{encrypted}, {file_system}", self.format)
    }
}

/// Bytes of storage behind the image at each point, and what they are compared with.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Formatted and trimmed, nothing in it.
    pub fresh: u64,
    /// All bytes written in all rounds.
    pub written: u64,
    /// Bytes in use when all rounds are done.
    pub in_use: u64,
    /// The storage then.
    pub full: u64,
    /// The same after a trim and a compaction.
    pub full_compacted: u64,
    /// Everything deleted.
    pub emptied: u64,
    /// And compacted.
    pub compacted: u64,
    /// Bytes of the volume's journal.
    pub journal: u64,
    /// Files of bands when new, full, compacted, emptied and compacted; for bundles.
    pub bands: [Option<u64>; 5],
}

impl Measured {
    /// Bytes of storage that a full image may take.
    pub fn most_when_full(&self) -> u64 {
        self.in_use * FULL_PERCENT / 100
    }

    /// Bytes of storage that an emptied and compacted image may take: a new one whose journal has been written all over, and a
    /// small part of what was written.
    pub fn most_when_empty(&self) -> u64 {
        self.fresh + self.journal + self.written * LEFT_PER_MILLE / 1000
    }

    /// Whether it takes no more than it may.
    pub fn is_tight(&self) -> bool {
        self.full <= self.most_when_full() && self.compacted <= self.most_when_empty()
    }
}

/// Runs the protocol on a new image at `path`. Contents, and the structure of every layer, are checked before and after each
/// trim, compaction and, in a bundle, change of the size of bands.
pub fn run(path: &Path, case: &Case, progress: &dyn Progress) -> Result<Measured> {
    let journal = make(path, case)?;
    trim(&open(path, Access::ReadWrite)?, &Silent)?;
    let fresh = allocated(path)?;
    let mut bands = [bands_in(path); 5];
    progress.stage("fill and empty", ROUNDS * FILES);
    let mut random = Noise::new(case.seed);
    let mut sums = BTreeMap::new();
    let mut written = 0;
    for round in 0..ROUNDS {
        let image = open(path, Access::ReadWrite)?;
        // As attaching does it.
        trim(&image, &Silent)?;
        let volume = image.file_system_mut(None)?;
        let mut files: Vec<(u64, String)> = Vec::new();
        for number in 0..FILES {
            progress.check()?;
            progress.advance(1);
            let [least, most] = SIZES.map(|size| size / case.scale);
            let len = random.between(least, most);
            let name = format!("{round} {number}");
            sums.insert(name.clone(), write(&*volume, &name, len, &mut random)?);
            files.push((len, name));
            written += len;
        }
        if round + 1 < ROUNDS {
            files.sort();
            for (_, name) in files.into_iter().rev().take(DELETED) {
                volume.remove(volume.root(), &name)?;
                sums.remove(&name);
            }
        }
        volume.unmount()?;
    }
    let full = allocated(path)?;
    bands[1] = bands_in(path);
    let in_use = used(&open(path, Access::ReadOnly)?)?;
    sound(path, &sums)?;
    trim(&open(path, Access::ReadWrite)?, &Silent)?;
    sound(path, &sums)?;
    squeeze(path)?;
    sound(path, &sums)?;
    let full_compacted = allocated(path)?;
    bands[2] = bands_in(path);
    if case.format == Format::Udsb {
        other_bands(path)?;
        sound(path, &sums)?;
    }

    let image = open(path, Access::ReadWrite)?;
    let volume = image.file_system_mut(None)?;
    for name in sums.keys() {
        volume.remove(volume.root(), name)?;
    }
    volume.unmount()?;
    drop((volume, image));
    let emptied = allocated(path)?;
    bands[3] = bands_in(path);
    squeeze(path)?;
    sound(path, &BTreeMap::new())?;
    let compacted = allocated(path)?;
    bands[4] = bands_in(path);
    Ok(Measured { fresh, written, in_use, full, full_compacted, emptied, compacted, journal, bands })
}

fn secret() -> Secret {
    Secret::new(b"passphrase".to_vec())
}

/// Makes the image; returns how much of it is the journal's.
fn make(path: &Path, case: &Case) -> Result<u64> {
    let volume = NewVolume {
        layout: Layout::Gptspud,
        name: "Space".into(),
        format: case.file_system,
        block_size: None,
        source: Source::Empty,
    };
    let (key_bits, iterations) = (case.key_bits, Some(LEAST_ITERATIONS));
    let encryption = (key_bits > 0).then(|| Encryption { key_bits, iterations, ..Encryption::new(secret()) });
    let len = case.disk_len();
    let options =
        CreateOptions { format: case.format, len: Some(len), volume: Some(volume), encryption, ..CreateOptions::default() };
    let image = create(path, options, &Silent)?.image;
    let before = used(&image)?;
    // APFS has none.
    if case.file_system == NewFormat::HfsPlus {
        image.volumes().first().map_or(Ok(()), |volume| volume.enable_journal(None))?;
    }
    drop(image);
    Ok(used(&open(path, Access::ReadOnly)?)?.saturating_sub(before))
}

/// Bytes in use in the volume.
fn used(image: &Image) -> Result<u64> {
    let info = image.file_system(None)?.volume();
    Ok(info.total.saturating_sub(info.free))
}

fn open(path: &Path, access: Access) -> Result<Image> {
    let secret = secret();
    open::open(path, &OpenOptions { access, keys: Some(&secret as &dyn Keys), ..OpenOptions::default() })
}

fn allocated(path: &Path) -> Result<u64> {
    Ok(HostUsage::of(path, &Silent)?.allocated)
}

/// Files of bands, for a bundle.
fn bands_in(path: &Path) -> Option<u64> {
    std::fs::read_dir(path.join("bands")).ok().map(|bands| bands.count() as u64)
}

fn squeeze(path: &Path) -> Result<()> {
    let options = compact::Options { battery_allowed: true, ..compact::Options::default() };
    compact(&open(path, Access::ReadWrite)?, &options, &Silent).map(drop)
}

/// Gives a bundle twice the bands, and back.
fn other_bands(path: &Path) -> Result<()> {
    let secret = secret();
    let options = OpenOptions { keys: Some(&secret as &dyn Keys), ..OpenOptions::default() };
    let done = reband(path, Some(4 << 20), &options, &Silent)?;
    reband(path, Some(done.from), &options, &Silent).map(drop)
}

/// Writes a file of noise; returns its sum.
fn write(volume: &dyn FileSystemMut, name: &str, len: u64, random: &mut Noise) -> Result<[u8; 32]> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    random.fill(&mut bytes);
    let file = volume.create(volume.root(), name, &NewNode::new(NewKind::File))?;
    volume.write_all(file, &bytes)?;
    Ok(Sha256::digest(&bytes).into())
}

/// That the image is in order, and holds exactly these files.
fn sound(path: &Path, sums: &BTreeMap<String, [u8; 32]>) -> Result<()> {
    let secret = secret();
    check_fully(path, &OpenOptions { keys: Some(&secret as &dyn Keys), ..OpenOptions::default() }, &Silent)?;
    let volume = open(path, Access::ReadOnly)?.file_system(None)?;
    let mut left = sums.len();
    // The journal's own files are listed on volumes that have one.
    for entry in volume.entries(volume.root())?.into_iter().filter(|entry| !entry.name.starts_with(".journal")) {
        let file = volume.open(entry.attributes.id, Fork::Data)?;
        let (len, mut sum, mut at) = (file.info().len, Sha256::new(), 0);
        let mut buf = vec![0; 1 << 20];
        while at < len {
            let piece = (len - at).min(buf.len() as u64) as usize;
            file.read_at(at, &mut buf[..piece])?;
            sum.update(&buf[..piece]);
            at += piece as u64;
        }
        if sums.get(&entry.name) != Some(&sum.finalize().into()) {
            return Err(Error::new(Kind::Corrupt, LAYER, "a file is not what was written").named(entry.name));
        }
        left -= 1;
    }
    if left == 0 { Ok(()) } else { Err(Error::new(Kind::Corrupt, LAYER, format!("{left} files are missing"))) }
}
