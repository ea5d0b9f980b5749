//! What can be wished of the Finder's window.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, Kind, Result};

/// How the Finder shows a volume's root folder. Lengths are points, from the window's upper left
/// corner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// The volume's icon, a file of the host in Apple's icns format.
    pub icon: Option<PathBuf>,
    /// What is behind the icons.
    pub background: Background,
    /// Where the window opens.
    pub window: Window,
    /// What surrounds the icons.
    pub bars: Bars,
    /// Which view the window opens with.
    pub view: View,
    /// The view as icons.
    pub icons: Icons,
    /// The view as a list.
    pub list: ListView,
    /// The middle of the icons of what is in the root, by name.
    pub places: BTreeMap<String, (u32, u32)>,
    /// Names in the root that are not shown.
    pub hidden: Vec<String>,
    /// Names in the root that are shown without extension.
    pub without_extension: Vec<String>,
}

/// What is behind the icons.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Background {
    /// The Finder's own.
    #[default]
    None,
    /// Red, green and blue from 0 to 1.
    Color([f64; 3]),
    /// A picture, a file of the host.
    Picture(PathBuf),
}

/// Where the window is on the screen, from its lower left corner, and the size of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Left edge.
    pub x: u32,
    /// Lower edge.
    pub y: u32,
    /// Width.
    pub width: u32,
    /// Height.
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

/// What surrounds the icons; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bars {
    /// The bar with the number of items.
    pub status: bool,
    /// The bar of tabs.
    pub tabs: bool,
    /// The tools above.
    pub toolbar: bool,
    /// The path below.
    pub path: bool,
    /// The places at the side.
    pub sidebar: bool,
    /// How wide these are.
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
    /// As icons.
    #[default]
    Icons,
    /// As a list.
    List,
    /// As columns.
    Columns,
    /// One at a time.
    Gallery,
}

/// The view as icons.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Icons {
    /// Their edge, from 16 to 512.
    pub size: f64,
    /// The size of their names.
    pub text_size: f64,
    /// True if names stand at the right instead of below.
    pub label_on_the_right: bool,
    /// What they are sorted by.
    pub arrange_by: Arrange,
    /// Where the grid begins.
    pub grid_offset: (f64, f64),
    /// From one icon to the next.
    pub grid_spacing: f64,
    /// How far the window is scrolled.
    pub scroll: (f64, f64),
    /// True if icons show the contents of files.
    pub preview: bool,
    /// True if facts stand below names.
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

/// The view as a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListView {
    /// The edge of the icons.
    pub icon_size: f64,
    /// The size of the text.
    pub text_size: f64,
    /// True if folders show how much is in them.
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

/// What icons are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrange {
    /// Each stays where it was put.
    #[default]
    Nothing,
    /// Their names.
    Name,
    /// When they were changed.
    DateModified,
    /// When they were made.
    DateCreated,
    /// When they came to the folder.
    DateAdded,
    /// When they were last opened.
    DateLastOpened,
    /// Their size.
    Size,
    /// Their kind.
    Kind,
    /// Their label.
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

    /// The Finder's word.
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
            Error::new(
                Kind::Invalid,
                "arrange-by",
                format!("is none of {}", names.join(", ")),
            )
            .named(text)
        })
    }
}
