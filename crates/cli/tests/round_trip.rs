//! A folder becomes an image, is looked at with every verb, and becomes a folder again.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{MARCH, Scratch, inventory, stderr};
use serde_json::Value;

fn strings<'a>(array: &'a Value, key: &str) -> Vec<&'a str> {
    array
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item[key].as_str().unwrap())
        .collect()
}

/// An image that is written to a pipe is the one that would be written to a file.
#[test]
fn a_folder_is_packed_into_a_pipe() {
    let scratch = Scratch::new();
    scratch.sample();
    let run = |args: &[&str]| {
        let mut command = scratch.command(args);
        let output = command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    };
    for (format, fs) in [
        ("udzo", "hfs+"),
        ("ulfo", "apfs"),
        ("udro", "hfs+"),
        ("udrw", "apfs"),
    ] {
        let options = ["--format", format, "--fs", fs, "--from", "src"];
        run(&[&["create", "file.dmg", "--overwrite"][..], &options].concat());
        let piped = run(&[&["create", "-"][..], &options].concat());
        fs::write(scratch.path("piped.dmg"), &piped.stdout).unwrap();
        assert!(
            piped.stdout == fs::read(scratch.path("file.dmg")).unwrap(),
            "{format} {fs}"
        );
        scratch.ok(&["check", "piped.dmg"]);
        assert!(stderr(&piped).contains("wrote"), "{}", stderr(&piped));
    }
    for name in ["piped.dmg", "file.dmg"] {
        fs::remove_file(scratch.path(name)).unwrap();
    }
    assert_eq!(
        scratch.names(),
        ["src"],
        "nothing is left beside the source"
    );
    let piped = scratch.run(&["create", "-", "--from", "src", "--json"]);
    let document: Value = serde_json::from_str(&stderr(&piped)).unwrap();
    assert_eq!(document["size"], piped.stdout.len());
    crate::json::assert_obeys(&scratch, "create", &document);
    // The key of an encrypted volume outlives the command, and is reported.
    scratch.write("pass", "secret");
    let locked = [
        "create",
        "-",
        "--encrypt-volume",
        "--volume-passfile",
        "pass",
        "--iterations",
        "150000",
    ];
    let from = ["--from", "src", "--recovery-key-file"];
    let piped = scratch.run(&[&locked[..], &from, &["key"]].concat());
    assert!(piped.status.success(), "{}", stderr(&piped));
    fs::write(scratch.path("locked.img"), &piped.stdout).unwrap();
    scratch.ok(&["ls", "locked.img", "--recovery-key-file", "key"]);
    let piped =
        scratch.run(&[&locked[..], &from, &["-", "--compress", "lzfse", "--json"]].concat());
    let document: Value = serde_json::from_str(&stderr(&piped)).unwrap();
    assert!(document["recovery_key"].is_string() && document["compressed"].is_object());
    crate::json::assert_obeys(&scratch, "create", &document);
    scratch.fails(2, &["create", "-", "--band-size", "1m", "--from", "src"]);
    scratch.fails(6, &["create", "-", "--format", "asif", "--from", "src"]);
    scratch.fails(2, &["create", "-", "--size", "10m"]);
}

/// An encrypted image that is written to a pipe holds what the plain one does. Nothing stays in the working folder.
#[test]
fn a_folder_is_encrypted_into_a_pipe() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.write("pass", "secret");
    let run = |args: &[&str]| {
        let mut command = scratch.command(args);
        let output = command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output.stdout
    };
    let key = ["--passfile", "pass", "--iterations", "150000"];
    for (format, cipher) in [
        ("udrw", "aes-128"),
        ("udzo", "aes-256"),
        ("ulfo", "aes-256"),
    ] {
        let options = ["create", "-", "--format", format, "--from", "src"];
        let cipher = format!("--encrypt={cipher}");
        let plain = run(&options);
        let locked = run(&[&options[..], &[&cipher], &key].concat());
        fs::write(scratch.path("locked.dmg"), &locked).unwrap();
        scratch.ok(&["check", "locked.dmg", "--passfile", "pass"]);
        let disk = [
            "convert",
            "locked.dmg",
            "-",
            "--passfile",
            "pass",
            "--decrypt",
        ];
        assert!(
            run(&[&disk[..], &["--format", format]].concat()) == plain,
            "{format}"
        );
        // From an image as well.
        fs::write(scratch.path("plain.dmg"), &plain).unwrap();
        let new = [
            "--new-passfile",
            "pass",
            "--iterations",
            "150000",
            "--format",
            "udzo",
        ];
        let again = run(&[&["convert", "plain.dmg", "-", &cipher][..], &new].concat());
        fs::write(scratch.path("again.dmg"), &again).unwrap();
        scratch.ok(&["verify", "again.dmg", "--passfile", "pass"]);
    }
    for name in ["locked.dmg", "plain.dmg", "again.dmg", "pass"] {
        fs::remove_file(scratch.path(name)).unwrap();
    }
    assert_eq!(scratch.names(), ["src"]);
}

/// The temporary name of a new image is no longer than the name allowed by the host.
#[test]
fn names_may_be_as_long_as_the_host_allows() {
    let scratch = Scratch::new();
    scratch.sample();
    for (extension, letter) in [
        ("img", "a"),
        ("sparsebundle", "ä"),
        ("dmg", "b"),
        ("asif", "€"),
    ] {
        let len = 255 - extension.len() - 1;
        let name = format!("{}.{extension}", letter.repeat(len / letter.len()));
        scratch.ok(&["create", &name, "--fs", "hfs+", "--from", "src"]);
        scratch.ok(&["ls", &name]);
        scratch.ok(&["convert", &name, "copy.img", "--overwrite"]);
        scratch.ok(&["convert", "copy.img", &name, "--overwrite", "--resume"]);
    }
    scratch.ok(&["report", "copy.img", "-o", &"r".repeat(255)]);
}

#[test]
fn a_folder_becomes_a_bundle_and_a_folder_again() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    let sheet = scratch.ok(&[
        "create",
        "Docs.sparsebundle",
        "--fs",
        "hfs+",
        "--from",
        "src",
    ]);
    assert!(sheet.contains("UDSB, sparse bundle"), "{sheet}");
    assert!(
        sheet.contains("8 MiB (8388608 bytes) each"),
        "the band size used is echoed in bytes: {sheet}"
    );
    assert_eq!(scratch.names(), ["Docs.sparsebundle", "src"]);

    let info = scratch.json(&["info", "Docs.sparsebundle"]);
    assert_eq!(info["format"], "UDSB");
    assert_eq!(info["storage"]["band_size"], 8 << 20);
    assert_eq!(info["storage"]["allocated_bands"], 1);
    assert_eq!(info["partition_map"]["scheme"], "gpt");
    assert_eq!(
        info["partition_map"]["partitions"][0]["partition_type"],
        "Apple_HFS"
    );
    let volume = &info["volumes"][0];
    assert_eq!(
        (volume["name"].as_str(), volume["file_system"].as_str()),
        (Some("src"), Some("HFS+"))
    );
    assert_eq!(
        volume["used"].as_u64().unwrap() + volume["free"].as_u64().unwrap(),
        volume["size"].as_u64().unwrap()
    );
    assert_eq!(
        scratch.json(&["Docs.sparsebundle"]),
        info,
        "an image alone is the same as info"
    );

    scratch.ok(&["extract", "Docs.sparsebundle", "out"]);
    assert_eq!(inventory(&scratch.path("out")), inventory(&src));
}

#[test]
fn a_folder_becomes_a_compressed_image_in_one_go() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    for format in ["udzo", "ulfo", "ulmo", "udbz", "udco", "udro"] {
        let sheet = scratch.ok(&[
            "create",
            "a.dmg",
            "--from",
            "src",
            "--format",
            format,
            "--overwrite",
        ]);
        assert!(sheet.contains(&format.to_uppercase()), "{sheet}");
        assert_eq!(scratch.names(), ["a.dmg", "src"]);
        scratch.ok(&["verify", "a.dmg"]);
        scratch.ok(&["check", "a.dmg"]);
        scratch.ok(&["extract", "a.dmg", "out"]);
        assert_eq!(inventory(&scratch.path("out")), inventory(&src), "{format}");
        fs::remove_dir_all(scratch.path("out")).unwrap();
    }
    scratch.ok(&[
        "convert", "a.dmg", "b.dmg", "--format", "udzo", "--level", "9",
    ]);
    let streamed = scratch.run(&["convert", "a.dmg", "-", "--format", "udzo", "--level", "9"]);
    assert!(
        streamed.status.success() && streamed.stdout == fs::read(scratch.path("b.dmg")).unwrap()
    );
    assert!(
        scratch
            .fails(
                2,
                &[
                    "convert", "a.dmg", "c.dmg", "--format", "udzo", "--level", "10"
                ]
            )
            .contains("--level")
    );
    assert!(
        scratch
            .fails(
                2,
                &[
                    "convert", "a.dmg", "c.dmg", "--format", "ulfo", "--level", "9"
                ]
            )
            .contains("only UDZO")
    );
    assert!(
        scratch
            .fails(2, &["create", "c.dmg", "--size", "10m", "--format", "udzo"])
            .contains("read-only")
    );
}

#[test]
fn sparse_files_hold_what_a_bundle_holds() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    scratch.ok(&["create", "a.sparsebundle", "--from", "src"]);
    scratch.ok(&[
        "convert",
        "a.sparsebundle",
        "b.sparseimage",
        "--band-size",
        "64k",
    ]);
    scratch.ok(&["convert", "b.sparseimage", "c.asif"]);
    scratch.ok(&["convert", "c.asif", "d", "--format", "UDSP"]);
    let [bands, chunks] = ["b.sparseimage", "c.asif"].map(|name| scratch.json(&["info", name]));
    assert_eq!(
        (
            bands["format"].as_str(),
            bands["storage"]["band_size"].as_u64()
        ),
        (Some("UDSP"), Some(65_536))
    );
    assert_eq!(
        (
            chunks["format"].as_str(),
            chunks["storage"]["layer_role"].as_str()
        ),
        (Some("ASIF"), Some("disk"))
    );
    assert_eq!(chunks["storage"]["chunk_size"], 1 << 20);
    assert_eq!(chunks["volumes"], bands["volumes"]);
    for name in ["b.sparseimage", "c.asif", "d"] {
        let out = format!("out-{name}");
        scratch.ok(&["extract", name, &out]);
        assert_eq!(inventory(&scratch.path(&out)), inventory(&src), "{name}");
    }
    // Made directly, with sectors of 4096 bytes, and under a name that says something else.
    scratch.ok(&[
        "create",
        "e.dmg",
        "--format",
        "asif",
        "--sector-size",
        "4096",
        "--from",
        "src",
    ]);
    let output = scratch.run(&["info", "e.dmg"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("sectors    4 KiB (4096 bytes)"));
    assert!(
        crate::common::stderr(&output)
            .contains("the format is ASIF (Apple sparse image), but the name ends in .dmg")
    );
    assert_eq!(
        scratch.json(&["info", "e.dmg"])["partition_map"]["block_size"],
        4096
    );
}

#[test]
fn a_disk_goes_to_standard_output_and_is_summed() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "a.sparsebundle", "--from", "src"]);
    scratch.ok(&["convert", "a.sparsebundle", "a.img"]);
    let raw = fs::read(scratch.path("a.img")).unwrap();
    for args in [
        &["convert", "a.sparsebundle", "-"][..],
        &["convert", "-o", "-", "--format", "udto", "a.sparsebundle"],
    ] {
        let output = scratch.run(args);
        assert!(output.status.success() && output.stdout == raw);
        assert!(
            crate::common::stderr(&output).contains("read"),
            "what was done is told aside"
        );
    }
    scratch.fails(6, &["convert", "a.sparsebundle", "-", "--format", "udsb"]);
    let line = scratch.ok(&["checksum", "--type", "CRC32", "a.sparsebundle", "a.img"]);
    let [one, other] = line.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(
        one.strip_suffix("  a.sparsebundle"),
        other.strip_suffix("  a.img")
    );
    let facts = scratch.json(&["checksum", "a.img"]);
    assert_eq!(
        (
            facts["algorithm"].as_str(),
            facts["images"][0]["size"].as_u64()
        ),
        (Some("sha256"), Some(raw.len() as u64))
    );
    assert_eq!(
        facts["images"][0]["checksum"].as_str().map(str::len),
        Some(64)
    );
    assert!(
        scratch
            .fails(2, &["checksum", "--type", "crc28", "a.img"])
            .contains("sha256")
    );
    assert!(scratch.fails(2, &["convert", "a.img"]).contains("TARGET"));
}

#[test]
fn what_is_in_a_volume_is_listed() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create",
        "x.img",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "Docs",
        "--layout",
        "none",
    ]);
    let names = [
        "big.bin",
        "empty",
        "hello again.txt",
        "hello.txt",
        "Letters",
        "link",
        "nothing in here",
        "run.sh",
    ];
    assert_eq!(
        scratch.ok(&["ls", "x.img"]).lines().collect::<Vec<_>>(),
        names
    );
    assert_eq!(
        scratch.ok(&["ls", "x.img:Docs:/Letters"]),
        format!("{MARCH}\nold\n")
    );
    assert_eq!(
        scratch.ok(&["ls", "x.img:/Letters/märz.TXT"]),
        "märz.TXT\n",
        "nor about composition"
    );
    assert_eq!(
        scratch.ok(&["ls", "x.img:#1:/letters/OLD/"]),
        "a b.txt\n",
        "HFS+ does not care about case"
    );

    let long = scratch.ok(&["ls", "-l", "x.img"]);
    assert!(
        long.lines()
            .any(|line| line.starts_with("-rwxr-xr-x ") && line.ends_with("  run.sh")),
        "{long}"
    );
    assert!(
        long.lines()
            .any(|line| line.starts_with("lrwxrwxrwx ") && line.ends_with("  link -> Letters/old")),
        "{long}"
    );
    assert!(
        scratch
            .ok(&["ls", "-la", "x.img:/run.sh"])
            .ends_with("  run.sh\n")
    );

    let all = scratch.ok(&["ls", "-R", "x.img:/Letters"]);
    assert_eq!(
        all,
        format!("/Letters:\n{MARCH}\nold\n\n/Letters/old:\na b.txt\n")
    );
    let all = scratch.json(&["ls", "-R", "x.img:/Letters"]);
    assert_eq!(
        strings(&all["entries"], "volume_path"),
        [
            &*format!("/Letters/{MARCH}"),
            "/Letters/old",
            "/Letters/old/a b.txt"
        ]
    );
    assert_eq!(all["entries"][2]["size"], 10_000);

    let tree = scratch.ok(&["tree", "x.img"]);
    let expected = format!(
        "Docs\n├── big.bin\n├── empty\n├── hello again.txt\n├── hello.txt\n├── Letters\n│   ├── {MARCH}\n│   └── old\n\
                    │       └── a b.txt\n├── link -> Letters/old\n├── nothing in here\n└── run.sh\n\n3 folders, 8 files, 2.9 MiB "
    );
    assert!(tree.starts_with(&expected), "{tree}");
    assert!(!scratch.ok(&["tree", "-L", "1", "x.img"]).contains(MARCH));
    let tree = scratch.json(&["tree", "x.img:/Letters"]);
    assert_eq!(strings(&tree["root"]["children"], "name"), [MARCH, "old"]);
    assert_eq!(
        (tree["folders"].as_u64(), tree["files"].as_u64()),
        (Some(1), Some(2))
    );
}

#[test]
fn files_are_printed_and_copied() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    scratch.ok(&["create", "x.sparsebundle", "--from", "src"]);
    let output = scratch.run(&[
        "cat",
        "x.sparsebundle:/big.bin",
        "x.sparsebundle:/Letters/März.txt",
    ]);
    let expected = [fs::read(src.join("big.bin")).unwrap(), "grüße\n".into()].concat();
    assert!(output.stdout == expected);

    scratch.ok(&["cp", "x.sparsebundle:/hello.txt", "."]);
    scratch.ok(&["cp", "x.sparsebundle:/hello.txt", "renamed"]);
    scratch.ok(&["cp", "-R", "x.sparsebundle:/Letters", "new"]);
    scratch.ok(&["cp", "-a", "x.sparsebundle:/Letters", "new"]);
    assert_eq!(
        fs::read(scratch.path("hello.txt")).unwrap(),
        b"hello, world\n"
    );
    assert_eq!(
        fs::read(scratch.path("renamed")).unwrap(),
        b"hello, world\n"
    );
    assert_eq!(
        inventory(&scratch.path("new/Letters")),
        inventory(&src.join("Letters"))
    );
    assert!(scratch.path("new/old/a b.txt").exists());

    scratch.fails(4, &["cp", "x.sparsebundle:/hello.txt", "renamed"]);
    fs::write(scratch.path("renamed"), "mine").unwrap();
    scratch.fails(4, &["cp", "x.sparsebundle:/hello.txt", "renamed"]);
    assert_eq!(
        fs::read(scratch.path("renamed")).unwrap(),
        b"mine",
        "overwriting must be asked for"
    );
    scratch.ok(&["cp", "--overwrite", "x.sparsebundle:/hello.txt", "renamed"]);
    assert_eq!(
        fs::read(scratch.path("renamed")).unwrap(),
        b"hello, world\n"
    );
    scratch.fails(2, &["cp", "x.sparsebundle:/Letters", "new"]);
    scratch.fails(2, &["cp", "hello.txt", "other"]);
    scratch.fails(4, &["cp", "hello.txt", "x.sparsebundle:/"]);
}

#[test]
fn a_part_is_extracted_and_nothing_overwritten() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    scratch.ok(&["create", "x.sparsebundle", "--from", "src"]);
    let done = scratch.json(&["extract", "x.sparsebundle:/Letters", "out"]);
    assert_eq!(
        (done["files"].as_u64(), done["problem_count"].as_u64()),
        (Some(2), Some(0))
    );
    assert_eq!(
        inventory(&scratch.path("out")),
        inventory(&src.join("Letters"))
    );
    fs::write(scratch.path("out/Letters").with_file_name(MARCH), "mine").unwrap();
    let output = scratch.run(&["extract", "x.sparsebundle:/Letters", "out"]);
    assert_eq!(
        output.status.code(),
        Some(4),
        "{}",
        crate::common::stderr(&output)
    );
    assert!(crate::common::stderr(&output).contains(MARCH));
    assert_eq!(
        fs::read(scratch.path("out/Letters").with_file_name(MARCH)).unwrap(),
        b"mine"
    );
    scratch.ok(&["extract", "--overwrite", "x.sparsebundle:/Letters", "out"]);
    assert_eq!(
        inventory(&scratch.path("out")),
        inventory(&src.join("Letters"))
    );
}

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

#[test]
fn archives_go_in_and_come_out() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    scratch.ok(&["extract", "x.img", "--tar", "all.tar"]);
    let output = scratch.run(&["extract", "x.img", "--tar", "-"]);
    assert!(
        output.status.success() && crate::common::stderr(&output).contains("7 files"),
        "{}",
        crate::common::stderr(&output)
    );
    assert!(output.stdout == fs::read(scratch.path("all.tar")).unwrap());
    assert!(
        scratch
            .fails(4, &["extract", "x.img", "--tar", "all.tar"])
            .contains("--overwrite")
    );

    scratch.ok(&["create", "from-file.img", "--from", "all.tar"]);
    assert_eq!(
        scratch.json(&["from-file.img"])["volumes"][0]["name"],
        "all"
    );
    scratch.ok(&["extract", "from-file.img", "out"]);
    assert_eq!(inventory(&scratch.path("out")), inventory(&src));

    let mut command = scratch.command(&["create", "from-stream.img", "--from", "-"]);
    command.write_stdin(output.stdout).assert().success();
    scratch.ok(&["extract", "from-stream.img", "out2"]);
    assert_eq!(inventory(&scratch.path("out2")), inventory(&src));
    let names = [
        "all.tar",
        "from-file.img",
        "from-stream.img",
        "out",
        "out2",
        "src",
        "x.img",
    ];
    assert_eq!(scratch.names(), names, "nothing temporary is left");

    let mut command = scratch.command(&["create", "bad.img", "--from", "-"]);
    command.write_stdin("this is no archive").assert().failure();
    assert_eq!(scratch.names(), names);
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

#[test]
fn the_files_of_a_journal_are_hidden() {
    let scratch = Scratch::new();
    scratch.write("src/a.txt", "abc");
    scratch.ok(&[
        "create",
        "j.img",
        "--fs",
        "hfs+j",
        "--from",
        "src",
        "--volname",
        "J",
    ]);
    assert_eq!(scratch.ok(&["ls", "j.img"]), "a.txt\n");
    assert!(!scratch.ok(&["tree", "j.img"]).contains(".journal"));
    let shown = scratch.ok(&["ls", "--system-files", "j.img"]);
    assert_eq!(shown, ".journal\n.journal_info_block\na.txt\n");
    let done = scratch.json(&["extract", "j.img", "out"]);
    assert_eq!(
        (&done["files"], &done["size"]),
        (&Value::from(1), &Value::from(3)),
        "{done}"
    );
    assert_eq!(scratch.json(&["info", "j.img"])["volumes"][0]["files"], 1);
    scratch.ok(&["extract", "j.img", "--tar", "j.tar"]);
    assert!(
        !fs::read(scratch.path("j.tar"))
            .unwrap()
            .windows(8)
            .any(|name| name == b".journal")
    );
    // What came out goes in again, into a volume of the same kind, too.
    scratch.ok(&[
        "create",
        "k.img",
        "--fs",
        "hfs+j",
        "--from",
        "out",
        "--volname",
        "J",
    ]);
    scratch.ok(&[
        "create",
        "l.img",
        "--fs",
        "hfs+j",
        "--from",
        "j.tar",
        "--volname",
        "J",
    ]);
    assert_eq!(scratch.ok(&["cat", "l.img:/a.txt"]), "abc");
    scratch.fails(3, &["cat", "j.img:/.journal"]);
    scratch.ok(&["cat", "--system-files", "j.img:/.journal_info_block"]);
    let before = fs::read(scratch.path("j.img")).unwrap();
    for system in [&[][..], &["--system-files"]] {
        let refused = |args: &[&str]| {
            assert!(
                !scratch.run(&[args, system].concat()).status.success(),
                "{args:?} {system:?}"
            )
        };
        refused(&["rm", "j.img:/.journal"]);
        refused(&["mv", "j.img:/.journal", "j.img:/moved"]);
        refused(&["mv", "j.img:/a.txt", "j.img:/.journal"]);
        refused(&["put", "--from", "src/a.txt", "j.img:/.journal"]);
        refused(&["mkdir", "j.img:/.journal_info_block"]);
    }
    scratch.ok(&["check", "j.img"]);
    assert_eq!(scratch.ok(&["ls", "j.img"]), "a.txt\n");
    assert_eq!(before.len(), fs::read(scratch.path("j.img")).unwrap().len());
}

/// As deep as a volume may be: on macOS, too, folders are made by the thousands where each is
/// entered in turn.
#[test]
fn folders_may_be_thousands_deep() {
    const DEPTH: usize = 1_500;
    let scratch = Scratch::new();
    let mut archive = Vec::new();
    let mut path = String::new();
    for level in 0..DEPTH {
        path += if level == 0 { "d" } else { "/d" };
        archive.extend(pax_folder(&path));
    }
    archive.extend([0; 1024]);
    scratch.write("deep.tar", archive);
    for fs in ["hfs+", "apfs"] {
        scratch.ok(&[
            "create",
            "deep.img",
            "--overwrite",
            "--fs",
            fs,
            "--from",
            "deep.tar",
            "--volname",
            "Deep",
        ]);
        let listed = scratch.ok(&["ls", "-R", "deep.img"]);
        assert_eq!(
            listed.lines().filter(|line| line.ends_with(':')).count(),
            DEPTH + 1,
            "{fs}"
        );
        assert_eq!(
            scratch.ok(&["tree", "deep.img"]).matches("└── d").count(),
            DEPTH,
            "{fs}"
        );
        let tree = scratch.ok(&["tree", "--json", "deep.img"]);
        assert_eq!(
            (
                tree.matches("\"children\":[").count(),
                tree.matches("]}").count()
            ),
            (DEPTH + 1, DEPTH + 1),
            "{fs}"
        );
        assert!(tree.contains(&format!("\"folders\": {DEPTH}")), "{fs}");
        assert_eq!(
            scratch.json(&["ls", "-R", "deep.img"])["entries"]
                .as_array()
                .unwrap()
                .len(),
            DEPTH,
            "{fs}"
        );
        assert_eq!(
            scratch.json(&["tree", "-L", "2", "deep.img"])["root"]["children"][0]["children"][0]["name"],
            "d"
        );
        scratch.ok(&["check", "--contents", "deep.img"]);
    }
    scratch.ok(&["rm", "-R", "deep.img:/d"]);
    assert_eq!(scratch.ok(&["ls", "deep.img"]), "");
}

/// A folder of a tar archive, by an extended header that holds names of any length.
fn pax_folder(path: &str) -> Vec<u8> {
    let entry = |kind: u8, name: &str, body: &[u8]| {
        let mut head = [0; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..107].copy_from_slice(b"0000755");
        head[124..135].copy_from_slice(format!("{:011o}", body.len()).as_bytes());
        head[136..147].copy_from_slice(b"00000000001");
        head[148..156].copy_from_slice(b"        ");
        head[156] = kind;
        head[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let record = |len: usize| format!("{len} path={path}\n");
    let len = (0..9)
        .map(|digits| record(0).len() - 1 + digits)
        .find(|&len| record(len).len() == len)
        .unwrap();
    [
        entry(b'x', "head", record(len).as_bytes()),
        entry(b'5', "d", &[]),
    ]
    .concat()
}

#[test]
fn names_are_quoted_where_that_is_asked_for() {
    let scratch = Scratch::new();
    scratch.write("src/a\x1b[31m\nb", "x");
    scratch.write("src/it's", "x");
    scratch.ok(&[
        "create",
        "q.img",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    assert_eq!(
        scratch.ok(&["ls", "q.img"]),
        "a\u{1b}[31m\nb\nit's\n",
        "as they are, as ls does it"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "escape", "q.img"]),
        "a\\033[31m\\nb\nit's\n"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "c", "q.img"]),
        "\"a\\033[31m\\nb\"\n\"it's\"\n"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "shell-escape", "q.img"]),
        "$'a\\033[31m\\nb'\n'it'\\''s'\n"
    );
    scratch.ok(&[
        "create",
        "r.img",
        "--overwrite",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    for args in [
        &["tree"][..],
        &["info"],
        &["du"],
        &["diagnose"],
        &["ls", "-lR"],
    ] {
        let said = scratch.ok(&[args, &["--quoting", "escape", "r.img"]].concat());
        assert!(!said.contains('\u{1b}'), "{args:?}: {said}");
    }
    let said = scratch.ok(&[
        "create",
        "s.img",
        "--quoting",
        "escape",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    assert!(
        said.contains("V\\033[0m") && !said.contains('\u{1b}'),
        "{said}"
    );
    scratch.fails(2, &["ls", "--quoting", "locale", "q.img"]);
}

#[test]
fn special_files_and_rights_come_only_where_they_are_asked_for() {
    let scratch = Scratch::new();
    let script = scratch.write("src/run.sh", "#!/bin/sh\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o6755)).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(scratch.path("src/pipe"))
            .status()
            .unwrap()
            .success()
    );
    scratch.ok(&["create", "s.img", "--fs", "hfs+", "--from", "src"]);
    let mode = |folder: &str| {
        fs::metadata(scratch.path(folder).join("run.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    let output = scratch.run(&["extract", "s.img", "out"]);
    let said = stderr(&output);
    assert!(
        output.status.success() && said.contains("/pipe: ") && said.contains("/run.sh: "),
        "{said}"
    );
    assert_eq!(
        (mode("out"), scratch.path("out/pipe").exists()),
        (0o755, false)
    );
    assert_eq!(scratch.json(&["extract", "s.img", "out2"])["note_count"], 2);
    let output = scratch.run(&["extract", "--special-files", "--setuid", "s.img", "all"]);
    assert!(
        output.status.success() && stderr(&output).is_empty(),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        (mode("all"), scratch.path("all/pipe").exists()),
        (0o6755, true)
    );
}
