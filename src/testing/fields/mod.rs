//! Tests of `repair` with a change of each field of each list, header, table and tree node header:
//! if it wrote the structure, every file is unchanged; if not, every file is unchanged once the
//! field has its old value again; and its writes can be undone exactly.

mod images;
mod layout;
mod structures;
mod verbs;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::crypt::Secret;
use crate::open::OpenOptions;
use crate::ops::repair::{Mode, Options, Outcome, Repaired, Target, repair_target, undo_target};
use crate::progress::Silent;
use crate::store::Store;
use crate::sync::Mutex;
use crate::testing::Random;
use crate::testing::contents::Contents;

use self::images::{FieldChange, Files, Image};

pub use self::images::{PASSPHRASE, file};
pub use self::verbs::{VerbCounts, VerbReport, run_verbs};

/// Small images of every kind, with every field of each.
#[derive(Debug)]
pub struct Images {
    images: Vec<Image>,
    /// The contents of each image.
    expected: Vec<Contents>,
    keys: Secret,
    fields: Vec<(usize, usize)>,
}

impl Images {
    /// Creates the images in the folder `scratch`.
    pub fn new(scratch: &Path) -> Self {
        let images = images::all(scratch);
        let keys = Secret::new(PASSPHRASE.into());
        let expected: Vec<_> = images
            .iter()
            .map(|image| image.contents(&image.files, &keys).unwrap())
            .collect();
        assert!(
            expected
                .iter()
                .all(|contents| contents.len() >= images::FILES),
            "every file can be read"
        );
        let fields = (0..images.len())
            .flat_map(|image| (0..images[image].fields()).map(move |field| (image, field)))
            .collect();
        Self {
            images,
            expected,
            keys,
            fields,
        }
    }

    /// Returns every image without a change.
    pub fn unchanged(&self) -> impl Iterator<Item = ImageCase<'_>> {
        (0..self.images.len()).map(|at| self.case(at, None))
    }

    /// Returns case `number`: an image with one field changed, to a value derived from `seed`;
    /// `None` if that changes nothing. Each field is used in turn, in an order that distributes the
    /// images over a run.
    pub fn changed(&self, number: usize, seed: u64) -> Option<ImageCase<'_>> {
        let mut random = Random::new(seed << 32 | number as u64);
        let (at, field) = self.fields[number.wrapping_mul(7919) % self.fields.len()];
        let which = random.within(0..24);
        let change = self.images[at].change(field, which, random.number())?;
        Some(self.case(at, Some(change)))
    }

    /// Returns the image of this name with its field `number`, counted around, changed to a value
    /// derived from `seed`; `None` if that changes nothing, or if there is no such image or field.
    pub fn changed_in(&self, image: &str, number: usize, seed: u64) -> Option<ImageCase<'_>> {
        let mut random = Random::new(seed << 32 | number as u64);
        let at = self.images.iter().position(|one| one.name == image)?;
        let field = number.checked_rem(self.images[at].fields())?;
        let which = random.within(0..24);
        let change = self.images[at].change(field, which, random.number())?;
        Some(self.case(at, Some(change)))
    }

    fn case(&self, at: usize, change: Option<FieldChange>) -> ImageCase<'_> {
        ImageCase {
            image: &self.images[at],
            expected: &self.expected[at],
            keys: &self.keys,
            change,
        }
    }
}

/// An image, perhaps with one field changed.
#[derive(Debug)]
pub struct ImageCase<'a> {
    image: &'a Image,
    expected: &'a Contents,
    keys: &'a Secret,
    change: Option<FieldChange>,
}

impl ImageCase<'_> {
    /// Returns the file name of the image.
    pub fn image(&self) -> &'static str {
        self.image.name
    }

    /// Returns true if the image has a passphrase, which is [`PASSPHRASE`].
    pub fn is_encrypted(&self) -> bool {
        self.image.is_encrypted
    }

    /// Returns the image and the change.
    pub fn name(&self) -> String {
        match &self.change {
            None => self.image.name.to_owned(),
            Some(change) => format!("{}: {}", self.image.name, change.name),
        }
    }

    /// Writes the image to `path`, whose folder is created.
    pub fn write(&self, path: &Path) {
        images::write(path, &self.damaged());
    }

    /// Compares every file of the image at `path`, which a verb has changed or refused, but those at
    /// the paths `but`. If the field was not written since, it gets its old value before, which may
    /// contradict what else was written; the image at `path` stays as it is.
    pub fn compare(&self, path: &Path, but: &[String]) -> Result<(), String> {
        self.compare_files(&images::read(path), but).map(drop)
    }

    fn damaged(&self) -> Files {
        let mut files = self.image.files.clone();
        if let Some(change) = &self.change {
            files.insert(change.file.clone(), change.bytes.clone());
        }
        files
    }

    /// Compares like [`compare`](Self::compare); returns the number of files.
    fn compare_files(&self, files: &Files, but: &[String]) -> Result<usize, String> {
        let Some(change) = &self.change else {
            return self.compare_contents(files, but, "now");
        };
        let now = files
            .get(&change.file)
            .ok_or_else(|| format!("{} is gone", change.file))?;
        let is_written =
            |range: &Range<usize>| now.get(range.clone()) != change.bytes.get(range.clone());
        if is_written(&change.unit) {
            return self.compare_contents(files, but, "after the field was written");
        }
        let mut restored = files.clone();
        restored.insert(change.file.clone(), self.restored(change, now));
        let compared = self.compare_contents(&restored, but, "once the field is restored");
        compared.or_else(|restored| {
            let now = self.compare_contents(files, but, "after the structure was written");
            match now {
                // The verb has written, elsewhere in the structure, what the old value contradicts.
                Ok(_) if is_written(&change.structure) => now,
                Ok(_) => Err(format!("{restored}; nothing is lost before that")),
                Err(written) => Err(format!("{restored}; {written}")),
            }
        })
    }

    /// Returns `bytes` with the old value of the changed field.
    fn restored(&self, change: &FieldChange, bytes: &[u8]) -> Vec<u8> {
        let original = &self.image.files[&change.file];
        if self.image.lists.contains(&change.file) {
            return original.clone();
        }
        let mut bytes = bytes.to_vec();
        for range in &change.changed {
            if let Some(place) = bytes.get_mut(range.clone()) {
                place.copy_from_slice(&original[range.clone()]);
            }
        }
        bytes
    }

    fn compare_contents(&self, files: &Files, but: &[String], when: &str) -> Result<usize, String> {
        let found = self
            .image
            .contents(files, self.keys)
            .map_err(|error| format!("{when}: {error}"))?;
        for (path, expected) in self.expected {
            match found.get(path) {
                _ if but.contains(path) => {}
                Some(found) if found == expected => {}
                Some(found) => {
                    return Err(format!("{when}: {path} has {found:?}, not {expected:?}"));
                }
                None => return Err(format!("{when}: {path} is gone")),
            }
        }
        Ok(found.len())
    }

    /// Repairs the image in memory, compares every file, and undoes the repair.
    fn repair(&self) -> Result<&'static str, String> {
        let damaged = self.damaged();
        let store = self.image.store(&damaged);
        let found = self.repair_in(&store);
        let repaired = self.image.read(&store);
        if self.compare_files(&repaired, &[])? != self.expected.len() {
            return Err("there are more files than before".into());
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

    fn repair_in(&self, store: &Arc<dyn Store>) -> crate::Result<Repaired> {
        let target = Target::in_store(store.clone(), self.image.name)?;
        let options = OpenOptions {
            keys: Some(self.keys),
            ..OpenOptions::default()
        };
        let chosen = Options {
            mode: Mode::Apply,
            ..Options::default()
        };
        repair_target(&target, &options, &chosen, &Silent)
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
    let images = Images::new(scratch);
    let encrypted = AtomicUsize::new(0);
    let report = Mutex::new(Report::default());
    on_all_cores(cases, |number| {
        let Some(case) = images.changed(number, seed) else {
            return;
        };
        if !case.name().contains(only)
            || case.is_encrypted() && encrypted.fetch_add(1, Ordering::Relaxed) >= ENCRYPTED_CASES
        {
            return;
        }
        let outcome = case.repair();
        let mut report = report.lock();
        match outcome {
            Ok(outcome) => *report.counts.entry((case.image(), outcome)).or_default() += 1,
            Err(error) => report.failures.push(format!("{}: {error}", case.name())),
        }
    });
    report.into_inner()
}

/// Calls `run` with each number below `count`, on all cores.
fn on_all_cores(count: usize, run: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    run(number);
                }
            });
        }
    });
}
