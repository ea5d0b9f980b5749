//! Writing of a manifest: JSON Lines, or a bodyfile for sleuthkit.

use std::io::Write;

use bandsaw::open::{Image, Keys};
use bandsaw::progress::Progress;
use bandsaw::{Error, Result};
use sha2::{Digest, Sha256};

use crate::LAYER;
use crate::bodyfile;
use crate::describe::Describer;
use crate::hashing::hex;
use crate::record::{End, Header, Line, VERSION};
use crate::volumes::each_volume;
use crate::walk::walk;

/// Maximum number of problems that are returned; all are in the manifest and counted.
const MAX_PROBLEMS: usize = 1000;

/// The format of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestFormat {
    /// A JSON object in each line, which [`verify`](crate::verify()) reads.
    JsonLines,
    /// The bodyfile of sleuthkit 3 and later, for `mactime`.
    Bodyfile,
}

/// The contents of a manifest.
#[derive(Debug, Default)]
pub struct ManifestSummary {
    /// Number of volumes and snapshots.
    pub volumes: u64,
    /// Number of objects in all of them, with folders.
    pub files: u64,
    /// Number of files, folders and volumes that could not be read completely.
    pub problem_count: u64,
    /// The first of these problems, at most 1000.
    pub problems: Vec<Error>,
    /// Volumes of formats that are not read, as text.
    pub skipped: Vec<String>,
}

/// Writes the manifest of all volumes and snapshots of an image. `tool` names the program and its
/// version. The order depends on the image alone. Files that cannot be read have the reason in their
/// record, and are among the problems of the result.
///
/// [`Kind::WrongKey`](bandsaw::Kind::WrongKey) if a volume is encrypted and no key is known.
pub fn write_manifest(
    image: &Image,
    keys: Option<&dyn Keys>,
    format: ManifestFormat,
    tool: &str,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<ManifestSummary> {
    let mut writer = Writer {
        out,
        format,
        sum: Sha256::new(),
        summary: ManifestSummary::default(),
    };
    writer.line(&Line::Manifest(Header {
        version: VERSION,
        tool: tool.to_owned(),
        path: image.path().to_string_lossy().into_owned(),
        format: image.format().code().to_owned(),
        disk_size: image.disk().info().len,
    }))?;
    each_volume(image, keys, &mut |volume, fs, error| {
        writer.summary.volumes += 1;
        writer.line(&Line::Volume(volume.clone()))?;
        if !volume.supported {
            writer.summary.skipped.push(volume_name(&volume));
        }
        writer.problem(error);
        let Some(fs) = fs else {
            return Ok(());
        };
        let info = fs.volume();
        progress.stage("manifest", info.total.saturating_sub(info.free));
        let mut describer = Describer::new(fs, &volume);
        let label = volume_name(&volume);
        let walked = walk(fs, progress, &mut |walked| {
            let (record, problem) = describer.describe(walked, progress)?;
            writer.summary.files += 1;
            writer.problem(problem);
            match writer.format {
                ManifestFormat::JsonLines => writer.line(&Line::File(Box::new(record))),
                ManifestFormat::Bodyfile => {
                    writer.bytes(bodyfile::line(&label, &record).as_bytes())
                }
            }
        });
        walked.map_err(|error| error.in_file(label))
    })?;
    let summary = &writer.summary;
    let end = End {
        volumes: summary.volumes,
        files: summary.files,
        problems: summary.problem_count,
        sha256: hex(&writer.sum.clone().finalize()),
    };
    writer.line(&Line::End(end))?;
    Ok(writer.summary)
}

/// Returns the name of a volume in messages and bodyfiles: `Data@snapshot`, or the place of one without a
/// name.
pub(crate) fn volume_name(volume: &crate::record::VolumeRecord) -> String {
    let name = match (&volume.name, volume.partition) {
        (Some(name), _) => name.clone(),
        (None, Some(partition)) => format!("partition {partition} ({})", volume.file_system),
        (None, None) => format!("the whole disk ({})", volume.file_system),
    };
    match &volume.snapshot {
        Some(snapshot) => format!("{name}@{snapshot}"),
        None => name,
    }
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    format: ManifestFormat,
    sum: Sha256,
    summary: ManifestSummary,
}

impl Writer<'_> {
    /// Writes a line of JSON. A bodyfile has none.
    fn line(&mut self, line: &Line) -> Result<()> {
        if self.format == ManifestFormat::Bodyfile {
            return Ok(());
        }
        let text = serde_json::to_string(line).map_err(|error| Error::io(LAYER, "write", error))?;
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        let written = self.out.write_all(bytes);
        written.map_err(|error| Error::io(LAYER, "write", error))
    }

    fn problem(&mut self, error: Option<Error>) {
        if let Some(error) = error {
            self.summary.problem_count += 1;
            if self.summary.problems.len() < MAX_PROBLEMS {
                self.summary.problems.push(error);
            }
        }
    }
}
