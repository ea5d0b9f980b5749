//! Power failures while disk, map and volume are resized together: all files are kept, and
//! repeating the resize completes it.

mod apfs;

use super::*;
use crate::device::{AfterDiscard, BlockDeviceExt};
use crate::fs::hfsplus::build::{Options, Plan as NewVolume};
use crate::fs::hfsplus::{HfsPlusMut, WriteOptions, check, compare_headers};
use crate::fs::source::Tree;
use crate::fs::{
    FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, NewKind, NewNode, Timestamp,
};
use crate::open::find_volumes;
use crate::partition::{APPLE_HFS, MBR_HFS, probe, samples};
use crate::progress::Silent;
use crate::store::{Open, Store};
use crate::testing::{PowerCut, Random};

const MIB: u64 = 1 << 20;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn contents(number: u8) -> Vec<u8> {
    (0..20_000_usize).map(|at| (at as u8) ^ number).collect()
}

/// The surroundings of the volume.
#[derive(Debug, Clone, Copy)]
enum Around {
    Nothing,
    Gpt,
    /// An Apple partition map, with free space at its end.
    Apm,
    Mbr,
}

impl Around {
    /// Creates the partition map, and returns the range of the volume.
    fn make(self, disk: &dyn BlockDevice) -> Range<u64> {
        let len = disk.info().len;
        match self {
            Self::Nothing => 0..len,
            Self::Gpt => {
                gpt::create_single(disk, 512, APPLE_HFS, gpt::Guids::derived("cut")).unwrap()
            }
            Self::Apm => {
                let range = 32 << 10..len - 5120;
                samples::apple_map(
                    disk,
                    &[(range.clone(), "Apple_HFS"), (range.end..len, "Apple_Free")],
                );
                range
            }
            Self::Mbr => {
                samples::mbr(disk, &[(32 << 10..len, MBR_HFS)]);
                32 << 10..len
            }
        }
    }
}

/// Returns a disk with a volume of which every second file was removed.
fn lived_in(len: u64, around: Around, journaled: bool) -> PowerCut {
    let store = PowerCut::default();
    let disk = disk(&store);
    disk.set_len(len, AfterDiscard::Zeros).unwrap();
    let range = around.make(&*disk);
    let volume: Arc<dyn BlockDevice> = Arc::new(Slice::new(disk, range).unwrap());
    let created = Timestamp::from_seconds(1_700_000_000);
    let name = "Cut".into();
    let options = Options {
        name,
        case_sensitive: false,
        journaled,
        block_size: Some(512),
        created,
        latest: None,
        opens: false,
        identifier: 1,
    };
    NewVolume::new(Tree::empty(created), options)
        .unwrap()
        .build(&*volume, &Silent)
        .unwrap();
    live(&HfsPlusMut::open(volume, WriteOptions::default()).unwrap());
    store.sync().unwrap();
    store
}

/// Creates files, and removes every second one.
fn live(fs: &dyn FileSystemMut) {
    for number in 0..40_u8 {
        let id = fs
            .create(
                fs.root(),
                &format!("file {number}"),
                &NewNode::new(NewKind::File),
            )
            .unwrap();
        fs.write_all(id, &contents(number)).unwrap();
    }
    for number in (0..40).step_by(2) {
        fs.remove(fs.root(), &format!("file {number}")).unwrap();
    }
    fs.unmount().unwrap();
}

/// Resizes everything on the disk to `len` bytes, as [`resize`] does with an image.
fn resize_to(store: &PowerCut, len: u64) -> Result<()> {
    let disk = disk(store);
    let map = probe(&*disk)?;
    let volumes = find_volumes(&disk, map.as_ref())?;
    let parted = PartitionedDisk {
        disk: &disk,
        bundle: None,
        map: map.as_ref(),
        volumes: &volumes,
    };
    let options = ResizeOptions {
        size: Size::Bytes(len),
        parts: Parts::All,
        volume: None,
        dry_run: false,
    };
    let resized = ResizePlan::new(parted, the_volume(&volumes)?)?.run(&options, &Silent)?;
    assert_eq!((resized.to, disk.info().len), (len, len));
    Ok(())
}

/// Checks that all files are kept, with a read-only volume.
fn check_kept(store: &PowerCut) -> Result<()> {
    let disk = disk(store);
    let map = probe(&*disk)?;
    let volumes = find_volumes(&disk, map.as_ref())?;
    let fs = the_volume(&volumes)?.open()?;
    for number in (1..40).step_by(2) {
        let file = fs.open(fs.resolve(&format!("/file {number}"))?.id, Fork::Data)?;
        assert!(
            file.read_vec(0, file.info().len as usize)? == contents(number),
            "file {number}"
        );
    }
    Ok(())
}

/// Checks that no change is refused because the headers of an HFS+ volume disagree.
fn check_headers(store: &PowerCut) -> Result<()> {
    let disk = disk(store);
    let map = probe(&*disk)?;
    for volume in find_volumes(&disk, map.as_ref())? {
        if volume.format.is_hfs_plus() {
            assert_eq!(compare_headers(volume.device().clone(), &Silent)?, None);
        }
    }
    Ok(())
}

fn sound(store: &PowerCut) {
    let disk = disk(store);
    let map = probe(&*disk).unwrap();
    assert!(map.iter().all(|map| map.problems.is_empty()), "{map:?}");
    for volume in find_volumes(&disk, map.as_ref()).unwrap() {
        if let Ok(container) = volume.container() {
            apfs::sound_container(&container);
            continue;
        }
        let found = check(volume.device().clone(), &Silent).unwrap();
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn cut_short(around: Around, journaled: bool, from: u64, to: u64) {
    cut_while_resized(&lived_in(from, around, journaled), around, to);
}

fn cut_while_resized(store: &PowerCut, around: Around, to: u64) {
    let (start, from) = (store.position(), disk(store).info().len);
    resize_to(store, to).unwrap();
    sound(store);
    check_kept(store).unwrap();
    for crash in store.crashes_from(start, 5, 1) {
        let what = |error| panic!("{around:?}, {from} to {to}, {crash:?}: {error}");
        check_kept(&crash.store).unwrap_or_else(what);
        check_headers(&crash.store).unwrap_or_else(what);
        resize_to(&crash.store, to).unwrap_or_else(what);
        sound(&crash.store);
        check_kept(&crash.store).unwrap_or_else(what);
    }
}

#[test]
fn power_cuts_while_everything_grows() {
    cut_short(Around::Gpt, false, 2 * MIB, 4 * MIB + 512);
    cut_short(Around::Gpt, true, 2 * MIB, 4 * MIB);
    cut_short(Around::Apm, true, 2 * MIB, 4 * MIB + 512);
    cut_short(Around::Mbr, false, 2 * MIB, 4 * MIB);
    cut_short(Around::Nothing, false, 2 * MIB, 5 * MIB);
}

#[test]
fn power_cuts_while_everything_shrinks() {
    cut_short(Around::Gpt, false, 4 * MIB, 2 * MIB);
    cut_short(Around::Gpt, true, 4 * MIB, 2 * MIB + 1024);
    cut_short(Around::Apm, false, 4 * MIB, 2 * MIB);
    cut_short(Around::Mbr, true, 4 * MIB, 2 * MIB + 512);
    cut_short(Around::Nothing, true, 4 * MIB, 2 * MIB);
}
