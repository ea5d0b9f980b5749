//! Compressed images that require much memory get no more than 256 MiB: the longest supported
//! chunks, read by many threads concurrently, and the longest list of resources. A child process
//! with limited memory reads them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bandsaw::codec::Codec;
use bandsaw::container::udif::{Resource, Udif, image_list};
use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::progress::Silent;
use bandsaw::store::{LocalFile, Open};
use bandsaw::testing::udif::packed;

/// Limit of a child's writable memory in KiB, including stacks and the heap's reserve.
const MEMORY: u32 = 256 << 10;
/// Environment variable with the image that the child reads.
const JOB: &str = "BANDSAW_UDIF_MEMORY";
/// Length of the longest supported chunk in bytes, and the number of these chunks.
const MAX_LEN: u64 = 64 << 20;
const CHUNKS: u64 = 10;

#[test]
fn long_chunks() {
    let stored = packed(Codec::Zlib, &vec![0; MAX_LEN as usize]);
    let len = stored.len() as u64;
    let runs = (0..CHUNKS)
        .map(|n| run(0x8000_0005, n * MAX_LEN / 512, MAX_LEN / 512, len))
        .collect();
    read_in_child(&image(stored, CHUNKS * MAX_LEN / 512, runs));
}

#[test]
fn a_long_list() {
    // The maximum number of runs in a supported list, of one sector each, without stored data.
    let count = 500_000;
    let image = image(
        Vec::new(),
        count,
        (0..count).map(|n| run(2, n, 1, 0)).collect(),
    );
    assert!(image.len() > 28 << 20, "{}", image.len());
    read_in_child(&image);
}

/// Returns an image with one table.
fn image(fork: Vec<u8>, sectors: u64, runs: Vec<[u8; 40]>) -> Vec<u8> {
    let mut table = [&b"mish\0\0\0\x01"[..], &[0; 8], &sectors.to_be_bytes()].concat();
    table.resize(0xc8, 0);
    table.extend((runs.len() as u32).to_be_bytes());
    table.extend(runs.concat());
    let resource = Resource {
        kind: "blkx".into(),
        id: "0".into(),
        data: table,
        ..Resource::default()
    };
    let list = image_list(&[resource]).unwrap();
    let mut trailer = vec![0; 512];
    trailer[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
    for (field, number) in [
        (0x20, fork.len()),
        (0xd8, fork.len()),
        (0xe0, list.len()),
        (0x1ec, sectors as usize),
    ] {
        trailer[field..field + 8].copy_from_slice(&(number as u64).to_be_bytes());
    }
    [fork, list, trailer].concat()
}

fn run(kind: u32, first: u64, count: u64, stored: u64) -> [u8; 40] {
    let mut run = [0; 40];
    run[..4].copy_from_slice(&kind.to_be_bytes());
    for (field, number) in [(8, first), (16, count), (32, stored)] {
        run[field..field + 8].copy_from_slice(&number.to_be_bytes());
    }
    run
}

fn read_in_child(image: &[u8]) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.dmg");
    fs::write(&path, image).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -d {MEMORY} 2>/dev/null; exec \"$0\" \"$@\""),
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "udif_memory::child", "--nocapture"])
        .env(JOB, &path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Entry point of the child; does nothing unless [`read_in_child`] started it.
#[test]
fn child() {
    let Some(path) = std::env::var_os(JOB) else {
        return;
    };
    let file = LocalFile::open(Path::new(&path), Open::Read)
        .unwrap()
        .unwrap();
    let image = Udif::open(Arc::new(file)).unwrap();
    let len = image.info().len;
    // In order, so that readahead decodes the next chunks, and by eight threads.
    for at in (0..len).step_by((MAX_LEN / 4) as usize) {
        assert_eq!(image.read_vec(at, 4096).unwrap(), [0; 4096]);
    }
    std::thread::scope(|scope| {
        for n in 0..4u64 {
            let image = &image;
            scope.spawn(move || image.read_vec(len / 4 * n / 512 * 512, 512).unwrap());
        }
    });
    let verdicts = image.verify(&Silent).unwrap();
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.agrees() != Some(false))
    );
}
