//! Reading of a manifest, which is not trusted.

use std::io::{BufRead, Read};

use bandsaw::{Error, Kind, Reason, Result};
use sha2::{Digest, Sha256};

use crate::LAYER;
use crate::hashing::hex;
use crate::record::{End, Line, VERSION};

/// Maximum length of a line in bytes.
const MAX_LINE: u64 = 64 << 20;

/// The lines of a manifest, in order.
pub(crate) struct ManifestReader<R> {
    from: R,
    sum: Sha256,
    number: u64,
    offset: u64,
    line: Vec<u8>,
    volumes: u64,
    files: u64,
    problems: u64,
    end: Option<End>,
}

impl<R: BufRead> ManifestReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            sum: Sha256::new(),
            number: 0,
            offset: 0,
            line: Vec::new(),
            volumes: 0,
            files: 0,
            problems: 0,
            end: None,
        }
    }

    /// Returns the next line and its offset in the file; `None` after the last, if the manifest is whole.
    ///
    /// [`Kind::Corrupt`] if it is cut or damaged, [`Kind::Unsupported`] if it is of a newer version.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Line)>> {
        let (start, sum) = (self.offset, self.sum.clone());
        self.line.clear();
        let mut limited = (&mut self.from).take(MAX_LINE);
        let read = limited
            .read_until(b'\n', &mut self.line)
            .map_err(|error| Error::io(LAYER, "read", error))?;
        if read == 0 {
            return match self.end {
                Some(_) => Ok(None),
                None => Err(self
                    .damaged("the manifest is cut: its last line is missing")
                    .because(Reason::Truncated)),
            };
        }
        self.number += 1;
        if self.line.last() != Some(&b'\n') {
            return match read as u64 == MAX_LINE {
                true => Err(Error::limit(LAYER, "a line of the manifest is too long")
                    .named(format!("line {}", self.number))),
                false => Err(self
                    .damaged("the manifest is cut within a line")
                    .because(Reason::Truncated)),
            };
        }
        if self.end.is_some() {
            return Err(self.damaged("the manifest continues after its last line"));
        }
        self.offset += read as u64;
        self.sum.update(&self.line);
        let parsed = serde_json::from_slice(&self.line);
        let line: Line =
            parsed.map_err(|error| self.damaged(&format!("not a line of a manifest: {error}")))?;
        match &line {
            Line::Manifest(header) if self.number == 1 => {
                if header.version > VERSION {
                    let message =
                        format!("manifests of version {} are not supported", header.version);
                    return Err(Error::unsupported(LAYER, message));
                }
            }
            Line::Manifest(_) => return Err(self.damaged("a second first line")),
            _ if self.number == 1 => return Err(self.damaged("not a manifest of bandsaw evidence")),
            Line::Volume(volume) => {
                self.volumes += 1;
                self.problems += u64::from(volume.error.is_some());
            }
            Line::File(file) => {
                self.files += 1;
                self.problems += u64::from(!file.errors.is_empty());
            }
            Line::End(end) => {
                if end.sha256 != hex(&sum.finalize()) {
                    return Err(self.damaged("checksum mismatch: the manifest was changed"));
                }
                if (end.volumes, end.files, end.problems)
                    != (self.volumes, self.files, self.problems)
                {
                    return Err(self.damaged("the last line has other counts than the manifest"));
                }
                self.end = Some(end.clone());
            }
        }
        Ok(Some((start, line)))
    }

    fn damaged(&self, message: &str) -> Error {
        Error::new(Kind::Corrupt, "manifest", message.to_owned())
            .named(format!("line {}", self.number))
    }
}

/// Reads the line at an offset of a manifest that was read before.
pub(crate) fn line_at(from: &mut (impl BufRead + std::io::Seek), offset: u64) -> Result<Line> {
    let failed = |error| Error::io(LAYER, "read", error);
    from.seek(std::io::SeekFrom::Start(offset))
        .map_err(failed)?;
    let mut line = Vec::new();
    from.take(MAX_LINE)
        .read_until(b'\n', &mut line)
        .map_err(failed)?;
    serde_json::from_slice(&line).map_err(|error| {
        let message = format!("the manifest changed while it was read: {error}");
        Error::new(Kind::Corrupt, "manifest", message).at(offset)
    })
}
