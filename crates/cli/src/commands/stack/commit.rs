//! `bandsaw stack commit`: the changes of a layer, written to the image below it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::address::shown;
use bandsaw::device::Access;
use bandsaw::ops::stack::commit;
use bandsaw::{Kind, Reason, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::split;
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Commit the topmost layer to the image below it
///
/// The image directly below gets the blocks of the layer, and its size. Afterwards the layer is
/// empty, and can be used again or removed. An interrupted commit changes nothing of the disk that
/// both form together; the same command resumes it.
///
/// Other layers over the image below become invalid, as its contents have changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack commit disk.img changes.asif                 into a raw image
  bandsaw stack commit base.asif monday.asif tuesday.asif    tuesday's changes into monday.asif")]
pub(crate) struct Commit {
    /// The base, then the layers from the bottom
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true, num_args = 2..)]
    images: Vec<OsString>,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct CommitReport {
    /// The image that got the changes.
    path: PathBuf,
    /// The layer that is empty now.
    layer: PathBuf,
    written_size: u64,
    zeroed_size: u64,
    /// The offset at which an interrupted commit was resumed; 0 if there was none.
    resumed_at: u64,
}

impl Commit {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let (base, layers) = split(&self.images)?;
        let opening = self.opening.with_layers(layers)?;
        let repaired = self.opening.prepare(&base)?;
        repaired.iter().for_each(|warning| output.warn(warning));
        let options = opening.options(Access::ReadWrite);
        let bar = Bar::new(output);
        let done =
            commit(Path::new(&base), options.shadows, &options, &bar).map_err(|error| {
                match (error.reason(), &*self.images) {
                    (Some(Reason::LayerAlone), [layer, below]) => {
                        Failure::from(error).hint(format!(
                            "name the files from the bottom: `bandsaw stack commit {} {}`",
                            shown(Path::new(below)),
                            shown(Path::new(layer))
                        ))
                    }
                    _ => source::advise(error, &base),
                }
            });
        let done = done.advise(Kind::ReadOnly, || {
            "use `bandsaw stack flatten` to create one new image".to_owned()
        })?;
        drop(bar);
        let mut files = options.shadows.iter().rev();
        let layer = files.next().cloned().unwrap_or_default();
        let report = CommitReport {
            layer,
            path: files
                .next()
                .cloned()
                .unwrap_or_else(|| base.as_path().to_owned()),
            written_size: done.written,
            zeroed_size: done.zeroed,
            resumed_at: done.resumed_at,
        };
        output.done(&report, |out| {
            let name = |path: &Path| output.name(&path.to_string_lossy());
            writeln!(
                out,
                "the changes are now in {}, and {} is empty",
                name(&report.path),
                name(&report.layer)
            )?;
            if report.resumed_at > 0 {
                writeln!(out, "resumed at {:#}", size::display(report.resumed_at))?;
            }
            writeln!(
                out,
                "wrote {:#}, zeroed {:#}",
                size::display(report.written_size),
                size::display(report.zeroed_size)
            )
        })
    }
}
