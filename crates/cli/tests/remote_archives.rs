//! Traffic of an encrypted archive behind http: a file of a large one costs little more than itself.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use bandsaw::crypt::aea::fixture::{ArchiveFixture, KEY};
use bandsaw::testing::Random;

use crate::common::Scratch;
use crate::common::server::Server;

/// Contents of the disk, in bytes: 2 GB.
const DISK: u64 = 2_000_000_000;
/// Bytes of a file that fills the disk in front of those that are read.
const FILLER: u64 = 1_900_000_000;
/// Maximum traffic for a file of 100 KB, and for one of 3 MB, in bytes.
const SMALL: (usize, u64) = (100_000, 4_000_000);
const LARGE: (usize, u64) = (3_000_000, 7_000_000);

/// Returns true if the file stores nothing of `len` bytes at `at`.
fn is_hole(file: &File, at: u64, len: u64) -> bool {
    let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at));
    data.map_or(true, |data| data >= at + len)
}

/// Makes an archive of the disk, as macOS makes them: segments of 1 MiB, 256 in a cluster. What the disk
/// stores is in it; all other segments count as data that does not compress, so that the archive has the size of
/// the disk. They cannot be read.
fn archive(scratch: &Scratch, disk: &str, archive: &str, before: &[u8], after: &[u8]) {
    let disk = File::open(scratch.path(disk)).unwrap();
    let len = disk.metadata().unwrap().len();
    let fixture = ArchiveFixture {
        segment_size: 1 << 20,
        segments_per_cluster: 256,
        compression: b'e',
        ..ArchiveFixture::default()
    };
    let size = u64::from(fixture.segment_size);
    let segment = |number: u64| {
        let (at, len) = (number * size, size.min(len - number * size));
        (!is_hole(&disk, at, len)).then(|| {
            let mut plain = vec![0; len.try_into().unwrap()];
            disk.read_exact_at(&mut plain, at).unwrap();
            plain
        })
    };
    let mut file = File::create(scratch.path(archive)).unwrap();
    file.write_all(before).unwrap();
    let start = before.len() as u64;
    let mut end = start;
    for (at, bytes) in fixture.pieces(len, &segment) {
        file.write_all_at(&bytes, start + at).unwrap();
        end = end.max(start + at + bytes.len() as u64);
    }
    file.write_all_at(after, end).unwrap();
}

/// Returns the bytes of an `.ipsw` around one stored file: those before it, and those after it.
fn around(name: &str, len: u64) -> (Vec<u8>, Vec<u8>) {
    let len = u32::try_from(len).unwrap().to_le_bytes();
    let name_len = u16::try_from(name.len()).unwrap().to_le_bytes();
    let common = [&[0; 8][..], &[0; 4], &len, &len, &name_len, &[0; 2]].concat();
    let version = [20, 0];
    let local = [&b"PK\x03\x04"[..], &version[..], &common, name.as_bytes()].concat();
    let entry = [
        &b"PK\x01\x02"[..],
        &version,
        &version,
        &common,
        &[0; 14],
        name.as_bytes(),
    ]
    .concat();
    let directory_at = (local.len() as u32 + u32::from_le_bytes(len)).to_le_bytes();
    let size = u32::try_from(entry.len()).unwrap().to_le_bytes();
    let end = [
        &entry[..],
        b"PK\x05\x06",
        &[0; 4],
        &[1, 0, 1, 0],
        &size,
        &directory_at,
        &[0; 2],
    ]
    .concat();
    (local, end)
}

#[test]
fn a_file_of_a_large_archive_costs_little_traffic() {
    let scratch = Scratch::new();
    scratch.write("key", KEY);
    fs::create_dir_all(scratch.path("src/z")).unwrap();
    // Found first, and stored in front.
    let filler = File::create(scratch.path("src/a-filler")).unwrap();
    filler.set_len(FILLER).unwrap();
    let mut random = Random::new(3);
    for number in 0..2_000 {
        scratch.write(&format!("src/n/{number:04}.txt"), random.bytes(10));
    }
    let (small, large) = (random.bytes(SMALL.0), random.bytes(LARGE.0));
    scratch.write("src/z/small.bin", &small);
    scratch.write("src/z/large.bin", &large);
    let size = format!("{DISK}b");
    for system in ["hfs+", "apfs"] {
        let line = ["create", "disk.img", "--fs", system, "--size", &size];
        scratch.ok(&[&line[..], &["--from", "src", "--overwrite"]].concat());
        archive(&scratch, "disk.img", "disk.aea", &[], &[]);
        let len = fs::metadata(scratch.path("disk.aea")).unwrap().len();
        let (before, after) = around("disk.dmg.aea", len);
        archive(&scratch, "disk.img", "disk.ipsw", &before, &after);
        for (file, url) in [
            ("disk.aea", "disk.dmg.aea"),
            ("disk.ipsw", "x.ipsw/disk.dmg.aea"),
        ] {
            let server = Server::of_file(File::open(scratch.path(file)).unwrap());
            let image = server.url(url);
            for (name, bytes, most) in [
                ("small.bin", &small, SMALL.1),
                ("large.bin", &large, LARGE.1),
            ] {
                server.take_sent();
                let path = format!("{image}:/z/{name}");
                let output = scratch.run(&["cat", &path, "--aea-key", "key"]);
                assert!(
                    output.stdout == *bytes,
                    "{}",
                    crate::common::stderr(&output)
                );
                let (sent, requests) = (server.take_sent(), server.requests());
                println!("{system} in {file}, {name}: {sent} bytes, {requests} requests so far");
                assert!(sent <= most, "{system}, {file}, {name}: {sent} bytes");
            }
        }
    }
}
