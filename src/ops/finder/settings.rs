//! The Finder settings of a volume.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, Result};

/// The appearance of a volume's root folder in the Finder. Lengths are in points, positions are
/// relative to the upper left corner of the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowSettings {
    /// The volume's icon, a file of the host in Apple's icns format.
    pub icon: Option<PathBuf>,
    /// The background of the window.
    pub background: Background,
    /// Position and size of the window.
    pub window: Window,
    /// The visible bars of the window.
    pub bars: Bars,
    /// The view in which the window opens.
    pub view: View,
    /// Settings of the icon view.
    pub icons: Icons,
    /// Settings of the list view.
    pub list: ListView,
    /// Centers of the icons of entries in the root, by name.
    pub places: BTreeMap<String, (u32, u32)>,
    /// Names in the root that are hidden.
    pub hidden: Vec<String>,
    /// Names in the root that are shown without extension.
    pub without_extension: Vec<String>,
}

/// The background of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Background {
    /// The Finder's default.
    #[default]
    None,
    /// Red, green and blue from 0 to 1.
    Color([f64; 3]),
    /// A picture, a file of the host.
    Picture(PathBuf),
}

/// Position of the window on the screen, from its lower left corner, and size of its contents, in
/// points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Left edge, in points.
    pub x: u32,
    /// Lower edge, in points.
    pub y: u32,
    /// Width, in points.
    pub width: u32,
    /// Height, in points.
    pub height: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            x: 100,
            y: 100,
            width: 640,
            height: 480,
        }
    }
}

/// Bars around the contents of a window; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bars {
    /// True to show the status bar, with the number of items.
    pub status: bool,
    /// True to show the tab bar.
    pub tabs: bool,
    /// True to show the toolbar.
    pub toolbar: bool,
    /// True to show the path bar.
    pub path: bool,
    /// True to show the sidebar.
    pub sidebar: bool,
    /// Width of the sidebar, in points.
    pub sidebar_width: u32,
}

impl Default for Bars {
    fn default() -> Self {
        Self {
            status: false,
            tabs: false,
            toolbar: false,
            path: false,
            sidebar: false,
            sidebar_width: 180,
        }
    }
}

/// A view of a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Icon view.
    #[default]
    Icons,
    /// List view.
    List,
    /// Column view.
    Columns,
    /// Gallery view.
    Gallery,
}

/// Settings of the icon view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Icons {
    /// Edge length of the icons in points, from 16 to 512.
    pub size: f64,
    /// Text size of the names, in points.
    pub text_size: f64,
    /// True to show names at the right of the icons instead of below.
    pub label_on_the_right: bool,
    /// The sort order of the icons.
    pub arrange_by: Arrange,
    /// Origin of the grid, in points.
    pub grid_offset: (f64, f64),
    /// Distance between icons, in points.
    pub grid_spacing: f64,
    /// Scroll position of the window, in points.
    pub scroll: (f64, f64),
    /// True to show previews of files as their icons.
    pub preview: bool,
    /// True to show item info below the names.
    pub item_info: bool,
}

impl Default for Icons {
    fn default() -> Self {
        Self {
            size: 128.0,
            text_size: 12.0,
            label_on_the_right: false,
            arrange_by: Arrange::Nothing,
            grid_offset: (0.0, 0.0),
            grid_spacing: 100.0,
            scroll: (0.0, 0.0),
            preview: false,
            item_info: false,
        }
    }
}

/// Settings of the list view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListView {
    /// Edge length of the icons, in points.
    pub icon_size: f64,
    /// Text size, in points.
    pub text_size: f64,
    /// True to calculate the sizes of folders.
    pub all_sizes: bool,
}

impl Default for ListView {
    fn default() -> Self {
        Self {
            icon_size: 16.0,
            text_size: 12.0,
            all_sizes: false,
        }
    }
}

/// A sort order of icons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrange {
    /// None: icons keep their positions.
    #[default]
    Nothing,
    /// By name.
    Name,
    /// By modification date.
    DateModified,
    /// By creation date.
    DateCreated,
    /// By the date of addition to the folder.
    DateAdded,
    /// By the date of the last opening.
    DateLastOpened,
    /// By size.
    Size,
    /// By kind.
    Kind,
    /// By label.
    Label,
}

impl Arrange {
    const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Nothing, "none", "none"),
        (Self::Name, "name", "name"),
        (Self::DateModified, "date-modified", "dateModified"),
        (Self::DateCreated, "date-created", "dateCreated"),
        (Self::DateAdded, "date-added", "dateAdded"),
        (Self::DateLastOpened, "date-last-opened", "dateLastOpened"),
        (Self::Size, "size", "size"),
        (Self::Kind, "kind", "kind"),
        (Self::Label, "label", "label"),
    ];

    /// Returns the Finder's keyword.
    pub(super) fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(arrange, ..)| *arrange == self)
            .map_or("none", |(.., word)| word)
    }
}

impl FromStr for Arrange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL
            .iter()
            .find(|(_, name, _)| *name == text)
            .map(|(arrange, ..)| *arrange);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            Error::invalid(
                "arrange-by",
                format!("unknown name: expected one of {}", names.join(", ")),
            )
            .named(text)
        })
    }
}
