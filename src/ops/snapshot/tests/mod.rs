//! Snapshots of bundles in folders: their contents, their storage, and that other files are
//! unchanged.

mod power_cut;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{create, delete, list, restore};
use crate::Kind;
use crate::address::Address;
use crate::container::Format;
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use crate::open::{self, CreateOptions, NetworkOptions, OpenOptions};
use crate::progress::{Progress, Silent};
use crate::testing::{PowerCut, Random};

const MIB: u64 = 1 << 20;
const LEN: u64 = 8 * MIB + 512;

/// A bundle with data in bands 0 and 2, and an unrelated bundle beside it.
struct Scratch {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self {
            folder: tempfile::tempdir().unwrap(),
            bytes: Random::new(1).bytes(300_000),
        };
        let options = CreateOptions {
            format: Format::Udsb,
            len: LEN,
            band_size: Some(MIB),
            ..CreateOptions::default()
        };
        let image = open::create(&scratch.path(), &options).unwrap();
        image.disk().write_at(0, &scratch.bytes).unwrap();
        image.disk().write_at(2 * MIB, &scratch.bytes).unwrap();
        image.disk().flush().unwrap();
        scratch
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("Docs.sparsebundle")
    }

    fn snapshot(&self, name: &str) -> PathBuf {
        self.path().join(".bandsaw/snapshots").join(name)
    }

    fn create(&self, name: &str) -> crate::Result<()> {
        create(&self.path(), name, NetworkOptions::default(), &Silent)
    }

    fn restore(&self, name: &str) -> crate::Result<()> {
        restore(&self.path(), name, NetworkOptions::default(), &Silent)
    }

    fn names(&self) -> Vec<String> {
        list(&self.path(), NetworkOptions::default())
            .unwrap()
            .into_iter()
            .map(|snapshot| snapshot.name)
            .collect()
    }

    fn change(&self, change: impl FnOnce(&dyn BlockDevice)) {
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..raw()
        };
        let image = open::open(&self.path(), &options).unwrap();
        change(&**image.disk());
        image.disk().flush().unwrap();
    }
}

fn raw() -> OpenOptions<'static> {
    OpenOptions {
        image_format: Some(Format::Udsb),
        ..OpenOptions::default()
    }
}

fn read(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    open::open(path, &raw())
        .unwrap()
        .disk()
        .read_vec(offset, len)
        .unwrap()
}

#[test]
fn a_bundle_with_a_link_gets_no_snapshot() {
    let scratch = Scratch::new();
    let band = scratch.path().join("bands/2");
    let elsewhere = scratch.folder.path().join("elsewhere");
    fs::rename(&band, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &band).unwrap();
    let error = scratch.create("a").unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(!scratch.snapshot("a").exists());
}

#[test]
fn a_bundle_goes_back_to_what_it_was() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(
        scratch.path().join("bands/0"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    fs::write(
        scratch.path().join("com.apple.TimeMachine.MachineID.plist"),
        "of macOS",
    )
    .unwrap();
    scratch.create("first").unwrap();
    scratch.change(|disk| {
        disk.write_at(0, &[7; 512]).unwrap();
        disk.write_at(5 * MIB, &[8; 512]).unwrap();
        disk.discard(2 * MIB..3 * MIB, AfterDiscard::Zeros).unwrap();
    });
    // Each is a bundle that can be opened separately.
    assert_eq!(
        read(&scratch.snapshot("first"), 0, scratch.bytes.len()),
        scratch.bytes
    );
    scratch.create("second").unwrap();
    assert_eq!(scratch.create("second").unwrap_err().kind(), Kind::Conflict);
    scratch.restore("first").unwrap();
    for at in [0, 2 * MIB] {
        assert_eq!(
            read(&scratch.path(), at, scratch.bytes.len()),
            scratch.bytes
        );
    }
    assert_eq!(read(&scratch.path(), 5 * MIB, 512), [0; 512]);
    assert_eq!(
        fs::read(scratch.path().join("com.apple.TimeMachine.MachineID.plist")).unwrap(),
        b"of macOS"
    );
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(scratch.path()), mode(scratch.path().join("bands/0"))),
        (0o700, 0o600)
    );
    let mut names = scratch.names();
    names.sort();
    assert_eq!(names, ["first", "second"]);
    scratch.restore("second").unwrap();
    assert_eq!(read(&scratch.path(), 5 * MIB, 512), [8; 512]);
    assert_eq!(read(&scratch.path(), 2 * MIB, 512), [0; 512]);
    delete(&scratch.path(), "first", NetworkOptions::default()).unwrap();
    assert_eq!(
        (
            scratch.names(),
            scratch.restore("first").unwrap_err().kind()
        ),
        (vec!["second".to_owned()], Kind::NotFound)
    );
    assert_eq!(
        fs::read_dir(scratch.folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn a_snapshot_is_read_by_its_name() {
    let scratch = Scratch::new();
    scratch.create("a@12:30").unwrap();
    scratch.change(|disk| disk.write_at(0, &[7; 512]).unwrap());
    let bundle = scratch.path().to_str().unwrap().to_owned();
    let named = PathBuf::from(format!("{bundle}@a@12:30"));
    assert_eq!(read(&named, 0, 512), scratch.bytes[..512]);
    assert_eq!(read(&scratch.path(), 0, 512), [7; 512]);
    let address = Address::parse_on_host(format!("{bundle}@a@12:30:Docs@then:/x")).unwrap();
    assert_eq!(
        (address.image.as_path(), address.snapshot.as_deref()),
        (&*named, Some("then"))
    );
    let image = open::open(
        &named,
        &OpenOptions {
            image_format: None,
            ..raw()
        },
    )
    .unwrap();
    assert_eq!(
        image.warnings(),
        <[String; 0]>::default(),
        "its name is no bundle's, and need not be"
    );
    drop(image);
    let changing = OpenOptions {
        access: Access::ReadWrite,
        ..raw()
    };
    assert_eq!(
        open::open(&named, &changing).unwrap_err().kind(),
        Kind::ReadOnly
    );
    for missing in ["other", ".", "..", ""] {
        let error = open::open(Path::new(&format!("{bundle}@{missing}")), &raw()).unwrap_err();
        assert!(
            error.kind() == Kind::NotFound && error.to_string().contains("has no snapshot"),
            "{missing}: {error}"
        );
    }
    // A bundle with exactly this name takes precedence.
    fs::rename(scratch.path(), &named).unwrap();
    assert_eq!(read(&named, 0, 512), [7; 512]);
    fs::rename(&named, scratch.path()).unwrap();
}

#[test]
fn files_are_shared_among_snapshots_and_never_with_the_bundle() {
    let scratch = Scratch::new();
    scratch.create("first").unwrap();
    scratch.change(|disk| disk.write_at(2 * MIB, &[9; 512]).unwrap());
    scratch.create("second").unwrap();
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    for band in ["bands/0", "bands/2"] {
        let own = fs::metadata(scratch.path().join(band)).unwrap();
        assert_eq!(own.nlink(), 1, "what is changed in place has one name");
    }
    let of = |name: &str, band: &str| inode(scratch.snapshot(name).join(band));
    assert_ne!(
        of("first", "bands/2"),
        of("second", "bands/2"),
        "it was changed"
    );
    let linked = of("first", "bands/0") == of("second", "bands/0");
    let reflinks = crate::store::Local::new(scratch.path())
        .clone_of("bands/0", "clone")
        .unwrap();
    assert!(
        linked != reflinks,
        "either the host shares storage, or snapshots share files"
    );
    scratch.restore("first").unwrap();
    assert_eq!(
        fs::metadata(scratch.path().join("bands/0"))
            .unwrap()
            .nlink(),
        1
    );
    scratch.change(|disk| disk.write_at(0, &[1; 512]).unwrap());
    assert_eq!(
        read(&scratch.snapshot("first"), 0, 512),
        scratch.bytes[..512]
    );
    assert_eq!(
        read(&scratch.snapshot("second"), 0, 512),
        scratch.bytes[..512]
    );
    assert_eq!(read(&scratch.snapshot("second"), 2 * MIB, 512), [9; 512]);
}

/// Cancels at the nth check.
struct Stop(std::sync::atomic::AtomicU64);

impl Progress for Stop {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1
    }
}

#[test]
fn stopped_or_refused_work_changes_nothing() {
    let scratch = Scratch::new();
    scratch.create("kept").unwrap();
    scratch.change(|disk| disk.write_at(0, &[3; 512]).unwrap());
    for n in 1..6 {
        let stop = || Stop(n.into());
        let stopped =
            create(&scratch.path(), "new", NetworkOptions::default(), &stop()).unwrap_err();
        assert_eq!(stopped.kind(), Kind::Cancelled);
        let stopped =
            restore(&scratch.path(), "kept", NetworkOptions::default(), &stop()).unwrap_err();
        assert_eq!(stopped.kind(), Kind::Cancelled);
        assert_eq!(
            (scratch.names(), read(&scratch.path(), 0, 512)),
            (vec!["kept".to_owned()], vec![3; 512])
        );
        assert_eq!(
            fs::read_dir(scratch.path().join(".bandsaw/snapshots"))
                .unwrap()
                .count(),
            1
        );
        assert_eq!(fs::read_dir(scratch.folder.path()).unwrap().count(), 1);
    }
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..raw()
    };
    let used = open::open(&scratch.path(), &options).unwrap();
    assert_eq!(scratch.create("new").unwrap_err().kind(), Kind::Conflict);
    assert_eq!(scratch.restore("kept").unwrap_err().kind(), Kind::Conflict);
    drop(used);
    let read_by_others = open::open(&scratch.path(), &raw()).unwrap();
    scratch.create("beside readers").unwrap();
    assert_eq!(scratch.restore("kept").unwrap_err().kind(), Kind::Conflict);
    drop(read_by_others);
    for name in ["", ".", "..", ".hidden", "a/b", "nul\0", &"x".repeat(256)] {
        assert_eq!(
            scratch.create(name).unwrap_err().kind(),
            Kind::Invalid,
            "{name:?}"
        );
        assert_eq!(
            delete(&scratch.path(), name, NetworkOptions::default())
                .unwrap_err()
                .kind(),
            Kind::Invalid,
            "{name:?}"
        );
    }
    let file = scratch.folder.path().join("disk.img");
    fs::write(&file, [0; 4096]).unwrap();
    assert_eq!(
        create(&file, "new", NetworkOptions::default(), &Silent)
            .unwrap_err()
            .kind(),
        Kind::Unsupported
    );
}

/// A damaged snapshot does not replace a state that is in order.
#[test]
fn a_damaged_snapshot_is_not_restored_over_a_sound_state() {
    let scratch = Scratch::new();
    scratch.create("a").unwrap();
    let lists = |folder: &Path, bytes: &[u8]| {
        for list in ["Info.plist", "Info.bckup"] {
            fs::write(folder.join(list), bytes).unwrap();
        }
    };
    let whole = fs::read(scratch.snapshot("a").join("Info.plist")).unwrap();
    lists(&scratch.snapshot("a"), b"damaged");
    let error = scratch.restore("a").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    let image = open::open(&scratch.path(), &OpenOptions::default()).unwrap();
    let read = image.disk().read_vec(0, scratch.bytes.len()).unwrap();
    assert!(read == scratch.bytes);
    drop(image);
    // One in order replaces a damaged state.
    lists(&scratch.snapshot("a"), &whole);
    fs::write(scratch.path().join("Info.bckup"), b"damaged").unwrap();
    scratch.restore("a").unwrap();
}
