//! Encrypted APFS volumes: made, changed and opened, with the passphrase and with the recovery key.

mod common;

use common::{Scratch, stderr};

const ITERATIONS: [&str; 2] = ["--iterations", "150000"];

#[test]
fn an_encrypted_volume_is_made_changed_and_read() {
    let scratch = Scratch::new();
    scratch.write("tree/letter", "dear diary");
    scratch.write("pass", "open sesame\n");
    let make = ["create", "V.img", "--fs", "apfs", "--encrypt-volume", "--volume-passfile", "pass", "--volname", "Vault"];
    let more = ["--from", "tree", "--volume-hint", "as Ali did", "--recovery-key-file", "recovery"];
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
    assert!(scratch.ok(&[&["ls", "V.img"][..], &pass].concat()).contains("old letter"));
    let output = scratch.run(&["put", "--from", "plain.txt", "V.img:/again"]);
    assert!(!output.status.success() && stderr(&output).contains("--volume-passfile"), "{}", stderr(&output));
    scratch.write("wrong", "open barley");
    let wrong = scratch.run(&["rm", "V.img:/more", "--volume-passfile", "wrong"]);
    assert!(stderr(&wrong).contains("the passphrase is wrong"), "{}", stderr(&wrong));
}

/// Nobody but its owner reads it, it is never overwritten, and it goes with an image that cannot be made.
#[test]
fn the_recovery_key_is_kept_or_shown() {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame");
    let make = |image: &'static str, key: &'static str| {
        let options = ["--size", "8m", "--encrypt-volume", "--volume-passfile", "pass", "--recovery-key-file", key];
        [&["create", image, "--fs", "apfs"][..], &options, &ITERATIONS].concat()
    };
    let shown = scratch.ok(&make("one.img", "-"));
    let key = shown.lines().find_map(|line| line.strip_prefix("recovery key: ")).expect("a line with the key");
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
    assert!(scratch.fails(4, &make("four.img", "key")).contains("not overwritten"));
    scratch.fails(2, &[&make("small.img", "gone")[..], &["--block-size", "8k"]].concat());
    assert_eq!(scratch.names(), ["key", "one.img", "pass", "shown", "three.img", "two.img"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame");
    scratch.write("empty", "");
    for (args, said) in [
        (&["create", "a.img", "--size", "8m", "--volume-passfile", "pass", "--volname", "A"][..], "without --encrypt-volume"),
        (&["create", "a.img", "--size", "8m", "--recovery-key-file", "key", "--volname", "A"], "--encrypt-volume"),
        (&["create", "a.img", "--size", "8m", "--fs", "hfs+", "--encrypt-volume", "--volume-passfile", "pass"], "APFS"),
        (&["create", "a.img", "--size", "8m", "--fs", "none", "--encrypt-volume", "--volume-passfile", "pass"], "blank disk"),
        (&["create", "a.img", "--size", "8m", "--encrypt-volume", "--volume-passfile", "empty"], "is empty"),
        (&["create", "a.img", "--size", "8m", "--encrypt-volume"], "passphrase of the new volume"),
    ] {
        let output = scratch.run(args);
        let said_too = stderr(&output);
        assert!(!output.status.success() && said_too.contains(said), "{args:?}: {said_too}");
    }
    assert_eq!(scratch.names(), ["empty", "pass"]);
}
