//! Time Machine backups of both kinds, as a user reads them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::backupd::{self, Backup, History, Item, OFFSET, Objects, VOLUME};
use crate::common::{Scratch, peer_python, skip, stderr};

/// Images of both kinds of backups.
fn images(history: &History) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("hfs.img", backupd::hfs_plus(history, |_, _| {}));
    scratch.write("apfs.img", backupd::apfs(history, |_, _| {}));
    scratch
}

const IMAGES: [&str; 2] = ["hfs.img", "apfs.img"];

/// Everything below a folder of the host.
fn objects(root: &Path) -> Objects {
    let mut all = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let item = if meta.is_symlink() {
                Item::Link(fs::read_link(&path).unwrap().to_str().unwrap().to_owned())
            } else if meta.is_dir() {
                ahead.push(path.clone());
                Item::Folder
            } else {
                Item::File(fs::read(&path).unwrap(), meta.mtime() + OFFSET)
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            all.insert(format!("/{name}"), item);
        }
    }
    all
}

fn texts(list: &Value, field: &str) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn dates_are_listed_and_every_file_is_read() {
    let history = History::new(21, 8, 20);
    let scratch = images(&history);
    for name in IMAGES {
        let list = scratch.json(&["tm", "list", name]);
        let backups = &list["backups"];
        assert_eq!(backups.as_array().unwrap().len(), 9, "{name}: {list}");
        for (backup, truth) in backups.as_array().unwrap().iter().zip(&history.backups) {
            assert_eq!(backup["state"], "complete", "{name}");
            assert_eq!(backup["copied_size"], truth.copied, "{name}");
            let name = backup["name"].as_str().unwrap();
            assert!(name.contains(&truth.date), "{name}");
        }
        let last = &history.backups[7];
        assert!(
            list["latest"].as_str().unwrap().contains(&last.date),
            "{list}"
        );
        let shown = scratch.ok(&["tm", "list", name]);
        assert_eq!(shown.lines().count(), 9, "{shown}");
        let listed = scratch.json(&["tm", "ls", name, "latest:/Users"]);
        let mut expected: Vec<_> = last
            .objects
            .keys()
            .filter_map(|path| path.strip_prefix("/Users/"))
            .filter(|path| !path.contains('/'))
            .map(str::to_owned)
            .collect();
        let mut found = texts(&listed["entries"], "name");
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{name}");
        for (path, item) in &last.objects {
            if let Item::File(bytes, _) = item {
                let place = format!("{}:{path}", last.date);
                let output = scratch.run(&["tm", "cat", name, &place]);
                assert_eq!(
                    output.stdout,
                    *bytes,
                    "{name}: {place}: {}",
                    stderr(&output)
                );
            }
        }
        let error = scratch.fails(3, &["tm", "ls", name, "2020-02-02"]);
        assert!(error.contains("2026-01-05"), "{error}");
        scratch.fails(2, &["tm", "ls", name, "tomorrow"]);
        scratch.fails(3, &["tm", "ls", name, "latest:/absent"]);
        scratch.fails(2, &["tm", "cat", name, "latest:/Users"]);
    }
    // Neither backups nor a date.
    scratch.ok(&["create", "empty.img", "--fs", "hfs+", "--size", "8m"]);
    scratch.fails(3, &["tm", "list", "empty.img"]);
    fs::create_dir_all(scratch.path("share/Mac.sparsebundle/bands")).unwrap();
    let error = scratch.fails(2, &["tm", "list", "share"]);
    assert!(error.contains("Mac.sparsebundle"), "{error}");
}

#[test]
fn restored_files_are_those_of_the_date() {
    let history = History::new(22, 5, 30);
    let scratch = images(&history);
    for name in IMAGES {
        for truth in &history.backups {
            let out = format!("{name}-{}", truth.date);
            scratch.ok(&["tm", "restore", name, &truth.date, &out]);
            let found = objects(&scratch.path(&out).join(VOLUME));
            assert_eq!(found, truth.objects, "{name}: {}", truth.date);
            assert_eq!(
                fs::read_dir(scratch.path(&out)).unwrap().count(),
                1,
                "{out}"
            );
        }
        let first = &history.backups[0].date;
        let out = format!("{name}-{first}");
        // Nothing is overwritten, and nothing changes.
        let before = objects(&scratch.path(&out));
        let error = scratch.fails(4, &["tm", "restore", name, "latest", &out]);
        assert!(error.contains("--overwrite"), "{error}");
        assert_eq!(objects(&scratch.path(&out)), before);
        scratch.ok(&["tm", "restore", "--overwrite", name, first, &out]);
        assert_eq!(objects(&scratch.path(&out)), before);
        // Several objects, of several dates.
        let files = format!("{name}-files");
        let (one, two) = (format!("{first}:/Users"), "latest:/Library".to_owned());
        scratch.ok(&["tm", "restore", name, &one, &two, &files]);
        let below = |objects: &Objects, folder: &str| -> Objects {
            let prefix = format!("{folder}/");
            let all = objects.iter().filter(|(path, _)| path.starts_with(&prefix));
            all.map(|(path, item)| (path.clone(), item.clone()))
                .collect()
        };
        let found = objects(&scratch.path(&files));
        assert_eq!(
            below(&found, "/Users"),
            below(&history.backups[0].objects, "/Users")
        );
        assert_eq!(
            below(&found, "/Library"),
            below(&history.backups[4].objects, "/Library")
        );
        scratch.fails(2, &["tm", "restore", name, &one, "latest:/Users", "twice"]);
    }
}

#[test]
fn patterns_stand_for_paths_of_a_backup() {
    let history = History::new(29, 3, 400);
    let scratch = images(&history);
    let last = &history.backups[2].objects;
    let is_page =
        |path: &&String| path.starts_with("/Users/anna/Documents/") && path.ends_with(".pages");
    let in_folder = |path: &&String| !path["/Users/anna/Documents/".len()..].contains('/');
    let pages: Vec<&String> = last.keys().filter(is_page).filter(in_folder).collect();
    assert!(pages.len() > 1, "{pages:?}");
    for name in IMAGES {
        let pattern = "latest:/Users/a*/Documents/*.[op]ages";
        let listed = scratch.json(&["tm", "ls", name, pattern]);
        let paths = texts(&listed["entries"], "volume_path");
        assert_eq!(paths.len(), pages.len(), "{paths:?}");
        for (path, page) in paths.iter().zip(&pages) {
            assert!(path.ends_with(page.as_str()), "{path}");
        }
        let shown = scratch.ok(&["tm", "ls", name, pattern]);
        assert_eq!(
            shown.lines().next().unwrap(),
            format!("/{VOLUME}{}", pages[0])
        );
        let out = format!("pages of {name}");
        scratch.ok(&["tm", "restore", name, pattern, &out]);
        for page in &pages {
            let Item::File(bytes, _) = &last[*page] else {
                continue;
            };
            let path = scratch.path(&out).join(page.rsplit('/').next().unwrap());
            assert!(fs::read(path).unwrap() == *bytes, "{page}");
        }
        assert_eq!(
            fs::read_dir(scratch.path(&out)).unwrap().count(),
            pages.len()
        );
        let all = scratch.run(&["tm", "cat", name, pattern]);
        let expected = pages.iter().map(|page| match &last[*page] {
            Item::File(bytes, _) => bytes.clone(),
            other => panic!("{other:?}"),
        });
        assert!(all.stdout == expected.collect::<Vec<_>>().concat());
        scratch.fails(3, &["tm", "ls", name, "latest:/Users/*/no such*"]);
        scratch.fails(3, &["tm", "restore", name, "latest:/Users/[x-z]*", "none"]);
        assert!(!scratch.path("none").exists());
    }
}

#[test]
fn a_killed_restore_is_resumed() {
    let history = History::new(23, 2, 600);
    let scratch = Scratch::new();
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    let truth = &history.backups[1].objects;
    let args = ["tm", "restore", "hfs.img", "latest", "out"];
    let out = scratch.path("out");
    let files = || {
        let volume = out.join(VOLUME);
        let all = volume.exists().then(|| objects(&volume));
        all.map_or(0, |all| {
            all.values()
                .filter(|item| matches!(item, Item::File(..)))
                .count()
        })
    };
    let mut interrupted = 0;
    for wanted in [1, 100, 300, 500] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command
            .args(args)
            .current_dir(scratch.path(""))
            .stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            // Its files come and go while they are counted.
            let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(files));
            if seen.is_ok_and(|seen| seen >= wanted) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        if !out.join(".bandsaw-restore").exists() {
            break;
        }
        interrupted += 1;
        let error = scratch.fails(4, &["tm", "restore", "hfs.img", "oldest", "out"]);
        assert!(error.contains(".bandsaw-restore"), "{error}");
    }
    if interrupted == 0 || out.join(".bandsaw-restore").exists() {
        if interrupted == 0 {
            fs::remove_dir_all(&out).unwrap();
        }
        scratch.ok(&args);
    }
    let restored = objects(&out.join(VOLUME));
    assert!(restored.keys().eq(truth.keys()), "{:?}", restored.keys());
    assert_eq!(restored, *truth);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    // A file that is another one is not taken for a restored one.
    let path = truth
        .iter()
        .find(|(_, item)| matches!(item, Item::File(..)))
        .unwrap()
        .0;
    let file = out.join(VOLUME).join(&path[1..]);
    fs::write(&file, "mine").unwrap();
    let about = format!(
        "hfs.img\n{} {}:\"/\"\n",
        backupd::MACHINE,
        history.backups[1].date
    );
    scratch.write("out/.bandsaw-restore", about);
    let output = scratch.run(&args);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn versions_names_and_differences_are_reported() {
    let history = History::new(24, 10, 20);
    let scratch = images(&history);
    let path = history.paths();
    let path = path
        .iter()
        .max_by_key(|path| history.versions(path).len())
        .unwrap();
    let name_of = path.rsplit('/').next().unwrap();
    for name in IMAGES {
        let versions = scratch.json(&["tm", "versions", name, path]);
        let found = versions["versions"].as_array().unwrap();
        assert_eq!(
            found.len(),
            history.versions(path).len(),
            "{name}: {versions}"
        );
        let shown = scratch.ok(&["tm", "versions", name, path]);
        assert_eq!(shown.lines().count(), found.len(), "{shown}");
        let found = scratch.json(&["tm", "find", name, name_of]);
        let paths = texts(&found["found"], "backup_path");
        assert!(paths.contains(&format!("/{VOLUME}{path}")), "{found}");
        scratch.ok(&["tm", "find", "-i", name, &name_of.to_uppercase()]);
        scratch.fails(3, &["tm", "find", name, "no such name"]);
        scratch.fails(3, &["tm", "versions", name, "/no/such/path"]);
        let diff = scratch.json(&["tm", "diff", name, "oldest", "latest"]);
        assert!(
            !diff["differences"].as_array().unwrap().is_empty(),
            "{diff}"
        );
        let same = scratch.json(&["tm", "diff", name, "latest", "latest"]);
        assert!(same["differences"].as_array().unwrap().is_empty(), "{same}");
    }
}

#[test]
fn a_bundle_has_its_lists_and_missing_bands_are_no_success() {
    let history = History::new(25, 6, 20);
    let scratch = images(&history);
    for name in IMAGES {
        let bundle = format!("{name}.sparsebundle");
        scratch.ok(&["convert", name, &bundle, "--band-size", "1m"]);
        let list = format!("{bundle}/com.apple.TimeMachine.SnapshotHistory.plist");
        scratch.write(&list, history.list());
        let whole = scratch.json(&["tm", "list", &bundle]);
        assert_eq!(whole["bundle"]["recorded_count"], 6, "{whole}");
        assert_eq!(whole["bundle"]["missing"].as_array().unwrap().len(), 0);
        scratch.write(&list, "no list");
        let output = scratch.run(&["tm", "list", &bundle, "--json"]);
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        let damaged: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(damaged["backups"], whole["backups"]);
        assert_eq!(damaged["problems"].as_array().unwrap().len(), 1);
        scratch.write(&list, history.list());
        for band in 0..64 {
            let path = scratch.path(&format!("{bundle}/bands/{band:x}"));
            let Ok(bytes) = fs::read(&path) else { continue };
            fs::remove_file(&path).unwrap();
            let output = scratch.run(&["tm", "list", &bundle, "--json"]);
            let code = output.status.code();
            if code == Some(0) {
                let found: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(
                    found["backups"].as_array().unwrap().len(),
                    7,
                    "{name} {band}"
                );
            }
            assert!(
                matches!(code, Some(0..=8)),
                "{name} {band}: {}",
                stderr(&output)
            );
            let found = scratch.run(&["tm", "find", &bundle, "*", "--json"]);
            assert!(matches!(found.status.code(), Some(0..=8)), "{name} {band}");
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn encrypted_backups_need_a_passphrase() {
    let history = History::new(26, 3, 10);
    let scratch = images(&history);
    scratch.write("key", "secret\n");
    for name in IMAGES {
        let secret = format!("secret-{name}");
        let encrypt = [
            "--encrypt",
            "--new-passfile",
            "key",
            "--iterations",
            "150000",
        ];
        let encrypt = [
            &["convert", "--format", "udrw", name, &secret][..],
            &encrypt,
        ]
        .concat();
        scratch.ok(&encrypt);
        for verb in [
            &["list", &secret][..],
            &["ls", &secret, "latest"],
            &["cat", &secret, "latest:/Users"],
            &["find", &secret, "*"],
            &["versions", &secret, "/Users"],
            &["diff", &secret, "oldest", "latest"],
            &["restore", &secret, "latest", "out"],
        ] {
            let error = scratch.fails(7, &[&["tm"], verb].concat());
            assert!(error.contains("passphrase"), "{verb:?}: {error}");
        }
        assert!(!scratch.path("out").exists());
        let list = scratch.json(&["tm", "list", &secret, "--passfile", "key"]);
        assert_eq!(list["backups"].as_array().unwrap().len(), 4);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_mount_has_a_folder_for_each_date() {
    let history = History::new(27, 4, 15);
    let scratch = images(&history);
    let run = scratch.path("run");
    fs::create_dir(&run).unwrap();
    let command = |args: &[&str]| {
        let mut command = scratch.command(args);
        command.env("XDG_RUNTIME_DIR", &run).output().unwrap()
    };
    scratch.ok(&["extract", "hfs.img:/", "copied"]);
    for name in [IMAGES[0], IMAGES[1], "copied"] {
        let mounted = command(&["tm", "mount", name, "mnt"]);
        if stderr(&mounted).contains("FUSE") {
            skip::without_program("a_mount_has_a_folder_for_each_date", "no FUSE");
            return;
        }
        assert!(mounted.status.success(), "{}", stderr(&mounted));
        for truth in &history.backups {
            let folder = scratch.path("mnt").join(&truth.date).join(VOLUME);
            assert_eq!(objects(&folder), truth.objects, "{name}: {}", truth.date);
        }
        assert!(fs::write(scratch.path("mnt/new"), "x").is_err());
        assert_eq!(fs::read_dir(scratch.path("mnt")).unwrap().count(), 5);
        let detached = command(&["detach", "mnt"]);
        assert!(detached.status.success(), "{}", stderr(&detached));
    }
}

/// Script that prints a JSON object of the files of the first volume, by path.
const WALK: &str = r#"
import hashlib, json, pyfsapfs, stat, sys
container = pyfsapfs.container()
container.open(sys.argv[1])
volume = container.get_volume(0)
files = {}
def walk(folder, prefix):
    for entry in folder.sub_file_entries:
        path = prefix + '/' + entry.name
        kind = stat.S_IFMT(entry.file_mode)
        if kind == stat.S_IFDIR:
            files[path] = 'folder'
            walk(entry, path)
        elif kind == stat.S_IFLNK:
            files[path] = 'link ' + entry.symbolic_link_target
        else:
            files[path] = entry.read_buffer(entry.size).hex() if entry.size else ''
walk(volume.get_root_directory(), '')
json.dump(files, sys.stdout)
"#;

/// libfsapfs sees the files of the last backup in the current state of the model's volume.
#[test]
fn libfsapfs_reads_the_same() {
    let Some(python) = peer_python("pyfsapfs") else {
        skip::without_program("libfsapfs_reads_the_same", "no Python with pyfsapfs");
        return;
    };
    let history = History::new(28, 6, 20);
    let scratch = images(&history);
    let last = &history.backups[5];
    let found = walked(&python, &scratch.path("apfs.img"), last);
    assert_eq!(found, listed(last));
}

/// Returns the files of a backup in the current state of a volume, as libfsapfs reads them.
pub(crate) fn walked(python: &Path, container: &Path, last: &Backup) -> BTreeMap<String, String> {
    let output = std::process::Command::new(python)
        .args(["-c", WALK])
        .arg(container)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let prefix = format!("/{}.previous/{VOLUME}/", last.date);
    let files = report.as_object().unwrap().iter();
    files
        .filter_map(|(path, item)| {
            let path = path.strip_prefix(&prefix)?;
            Some((format!("/{path}"), item.as_str().unwrap().to_owned()))
        })
        .collect()
}

/// Returns the files of a backup in the form of [`walked`].
pub(crate) fn listed(backup: &Backup) -> BTreeMap<String, String> {
    let truth = backup.objects.iter().map(|(path, item)| {
        let item = match item {
            Item::Folder => "folder".to_owned(),
            Item::Link(target) => format!("link {target}"),
            Item::File(bytes, _) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        (path.clone(), item)
    });
    truth.collect()
}

#[test]
fn a_folder_of_the_host_is_read_as_an_image() {
    let history = History::new(25, 4, 10);
    let scratch = images(&history);
    scratch.ok(&["extract", "hfs.img:/", "copied"]);
    let store = scratch.path("copied/Backups.backupdb");
    for name in ["copied", store.to_str().unwrap()] {
        let list = scratch.json(&["tm", "list", name]);
        let dates = texts(&list["backups"], "date");
        let of_image = scratch.json(&["tm", "list", "hfs.img"]);
        assert_eq!(dates, texts(&of_image["backups"], "date"));
        for backup in &history.backups {
            for (path, item) in &backup.objects {
                if let Item::File(bytes, _) = item {
                    let place = format!("{}:{path}", backup.date);
                    let output = scratch.run(&["tm", "cat", name, &place]);
                    assert_eq!(output.stdout, *bytes, "{place}: {}", stderr(&output));
                }
            }
        }
    }
    // Everything that works with an image.
    let [first, .., last] = &*history.backups else {
        panic!("some backups");
    };
    let files = last.objects.iter();
    let mut files = files.filter(|(_, item)| matches!(item, Item::File(..)));
    let (path, _) = files.next().unwrap();
    let by_both = |args: &[&str]| {
        let of = |name: &str| {
            let mut args = args.to_vec();
            args.insert(2, name);
            scratch.ok(&args)
        };
        assert_eq!(of("copied"), of("hfs.img"), "{args:?}");
    };
    by_both(&["tm", "diff", &first.date, &last.date]);
    by_both(&["tm", "find", "*file*"]);
    scratch.ok(&["tm", "versions", "copied", path]);
    scratch.ok(&["tm", "restore", "copied", &last.date, "restored"]);
    let found = objects(&scratch.path(&format!("restored/{VOLUME}")));
    let expected: Objects = last.objects.clone();
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    // A folder without backups is no image.
    fs::create_dir(scratch.path("empty")).unwrap();
    assert!(!scratch.run(&["tm", "list", "empty"]).status.success());
}

/// Linux shows a second name of a folder on HFS+ as an empty file, whose number of links is the
/// number of the folder.
#[test]
fn folders_with_several_names_are_found_on_a_mounted_volume() {
    let scratch = Scratch::new();
    let private = ".HFS+ Private Directory Data\r";
    let date = "Backups.backupdb/Mac/2026-01-05-120000/Macintosh HD";
    fs::create_dir_all(scratch.path(&format!("mnt/{private}/dir_20/Documents"))).unwrap();
    fs::create_dir_all(scratch.path(&format!("mnt/{date}"))).unwrap();
    scratch.write(
        &format!("mnt/{private}/dir_20/Documents/letter"),
        "dear diary",
    );
    let link = scratch.write(&format!("mnt/{date}/Users"), "");
    for number in 1..20 {
        fs::hard_link(&link, scratch.path(&format!("other-{number}"))).unwrap();
    }
    scratch.write(&format!("mnt/{date}/empty"), "");
    let letter = scratch.ok(&["tm", "cat", "mnt", "latest:/Users/Documents/letter"]);
    assert_eq!(letter, "dear diary");
    let listed = scratch.json(&["tm", "ls", "mnt", "latest:/"]);
    let listed = listed.to_string();
    assert!(listed.contains("Macintosh HD"), "{listed}");
    scratch.ok(&["tm", "restore", "mnt", "latest", "out"]);
    let restored = fs::read(scratch.path("out/Macintosh HD/Users/Documents/letter"));
    assert_eq!(restored.unwrap(), b"dear diary");
    assert!(scratch.path("out/Macintosh HD/empty").is_file());
    // A link out of the folder is not followed.
    std::os::unix::fs::symlink("/etc", scratch.path(&format!("mnt/{date}/out"))).unwrap();
    scratch.fails(3, &["tm", "cat", "mnt", "latest:/out/passwd"]);
}
