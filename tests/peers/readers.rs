//! Readers used by forensic tools, without shared code: libmodi (through its Python binding) reads
//! sparse images with the first part of their index, sparse bundles with band names of eight
//! digits, and most compressed images; `dissect.hypervisor` reads ASIF.

use std::path::Path;
use std::process::Command;

use bandsaw::container::Format;
use bandsaw::device::AfterDiscard;
use bandsaw::open::{self, CreateOptions, Image};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::progress::Silent;

use crate::noise::noise;
use crate::programs::{Program, peer_python, run_text};
use crate::suite::Suite;
use crate::volume;

/// Script that prints the SHA-256 of the disk in a sparse or compressed image.
const MODI: &str = "
import hashlib, pymodi, sys
image, digest = pymodi.handle(), hashlib.sha256()
image.open(sys.argv[1])
while block := image.read_buffer(1 << 20):
    digest.update(block)
print(digest.hexdigest())
";

/// Script that prints the SHA-256 of the disk in a sparse bundle. libmodi expects band names that
/// macOS does not use, and takes missing bands for zeros.
const MODI_BUNDLE: &str = "
import hashlib, os, pymodi, sys, tempfile
bundle, digest = os.path.abspath(sys.argv[1]), hashlib.sha256()
with tempfile.TemporaryDirectory() as folder:
    os.mkdir(folder + '/bands')
    os.symlink(bundle + '/Info.plist', folder + '/Info.plist')
    for band in os.listdir(bundle + '/bands'):
        os.symlink(bundle + '/bands/' + band, folder + '/bands/%08x' % int(band, 16))
    image = pymodi.handle()
    image.open(folder + '/Info.plist')
    image.open_band_data_files()
    while block := image.read_buffer(1 << 20):
        digest.update(block)
print(digest.hexdigest())
";

/// Script that prints the SHA-256 of the disk in an ASIF image.
const DISSECT: &str = "
import hashlib, sys
from dissect.hypervisor.disk.asif import ASIF
disk, digest = ASIF(open(sys.argv[1], 'rb')).open(), hashlib.sha256()
while block := disk.read(1 << 20):
    digest.update(block)
print(digest.hexdigest())
";

const MIB: u64 = 1 << 20;
/// Length in bytes; the last band, or chunk, is partial.
const LEN: u64 = 50 * MIB + 4096;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("libmodi", &[Program::PeerModule("pymodi")])
        .test("reads_our_sparse_image", || {
            reads_ours(Format::Udsp, "x.sparseimage", MODI)
        })
        .test("reads_our_bundle", || {
            reads_ours(Format::Udsb, "x.sparsebundle", MODI_BUNDLE)
        })
        .test("reads_our_volumes_in_bundles", || {
            reads_our_volumes(Format::Udsb, "x.sparsebundle", MODI_BUNDLE)
        })
        .test("reads_our_volumes_in_sparse_images", || {
            reads_our_volumes(Format::Udsp, "x.sparseimage", MODI)
        })
        .test("reads_our_volumes_in_compressed_images", || {
            // It lacks LZMA, and fails on incompressible bzip2 blocks, Apple's as well as ours, and
            // on short streams of LZFSE.
            for format in [Format::Udro, Format::Udco, Format::Udzo] {
                reads_our_volumes(format, "x.dmg", MODI);
            }
        });
    suite
        .peer("dissect", &[Program::PeerModule("dissect.hypervisor")])
        .test("reads_our_asif", || {
            reads_ours(Format::Asif, "x.asif", DISSECT)
        })
        .test("reads_our_volumes_in_asif", || {
            reads_our_volumes(Format::Asif, "x.asif", DISSECT)
        });
}

/// An image after random writes of all sizes, partial and full discards, truncation and growth.
fn reads_ours(format: Format, name: &str, script: &str) {
    let scratch = crate::scratch();
    let path = scratch.path().join(name);
    let options = CreateOptions {
        format,
        len: 40 * MIB,
        ..CreateOptions::default()
    };
    let image = open::create(&path, &options).expect("making an image");
    let disk = image.disk();
    let write = |at: u64, len: usize| disk.write_at(at, &noise(len)).expect("writing");
    for at in [30, 3, 17, 4, 9, 10] {
        write(at * MIB, 1 << 20);
    }
    write(0, 512);
    write(5 * MIB - 700, 1400);
    write(22 * MIB + 4096, 5000);
    disk.flush().expect("flushing");
    disk.discard(9 * MIB..10 * MIB, AfterDiscard::Zeros)
        .expect("discarding");
    disk.discard(3 * MIB + 8192..3 * MIB + 65536, AfterDiscard::Zeros)
        .expect("discarding");
    disk.set_len(25 * MIB, AfterDiscard::Zeros)
        .expect("cutting");
    disk.set_len(LEN, AfterDiscard::Zeros).expect("growing");
    write(LEN - 700, 700);
    disk.flush().expect("flushing");
    compare(&image, &path, script);
}

fn reads_our_volumes(format: Format, name: &str, script: &str) {
    for volume in volume::all() {
        let scratch = crate::scratch();
        let path = scratch.path().join(name);
        let bundle =
            open::open(&volume.bundle, &open::OpenOptions::default()).expect("opening the bundle");
        let options = ConvertOptions {
            format,
            ..ConvertOptions::default()
        };
        let converted = convert(&bundle, &path, &options, &Silent).expect("converting");
        compare(&converted.image, &path, script);
    }
}

/// Fails unless the script's checksum is that of the disk.
fn compare(image: &Image, path: &Path, script: &str) {
    let expected = checksum(&**image.disk(), Algorithm::Sha256, &Silent).expect("summing");
    let report = run_text(Command::new(peer_python()).args(["-c", script]).arg(path));
    assert_eq!(report.trim(), expected, "{}", path.display());
}
