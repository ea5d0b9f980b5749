//! The documents under `.bandsaw/`, as text. Source: docs/formats/object-store.md §3.
//!
//! ```text
//! bandsaw log 1                                          first line of an entry; `bandsaw manifest 1` of a manifest
//! state NUMBER ID PARENT GENERATION take|change|release  numbers and identifiers in hexadecimal, 16 digits
//! parts BYTES settled|unsettled                          bytes of a part; whether late requests are over
//! holder HOST PROCESS SECONDS                            who has the lease, since when (Unix time)
//! file NAME LEN [COUNT SIZE TAG]                         a name; its plain object, of SIZE bytes, and how many of them count
//! part INDEX OBJECT OFFSET LEN                           a part of the file above; OBJECT `-` means zeros
//! gone NAME                                              a name that was removed; its plain object may still be there
//! done NAME                                              its plain object is not there any more, either (entries only)
//! snapshot NAME OBJECT SECONDS                           a snapshot, and the object that holds its manifest
//! dropped NAME                                           a snapshot that was deleted (entries only)
//! sum CRC32                                              of all bytes before this line, 8 digits
//! ```
//!
//! Fields are separated by one space; in names, hosts and tags `%` and all characters other than
//! printable ASCII are written as `%` and two hexadecimal digits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::LAYER;
use super::fields::{Fields, Lines, escaped};
use crate::{Error, Result};

/// The prefix of all keys of this format.
pub(super) const ROOT: &str = ".bandsaw/";
pub(super) const MANIFESTS: &str = ".bandsaw/manifest/";
pub(super) const OBJECTS: &str = ".bandsaw/objects/";

/// Maximum length of a document in bytes: a manifest of a million bands.
pub(super) const LARGEST: u64 = 128 << 20;
/// Maximum length of a file in bytes.
const MAX_FILE_LEN: u64 = 1 << 62;
/// Valid sizes of a part in bytes.
const PARTS: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

pub(super) fn log_key(number: u64) -> String {
    format!(".bandsaw/log/{number:016x}")
}

pub(super) fn manifest_key(number: u64) -> String {
    format!("{MANIFESTS}{number:016x}")
}

pub(super) fn lease_key(generation: u64) -> String {
    format!(".bandsaw/lease/{generation:016x}")
}

/// An object that is written once and never changed; its name identifies its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectId {
    /// The generation of the writer.
    pub(super) generation: u64,
    /// A random number of the writer, so that two writers that claim the same generation never use
    /// the same name.
    pub(super) session: u64,
    /// The serial number of the writer's object.
    pub(super) number: u64,
}

impl ObjectId {
    pub(super) fn key(self) -> String {
        format!("{OBJECTS}{}", self.text())
    }

    fn text(self) -> String {
        format!(
            "{:x}-{:016x}-{:x}",
            self.generation, self.session, self.number
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16));
        let (Some(Ok(generation)), Some(Ok(session)), Some(Ok(number)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        Some(Self {
            generation,
            session,
            number,
        })
        .filter(|id| id.text() == text)
    }

    /// Parses the object that `key` names. `None`: not a key of this format.
    pub(super) fn from_key(key: &str) -> Option<Self> {
        Self::parse(key.strip_prefix(OBJECTS)?)
    }
}

/// The current or former holder of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseHolder {
    /// The host's name.
    pub host: String,
    /// The process on that host.
    pub process: u32,
    /// The time of acquisition, in seconds of Unix time by the holder's clock.
    pub since: u64,
}

/// The purpose of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryPurpose {
    /// A new writer takes over: the generation rises by one.
    Take,
    /// The writer's changes.
    Change,
    /// The writer has closed the bundle; the next one need not wait.
    Release,
}

/// A part of a file that is stored in an object of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// `None`: zeros.
    pub(super) object: Option<ObjectId>,
    /// The offset in the object.
    pub(super) offset: u64,
    /// Number of valid bytes in the object; zeros follow.
    pub(super) len: u64,
}

/// The object under the file's plain name, as of its last check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Plain {
    /// Number of its valid bytes; zeros follow.
    pub(super) len: u64,
    /// Its size in bytes.
    pub(super) size: u64,
    pub(super) tag: String,
}

/// The location of the bytes of a file: a part in its object; without one, in the plain object;
/// past that, zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct FileState {
    pub(super) len: u64,
    pub(super) plain: Option<Plain>,
    pub(super) parts: BTreeMap<u64, Part>,
}

impl FileState {
    /// Returns true if the plain object is exactly the whole file.
    pub(super) fn is_plain(&self) -> bool {
        self.parts.is_empty()
            && self
                .plain
                .as_ref()
                .is_some_and(|plain| plain.len == self.len && plain.size == self.len)
    }

    /// Returns a number that differs between states.
    pub(super) fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// The state of a name that was ever used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    File(Arc<FileState>),
    /// Removed; its plain object may still be there.
    Gone,
    /// Removed, and its plain object too.
    Done,
}

/// A snapshot: the object that holds its manifest, and the time of its creation (Unix time).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotRef {
    pub(super) manifest: ObjectId,
    pub(super) created: u64,
}

/// One entry of the log, or the sum of all entries up to a number: a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) generation: u64,
    pub(super) what: EntryPurpose,
    pub(super) part: u64,
    /// Set once no request of a writer that did not close the bundle can still reach plain names.
    pub(super) settled: bool,
    pub(super) holder: LeaseHolder,
    pub(super) names: BTreeMap<String, Name>,
    pub(super) snapshots: BTreeMap<String, Option<SnapshotRef>>,
}

/// The expected kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Entry,
    Manifest,
}

impl Role {
    fn title(self) -> &'static str {
        match self {
            Self::Entry => "bandsaw log 1",
            Self::Manifest => "bandsaw manifest 1",
        }
    }
}

impl Document {
    pub(super) fn encode(&self, role: Role) -> Vec<u8> {
        let mut text = String::new();
        let what = match self.what {
            EntryPurpose::Take => "take",
            EntryPurpose::Change => "change",
            EntryPurpose::Release => "release",
        };
        let settled = if self.settled { "settled" } else { "unsettled" };
        let holder = &self.holder;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", role.title());
        let _ = writeln!(
            text,
            "state {:016x} {:016x} {:016x} {:016x} {what}",
            self.number, self.id, self.parent, self.generation
        );
        let _ = writeln!(text, "parts {} {settled}", self.part);
        let _ = writeln!(
            text,
            "holder {} {} {}",
            escaped(&holder.host),
            holder.process,
            holder.since
        );
        for (name, known) in &self.names {
            let name = escaped(name);
            match known {
                Name::File(file) => encode_file(&mut text, &name, file),
                Name::Gone => drop(writeln!(text, "gone {name}")),
                Name::Done => drop(writeln!(text, "done {name}")),
            }
        }
        for (name, snapshot) in &self.snapshots {
            let name = escaped(name);
            match snapshot {
                Some(at) => drop(writeln!(
                    text,
                    "snapshot {name} {} {}",
                    at.manifest.text(),
                    at.created
                )),
                None => drop(writeln!(text, "dropped {name}")),
            }
        }
        let sum = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text.into_bytes()
    }

    /// Parses a document that was found under `key`.
    pub(super) fn parse(key: &str, bytes: &[u8], role: Role) -> Result<Self> {
        let mut lines = Lines::checked(bytes)
            .and_then(|lines| lines.after(role.title()))
            .map_err(|error| error.in_part(key))?;
        parse_lines(&mut lines, role).map_err(|error| error.in_part(key))
    }
}

pub(super) fn encode_file(text: &mut String, name: &str, file: &FileState) {
    let _ = write!(text, "file {name} {}", file.len);
    if let Some(plain) = &file.plain {
        let _ = write!(
            text,
            " {} {} {}",
            plain.len,
            plain.size,
            escaped(&plain.tag)
        );
    }
    text.push('\n');
    for (index, part) in &file.parts {
        let object = part.object.map_or_else(|| "-".to_owned(), ObjectId::text);
        let _ = writeln!(text, "part {index} {object} {} {}", part.offset, part.len);
    }
}

fn parse_lines(lines: &mut Lines<'_>, role: Role) -> Result<Document> {
    let mut fields = lines.expect("state")?;
    let [number, id, parent, generation] =
        [fields.hex()?, fields.hex()?, fields.hex()?, fields.hex()?];
    let what = match fields.word()? {
        "take" => EntryPurpose::Take,
        "change" => EntryPurpose::Change,
        "release" => EntryPurpose::Release,
        _ => return Err(fields.odd("expected take, change or release")),
    };
    fields.end()?;
    let mut fields = lines.expect("parts")?;
    let part = fields.part_len()?;
    let settled = match fields.word()? {
        "settled" => true,
        "unsettled" => false,
        _ => return Err(fields.odd("expected settled or unsettled")),
    };
    fields.end()?;
    let mut fields = lines.expect("holder")?;
    let host = fields.text()?;
    let process = u32::try_from(fields.number()?)
        .map_err(|_| fields.odd("expected a number of a process"))?;
    let holder = LeaseHolder {
        host,
        process,
        since: fields.number()?,
    };
    fields.end()?;
    let (names, snapshots) = (BTreeMap::new(), BTreeMap::new());
    let mut document = Document {
        number,
        id,
        parent,
        generation,
        what,
        part,
        settled,
        holder,
        names,
        snapshots,
    };
    let mut current = None;
    while let Some(mut fields) = lines.next()? {
        document.parse_line(&mut fields, &mut current, role)?;
    }
    document.finish(current);
    Ok(document)
}

/// The file whose parts are being parsed.
type Current = Option<(String, FileState)>;

impl Document {
    fn parse_line(
        &mut self,
        fields: &mut Fields<'_>,
        current: &mut Current,
        role: Role,
    ) -> Result<()> {
        let word = fields.word()?;
        if word == "part" {
            let Some((_, file)) = current else {
                return Err(fields.odd("expected a file before its parts"));
            };
            return take_part(fields, file, self.part);
        }
        self.finish(current.take());
        let name = fields.name()?;
        let known = match word {
            "snapshot" | "dropped" => self.snapshots.contains_key(&name),
            _ => self.names.contains_key(&name),
        };
        match word {
            _ if known => return Err(fields.odd("duplicate name")),
            "file" => *current = Some((name, take_file(fields)?)),
            "gone" => drop(self.names.insert(name, Name::Gone)),
            "done" if role == Role::Entry => drop(self.names.insert(name, Name::Done)),
            "snapshot" => {
                let manifest = fields
                    .object()?
                    .ok_or_else(|| fields.odd("expected an object"))?;
                self.snapshots.insert(
                    name,
                    Some(SnapshotRef {
                        manifest,
                        created: fields.number()?,
                    }),
                );
            }
            "dropped" if role == Role::Entry => drop(self.snapshots.insert(name, None)),
            _ => return Err(fields.odd("expected file, part, gone or snapshot")),
        }
        fields.end()
    }

    fn finish(&mut self, current: Current) {
        if let Some((name, file)) = current {
            self.names.insert(name, Name::File(Arc::new(file)));
        }
    }
}

/// Parses a file without its parts.
pub(super) fn take_file(fields: &mut Fields<'_>) -> Result<FileState> {
    let file = FileState {
        len: fields.number()?,
        plain: take_plain(fields)?,
        parts: BTreeMap::new(),
    };
    if file.len > MAX_FILE_LEN {
        return Err(fields.odd("expected a length that a file can have"));
    }
    if file
        .plain
        .as_ref()
        .is_some_and(|plain| plain.len > file.len.min(plain.size))
    {
        return Err(fields.odd("expected no more of the plain object than of the file"));
    }
    Ok(file)
}

fn take_plain(fields: &mut Fields<'_>) -> Result<Option<Plain>> {
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(Plain {
        len: fields.number()?,
        size: fields.number()?,
        tag: fields.text()?,
    }))
}

pub(super) fn take_part(fields: &mut Fields<'_>, file: &mut FileState, part: u64) -> Result<()> {
    let index = fields.number()?;
    let (object, offset, len) = (fields.object()?, fields.number()?, fields.number()?);
    let fits = index
        .checked_mul(part)
        .is_some_and(|start| start < file.len && len <= (file.len - start).min(part));
    if !fits || offset.checked_add(len).is_none() {
        return Err(fields.odd("expected a part within its file"));
    }
    if file
        .parts
        .insert(
            index,
            Part {
                object,
                offset,
                len,
            },
        )
        .is_some()
    {
        return Err(fields.odd("duplicate part"));
    }
    fields.end()
}

impl Fields<'_> {
    /// Parses the name of a file of the bundle.
    pub(super) fn name(&mut self) -> Result<String> {
        let name = self.text()?;
        crate::store::check_name(&name)
            .map_err(|_| self.odd("expected a name within the image"))?;
        if name.starts_with(ROOT) {
            return Err(self.odd("expected a name outside .bandsaw/"));
        }
        Ok(name)
    }

    /// Parses the size of a part in bytes.
    pub(super) fn part_len(&mut self) -> Result<u64> {
        let part = self.number()?;
        if !part.is_power_of_two() || !PARTS.contains(&part) {
            return Err(self.odd("expected a power of two from 64 KiB to 1 GiB"));
        }
        Ok(part)
    }

    /// Parses an object, or `-` for none.
    fn object(&mut self) -> Result<Option<ObjectId>> {
        match self.word()? {
            "-" => Ok(None),
            text => Ok(Some(
                ObjectId::parse(text).ok_or_else(|| self.odd("expected an object"))?,
            )),
        }
    }
}

/// Refuses to read a document that is longer than any valid one.
pub(super) fn check_len(key: &str, len: u64) -> Result<()> {
    if len <= LARGEST {
        return Ok(());
    }
    Err(Error::limit(
        LAYER,
        format!("expected at most {LARGEST} bytes, found {len}"),
    )
    .in_part(key))
}
