//! The property list by which a sparse bundle is opened.

use std::path::Path;
use std::sync::Arc;

use super::compare_lists::{ListDecision, ListEvidence, both, trial_of};
use super::geometry::Depth;
use crate::container::sparsebundle::{self, BundleGeometry, ChosenGeometry, ListState};
use crate::decision::Assumptions;
use crate::device::Access;
use crate::open::key_cache::CachedKeys;
use crate::open::{Keys, OpenOptions};
use crate::progress::Silent;
use crate::store::Store;
use crate::{Error, Kind, Result};

/// The choice between two lists that differ.
#[derive(Debug, Default)]
pub(in crate::open) struct ResolvedLists {
    /// The numbers to use. `None`: those that any reader uses.
    pub(in crate::open) choice: Option<ChosenGeometry>,
    pub(in crate::open) warning: Option<String>,
}

/// Compares the lists of the bundle in `store`, with `is_far` a bucket. If both are valid and differ, the evidence on the
/// disk decides. If it does not, that is an error of [`Kind::Undecided`] for a writer; a reader
/// uses Info.plist, with a warning.
pub(in crate::open) fn resolve_for_open(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
    is_far: bool,
) -> Result<ResolvedLists> {
    let [ListState::Whole(info), ListState::Whole(backup)] = both(&**store, is_far)? else {
        return Ok(ResolvedLists::default());
    };
    let none = Assumptions::default();
    let assume = options
        .assume
        .filter(|_| options.access == Access::ReadOnly)
        .unwrap_or(&none);
    if info == backup && assume.size.is_none() && assume.band_size.is_none() {
        return Ok(ResolvedLists::default());
    }
    let keys = options.keys.map(CachedKeys::new);
    let reading = OpenOptions {
        access: Access::ReadOnly,
        keys: keys.as_ref().map(|keys| keys as &dyn Keys),
        ..*options
    };
    let staged = trial_of(store);
    let decide = |depth| {
        ListEvidence {
            path,
            store: &staged,
            options: &reading,
            assume,
            temporary: Path::new(""),
            depth,
            progress: &Silent,
        }
        .resolve()
    };
    let is_undecided = |error: &Error| error.kind() == Kind::Undecided;
    let resolved = match decide(Depth::Quick) {
        Err(error) if is_undecided(&error) => decide(Depth::Full),
        resolved => resolved,
    };
    let recorded = |geometry: BundleGeometry| {
        format!("{} bytes in bands of {}", geometry.size, geometry.band_size)
    };
    let differ = format!(
        "Info.plist records {}, Info.bckup {}",
        recorded(info),
        recorded(backup)
    );
    if let (Ok(ListDecision::Geometry { geometry, .. }), true) = (&resolved, *assume != none) {
        return Ok(ResolvedLists {
            choice: Some(ChosenGeometry {
                geometry: *geometry,
                lists: [info, backup],
            }),
            warning: Some(format!("is read with {}, as assumed", recorded(*geometry))),
        });
    }
    match resolved {
        Ok(ListDecision::Geometry { geometry, .. }) => {
            let by = match geometry {
                _ if geometry == info => "Info.plist is used",
                _ if geometry == backup => "Info.bckup is used",
                _ => "numbers of both are used",
            };
            Ok(ResolvedLists {
                choice: Some(ChosenGeometry {
                    geometry,
                    lists: [info, backup],
                }),
                warning: Some(format!(
                    "{differ}; {by}, as the contents of the disk confirm: run `bandsaw repair` to make them agree"
                )),
            })
        }
        Ok(ListDecision::Refused(_)) => Ok(ResolvedLists::default()),
        Err(error) if is_undecided(&error) && options.access == Access::ReadOnly => {
            Ok(ResolvedLists {
                choice: None,
                warning: Some(format!(
                    "{differ}, and nothing decides which is right; Info.plist is used for reading \
                 only, as by macOS, which writes Info.bckup first: run `bandsaw repair`"
                )),
            })
        }
        Err(error) => {
            // A change that is in progress is the better explanation.
            drop(sparsebundle::lock_unused(&**store)?);
            Err(error)
        }
    }
}
