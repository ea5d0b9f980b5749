//! Messages and hints for users who do not know the program: the right object, the right reason, and
//! a hint that works.

use std::fs;
use std::path::Path;

use crate::common::{Scratch, stderr};

/// A command with its exit code, texts that its standard error contains, and texts that it does not.
struct Case {
    code: i32,
    args: &'static [&'static str],
    says: &'static [&'static str],
    lacks: &'static [&'static str],
}

const fn case(
    code: i32,
    args: &'static [&'static str],
    says: &'static [&'static str],
    lacks: &'static [&'static str],
) -> Case {
    Case {
        code,
        args,
        says,
        lacks,
    }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // A damaged token is not the absence of encryption.
    case(5, &["isencrypted", "token.sparsebundle"], &["token", "has 500 bytes that are not an encryption header", "from a backup"], &[]),
    case(5, &["passwd", "list", "token.sparsebundle"], &["500 bytes"], &["convert"]),
    case(5, &["erase-keys", "--yes", "--yes", "token.sparsebundle"], &["500 bytes"], &["not encrypted"]),
    case(5, &["ls", "token.sparsebundle", "--passfile", "pw"], &["error: token.sparsebundle", "500 bytes"], &[]),
    case(5, &["format", "token.sparsebundle", "--fs", "hfs+"], &["500 bytes"], &[]),
    case(0, &["ls", "readable.sparsebundle"], &["500 bytes", "if the bundle is encrypted"], &["ignored"]),
    case(0, &["mkdir", "readable.sparsebundle:/new"], &["500 bytes"], &[]),
    // Damage of a compressed image.
    case(5, &["check", "bad.dmg"], &["is damaged in", "cannot be repaired", "copy it again"], &["checkpoint"]),
    case(5, &["repair", "bad.dmg"], &["copy it again"], &["other programs"]),
    case(5, &["convert", "worn.dmg", "new.img"], &["error: worn.dmg", "--no-verify"], &["zlib: at byte"]),
    case(5, &["convert", "--no-verify", "worn.dmg", "new.img"], &["error: worn.dmg", "copy it again"], &["--no-verify"]),
    case(10, &["repair", "z.dmg"], &[], &["redundancy"]),
    // Hints that fit the verb.
    case(1, &["compact", "z.dmg"], &[], &["--shadow"]),
    case(1, &["trim", "z.dmg"], &[], &["--shadow"]),
    case(1, &["mkdir", "z.dmg:/x"], &["--shadow FILE"], &[]),
    case(3, &["ls", "h.img", "--checkpoint", "99"], &["checkpoint 99", "only APFS containers"], &[]),
    case(3, &["ls", "a.img", "--checkpoint", "99"], &["the only checkpoint of the container is 1"], &[]),
    case(4, &["convert", "h.sparsebundle", "h.sparsebundle"], &["name another target"], &["--overwrite"]),
    case(3, &["stack", "commit", "layer.asif", "a.img"], &["`bandsaw stack commit a.img layer.asif`"], &[]),
    case(6, &["diagnose", "plain.txt"], &[], &["bandsaw diagnose"]),
    case(2, &["attach", "--as-disk", "a.img"], &["--as-disk"], &["--or-disk"]),
    case(7, &["ls", "secret.sparsebundle", "--passfile", "other"], &["the passphrase of --passfile"], &["use --passfile"]),
    case(2, &["create", "new.img", "--size", "20m", "--fs", "apfs", "--encrypt-volume", "--passfile", "pw"], &["--volume-passfile"], &[]),
    case(9, &["mkdir", "--assume", "size=7", "three.sparsebundle:/q"], &["the assumed size"], &["--accept-loss"]),
    // Trailing slashes.
    case(3, &["cp", "pw", "h.img:/nodir/"], &["/nodir/", "is not an existing folder"], &[]),
    case(3, &["mv", "h.img:/hello.txt", "h.img:/nodir/"], &["/nodir/", "is not an existing folder"], &[]),
    case(3, &["mv", "h.img:/hello.txt", "h.img:/hello.txt/"], &["is not an existing folder"], &[]),
    case(0, &["cp", "pw", "h.img:/folder/"], &[], &[]),
    case(0, &["cp", "-R", "small", "h.img:/newdir/"], &[], &[]),
    // The object, and its kind.
    case(2, &["put", "h.img:/nn", "--from", "src"], &["src", "is a folder"], &["h.img: put"]),
    case(6, &["timemachine", "status", "a.img"], &["a.img", "not a sparse bundle"], &["a.img/"]),
    case(6, &["scrub", "a.img"], &["a.img", "not a sparse bundle"], &["a.img/"]),
    case(3, &["checkpoint", "missing"], &["missing", "does not exist"], &[]),
    case(3, &["xattr", "--remove", "foo", "h.img:/hello.txt"], &["/hello.txt", "foo"], &[]),
    case(2, &["timemachine", "forget", "h.sparsebundle"], &["h.sparsebundle"], &[]),
    case(2, &["erase-keys", "secret.sparsebundle"], &["secret.sparsebundle", "--yes --yes"], &[]),
    case(3, &["ls", "h.sparsebundle@nosnap"], &["bandsaw snapshot list h.sparsebundle"], &[]),
    case(6, &["ls", "short.txt"], &["unknown format", "13 bytes"], &["damaged"]),
    case(6, &["check", "short.txt"], &["unknown format", "13 bytes"], &[]),
    case(5, &["ls", "empty.img"], &["is empty"], &[]),
    case(6, &["info", "v.qcow2"], &["qemu-img convert"], &[]),
    case(2, &["serve", "a.img", "--listen", "no.such.host.invalid:80"], &["host name"], &[]),
    case(3, &["xattr", "--remove", "foo", "h.img:/"], &["xattr: /: has no attribute foo"], &[]),
    // States.
    case(3, &["send", "h.sparsebundle", "out"], &["error: h.sparsebundle: ", "has no states", "bandsaw timemachine keep h.sparsebundle"], &[]),
    case(3, &["timemachine", "roll-back", "h.sparsebundle"], &["bandsaw timemachine keep h.sparsebundle"], &[]),
    // Words.
    case(2, &["segment", "z.dmg", "-o", "parts.dmg", "--size", "1"], &["1 byte "], &["1 bytes"]),
    case(2, &["dmg", "--background", "plain.txt", "-o", "q.dmg", "src"], &["plain.txt", "is not a picture"], &[]),
    case(2, &["dmg", "--recipe", "bad.toml", "-o", "q.dmg", "src"], &["bad.toml", "line 1"], &["\\n"]),
];

/// The images of [`CASES`].
fn images() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.write("small/file", "small");
    scratch.write("pw", "pw");
    scratch.write("other", "other");
    scratch.write("plain.txt", "only some text\n".repeat(100));
    scratch.write("short.txt", "hello, world\n");
    scratch.write("empty.img", "");
    scratch.write("bad.toml", "x = ");
    scratch.write("v.qcow2", [&b"QFI\xfb"[..], &[0; 4096]].concat());
    let create = |name: &str, args: &[&str]| {
        scratch.ok(&[&["create", name][..], args].concat());
    };
    create("h.img", &["--size", "8m", "--fs", "hfs+", "--from", "src"]);
    scratch.ok(&["mkdir", "h.img:/folder"]);
    create("h.sparsebundle", &["--size", "8m", "--fs", "hfs+"]);
    create(
        "three.sparsebundle",
        &["--size", "24m", "--fs", "hfs+", "--from", "src"],
    );
    create("a.img", &["--size", "20m", "--fs", "apfs"]);
    scratch.ok(&["stack", "create", "a.img", "layer.asif"]);
    let secret = [
        "--size",
        "8m",
        "--fs",
        "hfs+",
        "--encrypt",
        "--passfile",
        "pw",
    ];
    create("secret.sparsebundle", &secret);
    create("token.sparsebundle", &secret);
    create("readable.sparsebundle", &["--size", "8m", "--fs", "hfs+"]);
    for name in ["token.sparsebundle", "readable.sparsebundle"] {
        let token = scratch.path(name).join("token");
        let mut bytes = fs::read(&token).unwrap();
        bytes.resize(500, 0);
        bytes.fill(0xA5);
        fs::write(token, bytes).unwrap();
    }
    let numbers: Vec<_> = (0..200_000).map(|number: u32| number.to_string()).collect();
    scratch.write("src/numbers", numbers.join("\n"));
    create("z.dmg", &["--from", "src", "--format", "udzo"]);
    break_chunks(&scratch);
    scratch
}

/// Makes copies of `z.dmg`: of `bad.dmg` all data is destroyed, of `worn.dmg` some data of a file.
fn break_chunks(scratch: &Scratch) {
    let mut bytes = fs::read(scratch.path("z.dmg")).unwrap();
    let list = bytes
        .windows(5)
        .position(|window| window == b"<?xml")
        .unwrap();
    let middle = list / 2;
    let part = bytes[middle..middle + 2000].to_vec();
    bytes[middle..middle + 2000].fill(0xFF);
    scratch.write("worn.dmg", &bytes);
    assert_ne!(part, [0xFF; 2000]);
    bytes[16..list].fill(0xFF);
    scratch.write("bad.dmg", bytes);
}

#[test]
fn messages_name_the_object_the_reason_and_a_way_out() {
    let scratch = images();
    for Case {
        code,
        args,
        says,
        lacks,
    } in CASES
    {
        let output = scratch.run(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {said}");
        for text in *says {
            assert!(said.contains(text), "{args:?} lacks {text:?}: {said}");
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        for text in *lacks {
            let has = said.contains(text) || printed.contains(text);
            assert!(!has, "{args:?} has {text:?}: {said}{printed}");
        }
    }
}

/// Verbs that open an image, with `IMAGE` for it.
const VERBS: &[&[&str]] = &[
    &["info", "IMAGE"],
    &["ls", "IMAGE"],
    &["check", "IMAGE"],
    &["repair", "IMAGE"],
    &["verify", "IMAGE"],
    &["extract", "IMAGE", "there/out"],
    &["cp", "IMAGE:/hello.txt", "there/out"],
    &["cp", "pw", "IMAGE:/new"],
    &["cat", "IMAGE:/hello.txt"],
    &["mkdir", "IMAGE:/new"],
    &["put", "IMAGE:/new", "--from", "pw"],
    &["rm", "IMAGE:/hello.txt"],
    &["compact", "IMAGE"],
    &["trim", "IMAGE"],
    &["du", "IMAGE"],
    &["resize", "IMAGE", "--size", "40m"],
    &["reband", "IMAGE", "--band-size", "2m"],
    &["convert", "IMAGE", "there/new.dmg"],
    &["checksum", "IMAGE"],
    &["scrub", "IMAGE"],
    &["snapshot", "create", "IMAGE", "one"],
    &["snapshot", "list", "IMAGE"],
    &["timemachine", "status", "IMAGE"],
    &["timemachine", "keep", "--whole-copy", "IMAGE"],
    &["format", "IMAGE", "--fs", "hfs+"],
    &["diagnose", "IMAGE"],
    &["isencrypted", "IMAGE"],
    &["passwd", "list", "IMAGE"],
    &["stack", "info", "IMAGE"],
    &["report", "IMAGE", "-o", "there/new.html"],
];

/// A band, a list, or the token is named after the image, in text and in JSON.
#[test]
fn errors_begin_with_the_image_as_it_was_typed() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.write("pw", "pw");
    let image = "there/x.sparsebundle";
    let mut named = 0;
    for part in ["bands/0", "Info.plist", "token", "bands", ".bandsaw"] {
        for verb in VERBS {
            let _ = fs::remove_dir_all(scratch.path("there"));
            fs::create_dir(scratch.path("there")).unwrap();
            scratch.ok(&["create", image, "--from", "src", "--fs", "hfs+"]);
            // Root can read anything but a folder.
            let path = scratch.path(image).join(part);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            match part {
                "bands" | ".bandsaw" => fs::write(&path, "").unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let args: Vec<_> = verb
                .iter()
                .map(|word| word.replace("IMAGE", image))
                .collect();
            let mut words = vec!["--json"];
            words.extend(args.iter().map(String::as_str));
            let said = stderr(&scratch.run(&words[1..]));
            let errors = said.lines().filter(|line| line.starts_with("error: "));
            let before = named;
            for error in errors {
                let start = format!("error: {image}: ");
                assert!(error.starts_with(&start), "{words:?}, {part}: {error}");
                assert!(!error.contains(&format!("{image}/")), "{words:?}: {error}");
                named += 1;
            }
            if named == before {
                // The verb has no error, and has done its work.
                continue;
            }
            for line in stderr(&scratch.run(&words)).lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let error = line.get("error").filter(|error| error["layer"] != "json");
                if let Some(error) = error {
                    assert_eq!(error["path"], image, "{words:?}, {part}: {error}");
                }
            }
        }
    }
    assert!(named > 60, "{named} errors");
}

/// Temporary names mean nothing to a user, who named another file.
#[cfg(unix)]
#[test]
fn temporary_names_are_not_in_errors() {
    let scratch = Scratch::new();
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let noise: Vec<u8> = (0..400_000).map(|_| random()).collect();
    scratch.write("src/noise", noise);
    scratch.ok(&["create", "z.dmg", "--from", "src", "--format", "udzo"]);
    scratch.ok(&["create", "x.sparsebundle", "--from", "src", "--fs", "hfs+"]);
    for (blocks, target, line) in [
        (60, "p.dmg", "segment z.dmg -o p.dmg --size 200k"),
        (60, "n.img", "create n.img --from src"),
        (60, "n.sparsebundle", "create n.sparsebundle --from src"),
        (60, "n.dmg", "convert x.sparsebundle n.dmg"),
        (60, "n.asif", "convert x.sparsebundle n.asif"),
        (60, "q.dmg", "dmg -o q.dmg src"),
        (60, "out", "cp x.sparsebundle:/noise out"),
        (0, "x.sparsebundle", "snapshot create x.sparsebundle one"),
        (
            0,
            "x.sparsebundle",
            "timemachine keep --whole-copy x.sparsebundle",
        ),
        (0, "x.sparsebundle", "resize x.sparsebundle --size 40m"),
    ] {
        let shell = format!("ulimit -f {blocks}; exec \"$0\" {line}");
        let output = std::process::Command::new("sh")
            .args(["-c", &shell, env!("CARGO_BIN_EXE_bandsaw")])
            .current_dir(scratch.path(""))
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(
            said.starts_with(&format!("error: {target}: ")),
            "{line}: {said}"
        );
        assert!(
            !said.contains(".new-") && !said.contains("/."),
            "{line}: {said}"
        );
    }
}

/// An operation that several verbs share fails under the name of the one that was typed.
#[test]
fn errors_name_the_verb_that_was_typed() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src", "--fs", "hfs+"]);
    scratch.write("out/hello.txt", "another");
    for (verb, words) in [
        ("cp", ["cp", "x.img:/hello.txt", "out"].as_slice()),
        ("extract", &["extract", "x.img:/hello.txt", "out"]),
        ("cp", &["cp", "src/hello.txt", "x.img:/hello.txt"]),
    ] {
        let said = stderr(&scratch.run(words));
        assert!(said.contains(&format!(": {verb}: ")), "{words:?}: {said}");
        let said = stderr(&scratch.run(&[&["--json"], words].concat()));
        let document: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(document["error"]["layer"], verb, "{words:?}: {said}");
    }
}

/// A bundle that lost its bands is not sound: nothing is left that could be.
#[test]
fn a_blank_disk_is_reported_and_is_no_sound_backup() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "8m", "--fs", "hfs+"]);
    for band in fs::read_dir(scratch.path("x.sparsebundle/bands")).unwrap() {
        fs::remove_file(band.unwrap().path()).unwrap();
    }
    let checked = scratch.ok(&["check", "x.sparsebundle"]);
    assert!(
        checked.contains("the disk is blank: no volume was found"),
        "{checked}"
    );
    assert!(!checked.contains("no problems found"), "{checked}");
    assert_eq!(
        scratch.json(&["check", "x.sparsebundle"])["contents"],
        "blank"
    );
    let kept = scratch.json(&["timemachine", "keep", "--whole-copy", "x.sparsebundle"]);
    assert_eq!(kept["check"], "unknown");
    let status = scratch.ok(&["timemachine", "status", "x.sparsebundle"]);
    assert!(status.contains("bandsaw check x.sparsebundle"), "{status}");
    assert!(!status.contains("tm keep"), "{status}");
}

#[test]
fn a_check_with_contents_names_what_it_does_not_cover() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "20m", "--fs", "apfs"]);
    let output = scratch.run(&["check", "--contents", "x.sparsebundle"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no checksums"), "{said}");
    assert!(said.contains("bandsaw scrub x.sparsebundle"), "{said}");
    let output = scratch.run(&["check", "x.sparsebundle"]);
    assert!(!stderr(&output).contains("no checksums"));
}

/// The list that is used instead is told by every verb.
#[test]
fn reband_reports_that_it_used_the_copy_of_the_list() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "24m", "--fs", "hfs+"]);
    scratch.write("x.sparsebundle/Info.plist", "garbage");
    let output = scratch.run(&["reband", "x.sparsebundle", "--band-size", "4m"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Info.bckup is used instead"), "{said}");
}

/// Programs get the remark that people get.
#[test]
fn a_document_states_that_the_image_was_not_verified() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "z.dmg", "--from", "src", "--format", "udzo"]);
    let note = |args: &[&str]| {
        let done = scratch.json(args);
        let notes = done["notes"].as_array().unwrap().clone();
        notes.iter().any(|note| {
            note["message"]
                .as_str()
                .unwrap()
                .contains("was not verified")
        })
    };
    assert!(note(&["extract", "z.dmg:/hello.txt", "out"]));
    assert!(!note(&["extract", "z.dmg", "all"]));
    assert!(Path::new(&scratch.path("out/hello.txt")).exists());
}

/// The face of hdiutil speaks of its own options, in its own form.
#[cfg(target_os = "linux")]
#[test]
fn hdiutil_names_its_own_options() {
    let scratch = Scratch::new();
    scratch.write("pw", "pw");
    let encrypted = ["--encrypt", "--passfile", "pw", "--fs", "hfs+"];
    scratch.ok(&[
        &["create", "e.sparsebundle", "--size", "8m"][..],
        &encrypted,
    ]
    .concat());
    let output = scratch.run(&["hdiutil", "attach", "e.sparsebundle"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("attach failed - Authentication error"),
        "{said}"
    );
    assert!(said.contains("-stdinpass"), "{said}");
    assert!(
        !said.contains("error:") && !said.contains("--passfile"),
        "{said}"
    );
    let said = scratch.fails(1, &["hdiutil", "attach", "-nosuch", "e.sparsebundle"]);
    assert!(said.contains("bandsaw hdiutil help -markdown"), "{said}");
}
