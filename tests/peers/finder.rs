//! Images with a Finder layout: the Python packages `ds_store` and `mac_alias`, which dmgbuild
//! uses, read our `.DS_Store`, `7zz` unpacks the files, and libfshfs and the Sleuth Kit read the
//! volume.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bandsaw::container::Format;
use bandsaw::container::udif::license;
use bandsaw::fs::{FileSystemExt, Timestamp};
use bandsaw::open::{OpenOptions, open};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::finder::{Background, Window, WindowSettings};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;
use bandsaw::progress::Silent;
use serde_json::Value;

use crate::programs::{Program, SEVEN_ZIP, peer_python, run, run_text};
use crate::suite::Suite;

const DS_STORE: Program = Program::PeerModule("ds_store");
const MAC_ALIAS: Program = Program::PeerModule("mac_alias");
const FSHFSINFO: Program = Program::Command(&["fshfsinfo"]);
const NAME: &str = "Café 2";

/// Script that prints every record, with property lists and alias decoded.
const READ: &str = r"
import json, sys
from ds_store import DSStore
from mac_alias import Alias
records = {}
with DSStore.open(sys.argv[1], 'r') as store:
    for entry in store:
        value = entry.value
        if isinstance(value, dict):
            value = {k: v if not isinstance(v, bytes) else None for k, v in value.items()} | (
                {'alias': Alias.from_bytes(value['backgroundImageAlias'])} if 'backgroundImageAlias' in value else {})
            if 'alias' in value:
                a = value['alias']
                fields = [a.volume.name, a.volume.posix_path, a.target.posix_path, a.target.filename,
                          a.target.cnid, a.target.folder_cnid, a.target.folder_name, a.target.carbon_path]
                value['alias'] = [field.decode() if isinstance(field, bytes) else field for field in fields]
        elif isinstance(value, bytes):
            value = value.decode('latin1')
        records.setdefault(entry.filename, {})[entry.code.decode()] = value
    # Found through the tree as well as by walking it.
    for name in records:
        assert next(iter(store.find(name)), None) is not None, name
print(json.dumps(records))
";

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("ds_store", &[DS_STORE, MAC_ALIAS, SEVEN_ZIP])
        .test("reads_what_the_finder_is_told", reads_window);
    suite
        .peer("7zz", &[SEVEN_ZIP])
        .test("unpacks_images_for_people", seven_zip_unpacks);
    suite
        .peer("libfshfs", &[FSHFSINFO, SEVEN_ZIP])
        .test("knows_images_for_people", fshfsinfo_knows);
}

/// Creates an image of two folders, a file and a link, with all Finder options.
fn make(scratch: &Path, format: Format, places: u32) -> PathBuf {
    let (one, two, image) = (
        scratch.join("one"),
        scratch.join("two"),
        scratch.join("made.dmg"),
    );
    for (path, contents) in [
        ("one/App.app/Contents/Info.plist", "list"),
        ("two/Read me.txt", "read"),
        ("loose.pdf", "pdf"),
    ] {
        fs::create_dir_all(scratch.join(path).parent().expect("a folder")).expect("a folder");
        fs::write(scratch.join(path), contents).expect("a file");
    }
    for number in 0..places {
        fs::write(one.join(format!("File {number}")), number.to_string()).expect("a file");
    }
    fs::write(scratch.join("picture.png"), b"\x89PNG\r\n").expect("a picture");
    fs::write(scratch.join("disk.icns"), b"icns\0\0\0\x08").expect("an icon");
    let mut look = WindowSettings {
        icon: Some(scratch.join("disk.icns")),
        background: Background::Picture(scratch.join("picture.png")),
        window: Window {
            x: 10,
            y: 20,
            width: 500,
            height: 400,
        },
        ..WindowSettings::default()
    };
    look.icons.size = 96.0;
    look.places.insert("App.app".to_owned(), (140, 120));
    look.places
        .extend((0..places).map(|number| (format!("File {number}"), (number, 7))));
    let items = vec![
        Item::Contents(one),
        Item::At {
            from: two,
            to: "Documents".to_owned(),
        },
        Item::At {
            from: scratch.join("loose.pdf"),
            to: "Documents/More/Manual.pdf".to_owned(),
        },
        Item::Link {
            at: "Applications".to_owned(),
            target: "/Applications".to_owned(),
        },
    ];
    let volume = NewVolume {
        layout: Layout::Gptspud,
        name: NAME.to_owned(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: Source::Items(items),
    };
    let options = CreateOptions {
        format,
        volume: Some(volume),
        look: Some(look),
        epoch: Some(Timestamp::from_seconds(1_700_000_000)),
        resources: if format.is_udif() {
            license(b"be nice\n").expect("a license")
        } else {
            Vec::new()
        },
        ..CreateOptions::default()
    };
    create(&image, options, &Silent).expect("making the image");
    image
}

/// Unpacks the volume's files to a folder of the host.
fn unpack(image: &Path, into: &Path) -> PathBuf {
    let mut out = OsString::from("-o");
    out.push(into);
    run(SEVEN_ZIP
        .command()
        .args(["x", "-y", "-snld"])
        .arg(out)
        .arg(image));
    into.join(crate::tree::decomposed(NAME))
}

fn reads_window() {
    for places in [0, 5, 700] {
        let scratch = crate::scratch();
        let image = make(scratch.path(), Format::Udzo, places);
        let store = unpack(&image, &scratch.path().join("out")).join(".DS_Store");
        let report = run_text(Command::new(peer_python()).args(["-c", READ]).arg(store));
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(
            report.as_object().expect("records").len() as u32,
            places + 2,
            "{report}"
        );
        let own = &report["."];
        assert_eq!(own["bwsp"]["WindowBounds"], "{{10, 20}, {500, 400}}");
        assert_eq!(
            (&own["icvp"]["iconSize"], &own["icvp"]["backgroundType"]),
            (&Value::from(96.0), &Value::from(2))
        );
        assert_eq!(
            (&own["vSrn"], &own["icvl"], &own["vstl"]),
            (&Value::from(1), &"icnv".into(), &"icnv".into())
        );
        assert_eq!(report["App.app"]["Iloc"], serde_json::json!([140, 120]));
        if places > 0 {
            assert_eq!(
                report[format!("File {}", places - 1)]["Iloc"],
                serde_json::json!([places - 1, 7])
            );
        }
        // The alias refers to the picture by its number and by its path.
        let opened = open(&image, &OpenOptions::default()).expect("our image");
        let volume = opened.file_system(None).expect("our volume");
        let number = |path: &str| volume.resolve(path).expect("our file").id.0;
        let expected = serde_json::json!([
            NAME,
            format!("/Volumes/{NAME}"),
            "/.background/background.png",
            "background.png",
            number("/.background/background.png"),
            number("/.background"),
            ".background",
            "Caf? 2:.background:background.png",
        ]);
        assert_eq!(own["icvp"]["alias"], expected);
    }
}

fn seven_zip_unpacks() {
    for format in [Format::Udzo, Format::Ulfo, Format::Ulmo, Format::Udbz] {
        let scratch = crate::scratch();
        let image = make(scratch.path(), format, 2);
        let root = unpack(&image, &scratch.path().join("out"));
        let read = |path: &str| {
            fs::read(root.join(path)).unwrap_or_else(|error| panic!("{format}: {path}: {error}"))
        };
        for (path, contents) in [
            ("App.app/Contents/Info.plist", &b"list"[..]),
            ("File 1", b"1"),
            ("Documents/Read me.txt", b"read"),
            ("Documents/More/Manual.pdf", b"pdf"),
            (".VolumeIcon.icns", b"icns\0\0\0\x08"),
            (".background/background.png", b"\x89PNG\r\n"),
        ] {
            assert_eq!(read(path), contents, "{format}: {path}");
        }
        assert!(
            fs::read_link(root.join("Applications"))
                .expect("a link")
                .ends_with("Applications")
        );
        let opened = open(&image, &OpenOptions::default()).expect("our image");
        let kinds: Vec<_> = opened
            .udif()
            .expect("UDIF")
            .resources()
            .iter()
            .map(|resource| resource.kind.as_str())
            .collect();
        assert!(
            kinds.contains(&"LPic") && kinds.contains(&"TEXT"),
            "{kinds:?}"
        );
    }
}

fn fshfsinfo_knows() {
    let scratch = crate::scratch();
    let image = make(scratch.path(), Format::Udrw, 2);
    let opened = open(&image, &OpenOptions::default()).expect("our image");
    let map = opened.partitions().expect("a map");
    let volume = map.partitions.first().expect("a partition");
    let report = run_text(
        FSHFSINFO
            .command()
            .arg("-o")
            .arg(volume.range.start.to_string())
            .args(["-F", "/.background/background.png"])
            .arg(&image),
    );
    assert!(
        report.contains("background.png") && report.contains("Size"),
        "{report}"
    );
    let report = run_text(
        FSHFSINFO
            .command()
            .arg("-o")
            .arg(volume.range.start.to_string())
            .arg(&image),
    );
    assert!(
        report.contains(NAME) || report.contains(&crate::tree::decomposed(NAME)),
        "{report}"
    );
}
