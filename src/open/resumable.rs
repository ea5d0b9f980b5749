//! A new image that is kept when its creation is interrupted, so that it can be resumed.
//!
//! Beside `x.img` are created `.x.img.partial`, the image itself, and `.x.img.partial-note`: the
//! source of the image, and how much of the disk is durable. The note is replaced atomically, after
//! the data that it describes, and removed before the image is moved to its place.

use std::fs;
use std::path::Path;

use super::create::make;
use super::new_image::NewImage;
use super::opening::Opening;
use super::place::ImagePlace;
use super::resume_note::ResumeNote;
use super::{CreateOptions, Draft, Image, LAYER, Layer, gate};
use crate::device::AfterDiscard;
use crate::progress::Silent;
use crate::{Error, Reason, Result};

impl Draft {
    /// Opens the unfinished image that is kept beside `path`, or creates a blank one, which is kept
    /// under a fixed name if it is dropped before [`finish`](Self::finish). `identity`, one line,
    /// describes its source and options.
    ///
    /// [`Kind::Conflict`](crate::Kind::Conflict) if the kept image has another identity, or if `path` exists and
    /// `overwrite` is not set. [`Kind::WrongKey`](crate::Kind::WrongKey) if the kept image is encrypted under another
    /// passphrase. Its contents are valid up to [`done`](Self::done), and blank after that, or
    /// noise if it is thin.
    pub fn resumable(path: &Path, options: &CreateOptions, identity: &str) -> Result<Self> {
        let made = || {
            options.check()?;
            let place = ImagePlace::claim_kept(path, options.overwrite, options.new_mode())?;
            let mut note = ResumeNote::beside(&place, identity)?;
            let image = match note.read()? {
                Some((kept, done)) if fs::symlink_metadata(place.aside()).is_ok() => {
                    if kept != identity {
                        return Err(refusal(&place));
                    }
                    note.done = done;
                    resume(&place, done, options)?
                }
                _ => begin(&place, &note, options)?,
            };
            Ok(Self {
                image,
                place: NewImage::Host(place),
                note: Some(note),
                options: options.clone(),
            })
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// Returns the number of bytes at the start of the disk that need not be written again.
    pub fn done(&self) -> u64 {
        self.note.as_ref().map_or(0, |note| note.done)
    }

    /// Makes everything written durable, then records durably that the first `done` bytes of the
    /// disk are complete. Records nothing if the image is not [resumable](Self::resumable).
    pub fn record_progress(&mut self, done: u64) -> Result<()> {
        let kept = self.image.disk.flush().and_then(|()| {
            let Some(note) = &mut self.note else {
                return Ok(());
            };
            let before = std::mem::replace(&mut note.done, done);
            note.write().inspect_err(|_| note.done = before)
        });
        kept.map_err(|error| error.in_file(self.place.target()))
    }
}

fn begin(place: &ImagePlace, note: &ResumeNote, options: &CreateOptions) -> Result<Image> {
    note.remove()?;
    place.clear_kept()?;
    let image = make(place, options, &Silent)?;
    image.disk.flush()?;
    note.write()?;
    Ok(image)
}

/// Opens the kept image, of which the first `done` bytes are complete.
fn resume(place: &ImagePlace, done: u64, options: &CreateOptions) -> Result<Image> {
    let kept = options.reopened();
    let mut opening = Opening::new(place.aside(), &kept);
    let opened = if options.format.is_folder() {
        opening.resolved_bundle(place.folder())?
    } else {
        let file = place.open_file()?;
        opening.layers.push(Layer::File(file.clone()));
        opening.file(file)?
    };
    let found = gate::pass(opened, &mut opening)?;
    let image = opening.into_image(found);
    let len = image.disk.info().len;
    if len != options.len || done > len {
        return Err(refusal(place));
    }
    image.disk.discard(
        done..len,
        if options.thin {
            AfterDiscard::Any
        } else {
            AfterDiscard::Zeros
        },
    )?;
    Ok(image)
}

fn refusal(place: &ImagePlace) -> Error {
    let message = format!(
        "{} is an unfinished image of another source or with other options",
        place.aside().display()
    );
    Error::conflict(LAYER, message).because(Reason::PartialExists)
}
