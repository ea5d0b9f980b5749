//! Decision between the two directories of an ASIF image.

use std::sync::Arc;

use super::layers::LayerRepair;
use crate::container::asif::{self, Asif};
use crate::decision::{Alternative, Undecided};
use crate::device::{Access, BlockDevice};
use crate::open::geometry::{self, Depth, Evidence};
use crate::open::{self, OpenOptions};
use crate::store::Open;
use crate::{Kind, Result};

impl LayerRepair<'_> {
    /// Makes the other directory of the image in `plain` the active one if nothing is found on the
    /// disk with the active one, and sound volumes are with the other. Returns the steps. Fails with
    /// [`Kind::Undecided`] if the active one finds something that is not in order.
    pub(super) fn decide_directory(&self, plain: &Arc<dyn BlockDevice>) -> Result<Vec<String>> {
        // A header that cannot be parsed is reported by the plan.
        let Ok(Some([active, other])) = asif::directories(&**plain) else {
            return Ok(Vec::new());
        };
        if let Some(number) = self.chosen.assume.directory {
            return asif::use_directory(&**plain, number, true);
        }
        let reading = OpenOptions {
            access: Access::ReadOnly,
            ..*self.options
        };
        let (read_only, _) = self.plain(self.staged, Open::Read, &reading)?;
        let with = |number| -> Result<Option<(bool, Evidence)>> {
            let disk: Arc<dyn BlockDevice> = match Asif::open_directory(read_only.clone(), number) {
                Ok(image) => Arc::new(image),
                Err(error) if error.kind() == Kind::Io => return Err(error),
                Err(_) => return Ok(None),
            };
            let is_empty =
                matches!(open::find_contents(&disk), Ok((None, volumes)) if volumes.is_empty());
            let found = geometry::of_disk(&disk, self.options, Depth::Full, self.progress)?;
            Ok(Some((is_empty, found)))
        };
        if asif::lost_newer(&**plain)?.is_some() {
            // Newer tables than the active ones, with which the disk is in order.
            if let Some((_, then)) = with(other)?
                && then.has_sound_volume()
                && !then.is_contradicted()
            {
                return asif::use_directory(&**plain, other, false);
            }
        }
        let now = with(active)?;
        if now.as_ref().is_some_and(|(_, found)| found.is_consistent()) {
            return Ok(Vec::new());
        }
        let Some((_, then)) = with(other)?.filter(|(_, found)| found.has_sound_volume()) else {
            return Ok(Vec::new());
        };
        if then.is_contradicted() {
            return Ok(Vec::new());
        }
        if now.as_ref().is_none_or(|(is_empty, _)| *is_empty) {
            return asif::use_directory(&**plain, other, false).map_err(|error| {
                match error.kind() {
                    Kind::Conflict => Undecided {
                        what: error.message().to_owned(),
                        alternatives: vec![Alternative {
                            assume: format!("directory={other}"),
                            evidence: then.description(),
                        }],
                    }
                    .into_error(asif::LAYER),
                    _ => error,
                }
            });
        }
        let describe = |found: Option<&Evidence>| {
            found.map_or(
                "the image cannot be opened".to_owned(),
                Evidence::description,
            )
        };
        let alternative = |number: usize, evidence| Alternative {
            assume: format!("directory={number}"),
            evidence,
        };
        let alternatives = vec![
            alternative(other, describe(Some(&then))),
            alternative(active, describe(now.as_ref().map(|(_, found)| found))),
        ];
        let what = format!(
            "directory {active} has the higher version, but only directory {other} gives an \
             undamaged disk"
        );
        Err(Undecided { what, alternatives }.into_error("ASIF"))
    }
}
