//! R3: images that are filled, emptied and compacted, as series without speeds.

use std::path::Path;

use bandsaw::Result;
use bandsaw::progress::Progress;

use super::process::Watched;
use super::{Kind, Options};
use crate::folder::{clean_up, scratch};
use crate::place::Cooled;
use crate::report::{Report, Series, Space};
use crate::space::{Case, Measured, run as protocol};

/// Runs the space protocol on each kind; what takes more than it may is a note.
pub(super) fn run(folder: &Path, options: &Options, report: &mut Report, progress: &dyn Progress) -> Result<()> {
    for kind in &options.kinds {
        let case = case(kind, options);
        let scratch = scratch(folder)?;
        let watched = Watched::new(std::process::id());
        let measured = protocol(&scratch.path().join("image"), &case, progress)?;
        let process = watched.so_far();
        clean_up(scratch)?;
        if !measured.is_tight() {
            let (full, empty) = (measured.most_when_full(), measured.most_when_empty());
            report.notes.push(format!("{kind} takes more than it may: {full} bytes when full, {empty} when empty"));
        }
        let mut series = Series::new(kind.to_string(), None, Cooled::Kept, Vec::new());
        series.image = Some(kind.described());
        series.space = steps(&measured);
        series.process = process;
        report.series.push(series);
    }
    Ok(())
}

/// The protocol has its own counts of files, and divides their sizes.
pub(super) fn case(kind: &Kind, options: &Options) -> Case {
    let plan = &options.settings.plan;
    let scale = (1.0 / plan.scale).round().max(1.0) as u64;
    Case { format: kind.format, key_bits: kind.key_bits, file_system: kind.file_system, scale, seed: plan.seed }
}

fn steps(measured: &Measured) -> Vec<Space> {
    let Measured { fresh, in_use, full, full_compacted, emptied, compacted, bands, .. } = *measured;
    let [new, most, most_compacted, none, none_compacted] = bands;
    let step = |at: &str, on_disk, bands, in_use| Space { at: at.to_owned(), on_disk, bands, in_use };
    vec![
        step("new", fresh, new, None),
        step("full", full, most, Some(in_use)),
        step("compacted", full_compacted, most_compacted, Some(in_use)),
        step("emptied", emptied, none, None),
        step("compacted again", compacted, none_compacted, None),
    ]
}
