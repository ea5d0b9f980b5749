//! Space freed in volumes is reclaimed on the host: `du`, `trim` and `compact`, on every container,
//! plain and encrypted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::fs::{
    FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, FreeMapExt, NewKind, NewNode,
};
use bandsaw::open::{self, Image, Keys, OpenOptions};
use bandsaw::ops::compact::{self, Cause, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::ops::space::UnitUsage;
use bandsaw::ops::trim::{check_fully, trim};
use bandsaw::ops::usage::{HostUsage, ImageUsage};
use bandsaw::progress::{Progress, Silent};
use bandsaw::testing::Random;
use bandsaw::{Kind, Result};

const MIB: u64 = 1 << 20;
const DISK: u64 = 12 * MIB;

fn secret() -> Secret {
    Secret::new(b"key".to_vec())
}

fn open(path: &Path, access: Access) -> Result<Image> {
    let secret = secret();
    open::open(
        path,
        &OpenOptions {
            access,
            keys: Some(&secret as &dyn Keys),
            ..OpenOptions::default()
        },
    )
}

/// Returns every writable container, and whether it is encrypted.
fn kinds() -> impl Iterator<Item = (Format, &'static str, bool)> {
    let formats = [
        (Format::Udrw, "a.dmg"),
        (Format::Udsb, "a.sparsebundle"),
        (Format::Udsp, "a.sparseimage"),
        (Format::Asif, "a.asif"),
    ];
    formats
        .into_iter()
        .flat_map(|(format, name)| [(format, name, false), (format, name, true)])
}

fn make(path: &Path, format: Format, encrypted: bool) {
    let volume = NewVolume {
        layout: Layout::Gptspud,
        name: "Docs".into(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: Source::Empty,
    };
    let encryption = encrypted.then(|| Encryption {
        iterations: Some(MIN_ITERATIONS),
        ..Encryption::new(secret())
    });
    let band_size = format.has_bands().then_some(MIB);
    let options = CreateOptions {
        format,
        len: Some(DISK),
        band_size,
        volume: Some(volume),
        encryption,
        ..CreateOptions::default()
    };
    create(path, options, &Silent).unwrap();
}

/// Creates files of random bytes, two thirds of which are removed afterwards.
fn fill(fs: &dyn FileSystemMut, random: &mut Random) {
    for number in 0..30_u64 {
        let bytes = random.bytes((number * 12_000 + 1) as usize);
        let file = fs
            .create(
                fs.root(),
                &format!("file {number}"),
                &NewNode::new(NewKind::File),
            )
            .unwrap();
        fs.write_all(file, &bytes).unwrap();
    }
    (0..30)
        .filter(|number| number % 3 != 0)
        .for_each(|number| fs.remove(fs.root(), &format!("file {number}")).unwrap());
    fs.unmount().unwrap();
}

fn contents(fs: &dyn FileSystem) -> BTreeMap<String, Vec<u8>> {
    let entries = fs.entries(fs.root()).unwrap().into_iter();
    let read = |entry: bandsaw::fs::Entry| {
        let fork = fs.open(entry.attributes.id, Fork::Data).unwrap();
        (
            entry.name,
            fork.read_vec(0, fork.info().len as usize).unwrap(),
        )
    };
    entries.map(read).collect()
}

fn allocated(path: &Path) -> u64 {
    HostUsage::of(path, &Silent).unwrap().allocated
}

fn assert_sound(path: &Path) {
    let secret = secret();
    let options = OpenOptions {
        keys: Some(&secret as &dyn Keys),
        ..OpenOptions::default()
    };
    check_fully(path, &options, &Silent).unwrap();
}

/// Creates an image of which a part was freed.
fn used(
    folder: &Path,
    format: Format,
    name: &str,
    encrypted: bool,
) -> (PathBuf, BTreeMap<String, Vec<u8>>) {
    let path = folder.join(format!("{encrypted} {name}"));
    make(&path, format, encrypted);
    let image = open(&path, Access::ReadWrite).unwrap();
    fill(&*image.file_system_mut(None).unwrap(), &mut Random::new(7));
    // Noise in free space: it is discarded regardless of its contents.
    let volume = &image.volumes()[0];
    let map = volume.free_map().unwrap().unwrap();
    for run in map.free_runs(0..volume.range.end - volume.range.start) {
        let run = run.unwrap();
        let noise = Random::new(run.start).bytes((run.end - run.start).min(3 * MIB) as usize);
        volume.device().write_at(run.start, &noise).unwrap();
    }
    image.disk().flush().unwrap();
    let files = contents(&*image.file_system(None).unwrap());
    assert_eq!(files.len(), 10);
    (path, files)
}

#[test]
fn a_trim_leaves_what_is_in_use_and_nothing_else() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (format, name, encrypted) in kinds() {
        let (path, files) = used(folder.path(), format, name, encrypted);
        let place = path.display();
        let usage = ImageUsage::of(&open(&path, Access::ReadOnly).unwrap(), None, &Silent).unwrap();
        let info = usage.volumes[0].info.as_ref().unwrap();
        let in_use = info.total - info.free;
        assert_eq!(usage.host.allocated, allocated(&path));
        assert!(usage.returns() > 3 * MIB, "{place}: {}", usage.returns());

        let image = open(&path, Access::ReadWrite).unwrap();
        let trimmed = trim(&image, None, &Silent).unwrap();
        assert!(
            trimmed.volumes[0].refused.is_none() && trimmed.volumes[0].free == info.free,
            "{place}: {trimmed:?}"
        );
        assert_eq!(
            (trimmed.before, trimmed.after),
            (usage.host.allocated, allocated(&path)),
            "{place}"
        );
        let (report, returned) = (usage.returns(), trimmed.before - trimmed.after);
        // Unallocated chunks change tables, and relocated data may fill blocks of the host that
        // were partly in use.
        assert!(
            report.abs_diff(returned) < 512 << 10,
            "{place}: {report} report, {returned} returned"
        );
        // The index, including a chunk of metadata, and partly used blocks of the host.
        let index = image.asif().map_or(16 << 10, |asif| {
            (asif.usage().chunks - asif.usage().data + 1) * asif.usage().chunk_size
        });
        assert!(
            trimmed.after < in_use + index + 500_000,
            "{place}: {} of {in_use} in use",
            trimmed.after
        );
        drop(image);

        let after = ImageUsage::of(&open(&path, Access::ReadOnly).unwrap(), None, &Silent).unwrap();
        assert!(
            after.returns() < 200_000,
            "{place}: {} left",
            after.returns()
        );
        assert_eq!(after.map.unwrap().count_of(UnitUsage::Free), 0, "{place}");
        assert_eq!(
            contents(
                &*open(&path, Access::ReadOnly)
                    .unwrap()
                    .file_system(None)
                    .unwrap()
            ),
            files,
            "{place}"
        );
        assert_sound(&path);
    }
}

#[test]
fn compaction_says_what_it_will_do_and_does_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = compact::Options {
        battery_allowed: true,
        ..compact::Options::default()
    };
    for (format, name, encrypted) in
        kinds().filter(|(format, _, encrypted)| !encrypted || *format == Format::Asif)
    {
        let (path, files) = used(folder.path(), format, name, encrypted);
        let plan = compact::plan(
            &open(&path, Access::ReadOnly).unwrap(),
            &options,
            None,
            &Silent,
        )
        .unwrap();
        assert!(
            plan.causes
                .iter()
                .all(|(cause, bytes)| *cause != Cause::Zeros && *bytes > 0)
        );
        let done = compact(
            &open(&path, Access::ReadWrite).unwrap(),
            &options,
            None,
            &Silent,
        )
        .unwrap();
        assert_eq!(done.before, plan.allocated);
        assert!(
            plan.returns().abs_diff(done.before - done.after) < 512 << 10,
            "{}: {done:?}",
            path.display()
        );
        let image = open(&path, Access::ReadOnly).unwrap();
        assert_eq!(contents(&*image.file_system(None).unwrap()), files);
        assert!(
            image.asif().is_none_or(|asif| asif.usage().unused == 0),
            "packed"
        );
        drop(image);
        assert_sound(&path);
    }
}

#[test]
fn encrypted_images_of_every_kind_are_packed_and_resized() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = compact::Options {
        battery_allowed: true,
        ..compact::Options::default()
    };
    for (format, name, encrypted) in kinds().filter(|(_, _, encrypted)| *encrypted) {
        let (path, files) = used(folder.path(), format, name, encrypted);
        let place = path.display();
        let done = compact(
            &open(&path, Access::ReadWrite).unwrap(),
            &options,
            None,
            &Silent,
        )
        .unwrap();
        assert!(done.after + 3 * MIB < done.before, "{place}: {done:?}");
        let to = |size| ResizeOptions {
            size,
            parts: Parts::All,
            volume: None,
            dry_run: false,
        };
        let grown = resize(
            &open(&path, Access::ReadWrite).unwrap(),
            &to(Size::Bytes(2 * DISK)),
            &Silent,
        )
        .unwrap();
        assert_eq!((grown.from, grown.to), (DISK, 2 * DISK), "{place}");
        assert_eq!(
            contents(
                &*open(&path, Access::ReadOnly)
                    .unwrap()
                    .file_system(None)
                    .unwrap()
            ),
            files,
            "{place}"
        );
        let shrunk = resize(
            &open(&path, Access::ReadWrite).unwrap(),
            &to(Size::Min),
            &Silent,
        )
        .unwrap();
        assert!(shrunk.to < DISK, "{place}: {shrunk:?}");
        let image = open(&path, Access::ReadOnly).unwrap();
        assert_eq!(
            (image.disk().info().len, image.format()),
            (shrunk.to, format),
            "{place}"
        );
        assert_eq!(
            contents(&*image.file_system(None).unwrap()),
            files,
            "{place}"
        );
        drop(image);
        assert_sound(&path);
    }
}

#[test]
fn a_volume_that_was_not_left_in_order_is_not_trimmed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, files) = used(folder.path(), Format::Udrw, "a.dmg", false);
    let image = open(&path, Access::ReadWrite).unwrap();
    let fs = image.file_system_mut(None).unwrap();
    fs.create(fs.root(), "new", &NewNode::new(NewKind::File))
        .unwrap();
    fs.sync().unwrap();
    // As after a crash.
    let crashed = folder.path().join("crashed.dmg");
    fs::copy(&path, &crashed).unwrap();
    let before = fs::read(&crashed).unwrap();
    let image = open(&crashed, Access::ReadWrite).unwrap();
    let trimmed = trim(&image, None, &Silent).unwrap();
    assert_eq!(
        trimmed.volumes[0].refused.as_ref().unwrap().kind(),
        Kind::Conflict
    );
    assert_eq!(trimmed.volumes[0].free, 0);
    let done = compact(
        &image,
        &compact::Options {
            battery_allowed: true,
            zeros: None,
        },
        None,
        &Silent,
    )
    .unwrap();
    assert_eq!((done.refused.len(), done.zeros), (1, 0));
    drop(image);
    assert!(fs::read(&crashed).unwrap() == before, "nothing was touched");
    let usage = ImageUsage::of(&open(&crashed, Access::ReadOnly).unwrap(), None, &Silent).unwrap();
    assert_eq!(
        (usage.returns(), usage.volumes[0].refused.is_some()),
        (0, true)
    );
    let left = contents(
        &*open(&crashed, Access::ReadOnly)
            .unwrap()
            .file_system(None)
            .unwrap(),
    );
    assert_eq!(left.len(), files.len() + 1);
}

#[test]
fn zeros_are_given_back_where_nothing_is_known() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (format, name, encrypted) in
        kinds().filter(|(format, _, encrypted)| !encrypted || *format != Format::Asif)
    {
        let path = folder.path().join(format!("{encrypted} {name}"));
        let encryption = encrypted.then(|| Encryption {
            iterations: Some(MIN_ITERATIONS),
            ..Encryption::new(secret())
        });
        let options = CreateOptions {
            format,
            len: Some(6 * MIB),
            encryption,
            ..CreateOptions::default()
        };
        let disk = create(&path, options, &Silent)
            .unwrap()
            .image
            .disk()
            .clone();
        let noise = Random::new(3).bytes(5 * MIB as usize);
        disk.write_at(0, &noise).unwrap();
        disk.write_at(MIB, &vec![0; 3 * MIB as usize + 12_345])
            .unwrap();
        disk.flush().unwrap();
        let expected = disk.read_vec(0, 6 * MIB as usize).unwrap();
        drop(disk);

        let secret = secret();
        let open = |access| {
            let as_disk = Some(format);
            open::open(
                &path,
                &OpenOptions {
                    access,
                    image_format: as_disk,
                    keys: Some(&secret as &dyn Keys),
                    ..OpenOptions::default()
                },
            )
        };
        let options = compact::Options {
            battery_allowed: true,
            zeros: None,
        };
        let plan =
            compact::plan(&open(Access::ReadOnly).unwrap(), &options, None, &Silent).unwrap();
        let done = compact(&open(Access::ReadWrite).unwrap(), &options, None, &Silent).unwrap();
        let returned = done.before - done.after;
        assert!(
            plan.returns().abs_diff(returned) < 512 << 10,
            "{}: {plan:?} {done:?}",
            path.display()
        );
        // In ciphertext, where a hole would decrypt to noise, only whole bands and chunks are
        // discarded; a raw file has none.
        let least = match (encrypted, format) {
            (false, _) => 3 * MIB,
            (true, Format::Udrw) => 0,
            (true, Format::Udsb) => 0,
            (true, _) => 2 * MIB,
        };
        assert!(returned >= least, "{}: {returned} returned", path.display());
        let disk = open(Access::ReadOnly).unwrap().disk().clone();
        assert!(
            disk.read_vec(0, 6 * MIB as usize).unwrap() == expected,
            "{}",
            path.display()
        );
    }
}

/// Cancels after a number of checks.
struct Impatient(std::sync::atomic::AtomicU64);

impl Progress for Impatient {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 1
    }
}

#[test]
fn a_stopped_compaction_is_consistent_and_is_resumed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (format, name) in [(Format::Udsb, "a.sparsebundle"), (Format::Asif, "a.asif")] {
        let (path, files) = used(folder.path(), format, name, false);
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        let mut patience = 1;
        loop {
            let image = open(&path, Access::ReadWrite).unwrap();
            match compact(&image, &options, None, &Impatient(patience.into())) {
                Err(error) => assert_eq!(error.kind(), Kind::Cancelled),
                Ok(_) => break,
            }
            assert_eq!(
                contents(&*image.file_system(None).unwrap()),
                files,
                "stopped after {patience}"
            );
            patience = patience * 2 + 1;
        }
        assert!(patience > 10);
        assert_eq!(
            contents(
                &*open(&path, Access::ReadOnly)
                    .unwrap()
                    .file_system(None)
                    .unwrap()
            ),
            files
        );
        assert_sound(&path);
    }
}
