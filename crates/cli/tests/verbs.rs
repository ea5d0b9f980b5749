//! Every verb that changes an image, on images with one field changed: unless the verb wrote it, the
//! field gets its old value again; then every file is compared.
//!
//! The verbs are those of the command's own table: one that is not classified here fails the test.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bandsaw::sync::Mutex;
use bandsaw::testing::fields::{ImageCase, Images, PASSPHRASE, file};

use crate::common::Scratch;

/// The relation of a verb to existing images.
enum Class {
    /// Changes none.
    Reads,
    /// A group of verbs.
    Group,
    /// Destroys what cannot be compared, or is tested elsewhere; the reason.
    Elsewhere(&'static str),
    Writes(&'static [Run]),
}

/// A run of a writing verb. `IMAGE` stands for the path of the image, and `FILE n` for that of a
/// file in it.
struct Run {
    words: &'static [&'static str],
    /// Verbs that run first.
    before: &'static [&'static [&'static str]],
    kind: RunKind,
    on: On,
    /// The number of the file that it changes or removes.
    changes: Option<usize>,
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunKind {
    /// By itself.
    Alone,
    /// Mounts a volume below the folder `mnt`: a file is added there, and the image detached.
    Mounts,
    /// Serves the image until it is told to end.
    Serves,
}

/// The images on which a verb runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Any,
    Bundles,
    WithoutJournal,
    WithJournal,
    Encrypted,
}

const RUN: Run = Run {
    words: &[],
    before: &[],
    kind: RunKind::Alone,
    on: On::Any,
    changes: None,
};

/// Returns the class of a verb of the table, whose name has a hyphen before the second word;
/// `None` if it is not known.
fn class(verb: &str) -> Option<Class> {
    use Class::{Elsewhere, Group, Reads, Writes};
    Some(match verb {
        "advise"
        | "bench-articles"
        | "bench-compare"
        | "bench-files"
        | "bench-gate"
        | "bench-images"
        | "cat"
        | "check"
        | "checksum"
        | "completions"
        | "convert"
        | "create"
        | "detach"
        | "diagnose"
        | "diff"
        | "dmg"
        | "du"
        | "evidence-manifest"
        | "evidence-timeline"
        | "evidence-verify"
        | "extract"
        | "health"
        | "info"
        | "isencrypted"
        | "join"
        | "list"
        | "ls"
        | "passwd-list"
        | "report"
        | "resources-extract"
        | "resources-list"
        | "receive"
        | "recover"
        | "scrub"
        | "segment"
        | "send"
        | "shims-install"
        | "shims-list"
        | "snapshot-list"
        | "stack-create"
        | "stack-flatten"
        | "stack-info"
        | "stat"
        | "timemachine-cat"
        | "timemachine-convert"
        | "timemachine-create"
        | "timemachine-diff"
        | "timemachine-find"
        | "timemachine-list"
        | "timemachine-ls"
        | "timemachine-mount"
        | "timemachine-restore"
        | "timemachine-versions"
        | "timemachine-forget"
        | "timemachine-states"
        | "timemachine-status"
        | "tree"
        | "verify"
        | "watch"
        | "web" => Reads,
        "bench" | "evidence" | "resources" | "shims" | "snapshot" | "stack" | "timemachine" => {
            Group
        }
        "timemachine-reset-verification" => Elsewhere("changes the lists of Time Machine only"),
        "checkpoint" => Elsewhere("changes bundles in buckets only"),
        "erase-keys" => Elsewhere("destroys the contents"),
        "format" => Elsewhere("erases the contents, and refuses to without --overwrite"),
        "repair" => Elsewhere("`cargo xtask fields`"),
        "resources-add" | "resources-remove" => Elsewhere("changes compressed images only"),
        "attach" => Writes(&[Run {
            words: &["attach", "IMAGE", "--mountroot", "mnt"],
            kind: RunKind::Mounts,
            ..RUN
        }]),
        "mount" => Writes(&[Run {
            words: &["mount", "IMAGE", "mnt/Data"],
            kind: RunKind::Mounts,
            ..RUN
        }]),
        "serve" => Writes(&[Run {
            words: &["serve", "IMAGE", "--socket", "socket", "--json"],
            kind: RunKind::Serves,
            ..RUN
        }]),
        "chmod" => Writes(&[Run {
            words: &["chmod", "600", "IMAGE:FILE 8"],
            ..RUN
        }]),
        "compact" => Writes(&[
            Run {
                words: &["compact", "--battery-allowed", "IMAGE"],
                ..RUN
            },
            Run {
                words: &["compact", "--battery-allowed", "--zeros", "IMAGE"],
                ..RUN
            },
        ]),
        "compress" => Writes(&[Run {
            words: &["compress", "IMAGE:FILE 47"],
            ..RUN
        }]),
        "decompress" => Writes(&[Run {
            before: &[&["compress", "IMAGE:FILE 47"]],
            words: &["decompress", "IMAGE:FILE 47"],
            ..RUN
        }]),
        "cp" => Writes(&[Run {
            words: &["cp", "new", "IMAGE:/copied"],
            ..RUN
        }]),
        "enable-journal" => Writes(&[Run {
            words: &["enable-journal", "IMAGE"],
            on: On::WithoutJournal,
            ..RUN
        }]),
        "disable-journal" => Writes(&[Run {
            words: &["disable-journal", "IMAGE"],
            on: On::WithJournal,
            ..RUN
        }]),
        "ln" => Writes(&[Run {
            words: &["ln", "IMAGE:FILE 9", "IMAGE:/linked"],
            ..RUN
        }]),
        "mkdir" => Writes(&[Run {
            words: &["mkdir", "IMAGE:/made"],
            ..RUN
        }]),
        "mv" => Writes(&[Run {
            words: &["mv", "IMAGE:FILE 7", "IMAGE:/moved"],
            changes: Some(7),
            ..RUN
        }]),
        "passwd" | "passwd-add" => Writes(match verb {
            "passwd" => &[Run {
                words: &[
                    "passwd",
                    "--iterations",
                    "150000",
                    "--passfile",
                    "key",
                    "--new-passfile",
                    "key",
                    "IMAGE",
                ],
                on: On::Encrypted,
                ..RUN
            }],
            _ => &[Run {
                words: &[
                    "passwd",
                    "add",
                    "--iterations",
                    "150000",
                    "--passfile",
                    "key",
                    "--new-passfile",
                    "second key",
                    "IMAGE",
                ],
                on: On::Encrypted,
                ..RUN
            }],
        }),
        "passwd-remove" => Elsewhere("the same header as `passwd add`"),
        "put" => Writes(&[
            Run {
                words: &["put", "--from", "new", "IMAGE:/added"],
                ..RUN
            },
            Run {
                words: &["put", "--from", "new", "--overwrite", "IMAGE:FILE 5"],
                changes: Some(5),
                ..RUN
            },
        ]),
        "reband" => Writes(&[Run {
            words: &["reband", "IMAGE", "--band-size", "2m"],
            on: On::Bundles,
            ..RUN
        }]),
        "resize" => Writes(&[
            Run {
                words: &["resize", "IMAGE", "--size", "64m"],
                ..RUN
            },
            Run {
                words: &["resize", "IMAGE", "--min"],
                ..RUN
            },
            Run {
                words: &["resize", "IMAGE", "--size", "64m", "--image-only"],
                ..RUN
            },
        ]),
        "rm" => Writes(&[Run {
            words: &["rm", "IMAGE:FILE 6"],
            changes: Some(6),
            ..RUN
        }]),
        "snapshot-create" => Writes(&[Run {
            words: &["snapshot", "create", "IMAGE", "before"],
            on: On::Bundles,
            ..RUN
        }]),
        "snapshot-delete" => Writes(&[Run {
            before: &[&["snapshot", "create", "IMAGE", "before"]],
            words: &["snapshot", "delete", "IMAGE", "before"],
            on: On::Bundles,
            ..RUN
        }]),
        "snapshot-restore" => Writes(&[Run {
            before: &[
                &["snapshot", "create", "IMAGE", "before"],
                &["put", "--from", "new", "IMAGE:/added"],
            ],
            words: &["snapshot", "restore", "IMAGE", "before"],
            on: On::Bundles,
            ..RUN
        }]),
        "timemachine-keep" => Writes(&[Run {
            words: &["timemachine", "keep", "IMAGE", "--whole-copy"],
            on: On::Bundles,
            ..RUN
        }]),
        "timemachine-roll-back" => Writes(&[Run {
            before: &[
                &["timemachine", "keep", "IMAGE", "--whole-copy"],
                &["put", "--from", "new", "IMAGE:/added"],
            ],
            words: &["timemachine", "roll-back", "IMAGE"],
            on: On::Bundles,
            ..RUN
        }]),
        "stack-commit" => Writes(&[Run {
            before: &[
                &["stack", "create", "IMAGE", "layer.asif"],
                &[
                    "put",
                    "--from",
                    "new",
                    "--shadow",
                    "layer.asif",
                    "IMAGE:/added",
                ],
            ],
            words: &["stack", "commit", "IMAGE", "layer.asif"],
            ..RUN
        }]),
        "touch" => Writes(&[Run {
            words: &["touch", "IMAGE:FILE 10"],
            ..RUN
        }]),
        "trim" => Writes(&[Run {
            words: &["trim", "IMAGE"],
            ..RUN
        }]),
        "xattr" => Writes(&[Run {
            words: &["xattr", "--set", "org.example.color=blue", "IMAGE:FILE 11"],
            ..RUN
        }]),
        "hdiutil" => Writes(&[
            Run {
                words: &["hdiutil", "compact", "IMAGE", "-batteryallowed"],
                on: On::Bundles,
                ..RUN
            },
            Run {
                words: &["hdiutil", "attach", "IMAGE", "-mountroot", "mnt"],
                kind: RunKind::Mounts,
                ..RUN
            },
        ]),
        "diskutil" => Elsewhere("the same calls as `hdiutil`"),
        _ => return None,
    })
}

/// Returns the verbs of the command's own table, of which each has a manual page.
fn table() -> BTreeSet<String> {
    let scratch = Scratch::new();
    scratch.ok(&["man", "pages"]);
    fs::read_dir(scratch.path("pages"))
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .filter_map(|page| {
            Some(
                page.strip_prefix("bandsaw-")?
                    .strip_suffix(".1")?
                    .to_owned(),
            )
        })
        .collect()
}

#[test]
fn every_verb_is_classified() {
    let table = table();
    assert!(
        table.len() > 60 && table.contains("stack-commit"),
        "{table:?}"
    );
    for verb in table {
        match class(&verb).unwrap_or_else(|| panic!("{verb} is not classified in tests/verbs.rs")) {
            Class::Writes(runs) => assert!(!runs.is_empty(), "{verb}"),
            Class::Elsewhere(why) => assert!(!why.is_empty(), "{verb}"),
            Class::Group | Class::Reads => {}
        }
    }
}

/// The images whose fields are changed.
const IMAGES: [&str; 7] = [
    "hfs.sparsebundle",
    "apfs.sparsebundle",
    "hfs.sparseimage",
    "hfs.asif",
    "gpt.img",
    "journaled.img",
    "secret.sparsebundle",
];

impl On {
    fn is(self, image: &str) -> bool {
        match self {
            Self::Encrypted => image == "secret.sparsebundle",
            // The passphrase is not given.
            _ if image == "secret.sparsebundle" => false,
            Self::Any => true,
            Self::Bundles => image.ends_with(".sparsebundle"),
            Self::WithJournal => image == "journaled.img",
            Self::WithoutJournal => image != "journaled.img" && !image.contains("apfs"),
        }
    }
}

/// A folder in memory in which one case runs.
struct Folder(PathBuf);

impl Folder {
    /// Returns the command, which is killed after two minutes.
    fn limited(&self, words: &[&str], image: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", env!("CARGO_BIN_EXE_bandsaw")]);
        self.with(command, words, image)
    }

    fn with(&self, mut command: Command, words: &[&str], image: &str) -> Command {
        for word in words {
            let word = word.replace("IMAGE", image);
            command.arg(match word.split_once("FILE ") {
                Some((before, number)) => format!("{before}{}", file(number.parse().unwrap())),
                None => word,
            });
        }
        command
            .current_dir(&self.0)
            .env("XDG_RUNTIME_DIR", &self.0)
            .env("HOME", &self.0)
            .stdin(Stdio::null());
        command
    }

    /// Runs the verb; returns the error if it refuses.
    fn run(&self, run: &Run, image: &str) -> Result<(), String> {
        for words in run.before {
            self.finish(words, image)?;
        }
        match run.kind {
            RunKind::Alone => self.finish(run.words, image),
            RunKind::Mounts => {
                fs::create_dir_all(self.0.join("mnt")).unwrap();
                self.finish(run.words, image)?;
                let added = fs::read_dir(self.0.join("mnt"))
                    .unwrap()
                    .map(|volume| fs::write(volume.unwrap().path().join("added"), [1; 5000]))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| error.to_string());
                let detached = self
                    .finish(&["detach", image], image)
                    .or_else(|_| self.finish(&["detach", "--force", image], image));
                assert_eq!(detached, Ok(()), "{image} stays mounted");
                added.map(drop)
            }
            RunKind::Serves => {
                // `timeout` would pass a signal on twice, and the second ends the server at once.
                let command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
                let mut command = self.with(command, run.words, image);
                let mut child = command
                    .stdout(Stdio::piped())
                    .stderr(File::create(self.0.join("stderr")).unwrap())
                    .spawn()
                    .unwrap();
                // Its first line comes once it listens, which is after it has trimmed.
                let mut line = String::new();
                BufReader::new(child.stdout.take().unwrap())
                    .read_line(&mut line)
                    .unwrap();
                let listens = !line.is_empty() && self.0.join("socket").exists();
                if listens {
                    let end = Command::new("kill")
                        .args(["-TERM", &child.id().to_string()])
                        .status();
                    assert!(end.unwrap().success());
                }
                let status = child.wait().unwrap();
                if listens && status.success() {
                    return Ok(());
                }
                Err(fs::read_to_string(self.0.join("stderr")).unwrap())
            }
        }
    }

    fn finish(&self, words: &[&str], image: &str) -> Result<(), String> {
        let output = self.limited(words, image).output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(
            !matches!(code, None | Some(101 | 124)),
            "{words:?} {image} crashed or hangs: {code:?} {error}"
        );
        Err(format!("{code:?} {}", error.trim()))
    }
}

/// Runs a verb on an image in a folder of its own, and compares every file; returns the error if it
/// refuses.
fn judge(folder: &Path, run: &Run, case: &ImageCase<'_>) -> Result<Option<String>, String> {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("new"), [2; 3000]).unwrap();
    fs::write(folder.join("key"), PASSPHRASE).unwrap();
    fs::write(folder.join("second key"), "second").unwrap();
    let path = folder.join(case.image());
    case.write(&path);
    let done = Folder(folder.to_owned()).run(run, case.image());
    let but = run.changes.filter(|_| done.is_ok()).map(file);
    let compared = case.compare(&path, but.as_slice());
    fs::remove_dir_all(folder).unwrap();
    let refused = done.err();
    let how = match &refused {
        None => "accepted".to_owned(),
        Some(error) => format!("refused ({error})"),
    };
    compared
        .map(|()| refused)
        .map_err(|lost| format!("{}: {}: {how}; {lost}", run.words.join(" "), case.name()))
}

/// Changed fields for each writing verb and image.
const FIELDS: usize = 2;

/// Some 300 fixed cases with `mount`, `attach` and `serve` as processes; every verb accepts the images
/// without a change. `cargo xtask fields --verbs` runs more cases, within one process.
#[test]
fn no_verb_loses_a_file_below_a_wrong_field() {
    let can_mount = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !can_mount {
        eprintln!("SKIPPED mount and attach: /dev/fuse cannot be opened here");
    }
    let memory = Path::new("/dev/shm");
    let scratch = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let images = Images::new(&scratch.path().join("images"));
    let mut cases = Vec::new();
    for (at, verb) in table().iter().enumerate() {
        let Some(Class::Writes(runs)) = class(verb) else {
            continue;
        };
        let runs = runs
            .iter()
            .filter(|run| can_mount || run.kind != RunKind::Mounts);
        for run in runs {
            for image in IMAGES.into_iter().filter(|image| run.on.is(image)) {
                let unchanged = images.unchanged().find(|case| case.image() == image);
                cases.push((run, unchanged.unwrap(), true));
                let changed = (at * 7919..).filter_map(|at| images.changed_in(image, at, 1));
                let changed = changed.take(FIELDS);
                cases.extend(changed.map(|case| (run, case, false)));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let (refused, harmless) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((run, case, is_sound)) = cases.get(number) else {
                        break;
                    };
                    let folder = scratch.path().join(format!("case-{number}"));
                    let outcome = match judge(&folder, run, case) {
                        Ok(Some(error)) if *is_sound => Err(format!(
                            "{}: {}: refused ({error})",
                            run.words.join(" "),
                            case.name()
                        )),
                        outcome => outcome,
                    };
                    match outcome {
                        Ok(Some(_)) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        Ok(None) => drop(harmless.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => wrong.lock().push(error),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner();
    let counts = format!(
        "{} cases: {} refused, {} accepted and harmless, {} wrong",
        cases.len(),
        refused.into_inner(),
        harmless.into_inner(),
        wrong.len()
    );
    eprintln!("{counts}");
    assert!(wrong.is_empty(), "{counts}\n{}", wrong.join("\n"));
}

/// Returns the files below a folder, except locks, by their paths.
fn bytes_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut paths = vec![folder.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            paths.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.is_file() && !path.ends_with("lock") {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// Only `repair` changes an image whose repair was interrupted: every other verb of the table
/// refuses.
#[test]
fn no_verb_changes_an_image_whose_repair_was_interrupted() {
    let scratch = tempfile::tempdir().unwrap();
    let images = Images::new(&scratch.path().join("images"));
    let chosen = [
        "hfs.sparsebundle",
        "gpt.img",
        "journaled.img",
        "secret.sparsebundle",
    ];
    let (mut wrong, mut count) = (Vec::new(), 0);
    for verb in table() {
        let Some(Class::Writes(runs)) = class(&verb) else {
            continue;
        };
        for run in runs {
            for image in chosen.into_iter().filter(|image| run.on.is(image)) {
                count += 1;
                let folder = Folder(scratch.path().join(format!("case-{count}")));
                fs::create_dir(&folder.0).unwrap();
                for (name, bytes) in [("new", &[2; 3000][..]), ("key", PASSPHRASE.as_bytes())] {
                    fs::write(folder.0.join(name), bytes).unwrap();
                }
                fs::write(folder.0.join("second key"), "second").unwrap();
                let case = images
                    .unchanged()
                    .find(|case| case.image() == image)
                    .unwrap();
                let path = folder.0.join(image);
                case.write(&path);
                for words in run.before {
                    folder.finish(words, image).unwrap();
                }
                let state = folder.0.join(format!("{image}.undo/1/state"));
                fs::create_dir_all(state.parent().unwrap()).unwrap();
                fs::write(state, "bandsaw undo 4\n\nend 00000000\n").unwrap();
                let before = bytes_below(&path);
                let run_alone = Run {
                    before: &[],
                    ..*run
                };
                let what = format!("{} {image}", run.words.join(" "));
                match folder.run(&run_alone, image) {
                    Ok(()) => wrong.push(format!("{what}: accepted")),
                    // These have exit codes of their own.
                    Err(_) if verb == "hdiutil" => {}
                    // The volume is mounted read-only, with a warning.
                    Err(error)
                        if run.kind == RunKind::Mounts
                            && error.contains("Read-only file system") => {}
                    Err(error) if !error.contains("interrupted") => {
                        wrong.push(format!("{what}: {error}"));
                    }
                    Err(_) => {}
                }
                if bytes_below(&path) != before {
                    wrong.push(format!("{what}: changed"));
                }
                fs::remove_dir_all(&folder.0).unwrap();
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count > 60, "{count}");
}
