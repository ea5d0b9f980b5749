//! From a clean volume to a clean volume: the first change, commits, unmounting (§14.5, §18).

use zerocopy::IntoBytes;

use super::LAYER;
use super::log::Log;
use super::recover::OPENING;
use super::volume::Volume;
use crate::fs::hfsplus::journal::{Journal, TRANSIENT};
use crate::fs::hfsplus::layout::{
    AllocBlock, Cnid, Extent, FileInfoRaw, FileRaw, ForkRaw, HEADER_OFFSET, JOURNAL_TYPE, JournalInfoBlockRaw, finder_flags,
    journal_flags, record_flags, record_type, volume_attributes,
};
use crate::fs::hfsplus::links::JOURNAL_NAMES;
use crate::fs::hfsplus::unicode::encode_name;
use crate::{Error, Kind, Result};

/// Who last wrote a volume without a journal.
pub(super) const MADE_BY: [u8; 4] = *b"bsaw";
/// Who last wrote a volume with one: what macOS knows for one that it may replay.
const JOURNALED_BY: [u8; 4] = *b"HFSJ";
/// The journal of a session on a volume of at least [`LARGE`] bytes and on smaller ones; and the least that will do.
const SIZES: [u64; 3] = [8 << 20, 512 << 10, 64 << 10];
/// Volumes this large have a long journal.
const LARGE: u64 = 128 << 20;

impl Volume {
    /// Makes sure that changes can be committed. Whatever a volume needs before its first change happens here.
    pub(super) fn begin(&mut self) -> Result<()> {
        if self.log.is_some() {
            return Ok(());
        }
        let begun = if self.read.header.has(volume_attributes::JOURNALED) { self.begin_journaled() } else { self.begin_plain() };
        match begun {
            // Anything else was found out before the first byte was written.
            Err(error) if error.kind() == Kind::Io => self.failed.note(Err(error)),
            begun => begun,
        }?;
        self.reap_left()
    }

    fn begin_journaled(&mut self) -> Result<()> {
        let journal = match Journal::find(&self.device, &self.read.header)? {
            Some(journal) => journal,
            None => self.first_use()?,
        };
        if !self.buffer.page().is_multiple_of(u64::from(journal.sector())) {
            let message = format!("a journal of {} bytes a sector does not fit the volume's blocks", journal.sector());
            return Err(Error::unsupported(LAYER, message));
        }
        let count = self.header().write_count.get().wrapping_add(1);
        self.header().write_count = count.into();
        self.header().last_mounted_version = JOURNALED_BY;
        self.set_volume_attributes(0, volume_attributes::UNMOUNTED);
        self.put_header()?;
        self.log = Some(Log { journal, transient: None });
        Ok(())
    }

    /// Makes the header of a journal that its formatter has left to its first user.
    fn first_use(&self) -> Result<Journal> {
        let at = AllocBlock(self.read.header.raw.journal_info_block.get()).offset(self.read.header.block_size);
        let mut info: JournalInfoBlockRaw = crate::fs::hfsplus::read_structure(&*self.device, at)?;
        self.device.info().check(LAYER, info.offset.get(), info.size.get())?;
        if info.flags.get() & journal_flags::IN_VOLUME == 0 || info.size.get() < SIZES[2] {
            return Err(Error::unsupported(LAYER, "a journal in the volume expected").at(at));
        }
        let journal = Journal::new(self.device.clone(), info.offset.get(), info.size.get(), random()?);
        journal.publish()?;
        self.device.flush()?;
        info.flags = journal_flags::IN_VOLUME.into();
        self.device.write_at(at, info.as_bytes())?;
        self.device.flush()?;
        Ok(journal)
    }

    /// Gives a volume without a journal one for the session. In this order, because whatever a crash leaves must be told:
    /// the journal in free blocks, that these are going to be used, that they are used, that there is a journal.
    fn begin_plain(&mut self) -> Result<()> {
        let place = self.place_journal()?;
        let block_size = self.read.header.block_size;
        let (info, body) = (place.start, Extent { start: AllocBlock(place.start.0 + 1), count: place.count - 1 });
        let (at, size) = (body.start.offset(block_size), u64::from(body.count) * u64::from(block_size));
        let journal = Journal::new(self.device.clone(), at, size, random()?);
        journal.publish()?;
        self.device.write_at(info.offset(block_size), info_block(at, size).as_bytes())?;
        self.device.flush()?;

        let count = self.header().write_count.get().wrapping_add(1);
        self.header().write_count = count.into();
        self.header().journal_info_block = info.0.into();
        self.header().last_mounted_version = OPENING;
        self.set_volume_attributes(0, volume_attributes::UNMOUNTED);
        self.put_header()?;

        self.bitmap.change(place, true, true)?;
        self.write_through()?;

        self.header().free_blocks -= place.count;
        self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
        self.header().last_mounted_version = JOURNALED_BY;
        self.set_volume_attributes(volume_attributes::JOURNALED, 0);
        self.put_header()?;
        self.log = Some(Log { journal, transient: Some(vec![place]) });
        self.step(&mut |volume| volume.add_journal_files(place))
    }

    /// Free blocks for a journal, at the end where they are in nobody's way.
    fn place_journal(&self) -> Result<Extent> {
        let block_size = u64::from(self.read.header.block_size);
        let total = u64::from(self.read.header.total_blocks) * block_size;
        let [large, small, least] = SIZES;
        let mut size = if total >= LARGE { large } else { small };
        let spare = u64::from(self.read.header.free_blocks) * block_size / 4;
        while size > least && size > spare {
            size /= 2;
        }
        loop {
            let count = 1 + u32::try_from(size.div_ceil(block_size)).unwrap_or(u32::MAX - 1);
            if let Some(place) = self.bitmap.find_last(count)? {
                return Ok(place);
            }
            if size <= least {
                let message = format!("no {least} free bytes together, which are needed to make changes safely");
                return Err(Error::new(Kind::Limit, LAYER, message));
            }
            size /= 2;
        }
    }

    /// Enters the journal and its info block as files, as a volume with a journal has them.
    fn add_journal_files(&mut self, place: Extent) -> Result<()> {
        let block_size = self.read.header.block_size;
        let body = Extent { start: AllocBlock(place.start.0 + 1), count: place.count - 1 };
        let head = Extent { count: 1, ..place };
        for (name, extent) in JOURNAL_NAMES.into_iter().zip([body, head]) {
            let mut units = Vec::new();
            encode_name(name, &mut units)?;
            if self.read.catalog.get(Cnid::ROOT, &units)?.is_some() {
                continue; // somebody's own file; the journal does without
            }
            let (file_type, creator) = JOURNAL_TYPE;
            let date = self.date().into();
            let mut fork = ForkRaw {
                logical_size: (u64::from(extent.count) * u64::from(block_size)).into(),
                total_blocks: extent.count.into(),
                ..Default::default()
            };
            fork.extents[0] = extent.into();
            let mut file = FileRaw {
                record_type: record_type::FILE.into(),
                flags: record_flags::THREAD_EXISTS.into(),
                data_fork: fork,
                ..Default::default()
            };
            file.file_id = self.next_id()?.0.into();
            (file.dates.create, file.dates.content_mod, file.dates.attribute_mod, file.dates.access) = (date, date, date, date);
            (file.bsd.file_mode, file.bsd.special) = (0o100_000.into(), 1.into());
            let finder_flags = (finder_flags::INVISIBLE | finder_flags::NAME_LOCKED).into();
            file.user_info = FileInfoRaw { file_type, creator, finder_flags, ..Default::default() };
            self.read.links.hide_journal_file(Cnid(file.file_id.get()));
            self.enter(Cnid::ROOT, &units, &super::objects::file(file))?;
        }
        Ok(())
    }

    /// Takes the files of the session's journal out again. Their blocks stay used.
    fn remove_journal_files(&mut self) -> Result<()> {
        for name in JOURNAL_NAMES {
            let mut units = Vec::new();
            encode_name(name, &mut units)?;
            if let Some(object) = self.read.catalog.get(Cnid::ROOT, &units)?
                && self.read.links.is_journal_file(object.id())
            {
                self.leave(Cnid::ROOT, &units, &object)?;
            }
        }
        self.read.links.show_journal_files();
        Ok(())
    }

    /// Makes everything so far durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        let committed = self.try_commit();
        self.failed.note(committed)
    }

    fn try_commit(&mut self) -> Result<()> {
        let runs = self.buffer.runs();
        let Some(log) = self.log.as_mut().filter(|_| !runs.is_empty()) else { return self.device.flush() };
        if !log.has_room(&runs) {
            self.device.flush()?;
            log.clear()?;
            self.device.flush()?;
        }
        log.journal.append(&runs)?;
        // Contents and the transaction, before what makes them count; and what the last commit put in place.
        self.device.flush()?;
        log.journal.publish()?;
        self.device.flush()?;
        runs.iter().try_for_each(|(offset, bytes)| self.device.write_at(*offset, bytes))?;
        self.buffer.forget();
        self.bitmap.release();
        Ok(())
    }

    /// Commits what waits if the operation under way would not fit in the same transaction.
    pub(super) fn commit_if_full(&mut self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let (len, page) = (self.buffer.len_if_kept(), self.buffer.page());
        if log.fits(len, page) && len <= self.options.cache as u64 {
            return Ok(());
        }
        let fits_alone = log.fits(self.buffer.current_len(), page);
        if !fits_alone {
            let message = format!("{} bytes of changes at once do not fit in the journal", self.buffer.current_len());
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
        self.commit()
    }

    /// Leaves the volume clean. The next change begins anew.
    pub(super) fn unmount(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        if self.log.is_none() {
            return self.device.flush();
        }
        if self.log.as_ref().is_some_and(Log::is_transient) {
            self.step(&mut |volume| volume.remove_journal_files())?;
        }
        self.commit()?;
        let ended = self.end();
        self.failed.note(ended)
    }

    fn end(&mut self) -> Result<()> {
        self.device.flush()?;
        let Some(mut log) = self.log.take() else { return Ok(()) };
        log.clear()?;
        self.device.flush()?;
        if let Some(places) = log.transient {
            // The same steps as at the beginning, backwards.
            self.set_volume_attributes(0, volume_attributes::JOURNALED);
            self.header().last_mounted_version = OPENING;
            for place in &places {
                self.header().free_blocks += place.count;
            }
            self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
            self.put_header()?;
            places.iter().try_for_each(|place| self.bitmap.change(*place, false, true))?;
            self.write_through()?;
            self.header().journal_info_block = 0.into();
            self.header().last_mounted_version = MADE_BY;
        }
        self.set_volume_attributes(volume_attributes::UNMOUNTED, volume_attributes::BOOT_INCONSISTENT);
        let alternate = self.device.info().len - HEADER_OFFSET;
        self.device.write_at(alternate, self.read.header.raw.as_bytes())?;
        self.put_header()
    }

    /// Writes the header in place, durably.
    fn put_header(&mut self) -> Result<()> {
        self.device.write_at(HEADER_OFFSET, self.read.header.raw.as_bytes())?;
        self.device.flush()
    }

    /// Writes what the buffer holds in place, durably, without a journal.
    fn write_through(&mut self) -> Result<()> {
        self.buffer.keep();
        for (offset, bytes) in self.buffer.runs() {
            self.device.write_at(offset, &bytes)?;
        }
        self.buffer.forget();
        self.device.flush()
    }

    fn set_volume_attributes(&mut self, set: u32, clear: u32) {
        let header = self.header();
        header.attributes = (header.attributes.get() & !clear | set).into();
    }
}

/// The info block of a journal that goes away with the session.
fn info_block(offset: u64, size: u64) -> JournalInfoBlockRaw {
    let mut info = JournalInfoBlockRaw {
        flags: journal_flags::IN_VOLUME.into(),
        device_signature: [0; 32],
        offset: offset.into(),
        size: size.into(),
        external_uuid: [0; 37],
        machine_serial: [0; 48],
        reserved: [0; 43],
    };
    info.reserved[..TRANSIENT.len()].copy_from_slice(TRANSIENT);
    info
}

fn random() -> Result<u32> {
    getrandom::u32().map_err(|error| Error::new(Kind::Io, LAYER, format!("no random number: {error}")))
}
