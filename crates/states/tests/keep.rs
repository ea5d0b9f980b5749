//! Making states.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bandsaw::Kind;
use bandsaw::container::sparsebundle;
use bandsaw::progress::Silent;
use bandsaw::store::{Local, Lock, Store};
use bandsaw_states::{Condition, KeepOptions, Shelf, Soundness, keep};

use crate::common::{Fixture, contents, files, options, sum};

#[test]
fn unchanged_bands_are_shared_among_states_alone() {
    let mut fixture = Fixture::new(1);
    let first = fixture.keep();
    fixture.write_band(3);
    let second = fixture.keep();
    let inode = |id: &str, name: &str| fs::metadata(fixture.state(id).join(name)).unwrap().ino();
    assert_eq!(inode(&first.id, "bands/2"), inode(&second.id, "bands/2"));
    assert_ne!(inode(&first.id, "bands/3"), inode(&second.id, "bands/3"));
    assert_eq!(second.manifest.copied, crate::common::BAND as u64);
    let live: Vec<u64> = fixture.files().values().map(|file| file.2).collect();
    for id in [&first.id, &second.id] {
        let state = files(&fixture.state(id));
        assert!(state.values().all(|file| !live.contains(&file.2)));
    }
    assert!(contents(&files(&fixture.state(&second.id))) == contents(&fixture.files()));
    assert!(
        fixture
            .files()
            .keys()
            .all(|name| { fs::metadata(fixture.path().join(name)).unwrap().nlink() == 1 })
    );
}

#[test]
fn another_program_that_overwrites_bands_in_place_changes_no_state() {
    let mut fixture = Fixture::new(2);
    let mut sums = Vec::new();
    for band in 0..4 {
        fixture.write_band(band);
        let kept = fixture.keep();
        sums.push((sum(&fixture.state(&kept.id)), kept.id));
    }
    for name in fixture.files().keys() {
        let to = format!("of={}", fixture.path().join(name).display());
        let args = ["if=/dev/urandom", &to, "conv=notrunc", "bs=512", "count=1"];
        let dd = Command::new("dd").args(args).output().unwrap();
        assert!(dd.status.success());
    }
    for (before, id) in sums {
        assert_eq!(sum(&fixture.state(&id)), before);
    }
}

#[test]
fn the_first_whole_copy_is_asked_for() {
    let fixture = Fixture::new(3);
    let (bundle, shelf) = fixture.open();
    let refusing = KeepOptions {
        whole_copy: false,
        check: None,
    };
    let made = keep(&bundle, &shelf, &refusing, &Silent);
    match made {
        // A file system with reflinks copies nothing.
        Ok(kept) => assert_eq!(kept.manifest.check, Soundness::Unchecked),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Undecided);
            assert!(shelf.list().unwrap().is_empty());
        }
    }
}

#[test]
fn a_bundle_that_is_in_use_or_changes_is_not_kept() {
    let mut fixture = Fixture::new(4);
    let lock = Local::new(fixture.path());
    let guard = lock.lock("lock", Lock::Exclusive).unwrap();
    assert_eq!(
        fixture.keep_as(Soundness::Sound).unwrap_err().kind(),
        Kind::Conflict
    );
    drop(guard);
    fixture.keep();
    let bytes = fixture.random.bytes(100);
    let (bundle, shelf) = fixture.open();
    let band = fixture.path().join("bands/20");
    // The files are listed again before the check, so the change must come earlier: while they are
    // copied.
    let changing = ChangesOnce(&|| fs::write(&band, &bytes).unwrap(), Default::default());
    let made = keep(
        &bundle,
        &shelf,
        &options(&|_| Ok(Soundness::Sound)),
        &changing,
    );
    assert_eq!(made.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(shelf.list().unwrap().len(), 1);
    let left = fs::read_dir(shelf.folder()).unwrap().count();
    assert_eq!(left, 2, "one state and the lock");
}

/// Does something when a stage begins, once.
pub(crate) struct ChangesOnce<'a>(
    pub(crate) &'a (dyn Fn() + Sync),
    pub(crate) std::sync::atomic::AtomicBool,
);

impl bandsaw::progress::Progress for ChangesOnce<'_> {
    fn stage(&self, name: &str, _total: u64) {
        if matches!(name, "keep" | "copy")
            && !self.1.swap(true, std::sync::atomic::Ordering::SeqCst)
        {
            (self.0)();
        }
    }
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

#[test]
fn a_state_is_never_opened_for_changes() {
    let fixture = Fixture::new(5);
    let kept = fixture.keep();
    let state = fixture.state(&kept.id);
    let store = Local::new(&state);
    assert!(sparsebundle::is_state(&store).unwrap());
    assert!(!sparsebundle::is_state(&Local::new(fixture.path())).unwrap());
    let refused = [
        sparsebundle::lock_exclusive(&store).err(),
        sparsebundle::locks(&store).err(),
        bandsaw_states::BundleFolder::open(&state).err(),
    ];
    for error in refused {
        assert_eq!(error.unwrap().kind(), Kind::ReadOnly);
    }
    let options = bandsaw::open::OpenOptions {
        access: bandsaw::device::Access::ReadWrite,
        ..Default::default()
    };
    let opened = bandsaw::open::open(&state, &options);
    assert_eq!(opened.unwrap_err().kind(), Kind::ReadOnly);
    assert!(!state.join("lock").exists());
    bandsaw::open::open(&state, &Default::default()).unwrap();
}

#[test]
fn states_that_are_not_whole_are_not_counted() {
    let mut fixture = Fixture::new(6);
    let first = fixture.keep();
    fixture.write_band(1);
    let second = fixture.keep();
    let (_, shelf) = fixture.open();
    let condition = |id: &str| {
        let states = shelf.list().unwrap();
        states
            .into_iter()
            .find(|state| state.id == id)
            .unwrap()
            .condition
    };
    // A band is missing: the next state shares nothing with this one.
    fs::rename(
        fixture.state(&second.id).join("bands/2"),
        fixture.scratch.path().join("away"),
    )
    .unwrap();
    assert!(matches!(condition(&second.id), Condition::Incomplete(_)));
    let third = fixture.keep();
    assert!(third.manifest.files.contains_key("bands/2"));
    assert!(fixture.state(&third.id).join("bands/2").exists());
    // One that was changed with its time.
    let band = fixture.state(&third.id).join("bands/1");
    fs::write(&band, b"short").unwrap();
    assert!(matches!(condition(&third.id), Condition::Incomplete(_)));
    // A list with one number changed.
    let list = fixture.state(&first.id).join(sparsebundle::STATE);
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("\"sequence\":1", "\"sequence\":9")).unwrap();
    assert!(matches!(condition(&first.id), Condition::Incomplete(_)));
    // Another version of the format.
    fs::write(&list, text.replace("\"format\":1", "\"format\":2")).unwrap();
    assert!(matches!(condition(&first.id), Condition::OtherFormat(2)));
    assert_eq!(
        fixture.roll_back(Some(&first.id)).unwrap_err().kind(),
        Kind::Unsupported
    );
    fs::remove_file(&list).unwrap();
    assert!(matches!(condition(&first.id), Condition::Incomplete(_)));
    assert_eq!(fixture.roll_back(None).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn rot_is_not_shared_if_the_time_or_size_tells() {
    let fixture = Fixture::new(7);
    let first = fixture.keep();
    let band = fixture.state(&first.id).join("bands/4");
    let modified = fs::metadata(&band).unwrap().modified().unwrap();
    fs::write(&band, b"rot").unwrap();
    File::options()
        .write(true)
        .open(&band)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    let second = fixture.keep();
    assert!(contents(&files(&fixture.state(&second.id))) == contents(&fixture.files()));
}

#[test]
fn a_kill_at_any_moment_leaves_the_earlier_states() {
    let mut fixture = Fixture::new(8);
    let first = fixture.keep();
    let before = sum(&fixture.state(&first.id));
    fixture.write_band(0);
    fixture.write_band(5);
    let live = fixture.files();
    let mut kills = 0;
    while fixture.killed("keep", kills + 1) {
        kills += 1;
        let (_, shelf) = fixture.open();
        assert_eq!(shelf.list().unwrap().len(), 1, "after {kills} checks");
        assert_eq!(sum(&fixture.state(&first.id)), before);
        assert!(fixture.files() == live);
    }
    assert!(kills > 10, "{kills}");
    let (_, shelf) = fixture.open();
    let states = shelf.list().unwrap();
    assert_eq!(states.len(), 2);
    assert!(contents(&files(&fixture.state(&states[1].id))) == contents(&live));
    // The next one removes what killed processes left.
    fixture.keep();
    let hidden = fs::read_dir(shelf.folder()).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with('.')
    });
    assert_eq!(hidden.count(), 0);
}

#[test]
fn links_out_of_the_bundle_are_refused() {
    let fixture = Fixture::new(9);
    let bands = fixture.path().join("bands");
    let away = fixture.scratch.path().join("away");
    fs::rename(&bands, &away).unwrap();
    std::os::unix::fs::symlink(&away, &bands).unwrap();
    let opened = bandsaw_states::BundleFolder::open(&fixture.path());
    assert_eq!(opened.unwrap_err().kind(), Kind::Unsupported);
    fs::remove_file(&bands).unwrap();
    fs::rename(&away, &bands).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", bands.join("9")).unwrap();
    assert_eq!(
        fixture.keep_as(Soundness::Sound).unwrap_err().kind(),
        Kind::Unsupported
    );
}

#[test]
fn states_lie_in_another_folder_as_well() {
    let fixture = Fixture::new(10);
    let (bundle, _) = fixture.open();
    let other = fixture.scratch.path().join("other");
    let shelf = Shelf::of(&bundle, Some(&other)).unwrap();
    let kept = keep(
        &bundle,
        &shelf,
        &options(&|_| Ok(Soundness::Sound)),
        &Silent,
    )
    .unwrap();
    let state = other.join("b.sparsebundle").join(&kept.id);
    assert!(contents(&files(&state)) == contents(&fixture.files()));
    // The folder that holds the bundle itself would have the states in the bundle.
    let within = Shelf::of(&bundle, Some(fixture.scratch.path()));
    assert_eq!(within.unwrap_err().kind(), Kind::Invalid);
}
