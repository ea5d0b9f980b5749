//! `dmg`: images to hand out.

use std::fs;

use crate::common::Scratch;

fn source() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("build/App.app/Contents/MacOS/App", "binary");
    scratch.write("build/Read me.txt", "read me");
    scratch.write("disk.icns", b"icns\0\0\0\x08");
    scratch.write("picture.png", "picture");
    scratch.write("LICENSE.txt", "be nice");
    scratch
}

const WISHES: &str = "dmg build --volname Product --icon disk.icns --background picture.png --window 640x400+100+120 \
                      --place App.app=160,200 --place Applications=480,200 --applications --license LICENSE.txt";

#[test]
fn a_folder_becomes_an_image_with_a_window() {
    for (format, fs) in [
        ("udzo", "hfs+"),
        ("ulfo", "hfs+"),
        ("ulmo", "apfs"),
        ("udbz", "hfsx"),
    ] {
        let scratch = source();
        let args = format!("{WISHES} -o App.dmg --format {format} --fs {fs}");
        scratch.ok(&args
            .split(' ')
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>());
        assert_eq!(
            scratch.ok(&["cat", "App.dmg:/App.app/Contents/MacOS/App"]),
            "binary"
        );
        let names = scratch.ok(&["ls", "App.dmg"]);
        for name in [
            ".DS_Store",
            ".VolumeIcon.icns",
            ".background",
            "App.app",
            "Applications",
            "Read me.txt",
        ] {
            assert!(names.lines().any(|line| line == name), "{format}: {names}");
        }
        assert_eq!(
            scratch.json(&["info", "App.dmg"])["volumes"][0]["name"],
            "Product"
        );
        assert!(
            scratch
                .ok(&["resources", "list", "App.dmg"])
                .contains("TEXT")
        );
        scratch.ok(&["check", "App.dmg"]);
        scratch.ok(&["verify", "App.dmg"]);
    }
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    let scratch = source();
    for name in ["a.dmg", "b.dmg"] {
        let args: Vec<_> = WISHES
            .split(' ')
            .filter(|word| !word.is_empty())
            .chain(["-o", name])
            .collect();
        let made = scratch
            .command(&args)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", crate::common::stderr(&made));
        // Read, and so looked at, in between.
        fs::read(scratch.path("build/Read me.txt")).unwrap();
        fs::write(scratch.path("picture.png"), "picture").unwrap();
    }
    assert!(fs::read(scratch.path("a.dmg")).unwrap() == fs::read(scratch.path("b.dmg")).unwrap());
}

#[test]
fn recipes_of_appdmg_and_dmgbuild() {
    let scratch = source();
    scratch.write(
        "recipes/appdmg.json",
        r#"{"title": "From appdmg", "icon": "../disk.icns", "background": "../picture.png", "format": "UDBZ",
            "contents": [{"x": 1, "y": 2, "type": "link", "path": "/Applications"},
                         {"x": 3, "y": 4, "type": "file", "path": "../build/App.app"}]}"#,
    );
    scratch.write(
        "settings.toml",
        "filename = 'built.dmg'\nvolume_name = 'From dmgbuild'\nformat = 'ULFO'\nbackground = '#00ff00'\nfiles = ['build/App.app']\n\
         symlinks = { Applications = '/Applications' }\nhide_extensions = ['App.app']\nicon_locations = { 'App.app' = [1, 2] }\n",
    );
    scratch.ok(&["dmg", "--recipe", "recipes/appdmg.json", "-o", "app.dmg"]);
    scratch.ok(&["dmg", "--recipe", "settings.toml"]);
    for (image, name, format) in [
        ("app.dmg", "From appdmg", "UDBZ"),
        ("built.dmg", "From dmgbuild", "ULFO"),
    ] {
        let facts = scratch.json(&["info", image]);
        assert_eq!(
            (&facts["volumes"][0]["name"], &facts["format"]),
            (&name.into(), &format.into()),
            "{facts}"
        );
        assert_eq!(
            scratch.ok(&["cat", &format!("{image}:/App.app/Contents/MacOS/App")]),
            "binary"
        );
        assert!(scratch.ok(&["ls", "-l", image]).contains("/Applications"));
    }
    // Without the option to replace it, what is there stays.
    let before = fs::read(scratch.path("built.dmg")).unwrap();
    assert!(
        scratch
            .fails(4, &["dmg", "--recipe", "settings.toml"])
            .contains("--overwrite")
    );
    assert!(before == fs::read(scratch.path("built.dmg")).unwrap());
}

#[test]
fn impossible_recipes_are_refused_and_leave_nothing() {
    let scratch = source();
    let before = scratch.names();
    for (args, code, said) in [
        ("dmg build", 2, "--output"),
        ("dmg build -o x.dmg --place Nothing=1,2", 3, "Nothing"),
        ("dmg build -o x.dmg --icon picture.png", 2, "icns"),
        (
            "dmg build -o x.dmg --background missing.png",
            3,
            "missing.png",
        ),
        ("dmg missing -o x.dmg", 3, "missing"),
        (
            "dmg build -o x.dmg --format udrw --license LICENSE.txt",
            2,
            "license",
        ),
        ("dmg --recipe missing.toml -o x.dmg", 3, "missing.toml"),
    ] {
        let report = scratch.fails(code, &args.split(' ').collect::<Vec<_>>());
        assert!(report.contains(said), "{args}: {report}");
        assert_eq!(scratch.names(), before, "{args}");
    }
}
