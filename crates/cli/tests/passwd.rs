//! Key slots of encrypted images, through the command: `passwd`, `isencrypted`, `erase-keys` and
//! private keys.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Stdio;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::time::Duration;

use crate::common::{Scratch, stderr};
use bandsaw::crypt::{Device, KeyWrap, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice};
use bandsaw::store::{LocalFile, Open};

/// An encrypted image `secret.img` that holds a volume, and files with passphrases: `old` opens it,
/// `new` does not.
fn encrypted() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "plain.img", "--from", "src"]);
    let plain = fs::read(scratch.path("plain.img")).unwrap();
    let file = LocalFile::open(scratch.path("secret.img"), Open::CreateNew)
        .unwrap()
        .unwrap();
    let passphrase = Some(Secret::new(b"old".to_vec()));
    let protection = Protection {
        key_bits: 256,
        block: 512,
        passphrase,
        iterations: 1000,
        key_wrap: KeyWrap::TripleDes,
        certificates: Vec::new(),
    };
    let device = Device::create(Arc::new(file), &protection).unwrap();
    device
        .set_len(plain.len() as u64, AfterDiscard::Any)
        .unwrap();
    device.write_at(0, &plain).unwrap();
    device.flush().unwrap();
    for name in ["old", "new", "third"] {
        scratch.write(name, format!("{name}\n"));
    }
    scratch
}

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/keys")
        .join(name)
}

fn opens(scratch: &Scratch, args: &[&str]) -> bool {
    let output = scratch.run(&[&["ls", "secret.img"], args].concat());
    match output.status.code() {
        Some(0) => String::from_utf8_lossy(&output.stdout).contains("hello.txt"),
        code => {
            assert_eq!(code, Some(7), "{}", stderr(&output));
            false
        }
    }
}

#[test]
fn passphrases_are_changed_added_and_removed() {
    let scratch = encrypted();
    let open = |name: &str| opens(&scratch, &["--passfile", name]);
    scratch.ok(&[
        "passwd",
        "secret.img",
        "--passfile",
        "old",
        "--new-passfile",
        "new",
        "--iterations",
        "150000",
    ]);
    assert!(open("new") && !open("old"));
    // Both over one standard input, in their order.
    let mut add = scratch.command(&[
        "passwd",
        "add",
        "secret.img",
        "--stdinpass",
        "--new-stdinpass",
        "--iterations",
        "150000",
    ]);
    assert!(
        add.write_stdin("new\0third")
            .output()
            .unwrap()
            .status
            .success()
    );
    let listed = scratch.ok(&["passwd", "list", "secret.img"]);
    assert_eq!(
        listed,
        "  1  a passphrase, 150,000 iterations\n  2  a passphrase, 150,000 iterations\n"
    );
    assert!(open("new") && open("third"));
    let error = scratch.fails(
        2,
        &["passwd", "remove", "secret.img", "2", "--passfile", "third"],
    );
    assert!(error.contains("give another"), "{error}");
    assert!(
        scratch
            .fails(
                3,
                &["passwd", "remove", "secret.img", "3", "--passfile", "third"]
            )
            .contains("passwd list")
    );
    let left = scratch.json(&["passwd", "remove", "secret.img", "1", "--passfile", "third"]);
    assert_eq!(left["key_slots"].as_array().unwrap().len(), 1);
    assert!(open("third") && !open("new"));
    assert!(
        scratch
            .fails(
                2,
                &["passwd", "remove", "secret.img", "1", "--passfile", "third"]
            )
            .contains("last key entry")
    );
}

#[test]
fn a_private_key_opens_what_its_certificate_was_added_to() {
    let scratch = encrypted();
    let [certificate, owner, stranger] =
        ["owner-certificate.der", "owner.pem", "stranger.pem"].map(key);
    let [certificate, owner, stranger] =
        [&certificate, &owner, &stranger].map(|path| path.to_str().unwrap());
    scratch.ok(&[
        "passwd",
        "add",
        "secret.img",
        "--passfile",
        "old",
        "--certificate",
        certificate,
    ]);
    assert!(
        opens(&scratch, &["--private-key", owner])
            && !opens(&scratch, &["--private-key", stranger])
    );
    // The passphrase was forgotten.
    scratch.ok(&[
        "passwd",
        "secret.img",
        "--private-key",
        owner,
        "--new-passfile",
        "new",
    ]);
    assert!(opens(&scratch, &["--passfile", "new"]) && !opens(&scratch, &["--passfile", "old"]));
    let facts = scratch.json(&["info", "secret.img", "--private-key", owner]);
    let key_slots = &facts["encryption"]["key_slots"];
    assert_eq!(
        (
            &key_slots[0]["kind"],
            &key_slots[0]["bits"],
            &key_slots[1]["kind"]
        ),
        (&"public_key".into(), &2048.into(), &"passphrase".into())
    );
    for wrong in ["old", certificate] {
        assert!(
            scratch
                .fails(2, &["ls", "secret.img", "--private-key", wrong])
                .contains("PEM")
        );
    }
    scratch.fails(
        2,
        &[
            "ls",
            "secret.img",
            "--private-key",
            owner,
            "--passfile",
            "new",
        ],
    );
    let curve = key("curve-certificate.pem");
    let error = scratch.fails(
        6,
        &[
            "passwd",
            "add",
            "secret.img",
            "--passfile",
            "new",
            "--certificate",
            curve.to_str().unwrap(),
        ],
    );
    assert!(error.contains("RSA"), "{error}");
}

#[test]
fn refused_changes_change_nothing() {
    let scratch = encrypted();
    let before = fs::read(scratch.path("secret.img")).unwrap();
    scratch.write("empty", "\n");
    let with =
        |code: i32, args: &[&str]| scratch.fails(code, &[&["passwd", "secret.img"], args].concat());
    with(7, &["--passfile", "new", "--new-passfile", "third"]);
    with(7, &["--new-passfile", "third"]);
    assert!(with(7, &["--passfile", "old"]).contains("--new-passfile"));
    assert!(with(2, &["--passfile", "old", "--new-passfile", "empty"]).contains("empty"));
    with(
        2,
        &[
            "--passfile",
            "old",
            "--new-passfile",
            "new",
            "--iterations",
            "149999",
        ],
    );
    with(
        2,
        &["--passfile", "old", "--new-passfile", "new", "--entry", "2"],
    );
    assert!(
        scratch
            .fails(2, &["passwd", "plain.img", "--passfile", "old"])
            .contains("not encrypted")
    );
    scratch.fails(3, &["passwd", "missing.img"]);
    scratch.fails(2, &["erase-keys", "plain.img", "--yes", "--yes"]);
    for args in [
        &["erase-keys", "secret.img"][..],
        &["erase-keys", "secret.img", "--yes"],
    ] {
        assert!(scratch.fails(2, args).contains("--yes --yes"));
    }
    let output = scratch
        .command(&["passwd", "secret.img", "--stdinpass", "--new-stdinpass"])
        .write_stdin("old")
        .output()
        .unwrap();
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("not found on standard input"),
        "{}",
        stderr(&output)
    );
    assert!(fs::read(scratch.path("secret.img")).unwrap() == before);
}

#[test]
fn erased_keys_open_nothing() {
    let scratch = encrypted();
    assert_eq!(
        scratch.json(&["erase-keys", "secret.img", "--yes", "--yes"])["erased_key_slots"],
        1
    );
    assert!(
        scratch
            .fails(5, &["ls", "secret.img", "--passfile", "old"])
            .contains("erased")
    );
    assert!(
        scratch
            .ok(&["isencrypted", "secret.img"])
            .contains("passphrase-count: 0\n")
    );
}

#[test]
fn isencrypted_speaks_as_hdiutil_does() {
    let scratch = encrypted();
    let uuid = scratch.json(&["isencrypted", "secret.img"])["encryption"]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let expected = format!(
        "encrypted: YES\nblocksize: 512\nuuid: {}\nprivate-key-count: 0\npassphrase-count: 1\nmax-key-count: 192\nversion: 2\n",
        uuid.to_uppercase()
    );
    assert_eq!(scratch.ok(&["isencrypted", "secret.img"]), expected);
    for plain in ["plain.img", "old"] {
        assert_eq!(scratch.ok(&["isencrypted", plain]), "encrypted: NO\n");
    }
    assert_eq!(
        scratch.json(&["isencrypted", "plain.img"])["encrypted"],
        false
    );
    scratch.fails(3, &["isencrypted", "missing"]);
}

/// The header of a bundle stands in `token`, whose inode carries the lock: it is changed in place.
#[test]
fn a_bundle_keeps_its_token() {
    let scratch = encrypted();
    scratch.ok(&["create", "b.sparsebundle", "--size", "1m"]);
    let token = scratch.path("b.sparsebundle/token");
    let header = fs::read(scratch.path("secret.img")).unwrap();
    fs::File::options()
        .write(true)
        .open(&token)
        .unwrap()
        .write_all(&header[..0x1DE00])
        .unwrap();
    let inode = fs::metadata(&token).unwrap().ino();
    scratch.ok(&[
        "passwd",
        "b.sparsebundle",
        "--passfile",
        "old",
        "--new-passfile",
        "new",
    ]);
    assert_eq!(fs::metadata(&token).unwrap().ino(), inode);
    assert!(
        scratch
            .fails(7, &["passwd", "b.sparsebundle", "--passfile", "old"])
            .contains("wrong")
    );
}

/// Nothing of a process that holds keys is left in a core dump.
#[cfg(target_os = "linux")]
#[test]
fn there_are_no_core_dumps_of_keys() {
    let scratch = encrypted();
    // As much as is allowed, whatever the limit is where the tests run.
    let mut child = std::process::Command::new("sh")
        .args(["-c", "ulimit -S -c $(ulimit -H -c); exec \"$0\" \"$@\""])
        .args([
            env!("CARGO_BIN_EXE_bandsaw"),
            "info",
            "secret.img",
            "--stdinpass",
        ])
        .current_dir(scratch.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It waits for the passphrase, and has done what it does before it reads one.
    let limits = format!("/proc/{}/limits", child.id());
    let off = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let limits = fs::read_to_string(&limits).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        line.split_whitespace().nth(4) == Some("0")
    });
    child.stdin.take().unwrap().write_all(b"old").unwrap();
    assert!(child.wait().unwrap().success() && off);
}
