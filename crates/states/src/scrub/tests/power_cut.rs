//! Power cuts during a repair, at every write, sync and rename.

use std::sync::Arc;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::BlockDeviceExt;
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Put, Store};
use bandsaw_testing::{PowerCut, Random};

use super::super::*;
use super::from;

const BUNDLE: &str = "a.sparsebundle";
const COPY: &str = "copy.sparsebundle";
const BAND: &str = "bands/2";

fn write(cut: &PowerCut, folder: &str, name: &str, bytes: &[u8]) {
    let name = format!("{folder}/{name}");
    cut.put(&name, bytes, Put::Replace).unwrap();
    cut.sync().unwrap();
}

fn read(cut: &PowerCut, name: &str) -> Vec<u8> {
    let file = cut.open(name, Open::Read).unwrap().unwrap();
    file.read_vec(0, file.info().len as usize).unwrap()
}

fn bundle(cut: &PowerCut) -> BundleFolder {
    BundleFolder::in_store(Arc::new(cut.folder(BUNDLE))).unwrap()
}

fn repair(cut: &PowerCut) -> Scrubbed {
    scrub(&bundle(cut), &from(&cut.folder(COPY)), &Silent).unwrap()
}

#[test]
fn a_repaired_band_is_sound_or_as_it_was() {
    let cut = PowerCut::default();
    let options = BundleOptions {
        len: 4 << 20,
        band_size: Some(1 << 20),
    };
    let sound = |band: u64| Random::new(band).bytes(700);
    for folder in [BUNDLE, COPY] {
        drop(Bundle::create(Arc::new(cut.folder(folder)), &options).unwrap());
        for band in 0..4 {
            write(&cut, folder, &format!("bands/{band}"), &sound(band));
        }
    }
    scrub(&bundle(&cut), &ScrubOptions::default(), &Silent).unwrap();
    // Rot: the record becomes one of a file that already had its present times.
    let rotten = vec![9; 700];
    write(&cut, BUNDLE, BAND, &rotten);
    {
        let bundle = bundle(&cut);
        let (mut record, _) = Record::begin(&bundle, false).unwrap();
        record.run -= 1;
        record.complete = true;
        let band = record.bands.get_mut(BAND).unwrap();
        band.file = bundle.identity(BAND).unwrap().unwrap();
        band.settled = true;
        record.put(&bundle).unwrap();
    }
    let begun = cut.position();
    assert_eq!(repair(&cut).repaired, [BAND]);
    let (mut repaired, mut rotten_still) = (0, 0);
    for crash in cut.crashes_from(begun, 5, 6) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let cut_store = &crash.store;
        for band in [0, 1, 3] {
            let name = format!("{BUNDLE}/bands/{band}");
            assert!(read(cut_store, &name) == sound(band), "{place}");
        }
        let check = |place: &str| {
            let found = read(cut_store, &format!("{BUNDLE}/{BAND}"));
            assert!(found == sound(2) || found == rotten, "{place}");
            let mut kept = Vec::new();
            let listed = cut_store.list(&format!("{BUNDLE}/.bandsaw/quarantine/"), &mut |entry| {
                kept.push(entry.name.to_owned());
                Ok(())
            });
            listed.unwrap();
            assert!(
                kept.iter().all(|name| read(cut_store, name) == rotten),
                "{place}"
            );
            // The faulty band is kept before another one takes its place.
            assert!(found == rotten || !kept.is_empty(), "{place}");
            found == sound(2)
        };
        let is_end = crash.position == cut.position();
        let is_sound = check(&place);
        assert!(!is_end || is_sound, "{place}: not durable");
        match is_sound {
            true => repaired += 1,
            false => rotten_still += 1,
        }
        let again = repair(cut_store);
        assert!(check(&place), "{place}: {again:?}");
        assert!(again.findings.is_empty(), "{place}: {again:?}");
    }
    assert!(
        repaired > 5 && rotten_still > 20,
        "{repaired} {rotten_still}"
    );
}
