//! hfsutils, which writes HFS volumes, and changes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::hfs::{self, HfsVolume};
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use bandsaw::open::{self, OpenOptions, VolumeFormat};
use bandsaw::progress::Silent;
use bandsaw::store::Open;
use bandsaw::testing::Random;

use crate::disk;
use crate::noise::noise;
use crate::programs::{Program, run};
use crate::suite::Suite;

const HFORMAT: Program = Program::Command(&["hformat"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("hfsutils", &[HFORMAT])
        .test("we_read_its_volumes", we_read_its_volumes)
        .test("volumes_it_changed_are_sound", volumes_it_changed_are_sound)
        .test("a_large_catalog_is_sound", a_large_catalog_is_sound);
}

/// Runs one of its programs, which keep the current volume in a file of the home folder.
fn hfs(home: &Path, name: &'static str, args: &[&str]) {
    let found = HFORMAT.find().unwrap_or_else(|why| panic!("{why}"));
    let mut command = std::process::Command::new(found.with_file_name(name));
    run(command.env("HOME", home).current_dir(home).args(args));
}

/// Many files, one of which is in the gaps that others have left, so that its extents overflow.
fn we_read_its_volumes() {
    let scratch = crate::scratch();
    let home = scratch.path();
    let image = File::create(home.join("disk.img")).unwrap();
    image.set_len(4 << 20).unwrap();
    hfs(home, "hformat", &["-l", "Other", "disk.img"]);
    hfs(home, "hmount", &["disk.img"]);
    hfs(home, "hmkdir", &[":Folder"]);
    let name = |number: usize| format!("file {number:03}");
    let contents = |number: usize| noise(5000 + 10 * number);
    let paths: Vec<_> = (0..150).map(name).collect();
    for (number, path) in paths.iter().enumerate() {
        fs::write(home.join(path), contents(number)).unwrap();
    }
    let all: Vec<_> = paths.iter().map(String::as_str).collect();
    hfs(home, "hcopy", &[&["-r"][..], &all, &[":Folder:"]].concat());
    for path in all.iter().step_by(2) {
        hfs(home, "hdel", &[&format!(":Folder:{path}")]);
    }
    let large = noise(3_580_000);
    fs::write(home.join("large"), &large).unwrap();
    hfs(home, "hcopy", &["-r", "large", ":Folder:"]);
    hfs(
        home,
        "hattrib",
        &["-t", "TEXT", "-c", "ttxt", ":Folder:large"],
    );
    hfs(home, "humount", &[]);

    assert_sound(&home.join("disk.img"));
    let image = open::open(&home.join("disk.img"), &OpenOptions::default()).unwrap();
    assert_eq!(image.volumes()[0].format, VolumeFormat::Hfs);
    let volume = image.file_system(None).unwrap();
    let info = volume.volume();
    assert_eq!((&*info.name, info.files, info.folders), ("Other", 76, 1));
    assert!(info.clean);
    let folder = volume.resolve("/Folder").unwrap();
    assert_eq!((folder.size, info.case_sensitive), (76, false));
    let read = |path: &str| {
        let file = volume.resolve(path).unwrap();
        let data = volume.open(file.id, Fork::Data).unwrap();
        data.read_vec(0, file.size as usize).unwrap()
    };
    for number in (1..150).step_by(2) {
        let path = format!("/folder/{}", name(number).to_uppercase());
        assert!(read(&path) == contents(number), "{path}");
    }
    assert!(read("/Folder/large") == large);
    let large = volume.resolve("/Folder/large").unwrap();
    let info = volume.xattr(large.id, "com.apple.FinderInfo").unwrap();
    let info = info.unwrap().read_vec(0, 8).unwrap();
    assert_eq!(info, b"TEXTttxt");
    assert!(volume.resolve("/Folder/file 000").is_err());
}

fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(disk::open(image, Open::Read))
}

fn assert_sound(image: &Path) {
    let found = hfs::check(device(image), &Silent).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

/// Files with their contents, and folders, by their paths from the root.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// Long sequences of random changes, with files in the gaps of others and a catalog that grows: every
/// state is sound and has what was put in.
fn volumes_it_changed_are_sound() {
    const STEPS: usize = 12;
    const CHANGES: usize = 40;
    for seed in 0..3 {
        let scratch = crate::scratch();
        let home = scratch.path();
        let image = home.join("disk.img");
        File::create(&image)
            .unwrap()
            .set_len((2 + seed) << 20)
            .unwrap();
        hfs(home, "hformat", &["-l", "Random", "disk.img"]);
        let mut random = Random::new(seed);
        let mut tree = Tree::new();
        for step in 0..STEPS {
            hfs(home, "hmount", &["disk.img"]);
            for change in 0..CHANGES {
                change_once(home, &mut tree, &mut random, step * CHANGES + change);
            }
            hfs(home, "humount", &[]);
            assert_sound(&image);
            let volume = HfsVolume::open(device(&image)).unwrap();
            let mut found = Tree::new();
            list(&volume, volume.root(), "", &mut found);
            let names: Vec<_> = found.keys().collect();
            assert!(found == tree, "seed {seed}, step {step}: {names:?}");
        }
    }
}

/// Returns the path as hfsutils takes it.
fn mac_path(path: &str) -> String {
    path.replace('/', ":")
}

/// Makes, copies, removes or renames an object.
fn change_once(home: &Path, tree: &mut Tree, random: &mut Random, number: usize) {
    const MAX_STORED: usize = 1 << 20;
    let is_file = |tree: &Tree, path: &String| tree[path].is_some();
    let pick = |random: &mut Random, paths: Vec<String>| {
        let at = random.within(0..paths.len().max(1) as u64) as usize;
        paths.into_iter().nth(at)
    };
    let files = tree.keys().filter(|path| is_file(tree, path)).cloned();
    let files: Vec<_> = files.collect();
    let folders = tree.keys().filter(|path| !is_file(tree, path)).cloned();
    let mut folders: Vec<_> = folders.collect();
    let stored: usize = tree.values().flatten().map(Vec::len).sum();
    let name = |random: &mut Random| {
        let letters = ["a", "B", "c d", "E-", "name of some length "];
        let letter = letters[random.within(0..letters.len() as u64) as usize];
        format!("/{letter}{number}")
    };
    match random.within(0..10) {
        0 => {
            folders.push(String::new());
            let parent = pick(random, folders).unwrap_or_default();
            let path = parent + &name(random);
            // hfsutils takes paths of limited length.
            if path.matches('/').count() < 6 {
                hfs(home, "hmkdir", &[&mac_path(&path)]);
                tree.insert(path, None);
            }
        }
        1..=4 if stored < MAX_STORED => {
            folders.push(String::new());
            let parent = pick(random, folders).unwrap_or_default();
            let path = parent + &name(random);
            let contents = noise(random.within(0..30_000) as usize);
            fs::write(home.join("contents"), &contents).unwrap();
            hfs(home, "hcopy", &["-r", "contents", &mac_path(&path)]);
            tree.insert(path, Some(contents));
        }
        5 => {
            let inside = |path: &str| {
                let start = format!("{path}/");
                tree.keys().any(|other| other.starts_with(&start))
            };
            let empty = folders.iter().filter(|path| !inside(path)).cloned();
            if let Some(path) = pick(random, empty.collect()) {
                hfs(home, "hrmdir", &[&mac_path(&path)]);
                tree.remove(&path);
            }
        }
        6 | 7 => {
            if let Some(from) = pick(random, files) {
                folders.push(String::new());
                let parent = pick(random, folders).unwrap_or_default();
                let to = parent + &name(random);
                hfs(home, "hrename", &[&mac_path(&from), &mac_path(&to)]);
                let contents = tree.remove(&from).flatten();
                tree.insert(to, contents);
            }
        }
        _ => {
            if let Some(path) = pick(random, files) {
                hfs(home, "hdel", &[&mac_path(&path)]);
                tree.remove(&path);
            }
        }
    }
}

/// A catalog whose map of nodes does not fit the header node, in many extents, filled and thinned out.
fn a_large_catalog_is_sound() {
    const COUNT: usize = 9000;
    let scratch = crate::scratch();
    let home = scratch.path();
    let image = home.join("disk.img");
    File::create(&image).unwrap().set_len(30 << 20).unwrap();
    hfs(home, "hformat", &["-l", "Large", "disk.img"]);
    hfs(home, "hmount", &["disk.img"]);
    let names: Vec<_> = (0..COUNT).map(|number| format!("name {number}")).collect();
    for name in &names {
        fs::write(home.join(name), name).unwrap();
    }
    let count = |volume: &HfsVolume| volume.entries(volume.root()).unwrap().len();
    for some in names.chunks(1000) {
        let some = some.iter().map(String::as_str);
        hfs(
            home,
            "hcopy",
            &["-r"]
                .into_iter()
                .chain(some)
                .chain([":"])
                .collect::<Vec<_>>(),
        );
    }
    hfs(home, "humount", &[]);
    assert_sound(&image);
    assert_eq!(count(&HfsVolume::open(device(&image)).unwrap()), COUNT);
    hfs(home, "hmount", &["disk.img"]);
    let two_thirds = (0..COUNT).filter(|number| number % 3 != 0);
    let removed: Vec<_> = two_thirds.map(|number| format!(":name {number}")).collect();
    for some in removed.chunks(1000) {
        hfs(
            home,
            "hdel",
            &some.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    hfs(home, "humount", &[]);
    assert_sound(&image);
    assert_eq!(count(&HfsVolume::open(device(&image)).unwrap()), COUNT / 3);
}

fn list(volume: &HfsVolume, folder: NodeId, above: &str, found: &mut Tree) {
    for entry in volume.entries(folder).unwrap() {
        let path = format!("{above}/{}", entry.name);
        if entry.attributes.kind == FileKind::Folder {
            list(volume, entry.attributes.id, &path, found);
            found.insert(path, None);
            continue;
        }
        let data = volume.open(entry.attributes.id, Fork::Data).unwrap();
        let len = entry.attributes.size as usize;
        found.insert(path, Some(data.read_vec(0, len).unwrap()));
    }
}
