//! A folder becomes an image, is looked at with every verb, and becomes a folder again.

mod extracted;
mod formats;

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
fn contents_of_a_volume_are_listed() {
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
