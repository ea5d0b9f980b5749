//! The documents of `--json`, held against the schemas in `docs/schema` by the Python module
//! jsonschema.
//!
//! The verbs are those of the command's own table: one without a schema fails the test, and so does
//! a schema of which no document was seen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::backupd::{self, History};
use crate::common::{Scratch, peer_python, skip, stderr};

/// Script that validates the documents of a file, a line each: schema, command, document. It prints
/// what is wrong.
const VALIDATE: &str = r#"
import json, pathlib, sys
import jsonschema, referencing
folder = pathlib.Path(sys.argv[1])
schemas = {path.stem: json.loads(path.read_text()) for path in folder.glob('*.json')}
registry = referencing.Registry().with_resources(
    [(name + '.json', referencing.Resource.from_contents(schema)) for name, schema in schemas.items()])
validators = {}
for name, schema in schemas.items():
    jsonschema.Draft202012Validator.check_schema(schema)
    validators[name] = jsonschema.Draft202012Validator(schema, registry=registry)
for line in open(sys.argv[2]):
    name, command, document = json.loads(line)
    for error in validators[name].iter_errors(document):
        best = jsonschema.exceptions.best_match([error])
        print(f'{command}: {name}: {best.json_path}: {best.message}'[:600])
"#;

/// Verbs without documents, with the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("bench", "a group"),
    ("bench-files", "the format of its results"),
    ("bench-images", "the format of its results"),
    ("cat", "contents"),
    ("completions", "a script"),
    ("diskutil", "another program"),
    ("evidence", "a group"),
    ("hdiutil", "another program"),
    ("resources", "a group"),
    ("resources-extract", "contents"),
    ("shims", "a group"),
    ("shims-install", "links"),
    ("shims-list", "a list for people"),
    ("snapshot", "a group"),
    ("stack", "a group"),
    ("timemachine", "a group"),
    ("timemachine-cat", "contents"),
];

/// Schemas whose documents need more than this test has, and the test that has it.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bench-articles", "results of a benchmark: see bench.rs"),
    ("checkpoint", "a bucket: see bucket.rs"),
    ("common", "definitions alone"),
    ("web", "the feature `web`: see web.rs"),
];

fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

/// Runs of the command, whose documents are kept.
struct Runs {
    scratch: Scratch,
    lines: RefCell<Vec<String>>,
    seen: RefCell<BTreeSet<String>>,
}

impl Runs {
    fn new() -> Self {
        Self {
            scratch: Scratch::new(),
            lines: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    fn record(&self, schema: &str, args: &[&str], document: &Value) {
        self.seen.borrow_mut().insert(schema.to_owned());
        let line = serde_json::json!([schema, args.join(" "), document]);
        self.lines.borrow_mut().push(line.to_string());
    }

    /// Runs a verb with `--json` and keeps its document, and the errors and warnings beside it. The
    /// name of the schema is that of the verb.
    fn run(&self, words: usize, args: &[&str]) -> Output {
        let schema = args[..words].join("-");
        let all = [args, &["--json"]].concat();
        let mut command = self.scratch.command(&all);
        let folder = self.scratch.path("");
        command.env("HOME", &folder).env("XDG_RUNTIME_DIR", &folder);
        let output = command.output().unwrap();
        if !output.stdout.is_empty() {
            let document = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
            self.record(&schema, args, &document);
        }
        for line in stderr(&output).lines() {
            let document: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"));
            let kind = ["error", "warning"]
                .into_iter()
                .find(|kind| document[kind].is_object())
                .unwrap_or(&schema);
            self.record(kind, args, &document);
        }
        output
    }

    fn ok(&self, args: &[&str]) -> Value {
        self.ok_of(1, args)
    }

    fn ok_of(&self, words: usize, args: &[&str]) -> Value {
        let output = self.run(words, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{args:?} reports nothing");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a verb that fails with this code and an error on standard error.
    fn fails(&self, code: i32, args: &[&str]) -> Value {
        let output = self.run(1, args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            stderr(&output)
        );
        let errors = stderr(&output);
        let error = errors
            .lines()
            .rfind(|line| line.contains("\"error\""))
            .unwrap_or_else(|| panic!("{args:?}: no error in {errors}"));
        let error: Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["exit"], code, "{args:?}");
        error["error"].clone()
    }
}

/// Fails if a verb of the command's table has no schema, or a schema no verb.
#[test]
fn every_verb_has_a_schema() {
    let scratch = Scratch::new();
    scratch.ok(&["man", "pages"]);
    let mut files: BTreeSet<String> = fs::read_dir(schemas())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for name in ["common", "error", "warning"] {
        assert!(files.remove(name), "{name}");
    }
    for entry in fs::read_dir(scratch.path("pages")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.trim_end_matches(".1");
        let Some(verb) = name.strip_prefix("bandsaw-") else {
            continue;
        };
        let without = WITHOUT.iter().any(|(name, _)| *name == verb);
        assert!(
            files.remove(verb) != without,
            "{verb}: a schema in docs/schema, or an entry in the list of verbs without one"
        );
    }
    // A system without FUSE has fewer verbs.
    if cfg!(target_os = "linux") {
        assert!(files.is_empty(), "no verb has these: {files:?}");
    }
}

/// The kinds of images: name, and options of `create`.
const IMAGES: &[(&str, &[&str])] = &[
    ("raw.img", &["--fs", "hfs+"]),
    ("raw-apfs.img", &["--fs", "apfs"]),
    ("hfsx.img", &["--fs", "hfsx", "--layout", "none"]),
    ("apm.img", &["--fs", "hfs+", "--layout", "spud"]),
    ("b.sparsebundle", &["--fs", "hfs+"]),
    ("b-apfs.sparsebundle", &["--fs", "apfs"]),
    ("s.sparseimage", &["--fs", "hfs+"]),
    ("a.asif", &["--fs", "apfs"]),
    ("z.dmg", &["--format", "udzo", "--fs", "hfs+"]),
    (
        "secret.img",
        &["--fs", "hfs+", "--encrypt", "aes-256", "--passfile", "key"],
    ),
    (
        "secret.sparsebundle",
        &["--fs", "apfs", "--encrypt", "aes-128", "--passfile", "key"],
    ),
];

#[test]
fn documents_obey_their_schemas() {
    let Some(python) = peer_python("jsonschema") else {
        skip::without_program("documents_obey_their_schemas", "no Python with jsonschema");
        return;
    };
    let runs = Runs::new();
    runs.scratch.sample();
    runs.scratch.write("key", "key");
    runs.scratch.write("key2", "key2");
    for (name, options) in IMAGES {
        let from = ["create", name, "--from", "src", "--size", "24m"];
        let args = if name.ends_with(".dmg") {
            [&from[..4], options].concat()
        } else {
            [&from, *options].concat()
        };
        runs.ok(&args);
        reading(&runs, name);
        changing(&runs, name);
    }
    foreign(&runs);
    locked_and_damaged(&runs);
    compressed(&runs);
    stacked(&runs);
    sizes_and_keys(&runs);
    in_use(&runs);
    usage_errors(&runs);
    several_arguments(&runs);
    benchmarks(&runs);
    let mut missing: BTreeSet<String> = fs::read_dir(schemas())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for (name, _) in ELSEWHERE {
        missing.remove(*name);
    }
    if !can_mount() {
        for name in ["attach", "mount", "detach", "timemachine-mount"] {
            missing.remove(name);
        }
    }
    missing.retain(|name| !runs.seen.borrow().contains(name));
    assert!(missing.is_empty(), "no document of {missing:?}");
    check_all(&python, &runs.scratch, &runs.lines.borrow());
}

/// Fails unless each document, a line with its schema and command, obeys its schema.
fn check_all(python: &Path, scratch: &Scratch, lines: &[String]) {
    let checked = Command::new(python)
        .args(["-c", VALIDATE])
        .arg(schemas())
        .arg(scratch.write("documents", lines.join("\n")))
        .output()
        .unwrap();
    let wrong = String::from_utf8_lossy(&checked.stdout);
    assert!(
        checked.status.success() && wrong.is_empty(),
        "{wrong}{}",
        stderr(&checked)
    );
}

/// Fails unless `document` obeys `schema`, for tests with documents that need more than a disk.
pub(crate) fn assert_obeys(scratch: &Scratch, schema: &str, document: &Value) {
    match peer_python("jsonschema") {
        Some(python) => {
            let line = serde_json::json!([schema, schema, document]);
            check_all(&python, scratch, &[line.to_string()]);
        }
        None => skip::without_program(schema, "no Python with jsonschema"),
    }
}

/// Compares two runs that differ in a series and in the size of requests.
fn benchmarks(runs: &Runs) {
    fs::create_dir(runs.scratch.path("work")).unwrap();
    let short = ["bench", "files", "work", "--scale", "0.0002", "--sets", "3"];
    for (name, request) in [("one.json", "64k"), ("two.json", "1m")] {
        runs.scratch
            .ok(&[&short[..], &["--request", request, "-o", name]].concat());
    }
    let results = fs::read_to_string(runs.scratch.path("two.json")).unwrap();
    let mut other: Value = serde_json::from_str(&results).unwrap();
    other["series"][0]["label"] = "other".into();
    runs.scratch.write("other.json", other.to_string());
    let compared = runs.ok_of(2, &["bench", "compare", "one.json", "two.json"]);
    assert_eq!(compared["compared"].as_array().unwrap().len(), 2);
    let doubts = compared["doubts"].as_array().unwrap();
    assert!(doubts.contains(&"requests".into()), "{compared}");
    let compared = runs.ok_of(2, &["bench", "compare", "one.json", "other.json"]);
    assert_eq!(compared["unmatched"].as_array().unwrap().len(), 4);
    for least in ["0", "1000"] {
        let gate = ["two.json", "--against", "one.json", "--min-ratio", least];
        let gate = runs.run(2, &[&["bench", "gate"], &gate[..]].concat());
        assert!(matches!(gate.status.code(), Some(0 | 1)), "{gate:?}");
    }
}

/// Runs every verb that reads on an image.
fn reading(runs: &Runs, name: &str) {
    let key: &[&str] = if name.starts_with("secret") {
        &["--passfile", "key"]
    } else {
        &[]
    };
    for args in [
        &["info", name][..],
        &["ls", "-R", name],
        &["tree", name],
        &["du", name],
        &["check", name],
        &["checksum", name],
        &["diagnose", name],
        &["advise", name],
        &["xattr", &format!("{name}:/hello.txt")],
    ] {
        runs.ok(&[args, key].concat());
    }
    let manifest = format!("{name}.jsonl");
    runs.ok_of(
        2,
        &[&["evidence", "manifest", name, "-o", &manifest], key].concat(),
    );
    runs.ok_of(2, &[&["evidence", "verify", &manifest, name], key].concat());
    let csv = format!("{name}.csv");
    runs.ok_of(2, &["evidence", "timeline", &manifest, "-o", &csv]);
    let all = format!("{name}:/");
    runs.ok(&[&["recover", name, "--list"], key].concat());
    let folder = format!("{name}.recovered");
    let report = format!("{name}.recovered.json");
    runs.ok(&[
        &["recover", name, &folder, "--partial", "--report", &report],
        key,
    ]
    .concat());
    runs.ok(&[&["diff", name, &all], key].concat());
    let differs = runs.run(
        1,
        &[&["diff", name, &format!("{name}:/hello.txt")], key].concat(),
    );
    assert_eq!(differs.status.code(), Some(11), "{differs:?}");
    runs.ok(&["isencrypted", name]);
    runs.run(1, &[&["verify", name], key].concat());
    runs.run(1, &[&["resize", name, "--limits"], key].concat());
    runs.ok(&[&["extract", name, &format!("out-{name}")], key].concat());
    if !name.ends_with(".dmg") {
        runs.ok(&[&["info", "--map", name], key].concat());
        runs.ok(&[&["compact", "--dry-run", "--bands", name], key].concat());
        runs.ok(&[&["report", name, "-o", &format!("{name}.html")], key].concat());
    }
}

/// Runs every verb that changes an image, each of which reports what it did.
fn changing(runs: &Runs, name: &str) {
    if name.ends_with(".dmg") {
        runs.fails(1, &["rm", &format!("{name}:/hello.txt")]);
        return;
    }
    let key: &[&str] = if name.starts_with("secret") {
        &["--passfile", "key"]
    } else {
        &[]
    };
    let at = |path: &str| format!("{name}:{path}");
    let change = |args: &[&str]| {
        let done = runs.ok(&[args, key].concat());
        let changes = done["changes"].as_array().unwrap();
        assert!(
            done["path"] == *name && !changes.is_empty(),
            "{args:?}: {done}"
        );
        changes.clone()
    };
    let put = change(&["put", "--from", "src/big.bin", &at("/big")]);
    assert_eq!(
        (&put[0]["action"], &put[0]["size"]),
        (&"created".into(), &3_000_017.into())
    );
    let put = change(&["put", "--overwrite", "--from", "key", &at("/big")]);
    assert_eq!(put[0]["action"], "replaced");
    let made = change(&["mkdir", "-p", &at("/new/folder")]);
    assert_eq!(made.len(), 2);
    change(&["chmod", "-R", "640", &at("/new")]);
    change(&["chmod", "640", &at("/big")]);
    let touched = change(&["touch", &at("/big"), &at("/touched")]);
    assert_eq!(
        [&touched[0]["action"], &touched[1]["action"]],
        ["touched", "created"]
    );
    change(&["xattr", "--set", "com.example.a=b", &at("/big")]);
    change(&["xattr", "--remove", "com.example.a", &at("/big")]);
    let moved = change(&["mv", &at("/big"), &at("/new")]);
    assert_eq!(
        (&moved[0]["source_path"], &moved[0]["volume_path"]),
        (&"/big".into(), &"/new/big".into())
    );
    change(&["ln", "-s", "touched", &at("/symbolic")]);
    change(&["ln", &at("/touched"), &at("/hard")]);
    let removed = change(&["rm", "-r", &at("/new")]);
    assert_eq!(removed[0]["objects"], 3);
    change(&["rm", &at("/hard")]);
    runs.ok(&[&["cp", "key", &at("/copied")], key].concat());
    runs.ok(&[&["cp", &at("/copied"), &format!("out-{name}/copied")], key].concat());
    runs.ok(&[&["compress", "--estimate", "-v", &at("/")], key].concat());
    runs.ok(&[&["compress", "-v", &at("/")], key].concat());
    let total = runs.ok(&[&["stat", &at("/")], key].concat());
    let largest = &total["folder"]["largest_savings"][0]["volume_path"];
    let file = runs.ok(&[&["stat", &at(largest.as_str().unwrap())], key].concat());
    assert_eq!(file["file"]["compressed"], true, "{file}");
    runs.ok(&[&["du", &at("/")], key].concat());
    runs.ok(&[&["decompress", "-v", &at("/")], key].concat());
    runs.ok(&[&["trim", name], key].concat());
    runs.ok(&[&["compact", name], key].concat());
    let repaired = runs.run(1, &[&["repair", name], key].concat());
    assert_eq!(repaired.status.code(), Some(10), "{name}: {repaired:?}");
}

/// Disks without volumes that can be read.
fn foreign(runs: &Runs) {
    runs.ok(&["create", "blank.img", "--size", "4m"]);
    let mut fat = vec![0; 4 << 20];
    fat[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
    fat[11..13].copy_from_slice(&512_u16.to_le_bytes());
    fat[54..59].copy_from_slice(b"FAT16");
    fat[510..512].copy_from_slice(&[0x55, 0xaa]);
    runs.scratch.write("fat.img", fat);
    runs.scratch
        .write("nonsense.bin", "no image at all ".repeat(64));
    for name in ["blank.img", "fat.img", "nonsense.bin", "missing", "src"] {
        for verb in [
            "info", "ls", "check", "diagnose", "du", "verify", "checksum", "repair",
        ] {
            runs.run(1, &[verb, name]);
        }
    }
    assert_eq!(runs.fails(3, &["ls", "missing"])["kind"], "not_found");
    runs.ok(&["format", "blank.img", "--fs", "hfs+", "--volname", "New"]);
}

fn locked_and_damaged(runs: &Runs) {
    runs.scratch.write("wrong", "wrong");
    for verb in ["info", "ls", "check", "du"] {
        runs.run(1, &[verb, "secret.img"]);
        runs.run(1, &[verb, "secret.img", "--passfile", "wrong"]);
    }
    assert_eq!(
        runs.fails(7, &["ls", "secret.img", "--passfile", "wrong"])["kind"],
        "wrong_key"
    );
    let mut disk = fs::read(runs.scratch.path("raw.img")).unwrap();
    disk[512..1024].fill(0xff);
    runs.scratch.write("bad.img", &disk);
    for args in [
        &["info", "bad.img"][..],
        &["check", "bad.img"],
        &["diagnose", "bad.img"],
        &["repair", "--dry-run", "bad.img"],
        &["repair", "bad.img"],
        &["repair", "--undo", "bad.img"],
    ] {
        runs.run(1, args);
    }
    // Zeros over the middle of the volume: damage, losses and refusals.
    let middle = disk.len() / 2;
    disk[(1 << 20)..middle].fill(0);
    runs.scratch.write("worse.img", &disk);
    for verb in [
        "info", "ls", "check", "diagnose", "repair", "du", "trim", "compact",
    ] {
        runs.run(1, &[verb, "worse.img"]);
    }
    runs.scratch.write("b.sparsebundle/bands/ffff", "stray");
    for verb in ["info", "check", "compact", "du"] {
        runs.run(1, &[verb, "b.sparsebundle"]);
    }
}

fn compressed(runs: &Runs) {
    for format in ["udro", "ulfo", "udbz", "udrw"] {
        let target = format!("converted.{format}");
        runs.ok(&["convert", "raw.img", &target, "--format", format]);
        reading_compressed(runs, &target);
    }
    runs.ok(&["dmg", "src", "-o", "made.dmg"]);
    let made = fs::read(runs.scratch.path("made.dmg")).unwrap();
    let signed = bandsaw::testing::udif::with_signature(&made, 12);
    runs.scratch.write("signed.dmg", signed);
    reading_compressed(runs, "signed.dmg");
    runs.ok(&["segment", "made.dmg", "-o", "cut.dmg", "--count", "2"]);
    runs.ok(&["join", "cut.dmg", "-o", "joined.dmg"]);
    runs.scratch.write("license.txt", "A license.\n");
    runs.ok_of(
        2,
        &["resources", "add", "joined.dmg", "--license", "license.txt"],
    );
    let list = runs.ok_of(2, &["resources", "list", "joined.dmg"]);
    let id = list["resources"][0]["id"].as_str().unwrap();
    let kind = list["resources"][0]["resource_type"].as_str().unwrap();
    runs.ok_of(
        2,
        &["resources", "remove", "joined.dmg", &format!("{kind}:{id}")],
    );
}

fn reading_compressed(runs: &Runs, name: &str) {
    runs.ok(&["info", name]);
    runs.run(1, &["verify", name]);
}

fn stacked(runs: &Runs) {
    runs.ok_of(2, &["stack", "create", "raw.img", "one.asif"]);
    runs.ok_of(2, &["stack", "info", "raw.img", "one.asif"]);
    runs.ok(&[
        "put",
        "--from",
        "key",
        "--shadow",
        "one.asif",
        "raw.img:/layered",
    ]);
    runs.ok_of(2, &["stack", "flatten", "raw.img", "one.asif", "flat.img"]);
    runs.ok_of(2, &["stack", "commit", "raw.img", "one.asif"]);
    for verb in ["create", "list", "restore", "delete"] {
        let args = ["snapshot", verb, "b-apfs.sparsebundle", "first"];
        runs.ok_of(2, if verb == "list" { &args[..3] } else { &args });
    }
    states(runs);
    backups(runs);
}

fn backups(runs: &Runs) {
    let history = History::new(1, 4, 8);
    let (first, last) = (&history.backups[0], &history.backups[3]);
    for (name, bytes) in [
        ("backups-hfs.img", backupd::hfs_plus(&history, |_, _| {})),
        ("backups-apfs.img", backupd::apfs(&history, |_, _| {})),
    ] {
        runs.scratch.write(name, bytes);
        runs.ok_of(2, &["timemachine", "list", name]);
        runs.ok_of(2, &["timemachine", "ls", name, "latest"]);
        runs.ok_of(2, &["timemachine", "ls", name, "latest:/Users"]);
        runs.ok_of(2, &["timemachine", "find", name, "*"]);
        let paths = history.paths();
        let path = paths.iter().find(|path| path.contains("file")).unwrap();
        runs.ok_of(2, &["timemachine", "versions", name, path]);
        runs.ok_of(2, &["timemachine", "diff", name, &first.date, &last.date]);
        let out = format!("out-{name}");
        runs.ok_of(2, &["timemachine", "restore", name, "latest", &out]);
        runs.run(2, &["timemachine", "restore", name, "latest", &out]);
        runs.run(2, &["timemachine", "ls", name, "2020-01-01"]);
    }
    let convert = ["timemachine", "convert", "backups-hfs.img", "converted.img"];
    runs.ok_of(2, &[&convert[..], &["--size", "64m"]].concat());
    runs.run(1, &["health", "."]);
    if can_mount() {
        runs.ok_of(2, &["timemachine", "mount", "backups-apfs.img", "mnt"]);
        runs.ok(&["detach", "mnt"]);
    }
}

fn states(runs: &Runs) {
    let bundle = "b-apfs.sparsebundle";
    runs.ok(&["scrub", bundle]);
    let uuid = "EB3EA526-064B-58FA-807A-5F5144738118";
    let machine = ["timemachine", "create", ".", "--machine", "New Mac"];
    let rest = ["--uuid", uuid, "--size", "64m", "--fs", "apfs"];
    runs.ok_of(2, &[&machine[..], &rest].concat());
    runs.ok_of(2, &["timemachine", "status", bundle]);
    runs.ok_of(2, &["timemachine", "keep", bundle, "--dry-run"]);
    runs.ok_of(2, &["timemachine", "keep", bundle, "--whole-copy"]);
    runs.ok_of(2, &["timemachine", "states", bundle, "--verify"]);
    runs.ok(&["send", bundle, "sent"]);
    runs.scratch
        .write("watch.toml", format!("bundles = [\"{bundle}\"]"));
    runs.ok(&["watch", "watch.toml", "--once"]);
    runs.ok(&["receive", "sent", "--have", bundle]);
    let forget = ["timemachine", "forget", bundle, "--keep-last", "1"];
    runs.ok_of(2, &forget);
    runs.ok_of(2, &["timemachine", "roll-back", bundle, "--dry-run"]);
    runs.ok_of(2, &["timemachine", "roll-back", bundle]);
    runs.ok_of(2, &["timemachine", "reset-verification", bundle]);
}

fn sizes_and_keys(runs: &Runs) {
    runs.ok(&["resize", "raw.img", "--size", "32m", "--dry-run"]);
    let resized = runs.ok(&["resize", "raw.img", "--size", "32m"]);
    let actions = resized["steps"].as_array().unwrap().iter();
    let grown = ["grow_disk", "resize_partition", "resize_volume"];
    assert!(actions.map(|step| &step["action"]).eq(grown), "{resized}");
    let last = &resized["steps"][2];
    assert_eq!(last["file_system"], "HFS+", "{resized}");
    runs.ok(&["resize", "raw.img", "--size", "24m"]);
    let disk = ["resize", "raw-apfs.img", "--size", "32m", "--image-only"];
    let moved = runs.ok(&disk);
    assert_eq!(moved["steps"][1]["action"], "move_backup_map", "{moved}");
    runs.ok(&["reband", "b-apfs.sparsebundle", "--band-size", "1m"]);
    for place in ["local", "smb", "s3"] {
        for size in ["10g", "2t", "4000000t"] {
            runs.ok(&["advise", "--size", size, "--on", place]);
        }
    }
    runs.ok(&["enable-journal", "raw.img"]);
    runs.ok(&["disable-journal", "raw.img"]);
    let secret = ["secret.img", "--passfile", "key", "--new-passfile", "key2"];
    runs.ok_of(2, &[&["passwd", "add"], &secret[..]].concat());
    runs.ok_of(2, &["passwd", "list", "secret.img"]);
    runs.ok_of(
        2,
        &["passwd", "remove", "secret.img", "1", "--passfile", "key2"],
    );
    let again = ["secret.img", "--passfile", "key2", "--new-passfile", "key"];
    runs.ok(&[&["passwd"], &again[..]].concat());
    runs.ok(&["erase-keys", "secret.img", "--yes", "--yes"]);
}

fn can_mount() -> bool {
    cfg!(target_os = "linux")
        && File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_ok()
}

/// Images that are mounted, attached and served.
fn in_use(runs: &Runs) {
    runs.ok(&["list"]);
    if !can_mount() {
        return;
    }
    let mounted = runs.ok(&["mount", "raw-apfs.img", "mnt"]);
    let listed = runs.ok(&["list"]);
    assert_eq!(
        listed["devices"][0]["mounts"][0]["mount_point"],
        mounted["volumes"][0]["mount_point"]
    );
    runs.run(1, &["rm", "raw-apfs.img:/hello.txt"]);
    runs.ok(&["detach", "mnt"]);
    let attached = runs.ok(&[
        "attach",
        "raw-apfs.img",
        "--folders",
        "--mountroot",
        "volumes",
    ]);
    let name = |made: &Value| made["volumes"][0]["device"].clone();
    assert_eq!(name(&attached), name(&mounted), "one name for one volume");
    runs.ok(&["detach", attached["device"].as_str().unwrap()]);
    let disk = runs.ok(&["mount", "--as-disk", "a.asif", "mnt"]);
    assert_eq!(disk["volumes"][0]["format"], "ASIF");
    runs.ok(&["list"]);
    runs.ok(&["detach", "mnt"]);
    runs.record("serve", &["serve"], &served(runs));
}

/// Returns the document of `serve` once it accepts connections.
fn served(runs: &Runs) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(["serve", "raw.img", "--socket", "socket", "--json"])
        .current_dir(runs.scratch.path(""))
        .env("XDG_RUNTIME_DIR", runs.scratch.path(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut documents =
        serde_json::Deserializer::from_reader(child.stdout.take().unwrap()).into_iter::<Value>();
    let document = documents.next().unwrap().unwrap();
    let id = child.id().to_string();
    let ended = Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert!(ended.success() && child.wait().unwrap().success());
    document
}

fn usage_errors(runs: &Runs) {
    for (args, reason) in [
        (&["info"][..], "missing_argument"),
        (&["info", "--bogus", "raw.img"], "unknown_argument"),
        (&["resize", "--size", "abc", "raw.img"], "invalid_value"),
        (&["nosuchverb"], "unknown_command"),
        (&["bench"], "missing_command"),
        (&["info", "--quoting", "wrong", "raw.img"], "invalid_value"),
    ] {
        let error = runs.fails(2, args);
        assert_eq!(
            (&error["kind"], &error["reason"]),
            (&"invalid".into(), &reason.into()),
            "{args:?}"
        );
        for text in ["message", "hint"] {
            let text = error[text].as_str().unwrap();
            assert!(
                !text.is_empty() && !text.contains('\n') && !text.contains("error:"),
                "{args:?}: {text}"
            );
        }
    }
    let output = runs.scratch.run(&["--json"]);
    assert_eq!(output.status.code(), Some(2));
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    runs.record("error", &["--json"], &error);
    for args in [
        &["cat", "raw.img:/hello.txt"][..],
        &["completions", "bash"],
        &["resources", "extract", "made.dmg"],
        &["verify", "raw.img:/x"],
    ] {
        assert_eq!(runs.fails(2, args)["kind"], "invalid", "{args:?}");
    }
}

/// A missing argument does not hide the results of the others.
fn several_arguments(runs: &Runs) {
    for verb in ["checksum", "du"] {
        let output = runs.run(1, &[verb, "raw.img", "missing", "a.asif"]);
        assert_eq!(output.status.code(), Some(3), "{verb}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = if verb == "du" { "items" } else { "images" };
        let size = |at: usize| document[list][at]["size"].is_u64();
        assert!(size(0) && !size(1) && size(2), "{verb}: {document}");
        assert_eq!(document[list][1]["error"]["kind"], "not_found", "{verb}");
        let text = runs.scratch.run(&[verb, "raw.img", "missing", "a.asif"]);
        let (out, errors) = (String::from_utf8_lossy(&text.stdout), stderr(&text));
        assert!(
            out.contains("raw.img") && out.contains("a.asif") && errors.contains("missing"),
            "{verb}: {out}{errors}"
        );
    }
}
