//! Repair of the layers of an image from the outside in, each on the staged view before the next is
//! opened.

use std::sync::Arc;

use super::losses::VolumeLosses;
use super::orphan_decision::unit_kind;
use super::target::Target;
use super::{Options, Repaired, VOLUME};
use crate::container::raw::Raw;
use crate::container::{ContainerKind, Format, Orphans, asif, sparsebundle, sparseimage};
use crate::crypt;
use crate::decision::{Alternative, CopyChoice, OrphanChoice, Undecided};
use crate::device::{AfterDiscard, BlockDevice, ExtentKind};
use crate::fs::apfs::{Container, OlderCheckpoint};
use crate::fs::{LockedVolume, RepairStep, hfsplus};
use crate::open::compare_lists::{ListDecision, ListEvidence};
use crate::open::geometry::{self, Depth};
use crate::open::staged_image::StagedImage;
use crate::open::{self, OpenOptions, PlainFile, StoredImage, Volume};
use crate::partition::{self, Map, Resizable, gpt, gpt::Search};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::store::{Open, Staged};
use crate::{Error, Kind, Result};

const MIB: u64 = 1 << 20;
/// Layer name for steps of the partition map.
const GPT: &str = "GPT";
/// Least number of bytes by which a disk grows for a full volume.
const MIN_ROOM: u64 = 16 * MIB;
/// Type of free space in an Apple partition map.
const FREE: &str = "Apple_Free";

/// A repair in progress.
pub(super) struct LayerRepair<'a> {
    pub(super) target: &'a Target,
    pub(super) staged: &'a Staged,
    pub(super) options: &'a OpenOptions<'a>,
    pub(super) chosen: &'a Options<'a>,
    pub(super) progress: &'a dyn Progress,
    pub(super) done: Repaired,
    /// Problems of volumes before the repair.
    pub(super) found: Problems,
    /// Problems of volumes after the repair.
    pub(super) remaining: Vec<Problem>,
    /// The reasons why volumes, or parts of them, could not be checked.
    pub(super) unchecked: Vec<Error>,
    /// True if the volumes were found, checked and repaired as far as possible.
    pub(super) reached_volumes: bool,
    /// True if anything outside of volumes was changed.
    pub(super) changed_outside: bool,
    /// Disk offsets of the volumes that were repaired, whose losses are known.
    pub(super) rebuilt: Vec<u64>,
    /// The reason why nothing of the image can be repaired, if its format cannot be changed in place.
    pub(super) write_once: Option<Error>,
}

impl<'a> LayerRepair<'a> {
    pub(super) fn new(
        target: &'a Target,
        staged: &'a Staged,
        options: &'a OpenOptions<'a>,
        chosen: &'a Options<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        let (done, found, remaining) = (Repaired::default(), Problems::default(), Vec::new());
        Self {
            target,
            staged,
            options,
            chosen,
            progress,
            done,
            found,
            remaining,
            unchecked: Vec::new(),
            reached_volumes: false,
            changed_outside: false,
            rebuilt: Vec::new(),
            write_once: None,
        }
    }

    /// Performs all steps on the staged view. [`Kind::Undecided`] if they must not be written.
    pub(super) fn run(&mut self) -> Result<()> {
        if self.target.file.is_none() {
            return self.bundle();
        }
        let staged = StagedImage::of(self.staged, self.target.file)?;
        match staged.bytes() {
            StoredImage::File(file) if self.options.shadows.is_empty() => self.file(file),
            _ => self.map(&open::staged_disk(
                &self.target.path,
                &staged,
                self.options,
            )?),
        }
    }

    fn outside(&mut self, layer: &'static str, steps: Vec<String>) {
        self.changed_outside |= !steps.is_empty();
        self.done.add(layer, steps);
    }

    fn bundle(&mut self) -> Result<()> {
        const BUNDLE: &str = "sparse bundle";
        let question = ListEvidence {
            path: &self.target.path,
            store: self.staged,
            options: self.options,
            assume: &self.chosen.assume,
            temporary: &self.chosen.temporary,
            depth: Depth::Full,
            progress: self.progress,
        };
        let (geometry, is_whole) = match question.resolve()? {
            ListDecision::Geometry { geometry, is_whole } => (geometry, is_whole),
            ListDecision::Refused(error) => {
                self.done.refused.push(error);
                return Ok(());
            }
        };
        let steps = sparsebundle::put_lists(self.staged, geometry)?;
        self.outside(BUNDLE, steps);
        if is_whole {
            self.check_leftovers(geometry, BUNDLE)?;
        }
        let repaired = sparsebundle::repair(self.staged, geometry, is_whole, self.progress)?;
        self.outside(BUNDLE, repaired.steps);
        self.done.refused.extend(repaired.refused);
        let staged = StagedImage::of(self.staged, None)?;
        match open::staged_disk(&self.target.path, &staged, self.options) {
            Ok(disk) => self.map(&disk),
            // Reported with the refused repairs.
            Err(error) if error.kind() == Kind::Corrupt => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn file(&mut self, file: Arc<dyn BlockDevice>) -> Result<()> {
        if open::is_archive(&*file)? {
            let fixed = "an encrypted archive has no redundancy; get the file again";
            let refused = Error::unsupported("encrypted archive", fixed);
            self.write_once = Some(refused);
            return Ok(());
        }
        let PlainFile {
            device: plain,
            decrypted,
        } = open::unlocked(file.clone(), self.options)?;
        let format = self
            .options
            .image_format
            .map_or_else(|| open::detect_container(&*plain), Ok)?;
        let disk: Arc<dyn BlockDevice> = match format.container() {
            ContainerKind::SparseImage => {
                let repair = |orphans| sparseimage::repair(&plain, orphans);
                let steps = self.with_orphans(format, "sparse image", &repair);
                if !self.take_outside("sparse image", steps)? {
                    return Ok(());
                }
                Arc::new(sparseimage::SparseImage::open(plain)?)
            }
            ContainerKind::Asif => {
                let steps = self.decide_directory(&plain)?;
                self.take_outside("ASIF", Ok(steps))?;
                let progress = self.progress;
                let repair = |orphans| asif::repair(&plain, orphans, progress);
                let steps = self
                    .with_orphans(format, "ASIF", &repair)
                    .and_then(|mut steps| {
                        steps.extend(self.decide_unwritten()?);
                        Ok(steps)
                    });
                if !self.take_outside("ASIF", steps)? {
                    return Ok(());
                }
                let image = asif::Asif::open(plain)?;
                open::stands_alone(&image)?;
                Arc::new(image)
            }
            ContainerKind::Raw => {
                let steps = match decrypted {
                    Some(device) => self.encrypted_len(&file, &device),
                    None => Ok(Vec::new()),
                };
                self.take_outside("encrypted image", steps)?;
                let steps = raw_tail(&plain);
                if !self.take_outside("raw image", steps)? {
                    return Ok(());
                }
                Arc::new(Raw::new(plain))
            }
            ContainerKind::Udif | ContainerKind::Bundle => {
                let fixed = "a compressed image has no redundancy; get the file again";
                self.write_once = Some(Error::unsupported("udif", fixed));
                return Ok(());
            }
        };
        let lacks_start = !format.is_plain() && starts_with_hole(&*disk)?;
        self.map(&disk)?;
        if lacks_start && !starts_with_hole(&*disk)? {
            self.check_start(format)?;
        }
        Ok(())
    }

    /// Refuses to write a new band or chunk 0 of an image that stores others, unless the user assumes a
    /// copy: one of them is the first if the index is wrong.
    fn check_start(&self, format: Format) -> Result<()> {
        let assume = &self.chosen.assume;
        let is_map = self.done.steps.iter().any(|(layer, _)| *layer == GPT);
        let (key, chosen, copy) = if is_map {
            (
                "map",
                assume.map,
                "the partition map at the end of the disk",
            )
        } else {
            ("header", assume.header, "the alternate volume header")
        };
        // A choice about bands past the end of the disk concerns the first one as well.
        let removes = assume.orphans == Some(OrphanChoice::Remove);
        if chosen.is_some() || removes || assume.size.is_some() {
            return Ok(());
        }
        let unit = unit_kind(format).words().0;
        let evidence = format!("{copy} is restored; the other contents of the {unit} stay lost");
        let alternatives = vec![Alternative {
            assume: format!("{key}={}", CopyChoice::Alternate.name()),
            evidence,
        }];
        let what = format!(
            "{unit} 0, the start of the disk, is not stored, and the index may record another number \
             for it"
        );
        let layer = match format.has_bands() {
            true => "sparse image",
            false => "ASIF",
        };
        Err(Undecided { what, alternatives }.into_error(layer))
    }

    /// Corrects the length in the header of an encrypted raw image whose file stores more, if the contents
    /// agree with the stored length and not with the recorded one, or as the user assumes. Data past an
    /// assumed length is removed.
    fn encrypted_len(
        &self,
        file: &Arc<dyn BlockDevice>,
        device: &crypt::Device,
    ) -> Result<Vec<String>> {
        let recorded = device.info().len;
        let Some(stored) = device.stored_end() else {
            return Ok(Vec::new());
        };
        let assumed = self.chosen.assume.size;
        let len = match assumed {
            Some(len) if (recorded..=stored).contains(&len) => len,
            None if self.fits_stored_len(stored)? => stored,
            _ => return Ok(Vec::new()),
        };
        let mut steps = Vec::new();
        if len != recorded {
            device.set_len(len, AfterDiscard::Any)?;
            device.flush()?;
            steps.push(format!(
                "the header records {len} bytes of data, which the file stores"
            ));
        }
        let end = device.data_end();
        if assumed.is_some() && end < file.info().len {
            file.set_len(end, AfterDiscard::Any)?;
            file.flush()?;
            steps.push(format!(
                "the file is truncated to {end} bytes, the end of its data"
            ));
        }
        Ok(steps)
    }

    /// Returns true if the contents of an encrypted raw image contradict its length, and agree with
    /// `stored` bytes.
    fn fits_stored_len(&self, stored: u64) -> Result<bool> {
        let evidence = |store: &Staged, mode, len: Option<u64>| {
            let reading = self.options.reading();
            let options = if len.is_none() {
                &reading
            } else {
                self.options
            };
            let (plain, _) = self.plain(store, mode, options)?;
            len.map_or(Ok(()), |len| plain.set_len(len, AfterDiscard::Any))?;
            let disk: Arc<dyn BlockDevice> = Arc::new(Raw::new(plain));
            geometry::of_disk(&disk, self.options, Depth::Full, self.progress)
        };
        if !evidence(self.staged, Open::Read, None)?.is_contradicted() {
            return Ok(false);
        }
        let tried = Staged::new(Arc::new(self.staged.clone()), self.chosen.temporary.clone());
        Ok(evidence(&tried, Open::Write, Some(stored))?.is_consistent())
    }

    /// Performs the repairs of a file that keep its orphans, then decides about these. Returns the
    /// steps.
    fn with_orphans(
        &mut self,
        format: Format,
        layer: &'static str,
        repair: &dyn Fn(Orphans) -> Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        let mut steps = repair(Orphans::Keep)?;
        if self.decide_orphans(format, layer, &mut steps)? == Orphans::Remove {
            steps.extend(repair(Orphans::Remove)?);
        }
        self.check_ends(&steps, layer, format)?;
        Ok(steps)
    }

    pub(super) fn take_outside(
        &mut self,
        layer: &'static str,
        steps: Result<Vec<String>>,
    ) -> Result<bool> {
        self.changed_outside |= steps.as_ref().is_ok_and(|steps| !steps.is_empty());
        self.done.take(layer, steps)
    }

    /// Refuses to change the end of a file if only its header supports that.
    fn check_ends(&self, steps: &[String], layer: &'static str, format: Format) -> Result<()> {
        if steps.is_empty() || self.chosen.assume.orphans.is_some() {
            return Ok(());
        }
        let (disk, _) = self.opened(self.staged, format)?;
        let len = disk.info().len;
        let found = geometry::of_disk(&disk, self.options, Depth::Full, self.progress)?;
        if found.is_consistent()
            || found.is_consistent_but_for_growth()
            || self.chosen.assume.size == Some(len)
        {
            return Ok(());
        }
        let what = format!(
            "the header records a disk of {len} bytes, but the file stores more, and nothing \
             decides which is right"
        );
        let alternatives = vec![Alternative {
            assume: format!("size={len}"),
            evidence: found.description(),
        }];
        Err(Undecided { what, alternatives }.into_error(layer))
    }

    fn map(&mut self, disk: &Arc<dyn BlockDevice>) -> Result<()> {
        let mut search = Search::Announced;
        let found = open::find_contents_with(disk, |next| {
            search = next;
            partition::probe_with(&**disk, next)
        });
        if let Err(error) = found
            && error.kind() == Kind::Io
        {
            return Err(error);
        }
        let repaired = match gpt::repair_with(&**disk, search, self.chosen.assume.map) {
            Err(error) if error.kind() == Kind::Undecided => {
                let which = geometry::decide_map(disk, error, self.options, self.progress)?;
                gpt::repair_with(&**disk, search, Some(which))
            }
            repaired => repaired,
        };
        let (parts, refused) = match repaired {
            Ok(repaired) => repaired,
            // A disk without a GPT has none to repair.
            Err(error) if error.kind() == Kind::NotFound => return self.volumes(disk),
            Err(error) => {
                return self
                    .done
                    .take(GPT, Err::<Vec<RepairStep>, _>(error))
                    .map(drop);
            }
        };
        let parts = [
            (parts.protective_mbr, "protective MBR"),
            (parts.primary, "copy at the beginning"),
            (parts.backup, "copy at the end"),
        ];
        self.outside(
            GPT,
            parts
                .into_iter()
                .filter(|(written, _)| *written)
                .map(|(_, part)| part.to_owned())
                .collect(),
        );
        self.done.refused.extend(refused);
        self.volumes(disk)
    }

    /// Repairs the volumes on a disk, as far as they are found.
    fn volumes(&mut self, disk: &Arc<dyn BlockDevice>) -> Result<()> {
        let (map, found) = match open::find_contents(disk) {
            Ok(found) => found,
            Err(error) if error.kind() == Kind::Io => return Err(error),
            // The map cannot be used, as reported above.
            Err(_) => return Ok(()),
        };
        let is_apfs = |volume: &Volume| volume.format.is_container();
        if self.options.checkpoint.is_some() && !found.iter().any(is_apfs) {
            let message = "only APFS containers have checkpoints";
            return Err(Error::new(Kind::NotFound, "checkpoint", message));
        }
        self.reached_volumes = true;
        for volume in &found {
            let place = volume.place();
            let steps = if volume.format.is_container() {
                self.apfs(volume)
                    .map(|steps| steps.into_iter().map(RepairStep::from).collect())
            } else {
                match self.hfs_plus(volume, found.len() == 1) {
                    Err(error) if hfsplus::Repair::is_without_room(&error) => {
                        self.with_room(disk, map.as_ref(), volume, found.len() == 1, error)
                    }
                    steps => steps,
                }
            };
            self.done
                .take(VOLUME, steps.map_err(|error| error.in_file(&place)))?;
        }
        disk.flush()
    }

    /// Repairs a volume that is too full, on a disk that grows as the user asked. Otherwise the
    /// error says how to ask.
    fn with_room(
        &mut self,
        disk: &Arc<dyn BlockDevice>,
        map: Option<&Map>,
        volume: &Volume,
        is_only: bool,
        full: Error,
    ) -> Result<Vec<RepairStep>> {
        let from = disk.info().len;
        let partition = map.zip(volume.partition);
        let is_last = partition.is_none_or(|(map, _)| {
            map.partitions
                .iter()
                .all(|other| other.kind == FREE || other.range.start <= volume.range.start)
        });
        let room = (volume.range.end - volume.range.start) / 4;
        let enough = from
            .saturating_add(room.max(MIN_ROOM))
            .next_multiple_of(MIB);
        let message = match is_last {
            true => format!(
                "{}; run `bandsaw repair --grow {}m` to enlarge the disk and the volume",
                full.message(),
                enough / MIB
            ),
            false => format!(
                "{}, and the volume cannot grow: it is not the last on the disk",
                full.message()
            ),
        };
        let message = || Error::limit(VOLUME, message.clone());
        let Some(len) = self.chosen.grow.filter(|&len| is_last && len > from) else {
            return Err(message());
        };
        disk.set_len(len, AfterDiscard::Zeros)?;
        if let Some((map, number)) = partition {
            let partition = Resizable {
                disk: &**disk,
                scheme: map.scheme,
                number,
            };
            partition.repair()?;
            partition.put(len, volume.range.start..partition.last_end(len)?)?;
        }
        disk.flush()?;
        self.outside(
            "disk",
            vec![format!("the disk grows from {from} to {len} bytes")],
        );
        let (_, volumes) = open::find_contents(disk)?;
        let grown = volumes
            .into_iter()
            .find(|other| other.range.start == volume.range.start);
        let Some(grown) = grown else {
            return Err(message());
        };
        // The lack of room, which does not remain.
        self.remaining.pop();
        self.hfs_plus(&grown, is_only)
    }

    fn hfs_plus(&mut self, volume: &Volume, is_only: bool) -> Result<Vec<RepairStep>> {
        let place = volume.place();
        let header = self
            .chosen
            .assume
            .for_volume(volume.partition, is_only)
            .header;
        let mut steps: Vec<RepairStep> = Vec::new();
        let temporary = &self.chosen.temporary;
        let plan = match volume.plan_repair(header, temporary, self.progress) {
            Err(error) if error.kind() == Kind::Conflict => {
                volume.replay_journal().and_then(|()| {
                    steps.push(format!("{place}: replay the journal").into());
                    volume.plan_repair(header, temporary, self.progress)
                })
            }
            plan => plan,
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let located = error.duplicate().in_file(&place);
                let is_full = hfsplus::Repair::is_without_room(&error);
                match error.kind() {
                    Kind::Unsupported | Kind::Limit if !is_full => self.unchecked.push(located),
                    Kind::Corrupt | Kind::OutOfRange | Kind::Undecided | Kind::Limit => {
                        self.found.add(Severity::Damage, located.duplicate());
                        self.remaining.push(Problem {
                            severity: Severity::Damage,
                            error: located,
                        });
                    }
                    _ => {}
                }
                self.done.add(VOLUME, steps);
                return Err(match volume.partition {
                    Some(number) if !is_only => Undecided::in_partition(error, number),
                    _ => error,
                });
            }
        };
        let Some(repair) = plan else { return Ok(steps) };
        let located = |problem: &Problem| Problem {
            severity: problem.severity,
            error: problem.error.duplicate().in_file(&place),
        };
        repair
            .findings()
            .iter()
            .map(located)
            .for_each(|problem| self.found.add(problem.severity, problem.error));
        if let Err(error) = repair.check_result() {
            self.remaining.extend(repair.findings().iter().map(located));
            self.done.add(VOLUME, steps);
            return Err(error);
        }
        repair.apply(self.progress)?;
        self.remaining.extend(repair.left().iter().map(located));
        steps.extend(repair.steps().iter().map(|step| RepairStep {
            text: format!("{place}: {}", step.text),
            files: step.files.clone(),
        }));
        self.done
            .losses
            .extend(VolumeLosses::new(&place, repair.losses().clone()));
        self.rebuilt.push(volume.range.start);
        Ok(steps)
    }

    /// Checks an APFS container. It is not repaired, but can fall back to an older checkpoint if
    /// the options name one.
    fn apfs(&mut self, volume: &Volume) -> Result<Vec<String>> {
        let key = |locked: &LockedVolume| open::volume_key(locked, self.options.keys);
        let place = volume.place();
        // Returns the reasons why parts were not checked.
        let check = |problems: &mut Problems| {
            let opened = volume
                .container()
                .and_then(|found| found.check(&place, &key, problems, self.progress));
            let unchecked = match opened {
                Ok(unchecked) => unchecked,
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::OutOfRange) => {
                    problems.add(Severity::Damage, error.in_file(&place));
                    Vec::new()
                }
                Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::WrongKey) => {
                    vec![error.in_file(&place)]
                }
                Err(error) => return Err(error),
            };
            problems.check_readable().map(|()| unchecked)
        };
        let mut problems = Problems::default();
        let unchecked = check(&mut problems)?;
        let is_sound = problems.worst() <= Some(Severity::Note);
        let kept = |problem: &Problem| Problem {
            severity: problem.severity,
            error: problem.error.duplicate(),
        };
        let before: Vec<Problem> = problems.listed().iter().map(kept).collect();
        problems
            .into_iter()
            .for_each(|problem| self.found.add(problem.severity, problem.error));
        if let Some(xid) = self.options.checkpoint {
            let Some(plan) = OlderCheckpoint::plan(volume.device(), xid, &key, self.progress)?
            else {
                self.remaining.extend(before);
                self.unchecked.extend(unchecked);
                return Ok(Vec::new());
            };
            plan.apply()?;
            let mut after = Problems::default();
            let unchecked = check(&mut after)?;
            self.unchecked.extend(unchecked);
            self.remaining.extend(after);
            return Ok(vec![format!("{place}: {}", plan.step())]);
        }
        self.remaining.extend(before);
        self.unchecked.extend(unchecked);
        if is_sound {
            return Ok(Vec::new());
        }
        let message = match self.state_in_order(volume)? {
            Some(state) => {
                let time = state
                    .time()
                    .map_or_else(String::new, |time| format!(" of {time}"));
                format!(
                    "APFS containers cannot be repaired in place; run `bandsaw repair \
                     --checkpoint {xid}` to roll back to the undamaged checkpoint{time}, \
                     transaction {xid} (later changes are lost)",
                    xid = state.checkpoint()
                )
            }
            None => "APFS containers cannot be repaired in place, and there is no undamaged older \
                     checkpoint"
                .to_owned(),
        };
        Err(Error::unsupported("apfs container", message))
    }

    /// Returns the newest older state of an APFS container that checks clean.
    fn state_in_order(&self, volume: &Volume) -> Result<Option<Container>> {
        /// Each state is checked in full.
        const MAX_CHECKED: usize = 4;
        let key = |locked: &LockedVolume| open::volume_key(locked, self.options.keys);
        let Ok(open) = volume.container() else {
            return Ok(None);
        };
        for &xid in open.checkpoints().iter().take(MAX_CHECKED) {
            match OlderCheckpoint::plan(volume.device(), xid, &key, self.progress) {
                Ok(Some(_)) => {
                    return Container::open(volume.device().clone(), Some(xid)).map(Some);
                }
                Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => {
                    return Err(error);
                }
                Ok(None) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// Returns true if nothing is stored of the first byte of a disk.
pub(super) fn starts_with_hole(disk: &dyn BlockDevice) -> Result<bool> {
    let first = 0..disk.info().len.min(1);
    Ok(!first.is_empty() && disk.extent_at(first)?.kind == ExtentKind::Hole)
}

/// Extends a raw image that lacks its last sectors, those of the backup GPT, to the length in the
/// primary GPT. Fails if a partition is truncated.
fn raw_tail(file: &Arc<dyn BlockDevice>) -> Result<Vec<String>> {
    let len = file.info().len;
    let disk = Raw::new(file.clone());
    let Some(whole) = gpt::recorded_len(&disk)?.filter(|whole| *whole > len) else {
        return Ok(Vec::new());
    };
    let Some(map) = partition::probe(&disk)? else {
        return Ok(Vec::new());
    };
    if let Some(cut) = map
        .problems
        .iter()
        .find(|problem| problem.kind() == Kind::OutOfRange)
    {
        let lost = format!(
            "truncated, and the image has no copy of the lost data: {}",
            cut.message()
        );
        return Err(Error::corrupt("raw image", len, lost));
    }
    file.set_len(whole, AfterDiscard::Zeros)?;
    file.flush()?;
    Ok(vec![format!(
        "the file is extended by {} bytes to {whole}, the space after the last partition",
        whole - len
    )])
}
