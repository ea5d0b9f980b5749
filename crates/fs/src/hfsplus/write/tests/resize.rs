//! Growing and shrinking of volumes: consistent and with all contents, even after a power failure.

use super::*;
use crate::{ResizeVolume, VolumeInfo};
use bandsaw_core::Kind;
use bandsaw_core::device::AfterDiscard;

/// Returns the first `len` bytes of a volume's device, extended by bytes that the volume never
/// wrote.
fn with_len(device: &Arc<Memory>, len: u64) -> Arc<Memory> {
    let mut bytes = device.to_vec();
    bytes.resize(len as usize, 0xA5);
    Arc::new(Memory::from(bytes))
}

/// Returns the volume resized to `len`, on a device of that length.
fn resized(device: &Arc<Memory>, len: u64) -> Result<Arc<Memory>> {
    let long = with_len(device, len.max(device.info().len));
    open(&long).resize(len, &Silent)?;
    let cut = with_len(&long, len);
    sound(cut.clone());
    Ok(cut)
}

fn info(device: &Arc<Memory>) -> VolumeInfo {
    HfsPlus::open(device.clone()).unwrap().volume()
}

/// Creates fragmented files, attributes of all sizes, and hundreds of names.
fn lived_in(fs: &HfsPlusMut, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let root = fs.root();
    let mut kept = Vec::new();
    for number in 0..120_u8 {
        let name = format!("file {number}");
        let id = fs.create(root, &name, &file()).unwrap();
        let contents = bytes(random.within(0..60_000) as usize, number);
        if fs.write_all(id, &contents).is_err() {
            fs.remove(root, &name).unwrap();
            continue;
        }
        if number % 5 == 0 {
            fs.set_xattr_bytes(id, "user.large", &bytes(9000, number))
                .unwrap();
            fs.set_xattr_bytes(id, "com.apple.ResourceFork", &bytes(5000, number))
                .unwrap();
        }
        if number % 3 == 1 {
            fs.remove(root, &name).unwrap();
        } else {
            kept.push((format!("/{name}"), contents));
        }
    }
    kept
}

fn check_kept(device: &Arc<Memory>, kept: &[(String, Vec<u8>)]) {
    let fs = HfsPlus::open(device.clone()).unwrap();
    for (path, expected) in kept {
        assert!(contents(&fs, path) == *expected, "{path}");
        let id = fs.resolve(path).unwrap().id;
        if let Some(value) = fs.xattr(id, "user.large").unwrap() {
            let number: u8 = path.rsplit(' ').next().unwrap().parse().unwrap();
            assert_eq!(value.read_vec(0, 9000).unwrap(), bytes(9000, number));
        }
    }
}

#[test]
fn volumes_get_longer_and_shorter_and_keep_all_files() {
    for (seed, (block_size, case_sensitive, journaled)) in (0..).zip([
        (512, false, false),
        (4096, true, true),
        (4096, false, false),
        (1024, false, true),
        (16384, false, true),
    ]) {
        let device = Arc::new(Memory::zeros(12 << 20));
        format(
            &*device,
            Options {
                journaled,
                ..layout(case_sensitive, Some(block_size))
            },
        );
        let fs = open(&device);
        let kept = lived_in(&fs, seed);
        fs.unmount().unwrap();
        let mut random = Random::new(seed + 100);
        let mut now = device.clone();
        for round in 0..12 {
            let limits = open(&now).limits().unwrap();
            assert_eq!(limits.current, info(&now).total);
            let len = match round {
                3 | 9 => limits.min,
                _ => random.within(limits.min..24 << 20) / 512 * 512,
            };
            now = resized(&now, len)
                .unwrap_or_else(|error| panic!("seed {seed}, to {len} of {limits:?}: {error}"));
            let found = info(&now);
            assert_eq!(
                found.total,
                len / u64::from(block_size) * u64::from(block_size)
            );
            assert!(found.clean && found.journaled == journaled);
            check_kept(&now, &kept);
        }
        let fs = open(&now);
        fs.create(fs.root(), "after all", &file()).unwrap();
        fs.unmount().unwrap();
        sound(now);
    }
}

#[test]
fn the_bitmap_grows_with_the_volume() {
    // A block of 512 bytes of the bitmap covers 2 MiB of the volume.
    let device = Arc::new(Memory::zeros(1 << 20));
    format(&*device, layout(false, Some(512)));
    let mut now = device;
    for len in [
        (1 << 20) + 512,
        (2 << 20) + 1024,
        9 << 20,
        (31 << 20) + 512,
        600 << 10,
        40 << 20,
    ] {
        now = resized(&now, len).unwrap();
    }
    // A full volume has no free blocks except the new ones.
    let fs = open(&now);
    let id = fs.create(fs.root(), "all", &file()).unwrap();
    let free = fs.volume().free;
    fs.open_mut(id, Fork::Data)
        .unwrap()
        .set_len(free - (2 << 20), AfterDiscard::Any)
        .unwrap();
    fs.unmount().unwrap();
    drop(fs);
    resized(&now, 80 << 20).unwrap();
}

#[test]
fn a_journal_at_the_end_moves() {
    let device = empty(8 << 20);
    open(&device).enable_journal(Some(256 << 10)).unwrap();
    let now = resized(&device, 4 << 20).unwrap();
    assert!(info(&now).journaled && info(&now).clean);
}

#[test]
fn sizes_below_the_contents_are_refused_without_loss() {
    let device = empty(8 << 20);
    let fs = open(&device);
    let kept = lived_in(&fs, 7);
    fs.unmount().unwrap();
    drop(fs);
    let used = info(&device).total - info(&device).free;
    for len in [1 << 20, used, used / 2, 100 << 10, 4096] {
        assert_eq!(
            open(&device).resize(len, &Silent).unwrap_err().kind(),
            Kind::Limit,
            "{len}"
        );
        sound(device.clone());
        check_kept(&device, &kept);
    }
    assert_eq!(
        open(&device)
            .resize((8 << 20) + 4096, &Silent)
            .unwrap_err()
            .kind(),
        Kind::OutOfRange
    );
}

/// After a power failure at any point of a resize, the volume opens with all files, and repeating
/// the resize completes it.
fn cut_short(journaled: bool, from: u64, to: u64) {
    let disk = |store: &PowerCut| store.open("disk", Open::Create).unwrap().unwrap();
    let store = PowerCut::default();
    disk(&store)
        .set_len(from.max(to), AfterDiscard::Zeros)
        .unwrap();
    let volume = |store: &PowerCut| -> Arc<dyn BlockDevice> {
        Arc::new(bandsaw_core::device::Slice::new(disk(store), 0..from.max(to)).unwrap())
    };
    format(
        &bandsaw_core::device::Slice::new(disk(&store), 0..from).unwrap(),
        Options {
            journaled,
            ..layout(false, Some(512))
        },
    );
    let old = HfsPlusMut::open(
        Arc::new(bandsaw_core::device::Slice::new(disk(&store), 0..from).unwrap()),
        options(),
    )
    .unwrap();
    let mut kept = Vec::new();
    for number in 0..40_u8 {
        let id = old
            .create(old.root(), &format!("file {number}"), &file())
            .unwrap();
        old.write_all(id, &bytes(12_000, number)).unwrap();
        old.set_xattr_bytes(id, "user.large", &bytes(9000, number))
            .unwrap();
        if number % 2 == 0 {
            old.remove(old.root(), &format!("file {number}")).unwrap();
        } else {
            kept.push((format!("/file {number}"), bytes(12_000, number)));
        }
    }
    old.unmount().unwrap();
    drop(old);
    store.sync().unwrap();
    let start = store.position();
    HfsPlusMut::open(volume(&store), options())
        .unwrap()
        .resize(to, &Silent)
        .unwrap();
    for crash in store.crashes_from(start, 3, 2) {
        let what = format!("{from} to {to}: {crash:?}");
        let seen =
            HfsPlus::open(volume(&crash.store)).unwrap_or_else(|error| panic!("{what}: {error}"));
        kept.iter().for_each(|(path, expected)| {
            assert!(contents(&seen, path) == *expected, "{what}: {path}")
        });
        drop(seen);
        let fs = HfsPlusMut::open(volume(&crash.store), options())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        fs.resize(to, &Silent)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(fs);
        let whole = Arc::new(Memory::from(
            disk(&crash.store).read_vec(0, to as usize).unwrap(),
        ));
        sound(whole.clone());
        check_kept(&whole, &kept);
    }
}

#[test]
fn power_cuts_while_a_volume_grows() {
    cut_short(false, 2 << 20, (5 << 20) + 512);
    cut_short(true, 2 << 20, 5 << 20);
}

#[test]
fn power_cuts_while_a_volume_shrinks() {
    cut_short(false, 3 << 20, 2 << 20);
    cut_short(true, 3 << 20, (2 << 20) + 512);
}
