//! Records in bytes that no tree refers to. A record is recognized by its own fields alone, so these are
//! compared more strictly than in a tree.

use zerocopy::FromBytes;

use crate::hfsplus::layout::{
    ATTRIBUTES_MIN_KEY_LENGTH, AttributeKey, AttributeKeyHeadRaw, AttributeRecord,
    CATALOG_MIN_KEY_LENGTH, CatalogKey, CatalogKeyHeadRaw, CatalogRecord, Cnid, EXTENTS_KEY_LENGTH,
    Extent, ExtentRecordRaw, ExtentsRaw, FileRaw, FolderRaw, ForkRaw, InlineAttributeHeadRaw,
    MAX_NAME_UNITS, Thread, ThreadHeadRaw, extents_of, fork_type, mode_type, record_flags,
};

/// Upper limit for the length of a record of the catalog or of the extents tree, in bytes.
pub(super) const MAX_RECORD: usize = 1024;

/// The size of a volume, which records must fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) block_size: u32,
    pub(super) total_blocks: u32,
}

/// A record of the catalog.
#[derive(Debug, Clone, Copy)]
pub(super) enum Carved<'a> {
    File(CatalogKey<'a>, &'a FileRaw),
    Folder(CatalogKey<'a>, &'a FolderRaw),
    /// The thread of the object with this number.
    Thread(Cnid, Thread<'a>),
}

/// Returns the record of the catalog at the beginning of `bytes`, and its length.
pub(super) fn catalog(bytes: &[u8], limits: Limits) -> Option<(Carved<'_>, usize)> {
    let (head, _) = CatalogKeyHeadRaw::ref_from_prefix(bytes).ok()?;
    let (key_length, name_length) = (head.key_length.get(), head.name_length.get());
    // Most positions fail here.
    if usize::from(name_length) > MAX_NAME_UNITS
        || key_length != CATALOG_MIN_KEY_LENGTH + 2 * name_length
    {
        return None;
    }
    let (key, data) = CatalogKey::split(bytes)?;
    let key_len = bytes.len() - data.len();
    match CatalogRecord::parse(data)? {
        CatalogRecord::File(file) => {
            let is_sound = !key.name.is_empty()
                && key.parent >= Cnid::ROOT
                && file.file_id.get() >= Cnid::FIRST_USER.0
                && has_known_flags(file.flags.get())
                && has_mode(file.bsd.file_mode.get(), false)
                && has_sound_fork(&file.data_fork, limits)
                && has_sound_fork(&file.resource_fork, limits);
            is_sound.then_some((Carved::File(key, file), key_len + size_of::<FileRaw>()))
        }
        CatalogRecord::Folder(folder) => {
            let is_sound = !key.name.is_empty()
                && key.parent >= Cnid::ROOT_PARENT
                && folder.folder_id.get() >= Cnid::FIRST_USER.0
                && has_known_flags(folder.flags.get())
                && has_mode(folder.bsd.file_mode.get(), true);
            is_sound.then_some((
                Carved::Folder(key, folder),
                key_len + size_of::<FolderRaw>(),
            ))
        }
        CatalogRecord::Thread(thread) => {
            let is_sound = key.name.is_empty()
                && key.parent >= Cnid::FIRST_USER
                && thread.parent >= Cnid::ROOT
                && data.get(2..4) == Some(&[0, 0])
                && !thread.name.is_empty();
            let len = key_len + size_of::<ThreadHeadRaw>() + size_of_val(thread.name);
            is_sound.then_some((Carved::Thread(key.parent, thread), len))
        }
    }
}

fn has_known_flags(flags: u16) -> bool {
    flags & !(record_flags::EXPANDED_TIMES | 0x01FF) == 0
}

fn has_mode(mode: u16, is_folder: bool) -> bool {
    let kind = mode & mode_type::MASK;
    let is_of_folder = kind == mode_type::FOLDER;
    mode == 0
        || (is_of_folder == is_folder
            && (is_of_folder
                || mode_type::kind_of(mode) != crate::FileKind::File
                || kind == mode_type::FILE))
}

/// Returns true if the sizes and extents of a fork agree with each other and with the volume.
fn has_sound_fork(fork: &ForkRaw, limits: Limits) -> bool {
    let blocks = u64::from(fork.total_blocks.get());
    let is_size_sound = blocks <= limits.total_blocks.into()
        && fork.logical_size.get() <= blocks * u64::from(limits.block_size);
    is_size_sound
        && count(&fork.extents, limits).is_some_and(|(found, is_full)| {
            found == blocks || (found < blocks && is_full && found > 0)
        })
}

/// Returns the number of blocks in a record of extents, and true if none of its extents is empty. `None`
/// if an extent is outside of the volume, or follows an empty one.
fn count(extents: &ExtentsRaw, limits: Limits) -> Option<(u64, bool)> {
    let (mut total, mut has_ended) = (0, false);
    for extent in extents {
        let (start, count) = (extent.start_block.get(), extent.block_count.get());
        let end = u64::from(start) + u64::from(count);
        if count == 0 {
            has_ended = true;
        } else if has_ended || end > limits.total_blocks.into() {
            return None;
        }
        total += u64::from(count);
    }
    Some((total, !has_ended))
}

/// Returns the extents of a fork's record up to its logical size: those behind it may be allocated in advance.
pub(super) fn used_extents(fork: &ForkRaw, block_size: u32) -> impl Iterator<Item = Extent> + '_ {
    let mut left = fork.logical_size.get().div_ceil(block_size.into());
    extents_of(&fork.extents).map_while(move |extent| {
        let count = left.min(extent.count.into());
        left -= count;
        let count = u32::try_from(count).ok().filter(|&count| count > 0)?;
        Some(Extent { count, ..extent })
    })
}

/// Returns the record of the extents tree at the beginning of `bytes`.
pub(super) fn overflow(bytes: &[u8], limits: Limits) -> Option<ExtentRecordRaw> {
    if *bytes.first_chunk()? != EXTENTS_KEY_LENGTH.to_be_bytes() {
        return None;
    }
    let (record, _) = ExtentRecordRaw::read_from_prefix(bytes).ok()?;
    let key = &record.key;
    let is_sound = key.pad == 0
        && matches!(key.fork_type, fork_type::DATA | fork_type::RESOURCE)
        && key.file_id.get() >= Cnid::FIRST_USER.0
        && key.start_block.get() > 0
        && key.start_block.get() <= limits.total_blocks
        && count(&record.extents, limits).is_some_and(|(blocks, _)| blocks > 0);
    is_sound.then_some(record)
}

/// Returns the key and the value of the attribute record at the beginning of `bytes`, whose value is
/// stored in it, and the record's length.
pub(super) fn attribute(bytes: &[u8]) -> Option<(AttributeKey<'_>, &[u8], usize)> {
    let (head, _) = AttributeKeyHeadRaw::ref_from_prefix(bytes).ok()?;
    let (key_length, name_length) = (head.key_length.get(), head.name_length.get());
    if head.pad != 0
        || name_length == 0
        || usize::from(name_length) > MAX_NAME_UNITS
        || key_length != ATTRIBUTES_MIN_KEY_LENGTH + 2 * name_length
    {
        return None;
    }
    let (key, data) = AttributeKey::split(bytes)?;
    if key.file < Cnid::FIRST_USER || key.start_block != 0 || data.get(4..12)? != [0; 8] {
        return None;
    }
    let AttributeRecord::Inline(value) = AttributeRecord::parse(data)? else {
        return None;
    };
    let len = bytes.len() - data.len() + size_of::<InlineAttributeHeadRaw>() + value.len();
    Some((key, value, len))
}
