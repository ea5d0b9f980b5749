//! Groups of Core Storage, and their property lists.

use std::sync::Arc;

use super::{describe, disk};
use crate::Kind;
use crate::crypt::Secret;
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::VolumeKey;
use crate::fs::core_storage::{Group, fixture, read_property_list};

/// Maximum number of bytes read of a logical volume.
const MAX_READ: u64 = 64 << 10;

/// Takes an input of the number of a metadata block and the description of a physical volume. It
/// opens or is refused, and its logical volumes can be read; once unchanged, and once with the
/// checksums corrected.
pub fn core_storage(input: &[u8]) {
    let Some((&number, rest)) = input.split_first() else {
        return;
    };
    let Some(disk) = disk(rest) else { return };
    let mut bytes = disk.to_vec();
    read_all(bytes.clone());
    fixture::reseal(&mut bytes);
    let block = u64::from(number % 8);
    if bytes.len() >= fixture::metadata_at(fixture::METADATA[1], block + 1) {
        fixture::change_metadata(&mut bytes, block, |_| {});
    }
    read_all(bytes);
}

fn read_all(bytes: Vec<u8>) {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let Ok(group) = Group::open(&[device]) else {
        return;
    };
    for volume in group.volumes().iter().take(4) {
        let key = |_: &_| Ok(VolumeKey::Passphrase(Secret::new(b"guess".to_vec())));
        let Ok(opened) = group.open_volume(volume, &[], &key) else {
            continue;
        };
        let len = opened.info().len.min(MAX_READ);
        if let Err(error) = opened.read_vec(0, len as usize) {
            assert_ne!(error.kind(), Kind::ReadOnly);
        }
    }
}

/// Takes an input that is a property list of the metadata: it is valid, or refused.
pub fn core_storage_list(input: &[u8]) {
    read_property_list(input);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let contents: Vec<u8> = (0..3 * 4096_u32).map(|at| (at / 100) as u8).collect();
    let guess = fixture::Options::new(contents.clone(), "guess");
    let other = fixture::Options {
        region: true,
        in_parts: true,
        names: vec!["One".to_owned(), "Two".to_owned()],
        ..fixture::Options::new(contents, "other")
    };
    let seed = |(number, options): (u8, fixture::Options)| {
        let disks = options.build().into_iter();
        disks
            .map(|disk| [vec![number], describe(&disk)].concat())
            .collect::<Vec<_>>()
    };
    [(3, guess), (1, other)]
        .into_iter()
        .flat_map(seed)
        .collect()
}

pub(super) fn list_seeds() -> Vec<Vec<u8>> {
    vec![
        b"<dict ID=\"0\"><key>a</key><string ID=\"1\">x &amp; y</string><key>b</key><reference \
          IDREF=\"1\"/><key>n</key><integer size=\"32\" ID=\"2\">0x1f</integer><key>d</key>\
          <data ID=\"3\">AQID</data><key>l</key><array ID=\"4\"><true/></array></dict>\0"
            .to_vec(),
    ]
}
