//! Faulty bands from another copy.

use std::fs::{self, File};
use std::path::Path;

use bandsaw::progress::Progress;
use bandsaw::store::{Local, Put, Store};
use bandsaw::{Error, Kind, Result, platform};

use super::record::{Hashed, Record};
use super::{Finding, LAYER, no_copy};
use crate::bundle::{BundleFolder, changed};
use crate::failed;
use crate::hash::{hash, hash_existing};
use crate::keep::time;
use crate::verification::like;

/// The folder of bands that are being copied.
const NEW: &str = ".bandsaw/scrub/";
/// The folder of faulty bands.
const QUARANTINE: &str = ".bandsaw/quarantine/";

/// Replaces the faulty bands of which the copy has the recorded contents; returns their names. Each
/// is replaced in one step, and the faulty one goes to `.bandsaw/quarantine`.
pub(super) fn repair(
    bundle: &BundleFolder,
    from: &Path,
    record: &mut Record,
    findings: &[(String, Finding)],
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    if !fs::metadata(from).map_err(failed("open", from))?.is_dir() {
        return Err(no_copy(
            from,
            "expected the folder of a sparse bundle or of a state",
        ));
    }
    let other = Local::new(from);
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
        let fits = hash(&other, name, progress)?
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
    from: &Path,
    name: &str,
    old: &Hashed,
    progress: &dyn Progress,
) -> Result<Hashed> {
    let store = bundle.store();
    let copy = format!("{NEW}{name}");
    let path = bundle.path().join(&copy);
    store.put(&copy, b"", Put::Replace)?;
    crate::keep::copy(&from.join(name), &path)?;
    let (hash, len) = hash_existing(store, &copy, progress)?;
    if hash != old.hash || len != old.file.len {
        return Err(Error::new(
            Kind::Conflict,
            LAYER,
            "the copy was changed while it was read",
        )
        .in_file(from.join(name)));
    }
    like(&bundle.path().join(name), &path)?;
    let dated = File::options().write(true).open(&path).and_then(|file| {
        file.set_modified(time(old.file.modified))?;
        file.sync_all()
    });
    dated.map_err(failed("set the time", &path))?;
    if bundle.identity(name)? != Some(old.file) {
        return Err(changed(bundle.path()));
    }
    let aside = format!("{QUARANTINE}{}/{name}", platform::own_suffix());
    if !store.link(name, &aside)? {
        // Without hard links the band is away for a moment; both files are in known places.
        store.rename(name, &aside)?;
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
