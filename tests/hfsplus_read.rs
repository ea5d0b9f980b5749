//! Reading of HFS+ volumes made by other software: every known name, size, checksum, link and
//! attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::corpus::{self, Image, KnownFile, sha256};
use crate::common::opened;
use bandsaw::decmpfs;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory, Slice};
use bandsaw::fs::hfsplus::{HfsPlus, Probed, probe};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, Timestamp};
use bandsaw::{Error, Kind};

/// Returns all objects of a volume by path.
fn walk(volume: &HfsPlus) -> BTreeMap<String, Attributes> {
    try_walk(volume).unwrap()
}

fn try_walk(volume: &HfsPlus) -> Result<BTreeMap<String, Attributes>, Error> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![(volume.root(), String::new())];
    while let Some((dir, path)) = waiting.pop() {
        for entry in volume.entries(dir)? {
            let path = format!("{path}/{}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                waiting.push((entry.attributes.id, path.clone()));
            }
            assert!(
                all.insert(path.clone(), entry.attributes).is_none(),
                "{path} twice"
            );
        }
    }
    Ok(all)
}

fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    device
        .read_vec(0, device.info().len.try_into().unwrap())
        .unwrap()
}

/// Returns a device for the volume at `offset` of an image.
fn window(image: &Image, offset: u64, scratch: &Path) -> Arc<Slice> {
    let opened = opened::open(image, scratch)
        .unwrap()
        .unwrap_or_else(|error| panic!("{}: {error}", image.path()));
    let found = opened
        .volumes()
        .iter()
        .find(|volume| volume.range.start == offset);
    let range = found
        .unwrap_or_else(|| panic!("{}: nothing at byte {offset}", image.path()))
        .range
        .clone();
    Arc::new(Slice::new(opened.disk().clone(), range).unwrap())
}

/// Returns the volume in memory; `None` if its format cannot be opened yet, or it is too large for
/// tests.
fn volume_bytes(image: &Image, offset: u64, scratch: &Path) -> Option<Vec<u8>> {
    let opens = opened::KINDS.contains(&image.format());
    opens
        .then(|| window(image, offset, scratch))
        .filter(|volume| volume.info().len < 1 << 30)
        .map(|volume| contents(&*volume))
}

fn open(bytes: Vec<u8>) -> Result<HfsPlus, Error> {
    // The manifest includes the files of the journal.
    Ok(HfsPlus::open(Arc::new(Memory::read_only(bytes)))?.system_files(true))
}

fn check_file(
    volume: &HfsPlus,
    seen: &BTreeMap<String, Attributes>,
    file: &KnownFile,
    image: &str,
) {
    let name = format!("{image}: {}", file.path);
    let attributes = seen
        .get(&file.path)
        .unwrap_or_else(|| panic!("{name} is missing"));
    assert_eq!(attributes.kind, FileKind::File, "{name}");
    assert_eq!(attributes.size, file.size, "{name}");
    assert_eq!(
        &volume.attributes(attributes.id).unwrap(),
        attributes,
        "{name}: by number"
    );
    assert_eq!(
        &volume.resolve(&file.path).unwrap(),
        attributes,
        "{name}: by path"
    );
    let device = volume
        .open(attributes.id, Fork::Data)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(sha256(&contents(&*device)), file.sha256, "{name}");
    if let Some(size) = file.resource_fork_size {
        // The resource fork of a compressed file contains its data, and is hidden.
        let size = if file.decmpfs_type.is_some() { 0 } else { size };
        assert_eq!(attributes.resource_size, size, "{name}");
        assert_eq!(
            volume
                .open(attributes.id, Fork::Resource)
                .unwrap()
                .info()
                .len,
            size,
            "{name}"
        );
    }
    check_xattrs(volume, attributes, file, &name);
}

fn check_xattrs(volume: &HfsPlus, attributes: &Attributes, file: &KnownFile, name: &str) {
    let mut found = BTreeMap::new();
    for xattr in volume.xattrs(attributes.id).unwrap() {
        let value = volume
            .xattr(attributes.id, &xattr)
            .unwrap()
            .unwrap_or_else(|| panic!("{name}: no {xattr}"));
        let value = contents(&*value);
        assert!(
            found
                .insert(xattr.clone(), (value.len() as u64, sha256(&value)))
                .is_none(),
            "{name}: {xattr} twice"
        );
    }
    // The manifest lists the attributes tree; these two are stored elsewhere.
    found.retain(|xattr, _| !matches!(&**xattr, "com.apple.FinderInfo" | "com.apple.ResourceFork"));
    let mut expected = file.xattrs.clone();
    if file.decmpfs_type.is_some() {
        let (len, sum) = expected
            .remove(decmpfs::ATTRIBUTE)
            .unwrap_or_else(|| panic!("{name}: how is it compressed?"));
        let value = contents(
            &*volume
                .xattr(attributes.id, decmpfs::ATTRIBUTE)
                .unwrap()
                .expect("hidden, but there"),
        );
        assert_eq!((value.len() as u64, sha256(&value)), (len, sum), "{name}");
    }
    assert_eq!(found, expected, "{name}");
    assert!(volume.xattr(attributes.id, "no such").unwrap().is_none());
}

fn check_volume(image: &Image, volume: &HfsPlus, facts: &serde_json::Value) {
    let info = volume.volume();
    let number = |key: &str| facts[key].as_u64().unwrap();
    assert_eq!(
        info.format,
        facts["type"].as_str().unwrap(),
        "{}",
        image.path()
    );
    assert_eq!(
        info.name,
        facts["name"].as_str().unwrap(),
        "{}",
        image.path()
    );
    assert_eq!(
        info.case_sensitive,
        facts["case_sensitive"].as_bool().unwrap(),
        "{}",
        image.path()
    );
    assert_eq!(
        info.journaled,
        facts["journaled"].as_bool().unwrap(),
        "{}",
        image.path()
    );
    assert_eq!(
        info.clean,
        facts["unmounted_clean"].as_bool().unwrap(),
        "{}",
        image.path()
    );
    assert_eq!(
        u64::from(info.block_size),
        number("block_size"),
        "{}",
        image.path()
    );
    assert_eq!(
        info.total,
        number("total_blocks") * number("block_size"),
        "{}",
        image.path()
    );
    assert_eq!(
        info.free,
        number("free_blocks") * number("block_size"),
        "{}",
        image.path()
    );
    assert_eq!(
        (info.files, info.folders),
        (number("file_count"), number("folder_count")),
        "{}",
        image.path()
    );
    assert!(
        volume.problems().is_empty(),
        "{}: {:?}",
        image.path(),
        volume.problems()
    );

    let seen = walk(volume);
    for file in image.files() {
        check_file(volume, &seen, &file, image.path());
    }
    let links: BTreeMap<String, String> = seen
        .iter()
        .filter(|(_, attributes)| attributes.kind == FileKind::Symlink)
        .map(|(path, attributes)| (path.clone(), volume.read_link(attributes.id).unwrap()))
        .collect();
    assert_eq!(links, image.symlinks(), "{}", image.path());
    let files = seen
        .values()
        .filter(|attributes| attributes.kind == FileKind::File)
        .count();
    assert_eq!(
        files as u64,
        image.number("file_count").unwrap(),
        "{}",
        image.path()
    );
}

#[test]
fn every_volume_of_the_corpus_reads_as_the_manifest_says() {
    let test = "every_volume_of_the_corpus_reads_as_the_manifest_says";
    let Some(images) = corpus::images(test) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut read = 0;
    for image in images {
        for file_system in image
            .file_systems()
            .iter()
            .filter(|found| matches!(&*found.kind, "HFS+" | "HFSX"))
        {
            if opened::KINDS.contains(&image.format()) {
                let volume = HfsPlus::open(window(&image, file_system.offset, scratch.path()))
                    .unwrap()
                    .system_files(true);
                check_volume(&image, &volume, &file_system.facts);
                read += 1;
            } else {
                crate::common::skip::skip(
                    test,
                    &format!("{}: {} is not read yet", image.path(), image.format()),
                );
            }
        }
    }
    assert!(read >= 34, "only {read} volumes were read");
}

#[test]
fn volumes_are_distinguished_from_everything_else() {
    let Some(images) = corpus::images("volumes_are_distinguished_from_everything_else") else {
        return;
    };
    for image in images {
        let Some(medium) = image.medium() else {
            continue;
        };
        for file_system in image.file_systems() {
            let start = usize::try_from(file_system.offset).unwrap();
            let device = Memory::read_only(&medium[start..]);
            let expected = match &*file_system.kind {
                "HFS+" => Some(Probed::HfsPlus),
                "HFSX" => Some(Probed::Hfsx),
                "HFS-standard" => Some(Probed::Hfs),
                _ => None,
            };
            assert_eq!(probe(&device).unwrap(), expected, "{}", image.path());
            if expected == Some(Probed::Hfs) {
                let error = HfsPlus::open(Arc::new(device)).unwrap_err();
                assert!(
                    error.kind() == Kind::Unsupported && error.to_string().contains("plain HFS"),
                    "{error}"
                );
            }
        }
    }
}

/// Returns the offset of node `number` of a real volume's catalog, which is contiguous.
fn catalog_node(volume: &[u8], number: usize) -> usize {
    let word = |at: usize| u32::from_be_bytes(volume[at..at + 4].try_into().unwrap()) as usize;
    let catalog = word(1024 + 272 + 16) * word(1024 + 40);
    let node_size = usize::from(u16::from_be_bytes(
        volume[catalog + 32..catalog + 34].try_into().unwrap(),
    ));
    catalog + number * node_size
}

#[test]
fn a_damaged_catalog_of_1165_nodes_gives_one_clear_error() {
    let test = "a_damaged_catalog_of_1165_nodes_gives_one_clear_error";
    let Some(image) = corpus::image(test, "raw/penguin-hfsp-many2.img.xz") else {
        return;
    };
    let sound = image.medium().unwrap();
    let node = |number| catalog_node(&sound, number);
    let leaf = (1..)
        .find(|&number| sound[node(number) + 8] == 0xFF && sound[node(number) + 3] != 0)
        .unwrap();
    let number = u32::try_from(leaf).unwrap().to_be_bytes();
    let table: [(usize, &[u8], &str); 4] = [
        (node(leaf), &number, "the next leaf is the node itself"),
        (
            node(0) + 14 + 22,
            &[0xFF; 4],
            "4294967295 nodes of 4096 bytes exceed",
        ),
        (
            node(leaf) + 10,
            &[0xFF; 2],
            "65535 records exceed the 4096 bytes",
        ),
        (
            1024 + 272 + 16,
            &[0xFF; 4],
            "reaches past the end of the volume, which has 1280 blocks",
        ),
    ];
    for (at, damage, words) in table {
        let mut bytes = sound.clone();
        bytes[at..at + damage.len()].copy_from_slice(damage);
        let error = open(bytes)
            .and_then(|volume| try_walk(&volume).map(drop))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = open(sound[..sound.len() / 2].to_vec()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("1280 blocks of 4096 bytes do not fit a volume of 2621440 bytes"),
        "{error}"
    );
}

/// Resets the start of a volume's journal to its first transaction, all of which were written back
/// long ago, and corrupts every sector that these transactions wrote. Returns the number of these
/// sectors.
fn tear(volume: &mut [u8]) -> usize {
    let big = |volume: &[u8], at: usize| {
        u32::from_be_bytes(volume[at..at + 4].try_into().unwrap()) as usize
    };
    let little = |volume: &[u8], at: usize| {
        u32::from_le_bytes(volume[at..at + 4].try_into().unwrap()) as usize
    };
    let info_block = big(volume, 1024 + 12) * big(volume, 1024 + 40);
    let journal = big(volume, info_block + 40);
    let (end, list_size) = (little(volume, journal + 16), little(volume, journal + 32));
    let mut torn = BTreeSet::new();
    let mut at = 512;
    while at != end {
        let list = journal + at;
        let blocks = usize::from(u16::from_le_bytes([volume[list + 2], volume[list + 3]]));
        let infos = (1..blocks).map(|index| list + 16 + 16 * index);
        torn.extend(
            infos
                .flat_map(|info| (0..little(volume, info + 8) / 512).map(move |at| (info, at)))
                .map(|(info, sector)| little(volume, info) + sector),
        );
        at += little(volume, list + 4);
        assert!(
            at >= 512 + list_size && at <= end,
            "the transactions of this volume do not wrap"
        );
    }
    for sector in &torn {
        // The volume header is needed to find the journal, so only its counts of files and folders
        // are corrupted.
        let damage = if *sector == 2 {
            1024 + 32..1024 + 40
        } else {
            sector * 512..(sector + 1) * 512
        };
        volume[damage].fill(0xA5);
    }
    volume[journal + 8..journal + 16].copy_from_slice(&512_u64.to_le_bytes());
    volume[journal + 36..journal + 40].fill(0);
    let sum = volume[journal..journal + 44]
        .iter()
        .fold(0_u32, |sum, &byte| {
            (sum << 8) ^ sum.wrapping_add(byte.into())
        });
    volume[journal + 36..journal + 40].copy_from_slice(&(!sum).to_le_bytes());
    torn.len()
}

#[test]
fn journals_of_macos_bring_torn_volumes_back() {
    let test = "journals_of_macos_bring_torn_volumes_back";
    let Some(images) = corpus::images(test) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut replayed = 0;
    for image in images {
        for file_system in image
            .file_systems()
            .iter()
            .filter(|found| found.facts["journaled"] == true)
        {
            if ["udif/brew-", "encrypted/"]
                .iter()
                .any(|part| image.path().starts_with(part))
            {
                continue; // hdiutil shrank these after their last transaction
            }
            let Some(mut bytes) = volume_bytes(&image, file_system.offset, scratch.path()) else {
                continue;
            };
            let sound = open(bytes.clone()).unwrap();
            let seen = walk(&sound);
            assert!(tear(&mut bytes) > 20, "{}", image.path());
            let torn = open(bytes).unwrap();
            assert_eq!(walk(&torn), seen, "{}", image.path());
            for file in image
                .files()
                .iter()
                .filter(|file| !file.path.starts_with("/.journal"))
            {
                check_file(&torn, &seen, file, image.path());
            }
            assert_eq!(
                (torn.volume().files, torn.volume().folders),
                (sound.volume().files, sound.volume().folders)
            );
            assert!(
                sound.volume().clean && !torn.volume().clean && torn.problems().is_empty(),
                "{:?}",
                torn.problems()
            );
            replayed += 1;
        }
    }
    assert!(replayed >= 2, "only {replayed} journals were replayed");
}

/// Output of `fls -m` for an object.
#[derive(Debug, PartialEq, Eq)]
struct Body {
    mode: String,
    owner: (u32, u32),
    size: u64,
    times: [i64; 4],
}

/// Parses a line of `fls -m`: digest, path, number, mode, owner, group, size and four times.
fn body(line: &str) -> Option<(String, Body)> {
    let fields: Vec<&str> = line.split('|').collect();
    let &[_, path, _, mode, uid, gid, size, ref times @ ..] = fields.as_slice() else {
        return None;
    };
    let path = path.split(" -> ").next()?.trim_end_matches(" (deleted)");
    let mode = mode.split_once('/')?.1.to_owned();
    let times = times
        .iter()
        .map(|time| time.parse().ok())
        .collect::<Option<Vec<i64>>>()?
        .try_into()
        .ok()?;
    Some((
        path.to_owned(),
        Body {
            mode,
            owner: (uid.parse().ok()?, gid.parse().ok()?),
            size: size.parse().ok()?,
            times,
        },
    ))
}

/// Returns our attributes in the form of `fls -m`.
fn body_of(attributes: &Attributes) -> Body {
    let kind = match attributes.kind {
        FileKind::File => 'r',
        FileKind::Folder => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let bit = |shift: u32, letter| {
        if attributes.mode >> shift & 1 == 1 {
            letter
        } else {
            '-'
        }
    };
    let mut mode: String = std::iter::once(kind)
        .chain(
            (0..9)
                .rev()
                .map(|shift| bit(shift, ['x', 'w', 'r'][shift as usize % 3])),
        )
        .collect();
    if attributes.mode & 0o1000 != 0 {
        mode.replace_range(9.., "t");
    }
    let time = |time: Option<Timestamp>| time.map_or(0, |time| time.seconds);
    let times = [
        attributes.accessed,
        attributes.modified,
        attributes.changed,
        attributes.created,
    ]
    .map(time);
    let size = if attributes.kind == FileKind::Folder {
        0
    } else {
        attributes.size
    };
    Body {
        mode,
        owner: (attributes.uid, attributes.gid),
        size,
        times,
    }
}

#[test]
fn sleuthkit_sees_the_same_modes_owners_sizes_and_dates() {
    let test = "sleuthkit_sees_the_same_modes_owners_sizes_and_dates";
    if Command::new("fls").arg("-V").output().is_err() {
        crate::common::skip::without_program(test, "no fls");
        return;
    }
    let Some(images) = corpus::images(test) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for image in images {
        for file_system in image
            .file_systems()
            .iter()
            .filter(|found| matches!(&*found.kind, "HFS+" | "HFSX"))
        {
            let Some(bytes) = volume_bytes(&image, file_system.offset, scratch.path()) else {
                continue;
            };
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let output = Command::new("fls")
                .args(["-r", "-p", "-m", "", "-f", "hfs"])
                .arg(file.path())
                .output()
                .unwrap();
            let theirs: BTreeMap<String, Body> = String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(body)
                .collect();
            for (path, attributes) in walk(&open(bytes).unwrap()) {
                assert_eq!(
                    Some(&body_of(&attributes)),
                    theirs.get(&path),
                    "{}: {path}",
                    image.path()
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 15_000, "only {compared} objects were compared");
}
