//! Images encrypted by the command, with passphrases from wherever they may come.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Scratch, stderr};

const QUICK: [&str; 2] = ["--iterations", "150000"];

fn with_input(scratch: &Scratch, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let output = scratch
        .command(args)
        .write_stdin(input.to_owned())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr(&output),
    )
}

#[test]
fn a_folder_goes_into_an_encrypted_bundle_and_comes_out() {
    let scratch = Scratch::new();
    scratch.write("tree/letter", "dear diary");
    scratch.write("key", "secret\n");
    let [iterations, count] = QUICK;
    let args = [
        "create",
        "--encrypt",
        "S.sparsebundle",
        "--from",
        "tree",
        "--passfile",
        "key",
        iterations,
        count,
    ];
    let output = scratch.run(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let info = scratch.ok(&["info", "--json", "S.sparsebundle", "--passfile", "key"]);
    assert!(
        info.contains("\"key_bits\": 256") && info.contains("150000"),
        "{info}"
    );
    assert_eq!(
        scratch.ok(&["cat", "--passfile", "key", "S.sparsebundle:/letter"]),
        "dear diary"
    );
    let (code, _, said) = with_input(&scratch, &["ls", "--stdinpass", "S.sparsebundle"], "Secret");
    assert!(code == Some(7) && said.contains("wrong"), "{said}");
}

#[test]
fn forms_that_no_mac_confirmed_are_named_in_one_line() {
    let scratch = Scratch::new();
    scratch.write("key", "secret");
    for (image, times) in [("a.asif", 1), ("b.sparsebundle", 0)] {
        let args = [
            "create",
            image,
            "--size",
            "40m",
            "--encrypt",
            "aes-128",
            "--passfile",
            "key",
            "--iterations",
            "150000",
        ];
        let output = scratch.run(&args);
        let said = stderr(&output);
        assert!(
            output.status.success()
                && said
                    .matches("is not confirmed by any image from macOS")
                    .count()
                    == times,
            "{said}"
        );
    }
    let args = [
        "create",
        "c.img",
        "--size",
        "4m",
        "--encrypt",
        "aes-128",
        "--passfile",
        "key",
        "--iterations",
        "150000",
    ];
    let said = stderr(&scratch.run(&args));
    assert!(
        said.contains("allocates the whole disk") && said.contains("udsb"),
        "{said}"
    );
}

#[test]
fn conversions_encrypt_decrypt_and_encrypt_again() {
    let scratch = Scratch::new();
    scratch.write("tree/letter", "dear diary");
    scratch.write("old", "old key");
    scratch.write("new", "new key");
    scratch.ok(&["create", "plain.img", "--from", "tree"]);
    let [iterations, count] = QUICK;
    scratch.ok(&[
        "convert",
        "--encrypt",
        "plain.img",
        "one.sparsebundle",
        "--new-passfile",
        "old",
        iterations,
        count,
    ]);
    assert_eq!(
        scratch.ok(&["cat", "--passfile", "old", "one.sparsebundle:/letter"]),
        "dear diary"
    );

    // Over one standard input: of the image, then the new one.
    let again = [
        "convert",
        "--re-encrypt",
        "--stdinpass",
        "--new-stdinpass",
        "one.sparsebundle",
        "two.dmg",
        iterations,
        count,
    ];
    let (code, _, said) = with_input(&scratch, &again, "old key\0new key");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        scratch.ok(&["cat", "--passfile", "new", "two.dmg:/letter"]),
        "dear diary"
    );
    let (code, ..) = with_input(&scratch, &["ls", "--stdinpass", "two.dmg"], "old key");
    assert_eq!(code, Some(7));

    scratch.ok(&[
        "convert",
        "--decrypt",
        "--passfile",
        "new",
        "two.dmg",
        "three.sparseimage",
    ]);
    assert_eq!(
        scratch.ok(&["cat", "three.sparseimage:/letter"]),
        "dear diary"
    );

    // Plain text is written on request only.
    scratch.ok(&[
        "convert",
        "--decrypt",
        "--passfile",
        "new",
        "two.dmg",
        "plain.dmg",
        "--format",
        "udzo",
    ]);
    scratch.ok(&[
        "convert",
        "--encrypt",
        "--new-passfile",
        "new",
        iterations,
        count,
        "plain.dmg",
        "packed.dmg",
        "--format",
        "udzo",
    ]);
    for refused in [
        &["convert", "two.dmg", "four.img"][..],
        &["segment", "packed.dmg", "-o", "four.dmg", "--size", "1m"],
        &["join", "packed.dmg", "-o", "four.dmg"],
    ] {
        let output = scratch.run(&[refused, &["--passfile", "new"]].concat());
        assert_eq!(output.status.code(), Some(2), "{refused:?}");
        assert!(stderr(&output).contains("--decrypt"), "{}", stderr(&output));
        assert!(!scratch.path("four.img").exists() && !scratch.path("four.dmg").exists());
    }
    scratch.ok(&[
        "join",
        "--decrypt",
        "--passfile",
        "new",
        "packed.dmg",
        "-o",
        "four.dmg",
    ]);
    assert_eq!(scratch.ok(&["cat", "four.dmg:/letter"]), "dear diary");
}

#[test]
fn invalid_options_are_refused_before_files_are_created() {
    let scratch = Scratch::new();
    scratch.write("key", "secret");
    scratch.write("empty", "\n");
    scratch.ok(&["create", "plain.img", "--size", "2m"]);
    let cases: [(&[&str], i32, &str); 10] = [
        (
            &["create", "x.img", "--size", "2m", "--passfile", "key"],
            2,
            "--passfile",
        ),
        (
            &["create", "x.img", "--size", "2m", "--cipher-block", "4096"],
            2,
            "--cipher-block",
        ),
        (
            &["create", "x.img", "--size", "2m", "--thin"],
            2,
            "--encrypt",
        ),
        (
            &[
                "create",
                "x.img",
                "--size",
                "2m",
                "--encrypt",
                "--cipher-block",
                "1k",
                "--passfile",
                "key",
            ],
            2,
            "512 or 4096",
        ),
        (
            &[
                "create",
                "x.img",
                "--size",
                "2m",
                "--encrypt",
                "--iterations",
                "1000",
                "--passfile",
                "key",
            ],
            2,
            "150000",
        ),
        (
            &[
                "create",
                "x.img",
                "--size",
                "2m",
                "--encrypt",
                "--passfile",
                "empty",
            ],
            2,
            "empty",
        ),
        (
            &["create", "x.img", "--size", "2m", "--encrypt"],
            7,
            "--passfile",
        ),
        (
            &[
                "create",
                "x.img",
                "--size",
                "17t",
                "--encrypt",
                "--passfile",
                "key",
            ],
            1,
            "16",
        ),
        (
            &["convert", "plain.img", "x.img", "--decrypt"],
            2,
            "not encrypted",
        ),
        (
            &["convert", "plain.img", "x.img", "--new-passfile", "key"],
            2,
            "--new-passfile",
        ),
    ];
    for (args, code, words) in cases {
        let output = scratch.run(args);
        let said = stderr(&output);
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    }
    assert_eq!(scratch.names(), ["empty", "key", "plain.img"]);
}

/// Permissions of an image, and of the files and folders in it.
fn modes(scratch: &Scratch, image: &str) -> Vec<u32> {
    let mut modes = Vec::new();
    let mut ahead = vec![scratch.path(image)];
    while let Some(path) = ahead.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        modes.push(meta.permissions().mode() & 0o777);
        if meta.is_dir() {
            ahead.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    modes.sort_unstable();
    modes.dedup();
    modes
}

fn set_modes(scratch: &Scratch, image: &str, file: u32, folder: u32) {
    let mut ahead = vec![scratch.path(image)];
    while let Some(path) = ahead.pop() {
        let is_folder = path.is_dir();
        if is_folder {
            ahead.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        std::fs::set_permissions(
            &path,
            Permissions::from_mode(if is_folder { folder } else { file }),
        )
        .unwrap();
    }
}

#[test]
fn secrets_stay_with_their_owner() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    let source = source.to_str().unwrap();
    scratch.write("key", "secret\n");
    let [iterations, count] = QUICK;
    let encrypt = ["--encrypt", "--passfile", "key", iterations, count];
    scratch.ok(&[&["create", "s.img", "--size", "4m", "--thin"], &encrypt[..]].concat());
    scratch.ok(&[
        &["create", "s.dmg", "--format", "udzo", "--from", source],
        &encrypt[..],
    ]
    .concat());
    scratch.ok(&[
        &["create", "s.sparsebundle", "--from", source],
        &encrypt[..],
    ]
    .concat());
    assert_eq!(
        (modes(&scratch, "s.img"), modes(&scratch, "s.dmg")),
        (vec![0o600], vec![0o600])
    );
    assert_eq!(modes(&scratch, "s.sparsebundle"), [0o600, 0o700]);
    // Made public by its owner, it is public; a copy in the clear is not.
    set_modes(&scratch, "s.sparsebundle", 0o644, 0o755);
    let decrypt = [
        "convert",
        "--decrypt",
        "--passfile",
        "key",
        "s.sparsebundle",
    ];
    for name in ["p.img", "p.dmg", "p.sparseimage", "p.asif"] {
        scratch.ok(&[&decrypt[..], &[name]].concat());
        assert_eq!(modes(&scratch, name), [0o600], "{name}");
    }
    scratch.ok(&[&decrypt[..], &["p.sparsebundle"]].concat());
    assert_eq!(modes(&scratch, "p.sparsebundle"), [0o600, 0o700]);
    scratch.ok(&[&decrypt[..], &["r.img", "--resume"]].concat());
    assert_eq!(modes(&scratch, "r.img"), [0o600]);
    scratch.ok(&[&decrypt[..], &["m.img", "--mode", "640"]].concat());
    assert_eq!(modes(&scratch, "m.img"), [0o640], "as told");
    scratch.ok(&[
        "extract",
        "--passfile",
        "key",
        "s.sparsebundle",
        "--tar",
        "s.tar",
    ]);
    assert_eq!(modes(&scratch, "s.tar"), [0o600]);
    scratch.ok(&[
        "create",
        "v.sparsebundle",
        "--from",
        source,
        "--encrypt-volume",
        "--volume-passfile",
        "key",
        iterations,
        count,
    ]);
    assert_eq!(modes(&scratch, "v.sparsebundle"), [0o600, 0o700]);
    scratch.ok(&[
        "stack",
        "create",
        "--passfile",
        "key",
        "s.img",
        "layer.asif",
    ]);
    assert_eq!(
        modes(&scratch, "layer.asif"),
        [0o600],
        "what is written to it is not encrypted"
    );
}

#[test]
fn modes_never_widen() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    let source = source.to_str().unwrap();
    scratch.ok(&[
        "create",
        "a.sparsebundle",
        "--from",
        source,
        "--band-size",
        "1m",
    ]);
    scratch.ok(&["create", "a.img", "--from", source]);
    assert_eq!(
        (modes(&scratch, "a.sparsebundle"), modes(&scratch, "a.img")),
        (vec![0o644, 0o755], vec![0o644])
    );
    set_modes(&scratch, "a.sparsebundle", 0o600, 0o700);
    set_modes(&scratch, "a.img", 0o600, 0o700);
    for name in ["b.img", "b.dmg", "b.asif"] {
        scratch.ok(&["convert", "a.sparsebundle", name]);
        assert_eq!(modes(&scratch, name), [0o600], "{name}");
    }
    scratch.ok(&["convert", "a.img", "b.sparsebundle"]);
    assert_eq!(modes(&scratch, "b.sparsebundle"), [0o600, 0o700]);
    scratch.ok(&["reband", "a.sparsebundle", "--band-size", "2m"]);
    assert_eq!(modes(&scratch, "a.sparsebundle"), [0o600, 0o700]);
    // Bands alone that others may not read.
    set_modes(&scratch, "a.sparsebundle", 0o600, 0o755);
    scratch.ok(&["reband", "a.sparsebundle", "--band-size", "1m"]);
    assert_eq!(modes(&scratch, "a.sparsebundle"), [0o600, 0o755]);
    scratch.ok(&["put", "--from", "src/big.bin", "a.sparsebundle:/again"]);
    assert_eq!(
        modes(&scratch, "a.sparsebundle"),
        [0o600, 0o755],
        "nor new ones"
    );
    for name in ["a.img", "a.sparsebundle"] {
        scratch.ok(&["create", name, "--from", source, "--overwrite"]);
        assert!(
            modes(&scratch, name).contains(&0o600) && !modes(&scratch, name).contains(&0o644),
            "{name}"
        );
        // Of a source that everybody may read, too.
        scratch.write("open.img", std::fs::read(scratch.path("b.img")).unwrap());
        scratch.ok(&["convert", "open.img", name, "--overwrite"]);
        assert!(
            modes(&scratch, name).contains(&0o600) && !modes(&scratch, name).contains(&0o644),
            "{name}"
        );
    }
    scratch.ok(&[
        "create",
        "m.sparsebundle",
        "--from",
        source,
        "--mode",
        "600",
    ]);
    assert_eq!(modes(&scratch, "m.sparsebundle"), [0o600, 0o700]);
}

/// A band that was truncated within a cipher block: `check` names it, other files are read, and no file
/// reads as zeros where the band is lost.
#[test]
fn a_truncated_band_costs_only_the_files_in_it() {
    let scratch = Scratch::new();
    scratch.write("key", "secret");
    scratch.write("src/small", "small");
    let mut random = bandsaw::testing::Random::new(5);
    let large = random.bytes(4_000_000);
    scratch.write("src/large", &large);
    let options = "--size 20m --fs hfs+ --band-size 1m --from src --encrypt --passfile key --iterations 150000";
    let options: Vec<_> = options.split(' ').collect();
    scratch.ok(&[&["create", "x.sparsebundle"][..], &options].concat());
    let band = scratch.path("x.sparsebundle/bands/4");
    let whole = std::fs::read(&band).unwrap();
    assert_eq!(whole.len(), 1 << 20, "the middle of the large file");
    std::fs::write(&band, &whole[..600_100]).unwrap();

    fn with_key<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--passfile", "key"]].concat()
    }
    let output = scratch.run(&with_key(&["check", "x.sparsebundle"]));
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let found = String::from_utf8(output.stdout).unwrap();
    let told =
        "bands/4: byte 600064: truncated within a cipher block, of which 36 of 512 bytes are left";
    assert!(found.contains(told), "{found}");
    assert_eq!(
        scratch.ok(&with_key(&["cat", "x.sparsebundle:/small"])),
        "small"
    );
    for (code, args) in [
        (5, &["cat", "x.sparsebundle:/large"][..]),
        (1, &["extract", "x.sparsebundle", "out"]),
    ] {
        let output = scratch.run(&with_key(args));
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains("bands/4: byte 600064"), "{told}");
    }
    assert_eq!(
        std::fs::read_to_string(scratch.path("out/small")).unwrap(),
        "small"
    );
    // The bytes before the block are right.
    let out = std::fs::read(scratch.path("out/large")).unwrap_or_default();
    assert!(out[..] == large[..out.len()]);
    let told = scratch.fails(
        5,
        &with_key(&["reband", "x.sparsebundle", "--band-size", "2m"]),
    );
    assert!(told.contains("bands/4"), "{told}");
    // A change that does not need the rest of the band works.
    scratch.write("more", "more");
    scratch.ok(&with_key(&[
        "put",
        "x.sparsebundle:/more",
        "--from",
        "more",
    ]));
    assert_eq!(
        scratch.ok(&with_key(&["cat", "x.sparsebundle:/more"])),
        "more"
    );
    assert_eq!(std::fs::metadata(&band).unwrap().len(), 600_100);
    std::fs::write(&band, &whole).unwrap();
    scratch.ok(&with_key(&["check", "x.sparsebundle"]));
}
