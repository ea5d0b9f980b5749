//! A timeline of a manifest, as CSV for plaso's tools and Timesketch.
//!
//! Timesketch needs the columns `message`, `datetime` and `timestamp_desc`; the first eight are those of
//! plaso's output `dynamic`, with plaso's texts for the kinds of times. Source:
//! <https://timesketch.org/guides/user/import-from-json-csv/>, and `plaso/lib/definitions.py`.

use std::collections::HashSet;
use std::io::{BufRead, Seek, SeekFrom, Write};

use bandsaw::fs::Timestamp;
use bandsaw::progress::Progress;
use bandsaw::{Error, Result};

use crate::LAYER;
use crate::manifest::volume_name;
use crate::reader::{ManifestReader, line_at};
use crate::record::{FileRecord, Line, VolumeRecord};
use crate::time::parse;

const COLUMNS: &str = "datetime,timestamp_desc,source,source_long,message,parser,display_name,tag,\
                       timestamp,volume,snapshot,inode,file_size,mode,uid,gid,sha256,md5";

/// The contents of a timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimelineSummary {
    /// Number of lines after the first.
    pub events: u64,
    /// Number of times that several states of a volume have in common; each is one line.
    pub repeated: u64,
}

/// The kind of a time, in the order of events of the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Created,
    Modified,
    Changed,
    Accessed,
    BackedUp,
    Formatted,
    Snapshot,
}

impl Event {
    /// Returns plaso's text for this kind of time.
    const fn description(self) -> &'static str {
        match self {
            Self::Created | Self::Formatted | Self::Snapshot => "Creation Time",
            Self::Modified => "Content Modification Time",
            Self::Changed => "Metadata Modification Time",
            Self::Accessed => "Last Access Time",
            Self::BackedUp => "Backup Time",
        }
    }
}

/// Writes all times of a manifest in their order. Times of the years before 1970 are written, too; those
/// that volumes leave out are not. Memory holds 32 bytes for each time.
///
/// [`Kind::Corrupt`](bandsaw::Kind::Corrupt) if the manifest is cut or damaged.
pub fn write_timeline(
    manifest: &mut (impl BufRead + Seek),
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<TimelineSummary> {
    let mut events: Vec<(Timestamp, Event, u64)> = Vec::new();
    let mut volumes: Vec<VolumeRecord> = Vec::new();
    let mut lines = ManifestReader::new(&mut *manifest);
    while let Some((offset, line)) = lines.next()? {
        progress.check()?;
        match line {
            Line::Volume(volume) => {
                let event = match volume.snapshot {
                    Some(_) => Event::Snapshot,
                    None => Event::Formatted,
                };
                let time = volume.created.as_deref().and_then(parse);
                events.extend(time.map(|time| (time, event, offset)));
                volumes.push(volume);
            }
            Line::File(file) => {
                let times = [
                    (&file.created, Event::Created),
                    (&file.modified, Event::Modified),
                    (&file.changed, Event::Changed),
                    (&file.accessed, Event::Accessed),
                    (&file.backed_up, Event::BackedUp),
                ];
                let times = times
                    .into_iter()
                    .filter_map(|(time, event)| Some((parse(time.as_deref()?)?, event, offset)));
                events.extend(times);
            }
            Line::Manifest(_) | Line::End(_) => {}
        }
    }
    events.sort_unstable();
    manifest
        .seek(SeekFrom::Start(0))
        .map_err(|error| Error::io(LAYER, "seek", error))?;
    progress.stage("timeline", events.len() as u64);
    let mut summary = TimelineSummary::default();
    let failed = |error| Error::io(LAYER, "write", error);
    writeln!(out, "{COLUMNS}").map_err(failed)?;
    // Files with the time of the last event: snapshots repeat most of the files of their volume.
    let mut last = None;
    let mut seen = HashSet::new();
    for (time, event, offset) in events {
        progress.check()?;
        progress.advance(1);
        if last != Some((time, event)) {
            last = Some((time, event));
            seen.clear();
        }
        let line = match line_at(manifest, offset)? {
            Line::Volume(volume) => of_volume(time, event, &volume),
            Line::File(file) => {
                let volume = volumes.iter().find(|volume| volume.volume == file.volume);
                let key = (
                    volume.map(|volume| (volume.disk_offset, volume.number)),
                    file.id,
                    file.path.clone(),
                );
                if !seen.insert(key) {
                    summary.repeated += 1;
                    continue;
                }
                of_file(time, event, volume, &file)
            }
            Line::Manifest(_) | Line::End(_) => continue,
        };
        out.write_all(line.as_bytes()).map_err(failed)?;
        summary.events += 1;
    }
    Ok(summary)
}

fn of_volume(time: Timestamp, event: Event, of: &VolumeRecord) -> String {
    let name = volume_name(of);
    let message = match event {
        Event::Snapshot => format!("Snapshot {name} taken"),
        _ => format!("Volume {name} formatted"),
    };
    row(&[
        datetime(time),
        event.description().to_owned(),
        "FILE".to_owned(),
        format!("{} volume", of.file_system),
        message,
        "bandsaw".to_owned(),
        name,
        String::new(),
        microseconds(time),
        of.name.clone().unwrap_or_default(),
        of.snapshot.clone().unwrap_or_default(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ])
}

fn of_file(
    time: Timestamp,
    event: Event,
    volume: Option<&VolumeRecord>,
    of: &FileRecord,
) -> String {
    let (file_system, name, snapshot) = match volume {
        Some(volume) => (
            &*volume.file_system,
            volume.name.clone().unwrap_or_default(),
            volume.snapshot.clone().unwrap_or_default(),
        ),
        None => ("", String::new(), String::new()),
    };
    let mut message = format!("{} {}", of.path, of.kind);
    if let Some(target) = &of.target {
        message = format!("{message} -> {target}");
    }
    row(&[
        datetime(time),
        event.description().to_owned(),
        "FILE".to_owned(),
        format!("{file_system} {}", event.description()),
        message,
        "bandsaw".to_owned(),
        format!(
            "{}:{}",
            volume.map_or_else(String::new, volume_name),
            of.path
        ),
        String::new(),
        microseconds(time),
        name,
        snapshot,
        of.id.to_string(),
        of.size.map_or_else(String::new, |size| size.to_string()),
        of.mode.clone(),
        of.uid.to_string(),
        of.gid.to_string(),
        of.sha256.clone().unwrap_or_default(),
        of.md5.clone().unwrap_or_default(),
    ])
}

/// Returns the time in ISO 8601 with microseconds, as plaso writes it.
fn datetime(time: Timestamp) -> String {
    let whole = Timestamp::from_seconds(time.seconds).to_string();
    let whole = whole.trim_end_matches('Z');
    format!("{whole}.{:06}+00:00", time.nanos / 1000)
}

/// Returns microseconds since 1970.
fn microseconds(time: Timestamp) -> String {
    (i128::from(time.seconds) * 1_000_000 + i128::from(time.nanos / 1000)).to_string()
}

/// Returns a line of CSV (RFC 4180, with a line feed alone).
fn row(values: &[String; 18]) -> String {
    let quoted = values.iter().map(|value| {
        match value.contains(|c: char| c == ',' || c == '"' || c.is_control()) {
            true => format!("\"{}\"", value.replace('"', "\"\"")),
            false => value.clone(),
        }
    });
    let mut line = quoted.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}
