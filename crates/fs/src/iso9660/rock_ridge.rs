//! Rock Ridge (RRIP 1.12): names, modes, owners, times, links, devices and relocated directories, in
//! entries of the system use field.

use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{self, BothU32, ContinuationRaw, DeviceRaw, PosixRaw};
use super::system_use::Field;
use crate::Timestamp;
use bandsaw_core::{Error, Kind, Result};

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 1024;
/// Maximum length of the target of a symbolic link in bytes.
const MAX_TARGET: usize = 4096;

/// Flags of names that stand for the directory itself, its parent, or the host (4.1.4).
const SPECIAL_NAME: u8 = 0x02 | 0x04 | 0x20;

/// Flags of components of links (4.1.3.1).
mod component_flags {
    pub(super) const CONTINUED: u8 = 0x01;
    pub(super) const CURRENT: u8 = 0x02;
    pub(super) const PARENT: u8 = 0x04;
    pub(super) const ROOT: u8 = 0x08;
}

/// Flags of times (4.1.6). The times are in the order of their bits.
mod time_flags {
    pub(super) const CREATED: u8 = 0x01;
    pub(super) const MODIFIED: u8 = 0x02;
    pub(super) const ACCESSED: u8 = 0x04;
    pub(super) const CHANGED: u8 = 0x08;
    pub(super) const BACKED_UP: u8 = 0x10;
    pub(super) const LONG: u8 = 0x80;
}

/// The mode and the owners of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct PosixAttributes {
    /// With the type bits of POSIX.
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The entries of a record, as far as they are used.
#[derive(Debug, Default)]
pub(super) struct RockRidge {
    pub(super) posix: Option<PosixAttributes>,
    /// Device number in the format of macOS.
    pub(super) device: u32,
    name: Option<Vec<u8>>,
    target: Option<LinkTarget>,
    pub(super) created: Option<Timestamp>,
    pub(super) modified: Option<Timestamp>,
    pub(super) accessed: Option<Timestamp>,
    pub(super) changed: Option<Timestamp>,
    pub(super) backed_up: Option<Timestamp>,
    /// The first block of the directory in whose place this record is.
    pub(super) moved_to: Option<u32>,
    /// True if the directory is shown in another place.
    pub(super) is_moved: bool,
    /// The feature by which the contents are encoded.
    pub(super) encoding: Option<&'static str>,
}

/// The target of a symbolic link, as far as it was read.
#[derive(Debug, Default)]
struct LinkTarget {
    path: Vec<u8>,
    /// True if the next component continues the last one.
    is_continued: bool,
}

impl RockRidge {
    /// Adds an entry. Returns the place of more entries if it is that.
    pub(super) fn add(&mut self, field: Field<'_>) -> Result<Option<ContinuationRaw>> {
        match &field.signature {
            b"CE" => return Ok(part(field.data)),
            b"PX" => self.posix = part(field.data).map(posix).or(self.posix),
            b"PN" => self.device = part(field.data).map_or(self.device, device),
            b"NM" => self.add_name(field.data)?,
            b"SL" => self.add_target(field.data)?,
            b"TF" => self.add_times(field.data),
            b"CL" => self.moved_to = part::<BothU32>(field.data).map(BothU32::get),
            b"RE" => self.is_moved = true,
            b"ZF" => self.encoding = Some("files compressed by zisofs"),
            b"SF" => self.encoding = Some("sparse files of Rock Ridge"),
            _ => {}
        }
        Ok(None)
    }

    /// Returns the name, if there is one.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    /// Returns the target of the symbolic link, if there is one.
    pub(super) fn target(&self) -> Option<&[u8]> {
        self.target.as_ref().map(|target| &*target.path)
    }

    fn add_name(&mut self, data: &[u8]) -> Result<()> {
        let Some((&flags, name)) = data.split_first() else {
            return Ok(());
        };
        if flags & SPECIAL_NAME != 0 {
            return Ok(());
        }
        let all = self.name.get_or_insert_default();
        if all.len() + name.len() > MAX_NAME {
            return Err(too_long("a name", MAX_NAME));
        }
        all.extend(name);
        Ok(())
    }

    fn add_target(&mut self, data: &[u8]) -> Result<()> {
        let target = self.target.get_or_insert_default();
        let mut rest = data.get(1..).unwrap_or_default();
        while let Some((&[flags, len], after)) = rest.split_first_chunk() {
            let Some((name, after)) = after.split_at_checked(usize::from(len)) else {
                break;
            };
            target.add(flags, name)?;
            rest = after;
        }
        Ok(())
    }

    fn add_times(&mut self, data: &[u8]) {
        let Some((&flags, mut rest)) = data.split_first() else {
            return;
        };
        for bit in (0..7)
            .map(|shift| 1_u8 << shift)
            .filter(|bit| flags & bit != 0)
        {
            let time;
            if flags & time_flags::LONG != 0 {
                let Some((&bytes, after)) = rest.split_first_chunk() else {
                    return;
                };
                (time, rest) = (layout::long_date(bytes), after);
            } else {
                let Some((&bytes, after)) = rest.split_first_chunk() else {
                    return;
                };
                (time, rest) = (layout::short_date(bytes), after);
            }
            match bit {
                time_flags::CREATED => self.created = time,
                time_flags::MODIFIED => self.modified = time,
                time_flags::ACCESSED => self.accessed = time,
                time_flags::CHANGED => self.changed = time,
                time_flags::BACKED_UP => self.backed_up = time,
                _ => {}
            }
        }
    }
}

impl LinkTarget {
    fn add(&mut self, flags: u8, name: &[u8]) -> Result<()> {
        let name = match flags {
            _ if flags & component_flags::CURRENT != 0 => &b"."[..],
            _ if flags & component_flags::PARENT != 0 => b"..",
            _ => name,
        };
        if self.path.len() + name.len() + 1 > MAX_TARGET {
            return Err(too_long("the target of a symbolic link", MAX_TARGET));
        }
        let is_continued = std::mem::replace(
            &mut self.is_continued,
            flags & component_flags::CONTINUED != 0,
        );
        if flags & component_flags::ROOT != 0 {
            self.path = b"/".to_vec();
            return Ok(());
        }
        let is_first = self.path.is_empty() || self.path.ends_with(b"/");
        if !is_first && !is_continued {
            self.path.push(b'/');
        }
        self.path.extend(name);
        Ok(())
    }
}

/// Reads a structure at the start of an entry; `None` if the entry is too short.
fn part<T: FromBytes>(data: &[u8]) -> Option<T> {
    T::read_from_prefix(data).ok().map(|(raw, _)| raw)
}

fn posix(raw: PosixRaw) -> PosixAttributes {
    let [low, high, ..] = raw.mode.get().to_le_bytes();
    PosixAttributes {
        mode: u16::from_le_bytes([low, high]),
        uid: raw.uid.get(),
        gid: raw.gid.get(),
    }
}

/// Returns a device number as macOS has it. Some programs write a number of 16 bits with both parts
/// in the low half.
fn device(raw: DeviceRaw) -> u32 {
    let (high, low) = (raw.high.get(), raw.low.get());
    let (major, minor) = match high == 0 && low > 0xFF {
        true => (low >> 8, low & 0xFF),
        false => (high, low),
    };
    major << 24 | minor & 0xFF_FFFF
}

fn too_long(what: &str, most: usize) -> Error {
    let message = format!("{what} is too long: the maximum is {most} bytes");
    Error::new(Kind::Corrupt, LAYER, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn read(fields: &[(&[u8; 2], &[u8])]) -> Result<RockRidge> {
        let mut found = RockRidge::default();
        for (signature, data) in fields {
            found.add(Field {
                signature: **signature,
                data,
                version: 1,
            })?;
        }
        Ok(found)
    }

    #[test]
    fn targets_and_names_are_joined() {
        let target = |fields: &[&[u8]]| {
            let fields: Vec<_> = fields.iter().map(|data| (b"SL", *data)).collect();
            let found = read(&fields).unwrap();
            String::from_utf8(found.target().unwrap().to_vec()).unwrap()
        };
        let both: [&[u8]; 2] = [b"\x01\x00\x01a\x01\x02bc", b"\x00\x00\x01d\x02\x00"];
        assert_eq!(target(&both), "a/bcd/.");
        assert_eq!(target(&[b"\x00\x08\x00\x00\x03usr\x04\x00"]), "/usr/..");
        assert_eq!(target(&[b"\x00\x00\x09short"]), "");
        let found = read(&[(b"NM", b"\x01one "), (b"NM", b"\x00two"), (b"NM", b"\x02")]);
        assert_eq!(found.unwrap().name(), Some(&b"one two"[..]));
        assert!(read(&[(b"NM", b""), (b"SL", b""), (b"PX", b"\x01")]).is_ok());
        let long = [0; 200];
        let endless: Vec<_> = (0..6).map(|_| (b"NM", &long[..])).collect();
        assert_eq!(read(&endless).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn times_and_devices_have_two_forms() {
        let long = b"\x822024030112345600\0";
        let short = b"\x05\x7c\x03\x01\x0c\x22\x38\0\x7c\x03\x02\x0c\x22\x38\0";
        let found = read(&[(b"TF", long), (b"TF", short)]).unwrap();
        let days = [found.modified, found.created, found.accessed];
        let days = days.map(|time| time.unwrap().to_string());
        let first = "2024-03-01T12:34:56Z";
        assert_eq!(days, [first, first, "2024-03-02T12:34:56Z"]);
        for (high, low, expected) in [(8, 1, 0x0800_0001), (0, 0x0801, 0x0800_0001), (0, 5, 5)] {
            let raw = DeviceRaw {
                high: BothU32::new(high),
                low: BothU32::new(low),
            };
            let found = read(&[(b"PN", raw.as_bytes())]).unwrap();
            assert_eq!(found.device, expected);
        }
    }
}
