//! Compressed images through the command: summed, cut and joined, with licenses, and with
//! signatures that are not lost.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{Scratch, stderr};

const FORMATS: [&str; 6] = ["udro", "udco", "udzo", "udbz", "ulfo", "ulmo"];

/// `app.dmg` of a volume, and `app.img`, the same disk.
fn app() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "app.img", "--from", "src", "--size", "8m"]);
    let convert = ["convert", "app.img", "app.dmg", "--format", "udzo"];
    scratch.ok(&[&convert[..], &["--level", "1"]].concat());
    scratch
}

/// Says in the trailer of `name` that the last bytes before it are a code signature.
fn sign(scratch: &Scratch, name: &str) -> PathBuf {
    let mut bytes = fs::read(scratch.path(name)).unwrap();
    let trailer = bytes.split_off(bytes.len() - 512);
    let at = bytes.len() as u64;
    bytes.extend([0xFA, 0xDE, 0x0C, 0xC0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut signed = trailer;
    signed[0x128..0x130].copy_from_slice(&at.to_be_bytes());
    signed[0x130..0x138].copy_from_slice(&16u64.to_be_bytes());
    scratch.write("signed.dmg", [bytes, signed].concat())
}

#[test]
fn one_disk_has_one_sum() {
    let scratch = app();
    let mut names = vec!["app.img".to_owned()];
    for format in FORMATS {
        let name = format!("{format}.dmg");
        scratch.ok(&["convert", "app.img", &name, "--format", format]);
        assert_eq!(scratch.json(&["verify", &name])["intact"], true, "{format}");
        assert_eq!(
            scratch.json(&["info", &name])["format"]
                .as_str()
                .unwrap()
                .to_lowercase(),
            format
        );
        names.push(name);
    }
    for name in ["app.sparsebundle", "app.sparseimage", "app.asif"] {
        scratch.ok(&["convert", "ulmo.dmg", name]);
        names.push(name.to_owned());
    }
    let mut args = vec!["checksum"];
    args.extend(names.iter().map(String::as_str));
    let sums = scratch.json(&args);
    let sums = sums["images"].as_array().unwrap();
    assert!(
        sums.len() == 10
            && sums
                .iter()
                .all(|sum| sum["checksum"] == sums[0]["checksum"] && sum["size"] == 8 << 20)
    );
    let text = scratch.ok(&["checksum", "--type", "crc32", "app.img", "udbz.dmg"]);
    let sums: Vec<_> = text
        .lines()
        .map(|line| line.split_whitespace().find(|word| word.len() == 8))
        .collect();
    assert!(
        sums.len() == 2 && sums[0].is_some() && sums[0] == sums[1],
        "{text}"
    );
    assert!(
        scratch
            .fails(2, &["checksum", "--type", "crc31", "app.img"])
            .contains("crc31")
    );
    scratch.fails(3, &["checksum", "missing.img"]);
}

#[test]
fn images_are_cut_and_joined() {
    let scratch = app();
    let sum = |name: &str| scratch.json(&["checksum", name])["images"][0]["checksum"].clone();
    let made = scratch.json(&["segment", "app.dmg", "-o", "cut.dmg", "--size", "100k"]);
    let files = made["segments"].as_array().unwrap().clone();
    assert!(
        files.len() >= 2
            && files
                .iter()
                .all(|file| file["size"].as_u64().unwrap() <= 100 << 10),
        "{made:#}"
    );
    assert!(scratch.path("cut.002.dmgpart").exists());
    assert_eq!(sum("cut.dmg"), sum("app.img"));
    assert_eq!(scratch.json(&["verify", "cut.dmg"])["intact"], true);
    assert_eq!(scratch.ok(&["cat", "cut.dmg:/hello.txt"]), "hello, world\n");

    scratch.ok(&["join", "cut.dmg", "-o", "whole.dmg"]);
    assert_eq!(sum("whole.dmg"), sum("app.img"));
    assert!(
        scratch
            .fails(4, &["join", "cut.dmg", "-o", "whole.dmg"])
            .contains("--overwrite")
    );
    scratch.ok(&["join", "cut.dmg", "-o", "whole.dmg", "--overwrite"]);
    assert_eq!(
        scratch.json(&["segment", "app.dmg", "-o", "two.dmg", "--count", "2"])["segments"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    scratch.fails(2, &["segment", "app.dmg", "-o", "x.dmg"]);
    assert!(
        scratch
            .fails(6, &["segment", "app.img", "-o", "x.dmg", "--count", "2"])
            .contains("compressed")
    );
    fs::remove_file(scratch.path("cut.002.dmgpart")).unwrap();
    assert!(
        scratch
            .fails(3, &["join", "cut.dmg", "-o", "x.dmg"])
            .contains("cut.002.dmgpart")
    );
    assert!(!scratch.path("x.dmg").exists());
}

#[test]
fn licenses_come_and_go() {
    let scratch = app();
    scratch.write("LICENSE.txt", "Do as you like. Grüße\n");
    let before = fs::read(scratch.path("app.dmg")).unwrap();
    scratch.ok(&[
        "resources",
        "add",
        "app.dmg",
        "--license",
        "LICENSE.txt",
        "-o",
        "with.dmg",
    ]);
    assert!(
        fs::read(scratch.path("app.dmg")).unwrap() == before,
        "the old one was changed"
    );
    assert_eq!(scratch.json(&["verify", "with.dmg"])["intact"], true);
    let kinds = |name: &str| {
        let list = scratch.json(&["resources", "list", name]);
        let list = list["resources"].as_array().unwrap().clone();
        let kinds = list.iter().map(|resource| {
            resource["resource_type"]
                .as_str()
                .unwrap()
                .trim()
                .to_owned()
        });
        kinds.filter(|kind| kind != "plst").collect::<Vec<_>>()
    };
    assert!(kinds("app.dmg").is_empty());
    assert!(
        ["LPic", "STR#", "TEXT"]
            .iter()
            .all(|kind| kinds("with.dmg").contains(&(*kind).to_owned())),
        "{:?}",
        kinds("with.dmg")
    );
    scratch.ok(&["resources", "extract", "with.dmg", "-o", "license.xml"]);
    scratch.ok(&[
        "resources",
        "extract",
        "with.dmg",
        "TEXT:5000",
        "--raw",
        "-o",
        "text",
    ]);
    assert!(
        fs::read(scratch.path("text"))
            .unwrap()
            .starts_with(b"Do as you like.")
    );
    scratch.ok(&["resources", "remove", "with.dmg", "--license"]);
    assert!(kinds("with.dmg").is_empty());
    scratch.ok(&["resources", "add", "with.dmg", "--xml", "license.xml"]);
    assert!(kinds("with.dmg").contains(&"TEXT".to_owned()));
    assert_eq!(
        scratch.ok(&["cat", "with.dmg:/hello.txt"]),
        "hello, world\n"
    );
    assert!(
        scratch
            .fails(3, &["resources", "extract", "with.dmg", "five"])
            .contains("five")
    );
}

/// Reading is never refused; what would lose the signature asks first.
#[test]
fn signatures_are_not_lost_by_the_way() {
    let scratch = app();
    sign(&scratch, "app.dmg");
    assert_eq!(
        scratch.ok(&["cat", "signed.dmg:/hello.txt"]),
        "hello, world\n"
    );
    assert_eq!(
        scratch.json(&["verify", "signed.dmg"])["signature"]["verified"],
        false
    );
    scratch.write("LICENSE.txt", "Do as you like.\n");
    let verbs: [&[&str]; 7] = [
        &["convert", "signed.dmg", "new.dmg", "--format", "ulfo"],
        &["convert", "signed.dmg", "-", "--format", "udzo"],
        &["segment", "signed.dmg", "-o", "cut.dmg", "--count", "2"],
        &["join", "signed.dmg", "-o", "whole.dmg"],
        &["resources", "add", "signed.dmg", "--license", "LICENSE.txt"],
        &["resources", "remove", "signed.dmg", "--license"],
        &[
            "convert",
            "signed.dmg",
            "signed.dmg",
            "--overwrite",
            "--format",
            "ulfo",
        ],
    ];
    let before = (
        scratch.names(),
        fs::read(scratch.path("signed.dmg")).unwrap(),
    );
    for verb in verbs {
        let output = scratch.run(verb);
        assert!(
            !output.status.success() && stderr(&output).contains("--remove-signature"),
            "{verb:?}: {}",
            stderr(&output)
        );
        assert!(
            (
                scratch.names(),
                fs::read(scratch.path("signed.dmg")).unwrap()
            ) == before,
            "{verb:?}"
        );
    }
    for verb in verbs {
        scratch
            .command(verb)
            .arg("--remove-signature")
            .assert()
            .success();
    }
    assert!(scratch.json(&["verify", "signed.dmg"])["signature"].is_null());
}

/// Formats that cannot hold a signature are not expected to: its loss is reported, and nobody is
/// asked.
#[test]
fn other_formats_have_no_signatures_to_lose() {
    let scratch = app();
    sign(&scratch, "app.dmg");
    let verbs: [&[&str]; 3] = [
        &["convert", "signed.dmg", "new.sparsebundle"],
        &["convert", "--resume", "signed.dmg", "new.img"],
        &["convert", "signed.dmg", "-"],
    ];
    for verb in verbs {
        let output = scratch.run(verb);
        assert!(
            output.status.success() && stderr(&output).contains("the code signature of the source"),
            "{verb:?}: {}",
            stderr(&output)
        );
    }
    let output = scratch.run(&["convert", "signed.dmg", "again.img", "--remove-signature"]);
    assert!(
        output.status.success() && !stderr(&output).contains("signed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(scratch.ok(&["cat", "new.img:/hello.txt"]), "hello, world\n");
}

/// A disk that is not the one that was stored ends in a failure.
#[test]
fn damage_that_no_codec_detects_is_reported() {
    let scratch = app();
    scratch.ok(&["convert", "app.img", "plain.dmg", "--format", "udro"]);
    change_a_letter(&scratch, "plain.dmg");
    let error = scratch.fails(5, &["convert", "plain.dmg", "out.img"]);
    assert!(
        error.contains("checksum") && error.contains("--no-verify"),
        "{error}"
    );
    assert!(!scratch.path("out.img").exists());
    scratch.ok(&["convert", "plain.dmg", "out.img", "--no-verify"]);
    assert_eq!(scratch.ok(&["cat", "out.img:/hello.txt"]), "Hello, world\n");
}

/// `extract` and `cp` compare an image that they read as a whole with its checksums: they finish,
/// name the area and fail. A path in an image is checked with `--verify` alone.
#[test]
fn damage_is_reported_when_an_image_is_read_as_a_whole() {
    let scratch = app();
    scratch.ok(&["convert", "app.img", "plain.dmg", "--format", "udro"]);
    let good = scratch.json(&["extract", "plain.dmg", "good"]);
    assert_eq!(good["verified"], true);
    assert_eq!(
        scratch.json(&["extract", "app.img", "raw"])["verified"],
        Value::Null
    );
    change_a_letter(&scratch, "plain.dmg");

    for (args, file) in [
        (vec!["extract", "plain.dmg", "out"], Some("out/hello.txt")),
        (
            vec!["extract", "plain.dmg:#1", "out1"],
            Some("out1/hello.txt"),
        ),
        (
            vec!["cp", "-R", "plain.dmg:/", "out2"],
            Some("out2/hello.txt"),
        ),
        (vec!["extract", "plain.dmg", "--tar", "out.tar"], None),
        (
            vec!["extract", "plain.dmg:/hello.txt", ".", "--verify"],
            Some("hello.txt"),
        ),
    ] {
        let output = scratch.run(&args);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {printed}");
        for part in [
            "plain.dmg: udif: ",
            "checksum mismatch of",
            "(bytes ",
            "--no-verify",
        ] {
            assert!(printed.contains(part), "{args:?}: {printed}");
        }
        if let Some(file) = file {
            assert_eq!(fs::read(scratch.path(file)).unwrap(), b"Hello, world\n");
        }
    }
    assert!(fs::metadata(scratch.path("out.tar")).unwrap().len() > 3_000_000);
    let output = scratch.run(&["extract", "plain.dmg", "out3", "--json"]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["verified"], false);

    scratch.ok(&["extract", "plain.dmg", "out4", "--no-verify"]);
    for args in [
        ["cp", "plain.dmg:/hello.txt", "copy.txt"],
        ["extract", "plain.dmg:/Letters", "out5"],
    ] {
        let output = scratch.run(&args);
        assert!(output.status.success(), "{args:?}");
        assert!(stderr(&output).contains("note: the image was not verified; use --verify"));
    }
    let output = scratch.run(&["extract", "app.img:/Letters", "out6"]);
    assert_eq!(stderr(&output), "", "a raw image has nothing to compare");
}

/// Of an image behind http only what is read is checked, unless all of it is asked for.
#[cfg(feature = "s3")]
#[test]
fn a_remote_image_is_verified_on_request() {
    use crate::common::server::{Conduct, Server};
    let scratch = app();
    scratch.ok(&["convert", "app.img", "plain.dmg", "--format", "udro"]);
    let sound = fs::read(scratch.path("plain.dmg")).unwrap();
    change_a_letter(&scratch, "plain.dmg");
    let server = Server::start(
        fs::read(scratch.path("plain.dmg")).unwrap(),
        Conduct::Ranges,
    );
    let url = server.url("plain.dmg");
    let (root, folder) = (format!("{url}:/"), format!("{url}:/Letters"));

    for args in [
        ["extract", &url, "out"],
        ["extract", &folder, "out1"],
        ["cp", &format!("{root}hello.txt"), "copy.txt"],
    ] {
        let output = scratch.run(&args);
        let printed = stderr(&output);
        assert!(output.status.success(), "{args:?}: {printed}");
        let notes = printed.matches("note: the image was not verified; use --verify");
        assert_eq!(notes.count(), 1, "{args:?}: {printed}");
    }
    let quiet = scratch.run(&["extract", &url, "out2", "--no-verify"]);
    assert!(quiet.status.success() && stderr(&quiet).is_empty());
    let facts = scratch.json(&["extract", &url, "out3"]);
    assert_eq!(facts["verified"], Value::Null);

    for args in [
        &["extract", &url, "out4", "--verify"][..],
        &["cp", "-R", &root, "out5", "--verify"],
        #[cfg(target_os = "linux")]
        &["mount", &url, "--verify", "mnt"],
    ] {
        let output = scratch.run(args);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {printed}");
        assert!(
            printed.contains("checksum mismatch of"),
            "{args:?}: {printed}"
        );
    }
    server.replace(sound);
    let facts = scratch.json(&["extract", &url, "out6", "--verify"]);
    assert_eq!(facts["verified"], true);
}

/// A chunk that does not decode is told with its area, after everything else was extracted; also in
/// a set of files.
#[test]
fn chunks_that_do_not_decode_are_reported_after_the_rest_is_extracted() {
    let scratch = app();
    scratch.ok(&["segment", "app.dmg", "--count", "2", "-o", "set.dmg"]);
    assert_eq!(
        scratch.json(&["extract", "set.dmg", "set"])["verified"],
        true
    );
    for (image, file) in [("app.dmg", "app.dmg"), ("set.dmg", "set.002.dmgpart")] {
        let mut bytes = fs::read(scratch.path(file)).unwrap();
        let at = bytes.len() / 2;
        bytes[at..at + 16].fill(0xA5);
        scratch.write(file, bytes);
        let out = format!("out of {image}");
        let output = scratch.run(&["extract", image, &out]);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{printed}");
        assert!(
            printed.contains("cannot decompress") && printed.contains("(bytes "),
            "{printed}"
        );
        assert!(scratch.path(&out).join("run.sh").exists());
    }
}

#[test]
fn an_encrypted_image_is_verified_while_it_is_read() {
    let scratch = app();
    scratch.write("key", "open sesame");
    let encrypted = "convert app.img e.dmg --format udzo --encrypt --new-passfile key";
    scratch.ok(&encrypted.split(' ').collect::<Vec<_>>());
    let facts = scratch.json(&["extract", "e.dmg", "out", "--passfile", "key"]);
    assert_eq!(facts["verified"], true);
}

/// Changes the first letter of hello.txt in an uncompressed image.
fn change_a_letter(scratch: &Scratch, name: &str) {
    let mut bytes = fs::read(scratch.path(name)).unwrap();
    let at = bytes
        .windows(12)
        .position(|bytes| bytes == b"hello, world")
        .unwrap();
    bytes[at] ^= 0x20;
    scratch.write(name, bytes);
}
