//! GNU tar: we import its archives, and it unpacks ours.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::ops::create::{Layout, Source};
use bandsaw::ops::export;
use bandsaw::progress::Silent;

use crate::programs::{Program, run};
use crate::suite::Suite;
use crate::tree::{self, Listing, assert_same};
use crate::{ours, volume};

const TAR: Program = Program::Command(&["tar"]);
const ATTRIBUTES: [&str; 2] = ["--xattrs", "--xattrs-include=user.*"];

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("tar", &[TAR])
        .test("we_read_its_archives", we_read_its_archives)
        .test("reads_our_archives", reads_our_archives);
}

fn we_read_its_archives() {
    let scratch = crate::scratch();
    let source = scratch.path().join("source");
    tree::write(&source, false);
    let files = volume::as_stored(tree::list(&source));
    // The older format does not support attributes, and stores long names differently.
    for (format, options) in [("posix", &ATTRIBUTES[..]), ("gnu", &[])] {
        let archive = scratch.path().join(format).with_extension("tar");
        let mut tar = TAR.command();
        run(tar
            .args(["--create", "--format", format])
            .args(options)
            .arg("--file")
            .arg(&archive)
            .arg("-C")
            .arg(&source)
            .arg("."));
        let disk = archive.with_extension("img");
        let range = volume::create(
            Source::Tar(archive),
            &disk,
            Format::Udrw,
            false,
            Layout::None,
        );
        let expected = if options.is_empty() {
            without_attributes(&files)
        } else {
            files.clone()
        };
        assert_same(&expected, &ours::list(&ours::open(&disk, range)));
    }
}

fn reads_our_archives() {
    for volume in volume::all().iter().filter(|volume| !volume.mapped) {
        let scratch = crate::scratch();
        let archive = scratch.path().join("ours.tar");
        let file_system = ours::open(&volume.disk, volume.range.clone());
        let mut out = BufWriter::new(File::create(&archive).expect("making the archive"));
        let exported =
            export::to_tar(&file_system, "/", &mut out, &Silent).expect("writing the archive");
        assert!(exported.problems.is_empty(), "{:?}", exported.problems);
        drop(out);
        let files = scratch.path().join("files");
        unpack(&archive, &files);
        assert_same(&volume.files, &tree::list(&files));
    }
}

fn unpack(archive: &Path, into: &Path) {
    std::fs::create_dir(into).expect("making a folder");
    let mut tar = TAR.command();
    run(tar
        .args(["--extract", "--same-permissions"])
        .args(ATTRIBUTES)
        .arg("--file")
        .arg(archive)
        .arg("-C")
        .arg(into));
}

fn without_attributes(files: &Listing) -> Listing {
    files
        .iter()
        .map(|(path, item)| {
            (
                path.clone(),
                tree::Item {
                    xattrs: [].into(),
                    ..item.clone()
                },
            )
        })
        .collect()
}
