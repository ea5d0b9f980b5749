//! machfs, which writes HFS volumes at once.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::hfs::{self, HfsVolume};
use bandsaw::fs::{FileSystem, FileSystemExt, Fork};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::disk;
use crate::noise::noise;
use crate::programs::{Program, run};
use crate::suite::Suite;

const MACHFS: Program = Program::PeerModule("machfs");

/// Writes a volume with a number of folders, each with a file that has both forks.
const SCRIPT: &str = r#"
import machfs, sys
image, size, align, count, data = sys.argv[1:]
data = open(data, "rb").read()
volume = machfs.Volume()
volume.name = "Other"
for number in range(int(count)):
    file = machfs.File()
    file.type, file.creator = b"TEXT", b"ttxt"
    file.data, file.rsrc = data[:number * 97], data[:number * 31]
    folder = machfs.Folder()
    folder["caf\u00e9 %03d" % number] = file
    volume["Folder %03d" % number] = folder
open(image, "wb").write(volume.write(size=int(size), align=int(align), desktopdb=False))
"#;

pub(crate) fn add(suite: &mut Suite) {
    suite.peer("machfs", &[MACHFS]).test(
        "we_read_and_check_its_volumes",
        we_read_and_check_its_volumes,
    );
}

fn we_read_and_check_its_volumes() {
    let scratch = crate::scratch();
    let data = noise(60_000);
    let source = scratch.path().join("data");
    fs::write(&source, &data).unwrap();
    for (size, align, count) in [
        (819_200, 512, 10),
        (4 << 20, 2048, 60),
        (64 << 20, 512, 400),
    ] {
        let image = scratch.path().join("other.img");
        let mut python = MACHFS.command();
        let numbers = [size, align, count].map(|number: u64| number.to_string());
        run(python
            .args(["-c", SCRIPT])
            .arg(&image)
            .args(&numbers)
            .arg(&source));
        let what = format!("{size} bytes, {count} folders");
        let found = hfs::check(device(&image), &Silent).unwrap();
        // It counts no files of the root folder, and chains the index nodes of all levels.
        for problem in &found {
            let text = problem.error.to_string();
            let is_known = match problem.severity {
                Severity::Note => text.contains("files in the root folder"),
                Severity::Warning => count > 50 && text.contains("node is recorded as"),
                Severity::Damage => false,
            };
            assert!(is_known, "{what}: {found:#?}");
        }
        let volume = HfsVolume::open(device(&image)).unwrap();
        for number in 0..count as usize {
            let path = format!("/Folder {number:03}/café {number:03}");
            let file = volume.resolve(&path).unwrap();
            for (fork, len) in [(Fork::Data, number * 97), (Fork::Resource, number * 31)] {
                let contents = volume.open(file.id, fork).unwrap();
                let len = len.min(data.len());
                assert_eq!(contents.info().len, len as u64, "{path}");
                assert!(contents.read_vec(0, len).unwrap() == data[..len], "{path}");
            }
        }
    }
}

fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(disk::open(image, Open::Read))
}
