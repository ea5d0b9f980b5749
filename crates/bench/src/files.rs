//! The gold standard: files written and read, each timed.

use bandsaw::Result;
use bandsaw::progress::Progress;

use crate::clock::{Clock, Stopwatch};
use crate::contents::{Buffer, Contents};
use crate::place::{CacheState, Place};
use crate::plan::{PlannedFile, bytes_of};
use crate::sample::{Direction, Sample};

/// Parameters of writing and reading files.
#[derive(Debug)]
pub struct Run<'a> {
    /// Folder or volume of the files.
    pub place: &'a dyn Place,
    /// Clock that times each file.
    pub clock: &'a dyn Clock,
    /// Contents of the files; reads use the same request size.
    pub contents: Contents,
    /// True if the data read is compared with the data written. The comparison is not part of the
    /// times.
    pub verify: bool,
}

impl Run<'_> {
    /// Writes `files`. If one cannot be written, or the run is cancelled, the files written so far
    /// remain: the caller removes them with their folder or volume.
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
        let (mut at, mut unreported) = (0, 0);
        while at < file.size {
            let len = request.min(usize::try_from(file.size - at).unwrap_or(request));
            let contents = &mut self.contents;
            // One interval for everything outside the request: reading the clock takes time, too.
            let bytes = watch.apart(|| {
                progress.advance(unreported);
                progress.check()?;
                Ok::<_, bandsaw::Error>(contents.at(u64::from(file.number), at, len))
            })?;
            sink.write(bytes)?;
            unreported = len as u64;
            at += unreported;
        }
        let seconds = watch.seconds();
        sink.finish()?;
        let flushed_seconds = Some(watch.seconds());
        progress.advance(unreported);
        Ok(Sample {
            flushed_seconds,
            ..sample(Direction::Write, file, seconds)
        })
    }

    /// Drops `files` from the cache, as far as the place can.
    pub fn cool(&self, files: &[PlannedFile]) -> Result<CacheState> {
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
