//! Files stored compressed within their volume, and as they are again.

use crate::common::Scratch;
use serde_json::Value;

pub(crate) fn text(len: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|n| format!("line {n}\n").into_bytes())
        .take(len)
        .collect()
}

/// Creates an image of 16 MiB with the files of the folder `in`.
fn create_volume(scratch: &Scratch, fs: &str) {
    let args = [
        "create",
        "v.img",
        "--overwrite",
        "--fs",
        fs,
        "--size",
        "16m",
    ];
    scratch.ok(&[&args[..], &["--volname", "V", "--from", "in"]].concat());
}

#[test]
fn files_take_less_room_and_read_the_same() {
    let scratch = Scratch::new();
    let plain = text(700_000);
    scratch.write("in/folder/long.txt", &plain);
    scratch.write("in/short.txt", &plain[..5000]);
    scratch.write("in/empty", "");
    for (fs, kind) in ["zlib", "lzvn", "LZFSE"]
        .into_iter()
        .flat_map(|kind| [("hfs+", kind), ("apfs", kind)])
    {
        create_volume(&scratch, fs);
        let json = |args: &[&str]| serde_json::from_str::<Value>(&scratch.ok(args)).unwrap();
        let estimate = json(&[
            "compress",
            "--estimate",
            "--json",
            "--type",
            kind,
            "v.img:/",
        ]);
        assert_eq!(
            json(&["decompress", "--json", "v.img:/"])["changed_files"],
            0,
            "nothing was changed"
        );
        let report = json(&[
            "compress",
            "--compare",
            "--verbose",
            "--json",
            "--type",
            kind,
            "v.img:/",
        ]);
        assert_eq!(
            (&report["files"], &report["changed_files"]),
            (&Value::from(3), &Value::from(2)),
            "{report}"
        );
        assert_eq!(
            report["changed_allocated"], estimate["changed_allocated"],
            "{report}"
        );
        assert!(
            report["changed_allocated"].as_u64()
                < report["changed_allocated_before"]
                    .as_u64()
                    .map(|before| before / 2),
            "{report}"
        );
        let empty = report["list"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["volume_path"] == "/empty")
            .unwrap();
        assert_eq!(empty["skipped"], "empty");
        assert_eq!(
            scratch.ok(&["cat", "v.img:/folder/long.txt"]).as_bytes(),
            plain
        );
        scratch.ok(&["check", "v.img"]);
        assert!(
            scratch
                .ok(&["compress", "-v", "v.img:/short.txt"])
                .contains("already compressed")
        );
        assert_eq!(
            json(&["decompress", "--json", "v.img:/folder"])["changed_files"],
            1
        );
        assert_eq!(
            scratch.ok(&["cat", "v.img:/folder/long.txt"]).as_bytes(),
            plain
        );
        assert_eq!(
            scratch.ok(&["cat", "v.img:/short.txt"]).as_bytes(),
            &plain[..5000]
        );
        let out = format!("out {fs} {kind}");
        scratch.ok(&["extract", "v.img", &out]);
        assert_eq!(
            std::fs::read(scratch.path(&out).join("short.txt")).unwrap(),
            &plain[..5000]
        );
        scratch.ok(&["check", "v.img"]);
    }
}

#[test]
fn files_stay_as_they_are_where_that_was_asked_for() {
    let scratch = Scratch::new();
    scratch.write("in/text.txt", text(100_000));
    scratch.ok(&[
        "create",
        "v.img",
        "--fs",
        "hfs+",
        "--size",
        "8m",
        "--volname",
        "V",
        "--from",
        "in",
    ]);
    let left =
        |args: &[&str]| scratch.ok(&[&["compress", "-v"], args, &["v.img:/text.txt"]].concat());
    assert!(left(&["--max-size", "50000"]).contains("too long"));
    assert!(left(&["--min-saving", "99"]).contains("not be smaller"));
    scratch.fails(2, &["compress", "--level", "10", "v.img:/text.txt"]);
    scratch.fails(2, &["compress", "--type", "lzma", "v.img:/text.txt"]);
    scratch.fails(3, &["compress", "v.img:/nothing"]);
    scratch.fails(2, &["compress", "v.img"]);
    assert!(left(&[]).contains("1 of 1 file compressed"));
}

#[test]
fn volumes_are_built_compressed() {
    let scratch = Scratch::new();
    let plain = text(1_500_000);
    let noise: Vec<u8> = (0_u32..40_000)
        .flat_map(|n| {
            n.wrapping_mul(0x9E37_79B1)
                .rotate_left(n % 31)
                .to_le_bytes()
        })
        .collect();
    scratch.write("in/folder/long.txt", &plain);
    scratch.write("in/folder/noise.bin", &noise);
    scratch.write("in/short.txt", &plain[..5000]);
    scratch.write("in/tiny", "x");
    scratch.write("in/empty", "");
    std::fs::hard_link(scratch.path("in/short.txt"), scratch.path("in/again.txt")).unwrap();
    for fs in ["hfs+", "hfsx+j", "apfs"] {
        for (kind, number) in [("zlib", 4), ("lzvn", 8), ("LZFSE", 12)] {
            let create = [
                "create",
                "v.img",
                "--overwrite",
                "--fs",
                fs,
                "--volname",
                "V",
                "--from",
                "in",
            ];
            let how = ["--compress", kind, "--compare", "--verbose", "--jobs", "2"];
            let report = scratch.json(&[&create[..], &how].concat());
            let report = &report["compressed"];
            let each = report["list"].as_array().unwrap();
            let one = |path: &str| {
                each.iter()
                    .find(|one| one["volume_path"] == path)
                    .unwrap_or_else(|| panic!("{fs} {kind} {report}"))
            };
            assert_eq!(
                one("/folder/long.txt")["compression_type"],
                number,
                "{fs} {report}"
            );
            assert_eq!(
                one("/folder/noise.bin")["skipped"],
                "no_gain",
                "{fs} {report}"
            );
            assert_eq!(one("/empty")["skipped"], "empty");
            assert_eq!(
                report["files"], 5,
                "each file once, whatever its names: {report}"
            );
            assert_eq!(
                scratch.ok(&["cat", "v.img:/folder/long.txt"]).as_bytes(),
                plain,
                "{fs} {kind}"
            );
            assert_eq!(
                scratch.ok(&["cat", "v.img:/again.txt"]).as_bytes(),
                &plain[..5000],
                "{fs} {kind}"
            );
            scratch.ok(&["extract", "v.img", "out", "--overwrite"]);
            assert_eq!(
                std::fs::read(scratch.path("out/folder/noise.bin")).unwrap(),
                noise,
                "{fs} {kind}"
            );
            scratch.ok(&["check", "v.img"]);
            let estimate = scratch.json(&["compress", "--estimate", "-v", "v.img:/"]);
            assert_eq!(
                estimate["skipped"]["compressed"], report["changed_files"],
                "{fs} {kind} {estimate}"
            );
            assert_eq!(
                estimate["changed_files"], 0,
                "not the journal either: {estimate}"
            );
            let now = estimate["list"]
                .as_array()
                .unwrap()
                .iter()
                .find(|now| now["volume_path"] == "/folder/long.txt")
                .unwrap();
            assert_eq!(
                now["allocated"],
                one("/folder/long.txt")["allocated"],
                "what was told is what it takes: {fs} {kind}"
            );
        }
    }
    assert_eq!(
        scratch.names(),
        ["in", "out", "v.img"],
        "nothing else is left"
    );
}

#[test]
fn compressed_volumes_are_the_same_each_time() {
    let scratch = Scratch::new();
    for n in 0..40 {
        scratch.write(&format!("in/{n}.txt"), text(n * 9_973));
    }
    for fs in ["hfs+", "apfs"] {
        let build = |name: &str, jobs: &str| {
            let args = [
                "create",
                name,
                "--fs",
                fs,
                "--volname",
                "V",
                "--from",
                "in",
                "--compress",
                "lzfse",
                "--jobs",
                jobs,
            ];
            assert!(
                scratch
                    .command(&args)
                    .env("SOURCE_DATE_EPOCH", "1700000000")
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
            std::fs::read(scratch.path(name)).unwrap()
        };
        assert!(
            build(&format!("{fs}1.img"), "1") == build(&format!("{fs}2.img"), "4"),
            "{fs}"
        );
    }
}

#[test]
fn files_are_compressed_on_their_way_in() {
    let scratch = Scratch::new();
    let plain = text(700_000);
    scratch.write("in/a.txt", &plain);
    scratch.write("in/b.bin", &plain[..90_000]);
    scratch.ok(&[
        "create",
        "v.img",
        "--fs",
        "hfs+",
        "--size",
        "16m",
        "--volname",
        "V",
    ]);
    let report = scratch.json(&[
        "cp",
        "-R",
        "--compress",
        "zlib",
        "--skip-types",
        "bin",
        "in",
        "v.img:/",
    ]);
    assert_eq!(
        (&report["files"], &report["compressed_files"]),
        (&Value::from(2), &Value::from(1)),
        "{report}"
    );
    scratch.ok(&[
        "put",
        "--from",
        "in/b.bin",
        "--compress",
        "lzvn",
        "v.img:/in/c",
    ]);
    let each = scratch.json(&["compress", "--estimate", "-v", "v.img:/"]);
    let how = |path: &str| {
        each["list"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["volume_path"] == path)
            .unwrap()["skipped"]
            .clone()
    };
    assert_eq!(how("/in/a.txt"), "compressed", "{each}");
    assert_eq!(how("/in/b.bin"), Value::Null, "{each}");
    assert_eq!(how("/in/c"), "compressed", "{each}");
    assert_eq!(scratch.ok(&["cat", "v.img:/in/a.txt"]).as_bytes(), plain);
    assert_eq!(
        scratch.ok(&["cat", "v.img:/in/c"]).as_bytes(),
        &plain[..90_000]
    );
    scratch.ok(&["check", "v.img"]);
    scratch.fails(2, &["cp", "--compress", "zlib", "v.img:/in/c", "out"]);
    scratch.fails(2, &["cp", "--jobs", "2", "in/a.txt", "v.img:/x"]);
    scratch.fails(
        2,
        &["create", "w.img", "--size", "8m", "--compress", "zlib"],
    );
}

#[test]
fn compressed_files_are_kept_on_request() {
    let scratch = Scratch::new();
    let plain = text(200_000);
    scratch.write("in/docs/a.txt", &plain);
    scratch.write("in/docs/b.html", &plain);
    scratch.ok(&[
        "create",
        "v.img",
        "--fs",
        "hfs+",
        "--size",
        "8m",
        "--volname",
        "V",
        "--from",
        "in",
    ]);
    let args = [
        "compress",
        "--type-filter",
        "TXT",
        "--backup",
        "kept",
        "--jobs",
        "1",
        "v.img:/",
    ];
    let report = scratch.json(&args);
    assert_eq!(
        (&report["changed_files"], &report["skipped"]["other_type"]),
        (&Value::from(1), &Value::from(1)),
        "{report}"
    );
    assert_eq!(
        std::fs::read(scratch.path("kept/docs/a.txt")).unwrap(),
        plain
    );
    assert!(!scratch.path("kept/docs/b.html").exists());
    assert!(
        scratch
            .ok(&["compress", "--estimate", "v.img:/"])
            .contains("skipped: 1 already compressed")
    );
}

/// A file that is longer than its volume: nothing is stored for its zeros, before it is compressed
/// and after.
#[test]
fn zeros_are_holes_where_a_volume_has_such() {
    use std::os::unix::fs::FileExt;

    let scratch = Scratch::new();
    let (plain, len) = (text(300_000), 12 << 20);
    let file = std::fs::File::create(scratch.path("sparse")).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(&plain, 5 << 20).unwrap();
    let contents = std::fs::read(scratch.path("sparse")).unwrap();
    for (fs, size, most) in [("apfs", "8m", 400_000), ("hfs+", "32m", len)] {
        scratch.ok(&[
            "create",
            "v.img",
            "--overwrite",
            "--fs",
            fs,
            "--size",
            size,
            "--volname",
            "V",
        ]);
        scratch.ok(&["cp", "sparse", "v.img:/sparse"]);
        let packed = scratch.json(&["compress", "v.img:/sparse"]);
        assert_eq!(packed["changed_files"], 1, "{fs} {packed}");
        let plain_again = scratch.json(&["decompress", "v.img:/sparse"]);
        assert_eq!(plain_again["changed_files"], 1, "{fs} {plain_again}");
        for taken in [&packed["allocated_before"], &plain_again["allocated"]] {
            let taken = taken.as_u64().unwrap();
            assert!(
                taken >= 300_000 && taken <= most && (fs == "apfs" || taken == len),
                "{fs} {packed} {plain_again}"
            );
        }
        assert!(
            scratch.run(&["cat", "v.img:/sparse"]).stdout == contents,
            "{fs}"
        );
        scratch.ok(&["check", "v.img"]);
    }

    std::fs::create_dir(scratch.path("in")).unwrap();
    std::fs::File::create(scratch.path("in/zeros"))
        .unwrap()
        .set_len(3 << 20)
        .unwrap();
    let report = scratch.json(&[
        "create",
        "w.img",
        "--fs",
        "apfs",
        "--from",
        "in",
        "--compress",
        "zlib",
        "--verbose",
    ]);
    let found = scratch.json(&["compress", "--estimate", "--verbose", "w.img:/"]);
    assert_eq!(
        report["compressed"]["list"], found["list"],
        "what was told is what it takes"
    );
}

/// Compares each figure with one computed from the attributes themselves, by the rules of `afsctool -v`.
#[test]
fn sizes_of_compressed_files_are_those_of_afsctool() {
    let scratch = Scratch::new();
    let plain = text(700_000);
    scratch.write("in/folder/long.txt", &plain);
    scratch.write("in/short.txt", &plain[..3000]);
    scratch.write("in/plain", "%PDF-1.4");
    for fs in ["hfs+", "apfs"] {
        create_volume(&scratch, fs);
        scratch.ok(&[
            "xattr",
            "--set",
            "com.example.note=four",
            "v.img:/short.txt",
        ]);
        scratch.ok(&["compress", "v.img:/folder", "v.img:/short.txt"]);
        let file = |path: &str| scratch.json(&["stat", path])["file"].clone();
        let attribute = |name: &str, path: &str| {
            let output = scratch.run(&["cat", "--xattr", name, path]);
            assert!(output.status.success(), "{output:?}");
            output.stdout.len() as u64
        };
        let long = file("v.img:/folder/long.txt");
        let fork = attribute("com.apple.ResourceFork", "v.img:/folder/long.txt");
        let header = attribute("com.apple.decmpfs", "v.img:/folder/long.txt");
        assert!(fork > 10_000 && fork < 350_000 && header == 16, "{fork}");
        let number = |file: &Value, name: &str| file[name].as_u64().unwrap();
        assert_eq!(number(&long, "size"), 700_000);
        assert_eq!(number(&long, "stored"), fork);
        assert_eq!(number(&long, "stored_with_attribute"), fork + 16);
        assert_eq!(number(&long, "total"), fork + 16 + 268 + 248);
        assert_eq!(
            (&long["compressed"], &long["stored_in"]),
            (&true.into(), &"resource_fork".into())
        );
        assert_eq!(long["content_type"], "public.plain-text");
        let saving = 100.0 * (1.0 - (fork + 16) as f64 / 700_000.0);
        assert!(
            (long["savings_percent"].as_f64().unwrap() - saving).abs() < 1e-9,
            "{long}"
        );
        let short = file("v.img:/short.txt");
        let value = attribute("com.apple.decmpfs", "v.img:/short.txt");
        assert_eq!(short["stored_in"], "attribute");
        assert_eq!(number(&short, "stored"), value - 16);
        assert_eq!(number(&short, "xattrs"), 1);
        assert_eq!(number(&short, "xattr_size"), 4);
        assert_eq!(number(&short, "xattr_overhead"), 2 * 268);
        assert_eq!(number(&short, "total"), value + 4 + 2 * 268 + 248);
        let plain = file("v.img:/plain");
        assert_eq!(
            (&plain["compressed"], &plain["content_type"]),
            (&false.into(), &"com.adobe.pdf".into())
        );
        assert_eq!(number(&plain, "stored"), 8);
        // `info` of a file is the same; folders have totals.
        assert_eq!(scratch.json(&["info", "v.img:/short.txt"])["file"], short);
        let folder = scratch.json(&["stat", "v.img:/", "--top", "1"])["folder"].clone();
        let all = [
            ("files", 3),
            ("compressed_files", 2),
            ("folders", 1),
            ("size", 703_008),
        ];
        for (name, value) in all {
            assert_eq!(number(&folder, name), value, "{name}: {folder}");
        }
        assert_eq!(number(&folder, "stored"), fork + 16 + value + 8);
        assert_eq!(number(&folder, "compressed_stored"), fork + 16 + value);
        let largest = folder["largest_savings"].as_array().unwrap();
        assert_eq!(largest.len(), 1);
        assert_eq!(largest[0]["volume_path"], "/folder/long.txt");
        assert_eq!(number(&largest[0], "saved"), 700_000 - fork - 16);
        let du = scratch.json(&["du", "v.img:/"])["items"][0]["inside"].clone();
        assert_eq!(
            (number(&du, "size"), number(&du, "stored")),
            (703_008, fork + 24 + value)
        );
        let listed = scratch.ok(&["ls", "-l", "v.img:/"]);
        let line = |name: &str| listed.lines().find(|line| line.ends_with(name)).unwrap();
        let mode = |name: &str| line(name).split(' ').next().unwrap().to_owned();
        assert_eq!(
            (mode("short.txt").len(), mode("plain").len()),
            (12, 10),
            "{listed}"
        );
        assert!(mode("short.txt").ends_with("@z"), "{listed}");
        let shown = scratch.ok(&["stat", "v.img:/folder/long.txt"]);
        assert!(
            shown.contains("yes, zlib (type 4), in the resource fork"),
            "{shown}"
        );
        assert!(shown.contains(&format!("{saving:.1} %")), "{shown}");
        scratch.fails(3, &["stat", "v.img:/nothing"]);
    }
}

/// A compressed file as `ditto` leaves it on a file system without attributes.
#[test]
fn sizes_of_files_of_the_host_are_in_their_apple_double() {
    let scratch = Scratch::new();
    let mut double = Vec::new();
    double.extend(0x0005_1607_u32.to_be_bytes());
    double.extend(0x0002_0000_u32.to_be_bytes());
    double.extend([0; 16]);
    double.extend(2_u16.to_be_bytes());
    for entry in [[9_u32, 50, 118], [2, 168, 1000]] {
        entry
            .iter()
            .for_each(|word| double.extend(word.to_be_bytes()));
    }
    double.extend([0; 34]);
    double.extend(b"ATTR");
    for word in [0_u32, 168, 152, 16, 0, 0, 0, 1] {
        double.extend(word.to_be_bytes());
    }
    double.extend([152_u32, 16].iter().flat_map(|word| word.to_be_bytes()));
    double.extend([0, 0, 18]);
    double.extend(b"com.apple.decmpfs\0\0\0\0");
    assert_eq!(double.len(), 152);
    double.extend(b"fpmc");
    double.extend(4_u32.to_le_bytes());
    double.extend(4242_u64.to_le_bytes());
    double.extend([0; 1000]);
    scratch.write("._a.txt", &double);
    scratch.write("a.txt", "");
    for path in ["a.txt", "._a.txt"] {
        let file = scratch.json(&["stat", path])["file"].clone();
        let of = |name: &str| file[name].as_u64().unwrap();
        assert_eq!(
            (of("size"), of("stored"), of("stored_with_attribute")),
            (4242, 1000, 1016)
        );
        assert_eq!(file["method"], "zlib");
    }
    // Without them it is a plain file; a damaged one is not followed.
    scratch.write("._a.txt", &double[..150]);
    let file = scratch.json(&["stat", "a.txt"])["file"].clone();
    assert_eq!(
        (&file["compressed"], &file["size"]),
        (&false.into(), &0.into())
    );
}
