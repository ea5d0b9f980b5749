//! R3: five rounds of files written, after each but the last the largest are removed, then all of
//! them; the size of the image on disk at each point. After Howard Oakley's measurements of 21
//! October 2024, made with 125 GB, 160 files per round and macOS.

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
use bandsaw::progress::{NestedProgress, Progress};
use bandsaw::{Error, Kind as ErrorKind, Result};

use super::kind::{Kind, Via};
use super::protocol::ProtocolRun;
use super::subject::{Subject, secret};
use crate::contents::Contents;
use crate::place::{CacheState, Caches};
use crate::plan::{Plan, PlannedFile, bytes_of};
use crate::report::{Process, Series, Settings};
use crate::sample::Sample;

const LAYER: &str = "space protocol";
/// Size of the article's image in bytes.
pub(super) const DISK: u64 = 125_000_000_000;
const ROUNDS: u32 = 5;
/// The largest files are removed after a round, one of this many: 40 of 160.
const REMOVED: usize = 4;
/// Number of times an emptied image is attached anew before it is measured.
const ATTACHED: u32 = 3;
/// Maximum size of an emptied image, as a share of all bytes written: 0.2 %.
const LEFT_PER_MILLE: u64 = 2;
/// Maximum size of a full image, as a share of the bytes in use: 1.03.
const FULL_PERCENT: u64 = 103;
const REQUEST: u64 = 1 << 20;

/// Returns the files of a round, which have numbers of their own, and the largest of them, which
/// are removed after it.
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

/// Returns the maximum bytes stored in an image, and the total bytes written.
pub(super) fn bytes(files: &[PlannedFile]) -> (u64, u64) {
    let (mut held, mut most) = (0, 0);
    for n in 0..ROUNDS {
        held += bytes_of(files);
        most = most.max(held);
        held -= bytes_of(&round(files, n).1);
    }
    (most, u64::from(ROUNDS) * bytes_of(files))
}

/// Result of the five rounds.
struct RoundResults {
    /// Files that remain in the image.
    left: Vec<PlannedFile>,
    samples: Vec<Sample>,
    used: Option<Process>,
}

impl ProtocolRun<'_> {
    /// R3: all rounds, then all files are removed.
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
            CacheState::Kept,
            filled.samples,
            filled.used,
        )])
    }

    /// Runs all rounds; with `anew`, the image is attached anew after each, unlike in the article.
    fn fill(&mut self, anew: bool) -> Result<RoundResults> {
        let mut attached = self.subject.attach()?;
        let (mut left, mut samples) = (Vec::new(), Vec::new());
        for n in 0..ROUNDS {
            let (files, largest) = round(self.files, n);
            samples.extend(self.write(&attached, &files)?);
            self.record_space_in_use(&format!("written, {}", n + 1), &attached)?;
            if !largest.is_empty() {
                self.remove(&attached, &largest)?;
                self.record_space_in_use(&format!("removed, {}", n + 1), &attached)?;
            }
            if anew {
                attached.detach()?;
                attached = self.subject.attach()?;
            }
            left.extend(files.into_iter().filter(|file| !largest.contains(file)));
        }
        let used = attached.detach()?;
        self.record_space("full", true)?;
        Ok(RoundResults {
            left,
            samples,
            used,
        })
    }

    /// Checks that every layer of the image is consistent, and that exactly these files are in it,
    /// unchanged.
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
            &NestedProgress(self.progress),
        )?;
        let volume = self.subject.look_inside()?;
        let mut contents = Contents::new(
            self.settings.plan.seed,
            REQUEST as usize,
            self.settings.compressible,
        );
        let mut buf = vec![0; REQUEST as usize];
        self.progress.stage("compare", bytes_of(files));
        // Volumes with a journal list the journal's files.
        let listed = volume
            .entries(volume.root())?
            .into_iter()
            .filter(|entry| !entry.name.starts_with(".journal"));
        if listed.count() != files.len() {
            return Err(Error::new(
                ErrorKind::Corrupt,
                LAYER,
                "the files of the volume differ from those written",
            ));
        }
        for planned in files {
            let found = volume.lookup(volume.root(), &planned.name())?;
            let found = found.ok_or_else(|| Error::not_found(LAYER, planned.name()))?;
            let file = volume.open(found.id, Fork::Data)?;
            if file.info().len != planned.size {
                return Err(
                    Error::new(ErrorKind::Corrupt, LAYER, "a file has the wrong length")
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

    /// Returns the image's size on disk in bytes at a step.
    fn taken(&self, at: &str) -> u64 {
        self.space
            .iter()
            .rev()
            .find(|space| space.at == at)
            .map_or(0, |space| space.on_disk)
    }
}

/// A kind of image whose bounds are tested.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Container format.
    pub format: Format,
    /// Bits of its AES key; 0 if it is not encrypted.
    pub key_bits: u32,
    /// File system of the image.
    pub file_system: NewFormat,
    /// Divisor of every size of the original.
    pub scale: u64,
    /// Seed for the order and contents of files.
    pub seed: u64,
}

impl Case {
    /// Returns every writable container, plain and encrypted, with HFS+ and with APFS.
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

/// Sizes of the image on disk at each point, and the sizes that bound them, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct SizeBounds {
    /// Size on disk of the formatted, trimmed and empty image.
    pub fresh: u64,
    /// Bytes written in all rounds.
    pub written: u64,
    /// Bytes in use after all rounds.
    pub in_use: u64,
    /// Size on disk after all rounds.
    pub full: u64,
    /// Size on disk after all rounds, a trim and a compaction.
    pub full_compacted: u64,
    /// Size on disk after all files were deleted and the image was attached anew.
    pub emptied: u64,
    /// Size on disk after deletion and compaction.
    pub compacted: u64,
    /// Bytes of the volume's journal; for APFS, bytes in use in a new container.
    pub journal: u64,
}

impl SizeBounds {
    /// Returns the maximum size on disk of a full image.
    pub fn max_when_full(&self) -> u64 {
        self.in_use * FULL_PERCENT / 100
    }

    /// Returns the maximum size on disk of an emptied and compacted image: that of a new one, a
    /// fully written journal, and a small share of the bytes written.
    pub fn max_when_empty(&self) -> u64 {
        self.fresh + self.journal + self.written * LEFT_PER_MILLE / 1000
    }

    /// Returns true if the image keeps both bounds.
    pub fn is_tight(&self) -> bool {
        self.full <= self.max_when_full() && self.compacted <= self.max_when_empty()
    }
}

/// Runs the protocol on a new image in `folder`, which is created; the image is attached anew
/// between rounds, so that deleted space is reclaimed. Contents, and the structure of every layer,
/// are checked before and after each trim, compaction and, in a bundle, change of the band size;
/// the article did none of these to a full image.
pub fn run(folder: &Path, case: &Case, progress: &dyn Progress) -> Result<SizeBounds> {
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
    let mut walk = ProtocolRun {
        subject: &subject,
        settings: &settings,
        files: &files,
        compression: None,
        round: 1,
        len,
        progress,
        space: Vec::new(),
    };
    subject.create(len, progress)?;
    let journal = journal(&subject, file_system)?;
    trim(
        &subject.open(Access::ReadWrite)?,
        Some(&secret()),
        &NestedProgress(progress),
    )?;
    walk.record_space("new", false)?;
    let filled = walk.fill(true)?;
    walk.sound(&filled.left)?;
    trim(
        &subject.open(Access::ReadWrite)?,
        Some(&secret()),
        &NestedProgress(progress),
    )?;
    walk.sound(&filled.left)?;
    subject.compact(progress)?;
    walk.sound(&filled.left)?;
    walk.record_space("full, compacted", false)?;
    if format == Format::Udsb {
        other_bands(&subject.image(), progress)?;
        walk.sound(&filled.left)?;
    }
    walk.wind_up(&filled.left, ATTACHED)?;
    walk.sound(&[])?;
    Ok(SizeBounds {
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

/// Enables the journal of an HFS+ volume; returns the bytes that it takes. APFS has none: its
/// checkpoint areas are counted instead.
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

/// Changes the band size of a bundle, and restores it.
fn other_bands(path: &Path, progress: &dyn Progress) -> Result<()> {
    let secret = secret();
    let options = OpenOptions {
        keys: Some(&secret as &dyn Keys),
        ..OpenOptions::default()
    };
    let done = reband(path, Some(4 << 20), &options, &NestedProgress(progress))?;
    reband(path, Some(done.from), &options, &NestedProgress(progress)).map(drop)
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

    /// Every step is cancellable, also those that do not report progress.
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
