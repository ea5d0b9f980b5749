//! The Finder settings of a volume: its icon, its window, the background and the positions of the
//! icons.
//!
//! They are stored as files of the volume and flags of its root: `.VolumeIcon.icns`, a picture in a
//! hidden folder, and `.DS_Store` ([`ds_store`], in blocks of a [`buddy`] allocator), whose records
//! are property lists ([`views`]) with an [`alias`] to the picture. [`apply_settings`] adds them to a tree
//! of files before a volume is built from it.

mod alias;
mod buddy;
mod ds_store;
mod finder_info;
mod layout;
mod settings;
mod views;

use std::fs;
use std::path::Path;

use zerocopy::{FromBytes, IntoBytes};

use self::alias::Alias;
use self::ds_store::{DsStore, Value};
pub use self::finder_info::FinderInfo;
use self::layout::{FinderInfoRaw, IconLocationRaw, LOCATION_RESERVED};
pub use self::settings::{
    Arrange, Background, Bars, Icons, ListView, View, Window, WindowSettings,
};
use crate::fs::hfsplus::mac_date;
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::fs::{Timestamp, UF_HIDDEN};
use crate::size::narrow;
use crate::{Error, Reason, Result};

const LAYER: &str = "finder";

/// Largest icon or picture file, in bytes.
const MAX_BYTES: u64 = 256 << 20;
const ICON: &str = ".VolumeIcon.icns";
const STORE: &str = ".DS_Store";
const PICTURES: &str = ".background";

/// A background picture that is in a folder of the root of an existing volume.
#[derive(Debug, Clone, Copy)]
pub struct VolumePicture<'a> {
    /// The volume name.
    pub volume: &'a str,
    /// Time of formatting of the volume.
    pub created: Timestamp,
    /// Name and number of the folder; 0 for file systems with numbers of more than 32 bits.
    pub folder: (&'a str, u32),
    /// Name and number of the file in it.
    pub file: (&'a str, u32),
}

/// Returns the contents of `.DS_Store` with which the Finder shows the root of an existing volume
/// according to `settings`. Its icon, its hidden names and the path of its picture are not used; a
/// picture is `picture`, and then `settings` has to have one as well.
pub fn stored_settings(
    settings: &WindowSettings,
    picture: Option<&VolumePicture<'_>>,
) -> Result<Vec<u8>> {
    let alias = picture.map(|picture| {
        let date = mac_date(picture.created, false);
        Alias {
            volume: picture.volume,
            volume_created: date,
            folder: picture.folder,
            file: picture.file,
            created: date,
        }
        .to_bytes()
    });
    store(settings, alias)
}

/// Properties of the volume to be built.
pub(super) struct TargetVolume<'a> {
    pub(super) name: &'a str,
    pub(super) created: Timestamp,
    /// Returns the number that a node of the tree will have on the volume, for file systems with
    /// such numbers.
    pub(super) number: &'a dyn Fn(&Tree, u32) -> Result<u32>,
}

/// Adds the files and flags to `tree` with which the Finder shows it according to `settings`. Names
/// that `settings` places or hides must exist.
pub(super) fn apply_settings(
    tree: &mut Tree,
    settings: &WindowSettings,
    volume: &TargetVolume<'_>,
) -> Result<()> {
    let date = volume.created;
    if let Some(path) = &settings.icon {
        let icon = read(path)?;
        if !icon.starts_with(b"icns") {
            return Err(Error::invalid(
                LAYER,
                "not an icon: expected a file in Apple's icns format",
            )
            .in_file(path));
        }
        let node = put(tree, 0, ICON, Stream::Bytes(icon.into()), date)?;
        // The Finder accepts the file as an icon only with this type.
        let info = info_of(&mut tree.nodes[node as usize])?;
        info.creator = *b"icnC";
        set_flags(&mut tree.nodes[node as usize], FinderInfo::INVISIBLE)?;
        set_flags(&mut tree.nodes[0], FinderInfo::HAS_CUSTOM_ICON)?;
    }
    for (names, flag) in [
        (&settings.hidden, FinderInfo::INVISIBLE),
        (&settings.without_extension, FinderInfo::EXTENSION_HIDDEN),
    ] {
        for name in names {
            let node = find(tree, name)?;
            set_flags(&mut tree.nodes[node as usize], flag)?;
            if flag == FinderInfo::INVISIBLE {
                tree.nodes[node as usize].flags |= UF_HIDDEN;
            }
        }
    }
    let alias = match &settings.background {
        Background::Picture(path) => Some(picture(tree, path, volume)?),
        Background::None | Background::Color(_) => None,
    };
    // Hidden files are often placed outside the window, even if they do not exist.
    settings
        .places
        .keys()
        .filter(|name| !name.starts_with('.'))
        .try_for_each(|name| find(tree, name).map(drop))?;
    let store = store(settings, alias)?;
    put(tree, 0, STORE, Stream::Bytes(store.into()), date)?;
    Ok(())
}

/// Extensions of pictures that the Finder shows.
const PICTURE_EXTENSIONS: [&str; 11] = [
    "png", "jpg", "jpeg", "tif", "tiff", "gif", "bmp", "heic", "pdf", "icns", "psd",
];
/// The first bytes of pictures whose name has another extension.
const PICTURE_MAGICS: [&[u8]; 7] = [
    b"\x89PNG",
    b"\xFF\xD8\xFF",
    b"II*\0",
    b"MM\0*",
    b"GIF8",
    b"BM",
    b"%PDF",
];

/// Adds the picture to its folder, and returns the alias to it.
fn picture(tree: &mut Tree, path: &Path, volume: &TargetVolume<'_>) -> Result<Vec<u8>> {
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .filter(|extension| extension.len() <= 8);
    let name = extension.map_or_else(
        || "background".to_owned(),
        |extension| format!("background.{extension}"),
    );
    let bytes = read(path)?;
    let is_picture = extension.is_some_and(|extension| {
        let extension = extension.to_ascii_lowercase();
        PICTURE_EXTENSIONS.contains(&&*extension)
    });
    if !is_picture && !PICTURE_MAGICS.iter().any(|magic| bytes.starts_with(magic)) {
        let message = "is not a picture: expected PNG, JPEG, TIFF, GIF, BMP, HEIC or PDF";
        return Err(Error::invalid(LAYER, message).in_file(path));
    }
    let folder = folder(tree, 0, PICTURES, volume.created)?;
    let file = put(
        tree,
        folder,
        &name,
        Stream::Bytes(bytes.into()),
        volume.created,
    )?;
    let date = mac_date(volume.created, false);
    let alias = Alias {
        volume: volume.name,
        volume_created: date,
        folder: (PICTURES, (volume.number)(tree, folder)?),
        file: (&name, (volume.number)(tree, file)?),
        created: date,
    };
    Ok(alias.to_bytes())
}

fn store(settings: &WindowSettings, alias: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let mut store = DsStore::default();
    let style = Value::Type(views::style(settings.view));
    store.add(".", b"bwsp", &Value::Blob(views::window(settings)?))?;
    store.add(".", b"icvl", &style)?;
    store.add(".", b"icvp", &Value::Blob(views::icons(settings, alias)?))?;
    if settings.view != View::Icons {
        store.add(".", b"lsvp", &Value::Blob(views::list(settings)?))?;
    }
    store.add(".", b"vSrn", &Value::Long(1))?;
    store.add(".", b"vstl", &style)?;
    for (name, (x, y)) in &settings.places {
        let place = IconLocationRaw {
            x: (*x).into(),
            y: (*y).into(),
            reserved: LOCATION_RESERVED,
        };
        store.add(name, b"Iloc", &Value::Blob(place.as_bytes().to_vec()))?;
    }
    store.finish()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Error::io(LAYER, "read", error).in_file(path);
    if fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(Error::limit(LAYER, format!("is longer than {MAX_BYTES} bytes")).in_file(path));
    }
    fs::read(path).map_err(failed)
}

/// Returns the entry of the root with this name.
fn find(tree: &Tree, name: &str) -> Result<u32> {
    child(tree, 0, name).ok_or_else(|| Error::not_found(LAYER, name).because(Reason::NoSuchPath))
}

fn child(tree: &Tree, parent: u32, name: &str) -> Option<u32> {
    let is_it = |(_, node): &(u32, &SourceNode)| node.parent == parent && *node.name == *name;
    (0..)
        .zip(&tree.nodes)
        .skip(1)
        .find(is_it)
        .map(|(number, _)| number)
}

/// Adds a file to a folder of the tree, replacing a file of the same name.
fn put(tree: &mut Tree, parent: u32, name: &str, contents: Stream, date: Timestamp) -> Result<u32> {
    if let Some(there) = child(tree, parent, name) {
        let node = &mut tree.nodes[there as usize];
        if !matches!(node.kind, SourceKind::File(_)) {
            return Err(
                Error::conflict(LAYER, "exists in the source, but is not a regular file")
                    .named(name),
            );
        }
        node.kind = SourceKind::File(contents);
        (node.created, node.modified) = (Some(date), date);
        return Ok(there);
    }
    tree.nodes.push(SourceNode::made(
        parent,
        name,
        SourceKind::File(contents),
        0o644,
        date,
    ));
    Ok(narrow::<u32>(tree.nodes.len()) - 1)
}

fn folder(tree: &mut Tree, parent: u32, name: &str, date: Timestamp) -> Result<u32> {
    match child(tree, parent, name) {
        Some(there) if tree.nodes[there as usize].kind == SourceKind::Folder => Ok(there),
        Some(_) => {
            Err(Error::conflict(LAYER, "exists in the source, but is not a folder").named(name))
        }
        None => {
            tree.nodes.push(SourceNode::made(
                parent,
                name,
                SourceKind::Folder,
                0o755,
                date,
            ));
            Ok(narrow::<u32>(tree.nodes.len()) - 1)
        }
    }
}

/// Returns the FinderInfo of a node, added if missing.
fn info_of(node: &mut SourceNode) -> Result<&mut FinderInfoRaw> {
    let at = match node
        .xattrs
        .iter()
        .position(|(name, _)| **name == *FinderInfo::NAME)
    {
        Some(at) => at,
        None => {
            let none = Box::new([0; FinderInfo::LEN]);
            node.xattrs
                .push((FinderInfo::NAME.into(), Stream::Bytes(none)));
            node.xattrs.len() - 1
        }
    };
    let info = match &mut node.xattrs[at].1 {
        Stream::Bytes(bytes) => FinderInfoRaw::mut_from_bytes(bytes).ok(),
        _ => None,
    };
    info.ok_or_else(|| {
        let message = format!(
            "{} does not have {} bytes",
            FinderInfo::NAME,
            FinderInfo::LEN
        );
        Error::invalid(LAYER, message).named(&*node.name)
    })
}

fn set_flags(node: &mut SourceNode, flags: u16) -> Result<()> {
    let info = info_of(node)?;
    info.flags = (info.flags.get() | flags).into();
    Ok(())
}
