//! Repairs that are undone, rolled back or refused to be.

use super::*;

/// Opens the bundle of a store, with the undo data beside it.
fn beside(store: Arc<dyn Store>) -> Target {
    Target::in_store(store, "b").unwrap()
}

/// Opens the same with the undo data in a store of its own.
fn apart(store: Arc<dyn Store>) -> Target {
    let undo = PrefixStore::new(store.clone(), "b.undo");
    beside(store).with_undo_apart(Arc::new(undo))
}

/// After a power failure at any point of a repair, the image is unchanged, or undoing the repair
/// restores it.
#[test]
fn a_repair_is_undone_from_wherever_the_power_went() {
    check_undo_after_power_cuts(beside);
}

#[test]
fn a_repair_with_undo_data_elsewhere_is_undone_from_wherever_the_power_went() {
    check_undo_after_power_cuts(apart);
}

fn check_undo_after_power_cuts(open: fn(Arc<dyn Store>) -> Target) {
    let damaged = bundle(true);
    let store = PowerCut::default();
    copy_into(&store, &damaged);
    let target = open(Arc::new(store.clone()));
    let begun = store.position();
    let done = repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    assert_eq!(done.outcome, Outcome::Repaired, "{done:?}");
    assert!(
        done.steps.len() >= 4 && done.undecided.is_none(),
        "{:?}",
        done.steps
    );
    let kept = contents(&store, "b.undo/");
    assert_eq!(
        kept["b.undo/1/files/bands/ff"], [1; 5000],
        "nothing is removed"
    );
    let whole = contents(&store, "b/");
    assert!(!whole.contains_key("b/bands/ff") && whole["b/Info.bckup"] == whole["b/Info.plist"]);
    let (mut untouched, mut undone, mut rolled_back) = (0, 0, 0);
    for crash in store.crashes_from(begun, 5, 3) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let store: Arc<dyn Store> = Arc::new(crash.store);
        let target = open(store.clone());
        let left = contents(&*store, "");
        let try_again =
            |mode| repair_target(&target, &OpenOptions::default(), &chosen(mode), &Silent).unwrap();
        // A dry run takes the same steps, on a view, and a repair that was not interrupted has none.
        let tried = try_again(Mode::DryRun);
        assert!(contents(&*store, "") == left, "{place}: a dry run writes");
        if left.contains_key("b.undo/1/state") && tried.rolled_back.is_none() {
            assert!(contents(&*store, "b/") == whole, "{place}");
            assert_eq!(tried.outcome, Outcome::NothingToDo, "{place}: {tried:?}");
        } else {
            assert_eq!(tried.steps, done.steps, "{place}");
        }
        let is_tried_as_is = tried.rolled_back.is_none();
        if crash.position % 3 == 0 {
            // The next repair rolls the first one back, and is undone itself.
            let again = try_again(Mode::Apply);
            assert_eq!(again.steps, tried.steps, "{place}");
            assert_eq!(again.rolled_back, tried.rolled_back, "{place}");
            assert!(contents(&*store, "b/") == whole, "{place}");
            rolled_back += usize::from(!is_tried_as_is);
        }
        match undo_target(&target) {
            Ok(_) => undone += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{place}: {error}");
                untouched += 1;
            }
        }
        assert!(contents(&*store, "b/") == damaged, "{place}");
        assert!(contents(&*store, "b.undo/").is_empty(), "{place}");
        assert_eq!(try_again(Mode::DryRun).steps, done.steps);
    }
    assert!(
        untouched > 5 && undone > 20 && rolled_back > 5,
        "{untouched}, {undone}, {rolled_back}"
    );
    // An interrupted undo is completed by the next.
    let begun = store.position();
    undo_target(&target).unwrap();
    for crash in store.crashes_from(begun, 7, 3) {
        let store: Arc<dyn Store> = Arc::new(crash.store);
        let undone = undo_target(&open(store.clone()));
        assert!(undone.is_ok() || undone.is_err_and(|error| error.kind() == Kind::NotFound));
        assert!(
            contents(&*store, "b/") == damaged,
            "after event {}, {:?}",
            crash.position,
            crash.keep
        );
    }
}

/// An image that was replaced, or changed by something else, after a power failure during a repair
/// or its undo keeps every byte; what the repair did not write and nothing needs to open the image
/// can differ.
#[test]
fn an_image_that_changed_after_a_power_failure_is_not_rolled_back() {
    let (damaged, healthy) = (bundle(true), bundle(false));
    let store = PowerCut::default();
    copy_into(&store, &damaged);
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    let begun = store.position();
    let options = OpenOptions::default();
    let repair = |target: &Target| repair_target(target, &options, &chosen(Mode::Apply), &Silent);
    repair(&target).unwrap();
    undo_target(&target).unwrap();
    let (mut replaced, mut refused, mut kept, mut written) = (0, 0, 0, 0);
    for crash in store.crashes_from(begun, 7, 2) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let left = contents(&crash.store, "");
        let fresh = || {
            let store = MemoryStore::default();
            copy_into(&store, &left);
            let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
            (store, target)
        };
        let (store, target) = fresh();
        contents(&store, "b/")
            .keys()
            .for_each(|name| drop(store.remove(name)));
        copy_into(&store, &healthy);
        let before = contents(&store, "");
        match repair(&target) {
            Ok(done) => assert_eq!(done.outcome, Outcome::NothingToDo, "{place}"),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}");
                assert!(error.message().contains("--commit"), "{place}: {error}");
                assert!(contents(&store, "") == before, "{place}");
                assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
                assert!(contents(&store, "") == before, "{place}");
                commit_target(&target).unwrap();
                refused += 1;
            }
        }
        assert!(contents(&store, "b/") == healthy, "{place}");
        replaced += 1;
        // Bytes of the disk that nothing needs to open it, and those of a volume header.
        let band = |store: &MemoryStore| store.open("b/bands/0", Open::Write).unwrap().unwrap();
        let (store, target) = fresh();
        let bytes = band(&store)
            .read_vec(0, band(&store).info().len as usize)
            .unwrap();
        let header = (0..bytes.len())
            .step_by(512)
            .find(|at| bytes[*at..].starts_with(b"H+"))
            .unwrap() as u64;
        let write = |at: u64, store: &MemoryStore| {
            let now: [u8; 1] = band(store).read_array(at).unwrap();
            band(store).write_at(at, &[now[0] ^ 1]).unwrap();
        };
        write(header + 68, &store);
        let before = contents(&store, "");
        match undo_target(&target) {
            Ok(_) => panic!("{place}: undone in spite of a change"),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}"),
        }
        let mut after = contents(&store, "");
        after.retain(|name, _| before.contains_key(name));
        assert!(
            contents(&store, "b/")
                .iter()
                .all(|(name, now)| before[name] == *now),
            "{place}"
        );
        let (store, target) = fresh();
        // In the bitmap.
        let number = |at: u64| {
            let at = at as usize;
            u64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()))
        };
        let far =
            header - 1024 + number(header + 128) * number(header + 40) + number(header + 44) / 16;
        write(far, &store);
        let before = contents(&store, "b/");
        let mut expected = damaged.clone();
        expected.get_mut("b/bands/0").unwrap()[far as usize] ^= 1;
        match undo_target(&target) {
            Ok(_) => {
                assert!(contents(&store, "b/") == expected, "{place}");
                written += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::NotFound | Kind::Conflict),
                    "{place}: {error}"
                );
                assert!(contents(&store, "b/") == before, "{place}");
                kept += 1;
            }
        }
    }
    let counts = format!("{replaced} {refused} {written} {kept}");
    assert!(
        replaced > 20 && refused > 5 && written > 5 && kept > 0,
        "{counts}"
    );
}

/// If an image changed between two repairs, only the later one is undone.
#[test]
fn writes_between_two_repairs_are_kept() {
    let store = MemoryStore::default();
    copy_into(&store, &bundle(true));
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    let options = OpenOptions::default();
    let repair = || repair_target(&target, &options, &chosen(Mode::Apply), &Silent).unwrap();
    assert_eq!(repair().outcome, Outcome::Repaired);
    // A write that counts in the volume header, and then new damage.
    let band = store.open("b/bands/0", Open::Write).unwrap().unwrap();
    let bytes = band.read_vec(0, band.info().len as usize).unwrap();
    let header = (0..bytes.len())
        .step_by(512)
        .find(|at| bytes[*at..].starts_with(b"H+"))
        .unwrap() as u64;
    band.write_at(header + 71, &[bytes[header as usize + 71] ^ 1])
        .unwrap();
    let written = contents(&store, "b/");
    for n in 0..2 {
        store.put("b/bands/fd", b"leftover", Put::Replace).unwrap();
        let damaged = contents(&store, "b/");
        assert_eq!(repair().outcome, Outcome::Repaired);
        assert!(contents(&store, "b/") == written, "{n}");
        let done = undo_target(&target).unwrap();
        assert_eq!((done.repairs, done.kept), (1, 1), "{done:?}");
        assert!(done.kept_because.unwrap().contains("changed since"));
        assert!(contents(&store, "b/") == damaged, "{n}");
        assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
        assert!(contents(&store, "b/") == damaged, "{n}");
        store.remove("b/bands/fd").unwrap();
    }
    assert_eq!(commit_target(&target).unwrap().repairs, 1);
    assert!(contents(&store, "b/") == written);
}

/// Changes after a repair are not mixed with the state before it; repairs are undone or committed
/// together.
#[test]
fn undo_is_refused_after_a_change() {
    let damaged = bundle(true);
    let repaired = || {
        let store = MemoryStore::default();
        copy_into(&store, &damaged);
        let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
        let done = repair_target(
            &target,
            &OpenOptions::default(),
            &chosen(Mode::Apply),
            &Silent,
        )
        .unwrap();
        assert_eq!(done.outcome, Outcome::Repaired);
        (store, target)
    };
    type Edit = fn(&MemoryStore);
    let edits: [Edit; 5] = [
        |store| drop(store.put("b/bands/12", b"new", Put::Replace)),
        |store| drop(store.remove("b/Info.bckup")),
        |store| {
            store
                .open("b/bands/0", Open::Write)
                .unwrap()
                .unwrap()
                .write_at(520, &[77])
                .unwrap()
        },
        // A driver that changes a volume counts its writes in the volume header.
        |store| {
            let band = store.open("b/bands/0", Open::Write).unwrap().unwrap();
            let bytes = band.read_vec(0, band.info().len as usize).unwrap();
            let header = (0..bytes.len())
                .step_by(512)
                .find(|at| bytes[*at..].starts_with(b"H+"))
                .unwrap() as u64;
            let count = u32::from_be_bytes(band.read_array(header + 68).unwrap());
            band.write_at(header + 68, &(count + 1).to_be_bytes())
                .unwrap();
        },
        |store| {
            store
                .open("b/bands/0", Open::Write)
                .unwrap()
                .unwrap()
                .set_len(4096, AfterDiscard::Zeros)
                .unwrap()
        },
    ];
    for edit in edits {
        let (store, target) = repaired();
        edit(&store);
        let changed = contents(&store, "");
        assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
        assert!(contents(&store, "") == changed);
    }
    // A second repair keeps the undo data of the first.
    let (store, target) = repaired();
    store.put("b/bands/fd", b"leftover", Put::Replace).unwrap();
    repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    // The leftover came between the two.
    let done = undo_target(&target).unwrap();
    assert_eq!((done.repairs, done.kept), (1, 1), "{done:?}");
    assert!(contents(&store, "b/")["b/bands/fd"] == b"leftover");
    store.remove("b/bands/fd").unwrap();
    assert_eq!(undo_target(&target).unwrap().repairs, 1);
    assert!(contents(&store, "b/") == damaged);
    let (store, target) = repaired();
    let now = contents(&store, "b/");
    assert_eq!(
        (
            commit_target(&target).unwrap().repairs,
            contents(&store, "b/") == now
        ),
        (1, true)
    );
    assert!(contents(&store, "b.undo/").is_empty());
    assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::NotFound);
}

/// Undo data of which any byte is wrong, or that another version wrote, is refused, and nothing is
/// changed.
#[test]
fn damaged_undo_data_is_refused() {
    let damaged = bundle(true);
    let store = MemoryStore::default();
    copy_into(&store, &damaged);
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    let repaired = contents(&store, "");
    let mut files = 0;
    for (name, bytes) in contents(&store, "b.undo/") {
        if name == "b.undo/1/applied" {
            assert!(bytes.is_empty());
            continue;
        }
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x20;
            store.put(&name, &wrong, Put::Replace).unwrap();
            let before = contents(&store, "");
            let error = undo_target(&target).unwrap_err();
            assert!(
                matches!(error.kind(), Kind::Corrupt),
                "{name} {at}: {error}"
            );
            assert!(contents(&store, "") == before, "{name} {at}");
        }
        let newer = String::from_utf8_lossy(&bytes).replace("bandsaw undo 4", "bandsaw undo 5");
        if newer.as_bytes() != bytes {
            store.put(&name, newer.as_bytes(), Put::Replace).unwrap();
            let error = undo_target(&target).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
        }
        store.put(&name, &bytes, Put::Replace).unwrap();
        files += 1;
    }
    assert!(files >= 4 && contents(&store, "") == repaired, "{files}");
    // Undo data of an older version has a log, and no state.
    let state = contents(&store, "b.undo/1/state");
    store.remove("b.undo/1/state").unwrap();
    store
        .put("b.undo/1/log", b"bandsaw undo 1\nend 0\n", Put::Replace)
        .unwrap();
    assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Unsupported);
    store
        .put("b.undo/1/log", &repaired["b.undo/1/log"], Put::Replace)
        .unwrap();
    copy_into(&store, &state);
    undo_target(&target).unwrap();
    assert!(contents(&store, "b/") == damaged);
}

/// Every kind of file, plain and encrypted: an undo restores every bit, and the undo data is as
/// protected as the image.
#[test]
fn every_container_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let passphrase = Secret::new(b"key".to_vec());
    let volume = fuzz::sample(false, 4096);
    let len = gpt::MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    for format in [Format::Udrw, Format::Udsp, Format::Asif, Format::Udsb] {
        // Key derivation is slow without optimization.
        let ways = if matches!(format, Format::Udrw | Format::Udsb) {
            &[false, true][..]
        } else {
            &[false]
        };
        for &is_encrypted in ways {
            let path = folder.path().join("image");
            let encryption = Encryption {
                iterations: Some(MIN_ITERATIONS),
                ..Encryption::new(passphrase.clone())
            };
            let encryption = is_encrypted.then_some(encryption);
            let options = open::CreateOptions {
                format,
                len,
                encryption,
                ..open::CreateOptions::default()
            };
            let image = open::create(&path, &options).unwrap();
            let range =
                gpt::create_single(&**image.disk(), 512, APPLE_HFS, Guids::derived("x")).unwrap();
            image.disk().write_at(range.start, &volume).unwrap();
            image.disk().write_at(512, &[9; 512]).unwrap();
            image.disk().flush().unwrap();
            drop(image);
            if format == Format::Udsp || format == Format::Asif {
                let mut file = fs::read(&path).unwrap();
                if !is_encrypted {
                    // Data after the last band or chunk would require a decision; zeros do not.
                    file.resize(file.len() + (2 << 20), 0);
                    fs::write(&path, file).unwrap();
                }
            }
            let files: Vec<PathBuf> = match format {
                Format::Udsb => ["Info.plist", "Info.bckup", "token", "bands/0"]
                    .map(|name| path.join(name))
                    .into(),
                _ => vec![path.clone()],
            };
            for file in files.iter().filter(|file| file.exists()) {
                fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
            }
            let read = || {
                files
                    .iter()
                    .map(|file| fs::read(file).ok())
                    .collect::<Vec<_>>()
            };
            let before = read();
            let options = OpenOptions {
                keys: Some(&passphrase),
                ..OpenOptions::default()
            };
            let done = repair(&path, &options, &chosen(Mode::Apply), &Silent).unwrap();
            assert_eq!(
                done.outcome,
                Outcome::Repaired,
                "{format} {is_encrypted}: {done:?}"
            );
            assert!(read() != before);
            let undo = done.undo.unwrap();
            assert_eq!(undo, repair::undo_folder(&path, None));
            for name in ["1/log", "1/data", "1/state", "1/applied"] {
                assert_eq!(
                    fs::metadata(undo.join(name)).unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{format}: {name}"
                );
            }
            assert_eq!(
                fs::metadata(&undo).unwrap().permissions().mode() & 0o777,
                0o700
            );
            let undone = repair::undo(&path, &options, &chosen(Mode::Apply)).unwrap();
            assert_eq!(undone.repairs, 1);
            assert!(
                read() == before && !undo.exists(),
                "{format} {is_encrypted}"
            );
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
        }
    }
}

/// Names that are not text have undo data of their own, to which files are copied.
#[test]
fn names_that_are_not_text_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = bundle(true);
    let paths: Vec<PathBuf> = [0xf1, 0xf2]
        .map(|byte| folder.path().join(OsStr::from_bytes(&[b'b', byte])))
        .into();
    let store = |path: &Path| Local::new(path);
    let strip = |(name, bytes): (&String, &Vec<u8>)| (name[2..].to_owned(), bytes.clone());
    let expected: BTreeMap<_, _> = damaged.iter().map(strip).collect();
    let options = OpenOptions::default();
    for path in &paths {
        copy_into(&store(path), &expected);
        let done = repair(path, &options, &chosen(Mode::Apply), &Silent).unwrap();
        assert_eq!(done.outcome, Outcome::Repaired);
        assert!(done.undo.unwrap().join("1/files/bands/ff").exists());
    }
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    for path in &paths {
        repair::undo(path, &options, &chosen(Mode::Apply)).unwrap();
        let mut now = contents(&store(path), "");
        now.remove("lock");
        assert!(now == expected, "{}", path.display());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A copy to the quarantine that was interrupted does not replace the file of which it is a part.
#[test]
fn an_interrupted_copy_to_the_quarantine_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (path, undo_dir) = (folder.path().join("b"), folder.path().join("kept"));
    fs::create_dir(&undo_dir).unwrap();
    let damaged = bundle(true);
    let strip = |(name, bytes): (&String, &Vec<u8>)| (name[2..].to_owned(), bytes.clone());
    let expected: BTreeMap<_, _> = damaged.iter().map(strip).collect();
    copy_into(&Local::new(&path), &expected);
    let options = OpenOptions::default();
    let chosen = Options {
        undo_dir: Some(&undo_dir),
        ..chosen(Mode::Apply)
    };
    repair(&path, &options, &chosen, &Silent).unwrap();
    // As if the band were still being copied.
    fs::remove_file(undo_dir.join("b.undo/1/applied")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    copy_into(&Local::new(&path), &expected);
    fs::write(undo_dir.join("b.undo/1/files/bands/ff"), [1; 300]).unwrap();
    repair::undo(&path, &options, &chosen).unwrap();
    let mut now = contents(&Local::new(&path), "");
    now.remove("lock");
    assert!(now == expected);
    assert_eq!(fs::read_dir(&undo_dir).unwrap().count(), 0);
}
