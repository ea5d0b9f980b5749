//! The error about an image that is in use, with the command that ends that use.

use std::path::Path;

use bandsaw::{Error, Kind, Reason};
use bandsaw_registry::{Entry, Registry, Use};

use crate::failure::Failure;
use crate::source::whole_name;

/// Returns the error about `image`, naming the command that uses it if that is one of this
/// program.
pub(crate) fn explain(error: Error, image: &str) -> Failure {
    let entries = Registry::of_user().and_then(|registry| registry.entries());
    let image = Path::new(image);
    let uses = |entry: &Entry| {
        let mut paths = [&entry.image].into_iter().chain(&entry.layers);
        paths.any(|path| is_same(path, image))
    };
    let Some(entry) = entries.unwrap_or_default().into_iter().find(uses) else {
        return error.into();
    };
    let verb = match entry.used {
        Use::Served => "serve",
        Use::Mounted => "mount",
        Use::Attached => "attach",
    };
    let message = format!("in use by bandsaw {verb} (pid {})", entry.process);
    let error = Error::new(Kind::Conflict, "cannot open", message)
        .because(Reason::InUse)
        .in_file(image);
    Failure::from(error).hint(
        match entry.mounts.first().map(|mount| mount.folder.display()) {
            Some(folder) => {
                format!("run `bandsaw detach {folder}` first, or read the files in {folder}")
            }
            None => format!("run `bandsaw detach {}` first", entry.device),
        },
    )
}

fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| whole_name(path));
    real(a) == real(b)
}
