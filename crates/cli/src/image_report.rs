//! The output of verbs about an image: the library's description, with what only the command knows.

use bandsaw::address::shown;
use bandsaw::container::Format;
use bandsaw::open::Image;
use bandsaw::ops::describe::ImageInfo;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};
use bandsaw_registry::Entry;

use crate::failure::Outcome;
use crate::in_use;
use crate::output::Output;

/// Returns the facts about a new image, whose volumes open.
pub(crate) fn of_image(image: &Image, progress: &dyn Progress) -> Outcome<ImageInfo> {
    let mut report = ImageInfo::of(image, progress)?;
    opened(&mut report)?;
    Ok(report)
}

/// Returns all facts about a copy, with a warning if a volume does not open: the copy is complete,
/// but the source may be damaged.
pub(crate) fn of_copy(image: &Image, progress: &dyn Progress) -> Outcome<ImageInfo> {
    let mut report = ImageInfo::new(shown(image.path()));
    let done = report.add_image(image, progress);
    match done.and_then(|()| opened(&mut report)) {
        Err(error) if is_of_source(&error) => {
            let damaged = format!(
                "the copy is complete, but a volume in it is damaged, like the source: {error}"
            );
            report.losses.push(damaged.clone());
            report.warnings.push(damaged);
        }
        done => done?,
    }
    Ok(report)
}

/// Returns true for errors that a source passes on to its copy.
fn is_of_source(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Corrupt | Kind::Unsupported | Kind::NotFound | Kind::Limit
    )
}

/// Fails if a volume that should open does not.
pub(crate) fn opened(report: &mut ImageInfo) -> Result<()> {
    match report.unopened.take() {
        Some(error) => Err(error.in_file(&report.path)),
        None => Ok(()),
    }
}

/// Adds what is recorded of an image that this program has in use.
pub(crate) fn add_use(report: &mut ImageInfo, entry: &Entry) {
    let format: Option<Format> = entry.format.parse().ok();
    report.format = format.map(Format::code);
    report.description = format.map(Format::description);
    report.size = Some(entry.size);
    let encrypted = if entry.encrypted { "encrypted, " } else { "" };
    let mounts = entry.mounts.iter().map(|mount| {
        format!(
            "; {} volume {} is mounted on {}",
            mount.format,
            mount.name,
            mount.folder.display()
        )
    });
    report.warnings.push(format!(
        "{encrypted}in use by {}, so only its format and size are shown{}; {}",
        in_use::user(entry),
        mounts.collect::<String>(),
        in_use::way_out(entry)
    ));
}

/// Prints the warnings for people; programs find them in the JSON output.
pub(crate) fn warn(report: &ImageInfo, output: &Output) {
    if !output.json() {
        for warning in &report.warnings {
            match report.losses.contains(warning) {
                true => output.warn_of_loss(warning),
                false => output.warn(warning),
            }
        }
    }
}
