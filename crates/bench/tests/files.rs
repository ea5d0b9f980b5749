//! Tests of file timing on a disk of known speed with a simulated clock; and of failures on the
//! host.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bandsaw::container::Format;
use bandsaw::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info, Memory};
use bandsaw::fs::hfsplus::{HfsPlusMut, WriteOptions};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::{Progress, Silent};
use bandsaw::sync::Mutex;
use bandsaw::{Kind, Result};
use bandsaw_bench::clock::Clock;
use bandsaw_bench::contents::Contents;
use bandsaw_bench::files::Run;
use bandsaw_bench::folder::{self, RunPlan};
use bandsaw_bench::noise::SplitMix64;
use bandsaw_bench::place::{Caches, HostFolder, Place, VolumeFolder};
use bandsaw_bench::plan::Plan;
use bandsaw_bench::report::{Report, Settings};
use bandsaw_bench::sample::Direction;
use bandsaw_bench::stats::Summary;

/// A disk with a fixed rate in bytes per second, and a fixed seek time for non-sequential requests.
/// It advances a simulated clock and never sleeps.
#[derive(Debug)]
struct Throttled {
    disk: Memory,
    rate: f64,
    seek: f64,
    /// Random variation of a request's time, as a share.
    jitter: f64,
    noise: Mutex<SplitMix64>,
    head: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Throttled {
    fn spend(&self, offset: u64, len: usize) {
        let end = offset + len as u64;
        let seek = if self.head.swap(end, Ordering::Relaxed) == offset {
            0.0
        } else {
            self.seek
        };
        let off = 1.0 + self.jitter * (2.0 * self.noise.lock().share() - 1.0);
        let seconds = seek + len as f64 / self.rate * off;
        self.nanoseconds
            .fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
    }
}

impl Clock for Throttled {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

impl BlockDevice for Throttled {
    fn info(&self) -> Info {
        self.disk.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.spend(offset, buf.len());
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.spend(offset, buf.len());
        self.disk.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.disk.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.disk.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.disk.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.disk.set_len(len, leave)
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

/// Returns a disk with an empty HFS+ volume on all of it.
fn volume(len: u64) -> Memory {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = scratch.path().join("disk.img");
    let volume = NewVolume {
        layout: Layout::None,
        name: "Slow".into(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: Source::Empty,
    };
    let options = CreateOptions {
        format: Format::Udrw,
        len: Some(len),
        volume: Some(volume),
        ..CreateOptions::default()
    };
    create(&path, options, &Silent).unwrap();
    Memory::from(std::fs::read(&path).unwrap())
}

#[test]
fn the_speed_of_a_known_disk_is_found() {
    for (rate, seek, jitter) in [(100e6, 0.0, 0.0), (3.2e9, 0.0001, 0.05), (70e6, 0.008, 0.2)] {
        let disk = Arc::new(Throttled {
            disk: volume(64 << 20),
            rate,
            seek,
            jitter,
            noise: Mutex::new(SplitMix64::new(5)),
            head: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        });
        let volume = Arc::new(HfsPlusMut::open(disk.clone(), WriteOptions::default()).unwrap());
        let place = VolumeFolder::new(volume);
        let files = Plan {
            sets: 3,
            scale: 0.003,
            ..Plan::default()
        }
        .files()
        .unwrap();
        let mut run = Run {
            place: &place,
            clock: &*disk,
            contents: Contents::new(1, 64 << 10, false),
            verify: true,
        };
        let mut samples = run.write(&files, &Silent).unwrap();
        samples.extend(run.read(&files, &Silent).unwrap());
        for direction in [Direction::Write, Direction::Read] {
            let found = Summary::of(&samples, direction, false)
                .unwrap()
                .theil_sen
                .unwrap();
            let off = found.value / rate - 1.0;
            assert!(
                off.abs() < 0.02,
                "{direction}: {rate} bytes a second were found as {} ({:.2} %)",
                found.value,
                100.0 * off
            );
            assert!(
                found.low <= rate * 1.02 && found.high >= rate * 0.98,
                "{direction}: {found:?}"
            );
        }
        run.remove(&files, &Silent).unwrap();
    }
}

fn settings(scale: f64) -> Settings {
    let plan = Plan {
        sets: 2,
        scale,
        ..Plan::default()
    };
    Settings {
        plan,
        request: 1 << 20,
        caches: Caches::Drop,
        compressible: false,
        verify: true,
        pause: 0.0,
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_folder_is_measured_and_left_as_it_was() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for caches in [Caches::Drop, Caches::Direct, Caches::Keep] {
        let settings = Settings {
            caches,
            ..settings(0.0005)
        };
        let announced = RunPlan::new(scratch.path(), &settings).unwrap();
        let report = folder::run(scratch.path(), &settings, &announced, &Silent).unwrap();
        assert!(is_empty(scratch.path()));
        assert_eq!(report.series[0].samples.len(), 64);
        let written: u64 = report.series[0]
            .samples
            .iter()
            .map(|sample| sample.size_bytes)
            .sum();
        assert_eq!(written, 2 * announced.bytes);
        assert_eq!(
            report.series[0].write.as_ref().unwrap().cache_speed,
            30,
            "all but the largest of each set"
        );
        assert_eq!(
            Report::from_json(&report.to_json().unwrap()).unwrap(),
            report
        );
    }
}

/// Cancels after this many bytes.
struct StopAfter(u64, AtomicU64);

impl Progress for StopAfter {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, n: u64) {
        self.1.fetch_add(n, Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }
}

#[test]
fn whoever_stops_it_finds_nothing_left() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = settings(0.0005);
    let announced = RunPlan::new(scratch.path(), &settings).unwrap();
    for after in [
        0,
        announced.bytes / 2,
        announced.bytes + announced.bytes / 2,
    ] {
        let stop = StopAfter(after, AtomicU64::new(0));
        assert_eq!(
            folder::run(scratch.path(), &settings, &announced, &stop)
                .unwrap_err()
                .kind(),
            Kind::Cancelled
        );
        assert!(is_empty(scratch.path()));
    }
}

#[test]
fn impossible_plans_are_refused_before_they_begin() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused = RunPlan::new(scratch.path(), &settings(1e9)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Limit, "{refused}");
    let gone = scratch.path().join("not there");
    assert!(
        RunPlan::new(&gone, &settings(1e-3))
            .unwrap_err()
            .to_string()
            .contains("not there")
    );
    let odd = Settings {
        request: 1000,
        ..settings(0.0005)
    };
    let announced = RunPlan::new(scratch.path(), &odd).unwrap();
    assert_eq!(
        folder::run(scratch.path(), &odd, &announced, &Silent)
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
}

#[test]
fn a_file_that_goes_away_or_changes_is_named() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = settings(0.0005).plan.files().unwrap();
    let place = HostFolder::new(scratch.path(), Caches::Drop);
    let clock = bandsaw_bench::clock::HostClock::default();
    let mut run = Run {
        place: &place,
        clock: &clock,
        contents: Contents::new(1, 64 << 10, false),
        verify: true,
    };
    run.write(&files, &Silent).unwrap();
    std::fs::remove_file(scratch.path().join(files[7].name())).unwrap();
    let gone = run.read(&files, &Silent).unwrap_err();
    assert!(gone.to_string().contains(&files[7].name()), "{gone}");
    let changed = scratch.path().join(files[3].name());
    let mut bytes = std::fs::read(&changed).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&changed, bytes).unwrap();
    let wrong = run.read(&files, &Silent).unwrap_err();
    assert!(
        wrong.kind() == Kind::Corrupt && wrong.to_string().contains(&files[3].name()),
        "{wrong}"
    );
    assert!(place.open("not there").err().is_some());
}
