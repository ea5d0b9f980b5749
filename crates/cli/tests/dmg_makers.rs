//! Programs that make or mount disk images on a Mac, unmodified, with the links of `bandsaw shims` in
//! place of macOS's programs: dmgbuild, create-dmg (the shell script), tauri's
//! script, electron-builder (two versions), appdmg, briefcase, pkg-dmg, mozpack, Munki and AutoPkg.
//!
//! Those that no registry has are searched for in the folder `BANDSAW_MAC_PROGRAMS`: checkouts of
//! create-dmg/create-dmg, tauri-apps/tauri, munki/munki and autopkg/autopkg under the names
//! `create-dmg`, `tauri`, `munki` and `autopkg`, mozilla-firefox/firefox as `firefox`, and the script
//! `pkg-dmg/pkg-dmg`. Without that folder, tauri's script is that of the crate
//! which `scripts/install-test-tools --full` has fetched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::skip::{skip, without_program};
use crate::common::{Scratch, peer_python};
use crate::readers::{self, Tree};

/// A folder to be packed, and `bin`, whose programs come before the system's.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("src/App.app/Contents/Info.plist", "list");
    let code: Vec<u8> = (0..100_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    scratch.write("src/App.app/Contents/MacOS/App", code);
    symlink("MacOS/App", scratch.path("src/App.app/Contents/Current")).unwrap();
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

/// Returns the obstacle to such a program here: mounting takes root and FUSE.
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

/// Fails unless all readers find these items in an image, and nothing else. Items: paths in the volume,
/// each with a file or folder of the same contents, a link as `-> TARGET`, or `?` for any contents.
fn is_read_by_all(scratch: &Scratch, test: &str, image: &str, name: &str, items: &[(&str, &str)]) {
    let found = readers::tree_by_all(scratch, test, image, name);
    let mut expected = Tree::new();
    for &(path, source) in items {
        let source_path = scratch.path(source);
        if source == "?" {
            let contents = found.get(path).cloned().unwrap_or_default();
            expected.insert(path.to_owned(), contents);
        } else if source.starts_with("-> ") {
            expected.insert(path.to_owned(), source.to_owned());
        } else if source_path.is_dir() {
            for (inner, contents) in readers::tree_of(&source_path) {
                expected.insert(format!("{path}/{inner}"), contents);
            }
        } else {
            let mut beside = readers::tree_of(source_path.parent().unwrap());
            let contents = beside.remove(source_path.file_name().unwrap().to_str().unwrap());
            expected.insert(path.to_owned(), contents.unwrap());
        }
    }
    assert_eq!(found, expected, "{image}");
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
    scratch.write("site/sitecustomize.py", PYTHON_ON_A_MAC);
    scratch.write("icon.icns", b"icns\0\0\0\x08");
    scratch.write("LICENSE", "be nice");
    let src = scratch.path("src");
    scratch.write(
        "settings.py",
        format!(
            "format = 'ULFO'\nfiles = ['{0}/App.app', '{0}/Read me.txt']\nsymlinks = {{'Applications': '/Applications'}}\n\
             icon_locations = {{'App.app': (140, 120), 'Applications': (500, 120)}}\nwindow_rect = ((100, 100), (640, 280))\n\
             icon = 'icon.icns'\nbackground = 'bg.png'\nicon_size = 96\n\
             license = {{'default-language': 'en_US', 'licenses': {{'en_US': 'LICENSE'}}}}\n",
            src.display()
        ),
    );
    // It calls hdiutil and ditto by their full paths.
    let script = "mount -t overlay overlay -o lowerdir=\"$PWD/bin\":/usr/bin /usr/bin
        \"$1\" -c \"$2\"
        PYTHONPATH=site exec \"$1\" -m dmgbuild -s settings.py Test made.dmg";
    let output = apart(&scratch, script, &[python.to_str().unwrap(), PICTURES]);
    assert!(output.status.success(), "{}", everything(&output));
    assert_eq!(scratch.json(&["info", "made.dmg"])["format"], "ULFO");
    scratch.ok(&["check", "made.dmg"]);
    let info = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", "made.dmg:/"]);
    assert_eq!(info.stdout[8..10], [4, 0], "a custom icon");
    let resources = scratch.ok(&["resources", "list", "made.dmg"]);
    assert!(resources.contains("TEXT"), "{resources}");
    let parts = [
        "App.app Iloc (140, 120)",
        "Applications Iloc (500, 120)",
        "'WindowBounds': '{{100, 100}, {640, 280}}'",
        "'iconSize': 96.0",
        "'backgroundType': 2",
    ];
    is_recorded(&scratch, "dmgbuild", "made.dmg", &parts);
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "icon.icns"),
        (".background.tiff", "?"),
        ("App.app", "src/App.app"),
        ("Applications", "-> /Applications"),
        ("Read me.txt", "src/Read me.txt"),
    ];
    is_read_by_all(&scratch, "dmgbuild", "made.dmg", "Test", &items);
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

/// The folder of what `scripts/install-test-tools` downloads.
pub(crate) fn test_cache() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test-cache");
    let cache = Command::new(script).output().ok()?;
    Some(PathBuf::from(String::from_utf8(cache.stdout).ok()?.trim()))
}

/// The script in the folder of such programs.
fn script_of(program: &str) -> Option<PathBuf> {
    let given = std::env::var_os("BANDSAW_MAC_PROGRAMS").map(PathBuf::from);
    let folder = given.or_else(|| Some(test_cache()?.join("mac-programs")))?;
    let path = folder.join(program);
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
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "icon.icns"),
        (".background/bg.png", "bg.png"),
        ("App.app", "src/App.app"),
        ("Applications", "-> /Applications"),
        ("Read me.txt", "src/Read me.txt"),
    ];
    is_read_by_all(&scratch, program, "made.dmg", "Test", &items);
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
    let parts = [
        "App.app Iloc (120, 150)",
        "Applications Iloc (380, 150)",
        "'WindowBounds': '{{100, 430}, {500, 350}}'",
        "'iconSize': 96.0",
        "'textSize': 14.0",
        "'backgroundType': 2",
        "'arrangeBy': 'none'",
    ];
    is_recorded(&scratch, program, "made.dmg", &parts);
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

/// The folder of a package of npm that `scripts/install-test-tools --full` has installed.
fn npm_package(name: &str) -> Option<PathBuf> {
    let folder = test_cache()?.join("npm/node_modules").join(name);
    folder.join("package.json").is_file().then_some(folder)
}

/// Substitutes for parts of a Mac that a program in JavaScript needs: the name of the system, and two
/// addons in machine code.
const ON_A_MAC: &str = "const { execFileSync } = require('child_process')
const path = require('path'), os = require('os'), Module = require('module')
Object.defineProperty(process, 'platform', { value: 'darwin' })
os.platform = () => 'darwin'
os.release = () => '23.0.0'
const load = Module._load
Module._load = function (request, ...more) {
  if (request.endsWith('/volume.node')) return { getVolumeName: folder => path.basename(folder) }
  if (request !== 'fs-xattr') return load.call(this, request, ...more)
  return { set: async (file, name, value) => { execFileSync('xattr', ['-wx', name, value.toString('hex'), file]) } }
}
";

/// Makes the programs see a Mac: all links before the system's, volumes in a folder of their own.
const LIKE_A_MAC: &str = "mount -t overlay overlay -o lowerdir=\"$PWD/bin\":/usr/bin /usr/bin
    mkdir -p /Volumes
    mount -t tmpfs tmpfs /Volumes
    ";

/// Writes two pictures of one color, of 300 x 200 and 600 x 400 pixels.
const PICTURES: &str = r"import struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
for name, width, height in [('bg.png', 300, 200), ('bg@2x.png', 600, 400)]:
    header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    data = zlib.compress((b'\0' + b'\x40\x80\xc0' * width) * height)
    with open(name, 'wb') as file:
        file.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', data) + chunk(b'IEND', b''))
";

/// Fails unless the Finder's file in an image, one record per line, has these parts.
fn is_recorded(scratch: &Scratch, test: &str, image: &str, parts: &[&str]) {
    let Some(python) = peer_python("ds_store") else {
        return without_program(test, "no Python with ds_store");
    };
    let store = scratch.run(&["cat", &format!("{image}:/.DS_Store")]);
    scratch.write("DS_Store", store.stdout);
    let read = Command::new(python)
        .args(["-c", DS_STORE])
        .arg(scratch.path("DS_Store"))
        .output()
        .unwrap();
    let records = everything(&read);
    for part in parts {
        assert!(records.contains(part), "{part}: {records}");
    }
}

#[test]
#[ignore = "full: npm's packages are 100 MB"]
fn appdmg() {
    let scratch = scratch();
    let Some(package) = npm_package("appdmg") else {
        return without_program("appdmg", "not installed by npm");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("appdmg", &why);
    }
    scratch.write("mac.js", ON_A_MAC);
    scratch.write("icon.icns", b"icns\0\0\0\x08");
    scratch.write(
        "appdmg.json",
        r#"{"title": "Test", "icon": "icon.icns", "background": "bg.png", "icon-size": 96,
            "window": {"position": {"x": 100, "y": 120}}, "contents": [
            {"x": 60, "y": 100, "type": "file", "path": "src/App.app"},
            {"x": 240, "y": 100, "type": "link", "path": "/Applications"}]}"#,
    );
    let script = format!(
        "{LIKE_A_MAC}python3 -c \"$1\"
        exec node --require ./mac.js \"$2\" appdmg.json made.dmg"
    );
    let program = package.join("bin/appdmg.js");
    let output = apart(&scratch, &script, &[PICTURES, program.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    scratch.ok(&["check", "made.dmg"]);
    scratch.ok(&["verify", "made.dmg"]);
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "icon.icns"),
        (".background/bg.tiff", "?"),
        ("App.app", "src/App.app"),
        ("Applications", "-> /Applications"),
    ];
    is_read_by_all(&scratch, "appdmg", "made.dmg", "Test", &items);
    let info = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", "made.dmg:/"]);
    assert_eq!(info.stdout[8..10], [4, 0], "a custom icon");
    // Both pictures are in one file.
    let picture = scratch.run(&["cat", "made.dmg:/.background/bg.tiff"]);
    assert_eq!(picture.stdout[..4], *b"II*\0");
    assert!(picture.stdout.len() > 3 * (300 * 200 + 600 * 400));
    let parts = [
        "App.app Iloc (60, 100)",
        "Applications Iloc (240, 100)",
        "'iconSize': 96.0",
        // With the height of its title.
        "{300, 222}",
    ];
    is_recorded(&scratch, "appdmg", "made.dmg", &parts);
}

/// The same for a program in Python: the version of the system, and the alias of a file, for which
/// mac_alias calls libraries of macOS.
const PYTHON_ON_A_MAC: &str = "import datetime, os, platform
import mac_alias
from mac_alias.alias import TargetInfo, VolumeInfo
platform.mac_ver = lambda *args, **more: ('14.0', ('', '', ''), 'arm64')
def for_file(path):
    folder, name = os.path.split(path)
    date = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    volume = VolumeInfo(os.path.basename(folder), date, b'H+', 5, 0, bytes(2))
    numbers = [os.stat(place).st_ino for place in (folder, path)]
    return mac_alias.Alias(volume=volume, target=TargetInfo(0, name, *numbers, date, bytes(4), bytes(4)))
mac_alias.Alias.for_file = staticmethod(for_file)
";

/// Writes the project of an application that is packaged already, and the pictures' folder.
fn write_electron_app(scratch: &Scratch) {
    scratch.write("mac.js", ON_A_MAC);
    scratch.write("src/build/background.png", "");
    scratch.write("src/build/icon.icns", b"icns\0\0\0\x08");
    scratch.write(
        "src/package.json",
        r#"{"name": "app", "version": "1.2.3", "description": "An app", "author": "Nobody"}"#,
    );
}

#[test]
#[ignore = "full: npm's packages are 100 MB"]
fn electron_builder() {
    let scratch = scratch();
    let Some(package) = npm_package("electron-builder") else {
        return without_program("electron_builder", "not installed by npm");
    };
    let Some(python) = peer_python("dmgbuild") else {
        return without_program("electron_builder", "no Python with dmgbuild");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("electron_builder", &why);
    }
    write_electron_app(&scratch);
    scratch.write("src/build/license_en.txt", "be nice");
    scratch.write("site/sitecustomize.py", PYTHON_ON_A_MAC);
    // The program downloads dmgbuild with a Python for macOS; a script stands in for that.
    scratch.write(
        "dmgbuild",
        format!(
            "#!/bin/sh\nPYTHONPATH={} exec {} -m dmgbuild \"$@\"\n",
            scratch.path("site").display(),
            python.display()
        ),
    );
    let script = format!(
        "{LIKE_A_MAC}python3 -c \"$1\"
        mv bg.png src/build/background.png
        mv bg@2x.png src/build/background@2x.png
        chmod +x dmgbuild
        export CUSTOM_DMGBUILD_PATH=\"$PWD/dmgbuild\"
        mac=\"$PWD/mac.js\"
        cd src
        exec node --require \"$mac\" \"$2\" --mac dmg --x64 --prepackaged App.app --publish never \
            -c.electronVersion=30.0.0 -c.mac.identity=null -c.dmg.writeUpdateInfo=false"
    );
    let program = package.join("cli.js");
    let output = apart(&scratch, &script, &[PICTURES, program.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    let image = "src/dist/app-1.2.3.dmg";
    assert!(scratch.path(image).is_file(), "{}", everything(&output));
    scratch.ok(&["check", image]);
    scratch.ok(&["verify", image]);
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "src/build/icon.icns"),
        (".background.tiff", "?"),
        ("Applications", "-> /Applications"),
        ("app.app", "src/App.app"),
    ];
    is_read_by_all(&scratch, "electron_builder", image, "app 1.2.3", &items);
    let resources = scratch.ok(&["resources", "list", image]);
    assert!(resources.contains("LPic"), "{resources}");
    let parts = [
        "app.app Iloc (130, 220)",
        "Applications Iloc (410, 220)",
        "{300, 200}",
    ];
    is_recorded(&scratch, "electron_builder", image, &parts);
}

/// A bookmark of a file, for which the mac_alias in electron-builder 24 calls libraries of macOS, too.
const BOOKMARK: &str = "mac_alias.Bookmark.for_file = staticmethod(
    lambda path: mac_alias.Bookmark([(1, {mac_alias.kBookmarkPath: path})]))
";

#[test]
#[ignore = "full: npm's packages are 100 MB"]
fn electron_builder_24() {
    let scratch = scratch();
    let Some(package) = npm_package("electron-builder-24") else {
        return without_program("electron_builder_24", "not installed by npm");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("electron_builder_24", &why);
    }
    write_electron_app(&scratch);
    // Its module for licenses is for macOS alone.
    let without_license = ON_A_MAC.replace(
        "  if (request !==",
        "  if (request === 'dmg-license') return {}\n  if (request !==",
    );
    scratch.write("mac.js", without_license);
    scratch.write(
        "site/sitecustomize.py",
        format!("{PYTHON_ON_A_MAC}{BOOKMARK}"),
    );
    // Its helper in machine code is taken for Linux; its Python modules are those of its own.
    let script = format!(
        "helper=$(cd \"$2\" && node --print \"path.dirname(require.resolve('app-builder-bin'))\")
        vendor=$(cd \"$2\" && node --print \"path.dirname(require.resolve('dmg-builder/package.json'))\")/vendor
        cp \"$helper/linux/x64/app-builder\" bin
        chmod +x bin/app-builder
        {LIKE_A_MAC}python3 -c \"$1\"
        mv bg.png src/build/background.png
        mv bg@2x.png src/build/background@2x.png
        export USE_SYSTEM_APP_BUILDER=true PYTHONPATH=\"$PWD/site:$vendor\" LC_ALL=C.UTF-8
        mac=\"$PWD/mac.js\"
        cd src
        exec node --require \"$mac\" \"$2/cli.js\" --mac dmg --x64 --prepackaged App.app --publish never \
            -c.electronVersion=30.0.0 -c.mac.identity=null -c.dmg.writeUpdateInfo=false"
    );
    let output = apart(&scratch, &script, &[PICTURES, package.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    let image = "src/dist/app-1.2.3.dmg";
    scratch.ok(&["check", image]);
    scratch.ok(&["verify", image]);
    assert_eq!(scratch.json(&["info", image])["format"], "UDZO");
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "src/build/icon.icns"),
        (".background/1.tiff", "?"),
        ("App.app", "src/App.app"),
        ("Applications", "-> /Applications"),
    ];
    is_read_by_all(&scratch, "electron_builder_24", image, "app 1.2.3", &items);
    let parts = [
        "app.app Iloc (130, 220)",
        "Applications Iloc (410, 220)",
        "'iconSize': 80.0",
        "'backgroundType': 2",
        "{300, 200}",
    ];
    is_recorded(&scratch, "electron_builder_24", image, &parts);
}

/// A program that stands in for one of Apple's tools for developers: it succeeds, but for the question
/// whether to install those tools.
const DEVELOPER_TOOL: &str = "#!/bin/sh\n[ \"$1\" != --install ]\n";

#[test]
#[ignore = "full: briefcase needs 40 packages of PyPI"]
fn briefcase() {
    let scratch = scratch();
    let Some(python) = peer_python("briefcase") else {
        return without_program("briefcase", "no Python with that module");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("briefcase", &why);
    }
    scratch.write(
        "site/sitecustomize.py",
        format!("{PYTHON_ON_A_MAC}platform.system = lambda: 'Darwin'\n"),
    );
    // Signing takes a Mac or rcodesign.
    fs::remove_file(scratch.path("bin/codesign")).unwrap();
    for tool in ["clang", "codesign", "xcode-select"] {
        scratch.write(&format!("tools/{tool}"), DEVELOPER_TOOL);
    }
    scratch.write(
        "app/pyproject.toml",
        "[tool.briefcase]\nproject_name = 'Test'\nbundle = 'com.example'\nversion = '1.2.3'\nauthor = 'Nobody'\n\
         license = 'MIT'\nlicense-files = ['LICENSE']\n\
         [tool.briefcase.app.app]\nformal_name = 'Test'\ndescription = 'A test'\nsources = ['src/app']\n\
         icon = 'icon'\ninstaller_background = 'bg'\n",
    );
    scratch.write("app/LICENSE", "be nice");
    scratch.write("app/src/app/__init__.py", "");
    scratch.write("app/icon.icns", b"icns\0\0\0\x08");
    // As `briefcase build` leaves it.
    let built = "app/build/app/macos/app";
    scratch.write(
        &format!("{built}/briefcase.toml"),
        "[briefcase]\ntarget_version = '0.3.20'\n[paths]\napp_path = 'Test.app/Contents/Resources/app'\n\
         info_plist_path = 'Test.app/Contents/Info.plist'\nentitlements_path = 'Entitlements.plist'\n",
    );
    scratch.write(&format!("{built}/Entitlements.plist"), "");
    scratch.write(&format!("{built}/Test.app/Contents/Info.plist"), "list");
    scratch.write(
        &format!("{built}/Test.app/Contents/Resources/app/app.py"),
        "pass",
    );
    let script = format!(
        "chmod +x tools/*
        cp tools/* bin
        {LIKE_A_MAC}cd app
        python3 -c \"$1\"
        PYTHONPATH=\"$OLDPWD/site\" exec \"$2\" -m briefcase package macOS app --adhoc-sign --no-input --packaging-format dmg"
    );
    let output = apart(&scratch, &script, &[PICTURES, python.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    let image = "app/dist/Test-1.2.3.dmg";
    assert!(scratch.path(image).is_file(), "{}", everything(&output));
    scratch.ok(&["check", image]);
    scratch.ok(&["verify", image]);
    let items = [
        (".DS_Store", "?"),
        (".VolumeIcon.icns", "app/icon.icns"),
        (".background.tiff", "?"),
        ("Applications", "-> /Applications"),
        ("Test.app", &format!("{built}/Test.app")),
    ];
    is_read_by_all(&scratch, "briefcase", image, "Test 1.2.3", &items);
    let parts = [
        "Test.app Iloc (75, 75)",
        "Applications Iloc (225, 75)",
        "'iconSize': 64.0",
        "{350, 150}",
    ];
    is_recorded(&scratch, "briefcase", image, &parts);
}

/// Runs modules of Munki, whose display alone is replaced.
const MUNKI: &str = "import os, sys, types
sys.path.insert(0, sys.argv[1])
package = types.ModuleType('munkilib')
package.__path__ = [sys.argv[1] + '/munkilib']
def fail(*words):
    raise SystemExit(str(words))
display = types.ModuleType('munkilib.display')
display.display_error = display.display_warning = fail
display.display_detail = print
package.display = display
sys.modules.update({'munkilib': package, 'munkilib.display': display})
from munkilib import dmgutils
image = os.path.abspath(sys.argv[2])
assert not dmgutils.DMGisWritable(image)
assert dmgutils.dmg_has_sla(image)
[folder] = dmgutils.mountdmg(image)
assert open(folder + '/App.app/Contents/Info.plist').read() == 'list'
assert dmgutils.diskImageIsMounted(image)
assert dmgutils.pathIsVolumeMountPoint(folder)
assert dmgutils.diskImageForMountPoint(folder) == image
assert dmgutils.mountdmg(image, use_existing_mounts=True) == [folder]
dmgutils.unmountdmg(folder)
assert not dmgutils.diskImageIsMounted(image)
";

#[test]
fn munki() {
    let scratch = scratch();
    let Some(module) = script_of("munki/code/client/munkilib/dmgutils.py") else {
        return skip("munki", "not in BANDSAW_MAC_PROGRAMS");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("munki", &why);
    }
    scratch.write("LICENSE", "be nice");
    scratch.ok(&["create", "a.dmg", "--from", "src", "--format", "udzo"]);
    scratch.ok(&["resources", "add", "a.dmg", "--license", "LICENSE"]);
    let script = format!("{LIKE_A_MAC}exec python3 -c \"$1\" \"$2\" a.dmg");
    let root = module.parent().unwrap().parent().unwrap();
    let output = apart(&scratch, &script, &[MUNKI, root.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
}

/// Runs two processors of AutoPkg, whose base class alone is replaced.
const AUTOPKG: &str = "import sys, types
sys.path.insert(0, sys.argv[1])
class Processor:
    def __init__(self, data=None, infile=None, outfile=None):
        self.env = data or {}
    def output(self, *words):
        assert 'error' not in str(words), words
package = types.ModuleType('autopkglib')
package.Processor, package.ProcessorError = Processor, RuntimeError
package.log = package.log_err = print
sys.modules['autopkglib'] = package
from DmgCreator import DmgCreator
from DmgMounter import DmgMounter
for system in ['HFS+', 'Case-sensitive Journaled HFS+', 'APFS', 'Case-sensitive APFS']:
    DmgCreator({'dmg_root': 'src', 'dmg_path': 'made.dmg', 'dmg_filesystem': system}).main()
    mounter = DmgMounter()
    folder = mounter.mount('made.dmg')
    assert open(folder + '/App.app/Contents/Info.plist').read() == 'list'
    mounter.unmount('made.dmg')
    assert mounter.mounts == {}
";

#[test]
fn autopkg() {
    let scratch = scratch();
    let Some(module) = script_of("autopkg/Code/autopkglib/DmgMounter.py") else {
        return skip("autopkg", "not in BANDSAW_MAC_PROGRAMS");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("autopkg", &why);
    }
    let script = format!("{LIKE_A_MAC}exec python3 -c \"$1\" \"$2\"");
    let folder = module.parent().unwrap();
    let output = apart(&scratch, &script, &[AUTOPKG, folder.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    scratch.ok(&["check", "made.dmg"]);
    let items = [
        ("App.app", "src/App.app"),
        ("Read me.txt", "src/Read me.txt"),
    ];
    is_read_by_all(&scratch, "autopkg", "made.dmg", "src", &items);
}

#[test]
fn pkg_dmg() {
    let scratch = scratch();
    let Some(program) = script_of("pkg-dmg/pkg-dmg") else {
        return skip("pkg_dmg", "not in BANDSAW_MAC_PROGRAMS");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("pkg_dmg", &why);
    }
    scratch.write("icon.icns", b"icns\0\0\0\x08");
    scratch.write("bg.png", "picture");
    scratch.write("DS_Store", "places");
    scratch.write("LICENSE", "be nice\n");
    let script = format!(
        "{LIKE_A_MAC}exec perl \"$1\" --source src/App.app --sourcefile --target made.dmg --volname Test \
            --icon icon.icns --license LICENSE --mkdir /.background --copy bg.png:/.background/bg.png \
            --copy DS_Store:/.DS_Store --symlink /Applications:/Applications \
            --config cmd_SetFile=SetFile --config cmd_Rez=Rez"
    );
    let output = apart(&scratch, &script, &[program.to_str().unwrap()]);
    assert!(output.status.success(), "{}", everything(&output));
    scratch.ok(&["check", "made.dmg"]);
    scratch.ok(&["verify", "made.dmg"]);
    let info = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", "made.dmg:/"]);
    assert_eq!(info.stdout[8..10], [4, 0], "a custom icon");
    let resources = scratch.ok(&["resources", "list", "made.dmg"]);
    assert!(resources.contains("LPic"), "{resources}");
    let items = [
        (".DS_Store", "DS_Store"),
        (".VolumeIcon.icns", "icon.icns"),
        (".background/bg.png", "bg.png"),
        ("App.app", "src/App.app"),
        ("Applications", "-> /Applications"),
    ];
    is_read_by_all(&scratch, "pkg_dmg", "made.dmg", "Test", &items);
}

/// Runs mozpack's module, for which two small modules of Mozilla are replaced.
const MOZPACK: &str = "import pathlib, platform, sys, tempfile, types
platform.system = lambda: 'Darwin'
sys.path.insert(0, sys.argv[1])
for name, parts in [('mozfile', {'TemporaryDirectory': tempfile.TemporaryDirectory}), ('mozbuild', {}),
                    ('mozbuild.dirutils', {'ensureParentDir': None})]:
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(parts)
import dmg
extra = [(pathlib.Path(name), target) for name, target in
         [('icon.icns', '.VolumeIcon.icns'), ('bg.png', '.background/background.png'), ('DS_Store', '.DS_Store')]]
for compression in [None, 'lzma']:
    target = pathlib.Path(f'{compression}.dmg')
    dmg.create_dmg(pathlib.Path('src'), target, 'Test', extra, None, None, None, compression=compression)
";

#[test]
fn mozpack() {
    let scratch = scratch();
    let Some(module) = script_of("firefox/python/mozbuild/mozpack/dmg.py") else {
        return skip("mozpack", "not in BANDSAW_MAC_PROGRAMS");
    };
    if let Some(why) = hindrance(&scratch) {
        return skip("mozpack", &why);
    }
    scratch.write("icon.icns", b"icns\0\0\0\x08");
    scratch.write("bg.png", "picture");
    scratch.write("DS_Store", "places");
    let script = format!("{LIKE_A_MAC}exec python3 -c \"$1\" \"$2\"");
    let folder = module.parent().unwrap().to_str().unwrap();
    let output = apart(&scratch, &script, &[MOZPACK, folder]);
    assert!(output.status.success(), "{}", everything(&output));
    for (image, format) in [("None.dmg", "UDBZ"), ("lzma.dmg", "ULMO")] {
        assert_eq!(scratch.json(&["info", image])["format"], format);
        scratch.ok(&["check", image]);
        let root = format!("{image}:/");
        let info = scratch.run(&["cat", "--xattr", "com.apple.FinderInfo", &root]);
        assert_eq!(info.stdout[8..10], [4, 0], "a custom icon");
        let items = [
            (" ", "-> /Applications"),
            (".DS_Store", "DS_Store"),
            (".VolumeIcon.icns", "icon.icns"),
            (".background/background.png", "bg.png"),
            ("App.app", "src/App.app"),
            ("Read me.txt", "src/Read me.txt"),
        ];
        is_read_by_all(&scratch, "mozpack", image, "Test", &items);
    }
}
