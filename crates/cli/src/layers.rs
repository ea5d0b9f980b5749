//! A layer that was given as if it were an image: what it may lie over.

use std::path::{Path, PathBuf};

use bandsaw::open::stack;

/// How to name the image below the layer at `image`, as far as one is found beside it. `None`: it
/// is no layer.
pub(crate) fn beneath(image: &str) -> Option<String> {
    let found = stack::candidates_below(Path::new(image)).ok()??;
    let shown = |path: &PathBuf| path.display().to_string();
    Some(match found.first() {
        Some(below) => format!(
            "it fits `{}`: `--shadow {image}` lays it over that image",
            shown(below)
        ),
        None => format!("open the image below it with `--shadow {image}`; none beside it fits"),
    })
}
