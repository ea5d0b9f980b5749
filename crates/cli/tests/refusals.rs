//! Refusals: their exit codes, and that nothing changes by them.

use std::fs;

use crate::common::{Scratch, stderr};

#[test]
fn a_file_that_is_no_image_is_never_taken_for_one() {
    let scratch = Scratch::new();
    scratch.write("nonsense.bin", b"no image at all ".repeat(64));
    for args in [
        &["nonsense.bin"][..],
        &["info", "nonsense.bin"],
        &["ls", "nonsense.bin"],
        &["convert", "nonsense.bin", "out.img"],
    ] {
        let error = scratch.fails(6, args);
        assert!(
            error.contains("nonsense.bin") && error.contains("--image-format udrw"),
            "{error}"
        );
    }
    // --format names what is written, never what is read.
    scratch.fails(
        6,
        &["convert", "nonsense.bin", "out.img", "--format", "udrw"],
    );
    assert_eq!(scratch.names(), ["nonsense.bin"]);
    assert!(
        scratch
            .ok(&["info", "--image-format", "udrw", "nonsense.bin"])
            .contains("UDRW")
    );
    scratch.ok(&[
        "convert",
        "--image-format",
        "UDRW",
        "nonsense.bin",
        "out.img",
    ]);
    assert_eq!(
        fs::read(scratch.path("out.img")).unwrap(),
        fs::read(scratch.path("nonsense.bin")).unwrap()
    );
}

#[test]
fn images_that_cannot_be_read_yet_are_refused_by_name() {
    let scratch = Scratch::new();
    let padded = |magic: &[u8]| [magic, &[7; 4096]].concat();
    for (name, magic, what) in [
        ("a.aea", &b"AEA1"[..], "encrypted archive"),
        ("b.sparseimage", b"sprs\0\0\0\x02", "version 2"),
        ("c.qcow2", b"QFI\xfb", "qcow2"),
    ] {
        scratch.write(name, padded(magic));
        let error = scratch.fails(6, &["info", name]);
        assert!(
            error.contains(what) && error.contains(name) && !error.contains("udrw"),
            "{error}"
        );
    }
}

#[test]
fn a_stray_file_among_the_bands_is_reported() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "1m"]);
    scratch.write("x.sparsebundle/bands/notes.txt", "not a band");
    // Its format is told all the same.
    let output = scratch.run(&["info", "x.sparsebundle"]);
    assert_eq!(output.status.code(), Some(5));
    let error = stderr(&output);
    assert!(
        error.contains("x.sparsebundle") && error.contains("bands/notes.txt"),
        "{error}"
    );
}

#[test]
fn nothing_is_overwritten_unasked() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.write("precious.img", "precious");
    assert!(
        scratch
            .fails(4, &["create", "precious.img", "--size", "1m"])
            .contains("--overwrite")
    );
    assert!(
        scratch
            .fails(4, &["create", "precious.img", "--from", "src"])
            .contains("--overwrite")
    );
    assert_eq!(fs::read(scratch.path("precious.img")).unwrap(), b"precious");
    // Not even when asked: a folder that is no image.
    scratch.fails(
        4,
        &[
            "create",
            "src",
            "--format",
            "udsb",
            "--size",
            "1m",
            "--overwrite",
        ],
    );
    assert!(scratch.path("src/hello.txt").exists());
    scratch.ok(&["create", "precious.img", "--size", "1m", "--overwrite"]);
    assert_eq!(scratch.names(), ["precious.img", "src"]);
}

#[test]
fn arguments_that_make_no_sense() {
    let scratch = Scratch::new();
    scratch.sample();
    for args in [
        &["create", "x.img"][..],
        &["create", "x.img", "--size", "3q"],
        &["create", "x", "--size", "1m"],
        &["create", "x.img", "--size", "1m", "--format", "vmdk"],
        &["create", "x.img", "--size", "1m", "--band-size", "1m"],
        &[
            "create",
            "x.sparsebundle",
            "--size",
            "1m",
            "--band-size",
            "3",
        ],
        &["create", "x.img", "--size", "0"],
        &["create", "x.img", "--size", "1m", "--layout", "gptspud"],
        &["create", "x.img", "--from", "src", "--fs", "none"],
        &["create", "x.img", "--from", "src", "--layout", "isocd"],
        &["create", "x.img", "--volname", "a/b", "--size", "1m"],
        &["ls"],
        &["ls", "x.img:"],
        &["ls", "x.img:#0"],
        &["cat", "x.img"],
        &["cat", "--json", "x.img:/a"],
        &["tree", "-L", "0", "x.img"],
        &["info", "--passenv", "A", "--stdinpass", "x.img"],
    ] {
        scratch.fails(2, args);
        assert_eq!(scratch.names(), ["src"], "{args:?} leaves nothing behind");
    }
}

#[test]
fn missing_objects_are_named() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    for args in [
        &["info", "missing.dmg"][..],
        &["ls", "x.img:/missing"],
        &["ls", "x.img:/hello.txt/below"],
        &["ls", "x.img:Missing"],
        &["ls", "x.img:#2"],
        &["cat", "x.img:/missing"],
        &["cat", "--xattr", "missing", "x.img:/hello.txt"],
        &["extract", "x.img:/missing", "out"],
        &["cp", "x.img:/hello.txt", "missing/out"],
        &["create", "y.img", "--from", "missing"],
        &["create", "missing/y.img", "--size", "1m"],
    ] {
        scratch.fails(3, args);
        assert_eq!(
            scratch.names(),
            ["src", "x.img"],
            "{args:?} leaves nothing behind"
        );
    }
    assert!(
        scratch
            .fails(3, &["ls", "x.img:Missing"])
            .contains(r#"found APFS on partition 1 with "src""#)
    );
    assert!(
        scratch
            .fails(3, &["ls", "x.img:/missing"])
            .contains("x.img: path: /missing: does not exist")
    );
    assert!(
        scratch.fails(3, &["ls", "./x.img:/a"]).contains("./"),
        "an address that begins with ./ is a host file"
    );
}

#[test]
fn a_snapshot_that_is_not_there() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "8m"]);
    for verb in ["restore", "delete"] {
        let error = scratch.fails(3, &["snapshot", verb, "x.sparsebundle", "missing"]);
        assert!(
            error.contains("bandsaw snapshot list x.sparsebundle"),
            "{error}"
        );
        let error = scratch.fails(3, &["snapshot", verb, "missing.sparsebundle", "any"]);
        assert!(!error.contains("snapshot list"), "{error}");
    }
}

#[test]
fn a_volume_too_small_for_its_files() {
    let scratch = Scratch::new();
    scratch.sample();
    let error = scratch.fails(1, &["create", "x.img", "--from", "src", "--size", "2m"]);
    assert!(
        error.contains("x.img") && error.contains("--size"),
        "{error}"
    );
    assert_eq!(scratch.names(), ["src"]);
}

#[test]
fn many_bands_are_warned_of() {
    let scratch = Scratch::new();
    let output = scratch.run(&[
        "create",
        "x.sparsebundle",
        "--size",
        "200g",
        "--band-size",
        "1m",
    ]);
    assert!(output.status.success());
    assert!(
        stderr(&output).contains("204800 bands"),
        "{}",
        stderr(&output)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 MiB (1048576 bytes) each"));
    let output = scratch.run(&[
        "create",
        "y.sparsebundle",
        "--size",
        "200g",
        "-q",
        "--band-size",
        "1m",
    ]);
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty());
}

#[test]
fn failures_are_json_too() {
    let scratch = Scratch::new();
    let error: serde_json::Value =
        serde_json::from_str(&scratch.fails(3, &["ls", "--json", "missing.img"])).unwrap();
    assert_eq!(error["error"]["kind"], "not_found");
    assert_eq!(error["error"]["exit"], 3);
    assert_eq!(error["error"]["path"], "missing.img");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let scratch = Scratch::new();
    scratch.write("src/\u{1b}[31mred", "");
    scratch.ok(&["create", "x.img", "--from", "src"]);
    assert_eq!(
        scratch.ok(&["ls", "x.img"]),
        "\u{1b}[31mred\n",
        "a pipe gets names as they are"
    );
    assert!(
        scratch
            .ok(&["ls", "--json", "x.img"])
            .contains(r"\u001b[31mred")
    );
    let error = scratch.fails(3, &["ls", "x.img:/\u{1b}[31mred/x"]);
    assert!(error.contains(r"\x1b[31mred"), "{error}");
}

#[test]
fn colors_are_for_those_who_want_them() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    assert!(!scratch.ok(&["ls", "x.img"]).contains('\x1b'));
    assert!(
        scratch
            .ok(&["ls", "--color", "always", "x.img"])
            .contains('\x1b')
    );
}

/// Secrets that open an image elsewhere are not shown to those who read messages, logs and the output of
/// programs.
#[test]
fn secrets_of_addresses_are_not_shown() {
    let scratch = Scratch::new();
    let addresses = [
        "https://user:PW0rd@127.0.0.1:9/disk.dmg",
        "http://127.0.0.1:9/disk.dmg?X-Amz-Signature=PW0rd&X-Amz-Credential=PW0rd",
        "s3://user:PW0rd@bucket/Docs.sparsebundle",
        "s3://bucket?PW0rd/Docs.sparsebundle",
        "gopher://user:PW0rd@host/disk.dmg",
    ];
    let verbs = ["info", "ls", "check", "diagnose", "report", "isencrypted"];
    let refuse = &|args: &[&str]| {
        let output = scratch.run(args);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            crate::common::stderr(&output)
        );
        assert!(!said.contains("PW0rd"), "{args:?}: {said}");
    };
    // Most of them wait for a timeout, so all run at once.
    std::thread::scope(|scope| {
        for address in addresses {
            for verb in verbs {
                scope.spawn(move || refuse(&[verb, "--timeout", "1", address, "--json"]));
                scope.spawn(move || refuse(&[verb, "--timeout", "1", address]));
            }
        }
    });
    let output = scratch
        .command(&["info", "s3://bucket/x"])
        .env("AWS_ENDPOINT_URL", "http://u:PW0rd@127.0.0.1:9")
        .output()
        .unwrap();
    assert!(
        !output.status.success() && !crate::common::stderr(&output).contains("PW0rd"),
        "{}",
        crate::common::stderr(&output)
    );
}

#[cfg(not(feature = "s3"))]
#[test]
fn a_build_without_a_network_says_so() {
    let scratch = Scratch::new();
    for url in ["s3://bucket/x.sparsebundle", "https://host.invalid/x.dmg"] {
        let error = scratch.fails(6, &["info", url]);
        assert!(error.contains("(feature `s3`)"), "{error}");
    }
}

/// An option or a name that cannot have an effect ends in an error that says what can.
#[test]
fn requests_without_an_effect_are_refused_with_a_hint() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "b.asif", "--size", "1g", "--fs", "none"]);
    let printed = scratch.fails(3, &["resize", "b.asif", "--size", "2g"]);
    assert!(
        printed.contains("b.asif: resize: the image has no volume\n"),
        "{printed}"
    );
    assert!(
        printed.contains("hint: use --image-only to resize the disk only"),
        "{printed}"
    );
    scratch.ok(&["resize", "b.asif", "--size", "2g", "--image-only"]);

    scratch.ok(&["create", "hfs.img", "--size", "8m", "--fs", "hfs+"]);
    let before = fs::read(scratch.path("hfs.img")).unwrap();
    for args in [
        vec!["repair", "--checkpoint", "41", "hfs.img"],
        vec!["repair", "--checkpoint", "41", "--dry-run", "hfs.img"],
    ] {
        let printed = scratch.fails(3, &args);
        assert!(printed.contains("only APFS containers"), "{printed}");
    }
    assert_eq!(fs::read(scratch.path("hfs.img")).unwrap(), before);

    let printed = scratch.fails(3, &["ls", "hfs.img@monday:/"]);
    assert!(
        printed.contains("hint: name the volume too: hfs.img:VOLUME@monday"),
        "{printed}"
    );
    for verb in ["ls", "mount"] {
        assert!(
            scratch
                .ok(&[verb, "--help"])
                .contains("[:VOLUME[@SNAPSHOT]]"),
            "{verb}"
        );
    }
    assert!(scratch.ok(&["--help"]).contains("IMAGE:VOLUME@SNAPSHOT"));
}

/// An error names the option, and what is accepted instead.
#[test]
fn errors_say_what_is_accepted() {
    let scratch = Scratch::new();
    scratch.write("src/hello.txt", "hello\n");
    scratch.write("key", "key");
    scratch.ok(&["create", "a.img", "--from", "src"]);
    for (args, code, parts) in [
        (
            &["touch", "--date", "tomorrow", "a.img:/x"][..],
            2,
            &["--date", "seconds since 1970"][..],
        ),
        (
            &["bench", "images", ".", "--scale", "abc"],
            2,
            &["--scale", "expected a number"],
        ),
        (
            &["info", "--checkpoint", "abc", "a.img"],
            2,
            &["--checkpoint", "expected a whole number"],
        ),
        (&["cat", "a.img:/"], 2, &["/: is a folder", "bandsaw ls"]),
        (&["create", "b.dmg"], 2, &["bandsaw create b.dmg --size 1g"]),
        (
            &[
                "convert",
                "--encrypt",
                "--passfile",
                "key",
                "a.img",
                "b.sparsebundle",
            ],
            7,
            &["--new-passfile"],
        ),
        (&["diskutil", "apfs"], 1, &["\ndiskutil: unknown verb apfs"]),
        (
            &["create", "b.img", "--size", "4q"],
            2,
            &["'4q' for '--size <SIZE>': expected a size"],
        ),
        (
            &["create", "b.img", "--from", "key"],
            5,
            &["key: tar archive", "a folder or a tar archive"],
        ),
        (
            &["cat", "a.img"],
            2,
            &["a.img: address: expected a file", "bandsaw ls a.img"],
        ),
        (
            &["cat", "--xattr", "none", "a.img:/hello.txt"],
            3,
            &[
                "a.img: extended attribute: none",
                "bandsaw xattr a.img:/hello.txt",
            ],
        ),
        (&["rm", "a.img:/none"], 3, &["bandsaw ls a.img"]),
        (
            &["cp", "a.img:/hello.txt", "key"],
            4,
            &["key: cp", "--overwrite"],
        ),
        (
            &["convert", "a.img", "a.img"],
            4,
            &[
                "a.img: convert: source and target are the same image",
                "--overwrite",
            ],
        ),
        (&["verify", "a.img"], 6, &["bandsaw check a.img"]),
        (
            &["resize", "a.img:#9", "--size", "5m"],
            3,
            &["bandsaw info a.img"],
        ),
    ] {
        let printed = scratch.fails(code, args);
        for part in parts {
            assert!(printed.contains(part), "{args:?}: no {part:?} in {printed}");
        }
    }
}

/// Every verb explains a compressed image without its end.
#[test]
fn a_truncated_compressed_image_is_explained() {
    let scratch = Scratch::new();
    let noise: Vec<u8> = (0..400_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    scratch.write("src/noise", noise);
    scratch.ok(&["create", "a.img", "--from", "src", "--size", "8m"]);
    let convert = ["convert", "a.img", "a.dmg", "--format", "udzo"];
    scratch.ok(&[&convert[..], &["--level", "1"]].concat());
    let whole = std::fs::read(scratch.path("a.dmg")).unwrap();
    scratch.write("half.dmg", &whole[..whole.len() - 20_000]);
    for args in [
        vec!["info", "half.dmg"],
        vec!["ls", "half.dmg"],
        vec!["verify", "half.dmg"],
        vec!["convert", "half.dmg", "b.img"],
        vec!["check", "half.dmg"],
    ] {
        let output = scratch.run(&args);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {output:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.contains("truncated") && said.contains("koly"),
            "{args:?}: {said}"
        );
    }
}

/// A bundle opens by its second list if the first one is a link, which is not followed.
#[test]
fn a_list_that_is_a_link_is_a_warning_for_all() {
    let scratch = Scratch::new();
    scratch.ok(&[
        "create",
        "a.sparsebundle",
        "--size",
        "64m",
        "--volname",
        "A",
    ]);
    let list = scratch.path("a.sparsebundle/Info.plist");
    std::fs::rename(&list, scratch.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(scratch.path("elsewhere"), &list).unwrap();
    for verb in ["info", "ls"] {
        let output = scratch.run(&[verb, "a.sparsebundle"]);
        assert!(output.status.success(), "{verb}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Info.plist"), "{verb}: {said}");
    }
}
