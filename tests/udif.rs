//! UDIF images made by macOS decode to the known data, and their stored checksums match.

use std::sync::Arc;

use crate::common::corpus::{self, Image};
use crate::common::opened;
use bandsaw::container::Format;
use bandsaw::container::udif::{self, Udif};
use bandsaw::crypt::{Device, LockedHeader};
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::verify::Verification;
use bandsaw::progress::Silent;
use bandsaw::{Kind, Result};

/// Returns the UDIF file of an image, decrypted if it is encrypted.
fn file(image: &Image) -> Option<Arc<dyn BlockDevice>> {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(image.bytes()?));
    let Some(locked) = LockedHeader::read(&*file).unwrap() else {
        return Some(file);
    };
    let keys = locked
        .unlock(image.entry()["encrypted"]["password"].as_str()?.as_bytes())
        .unwrap();
    Some(Arc::new(Device::new(file, locked, &keys).unwrap()))
}

fn images(test: &str) -> Vec<(Image, Arc<dyn BlockDevice>)> {
    let images = corpus::images(test).unwrap_or_default().into_iter();
    images
        .filter(|image| image.format().contains("UDIF") && image.number("media_size").is_some())
        .filter_map(|image| file(&image).map(|file| (image, file)))
        .collect()
}

#[test]
fn corpus_decodes_to_known_media() {
    for (image, file) in images("corpus_decodes_to_known_media") {
        assert!(udif::probe(&*file).unwrap(), "{}", image.path());
        let disk = Udif::open(file).unwrap_or_else(|error| panic!("{}: {error}", image.path()));
        assert_eq!(
            Some(disk.info().len),
            image.number("media_size"),
            "{}",
            image.path()
        );
        let Some(known) = image
            .text("media_sha256")
            .filter(|_| disk.info().len < 1 << 30)
        else {
            continue;
        };
        let whole = disk.read_vec(0, disk.info().len as usize).unwrap();
        assert_eq!(corpus::sha256(&whole), known, "{}", image.path());
        in_small_pieces(&disk, &whole);
    }
}

/// Checks that reads through the cache return the same bytes, and that zero extents contain zeros.
fn in_small_pieces(disk: &Udif, whole: &[u8]) {
    for at in (0..whole.len()).step_by(100_003) {
        let length = 70_001.min(whole.len() - at);
        assert!(disk.read_vec(at as u64, length).unwrap() == whole[at..at + length]);
    }
    for extent in disk.extents(0..disk.info().len) {
        let (range, kind) = extent.unwrap();
        let bytes = &whole[range.start as usize..range.end as usize];
        assert!(kind == bandsaw::device::ExtentKind::Data || bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn corpus_sums_agree() {
    for (image, file) in images("corpus_sums_agree") {
        let disk = Udif::open(file).unwrap();
        if disk.info().len > 1 << 30 {
            continue;
        }
        for verdict in disk.verify(&Silent).unwrap() {
            assert_ne!(
                verdict.agrees(),
                Some(false),
                "{}: {verdict:?}",
                image.path()
            );
        }
    }
}

fn damaged(name: &str, damage: impl Fn(&mut Vec<u8>)) -> Option<Result<Udif>> {
    let mut bytes = corpus::image(name, "udif/keramics-hfsplus-zlib.dmg")?.bytes()?;
    damage(&mut bytes);
    Some(Udif::open(Arc::new(Memory::read_only(bytes))))
}

#[test]
fn damage_is_an_error_with_a_place() {
    let name = "damage_is_an_error_with_a_place";
    let Some(cut) = damaged(name, |bytes| drop(bytes.drain(..1000))) else {
        return;
    };
    assert_eq!(
        cut.unwrap_err().kind(),
        Kind::Corrupt,
        "a file whose front is cut off"
    );
    // Flipped bytes of chunks: opening succeeds, reading reports the chunk.
    let flipped = damaged(name, |bytes| {
        bytes[..16_000]
            .iter_mut()
            .step_by(500)
            .for_each(|byte| *byte ^= 0xFF)
    })
    .unwrap()
    .unwrap();
    let whole = flipped.read_vec(0, flipped.info().len as usize);
    let sums = flipped.verify(&Silent);
    assert!(
        whole.is_err()
            || sums
                .unwrap()
                .iter()
                .any(|verdict| verdict.agrees() == Some(false))
    );
    // The number of sectors in the trailer: too few for the chunks.
    let lying = damaged(name, |bytes| {
        let at = bytes.len() - 512 + 0x1EC;
        bytes[at..at + 8].copy_from_slice(&1u64.to_be_bytes());
    });
    assert_eq!(lying.unwrap().unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn damaged_copies_are_survived() {
    let Some(image) = corpus::image(
        "damaged_copies_are_survived",
        "udif/keramics-hfsplus-lzma.dmg",
    ) else {
        return;
    };
    let bytes = image.bytes().unwrap();
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..200 {
        let mut copy = bytes.clone();
        for _ in 0..1 + random(4) {
            // Mostly the end: the list of tables and the trailer.
            let at = if random(4) == 0 {
                random(copy.len())
            } else {
                copy.len() - 1 - random(9000.min(copy.len()))
            };
            copy[at] = [0, 0xFF, random(256) as u8, copy[at] ^ (1 << random(8))][random(4)];
        }
        if let Ok(disk) = Udif::open(Arc::new(Memory::read_only(copy))) {
            let mut buf = vec![0; 1 << 16];
            for _ in 0..20 {
                let at = random(1 << 30) as u64 % disk.info().len.max(1);
                let length = (disk.info().len - at).min(buf.len() as u64) as usize;
                let _ = disk.read_at(at, &mut buf[..length]);
            }
        }
    }
}

/// Converts every image to every format: the same disk, the correct checksums.
#[test]
fn corpus_is_packed_again() {
    let scratch = tempfile::tempdir().unwrap();
    for known in corpus::images("corpus_is_packed_again").unwrap_or_default() {
        let Some(sha256) = known
            .text("media_sha256")
            .filter(|_| known.format().contains("UDIF"))
        else {
            continue;
        };
        if known
            .number("media_size")
            .is_none_or(|size| size > 64 << 20)
        {
            continue; // nearly all of it zeros, and shows nothing more
        }
        let image = opened::open(&known, scratch.path()).unwrap().unwrap();
        for format in [
            Format::Udro,
            Format::Udco,
            Format::Udzo,
            Format::Udbz,
            Format::Ulfo,
            Format::Ulmo,
        ] {
            // An image with readahead in progress stays in use for a moment after it is closed.
            let path = scratch
                .path()
                .join(format!("{format}-{}", known.path().replace('/', "-")));
            let options = ConvertOptions {
                format,
                remove_signature: true,
                ..ConvertOptions::default()
            };
            let packed = convert(&image, &path, &options, &Silent)
                .unwrap_or_else(|error| panic!("{}: {error}", known.path()));
            let disk = packed.image.disk();
            let bytes = disk.read_vec(0, disk.info().len as usize).unwrap();
            assert_eq!(
                corpus::sha256(&bytes),
                sha256,
                "{} as {format}",
                known.path()
            );
            let verdicts = packed.image.udif().unwrap().verify(&Silent).unwrap();
            assert!(
                verdicts
                    .iter()
                    .all(|verdict| verdict.agrees() == Some(true)),
                "{} as {format}",
                known.path()
            );
        }
    }
}

/// Areas, their names and numbers are those that hdiutil gave the same disk.
#[test]
fn areas_are_those_of_macos() {
    let scratch = tempfile::tempdir().unwrap();
    let mut same = 0;
    for known in corpus::images("areas_are_those_of_macos").unwrap_or_default() {
        if !known.path().starts_with("udif/")
            || known
                .number("media_size")
                .is_none_or(|size| size > 64 << 20)
        {
            continue;
        }
        // Other software, and macOS before 10.6, use other names.
        if ["etcher-gpt-in-dmg", "dmgwiz-non-null"]
            .iter()
            .any(|name| known.path().contains(name))
        {
            continue;
        }
        let image = opened::open(&known, scratch.path()).unwrap().unwrap();
        let path = scratch.path().join(known.path().replace('/', "-"));
        let options = ConvertOptions {
            format: Format::Udzo,
            remove_signature: true,
            ..ConvertOptions::default()
        };
        let packed = convert(&image, &path, &options, &Silent).unwrap();
        let tables = |image: &open::Image| {
            let tables = image
                .udif()
                .unwrap()
                .resources()
                .iter()
                .filter(|resource| resource.kind == "blkx");
            let tables = tables.map(|table| {
                (
                    table.id.clone(),
                    table.name.clone(),
                    table.data[8..0x18].to_vec(),
                    table.data[0x24..0x28].to_vec(),
                )
            });
            tables.collect::<Vec<_>>()
        };
        assert_eq!(tables(&packed.image), tables(&image), "{}", known.path());
        same += 1;
    }
    eprintln!("{same} images");
}

/// Data that was read is not decoded again to compare its checksum, whatever the order of reads;
/// the rest is.
#[test]
fn checksums_of_data_that_was_read_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.img");
    let pattern: Vec<u8> = (0..5 << 20_u32)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(&path, &pattern).unwrap();
    let options = OpenOptions {
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let raw = open::open(&path, &options).unwrap();
    for format in [Format::Udro, Format::Udco, Format::Udzo] {
        let to = folder.path().join("a.dmg");
        let options = ConvertOptions {
            format,
            overwrite: true,
            ..ConvertOptions::default()
        };
        drop(convert(&raw, &to, &options, &Silent).unwrap());
        let file = Arc::new(writable(&to));
        let disk = Udif::open(file.clone()).unwrap();
        let half = disk.info().len / 2;
        let wrong = || -> Vec<_> {
            let verdicts = disk.verify_contents(&Silent).unwrap();
            verdicts
                .iter()
                .filter_map(|verdict| verdict.mismatch())
                .collect()
        };
        disk.begin_sums();
        for range in [half + 4096..disk.info().len, 0..half, half..half + 4096] {
            disk.read_vec(range.start, (range.end - range.start) as usize)
                .unwrap();
        }
        // A stored byte of the first chunk, which no codec checks in the first two formats.
        let first = file.read_vec(1, 1).unwrap()[0];
        file.write_at(1, &[first ^ 1]).unwrap();
        assert!(wrong().is_empty(), "{format}: what was read was right");
        disk.end_sums();
        if format == Format::Udzo {
            let error = disk.verify_contents(&Silent).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            assert!(
                error
                    .to_string()
                    .contains("(bytes 0 to 5242880 of the disk)"),
                "{error}"
            );
            continue;
        }
        let wrong = wrong();
        assert!(
            wrong.len() == 1
                && wrong[0]
                    .to_string()
                    .contains("(bytes 0 to 5242880 of the disk)"),
            "{format}: {wrong:?}"
        );
    }
}

/// An image without checksums has nothing to compare; one with a checksum of the stored data alone
/// is compared with that.
#[test]
fn images_without_checksums_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.img");
    std::fs::write(&path, [7; 1 << 16]).unwrap();
    let options = OpenOptions {
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let raw = open::open(&path, &options).unwrap();
    assert!(Verification::begin(&raw).is_none(), "a raw image");
    let to = folder.path().join("a.dmg");
    let options = ConvertOptions {
        format: Format::Udro,
        ..ConvertOptions::default()
    };
    let image = convert(&raw, &to, &options, &Silent).unwrap().image;
    Verification::begin(&image)
        .unwrap()
        .finish(&Silent)
        .unwrap();
    drop(image);

    let file = writable(&to);
    let (mut resources, _) = udif::read_list(&file).unwrap();
    for table in resources
        .iter_mut()
        .filter(|resource| resource.kind == "blkx")
    {
        table.data[0x40..0x44].fill(0);
    }
    // `write_list` refuses to change tables; the new list has the length of the old one.
    let list = udif::image_list(&resources).unwrap();
    let bytes = std::fs::read(&to).unwrap();
    let at = bytes
        .windows(5)
        .position(|bytes| bytes == b"<?xml")
        .unwrap();
    assert!(bytes[at..at + list.len()].ends_with(b"</plist>\n"));
    file.write_at(at as u64, &list).unwrap();
    let end = file.info().len;
    let trailer = end - udif::TRAILER;
    // The type of the master checksum, and that of the stored data.
    file.write_at(trailer + 0x160, &[0; 4]).unwrap();
    file.write_at(trailer + 0x50, &[0; 4]).unwrap();
    let saved = |file: &Memory| {
        std::fs::write(&to, file.read_vec(0, end as usize).unwrap()).unwrap();
        open::open(&to, &OpenOptions::default()).unwrap()
    };
    assert!(Verification::begin(&saved(&file)).is_none(), "no checksum");

    let sum = crc32fast::hash(&[7; 1 << 16]);
    file.write_at(trailer + 0x50, &2_u32.to_be_bytes()).unwrap();
    file.write_at(trailer + 0x54, &32_u32.to_be_bytes())
        .unwrap();
    file.write_at(trailer + 0x58, &sum.to_be_bytes()).unwrap();
    Verification::begin(&saved(&file))
        .unwrap()
        .finish(&Silent)
        .unwrap();
    file.write_at(trailer + 0x58, &(sum ^ 1).to_be_bytes())
        .unwrap();
    let error = Verification::begin(&saved(&file))
        .unwrap()
        .finish(&Silent)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("checksum mismatch of the data fork"),
        "{error}"
    );
}

/// Returns a copy of a file in memory.
fn writable(path: &std::path::Path) -> Memory {
    let bytes = std::fs::read(path).unwrap();
    let file = Memory::zeros(bytes.len());
    file.write_at(0, &bytes).unwrap();
    file
}
