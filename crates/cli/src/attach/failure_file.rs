//! The log of a background server, and the file that says why it failed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bandsaw_registry::Registry;

use crate::failure::Outcome;

/// Age at which the error of a server that has ended is removed: whoever detached its image has read
/// it long ago.
const FAILURE_AGE: Duration = Duration::from_secs(600);

/// Returns the file with the error of a background process, for the process that detaches the image.
/// It names the process: another image may have the device name before anybody reads it.
pub(super) fn failure_file(registry: &Registry, device: &str, process: u32) -> PathBuf {
    registry.folder().join(format!("{device}-{process}.failed"))
}

/// Removes errors of earlier processes with this device name that nobody waits for any more.
pub(super) fn remove_old_failures(registry: &Registry, device: &str) {
    let prefix = format!("{device}-");
    for entry in fs::read_dir(registry.folder())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let is_failure = name
            .to_str()
            .and_then(|name| name.strip_prefix(&*prefix))
            .is_some_and(|rest| rest.ends_with(".failed"));
        let age = entry.metadata().and_then(|meta| meta.modified());
        let age = age.ok().and_then(|modified| modified.elapsed().ok());
        if is_failure && age.is_some_and(|age| age > FAILURE_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub(super) fn write_failure(registry: &Registry, device: &str, ended: &Outcome) {
    let log = log_of(registry, device);
    if fs::metadata(&log).is_ok_and(|meta| meta.len() == 0) {
        let _ = fs::remove_file(&log);
    }
    if let Err(failure) = ended {
        // Best effort, as the log has it too.
        let file = failure_file(registry, device, std::process::id());
        let _ = fs::write(file, failure.message());
    }
}

pub(super) fn log_of(registry: &Registry, device: &str) -> PathBuf {
    registry.folder().join(format!("{device}.log"))
}
