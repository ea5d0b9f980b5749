//! Recipes for disk images: TOML or JSON files with keys of bandsaw, of appdmg and of dmgbuild.

mod contents;
mod value;

use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::ops::finder::{Background, View, Window, WindowSettings};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;
use bandsaw::{Error, Result, size};
use serde_json::{Map, Value as Json};

use self::value::Value;

const LAYER: &str = "recipe";
/// The largest size of a recipe.
const MAX_BYTES: u64 = 4 << 20;

/// The settings of a recipe. Missing ones have their defaults.
#[derive(Debug, Default)]
pub(crate) struct Recipe {
    pub(crate) name: Option<String>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) format: Option<Format>,
    pub(crate) fs: Option<NewFormat>,
    pub(crate) level: Option<u8>,
    pub(crate) size: Option<u64>,
    pub(crate) license: Option<PathBuf>,
    pub(crate) items: Vec<Item>,
    pub(crate) look: WindowSettings,
    /// Settings without effect.
    pub(crate) warnings: Vec<String>,
}

impl Recipe {
    /// Reads a recipe. Paths in it start at its folder.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(LAYER, "read", error).in_file(path);
        if path.metadata().map_err(failed)?.len() > MAX_BYTES {
            return Err(
                Error::limit(LAYER, format!("longer than {MAX_BYTES} bytes")).in_file(path),
            );
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let json = match extension.as_str() {
            "py" => {
                let message = "Python settings are not supported: write the same keys as TOML or \
                               JSON";
                return Err(Error::unsupported(LAYER, message).in_file(path));
            }
            "json" => serde_json::from_str(&text).map_err(|error| error.to_string()),
            _ => toml::from_str(&text).map_err(|error: toml::de::Error| {
                // The whole text has several lines, with an excerpt of the file.
                let line = error
                    .span()
                    .and_then(|span| text.get(..span.start))
                    .map(|before| format!("line {}: ", before.matches('\n').count() + 1));
                line.unwrap_or_default() + &error.message().replace('\n', ": ")
            }),
        };
        let invalid =
            |message: String| Error::invalid(LAYER, message.trim_end().to_owned()).in_file(path);
        let keys: Map<String, Json> = json.map_err(invalid)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut recipe = Self::default();
        if keys.contains_key("contents") {
            // appdmg's own default.
            recipe.look.icons.size = 80.0;
        }
        keys.iter()
            .try_for_each(|(key, value)| {
                recipe.apply_key(Value {
                    key,
                    json: value,
                    folder: &folder,
                })
            })
            .map_err(|error| error.in_file(path))?;
        Ok(recipe)
    }

    /// Applies one key. `_` and `-` are the same in keys.
    fn apply_key(&mut self, value: Value<'_>) -> Result<()> {
        let Self { look, .. } = self;
        match value.key.replace('_', "-").as_str() {
            "title" | "volume-name" | "volname" => self.name = Some(value.text()?.to_owned()),
            "filename" | "output" => self.output = Some(value.path()?),
            "format" => self.format = Some(value.parse()?),
            "filesystem" | "fs" => self.fs = Some(value.parse()?),
            "compression-level" | "level" => {
                self.level = value.some(|value| value.number_up_to(9))?
            }
            "size" => self.size = value.some(Value::size)?,
            "license" | "licence" => self.license(&value)?,
            "folder" => self.items.insert(0, Item::Contents(value.path()?)),
            "files" => self.items.extend(contents::files(&value)?),
            "symlinks" => self.items.extend(contents::links(&value)?),
            "contents" => contents::contents(self, &value)?,
            "applications" if value.truth()? => self.items.push(applications()),
            "applications" => {}
            "icon" => look.icon = value.some(|value| value.path())?,
            "background" | "background-color" => background(look, &value)?,
            "window" => look.window = value.window()?,
            "window-rect" => {
                let ((x, y), (width, height)) = value.pair(|value| value.pair(Value::points))?;
                look.window = Window {
                    x,
                    y,
                    width,
                    height,
                };
            }
            "icon-locations" | "places" => {
                for (name, place) in value.table()? {
                    look.places
                        .insert(name.to_owned(), place.pair(Value::points)?);
                }
            }
            "hide" => look.hidden = value.texts()?,
            "hide-extensions" => look.without_extension = value.texts()?,
            "show-status-bar" => look.bars.status = value.truth()?,
            "show-tab-view" => look.bars.tabs = value.truth()?,
            "show-toolbar" => look.bars.toolbar = value.truth()?,
            "show-pathbar" => look.bars.path = value.truth()?,
            "show-sidebar" => look.bars.sidebar = value.truth()?,
            "sidebar-width" => look.bars.sidebar_width = value.points()?,
            "default-view" => look.view = view(&value)?,
            "arrange-by" => {
                look.icons.arrange_by = value.some(|value| value.parse())?.unwrap_or_default()
            }
            "grid-offset" => look.icons.grid_offset = value.pair(|value| value.number())?,
            "grid-spacing" => look.icons.grid_spacing = value.number()?,
            "scroll-position" => look.icons.scroll = value.pair(|value| value.number())?,
            "label-pos" => look.icons.label_on_the_right = value.text()? == "right",
            "text-size" => look.icons.text_size = value.number()?,
            "icon-size" => look.icons.size = value.number()?,
            "show-icon-preview" => look.icons.preview = value.truth()?,
            "show-item-info" => look.icons.item_info = value.truth()?,
            "list-icon-size" => look.list.icon_size = value.number()?,
            "list-text-size" => look.list.text_size = value.number()?,
            "list-calculate-all-sizes" => look.list.all_sizes = value.truth()?,
            "badge-icon" if value.is_null() => {}
            "badge-icon" => {
                return Err(value.refused(
                    "badge is not supported: create an .icns file and use \
                                          the key icon",
                ));
            }
            "code-sign" => self
                .warnings
                .push("code-sign is ignored: sign the finished image where the key is".to_owned()),
            key if WITHOUT_EFFECT.contains(&key) => {
                self.warnings.push(format!("{} is ignored", value.key))
            }
            _ => {
                return Err(value.refused("unknown key"));
            }
        }
        Ok(())
    }

    /// Reads a file, or dmgbuild's table of languages, of which the default one is used.
    fn license(&mut self, value: &Value<'_>) -> Result<()> {
        self.license = match value.json {
            Json::Null => None,
            Json::String(_) => Some(value.path()?),
            _ => {
                let table = value.table()?;
                let find = |key: &str| {
                    table
                        .iter()
                        .find(|(name, _)| name.replace('_', "-") == key)
                        .map(|(_, value)| value)
                };
                let languages = find("licenses")
                    .ok_or_else(|| value.refused("expected a file or a table with licenses"))?
                    .table()?;
                let default = find("default-language")
                    .map(|value| value.text())
                    .transpose()?;
                let wanted = languages
                    .iter()
                    .find(|(name, _)| Some(*name) == default)
                    .or(languages.first());
                if languages.len() > 1 {
                    self.warnings.push(
                        "of several licenses only that of the default language is taken".to_owned(),
                    );
                }
                wanted.map(|(_, file)| file.path()).transpose()?
            }
        };
        Ok(())
    }
}

/// Known keys without an effect on these images.
const WITHOUT_EFFECT: [&str; 12] = [
    "$schema",
    "defines",
    "detach-retries",
    "include-icon-view-settings",
    "include-list-view-settings",
    "list-scroll-position",
    "list-sort-by",
    "list-use-relative-dates",
    "list-columns",
    "list-column-widths",
    "list-column-sort-directions",
    "shrink",
];

/// Returns the link that applications are dragged to.
pub(crate) fn applications() -> Item {
    Item::Link {
        at: "Applications".to_owned(),
        target: "/Applications".to_owned(),
    }
}

fn view(value: &Value<'_>) -> Result<View> {
    Ok(match value.text()? {
        "icon-view" => View::Icons,
        "list-view" => View::List,
        "column-view" => View::Columns,
        "coverflow" => View::Gallery,
        _ => {
            return Err(value.refused(
                "unknown view: expected icon-view, list-view, column-view \
                                       or coverflow",
            ));
        }
    })
}

fn background(look: &mut WindowSettings, value: &Value<'_>) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let text = value.text()?;
    look.background = match color(text) {
        Some(color) => Background::Color(color),
        None if text == "builtin-arrow" => {
            return Err(
                value.refused("the built-in picture of dmgbuild is not available; name a file")
            );
        }
        None if value.key.ends_with("color") => {
            return Err(value.refused("invalid color: expected #rrggbb or rgb(r, g, b)"));
        }
        None => Background::Picture(value.path()?),
    };
    Ok(())
}

/// Parses a color in the notation of style sheets.
pub(crate) fn color(text: &str) -> Option<[f64; 3]> {
    let fraction = |byte: u8| f64::from(byte) / 255.0;
    if let Some(digits) = text.strip_prefix('#') {
        let digits = match digits.len() {
            3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
            6 => digits.to_owned(),
            _ => return None,
        };
        let number = u32::from_str_radix(&digits, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        return Some([red, green, blue].map(fraction));
    }
    if let Some(list) = text
        .strip_prefix("rgb(")
        .and_then(|list| list.strip_suffix(')'))
    {
        let bytes: Vec<u8> = list
            .split(',')
            .map(|number| number.trim().parse().ok())
            .collect::<Option<_>>()?;
        return Some(<[u8; 3]>::try_from(bytes).ok()?.map(fraction));
    }
    let basic = [
        ("black", 0_u32),
        ("silver", 0xC0_C0_C0),
        ("gray", 0x80_80_80),
        ("white", 0xFF_FF_FF),
        ("maroon", 0x80_00_00),
        ("red", 0xFF_00_00),
        ("purple", 0x80_00_80),
        ("fuchsia", 0xFF_00_FF),
        ("green", 0x00_80_00),
        ("lime", 0x00_FF_00),
        ("olive", 0x80_80_00),
        ("yellow", 0xFF_FF_00),
        ("navy", 0x00_00_80),
        ("blue", 0x00_00_FF),
        ("teal", 0x00_80_80),
        ("aqua", 0x00_FF_FF),
    ];
    let [_, red, green, blue] = basic
        .iter()
        .find(|(name, _)| *name == text)?
        .1
        .to_be_bytes();
    Some([red, green, blue].map(fraction))
}

/// Parses `640x480` or `640x480+100+120`: the size of a window, and its position.
pub(crate) fn window(text: &str) -> Result<Window> {
    let wrong =
        || Error::invalid("window", "expected WIDTHxHEIGHT or WIDTHxHEIGHT+X+Y").named(text);
    let mut parts = text.split('+');
    let (width, height) = parts
        .next()
        .and_then(|size| size.split_once('x'))
        .ok_or_else(wrong)?;
    let place: Vec<&str> = parts.collect();
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let Window { x, y, .. } = Window::default();
    let (x, y) = match place[..] {
        [] => (x, y),
        [x, y] => (number(x)?, number(y)?),
        _ => return Err(wrong()),
    };
    Ok(Window {
        x,
        y,
        width: number(width)?,
        height: number(height)?,
    })
}

/// Parses `NAME=X,Y`.
pub(crate) fn parse_position(text: &str) -> Result<(String, (u32, u32))> {
    let place = text.rsplit_once('=').and_then(|(name, place)| {
        let (x, y) = place.split_once(',')?;
        Some((
            name.to_owned(),
            (x.trim().parse().ok()?, y.trim().parse().ok()?),
        ))
    });
    place.ok_or_else(|| Error::invalid("place", "expected NAME=X,Y").named(text))
}

impl Value<'_> {
    fn size(&self) -> Result<u64> {
        match self.json {
            Json::Number(number) => number
                .as_u64()
                .ok_or_else(|| self.refused("expected a number of bytes")),
            _ => size::parse(self.text()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(name: &str, text: &str) -> Result<Recipe> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mut recipe = Recipe::read(&path)?;
        for item in &mut recipe.items {
            if let Item::At { from, .. } | Item::Contents(from) = item {
                *from = from.strip_prefix(folder.path()).unwrap_or(from).to_owned();
            }
        }
        Ok(recipe)
    }

    #[test]
    fn keys_of_appdmg() {
        let made = recipe(
            "appdmg.json",
            r##"{"title": "T", "icon": "t.icns", "background-color": "#ff8000", "icon-size": 90, "format": "ULFO",
                "window": {"position": {"x": 1, "y": 2}, "size": {"width": 3, "height": 4}},
                "contents": [{"x": 448, "y": 344, "type": "link", "path": "/Applications"},
                             {"x": 192, "y": 344, "type": "file", "path": "b/T.app"},
                             {"x": 5, "y": 6, "type": "position", "path": ".VolumeIcon.icns"},
                             {"x": 7, "y": 8, "type": "file", "path": "r.txt", "name": "Read me"}]}"##,
        )
        .unwrap();
        assert_eq!(
            (made.name.as_deref(), made.format),
            (Some("T"), Some(Format::Ulfo))
        );
        let at = |from: &str, to: &str| Item::At {
            from: from.into(),
            to: to.to_owned(),
        };
        assert_eq!(
            made.items,
            [
                applications(),
                at("b/T.app", "T.app"),
                at("r.txt", "Read me")
            ]
        );
        assert_eq!(made.look.places["T.app"], (192, 344));
        assert_eq!(made.look.places[".VolumeIcon.icns"], (5, 6));
        assert_eq!(
            made.look.window,
            Window {
                x: 1,
                y: 2,
                width: 3,
                height: 4
            }
        );
        assert_eq!(
            made.look.background,
            Background::Color([1.0, 128.0 / 255.0, 0.0])
        );
        assert_eq!(made.look.icons.size, 90.0);
    }

    #[test]
    fn keys_of_dmgbuild() {
        let made = recipe(
            "settings.toml",
            r#"volume_name = "T"
            filename = "T.dmg"
            filesystem = "APFS"
            compression_level = 9
            files = ["b/T.app", ["r.txt", "Read me"]]
            symlinks = { Applications = "/Applications" }
            hide_extensions = ["Read me"]
            background = "picture.png"
            window_rect = [[100, 101], [640, 280]]
            arrange_by = "date-added"
            label_pos = "right"
            default_view = "list-view"
            [icon_locations]
            "T.app" = [140, 120]
            [license]
            default-language = "en_US"
            licenses = { de_DE = "de.txt", en_US = "en.txt" }"#,
        )
        .unwrap();
        assert_eq!((made.fs, made.level), (Some(NewFormat::Apfs), Some(9)));
        assert!(
            made.output.unwrap().ends_with("T.dmg") && made.license.unwrap().ends_with("en.txt")
        );
        let at = |from: &str, to: &str| Item::At {
            from: from.into(),
            to: to.to_owned(),
        };
        assert_eq!(made.items.len(), 3);
        assert!(
            made.items.contains(&at("b/T.app", "T.app"))
                && made.items.contains(&at("r.txt", "Read me"))
        );
        assert_eq!(
            made.look.window,
            Window {
                x: 100,
                y: 101,
                width: 640,
                height: 280
            }
        );
        assert!(made.look.icons.label_on_the_right && made.look.view == View::List);
        assert_eq!(made.warnings.len(), 1);
    }

    #[test]
    fn invalid_recipes_are_refused_by_name() {
        for (file, text, said) in [
            ("a.toml", "colour = 1", "colour"),
            ("a.toml", "icon-size = \"big\"", "icon-size"),
            ("a.json", "{\"contents\": [{\"path\": \"x\"}]}", "contents"),
            ("a.json", "[", "line"),
            ("a.py", "format = 'UDZO'", "Python"),
            ("a.toml", "background = \"builtin-arrow\"", "background"),
            ("a.toml", "background-color = \"kinda blue\"", "#rrggbb"),
        ] {
            let error = recipe(file, text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(file), "{error}");
        }
    }

    #[test]
    fn windows_and_places_on_the_command_line() {
        assert_eq!(
            window("640x400").unwrap(),
            Window {
                width: 640,
                height: 400,
                ..Window::default()
            }
        );
        assert_eq!(
            window("640x400+7+9").unwrap(),
            Window {
                x: 7,
                y: 9,
                width: 640,
                height: 400
            }
        );
        assert_eq!(
            parse_position("a=b.app=140,120").unwrap(),
            ("a=b.app".to_owned(), (140, 120))
        );
        for wrong in ["640", "640x", "640x400+1", "1x1+1+1+1"] {
            assert!(window(wrong).is_err());
        }
        assert!(parse_position("x=1").is_err() && parse_position("1,2").is_err());
    }
}
