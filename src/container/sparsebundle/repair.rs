//! Repair of a bundle: its property lists, and files that are not part of the disk.
//!
//! If the lists disagree, the choice depends on the contents of the disk, see `ops::repair`.

use std::cmp::Ordering;
use std::fmt;

use super::band_rules::{BandRules, spelled_otherwise};
use super::plist::{BACKUP, INFO, Info as BundleGeometry, InfoError};
use super::token::encryption;
use super::{BAND_SIZES, BANDS, BandIndex, LAYER, LOCK, MAPPED, TOKEN, read_plist};
use crate::decision::CopyChoice;
use crate::device::{AfterDiscard, BlockDeviceExt};
use crate::progress::Progress;
use crate::size::{counted, to_usize};
use crate::store::{Guard, Lock, Open, Put, Store};
use crate::{Error, Kind, Result};

/// Bytes compared at a time.
const PIECE: usize = 1 << 20;
/// Bytes of the largest cipher block.
const LARGEST_GRAIN: u64 = 4096;
/// Maximum number of steps of one plan; the rest is left to the next plan.
const MAX_STEPS: usize = 65_536;

/// State of a property list.
#[derive(Debug)]
pub enum ListState {
    /// A valid list.
    Whole(BundleGeometry),
    /// The file is missing, or is not a property list with all keys.
    Unreadable(Error),
    /// A list with invalid or unsupported values.
    Refused(Error),
    /// The bands are of two sizes, see [`Bundle::is_between`](super::Bundle::is_between).
    Between(Error),
}

impl ListState {
    /// Returns the properties of a valid list.
    pub fn geometry(&self) -> Option<BundleGeometry> {
        match self {
            Self::Whole(geometry) => Some(*geometry),
            _ => None,
        }
    }
}

/// Reads `Info.plist`, or `Info.bckup` for [`CopyChoice::Alternate`]. A read error is no evidence
/// about the list, so it is returned.
pub fn listed(store: &dyn Store, which: CopyChoice) -> Result<ListState> {
    Ok(match read_plist(store, name_of(which)) {
        Ok(geometry) => ListState::Whole(geometry),
        Err(InfoError::Unreadable(error)) => ListState::Unreadable(error),
        Err(InfoError::Refused(error)) if error.kind() == Kind::Io => return Err(error),
        Err(InfoError::Refused(error)) => ListState::Refused(error),
        Err(InfoError::Rebanding(error)) => ListState::Between(error),
    })
}

/// Returns the file name of a list.
pub const fn name_of(which: CopyChoice) -> &'static str {
    match which {
        CopyChoice::Primary => INFO,
        CopyChoice::Alternate => BACKUP,
    }
}

/// Makes both lists contain `geometry`. A list that differs is overwritten with the bytes of the other
/// one, if that matches. Returns a description of each step.
pub fn put_lists(store: &dyn Store, geometry: BundleGeometry) -> Result<Vec<String>> {
    let says = |which| listed(store, which).map(|listed| listed.geometry() == Some(geometry));
    let (primary, alternate) = (says(CopyChoice::Primary)?, says(CopyChoice::Alternate)?);
    let right = match (primary, alternate) {
        (true, _) => Some(CopyChoice::Primary),
        (false, true) => Some(CopyChoice::Alternate),
        (false, false) => None,
    };
    let mut steps = Vec::new();
    // The copy first, as in a resize.
    for (which, is_right) in [
        (CopyChoice::Alternate, alternate),
        (CopyChoice::Primary, primary),
    ] {
        if is_right {
            continue;
        }
        let name = name_of(which);
        match right.map(name_of) {
            Some(from) => {
                copy_list(store, from, name)?;
                steps.push(format!("{name} is restored from {from}"));
            }
            None => {
                store.put(name, geometry.to_xml().as_bytes(), Put::Replace)?;
                store.sync()?;
                steps.push(format!(
                    "{name} is rewritten with size {} and band-size {}",
                    geometry.size, geometry.band_size
                ));
            }
        }
    }
    Ok(steps)
}

fn copy_list(store: &dyn Store, from: &'static str, to: &str) -> Result<()> {
    let list = store
        .open(from, Open::Read)?
        .ok_or_else(|| Error::not_found(LAYER, from))?;
    // Its length was checked when it was read.
    let bytes = list.read_vec(0, to_usize(list.info().len))?;
    store.put(to, &bytes, Put::Replace)?;
    store.sync()
}

/// Returns the number and the length in bytes of each band that has a file.
pub(crate) fn band_lens(store: &dyn Store, progress: &dyn Progress) -> Result<Vec<(u64, u64)>> {
    let mut lens = Vec::new();
    store.list(BANDS, &mut |entry| {
        progress.check()?;
        if let Some(index) = BandIndex::from_name(BANDS, entry.name)
            && let Some(meta) = entry.meta()?
        {
            lens.push((index.0, meta.len));
        }
        Ok(())
    })?;
    Ok(lens)
}

/// Returns the length of files that are longer than a band, if it may be the band size: several have
/// it, or it is a usual one. What a single file holds past the end of its band is ignored, as by macOS.
pub(crate) fn band_size_by_lengths(band_size: u64, lens: impl Iterator<Item = u64>) -> Option<u64> {
    let (longest, count) = lens.fold((0, 0), longer);
    let is_longer = longest > band_size.next_multiple_of(LARGEST_GRAIN);
    (is_longer && longest.is_multiple_of(512) && (is_usual(longest) || count > 1))
        .then_some(longest)
}

/// Returns another band size that the lengths of files suggest: as
/// [`band_size_by_lengths`], or a usual one that several files have as their length, and none is
/// longer. Bands that were never written to their ends have such lengths too.
pub(crate) fn other_band_size(band_size: u64, lens: &[u64]) -> Option<u64> {
    let (longest, count) = lens.iter().copied().fold((0, 0), longer);
    let is_shorter = longest < band_size && is_usual(longest) && count > 1;
    band_size_by_lengths(band_size, lens.iter().copied()).or(is_shorter.then_some(longest))
}

fn is_usual(band_size: u64) -> bool {
    band_size.is_power_of_two() && BAND_SIZES.contains(&band_size)
}

/// Returns the lengths of the first bands, as far as they have files.
pub(crate) fn first_band_lens(store: &dyn Store) -> Result<Vec<u64>> {
    let len = |index| {
        let meta = store.stat(&BandIndex(index).name()).transpose()?;
        Some(meta.map(|meta| meta.len))
    };
    (0..4).filter_map(len).collect()
}

/// Counts a file of `len` bytes among those of the greatest length so far.
fn longer((longest, count): (u64, u64), len: u64) -> (u64, u64) {
    match len.cmp(&longest) {
        Ordering::Greater => (len, 1),
        Ordering::Equal => (longest, count + 1),
        Ordering::Less => (longest, count),
    }
}

#[derive(Debug)]
enum RepairStep {
    /// Removes a file that is not part of the disk.
    Remove(String),
    /// Truncates a file to the end of its band or of the disk.
    Cut(String, u64),
    /// Renames a band file to its canonical name.
    Rename(String, String),
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove(name) => {
                write!(
                    f,
                    "{name} is moved to the quarantine: it is not part of the disk"
                )
            }
            Self::Cut(name, len) => {
                write!(
                    f,
                    "{name} is truncated to {len} bytes, the length of its band"
                )
            }
            Self::Rename(from, to) => write!(f, "{from} is renamed to {to}"),
        }
    }
}

/// Result of a repair of a bundle.
#[derive(Debug, Default)]
pub struct Repaired {
    /// A sentence for each step.
    pub steps: Vec<String>,
    /// Problems that are not repaired, because the correct state is uncertain.
    pub refused: Vec<Error>,
}

/// Repairs the files of the bundle in `store`, durably, whose lists contain `geometry`. `is_disk_whole`
/// states that no data of the disk is past its end or past the end of a band, so that the lists are
/// correct and such data is left over. The caller must hold the [`locks`] of the
/// bundle.
pub fn repair(
    store: &dyn Store,
    geometry: BundleGeometry,
    is_disk_whole: bool,
    progress: &dyn Progress,
) -> Result<Repaired> {
    let mut steps = Vec::new();
    loop {
        let plan = plan(store, geometry, is_disk_whole, progress)?;
        plan.apply(store, progress)?;
        steps.extend(plan.steps.iter().map(ToString::to_string));
        // The number of steps in memory is bounded, that of leftovers is not.
        if plan.steps.len() < MAX_STEPS {
            let refused = plan.refused;
            return Ok(Repaired { steps, refused });
        }
    }
}

/// Planned steps: files must not be removed while they are listed.
#[derive(Debug, Default)]
struct RepairPlan {
    steps: Vec<RepairStep>,
    refused: Vec<Error>,
}

fn plan(
    store: &dyn Store,
    geometry: BundleGeometry,
    is_disk_whole: bool,
    progress: &dyn Progress,
) -> Result<RepairPlan> {
    let mut repair = RepairPlan::default();
    progress.stage("check", 0);
    let grain = encryption(store)?.map_or(1, |header| u64::from(header.describe().block));
    let rules = BandRules {
        info: geometry,
        grain,
    };
    let mut leftovers = Vec::new();
    store.list(BANDS, &mut |entry| {
        progress.check()?;
        progress.advance(1);
        let Some(index) = BandIndex::from_name(BANDS, entry.name) else {
            return plan_name(store, &rules, entry.name, &mut repair);
        };
        let Some(meta) = entry.meta()? else {
            return Ok(());
        };
        let most = rules.most(index);
        if index.0 >= rules.count() {
            push(&mut leftovers, RepairStep::Remove(entry.name.to_owned()));
        } else if meta.len > most {
            push(&mut leftovers, RepairStep::Cut(entry.name.to_owned(), most));
        }
        Ok(())
    })?;
    store.list(MAPPED, &mut |entry| {
        progress.check()?;
        let index = BandIndex::from_name(MAPPED, entry.name);
        let leftover = match index {
            Some(index) => index.0 >= rules.count() || store.stat(&index.name())?.is_none(),
            None => false,
        };
        if leftover {
            push(&mut leftovers, RepairStep::Remove(entry.name.to_owned()));
        }
        Ok(())
    })?;
    match leftovers.len() {
        0 => {}
        _ if is_disk_whole => repair.steps.append(&mut leftovers),
        n => repair.refuse(
            INFO,
            format!(
                "{} past the end of the disk, and so does a volume: the size may be wrong",
                counted(n as u64, "file reaches", "files reach")
            ),
        ),
    }
    Ok(repair)
}

fn push(steps: &mut Vec<RepairStep>, step: RepairStep) {
    if steps.len() < MAX_STEPS {
        steps.push(step);
    }
}

/// Plans the repair of a name in `bands/` that is not a valid band name. It is certainly a band if
/// that band is missing, because macOS on a case-insensitive file system would have read it.
fn plan_name(
    store: &dyn Store,
    rules: &BandRules,
    name: &str,
    repair: &mut RepairPlan,
) -> Result<()> {
    let Some(index) = spelled_otherwise(name)
        .filter(|index| name[BANDS.len()..].eq_ignore_ascii_case(&format!("{:x}", index.0)))
    else {
        if super::band_rules::check_name(name).is_some() {
            repair.refuse(name, "not a band; its purpose is unknown");
        }
        return Ok(());
    };
    let right = index.name();
    let len = store.stat(name)?.map_or(0, |meta| meta.len);
    let there = store.stat(&right)?.map(|meta| meta.len);
    if index.0 < rules.count() && len <= rules.most(index) && there.is_none() {
        push(
            &mut repair.steps,
            RepairStep::Rename(name.to_owned(), right),
        );
    } else if there == Some(len) && are_equal(store, name, &right)? {
        push(&mut repair.steps, RepairStep::Remove(name.to_owned()));
    } else {
        repair.refuse(
            name,
            format!("could be {right}, which already exists or has a different length"),
        );
    }
    Ok(())
}

/// Returns true if two files of the same length have the same contents.
fn are_equal(store: &dyn Store, one: &str, other: &str) -> Result<bool> {
    let (Some(one), Some(other)) = (store.open(one, Open::Read)?, store.open(other, Open::Read)?)
    else {
        return Ok(false);
    };
    let len = one.info().len;
    for at in (0..len).step_by(PIECE) {
        let piece = PIECE.min(to_usize(len - at));
        if one.read_vec(at, piece)? != other.read_vec(at, piece)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl RepairPlan {
    fn refuse(&mut self, name: &str, why: impl Into<std::borrow::Cow<'static, str>>) {
        if self.refused.len() < MAX_STEPS {
            self.refused
                .push(Error::new(Kind::Corrupt, LAYER, why).named(name));
        }
    }

    fn apply(&self, store: &dyn Store, progress: &dyn Progress) -> Result<()> {
        progress.stage("repair", 0);
        for step in &self.steps {
            progress.check()?;
            progress.advance(1);
            match step {
                RepairStep::Remove(name) => drop(store.remove(name)?),
                RepairStep::Cut(name, len) => {
                    if let Some(band) = store.open(name, Open::Write)? {
                        band.set_len(*len, AfterDiscard::Any)?;
                        band.flush()?;
                    }
                }
                RepairStep::Rename(from, to) => store.rename(from, to)?,
            }
        }
        store.sync()
    }
}

/// Acquires the locks for a repair, even if the bundle does not open.
pub fn locks(store: &dyn Store) -> Result<[Guard; 2]> {
    super::check_changeable(store)?;
    Ok([
        store.lock(LOCK, Lock::Exclusive)?,
        store.lock(TOKEN, Lock::Exclusive)?,
    ])
}
