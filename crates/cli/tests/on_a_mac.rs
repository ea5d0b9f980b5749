//! `scripts/on-a-mac` with stand-ins for Apple's tools: the order of its phases, the archive, and
//! that missing evidence fails the run. The images that it judges are made by the real command.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use crate::common::{Scratch, stderr};

const HDIUTIL: &str = r#"
echo "hdiutil $*" >> "$CALLS"
verb=$1
shift
case $verb in
create)
    for last; do :; done
    case "$*" in
    *SPARSEBUNDLE*) mkdir "$last.sparsebundle" ;;
    *SPARSE*) : > "$last.sparseimage" ;;
    *) : > "$last.dmg" ;;
    esac
    ;;
attach)
    printf '/dev/disk4\tGUID_partition_scheme\t\n/dev/disk4s1\tApple_APFS\t\n/dev/disk4s2\tApple_HFS\t\n'
    before=
    for word; do
        [ "$before" != -mountpoint ] || folder=$word
        before=$word
    done
    [ -n "$folder" ] || exit 0
    rm -rf "$folder/folder"
    case "$*" in *-readonly*) "$BANDSAW" extract "$word:/folder" "$folder/folder" ;; esac
    ;;
*) echo "$verb done" ;;
esac
"#;

fn tool(scratch: &Scratch, name: &str, body: &str) {
    let path = scratch.write(&format!("bin/{name}"), format!("#!/bin/bash\n{body}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(scratch: &Scratch, args: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/on-a-mac");
    let path = format!(
        "{}:{}",
        scratch.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    assert_cmd::Command::new(script)
        .args(args)
        .arg(scratch.path("all.tar.gz"))
        .env("PATH", path)
        .env("TMPDIR", scratch.path(""))
        .env("CARGO_TARGET_DIR", scratch.path("target"))
        .env("CALLS", scratch.path("calls"))
        .env("BANDSAW", env!("CARGO_BIN_EXE_bandsaw"))
        .env("ON_A_MAC_FAKES", "1")
        .output()
        .unwrap()
}

fn fakes() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("bin")).unwrap();
    fs::create_dir_all(scratch.path("target/release")).unwrap();
    let built = scratch.path("target/release/bandsaw");
    symlink(env!("CARGO_BIN_EXE_bandsaw"), built).unwrap();
    tool(&scratch, "hdiutil", HDIUTIL);
    for name in ["diskutil", "fsck_apfs", "fsck_hfs", "sw_vers", "cargo"] {
        tool(
            &scratch,
            name,
            &format!("echo {name} $* | tee -a \"$CALLS\""),
        );
    }
    tool(&scratch, "xattr", "echo value");
    tool(&scratch, "shasum", "exec sha256sum");
    scratch
}

#[test]
fn the_collector_observes_first_and_misses_nothing() {
    let scratch = fakes();
    let output = run(&scratch, &[]);
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        stderr(&output)
    );
    // Everything that observes macOS is over before Bandsaw is built.
    let calls = fs::read_to_string(scratch.path("calls")).unwrap();
    let built = calls.find("cargo build").unwrap();
    assert!(calls[..built].contains("imageinfo") && calls[..built].contains("fsck_hfs -fn"));
    assert!(!calls[..built].contains("ours-"), "{calls}");
    assert!(calls[built..].contains("ours-hfsx-udzo.dmg"), "{calls}");
    assert!(!calls[built..].contains("native-"), "{calls}");
    // Every image is detached again, and nothing is left behind.
    let count = |what: &str| calls.matches(what).count();
    assert_eq!(count("hdiutil attach"), count("hdiutil detach"));
    assert!(
        !scratch
            .names()
            .iter()
            .any(|name| name.starts_with("on-a-mac."))
    );

    // An observation alone, then one of a tool that fails, and one that says nothing.
    assert!(run(&scratch, &["--observe"]).status.success());
    tool(&scratch, "fsck_apfs", "exit 8");
    let output = run(&scratch, &["--observe"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("native-apfs-fsck: status 8"), "{told}");
    tool(&scratch, "fsck_apfs", "exit 0");
    tool(&scratch, "diskutil", "exit 0");
    let told = String::from_utf8(run(&scratch, &["--observe"]).stdout).unwrap();
    assert!(told.contains("native-hfsp-info: no evidence"), "{told}");
    assert!(scratch.path("all.tar.gz").exists());
}
