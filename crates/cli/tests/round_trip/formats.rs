//! Containers, file systems and sizes that `create` and `convert` choose among.

use super::*;

#[test]
fn a_disk_goes_from_container_to_container() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "a.img", "--from", "src", "--size", "40m"]);
    let done = scratch.json(&["convert", "a.img", "b.sparsebundle", "--band-size", "1MiB"]);
    assert_eq!(
        (
            done["storage"]["band_size"].as_u64(),
            done["storage"]["bands"].as_u64()
        ),
        (Some(1 << 20), Some(40))
    );
    assert!(
        done["storage"]["allocated_bands"].as_u64().unwrap() < 10,
        "sparse in, sparse out: {done}"
    );
    scratch.ok(&["convert", "b.sparsebundle", "c", "--format", "UdRw"]);
    assert!(fs::read(scratch.path("a.img")).unwrap() == fs::read(scratch.path("c")).unwrap());
    assert!(
        scratch
            .fails(4, &["convert", "b.sparsebundle", "a.img"])
            .contains("--overwrite")
    );
    scratch.ok(&["convert", "b.sparsebundle", "a.img", "--overwrite"]);
    assert_eq!(scratch.names(), ["a.img", "b.sparsebundle", "c", "src"]);
}

#[test]
fn the_same_source_gives_the_same_image() {
    let scratch = Scratch::new();
    scratch.sample();
    for name in ["a.img", "b.img"] {
        let mut command = scratch.command(&["create", name, "--from", "src"]);
        command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .assert()
            .success();
    }
    assert!(fs::read(scratch.path("a.img")).unwrap() == fs::read(scratch.path("b.img")).unwrap());
    assert_eq!(
        scratch.json(&["info", "a.img"])["volumes"][0]["created"],
        "2023-11-14T22:13:20Z"
    );
    let mut command = scratch.command(&["create", "c.img", "--from", "src"]);
    command
        .env("SOURCE_DATE_EPOCH", "yesterday")
        .assert()
        .code(2);
}

#[test]
fn blank_disks_and_empty_volumes() {
    let scratch = Scratch::new();
    let blank = scratch.json(&["create", "blank.img", "--size", "10MB"]);
    assert_eq!(
        (blank["size"].as_u64(), blank["format"].as_str()),
        (Some(10_000_384), Some("UDRW"))
    );
    assert_eq!(
        (
            &blank["partition_map"],
            blank["volumes"].as_array().unwrap().len()
        ),
        (&Value::Null, 0)
    );
    assert!(
        scratch.ok(&["blank.img"]).contains("contents   blank"),
        "all zeros is a blank disk"
    );
    let empty = scratch.json(&[
        "create",
        "e.sparsebundle",
        "--size",
        "20480s",
        "--volname",
        "Empty",
        "--fs",
        "HFSX",
    ]);
    assert_eq!(
        (
            empty["volumes"][0]["file_system"].as_str(),
            empty["volumes"][0]["name"].as_str()
        ),
        (Some("HFSX"), Some("Empty"))
    );
    assert_eq!(empty["size"], 10 << 20);
    assert_eq!(scratch.ok(&["ls", "e.sparsebundle"]), "");
    scratch.fails(3, &["ls", "blank.img"]);
}

#[test]
fn a_damaged_map_is_repaired() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    let whole = fs::read(scratch.path("x.img")).unwrap();
    let mut damaged = whole.clone();
    damaged[512..1024].fill(0xff);
    fs::write(scratch.path("x.img"), &damaged).unwrap();
    assert!(
        scratch.json(&["repair", "-n", "x.img"])["problems"]
            .as_array()
            .is_some_and(|problems| !problems.is_empty())
    );
    assert!(
        fs::read(scratch.path("x.img")).unwrap() == damaged,
        "a dry run changes nothing"
    );
    assert!(
        scratch.ok(&["ls", "x.img"]).contains("hello.txt"),
        "the backup is good enough to read"
    );
    assert!(
        scratch
            .ok(&["repair", "x.img"])
            .contains("repaired: GPT: copy at the beginning")
    );
    assert!(fs::read(scratch.path("x.img")).unwrap() == whole);
    assert_eq!(
        scratch.idle_repair(&["x.img"]),
        "there is nothing to repair\n"
    );
}

/// APFS, as in Disk Utility, but where it has no place.
#[test]
fn a_volume_is_of_apfs_unless_it_cannot_be() {
    let scratch = Scratch::new();
    scratch.sample();
    for (args, format, said) in [
        (&["--from", "src"][..], "APFS", ""),
        (&["--size", "20m", "--volname", "Docs"], "APFS", ""),
        (&["--size", "1m", "--volname", "Docs"], "APFS", ""),
        (
            &["--size", "900k", "--volname", "Docs"],
            "HFS+",
            "the volume is HFS+",
        ),
        (
            &["--size", "20m", "--volname", "Docs", "--block-size", "8k"],
            "HFS+",
            "block size of APFS is 4096 bytes",
        ),
        (
            &["--size", "20m", "--volname", "Docs", "--fs", "hfsx"],
            "HFSX",
            "",
        ),
    ] {
        let output = scratch.run(&[&["create", "a.img", "--overwrite"], args].concat());
        assert!(
            output.status.success() && stderr(&output).contains(said),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(
            stderr(&output).is_empty(),
            said.is_empty(),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(
            scratch.json(&["info", "a.img"])["volumes"][0]["file_system"],
            format,
            "{args:?}"
        );
    }
    let full = scratch.fails(1, &["create", "b.img", "--size", "3m", "--from", "src"]);
    assert!(full.contains("hfs+"), "{full}");
}

#[test]
fn every_format_is_the_same_for_the_same_source() {
    let scratch = Scratch::new();
    scratch.write("src/letter", "dear diary");
    scratch.write("src/folder/big.bin", vec![7; 300_000]);
    let make = |args: &[&str]| {
        let made = scratch
            .command(args)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(made.status.success(), "{args:?}: {}", stderr(&made));
    };
    let formats = [
        "udrw", "udsb", "udsp", "asif", "udro", "udco", "udzo", "udbz", "ulfo", "ulmo",
    ];
    let of = |name: &str| {
        let path = scratch.path(name);
        let files = if path.is_dir() {
            vec!["Info.plist", "token", "bands/0"]
        } else {
            vec![""]
        };
        files
            .iter()
            .map(|file| {
                fs::read(if file.is_empty() {
                    path.clone()
                } else {
                    path.join(file)
                })
                .unwrap()
            })
            .collect::<Vec<_>>()
    };
    for (n, format) in formats.iter().enumerate() {
        for fs in ["hfs+", "hfsx+j", "apfs"] {
            let names = ["a", "b"].map(|which| format!("{which} {format} {fs}"));
            for name in &names {
                make(&[
                    "create",
                    name,
                    "--format",
                    format,
                    "--fs",
                    fs,
                    "--from",
                    "src",
                    "--volname",
                    "V",
                ]);
            }
            assert!(of(&names[0]) == of(&names[1]), "{format} {fs}");
        }
        if n < 4 {
            let names = ["a", "b"].map(|which| format!("{which} {format}"));
            for name in &names {
                make(&["create", name, "--format", format, "--size", "20m"]);
            }
            assert!(
                names
                    .iter()
                    .all(|name| scratch.json(&["info", name])["format"].is_string())
            );
            if *format != "udsb" {
                assert!(of(&names[0]) == of(&names[1]), "{format}, blank");
            }
        }
    }
}

#[test]
fn band_sizes_that_are_not_possible_are_rounded_on_request() {
    let scratch = Scratch::new();
    scratch.sample();
    for (name, nearest, rounded) in [
        ("a.sparsebundle", "15396864 and 15400960", 15_400_960),
        ("a.sparseimage", "15399936 and 15400448", 15_399_936),
    ] {
        let args = ["create", name, "--from", "src", "--band-size", "15.4MB"];
        let said = scratch.fails(2, &args);
        assert!(said.contains(nearest) && said.contains("--round"), "{said}");
        let made = scratch.json(&[&args[..], &["--round"]].concat());
        assert_eq!(made["storage"]["band_size"], rounded);
    }
    let said = scratch.fails(
        2,
        &[
            "create",
            "b.sparsebundle",
            "--size",
            "20m",
            "--band-size",
            "1000",
        ],
    );
    assert!(said.contains("the nearest is 1048576"), "{said}");
    let args = [
        "convert",
        "a.sparseimage",
        "b.sparsebundle",
        "--band-size",
        "9999999",
    ];
    assert!(scratch.fails(2, &args).contains("9998336 and 10002432"));
    assert_eq!(
        scratch.json(&[&args[..], &["--round"]].concat())["storage"]["band_size"],
        9_998_336
    );
    let args = ["reband", "b.sparsebundle", "--band-size", "2000001"];
    assert!(scratch.fails(2, &args).contains("1998848 and 2002944"));
    assert_eq!(
        scratch.json(&[&args[..], &["--round"]].concat())["band_size"],
        1_998_848
    );
    scratch.write("key", "secret");
    let args = [
        "--size",
        "20m",
        "--band-size",
        "15.4MB",
        "--cipher-block",
        "4096",
        "--passfile",
        "key",
        "--iterations",
        "150000",
    ];
    let args = [&["create", "--encrypt", "c.sparsebundle"][..], &args].concat();
    assert!(scratch.fails(2, &args).contains("15396864 and 15400960"));
    assert_eq!(
        scratch.json(&[&args[..], &["--round"]].concat())["storage"]["band_size"],
        15_400_960
    );
    scratch.fails(2, &["create", "d.img", "--size", "1m", "--round"]);
}
