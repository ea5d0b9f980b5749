//! libfshfs: its `fshfsinfo`, and its Python binding, which resolves hard links and reports modes,
//! owners and dates.

use std::process::Command;

use serde_json::Value;

use crate::programs::{PYTHON, Program, run_text};
use crate::suite::Suite;
use crate::tree::{Item, Kind, assert_same, decomposed, is_private};
use crate::volume;

const FSHFSINFO: Program = Program::Command(&["fshfsinfo"]);

/// Script that prints a JSON object with every path of the volume at an offset of a file.
const WALK: &str = r#"
import hashlib, json, pyfshfs, stat, sys

class Window:
    """The bytes of a file from an offset on."""
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

def contents(entry):
    digest = hashlib.sha256()
    while block := entry.read_buffer(1 << 20):
        digest.update(block)
    return digest.hexdigest()

def walk(folder, prefix):
    for entry in folder.sub_file_entries:
        path = prefix + entry.name
        kind = stat.S_IFMT(entry.file_mode)
        report = {'mode': entry.file_mode, 'modified': entry.get_modification_time_as_integer(), 'owner': [entry.owner_identifier, entry.group_identifier]}
        if kind == stat.S_IFLNK:
            report['target'] = entry.symbolic_link_target
        elif kind == stat.S_IFREG:
            report.update(len=entry.size, sha256=contents(entry))
        files[path] = report
        if kind == stat.S_IFDIR:
            walk(entry, path + '/')

files = {}
volume = pyfshfs.volume()
volume.open_file_object(Window(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
walk(volume.root_directory, '')
json.dump({'name': volume.name, 'files': files}, sys.stdout)
"#;

/// Seconds from 1904, the epoch of HFS+, to 1970.
const EPOCH: i64 = 2_082_844_800;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("libfshfs", &[FSHFSINFO, Program::PythonModule("pyfshfs")])
        .test("reads_all", reads_all)
        .test("lists_all", lists_all);
}

fn reads_all() {
    for volume in volume::all() {
        let mut python = Command::new(PYTHON);
        python.args(["-c", WALK]).arg(&volume.disk);
        python.args([volume.range.start.to_string(), volume.range.end.to_string()]);
        let report: Value =
            serde_json::from_str(&run_text(&mut python)).expect("the script prints JSON");
        assert_eq!(report["name"], decomposed(volume::NAME));
        let files = report["files"].as_object().expect("an object").iter();
        let found = files
            .filter(|(path, _)| !is_private(path))
            .map(|(path, report)| (path.clone(), item(report)))
            .collect();
        let expected = volume.files.iter().map(|(path, item)| {
            (
                path.clone(),
                Item {
                    links: 1,
                    xattrs: [].into(),
                    ..item.clone()
                },
            )
        });
        assert_same(&expected.collect(), &found);
    }
}

fn item(report: &Value) -> Item {
    let number = |name: &str| {
        report[name]
            .as_i64()
            .unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    let mode = u32::try_from(number("mode")).expect("a mode has 16 bits");
    let text = |name: &str| {
        report[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {report}"))
            .to_owned()
    };
    let kind = match mode >> 12 {
        0o04 => Kind::Folder,
        0o10 => Kind::File {
            len: number("len").unsigned_abs(),
            sha256: text("sha256"),
        },
        0o12 => Kind::Symlink(text("target")),
        0o01 => Kind::Fifo,
        other => panic!("kind {other:o}"),
    };
    Item {
        mode: mode & 0o7777,
        modified: number("modified") - EPOCH,
        ..Item::of(kind)
    }
}

fn lists_all() {
    for volume in volume::all() {
        let report = run_text(
            FSHFSINFO
                .command()
                .args(["-H", "-o", &volume.range.start.to_string()])
                .arg(&volume.disk),
        );
        let paths = report
            .lines()
            .filter_map(|line| line.strip_prefix('/'))
            .filter(|path| !path.is_empty() && !is_private(path));
        // Only paths are printed, and characters beyond the first 65,536 incorrectly (the binding
        // prints them correctly).
        let listing = |paths: &mut dyn Iterator<Item = String>| {
            let report = paths.filter(|path| path.chars().all(|char| char <= '\u{ffff}'));
            report.map(|path| (path, Item::of(Kind::Folder))).collect()
        };
        let expected = &mut volume.files.keys().map(|path| path.replace('\t', "\\x09"));
        assert_same(&listing(expected), &listing(&mut paths.map(str::to_owned)));
    }
}
