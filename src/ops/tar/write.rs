//! Writer of an archive, member by member: ustar headers, with pax headers for values that do not
//! fit in these.

use std::io::{self, Write};

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{BLOCK, MemberRaw, USTAR, type_flag};
use super::{CREATION_TIME, FILE_FLAGS, FLAG_NAMES, LAYER, SCHILY_XATTR, number, pax};
use crate::device::BlockDevice;
use crate::fs::Timestamp;
use crate::size::to_usize;
use crate::{Error, Result};

/// The type of a member, with the data of that type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NewKind<'a> {
    /// A file with contents of this many bytes.
    File(u64),
    Folder,
    Symlink(&'a str),
    HardLink(&'a str),
    Fifo,
    /// Major and minor number.
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
}

#[derive(Debug)]
pub(crate) struct NewMember<'a> {
    /// The path, without a slash at the end.
    pub(crate) path: &'a str,
    pub(crate) kind: NewKind<'a>,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) flags: u32,
    pub(crate) modified: Timestamp,
    pub(crate) created: Option<Timestamp>,
    /// Extended attributes under their Linux names.
    pub(crate) xattrs: Vec<(String, std::sync::Arc<dyn BlockDevice>)>,
}

/// Writes an archive to a stream.
pub(crate) struct ArchiveWriter<'a> {
    out: &'a mut dyn Write,
    /// Bytes written of the member's contents.
    written: u64,
    /// The error because of which zeros replace a part of the last member's attributes.
    unreadable: Option<Error>,
    has_failed: bool,
}

/// A value of a pax record.
enum PaxValue<'a> {
    Text(String),
    Device(&'a dyn BlockDevice),
}

impl<'a> ArchiveWriter<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            written: 0,
            unreadable: None,
            has_failed: false,
        }
    }

    /// Writes the header of a member. The contents of a file follow with [`append`](Self::append),
    /// then [`pad`](Self::pad).
    pub(crate) fn member(&mut self, member: &NewMember<'_>) -> Result<()> {
        let mut records: Vec<(String, PaxValue<'_>)> = Vec::new();
        let header = header(member, &mut |key, value| {
            records.push((key.to_owned(), PaxValue::Text(value)))
        });
        for (name, value) in &member.xattrs {
            // A key ends at the first `=`, so it is escaped as GNU tar does.
            let name = name.replace('%', "%25").replace('=', "%3D");
            records.push((format!("{SCHILY_XATTR}{name}"), PaxValue::Device(&**value)));
        }
        if !records.is_empty() {
            self.pax(member, &records)?;
        }
        self.put(header.as_bytes())?;
        self.written = 0;
        Ok(())
    }

    /// Returns true if bytes could not be written, so that the archive is incomplete.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the error because of which zeros replace a part of the attributes written since the
    /// last call, whose length was already written.
    pub(crate) fn take_unreadable(&mut self) -> Option<Error> {
        self.unreadable.take()
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.put(bytes)
    }

    /// Pads the contents to a whole block.
    pub(crate) fn pad(&mut self) -> Result<()> {
        self.zeros(self.written.next_multiple_of(BLOCK) - self.written)
    }

    /// Writes the two zero blocks at the end of the archive, and flushes the stream.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.zeros(2 * BLOCK)?;
        self.out.flush().map_err(failed)
    }

    fn pax(&mut self, member: &NewMember<'_>, records: &[(String, PaxValue<'_>)]) -> Result<()> {
        let length = |key: &String, value: &PaxValue<'_>| match value {
            PaxValue::Text(text) => pax::record_length(key.len(), text.len() as u64),
            PaxValue::Device(device) => pax::record_length(key.len(), device.info().len),
        };
        let size: u64 = records.iter().map(|(key, value)| length(key, value)).sum();
        let mut header = MemberRaw::new_zeroed();
        let name = member.path.rsplit('/').next().unwrap_or_default();
        let name: String = format!("PaxHeaders/{name}")
            .chars()
            .filter(char::is_ascii)
            .take(99)
            .collect();
        put_text(&mut header.name, &name);
        number::put(&mut header.mode, 0o644);
        number::put(&mut header.uid, 0);
        number::put(&mut header.gid, 0);
        number::put(&mut header.mtime, 0);
        if !number::put(&mut header.size, size) {
            return Err(
                Error::limit(LAYER, "extended attributes of more than 8 GiB").named(member.path),
            );
        }
        header.typeflag = type_flag::PAX;
        self.put(sealed(header).as_bytes())?;
        for (key, value) in records {
            self.put(format!("{} {key}=", length(key, value)).as_bytes())?;
            match value {
                PaxValue::Text(text) => self.put(text.as_bytes())?,
                PaxValue::Device(device) => self.copy(*device)?,
            }
            self.put(b"\n")?;
        }
        self.zeros(size.next_multiple_of(BLOCK) - size)
    }

    fn copy(&mut self, device: &dyn BlockDevice) -> Result<()> {
        let (len, mut at) = (device.info().len, 0);
        let mut buffer = vec![0; to_usize(len.min(1 << 20))];
        while at < len {
            let piece = &mut buffer[..to_usize((len - at).min(1 << 20))];
            if let Err(error) = device.read_at(at, piece) {
                piece.fill(0);
                self.unreadable.get_or_insert(error);
            }
            self.put(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn zeros(&mut self, count: u64) -> Result<()> {
        self.put(&vec![0; to_usize(count)])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes).map_err(failed);
        self.has_failed |= written.is_err();
        written
    }
}

fn failed(error: io::Error) -> Error {
    Error::io(LAYER, "write", error)
}

fn sealed(mut header: MemberRaw) -> MemberRaw {
    (header.magic, header.version) = (USTAR, *b"00");
    header.seal();
    header
}

/// Returns the header of a member. Values that do not fit are passed to `extend` with their pax
/// key.
fn header(member: &NewMember<'_>, extend: &mut dyn FnMut(&str, String)) -> MemberRaw {
    let mut header = MemberRaw::new_zeroed();
    let slash = if matches!(member.kind, NewKind::Folder) {
        "/"
    } else {
        ""
    };
    let path = format!("{}{slash}", member.path);
    if !put_text(&mut header.name, &path) || !path.is_ascii() {
        extend("path", path);
    }
    number::put(&mut header.mode, u64::from(member.mode));
    let mut put = |field: &mut [u8], key: &str, number: u64| {
        if !number::put(field, number) {
            number::put(field, 0);
            extend(key, number.to_string());
        }
    };
    put(&mut header.uid, "uid", member.uid.into());
    put(&mut header.gid, "gid", member.gid.into());
    put(
        &mut header.size,
        "size",
        if let NewKind::File(len) = member.kind {
            len
        } else {
            0
        },
    );
    let (flag, link, device) = match member.kind {
        NewKind::File(_) => (type_flag::FILE, "", (0, 0)),
        NewKind::Folder => (type_flag::FOLDER, "", (0, 0)),
        NewKind::Symlink(target) => (type_flag::SYMLINK, target, (0, 0)),
        NewKind::HardLink(target) => (type_flag::HARD_LINK, target, (0, 0)),
        NewKind::Fifo => (type_flag::FIFO, "", (0, 0)),
        NewKind::CharDevice(major, minor) => (type_flag::CHAR_DEVICE, "", (major, minor)),
        NewKind::BlockDevice(major, minor) => (type_flag::BLOCK_DEVICE, "", (major, minor)),
    };
    header.typeflag = flag;
    // 24 bits of minor number are eight octal digits, one more than fit before a zero byte.
    put_device(&mut header.dev_major, device.0);
    put_device(&mut header.dev_minor, device.1);
    if !put_text(&mut header.linkname, link) || !link.is_ascii() {
        extend("linkpath", link.to_owned());
    }
    let whole = u64::try_from(member.modified.seconds)
        .is_ok_and(|seconds| number::put(&mut header.mtime, seconds));
    if !whole || member.modified.nanos != 0 {
        extend("mtime", date(member.modified));
    }
    if let Some(created) = member.created {
        extend(CREATION_TIME, date(created));
    }
    let flags: Vec<&str> = FLAG_NAMES
        .iter()
        .filter(|(_, flag)| member.flags & flag != 0)
        .map(|(name, _)| *name)
        .collect();
    if !flags.is_empty() {
        extend(FILE_FLAGS, flags.join(","));
    }
    sealed(header)
}

fn put_device(field: &mut [u8; 8], number: u32) {
    field.copy_from_slice(
        format!("{number:08o}")
            .as_bytes()
            .last_chunk::<8>()
            .unwrap_or(b"00000000"),
    );
}

/// Writes text to a field. Returns `false` if it is too long and was truncated.
fn put_text(field: &mut [u8; 100], text: &str) -> bool {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    text.len() <= field.len()
}

/// Returns the seconds since 1970, with a fraction if there is one.
fn date(moment: Timestamp) -> String {
    match (moment.seconds, moment.nanos) {
        (seconds, 0) => seconds.to_string(),
        (seconds @ 0.., nanos) => format!("{seconds}.{nanos:09}"),
        // Nanoseconds count forward, decimals away from zero.
        (seconds, nanos) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
    }
}
