//! Images that are stored uncompressed in a ZIP archive: `firmware.ipsw/NAME.dmg.aea`.
//!
//! An existing file or folder of exactly that name takes precedence.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use zip::{CompressionMethod, ZipArchive};

use super::remote::{self, RemoteFile};
use crate::address;
use crate::container::Format;
use crate::device::{Access, BlockDevice, ReadOnlyView, Slice};
use crate::size::to_usize;
use crate::store::{LocalFile, Open};
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "ZIP archive";
/// Ends of the names of archives, in lower case.
const ENDINGS: [&str; 2] = [".ipsw", ".zip"];
/// Maximum number of names in an error.
const NAMES: usize = 10;
/// Bytes read at a time from the list of an archive.
const PIECE: usize = 64 << 10;

/// Returns the splits of a path or URL into an archive and the name of a file in it.
fn cuts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let slashes = text.match_indices('/').map(|(at, _)| at);
    slashes.filter_map(|at| {
        let (archive, name) = (&text[..at], &text[at + 1..]);
        let lower = archive.to_ascii_lowercase();
        let is_one = ENDINGS.iter().any(|ending| lower.ends_with(ending));
        (is_one && !name.is_empty()).then_some((archive, name))
    })
}

/// Opens the file in an archive of this host that `path` names. `None`: it names none.
/// [`Kind::ReadOnly`] to change it.
pub(super) fn on_host(path: &Path, access: Access) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(text) = path.to_str().filter(|_| remote::url(path).is_none()) else {
        return Ok(None);
    };
    let Some((archive, name)) = cuts(text).find(|(archive, _)| Path::new(archive).is_file()) else {
        return Ok(None);
    };
    check_access(access)?;
    let file = LocalFile::open(Path::new(archive), Open::Read)?;
    let file = file.ok_or_else(|| Error::not_found(LAYER, archive))?;
    member(Arc::new(file), name)
        .map(Some)
        .map_err(|error| error.in_file(archive))
}

/// Returns the file `name` of an archive as a device, see [`member_range`].
fn member(archive: Arc<dyn BlockDevice>, name: &str) -> Result<Arc<dyn BlockDevice>> {
    let part = Slice::new(archive.clone(), member_range(&*archive, name)?)?;
    Ok(Arc::new(ReadOnlyView(Arc::new(part))))
}

/// Opens the file behind a URL by `open`, or the file in an archive that it names.
pub(super) fn behind_url(
    url: &str,
    open: &dyn Fn(&str) -> Result<RemoteFile>,
) -> Result<Arc<dyn BlockDevice>> {
    let refused = match open(url) {
        Ok(file) => {
            let len = file.usual.info().len;
            return file.view(0..len);
        }
        Err(error) => error,
    };
    // Servers answer differently for what they do not have.
    let Some((archive, name)) = cuts(url).next() else {
        return Err(refused);
    };
    let Ok(file) = open(archive) else {
        return Err(refused);
    };
    let name = address::percent_decoded(name).unwrap_or_else(|| name.to_owned());
    let range = member_range(&*file.usual, &name)?;
    file.view(range)
}

fn check_access(access: Access) -> Result<()> {
    match access {
        Access::ReadOnly => Ok(()),
        Access::ReadWrite => {
            let message = "a file in an archive is read-only; convert the image to change it";
            Err(Error::new(Kind::ReadOnly, LAYER, message))
        }
    }
}

/// Returns the place of the file `name` in an archive. [`Kind::NotFound`] if there is none,
/// [`Kind::Unsupported`] if it is compressed, encrypted or empty.
fn member_range(archive: &dyn BlockDevice, name: &str) -> Result<Range<u64>> {
    let reader = BufReader::with_capacity(PIECE, DeviceReader::new(archive));
    let mut zip = ZipArchive::new(reader).map_err(damaged)?;
    let Some(index) = zip.index_for_name(name) else {
        return Err(missing(&zip, name));
    };
    let file = zip.by_index_raw(index).map_err(damaged)?;
    if file.encrypted() {
        let message = "encrypted in the archive: extract it first";
        return Err(Error::unsupported(LAYER, message).named(name));
    }
    if file.compression() != CompressionMethod::Stored {
        let message = "compressed in the archive, so that its bytes have no place of their own: \
                       extract it first";
        return Err(Error::unsupported(LAYER, message).named(name));
    }
    let start = file.data_start();
    let end = start.and_then(|start| start.checked_add(file.size()));
    let range = start.zip(end).map(|(start, end)| start..end);
    let range = range.filter(|range| range.end <= archive.info().len);
    let (range, is_empty) = (range, file.size() == 0);
    drop(file);
    drop(zip);
    match range {
        Some(range) if !is_empty => Ok(range),
        Some(_) => Err(Error::unsupported(LAYER, "an empty file").named(name)),
        None => {
            let message = "the archive is truncated: the file ends past its end";
            Err(Error::new(Kind::Corrupt, LAYER, message).named(name))
        }
    }
}

fn damaged(error: zip::result::ZipError) -> Error {
    Error::new(Kind::Corrupt, LAYER, "damaged, or no ZIP archive").caused_by(error)
}

fn is_named_like_image(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(".aea") || Format::from_extension(Path::new(name)).is_some()
}

/// Returns the error for a name that an archive does not have, with the names of its images.
fn missing<R: Read + Seek>(zip: &ZipArchive<R>, name: &str) -> Error {
    let mut images: Vec<_> = zip
        .file_names()
        .flatten()
        .filter(|name| is_named_like_image(name))
        .map(|name| name.into_owned())
        .collect();
    images.sort_unstable();
    let others = images.len().saturating_sub(NAMES);
    images.truncate(NAMES);
    let mut message = match images.is_empty() {
        true => "not in the archive, which has no image".to_owned(),
        false => format!("not in the archive; its images are {}", images.join(", ")),
    };
    if others > 0 {
        message.push_str(&format!(" and {others} more"));
    }
    let error = Error::new(Kind::NotFound, LAYER, message);
    error.because(Reason::NoSuchImage).named(name)
}

/// Reads a device from a position on.
struct DeviceReader<'a> {
    device: &'a dyn BlockDevice,
    at: u64,
}

impl<'a> DeviceReader<'a> {
    fn new(device: &'a dyn BlockDevice) -> Self {
        Self { device, at: 0 }
    }
}

impl Read for DeviceReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.device.info().len.saturating_sub(self.at);
        let len = to_usize(left.min(buf.len() as u64));
        self.device
            .read_at(self.at, &mut buf[..len])
            .map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for DeviceReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.device.info().len.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;
    use crate::device::{BlockDeviceExt, Memory};

    fn archive() -> Vec<u8> {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, bytes) in [
            ("BuildManifest.plist", b"<plist/>"),
            ("a/b.dmg", b"12345678"),
        ] {
            zip.start_file(name, stored).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.start_file("empty.dmg", stored).unwrap();
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn names_are_cut_at_archives() {
        let all = |text| cuts(text).collect::<Vec<_>>();
        assert_eq!(all("/a/x.IPSW/b.dmg"), [("/a/x.IPSW", "b.dmg")]);
        assert_eq!(
            all("x.zip/y.zip/b"),
            [("x.zip", "y.zip/b"), ("x.zip/y.zip", "b")]
        );
        assert!(all("/a/x.ipsw").is_empty() && all("x.zip/").is_empty() && all("b.dmg").is_empty());
    }

    #[test]
    fn stored_files_are_devices() {
        let device = Arc::new(Memory::from(archive()));
        let file = member(device.clone(), "a/b.dmg").unwrap();
        assert_eq!(file.read_vec(0, 8).unwrap(), b"12345678");
        assert_eq!(file.info().access, Access::ReadOnly);
        let missing = member(device.clone(), "b.dmg").unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound);
        assert!(
            missing.to_string().contains("a/b.dmg, empty.dmg"),
            "{missing}"
        );
        assert_eq!(
            member(device, "empty.dmg").unwrap_err().kind(),
            Kind::Unsupported
        );
    }

    #[test]
    fn damaged_archives_are_errors() {
        let whole = archive();
        for len in 0..whole.len() {
            let device = Arc::new(Memory::from(whole[..len].to_vec()));
            assert!(member(device, "a/b.dmg").is_err(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            let device = Arc::new(Memory::from(bytes));
            // Any answer, but no panic.
            if let Ok(file) = member(device, "a/b.dmg") {
                assert!(file.info().len <= whole.len() as u64);
            }
        }
    }
}
