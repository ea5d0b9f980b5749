//! Other programs that read an image: 7-Zip, dmg2img, libfshfs, libfsapfs, and the drivers of the Linux
//! kernel, in an emulator.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::skip::without_program;
use crate::common::{Scratch, peer_python};

use self::programs::{PYTHON, Program, SEVEN_ZIP, run_text};
use self::qemu::Guest;

#[path = "../../../tests/peers/newc.rs"]
mod newc;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../../tests/peers/programs.rs"]
mod programs;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../../tests/peers/qemu.rs"]
mod qemu;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Files by path, with the SHA-256 of their contents, and symbolic links, as `-> TARGET`.
pub(crate) type Tree = BTreeMap<String, String>;

/// Prints every path below `.`, as the lines of [`parse`].
const LIST: &str = r#"find . -type f ! -path './*Private D*' -exec sha256sum {} +
find . -type l -exec sh -c 'for link; do echo "-> $(readlink "$link")  $link"; done' sh {} +
"#;

/// Prints the same of a volume, HFS+ or APFS, at an offset of a file, by libfshfs or libfsapfs.
const LIBYAL: &str = r#"
import hashlib, stat, sys

class Window:
    def __init__(self, path, start, end):
        self.file, self.start, self.end = open(path, 'rb'), start, end
        self.seek(0)
    def seek(self, offset, whence=0):
        self.file.seek(self.start + offset if whence == 0 else self.end + offset if whence == 2 else offset, 1 if whence == 1 else 0)
    def read(self, size=-1):
        return self.file.read(size)
    def tell(self):
        return self.file.tell() - self.start
    def get_size(self):
        return self.end - self.start

def walk(folder, prefix):
    for entry in folder.sub_file_entries:
        path = prefix + entry.name
        kind = stat.S_IFMT(entry.file_mode)
        if kind == stat.S_IFLNK:
            print(f'-> {entry.symbolic_link_target}  ./{path}')
        elif kind == stat.S_IFREG:
            digest = hashlib.sha256()
            while block := entry.read_buffer(1 << 20):
                digest.update(block)
            print(f'{digest.hexdigest()}  ./{path}')
        elif kind == stat.S_IFDIR and 'Private D' not in path:
            walk(entry, path + '/')

window = Window(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
if sys.argv[1] == 'apfs':
    import pyfsapfs
    container = pyfsapfs.container()
    container.open_file_object(window)
    volume = container.get_volume(0)
else:
    import pyfshfs
    volume = pyfshfs.volume()
    volume.open_file_object(window)
print(volume.name)
walk(volume.get_root_directory(), '')
"#;

fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Tree {
    lines
        .filter_map(|line| line.split_once("  ./"))
        .map(|(what, path)| (path.to_owned(), what.to_owned()))
        .collect()
}

/// Returns the tree in a folder.
pub(crate) fn tree_of(folder: &Path) -> Tree {
    let mut command = Command::new("sh");
    parse(run_text(command.args(["-ec", LIST]).current_dir(folder)).lines())
}

/// Reads the image of a volume `name` by all programs that are present, each of which must find the same
/// files, links and name; returns these.
pub(crate) fn tree_by_all(scratch: &Scratch, test: &str, image: &str, name: &str) -> Tree {
    let facts = scratch.json(&["info", image]);
    let (format, volume) = (&facts["format"], &facts["volumes"][0]);
    assert_eq!(volume["name"], name, "{facts}");
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let out = folder.join("ours");
    scratch.ok(&["extract", &format!("{image}:/"), out.to_str().unwrap()]);
    let ours = tree_of(&out);
    let is_ours = |reader: &str, theirs: &Tree| assert_eq!(*theirs, ours, "{reader}");
    let path = scratch.path(image);
    let disk = folder.join("disk");
    let to = disk.to_str().unwrap();
    scratch.ok(&["convert", image, to, "--format", "udrw"]);

    match SEVEN_ZIP.find() {
        Ok(program) => by_7_zip(&program, &path, folder, name, &ours),
        Err(why) => without_program(test, &why),
    }
    let dmg2img = Program::Command(&["dmg2img"]);
    match dmg2img.find() {
        // It knows neither LZFSE nor LZMA.
        Ok(program) if *format == "UDZO" || *format == "UDBZ" => {
            let out = folder.join("dmg2img");
            let mut command = Command::new(program);
            run_text(command.arg("-s").arg("-i").arg(&path).arg("-o").arg(&out));
            assert!(
                fs::read(&out).unwrap() == fs::read(&disk).unwrap(),
                "dmg2img"
            );
        }
        Ok(_) => {}
        Err(why) => without_program(test, &why),
    }

    let is_apfs = volume["file_system"].as_str().unwrap().starts_with("APFS");
    let number = |key: &str| volume[key].as_u64().unwrap();
    let range = [number("offset"), number("offset") + number("size")].map(|at| at.to_string());
    let (kind, python) = if is_apfs {
        (
            "apfs",
            peer_python("pyfsapfs").ok_or("no pyfsapfs".to_owned()),
        )
    } else {
        ("hfs", Program::PythonModule("pyfshfs").find())
    };
    match python {
        Ok(python) => {
            let mut command = Command::new(python);
            command.args(["-c", LIBYAL, kind]).arg(&disk).args(range);
            let printed = run_text(&mut command);
            assert_eq!(printed.lines().next(), Some(name));
            is_ours(PYTHON, &parse(printed.lines()));
        }
        Err(why) => without_program(test, &why),
    }

    // The kernel itself has no driver of APFS, and the one outside of it expects larger volumes.
    if is_apfs {
        return ours;
    }
    if let Some(why) = qemu::NEEDS.iter().find_map(|need| need.find().err()) {
        without_program(test, &why);
        return ours;
    }
    let part = if number("offset") == 0 { "" } else { "1" };
    let script =
        format!("mount -t hfsplus -o ro /dev/vda{part} /mnt\ncd /mnt\nsection tree\n{LIST}");
    let guest = Guest::new(script)
        .disk(&disk)
        .modules(&["nls_utf8", "hfsplus"]);
    let report = guest.boot().succeeded();
    let lines = report.section("tree").iter().map(String::as_str);
    is_ours("Linux", &parse(lines));
    ours
}

/// Compares what 7-Zip extracts. It extracts links with absolute targets otherwise: it is asked for
/// the targets.
fn by_7_zip(program: &Path, image: &Path, folder: &Path, name: &str, ours: &Tree) {
    let out = folder.join("7zz");
    let mut command = Command::new(program);
    command
        .args(["x", "-y", "-sns-"])
        .arg(format!("-o{}", out.display()));
    // It ends with an error if links lead out of the folder.
    let output = programs::output(command.arg(image));
    let root = match out.join(name) {
        // HFS+ volumes are in a folder of their name.
        root if root.is_dir() => root,
        _ => out.clone(),
    };
    let mut theirs = tree_of(&root);
    for (path, target) in ours.iter().filter(|(_, what)| what.starts_with("-> ")) {
        // A name of spaces alone is shown in another form.
        let shown = if path == " " { "[]" } else { path };
        theirs.remove(shown);
        let within = match root == out {
            true => shown.to_owned(),
            false => format!("{name}/{shown}"),
        };
        let mut command = Command::new(program);
        let printed = run_text(command.args(["x", "-so"]).arg(image).arg(&within));
        let printed = printed.trim_end_matches('\0'); // as APFS stores it
        assert_eq!(format!("-> {printed}"), *target, "7-Zip: {path}");
        theirs.insert(path.clone(), target.clone());
    }
    assert_eq!(theirs, *ours, "7-Zip: {}", programs::everything(&output));
}
