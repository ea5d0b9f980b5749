//! The face of hdiutil: as programs call it.

mod attach;
mod hybrids;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use crate::common::skip::skip;
use crate::common::{Scratch, stderr};

/// The command under the name `hdiutil`, with these words, and this on standard input.
fn hdiutil(scratch: &Scratch, line: &str, input: &[u8]) -> Output {
    let link = scratch.path("bin/hdiutil");
    if !link.exists() {
        fs::create_dir_all(scratch.path("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_bandsaw"), &link).unwrap();
    }
    let mut command = assert_cmd::Command::new(link);
    command
        .args(line.split(' '))
        .current_dir(scratch.path(""))
        .env_remove("SOURCE_DATE_EPOCH")
        .write_stdin(input);
    command.output().unwrap()
}

fn ok(scratch: &Scratch, line: &str) -> String {
    let output = hdiutil(scratch, line, b"");
    assert!(
        output.status.success(),
        "hdiutil {line}: {}",
        stderr(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn fails(scratch: &Scratch, line: &str) -> String {
    let output = hdiutil(scratch, line, b"");
    assert_eq!(output.status.code(), Some(1), "hdiutil {line}");
    assert!(
        output.stdout.is_empty(),
        "hdiutil {line}: a failure has nothing to say on standard output"
    );
    stderr(&output)
}

fn plist(scratch: &Scratch, line: &str) -> plist::Value {
    let text = ok(scratch, line);
    plist::Value::from_reader_xml(text.as_bytes())
        .unwrap_or_else(|error| panic!("hdiutil {line}: {error}: {text}"))
}

fn at<'a>(list: &'a plist::Value, keys: &[&str]) -> &'a plist::Value {
    keys.iter().fold(list, |list, key| {
        list.as_dictionary()
            .and_then(|list| list.get(key))
            .unwrap_or_else(|| panic!("{key} in {list:?}"))
    })
}

fn sample() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("src/letter", "dear diary");
    scratch.write("src/folder/other", "other");
    scratch.write("more/third", "third");
    scratch
}

#[test]
fn create_makes_what_the_options_say() {
    let scratch = sample();
    for (line, path, format, name) in [
        (
            "create -size 10m -fs HFS+ -volname Disk -ov -nospotlight a",
            "a.dmg",
            "UDRW",
            Some("Disk"),
        ),
        (
            "create -megabytes 10 -fs JHFS+ -volname J -type SPARSE b",
            "b.sparseimage",
            "UDSP",
            Some("J"),
        ),
        (
            "CREATE -SIZE 5000000 -FS hfs+ -VolName Bytes bytes",
            "bytes.dmg",
            "UDRW",
            Some("Bytes"),
        ),
        (
            "create -sectors 20480 c.sparsebundle -imagekey sparse-band-size=2048",
            "c.sparsebundle",
            "UDSB",
            Some("untitled"),
        ),
        (
            "create -srcfolder src -fs HFS+ -fsargs -c -format UDZO d -quiet",
            "d.dmg",
            "UDZO",
            Some("src"),
        ),
        (
            "create -srcfolder src -srcdir more -fs HFS+ -format ULFO e -anyowners -noscrub",
            "e.dmg",
            "ULFO",
            Some("src"),
        ),
        ("create -size 5m -layout NONE f.dmg", "f.dmg", "UDRW", None),
        (
            "create -size 10m -fs HFS+ -layout SPUD -volname H h.dmg",
            "h.dmg",
            "UDRW",
            Some("H"),
        ),
        (
            "create -size 10m -fs HFS+ -layout MBRSPUD -volname I i.dmg",
            "i.dmg",
            "UDRW",
            Some("I"),
        ),
        (
            "create -size 134217.728K -fs HFS+ -fsargs c=64 -volname G -plist g.dmg",
            "g.dmg",
            "UDRW",
            Some("G"),
        ),
    ] {
        let printed = ok(&scratch, line);
        let facts = scratch.json(&["info", path]);
        assert_eq!(facts["format"], format, "{line}");
        assert_eq!(
            facts["volumes"][0]["name"].as_str(),
            name,
            "{line}: {facts}"
        );
        assert_eq!(
            printed.is_empty(),
            line.contains("-quiet"),
            "{line}: {printed}"
        );
        assert!(
            printed.is_empty() || printed.contains(path),
            "{line}: {printed}"
        );
    }
    assert_eq!(scratch.json(&["info", "a.dmg"])["size"], 10 << 20);
    assert_eq!(scratch.json(&["info", "bytes.dmg"])["size"], 5_000_192);
    for (path, scheme) in [("a.dmg", "gpt"), ("h.dmg", "apm"), ("i.dmg", "mbr")] {
        assert_eq!(
            scratch.json(&["info", path])["partition_map"]["scheme"],
            scheme,
            "{path}"
        );
        scratch.ok(&["check", path]);
    }
    assert_eq!(scratch.ok(&["cat", "d.dmg:/letter"]), "dear diary");
    assert_eq!(scratch.ok(&["cat", "e.dmg:/more/third"]), "third");
}

#[test]
fn an_encrypted_image_through_standard_input() {
    let scratch = sample();
    for format in ["UDZO", "UDRW", "UDSB"] {
        let line = format!(
            "create -srcfolder src -fs HFS+ -format {format} -encryption AES-256 -stdinpass -ov x"
        );
        let made = hdiutil(&scratch, &line, b"secret\0");
        assert!(made.status.success(), "{}", stderr(&made));
    }
    let encrypted = plist(&scratch, "isencrypted -plist x.dmg");
    assert_eq!(at(&encrypted, &["encrypted"]).as_boolean(), Some(true));
    assert_eq!(
        at(&encrypted, &["passphrase-count"]).as_unsigned_integer(),
        Some(1)
    );
    assert!(ok(&scratch, "isencrypted x.dmg").starts_with("encrypted: YES"));
    assert!(ok(&scratch, "imageinfo x.dmg").contains("Encrypted: true"));
    let wrong = hdiutil(&scratch, "imageinfo -stdinpass x.dmg", b"wrong\0");
    assert!(
        stderr(&wrong).contains("imageinfo failed - Authentication error"),
        "{}",
        stderr(&wrong)
    );

    let changed = hdiutil(
        &scratch,
        "chpass -oldstdinpass -newstdinpass x.dmg",
        b"secret\0other\0",
    );
    assert!(changed.status.success(), "{}", stderr(&changed));
    let read = hdiutil(
        &scratch,
        "convert x.dmg -format UDRW -o plain -stdinpass",
        b"other\0",
    );
    assert!(read.status.success(), "{}", stderr(&read));
    assert_eq!(scratch.ok(&["cat", "plain.dmg:/letter"]), "dear diary");
    ok(&scratch, "erasekeys x.dmg");
    assert!(
        !hdiutil(&scratch, "imageinfo -stdinpass x.dmg", b"other\0")
            .status
            .success()
    );
}

#[test]
fn a_life_of_an_image() {
    let scratch = sample();
    ok(&scratch, "create -size 64m -fs HFS+ -volname Life life.dmg");
    let before = scratch.json(&["info", "life.dmg"])["size"]
        .as_u64()
        .unwrap();
    ok(&scratch, "resize -quiet -sectors min life.dmg");
    let after = scratch.json(&["info", "life.dmg"])["size"]
        .as_u64()
        .unwrap();
    assert!(after < before, "{after}");
    let limits = plist(&scratch, "resize -limits -plist life.dmg");
    assert_eq!(
        at(&limits, &["current"]).as_unsigned_integer(),
        Some(after / 512)
    );
    let printed = ok(
        &scratch,
        "convert life.dmg -format UDZO -imagekey zlib-level=9 -ov -o packed -plist",
    );
    assert!(printed.contains("packed.dmg"), "{printed}");
    let printed = ok(&scratch, "verify packed.dmg");
    assert!(
        printed.contains("Checksumming GPT Header (Primary GPT Header : 1)…\n GPT Header (Primary GPT Header : 1): verified CRC32 $"),
        "{printed}"
    );
    assert!(
        printed.contains("Protective Master Boot Record (MBR :: verified CRC32 $"),
        "{printed}"
    );
    assert!(
        printed
            .lines()
            .last()
            .unwrap()
            .starts_with("verified CRC32 $"),
        "{printed}"
    );
    let verified = plist(&scratch, "verify -plist packed.dmg");
    let sums = at(&verified, &["checksums"]).as_array().unwrap();
    let sums: Vec<_> = sums
        .iter()
        .map(|sum| at(sum, &["checksum-value"]).as_string().unwrap())
        .map(str::to_uppercase)
        .collect();
    for (_, sum) in printed
        .lines()
        .filter_map(|line| line.split_once("CRC32 $"))
    {
        assert!(sums.iter().any(|other| other == sum), "{sum}: {sums:?}");
    }
    assert!(
        ok(
            &scratch,
            "convert life.dmg -format UDRO -puppetstrings -o ro.dmg"
        )
        .contains("PERCENTAGE:100")
    );

    let info = plist(&scratch, "imageinfo -plist packed.dmg");
    assert_eq!(at(&info, &["Format"]).as_string(), Some("UDZO"));
    assert_eq!(
        at(&info, &["Properties", "Compressed"]).as_boolean(),
        Some(true)
    );
    assert_eq!(
        at(&info, &["Size Information", "Total Bytes"]).as_unsigned_integer(),
        Some(after)
    );
    let partitions = at(&info, &["partitions", "partitions"]).as_array().unwrap();
    assert_eq!(
        at(&partitions[4], &["partition-filesystems", "HFS+"]).as_string(),
        Some("")
    );
    assert_eq!(ok(&scratch, "imageinfo -format packed.dmg"), "UDZO\n");
    assert!(ok(&scratch, "pmap packed.dmg").contains("Apple_HFS"));
    assert!(ok(&scratch, "fsid packed.dmg").contains("Life"));
    let sum = ok(&scratch, "checksum -type SHA256 packed.dmg").to_lowercase();
    assert!(
        sum.contains(
            scratch
                .ok(&["checksum", "--type", "sha256", "life.dmg"])
                .split(' ')
                .next()
                .unwrap()
        ),
        "{sum}"
    );
    assert!(
        at(&plist(&scratch, "info -plist"), &["images"])
            .as_array()
            .is_some()
    );

    // As dmgbuild says it, with an operand that is empty.
    scratch.write("LICENSE", "be nice");
    scratch.ok(&[
        "resources",
        "add",
        "packed.dmg",
        "--license",
        "LICENSE",
        "-o",
        "licensed.dmg",
    ]);
    scratch.write("list.xml", ok(&scratch, "udifderez -xml licensed.dmg"));
    // As CPack says it, with a word that stands for nothing.
    ok(
        &scratch,
        "udifrez -xml list.xml FIXME_WHY_IS_THIS_ARGUMENT_NEEDED packed.dmg -quiet",
    );
    ok(&scratch, "udifrez -xml list.xml  -quiet packed.dmg");
    assert_eq!(
        at(
            &plist(&scratch, "imageinfo -plist packed.dmg"),
            &["Properties", "Software License Agreement"]
        )
        .as_boolean(),
        Some(true)
    );

    scratch.write(
        "noise",
        (0..3_000_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect::<Vec<_>>(),
    );
    ok(
        &scratch,
        "convert life.dmg -format UDSB -imagekey sparse-band-size=2048 -o life",
    );
    ok(&scratch, "resize -size 64m life.sparsebundle");
    scratch.ok(&["put", "--from", "noise", "life.sparsebundle:/noise"]);
    scratch.ok(&["rm", "life.sparsebundle:/noise"]);
    ok(&scratch, "compact -batteryallowed life.sparsebundle");
    assert_eq!(
        scratch.json(&["info", "life.sparsebundle"])["format"],
        "UDSB"
    );
}

/// A disk that is there is copied; what is compressed is cut as it is made, and joins again.
#[test]
fn images_of_devices_and_images_in_parts() {
    let scratch = sample();
    let mut state = 7_u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    scratch.write(
        "src/noise",
        (0..3_000_000).map(|_| noise()).collect::<Vec<_>>(),
    );
    ok(&scratch, "create -srcfolder src -fs HFS+ -format UDRW disk");
    ok(&scratch, "create -srcdevice disk.dmg copy");
    assert_eq!(scratch.json(&["info", "copy.dmg"])["format"], "UDZO");
    assert_eq!(scratch.ok(&["cat", "copy.dmg:/letter"]), "dear diary");
    for line in [
        "create -srcfolder src -fs HFS+ -segmentSize 1m parts",
        "convert disk.dmg -format UDZO -segmentSize 1m -o pieces",
    ] {
        let name = line.split(' ').next_back().unwrap();
        assert!(
            ok(&scratch, line).contains(&format!("{name}.dmg")),
            "{line}"
        );
        assert!(
            scratch.path(&format!("{name}.002.dmgpart")).exists(),
            "{line}: {:?}",
            scratch.names()
        );
        scratch.ok(&[
            "join",
            &format!("{name}.dmg"),
            "-o",
            "whole.dmg",
            "--overwrite",
        ]);
        assert_eq!(scratch.ok(&["cat", "whole.dmg:/letter"]), "dear diary");
    }
    assert!(
        scratch.names().iter().all(|name| !name.contains("whole-")),
        "{:?}",
        scratch.names()
    );
    assert!(
        fails(
            &scratch,
            "create -srcfolder src -segmentSize 1m -encryption -stdinpass x"
        )
        .contains("cannot be split")
    );
    assert!(fails(&scratch, "create -srcdevice missing x").contains("No such file"));
}

/// Bundles are one item, as macdeployqt and electron-builder expect.
#[test]
fn a_bundle_is_copied_as_one_item() {
    let scratch = sample();
    scratch.write("Demo.app/Contents/Info.plist", "list");
    for (line, image) in [
        (
            "create -srcfolder Demo.app -fs HFS+ -volname D app",
            "app.dmg",
        ),
        (
            "create -srcfolder Demo.app/ -fs HFS+ -volname D slash",
            "slash.dmg",
        ),
    ] {
        ok(&scratch, line);
        assert_eq!(scratch.ok(&["ls", image]), "Demo.app\n", "{line}");
    }
    assert_eq!(
        scratch.ok(&["cat", "app.dmg:/Demo.app/Contents/Info.plist"]),
        "list"
    );
}

/// The calls of programs that cannot run here, in their words.
#[test]
fn calls_of_release_programs() {
    let license = "udifrez -xml list.xml FIXME_WHY_IS_THIS_ARGUMENT_NEEDED Demo.dmg";
    for (program, lines) in [
        (
            "macdeployqt",
            &["create Demo.dmg -srcfolder Demo.app -format UDZO -fs HFS+ -volname Demo"][..],
        ),
        (
            "electron-builder 24",
            &[
                "create -srcfolder Demo.app -volname Demo -anyowners -nospotlight -format UDRW -fs APFS temp.dmg",
                "convert temp.dmg -ov -format UDZO -imagekey zlib-level=9 -o Demo.dmg",
            ],
        ),
        (
            "pkg-dmg",
            &[
                "makehybrid -hfs -hfs-volume-name Demo -hfs-openfolder stage -ov stage -o temp.dmg",
                "convert -format UDRW -ov temp.dmg -o temp.dmg",
                "convert -format UDBZ -ov temp.dmg -o Demo.dmg",
            ],
        ),
        (
            "mozpack",
            &[
                "makehybrid -hfs -hfs-volume-name Demo -hfs-openfolder stage -ov stage -o temp.dmg",
                "convert -format ULFO -imagekey bzip2-level=9 -ov temp.dmg -o Demo.dmg",
            ],
        ),
        (
            "CPack",
            &[
                "create -ov -srcfolder stage -volname Demo -fs HFS+ -format UDRW temp.dmg",
                "convert temp.dmg -ov -format UDZO -imagekey zlib-level=9 -o Demo.dmg",
                license,
            ],
        ),
    ] {
        let scratch = sample();
        for folder in ["", "stage/"] {
            scratch.write(&format!("{folder}Demo.app/Contents/Info.plist"), "list");
        }
        for line in lines {
            if *line == license {
                scratch.write("LICENSE", "be nice");
                let add = "resources add Demo.dmg --license LICENSE -o licensed.dmg";
                scratch.ok(&add.split(' ').collect::<Vec<_>>());
                scratch.write("list.xml", ok(&scratch, "udifderez -xml licensed.dmg"));
            }
            ok(&scratch, line);
        }
        assert_eq!(scratch.ok(&["ls", "Demo.dmg"]), "Demo.app\n", "{program}");
        let facts = scratch.json(&["info", "Demo.dmg"]);
        assert_eq!(facts["volumes"][0]["name"], "Demo", "{program}");
        scratch.ok(&["verify", "Demo.dmg"]);
    }
}

/// As create-dmg does in a sandbox.
#[test]
fn an_image_is_converted_onto_itself() {
    let scratch = sample();
    ok(&scratch, "makehybrid -hfs -o x.dmg src");
    let before = fs::read(scratch.path("x.dmg")).unwrap();
    assert!(fails(&scratch, "convert x.dmg -format UDRW -o x.dmg").contains("File exists"));
    assert_eq!(fs::read(scratch.path("x.dmg")).unwrap(), before);
    ok(&scratch, "convert -format UDRW -ov -o x.dmg x.dmg");
    assert_eq!(fs::read(scratch.path("x.dmg")).unwrap(), before);
    ok(&scratch, "convert -format UDZO -ov -o x.dmg x.dmg");
    assert_eq!(scratch.json(&["info", "x.dmg"])["format"], "UDZO");
    let report = scratch.json(&[
        "convert",
        "x.dmg",
        "x.dmg",
        "--overwrite",
        "--format",
        "udro",
    ]);
    assert_eq!(
        (&report["path"], &report["format"]),
        (&"x.dmg".into(), &"UDRO".into())
    );
    assert_eq!(scratch.ok(&["cat", "x.dmg:/letter"]), "dear diary");
    ok(&scratch, "convert x.dmg -format UDSB -o b");
    assert!(
        fails(&scratch, "convert b.sparsebundle -format UDSB -ov -o b").contains("File exists")
    );
    assert_eq!(
        scratch.names(),
        ["b.sparsebundle", "bin", "more", "src", "x.dmg"]
    );
}

#[test]
fn failures_say_hdiutil_s_words_and_change_nothing() {
    let scratch = sample();
    ok(&scratch, "create -size 10m -fs HFS+ a.dmg");
    let before = (scratch.names(), fs::read(scratch.path("a.dmg")).unwrap());
    for (line, said) in [
        ("create -size 10m a.dmg", "create failed - File exists"),
        ("verify a.dmg", "no checksums"),
        (
            "verify missing.dmg",
            "verify failed - No such file or directory",
        ),
        (
            "detach /dev/disk4711",
            "detach failed - No such file or directory",
        ),
        ("create b.dmg", "size"),
        ("create -size 10q b.dmg", "size"),
        ("create -size 10m -fs UDF b.dmg", "UDF"),
        (
            "create -size 10m -layout ISOCD b.dmg",
            "create failed - Invalid argument",
        ),
        ("create -size 10m -passphrase secret b.dmg", "-stdinpass"),
        ("create -size 10m -nonsense b.dmg", "nonsense"),
        ("convert a.dmg -format UFBI -o b", "convert failed"),
        ("convert a.dmg -format UDZO -o a", "File exists"),
        ("flatten a.dmg", "only compressed and read-only"),
        (
            "resize -size 20m -imageonly -partitiononly a.dmg",
            "-imageonly cannot be used with -partitiononly",
        ),
        (
            "resize -size 20m -partitionID x a.dmg",
            "-partitionID requires a number",
        ),
        (
            "segment -segmentCount 2 -segmentSize 1m -o b a.dmg",
            "-segmentCount cannot be used with -segmentSize",
        ),
        ("foo a.dmg", "hdiutil: unknown verb foo"),
        ("burn a.dmg", "burning is not supported"),
        ("verify -agentpass a.dmg", "agent"),
        ("nonsense", "unknown verb nonsense"),
    ] {
        let printed = fails(&scratch, line);
        assert!(
            printed.starts_with("hdiutil: ") && printed.contains(said),
            "{line}: {printed}"
        );
        assert_eq!(
            before,
            (scratch.names(), fs::read(scratch.path("a.dmg")).unwrap()),
            "{line}"
        );
    }
    assert!(fails(&scratch, "create -quiet -size 10m a.dmg").is_empty());
    assert!(scratch.ok(&["hdiutil", "help"]).contains("makehybrid"));
    assert!(
        scratch
            .fails(1, &["hdiutil", "create", "-size", "10m", "a.dmg"])
            .contains("File exists")
    );
}

#[test]
fn diskutil_image_likewise() {
    let scratch = sample();
    scratch.ok(&[
        "diskutil",
        "image",
        "create",
        "blank",
        "--format",
        "ASIF",
        "--size",
        "100m",
        "-fs",
        "HFS+",
        "--volumeName",
        "D",
        "d.asif",
    ]);
    let facts = scratch.json(&["info", "d.asif"]);
    assert_eq!(
        (&facts["size"], &facts["volumes"][0]["name"]),
        (&100_000_256.into(), &"D".into()),
        "{facts}"
    );
    assert!(
        scratch
            .ok(&["diskutil", "image", "info", "d.asif"])
            .contains("ASIF")
    );
    scratch.ok(&["diskutil", "image", "resize", "-s", "min", "d.asif"]);
    let limits = scratch.ok(&["diskutil", "image", "resize", "--plist", "d.asif"]);
    assert!(limits.contains("Minimum Size"), "{limits}");
    scratch.ok(&[
        "diskutil", "image", "create", "from", "d.asif", "d.dmg", "--format", "UDZO",
    ]);
    assert_eq!(scratch.json(&["info", "d.dmg"])["format"], "UDZO");
    assert!(
        scratch
            .fails(1, &["diskutil", "verifyVolume", "disk1"])
            .contains("bandsaw check")
    );
    assert!(
        scratch
            .fails(1, &["diskutil", "partitionDisk", "disk1"])
            .contains("partitionDisk")
    );
    assert!(
        scratch
            .fails(1, &["diskutil", "image", "info", "missing"])
            .contains("No such file")
    );
}
