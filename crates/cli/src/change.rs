//! Changes to a volume: its address, opening it for writing, and unmounting it cleanly.

use std::ffi::OsStr;
use std::ops::Deref;
use std::sync::Arc;

use bandsaw::address::Address;
use bandsaw::fs::{Attributes, FileSystemExt, FileSystemMut, NodeId};
use bandsaw::open::Image;
use bandsaw::ops::put;
use bandsaw::ops::writable_volume::RewritableVolume;
use bandsaw::{Error, Kind, Reason};
use clap::Args;
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs, normal};

/// The options of a verb that changes a volume.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChangeArgs {
    /// Change a volume even if a quick check finds damage
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

impl ChangeArgs {
    /// The same for a verb with another option for this.
    pub(crate) fn new(opening: &OpenArgs, force: bool) -> Self {
        Self {
            force,
            opening: opening.clone(),
        }
    }
}

impl Deref for ChangeArgs {
    type Target = OpenArgs;

    fn deref(&self) -> &OpenArgs {
        &self.opening
    }
}

/// Reads an address that must name something in a volume.
pub(crate) fn address(text: &OsStr) -> Outcome<Address> {
    let address = source::address(text)?;
    match &address.path {
        Some(_) => Ok(address),
        None => Err(Failure::usage(
            "address",
            format!("expected an object in a volume, but {address} is a whole image or volume"),
        )
        .hint("write IMAGE:/PATH to name an object in it")),
    }
}

/// Several addresses of one volume.
pub(crate) fn addresses<'a>(
    texts: impl IntoIterator<Item = &'a OsStr>,
) -> Outcome<(Address, Vec<String>)> {
    let all = texts
        .into_iter()
        .map(address)
        .collect::<Outcome<Vec<_>>>()?;
    let paths = all
        .iter()
        .map(|address| normal(address.path.as_deref().unwrap_or_default()))
        .collect();
    let Some(first) = all.first() else {
        return Err(Failure::usage(
            "address",
            "the address of an object in a volume is required: IMAGE:/PATH",
        ));
    };
    let volume = |address: &Address| (address.image.clone(), address.volume.clone());
    match all.iter().find(|other| volume(other) != volume(first)) {
        Some(other) => Err(Failure::usage(
            "address",
            format!("{first} and {other} are in different volumes"),
        )
        .hint("use `bandsaw cp` to copy from one to the other")),
        None => Ok((first.clone(), paths)),
    }
}

/// The output of `--json` of a verb that changes objects of a volume.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeReport {
    /// The image.
    path: String,
    changes: Vec<ChangeItem>,
}

/// A change of one object, or of a folder with its contents.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeItem {
    pub(crate) action: Action,
    pub(crate) volume_path: String,
    /// The former path of a moved object, or another path of a hard link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_path: Option<String>,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// The name of an extended attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The size of the new contents, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    /// The number of objects changed, of a recursive change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<u64>,
}

/// The change of an object; its name in `--json` is in snake case.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Created,
    Replaced,
    Removed,
    Moved,
    Linked,
    Touched,
    PermissionsSet,
    XattrSet,
    XattrRemoved,
}

impl ChangeItem {
    /// Creates the description of a change of the object at `path` in its volume, without other facts.
    pub(crate) fn new(action: Action, path: &str) -> Self {
        Self {
            action,
            volume_path: if path.is_empty() { "/" } else { path }.to_owned(),
            source_path: None,
            target: None,
            name: None,
            size: None,
            objects: None,
        }
    }
}

/// Changes the volume that an address names, and reports the changes under `--json`.
pub(crate) fn report(
    address: &Address,
    changing: &ChangeArgs,
    output: &Output,
    change_all: impl FnOnce(&Arc<dyn FileSystemMut>) -> Outcome<Vec<ChangeItem>>,
) -> Outcome {
    let changes = change(address, changing, output, change_all)?;
    output.silent(&ChangeReport {
        path: address.image.to_string(),
        changes,
    })
}

/// Changes the volume that `address` names, and always leaves it clean.
pub(crate) fn change<T>(
    address: &Address,
    changing: &ChangeArgs,
    output: &Output,
    change: impl FnOnce(&Arc<dyn FileSystemMut>) -> Outcome<T>,
) -> Outcome<T> {
    change_opened(address, changing, output, OpenArgs::volume_mut, change)
}

/// Does the same as [`change`] for a verb that reads contents and stores them again.
pub(crate) fn rewrite<T>(
    address: &Address,
    changing: &ChangeArgs,
    output: &Output,
    change: impl FnOnce(&RewritableVolume) -> Outcome<T>,
) -> Outcome<T> {
    let open = |opening: &OpenArgs, image: &Image, address: &Address| {
        let volume = address.volume.as_ref();
        RewritableVolume::open(image, volume, Some(opening.keys()), &Bar::new(output))
    };
    change_opened(address, changing, output, open, change)
}

fn change_opened<V: Deref<Target = dyn FileSystemMut>, T>(
    address: &Address,
    changing: &ChangeArgs,
    output: &Output,
    open: impl FnOnce(&OpenArgs, &Image, &Address) -> bandsaw::Result<V>,
    change: impl FnOnce(&V) -> Outcome<T>,
) -> Outcome<T> {
    if address.snapshot.is_some() {
        return Err(
            Error::new(Kind::ReadOnly, "address", "snapshots are read-only")
                .named(address.to_string())
                .into(),
        );
    }
    let opening = changing.opening.forced(changing.force);
    let image = opening.change(&address.image, output).map_err(|failure| {
        // Of an image that cannot be changed, or a disk that is mounted read-only.
        if failure.is_of_read_only() && failure.reason().is_none() {
            failure.hint(
                "use `--shadow FILE` to write changes to another file, or `bandsaw convert` to \
                 create a writable copy",
            )
        } else {
            failure
        }
    })?;
    let fs = open(&opening, &image, address)
        .map_err(|error| match error.kind() {
            Kind::Undecided => source::advise(error.in_file(image.path()), &address.image),
            Kind::Corrupt if error.reason() == Some(Reason::DamagedVolume) => {
                let advice =
                    "to list the damage and `bandsaw repair` to repair it; use --force to change \
                     the volume nevertheless";
                Failure::from(error.in_file(image.path())).hint(format!("run `bandsaw check {}` \
                                                                         {advice}", address.image))
            }
            _ => error.into(),
        })
        .advise(Kind::NotFound, || format!("run `bandsaw info {}` to see its contents", address.image))?;
    let done = change(&fs).map_err(|failure| {
        let list = || format!("run `bandsaw ls {}` to list the contents", address.image);
        failure.in_file(image.path()).hint_if_missing(list)
    });
    let unmounted = fs.unmount().map_err(|error| error.in_file(image.path()));
    let done = done?;
    unmounted.inspect_err(|error| warn_if_durable(error, output))?;
    Ok(done)
}

/// Warns that a change may be durable although the volume could not be unmounted: its transaction
/// precedes the writes in place.
pub(crate) fn warn_if_durable(error: &Error, output: &Output) {
    if error.kind() == Kind::Io {
        output.warn("the change may be complete: examine the volume before repeating the command");
    }
}

/// Returns the attributes of the object at a path.
pub(crate) fn resolve(fs: &Arc<dyn FileSystemMut>, path: &str) -> Outcome<Attributes> {
    Ok(fs.resolve(path)?)
}

/// Returns the attributes of the object at a path, or `None` if it does not exist.
pub(crate) fn try_resolve(fs: &Arc<dyn FileSystemMut>, path: &str) -> Outcome<Option<Attributes>> {
    match fs.resolve(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if an address ends in a slash, and so can only name a folder.
pub(crate) fn names_folder(address: &OsStr) -> bool {
    address.as_encoded_bytes().ends_with(b"/")
}

/// Returns the parent folder of a path and the name in it. The root has no parent.
pub(crate) fn parent(fs: &Arc<dyn FileSystemMut>, path: &str) -> Outcome<(NodeId, String)> {
    Ok(put::parent_of_object(&**fs, path)?)
}
