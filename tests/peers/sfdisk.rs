//! `sfdisk` of util-linux: GPT, and MBR with logical partitions.

use std::path::Path;

use bandsaw::partition::{Scheme, gpt::NewPartition};
use serde_json::Value;

use crate::disk::{DISK_GUID, blank, our_view, partitions, with_our_gpt};
use crate::programs::{Program, run_text};
use crate::suite::Suite;

const SFDISK: Program = Program::Command(&["sfdisk"]);
const SECTOR: u64 = 512;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("sfdisk", &[SFDISK])
        .test("reads_our_gpt", reads_our_gpt)
        .test("we_read_its_mbr", we_read_its_mbr);
}

fn reads_our_gpt() {
    let (_scratch, disk) = with_our_gpt(512);
    let verdict = run_text(SFDISK.command().arg("--verify").arg(&disk));
    assert!(verdict.contains("No errors detected."), "{verdict}");

    let table = table(&disk);
    assert_eq!(table["label"], "gpt");
    assert_eq!(table["id"], upper(DISK_GUID));
    assert_eq!(
        (&table["firstlba"], &table["lastlba"]),
        (&Value::from(34), &Value::from(131_038))
    );
    let report = table["partitions"]
        .as_array()
        .expect("addresses exceeds its block");
    let ours = partitions(512);
    assert_eq!(report.len(), ours.len());
    for (
        report,
        NewPartition {
            range,
            type_guid,
            guid,
            name,
        },
    ) in report.iter().zip(ours)
    {
        assert_eq!(report["start"], range.start / SECTOR);
        assert_eq!(report["size"], (range.end - range.start) / SECTOR);
        assert_eq!(report["type"], upper(type_guid));
        assert_eq!(report["uuid"], upper(guid));
        assert_eq!(report["name"], name);
    }
}

/// Two logical partitions in an extended one.
fn we_read_its_mbr() {
    let (scratch, disk) = blank();
    let script = scratch.path().join("script");
    let lines = [
        "label: dos",
        "start=2048, size=20480, type=af",
        "start=22528, size=81920, type=f",
        "",
    ];
    std::fs::write(&script, lines.join("\n")).expect("writing a script");
    feed(&script, &["--quiet"], &disk);
    std::fs::write(
        &script,
        "start=24576, size=8192, type=b\nstart=40960, size=8192, type=83\n",
    )
    .expect("writing a script");
    feed(&script, &["--quiet", "--append"], &disk);

    let map = our_view(&disk);
    assert_eq!(map.scheme, Scheme::Mbr);
    let volumes: Vec<_> = map
        .partitions
        .iter()
        .filter(|partition| partition.type_id.may_hold_volume())
        .collect();
    let report = table(&disk);
    let report: Vec<_> = report["partitions"]
        .as_array()
        .expect("addresses exceeds its block")
        .iter()
        .filter(|report| report["type"] != "f")
        .collect();
    assert_eq!(report.len(), 3);
    assert_eq!(volumes.len(), report.len(), "{map:#?}");
    for (ours, report) in volumes.iter().zip(report) {
        let node = report["node"].as_str().expect("a name");
        assert!(
            node.ends_with(&format!("img{}", ours.number)),
            "{node} is our {}",
            ours.number
        );
        assert_eq!(report["start"], ours.range.start / SECTOR);
        assert_eq!(report["size"], (ours.range.end - ours.range.start) / SECTOR);
    }
}

fn upper(guid: uuid::Uuid) -> String {
    guid.to_string().to_uppercase()
}

fn table(disk: &Path) -> Value {
    let json = run_text(SFDISK.command().arg("--json").arg(disk));
    serde_json::from_str::<Value>(&json).expect("sfdisk prints JSON")["partitiontable"].take()
}

/// Runs sfdisk with a script.
fn feed(script: &Path, options: &[&str], disk: &Path) {
    let sfdisk = SFDISK.find().unwrap_or_else(|why| panic!("{why}"));
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "exec \"$0\" \"$@\" <\"$SCRIPT\""])
        .arg(sfdisk)
        .args(options)
        .arg(disk)
        .env("SCRIPT", script);
    run_text(&mut shell);
}
