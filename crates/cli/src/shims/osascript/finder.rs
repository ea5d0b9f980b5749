//! The volumes that a script lays out, in place of the Finder.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::fs::Timestamp;
use bandsaw::ops::finder::{
    Arrange, Background, FinderInfo, View, VolumePicture, Window, WindowSettings, stored_settings,
};
use bandsaw_registry::{Mount, Registry};

use super::super::finder_info;
use super::super::refused;
use super::value::{Part, Value};
use crate::failure::{Failure, Outcome};

const STORE: &str = ".DS_Store";
/// Name under which it is written first. Always the same, because old names stay in the unused bytes of a
/// volume: the same script gives the same bytes.
const ASIDE: &str = ".DS_Store.new";
/// Height of the screen in points. Scripts count from its upper edge, `.DS_Store` from its lower
/// edge.
const SCREEN: u32 = 900;
/// Colors of scripts are from 0 to this.
const MAX_COLOR: f64 = 65535.0;

/// A mounted volume, and the settings of its window.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    created: Timestamp,
    settings: WindowSettings,
    /// The picture, relative to the root.
    picture: Option<PathBuf>,
    has_changed: bool,
}

impl Disk {
    /// Finds a mounted volume by its name, or by that of its mount point.
    pub(super) fn find(name: &str) -> Outcome<Self> {
        let entries = Registry::of_user()?.entries()?;
        let mounts: Vec<&Mount> = entries.iter().flat_map(|entry| &entry.mounts).collect();
        let by_folder = |mount: &&&Mount| mount.folder.file_name().is_some_and(|last| last == name);
        let mount = (mounts.iter().find(by_folder))
            .or_else(|| mounts.iter().find(|mount| mount.name == name));
        let folder = match mount {
            Some(mount) => mount.folder.clone(),
            None => Path::new("/Volumes").join(name),
        };
        if name.contains('/') || !folder.is_dir() {
            return Err(missing("disk", name));
        }
        Ok(Self {
            name: mount.map_or(name, |mount| &mount.name).to_owned(),
            folder,
            created: Timestamp::from_seconds(mount.and_then(|mount| mount.created).unwrap_or(0)),
            settings: WindowSettings::default(),
            picture: None,
            has_changed: false,
        })
    }

    /// Sets a property of a part.
    pub(super) fn set(&mut self, part: &Part, property: &str, value: &Value) -> Outcome {
        self.has_changed = true;
        let settings = &mut self.settings;
        match (part, property) {
            (Part::Window, "current view") => {
                settings.view = match value.word()? {
                    "icon view" => View::Icons,
                    "list view" => View::List,
                    "column view" => View::Columns,
                    "flow view" => View::Gallery,
                    other => return Err(refused(format!("{other} is not a view"))),
                };
            }
            (Part::Window, "toolbar visible") => settings.bars.toolbar = value.yes()?,
            (Part::Window, "statusbar visible") => settings.bars.status = value.yes()?,
            (Part::Window, "pathbar visible") => settings.bars.path = value.yes()?,
            (Part::Window, "sidebar width") => {
                settings.bars.sidebar_width = value.count()?;
                settings.bars.sidebar = settings.bars.sidebar_width > 0;
            }
            (Part::Window, "bounds") => {
                let [left, top, right, bottom] = value.counts()?;
                settings.window = Window {
                    x: left,
                    y: SCREEN.saturating_sub(bottom),
                    width: right.saturating_sub(left),
                    height: bottom.saturating_sub(top),
                };
            }
            (Part::ViewOptions, "icon size") => {
                settings.icons.size = value.between(16.0, 512.0)?;
            }
            (Part::ViewOptions, "text size") => {
                settings.icons.text_size = value.between(10.0, 16.0)?;
            }
            (Part::ViewOptions, "arrangement") => {
                settings.icons.arrange_by = match value.word()? {
                    // The grid is no order.
                    "not arranged" | "snap to grid" => Arrange::Nothing,
                    "arranged by name" => Arrange::Name,
                    "arranged by modification date" => Arrange::DateModified,
                    "arranged by creation date" => Arrange::DateCreated,
                    "arranged by size" => Arrange::Size,
                    "arranged by kind" => Arrange::Kind,
                    "arranged by label" => Arrange::Label,
                    other => return Err(refused(format!("{other} is not an arrangement"))),
                };
            }
            (Part::ViewOptions, "shows item info") => settings.icons.item_info = value.yes()?,
            (Part::ViewOptions, "shows icon preview") => settings.icons.preview = value.yes()?,
            (Part::ViewOptions, "label position") => {
                settings.icons.label_on_the_right = match value.word()? {
                    "right" => true,
                    "bottom" => false,
                    other => return Err(refused(format!("{other} is not a label position"))),
                };
            }
            (Part::ViewOptions, "background color") => {
                let color = value.counts::<3>()?;
                settings.background =
                    Background::Color(color.map(|part| f64::from(part).min(MAX_COLOR) / MAX_COLOR));
                self.picture = None;
            }
            (Part::ViewOptions, "background picture") => {
                let path = self.path(value.file()?)?;
                self.settings.background = Background::Picture(self.folder.join(&path));
                self.picture = Some(path);
            }
            (Part::Item(name), "position") => {
                self.entry(name)?;
                let [x, y] = value.counts()?;
                self.settings.places.insert(name.clone(), (x, y));
            }
            (Part::EveryItem, "position") => {
                let [x, y] = value.counts()?;
                for name in self.names()? {
                    self.settings.places.insert(name, (x, y));
                }
            }
            (Part::Item(name), "extension hidden") => {
                let path = self.entry(name)?;
                let mut info = finder_info::read(&path)?;
                info.set_flag(FinderInfo::EXTENSION_HIDDEN, value.yes()?);
                finder_info::write(&info, &path)?;
            }
            _ => return Err(refused(format!("this object has no property {property}"))),
        }
        Ok(())
    }

    /// Returns the path of an entry of the root.
    fn entry(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.folder.join(name);
        match name.contains('/') || path.symlink_metadata().is_err() {
            true => Err(missing("item", name)),
            false => Ok(path),
        }
    }

    fn names(&self) -> Outcome<Vec<String>> {
        let failed = |error| Error::io("volume", "list", error).in_file(&self.folder);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.extend(
                name.to_str()
                    .filter(|name| *name != STORE)
                    .map(str::to_owned),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Returns the path of a file in the root, from a path of the Finder or of the host.
    fn path(&self, named: &str) -> Outcome<PathBuf> {
        let in_root = match Path::new(named).strip_prefix(&self.folder) {
            Ok(inside) => inside.to_owned(),
            Err(_) => {
                let parts = named
                    .strip_prefix(&self.name)
                    .and_then(|rest| rest.strip_prefix(':'))
                    .unwrap_or(named);
                PathBuf::from(parts.replace(':', "/"))
            }
        };
        let is_inside = in_root
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !is_inside || !self.folder.join(&in_root).is_file() {
            return Err(missing("file", named));
        }
        Ok(in_root)
    }

    /// Writes `.DS_Store`, if a setting has changed.
    pub(super) fn save(&mut self) -> Outcome {
        if !std::mem::take(&mut self.has_changed) {
            return Ok(());
        }
        let stored = match self.picture.as_deref().map(parts).transpose()? {
            None => stored_settings(&self.settings, None)?,
            Some((folder, file)) => {
                let number = |path: &Path| -> Outcome<u32> {
                    let meta = fs::metadata(path)
                        .map_err(|error| Error::io("picture", "find", error).in_file(path))?;
                    Ok(u32::try_from(meta.ino()).unwrap_or(0))
                };
                let place = self.folder.join(folder);
                let picture = VolumePicture {
                    volume: &self.name,
                    created: self.created,
                    folder: (folder, number(&place)?),
                    file: (file, number(&place.join(file))?),
                };
                stored_settings(&self.settings, Some(&picture))?
            }
        };
        let path = self.folder.join(STORE);
        let aside = self.folder.join(ASIDE);
        let written = File::create(&aside).and_then(|mut file| {
            file.write_all(&stored)?;
            file.sync_all()?;
            fs::rename(&aside, &path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        Ok(written.map_err(|error| Error::io("window", "write", error).in_file(&path))?)
    }
}

/// Returns the folder and the name of a picture: the record of a window has room for these two.
fn parts(path: &Path) -> Outcome<(&str, &str)> {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(folder), Some(file), None) => Ok((folder, file)),
        _ => Err(refused(format!(
            "{}: the picture must be in a folder of the root",
            path.display()
        ))),
    }
}

/// Returns the Finder's error about an object that does not exist.
fn missing(what: &str, name: &str) -> Failure {
    refused(format!(
        "Finder got an error: Can't get {what} \"{name}\". (-1728)"
    ))
}
