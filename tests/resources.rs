//! Resources of finished images: added, replaced and removed without any change of the disk or its
//! checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::corpus;
use bandsaw::codec::Codec;
use bandsaw::container::Format;
use bandsaw::container::udif::{self, Resource, SplitMethod, license};
use bandsaw::device::{BlockDeviceExt, Memory};
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::ops::resources::{EditOptions, Selector, add, add_license, edit, remove};
use bandsaw::ops::segment::{SegmentOptions, segment};
use bandsaw::ops::verify::verify;
use bandsaw::progress::Silent;
use bandsaw::testing::{Random, udif as sample};
use bandsaw::{Kind, Result};

const LEN: usize = 400 * 512;

fn disk() -> Vec<u8> {
    Random::new(9).bytes(LEN)
}

fn open(path: &Path) -> Result<Image> {
    open::open(
        path,
        &OpenOptions {
            image_format: Some(Format::Udzo),
            ..OpenOptions::default()
        },
    )
}

fn change(
    path: &Path,
    options: &EditOptions,
    change: impl FnOnce(&mut Vec<Resource>) -> Result<()>,
) -> Result<()> {
    edit(path, options, &OpenOptions::default(), &Silent, change)
}

fn with_license(resources: &mut Vec<Resource>) -> Result<()> {
    add(resources, license("Do as you like.\n".as_bytes())?, false)
}

/// Returns the kinds of resources except `blkx`, after checking the rest of the image: the same
/// disk, correct checksums, no files left beside it.
fn kinds(path: &Path, disk: &[u8]) -> Vec<String> {
    let image = open(path).unwrap();
    assert!(image.disk().read_vec(0, disk.len()).unwrap() == disk);
    assert!(
        verify(&image, &Silent)
            .unwrap()
            .iter()
            .all(|verdict| verdict.agrees() != Some(false))
    );
    assert!(image.warnings().is_empty(), "{:?}", image.warnings());
    let beside = image
        .udif()
        .unwrap()
        .resources()
        .iter()
        .filter(|resource| resource.kind != "blkx");
    beside.map(|resource| resource.kind.clone()).collect()
}

fn scratch(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.dmg");
    fs::write(&path, bytes).unwrap();
    (scratch, path)
}

#[test]
fn a_license_comes_and_goes() {
    let (folder, path) = scratch(&sample::image(&disk(), Some(Codec::Zlib)));
    let before = fs::read(&path).unwrap();
    change(&path, &EditOptions::default(), with_license).unwrap();
    assert_eq!(
        kinds(&path, &disk()),
        ["LPic", "STR#", "TEXT", "plst", "styl"]
    );
    // Repeating it changes nothing; a different one is a conflict, unless it may replace the first.
    change(&path, &EditOptions::default(), with_license).unwrap();
    let with = fs::read(&path).unwrap();
    let other = || license("Do not.\n".as_bytes()).unwrap();
    let error = change(&path, &EditOptions::default(), |resources| {
        add(resources, other(), false)
    })
    .unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains("TEXT:5000"),
        "{error}"
    );
    assert!(
        fs::read(&path).unwrap() == with,
        "a change that fails changes nothing"
    );
    change(&path, &EditOptions::default(), |resources| {
        add(resources, other(), true)
    })
    .unwrap();
    assert_eq!(kinds(&path, &disk()).len(), 5);

    let selectors: Vec<Selector> = ["LPic", "STR#:5000", "TEXT:+5000", "styl"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    change(&path, &EditOptions::default(), |resources| {
        remove(resources, &selectors)
    })
    .unwrap();
    assert!(
        fs::read(&path).unwrap() == before,
        "what was is again, byte for byte"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn there_is_one_license() {
    let (_folder, path) = scratch(&sample::image(&disk(), None));
    let add = |text: &str, replace| {
        let new = license(text.as_bytes()).unwrap();
        change(&path, &EditOptions::default(), |resources| {
            add_license(resources, new, replace)
        })
    };
    add("Plain.", false).unwrap();
    add("Plain.", false).unwrap();
    // Of another kind than the existing resource, which therefore conflicts.
    let error = add("日本", false).unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains("TEXT:5000"),
        "{error}"
    );
    add("日本", true).unwrap();
    assert_eq!(kinds(&path, &disk()), ["LPic", "RTF ", "STR#", "plst"]);
}

#[test]
fn another_file_leaves_the_old_one_as_it_is() {
    let (folder, path) = scratch(&sample::image(&disk(), None));
    let (before, new) = (fs::read(&path).unwrap(), folder.path().join("new.dmg"));
    let options = EditOptions {
        target: Some(&new),
        ..EditOptions::default()
    };
    change(&path, &options, with_license).unwrap();
    assert!(fs::read(&path).unwrap() == before && kinds(&new, &disk()).len() == 5);
    assert_eq!(
        change(&path, &options, with_license).unwrap_err().kind(),
        Kind::Conflict
    );
    change(
        &path,
        &EditOptions {
            overwrite: true,
            ..options
        },
        with_license,
    )
    .unwrap();
}

#[test]
fn block_tables_are_never_changed() {
    let (_folder, path) = scratch(&sample::image(&disk(), None));
    let before = fs::read(&path).unwrap();
    let blkx = || vec!["blkx".parse().unwrap()];
    let fails = |make: &dyn Fn(&mut Vec<Resource>) -> Result<()>| {
        let error =
            change(&path, &EditOptions::default(), |resources| make(resources)).unwrap_err();
        assert!(fs::read(&path).unwrap() == before);
        error.kind()
    };
    assert_eq!(
        fails(&|resources| remove(resources, &blkx())),
        Kind::Invalid
    );
    let without = |resources: &mut Vec<Resource>| {
        resources.retain(|resource| resource.kind != "blkx");
        Ok(())
    };
    let other = |resources: &mut Vec<Resource>| {
        resources[0].data[200] ^= 1;
        Ok(())
    };
    assert_eq!(
        (fails(&without), fails(&other)),
        (Kind::Invalid, Kind::Invalid)
    );
    assert_eq!(
        fails(&|resources| remove(resources, &["TEXT".parse().unwrap()])),
        Kind::NotFound
    );
    // Those in a list from another image are ignored.
    change(&path, &EditOptions::default(), |resources| {
        let mut others = resources.clone();
        others
            .iter_mut()
            .for_each(|resource| resource.data = vec![1]);
        add(resources, others, true)
    })
    .unwrap();
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_signature_is_not_lost_unasked() {
    let signed = sample::signed(&sample::image(&disk(), Some(Codec::Lzfse)));
    let (_folder, path) = scratch(&signed);
    assert_eq!(kinds(&path, &disk()), ["plst"]);
    let error = change(&path, &EditOptions::default(), with_license).unwrap_err();
    assert!(
        error.kind() == Kind::ReadOnly && error.message().contains("signature"),
        "{error}"
    );
    assert!(fs::read(&path).unwrap() == signed);
    change(
        &path,
        &EditOptions {
            remove_signature: true,
            ..EditOptions::default()
        },
        with_license,
    )
    .unwrap();
    assert!(
        kinds(&path, &disk()).len() == 5
            && open(&path).unwrap().udif().unwrap().signature().is_none()
    );
}

#[test]
fn the_first_of_a_set_holds_them() {
    let (folder, path) = scratch(&sample::image(&disk(), None));
    let first = folder.path().join("set.dmg");
    let cut = SplitMethod::Count {
        first: None,
        parts: 3,
    };
    let options = SegmentOptions {
        cut,
        overwrite: false,
        remove_signature: false,
    };
    let files = segment(&open(&path).unwrap(), &first, &options, &Silent).unwrap();
    change(&first, &EditOptions::default(), with_license).unwrap();
    assert_eq!(kinds(&first, &disk()).len(), 5);
    assert_eq!(
        change(&files[1], &EditOptions::default(), with_license)
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
}

#[test]
fn a_binary_resource_fork_is_written_back_as_a_list() {
    let whole = sample::image(&disk(), Some(Codec::Zlib));
    for both in [false, true] {
        let (_folder, path) = scratch(&sample::with_fork(&whole, both));
        assert_eq!(
            kinds(&path, &disk()),
            if both {
                vec!["plst", "vers"]
            } else {
                vec!["vers"]
            }
        );
        change(&path, &EditOptions::default(), with_license).unwrap();
        let kinds = kinds(&path, &disk());
        assert!(
            kinds.contains(&"vers".into()) && kinds.contains(&"TEXT".into()),
            "{kinds:?}"
        );
        let after = fs::read(&path).unwrap();
        assert_eq!(
            after[after.len() - 512 + 0x28..][..16],
            [0; 16],
            "a fork would say something else than the list"
        );
        let vers = &open(&path).unwrap().udif().unwrap().resources().to_vec();
        let vers = vers
            .iter()
            .find(|resource| resource.kind == "vers")
            .unwrap();
        assert_eq!(
            (vers.id.as_str(), vers.name.as_str(), vers.data.as_slice()),
            ("1", "caf\u{e9}", &b"1.0"[..])
        );
    }
}

#[test]
fn a_link_stays_a_link() {
    let (folder, path) = scratch(&sample::image(&disk(), None));
    let link = folder.path().join("link.dmg");
    std::os::unix::fs::symlink("a.dmg", &link).unwrap();
    change(&link, &EditOptions::default(), with_license).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(kinds(&path, &disk()).len(), 5);
}

#[test]
fn lists_of_others_are_taken() {
    // As create-dmg writes them for hdiutil udifrez, and as an image contains them.
    let bare = b"<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>TEXT</key><array><dict><key>Attributes</key>\
        <string>0x0000</string><key>Data</key><data>\n\t\tYQ==\n\t</data><key>ID</key><string>5000</string><key>Name</key>\
        <string>English</string></dict></array></dict></plist>";
    let (_folder, path) = scratch(&sample::image(&disk(), None));
    let new = udif::from_list(bare).unwrap();
    assert_eq!((new.len(), new[0].data.as_slice()), (1, &b"a"[..]));
    change(&path, &EditOptions::default(), |resources| {
        add(resources, new, false)
    })
    .unwrap();
    assert_eq!(kinds(&path, &disk()), ["TEXT", "plst"]);
    assert!(udif::from_list(b"no list").is_err());
}

#[test]
fn selectors_are_kinds_and_numbers() {
    let of = |text: &str| {
        text.parse::<Selector>()
            .map(|selector| (selector.kind, selector.id))
    };
    assert_eq!(of("TEXT").unwrap(), ("TEXT".into(), None));
    assert_eq!(of("RTF:-5").unwrap(), ("RTF ".into(), Some(-5)));
    for same in ["TEXT:5000", "TEXT:+5000", "TEXT:05000"] {
        assert_eq!(of(same).unwrap(), ("TEXT".into(), Some(5000)), "{same}");
    }
    for wrong in ["", "TEXTS", "TEXT:x", ":1", "TEXT:99999"] {
        assert_eq!(of(wrong).unwrap_err().kind(), Kind::Invalid, "{wrong}");
    }
}

#[test]
fn real_images_keep_what_they_have() {
    for image in corpus::images("real_images_keep_what_they_have").unwrap_or_default() {
        let Some(bytes) = image
            .bytes()
            .filter(|_| image.format() == "UDIF" && image.number("media_size") < Some(1 << 26))
        else {
            continue;
        };
        let medium = |path: &Path| {
            let image =
                udif::Udif::open(Arc::new(Memory::read_only(fs::read(path).unwrap()))).unwrap();
            let len = bandsaw::device::BlockDevice::info(&image).len;
            assert!(
                image
                    .verify(&Silent)
                    .unwrap()
                    .iter()
                    .all(|verdict| verdict.agrees() != Some(false))
            );
            (
                corpus::sha256(&image.read_vec(0, len as usize).unwrap()),
                image.resources().to_vec(),
            )
        };
        let (_folder, path) = scratch(&bytes);
        let (sum, mut before) = medium(&path);
        let signed = udif::read_list(&Memory::read_only(bytes.clone()))
            .unwrap()
            .1
            .is_some();
        let options = EditOptions {
            remove_signature: true,
            ..EditOptions::default()
        };
        let replaced = |resources: &mut Vec<Resource>| add(resources, license(b"x").unwrap(), true);
        assert_eq!(
            change(&path, &EditOptions::default(), replaced).is_err(),
            signed,
            "{}",
            image.path()
        );
        change(&path, &options, replaced).unwrap();
        let (after_sum, mut after) = medium(&path);
        assert_eq!(after_sum, sum, "{}", image.path());
        before.retain(|resource| !udif::LICENSE_KINDS.contains(&resource.kind.as_str()));
        after.retain(|resource| !udif::LICENSE_KINDS.contains(&resource.kind.as_str()));
        before.sort_by(|one, other| one.kind.cmp(&other.kind));
        assert_eq!(after, before, "{}", image.path());
    }
}
