//! A file of a [`PowerCut`](super::PowerCut) as a device: each change is recorded sector by sector.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::disk::{ContentChange, Event, SECTOR};
use super::names::FileId;
use super::{LAYER, Recorder};
use bandsaw_core::Result;
use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info};
use bandsaw_core::sync::Mutex;

pub(super) struct PowerCutFile {
    recorder: Arc<Mutex<Recorder>>,
    file: FileId,
    access: Access,
}

impl PowerCutFile {
    pub(super) fn new(recorder: Arc<Mutex<Recorder>>, file: FileId, access: Access) -> Self {
        Self {
            recorder,
            file,
            access,
        }
    }

    fn info_in(&self, recorder: &Recorder) -> Info {
        let len = recorder.now.contents(self.file).len();
        Info {
            len,
            block: 512,
            write: 1,
            discard: 4096,
            access: self.access,
        }
    }

    fn record(&self, recorder: &mut Recorder, change: ContentChange) {
        recorder.record(Event::ContentChange {
            file: self.file,
            change,
        });
    }

    /// Records the new contents of the sectors around `offset` after `bytes` are written there.
    fn record_data(&self, recorder: &mut Recorder, offset: u64, bytes: &[u8]) {
        let contents = recorder.now.contents(self.file);
        let sector = offset / SECTOR;
        let end = contents
            .len()
            .min((offset + bytes.len() as u64).next_multiple_of(SECTOR));
        let mut whole = vec![0; (end - sector * SECTOR) as usize];
        contents.read(sector * SECTOR, &mut whole);
        whole[(offset % SECTOR) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.record(
            recorder,
            ContentChange::Data {
                sector,
                bytes: whole.into(),
            },
        );
    }

    fn record_zeros(&self, recorder: &mut Recorder, range: Range<u64>) {
        let is_end = range.end == recorder.now.contents(self.file).len();
        let first = range.start.next_multiple_of(SECTOR).min(range.end);
        let last = if is_end {
            range.end
        } else {
            (range.end / SECTOR * SECTOR).max(first)
        };
        if range.start < first {
            self.record_data(
                recorder,
                range.start,
                &vec![0; (first - range.start) as usize],
            );
        }
        if first < last {
            self.record(
                recorder,
                ContentChange::Zeros {
                    sectors: first / SECTOR..last.div_ceil(SECTOR),
                },
            );
        }
        if last < range.end {
            self.record_data(recorder, last, &vec![0; (range.end - last) as usize]);
        }
    }
}

impl fmt::Debug for PowerCutFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PowerCutFile")
            .field("file", &self.file)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for PowerCutFile {
    fn info(&self) -> Info {
        self.info_in(&self.recorder.lock())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let recorder = self.recorder.lock();
        self.info_in(&recorder)
            .check(LAYER, offset, buf.len() as u64)?;
        recorder.now.contents(self.file).read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let mut recorder = self.recorder.lock();
        let info = self.info_in(&recorder);
        info.check_writable(LAYER)?;
        info.check(LAYER, offset, buf.len() as u64)?;
        if !buf.is_empty() {
            self.record_data(&mut recorder, offset, buf);
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        let mut recorder = self.recorder.lock();
        let info = self.info_in(&recorder);
        info.check_writable(LAYER)?;
        info.check_range(LAYER, &range)?;
        // `Any` may do nothing, which exposes callers that rely on zeros.
        if leave == AfterDiscard::Zeros && !range.is_empty() {
            self.record_zeros(&mut recorder, range);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        let recorder = self.recorder.lock();
        self.info_in(&recorder).check_range(LAYER, &range)?;
        Ok(recorder.now.contents(self.file).extent(range))
    }

    fn flush(&self) -> Result<()> {
        let mut recorder = self.recorder.lock();
        if self.access == Access::ReadWrite && recorder.now.has_unflushed(self.file) {
            recorder.record(Event::Flush { file: self.file });
        }
        Ok(())
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        let mut recorder = self.recorder.lock();
        let info = self.info_in(&recorder);
        info.check_writable(LAYER)?;
        if len < info.len {
            self.record_zeros(&mut recorder, len..info.len);
        }
        if len != info.len {
            self.record(&mut recorder, ContentChange::Len { len });
        }
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
