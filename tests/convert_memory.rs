//! The peak memory of a conversion is less than 128 MiB for any size of disk, between all kinds of
//! images.
//!
//! This test has a process of its own, whose memory is measured.

use std::fs;
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::open::{self, CreateOptions, OpenOptions};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, convert, stream};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;

const MIB: u64 = 1 << 20;
/// Length of the disk, mostly holes. More of it is stored than any cache can keep.
const LEN: u64 = 5 << 30;
const STORED: u64 = 36;
/// Maximum peak memory of the process, in KiB.
const MAX_PEAK_KIB: u64 = 128 << 10;

/// Returns the peak memory of this process in KiB; `None` if the system does not report it.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .trim()
            .parse()
            .ok()
    })
}

#[test]
fn every_kind_to_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let mut path = folder.path().join("first");
    let first = open::create(
        &path,
        &CreateOptions {
            len: LEN,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    let mut random = Random::new(128);
    for n in 0..STORED {
        // Repetitive data, which every codec compresses quickly.
        let bytes: Vec<u8> = (0..MIB / 4096)
            .flat_map(|_| random.bytes(256).repeat(16))
            .collect();
        first
            .disk()
            .write_at(n * (LEN / STORED) / 512 * 512, &bytes)
            .unwrap();
    }
    first.disk().flush().unwrap();
    let sum = checksum(&**first.disk(), Algorithm::Crc32, &Silent).unwrap();
    drop(first);
    let mut before = Format::Udrw;
    let kinds = [
        Format::Ulmo,
        Format::Udbz,
        Format::Ulfo,
        Format::Udzo,
        Format::Udco,
        Format::Udro,
        Format::Udsb,
        Format::Asif,
        Format::Udsp,
        Format::Udrw,
    ];
    for format in kinds {
        let from = open::open(
            &path,
            &OpenOptions {
                image_format: Some(before),
                ..OpenOptions::default()
            },
        )
        .unwrap();
        path = folder.path().join(format.code());
        drop(
            convert(
                &from,
                &path,
                &ConvertOptions {
                    format,
                    ..ConvertOptions::default()
                },
                &Silent,
            )
            .unwrap(),
        );
        let plain = fs::File::create(folder.path().join("plain")).unwrap();
        stream(
            &from,
            &ConvertOptions::default(),
            Path::new("."),
            plain,
            &Silent,
        )
        .unwrap();
        if let Some(peak) = peak() {
            assert!(peak < MAX_PEAK_KIB, "{before} to {format}: {peak} KiB");
        }
        before = format;
    }
    let last = open::open(
        &path,
        &OpenOptions {
            image_format: Some(before),
            ..OpenOptions::default()
        },
    )
    .unwrap();
    assert_eq!(
        checksum(&**last.disk(), Algorithm::Crc32, &Silent).unwrap(),
        sum
    );
    assert!(
        cfg!(not(target_os = "linux")) || peak().is_some_and(|peak| peak > 1024),
        "it was measured"
    );
}
