//! Images for distribution, with the settings of dmgbuild.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bandsaw::codec::Level;
use bandsaw::container::udif::license;
use bandsaw::fs::Timestamp;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::finder::{
    Arrange, Background, Bars, Icons, ListView, View, Window, WindowSettings,
};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Outcome;
use crate::operations::format_of;
use crate::options::named;
use crate::progress;

/// Builds an image. `items` are tuples of a kind (`contents`, `file` or `link`), a path or target, and a name.
#[pyfunction]
#[pyo3(signature = (path, *, name, format, fs, size, level, overwrite, items, look, license_text, epoch, progress))]
#[expect(clippy::too_many_arguments, reason = "the settings")]
pub(crate) fn build_dmg(
    py: Python<'_>,
    path: PathBuf,
    name: String,
    format: Option<&str>,
    fs: Option<&str>,
    size: Option<u64>,
    level: Option<u8>,
    overwrite: bool,
    items: Vec<(String, PathBuf, String)>,
    look: &Bound<'_, PyDict>,
    license_text: Option<Vec<u8>>,
    epoch: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
) -> Outcome {
    let format = format.map(|name| format_of(Some(name), &path)).transpose()?;
    let level = level.map(Level::new).transpose()?;
    let items = items.into_iter().map(item).collect::<PyResult<Vec<_>>>()?;
    let options = CreateOptions {
        len: size,
        overwrite,
        epoch: epoch.map(Timestamp::from_seconds),
        resources: match license_text {
            Some(text) => license(&text)?,
            None => Vec::new(),
        },
        volume: Some(NewVolume {
            layout: Layout::Gptspud,
            name,
            format: named::<NewFormat>(fs)?.unwrap_or_default(),
            block_size: None,
            source: Source::Items(items),
        }),
        look: Some(window_settings(look)?),
        ..CreateOptions::for_distribution(format, level)
    };
    progress::run(py, progress, |progress| {
        create(&path, options, progress).map(drop)
    })
}

fn item((kind, path, name): (String, PathBuf, String)) -> PyResult<Item> {
    match kind.as_str() {
        "contents" => Ok(Item::Contents(path)),
        "file" => Ok(Item::At {
            from: path,
            to: name,
        }),
        "link" => match path.into_os_string().into_string() {
            Ok(target) => Ok(Item::Link { at: name, target }),
            Err(_) => Err(PyValueError::new_err("the target of a link is not Unicode")),
        },
        _ => Err(PyValueError::new_err("unknown kind of item")),
    }
}

/// Returns a setting, or its default.
fn setting<'py, T>(settings: &Bound<'py, PyDict>, name: &str, default: T) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    match settings.get_item(name)? {
        Some(value) if !value.is_none() => value.extract::<T>().map_err(|error| {
            let error: PyErr = error.into();
            PyValueError::new_err(format!("setting {name}: {error}"))
        }),
        _ => Ok(default),
    }
}

fn window_settings(of: &Bound<'_, PyDict>) -> Outcome<WindowSettings> {
    let (bars, icons, list, window) = (
        Bars::default(),
        Icons::default(),
        ListView::default(),
        Window::default(),
    );
    let rect = ((window.x, window.y), (window.width, window.height));
    let ((x, y), (width, height)) = setting(of, "window_rect", rect)?;
    let color: Option<[f64; 3]> = setting(of, "background_color", None)?;
    let picture: Option<PathBuf> = setting(of, "background", None)?;
    let arrange: Option<String> = setting(of, "arrange_by", None)?;
    let view: String = setting(of, "default_view", "icon-view".to_owned())?;
    let places: BTreeMap<String, (u32, u32)> = setting(of, "icon_locations", BTreeMap::default())?;
    Ok(WindowSettings {
        icon: setting(of, "icon", None)?,
        background: match (color, picture) {
            (Some(color), _) => Background::Color(color),
            (None, Some(picture)) => Background::Picture(picture),
            (None, None) => Background::None,
        },
        window: Window {
            x,
            y,
            width,
            height,
        },
        bars: Bars {
            status: setting(of, "show_status_bar", bars.status)?,
            tabs: setting(of, "show_tab_view", bars.tabs)?,
            toolbar: setting(of, "show_toolbar", bars.toolbar)?,
            path: setting(of, "show_pathbar", bars.path)?,
            sidebar: setting(of, "show_sidebar", bars.sidebar)?,
            sidebar_width: setting(of, "sidebar_width", bars.sidebar_width)?,
        },
        view: match view.as_str() {
            "icon-view" => View::Icons,
            "list-view" => View::List,
            "column-view" => View::Columns,
            "coverflow" => View::Gallery,
            _ => return Err(PyValueError::new_err(format!("unknown view {view:?}")).into()),
        },
        icons: Icons {
            size: setting(of, "icon_size", icons.size)?,
            text_size: setting(of, "text_size", icons.text_size)?,
            label_on_the_right: setting(of, "label_pos", String::new())? == "right",
            arrange_by: named::<Arrange>(arrange.as_deref())?.unwrap_or_default(),
            grid_offset: setting(of, "grid_offset", icons.grid_offset)?,
            grid_spacing: setting(of, "grid_spacing", icons.grid_spacing)?,
            scroll: setting(of, "scroll_position", icons.scroll)?,
            preview: setting(of, "show_icon_preview", icons.preview)?,
            item_info: setting(of, "show_item_info", icons.item_info)?,
        },
        list: ListView {
            icon_size: setting(of, "list_icon_size", list.icon_size)?,
            text_size: setting(of, "list_text_size", list.text_size)?,
            all_sizes: setting(of, "list_calculate_all_sizes", list.all_sizes)?,
        },
        places,
        hidden: setting(of, "hide", Vec::new())?,
        without_extension: setting(of, "hide_extensions", Vec::new())?,
    })
}
