//! The articles' protocols, step by step.
//!
//! Each runs on images and on the host's folder, so that the host is measured in the same run.

use bandsaw::Result;
use bandsaw::progress::Progress;

use super::active_subject::ActiveSubject;
use super::stream::{self, StreamTest};
use super::subject::Subject;
use super::{Protocol, space};
use crate::clock::HostClock;
use crate::folder::pause;
use crate::place::CacheState;
use crate::plan::{Plan, PlannedFile, bytes_of};
use crate::report::{Compression, Process, STREAMED, Series, Settings, Space};
use crate::sample::Sample;

/// Length in bytes, number and request size of the files of the second load of R5.
const SEQUENTIAL: u64 = 1_000_000_000;
const SEQUENTIAL_FILES: u32 = 5;
const SEQUENTIAL_REQUEST: u64 = 4 << 20;

/// A run of a protocol on one subject.
pub(super) struct ProtocolRun<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) settings: &'a Settings,
    pub(super) files: &'a [PlannedFile],
    /// Compressor of the stream test, for the protocol that has one.
    pub(super) compression: Option<&'a Compression>,
    /// Number of the round, from 1.
    pub(super) round: u32,
    /// Size of the image in bytes.
    pub(super) len: u64,
    pub(super) progress: &'a dyn Progress,
    pub(super) space: Vec<Space>,
}

impl ProtocolRun<'_> {
    /// Runs the protocol; returns the series of its steps.
    pub(super) fn run(mut self, protocol: Protocol) -> Result<Vec<Series>> {
        self.subject.create(self.len, self.progress)?;
        self.record_space("new", false)?;
        let mut series = match protocol {
            Protocol::Rewrite => self.rewrite()?,
            Protocol::Steady => self.steady()?,
            Protocol::Space => self.rounds()?,
            Protocol::Refill => self.refill()?,
            Protocol::Bands => self.bands()?,
            // `compression.rs` runs it.
            Protocol::Compression => Vec::new(),
        };
        self.subject.destroy()?;
        if let Some(last) = series.last_mut() {
            last.space = self.space;
        }
        for series in &mut series {
            series.possible_bands = self.subject.band_size.map(|size| self.len.div_ceil(size));
            series.image = self.subject.kind.map(|kind| kind.described());
            series.band_size = self.subject.band_size;
        }
        Ok(series)
    }

    pub(super) fn record_space(&mut self, at: &str, inside: bool) -> Result<()> {
        self.space.extend(self.subject.space(at, inside)?);
        Ok(())
    }

    /// Records the size of the image in use, and the space that is free in its volume.
    pub(super) fn record_space_in_use(&mut self, at: &str, attached: &ActiveSubject) -> Result<()> {
        self.record_space(at, false)?;
        if let (Some(last), Some(free)) = (self.space.last_mut(), attached.free()?) {
            last.free = Some(free);
        }
        Ok(())
    }

    fn pause(&self) -> Result<()> {
        pause(self.settings.pause, self.progress)
    }

    /// Detaches, records the image's size on disk, pauses, and attaches again: new images behave
    /// differently from those that were attached before.
    fn again(
        &mut self,
        attached: ActiveSubject,
        at: &str,
    ) -> Result<(ActiveSubject, Option<Process>)> {
        let used = attached.detach()?;
        self.record_space(at, false)?;
        self.pause()?;
        Ok((self.subject.attach()?, used))
    }

    /// Ends a protocol: removes the files `left`, attaches the image anew `times` times, and
    /// compacts it.
    pub(super) fn wind_up(&mut self, left: &[PlannedFile], times: u32) -> Result<()> {
        if self.subject.kind.is_none() {
            // The host has no image to measure, and its folder is removed.
            return Ok(());
        }
        if !left.is_empty() {
            let attached = self.subject.attach()?;
            self.remove(&attached, left)?;
            attached.detach()?;
            self.record_space("emptied", false)?;
        }
        for n in 1..=times {
            self.pause()?;
            let attached = self.subject.attach()?;
            if n < times {
                self.record_space_in_use(&format!("attached anew, {n}"), &attached)?;
            }
            attached.detach()?;
        }
        self.record_space("attached anew", true)?;
        let given_back = self.subject.compact(self.progress)?;
        self.record_space("compacted", true)?;
        if let Some(last) = self.space.last_mut() {
            last.given_back = Some(given_back);
        }
        Ok(())
    }

    pub(super) fn write(
        &self,
        attached: &ActiveSubject,
        files: &[PlannedFile],
    ) -> Result<Vec<Sample>> {
        let clock = HostClock::default();
        self.settings
            .run(&*attached.place, &clock)?
            .write(files, self.progress)
    }

    fn read(
        &self,
        attached: &ActiveSubject,
        files: &[PlannedFile],
    ) -> Result<(CacheState, Vec<Sample>)> {
        let clock = HostClock::default();
        let mut run = self.settings.run(&*attached.place, &clock)?;
        let names: Vec<String> = files.iter().map(PlannedFile::name).collect();
        let cooled = self.subject.cool(attached, &names, self.progress)?;
        Ok((cooled, run.read(files, self.progress)?))
    }

    pub(super) fn remove(&self, attached: &ActiveSubject, files: &[PlannedFile]) -> Result<()> {
        let clock = HostClock::default();
        self.settings
            .run(&*attached.place, &clock)?
            .remove(files, self.progress)?;
        attached.place.flush()
    }

    pub(super) fn series(
        &self,
        step: Option<&str>,
        cooled: CacheState,
        samples: Vec<Sample>,
        process: Option<Process>,
    ) -> Series {
        Series {
            process,
            ..Series::new(self.subject.label(), step, cooled, samples)
        }
    }

    /// R1: written immediately after creation; written again after the files were removed and the
    /// image was attached anew; and, as a control, written for the first time after another image
    /// was attached anew.
    fn rewrite(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let first = self.write(&attached, self.files)?;
        self.record_space("written", false)?;
        self.remove(&attached, self.files)?;
        let (attached, first_used) = self.again(attached, "removed")?;
        let mut again = self.write(&attached, self.files)?;
        let (cooled, read) = self.read(&attached, self.files)?;
        again.extend(read);
        let again_used = attached.detach()?;
        self.record_space("rewritten", true)?;
        let mut all = vec![
            self.series(Some("first"), CacheState::Kept, first, first_used),
            self.series(Some("rewrite"), cooled, again, again_used),
        ];
        self.wind_up(self.files, 1)?;
        self.subject.destroy()?;
        self.subject.create(self.len, self.progress)?;
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "control: new")?;
        let control = self.write(&attached, self.files)?;
        let used = attached.detach()?;
        self.record_space("written", true)?;
        all.push(self.series(
            Some("first, attached anew"),
            CacheState::Kept,
            control,
            used,
        ));
        Ok(all)
    }

    /// R2: attached anew and left idle, then written and read.
    fn steady(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "attached once")?;
        self.pause()?;
        let mut samples = self.write(&attached, self.files)?;
        self.record_space("written", false)?;
        let (cooled, read) = self.read(&attached, self.files)?;
        samples.extend(read);
        let used = attached.detach()?;
        self.record_space("read, detached", true)?;
        self.wind_up(self.files, 1)?;
        Ok(vec![self.series(None, cooled, samples, used)])
    }

    /// R5: written and read when empty, when partly full, and after it was emptied.
    fn refill(&mut self) -> Result<Vec<Series>> {
        let sets = self.files.iter().map(|file| file.set).max().unwrap_or(1);
        // Eight of ten sets are removed after the first pass.
        let stays = (sets / 5).max(1).min(sets - 1);
        let mut all = Vec::new();
        // File numbers differ between passes.
        let pass = |n: u32| -> Vec<PlannedFile> {
            let count = self.files.len() as u32;
            self.files
                .iter()
                .map(|file| PlannedFile {
                    number: file.number + n * count,
                    ..file.clone()
                })
                .collect()
        };
        let passes = [pass(0), pass(1), pass(2)];
        let mut left: Vec<PlannedFile> = Vec::new();
        for (n, (step, files)) in ["empty", "part full", "emptied"]
            .into_iter()
            .zip(&passes)
            .enumerate()
        {
            let attached = self.subject.attach()?;
            let mut samples = self.write(&attached, files)?;
            let (attached, written) = self.again(attached, &format!("{step}: written"))?;
            let (cooled, read) = self.read(&attached, files)?;
            samples.extend(read);
            let go = match n {
                0 => {
                    let (stay, go): (Vec<_>, Vec<_>) =
                        files.iter().cloned().partition(|file| file.set <= stays);
                    left = stay;
                    go
                }
                1 => [&left[..], files].concat(),
                _ => Vec::new(),
            };
            self.remove(&attached, &go)?;
            let used = Process::sum(written, attached.detach()?);
            self.record_space(
                &if n < 2 {
                    format!("{step}: removed")
                } else {
                    "read".to_owned()
                },
                n == 2,
            )?;
            all.push(self.series(Some(step), cooled, samples, used));
            self.pause()?;
        }
        all.push(self.sequential(&passes[2])?);
        self.wind_up(&[], 1)?;
        Ok(all)
    }

    /// Removes the files `left`, then writes and reads a few long files in sequence with long
    /// requests, as a second load to check the first with.
    fn sequential(&mut self, left: &[PlannedFile]) -> Result<Series> {
        let attached = self.subject.attach()?;
        self.remove(&attached, left)?;
        let plan = Plan {
            sizes: vec![SEQUENTIAL],
            sets: SEQUENTIAL_FILES,
            random: None,
            ..self.settings.plan.clone()
        };
        let settings = Settings {
            plan,
            request: SEQUENTIAL_REQUEST,
            ..self.settings.clone()
        };
        let files = settings.plan.files()?;
        let clock = HostClock::default();
        let mut samples = settings
            .run(&*attached.place, &clock)?
            .write(&files, self.progress)?;
        let (attached, written) = self.again(attached, "sequential: written")?;
        let mut run = settings.run(&*attached.place, &clock)?;
        let names: Vec<String> = files.iter().map(PlannedFile::name).collect();
        let cooled = self.subject.cool(&attached, &names, self.progress)?;
        samples.extend(run.read(&files, self.progress)?);
        drop(run);
        self.remove(&attached, &files)?;
        let used = Process::sum(written, attached.detach()?);
        self.record_space("sequential: removed", false)?;
        Ok(self.series(Some("sequential"), cooled, samples, used))
    }

    /// R4: in the first round files of many sizes, for the dispersion of speeds; in each round one
    /// file that is compressed into another on the same volume.
    fn bands(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "attached once")?;
        let mut samples = Vec::new();
        if self.round == 1 {
            samples = self.write(&attached, self.files)?;
            self.record_space("written", false)?;
            self.remove(&attached, self.files)?;
            self.record_space("removed", false)?;
        }
        let mut cooled = CacheState::Kept;
        if let Some(compression) = self.compression {
            let streaming = StreamTest {
                place: &*attached.place,
                settings: self.settings,
                compression,
                progress: self.progress,
            };
            let cool = |names: &[String]| self.subject.cool(&attached, names, self.progress);
            let (streamed, state) = streaming.run(self.round, &cool)?;
            samples.push(streamed);
            cooled = state;
            self.record_space(STREAMED, false)?;
            streaming.remove()?;
        }
        let used = attached.detach()?;
        if self.round == 1 {
            self.wind_up(&[], 1)?;
        }
        Ok(vec![self.series(None, cooled, samples, used)])
    }
}

/// Returns the maximum bytes stored on a subject by a protocol, and the total bytes written there.
pub(super) fn volume_of(protocol: Protocol, files: &[PlannedFile], plan: &Plan) -> (u64, u64) {
    let planned = bytes_of(files);
    match protocol {
        Protocol::Rewrite => (planned, 3 * planned),
        Protocol::Steady | Protocol::Compression => (planned, planned),
        Protocol::Space => space::bytes(files),
        Protocol::Refill => {
            let sequential = SEQUENTIAL as f64 * f64::from(SEQUENTIAL_FILES) * plan.scale;
            let sequential = sequential as u64;
            let most = (planned + planned * 2 / 5).max(sequential);
            (most, 3 * planned + sequential)
        }
        Protocol::Bands => {
            // Contents that do not shrink are stored as they are.
            let streamed = stream::source_len(plan.scale) * 2;
            let all = streamed.saturating_mul(u64::from(plan.sets));
            (planned.max(streamed), planned.saturating_add(all))
        }
    }
}
