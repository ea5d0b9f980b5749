//! Previews of files: text, property lists, pictures, sound, films and documents, and bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bandsaw::container::property_list_xml;
use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::{Attributes, FileSystem, Fork};
use bandsaw::{Error, Result as LibraryResult};
use maud::{Markup, html};

use super::folder::breadcrumb;
use super::layout::{self, Frame};
use super::{open_file, open_volume, refusal_in, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::reply::{Refusal, large_page};
use crate::request_checks::Visit;
use crate::text;

/// Bytes at the start of a file that tell its type.
const HEAD: u64 = 512;
/// Bytes of text that are shown.
const MAX_TEXT: u64 = 256 << 10;
/// Length in bytes of a property list that is shown.
const MAX_LIST: u64 = 1 << 20;
/// Length of the text of a list that is shown.
const MAX_LIST_TEXT: usize = 1 << 20;
/// Bytes of a page of bytes.
const HEX: u64 = 4096;
/// Bytes of memory of that page.
const MEMORY: usize = 512 << 10;

/// A file that browsers show by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Picture(&'static str),
    Sound(&'static str),
    Film(&'static str),
    /// A PDF.
    Document,
}

impl Media {
    /// Recognizes a type by its first bytes. The name is not asked: a page of HTML is none of these.
    pub(crate) fn of(contents: &dyn BlockDevice) -> LibraryResult<Option<Self>> {
        Ok(Self::by_head(&head(contents)?))
    }

    fn by_head(head: &[u8]) -> Option<Self> {
        let at = |from: usize, magic: &[u8]| {
            head.get(from..).is_some_and(|rest| rest.starts_with(magic))
        };
        Some(if at(0, b"\x89PNG\r\n\x1A\n") {
            Self::Picture("image/png")
        } else if at(0, b"\xFF\xD8\xFF") {
            Self::Picture("image/jpeg")
        } else if at(0, b"GIF87a") || at(0, b"GIF89a") {
            Self::Picture("image/gif")
        } else if at(0, b"%PDF-") {
            Self::Document
        } else if at(0, b"RIFF") && at(8, b"WEBP") {
            Self::Picture("image/webp")
        } else if at(0, b"RIFF") && at(8, b"WAVE") {
            Self::Sound("audio/wav")
        } else if at(0, b"ID3") || at(0, b"\xFF\xFB") || at(0, b"\xFF\xF3") {
            Self::Sound("audio/mpeg")
        } else if at(0, b"fLaC") {
            Self::Sound("audio/flac")
        } else if at(0, b"OggS") {
            Self::Sound("audio/ogg")
        } else if at(4, b"ftypM4A") {
            Self::Sound("audio/mp4")
        } else if at(4, b"ftypavif") {
            Self::Picture("image/avif")
        } else if at(4, b"ftypqt") {
            Self::Film("video/quicktime")
        } else if at(4, b"ftyp") {
            Self::Film("video/mp4")
        } else if at(0, b"\x1A\x45\xDF\xA3") {
            Self::Film("video/webm")
        } else {
            return None;
        })
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Picture(kind) | Self::Sound(kind) | Self::Film(kind) => kind,
            Self::Document => "application/pdf",
        }
    }
}

/// A preview of a file.
pub(crate) enum Preview {
    Media(Media, String),
    /// Text, and whether more follows.
    Text(String, bool),
    List(String),
    Nothing,
}

impl Preview {
    /// Returns the preview of a regular file by its first bytes, whatever its name. `target` is its address.
    pub(crate) fn of(
        fs: &dyn FileSystem,
        file: &Attributes,
        target: &Target,
    ) -> LibraryResult<Self> {
        let contents = fs.open(file.id, Fork::Data)?;
        let length = contents.info().len;
        let head = head(&*contents)?;
        if let Some(media) = Media::by_head(&head) {
            return Ok(Self::Media(media, target.address("raw", &[("show", b"1")])));
        }
        let is_list = head.starts_with(b"bplist")
            || (head.starts_with(b"<?xml") && head.windows(6).any(|part| part == b"<plist"));
        if is_list && length <= MAX_LIST {
            let bytes = read(&*contents, 0, length)?;
            if let Ok(mut xml) = property_list_xml(&bytes) {
                shorten(&mut xml, MAX_LIST_TEXT);
                return Ok(Self::List(xml));
            }
        }
        let bytes = read(&*contents, 0, length.min(MAX_TEXT))?;
        Ok(match decoded(&bytes) {
            Some(text) => Self::Text(text, length > MAX_TEXT),
            None => Self::Nothing,
        })
    }

    /// Returns true if the preview is in a frame.
    pub(crate) fn is_framed(&self) -> bool {
        matches!(self, Self::Media(Media::Document, _))
    }

    pub(crate) fn markup(&self) -> Markup {
        html! {
            h2 { "Preview" }
            @match self {
                Self::Media(Media::Picture(_), address) => { img.preview src=(address) alt="The picture in the file"; },
                Self::Media(Media::Sound(_), address) => audio controls preload="metadata" src=(address) {},
                Self::Media(Media::Document, address) => {
                    iframe.document src=(address) title="The document in the file" {}
                    p.dim { (text::DOCUMENT) }
                },
                Self::Media(Media::Film(_), address) => video controls preload="metadata" src=(address) {},
                Self::Text(text, is_cut) => {
                    @if text.is_empty() { p { "The file is empty." } }
                    @else { pre tabindex="0" dir="auto" { (shown(text)) } }
                    @if *is_cut { p.dim { "The first " (bandsaw::size::display(MAX_TEXT)) " are shown." } }
                },
                Self::List(xml) => pre tabindex="0" { (shown(xml)) },
                Self::Nothing => p { (text::NO_PREVIEW) },
            }
        }
    }
}

fn head(contents: &dyn BlockDevice) -> LibraryResult<Vec<u8>> {
    read(contents, 0, contents.info().len.min(HEAD))
}

fn read(contents: &dyn BlockDevice, at: u64, length: u64) -> LibraryResult<Vec<u8>> {
    let length =
        usize::try_from(length).map_err(|_| Error::limit("preview", "too long for this host"))?;
    contents.read_vec(at, length)
}

/// Decodes UTF-8 or, with a byte order mark, UTF-16. `None` if the bytes are not text.
fn decoded(bytes: &[u8]) -> Option<String> {
    let wide = |pair: fn([u8; 2]) -> u16| {
        let units = bytes.get(2..)?.chunks_exact(2);
        let units = units.filter_map(|unit| unit.try_into().ok().map(pair));
        Some(
            char::decode_utf16(units)
                .map(|c| c.unwrap_or('\u{FFFD}'))
                .collect(),
        )
    };
    match bytes {
        [0xFF, 0xFE, ..] => return wide(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => return wide(u16::from_be_bytes),
        _ => {}
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Some(text.to_owned()),
        // A character may be cut at the end.
        Err(error) if error.error_len().is_none() && bytes.len() - error.valid_up_to() < 4 => {
            let text = bytes.get(..error.valid_up_to())?;
            let text = std::str::from_utf8(text).ok()?;
            (!text.contains('\0')).then(|| text.to_owned())
        }
        _ => None,
    }
}

fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

/// Returns lines in which every deceptive character is visible.
fn shown(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            all.push('\n');
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        for (number, part) in line.split('\t').enumerate() {
            if number > 0 {
                all.push('\t');
            }
            all.push_str(&visible(part));
        }
    }
    all
}

/// Shows a part of a file as bytes.
pub(crate) async fn hex(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let at = visit.query.number("at").unwrap_or(0) / HEX * HEX;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let main = work(move || {
        let (_, fs) = open_volume(&shared, &shown, &of)?;
        let open_file::OpenFile {
            image, contents, ..
        } = open_file::contents(&shared, &shown, &of)?;
        let length = contents.info().len;
        let at = at.min(length.saturating_sub(1) / HEX * HEX);
        let bytes = read(&*contents, at, HEX.min(length.saturating_sub(at)));
        let bytes = bytes.map_err(|error| refusal_in(&image, &error))?;
        let fork: &[u8] = match open_file::fork(&shown) {
            Fork::Resource => b"resource",
            Fork::Data => b"data",
        };
        let link =
            |at: u64| of.address("hex", &[("fork", fork), ("at", at.to_string().as_bytes())]);
        let mut links = vec![(of.address("file", &[]), "Details")];
        if at > 0 {
            links.push((link(0), "Begin"));
            links.push((link(at - HEX), "Back"));
        }
        if length.saturating_sub(at) > HEX {
            links.push((link(at + HEX), "Forward"));
            links.push((link(length - 1), "End"));
        }
        Ok(html! {
            (breadcrumb(&of, &fs.volume().name))
            (layout::links(&links))
            p { "Bytes from " (at) " of " (length) "." }
            pre.hex tabindex="0" { (dump(at, &bytes)) }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Bytes", Frame::default(), &main);
    Ok(large_page(markup, memory))
}

/// Returns lines of 16 bytes, in hexadecimal digits and as letters.
fn dump(at: u64, bytes: &[u8]) -> String {
    let mut all = String::with_capacity(bytes.len() * 5);
    for (number, line) in (0_u64..).zip(bytes.chunks(16)) {
        let _ = write!(all, "{:08x}  ", at.saturating_add(16 * number));
        for place in 0..16 {
            match line.get(place) {
                Some(byte) => {
                    let _ = write!(all, "{byte:02x} ");
                }
                None => all.push_str("   "),
            }
            if place == 7 {
                all.push(' ');
            }
        }
        all.push(' ');
        let letter = |byte: &u8| {
            if matches!(byte, b' '..=b'~') {
                char::from(*byte)
            } else {
                '.'
            }
        };
        all.extend(line.iter().map(letter));
        all.push('\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_media_are_media() {
        assert_eq!(
            Media::by_head(b"\x89PNG\r\n\x1A\n.."),
            Some(Media::Picture("image/png"))
        );
        assert_eq!(
            Media::by_head(b"\0\0\0\x18ftypmp42"),
            Some(Media::Film("video/mp4"))
        );
        assert_eq!(Media::by_head(b"%PDF-1.7"), Some(Media::Document));
        for head in [
            &b"<html>"[..],
            b" %PDF-1.7",
            b"<svg xmlns=",
            b"<?xml",
            b"",
            b"RIFF",
        ] {
            assert_eq!(Media::by_head(head), None);
        }
    }

    #[test]
    fn text_is_recognized() {
        assert_eq!(decoded(b"plain").as_deref(), Some("plain"));
        assert_eq!(decoded("grüße".as_bytes()).as_deref(), Some("grüße"));
        assert_eq!(decoded(b"cut \xE2\x82").as_deref(), Some("cut "));
        assert_eq!(decoded(b"\xFF\xFEa\0b\0").as_deref(), Some("ab"));
        assert_eq!(
            decoded(b"\xFE\xFF\0a\xD8\0\0").as_deref(),
            Some("a\u{FFFD}")
        );
        assert_eq!(decoded(b"a\0b"), None);
        assert_eq!(decoded(b"a\xFFb"), None);
        assert_eq!(shown("a\tb\r\nc\u{202E}\u{1}"), "a\tb\nc\\u{202e}\\u{1}");
    }

    #[test]
    fn bytes_are_shown() {
        let text = dump(16, b"Hello, world: 0123\xFF");
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("00000010  48 65 6c"));
        assert!(text.ends_with("  23.\n"), "{text}");
    }
}
