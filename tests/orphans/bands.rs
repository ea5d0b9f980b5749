//! Bands that belong to no part of the disk.

use super::*;

/// A band of files that has a name past the end of the disk is not removed by a change of the length or
/// of the band size.
#[test]
fn a_band_with_another_name_is_no_leftover() {
    let sample = Sample::new(Format::Udsb, NewFormat::HfsPlus);
    let expected = sample.contents();
    let band = |name: &str| sample.path.join("bands").join(name);
    fs::rename(band("3"), band("ff")).unwrap();
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let image = open::open(&sample.path, &options).unwrap();
    let grow = ResizeOptions {
        size: Size::Bytes(300 << 20),
        parts: Parts::Image,
        volume: None,
        dry_run: false,
    };
    let error = resize(&image, &grow, &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    drop(image);
    let error = reband(&sample.path, Some(2 << 20), &options, &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Undecided, "{error}");
    fs::rename(band("ff"), band("3")).unwrap();
    assert_eq!(sample.contents(), expected);
}

/// A band of a file under the name of a free one: a mount must not free it, and `check` has a note.
#[test]
fn a_band_with_the_name_of_a_free_one_stays() {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    for volume in [
        NewFormat::HfsPlus,
        NewFormat::HfsPlusJournaled,
        NewFormat::Apfs,
    ] {
        let sample = Sample::new(Format::Udsb, volume);
        let expected = sample.contents();
        let band = |name: &str| sample.path.join("bands").join(name);
        let is_noted = || {
            let found = open::examine(&sample.path, &OpenOptions::default(), &Silent).unwrap();
            let mut listed = found.problems.listed().iter();
            listed.any(|problem| problem.error.message().contains("may belong together"))
        };
        let free = |name: &str| {
            let image = open::open(&sample.path, &options).unwrap();
            let trimmed = before_use(&image, None, &Silent).unwrap();
            drop(image);
            let refused = trimmed.iter().filter_map(|volume| volume.warning());
            (refused.collect::<Vec<_>>(), band(name).exists())
        };
        assert!(!is_noted(), "{volume:?}");
        assert!(free("3").0.is_empty(), "{volume:?}");
        let unused = ["8", "9"].into_iter().find(|name| !band(name).exists());
        let unused = unused.expect("a free band");
        fs::rename(band("3"), band(unused)).unwrap();
        assert!(is_noted(), "{volume:?}");
        let (refused, is_kept) = free(unused);
        assert!(is_kept && refused.len() == 1, "{volume:?}: {refused:?}");
        fs::rename(band(unused), band("3")).unwrap();
        assert_eq!(sample.contents(), expected, "{volume:?}");
    }
}

#[test]
fn a_band_without_a_label_stays() {
    for volume in [NewFormat::HfsPlus, NewFormat::Apfs] {
        let sample = Sample::new(Format::Udsp, volume);
        let at = label_of_contents(&sample.bytes());
        let damage = |bytes: &mut Vec<u8>| bytes[at..at + 4].fill(0);
        check_lost_reference(&sample, damage, &format!("{volume:?}"));
    }
}

#[test]
fn a_first_band_with_another_number_is_not_written_anew() {
    let sample = Sample::new(Format::Udsp, NewFormat::HfsPlus);
    let expected = sample.contents();
    let bytes = sample.bytes();
    let labels: Vec<_> = (0..1008)
        .map(|slot| be(&bytes, 0x40 + 4 * slot, 4))
        .collect();
    let first = labels.iter().position(|label| *label == 1).unwrap();
    let unused = (1..=12).find(|number| !labels.contains(number)).unwrap();
    let at = 0x40 + 4 * first;
    let label = |number: u32| {
        move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&number.to_be_bytes())
    };
    let damaged = sample.edit(label(unused as u32));
    let done = sample.repair(&[]);
    assert_eq!(done.outcome, Outcome::Undecided, "{done:?}");
    assert_eq!(alternatives(&done), ["map=alternate"]);
    assert!(sample.bytes() == damaged);
    sample.edit(label(1));
    assert_eq!(sample.contents(), expected);
}

/// A band of files is called `03`: it reads as zeros, which no verb stores again.
#[test]
fn a_band_with_no_name_of_a_band_is_not_stored_as_zeros() {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let sample = Sample::new(Format::Udsb, NewFormat::Apfs);
    let band = |name: &str| sample.path.join("bands").join(name);
    let open = || {
        let image = open::open(&sample.path, &options).unwrap();
        RewritableVolume::open(&image, None, None, &Silent)
    };
    // A file that is no band, where no band is missing.
    fs::write(band("notes"), [7; 100]).unwrap();
    open().unwrap().unmount().unwrap();
    fs::remove_file(band("notes")).unwrap();
    for other in ["03", "3.tmp"] {
        fs::rename(band("3"), band(other)).unwrap();
        let error = open().unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{other}: {error}");
        assert!(error.message().contains(other), "{error}");
        // A band of another size would take the place of the missing one.
        let error = reband(&sample.path, Some(2 << 20), &options, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{other}: {error}");
        assert!(error.message().contains(other), "{error}");
        assert!(band(other).exists() && !sample.path.join("rebanding.plist").exists());
        fs::rename(band(other), band("3")).unwrap();
    }
}

/// With a wrong band size no volume is found: nothing is moved, freed or truncated.
#[test]
fn a_wrong_band_size_frees_nothing() {
    let sample = Sample::new(Format::Udsp, NewFormat::HfsPlus);
    let expected = sample.contents();
    let damaged = sample.edit(|bytes| bytes[8..12].copy_from_slice(&1024_u32.to_be_bytes()));
    assert!(sample.plan().orphans.kept.is_some());
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    // The image may be refused as unknown contents before.
    if let Ok(image) = open::open(&sample.path, &options) {
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        let done = compact::compact(&image, &options, None, &Silent).unwrap();
        assert!(!done.orphans.is_resolved());
    }
    let done = sample.repair(&[]);
    assert_ne!(done.outcome, Outcome::Repaired, "{done:?}");
    assert!(sample.bytes() == damaged);
    sample.edit(|bytes| bytes[8..12].copy_from_slice(&2048_u32.to_be_bytes()));
    assert_eq!(sample.contents(), expected);
}

#[test]
fn bands_past_the_end_of_a_bundle() {
    let sample = Sample::new(Format::Udsb, NewFormat::HfsPlus);
    let expected = sample.contents();
    let band = |name: &str| sample.path.join("bands").join(name);
    fs::write(band("ff"), [7; 4096]).unwrap();
    let plan = sample.plan();
    assert_eq!((plan.orphans.bytes(), plan.orphans.kept), (4096, None));
    let done = sample.compact();
    assert!(done.orphans.kept.is_some() && band("ff").exists());
    assert_eq!(sample.repair(&[]).outcome, Outcome::Repaired);
    assert!(!band("ff").exists());
    assert_eq!(sample.contents(), expected);
    // A band of files that has another name: the two belong together.
    fs::rename(band("3"), band("ff")).unwrap();
    let (worst, is_in_doubt) = sample.check();
    assert!(worst >= Some(Severity::Warning) && is_in_doubt, "{worst:?}");
    let done = sample.compact();
    assert!(done.orphans.kept.is_some());
    fs::rename(band("ff"), band("3")).unwrap();
    assert_eq!(sample.contents(), expected);
}

/// A size that no bundle has costs no more than one that some have.
#[test]
fn huge_sizes_take_no_time() {
    let sample = Sample::new(Format::Udsb, NewFormat::HfsPlus);
    for size in [1_u64 << 54, 1 << 60, 1 << 63] {
        for list in ["Info.plist", "Info.bckup"] {
            set_size(&sample.path.join(list), size);
        }
        sample.check();
        let options = Options::default();
        repair(&sample.path, &OpenOptions::default(), &options, &Silent).unwrap();
    }
}

fn set_size(list: &Path, size: u64) {
    let text = fs::read_to_string(list).unwrap();
    let key = text.find("<key>size</key>").unwrap();
    let start = key + text[key..].find("<integer>").unwrap() + "<integer>".len();
    let end = start + text[start..].find('<').unwrap();
    fs::write(list, format!("{}{size}{}", &text[..start], &text[end..])).unwrap();
}

/// What a file stores past the end of its band is kept: a shorter disk would remove it.
#[test]
fn bytes_past_the_end_of_a_band_stay_if_the_disk_becomes_shorter() {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let shrink = |sample: &Sample, size, parts| {
        let image = open::open(&sample.path, &options).unwrap();
        let shrink = ResizeOptions {
            size,
            parts,
            volume: None,
            dry_run: false,
        };
        resize(&image, &shrink, &Silent)
    };
    let sample = Sample::new(Format::Udsb, NewFormat::HfsPlus);
    let expected = sample.contents();
    let image = open::open(&sample.path, &OpenOptions::default()).unwrap();
    let min = limits(&image, None).unwrap().min;
    drop(image);
    let last = (min - 1) / MIB as u64;
    for number in [last, last + 1] {
        let band = sample.path.join(format!("bands/{number:x}"));
        let before = fs::read(&band).ok();
        let mut bytes = before.clone().unwrap_or_default();
        bytes.resize(MIB, 0);
        bytes.extend(Random::new(9).bytes(5000));
        fs::write(&band, &bytes).unwrap();
        let error = shrink(&sample, Size::Min, Parts::All).unwrap_err();
        assert_eq!(error.kind(), Kind::Undecided, "{error}");
        assert!(error.message().contains("`bandsaw repair`"), "{error}");
        assert!(fs::read(&band).unwrap() == bytes);
        assert_eq!(sample.contents(), expected);
        match before {
            Some(before) => fs::write(&band, before).unwrap(),
            None => fs::remove_file(&band).unwrap(),
        }
    }
    // A band that stays as it is.
    let band = sample.path.join("bands/2");
    let mut bytes = fs::read(&band).unwrap();
    bytes.resize(MIB, 0);
    bytes.extend(Random::new(9).bytes(5000));
    fs::write(&band, &bytes).unwrap();
    shrink(&sample, Size::Min, Parts::All).unwrap();
    assert!(fs::read(&band).unwrap().len() == bytes.len());
    assert_eq!(sample.contents(), expected);
}

/// The trim before a use of an image with a layer over it changes the layer: the undo data of a repair of
/// the layer prevents it, and that of the image below does not.
#[test]
fn undo_data_of_a_layer_prevents_a_trim() {
    let sample = Sample::new(Format::Udsb, NewFormat::HfsPlus);
    let layers = [sample.folder.path().join("layer.asif")];
    let options = OpenOptions {
        access: Access::ReadWrite,
        shadows: &layers,
        ..OpenOptions::default()
    };
    let trims = || {
        let image = open::open(&sample.path, &options).unwrap();
        !before_use(&image, None, &Silent).unwrap().is_empty()
    };
    let undo = |path: &Path| repair::undo_folder(path, None);
    assert!(trims());
    fs::create_dir(undo(&sample.path)).unwrap();
    assert!(trims());
    fs::create_dir(undo(&layers[0])).unwrap();
    assert!(!trims());
}

/// A band of files that is missing reads as zeros, like one of zeros that was never written: `check` does
/// not call that image one without problems.
#[test]
fn a_missing_band_of_files_is_noted() {
    for volume in [NewFormat::HfsPlus, NewFormat::Apfs] {
        let sample = Sample::new(Format::Udsb, volume);
        let notes = || {
            let found = open::examine(&sample.path, &OpenOptions::default(), &Silent).unwrap();
            let mut listed = found.problems.listed().iter();
            assert!(listed.all(|problem| problem.severity == Severity::Note));
            let listed = found.problems.listed().iter();
            let messages = listed.map(|problem| problem.error.message().to_owned());
            messages.collect::<Vec<_>>()
        };
        assert_eq!(notes(), [""; 0], "{volume:?}");
        fs::remove_file(sample.path.join("bands/3")).unwrap();
        let found = notes();
        let is_noted = |note: &String| note.starts_with("1,048,576 bytes that files use");
        assert!(found.iter().any(is_noted), "{volume:?}: {found:?}");
    }
}
