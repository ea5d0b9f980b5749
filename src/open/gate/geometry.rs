//! Evidence about the geometry of a disk: its partition map, the backup map, volumes and their
//! alternate headers, and the files of a bundle.

use std::fmt;
use std::sync::Arc;

use super::quick_check::NodeLimit;
use crate::decision::{CopyChoice, Undecided};
use crate::device::{BlockDevice, CowDevice};
use crate::fs::hfsplus::{self, HfsPlus};
use crate::fs::{FileSystem, LockedVolume};
use crate::open::{LAYER, OpenOptions, Volume, contents, volume_key};
use crate::partition::{self, Scheme, gpt};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::size::counted;
use crate::{Error, Kind, Result};

/// Memory for the changes when a partition map is tried out, in bytes.
const TRIAL: u64 = 16 << 20;

/// The extent of the check of each volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The first part, with a bounded number of reads.
    Quick,
    /// All of it.
    Full,
}

/// The result of one comparison under an interpretation of the stored bytes. Whether it supports
/// or contradicts the interpretation follows from its values ([`Fact::holds`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The length that the partition map tells, and the length of the disk, in bytes.
    MapLength { recorded: u64, len: u64 },
    /// True if the backup of the map is at the place in the map.
    Backup { is_found: bool },
    /// The reason why the map cannot be used.
    MapUnusable(String),
    /// The description of a partition that extends past the end of the disk.
    PartitionCut(String),
    /// The reason why no disk or no volume can be read.
    Unreadable(String),
    /// The reason why a volume cannot be read.
    VolumeUnreadable { volume: String, why: String },
    /// The length that a volume tells, and the space that it has, in bytes. `fits` is false if it
    /// is too long, or too short for a disk that it has to itself.
    VolumeLength {
        volume: String,
        recorded: u64,
        room: u64,
        fits: bool,
    },
    /// The reason why a volume cannot be checked.
    VolumeUnchecked { volume: String, why: String },
    /// The number of damages and warnings that the check of a volume found.
    VolumeChecked { volume: String, problems: u64 },
    /// The number of band files that extend past the end of the disk.
    BandsPastEnd(usize),
    /// The number of files within the disk that are longer than a band.
    LongBands(usize),
}

impl Fact {
    /// Returns true if the comparison supports the interpretation.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::MapLength { recorded, len } => recorded == len,
            Self::Backup { is_found } => *is_found,
            Self::VolumeLength { fits, .. } => *fits,
            Self::VolumeChecked { problems, .. } => *problems == 0,
            Self::MapUnusable(_)
            | Self::PartitionCut(_)
            | Self::Unreadable(_)
            | Self::VolumeUnreadable { .. }
            | Self::VolumeUnchecked { .. }
            | Self::BandsPastEnd(_)
            | Self::LongBands(_) => false,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MapLength { recorded, len } if recorded == len => {
                f.write_str("the map records this length")
            }
            Self::MapLength { recorded, .. } => write!(f, "the map records {recorded} bytes"),
            Self::Backup { is_found: true } => {
                f.write_str("the backup of the map is at its recorded place")
            }
            Self::Backup { is_found: false } => {
                f.write_str("the backup of the map is not at its recorded place")
            }
            Self::MapUnusable(why) => write!(f, "the map cannot be used ({why})"),
            Self::PartitionCut(what) | Self::Unreadable(what) => f.write_str(what),
            Self::VolumeUnreadable { volume, why } => write!(f, "{volume} cannot be read ({why})"),
            Self::VolumeLength {
                volume, fits: true, ..
            } => write!(f, "{volume} fits in it"),
            Self::VolumeLength {
                volume,
                recorded,
                room,
                ..
            } => write!(
                f,
                "{volume} records {recorded} bytes and has room for {room}"
            ),
            Self::VolumeUnchecked { volume, why } => {
                write!(f, "{volume} cannot be checked ({why})")
            }
            Self::VolumeChecked {
                volume,
                problems: 0,
            } => write!(f, "{volume} has no problems"),
            Self::VolumeChecked { volume, problems } => {
                write!(
                    f,
                    "{volume} has {}",
                    counted(*problems, "problem", "problems")
                )
            }
            Self::BandsPastEnd(bands) => {
                write!(
                    f,
                    "{} past the end of the disk",
                    counted(*bands as u64, "band", "bands")
                )
            }
            Self::LongBands(files) => {
                write!(
                    f,
                    "{} longer than a band",
                    counted(*files as u64, "file", "files")
                )
            }
        }
    }
}

/// All facts about one interpretation of the stored bytes.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    facts: Vec<Fact>,
}

impl Evidence {
    pub(crate) fn add(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// Returns the facts that support the interpretation.
    pub(crate) fn support(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(|fact| fact.holds())
    }

    /// Returns the facts that contradict the interpretation.
    pub(crate) fn against(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(|fact| !fact.holds())
    }

    /// Returns true if independent sources support the interpretation and none contradicts it.
    pub(crate) fn is_consistent(&self) -> bool {
        self.support().next().is_some() && !self.is_contradicted()
    }

    /// Returns true if a source contradicts the interpretation.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.against().next().is_some()
    }

    /// Returns true if independent sources support the interpretation, and nothing contradicts it
    /// except bands past the end of the disk, and files that are longer than a band.
    pub(crate) fn is_consistent_but_for_leftovers(&self) -> bool {
        self.support().next().is_some()
            && self
                .against()
                .all(|fact| matches!(fact, Fact::BandsPastEnd(_) | Fact::LongBands(_)))
    }

    /// Returns true if nothing contradicts the interpretation except that the disk is longer than the
    /// map says, as an interrupted growth leaves it: the map is whole at its length, and a volume is
    /// sound.
    pub(crate) fn is_consistent_but_for_growth(&self) -> bool {
        let is_growth =
            |fact: &Fact| matches!(fact, Fact::MapLength { recorded, len } if recorded < len);
        self.has_sound_volume()
            && self.facts.contains(&Fact::Backup { is_found: true })
            && self.against().all(is_growth)
    }

    /// Returns true if the check of a volume found no problem.
    pub(crate) fn has_sound_volume(&self) -> bool {
        self.facts
            .iter()
            .any(|fact| matches!(fact, Fact::VolumeChecked { problems: 0, .. }))
    }

    /// Returns all evidence as one clause.
    pub(crate) fn description(&self) -> String {
        let joined = |facts: &mut dyn Iterator<Item = &Fact>| {
            facts
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (support, against) = (joined(&mut self.support()), joined(&mut self.against()));
        let support = if support.is_empty() {
            "no evidence for it".to_owned()
        } else {
            support
        };
        if against.is_empty() {
            support
        } else {
            format!("{support}; against it: {against}")
        }
    }
}
/// Returns true if a quick check of the partition map does not contradict the length of the disk.
pub(crate) fn is_plausible(disk: &dyn BlockDevice) -> Result<bool> {
    if gpt::recorded_len(disk)?.is_some_and(|recorded| recorded > disk.info().len) {
        return Ok(false);
    }
    match partition::probe(disk) {
        Ok(Some(map)) => Ok(map
            .problems
            .iter()
            .all(|problem| problem.kind() != Kind::OutOfRange)),
        Ok(None) => Ok(true),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(_) => Ok(true),
    }
}

/// Returns `disk` as it will be once interrupted changes of its HFS+ volumes are finished, in memory:
/// a pending journal is replayed, and the alternate header is at the end. What cannot be finished stays
/// as it is.
pub(crate) fn recovered(disk: &Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    let tried: Arc<dyn BlockDevice> = Arc::new(CowDevice::new(disk.clone(), TRIAL));
    let recover = || -> Result<bool> {
        let mut is_changed = false;
        for volume in contents::find(&tried)?.1 {
            if volume.format.is_hfs_plus()
                && !HfsPlus::open(volume.device().clone())?.volume().clean
            {
                volume.replay_journal()?;
                is_changed = true;
            }
            is_changed |= volume.format.is_hfs_plus() && hfsplus::move_alternate(volume.device())?;
        }
        Ok(is_changed)
    };
    match recover() {
        Ok(true) => Ok(tried),
        Err(error) if error.io_kind().is_some() => Err(error),
        Ok(false) | Err(_) => Ok(disk.clone()),
    }
}

/// Collects all evidence on a disk about its length and contents. All volumes are checked, after
/// their journals are replayed in memory.
pub(crate) fn of_disk(
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    depth: Depth,
    progress: &dyn Progress,
) -> Result<Evidence> {
    let disk = &recovered(disk)?;
    let mut found = Evidence::default();
    let len = disk.info().len;
    let recorded = gpt::recorded_len(&**disk)?;
    if let Some(recorded) = recorded {
        found.add(Fact::MapLength { recorded, len });
        if recorded <= len {
            let is_found = gpt::are_copies_whole(&**disk)? == Some(true);
            found.add(Fact::Backup { is_found });
        }
    }
    let mut is_map = false;
    let contents = contents::find_with(disk, |search| {
        partition::probe_with(&**disk, search).inspect_err(|_| is_map = true)
    });
    let (map, volumes) = match contents {
        Ok(contents) => contents,
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(error) => {
            let why = error.message().to_owned();
            found.add(match is_map {
                true => Fact::MapUnusable(why),
                false => Fact::Unreadable(why),
            });
            return Ok(found);
        }
    };
    // Without the primary, the backup is looked for at the end of the disk only.
    if recorded.is_none() && map.as_ref().is_some_and(|map| map.scheme == Scheme::Gpt) {
        found.add(Fact::Backup { is_found: true });
    }
    if let Some(cut) = map
        .iter()
        .flat_map(|map| &map.problems)
        .find(|problem| problem.kind() == Kind::OutOfRange)
    {
        found.add(Fact::PartitionCut(cut.message().to_owned()));
    }
    for volume in &volumes {
        of_volume(volume, options, depth, &mut found, progress)?;
    }
    Ok(found)
}

/// Returns true for errors caused by the volume, not by this run.
fn is_evidence(error: &Error) -> bool {
    match error.kind() {
        Kind::Cancelled | Kind::WrongKey => false,
        Kind::Io => error.io_kind().is_none(),
        _ => true,
    }
}

fn of_volume(
    volume: &Volume,
    options: &OpenOptions<'_>,
    depth: Depth,
    found: &mut Evidence,
    progress: &dyn Progress,
) -> Result<()> {
    let (name, room) = (
        format!("{} on {}", volume.format, volume.place()),
        volume.range.end - volume.range.start,
    );
    let recorded = match volume.recorded_len() {
        Ok(recorded) => recorded,
        Err(error) if is_evidence(&error) => {
            found.add(Fact::VolumeUnreadable {
                volume: name,
                why: error.message().to_owned(),
            });
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Some(recorded) = recorded else {
        return Ok(());
    };
    // Without a partition map, the volume is as long as the disk, except for a partial last block.
    let max_left = if volume.partition.is_none() {
        64 << 10
    } else {
        u64::MAX
    };
    let fits = recorded <= room && room - recorded < max_left;
    found.add(Fact::VolumeLength {
        volume: name.clone(),
        recorded,
        room,
        fits,
    });
    if !fits || volume.format.is_foreign() {
        return Ok(());
    }
    let mut problems = Problems::default();
    let keys = options.keys.filter(|_| depth == Depth::Full);
    let key = |locked: &LockedVolume| volume_key(locked, keys);
    let budget = NodeLimit::new();
    let progress: &dyn Progress = match depth {
        Depth::Quick => &budget,
        Depth::Full => progress,
    };
    let device = volume.device().clone();
    let mut add = |found: Vec<Problem>| {
        found
            .into_iter()
            .for_each(|problem| problems.add(problem.severity, problem.error))
    };
    let checked = match depth {
        _ if volume.format.is_container() => volume
            .container()
            .and_then(|found| found.check(&volume.place(), &key, &mut problems, progress))
            .map(drop),
        Depth::Quick => hfsplus::check_within(device, progress).map(&mut add),
        Depth::Full => hfsplus::check(device, progress).map(&mut add),
    };
    match checked {
        Err(error) if error.kind() == Kind::Cancelled && depth == Depth::Quick => {}
        Ok(()) => {}
        Err(error) if is_evidence(&error) => {
            found.add(Fact::VolumeUnchecked {
                volume: name,
                why: error.message().to_owned(),
            });
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    // A missing alternate header is only a warning, but the best sign that the size or the band
    // size is wrong.
    let wrong = problems.count(Severity::Damage) + problems.count(Severity::Warning);
    found.add(Fact::VolumeChecked {
        volume: name,
        problems: wrong,
    });
    Ok(())
}

/// Returns the error about a disagreement that only a repair resolves.
pub(in crate::open) fn repairable(what: impl Into<String>) -> Error {
    Undecided {
        what: what.into(),
        alternatives: Vec::new(),
    }
    .into_error(LAYER)
}

/// Decides which of two valid copies of a GPT that differ is correct: the only one with which all
/// volumes fit and pass their check. Fails with `undecided` if that is neither or both.
pub(crate) fn decide_map(
    disk: &Arc<dyn BlockDevice>,
    undecided: Error,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<CopyChoice> {
    let mut found = Vec::new();
    for which in [CopyChoice::Primary, CopyChoice::Alternate] {
        let tried: Arc<dyn BlockDevice> = Arc::new(CowDevice::new(disk.clone(), TRIAL));
        let applied = gpt::repair_with(&*tried, gpt::Search::Announced, Some(which));
        found.push(match applied {
            Ok(_) => Some(of_disk(&tried, options, Depth::Full, progress)?),
            Err(error) if error.kind() == Kind::Io => return Err(error),
            Err(_) => None,
        });
    }
    // The map itself supports each of them, so support by a volume is required too.
    let is_chosen = |one: &Option<Evidence>, other: &Option<Evidence>| {
        one.as_ref()
            .is_some_and(|one| one.is_consistent() && one.has_sound_volume())
            && other.as_ref().is_none_or(Evidence::is_contradicted)
    };
    match found.as_slice() {
        [primary, alternate] if is_chosen(primary, alternate) => Ok(CopyChoice::Primary),
        [primary, alternate] if is_chosen(alternate, primary) => Ok(CopyChoice::Alternate),
        _ => Err(undecided),
    }
}
