//! The syntax that names an image, a volume in it and a path in that volume:
//! `IMAGE[:VOLUME[@SNAPSHOT]][:/path]`.
//!
//! | text | image | volume | path |
//! |---|---|---|---|
//! | `disk.dmg` | `disk.dmg` | the first readable | |
//! | `disk.dmg:/Docs/a` | `disk.dmg` | the first readable | `/Docs/a` |
//! | `disk.dmg:Macintosh HD:/Docs` | `disk.dmg` | by name | `/Docs` |
//! | `disk.dmg:#2` | `disk.dmg` | of partition 2 | |
//! | `disk.dmg:#2.3@before update:/Docs` | `disk.dmg` | 3rd of partition 2's container, in a snapshot | `/Docs` |
//! | `disk.sparsebundle@monday:/Docs` | `disk.sparsebundle@monday`, a snapshot of the bundle | the first readable | `/Docs` |
//! | `s3://bucket/disk.sparsebundle:Docs` | `s3://bucket/disk.sparsebundle` | by name | |
//! | `x.ipsw/y.dmg:/Docs` | the file `y.dmg` in the ZIP archive `x.ipsw` | the first readable | `/Docs` |
//! | `file:///tmp/disk.dmg:/Docs` | `/tmp/disk.dmg` | the first readable | `/Docs` |
//! | `./odd:name` | `./odd:name` | | |
//!
//! The end of IMAGE, by the first rule that applies:
//!
//! 1. Text that begins with `./` is a host file as a whole. (`../disk.dmg:/Docs` and
//!    `/tmp/disk.dmg:/Docs` are addresses like any other.)
//! 2. After a URL scheme (`s3://`), the authority with its port belongs to IMAGE; it ends at the
//!    first `:` after it. A colon in the URL's path is written `%3A`.
//! 3. The longest text before a `:`, or all of it, that exists as a host path is IMAGE.
//! 4. Otherwise IMAGE ends at the first `:`.
//!
//! VOLUME and SNAPSHOT contain no unescaped `/`, so the path begins at the first `:/`. In both, `\`
//! takes the next character literally: `\@` if a volume's name contains an `@`, `\#1` if its name
//! is `#1`.

mod escaping;
mod image_path;
mod url_prefix;

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::{Error, Result, platform};
use escaping::{escape, find_bare, unescape};

pub use crate::error::{Secrets, redacted, shown};
pub(crate) use escaping::percent_decoded;
pub use image_path::ImagePath;
pub use url_prefix::UrlPrefix;

const LAYER: &str = "address";

/// An image, optionally a volume in it, optionally a path in that volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A host path, or a URL with a scheme other than `file://`.
    pub image: ImagePath,
    /// The volume; `None` selects the first readable one.
    pub volume: Option<VolumeSelector>,
    /// A snapshot of the volume. Requires a volume.
    pub snapshot: Option<String>,
    /// An absolute path within the volume; it begins with one `/`.
    pub path: Option<String>,
}

/// A selector of a volume of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeSelector {
    /// The volume of this name.
    Name(String),
    /// `#N` or `#N.M`, both from 1.
    Number {
        /// The partition; 1 also for a disk without a map.
        partition: u32,
        /// The volume within that partition's container, from 1.
        volume: Option<u32>,
    },
}

impl Address {
    /// Parses an address. `exists` returns true if a host path exists; it is not called for URLs,
    /// nor for `./` paths.
    ///
    /// [`Kind::Invalid`](crate::Kind) for text that fits no form; the message names the part that is wrong.
    pub fn parse(text: &str, exists: &dyn Fn(&Path) -> bool) -> Result<Self> {
        let (image, rest) = text.split_at(image_end(text, exists));
        if image.is_empty() {
            return Err(invalid(
                text,
                "the image is missing; write IMAGE[:VOLUME[@SNAPSHOT]][:/path]",
            ));
        }
        let mut address = Self {
            image: on_host(text, image)?.into(),
            volume: None,
            snapshot: None,
            path: None,
        };
        address.set_place(text, rest)?;
        Ok(address)
    }

    /// Parses an address whose image may be a host path that is not UTF-8. Volumes, snapshots and
    /// the paths in them are text, and so are URLs.
    pub fn parse_os(text: &OsStr, exists: &dyn Fn(&Path) -> bool) -> Result<Self> {
        if let Some(text) = text.to_str() {
            return Self::parse(text, exists);
        }
        let whole = || invalid_bytes(text, "a URL, volume, snapshot or path in an image is UTF-8");
        let bytes = text.as_encoded_bytes();
        let colons = (1..bytes.len()).filter(|&at| bytes[at] == b':');
        let ends: Vec<_> = colons.chain([bytes.len()]).collect();
        let host = |end: usize| platform::name_of_bytes(&bytes[..end]);
        let is_known = |end: usize| host(end).is_some_and(|name| exists(Path::new(name)));
        let known = ends.iter().rev().find(|&&end| is_known(end));
        let end = match known {
            _ if bytes.starts_with(b"./") => bytes.len(),
            Some(end) => *end,
            None => ends[0],
        };
        let rest = std::str::from_utf8(&bytes[end..]).map_err(|_| whole())?;
        if known.is_none() && rest.starts_with("://") {
            return Err(whole());
        }
        let image = host(end).ok_or_else(whole)?;
        let mut address = Self::image(image);
        address.set_place(&shown(text), rest)?;
        Ok(address)
    }

    /// Reads `:VOLUME@SNAPSHOT:/path`, the end of the address `text`.
    fn set_place(&mut self, text: &str, rest: &str) -> Result<()> {
        let Some(rest) = rest.strip_prefix(':') else {
            return Ok(());
        };
        let (volume, path) = match find_bare(rest, ":/") {
            _ if rest.starts_with('/') => (None, Some(rest)),
            Some(colon) => (Some(&rest[..colon]), Some(&rest[colon + 1..])),
            None => (Some(rest), None),
        };
        if let Some(volume) = volume {
            self.set_volume(text, volume)?;
        }
        // Repeated leading slashes are collapsed: `a://b` would be parsed as a URL.
        self.path = path.map(|path| format!("/{}", path.trim_start_matches('/')));
        Ok(())
    }

    /// Returns the address of a host file or URL as a whole.
    pub fn image(image: impl Into<ImagePath>) -> Self {
        Self {
            image: image.into(),
            volume: None,
            snapshot: None,
            path: None,
        }
    }

    /// Returns true if the address names only an image or, to a command that takes both, a host
    /// file.
    pub fn is_bare(&self) -> bool {
        self.volume.is_none() && self.path.is_none()
    }

    /// Returns the URL's scheme, usually in lower case (`s3`), if the image is a URL.
    pub fn scheme(&self) -> Option<&str> {
        scheme(self.image.to_str()?)
    }

    fn set_volume(&mut self, text: &str, part: &str) -> Result<()> {
        let (volume, snapshot) = match find_bare(part, "@") {
            Some(at) => (&part[..at], Some(&part[at + 1..])),
            None => (part, None),
        };
        self.volume = Some(VolumeSelector::parse(text, volume)?);
        self.snapshot = snapshot.map(|name| unescape(text, name)).transpose()?;
        if self.snapshot.as_deref() == Some("") {
            return Err(invalid(text, "expected the name of a snapshot after `@`"));
        }
        Ok(())
    }
}

impl VolumeSelector {
    fn parse(text: &str, part: &str) -> Result<Self> {
        if part.is_empty() {
            return Err(invalid(
                text,
                "expected a volume (its name, #N or #N.M) or a /path after `:`",
            ));
        }
        let Some(number) = part.strip_prefix('#') else {
            return Ok(Self::Name(unescape(text, part)?));
        };
        let parsed = match number.split_once('.') {
            Some((partition, volume)) => ordinal(partition).zip(ordinal(volume).map(Some)),
            None => ordinal(number).map(|partition| (partition, None)),
        };
        let (partition, volume) = parsed.ok_or_else(|| {
            invalid(
                text,
                "expected the number of a partition after `#`, as in #2 or #2.1; escape \
                           the `#` of a name as \\#",
            )
        })?;
        Ok(Self::Number { partition, volume })
    }
}

/// Formats an address that [`Address::parse`] parses back, given that the image exists if there is
/// a `:` in its name.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.image)?;
        if let Some(volume) = &self.volume {
            write!(f, ":{volume}")?;
        }
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{}", escape(snapshot))?;
        }
        match &self.path {
            Some(path) => write!(f, ":{path}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for VolumeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&escape(name)),
            Self::Number {
                partition,
                volume: None,
            } => write!(f, "#{partition}"),
            Self::Number {
                partition,
                volume: Some(volume),
            } => write!(f, "#{partition}.{volume}"),
        }
    }
}

/// Returns the end of IMAGE, by the rules in the module's documentation.
fn image_end(text: &str, exists: &dyn Fn(&Path) -> bool) -> usize {
    if text.starts_with("./") {
        return text.len();
    }
    if let Some(scheme) = scheme(text) {
        let authority = scheme.len() + "://".len();
        let path = text[authority..]
            .find('/')
            .map_or(text.len(), |slash| authority + slash);
        return text[path..]
            .find(':')
            .map_or(text.len(), |colon| path + colon);
    }
    let colons = text.match_indices(':').map(|(at, _)| at);
    let longest_first = std::iter::once(text.len()).chain(colons.rev());
    let existing = longest_first
        .filter(|&end| end > 0)
        .find(|&end| exists(Path::new(&text[..end])));
    existing.or_else(|| text.find(':')).unwrap_or(text.len())
}

/// Converts `file:///path` to `/path`; returns any other image name unchanged.
fn on_host(text: &str, image: &str) -> Result<String> {
    let Some(rest) = image.strip_prefix("file://") else {
        return Ok(image.to_owned());
    };
    // Text before the first `/`, except `localhost`, would be the name of another machine.
    let path = Some(rest.strip_prefix("localhost").unwrap_or(rest))
        .filter(|path| path.starts_with('/') && path.len() > 1);
    let path = path.and_then(percent_decoded);
    path.ok_or_else(|| {
        invalid(
            text,
            "expected an absolute path after file://, as in file:///home/me/disk.dmg; \
                       write a % in it as %25",
        )
    })
}

/// Returns `s3` of `s3://...`.
pub(crate) fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(fine))
        .then_some(scheme)
}

/// Parses a number from 1, digits only.
fn ordinal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number > 0)
}

fn invalid(text: &str, why: &'static str) -> Error {
    Error::invalid(LAYER, why).named(format!("{text:?}"))
}

fn invalid_bytes(text: &OsStr, why: &'static str) -> Error {
    Error::invalid(LAYER, why).named(shown(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    fn nothing_exists(_: &Path) -> bool {
        false
    }

    fn parse(text: &str) -> Address {
        Address::parse(text, &nothing_exists).unwrap()
    }

    fn named(name: &str) -> Option<VolumeSelector> {
        Some(VolumeSelector::Name(name.into()))
    }

    fn number(partition: u32, volume: Option<u32>) -> Option<VolumeSelector> {
        Some(VolumeSelector::Number { partition, volume })
    }

    fn address(
        image: &str,
        volume: Option<VolumeSelector>,
        snapshot: Option<&str>,
        path: Option<&str>,
    ) -> Address {
        Address {
            image: image.into(),
            volume,
            snapshot: snapshot.map(Into::into),
            path: path.map(Into::into),
        }
    }

    #[test]
    fn every_form() {
        for (text, expected) in [
            ("disk.dmg", address("disk.dmg", None, None, None)),
            ("disk.dmg:/", address("disk.dmg", None, None, Some("/"))),
            ("a:b:///c", address("a", named("b"), None, Some("/c"))),
            (
                "disk.dmg:/a:b/c",
                address("disk.dmg", None, None, Some("/a:b/c")),
            ),
            (
                "disk.dmg:Docs",
                address("disk.dmg", named("Docs"), None, None),
            ),
            (
                "disk.dmg:Macintosh HD:/x",
                address("disk.dmg", named("Macintosh HD"), None, Some("/x")),
            ),
            (
                "disk.dmg:12:30:/x",
                address("disk.dmg", named("12:30"), None, Some("/x")),
            ),
            (
                "disk.dmg:Docs@before",
                address("disk.dmg", named("Docs"), Some("before"), None),
            ),
            (
                "disk.dmg:Docs@a@b:/x",
                address("disk.dmg", named("Docs"), Some("a@b"), Some("/x")),
            ),
            (
                "disk.dmg:#2",
                address("disk.dmg", number(2, None), None, None),
            ),
            (
                "disk.dmg:#2.13@s:/x",
                address("disk.dmg", number(2, Some(13)), Some("s"), Some("/x")),
            ),
            (
                r"disk.dmg:\#2",
                address("disk.dmg", named("#2"), None, None),
            ),
            (
                r"disk.dmg:me\@home@s\/1",
                address("disk.dmg", named("me@home"), Some("s/1"), None),
            ),
            (
                "../disk.dmg:/x",
                address("../disk.dmg", None, None, Some("/x")),
            ),
            (
                "/tmp/disk.dmg:Docs:/x",
                address("/tmp/disk.dmg", named("Docs"), None, Some("/x")),
            ),
            (
                "./disk.dmg:Docs:/x",
                address("./disk.dmg:Docs:/x", None, None, None),
            ),
            (
                "s3://bucket/k.sparsebundle",
                address("s3://bucket/k.sparsebundle", None, None, None),
            ),
            (
                "file:///tmp/a%3Ab.dmg:/x",
                address("/tmp/a:b.dmg", None, None, Some("/x")),
            ),
            ("file:///%2fx", address("//x", None, None, None)),
            (
                "file://localhost/tmp/disk.dmg",
                address("/tmp/disk.dmg", None, None, None),
            ),
            (
                "s3://bucket/k.sparsebundle:/x",
                address("s3://bucket/k.sparsebundle", None, None, Some("/x")),
            ),
            (
                "https://me:pw@host:8080/k.dmg:#1:/x",
                address(
                    "https://me:pw@host:8080/k.dmg",
                    number(1, None),
                    None,
                    Some("/x"),
                ),
            ),
            (
                "file:///tmp/k.dmg:V",
                address("/tmp/k.dmg", named("V"), None, None),
            ),
            (
                "https://host:8080",
                address("https://host:8080", None, None, None),
            ),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn existing_paths_win() {
        let exists = |path: &Path| {
            ["a:b", "a:b:/c", "x"]
                .iter()
                .any(|name| path == Path::new(name))
        };
        let parse = |text: &str| Address::parse(text, &exists).unwrap();
        assert_eq!(parse("a:b"), address("a:b", None, None, None));
        assert_eq!(parse("a:b:/c"), address("a:b:/c", None, None, None));
        assert_eq!(parse("a:b:/d"), address("a:b", None, None, Some("/d")));
        assert_eq!(parse("a:c"), address("a", named("c"), None, None));
        assert_eq!(parse("x:y:/z"), address("x", named("y"), None, Some("/z")));
    }

    #[test]
    fn a_host_path_is_bytes() {
        let parse = |bytes: &'static [u8], known: &'static [u8]| {
            let exists = move |path: &Path| path.as_os_str().as_bytes() == known;
            Address::parse_os(OsStr::from_bytes(bytes), &exists)
        };
        let of = |bytes: &'static [u8]| ImagePath::from(OsStr::from_bytes(bytes));
        let whole = parse(b"b\xff:c", b"b\xff:c").unwrap();
        assert_eq!((whole.image, whole.volume), (of(b"b\xff:c"), None));
        let part = parse(b"b\xff:c:/d", b"").unwrap();
        assert_eq!(part.to_string(), "b\\xFF:c:/d");
        assert_eq!((part.image, part.volume), (of(b"b\xff"), named("c")));
        assert_eq!(part.path.as_deref(), Some("/d"));
        let whole = parse(b"./b\xff:c", b"").unwrap();
        assert_eq!(whole.image, of(b"./b\xff:c"));
        for bad in [&b"b:\xff"[..], b"b\xff:/\xff", b"s3://b\xff"] {
            let error = parse(bad, b"").unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
        }
    }

    #[test]
    fn the_host_is_not_asked_about_urls_and_dot_slash() {
        let never = |path: &Path| -> bool { panic!("asked about {}", path.display()) };
        Address::parse("s3://bucket/x:Docs:/y", &never).unwrap();
        Address::parse("./x:y", &never).unwrap();
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for (text, hint) in [
            ("", "IMAGE"),
            (":/x", "IMAGE"),
            (":Docs", "IMAGE"),
            ("disk.dmg:", "a volume"),
            ("disk.dmg::/x", "a volume"),
            ("disk.dmg:@s", "a volume"),
            ("disk.dmg:Docs@", "snapshot"),
            ("disk.dmg:Docs@:/x", "snapshot"),
            ("disk.dmg:#", "number"),
            ("disk.dmg:#0", "number"),
            ("disk.dmg:#2.0", "number"),
            ("disk.dmg:#2.", "number"),
            ("disk.dmg:#+2", "number"),
            ("disk.dmg:#4294967296", "number"),
            ("disk.dmg:Docs/x", "`:/`"),
            ("file://host/x", "an absolute path"),
            ("file://%2fx", "an absolute path"),
            ("file:///", "an absolute path"),
            ("disk.dmg:Docs\\", "expected a character"),
        ] {
            let error = Address::parse(text, &nothing_exists).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(hint), "{text:?}: {error}");
        }
    }

    fn any_volume() -> impl Strategy<Value = VolumeSelector> {
        let number = (1_u32.., proptest::option::of(1_u32..))
            .prop_map(|(partition, volume)| VolumeSelector::Number { partition, volume });
        prop_oneof![
            number,
            r"[a-z@#:/\\. ]{1,8}|\PC{1,8}".prop_map(VolumeSelector::Name)
        ]
    }

    fn any_address() -> impl Strategy<Value = Address> {
        let image = prop_oneof![
            r"(\.\./|/)?[a-z@#\\. ]{1,8}[a-z/.]{0,8}"
                .prop_filter("means a host file", |image| !image.starts_with("./")),
            r"s3://[a-z]{1,4}(:[0-9]{1,4})?/[a-z/@#]{0,8}",
        ];
        let within = (
            any_volume(),
            proptest::option::of(r"[a-z@#:/\\. ]{1,8}|\PC{1,8}"),
        );
        (
            image,
            proptest::option::of(within),
            proptest::option::of(r"/([a-z:@#\\][a-z:@#/\\]{0,11})?"),
        )
            .prop_map(|(image, within, path)| {
                let (volume, snapshot) = within.unzip();
                Address {
                    image: image.into(),
                    volume,
                    snapshot: snapshot.flatten(),
                    path,
                }
            })
    }

    proptest! {
        #[test]
        fn displayed_addresses_parse_back(address in any_address()) {
            prop_assert_eq!(Address::parse(&address.to_string(), &nothing_exists).unwrap(), address);
        }

        #[test]
        fn an_existing_image_may_have_colons(mut address in any_address(), image in r"[a-z]{1,4}(:[a-z/ ]{1,4}){1,3}") {
            prop_assume!(scheme(&image).is_none());
            address.image = image.clone().into();
            let exists = |path: &Path| path.as_os_str() == image.as_str();
            prop_assert_eq!(Address::parse(&address.to_string(), &exists).unwrap(), address);
        }

        #[test]
        fn parsed_addresses_parse_back(text in r"[a-z:@#/.\\0-9]{0,24}|\PC{0,16}") {
            if let Ok(address) = Address::parse(&text, &nothing_exists) {
                prop_assert_eq!(&Address::parse(&address.to_string(), &nothing_exists).unwrap(), &address);
                let image = address.image.to_str().unwrap();
                prop_assert!(text.starts_with(image) || text.starts_with("file://"));
            }
        }
    }
}
