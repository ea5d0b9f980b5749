//! A new image that stays when work on it is broken off, so that it can be gone on with.
//!
//! Beside the place of `x.img` stand `.x.img.partial`, the image itself, and `.x.img.partial-note`:
//! what it is made from, and how much of the disk is in it, durably. The note is replaced in one
//! step, after the bytes that it tells of.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::create::{make, open_new};
use super::place::ImagePlace;
use super::{CreateOptions, Image, LAYER};
use crate::crypt::Secret;
use crate::device::{AfterDiscard, BlockDeviceExt};
use crate::progress::Silent;
use crate::store::{Local, Open, Put, Store};
use crate::{Error, Kind, Reason, Result};

/// The first line of every note.
const HEAD: &str = "bandsaw unfinished image 1";
/// No note is longer.
const MOST_BYTES: u64 = 4096;

/// A new image under a name that stays. [`finish`](Self::finish) puts it in its place; dropped
/// before that it is kept.
#[derive(Debug)]
pub struct ResumableImage {
    /// `None` once it is closed.
    image: Option<Image>,
    place: ImagePlace,
    note: Note,
    /// What it is made from and how: one line.
    identity: String,
    /// What it opens with, if it is encrypted.
    passphrase: Option<Secret>,
    /// Bytes of the disk, from the front, that are in it.
    done: u64,
}

impl ResumableImage {
    /// The unfinished image that is kept beside `path`, or a blank one. `identity`, one line, tells
    /// what it is made from and how.
    ///
    /// [`Kind::Conflict`] if what is kept was begun as something else, or if something is at `path`
    /// and `overwrite` is not set. [`Kind::WrongKey`] if what is kept is encrypted under another
    /// passphrase. What is kept is as it was up to [`done`](Self::done), and blank behind that, or
    /// noise if it is thin.
    pub fn new(path: &Path, options: &CreateOptions, identity: &str) -> Result<Self> {
        let made = || {
            options.check()?;
            let place = ImagePlace::claim_kept(path, options.overwrite, options.new_mode())?;
            let note = Note::beside(&place)?;
            match note.read()? {
                Some((kept, done)) if fs::symlink_metadata(place.aside()).is_ok() => {
                    if kept != identity {
                        return Err(refusal(&place));
                    }
                    Self::go_on(place, note, identity, done, options)
                }
                _ => Self::begin(place, note, identity, options),
            }
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    fn begin(
        place: ImagePlace,
        note: Note,
        identity: &str,
        options: &CreateOptions,
    ) -> Result<Self> {
        note.remove()?;
        place.clear_kept()?;
        let image = make(&place, options, &Silent)?;
        image.disk().flush()?;
        note.write(identity, 0)?;
        let passphrase = options.passphrase();
        Ok(Self {
            image: Some(image),
            place,
            note,
            identity: identity.to_owned(),
            passphrase,
            done: 0,
        })
    }

    fn go_on(
        place: ImagePlace,
        note: Note,
        identity: &str,
        done: u64,
        options: &CreateOptions,
    ) -> Result<Self> {
        let passphrase = options.passphrase();
        let image = open_new(
            place.aside(),
            options.format,
            passphrase.as_ref(),
            Vec::new(),
        )?;
        let len = image.disk().info().len;
        if len != options.len || done > len {
            return Err(refusal(&place));
        }
        image.disk().discard(
            done..len,
            if options.thin {
                AfterDiscard::Any
            } else {
                AfterDiscard::Zeros
            },
        )?;
        Ok(Self {
            image: Some(image),
            place,
            note,
            identity: identity.to_owned(),
            passphrase,
            done,
        })
    }

    /// The image, open for writing.
    pub fn image(&self) -> &Image {
        match &self.image {
            Some(image) => image,
            None => unreachable!("only `finish` closes the image, and takes the draft with it"),
        }
    }

    /// Bytes of the disk, from the front, that need not be written again.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Makes everything written durable, and then that the first `done` bytes of the disk are
    /// there.
    pub fn keep(&mut self, done: u64) -> Result<()> {
        let kept = self
            .image()
            .disk()
            .flush()
            .and_then(|()| self.note.write(&self.identity, done));
        kept.map_err(|error| error.in_file(self.place.target()))?;
        self.done = done;
        Ok(())
    }

    /// Makes everything written durable, puts the image in its place, and opens it there for
    /// writing.
    pub fn finish(mut self) -> Result<Image> {
        let path = self.place.target().to_owned();
        let (format, told) = (self.image().format(), self.image().warnings().to_vec());
        let flushed = self.image().disk().flush().and_then(|()| {
            self.image = None;
            self.place.take()?;
            self.note.remove()
        });
        flushed.map_err(|error| error.in_file(&path))?;
        open_new(&path, format, self.passphrase.as_ref(), told)
    }
}

impl Drop for ResumableImage {
    fn drop(&mut self) {
        // Closed before its place is left.
        self.image = None;
    }
}

fn refusal(place: &ImagePlace) -> Error {
    let message = format!(
        "{} is left of another source, or of other options; go on as it was begun, or remove it",
        place.aside().display()
    );
    Error::new(Kind::Conflict, LAYER, message).because(Reason::PartialExists)
}

/// The note beside an unfinished image.
#[derive(Debug)]
struct Note {
    folder: Local,
    name: String,
}

impl Note {
    fn beside(place: &ImagePlace) -> Result<Self> {
        let mut name: OsString = place.aside().file_name().unwrap_or_default().to_owned();
        name.push("-note");
        let name = name
            .into_string()
            .map_err(|_| Error::new(Kind::Unsupported, LAYER, "has a name that is not UTF-8"))?;
        let folder: PathBuf = super::place::folder_of(place.target()).to_owned();
        Ok(Self {
            folder: Local::new(folder).with_mode(place.mode()),
            name,
        })
    }

    /// Identity and bytes done. `None`: there is no note that makes sense, so nothing is known of
    /// what is kept.
    fn read(&self) -> Result<Option<(String, u64)>> {
        let Some(file) = self.folder.open(&self.name, Open::Read)? else {
            return Ok(None);
        };
        let bytes = file.read_vec(0, file.info().len.min(MOST_BYTES) as usize)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let [HEAD, identity, done] = text.lines().collect::<Vec<_>>()[..] else {
            return Ok(None);
        };
        Ok(done.parse().ok().map(|done| (identity.to_owned(), done)))
    }

    fn write(&self, identity: &str, done: u64) -> Result<()> {
        self.folder.put(
            &self.name,
            format!("{HEAD}\n{identity}\n{done}\n").as_bytes(),
            Put::Replace,
        )?;
        self.folder.sync()
    }

    fn remove(&self) -> Result<()> {
        if self.folder.remove(&self.name)? {
            self.folder.sync()
        } else {
            Ok(())
        }
    }
}
