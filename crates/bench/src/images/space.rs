//! R3: five rounds of files written, the largest of each but the last removed, then all of them;
//! what the image takes at each point. After Howard Oakley's measurements of 21 October 2024, who
//! did it with 125 GB, 160 files a round and macOS.

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::device::Access;
use bandsaw::fs::{FileSystemExt, Fork};
use bandsaw::open::{Keys, OpenOptions};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::reband::reband;
use bandsaw::ops::trim::{check_fully, trim};
use bandsaw::progress::{Progress, Within};
use bandsaw::{Error, Kind as ErrorKind, Result};

use super::kind::{Kind, Via};
use super::protocol::Walk;
use super::subject::{Subject, secret};
use crate::contents::Contents;
use crate::place::{Caches, Cooled};
use crate::plan::{Plan, PlannedFile, bytes_of};
use crate::report::{Process, Series, Settings};
use crate::sample::Sample;

const LAYER: &str = "space protocol";
/// Bytes of the article's image.
pub(super) const DISK: u64 = 125_000_000_000;
const ROUNDS: u32 = 5;
/// One file of so many is removed after a round, the largest: 40 of 160.
const REMOVED: usize = 4;
/// How often an emptied image is attached anew before what it takes counts.
const ATTACHED: u32 = 3;
/// What may be left of all bytes written when everything is deleted: 0.2 %.
const LEFT_PER_MILLE: u64 = 2;
/// What a full image may take of the bytes in use: 1.03.
const FULL_PERCENT: u64 = 103;
const REQUEST: u64 = 1 << 20;

/// The files of a round, which have numbers of their own, and after which the largest of them go.
fn round(files: &[PlannedFile], round: u32) -> (Vec<PlannedFile>, Vec<PlannedFile>) {
    let (count, sets) = (
        files.len() as u32,
        files.iter().map(|file| file.set).max().unwrap_or(1),
    );
    let of_round = |file: &PlannedFile| PlannedFile {
        set: file.set + round * sets,
        number: file.number + round * count,
        size: file.size,
    };
    let files: Vec<_> = files.iter().map(of_round).collect();
    let mut largest = files.clone();
    largest.sort_by_key(|file| Reverse(file.size));
    largest.truncate(if round + 1 < ROUNDS {
        files.len() / REMOVED
    } else {
        0
    });
    (files, largest)
}

/// Bytes that are in an image at most, and bytes that are written in all.
pub(super) fn bytes(files: &[PlannedFile]) -> (u64, u64) {
    let (mut held, mut most) = (0, 0);
    for n in 0..ROUNDS {
        held += bytes_of(files);
        most = most.max(held);
        held -= bytes_of(&round(files, n).1);
    }
    (most, u64::from(ROUNDS) * bytes_of(files))
}

/// What five rounds came to.
struct Filled {
    /// What is in the image.
    left: Vec<PlannedFile>,
    samples: Vec<Sample>,
    used: Option<Process>,
}

impl Walk<'_> {
    /// R3: all rounds, and all files removed.
    pub(super) fn rounds(&mut self) -> Result<Vec<Series>> {
        let filled = self.fill(false)?;
        if self.settings.verify {
            self.sound(&filled.left)?;
        }
        self.wind_up(&filled.left, ATTACHED)?;
        if self.settings.verify {
            self.sound(&[])?;
        }
        Ok(vec![self.series(
            None,
            Cooled::Kept,
            filled.samples,
            filled.used,
        )])
    }

    /// All rounds; `anew`: the image is attached anew after each, which the article did not do.
    fn fill(&mut self, anew: bool) -> Result<Filled> {
        let mut attached = self.subject.attach()?;
        let (mut left, mut samples) = (Vec::new(), Vec::new());
        for n in 0..ROUNDS {
            let (files, largest) = round(self.files, n);
            samples.extend(self.write(&attached, &files)?);
            if !largest.is_empty() {
                self.note(&format!("written, {}", n + 1), false)?;
                self.remove(&attached, &largest)?;
                self.note(&format!("removed, {}", n + 1), false)?;
            }
            if anew {
                attached.detach()?;
                attached = self.subject.attach()?;
            }
            left.extend(files.into_iter().filter(|file| !largest.contains(file)));
        }
        let used = attached.detach()?;
        self.note("full", true)?;
        Ok(Filled {
            left,
            samples,
            used,
        })
    }

    /// That every layer of the image is in order, and these files are in it as they were written.
    fn sound(&self, files: &[PlannedFile]) -> Result<()> {
        if self.subject.kind.is_none() {
            return Ok(());
        }
        let secret = secret();
        check_fully(
            &self.subject.image(),
            &OpenOptions {
                keys: Some(&secret as &dyn Keys),
                ..OpenOptions::default()
            },
            &Within(self.progress),
        )?;
        let volume = self.subject.look_inside()?;
        let mut contents = Contents::new(
            self.settings.plan.seed,
            REQUEST as usize,
            self.settings.compressible,
        );
        let mut buf = vec![0; REQUEST as usize];
        self.progress.stage("compare", bytes_of(files));
        // The journal's own files are listed on volumes that have one.
        let listed = volume
            .entries(volume.root())?
            .into_iter()
            .filter(|entry| !entry.name.starts_with(".journal"));
        if listed.count() != files.len() {
            return Err(Error::new(
                ErrorKind::Corrupt,
                LAYER,
                "the volume lists files that were not written, or not all that were",
            ));
        }
        for planned in files {
            let found = volume.lookup(volume.root(), &planned.name())?;
            let found = found.ok_or_else(|| Error::not_found(LAYER, planned.name()))?;
            let file = volume.open(found.id, Fork::Data)?;
            if file.info().len != planned.size {
                return Err(
                    Error::new(ErrorKind::Corrupt, LAYER, "a file has another length")
                        .named(planned.name()),
                );
            }
            for at in (0..planned.size).step_by(buf.len()) {
                self.progress.check()?;
                let len = REQUEST.min(planned.size - at);
                let bytes = &mut buf[..len as usize];
                file.read_at(at, bytes)?;
                contents
                    .check(u64::from(planned.number), at, bytes)
                    .map_err(|error| error.named(planned.name()))?;
                self.progress.advance(len);
            }
        }
        Ok(())
    }

    /// Bytes of storage behind the image at a step.
    fn taken(&self, at: &str) -> u64 {
        self.space
            .iter()
            .rev()
            .find(|space| space.at == at)
            .map_or(0, |space| space.on_disk)
    }
}

/// What is measured, for the bounds that a kind of image has to keep.
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
    /// Of the order and contents of files.
    pub seed: u64,
}

impl Case {
    /// Every container that can be changed, plain and encrypted, with an HFS+ volume and with APFS.
    pub fn all(scale: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for file_system in [NewFormat::HfsPlus, NewFormat::Apfs] {
            for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
                all.extend([0, 256].map(|key_bits| Self {
                    format,
                    key_bits,
                    file_system,
                    scale,
                    seed: 1,
                }));
            }
        }
        all
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.key_bits > 0 { " encrypted" } else { "" };
        let file_system = if self.file_system == NewFormat::Apfs {
            "APFS"
        } else {
            "HFS+"
        };
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
    /// Everything deleted, and attached anew.
    pub emptied: u64,
    /// And compacted.
    pub compacted: u64,
    /// Bytes of the volume's journal; of APFS, of all areas that a new container has.
    pub journal: u64,
}

impl Measured {
    /// Bytes of storage that a full image may take.
    pub fn most_when_full(&self) -> u64 {
        self.in_use * FULL_PERCENT / 100
    }

    /// Bytes of storage that an emptied and compacted image may take: a new one whose journal has
    /// been written all over, and a small part of what was written.
    pub fn most_when_empty(&self) -> u64 {
        self.fresh + self.journal + self.written * LEFT_PER_MILLE / 1000
    }

    /// Returns whether it takes no more than it may.
    pub fn is_tight(&self) -> bool {
        self.full <= self.most_when_full() && self.compacted <= self.most_when_empty()
    }
}

/// Runs the protocol on a new image in `folder`, which is made; between rounds it is attached anew,
/// so that what was removed has come back. Contents, and the structure of every layer, are checked
/// before and after each trim, compaction and, in a bundle, change of the size of bands; none of
/// which the article did to a full image.
pub fn run(folder: &Path, case: &Case, progress: &dyn Progress) -> Result<Measured> {
    let Case {
        format,
        key_bits,
        file_system,
        scale,
        seed,
    } = *case;
    let plan = Plan {
        scale: 1.0 / scale.max(1) as f64,
        seed,
        ..Plan::default()
    };
    let (files, caches) = (plan.files()?, Caches::Keep);
    let settings = Settings {
        plan,
        request: REQUEST,
        caches,
        compressible: false,
        verify: true,
        pause: 0.0,
    };
    let kind = Some(Kind {
        format,
        key_bits,
        file_system,
        volume_key: false,
        via: Via::Library,
    });
    let subject = Subject {
        kind,
        band_size: None,
        folder: folder.to_owned(),
        caches,
        program: Path::new(""),
    };
    let len = (DISK / scale.max(1)).next_multiple_of(1 << 20);
    let mut walk = Walk {
        subject: &subject,
        settings: &settings,
        files: &files,
        len,
        progress,
        space: Vec::new(),
    };
    subject.create(len, progress)?;
    let journal = journal(&subject, file_system)?;
    trim(&subject.open(Access::ReadWrite)?, &Within(progress))?;
    walk.note("new", false)?;
    let filled = walk.fill(true)?;
    walk.sound(&filled.left)?;
    trim(&subject.open(Access::ReadWrite)?, &Within(progress))?;
    walk.sound(&filled.left)?;
    subject.compact(progress)?;
    walk.sound(&filled.left)?;
    walk.note("full, compacted", false)?;
    if format == Format::Udsb {
        other_bands(&subject.image(), progress)?;
        walk.sound(&filled.left)?;
    }
    walk.wind_up(&filled.left, ATTACHED)?;
    walk.sound(&[])?;
    Ok(Measured {
        fresh: walk.taken("new"),
        written: bytes(&files).1,
        in_use: walk
            .space
            .iter()
            .find(|space| space.at == "full")
            .and_then(|space| space.in_use)
            .unwrap_or(0),
        full: walk.taken("full"),
        full_compacted: walk.taken("full, compacted"),
        emptied: walk.taken("attached anew"),
        compacted: walk.taken("compacted"),
        journal,
    })
}

/// Gives an HFS+ volume a journal; how many bytes of the volume that takes. APFS has none, but
/// areas of its own that checkpoints are written to in turn.
fn journal(subject: &Subject<'_>, file_system: NewFormat) -> Result<u64> {
    if file_system != NewFormat::HfsPlus {
        let new = subject.look_inside()?.volume();
        return Ok(new.total.saturating_sub(new.free));
    }
    let free = || Ok::<u64, Error>(subject.look_inside()?.volume().free);
    let before = free()?;
    let image = subject.open(Access::ReadWrite)?;
    image
        .volumes()
        .first()
        .map_or(Ok(()), |volume| volume.enable_journal(None))?;
    drop(image);
    Ok(before.saturating_sub(free()?))
}

/// Gives a bundle twice the bands, and back.
fn other_bands(path: &Path, progress: &dyn Progress) -> Result<()> {
    let secret = secret();
    let options = OpenOptions {
        keys: Some(&secret as &dyn Keys),
        ..OpenOptions::default()
    };
    let done = reband(path, Some(4 << 20), &options, &Within(progress))?;
    reband(path, Some(done.from), &options, &Within(progress)).map(drop)
}

#[cfg(test)]
mod tests {
    use bandsaw::progress::Silent;

    use super::*;

    /// The article: 90 GB in 640 files when full, 265 GB written.
    #[test]
    fn rounds_are_those_that_were_published() {
        let files = Plan::default().files().unwrap();
        let (_, largest) = round(&files, 0);
        assert_eq!(largest.len(), 40);
        assert!(largest.iter().all(|file| file.size >= 600_000_000));
        assert!(round(&files, ROUNDS - 1).1.is_empty());
        let numbers: std::collections::HashSet<u32> = (0..ROUNDS)
            .flat_map(|n| round(&files, n).0)
            .map(|file| file.number)
            .collect();
        assert_eq!(numbers.len(), 800, "no two files are the same");
        assert_eq!(bytes(&files), (90_500_000_000, 266_500_000_000));
    }

    /// Whoever asks to stop is not kept waiting by the steps that they are not told of.
    #[test]
    fn every_step_can_be_stopped() {
        struct Stop;

        impl Progress for Stop {
            fn stage(&self, _name: &str, _total: u64) {}
            fn advance(&self, _n: u64) {}
            fn cancelled(&self) -> bool {
                true
            }
        }

        let folder = tempfile::tempdir().unwrap();
        let kind = Kind {
            format: Format::Udsb,
            key_bits: 0,
            file_system: NewFormat::HfsPlus,
            volume_key: false,
            via: Via::Library,
        };
        let image = folder.path().join("x");
        let subject = Subject {
            kind: Some(kind),
            band_size: None,
            folder: image,
            caches: Caches::Keep,
            program: Path::new(""),
        };
        subject.create(64 << 20, &Silent).unwrap();
        let stopped = |done: Result<()>| assert_eq!(done.unwrap_err().kind(), ErrorKind::Cancelled);
        stopped(subject.compact(&Stop).map(drop));
        stopped(other_bands(&subject.image(), &Stop));
        subject.compact(&Silent).unwrap();
        other_bands(&subject.image(), &Silent).unwrap();
    }
}
