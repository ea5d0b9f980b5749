//! Images that this program itself has in use.

use std::path::{Path, PathBuf};

use bandsaw::address::{ImagePath, redacted, shown};
use bandsaw::open::Image;
use bandsaw::{Error, Reason};
use bandsaw_registry::{Entry, Registry, Use};

use crate::failure::Failure;

/// Returns the error about `image`, naming the command that uses it if that is one of this
/// program.
pub(crate) fn explain(error: Error, image: &ImagePath) -> Failure {
    let Some(entry) = entry_of(image.as_path()) else {
        return error.into();
    };
    let message = format!("cannot open: in use by {}", user(&entry));
    let error = Error::conflict("image", message)
        .because(Reason::InUse)
        .in_file(image);
    Failure::from(error).hint(way_out(&entry))
}

/// Returns the hint about an image in use, if this program uses it: the command that ends the use.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let file = Path::new(
        error
            .file()
            .filter(|_| error.reason() == Some(Reason::InUse))?,
    );
    Some(way_out(&entry_of(file)?))
}

/// Returns the entry of an image that this program uses.
pub(crate) fn entry_of(image: &Path) -> Option<Entry> {
    let entries = Registry::of_user().and_then(|registry| registry.entries());
    let uses = |entry: &Entry| {
        let mut paths = [&entry.image].into_iter().chain(&entry.layers);
        paths.any(|path| is_same(path, image))
    };
    entries.unwrap_or_default().into_iter().find(uses)
}

/// Returns the command that uses an image, and its process.
pub(crate) fn user(entry: &Entry) -> String {
    let verb = match entry.used {
        Use::Served => "serve",
        Use::Mounted => "mount",
        Use::Attached => "attach",
    };
    format!("bandsaw {verb} (pid {})", entry.process)
}

/// Returns the command that ends the use of an image.
pub(crate) fn way_out(entry: &Entry) -> String {
    match entry.mounts.first().map(|mount| mount.folder.display()) {
        Some(folder) => {
            format!("run `bandsaw detach {folder}` first, or read the files in {folder}")
        }
        None => format!("run `bandsaw detach {}` first", entry.device),
    }
}

/// Returns an entry with the properties of an image.
pub(crate) fn entry(image: &Image, used: Use) -> Entry {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Entry {
        format: image.format().code().to_owned(),
        layers: image
            .overlays()
            .map(|layer| absolute(&layer.path))
            .collect(),
        scheme: image.partitions().map(|map| map.scheme.to_string()),
        size: image.disk().info().len,
        encrypted: image.is_secret(),
        ..Entry::new(used)
    }
}

/// Returns the name of an image that is valid anywhere: an absolute path, or a URL without secrets.
pub(crate) fn whole_name(image: &Path) -> PathBuf {
    match image.to_str().filter(|text| text.contains("://")) {
        Some(url) => redacted(url).into_owned().into(),
        None => std::path::absolute(image).unwrap_or_else(|_| image.to_owned()),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| whole_name(path));
    // An entry holds its paths as text.
    shown(real(a)) == shown(real(b))
}
