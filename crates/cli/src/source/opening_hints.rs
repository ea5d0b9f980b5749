//! Hints for images that do not open.

use std::path::Path;

use bandsaw::address::{ImagePath, shown};
use bandsaw::decision::Undecided;
use bandsaw::open::{self};
use bandsaw::{Error, Kind, Reason};

use crate::failure::Failure;
use crate::in_use;

/// Adds a hint to an error of opening an image.
pub(crate) fn advise(error: Error, image: &ImagePath) -> Failure {
    let hint = match error.kind() {
        Kind::NotFound
            if image
                .to_str()
                .is_some_and(|text| text.starts_with("./") && text.contains(':')) =>
        {
            "a name that begins with ./ is a host file; omit ./ to name an object in an image"
        }
        Kind::NotFound
            if matches!(
                error.reason(),
                Some(Reason::NoSuchImage | Reason::LayerAlone)
            ) =>
        {
            return match image
                .to_str()
                .and_then(snapshot_of)
                .or_else(|| hint_beneath(image))
            {
                Some(hint) => Failure::from(error).hint(hint),
                None => error.into(),
            };
        }
        Kind::Conflict if error.reason() == Some(Reason::InUse) => {
            return in_use::explain(error, image);
        }
        Kind::Conflict if error.reason() == Some(Reason::LayersChanged) => {
            "name the layers from the bottom; the images below a layer must not have changed"
        }
        Kind::Undecided if Undecided::of(&error).is_empty() => {
            return Failure::from(error).hint(format!(
                "run `bandsaw repair {image}` to see the alternatives, or use -r to read it \
                 unchanged"
            ));
        }
        Kind::Undecided => {
            return Failure::from(error).hint(format!(
                "add `--assume CHOICE` with one of these, or run `bandsaw repair {image}`; use -r \
                 to read it unchanged"
            ));
        }
        Kind::ReadOnly if error.reason().is_none() => {
            "use `bandsaw convert` to create a writable copy"
        }
        _ => return error.into(),
    };
    Failure::from(error).hint(hint)
}

/// Returns the hint about `IMAGE@SNAPSHOT`, which lacks the volume.
fn snapshot_of(text: &str) -> Option<String> {
    let mut cuts = text
        .rmatch_indices('@')
        .map(|(at, _)| (&text[..at], &text[at + 1..]));
    let (image, snapshot) = cuts.find(|(image, _)| Path::new(image).is_file())?;
    Some(format!(
        "name the volume too: {image}:VOLUME@{snapshot}; run `bandsaw info {image}` to list \
         volumes and snapshots"
    ))
}

/// Returns a hint with the image below the layer at `image`, if one is found beside it. `None` if
/// it is not a layer.
fn hint_beneath(image: &ImagePath) -> Option<String> {
    let found = open::overlays::candidates_below(Path::new(image)).ok()??;
    Some(match found.first() {
        Some(below) => format!("open it over its base: `{} --shadow {image}`", shown(below)),
        None => format!("open its base with `--shadow {image}`; no file beside it matches"),
    })
}
