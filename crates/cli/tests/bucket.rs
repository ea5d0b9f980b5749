//! Bundles in buckets of a real store: Ceph, started here.
#![cfg(feature = "s3")]

#[path = "../../../tests/common/ceph.rs"]
pub(crate) mod ceph;
#[path = "common/hostile.rs"]
mod hostile;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use crate::common::backupd::{self, History, Item};
use crate::common::{Scratch, stderr};
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, LocalCache, NetworkOptions, OpenOptions};
use bandsaw::store::FlushTo;
use ceph::Ceph;
use hostile::Deed;
use serde_json::Value;

const IMAGE: &str = "s3://test/backups/Docs.sparsebundle";

/// A verb at least of each row of the table in docs/object-stores.md, all of which go one way. `@`
/// is a bundle in a bucket, `#` an encrypted one.
const LINES: &[&str] = &[
    "info @",
    "extract @ out",
    "check @",
    "put --from src/hello.txt @:/put",
    "resize @ --size 96m",
    "compact --battery-allowed @",
    "reband --band-size 2m @",
    "repair --undo-dir . @",
    "convert @ converted.sparsebundle",
    "snapshot list @",
    "stack create @ layer.asif",
    "passwd --passfile key --new-passfile new --iterations 150000 #",
    "isencrypted #",
    "format --erase --fs hfs+ @",
    "create --overwrite @ --size 16m",
    "erase-keys --yes --yes #",
];

/// Verbs that have tests of their own: those that serve an image until they are ended, and those of
/// states and backups.
const TRIED_ELSEWHERE: &[&str] = &["mount", "serve", "attach", "send", "receive", "timemachine"];

struct Bench {
    scratch: Scratch,
    variables: [(&'static str, String); 4],
}

impl Bench {
    fn run(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.scratch.command(&words);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command.output().unwrap()
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        // There is nothing to repair.
        let is_idle = line.starts_with("repair ") && output.status.code() == Some(10);
        assert!(
            output.status.success() || is_idle,
            "{line}: {}",
            stderr(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(!output.status.success(), "{line} succeeds");
        stderr(&output)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }
}

#[test]
#[ignore = "full: a cluster of Ceph, for 70 s"]
fn a_bundle_lives_in_a_bucket() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.make_bucket("test");
    let bench = Bench {
        scratch: Scratch::new(),
        variables: ceph.variables(),
    };
    bench.scratch.sample();
    bench.scratch.write("letter", "dear diary");
    from_create_to_checkpoint(&bench, &ceph);
    large_bands_are_plain_objects_too(&bench, &ceph);
    a_large_image_keeps_its_files(&bench);
    nothing_is_left_of_what_fails(&bench, &ceph);
    space_that_waits_for_a_checkpoint_is_reported(&bench);
    data_flushed_to_a_cache_are_not_lost(&bench);
    states_and_backups_are_read_in_a_bucket(&bench);
    the_table_of_verbs_is_true(&bench);
}

fn from_create_to_checkpoint(bench: &Bench, ceph: &Ceph) {
    let made = bench.json(&format!(
        "create {IMAGE} --size 64m --band-size 1m --fs hfs+ --volname Docs --from src"
    ));
    assert_eq!(
        (&made["path"], &made["bucket"]["lagging"]),
        (&Value::from(IMAGE), &Value::from(0))
    );
    let refused = bench.fails(&format!("create {IMAGE} --size 1m"));
    assert!(
        refused.contains("already exists") && refused.contains("--overwrite"),
        "{refused}"
    );
    bench.ok(&format!("put --from letter {IMAGE}:/letter"));
    assert!(bench.ok(&format!("ls {IMAGE}:/")).contains("letter"));
    bench.ok(&format!("snapshot create {IMAGE} first"));
    bench.ok(&format!("rm {IMAGE}:/letter"));
    a_snapshot_is_an_image_to_read(bench);
    assert!(!bench.ok(&format!("ls {IMAGE}:/")).contains("letter"));
    assert!(
        bench
            .fails(&format!("snapshot restore {IMAGE} other"))
            .contains("the bundle does not have this snapshot")
    );
    bench.ok(&format!("snapshot restore {IMAGE} first"));
    assert_eq!(bench.ok(&format!("cat {IMAGE}:/letter")), "dear diary");
    let snapshots = bench.json(&format!("snapshot list {IMAGE}"));
    assert_eq!(snapshots["snapshots"][0]["name"], "first");
    let done = bench.json(&format!("checkpoint {IMAGE}"));
    crate::json::assert_obeys(&bench.scratch, "checkpoint", &done);
    assert_eq!(bench.json(&format!("info {IMAGE}"))["bucket"]["lagging"], 0);
    assert!(
        bench
            .ok(&format!("check {IMAGE}"))
            .contains("no problems found")
    );
    // Another program finds the bundle, and what is ours.
    let keys: Vec<String> = ceph
        .keys("test")
        .into_iter()
        .filter(|key| !key.contains("@first/"))
        .collect();
    let is_band = |name: &str| {
        name.strip_prefix("bands/")
            .is_some_and(|band| u64::from_str_radix(band, 16).is_ok())
    };
    for key in &keys {
        let name = key.strip_prefix("backups/Docs.sparsebundle/").unwrap();
        let is_known = matches!(name, "Info.plist" | "Info.bckup" | "token" | "lock");
        assert!(
            is_known || is_band(name) || name.starts_with(".bandsaw/"),
            "{name}"
        );
    }
    assert!(
        keys.iter().filter(|key| key.contains("/bands/")).count() > 3,
        "{keys:?}"
    );
    bench.ok(&format!("snapshot delete {IMAGE} first"));
    assert_eq!(
        bench.json(&format!("snapshot list {IMAGE}"))["snapshots"],
        Value::Array(Vec::new())
    );
}

fn a_snapshot_is_an_image_to_read(bench: &Bench) {
    let kept = format!("{IMAGE}@first");
    for cache in ["", " --cache of-snapshots"] {
        assert_eq!(
            bench.ok(&format!("cat{cache} {kept}:/letter")),
            "dear diary"
        );
        assert!(
            bench
                .ok(&format!("ls{cache} {kept}:Docs:/"))
                .contains("letter")
        );
    }
    let sum = bench.ok(&format!("checksum {kept}"));
    assert_ne!(
        sum,
        bench.ok(&format!("checksum {IMAGE}")).replace(IMAGE, &kept)
    );
    assert!(
        bench
            .ok(&format!("check {kept}"))
            .contains("no problems found")
    );
    assert_eq!(bench.json(&format!("info {kept}"))["path"], kept.as_str());
    bench.ok(&format!("extract {kept} kept"));
    assert_eq!(
        fs::read(bench.scratch.path("kept/letter")).unwrap(),
        b"dear diary"
    );
    bench.ok(&format!("convert {kept} kept.dmg --format udzo"));
    assert_eq!(bench.ok("cat kept.dmg:/letter"), "dear diary");
    let refused = bench.fails(&format!("put --from letter {kept}:/new"));
    assert!(refused.contains("a snapshot is read-only"), "{refused}");
    let missing = bench.fails(&format!("ls {IMAGE}@second:/"));
    assert!(
        missing.contains("the bundle does not have this snapshot"),
        "{missing}"
    );
    // A bundle of that name goes before.
    bench.ok(&format!(
        "create {kept} --format udsb --size 4m --fs hfs+ --volname Other"
    ));
    assert!(!bench.ok(&format!("ls {kept}:Other:/")).contains("letter"));
    bench.ok(&format!("put --from letter {kept}:/new"));
}

/// States that `send` puts there, and backups of Time Machine in them.
fn states_and_backups_are_read_in_a_bucket(bench: &Bench) {
    let history = History::new(51, 4, 20);
    let image = bench
        .scratch
        .write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    bench.ok("convert hfs.img Mac.sparsebundle --band-size 1m");
    bench.ok("tm keep --whole-copy Mac.sparsebundle");
    let sent = bench.json("send Mac.sparsebundle s3://test/nas");
    crate::json::assert_obeys(&bench.scratch, "send", &sent);
    let state = sent["state"].as_str().unwrap().to_owned();
    let place = format!("s3://test/nas/Mac.sparsebundle@{state}");
    assert_eq!(sent["target"], place.as_str());
    // The model's links of folders have warnings, here as there.
    let check = |place: &str| bench.run(&format!("check {place}")).status.code();
    assert_eq!(check(&place), check("Mac.sparsebundle"));
    assert!(matches!(check(&place), Some(0 | 8)));
    for place in [&*place, "s3://test/nas/Mac.sparsebundle"] {
        let list = bench.json(&format!("tm list {place}"));
        assert_eq!(list["backups"].as_array().unwrap().len(), 5, "{list}");
    }
    bench.ok(&format!("tm restore {place} latest restored"));
    let (path, item) = history.backups[3]
        .objects
        .iter()
        .find(|(_, item)| matches!(item, Item::File(..)))
        .unwrap();
    let Item::File(bytes, _) = item else {
        unreachable!()
    };
    let restored = bench
        .scratch
        .path("restored")
        .join(backupd::VOLUME)
        .join(&path[1..]);
    assert!(fs::read(restored).unwrap() == *bytes);
    // Another state: the one before is as it was.
    bench.ok("put --from letter Mac.sparsebundle:/letter");
    bench.ok("tm keep Mac.sparsebundle");
    let second = bench.json("send Mac.sparsebundle s3://test/nas/");
    assert_ne!(second["state"], sent["state"]);
    // The lists are there already.
    assert!(
        second["sent_files"].as_u64() < sent["sent_files"].as_u64(),
        "{second}"
    );
    assert_eq!(
        bench.ok("cat s3://test/nas/Mac.sparsebundle:/letter"),
        "dear diary"
    );
    assert!(
        bench
            .fails(&format!("cat {place}:/letter"))
            .contains("letter")
    );
    let fetched = bench.json("receive fetched --from s3://test/nas/Mac.sparsebundle");
    crate::json::assert_obeys(&bench.scratch, "receive", &fetched);
    assert_eq!(fetched["state"], second["state"]);
    let path = fetched["path"].as_str().unwrap();
    assert_eq!(bench.ok(&format!("cat {path}:/letter")), "dear diary");
    let older = format!("receive fetched --from s3://test/nas/Mac.sparsebundle --state {state}");
    let older = bench.json(&older);
    bench.ok(&format!(
        "convert {} older.img",
        older["path"].as_str().unwrap()
    ));
    assert!(fs::read(bench.scratch.path("older.img")).unwrap() == fs::read(image).unwrap());
    // A bundle that somebody else put there is left alone.
    bench.ok("create s3://test/other/Mac.sparsebundle --size 16m --fs hfs+");
    assert!(
        bench
            .fails("send Mac.sparsebundle s3://test/other")
            .contains("not made by")
    );
}

/// The files in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

/// An image of 20 GB is changed, compacted and cut into other bands. Its files are what they should
/// be at each step.
fn a_large_image_keeps_its_files(bench: &Bench) {
    let image = "s3://test/life/Life.sparsebundle";
    let folder = bench.scratch.path("life");
    bench.scratch.write("life/first", vec![1; 3 << 20]);
    bench.scratch.write("life/second", b"short".repeat(1 << 20));
    let steps = Cell::new(0);
    let is_right = || {
        steps.set(steps.get() + 1);
        let out = format!("life-{}", steps.get());
        bench.ok(&format!("extract {image} {out}"));
        assert!(
            contents(&bench.scratch.path(&out)) == contents(&folder),
            "step {}",
            steps.get()
        );
        assert!(
            bench
                .ok(&format!("check {image}"))
                .contains("no problems found")
        );
    };
    bench.ok(&format!("create {image} --size 20g --fs hfs+ --from life"));
    is_right();
    bench.scratch.write("life/third", vec![3; 12 << 20]);
    bench.ok(&format!("put --from life/third {image}:/third"));
    fs::remove_file(folder.join("second")).unwrap();
    bench.ok(&format!("rm {image}:/second"));
    is_right();
    bench.ok(&format!("compact --battery-allowed {image}"));
    is_right();
    bench.ok(&format!("reband --band-size 100m {image}"));
    is_right();
}

/// Bands that are several objects.
fn large_bands_are_plain_objects_too(bench: &Bench, ceph: &Ceph) {
    let image = "s3://test/large/Large.sparsebundle";
    bench.ok(&format!(
        "create {image} --size 300m --band-size 128m --fs hfs+ --from src"
    ));
    assert_eq!(bench.json(&format!("info {image}"))["bucket"]["lagging"], 0);
    bench.ok(&format!("put --from letter {image}:/letter"));
    bench.ok(&format!(
        "convert {image} s3://test/large/Other.sparsebundle --band-size 100m"
    ));
    for (image, lagging) in [(image, 0), ("s3://test/large/Other.sparsebundle", 0)] {
        assert_eq!(
            bench.json(&format!("info {image}"))["bucket"]["lagging"],
            lagging,
            "{image}"
        );
        assert_eq!(bench.ok(&format!("cat {image}:/letter")), "dear diary");
        assert!(
            bench
                .ok(&format!("check {image}"))
                .contains("no problems found")
        );
    }
    assert!(
        !ceph
            .keys("test")
            .iter()
            .any(|key| key.starts_with("large/") && key.contains("/.bandsaw/objects/"))
    );
}

fn nothing_is_left_of_what_fails(bench: &Bench, ceph: &Ceph) {
    for line in [
        "create s3://test/none/a.sparsebundle --size 1m --fs hfs+ --from src",
        "create s3://test/none/a.dmg --size 1m",
        "create s3://test/none/a.sparsebundle --from src --compress zlib",
        "convert letter s3://test/none/a.sparsebundle",
        "convert --resume src/big.bin --image-format udrw s3://test/none/a.sparsebundle",
        "snapshot create s3://test/none/a.sparsebundle first",
        "checkpoint s3://test/none/a.sparsebundle",
        "checkpoint src",
    ] {
        bench.fails(line);
    }
    assert!(
        !ceph.keys("test").iter().any(|key| key.starts_with("none/")),
        "{:?}",
        ceph.keys("test")
    );
}

static VARIABLES: OnceLock<BTreeMap<&str, String>> = OnceLock::new();

/// For what is done in this process.
fn variables(name: &str) -> Option<String> {
    VARIABLES.get()?.get(name).cloned()
}

fn space_that_waits_for_a_checkpoint_is_reported(bench: &Bench) {
    VARIABLES
        .set(bench.variables.iter().cloned().collect())
        .unwrap();
    let network = NetworkOptions {
        variables,
        ..NetworkOptions::default()
    };
    let options = OpenOptions {
        access: Access::ReadWrite,
        network,
        ..OpenOptions::default()
    };
    let image = open::open(Path::new(IMAGE), &options).unwrap();
    image.disk().write_at(40 << 20, &[1; 4096]).unwrap();
    image.disk().flush().unwrap();
    let report = bench.ok(&format!("info {IMAGE}"));
    assert!(
        report.contains("plain objects are outdated in 1 file")
            && report.contains("written by process"),
        "{report}"
    );
    let output = bench.run(&format!("info {IMAGE}"));
    assert!(
        stderr(&output).contains(&format!("`bandsaw checkpoint {IMAGE}`")),
        "{}",
        stderr(&output)
    );
    let refused = bench.fails(&format!("checkpoint {IMAGE}"));
    assert!(
        refused.contains("in use by") && refused.contains("--steal-lease"),
        "{refused}"
    );
    drop(image);
    assert!(
        bench
            .ok(&format!("info {IMAGE}"))
            .contains("plain objects are up to date")
    );
}

/// A program that flushes to its cache vanishes. Its successor with that cache finds what was
/// flushed, unless another wrote the image.
fn data_flushed_to_a_cache_are_not_lost(bench: &Bench) {
    let image = "s3://test/cached/Docs.sparsebundle";
    bench.ok(&format!("create {image} --size 64m --fs hfs+"));
    let (folder, held) = (bench.scratch.path("cache"), bench.scratch.path("held"));
    let network = NetworkOptions {
        variables,
        steal_lease: true,
        cache: Some(LocalCache {
            folder: &folder,
            size: 16 << 20,
            flush: FlushTo::Local,
        }),
        ..NetworkOptions::default()
    };
    let options = OpenOptions {
        access: Access::ReadWrite,
        network,
        ..OpenOptions::default()
    };
    let opened = open::open(Path::new(image), &options).unwrap();
    let cache = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // The folder as a crash would leave it, if it came before the store has everything.
    fs::create_dir(&held).unwrap();
    let keep = |name: &str| fs::copy(cache.join(name), held.join(name));
    loop {
        opened.disk().write_at(60 << 20, &[7; 8192]).unwrap();
        opened.disk().flush().unwrap();
        if keep("journal").is_ok() {
            break;
        }
    }
    keep("blocks").unwrap();
    // The process that vanished is this one, and has the lock on its folder.
    std::mem::forget(opened);
    let put_back = |folder: &Path| {
        for name in ["journal", "blocks"] {
            fs::copy(held.join(name), folder.join(name)).unwrap();
        }
    };
    let disk = || {
        let reading = OpenOptions {
            access: Access::ReadOnly,
            network: network.without_cache(),
            ..options
        };
        open::open(Path::new(image), &reading)
            .unwrap()
            .disk()
            .read_vec(60 << 20, 8192)
            .unwrap()
    };
    let elsewhere = bench
        .scratch
        .path("elsewhere")
        .join(cache.file_name().unwrap());
    fs::create_dir_all(&elsewhere).unwrap();
    put_back(&elsewhere);
    bench.ok(&format!(
        "mkdir --steal-lease --cache elsewhere {image}:/found"
    ));
    assert_eq!(disk(), [7; 8192]);
    assert!(!elsewhere.join("journal").exists());
    put_back(&elsewhere);
    let refused = bench.fails(&format!(
        "put --cache elsewhere --from letter {image}:/letter"
    ));
    assert!(
        refused.contains("elsewhere/Docs.sparsebundle-") && refused.contains("remove the folder"),
        "{refused}"
    );
    fs::remove_dir_all(&elsewhere).unwrap();
    bench.ok(&format!(
        "put --cache elsewhere --flush local --from letter {image}:/letter"
    ));
    assert_eq!(
        bench.ok(&format!("cat --cache elsewhere {image}:/letter")),
        "dear diary"
    );
    assert!(elsewhere.join("index").exists());
    assert_eq!(bench.ok(&format!("cat {image}:/letter")), "dear diary");
}

/// Returns the table of docs/object-stores.md: verbs that go one way, and whether they work.
fn table() -> Vec<(Vec<String>, bool)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/object-stores.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| verb |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(matches!(cells[2], "yes" | "no"), "{row}");
        (
            cells[1]
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect(),
            cells[2] == "yes",
        )
    };
    rows.map(row).collect()
}

fn the_table_of_verbs_is_true(bench: &Bench) {
    let table = table();
    let encrypted = "s3://test/Secret.sparsebundle";
    bench.scratch.write("key", "secret\n");
    bench.scratch.write("new", "another\n");
    bench.ok(&format!(
        "create {encrypted} --size 4m --encrypt --passfile key --iterations 150000"
    ));
    let verb_of = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    for line in LINES {
        let row = table
            .iter()
            .find(|(verbs, _)| verbs.contains(&verb_of(line)));
        let (_, works) = row.unwrap_or_else(|| panic!("{line} is not in the table"));
        let with_cache = if *works { " --cache kept" } else { "" };
        let line = line.replace('@', IMAGE).replace('#', encrypted) + with_cache;
        if *works {
            bench.ok(&line);
        } else {
            let said = bench.fails(&line);
            assert!(said.contains("in a bucket"), "{line}: {said}");
        }
    }
    let help = bench.ok("--help");
    for (verbs, _) in &table {
        let is_tried = |verb: &String| {
            LINES.iter().any(|line| verb_of(line) == *verb)
                || TRIED_ELSEWHERE.contains(&verb.as_str())
        };
        assert!(verbs.iter().any(is_tried), "{verbs:?}");
        for verb in verbs {
            assert!(help.contains(&format!("\n  {verb} ")), "{verb} is no verb");
        }
    }
}

/// `bandsaw` in less than a gigabyte of memory, and in less than a minute and a half: its exit code
/// and what it says.
fn within_bounds(scratch: &Scratch, endpoint: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -v 1000000; ulimit -c 0; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_bandsaw"),
        ])
        .args(args);
    command
        .current_dir(scratch.path(""))
        .env("AWS_SKIP_SIGNATURE", "true")
        .env("AWS_ENDPOINT_URL", endpoint);
    let errors = fs::File::create(scratch.path("errors")).unwrap();
    let mut child = command
        .stdout(std::process::Stdio::null())
        .stderr(errors)
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed().as_secs() > 90 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{args:?} goes on for ever");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    (code, fs::read_to_string(scratch.path("errors")).unwrap())
}

/// A broken or hostile server gets an error soon. It takes no memory, and makes nobody wait.
#[test]
fn hostile_stores_are_refused() {
    let scratch = Scratch::new();
    for (deed, says) in [
        (Deed::Silent, "timeout: no response"),
        (Deed::EndlessListing, "more than 8 MiB"),
        (Deed::HugeListing, "more than 8 MiB"),
        (Deed::SamePage, "repeats a key"),
        (Deed::Trickle, "timeout: no response"),
        (Deed::EndlessError, "access denied"),
        (Deed::EndlessRange, "invalid response of"),
        (Deed::LongRange, "it sent more bytes than requested"),
        (Deed::ShortRange, "it sent"),
        (Deed::OtherRange, "invalid response of"),
        (Deed::StopsInRange, "timeout: no response"),
    ] {
        let endpoint = format!("http://{}", hostile::start(deed));
        let (code, error) = within_bounds(
            &scratch,
            &endpoint,
            &["info", "--timeout", "1", "s3://test/Docs.sparsebundle"],
        );
        assert!(
            code == Some(1) && error.contains(says),
            "{deed:?}: {code:?}: {error}"
        );
    }
}

#[test]
fn hostile_web_servers_are_refused() {
    let scratch = Scratch::new();
    for (deed, says) in [
        (Deed::Silent, "timeout: no response"),
        (Deed::EndlessError, "403"),
        (Deed::EndlessRange, "unknown format"),
        (Deed::LongRange, "unknown format"),
        (Deed::ShortRange, "too early"),
        (
            Deed::OtherRange,
            "the server sent another range than requested",
        ),
        (Deed::StopsInRange, "timeout: no response"),
    ] {
        let url = format!("http://{}/disk.img", hostile::start(deed));
        let (code, error) = within_bounds(&scratch, "", &["info", "--timeout", "1", &url]);
        assert!(
            matches!(code, Some(1 | 6)) && error.contains(says),
            "{deed:?}: {code:?}: {error}"
        );
    }
}
