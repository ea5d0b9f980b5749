//! HFS: a volume is read by every reading verb, and changed by none.

use std::fs;

use bandsaw::testing::fuzz;

use crate::common::{Scratch, stderr};

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("old.img", fuzz::hfs_sample());
    scratch
}

#[test]
fn every_reading_verb_reads_it() {
    let scratch = scratch();
    let info = scratch.json(&["info", "old.img"]);
    let volume = &info["volumes"][0];
    assert_eq!(volume["file_system"], "HFS", "{info}");
    assert_eq!(volume["name"], "Sample", "{info}");
    assert_eq!(volume["files"], 63, "{info}");
    assert!(scratch.ok(&["ls", "old.img:/docs"]).contains("deep"));
    let read = ["cat", "old.img:/docs/deep/read me"];
    assert_eq!(scratch.ok(&read), "deep down");
    scratch.ok(&["extract", "old.img", "out"]);
    let extracted = scratch.path("out/docs/deep/Read Me");
    assert_eq!(fs::read(extracted).unwrap(), b"deep down");
    let checked = scratch.json(&["check", "old.img"]);
    assert_eq!(checked["conclusion"], "sound", "{checked}");
}

#[test]
fn nothing_is_changed() {
    let scratch = scratch();
    let before = fs::read(scratch.path("old.img")).unwrap();
    for line in [
        &["rm", "old.img:/scattered"][..],
        &["mkdir", "old.img:/new"],
        &["resize", "old.img", "--size", "20m"],
        &["enable-journal", "old.img"],
    ] {
        let refused = scratch.run(line);
        assert!(!refused.status.success(), "{line:?}");
        let text = stderr(&refused);
        assert!(text.contains("HFS"), "{line:?}: {text}");
        assert!(
            fs::read(scratch.path("old.img")).unwrap() == before,
            "{line:?}"
        );
    }
}
