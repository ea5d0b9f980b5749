//! The folder with the results of a run of all experiments, and the conditions of resuming it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind as ErrorKind, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{EXPERIMENTS, Experiment, LAYER, Scope, page};
use crate::images::Announced;
use crate::machine::{Machine, Room};
use crate::report::Report;

/// Schema version of [`Identity`].
const SCHEMA: u32 = 1;
/// Name of the file with the settings and the disk of the run.
const STATE: &str = "run.json";

/// Settings and disk of a run. A run is resumed only with the same ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Identity {
    schema: u32,
    scale: f64,
    sets: Option<u32>,
    pause: Option<f64>,
    seed: u64,
    ways: Vec<String>,
    disk: Disk,
}

/// The disk of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Disk {
    /// Device number of the file system.
    device: u64,
    /// Size of the file system in bytes.
    size: u64,
    file_system: String,
}

impl Identity {
    fn of(folder: &Path, scope: &Scope) -> Result<Self> {
        let failed = |source| Error::io(LAYER, "read", source).in_file(folder);
        let device = fs::metadata(folder).map_err(failed)?.dev();
        Ok(Self {
            schema: SCHEMA,
            scale: scope.scale,
            sets: scope.sets,
            pause: scope.pause,
            seed: scope.seed,
            ways: scope.ways.iter().map(|via| via.name().to_owned()).collect(),
            disk: Disk {
                device,
                size: Room::of(folder)?.total,
                file_system: Machine::this(folder).file_system,
            },
        })
    }

    /// Checks that the run of this identity continues that of `earlier`.
    fn continues(&self, earlier: &Self) -> Result<()> {
        let what = if self.disk != earlier.disk {
            "these results were measured on another disk"
        } else if self != earlier {
            "these results were measured with other settings"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Conflict, LAYER, what))
    }
}

/// A folder with the results of a run: a JSON file for each experiment that has ended, a page, and
/// its plots.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
}

impl Results {
    /// Opens the folder `results` of a run in `folder` with `scope`, and creates it if it does not
    /// exist. Fails with [`ErrorKind::Conflict`] if it has the results of another disk or of other
    /// settings.
    pub fn begin(results: &Path, folder: &Path, scope: &Scope) -> Result<Self> {
        let identity = Identity::of(folder, scope)?;
        let this = Self::open(results);
        let state = results.join(STATE);
        if state.exists() {
            let failed = |error: Error| error.in_file(&state);
            let earlier = this.read(STATE)?;
            let earlier = serde_json::from_str(&earlier).map_err(|error| {
                let what = "these are not the settings of a run";
                failed(Error::new(ErrorKind::Invalid, LAYER, what).caused_by(error))
            })?;
            identity.continues(&earlier).map_err(failed)?;
        } else {
            this.create_folder("")?;
            let json = serde_json::to_string_pretty(&identity);
            let json = json.map_err(|error| {
                Error::new(ErrorKind::Io, LAYER, "serialize the settings").caused_by(error)
            })?;
            this.write(STATE, &json)?;
        }
        Ok(this)
    }

    /// Returns the results in a folder, without a check of the disk.
    pub fn open(results: &Path) -> Self {
        Self {
            folder: results.to_owned(),
        }
    }

    /// Returns the path of the results of an experiment.
    pub fn path(&self, experiment: &Experiment) -> PathBuf {
        self.folder.join(file_of(experiment))
    }

    /// Returns the path of the page as HTML.
    pub fn page(&self) -> PathBuf {
        self.folder.join("articles.html")
    }

    /// Returns the results of an experiment; `None` if it has not ended.
    pub fn of(&self, experiment: &Experiment) -> Result<Option<Report>> {
        if !self.path(experiment).exists() {
            return Ok(None);
        }
        let json = self.read(&file_of(experiment))?;
        let report = Report::from_json(&json);
        report
            .map(Some)
            .map_err(|error| error.in_file(self.path(experiment)))
    }

    /// Returns the results of all experiments that have ended.
    pub fn all(&self) -> Result<Vec<(&'static Experiment, Report)>> {
        let of = |experiment| Ok(self.of(experiment)?.map(|report| (experiment, report)));
        EXPERIMENTS
            .iter()
            .filter_map(|one| of(one).transpose())
            .collect()
    }

    /// Saves the results of an experiment.
    pub fn save(&self, experiment: &Experiment, report: &Report) -> Result<()> {
        self.write(&file_of(experiment), &report.to_json()?)
    }

    /// Writes the pages of all results: as HTML, and as Markdown with its plots in `plots/`.
    pub fn write_pages(&self) -> Result<()> {
        let all = self.all()?;
        self.write("articles.html", &page::html(&all))?;
        self.write_markdown("articles.md", "plots")
    }

    /// Writes the page as Markdown to `name` in this folder, and its plots to the folder `plots`
    /// beside it.
    fn write_markdown(&self, name: &str, plots: &str) -> Result<()> {
        write_markdown(&self.all()?, &self.folder, name, plots)
    }

    /// Writes the page as Markdown to the file `docs/NAME.md`, and its plots to `docs/NAME`.
    pub fn publish(&self, docs: &Path, name: &str) -> Result<()> {
        write_markdown(&self.all()?, docs, &format!("{name}.md"), name)
    }

    fn create_folder(&self, name: &str) -> Result<()> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)
            .map_err(|source| Error::io(LAYER, "create", source).in_file(&folder))
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).map_err(|source| Error::io(LAYER, "read", source).in_file(&path))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        write(&self.folder.join(name), text)
    }
}

fn write_markdown(
    all: &[(&Experiment, Report)],
    folder: &Path,
    name: &str,
    plots: &str,
) -> Result<()> {
    let beside = folder.join(plots);
    fs::create_dir_all(&beside)
        .map_err(|source| Error::io(LAYER, "create", source).in_file(&beside))?;
    for (experiment, report) in all {
        for plot in page::plots(experiment, report) {
            write(&beside.join(format!("{}.svg", plot.name)), &plot.svg_file())?;
        }
    }
    write(&folder.join(name), &page::markdown(all, plots))
}

fn file_of(experiment: &Experiment) -> String {
    format!("{}.json", experiment.protocol.name())
}

/// Replaces a file as a whole: an interruption leaves the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let replace = || {
        let mut file = tempfile::Builder::new()
            .prefix(".articles-")
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    replace().map_err(|source: std::io::Error| Error::io(LAYER, "write", source).in_file(path))
}

/// Checks that the file system of `folder` can hold a file as long as the images of a run. Fails
/// with [`ErrorKind::Limit`] if it cannot.
pub fn check_file_system(folder: &Path, announced: &Announced) -> Result<()> {
    let failed = |source| Error::io(LAYER, "create a file", source).in_file(folder);
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    // A file of this length has no blocks, except on file systems without holes.
    match rustix::fs::ftruncate(&file, announced.image) {
        Ok(()) => Ok(()),
        Err(Errno::FBIG | Errno::INVAL) => {
            let message = format!(
                "images of {} bytes are to be made, which is more than a file on {} can have",
                announced.image,
                Machine::this(folder).file_system
            );
            Err(Error::new(ErrorKind::Limit, LAYER, message).in_file(folder))
        }
        Err(source) => Err(failed(source.into())),
    }
}
