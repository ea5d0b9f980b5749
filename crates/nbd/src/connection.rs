//! Shared state of all threads of a connection in its transmission phase.

use std::sync::Arc;

use bandsaw::device::{Extent, ExtentKind};
use bandsaw::{Error, Kind};

use crate::buffers::Buffers;
use crate::channel::Channel;
use crate::events::{Event, EventReceiver, Throttle};
use crate::export::Export;
use crate::handshake::NegotiatedOptions;
use crate::known_data::KnownData;
use crate::latency::LatencyMean;
use crate::layout::{Command, MAX_PAYLOAD, Request, errno, error_chunk, flag, simple_reply};
use crate::reply_queue::ReplyQueue;

/// A connection in its transmission phase.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) channel: Arc<Channel>,
    pub(crate) export: Arc<Export>,
    pub(crate) structured: bool,
    contexts: bool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) reads: LatencyMean,
    pub(crate) writes: LatencyMean,
    /// Pace of flushes, and of all other requests except reads and writes.
    pub(crate) others: LatencyMean,
    events: Arc<dyn EventReceiver>,
    throttle: Arc<Throttle>,
    pub(crate) replies: ReplyQueue,
}

/// Reason why a request failed: an error number for the client and a message for its user.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    pub(crate) code: u32,
    pub(crate) why: String,
}

impl ErrorReply {
    pub(crate) fn new(code: u32, why: impl Into<String>) -> Self {
        Self {
            code,
            why: why.into(),
        }
    }
}

impl Connection {
    pub(crate) fn new(
        channel: Arc<Channel>,
        agreement: NegotiatedOptions,
        events: Arc<dyn EventReceiver>,
        throttle: Arc<Throttle>,
    ) -> Self {
        let NegotiatedOptions {
            export,
            structured,
            contexts,
        } = agreement;
        Self {
            replies: ReplyQueue::new(channel.clone()),
            channel,
            export,
            structured,
            contexts,
            buffers: Arc::default(),
            reads: LatencyMean::default(),
            writes: LatencyMean::default(),
            others: LatencyMean::default(),
            events,
            throttle,
        }
    }

    /// Refuses requests that do not fit the export or the negotiated options, before any side
    /// effect.
    pub(crate) fn check(&self, request: &Request) -> Result<(), ErrorReply> {
        let refuse = |code, why: &str| Err(ErrorReply::new(code, why));
        let known = match request.command {
            Command::Read => flag::DF,
            Command::Write | Command::Trim => flag::FUA,
            Command::WriteZeroes => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            Command::BlockStatus => flag::REQ_ONE,
            Command::Flush | Command::Cache | Command::Resize | Command::Disconnect => 0,
            Command::Unknown(number) => {
                return refuse(errno::INVAL, &format!("unsupported command {number}"));
            }
        };
        // FUA is allowed on all requests, and ignored by those that do not write.
        if request.flags & !(known | flag::FUA) != 0 {
            return refuse(errno::INVAL, "unsupported flag of the request");
        }
        if matches!(request.command, Command::Flush | Command::Disconnect) {
            return Ok(());
        }
        if request.command == Command::Resize {
            return if self.export.grows() {
                Ok(())
            } else {
                refuse(
                    errno::PERM,
                    "cannot change the length of the export: it is fixed",
                )
            };
        }
        let changes = matches!(
            request.command,
            Command::Write | Command::Trim | Command::WriteZeroes
        );
        if changes && self.export.is_read_only() {
            return refuse(errno::PERM, "the export is read-only");
        }
        if request.len == 0 {
            return refuse(errno::INVAL, "the request has a length of 0");
        }
        if matches!(request.command, Command::Read | Command::Write) && request.len > MAX_PAYLOAD {
            return refuse(errno::INVAL, "the request exceeds 32 MiB");
        }
        if request.has(flag::DF) && !self.structured
            || request.command == Command::BlockStatus && !self.contexts
        {
            return refuse(
                errno::INVAL,
                "the request needs a feature that the client did not negotiate",
            );
        }
        let len = self.export.device().info().len;
        match request.offset.checked_add(u64::from(request.len)) {
            Some(end) if end <= len => Ok(()),
            _ if matches!(request.command, Command::Write | Command::WriteZeroes) => {
                refuse(errno::NOSPC, "reaches past the end of the export")
            }
            _ => refuse(errno::INVAL, "reaches past the end of the export"),
        }
    }

    /// Reports a failure to the owner; returns the error for the client.
    pub(crate) fn failed(&self, doing: &'static str, error: &Error) -> ErrorReply {
        if let Some(unreported) = self.throttle.admit() {
            let export = self.export.name().to_owned();
            self.events.on_event(&Event::Failed {
                doing,
                export,
                error: error.to_string(),
                unreported,
            });
        }
        let code = match error.kind() {
            _ if error.is_host_full() => errno::NOSPC,
            Kind::ReadOnly => errno::PERM,
            Kind::Limit if doing != "read" => errno::NOSPC,
            _ => errno::IO,
        };
        // The owner's file names are not disclosed to clients.
        ErrorReply::new(code, format!("{doing}: {}", error.message()))
    }

    /// Adds the reply to a request that failed.
    pub(crate) fn refuse(&self, out: &mut Vec<u8>, request: &Request, refusal: &ErrorReply) {
        match self.structured {
            true => error_chunk(out, request.cookie, refusal.code, &refusal.why),
            false => simple_reply(out, request.cookie, refusal.code),
        }
    }

    /// Returns the kind of the extent at `range.start`, and its end within `range`.
    pub(crate) fn run_at(&self, range: std::ops::Range<u64>) -> bandsaw::Result<(ExtentKind, u64)> {
        let (device, known) = (self.export.device(), self.export.known());
        if known.covers(&range) {
            return Ok((ExtentKind::Data, range.end));
        }
        let around = KnownData::around(range.start, device.info().len);
        if around.contains(&range.start) {
            let Extent { kind, len } = device.extent_at(around.clone())?;
            let end = around.start + len;
            if kind == ExtentKind::Data {
                known.insert(&(around.start..end));
            }
            if end > range.start {
                return Ok((kind, end.min(range.end)));
            }
        }
        let Extent { kind, len } = device.extent_at(range.clone())?;
        Ok((kind, range.start.saturating_add(len).min(range.end)))
    }
}
