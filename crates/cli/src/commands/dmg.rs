//! `bandsaw dmg`: disk images for distributing software.

use std::path::{Path, PathBuf};

use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::container::udif::{Resource, license};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, UNTITLED, create};
use bandsaw::ops::finder::{Background, Window};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;
use bandsaw::{Error, Kind, Reason, size};
use clap::{Args, ValueHint};

use super::create::epoch;
use super::resources::add as resources;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::recipe::{self, Recipe};
use crate::{image_report, info_text};

/// Create a disk image for distributing software
///
/// The contents of a FOLDER are copied into the volume; a bundle (a folder ending in .app, .pkg,
/// .framework and so on) or a file is copied under its own name. The window's icon, background and layout are stored as the
/// Finder reads them: .VolumeIcon.icns, a picture in .background, and .DS_Store. Nothing is
/// mounted.
///
/// A recipe contains the same settings in a TOML or JSON file. The keys of appdmg and dmgbuild are
/// accepted, with _ or -; paths are relative to the recipe. Options of the command line take
/// precedence.
///
/// If SOURCE_DATE_EPOCH is set, the same source gives the same image, bit for bit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw dmg build -o App.dmg
  bandsaw dmg App.app -o App.dmg --applications --place Applications=480,200
  bandsaw dmg build -o App.dmg --icon disk.icns --background picture.png --window 640x400
  bandsaw dmg build -o App.dmg --license LICENSE.txt --format ulfo
  bandsaw dmg --recipe appdmg.json -o App.dmg
  SOURCE_DATE_EPOCH=1700000000 bandsaw dmg build -o App.dmg     reproducible")]
pub(crate) struct Dmg {
    /// Folders, applications and files to put into the volume
    #[arg(value_name = "FOLDER", required_unless_present = "recipe")]
    sources: Vec<PathBuf>,
    /// The image to create
    #[arg(short, long, value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Read settings from this file, TOML or JSON (.json)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    recipe: Option<PathBuf>,
    /// Set the name of the volume
    ///
    /// The default is the name of the folder or application.
    #[arg(long, value_name = "NAME")]
    volname: Option<String>,
    /// Set the icon of the volume, an icns file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    icon: Option<PathBuf>,
    /// Set the background: a picture, or a color as #rrggbb
    #[arg(long, value_name = "FILE|COLOR", value_hint = ValueHint::FilePath)]
    background: Option<PathBuf>,
    /// Set the size of the window in points, and its position
    #[arg(long, value_name = "WxH[+X+Y]", value_parser = recipe::window)]
    window: Option<Window>,
    /// Set the size of icons in points (default: 128)
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u16).range(16..=512), hide_short_help = true)]
    icon_size: Option<u16>,
    /// Set the text size of names in points (default: 12)
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u16).range(10..=16), hide_short_help = true)]
    text_size: Option<u16>,
    /// Place the icon of NAME at X,Y
    ///
    /// X,Y is the center of the icon, measured from the upper left corner of the window. NAME is a
    /// file or folder in the root of the volume.
    #[arg(long = "place", value_name = "NAME=X,Y", value_parser = recipe::parse_position)]
    places: Vec<(String, (u32, u32))>,
    /// Add a link to /Applications
    #[arg(long)]
    applications: bool,
    /// Show this license before the image is opened
    ///
    /// The file is UTF-8 text or RTF.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, alias = "licence")]
    license: Option<PathBuf>,
    /// Set the format: udzo (default), ulfo, ulmo, udbz and so on
    ///
    /// All formats of `bandsaw create` are possible.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Set the file system: hfs+ (default), apfs and so on
    ///
    /// All file systems of `bandsaw create` are possible.
    #[arg(long, value_name = "FS")]
    fs: Option<NewFormat>,
    /// Set the size of the disk
    ///
    /// The default is the space that the files need, with some room.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, hide_short_help = true)]
    size: Option<u64>,
    /// Set the level of udzo: 1 (fastest) to 9 (smallest, default)
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=9), hide_short_help = true)]
    level: Option<u8>,
    /// Replace an existing image
    #[arg(long, visible_alias = "ov")]
    overwrite: bool,
}

impl Dmg {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let mut recipe = self
            .recipe
            .as_deref()
            .map(Recipe::read)
            .transpose()?
            .unwrap_or_default();
        recipe
            .warnings
            .iter()
            .for_each(|warning| output.warn(warning));
        let target = self.output.clone().or(recipe.output.take());
        let target = target
            .ok_or_else(|| Failure::usage("--output", "the target is missing; use -o FILE"))?;
        let bar = Bar::new(output);
        let options = self.options(recipe, output)?;
        let made = create(&target, options, &bar).map_err(|error| self.advise(error))?;
        let report = image_report::of_image(&made.image, &bar)?;
        drop(bar);
        image_report::warn(&report, output);
        output.done(&report, |out| info_text::write(&report, output, out))
    }

    fn options(&self, recipe: Recipe, output: &Output) -> Outcome<CreateOptions> {
        let level = self.level.or(recipe.level).map(Level::new).transpose()?;
        let chosen = CreateOptions::for_distribution(self.format.or(recipe.format), level);
        if level.is_some() && chosen.level.is_none() {
            let format = chosen.format;
            output.warn(&format!(
                "{format} has no compression levels; only udzo has"
            ));
        }
        let name = self
            .volname
            .clone()
            .or_else(|| recipe.name.clone())
            .or_else(|| self.name_of_source());
        let license = self.license.as_deref().or(recipe.license.as_deref());
        let mut look = recipe.look.clone();
        look.icon = self.icon.clone().or(look.icon);
        look.window = self.window.unwrap_or(look.window);
        look.icons.size = self.icon_size.map_or(look.icons.size, f64::from);
        look.icons.text_size = self.text_size.map_or(look.icons.text_size, f64::from);
        look.places.extend(self.places.iter().cloned());
        if let Some(background) = &self.background {
            let color = background.to_str().and_then(recipe::color);
            look.background = color.map_or_else(
                || Background::Picture(background.clone()),
                Background::Color,
            );
        }
        Ok(CreateOptions {
            len: self.size.or(recipe.size),
            overwrite: self.overwrite,
            epoch: epoch()?,
            resources: license.map_or_else(|| Ok(Vec::new()), resources_of)?,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: name.unwrap_or_else(|| UNTITLED.to_owned()),
                format: self.fs.or(recipe.fs).unwrap_or_default(),
                block_size: None,
                source: Source::Items(self.items(recipe.items)?),
            }),
            look: Some(look),
            ..chosen
        })
    }

    /// Returns the items of the volume, folders first: a whole folder determines the owner and mode
    /// of the root.
    fn items(&self, of_recipe: Vec<Item>) -> Outcome<Vec<Item>> {
        let mut items = self
            .sources
            .iter()
            .map(|path| item(path))
            .collect::<Outcome<Vec<_>>>()?;
        items.sort_by_key(|item| !matches!(item, Item::Contents(_)));
        items.extend(of_recipe);
        let link = recipe::applications();
        if self.applications && !items.contains(&link) {
            items.push(link);
        }
        Ok(items)
    }

    /// Returns the name of the first source, without the extension of a bundle.
    fn name_of_source(&self) -> Option<String> {
        let path = self.sources.first()?.canonicalize().ok()?;
        let name = if path.is_dir() && !is_bundle(&path) {
            path.file_name()
        } else {
            path.file_stem()
        };
        Some(name?.to_str()?.to_owned())
    }

    fn advise(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::NotFound if error.reason() == Some(Reason::NoSuchPath) => Failure::from(error)
                .hint("only objects in the root of the volume can be placed or hidden"),
            _ => Failure::from(error).hint_if_exists(self.overwrite),
        }
    }
}

/// The extensions of folders that macOS treats as one object.
const BUNDLES: [&str; 18] = [
    "app",
    "appex",
    "bundle",
    "component",
    "driver",
    "framework",
    "kext",
    "mdimporter",
    "mpkg",
    "pkg",
    "plugin",
    "prefpane",
    "qlgenerator",
    "saver",
    "service",
    "systemextension",
    "wdgt",
    "xpc",
];

/// Returns true for the path of a bundle, which is copied as one item.
pub(crate) fn is_bundle(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        BUNDLES
            .iter()
            .any(|bundle| extension.eq_ignore_ascii_case(bundle))
    })
}

fn item(path: &Path) -> Outcome<Item> {
    if path.is_dir() && !is_bundle(path) {
        return Ok(Item::Contents(path.to_owned()));
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Failure::usage("FOLDER", "expected a path that ends in a name").in_file(path)
    })?;
    Ok(Item::At {
        from: path.to_owned(),
        to: name.to_owned(),
    })
}

fn resources_of(path: &Path) -> Outcome<Vec<Resource>> {
    Ok(license(&resources::read(path)?).map_err(|error| error.in_file(path))?)
}
