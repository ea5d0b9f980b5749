//! The conformance suite for stores.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::thread;

use super::{Devices, Promise, read_only};
use crate::Random;
use bandsaw_core::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw_core::store::{Lock, Open, Put, Store};
use bandsaw_core::{Error, Kind, Result};

/// Runs the suite on the stores that `make` creates. Each must be new and empty.
pub fn store(make: impl Fn() -> Arc<dyn Store>) {
    Stores::new(make).check();
}

/// Stores under test, and their properties.
pub struct Stores<'a> {
    make: Box<dyn Fn() -> Arc<dyn Store> + 'a>,
    reopen: Option<Box<dyn Fn() -> Arc<dyn Store> + 'a>>,
    has_locks: bool,
}

/// The promise that a store without locks of its own does not give.
const LOCKS: &str = "locks shut out";

impl fmt::Debug for Stores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}

impl<'a> Stores<'a> {
    /// Creates a suite for the stores that `make` creates, as for [`store`].
    pub fn new(make: impl Fn() -> Arc<dyn Store> + 'a) -> Self {
        Self {
            make: Box::new(make),
            reopen: None,
            has_locks: true,
        }
    }

    /// Leaves out the check of locks, for a store whose callers hold those of another.
    #[must_use]
    pub fn without_locks(self) -> Self {
        Self {
            has_locks: false,
            ..self
        }
    }

    /// Sets a function that reopens the store that was created last.
    #[must_use]
    pub fn reopen(mut self, reopen: impl Fn() -> Arc<dyn Store> + 'a) -> Self {
        self.reopen = Some(Box::new(reopen));
        self
    }

    /// Runs the suite.
    pub fn check(&self) {
        let given = |promise: &str| self.has_locks || promise != LOCKS;
        for (promise, check) in CHECKS.iter().filter(|(promise, _)| given(promise)) {
            check(&StoreCase {
                promise,
                store: (self.make)(),
            });
        }
        self.check_files();
        self.check_lasting();
    }

    /// Runs the device suite on the files of a store.
    fn check_files(&self) {
        let make = || {
            let store = (self.make)();
            let file = store
                .open("folder/file", Open::CreateNew)
                .expect("make a file")
                .expect("a new file");
            file.set_len(300_001, AfterDiscard::Zeros)
                .expect("give it a length");
            file
        };
        match &self.reopen {
            None => Devices::new(make).check(),
            Some(again) => Devices::new(make)
                .reopen(|| {
                    again()
                        .open("folder/file", Open::Write)
                        .expect("open a file")
                        .expect("the file that was made")
                })
                .check(),
        }
        let case = StoreCase {
            promise: "a file opened for reading is read-only",
            store: (self.make)(),
        };
        drop(case.filled("file", 200_000, 1));
        read_only(case.open("file", Open::Read));
    }

    fn check_lasting(&self) {
        let Some(reopen) = &self.reopen else { return };
        let promise = "names and contents are there when opened again";
        let case = StoreCase {
            promise,
            store: (self.make)(),
        };
        let file = case.filled("bands/0", 5000, 2);
        case.must("flush", file.flush());
        case.put("gone", b"1");
        case.put("moved", b"2");
        case.must("sync", case.store.sync());
        case.must("remove", case.store.remove("gone"));
        case.must("copy", case.store.copy("moved", "copied"));
        case.must("sync", case.store.sync());
        drop((file, case));
        let case = StoreCase {
            promise,
            store: reopen(),
        };
        case.expect_names("", &["bands/0", "copied", "moved"]);
        case.expect("bands/0", &Random::new(2).bytes(5000));
        case.expect("copied", b"2");
    }
}

type Check = fn(&StoreCase);

const CHECKS: &[(&str, Check)] = &[
    ("open finds and makes", open_finds_and_makes),
    ("names lead nowhere else", names_lead_nowhere_else),
    ("put is all or nothing", put_replaces_or_leaves),
    ("stat knows length and change", stat_knows),
    ("a copy is independent", copies_are_independent),
    ("a rename replaces", renames_replace),
    ("remove says whether there was a file", removes),
    ("a folder without files is removed", removes_folders),
    ("list meets what begins with the prefix, once", lists),
    ("a file seen twice is one file", one_file),
    ("sync may be repeated", |case| {
        (0..3).for_each(|_| case.must("sync", case.store.sync()))
    }),
    (LOCKS, locks_shut_out),
    ("threads make files side by side", threads_make_files),
];

struct StoreCase {
    promise: &'static str,
    store: Arc<dyn Store>,
}

impl Promise for StoreCase {
    fn promise(&self) -> &'static str {
        self.promise
    }
}

impl StoreCase {
    #[track_caller]
    fn open(&self, name: &str, mode: Open) -> Arc<dyn BlockDevice> {
        let found = self.must(
            format_args!("open {name} ({mode:?})"),
            self.store.open(name, mode),
        );
        found.unwrap_or_else(|| panic!("{}: open {name} ({mode:?}): found none", self.promise))
    }

    #[track_caller]
    fn put(&self, name: &str, bytes: &[u8]) {
        let done = self.must(
            format_args!("put {name}"),
            self.store.put(name, bytes, Put::Replace),
        );
        self.claim(done, format_args!("put {name}: replacing was refused"));
    }

    /// Creates a file of `len` bytes that are derived from `seed`.
    #[track_caller]
    fn filled(&self, name: &str, len: usize, seed: u64) -> Arc<dyn BlockDevice> {
        let file = self.open(name, Open::CreateNew);
        self.must(
            "give it a length",
            file.set_len(len as u64, AfterDiscard::Zeros),
        );
        self.must("fill it", file.write_at(0, &Random::new(seed).bytes(len)));
        file
    }

    #[track_caller]
    fn expect(&self, name: &str, expected: &[u8]) {
        let file = self.open(name, Open::Read);
        let found = self.must(
            format_args!("read {name}"),
            file.read_vec(0, file.info().len as usize),
        );
        self.claim(
            found == expected,
            format_args!(
                "{name} holds other bytes than it should ({} bytes)",
                found.len()
            ),
        );
    }

    #[track_caller]
    fn exists(&self, name: &str) -> bool {
        let known = self
            .must(format_args!("stat {name}"), self.store.stat(name))
            .is_some();
        let opened = self
            .must(
                format_args!("open {name}"),
                self.store.open(name, Open::Read),
            )
            .is_some();
        self.claim(
            known == opened,
            format_args!("{name}: stat and open do not agree on whether it exists"),
        );
        known
    }

    #[track_caller]
    fn expect_names(&self, prefix: &str, expected: &[&str]) {
        let mut found = Vec::new();
        let listed = self.store.list(prefix, &mut |entry| {
            found.push(entry.name.to_owned());
            Ok(())
        });
        self.must(format_args!("list {prefix:?}"), listed);
        found.sort();
        self.claim(
            found == expected,
            format_args!("list {prefix:?}: met {found:?}, expected {expected:?}"),
        );
    }
}

fn open_finds_and_makes(case: &StoreCase) {
    let open = |name, mode| {
        case.must(
            format_args!("open {name} ({mode:?})"),
            case.store.open(name, mode),
        )
    };
    case.claim(
        open("a/b/c", Open::Read).is_none(),
        "found what nobody made",
    );
    case.claim(
        open("a/b/c", Open::Write).is_none(),
        "found what nobody made",
    );
    case.expect_names("", &[]);
    let made = case.open("a/b/c", Open::CreateNew);
    case.claim(made.info().len == 0, "a new file is not empty");
    case.must("grow", made.set_len(3, AfterDiscard::Zeros));
    case.must("write", made.write_at(0, b"abc"));
    case.must_refuse(
        "write past the end",
        Kind::OutOfRange,
        made.write_at(3, b"d"),
    );
    drop(made);
    case.claim(
        open("a/b/c", Open::CreateNew).is_none(),
        "made a file over another",
    );
    for mode in [Open::Read, Open::Write, Open::Create] {
        let bytes = case.must("read", case.open("a/b/c", mode).read_array::<3>(0));
        case.claim(bytes == *b"abc", format_args!("{mode:?}: other bytes"));
    }
    case.open("d", Open::Create);
    case.expect_names("", &["a/b/c", "d"]);
}

fn names_lead_nowhere_else(case: &StoreCase) {
    case.put("file", b"1");
    for name in [
        "",
        "/",
        "/file",
        "..",
        "../file",
        "a/../file",
        "./file",
        "a//b",
        "a/",
        "a\0b",
    ] {
        let refuse = |doing: &str, result: Result<()>| {
            drop(case.must_refuse(format_args!("{doing} {name:?}"), Kind::Invalid, result))
        };
        refuse("open", case.store.open(name, Open::Create).map(drop));
        refuse("put", case.store.put(name, b"", Put::Replace).map(drop));
        refuse("stat", case.store.stat(name).map(drop));
        refuse("copy from", case.store.copy(name, "x"));
        refuse("copy to", case.store.copy("file", name));
        refuse("rename from", case.store.rename(name, "x"));
        refuse("rename to", case.store.rename("file", name));
        refuse("remove", case.store.remove(name).map(drop));
        if !name.is_empty() {
            refuse("remove folder", case.store.remove_folder(name));
        }
        refuse("lock", case.store.lock(name, Lock::Exclusive).map(drop));
    }
    case.expect_names("", &["file"]);
}

fn put_replaces_or_leaves(case: &StoreCase) {
    let put = |bytes, cond| case.must("put", case.store.put("deep/name", bytes, cond));
    case.claim(put(b"one", Put::IfAbsent), "a free name is taken");
    case.claim(!put(b"two", Put::IfAbsent), "a taken name is free");
    case.expect("deep/name", b"one");
    let old = case.open("deep/name", Open::Read);
    case.claim(put(b"three", Put::Replace), "replacing is refused");
    case.expect("deep/name", b"three");
    let seen = case.must("read the file that was replaced", old.read_array::<3>(0));
    case.claim(
        seen == *b"one" || seen == *b"thr",
        "a reader of the replaced file sees a mix",
    );
    put(b"", Put::Replace);
    case.expect("deep/name", b"");
    case.expect_names("", &["deep/name"]);
}

fn stat_knows(case: &StoreCase) {
    let stat = |name| case.must("stat", case.store.stat(name));
    case.claim(
        stat("none").is_none() && stat("no/ne").is_none(),
        "knows what nobody made",
    );
    let file = case.filled("folder/file", 10_000, 3);
    case.must("flush", file.flush());
    case.claim(stat("folder").is_none(), "a folder is a file");
    let before = stat("folder/file").expect("known");
    case.claim(
        before.len == 10_000,
        format_args!("{before:?} of 10,000 bytes"),
    );
    // File system timestamps have a coarse resolution.
    thread::sleep(std::time::Duration::from_millis(20));
    case.must("write", file.write_at(9_999, b"!"));
    case.must("flush", file.flush());
    let after = stat("folder/file").expect("known");
    case.claim(
        after.version != before.version,
        "a write did not change the version",
    );
    case.put("folder/file", b"new");
    let replaced = stat("folder/file").expect("known");
    case.claim(
        replaced.len == 3 && replaced.version != after.version,
        format_args!("{replaced:?} after a put"),
    );
}

fn copies_are_independent(case: &StoreCase) {
    let file = case.filled("from", 70_000, 4);
    let bytes = Random::new(4).bytes(70_000);
    case.must("flush", file.flush());
    case.must("copy", case.store.copy("from", "new/to"));
    case.expect("new/to", &bytes);
    case.must(
        "write to the copy",
        case.open("new/to", Open::Write).write_at(0, b"copy"),
    );
    case.must("write to the original", file.write_at(4, b"original"));
    case.expect("new/to", &[b"copy", &bytes[4..]].concat());
    case.expect("from", &[&bytes[..4], b"original", &bytes[12..]].concat());
    case.put("to", b"old");
    case.must("copy over another", case.store.copy("from", "to"));
    case.claim(
        case.must("stat", case.store.stat("to"))
            .is_some_and(|meta| meta.len == 70_000),
        "the copy is short",
    );
    case.must_refuse(
        "copy nothing",
        Kind::NotFound,
        case.store.copy("none", "there"),
    );
    case.must_refuse(
        "copy nothing",
        Kind::NotFound,
        case.store.copy("no/ne", "there"),
    );
    case.expect_names("", &["from", "new/to", "to"]);
}

fn renames_replace(case: &StoreCase) {
    case.put("a", b"1");
    case.put("b", b"2");
    match case.store.rename("a", "b") {
        Err(error) if error.kind() == Kind::Unsupported => {
            case.expect("a", b"1");
            case.expect("b", b"2");
            return;
        }
        renamed => case.must("rename", renamed),
    }
    case.expect("b", b"1");
    case.must(
        "rename into a new folder",
        case.store.rename("b", "new/folder/c"),
    );
    case.expect("new/folder/c", b"1");
    case.must(
        "rename to itself",
        case.store.rename("new/folder/c", "new/folder/c"),
    );
    case.must_refuse(
        "rename nothing",
        Kind::NotFound,
        case.store.rename("a", "b"),
    );
    case.must_refuse(
        "rename nothing",
        Kind::NotFound,
        case.store.rename("no/ne", "b"),
    );
    case.expect_names("", &["new/folder/c"]);
}

fn removes(case: &StoreCase) {
    case.put("x/a", b"1");
    let remove = |name| case.must("remove", case.store.remove(name));
    case.claim(!remove("a") && !remove("y/a"), "removed what was not there");
    case.claim(remove("x/a"), "did not find what was there");
    case.claim(
        !remove("x/a") && !case.exists("x/a"),
        "a removed file is there",
    );
    case.expect_names("", &[]);
    case.put("x/a", b"2");
    case.expect("x/a", b"2");
}

fn removes_folders(case: &StoreCase) {
    let remove = |name| case.must("remove folder", case.store.remove_folder(name));
    for name in ["x/y/z/a", "x/y/b", "x/c"] {
        case.put(name, b"1");
    }
    remove("none");
    remove("no/ne");
    remove("x");
    remove("x/c");
    case.expect_names("", &["x/c", "x/y/b", "x/y/z/a"]);
    case.must("remove", case.store.remove("x/y/z/a"));
    case.must("remove", case.store.remove("x/y/b"));
    remove("x/y");
    remove("x");
    case.must("sync", case.store.sync());
    case.expect_names("", &["x/c"]);
    for name in ["x/y/z/a", "x/y/b"] {
        case.put(name, b"2");
        case.expect(name, b"2");
    }
    case.must("sync", case.store.sync());
    for name in ["x/y/z/a", "x/y/b", "x/c"] {
        case.must("remove", case.store.remove(name));
    }
    remove("");
    case.expect_names("", &[]);
    case.put("x/y/b", b"3");
    case.expect("x/y/b", b"3");
    case.expect_names("", &["x/y/b"]);
}

fn lists(case: &StoreCase) {
    for name in [
        "Info.plist",
        "bands/0",
        "bands/10",
        "bands/1",
        "bands/1f",
        "bands2/1",
        "token",
        "deep/er/still",
    ] {
        case.put(name, name.as_bytes());
    }
    case.expect_names("bands/", &["bands/0", "bands/1", "bands/10", "bands/1f"]);
    case.expect_names("bands/1", &["bands/1", "bands/10", "bands/1f"]);
    case.expect_names(
        "bands",
        &["bands/0", "bands/1", "bands/10", "bands/1f", "bands2/1"],
    );
    case.expect_names("deep/er/", &["deep/er/still"]);
    case.expect_names("t", &["token"]);
    case.expect_names("none/", &[]);
    let mut met = BTreeSet::new();
    let listed = case.store.list("", &mut |entry| {
        let meta = entry.meta()?.expect("a file that is there");
        case.claim(
            meta.len == entry.name.len() as u64,
            format_args!("{}: {meta:?}", entry.name),
        );
        case.claim(
            met.insert(entry.name.to_owned()),
            format_args!("{} was met twice", entry.name),
        );
        Ok(())
    });
    case.must("list all", listed);
    case.claim(met.len() == 8, format_args!("met {met:?}"));
    let mut calls = 0;
    let stopped = case.store.list("bands/", &mut |_| {
        calls += 1;
        Err(Error::new(Kind::Cancelled, "test", "enough"))
    });
    case.must_refuse("list with an error", Kind::Cancelled, stopped);
    case.claim(
        calls == 1,
        format_args!("an error did not stop the walk: {calls} calls"),
    );
}

fn one_file(case: &StoreCase) {
    let one = case.filled("file", 8192, 5);
    let two = case.open("file", Open::Write);
    case.must("write", one.write_at(100, b"seen at once"));
    let seen = case.must("read", two.read_array::<12>(100));
    case.claim(
        seen == *b"seen at once",
        "a write is not seen by who else has the file open",
    );
    case.must("discard", two.discard(0..8192, AfterDiscard::Zeros));
    let seen = case.must("read", one.read_array::<12>(100));
    case.claim(
        seen == [0; 12],
        "a discard is not seen by who else has the file open",
    );
}

fn locks_shut_out(case: &StoreCase) {
    let lock = |name, mode| case.store.lock(name, mode);
    let nothing = case.must("share a lock nobody made", lock("lock", Lock::Shared));
    case.claim(!case.exists("lock"), "a reader made a lock file");
    let held = case.must("lock", lock("lock", Lock::Exclusive));
    case.claim(case.exists("lock"), "no lock file was made");
    for mode in [Lock::Shared, Lock::Exclusive] {
        let error = case.must_refuse(
            format_args!("lock twice ({mode:?})"),
            Kind::Conflict,
            lock("lock", mode),
        );
        case.claim(
            error.to_string().contains("in use"),
            format_args!("the error does not say why: {error}"),
        );
    }
    drop(case.must("lock another", lock("other", Lock::Exclusive)));
    drop((held, nothing));
    let readers = [lock("lock", Lock::Shared), lock("lock", Lock::Shared)]
        .map(|held| case.must("share", held));
    case.must_refuse(
        "lock what is shared",
        Kind::Conflict,
        lock("lock", Lock::Exclusive),
    );
    let [one, two] = readers;
    drop(one);
    case.must_refuse(
        "lock what one still shares",
        Kind::Conflict,
        lock("lock", Lock::Exclusive),
    );
    drop(two);
    drop(case.must("lock what is free", lock("lock", Lock::Exclusive)));
}

fn threads_make_files(case: &StoreCase) {
    let name = |thread: u64, file: u64| format!("bands/{:x}", file * 8 + thread);
    thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for file in 0..8 {
                    case.filled(&name(thread, file), 3000, thread);
                    case.must("sync", case.store.sync());
                    if file % 2 == 1 {
                        case.claim(
                            case.must("remove", case.store.remove(&name(thread, file))),
                            "nothing was removed",
                        );
                    }
                }
            });
        }
    });
    for thread in 0..8 {
        for file in 0..8 {
            case.claim(
                case.exists(&name(thread, file)) == (file % 2 == 0),
                format_args!("file {file} of thread {thread}"),
            );
        }
        case.expect(&name(thread, 0), &Random::new(thread).bytes(3000));
    }
}
