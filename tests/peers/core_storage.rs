//! `cryptsetup`: reads the metadata of FileVault 2, and the key of the volume.

use std::io::Write;
use std::process::Stdio;

use bandsaw::fs::core_storage::fixture::Options;

use crate::programs::Program;
use crate::suite::Suite;

const CRYPTSETUP: Program = Program::Command(&["cryptsetup"]);

pub(crate) fn add(suite: &mut Suite) {
    suite.peer("cryptsetup", &[CRYPTSETUP]).test(
        "reads_the_volumes_of_our_tests",
        reads_the_volumes_of_our_tests,
    );
}

/// The fixture, with which all tests of Core Storage are made, is what another program takes it for.
fn reads_the_volumes_of_our_tests() {
    let disk = Options::new(vec![7; 8 * 4096], "open sesame")
        .build()
        .remove(0);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&disk).unwrap();
    let mut child = CRYPTSETUP
        .command()
        .args(["--batch-mode", "--dump-volume-key", "fvault2Dump"])
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"open sesame\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = printed.split_whitespace().collect();
    let printed = words.join(" ");
    for line in [
        "Physical volume UUID: a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0",
        "Family UUID: 33a76caa-1481-4bc5-8d04-1ac1707c19c0",
        "Logical volume offset: 462848 [bytes]",
        "Logical volume size: 32768 [bytes]",
        "Volume key: 56 56 56 56 56 56 56 56 56 56 56 56 56 56 56 56",
    ] {
        assert!(printed.contains(line), "no {line:?} in\n{printed}");
    }
}
