//! System calls that not every host has.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// Options of sending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendOptions {
    /// True if further data follows, which may share a packet.
    pub(crate) more: bool,
    /// True if the send timeout of the socket does not apply.
    pub(crate) is_patient: bool,
}

/// Sends all of `parts`.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    mut parts: &mut [IoSlice<'_>],
    options: SendOptions,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match rustix::net::sendmsg(
            socket,
            parts,
            &mut SendAncillaryBuffer::default(),
            flags(options.more),
        ) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if options.is_patient => wait_for_room(socket)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Waits until the socket is writable.
pub(crate) fn wait_for_room(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(target_os = "linux")]
fn flags(more: bool) -> SendFlags {
    if more {
        SendFlags::NOSIGNAL | SendFlags::MORE
    } else {
        SendFlags::NOSIGNAL
    }
}

#[cfg(not(target_os = "linux"))]
fn flags(_more: bool) -> SendFlags {
    SendFlags::empty()
}

/// True if [`send_file`] works on this host.
pub(crate) const SENDS_FILES: bool = cfg!(target_os = "linux");

/// Sends `range` of a file without copying it; `range.start` is advanced by the bytes sent, also on
/// failure: [`WouldBlock`](io::ErrorKind::WouldBlock) after the socket's send timeout.
#[cfg(target_os = "linux")]
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &File,
    range: &mut Range<u64>,
) -> io::Result<()> {
    while !range.is_empty() {
        let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(socket, file, Some(&mut range.start), count) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn send_file(
    _socket: BorrowedFd<'_>,
    _file: &File,
    _range: &mut Range<u64>,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns true if reading `range` of a file would block on the disk, or fail. Only its last byte
/// is tested: with sequential reads the host has read it ahead, otherwise the end is usually
/// uncached together with the rest.
#[cfg(target_os = "linux")]
pub(crate) fn would_wait(file: &File, range: &Range<u64>) -> bool {
    use rustix::io::ReadWriteFlags;

    let mut byte = [0];
    let mut into = [io::IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(
        file,
        &mut into,
        range.end.saturating_sub(1),
        ReadWriteFlags::NOWAIT,
    );
    matches!(read, Ok(0) | Err(Errno::AGAIN | Errno::IO))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn would_wait(_file: &File, _range: &Range<u64>) -> bool {
    false
}

/// Asks the host to read `range` of a file ahead.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
pub(crate) fn read_ahead(file: &File, range: &Range<u64>) {
    let len = std::num::NonZeroU64::new(range.end - range.start);
    // It is only a hint.
    let _ = rustix::fs::fadvise(file, range.start, len, rustix::fs::Advice::WillNeed);
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
pub(crate) fn read_ahead(_file: &File, _range: &Range<u64>) {}
