//! Encrypted APFS volumes: made, changed and opened, with the passphrase and with the recovery key.

use crate::common::{Scratch, stderr};

const ITERATIONS: [&str; 2] = ["--iterations", "150000"];

#[test]
fn an_encrypted_volume_is_made_changed_and_read() {
    let scratch = Scratch::new();
    scratch.write("tree/letter", "dear diary");
    scratch.write("pass", "open sesame\n");
    let make = [
        "create",
        "V.img",
        "--fs",
        "apfs",
        "--encrypt-volume",
        "--volume-passfile",
        "pass",
        "--volname",
        "Vault",
    ];
    let more = [
        "--from",
        "tree",
        "--volume-hint",
        "as Ali did",
        "--recovery-key-file",
        "recovery",
    ];
    scratch.ok(&[&make[..], &more, &ITERATIONS].concat());
    let pass = ["--volume-passfile", "pass"];
    let recovery = ["--recovery-key-file", "recovery"];
    for keys in [pass, recovery] {
        let cat = [&["cat", "V.img:/letter"][..], &keys].concat();
        assert_eq!(scratch.ok(&cat), "dear diary");
    }
    let info = scratch.json(&["info", "V.img"]);
    assert_eq!(info["volumes"][0]["name"], "Vault", "{info}");
    scratch.write("plain.txt", "more");
    scratch.ok(&[&["put", "--from", "plain.txt", "V.img:/more"][..], &pass].concat());
    scratch.ok(&[&["mv", "V.img:/letter", "V.img:/old letter"][..], &recovery].concat());
    let all = [&["cat", "V.img:/more"][..], &recovery].concat();
    assert_eq!(scratch.ok(&all), "more");
    assert!(
        scratch
            .ok(&[&["ls", "V.img"][..], &pass].concat())
            .contains("old letter")
    );
    let output = scratch.run(&["put", "--from", "plain.txt", "V.img:/again"]);
    assert!(
        !output.status.success() && stderr(&output).contains("--volume-passfile"),
        "{}",
        stderr(&output)
    );
    scratch.write("wrong", "open barley");
    let wrong = scratch.run(&["rm", "V.img:/more", "--volume-passfile", "wrong"]);
    assert!(
        stderr(&wrong).contains("wrong passphrase"),
        "{}",
        stderr(&wrong)
    );
}

/// Nobody but its owner reads it, it is never overwritten, and it goes with an image that cannot be
/// made.
#[test]
fn the_recovery_key_is_kept_or_shown() {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame");
    let make = |image: &'static str, key: &'static str| {
        let options = [
            "--size",
            "8m",
            "--encrypt-volume",
            "--volume-passfile",
            "pass",
            "--recovery-key-file",
            key,
        ];
        [
            &["create", image, "--fs", "apfs"][..],
            &options,
            &ITERATIONS,
        ]
        .concat()
    };
    let shown = scratch.ok(&make("one.img", "-"));
    let key = shown
        .lines()
        .find_map(|line| line.strip_prefix("recovery key: "))
        .expect("a line with the key");
    scratch.write("shown", key);
    scratch.ok(&["ls", "one.img", "--recovery-key-file", "shown"]);
    let made = scratch.json(&make("two.img", "-"));
    assert_eq!(made["recovery_key"].as_str().map(str::len), Some(29));
    scratch.ok(&make("three.img", "key"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let meta = std::fs::metadata(scratch.path("key")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }
    assert!(
        scratch
            .fails(4, &make("four.img", "key"))
            .contains("already exists")
    );
    scratch.fails(
        2,
        &[&make("small.img", "gone")[..], &["--block-size", "8k"]].concat(),
    );
    assert_eq!(
        scratch.names(),
        ["key", "one.img", "pass", "shown", "three.img", "two.img"]
    );
}

/// In an image that exists, whole or on a partition, itself encrypted or not; what was there goes
/// when that is asked for.
#[test]
fn an_image_that_exists_gets_an_encrypted_volume() {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame");
    scratch.write("outer", "of the image");
    scratch.write("letter", "dear diary");
    let format = |image: &'static str| {
        [
            &[
                "format",
                image,
                "--encrypt-volume",
                "--volume-passfile",
                "pass",
            ][..],
            &ITERATIONS,
        ]
        .concat()
    };
    scratch.ok(&["create", "bare.img", "--size", "8m"]);
    let key = ["--recovery-key-file", "key"];
    let made = scratch.ok(&[
        &format("bare.img")[..],
        &key,
        &["--volume-hint", "as Ali did"],
    ]
    .concat());
    assert!(made.contains("encrypted APFS volume"), "{made}");
    scratch.ok(&[
        "put",
        "--from",
        "letter",
        "bare.img:/letter",
        "--volume-passfile",
        "pass",
    ]);
    assert_eq!(
        scratch.ok(&[&["cat", "bare.img:/letter"][..], &key].concat()),
        "dear diary"
    );
    scratch.ok(&[&["check", "bare.img"][..], &key].concat());
    let report = scratch.run(&["ls", "bare.img"]);
    assert!(
        !report.status.success() && stderr(&report).contains("a passphrase is required"),
        "{}",
        stderr(&report)
    );

    // Its contents stay, and so does a key that is there already.
    assert!(scratch.fails(4, &format("bare.img")).contains("--erase"));
    let before = std::fs::read(scratch.path("bare.img")).unwrap();
    assert!(
        scratch
            .fails(4, &[&format("bare.img")[..], &["--erase"], &key].concat())
            .contains("already exists")
    );
    scratch.fails(
        2,
        &[
            &format("bare.img")[..],
            &[
                "--erase",
                "--block-size",
                "8k",
                "--recovery-key-file",
                "gone",
            ],
        ]
        .concat(),
    );
    assert!(
        std::fs::read(scratch.path("bare.img")).unwrap() == before
            && !scratch.path("gone").exists()
    );

    let outer = ["--passfile", "outer"];
    scratch.ok(&[
        &[
            "create",
            "S.sparsebundle",
            "--size",
            "32m",
            "--encrypt",
            "--fs",
            "hfs+",
        ][..],
        &outer,
        &ITERATIONS,
    ]
    .concat());
    let again = [
        &format("S.sparsebundle")[..],
        &outer,
        &[
            "--erase",
            "--fs",
            "apfs-case-sensitive",
            "--recovery-key-file",
            "-",
        ],
    ];
    let made = scratch.json(&again.concat());
    assert_eq!(
        (
            made["encrypted"].as_bool(),
            made["recovery_key"].as_str().map(str::len)
        ),
        (Some(true), Some(29)),
        "{made}"
    );
    scratch.write("shown", made["recovery_key"].as_str().unwrap());
    let keys = [&outer[..], &["--recovery-key-file", "shown"]].concat();
    scratch.ok(&[
        &["put", "--from", "letter", "S.sparsebundle:/letter"][..],
        &keys,
    ]
    .concat());
    scratch.ok(&[&["check", "S.sparsebundle"][..], &keys].concat());
    assert!(
        scratch
            .ok(&[&["info", "S.sparsebundle"][..], &outer].concat())
            .contains("Apple_APFS")
    );
}

#[test]
fn invalid_options_are_refused() {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame");
    scratch.write("empty", "");
    scratch.write("b.img", vec![0; 8 << 20]);
    for (args, said) in [
        (
            &[
                "create",
                "a.img",
                "--size",
                "8m",
                "--volume-passfile",
                "pass",
                "--volname",
                "A",
            ][..],
            "requires --encrypt-volume",
        ),
        (
            &[
                "create",
                "a.img",
                "--size",
                "8m",
                "--recovery-key-file",
                "key",
                "--volname",
                "A",
            ],
            "--encrypt-volume",
        ),
        (
            &[
                "create",
                "a.img",
                "--size",
                "8m",
                "--fs",
                "hfs+",
                "--encrypt-volume",
                "--volume-passfile",
                "pass",
            ],
            "APFS",
        ),
        (
            &[
                "create",
                "a.img",
                "--size",
                "8m",
                "--fs",
                "none",
                "--encrypt-volume",
                "--volume-passfile",
                "pass",
            ],
            "the disk is blank",
        ),
        (
            &[
                "create",
                "a.img",
                "--size",
                "8m",
                "--encrypt-volume",
                "--volume-passfile",
                "empty",
            ],
            "empty",
        ),
        (
            &["create", "a.img", "--size", "8m", "--encrypt-volume"],
            "passphrase of the new volume",
        ),
        (
            &["format", "b.img", "--volume-passfile", "pass"],
            "requires --encrypt-volume",
        ),
        (
            &["format", "b.img", "--recovery-key-file", "key"],
            "--encrypt-volume",
        ),
        (
            &["format", "b.img", "--iterations", "150000"],
            "requires --encrypt-volume",
        ),
        (
            &[
                "format",
                "b.img",
                "--fs",
                "hfs+j",
                "--encrypt-volume",
                "--volume-passfile",
                "pass",
            ],
            "--fs apfs",
        ),
        (
            &["format", "b.img", "--encrypt-volume"],
            "passphrase of the new volume",
        ),
    ] {
        let output = scratch.run(args);
        let said_too = stderr(&output);
        assert!(
            !output.status.success() && said_too.contains(said),
            "{args:?}: {said_too}"
        );
    }
    assert_eq!(scratch.names(), ["b.img", "empty", "pass"]);
    assert!(
        std::fs::read(scratch.path("b.img"))
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
}
