//! Tests of the power failure simulation: it produces all permitted states, and no others.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bandsaw::Result;
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Extent, FileRange, Info};
use bandsaw::store::{HostStore, Open, Put, Store};
use bandsaw::testing::PowerCut;
use bandsaw::testing::power_cut::{Keep, Survival};

fn file(store: &PowerCut, name: &str, len: u64) -> Arc<dyn BlockDevice> {
    let file = store.open(name, Open::Create).unwrap().unwrap();
    file.set_len(len, AfterDiscard::Zeros).unwrap();
    file
}

fn durable(store: &PowerCut, name: &str, len: u64) -> Arc<dyn BlockDevice> {
    let file = file(store, name, len);
    file.flush().unwrap();
    store.sync().unwrap();
    file
}

fn contents(store: &PowerCut, name: &str) -> Option<Vec<u8>> {
    let file = store.open(name, Open::Read).unwrap()?;
    Some(file.read_vec(0, file.info().len as usize).unwrap())
}

/// Returns all states of some names that a crash now may leave, as found in 400 tries.
fn states(store: &PowerCut, names: &[&str]) -> BTreeSet<Vec<Option<Vec<u8>>>> {
    let tries = [Keep::Nothing, Keep::Everything]
        .into_iter()
        .chain((0..400).map(Keep::Some));
    tries
        .map(|keep| store.crash(keep))
        .map(|found| names.iter().map(|name| contents(&found, name)).collect())
        .collect()
}

#[test]
fn flushed_and_synced_data_are_there() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 2000);
    disk.write_at(100, b"kept").unwrap();
    disk.flush().unwrap();
    let expected = contents(&store, "disk");
    assert!(
        states(&store, &["disk"])
            .into_iter()
            .all(|state| state[0] == expected)
    );
}

#[test]
fn unflushed_writes_are_torn_between_sectors() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 1536);
    disk.write_at(0, &[1; 1536]).unwrap();
    let found = states(&store, &["disk"]);
    let patterns: BTreeSet<Vec<u8>> = found
        .iter()
        .map(|state| {
            let bytes = state[0].as_ref().expect("a synced name");
            let sectors = bytes
                .chunks(512)
                .inspect(|sector| assert!(sector.iter().all(|byte| *byte == sector[0])));
            sectors.map(|sector| sector[0]).collect()
        })
        .collect();
    assert_eq!(
        patterns.len(),
        8,
        "each of three sectors is old or new: {patterns:?}"
    );
}

#[test]
fn writes_survive_in_any_order() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 1024);
    disk.write_at(0, &[1; 512]).unwrap();
    disk.write_at(512, &[2; 512]).unwrap();
    disk.discard(0..512, AfterDiscard::Zeros).unwrap();
    let found: BTreeSet<[u8; 2]> = states(&store, &["disk"])
        .into_iter()
        .map(|state| {
            state[0]
                .as_ref()
                .map(|bytes| [bytes[0], bytes[512]])
                .unwrap()
        })
        .collect();
    assert_eq!(found, BTreeSet::from([[0, 0], [0, 2], [1, 0], [1, 2]]));
}

#[test]
fn lengths_and_contents_survive_independently() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 512);
    disk.set_len(1024, AfterDiscard::Zeros).unwrap();
    disk.write_at(512, &[1; 512]).unwrap();
    let found: BTreeSet<(usize, Option<u8>)> = states(&store, &["disk"])
        .into_iter()
        .map(|state| {
            state[0]
                .as_ref()
                .map(|bytes| (bytes.len(), bytes.get(512).copied()))
                .unwrap()
        })
        .collect();
    assert_eq!(
        found,
        BTreeSet::from([(512, None), (1024, Some(0)), (1024, Some(1))])
    );
}

#[test]
fn names_and_contents_survive_independently() {
    let store = PowerCut::default();
    file(&store, "new", 3).write_at(0, b"abc").unwrap();
    let found = states(&store, &["new"]);
    for state in [None, Some(vec![]), Some(vec![0; 3]), Some(b"abc".to_vec())] {
        assert!(
            found.contains(&vec![state.clone()]),
            "{state:?} was not found in {found:?}"
        );
    }
    store.sync().unwrap();
    assert!(
        states(&store, &["new"])
            .iter()
            .all(|state| state[0].is_some()),
        "a synced name is lost"
    );
}

#[test]
fn a_put_is_all_or_nothing() {
    let store = PowerCut::default();
    store.put("plist", b"old", Put::Replace).unwrap();
    store.sync().unwrap();
    store.put("plist", b"newer", Put::Replace).unwrap();
    let found: BTreeSet<_> = states(&store, &["plist"])
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert_eq!(found, BTreeSet::from([b"old".to_vec(), b"newer".to_vec()]));
}

#[test]
fn a_renamed_file_is_never_lost() {
    let store = PowerCut::default();
    store.put("a", b"1", Put::Replace).unwrap();
    store.put("b", b"2", Put::Replace).unwrap();
    store.sync().unwrap();
    store.rename("a", "b").unwrap();
    store.rename("b", "c").unwrap();
    let (one, two) = (Some(b"1".to_vec()), Some(b"2".to_vec()));
    let found = states(&store, &["a", "b", "c"]);
    assert!(
        found.iter().all(|state| state.contains(&one)),
        "the file has no name: {found:?}"
    );
    assert!(
        found.contains(&vec![one.clone(), two.clone(), None]),
        "nothing survived"
    );
    assert!(
        found.contains(&vec![None, None, one.clone()]),
        "everything survived"
    );
    assert!(
        found.contains(&vec![one.clone(), two, one]),
        "only the last name survived"
    );
}

#[test]
fn a_removed_file_may_come_back_until_synced() {
    let store = PowerCut::default();
    store.put("a", b"1", Put::Replace).unwrap();
    store.sync().unwrap();
    store.remove("a").unwrap();
    assert_eq!(states(&store, &["a"]).len(), 2);
    store.sync().unwrap();
    assert_eq!(states(&store, &["a"]), BTreeSet::from([vec![None]]));
}

/// Returns all states of some names in the root of a host that a crash now may leave.
fn host_states(
    cut: &PowerCut,
    names: &[&str],
    look: impl Fn(&PowerCut, &str) -> Option<i64>,
) -> BTreeSet<Vec<Option<i64>>> {
    let tries = [Keep::Nothing, Keep::Everything]
        .into_iter()
        .chain((0..400).map(Keep::Some));
    tries
        .map(|keep| cut.crash(keep))
        .map(|found| names.iter().map(|name| look(&found, name)).collect())
        .collect()
}

fn exists(cut: &PowerCut, name: &str) -> Option<i64> {
    cut.stat(name).unwrap().map(|_| 1)
}

#[test]
fn a_folder_has_one_name_and_is_lost_with_its_files() {
    let cut = PowerCut::default();
    let host = cut.folder("");
    host.put("new/a", b"1", Put::Replace).unwrap();
    host.sync().unwrap();
    host.put("new/b", b"2", Put::Replace).unwrap();
    assert!(host.rename_folder("new", "old").unwrap());
    let found = host_states(&cut, &["new/a", "new/b", "old/a", "old/b"], exists);
    let expected = [
        vec![Some(1), None, None, None],
        vec![Some(1), Some(1), None, None],
        vec![None, None, Some(1), None],
        vec![None, None, Some(1), Some(1)],
    ];
    assert_eq!(found, BTreeSet::from(expected));
    host.sync().unwrap();
    host.remove_tree("old").unwrap();
    let found = host_states(&cut, &["old/a", "old/b", "new/a"], exists);
    assert!(found.len() == 4 && found.iter().all(|state| state[2].is_none()));
}

/// A folder of a host makes only those names durable that were changed through it.
#[test]
fn names_in_a_new_folder_are_lost_if_its_own_is_not_durable() {
    let cut = PowerCut::default();
    let inner = cut.folder("deep/folder");
    inner.put("a", b"1", Put::Replace).unwrap();
    cut.folder("deep/folder").sync().unwrap();
    cut.folder("").sync_tree("deep").unwrap();
    let found = host_states(&cut, &["deep/folder/a"], exists);
    assert_eq!(found, BTreeSet::from([vec![None], vec![Some(1)]]));
    inner.sync().unwrap();
    let found = host_states(&cut, &["deep/folder/a"], exists);
    assert_eq!(found, BTreeSet::from([vec![Some(1)]]));
    // A file that moves to another folder is found in one of them, even if one alone is synced.
    inner.rename("a", "../b").unwrap_err();
    let host = cut.folder("");
    host.rename("deep/folder/a", "other/a").unwrap();
    cut.folder("deep/folder").sync().unwrap();
    host.sync_tree("deep/folder").unwrap();
    let found = host_states(&cut, &["deep/folder/a", "other/a"], exists);
    assert_eq!(found, BTreeSet::from([vec![None, Some(1)]]));
}

#[test]
fn times_and_links_survive_as_names_and_contents_do() {
    let cut = PowerCut::default();
    let host = cut.folder("");
    let modified = |cut: &PowerCut, name: &str| {
        let found = cut.folder("").attributes(name).unwrap();
        found.map(|found| found.modified)
    };
    host.put("a", b"1", Put::Replace).unwrap();
    host.set_modified("a", 5).unwrap();
    host.sync().unwrap();
    assert_eq!(
        host_states(&cut, &["a"], modified),
        BTreeSet::from([vec![Some(5)]])
    );
    let file = host.open("a", Open::Write).unwrap().unwrap();
    file.write_at(0, b"2").unwrap();
    let found = host_states(&cut, &["a"], modified);
    assert_eq!(found.len(), 2, "{found:?}");
    file.flush().unwrap();
    assert_eq!(host_states(&cut, &["a"], modified).len(), 1);
    assert!(host.link("a", "b").unwrap());
    host.remove("a").unwrap();
    let found = host_states(&cut, &["a", "b"], exists);
    assert_eq!(found.len(), 4, "a link is no rename: {found:?}");
}

#[test]
fn a_crash_can_be_made_again() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 8192);
    for number in 0..8 {
        disk.write_at(u64::from(number) * 1000, &[number + 1; 1000])
            .unwrap();
        store
            .put(&format!("name{number}"), &[number], Put::Replace)
            .unwrap();
    }
    let mut seen = 0;
    for (one, two) in store.crashes(7, 3).zip(store.crashes(7, 3)) {
        let again = store.crash_at(one.position, one.keep);
        for name in ["disk", "name0", "name7"] {
            let found = contents(&one.store, name);
            assert_eq!(found, contents(&two.store, name));
            assert_eq!(found, contents(&again, name));
        }
        seen += 1;
    }
    assert_eq!(seen, (store.position() + 1) * 5);
}

#[test]
fn a_crash_can_follow_a_crash() {
    let store = PowerCut::default();
    durable(&store, "disk", 512).write_at(0, &[1; 512]).unwrap();
    let found = store.crash(Keep::Everything);
    found
        .open("disk", Open::Write)
        .unwrap()
        .unwrap()
        .write_at(0, &[2; 512])
        .unwrap();
    let again = contents(&found.crash(Keep::Nothing), "disk");
    assert_eq!(
        again,
        Some(vec![1; 512]),
        "what was found after a crash is durable"
    );
}

#[test]
fn a_clean_device_flushes_for_free() {
    let store = PowerCut::default();
    let disk = durable(&store, "disk", 512);
    let position = store.position();
    disk.flush().unwrap();
    store.sync().unwrap();
    assert_eq!(store.position(), position);
}

/// Bugs of a device that should survive power failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    ForgetsToFlush,
    ForgetsToSync,
    /// A cache that is written back after the flush instead of before it.
    WritesAfterTheFlush,
}

/// A disk in two files, one for each half; the second is created on demand.
#[derive(Debug)]
struct Halves {
    store: PowerCut,
    bug: Bug,
    late: bandsaw::sync::Mutex<Vec<(u64, Vec<u8>)>>,
}

const HALF: u64 = 8192;

impl Halves {
    fn create(store: &PowerCut, bug: Bug) -> Result<Arc<dyn BlockDevice>> {
        durable(store, "0", HALF);
        Self::open(store, bug)
    }

    fn open(store: &PowerCut, bug: Bug) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(Self {
            store: store.clone(),
            bug,
            late: bandsaw::sync::Mutex::default(),
        }))
    }

    fn half(&self, number: u64) -> Arc<dyn BlockDevice> {
        let half = self
            .store
            .open(&number.to_string(), Open::Create)
            .unwrap()
            .unwrap();
        if half.info().len < HALF {
            half.set_len(HALF, AfterDiscard::Zeros).unwrap();
        }
        half
    }

    fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
        (0..2).map(move |number| {
            let (start, end) = (number * HALF, (number + 1) * HALF);
            (
                number,
                range.start.clamp(start, end) - start..range.end.clamp(start, end) - start,
            )
        })
    }
}

impl BlockDevice for Halves {
    fn info(&self) -> Info {
        Info {
            len: 2 * HALF,
            ..self.half(0).info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let mut rest = buf;
        for (number, part) in Self::parts(offset..offset + rest.len() as u64) {
            let (now, later) = rest.split_at_mut((part.end - part.start) as usize);
            if let Some(half) = self.store.open(&number.to_string(), Open::Read)? {
                let there = half
                    .info()
                    .len
                    .saturating_sub(part.start)
                    .min(now.len() as u64) as usize;
                half.read_at(part.start.min(half.info().len), &mut now[..there])?;
            }
            rest = later;
        }
        for (at, bytes) in self.late.lock().iter() {
            let (start, end) = (*at.max(&offset), (at + bytes.len() as u64).min(offset));
            assert!(start >= end, "this test reads only after flushes");
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.bug == Bug::WritesAfterTheFlush {
            self.late.lock().push((offset, buf.to_vec()));
            return Ok(());
        }
        let mut rest = buf;
        for (number, part) in
            Self::parts(offset..offset + buf.len() as u64).filter(|(_, part)| !part.is_empty())
        {
            let (now, later) = rest.split_at((part.end - part.start) as usize);
            self.half(number).write_at(part.start, now)?;
            rest = later;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        match leave {
            AfterDiscard::Any => Ok(()),
            AfterDiscard::Zeros => {
                self.write_at(range.start, &vec![0; (range.end - range.start) as usize])
            }
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.half(0).extent_at(0..range.end - range.start)
    }

    fn flush(&self) -> Result<()> {
        if self.bug != Bug::ForgetsToFlush {
            (0..2).try_for_each(|number| self.half(number).flush())?;
        }
        if self.bug != Bug::ForgetsToSync {
            self.store.sync()?;
        }
        let late = std::mem::take(&mut *self.late.lock());
        let on_time = Self {
            store: self.store.clone(),
            bug: Bug::None,
            late: bandsaw::sync::Mutex::default(),
        };
        late.iter()
            .try_for_each(|(at, bytes)| on_time.write_at(*at, bytes))
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(bandsaw::Error::unsupported("halves", "two halves"))
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

fn survives(bug: Bug) -> bool {
    let check = |seed| {
        Survival::new(
            move |cut| Halves::create(cut, bug),
            move |cut| Halves::open(cut, bug),
        )
        .check(seed)
    };
    (0..6).all(|seed| catch_unwind(AssertUnwindSafe(|| check(seed))).is_ok())
}

#[test]
fn only_flushed_data_survive() {
    assert!(survives(Bug::None));
    for bug in [
        Bug::ForgetsToFlush,
        Bug::ForgetsToSync,
        Bug::WritesAfterTheFlush,
    ] {
        assert!(!survives(bug), "{bug:?} is not seen");
    }
}

#[test]
fn a_plain_file_survives() {
    let open = |cut: &PowerCut| Ok(cut.open("disk", Open::Write)?.expect("the disk"));
    let survival = Survival::new(|cut| Ok(durable(cut, "disk", 50_000)), open).resize_by(20_000);
    for seed in 0..8 {
        let crashes = survival.check(seed);
        assert!(crashes > 100, "{crashes} crashes are few");
    }
}

/// A device that claims to be durable without having flushed its length is detected.
#[test]
fn a_length_that_was_not_flushed_is_seen() {
    let open = |cut: &PowerCut| Ok(cut.open("disk", Open::Write)?.expect("the disk"));
    let create = |cut: &PowerCut| {
        let disk = file(cut, "disk", 50_000);
        cut.sync()?;
        Ok(disk)
    };
    let seen = catch_unwind(AssertUnwindSafe(|| Survival::new(create, open).check(1))).unwrap_err();
    let said = seen.downcast_ref::<String>().expect("a message");
    assert!(said.contains("the length is 0"), "{said}");
}
