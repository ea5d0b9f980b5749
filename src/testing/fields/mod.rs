//! Tests of `repair` with a change of each field of each list, header, table and tree node header:
//! if it wrote the structure, every file is unchanged; if not, every file is unchanged once the
//! field has its old value again; and its writes can be undone exactly.

mod images;
mod layout;
mod structures;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::crypt::Secret;
use crate::open::OpenOptions;
use crate::ops::repair::{How, Options, Outcome, Repaired, Target, repair_target, undo_target};
use crate::progress::Silent;
use crate::store::Store;
use crate::testing::Random;
use crate::testing::contents::Contents;

use self::images::{FieldChange, Files, Image};

/// An image with one field changed, and the result of `repair`.
struct FieldCase<'a> {
    image: &'a Image,
    expected: &'a Contents,
    change: &'a FieldChange,
    keys: &'a Secret,
}

impl FieldCase<'_> {
    fn run(&self) -> Result<&'static str, String> {
        let mut damaged = self.image.files.clone();
        damaged.insert(self.change.file.clone(), self.change.bytes.clone());
        let store = self.image.store(&damaged);
        let found = self.repair(&store);
        let repaired = self.image.read(&store);
        let range = self.change.structure.clone();
        let now = repaired.get(&self.change.file).ok_or("the file is gone")?;
        if now.get(range.clone()) == self.change.bytes.get(range) {
            let mut restored = repaired.clone();
            restored.insert(self.change.file.clone(), self.restored(now));
            self.compare(&restored, "once the field is restored")?;
        } else {
            self.compare(&repaired, "after repair wrote it")?;
        }
        if repaired == damaged {
            return Ok(match found {
                Ok(repaired) if repaired.outcome == Outcome::Undecided => "undecided",
                Ok(repaired) if repaired.outcome == Outcome::LossRefused => "loss refused",
                Ok(_) => "left",
                Err(_) => "error",
            });
        }
        let target =
            Target::in_store(store.clone(), self.image.name).map_err(|error| error.to_string())?;
        undo_target(&target).map_err(|error| format!("cannot undo: {error}"))?;
        if self.image.read(&store) != damaged {
            return Err("undo leaves other bytes than there were".into());
        }
        Ok("repaired")
    }

    fn repair(&self, store: &Arc<dyn Store>) -> crate::Result<Repaired> {
        let target = Target::in_store(store.clone(), self.image.name)?;
        let options = OpenOptions {
            keys: Some(self.keys),
            ..OpenOptions::default()
        };
        let chosen = Options {
            how: How::Apply,
            ..Options::default()
        };
        repair_target(&target, &options, &chosen, &Silent)
    }

    /// Returns `bytes` with the old value of the changed field.
    fn restored(&self, bytes: &[u8]) -> Vec<u8> {
        let original = &self.image.files[&self.change.file];
        if self.image.lists.contains(&self.change.file) {
            return original.clone();
        }
        let mut bytes = bytes.to_vec();
        for range in &self.change.changed {
            if let Some(place) = bytes.get_mut(range.clone()) {
                place.copy_from_slice(&original[range.clone()]);
            }
        }
        bytes
    }

    fn compare(&self, files: &Files, when: &str) -> Result<(), String> {
        let found = self
            .image
            .contents(files, self.keys)
            .map_err(|error| format!("{when}: {error}"))?;
        for (path, expected) in self.expected {
            match found.get(path) {
                Some(found) if found == expected => {}
                Some(found) => {
                    return Err(format!("{when}: {path} has {found:?}, not {expected:?}"));
                }
                None => return Err(format!("{when}: {path} is gone")),
            }
        }
        if found.len() == self.expected.len() {
            Ok(())
        } else {
            Err(format!("{when}: there are more files than before"))
        }
    }
}

/// The results of all cases.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of cases by image and result: `repaired`, `left` and so on.
    pub counts: BTreeMap<(&'static str, &'static str), usize>,
    /// The cases that lost a file or could not be undone.
    pub failures: Vec<String>,
}

/// Number of cases with images whose keys take long to unwrap.
const ENCRYPTED_CASES: usize = 24;

/// Runs `cases` cases, with values derived from `seed`, on all cores. Images are created in
/// `scratch`. Only cases whose names contain `only` are run.
pub fn run(scratch: &Path, cases: usize, seed: u64, only: &str) -> Report {
    let images = images::all(scratch);
    let keys = &Secret::new(images::PASSPHRASE.into());
    let expected: Vec<_> = images
        .iter()
        .map(|image| image.contents(&image.files, keys).unwrap())
        .collect();
    assert!(
        expected
            .iter()
            .all(|contents| contents.len() >= images::FILES),
        "every file can be read"
    );
    let fields: Vec<_> = (0..images.len())
        .flat_map(|image| (0..images[image].fields()).map(move |field| (image, field)))
        .collect();
    let (next, encrypted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let report = Mutex::new(Report::default());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cases {
                        break;
                    }
                    let mut random = Random::new(seed << 32 | number as u64);
                    // Each field in turn, in an order that distributes the images over the run.
                    let (at, field) = fields[number.wrapping_mul(7919) % fields.len()];
                    let image = &images[at];
                    let which = random.within(0..24);
                    let Some(change) = image.change(field, which, random.number()) else {
                        continue;
                    };
                    if !format!("{}: {}", image.name, change.name).contains(only) {
                        continue;
                    }
                    if image.is_encrypted
                        && encrypted.fetch_add(1, Ordering::Relaxed) >= ENCRYPTED_CASES
                    {
                        continue;
                    }
                    let outcome = FieldCase {
                        image,
                        expected: &expected[at],
                        change: &change,
                        keys,
                    }
                    .run();
                    let mut report = report.lock().unwrap();
                    match outcome {
                        Ok(outcome) => {
                            *report.counts.entry((image.name, outcome)).or_default() += 1
                        }
                        Err(error) => report
                            .failures
                            .push(format!("{}: {}: {error}", image.name, change.name)),
                    }
                }
            });
        }
    });
    report.into_inner().unwrap()
}
