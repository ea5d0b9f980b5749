//! Repair of the volumes on a disk.

use std::sync::Arc;

use super::VOLUME;
use super::layers::LayerRepair;
use super::losses::VolumeLosses;
use crate::decision::Undecided;
use crate::device::{AfterDiscard, BlockDevice};
use crate::fs::apfs::{Container, OlderCheckpoint};
use crate::fs::{LockedVolume, RepairStep, hfsplus};
use crate::open::{self, Volume};
use crate::partition::{Map, Resizable};
use crate::problem::{Problem, Problems, Severity};
use crate::{Error, Kind, Reason, Result};

const MIB: u64 = 1 << 20;
/// Least number of bytes by which a disk grows for a full volume.
const MIN_ROOM: u64 = 16 * MIB;
/// Type of free space in an Apple partition map.
const FREE: &str = "Apple_Free";

impl LayerRepair<'_> {
    /// Repairs the volumes on a disk, as far as they are found.
    pub(super) fn volumes(&mut self, disk: &Arc<dyn BlockDevice>) -> Result<()> {
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
                .record_layer(VOLUME, steps.map_err(|error| error.in_file(&place)))?;
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
        let message = || Error::limit(VOLUME, message.clone()).because(Reason::VolumeFull);
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
