//! Compressed files: `7zz` and the Sleuth Kit's `icat` decompress zlib and LZVN, compressed in
//! place or while the volume was built; Apple's LZFSE library, through its Python module, LZFSE;
//! libfsapfs all of them on APFS, where `apfsck` reports nothing.

use std::path::Path;

use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::decmpfs::{Method, PackOptions};
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::fs::FileSystemExt;
use bandsaw::open::{OpenOptions, open};
use bandsaw::ops::compress::{CompressOptions, compress};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::writable_volume::RewritableVolume;
use bandsaw::progress::Silent;

use crate::noise;
use crate::programs::{Program, SEVEN_ZIP, everything, output, run};
use crate::suite::Suite;
use crate::volume;

const ICAT: Program = Program::Command(&["icat"]);
const LZFSE: Program = Program::PeerModule("liblzfse");
const FSAPFS: Program = Program::PeerModule("pyfsapfs");
const APFSCK: Program = Program::Command(&["apfsck"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("7zz", &[SEVEN_ZIP])
        .test("unpacks_compressed_files", seven_zip_unpacks);
    suite
        .peer("sleuthkit", &[ICAT])
        .test("reads_compressed_files", icat_reads);
    suite
        .peer("liblzfse", &[LZFSE])
        .test("decodes_our_chunks", lzfse_decodes);
    suite
        .peer("libfsapfs on compressed files", &[FSAPFS])
        .test("reads_them", libfsapfs_reads);
    suite
        .peer("apfsck on compressed files", &[APFSCK])
        .test("is_silent", apfsck_is_silent);
}

/// Returns files with lengths around the limits: in the attribute, one chunk, several; and with
/// incompressible data, which is stored raw.
fn files() -> Vec<(String, Vec<u8>)> {
    let text = |len: usize| {
        (0_u32..)
            .flat_map(|n| format!("{n} times {}, ", n % 771).into_bytes())
            .take(len)
            .collect::<Vec<u8>>()
    };
    let sizes = [
        1, 100, 4000, 9000, 65_535, 65_536, 65_537, 131_072, 1_000_000,
    ];
    let plain = sizes.map(|len| (format!("text {len}"), text(len)));
    // The second chunk is incompressible, the others are not.
    let mut mixed = text(300_000);
    mixed[65_536..131_072].copy_from_slice(&noise::noise(65_536));
    plain
        .into_iter()
        .chain([("mixed".to_owned(), mixed)])
        .collect()
}

fn options(method: Method) -> CompressOptions {
    CompressOptions::new(
        PackOptions::new(method, Level::new(5).expect("5 is one")).expect("it is written"),
    )
}

/// Builds an image with all files, compressed.
fn built(scratch: &Path, format: NewFormat, method: Method) -> std::path::PathBuf {
    build(scratch, &files(), format, method)
}

/// Builds an image with these files, compressed.
fn build(
    scratch: &Path,
    files: &[(String, Vec<u8>)],
    format: NewFormat,
    method: Method,
) -> std::path::PathBuf {
    let (source, disk) = (scratch.join("source"), scratch.join("built.img"));
    std::fs::create_dir(&source).expect("a folder");
    files
        .iter()
        .for_each(|(name, bytes)| std::fs::write(source.join(name), bytes).expect("a file"));
    let source = Source::Folder(source);
    let volume = NewVolume {
        layout: Layout::None,
        name: volume::NAME.into(),
        format,
        block_size: None,
        source,
    };
    // Debian's apfsck supports no smaller containers.
    let options = CreateOptions {
        len: Some(130 << 20),
        volume: Some(volume),
        compress: Some(options(method)),
        ..CreateOptions::default()
    };
    let made = create(&disk, options, &Silent).expect("an image");
    let packed = made
        .compressed
        .iter()
        .filter(|report| report.left.is_none())
        .count();
    assert!(packed >= files.len() - 1, "{packed} files were compressed");
    disk
}

/// Creates an image with these files and compresses them in place, as far as possible.
fn image(scratch: &Path, method: Method) -> std::path::PathBuf {
    let (source, disk) = (scratch.join("source"), scratch.join("compressed.img"));
    std::fs::create_dir(&source).expect("a folder");
    files()
        .iter()
        .for_each(|(name, bytes)| std::fs::write(source.join(name), bytes).expect("a file"));
    volume::create(
        Source::Folder(source),
        &disk,
        Format::Udrw,
        false,
        Layout::None,
    );
    let image = open(
        &disk,
        &OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        },
    )
    .expect("our image");
    let volume = RewritableVolume::open(&image, None, None, &Silent).expect("our volume");
    let options = options(method);
    let mut packed = 0;
    let mut each = |report: bandsaw::ops::compress::FileReport| {
        packed += usize::from(report.left.is_none());
        Ok(())
    };
    compress(&volume, &["/".to_owned()], &options, &Silent, &mut each).expect("compressing");
    volume.unmount().expect("leaving the volume clean");
    assert!(
        packed >= files().len() - 1,
        "{packed} files were compressed"
    );
    disk
}

/// A function that creates an image with compressed files.
type Make = fn(&Path, Method) -> std::path::PathBuf;

/// Compression in place, and while the volume is built.
const BOTH: [Make; 2] = [image, |scratch, method| {
    built(scratch, NewFormat::HfsPlus, method)
}];

fn seven_zip_unpacks() {
    for (make, method) in BOTH
        .into_iter()
        .flat_map(|make| [(make, Method::Zlib), (make, Method::Lzvn)])
    {
        let scratch = crate::scratch();
        let disk = make(scratch.path(), method);
        let out = scratch.path().join("out");
        let mut to = std::ffi::OsString::from("-o");
        to.push(&out);
        run(SEVEN_ZIP.command().args(["x", "-y"]).arg(to).arg(&disk));
        for (name, bytes) in files() {
            let unpacked =
                std::fs::read(out.join(crate::tree::decomposed(volume::NAME)).join(&name))
                    .expect("an unpacked file");
            assert!(unpacked == bytes, "{method}: {name}");
        }
    }
}

fn icat_reads() {
    for (make, method) in BOTH
        .into_iter()
        .flat_map(|make| [(make, Method::Zlib), (make, Method::Lzvn)])
    {
        let scratch = crate::scratch();
        let disk = make(scratch.path(), method);
        let read = open(&disk, &OpenOptions::default()).expect("our image");
        let fs = read.file_system(None).expect("our volume");
        for (name, bytes) in files() {
            let id = fs.resolve(&format!("/{name}")).expect("our file").id;
            let printed = run(ICAT.command().arg(&disk).arg(id.0.to_string()));
            assert!(
                printed == bytes,
                "{method}: {name}: {} bytes",
                printed.len()
            );
        }
    }
}

fn libfsapfs_reads() {
    const SCRIPT: &str = "import sys, pyfsapfs; container = pyfsapfs.container(); container.open(sys.argv[1]); \
        entry = container.get_volume(0).get_file_entry_by_path(sys.argv[2]); sys.stdout.buffer.write(entry.read(entry.get_size()))";
    // It supports LZFSE only for the blocks of the shortest files: Apple's library decodes the
    // others.
    for method in [Method::Zlib, Method::Lzvn] {
        let scratch = crate::scratch();
        let disk = built(scratch.path(), NewFormat::Apfs, method);
        for (name, bytes) in files() {
            let printed = run(FSAPFS
                .command()
                .args(["-c", SCRIPT])
                .arg(&disk)
                .arg(format!("/{name}")));
            assert!(
                printed == bytes,
                "{method}: {name}: {} of {} bytes",
                printed.len(),
                bytes.len()
            );
        }
    }
}

/// Checks files in the attribute only: Debian's apfsck does not support the forks.
fn apfsck_is_silent() {
    let scratch = crate::scratch();
    let short = files()
        .into_iter()
        .filter(|(_, bytes)| bytes.len() < 5000)
        .collect::<Vec<_>>();
    let disk = build(scratch.path(), &short, NewFormat::Apfs, Method::Zlib);
    // Not -u: it does not recognize the magic in the attribute of a compressed file.
    let checked = output(APFSCK.command().arg("-cw").arg(&disk));
    let said = everything(&checked);
    assert!(
        checked.status.success() && said.is_empty(),
        "{}: {said}",
        checked.status
    );
}

fn lzfse_decodes() {
    for make in [BOTH[0], |scratch, method| {
        built(scratch, NewFormat::Apfs, method)
    }] {
        lzfse_decodes_all(make);
    }
}

fn lzfse_decodes_all(make: Make) {
    let scratch = crate::scratch();
    let disk = make(scratch.path(), Method::Lzfse);
    let read = open(&disk, &OpenOptions::default()).expect("our image");
    let fs = read.file_system(None).expect("our volume");
    for (name, bytes) in files() {
        let id = fs.resolve(&format!("/{name}")).expect("our file").id;
        let value = |name| {
            fs.xattr(id, name).expect("its attributes").map(|value| {
                value
                    .read_vec(0, value.info().len as usize)
                    .expect("a value")
            })
        };
        let Some(attribute) = value("com.apple.decmpfs") else {
            continue;
        };
        let chunks = match attribute[4] {
            11 => vec![attribute[16..].to_vec()],
            12 => {
                let fork = value("com.apple.ResourceFork").expect("a fork");
                let word = |at: usize| {
                    u32::from_le_bytes(fork[at..at + 4].try_into().expect("four bytes")) as usize
                };
                (0..word(0) / 4 - 1)
                    .map(|n| fork[word(4 * n)..word(4 * n + 4)].to_vec())
                    .collect()
            }
            other => panic!("{name}: type {other}"),
        };
        let decoded: Vec<u8> = chunks
            .iter()
            .flat_map(|chunk| decode(scratch.path(), chunk))
            .collect();
        assert!(decoded == bytes, "{name}");
    }
}

fn decode(scratch: &Path, chunk: &[u8]) -> Vec<u8> {
    const SCRIPT: &str = "import sys, liblzfse; sys.stdout.buffer.write(liblzfse.decompress(open(sys.argv[1], 'rb').read()))";
    let packed = scratch.join("chunk");
    std::fs::write(&packed, chunk).expect("a file");
    run(LZFSE.command().args(["-c", SCRIPT]).arg(&packed))
}
