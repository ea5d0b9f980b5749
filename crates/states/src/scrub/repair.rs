//! Faulty bands from another copy.

use bandsaw::device::AfterDiscard;
use bandsaw::progress::Progress;
use bandsaw::store::{Open, Store};
use bandsaw::{Error, Kind, Result, platform, size};

use super::record::{Hashed, Record};
use super::{Finding, LAYER};
use crate::bundle::{BundleFolder, changed};
use crate::hash::{hash, hash_existing};

/// The folder of bands that are being copied.
const NEW: &str = ".bandsaw/scrub/";
/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;
/// Bytes of zeros that are left as a hole.
const HOLE: usize = 64 << 10;
/// The folder of faulty bands.
const QUARANTINE: &str = ".bandsaw/quarantine/";

/// Replaces the faulty bands of which the copy has the recorded contents; returns their names. Each
/// is replaced in one step, after the faulty one was copied to `.bandsaw/quarantine`.
pub(super) fn repair(
    bundle: &BundleFolder,
    from: &dyn Store,
    record: &mut Record,
    findings: &[(String, Finding)],
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    let faulty = findings.iter().filter(|(_, finding)| finding.is_damage());
    let mut repaired = Vec::new();
    for (name, _) in faulty {
        progress.check()?;
        let Some(old) = record.bands.get(name) else {
            continue;
        };
        // The band is still the one that was found faulty: nobody has written to it.
        if old.hash.is_empty() || bundle.identity(name)? != Some(old.file) {
            continue;
        }
        let fits = hash(from, name, progress)?
            .is_some_and(|(hash, len)| hash == old.hash && len == old.file.len);
        if fits {
            let new = replace(bundle, from, name, old, progress)?;
            record.bands.insert(name.clone(), new);
            repaired.push(name.clone());
        }
    }
    Ok(repaired)
}

fn replace(
    bundle: &BundleFolder,
    from: &dyn Store,
    name: &str,
    old: &Hashed,
    progress: &dyn Progress,
) -> Result<Hashed> {
    let store = bundle.store();
    let copy = format!("{NEW}{name}");
    fetch(from, name, store, &copy, progress)?;
    let (hash, len) = hash_existing(store, &copy, progress)?;
    if hash != old.hash || len != old.file.len {
        return Err(Error::new(
            Kind::Conflict,
            LAYER,
            "the copy was changed while it was read",
        )
        .named(name));
    }
    store.set_owner_of(&copy, name)?;
    store.set_modified(&copy, old.file.modified)?;
    if bundle.identity(name)? != Some(old.file) {
        return Err(changed(bundle.path()));
    }
    let aside = format!("{QUARANTINE}{}/{name}", platform::own_suffix());
    match store.copy_from(&bundle.path().join(name), &aside) {
        Ok(_) => store.set_modified(&aside, old.file.modified)?,
        // The host cannot read it. A link changes its times, so that a run that is interrupted here
        // leaves it as unknown: readable bands are copied instead.
        Err(error) if error.kind() == Kind::Io => {
            if !store.link(name, &aside)? {
                // Without hard links the band is away for a moment; both files are in known places.
                store.rename(name, &aside)?;
            }
        }
        Err(error) => return Err(error),
    }
    store.sync()?;
    store.rename(&copy, name)?;
    store.sync()?;
    let file = bundle
        .identity(name)?
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    Ok(Hashed {
        file,
        settled: false,
        finding: None,
        ..old.clone()
    })
}

/// Copies the file `name` of another store to `copy`, which is replaced.
fn fetch(
    from: &dyn Store,
    name: &str,
    store: &dyn Store,
    copy: &str,
    progress: &dyn Progress,
) -> Result<()> {
    let source = from.open(name, Open::Read)?;
    let source = source.ok_or_else(|| Error::not_found(LAYER, name))?;
    // Of a run that was interrupted.
    store.remove(copy)?;
    let target = store.open(copy, Open::CreateNew)?;
    let target = target.ok_or_else(|| Error::conflict(LAYER, "already exists").named(copy))?;
    let len = source.info().len;
    target.set_len(len, AfterDiscard::Zeros)?;
    let mut buf = vec![0; size::to_usize(PIECE.min(len))];
    let mut at = 0;
    while at < len {
        progress.check()?;
        let piece = &mut buf[..size::to_usize(PIECE.min(len - at))];
        source.read_at(at, piece)?;
        for part in piece.chunks(HOLE) {
            // The new file reads as zeros.
            if part.iter().any(|byte| *byte != 0) {
                target.write_at(at, part)?;
            }
            at += part.len() as u64;
        }
    }
    target.flush()
}
