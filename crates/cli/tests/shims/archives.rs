//! `ditto`: archives that are written, read, and hostile.

use std::time::{Duration, SystemTime};

use super::*;

/// Prints the members of an archive: mode, date, length and name.
const ZIPFILE: &str = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    assert archive.testzip() is None
    for member in archive.infolist():
        print(oct(member.external_attr >> 16), member.date_time, member.file_size, member.filename)
";

#[test]
fn archives_are_written_and_read() {
    let scratch = links();
    scratch.write("App.app/Contents/Info.plist", "list".repeat(1000));
    let script = scratch.write("App.app/Contents/MacOS/App", "#!/bin/sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("MacOS/App", scratch.path("App.app/Contents/run")).unwrap();
    fs::create_dir(scratch.path("App.app/empty")).unwrap();
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001);
    fs::File::open(&script).unwrap().set_modified(date).unwrap();
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    // No attributes are archived on hosts whose files have none.
    let has_attributes = run(
        &scratch,
        &["xattr", "-w", "org.example.a", "1", "App.app/empty"],
    );
    let has_attributes = has_attributes.status.success();
    if has_attributes {
        ok("SetFile -t TEXT App.app/Contents/Info.plist");
    }
    ok("ditto -c -k --sequesterRsrc --keepParent App.app one.zip");
    ok("ditto -ck App.app two.zip");
    for (archive, root, double) in [
        (
            "one.zip",
            "out/App.app",
            "__MACOSX/App.app/Contents/._Info.plist",
        ),
        ("two.zip", "out", "Contents/._Info.plist"),
    ] {
        // Other programs.
        for program in [
            &["unzip", "-tq"][..],
            &["7zz", "t"],
            &["python3", "-c", ZIPFILE],
        ] {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(scratch.path(archive));
            let Ok(output) = command.output() else {
                without_program("archives_are_written_and_read", program[0]);
                continue;
            };
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success(),
                "{program:?}: {printed}{}",
                stderr(&output)
            );
            if program[0] == "python3" {
                let lines: Vec<_> = printed.lines().collect();
                let has = |parts: [&str; 2]| {
                    let is_it = |line: &&&str| parts.iter().all(|part| line.contains(part));
                    assert!(
                        lines.iter().any(|line| is_it(&line)),
                        "{parts:?}: {printed}"
                    );
                };
                has([
                    "0o100755 (2023, 11, 14, 22, 13, 20) 9",
                    "Contents/MacOS/App",
                ]);
                has(["0o120777", "Contents/run"]);
                has(["0o40755", "empty/"]);
                assert_eq!(printed.contains(double), has_attributes, "{printed}");
            }
        }
        ok(&format!("ditto -x -k {archive} out"));
        let root = scratch.path(root);
        let script = fs::metadata(root.join("Contents/MacOS/App")).unwrap();
        assert_eq!(
            (script.mode() & 0o777, script.mtime()),
            (0o755, 1_700_000_001)
        );
        let link = fs::read_link(root.join("Contents/run")).unwrap();
        assert_eq!(link.to_str(), Some("MacOS/App"));
        let list = root.join("Contents/Info.plist");
        assert_eq!(fs::read_to_string(&list).unwrap(), "list".repeat(1000));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2, "{archive}");
        if has_attributes {
            let kind = ok(&format!("GetFileInfo -t {}", list.display()));
            assert_eq!(kind, "\"TEXT\"\n");
            let empty = root.join("empty");
            assert_eq!(
                ok(&format!("xattr -p org.example.a {}", empty.display())),
                "1\n"
            );
        }
        // Existing files are replaced.
        ok(&format!("ditto -x -k {archive} out"));
        fs::remove_dir_all(scratch.path("out")).unwrap();
    }
    // unzip makes the same of it.
    let mut unzip = Command::new("unzip");
    unzip.args(["-q", "two.zip", "-d", "unzipped"]);
    if let Ok(output) = unzip.current_dir(scratch.path("")).output() {
        assert!(output.status.success(), "{}", stderr(&output));
        let link = fs::read_link(scratch.path("unzipped/Contents/run")).unwrap();
        assert_eq!(link.to_str(), Some("MacOS/App"));
    }
}

/// Writes an archive with members that leave the folder.
const HOSTILE: &str = "import sys, zipfile
def link(name, target):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member, target
with zipfile.ZipFile('up.zip', 'w') as archive:
    archive.writestr('good', 'good')
    archive.writestr('../bad', 'bad')
with zipfile.ZipFile('link.zip', 'w') as archive:
    archive.writestr(*link('way', '..'))
    archive.writestr('way/bad', 'bad')
with zipfile.ZipFile('fake.zip', 'w') as archive:
    archive.writestr('x', 'x')
    archive.writestr('._x', 'no AppleDouble')
";

#[test]
fn nothing_is_extracted_outside_of_the_folder() {
    let scratch = links();
    let made = Command::new("python3")
        .args(["-c", HOSTILE])
        .current_dir(scratch.path(""))
        .output();
    let Ok(made) = made else {
        return without_program("nothing_is_extracted_outside_of_the_folder", "no python3");
    };
    assert!(made.status.success(), "{}", stderr(&made));
    let fails = |line: &str| fails(&scratch, &line.split(' ').collect::<Vec<_>>());
    let printed = fails("ditto -x -k up.zip out");
    assert!(printed.contains("outside"), "{printed}");
    assert!(
        !scratch.path("out").exists(),
        "all names are looked at first"
    );
    // The folder is made for the member; the link cannot replace it.
    let printed = fails("ditto -x -k link.zip out");
    assert!(printed.contains("is a folder"), "{printed}");
    fs::remove_dir_all(scratch.path("out")).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    symlink("..", scratch.path("out/way")).unwrap();
    let printed = fails("ditto -x -k link.zip out");
    assert!(printed.contains("expected a folder"), "{printed}");
    assert!(!scratch.path("bad").exists());
    ok(&scratch, &["ditto", "-x", "-k", "fake.zip", "out"]);
    assert_eq!(
        fs::read(scratch.path("out/._x")).unwrap(),
        b"no AppleDouble"
    );
}
