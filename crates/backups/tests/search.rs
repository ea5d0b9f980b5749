//! Versions, names and differences.

use std::collections::BTreeMap;

use bandsaw::progress::Silent;
use bandsaw_backups::{DifferenceKind, Glob, diff, find, versions};

use crate::common::backupd::{History, Item, VOLUME};
use crate::common::both;

#[test]
fn versions_are_those_of_the_truth() {
    let history = History::new(4, 30, 25);
    for (kind, backups) in both(&history) {
        for path in history.paths() {
            let is_file = |item: &Item| matches!(item, Item::File(..));
            let items = history
                .backups
                .iter()
                .filter_map(|one| one.objects.get(&path));
            if !items.clone().all(is_file) {
                continue;
            }
            let found = versions(&backups, &path, &Silent).unwrap();
            let runs: Vec<_> = found
                .versions
                .iter()
                .map(|one| (one.backups[0], *one.backups.last().unwrap()))
                .collect();
            assert_eq!(runs, history.versions(&path), "{kind}: {path}");
            let count: usize = found.versions.iter().map(|one| one.backups.len()).sum();
            assert_eq!(count, items.count(), "{kind}: {path}");
            assert_eq!(
                found.absent.len() + count,
                backups.all().len(),
                "{kind}: {path}"
            );
            assert!(found.unread.is_empty(), "{kind}");
        }
    }
}

#[test]
fn names_are_found_on_every_date() {
    let history = History::new(5, 30, 25);
    for pattern in ["*.pages", "folder *", "*", "renamed [0-5]*"] {
        let glob = Glob::new(pattern, false);
        let mut truth: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
        for (number, backup) in history.backups.iter().enumerate() {
            for path in backup.objects.keys() {
                if glob.matches(path.rsplit('/').next().unwrap()) {
                    let path = format!("/{VOLUME}{path}");
                    let found = truth.entry(path).or_insert((number, number, 0));
                    *found = (found.0, number, found.2 + 1);
                }
            }
        }
        for (kind, backups) in both(&history) {
            let found = find(&backups, &glob, &Silent).unwrap();
            let prefix = format!("/{VOLUME}/");
            let found = found
                .found
                .into_iter()
                .filter(|one| one.path.starts_with(&prefix));
            let found: BTreeMap<_, _> = found
                .map(|one| (one.path, (one.first, one.last, one.count)))
                .collect();
            assert_eq!(found, truth, "{kind}: {pattern}");
        }
    }
}

#[test]
fn differences_are_those_of_the_truth() {
    let history = History::new(6, 16, 30);
    for (kind, backups) in both(&history) {
        for (old, new) in [(0, 1), (3, 9), (0, 15), (9, 3), (7, 7)] {
            let (a, b) = (&history.backups[old].objects, &history.backups[new].objects);
            let mut truth = BTreeMap::new();
            let is_below = |path: &str,
                            of: &BTreeMap<String, Item>,
                            other: &BTreeMap<String, Item>| {
                let parent = path.rsplit_once('/').unwrap().0;
                // The uppermost folder stands for all below it.
                !parent.is_empty() && of.contains_key(parent) && other.get(parent) != of.get(parent)
            };
            for (path, item) in a {
                match b.get(path) {
                    None if !is_below(path, a, b) => {
                        truth.insert(path.clone(), DifferenceKind::Removed);
                    }
                    Some(other) if other != item => {
                        truth.insert(path.clone(), DifferenceKind::Changed);
                    }
                    _ => {}
                }
            }
            for path in b.keys() {
                if !a.contains_key(path) && !is_below(path, b, a) {
                    truth.insert(path.clone(), DifferenceKind::Added);
                }
            }
            let (one, other) = (backups.open(old).unwrap(), backups.open(new).unwrap());
            let found = diff(&one, &other, "/", &Silent).unwrap();
            assert!(found.problems.is_empty(), "{kind}");
            let prefix = format!("/{VOLUME}");
            let found: BTreeMap<_, _> = found
                .list
                .into_iter()
                .map(|one| (one.path.strip_prefix(&prefix).unwrap().to_owned(), one.kind))
                .collect();
            assert_eq!(found, truth, "{kind}: {old} {new}");
        }
    }
}

#[test]
fn years_of_backups_are_searched() {
    let history = History::new(14, 500, 20);
    let found = crate::common::backups(crate::common::backupd::hfs_plus(&history, |_, _| {}));
    assert_eq!((found.all().len(), found.problems().len()), (501, 0));
    let paths = history.paths();
    let path = paths
        .iter()
        .max_by_key(|path| history.versions(path).len())
        .unwrap();
    let versions = versions(&found, path, &Silent).unwrap();
    assert_eq!(versions.versions.len(), history.versions(path).len());
}
