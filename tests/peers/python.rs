//! Python's `plistlib` and a dozen lines about bands: the format is simple enough that a script
//! without shared code can read and write it, and no other program outside macOS does both.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::store::Local;

use crate::noise::noise;
use crate::programs::{PYTHON, Program, run};
use crate::suite::Suite;
use crate::volume;

/// Script that prints the disk in a bundle. Both plists must agree.
const READ: &str = r#"
import os, plistlib, sys
folder = sys.argv[1]
info, backup = (plistlib.load(open(os.path.join(folder, name), 'rb')) for name in ('Info.plist', 'Info.bckup'))
assert info == backup, (info, backup)
assert info['diskimage-bundle-type'] == 'com.apple.diskimage.sparsebundle', info
assert info['CFBundleInfoDictionaryVersion'] == '6.0', info
assert info['bundle-backingstore-version'] == 1, info
size, band_size = info['size'], info['band-size']
disk = bytearray(size)
for name in os.listdir(os.path.join(folder, 'bands')):
    band = open(os.path.join(folder, 'bands', name), 'rb').read()
    start = int(name, 16) * band_size
    assert name == '%x' % int(name, 16) and start < size and len(band) <= min(band_size, size - start), name
    disk[start:start + len(band)] = band
sys.stdout.buffer.write(disk)
"#;

/// Script that creates a bundle from a disk on standard input: bands without their trailing zeros,
/// none for zeros only.
const WRITE: &str = r#"
import os, plistlib, sys
folder, band_size = sys.argv[1], int(sys.argv[2])
disk = open(sys.argv[3], 'rb').read()
os.makedirs(os.path.join(folder, 'bands'))
for index, start in enumerate(range(0, len(disk), band_size)):
    band = disk[start:start + band_size].rstrip(b'\0')
    if band:
        open(os.path.join(folder, 'bands', '%x' % index), 'wb').write(band)
info = {'CFBundleInfoDictionaryVersion': '6.0', 'band-size': band_size, 'bundle-backingstore-version': 1,
        'diskimage-bundle-type': 'com.apple.diskimage.sparsebundle', 'size': len(disk)}
for name in ('Info.plist', 'Info.bckup'):
    plistlib.dump(info, open(os.path.join(folder, name), 'wb'), fmt=plistlib.FMT_BINARY if sys.argv[4] == 'binary' else plistlib.FMT_XML)
open(os.path.join(folder, 'token'), 'wb')
"#;

const BAND: u64 = 1 << 20;
/// Length in bytes; the last band is partial.
const LEN: usize = (40 << 20) + 512;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("python3", &[Program::PythonModule("plistlib")])
        .test("reads_our_bundle", reads_our_bundle)
        .test("reads_our_volumes_in_bundles", reads_our_volumes_in_bundles)
        .test("we_read_its_bundle", we_read_its_bundle);
}

/// Returns data around band boundaries, in more bands than one hexadecimal digit can count, with
/// holes and a discarded band.
fn contents() -> Vec<(u64, Vec<u8>)> {
    let end = LEN as u64;
    let writes = [
        (0, 512),
        (BAND - 100, 200),
        (7 * BAND, 3 << 20),
        (17 * BAND + 4096, 5000),
        (31 * BAND, 1 << 20),
        (end - 700, 700),
    ];
    writes.map(|(offset, len)| (offset, noise(len))).into()
}

fn reads_our_bundle() {
    let scratch = crate::scratch();
    let folder = scratch.path().join("ours.sparsebundle");
    let options = BundleOptions {
        len: LEN as u64,
        band_size: Some(BAND),
    };
    let bundle = Bundle::create(Arc::new(Local::new(&folder)), &options).expect("making a bundle");
    let mut expected = vec![0; LEN];
    for (offset, bytes) in contents() {
        bundle.write_at(offset, &bytes).expect("writing");
        place(&mut expected, offset, &bytes);
    }
    bundle
        .discard(8 * BAND..9 * BAND, AfterDiscard::Zeros)
        .expect("discarding");
    place(&mut expected, 8 * BAND, &[0; BAND as usize]);
    bundle.flush().expect("flushing");

    assert!(disk_in(&folder) == expected, "contents differ");
    assert!(
        !folder.join("bands/8").exists(),
        "a band that was given back is still there"
    );
}

/// The disk in a bundle is identical to the raw image that the other programs read.
fn reads_our_volumes_in_bundles() {
    for volume in volume::all() {
        let raw = std::fs::read(&volume.disk).expect("reading the disk");
        assert!(
            disk_in(&volume.bundle) == raw,
            "{} differs",
            volume.bundle.display()
        );
    }
}

fn disk_in(bundle: &Path) -> Vec<u8> {
    run(Command::new(PYTHON).args(["-c", READ]).arg(bundle))
}

fn we_read_its_bundle() {
    let mut expected = vec![0; LEN];
    for (offset, bytes) in contents() {
        place(&mut expected, offset, &bytes);
    }
    for plist in ["xml", "binary"] {
        let scratch = crate::scratch();
        let [folder, disk] = ["theirs.sparsebundle", "disk"].map(|name| scratch.path().join(name));
        std::fs::write(&disk, &expected).expect("writing the disk");
        run(Command::new(PYTHON)
            .args(["-c", WRITE])
            .arg(&folder)
            .arg(BAND.to_string())
            .arg(&disk)
            .arg(plist));
        assert!(read(&folder) == expected, "contents differ");
    }
}

fn read(folder: &Path) -> Vec<u8> {
    let bundle =
        Bundle::open(Arc::new(Local::new(folder)), Access::ReadOnly).expect("opening a bundle");
    assert_eq!(bundle.warnings(), Vec::<String>::new());
    bundle.read_vec(0, LEN).expect("reading a bundle")
}

fn place(disk: &mut [u8], offset: u64, bytes: &[u8]) {
    let offset = usize::try_from(offset).expect("within the disk");
    disk[offset..offset + bytes.len()].copy_from_slice(bytes);
}
