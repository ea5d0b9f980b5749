//! The Sleuth Kit: `mmls` of partition maps, `fls`, `icat` and `tsk_recover` of volumes.

use crate::disk::{partitions, with_our_gpt};
use crate::programs::{Program, run_text};
use crate::suite::Suite;

const MMLS: Program = Program::Command(&["mmls"]);

pub(crate) fn add(suite: &mut Suite) {
    suite.peer("sleuthkit", &[MMLS]).test("reads_our_gpt", reads_our_gpt);
}

fn reads_our_gpt() {
    for block in [512, 4096] {
        let (_scratch, disk) = with_our_gpt(block);
        let told = run_text(MMLS.command().args(["-t", "gpt", "-b", &block.to_string()]).arg(&disk));
        for (slot, partition) in partitions(block).iter().enumerate() {
            let sector = |at| at / u64::from(block);
            let (first, end) = (sector(partition.range.start), sector(partition.range.end));
            let line = format!("  {slot:03}       {first:010}   {:010}   {:010}   {}\n", end - 1, end - first, partition.name);
            assert!(told.contains(&line), "no {line:?} in\n{told}");
        }
    }
}
