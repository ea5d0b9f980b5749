//! A new image that is kept when its creation is interrupted, so that it can be resumed.
//!
//! Beside `x.img` are created `.x.img.partial`, the image itself, and `.x.img.partial-note`: the
//! source of the image, and how much of the disk is durable. The note is replaced atomically, after
//! the data that it describes, and removed before the image is moved to its place.

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
/// Maximum size of a note.
const MAX_BYTES: u64 = 4096;

/// A new image under a fixed temporary name. [`finish`](Self::finish) moves it to its place; if
/// dropped before, it is kept.
#[derive(Debug)]
pub struct ResumableImage {
    /// `None` after closing.
    image: Option<Image>,
    place: ImagePlace,
    note: ResumeNote,
    /// The source of the image and the options, in one line.
    identity: String,
    /// The passphrase, if it is encrypted.
    passphrase: Option<Secret>,
    /// Bytes at the start of the disk that are complete.
    done: u64,
}

impl ResumableImage {
    /// Opens the unfinished image that is kept beside `path`, or creates a blank one. `identity`,
    /// one line, describes its source and options.
    ///
    /// [`Kind::Conflict`] if the kept image has another identity, or if `path` exists and
    /// `overwrite` is not set. [`Kind::WrongKey`] if the kept image is encrypted under another
    /// passphrase. Its contents are valid up to [`done`](Self::done), and blank after that, or
    /// noise if it is thin.
    pub fn new(path: &Path, options: &CreateOptions, identity: &str) -> Result<Self> {
        let made = || {
            options.check()?;
            let place = ImagePlace::claim_kept(path, options.overwrite, options.new_mode())?;
            let note = ResumeNote::beside(&place)?;
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
        note: ResumeNote,
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
        note: ResumeNote,
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

    /// Returns the image, open for writing.
    pub fn image(&self) -> &Image {
        match &self.image {
            Some(image) => image,
            None => unreachable!("only `finish` closes the image, and takes the draft with it"),
        }
    }

    /// Returns the number of bytes at the start of the disk that need not be written again.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Makes everything written durable, then records durably that the first `done` bytes of the
    /// disk are complete.
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

    /// Makes everything written durable, moves the image to its place, and opens it there for
    /// writing.
    pub fn finish(mut self) -> Result<Image> {
        let path = self.place.target().to_owned();
        let (format, warnings) = (self.image().format(), self.image().warnings().to_vec());
        let flushed = self.image().disk().flush().and_then(|()| {
            self.image = None;
            // First: after the rename, the old image may be under the name that the note describes.
            self.note.remove()?;
            self.place.take().inspect_err(|_| {
                if !self.place.is_taken() {
                    let _ = self.note.write(&self.identity, self.done); // the first error counts
                }
            })
        });
        flushed.map_err(|error| error.in_file(&path))?;
        open_new(&path, format, self.passphrase.as_ref(), warnings)
    }
}

impl Drop for ResumableImage {
    fn drop(&mut self) {
        // Closed before it is moved.
        self.image = None;
    }
}

fn refusal(place: &ImagePlace) -> Error {
    let message = format!(
        "{} is an unfinished image of another source or with other options",
        place.aside().display()
    );
    Error::new(Kind::Conflict, LAYER, message).because(Reason::PartialExists)
}

/// The note beside an unfinished image.
#[derive(Debug)]
struct ResumeNote {
    folder: Local,
    name: String,
}

impl ResumeNote {
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

    /// Returns identity and complete bytes. `None`: there is no valid note, so the kept image
    /// cannot be resumed.
    fn read(&self) -> Result<Option<(String, u64)>> {
        let Some(file) = self.folder.open(&self.name, Open::Read)? else {
            return Ok(None);
        };
        let bytes = file.read_vec(0, file.info().len.min(MAX_BYTES) as usize)?;
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
