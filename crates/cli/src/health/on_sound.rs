//! A command that is run for each sound bundle that has changed: a snapshot of the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use bandsaw::container::sparsebundle;
use bandsaw::fs::Timestamp;
use bandsaw::store::Local;
use bandsaw::{Error, Kind, Result};
use bandsaw_states::sealed::{self, Found};
use bandsaw_states::{BundleFolder, PrivateCache};
use serde::{Deserialize, Serialize};

use crate::private_cache;
use crate::text::rfc3339;

/// Layer name in errors.
const LAYER: &str = "on-sound";
/// Name of the file with the bundles for which the command was run.
const NAME: &str = "on-sound";
/// Version of its format.
const FORMAT: u64 = 1;
/// The number of bundles remembered; the others are run again.
const MAX_BUNDLES: usize = 1000;
/// The length up to which the file is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Finished {
    /// Fingerprints of the files of each bundle, by its path and the command.
    bundles: BTreeMap<String, String>,
}

impl Finished {
    fn read(cache: &PrivateCache) -> Self {
        let bytes = cache.read(NAME, MAX_LEN);
        match bytes.map(|bytes| sealed::from_bytes::<Self>(&bytes, FORMAT)) {
            Some(Ok(Found::Whole(done))) => done,
            _ => Self::default(),
        }
    }
}

/// Runs the command for a sound bundle, which nobody may open for changes meanwhile, unless it was run for
/// the same files. `{bundle}` in an argument is the path of the bundle, `{time}` is `now`.
///
/// [`Kind::Conflict`] if the bundle is in use, or changes while the command runs.
pub(crate) fn run_if_changed(path: &Path, command: &[String], now: Timestamp) -> Result<()> {
    let bundle = BundleFolder::open(path)?;
    let _locks =
        sparsebundle::lock_shared(&Local::new(path)).map_err(|error| error.in_file(path))?;
    let files_now = || bundle.summarize(&BTreeSet::new());
    let files = files_now()?.fingerprint();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let key = format!("{}\n{}", absolute.display(), command.join("\n"));
    let cache = private_cache::open();
    let mut done = cache.as_ref().map(Finished::read).unwrap_or_default();
    if done.bundles.get(&key) == Some(&files) {
        return Ok(());
    }
    let shown = path.display().to_string();
    let time = rfc3339(now).replace(':', "");
    let mut words = command.iter().map(|word| filled(word, &shown, &time));
    let program = words.next().unwrap_or_default();
    let failed = |source| Error::io(LAYER, "run", source).in_file(&program);
    let mut child = Command::new(&program);
    let child = child.args(words).stdin(Stdio::null());
    // Standard output is that of `--json`.
    let status = child.stdout(io::stderr()).status().map_err(failed)?;
    if !status.success() {
        let message = format!("the command failed: {status}");
        return Err(Error::new(Kind::Io, LAYER, message).in_file(program));
    }
    if files_now()?.fingerprint() != files {
        let message =
            "the bundle changed while the command ran: its result may be of no sound state";
        return Err(Error::conflict(LAYER, message).in_file(path));
    }
    done.bundles.insert(key, files);
    if done.bundles.len() > MAX_BUNDLES {
        done.bundles.pop_first();
    }
    // Best effort: otherwise the command is run once more.
    if let (Some(cache), Ok(bytes)) = (cache, sealed::to_bytes(FORMAT, &done)) {
        let _ = cache.write(NAME, &bytes);
    }
    Ok(())
}

/// Returns an argument with the path of the bundle and the time in it. A path with `{time}` in it stays as it is.
fn filled(word: &str, bundle: &str, time: &str) -> String {
    let parts = word
        .split("{bundle}")
        .map(|part| part.replace("{time}", time));
    parts.collect::<Vec<_>>().join(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_a_path_stay_as_they_are() {
        let path = "/share/{time}/{bundle}.sparsebundle";
        let word = filled("zfs@{time}={bundle}", path, "now");
        assert_eq!(word, format!("zfs@now={path}"));
    }
}
