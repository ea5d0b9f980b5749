//! Files written and read, each with its time: the gold standard.

use bandsaw::Result;
use bandsaw::progress::Progress;

use crate::clock::{Clock, Stopwatch};
use crate::contents::{Buffer, Contents};
use crate::place::{Cooled, Place};
use crate::plan::{PlannedFile, bytes_of};
use crate::sample::{Direction, Sample};

/// How files are written and read.
#[derive(Debug)]
pub struct Run<'a> {
    /// Where.
    pub place: &'a dyn Place,
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// What they hold; its request is that of reading, too.
    pub contents: Contents,
    /// True if what is read is compared with what was written. That takes no time of the samples.
    pub verify: bool,
}

impl Run<'_> {
    /// Writes `files`. Where one cannot be written, or this is cancelled, those that are there
    /// stay: the caller removes them with what they are in.
    pub fn write(&mut self, files: &[PlannedFile], progress: &dyn Progress) -> Result<Vec<Sample>> {
        progress.stage("write", bytes_of(files));
        files
            .iter()
            .map(|file| self.write_one(file, progress))
            .collect()
    }

    fn write_one(&mut self, file: &PlannedFile, progress: &dyn Progress) -> Result<Sample> {
        progress.check()?;
        let request = self.contents.request();
        let mut watch = Stopwatch::start(self.clock);
        let mut sink = self.place.create(&file.name(), file.size)?;
        let (mut at, mut untold) = (0, 0);
        while at < file.size {
            let len = request.min(usize::try_from(file.size - at).unwrap_or(request));
            let contents = &mut self.contents;
            // All that is no request, at one go: reading the clock takes time, too.
            let bytes = watch.apart(|| {
                progress.advance(untold);
                progress.check()?;
                Ok::<_, bandsaw::Error>(contents.at(u64::from(file.number), at, len))
            })?;
            sink.write(bytes)?;
            untold = len as u64;
            at += untold;
        }
        let seconds = watch.seconds();
        sink.finish()?;
        let flushed_seconds = Some(watch.seconds());
        progress.advance(untold);
        Ok(Sample {
            flushed_seconds,
            ..sample(Direction::Write, file, seconds)
        })
    }

    /// Sees to it that `files` are not read from memory.
    pub fn cool(&self, files: &[PlannedFile]) -> Result<Cooled> {
        self.place
            .cool(&files.iter().map(PlannedFile::name).collect::<Vec<_>>())
    }

    /// Reads `files`, in the order in which they were written.
    pub fn read(&mut self, files: &[PlannedFile], progress: &dyn Progress) -> Result<Vec<Sample>> {
        progress.stage(
            if self.verify {
                "read and compare"
            } else {
                "read"
            },
            bytes_of(files),
        );
        let mut buffer = Buffer::new(self.contents.request());
        files
            .iter()
            .map(|file| self.read_one(file, &mut buffer, progress))
            .collect()
    }

    fn read_one(
        &mut self,
        file: &PlannedFile,
        buffer: &mut Buffer,
        progress: &dyn Progress,
    ) -> Result<Sample> {
        progress.check()?;
        let request = self.contents.request();
        let mut watch = Stopwatch::start(self.clock);
        let mut source = self.place.open(&file.name())?;
        let mut at = 0;
        while at < file.size {
            let len = request.min(usize::try_from(file.size - at).unwrap_or(request));
            let bytes = buffer.front(len);
            source.read(bytes)?;
            let (contents, verify) = (&mut self.contents, self.verify);
            watch.apart(|| {
                progress.advance(len as u64);
                progress.check()?;
                if verify {
                    contents
                        .check(u64::from(file.number), at, bytes)
                        .map_err(|error| error.named(file.name()))
                } else {
                    Ok(())
                }
            })?;
            at += len as u64;
        }
        Ok(sample(Direction::Read, file, watch.seconds()))
    }

    /// Removes `files`.
    pub fn remove(&self, files: &[PlannedFile], progress: &dyn Progress) -> Result<()> {
        files.iter().try_for_each(|file| {
            progress.check()?;
            self.place.remove(&file.name())
        })
    }
}

fn sample(direction: Direction, file: &PlannedFile, seconds: f64) -> Sample {
    Sample {
        direction,
        set: file.set,
        number: file.number,
        size_bytes: file.size,
        seconds,
        flushed_seconds: None,
    }
}
