//! Programs that make disk images on a Mac, unmodified, with the links of `bandsaw shims` in place of
//! macOS's programs: dmgbuild, create-dmg (the one of npm, and the shell script) and tauri's script.
//!
//! Those that no registry has are searched for in the folder `BANDSAW_MAC_PROGRAMS`: checkouts of
//! create-dmg/create-dmg and tauri-apps/tauri under the names `create-dmg` and `tauri`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::skip::{skip, without_program};
use crate::common::{Scratch, peer_python};

/// A folder to be packed, and `bin`, whose programs come before the system's.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("src/App.app/Contents/Info.plist", "list");
    scratch.write("src/Read me.txt", "read");
    scratch.ok(&["shims", "install", "bin"]);
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

/// The script in the folder of such programs.
fn script_of(program: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("BANDSAW_MAC_PROGRAMS")?).join(program);
    path.is_file().then_some(path)
}

/// Places the script and its files as tauri's bundler does, and returns its path.
fn placed_as_by_tauri(scratch: &Scratch, script: &Path) -> PathBuf {
    let support = "bundle/share/create-dmg/support";
    for name in ["template.applescript", "eula-resources-template.xml"] {
        let file = fs::read(script.with_file_name(name)).unwrap();
        scratch.write(&format!("{support}/{name}"), file);
    }
    scratch.write("bundle/dmg/bundle_dmg.sh", fs::read(script).unwrap())
}

/// Prints the records of the Finder's file, one per line.
const DS_STORE: &str = "import sys, ds_store
for entry in sorted(ds_store.DSStore.open(sys.argv[1], 'r+'), key=str):
    print(entry.filename, entry.code.decode(), entry.value)
";

/// Runs a shell script that lays out the window by AppleScript, and compares what the image has.
fn lays_out(program: &str, script: &str) {
    let scratch = scratch();
    let Some(mut script) = script_of(script) else {
        return skip(program, "not in BANDSAW_MAC_PROGRAMS");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip(program, &why);
    }
    scratch.write("bg.png", "picture");
    scratch.write("icon.icns", b"icns\0\0\0\x08");
    scratch.write("LICENSE", "be nice");
    if script.ends_with("bundle_dmg") {
        script = placed_as_by_tauri(&scratch, &script);
    }
    // osascript is called by its full path.
    let run = "mount -t overlay overlay -o lowerdir=\"$PWD/bin\":/usr/bin /usr/bin
        mkdir -p /Volumes
        mount -t tmpfs tmpfs /Volumes
        exec bash \"$1\" --volname Test --volicon icon.icns --background bg.png --window-pos 100 120 \
            --window-size 500 350 --icon-size 96 --text-size 14 --icon App.app 120 150 --hide-extension App.app \
            --app-drop-link 380 150 --eula LICENSE made.dmg src";
    let output = apart(&scratch, run, &[script.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    scratch.ok(&["check", "made.dmg"]);
    scratch.ok(&["verify", "made.dmg"]);
    let names = scratch.ok(&["ls", "-a", "made.dmg:/"]);
    for name in [
        ".DS_Store",
        ".VolumeIcon.icns",
        ".background",
        "Applications",
    ] {
        assert!(names.lines().any(|line| line == name), "{names}");
    }
    assert_eq!(
        scratch.ok(&["cat", "made.dmg:/.background/bg.png"]),
        "picture"
    );
    let info = |path: &str| {
        let output = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", path]);
        assert!(output.status.success(), "{path}: {}", everything(&output));
        output.stdout
    };
    assert_eq!(info("made.dmg:/.VolumeIcon.icns")[4..8], *b"icnC");
    assert_eq!(info("made.dmg:/")[8..10], [4, 0], "a custom icon");
    assert_eq!(
        info("made.dmg:/App.app")[8..10],
        [0, 0x10],
        "a hidden extension"
    );
    let resources = scratch.ok(&["resources", "list", "made.dmg"]);
    assert!(resources.contains("TEXT"), "{resources}");
    let Some(python) = peer_python("ds_store") else {
        return without_program(program, "no Python with ds_store");
    };
    scratch.write(
        "DS_Store",
        scratch.run(&["cat", "made.dmg:/.DS_Store"]).stdout,
    );
    let read = Command::new(python)
        .args(["-c", DS_STORE])
        .arg(scratch.path("DS_Store"))
        .output()
        .unwrap();
    let records = everything(&read);
    for part in [
        "App.app Iloc (120, 150)",
        "Applications Iloc (380, 150)",
        "'WindowBounds': '{{100, 430}, {500, 350}}'",
        "'iconSize': 96.0",
        "'textSize': 14.0",
        "'backgroundType': 2",
        "'arrangeBy': 'none'",
    ] {
        assert!(records.contains(part), "{part}: {records}");
    }
}

#[test]
fn create_dmg_the_shell_script() {
    lays_out("create_dmg_the_shell_script", "create-dmg/create-dmg");
}

#[test]
fn the_script_of_tauri() {
    let script = "tauri/crates/tauri-bundler/src/bundle/macos/dmg/bundle_dmg";
    lays_out("the_script_of_tauri", script);
}
