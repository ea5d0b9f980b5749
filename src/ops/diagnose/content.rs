//! Recognition of files that are not images, by their first and last bytes: web pages, archives,
//! incomplete downloads and others.

use std::path::Path;

use super::Cause;
use crate::Result;
use crate::container::foreign::{self, Foreign};
use crate::container::udif;
use crate::device::{BlockDevice, BlockDeviceExt};

/// Bytes examined at the beginning of the file.
const HEAD: usize = 64 << 10;
/// Bytes at the end of the file in which a trailer is searched.
const TAIL: u64 = 1 << 20;

/// File name extensions that browsers give to incomplete downloads.
const UNFINISHED: [&str; 5] = ["part", "partial", "crdownload", "download", "opdownload"];

/// Magic bytes of files that are not disks.
const OTHERS: [(&[u8], &str); 9] = [
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"\x7fELF", "a program for Linux"),
    (b"MZ", "a program for Windows"),
    (b"\xcf\xfa\xed\xfe", "a program for macOS"),
    (b"\xca\xfe\xba\xbe", "a program for macOS"),
    (
        b"\0\x05\x16\x07",
        "an AppleDouble file: attributes and resource fork of another file, whose name is this one's without `._`",
    ),
];

/// Returns the cause that the bytes of `file` show. `None`: not recognized.
pub(super) fn recognise(path: &Path, file: &dyn BlockDevice) -> Result<Option<Cause>> {
    let len = file.info().len;
    let head = file.read_vec(0, HEAD.min(usize::try_from(len).unwrap_or(HEAD)))?;
    if let Some(cause) = text(&head) {
        return Ok(Some(cause));
    }
    if udif::probe(file)? {
        return Ok(None); // it is what it seems
    }
    if let Some(trailer_end) = trailer_before_end(file)? {
        return Ok(Some(trailing(path, len - trailer_end)));
    }
    if udif::begins_with_chunk(file)? {
        return Ok(Some(cut_short(
            "is the beginning of a compressed image: the trailer `koly` at its end is missing",
        )));
    }
    if let Some(foreign) = foreign::recognise(file)? {
        return Ok(Some(other_format(path, foreign)));
    }
    let other = OTHERS.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, name)) = other {
        let cause = Cause::new("no-image", "file", format!("is {name}, not a disk image"));
        return Ok(Some(cause.advise(
            "look whether this is the right file; a download page may offer several",
        )));
    }
    if is_disk_copy(&head, len) {
        let cause = Cause::new(
            "old-format",
            "file",
            "is an image by Disk Copy 4.2, of the time before Mac OS X",
        );
        return Ok(Some(cause.advise(
            "emulators of old Macs open it; 84 bytes after its beginning the plain disk begins",
        )));
    }
    Ok(None)
}

/// Returns the cause for a truncated file.
pub(super) fn cut_short(what: impl Into<String>) -> Cause {
    Cause::new("cut-short", "file", what)
        .advise("download or copy it again, and compare its size with that of the original")
        .advise("if it comes from a disk that was full, make room first")
}

/// Returns the cause for an incomplete download, if the file name has such an extension.
pub(super) fn unfinished(path: &Path) -> Option<Cause> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let named = UNFINISHED.contains(&extension.as_str());
    named.then(|| {
        Cause::new(
            "unfinished-download",
            "file",
            format!("its name ends in .{extension}, as browsers call what is not finished"),
        )
        .advise("let the download finish, or begin it again")
    })
}

fn trailing(path: &Path, more: u64) -> Cause {
    let what = format!(
        "is a disk image (UDIF) with {more} more bytes behind its trailer, which must come last"
    );
    let name = path.display();
    Cause::new("bytes-after-trailer", "UDIF", what)
        .advise(format!(
            "cut them off in a copy: `cp {name} copy.dmg && truncate -s -{more} copy.dmg`"
        ))
        .advise("download it again if that does not help: a program on the way has changed it")
}

/// Recognizes web pages, pointers and messages that were saved instead of an image.
fn text(head: &[u8]) -> Option<Cause> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let start: String = String::from_utf8_lossy(&head[..head.len().min(4096)])
        .trim_start()
        .to_lowercase();
    if start.starts_with("version https://git-lfs.github.com/spec/") {
        let size = start
            .lines()
            .find_map(|line| line.strip_prefix("size "))
            .map(|size| format!(" of {size} bytes"));
        let what = format!(
            "is a pointer of Git LFS; the image itself{} is on the server",
            size.unwrap_or_default()
        );
        return Some(
            Cause::new("lfs-pointer", "file", what)
                .advise("`git lfs install && git lfs pull` in the repository fetches it")
                .advise("from a web page of the repository, take the link that downloads the file, not the one that shows it"),
        );
    }
    let is_page = ["<!doctype html", "<html", "<head"]
        .iter()
        .any(|tag| start.starts_with(tag))
        || (start.starts_with("<!--") || start.starts_with("<?xml")) && start.contains("<html");
    if is_page {
        return Some(
            Cause::new("web-page", "file", "is a web page: the server sent it in the place of the image")
                .advise("open it in a browser: it may ask to log in, to accept terms, or say that the file has moved")
                .advise("download again from the address of the file itself, with `curl -fL` for example, which fails on errors"),
        );
    }
    let printable = |byte: &u8| {
        byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n') || *byte >= 0x80
    };
    if !head.is_empty()
        && head.len() < HEAD
        && head.iter().all(printable)
        && std::str::from_utf8(head).is_ok()
    {
        let line: String = String::from_utf8_lossy(head)
            .trim()
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect();
        return Some(
            Cause::new(
                "text",
                "file",
                format!("is text, not a disk image; it begins: {line}"),
            )
            .advise("read it: a server may have sent a message in the place of the image"),
        );
    }
    None
}

/// Returns the end offset of a trailer that is not at the end of the file.
fn trailer_before_end(file: &dyn BlockDevice) -> Result<Option<u64>> {
    let len = file.info().len;
    let start = len.saturating_sub(TAIL);
    let tail = file.read_vec(start, (len - start) as usize)?;
    let mark = b"koly\0\0\0\x04\0\0\x02\0";
    let found = tail.windows(mark.len()).rposition(|window| window == mark);
    Ok(found
        .map(|at| start + at as u64 + udif::TRAILER)
        .filter(|end| *end < len))
}

/// Returns the cause for a disk image of another system, or an archive.
fn other_format(path: &Path, Foreign { name, .. }: Foreign) -> Cause {
    let file = path.display();
    let is = |what: &str| name.contains(what);
    let unpack = |command: String| {
        Cause::new("archive", "file", format!("is {name}; the image is inside"))
            .advise(format!("unpack it: `{command}`"))
            .advise("then open what comes out of it")
    };
    if is("gzip") {
        unpack(format!("gzip -dc {file} > unpacked.dmg"))
    } else if is("bzip2") {
        unpack(format!("bzip2 -dc {file} > unpacked.dmg"))
    } else if is("xz") {
        unpack(format!("xz -dc {file} > unpacked.dmg"))
    } else if is("zstd") {
        unpack(format!("zstd -dc {file} > unpacked.dmg"))
    } else if is("zip archive") {
        unpack(format!("unzip {file}"))
    } else if is("7z") || is("rar") {
        unpack(format!("7zz x {file}"))
    } else if is("tar archive") {
        unpack(format!("tar xf {file}"))
    } else if is("xar") {
        Cause::new("archive", "file", "is a xar archive: an installer package (.pkg) or signed archive (.xip), not a disk image")
            .advise(format!("`7zz x {file}` unpacks it"))
    } else if is("encrypted archive") {
        Cause::new("archive", "file", format!("is {name}, as Apple sends system images in"))
            .advise("its key comes with the address it was downloaded from; `aea decrypt` on a Mac takes both")
    } else if is("pbzx") || is("LZFSE") {
        Cause::new("archive", "file", format!("is {name}, not a disk image"))
            .advise("on a Mac `aa` or `compression_tool` unpack it")
    } else if is("EnCase") || is("Windows image") {
        Cause::new("other-system", "file", format!("is {name}")).advise(
            "`ewfmount` shows the disk in an EnCase image, `wimapply` unpacks a Windows image",
        )
    } else if is("header in front") {
        Cause::new(
            "old-format",
            "file",
            format!("is {name}, as very old versions wrote it, which is not read"),
        )
        .advise("convert it on an old Mac: `hdiutil convert -format UDZO`")
    } else {
        Cause::new("other-system", "file", format!("is {name}")).advise(format!(
            "make a raw image of it: `qemu-img convert -O raw {file} disk.img`, which Bandsaw opens"
        ))
    }
}

/// Returns true for the 84-byte header of Disk Copy 4.2: lengths of data and tags that add up to
/// the file length, and a magic number at its end.
fn is_disk_copy(head: &[u8], len: u64) -> bool {
    let Some(header) = head.first_chunk::<84>() else {
        return false;
    };
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ]))
    };
    header[0] < 64 && header[82..] == [1, 0] && word(64) > 0 && 84 + word(64) + word(68) == len
}
