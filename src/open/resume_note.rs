//! The note beside an unfinished image: its source, and how much of it is durable.

use std::ffi::OsString;
use std::path::PathBuf;

use super::LAYER;
use super::place::ImagePlace;
use crate::device::BlockDeviceExt;
use crate::size::to_usize;
use crate::store::{Local, Open, Put, Store};
use crate::{Error, Kind, Result};

/// The first line of every note.
const HEAD: &str = "bandsaw unfinished image 1";

/// Maximum size of a note.
const MAX_BYTES: u64 = 4096;

/// The note beside an unfinished image.
#[derive(Debug)]
pub(super) struct ResumeNote {
    folder: Local,
    name: String,
    /// The source of the image and the options, in one line.
    identity: String,
    /// Bytes at the start of the disk that are complete.
    pub(super) done: u64,
}

impl ResumeNote {
    pub(super) fn beside(place: &ImagePlace, identity: &str) -> Result<Self> {
        let mut name: OsString = place.aside().file_name().unwrap_or_default().to_owned();
        name.push("-note");
        let name = name
            .into_string()
            .map_err(|_| Error::new(Kind::Unsupported, LAYER, "has a name that is not UTF-8"))?;
        let folder: PathBuf = super::place::folder_of(place.target()).to_owned();
        Ok(Self {
            folder: Local::new(folder).with_mode(place.mode()),
            name,
            identity: identity.to_owned(),
            done: 0,
        })
    }

    /// Returns the stored identity and complete bytes. `None`: there is no valid note, so the kept image
    /// cannot be resumed.
    pub(super) fn read(&self) -> Result<Option<(String, u64)>> {
        let Some(file) = self.folder.open(&self.name, Open::Read)? else {
            return Ok(None);
        };
        let bytes = file.read_vec(0, to_usize(file.info().len.min(MAX_BYTES)))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let [HEAD, identity, done] = text.lines().collect::<Vec<_>>()[..] else {
            return Ok(None);
        };
        Ok(done.parse().ok().map(|done| (identity.to_owned(), done)))
    }

    pub(super) fn write(&self) -> Result<()> {
        let Self { identity, done, .. } = self;
        let text = format!("{HEAD}\n{identity}\n{done}\n");
        self.folder.put(&self.name, text.as_bytes(), Put::Replace)?;
        self.folder.sync()
    }

    pub(super) fn remove(&self) -> Result<()> {
        if self.folder.remove(&self.name)? {
            self.folder.sync()
        } else {
            Ok(())
        }
    }
}
