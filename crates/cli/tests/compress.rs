//! Files stored compressed within their volume, and as they are again.

mod common;

use common::Scratch;
use serde_json::Value;

fn text(len: usize) -> Vec<u8> {
    (0_u32..).flat_map(|n| format!("line {n}\n").into_bytes()).take(len).collect()
}

#[test]
fn files_take_less_room_and_read_the_same() {
    let scratch = Scratch::new();
    let plain = text(700_000);
    scratch.write("in/folder/long.txt", &plain);
    scratch.write("in/short.txt", &plain[..5000]);
    scratch.write("in/empty", "");
    for kind in ["zlib", "lzvn", "LZFSE"] {
        scratch.ok(&["create", "v.img", "--overwrite", "--fs", "hfs+", "--size", "16m", "--volname", "V", "--from", "in"]);
        let json = |args: &[&str]| serde_json::from_str::<Value>(&scratch.ok(args)).unwrap();
        let estimate = json(&["compress", "--estimate", "--json", "--type", kind, "v.img:/"]);
        assert_eq!(json(&["decompress", "--json", "v.img:/"])["changed"], 0, "nothing was changed");
        let told = json(&["compress", "--verify", "--verbose", "--json", "--type", kind, "v.img:/"]);
        assert_eq!((&told["files"], &told["changed"]), (&Value::from(3), &Value::from(2)), "{told}");
        assert_eq!(told["after"], estimate["after"], "{told}");
        assert!(told["after"].as_u64() < told["before"].as_u64().map(|before| before / 2), "{told}");
        let empty = told["each"].as_array().unwrap().iter().find(|one| one["path"] == "/empty").unwrap();
        assert_eq!(empty["left"], "empty");
        assert_eq!(scratch.ok(&["cat", "v.img:/folder/long.txt"]).as_bytes(), plain);
        scratch.ok(&["check", "v.img"]);
        assert!(scratch.ok(&["compress", "-v", "v.img:/short.txt"]).contains("compressed already"));
        assert_eq!(json(&["decompress", "--json", "v.img:/folder"])["changed"], 1);
        assert_eq!(scratch.ok(&["cat", "v.img:/folder/long.txt"]).as_bytes(), plain);
        assert_eq!(scratch.ok(&["cat", "v.img:/short.txt"]).as_bytes(), &plain[..5000]);
        scratch.ok(&["extract", "v.img", &format!("out {kind}")]);
        assert_eq!(std::fs::read(scratch.path(&format!("out {kind}")).join("short.txt")).unwrap(), &plain[..5000]);
        scratch.ok(&["check", "v.img"]);
    }
}

#[test]
fn files_stay_as_they_are_where_that_was_asked_for() {
    let scratch = Scratch::new();
    scratch.write("in/text.txt", text(100_000));
    scratch.ok(&["create", "v.img", "--fs", "hfs+", "--size", "8m", "--volname", "V", "--from", "in"]);
    let left = |args: &[&str]| scratch.ok(&[&["compress", "-v"], args, &["v.img:/text.txt"]].concat());
    assert!(left(&["--max-size", "50000"]).contains("too long"));
    assert!(left(&["--min-saving", "99"]).contains("not take less room"));
    scratch.fails(2, &["compress", "--level", "10", "v.img:/text.txt"]);
    scratch.fails(2, &["compress", "--type", "lzma", "v.img:/text.txt"]);
    scratch.fails(3, &["compress", "v.img:/nothing"]);
    scratch.fails(2, &["compress", "v.img"]);
    assert!(left(&[]).contains("1 of 1 files compressed"));
}
