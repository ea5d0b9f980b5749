//! The gate before the first write: below sources that disagree no verb loses anything, and images
//! in order, or left by an interrupted change, are accepted.

use std::fs;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::container::stack::Role;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::device::{Access, AfterDiscard, BlockDeviceExt};
use bandsaw::fs::{FileSystemExt, FileSystemMut, Fork, NewKind, NewNode};
use bandsaw::open::overlays::{LayerOptions, create_layer};
use bandsaw::open::{Image, Keys, OpenOptions, open};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::reband::reband;
use bandsaw::ops::repair::{self, Mode, repair};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::ops::stack::commit;
use bandsaw::ops::{compact, trim};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;
use bandsaw::{Error, Kind, Result};

use crate::common::{corpus, opened};

const MIB: u64 = 1 << 20;
const LEN: u64 = 8 * MIB;
const FILE: usize = 5 << 20;

/// The contents of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Volume(NewFormat, Layout),
    Encrypted(NewFormat, Layout),
    /// Bytes of no known kind.
    Unknown,
}

const CONTENTS: [Contents; 6] = [
    Contents::Volume(NewFormat::HfsPlus, Layout::Gptspud),
    Contents::Volume(NewFormat::HfsPlus, Layout::None),
    Contents::Volume(NewFormat::Apfs, Layout::Gptspud),
    Contents::Volume(NewFormat::Apfs, Layout::None),
    Contents::Encrypted(NewFormat::Apfs, Layout::Gptspud),
    Contents::Unknown,
];

impl Contents {
    /// Returns the verbs that are tried, to save time. `None`: all.
    fn verbs(self) -> Option<&'static [&'static str]> {
        match self {
            // The derivation of keys is slow.
            Self::Encrypted(..) => Some(&["attach", "reband"]),
            Self::Volume(_, Layout::None) | Self::Volume(NewFormat::Apfs, _) => {
                Some(&["mount", "compact", "reband", "resize --image-only, smaller"])
            }
            Self::Volume(..) | Self::Unknown => None,
        }
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    key: Secret,
    bytes: Vec<u8>,
    contents: Contents,
}

impl Fixture {
    /// Creates `good.sparsebundle` with a file of random bytes, or with random bytes.
    fn new(contents: Contents) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = Random::new(1).bytes(FILE);
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("f"), &bytes).unwrap();
        let (format, layout) = match contents {
            Contents::Volume(format, layout) | Contents::Encrypted(format, layout) => {
                (Some(format), layout)
            }
            Contents::Unknown => (None, Layout::None),
        };
        let encryption = matches!(contents, Contents::Encrypted(..)).then(|| Encryption {
            iterations: Some(MIN_ITERATIONS),
            ..Encryption::new(secret())
        });
        let options = CreateOptions {
            format: Format::Udsb,
            len: Some(LEN),
            band_size: Some(MIB),
            encryption,
            volume: format.map(|format| NewVolume {
                layout,
                name: "Docs".into(),
                format,
                block_size: None,
                source: Source::Folder(source),
            }),
            ..CreateOptions::default()
        };
        let path = folder.path().join("good.sparsebundle");
        let created = create(&path, options, &Silent).unwrap();
        if contents == Contents::Unknown {
            created.image.disk().write_at(0, &bytes).unwrap();
            created
                .image
                .disk()
                .write_at(LEN - 512, &bytes[..512])
                .unwrap();
            created.image.disk().flush().unwrap();
        }
        drop(created);
        Self {
            folder,
            key: secret(),
            bytes,
            contents,
        }
    }

    fn good(&self) -> PathBuf {
        self.folder.path().join("good.sparsebundle")
    }

    /// Returns a copy of the bundle.
    fn copy(&self) -> PathBuf {
        let copy = self.folder.path().join("copy.sparsebundle");
        for old in [
            copy.clone(),
            self.folder.path().join("copy.sparsebundle.undo"),
        ] {
            if old.exists() {
                fs::remove_dir_all(old).unwrap();
            }
        }
        copy_folder(&self.good(), &copy);
        copy
    }

    fn options(&self, access: Access) -> OpenOptions<'_> {
        OpenOptions {
            access,
            keys: Some(&self.key as &dyn Keys),
            ..OpenOptions::default()
        }
    }

    fn open(&self, path: &Path, access: Access) -> Result<Image> {
        open(path, &self.options(access))
    }

    fn has_volume(&self) -> bool {
        self.contents != Contents::Unknown
    }

    /// Returns true if the bundle at `path` still holds the bytes.
    fn is_whole(&self, path: &Path) -> bool {
        let Ok(image) = self.open(path, Access::ReadOnly) else {
            return false;
        };
        if !self.has_volume() {
            let disk = image.disk();
            return disk
                .read_vec(0, FILE)
                .is_ok_and(|found| found == self.bytes)
                && disk
                    .read_vec(LEN - 512, 512)
                    .is_ok_and(|found| found == self.bytes[..512]);
        }
        let read = || -> Result<Vec<u8>> {
            let volume = image.file_system(None)?;
            let file = volume.resolve("/f")?.id;
            volume.open(file, Fork::Data)?.read_vec(0, FILE)
        };
        read().is_ok_and(|found| found == self.bytes)
    }
}

fn secret() -> Secret {
    Secret::new(b"key".to_vec())
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns name and bytes of every band.
fn bands(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(path.join("bands"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    found.sort();
    found
}

/// Changes a number in a list.
fn edit(path: &Path, list: &str, key: &str, change: impl FnOnce(u64) -> u64) {
    let path = path.join(list);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&format!("<key>{key}</key>")).unwrap();
    let (space, rest) = rest.split_once("<integer>").unwrap();
    let (number, rest) = rest.split_once("</integer>").unwrap();
    let number = change(number.parse().unwrap());
    let text = format!("{before}<key>{key}</key>{space}<integer>{number}</integer>{rest}");
    fs::write(path, text).unwrap();
}

type Verb = fn(&Fixture, &Path) -> Result<()>;

fn changing(fixture: &Fixture, path: &Path) -> Result<Option<std::sync::Arc<dyn FileSystemMut>>> {
    let image = fixture.open(path, Access::ReadWrite)?;
    if fixture.has_volume() {
        image.file_system_mut(None).map(Some)
    } else {
        Ok(None)
    }
}

/// Every way of writing to an image.
const VERBS: [(&str, Verb); 11] = [
    ("attach", |fixture, path| {
        let image = fixture.open(path, Access::ReadWrite)?;
        trim::before_use(&image, None, &Silent).map(drop)
    }),
    ("mount", |fixture, path| {
        let image = fixture.open(path, Access::ReadWrite)?;
        trim::before_use(&image, None, &Silent)?;
        drop(image);
        match changing(fixture, path)? {
            Some(volume) => volume.unmount(),
            None => Ok(()),
        }
    }),
    ("put", |fixture, path| match changing(fixture, path)? {
        Some(volume) => {
            let new = NewNode::new(NewKind::File);
            volume.create(volume.root(), "another", &new)?;
            volume.unmount()
        }
        None => Ok(()),
    }),
    ("write", |fixture, path| {
        let image = fixture.open(path, Access::ReadWrite)?;
        let old = image.disk().read_vec(0, 4096)?;
        image.disk().write_at(0, &old)?;
        image.disk().flush()
    }),
    ("trim", |fixture, path| {
        trim::trim(&fixture.open(path, Access::ReadWrite)?, None, &Silent).map(drop)
    }),
    ("compact", |fixture, path| {
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        compact::compact(
            &fixture.open(path, Access::ReadWrite)?,
            &options,
            None,
            &Silent,
        )
        .map(drop)
    }),
    ("reband", |fixture, path| {
        reband(
            path,
            Some(4 * MIB),
            &fixture.options(Access::ReadWrite),
            &Silent,
        )
        .map(drop)
    }),
    ("resize --image-only, larger", |fixture, path| {
        resized(fixture, path, 12 * MIB, Parts::Image)
    }),
    ("resize --image-only, smaller", |fixture, path| {
        resized(fixture, path, LEN - MIB, Parts::Image)
    }),
    ("resize, larger", |fixture, path| {
        resized(fixture, path, 12 * MIB, Parts::All)
    }),
    ("resize, smaller", |fixture, path| {
        resized(fixture, path, LEN - MIB, Parts::All)
    }),
];

fn resized(fixture: &Fixture, path: &Path, size: u64, parts: Parts) -> Result<()> {
    let options = ResizeOptions {
        size: Size::Bytes(size),
        parts,
        volume: None,
        dry_run: false,
    };
    resize(&fixture.open(path, Access::ReadWrite)?, &options, &Silent).map(drop)
}

/// Runs every verb on a copy that `change` has changed. Returns those that were refused.
fn refused(fixture: &Fixture, what: &str, change: &dyn Fn(&Path)) -> Vec<&'static str> {
    let mut refused = Vec::new();
    for (verb, run) in VERBS {
        if !fixture
            .contents
            .verbs()
            .is_none_or(|verbs| verbs.contains(&verb))
        {
            continue;
        }
        let path = fixture.copy();
        change(&path);
        let before = bands(&path);
        let case = format!("{:?}, {what}, {verb}", fixture.contents);
        match run(fixture, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Undecided => {
                assert!(
                    bands(&path) == before,
                    "{case}: refused, but it changed a band"
                );
                refused.push(verb);
                // The right lists are put back: all bytes are there.
                for list in ["Info.plist", "Info.bckup"] {
                    fs::copy(fixture.good().join(list), path.join(list)).unwrap();
                }
            }
            // The same verb of the image in order says whether that is due to the edit.
            Err(error) => {
                let path = fixture.copy();
                let expected = run(fixture, &path).err().map(|error| error.kind());
                assert_eq!(expected, Some(error.kind()), "{case}: {error}");
                continue;
            }
        }
        assert!(fixture.is_whole(&path), "{case}: contents are lost");
    }
    refused
}

/// One wrong number in Info.plist alone: the case in which every verb except `repair` lost bands.
#[test]
fn a_wrong_number_in_one_list_loses_nothing() {
    type Edit = (&'static str, fn(u64) -> u64);
    let edits: [(&str, Edit); 6] = [
        ("half the size", ("size", |size| size / 2)),
        ("size 0", ("size", |_| 0)),
        ("size 512", ("size", |_| 512)),
        ("512 bytes less", ("size", |size| size - 512)),
        ("twice the size", ("size", |size| size * 2)),
        ("twice the band size", ("band-size", |size| size * 2)),
    ];
    for contents in CONTENTS {
        let fixture = Fixture::new(contents);
        assert_eq!(refused(&fixture, "in order", &|_| {}), [""; 0]);
        for (what, (key, change)) in edits {
            let refused = refused(&fixture, what, &|path| {
                edit(path, "Info.plist", key, change)
            });
            // A volume says which list is right. Nothing does if the bytes are of no known kind.
            if contents == Contents::Unknown {
                assert_eq!(refused.len(), VERBS.len(), "{what}: {refused:?}");
            } else {
                assert_eq!(refused, [""; 0], "{contents:?}, {what}");
            }
        }
    }
}

/// States that an interrupted change or another system leaves.
#[test]
fn interrupted_changes_are_accepted() {
    for contents in CONTENTS
        .into_iter()
        .filter(|contents| !matches!(contents, Contents::Volume(_, Layout::Gptspud)))
        .chain([Contents::Volume(NewFormat::Apfs, Layout::Gptspud)])
    {
        let fixture = Fixture::new(contents);
        let accepted = |what: &str, change: &dyn Fn(&Path)| {
            assert_eq!(
                refused(&fixture, what, change),
                [""; 0],
                "{contents:?}, {what}"
            );
        };
        accepted("no Info.bckup", &|path| {
            fs::remove_file(path.join("Info.bckup")).unwrap();
        });
        accepted("unreadable Info.bckup", &|path| {
            fs::write(path.join("Info.bckup"), "x").unwrap();
        });
        accepted("unreadable Info.plist", &|path| {
            fs::write(path.join("Info.plist"), "x").unwrap();
        });
        if !fixture.has_volume() {
            continue;
        }
        // A resize writes the copy first.
        accepted("Info.bckup of a larger disk", &|path| {
            edit(path, "Info.bckup", "size", |size| size + MIB);
        });
        accepted("Info.bckup of a smaller disk", &|path| {
            edit(path, "Info.bckup", "size", |size| size - MIB);
        });
        accepted("both lists of a larger disk", &|path| {
            for list in ["Info.plist", "Info.bckup"] {
                edit(path, list, "size", |size| size + 4 * MIB);
            }
        });
        // The volume is smaller already, and the lists are not.
        accepted("Info.plist of the disk before it was cut", &|path| {
            resized(&fixture, path, LEN - MIB, Parts::All).unwrap();
            edit(path, "Info.plist", "size", |_| LEN);
        });
        accepted("bands past the end of a disk that was cut", &|path| {
            resized(&fixture, path, LEN - MIB, Parts::All).unwrap();
            fs::write(path.join("bands/7"), [1; 4096]).unwrap();
        });
        // A copy of the bundle while a volume is mounted is what a kill leaves.
        accepted("a volume that was not unmounted", &|path| {
            let copy = fixture.folder.path().join("mounted.sparsebundle");
            fs::rename(path, &copy).unwrap();
            let volume = changing(&fixture, &copy).unwrap().unwrap();
            for name in ["one", "two"] {
                let new = NewNode::new(NewKind::File);
                volume.create(volume.root(), name, &new).unwrap();
                volume.sync().unwrap();
            }
            copy_folder(&copy, path);
            volume.unmount().unwrap();
            drop(volume);
            fs::remove_dir_all(&copy).unwrap();
        });
    }
}

/// An assumption decides, with undo data; then everything is accepted.
#[test]
fn an_assumption_resolves_a_disagreement() {
    let fixture = Fixture::new(Contents::Unknown);
    let path = fixture.copy();
    edit(&path, "Info.plist", "size", |size| size / 2);
    let error: Error = fixture
        .open(&path, Access::ReadWrite)
        .map(drop)
        .unwrap_err();
    let alternatives = bandsaw::decision::Undecided::of(&error);
    assert_eq!(error.kind(), Kind::Undecided);
    assert_eq!(alternatives.len(), 2, "{error}");
    assert!(
        error.to_string().contains("macOS writes Info.bckup first"),
        "{error}"
    );
    // Reading is possible, with a warning.
    let reading = fixture.open(&path, Access::ReadOnly).unwrap();
    assert!(
        reading
            .warnings()
            .iter()
            .any(|warning| warning.contains("Info.bckup")),
        "{:?}",
        reading.warnings()
    );
    drop(reading);
    let mut assume = bandsaw::decision::Assumptions::default();
    assume.add(&format!("size={LEN}")).unwrap();
    let assumed = OpenOptions {
        assume: Some(&assume),
        ..fixture.options(Access::ReadOnly)
    };
    assert_eq!(open(&path, &assumed).unwrap().disk().info().len, LEN);
    let chosen = repair::Options {
        mode: Mode::Apply,
        assume,
        ..repair::Options::default()
    };
    let done = repair(&path, &fixture.options(Access::ReadOnly), &chosen, &Silent).unwrap();
    assert!(done.undo.is_some());
    fixture.open(&path, Access::ReadWrite).unwrap();
    assert!(fixture.is_whole(&path));
}

/// No image of the corpus that can be read is refused: over a shadow file, and a copy of it if it is
/// a small bundle.
#[test]
fn images_of_the_corpus_are_accepted() {
    let Some(images) = corpus::images("images_of_the_corpus_are_accepted") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut accepted = 0;
    for (number, image) in images.iter().enumerate() {
        if !opened::KINDS.contains(&image.format()) {
            continue;
        }
        let Some(path) = opened::place(image, scratch.path()) else {
            continue;
        };
        let password = image.entry()["encrypted"]["password"].as_str();
        let key = password.map(|password| Secret::new(password.into()));
        let reading = OpenOptions {
            keys: key.as_ref().map(|key| key as &dyn Keys),
            ..OpenOptions::default()
        };
        if open(&path, &reading).is_err() {
            continue;
        }
        let shadows = [scratch.path().join(format!("{number}.shadow"))];
        let over = OpenOptions {
            access: Access::ReadWrite,
            shadows: &shadows,
            ..reading
        };
        let mut ways = vec![open(&path, &over).map(drop)];
        let is_small = |path: &Path| {
            fs::read_dir(path.join("bands")).is_ok_and(|bands| {
                let lens = bands.map(|band| band.unwrap().metadata().unwrap().len());
                lens.sum::<u64>() < 64 * MIB
            })
        };
        if path.is_dir() && is_small(&path) {
            let copy = scratch.path().join(format!("{number}.sparsebundle"));
            copy_folder(&path, &copy);
            let writing = OpenOptions {
                access: Access::ReadWrite,
                ..reading
            };
            ways.push(open(&copy, &writing).map(drop));
        }
        for way in ways {
            accepted += usize::from(way.is_ok());
            if let Err(error) = way {
                assert!(error.kind() != Kind::Undecided, "{}: {error}", image.path());
            }
        }
    }
    assert!(accepted > 0, "no image could be opened for changes");
}

/// A change of the length of the disk itself, as by a client of a server, and the commit of a longer
/// layer keep files past the end that may be data.
#[test]
fn files_past_the_end_are_accounted_for_before_the_length_changes() {
    for contents in [
        Contents::Unknown,
        Contents::Volume(NewFormat::HfsPlus, Layout::Gptspud),
    ] {
        let fixture = Fixture::new(contents);
        let path = fixture.copy();
        if fixture.has_volume() {
            // A wrong count in the volume header: the volume does not confirm the length.
            let image = fixture.open(&path, Access::ReadWrite).unwrap();
            let start = image.volumes()[0].range.start;
            image
                .disk()
                .write_at(start + 1024 + 48, &[0xFF; 4])
                .unwrap();
            image.disk().flush().unwrap();
        }
        fs::write(path.join("bands/20"), [1; 4096]).unwrap();
        let before = bands(&path);
        for len in [LEN + MIB, LEN - MIB] {
            let image = fixture.open(&path, Access::ReadWrite).unwrap();
            let disk = image.disk();
            let error = disk.set_len(len, AfterDiscard::Zeros).unwrap_err();
            assert_eq!(error.kind(), Kind::Undecided, "{error}");
            assert_eq!(disk.info().len, LEN);
            disk.set_len(LEN, AfterDiscard::Zeros).unwrap();
            drop(image);
            assert!(bands(&path) == before, "{contents:?}, {len}");
        }
        let layer = fixture.folder.path().join("layer");
        let options = fixture.options(Access::ReadOnly);
        let longer = LayerOptions {
            role: Role::Overlay,
            len: Some(LEN + MIB),
            block: None,
            overwrite: false,
        };
        create_layer(&layer, &path, &options, &longer).unwrap();
        let made = fs::read(&layer).unwrap();
        let layers = [layer.clone()];
        let error = commit(&path, &layers, &options, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{error}");
        assert!(bands(&path) == before && fs::read(&layer).unwrap() == made);
        // Without such files, all of it is done.
        fs::remove_file(path.join("bands/20")).unwrap();
        commit(&path, &layers, &options, &Silent).unwrap();
        let image = fixture.open(&path, Access::ReadWrite).unwrap();
        assert_eq!(image.disk().info().len, LEN + MIB);
        image.disk().set_len(LEN, AfterDiscard::Zeros).unwrap();
        assert_eq!(image.disk().info().len, LEN);
    }
    // A sound volume of this length accounts for them.
    let fixture = Fixture::new(Contents::Volume(NewFormat::HfsPlus, Layout::Gptspud));
    let path = fixture.copy();
    fs::write(path.join("bands/20"), [1; 4096]).unwrap();
    let image = fixture.open(&path, Access::ReadWrite).unwrap();
    image
        .disk()
        .set_len(LEN + MIB, AfterDiscard::Zeros)
        .unwrap();
    drop(image);
    assert!(!path.join("bands/20").exists() && fixture.is_whole(&path));
}
