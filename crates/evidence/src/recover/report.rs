//! A report about what was found: as JSON, as CSV, or as a page. Files are written as they are found.

use std::io::Write;

use bandsaw::error::is_deceptive;
use bandsaw::{Error, Result};

use super::record::{FileEntry, VolumeEntry};
use crate::LAYER;

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8884;vertical-align:top;overflow-wrap:anywhere}\
td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}code{font-size:.92em}";

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// One document.
    Json,
    /// A line for each file.
    Csv,
    /// A page without scripts.
    Html,
}

impl ReportFormat {
    /// Returns the format of a file by the end of its name.
    pub fn of(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

/// Writes a report.
#[derive(Debug)]
pub struct ReportWriter<W> {
    format: ReportFormat,
    out: W,
    files: u64,
    volumes: Vec<VolumeEntry>,
}

impl<W: Write> ReportWriter<W> {
    /// Begins a report about the image at `path`.
    pub fn begin(format: ReportFormat, mut out: W, path: &str, tool: &str) -> Result<Self> {
        let text = match format {
            ReportFormat::Json => {
                format!(
                    "{{\"tool\":{},\"path\":{},\"files\":[",
                    json(&tool)?,
                    json(&path)?
                )
            }
            ReportFormat::Csv => {
                "volume,path,certainty,kind,id,size,resource_fork_size,created,modified,\
                 changed,source,disk_offset,transaction,orphan,earlier_version,lost_size,losses,\
                 extents,target\n"
                    .to_owned()
            }
            ReportFormat::Html => format!(
                "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
                 <meta name=\"viewport\" content=\"width=device-width\">\n\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                 style-src 'unsafe-inline'\">\n<title>Recovered files</title>\n\
                 <style>{STYLE}</style>\n<h1>Recovered files</h1>\n<p>in <code>{}</code>, by {}</p>\n\
                 <table>\n<tr><th>Path<th>Certainty<th>Bytes<th>Modified<th>Found in<th>Missing\n",
                escaped(path),
                escaped(tool)
            ),
        };
        write(&mut out, &text)?;
        Ok(Self {
            format,
            out,
            files: 0,
            volumes: Vec::new(),
        })
    }

    /// Adds a file.
    pub fn file(&mut self, entry: &FileEntry) -> Result<()> {
        let text = match self.format {
            ReportFormat::Json => {
                let comma = if self.files > 0 { ",\n" } else { "\n" };
                format!("{comma}{}", json(entry)?)
            }
            ReportFormat::Csv => row(entry),
            ReportFormat::Html => html_row(entry),
        };
        self.files += 1;
        write(&mut self.out, &text)
    }

    /// Adds a volume.
    pub fn volume(&mut self, entry: &VolumeEntry) {
        self.volumes.push(entry.clone());
    }

    /// Ends the report, and returns what it was written to.
    pub fn finish(mut self) -> Result<W> {
        let text = match self.format {
            ReportFormat::Json => format!("\n],\"volumes\":{}}}\n", json(&self.volumes)?),
            ReportFormat::Csv => String::new(),
            ReportFormat::Html => self.volumes_page(),
        };
        write(&mut self.out, &text)?;
        Ok(self.out)
    }

    fn volumes_page(&self) -> String {
        let mut page =
            "</table>\n<h2>Volumes</h2>\n<table>\n<tr><th>Number<th>Name<th>Format<th>Byte \
                        on the disk<th>Files<th>State\n"
                .to_owned();
        for volume in &self.volumes {
            let state = match (volume.damaged, volume.lost) {
                (true, _) => "damaged: existing files are among those that were found",
                (false, true) => "found by a search of the disk",
                (false, false) => "readable",
            };
            page.push_str(&format!(
                "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td>{state}",
                volume.volume,
                escaped(volume.name.as_deref().unwrap_or("")),
                escaped(&volume.file_system),
                volume.disk_offset,
                volume.files,
            ));
            for problem in &volume.problems {
                page.push_str(&format!("<br>{}", escaped(&problem.message)));
            }
            page.push('\n');
        }
        page.push_str("</table>\n");
        page
    }
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::invalid(LAYER, error.to_string()))
}

fn write(out: &mut impl Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .map_err(|error| Error::io(LAYER, "write", error))
}

/// Returns what is missing of a file, and why.
fn missing(entry: &FileEntry) -> String {
    let each = entry.losses.iter().map(|loss| match loss.size {
        0 => format!("{}: unknown ({})", loss.fork, loss.reason),
        size => {
            let end = loss.offset + size;
            format!("{} {}-{end} ({})", loss.fork, loss.offset, loss.reason)
        }
    });
    let losses: Vec<_> = each.collect();
    losses.join("; ").replace('_', " ")
}

fn row(entry: &FileEntry) -> String {
    let extents = entry.extents.iter().map(|run| {
        format!(
            "{} {}+{}@{}",
            run.fork, run.offset, run.size, run.disk_offset
        )
    });
    let extents: Vec<_> = extents.collect();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [
        entry.volume.to_string(),
        entry.volume_path.clone(),
        entry.certainty.to_owned(),
        entry.kind.to_owned(),
        entry.id.to_string(),
        entry.size.to_string(),
        entry.resource_fork_size.to_string(),
        text(&entry.created),
        text(&entry.modified),
        text(&entry.changed),
        entry.source.to_owned(),
        entry.disk_offset.to_string(),
        entry
            .transaction
            .map_or_else(String::new, |xid| xid.to_string()),
        entry.orphan.to_string(),
        entry.earlier_version.to_string(),
        entry.lost_size.to_string(),
        missing(entry),
        extents.join("; "),
        text(&entry.target_path),
    ];
    let quoted: Vec<_> = fields.iter().map(|field| quoted(field)).collect();
    format!("{}\n", quoted.join(","))
}

/// Returns a field of CSV. A text that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guard = if is_formula { "'" } else { "" };
    match is_formula || field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{guard}{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

fn html_row(entry: &FileEntry) -> String {
    let mut notes = vec![entry.certainty.replace('_', " ")];
    if entry.earlier_version {
        notes.push("earlier version".to_owned());
    }
    format!(
        "<tr><td>{}<td>{}<td class=\"n\">{}<td>{}<td>{}<td>{}\n",
        escaped(&entry.volume_path),
        notes.join(", "),
        entry.size,
        entry.modified.as_deref().unwrap_or(""),
        entry.source.replace('_', " "),
        escaped(&missing(entry))
    )
}

/// Returns text for HTML. Deceptive characters are written as numbers.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            c if is_deceptive(c) => result.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_csv_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"hi\""), "\"say \"\"hi\"\"\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }

    #[test]
    fn the_end_of_a_name_gives_the_format() {
        assert_eq!(ReportFormat::of("a.JSON"), Some(ReportFormat::Json));
        assert_eq!(ReportFormat::of("a.b.csv"), Some(ReportFormat::Csv));
        assert_eq!(ReportFormat::of("page.html"), Some(ReportFormat::Html));
        assert_eq!(ReportFormat::of("html"), None);
    }
}
