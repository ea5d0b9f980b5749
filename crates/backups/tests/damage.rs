//! Damaged histories and names, clocks that ran backwards, several machines, and hostile lists.

use std::fs;

use bandsaw::Kind;
use bandsaw::fs::source::{SourceKind, SourceNode, Stream};
use bandsaw::fs::{FileSystemMutExt, NewKind, NewNode, Timestamp};
use bandsaw::progress::Silent;
use bandsaw_backups::{Backups, BundleLists, Glob, find};

use crate::common::backupd::{self, Backup, History, MACHINE, OFFSET, VOLUME};
use crate::common::backups;

const MOMENT: Timestamp = Timestamp::from_seconds(1_770_000_000);

fn folder(parent: u32, name: &str) -> SourceNode {
    SourceNode::made(parent, name, SourceKind::Folder, 0o755, MOMENT)
}

#[test]
fn unreadable_objects_are_named_and_others_are_read() {
    let history = History::new(8, 6, 10);
    let bytes = backupd::hfs_plus(&history, |nodes, machine| {
        nodes.push(folder(machine, "2026-02-30-000000"));
        nodes.push(folder(machine, "not a date"));
        nodes.push(folder(machine, ".hidden"));
        nodes.push(SourceNode::made(
            machine,
            "a file",
            SourceKind::File(Stream::empty()),
            0o644,
            MOMENT,
        ));
        let mut odd = folder(machine, "2027-01-01-000000");
        let value = Stream::Bytes(b"many\0".to_vec().into());
        odd.xattrs
            .push(("com.apple.backupd.SnapshotTotalBytesCopied".into(), value));
        nodes.push(odd);
    });
    let found = backups(bytes);
    assert_eq!(found.all().len(), 8);
    let problems: Vec<_> = found.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 3, "{problems:?}");
    for part in ["2026-02-30-000000", "not a date", "2027-01-01-000000"] {
        assert!(
            problems.iter().any(|one| one.contains(part)),
            "{problems:?}"
        );
    }
    assert!(
        found
            .problems()
            .iter()
            .all(|one| one.kind() == Kind::Corrupt)
    );
    // A newer date, but not what the link says.
    assert_eq!(found.latest(), Some(5));
    assert!(
        found.notes()[0].contains("2027-01-01"),
        "{:?}",
        found.notes()
    );
}

#[test]
fn a_clock_that_ran_backwards_is_reported() {
    let mut history = History::new(9, 4, 10);
    let wrong = history.backups[0].wall - 86_400 * 400;
    history.backups[2] = Backup {
        date: backupd::name_of(wrong),
        wall: wrong,
        ..history.backups[2].clone()
    };
    history.backups.truncate(3);
    let found = backups(backupd::apfs(&history, |_, _| {}));
    assert!(found.problems().is_empty(), "{:?}", found.problems());
    assert!(
        found.notes()[0].contains("ran backwards"),
        "{:?}",
        found.notes()
    );
    // The latest is the one that was made last, the first by date.
    let latest = found.latest().unwrap();
    assert_eq!((latest, found.all()[latest].date.0), (0, wrong));
}

#[test]
fn several_machines_are_distinguished() {
    let history = History::new(10, 3, 5);
    let bytes = backupd::hfs_plus(&history, |nodes, machine| {
        let store = nodes[machine as usize].parent;
        nodes.push(folder(store, "Ben's Mac"));
        let other = nodes.len() as u32 - 1;
        nodes.push(folder(other, &history.backups[1].date));
        nodes.push(folder(other + 1, VOLUME));
    });
    let mut found = backups(bytes);
    assert_eq!(found.machines(), [MACHINE, "Ben's Mac"]);
    let now = Timestamp::from_seconds(history.backups[2].wall - OFFSET);
    let select = |found: &Backups, text: &str| found.select(text, now).map_err(|one| one.kind());
    for text in ["latest", &history.backups[1].date] {
        assert_eq!(select(&found, text), Err(Kind::Invalid), "{text}");
    }
    assert_eq!(select(&found, &history.backups[0].date), Ok(0));
    assert!(
        found
            .check_one_machine()
            .unwrap_err()
            .to_string()
            .contains("Ben's Mac")
    );
    assert_eq!(
        found.keep_machine("Eve's Mac").unwrap_err().kind(),
        Kind::NotFound
    );
    found.keep_machine("Ben's Mac").unwrap();
    assert_eq!(select(&found, "latest"), Ok(0));
    assert_eq!(found.all().len(), 1);
}

#[test]
fn manifests_that_are_no_lists_leave_the_backups_readable() {
    let history = History::new(11, 3, 5);
    for manifest in [
        "",
        "nonsense",
        "<plist><dict/></plist>",
        "<plist><array><true/><true/></array></plist>",
    ] {
        let bytes = backupd::apfs(&history, |volume, root| {
            let file = volume
                .lookup(root, "backup_manifest.plist")
                .unwrap()
                .unwrap();
            volume.write_all(file.id, manifest.as_bytes()).unwrap();
            volume
                .create(
                    root,
                    "2026-02-30-000000.previous",
                    &NewNode::new(NewKind::Folder),
                )
                .unwrap();
        });
        let found = backups(bytes);
        assert_eq!(found.all().len(), 4, "{manifest}");
        assert_eq!(
            found.problems().len(),
            1,
            "{manifest}: {:?}",
            found.problems()
        );
        assert!(found.all().iter().all(|one| one.copied.is_none()));
    }
}

/// A folder that contains a link to itself: no search loops.
#[test]
fn a_folder_in_itself_ends_a_search() {
    let history = History::new(12, 6, 10);
    let mut bytes = backupd::hfs_plus(&history, |_, _| {});
    // Every link of a folder leads to the folder of the first.
    let mut target = None;
    for at in (32..bytes.len() - 32).step_by(2) {
        if bytes[at..at + 8] == *b"fdrpMACS" {
            let number = bytes[at - 4..at].to_vec();
            let number = target.get_or_insert(number).clone();
            bytes[at - 4..at].copy_from_slice(&number);
        }
    }
    assert!(target.is_some());
    let found = backups(bytes);
    let names = find(&found, &Glob::new("*", false), &Silent).unwrap();
    assert!(!names.found.is_empty());
    for number in 0..found.all().len() {
        let (one, other) = (found.open(0).unwrap(), found.open(number).unwrap());
        let _ = bandsaw_backups::diff(&one, &other, "/", &Silent);
    }
}

#[test]
fn lists_of_a_bundle_are_read_within_bounds() {
    let history = History::new(13, 3, 5);
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        fs::write(
            scratch
                .path()
                .join(format!("com.apple.TimeMachine.{name}.plist")),
            text,
        )
        .unwrap();
    };
    let lists = BundleLists::read(scratch.path());
    assert!(lists.problems.is_empty() && lists.history.is_empty());
    write("SnapshotHistory", history.list().as_bytes());
    write(
        "MachineID",
        backupd::plist(
            "<dict><key>VerificationState</key><integer>2</integer>\
             <key>VerificationDate</key><date>2026-02-01T10:00:00Z</date>\
             <key>com.apple.backupd.HostUUID</key><string>X</string></dict>",
        )
        .as_bytes(),
    );
    let lists = BundleLists::read(scratch.path());
    assert!(lists.problems.is_empty(), "{:?}", lists.problems);
    assert_eq!(lists.history.len(), 3);
    let last = history.backups[2].wall - OFFSET;
    assert_eq!(lists.last_backup(), Some(Timestamp::from_seconds(last)));
    assert_eq!(lists.verification_state, Some(2));
    assert_eq!(lists.host_uuid.as_deref(), Some("X"));
    // One entry that cannot be read does not hide the others.
    let broken = history
        .list()
        .replacen("<dict><key>com.apple", "<true/><dict><key>com.apple", 1);
    write("SnapshotHistory", broken.as_bytes());
    let lists = BundleLists::read(scratch.path());
    assert_eq!((lists.history.len(), lists.problems.len()), (3, 1));
    let deep = format!("<plist>{}</plist>", "<array>".repeat(100_000));
    for hostile in [
        b"".as_slice(),
        b"bplist00",
        deep.as_bytes(),
        b"<plist><array/></plist>",
    ] {
        write("SnapshotHistory", hostile);
        write("Results", hostile);
        let lists = BundleLists::read(scratch.path());
        assert!(lists.history.is_empty());
        assert_eq!(lists.problems.len(), 2);
        assert_eq!(lists.verification_state, Some(2));
    }
}
