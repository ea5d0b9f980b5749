//! Renamed objects among those that only one side has.

use std::collections::{HashMap, HashSet};

use bandsaw::Result;
use bandsaw::fs::{FileKind, Fork, NodeId};

use super::{
    ComparedFolder, Difference, DifferenceKind, Field, RenameEvidence, Single, Walk, difference,
};
use crate::LAYER;
use crate::hashing::sha256;
use crate::walk::{MAX_DEPTH, sorted};

/// Finds renamed objects, and adds what remains as added and removed.
pub(super) fn find(walk: &mut Walk<'_>) -> Result<()> {
    let uuid = |of: ComparedFolder<'_>| of.fs.volume().uuid;
    let is_one_volume = uuid(walk.old).is_some() && uuid(walk.old) == uuid(walk.new);
    if is_one_volume {
        // A folder that was renamed is compared with its old contents, where more can be found.
        while by_number(walk, true)? {}
    }
    expand(walk)?;
    if is_one_volume {
        by_number(walk, false)?;
    }
    by_contents(walk)?;
    for (kind, side) in [
        (DifferenceKind::Removed, std::mem::take(&mut walk.removed)),
        (DifferenceKind::Added, std::mem::take(&mut walk.added)),
    ] {
        for Single { path, of, .. } in side {
            let (old, new) = match kind {
                DifferenceKind::Removed => (Some(&of), None),
                _ => (None, Some(&of)),
            };
            let found = difference(kind, &path, old, new);
            walk.result.differences.push(found);
        }
    }
    Ok(())
}

/// Joins objects of the same number, kind and creation time, as numbers may be used again. With
/// `descend`, the contents of folders are compared. Returns true if it found any.
fn by_number(walk: &mut Walk<'_>, descend: bool) -> Result<bool> {
    let removed = std::mem::take(&mut walk.removed);
    let mut added: HashMap<_, Vec<Single>> = HashMap::new();
    for one in std::mem::take(&mut walk.added).into_iter().rev() {
        added.entry(number(&one)).or_default().push(one);
    }
    let mut pairs = Vec::new();
    for old in removed {
        match added.get_mut(&number(&old)).and_then(Vec::pop) {
            Some(new) => pairs.push((old, new)),
            None => walk.removed.push(old),
        }
    }
    walk.added = added.into_values().flatten().collect();
    walk.added.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let found = !pairs.is_empty();
    for (old, new) in pairs {
        if !descend || old.of.kind != FileKind::Folder {
            renamed(walk, &old, &new, RenameEvidence::FileNumber)?;
            continue;
        }
        let first = walk.result.differences.len();
        walk.both(&new.path, new.depth, &old.of, &new.of)?;
        let itself = walk.result.differences.get(first);
        let fields = match itself.is_some_and(|one| one.path == new.path) {
            true => walk.result.differences.remove(first).fields,
            false => Vec::new(),
        };
        add(walk, &old, &new, RenameEvidence::FileNumber, fields);
    }
    Ok(found)
}

fn number(of: &Single) -> (NodeId, FileKind, Option<bandsaw::fs::Timestamp>) {
    (of.of.id, of.of.kind, of.of.created)
}

/// Compares an object that was renamed, and adds the difference.
fn renamed(
    walk: &mut Walk<'_>,
    old: &Single,
    new: &Single,
    evidence: RenameEvidence,
) -> Result<()> {
    walk.result.compared += 1;
    let fields = walk.compare(&new.path, &old.of, &new.of)?;
    add(walk, old, new, evidence, fields);
    Ok(())
}

fn add(
    walk: &mut Walk<'_>,
    old: &Single,
    new: &Single,
    evidence: RenameEvidence,
    fields: Vec<Field>,
) {
    let (kind, a, b) = (DifferenceKind::Renamed, Some(&old.of), Some(&new.of));
    walk.result.differences.push(Difference {
        old_path: Some(old.path.clone()),
        fields,
        evidence: Some(evidence),
        ..difference(kind, &new.path, a, b)
    });
}

/// Adds the contents of folders that one side has.
fn expand(walk: &mut Walk<'_>) -> Result<()> {
    for is_old in [true, false] {
        let side = if is_old { walk.old } else { walk.new };
        let mut ahead = match is_old {
            true => std::mem::take(&mut walk.removed),
            false => std::mem::take(&mut walk.added),
        };
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        while let Some(one) = ahead.pop() {
            walk.progress.check()?;
            let is_folder = one.of.kind == FileKind::Folder && seen.insert(one.of.id);
            if is_folder && one.depth >= MAX_DEPTH {
                let message = format!("folders are nested more than {MAX_DEPTH} deep");
                return Err(bandsaw::Error::limit(LAYER, message).named(one.path));
            }
            if is_folder {
                match sorted(side.fs, one.of.id) {
                    Ok(entries) => ahead.extend(entries.into_iter().map(|entry| Single {
                        path: format!("{}/{}", one.path, entry.name),
                        depth: one.depth + 1,
                        of: entry.attributes,
                    })),
                    Err(error) => walk.problem(error, &one.path)?,
                }
            }
            all.push(one);
        }
        all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        match is_old {
            true => walk.removed = all,
            false => walk.added = all,
        }
    }
    Ok(())
}

/// Joins files of equal contents. Only those are read whose size both sides have.
fn by_contents(walk: &mut Walk<'_>) -> Result<()> {
    let sizes = |side: &[Single]| -> HashSet<u64> {
        let files = side.iter().filter(|one| is_candidate(one));
        files.map(|one| one.of.size).collect()
    };
    let (old, new) = (sizes(&walk.removed), sizes(&walk.added));
    let mut known: HashMap<(u64, [u8; 32]), Vec<Single>> = HashMap::new();
    let mut rest = Vec::new();
    for one in std::mem::take(&mut walk.added) {
        let sum = match is_candidate(&one) && old.contains(&one.of.size) {
            true => hash(walk, walk.new, &one)?,
            false => None,
        };
        match sum {
            Some(sum) => known.entry((one.of.size, sum)).or_default().push(one),
            None => rest.push(one),
        }
    }
    known.values_mut().for_each(|files| files.reverse());
    for one in std::mem::take(&mut walk.removed) {
        let sum = match is_candidate(&one) && new.contains(&one.of.size) {
            true => hash(walk, walk.old, &one)?,
            false => None,
        };
        let found = sum.and_then(|sum| known.get_mut(&(one.of.size, sum))?.pop());
        match found {
            Some(found) => renamed(walk, &one, &found, RenameEvidence::Contents)?,
            None => walk.removed.push(one),
        }
    }
    rest.extend(known.into_values().flatten());
    walk.added = rest;
    Ok(())
}

/// Empty files are all the same, which is no evidence.
fn is_candidate(of: &Single) -> bool {
    of.of.kind == FileKind::File && of.of.size > 0
}

fn hash(walk: &mut Walk<'_>, side: ComparedFolder<'_>, of: &Single) -> Result<Option<[u8; 32]>> {
    let opened = side.fs.open(of.of.id, Fork::Data);
    match opened.and_then(|device| sha256(&*device, walk.progress)) {
        Ok(sum) => Ok(Some(sum)),
        Err(error) => walk.problem(error, &of.path).map(|()| None),
    }
}
