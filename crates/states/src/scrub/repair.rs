//! Faulty bands from another copy.

use std::path::Path;

use bandsaw::progress::Progress;
use bandsaw::store::NodeKind;
use bandsaw::{Error, Kind, Result, platform};

use super::record::{Hashed, Record};
use super::{Finding, LAYER, no_copy};
use crate::bundle::{BundleFolder, changed};
use crate::hash::{hash, hash_existing};

/// The folder of bands that are being copied.
const NEW: &str = ".bandsaw/scrub/";
/// The folder of faulty bands.
const QUARANTINE: &str = ".bandsaw/quarantine/";

/// Replaces the faulty bands of which the copy has the recorded contents; returns their names. Each
/// is replaced in one step, after the faulty one was copied to `.bandsaw/quarantine`.
pub(super) fn repair(
    bundle: &BundleFolder,
    from: &Path,
    record: &mut Record,
    findings: &[(String, Finding)],
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    let other = bundle.store().elsewhere(from);
    let found = other.attributes("")?;
    let found = found.ok_or_else(|| Error::not_found(LAYER, from.display().to_string()))?;
    if found.kind != NodeKind::Folder {
        return Err(no_copy(
            from,
            "expected the folder of a sparse bundle or of a state",
        ));
    }
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
        let fits = hash(&*other, name, progress)?
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
    store.copy_from(&from.join(name), &copy)?;
    let (hash, len) = hash_existing(store, &copy, progress)?;
    if hash != old.hash || len != old.file.len {
        return Err(Error::new(
            Kind::Conflict,
            LAYER,
            "the copy was changed while it was read",
        )
        .in_file(from.join(name)));
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
