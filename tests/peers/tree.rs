//! A folder with everything that a volume must preserve, and listings for comparing trees.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use sha2::{Digest, Sha256};

use crate::common::make_fifo;
use crate::noise::noise;

/// An object at a path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Whole seconds since 1970, the resolution of HFS+.
    pub(crate) modified: i64,
    /// Number of names.
    pub(crate) links: u64,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File { len: u64, sha256: String },
    Symlink(String),
    Fifo,
}

impl Item {
    /// Returns an item with one name of which only the kind is known.
    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            kind,
            mode: 0,
            modified: 0,
            links: 1,
            xattrs: BTreeMap::new(),
        }
    }
}

/// Listing of a tree by path below its root, separated by `/`, without the root itself.
pub(crate) type Listing = BTreeMap<String, Item>;

/// Name of an attribute that is stored separately, and that Linux fills with question marks.
pub(crate) const FINDER_INFO: &str = "com.apple.FinderInfo";

/// Composed characters in the names that [`write`] creates, and their stored form on HFS+.
const DECOMPOSED: [(&str, &str); 10] = [
    ("é", "e\u{301}"),
    ("ñ", "n\u{303}"),
    ("Ñ", "N\u{303}"),
    ("ú", "u\u{301}"),
    ("글", "\u{1100}\u{1173}\u{11af}"),
    ("İ", "I\u{307}"),
    ("Ä", "A\u{308}"),
    ("\u{1e69}", "s\u{323}\u{307}"), // two marks, whose order is prescribed
    ("한", "\u{1112}\u{1161}\u{11ab}"), // Hangul is decomposed by arithmetic
    ("\u{2f81a}", "\u{2f81a}"),      // later than HFS+'s table: stays as it is
];

/// Returns a name with its characters as HFS+ stores them. Programs show them composed, decomposed,
/// or either.
pub(crate) fn decomposed(name: &str) -> String {
    DECOMPOSED
        .iter()
        .fold(name.to_owned(), |name, (composed, parts)| {
            name.replace(composed, parts)
        })
}

/// Fills `root` with names, sizes, links, attributes, modes and dates of every kind. With
/// `both_cases`, adds names that differ only in case.
pub(crate) fn write(root: &Path, both_cases: bool) {
    names(&root.join("Names"), both_cases);
    sizes(&root.join("Sizes"));
    links(&root.join("Links"));
    attributes(&root.join("Attributes"));
    many(&root.join("Many"));
    let deep = (0..40).fold(root.join("Deep"), |path, level| {
        path.join(format!("level {level}"))
    });
    put(&deep.join("at the bottom"), b"here");
    fs::create_dir(root.join("Empty folder")).expect("making a folder");
    modes_and_dates(&root.join("Modes"));
}

fn names(folder: &Path, both_cases: bool) {
    let long = "n".repeat(255);
    let names = [
        "plain",
        ".hidden",
        " leading and trailing ",
        "café",
        "cafe\u{301}s",
        "man\u{303}ana",
        "Äpfel",
        "\u{1e69}",
        "한글",
        "日本語",
        "emoji 🦀",
        "\u{2f81a}",
        "with:colon",
        "back\\slash",
        "tab\there",
        "quote'\"`$x",
        "semi;colon&",
        "percent%20",
        "-dash",
        "~",
        "Zebra",
        "alpha",
        "Beta",
        "_",
        "ﬁ ligature",
        "µ micro",
        "ß",
        "İstanbul",
        &long,
    ];
    for name in names {
        put(&folder.join(name), name.as_bytes());
    }
    put(
        &folder.join("Ñandú/ñ/n\u{303}o").join("deep"),
        b"a folder of each form",
    );
    if both_cases {
        put(&folder.join("CASE"), b"upper");
        put(&folder.join("case"), b"lower");
    }
}

/// Creates files with lengths around the limits of sectors, allocation blocks and bands.
fn sizes(folder: &Path) {
    for len in [
        0,
        1,
        511,
        512,
        513,
        4095,
        4096,
        4097,
        8191,
        8192,
        8193,
        65_535,
        65_537,
        (1 << 20) - 1,
        (1 << 20) + 1,
    ] {
        put(&folder.join(format!("{len} bytes")), &noise(len));
    }
    put(&folder.join("30 MB"), &noise(30_000_000));
    put(&folder.join("zeros"), &vec![0; 300_000]);
}

fn links(folder: &Path) {
    put(&folder.join("first name"), b"one file of three names");
    fs::create_dir_all(folder.join("elsewhere")).expect("making a folder");
    fs::hard_link(folder.join("first name"), folder.join("second name"))
        .expect("making a hard link");
    fs::hard_link(
        folder.join("first name"),
        folder.join("elsewhere/third name"),
    )
    .expect("making a hard link");
    put(&folder.join("empty"), b"");
    fs::hard_link(folder.join("empty"), folder.join("empty too")).expect("making a hard link");
    for (name, target) in [
        ("file", "first name"),
        ("folder", "elsewhere"),
        ("nothing", "no/such file"),
        ("up", "../Names/café"),
        ("absolute", "/etc/hosts"),
    ] {
        symlink(target, folder.join(format!("to {name}"))).expect("making a symbolic link");
    }
    symlink("t".repeat(1000), folder.join("to afar")).expect("making a symbolic link");
    make_fifo(&folder.join("fifo"), 0o640);
}

fn attributes(folder: &Path) {
    let values: [(&str, Vec<u8>); 4] = [
        ("color", b"blue".to_vec()),
        ("empty", Vec::new()),
        ("binary", noise(200)),
        ("com.example.long", noise(3000)),
    ];
    put(&folder.join("four"), b"with attributes");
    fs::create_dir(folder.join("folder")).expect("making a folder");
    for (name, value) in &values {
        for path in ["four", "folder"] {
            attach(&folder.join(path), &format!("user.{name}"), value);
        }
    }
    // Too long for a record of the attributes file: it gets extents.
    put(&folder.join("very long"), b"with a long attribute");
    attach(&folder.join("very long"), "user.long", &noise(3900));
}

/// Creates enough small files for a catalog with several levels.
fn many(folder: &Path) {
    for number in 0..2000 {
        put(
            &folder.join(format!("{:02}/small file {number:04}", number / 100)),
            &noise(number % 700),
        );
    }
}

fn modes_and_dates(folder: &Path) {
    // 1960, 1970, 2001 with a fraction, 2026, 2039.
    for (mode, seconds, nanos) in [
        (0o600, -315_619_200, 0),
        (0o644, 1, 0),
        (0o755, 1_000_000_000, 999_999_999),
        (0o4755, 1_780_000_000, 0),
        (0o444, 2_200_000_000, 0),
    ] {
        let path = folder.join(format!("{mode:04o}"));
        put(&path, b"a mode and a date");
        date(&path, seconds, nanos);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("setting a mode");
    }
    let folder_with_a_date = folder.join("a folder");
    fs::create_dir(&folder_with_a_date).expect("making a folder");
    fs::set_permissions(&folder_with_a_date, Permissions::from_mode(0o1777))
        .expect("setting a mode");
    date(&folder_with_a_date, 1_234_567_890, 0);
    let link = folder.join("a link");
    symlink("0644", &link).expect("making a symbolic link");
    let then = Timespec {
        tv_sec: 987_654_321,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: then,
        last_modification: then,
    };
    rustix::fs::utimensat(CWD, &link, &times, AtFlags::SYMLINK_NOFOLLOW)
        .expect("dating a symbolic link");
}

fn date(path: &Path, seconds: i64, nanos: u32) {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 {
        SystemTime::UNIX_EPOCH - whole
    } else {
        SystemTime::UNIX_EPOCH + whole
    };
    let times = FileTimes::new().set_modified(whole + Duration::from_nanos(nanos.into()));
    OpenOptions::new()
        .read(true)
        .open(path)
        .and_then(|file| file.set_times(times))
        .expect("setting a date");
}

fn put(path: &Path, contents: &[u8]) {
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("making folders");
    fs::write(path, contents).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn attach(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
}

/// Lists everything below `root`.
pub(crate) fn list(root: &Path) -> Listing {
    let mut listing = Listing::new();
    list_folder(root, "", &mut listing);
    listing
}

fn list_folder(folder: &Path, prefix: &str, into: &mut Listing) {
    for entry in
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let entry = entry.expect("reading a folder");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let item = item(&entry.path());
        let path = format!("{prefix}{name}");
        if item.kind == Kind::Folder {
            list_folder(&entry.path(), &format!("{path}/"), into);
        }
        into.insert(path, item);
    }
}

fn item(path: &Path) -> Item {
    let meta = fs::symlink_metadata(path).expect("asking about a file");
    let kind = if meta.is_dir() {
        Kind::Folder
    } else if meta.is_symlink() {
        let target = fs::read_link(path).expect("reading a symbolic link");
        Kind::Symlink(
            target
                .into_os_string()
                .into_string()
                .expect("targets are UTF-8"),
        )
    } else if meta.is_file() {
        Kind::File {
            len: meta.len(),
            sha256: sha256(&fs::read(path).expect("reading a file")),
        }
    } else {
        Kind::Fifo
    };
    let links = if kind == Kind::Folder {
        1
    } else {
        meta.nlink()
    };
    Item {
        kind,
        mode: meta.mode() & 0o7777,
        modified: meta.mtime(),
        links,
        xattrs: xattrs(path, &meta),
    }
}

fn xattrs(path: &Path, meta: &fs::Metadata) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let mut value = vec![0; 64 << 10];
    if !meta.is_dir() && !meta.is_file() {
        return BTreeMap::new(); // Linux has no user attributes there
    }
    let len = rustix::fs::llistxattr(path, &mut names[..]).expect("listing attributes");
    let names = String::from_utf8(names[..len].to_vec()).expect("attribute names are UTF-8");
    let user = names
        .split_terminator('\0')
        .filter_map(|name| name.strip_prefix("user."));
    user.map(|name| {
        let len = rustix::fs::lgetxattr(path, format!("user.{name}"), &mut value[..])
            .expect("reading an attribute");
        (name.to_owned(), value[..len].to_vec())
    })
    .collect()
}

/// Returns the SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns true if a path is in the private folders of HFS+ for hard links, or is a journal, as
/// shown by programs that do not hide them.
pub(crate) fn is_private(path: &str) -> bool {
    path.contains("HFS+ Private D") || is_journal(path)
}

/// Returns true if a path is a volume's journal.
pub(crate) fn is_journal(path: &str) -> bool {
    [".journal", ".journal_info_block"].contains(&path.trim_start_matches('/'))
}

/// Fails the test unless both trees have the same items at the same paths, composed or not.
pub(crate) fn assert_same(expected: &Listing, found: &Listing) {
    let [expected, found] = [expected, found].map(|listing| {
        listing
            .iter()
            .map(|(path, item)| (decomposed(path), item))
            .collect::<BTreeMap<_, _>>()
    });
    let mut differences = Vec::new();
    for (path, item) in &expected {
        match found.get(path) {
            None => differences.push(format!("missing: {path:?}: {item:?}")),
            Some(other) if other != item => differences.push(format!(
                "differs: {path:?}\n  expected {item:?}\n  found    {other:?}"
            )),
            Some(_) => {}
        }
    }
    let surplus = found
        .iter()
        .filter(|(path, _)| !expected.contains_key(*path));
    differences.extend(surplus.map(|(path, item)| format!("surplus: {path:?}: {item:?}")));
    let shown = differences.iter().take(20).map(|line| format!("{line}\n"));
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        shown.collect::<String>()
    );
}
