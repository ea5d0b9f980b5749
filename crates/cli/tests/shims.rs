//! Programs of macOS under their own names, as release scripts call them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Output};

use crate::common::skip::{skip, without_program};
use crate::common::{Scratch, peer_python, stderr};

/// Runs one of the links.
fn run(scratch: &Scratch, words: &[&str]) -> Output {
    let (program, words) = words.split_first().unwrap();
    let home = scratch.path("");
    Command::new(scratch.path("bin").join(program))
        .args(words)
        .current_dir(&home)
        .env("XDG_RUNTIME_DIR", &home)
        .env("HOME", &home)
        .output()
        .unwrap()
}

fn ok(scratch: &Scratch, words: &[&str]) -> String {
    let output = run(scratch, words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn fails(scratch: &Scratch, words: &[&str]) -> String {
    let output = run(scratch, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    let printed = stderr(&output);
    let program = words[0];
    assert!(printed.starts_with(&format!("{program}: ")), "{printed}");
    printed
}

fn links() -> Scratch {
    let scratch = Scratch::new();
    let printed = scratch.ok(&["shims", "install", "bin"]);
    assert_eq!(printed.lines().count(), 11, "{printed}");
    scratch
}

/// A mounted volume at `disk`; `None` where nothing can be mounted.
fn mounted(test: &str, fs: &str) -> Option<Scratch> {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        skip(test, "/dev/fuse cannot be opened here");
        return None;
    }
    let scratch = links();
    let create = "hdiutil create -size 20m -volname My a -fs";
    let words: Vec<_> = create.split(' ').chain([fs]).collect();
    ok(&scratch, &words);
    ok(&scratch, &["hdid", "-mountpoint", "disk", "a.dmg"]);
    Some(scratch)
}

#[test]
fn links_are_made_and_listed() {
    let scratch = links();
    assert_eq!(scratch.ok(&["shims", "install", "bin"]), "");
    let command = fs::canonicalize(env!("CARGO_BIN_EXE_bandsaw")).unwrap();
    for line in scratch.ok(&["shims", "list"]).lines() {
        let name = line.split(' ').next().unwrap();
        let target = fs::read_link(scratch.path("bin").join(name)).unwrap();
        assert_eq!(target, command);
    }
    scratch.write("other/ditto", "");
    let printed = scratch.fails(4, &["shims", "install", "other"]);
    assert!(printed.contains("ditto"), "{printed}");
    assert_eq!(fs::read_dir(scratch.path("other")).unwrap().count(), 1);
}

#[test]
fn files_of_a_mounted_volume() {
    let Some(scratch) = mounted("files_of_a_mounted_volume", "HFS+") else {
        return;
    };
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    scratch.write("disk/icon", "icon");
    ok("SetFile -c icnC -a V disk/icon");
    ok("SetFile -a C disk");
    assert_eq!(ok("GetFileInfo -c disk/icon"), "\"icnC\"\n");
    assert_eq!(ok("GetFileInfo -aV disk/icon"), "1\n");
    ok("SetFile -t TEXT -a vE disk/icon");
    let all = ok("GetFileInfo disk/icon");
    for line in [
        "type: \"TEXT\"",
        "creator: \"icnC\"",
        "attributes: avbstclinmEdz",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}: {all}");
    }
    assert!(ok("GetFileInfo disk").contains("attributes: avbstClinmedz"));

    scratch.write("disk/App.app/Contents/Info", "list");
    for file in ["disk/App.app", "disk/App.app/Contents/Info"] {
        ok(&format!("xattr -w com.apple.quarantine 0081 {file}"));
        assert_eq!(ok(&format!("xattr {file}")), "com.apple.quarantine\n");
    }
    ok("xattr -wx org.example.bytes 00ff disk/icon");
    assert_eq!(ok("xattr -px org.example.bytes disk/icon"), "\n00 FF\n");

    // With everything that the file system keeps.
    let script = scratch.write("disk/App.app/run", "#!/bin/sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run", scratch.path("disk/App.app/link")).unwrap();
    fs::hard_link(&script, scratch.path("disk/App.app/second")).unwrap();
    ok("ditto disk/App.app disk/Copy/App.app");
    let copy = scratch.path("disk/Copy/App.app");
    let (old, new) = (
        fs::metadata(&script).unwrap(),
        fs::metadata(copy.join("run")).unwrap(),
    );
    assert_eq!((new.mode(), new.mtime()), (old.mode(), old.mtime()));
    assert_eq!(new.ino(), fs::metadata(copy.join("second")).unwrap().ino());
    let link = fs::read_link(copy.join("link")).unwrap();
    assert_eq!(link.to_str(), Some("run"));
    assert_eq!(
        ok("xattr -l disk/Copy/App.app/Contents/Info"),
        "com.apple.quarantine: 0081\n"
    );
    ok("ditto --norsrc disk/icon plain");
    assert_eq!(fs::read(scratch.path("plain")).unwrap(), b"icon");
    // What is there is replaced as a whole.
    fs::write(scratch.path("disk/Copy/App.app/run"), "old").unwrap();
    ok("ditto disk/App.app disk/Copy/App.app");
    assert_eq!(fs::read(copy.join("run")).unwrap(), b"#!/bin/sh");
    assert_eq!(fs::read(copy.join("second")).unwrap(), b"#!/bin/sh");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 4);

    ok("xattr -rd com.apple.quarantine disk/App.app");
    assert_eq!(ok("xattr -r disk/App.app"), "");
    ok("xattr -cr disk/Copy");
    assert_eq!(ok("xattr -r disk/Copy"), "");
    let missing = fails(&scratch, &["xattr", "-d", "none", "disk/icon"]);
    assert!(missing.contains("No such xattr: none"), "{missing}");
    ok("bless --folder disk --openfolder disk");

    ok("diskutil eject disk");
    let info = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", "a.dmg:/icon"]);
    assert_eq!(info.stdout[..10], *b"TEXTicnC\0\x10");
    scratch.ok(&["check", "a.dmg"]);
}

/// A layout in the words that scripts use.
const LAYOUT: &str = "\
on run argv -- the volume
	set volumeName to (item 1 of argv) as string
	tell application \"Finder\"
		tell disk volumeName
			open
			set leftEdge to 10
			set w to 400
			tell container window
				set current view to icon view
				set toolbar visible to false
				set the bounds to {leftEdge + 10, 40 * 2, leftEdge + w, 680 / 2}
				set position of every item to {900, 900}
			end tell
			set opts to the icon view options of container window
			tell opts
				set icon size to 72
				set arrangement to not arranged
			end tell
			set background picture of opts to file \".background:bg.png\"
			set position of item \"App.app\" to {100, 120}
			set position of item \"Read me.txt\" of container window to \u{ac}
				{300, 120}
			set the extension hidden of item \"App.app\" to true
			close
			delay 5
		end tell
		set turns to 0
		repeat while turns is not 3
			set turns to turns + 1
			if (do shell script \"[ -f '/Volumes/\" & volumeName & \"/.DS_STORE' ]; echo $?\") = \"0\" then set turns to 3
		end repeat
	end tell
end run
";

/// Prints the records of the Finder's file, and where the background is.
const DS_STORE: &str = "import sys, ds_store, mac_alias
for entry in sorted(ds_store.DSStore.open(sys.argv[1], 'r+'), key=str):
    print(entry.filename, entry.code.decode(), entry.value)
    if entry.code == b'icvp':
        alias = mac_alias.Alias.from_bytes(entry.value['backgroundImageAlias'])
        print(alias.volume.name, alias.volume.creation_date.year, alias.target.posix_path)
";

#[test]
fn a_window_is_laid_out() {
    for fs in ["HFS+", "APFS"] {
        let Some(scratch) = mounted("a_window_is_laid_out", fs) else {
            return;
        };
        scratch.write("disk/App.app/Contents/Info", "list");
        scratch.write("disk/Read me.txt", "read");
        scratch.write("disk/.background/bg.png", "picture");
        scratch.write("layout", LAYOUT);
        ok(&scratch, &["osascript", "layout", "My"]);
        let hidden = ok(&scratch, &["GetFileInfo", "-aE", "disk/App.app"]);
        assert_eq!(hidden, "1\n");
        ok(&scratch, &["hdiutil", "detach", "disk"]);
        scratch.ok(&["check", "a.dmg"]);
        scratch.write("DS_Store", scratch.run(&["cat", "a.dmg:/.DS_Store"]).stdout);
        let Some(python) = peer_python("ds_store") else {
            return without_program("a_window_is_laid_out", "no Python with ds_store");
        };
        let read = Command::new(python)
            .args(["-c", DS_STORE])
            .arg(scratch.path("DS_Store"))
            .output()
            .unwrap();
        let records = String::from_utf8_lossy(&read.stdout).into_owned();
        for part in [
            "App.app Iloc (100, 120)",
            "Read me.txt Iloc (300, 120)",
            ".background Iloc (900, 900)",
            "'WindowBounds': '{{20, 560}, {390, 260}}'",
            "'ShowToolbar': False",
            "'iconSize': 72.0",
            "'backgroundType': 2",
            "My 20",
            "/.background/bg.png",
        ] {
            assert!(records.contains(part), "{fs}: {part}: {records}");
        }
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    let Some(scratch) = mounted("what_is_not_supported_is_refused", "HFS+") else {
        return;
    };
    scratch.write("disk/file", "file");
    for (line, said) in [
        ("SetFile -a X disk/file", "unknown attribute X"),
        ("SetFile -a L disk/file", "cannot be set"),
        ("SetFile -d 1/1/2000 disk/file", "dates"),
        ("SetFile -t TOOLONG disk/file", "four"),
        ("SetFile -t TEXT disk", "a folder has no type"),
        ("SetFile -x disk/file", "-x is not supported"),
        ("GetFileInfo", "a file is required"),
        ("ditto --arch arm64 disk/file x", "--arch is not supported"),
        ("ditto -c -k disk x.zip", "archives are not supported"),
        ("ditto disk/file", "expected a source and a destination"),
        ("ditto disk disk/inside", "inside the folder"),
        ("ditto disk/file disk/file", "is the file to be copied"),
        ("ditto disk/file disk", "is the file to be copied"),
        ("sw_vers -nonsense", "-nonsense is not supported"),
        ("xattr -z disk/file", "-z is not supported"),
        ("xattr -lc disk/file", "only one"),
        ("bless --mount disk", "--mount is not supported"),
        ("bless --folder none", "none"),
        ("codesign -s Me a.dmg", "rcodesign"),
        ("codesign --force a.dmg", "--force is not supported"),
        ("codesign a.dmg", "expected --verify"),
        ("osascript -l JavaScript file", "only AppleScript"),
        ("osascript -i", "-i is not supported"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let printed = fails(&scratch, &words);
        assert!(printed.contains(said), "{line}: {printed}");
    }
    let disk = |rest: &str| format!("tell application \"Finder\" to tell disk \"My\" to {rest}");
    for (script, said) in [
        (
            "tell application \"Safari\" to open".to_owned(),
            "application Safari",
        ),
        (
            "tell application \"Finder\" to tell disk \"none\" to open".to_owned(),
            "-1728",
        ),
        (
            "set x to do shell script \"rm file\"".to_owned(),
            "not supported: rm file",
        ),
        (
            "open\ndisplay dialog \"hello\"".to_owned(),
            "line 2: display dialog \"hello\": not supported",
        ),
        ("set x to y".to_owned(), "y is not supported"),
        (
            "repeat while true is true\nset x to 1\nend repeat".to_owned(),
            "1000 times",
        ),
        (format!("set x to {}", "(".repeat(5000)), "nested"),
        (disk("eject"), "not supported"),
        (disk("set position of item \"none\" to {1, 2}"), "-1728"),
        (disk("set position of item \"file\" to {1, -2}"), "-2"),
        (disk("set position of item \"file\" to {1}"), "length"),
        (disk("set bounds of container window to 5"), "a list"),
        (
            disk(
                "set background picture of icon view options of container window to file \"file\"",
            ),
            "in a folder of the root",
        ),
        (disk("set shape of container window to 5"), "expected to"),
    ] {
        let printed = fails(&scratch, &["osascript", "-e", &script]);
        assert!(printed.contains(said), "{script}: {printed}");
    }
    let left = fs::read_dir(scratch.path("disk")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
    ok(&scratch, &["hdiutil", "detach", "disk"]);
}

#[test]
fn signatures_of_images() {
    let scratch = links();
    scratch.write("src/file", "file");
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    let fails = |line: &str| fails(&scratch, &line.split(' ').collect::<Vec<_>>());
    ok("hdiutil create -srcfolder src -fs HFS+ a");
    assert!(fails("codesign --verify --deep --strict --verbose=2 a.dmg").contains("not signed"));
    let plain = fs::read(scratch.path("a.dmg")).unwrap();
    let mut signed = bandsaw::testing::udif::with_signature(&plain, 12);
    scratch.write("a.dmg", &signed);
    ok("codesign --verify --deep --strict --verbose=2 a.dmg");
    let shown = run(&scratch, &["codesign", "-d", "a.dmg"]);
    assert!(shown.status.success());
    let shown = stderr(&shown);
    for line in [
        "Identifier=org.example.disk",
        "TeamIdentifier=TEAM",
        "Signature=adhoc",
    ] {
        assert!(shown.lines().any(|found| found == line), "{line}: {shown}");
    }
    let printed = scratch.ok(&["verify", "a.dmg"]);
    assert!(
        printed.contains("right    org.example.disk, team TEAM, sha256, ad hoc"),
        "{printed}"
    );
    let report = scratch.json(&["verify", "a.dmg"]);
    assert_eq!(report["signature"]["intact"], true, "{report}");

    // A name in the list of resources, which no other checksum covers.
    let at = plain.len() - 700;
    let name = signed[..at]
        .windows(9)
        .rposition(|part| part == b"Apple_HFS")
        .unwrap();
    signed[name] = b'B';
    scratch.write("b.dmg", &signed);
    assert!(fails("codesign --verify b.dmg").contains("have been modified"));
    let output = scratch.run(&["verify", "b.dmg"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("WRONG"));

    ok("codesign --remove-signature a.dmg");
    assert!(fails("codesign --display a.dmg").contains("not signed"));
    assert_eq!(scratch.ok(&["cat", "a.dmg:/file"]), "file");
    assert_eq!(ok("sw_vers -productVersion"), "14.0\n");
    assert_eq!(ok("sw_vers").lines().count(), 3);
}
