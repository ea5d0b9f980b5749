//! The folder with the results of a run of all experiments, and the conditions of resuming it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind as ErrorKind, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::page::{self, Section};
use super::{EXPERIMENTS, Experiment, LAYER, Scope};
use crate::images::RunPlan;
use crate::machine::{FileSystemSpace, Machine};
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
    /// The medium without holes, if there is one.
    #[serde(default)]
    without_holes: Option<Disk>,
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

impl Disk {
    fn of(folder: &Path) -> Result<Self> {
        let failed = |source| Error::io(LAYER, "read", source).in_file(folder);
        Ok(Self {
            device: fs::metadata(folder).map_err(failed)?.dev(),
            size: FileSystemSpace::of(folder)?.total,
            file_system: Machine::this(folder).file_system,
        })
    }
}

impl Identity {
    fn of(folder: &Path, scope: &Scope) -> Result<Self> {
        let without_holes = scope.without_holes.as_deref();
        Ok(Self {
            schema: SCHEMA,
            scale: scope.scale,
            sets: scope.sets,
            pause: scope.pause,
            seed: scope.seed,
            ways: scope.ways.iter().map(|via| via.name().to_owned()).collect(),
            disk: Disk::of(folder)?,
            without_holes: without_holes.map(Disk::of).transpose()?,
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
    /// Sections of experiments that have ended.
    sections: Vec<Section>,
}

impl Results {
    /// Opens the folder `results` of a run in `folder` with `scope`, and creates it if it does not
    /// exist. Fails with [`ErrorKind::Conflict`] if it has the results of another disk or of other
    /// settings.
    pub fn begin(results: &Path, folder: &Path, scope: &Scope) -> Result<Self> {
        let identity = Identity::of(folder, scope)?;
        let state = results.join(STATE);
        if state.exists() {
            let failed = |error: Error| error.in_file(&state);
            let earlier = read(&state)?;
            let earlier = serde_json::from_str(&earlier).map_err(|error| {
                let what = "invalid settings of a run";
                failed(Error::new(ErrorKind::Invalid, LAYER, what).caused_by(error))
            })?;
            identity.continues(&earlier).map_err(failed)?;
        } else {
            fs::create_dir_all(results)
                .map_err(|source| Error::io(LAYER, "create", source).in_file(results))?;
            let json = serde_json::to_string_pretty(&identity);
            let json = json.map_err(|error| {
                Error::new(ErrorKind::Io, LAYER, "serialize the settings").caused_by(error)
            })?;
            write(&state, &json)?;
        }
        Self::open(results)
    }

    /// Opens the results in a folder, without a check of the disk.
    pub fn open(results: &Path) -> Result<Self> {
        let mut this = Self {
            folder: results.to_owned(),
            sections: Vec::new(),
        };
        for experiment in &EXPERIMENTS {
            let path = this.path(experiment);
            if path.exists() {
                let report = Report::from_json(&read(&path)?);
                let report = report.map_err(|error| error.in_file(&path))?;
                this.sections.push(Section::new(experiment, &report));
            }
        }
        Ok(this)
    }

    /// Returns the path of the results of an experiment.
    pub fn path(&self, experiment: &Experiment) -> PathBuf {
        let name = experiment.name();
        self.folder.join(format!("{name}.json"))
    }

    /// Returns the path of the page as HTML.
    pub fn page(&self) -> PathBuf {
        self.folder.join("articles.html")
    }

    /// Returns the sections of all experiments that have ended, in the order of the page.
    pub fn sections(&self) -> Vec<&Section> {
        let of = |experiment: &Experiment| {
            let mut sections = self.sections.iter();
            sections.find(|section| section.experiment.name() == experiment.name())
        };
        EXPERIMENTS.iter().filter_map(of).collect()
    }

    /// Returns true if an experiment has ended.
    pub fn has(&self, experiment: &Experiment) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.experiment.name() == experiment.name())
    }

    /// Saves the results of an experiment.
    pub fn save(&mut self, experiment: &'static Experiment, report: &Report) -> Result<()> {
        write(&self.path(experiment), &report.to_json()?)?;
        self.sections.push(Section::new(experiment, report));
        Ok(())
    }

    /// Writes the pages of all results, with a note about the run unless it is empty: as HTML, and as
    /// Markdown with its plots in `plots/`.
    pub fn write_pages(&self, note: &str) -> Result<()> {
        write(&self.page(), &page::html(&self.sections(), note))?;
        self.write_markdown(&self.folder, "articles.md", "plots", note)
    }

    /// Writes the page as Markdown to the file `docs/NAME.md`, and its plots to `docs/NAME`.
    pub fn publish(&self, docs: &Path, name: &str, note: &str) -> Result<()> {
        self.write_markdown(docs, &format!("{name}.md"), name, note)
    }

    fn write_markdown(&self, folder: &Path, name: &str, plots: &str, note: &str) -> Result<()> {
        let (sections, beside) = (self.sections(), folder.join(plots));
        fs::create_dir_all(&beside)
            .map_err(|source| Error::io(LAYER, "create", source).in_file(&beside))?;
        for plot in sections.iter().flat_map(|section| &section.plots) {
            write(&beside.join(format!("{}.svg", plot.name)), &plot.svg_file())?;
        }
        write(&folder.join(name), &page::markdown(&sections, plots, note))
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::io(LAYER, "read", source).in_file(path))
}

/// Replaces a file as a whole: an interruption leaves the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let replace = || {
        let mut file = tempfile::Builder::new()
            .prefix(".articles-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    replace().map_err(|source: std::io::Error| Error::io(LAYER, "write", source).in_file(path))
}

/// Checks that files on the file system of `folder` have no holes. Fails with
/// [`ErrorKind::Unsupported`] if they can have some.
pub fn check_without_holes(folder: &Path) -> Result<()> {
    const LEN: u64 = 1 << 20;
    let failed = |source| Error::io(LAYER, "create a file", source).in_file(folder);
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    file.set_len(LEN).map_err(failed)?;
    let stored = 512 * file.metadata().map_err(failed)?.blocks();
    if stored >= LEN {
        return Ok(());
    }
    let message = format!(
        "this experiment needs a file system without sparse files, but {} has them: choose a \
         folder on exFAT or FAT",
        Machine::this(folder).file_system
    );
    Err(Error::new(ErrorKind::Unsupported, LAYER, message).in_file(folder))
}

/// Checks that the file system of `folder` can hold a file as long as the images of a run. Fails
/// with [`ErrorKind::Limit`] if it cannot.
pub fn check_file_system(folder: &Path, announced: &RunPlan) -> Result<()> {
    let failed = |source| Error::io(LAYER, "create a file", source).in_file(folder);
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    // A file of this length has no blocks, except on file systems without holes.
    match rustix::fs::ftruncate(&file, announced.image) {
        Ok(()) => Ok(()),
        Err(Errno::FBIG | Errno::INVAL) => {
            let message = format!(
                "the images need files of {} bytes, more than a file on {} can have",
                announced.image,
                Machine::this(folder).file_system
            );
            Err(Error::new(ErrorKind::Limit, LAYER, message).in_file(folder))
        }
        Err(source) => Err(failed(source.into())),
    }
}
