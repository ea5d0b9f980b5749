//! Plots as bitmaps.

use std::sync::Arc;

use bandsaw::{Error, Kind, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

use super::plot::Plot;

/// Pixels per unit of the SVG.
const SCALE: f32 = 2.0;

/// Renders plots with the fonts of this machine.
#[derive(Debug)]
pub struct Painter {
    fonts: Arc<Database>,
}

impl Painter {
    /// Loads the system's fonts. Fails with [`Kind::Unsupported`] if there are none, since plots
    /// need labels.
    pub fn new() -> Result<Self> {
        let mut fonts = Database::new();
        fonts.load_system_fonts();
        let family = fonts
            .faces()
            .find_map(|face| Some(face.families.first()?.0.clone()));
        let family = family.ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                "benchmark",
                "no font is installed to draw PNG files with",
            )
        })?;
        fonts.set_sans_serif_family(family);
        Ok(Self {
            fonts: Arc::new(fonts),
        })
    }

    /// Renders a plot as a PNG file.
    pub fn png(&self, plot: &Plot) -> Result<Vec<u8>> {
        let failed = |why: String| Error::new(Kind::Io, "benchmark", why).named(plot.name.clone());
        let options = Options {
            fontdb: self.fonts.clone(),
            font_family: "sans-serif".to_owned(),
            ..Options::default()
        };
        let tree =
            Tree::from_str(&plot.light(), &options).map_err(|error| failed(error.to_string()))?;
        let size = tree.size();
        let (width, height) = (
            (size.width() * SCALE).ceil() as u32,
            (size.height() * SCALE).ceil() as u32,
        );
        let mut dots = Pixmap::new(width, height)
            .ok_or_else(|| failed("the picture is too large".to_owned()))?;
        resvg::render(
            &tree,
            Transform::from_scale(SCALE, SCALE),
            &mut dots.as_mut(),
        );
        dots.encode_png().map_err(|error| failed(error.to_string()))
    }
}
