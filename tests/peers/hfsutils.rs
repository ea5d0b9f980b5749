//! hfsutils, which writes HFS volumes.

use std::fs::{self, File};
use std::path::Path;

use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{FileSystemExt, Fork};
use bandsaw::open::{self, OpenOptions, VolumeFormat};

use crate::noise::noise;
use crate::programs::{Program, run};
use crate::suite::Suite;

const HFORMAT: Program = Program::Command(&["hformat"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("hfsutils", &[HFORMAT])
        .test("we_read_its_volumes", we_read_its_volumes);
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
