//! `du`, `trim` and `compact` as a user runs them.

use std::fs;

use serde_json::Value;

use crate::common::Scratch;

#[test]
fn space_freed_by_rm_is_returned() {
    let scratch = Scratch::new();
    scratch.write("src/keep", "keep");
    scratch.write("src/big", noise(6_000_000));
    scratch.ok(&[
        "create",
        "Docs.sparsebundle",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--size",
        "32m",
        "--band-size",
        "1m",
        "--quiet",
    ]);
    scratch.ok(&["rm", "Docs.sparsebundle:/big"]);

    let before = &scratch.json(&["du", "Docs.sparsebundle", "src"])["items"];
    assert_eq!(before[0]["image"]["size"], 32 << 20);
    assert!(before[1]["image"].is_null() && before[1]["size"].as_u64() == Some(6_000_004));
    let on_disk = |facts: &serde_json::Value| facts["allocated"].as_u64().unwrap();
    let plan = scratch.json(&["compact", "--dry-run", "--bands", "Docs.sparsebundle"]);
    assert_eq!(plan["reclaimable"], before[0]["image"]["reclaimable"]);
    assert!(
        plan["units"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .all(|band| band["allocated"].as_u64() >= band["reclaimable"].as_u64())
    );
    assert_eq!(
        on_disk(&before[0]),
        on_disk(&plan),
        "a dry run changes nothing"
    );

    let trimmed = scratch.json(&["trim", "--full-check", "Docs.sparsebundle"]);
    assert_eq!(trimmed["reclaimed"], plan["reclaimable"]);
    assert!(on_disk(&trimmed) < 1 << 20, "{trimmed}");
    let compacted = scratch.json(&[
        "compact",
        "--battery-allowed",
        "--limit-rate",
        "1g",
        "Docs.sparsebundle",
    ]);
    assert_eq!(
        (compacted["reclaimed"].as_u64(), on_disk(&compacted)),
        (Some(0), on_disk(&trimmed))
    );
    assert_eq!(scratch.ok(&["cat", "Docs.sparsebundle:/keep"]), "keep");
    let sheet = scratch.ok(&["du", "Docs.sparsebundle"]);
    assert!(
        sheet.contains("would free nothing") && sheet.contains("0 completely free"),
        "{sheet}"
    );
}

/// Space that an APFS volume gives up waits for older checkpoints, unless space is asked for.
#[test]
fn space_freed_by_rm_on_apfs_is_returned() {
    for compacts in [false, true] {
        let scratch = Scratch::new();
        scratch.write("noise", noise(6_000_000));
        scratch.ok(&[
            "create",
            "v.sparsebundle",
            "--fs",
            "apfs",
            "--size",
            "64m",
            "--volname",
            "V",
        ]);
        scratch.ok(&["put", "--from", "noise", "v.sparsebundle:/noise"]);
        scratch.ok(&["put", "--from", "noise", "v.sparsebundle:/kept"]);
        scratch.ok(&["rm", "v.sparsebundle:/noise"]);
        let done = scratch.json(&[if compacts { "compact" } else { "trim" }, "v.sparsebundle"]);
        let taken = scratch.json(&["du", "v.sparsebundle"]).to_string();
        // Five checkpoints come instead, of some 20 KB each.
        assert!(
            done["reclaimed"]
                .as_u64()
                .is_none_or(|returned| returned > 5_850_000),
            "{done} {taken}"
        );
        assert!(
            allocated(&scratch.path("v.sparsebundle/bands")) < 6_500_000,
            "{done} {taken}"
        );
        assert!(scratch.ok(&["checksum", "v.sparsebundle"]).len() > 60);
        scratch.ok(&["check", "v.sparsebundle"]);
        let kept = scratch
            .command(&["cat", "v.sparsebundle:/kept"])
            .output()
            .unwrap()
            .stdout;
        assert!(kept == noise(6_000_000));
    }
}

/// Space that APFS holds back for older checkpoints is neither used nor free, and every verb says the
/// same of it.
#[test]
fn commands_report_the_same_pending_space() {
    let scratch = Scratch::new();
    scratch.write("noise", noise(6_000_000));
    for encrypted in [false, true] {
        let name = if encrypted {
            "e.sparsebundle"
        } else {
            "v.sparsebundle"
        };
        let args = [
            "create",
            name,
            "--fs",
            "apfs",
            "--size",
            "64m",
            "--volname",
            "V",
        ];
        let pass = ["--encrypt-volume", "--volume-passfile", "pass"];
        scratch.write("pass", "open sesame");
        scratch.ok(&[&args[..], if encrypted { &pass } else { &[] }].concat());
        let with =
            |args: &[&'static str]| [args, if encrypted { &pass[1..] } else { &[] }].concat();
        let (file, other) = (format!("{name}:/noise"), format!("{name}:/kept"));
        for to in [&file, &other] {
            scratch.ok(&[&with(&["put", "--from", "noise"])[..], &[to]].concat());
        }
        scratch.ok(&[&with(&["rm"])[..], &[&file]].concat());
        let measure = || {
            let du = [&with(&["du"])[..], &[name]].concat();
            scratch.json(&du)["items"][0]["image"].clone()
        };
        let du = measure();
        let info = scratch.json(&["info", name])["volumes"][0].clone();
        let plan = scratch.json(&[&with(&["compact", "--dry-run"])[..], &[name]].concat());
        let number = |value: &serde_json::Value| {
            value
                .as_u64()
                .unwrap_or_else(|| panic!("{du} {info} {plan}"))
        };
        let volume = &du["volumes"][0];
        assert!(
            (6_000_000..6_800_000).contains(&number(&volume["pending"])),
            "{du}"
        );
        for field in ["used", "pending", "free"] {
            assert_eq!(
                number(&volume[field]),
                number(&info["details"]["container"][field]),
                "{field}: {du} {info}"
            );
        }
        assert_eq!(
            (number(&info["pending"]), number(&info["free"])),
            (number(&volume["pending"]), number(&volume["free"]))
        );
        assert_eq!(
            (number(&plan["pending"]), number(&plan["reclaimable"])),
            (number(&volume["pending"]), number(&du["reclaimable"]))
        );
        assert!(
            (6_000_000..8_500_000).contains(&number(&volume["used"])),
            "{du}"
        );
        let sum: u64 = ["used", "pending", "free"]
            .iter()
            .map(|field| number(&volume[field]))
            .sum();
        assert_eq!(
            sum / 4096 * 4096,
            number(&info["size"]) / 4096 * 4096,
            "{du} {info}"
        );
        assert!(scratch.ok(&["du", name]).contains("pending"));
        assert!(scratch.ok(&["info", name]).contains("pending"));
        assert!(
            scratch
                .ok(&["compact", "--dry-run", name])
                .contains("pending")
        );
        if encrypted {
            // Nothing of a locked volume is freed.
            for verb in [&["compact", "--battery-allowed", name][..], &["trim", name]] {
                assert!(scratch.ok(verb).contains("skipped"), "{verb:?}");
            }
            assert_eq!(measure(), du);
        }
        scratch.ok(&[&with(&["compact", "--battery-allowed"])[..], &[name]].concat());
        let du = measure();
        assert!(
            number(&du["volumes"][0]["pending"]) < 1 << 20 && number(&du["reclaimable"]) < 1 << 20,
            "{du}"
        );
    }
}

/// Bytes of storage behind the files of a folder.
fn allocated(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

#[test]
fn an_image_that_cannot_be_changed_says_so() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create", "a.dmg", "--format", "udzo", "--from", "src", "--quiet",
    ]);
    assert!(scratch.ok(&["du", "a.dmg"]).contains("has no free space"));
    assert!(scratch.fails(1, &["trim", "a.dmg"]).contains("read-only"));
    assert!(
        scratch
            .fails(6, &["compact", "--dry-run", "a.dmg"])
            .contains("the format has no free space")
    );
    assert!(
        scratch
            .fails(3, &["du", "missing.dmg"])
            .contains("missing.dmg")
    );
}

#[test]
fn a_locked_image_is_measured_from_outside() {
    let scratch = Scratch::new();
    scratch.write("key", "passphrase");
    scratch.ok(&[
        "create",
        "s.dmg",
        "--size",
        "1m",
        "--encrypt",
        "--passfile",
        "key",
        "--quiet",
    ]);
    let locked = scratch
        .command(&["du", "--json", "--passenv", "NO_SUCH", "s.dmg"])
        .output()
        .unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&locked.stdout).unwrap_or_default();
    assert!(
        facts["items"][0]["error"].is_object(),
        "{facts} {}",
        crate::common::stderr(&locked)
    );
    assert!(facts["items"][0]["allocated"].as_u64().unwrap() > 1 << 20);
}

/// A healthy band hidden under a number past the end counts as a leftover once its place is written
/// again. A compaction keeps undo data of it.
#[test]
fn a_band_that_nothing_refers_to_is_kept_for_undo() {
    let scratch = Scratch::new();
    scratch.ok(&[
        "create",
        "v.sparsebundle",
        "--fs",
        "hfs+",
        "--size",
        "16m",
        "--band-size",
        "1m",
    ]);
    let band = scratch.path("v.sparsebundle/bands/40");
    fs::write(&band, noise(4096)).unwrap();
    let done = scratch.json(&["compact", "v.sparsebundle"]);
    assert_eq!(
        (&done["orphans"]["size"], &done["orphans"]["kept"]),
        (&4096.into(), &Value::Null)
    );
    assert!(!band.exists());
    scratch.ok(&["repair", "--undo", "v.sparsebundle"]);
    assert!(fs::read(&band).unwrap() == noise(4096));
    // The band is kept if the undo data cannot be stored.
    fs::write(scratch.path("v.sparsebundle.undo"), "").unwrap();
    let kept = scratch
        .command(&["--json", "compact", "v.sparsebundle"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&kept.stdout).unwrap();
    assert!(told["orphans"]["kept"].is_object(), "{told}");
    assert!(band.exists() && kept.status.code() != Some(0));
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}
