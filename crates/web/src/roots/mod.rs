//! The folders and images that may be opened, and the way to them: nothing outside is reached, even
//! if links are exchanged meanwhile.

mod search;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::address::redacted;
use bandsaw::open::{NetworkOptions, OpenOptions};
use bandsaw::ops::snapshot;
use bandsaw::store::Snapshot;
use bandsaw::{Error, Kind, Reason, Result};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub(crate) use self::search::FoundImage;
use crate::LAYER;
use crate::key_ring::ImageKeys;
use crate::names::visible_bytes;
use crate::open_images::options;
use crate::options::AllowedUrls;
use crate::text;

/// The folder of the open files of this process.
const OPENED: &str = "/proc/self/fd/";
/// Maximum length of a path below a root, or of a URL, in bytes.
const MAX_PATH: usize = 4096;
/// The text for queries that stands for the root of an image behind a URL.
pub(crate) const URL_ROOT: &str = "url";

/// An image or folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ImageId {
    /// The number of its root. `None`: the path is a URL.
    pub(crate) root: Option<usize>,
    /// The path below the root; empty for the root itself.
    pub(crate) path: Vec<u8>,
    /// A snapshot of the sparse bundle.
    pub(crate) snapshot: Option<String>,
}

impl ImageId {
    /// Returns the text that names the root in queries.
    pub(crate) fn root_text(&self) -> String {
        match self.root {
            Some(root) => root.to_string(),
            None => URL_ROOT.to_owned(),
        }
    }

    /// Returns false for images that cannot be changed: those behind URLs, and snapshots.
    pub(crate) fn is_changeable(&self) -> bool {
        self.root.is_some() && self.snapshot.is_none()
    }
}

/// All roots, and the URLs that may be opened.
#[derive(Debug)]
pub(crate) struct Roots {
    list: Vec<Root>,
    urls: Arc<AllowedUrls>,
}

#[derive(Debug)]
struct Root {
    /// An open file or folder (`O_PATH`): it stays the same if the path is given to another one.
    place: OwnedFd,
    path: PathBuf,
    is_folder: bool,
    /// The folder of the root itself; `None` for `/`, or if it cannot be opened.
    parent: Option<Arc<OwnedFd>>,
}

/// An image that may be changed: an open folder, and the name in it.
#[derive(Debug, Clone)]
pub(crate) struct ChangePlace {
    folder: Arc<OwnedFd>,
    name: OsString,
    located: Located,
}

impl ChangePlace {
    /// Returns a path by which the library opens the image, and finds what lies beside it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("{OPENED}{}", self.folder.as_raw_fd())).join(&self.name)
    }

    /// Returns the image as it was found.
    pub(crate) fn located(&self) -> &Located {
        &self.located
    }

    /// Returns an error if the name leads to another file than the one that was found.
    pub(crate) fn check(&self) -> Result<()> {
        let found = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match found.map(|stat| Identity::of(&stat)) {
            Ok(found) if found.file() == self.located.identity.file() => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(Error::conflict(
                LAYER,
                "the image is behind a symbolic link, or was exchanged",
            )
            .named(self.located.shown.display().to_string())),
            Err(errno) => Err(Error::io(LAYER, "read metadata", io::Error::from(errno))),
        }
    }

    /// Returns text in which the path for people replaces those for the library.
    pub(crate) fn readable(&self, text: &str) -> String {
        let parent = self.located.shown.parent().unwrap_or(Path::new("/"));
        readable(text, parent)
    }
}

/// An image that was found. One of this host is kept in its place by an open file.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    place: Place,
    snapshot: Option<String>,
    /// The path for people and for comparisons with other programs; nothing is opened by it.
    shown: PathBuf,
    identity: Identity,
    is_folder: bool,
    allocated: u64,
}

#[derive(Debug, Clone)]
enum Place {
    File(Arc<OwnedFd>),
    Url(String, Arc<AllowedUrls>),
}

/// Numbers that change if a path leads to another file, or its contents change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity([u64; 5]);

impl Identity {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the types differ between processors"
    )]
    fn of(stat: &Stat) -> Self {
        Self([
            stat.st_dev as u64,
            stat.st_ino as u64,
            stat.st_size as u64,
            stat.st_mtime as u64,
            stat.st_mtime_nsec as u64,
        ])
    }

    /// Returns the numbers of the file itself, whatever its contents.
    pub(crate) fn file(&self) -> [u64; 2] {
        let [device, node, ..] = self.0;
        [device, node]
    }

    /// Returns text that differs for another state of a file.
    pub(crate) fn text(&self) -> String {
        let parts: Vec<_> = self.0.iter().map(|part| format!("{part:x}")).collect();
        parts.join("-")
    }
}

impl Located {
    /// Returns a path by which the library opens exactly this file or folder, URL or snapshot.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.base();
        if let Some(snapshot) = &self.snapshot {
            path.push('@');
            match self.place {
                Place::File(_) => path.push_str(snapshot),
                Place::Url(..) => {
                    path.extend(percent_encode(snapshot.as_bytes(), NON_ALPHANUMERIC));
                }
            }
        }
        PathBuf::from(path)
    }

    /// Returns a path by which the library opens the image without its snapshot.
    fn base(&self) -> String {
        match &self.place {
            Place::File(file) => format!("{OPENED}{}", file.as_raw_fd()),
            Place::Url(url, _) => url.clone(),
        }
    }

    /// Returns the options for reading the image.
    pub(crate) fn options<'a>(&'a self, keys: Option<&'a ImageKeys>) -> OpenOptions<'a> {
        OpenOptions {
            network: self.network(),
            ..options(keys)
        }
    }

    fn network(&self) -> NetworkOptions<'_> {
        match &self.place {
            Place::File(_) => NetworkOptions::default(),
            Place::Url(_, urls) => urls.network(),
        }
    }

    /// Returns the snapshots of the sparse bundle, the oldest first; none of another image.
    pub(crate) fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let is_bundle = self.is_folder || self.base().starts_with("s3://");
        if self.snapshot.is_some() || !is_bundle {
            return Ok(Vec::new());
        }
        match snapshot::list(Path::new(&self.base()), self.network()) {
            Err(error) if error.kind() == Kind::Unsupported => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Returns the path for people.
    pub(crate) fn shown(&self) -> PathBuf {
        let Some(snapshot) = &self.snapshot else {
            return self.shown.clone();
        };
        let mut shown = self.shown.clone().into_os_string();
        shown.push("@");
        shown.push(snapshot);
        PathBuf::from(shown)
    }

    /// Returns true if the image is not of this host.
    pub(crate) fn is_url(&self) -> bool {
        matches!(self.place, Place::Url(..))
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the bytes of storage of a file.
    pub(crate) fn allocated(&self) -> Option<u64> {
        (!self.is_folder && !self.is_url()).then_some(self.allocated)
    }

    /// Returns the message of an error, with the path for people instead of that for the library.
    pub(crate) fn message(&self, error: &Error) -> String {
        self.readable(&error.to_string())
    }

    /// Returns text in which the path for people replaces that for the library, by whichever open
    /// file that was.
    pub(crate) fn readable(&self, text: &str) -> String {
        readable(text, &self.shown)
    }
}

fn readable(text: &str, path: &Path) -> String {
    let shown = visible_bytes(path.as_os_str().as_bytes());
    let mut parts = text.split(OPENED);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        all.push_str(&shown);
        all.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    all
}

impl Roots {
    /// Opens the roots. Symbolic links in their paths are followed, once and for all.
    pub(crate) fn open(paths: &[PathBuf], urls: AllowedUrls) -> Result<Self> {
        let open = |path: &PathBuf| {
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::NotFound => Error::new(Kind::NotFound, LAYER, "does not exist")
                    .because(Reason::NoSuchImage)
                    .in_file(path),
                _ => Error::io(LAYER, "open", source).in_file(path),
            };
            let real = fs::canonicalize(path).map_err(failed)?;
            let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let place = rustix::fs::open(&real, flags, Mode::empty())
                .map_err(|errno| failed(errno.into()))?;
            let stat = rustix::fs::fstat(&place).map_err(|errno| failed(errno.into()))?;
            let parent = real
                .parent()
                .and_then(|parent| rustix::fs::open(parent, flags, Mode::empty()).ok());
            Ok(Root {
                place,
                parent: parent.map(Arc::new),
                path: real,
                is_folder: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            })
        };
        Ok(Self {
            list: paths.iter().map(open).collect::<Result<_>>()?,
            urls: Arc::new(urls),
        })
    }

    /// Returns the URLs that visitors may open.
    pub(crate) fn urls(&self) -> &AllowedUrls {
        &self.urls
    }

    /// Returns the image or folder that a visitor names by a path or URL. [`Kind::NotFound`] for a
    /// path outside of the roots, [`Kind::Invalid`] for a URL that is not allowed.
    pub(crate) fn named(&self, text: &str) -> Result<ImageId> {
        let text = text.trim();
        if text.contains("://") {
            let id = ImageId {
                root: None,
                path: text.as_bytes().to_vec(),
                snapshot: None,
            };
            return self.behind_url(&id).map(|_| id);
        }
        if text.is_empty() {
            return Err(Error::not_found(LAYER, text));
        }
        for (number, root) in self.list.iter().enumerate() {
            let below = match Path::new(text).strip_prefix(&root.path) {
                Ok(below) => below,
                Err(_) if Path::new(text).is_absolute() => continue,
                Err(_) => Path::new(text),
            };
            let id = ImageId {
                root: Some(number),
                path: below.as_os_str().as_bytes().to_vec(),
                snapshot: None,
            };
            if self.locate(&id).is_ok() {
                return Ok(id);
            }
        }
        Err(Error::not_found(LAYER, text))
    }

    fn behind_url(&self, id: &ImageId) -> Result<Located> {
        let refused = |message: &'static str| Error::new(Kind::Invalid, LAYER, message);
        let url = std::str::from_utf8(&id.path);
        let url = url.map_err(|_| refused(text::OTHER_URL))?;
        if self.urls.prefixes.is_empty() {
            return Err(refused(text::NO_URLS));
        }
        if url.len() > MAX_PATH || !self.urls.contains(url) {
            return Err(refused(text::OTHER_URL));
        }
        let mut hasher = DefaultHasher::new();
        url.hash(&mut hasher);
        Ok(Located {
            place: Place::Url(url.to_owned(), self.urls.clone()),
            snapshot: id.snapshot.clone(),
            shown: PathBuf::from(&*redacted(url)),
            identity: Identity([u64::MAX, hasher.finish(), 0, 0, 0]),
            is_folder: false,
            allocated: 0,
        })
    }

    /// Finds an image. [`Kind::NotFound`] if it does not exist, or is not below its root.
    pub(crate) fn locate(&self, id: &ImageId) -> Result<Located> {
        let missing = || Error::not_found(LAYER, visible_bytes(&id.path));
        let Some(number) = id.root else {
            return self.behind_url(id);
        };
        let root = self.list.get(number).ok_or_else(missing)?;
        let place = match id.path.is_empty() {
            true => root.place.try_clone().map_err(|_| missing())?,
            false if !root.is_folder || id.path.len() > MAX_PATH => return Err(missing()),
            false => beneath(root.place.as_fd(), &id.path).map_err(|errno| match errno {
                Errno::ACCESS | Errno::PERM => {
                    Error::io(LAYER, "open", io::Error::from(errno)).named(visible_bytes(&id.path))
                }
                // Links that lead elsewhere are told apart from missing files by nobody.
                _ => missing(),
            })?,
        };
        let stat = rustix::fs::fstat(&place)
            .map_err(|errno| Error::io(LAYER, "read metadata", io::Error::from(errno)))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(
            kind,
            FileType::Directory | FileType::RegularFile | FileType::BlockDevice
        ) {
            return Err(Error::unsupported(LAYER, "not a file or folder"));
        }
        let below = Path::new(OsStr::from_bytes(&id.path));
        Ok(Located {
            place: Place::File(Arc::new(place)),
            snapshot: id.snapshot.clone(),
            shown: match id.path.is_empty() {
                true => root.path.clone(),
                false => root.path.join(below),
            },
            identity: Identity::of(&stat),
            is_folder: kind == FileType::Directory,
            allocated: u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
        })
    }

    /// Finds an image that is to be changed. Its path must lead to it without a symbolic link in its
    /// last part: a change of a link would be one of a file elsewhere.
    pub(crate) fn locate_for_change(&self, id: &ImageId) -> Result<ChangePlace> {
        let missing = || Error::not_found(LAYER, visible_bytes(&id.path));
        if !id.is_changeable() {
            return Err(Error::read_only(LAYER));
        }
        let root = id.root.and_then(|number| self.list.get(number));
        let root = root.ok_or_else(missing)?;
        let located = self.locate(id)?;
        let trimmed = match id.path.iter().rposition(|byte| *byte != b'/') {
            Some(last) => id.path.get(..=last).unwrap_or_default(),
            None => &[],
        };
        let (folder, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
            _ if trimmed.is_empty() => {
                let parent = root.parent.clone().ok_or_else(missing)?;
                let name = root.path.file_name().ok_or_else(missing)?;
                (parent, name.to_owned())
            }
            Some(slash) => {
                let (folder, name) = trimmed.split_at(slash);
                let folder = beneath(root.place.as_fd(), folder).map_err(|_| missing())?;
                let name = name.get(1..).unwrap_or_default();
                (Arc::new(folder), OsStr::from_bytes(name).to_owned())
            }
            None => {
                let folder = root.place.try_clone().map_err(|_| missing())?;
                (Arc::new(folder), OsStr::from_bytes(trimmed).to_owned())
            }
        };
        if name == "." || name == ".." {
            return Err(missing());
        }
        let place = ChangePlace {
            folder,
            name,
            located,
        };
        place.check()?;
        Ok(place)
    }

    /// Opens a file below a root for reading. [`Kind::Limit`] if it is longer than `most` bytes.
    pub(crate) fn read(&self, id: &ImageId, most: u64) -> Result<Vec<u8>> {
        let located = self.locate(id)?;
        if located.is_folder || located.is_url() {
            return Err(Error::unsupported(LAYER, "not a file"));
        }
        let failed = |source| Error::io(LAYER, "read", source).in_file(located.shown());
        let file = fs::File::open(located.path()).map_err(failed)?;
        let mut bytes = Vec::new();
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        if read.map_err(failed)? as u64 > most {
            return Err(Error::limit(LAYER, "the file is too long").in_file(located.shown()));
        }
        Ok(bytes)
    }
}

/// Opens a folder for reading that is open as a place.
fn reopened(place: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(place, c".", flags, Mode::empty())
}

/// Opens the file at a path below a folder as a place. Links are followed only within the folder.
fn beneath(folder: std::os::fd::BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
        // Older kernels, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => without_links(folder, path),
        opened => opened,
    }
}

/// Opens the file at a path below a folder as a place, one part after the other, without links.
fn without_links(folder: std::os::fd::BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut at = folder.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    if path.first() == Some(&b'/') {
        return Err(Errno::XDEV);
    }
    for part in path.split(|byte| *byte == b'/') {
        if matches!(part, b"" | b".") {
            continue;
        }
        if part == b".." {
            return Err(Errno::XDEV);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        at = rustix::fs::openat(&at, part, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&at)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP);
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use bandsaw::address::UrlPrefix;

    use super::*;

    fn id(path: &[u8]) -> ImageId {
        ImageId {
            root: Some(0),
            path: path.to_vec(),
            snapshot: None,
        }
    }

    fn open(paths: &[PathBuf]) -> Roots {
        Roots::open(paths, AllowedUrls::default()).unwrap()
    }

    #[test]
    fn nothing_outside_of_the_roots_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret.dmg"), "secret").unwrap();
        fs::write(inside.join("sub/a.dmg"), "mine").unwrap();
        symlink(&outside, inside.join("far")).unwrap();
        symlink("../out/secret.dmg", inside.join("up.dmg")).unwrap();
        symlink("sub/a.dmg", inside.join("own.dmg")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        let roots = open(std::slice::from_ref(&inside));
        let fd = roots.list[0].place.as_fd();
        for path in [
            &b"../out/secret.dmg"[..],
            b"sub/../../out/secret.dmg",
            b"far/secret.dmg",
            b"up.dmg",
            b"magic/etc/passwd",
            b"/etc/passwd",
            b"a\0b",
            b"missing",
        ] {
            let error = roots.locate(&id(path)).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound, "{}", visible_bytes(path));
            assert!(without_links(fd, path).is_err());
        }
        // A change of a link would be one elsewhere.
        assert!(roots.locate_for_change(&id(b"own.dmg")).is_err());
        let place = roots.locate_for_change(&id(b"sub/a.dmg")).unwrap();
        assert_eq!(fs::read(place.path()).unwrap(), b"mine");
        fs::rename(inside.join("sub/a.dmg"), inside.join("sub/b.dmg")).unwrap();
        symlink("b.dmg", inside.join("sub/a.dmg")).unwrap();
        assert!(place.check().is_err());
        fs::rename(inside.join("sub/b.dmg"), inside.join("sub/a.dmg")).unwrap();
        let located = roots.locate(&id(b"own.dmg")).unwrap();
        assert_eq!(fs::read(located.path()).unwrap(), b"mine");
        assert!(without_links(fd, b"sub/a.dmg").is_ok() && without_links(fd, b"own.dmg").is_err());
        let other = ImageId {
            root: Some(7),
            ..id(b"")
        };
        assert!(roots.locate(&other).is_err());
        let found = roots.search("");
        let names: Vec<_> = found.images.iter().map(|image| &*image.name).collect();
        assert_eq!(names, ["a.dmg"]);
        assert_eq!(roots.search("SUB/A").images.len(), 1);
        assert_eq!(roots.search("nothing").images.len(), 0);
        // Paths as people write them.
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let real = fs::canonicalize(&inside).unwrap();
        let named = roots.named(&text(&real.join("sub/a.dmg"))).unwrap();
        assert_eq!(named, id(b"sub/a.dmg"));
        assert_eq!(roots.named(" sub/a.dmg ").unwrap(), named);
        for path in [
            text(&outside.join("secret.dmg")),
            text(&real.join("../out/secret.dmg")),
            "../out/secret.dmg".to_owned(),
            "up.dmg".to_owned(),
            "/etc/passwd".to_owned(),
        ] {
            let error = roots.named(&path).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound, "{path}");
        }
    }

    #[test]
    fn urls_are_opened_below_allowed_prefixes_only() {
        let none = open(&[]);
        let urls = AllowedUrls {
            prefixes: vec![UrlPrefix::parse("https://host.example/images").unwrap()],
            ..AllowedUrls::default()
        };
        let some = Roots::open(&[], urls).unwrap();
        let inside = "https://host.example/images/a.dmg?sig=secret";
        let located = some.locate(&some.named(inside).unwrap()).unwrap();
        assert_eq!(located.path(), Path::new(inside));
        assert!(!located.shown().to_string_lossy().contains("secret"));
        assert!(located.options(None).network.redirects.is_some());
        let url = |text: &str| ImageId {
            root: None,
            ..id(text.as_bytes())
        };
        assert!(some.locate_for_change(&url(inside)).is_err());
        assert!(none.named(inside).is_err() && none.locate(&url(inside)).is_err());
        for other in [
            "https://host.example/images/../a.dmg",
            "http://host.example/images/a.dmg",
            "https://169.254.169.254/latest/meta-data",
            "http://127.0.0.1/",
            "file:///etc/passwd",
            "s3://bucket/a",
            "/etc/passwd",
            "",
        ] {
            assert!(some.locate(&url(other)).is_err(), "{other}");
            assert!(some.named(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_located_file_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.img"), "one").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        let roots = open(&[folder.path().join("a.img")]);
        let located = roots.locate(&id(b"")).unwrap();
        fs::remove_file(folder.path().join("a.img")).unwrap();
        symlink("secret", folder.path().join("a.img")).unwrap();
        assert_eq!(fs::read(located.path()).unwrap(), b"one");
        assert!(
            roots.locate(&id(b"a.img")).is_err(),
            "a file has nothing below it"
        );
    }

    #[test]
    fn names_are_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let name = b"a\xFF\xC3.dmg";
        fs::write(folder.path().join(OsStr::from_bytes(name)), "mine").unwrap();
        let roots = open(&[folder.path().to_owned()]);
        let found = roots.search("");
        assert_eq!(found.images[0].id.path, name);
        assert_eq!(found.images[0].name, "a\\xFF\\xC3.dmg");
        assert!(roots.locate(&found.images[0].id).is_ok());
    }
}
