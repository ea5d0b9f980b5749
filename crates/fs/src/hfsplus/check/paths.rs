//! Paths of the objects that findings are about.

use std::collections::HashMap;

use super::catalog::Catalog;
use super::report::Report;
use crate::btree_check::{Rules, walk_tree};
use crate::hfsplus::btree::TreeKind;
use crate::hfsplus::extents::ForkDevice;
use crate::hfsplus::layout::{CatalogKey, CatalogRecord, Cnid, Variant};
use crate::hfsplus::unicode::decode_name;
use bandsaw_core::Result;
use bandsaw_core::error::Subject;
use bandsaw_core::progress::{NestedProgress, Progress};

/// Maximum number of objects whose names are read, folders above included.
const MAX_NAMES: usize = 20_000;
/// Maximum number of folders above an object.
const MAX_DEPTH: usize = 256;
/// Maximum length of a path in bytes.
const MAX_PATH: usize = 8192;

/// Gives the objects that the findings are about the paths that they have in `catalog`, which is
/// complete. Its tree, in `file`, is read once more, unless no finding is about an object. An object
/// that the tree does not lead to keeps its number.
pub(super) fn resolve(
    catalog: &Catalog<'_>,
    file: &ForkDevice,
    variant: Variant,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<()> {
    // The object by whose name each one is shown: for the target of hard links, a link.
    let mut shown: HashMap<Cnid, Cnid> = report
        .subjects()
        .filter_map(number)
        .map(|id| (id, id))
        .collect();
    if shown.is_empty() {
        return Ok(());
    }
    catalog.links.add_names(&mut shown);
    let mut names: HashMap<Cnid, Name> = HashMap::new();
    for &id in shown.values() {
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            if at == Cnid::ROOT || names.contains_key(&at) || names.len() >= MAX_NAMES {
                break;
            }
            let Some(folder) = catalog.folder_of(at) else {
                break;
            };
            names.insert(at, Name { folder, name: None });
            at = folder;
        }
    }
    let rules = Rules {
        whole_nodes: false,
        zeroed: false,
    };
    // Damage of the tree was found before.
    let mut known = Report::default();
    walk_tree(
        file,
        TreeKind::Catalog(variant),
        rules,
        &mut known,
        &NestedProgress(progress),
        &mut |record, _, _| {
            if let Some((key, data)) = CatalogKey::split(record)
                && let Some(id) = object_of(data)
                && let Some(entry) = names.get_mut(&id)
                && entry.folder == key.parent
            {
                entry.name.get_or_insert_with(|| decode_name(key.name));
            }
            Ok(())
        },
    )?;
    report.resolve_subjects(|subject| {
        let id = number(subject)?;
        let path = path_of(&names, shown.get(&id).copied().unwrap_or(id))?;
        let path = match subject {
            Subject::Entry(_, name) if path == "/" => format!("/{name}"),
            Subject::Entry(_, name) => format!("{path}/{name}"),
            _ => path,
        };
        (path.len() <= MAX_PATH).then_some(path)
    });
    Ok(())
}

/// An entry of the catalog.
struct Name {
    folder: Cnid,
    /// `None` until it is read.
    name: Option<String>,
}

/// Returns the number that a subject is found by; `None` if it has its path.
fn number(subject: &Subject) -> Option<Cnid> {
    match subject {
        Subject::Number(id) | Subject::Entry(id, _) => u32::try_from(*id).ok().map(Cnid),
        Subject::Path(_) => None,
    }
}

/// Returns the number of the object in a record of the catalog.
fn object_of(data: &[u8]) -> Option<Cnid> {
    match CatalogRecord::parse(data)? {
        CatalogRecord::Folder(folder) => Some(Cnid(folder.folder_id.get())),
        CatalogRecord::File(file) => Some(Cnid(file.file_id.get())),
        CatalogRecord::Thread(_) => None,
    }
}

/// Returns the path of an object; `None` if it does not lead to the root.
fn path_of(names: &HashMap<Cnid, Name>, id: Cnid) -> Option<String> {
    let (mut parts, mut len, mut at) = (Vec::new(), 0, id);
    while at != Cnid::ROOT {
        let entry = names.get(&at)?;
        let name = entry.name.as_deref()?;
        len += name.len() + 1;
        if parts.len() == MAX_DEPTH || len > MAX_PATH {
            return None;
        }
        parts.push(name);
        at = entry.folder;
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
