//! Damaged volumes, one structure at a time, are mended, and what was not damaged is still there.

use std::sync::Arc;

use super::*;
use crate::device::{BlockDeviceExt, Memory};
use crate::fs::hfsplus::HfsPlus;
use crate::fs::hfsplus::check::tests::{ATTRIBUTES, CATALOG, Case, Patient, TREES, VOLUME};
use crate::fs::{FileKind, FileSystem, FileSystemExt, Fork};
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
fn a_sound_volume_needs_no_repair() {
    let device = Arc::new(Memory::read_only(Patient::new(true).bytes));
    let repair = Repair::plan(device, &Silent).unwrap();
    assert!(!repair.is_needed() && repair.findings().is_empty());
    repair.apply(&Silent).unwrap();
}
