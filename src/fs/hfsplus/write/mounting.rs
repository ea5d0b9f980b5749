//! From a clean volume to a clean volume: the first change, commits, unmounting (§14.5, §18).

use zerocopy::IntoBytes;

use super::LAYER;
use super::log::Log;
use super::recover::{self, OPENING};
use super::volume::Volume;
use crate::fs::hfsplus::build::journal_len;
use crate::fs::hfsplus::build::records::journal_file;
use crate::fs::hfsplus::journal::{Journal, TRANSIENT};
use crate::fs::hfsplus::layout::{
    AllocBlock, Cnid, Extent, HEADER_OFFSET, JournalInfoBlockRaw, journal_flags, volume_attributes,
};
use crate::fs::hfsplus::links::JOURNAL_NAMES;
use crate::fs::hfsplus::unicode::encode_name;
use crate::{Error, Kind, Result};

/// Who last wrote a volume without a journal.
pub(super) const MADE_BY: [u8; 4] = *b"bsaw";
/// Who last wrote a volume with one: what macOS knows for one that it may replay.
const JOURNALED_BY: [u8; 4] = *b"HFSJ";
/// The journal of a mount on a volume of at least [`LARGE`] bytes and on smaller ones; and the
/// least that will do.
const SIZES: [u64; 3] = [8 << 20, 512 << 10, 64 << 10];
/// The least journal that will do.
pub(super) const LEAST_JOURNAL: u64 = SIZES[2];
/// Volumes this large have a long journal.
const LARGE: u64 = 128 << 20;

impl Volume {
    /// Makes sure that changes can be committed. Whatever a volume needs before its first change
    /// happens here.
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
            // Anything else was found out before the first byte was written.
            Err(error) if error.kind() == Kind::Io => self.failed.note(Err(error)),
            begun => begun,
        }?;
        self.reap_what_can_be()
    }

    /// Removes what is left without a name, but for what a full volume has no room to remove: that
    /// is tried again at the end.
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
                "a journal of {} bytes a sector does not fit the volume's blocks",
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

    /// Makes the header of a journal that its formatter has left to its first user.
    fn first_use(&self) -> Result<Journal> {
        let at = AllocBlock(self.read.header.raw.journal_info_block.get())
            .offset(self.read.header.block_size);
        let mut info: JournalInfoBlockRaw = crate::fs::hfsplus::read_structure(&*self.device, at)?;
        self.device
            .info()
            .check(LAYER, info.offset.get(), info.size.get())?;
        if info.flags.get() & journal_flags::IN_VOLUME == 0 || info.size.get() < SIZES[2] {
            return Err(Error::unsupported(LAYER, "a journal in the volume expected").at(at));
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

    /// Gives a volume a journal that stays: of `size` bytes, or as large as Apple's formatter makes
    /// it.
    pub(super) fn enable_journal(&mut self, size: Option<u64>) -> Result<()> {
        self.unmount()?;
        if self.read.header.has(volume_attributes::JOURNALED) {
            return Err(Error::new(
                Kind::Conflict,
                LAYER,
                "the volume has a journal already",
            ));
        }
        self.begin_plain(self.place_journal(size.unwrap_or_else(|| self.formatters_size()))?)?;
        if self.read.links.journal_count() < JOURNAL_NAMES.len() as u32 {
            self.unmount()?;
            let message = format!(
                "files named {} are in the root folder",
                JOURNAL_NAMES.join(" or ")
            );
            return Err(Error::new(Kind::Conflict, LAYER, message));
        }
        self.commit()?;
        // What the mount was to take away stays.
        let stayed = self.mark_journal(false);
        self.failed.note(stayed)?;
        self.read.links.show_journal_files();
        self.read.links.keep_journal_files(&self.read.catalog)?;
        if let Some(log) = &mut self.log {
            log.transient = None;
        }
        self.unmount()
    }

    /// Takes a volume's journal away.
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
        // From here on it is a journal that goes with the mount.
        let marked = self.mark_journal(true);
        self.failed.note(marked)?;
        self.read.links.hide_journal_files(&self.read.catalog)?;
        if let Some(log) = &mut self.log {
            log.transient = Some(places);
        }
        self.unmount()
    }

    /// Enters in the info block whether the journal goes with the mount.
    fn mark_journal(&self, transient: bool) -> Result<()> {
        let at = AllocBlock(self.read.header.raw.journal_info_block.get())
            .offset(self.read.header.block_size);
        let mut info: JournalInfoBlockRaw = crate::fs::hfsplus::read_structure(&*self.device, at)?;
        info.reserved = if transient { transient_mark() } else { [0; 43] };
        self.device.write_at(at, info.as_bytes())?;
        self.device.flush()
    }

    /// As large as Apple's formatter makes it (§11).
    fn formatters_size(&self) -> u64 {
        let total =
            u64::from(self.read.header.total_blocks) * u64::from(self.read.header.block_size);
        journal_len(total, self.device.info().block)
    }

    /// Gives a volume without a journal one for the mount. In this order, because whatever a crash
    /// leaves must be told: the journal in free blocks, that these are going to be used, that they
    /// are used, that there is a journal.
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

        self.bitmap.change(place, true, true)?;
        self.write_through()?;

        self.header().free_blocks -= place.count;
        self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
        self.header().last_mounted_version = JOURNALED_BY;
        self.set_volume_attributes(volume_attributes::JOURNALED, 0);
        self.put_header()?;
        self.log = Some(Log {
            journal,
            transient: Some(vec![place]),
        });
        // A catalog that was built has no node to spare.
        self.make_room()?;
        self.step(&mut |volume| volume.add_journal_files(place))
    }

    /// Bytes of the journal of a mount: a part of what is free.
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

    /// Free blocks for a journal of `size` bytes, or fewer if that many are nowhere together; at
    /// the end, where they are in nobody's way.
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
                    "no {least} free bytes together, which are needed to make changes safely; `bandsaw create` makes a larger image, \
                     and `bandsaw cp -R IMAGE:/ LARGER:/` copies everything into it"
                );
                return Err(Error::new(Kind::Limit, LAYER, message));
            }
            size /= 2;
        }
    }

    /// Enters the journal and its info block as files, as a volume with a journal has them.
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
            let file = journal_file(self.next_id()?, self.date(), extent, block_size);
            self.read.links.hide_journal_file(Cnid(file.file_id.get()));
            self.enter(Cnid::ROOT, &units, &super::objects::file(file))?;
        }
        Ok(())
    }

    /// Takes the files of the mount's journal out again. Their blocks stay used.
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

    /// Leaves the volume clean. The next change begins anew.
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
        self.failed.note(ended)
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
            // The same steps as at the beginning, backwards.
            self.set_volume_attributes(0, volume_attributes::JOURNALED);
            self.header().last_mounted_version = OPENING;
            for place in &places {
                self.header().free_blocks += place.count;
            }
            self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
            self.put_header()?;
            places
                .iter()
                .try_for_each(|place| self.bitmap.change(*place, false, true))?;
            self.write_through()?;
            self.header().journal_info_block = 0.into();
            self.header().last_mounted_version = MADE_BY;
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

    /// Writes the header in place, durably.
    fn put_header(&mut self) -> Result<()> {
        self.device
            .write_at(HEADER_OFFSET, self.read.header.raw.as_bytes())?;
        self.device.flush()
    }

    /// Writes what the buffer holds in place, durably, without a journal.
    fn write_through(&mut self) -> Result<()> {
        self.buffer.accept();
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

/// The info block of a journal that goes away with the mount.
fn info_block(offset: u64, size: u64) -> JournalInfoBlockRaw {
    let flags = journal_flags::IN_VOLUME.into();
    JournalInfoBlockRaw {
        flags,
        reserved: transient_mark(),
        ..JournalInfoBlockRaw::unused((offset, size))
    }
}

/// What tells an info block that its journal goes with the mount.
fn transient_mark() -> [u8; 43] {
    let mut mark = [0; 43];
    mark[..TRANSIENT.len()].copy_from_slice(TRANSIENT);
    mark
}

fn random() -> Result<u32> {
    getrandom::u32()
        .map_err(|error| Error::new(Kind::Io, LAYER, format!("no random number: {error}")))
}
