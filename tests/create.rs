//! Images that are created, partitioned, formatted and filled in one call.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bandsaw::container::Format;
use bandsaw::fs::{FileSystemExt, Timestamp};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::create::{CreateOptions, Created, Layout, NewVolume, Source, create};
use bandsaw::ops::export::{self, to_folder};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::{Progress, Silent};
use bandsaw::{Error, Kind};

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options(format: Format, layout: Layout, source: Source) -> CreateOptions {
    let volume = NewVolume {
        layout,
        name: "Docs".into(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source,
    };
    CreateOptions {
        format,
        volume: Some(volume),
        ..CreateOptions::default()
    }
}

fn make(path: &Path, options: CreateOptions) -> Result<Created, Error> {
    create(path, options, &Silent)
}

/// Creates files in a folder; returns their contents.
fn fill(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 0..40_u8 {
        let name = PathBuf::from(format!("folder {}/file {number}", number % 3));
        let contents = vec![number; usize::from(number) * 1000];
        fs::create_dir_all(folder.join(&name).parent().unwrap()).unwrap();
        fs::write(folder.join(&name), &contents).unwrap();
        files.insert(name, contents);
    }
    files
}

/// Returns the contents of every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(path) = ahead.pop() {
        if path.is_dir() {
            ahead.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            all.insert(
                path.strip_prefix(folder).unwrap().to_owned(),
                fs::read(&path).unwrap(),
            );
        }
    }
    all
}

#[test]
fn a_folder_becomes_an_image_of_any_format_and_layout() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    let expected = fill(&source);
    for (name, format) in [
        ("image.dmg", Format::Udrw),
        ("image.sparsebundle", Format::Udsb),
    ] {
        for layout in Layout::ALL {
            let path = scratch.path().join(format!("{layout} {name}"));
            drop(
                make(
                    &path,
                    options(format, layout, Source::Folder(source.clone())),
                )
                .unwrap(),
            );
            let image = open::open(&path, &OpenOptions::default()).unwrap();
            assert_eq!(image.format(), format);
            let scheme = image.partitions().map(|map| map.scheme);
            assert_eq!(scheme, layout.scheme());
            let volume = image.file_system(None).unwrap();
            assert_eq!(
                (volume.volume().name.as_str(), volume.volume().clean),
                ("Docs", true)
            );
            let target = scratch.path().join("target");
            let report = to_folder(
                &*volume,
                "/",
                &target,
                &export::FolderOptions::default(),
                &Silent,
            )
            .unwrap();
            assert_eq!((report.files, report.problem_count), (40, 0));
            assert_eq!(files(&target), expected);
            fs::remove_dir_all(target).unwrap();
        }
    }
    assert_eq!(
        fs::read_dir(scratch.path()).unwrap().count(),
        9,
        "nothing is left beside the images"
    );
}

#[test]
fn a_wished_size_is_used_exactly() {
    let scratch = scratch();
    for layout in Layout::ALL {
        let len = 50_000_384;
        let path = scratch.path().join(format!("{layout}.dmg"));
        let wish = CreateOptions {
            len: Some(len),
            ..options(Format::Udrw, layout, Source::Empty)
        };
        let created = make(&path, wish).unwrap();
        assert_eq!(created.image.disk().info().len, len);
        assert_eq!(fs::metadata(&path).unwrap().len(), len);
        let volume = created.image.file_system(None).unwrap().volume();
        assert!(volume.total > len - 100_000 && volume.files == 0);
    }
    let too_small = CreateOptions {
        len: Some(1 << 20),
        ..options(
            Format::Udrw,
            Layout::None,
            Source::Folder(scratch.path().into()),
        )
    };
    assert_eq!(
        make(&scratch.path().join("small.dmg"), too_small)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
}

#[test]
fn a_blank_disk_needs_a_size() {
    let scratch = scratch();
    let path = scratch.path().join("blank.sparsebundle");
    let blank = |len| CreateOptions {
        len,
        volume: None,
        ..options(Format::Udsb, Layout::None, Source::Empty)
    };
    assert_eq!(make(&path, blank(None)).unwrap_err().kind(), Kind::Invalid);
    let created = make(&path, blank(Some(1 << 30))).unwrap();
    assert!(created.volume.is_none() && created.image.volumes().is_empty());
}

#[test]
fn existing_files_are_replaced_on_request_and_by_whole_images_only() {
    let scratch = scratch();
    let path = scratch.path().join("image.sparsebundle");
    drop(make(&path, options(Format::Udsb, Layout::Gptspud, Source::Empty)).unwrap());
    let before = files(&path);
    let error = make(&path, options(Format::Udsb, Layout::Gptspud, Source::Empty)).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let bad = scratch.path().join("bad");
    fs::create_dir(&bad).unwrap();
    for name in ["Same", "same"] {
        fs::write(bad.join(name), name).unwrap();
    }
    let overwrite = |source| CreateOptions {
        overwrite: true,
        ..options(Format::Udsb, Layout::None, source)
    };
    assert_eq!(
        make(&path, overwrite(Source::Folder(bad.clone())))
            .unwrap_err()
            .kind(),
        Kind::Conflict
    );
    assert!(files(&path) == before);
    fs::remove_file(bad.join("Same")).unwrap();
    drop(make(&path, overwrite(Source::Folder(bad))).unwrap());
    let image = open::open(&path, &OpenOptions::default()).unwrap();
    assert!(image.file_system(None).unwrap().resolve("/same").is_ok());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
}

/// Cancels while the contents are written.
struct StopWriting(std::sync::atomic::AtomicBool);

impl Progress for StopWriting {
    fn stage(&self, name: &str, _total: u64) {
        self.0
            .store(name == "write", std::sync::atomic::Ordering::Relaxed);
    }
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn a_stop_leaves_nothing() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fill(&source);
    for (name, format) in [
        ("image.dmg", Format::Udrw),
        ("image.sparsebundle", Format::Udsb),
    ] {
        let options = options(format, Layout::Gptspud, Source::Folder(source.clone()));
        let error = create(
            &scratch.path().join(name),
            options,
            &StopWriting(false.into()),
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled);
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn with_a_fixed_date_the_same_files_give_the_same_bytes() {
    let scratch = scratch();
    let made = |name: &str, format| {
        let source = scratch.path().join(format!("source of {name}"));
        fill(&source);
        let path = scratch.path().join(name);
        let epoch = Some(Timestamp::from_seconds(1_500_000_000));
        drop(
            make(
                &path,
                CreateOptions {
                    epoch,
                    ..options(format, Layout::Gptspud, Source::Folder(source))
                },
            )
            .unwrap(),
        );
        files(&path)
    };
    assert!(made("one.sparsebundle", Format::Udsb) == made("two.sparsebundle", Format::Udsb));
    assert!(made("one.dmg", Format::Udrw) == made("two.dmg", Format::Udrw));
}

#[test]
fn with_a_fixed_date_it_does_not_matter_when_files_were_read() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fill(&source);
    let made = |name: &str, read: u64| {
        let accessed =
            FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH + Duration::from_secs(read));
        fs::File::open(source.join("folder 1/file 1"))
            .and_then(|file| file.set_times(accessed))
            .unwrap();
        let path = scratch.path().join(name);
        let epoch = Some(Timestamp::from_seconds(2_100_000_000));
        let source = Source::Folder(source.clone());
        drop(
            make(
                &path,
                CreateOptions {
                    epoch,
                    ..options(Format::Udrw, Layout::Gptspud, source)
                },
            )
            .unwrap(),
        );
        files(&path)
    };
    assert!(made("one.dmg", 1_700_000_000) == made("two.dmg", 1_800_000_000));
}

#[test]
fn an_image_within_its_source_is_left_out() {
    let scratch = scratch();
    fill(scratch.path());
    let path = scratch.path().join("image.sparsebundle");
    for _ in 0..2 {
        let options = options(
            Format::Udsb,
            Layout::Gptspud,
            Source::Folder(scratch.path().into()),
        );
        let created = make(
            &path,
            CreateOptions {
                overwrite: true,
                ..options
            },
        )
        .unwrap();
        let volume = created.image.file_system(None).unwrap();
        let names: Vec<String> = volume
            .entries(volume.root())
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["folder 0", "folder 1", "folder 2"]);
    }
}

#[test]
fn layouts_have_hdiutils_names() {
    assert_eq!("gptspud".parse::<Layout>().unwrap(), Layout::Gptspud);
    assert_eq!("NONE".parse::<Layout>().unwrap(), Layout::None);
    assert_eq!("MbrSpud".parse::<Layout>().unwrap(), Layout::MbrSpud);
    assert_eq!("ISOCD".parse::<Layout>().unwrap_err().kind(), Kind::Invalid);
}
