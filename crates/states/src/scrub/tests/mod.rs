//! Rot, which no test can make: every write changes a file's times. The record is changed instead,
//! as if the file had always had its present times.

mod power_cut;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::progress::Silent;
use bandsaw::store::{Local, MemoryStore, Put};

use super::*;

struct Fixture {
    scratch: tempfile::TempDir,
}

impl Fixture {
    /// A bundle of four bands that has hashes, and a copy of it.
    fn new() -> Self {
        let fixture = Self {
            scratch: tempfile::tempdir().unwrap(),
        };
        let options = BundleOptions {
            len: 4 << 20,
            band_size: Some(1 << 20),
        };
        for path in [fixture.path(), fixture.copy()] {
            drop(Bundle::create(Arc::new(Local::new(&path)), &options).unwrap());
            for band in 0..4_u8 {
                fs::write(path.join(format!("bands/{band}")), vec![band + 1; 70_000]).unwrap();
            }
        }
        let first = fixture.scrub(&ScrubOptions::default()).unwrap();
        assert_eq!((first.read, first.new, first.changed), (4, 4, 0));
        assert!(first.findings.is_empty());
        fixture
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("a.sparsebundle")
    }

    fn copy(&self) -> PathBuf {
        self.scratch.path().join("copy.sparsebundle")
    }

    fn band(&self, name: &str) -> PathBuf {
        self.path().join("bands").join(name)
    }

    fn bundle(&self) -> BundleFolder {
        BundleFolder::open(&self.path()).unwrap()
    }

    fn scrub(&self, options: &ScrubOptions<'_>) -> Result<Scrubbed> {
        scrub(&self.bundle(), options, &Silent)
    }

    fn edit(&self, change: impl FnOnce(&mut Record)) {
        let bundle = self.bundle();
        let (mut record, _) = Record::begin(&bundle, false).unwrap();
        record.run -= 1;
        record.complete = true;
        change(&mut record);
        record.put(&bundle).unwrap();
    }

    /// Changes a band, and its times in the record.
    fn rot(&self, name: &str) {
        let mut bytes = fs::read(self.band(name)).unwrap();
        bytes[12_345] ^= 0x10;
        fs::write(self.band(name), bytes).unwrap();
        self.age(name);
    }

    /// Makes the record one of a file that already had its present times.
    fn age(&self, name: &str) {
        let name = format!("bands/{name}");
        let now = self.bundle().identity(&name).unwrap().unwrap();
        self.edit(|record| {
            let band = record.bands.get_mut(&name).unwrap();
            band.file = now;
            band.settled = true;
        });
    }
}

fn from(copy: &dyn Store) -> ScrubOptions<'_> {
    ScrubOptions {
        from: Some(copy),
        ..ScrubOptions::default()
    }
}

const ACCEPT: ScrubOptions<'static> = ScrubOptions {
    from: None,
    accept: true,
    record_every: u64::MAX,
    transactions: None,
};

fn found(name: &str, finding: Finding) -> Vec<(String, Finding)> {
    vec![(format!("bands/{name}"), finding)]
}

#[test]
fn rot_is_found_and_repaired_from_a_copy() {
    let fixture = Fixture::new();
    let sound = fs::read(fixture.band("2")).unwrap();
    fixture.rot("2");
    let rotten = fs::read(fixture.band("2")).unwrap();
    for _ in 0..2 {
        let done = fixture.scrub(&ScrubOptions::default()).unwrap();
        assert_eq!(done.findings, found("2", Finding::Faulty));
    }
    // Rot is never accepted.
    let done = fixture.scrub(&ACCEPT).unwrap();
    assert_eq!(done.findings, found("2", Finding::Faulty));
    let copy = Local::new(fixture.copy());
    let done = fixture.scrub(&from(&copy)).unwrap();
    assert_eq!(done.repaired, ["bands/2"]);
    assert!(done.findings.is_empty());
    assert!(fs::read(fixture.band("2")).unwrap() == sound);
    let quarantine = fixture.path().join(".bandsaw/quarantine");
    let aside = fs::read_dir(quarantine).unwrap().next().unwrap().unwrap();
    assert!(fs::read(aside.path().join("bands/2")).unwrap() == rotten);
    let done = fixture.scrub(&ScrubOptions::default()).unwrap();
    assert!(done.findings.is_empty());
}

/// Newer bands must not be overwritten with older ones of the copy.
#[test]
fn bands_that_were_written_since_are_never_repaired() {
    let fixture = Fixture::new();
    fs::write(fixture.band("1"), vec![9; 70_000]).unwrap();
    // A write that set the time back.
    let modified = fs::metadata(fixture.band("3")).unwrap().modified().unwrap();
    fs::write(fixture.band("3"), vec![8; 70_000]).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(fixture.band("3"))
        .unwrap();
    file.set_modified(modified).unwrap();
    let copy = Local::new(fixture.copy());
    let done = fixture.scrub(&from(&copy)).unwrap();
    assert!(done.repaired.is_empty());
    assert_eq!(done.changed, 1);
    assert_eq!(done.findings, found("3", Finding::Unknown));
    assert!(fs::read(fixture.band("1")).unwrap() == vec![9; 70_000]);
    assert!(fs::read(fixture.band("3")).unwrap() == vec![8; 70_000]);
    // The unknown one stays so until it is accepted.
    assert_eq!(fixture.scrub(&from(&copy)).unwrap().findings.len(), 1);
    assert!(fixture.scrub(&ACCEPT).unwrap().findings.is_empty());
    assert!(
        fixture
            .scrub(&ScrubOptions::default())
            .unwrap()
            .findings
            .is_empty()
    );
}

/// A bundle that was copied with its times, as to a new disk: only the transactions of its volumes tell
/// that a band is another one.
#[test]
fn transactions_of_the_volumes_tell_rot_where_times_do_not() {
    let of = |transactions: &'static str| ScrubOptions {
        transactions: Some(transactions),
        ..ScrubOptions::default()
    };
    let fixture = Fixture::new();
    fixture.scrub(&of("apfs 7")).unwrap();
    let sound = fs::read(fixture.band("3")).unwrap();
    let set_back = |bytes: &[u8]| {
        let modified = fs::metadata(fixture.band("3")).unwrap().modified().unwrap();
        fs::write(fixture.band("3"), bytes).unwrap();
        let file = fs::File::options()
            .write(true)
            .open(fixture.band("3"))
            .unwrap();
        file.set_modified(modified).unwrap();
    };
    let mut rotten = sound.clone();
    rotten[5] ^= 1;
    set_back(&rotten);
    // Unknown without them, and after another transaction.
    for options in [ScrubOptions::default(), of("apfs 8")] {
        let other = Fixture::new();
        other.scrub(&of("apfs 7")).unwrap();
        let modified = fs::metadata(other.band("3")).unwrap().modified().unwrap();
        fs::write(other.band("3"), &rotten).unwrap();
        let file = fs::File::options()
            .write(true)
            .open(other.band("3"))
            .unwrap();
        file.set_modified(modified).unwrap();
        let done = other.scrub(&options).unwrap();
        assert_eq!(done.findings, found("3", Finding::Unknown));
    }
    for _ in 0..2 {
        let done = fixture.scrub(&of("apfs 7")).unwrap();
        assert_eq!(done.findings, found("3", Finding::Faulty));
    }
    let copy = Local::new(fixture.copy());
    let repair = ScrubOptions {
        from: Some(&copy),
        ..of("apfs 7")
    };
    assert_eq!(fixture.scrub(&repair).unwrap().repaired, ["bands/3"]);
    assert!(fs::read(fixture.band("3")).unwrap() == sound);
}

#[test]
fn a_copy_that_is_no_folder_repairs() {
    let fixture = Fixture::new();
    let sound = fs::read(fixture.band("2")).unwrap();
    fixture.rot("2");
    let copy = MemoryStore::default();
    copy.put("bands/2", &sound, Put::Replace).unwrap();
    let done = fixture.scrub(&from(&copy)).unwrap();
    assert_eq!(done.repaired, ["bands/2"]);
    assert!(fs::read(fixture.band("2")).unwrap() == sound);
}

#[test]
fn a_copy_with_other_contents_repairs_nothing() {
    let fixture = Fixture::new();
    fixture.rot("2");
    fs::write(fixture.copy().join("bands/2"), vec![7; 70_000]).unwrap();
    let rotten = fs::read(fixture.band("2")).unwrap();
    let done = fixture.scrub(&from(&Local::new(fixture.copy()))).unwrap();
    assert_eq!(done.findings, found("2", Finding::Faulty));
    assert!(done.repaired.is_empty());
    assert!(fs::read(fixture.band("2")).unwrap() == rotten);
}

#[test]
fn missing_bands_are_reported_until_they_are_accepted() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.band("0")).unwrap();
    for _ in 0..2 {
        let done = fixture.scrub(&ScrubOptions::default()).unwrap();
        assert_eq!(done.findings, found("0", Finding::Missing));
    }
    assert!(fixture.scrub(&ACCEPT).unwrap().findings.is_empty());
    assert!(
        fixture
            .scrub(&ScrubOptions::default())
            .unwrap()
            .findings
            .is_empty()
    );
}

#[test]
fn a_touched_band_with_the_same_contents_is_sound() {
    let fixture = Fixture::new();
    let bytes = fs::read(fixture.band("0")).unwrap();
    fs::write(fixture.band("0"), bytes).unwrap();
    let done = fixture.scrub(&ScrubOptions::default()).unwrap();
    assert_eq!((done.changed, done.findings.len()), (0, 0));
}

/// Stops at a check.
struct Stop(std::sync::atomic::AtomicU64);

impl Progress for Stop {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        use std::sync::atomic::Ordering::SeqCst;
        self.0
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .is_err()
    }
}

#[test]
fn an_interrupted_run_is_resumed() {
    let fixture = Fixture::new();
    fixture.rot("0");
    fixture.rot("3");
    let mut read = 0;
    for checks in 1.. {
        let stop = Stop(checks.into());
        match scrub(&fixture.bundle(), &ScrubOptions::default(), &stop) {
            Err(error) => assert_eq!(error.kind(), Kind::Cancelled),
            Ok(done) => {
                assert!(done.resumed);
                assert!(done.read < 4, "resumed runs read the rest");
                let both = [found("0", Finding::Faulty), found("3", Finding::Faulty)].concat();
                assert_eq!(done.findings, both);
                read = done.read;
                break;
            }
        }
    }
    assert!(read > 0);
}

#[test]
fn a_damaged_record_and_a_bundle_in_use_are_refused() {
    let fixture = Fixture::new();
    let list = fixture.path().join(crate::swap::HASHES);
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("70000", "70001")).unwrap();
    let refused = fixture.scrub(&ScrubOptions::default());
    assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(fixture.scrub(&ACCEPT).unwrap().new, 4);
    let store = Local::new(fixture.path());
    let reader = store.lock("lock", Lock::Exclusive).unwrap();
    let refused = fixture.scrub(&ScrubOptions::default());
    assert_eq!(refused.unwrap_err().kind(), Kind::Conflict);
    drop(reader);
    // A repair changes the bundle, so nobody else may read it.
    let bundle = fixture.bundle();
    let _reader = bundle.lock_exclusive().unwrap();
    let refused = fixture.scrub(&from(&Local::new(fixture.copy())));
    assert_eq!(refused.unwrap_err().kind(), Kind::Conflict);
}

/// The bands of the test below, and their length in bytes.
const MANY: (u64, usize) = (64, 8192);

/// Rot at a thousand random places, while other bands are written: each place is found, none of the
/// writes is taken for rot, and all is repaired from a copy.
#[test]
fn a_thousand_places_of_rot_are_distinguished_from_writes() {
    let fixture = Fixture {
        scratch: tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap(),
    };
    let mut random = bandsaw_testing::Random::new(81);
    let options = BundleOptions {
        len: MANY.0 << 20,
        band_size: Some(1 << 20),
    };
    let mut truth: Vec<Vec<u8>> = Vec::new();
    for path in [fixture.path(), fixture.copy()] {
        drop(Bundle::create(Arc::new(Local::new(&path)), &options).unwrap());
    }
    let path = |root: PathBuf, band: u64| root.join(format!("bands/{band:x}"));
    for band in 0..MANY.0 {
        truth.push(random.bytes(MANY.1));
        for root in [fixture.path(), fixture.copy()] {
            fs::write(path(root, band), &truth[band as usize]).unwrap();
        }
    }
    fixture.scrub(&ScrubOptions::default()).unwrap();
    let mut places = 0;
    while places < 1000 {
        let mut bands: Vec<u64> = (0..MANY.0).collect();
        for at in 0..bands.len() {
            let other = random.within(at as u64..MANY.0) as usize;
            bands.swap(at, other);
        }
        let (rotten, rest) = bands.split_at(20);
        let (written, touched) = (&rest[..10], &rest[10..15]);
        for &band in rotten {
            let mut bytes = truth[band as usize].clone();
            let at = random.within(0..MANY.1 as u64) as usize;
            match random.within(0..3) {
                0 => bytes[at] ^= 1 << random.within(0..8),
                // A sector that reads as something else.
                1 => bytes[at / 512 * 512..][..512].fill(random.bytes(1)[0]),
                _ => {
                    let len = (MANY.1 - at).min(300);
                    bytes[at..at + len].copy_from_slice(&random.bytes(len));
                }
            }
            if bytes == truth[band as usize] {
                bytes[at] ^= 0x80;
            }
            places += 1;
            fs::write(path(fixture.path(), band), bytes).unwrap();
        }
        // As if these files had always had their present times.
        let bundle = fixture.bundle();
        fixture.edit(|record| {
            for band in record.bands.values_mut() {
                band.settled = true;
            }
            for band in rotten {
                let name = format!("bands/{band:x}");
                let file = bundle.identity(&name).unwrap().unwrap();
                record.bands.get_mut(&name).unwrap().file = file;
            }
        });
        for &band in written {
            truth[band as usize] = random.bytes(MANY.1);
            fs::write(path(fixture.path(), band), &truth[band as usize]).unwrap();
        }
        for &band in touched {
            fs::write(path(fixture.path(), band), &truth[band as usize]).unwrap();
        }
        let mut expected: Vec<_> = rotten
            .iter()
            .map(|band| (format!("bands/{band:x}"), Finding::Faulty))
            .collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        let done = fixture.scrub(&ScrubOptions::default()).unwrap();
        assert_eq!(done.findings, expected);
        assert_eq!((done.changed, done.new), (10, 0));
        let copy = fixture.copy();
        let done = fixture.scrub(&from(&Local::new(&copy))).unwrap();
        assert_eq!((done.repaired.len(), done.findings.len()), (20, 0));
        for (band, truth) in (0..).zip(&truth) {
            assert!(
                fs::read(path(fixture.path(), band)).unwrap() == *truth,
                "{band}"
            );
        }
        for &band in written {
            fs::write(path(copy.clone(), band), &truth[band as usize]).unwrap();
        }
    }
}
