//! `parted`: the one tool besides Apple's that still writes Apple's partition map.

use bandsaw::partition::Scheme;

use crate::disk::{blank, our_view, partitions, with_our_gpt};
use crate::programs::{Program, run_text};
use crate::suite::Suite;

const PARTED: Program = Program::Command(&["parted"]);

pub(crate) fn add(suite: &mut Suite) {
    suite.peer("parted", &[PARTED]).test("reads_our_gpt", reads_our_gpt).test("we_read_its_apm", we_read_its_apm);
}

fn reads_our_gpt() {
    let (_scratch, disk) = with_our_gpt(512);
    // A line for each: number:start:end, inclusive:size:file system:name:flags;
    let told = run_text(PARTED.command().args(["--script", "--machine"]).arg(&disk).args(["unit", "B", "print"]));
    for (number, partition) in (1..).zip(partitions(512)) {
        let range = &partition.range;
        let line = format!("\n{number}:{}B:{}B:{}B::{}:", range.start, range.end - 1, range.end - range.start, partition.name);
        assert!(told.contains(&line), "no {line:?} in\n{told}");
    }
}

fn we_read_its_apm() {
    let (_scratch, disk) = blank();
    let mut parted = PARTED.command();
    parted.arg("--script").arg(&disk).args(["mklabel", "mac"]);
    parted.args(["mkpart", "Docs", "hfs+", "1MiB", "20MiB", "mkpart", "More", "hfs+", "20MiB", "60MiB"]);
    run_text(&mut parted);

    let map = our_view(&disk);
    assert_eq!((map.scheme, map.block), (Scheme::Apm, 512));
    let volumes = map.partitions.iter().filter(|partition| partition.kind == "Apple_HFS");
    let volumes: Vec<_> = volumes.map(|partition| (partition.number, partition.range.clone(), partition.name.as_str())).collect();
    assert_eq!(volumes, [(2, 1 << 20..20 << 20, "Docs"), (3, 20 << 20..60 << 20, "More")]);
}
