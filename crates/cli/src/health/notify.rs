//! A command that is run when verdicts have changed since the last run.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bandsaw::{Error, Kind};
use bandsaw_states::PrivateCache;
use bandsaw_states::health::BundleVerdict;
use bandsaw_states::sealed::{self, Found};
use serde::{Deserialize, Serialize};

use crate::failure::Outcome;
use crate::output::Output;
use crate::private_cache;

/// Layer name in errors.
const LAYER: &str = "on-change";
/// Name of the file with the verdicts of the last runs.
const NAME: &str = "verdicts";
/// Version of its format.
const FORMAT: u64 = 1;
/// The number of different runs remembered; the oldest are forgotten.
const MAX_RUNS: usize = 100;
/// The length up to which the file is read, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// Verdicts by path.
type Verdicts = BTreeMap<String, BundleVerdict>;

/// A verdict that is not that of the last run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    path: String,
    /// The verdict of the last run. `None`: there was no such bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<BundleVerdict>,
    /// The present verdict. `None`: the bundle no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<BundleVerdict>,
}

/// The verdicts of the last run over the same places.
#[derive(Debug, Serialize, Deserialize)]
struct LastRun {
    /// The verb, and the folders or the configuration.
    places: Vec<String>,
    verdicts: Verdicts,
}

/// The document on the standard input of the command.
#[derive(Serialize)]
struct Notice<'a, T> {
    changes: &'a [Change],
    #[serde(flatten)]
    report: &'a T,
}

/// Runs `command` if a verdict has changed since the last run with these `places`, with the report
/// and the changes as JSON on its standard input. The first run is compared with sound bundles. If
/// the command fails, the changes are reported again by the next run.
pub(crate) fn run_on_change<T: Serialize>(
    command: &[OsString],
    places: Vec<String>,
    now: impl IntoIterator<Item = (String, BundleVerdict)>,
    report: &T,
    output: &Output,
) -> Outcome {
    let cache = private_cache::open();
    let mut runs = cache.as_ref().map_or_else(Vec::new, read);
    let same = runs.iter().position(|run| run.places == places);
    let before = same.map(|at| runs.remove(at).verdicts);
    let (changes, verdicts) = compare(before.unwrap_or_default(), now);
    if !changes.is_empty() {
        let changes = &changes;
        let document = output.document(&Notice { changes, report })?;
        run_with_input(command, document.as_bytes())?;
    }
    let oldest = (runs.len() + 1).saturating_sub(MAX_RUNS);
    runs.drain(..oldest);
    runs.push(LastRun { places, verdicts });
    // Best effort: otherwise the next run is a first one.
    if let (Some(cache), Ok(bytes)) = (cache, sealed::to_bytes(FORMAT, &runs)) {
        let _ = cache.write(NAME, &bytes);
    }
    Ok(())
}

/// Returns what tells runs of a verb with other arguments apart: the same paths of bundles mean the
/// same bundles if the working folder is the same.
pub(crate) fn run_key(verb: &str, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let folder = env::current_dir().unwrap_or_default();
    let first = [verb.to_owned(), folder.display().to_string()];
    first.into_iter().chain(arguments).collect()
}

/// Compares the verdicts of two runs. Returns the changes, and the verdicts to compare the next run
/// with.
fn compare(
    mut before: Verdicts,
    now: impl IntoIterator<Item = (String, BundleVerdict)>,
) -> (Vec<Change>, Verdicts) {
    let mut changes = Vec::new();
    let mut verdicts = Verdicts::new();
    for (path, verdict) in now {
        let last = before.remove(&path);
        // A bundle in use was not checked: its last verdict stays.
        if verdict == BundleVerdict::InUse {
            verdicts.extend(last.map(|last| (path, last)));
            continue;
        }
        if last.unwrap_or(BundleVerdict::Sound) != verdict {
            changes.push(Change {
                path: path.clone(),
                before: last,
                verdict: Some(verdict),
            });
        }
        verdicts.insert(path, verdict);
    }
    for (path, last) in before {
        // Bundles in a folder that cannot be read are not absent.
        let mut above = Path::new(&path).ancestors().skip(1);
        let is_hidden = above.any(|folder| {
            let verdict = folder.to_str().and_then(|folder| verdicts.get(folder));
            verdict == Some(&BundleVerdict::Unreadable)
        });
        if is_hidden {
            verdicts.insert(path, last);
            continue;
        }
        changes.push(Change {
            path,
            before: Some(last),
            verdict: None,
        });
    }
    (changes, verdicts)
}

fn read(cache: &PrivateCache) -> Vec<LastRun> {
    let bytes = cache.read(NAME, MAX_LEN).unwrap_or_default();
    match sealed::from_bytes(&bytes, FORMAT) {
        Ok(Found::Whole(runs)) => runs,
        _ => Vec::new(),
    }
}

/// Runs a command with `document` on its standard input. Its output goes to standard error.
fn run_with_input(command: &[OsString], document: &[u8]) -> Outcome {
    let [program, args @ ..] = command else {
        return Err(Error::invalid(LAYER, "names no command").into());
    };
    let failed = |source| Error::io(LAYER, "run", source).in_file(program);
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::from(io::stderr()))
        .spawn()
        .map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| {
        stdin.write_all(document)?;
        stdin.write_all(b"\n")
    });
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        let message = format!("the command failed: {status}");
        return Err(Error::new(Kind::Io, LAYER, message).in_file(program).into());
    }
    match written {
        // A command need not read its input.
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(failed(source).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts<const N: usize>(all: [(&str, BundleVerdict); N]) -> Verdicts {
        all.map(|(path, verdict)| (path.to_owned(), verdict)).into()
    }

    #[test]
    fn only_other_verdicts_are_changes() {
        use BundleVerdict::{Damaged, InUse, Sound, Unreadable};
        let first = verdicts([("/a", Sound), ("/b", Damaged)]);
        let (changes, kept) = compare(Verdicts::new(), first.clone());
        assert_eq!(changes.len(), 1);
        assert_eq!((&*changes[0].path, changes[0].before), ("/b", None));
        assert_eq!(kept, first);
        assert!(compare(first.clone(), first.clone()).0.is_empty());

        // In use: the last verdict stays, and is compared with later.
        let (changes, kept) = compare(first.clone(), verdicts([("/a", InUse), ("/b", InUse)]));
        assert!(changes.is_empty() && kept == first);
        let (changes, _) = compare(Verdicts::new(), verdicts([("/a", InUse)]));
        assert!(changes.is_empty());

        // Repaired, and gone.
        let (changes, kept) = compare(first.clone(), verdicts([("/b", Sound)]));
        let told: Vec<_> = changes
            .iter()
            .map(|one| (&*one.path, one.before, one.verdict))
            .collect();
        let expected = [
            ("/b", Some(Damaged), Some(Sound)),
            ("/a", Some(Sound), None),
        ];
        assert_eq!(told, expected);
        assert_eq!(kept, verdicts([("/b", Sound)]));

        // Hidden by a folder that cannot be read.
        let inside = verdicts([("/share/x/a", Sound)]);
        let (changes, kept) = compare(inside, verdicts([("/share", Unreadable)]));
        assert_eq!(changes.len(), 1);
        assert_eq!(
            kept,
            verdicts([("/share", Unreadable), ("/share/x/a", Sound)])
        );
    }
}
