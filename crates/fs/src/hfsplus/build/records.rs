//! Catalog records built from nodes.

use zerocopy::FromBytes;

use super::forks::{self, ForkPart, NodeBlocks};
use crate::build::tree::flags;
use crate::hfsplus::layout::{
    AllocBlock, BsdInfoRaw, Cnid, DatesRaw, ExtendedInfoRaw, Extent, FILE_LINK_TYPE, FileInfoRaw,
    FileRaw, FolderInfoRaw, FolderRaw, ForkRaw, JOURNAL_TYPE, SECURITY, SYMLINK_TYPE, finder_flags,
    mac_date, mode_type, record_flags, record_type,
};
use crate::source::{SourceKind, SourceNode, Stream};
use crate::{FINDER_INFO, Timestamp, UF_HIDDEN};

/// `textEncoding` of Unicode names, as Apple's formatter writes it for the root.
const ENCODING_UNICODE: u32 = 126;
/// The immutable BSD flag of the private folder and of hard links: only the kernel changes them.
const UF_IMMUTABLE: u8 = 0x02;

/// Returns the record of one of the two files of a journal, which takes all of `extent` and was
/// created at `date`.
pub(in crate::hfsplus) fn journal_file(
    cnid: Cnid,
    date: u32,
    expanded: bool,
    extent: Extent,
    block_size: u32,
) -> FileRaw {
    let mut data_fork = ForkRaw {
        logical_size: (u64::from(extent.count) * u64::from(block_size)).into(),
        total_blocks: extent.count.into(),
        ..Default::default()
    };
    data_fork.extents[0] = extent.into();
    let date = date.into();
    let (file_type, creator) = JOURNAL_TYPE;
    let finder_flags = (finder_flags::INVISIBLE | finder_flags::NAME_LOCKED).into();
    FileRaw {
        record_type: record_type::FILE.into(),
        flags: (record_flags::THREAD_EXISTS | times_flag(expanded)).into(),
        file_id: cnid.0.into(),
        dates: DatesRaw {
            create: date,
            content_mod: date,
            attribute_mod: date,
            access: date,
            backup: 0.into(),
        },
        bsd: BsdInfoRaw {
            file_mode: mode_type::FILE.into(),
            special: 1.into(),
            ..Default::default()
        },
        user_info: FileInfoRaw {
            file_type,
            creator,
            finder_flags,
            ..Default::default()
        },
        data_fork,
        ..Default::default()
    }
}

/// Returns the flag of a record whose dates count from 1970 if `expanded`.
pub(in crate::hfsplus) fn times_flag(expanded: bool) -> u16 {
    if expanded {
        record_flags::EXPANDED_TIMES
    } else {
        0
    }
}

/// Properties common to all records of a volume.
#[derive(Debug, Clone, Copy)]
pub(in crate::hfsplus) struct RecordStyle {
    /// Creation date of the volume, and of the root folder, by which macOS recognizes hard links.
    pub(in crate::hfsplus) created: Timestamp,
    /// Upper limit of all dates.
    pub(in crate::hfsplus) latest: Option<Timestamp>,
    /// True if dates count from 1970 instead of 1904.
    pub(in crate::hfsplus) expanded: bool,
    /// True if folders record the number of folders in them.
    pub(in crate::hfsplus) hfsx: bool,
}

impl RecordStyle {
    fn date(&self, moment: Timestamp) -> u32 {
        let moment = self.latest.map_or(moment, |latest| moment.min(latest));
        // macOS replaces dates before 1970 by 1970; Linux reads them as dates in the future.
        mac_date(moment.max(Timestamp::from_seconds(0)), self.expanded)
    }

    fn dates(&self, source: &SourceNode) -> DatesRaw {
        DatesRaw {
            create: self.date(source.created.unwrap_or(source.modified)).into(),
            content_mod: self.date(source.modified).into(),
            attribute_mod: self.date(source.changed.unwrap_or(source.modified)).into(),
            access: self.date(source.accessed.unwrap_or(source.modified)).into(),
            backup: 0.into(),
        }
    }

    /// Returns the second half of the Finder information with the date on which the object was
    /// added to its folder, as macOS sets it.
    fn added(&self, info: ExtendedInfoRaw) -> ExtendedInfoRaw {
        let created = self
            .latest
            .map_or(self.created, |latest| self.created.min(latest));
        let date_added = u32::try_from(created.seconds.max(0)).unwrap_or(u32::MAX);
        // The other counters that macOS maintains start from zero.
        ExtendedInfoRaw {
            document_id: 0.into(),
            date_added: date_added.into(),
            write_generation: 0.into(),
            ..info
        }
    }

    fn own_dates(&self) -> DatesRaw {
        let created = self.date(self.created).into();
        DatesRaw {
            create: created,
            content_mod: created,
            attribute_mod: created,
            access: created,
            backup: 0.into(),
        }
    }

    /// Returns the creation date of the volume.
    pub(super) fn volume_date(&self) -> u32 {
        self.date(self.created)
    }

    /// Returns the record of a folder with `valence` entries, of which `folders` are folders.
    pub(super) fn folder(
        &self,
        source: &SourceNode,
        cnid: Cnid,
        valence: u32,
        folders: u32,
    ) -> FolderRaw {
        let (user_info, finder_info) = finder_info::<FolderInfoRaw>(source);
        let mut flags =
            record_flags::HAS_DATE_ADDED | attribute_flags(source) | times_flag(self.expanded);
        if self.hfsx {
            flags |= record_flags::HAS_FOLDER_COUNT;
        }
        let mut record = FolderRaw {
            record_type: record_type::FOLDER.into(),
            flags: flags.into(),
            valence: valence.into(),
            folder_id: cnid.0.into(),
            dates: self.dates(source),
            bsd: bsd(source, 1),
            user_info,
            finder_info: self.added(finder_info),
            text_encoding: 0.into(),
            folder_count: if self.hfsx { folders } else { 0 }.into(),
        };
        if cnid == Cnid::ROOT {
            record.dates.create = self.volume_date().into();
            record.bsd.special = 0.into();
            record.text_encoding = ENCODING_UNICODE.into();
        }
        if source.flags & UF_HIDDEN != 0 {
            record.user_info.finder_flags =
                (record.user_info.finder_flags.get() | finder_flags::INVISIBLE).into();
        }
        record
    }

    /// Returns the record of anything but a folder, whose body begins at block `first`.
    pub(super) fn file(
        &self,
        source: &SourceNode,
        cnid: Cnid,
        blocks: &NodeBlocks,
        first: AllocBlock,
    ) -> FileRaw {
        let (mut user_info, mut finder_info) = finder_info::<FileInfoRaw>(source);
        let mut flags =
            record_flags::THREAD_EXISTS | attribute_flags(source) | times_flag(self.expanded);
        if matches!(source.kind, SourceKind::Symlink(_)) {
            (user_info.file_type, user_info.creator) = SYMLINK_TYPE;
        } else {
            flags |= record_flags::HAS_DATE_ADDED;
            finder_info = self.added(finder_info);
        }
        if source.flags & UF_HIDDEN != 0 {
            user_info.finder_flags =
                (user_info.finder_flags.get() | finder_flags::INVISIBLE).into();
        }
        let special = match source.kind {
            SourceKind::Special(_, device) => device,
            _ => 1,
        };
        FileRaw {
            record_type: record_type::FILE.into(),
            flags: flags.into(),
            first_link: 0.into(),
            file_id: cnid.0.into(),
            dates: self.dates(source),
            bsd: bsd(source, special),
            user_info,
            finder_info,
            text_encoding: 0.into(),
            reserved2: 0.into(),
            data_fork: blocks.fork(source, first, ForkPart::Data),
            resource_fork: blocks.fork(source, first, ForkPart::Resource),
        }
    }

    /// Returns the record of a name of the hard-linked file `target`, between the links `previous`
    /// and `next`.
    pub(in crate::hfsplus) fn link(
        &self,
        cnid: Cnid,
        target: Cnid,
        previous: Option<Cnid>,
        next: Option<Cnid>,
    ) -> FileRaw {
        let number = |cnid: Option<Cnid>| cnid.map_or(0, |cnid| cnid.0);
        let (file_type, creator) = FILE_LINK_TYPE;
        FileRaw {
            record_type: record_type::FILE.into(),
            flags: (record_flags::THREAD_EXISTS
                | record_flags::HAS_LINK_CHAIN
                | times_flag(self.expanded))
            .into(),
            file_id: cnid.0.into(),
            dates: self.own_dates(),
            bsd: BsdInfoRaw {
                owner_id: number(previous).into(),
                group_id: number(next).into(),
                admin_flags: 0,
                owner_flags: UF_IMMUTABLE,
                file_mode: (mode_type::FILE | 0o444).into(),
                special: target.0.into(),
            },
            user_info: FileInfoRaw {
                file_type,
                creator,
                finder_flags: finder_flags::INITED.into(),
                ..Default::default()
            },
            text_encoding: ENCODING_UNICODE.into(),
            ..Default::default()
        }
    }

    /// Returns the record of the private folder with `valence` hard-linked files in it.
    pub(in crate::hfsplus) fn private_folder(&self, cnid: Cnid, valence: u32) -> FolderRaw {
        FolderRaw {
            record_type: record_type::FOLDER.into(),
            flags: (record_flags::HAS_FOLDER_COUNT | times_flag(self.expanded)).into(),
            valence: valence.into(),
            folder_id: cnid.0.into(),
            dates: self.own_dates(),
            bsd: BsdInfoRaw {
                owner_flags: UF_IMMUTABLE,
                file_mode: mode_type::FOLDER.into(),
                special: 1.into(),
                ..Default::default()
            },
            user_info: FolderInfoRaw {
                finder_flags: (finder_flags::INVISIBLE | finder_flags::NAME_LOCKED).into(),
                // Outside of any screen.
                location: [0x4000.into(), 0x4000.into()],
                ..Default::default()
            },
            ..Default::default()
        }
    }
}

fn bsd(source: &SourceNode, special: u32) -> BsdInfoRaw {
    let [_, admin_flags, _, owner_flags] = flags(source).to_be_bytes();
    BsdInfoRaw {
        owner_id: source.uid.into(),
        group_id: source.gid.into(),
        admin_flags,
        owner_flags,
        file_mode: mode_type::mode_of(source).into(),
        special: special.into(),
    }
}

fn attribute_flags(source: &SourceNode) -> u16 {
    forks::attributes(source).fold(0, |flags, (_, name, _)| {
        flags
            | record_flags::HAS_ATTRIBUTES
            | if name == SECURITY {
                record_flags::HAS_SECURITY
            } else {
                0
            }
    })
}

/// Returns both halves of the Finder information, zero if there is none.
fn finder_info<T: FromBytes + Default>(source: &SourceNode) -> (T, ExtendedInfoRaw) {
    let found = source.xattrs.iter().find_map(|(name, value)| match value {
        Stream::Bytes(bytes) if &**name == FINDER_INFO => Some(bytes),
        _ => None,
    });
    let parsed = found.and_then(|bytes| {
        let (user_info, rest) = T::read_from_prefix(bytes).ok()?;
        Some((user_info, ExtendedInfoRaw::read_from_prefix(rest).ok()?.0))
    });
    parsed.unwrap_or_default()
}
