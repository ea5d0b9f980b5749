//! Requests other than reads and writes: flush, trim, write zeroes, cache, block status, resize.

use std::ops::Range;

use bandsaw::device::{AfterDiscard, BlockDevice, ExtentKind, zeros};
use bandsaw::size::to_usize;
use bandsaw::{Error, Kind, Result};

use crate::connection::{Connection, ErrorReply};
use crate::layout::{
    Command, Request, STATE_HOLE, STATE_ZERO, errno, flag, simple_reply, status_chunk,
};
use crate::platform;
use crate::reply_queue::Reply;

/// Maximum number of explicit zeros written at a time, in bytes.
const MAX_ZEROS: u64 = 1 << 20;
/// Maximum extents in a block status reply; the client asks again for the rest.
const MAX_RUNS: usize = 4096;
/// Maximum extents examined before zeroing counts as slow.
const FAST_RUNS: usize = 256;
/// Maximum bytes read ahead for one CACHE request.
const MAX_CACHED: u64 = 32 << 20;

/// Serves a request and adds its reply.
pub(crate) fn perform(connection: &Connection, request: &Request, out: &mut Vec<u8>) {
    let device = &**connection.export.device();
    let range = request.range();
    let done = match request.command {
        Command::Flush => device
            .flush()
            .map_err(|error| connection.failed("flush", &error)),
        Command::Trim => device
            .discard(range, AfterDiscard::Any)
            .and_then(|()| durable(device, request))
            .map_err(|error| connection.failed("trim", &error)),
        Command::WriteZeroes => write_zeroes(connection, device, request),
        Command::Resize => grow(connection, device, request.offset),
        Command::Cache => cache(device, range).map_err(|error| connection.failed("cache", &error)),
        Command::BlockStatus => match runs(connection, request) {
            Ok(runs) => return status_chunk(out, request.cookie, &runs),
            Err(error) => Err(connection.failed("block status", &error)),
        },
        Command::Read | Command::Write | Command::Disconnect | Command::Unknown(_) => Err(
            ErrorReply::new(errno::INVAL, "internal: unexpected command"),
        ),
    };
    match done {
        Ok(()) => simple_reply(out, request.cookie, 0),
        Err(refusal) => connection.refuse(out, request, &refusal),
    }
}

/// Serves a request on a worker thread and posts its reply.
pub(crate) fn run_on_worker(connection: &Connection, request: &Request) {
    let mut head = Vec::new();
    connection
        .others
        .time(0, || perform(connection, request, &mut head));
    connection.replies.send(Reply { head, body: None });
}

/// Flushes the device if the request has FUA.
pub(crate) fn durable(device: &dyn BlockDevice, request: &Request) -> Result<()> {
    if request.has(flag::FUA) {
        device.flush()
    } else {
        Ok(())
    }
}

fn write_zeroes(
    connection: &Connection,
    device: &dyn BlockDevice,
    request: &Request,
) -> std::result::Result<(), ErrorReply> {
    let range = request.range();
    let no_hole = request.has(flag::NO_HOLE);
    let failed = |error| connection.failed("write zeroes", &error);
    if request.has(flag::FAST_ZERO)
        && (no_hole || !is_fast(device, range.clone()).map_err(failed)?)
    {
        return Err(ErrorReply::new(
            errno::NOTSUP,
            "fast zeroing is not supported",
        ));
    }
    let zeroed = if no_hole {
        fill(device, range)
    } else {
        device.discard(range, AfterDiscard::Zeros)
    };
    zeroed
        .and_then(|()| durable(device, request))
        .map_err(failed)
}

/// Grows the export to a length, durably. New connections see the new length.
fn grow(
    connection: &Connection,
    device: &dyn BlockDevice,
    len: u64,
) -> std::result::Result<(), ErrorReply> {
    let _one_at_a_time = connection.export.lock_length();
    let info = device.info();
    if len < info.len {
        return Err(ErrorReply::new(
            errno::PERM,
            "an export cannot be made smaller: other clients may use the end",
        ));
    }
    if !len.is_multiple_of(u64::from(info.block)) {
        return Err(ErrorReply::new(
            errno::INVAL,
            format!("the size must be a multiple of {} bytes", info.block),
        ));
    }
    let grown = if len > info.len {
        device
            .set_len(len, AfterDiscard::Zeros)
            .and_then(|()| device.flush())
    } else {
        Ok(())
    };
    grown.map_err(|error| match error.kind() {
        Kind::Unsupported => ErrorReply::new(errno::PERM, error.message()),
        _ => connection.failed("resize", &error),
    })
}

/// Returns true if zeroing needs no data write: all data is stored in host files, in which holes
/// can be punched.
fn is_fast(device: &dyn BlockDevice, range: Range<u64>) -> Result<bool> {
    let mut at = range.start;
    for _ in 0..FAST_RUNS {
        let extent = device.extent_at(at..range.end)?;
        let plain = match extent.kind {
            ExtentKind::Hole | ExtentKind::Zero => extent.len,
            ExtentKind::Data => device
                .file_range(at..at + extent.len)?
                .map_or(0, |file_range| file_range.len),
        };
        if plain == 0 {
            return Ok(false);
        }
        at += plain;
        if at >= range.end {
            return Ok(true);
        }
    }
    Ok(false)
}

fn fill(device: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let zeros = zeros(to_usize((range.end - range.start).min(MAX_ZEROS)))?;
    let mut at = range.start;
    while at < range.end {
        let piece = (range.end - at).min(MAX_ZEROS);
        device.write_at(at, &zeros[..to_usize(piece)])?;
        at += piece;
    }
    Ok(())
}

fn cache(device: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let end = range.end.min(range.start.saturating_add(MAX_CACHED));
    let (mut at, mut piece) = (range.start, Vec::new());
    while at < end {
        at += match device.file_range(at..end)? {
            Some(file_range) => {
                platform::read_ahead(
                    &file_range.file,
                    &(file_range.offset..file_range.offset + file_range.len),
                );
                file_range.len
            }
            None => {
                // Reading fills the cache of the layer that decodes, if it has one.
                piece.resize(1 << 20, 0);
                let len = (end - at).min(1 << 20);
                device.read_at(at, &mut piece[..to_usize(len)])?;
                len
            }
        };
    }
    Ok(())
}

/// Returns the extents of a range, with adjacent ones of equal state merged.
fn runs(connection: &Connection, request: &Request) -> Result<Vec<(u32, u32)>> {
    let device = connection.export.device();
    let range = request.range();
    let most = if request.has(flag::REQ_ONE) {
        1
    } else {
        MAX_RUNS
    };
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let extent = device.extent_at(at..range.end)?;
        let len = u32::try_from(extent.len.min(range.end - at)).unwrap_or(u32::MAX);
        if len == 0 {
            return Err(Error::new(
                Kind::Corrupt,
                crate::LAYER,
                "the device reported an empty extent",
            )
            .at(at));
        }
        let state = match extent.kind {
            ExtentKind::Hole | ExtentKind::Zero => STATE_HOLE | STATE_ZERO,
            ExtentKind::Data => 0,
        };
        let full = runs.len() == most;
        match runs.last_mut() {
            Some((last, same)) if *same == state => *last += len,
            _ if full => break,
            _ => runs.push((len, state)),
        }
        at += u64::from(len);
    }
    Ok(runs)
}
