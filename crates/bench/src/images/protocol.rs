//! The articles' protocols, step by step.
//!
//! Every one runs on images and on the host's folder alike, so that the host is measured in the same run.

use bandsaw::Result;
use bandsaw::progress::Progress;

use super::Protocol;
use super::stream;
use super::subject::{Attached, Subject};
use crate::clock::HostClock;
use crate::folder::pause;
use crate::place::Cooled;
use crate::plan::{PlannedFile, bytes_of};
use crate::report::{Process, Series, Settings, Space};
use crate::sample::Sample;

/// One subject on its way through a protocol.
pub(super) struct Walk<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) settings: &'a Settings,
    pub(super) files: &'a [PlannedFile],
    /// Bytes of the image.
    pub(super) len: u64,
    pub(super) progress: &'a dyn Progress,
    pub(super) space: Vec<Space>,
}

impl Walk<'_> {
    /// Goes through it all; what was measured, step by step.
    pub(super) fn run(mut self, protocol: Protocol) -> Result<Vec<Series>> {
        self.subject.create(self.len)?;
        self.note("new", false)?;
        let mut series = match protocol {
            Protocol::Rewrite => self.rewrite()?,
            Protocol::Steady => self.steady()?,
            Protocol::Refill => self.refill()?,
            Protocol::Bands => self.bands()?,
            // Walked by `space.rs` and `compression.rs`.
            Protocol::Space | Protocol::Compression => Vec::new(),
        };
        self.note("the end", true)?;
        self.subject.destroy()?;
        if let Some(last) = series.last_mut() {
            last.space = self.space;
        }
        for series in &mut series {
            series.image = self.subject.kind.map(|kind| kind.described());
            series.band_size = self.subject.band_size;
        }
        Ok(series)
    }

    fn note(&mut self, at: &str, in_use: bool) -> Result<()> {
        self.space.extend(self.subject.space(at, in_use)?);
        Ok(())
    }

    /// Detaches, notes what the image takes, rests, and attaches again: fresh images behave unlike those that were attached before.
    fn again(&mut self, attached: Attached, at: &str) -> Result<(Attached, Option<Process>)> {
        let used = attached.detach()?;
        self.note(at, false)?;
        pause(self.settings.pause, self.progress)?;
        Ok((self.subject.attach()?, used))
    }

    fn write(&self, attached: &Attached, files: &[PlannedFile]) -> Result<Vec<Sample>> {
        let clock = HostClock::default();
        self.settings.run(&*attached.place, &clock)?.write(files, self.progress)
    }

    fn read(&self, attached: &Attached, files: &[PlannedFile]) -> Result<(Cooled, Vec<Sample>)> {
        let clock = HostClock::default();
        let mut run = self.settings.run(&*attached.place, &clock)?;
        let names: Vec<String> = files.iter().map(PlannedFile::name).collect();
        let cooled = self.subject.cool(attached, &names, self.progress)?;
        Ok((cooled, run.read(files, self.progress)?))
    }

    fn remove(&self, attached: &Attached, files: &[PlannedFile]) -> Result<()> {
        let clock = HostClock::default();
        self.settings.run(&*attached.place, &clock)?.remove(files, self.progress)
    }

    fn series(&self, step: Option<&str>, cooled: Cooled, samples: Vec<Sample>, process: Option<Process>) -> Series {
        Series { process, ..Series::new(self.subject.label(), step, cooled, samples) }
    }

    /// R1: written right after creation; written again after files were removed and the image was attached anew; and, as a control,
    /// written for the first time after it was attached anew, on another image.
    fn rewrite(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let first = self.write(&attached, self.files)?;
        self.remove(&attached, self.files)?;
        let (attached, first_used) = self.again(attached, "written and emptied")?;
        let mut again = self.write(&attached, self.files)?;
        let (cooled, read) = self.read(&attached, self.files)?;
        again.extend(read);
        let again_used = attached.detach()?;
        self.note("rewritten", true)?;
        let mut all = vec![
            self.series(Some("first"), Cooled::Kept, first, first_used),
            self.series(Some("rewrite"), cooled, again, again_used),
        ];
        self.subject.destroy()?;
        self.subject.create(self.len)?;
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "new, the control")?;
        let control = self.write(&attached, self.files)?;
        let used = attached.detach()?;
        all.push(self.series(Some("first, attached anew"), Cooled::Kept, control, used));
        Ok(all)
    }

    /// R2: attached anew and left alone, then written and read.
    fn steady(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "attached once")?;
        pause(self.settings.pause, self.progress)?;
        let mut samples = self.write(&attached, self.files)?;
        let (cooled, read) = self.read(&attached, self.files)?;
        samples.extend(read);
        let used = attached.detach()?;
        Ok(vec![self.series(None, cooled, samples, used)])
    }

    /// R5: written and read when empty, when part full, and when it was emptied.
    fn refill(&mut self) -> Result<Vec<Series>> {
        let sets = self.files.iter().map(|file| file.set).max().unwrap_or(1);
        // Eight of ten sets go after the first pass.
        let stays = (sets / 5).max(1).min(sets - 1);
        let mut all = Vec::new();
        // Each pass has names of its own.
        let pass = |n: u32| -> Vec<PlannedFile> {
            self.files.iter().map(|file| PlannedFile { set: file.set + n * 1000, ..file.clone() }).collect()
        };
        let passes = [pass(0), pass(1), pass(2)];
        let mut left: Vec<PlannedFile> = Vec::new();
        let mut attached = self.subject.attach()?;
        for (n, (step, files)) in ["empty", "part full", "emptied"].into_iter().zip(&passes).enumerate() {
            let mut samples = self.write(&attached, files)?;
            let (again, used) = self.again(attached, &format!("{step}: written"))?;
            attached = again;
            let (cooled, read) = self.read(&attached, files)?;
            samples.extend(read);
            all.push(self.series(Some(step), cooled, samples, used));
            match n {
                0 => {
                    let (stay, go): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|file| file.set <= stays);
                    self.remove(&attached, &go)?;
                    left = stay;
                }
                1 => {
                    self.remove(&attached, files)?;
                    self.remove(&attached, &left)?;
                }
                _ => {}
            }
            if n < 2 {
                (attached, _) = self.again(attached, &format!("{step}: removed"))?;
            }
        }
        attached.detach()?;
        Ok(all)
    }

    /// R4: files of many sizes, for how far they scatter, and one file read and another written in the same place.
    fn bands(&mut self) -> Result<Vec<Series>> {
        let attached = self.subject.attach()?;
        let (attached, _) = self.again(attached, "attached once")?;
        let mut samples = self.write(&attached, self.files)?;
        self.remove(&attached, self.files)?;
        let source = bytes_of(self.files) / 16;
        let cool = |names: &[String]| self.subject.cool(&attached, names, self.progress);
        samples.push(stream::run(&*attached.place, self.settings, source.max(1 << 20), &cool, self.progress)?);
        let used = attached.detach()?;
        Ok(vec![self.series(None, Cooled::Kept, samples, used)])
    }
}

/// How many times the planned bytes a protocol has on a subject at most, and how many times it writes them.
pub(super) fn volume_of(protocol: Protocol) -> (f64, f64) {
    match protocol {
        Protocol::Rewrite => (1.0, 3.0),
        Protocol::Steady | Protocol::Space | Protocol::Compression => (1.0, 1.0),
        Protocol::Refill => (1.4, 3.0),
        Protocol::Bands => (1.0, 1.2),
    }
}
