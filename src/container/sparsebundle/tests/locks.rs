//! Property lists and locks of a bundle.

use super::*;

#[test]
fn the_copy_stands_in_for_the_list() {
    let (store, bundle) = create(BAND);
    drop(bundle);
    let good = text(&store, "Info.plist");
    for bad in [None, Some("no list"), Some("<plist><dict/></plist>")] {
        match bad {
            None => drop(store.remove("Info.plist").unwrap()),
            Some(bytes) => put(&store, "Info.plist", bytes.as_bytes()),
        }
        let bundle = open(&store).unwrap();
        assert_eq!(bundle.info().len, BAND);
        assert!(
            bundle.warnings()[0].contains("Info.bckup is used"),
            "{:?}",
            bundle.warnings()
        );
        assert_eq!(bundle.survey(&Silent).unwrap().problems.len(), 1);
    }
    put(&store, "Info.bckup", b"neither");
    let error = open(&store).unwrap_err();
    assert_eq!(
        (error.kind(), error.place()),
        (Kind::Corrupt, &Place::Name("Info.plist".to_owned()))
    );
    assert!(error.message().contains("Info.bckup"), "{error}");

    put(
        &store,
        "Info.plist",
        good.replace(">1048576<", ">1048577<").as_bytes(),
    );
    put(&store, "Info.bckup", good.as_bytes());
    assert!(
        open(&store).unwrap_err().to_string().contains("1048577"),
        "the copy has no say against a list that can be read"
    );
    put(&store, "Info.plist", &vec![b' '; 1 << 20]);
    assert!(open(&store).unwrap().warnings()[0].contains("65536"));
    store.remove("Info.plist").unwrap();
    store.remove("Info.bckup").unwrap();
    assert_eq!(open(&store).unwrap_err().kind(), Kind::NotFound);
}

/// As macOS does: whatever is interrupted, Info.bckup is the newer list.
#[test]
fn the_copy_is_the_newer_list_after_a_crash() {
    let recorded = |store: &dyn Store, name| {
        let size = read_plist(store, name).ok().map(|info| info.size);
        size.unwrap_or(0)
    };
    let puts = at_every(Call::Put, Fault::Io, |faults, n| {
        let store = MemoryStore::default();
        let faulty = FaultyStore::new(Arc::new(store.clone()), faults);
        let _ = Bundle::create(Arc::new(faulty), &options(BAND));
        let [info, copy] = [plist::INFO, plist::BACKUP].map(|name| recorded(&store, name));
        assert!(copy >= info, "put {n} of creation");
    });
    assert!(puts >= 2);
    for size in [BAND / 2, 2 * BAND] {
        let puts = at_every(Call::Put, Fault::Io, |faults, n| {
            let (store, bundle) = create(BAND);
            drop(bundle);
            let faulty = FaultyStore::new(Arc::new(store.clone()), faults);
            let bundle = Bundle::open(Arc::new(faulty), Access::ReadWrite).unwrap();
            let _ = bundle.set_len(size, AfterDiscard::Zeros);
            let [info, copy] = [plist::INFO, plist::BACKUP].map(|name| recorded(&store, name));
            assert!(copy == size || info == BAND, "put {n} of {size}");
        });
        assert!(puts >= 2);
    }
}

/// A list that cannot be read is not known to be damaged: the other one does not take its place.
#[test]
fn a_read_error_is_no_damaged_list() {
    let (store, bundle) = create(4 * BAND);
    drop(bundle);
    for call in [Call::Open, Call::Read] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let mut refused = 0;
            let calls = at_every(call, Fault::Io, |faults, _| {
                let faulty = FaultyStore::new(Arc::new(store.clone()), faults);
                match Bundle::open(Arc::new(faulty), access) {
                    Ok(bundle) => {
                        assert_eq!(bundle.damaged_list(), None);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Io, "{error}");
                        refused += 1;
                    }
                }
            });
            assert!(refused > 0 && calls >= refused, "{call:?}");
        }
    }
}

/// As macOS does: a file server without locks is no error, another failure of a lock is.
#[test]
fn locks_that_a_server_does_not_have_are_done_without() {
    let (store, bundle) = create(BAND);
    bundle.write_at(0, &[1; 512]).unwrap();
    drop(bundle);
    let faults = Faults::new();
    let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(Arc::new(store), &faults));
    for access in [Access::ReadOnly, Access::ReadWrite] {
        faults.break_all(Call::Lock, Fault::NotSupported);
        let bundle = Bundle::open(faulty.clone(), access).unwrap();
        assert_eq!(bundle.read_vec(0, 512).unwrap(), [1; 512]);
        faults.break_all(Call::Lock, Fault::Io);
        let error = Bundle::open(faulty.clone(), access).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
    }
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let (store, bundle) = create(BAND);
    let read = || Bundle::open(Arc::new(store.clone()), Access::ReadOnly);
    assert_eq!(read().unwrap_err().kind(), Kind::Conflict);
    drop(bundle);
    let _both = (read().unwrap(), read().unwrap());
    assert_eq!(open(&store).unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn a_read_only_open_makes_nothing() {
    let (store, bundle) = create(BAND);
    drop(bundle);
    store.remove("lock").unwrap();
    store.remove("token").unwrap();
    let bundle = Bundle::open(Arc::new(store.clone()), Access::ReadOnly).unwrap();
    assert_eq!(bundle.read_vec(0, 512).unwrap(), [0; 512]);
    bundle.flush().unwrap();
    for refused in [
        bundle.write_at(0, &[0]),
        bundle.discard(0..BAND, AfterDiscard::Any),
        bundle.set_len(512, AfterDiscard::Zeros),
    ] {
        assert_eq!(refused.unwrap_err().kind(), Kind::ReadOnly);
    }
    assert_eq!(names(&store), ["Info.bckup", "Info.plist"]);
    drop(bundle);
    drop(open(&store).unwrap());
    assert_eq!(names(&store), ["Info.bckup", "Info.plist", "lock", "token"]);
}

/// A folder in place of the lock file: the bundle is read, `check` warns, and writers are refused.
#[test]
fn a_folder_in_place_of_the_lock_refuses_writers() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(Local::new(folder.path().join("b.sparsebundle")));
    drop(Bundle::create(store(), &options(4 * BAND)).unwrap());
    let lock = folder.path().join("b.sparsebundle/lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    Bundle::open(store(), Access::ReadOnly).unwrap();
    let error = Bundle::open(store(), Access::ReadWrite).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.message().contains("found a folder"), "{error}");
    assert_eq!(
        (error.file(), error.part()),
        (lock.parent().unwrap().to_str(), Some("lock"))
    );
    let mut found = crate::problem::Problems::default();
    check(&*store(), &mut found, &Silent).unwrap();
    let problem = &found.listed()[0];
    assert_eq!(problem.severity, crate::problem::Severity::Warning);
    assert_eq!(*problem.error.place(), Place::Name("lock".to_owned()));
}
