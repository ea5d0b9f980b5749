//! Window settings of a folder: the property lists of the Finder's records `bwsp`, `icvp` and
//! `lsvp`.
//!
//! Source: docs/formats/ds_store.md §3.

use plist::{Dictionary, Value};

use super::{Background, LAYER, View, WindowSettings};
use crate::{Error, Result};

/// Returns the window settings: `bwsp`.
pub(super) fn window(settings: &WindowSettings) -> Result<Vec<u8>> {
    let super::Window {
        x,
        y,
        width,
        height,
    } = settings.window;
    let mut list = Dictionary::new();
    list.insert(
        "WindowBounds".into(),
        format!("{{{{{x}, {y}}}, {{{width}, {height}}}}}").into(),
    );
    let bars = &settings.bars;
    for (key, shown) in [
        ("ShowStatusBar", bars.status),
        ("ContainerShowSidebar", false),
        ("PreviewPaneVisibility", false),
        ("ShowTabView", bars.tabs),
        ("ShowToolbar", bars.toolbar),
        ("ShowPathbar", bars.path),
        ("ShowSidebar", bars.sidebar),
    ] {
        list.insert(key.into(), shown.into());
    }
    list.insert(
        "SidebarWidth".into(),
        Value::Integer(bars.sidebar_width.into()),
    );
    binary(list)
}

/// Returns the icon view settings: `icvp`. `alias` refers to the background picture, if there is
/// one.
pub(super) fn icons(settings: &WindowSettings, alias: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let (kind, [red, green, blue]) = match settings.background {
        Background::None => (0, [1.0; 3]),
        Background::Color(color) => (1, color),
        Background::Picture(_) => (2, [1.0; 3]),
    };
    let mut list = Dictionary::new();
    list.insert("viewOptionsVersion".into(), Value::Integer(1.into()));
    list.insert("backgroundType".into(), Value::Integer(kind.into()));
    let icons = &settings.icons;
    for (key, number) in [
        ("backgroundColorRed", red),
        ("backgroundColorGreen", green),
        ("backgroundColorBlue", blue),
        ("gridOffsetX", icons.grid_offset.0),
        ("gridOffsetY", icons.grid_offset.1),
        ("gridSpacing", icons.grid_spacing),
        ("textSize", icons.text_size),
        ("iconSize", icons.size),
        ("scrollPositionX", icons.scroll.0),
        ("scrollPositionY", icons.scroll.1),
    ] {
        list.insert(key.into(), Value::Real(number));
    }
    list.insert("arrangeBy".into(), icons.arrange_by.word().into());
    for (key, shown) in [
        ("showIconPreview", icons.preview),
        ("showItemInfo", icons.item_info),
        ("labelOnBottom", !icons.label_on_the_right),
    ] {
        list.insert(key.into(), shown.into());
    }
    if let Some(alias) = alias {
        list.insert("backgroundImageAlias".into(), Value::Data(alias));
    }
    binary(list)
}

/// Returns the list view settings: `lsvp`.
pub(super) fn list(settings: &WindowSettings) -> Result<Vec<u8>> {
    let mut list = Dictionary::new();
    list.insert("viewOptionsVersion".into(), Value::Integer(1.into()));
    list.insert("sortColumn".into(), "name".into());
    for (key, number) in [
        ("textSize", settings.list.text_size),
        ("iconSize", settings.list.icon_size),
    ] {
        list.insert(key.into(), Value::Real(number));
    }
    for (key, on) in [
        ("showIconPreview", settings.icons.preview),
        ("useRelativeDates", true),
        ("calculateAllSizes", settings.list.all_sizes),
    ] {
        list.insert(key.into(), on.into());
    }
    let columns = [
        ("name", 300, true),
        ("dateModified", 181, false),
        ("size", 97, false),
        ("kind", 115, true),
    ];
    let columns = columns
        .iter()
        .enumerate()
        .map(|(index, (name, width, ascending))| {
            let mut column = Dictionary::new();
            column.insert("index".into(), Value::Integer((index as u64).into()));
            column.insert("width".into(), Value::Integer((*width).into()));
            column.insert("identifier".into(), (*name).into());
            column.insert("visible".into(), true.into());
            column.insert("ascending".into(), (*ascending).into());
            ((*name).to_owned(), Value::Dictionary(column))
        });
    list.insert("columns".into(), Value::Dictionary(columns.collect()));
    binary(list)
}

/// Returns the code of the view for `vstl` and `icvl`.
pub(super) fn style(view: View) -> [u8; 4] {
    match view {
        View::Icons => *b"icnv",
        View::List => *b"Nlsv",
        View::Columns => *b"clmv",
        View::Gallery => *b"Flwv",
    }
}

fn binary(list: Dictionary) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let failed = |error: plist::Error| {
        Error::invalid(LAYER, "cannot be encoded as a property list").caused_by(error)
    };
    Value::Dictionary(list)
        .to_writer_binary(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}
