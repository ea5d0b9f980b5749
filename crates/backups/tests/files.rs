//! Lists, and the files of every date.

use bandsaw::fs::{FileSystem, FileSystemExt};
use bandsaw_backups::{BackupState, Merged};

use crate::common::backupd::{History, MACHINE, OFFSET, VOLUME};
use crate::common::{both, objects};

#[test]
fn every_date_has_the_files_of_the_mac() {
    let history = History::new(1, 24, 40);
    for (kind, backups) in both(&history) {
        assert_eq!(
            backups.problems().len(),
            0,
            "{kind}: {:?}",
            backups.problems()
        );
        assert_eq!(backups.notes(), [""; 0], "{kind}");
        assert_eq!(backups.machines().len(), 1, "{kind}");
        let complete = backups
            .all()
            .iter()
            .filter(|one| one.state == BackupState::Complete);
        assert_eq!(complete.count(), history.backups.len(), "{kind}");
        assert_eq!(backups.all().len(), history.backups.len() + 1, "{kind}");
        for (number, (one, truth)) in backups.all().iter().zip(&history.backups).enumerate() {
            assert_eq!(one.date.0, truth.wall, "{kind}");
            assert!(one.name.contains(&truth.date), "{kind}: {}", one.name);
            assert_eq!(one.copied, Some(truth.copied), "{kind}: {}", truth.date);
            let completed = one.completed.unwrap().seconds;
            assert_eq!(completed, truth.wall - OFFSET, "{kind}: {}", truth.date);
            let open = backups.open(number).unwrap();
            let volume = open.resolve(VOLUME).unwrap();
            let found = objects(&*open.fs, volume.attributes.id);
            assert_eq!(found, truth.objects, "{kind}: {}", truth.date);
            // The path in the volume leads to the same.
            let again = open.fs.resolve(&open.path_of(&volume)).unwrap();
            assert_eq!(again.id, volume.attributes.id, "{kind}");
        }
        let last = backups.all().last().unwrap();
        assert_ne!(last.state, BackupState::Complete, "{kind}");
        assert_eq!(backups.latest(), Some(history.backups.len() - 1), "{kind}");
    }
    let [(_, hfs), _] = both(&history);
    assert_eq!(hfs.machines(), [MACHINE]);
}

#[test]
fn the_name_of_the_only_volume_may_be_left_out() {
    let history = History::new(2, 2, 10);
    let path = history.backups[1].objects.keys().last().unwrap();
    for (kind, backups) in both(&history) {
        let open = backups.open(1).unwrap();
        let long = open.resolve(&format!("/{VOLUME}{path}")).unwrap();
        let short = open.resolve(path).unwrap();
        assert_eq!(
            (long.path, long.attributes),
            (short.path, short.attributes),
            "{kind}"
        );
        assert!(open.find("/absent").unwrap().is_none(), "{kind}");
        assert!(
            open.find(&format!("{path}/below")).unwrap().is_none(),
            "{kind}"
        );
    }
}

#[test]
fn the_merged_volume_has_a_folder_for_each_date() {
    let history = History::new(3, 20, 20);
    for (kind, backups) in both(&history) {
        let merged = Merged::new(backups).unwrap();
        let names = merged.entries(merged.root()).unwrap();
        assert_eq!(names.len(), history.backups.len() + 1, "{kind}");
        let mut ids: Vec<_> = names.iter().map(|entry| entry.attributes.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), names.len(), "{kind}");
        for truth in &history.backups {
            let volume = merged
                .resolve(&format!("/{}/{VOLUME}", truth.date))
                .unwrap();
            assert_eq!(objects(&merged, volume.id), truth.objects, "{kind}");
            assert_eq!(merged.attributes(volume.id).unwrap(), volume, "{kind}");
        }
        assert!(
            merged.lookup(merged.root(), "absent").unwrap().is_none(),
            "{kind}"
        );
    }
}
