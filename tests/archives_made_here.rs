//! Import of tar archives that no program writes: made field by field.

use std::collections::BTreeMap;

use bandsaw::fs::source::Stream;
use bandsaw::fs::{FileKind, Timestamp, UF_HIDDEN};
use bandsaw::{Error, Kind};

use crate::archives::{Seen, import, read, volume};

/// A hand-written archive.
#[derive(Default)]
pub(crate) struct Archive(pub(crate) Vec<u8>);

impl Archive {
    fn header(&mut self, name: &[u8], flag: u8, link: &[u8], size: usize) {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name);
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..124].copy_from_slice(b"0000000\x000000000\0");
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[136..148].copy_from_slice(b"07346545000\0");
        header[156] = flag;
        header[157..157 + link.len()].copy_from_slice(link);
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
    }

    pub(crate) fn member(mut self, name: &[u8], flag: u8, contents: &[u8]) -> Self {
        self.header(name, flag, b"", contents.len());
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn link(mut self, name: &[u8], flag: u8, target: &[u8]) -> Self {
        self.header(name, flag, target, 0);
        self
    }

    fn seen(self) -> BTreeMap<String, Seen> {
        read(&volume(import(&self.0).unwrap()).unwrap())
    }

    fn refused(self) -> Error {
        import(&self.0).map(drop).unwrap_err()
    }
}

#[test]
fn of_two_members_the_later_counts() {
    let seen = Archive::default()
        .member(b"file", b'0', b"first")
        .link(b"linked", b'1', b"file")
        .link(b"also", b'1', b"linked")
        .member(b"file", b'0', b"second")
        .member(b"folder/", b'5', b"")
        .member(b"folder/inside", b'0', b"inside")
        .member(b"./folder", b'5', b"")
        .link(b"file", b'1', b"file")
        .member(b"once a file", b'0', b"")
        .member(b"once a file/", b'5', b"")
        .seen();
    let contents = |path: &str| String::from_utf8(seen[path].contents.clone()).unwrap();
    assert_eq!(
        (contents("/file"), contents("/linked"), contents("/also")),
        ("second".into(), "first".into(), "first".into())
    );
    assert_eq!(
        (
            seen["/linked"].attributes.links,
            seen["/file"].attributes.links
        ),
        (2, 1)
    );
    assert_eq!(contents("/folder/inside"), "inside");
    assert_eq!(seen["/once a file"].attributes.kind, FileKind::Folder);
}

#[test]
fn paths_stay_within_the_volume() {
    let seen = Archive::default()
        .member(b"/abs//./olute", b'0', b"x")
        .member(b"made/for/this", b'0', b"y")
        .seen();
    assert_eq!(seen["/abs/olute"].contents, b"x");
    assert_eq!(seen["/made/for"].attributes.mode, 0o755);
    for name in [&b"../out"[..], b"a/../../out", b".."] {
        let error = Archive::default().member(name, b'0', b"").refused();
        assert!(
            error.kind() == Kind::Unsupported && error.to_string().contains(".."),
            "{error}"
        );
    }
    let through = Archive::default()
        .link(b"link", b'2', b"/etc")
        .member(b"link/passwd", b'0', b"");
    assert_eq!(through.refused().kind(), Kind::Unsupported);
    let over = Archive::default()
        .member(b"folder/file", b'0', b"")
        .member(b"folder", b'0', b"");
    assert_eq!(over.refused().kind(), Kind::Unsupported);
    assert_eq!(
        Archive::default()
            .link(b"a", b'1', b"nowhere")
            .refused()
            .kind(),
        Kind::Unsupported
    );
    assert_eq!(
        Archive::default()
            .member(b"d/", b'5', b"")
            .link(b"a", b'1', b"d")
            .refused()
            .kind(),
        Kind::Unsupported
    );
    assert_eq!(
        Archive::default()
            .member(b"\xFF", b'0', b"")
            .refused()
            .kind(),
        Kind::Unsupported
    );
    assert_eq!(
        Archive::default().member(b"a", b'M', b"").refused().kind(),
        Kind::Unsupported
    );
}

#[test]
fn other_files_are_refused() {
    let kinds = [
        (&b""[..], Kind::Corrupt),
        (b"short", Kind::Corrupt),
        (&[7; 5000], Kind::Corrupt),
        (b"\x1F\x8B\x08 and so on", Kind::Unsupported),
        (b"BZh9 and so on", Kind::Unsupported),
        (b"\xFD7zXZ\0 and so on", Kind::Unsupported),
        (b"\x28\xB5\x2F\xFD and so on", Kind::Unsupported),
    ];
    for (bytes, kind) in kinds {
        let error = import(bytes).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let error = import(b"\x1F\x8B").map(drop).unwrap_err();
    assert!(error.to_string().contains("gzip -dc"), "{error}");
    assert_eq!(
        import(&[0; 1024]).unwrap().nodes.len(),
        1,
        "an empty archive is one"
    );
}

#[test]
fn damage_is_found_where_it_is() {
    let whole = Archive::default()
        .member(b"first", b'0', &[1; 1000])
        .member(b"second", b'0', &[2; 1000])
        .0;
    for end in (0..whole.len()).step_by(100) {
        match import(&whole[..end]) {
            Ok(tree) => assert!(
                end >= 512 + 1000 && end % 512 <= 1024,
                "{} nodes at {end}",
                tree.nodes.len()
            ),
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{end}: {error}"),
        }
    }
    // The space after the checksum has no meaning.
    for at in (0..512).filter(|at| *at != 155) {
        let mut bytes = whole.clone();
        bytes[1536 + at] ^= 0x55;
        let error = import(&bytes).map(drop).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains("1536"),
            "{at}: {error}"
        );
    }
    let lies = [
        (b"x", &b"99 path=short\n"[..]),
        (b"x", b"18 size=18446744073\n"),
        (b"x", b"13 mtime=now\n"),
        (b"x", b"22 GNU.sparse.major=1\n27 GNU.sparse.realsize=100\n"),
        (b"x", b"22 GNU.sparse.size=10\n23 GNU.sparse.map=0,20\n"),
    ];
    for (flag, records) in lies {
        let archive =
            Archive::default()
                .member(b"pax", flag[0], records)
                .member(b"file", b'0', b"contents");
        let error = archive.refused();
        assert_eq!(
            error.kind(),
            Kind::Corrupt,
            "{}: {error}",
            String::from_utf8_lossy(records)
        );
    }
}

#[test]
fn attributes_of_macos_come_in_files_beside() {
    let mut double = Vec::new();
    double.extend_from_slice(b"\0\x05\x16\x07\0\x02\0\0Mac OS X        \0\x02");
    let entry = |double: &mut Vec<u8>, id: u32, offset: u32, length: u32| {
        [id, offset, length]
            .iter()
            .for_each(|number| double.extend_from_slice(&number.to_be_bytes()));
    };
    let value = vec![0x61; 5000];
    entry(&mut double, 9, 50, 200 + 5000 - 50);
    entry(&mut double, 2, 5200, 70_000);
    double.extend_from_slice(b"TEXTttxt");
    double.resize(84, 0);
    double.extend_from_slice(b"ATTR\0\0\0\0");
    [5200_u32, 200, 5000, 0, 0, 0]
        .iter()
        .for_each(|number| double.extend_from_slice(&number.to_be_bytes()));
    double.extend_from_slice(b"\0\0\0\x02");
    [
        (195_u32, 5_u32, &b"short\0"[..]),
        (200, 5000, b"com.example.long\0"),
    ]
    .iter()
    .for_each(|(offset, length, name)| {
        double.extend_from_slice(&offset.to_be_bytes());
        double.extend_from_slice(&length.to_be_bytes());
        double.extend_from_slice(&[0, 0, name.len() as u8]);
        double.extend_from_slice(name);
        double.resize(double.len().next_multiple_of(4), 0);
    });
    double.resize(195, 0);
    double.extend_from_slice(b"value");
    double.extend_from_slice(&value);
    double.extend_from_slice(&vec![0x72; 70_000]);

    let seen = Archive::default()
        .member(b"folder/._file", b'0', &double)
        .member(b"folder/file", b'0', b"contents")
        .member(b"._alone", b'0', &double)
        .member(b"other", b'0', b"")
        .member(b"._text", b'0', b"not AppleDouble")
        .member(b"text", b'0', b"")
        .seen();
    let file = &seen["/folder/file"];
    assert_eq!(file.contents, b"contents");
    assert_eq!(file.xattrs["short"], b"value");
    assert!(file.xattrs["com.example.long"] == value);
    assert!(file.xattrs["com.apple.ResourceFork"] == vec![0x72; 70_000]);
    assert_eq!(&file.xattrs["com.apple.FinderInfo"][..8], b"TEXTttxt");
    assert!(!seen.contains_key("/folder/._file"));
    assert!(seen["/._alone"].contents == double);
    assert_eq!(seen["/._text"].contents, b"not AppleDouble");
    // Truncated anywhere, it imports the same file, or a prefix of the entries.
    for end in 0..250 {
        let seen = Archive::default()
            .member(b"._file", b'0', &double[..end])
            .member(b"file", b'0', b"contents")
            .seen();
        assert_eq!(seen["/file"].contents, b"contents");
    }
}

#[test]
fn libarchives_attributes_and_dates_are_read() {
    let records: String = [
        ("LIBARCHIVE.xattr.com.apple.metadata%3Akey", "aGVsbG8="),
        ("SCHILY.xattr.security.selinux", "label"),
        ("SCHILY.xattr.user.plain", "text"),
        ("LIBARCHIVE.creationtime", "1000000000.5"),
        ("mtime", "-1.5"),
        ("SCHILY.fflags", "uchg,hidden"),
    ]
    .iter()
    .map(|(key, value)| {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..)
            .find(|length| rest + length.to_string().len() == *length)
            .unwrap();
        format!("{length} {key}={value}\n")
    })
    .collect();
    let archive = Archive::default()
        .member(b"pax", b'x', records.as_bytes())
        .member(b"file", b'0', b"");
    let tree = import(&archive.0).unwrap();
    let file = &tree.nodes[1];
    assert_eq!(
        file.modified,
        Timestamp {
            seconds: -2,
            nanos: 500_000_000
        }
    );
    assert_eq!(
        file.created,
        Some(Timestamp {
            seconds: 1_000_000_000,
            nanos: 500_000_000
        })
    );
    assert_eq!(file.flags, UF_HIDDEN | 0x2);
    let xattrs: BTreeMap<&str, &Stream> = file
        .xattrs
        .iter()
        .map(|(name, value)| (&**name, value))
        .collect();
    assert_eq!(
        xattrs.keys().copied().collect::<Vec<_>>(),
        ["com.apple.metadata:key", "plain"]
    );
    assert_eq!(
        *xattrs["com.apple.metadata:key"],
        Stream::Bytes(b"hello".as_slice().into())
    );
}
