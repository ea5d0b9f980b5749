//! The life cycle of a mount: the first change, commits, unmount (§14.5, §18).

use zerocopy::IntoBytes;

use super::LAYER;
use super::log::Log;
use super::recover::{self, OPENING};
use super::volume::Volume;
use crate::hfsplus::build::journal_len;
use crate::hfsplus::build::records::journal_file;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::journal::{Journal, TRANSIENT};
use crate::hfsplus::layout::{
    AllocBlock, Cnid, Extent, HEADER_OFFSET, JournalInfoBlockRaw, extents_of, journal_flags,
    volume_attributes,
};
use crate::hfsplus::links::JOURNAL_NAMES;
use crate::hfsplus::unicode::encode_name;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Reason, Result};

/// `lastMountedVersion` that is written to a volume with a journal: the value of macOS, which may
/// replay such a journal.
const JOURNALED_BY: [u8; 4] = *b"HFSJ";
/// Sizes in bytes of a transient journal: on volumes of at least [`LARGE`] bytes, on smaller ones,
/// and the minimum.
const SIZES: [u64; 3] = [8 << 20, 512 << 10, 64 << 10];
/// Minimum size of a journal in bytes.
pub(super) const MIN_JOURNAL: u64 = SIZES[2];
/// Minimum size of a volume that gets a long journal, in bytes.
const LARGE: u64 = 128 << 20;

impl Volume {
    /// Prepares the volume for changes before the first one, so that they can be committed.
    pub(super) fn begin(&mut self) -> Result<()> {
        if self.log.is_some() {
            return Ok(());
        }
        let begun = match self.read.header.has(volume_attributes::JOURNALED) {
            true => self.begin_journaled(),
            false => self
                .place_journal(self.mounts_size())
                .and_then(|place| self.begin_plain(place)),
        };
        match begun {
            // All other errors occur before the first byte is written.
            Err(error) if error.kind() == Kind::Io => self.failed.record(Err(error)),
            begun => begun,
        }?;
        self.reap_what_can_be()
    }

    /// Deletes files without a name. Those that a full volume has no room to delete are retried at
    /// the unmount.
    fn reap_what_can_be(&mut self) -> Result<()> {
        self.left_behind = false;
        match self.reap_left() {
            Err(error) if error.kind() == Kind::Limit => {
                self.left_behind = true;
                Ok(())
            }
            done => done,
        }
    }

    fn begin_journaled(&mut self) -> Result<()> {
        let journal = match Journal::find(&self.device, &self.read.header)? {
            Some(journal) => journal,
            None => self.first_use()?,
        };
        if !self
            .buffer
            .page()
            .is_multiple_of(u64::from(journal.sector()))
        {
            let message = format!(
                "the journal has a sector size of {} bytes, of which the block size of the volume \
                 is no multiple",
                journal.sector()
            );
            return Err(Error::unsupported(LAYER, message));
        }
        let count = self.header().write_count.get().wrapping_add(1);
        self.header().write_count = count.into();
        self.header().last_mounted_version = JOURNALED_BY;
        self.set_volume_attributes(0, volume_attributes::UNMOUNTED);
        self.put_header()?;
        self.log = Some(Log {
            journal,
            transient: None,
        });
        Ok(())
    }

    /// Writes the header of a journal that its formatter has left uninitialized.
    fn first_use(&self) -> Result<Journal> {
        let at = AllocBlock(self.read.header.raw.journal_info_block.get())
            .offset(self.read.header.block_size);
        let mut info: JournalInfoBlockRaw = crate::hfsplus::read_structure(&*self.device, at)?;
        self.device
            .info()
            .check(LAYER, info.offset.get(), info.size.get())?;
        if info.flags.get() & journal_flags::IN_VOLUME == 0 || info.size.get() < SIZES[2] {
            return Err(Error::unsupported(
                LAYER,
                "unsupported: the journal of the volume is on another device or too small",
            )
            .at(at));
        }
        let journal = Journal::new(
            self.device.clone(),
            info.offset.get(),
            info.size.get(),
            random()?,
        );
        journal.publish()?;
        self.device.flush()?;
        info.flags = journal_flags::IN_VOLUME.into();
        self.device.write_at(at, info.as_bytes())?;
        self.device.flush()?;
        Ok(journal)
    }

    /// Adds a permanent journal of `size` bytes, or as large as Apple's formatter makes it.
    pub(super) fn enable_journal(&mut self, size: Option<u64>) -> Result<()> {
        self.unmount()?;
        if self.read.header.has(volume_attributes::JOURNALED) {
            return Err(Error::conflict(LAYER, "the volume already has a journal"));
        }
        self.begin_plain(self.place_journal(size.unwrap_or_else(|| self.formatters_size()))?)?;
        if self.read.links.journal_count() < narrow::<u32>(JOURNAL_NAMES.len()) {
            self.unmount()?;
            let message = format!(
                "cannot create a journal: the root folder has a file with its name ({})",
                JOURNAL_NAMES.join(" or ")
            );
            return Err(Error::conflict(LAYER, message));
        }
        self.commit()?;
        // Make the transient journal permanent.
        let stayed = self.mark_journal(false);
        self.failed.record(stayed)?;
        self.read.links.show_journal_files();
        self.read.links.keep_journal_files(&self.read.catalog)?;
        if let Some(log) = &mut self.log {
            log.transient = None;
        }
        self.unmount()
    }

    /// Removes the volume's journal.
    pub(super) fn disable_journal(&mut self) -> Result<()> {
        if self.log.as_ref().is_some_and(Log::is_transient) {
            self.unmount()?;
        }
        if !self.read.header.has(volume_attributes::JOURNALED) {
            return Err(Error::not_found(LAYER, "journal"));
        }
        self.begin()?;
        self.commit()?;
        let places = recover::places(&*self.device, &self.read.header)?;
        self.check_journal_places(&places)?;
        // From here on the journal is transient, and is removed at the unmount.
        let marked = self.mark_journal(true);
        self.failed.record(marked)?;
        self.read.links.hide_journal_files(&self.read.catalog)?;
        if let Some(log) = &mut self.log {
            log.transient = Some(places);
        }
        self.unmount()
    }

    /// Refuses to free the blocks of a permanent journal, its info block and its body, if the files
    /// for them name others: those could hold something else.
    fn check_journal_places(&self, places: &[Extent]) -> Result<()> {
        for (name, place) in JOURNAL_NAMES.into_iter().zip(places.iter().rev()) {
            let mut units = Vec::new();
            encode_name(name, &mut units)?;
            let stored = match self.read.catalog.get(Cnid::ROOT, &units)? {
                Some(Object::File(file)) => Some(extents_of(&file.data_fork.extents).collect()),
                _ => None,
            };
            if stored != Some(vec![*place]) {
                let message = "the file of the journal names other blocks than its info block";
                return Err(Error::new(Kind::Corrupt, LAYER, message).named(name));
            }
        }
        Ok(())
    }

    /// Marks the journal as transient or permanent in its info block.
    fn mark_journal(&self, transient: bool) -> Result<()> {
        let at = AllocBlock(self.read.header.raw.journal_info_block.get())
            .offset(self.read.header.block_size);
        let mut info: JournalInfoBlockRaw = crate::hfsplus::read_structure(&*self.device, at)?;
        info.reserved = if transient { transient_mark() } else { [0; 43] };
        self.device.write_at(at, info.as_bytes())?;
        self.device.flush()
    }

    /// Returns the journal size in bytes that Apple's formatter would choose (§11).
    fn formatters_size(&self) -> u64 {
        let total =
            u64::from(self.read.header.total_blocks) * u64::from(self.read.header.block_size);
        journal_len(total, self.device.info().block)
    }

    /// Creates a transient journal. The order of the writes makes every state after a crash
    /// recognizable: the journal in free blocks, the mark that these are going to be allocated,
    /// their allocation, the mark that there is a journal.
    fn begin_plain(&mut self, place: Extent) -> Result<()> {
        let block_size = self.read.header.block_size;
        let (info, body) = (
            place.start,
            Extent {
                start: AllocBlock(place.start.0 + 1),
                count: place.count - 1,
            },
        );
        let (at, size) = (
            body.start.offset(block_size),
            u64::from(body.count) * u64::from(block_size),
        );
        let journal = Journal::new(self.device.clone(), at, size, random()?);
        journal.publish()?;
        self.device
            .write_at(info.offset(block_size), info_block(at, size).as_bytes())?;
        self.device.flush()?;

        let count = self.header().write_count.get().wrapping_add(1);
        self.header().write_count = count.into();
        self.header().journal_info_block = info.0.into();
        self.header().last_mounted_version = OPENING;
        self.set_volume_attributes(0, volume_attributes::UNMOUNTED);
        self.put_header()?;

        self.bitmap.mark(place, true)?;
        self.write_through()?;

        self.header().count_used(place.count);
        self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
        self.header().last_mounted_version = JOURNALED_BY;
        self.set_volume_attributes(volume_attributes::JOURNALED, 0);
        self.put_header()?;
        self.log = Some(Log {
            journal,
            transient: Some(vec![place]),
        });
        // A catalog that was built with the volume has no free node.
        self.make_room()?;
        self.step(&mut |volume| volume.add_journal_files(place))
    }

    /// Returns the size of a transient journal in bytes: a part of the free space.
    fn mounts_size(&self) -> u64 {
        let block_size = u64::from(self.read.header.block_size);
        let [large, small, least] = SIZES;
        if self.bitmap.has_ceiling() {
            return 2 * least; // what is free is needed for what has to move
        }
        let mut size = if u64::from(self.read.header.total_blocks) * block_size >= LARGE {
            large
        } else {
            small
        };
        while size > least && size > u64::from(self.read.header.free_blocks) * block_size / 4 {
            size /= 2;
        }
        size
    }

    /// Returns free blocks for a journal of `size` bytes, or fewer if there is no such run. They
    /// are at the end of the volume, where they do not obstruct growing files.
    pub(super) fn place_journal(&self, mut size: u64) -> Result<Extent> {
        let block_size = u64::from(self.read.header.block_size);
        let least = SIZES[2];
        loop {
            let count = 1 + u32::try_from(size.div_ceil(block_size)).unwrap_or(u32::MAX - 1);
            if let Some(place) = self.bitmap.find_last(count)? {
                return Ok(place);
            }
            if size <= least {
                let message = format!(
                    "not enough room for safe changes: {least} contiguous free bytes are \
                     required; create a larger image (`bandsaw create`) and copy all files \
                     (`bandsaw cp -R IMAGE:/ LARGER:/`)"
                );
                return Err(Error::limit(LAYER, message).because(Reason::VolumeFull));
            }
            size /= 2;
        }
    }

    /// Adds files for the journal and its info block, as on a volume with a permanent journal.
    fn add_journal_files(&mut self, place: Extent) -> Result<()> {
        let block_size = self.read.header.block_size;
        let body = Extent {
            start: AllocBlock(place.start.0 + 1),
            count: place.count - 1,
        };
        let head = Extent { count: 1, ..place };
        for (name, extent) in JOURNAL_NAMES.into_iter().zip([body, head]) {
            let mut units = Vec::new();
            encode_name(name, &mut units)?;
            if self.read.catalog.get(Cnid::ROOT, &units)?.is_some() {
                continue; // somebody's own file; the journal does without
            }
            let file = journal_file(
                self.next_id()?,
                self.date(),
                self.expanded_times(),
                extent,
                block_size,
            );
            self.read.links.hide_journal_file(Cnid(file.file_id.get()));
            self.insert_object(Cnid::ROOT, &units, &super::objects::file(file))?;
        }
        Ok(())
    }

    /// Removes the files of the transient journal. Their blocks remain allocated.
    fn remove_journal_files(&mut self) -> Result<()> {
        for name in JOURNAL_NAMES {
            let mut units = Vec::new();
            encode_name(name, &mut units)?;
            if let Some(object) = self.read.catalog.get(Cnid::ROOT, &units)?
                && self.read.links.is_journal_file(object.id())
            {
                self.remove_object(Cnid::ROOT, &units, &object)?;
            }
        }
        self.read.links.show_journal_files();
        Ok(())
    }

    /// Unmounts the volume cleanly. The next change mounts it again.
    pub(super) fn unmount(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        self.bitmap.give_up_all();
        if self.log.is_none() {
            return self.device.flush();
        }
        if self.left_behind {
            self.reap_what_can_be()?;
        }
        if self.log.as_ref().is_some_and(Log::is_transient) {
            self.step(&mut |volume| volume.remove_journal_files())?;
        }
        self.commit()?;
        let ended = self.end();
        self.failed.record(ended)
    }

    fn end(&mut self) -> Result<()> {
        self.device.flush()?;
        let Some(mut log) = self.log.take() else {
            return Ok(());
        };
        let mut freed = Vec::new();
        log.clear()?;
        self.device.flush()?;
        if let Some(places) = log.transient {
            // The steps of the mount in reverse order.
            self.set_volume_attributes(0, volume_attributes::JOURNALED);
            self.header().last_mounted_version = OPENING;
            for place in &places {
                self.header().count_freed(place.count);
            }
            self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
            self.put_header()?;
            places
                .iter()
                .try_for_each(|place| self.bitmap.mark(*place, false))?;
            self.write_through()?;
            self.header().journal_info_block = 0.into();
            self.header().last_mounted_version = crate::hfsplus::MADE_BY;
            freed = places;
        }
        self.set_volume_attributes(
            volume_attributes::UNMOUNTED,
            volume_attributes::BOOT_INCONSISTENT,
        );
        let alternate = self.device.info().len - HEADER_OFFSET;
        self.device
            .write_at(alternate, self.read.header.raw.as_bytes())?;
        self.put_header()?;
        if freed.is_empty() {
            return Ok(());
        }
        self.discard_free(freed.into_iter());
        self.device.flush()
    }

    /// Writes the header in place and makes it durable.
    fn put_header(&mut self) -> Result<()> {
        self.device
            .write_at(HEADER_OFFSET, self.read.header.raw.as_bytes())?;
        self.device.flush()
    }

    /// Writes the buffer in place without a journal, and makes it durable.
    fn write_through(&mut self) -> Result<()> {
        self.buffer.accept();
        for (offset, bytes) in self.buffer.runs() {
            self.device.write_at(offset, &bytes)?;
        }
        self.buffer.clear_pending();
        self.device.flush()
    }

    fn set_volume_attributes(&mut self, set: u32, clear: u32) {
        let header = self.header();
        header.attributes = (header.attributes.get() & !clear | set).into();
    }
}

/// Returns the info block of a transient journal.
fn info_block(offset: u64, size: u64) -> JournalInfoBlockRaw {
    let flags = journal_flags::IN_VOLUME.into();
    JournalInfoBlockRaw {
        flags,
        reserved: transient_mark(),
        ..JournalInfoBlockRaw::unused((offset, size))
    }
}

/// Returns the mark of a transient journal in its info block.
fn transient_mark() -> [u8; 43] {
    let mut mark = [0; 43];
    mark[..TRANSIENT.len()].copy_from_slice(TRANSIENT);
    mark
}

fn random() -> Result<u32> {
    getrandom::u32().map_err(|error| {
        Error::new(
            Kind::Io,
            LAYER,
            format!("cannot generate a random number: {error}"),
        )
    })
}
