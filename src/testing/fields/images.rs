//! Small images of every kind, each with the structures whose fields are changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::Result;
use crate::container::Format;
use crate::crypt::{Encryption, MIN_ITERATIONS, Secret};
use crate::device::BlockDeviceExt;
use crate::fs::Timestamp;
use crate::open::OpenOptions;
use crate::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use crate::ops::format::NewFormat;
use crate::progress::Silent;
use crate::store::{MemoryStore, Open, Put, Store};
use crate::testing::Random;
use crate::testing::contents::{self, Contents};

use super::structures::{self, Seal, Structure};

/// The passphrase of the encrypted images.
pub const PASSPHRASE: &str = "fields";

/// An image with its fields that can be changed.
#[derive(Debug)]
pub(super) struct Image {
    /// Its name on disk.
    pub(super) name: &'static str,
    /// Its contents.
    pub(super) files: Files,
    /// The structures in its files.
    pub(super) structures: Vec<Structure>,
    /// The property lists among the files, in which each number is a field.
    pub(super) lists: Vec<String>,
    /// True if it has a passphrase.
    pub(super) is_encrypted: bool,
}

/// The contents of each file of an image, under its path within a bundle; the path of a single file
/// is "".
pub(super) type Files = BTreeMap<String, Vec<u8>>;

impl Image {
    /// Returns a store in memory that contains the image with these files.
    pub(super) fn store(&self, files: &Files) -> Arc<dyn Store> {
        let store = MemoryStore::default();
        for (name, bytes) in files {
            let name = if name.is_empty() {
                self.name.to_owned()
            } else {
                format!("{}/{name}", self.name)
            };
            store.put(&name, bytes, Put::Replace).unwrap();
        }
        Arc::new(store)
    }

    /// Reads the files of the image in a store.
    pub(super) fn read(&self, store: &Arc<dyn Store>) -> Files {
        let mut files = Files::new();
        let folder = format!("{}/", self.name);
        store
            .list(self.name, &mut |entry| {
                let within = if entry.name == self.name {
                    Some("")
                } else {
                    entry.name.strip_prefix(&folder)
                };
                if let Some(within) = within {
                    let file = store.open(entry.name, Open::Read)?.unwrap();
                    files.insert(
                        within.to_owned(),
                        file.read_vec(0, file.info().len as usize)?,
                    );
                }
                Ok(())
            })
            .unwrap();
        files
    }

    /// Returns the contents of every file on its volume, with these bytes as the image.
    pub(super) fn contents(&self, files: &Files, keys: &Secret) -> Result<Contents> {
        let store = MemoryStore::default();
        for (name, bytes) in files {
            store.put(
                if name.is_empty() { self.name } else { name },
                bytes,
                Put::Replace,
            )?;
        }
        let options = OpenOptions {
            keys: Some(keys),
            ..OpenOptions::default()
        };
        let file = files.contains_key("").then_some(self.name);
        let mut contents = contents::contents(Arc::new(store), file, &options)?;
        // If the journal's flag in the volume header is cleared, its files are listed like all
        // others.
        contents.retain(|path, _| !matches!(path.as_str(), "/.journal" | "/.journal_info_block"));
        Ok(contents)
    }
}

/// Writes the files of an image, and the folder that holds it.
pub(super) fn write(path: &Path, files: &Files) {
    for (name, bytes) in files {
        let file = if name.is_empty() {
            path.to_owned()
        } else {
            path.join(name)
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
}

/// Reads every file of an image.
pub(super) fn read(path: &Path) -> Files {
    let mut files = Files::new();
    if path.is_file() {
        files.insert(String::new(), fs::read(path).unwrap());
        return files;
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry
                    .strip_prefix(path)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.insert(name, fs::read(&entry).unwrap());
            }
        }
    }
    files
}

/// Number of files and links on each volume.
pub(super) const FILES: usize = 49;

/// Returns the path of file `number` of 48 on each volume.
pub fn file(number: usize) -> String {
    format!(
        "/folder {}/a file with a name of some length, {number:02}",
        number % 4
    )
}

/// Number of long files for the formats that store a disk in bands or chunks of one file.
const LONG_FILES: usize = 3;

/// Creates a folder with files of several lengths, enough for trees of several nodes. Their contents
/// are random, so that a file that is read from another place differs. `long` files fill several
/// bands or chunks, so that one that is lost takes away contents only.
fn fill(folder: &Path, long: usize) {
    for number in 0..long {
        let bytes = Random::new(1000 + number as u64).bytes(1_200_000);
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(format!("long {number}")), bytes).unwrap();
    }
    for number in 0..48_usize {
        let name = folder.join(&file(number)[1..]);
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::write(&name, Random::new(number as u64).bytes(number * 97)).unwrap();
    }
    std::os::unix::fs::symlink("folder 1", folder.join("link")).unwrap();
}

fn make(
    folder: &Path,
    name: &'static str,
    source: &Path,
    format: Format,
    layout: Layout,
    volume: NewFormat,
    encrypted: bool,
) -> Image {
    let path = folder.join(name);
    let volume = NewVolume {
        layout,
        name: "Data".into(),
        format: volume,
        block_size: None,
        source: Source::Folder(source.to_owned()),
    };
    let encryption = encrypted.then(|| Encryption {
        iterations: Some(MIN_ITERATIONS),
        ..Encryption::new(Secret::new(PASSPHRASE.into()))
    });
    let options = CreateOptions {
        format,
        band_size: format.has_bands().then_some(1 << 20),
        volume: Some(volume),
        encryption,
        epoch: Some(Timestamp::from_seconds(1_700_000_000)),
        ..CreateOptions::default()
    };
    drop(create(&path, options, &Silent).unwrap());
    let files = read(&path);
    Image {
        name,
        files,
        structures: Vec::new(),
        lists: Vec::new(),
        is_encrypted: encrypted,
    }
}

/// Creates every image below `folder`.
pub(super) fn all(folder: &Path) -> Vec<Image> {
    let source = folder.join("source");
    fill(&source, 0);
    let long = folder.join("long source");
    fill(&long, LONG_FILES);
    let raw =
        |name, layout, volume| make(folder, name, &source, Format::Udrw, layout, volume, false);
    let mut images = Vec::new();
    for (name, format) in [
        ("hfs.img", NewFormat::HfsPlus),
        ("hfsx.img", NewFormat::Hfsx),
        ("journaled.img", NewFormat::HfsPlusJournaled),
        ("apfs.img", NewFormat::Apfs),
    ] {
        let mut image = raw(name, Layout::None, format);
        let bytes = &image.files[""];
        image.structures = match format {
            NewFormat::Apfs => structures::apfs(bytes, 0..bytes.len()),
            _ => structures::hfsplus(bytes, 0..bytes.len()),
        };
        images.push(image);
    }
    for (name, layout) in [
        ("gpt.img", Layout::Gptspud),
        ("apm.img", Layout::Spud),
        ("mbr.img", Layout::MbrSpud),
    ] {
        let mut image = raw(name, layout, NewFormat::HfsPlus);
        image.structures = match layout {
            Layout::Gptspud => structures::gpt(&image.files[""]),
            Layout::Spud => structures::apm(&image.files[""]),
            _ => structures::mbr(),
        };
        images.push(image);
    }
    let mut image = raw("gpt-apfs.img", Layout::Gptspud, NewFormat::Apfs);
    image.structures = structures::gpt(&image.files[""]);
    images.push(image);
    for (name, volume, encrypted) in [
        ("hfs.sparsebundle", NewFormat::HfsPlus, false),
        ("apfs.sparsebundle", NewFormat::Apfs, false),
        ("secret.sparsebundle", NewFormat::HfsPlus, true),
    ] {
        let mut image = make(
            folder,
            name,
            &source,
            Format::Udsb,
            Layout::Gptspud,
            volume,
            encrypted,
        );
        image.lists = ["Info.plist", "Info.bckup"].map(String::from).to_vec();
        if encrypted {
            image.structures = structures::encryption(&image.files["token"]);
            image
                .structures
                .iter_mut()
                .for_each(|structure| structure.file = "token".into());
        }
        images.push(image);
    }
    for (name, format) in [
        ("hfs.sparseimage", Format::Udsp),
        ("hfs.asif", Format::Asif),
        ("hfs.dmg", Format::Udzo),
    ] {
        let mut image = make(
            folder,
            name,
            if format == Format::Udzo {
                &source
            } else {
                &long
            },
            format,
            Layout::Gptspud,
            NewFormat::HfsPlus,
            false,
        );
        let bytes = &image.files[""];
        image.structures = match format {
            Format::Udsp => structures::sparse_image(),
            Format::Asif => structures::asif(bytes),
            _ => structures::udif(bytes),
        };
        images.push(image);
    }
    for image in &images {
        assert!(
            image
                .structures
                .iter()
                .all(|structure| structure.range().end <= image.files[&structure.file].len())
        );
    }
    images
}

/// A change of one field.
#[derive(Debug)]
pub(super) struct FieldChange {
    /// Its name for messages: structure, field, value.
    pub(super) name: String,
    pub(super) file: String,
    /// The range of the file that shows whether a verb has written the field since: the field alone,
    /// or the whole structure if it has a checksum or is a list.
    pub(super) unit: std::ops::Range<usize>,
    /// The range of the structure within the file; a list is one structure.
    pub(super) structure: std::ops::Range<usize>,
    /// The new contents of the file.
    pub(super) bytes: Vec<u8>,
    /// The ranges that changed, including checksums.
    pub(super) changed: Vec<std::ops::Range<usize>>,
}

impl Image {
    /// Returns the number of [`change`](Self::change)s.
    pub(super) fn fields(&self) -> usize {
        self.structures
            .iter()
            .map(|structure| structure.fields.len())
            .sum::<usize>()
            + self.lists.len() * LIST_KEYS.len()
    }

    /// Returns the change number `which` of field number `field`; `None` if it changes nothing.
    pub(super) fn change(&self, mut field: usize, which: u64, random: u64) -> Option<FieldChange> {
        for structure in &self.structures {
            if let Some(field) = structure.fields.get(field) {
                return self.change_bytes(structure, field, which, random);
            }
            field -= structure.fields.len();
        }
        self.change_list(
            &self.lists[field / LIST_KEYS.len()],
            LIST_KEYS[field % LIST_KEYS.len()],
            which,
            random,
        )
    }

    fn change_bytes(
        &self,
        structure: &Structure,
        field: &super::layout::Field,
        which: u64,
        random: u64,
    ) -> Option<FieldChange> {
        let original = &self.files[&structure.file];
        let mut bytes = original.clone();
        let range = structure.offset + field.offset..structure.offset + field.offset + field.size;
        let is_sealed = which % 2 == 1 && !matches!(structure.seal, Seal::None);
        let value = if field.is_number {
            let shift = |index: usize| {
                8 * if field.is_big_endian {
                    field.size - 1 - index
                } else {
                    index
                }
            };
            let old = bytes[range.clone()]
                .iter()
                .enumerate()
                .fold(0_u64, |value, (index, byte)| {
                    value | u64::from(*byte) << shift(index)
                });
            let new = changed_number(old, field.size, which / 2, random);
            for (index, byte) in bytes[range.clone()].iter_mut().enumerate() {
                *byte = (new >> shift(index)) as u8;
            }
            format!("{old:#x} -> {new:#x}")
        } else {
            let at = range.start + random as usize % field.size;
            match which / 2 % 3 {
                0 => bytes[at] ^= 1 << (random >> 32 & 7),
                1 => bytes[range.clone()].fill(0),
                _ => bytes[range.clone()].fill(0xFF),
            }
            format!("bytes, kind {}", which / 2 % 3)
        };
        if bytes == *original {
            return None;
        }
        let unit = match structure.seal {
            Seal::None => range.clone(),
            _ => structure.range(),
        };
        let mut changed = vec![range];
        if is_sealed {
            structure.seal.seal(&mut bytes);
            changed.extend(structure.seal.ranges(&bytes));
        }
        let name = format!(
            "{}, {}, {value}{}",
            structure.name,
            field.name,
            if is_sealed { ", checksum right" } else { "" }
        );
        Some(FieldChange {
            name,
            file: structure.file.clone(),
            unit,
            structure: structure.range(),
            bytes,
            changed,
        })
    }

    fn change_list(&self, list: &str, key: &str, which: u64, random: u64) -> Option<FieldChange> {
        let original = std::str::from_utf8(&self.files[list]).unwrap();
        let at = original.find(&format!("<key>{key}</key>"))?;
        let (open, close) = if key.ends_with("-type") || key.contains("Version") {
            ("<string>", "</string>")
        } else {
            ("<integer>", "</integer>")
        };
        let start = at + original[at..].find(open)? + open.len();
        let end = start + original[start..].find(close)?;
        let new = match original[start..end].parse::<u64>() {
            Ok(old) => changed_number(old, 8, which, random).to_string(),
            Err(_) => "com.example.other".to_owned(),
        };
        let text = format!("{}{new}{}", &original[..start], &original[end..]);
        let name = format!("{list}, {key}, {} -> {new}", &original[start..end]);
        let len = text.len();
        (text != original).then(|| FieldChange {
            name,
            file: list.to_owned(),
            unit: 0..len,
            structure: 0..len,
            bytes: text.into_bytes(),
            changed: std::iter::once(0..len).collect(),
        })
    }
}

const LIST_KEYS: [&str; 4] = [
    "band-size",
    "size",
    "bundle-backingstore-version",
    "diskimage-bundle-type",
];

/// Returns another number to replace `old`.
fn changed_number(old: u64, size: usize, which: u64, random: u64) -> u64 {
    let bits = 8 * size as u32;
    let mask = u64::MAX >> (64 - bits);
    let new = match which % 12 {
        0 => 0,
        1 => mask,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old << 1,
        5 => old >> 1,
        6 => old ^ 1 << (random % u64::from(bits)),
        7 => old ^ 1 << (bits - 1),
        8 => old ^ 1,
        9 => random % old.max(8).saturating_mul(2),
        10 => 1,
        _ => random,
    };
    new & mask
}
