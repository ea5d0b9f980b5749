//! Recognition of files that are not images, by their first and last bytes: web pages, archives,
//! incomplete downloads and others.

use std::path::Path;

use super::Cause;
use crate::Result;
use crate::container::foreign::{self, Foreign, ForeignKind};
use crate::container::udif;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;

/// Bytes examined at the beginning of the file.
const HEAD: usize = 64 << 10;
/// Bytes at the end of the file in which a trailer is searched.
const TAIL: u64 = 1 << 20;

/// File name extensions that browsers give to incomplete downloads.
const UNFINISHED: [&str; 5] = ["part", "partial", "crdownload", "download", "opdownload"];

/// Magic bytes of files that are not disks.
const OTHERS: [(&[u8], &str); 15] = [
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"\x7fELF", "a program for Linux"),
    (
        b"MZ",
        "a program for Windows, an installer for example (`7zz x` may unpack it)",
    ),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an installer for Windows (.msi) or an Office document",
    ),
    (b"\xcf\xfa\xed\xfe", "a program for macOS"),
    (b"\xce\xfa\xed\xfe", "a program for macOS"),
    (b"\xfe\xed\xfa\xce", "a program for macOS"),
    (b"\xca\xfe\xba\xbe", "a program for macOS"),
    (b"Joy!peff", "a program for classic Mac OS"),
    (b"bplist00", "a binary property list"),
    (b"SQLite format 3\0", "a database (SQLite)"),
    (b"\x80\x35\x01\x01", "a font (Type 1)"),
];
/// Returns the cause that the bytes of `file` show. `None`: not recognized.
pub(super) fn recognize(path: &Path, file: &dyn BlockDevice) -> Result<Option<Cause>> {
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
    if let Some(foreign) = foreign::recognize(file)? {
        return Ok(Some(other_format(path, foreign)));
    }
    let other = OTHERS.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, name)) = other {
        let cause = Cause::new("no-image", "file", format!("is {name}, not a disk image"));
        return Ok(Some(cause.advise(
            "check that this is the right file; a download page may offer several",
        )));
    }
    Ok(None)
}

/// Returns the cause for a truncated file.
pub(super) fn cut_short(what: impl Into<String>) -> Cause {
    Cause::new("cut-short", "file", what)
        .advise("download or copy it again, and compare its size with that of the original")
        .advise("if the disk was full, free some space first")
}

/// Returns the cause for an incomplete download, if the file name has such an extension.
pub(super) fn unfinished(path: &Path) -> Option<Cause> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let named = UNFINISHED.contains(&extension.as_str());
    named.then(|| {
        Cause::new(
            "unfinished-download",
            "file",
            format!("the name ends in .{extension}, which browsers give to incomplete downloads"),
        )
        .advise("let the download finish, or start it again")
    })
}

fn trailing(path: &Path, more: u64) -> Cause {
    let what = format!("is a disk image (UDIF) with {more} extra bytes after its trailer");
    let name = path.display();
    Cause::new("bytes-after-trailer", "UDIF", what)
        .advise(format!(
            "remove them from a copy: `cp {name} copy.dmg && truncate -s -{more} copy.dmg`"
        ))
        .advise("if that does not help, download it again: a program has modified it")
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
            "is a Git LFS pointer; the image{} is on the server",
            size.unwrap_or_default()
        );
        return Some(
            Cause::new("lfs-pointer", "file", what)
                .advise("run `git lfs install && git lfs pull` in the repository")
                .advise("on the web page of the repository, use the download link of the file"),
        );
    }
    let is_page = ["<!doctype html", "<html", "<head"]
        .iter()
        .any(|tag| start.starts_with(tag))
        || (start.starts_with("<!--") || start.starts_with("<?xml")) && start.contains("<html");
    if is_page {
        return Some(
            Cause::new(
                "web-page",
                "file",
                "is a web page: the server sent it instead of the image",
            )
            .advise(
                "open it in a browser: it may ask for a login, or report that the file \
                         has moved",
            )
            .advise(
                "download the file itself, for example with `curl -fL`, which fails on \
                         errors",
            ),
        );
    }
    if start.contains("this file must be converted with binhex") {
        let what = "is a BinHex file (.hqx) of classic Mac OS; the image is inside";
        return Some(
            Cause::new("archive", "file", what)
                .advise("unpack it with both forks: `unar -forks visible` and its name")
                .advise("then open the result"),
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
            .advise("read it: a server may have sent a message instead of the image"),
        );
    }
    None
}

/// Returns the end offset of a trailer that is not at the end of the file.
fn trailer_before_end(file: &dyn BlockDevice) -> Result<Option<u64>> {
    let len = file.info().len;
    let start = len.saturating_sub(TAIL);
    let tail = file.read_vec(start, to_usize(len - start))?;
    Ok(udif::find_trailer(&tail)
        .map(|at| start + at as u64 + udif::TRAILER)
        .filter(|end| *end < len))
}

/// Returns the cause for a file of another format.
fn other_format(path: &Path, foreign: Foreign) -> Cause {
    let Foreign { name, kind, advice } = foreign;
    let (code, what) = match kind {
        ForeignKind::Compressed => ("archive", format!("is {name}; the image is inside")),
        ForeignKind::Archive => ("archive", format!("is {name}, not a disk image")),
        ForeignKind::Disk => ("other-system", format!("is {name}")),
        ForeignKind::OldImage => ("old-format", format!("is {name}")),
        ForeignKind::Other => ("no-image", format!("is {name}, not a disk image")),
    };
    let file = path.display().to_string();
    let cause = advice
        .iter()
        .fold(Cause::new(code, "file", what), |cause, advice| {
            cause.advise(advice.replace("{}", &file))
        });
    match kind {
        ForeignKind::Compressed => cause.advise("then open the result"),
        _ => cause,
    }
}

/// Returns true if bytes are as even as random ones, and not more even.
pub(super) fn look_random(bytes: &[u8]) -> bool {
    let mut counts = [0_u64; 256];
    bytes
        .iter()
        .for_each(|byte| counts[usize::from(*byte)] += 1);
    // Chi-squared has a mean of 255 and a standard deviation of 23 for random bytes.
    let mean = bytes.len() as f64 / 256.0;
    let sum: f64 = counts
        .iter()
        .map(|count| (*count as f64 - mean).powi(2) / mean)
        .sum();
    bytes.len() >= 16 << 10 && (120.0..400.0).contains(&sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn random_bytes_look_random() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let bytes: Vec<u8> = (0..8 << 10)
                .flat_map(|_| random.number().to_le_bytes())
                .collect();
            assert!(look_random(&bytes));
        }
        let even: Vec<u8> = (0..65_536_u32).map(|n| n as u8).collect();
        let text = b"Some text, which is not random. ".repeat(2048);
        for other in [&even[..], &text, &[0; 65_536], &Random::new(1).bytes(1000)] {
            assert!(!look_random(other));
        }
    }
}
