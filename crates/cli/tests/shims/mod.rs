//! Programs of macOS under their own names, as release scripts call them.

mod archives;
#[cfg(target_os = "linux")]
mod compressed;
mod resources;
mod signatures;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Output};
use std::time::Duration;

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
    assert_eq!(printed.lines().count(), 15, "{printed}");
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
    // The existing copy is replaced as a whole.
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
fn unsupported_options_are_refused() {
    let Some(scratch) = mounted("unsupported_options_are_refused", "HFS+") else {
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
        ("ditto -c disk x.cpio", "use -k"),
        ("ditto -x -z x.cpio disk", "use -k"),
        ("ditto -c -k disk -", "name a file"),
        ("ditto -c -k disk disk/x.zip", "inside the folder"),
        ("ditto -c -k --zlibCompressionLevel 10 disk x", "0 to 9"),
        ("ditto -c -k disk disk x.zip", "one source"),
        ("ditto -xk none.zip disk", "none.zip"),
        ("tiffutil -lzw x.tiff", "-lzw is not supported"),
        ("tiffutil x.tiff", "expected -cat"),
        ("sips -z 10 10 disk/file", "-z is not supported"),
        ("sips -g format disk/file", "format is not supported"),
        ("tiffutil -cat disk/file", "neither TIFF nor PNG"),
        ("Rez -o disk/file", "is required"),
        ("Rez -fancy x.r", "-fancy is not supported"),
        ("Rez -F Mine Carbon.r", "-F Mine is not supported"),
        ("Rez Mine.r -o disk/file", "Mine.r"),
        ("DeRez disk/file", "no resources"),
        ("DeRez disk/file types.r", "expected one file"),
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

/// A license as scripts have it.
const LICENSE: &str = "data 'LPic' (5000) { $\"0000 0001 0000 0000 0000\" };
resource 'STR#' (5000, \"English\") { { \"English\", \"Agree\", \"Disagree\", \"Print\", \"Save\", \"Read\" } };
data 'TEXT' (5000, \"English\") { \"be nice\" };
";

/// Runs a script of a release twice, a second apart, and compares every file that it makes.
#[test]
fn the_same_sources_give_the_same_bytes() {
    const TEST: &str = "the_same_sources_give_the_same_bytes";
    let can_mount = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    let has_xorriso = Command::new("xorriso").arg("-version").output().is_ok();
    let scratch = links();
    let mut made: Vec<Vec<(String, Vec<u8>)>> = Vec::new();
    scratch.write("license.r", LICENSE);
    for turn in ["one", "two"] {
        let words = |name: &str| format!("{turn}/{name}");
        fs::create_dir(scratch.path(turn)).unwrap();
        // Newer than the date that is set, in each turn anew.
        scratch.write(
            &words("src/App.app/Contents/Info.plist"),
            "list".repeat(100),
        );
        scratch.write(&words("src/App.app/Contents/MacOS/App"), "#!/bin/sh");
        symlink(
            "MacOS/App",
            scratch.path(&words("src/App.app/Contents/run")),
        )
        .unwrap();
        let run = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let folder = scratch.path(turn);
            let output = Command::new(scratch.path("bin").join(words[0]))
                .args(&words[1..])
                .current_dir(&folder)
                .env("XDG_RUNTIME_DIR", &folder)
                .env("HOME", &folder)
                .env("SOURCE_DATE_EPOCH", "1700000000")
                .output()
                .unwrap();
            assert!(output.status.success(), "{line}: {}", stderr(&output));
        };
        let mut names = Vec::new();
        for (fs, format) in [
            ("HFS+", "UDZO"),
            ("HFS+", "UDBZ"),
            ("APFS", "ULFO"),
            ("APFS", "ULMO"),
        ] {
            let name = format!("{fs}-{format}.dmg");
            run(&format!(
                "hdiutil create -srcfolder src -fs {fs} -format {format} {name}"
            ));
            names.push(name);
        }
        run("hdiutil makehybrid -hfs -hfs-volume-name My -o hybrid.dmg src");
        run("ditto -c -k --sequesterRsrc --keepParent src/App.app App.zip");
        run("hdiutil convert HFS+-UDZO.dmg -format ULFO -o converted");
        run("hdiutil unflatten HFS+-UDZO.dmg");
        run("Rez -a ../license.r -o HFS+-UDZO.dmg");
        names.extend(["hybrid.dmg", "App.zip", "converted.dmg"].map(str::to_owned));
        if has_xorriso {
            run("hdiutil makehybrid -default-volume-name My -o hybrid.iso src");
            names.push("hybrid.iso".to_owned());
        }
        if can_mount {
            // As create-dmg does it.
            for fs in ["HFS+", "APFS"] {
                let (disk, image) = (format!("disk-{fs}"), format!("attached-{fs}"));
                run(&format!(
                    "hdiutil create -size 20m -volname My -fs {fs} {disk}"
                ));
                run(&format!("hdiutil attach -mountpoint mnt {disk}.dmg"));
                // `cp -R` copies the entries of a folder in the order of their inodes, which is not
                // the same in both turns.
                fs::create_dir_all(scratch.path(&words("mnt/App.app/Contents/MacOS"))).unwrap();
                for file in ["Info.plist", "MacOS/App", "run"] {
                    let mut copy = Command::new("cp");
                    copy.arg("-P")
                        .args(["src", "mnt"].map(|from| format!("{from}/App.app/Contents/{file}")));
                    let copied = copy.current_dir(scratch.path(turn)).status();
                    assert!(copied.unwrap().success());
                }
                run("ditto src/App.app mnt/Copy.app");
                run("ditto --hfsCompression src/App.app mnt/Compressed.app");
                // Longer than the time between two syncs of other mounts, in one of the turns.
                if turn == "two" {
                    std::thread::sleep(Duration::from_millis(3500));
                }
                run("SetFile -a C mnt");
                scratch.write(&words("layout"), LAYOUT);
                scratch.write(&words("mnt/Read me.txt"), "read");
                scratch.write(&words("mnt/.background/bg.png"), "picture");
                run("osascript layout My");
                run("hdiutil detach mnt");
                run(&format!(
                    "hdiutil convert {disk}.dmg -format UDZO -o {image}"
                ));
                names.push(format!("{image}.dmg"));
            }
        }
        let read = |name: String| {
            let bytes = fs::read(scratch.path(&words(&name))).unwrap();
            (name, bytes)
        };
        made.push(names.into_iter().map(read).collect());
        std::thread::sleep(Duration::from_millis(1100));
    }
    for ((name, one), (_, two)) in made[0].iter().zip(&made[1]) {
        let first = one.iter().zip(two).position(|(one, two)| one != two);
        assert!(one == two, "{name}: different from byte {first:?} on");
    }
    if !has_xorriso {
        without_program(TEST, "no xorriso");
    }
    if !can_mount {
        skip(TEST, "/dev/fuse cannot be opened here");
    }
}

/// The commands of docs/release-images.md, as far as they are ours, in the folder that they assume.
#[test]
fn recipes_run() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/release-images.md");
    let page = fs::read_to_string(page).unwrap();
    let mut count = 0;
    // Every second part is a block of code; its first line is the language.
    for block in page.split("```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').unwrap();
        if !["sh", "yaml"].contains(&language) {
            continue;
        }
        let scratch = Scratch::new();
        scratch.write("App.app/Contents/Info.plist", "list");
        scratch.write("build/App.app/Contents/Info.plist", "list");
        scratch.write("bg.png", "picture");
        let code = code.replace("\\\n", " ");
        for line in code
            .lines()
            .map(|line| line.trim().trim_start_matches("- "))
        {
            if !line.starts_with("bandsaw ") {
                continue;
            }
            let command = env!("CARGO_BIN_EXE_bandsaw");
            let output = Command::new("sh")
                .args(["-ec", &line.replacen("bandsaw", command, 1)])
                .current_dir(scratch.path(""))
                .env("HOME", scratch.path(""))
                .env("XDG_RUNTIME_DIR", scratch.path(""))
                .env("SOURCE_DATE_EPOCH", "1700000000")
                .output()
                .unwrap();
            assert!(output.status.success(), "{line}: {}", stderr(&output));
            count += 1;
        }
    }
    assert!(count >= 7, "{count} commands");
}
