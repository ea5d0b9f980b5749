//! The sender.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bandsaw::device::BlockDevice;
use bandsaw::progress::Progress;
use bandsaw::store::Open;
use bandsaw::{Error, Kind, Reason, Result};

use super::{END, FORMAT, Have, Header, LAYER, MAGIC, PIECE, Received, have, receive};
use crate::manifest::Manifest;
use crate::sealed;
use crate::shelf::{Shelf, State};

/// The result of [`send`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The name of the state.
    pub id: String,
    /// Number of files that were sent.
    pub files: u64,
    /// Bytes of their contents.
    pub size: u64,
}

/// Writes the state `id`, or the newest sound one, without the contents that the receiver has.
/// [`Kind::Corrupt`] if a file is not as it was made.
pub fn send(
    shelf: &Shelf,
    id: Option<&str>,
    have: &Have,
    output: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<Sent> {
    let _states = shelf.lock()?;
    let (id, manifest) = choose(shelf, id)?;
    let folder = id.clone();
    let source = StateSource {
        id,
        manifest,
        open: &|name| shelf.store().open(&format!("{folder}/{name}"), Open::Read),
        damaged: &|name| {
            let message = "the file is not as it was made; nothing more is sent";
            let error = Error::new(Kind::Corrupt, LAYER, message);
            shelf.named(error, &format!("{folder}/{name}"))
        },
    };
    source.send(have, output, progress)
}

/// A function that opens a file by its name; `None` if there is none.
type OpenFile<'a> = &'a dyn Fn(&str) -> Result<Option<Arc<dyn BlockDevice>>>;

/// A state that is sent, and access to its files.
pub(super) struct StateSource<'a> {
    pub(super) id: String,
    pub(super) manifest: Manifest,
    pub(super) open: OpenFile<'a>,
    /// Returns the error about a file that is not as it was made.
    pub(super) damaged: &'a dyn Fn(&str) -> Error,
}

impl StateSource<'_> {
    /// Writes the state without the contents that the receiver has.
    pub(super) fn send(
        self,
        have: &Have,
        output: &mut dyn Write,
        progress: &dyn Progress,
    ) -> Result<Sent> {
        let Self { id, manifest, .. } = &self;
        let header = sealed::to_bytes(
            FORMAT,
            &Header {
                id: id.clone(),
                manifest: manifest.clone(),
            },
        )?;
        let mut out = |bytes: &[u8]| {
            let written = output.write_all(bytes);
            written.map_err(|source| Error::io(LAYER, "write", source))
        };
        out(MAGIC)?;
        out(&(header.len() as u64).to_le_bytes())?;
        out(&header)?;
        let mut sent = Sent {
            id: id.clone(),
            files: 0,
            size: 0,
        };
        // The same contents once: the receiver finds the others by their hash.
        let mut present = have.have.clone();
        let files = manifest.files.iter();
        let files: Vec<_> = files
            .filter(|(_, file)| present.insert(file.hash.clone()))
            .collect();
        let total = files
            .iter()
            .fold(0_u64, |sum, (_, file)| sum.saturating_add(file.len));
        progress.stage("send", total);
        let mut buf = Vec::new();
        for (name, file) in files {
            let damaged = || (self.damaged)(name);
            let open = (self.open)(name)?.ok_or_else(damaged)?;
            if open.info().len != file.len {
                return Err(damaged());
            }
            let length = u32::try_from(name.len()).map_err(|_| damaged())?;
            out(&length.to_le_bytes())?;
            out(name.as_bytes())?;
            let mut hasher = blake3::Hasher::new();
            let mut at = 0;
            while at < file.len {
                progress.check()?;
                let piece = PIECE.min(file.len - at);
                buf.resize(bandsaw::size::to_usize(piece), 0);
                open.read_at(at, &mut buf)?;
                hasher.update(&buf);
                out(&buf)?;
                progress.advance(piece);
                at += piece;
            }
            if hasher.finalize().to_hex().as_str() != file.hash {
                return Err(damaged());
            }
            sent.files += 1;
            sent.size = sent.size.saturating_add(file.len);
        }
        out(&0_u32.to_le_bytes())?;
        out(END)?;
        let flushed = output.flush();
        flushed.map_err(|source| Error::io(LAYER, "write", source))?;
        Ok(sent)
    }
}

pub(super) fn choose(shelf: &Shelf, id: Option<&str>) -> Result<(String, Manifest)> {
    if let Some(id) = id {
        return Ok((id.to_owned(), shelf.find(id)?));
    }
    let states = shelf.list()?;
    let newest = states.iter().rev().find(|state| state.is_sound());
    let newest =
        newest.and_then(|state: &State| Some((state.id.clone(), state.manifest()?.clone())));
    newest.ok_or_else(|| {
        let message = match states.is_empty() {
            true => "the bundle has no states",
            false => "no state is sound; name the one to send",
        };
        Error::new(Kind::NotFound, LAYER, message).because(Reason::NoSuchState)
    })
}

/// Sends a state to a folder of this host. An interrupted run is resumed.
pub fn send_to_folder(
    shelf: &Shelf,
    id: Option<&str>,
    bundle: &str,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(Sent, Received)> {
    let known = have(folder, bundle, progress)?;
    through_pipe(
        &|output| send(shelf, id, &known, output, progress),
        folder,
        progress,
    )
}

/// Receives in a folder what `send` writes.
pub(super) fn through_pipe(
    send: &(dyn Fn(&mut dyn Write) -> Result<Sent> + Sync),
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(Sent, Received)> {
    let (mut input, mut output) =
        io::pipe().map_err(|source| Error::io(LAYER, "create a pipe", source))?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || send(&mut output));
        let received = receive(
            folder,
            &mut input,
            &bandsaw::progress::NestedProgress(progress),
        );
        // A sender that still writes fails at once.
        drop(input);
        let sent = sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (sent, received) {
            (Ok(sent), Ok(received)) => Ok((sent, received)),
            // The end of the pipe is the consequence of the other failure.
            (Err(error), Err(_)) if error.io_kind() != Some(io::ErrorKind::BrokenPipe) => {
                Err(error)
            }
            (Err(error), Ok(_)) => Err(error),
            (_, Err(error)) => Err(error),
        }
    })
}
