//! Damaged volumes, one structure at a time, are mended, and what was not damaged is still there.

use std::sync::Arc;

use super::*;
use crate::device::{BlockDeviceExt, Memory};
use crate::fs::hfsplus::check::damage::{ATTRIBUTES, CATALOG, Case, TREES, VOLUME};
use crate::fs::hfsplus::check::patient::Patient;
use crate::fs::hfsplus::layout::FILE_LINK_TYPE;
use crate::fs::hfsplus::{HfsPlus, HfsPlusMut, WriteOptions};
use crate::fs::{FileKind, FileSystem, FileSystemExt, FileSystemMut, Fork, NewKind, NewNode};
use crate::progress::Silent;

/// How many of the patient's 120 files are somewhere, with their names and contents.
fn files_in(device: &Arc<Memory>) -> usize {
    let volume = HfsPlus::open(Arc::new(Memory::read_only(device.to_vec()))).unwrap();
    let mut waiting = vec![volume.root()];
    let mut found = 0;
    while let Some(folder) = waiting.pop() {
        for entry in volume.entries(folder).unwrap() {
            if entry.attributes.kind == FileKind::Folder {
                waiting.push(entry.attributes.id);
            }
            let whole = entry.name.starts_with("file ") && entry.attributes.kind == FileKind::File && {
                let fork = volume.open(entry.attributes.id, Fork::Data).unwrap();
                fork.read_vec(0, fork.info().len as usize).unwrap() == vec![0x41; 5000]
            };
            found += usize::from(whole);
        }
    }
    found
}

fn repaired(damage: &Case, case_sensitive: bool) -> Result<Arc<Memory>> {
    let mut patient = Patient::new(case_sensitive);
    damage.0(&mut patient);
    let device = Arc::new(Memory::from(patient.bytes));
    let repair = Repair::plan(device.clone(), &Silent)?;
    repair.apply(&Silent)?;
    let left = check(device.clone(), &Silent)?;
    match left.into_iter().find(is_wrong) {
        None => Ok(device),
        Some(problem) => Err(Error::new(Kind::Corrupt, LAYER, format!("{:?} leave {}", repair.steps(), problem.error))),
    }
}

/// Damage after which the records of a leaf cannot be told apart.
const LEAF_LOST: [&str; 4] =
    ["kind -1 and height 1 expected", "holds no records", "claims 9999 records", "offset 1 of its records"];

#[test]
fn damage_of_every_kind_is_mended() {
    let mut refused = Vec::new();
    for damage in [VOLUME, TREES, CATALOG, ATTRIBUTES].into_iter().flatten() {
        match repaired(damage, false) {
            Ok(device) => {
                // A leaf that is no node any more takes what was in it.
                let least = if LEAF_LOST.contains(&damage.2) { 80 } else { 119 };
                let files = files_in(&device);
                if files < least {
                    refused.push(format!("{}: {files} files are left", damage.2));
                }
            }
            Err(error) => refused.push(format!("{}: {error}", damage.2)),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn a_file_that_only_has_the_type_of_a_link_is_kept() {
    let mut patient = Patient::new(false);
    patient.file("file 3", |raw| (raw.user_info.file_type, raw.user_info.creator) = FILE_LINK_TYPE);
    assert!(patient.check().is_empty());
    patient.flip(2000);
    let device = Arc::new(Memory::from(patient.bytes));
    Repair::plan(device.clone(), &Silent).unwrap().apply(&Silent).unwrap();
    assert_eq!(files_in(&device), 120);
}

#[test]
fn what_an_interrupted_change_left_is_not_rebuilt_around() {
    let device = Arc::new(Memory::from(Patient::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    volume.create(volume.root(), "a file of the mount", &NewNode::new(NewKind::File)).unwrap();
    volume.sync().unwrap();
    let crashed = Arc::new(Memory::from(device.to_vec()));
    let error = Repair::plan(crashed.clone(), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    HfsPlusMut::open(crashed.clone(), WriteOptions::default()).unwrap().unmount().unwrap();
    assert!(!Repair::plan(crashed.clone(), &Silent).unwrap().is_needed());
    assert_eq!(files_in(&crashed), 120);
}

#[test]
fn a_journal_without_its_files_is_given_up() {
    let device = Arc::new(Memory::from(Patient::new(false).bytes));
    HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap().enable_journal(None).unwrap();
    let mut patient = Patient { bytes: device.to_vec() };
    assert!(patient.check().is_empty());
    // Its blocks belong to a file that anybody may delete, and the next mount would write over who gets them.
    patient.file(".journal", |raw| raw.user_info.file_type = *b"abcd");
    patient.flip(2000);
    let device = Arc::new(Memory::from(patient.bytes));
    Repair::plan(device.clone(), &Silent).unwrap().apply(&Silent).unwrap();
    let volume = HfsPlus::open(device.clone()).unwrap().volume();
    assert!(!volume.journaled && volume.clean);
    assert_eq!(files_in(&device), 120);
}

#[test]
fn a_sound_volume_needs_no_repair() {
    let device = Arc::new(Memory::read_only(Patient::new(true).bytes));
    let repair = Repair::plan(device, &Silent).unwrap();
    assert!(!repair.is_needed() && repair.findings().is_empty());
    repair.apply(&Silent).unwrap();
}
