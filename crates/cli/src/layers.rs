//! Layers given as if they were images: a search for the image below.

use std::path::Path;

use bandsaw::address::{ImagePath, shown};
use bandsaw::open::stack;

/// Returns a hint with the image below the layer at `image`, if one is found beside it. `None` if
/// it is not a layer.
pub(crate) fn beneath(image: &ImagePath) -> Option<String> {
    let found = stack::candidates_below(Path::new(image)).ok()??;
    Some(match found.first() {
        Some(below) => format!("open it over its base: `{} --shadow {image}`", shown(below)),
        None => format!("open its base with `--shadow {image}`; no file beside it matches"),
    })
}
