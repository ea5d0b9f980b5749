//! Changes to the resources of a finished compressed image, such as its license.

use std::fs;
use std::path::Path;

use super::convert::Order;
use super::convert::copy::copy;
use crate::container::udif::{self, BLOCK_TABLE, Resource};
use crate::device::{Access, AfterDiscard, BlockDevice};
use crate::open::{FileDraft, NewMode, OpenOptions, plain_of};
use crate::progress::Progress;
use crate::store::{LocalFile, Lock, Open};
use crate::{Error, Kind, Reason, Result};

/// Message of the error about an image whose code signature would be lost.
pub(crate) const SIGNED: &str = "the image is signed, and a change would invalidate its signature";

const LAYER: &str = "image";

/// A selection of resources: all of a kind, or one by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The kind, four characters; `RTF` is short for `RTF `.
    pub kind: String,
    /// The number. `None`: all.
    pub id: Option<i16>,
}

impl Selector {
    /// Returns true if `resource` is selected.
    pub fn selects(&self, resource: &Resource) -> bool {
        let has_id = |id| resource.id.parse::<i16>() == Ok(id);
        resource.kind == self.kind && self.id.is_none_or(has_id)
    }
}

impl std::str::FromStr for Selector {
    type Err = Error;

    /// Parses `TEXT` or `TEXT:5000`.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, id) = match text.split_once(':') {
            None => (text, Ok(None)),
            Some((kind, id)) => (kind, id.parse::<i16>().map(Some)),
        };
        let kind = format!("{kind:4}");
        let is_kind = kind.chars().count() == 4 && !kind.trim().is_empty();
        match id {
            Ok(id) if is_kind => Ok(Self { kind, id }),
            _ => {
                let message = "invalid resource: expected a type of four characters and \
                               optionally a number, as in TEXT:5000";
                Err(Error::invalid("resource", message).named(text))
            }
        }
    }
}

/// Options of a change.
#[derive(Debug, Clone, Copy, Default)]
pub struct EditOptions<'a> {
    /// Path of the changed image. `None`: it replaces the old one.
    pub target: Option<&'a Path>,
    /// True to replace an existing file at `target`.
    pub overwrite: bool,
    /// True to allow the loss of a code signature, which covers the bytes of the old file.
    pub remove_signature: bool,
}

/// Changes the resources of the UDIF image at `path`, which is the first file of a set. Chunks and
/// their checksums stay unchanged.
///
/// The change is made to a copy, which replaces the old file when it is complete and durable: after
/// any error, the old file is unchanged. `opening` has the keys of an encrypted image; the copy is
/// encrypted with the same keys.
///
/// [`Kind::ReadOnly`] for a signed image, unless its signature may be removed.
pub fn edit(
    path: &Path,
    options: &EditOptions<'_>,
    opening: &OpenOptions<'_>,
    progress: &dyn Progress,
    change: impl FnOnce(&mut Vec<Resource>) -> Result<()>,
) -> Result<()> {
    let named = |error: Error| error.in_file(path);
    if !opening.shadows.is_empty() {
        let message = "resources are in the image itself and cannot be changed by a layer";
        return Err(named(Error::invalid(LAYER, message)));
    }
    let old = LocalFile::open(path, Open::Read)?;
    let old = old.ok_or_else(|| named(Error::new(Kind::NotFound, LAYER, "does not exist")))?;
    let draft = match options.target {
        Some(target) => {
            old.lock(Lock::Shared)?;
            FileDraft::new(target, options.overwrite, NewMode::default())?
        }
        None => {
            let place =
                fs::canonicalize(path).map_err(|error| named(Error::io(LAYER, "find", error)))?;
            FileDraft::new(&place, true, NewMode::default())?
        }
    };
    let new = draft.file();
    new.set_len(old.info().len, AfterDiscard::Zeros)?;
    copy(&old, &**new, Order::SideBySide(1), progress)?;
    let failed = |error| named(Error::io(LAYER, "copy the permissions", error));
    fs::metadata(path)
        .and_then(|meta| fs::set_permissions(new.path(), meta.permissions()))
        .map_err(failed)?;
    let opening = OpenOptions {
        access: Access::ReadWrite,
        ..*opening
    };
    edit_in(
        &*plain_of(new.clone(), &opening).map_err(named)?,
        options,
        change,
    )
    .map_err(named)?;
    progress.check()?;
    draft.persist().map(drop)
}

fn edit_in(
    image: &dyn BlockDevice,
    options: &EditOptions<'_>,
    change: impl FnOnce(&mut Vec<Resource>) -> Result<()>,
) -> Result<()> {
    if !udif::probe(image)? {
        return Err(Error::unsupported(
            LAYER,
            "only compressed and read-only images have resources",
        ));
    }
    let (mut resources, signature) = udif::read_list(image)?;
    if signature.is_some() && !options.remove_signature {
        return Err(Error::new(Kind::ReadOnly, LAYER, SIGNED).because(Reason::Signed));
    }
    change(&mut resources)?;
    udif::write_list(image, &resources)
}

/// Adds `new` to `resources`, except for block tables and partition lists, which belong to the
/// image they came from. [`Kind::Conflict`] if there is another resource of the same kind and
/// number, unless `replace` is set.
pub fn add(resources: &mut Vec<Resource>, new: Vec<Resource>, replace: bool) -> Result<()> {
    for resource in new
        .into_iter()
        .filter(|resource| !OWN.contains(&resource.kind.as_str()))
    {
        let same = |other: &&mut Resource| other.kind == resource.kind && other.id == resource.id;
        match resources.iter_mut().find(same) {
            None => resources.push(resource),
            Some(old) if replace || old.data == resource.data => *old = resource,
            Some(_) => {
                let message = "already exists with other contents";
                let name = format!("{}:{}", resource.kind, resource.id);
                let exists = Error::conflict("resource", message).because(Reason::Exists);
                return Err(exists.named(name));
            }
        }
    }
    Ok(())
}

/// Adds the license `new` to `resources`. [`Kind::Conflict`] if there is another license, of any
/// kind, unless `replace` is set.
pub fn add_license(resources: &mut Vec<Resource>, new: Vec<Resource>, replace: bool) -> Result<()> {
    let of_another = |old: &&Resource| {
        udif::LICENSE_KINDS.contains(&old.kind.as_str())
            && !new.iter().any(|new| new.data == old.data)
    };
    if let Some(old) = resources.iter().find(of_another).filter(|_| !replace) {
        let message = "belongs to another license";
        let exists = Error::conflict("resource", message).because(Reason::Exists);
        return Err(exists.named(format!("{}:{}", old.kind, old.id)));
    }
    resources.retain(|resource| !udif::LICENSE_KINDS.contains(&resource.kind.as_str()));
    add(resources, new, replace)
}

/// Kinds that every image has of its own: block tables and the list of partitions.
pub const OWN: [&str; 2] = [BLOCK_TABLE, "plst"];

/// Removes the resources that `which` selects. Fails if there is none; block tables are refused.
pub fn remove(resources: &mut Vec<Resource>, which: &[Selector]) -> Result<()> {
    for selector in which {
        let name = || {
            let id = selector.id.map_or_else(String::new, |id| format!(":{id}"));
            format!("{}{id}", selector.kind)
        };
        if selector.kind == BLOCK_TABLE {
            let message = "cannot remove the block tables, the index of the disk";
            return Err(Error::invalid("resource", message).named(name()));
        }
        let before = resources.len();
        resources.retain(|resource| !selector.selects(resource));
        if resources.len() == before {
            return Err(Error::not_found("resource", name()));
        }
    }
    Ok(())
}
