//! `open::examine`, the implementation of `bandsaw check`: every kind of damage to every container
//! is found, with its severity and offset, consistent images pass, and nothing is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{corpus, opened};
use bandsaw::container::Format;
use bandsaw::container::sparsebundle::{self, Bundle};
use bandsaw::crypt::{Device, KeyWrap, MIN_ITERATIONS, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice, Memory};
use bandsaw::error::Place;
use bandsaw::open::{self, CreateOptions, Examination, LayerVerdict, OpenOptions};
use bandsaw::partition::APPLE_HFS;
use bandsaw::partition::gpt::{self, Guids, MapGeometry};
use bandsaw::problem::Severity::{self, Damage, Note, Warning};
use bandsaw::progress::Silent;
use bandsaw::store::Local;
use bandsaw::testing::fuzz;

/// Returns a disk with a GPT and a volume.
fn disk() -> Vec<u8> {
    let volume = fuzz::sample(false, 4096);
    let disk = Memory::zeros(
        MapGeometry::holding(volume.len() as u64, 512)
            .unwrap()
            .disk_len() as usize,
    );
    let range = gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("check")).unwrap();
    disk.write_at(range.start, &volume).unwrap();
    disk.to_vec()
}

/// Creates the disk in a container.
fn make(folder: &Path, format: Format) -> PathBuf {
    let path = folder.join("image");
    match format {
        Format::Udzo => fs::write(&path, udif()).unwrap(),
        _ => {
            let bytes = disk();
            let band_size = (format == Format::Udsb).then_some(1 << 20);
            let image = open::create(
                &path,
                &CreateOptions {
                    format,
                    len: bytes.len() as u64,
                    band_size,
                    ..CreateOptions::default()
                },
            )
            .unwrap();
            image.disk().write_at(0, &bytes).unwrap();
            image.disk().flush().unwrap();
        }
    }
    path
}

/// Returns a compressed image of 24 sectors: eight zlib, eight raw, eight zeros.
fn udif() -> Vec<u8> {
    let target = fuzz::TARGETS
        .iter()
        .find(|target| target.name == "udif")
        .unwrap();
    (target.seeds)().swap_remove(1)
}

fn examine(path: &Path, key: Option<&str>) -> Examination {
    let secret = key.map(|key| Secret::new(key.into()));
    let keys = secret.as_ref().map(|secret| secret as _);
    open::examine(
        path,
        &OpenOptions {
            keys,
            ..OpenOptions::default()
        },
        &Silent,
    )
    .unwrap()
}

/// Formats the problems found, one line each: severity, layer, offset, text.
fn lines(found: &Examination) -> Vec<String> {
    let line = |problem: &bandsaw::problem::Problem| {
        let place = match problem.error.place() {
            Place::Offset(at) => format!("byte {at}"),
            Place::Name(name) => name.clone(),
            Place::None => "nowhere".to_owned(),
        };
        format!(
            "{} | {} | {place} | {}",
            problem.severity,
            problem.error.layer(),
            problem.error
        )
    };
    found.problems.listed().iter().map(line).collect()
}

/// An image, a corruption, and the expected result: highest severity, layer, offset.
type Case = (
    Format,
    &'static str,
    fn(&Path),
    Severity,
    &'static str,
    &'static str,
);

/// Changes bytes of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn replace_in(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// Changes the block table of a compressed image.
fn edit_table(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    edit(path, |bytes| {
        let trailer = bytes.split_off(bytes.len() - 512);
        let number =
            |at: usize| u64::from_be_bytes(trailer[at..at + 8].try_into().unwrap()) as usize;
        let list = bytes.split_off(number(0xd8));
        let mut list = plist::Value::from_reader_xml(std::io::Cursor::new(list)).unwrap();
        let tables = list.as_dictionary_mut().unwrap()["resource-fork"]
            .as_dictionary_mut()
            .unwrap();
        let entry = tables["blkx"].as_array_mut().unwrap()[0]
            .as_dictionary_mut()
            .unwrap();
        let mut table = entry["Data"].as_data().unwrap().to_vec();
        change(&mut table);
        entry.insert("Data".to_owned(), plist::Value::Data(table));
        let start = bytes.len();
        list.to_writer_xml(&mut *bytes).unwrap();
        let len = bytes.len() - start;
        bytes.extend(trailer);
        let at = bytes.len() - 512 + 0xe0;
        bytes[at..at + 8].copy_from_slice(&(len as u64).to_be_bytes());
    });
}

/// Returns the offset of byte `at` of run `number` of a block table.
fn run(number: usize, at: usize) -> usize {
    0xcc + 40 * number + at
}

/// Changes bytes of both headers of the volume.
fn break_headers(disk: &mut [u8], at: usize, len: usize) {
    let start = 20480;
    for header in [start + 1024, start + fuzz::sample(false, 4096).len() - 1024] {
        assert!(disk[header..].starts_with(b"H+"));
        disk[header + at..header + at + len].fill(0xa5);
    }
}

fn append(path: &Path, more: usize) {
    edit(path, |bytes| bytes.resize(bytes.len() + more, 7));
}

fn cut(path: &Path, by: usize) {
    edit(path, |bytes| bytes.truncate(bytes.len() - by));
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    (Format::Udsb, "a stray file", |x| fs::write(x.join("bands/notes.txt"), "x").unwrap(), Warning, "sparse bundle", "bands/notes.txt"),
    (Format::Udsb, "a band spelled otherwise", |x| fs::rename(x.join("bands/0"), x.join("bands/00")).unwrap(), Damage, "sparse bundle", "bands/00"),
    (Format::Udsb, "a copy of a band", |x| assert!(fs::copy(x.join("bands/0"), x.join("bands/00")).is_ok()), Warning, "sparse bundle", "bands/00"),
    (Format::Udsb, "an over-long band", |x| append(&x.join("bands/0"), 2 << 20), Warning, "sparse bundle", "bands/0"),
    (Format::Udsb, "band past the end", |x| fs::write(x.join("bands/ff"), "x").unwrap(), Warning, "sparse bundle", "bands/ff"),
    (Format::Udsb, "a last band past the end", |x| edit(&x.join("bands/0"), |band| band.resize(1 << 20, 7)), Warning, "sparse bundle", "bands/0"),
    (Format::Udsb, "a folder for a band", |x| {
        fs::remove_file(x.join("bands/0")).unwrap();
        fs::create_dir(x.join("bands/0")).unwrap();
    }, Damage, "", "bands/0"),
    (Format::Udsb, "a link for a band", |x| {
        fs::rename(x.join("bands/0"), x.join("moved")).unwrap();
        std::os::unix::fs::symlink("../moved", x.join("bands/0")).unwrap();
    }, Damage, "", "bands/0"),
    (Format::Udsb, "a band in iCloud", |x| fs::rename(x.join("bands/0"), x.join("bands/.0.icloud")).unwrap(), Damage, "sparse bundle", "bands/.0.icloud"),
    (Format::Udsb, "no Info.plist", |x| fs::remove_file(x.join("Info.plist")).unwrap(), Damage, "sparse bundle", "Info.plist"),
    (Format::Udsb, "garbage for Info.plist", |x| fs::write(x.join("Info.plist"), "x").unwrap(), Damage, "sparse bundle", "Info.plist"),
    (Format::Udsb, "no list at all", |x| ["Info.plist", "Info.bckup"].iter().for_each(|name| fs::write(x.join(name), "x").unwrap()), Damage, "sparse bundle", "Info.bckup"),
    (Format::Udsb, "garbage for Info.bckup", |x| fs::write(x.join("Info.bckup"), "x").unwrap(), Warning, "sparse bundle", "Info.bckup"),
    (Format::Udsb, "no Info.bckup", |x| fs::remove_file(x.join("Info.bckup")).unwrap(), Note, "sparse bundle", "Info.bckup"),
    (Format::Udsb, "another size in Info.bckup", |x| replace_in(&x.join("Info.bckup"), "<key>size</key>\n\t<integer>", "<key>size</key>\n\t<integer>5120"), Warning, "sparse bundle", "Info.bckup"),
    (Format::Udsb, "other bands in Info.bckup", |x| replace_in(&x.join("Info.bckup"), "1048576", "2097152"), Damage, "sparse bundle", "Info.bckup"),
    (Format::Udsb, "an unknown version", |x| replace_in(&x.join("Info.plist"), "<integer>1<", "<integer>3<"), Note, "", ""),
    (Format::Udsb, "no token", |x| fs::remove_file(x.join("token")).unwrap(), Note, "sparse bundle", "token"),
    (Format::Udsb, "garbage for a token", |x| fs::write(x.join("token"), "garbage").unwrap(), Warning, "sparse bundle", "token"),
    (Format::Udsb, "half a header in the token", |x| fs::write(x.join("token"), b"encrcdsa\0\0\0\x02").unwrap(), Damage, "encryption header", "byte 12"),
    (Format::Udsb, "a map in version 1", |x| {
        fs::create_dir(x.join("mapped")).unwrap();
        fs::write(x.join("mapped/0"), "x").unwrap();
    }, Warning, "sparse bundle", "mapped/0"),

    (Format::Udrw, "odd bytes at the end", |x| append(x, 100), Warning, "raw image", "byte END"),
    (Format::Udrw, "the header of the primary", |x| edit(x, |disk| disk[520] ^= 1), Damage, "gpt header", "byte 512"),
    (Format::Udrw, "the last sectors are missing", |x| cut(x, 5 * 512), Damage, "gpt header", "byte 544"),
    (Format::Udrw, "half of the disk is missing", |x| edit(x, |disk| disk.truncate(disk.len() / 1024 * 512)), Damage, "gpt table", "byte 1024"),
    (Format::Udrw, "the disk has grown", |x| edit(x, |disk| disk.resize(disk.len() + (1 << 20), 0)), Warning, "gpt", "byte LAST"),
    (Format::Udrw, "no volume where there should be one", |x| edit(x, |disk| break_headers(disk, 0, 4)), Warning, "volume", "byte 20480"),
    (Format::Udrw, "a volume header that lies", |x| edit(x, |disk| break_headers(disk, 40, 4)), Damage, "", ""),

    (Format::Udsp, "bytes behind the last band", |x| append(x, 4096), Note, "sparse image", "byte END"),
    (Format::Udsp, "the end of the last band is missing", |x| edit(x, |file| file.truncate(4096 + 8192)), Damage, "sparse image", "byte 12288"),
    (Format::Udsp, "an empty slot before a used one", |x| edit(x, |file| { file.copy_within(0x40..0x44, 0x44); file[0x40..0x44].fill(0); }), Damage, "sparse image", "byte 68"),
    (Format::Udsp, "two slots for one band", |x| edit(x, |file| { file.copy_within(0x40..0x44, 0x44); file.resize(4096 + (2 << 20), 3); }), Damage, "sparse image", "byte 68"),
    (Format::Udsp, "a slot past the end of the disk", |x| edit(x, |file| { file[0x44..0x48].copy_from_slice(&[0, 0, 0, 99]); file.resize(4096 + (2 << 20), 3); }), Warning, "sparse image", "byte 68"),
    (Format::Udsp, "a node that leads into a band", |x| edit(x, |file| file[0x1a] = 0x20), Damage, "sparse image", "byte 20"),
    (Format::Udsp, "a band of no sectors", |x| edit(x, |file| file[8..12].fill(0)), Damage, "sparse image", "byte 8"),

    (Format::Asif, "an entry that names no chunk", |x| edit(x, |file| file[0x120037] = 0), Damage, "asif", "byte 1179696"),
    (Format::Asif, "an entry outside of the file", |x| edit(x, |file| file[0x120034] = 9), Damage, "asif", "byte 1179696"),
    (Format::Asif, "two entries for one chunk", |x| edit(x, |file| file[0x120037] = 1), Damage, "asif", "byte 1179696"),
    (Format::Asif, "an unknown state of a block", |x| edit(x, |file| file[0x3ffe00] = 0x0f), Damage, "asif", "byte 4193792"),
    (Format::Asif, "no metadata", |x| edit(x, |file| file[0x200000] = 0), Damage, "asif metadata", ""),
    (Format::Asif, "chunks behind the last", |x| append(x, 3 << 20), Note, "asif", "byte END"),
    (Format::Asif, "the last chunk is missing", |x| edit(x, |file| { let len = file.len(); file.truncate(len - len % (1 << 20) - (1 << 20)); }), Damage, "asif", ""),
    (Format::Asif, "a directory outside of the file", |x| edit(x, |file| file[0x18] = 1), Damage, "asif", ""),
    (Format::Asif, "directories that disagree", |x| edit(x, |file| { file.copy_within(0x200..0x208, 0x41400); file[0x41500] = 1; }), Warning, "asif", "byte 267264"),
    (Format::Asif, "a disk longer than its bound", |x| edit(x, |file| file[0x30] = 1), Damage, "asif", "byte 48"),

    (Format::Udzo, "a list past the trailer", |x| edit(x, |file| { let at = file.len() - 512 + 0xdc; file[at] = 1; }), Damage, "udif trailer", ""),
    (Format::Udzo, "no list", |x| edit(x, |file| { let at = file.len() - 512 + 0xd8; file[at..at + 16].fill(0); }), Damage, "udif", ""),
    (Format::Udzo, "garbage for a list", |x| edit(x, |file| { let at = file.len() - 600; file[at..at + 60].fill(b'<'); }), Damage, "udif", ""),
    (Format::Udzo, "a region within another", |x| edit(x, |file| { let at = file.len() - 512 + 0x128; file[at + 7] = 3; file[at + 15] = 9; }), Damage, "udif", ""),
    (Format::Udzo, "a table that is none", |x| edit_table(x, |table| table[0] = 0), Damage, "udif block table", "byte 0"),
    (Format::Udzo, "more runs than fit", |x| edit_table(x, |table| table[0xc9] = 1), Damage, "udif block table", "byte 200"),
    (Format::Udzo, "a run of an unknown kind", |x| edit_table(x, |table| table[run(1, 3)] = 0x77), Damage, "udif block table", "byte 244"),
    (Format::Udzo, "a run outside of its table", |x| edit_table(x, |table| table[run(1, 22)] = 9), Damage, "udif block table", "byte 244"),
    (Format::Udzo, "a chunk outside of the file", |x| edit_table(x, |table| table[run(1, 28)] = 9), Damage, "udif chunk map", "byte 4096"),
    (Format::Udzo, "a chunk over another", |x| edit_table(x, |table| table[run(1, 15)] = 4), Damage, "udif chunk map", "byte 2048"),
    (Format::Udzo, "a chunk of no bytes", |x| edit_table(x, |table| table[run(0, 32)..run(0, 40)].fill(0)), Damage, "udif chunk map", "byte 0"),
    (Format::Udzo, "sectors in no run", |x| edit_table(x, |table| table[run(2, 23)] = 7), Warning, "udif block table", "byte 11776"),
    (Format::Udzo, "chunks that share bytes", |x| edit_table(x, |table| { let at = run(1, 31); table[at] = table[at].wrapping_sub(9); }), Warning, "udif chunk map", ""),
    (Format::Udzo, "a disk shorter than its chunks", |x| edit(x, |file| { let at = file.len() - 512 + 0x1f3; file[at] = 20; }), Damage, "udif chunk map", "byte 8192"),
    (Format::Udzo, "a disk of unknown length", |x| edit(x, |file| { let at = file.len() - 512 + 0x1f3; file[at] = 0; }), Note, "udif", ""),
    (Format::Udzo, "a wrong sum over the tables", |x| edit(x, |file| {
        let at = file.len() - 512 + 0x160;
        file[at..at + 12].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 32, 1, 2, 3, 4]);
    }), Damage, "udif", ""),
];

#[test]
fn every_damage_is_found_at_its_place() {
    let mut missed = Vec::new();
    for (format, what, damage, severity, layer, place) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = make(folder.path(), *format);
        let sound = examine(&path, None);
        assert!(
            sound.problems.worst().is_none(),
            "{format} before {what}: {:?}",
            lines(&sound)
        );
        let len = fs::metadata(&path).unwrap().len();
        damage(&path);
        let found = examine(&path, None);
        let report = lines(&found);
        if layer.is_empty() && place.is_empty() && *severity == Note {
            let refused = found
                .layers
                .iter()
                .any(|judged| matches!(judged.verdict, LayerVerdict::Unknown(_)));
            assert!(refused, "{format}, {what}: {report:?}, {:?}", found.layers);
            continue;
        }
        let place = place
            .replace("END", &len.to_string())
            .replace("LAST", &(len - 512).to_string());
        let fits = |line: &String| {
            let parts: Vec<_> = line.splitn(4, " | ").collect();
            parts[0] == severity.to_string()
                && (layer.is_empty() || parts[1] == *layer)
                && (place.is_empty() || parts[2] == place)
                || place.contains('/') && parts[0] == severity.to_string() && line.contains(&place)
        };
        if found.problems.worst() != Some(*severity) || !report.iter().any(fits) {
            missed.push(format!(
                "{format}, {what}: no {severity} in {layer} at {place} among {report:#?}"
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Damage to one layer does not hide the next: the container, the map and the volume are all
/// reported.
#[test]
fn all_layers_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), Format::Udsb);
    fs::write(path.join("bands/notes.txt"), "x").unwrap();
    fs::write(path.join("bands/ff"), "x").unwrap();
    fs::remove_file(path.join("Info.plist")).unwrap();
    edit(&path.join("bands/0"), |disk| {
        disk[520] ^= 1;
        break_headers(disk, 40, 4);
    });
    let found = examine(&path, None);
    let layers: Vec<_> = found
        .layers
        .iter()
        .map(|judged| judged.layer.as_str())
        .collect();
    assert_eq!(
        layers,
        ["sparse bundle", "GPT", "HFS+ on partition 1"],
        "{:?}",
        lines(&found)
    );
    let damaged: Vec<_> = found
        .problems
        .listed()
        .iter()
        .filter(|problem| problem.severity == Damage)
        .collect();
    let layers: std::collections::BTreeSet<_> = damaged
        .iter()
        .map(|problem| problem.error.layer())
        .collect();
    assert!(
        layers.len() >= 3 && found.problems.count(Warning) >= 2,
        "{:?}",
        lines(&found)
    );
}

fn encrypted() -> Vec<u8> {
    let file = Arc::new(Memory::zeros(0));
    let passphrase = Secret::new(b"key".to_vec());
    let protection = Protection {
        key_bits: 128,
        block: 512,
        iterations: MIN_ITERATIONS,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(passphrase),
        certificates: Vec::new(),
    };
    let device = Device::create(file.clone(), &protection).unwrap();
    device
        .set_len(disk().len() as u64, AfterDiscard::Zeros)
        .unwrap();
    device.write_at(0, &disk()).unwrap();
    device.flush().unwrap();
    file.to_vec()
}

#[test]
fn encryption_headers() {
    const DATA: u64 = 0x1de00;
    type Case = (&'static str, fn(&mut Vec<u8>), Severity, &'static str, u64);
    let cases: &[Case] = &[
        (
            "data past the end",
            |file| file[0x3c] = 1,
            Damage,
            "encryption header",
            DATA + disk().len() as u64,
        ),
        (
            "an entry behind the data",
            |file| file[0x54] = 9,
            Damage,
            "encryption key entry",
            9 << 24 | 0x60,
        ),
        (
            "an entry of no known kind",
            |file| file[0x4f] = 3,
            Note,
            "encryption key entry",
            0x4c,
        ),
        (
            "no entry",
            |file| file[0x4b] = 0,
            Damage,
            "encryption header",
            0x48,
        ),
        (
            "more entries than fit",
            |file| file[0x48] = 9,
            Damage,
            "encryption header",
            0x48,
        ),
        (
            "a salt longer than its field",
            |file| file[0x60 + 0x0f] = 99,
            Damage,
            "encryption key entry",
            0x6c,
        ),
        (
            "much behind the data",
            |file| file.resize(file.len() + 9000, 1),
            Note,
            "encryption header",
            DATA + disk().len() as u64,
        ),
    ];
    for (what, damage, severity, layer, at) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dmg");
        let mut file = encrypted();
        fs::write(&path, &file).unwrap();
        let sound = examine(&path, Some("key"));
        assert!(
            sound.problems.worst().is_none() && sound.layers.len() >= 3,
            "{:?}",
            lines(&sound)
        );
        damage(&mut file);
        fs::write(&path, file).unwrap();
        let report = lines(&examine(&path, Some("key")));
        let expected = format!("{severity} | {layer} | byte {at} |");
        assert!(
            report.iter().any(|line| line.starts_with(&expected)),
            "{what}: no {expected} in {report:#?}"
        );
    }
}

#[test]
fn encrypted_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sparsebundle");
    let passphrase = Secret::new(b"key".to_vec());
    let protection = Protection {
        key_bits: 128,
        block: 512,
        iterations: MIN_ITERATIONS,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(passphrase),
        certificates: Vec::new(),
    };
    let options = sparsebundle::BundleOptions {
        len: disk().len() as u64,
        band_size: Some(1 << 20),
    };
    let bundle =
        Bundle::create_encrypted(Arc::new(Local::new(&path)), &options, &protection).unwrap();
    bundle.write_at(0, &disk()).unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    let sound = examine(&path, Some("key"));
    assert!(
        sound.problems.worst().is_none() && sound.layers.len() == 3,
        "{:?}, {:?}",
        lines(&sound),
        sound.layers
    );
    let locked = examine(&path, None);
    assert!(locked.problems.worst().is_none(), "{:?}", lines(&locked));
    assert!(
        matches!(locked.layers[1].verdict, LayerVerdict::Unknown(_)),
        "{:?}",
        locked.layers
    );
    edit(&path.join("bands/0"), |band| {
        band.truncate(band.len() - 100)
    });
    let report = lines(&examine(&path, Some("key")));
    assert!(
        report.iter().any(
            |line| line.starts_with("damage | sparse bundle | bands/0 |")
                && line.contains("within a cipher block")
        ),
        "{report:?}"
    );
    edit(&path.join("token"), |token| token[0x4b] = 0);
    let report = lines(&examine(&path, Some("key")));
    assert!(
        report.iter().any(
            |line| line.starts_with("damage | encryption header | byte 72 |")
                && line.contains("token")
        ),
        "{report:?}"
    );
}

/// Checks of the trailer of encryption version 1, on an image made by macOS.
#[test]
fn encryption_trailers() {
    const IMAGE: &str = "encrypted/john-v1-aes128.dmg";
    let Some(image) = corpus::image("encryption_trailers", IMAGE) else {
        return;
    };
    let (good, folder) = (image.bytes().unwrap(), tempfile::tempdir().unwrap());
    let (path, at) = (folder.path().join("x.dmg"), good.len() - 1276);
    for (what, place, value, offset) in [
        ("data past the trailer", 0x4e9, 9, 0x4e8),
        ("an unknown cipher", 0x17, 9, 0x14),
        ("an unknown version", 0x4f3, 9, 0x4f0),
    ] {
        let mut bytes = good.clone();
        bytes[at + place] = value;
        fs::write(&path, bytes).unwrap();
        let found = examine(&path, None);
        let report = format!("{:?} {:?}", lines(&found), found.layers);
        assert!(
            report.contains(&format!("{}", at + offset)),
            "{what}: {report}"
        );
        assert!(
            !matches!(found.layers[0].verdict, LayerVerdict::Checked),
            "{what}: {report}"
        );
    }
}

#[test]
fn without_its_passphrase_an_image_is_judged_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dmg");
    fs::write(&path, encrypted()).unwrap();
    let found = examine(&path, None);
    assert!(found.problems.worst().is_none());
    let [header, data] = &found.layers[..] else {
        panic!("{:?}", found.layers)
    };
    assert!(
        matches!(header.verdict, LayerVerdict::Checked)
            && matches!(data.verdict, LayerVerdict::Unknown(_)),
        "{:?}",
        found.layers
    );
}

/// A million stray files in a folder of bands are counted and reported, but not all kept in memory.
#[test]
fn many_strays_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), Format::Udsb);
    for number in 0..3000 {
        fs::write(path.join(format!("bands/stray {number}")), "").unwrap();
    }
    fs::write(path.join("bands/00"), "").unwrap();
    let found = examine(&path, None);
    assert_eq!(
        (found.problems.count(Warning), found.problems.listed().len()),
        (3001, 1000)
    );
    assert_eq!(found.problems.omitted(), 2001);
}

/// Images made by macOS have no problems except those described in docs/formats.
#[test]
fn corpus_images_are_sound() {
    let scratch = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for image in corpus::images("corpus_images_are_sound").unwrap_or_default() {
        let whole = image.format().starts_with("raw")
            || ["UDIF", "UDSB", "UDSP", "ASIF"]
                .iter()
                .any(|kind| image.format().contains(kind));
        if !whole || image.path().starts_with("corrupt/") {
            continue;
        }
        let Some(path) = opened::place(&image, scratch.path()) else {
            continue;
        };
        let found = examine(&path, image.entry()["encrypted"]["password"].as_str());
        // Some are truncated containers, which is correctly reported.
        let whole = lines(&found).iter().all(|line| !line.contains("truncated"));
        let cut = image.file_systems().iter().any(|volume| {
            let blocks = volume.facts["container_blocks"].as_u64().unwrap_or(0);
            image
                .number("image_size")
                .is_some_and(|size| size < blocks * 4096)
        });
        assert!(whole || cut, "{}: {:#?}", image.path(), lines(&found));
        let noted = |line: &String| line.starts_with("note") || line.contains("truncated");
        let report: Vec<_> = lines(&found)
            .into_iter()
            .filter(|line| !noted(line))
            .collect();
        if !report.is_empty() {
            wrong.push(format!("{}: {report:#?}", image.path()));
        }
        if path.starts_with(scratch.path()) {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The start of a disk is lost, in every container: the backup GPT leads to the volume, which is
/// read with a warning, and the loss is damage.
#[test]
fn the_backup_map_counts_where_the_start_of_a_disk_is_lost() {
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        for len in [1024, 34 * 512] {
            let folder = tempfile::tempdir().unwrap();
            let path = make(folder.path(), format);
            let writable = OpenOptions {
                access: bandsaw::device::Access::ReadWrite,
                ..OpenOptions::default()
            };
            let image = open::open(&path, &writable).unwrap();
            image.disk().write_at(0, &vec![0; len]).unwrap();
            image.disk().flush().unwrap();
            drop(image);
            let found = examine(&path, None);
            let lines = lines(&found);
            assert_eq!(found.problems.worst(), Some(Damage), "{format}: {lines:?}");
            let volume = found
                .layers
                .iter()
                .find(|judged| judged.layer.starts_with("HFS+"));
            let verdict = &volume.unwrap().verdict;
            assert!(
                matches!(verdict, LayerVerdict::Checked),
                "{format}: {verdict:?}"
            );
            let image = open::open(&path, &OpenOptions::default()).unwrap();
            let warnings = image.warnings().join("\n");
            assert!(
                warnings.contains("the backup is used"),
                "{format}: {warnings}"
            );
            assert!(image.file_system(None).is_ok(), "{format}");
        }
    }
}

/// A disk that is not blank and in which nothing is recognized is unknown in every container; a
/// blank one is in order, and what other systems keep on disks is named, not checked.
#[test]
fn unknown_contents_of_disks() {
    use bandsaw::open::{Conclusion, Contents};
    type Fill = fn(&mut [u8]);
    let noise: Fill = |disk| {
        let mut state = 1_u32;
        for byte in disk {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
    };
    let cases: [(&str, &str, &str, Fill); 7] = [
        ("noise", "unknown", "unknown", noise),
        ("zeros", "blank", "sound", |_| {}),
        ("one byte", "unknown", "unknown", |disk| disk[700_000] = 1),
        ("LUKS", "foreign", "unchecked", |disk| {
            disk[..6].copy_from_slice(b"LUKS\xba\xbe");
        }),
        ("LVM", "foreign", "unchecked", |disk| {
            disk[512..520].copy_from_slice(b"LABELONE");
        }),
        ("swap", "foreign", "unchecked", |disk| {
            disk[4086..4096].copy_from_slice(b"SWAPSPACE2");
        }),
        ("a partition of noise", "unknown", "unknown", |disk| {
            let made = Memory::zeros(disk.len());
            gpt::create_single(&made, 512, APPLE_HFS, Guids::derived("x")).unwrap();
            disk.copy_from_slice(&made.to_vec());
            disk[500_000] = 1;
        }),
    ];
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        for (what, contents, conclusion, fill) in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image");
            let options = CreateOptions {
                format,
                len: 1 << 20,
                ..CreateOptions::default()
            };
            let image = open::create(&path, &options).unwrap();
            let mut bytes = vec![0; 1 << 20];
            fill(&mut bytes);
            image.disk().write_at(0, &bytes).unwrap();
            image.disk().flush().unwrap();
            drop(image);
            let found = examine(&path, None);
            let lines = lines(&found);
            let name = found.contents.as_ref().map(Contents::name);
            assert_eq!(name, Some(contents), "{format}, {what}: {lines:?}");
            let found = found.conclusion();
            assert_eq!(found.name(), conclusion, "{format}, {what}: {lines:?}");
            if let Conclusion::Unknown(error) = found {
                assert_eq!(error.kind(), bandsaw::Kind::Unsupported, "{format}, {what}");
            }
            if conclusion == "unchecked" {
                assert!(lines[0].contains("not checked"), "{format}: {lines:?}");
            }
        }
    }
}

/// A disk of no bytes by both lists, below bands that hold a volume, is not called undamaged.
#[test]
fn a_bundle_of_no_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), Format::Udsb);
    let len = disk().len();
    for list in ["Info.plist", "Info.bckup"] {
        let list = path.join(list);
        let text = fs::read_to_string(&list).unwrap();
        let text = text.replace(&format!(">{len}<"), ">0<");
        fs::write(list, text).unwrap();
    }
    let found = examine(&path, None);
    let conclusion = found.conclusion();
    assert!(
        matches!(conclusion.name(), "unknown" | "damaged"),
        "{conclusion:?}"
    );
}
