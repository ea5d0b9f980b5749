//! Programs that make disk images with macOS's `hdiutil`, unmodified, with ours in its place:
//! dmgbuild and create-dmg.
//!
//! What else they want of a Mac are stand-ins of a line or two: `ditto` copies, `sw_vers` tells a
//! version.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use crate::common::skip::{skip, without_program};
use crate::common::{Scratch, peer_python};

/// A folder to be packed, and `bin`, whose programs come before the system's.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("src/App.app/Contents/Info.plist", "list");
    scratch.write("src/Read me.txt", "read");
    for (name, script) in [
        ("ditto", "exec cp -a \"$1\" \"$2\""),
        (
            "sw_vers",
            "printf 'ProductName:\\t\\tmacOS\\nProductVersion:\\t\\t14.0\\nBuildVersion:\\t\\t23A344\\n'",
        ),
    ] {
        let path = scratch.write(&format!("bin/{name}"), format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_bandsaw"), scratch.path("bin/hdiutil")).unwrap();
    fs::create_dir(scratch.path("run")).unwrap();
    scratch
}

/// Runs a shell's words in mounts of its own, which end with it.
fn apart(scratch: &Scratch, script: &str, args: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", script, "sh"])
        .args(args)
        .current_dir(scratch.path(""));
    command
        .env("XDG_RUNTIME_DIR", scratch.path("run"))
        .env("HOME", scratch.path(""))
        .env_remove("SOURCE_DATE_EPOCH");
    command.output().unwrap()
}

/// What stops such a program here: mounting takes root and FUSE.
fn hindrance(scratch: &Scratch) -> Option<String> {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        return Some("/dev/fuse cannot be opened here".into());
    }
    let script = "mount -t overlay overlay -o lowerdir=\"$PWD/bin\":/usr/bin /usr/bin";
    let tried = apart(scratch, script, &[]);
    (!tried.status.success()).then(|| {
        format!(
            "nothing can be mounted here: {}",
            String::from_utf8_lossy(&tried.stderr).trim()
        )
    })
}

fn everything(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// 7-Zip finds the files in `image` and tests what they hold.
fn seven_zip_knows(scratch: &Scratch, image: &str) {
    let unpacked = scratch.path("unpacked");
    let output = Command::new("7zz")
        .args(["x", "-y"])
        .arg(format!("-o{}", unpacked.display()))
        .arg(scratch.path(image))
        .output();
    let Ok(output) = output else {
        return without_program("seven_zip_knows", "no 7zz");
    };
    assert!(
        output.status.success() || unpacked.join("Test").is_dir(),
        "{}",
        everything(&output)
    );
    assert_eq!(
        fs::read(unpacked.join("Test/App.app/Contents/Info.plist")).unwrap(),
        b"list"
    );
    assert_eq!(
        fs::read(unpacked.join("Test/Read me.txt")).unwrap(),
        b"read"
    );
}

#[test]
fn dmgbuild() {
    let scratch = scratch();
    let Some(python) = peer_python("dmgbuild") else {
        return without_program("dmgbuild", "no Python with that module");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("dmgbuild", &why);
    }
    scratch.write(
        "site/sitecustomize.py",
        "import platform\nplatform.mac_ver = lambda *args, **more: ('14.0', ('', '', ''), 'arm64')\n",
    );
    let src = scratch.path("src");
    scratch.write(
        "settings.py",
        format!(
            "format = 'ULFO'\nfiles = ['{0}/App.app', '{0}/Read me.txt']\nsymlinks = {{'Applications': '/Applications'}}\n\
             icon_locations = {{'App.app': (140, 120), 'Applications': (500, 120)}}\nwindow_rect = ((100, 100), (640, 280))\n",
            src.display()
        ),
    );
    // It calls hdiutil and ditto by their full paths.
    let script = "mount -t overlay overlay -o lowerdir=\"$PWD/bin\":/usr/bin /usr/bin
        PYTHONPATH=site exec \"$1\" -m dmgbuild -s settings.py Test made.dmg";
    let output = apart(&scratch, script, &[python.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    assert_eq!(scratch.json(&["info", "made.dmg"])["format"], "ULFO");
    assert!(
        scratch
            .ok(&["ls", "-a", "made.dmg:/"])
            .contains(".DS_Store")
    );
    scratch.ok(&["check", "made.dmg"]);
    seven_zip_knows(&scratch, "made.dmg");
    let listed = scratch
        .command(&["list", "--json"])
        .env("XDG_RUNTIME_DIR", scratch.path("run"))
        .output()
        .unwrap();
    assert!(
        !String::from_utf8_lossy(&listed.stdout).contains("made"),
        "nothing is left attached: {}",
        everything(&listed)
    );
}

#[test]
fn create_dmg() {
    let scratch = scratch();
    if let Some(why) = hindrance(&scratch) {
        return skip("create_dmg", &why);
    }
    let script = "command -v create-dmg >/dev/null || exit 77
        PATH=\"$PWD/bin:$PATH\" exec create-dmg --volname Test --skip-jenkins --app-drop-link 400 100 made.dmg src";
    let output = apart(&scratch, script, &[]);
    if output.status.code() == Some(77) {
        return skip("create_dmg", "no create-dmg");
    }
    assert!(output.status.success(), "{}", everything(&output));
    assert_eq!(scratch.json(&["info", "made.dmg"])["format"], "UDZO");
    assert!(scratch.ok(&["ls", "made.dmg:/"]).contains("Applications"));
    seven_zip_knows(&scratch, "made.dmg");
    assert_eq!(
        scratch
            .names()
            .iter()
            .filter(|name| name.starts_with("rw."))
            .count(),
        0,
        "{:?}",
        scratch.names()
    );
}
